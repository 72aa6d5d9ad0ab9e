"""Families with one predictor: formulas, laws, offsets and weights, on both engines and in the exact samplers."""

import mpmath
import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import svrhmc
from conftest import LIMIT
from svrhmc import gradients, sample, targets, theory
from svrhmc.dynamics import UBU, Overdamped, Underdamped
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.targets import families, glm

LOGIT, PROBIT = families.bernoulli(), families.bernoulli("probit")
BINOMIAL, POISSON, NORMAL = families.binomial(), families.poisson(), families.gaussian(0.7)
mpmath.mp.dps = 50
_phi = lambda s: mpmath.erfc(-s / mpmath.sqrt(2)) / 2  # noqa: E731
# −log p(y | t) up to a constant, by its definition, and labels to try
DEFINED = {
    "logit": (LOGIT, lambda t, y: mpmath.log1p(mpmath.exp(-y * t)), (-1, 1)),
    "probit": (PROBIT, lambda t, y: -mpmath.log1p(-_phi(-y * t)) if y * t > 0 else -mpmath.log(_phi(y * t)), (-1, 1)),
    "binomial": (
        BINOMIAL,
        lambda t, y: y * mpmath.log1p(mpmath.exp(-t)) + (1 - y) * mpmath.log1p(mpmath.exp(t)),
        (0, 0.25, 1),
    ),
    "poisson": (POISSON, lambda t, y: mpmath.exp(t) - y * t, (0, 3, 1e6)),
    "gaussian": (NORMAL, lambda t, y: (t - y) ** 2 / (2 * mpmath.mpf(0.7)), (-2.5, 3)),
}
PLACES = [0.0, 1e-9, -1e-9, 0.3, -1.7, 3.99, 4.01, -3.99, -4.01, 12.0, -12.0, 40.0, -40.0, 700.0, -700.0]


def first_derivative(name, t, y):
    """By hand, in 50 digits."""
    if name == "logit":
        return -y / (1 + mpmath.exp(y * t))
    if name == "probit":
        return -y * mpmath.npdf(y * t) / _phi(y * t)
    if name == "binomial":
        return (1 - y) / (1 + mpmath.exp(-t)) - y / (1 + mpmath.exp(t))
    return mpmath.exp(t) - y if name == "poisson" else (t - y) / mpmath.mpf(0.7)


def second_derivative(name, t, y):
    if name == "probit":
        s = y * t
        hazard = mpmath.npdf(s) / _phi(s)
        return hazard * (s + hazard)
    if name in ("logit", "binomial"):
        return 1 / ((1 + mpmath.exp(t)) * (1 + mpmath.exp(-t)))
    return mpmath.exp(t) if name == "poisson" else 1 / mpmath.mpf(0.7)


@pytest.mark.parametrize("name", DEFINED)
def test_formulas_keep_their_digits_far_out(name):
    loss, value, labels = DEFINED[name]
    with mpmath.workdps(700 if name == "probit" else 360):  # s + λ of the probit cancels in 50 digits at 700
        for y in labels:
            for t in PLACES:
                at, label = mpmath.mpf(t), mpmath.mpf(y)
                formulas = (loss.value, loss.slope, loss.curvature)
                known = 4e-15 + (t * t * 2e-16 if name == "probit" and y * t > 0 else 0.0)  # e^{−s²/2} is no better
                exact = (value(at, label), first_derivative(name, at, label), second_derivative(name, at, label))
                for formula, wanted in zip(formulas, exact, strict=True):
                    found = float(formula(np.array([t]), np.array([float(y)]))[0])
                    assert np.isfinite(found)
                    assert found == pytest.approx(float(wanted), rel=known, abs=1e-306), (formula.__name__, t, y)


