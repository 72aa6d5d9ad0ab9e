"""Families with shared parameters, and classes: several predictors a row, on both engines and in split HMC."""

import mpmath
import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import svrhmc
from conftest import LIMIT, untraced
from svrhmc import gradients, sample, theory
from svrhmc.dynamics import UBU
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Laplace, Normal, StudentT
from svrhmc.whitening import whitened
from test_families import by_quadrature, far_off

NAMES = ("gaussian", "student-t", "negative-binomial", "gamma", "categorical")
LOSSES = {
    "gaussian": families.gaussian(),
    "student-t": families.student_t(3.0),
    "negative-binomial": families.negative_binomial(),
    "gamma": families.gamma(),
    "categorical": families.categorical(3),
}
mp = mpmath.mp


def defined(name, a, b, y):
    """−log p up to a constant, by its definition, at t = (a, b)."""
    if name == "gaussian":
        return b + ((y - a) * mp.exp(-b)) ** 2 / 2
    if name == "student-t":
        return b + 2 * mp.log1p(((y - a) * mp.exp(-b)) ** 2 / 3)
    if name == "negative-binomial":
        phi, mu = mp.exp(b), mp.exp(a)
        rising = mp.loggamma(y + phi) - mp.loggamma(phi)
        return -rising + phi * mp.log1p(mu / phi) + y * mp.log1p(phi / mu)
    if name == "gamma":
        alpha = mp.exp(b)
        return alpha * (a - y + mp.exp(y - a)) - alpha * b + mp.loggamma(alpha)
    return mp.log(1 + mp.exp(a) + mp.exp(b)) - {0: 0, 1: a, 2: b}[int(y)]


LABELS = {
    "gaussian": (-1.5, 30.0), "student-t": (-1.5, 1e4), "negative-binomial": (0.0, 3.0, 33.0, 4e5),
    "gamma": (-3.0, 0.0, 5.0), "categorical": (0.0, 1.0, 2.0),
}  # fmt: skip
PLACES = [(0.0, 0.0), (1.3, -0.7), (-2.0, 3.0), (4.0, 9.0), (12.0, -4.0), (-40.0, 1.0), (40.0, 2.0)]

derivative = untraced()(mp.diff)


@pytest.mark.parametrize("name", NAMES)
def test_formulas_and_their_compiled_forms(name):
    from one_row import row_energy as compiled

    loss = LOSSES[name]
    kernel = loss.record()
    with mp.workdps(60):
        for y in LABELS[name]:
            for a, b in PLACES:
                t = np.array([a, b])
                point, label = (mp.mpf(a), mp.mpf(b)), mp.mpf(y)
                f = lambda u, v, label=label: defined(name, u, v, label)  # noqa: E731
                value = float(f(*point))
                slope = [float(derivative(f, point, order)) for order in ((1, 0), (0, 1))]
                bend = [float(derivative(f, point, order)) for order in ((2, 0), (1, 1), (0, 2))]
                s = np.empty(2)
                found = compiled(kernel, t, y, s)
                room = 1e-13 * (abs(value) + 1)
                assert loss.value(t, np.array(y)) == pytest.approx(value, rel=1e-13, abs=room)
                assert found == pytest.approx(value, rel=1e-13, abs=room)
                if name == "categorical" and value < 1e-10:
                    assert found == pytest.approx(value, rel=1e-13, abs=1e-306)
                size = max(map(abs, slope)) + (np.exp(b) + abs(y) if name in ("negative-binomial", "gamma") else 0)
                assert loss.slope(t, np.array(y)) == pytest.approx(slope, rel=1e-12, abs=1e-13 * size)
                assert s == pytest.approx(slope, rel=1e-12, abs=1e-13 * size)
                C = loss.curvature(t, np.array(y))
                size = max(map(abs, bend)) + (np.exp(b) + abs(y) if name in ("negative-binomial", "gamma") else 0)
                assert [C[0, 0], C[0, 1], C[1, 1]] == pytest.approx(bend, rel=1e-11, abs=1e-11 * size)
                assert C[0, 1] == C[1, 0]


def law_of(name, a, b):
    if name == "gaussian":
        return stats.norm(a, np.exp(b))
    if name == "student-t":
        return stats.t(3.0, a, np.exp(b))
    if name == "negative-binomial":
        return stats.nbinom(np.exp(b), np.exp(b) / (np.exp(a) + np.exp(b)))
    if name == "gamma":
        return stats.gamma(np.exp(b), scale=np.exp(a - b))
    return stats.rv_discrete(values=(np.arange(3), np.array([1, np.exp(a), np.exp(b)]) / (1 + np.exp(a) + np.exp(b))))


