"""Mixed models: densities and variables against SciPy's laws and differences, draws against quadrature, and what a run
keeps: seeds, threads, checkpoints, budgets.
"""

import functools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logsumexp

import quadrature
from conftest import LIMIT
from group_faults import without_jacobian, without_outer_determinant
from svrhmc import checkpoint, sample, samplers
from svrhmc.core.deadline import Budget
from svrhmc.core.errors import UndefinedDensityError
from svrhmc.core.randomness import Stream
from svrhmc.density import mixed
from svrhmc.density.mixed import MixedModel
from svrhmc.engines.reference import ReferenceChains
from svrhmc.exact import SplitHMC
from svrhmc.kernels.stream import CompiledStream
from svrhmc.posterior import usual_settings
from svrhmc.priors.covariance import Covariance, semidefinite_root
from svrhmc.rows.forms import RowsForm
from svrhmc.sampling import approach, groups, joint, run
from svrhmc.sampling.correction import error_of_mean
from svrhmc.sampling.drawing import Drawing
from svrhmc.sampling.run import find_answer
from svrhmc.targets import Group, glm, priors
from svrhmc.whitening import groups as whitened
from svrhmc.whitening.groups import Bend, GroupVariables, first_centre

STEP = 1e-5  # of differences
FAMILIES = ["bernoulli", "binomial", "poisson", "gaussian", "student-t", "negative-binomial", "gamma"]


def drawn_labels(family, t, rng, trials):
    """Labels at these predictors."""
    mean = np.exp(0.5 * t)
    return {
        "bernoulli": lambda: (rng.random(len(t)) < expit(t)).astype(float),
        "binomial": lambda: rng.binomial(trials, expit(t)).astype(float),
        "poisson": lambda: rng.poisson(mean).astype(float),
        "gaussian": lambda: t + rng.normal(size=len(t)),
        "student-t": lambda: t + 0.7 * rng.standard_t(4, size=len(t)),
        "negative-binomial": lambda: rng.negative_binomial(3, 3 / (3 + mean)).astype(float),
        "gamma": lambda: rng.gamma(2.0, mean / 2),
        "ordinal": lambda: np.digitize(t + rng.logistic(size=len(t)), [-0.7, 0.8]).astype(float),
    }[family]()


class Problem:
    """Rows with offsets and weights in terms of 1, 2 or 3 columns a level, crossed."""

    def __init__(self, family="bernoulli", widths=(1,), levels=(4, 3, 3), n=40, lkj=1.0, seed=0, plain=False):
        rng = np.random.default_rng(seed)
        self.family = family
        self.X = np.stack([np.ones(n), rng.normal(size=n)], axis=1)[:, 1 if family == "ordinal" else 0 :]
        self.offset = np.zeros(n) if plain else 0.3 * rng.normal(size=n)
        self.weights = np.ones(n) if plain else rng.integers(1, 3, n).astype(float)
        self.trials = rng.integers(1, 6, n)
        t, self.groups, self.Z = self.offset + 0.4 * self.X[:, -1], [], []
        for k, width in enumerate(widths):
            index = rng.permutation(np.arange(n) % levels[k])
            columns = np.concatenate([np.ones((n, 1)), rng.normal(size=(n, 2))], axis=1)[:, :width]
            effects = rng.normal(size=(levels[k], width)) * 0.8
            t = t + (columns * effects[index]).sum(axis=1)
            scales = [priors.HalfNormal(1.5), priors.Exponential(0.8), priors.HalfStudentT(3.0, 1.2)][:width]
            self.groups.append(Group(index, columns, name=f"g{k}", prior=scales, lkj=lkj))
            Z = np.zeros((n, levels[k], width))
            Z[np.arange(n), index] = columns
            self.Z.append(Z.reshape(n, -1))
        self.y = drawn_labels(family, t, rng, self.trials)

    @functools.cached_property
    def model(self):
        trials = {"trials": self.trials} if self.family == "binomial" else {}
        return glm(
            self.X, self.y, self.family, offset=self.offset, weights=self.weights, prior_precision=0.5,
            groups=self.groups, **trials,
        )  # fmt: skip

    def states(self, count=3, seed=1):
        rng = np.random.default_rng(seed)
        x = 0.6 * rng.normal(size=(count, self.model.dim))
        if self.family == "ordinal":
            x[:, self.model.effects.stop : self.model.inner_dim] = np.sort(rng.normal(size=(count, 2)), axis=1)
        return x

    def log_density(self, x):
        """log p(y, w, θ) of one state by SciPy's laws."""
        model = self.model
        w, theta = x[: model.inner_dim], x[model.inner_dim :]
        data = quadrature.Data(
            self.family, np.concatenate([self.X, *self.Z], axis=1), self.y, self.offset, self.weights, self.trials
        )
        total = float(quadrature.log_density(data, w[None])[0] @ self.weights)
        total += stats.norm.logpdf(w[: model.columns], 0, 2**0.5).sum()
        if self.family in quadrature.SHARED_SD:
            total += stats.norm.logpdf(w[-1], 0, quadrature.SHARED_SD[self.family])
        for term in model.terms:
            own = theta[term.theta]
            r = term.width
            tau, omega = np.exp(own[:r]), correlations(own[r:], r)
            effects = w[term.effects].reshape(term.count, r)
            total += stats.multivariate_normal(np.zeros(r), tau[:, None] * omega * tau).logpdf(effects).sum()
            laws = [stats.halfnorm(scale=1.5), stats.expon(scale=1 / 0.8), None]
            for a in range(r):
                law = laws[a]
                half_t = math.log(2) + stats.t.logpdf(tau[a], 3.0, scale=1.2)
                total += own[a] + (half_t if law is None else law.logpdf(tau[a]))
            total += (term.covariance.lkj - 1) * np.linalg.slogdet(omega)[1]
            total += np.linalg.slogdet(np.atleast_2d(correlation_jacobian(own[r:], r)))[1] if r > 1 else 0.0
        return total


