"""How far the posterior is from the Gaussian at its mode."""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import check_budget
from svrhmc.gradients import Full
from svrhmc.rows.forms import rows_of
from svrhmc.sampling.gradients import FreshGradients

_AWAY = 3.0  # standard deviations at which the tails are looked at
_TAIL, _SPREAD, _LONG = 0.35, 0.22, 1.0  # up to which a posterior is nearly Gaussian; beyond the last, tails are long
_ROWS, _DIRECTIONS = 4096, 100  # that are looked at
_FARTHEST, _PLACES = 10.0, 41  # standard deviations, and distances up to there, at which R is found
_RARE = 7.0  # −log of the part of the posterior beyond the place where the index of stays is taken
_STATES, _BATCH = 64, 16  # at which full gradients of few rows are found; rows of an estimate where there are more


class Gaussianity:
    """What is known of it, found once for a target and the same whatever the seed.

    In whitened variables ∇f(z) = z + r(z) and f(z) = f(0) + ½|z|² + R(z). The thresholds were found on 17 posteriors,
    by whether independent proposals from N(0, I) have calibrated errors.
    """

    def __init__(self, fresh: FreshGradients) -> None:
        self.fresh = fresh
        self._tail: float | None = None
        self._spread: Array | None = None

    def nearly_gaussian(self) -> bool:
        """Whether proposals from N(0, I) cannot stick in a tail that it does not have."""
        return self.visible and self.spread.max() <= _SPREAD and self.tail <= _TAIL

    def long_tails(self) -> bool:
        """Whether shorter steps are worth their price."""
        return self.visible and self.tail > _LONG

    def measured(self) -> tuple[float | None, Array | None]:
        """`tail` and `spread`, where they were found."""
        return self._tail, self._spread

    def recall(self, tail: float | None, spread: Array | None) -> None:
        """As they were found before."""
        self._tail, self._spread = tail, spread

    @property
    def visible(self) -> bool:
        """Whether the first two orders at the mode are taken out of the rows, so that the rest is all that is seen."""
        return bool(self.fresh.by_rows and rows_of(self.fresh.space.form()) is not None)

    @property
    def spread(self) -> Array:
        """√E (r·u)² over N(0, I), for the direction u of each of the user's coordinates: from two estimates of r."""
        if self._spread is None:
            self._spread = self._measure_spread()
        return self._spread

    def _measure_spread(self) -> Array:
        space = self.fresh.space
        whitening, few = space.whitening, space.n <= _ROWS and space.at_hand == space.n
        gradient = Full() if few else self.fresh.batches(_BATCH)
        states = self.fresh.laplace(np.arange(_STATES) if few else self.fresh.pilot)
        if space.at_hand < space.n:
            self.fresh.expect_noise()
            space.expect(space.spaced_places(_ROWS))
            for seed in (1 << 21, 1 << 22):
                self.fresh.expect(gradient, np.arange(len(states)), seed)
        first = whitening.displace(self.fresh.at(gradient, states, 1 << 21) - states)
        second = first if few else whitening.displace(self.fresh.at(gradient, states, 1 << 22) - states)
        return np.asarray(np.sqrt(np.maximum((first * second).mean(axis=0), 0.0) / whitening.variances), np.float64)

    @property
    def tail(self) -> float:
        """max −R(±3u): the log of how much heavier a tail is than the Gaussian's, along the user's coordinates.

        For the coordinates with the largest spread of r, from all rows or from some drawn by importance, in their
        order, without chance.
        """
        if self._tail is None:
            self._tail = float(-self._remainders(np.array([_AWAY])).min())
        return self._tail

    def stay_index(self, correlation: float) -> float:
        """The largest Pareto index of how long a chain of Metropolis stays in a tail along a coordinate, if its
        proposals are z′ = ρz + √(1 − ρ²)ξ with ρ = correlation.

        They are reversible for ν = N(0, I): with w = π/ν a move from z is accepted with probability min(1, w(z′)/w(z)),
        and z′ is around ρz, so that a chain stays at z for about τ(z) = w(z)/w(ρz) draws where that is large. A mean of
        h(z) over its draws has about the variance E_π h²τ that independent ones would have with E_π h²; at ρ = 0 and
        h = 1 that is E_π[π/ν]. Along a ray tu, with log w = −R and Δ(t) = f(tu) − f(0) = ½t² + R(tu), about e^{−Δ} of π
        is beyond t, so that there

            P(τ > s) ≈ s^{−1/k},            k = log τ/Δ = (R(ρtu) − R(tu))/Δ(t).

        τ has the moments below 1/k: it takes k < 1 for an error to exist, and k < ⅓ for estimates of that error, which
        are means of τ² under the law of stays, to have one themselves. k is taken at Δ = 7, beyond which is one draw
        in a thousand; draws themselves do not tell it, as a chain seldom enters where it would stay.
        """
        if not self.visible:
            return 0.0
        t = np.linspace(0.0, _FARTHEST, _PLACES)
        index = 0.0
        for R in self._remainders(t[1:]).T:
            R = np.concatenate([[0.0], R])
            rise = 0.5 * t**2 + R
            k = int(np.argmax(rise >= _RARE)) or len(t) - 1
            if np.isfinite(rise[k]):
                inner = np.interp(correlation * t[k], t, R)
                index = max(index, float((inner - R[k]) / max(rise[k], 1.0)))
        return index

    def _remainders(self, distances: Array) -> Array:
        """R(±tu) at some distances t, (distances, directions): of the coordinates with the largest spread of r, from
        all rows or from some drawn by importance.
        """
        space, whitening = self.fresh.space, self.fresh.space.whitening
        worst = np.argsort(-self.spread, kind="stable")[:_DIRECTIONS]
        check_budget()
        unit = whitening.pull(np.eye(space.dim)[worst])  # rows of W
        unit = unit / np.sqrt((unit**2).sum(axis=1, keepdims=True))
        if space.n <= _ROWS and space.at_hand == space.n:
            some, rows, weights = space, np.arange(space.n), np.ones(space.n)
        else:
            some, rows, weights = space.spaced(_ROWS)
        check_budget()
        u = some.target.rows.choose(rows).predict(whitening.displace(unit))  # (direction, row), or (direction, row, m)
        t, form = some.predictors[rows], rows_of(some.form())
        assert form is not None
        slopes, curved = some.slopes[rows], form.slope_changes(some.curvatures[rows], u)
        values = form.values(t, rows)
        remainders = []
        with np.errstate(over="ignore", invalid="ignore"):  # a tail so light that it overflows is not heavy
            for away in distances:
                check_budget()
                rest = [
                    form.values(t + s * u, rows) - values - form.value_changes(slopes * s + s * s * curved / 2, u)
                    for s in (-away, away)
                ]
                prior = [some.prior_remainder(s * unit) for s in (-away, away)]
                sides = [values @ weights + more for values, more in zip(rest, prior, strict=True)]
                remainders.append(np.concatenate(sides))
        return np.array(remainders)
