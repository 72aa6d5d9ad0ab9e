"""Positive y of mean μ and variance μ³/λ (the inverse Gaussian or Wald law); the label is log y.

    t = (log μ, log λ) = (η, τ),     r = log y − η,     ℓ = 2e^{τ − η} sinh²(r/2) − τ/2.

As η grows ℓ tends to ½λ/y, as the law tends to Lévy's: it is not convex in η where y < μ/2, and no row alone keeps its
mean from running off upwards. λ has the unit of y, and λ/μ is what the shape of a gamma law is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, Parameter, SharedFamily, family, log_rate, spread_improper_reason
from svrhmc.families.labels import logarithms_of_positive
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones


@family
def inverse_gaussian() -> Loss:
    """Positive y with E y = eᵗ and variance μ³/λ, log λ the last coordinate of x.

    >>> float(inverse_gaussian().mean(np.array([0.0, 1.0])))
    1.0
    """
    return InverseGaussianLoss()


class InverseGaussian(NamedTuple):
    """2e^{τ − η} sinh²(r/2) − τ/2."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With s = λ/μ and h = ½s(eʳ − 1)(1 − e⁻ʳ): slopes s(1 − eʳ) and h − ½; curvatures s(2eʳ − 1), s(1 − eʳ)
        and h.
        """
        exp, expm1 = op.exp, op.expm1

        @op.function
        def parts(eta: Value, tau: Value, y: Value) -> Value:
            r, s = y - eta, exp(tau - eta)
            growth = expm1(r)
            return -0.5 * s * growth * expm1(-r), -s * growth

        def value(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            return parts(eta, tau, y)[0] - 0.5 * tau

        def slope(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            h, by_eta = parts(eta, tau, y)
            return by_eta, h - 0.5

        def curvature(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            h, by_eta = parts(eta, tau, y)
            return exp(tau - eta) * (2 * exp(y - eta) - 1), by_eta, h

        def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
            for i in range(count):
                h, s[0, i] = parts(t[0, i], t[1, i], y[i])
                t[2, i], s[1, i] = h - 0.5 * t[1, i], h - 0.5

        return Formulas(slope, curvature, value, energies=energies, arguments=2)


@part
@dataclass(frozen=True)
class InverseGaussianLoss(SharedFamily):
    """Positive y of mean μ and variance μ³/λ, t = (log μ, log λ); the label is log y."""

    inverse_link = "exp"
    name = "inverse-gaussian"
    aliases = ("inversegaussian", "wald")
    ratio = "ratio of means"
    modelled = "the logarithm of the mean of {response}"
    shared_names = ("log shape",)
    parameters = (Parameter("shape", ("lam",)),)
    far_off = "family='log-normal' or 'gamma'"
    nanoseconds = 8.0
    kernel = InverseGaussian
    spread = True

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Logarithms of positive numbers."""
        return logarithms_of_positive(y, n, self.name)

    def weak_shared_prior(self, size: float, typical: float = 0.0) -> tuple[float, float]:
        """Around the log of the mean of y, whose unit λ has."""
        return self.shared_prior[0], typical

    def weak_shared_words(self, names: Sequence[str]) -> list[str]:
        return [f"{name} ~ N(m, {self.shared_prior[0] ** -0.5:g}²), as λ has the unit of y" for name in names]

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(np.exp(y), weights, offset), 1.0

    def shared_start(self, y: Array) -> Array:
        """log λ of all labels together: 1/λ is the mean of 1/y less 1/(the mean of y)."""
        typical = np.exp(y - y.mean())
        rest = float((1 / typical).mean() - 1 / typical.mean())
        return np.array([float(y.mean()) - math.log(max(rest, 1e-16))])

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given λ it grows downwards alone."""
        return one_predictor_cones(np.zeros(np.shape(y), bool), True)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """p(y) ~ λ^{½} as λ → 0, which is integrable by log λ; where all r are 0, f falls for ever as λ → ∞."""
        return spread_improper_reason(weight, 0, exact)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """log(1 + μ/λ): that of log y, were y log-normal with its mean and variance."""
        return np.asarray(np.log1p(mean * np.exp(-shared[:, 0])))

    def variance(self, t: Array) -> Array:
        """μ³/λ."""
        return self.mean(t) ** 3 * np.exp(-t[..., 1])

    def mean(self, t: Array) -> Array:
        """μ."""
        return np.exp(t[..., 0])

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2π + 3/2 log y."""
        return np.asarray(0.5 * math.log(2 * math.pi) + 1.5 * y, np.float64)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """y itself."""
        return np.exp(y)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        from scipy.stats import invgauss

        ratio = np.exp(t[..., 0] - t[..., 1])
        return np.asarray(invgauss.ppf(u, ratio, scale=np.exp(t[..., 1])), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        from scipy.stats import invgauss

        p = np.asarray(invgauss.cdf(np.exp(y - t[..., 1]), np.exp(t[..., 0] - t[..., 1])), np.float64)
        return p, p
