"""Bounds lie above exact distances, plans keep what they promise, Table 1 has its slopes; and what is refused."""

import lzma
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT, every_engine
from hand_written_laws import z_scores
from simulated_data import events
from svrhmc import theory
from svrhmc.dynamics import BAOAB, UBU, EulerMaruyama, Exponential, Overdamped, Underdamped
from svrhmc.gradients import SVRG, ControlVariate, Full, Minibatch
from svrhmc.samplers import METHODS
from svrhmc.theory import Problem, planning, recursion
from svrhmc.theory import quadratic as quadratic_module

GRID = [
    (n, d, kappa, spread)
    for n in (10, 500, 5000)
    for d in (1, 3, 50)
    for kappa in (1.0, 10.0, 100.0)
    for spread in (0.0, 0.5)
    if d < 50 or (n, kappa, spread) in ((500, 100.0, 0.0), (500, 1.0, 0.5))
]
LENGTHS = [1, 7, 100, 10**4, 10**6, 10**8]


def quadratic(n, d, kappa, spread=0.0, seed=0):
    return svrhmc.targets.synthetic(n, d, seed=seed, eigenvalues=(1.0, kappa), spread=spread)


# 1. Bounds.


@pytest.mark.ordinary(lambda d, spread: d < 50 or spread)
@pytest.mark.parametrize(("n", "d", "kappa", "spread"), GRID)
def test_the_corrected_and_the_repaired_bound_lie_above_the_exact_distance_at_any_length(n, d, kappa, spread):
    target = quadratic(n, d, kappa, spread)
    problem = Problem.of(target)
    for eta in (0.2, 0.01, 1e-4):
        for method, sampler in (("svr-hmc", svrhmc.svr_hmc(eta)), ("hmc", svrhmc.hmc(eta))):
            for steps in LENGTHS:
                exact = theory.law(sampler, target, steps).w2
                assert exact <= theory.bound(problem, eta, steps, method=method).value
                assert exact <= theory.repaired_bound(problem, eta, steps, method=method).value
            settled = theory.stationary(sampler, target).w2
            assert settled <= theory.repaired_bound(problem, eta, 10**15, method=method).value


def test_the_printed_bound_lies_below_the_exact_distance_in_the_counter_example():
    """docs/errata.md, A1: every condition that the paper prints holds, and its bound does not."""
    target = svrhmc.targets.gaussian([[0.0]], [[1.0]])
    problem, sampler = Problem.of(target), svrhmc.svr_hmc(1e-6, epoch_length=1)
    for steps in (20_000, 50_000, 100_000, 150_000, 200_000):
        exact = theory.law(sampler, target, steps).w2
        printed = theory.bound(problem, 1e-6, steps, epoch_length=1, printed=True)
        assert printed.proved
        assert printed.value < exact < theory.bound(problem, 1e-6, steps, epoch_length=1).value
    assert theory.law(sampler, target, 50_000).w2 == pytest.approx(0.98756, abs=5e-6)
    assert theory.bound(problem, 1e-6, 50_000, epoch_length=1, printed=True).value == pytest.approx(0.97557, abs=5e-6)
    assert theory.constants(problem, 1e-6).w_0 == pytest.approx(math.sqrt(3), rel=1e-12)


def test_the_constants_by_hand():
    problem = Problem(n=50, dim=4, smoothness=8.0, convexity=2.0, radius=3.0)
    found = theory.constants(problem, 0.01)
    assert (found.U_x, found.U_f, found.U_v) == (42 * 2 + 24 * 9 + 4, 4 * 304.0, 80 * 2 + 48 * 9 + 9)
    assert pytest.approx(10 / 3 * 601 + 4 / 24 * 1216 + 16 * 0.04 / 24) == found.D_1
    assert pytest.approx(13 * 601 + 1216 + 0.04) == found.D_2
    assert found.D_3 == 2 * 601 + 2
    assert found.w_0 == pytest.approx(math.sqrt(2 * (math.sqrt(2) + 3) ** 2 + 0.5))
    printed = theory.constants(problem, 0.01, printed=True)
    assert pytest.approx((8e-4 / 5 + 4 / 3) * 601 + 4 / 24 * 1216 + 16 * 0.04 / 24) == printed.D_1
    assert pytest.approx(13 * 601 + 1216 + 28 * 0.04 / 8) == printed.D_2
    assert printed.D_3 == 601 + 2
    bound = theory.bound(problem, 0.01, 300, epoch_length=20, batch_size=4)
    assert bound.start == pytest.approx(math.exp(-300 * 0.01 / 8) * found.w_0)
    assert bound.discretisation == pytest.approx(4 * 0.04 * (2 * math.sqrt(found.D_1) + math.sqrt(found.D_2)))
    assert bound.variance == pytest.approx(2 * math.sqrt(4 * found.D_3 / 4) * 20 * 0.001)
    assert bound.value == pytest.approx(bound.start + bound.discretisation + bound.variance)


def test_the_conditions_of_the_proof_are_told_one_by_one():
    problem = Problem(n=50, dim=4, smoothness=8.0, convexity=2.0, radius=0.1, gradient_variance=10.0)
    assert theory.bound(problem, 1e-6, 1000).proved is True
    verdicts = {c.needs: c.holds for c in theory.bound(problem, 0.3, 1).conditions}
    assert verdicts["η ≤ 1/4"] is False
    assert theory.bound(problem, 1e-4, 10**9).proved is False  # η² ≤ log 2/(36κK)
    unknown = theory.bound(replace(problem, gradient_variance=None), 1e-6, 1000)
    assert unknown.proved is None
    assert "cannot be told" in str(unknown)
    loud = theory.bound(replace(problem, gradient_variance=1e9), 1e-6, 1000)
    assert [c.holds for c in loud.conditions] == [True, True, False, True]


