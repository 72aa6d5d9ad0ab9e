"""Table 1 of the paper: how many component gradients each method needs for W₂ ≤ ε, by its leading terms; and Theorem 2.

With δ = ε/√(d/μ), the accuracy in units of the posterior's scale, V = gradient_variance and G = V/(μ²ε²),

    LMC       nκ²/δ²                                        = nκ²d/(με²)                         Dalalyan & Karagulyan
    HMC       nκ²/δ                                         = nκ²(d/μ)^{1/2}/ε                   Cheng et al.; Theorem 1
    SGLD      κ²/δ² + G        printed: G                   = κ²dσ²/ε² with dσ² = V/L²           Dalalyan & Karagulyan
    SG-HMC    κ²/δ + G         printed: G                                                        Cheng et al.
    SVR-HMC   n + κ²/δ + κ^{4/3}(ρn²)^{1/3}/δ^{2/3}         printed: κ^{3/4}                     Corollary

ρ = Λ²/L² is 1 in the paper, whose L bounds every component (see `Problem.variance_ratio`). Logarithms and constants are
left out, as in the paper; units are kept, which it drops. `printed=True` gives the rows as the paper prints them.

Each row follows from Lemma 5: if w²_{k+1} ≤ ((1 − A)w_k + C)² + B², then w_K ≤ (1 − A)^K w₀ + C/A + B/√A. The first
term takes K = 1/A steps, up to a logarithm. With A of order ητ⁻¹, that is a time Kη = τ; the others bound the step, and
K = τ/η is at most the sum of τ over each of these bounds.

               τ     C/A ≤ ε, discretisation        B/√A ≤ ε with B = η√V (underdamped: ηu√V)
    overdamped   1/μ   κ√(ηd): η ≤ δ²/(κ²μ)           √(ηV/μ): η ≤ με²/V
    underdamped  κ     ηκ√(d/μ): η ≤ δ/κ              √(κηV)/L: η ≤ L²ε²/(κV)

A gradient from one row has noise of variance V, that of a snapshot B = η²m√(ρd/μ) (Lemma 3), or η ≤ (δ/(m√(κρ)))^{2/3},
and the full one none. So SGLD takes K = κ²/δ² + G steps and SG-HMC κ²/δ + G, one gradient each. The first terms, which
the paper's table leaves out, are what these steps need without any noise: those of LMC and HMC with one gradient where
these have n. (A batch of B rows divides V by B and costs B: nothing changes.) Without them V = 0 would cost nothing.
V stands for a bound at every x, as the cited works assume; where curvatures differ the noise at distance √(d/μ) from x*
is up to Λ²d/μ more than at x*, which would add ρκ²/δ² to G, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from svrhmc.core.errors import one_of, positive, requirement, whole_number
from svrhmc.density.base import FiniteSum
from svrhmc.samplers import LABELS
from svrhmc.theory.problem import Problem, accuracy_of, as_problem, refuses_overflow

TABLE = ("lmc", "hmc", "sgld", "sg-hmc", "svr-hmc")
_NOISY = ("sgld", "sg-hmc")


@dataclass(frozen=True)
class Term:
    """One term of a complexity, or one bound on a step: its formula, and its value at the problem's constants."""

    formula: str
    value: float

    def __str__(self) -> str:
        return f"{self.formula} = {self.value:.3g}"


@dataclass(frozen=True)
class Complexity:
    """Leading terms of one method's gradient complexity."""

    method: str
    terms: tuple[Term, ...]

    @property
    def total(self) -> float:
        """The sum of all terms."""
        return sum(term.value for term in self.terms)

    @property
    def dominant(self) -> Term:
        """The term with the largest value."""
        return max(self.terms, key=_value)


@dataclass(frozen=True)
class Regime:
    """A range of n in which one term of SVR-HMC dominates and one method is cheapest."""

    low: float
    high: float
    dominant: str
    cheapest: str
    remark: str


