"""Every sampler has exactly the law of the hand-written recursion; samplers made wrong on purpose have not."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT, every_dynamics, every_engine
from hand_written_laws import Quadratic, enumerated, law, z_scores
from svrhmc.dynamics import Kick, Map, NoiseFactor, Underdamped
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch, Recipe

CHAINS = 40_000
ETA, FRICTION, MASS, EPOCH = 0.3, 1.7, 0.35, 4
KINDS = every_dynamics(0.08, ETA, FRICTION, MASS)
BATCHES = [(size, replacement) for size in (1, 3) for replacement in (True, False)]
FEWER = [BATCHES[0], BATCHES[3]]  # for kinds whose batches are drawn by the same code as the first three's
CASES = [(kind, "full", 1, True) for kind in KINDS] + [
    (kind, gradient, *batch)
    for place, kind in enumerate(KINDS)
    for gradient in ("sg", "svr", "cv")
    for batch in (BATCHES if place < 3 and gradient != "cv" else FEWER)
]


def cell(kind, gradient, size, replacement, epoch=EPOCH):
    parts = {
        "full": Full(),
        "sg": Minibatch(size, replacement),
        "svr": SVRG(size, epoch, replacement),
        "cv": ControlVariate(size, replacement),
    }
    return svrhmc.Sampler(KINDS[kind], parts[gradient])


def by_hand(problem, kind, gradient, size, replacement, steps, epoch=EPOCH):
    return law(
        problem, kind, gradient, steps,
        eta=KINDS[kind].step_size, gamma=FRICTION, u=MASS, B=size, m=epoch, replacement=replacement,
    )  # fmt: skip


def final_state(sampler, target, steps, chains=CHAINS, seed=0, **settings):
    trace = sampler.run(target, steps, chains=chains, seed=seed, keep="last", **settings)
    return np.hstack([trace.draws[:, -1], trace.velocity])


def as_target(problem):
    return svrhmc.targets.gaussian(problem.a, problem.S)


@pytest.mark.ordinary(lambda gradient, size, engine: engine == "numba" or (gradient, size) == ("svr", 3))
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize(("kind", "gradient", "size", "replacement"), CASES)
def test_chains_have_the_exact_law_before_at_and_after_a_snapshot(problem, kind, gradient, size, replacement, engine):
    sampler = cell(kind, gradient, size, replacement)
    for steps in (EPOCH - 1, EPOCH, EPOCH + 2):
        exact = by_hand(problem, kind, gradient, size, replacement, steps)
        z = z_scores(final_state(sampler, as_target(problem), steps, seed=steps, engine=engine), *exact)
        assert np.abs(z).max() < LIMIT


@pytest.mark.parametrize(("kind", "gradient", "size", "replacement"), CASES)
def test_theory_laws_equal_the_recursion_by_hand(problem, kind, gradient, size, replacement):
    *_, last = svrhmc.theory.laws(cell(kind, gradient, size, replacement), as_target(problem), 3 * EPOCH + 1)
    mean, covariance = by_hand(problem, kind, gradient, size, replacement, 3 * EPOCH + 1)
    assert isinstance(last, svrhmc.theory.Law)
    assert last.mean == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert last.covariance == pytest.approx(covariance, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("gradient", ["full", "sg", "svr", "cv"])
def test_theory_laws_of_linear_regression_equal_the_recursion_by_hand(gradient):
    """Rows as outer products, Sᵢ = n aᵢaᵢᵀ/σ² + Λ, give what whole matrices give."""
    rng = np.random.default_rng(4)
    X, y, variance, prior = rng.normal(size=(6, 2)), rng.normal(size=6), 0.5, np.array([0.7, 1.3])
    S = 6 / variance * X[:, :, None] * X[:, None, :] + np.diag(prior)
    a = np.array(
        [np.linalg.solve(matrix, 6 / variance * row * value) for matrix, row, value in zip(S, X, y, strict=True)]
    )
    problem = Quadratic(S, a)
    target = svrhmc.targets.linear(X, y, variance, prior)
    sampler = svrhmc.Sampler(Underdamped(0.1, FRICTION, 0.02), cell("paper", gradient, 3, False).gradient)
    *_, last = svrhmc.theory.laws(sampler, target, 9)
    mean, covariance = law(
        problem, "paper", gradient, 9, eta=0.1, gamma=FRICTION, u=0.02, B=3, m=EPOCH, replacement=False
    )
    assert last.mean == pytest.approx(mean, rel=1e-11, abs=1e-13)
    assert last.covariance == pytest.approx(covariance, rel=1e-10, abs=1e-14)
    assert last.passes == sampler.gradient.evaluations(target, 9) / 6


def weighted_rows():
    """A linear regression with rows of very unequal size, its data parts Dᵢx − eᵢ and its rows' probabilities."""
    rng = np.random.default_rng(6)
    X, y, prior = rng.normal(size=(4, 2)) * [[0.2], [0.5], [1.0], [2.0]], rng.normal(size=4) * 3, np.array([0.7, 1.3])
    target = svrhmc.targets.linear(X, y, 0.8, prior)
    D = 4 / 0.8 * X[:, :, None] * X[:, None, :]
    size = np.linalg.norm(X, axis=1)
    return target, D, 4 / 0.8 * X * y[:, None], prior, 0.9 * size / size.sum() + 0.1 / 4