def test_a_larger_smoothness_of_the_components_counts_in_the_variance_alone():
    plain = Problem(n=50, dim=4, smoothness=8.0, convexity=2.0)
    for convex, factor in ((True, 3.0), (False, 9.0)):
        rough = replace(plain, component_smoothness=24.0, convex_components=convex)
        for make in (theory.bound, theory.repaired_bound):
            a, b = make(plain, 1e-4, 1000), make(rough, 1e-4, 1000)
            assert b.variance / a.variance == pytest.approx(math.sqrt(factor), rel=1e-2)
            assert b.discretisation == pytest.approx(a.discretisation, rel=1e-3)


def test_the_contraction_of_the_repaired_bound_holds_for_every_curvature():
    """|I + ηJ(h)| ≤ q for κ⁻¹ ≤ h ≤ 1, J = [[−1, 1], [1 − h, −1]]; not for η well beyond 1/4 (negative control)."""

    def worst(eta, kappa):
        h = np.geomspace(1 / kappa, 1, 2001)
        maps = np.empty((len(h), 2, 2))
        maps[:, 0, 0] = maps[:, 1, 1] = 1 - eta
        maps[:, 0, 1], maps[:, 1, 0] = eta, eta * (1 - h)
        q = math.sqrt(1 - eta / kappa * (1 - eta / 2 - eta**2 / 4))
        return np.linalg.norm(maps, 2, axis=(1, 2)).max() - q

    for eta in np.geomspace(1e-5, 0.25, 30):
        for kappa in (1.0, 1.5, 3.0, 30.0, 1e3, 1e6):
            assert worst(eta, kappa) <= 1e-12
    assert worst(1.1, 3.0) > 0


@pytest.mark.slow
def test_the_one_step_error_of_the_repaired_bound_holds_on_quadratics():
    """|G z − 𝓛 z| from a stationary start, exactly, against (√109/2) η² √(d/L)."""
    from scipy.linalg import expm

    for eta in (0.25, 0.05, 1e-3):
        for s in (0.01, 0.3, 1.0):  # curvature over L, with L = 1, d = 1
            flow = expm(eta * np.array([[0.0, 1.0], [-s, -2.0]]))
            drift = np.array([[1.0, eta], [-eta * s, 1 - 2 * eta]])
            # the difference is (drift − flow) z plus the difference of the noises, both Gaussian; by the Itô isometry
            t = (np.arange(2000) + 0.5) * eta / 2000
            kick = np.array([expm(r * np.array([[0.0, 1.0], [-s, -2.0]]))[:, 1] for r in t])
            ours = np.stack([(1 - np.exp(-2 * t)) / 2, np.exp(-2 * t)], axis=1)
            noise = 4 * ((ours - kick)[:, :, None] * (ours - kick)[:, None, :]).sum(axis=0) * eta / 2000
            second = (drift - flow) @ np.diag([1 / s, 1.0]) @ (drift - flow).T + noise
            turned = np.array([[1.0, 0.0], [1.0, 1.0]])  # z = (x, x + v)
            error = math.sqrt(np.trace(turned @ second @ turned.T))
            assert error <= math.sqrt(109) / 2 * eta**2
            assert error >= 0.2 * eta**2  # and it is of that size


# 2. Plans.

QUADRATICS = {
    "synthetic": lambda: svrhmc.targets.synthetic(1000, 10),
    "small": lambda: svrhmc.targets.synthetic(20, 2, eigenvalues=(0.2, 6.0)),
    "spread": lambda: svrhmc.targets.synthetic(200, 5, eigenvalues=(0.5, 5.0), spread=0.7),
    "several": lambda: several(60, 3),
}


def several(n, d):
    rng = np.random.default_rng(5)
    roots = rng.normal(size=(n, d, d + 2))
    return svrhmc.targets.gaussian(rng.normal(size=(n, d)) + 1, roots @ roots.transpose(0, 2, 1) / d + 0.3 * np.eye(d))


@pytest.mark.parametrize("name", QUADRATICS)
@pytest.mark.parametrize("rule", ["corollary", "repaired"])
@pytest.mark.parametrize("method", ["svr-hmc", "hmc"])
def test_a_plan_by_a_bound_keeps_its_promise_by_the_exact_law(name, rule, method):
    target = QUADRATICS[name]()
    for accuracy in (1.0, 0.1, 0.001):
        plan = theory.plan(target, accuracy, method, rule)
        assert plan.bound.proved
        assert plan.w2 == plan.bound.value <= accuracy * (1 + 1e-9)
        assert theory.law(plan.sampler, target, plan.steps).w2 <= accuracy
        assert plan.gradient_evaluations == plan.sampler.gradient.evaluations(target, plan.steps)


@pytest.mark.ordinary(lambda name, method: name in ("small", "several") or method == "svr-hmc")
@pytest.mark.parametrize("name", QUADRATICS)
@pytest.mark.parametrize("method", METHODS)
def test_an_exact_plan_keeps_its_promise_and_wastes_little(name, method):
    target = QUADRATICS[name]()
    for accuracy in (0.3, 0.05):
        plan = theory.plan(target, accuracy, method)
        exact = theory.law(plan.sampler, target, plan.steps).w2
        assert exact == pytest.approx(plan.w2, rel=1e-9)
        assert 0.5 * accuracy < exact <= accuracy


