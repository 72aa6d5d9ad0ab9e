"""What a user reads of a fit with groups, against numbers computed by hand from the draws and the data."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import svrhmc
from conftest import LIMIT
from svrhmc.core import serialise
from svrhmc.core.errors import DataError, StorageError
from svrhmc.core.storage import read_record, write_record
from svrhmc.fitting import regress
from svrhmc.results.groups import Quantities
from svrhmc.results.prior import under_wider_priors
from svrhmc.results.probability import match_moments
from svrhmc.shell import app as cli
from svrhmc.targets import Group
from svrhmc.targets.priors import HalfNormal

N, LEVELS = 160, 8
RNG = np.random.default_rng(3)
SCHOOL = np.array([f"s{k}" for k in range(LEVELS)])[np.append(np.arange(LEVELS), RNG.integers(0, LEVELS, N - LEVELS))]
X, PLAN = RNG.normal(5, 2, N), RNG.choice(["basic", "pro", "team"], N)
CODE = np.array([int(name[1:]) for name in SCHOOL])
ETA = -1 + 0.3 * X + 0.5 * (PLAN == "pro") + RNG.normal(size=LEVELS)[CODE]
TABLE = {
    "y": RNG.random(N) < expit(ETA),
    "z": ETA + RNG.normal(0, 0.2, LEVELS)[CODE] * X + RNG.normal(size=N),
    "count": RNG.poisson(np.exp(ETA / 2)),
    "flat": RNG.normal(size=N),
    "x": X,
    "school": SCHOOL,
    "plan": PLAN,
}
NEW = {"x": [1.0, 2.0, 3.0, 4.0], "plan": ["pro", "basic", "team", "pro"], "school": ["s1", "s2", "other", "other"]}


@pytest.fixture(scope="module")
def logit():
    return svrhmc.fit("y ~ x + plan + (1 | school)", TABLE, draws=200)


@pytest.fixture(scope="module")
def slopes():
    return svrhmc.fit("z ~ x + (x | school)", TABLE, draws=200)


@pytest.fixture(scope="module")
def counts():
    return svrhmc.fit("count ~ x + (1 | school) + (0 + x | school)", TABLE, "poisson", draws=100, budget_seconds=20)


@pytest.fixture(scope="module")
def nothing():
    """Groups that do not differ."""
    return svrhmc.fit("flat ~ x + (1 | school)", TABLE, draws=200)


def flat(posterior):
    return posterior.trace.draws.reshape(-1, posterior.trace.draws.shape[2])


def effects(posterior):
    return posterior.group_effects.draws.reshape(-1, posterior.group_effects.draws.shape[2])


# Tables and sentences


def test_a_summary_has_coefficients_then_scales_and_says_what_the_groups_are(logit, slopes):
    shown = slopes.summary()
    assert shown.names == (
        "Intercept", "x", "log sigma", "sd(1 | school)", "sd(x | school)", "cor(1, x | school)",
    )  # fmt: skip
    assert "groups: school (8 levels)" in shown.title
    prior = slopes.prior.said
    assert "sd(1 | school), at the means of the columns, ~ HalfNormal(" in prior
    assert "cor(school), there too, ~ LKJ(1)" in prior
    scale = 2.5 * TABLE["z"].std()
    assert f"sd(1 | school), at the means of the columns, ~ HalfNormal({scale:.3g})" in prior
    assert f"sd(x | school) ~ HalfNormal({scale / X.std():.3g})" in prior
    assert list(slopes.to_frame().index) == list(shown.names)
    assert list(slopes.draws_frame().columns[2:]) == list(shown.names)
    assert "3 coefficients, 3 scales of groups" in repr(slopes)
    for text in (logit._repr_html_(), str(logit.summary()), str(logit)):
        assert text
    assert "sd(1 | school)" in logit._repr_html_()


def test_ratios_and_forest_plots_are_of_coefficients_alone(logit):
    assert logit.ratios().names == ("x", "plan[pro]", "plan[team]")
    for said in (logit.groups(), logit.contrast("school", ["s1", "s4"]), logit.contrast("plan")):
        told = " ".join(str(said).split())
        assert "the log odds of y" in told
        assert "(e to the power of one is an odds ratio)" in told
    pytest.importorskip("matplotlib")
    labels = [label.get_text() for label in logit.plot().axes[0].get_yticklabels()]
    assert labels == ["x", "plan[pro]", "plan[team]"]


def test_statements_and_quantiles_are_about_scales_too(logit):
    share = (flat(logit)[:, 4] > 0.5).mean()
    assert logit.probability("`sd(1 | school)` > 0.5") == pytest.approx(share, abs=0.01)
    assert logit.probability("sd(1 | school) > 0.5") == pytest.approx(share, abs=0.01)
    with pytest.raises(
        ValueError, match=r"name 'school\[s4\]': contrast\('school', \['a', 'b'\]\) has the probability"
    ):
        logit.probability("school[s4] > school[s1]")
    with pytest.raises(ValueError, match=r"there are|did you mean"):
        logit.probability("town[s4] > 0")
    assert logit.quantile(0.5)[4] == pytest.approx(np.median(flat(logit)[:, 4]), rel=1e-6)


def test_a_scale_near_0_is_said_in_a_sentence_and_another_is_not(nothing, slopes):
    assert "sd(1 | school) may be 0" in str(nothing.summary())
    low = np.quantile(flat(nothing)[:, 3], 0.05)
    assert f"below {low:.2g}" in " ".join(nothing.summary().notes)
    assert "sd(1 | school) may be 0" not in str(slopes.summary())


def test_laplace_is_compared_where_it_is_far_off(logit):
    place = logit.names.index("sd(1 | school)")
    middle, sd = logit.quantile(0.5)[place], logit.sd[place]
    far = logit.laplace.mean.copy()
    far[place] = middle - 2 * sd
    off = replace(logit, laplace=replace(logit.laplace, mean=far))
    assert "2 posterior sds below the median" in " ".join(" ".join(off.summary().notes).split())
    far[place] = middle
    near = replace(logit, laplace=replace(logit.laplace, mean=far))
    assert not any("Laplace" in note for note in near.summary().notes)


def test_a_prior_that_counts_is_said_with_the_mean_under_one_twice_as_wide():
    rng, scale = np.random.default_rng(0), 0.5
    model = svrhmc.targets.glm(
        X[:, None], TABLE["flat"], "gaussian", groups=[Group(CODE, name="g", prior=HalfNormal(scale))]
    )
    tau = np.abs(rng.normal(0, scale, (4, 5000, 1)))
    (sentence,) = under_wider_priors(model.group_terms, tau)
    flat_tau = tau.ravel()
    weights = np.exp(flat_tau**2 / (2 * scale**2) - flat_tau**2 / (2 * (2 * scale) ** 2))
    wider = (weights * flat_tau).sum() / weights.sum()
    assert f"would be about {wider:.3g} instead of {flat_tau.mean():.3g}" in sentence
    assert "8 levels" in sentence
    assert wider == pytest.approx(2 * flat_tau.mean(), rel=0.1)  # the draws are of the prior
    assert under_wider_priors(model.group_terms, 0.05 * tau) == ()


# Levels


def test_levels_have_the_moments_of_their_draws(logit, slopes):
    frame = logit.groups("school", level=0.8).to_frame()
    u = effects(logit)
    assert list(frame["level"]) == [f"s{k}" for k in range(LEVELS)]
    assert np.allclose(frame["mean"], u.mean(axis=0))
    assert np.allclose(frame["sd"], u.std(axis=0, ddof=1))
    assert np.allclose(frame["10%"], np.quantile(u, 0.1, axis=0))
    assert np.allclose(frame["90%"], np.quantile(u, 0.9, axis=0))
    assert list(frame["rows"]) == np.bincount(CODE).tolist()
    away, tau = u - u.mean(axis=1, keepdims=True), flat(logit)[:, 4]
    rest = [y - np.polyval(np.polyfit(tau, y, 2), tau) for y in away.T]
    expected = np.var(rest, axis=1, ddof=1) / ((1 - 1 / LEVELS) * (tau**2).mean())
    assert np.allclose(frame["shrinkage"], np.clip(expected, 0, 1))
    two = slopes.groups()
    assert two.columns == ("1", "x") * LEVELS
    assert two.names[:2] == ("s0: 1", "s0: x")
    assert np.allclose(two.mean, effects(slopes).mean(axis=0))
    assert "Effects of school (1, x | school)" in str(two)


def test_terms_of_one_factor_are_one_table(counts):
    levels = counts.groups("school")
    u = effects(counts).mean(axis=0)
    assert levels.columns == ("1", "x") * LEVELS
    assert np.allclose(levels.mean, np.column_stack([u[:LEVELS], u[LEVELS:]]).ravel())


def test_shrinkage_is_the_share_that_is_lost_whatever_is_not_known_of_the_intercept(logit):
    """Of draws whose law is known, s = 0.3; var(u) itself would give far more, as all levels move together."""
    rng, s, tau = np.random.default_rng(1), 0.3, 0.7
    z = rng.normal(size=(4, 5000, LEVELS))
    common = rng.normal(0, 1.0, (4, 5000, 1))
    u = np.sqrt(s) * tau * (z - z.mean(axis=2, keepdims=True)) + common
    draws = np.repeat(logit.trace.draws[:, :1], 5000, axis=1)
    draws[..., -1] = tau
    made = replace(logit, trace=replace(logit.trace, draws=draws), group_effects=replace(logit.group_effects, draws=u))
    shrinkage = made.groups().shrinkage
    error = s * np.sqrt(2 / 20_000)
    assert (np.abs(shrinkage - s) < LIMIT * error).all()
    assert ((u.var(axis=(0, 1)) / tau**2 - s) > 100 * error).all()


@pytest.mark.parametrize("family", ["gaussian", "bernoulli"])
def test_where_a_column_that_varies_by_group_is_0_changes_no_prediction(family):
    """Years as 1990 to 2020 or as 0 to 30: with a prior at year 0 a slope could hardly vary by group."""
    rng = np.random.default_rng(3)
    index, year = np.repeat(np.arange(20), 15), rng.integers(0, 31, 300).astype(float)
    t = 0.3 * (year - 15) * rng.normal(size=20)[index] + rng.normal(size=20)[index]
    y = t + rng.normal(size=300) if family == "gaussian" else t + rng.logistic(size=300) > 0
    fits = []
    for zero in (0.0, 1990.0):
        table = {"y": y, "year": year + zero, "g": index}
        posterior = svrhmc.fit("y ~ year + (year | g)", table, family, draws=200)
        known = {"year": np.array([3.0, 20.0]) + zero, "g": [1, 2]}
        new = {"year": np.array([15.0]) + zero, "g": [99]}
        place = posterior.names.index("sd(1 | g)")
        term, stated = posterior._target.group_terms[0], posterior.trace.draws[..., place:].reshape(-1, 3)
        numbers = {
            "slopes": stated[:, 1], "at the centre": term.covariance.centred_sds_and_correlations(stated)[:, 0],
            "known": posterior.predict(known).mean, "new": posterior.predict(new).sd,
            "shares": posterior.variances().mean, "rows": posterior.loo().elpd, "groups": posterior.loo(by="g").elpd if family == "gaussian" else 0.0,
            "lp": posterior.to_arviz(lp=True).sample_stats.lp.values.mean(),
        }  # fmt: skip
        fits.append({name: np.mean(values) for name, values in numbers.items()})
        words = "sd(1 | g), at the means of the columns, ~ HalfNormal"
        assert words in " ".join(posterior.summary().notes).replace("\n", " ")
    assert fits[0]["slopes"] > 0.15
    for name, value in fits[0].items():
        assert fits[1][name] == pytest.approx(value, rel=0.1), name


def test_a_factor_is_named_where_there_are_several(logit):
    with pytest.raises(ValueError, match=r"a grouping factor \('school'\); got 'scool': did you mean 'school'"):
        logit.groups("scool")
    plain = svrhmc.fit("flat ~ x", TABLE)
    for call in (plain.groups, plain.variances):
        with pytest.raises(ValueError, match="of a model with groups"):
            call()


def test_caterpillars_are_drawn_in_order_and_many_by_their_ends(logit, slopes, tmp_path):
    pytest.importorskip("matplotlib")
    figure = slopes.groups().plot(tmp_path / "levels.svg")
    assert len(figure.axes) == 2
    assert (tmp_path / "levels.svg").exists()
    levels = logit.groups()
    names = [label.get_text() for label in levels.plot().axes[0].get_yticklabels()]
    assert names == [levels.levels[j] for j in np.argsort(levels.mean)]
    count = 100
    many = replace(
        levels, levels=tuple(map(str, range(count))), columns=("1",) * count, mean=np.arange(count) * 1.0,
        sd=np.ones(count), interval=np.zeros((count, 2)), shrinkage=np.zeros(count), rows=np.ones(count, np.int64),
    )  # fmt: skip
    assert many.ordered("1").tolist() == [*range(30), *range(70, 100)]


# Shares of variance


def test_shares_of_variance_are_those_of_the_formulas(logit, slopes, counts):
    found, x = logit.variances(draws=10**6), flat(logit)
    fixed = (np.outer(x[:, 1], X) + x[:, 2:3] * (PLAN == "pro") + x[:, 3:4] * (PLAN == "team")).var(axis=1)
    between, residual = x[:, 4] ** 2, np.pi**2 / 3
    total = fixed + between + residual
    expected = {
        "R2 marginal": fixed / total, "R2 conditional": (fixed + between) / total,
        "icc(1 | school)": between / (between + residual), "share(1 | school)": between / total,
        "share(residual)": residual / total,
    }  # fmt: skip
    assert isinstance(found, Quantities)
    assert found.names == tuple(expected)
    assert np.allclose(found.draws, np.stack(list(expected.values()), axis=1))
    assert np.allclose(found.interval[0], np.quantile(expected["R2 marginal"], [0.05, 0.95]))

    x = flat(slopes)
    fixed, sigma = np.outer(x[:, 1], X).var(axis=1), np.exp(2 * x[:, 2])
    a, b, c = x[:, 3], x[:, 4], x[:, 5]
    between = (a**2)[:, None] + 2 * (a * b * c)[:, None] * X + (b**2)[:, None] * X**2
    between = between.mean(axis=1)
    found = slopes.variances(draws=10**6)
    assert np.allclose(found.draws[:, 0], fixed / (fixed + between + sigma))
    assert np.allclose(found.draws[:, 2], between / (between + sigma))
    again = slopes.variances(draws=10**6, table=TABLE)
    assert np.allclose(found.draws, again.draws)

    x, u = flat(counts), effects(counts)
    eta = x[:, :1] + x[:, 1:2] * X + u[:, CODE] + u[:, LEVELS + CODE] * X
    residual = np.log1p(1 / np.exp(eta).mean(axis=1))
    first, second = x[:, 2] ** 2, x[:, 3] ** 2 * (X**2).mean()
    found = counts.variances(draws=10**6)
    assert found.names[2:4] == ("icc(1 | school)", "icc(x | school)")
    assert np.allclose(found.draws[:, 3], second / (first + second + residual))


@pytest.mark.parametrize(
    ("loss", "shared", "expected"),
    [
        (svrhmc.targets.families.bernoulli("probit"), [], 1.0),
        (svrhmc.targets.families.binomial(), [], np.pi**2 / 3),
        (svrhmc.targets.families.ordinal(levels=[0, 1, 2]), [0.0, 1.0], np.pi**2 / 3),
        (svrhmc.targets.families.negative_binomial(), [np.log(2.0)], np.log(1 + 1 / 3 + 1 / 2)),
        (svrhmc.targets.families.gamma(), [np.log(2.0)], np.pi**2 / 6 - 1),  # ψ′(2)
        (svrhmc.targets.families.student_t(df=4.0), [np.log(3.0)], 18.0),
    ],
)
def test_families_say_the_variance_of_an_observation(loss, shared, expected):
    assert loss.link_variance(np.array([3.0]), np.array([shared])) == pytest.approx([expected])


# Predictions


def by_hand(posterior, table, u):
    """Log odds of rows under all draws."""
    x, a, plan = flat(posterior), np.array(table["x"]), np.array(table["plan"])
    return x[:, :1] + x[:, 1:2] * a + x[:, 2:3] * (plan == "pro") + x[:, 3:4] * (plan == "team") + u


def test_rows_of_known_levels_have_their_effects_and_new_ones_what_is_asked_for(logit):
    u, every = effects(logit), {"draws": 10**6}
    known = np.column_stack([u[:, 1], u[:, 2], 0 * u[:, :2]])
    average = logit.predict(NEW, new_groups="average", **every)
    assert np.allclose(average.mean, expit(by_hand(logit, NEW, known)).mean(axis=0))
    none = logit.predict({k: v for k, v in NEW.items() if k != "school"}, include_groups=False, **every)
    assert np.allclose(none.mean, expit(by_hand(logit, NEW, 0)).mean(axis=0))
    drawn = logit.predict(NEW, **every)
    assert np.allclose(drawn.mean[:2], average.mean[:2])
    assert not np.allclose(drawn.mean[2:], average.mean[2:])
    assert (drawn.sd[2:] > average.sd[2:]).all()


def predictor_of_new(posterior, table, **settings):
    (block,) = posterior.predict_draws(table, draws=10**6, **settings)
    mean = block.mean
    return np.log(mean / (1 - mean)) if posterior.family == "bernoulli" else mean


def test_effects_of_new_levels_have_the_law_of_the_others(logit):
    """u/τ is standard normal; rows of one level share it, other levels and other seeds have others."""
    names = [f"new {k}" for k in range(50)]
    table = {"x": [1.0] * 51, "plan": ["pro"] * 51, "school": [*names, names[0]]}
    tau = flat(logit)[:, 4:5]
    base = predictor_of_new(logit, table, new_groups="average")
    e = (predictor_of_new(logit, table) - base) / tau
    assert np.allclose(e[:, 0], e[:, 50])
    e = e[:, :50]
    assert abs(e.mean()) * np.sqrt(e.size) < LIMIT
    assert abs((e**2).mean() - 1) * np.sqrt(e.size / 2) < LIMIT
    assert abs((e[:, 0] * e[:, 1]).mean()) * np.sqrt(len(e)) < LIMIT
    wrong = e * tau / tau.mean()  # one τ for all draws
    assert abs((wrong**2).mean() - 1) * np.sqrt(e.size / 2) > LIMIT
    alone = {name: values[7:8] for name, values in table.items()}
    assert np.allclose(predictor_of_new(logit, alone) - base[:, 7:8], (e * tau)[:, 7:8])
    assert not np.allclose(predictor_of_new(logit, table, seed=1)[:, :50], (e * tau) + base[:, :50])


def test_a_column_of_very_many_numbers_that_is_taken_for_groups_is_said():
    rng = np.random.default_rng(0)
    income = np.repeat(rng.permutation(10_000)[:1100], 2)
    table = {"y": income / 5e3 + rng.normal(size=2200), "income": income}
    settings = {"draws": 20, "certificate": False}
    said = "the 1,100 different numbers of income are taken for names of groups, as (1 | income) says; write income or"
    assert said in " ".join(str(svrhmc.fit("y ~ (1 | income)", table, **settings).summary()).split())
    for formula, columns in {
        "y ~ (1 | C(income))": table,
        "y ~ (1 | income)": {**table, "income": income % 900},
    }.items():
        assert "taken for names of groups" not in str(svrhmc.fit(formula, columns, **settings).summary())


def test_new_levels_have_correlated_slopes(slopes):
    names = np.repeat([f"new {k}" for k in range(100)], 2)
    table = {"x": np.tile([0.0, 1.0], 100), "school": names}
    base = predictor_of_new(slopes, table, new_groups="average")
    away = (predictor_of_new(slopes, table) - base).reshape(len(base), 100, 2)
    u = np.stack([away[..., 0], away[..., 1] - away[..., 0]])
    a, b, c = flat(slopes)[:, 3:4], flat(slopes)[:, 4:5], flat(slopes)[:, 5:6]
    first = u[0] / a
    second = (u[1] / b - c * first) / np.sqrt(1 - c**2)
    for e in (first, second):
        assert abs((e**2).mean() - 1) * np.sqrt(e.size / 2) < LIMIT
    assert abs((first * second).mean()) * np.sqrt(first.size) < LIMIT
    assert abs((first * u[1] / b).mean()) * np.sqrt(first.size) > LIMIT  # as they are, they correlate


def test_new_levels_are_refused_by_name_where_that_is_asked_for(logit):
    with pytest.raises(DataError, match=r"some levels of 'school' were not fitted \('other'\)"):
        logit.predict(NEW, new_groups="refuse")
    with pytest.raises(ValueError, match="new_groups must be one of 'draw', 'average', 'refuse'; got 'zero'"):
        logit.predict(NEW, new_groups="zero")
    with pytest.raises(DataError, match="school"):
        logit.predict({"x": [1.0], "plan": ["pro"]})
    plain = svrhmc.fit("flat ~ x", TABLE)
    with pytest.raises(ValueError, match="groups must be None where the model has no groups"):
        plain.predict({"x": [1.0]}, groups=[[0]])


def test_rows_of_arrays_are_given_their_levels():
    posterior = regress(X[:, None], TABLE["z"], names=["x"], groups=[Group(CODE, name="g")], draws=100)
    x, u = flat(posterior), effects(posterior)
    new = np.array([[1.0], [2.0], [3.0]])
    prediction = posterior.predict(new, groups=[[3, 0, 99]], new_groups="average", draws=10**6)
    expected = x[:, :1] + x[:, 1:2] * new[:, 0] + np.column_stack([u[:, 3], u[:, 0], 0 * u[:, 0]])
    assert np.allclose(prediction.mean, expected.mean(axis=0))
    with pytest.raises(ValueError, match=r"the levels of the rows for each of \(1 \| g\)"):
        posterior.predict(new)
    with pytest.raises(ValueError, match="3 whole numbers for each"):
        posterior.predict(new, groups=[[0, 1]])
    assert posterior.predict(new, include_groups=False).mean.shape == (3,)
    slope = posterior.effects(draws=10**6)
    assert slope.mean == pytest.approx([posterior.mean[1]], rel=1e-6)


def test_the_shell_has_the_same_words(logit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logit.save("fit.posterior")
    lines = [",".join(NEW), *(",".join(map(str, row)) for row in zip(*NEW.values(), strict=True))]
    (tmp_path / "new.csv").write_text("\n".join(lines) + "\n")

    def means(*words):
        result = CliRunner().invoke(cli.app, ["predict", "fit.posterior", "new.csv", "--quiet", *words])
        assert result.exit_code == 0, result.output
        rows = (tmp_path / "predictions.csv").read_text().splitlines()[1:]
        return [float(row.split(",")[1]) for row in rows]

    assert means() == pytest.approx(logit.predict(NEW).mean, rel=1e-6)
    assert means("--new-groups", "average") == pytest.approx(logit.predict(NEW, new_groups="average").mean, rel=1e-6)
    assert means("--no-groups") == pytest.approx(logit.predict(NEW, include_groups=False).mean, rel=1e-6)
    result = CliRunner().invoke(cli.app, ["predict", "fit.posterior", "new.csv", "--new-groups", "refuse"])
    assert result.exit_code == 2
    assert "give --new-groups draw" in result.output
    result = CliRunner().invoke(cli.app, ["predict", "fit.posterior", "new.csv", "--new-groups", "no"])
    assert result.exit_code == 2
    assert "--new-groups must be one of" in result.output


# Effects, likelihood, ArviZ, files


def test_average_effects_are_averages_over_the_groups_of_the_rows(logit, slopes):
    every = 10**6
    found = slopes.effects(draws=every)
    x, u = flat(slopes), effects(slopes).reshape(-1, LEVELS, 2)
    assert np.allclose(found.draws[:, 0], x[:, 1] + u[:, CODE, 1].mean(axis=1), atol=1e-6)
    found = logit.effects(draws=every)
    x, u = flat(logit), effects(logit)
    eta = by_hand(logit, TABLE, u[:, CODE])
    p = expit(eta)
    assert np.allclose(found.draws[:, 0], (p * (1 - p)).mean(axis=1) * x[:, 1], rtol=1e-4)
    bare = by_hand(logit, {**TABLE, "plan": np.full(N, "basic")}, u[:, CODE])
    pro = (expit(bare + x[:, 2:3]) - expit(bare)).mean(axis=1)
    assert found.names[1] == "plan[pro - basic]"
    assert np.allclose(found.draws[:, 1], pro)


def test_the_likelihood_of_rows_has_their_effects(logit):
    values = np.concatenate([block for _, block in logit.log_likelihood()], axis=1)
    p = expit(by_hand(logit, TABLE, effects(logit)[:, CODE]))
    assert np.allclose(values, np.log(np.where(TABLE["y"], p, 1 - p)))


def test_arviz_has_effects_by_level(slopes):
    pytest.importorskip("arviz")
    data = slopes.to_arviz(log_likelihood=True, posterior_predictive=True)
    posterior = data["posterior"]
    assert list(posterior["school"].values) == [f"s{k}" for k in range(LEVELS)]
    assert posterior["1|school"].dims == ("chain", "draw", "school")
    draws = slopes.group_effects.draws
    assert np.array_equal(posterior["1|school"].values, draws[..., 0::2])
    assert np.array_equal(posterior["x|school"].values, draws[..., 1::2])
    assert np.array_equal(posterior["cor(1, x | school)"].values, slopes.trace.draws[..., -1])
    assert data["log_likelihood"]["z"].shape == data["posterior_predictive"]["z"].shape == (*draws.shape[:2], N)
    assert "1|school" not in data["log_prior"]
    a, b, c = np.moveaxis(slopes.trace.draws[..., 3:], -1, 0)
    tau, scale = np.sqrt(a**2 + 2 * X.mean() * c * a * b + (X.mean() * b) ** 2), 2.5 * TABLE["z"].std()
    log_prior = data["log_prior"]["sd(1 | school)"].values + tau**2 / (2 * scale**2)
    assert np.ptp(log_prior) < 1e-9
    fewer = slopes.to_arviz(draws=40)["posterior"]["x|school"]
    assert fewer.shape == (4, 10, LEVELS)


def test_the_log_density_is_the_joint_one(slopes):
    pytest.importorskip("arviz")
    lp = slopes.to_arviz()["sample_stats"]["lp"].values.ravel()
    x, u = flat(slopes), effects(slopes).reshape(-1, LEVELS, 2)
    a, b, c = x[:, 3], x[:, 4], x[:, 5]
    eta = x[:, :1] + x[:, 1:2] * X + u[:, CODE, 0] + u[:, CODE, 1] * X
    sigma = np.exp(x[:, 2])
    log_rows = -0.5 * (((TABLE["z"] - eta) / sigma[:, None]) ** 2).sum(axis=1) - N * x[:, 2]
    e = u[..., 0] / a[:, None]
    f = (u[..., 1] / b[:, None] - c[:, None] * e) / np.sqrt(1 - c**2)[:, None]
    log_effects = -0.5 * (e**2 + f**2).sum(axis=1) - LEVELS * (np.log(a * b) + 0.5 * np.log(1 - c**2))
    scale, y = 2.5 * TABLE["z"].std(), TABLE["z"]
    centre = x[:, 0] + x[:, 1] * X.mean() - y.mean()
    tau = np.sqrt(a**2 + 2 * X.mean() * c * a * b + (X.mean() * b) ** 2)  # of levels at the mean of x
    rho = (c * a + X.mean() * b) / tau
    log_scales = -0.5 * (tau**2 + (b * X.std()) ** 2) / scale**2 + np.log(tau * b) + np.log(1 - rho**2)  # log τ, artanh
    log_rest = -0.5 * (centre / (5 * y.std())) ** 2 - 0.5 * (x[:, 1] * X.std() / scale) ** 2
    log_rest -= 0.5 * ((x[:, 2] - np.log(y.std())) / 5) ** 2
    away = lp - (log_rows + log_effects + log_scales + log_rest)
    assert np.ptp(away) < 1e-6


def test_files_and_pickles_keep_everything(slopes, tmp_path):
    slopes.save(tmp_path / "fit.posterior")
    loaded = svrhmc.Posterior.load(tmp_path / "fit.posterior")
    assert str(loaded.summary()).splitlines()[3:] == str(slopes.summary()).splitlines()[3:]
    assert np.array_equal(loaded.groups().mean, slopes.groups().mean)
    assert np.array_equal(loaded.predict(NEW).mean, slopes.predict(NEW).mean)
    assert np.allclose(loaded.variances(table=TABLE).mean, slopes.variances().mean)
    with pytest.raises(ValueError, match="one from a file"):
        loaded.variances()
    again = pickle.loads(pickle.dumps(slopes))
    assert np.array_equal(again.predict(NEW).mean, slopes.predict(NEW).mean)
    assert np.allclose(again.effects().mean, slopes.effects().mean)


def test_effects_of_every_other_draw_are_enough(slopes):
    kept = slopes.group_effects
    half = replace(slopes, group_effects=replace(kept, draws=np.ascontiguousarray(kept.draws[:, ::2]), every=2))
    x = half.trace.draws[:, ::2].reshape(-1, half.trace.draws.shape[2])
    u = half.group_effects.draws.reshape(len(x), LEVELS, 2)
    mean = (x[:, 0] + x[:, 1] * 2.0 + u[:, 1, 0] + u[:, 1, 1] * 2.0).mean()
    assert half.predict({"x": [2.0], "school": ["s1"]}, draws=10**6).mean == pytest.approx([mean])
    assert half.groups().mean == pytest.approx(slopes.groups().mean, abs=0.2)
    half.variances()
    half.effects()
    pytest.importorskip("arviz")
    posterior = half.to_arviz()["posterior"]
    assert posterior["x"].shape == posterior["1|school"].shape[:2]


# Contrasts


def test_contrasts_of_a_category_are_differences_of_coefficients(logit):
    found, x = logit.contrast("plan"), flat(logit)
    assert found.names == ("plan[pro - basic]", "plan[team - basic]", "plan[team - pro]")
    assert np.allclose(found.draws, np.column_stack([x[:, 2], x[:, 3], x[:, 3] - x[:, 2]]), atol=1e-9)
    frame = found.to_frame()
    assert frame.loc["plan[team - pro]", "P(> 0)"] == pytest.approx((x[:, 3] > x[:, 2]).mean())
    assert frame.loc["plan[pro - basic]", "95%"] == pytest.approx(np.quantile(x[:, 2], 0.95))
    assert logit.contrast("plan", against="pro").names == ("plan[basic - pro]", "plan[team - pro]")
    assert logit.contrast("plan", ["team", "basic"]).names == ("plan[basic - team]",)


def test_contrasts_within_interactions_are_averages_over_the_rows():
    posterior = svrhmc.fit("flat ~ plan * x", TABLE, draws=200)
    found, names = posterior.contrast("plan", against="basic", draws=10**6), list(posterior.names)
    x = match_moments(flat(posterior), posterior.mean, posterior.sd)
    product = next(name for name in names if "pro" in name and "x" in name)
    expected = x[:, names.index("plan[pro]")] + x[:, names.index(product)] * X.mean()
    assert found.mean[0] == pytest.approx(expected.mean(), abs=0.01)
    assert found.sd[0] == pytest.approx(expected.std(ddof=1), rel=0.02)
    assert "averaged over 160 rows" in str(found)


def test_contrasts_of_groups_are_differences_of_effects(logit, slopes):
    u = effects(slopes).reshape(-1, LEVELS, 2)
    found = slopes.contrast("school", ["s1", "s4"])
    assert found.names == ("school[s4 - s1]", "school[s4 - s1]: x")
    assert np.allclose(found.draws, u[:, 4] - u[:, 1])
    assert len(logit.contrast("school").names) == LEVELS * (LEVELS - 1) // 2
    with pytest.raises(ValueError, match=r"levels of 'school' \('s0', .*\); got 's99'"):
        logit.contrast("school", ["s1", "s99"])
    with pytest.raises(ValueError, match=r"a category or a grouping factor \('plan', 'school'\); got 'plans'"):
        logit.contrast("plans")
    with pytest.raises(ValueError, match="at least two different ones"):
        logit.contrast("plan", ["pro"])
    many = replace(
        logit.group_effects, levels=(tuple(map(str, range(40))),), rows=np.ones(40, np.int64),
        draws=np.zeros((*logit.group_effects.draws.shape[:2], 40)),
    )  # fmt: skip
    with pytest.raises(ValueError, match="'school' has 40 levels"):
        replace(logit, group_effects=many).contrast("school")


# The report


def test_the_report_has_a_section_for_groups(logit, slopes, nothing, tmp_path):
    page = logit.report(tmp_path / "report.html").read_text()
    section = page[page.index("<h2>Groups</h2>") :]
    section = section[: section.index("</section>")]
    assert "school (8 levels)" in section
    assert "R2 conditional" in section
    assert section.count("<svg") == 1
    assert all(f">s{k}</text>" in section for k in range(LEVELS))
    before = page[: page.index("<h2>Groups</h2>")]
    assert '<th scope="row">sd(1 | school)</th>' not in before
    assert "may be 0" in nothing.report(tmp_path / "nothing.html").read_text()
    slopes.save(tmp_path / "fit.posterior")
    page = svrhmc.Posterior.load(tmp_path / "fit.posterior").report(tmp_path / "loaded.html").read_text()
    assert "<h2>Groups</h2>" in page
    assert "R2 conditional" not in page
    assert json.dumps(page)


# Cells, and files


def test_cells_of_two_categories_differ_by_their_coefficients(logit):
    table = {**TABLE, "region": np.where(np.arange(N) % 3, "north", "south")}
    posterior = svrhmc.fit("z ~ plan * region + x + (1 | school)", table, draws=100)
    draws, place = flat(posterior), posterior.names.index
    difference = posterior.contrast(["plan", "region"], [("basic", "north"), ("team", "south")], draws=10**6)
    assert difference.names == ("plan:region[team:south - basic:north]",)
    names = ("plan[team]", "region[south]", "plan[team]:region[south]")
    expected = sum(draws[:, place(name)] for name in names)
    assert np.allclose(difference.draws[:, 0], expected)
    assert len(posterior.contrast(["plan", "region"]).names) == 15
    against = posterior.contrast(["plan", "region"], against=("pro", "north"))
    assert len(against.names) == 5
    assert all(name.endswith(" - pro:north]") for name in against.names)
    assert "averaged over the other columns and the groups as 160 rows have them" in " ".join(str(against).split())
    single = posterior.contrast("region", draws=10**6)
    shares = np.array([(plan == PLAN).mean() for plan in ("pro", "team")])
    averaged = draws[:, place("region[south]")] + draws[:, [place("plan[pro]:region[south]"), place(names[2])]] @ shares
    assert np.allclose(single.draws[:, 0], averaged)
    for wrong in (["plan"], ["plan", "plan"], ["plan", "school"], 5):
        with pytest.raises(ValueError, match=r"several different categories \('plan', 'region'\)"):
            posterior.contrast(wrong)
    with pytest.raises(ValueError, match="did you mean"):
        posterior.contrast(["plan", "region"], [("pro", "nort"), ("pro", "south")])


def test_a_file_with_groups_is_not_read_by_a_version_that_would_leave_them_out(logit, tmp_path):
    path = tmp_path / "a.posterior"
    logit.save(path)
    assert read_record(path).settings["version"] == 2
    with pytest.raises(
        StorageError, match=r"version 2, .* reads versions up to 1\. Load it with that svrhmc, or a later"
    ):
        serialise.load(path, svrhmc.Posterior, "posterior", 1)
    assert np.array_equal(svrhmc.Posterior.load(path).group_effects.draws, logit.group_effects.draws)
    record = read_record(path)
    write_record(path, {**record.settings, "version": 1}, record.arrays)
    assert svrhmc.Posterior.load(path).names == logit.names
    svrhmc.fit("flat ~ x", TABLE).save(path)
    assert read_record(path).settings["version"] == 1


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([Group(CODE, name="g"), Group(CODE, name="g")], r"got 'sd\(1 \| g\)' twice: give groups names of their own"),
        ([Group(CODE, np.ones((N, 2)))], "'z1', which is 1 in every row: it cannot be told from another constant"),
        ([Group(CODE, np.zeros((N, 1)))], "'z0', which is 0 in every row: its effects change nothing"),
        (Group(CODE), "a list of svrhmc.targets.Group or Smooth"),
        ([Group(0 * CODE)], "at least 2; got 1"),
        ([Group(CODE[:9])], "160 levels, one for each row; got 9"),
    ],
)
def test_groups_of_arrays_that_cannot_be_used_are_refused_at_both_doors(groups, why):
    with pytest.raises(ValueError, match=why):
        regress(X[:, None], TABLE["z"], groups=groups)
    with pytest.raises(ValueError, match=why):
        svrhmc.targets.glm(X[:, None], TABLE["z"], "gaussian", groups=groups)


def test_levels_are_told_apart_and_a_column_does_not_vary_by_itself():
    with pytest.raises(ValueError, match="levels of a group must be different names; got 'a' twice"):
        Group([0, 1, 2], levels=["a", "a", "b"])
    with pytest.raises(DataError, match=r"'school' stands before and after the bar of \(school \| school\)"):
        svrhmc.fit("z ~ x + (school | school)", TABLE)
    odd = {**TABLE, "school": np.where(SCHOOL == "s1", "", np.where(SCHOOL == "s2", "S0", SCHOOL))}
    posterior = svrhmc.fit("z ~ x + (1 | school)", odd, draws=40)  # an empty text is a level, and "S0" is not "s0"
    assert posterior.group_effects.levels[0] == ("", "S0", "s0", *(f"s{k}" for k in range(3, LEVELS)))
    with pytest.raises(DataError, match="mixes texts and numbers"):
        svrhmc.fit("z ~ x + (1 | g)", {**TABLE, "g": np.array([1, "1"] * (N // 2), object)})
