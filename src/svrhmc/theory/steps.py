"""The step with which each method is cheapest, by its order: what the Remark after the Corollary calls optimal.

By the recursion behind Table 1 (`complexity`) a step is bounded by the error of the discretisation and by the noise of
the gradient, and the optimal one is the least of these bounds. With δ = ε/√(d/μ), V = gradient_variance, ρ = Λ²/L²:

    LMC       δ²/(κ²μ) = ε²/(κ²d)
    SGLD      the same, or με²/V
    HMC       δ/κ = (ε/κ)(μ/d)^{1/2}
    SG-HMC    the same, or L²ε²/(κV)                                           (paper: ε²/(κdσ²), dσ² = V/L²)
    SVR-HMC   the same for n ≤ n₁ = κ(δρ)^{−1/2},
              (δ/(n√(κρ)))^{2/3} = ε^{2/3}(μ/d)^{1/3}/((κρ)^{1/3}n^{2/3}) from n₁ to n₃ = κ⁴ρδ^{−2},
              δ²/(κ³ρ) for n ≥ n₃

A step of overdamped dynamics has the unit of a variance; one of underdamped dynamics with u = 1/L and γ = 2 has none.
From n₃ on a run has fewer than n steps, so that its snapshot is never older than the run, m = K and not n: K = κ/η in
η = (δ/(K√(κρ)))^{2/3} gives δ²/(κ³ρ), with which K = n₃ ≤ n. The paper names the middle one for every n
(`printed=True`); for n < n₁ it is (n₁/n)^{2/3} times as long as the discretisation allows.
"""

from __future__ import annotations

import math

from svrhmc.core.errors import one_of, requirement
from svrhmc.samplers import LABELS
from svrhmc.targets.base import FiniteSum
from svrhmc.theory.complexity import TABLE, Term
from svrhmc.theory.problem import Problem, accuracy_of, as_problem, held


@held
def optimal_step(problem: Problem | FiniteSum, accuracy: float, method: str = "svr-hmc", printed: bool = False) -> Term:
    """The order of the step for W₂ ≤ accuracy, without constants or logarithms, and the bound that decides it.

    `printed=True` gives the steps of the paper's Remark, which names those of SVR-HMC and SG-HMC.

    >>> few, many = (Problem(n=n, dim=10, smoothness=2.0, convexity=1.0) for n in (4, 1000))
    >>> print(optimal_step(few, 0.1))
    ε(μ/d)^½/κ = 0.0158
    >>> print(optimal_step(many, 0.1), "and not", optimal_step(few, 0.1, printed=True))
    ε^⅔(μ/d)^⅓/(κ^⅓n^⅔) = 0.000794 and not ε^⅔(μ/d)^⅓/(κ^⅓n^⅔) = 0.0315
    """
    facts, eps = as_problem(problem), accuracy_of(accuracy)
    one_of("method", method, ("sg-hmc", "svr-hmc") if printed else TABLE)
    kappa, delta, rho, mu = facts.condition_number, eps / facts.scale, facts.variance_ratio, facts.convexity
    overdamped = method in ("lmc", "sgld")
    smooth = Term("ε²/(κ²d)", delta**2 / (kappa**2 * mu)) if overdamped else Term("ε(μ/d)^½/κ", delta / kappa)
    if method in ("lmc", "hmc"):
        return smooth
    if method == "svr-hmc":
        aged = Term("ε^⅔(μ/d)^⅓/(κ^⅓n^⅔)", (delta / (facts.n * math.sqrt(kappa * rho))) ** (2 / 3))
        young = Term("ε²μ/(κ³d)", delta**2 / (kappa**3 * rho))
        return aged if printed else _least(smooth, max(aged, young, key=lambda bound: bound.value))
    V = facts.gradient_variance
    if V is None:
        raise requirement("gradient_variance", f"given for {LABELS[method]}", "None")
    if V == 0 and not printed:
        return smooth
    value = math.inf if V == 0 else mu * eps**2 / V if overdamped else facts.smoothness**2 * eps**2 / (kappa * V)
    noisy = Term("ε²/(κLdσ²)" if overdamped else "ε²/(κdσ²)", value)
    return noisy if printed else _least(smooth, noisy)


def _least(*bounds: Term) -> Term:
    return min(bounds, key=lambda bound: bound.value)
