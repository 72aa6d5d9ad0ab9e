"""Successes y of some trials, each with P(success) = 1/(1 + e⁻ᵗ)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import require_unmasked, requirement
from svrhmc.core.serialise import part
from svrhmc.families.base import Family, Formulas, Loss, Observed, family, log_odds
from svrhmc.families.bernoulli import LogisticLoss, logistic_curvature, logistic_remainder
from svrhmc.families.labels import counts, first_place
from svrhmc.families.names import require_link
from svrhmc.families.primitives import Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones

_TRIAL = LogisticLoss()


@family
def binomial(link: str = "logit") -> Loss:
    """Successes y of some trials, each with P(success) = 1/(1 + e⁻ᵗ).

    link: "logit"; others are refused with the reason.

    >>> from svrhmc.targets import glm
    >>> glm([[1.0]], [3], "binomial", trials=10).mode().round(3)  # 3 of 10
    array([-0.583])
    """
    require_link("binomial", link, "logit")
    return BinomialLoss()


class Binomial(NamedTuple):
    """y log(1 + e⁻ᵗ) + (1 − y) log(1 + eᵗ) with y from 0 to 1."""

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """With e = e^{−|t|} and p = 1/(1 + e⁻ᵗ): ℓ = log(1 + e) + y max(−t, 0) + (1 − y) max(t, 0), two terms not below
        0; ℓ′ = (1 − y)p − y(1 − p).
        """
        exp, where, maximum, log1p_unit = op.exp, op.where, op.maximum, op.log1p_unit
        zero, one = op.number(0), op.number(1)

        @op.function
        def shares(e: Value, t: Value, y: Value) -> Value:
            near, far = one / (one + e), e / (one + e)
            return (one - y) * where(t > zero, near, far) - y * where(t > zero, far, near)

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return shares(exp(-abs(t)), t, y)

        def both(loss: Fields, t: Value, y: Value) -> Value:
            e = exp(-abs(t))
            value = log1p_unit(e) + (y * maximum(-t, zero) + (one - y) * maximum(t, zero))
            return value, shares(e, t, y)

        return Formulas(slope, logistic_curvature, both=both, remainder=logistic_remainder, elementary=True)


@part
@dataclass(frozen=True)
class BinomialLoss(Family):
    """y successes of m trials: mℓ(t, ȳ) with ȳ = y/m and ℓ(t, ȳ) = ȳ log(1 + e⁻ᵗ) + (1 − ȳ) log(1 + eᵗ).

    So the label is the share of successes, and the trials are a weight: a row counts as m observations.
    """

    inverse_link = "logistic"
    name = "binomial"
    ratio = "odds ratio"
    outcome = "events"
    modelled = "the log odds of a success"
    weights_are_trials = True
    in_trials = True
    overdispersed = "family='beta-binomial', as the trials of one row are more alike than those of others"
    convex = True
    gaussian_given = "polya-gamma"
    kernel = Binomial

    @property
    def curvature_bound(self) -> float:
        return _TRIAL.curvature_bound

    @property
    def third_bound(self) -> float:
        return _TRIAL.third_bound

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Successes of one trial: 0 or 1."""
        return self.observed(y, n).y

    def observed(self, y: npt.ArrayLike, n: int, trials: npt.ArrayLike | None = None) -> Observed:
        """Shares of successes, and trials (None: one each); a row of no trials says nothing."""
        successes = counts("y", y, (n,))
        if trials is None:
            why = "say how many trials there were: trials=…"
            if (successes > 1).any():
                raise requirement("y", "0 or 1 where trials is None", first_place(successes, successes > 1), why)
            return Observed(successes, None)
        require_unmasked("trials", trials)
        sizes = np.asarray(trials)
        m = np.array(np.broadcast_to(counts("trials", np.atleast_1d(sizes), ("n",) if not sizes.ndim else (n,)), n))
        if (few := m < successes).any():
            row = int(np.argmax(few))
            why = "y is the number of successes, not their share, and trials counts failures too"
            given_there = f"{m[row]:g} for y = {successes[row]:g} at row {row}"
            raise requirement("trials", "at least the successes y", given_there, why)
        return Observed(successes / np.maximum(m, 1.0), m)

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log odds of all trials."""
        return log_odds(weights @ y, weights.sum()) - float(np.average(offset, weights=weights)), 1.0

    def recession_cones(self, y: Array) -> RecessionCones:
        """It grows upwards where there was a failure, downwards where there was a success."""
        return one_predictor_cones(y < 1, y > 0)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """π²/3 for one trial, that of the logistic law."""
        return np.full(len(mean), np.pi**2 / 3)

    def variance(self, t: Array) -> Array:
        """p(1 − p), of one trial."""
        return _TRIAL.variance(t)

    def mean(self, t: Array) -> Array:
        """P(success) = 1/(1 + e⁻ᵗ)."""
        return _TRIAL.mean(t)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """−log (m choose mȳ)."""
        from scipy.special import gammaln

        m = np.ones(np.shape(y)) if trials is None else trials
        return np.asarray(gammaln(m * y + 1) + gammaln(m - m * y + 1) - gammaln(m + 1), np.float64)

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        from scipy.stats import binom

        return np.asarray(binom.ppf(u, 1 if trials is None else trials, self.mean(t)), np.float64)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """Of the number of successes."""
        from scipy.special import bdtr

        m = np.ones(np.shape(y)) if trials is None else trials
        k, p, whole = np.round(m * y), self.mean(t), np.round(m).astype(np.int64)
        return np.where(k > 0, bdtr(np.maximum(k - 1, 0), whole, p), 0.0), np.asarray(bdtr(k, whole, p), np.float64)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """Successes, mȳ."""
        return y if trials is None else np.asarray(np.round(y * trials), np.float64)

    def third_size(self, curvature: Array) -> Array:
        """As for one trial of the logistic loss."""
        return _TRIAL.third_size(curvature)
