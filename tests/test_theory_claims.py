"""Claims examined by numbers: those of docs/theory.md are made here, and these tests fail if they change."""

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest

import svrhmc
import test_law
import test_law_rows
from svrhmc import dynamics, gradients, theory
from svrhmc.dynamics import Dynamics
from svrhmc.gradients import Batched, Gradient
from svrhmc.theory import Problem

PAGE = (Path(__file__).parents[1] / "docs" / "theory.md").read_text()
NAMED = ("lmc", "sgld", "vr-sgld", "hmc", "sg-hmc", "svr-hmc")


# How far the repaired bound is above the exact distance.


def ratio(n, dim, eta, rule):
    """A bound on W₂ of the stationary law over the exact one, on the paper's synthetic problem with m = n."""
    target = svrhmc.targets.synthetic(n, dim)
    settled = theory.stationary(svrhmc.svr_hmc(eta), target).w2
    return rule(Problem.of(target), eta, 10**12).value / settled


def test_the_repaired_bound_is_111_to_1369_times_the_exact_distance():
    found = [ratio(n, 10, eta, theory.repaired_bound) for n in (50, 100, 1000, 5000) for eta in (1e-2, 1e-3, 1e-4)]
    assert (round(min(found)), round(max(found))) == (111, 1369)
    assert "111 to 1369" in PAGE
    assert ratio(50, 50, 1e-3, theory.repaired_bound) == pytest.approx(
        ratio(50, 10, 1e-3, theory.repaired_bound), rel=1e-3
    )
    assert 7000 < ratio(50, 10, 1e-4, theory.bound) < 7500  # Theorem 1, corrected, at its best of these


def test_the_repaired_bound_of_full_gradients_is_a_constant_times_the_exact_distance():
    """y → e/A = √109·ηκ√(d/L), exactly (η/4)√(tr S/L): 4√109·κ√(dL/tr S), 110.6 here; only the variance adds to that."""
    target = svrhmc.targets.synthetic(50, 10)
    problem = Problem.of(target)
    limit = (
        4
        * math.sqrt(109)
        * problem.condition_number
        * math.sqrt(10 * problem.smoothness / np.trace(target.mean_precision))
    )
    for eta in (1e-3, 1e-5):
        bound = theory.repaired_bound(problem, eta, 10**15, method="hmc").value
        exact = theory.stationary(svrhmc.hmc(eta), target).w2
        assert bound / exact == pytest.approx(limit, rel=3 * eta + 1e-4)
    assert limit == pytest.approx(110.6, abs=0.05)


# Whether variance reduction changes the power of ε.


def costs(method, accuracies=(1e-3, 1e-4, 1e-5)):
    """Gradients of the cheapest run by the exact law, without the logarithm, on components of very unequal curvature."""
    target = svrhmc.targets.synthetic(500, 5, eigenvalues=(1.0, 10.0), spread=0.9)
    made = [theory.plan(target, eps, method, start="mode") for eps in accuracies]
    return np.array([plan.gradient_evaluations / math.log(math.sqrt(5) / plan.accuracy) for plan in made])


def test_variance_reduction_changes_no_power_of_the_accuracy_on_quadratics():
    """Each cost tends to a constant over ε: those with snapshots to 2/n of the cost of full gradients."""
    found = {method: costs(method) for method in NAMED}
    for method in ("lmc", "hmc", "sgld", "sg-hmc"):
        assert np.diff(np.log10(found[method])) == pytest.approx([1, 1], abs=0.02)
    for reduced, noisy, full in (("vr-sgld", "sgld", "lmc"), ("svr-hmc", "sg-hmc", "hmc")):
        assert (found[reduced] > 2 * found[full] / 500).all()  # what their steps cost at the least: so no smaller power
        assert (found[reduced] < found[noisy] / 8).all()  # but far fewer
        assert (np.diff(np.log10(found[reduced])) > 0.84).all()
    factors = [found[a][-1] / found[b][-1] for a, b in (("sgld", "vr-sgld"), ("sg-hmc", "svr-hmc"))]
    assert np.round(factors).tolist() == [28, 16]
    assert "factors of 28 and 16" in PAGE