@dataclass(frozen=True)
class Comparison:
    """Table 1 at the constants of one problem; prints as a table."""

    problem: Problem
    accuracy: float
    rows: tuple[Complexity, ...]
    regimes: tuple[Regime, ...]

    @property
    def cheapest(self) -> str:
        """The method with the smallest total."""
        return _least(self.rows)

    def __str__(self) -> str:
        lines = [f"Gradient complexity for W₂ ≤ {self.accuracy:g} (leading terms, no logarithms): {self.problem}"]
        for row in self.rows:
            formula = " + ".join(term.formula for term in row.terms)
            mark = "  ← cheapest" if row.method == self.cheapest else ""
            lines.append(f"  {LABELS[row.method]:<8} {row.total:10.3g}   {formula}{mark}")
        return "\n".join([*lines, *self.remarks])

    @property
    def remarks(self) -> list[str]:
        """What is missing, and the regimes, a line each."""
        lines = ["SGLD and SG-HMC need gradient_variance."] if self.problem.gradient_variance is None else []
        lines.append("With n alone changed:")
        lines += [
            f"  n from {_count(regime.low)} to {_count(regime.high)}: {LABELS[regime.cheapest]} is cheapest, "
            f"SVR-HMC's {regime.dominant} dominates{' (' + regime.remark + ')' if regime.remark else ''}"
            for regime in self.regimes
        ]
        return lines


@refuses_overflow
def complexity(problem: Problem | FiniteSum, accuracy: float, method: str, printed: bool = False) -> Complexity:
    """The leading terms of a row of Table 1; `printed=True` gives the row as the paper prints it.

    >>> problem = Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0)
    >>> [round(term.value) for term in complexity(problem, accuracy=0.1, method="svr-hmc").terms]
    [1000, 126, 2520]
    >>> quiet = Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0, gradient_variance=0.0)
    >>> [round(complexity(quiet, 0.1, "sg-hmc", printed).total) for printed in (False, True)]
    [126, 0]
    """
    one_of("method", method, TABLE)
    facts = as_problem(problem)
    return _row(facts, accuracy_of(accuracy), method, facts.n, printed)


@refuses_overflow
def compare(problem: Problem | FiniteSum, accuracy: float, printed: bool = False) -> Comparison:
    """Table 1 at these constants, the cheapest method, and the regimes of n of the paper's Remark.

    >>> compare(Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0, gradient_variance=1e4), accuracy=0.1).cheapest
    'svr-hmc'
    """
    facts, eps = as_problem(problem), accuracy_of(accuracy)
    return Comparison(facts, eps, tuple(_rows(facts, eps, facts.n, printed)), regimes(facts, eps, printed))


@refuses_overflow
def boundaries(problem: Problem | FiniteSum, accuracy: float) -> dict[str, float]:
    """The values of n at which something changes in the Remark after the Corollary.

    n₁ = κ δ^{−1/2} ρ^{−1/2}: SVR-HMC's second and third term are equal     (paper: κd^{1/4}/ε^{1/2})
    n₂ = δ G^{3/2}/(κ²ρ^{1/2}): its third term equals G, the noise of SG-HMC (paper: κdσ³/ε²)
    n₃ = κ⁴ρ δ^{−2}: its third term equals n                                 (paper: κ⁴d/ε²)

    Both methods need κ²/δ beside these, so that n₂ is where they cost the same whether that is counted or not.
    """
    facts = as_problem(problem)
    eps = accuracy_of(accuracy)
    delta, kappa, rho = eps / facts.scale, facts.condition_number, facts.variance_ratio
    edges = {"n1": kappa / math.sqrt(delta * rho), "n3": kappa**4 * rho / delta**2}
    if facts.gradient_variance is not None:
        noise = _row(facts, eps, "sg-hmc", 1.0, printed=True).total
        edges["n2"] = delta * noise**1.5 / (kappa**2 * math.sqrt(rho))
    return edges