def test_a_formula_that_cancels_would_be_found():
    t, y = -437.3, 1.0
    hazard = -PROBIT.slope(np.array([t]), y)[0]
    exact = float(second_derivative("probit", mpmath.mpf(t), 1))
    assert hazard * (t + hazard) != pytest.approx(exact, rel=4e-15, abs=0)
    assert np.logaddexp(0, 40.0) - 40.0 != pytest.approx(np.exp(-40), rel=1e-3, abs=0)  # the binomial value for y = 1


LAWS = {
    "logit": (LOGIT, lambda t: stats.bernoulli(1 / (1 + np.exp(-t))), np.array([0.0, 1.0]), None),
    "probit": (PROBIT, lambda t: stats.bernoulli(stats.norm.cdf(t)), np.array([0.0, 1.0]), None),
    "binomial": (BINOMIAL, lambda t: stats.binom(9, 1 / (1 + np.exp(-t))), np.arange(10.0), 9.0),
    "poisson": (POISSON, lambda t: stats.poisson(np.exp(t)), np.arange(60.0), None),
    "gaussian": (NORMAL, lambda t: stats.norm(t, 0.7**0.5), np.linspace(-3, 3, 7), None),
}


@pytest.mark.parametrize("name", LAWS)
def test_every_family_has_the_law_that_scipy_has(name):
    loss, law, ys, trials = LAWS[name]
    m = 1.0 if trials is None else trials
    count = None if trials is None else np.full(len(ys), trials)
    for t in (-1.3, 0.2, 2.1):
        known = law(t)
        observed = loss.observed(ys, len(ys), count)
        minus_log = m * loss.value(np.full(len(ys), t), observed.y) + loss.constant(observed.y, observed.counts)
        density = known.pdf(ys) if name == "gaussian" else known.pmf(ys)
        assert np.exp(-minus_log) == pytest.approx(density, rel=1e-12)
        assert m * loss.mean(np.array(t)) == pytest.approx(known.mean(), rel=1e-13)
        u = (np.arange(400) + 0.5) / 400
        drawn = loss.draw(np.full(400, t), u, None if trials is None else np.full(400, trials))
        assert (np.diff(drawn) >= 0).all()
        assert drawn == pytest.approx(known.ppf(u), rel=1e-12)
    assert np.exp(-minus_log) != pytest.approx(law(2.2).pdf(ys) if name == "gaussian" else law(2.2).pmf(ys), rel=1e-3)


def test_quantiles_of_counts_are_those_of_scipy_at_any_rate():
    """Found by adding probabilities, from an expansion, or by SciPy, whose own are nan at large rates."""
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.random(300), 10 ** -rng.uniform(1, 14, 100), 1 - 10 ** -rng.uniform(1, 12, 100)])
    rate, shape = np.exp(rng.uniform(-5, 10, 500)), np.exp(rng.normal(0, 3, 500))
    poisson = LAWS["poisson"][0]
    assert np.array_equal(poisson.draw(np.log(rate), u), stats.poisson.ppf(u, rate))
    assert not np.array_equal(poisson.draw(np.log(rate), u), stats.poisson.ppf(u, 1.001 * rate))
    t = np.stack([np.log(rate), np.log(shape)], axis=1)
    exact = stats.nbinom.ppf(u, shape, shape / (shape + rate))
    assert np.array_equal(families.negative_binomial().draw(t, u), exact)
    large = np.full(500, 1e12)
    drawn = poisson.draw(np.log(large), u)
    assert np.abs((drawn - large) / 1e6 - stats.norm.ppf(u)).max() < 2e-5  # the skewness is 1e-6
    assert poisson.draw(np.array([-np.inf, -800.0]), np.array([0.5, 0.5])).tolist() == [0, 0]


