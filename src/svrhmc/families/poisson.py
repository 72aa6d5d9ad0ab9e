"""Counts y = 0, 1, 2, … with E y = eᵗ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.serialise import part
from svrhmc.families.base import Family, Formulas, Loss, family
from svrhmc.families.counts import CountLoss, quantiles_of_counts
from svrhmc.families.names import require_link
from svrhmc.families.primitives import Fields, Primitives, Value

_SMALL = 0.25  # |u| below which a remainder is summed as a series
_SERIES = tuple(1 / math.factorial(k + 3) for k in range(13))


@family
def poisson(link: str = "log") -> Loss:
    """Counts with E y = eᵗ; an exposure enters as offset = log exposure.

    link: "log"; others are refused with the reason.

    >>> float(poisson().mean(np.array(0.0)))
    1.0
    """
    require_link("poisson", link, "log")
    return PoissonLoss()


class Poisson(NamedTuple):
    """eᵗ − yt."""

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """ℓ′ = eᵗ − y, ℓ″ = ℓ‴ = eᵗ."""
        exp, polynomial = op.exp, op.polynomial

        def both(loss: Fields, t: Value, y: Value) -> Value:
            mean = exp(t)
            return mean - y * t, mean - y

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return exp(t) - y

        def curvature(loss: Fields, t: Value, y: Value) -> Value:
            return exp(t) * np.ones(np.shape(y))

        def remainder(loss: Fields, t: Value, y: Value, u: Value) -> Value:
            """eᵗ(eᵘ − 1 − u − ½u²), the same for every label, as ℓ is −yt beside eᵗ."""
            if abs(u) < _SMALL:
                return math.exp(t) * (u * u * u * polynomial(_SERIES, u))
            return math.exp(t + u) - math.exp(t) * (1.0 + u * (1.0 + 0.5 * u))

        def centred(loss: Fields, count: Value, t: Value, y: Value, slope: Value, value: Value) -> None:
            """In float64, less the value at the best t there is for the label: what float32 then holds of it is as
            small as the row fits well.
            """
            for i in range(count):
                label, at = np.float64(y[i]), np.float64(t[i])
                mean = math.exp(at)
                best = label - label * math.log(label) if label > 0.0 else 0.0
                value[i] = (mean - label * at) - best
                slope[i] = mean - label

        coarse = op.number is np.float32
        return Formulas(
            slope, curvature, both=both, remainder=remainder, energies=centred if coarse else None, elementary=True
        )


_LARGEST_RATE = 1e5  # beyond it the expansion of a quantile is off by less than a thousandth of a count
_MOST_STEPS = 16  # up or down from the expansion


@part
@dataclass(frozen=True)
class PoissonLoss(CountLoss, Family):
    """ℓ(t, y) = eᵗ − yt: counts y whose mean is eᵗ. The curvature eᵗ has no bound, but has one up to any t."""

    name = "poisson"
    overdispersed = "family='negative-binomial', whose variance is larger than its mean"
    other_zeros = "family='hurdle-poisson'"
    convex = True
    kernel = Poisson

    def third_within(self, low: Array, high: Array) -> Array:
        """eᵗ rises: its largest value is the last one."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(high), np.float64)

    def start(self, y: Array) -> Array:
        """log(y + ½)."""
        return np.asarray(np.log(y + 0.5), np.float64)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """log(1 + 1/λ): that of log y, were y log-normal with its mean and variance."""
        return np.asarray(np.log1p(1 / mean))

    def variance(self, t: Array) -> Array:
        """eᵗ, as the mean."""
        return np.exp(t)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        t, u = np.broadcast_arrays(t, u)
        with np.errstate(over="ignore"):
            rate, flat = np.exp(t).ravel(), u.ravel()

        def ratio(y: int, chosen: Indices) -> Array:
            return rate[chosen] / y

        def of_large(chosen: Indices) -> Array:
            return _quantiles_of_large_counts(flat[chosen], rate[chosen])

        return quantiles_of_counts(flat, np.exp(-rate), ratio, of_large).reshape(u.shape)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        from scipy.special import pdtr

        rate = np.exp(t)
        return np.where(y > 0, pdtr(np.maximum(y - 1, 0), rate), 0.0), np.asarray(pdtr(y, rate), np.float64)


def _quantiles_of_large_counts(u: Array, rate: Array) -> Array:
    """The least y with P(Y ≤ y) ≥ u, from the expansion of Cornish and Fisher with z = Φ⁻¹(u),

        y + ½ ≈ λ + z√λ + (z² − 1)/6 + (z − z³)/72√λ,

    one count up or down at a time. Beyond `_LARGEST_RATE` the expansion is taken as it is.
    """
    from scipy.special import ndtri, pdtr
    from scipy.stats import poisson

    with np.errstate(invalid="ignore"):
        z = ndtri(u)
        sd = np.sqrt(rate)
        y = np.maximum(np.ceil(rate + z * sd + (z**2 - 1) / 6 + (z - z**3) / (72 * sd) - 0.5), 0.0)
    rising = falling = np.flatnonzero(np.isfinite(y) & (rate < _LARGEST_RATE))
    for _ in range(_MOST_STEPS):
        rising = rising[pdtr(y[rising], rate[rising]) < u[rising]]
        y[rising] += 1
    for _ in range(_MOST_STEPS):
        falling = falling[y[falling] > 0]
        falling = falling[pdtr(y[falling] - 1, rate[falling]) >= u[falling]]
        y[falling] -= 1
    others = np.concatenate([np.flatnonzero(~np.isfinite(y)), rising, falling])
    if len(others):
        y[others] = poisson.ppf(u[others], rate[others])
    return y