def test_an_exact_plan_from_a_distant_start_or_the_mode():
    target = svrhmc.targets.synthetic(100, 4)
    near, far = (theory.plan(target, 0.1, start=start) for start in ("mode", np.full(4, 1000.0)))
    assert near.steps < far.steps
    assert theory.law(near.sampler, target, near.steps, start=target.mode()).w2 <= 0.1
    assert theory.law(far.sampler, target, far.steps, start=np.full(4, 1000.0)).w2 <= 0.1


@pytest.mark.parametrize("dim", [10, 50])
def test_the_exact_rule_needs_at_least_100_times_fewer_gradients_on_the_papers_problem(dim):
    target = svrhmc.targets.synthetic(1000, dim)
    proved = theory.plan(target, 0.1, rule="corollary")
    assert proved.gradient_evaluations >= 100 * theory.plan(target, 0.1).gradient_evaluations
    assert proved.gradient_evaluations >= 10 * theory.plan(target, 0.1, rule="repaired").gradient_evaluations


def test_where_the_paper_has_only_an_order_so_has_the_plan():
    problem = Problem(n=100, dim=4, smoothness=2.0, convexity=1.0, gradient_variance=30.0)
    for method in ("lmc", "sgld", "sg-hmc"):
        plan = theory.plan(problem, 0.1, method, rule="corollary")
        assert plan.order
        assert (plan.sampler, plan.steps, plan.w2, plan.step_size, plan.batch_size) == (None,) * 5
        assert plan.gradient_evaluations == theory.complexity(problem, 0.1, method).total
        assert "only an order" in plan.assumes
        assert "(an order only)" in str(plan)


def test_a_plan_of_constants_alone_says_what_it_assumes_and_prints_well():
    problem = Problem(n=1000, dim=5, smoothness=4.0, convexity=1.0, radius=2.0, gradient_variance=50.0)
    for method in METHODS:
        plan = theory.plan(problem, 0.1, method)
        assert "spaced evenly" in plan.assumes
        assert plan.w2 <= 0.1
        text = str(plan)
        assert f"{plan.steps:,}" in text
        assert "W₂ promised" in text
    # the diagonal quadratic it speaks of, written as a target: a common spectrum with the start along the least curved
    spectrum = np.geomspace(1.0, 4.0, 5)
    target = svrhmc.targets.gaussian(np.tile([2.0, 0, 0, 0, 0], (1000, 1)), np.diag(spectrum))
    plan = theory.plan(problem, 0.1, "hmc")
    assert theory.law(plan.sampler, target, plan.steps).w2 == pytest.approx(plan.w2, rel=1e-9)


@pytest.mark.parametrize("make", ["logistic", "linear"])
def test_a_plan_for_a_regression_reaches_its_accuracy_in_chains(make):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.normal(size=300)
    target = svrhmc.targets.linear(X, y) if make == "linear" else svrhmc.targets.logistic(X, y > 0)
    plan = theory.plan(target, 0.02, start="mode")
    assert ("Hessians at its mode" in plan.assumes) == (make == "logistic")
    draws = plan.sampler.run(target, plan.steps, chains=4000, start="mode", keep="last", seed=1).draws[:, -1]
    fitted = target.laplace()
    measured = svrhmc.distances.plug_in_w2(draws, fitted.mean, fitted.covariance)
    assert measured.value < 0.02 + 4 * measured.floor  # the Laplace approximation itself is off by some of this


# 3. Slopes of Table 1.


def slope(evaluations, problem, accuracy, name, factor=2.0):
    """d log(evaluations) / d log(name), the logarithm of w₀/ε taken out; κ changes through L alone."""
    if name == "epsilon":
        pair = (evaluations(problem, accuracy), evaluations(problem, accuracy / factor))
        return math.log(pair[1] / pair[0]) / math.log(1 / factor)
    field = {"n": "n", "d": "dim", "kappa": "smoothness"}[name]
    value = getattr(problem, field)
    changes = {field: type(value)(value * factor)}
    if name == "kappa":  # σ² of the table is in units of L²
        changes["gradient_variance"] = problem.gradient_variance * factor**2
    if name == "d":
        changes["gradient_variance"] = problem.gradient_variance * factor
    more = replace(problem, **changes)
    return math.log(evaluations(more, accuracy) / evaluations(problem, accuracy)) / math.log(factor)


def planned(method):
    def evaluations(problem, accuracy):
        plan = theory.plan(problem, accuracy, method, rule="corollary")
        if plan.order:
            return plan.gradient_evaluations
        logarithm = plan.steps * plan.step_size / (2 * problem.condition_number)
        snapshots = problem.n * math.ceil(plan.steps / problem.n) if method == "svr-hmc" else 0
        steps_cost = plan.gradient_evaluations - snapshots
        if method == "svr-hmc" and plan.steps < problem.n:
            return snapshots + steps_cost / logarithm
        return plan.gradient_evaluations / logarithm

    return evaluations


