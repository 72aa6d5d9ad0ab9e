"""Counts by two parts: whether y is 0, and, where it is not, a Poisson count that is known to be above 0.

    P(y = 0) = 1/(1 + e^{−ζ}),     P(y) = P(y > 0) · e^{−μ}μ^y / (y!(1 − e^{−μ})) for y = 1, 2, …,     t = (log μ, ζ).

With u = 1 − μ/(e^μ − 1), from 0 to 1, the mean of the counts above 0 is m = μ/(1 − e^{−μ}) = 1 + μ − u, and

    y = 0:  ℓ = sp(−ζ),          y > 0:  ℓ = sp(ζ) + μ − log m − (y − 1) log μ,          sp(v) = log(1 + eᵛ),

in which nothing cancels as μ → 0. Both parts are convex and have no parameter in common: ℓ is jointly convex. The
log odds of a zero, ζ, are one number that all rows share.

The model is that of Mullahy, Journal of Econometrics 33, 1986.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, Parameter, family
from svrhmc.families.counts import CountWithZeros, with_zeros
from svrhmc.families.poisson import PoissonLoss
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

_SMALL = 0.5  # g below which e^g − 1 − g is summed as a series
_SERIES = tuple(1 / math.factorial(k + 2) for k in range(14))
ZERO = "log odds of zero"
ZERO_PART = Parameter("zero", ("hu",), effect=2.5)


@family
def hurdle_poisson() -> Loss:
    """Counts whose zeros have a probability of their own; log odds of a zero are the last coordinate of x.

    >>> round(float(hurdle_poisson().mean(np.array([0.0, -50.0]))), 3)  # of counts that are never 0
    1.582
    """
    return HurdlePoissonLoss()


def truncation(op: Primitives) -> Value:
    """u(g) = 1 − g/(e^g − 1) of g ≥ 0, all digits of it."""
    expm1, where, maximum, minimum, polynomial = op.expm1, op.where, op.maximum, op.minimum, op.polynomial

    def lacking(g: Value) -> Value:
        near, far = minimum(g, _SMALL), minimum(maximum(g, _SMALL), 700.0)
        series = near * polynomial(_SERIES, near)  # (e^g − 1 − g)/g
        return where(g < _SMALL, series / (1.0 + series), 1.0 - far / expm1(far))

    return op.function(lacking)


class HurdlePoisson(NamedTuple):
    """sp(−ζ) for y = 0, else sp(ζ) + μ − log m − (y − 1) log μ."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Slopes (y > 0)(μ − u − (y − 1)) and σ(ζ) − (y = 0); curvatures (y > 0)mu, 0 and σ(ζ)(1 − σ(ζ))."""
        exp, log1p, where, maximum, sigmoid, softplus = op.exp, op.log1p, op.where, op.maximum, op.sigmoid, op.softplus
        lacking = truncation(op)

        @op.function
        def parts(eta: Value, zeta: Value, y: Value) -> Value:
            some, mean = y > 0.0, exp(eta)
            extra, more = mean - lacking(mean), maximum(y - 1.0, 0.0)
            value = softplus(where(some, zeta, -zeta)) + where(some, mean - log1p(extra) - more * eta, 0.0)
            return value, where(some, extra - more, 0.0), where(some, sigmoid(zeta), -sigmoid(-zeta))

        def curvature(loss: Fields, eta: Value, zeta: Value, y: Value) -> Value:
            mean = exp(eta)
            u, at_zero = lacking(mean), sigmoid(zeta) * sigmoid(-zeta) * np.ones(np.shape(y))
            return where(y > 0.0, (1.0 + mean - u) * u, 0.0), 0.0 * at_zero, at_zero

        return with_zeros(parts, curvature)


