"""Counts by two parts: whether y is 0, and, where it is not, a negative binomial count that is known to be above 0.

    P(y = 0) = 1/(1 + e^{−ζ}),     t = (log μ, log φ, ζ) = (a, b, ζ),     v = a − b,     g = φ sp(v),

where e^{−g} is the probability of 0 that the negative binomial law has. With n(a, b, y) its loss
(`negative_binomial.py`) and u = 1 − g/(e^g − 1),

    y = 0:  ℓ = sp(−ζ),        y > 0:  ℓ = sp(ζ) + n + log(1 − e^{−g}),     log(1 − e^{−g}) = log g − log(1 + g − u).

The counts above 0 are not log-concave in a where φ < 1, so that other modes are looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, family
from svrhmc.families.counts import SHAPE, CountWithShapeAndZeros, with_shape_and_zeros
from svrhmc.families.hurdle_poisson import ZERO, ZERO_PART, HurdleLoss, truncation
from svrhmc.families.negative_binomial import NegativeBinomial, NegativeBinomialLoss, parts_of_counts
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value

_FAR = -36.0  # of v, from where on log(1 + eᵛ) is eᵛ


@family
def hurdle_negative_binomial() -> Loss:
    """Counts whose zeros have a probability of their own, and which vary more than "hurdle-poisson" has it.

    >>> hurdle_negative_binomial().shared_names
    ('log shape', 'log odds of zero')
    """
    return HurdleNegativeBinomialLoss()


class HurdleNegativeBinomial(NamedTuple):
    """sp(−ζ) for y = 0, else sp(ζ) + n(a, b, y) + log(1 − e^{−g})."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With p = σ(v) and ρ = p/sp(v), so that ∂g/∂a = gρ and ∂g/∂b = g(1 − ρ): log(1 − e^{−g}) has slopes
        (1 − u)ρ and (1 − u)(1 − ρ), and curvatures (1 − u)(g_xy/g − (1 + g − u) g_x g_y/g²), g_aa/g = ρ(1 − p),
        g_ab/g = ρp, g_bb/g = 1 − ρ − ρp.
        """
        log, log1p, where, maximum = op.log, op.log1p, op.where, op.maximum
        soft, sigmoid, softplus = op.soft, op.sigmoid, op.softplus
        lacking, (energy, slopes) = truncation(op), parts_of_counts(op)

        @op.function
        def parts(a: Value, b: Value, zeta: Value, y: Value, phi: Value, log_rising: Value, rate: Value) -> Value:
            v, some, at_least = a - b, y > 0.0, maximum(y, 1.0)
            soft_v, p, rest = soft(v)
            g, size = phi * soft_v, maximum(soft_v, 1e-300)
            u, share = lacking(g), where(v < _FAR, 1.0, p / size)
            log_g = b + where(v < _FAR, v, log(size))
            by_a, by_b = slopes(phi, at_least, soft_v, p, rest, rate)
            above = energy(phi, v, at_least, soft_v, log_rising) + (log_g - log1p(g - u))
            return (
                softplus(where(some, zeta, -zeta)) + where(some, above, 0.0),
                where(some, by_a + (1.0 - u) * share, 0.0),
                where(some, by_b + (1.0 - u) * (1.0 - share), 0.0),
                where(some, sigmoid(zeta), -sigmoid(-zeta)),
            )

        def curvature(loss: Fields, a: Value, b: Value, zeta: Value, y: Value) -> Value:
            v, phi = a - b, op.exp(b)
            soft_v, p, rest = soft(v)
            g, rho = phi * soft_v, where(v < _FAR, 1.0, p / maximum(soft_v, 1e-300))
            u, own = lacking(g), sigmoid(zeta) * sigmoid(-zeta) * np.ones(np.shape(y))
            aa, ab, bb = NegativeBinomial.formulas(op).curvature(loss, a, b, y)
            left, grown = 1.0 - u, 1.0 + g - u
            aa = aa + left * (rho * rest - grown * rho**2)
            ab = ab + left * (rho * p - grown * rho * (1 - rho))
            bb = bb + left * (1 - rho - rho * p - grown * (1 - rho) ** 2)
            none, some = 0.0 * own, y > 0
            return where(some, aa, 0.0), where(some, ab, 0.0), none, where(some, bb, 0.0), none, own

        return with_shape_and_zeros(op, parts, curvature)


@part
@dataclass(frozen=True)
class HurdleNegativeBinomialLoss(CountWithShapeAndZeros, HurdleLoss):
    """Zeros by log odds ζ, and negative binomial counts above 0, t = (log μ, log φ, ζ)."""

    name = "hurdle-negative-binomial"
    aliases = ("hurdle-negativebinomial", "hurdle-negbinomial", "hurdlenegativebinomial")
    mistaken = ("hurdle-nb", "hurdle-negbin", "truncated-negative-binomial", "truncated-nbinom2")
    shared_names = ("log shape", ZERO)
    parameters = (SHAPE, ZERO_PART)
    shared_prior = ((0.25, 0.04), (0.0, 0.0))
    nanoseconds = 60.0
    kernel = HurdleNegativeBinomial

    def _minus_log_zero(self, t: Array) -> Array:
        """g = φ sp(v)."""
        return np.asarray(np.exp(t[..., 1]) * NUMPY.softplus(t[..., 0] - t[..., 1]), np.float64)

    def _below(self, t: Array, y: Array) -> Array:
        return NegativeBinomialLoss().cumulative(t, y)[0]

    def _quantile(self, t: Array, u: Array) -> Array:
        return NegativeBinomialLoss().draw(t, u)
