"""Real y = μ + s·(Student's t with ν degrees of freedom), ν given: outliers pull little.

    t = (μ, log s),     r = (y − μ)/s,     ℓ = log s + ½(ν + 1) log(1 + r²/ν).

ℓ is not convex in t, not even in μ, and has no bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import positive
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, family
from svrhmc.families.bounds import Bounded
from svrhmc.families.gaussian import LocationScale, location_scale
from svrhmc.families.laws import Law, student
from svrhmc.families.primitives import Fields, Primitives, Value


@family
def student_t(df: float = 4.0) -> Loss:
    """Real y = t + scale·(Student's t with df degrees of freedom), log scale the last coordinate of x.

    >>> student_t(7.0)
    StudentLoss(df=7.0)
    """
    return StudentLoss(df)


class StudentT(NamedTuple):
    """log s + ½(ν + 1) log(1 + r²/ν)."""

    df: float
    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """h = ½(ν + 1) log(1 + r²/ν), g = (ν + 1)r/(ν + r²), g′ = (ν + 1)(ν − r²)/(ν + r²)²."""
        log1p = op.log1p

        def value_of(loss: Fields, r: Value) -> Value:
            return 0.5 * (loss.df + 1.0) * log1p(r * r / loss.df)

        def slope_of(loss: Fields, r: Value) -> Value:
            return (loss.df + 1.0) * r / (loss.df + r * r)

        def bend_of(loss: Fields, r: Value) -> Value:
            v, total = loss.df, loss.df + r * r
            return (v + 1) * (v - r * r) / total**2, 2 * v * (v + 1) * r / total**2

        return location_scale(op, value_of, slope_of, bend_of)


@part
@dataclass(frozen=True)
class StudentLoss(LocationScale):
    """y = μ + s·t_ν, t = (μ, log s), with the degrees of freedom ν given: outliers pull little."""

    inverse_link = "identity"
    name = "student-t"
    mistaken = ("t", "student")
    modelled = "the centre of {response}"
    shared_names = ("log scale",)
    without_residuals = "take the family 'gaussian', or drop columns"
    nanoseconds = 4.6
    kernel = StudentT
    df: float = 4.0

    def __post_init__(self) -> None:
        positive("df", self.df)

    @property
    def numbers(self) -> tuple[float, ...]:
        """ν."""
        return (self.df,)

    def with_bounds(self) -> Loss:
        return BoundedStudentLoss(df=self.df)

    def shared_start(self, y: Array) -> Array:
        """The log of the median distance to the median."""
        away = float(np.median(np.abs(y - np.median(y))))
        return np.array([math.log(away)]) if away > 0 else super().shared_start(y)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log Γ(ν/2)√(νπ)/Γ((ν + 1)/2)."""
        v = self.df
        value = math.lgamma(v / 2) - math.lgamma((v + 1) / 2) + 0.5 * math.log(v * math.pi)
        return np.full(np.shape(y), value)

    def link_variance(self, mean: Array, shared: Array) -> Array | None:
        """scale²ν/(ν − 2); None for ν ≤ 2, where it is infinite."""
        return np.exp(2 * shared[:, 0]) * self.df / (self.df - 2) if self.df > 2 else None

    def variance(self, t: Array) -> Array | None:
        """scale²ν/(ν − 2); None for ν ≤ 2, where it is infinite."""
        return np.exp(2 * t[..., 1]) * self.df / (self.df - 2) if self.df > 2 else None

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """μ + s times the quantile of Student's t."""
        from scipy.special import stdtrit

        return np.asarray(t[..., 0] + np.exp(t[..., 1]) * stdtrit(self.df, u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of Student's t at r."""
        from scipy.special import stdtr

        p = np.asarray(stdtr(self.df, self.residual(t, y)), np.float64)
        return p, p


@part
@dataclass(frozen=True)
class BoundedStudentLoss(Bounded, StudentLoss):
    """The same within bounds."""

    @property
    def law(self) -> Law:
        return student(self.df)

    @property
    def without_bounds(self) -> Loss:
        return StudentLoss(self.df)
