"""Counts of which some are 0 for a reason of their own: 0 with probability π = 1/(1 + e^{−ζ}), else negative binomial.

    t = (log μ, log φ, ζ) = (a, b, ζ),     v = a − b,     g = φ sp(v),     P(0) = π + (1 − π)e^{−g}.

A zero has the ℓ of `zero_inflated_poisson.py` at this g, whose derivatives are ∂g/∂a = φp and ∂g/∂b = φ(sp(v) − p),
p = σ(v); for y > 0 ℓ is sp(ζ) and that of `negative_binomial.py`. ℓ is not convex: other modes are looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, family
from svrhmc.families.counts import SHAPE, CountWithShapeAndZeros, with_shape_and_zeros
from svrhmc.families.negative_binomial import NegativeBinomial, NegativeBinomialLoss, parts_of_counts
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.zero_inflated_poisson import EXTRA_ZERO, EXTRA_ZERO_PART, ZeroInflatedLoss, zero_formulas


@family
def zero_inflated_negative_binomial() -> Loss:
    """Negative binomial counts with extra zeros; log φ and the log odds of an extra zero are last in x.

    >>> zero_inflated_negative_binomial().shared_names
    ('log shape', 'log odds of an extra zero')
    """
    return ZeroInflatedNegativeBinomialLoss()


class ZeroInflatedNegativeBinomial(NamedTuple):
    """−log(π + (1 − π)e^{−g}) for y = 0, else sp(ζ) + φ sp(v) + y sp(−v) − log Γ(y + φ)/Γ(φ)."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With k = σ(−w) and c = σ(w)σ(−w), w = ζ + g, a zero has slopes kg_a, kg_b and −σ(w)q, and curvatures
        kg_xy − cg_xg_y, −cg_x and σ(ζ)σ(−ζ) − c, where g_aa = φp(1 − p), g_ab = φp² and
        g_bb = φ(sp(v) − 2p + p(1 − p)).
        """
        where, soft, sigmoid, softplus = op.where, op.soft, op.sigmoid, op.softplus
        zero, (energy, slopes) = zero_formulas(op), parts_of_counts(op)

        @op.function
        def parts(a: Value, b: Value, zeta: Value, y: Value, phi: Value, log_rising: Value, rate: Value) -> Value:
            v, some = a - b, y > 0.0
            soft_v, p, rest = soft(v)
            by_a, by_b = slopes(phi, y, soft_v, p, rest, rate)
            value, by_g, by_zeta = zero(phi * soft_v, zeta)
            return (
                where(some, softplus(zeta) + energy(phi, v, y, soft_v, log_rising), value),
                where(some, by_a, by_g * phi * p),
                where(some, by_b, by_g * phi * (soft_v - p)),
                where(some, sigmoid(zeta), by_zeta),
            )

        def curvature(loss: Fields, a: Value, b: Value, zeta: Value, y: Value) -> Value:
            some, phi = y > 0, op.exp(b)
            soft_v, p, rest = soft(a - b)
            w, own = zeta + phi * soft_v, sigmoid(zeta) * sigmoid(-zeta)
            by_a, by_b, k, c = phi * p, phi * (soft_v - p), sigmoid(-w), sigmoid(w) * sigmoid(-w)
            aa, ab, bb = NegativeBinomial.formulas(op).curvature(loss, a, b, y)
            return (
                where(some, aa, k * by_a * rest - c * by_a**2),
                where(some, ab, k * by_a * p - c * by_a * by_b),
                where(some, 0.0, -c * by_a),
                where(some, bb, k * (by_b - by_a * p) - c * by_b**2),
                where(some, 0.0, -c * by_b),
                where(some, own, own - c),
            )

        return with_shape_and_zeros(op, parts, curvature)


@part
@dataclass(frozen=True)
class ZeroInflatedNegativeBinomialLoss(CountWithShapeAndZeros, ZeroInflatedLoss):
    """Extra zeros by log odds ζ, else negative binomial counts, t = (log μ, log φ, ζ)."""

    name = "zero-inflated-negative-binomial"
    aliases = ("zinb", "zero-inflated-negativebinomial", "zero-inflated-negbinomial", "zeroinflatednegativebinomial")
    mistaken = ("zero-inflated-negbin", "zero-inflated-nb", "zinb2")
    shared_names = ("log shape", EXTRA_ZERO)
    parameters = (SHAPE, EXTRA_ZERO_PART)
    shared_prior = (0.25, 0.0)
    nanoseconds = 60.0
    kernel = ZeroInflatedNegativeBinomial
    count_family = NegativeBinomialLoss()
