"""Table 1 of the paper: how many component gradients each method needs for W₂ ≤ ε, by its leading terms.

With δ = ε/√(d/μ), the accuracy in units of the posterior's scale, and G = gradient_variance/(μ²ε²),

    LMC       nκ²/δ²                    = nκ²d/(με²)                                             Dalalyan & Karagulyan
    HMC       nκ²/δ                     = nκ²(d/μ)^{1/2}/ε                                       Cheng et al.; Theorem 1
    SGLD      G                         = κ²dσ²/ε² with dσ² = gradient_variance/L²               Dalalyan & Karagulyan
    SG-HMC    G                                                                                  Cheng et al.
    SVR-HMC   n + κ²/δ + κ^{4/3}n^{2/3}/δ^{2/3}                                                  Corollary

Logarithms and constants are left out, as in the paper; units are kept, which it drops ("when μ and L appear
individually, they can be treated as constants"). The table prints κ^{3/4} in the last row; κ^{4/3} is what the
Corollary proves. SGLD and SG-HMC are given for gradients whose noise dominates, as in the table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from svrhmc.errors import one_of, positive, requirement
from svrhmc.samplers import LABELS
from svrhmc.theory.problem import Problem

TABLE = ("lmc", "hmc", "sgld", "sg-hmc", "svr-hmc")
_NOISY = ("sgld", "sg-hmc")


@dataclass(frozen=True)
class Term:
    """One term of a complexity: its formula, and its value at the problem's constants."""

    formula: str
    value: float


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
        if self.problem.gradient_variance is None:
            lines.append("  SGLD and SG-HMC need gradient_variance.")
        lines.append("With n alone changed:")
        lines += [
            f"  n from {_count(regime.low)} to {_count(regime.high)}: {LABELS[regime.cheapest]} is cheapest, "
            f"SVR-HMC's {regime.dominant} dominates{' (' + regime.remark + ')' if regime.remark else ''}"
            for regime in self.regimes
        ]
        return "\n".join(lines)


def complexity(problem: Problem, accuracy: float, method: str, printed: bool = False) -> Complexity:
    """The leading terms of a row of Table 1; `printed=True` keeps the table's κ^{3/4}.

    >>> problem = Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0)
    >>> [round(term.value) for term in complexity(problem, accuracy=0.1, method="svr-hmc").terms]
    [1000, 126, 2520]
    """
    one_of("method", method, TABLE)
    eps, n, kappa = positive("accuracy", accuracy), problem.n, problem.condition_number
    delta = eps / problem.scale
    if method == "lmc":
        return Complexity(method, (Term("nκ²d/(με²)", n * kappa**2 / delta**2),))
    if method == "hmc":
        return Complexity(method, (Term("nκ²(d/μ)^½/ε", n * kappa**2 / delta),))
    if method in _NOISY:
        if problem.gradient_variance is None:
            raise requirement("gradient_variance", f"given for {LABELS[method]}", "None")
        noise = problem.gradient_variance / (problem.convexity * eps) ** 2
        return Complexity(method, (Term("κ²dσ²/ε²", noise),))
    power, shown = (3 / 4, "κ^¾") if printed else (4 / 3, "κ^{4/3}")
    return Complexity(
        method,
        (
            Term("n", float(n)),
            Term("κ²(d/μ)^½/ε", kappa**2 / delta),
            Term(f"{shown}(d/μ)^⅓n^⅔/ε^⅔", kappa**power * n ** (2 / 3) / delta ** (2 / 3)),
        ),
    )


def compare(problem: Problem, accuracy: float) -> Comparison:
    """Table 1 at these constants, the cheapest method, and the regimes of n of the paper's Remark.

    >>> compare(Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0, gradient_variance=1e4), accuracy=0.1).cheapest
    'svr-hmc'
    """
    rows = tuple(complexity(problem, accuracy, method) for method in _known(problem))
    return Comparison(problem, positive("accuracy", accuracy), rows, regimes(problem, accuracy))


def boundaries(problem: Problem, accuracy: float) -> dict[str, float]:
    """The values of n at which something changes in the Remark after the Corollary.

    n₁ = κ δ^{−1/2}: SVR-HMC's second and third term are equal           (paper: κd^{1/4}/ε^{1/2})
    n₂ = δ G^{3/2}/κ²: its third term equals SG-HMC                      (paper: κdσ³/ε²)
    n₃ = κ⁴ δ^{−2}: its third term equals n                              (paper: κ⁴d/ε²)
    """
    delta, kappa = positive("accuracy", accuracy) / problem.scale, problem.condition_number
    found = {"n1": kappa / math.sqrt(delta), "n3": kappa**4 / delta**2}
    if problem.gradient_variance is not None:
        noise = complexity(problem, accuracy, "sg-hmc").total
        found["n2"] = delta * noise**1.5 / kappa**2
    return found


def regimes(problem: Problem, accuracy: float) -> tuple[Regime, ...]:
    """Ranges of n, all else fixed, by dominant term and cheapest method; the paper's Remark names three.

    It leaves out κdσ³/ε² < n < κ⁴d/ε², where the third term dominates but SG-HMC is cheaper.
    """
    edges = sorted({1.0, math.inf, *(max(1.0, value) for value in boundaries(problem, accuracy).values())})
    found: list[Regime] = []
    for low, high in pairwise(edges):
        inside = math.sqrt(low * high) if math.isfinite(high) else low * 1e6
        rows = [complexity(replace(problem, n=max(1, round(inside))), accuracy, method) for method in _known(problem)]
        dominant = rows[-1].dominant.formula
        cheapest = _least(rows)
        remark = "left out by the paper" if cheapest in _NOISY and dominant == rows[-1].terms[2].formula else ""
        found.append(Regime(low, high, dominant, cheapest, remark))
    return tuple(found)


def crossings(problem: Problem, accuracy: float, high: float = 1e18) -> tuple[float, ...]:
    """The values of n up to `high`, all else fixed, at which another method becomes the cheapest.

    >>> problem = Problem(n=1000, dim=10, smoothness=2.0, convexity=1.0, gradient_variance=1e4)
    >>> [round(n) for n in crossings(problem, accuracy=0.1)]
    [1, 785374]
    """

    def cheapest(n: float) -> str:
        rows = [complexity(replace(problem, n=max(1, round(n))), accuracy, method) for method in _known(problem)]
        return _least(rows)

    found = []
    for left, right in pairwise(high ** (k / 200) for k in range(201)):
        before = cheapest(left)
        if cheapest(right) != before:
            while right / left > 1 + 1e-9 and right - left > 0.5:
                middle = math.sqrt(left * right)
                left, right = (middle, right) if cheapest(middle) == before else (left, middle)
            found.append(left)
    return tuple(found)


def _least(rows: Sequence[Complexity]) -> str:
    """The cheapest method; of SGLD and SG-HMC, which the table has as equals, SG-HMC, as the Remark does."""
    return min(reversed(rows), key=lambda row: row.total).method


def _known(problem: Problem) -> list[str]:
    """The rows that can be evaluated."""
    return [method for method in TABLE if method not in _NOISY or problem.gradient_variance is not None]


def _count(n: float) -> str:
    return "∞" if math.isinf(n) else f"{n:.3g}"
