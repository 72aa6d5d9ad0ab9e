"""Ordered classes by the cumulative logit: formulas, labels, laws, and all the way from a formula to a report."""

import numpy as np
import pandas
import pytest
from mpmath import mp

import svrhmc
from conftest import LIMIT, untraced
from svrhmc import Sampler, gradients, targets
from svrhmc.core.errors import DataError
from svrhmc.dynamics import UBU
from svrhmc.exact import SplitHMC
from svrhmc.families.ordinal import OrdinalLoss
from svrhmc.targets import families, glm, priors
from svrhmc.whitening import whitened

LOSS = OrdinalLoss(4)
# Predictors and three thresholds: ordinary, far out on both sides, and thresholds that nearly meet.
PLACES = [
    (0.3, -1.0, 0.2, 1.5), (-60.0, -1.0, 0.2, 1.5), (55.0, -1.0, 0.2, 1.5), (600.0, -1.0, 0.0, 2.0),
    (-600.0, -1.0, 0.0, 2.0), (0.1, -1e-9, 0.0, 1e-12), (2.0, -90.0, 1.0, 200.0),
]  # fmt: skip


def defined(y, t):
    """−log(σ(a) − σ(b)) as it stands, in as many digits as are asked for."""
    edges = [None, *t[1:], None]
    upper = mp.mpf(1) if edges[y + 1] is None else 1 / (1 + mp.exp(t[0] - edges[y + 1]))
    lower = mp.mpf(0) if edges[y] is None else 1 / (1 + mp.exp(t[0] - edges[y]))
    if lower > mp.mpf("0.5"):  # of the other tails, whose digits are not lost beside 1
        upper, lower = (
            mp.mpf(0) if edges[y] is None else 1 / (1 + mp.exp(edges[y] - t[0])),
            mp.mpf(0) if edges[y + 1] is None else 1 / (1 + mp.exp(edges[y + 1] - t[0])),
        )
    return -mp.log(upper - lower)


@untraced()
def by_numbers(function, t, order):
    """A derivative in units of its steps; h follows the nearest thresholds."""
    with mp.workdps(900):
        return mp.diff(function, tuple(map(mp.mpf, t)), order, h=mp.mpf(10) ** -250)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("y", range(4))
def test_formulas_keep_their_digits_far_out(y, place):
    from one_row import row_energy as compiled

    t, label = np.array(place), np.array(float(y))
    with mp.workdps(900):
        value = float(defined(y, tuple(map(mp.mpf, place))))
    f = lambda *u: defined(y, u)  # noqa: E731
    orders = np.eye(4, dtype=int)
    slope = [float(by_numbers(f, place, tuple(order))) for order in orders]
    assert float(LOSS.value(t, label)) == pytest.approx(value, rel=2e-14, abs=1e-300)
    assert LOSS.slope(t, label) == pytest.approx(slope, rel=1e-13, abs=1e-300)
    s = np.empty(4)
    assert compiled(LOSS.record(), t, float(y), s) == pytest.approx(value, rel=1e-13, abs=1e-290)
    assert s == pytest.approx(slope, rel=1e-12, abs=1e-290)
    lower = np.tril_indices(4)
    bend = np.empty((4, 4))
    bend[lower] = [float(by_numbers(f, place, tuple(orders[i] + orders[j]))) for i, j in zip(*lower, strict=True)]
    bend.T[lower] = bend[lower]
    assert LOSS.curvature(t, label) == pytest.approx(bend, rel=1e-12, abs=1e-290)


def law(link, v):
    """F(v), 1 − F(v), F′(v) and F″(v)."""
    if link == "probit":
        return mp.ncdf(v), mp.ncdf(-v), mp.npdf(v), -v * mp.npdf(v)
    e = mp.exp(v)
    f = e * mp.exp(-e)
    return -mp.expm1(-e), mp.exp(-e), f, f * (1 - e)


