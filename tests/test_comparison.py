"""Models side by side: differences, weights, what is refused, files and the shell; the criterion of Watanabe; R²."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from typer.testing import CliRunner

import svrhmc
from conftest import LIMIT
from svrhmc.results import comparison
from svrhmc.results.comparison import stacking_weights
from svrhmc.results.loo import Fingerprint, Loo, RowGroups, loo_of
from svrhmc.shell import app as cli
from svrhmc.shell import fit as fitting
from svrhmc.targets import Group, glm
from svrhmc.targets import families as family_makers

N = 150
RNG = np.random.default_rng(3)
x, z, u = RNG.normal(size=(3, N))
TABLE = {
    "y": 5 + x + 0.2 * z + RNG.standard_t(4, size=N), "x": x, "z": z, "u": u, "w": RNG.uniform(0.5, 2, N),
    "count": RNG.poisson(np.exp(0.4 * x)), "event": RNG.random(N) < 1 / (1 + np.exp(-2 * x)),
}  # fmt: skip


@pytest.fixture(scope="module")
def models():
    return {
        "x": svrhmc.fit("y ~ x", TABLE),
        "both": svrhmc.fit("y ~ x + z", TABLE),
        "heavy": svrhmc.fit("y ~ x", TABLE, family="student-t"),
        "other": svrhmc.fit("y ~ u", TABLE),
    }


def test_differences_are_paired(models):
    comparison = svrhmc.compare(models)
    loo = {name: model.loo() for name, model in models.items()}
    assert comparison.names == tuple(sorted(loo, key=lambda name: -loo[name].elpd))
    best = loo[comparison.names[0]].pointwise
    for name, diff, se in zip(comparison.names, comparison.elpd_diff, comparison.diff_se, strict=True):
        away = best - loo[name].pointwise
        assert diff == pytest.approx(away.sum(), abs=1e-9)
        assert se == pytest.approx(np.sqrt(N * away.var()), abs=1e-9)
    last = comparison.names.index("other")
    unpaired = np.hypot(loo[comparison.names[0]].se, loo["other"].se)
    assert comparison.diff_se[last] < 0.8 * unpaired
    assert comparison.decided[last]


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, as ArviZ calls it
def test_differences_and_weights_are_those_of_arviz(models):
    arviz = pytest.importorskip("arviz", minversion="0.20")
    if not hasattr(arviz, "psislw"):
        pytest.skip("ArviZ 1 stacks by another interface")
    efficiency = {name: min(1.0, model.ess.mean() / model.loo().draws) for name, model in models.items()}
    theirs = arviz.compare(
        {
            name: arviz.loo(model.to_arviz(log_likelihood=True), pointwise=True, reff=efficiency[name])
            for name, model in models.items()
        },
        ic="loo",
        method="stacking",
    )
    mine = svrhmc.compare(models)
    assert mine.names == tuple(theirs.index)
    assert np.allclose(mine.elpd_diff, theirs["elpd_diff"], rtol=0, atol=1e-8)
    assert np.allclose(mine.diff_se, theirs["dse"], rtol=0, atol=1e-8)
    assert np.allclose(mine.weights, theirs["weight"], rtol=0, atol=1e-4)  # as far as ArviZ's optimiser goes
    e = np.stack([one.pointwise for one in mine.loo], axis=1)
    score = [np.log(np.exp(e) @ w).sum() for w in (mine.weights, theirs["weight"].to_numpy())]
    assert score[0] >= score[1] - 1e-9


@pytest.mark.parametrize(("spread", "count"), [(0.1, 200), (1.0, 200), (3.0, 1000), (300.0, 50)])
def test_weights_of_two_models_are_where_the_slope_of_the_score_is_0(spread, count):
    e = spread * np.random.default_rng(1).normal(size=(count, 2))
    p = np.exp(e - e.max(axis=1, keepdims=True))

    def slope(w):
        return ((p[:, 0] - p[:, 1]) / (w * p[:, 0] + (1 - w) * p[:, 1])).mean()

    low, high = 1e-9, 1 - 1e-9
    exact = 0.0 if slope(low) < 0 else 1.0 if slope(high) > 0 else brentq(slope, low, high, xtol=1e-14)
    assert stacking_weights(e) == pytest.approx([exact, 1 - exact], abs=1e-6)


def test_weights_meet_the_conditions_of_an_optimum_and_equal_models_share_them():
    rng = np.random.default_rng(0)
    e = rng.normal(size=(400, 1)) + rng.normal(size=(400, 6)) * np.linspace(0.1, 2, 6)
    w, p = stacking_weights(e), np.exp(e)
    slope = (p / (p @ w)[:, None]).mean(axis=0)
    assert slope.max() < 1 + 1e-6
    assert slope[w > 0] == pytest.approx(1, abs=1e-6)
    assert not w.all()
    assert stacking_weights(e[:, [0, 0, 0]]) == pytest.approx([1 / 3] * 3)


def test_sentences_say_what_to_think_of_it(models):
    decided = svrhmc.compare({"with": models["both"], "without": models["other"]})
    text = " ".join(str(decided).split())
    assert f"with predicts better than without by {decided.elpd_diff[1]:.1f} ± {decided.diff_se[1]:.1f}." in text
    assert "no evidence" in text
    assert "y ~ u (gaussian)" in text
    same = svrhmc.compare(models["x"], models["x"].loo())
    assert same.elpd_diff.tolist() == [0, 0]
    assert not any(same.decided)
    said = " ".join(str(same).split())
    assert "that is no evidence that it predicts better than model 2 (behind by 0.0 ± 0.0)." in said
    few = {name: values[:40] for name, values in TABLE.items()}
    small = str(svrhmc.compare(svrhmc.fit("y ~ x", few), svrhmc.fit("y ~ u", few)))
    assert "fewer than 100 rows" in small
    frame = decided.to_frame()
    assert list(frame.columns) == ["elpd", "se", "elpd_diff", "diff_se", "p_loo", "weight", "bad_k"]
    assert "elpd_diff" in decided._repr_html_()


def test_bad_k_are_counted_and_said():
    rng = np.random.default_rng(0)
    far = {"x": np.append(rng.normal(size=40), 100.0), "u": rng.normal(size=41)}
    far["y"] = np.append(far["x"][:40] + rng.normal(size=40), 0.0)
    comparison = svrhmc.compare({"line": svrhmc.fit("y ~ x", far), "other": svrhmc.fit("y ~ u", far)})
    assert comparison.to_frame().loc["line", "bad_k"] >= 1
    assert "Some Pareto k of" in str(comparison)


def test_what_is_not_of_the_same_observations_is_refused(models):
    def refused(message, *others, **words):
        with pytest.raises(ValueError, match=message):
            svrhmc.compare(models["x"], *others, **words)

    fewer = {name: values[:100] for name, values in TABLE.items()}
    refused(r"fitted to the same rows; got 150 rows and 100", svrhmc.fit("y ~ x", fewer))
    gaps = {**TABLE, "z": np.where(np.arange(N) < 7, np.nan, z)}
    refused(r"and 143 \(7 left out for missing values\)", svrhmc.fit("y ~ z", gaps, missing="drop"))
    logged = svrhmc.fit("log(y + 20) ~ x", TABLE)
    refused(r"models of the same response; got 'y' and 'log\(y \+ 20\)'", logged)
    refused("other values of y", svrhmc.fit("y ~ x", {**TABLE, "y": TABLE["y"][::-1]}))
    refused("the same weights or trials", svrhmc.fit("y ~ x", TABLE, weights="w"))
    refused("model 2 must be a posterior", 3)
    refused("samplers are compared by svrhmc.compare_samplers", svrhmc.targets.synthetic(3, 2))
    refused("two posteriors or more")
    refused("of a model with groups", models["both"], by="school")
    refused("draws must be", models["both"], draws=3)
    counts = svrhmc.fit("count ~ x", TABLE)
    with pytest.raises(ValueError, match="got probabilities and densities of a number"):
        svrhmc.compare(counts, svrhmc.fit("count ~ x", TABLE, family="gaussian"))
    other = svrhmc.fit("count ~ x", TABLE, family="negative-binomial")
    assert len(svrhmc.compare(counts, other).names) == 2
    with pytest.raises(ValueError, match="a cross-validation by 'g'; got one that leaves out single rows"):
        svrhmc.compare(counts.loo(), other.loo(), by="g")


def test_what_cannot_be_compared_is_refused_before_it_is_cross_validated(models, monkeypatch):
    def never(*arguments):
        raise AssertionError(arguments)

    monkeypatch.setattr(comparison, "loo_of", never)
    other = svrhmc.fit("w ~ x", TABLE)
    for one in (other, models["x"].loo(draws=100)):
        with pytest.raises(ValueError, match="must be models of"):
            svrhmc.compare(svrhmc.fit("count ~ x", TABLE), one)


def test_a_list_of_models_is_compared(models):
    both = [models["x"], models["other"]]
    assert svrhmc.compare(both).elpd.tolist() == svrhmc.compare(*both).elpd.tolist()
    with pytest.raises(ValueError, match="two posteriors or more, or a list or dictionary of them; got 1"):
        svrhmc.compare(both[:1])


def test_links_of_one_family_and_single_trials_are_compared():
    y, X = TABLE["event"], np.column_stack([np.ones(N), x])
    logit, probit, binomial = (
        svrhmc.sample(glm(X, y, family, **more), draws=400)
        for family, more in (
            (family_makers.bernoulli(), {}),
            (family_makers.bernoulli("probit"), {}),
            (family_makers.binomial(), {"trials": np.ones(N)}),
        )
    )
    assert svrhmc.compare(logit, probit, binomial).elpd_diff.max() < 4


def test_whole_groups_are_compared_in_whatever_order_they_come():
    index = np.repeat(np.arange(8), 6)
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(48), rng.normal(size=48)])
    y = X @ [1.0, 2.0] + rng.normal(size=8)[index] + rng.normal(size=48)
    one, two = (
        svrhmc.sample(glm(X[:, :k], y, "gaussian", groups=[Group(index, name="g")]), draws=200, budget_seconds=20)
        for k in (1, 2)
    )
    found = svrhmc.compare({"one": one, "two": two}, by="g", draws=200)
    assert found.names == ("two", "one")
    assert "8 groups of g" in str(found)
    with pytest.raises(ValueError, match="cross-validated alike; got groups of g and single rows"):
        svrhmc.compare(one.loo("g"), two.loo())
    without = svrhmc.sample(glm(X, y, "gaussian"), draws=400)
    assert svrhmc.compare({"without": without, "two": two}, by="g").names == ("two", "without")
    short = svrhmc.sample(glm(X[:40], y[:40], "gaussian"), draws=200)
    with pytest.raises(ValueError, match="fitted to the same rows; got 48 rows and 40"):
        svrhmc.compare(two, short, by="g")
    a, b = one.loo("g"), two.loo("g")
    turned = comparison._reorder_groups(b, b.names[::-1])
    assert svrhmc.compare(a, turned).elpd_diff == pytest.approx(svrhmc.compare(a, b).elpd_diff)


def test_groups_of_which_a_model_knows_nothing_have_their_exact_densities():
    """y ~ N(Xβ, σ²), β ~ N(0, I): p(y_g | the others) is a ratio of Gaussian densities."""
    index, noise = np.repeat(np.arange(6), 5)[RNG.permutation(30)], 0.7
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(30), rng.normal(size=30)])
    y = X @ [0.5, 1.0] + rng.normal(0, noise, 30)
    posterior = svrhmc.sample(glm(X, y, family_makers.gaussian(noise**2)), draws=20_000, seed=0)
    found = loo_of(posterior, "g", None, RowGroups("g", index, tuple("abcdef")))

    def log_evidence(rows):
        return stats.multivariate_normal(cov=X[rows] @ X[rows].T + noise**2 * np.eye(len(rows))).logpdf(y[rows])

    every = np.arange(30)
    exact = [log_evidence(every) - log_evidence(every[index != g]) for g in range(6)]
    log_likelihood = np.stack(
        [
            stats.norm(posterior.trace._flat() @ X[index == g].T, noise).logpdf(y[index == g]).sum(axis=1)
            for g in range(6)
        ],
        axis=1,
    )
    weights = np.exp(-(log_likelihood - log_likelihood.min(axis=0)))
    errors = weights.std(axis=0) / weights.mean(axis=0) / np.sqrt(len(weights))
    assert (np.abs(found.pointwise - exact) < LIMIT * errors).all()
    whole = np.log(np.exp(log_likelihood).mean(axis=0))  # nothing left out
    assert (np.abs(whole - exact) > LIMIT * errors).any()
    assert found.names == tuple("abcdef")
    assert found.rows.tolist() == [5] * 6


# Files and the shell


def test_a_cross_validation_is_kept_in_a_file(models, tmp_path):
    loo = models["x"].loo()
    loo.save(tmp_path / "a.loo")
    again = Loo.load(tmp_path / "a.loo")
    assert str(again) == str(loo)
    assert again.observations.y.matches(loo.observations.y)
    assert svrhmc.compare(again, models["x"]).elpd_diff.tolist() == [0, 0]
    models["x"].save(tmp_path / "a.posterior")
    with pytest.raises(svrhmc.DataError, match="is not a svrhmc cross-validation: it is a posterior"):
        Loo.load(tmp_path / "a.posterior")


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), env={"COLUMNS": "100", "TERM": "dumb"})


def test_the_shell_compares_fits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = ("y", "x", "u")
    np.savetxt(
        "a.csv", np.column_stack([TABLE[k] for k in columns]), "%.9g", ",", header=",".join(columns), comments=""
    )
    for name in ("x", "u"):
        assert invoke("fit", "a.csv", "--formula", f"y ~ {name}", "--out", name, "--quiet").exit_code == 0
    shown = invoke("compare", "u", "x/model.posterior")
    assert shown.exit_code == 0, shown.output
    assert "x/model.posterior predicts better than u by" in shown.output
    assert invoke("fit", "a.csv", "--formula", "y ~ u", "--out", "u", "--quiet", "--no-loo").exit_code == 0
    refused = invoke("compare", "u", "x")
    assert refused.exit_code == 2
    assert "u has no cross-validation to compare (model.loo)" in refused.output
    monkeypatch.setattr(fitting, "_QUICK", 0)
    monkeypatch.setattr(fitting, "_SECONDS", 1e-9)
    said = invoke("fit", "a.csv", "--formula", "y ~ u", "--out", "u")
    assert "model.loo, for svrhmc compare, is not written: cross-validation of so many rows" in said.output
    assert "With --loo it is." in said.output
    assert not (tmp_path / "u" / "model.loo").exists()
    monkeypatch.setattr(fitting, "_SECONDS", 1.0)
    assert invoke("fit", "a.csv", "--formula", "y ~ u", "--out", "u", "--quiet").exit_code == 0
    assert (tmp_path / "u" / "model.loo").exists()
    assert invoke("fit", "a.csv", "--formula", "y ~ u", "--out", "u", "--quiet", "--loo").exit_code == 0
    assert invoke("compare", "u", "x").exit_code == 0
    assert "a.csv is no folder of a fit" in invoke("compare", "x", "a.csv").output


def test_the_former_options_still_compare_samplers(tmp_path):
    options = ("--n", "20", "--dim", "2", "--chains", "50", "--passes", "5", "--plot", tmp_path / "a.svg")
    former, now = invoke("compare", *options), invoke("compare-samplers", *options)
    assert (former.exit_code, now.exit_code) == (0, 0)
    assert former.stderr.startswith("deprecated: ")
    assert "svrhmc compare-samplers" in former.stderr
    assert now.stderr == ""
    tables = [[line for line in shown.stdout.splitlines() if " steps in " not in line] for shown in (former, now)]
    assert tables[0] == tables[1]


def test_the_former_name_warns_and_hides_nothing():
    former = importlib.import_module("svrhmc.compare")
    target, samplers = svrhmc.targets.synthetic(5, 2), [("HMC", svrhmc.hmc(0.3))]
    for function in (former.compare, svrhmc.compare.compare):
        with pytest.warns(DeprecationWarning, match=r"use svrhmc\.compare_samplers"):
            [curve] = function(target, samplers, 5, 20)
        assert curve.exact.tolist() == svrhmc.compare_samplers(target, samplers, 5, 20)[0].exact.tolist()
    code = "from svrhmc.compare import compare, Curve; import svrhmc.compare, svrhmc.plots; print(svrhmc.compare.__module__)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "svrhmc.results.comparison"


# The criterion of Watanabe, and R²


def test_waic_is_that_of_arviz_but_for_the_divisor(models):
    arviz = pytest.importorskip("arviz")
    if not hasattr(arviz, "waic"):
        pytest.skip("ArviZ 1 has no waic")
    mine = models["heavy"].waic()
    theirs = arviz.waic(models["heavy"].to_arviz(log_likelihood=True))
    assert mine.p_waic * (1 - 1 / mine.draws) == pytest.approx(theirs.p_waic, rel=1e-10)
    assert mine.elpd + mine.p_waic == pytest.approx(theirs.elpd_waic + theirs.p_waic, rel=1e-12)
    assert mine.elpd == pytest.approx(models["heavy"].loo().elpd, abs=0.5)
    assert "posterior.loo() is to be preferred" in " ".join(str(mine).split())
    assert list(mine.to_frame().columns) == ["elpd", "p_waic"]
    assert "waic" in mine._repr_html_()
    with pytest.raises(ValueError, match="draws must be"):
        models["x"].waic(draws=1)


def test_waic_says_where_it_fails():
    data = np.append(np.zeros(20), 60.0) + np.random.default_rng(0).normal(size=21)
    found = svrhmc.sample(glm(np.ones((21, 1)), data, "gaussian"), draws=400).waic()
    assert 20 in found.bad
    assert "not reliable" in str(found)


def test_r2_is_the_share_of_the_variance_of_y(models):
    draws = models["x"].trace.draws.reshape(-1, 3)
    mean = draws[:, [0]] + draws[:, [1]] * x
    expected = mean.var(axis=1) / (mean.var(axis=1) + np.exp(2 * draws[:, 2]))
    found = models["x"].r2(draws=len(draws))
    assert found.draws[:, 0] == pytest.approx(expected, rel=1e-9)
    assert "R2" in str(found)
    events = svrhmc.fit("event ~ x", TABLE)
    draws = events.trace.draws.reshape(-1, 2)
    p = 1 / (1 + np.exp(-(draws[:, [0]] + draws[:, [1]] * x)))
    expected = p.var(axis=1) / (p.var(axis=1) + (p * (1 - p)).mean(axis=1))
    assert events.r2(draws=len(draws)).draws[:, 0] == pytest.approx(expected, rel=1e-9)


def test_r2_has_groups_in_it_and_refuses_classes():
    index = np.repeat(np.arange(8), 6)
    rng = np.random.default_rng(0)
    y = 3 * rng.normal(size=8)[index] + rng.normal(size=48)
    posterior = svrhmc.sample(
        glm(np.ones((48, 1)), y, "gaussian", groups=[Group(index, name="g")]), draws=200, budget_seconds=20
    )
    assert posterior.r2().mean[0] > 0.7
    assert "variances() has shares with and without them" in " ".join(str(posterior.r2()).split())
    with pytest.raises(ValueError, match="one that says the variance of y"):
        svrhmc.fit("k ~ x", {"k": rng.choice(["a", "b", "c"], 60), "x": rng.normal(size=60)}).r2()
    with pytest.raises(ValueError, match="level must be"):
        posterior.r2(2)


@pytest.mark.parametrize(
    ("family", "t", "law"),
    [
        (family_makers.bernoulli(), 0.7, stats.bernoulli(1 / (1 + np.exp(-0.7)))),
        (family_makers.bernoulli("probit"), 0.7, stats.bernoulli(stats.norm.cdf(0.7))),
        (family_makers.binomial(), 0.7, stats.bernoulli(1 / (1 + np.exp(-0.7)))),
        (family_makers.poisson(), 0.7, stats.poisson(np.exp(0.7))),
        (family_makers.gaussian(0.3), 0.7, stats.norm(0.7, np.sqrt(0.3))),
        (family_makers.gaussian(), [0.7, -0.4], stats.norm(0.7, np.exp(-0.4))),
        (family_makers.student_t(5.0), [0.7, -0.4], stats.t(5.0, 0.7, np.exp(-0.4))),
        (family_makers.negative_binomial(), [0.7, 0.3], stats.nbinom(np.exp(0.3), 1 / (1 + np.exp(0.7 - 0.3)))),
        (family_makers.gamma(), [0.7, 0.3], stats.gamma(np.exp(0.3), scale=np.exp(0.7 - 0.3))),
        (family_makers.log_normal(), [0.7, -0.4], stats.lognorm(np.exp(-0.4), scale=np.exp(0.7))),
        (family_makers.geometric(), 0.7, stats.geom(1 / (1 + np.exp(0.7)), loc=-1)),
        (family_makers.inverse_gaussian(), [0.7, 0.3], stats.invgauss(np.exp(0.7 - 0.3), scale=np.exp(0.3))),
        (family_makers.beta(), [0.7, 0.3], stats.beta(*(np.exp(0.3) / (1 + np.exp(np.array([-0.7, 0.7])))))),
        (family_makers.beta_binomial(), [0.7, 0.3], stats.bernoulli(1 / (1 + np.exp(-0.7)))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_families_say_the_variance_of_y(family, t, law):
    t = np.asarray(t)
    assert family.mean(t) == pytest.approx(law.mean(), rel=1e-12)
    assert family.variance(t) == pytest.approx(law.var(), rel=1e-12)


@pytest.mark.parametrize(
    ("family", "t"),
    [
        (family_makers.zero_inflated_poisson(), [0.7, -0.5]),
        (family_makers.zero_inflated_negative_binomial(), [0.7, 1.2, -0.5]),
    ],
)
def test_the_variance_of_counts_with_extra_zeros_is_that_of_their_probabilities(family, t):
    y = np.arange(400.0)
    below, at_most = family.cumulative(np.broadcast_to(np.array(t), (400, len(t))), y)
    p = at_most - below
    mean = p @ y
    assert family.mean(np.array(t)) == pytest.approx(mean, rel=1e-9)
    assert family.variance(np.array(t)) == pytest.approx(p @ (y - mean) ** 2, rel=1e-9)


def test_families_that_keep_logarithms_are_compared_with_those_that_do_not():
    y = np.exp(0.3 * x + 0.5 * u) * 10.0 ** np.linspace(-8, 8, N)
    table = {"y": y, "x": x}
    kept = [
        svrhmc.fit("y ~ x", table, family=family, draws=100).loo() for family in ("gaussian", "gamma", "log-normal")
    ]
    assert svrhmc.compare(*kept).names[-1] == "model 1"
    y[70] *= 1 + 1e-3
    with pytest.raises(ValueError, match="other values of y"):
        svrhmc.compare(kept[1], svrhmc.fit("y ~ x", {**table, "y": y[::-1]}, family="gamma", draws=100))


def test_a_fingerprint_sees_one_row_and_their_order_but_no_rounding():
    y = np.exp(3 * x)
    one = Fingerprint.of(y)
    assert one.matches(Fingerprint.of(np.exp(np.log(y))))
    changed = y.copy()
    changed[70] *= 1 + 1e-6
    for other in (changed, y[::-1], np.roll(y, 1), y + 1e-6):
        assert not one.matches(Fingerprint.of(other))
    assert Fingerprint.of(np.zeros(3)).matches(Fingerprint.of(np.zeros(3)))


def test_trials_are_compared_whichever_way_a_family_keeps_them():
    trials = RNG.integers(1, 9, N)
    y = RNG.binomial(trials, 1 / (1 + np.exp(-x)))
    table = {"y": y, "x": x, "m": trials, "more": trials + 1}
    binomial, beta = (
        svrhmc.fit("y ~ x", table, family=f, trials="m", draws=100) for f in ("binomial", "beta-binomial")
    )
    assert svrhmc.compare(binomial, beta).elpd_diff.max() < 4
    assert beta.r2().mean == pytest.approx(binomial.r2().mean, abs=0.05)
    with pytest.raises(ValueError, match="the same weights or trials"):
        svrhmc.compare(beta, svrhmc.fit("y ~ x", table, family="binomial", trials="more", draws=100))


def test_a_variance_that_is_infinite_is_none():
    assert family_makers.student_t(2.0).variance(np.zeros(2)) is None