def vr_sgld_steps(problem, eps):
    """Solved from Lemma 5: A = μη, C/A = 1.65κ√(ηd), B = ηΛ√(2mηd) with m = n; each at ε/3."""
    d, mu, kappa = problem.dim, problem.convexity, problem.condition_number
    Lambda = math.sqrt(problem.variance_ratio) * problem.smoothness
    eta = min((eps / 3 / (1.65 * kappa)) ** 2 / d, eps / 3 / (Lambda * math.sqrt(2 * problem.n * d / mu)))
    return 1 / (mu * eta)


def test_by_lemma_5_the_power_of_vr_sgld_is_that_of_sgld_and_not_that_of_svr_hmc():
    """κ²/δ² + κ(ρn)^{1/2}/δ for VR-SGLD: ε⁻² in the end, as κ²/δ² + G; SVR-HMC has ε⁻¹."""
    problem = Problem(n=1000, dim=10, smoothness=5.0, convexity=1.0, gradient_variance=1e4)
    powers = {
        "vr-sgld": lambda eps: vr_sgld_steps(problem, eps),
        "sgld": lambda eps: theory.complexity(problem, eps, "sgld").total,
        "sg-hmc": lambda eps: theory.complexity(problem, eps, "sg-hmc").total,
        "svr-hmc": lambda eps: theory.complexity(problem, eps, "svr-hmc").total,
    }
    slopes = {name: math.log2(cost(5e-8) / cost(1e-7)) for name, cost in powers.items()}
    assert slopes == pytest.approx({"vr-sgld": 2, "sgld": 2, "sg-hmc": 2, "svr-hmc": 1}, abs=0.04)
    delta = 1e-2 / problem.scale
    order = problem.condition_number**2 / delta**2 + problem.condition_number * math.sqrt(problem.n) / delta
    assert 1 < vr_sgld_steps(problem, 1e-2) / order < 30


# Every cell of the grid has its exact law tested.


def finished(module, base):
    """Classes of a module that can be made: no abstract one, none with a name that begins with an underscore."""
    return {
        kind
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind) and kind.__name__[0] != "_"
    }


def test_laws_are_tested_for_every_dynamics_gradient_and_way_to_draw_rows():
    every = finished(dynamics, Dynamics)
    assert {type(part) for part in test_law_rows.DYNAMICS.values()} == every
    assert {type(part) for part in test_law.KINDS.values()} == every
    made = {type(make(2)) for make in test_law_rows.GRADIENTS.values()} | {gradients.Full}
    assert made | {Batched} >= finished(gradients, Gradient)
    cells = set(test_law_rows.CELLS)
    for kind in test_law_rows.DYNAMICS:
        assert (kind, "full", 1, True) in test_law.CASES
        for gradient in test_law_rows.GRADIENTS:
            for draw in ("evenly", "distinct", "weighted"):
                assert (kind, gradient, draw) in cells
    draws = {key for way in test_law_rows.DRAWS.values() for key in way}
    fields = {name for kind in made for name in inspect.signature(kind).parameters}
    assert fields == draws | {"batch_size", "epoch_length", "snapshot_size", "order"}  # no other way to draw rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", test_law_rows.DYNAMICS)
def test_control_variates_of_order_2_have_the_law_of_full_gradients_on_quadratics(kind):
    target = test_law_rows.regression(4, 2)[0]
    second = svrhmc.Sampler(test_law_rows.DYNAMICS[kind], gradients.ControlVariate(2, order=2))
    full = svrhmc.Sampler(test_law_rows.DYNAMICS[kind], gradients.Full())
    assert theory.law(second, target, 7).covariance == pytest.approx(theory.law(full, target, 7).covariance)
    first = svrhmc.Sampler(test_law_rows.DYNAMICS[kind], gradients.ControlVariate(2))
    assert theory.law(first, target, 7).covariance != pytest.approx(theory.law(full, target, 7).covariance)
    a, b = (made.run(target, 7, chains=3).draws for made in (second, full))
    assert a == pytest.approx(b)


def test_components_without_rows_cannot_be_drawn_by_importance():
    target = svrhmc.targets.gaussian([[0.0], [1.0]], [[1.0]])
    for gradient in (gradients.Minibatch(1, importance=True), gradients.SAGA(1, importance=True)):
        with pytest.raises(ValueError, match="a model with a linear predictor for rows drawn by importance"):
            theory.law(svrhmc.Sampler(dynamics.Underdamped(0.1), gradient), target, 3)
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    assert re.search(r"by importance \(linear predictors", readme)