def derivatives(link, y, t):
    """ℓ, its gradient and Hessian by t, from F and its derivatives as they stand."""
    ends = [(t[y + 1], 1, y + 1)] if y + 1 < len(t) else []
    ends += [(t[y], -1, y)] if y else []
    laws = [(sign, place, *law(link, c - t[0])) for c, sign, place in ends]
    low = sum(sign * F for sign, _, F, *_ in laws) + (y + 1 == len(t))
    high = sum(-sign * G for sign, _, _, G, *_ in laws) + (y == 0)
    p = low if y + 1 < len(t) and laws[0][2] < mp.mpf("0.5") else high
    slope, bend = np.full(len(t), mp.mpf(0)), np.full((len(t), len(t)), mp.mpf(0))
    for sign, place, _, _, f, g in laws:
        way = np.zeros(len(t))
        way[[0, place]] = -1, 1
        slope -= sign * f / p * way
        bend -= sign * g / p * np.outer(way, way)
    bend += np.outer(slope, slope)
    return float(-mp.log(p)), slope.astype(float), bend.astype(float)


EXTREME = [
    (0.3, -1.0, 0.2, 1.5), (-5.0, -1.0, 0.2, 1.5), (30.0, 0.0, 0.02, 0.05), (600.0, -1.0, 0.0, 2.0),
    (0.1, -1e-9, 0.0, 1e-12), (2.0, -90.0, 1.0, 6.4), (0.0, -0.5, 0.6, 0.61), (3.9, 0.0, 0.2, 1.3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("link", "place"),
    [*(("probit", place) for place in [*PLACES, *EXTREME]), *(("cloglog", place) for place in EXTREME)],
)
def test_other_links_keep_their_digits_far_out(link, place):
    import jax

    from one_row import row_energy as compiled
    from svrhmc.engines.jax.rows import slopes

    loss, t, s = OrdinalLoss(4, None, link), np.array(place), np.empty(4)
    for y in range(4):
        label = np.array(float(y))
        with mp.workprec(3000):
            value, slope, bend = derivatives(link, y, tuple(map(mp.mpf, place)))
        assert float(loss.value(t, label)) == pytest.approx(value, rel=2e-13, abs=1e-290)
        assert loss.slope(t, label) == pytest.approx(slope, rel=2e-13, abs=1e-290)
        assert loss.curvature(t, label) == pytest.approx(bend, rel=1e-12, abs=1e-290)
        assert compiled(loss.record(), t, float(y), s) == pytest.approx(value, rel=5e-13, abs=1e-290)
        assert s == pytest.approx(slope, rel=1e-12, abs=1e-290)
        with jax.enable_x64(True):
            on_jax = slopes(loss.record(), jax.numpy.asarray(t[None]), jax.numpy.asarray(label[None]))
        assert np.asarray(on_jax)[0] == pytest.approx(slope, rel=1e-12, abs=1e-290)


@pytest.mark.parametrize("link", ["probit", "cloglog"])
def test_probabilities_of_other_links(link):
    loss, t = families.ordinal(link).coded([0, 1, 2, 3]).loss, np.array(EXTREME[:3])
    p = loss.mean(t)
    assert p.sum(axis=1) == pytest.approx(1, abs=1e-14)
    for k in range(4):
        below, upto = loss.cumulative(t, np.full(3, float(k)))
        assert upto - below == pytest.approx(p[:, k], abs=1e-15)
    unordered = np.array([0.0, 1.0, 0.5, 2.0])
    assert loss.value(unordered, np.array(1.0)) == np.inf
    assert np.isfinite(loss.slope(unordered, np.array(1.0))).all()
    assert np.isfinite(loss.curvature(unordered, np.array(1.0))).all()
    assert loss.link_variance(np.zeros(2), np.zeros((2, 3))) == pytest.approx(
        {"probit": 1, "cloglog": np.pi**2 / 6}[link]
    )


# statsmodels 0.15, OrderedModel of `simulated` by distr="probit", and by SciPy's gumbel_l.
FLAT = {
    "probit": [0.8463386, -0.3596771, 0.0421492, -1.0503451, -0.2571035, 0.0427628, 1.886409],
    "cloglog": [0.9444245, -0.4310076, 0.0550648, -1.7163236, -0.7269597, -0.3846112, 1.5052512],
}


@pytest.mark.parametrize("link", FLAT)
def test_the_mode_under_a_flat_prior_is_that_of_statsmodels(link):
    target = glm(*simulated(), families.ordinal(link), prior_precision=1e-9, shared_prior=priors.Normal(1e-9))
    assert target.mode() == pytest.approx(FLAT[link], abs=1e-5)


def test_links_in_words_and_in_files(tmp_path):
    table, _ = rated(200)
    probit, cloglog = (
        svrhmc.fit("rating ~ year", table, family=families.ordinal(link), seed=1) for link in ("probit", "cloglog")
    )
    assert probit.certificate.verdict == cloglog.certificate.verdict == "exact"
    assert "family 'ordinal' with the probit link; classes in order" in str(probit.summary())
    with pytest.raises(ValueError, match="a logit or log link, to have ratios; got 'ordinal' with the probit link"):
        probit.ratios()
    assert str(cloglog.ratios()).startswith("Inverse hazard ratio of a higher rating")
    probit.save(tmp_path / "posterior.npz")
    again = svrhmc.Posterior.load(tmp_path / "posterior.npz")
    assert again.model.loss == OrdinalLoss(4, None, "probit")
    assert np.array_equal(again.predict(table).mean, probit.predict(table).mean)
    for make, message in [
        (lambda: families.ordinal("loglog"), "link must be one of 'logit', 'probit', 'cloglog'; got 'loglog'"),
        (lambda: families.ordinal(["a", "b"]), r"the classes go by name: ordinal\(levels=\[…\]\)"),
        (lambda: glm(np.ones((3, 1)), [0, 1, 2], "ordered probit"), r"take svrhmc.families.ordinal\('probit'\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


def test_levels_of_numbers_may_be_texts_as_a_shell_has_them():
    rng = np.random.default_rng(0)
    table = {"y": rng.integers(1, 6, 60).astype(float), "x": rng.normal(size=60)}
    by_text = svrhmc.fit("y ~ x", table, families.ordinal(levels=["1", "2", "3", "4", "5"]), draws=50)
    assert by_text.design.classes == ("1", "2", "3", "4", "5")
    assert by_text.mean.tolist() == svrhmc.fit("y ~ x", table, "ordinal", draws=50).mean.tolist()
    with pytest.raises(ValueError, match=r"among the levels; got 5\.0"):
        svrhmc.fit("y ~ x", table, families.ordinal(levels=["1", "2", "3", "4"]))
    with pytest.raises(ValueError, match=r"fit takes no levels=: they belong to the family, .*ordinal\(levels="):
        svrhmc.fit("y ~ x", table, "ordinal", levels=[1, 2, 3, 4, 5])


def test_levels_that_no_row_has_are_said():
    table, _ = rated(200)
    table["rating"] = table["rating"].cat.add_categories(["superb"])
    text = str(svrhmc.fit("rating ~ year", table, family="ordinal", draws=50).summary())
    assert "Labels: rating has levels that are in no row ('superb'): the model has no class for them" in text
    table["rating"] = table["rating"].cat.remove_unused_categories()
    assert "Labels:" not in str(svrhmc.fit("rating ~ year", table, family="ordinal", draws=50).summary())


def test_a_column_that_shifts_one_threshold_alone_is_named():
    """x moves the upper threshold and not the lower one; with one coefficient for both nothing is said."""
    rng = np.random.default_rng(1)
    for breach in (True, False):
        x, u = np.arange(1000) % 2, rng.logistic(size=1000)
        lower, upper = -0.5 - (0 if breach else 1.2) * x, 0.5 + (1.5 if breach else -1.2) * x
        y = (u > lower).astype(int) + (u > upper)
        misfits = svrhmc.fit("y ~ x", {"y": y, "x": x}, family="ordinal", seed=1, draws=200).misfits
        assert any("Thresholds: x does not shift all of them alike" in sentence for sentence in misfits) == breach
        assert bool(misfits) == breach


def test_probabilities_and_what_is_outside():
    t = np.array(PLACES[:5])
    p = LOSS.mean(t)
    assert p.sum(axis=1) == pytest.approx(1, abs=1e-15)
    for k in range(4):
        assert p[:, k] == pytest.approx(np.exp(-LOSS.value(t, np.full(5, float(k)))), rel=1e-13)
        below, upto = LOSS.cumulative(t, np.full(5, float(k)))
        assert upto - below == pytest.approx(p[:, k], abs=1e-15)
    u = (np.arange(400) + 0.5) / 400
    seen = np.bincount(LOSS.draw(np.tile(t[0], (400, 1)), u).astype(int), minlength=4) / 400
    assert np.abs(seen - p[0]).max() <= 1 / 400
    unordered = np.array([0.0, 1.0, 0.5, 2.0])
    assert LOSS.value(unordered, np.array(1.0)) == np.inf
    assert LOSS.value(unordered, np.array(3.0)) < np.inf  # that row does not meet them
    assert np.isfinite(LOSS.slope(unordered, np.array(1.0))).all()
    assert np.isfinite(LOSS.curvature(unordered, np.array(1.0))).all()


def test_jax_has_the_same_slopes():
    import jax

    from svrhmc.engines.jax.rows import slopes

    rng = np.random.default_rng(0)
    t = np.concatenate([3 * rng.normal(size=(300, 1)), np.sort(2 * rng.normal(size=(300, 3)), axis=1)], axis=1)
    y = rng.integers(0, 4, 300).astype(float)
    with jax.enable_x64(True):
        made = slopes(LOSS.record(), jax.numpy.asarray(t), jax.numpy.asarray(y))
    assert np.asarray(made) == pytest.approx(LOSS.slope(t, y), rel=1e-12, abs=1e-14)


def simulated():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 3))
    u = X @ [1.5, -0.7, 0.0] + rng.logistic(size=150)
    return X, np.digitize(u, [-2.0, -0.5, 0.1, 2.5])


def progression():
    """How far the disease of 442 patients went in a year, in four steps; a real table."""
    from sklearn.datasets import load_diabetes

    table = load_diabetes()
    X = table.data[:, [0, 1, 2, 3, 8]]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.digitize(table.target, [75, 125, 200])


@pytest.mark.ordinary(lambda dtype, sparse: dtype is np.float64 and not sparse)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_engines_walk_the_same_path(dtype, sparse):
    from scipy.sparse import csr_matrix

    X, y = simulated()
    X = X.astype(dtype)
    target = whitened(glm(csr_matrix(X) if sparse else X, y, "ordinal", weights=1 + np.arange(150) % 3))
    sampler = Sampler(UBU(0.1, 2.0, 1.0), gradients.SVRG(16, 5))
    runs = [sampler.run(target, 30, chains=2, seed=1, engine=engine).draws for engine in ("reference", "numba", "jax")]
    for run in runs[1:]:
        assert np.abs(run - runs[0]).max() < (2e-5 if dtype == np.float32 else 1e-9)


# Means and standard deviations by NumPyro 0.19, NUTS, 4 chains of 10,000 draws: x ~ N(0, 1), thresholds ~ N(0, 5²) on
# the ordered region.
REFERENCES = {
    "real": (
        progression,
        [-0.06062, -0.21985, 0.80335, 0.40451, 0.90607, -2.11821, -0.49634, 1.3226],
        [0.09933, 0.09646, 0.11538, 0.10839, 0.11862, 0.15098, 0.11728, 0.13365],
        26_000,
    ),
    "simulated": (
        simulated,
        [1.44253, -0.65361, 0.03109, -1.85083, -0.47298, 0.05935, 3.29084],
        [0.20149, 0.16322, 0.17985, 0.2457, 0.1935, 0.18975, 0.37045],
        24_000,
    ),
}


@pytest.mark.untraced
@pytest.mark.parametrize("name", REFERENCES)
def test_means_and_deviations_are_those_of_a_long_run_of_nuts(name):
    made, mean, sd, ess = REFERENCES[name]
    posterior = svrhmc.sample(glm(*made(), "ordinal"), 4000, seed=2)
    assert posterior.certificate.verdict == "exact"
    error = np.array(sd) * np.sqrt(1 / ess + 1 / 4000)
    assert (np.abs(posterior.mean - mean) < LIMIT * error).all()
    assert (np.abs(posterior.sd - sd) < LIMIT * error).all()


@pytest.mark.untraced
def test_the_law_is_that_of_quadrature_also_where_thresholds_crowd():
    """Two rows of the middle class: its thresholds come close, and proposals beyond each other are refused."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(24, 1))
    y = np.where(X[:, 0] + rng.logistic(size=24) > 0, 2, 0)
    y[:2] = 1
    target = glm(X, y, "ordinal")
    space = whitened(target)
    run = SplitHMC().run(target, 4000, chains=50, seed=4, burn_in=100)
    draws = run.draws
    assert (np.diff(draws[..., 1:], axis=-1) > 0).all()
    assert run.draws.shape[-1] == space.dim == 3
    # Over β, c₀ and log(c₁ − c₀), in which nothing is cut off.
    b, c, gap = np.meshgrid(np.linspace(-3, 4, 71), np.linspace(-4, 4, 81), np.linspace(-12, 3.2, 153), indexing="ij")
    points = np.stack([b, c, c + np.exp(gap)], axis=-1).reshape(-1, 3)
    f = np.concatenate([target.potentials(some) for some in np.array_split(points, 40)])
    weight = np.exp(f.min() - f + gap.ravel())
    weight /= weight.sum()
    for moment in (points, points**2, np.log(points[:, 2:] - points[:, 1:2])):
        exact = weight @ moment
        by_chain = (
            np.log(draws[..., 2:] - draws[..., 1:2])
            if moment.shape[1] == 1
            else draws
            if moment is points
            else draws**2
        ).mean(axis=1)
        assert (np.abs(by_chain.mean(axis=0) - exact) < LIMIT * by_chain.std(axis=0) / np.sqrt(50) + 1e-4).all()
    wrong = weight @ points + 0.05  # a mean that is a little wrong is told apart
    by_chain = draws.mean(axis=1)
    assert (np.abs(by_chain.mean(axis=0) - wrong) > LIMIT * by_chain.std(axis=0) / np.sqrt(50)).any()


def test_labels():
    X = np.arange(8.0)[:, None]
    for y in ([3, 1, 2, 3, 1, 2, 3, 1], [2.5, 0.5, 1.0, 2.5, 0.5, 1.0, 2.5, 0.5]):
        target = glm(X, y, "cumulative")
        assert target.y.tolist() == [2, 0, 1, 2, 0, 1, 2, 0]
        assert target.classes.tolist() == sorted(set(y))
    words = np.array(["low", "medium", "high"])[[2, 0, 1, 2, 0, 1, 2, 0]]
    ordered = pandas.Categorical(words, categories=["low", "medium", "high", "never"], ordered=True)
    for y in (ordered, pandas.Series(ordered)):
        assert glm(X, y, "ordinal").classes.tolist() == ["low", "medium", "high"]
    given = families.ordinal(levels=["low", "medium", "high"])
    assert glm(X, words, given).y.tolist() == [2, 0, 1, 2, 0, 1, 2, 0]
    for y, family, message in [
        (words, "ordinal", r"labels whose order is known for the family 'ordinal'; got the texts 'high', 'low'"),
        (words, families.ordinal(levels=["low", "high"]), r"classes are each among the levels; got 'medium'"),
        (words, families.ordinal(levels=["low", "medium", "high", "top"]), r"each seen in some row; got 'top'"),
        (np.ones(8), "ordinal", "labels of at least two classes"),
        (np.arange(60) / 7, "ordinal", "at most 50 classes; got 60"),
    ]:
        with pytest.raises(ValueError, match=message):
            glm(np.arange(len(y), dtype=float)[:, None], y, family)
    with pytest.raises(ValueError, match="at least two different classes"):
        families.ordinal(levels=["a", "a"])
    with pytest.raises(ValueError, match="did you mean 'ordinal'"):
        glm(X, words, "polr")


def rated(n=500, seed=1):
    """A year far from 0, and groups."""
    rng = np.random.default_rng(seed)
    year, group = rng.normal(2000, 3, size=n), rng.choice(["a", "b", "c"], n)
    eta = 0.3 * (year - 2000) + np.select([group == "a", group == "b"], [0.0, 0.8], -0.5)
    levels = ["bad", "ok", "good", "great"]
    places = np.digitize(eta + rng.logistic(size=n), [-1.0, 0.3, 2.0])
    rating = pandas.Categorical(np.array(levels)[places], categories=levels, ordered=True)
    return pandas.DataFrame({"year": year, "group": group, "rating": rating}), places


def test_from_formula_to_report(tmp_path):
    table, places = rated()
    posterior = svrhmc.fit("rating ~ year + C(group)", table, family="ordinal", seed=1)
    assert posterior.names == (
        "year", "group[b]", "group[c]", "threshold bad|ok", "threshold ok|good", "threshold good|great",
    )  # fmt: skip
    assert posterior.certificate.verdict == "exact"
    text = str(posterior.summary())
    assert "classes in order: bad < ok < good < great" in text
    assert "thresholds, at the means of the columns, ~ N(0, 5²)" in text
    assert "ntercept" not in text
    p = posterior.predict(table)
    assert p.mean.shape == (500, 4)
    assert p.mean.sum(axis=1) == pytest.approx(1, abs=1e-12)
    shares = np.bincount(places, minlength=4) / 500
    assert np.abs(p.mean.mean(axis=0) - shares).max() < 0.01
    effects = posterior.effects()
    assert np.abs(effects.mean.reshape(-1, 4).sum(axis=1)).max() < 1e-9  # of all classes together
    path = tmp_path / "report.html"
    posterior.report(path)
    assert "the log odds of a higher rating" in path.read_text()
    posterior.save(tmp_path / "posterior.npz")
    again = svrhmc.Posterior.load(tmp_path / "posterior.npz")
    assert np.array_equal(again.predict(table).mean, p.mean)
    assert posterior.checked_rows == 500


def test_the_place_of_0_and_the_units_do_not_matter():
    """Thresholds take up the centres of the columns: the same posterior in years, and in days since 2000."""
    table, _ = rated()
    table["days"] = 365.25 * (table["year"] - 2000)
    years, days = (svrhmc.fit(f"rating ~ {name}", table, family="ordinal", seed=1) for name in ("year", "days"))
    one, other = years.trace.draws, days.trace.draws
    assert one[..., 0] == pytest.approx(365.25 * other[..., 0], rel=1e-9)
    assert one[..., 1:] - 2000 * one[..., :1] == pytest.approx(other[..., 1:], abs=1e-8)


def test_doors_refuse_texts_without_an_order():
    table, places = rated()
    plain = table.assign(rating=table["rating"].astype(str))
    with pytest.raises((ValueError, DataError), match=r"ordinal\(levels=\[…\]\)"):
        svrhmc.fit("rating ~ year", plain, family="ordinal")
    given = families.ordinal(levels=["bad", "ok", "good", "great"])
    posterior = svrhmc.fit("rating ~ year", plain, family=given, seed=1, draws=200)
    assert posterior.names[-1] == "threshold good|great"
    numbers = svrhmc.fit("rating ~ year", table.assign(rating=places + 1), family="ordinal", seed=1, draws=200)
    assert numbers.names[-3:] == ("threshold 1|2", "threshold 2|3", "threshold 3|4")
    assert numbers.mean == pytest.approx(posterior.mean, rel=1e-9)


def test_numbers_take_the_order_that_was_given():
    rng = np.random.default_rng(5)
    x, rank = rng.normal(size=90), np.arange(90) % 3
    table = {"x": x, "rank": rank, "number": np.array([30, 10, 20])[rank]}
    plain = svrhmc.fit("rank ~ x", table, family="ordinal", draws=50)
    given = svrhmc.fit("number ~ x", table, family=families.ordinal(levels=[30, 10, 20]), draws=50)
    assert (given.trace.draws == plain.trace.draws).all()
    assert given.names[1:] == ("threshold 30|10", "threshold 10|20")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: families.ordinal(levels="low"), "levels must be a list of the classes, the lowest first; got 'low'"),
        (lambda: families.ordinal(levels=3), "levels must be a list of the classes, the lowest first; got 3"),
        (lambda: families.ordinal(levels=[["low"], ["high"]]), "levels must be texts or numbers"),
        (lambda: glm(np.ones((3, 1)), np.array(["a", 1, 2], object), "ordinal"), "labels of one kind.*int and str"),
    ],
    ids=["text", "number", "lists", "mixed"],
)
def test_levels_and_labels_that_have_no_order_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_two_classes_are_a_logistic_regression():
    X, y = simulated()
    target = glm(X, y > 1, "ordinal", prior_precision=0.5)
    other = glm(np.column_stack([X, np.ones(len(X))]), y > 1, prior_precision=[0.5, 0.5, 0.5, 0.04])
    assert target.mode() == pytest.approx(other.mode() * [1, 1, 1, -1], rel=1e-9)
    assert isinstance(target, targets.GeneralisedLinear)


def test_a_response_whose_type_declares_an_order_is_taken_for_ordered_classes():
    table, _ = rated(200)
    posterior = svrhmc.fit("rating ~ year", table)
    assert posterior.family == "ordinal"
    assert "4 classes, whose order its type declares; the family 'categorical' takes none" in posterior.design.guessed
    table["rating"] = pandas.Categorical(table["rating"].astype(str))
    assert svrhmc.fit("rating ~ year", table).design.guessed == "the response has 4 classes"


def test_ratios_are_of_higher_classes():
    table, _ = rated(200)
    assert str(svrhmc.fit("rating ~ year", table, family="ordinal").ratios()).startswith(
        "Odds ratio of a higher rating,"
    )
    classes = svrhmc.fit("group ~ year", table).ratios()
    assert str(classes).startswith("Odds ratio of group, each class against 'a', for a one-unit")


def test_priors_of_thresholds_and_of_no_intercept():
    table, _ = rated(200)
    law = priors.Normal(1.0)
    for given, said in [
        ({"year": law}, "; thresholds, at the means of the columns, ~ N(0, 5²) unless prior={'threshold bad|ok': …} gives it"),
        ({"threshold bad|ok": law}, "; other thresholds, at the means of the columns, ~ N(0, 5²) unless prior={'threshold ok|good'"),
        (law, "every coefficient ~ N(0, 1²); thresholds, at"),
    ]:  # fmt: skip
        words = svrhmc.fit("rating ~ year", table, family="ordinal", prior=given).prior.said
        assert said in words
        assert words.count("threshold ") <= 2
    for formula, family in (("rating ~ year", "ordinal"), ("year ~ 0 + C(group)", "gaussian")):
        with pytest.raises(ValueError, match="got 'Intercept': this model has no intercept"):
            svrhmc.fit(formula, table, family=family, prior={"Intercept": law})


def test_flat_priors_do_not_stop_at_thresholds_in_silence():
    table, _ = rated(200)
    with pytest.raises(
        ValueError, match=r"a dictionary by column, for 'ordinal'; got Flat\(\): .*\{'year': Flat\(\)\}"
    ):
        svrhmc.fit("rating ~ year", table, family="ordinal", prior=priors.Flat())
    kept = svrhmc.fit("rating ~ year", table, family="ordinal", prior={"year": priors.Flat()}, draws=50)
    assert "thresholds, at the means of the columns, ~ N(0, 5²)" in kept.prior.said


def test_a_model_without_columns_and_too_many_classes_are_refused_in_words():
    table, _ = rated(200)
    with pytest.raises(DataError, match="the family 'ordinal' needs a column that may"):
        svrhmc.fit("rating ~ 1", table, family="ordinal")
    with pytest.raises(DataError, match="takes at most 50: take 'gaussian' for numbers"):
        svrhmc.fit("year ~ group", table, family="ordinal")