@pytest.mark.parametrize("name", NAMES)
def test_every_family_has_the_law_that_scipy_has(name):
    loss = LOSSES[name]
    ys = {"categorical": np.arange(3.0), "negative-binomial": np.arange(40.0)}.get(name, np.linspace(0.1, 6, 9))
    t = np.tile([0.4, -0.3], (len(ys), 1))
    labels = loss.labels(ys, len(ys))
    density = np.exp(-loss.value(t, labels) - loss.constant(labels))
    for b, same in ((-0.3, True), (-0.2, False)):
        law = law_of(name, 0.4, b)
        wanted = law.pdf(ys) if hasattr(law.dist if hasattr(law, "dist") else law, "pdf") else law.pmf(ys)
        assert (density == pytest.approx(wanted, rel=1e-11)) == same
    law, u = law_of(name, 0.4, -0.3), (np.arange(300) + 0.5) / 300
    assert loss.draw(np.tile([0.4, -0.3], (300, 1)), u) == pytest.approx(law.ppf(u), rel=1e-9)
    mean = loss.mean(t)[0]
    assert (mean @ np.arange(3) if name == "categorical" else mean) == pytest.approx(law.mean(), rel=1e-12)


def data(name, n=60, columns=1, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, columns))])[:, :columns]
    mu = 0.5 * X[:, 0] + 0.3 * X[:, -1]
    y = {
        "gaussian": mu + 2 * rng.normal(size=n),
        "student-t": mu + rng.standard_t(3, n),
        "negative-binomial": rng.negative_binomial(2, 2 / (2 + np.exp(mu))),
        "gamma": rng.gamma(3, np.exp(mu) / 3),
        "categorical": rng.integers(0, 3, n),
    }[name]
    return X, y, rng.integers(0, 4, n).astype(float), rng.normal(size=n) / 4


def target_of(name, storage=np.asarray, dtype=float, **size):
    X, y, weights, offset = data(name, **size)
    return glm(storage(X.astype(dtype)), y, name, weights=weights, offset=None if name == "categorical" else offset)


@pytest.mark.parametrize("name", NAMES)
def test_targets_of_several_predictors(name):
    X, y, weights, offset = data(name, columns=2)
    offset = None if name == "categorical" else offset
    target = glm(X, y, name, weights=weights, offset=offset)
    assert target.dim == (4 if name == "categorical" else 3)
    x = np.random.default_rng(1).normal(size=target.dim) / 3
    step = 1e-5 * np.eye(target.dim)
    numeric = np.array([(target.potential(x + h) - target.potential(x - h)) / 2e-5 for h in step])
    assert target.gradient(x) == pytest.approx(numeric, rel=1e-7, abs=1e-6)
    bend = np.array([(target.gradient(x + h) - target.gradient(x - h)) / 2e-5 for h in step])
    assert target.hessian(x) == pytest.approx(bend, rel=1e-6, abs=1e-5)
    assert target.hessian_product(x, x) == pytest.approx(target.hessian(x) @ x, rel=1e-11)
    assert target.component_gradients(x, np.arange(target.n)).mean(axis=0) == pytest.approx(
        target.gradient(x), rel=1e-10
    )
    each = np.repeat(np.arange(60), weights.astype(int))
    long = glm(X[each], y[each], name, offset=None if offset is None else offset[each])
    assert target.mode() == pytest.approx(long.mode(), abs=1e-8)
    assert target.potential(x) == pytest.approx(long.potential(x), rel=1e-12)
    g = target.gradient(target.mode())
    assert g @ np.linalg.solve(target.hessian(target.mode()), g) < 1e-13
    space = whitened(target)
    z = np.random.default_rng(2).normal(size=(1, target.dim))
    rest = space.parts(z, None)
    assert space.prior_gradient(z) + space.assemble(rest, None) == pytest.approx(space.gradients(z), abs=1e-9)
    assert np.linalg.norm(rest) < 0.5 * np.linalg.norm(target.parts(space.out(z), None))