@pytest.mark.ordinary(lambda memory, importance, engine: engine == "reference" or not (importance or memory == "saga"))
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("memory", ["none", "saga", "cv"])
@pytest.mark.parametrize(("size", "importance"), [(1, False), (1, True), (2, True)])
def test_saga_and_rows_drawn_by_importance_have_the_law_of_every_batch(memory, size, importance, engine):
    target, D, e, prior, P = weighted_rows()
    kind = {"none": Minibatch, "saga": SAGA, "cv": ControlVariate}[memory]
    sampler = svrhmc.Sampler(Underdamped(0.35, FRICTION, 0.2), kind(size, importance=importance))
    settings = {"memory": memory, "B": size, "eta": 0.35, "gamma": FRICTION, "u": 0.2}
    for steps in (1, 2, 7):
        state = final_state(sampler, target, steps, seed=steps, engine=engine)
        right = enumerated(D, e, prior, "paper", steps, P=P if importance else np.full(4, 0.25), **settings)
        assert np.abs(z_scores(state, *right)).max() < LIMIT
    wrong = enumerated(D, e, prior, "paper", 7, P=np.full(4, 0.25) if importance else P, **settings)
    assert np.abs(z_scores(state, *wrong)).max() > 2 * LIMIT
    if memory == "saga":
        stale = enumerated(
            D, e, prior, "paper", 7, P=P if importance else np.full(4, 0.25), **{**settings, "memory": "cv"}
        )
        assert np.abs(z_scores(state, *stale)).max() > 2 * LIMIT


def test_theory_keeps_its_digits_at_tiny_steps_and_far_starts():
    target = svrhmc.targets.synthetic(4, 1, eigenvalues=(1.0, 1.0))
    *_, tiny = svrhmc.theory.laws(svrhmc.hmc(1e-6), target, 1)
    assert tiny.covariance[0, 0] == pytest.approx(2 / 3 * 2e-18, rel=1e-5)
    *_, near = svrhmc.theory.laws(svrhmc.hmc(0.1), target, 5)
    *_, far = svrhmc.theory.laws(svrhmc.hmc(0.1), target, 5, start=[1e9])
    assert far.covariance == pytest.approx(near.covariance, rel=1e-12)


@pytest.mark.parametrize("engine", every_engine())
def test_a_scheme_that_uses_all_sixteen_numbers_has_its_law(problem, engine):
    """Noise and drift before the gradient, which no named dynamics has yet; chains against laws."""

    @dataclass(frozen=True)
    class Both(Underdamped):
        def scheme(self, target):
            good = Underdamped(self.step_size, self.friction, self.inverse_mass).scheme(target)
            return replace(good, before=Map(0.98, 0.1, -0.05, 0.9), before_noise=NoiseFactor(0.3, 0.1, 0.2))

    sampler = svrhmc.Sampler(Both(ETA, FRICTION, MASS), SVRG(2, 3))
    *_, right = svrhmc.theory.laws(sampler, as_target(problem), 5)
    *_, wrong = svrhmc.theory.laws(svrhmc.Sampler(KINDS["paper"], SVRG(2, 3)), as_target(problem), 5)
    state = final_state(sampler, as_target(problem), 5, engine=engine)
    assert np.abs(z_scores(state, right.mean, right.covariance)).max() < LIMIT
    assert np.abs(z_scores(state, wrong.mean, wrong.covariance)).max() > 2 * LIMIT


