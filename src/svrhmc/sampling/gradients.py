"""Estimates of ∇f from rows that no chain has used: at draws, for their correction, and beside pairs of chains."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import Budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import IDENTITY, SILENT, Kick, Scheme
from svrhmc.engines import Grid, Setup, estimates
from svrhmc.gradients import ControlVariate, Full, Gradient, Minibatch
from svrhmc.sampling import costs
from svrhmc.whitening.targets import Space

_STILL = Scheme(IDENTITY, SILENT, Kick(0.0, 0.0), IDENTITY, SILENT)  # for estimates, which no scheme enters
_FULL_SECONDS = 0.4  # that full gradients at all draws may take where batches would do
_QUIET = 0.02  # the noise of a coordinate of the gradient, in parts of the variance of the coordinate
_NOISE = 1 << 20  # the seed with which that is
_PILOT, _FEW = 1 << 17, 64  # numbers in the states, or states, at which the noise of a single row is measured


class FreshGradients:
    """Estimates in whitened variables, counted and compiled."""

    def __init__(self, space: Space, threads: int, budget: Budget) -> None:
        self.space, self._threads, self._budget = space, threads, budget
        self._compiled: set[tuple[bool, bool]] = set()
        self._row_noise: float | None = None

    def laplace(self, numbers: Indices, seed: int = 0) -> Array:
        """Draws of N(0, I), the posterior as the whitening has it, for the chains of these numbers."""
        return Stream(seed, numbers).normals(0, self.space.dim, Purpose.DATA, Purpose.DATA_FINE)

    def setup(self, gradient: Gradient, numbers: Indices, seed: int) -> Setup:
        """For the states of chains with these numbers; compiled."""
        recipe = gradient.recipe(self.space)
        setup = Setup(self.space, Grid(_STILL, recipe, 1.0), seed, numbers, self._threads)
        if (kind := (recipe.full, recipe.carries)) not in self._compiled:
            self._compiled.add(kind)
            few = replace(setup, chains=numbers[:1], threads=1)
            self._budget.compile(lambda: estimates(few, np.zeros((1, self.space.dim)), 0))
        return setup

    def at(self, gradient: Gradient, states: Array, seed: int, first: int = 0) -> Array:
        """At some states, each as the chain of its number (from `first` on) makes it."""
        setup = self.setup(gradient, np.arange(first, first + len(states)), seed)
        rows = float(len(states)) * setup.sampler.recipe.rows_of_estimate
        self._budget.check(rows / self.space.n)
        self._budget.evaluations += rows
        return estimates(setup, states, 0)

    def expect(self, gradient: Gradient, numbers: Indices, seed: int) -> None:
        """Say which estimates will be asked for, where rows are fetched from elsewhere: then they come together."""
        recipe = gradient.recipe(self.space)
        if not recipe.full:
            self.space.expect(self.space.places(*Stream(seed, numbers).words(0, Purpose.BATCH, recipe.batch)))

    def noise(self, gradient: Gradient, states: Array, seed: int) -> float:
        """The largest variance, over coordinates, of the gradient's estimate: from two of them at each state."""
        pair = [self.at(gradient, states, seed + k) for k in (0, 1)]
        return float(((pair[0] - pair[1]) ** 2).mean(axis=0).max() / 2)

    def quiet(self, count: int) -> Gradient:
        """Full gradients where those at `count` states are affordable; else batches so large that their noise hardly
        counts, of rows drawn by importance where that is known, so that none that matters is missed.
        """
        space = self.space
        if count * costs.of_pass(space) <= _FULL_SECONDS or (space.scalar_parts and not self.by_rows):
            return Full()
        size = math.ceil(max(4.0, self.row_noise / _QUIET))
        return Full() if size > space.n / 8 else self.batches(size)

    @property
    def by_rows(self) -> bool:
        """Whether rows of the remainder at the mode can be drawn one by one: its first two orders are taken out of
        them, and |Wᵀaᵢ| of each is affordable.
        """
        return bool(self.space.identity_hessian and self.space.whitening.row_lengths)

    def batches(self, size: int) -> Gradient:
        """So many rows of the remainder at the mode: of second order where that is known, else of first."""
        return Minibatch(size, importance=True) if self.space.scalar_parts else ControlVariate(size)

    @property
    def row_noise(self) -> float:
        """V₂: the largest variance of a coordinate of the remainder at the mode, from one row.

        States and rows are the same whatever the seed of the run.
        """
        if self._row_noise is None:
            self._row_noise = self.noise(self.batches(1), self.laplace(self.pilot), _NOISE)
        return self._row_noise

    def expect_noise(self) -> None:
        """Say that the noise of a row will be asked for."""
        for k in (0, 1):
            self.expect(self.batches(1), self.pilot, _NOISE + k)

    @property
    def pilot(self) -> Indices:
        """Numbers of the states at which something is measured before a choice."""
        if not self.space.scalar_parts:
            return np.arange(_FEW)
        return np.arange(min(4096, max(256, _PILOT // self.space.dim), max(_FEW, 4 * self.space.n)))

    def measured_noise(self) -> float | None:
        """The noise of a row, where it was measured."""
        return self._row_noise

    def recall(self, row_noise: float | None) -> None:
        """As it was measured before."""
        self._row_noise = row_noise
