"""Scalar losses ℓ(t, y) of a linear predictor t = aᵀx: value, slope and curvature in t, each written once.

The functions take arrays and numbers alike. `curvature_bound` is sup_t ∂²ℓ/∂t².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import positive


class Loss(ABC):
    """Minus the log-likelihood of one row as a function of its linear predictor."""

    @property
    @abstractmethod
    def curvature_bound(self) -> float:
        """The largest curvature anywhere."""

    @property
    @abstractmethod
    def quadratic(self) -> bool:
        """True where the curvature is constant, so that the posterior is Gaussian."""

    @abstractmethod
    def value(self, t: Array, y: Array) -> Array:
        """ℓ(t, y)."""

    @abstractmethod
    def slope(self, t: Array, y: Array) -> Array:
        """∂ℓ/∂t."""

    @abstractmethod
    def curvature(self, t: Array, y: Array) -> Array:
        """∂²ℓ/∂t²."""


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """ℓ(t, y) = log(1 + e^{−yt}) with y ∈ {−1, +1}; the slope −y/(1 + e^{yt}) has no cancellation."""

    @property
    def curvature_bound(self) -> float:
        """p(1 − p) ≤ 1/4."""
        return 0.25

    @property
    def quadratic(self) -> bool:
        """No."""
        return False

    def value(self, t: Array, y: Array) -> Array:
        """log(1 + e^{−yt})."""
        return np.logaddexp(0.0, -y * t)

    def slope(self, t: Array, y: Array) -> Array:
        """−y/(1 + e^{yt}); e^{yt} = ∞ rightly gives 0."""
        with np.errstate(over="ignore"):
            return -y / (1.0 + np.exp(y * t))

    def curvature(self, t: Array, y: Array) -> Array:
        """1/((1 + e^{t})(1 + e^{−t})), the same for both labels."""
        with np.errstate(over="ignore"):
            return 1.0 / ((1.0 + np.exp(t)) * (1.0 + np.exp(-t)))


@dataclass(frozen=True)
class SquaredLoss(Loss):
    """ℓ(t, y) = (t − y)²/(2σ²)."""

    noise_variance: float = 1.0

    def __post_init__(self) -> None:
        positive("noise_variance", self.noise_variance)

    @property
    def curvature_bound(self) -> float:
        """1/σ², which is also the curvature."""
        return 1.0 / self.noise_variance

    @property
    def quadratic(self) -> bool:
        """Yes."""
        return True

    def value(self, t: Array, y: Array) -> Array:
        """(t − y)²/(2σ²)."""
        return (t - y) ** 2 / (2 * self.noise_variance)

    def slope(self, t: Array, y: Array) -> Array:
        """(t − y)/σ²."""
        return (t - y) / self.noise_variance

    def curvature(self, t: Array, y: Array) -> Array:
        """1/σ²."""
        return np.full(np.shape(t), 1.0 / self.noise_variance)
