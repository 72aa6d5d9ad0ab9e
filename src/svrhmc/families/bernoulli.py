"""Events: labels {0, 1} or {−1, 1}, with P(y = 1) = 1/(1 + e⁻ᵗ), or by the probit Φ(t)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.serialise import part
from svrhmc.families.base import Coded, Family, Formulas, Loss, family, log_odds, two_values
from svrhmc.families.labels import two_texts
from svrhmc.families.names import require_link
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

_SERIES = 0.05  # |u| below which a remainder of the logistic loss is summed as a series
_NEAR = 1.0  # |u| up to which a remainder of the probit is an integral of its third derivative
_points, _weights = np.polynomial.legendre.leggauss(8)
_POINTS = tuple(float(p) for p in (1 + _points) / 2)
_SHARES = tuple(float(w * (1 - p) ** 2 / 4) for p, w in zip(_POINTS, _weights, strict=True))  # ½∫₀¹(1 − s)²g(s) ds


@family
def bernoulli(link: str = "logit") -> Loss:
    """Labels {0, 1} or {−1, 1}, with P(y = 1) = 1/(1 + e⁻ᵗ) or ("probit") Φ(t).

    >>> float(bernoulli("probit").mean(np.array(0.0)))
    0.5
    """
    if link not in ("logit", "probit"):
        require_link("bernoulli", link, "logit", "probit")
    return ProbitLoss() if link == "probit" else LogisticLoss()


class Logistic(NamedTuple):
    """log(1 + e^{−yt}) with y = ±1."""

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With s = yt and e = e^{−|s|}: ℓ = max(−s, 0) + log(1 + e), ℓ′ = −y/(1 + eˢ), ℓ″ = e/(1 + e)²; no term of
        these cancels another, and eˢ = ∞ rightly gives 0.
        """
        exp, where, maximum, log1p_unit = op.exp, op.where, op.maximum, op.log1p_unit
        zero, one = op.number(0), op.number(1)

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return -y / (one + exp(y * t))

        def value(loss: Fields, t: Value, y: Value) -> Value:
            s = y * t
            return maximum(-s, zero) + log1p_unit(exp(-abs(s)))

        def both(loss: Fields, t: Value, y: Value) -> Value:
            s = y * t
            e = exp(-abs(s))
            return maximum(-s, zero) + log1p_unit(e), -y * where(s > zero, e, one) / (one + e)

        return Formulas(slope, logistic_curvature, value, both, logistic_remainder, elementary=True)


def logistic_curvature(loss: Fields, t: Value, y: Value) -> Value:
    """ℓ″ = e/(1 + e)², e = e^{−|t|}, the same for every label."""
    e = np.exp(-np.abs(t))
    return e / ((1.0 + e) * (1.0 + e))


def logistic_remainder(loss: Fields, t: Value, y: Value, u: Value) -> Value:
    """The same for every label, as ℓ(t, 1) − ℓ(t, −1) = −t. Where |u| < 0.05 it is summed by its series to u⁷, whose
    coefficients are polynomials in q = ℓ″ and s = 1 − 2p, p = 1/(1 + e⁻ᵗ).
    """
    e = math.exp(-abs(t))
    q, s = e / ((1.0 + e) * (1.0 + e)), (1.0 - e) / (1.0 + e)
    if t > 0:
        s = -s
    if abs(u) < _SERIES:
        odd = s * (1 / 6 + u * u * ((1.0 - 12.0 * q) / 120 + u * u * (1.0 - 60.0 * q + 360.0 * q * q) / 5040))
        even = (1.0 - 6.0 * q) / 24 + u * u * (1.0 - 30.0 * q + 120.0 * q * q) / 720
        return q * u * u * u * (odd + u * even)
    p = (1.0 if t > 0 else e) / (1.0 + e)
    there = max(t + u, 0.0) + math.log1p(math.exp(-abs(t + u)))
    return there - (max(t, 0.0) + math.log1p(e)) - u * (p + 0.5 * q * u)


