"""What an engine is asked to do and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.dynamics import Scheme
from svrhmc.gradients import Gradient
from svrhmc.targets.base import FiniteSum

Report = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Which states are kept: after steps `burn_in` + thin, + 2·thin, …, or the last one only."""

    steps: int
    burn_in: int
    thin: int
    last_only: bool

    @property
    def first(self) -> int:
        """Steps made when the first state is kept."""
        return self.steps if self.last_only else self.burn_in + self.thin

    @property
    def draws(self) -> int:
        """How many states are kept."""
        return 1 if self.last_only else (self.steps - self.burn_in) // self.thin

    def kept(self) -> Indices:
        """Steps made at each state kept."""
        return self.first + self.thin * np.arange(self.draws)

    def slot(self, made: int) -> int | None:
        """Where the state after `made` steps is kept, if it is."""
        if made < self.first:
            return None
        number, rest = divmod(made - self.first, self.thin)
        return number if rest == 0 else None


@dataclass(frozen=True, eq=False)
class Job:
    """A run with every choice made and checked; one that goes on has a `begin` and the velocities it had reached, and a
    snapshot at its begin.
    """

    target: FiniteSum
    scheme: Scheme
    gradient: Gradient
    step_size: float
    seed: int
    chains: Indices
    start: Array
    schedule: Schedule
    threads: int
    report: Report
    begin: int = 0
    velocity: Array | None = None

    def velocities(self) -> Array:
        """Those to begin with."""
        return np.zeros_like(self.start) if self.velocity is None else self.velocity.copy()


@dataclass(frozen=True, eq=False)
class Outcome:
    """Kept states (chain, draw, dim), velocities at the end (chain, dim), evaluations of a chain by draw (draw,).

    `seconds` is the time of sampling, compilation apart.
    """

    draws: Array
    velocity: Array
    evaluations: Indices
    seconds: float = 0.0

    @staticmethod
    def empty(job: Job) -> Outcome:
        """Room for what a job will keep."""
        chains, dim = job.start.shape
        return Outcome(
            np.empty((chains, job.schedule.draws, dim)),
            np.zeros((chains, dim)),
            np.zeros(job.schedule.draws, np.int64),
        )