ROWS = {  # method, problem, accuracy, slopes in n, d, κ, ε
    "lmc": ("lmc", Problem(1000, 10, 4.0, 1.0, 0.0, 10.0), 0.1, (1, 1, 2, -2)),
    "hmc": ("hmc", Problem(1000, 10, 1e3, 1.0, 0.0, 10.0), 1e-5, (1, 0.5, 2, -1)),
    "sgld": ("sgld", Problem(1000, 10, 4.0, 1.0, 0.0, 10.0), 0.1, (0, 1, 2, -2)),
    "sg-hmc, second term": ("sg-hmc", Problem(1000, 10, 4.0, 1.0, 0.0, 1e7), 0.1, (0, 1, 2, -2)),
    "sg-hmc, first term": ("sg-hmc", Problem(1000, 10, 4.0, 1.0, 0.0, 0.01), 0.1, (0, 0.5, 2, -1)),
    "svr-hmc, second term": ("svr-hmc", Problem(2, 10, 1e3, 1.0, 0.0, 10.0), 1e-5, (0, 0.5, 2, -1)),
    "svr-hmc, third term": ("svr-hmc", Problem(10**9, 10, 1e2, 1.0, 0.0, 10.0), 1e-4, (2 / 3, 1 / 3, 4 / 3, -2 / 3)),
    "svr-hmc, first term": ("svr-hmc", Problem(10**17, 10, 1.0, 1.0, 0.0, 10.0), 1.0, (1, 0, 0, 0)),
}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("place", range(4))
def test_planned_gradients_have_the_slopes_of_table_1(row, place):
    method, problem, accuracy, slopes = ROWS[row]
    name = ("n", "d", "kappa", "epsilon")[place]
    assert slope(planned(method), problem, accuracy, name) == pytest.approx(slopes[place], abs=0.02)
    order = lambda p, eps: theory.complexity(p, eps, method).total  # noqa: E731
    assert slope(order, problem, accuracy, name) == pytest.approx(slopes[place], abs=0.02)


def test_the_printed_power_of_the_condition_number_is_wrong():
    problem = Problem(10**9, 10, 1e2, 1.0)
    printed = lambda p, eps: theory.complexity(p, eps, "svr-hmc", printed=True).total  # noqa: E731
    problem = replace(problem, gradient_variance=1.0)
    assert slope(printed, problem, 0.1, "kappa") < 1


def test_the_regimes_of_the_remark_and_the_one_it_leaves_out():
    problem = Problem(n=1000, dim=50, smoothness=10.0, convexity=1.0, gradient_variance=1e5)
    comparison = theory.compare(problem, 0.1)
    edges = theory.boundaries(problem, 0.1)
    kappa, eps, d, sigma = 10.0, 0.1, 50, math.sqrt(1e5 / 50 / 100)  # σ in the table's units, with μ = 1
    assert edges["n1"] == pytest.approx(kappa * d**0.25 / eps**0.5)
    assert edges["n2"] == pytest.approx(kappa * d * sigma**3 / eps**2)
    assert edges["n3"] == pytest.approx(kappa**4 * d / eps**2)
    regimes = comparison.regimes
    assert [regime.cheapest for regime in regimes] == ["hmc", "svr-hmc", "svr-hmc", "sg-hmc", "sg-hmc"]
    assert [regime.remark for regime in regimes] == ["", "", "", "left out by the paper", ""]
    for regime in regimes:  # what is said of a range holds all over it
        for n in np.geomspace(regime.low * 1.001, min(regime.high, 1e12) / 1.001, 7):
            rows = theory.compare(replace(problem, n=max(1, round(n))), 0.1)
            assert n < 50 or rows.cheapest == regime.cheapest
    assert comparison.cheapest == "svr-hmc"
    crossing = theory.crossings(problem, 0.1)[-1]
    totals = [theory.complexity(replace(problem, n=round(crossing)), 0.1, m).total for m in ("svr-hmc", "sg-hmc")]
    rough = replace(problem, component_smoothness=80.0)  # ρ = 8: the third term doubles
    third, plain = (theory.complexity(p, 0.1, "svr-hmc").terms[2].value for p in (rough, problem))
    assert third == pytest.approx(2 * plain)
    assert theory.boundaries(rough, 0.1)["n3"] == pytest.approx(8 * edges["n3"])
    assert totals[0] == pytest.approx(totals[1], rel=1e-4)
    assert "SVR-HMC" in str(comparison)
    bare = theory.compare(replace(problem, gradient_variance=None), 0.1)
    assert [row.method for row in bare.rows] == ["lmc", "hmc", "svr-hmc"]
    assert "need gradient_variance" in str(bare)


# 4. Exact laws.

STATIONARY = {  # γ = 2, u = 2/3, s = 1.2, η = 0.1
    Underdamped: (0.8685899895703873, -0.03576971289129239, 0.6386781532210455),
    EulerMaruyama: (0.869980290711998, -0.03849470312884947, 0.7698940625769894),
    Exponential: (0.8503286199549907, 2.257155488482677e-5, 0.6802186256410563),
    UBU: (0.8322232424732608, 5.560142175163309e-4, 0.6671087490964801),
}


@pytest.mark.parametrize("kind", STATIONARY)
def test_stationary_reference_numbers(kind):
    target = svrhmc.targets.gaussian([[3.0]], [[1.2]])
    settled = theory.stationary(svrhmc.Sampler(kind(0.1, 2.0, 2 / 3), Full()), target)
    got = (settled.covariance[0, 0], settled.covariance[0, 1], settled.covariance[1, 1])
    assert got == pytest.approx(STATIONARY[kind], rel=1e-12, abs=1e-16)
    assert settled.mean == pytest.approx([3.0, 0.0], abs=1e-14)
    assert settled.step is None


def test_baoab_has_no_bias_on_quadratics_up_to_its_stability_limit():
    target = svrhmc.targets.gaussian(np.ones((3, 3)), np.diag([0.02, 0.7, 1.0]))
    for eta in (0.1, 1.0, 1.9):
        for gamma in (0.2, 1.0, 5.0):
            settled = theory.stationary(svrhmc.Sampler(BAOAB(eta, gamma, 1.0), Full()), target)
            assert settled.w2 < 1e-11
    with pytest.raises(ValueError, match="stationary law"):
        theory.stationary(svrhmc.Sampler(BAOAB(2.1, 1.0, 1.0), Full()), target)