def test_the_gaussian_with_unknown_spread_knows_its_law():
    """Flat priors, σ integrated out: the coefficient has Student's t law with n − 1 degrees of freedom."""
    X, y, _, _ = data("gaussian", n=12)
    target = glm(X, y, "gaussian", prior_precision=0.0, shared_prior=Normal(0.0))
    mean, sd = by_quadrature(target, 14.0, 561)
    scale = y.std(ddof=1) / 12**0.5
    assert mean[0] == pytest.approx(y.mean(), abs=1e-3 * scale)
    assert sd[0] == pytest.approx(scale * (11 / 9) ** 0.5, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "storage", "dtype"),
    [
        pytest.param("student-t", np.asarray, float, marks=pytest.mark.slow),  # as test_several_predictors.py has it
        pytest.param("categorical", scipy.sparse.csr_matrix, float, marks=pytest.mark.slow),
        pytest.param("gamma", np.asarray, np.float32, marks=pytest.mark.slow),
    ],
)
def test_both_engines_walk_the_same_path(name, storage, dtype):
    target = target_of(name, storage, dtype, columns=2)
    room = 1e-10 if dtype is float else 2e-4
    kinds = [gradients.SVRG(4, 9), gradients.Full(), gradients.Minibatch(5)]
    if name == "student-t":
        kinds += [gradients.SAGA(3), gradients.SVRG(4, 9, importance=True), gradients.ControlVariate(4, order=2)]
    for gradient in kinds:
        sampler = svrhmc.Sampler(UBU(0.1, 2.0, 0.003), gradient)
        one, other = (
            sampler.run(target, 80, chains=2, start="mode", engine=each).draws for each in ("reference", "numba")
        )
        assert np.abs(one - other).max() < room * np.abs(one).max(), gradient
    if name == "categorical":
        sampler = svrhmc.Sampler(UBU(0.2, 2.0, 1.0), gradients.Minibatch(6, importance=True))
        one, other = (sampler.run(whitened(target), 60, chains=2, engine=each).draws for each in ("reference", "numba"))
        assert np.abs(one - other).max() < room * np.abs(one).max()


@pytest.mark.slow  # compiled anew for each, with weights and offsets; without, test_exact_law.py and test_fit.py have them
@pytest.mark.parametrize("name", NAMES)
def test_split_hmc_is_exact_and_sample_decides(name):
    target = target_of(name)
    mean, sd = by_quadrature(target, 8.0, 321)
    draws = SplitHMC(0.5, 3).run(target, 300, chains=150, seed=5).draws
    assert far_off(draws, mean, sd) < LIMIT
    X, y, _, _ = data(name)
    assert far_off(draws, *by_quadrature(glm(X, y, name), 8.0, 321)) > 2 * LIMIT  # without the weights
    posterior = sample(target)
    assert posterior.certificate.verdict in ("exact", "certified", "local")
    assert (np.abs(posterior.mean - mean) < LIMIT * posterior.errors[0] + 1e-3 * sd).all()
    assert posterior.sd == pytest.approx(sd, rel=0.05)


def test_priors_of_blocks_and_of_shared_parameters():
    X, y, _, _ = data("categorical", columns=2)
    target = glm(X, y, "categorical", prior=[Normal(2.0, mean=0.5), Laplace(0.3)])
    assert target.prior_precision == pytest.approx([2.0, 0.0, 2.0, 0.0])
    assert target.heavy.columns.tolist() == [1, 3]
    X, y, _, _ = data("gaussian", columns=2)
    target = glm(X, y, "gaussian", prior_precision=[1.0, 3.0], shared_prior=StudentT())
    assert (target.prior_precision.tolist(), target.heavy.columns.tolist()) == ([1.0, 3.0, 0.0], [2])
    assert glm(X, y, "gaussian").prior_precision.tolist() == [1.0, 1.0, 0.04]
    assert glm(X, np.abs(y), "gamma").prior_precision.tolist() == [1.0, 1.0, 0.25]


def test_categorical_of_two_classes_is_logistic():
    X, y, weights, _ = data("categorical", columns=2)
    labels = (y > 0).astype(float)
    one, other = glm(X, labels, "categorical", weights=weights), glm(X, labels, weights=weights)
    x = np.array([0.3, -0.8])
    assert one.gradient(x) == pytest.approx(other.gradient(x), rel=1e-12)
    assert one.hessian(x) == pytest.approx(other.hessian(x), rel=1e-12)
    assert one.mode() == pytest.approx(other.mode(), abs=1e-9)
    sampler = svrhmc.Sampler(UBU(0.1, 2.0, 0.01), gradients.SVRG(4, 9))
    draws = [sampler.run(each, 50, chains=2, engine="reference").draws for each in (one, other)]
    assert draws[0] == pytest.approx(draws[1], abs=1e-10)