def correlations(c, r):
    """Ω from partial correlations by their definition: row i of its root, of unit length, is made left to right."""
    L, place = np.zeros((r, r)), 0
    for i in range(r):
        left = 1.0
        for j in range(i):
            L[i, j] = np.tanh(c[place]) * math.sqrt(left)
            left -= L[i, j] ** 2
            place += 1
        L[i, i] = math.sqrt(left)
    return L @ L.T


def correlation_jacobian(c, r):
    """∂(the correlations)/∂c by differences."""
    lower = np.tril_indices(r, -1)
    steps = STEP * np.eye(len(c))
    return np.array([(correlations(c + d, r)[lower] - correlations(c - d, r)[lower]) / (2 * STEP) for d in steps]).T


def differences(f, x):
    """The gradient at states (states, dim) of a function of states."""
    steps = STEP * np.eye(x.shape[1])
    return np.array([(f(x + d) - f(x - d)) / (2 * STEP) for d in steps]).T


SHAPES = [(family, (2, 1)) for family in ("ordinal", *FAMILIES)]
SHAPES += [(family, widths) for family in ("bernoulli", "gaussian") for widths in ((1,), (2,), (3,))]


# Covariances


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_factors_of_covariances_their_derivatives_and_coordinates(width):
    covariance = Covariance.of([priors.HalfNormal(1.0)] * width, 2.0)
    theta = 0.7 * np.random.default_rng(width).normal(size=(3, covariance.dim))
    M = covariance.factor(theta)
    for state, own in zip(M, theta, strict=True):
        tau = np.exp(own[:width])
        sigma = tau[:, None] * correlations(own[width:], width) * tau
        assert state @ state.T == pytest.approx(sigma, rel=1e-12, abs=1e-14)
        assert (np.triu(state, 1) == 0).all()
        assert covariance.coordinates(sigma) == pytest.approx(own, rel=1e-9, abs=1e-10)
        stated = covariance.sds_and_correlations(own[None])[0]
        omega = correlations(own[width:], width)
        assert stated == pytest.approx(np.concatenate([tau, [omega[i, j] for i, j in covariance.pairs]]), abs=1e-13)
    for E, d in zip(covariance.derivatives(theta), STEP * np.eye(covariance.dim), strict=True):
        change = (covariance.factor(theta + d) - covariance.factor(theta - d)) / (2 * STEP)
        assert pytest.approx(change, rel=1e-7, abs=1e-8) == M @ E
    slope = covariance.prior(theta)[1]
    assert slope == pytest.approx(differences(lambda x: covariance.prior(x)[0], theta), rel=1e-7, abs=1e-8)
    steps = STEP * np.eye(covariance.dim)
    second = [(covariance.prior(theta + d)[1] - covariance.prior(theta - d)[1])[:, j] / (2 * STEP)
              for j, d in enumerate(steps)]  # fmt: skip
    curved = [covariance.prior_curvature(own) for own in theta]
    assert np.array(curved) == pytest.approx(np.array(second).T, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("c", [12.0, -25.0, 400.0, -1e5])
def test_correlations_that_are_rounded_to_one_have_a_factor(c, width):
    """Where a trajectory is thrown to: it is refused there, and does not end the run."""
    covariance = Covariance.of([priors.HalfNormal(1.0)] * width, 1.0)
    theta = np.full((1, covariance.dim), c)
    theta[:, :width] = 0.3
    assert np.linalg.slogdet(covariance.factor(theta))[1] > -np.inf
    assert np.isfinite(covariance.derivatives(theta)).all()
    assert np.isfinite(covariance.prior(theta)[0]).all()


@pytest.mark.parametrize("width", [2, 3])
def test_covariances_at_the_centre_of_columns_are_stated_for_the_columns_as_they_are(width):
    """zᵀu = (z − m)ᵀu′ for the effects, AΣ′Aᵀ for their covariance, whose prior is that of Σ′."""
    rng = np.random.default_rng(width)
    centre = np.array([0.0, 2.0, -30.0][:width])
    at_zero, moved = (Covariance.of([priors.HalfNormal(1.0)] * width, 2.0, m) for m in (None, centre))
    theta = 0.7 * rng.normal(size=(4, moved.dim))
    A = np.eye(width)
    A[0, 1:] = -centre[1:]
    for M, stated in zip(moved.factor(theta), moved.sds_and_correlations(theta), strict=True):
        sigma = A @ M @ M.T @ A.T
        tau = np.sqrt(np.diag(sigma))
        expected = [*tau, *(sigma[i, j] / (tau[i] * tau[j]) for i, j in moved.pairs)]
        assert stated == pytest.approx(expected, rel=1e-11, abs=1e-12)
    assert moved.from_sds_and_correlations(moved.sds_and_correlations(theta)) == pytest.approx(theta, abs=1e-7)
    assert moved.centred_sds_and_correlations(moved.sds_and_correlations(theta)) == pytest.approx(
        at_zero.sds_and_correlations(theta), abs=1e-9
    )
    assert moved.log_prior(moved.sds_and_correlations(theta)) == pytest.approx(
        at_zero.log_prior(at_zero.sds_and_correlations(theta)), abs=1e-8
    )
    Z = np.column_stack([np.ones(6), centre[1:] + rng.normal(size=(6, width - 1))])
    group = Group([0, 0, 1, 1, 2, 2], Z, centre=centre)
    drawn = rng.normal(size=(2, group.count * width))
    assert group.inward(group.outward(drawn)) == pytest.approx(drawn, abs=1e-12)
    whole = Group(group.index, Z).design()
    assert whole @ group.outward(drawn).T == pytest.approx(group.design() @ drawn.T, abs=1e-12)


def test_a_correlation_of_1_to_rounding_has_a_root_and_a_finite_density():
    covariance = Covariance.of([priors.HalfNormal(1.0)] * 2, 2.0, np.array([0.0, 2000.0]))
    stated = covariance.sds_and_correlations(np.array([[-40.0, 0.0, 0.3]]))
    assert stated[0, 2] == pytest.approx(-1, abs=1e-15)
    assert np.isfinite(covariance.from_sds_and_correlations(stated)).all()
    even = Covariance.of([priors.HalfNormal(1.0)] * 2, 1.0)
    assert np.isfinite(even.log_prior(np.array([[2.0, 1.0, -1.0]]))).all()
    assert semidefinite_root(np.array([[1.0, -1.0], [-1.0, 1.0]])).tolist() == [[1.0, 0.0], [-1.0, 0.0]]


def test_a_centre_beside_a_column_that_is_no_intercept_is_refused():
    with pytest.raises(ValueError, match="0 for an intercept, the first column"):
        Group([0, 1], [[2.0, 1.0], [3.0, 1.0]], centre=[0.0, 1.0])


@pytest.mark.parametrize("lkj", [1.0, 2.5])
@pytest.mark.parametrize("width", [2, 3])
def test_every_correlation_has_the_law_that_lkj_gives_it(width, lkj):
    """(Ωᵢⱼ + 1)/2 ~ Beta(a, a), a = η − 1 + r/2: moments by quadrature over the partial correlations."""
    covariance = Covariance.of([priors.HalfNormal(1.0)] * width, lkj)
    axis = np.linspace(-9, 9, 61)
    c = np.stack(np.meshgrid(*[axis] * len(covariance.pairs), indexing="ij"), axis=-1).reshape(
        -1, len(covariance.pairs)
    )
    theta = np.concatenate([np.zeros((len(c), width)), c], axis=1)
    value = covariance.prior(theta)[0]
    p = np.exp(value.min() - value)
    p /= p.sum()
    a = lkj - 1 + width / 2
    for rho in covariance.sds_and_correlations(theta)[:, width:].T:
        assert p @ rho == pytest.approx(0, abs=1e-9)
        assert p @ rho**2 == pytest.approx(1 / (2 * a + 1), rel=1e-5)
        assert p @ rho**4 == pytest.approx(3 / ((2 * a + 1) * (2 * a + 3)), rel=1e-5)


# Densities and variables


@pytest.mark.parametrize("family", FAMILIES)
def test_the_joint_density_is_the_one_of_scipy(family):
    problem = Problem(family, (2, 1))
    x = problem.states()
    want = np.array([problem.log_density(state) for state in x])
    assert np.diff(-problem.model.potentials(x)) == pytest.approx(np.diff(want), rel=1e-9)


@pytest.mark.parametrize("lkj", [1.0, 2.0])
def test_and_so_with_three_columns_and_their_correlations(lkj):
    problem = Problem("bernoulli", (3,), lkj=lkj)
    x = problem.states()
    want = np.array([problem.log_density(state) for state in x])
    assert np.diff(-problem.model.potentials(x)) == pytest.approx(np.diff(want), rel=1e-8)


def test_the_prior_of_a_scale_follows_the_data_unless_it_is_given():
    problem = Problem("gaussian", (2,), plain=True)
    group = Group(problem.groups[0].index, problem.groups[0].columns, name="g")
    model = glm(problem.X, problem.y, "gaussian", groups=[group])
    spread = problem.y.std()
    scales = 2.5 * spread / np.array([1.0, group.columns[:, 1].std()])
    theta = np.array([[0.3, -0.5, 0.0], [-0.8, 0.9, 0.0]])
    want = [sum(stats.halfnorm.logpdf(math.exp(a), scale=s) + a for a, s in zip(own[:2], scales, strict=True))
            for own in theta]  # fmt: skip
    assert np.diff(-model.terms[0].covariance.prior(theta)[0]) == pytest.approx(np.diff(want), rel=1e-9)


def variables(problem, bent=True):
    """Variables around the first centre, with a bend and a mixing of their own."""
    model = problem.model
    theta, w, sds = first_centre(model, np.full(model.theta_dim, -0.5))
    bend = Bend.straight(theta, sds)
    if bent:
        bend.bend[0], bend.knee[0] = 0.7, 0.3
    mixing = np.eye(model.theta_dim) + 0.1 * np.tril(np.ones((model.theta_dim, model.theta_dim)), -1)
    return GroupVariables(model, bend, mixing, w)


def is_a_change_of_variables(space):
    """Gradients against differences, the density against the joint one and a Jacobian by differences."""
    z = 0.5 * np.random.default_rng(3).normal(size=(3, space.dim))
    f, gradient = space.energies(z)
    slope = differences(lambda z: space.energies(z)[0], z)
    x = space.out(z)
    J = np.array([(space.out(z + d) - space.out(z - d)) / (2 * STEP) for d in STEP * np.eye(space.dim)])
    want = np.diff(space.model.potentials(x) - np.linalg.slogdet(J.transpose(1, 2, 0))[1])
    back = space.into(*space.model.split(x))
    close = gradient == pytest.approx(slope, rel=1e-6, abs=1e-6 * np.abs(slope).max())
    return close and np.diff(f) == pytest.approx(want, rel=1e-7, abs=1e-7) and back == pytest.approx(z, abs=1e-9)


@pytest.mark.parametrize(("family", "widths"), SHAPES, ids=str)
def test_the_variables_are_a_change_of_variables(family, widths):
    """Gradients against differences; the density against the joint one and a Jacobian by differences; there and back."""
    space = variables(Problem(family, widths))
    assert is_a_change_of_variables(space)
    model, x = space.model, space.out(0.5 * np.random.default_rng(3).normal(size=(3, space.dim)))
    joint = differences(model.potentials, x)
    assert model.gradients(x) == pytest.approx(joint, rel=1e-6, abs=1e-6 * np.abs(joint).max())


@pytest.mark.parametrize("widths", [(1,), (2, 1)], ids=str)
@pytest.mark.parametrize("outer", [0, 1])
def test_and_so_with_few_outer_coefficients_and_with_sparse_hessians(widths, outer, monkeypatch):
    monkeypatch.setattr(whitened, "_OUTER", outer)
    monkeypatch.setattr(mixed, "DENSE", 0)
    assert is_a_change_of_variables(variables(Problem("negative-binomial", widths)))


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_compiled_effects_are_those_of_numpy(family):
    space = variables(Problem(family, (1, 1), levels=(700, 3), n=1500))
    z = 0.5 * np.random.default_rng(3).normal(size=(3, space.dim))
    f, gradient = space.energies(z)
    x = space.out(z)
    for levels in space._levels:
        levels.compiled = True
    assert space.energies(z)[0] == pytest.approx(f, rel=1e-12)
    assert space.energies(z)[1] == pytest.approx(gradient, rel=1e-10, abs=1e-12 * np.abs(gradient).max())
    assert space.out(z) == pytest.approx(x, rel=1e-12, abs=1e-12)
    far = z.copy()
    far[0, space.model.inner_dim] = 1e4
    assert space.energies(far)[0][0] == math.inf
    assert np.array_equal(space.energies(far)[0][1:], space.energies(z)[0][1:])


def test_of_too_many_effects_some_draws_are_kept_and_it_is_said(model, monkeypatch):
    whole = sample(model, draws=100, seed=5)
    monkeypatch.setattr(approach, "MOST_KEPT", 100 / 0.6 * model.inner_dim / 3)
    monkeypatch.setattr(groups, "_NUMBERS", 1)
    some = sample(model, draws=100, seed=5)
    assert some.group_effects.every == 3
    assert some.group_effects.draws == pytest.approx(whole.group_effects.draws[:, ::3], rel=1e-10, abs=1e-12)
    assert some.trace.draws == pytest.approx(whole.trace.draws, rel=1e-10)
    assert some.laplace.sd == pytest.approx(whole.laplace.sd, rel=1e-12)
    assert "the effects of one draw in 3 are kept" in str(some.summary())
    assert "are kept" not in str(whole.summary())


def test_effects_that_are_not_kept_ask_for_no_memory(model, monkeypatch):
    """Of 10⁶ effects under 1000 draws a tenth is kept; a model without groups keeps all that it has."""
    monkeypatch.setattr(samplers, "_NEGLIGIBLE", 0)
    monkeypatch.setattr(samplers, "free_memory", lambda: 8.0 * 3 * 4 * 5000 * 10)
    few = {"draws": 20_000, "budget_passes": 40.0}
    with pytest.raises(ValueError, match="fit into memory"):
        sample(model, **few)
    monkeypatch.setattr(groups, "MOST_KEPT", 1000)
    monkeypatch.setattr(groups, "_JUDGED", 2)
    assert sample(model, **few).method == "laplace"  # by the budget, once it is let in
    with pytest.raises(ValueError, match="fit into memory"):
        sample(glm(np.eye(11), np.arange(11) % 2, "bernoulli", prior=priors.Normal(1.0)), **few)


def test_forces_without_values_are_the_gradient_and_keep_draws(monkeypatch):
    monkeypatch.setattr(RowsForm, "is_small", property(lambda _: False))
    space = variables(Problem("bernoulli", (1,)))
    assert variables(Problem("gaussian", (1,))).forces is None
    z = 0.5 * np.random.default_rng(3).normal(size=(3, space.dim))
    _, gradient = space.energies(z)
    assert space.forces(z) == pytest.approx(gradient, rel=1e-12, abs=1e-13)
    far = np.full((1, space.dim), 1e200)
    assert not space.forces(far).any()  # as ∇f where f is ∞
    settings = {"draws": 100, "chains": 2, "burn_in": 2, "seed": 1}
    quick = SplitHMC(0.5, 3).run(space, **settings)
    with monkeypatch.context() as replaced:
        replaced.setattr(GroupVariables, "forces", None)
        assert SplitHMC(0.5, 3).run(space, **settings).draws == pytest.approx(quick.draws, rel=1e-9, abs=1e-9)
    monkeypatch.setattr(GroupVariables, "forces", lambda self, z: z - self.energies(z)[1])  # the negative control
    assert SplitHMC(0.5, 3).run(space, **settings).acceptance.max() < quick.acceptance.min() - 0.2


def test_compiled_normals_are_those_of_the_stream():
    plain, compiled = (make(7, np.arange(2)) for make in (Stream, CompiledStream))
    for step in (3, np.array([3, 4]), np.array([1 << 33])):
        assert compiled.normals(step, 1500) == pytest.approx(plain.normals(step, 1500), rel=1e-14)
    assert not np.isclose(compiled.normals(3, 1500), plain.normals(4, 1500)).any()


def test_the_outer_coordinates_have_unit_spread_at_the_centre_and_follow_a_scale():
    """V(θ) against the covariance of the coefficients given θ of Gaussian rows: to first order around θ̂."""
    problem = Problem("gaussian", (2,), plain=True)
    space = variables(problem, bent=False)
    model, outer = space.model, space._outer

    def covariance(theta):
        H = model.with_prior(model.curvature(space.w, convex=True).hessian, theta)
        return np.linalg.inv(H)[np.ix_([0, 1], [0, 1])]

    def spread(theta):
        root = (outer.R @ outer.root(theta[None])[0])[:2]
        return root @ root.T

    assert outer.root(space.theta[None])[0] == pytest.approx(np.eye(outer.dim), abs=1e-12)
    for d in 1e-3 * np.eye(model.theta_dim)[:2]:
        slope = covariance(space.theta + d) - covariance(space.theta - d)
        assert spread(space.theta + d) - spread(space.theta - d) == pytest.approx(slope, rel=0.05, abs=1e-8)


@pytest.mark.parametrize("log_scale", [-12.0, 6.0])
def test_far_from_the_centre_the_variables_stay_finite_and_right(log_scale):
    space = variables(Problem("bernoulli", (2,)), bent=False)
    z = 0.5 * np.random.default_rng(3).normal(size=(2, space.dim))
    z[:, space.model.inner_dim] = (log_scale - space.theta[0]) / space.bend.slope[0]
    f, gradient = space.energies(z)
    slope = differences(lambda z: space.energies(z)[0], z)
    assert np.isfinite(f).all()
    assert gradient == pytest.approx(slope, rel=1e-5, abs=1e-5 * np.abs(slope).max())


def test_a_missing_derivative_is_seen_by_the_differences():
    """The negative control of the test above: the gradient where effects do not follow θ, u = Ĉ b."""
    space = variables(Problem("bernoulli", (2,)))
    z, inner = 0.5 * np.random.default_rng(3).normal(size=(1, space.dim)), space.model.inner_dim
    _, gradient = space.energies(z)

    def without(states):
        """f at effects that stay where θ of z has them, with the determinant of θ."""
        still = np.concatenate([states[:, :inner], z[:, inner:]], axis=1)
        w, joint = space.out(still)[:, :inner], space.out(states)
        stays = np.concatenate([w, joint[:, inner:]], axis=1)
        return space.energies(states)[0] + space.model.potentials(stays) - space.model.potentials(joint)

    slope = differences(without, z)
    assert slope[:, :inner] == pytest.approx(gradient[:, :inner], rel=1e-6, abs=1e-6)
    assert np.abs(slope - gradient)[:, inner:].max() > 0.1


def test_a_bend_rises_and_has_its_derivatives_and_its_inverse():
    bend = Bend(np.array([0.3, -1.0]), np.array([0.2, 0.7]), np.array([0.5, 0.0]), np.array([0.6, 0.0]))
    t = np.linspace(-12, 6, 50)[:, None] * np.ones(2)
    value, first, second = bend(t)
    assert (first > 0).all()
    assert first == pytest.approx((bend(t + STEP)[0] - bend(t - STEP)[0]) / (2 * STEP), rel=1e-7)
    assert second == pytest.approx((bend(t + STEP)[1] - bend(t - STEP)[1]) / (2 * STEP), rel=1e-5, abs=1e-8)
    assert bend.into(value) == pytest.approx(t, abs=1e-9)


# The law of the draws


def answer_of(model, draws=1000, seed=0, **settings):
    return find_answer(model, None, **{**usual_settings(), "draws": draws, "seed": seed, **settings})[0]


class Few:
    """Eight binary rows in three levels, an intercept and its scale: moments by quadrature.

    Given β and log τ the levels are independent, so that each has an integral over its own effect.
    """

    index = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    y = np.array([1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0])

    @classmethod
    def model(cls):
        group = Group(cls.index, name="g", prior=priors.HalfNormal(2.0))
        return glm(np.ones((8, 1)), cls.y, "bernoulli", prior_precision=0.5, groups=[group])

    @classmethod
    def moments(cls):
        """E of β, log τ, the three effects, and of their squares."""
        phi, beta = np.linspace(-14, 3.2, 260)[:, None, None], np.linspace(-7, 7, 120)[None, :, None]
        v = np.linspace(-7.5, 7.5, 121)
        u = np.exp(phi) * v
        log_p = stats.halfnorm.logpdf(np.exp(phi), scale=2.0) + phi + stats.norm.logpdf(beta, 0, 2**0.5)
        log_p, first, second = log_p[..., 0], [], []
        for level in range(3):
            ones, rows = cls.y[cls.index == level].sum(), (cls.index == level).sum()
            t = beta + u
            log_likelihood = ones * t - rows * np.logaddexp(0, t) + stats.norm.logpdf(v)
            mass = logsumexp(log_likelihood, axis=-1)
            share = np.exp(log_likelihood - mass[..., None])
            log_p = log_p + mass
            first.append((share * u).sum(axis=-1))
            second.append((share * u * u).sum(axis=-1))
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        means = [(p * beta[..., 0]).sum(), (p * phi[..., 0]).sum(), *((p * m).sum() for m in first)]
        squares = [(p * beta[..., 0] ** 2).sum(), (p * phi[..., 0] ** 2).sum(), *((p * m).sum() for m in second)]
        return np.array(means), np.array(squares)

    @classmethod
    def scores(cls, answer):
        """z-scores of draws."""
        x, u = answer.trace.draws, answer.group_effects.draws
        own = np.concatenate([x[..., :1], np.log(x[..., 1:]), u], axis=2)
        mean, square = cls.moments()
        both = np.concatenate([own, own**2], axis=2)
        return (both.mean(axis=(0, 1)) - np.concatenate([mean, square])) / error_of_mean(both)


def test_draws_of_few_levels_have_the_law_that_quadrature_gives():
    answer = answer_of(Few.model(), 500, seed=1)
    assert np.abs(Few.scores(answer)).max() < LIMIT


def test_without_the_jacobian_of_the_variables_they_have_not(monkeypatch):
    """The negative control: without log |K|, K² = 1/(1 + τ²d)."""
    without_jacobian(monkeypatch)
    answer = answer_of(Few.model(), 200, seed=1)
    assert np.abs(Few.scores(answer)).max() > LIMIT


def test_nor_without_the_determinant_of_the_outer_coordinates(monkeypatch):
    without_outer_determinant(monkeypatch)
    answer = answer_of(Few.model(), 200, seed=1)
    assert np.abs(Few.scores(answer)).max() > LIMIT


class Noisy:
    """Gaussian rows in five levels: given log τ and log σ everything is Gaussian."""

    rng = np.random.default_rng(8)
    index = np.repeat(np.arange(5), 4)
    X = np.stack([np.ones(20), rng.normal(size=20)], axis=1)
    y = X @ [0.5, 1.0] + 0.6 * rng.normal(size=5)[index] + 0.8 * rng.normal(size=20)

    @classmethod
    def model(cls):
        return glm(
            cls.X,
            cls.y,
            "gaussian",
            prior_precision=0.1,
            groups=[Group(cls.index, name="g", prior=priors.HalfNormal(1.0))],
        )

    @classmethod
    def moments(cls):
        """E of β, log σ, log τ, effects, and of their squares."""
        A = np.concatenate([cls.X, np.eye(5)[cls.index]], axis=1)
        total = []
        for phi in np.linspace(-11, 1.7, 150):
            for s in np.linspace(-1.6, 1.6, 60):
                P = np.diag([0.1, 0.1, *[np.exp(-2 * phi)] * 5])
                H = A.T @ A * np.exp(-2 * s) + P
                b = A.T @ cls.y * np.exp(-2 * s)
                V = np.linalg.inv(H)
                mean = V @ b
                log_p = 0.5 * (b @ mean - cls.y @ cls.y * np.exp(-2 * s)) - 20 * s - 5 * phi
                log_p += -0.5 * np.linalg.slogdet(H)[1] + stats.norm.logpdf(s, 0, 5)
                log_p += stats.halfnorm.logpdf(np.exp(phi)) + phi
                first = [*mean[:2], s, phi, *mean[2:]]
                second = [*(mean**2 + np.diag(V))[:2], s * s, phi * phi, *(mean**2 + np.diag(V))[2:]]
                total.append((log_p, *first, *second))
        values = np.array(total)
        p = np.exp(values[:, 0] - values[:, 0].max())
        return p @ values[:, 1:] / p.sum()

    @classmethod
    def scores(cls, answer):
        x, u = answer.trace.draws, answer.group_effects.draws
        own = np.concatenate([x[..., :3], np.log(x[..., 3:]), u], axis=2)
        both = np.concatenate([own, own**2], axis=2)
        return (both.mean(axis=(0, 1)) - cls.moments()) / error_of_mean(both)


def test_draws_of_gaussian_rows_have_the_law_that_quadrature_gives():
    answer = answer_of(Noisy.model(), 200, seed=2)
    assert np.abs(Noisy.scores(answer)).max() < LIMIT


# What a run keeps


@pytest.fixture(scope="module")
def model():
    return Problem("bernoulli", (2, 1), plain=True).model


@pytest.fixture(scope="module")
def answer(model):
    return answer_of(model, 60, seed=5, threads=1)


def test_a_seed_has_its_draws_whatever_the_threads(model, answer):
    again = answer_of(model, 60, seed=5, threads=2)
    assert (again.trace.draws == answer.trace.draws).all()
    assert (again.group_effects.draws == answer.group_effects.draws).all()
    other = answer_of(model, 60, seed=6, threads=1)
    assert not (other.trace.draws[:, :10] == answer.trace.draws[:, :10]).any()


def test_a_chain_does_not_depend_on_the_others(model, answer):
    two = answer_of(model, 30, seed=5, threads=1, chains=2)
    count = min(two.trace.draws.shape[1], answer.trace.draws.shape[1])
    assert two.trace.draws[:, :count] == pytest.approx(answer.trace.draws[:2, :count], rel=1e-9)


def test_a_run_cut_short_goes_on_to_the_same_draws(model, answer, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    record, count = Drawing._record, []

    def counted(drawing):
        record(drawing)
        count.append(1)
        if len(count) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Drawing, "_record", counted)
    folder = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        answer_of(model, 60, seed=5, threads=1, checkpoint=folder)
    monkeypatch.setattr(joint, "first_centre", lambda *_: pytest.fail("the variables were searched for again"))
    again = answer_of(model, 60, seed=5, threads=1, checkpoint=folder)
    assert (again.trace.draws == answer.trace.draws).all()
    assert (again.group_effects.draws == answer.group_effects.draws).all()
    assert again.certificate.verdict == answer.certificate.verdict
    finished = answer_of(model, 60, seed=5, threads=1, checkpoint=folder)
    assert (finished.trace.draws == answer.trace.draws).all()


@pytest.fixture
def clock(monkeypatch):
    """Stands still until it is set."""

    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(run, "Budget", functools.partial(Budget, clock=made))
    return made


def late(monkeypatch, clock, after):
    """The clock is far beyond every budget from so many calls of the sampler on."""
    plain, calls = ReferenceChains.extend, []

    def extend(self, *arguments):
        calls.append(1)
        if len(calls) >= after:
            clock.now = 1e9
        return plain(self, *arguments)

    monkeypatch.setattr(ReferenceChains, "extend", extend)
    return calls


def test_a_budget_that_ends_the_draws_gives_those_that_were_made(model, clock, monkeypatch):
    calls = late(monkeypatch, clock, 14)
    cut = answer_of(model, 10**5, seed=5, budget_seconds=5.0)
    assert len(calls) == 14
    assert not cut.complete
    assert cut.certificate.verdict == "undecided"
    assert np.isfinite(cut.mean).all()


def test_before_any_draw_a_budget_gives_laplaces_approximation(model, clock, monkeypatch):
    def spent(*_):
        clock.now = 1e9
        return plain(*_)

    plain = Drawing.burn_in
    monkeypatch.setattr(Drawing, "burn_in", spent)
    cut = answer_of(model, 100, seed=5, budget_seconds=5.0)
    assert cut.method == "laplace"
    assert cut.certificate.verdict == "undecided"
    assert cut.group_effects.draws.shape[2] == model.effect_count


# Input that is refused

INDEX = np.array([0, 0, 1, 1, 2, 2])


def made(group=None, n=6, family="bernoulli", y=None, **settings):
    groups = [Group(INDEX)] if group is None else [group]
    return glm(np.ones((n, 1)), np.arange(n) % 2 if y is None else y, family, groups=groups, **settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Group([0, 1, -1]), "levels from 0"),
        (lambda: Group([0, 1, 3], levels=("a", "b", "c")), "levels from 0 to 2"),
        (lambda: Group([0.0, 1.0]), "whole number"),
        (lambda: Group([]), "whole number"),
        (lambda: Group([[0, 1]]), "whole number"),
        (lambda: Group(["a", "b"]), "whole number"),
        (lambda: Group(INDEX, np.ones((5, 1))), "shape"),
        (lambda: Group(INDEX, np.ones(6)), "shape"),
        (lambda: Group(INDEX, np.full((6, 1), np.nan)), "finite"),
        (lambda: Group(INDEX, np.full((6, 1), np.inf)), "finite"),
        (lambda: Group(INDEX, np.ones((6, 13))), "from 1 to 12"),
        (lambda: Group(INDEX, np.ones((6, 2)), column_names=("a", "a")), "2 different"),
        (lambda: Group(INDEX, prior=priors.Normal(1.0)), "HalfNormal"),
        (lambda: Group(INDEX, lkj=0.0), "lkj"),
        (lambda: made(Group(INDEX[:5])), "6 levels, one for each row"),
        (lambda: made(Group(np.zeros(6, int))), "at least 2"),
        (lambda: made("g"), "svrhmc.targets.Group"),
        (lambda: made(family="categorical", y=np.arange(6) % 3), "ordinal"),
        (lambda: made(Group(INDEX, np.ones((6, 1)), prior=[priors.HalfNormal(1.0)] * 2)), "one, or 1"),
        (lambda: made().mode(), "one with a mode"),
    ],
)
def test_what_cannot_be_a_group_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_levels_without_rows_and_rows_without_weight_are_taken():
    """A level without rows has the prior of its effects alone."""
    group = Group(INDEX, levels=("a", "b", "c", "d"), name="g")
    model = made(group, weights=[1, 1, 1, 0, 1, 1])
    assert (model.n, model.left_out, model.effect_count) == (5, 1, 4)
    answer = answer_of(model, 50)
    assert np.isfinite(answer.group_effects.draws).all()
    assert answer.group_effects.rows.tolist() == [2, 1, 2, 0]


def test_a_density_that_is_not_a_number_ends_the_run_and_one_far_out_does_not(monkeypatch):
    """Overflow is ∞, and refused; NaN near the posterior would cut off a part of it in silence."""
    rng = np.random.default_rng(0)
    index, y = np.repeat(np.arange(8), 6), rng.random(48) < 0.6
    model = glm(np.ones((48, 1)), y, "bernoulli", groups=[Group(index)])
    theta, w, sds = first_centre(model, np.zeros(1))
    variables = GroupVariables(model, Bend.straight(theta, sds), np.eye(1), w)
    f, gradient = variables.energies(np.full((1, variables.dim), 1e200))
    assert f.tolist() == [np.inf]
    assert not gradient.any()
    plain = MixedModel.conditional_energies

    def undefined(self, w, valued=True):
        f, gradient = plain(self, w, valued)
        return np.where(w[:, 0] > 1.0, np.nan, f), gradient

    monkeypatch.setattr(MixedModel, "conditional_energies", undefined)
    with pytest.raises(UndefinedDensityError, match=r"chain \d, step \d+: the log posterior is not a number"):
        sample(model, draws=100)