def test_the_orders_of_the_integrators():
    """Relative bias of the variance: ηus/γ, ηus/(2γ), −usη²/6 (derived in the dynamics)."""
    s, u, gamma, eta = 1.3, 0.7, 1.6, 1e-3
    target = svrhmc.targets.gaussian([[0.0]], [[s]])
    leading = {
        Underdamped: eta * u * s / gamma,
        EulerMaruyama: eta * u * s / gamma,
        Exponential: eta * u * s / (2 * gamma),
        UBU: -u * s * eta**2 / 6,
    }
    for kind, bias in leading.items():
        variance = theory.stationary(svrhmc.Sampler(kind(eta, gamma, u), Full()), target).covariance[0, 0]
        assert s * variance - 1 == pytest.approx(bias, rel=2e-3)


def test_the_closed_form_of_gradient_noise():
    """s P_xx = (1 + ηV/2)/(1 − ηs/2) overdamped, and the paper's scheme's extra variance, with V = (1/n)Σ bᵢ²."""
    a, s, eta = np.array([[0.0], [2.0], [5.0]]), 1.3, 0.2
    target = svrhmc.targets.gaussian(a, [[s]])
    V = float(np.mean((s * (a - a.mean())) ** 2))
    settled = theory.stationary(svrhmc.sgld(eta), target)
    assert settled.covariance[0, 0] == pytest.approx((1 + eta * V / 2) / (1 - eta * s / 2) / s, rel=1e-12)
    u, gamma = 0.4, 1.5
    full, noisy = (
        theory.stationary(svrhmc.Sampler(Underdamped(eta, gamma, u), g), target).covariance[0, 0]
        for g in (Full(), Minibatch())
    )
    us = u * s
    extra = V * eta * u * (2 - eta * gamma + eta**2 * us) / ((gamma - eta * us) * (4 - 2 * eta * gamma + eta**2 * us))
    assert (noisy - full) * s == pytest.approx(extra, rel=1e-11)


GRADIENTS = {
    "full": Full(),
    "minibatch": Minibatch(2),
    "minibatch, no replacement": Minibatch(3, False),
    "control variate": ControlVariate(2),
    "svrg": SVRG(2, 5),
    "svrg, no replacement": SVRG(2, 5, False),
    "svrg, estimated snapshot": SVRG(1, 4, True, 3),
}
KINDS = (
    Overdamped(0.05),
    EulerMaruyama(0.2, 1.7, 0.3),
    Underdamped(0.2, 1.7, 0.3),
    Exponential(0.2, 1.7, 0.3),
    UBU(0.2, 1.7, 0.3),
    BAOAB(0.2, 1.7, 0.3),
)


@pytest.mark.ordinary(lambda gradient, engine: engine == "numba" or gradient == "svrg, estimated snapshot")
@pytest.mark.parametrize("engine", every_engine())
@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("dynamics", KINDS, ids=lambda kind: type(kind).__name__)
def test_laws_by_matrix_powers_are_those_of_20_000_chains(problem, dynamics, gradient, engine):
    target = svrhmc.targets.gaussian(problem.a, problem.S)
    sampler = svrhmc.Sampler(dynamics, GRADIENTS[gradient])
    right, wrong = theory.law(sampler, target, 23), theory.law(sampler, target, 17)
    trace = sampler.run(target, 23, chains=20_000, seed=2, keep="last", engine=engine)
    state = np.hstack([trace.draws[:, -1], trace.velocity])
    assert np.abs(z_scores(state, right.mean, right.covariance)).max() < LIMIT
    assert np.abs(z_scores(state, wrong.mean, wrong.covariance)).max() > 2 * LIMIT


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("dynamics", KINDS, ids=lambda kind: type(kind).__name__)
def test_powers_steps_and_stationarity_agree(problem, dynamics, gradient, monkeypatch):
    sampler = svrhmc.Sampler(dynamics, GRADIENTS[gradient])
    for target in (
        svrhmc.targets.gaussian(problem.a, problem.S),
        svrhmc.targets.gaussian(problem.a, problem.S[0]),
        svrhmc.targets.gaussian(problem.a, np.array([1.0, 2.0, 3.0, 1.5, 2.5])[:, None, None] * problem.S[0]),
        svrhmc.targets.linear(problem.a / 8, np.arange(5.0)),
    ):
        *_, stepped = theory.laws(sampler, target, 61)
        powered = theory.law(sampler, target, 61)
        assert powered.mean == pytest.approx(stepped.mean, rel=1e-11, abs=1e-12)
        assert powered.covariance == pytest.approx(stepped.covariance, rel=1e-10, abs=1e-13)
        assert powered.passes == stepped.passes
        settled, late = theory.stationary(sampler, target), theory.law(sampler, target, 20 * 10**6)
        assert settled.covariance == pytest.approx(late.covariance, rel=1e-9, abs=1e-12)
        assert settled.w2 == pytest.approx(late.w2, rel=1e-8)
        monkeypatch.setattr(recursion, "_DENSE", 0)  # the path of problems too large for one matrix
        monkeypatch.setattr(quadratic_module, "_TENSOR_DIM", 1)
        slow = theory.stationary(sampler, target)
        monkeypatch.undo()
        assert slow.covariance == pytest.approx(settled.covariance, rel=1e-9, abs=1e-12)