def wrong_scheme(change):
    """Underdamped with a change to its sixteen numbers."""

    @dataclass(frozen=True)
    class Wrong(Underdamped):
        def scheme(self, target):
            return change(Underdamped(self.step_size, self.friction, self.inverse_mass).scheme(target))

        def check_stable(self, target):
            """Let it run, so that the law is what fails."""

    return Wrong(ETA, FRICTION, MASS)


def independent_noises(scheme):
    vv, xv, xx = scheme.after_noise
    return replace(scheme, after_noise=NoiseFactor(vv, 0.0, math.hypot(xv, xx)))


def new_velocity(scheme):
    """x ← x + ηv′ with the new v′, instead of the old v."""
    vv, xv, xx = scheme.after_noise
    return replace(
        scheme,
        kick=Kick(ETA * scheme.kick.v, scheme.kick.v),
        after=Map(1.0, ETA * scheme.after.vv, 0.0, scheme.after.vv),
        after_noise=NoiseFactor(vv, xv + ETA * vv, xx),
    )


CONTROLS = {
    "sign flip": lambda s: replace(s, kick=Kick(0.0, -s.kick.v)),
    "missing position noise": lambda s: replace(s, after_noise=NoiseFactor(s.after_noise.vv, 0.0, 0.0)),
    "independent noises": independent_noises,
    "new velocity in the position": new_velocity,
}


class LateRecipe(Recipe):
    def due(self, step):
        return step == 0 or (step > 1 and step % self.period == 1)


class LateSnapshot(SVRG):
    """Takes its snapshots one step late, but for the first."""

    def recipe(self, target):
        return LateRecipe(**vars(super().recipe(target)))


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("gradient", ["full", "svr"])
def test_a_wrong_scheme_fails_the_law(problem, control, gradient):
    wrong = svrhmc.Sampler(wrong_scheme(CONTROLS[control]), cell("paper", gradient, 1, True).gradient)
    worst = 0.0
    for steps in (EPOCH - 1, EPOCH, EPOCH + 2):
        exact = by_hand(problem, "paper", gradient, 1, True, steps)
        worst = max(worst, np.abs(z_scores(final_state(wrong, as_target(problem), steps), *exact)).max())
    assert worst > 2 * LIMIT


def test_the_right_scheme_dressed_as_a_control_passes(problem):
    right = svrhmc.Sampler(wrong_scheme(lambda scheme: scheme), Full())
    exact = by_hand(problem, "paper", "full", 1, True, EPOCH)
    assert np.abs(z_scores(final_state(right, as_target(problem), EPOCH), *exact)).max() < LIMIT


def test_a_late_snapshot_fails_the_law(problem):
    far = Quadratic(problem.S, problem.a + 40)  # the way there is long, so a snapshot's age matters
    exact = by_hand(far, "paper", "svr", 1, True, 2 * EPOCH + 1)
    for gradient, passes in ((SVRG(1, EPOCH), True), (LateSnapshot(1, EPOCH), False)):
        state = final_state(svrhmc.Sampler(KINDS["paper"], gradient), as_target(far), 2 * EPOCH + 1, engine="reference")
        worst = np.abs(z_scores(state, *exact)).max()
        assert worst < LIMIT if passes else worst > 2 * LIMIT


def test_batches_with_the_wrong_replacement_fail_the_law(problem):
    wrong = cell("paper", "sg", 3, True)
    exact = by_hand(problem, "paper", "sg", 3, False, EPOCH)
    assert np.abs(z_scores(final_state(wrong, as_target(problem), EPOCH), *exact)).max() > 2 * LIMIT


def test_an_estimated_snapshot_has_its_exact_law(problem):
    sampler = svrhmc.Sampler(KINDS["paper"], SVRG(1, 3, False, snapshot_size=2))
    other = svrhmc.Sampler(KINDS["paper"], SVRG(1, 3, False))
    for steps in (2, 3, 5):
        *_, right = svrhmc.theory.laws(sampler, as_target(problem), steps)
        *_, wrong = svrhmc.theory.laws(other, as_target(problem), steps)
        state = final_state(sampler, as_target(problem), steps)
        assert np.abs(z_scores(state, right.mean, right.covariance)).max() < LIMIT
        assert np.abs(z_scores(state, wrong.mean, wrong.covariance)).max() > 2 * LIMIT


