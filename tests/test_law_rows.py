"""`theory.law` and `stationary` for every dynamics × gradient × way to draw rows: by hand, and against chains."""

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT, every_dynamics
from hand_written_laws import enumerated, z_scores
from svrhmc import theory
from svrhmc.dynamics import Overdamped
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Minibatch
from svrhmc.theory import recursion

CHAINS, EPOCH, SETTLED = 20_000, 4, 60
ETA, FRICTION, MASS = 0.35, 1.7, 0.15
DYNAMICS = every_dynamics(0.04, ETA, FRICTION, MASS)
DRAWS = {"evenly": {}, "distinct": {"replacement": False}, "weighted": {"importance": True}}
GRADIENTS = {
    "none": Minibatch,
    "svr": lambda size, **draw: SVRG(size, EPOCH, **draw),
    "svr, estimated": lambda size, **draw: SVRG(size, EPOCH, snapshot_size=size + 1, **draw),
    "cv": ControlVariate,
    "saga": SAGA,
}
CELLS = [(kind, gradient, draw) for kind in DYNAMICS for gradient in GRADIENTS for draw in DRAWS]
FAULTS = {"evenly": "distinct", "distinct": "evenly", "weighted": "evenly"}  # another way to draw the same batch


def sampler(kind, gradient, draw, size=2):
    return svrhmc.Sampler(DYNAMICS[kind], {**GRADIENTS, "stale": stale}[gradient](size, **DRAWS[draw]))


def stale(size, **draw):
    """SAGA's table, filled at the first step and never renewed."""
    return SVRG(size, 10**6, **draw)


def regression(n, dim):
    """Rows of very unequal size; the target, its data parts Dᵢx − eᵢ, and the prior."""
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(n, dim)) * np.geomspace(0.2, 1.5, n)[:, None], rng.normal(size=n) * 3
    prior = np.linspace(0.7, 1.3, dim)
    D, e = n / 0.8 * X[:, :, None] * X[:, None, :], n / 0.8 * X * y[:, None]
    return svrhmc.targets.linear(X, y, 0.8, prior), D, e, prior


def by_hand(problem, kind, gradient, draw, steps, size=2):
    target, D, e, prior = problem
    P = target.row_table[2] if draw == "weighted" else np.full(target.n, 1 / target.n)
    memory, _, estimated = gradient.partition(", ")
    return enumerated(
        D, e, prior, kind, steps, memory=memory, B=size, P=P, eta=DYNAMICS[kind].step_size, gamma=FRICTION, u=MASS,
        distinct=draw == "distinct", m=EPOCH, snapshot=size + 1 if estimated else 0,
    )  # fmt: skip


def state_of(made, target, steps, start=None):
    trace = made.run(target, steps, start=start, chains=CHAINS, seed=steps, keep="last")
    return np.hstack([trace.draws[:, -1], trace.velocity])


def worst(state, law):
    return np.abs(z_scores(state, law.mean, law.covariance)).max()


@pytest.mark.parametrize(("kind", "gradient", "draw"), CELLS)
def test_laws_are_those_of_every_batch(kind, gradient, draw):
    for problem, size, steps in ((regression(2, 1), 1, 11), (regression(3, 2), 2, 6)):
        mean, covariance = by_hand(problem, kind, gradient, draw, steps, size)
        made = sampler(kind, gradient, draw, size)
        for law in (theory.law(made, problem[0], steps), list(theory.laws(made, problem[0], steps))[-1]):
            assert law.mean == pytest.approx(mean, rel=1e-12, abs=1e-13)
            assert law.covariance == pytest.approx(covariance, rel=1e-12, abs=1e-12 * covariance.max())
        other = by_hand(problem, kind, gradient, FAULTS[draw], steps, size)[1]
        same = size == 1 and draw != "weighted"  # one row is one row
        assert same or np.abs(other - covariance).max() > 1e-6 * covariance.max()


@pytest.mark.ordinary(
    lambda kind, gradient, draw: kind == "ubu" or (gradient, draw) in (("saga", "evenly"), ("svr", "weighted"))
)
@pytest.mark.parametrize(("kind", "gradient", "draw"), CELLS)
def test_chains_have_the_law_and_settle_to_the_stationary_one(kind, gradient, draw):
    target, made = regression(4, 2)[0], sampler(kind, gradient, draw)
    assert worst(state_of(made, target, EPOCH + 1), theory.law(made, target, EPOCH + 1)) < LIMIT
    settled, late = theory.stationary(made, target), theory.law(made, target, SETTLED, "mode")
    assert late.covariance == pytest.approx(settled.covariance, rel=2e-3, abs=2e-3 * settled.covariance.max())
    assert worst(state_of(made, target, SETTLED, "mode"), settled) < LIMIT


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_rows_drawn_in_another_way_and_tables_never_renewed_fail_the_law(gradient, draw):
    target, far = regression(4, 2)[0], [30.0, -15.0]  # the way is long, so that the rows drawn matter
    right, other = (sampler("paper", gradient, way) for way in (draw, FAULTS[draw]))
    state = state_of(right, target, EPOCH, far)
    assert worst(state, theory.law(right, target, EPOCH, far)) < LIMIT
    assert worst(state, theory.law(other, target, EPOCH, far)) > 2 * LIMIT
    if gradient == "saga":
        state = state_of(right, target, 8, far)
        assert worst(state, theory.law(right, target, 8, far)) < LIMIT
        assert worst(state, theory.law(sampler("paper", "stale", draw), target, 8, far)) > 2 * LIMIT