@pytest.mark.parametrize("loss", [LOGIT, PROBIT, BINOMIAL], ids=str)
def test_bounds_hold_and_are_nearly_met(loss):
    t = np.linspace(-60, 60, 400_001)
    for y in (-1.0, 1.0) if loss is not BINOMIAL else (0.0, 0.4, 1.0):
        curvature = loss.curvature(t, np.full(len(t), y))
        third = np.abs(np.diff(curvature) / np.diff(t))
        assert 0.99 * loss.curvature_bound < curvature.max() <= loss.curvature_bound * (1 + 1e-12)
        assert 0.999 * loss.third_bound < third.max() <= loss.third_bound * (1 + 1e-6)
    assert POISSON.curvature_bound is None
    assert POISSON.third_bound is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", DEFINED)
def test_compiled_formulas_are_the_same(name, dtype):
    from numba import njit

    from svrhmc.kernels.losses import energies, slopes

    loss, _, labels = DEFINED[name]
    kernel = loss.record(dtype)
    far = 80 if dtype == np.float32 else 690
    t = np.concatenate([np.linspace(-far, far, 999), np.linspace(-6, 6, 999)]).astype(dtype)

    @njit
    def both(kernel, t, y, slope, again, value):
        slopes(kernel, len(t), t, y, slope)
        energies(kernel, len(t), t, y, again, value)

    for label in labels:
        y = np.full(len(t), label, dtype)
        slope, again, value = np.empty((3, len(t)), dtype)
        both(kernel, t, y, slope, again, value)
        at, of = t.astype(float), y.astype(float)
        exact, worth = loss.slope(at, of), loss.value(at, of)
        if name == "poisson" and dtype == np.float32 and label > 0:
            worth = worth - (label - label * np.log(label))
        tiny = 100 * np.finfo(dtype).tiny
        digits = (8 if dtype == np.float32 else 12) * np.finfo(dtype).eps * (1 + np.abs(at) / 60)  # those of eᵗ
        if dtype == np.float64 and name == "probit":
            digits *= 20  # e^{−s²/2} has the rounding of s²
        parts = np.abs(at) if name == "gaussian" else np.exp(np.minimum(at, 700)) if name == "poisson" else 0.0
        room = digits * (np.abs(exact) + (parts + label if name in ("gaussian", "poisson") else np.abs(exact)))
        if name == "binomial":
            room = room + digits * min(label, 1 - label)
        for found in (slope, again):
            assert (np.abs(found - exact) <= room + tiny).all()
        size = np.abs(worth) + (np.abs(label * at) if name == "poisson" else 0.0)
        assert (np.abs(value - worth) <= digits * size + tiny).all()


def test_the_remainder_of_the_probit():
    from numba import njit

    from svrhmc.kernels.losses import remainder

    f = njit(lambda kernel, t, y, u: remainder(kernel, t, y, u))
    for t in (-9.0, -4.2, -1.0, 0.0, 2.5):
        for y in (-1.0, 1.0):
            for u in (1e-6, -1e-3, 0.3, -0.99, 1.2, -3.0):
                at, label, move = mpmath.mpf(t), mpmath.mpf(y), mpmath.mpf(u)
                value = DEFINED["probit"][1]
                exact = value(at + move, label) - value(at, label) - first_derivative("probit", at, label) * move
                exact -= second_derivative("probit", at, label) * move**2 / 2
                found = f(PROBIT.record(), t, y, u)
                assert found == pytest.approx(float(exact), rel=1e-9, abs=3e-15 * abs(u) ** 3)
                assert abs(found) <= PROBIT.third_bound * abs(u) ** 3 / 6