ONE = Quadratic(np.array([[[1.0]], [[3.0]]]), np.array([[0.0], [1.0]]))
REFERENCE = {  # (gradient, K): E x, Var x, E v, Var v, Cov
    ("full", 5): (0.040806666666667, 0.031224259691316, 0.16537555555556, 0.26394767562645, 0.063837007223824),
    ("svr", 5): (0.040806666666667, 0.031224310049468, 0.16537555555556, 0.2639493877455, 0.063837259503846),
    ("svr", 20): (0.3269183035027, 0.32356098307922, 0.16858204254107, 0.28780137979166, 0.057182875931671),
    ("sg", 5): (0.040806666666667, 0.031691845834308, 0.16537555555556, 0.26992788190025, 0.064896345280111),
    ("sg", 20): (0.3269183035027, 0.32901265618725, 0.16858204254107, 0.2930212443048, None),
}


@pytest.mark.parametrize(("gradient", "steps"), REFERENCE)
def test_one_dimensional_reference_numbers(gradient, steps):
    expected = REFERENCE[gradient, steps]
    parts = {"full": Full(), "sg": Minibatch(1), "svr": SVRG(1, 2)}
    sampler = svrhmc.Sampler(Underdamped(0.1, 2.0, 1 / 3), parts[gradient])
    *_, last = svrhmc.theory.laws(sampler, as_target(ONE), steps)
    mean, cov = law(ONE, "paper", gradient, steps, eta=0.1, u=1 / 3, m=2)
    for m, c in ((last.mean, last.covariance), (mean, cov)):
        got = (m[0], c[0, 0], m[1], c[1, 1], c[0, 1])
        for value, reference in zip(got, expected, strict=True):
            assert reference is None or value == pytest.approx(reference, rel=1e-12)
    assert np.abs(z_scores(final_state(sampler, as_target(ONE), steps, seed=3), mean, cov)).max() < LIMIT


def test_the_mean_of_svr_hmc_and_sg_hmc_is_that_of_hmc(problem):
    means = [by_hand(problem, "paper", gradient, 1, True, 9)[0] for gradient in ("full", "sg", "svr")]
    assert means[1] == pytest.approx(means[0], rel=1e-13)
    assert means[2] == pytest.approx(means[0], rel=1e-13)


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("epoch", [1, 3, 50, None])
@pytest.mark.parametrize("replacement", [True, False])
def test_with_a_common_matrix_svr_hmc_is_hmc(size, epoch, replacement):
    target = svrhmc.targets.synthetic(n=20, dim=4, seed=1, eigenvalues=(0.3, 2.0))
    full = svrhmc.hmc(0.2).run(target, 200, chains=3, seed=5)
    reduced = svrhmc.svr_hmc(0.2, batch_size=size, epoch_length=epoch, replacement=replacement).run(
        target, 200, chains=3, seed=5
    )
    assert np.abs(full.draws - reduced.draws).max() < 1e-12
    noisy = svrhmc.sg_hmc(0.2, batch_size=size).run(target, 200, chains=3, seed=5)
    assert np.abs(full.draws - noisy.draws).max() > 1e-2


@pytest.fixture(params=["dense", "csr"])
def regression(request):
    import scipy.sparse

    rng = np.random.default_rng(7)
    X = rng.normal(size=(40, 3)) * [0.5, 1.0, 2.0]
    y = X @ [1.0, -2.0, 0.5] + rng.normal(size=40)
    X = scipy.sparse.csr_matrix(X) if request.param == "csr" else X
    return svrhmc.targets.linear(X, y, noise_variance=1.5, prior_precision=2.0)


