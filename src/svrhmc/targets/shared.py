"""Families with a parameter that all rows share, and what every loss of several predictors says.

    "gaussian", σ unknown    t = (μ, log σ)       r = (y − μ)/σ,   ℓ = log σ + ½r²
    "student-t", df given    t = (μ, log s)       r = (y − μ)/s,   ℓ = log s + ½(ν + 1) log(1 + r²/ν)
    "negative-binomial"      t = (log μ, log φ)   v = log μ/φ,     ℓ = φ sp(v) + y sp(−v) − log Γ(y + φ)/Γ(φ)
    "gamma"                  t = (log μ, log α)   r = log y/μ,     ℓ = α(eʳ − 1 − r) + α − α log α + log Γ(α)

with sp(v) = log(1 + eᵛ); var y is μ + μ²/φ of the negative binomial and μ²/α of the gamma. Coefficients come first in
x, shared parameters last, each with a normal prior of its own unless another is given: log σ and log s ~ N(0, 5²),
log φ and log α ~ N(0, 2²). Slopes have m = k + q numbers, curvatures m × m. None of these is convex in t or has bounds:
they are sampled by what asks for none. Given the shared parameter all but Student's are convex in the predictor.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, digest
from svrhmc.core.errors import positive, real_array, requirement
from svrhmc.core.parts import part
from svrhmc.targets.faces import Faces, sides
from svrhmc.targets.labels import counts
from svrhmc.targets.losses import Loss, SquaredLoss, log_rate, mean_and_sd


class WideLoss(Loss):
    """A loss of t ∈ ℝᵐ, its last axis: `blocks` predictors and `shared` parameters."""

    wide = True
    shared = 1

    def identity(self, label: Array) -> str:
        """As for one predictor, at some points of ℝᵐ."""
        t = np.cos(np.arange(13 * (self.blocks + self.shared))).reshape(13, -1)
        return f"{type(self).__name__} {digest(self.value(t, label), self.slope(t, label))}"


def _matrix(aa: Array, ab: Array, bb: Array) -> Array:
    """2 × 2 curvatures."""
    return np.stack([np.stack([aa, ab], axis=-1), np.stack([ab, bb], axis=-1)], axis=-2)


class LocationScale(WideLoss):
    """ℓ = τ + h(r), r = (y − μ)e^{−τ}, t = (μ, τ); with g = h′: slopes −ge^{−τ} and 1 − rg, curvatures g′e^{−2τ},
    (g + rg′)e^{−τ} and r(g + rg′).
    """

    identity_link = True
    shared_prior = (0.04, 0.0)
    spread = True

    @abstractmethod
    def _h(self, r: Array) -> tuple[Array, Array, Array, Array]:
        """h, g = h′, g′ and g + rg′."""

    def shared_start(self, y: Array) -> Array:
        """The log of the spread of y."""
        return np.array([math.log(max(float(y.std()), 1e-8 * max(1.0, float(np.abs(y).max()))))])

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The mean and the standard deviation of y."""
        return mean_and_sd(y - offset, weights)

    def faces(self, y: Array) -> Faces:
        """At a given scale a residual costs more and more, both ways."""
        return sides(np.ones(np.shape(y), bool), True)

    def unsettled(self, weight: float, free: int, exact: bool) -> str | None:
        """∫dβ e^{−f} ~ e^{−(W − free)τ} as τ → ∞; where all residuals are 0, f falls for ever as τ → −∞."""
        return spread_unsettled(weight, free, exact)

    def value(self, t: Array, y: Array) -> Array:
        """τ + h(r)."""
        r, tau, _ = self._standard(t, y)
        return tau + self._h(r)[0]

    def slope(self, t: Array, y: Array) -> Array:
        """(−ge^{−τ}, 1 − rg)."""
        r, _, inverse = self._standard(t, y)
        g = self._h(r)[1]
        return np.stack([-g * inverse, 1.0 - r * g], axis=-1)

    def curvature(self, t: Array, y: Array) -> Array:
        """By μ and τ."""
        r, _, inverse = self._standard(t, y)
        _, _, bend, cross = self._h(r)
        return _matrix(bend * inverse**2, cross * inverse, r * cross)

    def mean(self, t: Array) -> Array:
        """μ."""
        mean: Array = t[..., 0]
        return mean

    def _standard(self, t: Array, y: Array) -> tuple[Array, Array, Array]:
        inverse = np.exp(-t[..., 1])
        return (y - t[..., 0]) * inverse, t[..., 1], inverse


