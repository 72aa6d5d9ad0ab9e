"""What is measured of a target around its mode: estimates of ∇f from rows that no chain has used, for a choice, for the
correction of draws and beside pairs of chains; and how far the posterior is from the Gaussian there.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import Budget, check_budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import IDENTITY, SILENT, Kick, Scheme
from svrhmc.engines import Grid, Setup, estimates
from svrhmc.gradients import ControlVariate, Full, Gradient, Minibatch
from svrhmc.rows.forms import rows_of
from svrhmc.sampling import costs
from svrhmc.whitening.targets import Space

_NO_SCHEME = Scheme(IDENTITY, SILENT, Kick(0.0, 0.0), IDENTITY, SILENT)  # for estimates, which need none
_FULL_SECONDS = 0.4  # that full gradients at all draws may take where batches would do
_LOW_NOISE = 0.02  # variance of a coordinate of a low-noise gradient, relative to the variance of the coordinate
_NOISE_SEED = 1 << 20  # with which the noise of a row is measured
_PILOT, _FEW = 1 << 17, 64  # numbers in the states, or states, at which the noise of a single row is measured

_TAIL_DISTANCE = 3.0  # standard deviations at which the tails are examined
_TAIL, _SPREAD, _LONG = 0.35, 0.22, 1.0  # up to which a posterior is nearly Gaussian; beyond the last, tails are long
_ROWS, _DIRECTIONS = 4096, 100  # that are examined
_FARTHEST, _PLACES = 10.0, 41  # standard deviations, and number of distances up to there, at which R is computed
_RARE = 7.0  # −log of the part of the posterior beyond the place where the index of stays is taken
_STATES, _BATCH = 64, 16  # at which full gradients of few rows are computed; rows of an estimate where there are more
_SPREAD_SEEDS = 1 << 21, 1 << 22  # of two estimates of the same gradients


class FreshGradients:
    """Estimates of ∇f in whitened variables, counted and compiled."""

    def __init__(self, space: Space, threads: int, budget: Budget) -> None:
        self.space, self._threads, self._budget = space, threads, budget
        self._compiled: set[tuple[bool, bool]] = set()
        self._row_noise: float | None = None

    def laplace(self, numbers: Indices, seed: int = 0) -> Array:
        """Draws of N(0, I), the Laplace approximation in whitened variables, for the chains of these numbers."""
        return Stream(seed, numbers).normals(0, self.space.dim, Purpose.DATA, Purpose.DATA_FINE)

    def setup(self, gradient: Gradient, numbers: Indices, seed: int) -> Setup:
        """What estimates for the chains of these numbers need; compiled."""
        recipe = gradient.recipe(self.space)
        setup = Setup(self.space, Grid(_NO_SCHEME, recipe, 1.0), seed, numbers, self._threads)
        if (kind := (recipe.full, recipe.carries)) not in self._compiled:
            self._compiled.add(kind)
            single = replace(setup, chains=numbers[:1], threads=1)
            self._budget.compile(lambda: estimates(single, np.zeros((1, self.space.dim)), 0))
        return setup

    def gradients_at(self, gradient: Gradient, states: Array, seed: int, first: int = 0) -> Array:
        """Estimates at some states, each as the chain of its number (from `first` on) makes it."""
        setup = self.setup(gradient, np.arange(first, first + len(states)), seed)
        rows = float(len(states)) * setup.sampler.recipe.rows_of_estimate
        self._budget.check(rows / self.space.n)
        self._budget.evaluations += rows
        return estimates(setup, states, 0)

    def expect(self, gradient: Gradient, numbers: Indices, seed: int) -> None:
        """Announce estimates that will be asked for, so that rows that are not in memory are fetched together."""
        recipe = gradient.recipe(self.space)
        if not recipe.full:
            self.space.expect(self.space.places(*Stream(seed, numbers).words(0, Purpose.BATCH, recipe.batch)))

    def largest_variance(self, gradient: Gradient, states: Array, seed: int) -> float:
        """The largest variance, over coordinates, of an estimate: from two estimates at each state."""
        first, second = (self.gradients_at(gradient, states, seed + k) for k in (0, 1))
        return float(((first - second) ** 2).mean(axis=0).max() / 2)

    def low_noise_gradient(self, count: int) -> Gradient:
        """Full gradients if those at `count` states are affordable; else batches so large that their noise hardly
        counts, of rows drawn by importance if that is known, so that no row that matters is missed.
        """
        space = self.space
        if count * costs.pass_seconds(space) <= _FULL_SECONDS or (space.scalar_parts and not self.by_rows):
            return Full()
        size = math.ceil(max(4.0, self.row_noise / _LOW_NOISE))
        return Full() if size > space.n / 8 else self.batches(size)

    @property
    def by_rows(self) -> bool:
        """Whether single rows of the remainder at the mode can be drawn: its first two orders are removed from them,
        and |Wᵀaᵢ| of each is affordable.
        """
        return bool(self.space.identity_hessian and self.space.whitening.row_lengths)

    def batches(self, size: int) -> Gradient:
        """Batches of `size` rows of the remainder at the mode: of second order if that is known, else of first."""
        return Minibatch(size, importance=True) if self.space.scalar_parts else ControlVariate(size)

    @property
    def row_noise(self) -> float:
        """V₂: the largest variance of a coordinate of the remainder at the mode, from one row.

        States and rows are the same whatever the seed of the run.
        """
        if self._row_noise is None:
            self._row_noise = self.largest_variance(self.batches(1), self.laplace(self.pilot), _NOISE_SEED)
        return self._row_noise

    def expect_noise(self) -> None:
        """Announce the estimates that `row_noise` needs."""
        for k in (0, 1):
            self.expect(self.batches(1), self.pilot, _NOISE_SEED + k)

    @property
    def pilot(self) -> Indices:
        """Numbers of the states at which something is measured before a choice."""
        if not self.space.scalar_parts:
            return np.arange(_FEW)
        return np.arange(min(4096, max(256, _PILOT // self.space.dim), max(_FEW, 4 * self.space.n)))

    def measured_noise(self) -> float | None:
        """The noise of a row, if it was measured."""
        return self._row_noise

    def restore(self, row_noise: float | None) -> None:
        """Take the noise of a row from a record."""
        self._row_noise = row_noise


class Gaussianity:
    """How far the posterior is from the Gaussian at its mode, measured once for a target, whatever the seed.

    In whitened variables ∇f(z) = z + r(z) and f(z) = f(0) + ½|z|² + R(z). The thresholds were found on 17 posteriors,
    by whether independent proposals from N(0, I) have calibrated errors.
    """

    def __init__(self, fresh: FreshGradients) -> None:
        self.fresh = fresh
        self._tail: float | None = None
        self._spread: Array | None = None

    def nearly_gaussian(self) -> bool:
        """Whether proposals from N(0, I) cannot get stuck in a tail that N(0, I) does not have."""
        return self.visible and self.spread.max() <= _SPREAD and self.tail <= _TAIL

    def long_tails(self) -> bool:
        """Whether tails are so long that shorter steps are worth their price."""
        return self.visible and self.tail > _LONG

    def measured(self) -> tuple[float | None, Array | None]:
        """`tail` and `spread`, each if it was measured."""
        return self._tail, self._spread

    def restore(self, tail: float | None, spread: Array | None) -> None:
        """Take `tail` and `spread` from a record."""
        self._tail, self._spread = tail, spread

    @property
    def visible(self) -> bool:
        """Whether the first two orders at the mode are removed from the rows, so that the remainder can be computed."""
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
            space.expect(space.even_places(_ROWS))
            for seed in _SPREAD_SEEDS:
                self.fresh.expect(gradient, np.arange(len(states)), seed)

        def remainder(seed: int) -> Array:
            displaced: Array = whitening.displace(self.fresh.gradients_at(gradient, states, seed) - states)
            return displaced

        first = remainder(_SPREAD_SEEDS[0])
        second = first if few else remainder(_SPREAD_SEEDS[1])
        return np.asarray(np.sqrt(np.maximum((first * second).mean(axis=0), 0.0) / whitening.variances), np.float64)

    @property
    def tail(self) -> float:
        """max −R(±3u): the log of how much heavier a tail is than the Gaussian's, along the user's coordinates.

        For the coordinates with the largest spread of r, from all rows or from some drawn by importance, in their
        order, without chance.
        """
        if self._tail is None:
            self._tail = float(-self._remainders(np.array([_TAIL_DISTANCE])).min())
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
        in a thousand; the draws do not show it, as a chain seldom enters where it would stay.
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
        """R(±tu) at some distances t, (distances, directions), for the coordinates with the largest spread of r, from
        all rows or from some drawn by importance.
        """
        space, whitening = self.fresh.space, self.fresh.space.whitening
        worst = np.argsort(-self.spread, kind="stable")[:_DIRECTIONS]
        check_budget()
        unit = whitening.pull(np.eye(space.dim)[worst])  # rows of W
        unit = unit / np.sqrt((unit**2).sum(axis=1, keepdims=True))
        if space.n <= _ROWS and space.at_hand == space.n:
            part, rows, weights = space, np.arange(space.n), np.ones(space.n)
        else:
            part, rows, weights = space.spaced(_ROWS)
        check_budget()
        u = part.target.rows.choose(rows).predict(whitening.displace(unit))  # (direction, row), or (direction, row, m)
        t, form = part.predictors[rows], rows_of(part.form())
        assert form is not None
        slopes, curved = part.slopes[rows], form.slope_changes(part.curvatures[rows], u)
        values = form.values(t, rows)
        remainders = []
        with np.errstate(over="ignore", invalid="ignore"):  # a tail so light that it overflows is not heavy
            for distance in distances:
                check_budget()
                of_rows = [
                    form.values(t + s * u, rows) - values - form.value_changes(slopes * s + s * s * curved / 2, u)
                    for s in (-distance, distance)
                ]
                of_prior = [part.prior_remainder(s * unit) for s in (-distance, distance)]
                sides = [rest @ weights + prior for rest, prior in zip(of_rows, of_prior, strict=True)]
                remainders.append(np.concatenate(sides))
        return np.array(remainders)