class EventLoss(Family):
    """What both links have in common: labels, and what they mean."""

    name = "bernoulli"
    mistaken = ("logistic", "logit", "binary")
    outcome = "events"
    most_classes = 2
    convex = True

    def coded(self, y: npt.ArrayLike) -> Coded:
        """Two texts are classes too: 1 is the one that comes last in their order."""
        return Coded(self, *two_texts(y))

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """{0, 1} or {−1, 1}, as signs."""
        labels = super().labels(y, n)
        values = np.unique(labels)
        if not (np.isin(values, (0, 1)).all() or np.isin(values, (-1, 1)).all()):
            shown = ", ".join(f"{value:g}" for value in values[:4]) + (", …" if len(values) > 4 else "")
            why = "say which label is 1, as with y == label; for more than two classes use 'categorical'"
            raise requirement("y", "labels in {0, 1} or {-1, 1}", f"the values {shown}", why)
        return np.where(labels > 0, 1.0, -1.0)

    def recession_cones(self, y: Array) -> RecessionCones:
        """The loss grows only against the label."""
        return one_predictor_cones(y < 0, y > 0)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """1 where u is above P(y = 0), else 0."""
        return np.asarray(u >= self.mean(-t), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        return two_values(self.mean(-t), np.greater(y, 0))

    def variance(self, t: Array) -> Array:
        """p(1 − p)."""
        p = self.mean(t)
        return p * (1 - p)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """0 and 1 for the signs."""
        return np.asarray(y > 0, np.float64)


@part
@dataclass(frozen=True)
class LogisticLoss(EventLoss):
    """ℓ(t, y) = log(1 + e^{−yt}) with y ∈ {−1, +1}; the slope −y/(1 + e^{yt}) has no cancellation."""

    inverse_link = "logistic"
    ratio = "odds ratio"
    modelled = "the log odds of {event}"
    gaussian_given = "polya-gamma"
    kernel = Logistic

    @property
    def curvature_bound(self) -> float:
        """p(1 − p) ≤ 1/4."""
        return 0.25

    @property
    def third_bound(self) -> float:
        """p(1 − p)|1 − 2p| ≤ 1/(6√3)."""
        return 1 / (6 * math.sqrt(3))

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log odds of all rows, with half a label more of each kind."""
        return log_odds(weights @ (y > 0), weights.sum()) - float(np.average(offset, weights=weights)), 1.0

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """π²/3, that of the logistic law."""
        return np.full(len(mean), np.pi**2 / 3)

    def mean(self, t: Array) -> Array:
        """P(y = 1) = 1/(1 + e^{−t})."""
        with np.errstate(over="ignore"):
            return 1.0 / (1.0 + np.exp(-t))

    def third_size(self, curvature: Array) -> Array:
        """|ℓ‴| = ℓ″|1 − 2p| is at most ℓ″, but a row may move to where ℓ″ is larger: 0.02 at least."""
        return np.maximum(curvature, 0.02)


class Probit(NamedTuple):
    """−log Φ(yt) with y = ±1."""

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With s = yt, λ = φ(s)/Φ(s) and e = s + λ: ℓ′ = −yλ, ℓ″ = λe, ℓ‴ = yλ(1 − e(e + λ))."""
        mills, minus_log_normal = op.mills, op.minus_log_normal

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return -y * mills(y * t)[0]

        def both(loss: Fields, t: Value, y: Value) -> Value:
            hazard = mills(y * t)[0]
            return minus_log_normal(y * t, hazard), -y * hazard

        def value(loss: Fields, t: Value, y: Value) -> Value:
            return minus_log_normal(y * t, None)

        def curvature(loss: Fields, t: Value, y: Value) -> Value:
            hazard, e = mills(y * t)
            return hazard * e

        def remainder(loss: Fields, t: Value, y: Value, u: Value) -> Value:
            """With s = yt and v = yu: ½v³ ∫₀¹ (1 − q)² ℓ‴(s + qv) dq, where |u| is at most 1."""
            s, v = y * t, y * u
            if abs(v) <= _NEAR:
                total = 0.0
                for k in range(len(_POINTS)):
                    hazard, rest = mills(s + _POINTS[k] * v)
                    total += _SHARES[k] * hazard * (1.0 - rest * (rest + hazard))
                return v * v * v * total
            hazard, rest = mills(s)
            there = minus_log_normal(s + v, mills(s + v)[0])
            return (there - minus_log_normal(s, hazard)) + v * hazard - 0.5 * hazard * rest * v * v

        return Formulas(slope, curvature, value, both, remainder)


@part
@dataclass(frozen=True)
class ProbitLoss(EventLoss):
    """ℓ(t, y) = −log Φ(yt) with y ∈ {−1, +1}.

    λ = φ(s)/Φ(s) = √(2/π)/erfcx(−s/√2), s = yt. Below s = −4, s + λ is the continued fraction
    1/(x + 2/(x + 3/(x + …))), x = −s: there the sum would cancel.
    """

    link = "probit"
    modelled = "the probit Φ⁻¹(p) of the probability p of {event}"
    kernel = Probit
    nanoseconds = 11.0

    @property
    def curvature_bound(self) -> float:
        """λe rises from 0 to 1 as s falls."""
        return 1.0

    @property
    def third_bound(self) -> float:
        """|ℓ‴| is largest at s = 1.00237, where it is 0.2957188."""
        return 0.295719

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """Φ⁻¹ of the share of all rows."""
        from scipy.special import ndtri

        share = (weights @ (y > 0) + 0.5) / (weights.sum() + 1.0)
        return float(ndtri(share)) - float(np.average(offset, weights=weights)), 1.0

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """1, that of the normal law."""
        return np.ones(len(mean))

    def mean(self, t: Array) -> Array:
        """Φ(t)."""
        from scipy.special import ndtr

        return np.asarray(ndtr(t), np.float64)

    def third_size(self, curvature: Array) -> Array:
        """A row may move to where it is larger: 0.02 at least."""
        return np.minimum(np.maximum(curvature, 0.02), self.third_bound)
