"""What an engine is: chains of one sampler on one target, their state, and the one way they move.

Everything a chain carries is its `State`. It goes into a run and comes out of it, so that a run can be cut anywhere, by
pieces, by a budget or by a kill, and go on with no bit changed: `Chains.extend` is the only way to make steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import UndefinedDensityError
from svrhmc.gradients import Memory, Recipe
from svrhmc.scheme import Scheme
from svrhmc.targets.base import FiniteSum

Report = Callable[[int], None]  # is told of chain steps made, all chains together
NEAR = 1e4  # |z|²/dim up to which f has to be a number; a trajectory that is thrown further may overflow
THROWN = 100.0  # above the energy that it began with, from which a trajectory is thrown out, and refused whatever f is


def quiet(amount: int) -> None:
    """Report to nobody."""


def require_defined(chains: Indices, step: int, z: Array, f: Array, rise: Array | float = 0.0) -> None:
    """Refuse f that is not a number at a state near the posterior; ∞ is the energy of a density of 0.

    rise: of the total energy of each trajectory, when it was last kicked on the way to z. A kick by a steep slope that
    adds 100 or more throws it to where there is nothing of the posterior, and it is refused whatever f is there.
    """
    lost = np.isnan(f) & ((z * z).sum(axis=1) <= NEAR * z.shape[1]) & (rise <= THROWN)
    if lost.any():
        raise UndefinedDensityError(int(chains[int(np.argmax(lost))]), step)


@dataclass(frozen=True, eq=False)
class State:
    """The state of some chains after some steps.

    x, v: positions and velocities, arrays (chains, dim).
    memory: what the gradient remembers, arrays by name.
    step: the number of steps made.
    spent: component gradients that a chain has evaluated so far, on average over the chains.
    """

    x: Array
    v: Array
    memory: Memory = field(default_factory=dict)
    step: int = 0
    spent: float = 0.0


@dataclass(frozen=True)
class Keep:
    """Which states are kept: those after `first` steps, first + thin, first + 2·thin, …, counted from the start."""

    first: int = 1
    thin: int = 1

    def count(self, end: int) -> int:
        """How many are kept of a run of so many steps."""
        return max(0, (end - self.first) // self.thin + 1)

    def within(self, begin: int, end: int) -> Indices:
        """Steps made at each state kept, of those after more than `begin` and at most `end` steps."""
        skipped = max(0, -(-(begin + 1 - self.first) // self.thin))
        return np.arange(self.first + skipped * self.thin, end + 1, self.thin)


EVERY, NONE = Keep(), Keep(1 << 62)


@dataclass(frozen=True, eq=False)
class Extension:
    """Some more steps of each chain.

    draws: an array (chains, kept, dim), in the variables of the target.
    spent: an array (kept,): component gradients that a chain had evaluated from its start to each draw, on average.
    evaluations: component gradients that all chains together evaluated in these steps.
    gradients: ∇f at the draws, if it came at no extra cost.
    accepted: how many proposals each chain accepted, if there are proposals.
    counts: component gradients by chain and step, if their number is random.
    """

    draws: Array
    spent: Array
    evaluations: int
    gradients: Array | None = None
    accepted: Indices | None = None
    counts: Indices | None = None


class Chains(ABC):
    """Some chains that can be continued from where they stopped.

    What a chain does depends neither on the threads, nor on the other chains, nor on how the run is divided into calls.
    After an error or an interruption all chains are where the last complete call left them.
    """

    engine: str
    state: State

    @abstractmethod
    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """Make `count` more steps of each chain."""

    def compile(self) -> None:
        """Compile or load what `extend` needs, so that this is not part of its time."""
        return

    def empty_memory(self) -> Memory | None:
        """The memory that a state has after a step, of no chains: names, types and shapes by which a state from a file
        is checked. None where an engine does not say.
        """
        return None


@dataclass(frozen=True, eq=False)
class Setup:
    """A sampler of the grid on a target, as plain data, with every choice made and checked.

    threads, devices: for engines that have them; draws do not depend on them.
    """

    target: FiniteSum
    scheme: Scheme
    recipe: Recipe
    step_size: float
    seed: int
    chains: Indices
    threads: int = 1
    devices: Any = None

    @property
    def form(self) -> Any:
        """What the target is made of."""
        return self.target.form()


Reasons = dict[str, Callable[[Any, Recipe], str | None]]  # by kind of form: why such a recipe on it is not run, if so


class Engine(ABC):
    """Runs samplers of the grid.

    has_devices: whether it can be told on which devices to run.
    """

    name: str
    has_devices: ClassVar[bool] = False

    @abstractmethod
    def supports(self, form: Any, recipe: Recipe) -> str | None:
        """None where the engine runs such a recipe on such a form, else the reason why not."""

    def lacks(self, form: Any, recipe: Recipe, reasons: Reasons) -> str | None:
        """What `supports` answers for an engine that runs these kinds of form."""
        if form is None or form.kind not in reasons:
            what = "its methods alone" if form is None else f"Python functions of its {form.kind}"
            return f"it runs {', '.join(reasons)} forms, and this target is known by {what}"
        return reasons[form.kind](form, recipe)

    def lacks_rows(
        self, form: Any, recipe: Recipe, losses: Collection[str], stored: Collection[str], maps: Collection[str]
    ) -> str | None:
        """Why rows with a linear predictor are not run, by an engine with these losses, storages and whitenings."""
        if form.loss.kernel not in losses:
            return f"it does not have the loss {form.loss}"
        if not form.rows.in_memory:
            return "the rows are not in memory"
        if form.rows.storage not in stored:
            return f"it does not have {form.rows.storage} rows"
        if form.whitening is not None and form.whitening.kind not in maps:
            return f"it does not have a {form.whitening.kind} whitening"
        if recipe.order == 2 and form.whitening is not None and not form.whitening.identity_hessian:
            return "second order is for the target's own variables and those of a dense whitening"
        return None

    def check(self, setup: Setup) -> None:
        """Refuse, with an error that says why, what is found out before anything is made."""
        return

    @abstractmethod
    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains in this state."""

    @abstractmethod
    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """The recipe's estimate of ∇f at each state, as that chain would make it at that step."""