def test_counts_without_spread_lean_on_the_prior():
    """Poisson counts: φ is not bounded by the rows, and its prior keeps the posterior proper."""
    rng = np.random.default_rng(0)
    target = glm(np.ones((400, 1)), rng.poisson(3.0, 400), "negative-binomial")
    mode = target.mode()
    assert mode[0] == pytest.approx(np.log(3.0), abs=0.1)
    assert 2 < mode[1] < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_runs_go_on_where_they_were(name, tmp_path):
    target = target_of(name)
    assert target.identity() != target_of(name, n=61).identity()
    if name == "gaussian":
        sampler = svrhmc.Sampler(UBU(0.1, 2.0, 0.003), gradients.SAGA(3))
        whole = sampler.run(target, 60, chains=2, start="mode").draws
        first = sampler.run(target, 25, chains=2, start="mode", checkpoint=tmp_path / "run").draws
        assert (first == whole[:, :25]).all()
        made = sampler.setup(target, 0, np.arange(2), 1)
        state = svrhmc.engines.State(np.tile(target.mode(), (2, 1)), np.zeros((2, 2)))
        for engine in ("reference", "numba"):
            one, cut = (svrhmc.engines.chains(engine, made, state) for _ in range(2))
            in_pieces = np.concatenate([cut.extend(count).draws for count in (7, 13)], axis=1)
            assert (one.extend(20).draws == in_pieces).all()


def test_large_tables_take_compiled_passes(monkeypatch):
    X, y, weights, offset = data("gaussian", n=5000, columns=2)
    small = glm(X, y, "gaussian", weights=weights, offset=offset)
    expected = small.mode(), small.hessian(small.mode())
    monkeypatch.setattr(svrhmc.rows.base, "_THREADED", 1)
    large = glm(X, y, "gaussian", weights=weights, offset=offset)
    large.warm()
    assert large.mode() == pytest.approx(expected[0], abs=1e-9)
    assert large.hessian(large.mode()) == pytest.approx(expected[1], rel=1e-9, abs=1e-6)


ONE = np.ones((4, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: glm(ONE, [0, 1, 3, 0], families.categorical(4)), "y must be labels in which every class is seen; got none of class 2: "),
        (lambda: glm(ONE, [0, 1, 2, 3], families.categorical(3)), "y must be classes from 0 to 2; got 3 at row 3."),
        (lambda: glm(ONE, [0, 1.5, 2, 3], "categorical"), "y must be labels of classes; got 1.5 at row 1, not a whole number."),
        (lambda: glm(ONE, [0, 1, 2, 0], "categorical", offset=np.ones(4)), "offset must be None for CategoricalLoss(classes=3)"),
        (lambda: glm(ONE, [1.0, 0.0, 2, 3], "gamma"), "y must be positive numbers for the gamma family; got 0 at row 1: fit y > 0 by 'bernoulli'"),
        (lambda: glm(ONE, [1, -1, 2, 3], "negative-binomial"), "got -1 at row 1, a negative count: "),
        (lambda: glm(ONE, [0, 1, 1, 0], shared_prior=Normal()), "shared_prior must be None for LogisticLoss()"),
        (lambda: glm(ONE, [0, 1, 1, 0], "negative_binomal"), "did you mean 'negative-binomial'?"),
        (lambda: families.student_t(0.0), "df must be a positive number; got 0.0."),
        (lambda: SubsampledMH().run(target_of("categorical"), 10), "the third derivative of CategoricalLoss(classes=3) has no bound, not even on an interval"),
        (lambda: svrhmc.svr_hmc(0.1).run(target_of("gaussian"), 10), "the curvature of GaussianLoss() has no bound"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(make, message):
    with pytest.raises(ValueError, match="must be") as caught:
        make()
    assert message in str(caught.value)


def test_flat_priors_on_classes():
    X, y, _, _ = data("categorical", columns=2)
    assert np.isfinite(glm(X, y, "categorical", prior_precision=0.0).mode()).all()
    apart = np.digitize(X[:, 1], [-0.5, 0.5])
    with pytest.raises(ValueError, match=r"improper .* the data are separable"):
        sample(glm(X, apart, "categorical", prior_precision=0.0))
    twice = np.column_stack([X, 2 * X[:, 0]])
    with pytest.raises(ValueError, match=r"linearly dependent; got 0 for columns 0, 2, which are"):
        sample(glm(twice, y, "categorical", prior_precision=0.0))
    with pytest.raises(ValueError, match=r"linearly dependent; got 0 for columns 0, 2, which are"):
        sample(glm(twice, X[:, 1], "gaussian", prior_precision=0.0))


def test_theory_says_that_it_does_not_know_them():
    with pytest.raises(ValueError, match="must be"):
        theory.stationary(svrhmc.Sampler(UBU(0.1, 2.0, 0.003), gradients.Minibatch(5)), target_of("gaussian"))
