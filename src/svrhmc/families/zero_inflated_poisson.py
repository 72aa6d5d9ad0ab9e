"""Counts of which some are 0 for a reason of their own: 0 with probability π = 1/(1 + e^{−ζ}), else Poisson counts.

    P(0) = π + (1 − π)e^{−g},     P(y) = (1 − π)e^{−μ}μ^y/y! for y > 0,     t = (log μ, ζ),     g = μ.

With q = (1 − π)(1 − e^{−g}) and w = ζ + g,

    y = 0:  ℓ = −log(1 − q) = sp(ζ) − log(e^ζ + e^{−g}),          y > 0:  ℓ = sp(ζ) + μ − y log μ,

the first form where q < ½, the second elsewhere, so that no digits are lost. By g and ζ a zero has the slopes σ(−w) and
−σ(w)σ(−ζ)(1 − e^{−g}), and the curvatures −c, −c and σ(ζ)σ(−ζ) − c, c = σ(w)σ(−w). ℓ of a zero is bounded on both sides
and not convex: other modes are looked for.

The model is that of Lambert, Technometrics 34, 1992, whose ζ had predictors too; here all rows share it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, Parameter, family, log_rate
from svrhmc.families.counts import CountWithZeros, with_zeros
from svrhmc.families.poisson import PoissonLoss
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

EXTRA_ZERO = "log odds of an extra zero"
EXTRA_ZERO_PART = Parameter("zero", ("zi",), effect=2.5)


@family
def zero_inflated_poisson() -> Loss:
    """Poisson counts with extra zeros; the log odds of an extra zero are the last coordinate of x.

    >>> float(zero_inflated_poisson().mean(np.array([0.0, 0.0])))
    0.5
    """
    return ZeroInflatedPoissonLoss()


def zero_formulas(op: Primitives) -> Value:
    """Value and slopes, by g and ζ, of a count of 0."""
    exp, expm1, log1p, where, sigmoid, softplus = op.exp, op.expm1, op.log1p, op.where, op.sigmoid, op.softplus
    maximum, minimum = op.maximum, op.minimum

    def zero(g: Value, zeta: Value) -> Value:
        lost = -expm1(-minimum(g, 1e6))
        rest = sigmoid(-zeta)
        q = rest * lost
        high, low = maximum(zeta, -g), minimum(zeta, -g)
        total = high + log1p(exp(maximum(low - high, -700.0)))
        value = where(q < 0.5, -log1p(-minimum(q, 0.5)), softplus(zeta) - total)
        w = zeta + g
        return value, sigmoid(-w), -sigmoid(w) * q

    return op.function(zero)


class ZeroInflatedPoisson(NamedTuple):
    """−log(π + (1 − π)e^{−μ}) for y = 0, else sp(ζ) + μ − y log μ."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Slopes μσ(−w) and −σ(w)q for y = 0, else μ − y and σ(ζ); curvatures μσ(−w)(1 − μσ(w)), −μc and σ(ζ)σ(−ζ) − c
        for y = 0, else μ, 0 and σ(ζ)σ(−ζ).
        """
        exp, where, sigmoid, softplus, zero = op.exp, op.where, op.sigmoid, op.softplus, zero_formulas(op)

        @op.function
        def parts(eta: Value, zeta: Value, y: Value) -> Value:
            some, mean = y > 0.0, exp(eta)
            value, by_g, by_zeta = zero(mean, zeta)
            return (
                where(some, softplus(zeta) + (mean - y * eta), value),
                where(some, mean - y, where(by_g > 0.0, mean * by_g, 0.0)),
                where(some, sigmoid(zeta), by_zeta),
            )

        def curvature(loss: Fields, eta: Value, zeta: Value, y: Value) -> Value:
            some, mean = y > 0, np.minimum(exp(eta), 1e300)
            near, far, own = sigmoid(mean + zeta), sigmoid(-mean - zeta), sigmoid(zeta) * sigmoid(-zeta)
            return (
                where(some, mean, mean * far * (1 - mean * near)),
                where(some, 0.0, -mean * far * near),
                where(some, own, own - near * far),
            )

        return with_zeros(parts, curvature)


class ZeroInflatedLoss(CountWithZeros):
    """What counts with extra zeros have in common: `count_family` is the law of the others."""

    count_family: ClassVar[Loss]
    zeros = EXTRA_ZERO
    only_zeros = "nothing tells extra zeros from the others"
    modelled = "the logarithm of the mean of {response} where it is no extra zero"

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(y, weights, offset), 1.0

    def shared_start(self, y: Array) -> Array:
        """Half of the zeros are extra ones, after zeros for the rest."""
        extra = 0.5 * float((y == 0).sum())
        return np.append(np.zeros(self.shared - 1), math.log((extra + 0.5) / (len(y) - extra + 0.5)))

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given ζ a count above 0 grows both ways, and a 0 neither way."""
        return one_predictor_cones(y > 0, y > 0)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """As ζ → −∞ there are no extra zeros, and the likelihood is above 0."""
        return "as the log odds of an extra zero fall the likelihood tends to that of plain counts and never to 0"

    def variance(self, t: Array) -> Array:
        """(1 − π)(v + μ²) − (E y)², with the mean μ and the variance v of the other counts."""
        others = self._count_predictors(t)
        variance = self.count_family.variance(others)
        assert variance is not None
        square = NUMPY.sigmoid(-t[..., -1]) * (variance + self.count_family.mean(others) ** 2)
        return np.asarray(square - self.mean(t) ** 2, np.float64)

    def mean(self, t: Array) -> Array:
        """(1 − π)μ."""
        return np.asarray(NUMPY.sigmoid(-t[..., -1]) * np.exp(t[..., 0]), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """0 up to π, and then the quantile of the other counts."""
        extra, rest = NUMPY.sigmoid(t[..., -1]), NUMPY.sigmoid(-t[..., -1])
        rank = np.clip((u - extra) / np.maximum(rest, 1e-300), 0.0, 1.0)
        return np.where(u <= extra, 0.0, np.maximum(self.count_family.draw(self._count_predictors(t), rank), 0.0))

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """π + (1 − π)P(Y ≤ y)."""
        law = self.count_family.cumulative(self._count_predictors(t), y)
        assert law is not None
        extra, rest = NUMPY.sigmoid(t[..., -1]), NUMPY.sigmoid(-t[..., -1])
        return np.where(y > 0, extra + rest * law[0], 0.0), np.asarray(extra + rest * law[1])

    def _count_predictors(self, t: Array) -> Array:
        """The predictors of the other counts."""
        return np.asarray(t[..., :-1] if self.count_family.predictor_shape else t[..., 0])


@part
@dataclass(frozen=True)
class ZeroInflatedPoissonLoss(ZeroInflatedLoss):
    """Extra zeros by log odds ζ, else Poisson counts, t = (log μ, ζ)."""

    name = "zero-inflated-poisson"
    aliases = ("zip", "zeroinflatedpoisson")
    mistaken = ("zero-inflated",)
    overdispersed = "family='zero-inflated-negative-binomial', whose other counts vary more"
    shared_names = (EXTRA_ZERO,)
    parameters = (EXTRA_ZERO_PART,)
    shared_prior = (0.25, 0.0)
    nanoseconds = 40.0
    kernel = ZeroInflatedPoisson
    count_family = PoissonLoss()
