"""Targets that are log-concave, but not strongly so (paper, section 4.2): the quadratic added to them, what a run then
costs (Theorem 2), and how that compares with rates known in total variation and in Kullback–Leibler divergence.

With π̄ ∝ exp(−f − (λ/2)|x − c|²), M = E_π|x − c|⁴ ≤ Ūd² (Assumption 3) and λ = ε²/M, the distance from π̄ to π is at most
ε/2, and ε/2 is left for the sampler, on a target with μ̄ = λ and L̄ = L + λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from svrhmc.core.errors import positive, requirement, whole
from svrhmc.theory.complexity import Complexity, complexity
from svrhmc.theory.problem import Problem, accuracy_of, held


@held
def regularisation_distance(strength: float, fourth_moment: float) -> float:
    """A bound on W₂(π̄, π) for π̄ ∝ exp(−f − (λ/2)|x − c|²), given E_π|x − c|⁴ ≤ fourth_moment.

        KL(π‖π̄) ≤ ½ E_π (f̄ − f)² = (λ²/8) E_π|x − c|⁴            (Lemma 8)
        W₂(π̄, π) ≤ √(2 KL(π‖π̄)/λ) ≤ ½ √(λ E_π|x − c|⁴)          (Lemma 9, Talagrand; the proof of Theorem 2)

    >>> regularisation_distance(strength=0.04, fourth_moment=1.0)
    0.1
    """
    return 0.5 * math.sqrt(positive("strength", strength)) * math.sqrt(positive("fourth_moment", fourth_moment))


@held
def general_complexity(
    n: int,
    dim: int,
    smoothness: float,
    fourth_moment: float,
    accuracy: float,
    method: str = "svr-hmc",
    component_smoothness: float | None = None,
    convex_components: bool = True,
    gradient_variance: float | None = None,
) -> Complexity:
    """Theorem 2: leading terms of what W₂(P(x_K), π) ≤ ε costs where f is L-smooth and convex, E_π|x − c|⁴ ≤ M.

    A row of Table 1 for π̄ and ε/2, that is with λ = ε²/M, κ̄ = (L + λ)/λ and δ̄ = ε/(2√(d/λ)). For SVR-HMC, where λ ≪ L,

        n + κ̄²/δ̄ + κ̄^{4/3}(ρn²)^{1/3}/δ̄^{2/3}
            = n + 2L²d^{1/2}λ^{−5/2}/ε + (2L²d^{1/2}λ^{−5/2}√ρ n/ε)^{2/3}
            = n + 2L²d^{1/2}M^{5/2}/ε⁶ + (2L²√ρ d^{1/2}M^{5/2}n)^{2/3}/ε⁴,

    and with M = Ūd² the powers are those of the paper: n + d^{11/2}/ε⁶ + d^{11/3}n^{2/3}/ε⁴. (HMC: nd^{11/2}/ε⁶, LMC:
    nd⁷/ε⁸.) The condition η² ≤ log 2/(36κK), which the proof of the Corollary uses without saying so, would add
    κ̄³ = d⁶/ε⁶ (docs/errata.md, A2); the repaired bound does not need it.

    >>> [f"{term.value:.3g}" for term in general_complexity(1000, 2, 1.0, 4.0, 0.1).terms]
    ['1e+03', '9.1e+07', '2.02e+07']
    """
    eps = accuracy_of(accuracy)
    L, strength = positive("smoothness", smoothness), eps**2 / positive("fourth_moment", fourth_moment)
    rough = None if component_smoothness is None else positive("component_smoothness", component_smoothness) + strength
    problem = Problem(
        n, dim, L + strength, strength, 0.0, gradient_variance, rough, convex_components=convex_components
    )
    return complexity(problem, eps / 2, method)


@dataclass(frozen=True)
class OtherRate:
    """A rate for log-concave targets in another distance, and what it says about W₂.

    source: who proved it.
    metric: the distance, "TV" or "KL".
    formula: the rate.
    own: the gradients needed for `metric` ≤ ε, as the paper cites it.
    needed: the accuracy in that metric that guarantees W₂ ≤ ε.
    gradients: the gradients needed for that accuracy.
    """

    source: str
    metric: str
    formula: str
    own: float
    needed: float
    gradients: float


@held
def other_rates(n: int, dim: int, accuracy: float, fourth_moment: float) -> tuple[OtherRate, ...]:
    """The rates of LMC that section 4.2 names beside Theorem 2, and what they come to in W₂.

        Dalalyan 2014              TV    nd³/ε⁴
        Durmus & Moulines 2017     TV    nd⁵/ε²
        Cheng & Bartlett 2017      KL    nd/ε³

    The paper says that they are not comparable with Theorem 2. In one direction this is true: a small W₂ bounds neither
    TV nor KL. In the other they can be compared, if fourth moments about c, also those of the chain, are at most M:

        W₂(P, π)² ≤ 2∫|x − c|² d|P − π| ≤ 2√(2TV)·√(E_P|x − c|⁴ + E_π|x − c|⁴) ≤ 4√(M TV)

    (Villani 2009, Theorem 6.15, and the Cauchy–Schwarz inequality; |P − π| has mass 2TV), so that TV = ε⁴/(16M) makes
    sure of W₂ ≤ ε. For KL it is better to run the chain on π̄, which is λ-strongly log-concave, with
    W₂(P, π̄) ≤ √(2KL(P‖π̄)/λ) (Lemma 9): λ = ε²/M and KL = λε²/8 = ε⁴/(8M). At those accuracies, with M = Ūd², the three
    rates are nd¹¹/ε¹⁶, nd⁹/ε⁸ and nd⁷/ε¹²; Theorem 2 has n + d^{11/2}/ε⁶ + d^{11/3}n^{2/3}/ε⁴, which has smaller powers
    than each of them. Constants are those of no theorem: these are orders.

    >>> [f"{rate.gradients:.1g}" for rate in other_rates(1000, 10, 0.1, fourth_moment=100.0)]
    ['7e+34', '3e+22', '5e+24']
    >>> f"{general_complexity(1000, 10, 1.0, fourth_moment=100.0, accuracy=0.1).total:.1g}"
    '6e+11'
    """
    rows, d = whole("n", n, 1, 1 << 62), whole("dim", dim, 1, 1 << 62)
    eps, M = accuracy_of(accuracy), positive("fourth_moment", fourth_moment)
    if eps**4 > 16 * M:
        raise requirement("accuracy", f"at most 2M^(1/4) = {2 * M**0.25:.3g}", f"{eps:g}", "TV is at most 1")
    tv, kl = eps**4 / (16 * M), eps**4 / (8 * M)
    return (
        OtherRate("Dalalyan 2014", "TV", "nd³/ε⁴", rows * d**3 / eps**4, tv, rows * d**3 / tv**4),
        OtherRate("Durmus & Moulines 2017", "TV", "nd⁵/ε²", rows * d**5 / eps**2, tv, rows * d**5 / tv**2),
        OtherRate("Cheng & Bartlett 2017", "KL", "nd/ε³", rows * d / eps**3, kl, rows * d / kl**3),
    )