def test_a_step_without_a_stationary_law_is_refused():
    target = svrhmc.targets.synthetic(10, 2, spread=0.9)
    with pytest.raises(theory.UnsettledError, match="small enough for a stationary law"):
        theory.stationary(svrhmc.lmc(5.0), target)
    with pytest.raises(ValueError, match="small enough for a stationary law"):
        theory.stationary(svrhmc.vr_sgld(5.0, epoch_length=5000), target)
    with pytest.raises(ValueError, match="so small that the moments stay finite"):
        theory.law(svrhmc.lmc(5.0), target, 10**6)
    loud = svrhmc.targets.gaussian([[0.0], [0.0]], [[[0.01]], [[200.0]]])  # the mean is stable, the variance is not
    with pytest.raises(ValueError, match="larger batch_size"):
        theory.stationary(svrhmc.sgld(0.012), loud)


@pytest.mark.parametrize("eta", [0.1, 1e-3, 1e-5])
def test_no_digits_are_lost_where_steps_are_small_or_conditions_bad(eta):
    """The bias (η/4)√(tr S/L) to its leading order, however small; with mixing pairs of coordinates too."""
    target = svrhmc.targets.gaussian(np.zeros((2, 2)), np.diag([1e-6, 1.0]))
    for sampler in (svrhmc.hmc(eta), svrhmc.svr_hmc(eta, epoch_length=1000)):
        assert theory.stationary(sampler, target).w2 == pytest.approx(eta / 4, rel=max(1e-4, eta))
    rng = np.random.default_rng(2)
    mixing = svrhmc.targets.linear(rng.normal(size=(200, 12)) * np.geomspace(0.1, 1, 12), rng.normal(size=200))
    full, reduced = (
        theory.stationary(sampler, mixing) for sampler in (svrhmc.hmc(eta), svrhmc.svr_hmc(eta, epoch_length=20))
    )
    leading = eta / 4 / mixing.smoothness * math.sqrt(np.trace(np.linalg.inv(mixing.closed_form.covariance)))
    assert full.w2 == pytest.approx(leading, rel=3 * eta + 1e-4)
    assert full.w2 <= reduced.w2 * (1 + 1e-3)
    assert reduced.w2 == pytest.approx(full.w2, rel=10 * eta + 1e-4)