@pytest.mark.parametrize("draw", ["evenly", "distinct"])
@pytest.mark.parametrize("kind", DYNAMICS)
def test_whole_gradients_in_a_table_have_their_law(problem, kind, draw):
    """Components that are no rows; one S for all too, where SVRG has no noise and SAGA has."""
    for S in (problem.S / 4, problem.S[1]):
        target, made = svrhmc.targets.gaussian(problem.a, S), sampler(kind, "saga", draw)
        law = theory.law(made, target, EPOCH + 1)
        forces = np.einsum("...de,ne->nd", S, problem.a) if S.ndim == 2 else np.einsum("nde,ne->nd", S, problem.a)
        every = (target, np.broadcast_to(S, (5, 2, 2)), forces, np.zeros(2))
        mean, covariance = by_hand(every, kind, "saga", draw, EPOCH + 1)
        assert law.mean == pytest.approx(mean, rel=1e-12, abs=1e-12)
        assert law.covariance == pytest.approx(covariance, rel=1e-12, abs=1e-12 * covariance.max())


@pytest.mark.parametrize("draw", DRAWS)
def test_laws_of_a_table_by_powers_steps_and_iteration_agree(draw, monkeypatch):
    target, made = regression(7, 2)[0], sampler("ubu", "saga", draw, 3)
    *_, stepped = theory.laws(made, target, 400)
    powered, settled = theory.law(made, target, 400), theory.stationary(made, target)
    assert powered.covariance == pytest.approx(stepped.covariance, rel=1e-10)
    assert settled.covariance == pytest.approx(stepped.covariance, rel=1e-6)
    monkeypatch.setattr(recursion, "_DENSE", 0)
    assert theory.stationary(made, target).covariance == pytest.approx(settled.covariance, rel=1e-10)


@pytest.mark.parametrize(
    ("gradient", "n", "dim", "loud"),
    [
        (SAGA(1), 4, 2, (0.04, 0.1, 0.15)),
        (Minibatch(1), 12, 6, (0.035, 0.04)),
        (ControlVariate(1), 12, 6, (0.035, 0.04)),
    ],
)
def test_noise_that_grows_has_no_stationary_law_by_matrix_or_by_iteration(gradient, n, dim, loud, monkeypatch):
    """Where it grows fast, the equation of a stationary law has a solution again that looks like one."""
    target = regression(n, dim)[0]
    for dense in (1500, 0):
        monkeypatch.setattr(recursion, "_DENSE", dense)
        for step in loud:
            with pytest.raises(theory.UnsettledError, match="larger batch_size"):
                theory.stationary(svrhmc.Sampler(Overdamped(step), gradient), target)
        theory.stationary(svrhmc.Sampler(Overdamped(0.001), gradient), target)
    theory.stationary(svrhmc.lmc(loud[0]), target)  # without the noise there is one


def test_a_table_too_large_is_refused_with_what_to_do():
    rng = np.random.default_rng(0)
    for target, size in (
        (svrhmc.targets.linear(rng.normal(size=(196, 3)), np.zeros(196)), r"6 \+ 196"),
        (svrhmc.targets.gaussian(rng.normal(size=(65, 3)), np.eye(3)), r"6 \+ 195"),
    ):
        with pytest.raises(ValueError, match=rf"at most 200 .* got {size}: .* such as SVRG"):
            theory.law(svrhmc.saga_hmc(0.1), target, 1)
    largest = svrhmc.targets.linear(rng.normal(size=(194, 3)), np.zeros(194))
    assert theory.law(svrhmc.saga_hmc(0.1), largest, 1).covariance.shape == (6, 6)


@pytest.mark.parametrize("method", ["sgld", "sg-hmc", "vr-sgld", "svr-hmc", "saga-ld", "saga-hmc"])
def test_plans_draw_rows_by_importance_and_keep_a_table(method):
    target = regression(3, 1)[0]
    even, weighted = (theory.plan(target, 0.03, method, importance=importance) for importance in (False, True))
    for made, importance in ((even, False), (weighted, True)):
        assert made.sampler.gradient.importance is importance
        assert theory.law(made.sampler, target, made.steps).w2 == pytest.approx(made.w2)
        assert made.w2 <= 0.03
        assert made.gradient_evaluations == made.sampler.gradient.evaluations(target, made.steps)
        assert str(made).startswith(method.upper())
    assert weighted.gradient_evaluations < even.gradient_evaluations  # these rows are of very unequal size


def test_plans_that_draw_no_rows_or_know_none_refuse_importance_and_tables():
    target, constants = regression(4, 2)[0], theory.Problem(n=100, dim=2, smoothness=2.0, convexity=1.0)
    with pytest.raises(ValueError, match="importance must be False for HMC, which draws no rows"):
        theory.plan(target, 0.1, "hmc", importance=True)
    for problem, rule in ((constants, "exact"), (target, "repaired")):
        with pytest.raises(ValueError, match="importance must be False but for rule='exact'"):
            theory.plan(problem, 0.1, rule=rule, importance=True)
    with pytest.raises(ValueError, match="method must be one without a table"):
        theory.plan(constants, 0.1, "saga-hmc")
    with pytest.raises(ValueError, match="at most 16 for a plan of SAGA-HMC; got 20"):
        theory.plan(regression(14, 3)[0], 0.1, "saga-hmc")
    with pytest.raises(ValueError, match="method must be svr-hmc or hmc for rule='repaired'"):
        theory.plan(target, 0.1, "saga-hmc", rule="repaired")
