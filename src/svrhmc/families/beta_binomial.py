"""Successes y of m trials whose probability varies from row to row by a beta law of mean μ and concentration φ.

    t = (η, log φ),     a = φ/(1 + e^{−η}), b = φ/(1 + e^{η}),     R(α, k) = log Γ(α + k)/Γ(α),

    ℓ = R(φ, m) − R(a, y) − R(b, m − y).

As φ → ∞ the law is binomial; its variance is 1 + (m − 1)/(1 + φ) times as large. ℓ depends on both counts of a row, so
that trials are no weight here, and a label holds both in one number: m + y/2²⁶. ℓ is not convex, and has no bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.serialise import part
from svrhmc.families.base import Formulas, Loss, Observed, Parameter, SharedFamily, family, log_odds
from svrhmc.families.binomial import BinomialLoss
from svrhmc.families.labels import first_place
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

_PLACE = 2.0**26  # trials are below it, and successes are in units of 1/2²⁶


@family
def beta_binomial() -> Loss:
    """Successes of some trials with log odds t of their mean, which vary more than "binomial" has it; log φ is last.

    >>> float(beta_binomial().mean(np.array([0.0, 1.0])))
    0.5
    """
    return BetaBinomialLoss()


def _counts(y: Array) -> tuple[Array, Array]:
    """Trials and successes of labels."""
    trials = np.floor(y)
    return trials, (y - trials) * _PLACE


class BetaBinomial(NamedTuple):
    """R(φ, m) − R(a, y) − R(b, m − y)."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With D(α, k) = ψ(α + k) − ψ(α), D′ its derivative by α, and c = φμ(1 − μ): slopes −c(D_a − D_b) and
        φD_φ − aD_a − bD_b; curvatures −c(1 − 2μ)(D_a − D_b) − c²(D′_a + D′_b), −c(D_a − D_b) − c(aD′_a − bD′_b) and the
        second slope + φ²D′_φ − a²D′_a − b²D′_b.
        """
        exp, soft, rising, floor, place = op.exp, op.soft, op.rising, np.floor, _PLACE

        @op.function
        def energy(eta: Value, phi: Value, m: Value, k: Value) -> Value:
            _, mean, rest = soft(eta)
            a, b = mean * phi, rest * phi
            of_a, rate_a = rising(a, k)
            of_b, rate_b = rising(b, m - k)
            of_all, rate = rising(phi, m)
            return of_all - of_a - of_b, -a * rest * (rate_a - rate_b), phi * rate - a * rate_a - b * rate_b

        def parts(eta: Value, tau: Value, y: Value) -> Value:
            m = op.xp.floor(y)
            return energy(eta, op.exp(tau), m, (y - m) * place)

        def value(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            return parts(eta, tau, y)[0]

        def slope(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            return parts(eta, tau, y)[1:]

        def curvature(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
            (by_eta, by_tau), (m, k) = slope(loss, eta, tau, y), _counts(y)
            phi, mean, rest = op.exp(tau), op.sigmoid(eta), op.sigmoid(-eta)
            a, b = mean * phi, rest * phi
            bend_a, bend_b, bend = (
                z * (op.trigamma(z + count) - op.trigamma(z)) for z, count in ((a, k), (b, m - k), (phi, m))
            )
            return (
                by_eta * (rest - mean) - a * rest * (rest * bend_a + mean * bend_b),
                by_eta - a * rest * (bend_a - bend_b),
                by_tau + phi * bend - a * bend_a - b * bend_b,
            )

        def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
            phi = 0.0
            for i in range(count):
                if i == 0 or t[1, i] != t[1, i - 1]:
                    phi = exp(t[1, i])
                m = floor(y[i])
                t[2, i], s[0, i], s[1, i] = energy(t[0, i], phi, m, (y[i] - m) * place)

        return Formulas(slope, curvature, value, energies=energies, arguments=2)


@part
@dataclass(frozen=True)
class BetaBinomialLoss(SharedFamily):
    """Successes of m trials, of mean probability μ and concentration φ, t = (log μ/(1 − μ), log φ)."""

    inverse_link = "logistic"
    name = "beta-binomial"
    aliases = ("betabinomial", "betabinom")
    ratio = "odds ratio"
    outcome = "events"
    modelled = "the log odds of a success"
    shared_names = ("log concentration",)
    parameters = (Parameter("concentration", ("phi", "kappa")),)
    in_trials = True
    nanoseconds = 100.0
    kernel = BetaBinomial

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Successes of one trial: 0 or 1."""
        return self.observed(y, n).y

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """Both counts of each row in one number; checked as those of "binomial" are."""
        share, count = BinomialLoss().observed(y, n, trials)
        m = np.ones(n) if count is None else count
        if (many := m >= _PLACE).any():
            raise requirement("trials", "below 2²⁶ for the beta-binomial family", first_place(m, many))
        return Observed(m + np.round(share * m) / _PLACE, None)

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log odds of all trials."""
        m, k = _counts(y)
        return log_odds(weights @ k, weights @ m) - float(np.average(offset, weights=weights)), 1.0

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given φ it grows upwards where there was a failure, downwards where there was a success."""
        m, k = _counts(y)
        return one_predictor_cones(k < m, k > 0)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """As φ → ∞ the law tends to the binomial one, whose likelihood is above 0."""
        return "as log φ grows the likelihood tends to that of binomial counts and never to 0"

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """π²/3 for one trial, that of the logistic law."""
        return np.full(len(mean), np.pi**2 / 3)

    def variance(self, t: Array) -> Array:
        """μ(1 − μ), of one trial."""
        mean = self.mean(t)
        return mean * (1 - mean)

    def mean(self, t: Array) -> Array:
        """μ, the probability of a success."""
        return np.asarray(NUMPY.sigmoid(t[..., 0]), np.float64)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """−log (m choose y)."""
        from scipy.special import gammaln

        m, k = _counts(y)
        return np.asarray(gammaln(k + 1) + gammaln(m - k + 1) - gammaln(m + 1), np.float64)

    def trials_of(self, y: Array, weights: Array | None) -> Array:
        return np.floor(y)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """The number of successes, as users give it."""
        return _counts(y)[1]

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """The number of k < m with P(Y ≤ k) < u."""
        m = np.ones(np.shape(u)) if trials is None else np.asarray(trials, np.float64)
        y = np.zeros(np.broadcast_shapes(np.shape(t)[:-1], np.shape(u), m.shape))
        for total, _ in _sums(t, m):
            if not (below := total < u).any():
                break
            y += below
        return np.minimum(y, m)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of the number of successes."""
        m, successes = _counts(y)
        at_most = below = np.zeros(np.broadcast_shapes(np.shape(t)[:-1], y.shape))
        for k, (total, p) in enumerate(_sums(t, m)):
            if k > successes.max():
                break
            at_most = np.where(k == successes, total, at_most)
            below = np.where(k == successes, total - p, below)
        return np.maximum(below, 0.0), np.minimum(at_most, 1.0)


def _sums(t: Array, m: Array) -> Iterator[tuple[Array, Array]]:
    """P(Y ≤ k) and P(Y = k) for k = 0, 1, … up to the most trials.

    P(k + 1)/P(k) = (m − k)(a + k)/((k + 1)(b + m − k − 1)).
    """
    phi = np.exp(t[..., 1])
    a, b = NUMPY.sigmoid(t[..., 0]) * phi, NUMPY.sigmoid(-t[..., 0]) * phi
    p = np.exp(NUMPY.log_rising(b, m) - NUMPY.log_rising(phi, m))
    total = p
    for k in range(int(m.max(initial=0.0)) + 1):
        yield total, p
        left = np.maximum(m - k, 0.0)
        p = p * (left * (a + k) / ((k + 1) * np.maximum(b + left - 1, 1e-300)))
        total = total + p
