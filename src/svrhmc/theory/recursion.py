"""Moments of a state that obey a linear recursion: the law after any number of steps, by powers of its map.

The state of a chain is a vector in blocks of k numbers. What is followed is the covariance C of each pair of blocks and
the outer product m̂m̂ᵀ of the means, m̂ = (m, 1), and a step is linear in (C, m̂m̂ᵀ). Where pairs do not mix or are few, the
map of an epoch is a small matrix: its powers give the law after any number of steps, and a linear system the one at
stationarity. Else the steps are made one by one. What a step is, `chain` and `table` say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.gradients import Recipe
from svrhmc.targets.base import Moments

SMALL = 4  # numbers of a block whose own matrix is always affordable
_DENSE = 1500  # largest matrix of a step, else


@dataclass(frozen=True, eq=False)
class State:
    """Covariance (…, pairs, k, k) of y, and the outer product (…, pairs, k + 1, k + 1) of its mean m̂ = (m, 1)."""

    C: Array
    mm: Array

    def flat(self) -> Array:
        """Both as one axis of numbers for each pair: (…, pairs, k² + (k + 1)²)."""
        shape = self.C.shape[:-2]
        return np.concatenate([self.C.reshape(*shape, -1), self.mm.reshape(*shape, -1)], axis=-1)

    @staticmethod
    def unflat(numbers: Array, k: int) -> State:
        """The state that `flat` made numbers of."""
        shape = numbers.shape[:-1]
        return State(numbers[..., : k * k].reshape(*shape, k, k), numbers[..., k * k :].reshape(*shape, k + 1, k + 1))


class Recursion(ABC):
    """A sampler on a quadratic: one step as a linear map of `State`.

    k: numbers of a block. a, b: the blocks of each pair that is followed. elementwise: whether pairs do not mix.
    goal: the moments of e^{−f/T} at the temperature T of the dynamics. spectrum: of the mean Hessian.
    """

    spectrum: Array

    def __init__(self, recipe: Recipe, k: int, a: Indices, b: Indices, elementwise: bool, goal: Moments) -> None:
        self.recipe, self.k, self.a, self.b, self.elementwise, self.goal = recipe, k, a, b, elementwise, goal
        self.period = recipe.epoch
        self.coordinates = np.flatnonzero(a == b)
        self._renews = recipe.reference == "snapshot"  # every epoch; a table is filled at the first step alone
        self._fills = recipe.reference == "table"

    @abstractmethod
    def at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0."""

    @abstractmethod
    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""

    @abstractmethod
    def spread(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate, eigenvectors of the mean Hessian."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Operations of a step made by itself, roughly."""

    @property
    @abstractmethod
    def quiet_steps(self) -> tuple[Array, Array]:
        """The first and every other step of an epoch on (y, 1) in each block, without noise."""

    @abstractmethod
    def _change(self, state: State, snapshot: bool) -> State:
        """What a step adds to a state: linear in it, and never by way of 1 plus something small."""

    def fixed(self, mean: Array) -> State:
        """No spread about a mean m̂ of each coordinate."""
        pairs = mean[self.a, :, None] * mean[self.b, None, :]
        return State(np.zeros((len(pairs), self.k, self.k)), pairs)

    def step(self, state: State, number: int) -> State:
        """One step, with its snapshot where one is due."""
        return self._advance(state, self.recipe.due(number))

    def after(self, state: State, steps: int) -> State:
        """So many steps from the start of a run."""
        if not self.compact or steps <= self._side // 4:  # the matrix alone would take longer
            for number in range(steps):
                state = self.step(state, number)
            return state
        if self._fills:
            state, steps = self.step(state, 0), steps - 1
        epochs, rest = divmod(steps, self.period)
        numbers = self.apply(power_change(self.epoch_map, epochs), self.numbers(state))
        if rest:
            numbers = self.apply(after_change(power_change(self.inner_map, rest - 1), self.first_map), numbers)
        return self.state(numbers)

    def along(self, state: State, steps: Sequence[int]) -> Iterator[State]:
        """The states after increasing numbers of steps from the start of a run: by powers that all of them share.

        From one epoch's start to another by binary digits, then within the epoch; for a chain that is compact.
        """
        if self._fills:
            raise requirement("gradient", "one without a table", "one with a table")
        epoch, inner = self._powers
        numbers, done = self.numbers(state), 0
        for step in steps:
            epochs, rest = divmod(step, self.period)
            numbers, done = self.apply_often(epoch, epochs - done, numbers), epochs
            at = numbers
            if rest:
                at = self.apply_often(inner, rest - 1, self.apply(self.first_map, numbers))
            yield self.state(at)

    def apply_often(self, powers: Powers, times: int, numbers: Array) -> Array:
        """What so many applications of a map leave."""
        for k in range(times.bit_length()):
            if times >> k & 1:
                numbers = self.apply(powers[k], numbers)
        return numbers

    def steps_to(self, state: State, near: Callable[[State], bool]) -> int:
        """The least number of steps from the start of a run after which a state is `near`, at least 1.

        Whole epochs by powers of two, then steps within one: for a distance that falls, and a chain that is compact.
        """
        if near(state):
            return 1
        before = 0
        if self._fills:
            state, before = self.step(state, 0), 1
            if near(state):
                return 1
        numbers = self.numbers(state)

        def far(at: Array) -> bool:
            return not near(self.state(at))

        powers = [self.epoch_map]
        while far(self.apply(powers[-1], numbers)):
            powers.append(after_change(powers[-1], powers[-1]))
            if len(powers) > 62:
                raise requirement("accuracy", "one that the exact law reaches", "one that it does not reach")
        epochs, numbers = self._walk(powers, numbers, far)
        first = self.apply(self.first_map, numbers)
        if self.period == 1 or not far(first):
            return before + epochs * self.period + 1
        powers = [self.inner_map]
        while 2 ** len(powers) < self.period:
            powers.append(after_change(powers[-1], powers[-1]))
        inner, _ = self._walk(powers, first, far)
        return epochs * self.period + 2 + min(inner, self.period - 2)

    def _walk(self, powers: list[Array], numbers: Array, far: Callable[[Array], bool]) -> tuple[int, Array]:
        """The most applications of powers[0] after which it is still `far`, by binary digits, and where that is."""
        count = 0
        for k in reversed(range(len(powers))):
            trial = self.apply(powers[k], numbers)
            if far(trial):
                count, numbers = count + 2**k, trial
        return count, numbers

    @property
    def _side(self) -> int:
        """Rows of the matrix of a step: one for each pair where pairs do not mix."""
        size = self.k**2 + (self.k + 1) ** 2
        return size if self.elementwise else size * len(self.a)

    @property
    def compact(self) -> bool:
        """Whether a step is a matrix of affordable size: pairs that do not mix, or few of them."""
        return self._side <= _DENSE or (self.elementwise and self.k <= SMALL)

    def epoch(self, state: State) -> State:
        """The steps of an epoch, one by one."""
        for number in range(self.period):
            state = self._advance(state, self._renews and number == 0)
        return state

    @cached_property
    def first_map(self) -> Array:
        """What the first step of an epoch changes, T − I, as a matrix for each block: (blocks, size, size)."""
        return self._matrix(self._renews)

    @cached_property
    def inner_map(self) -> Array:
        """The same for every other step of an epoch."""
        return self._matrix(False) if self._renews else self.first_map

    @cached_property
    def epoch_map(self) -> Array:
        """The same for a whole epoch."""
        return after_change(power_change(self.inner_map, self.period - 1), self.first_map)

    @cached_property
    def _powers(self) -> tuple[Powers, Powers]:
        """Of an epoch, and of a step within it."""
        return Powers(self.epoch_map), Powers(self.inner_map)

    def _advance(self, state: State, snapshot: bool) -> State:
        with np.errstate(over="ignore", invalid="ignore"):  # of an unstable chain, which is looked for where it matters
            change = self._change(state, snapshot)
        return State(state.C + change.C, state.mm + change.mm)

    def _through(self, C: Array, mm: Array, maps: Array) -> tuple[Array, Array]:
        """(I + G_a) C (I + G_b)ᵀ − C for both, given G."""
        left, right = maps[self.a], maps[self.b].swapaxes(-1, -2)
        k = self.k

        def change(M: Array, a: Array, b: Array) -> Array:
            moved: Array = a @ M
            return moved + M @ b + moved @ b

        return change(C, left[:, :k, :k], right[:, :k, :k]), change(mm, left, right)

    def _matrix(self, snapshot: bool) -> Array:
        """A step applied to every unit vector: of each pair at once where pairs do not mix, else of all."""
        pairs, size = len(self.a), self.k**2 + (self.k + 1) ** 2
        if self.elementwise:
            units = np.broadcast_to(np.eye(size)[:, None, :], (size, pairs, size))
            out = self._change(State.unflat(units, self.k), snapshot).flat()
            return np.ascontiguousarray(out.transpose(1, 2, 0))
        units = np.eye(pairs * size).reshape(-1, pairs, size)
        out = self._change(State.unflat(units, self.k), snapshot).flat()
        return np.ascontiguousarray(out.reshape(-1, pairs * size).T[None])

    def numbers(self, state: State) -> Array:
        """A state as one vector for each block of the maps."""
        numbers = state.flat()
        return numbers if self.elementwise else numbers.reshape(1, -1)

    def state(self, numbers: Array) -> State:
        """The state that those numbers are."""
        return State.unflat(numbers.reshape(len(self.a), -1), self.k)

    @staticmethod
    def apply(maps: Array, numbers: Array) -> Array:
        """What a map leaves, block by block, given what it changes."""
        with np.errstate(over="ignore", invalid="ignore"):
            applied: Array = numbers + (maps @ numbers[:, :, None])[:, :, 0]
        return applied


class Powers:
    """The 1st, 2nd, 4th, 8th, … power of a map, each made once and given as what it changes."""

    def __init__(self, change: Array) -> None:
        self._found = [change]

    def __getitem__(self, k: int) -> Array:
        while len(self._found) <= k:
            self._found.append(after_change(self._found[-1], self._found[-1]))
        return self._found[k]


def heated(goal: Moments, temperature: float) -> Moments:
    """The moments of e^{−f/T} from those of e^{−f}, f a quadratic: the mean stays, and the covariance is T times."""
    return Moments(goal.mean, temperature * goal.covariance)


def turned(basis: Array, centre: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean and covariance of (x, v) in the target's coordinates, from (2, dim) and (2, dim, 2, dim) in a basis."""
    if not np.isfinite(covariance).all():
        raise requirement("step_size", "so small that the moments stay finite", "a larger one")
    dim = len(centre)
    whole = np.einsum("da,iajb,eb->idje", basis, covariance, basis, optimize=True).reshape(2 * dim, 2 * dim)
    return np.concatenate([basis @ mean[0] + centre, basis @ mean[1]]), (whole + whole.T) / 2


def after_change(second: Array, first: Array) -> Array:
    """(I + second)(I + first) − I."""
    with np.errstate(over="ignore", invalid="ignore"):  # of an unstable map, which is looked for where it matters
        return second + first + second @ first


def power_change(change: Array, exponent: int) -> Array:
    """(I + change)^exponent − I of a stack of matrices, with no digits lost where the change is small."""
    total = np.zeros_like(change)
    while exponent:
        if exponent & 1:
            total = after_change(total, change)
        exponent >>= 1
        if exponent:
            change = after_change(change, change)
    return total