@part
@dataclass(frozen=True)
class GaussianLoss(LocationScale):
    """y ~ N(μ, σ²), t = (μ, log σ)."""

    name = "gaussian"
    shared_names = ("log sigma",)
    far_off = "family='student-t', which such rows pull less"
    without_residuals = "give the spread (noise_variance=…), a normal prior of log σ, or drop columns"
    convex_given_shared = True
    mixture = True
    nanoseconds = 1.3
    kernel = "location-scale"

    def with_noise(self, noise_variance: float) -> Loss:
        """Then it is the squared loss."""
        return SquaredLoss(noise_variance)

    @property
    def numbers(self) -> tuple[float, ...]:
        """No degrees of freedom: 0."""
        return (0.0,)

    def _h(self, r: Array) -> tuple[Array, Array, Array, Array]:
        return r * r / 2, r, np.ones_like(r), 2 * r

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """½ log 2π."""
        return np.full(np.shape(y), 0.5 * math.log(2 * math.pi))

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """μ + σΦ⁻¹(u)."""
        from scipy.special import ndtri

        return np.asarray(t[..., 0] + np.exp(t[..., 1]) * ndtri(u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Φ(r)."""
        from scipy.special import ndtr

        p = np.asarray(ndtr(self._standard(t, y)[0]), np.float64)
        return p, p


@part
@dataclass(frozen=True)
class StudentLoss(LocationScale):
    """y = μ + s·t_ν, t = (μ, log s), with the degrees of freedom ν given: outliers pull little."""

    name = "student-t"
    shared_names = ("log scale",)
    without_residuals = "take the family 'gaussian', or drop columns"
    nanoseconds = 4.6
    kernel = "location-scale"
    df: float = 4.0

    def __post_init__(self) -> None:
        positive("df", self.df)

    @property
    def numbers(self) -> tuple[float, ...]:
        """ν."""
        return (self.df,)

    def shared_start(self, y: Array) -> Array:
        """The log of the median distance to the median."""
        away = float(np.median(np.abs(y - np.median(y))))
        return np.array([math.log(away)]) if away > 0 else super().shared_start(y)

    def _h(self, r: Array) -> tuple[Array, Array, Array, Array]:
        v, sum_ = self.df, self.df + r * r
        value, slope = (v + 1) / 2 * np.log1p(r * r / v), (v + 1) * r / sum_
        return value, slope, (v + 1) * (v - r * r) / sum_**2, 2 * v * slope / sum_

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log Γ(ν/2)√(νπ)/Γ((ν + 1)/2)."""
        v = self.df
        value = math.lgamma(v / 2) - math.lgamma((v + 1) / 2) + 0.5 * math.log(v * math.pi)
        return np.full(np.shape(y), value)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """μ + s times the quantile of Student's t."""
        from scipy.special import stdtrit

        return np.asarray(t[..., 0] + np.exp(t[..., 1]) * stdtrit(self.df, u), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of Student's t at r."""
        from scipy.special import stdtr

        p = np.asarray(stdtr(self.df, self._standard(t, y)[0]), np.float64)
        return p, p


@part
@dataclass(frozen=True)
class NegativeBinomialLoss(WideLoss):
    """Counts of mean μ and variance μ + μ²/φ, t = (log μ, log φ)."""

    name = "negative-binomial"
    ratio = "ratio of means"
    outcome = "counts"
    shared_names = ("log shape",)
    convex_given_shared = True
    nanoseconds = 28.0
    kernel = "negative-binomial"

    @property
    def numbers(self) -> tuple[float, ...]:
        """None."""
        return ()

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Counts."""
        return counts("y", y, (n,))

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(y, weights, offset), 1.0

    def faces(self, y: Array) -> Faces:
        """At a given φ, φ sp(v) grows upwards always, and y sp(−v) downwards where there was an event."""
        return sides(True, y > 0)

    def unsettled(self, weight: float, free: int, exact: bool) -> str | None:
        """As φ → ∞ the law tends to Poisson's, whose likelihood is above 0."""
        return "as log φ grows the likelihood tends to that of Poisson counts and never to 0"

    def value(self, t: Array, y: Array) -> Array:
        """φ sp(v) + y sp(−v) − log Γ(y + φ)/Γ(φ)."""
        v, phi = t[..., 0] - t[..., 1], np.exp(t[..., 1])
        return phi * np.logaddexp(0.0, v) + y * np.logaddexp(0.0, -v) - _log_rising(phi, y)

    def slope(self, t: Array, y: Array) -> Array:
        """φp − y(1 − p), and φ(sp(v) − p) + y(1 − p) − φD, with D = ψ(y + φ) − ψ(φ), p = 1/(1 + e⁻ᵛ)."""
        from scipy.special import digamma

        v, phi = t[..., 0] - t[..., 1], np.exp(t[..., 1])
        p, rest = _sigmoid(v), _sigmoid(-v)
        D = digamma(y + phi) - digamma(phi)
        return np.stack([phi * p - y * rest, phi * (np.logaddexp(0.0, v) - p) + y * rest - phi * D], axis=-1)

    def curvature(self, t: Array, y: Array) -> Array:
        """With c = p(1 − p): (φ + y)c, φp − (φ + y)c, φ(sp(v) − 2p − D) + (φ + y)c − φ²D′."""
        from scipy.special import digamma, polygamma

        v, phi = t[..., 0] - t[..., 1], np.exp(t[..., 1])
        p, rest = _sigmoid(v), _sigmoid(-v)
        both = (phi + y) * p * rest
        D, bend = digamma(y + phi) - digamma(phi), polygamma(1, y + phi) - polygamma(1, phi)
        own = phi * (np.logaddexp(0.0, v) - 2 * p - D) + both - phi**2 * bend
        return _matrix(both, phi * p - both, own)

    def mean(self, t: Array) -> Array:
        """μ."""
        return np.exp(t[..., 0])

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y!."""
        from scipy.special import gammaln

        return np.asarray(gammaln(y + 1), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """By inversion."""
        from scipy.stats import nbinom

        return np.asarray(nbinom.ppf(u, np.exp(t[..., 1]), _sigmoid(t[..., 1] - t[..., 0])), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """P(Y ≤ y) = I_p(φ, y + 1) with p = φ/(φ + μ)."""
        from scipy.special import betainc

        phi, p = np.exp(t[..., 1]), _sigmoid(t[..., 1] - t[..., 0])
        return np.where(y > 0, betainc(phi, np.maximum(y, 1.0), p), 0.0), np.asarray(betainc(phi, y + 1.0, p))


@part
@dataclass(frozen=True)
class GammaLoss(WideLoss):
    """Positive y of mean μ and variance μ²/α, t = (log μ, log α); the label is log y."""

    name = "gamma"
    ratio = "ratio of means"
    shared_names = ("log shape",)
    convex_given_shared = True
    nanoseconds = 10.0
    kernel = "gamma"
    spread = True

    @property
    def numbers(self) -> tuple[float, ...]:
        """None."""
        return ()

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Logarithms of positive numbers."""
        array = np.asarray(real_array("y", y, (n,)), np.float64)
        if (array <= 0).any():
            row = int(np.argmax(array <= 0))
            raise requirement("y", "positive numbers for the gamma family", f"{array[row]:g} at row {row}")
        return np.asarray(np.log(array), np.float64)

    def overall(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of the rate of all rows together."""
        return log_rate(np.exp(y), weights, offset), 1.0

    def faces(self, y: Array) -> Faces:
        """At a given α, eʳ − 1 − r grows both ways."""
        return sides(np.ones(np.shape(y), bool), True)

    def unsettled(self, weight: float, free: int, exact: bool) -> str | None:
        """∫dβ e^{−f} ~ α^{W − free} as α → 0; where all r are 0, f falls for ever as α → ∞."""
        return spread_unsettled(weight, free, exact)

    def value(self, t: Array, y: Array) -> Array:
        """α(eʳ − 1 − r) + α − α log α + log Γ(α)."""
        from scipy.special import gammaln

        r, alpha = y - t[..., 0], np.exp(t[..., 1])
        return np.asarray(alpha * (np.expm1(r) - r) + alpha * (1 - t[..., 1]) + gammaln(alpha), np.float64)

    def slope(self, t: Array, y: Array) -> Array:
        """α(1 − eʳ), and α(eʳ − 1 − r + ψ(α) − log α)."""
        from scipy.special import digamma

        r, alpha = y - t[..., 0], np.exp(t[..., 1])
        return np.stack([-alpha * np.expm1(r), alpha * (np.expm1(r) - r + digamma(alpha) - t[..., 1])], axis=-1)

    def curvature(self, t: Array, y: Array) -> Array:
        """αeʳ, α(1 − eʳ), α(eʳ − 1 − r + ψ(α) − log α + αψ′(α) − 1)."""
        from scipy.special import digamma, polygamma

        r, alpha = y - t[..., 0], np.exp(t[..., 1])
        own = alpha * (np.expm1(r) - r + digamma(alpha) - t[..., 1] + alpha * polygamma(1, alpha) - 1)
        return _matrix(alpha * np.exp(r), -alpha * np.expm1(r), own)

    def mean(self, t: Array) -> Array:
        """μ."""
        return np.exp(t[..., 0])

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log y, which is the label."""
        return y

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """By inversion."""
        from scipy.special import gammaincinv

        alpha = np.exp(t[..., 1])
        return np.asarray(gammaincinv(alpha, u) * np.exp(t[..., 0]) / alpha, np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of αeʳ, whose law is the gamma law of shape α."""
        from scipy.special import gammainc

        alpha = np.exp(t[..., 1])
        p = np.asarray(gammainc(alpha, alpha * np.exp(y - t[..., 0])), np.float64)
        return p, p


def spread_unsettled(weight: float, free: int, exact: bool) -> str | None:
    """What a spread needs: residuals, and rows of more weight than there are coefficients without a prior."""
    if exact:
        return "some coefficients fit every y exactly, so that no residual tells how large the spread is"
    if weight <= free:
        return f"rows of weight {weight:g} in all leave nothing over for it beside {free} coefficients"
    return None


def _sigmoid(v: Array) -> Array:
    from scipy.special import expit

    return np.asarray(expit(v), np.float64)


def _log_rising(phi: Array, y: Array) -> Array:
    """log Γ(y + φ)/Γ(φ), without the difference of two large numbers."""
    from scipy.special import betaln, gammaln

    safe = np.maximum(y, 1.0)
    return np.asarray(np.where(y > 0, gammaln(safe) - betaln(safe, phi), 0.0), np.float64)
