"""Positive y of mean μ and variance μ²/α; the label is log y.

    t = (log μ, log α),     r = log y/μ,     ℓ = α(eʳ − 1 − r) + α − α log α + log Γ(α).

ℓ is convex in log μ, not in t, and has no bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, Parameter, SharedFamily, family, log_rate, spread_improper_reason
from svrhmc.families.labels import logarithms_of_positive
from svrhmc.families.names import require_link
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones


@family
def gamma(link: str = "log") -> Loss:
    """Positive y with E y = eᵗ and variance μ²/α, log α the last coordinate of x.

    link: "log"; others are refused with the reason.

    >>> float(gamma().mean(np.array([0.0, 1.0])))
    1.0
    """
    require_link("gamma", link, "log")
    return GammaLoss()


class Gamma(NamedTuple):
    """α(eʳ − 1 − r) + α − α log α + log Γ(α), with the label log y."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Slopes α(1 − eʳ) and α(eʳ − 1 − r + ψ(α) − log α); curvatures αeʳ, α(1 − eʳ) and
        α(eʳ − 1 − r + ψ(α) − log α + αψ′(α) − 1).
        """
        exp, expm1, gamma_excess = op.exp, op.expm1, op.gamma_excess

        @op.function
        def parts(alpha: Value, log_excess: Value, rate: Value, r: Value) -> Value:
            grown = expm1(r)
            return alpha * (grown - r) + log_excess, -alpha * grown, alpha * (grown - r + rate)

        def value(loss: Fields, a: Value, b: Value, y: Value) -> Value:
            alpha = op.exp(b)
            return parts(alpha, op.log_gamma_excess(alpha, b), 0.0, y - a)[0]

        def slope(loss: Fields, a: Value, b: Value, y: Value) -> Value:
            alpha = op.exp(b)
            return parts(alpha, 0.0, op.digamma_excess(alpha, b), y - a)[1:]

        def curvature(loss: Fields, a: Value, b: Value, y: Value) -> Value:
            r, alpha = y - a, op.exp(b)
            grown = expm1(r)
            own = alpha * (grown - r + op.digamma_excess(alpha, b) + alpha * op.trigamma(alpha) - 1)
            return alpha * exp(r), -alpha * grown, own

        def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
            """What is of α alone is found once, as α is the same for all rows."""
            alpha = log_excess = rate = 0.0
            for i in range(count):
                if i == 0 or t[1, i] != t[1, i - 1]:
                    alpha = exp(t[1, i])
                    log_excess, rate = gamma_excess(alpha, t[1, i])
                t[2, i], s[0, i], s[1, i] = parts(alpha, log_excess, rate, y[i] - t[0, i])

        return Formulas(slope, curvature, value, energies=energies, arguments=2)


@part
@dataclass(frozen=True)
class GammaLoss(SharedFamily):
    """Positive y of mean μ and variance μ²/α, t = (log μ, log α); the label is log y."""

    inverse_link = "exp"
    name = "gamma"
    ratio = "ratio of means"
    modelled = "the logarithm of the mean of {response}"
    shared_names = ("log shape",)
    parameters = (Parameter("shape", ("alpha",)),)
    convex_given_shared = True
    nanoseconds = 10.0
    kernel = Gamma
    spread = True

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Logarithms of positive numbers."""
        return logarithms_of_positive(y, n, self.name)

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(np.exp(y), weights, offset), 1.0

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given α, eʳ − 1 − r grows both ways."""
        return one_predictor_cones(np.ones(np.shape(y), bool), True)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """∫dβ e^{−f} ~ α^{W − free} as α → 0; where all r are 0, f falls for ever as α → ∞."""
        return spread_improper_reason(weight, free, exact)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """The variance of log y: ψ′(α)."""
        from scipy.special import polygamma

        return np.asarray(polygamma(1, np.exp(shared[:, 0])), np.float64)

    def variance(self, t: Array) -> Array:
        """μ²/α."""
        return self.mean(t) ** 2 * np.exp(-t[..., 1])

    def mean(self, t: Array) -> Array:
        """μ."""
        return np.exp(t[..., 0])

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y, which is the label."""
        return y

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """y itself."""
        return np.exp(y)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        from scipy.special import gammaincinv

        alpha = np.exp(t[..., 1])
        return np.asarray(gammaincinv(alpha, u) * np.exp(t[..., 0]) / alpha, np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of αeʳ, whose law is the gamma law of shape α."""
        from scipy.special import gammainc

        alpha = np.exp(t[..., 1])
        p = np.asarray(gammainc(alpha, alpha * np.exp(y - t[..., 0])), np.float64)
        return p, p
