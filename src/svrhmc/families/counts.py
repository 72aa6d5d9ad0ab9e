"""Base classes of families of counts y = 0, 1, 2, …: of all of them, and of those whose zeros have a parameter ζ.

Where zeros have log odds ζ of their own, ζ is the last number in t. `parts` is then one function of a row that gives
the value and its slopes, of (log μ, ζ, y), or of (log μ, log φ, ζ, y, φ, log Γ(y + φ)/Γ(φ), ψ(y + φ) − ψ(φ)) where the
counts have a shape φ. The value does not depend on the last argument, and the slopes do not depend on the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.families.base import Formulas, Loss, Parameter, SharedFamily, log_rate
from svrhmc.families.labels import counts
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

SHAPE = Parameter("shape", ("alpha",))
_SMALLEST_NONE = 1e-5  # P(Y = 0) of laws whose quantiles are found from 0 on, so that rounding leaves 11 digits of it
_LARGEST_SUM = 64  # counts up to which their probabilities are added
POISSON_LIMIT = "as log φ grows the likelihood tends to that of Poisson counts and never to 0"


class CountLoss(Loss):
    """Counts with E y = eᵗ, t being the first predictor."""

    inverse_link = "exp"
    ratio = "ratio of means"
    modelled = "the logarithm of the mean of {response}"
    outcome = "counts"

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        return counts("y", y, (n,))

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(y, weights, offset), 1.0

    def recession_cones(self, y: Array) -> RecessionCones:
        """At given shared parameters ℓ grows upwards always, and downwards where the count is above 0."""
        return one_predictor_cones(True, y > 0)

    def mean(self, t: Array) -> Array:
        """eᵗ."""
        return np.exp(self.predictor(t))

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y!."""
        return log_factorial(y)


class CountWithZeros(SharedFamily):
    """Counts whose zeros have log odds ζ of their own, the last of t.

    zeros: the name of ζ. only_zeros: why labels that are all 0 determine nothing.
    """

    ratio = "ratio of means"
    outcome = "counts"
    zeros: ClassVar[str]
    only_zeros: ClassVar[str]

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Counts, not all of them 0."""
        array = counts("y", y, (n,))
        if n and not array.any():
            allowed = f"counts of which some are above 0 for the family {self.name!r}"
            raise requirement("y", allowed, "0 everywhere", self.only_zeros)
        return array

    def remark(self, least: float) -> str:
        """A warning where no label is 0."""
        if least <= 0:
            return ""
        return f"no row is 0, so that rows say of the {self.zeros} only that they are low, and the prior says how low"

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y!."""
        return log_factorial(y)


class CountWithShapeAndZeros(CountWithZeros):
    """Negative binomial counts whose zeros have log odds of their own, t = (log μ, log φ, ζ)."""

    @property
    def shared(self) -> int:
        """log φ and ζ."""
        return 2

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """As φ → ∞ the law tends to that with Poisson counts, whose likelihood is above 0."""
        return POISSON_LIMIT if not flat or flat[0] else super().improper_reason(weight, free, exact, flat, y)


def quantiles_of_counts(
    u: Array, none: Array, ratio: Callable[[int, Indices], Array], of_large: Callable[[Indices], Array]
) -> Array:
    """The least y with P(Y ≤ y) ≥ u, for each of u.

    Where counts are small, P(Y = y) = P(Y = y − 1)·ratio(y, indices) are added from P(Y = 0) = none on, which takes a
    thirtieth of the time of SciPy's search for the quantile of Poisson's law. of_large(indices) has the others.
    """
    y = np.zeros(u.shape)
    small = none > _SMALLEST_NONE
    large = np.flatnonzero(~small)
    left = np.flatnonzero(small & (u > none))
    mass, wanted = none[left], u[left]
    total = mass.copy()
    for count in range(1, _LARGEST_SUM):
        mass *= ratio(count, left)
        total += mass
        y[left] = count
        beyond = wanted > total
        left, mass, wanted, total = left[beyond], mass[beyond], wanted[beyond], total[beyond]
        if not len(left):
            break
    others = np.concatenate([large, left])
    if len(others):
        y[others] = of_large(others)
    return y


def log_factorial(y: Array) -> Array:
    """log y!."""
    from scipy.special import gammaln

    return np.asarray(gammaln(y + 1), np.float64)


def with_zeros(parts: Value, curvature: Value) -> Formulas:
    """The formulas of a family with t = (log μ, ζ), from those of a row."""

    def value(loss: Fields, eta: Value, zeta: Value, y: Value) -> Value:
        return parts(eta, zeta, y)[0]

    def slope(loss: Fields, eta: Value, zeta: Value, y: Value) -> Value:
        return parts(eta, zeta, y)[1:]

    def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
        for i in range(count):
            t[2, i], s[0, i], s[1, i] = parts(t[0, i], t[1, i], y[i])

    return Formulas(slope, curvature, value, energies=energies, arguments=2)


def with_shape_and_zeros(op: Primitives, parts: Value, curvature: Value) -> Formulas:
    """The formulas of a family with t = (log μ, log φ, ζ), from those of a row."""
    exp, rising = op.exp, op.rising

    def value(loss: Fields, a: Value, b: Value, zeta: Value, y: Value) -> Value:
        phi = op.exp(b)
        return parts(a, b, zeta, y, phi, op.log_rising(phi, y), 0.0)[0]

    def slope(loss: Fields, a: Value, b: Value, zeta: Value, y: Value) -> Value:
        phi = op.exp(b)
        return parts(a, b, zeta, y, phi, 0.0, op.rising_rate(phi, y))[1:]

    def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
        """φ is the same for all rows."""
        phi = 0.0
        for i in range(count):
            if i == 0 or t[1, i] != t[1, i - 1]:
                phi = exp(t[1, i])
            log_rising, rate = rising(phi, y[i])
            t[3, i], s[0, i], s[1, i], s[2, i] = parts(t[0, i], t[1, i], t[2, i], y[i], phi, log_rising, rate)

    return Formulas(slope, curvature, value, energies=energies, arguments=3)