def test_what_laws_and_bounds_refuse(targets):
    target = targets["linear"]
    for call in (
        lambda: theory.law("hmc", target, 3),
        lambda: theory.law(svrhmc.hmc(0.1), None, 3),
        lambda: list(theory.laws(svrhmc.hmc(0.1), target, -2)),
        lambda: list(theory.laws(svrhmc.hmc(0.1), target, 2.5)),
        lambda: theory.law(svrhmc.hmc(0.1), target, 3, start="middle"),
        lambda: Problem.of("x"),
        lambda: theory.compare("x", 0.1),
        lambda: theory.bound(None, 0.1, 3),
        lambda: theory.compare(target, 1e-300),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()
    near = theory.law(svrhmc.hmc(0.1), target, 3, start="mode")
    assert near.w2 == theory.law(svrhmc.hmc(0.1), target, 3, start=target.mode()).w2
    assert theory.compare(target, 0.1).rows == theory.compare(Problem.of(target), 0.1).rows
    assert theory.bound(target, 0.01, 3).value == theory.bound(Problem.of(target), 0.01, 3).value


def test_the_paper_size_is_exact_at_any_length():
    """d = 50, n = 5000: a common matrix, commuting ones; the distance settles at the leading term's value."""
    for spread in (0.0, 0.5):
        target = svrhmc.targets.synthetic(5000, 50, spread=spread)
        sampler = svrhmc.svr_hmc(0.001, epoch_length=50)
        late, settled = theory.law(sampler, target, 10**7), theory.stationary(sampler, target)
        assert late.w2 == pytest.approx(settled.w2, rel=1e-6)
        leading = 0.001 / (4 * target.smoothness) * math.sqrt(np.trace(target.mean_precision))
        assert settled.w2 == pytest.approx(leading, rel=0.01)


# 5. Targets that are log-concave only.


def pima_like(seed=0):
    """768 rows of 8 correlated columns of unit size and labels from them, as the pima data have."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(768, 8)) @ np.linalg.cholesky(0.3 + 0.7 * np.eye(8)).T
    X = (X - X.mean(0)) / X.std(0)
    return X, events(rng, X @ np.linspace(-0.8, 0.8, 8) - 0.8)


def test_a_regularised_flat_prior_reaches_the_posterior_within_what_it_claims():
    X, y = pima_like()
    check_flat_prior(svrhmc.targets.logistic(X, y, prior_precision=0.0))


@pytest.mark.skipif("SVRHMC_DATA" not in os.environ, reason="SVRHMC_DATA names no folder with the data")
def test_a_regularised_flat_prior_on_pima():
    load_svmlight_file = pytest.importorskip("sklearn.datasets").load_svmlight_file
    with lzma.open(Path(os.environ["SVRHMC_DATA"]) / "pima" / "diabetes.xz") as file:
        X, y = load_svmlight_file(file, n_features=8)
    X = X.toarray()
    X = np.column_stack([np.ones(len(X)), (X - X.mean(0)) / X.std(0)])
    check_flat_prior(svrhmc.targets.logistic(X, y, prior_precision=0.0))


def check_flat_prior(flat):
    accuracy = 0.3 * math.sqrt(np.trace(flat.laplace().covariance))
    near = flat.regularised(accuracy=accuracy, fourth_moment="laplace", centre="mode")
    strength = near.prior_precision[0]
    moment = flat.laplace().fourth_about(flat.mode())
    assert theory.regularisation_distance(strength, moment) == pytest.approx(accuracy / 2)
    assert near.convexity == strength > 0 == flat.convexity
    plan = theory.plan(near, accuracy / 2, start="mode")
    reached = plan.sampler.run(near, plan.steps, chains=2000, start="mode", keep="last", seed=1).draws[:, -1]
    long = svrhmc.hmc(0.02).run(flat, 20_000, chains=4, start="mode", burn_in=1000, thin=20, seed=2)
    true = long.draws.reshape(-1, flat.dim)
    measured = svrhmc.distances.plug_in_w2(reached, true.mean(0), np.cov(true.T))
    assert measured.value <= accuracy
    unmoved = np.tile(flat.mode(), (2, 1))  # the control: chains that never left the mode
    assert svrhmc.distances.plug_in_w2(unmoved, true.mean(0), np.cov(true.T)).value > 2 * accuracy


def test_what_regularised_adds(targets):
    centre, x = np.array([0.5, -1.0, 2.0]), np.array([0.3, 0.2, -0.7])
    for name, target in targets.items():
        near = target.regularised(0.7, centre=centre)
        assert near.gradient(x) == pytest.approx(target.gradient(x) + 0.7 * (x - centre), rel=1e-6), name
        added = near.component_gradients(x, [0, 3]) - target.component_gradients(x, [0, 3])
        assert added == pytest.approx(np.tile(0.7 * (x - centre), (2, 1)), abs=1e-5), name
        rise = [t.potential(x) - t.potential(centre) for t in (near, target)]
        assert rise[0] - rise[1] == pytest.approx(0.35 * ((x - centre) ** 2).sum(), rel=1e-6), name
        assert near.convexity >= 0.7
        assert near.smoothness == pytest.approx(target.smoothness + 0.7, rel=1e-6)
    mode = targets["logistic"].mode()
    assert targets["logistic"].regularised(5.0, centre="mode").mode() == pytest.approx(mode, abs=1e-8)
    assert targets["gaussian"].laplace() is targets["gaussian"].closed_form
    with pytest.raises(ValueError, match="Hessian for a Laplace"):
        targets["custom"].laplace()


@pytest.mark.parametrize("engine", every_engine())
def test_engines_run_a_target_with_a_prior_mean(rows, engine):
    X, labels, _ = rows
    target = svrhmc.targets.logistic(X, labels, [0.5, 1.0, 2.0], prior_mean=[1.0, -2.0, 0.3])
    for sampler in (svrhmc.hmc(0.1), svrhmc.sg_hmc(0.1), svrhmc.svr_hmc(0.1, epoch_length=3)):
        path, reference = (sampler.run(target, 50, chains=2, engine=name).draws for name in (engine, "reference"))
        assert path == pytest.approx(reference, rel=1e-10)
        moved = sampler.run(svrhmc.targets.logistic(X, labels, [0.5, 1.0, 2.0]), 50, chains=2).draws
        assert np.abs(moved - path).max() > 0.1


def test_a_flat_prior_on_dependent_columns_has_no_posterior():
    rng = np.random.default_rng(0)
    for _ in range(20):
        X = rng.normal(size=(30, 3))
        X = np.column_stack([X, X @ rng.normal(size=3)])
        for model, y in ((svrhmc.targets.linear, rng.normal(size=30)), (svrhmc.targets.logistic, rng.random(30) < 0.5)):
            with pytest.raises(ValueError, match="improper"):
                model(X, y, prior_precision=0.0)


def test_the_fourth_moment_of_a_gaussian():
    rng = np.random.default_rng(0)
    mean, root = np.array([1.0, -0.5, 0.2]), rng.normal(size=(3, 3))
    draws = mean + rng.normal(size=(400_000, 3)) @ root.T
    centre = np.array([0.2, 0.1, -1.0])
    fourth = (((draws - centre) ** 2).sum(1)) ** 2
    exact = svrhmc.density.base.Moments(mean, root @ root.T).fourth_about(centre)
    assert abs(fourth.mean() - exact) < LIMIT * fourth.std() / math.sqrt(len(fourth))


def test_the_distance_of_a_regularised_gaussian_is_within_its_bound():
    target = svrhmc.targets.gaussian(np.zeros((2, 2)), np.diag([0.5, 2.0]))
    for strength in (1e-4, 0.01, 0.5):
        near = target.regularised(strength)
        a, b = near.closed_form, target.closed_form
        exact = svrhmc.distances.gaussian_w2(a.mean, a.covariance, b.mean, b.covariance)
        assert exact <= theory.regularisation_distance(strength, b.fourth_about(np.zeros(2)))


def test_separable_data_with_a_flat_prior_have_no_posterior(monkeypatch):
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    with pytest.raises(ValueError, match="separable"):
        svrhmc.targets.logistic(X, [0, 0, 1, 1], prior_precision=0.0)
    monkeypatch.setattr(svrhmc.density.propriety, "_DENSE", 0)  # where the door has not looked
    flat = svrhmc.targets.logistic(X, [0, 0, 1, 1], prior_precision=0.0)
    with pytest.raises(ValueError, match="separable"):
        flat.regularised(0.1)
    with pytest.raises(ValueError, match="separable"):
        flat.regularised(accuracy=0.1, fourth_moment="laplace")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "strength, or accuracy with fourth_moment, must be given"),
        ({"strength": 1.0, "accuracy": 0.1}, "must be given"),
        ({"accuracy": 0.1}, "must be given"),
        ({"strength": 1.0, "fourth_moment": 2.0}, "must be given"),
        ({"strength": -1.0}, "strength must be a positive number"),
        ({"strength": 1.0, "centre": "middle"}, "centre must be None, 'mode' or a point; got 'middle'"),
        ({"strength": 1.0, "centre": [1.0]}, "centre must be an array of shape"),
        ({"accuracy": 0.1, "fourth_moment": "guess"}, "fourth_moment must be a positive number"),
    ],
)
def test_what_regularised_refuses(targets, settings, message):
    with pytest.raises(ValueError, match=message):
        targets["logistic"].regularised(**settings)


# 7. Errors.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"convexity": 3.0}, "convexity must be at most the smoothness, 2; got 3"),
        ({"convexity": 0.0}, "convexity must be a positive number; got 0.0: for a target that is not strongly convex"),
        ({"n": 0}, "n must be a whole number of at least 1; got 0"),
        ({"dim": 0}, "dim must be"),
        ({"smoothness": math.nan}, "smoothness must be a positive number; got nan"),
        ({"smoothness": math.inf}, "smoothness must be a positive number; got inf"),
        ({"radius": -1.0}, "radius must be a number not below 0"),
        ({"radius": math.inf}, "radius must be a number not below 0"),
        ({"gradient_variance": math.nan}, "gradient_variance must be"),
        ({"component_smoothness": 0.0}, "component_smoothness must be"),
        ({"component_smoothness": 1.0}, "component_smoothness must be at least the smoothness, 2; got 1"),
        ({"smoothness": 1e100}, "smoothness must be from 1e-60 to 1e\\+60; got 1e\\+100"),
        ({"n": 10**400}, "n must be a whole number from 1 to"),
    ],
)
def test_constants_that_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Problem(**{"n": 10, "dim": 2, "smoothness": 2.0, "convexity": 1.0, **changes})


def test_plans_that_are_refused():
    problem = Problem(n=10, dim=2, smoothness=2.0, convexity=1.0)
    for accuracy in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="accuracy must be a positive number"):
            theory.plan(problem, accuracy)
        with pytest.raises(ValueError, match="accuracy must be a positive number"):
            theory.compare(problem, accuracy)
    with pytest.raises(ValueError, match="method must be one of 'lmc'"):
        theory.plan(problem, 0.1, "nuts")
    with pytest.raises(ValueError, match="rule must be one of 'exact'"):
        theory.plan(problem, 0.1, rule="magic")
    with pytest.raises(ValueError, match="gradient_variance must be given for SG-HMC"):
        theory.plan(problem, 0.1, "sg-hmc")
    with pytest.raises(ValueError, match="gradient_variance must be given for SGLD"):
        theory.plan(problem, 0.1, "sgld", rule="corollary")
    with pytest.raises(ValueError, match="rule='exact' plans every sampler"):
        theory.plan(problem, 0.1, "vr-sgld", rule="corollary")
    with pytest.raises(ValueError, match="svr-hmc or hmc for rule='repaired'"):
        theory.plan(problem, 0.1, "lmc", rule="repaired")
    with pytest.raises(ValueError, match=r"problem must be a target or a theory\.Problem"):
        theory.plan("logistic", 0.1)
    with pytest.raises(ValueError, match="start must be given only with a target"):
        theory.plan(problem, 0.1, start="mode")
    with pytest.raises(ValueError, match="start must be None, 'mode' or an array"):
        theory.plan(svrhmc.targets.synthetic(10, 2), 0.1, start="middle")
    with pytest.raises(ValueError, match="method must be one of 'svr-hmc', 'hmc'"):
        theory.bound(problem, 0.1, 10, method="lmc")


@pytest.mark.parametrize("rule", ["corollary", "repaired"])
def test_a_plan_too_long_to_count_says_how_long_and_what_would_do(rule):
    problem = Problem(n=10**9, dim=50, smoothness=1e6, convexity=1e-6, radius=100.0)
    with pytest.raises(ValueError, match=r"steps, and 9\.22e\+18 can be counted") as caught:
        theory.plan(problem, 1e-6, rule=rule)
    feasible = float(str(caught.value).split("at least ")[1].split(" ")[0])
    assert theory.plan(problem, feasible * 1.01, rule=rule).steps < 2**63


def test_an_exact_plan_out_of_reach_says_what_is_within():
    problem = Problem(n=1000, dim=5, smoothness=4.0, convexity=1.0)
    with pytest.raises(
        ValueError, match=r"accuracy must be at least .* for SVR-HMC by rule='exact'; got 1e-20"
    ) as caught:
        theory.plan(problem, 1e-20)
    feasible = float(str(caught.value).split("at least ")[1].split(" ")[0])
    assert "that would take more than" in str(caught.value)
    assert theory.plan(problem, 1.01 * feasible).w2 <= 1.01 * feasible
    with pytest.raises(ValueError, match="n must be at most"):
        theory.plan(Problem(n=10**12, dim=5, smoothness=4.0, convexity=1.0), 0.1)
    with pytest.raises(ValueError, match="dim must be at most 5000"):
        theory.plan(Problem(n=100, dim=30_000, smoothness=4.0, convexity=1.0), 0.1)


def test_a_plan_that_cannot_be_checked_pair_by_pair_aims_lower_and_says_so(monkeypatch):
    monkeypatch.setattr(planning, "_AFFORDABLE", 0)
    monkeypatch.setattr(recursion, "_DENSE", 0)
    target = several(60, 3)
    plan = theory.plan(target, 0.1)
    assert "not checked" in plan.assumes
    assert plan.w2 <= 0.097
    monkeypatch.undo()
    assert theory.law(plan.sampler, target, plan.steps).w2 <= 0.1


def test_bounds_without_conditions_are_infinite_and_say_why():
    problem = Problem(n=100, dim=2, smoothness=2.0, convexity=1.0)
    assert theory.repaired_bound(problem, 0.5, 10).value == math.inf
    assert theory.repaired_bound(problem, 0.5, 10).proved is False
    assert theory.repaired_bound(problem, 1.3, 10).value == math.inf
    assert theory.repaired_bound(replace(problem, component_smoothness=2e4), 0.2, 10).proved is False
