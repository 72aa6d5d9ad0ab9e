"""Counts of mean μ and variance μ + μ²/φ.

    t = (log μ, log φ),     v = log μ/φ,     ℓ = φ sp(v) + y sp(−v) − log Γ(y + φ)/Γ(φ),     sp(v) = log(1 + eᵛ).

ℓ is convex in log μ, not in t, and has no bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, SharedFamily, family
from svrhmc.families.counts import POISSON_LIMIT, SHAPE, CountLoss, quantiles_of_counts
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value


@family
def negative_binomial() -> Loss:
    """Counts with E y = eᵗ and variance μ + μ²/φ, log φ the last coordinate of x.

    >>> from svrhmc.targets import glm
    >>> glm([[1.0], [1.0], [1.0]], [0, 9, 1], negative_binomial()).dim
    2
    """
    return NegativeBinomialLoss()


def parts_of_counts(op: Primitives) -> tuple[Value, Value]:
    """The value and the slopes, from what they have in common."""
    soft = op.soft

    @op.function
    def energy(phi: Value, v: Value, y: Value, soft_v: Value, log_rising: Value) -> Value:
        return phi * soft_v + y * soft(-v)[0] - log_rising

    @op.function
    def slopes(phi: Value, y: Value, soft_v: Value, p: Value, rest: Value, rate: Value) -> Value:
        return phi * p - y * rest, phi * (soft_v - p) + y * rest - phi * rate

    return energy, slopes


class NegativeBinomial(NamedTuple):
    """φ sp(v) + y sp(−v) − log Γ(y + φ)/Γ(φ)."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With p = 1/(1 + e⁻ᵛ), D = ψ(y + φ) − ψ(φ) and c = p(1 − p): slopes φp − y(1 − p) and
        φ(sp(v) − p) + y(1 − p) − φD; curvatures (φ + y)c, φp − (φ + y)c and φ(sp(v) − 2p − D) + (φ + y)c − φ²D′.
        """
        exp, soft, softplus, sigmoid, rising = op.exp, op.soft, op.softplus, op.sigmoid, op.rising
        energy, slopes = parts_of_counts(op)

        def value(loss: Fields, a: Value, b: Value, y: Value) -> Value:
            phi = op.exp(b)
            return energy(phi, a - b, y, softplus(a - b), op.log_rising(phi, y))

        def slope(loss: Fields, a: Value, b: Value, y: Value) -> Value:
            phi = op.exp(b)
            return slopes(phi, y, *soft(a - b), op.rising_rate(phi, y))

        def curvature(loss: Fields, a: Value, b: Value, y: Value) -> Value:
            v, phi = a - b, op.exp(b)
            p = sigmoid(v)
            both = (phi + y) * p * sigmoid(-v)
            D, bend = op.rising_rate(phi, y), op.trigamma(y + phi) - op.trigamma(phi)
            return both, phi * p - both, phi * (softplus(v) - 2 * p - D) + both - phi**2 * bend

        def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
            """Values and slopes at once, as they share most of their work; φ is the same for all rows."""
            phi = 0.0
            for i in range(count):
                if i == 0 or t[1, i] != t[1, i - 1]:
                    phi = exp(t[1, i])
                v = t[0, i] - t[1, i]
                soft_v, p, rest = soft(v)
                log_rising, rate = rising(phi, y[i])
                t[2, i] = energy(phi, v, y[i], soft_v, log_rising)
                s[0, i], s[1, i] = slopes(phi, y[i], soft_v, p, rest, rate)

        return Formulas(slope, curvature, value, energies=energies, arguments=2)


@part
@dataclass(frozen=True)
class NegativeBinomialLoss(CountLoss, SharedFamily):
    """Counts of mean μ and variance μ + μ²/φ, t = (log μ, log φ)."""

    name = "negative-binomial"
    aliases = ("negativebinomial", "negbinomial", "nbinom2", "nbinom")
    mistaken = ("negbin", "nb")
    shared_names = ("log shape",)
    parameters = (SHAPE,)
    convex_given_shared = True
    nanoseconds = 28.0
    kernel = NegativeBinomial

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """As φ → ∞ the law tends to Poisson's, whose likelihood is above 0."""
        return POISSON_LIMIT

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """log(1 + 1/μ + 1/φ): that of log y, were y log-normal with its mean and variance."""
        return np.asarray(np.log1p(1 / mean + np.exp(-shared[:, 0])))

    def variance(self, t: Array) -> Array:
        """μ + μ²/φ."""
        mean = self.mean(t)
        return mean + mean**2 * np.exp(-t[..., 1])

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """P(Y = 0) = p^φ and P(Y = y) = P(Y = y − 1)·(1 − p)(y − 1 + φ)/y, with p = φ/(φ + μ)."""
        from scipy.stats import nbinom

        a, b, u = np.broadcast_arrays(t[..., 0], t[..., 1], u)
        with np.errstate(over="ignore", invalid="ignore"):
            phi, beyond = np.exp(b).ravel(), (a - b).ravel()
            none = np.exp(-phi * NUMPY.softplus(beyond))
        rest, flat = NUMPY.sigmoid(beyond), u.ravel()

        def ratio(y: int, chosen: Indices) -> Array:
            return np.asarray(rest[chosen] * (y - 1 + phi[chosen]) / y)

        def of_large(chosen: Indices) -> Array:
            return np.asarray(nbinom.ppf(flat[chosen], phi[chosen], NUMPY.sigmoid(-beyond[chosen])), np.float64)

        return quantiles_of_counts(flat, none, ratio, of_large).reshape(u.shape)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """P(Y ≤ y) = I_p(φ, y + 1) with p = φ/(φ + μ)."""
        from scipy.special import betainc

        phi, p = np.exp(t[..., 1]), NUMPY.sigmoid(t[..., 1] - t[..., 0])
        return np.where(y > 0, betainc(phi, np.maximum(y, 1.0), p), 0.0), np.asarray(betainc(phi, y + 1.0, p))