class HurdleLoss(CountWithZeros):
    """What counts behind a hurdle have in common: `_minus_log_zero` is g, e^{−g} the probability of 0 without
    the hurdle.
    """

    zeros = ZERO
    only_zeros = "no row tells of the counts above 0; take 'bernoulli' for whether y is 0"
    reading = "Ratios of means are those of the law before its zeros are left out."
    modelled = "the logarithm of the mean of {response}, had its counts above 0 not lost their zeros"

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of the rows above 0."""
        w = weights * (y > 0)
        total, exposure = float(w @ y), float(w @ np.exp(offset))
        return (math.log(total / exposure) if total > 0 else 0.0), 1.0

    def shared_start(self, y: Array) -> Array:
        """The log odds of a zero, with half a row more of each kind, after zeros for the rest."""
        zeros = float((y == 0).sum())
        return np.append(np.zeros(self.shared - 1), math.log((zeros + 0.5) / (len(y) - zeros + 0.5)))

    def recession_cones(self, y: Array) -> RecessionCones:
        """A count of 2 or more grows both ways, of 1 only upwards; a 0 says nothing of μ."""
        return one_predictor_cones(y > 0, y > 1)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """Rows of both kinds hold ζ."""
        if y is None or not len(y) or bool((y == 0).any() and (y > 0).any()):
            return None
        return "no row is 0, and as the log odds of a zero fall the likelihood rises for ever"

    def link_variance(self, mean: Array, shared: Array) -> Array | None:
        return None

    def mean(self, t: Array) -> Array:
        """P(y > 0)μ/(1 − e^{−g})."""
        g = self._minus_log_zero(t)
        share = np.where(g > 1e-300, -np.expm1(-g), 1.0)
        above = np.where(g > 1e-300, np.exp(t[..., 0]) / share, 1.0)
        return np.asarray(NUMPY.sigmoid(-t[..., -1]) * above, np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """0 up to P(0), and then the quantile of the counts above 0."""
        none, left = NUMPY.sigmoid(t[..., -1]), NUMPY.sigmoid(-t[..., -1])
        zero = np.exp(-self._minus_log_zero(t))
        rank = np.clip((u - none) / np.maximum(left, 1e-300), 0.0, 1.0)
        p = zero + (1.0 - zero) * rank
        many = p > self._below(t, np.full(np.shape(p), 2.0))  # others need no search for their quantile
        y = np.where(many, np.maximum(self._quantile(t, np.where(many, p, 0.5)), 2.0), 1.0)
        return np.where(u <= none, 0.0, y)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        none, left, g = NUMPY.sigmoid(t[..., -1]), NUMPY.sigmoid(-t[..., -1]), self._minus_log_zero(t)
        zero, share = np.exp(-g), np.maximum(-np.expm1(-g), 1e-300)
        below, at_most = (
            none + left * np.clip((self._below(t, np.maximum(k, 1.0)) - zero) / share, 0.0, 1.0) for k in (y, y + 1.0)
        )
        return np.where(y > 0, np.where(y > 1, below, none), 0.0), np.where(y > 0, at_most, none)

    def _minus_log_zero(self, t: Array) -> Array:
        """g."""
        return np.exp(t[..., 0])

    def _below(self, t: Array, y: Array) -> Array:
        """P(Y < y) of the counts with their zeros, y ≥ 1."""
        from scipy.special import pdtr

        return np.asarray(pdtr(y - 1.0, np.exp(t[..., 0])), np.float64)

    def _quantile(self, t: Array, u: Array) -> Array:
        """Of the counts with their zeros."""
        return PoissonLoss().draw(t[..., 0], u)


@part
@dataclass(frozen=True)
class HurdlePoissonLoss(HurdleLoss):
    """Zeros by log odds ζ, and Poisson counts above 0, t = (log μ, ζ)."""

    name = "hurdle-poisson"
    aliases = ("hurdlepoisson", "hurdle")
    mistaken = ("truncated-poisson",)
    overdispersed = "family='hurdle-negative-binomial', whose counts above 0 vary more"
    shared_names = (ZERO,)
    parameters = (ZERO_PART,)
    shared_prior = (0.04, 0.0)
    convex = True
    nanoseconds = 25.0
    kernel = HurdlePoisson
