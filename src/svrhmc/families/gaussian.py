"""Real y ~ N(t, σ²), with σ given or unknown; and what every family of a location and a scale has (`student_t.py`).

    σ known       ℓ = (t − y)²/(2σ²)
    σ unknown     t = (μ, log σ),     r = (y − μ)/σ,     ℓ = log σ + ½r²

Where σ is unknown ℓ is not convex in t, and has no bounds; given σ it is convex in μ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import positive
from svrhmc.core.serialise import part
from svrhmc.families.base import (
    Family,
    Formulas,
    Loss,
    Parameter,
    SharedFamily,
    family,
    mean_and_sd,
    spread_improper_reason,
)
from svrhmc.families.bounds import Bounded
from svrhmc.families.laws import NORMAL
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones


@family
def gaussian(noise_variance: float | None = None) -> Loss:
    """Real y ~ N(t, σ²), with σ² = noise_variance, or (None) log σ the last coordinate of x.

    >>> gaussian(4.0), gaussian()
    (SquaredLoss(noise_variance=4.0), GaussianLoss())
    """
    return GaussianLoss() if noise_variance is None else SquaredLoss(noise_variance)


class Squared(NamedTuple):
    """precision·(t − y)²/2."""

    precision: float

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """ℓ′ = precision·(t − y), ℓ″ = precision."""
        half = op.number(0.5)

        def value(loss: Fields, t: Value, y: Value) -> Value:
            return half * loss.precision * (t - y) * (t - y)

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return loss.precision * (t - y)

        def curvature(loss: Fields, t: Value, y: Value) -> Value:
            return np.full(np.shape(t), loss.precision)

        def remainder(loss: Fields, t: Value, y: Value, u: Value) -> Value:
            return 0.0

        return Formulas(slope, curvature, value, remainder=remainder, elementary=True)


@part
@dataclass(frozen=True)
class SquaredLoss(Family):
    """ℓ(t, y) = (t − y)²/(2σ²)."""

    inverse_link = "identity"
    name = "gaussian"
    identity_link = True
    modelled = "{response}"
    far_off = "family='student-t', which such rows pull less"
    quadratic = True
    gaussian_given = "noise"
    convex = True
    kernel = Squared
    noise_variance: float = 1.0

    def __post_init__(self) -> None:
        positive("noise_variance", self.noise_variance)

    @property
    def numbers(self) -> tuple[float, ...]:
        """1/σ²."""
        return (1.0 / self.noise_variance,)

    @property
    def known_noise(self) -> float:
        """σ."""
        return math.sqrt(self.noise_variance)

    @property
    def curvature_bound(self) -> float:
        """1/σ², which is also the curvature."""
        return 1.0 / self.noise_variance

    @property
    def third_bound(self) -> float:
        """There is no third derivative."""
        return 0.0

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The mean and the standard deviation of y."""
        return mean_and_sd(y - offset, weights)

    def recession_cones(self, y: Array) -> RecessionCones:
        """A square grows both ways."""
        return one_predictor_cones(np.ones(np.shape(y), bool), True)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """σ²."""
        return np.full(len(mean), self.known_noise**2)

    def variance(self, t: Array) -> Array:
        """σ²."""
        return np.full(np.shape(t), self.known_noise**2)

    def mean(self, t: Array) -> Array:
        """t."""
        return t

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2πσ²."""
        return np.full(np.shape(y), 0.5 * math.log(2 * math.pi * self.noise_variance))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """t + σΦ⁻¹(u)."""
        from scipy.special import ndtri

        return np.asarray(t + math.sqrt(self.noise_variance) * ndtri(u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Φ((y − t)/σ)."""
        from scipy.special import ndtr

        p = np.asarray(ndtr((y - t) / math.sqrt(self.noise_variance)), np.float64)
        return p, p


def location_scale(op: Primitives, value_of: Value, slope_of: Value, bend_of: Value) -> Formulas:
    """ℓ = τ + h(r), r = (y − μ)e^{−τ}, t = (μ, τ); with g = h′: slopes −ge^{−τ} and 1 − rg, curvatures g′e^{−2τ},
    (g + rg′)e^{−τ} and r(g + rg′).

    value_of, slope_of, bend_of: of (record, r), h, g and (g′, g + rg′).
    """
    exp, h, g = op.exp, op.function(value_of), op.function(slope_of)

    @op.function
    def slopes(inverse: Value, r: Value, pull: Value) -> Value:
        return -pull * inverse, 1.0 - r * pull

    def value(loss: Fields, mu: Value, tau: Value, y: Value) -> Value:
        return tau + h(loss, (y - mu) * exp(-tau))

    def slope(loss: Fields, mu: Value, tau: Value, y: Value) -> Value:
        inverse = exp(-tau)
        r = (y - mu) * inverse
        return slopes(inverse, r, g(loss, r))

    def curvature(loss: Fields, mu: Value, tau: Value, y: Value) -> Value:
        inverse = exp(-tau)
        r = (y - mu) * inverse
        bend, cross = bend_of(loss, r)
        return bend * inverse * inverse, cross * inverse, r * cross

    def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
        """Slopes in vector code, and values, which may have a logarithm, in a loop of their own, by r in a room line.
        (Values in a loop that finds r again take 1.2 times as long for the normal law, 1.9 for Student's.)
        """
        mu, tau, value, residual, by_mu, by_tau = t[0], t[1], t[2], t[4], s[0], s[1]
        for i in range(count):
            inverse = exp(-tau[i])
            r = (y[i] - mu[i]) * inverse
            residual[i] = r
            by_mu[i], by_tau[i] = slopes(inverse, r, g(loss, r))
        if valued:
            for i in range(count):
                value[i] = tau[i] + h(loss, residual[i])

    return Formulas(slope, curvature, value, energies=energies, arguments=2)