@refuses_overflow
def regimes(problem: Problem | FiniteSum, accuracy: float, printed: bool = False) -> tuple[Regime, ...]:
    """Ranges of n, all else fixed, by dominant term and cheapest method; the paper's Remark names three.

    It leaves out κdσ³/ε² < n < κ⁴d/ε², where the third term dominates but SG-HMC is cheaper.
    """
    facts, eps = as_problem(problem), accuracy_of(accuracy)
    edges = [value for name, value in boundaries(facts, eps).items() if name != "n2"]
    cuts = {*edges, *crossings(facts, eps, printed=printed)}
    ranges = []
    for low, high in pairwise(sorted({1.0, math.inf, *(value for value in cuts if value > 1)})):
        inside = math.sqrt(low * high) if math.isfinite(high) else low * 1e6
        rows = _rows(facts, eps, inside, printed)
        dominant, cheapest = rows[-1].dominant.formula, _least(rows)
        remark = "left out by the paper" if cheapest in _NOISY and dominant == rows[-1].terms[2].formula else ""
        ranges.append(Regime(low, high, dominant, cheapest, remark))
    return tuple(ranges)


@refuses_overflow
def crossings(
    problem: Problem | FiniteSum, accuracy: float, high: float = 1e30, printed: bool = False
) -> tuple[float, ...]:
    """The values of n from 1 to `high`, all else fixed, at which another method becomes the cheapest.

    >>> problem = Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0, gradient_variance=1e4)
    >>> [round(n, 2) for n in crossings(problem, accuracy=0.1)]
    [1.24, 785481.83]
    """
    facts, eps = as_problem(problem), accuracy_of(accuracy)

    def cheapest(n: float) -> str:
        return _least(_rows(facts, eps, n, printed))

    edges = []
    for left, right in pairwise(high ** (k / 300) for k in range(301)):
        before = cheapest(left)
        if cheapest(right) != before:
            while right / left > 1 + 1e-12:
                middle = math.sqrt(left * right)
                if not left < middle < right:
                    break
                left, right = (middle, right) if cheapest(middle) == before else (left, middle)
            edges.append(left)
    return tuple(edges)