@pytest.mark.untraced
@pytest.mark.ordinary(lambda regression, engine: (regression, engine) in (("dense", "numba"), ("csr", "reference")))
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("name", ["hmc", "svr"])
def test_linear_regression_reaches_the_stationary_law_of_the_discretisation(regression, name, engine):
    sampler = svrhmc.hmc(0.5) if name == "hmc" else svrhmc.svr_hmc(0.5, batch_size=4, epoch_length=5)
    *_, before, last = svrhmc.theory.laws(sampler, regression, 405)
    *_, epoch_before = svrhmc.theory.laws(sampler, regression, 400)
    assert last.covariance == pytest.approx(epoch_before.covariance, rel=1e-6, abs=1e-9)  # it no longer moves
    state = final_state(sampler, regression, 405, chains=4000, seed=11, engine=engine)
    assert np.abs(z_scores(state, last.mean, last.covariance)).max() < LIMIT
    true = regression.closed_form
    posterior = np.zeros((6, 6))
    posterior[:3, :3], posterior[3:, 3:] = true.covariance, np.eye(3) / regression.smoothness
    assert np.abs(z_scores(state, last.mean, posterior)).max() > 2 * LIMIT  # the posterior itself is refused
    assert before.step == 404


@pytest.mark.untraced
@pytest.mark.ordinary(lambda regression: regression == "dense")
@pytest.mark.parametrize("name", ["hmc", "svr"])
def test_halving_the_step_halves_the_distance_to_the_posterior(regression, name):
    true, distances = regression.closed_form, []
    u = 1 / regression.smoothness
    for eta in (0.04, 0.02, 0.01):
        sampler = svrhmc.hmc(eta) if name == "hmc" else svrhmc.svr_hmc(eta, batch_size=10, epoch_length=2)
        *_, last = svrhmc.theory.laws(sampler, regression, int(120 / eta), start=regression.mode())
        distances.append(
            svrhmc.distances.gaussian_w2(last.position.mean, last.position.covariance, true.mean, true.covariance)
        )
    slopes = np.diff(np.log2(distances))
    assert slopes == pytest.approx([-1, -1], abs=0.06)
    if name == "hmc":  # the leading term itself
        trace = np.trace(np.linalg.inv(true.covariance))
        assert distances[-1] == pytest.approx(0.01 * u / 4 * math.sqrt(trace), rel=0.03)


def test_theory_refuses_a_target_without_closed_form(targets):
    with pytest.raises(ValueError, match="quadratic"):
        next(svrhmc.theory.laws(svrhmc.hmc(0.1), targets["logistic"], 3))


def test_theory_knows_a_gradient_by_its_recipe(problem):
    class Odd(Full):
        pass

    class Twice(svrhmc.gradients.Gradient):
        def recipe(self, target):
            return Recipe(target.n, 2)

    list(svrhmc.theory.laws(svrhmc.Sampler(KINDS["paper"], Odd()), as_target(problem), 1))
    own, known = (
        list(svrhmc.theory.laws(svrhmc.Sampler(KINDS["paper"], gradient), as_target(problem), 3))[-1]
        for gradient in (Twice(), Minibatch(2))
    )
    assert (own.covariance == known.covariance).all()


@pytest.mark.parametrize("gradient", [Full(), Minibatch(2), SVRG(1, 7)], ids=str)
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_laws_along_a_run_are_those_of_single_runs(gradient, spread):
    """By shared powers of the maps, within epochs and across them; a step more is another law (control)."""
    target = svrhmc.targets.synthetic(12, 3, spread=spread)
    sampler = svrhmc.Sampler(Underdamped(0.2, 2.0, 0.5), gradient)
    chain = svrhmc.theory.moments.recursion_of(sampler, target)
    steps = [1, 2, 6, 7, 8, 20, 21, 500, 503, 1000]
    for step, state in zip(steps, chain.states_after(chain.state_at(np.zeros(3)), steps), strict=True):
        found = svrhmc.theory.moments.law_of(chain, state, step)
        once = svrhmc.theory.law(sampler, target, step)
        np.testing.assert_allclose(found.covariance, once.covariance, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.mean, once.mean, rtol=1e-10, atol=1e-12)
        if step < 50:
            assert np.abs(found.mean - svrhmc.theory.law(sampler, target, step + 1).mean).max() > 1e-6


def test_laws_along_a_run_with_a_table_are_refused():
    chain = svrhmc.theory.moments.recursion_of(svrhmc.Sampler(Underdamped(0.2), SAGA()), svrhmc.targets.synthetic(3, 2))
    with pytest.raises(ValueError, match="without a table"):
        next(chain.states_after(chain.state_at(np.zeros(2)), [1]))