class Gaussian(NamedTuple):
    """log σ + ½r²."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """h = ½r², g = r."""

        def value_of(loss: Fields, r: Value) -> Value:
            return 0.5 * r * r

        def slope_of(loss: Fields, r: Value) -> Value:
            return r

        def bend_of(loss: Fields, r: Value) -> Value:
            return np.ones_like(r), 2 * r

        return location_scale(op, value_of, slope_of, bend_of)


class LocationScale(SharedFamily):
    """What families with the formulas of `location_scale` have in common, t = (μ, τ) and r = (y − μ)e^{−τ}."""

    identity_link = True
    shared_prior = (0.04, 0.0)
    spread = True

    def weak_shared_prior(self, size: float, typical: float = 0.0) -> tuple[Value, Value]:
        """Around the log of the spread of y."""
        return self.shared_prior[0], math.log(size)

    def weak_shared_words(self, names: Sequence[str]) -> list[str]:
        """As what they are logarithms of."""
        sd = self.shared_prior[0] ** -0.5
        return [f"{name.replace('sigma', 'σ')} ~ N(log sd({self.scaled_by}), {sd:g}²)" for name in names]

    def shared_start(self, y: Array) -> Array:
        """The log of the spread of y."""
        return np.array([math.log(max(float(y.std()), 1e-8 * max(1.0, float(np.abs(y).max()))))])

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The mean and the standard deviation of y."""
        return mean_and_sd(y - offset, weights)

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given scale a residual costs more and more, both ways."""
        return one_predictor_cones(np.ones(np.shape(y), bool), True)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """∫dβ e^{−f} ~ e^{−(W − free)τ} as τ → ∞; where all residuals are 0, f falls for ever as τ → −∞."""
        return spread_improper_reason(weight, free, exact)

    def mean(self, t: Array) -> Array:
        """μ."""
        mean: Array = t[..., 0]
        return mean

    def residual(self, t: Array, y: Array) -> Array:
        """r."""
        return np.asarray((y - t[..., 0]) * np.exp(-t[..., 1]), np.float64)


@part
@dataclass(frozen=True)
class GaussianLoss(LocationScale):
    """y ~ N(μ, σ²), t = (μ, log σ)."""

    inverse_link = "identity"
    name = "gaussian"
    mistaken = ("normal", "linear")
    shared_names = ("log sigma",)
    parameters = (Parameter("sigma"),)
    modelled = "{response}"
    far_off = "family='student-t', which such rows pull less"
    without_residuals = "give the spread (noise_variance=…), a normal prior of log σ, or drop columns"
    convex_given_shared = True
    mixture = True
    gaussian_given = "noise"
    nanoseconds = 1.3
    kernel = Gaussian

    def with_noise(self, noise_variance: float) -> Loss:
        """Then it is the squared loss."""
        return SquaredLoss(noise_variance)

    def with_bounds(self) -> Loss:
        return BoundedGaussianLoss()

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2π."""
        return np.full(np.shape(y), 0.5 * math.log(2 * math.pi))

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """σ²."""
        return np.asarray(np.exp(2 * shared[:, 0]))

    def variance(self, t: Array) -> Array:
        """σ²."""
        return np.exp(2 * t[..., 1])

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """μ + σΦ⁻¹(u)."""
        from scipy.special import ndtri

        return np.asarray(t[..., 0] + np.exp(t[..., 1]) * ndtri(u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Φ(r)."""
        from scipy.special import ndtr

        p = np.asarray(ndtr(self.residual(t, y)), np.float64)
        return p, p


@part
@dataclass(frozen=True)
class BoundedGaussianLoss(Bounded, GaussianLoss):  # type: ignore[override]  # convex by what is truncated
    """The same within bounds: a tobit model, or a truncated regression."""

    law = NORMAL
    without_bounds = GaussianLoss()