@refuses_overflow
def optimal_step(problem: Problem | FiniteSum, accuracy: float, method: str = "svr-hmc", printed: bool = False) -> Term:
    """The order of the step for W₂ ≤ accuracy, without constants or logarithms, and the bound that decides it.

    The least of the bounds that the discretisation and the gradient's noise set (above), which the Remark after the
    Corollary calls optimal. With δ = ε/√(d/μ), V = gradient_variance, ρ = Λ²/L²:

        LMC       δ²/(κ²μ) = ε²/(κ²d)
        SGLD      the same, or με²/V
        HMC       δ/κ = (ε/κ)(μ/d)^{1/2}
        SG-HMC    the same, or L²ε²/(κV)                                           (paper: ε²/(κdσ²), dσ² = V/L²)
        SVR-HMC   the same for n ≤ n₁ = κ(δρ)^{−1/2},
                  (δ/(n√(κρ)))^{2/3} = ε^{2/3}(μ/d)^{1/3}/((κρ)^{1/3}n^{2/3}) from n₁ to n₃ = κ⁴ρδ^{−2},
                  δ²/(κ³ρ) for n ≥ n₃

    A step of overdamped dynamics has the unit of a variance; one of underdamped dynamics (u = 1/L, γ = 2) has none.
    From n₃ on a run has fewer than n steps, so that its snapshot is never older than the run, m = K and not n: K = κ/η
    in η = (δ/(K√(κρ)))^{2/3} gives δ²/(κ³ρ), with which K = n₃ ≤ n. `printed=True` gives the steps that the Remark
    names, of SVR-HMC (the middle one for every n, which for n < n₁ is (n₁/n)^{2/3} times too long) and of SG-HMC.

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
        return aged if printed else min(smooth, max(aged, young, key=_value), key=_value)
    V = _variance(facts, method)
    if V == 0 and not printed:
        return smooth
    value = math.inf if V == 0 else mu * eps**2 / V if overdamped else facts.smoothness**2 * eps**2 / (kappa * V)
    noisy = Term("ε²/(κLdσ²)" if overdamped else "ε²/(κdσ²)", value)
    return noisy if printed else min(smooth, noisy, key=_value)


# Targets that are log-concave, but not strongly so (section 4.2). With π̄ ∝ exp(−f − (λ/2)|x − c|²),
# M = E_π|x − c|⁴ ≤ Ūd² (Assumption 3) and λ = ε²/M, the distance from π̄ to π is at most ε/2, and ε/2 is left for the
# sampler, on a target with μ̄ = λ and L̄ = L + λ.


@refuses_overflow
def regularisation_distance(strength: float, fourth_moment: float) -> float:
    """A bound on W₂(π̄, π) for π̄ ∝ exp(−f − (λ/2)|x − c|²), given E_π|x − c|⁴ ≤ fourth_moment.

        KL(π‖π̄) ≤ ½ E_π (f̄ − f)² = (λ²/8) E_π|x − c|⁴            (Lemma 8)
        W₂(π̄, π) ≤ √(2 KL(π‖π̄)/λ) ≤ ½ √(λ E_π|x − c|⁴)          (Lemma 9, Talagrand; the proof of Theorem 2)

    >>> regularisation_distance(strength=0.04, fourth_moment=1.0)
    0.1
    """
    return 0.5 * math.sqrt(positive("strength", strength)) * math.sqrt(positive("fourth_moment", fourth_moment))


@refuses_overflow
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


@refuses_overflow
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
    rows, d = whole_number("n", n, 1, 1 << 62), whole_number("dim", dim, 1, 1 << 62)
    eps, M = accuracy_of(accuracy), positive("fourth_moment", fourth_moment)
    if eps**4 > 16 * M:
        raise requirement("accuracy", f"at most 2M^(1/4) = {2 * M**0.25:.3g}", f"{eps:g}", "TV is at most 1")
    tv, kl = eps**4 / (16 * M), eps**4 / (8 * M)
    return (
        OtherRate("Dalalyan 2014", "TV", "nd³/ε⁴", rows * d**3 / eps**4, tv, rows * d**3 / tv**4),
        OtherRate("Durmus & Moulines 2017", "TV", "nd⁵/ε²", rows * d**5 / eps**2, tv, rows * d**5 / tv**2),
        OtherRate("Cheng & Bartlett 2017", "KL", "nd/ε³", rows * d / eps**3, kl, rows * d / kl**3),
    )


def cost(problem: Problem, accuracy: float, method: str, n: float) -> float:
    """The total of a row with another n, which need not be whole."""
    return _row(problem, accuracy, method, n).total


def _row(problem: Problem, eps: float, method: str, n: float, printed: bool = False) -> Complexity:
    kappa, delta = problem.condition_number, eps / problem.scale
    if method in ("lmc", "sgld"):
        slow, formula = kappa**2 / delta**2, "κ²d/(με²)"
    else:
        slow, formula = kappa**2 / delta, "κ²(d/μ)^½/ε"
    if method in ("lmc", "hmc"):
        return Complexity(method, (Term(f"n{formula}", n * slow),))
    if method in _NOISY:
        noise = Term("κ²dσ²/ε²", _variance(problem, method) / (problem.convexity * eps) ** 2)
        return Complexity(method, (noise,) if printed else (Term(formula, slow), noise))
    power, shown = (3 / 4, "κ^¾") if printed else (4 / 3, "κ^{4/3}")
    third = kappa**power * (problem.variance_ratio * n**2 / delta**2) ** (1 / 3)
    return Complexity(method, (Term("n", n), Term(formula, slow), Term(f"{shown}(d/μ)^⅓n^⅔/ε^⅔", third)))


def _rows(problem: Problem, eps: float, n: float, printed: bool = False) -> list[Complexity]:
    """The rows that can be evaluated."""
    methods = [method for method in TABLE if method not in _NOISY or problem.gradient_variance is not None]
    return [_row(problem, eps, method, n, printed) for method in methods]


def _least(rows: Sequence[Complexity]) -> str:
    """The cheapest method; of SGLD and SG-HMC, which the printed table has as equals, SG-HMC, as the Remark does."""
    return min(reversed(rows), key=lambda row: row.total).method


def _value(term: Term) -> float:
    return term.value


def _variance(problem: Problem, method: str) -> float:
    if problem.gradient_variance is None:
        raise requirement("gradient_variance", f"given for {LABELS[method]}", "None")
    return problem.gradient_variance


def _count(n: float) -> str:
    return "∞" if math.isinf(n) else f"{n:.3g}"
