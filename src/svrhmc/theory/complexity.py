"""Table 1 of the paper: how many component gradients each method needs for W₂ ≤ ε, by its leading terms.

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

from svrhmc.core.errors import one_of, requirement
from svrhmc.samplers import LABELS
from svrhmc.targets.base import FiniteSum
from svrhmc.theory.problem import Problem, accuracy_of, as_problem, held

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
        """Their sum."""
        return sum(term.value for term in self.terms)

    @property
    def dominant(self) -> Term:
        """The largest."""
        return max(self.terms, key=lambda term: term.value)


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


@held
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


@held
def compare(problem: Problem | FiniteSum, accuracy: float, printed: bool = False) -> Comparison:
    """Table 1 at these constants, the cheapest method, and the regimes of n of the paper's Remark.

    >>> compare(Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0, gradient_variance=1e4), accuracy=0.1).cheapest
    'svr-hmc'
    """
    facts, eps = as_problem(problem), accuracy_of(accuracy)
    return Comparison(facts, eps, tuple(_rows(facts, eps, facts.n, printed)), regimes(facts, eps, printed))


@held
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
    found = {"n1": kappa / math.sqrt(delta * rho), "n3": kappa**4 * rho / delta**2}
    if facts.gradient_variance is not None:
        found["n2"] = delta * _row(facts, eps, "sg-hmc", 1.0, printed=True).total ** 1.5 / (kappa**2 * math.sqrt(rho))
    return found


@held
def regimes(problem: Problem | FiniteSum, accuracy: float, printed: bool = False) -> tuple[Regime, ...]:
    """Ranges of n, all else fixed, by dominant term and cheapest method; the paper's Remark names three.

    It leaves out κdσ³/ε² < n < κ⁴d/ε², where the third term dominates but SG-HMC is cheaper.
    """
    facts, eps = as_problem(problem), accuracy_of(accuracy)
    edges = [value for name, value in boundaries(facts, eps).items() if name != "n2"]
    cuts = {*edges, *crossings(facts, eps, printed=printed)}
    found: list[Regime] = []
    for low, high in pairwise(sorted({1.0, math.inf, *(value for value in cuts if value > 1)})):
        inside = math.sqrt(low * high) if math.isfinite(high) else low * 1e6
        rows = _rows(facts, eps, inside, printed)
        dominant, cheapest = rows[-1].dominant.formula, _least(rows)
        remark = "left out by the paper" if cheapest in _NOISY and dominant == rows[-1].terms[2].formula else ""
        found.append(Regime(low, high, dominant, cheapest, remark))
    return tuple(found)


@held
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

    found = []
    for left, right in pairwise(high ** (k / 300) for k in range(301)):
        before = cheapest(left)
        if cheapest(right) != before:
            while right / left > 1 + 1e-12:
                middle = math.sqrt(left * right)
                if not left < middle < right:
                    break
                left, right = (middle, right) if cheapest(middle) == before else (left, middle)
            found.append(left)
    return tuple(found)


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
        if problem.gradient_variance is None:
            raise requirement("gradient_variance", f"given for {LABELS[method]}", "None")
        noise = Term("κ²dσ²/ε²", problem.gradient_variance / (problem.convexity * eps) ** 2)
        return Complexity(method, (noise,) if printed else (Term(formula, slow), noise))
    power, shown = (3 / 4, "κ^¾") if printed else (4 / 3, "κ^{4/3}")
    third = kappa**power * (problem.variance_ratio * n**2 / delta**2) ** (1 / 3)
    return Complexity(method, (Term("n", n), Term(formula, slow), Term(f"{shown}(d/μ)^⅓n^⅔/ε^⅔", third)))


def _rows(problem: Problem, eps: float, n: float, printed: bool = False) -> list[Complexity]:
    """The rows that can be evaluated."""
    known = [method for method in TABLE if method not in _NOISY or problem.gradient_variance is not None]
    return [_row(problem, eps, method, n, printed) for method in known]


def _least(rows: Sequence[Complexity]) -> str:
    """The cheapest method; of SGLD and SG-HMC, which the printed table has as equals, SG-HMC, as the Remark does."""
    return min(reversed(rows), key=lambda row: row.total).method


def _count(n: float) -> str:
    return "∞" if math.isinf(n) else f"{n:.3g}"
