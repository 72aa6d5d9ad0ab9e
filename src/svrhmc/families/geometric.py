"""Counts y = 0, 1, 2, … of mean μ = eᵗ and variance μ + μ²: failures before a success, P(success) = 1/(1 + μ).

    ℓ = sp(t) + y sp(−t),     sp(v) = log(1 + eᵛ).

It is the negative binomial law with shape 1, which has no parameter left that rows would share; ℓ is convex.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Family, Formulas, Loss, family
from svrhmc.families.counts import CountLoss
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value


@family
def geometric() -> Loss:
    """Counts with E y = eᵗ and variance μ + μ²: "negative-binomial" with shape 1.

    >>> float(geometric().mean(np.array(0.0)))
    1.0
    """
    return GeometricLoss()


class Geometric(NamedTuple):
    """sp(t) + y sp(−t)."""

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With p = 1/(1 + e⁻ᵗ): ℓ′ = p − y(1 − p), ℓ″ = (1 + y)p(1 − p)."""
        softplus, sigmoid = op.softplus, op.sigmoid

        def value(loss: Fields, t: Value, y: Value) -> Value:
            return softplus(t) + y * softplus(-t)

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return sigmoid(t) - y * sigmoid(-t)

        def curvature(loss: Fields, t: Value, y: Value) -> Value:
            return (1.0 + y) * sigmoid(t) * sigmoid(-t)

        return Formulas(slope, curvature, value, elementary=True)


@part
@dataclass(frozen=True)
class GeometricLoss(CountLoss, Family):
    """ℓ(t, y) = sp(t) + y sp(−t): counts of mean eᵗ whose probabilities fall by one factor."""

    name = "geometric"
    overdispersed = "family='negative-binomial', whose variance has a parameter of its own"
    convex = True
    nanoseconds = 1.0
    kernel = Geometric

    def start(self, y: Array) -> Array:
        """log(y + ½)."""
        return np.asarray(np.log(y + 0.5), np.float64)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """ℓ has all of it."""
        return np.zeros(np.shape(y))

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """log(2 + 1/μ): that of log y, were y log-normal with its mean and variance."""
        return np.asarray(np.log(2 + 1 / mean))

    def variance(self, t: Array) -> Array:
        """μ + μ²."""
        mean = self.mean(t)
        return mean + mean**2

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The first y with 1 − p^{y + 1} ≥ u."""
        with np.errstate(divide="ignore"):
            steps = np.log1p(-np.asarray(u)) / -NUMPY.softplus(-t)
        return np.asarray(np.maximum(np.ceil(steps) - 1.0, 0.0), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """1 − p^y and 1 − p^{y + 1}, p = 1/(1 + e⁻ᵗ)."""
        log_p = -NUMPY.softplus(-t)
        return np.asarray(-np.expm1(y * log_p)), np.asarray(-np.expm1((y + 1.0) * log_p))