def table(n=60, seed=0):
    """Distinct rows, an offset and whole weights, some of them 0."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n) / 2])
    return X, rng.normal(size=n) / 3, rng.integers(0, 5, n).astype(float), rng


def labels_for(name, X, offset, rng):
    t = X @ [0.4, -0.8] + offset
    if name == "poisson":
        return rng.poisson(np.exp(t)), {}
    if name == "binomial":
        trials = rng.integers(0, 6, len(X))
        return rng.binomial(trials, 1 / (1 + np.exp(-t))), {"trials": trials}
    return (t + rng.normal(size=len(X)) if name == "gaussian" else rng.random(len(X)) < 1 / (1 + np.exp(-t))), {}


NAMES = ("bernoulli", "binomial", "poisson", "gaussian")
FAMILY = {**{name: name for name in NAMES}, "gaussian": families.gaussian(1.0)}


@pytest.mark.parametrize("name", NAMES)
def test_an_aggregated_table_has_the_posterior_of_its_rows(name):
    X, offset, weights, rng = table()
    y, more = labels_for(name, X, offset, rng)
    each = np.repeat(np.arange(len(X)), weights.astype(int))
    long = glm(X[each], np.asarray(y)[each], FAMILY[name], offset=offset[each], **{k: v[each] for k, v in more.items()})
    short = glm(X, y, FAMILY[name], offset=offset, weights=weights, **more)
    counted = (weights > 0) & (more.get("trials", weights) > 0)  # rows that say nothing are left out
    assert (short.n, long.n) == (counted.sum(), weights[counted].sum())
    x = np.array([0.2, 0.5])
    assert short.potential(x) == pytest.approx(long.potential(x), rel=1e-13)
    assert short.gradient(x) == pytest.approx(long.gradient(x), rel=1e-12, abs=1e-12)
    assert short.hessian(x) == pytest.approx(long.hessian(x), rel=1e-13)
    assert short.mode() == pytest.approx(long.mode(), abs=1e-10)
    components = short.component_gradients(x, np.arange(short.n))
    assert components.mean(axis=0) == pytest.approx(short.gradient(x), rel=1e-12, abs=1e-12)
    if name != "poisson":
        assert short.smoothness == pytest.approx(long.smoothness, rel=1e-12)
    if name == "gaussian":
        assert short.closed_form.covariance == pytest.approx(long.closed_form.covariance, rel=1e-12)
        assert short.closed_form.mean == pytest.approx(long.closed_form.mean, rel=1e-12)
    careless = glm(X, y, FAMILY[name], offset=offset, **more)
    assert np.abs(careless.mode() - long.mode()).max() > 1e-3


def test_trials_are_rows_and_an_offset_is_a_column_of_known_slope():
    X, offset, _, rng = table()
    y, more = labels_for("binomial", X, offset, rng)
    m = more["trials"]
    each = np.repeat(np.arange(60), m)
    ones = np.concatenate([np.arange(k) < s for k, s in zip(m, y, strict=True)])
    assert glm(X, y, "binomial", trials=m).mode() == pytest.approx(glm(X[each], ones).mode(), abs=1e-10)
    column = glm(np.column_stack([X, offset]), y, "binomial", trials=m)
    shifted = glm(X, y, "binomial", trials=m, offset=0.7 * offset)
    x = np.array([0.3, -0.2])
    assert shifted.gradient(x) == pytest.approx(column.gradient([*x, 0.7])[:2], rel=1e-13)


def test_logistic_and_linear_are_the_same_thing(rows):
    X, labels, y = rows
    for one, other in (
        (targets.logistic(X, labels), glm(X, labels)),
        (targets.linear(X, y), glm(X, y, FAMILY["gaussian"])),
    ):
        assert one.identity() == other.identity()
    assert glm(X, labels, weights=np.ones(6)).identity() != glm(X, labels).identity()


def poisson_target(storage=np.asarray, dtype=float, weighted=True, n=60):
    X, offset, weights, rng = table(n)
    y, _ = labels_for("poisson", X, offset, rng)
    return glm(storage(X.astype(dtype)), y, "poisson", offset=offset, weights=weights if weighted else None)


GRID = {
    "svrg": gradients.SVRG(4, 9),
    "saga": gradients.SAGA(3),
    "importance": gradients.Minibatch(5, importance=True),
    "second order": gradients.ControlVariate(4, order=2),
    "full": gradients.Full(),
}


@pytest.mark.parametrize(
    ("storage", "chosen"),
    [
        pytest.param(np.asarray, ("saga", "importance"), id="dense"),  # one loop, which has what the others have
        pytest.param(np.asarray, tuple(GRID), marks=pytest.mark.slow, id="dense, all"),
        pytest.param(scipy.sparse.csr_matrix, ("second order", "full"), marks=pytest.mark.slow, id="csr"),
    ],
)
def test_both_engines_walk_the_same_path_with_offsets_and_weights(storage, chosen):
    target = poisson_target(storage)
    for name in chosen:
        gradient = GRID[name]
        sampler = svrhmc.Sampler(Underdamped(0.1, 2.0, 0.01), gradient)
        one, other = (sampler.run(target, 200, chains=2, engine=engine).draws for engine in ("reference", "numba"))
        assert np.abs(one - other).max() < 1e-11 * np.abs(one).max(), name
    bare = glm(target.rows.X, target.y, "poisson", offset=target.offset)
    assert np.abs(sampler.run(bare, 200, chains=2, engine="reference").draws - other).max() > 1e-3


@pytest.mark.slow
def test_float32_rows_and_whitened_variables_follow_too():
    single = poisson_target(dtype=np.float32)
    sampler = svrhmc.Sampler(UBU(0.2, 2.0, 1.0), gradients.Minibatch(5, importance=True))
    space = svrhmc.whitening.whitened(single)
    one, other = (sampler.run(space, 100, chains=2, engine=engine).draws for engine in ("reference", "numba"))
    assert np.abs(one - other).max() < 2e-4


def by_quadrature(target, half=6.0, points=241):
    """Mean and sd of a posterior of two columns, on a grid of posterior standard deviations."""
    W = np.linalg.cholesky(np.linalg.inv(target.hessian(target.mode())))
    z = np.stack(np.meshgrid(*[np.linspace(-half, half, points)] * 2), axis=-1).reshape(-1, 2)
    x = target.mode() + z @ W.T
    f = np.concatenate([target.potentials(part) for part in np.array_split(x, 50)])
    weight = np.exp(f.min() - f)
    mean = weight @ x / weight.sum()
    return mean, np.sqrt(weight @ (x - mean) ** 2 / weight.sum())


def far_off(draws, mean, sd):
    """|z| of means and squares over independent chains."""
    first, second = draws.mean(axis=1) - mean, ((draws - mean) ** 2).mean(axis=1) / sd**2 - 1
    return max(np.abs(each.mean(axis=0) / (each.std(axis=0) / len(each) ** 0.5)).max() for each in (first, second))


def weighted(name, loss=None, n=60):
    X, offset, weights, rng = table(n)
    y, more = labels_for(name, X, offset, rng)
    return glm(X, y, name if loss is None else loss, offset=offset, weights=weights, **more), X, y, offset, more


@pytest.mark.parametrize(
    ("sampler", "name", "loss"),
    [
        (SplitHMC(), "poisson", None),
        pytest.param(SplitHMC(), "binomial", None, marks=pytest.mark.slow),  # the code is that of Poisson's
        pytest.param(SubsampledMH(), "binomial", None, marks=pytest.mark.slow),
        (SubsampledMH(), "poisson", None),
        pytest.param(SubsampledMH(), "bernoulli", PROBIT, marks=pytest.mark.slow),
    ],
    ids=["split poisson", "split binomial", "subsampled binomial", "subsampled poisson", "subsampled probit"],
)
def test_exact_samplers_are_exact_with_offsets_and_weights(sampler, name, loss):
    target, X, y, offset, more = weighted(name, loss)
    draws = sampler.run(target, 300, chains=200, seed=3).draws
    assert far_off(draws, *by_quadrature(target)) < LIMIT
    careless = glm(X, y, name if loss is None else loss, offset=offset, **more)
    assert far_off(draws, *by_quadrature(careless)) > 2 * LIMIT


def test_the_law_of_batches_of_a_weighted_table():
    """Rows of very different weights: theory has their fᵢ, and the chains have its law."""
    X, offset, _, rng = table(40)
    y, _ = labels_for("gaussian", X, offset, rng)
    weights = np.where(np.arange(40) % 8 == 0, 12.0, 0.5)
    target = glm(X, y, FAMILY["gaussian"], weights=weights, offset=offset)
    sampler = svrhmc.Sampler(Overdamped(0.004), gradients.Minibatch(4))
    law = theory.law(sampler, target, 60)
    last = sampler.run(target, 60, chains=20_000, keep="last", engine="reference").draws[:, -1]
    variance = np.diag(law.covariance)[:2]
    z = (last.mean(axis=0) - law.mean[:2]) / np.sqrt(variance / 20_000)
    assert np.abs(z).max() < LIMIT
    assert np.abs(last.var(axis=0) / variance - 1).max() < LIMIT * (2 / 20_000) ** 0.5 * 1.5
    even = theory.law(sampler, glm(X, y, FAMILY["gaussian"], weights=np.full(40, weights.mean()), offset=offset), 60)
    assert np.abs(last.var(axis=0) / np.diag(even.covariance)[:2] - 1).max() > 0.1


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("poisson", None),
        pytest.param("poisson", "anchored", marks=pytest.mark.slow),  # compiled for it alone
        ("poisson", "subsampled-mh"),
        pytest.param("binomial", "subsampled-mh", marks=pytest.mark.slow),
    ],
)
def test_sample_decides(name, method):
    target = weighted(name, n=300)[0]
    posterior = sample(target, method=method)
    assert posterior.certificate.verdict in ("exact", "certified")
    mean, sd = by_quadrature(target)
    error = np.maximum(posterior.errors[0], 0.02 * sd if method == "anchored" else 0)
    assert (np.abs(posterior.mean - mean) < LIMIT * error + 1e-4 * sd).all()
    assert posterior.sd == pytest.approx(sd, rel=0.02)


def test_what_has_no_bound_is_refused_with_the_reason():
    target = poisson_target()
    with pytest.raises(ValueError, match=r"inverse_mass must be given; got None: the curvature of PoissonLoss"):
        svrhmc.svr_hmc(0.1).run(target, 10)
    with pytest.raises(ValueError, match=r"the curvature of PoissonLoss"):
        theory.plan(target, accuracy=0.1, method="svr-hmc")


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_the_mode_of_counts_far_from_zero(scale):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(500), rng.normal(size=(500, 3))])
    offset = rng.uniform(-8, 8, 500)
    y = rng.poisson(scale * np.exp(np.minimum(X @ [0.5, 1.0, -1.0, 0.3] + offset, 16)))
    for prior in (1e-6, 0.0):
        target = glm(X, y, "poisson", offset=offset, prior_precision=prior)
        x = target.mode()
        g = target.gradient(x)
        assert g @ np.linalg.solve(target.hessian(x), g) < 1e-12
    target.__dict__.pop("minima")
    target.guess = lambda: None  # from 0, where steps overflow
    assert target.mode() == pytest.approx(x, abs=1e-8)


def test_counts_that_run_off_are_improper_under_a_flat_prior():
    X = np.column_stack([np.ones(30), np.arange(30) < 10])
    y = np.where(X[:, 1] > 0, 0, 3)  # no event at all in the first group
    with pytest.raises(ValueError, match="the posterior is improper"):
        sample(glm(X, y, "poisson", prior_precision=0.0))
    assert np.isfinite(glm(X, y, "poisson", prior_precision=[0.0, 1.0]).mode()).all()
    y[0] = 1
    assert glm(X, y, "poisson", prior_precision=0.0).mode() == pytest.approx([np.log(3), np.log(0.1) - np.log(3)])


ONE = np.ones((4, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: glm(ONE, [0, 1, -2, 0], "poisson"), "y must be counts: whole numbers not below 0; got -2 at row 2, a negative count: for numbers of either sign use 'gaussian'"),
        (lambda: glm(ONE, [0, 1, 2.5, 0], "poisson"), "got 2.5 at row 2, not a whole number: for measurements use"),
        (lambda: glm(ONE, [0, 1, 2**53, 0], "poisson"), "y must be counts below 2⁵³; got 9007199254740992 at row 2"),
        (lambda: glm(ONE, [0, 1, 2, 0], "binomial", trials=[1, 1, 1, 1]), "trials must be at least the successes y; got 1 for y = 2 at row 2: y is the number of successes"),
        (lambda: glm(ONE, [0, 1, 2, 0], "binomial"), "y must be 0 or 1 where trials is None; got 2 at row 2: say how many trials"),
        (lambda: glm(ONE, [0, 1, 1, 0], "poisson", trials=3), "trials must be None for PoissonLoss()"),
        (lambda: glm(ONE, [0, 1, 1, 0], "binomial", trials=[1, 2]), "trials must be an array of shape (4,); got shape (2,)."),
        (lambda: glm(ONE, [0, 1, 1, 0], weights=[1, 1, -1, 1]), "weights must be numbers not below 0; got -1 at row 2: a row of weight w counts as w rows"),
        (lambda: glm(ONE, [0, 1, 1, 0], weights=np.zeros(4)), "weights must be above 0 for some row; got 0 for all of them: without weights"),
        (lambda: glm(ONE, [0, 1, 1, 0], weights=[1, 1]), "weights must be an array of shape (4,); got shape (2,)."),
        (lambda: glm(ONE, [0, 1, 1, 0], offset=[1, 1]), "offset must be an array of shape (4,); got shape (2,)."),
        (lambda: glm(ONE, [0, 1, 1, 0], offset=[1, 1, np.inf, 1]), "offset must be finite everywhere; got inf at row 2."),
        (lambda: glm(ONE, [0, 1, 1, 0], "poison"), "got 'poison': did you mean 'poisson'?"),
        (lambda: glm(ONE, [0, 1, 1, 0], 3), "family must be one of 'bernoulli', 'binomial', 'beta-binomial', 'beta', 'poisson'"),
        (lambda: glm(ONE, [0, 1, 2, 0]), "y must be labels in {0, 1} or {-1, 1}; got the values 0, 1, 2: say which label is 1"),
        (lambda: families.bernoulli("cauchit"), "link must be one of 'logit', 'probit' for 'bernoulli'; got 'cauchit': no other is here."),
    ],
)  # fmt: skip
def test_bad_input_is_refused_at_the_door(make, message):
    with pytest.raises(ValueError, match="must be") as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.slow
def test_chains_that_share_a_pass_over_sparse_rows_know_weights_and_offsets():
    """Split HMC with two chains and with three, of which one is alone, on CSR and dense rows of the same numbers."""
    rng = np.random.default_rng(8)
    X = np.where(rng.random((300, 4)) < 0.5, rng.normal(size=(300, 4)), 0.0)
    y, weights, offset = rng.poisson(2.0, 300), rng.integers(0, 4, 300), rng.normal(size=300) / 3
    drawn = {}
    for name, rows in (("dense", X), ("sparse", scipy.sparse.csr_matrix(X))):
        target = svrhmc.targets.glm(rows, y, "poisson", weights=weights, offset=offset)
        drawn[name] = [SplitHMC().run(target, 50, chains=chains, seed=2).draws for chains in (2, 3)]
    for dense, sparse in zip(drawn["dense"], drawn["sparse"], strict=True):
        np.testing.assert_allclose(dense, sparse, rtol=1e-8, atol=1e-8)
    assert np.array_equal(drawn["sparse"][0], drawn["sparse"][1][:2])
    plain = svrhmc.targets.glm(scipy.sparse.csr_matrix(X), y, "poisson", offset=offset)
    other = SplitHMC().run(plain, 50, chains=2, seed=2).draws
    assert np.abs(other - drawn["sparse"][0]).max() > 0.01  # the control: weights matter
