"""One deadline for all that a call does: a budget in seconds and one in passes over the data.

A loop that could be long calls `look()` wherever it can stop; `look` raises `BudgetSpent` where the deadline that binds
the call has passed, and does nothing where none does. So a loop need not be told of a deadline, and without one nothing
changes. Between two looks lies one indivisible piece of work (a block of rows, a step of all chains), by which a budget
may be exceeded. One that could be long, a Hessian or the factorisation of one, is not begun unless it is expected to
end in time: `with piece(operations):`. Passes are known beforehand, or as they are made: `look(passes)` is given those
that are not counted yet, and raises if they go beyond the budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np

from svrhmc.core import progress

Clock = Callable[[], float]
Look = Callable[[float], None]
T = TypeVar("T")

_SIDE = 256  # of the matrices whose product tells how fast the machine is
_SHORT = 1e7  # multiplications that are begun whatever is left: some milliseconds

# Multiplications in products of matrices that take as long as n³ of these; as one of a product of sparse ones
CHOLESKY, INVERSE, EIGENVECTORS, LEAST_SQUARES, SPARSE = 0.2, 1.0, 5.0, 6.0, 1000.0


class BudgetSpent(Exception):  # noqa: N818  (a signal: what is ready is returned)
    """A budget ended. It never leaves `sample`, which returns what is ready or raises a `BudgetError`."""


class Deadline:
    """Seconds (but for those apart, of compilation) and passes over n rows, with a limit on each.

    evaluations: component gradients so far. compiling: seconds that do not count. done: the share of the present stage
    that is made, as far as it can tell; 0 where it cannot. after: passes that are known to follow it before there is an
    answer. reached: the most passes that were made or asked for. needed: the seconds from the beginning to the end of a
    piece that was not begun for want of time; infinite where there was none.
    """

    def __init__(
        self, n: int, seconds: float = math.inf, passes: float = math.inf, clock: Clock = time.perf_counter
    ) -> None:
        self.limits, self._n, self._clock = (seconds, passes), n, clock
        self._began, self._paused = clock(), math.inf
        self.evaluations, self.compiling, self.done, self.needed = 0.0, 0.0, 0.0, math.inf
        self.after, self.reached = 0.0, 0.0

    def used(self) -> tuple[float, float]:
        """Seconds, and passes over the data, so far."""
        now = min(self._clock(), self._paused)
        return now - self._began - self.compiling, self.evaluations / self._n

    @property
    def unlimited(self) -> bool:
        """Whether there is no budget."""
        return all(math.isinf(limit) for limit in self.limits)

    def left(self) -> tuple[float, float]:
        """Seconds and passes that the budgets leave."""
        now = self.used()
        return self.limits[0] - now[0], self.limits[1] - now[1]

    def passed(self) -> bool:
        """Whether a budget is used up."""
        return min(self.left()) <= 0

    def pays(self, seconds: float, passes: float) -> bool:
        """Whether what is left of the budgets is enough for this."""
        left = self.left()
        return seconds <= left[0] and passes <= left[1]

    def affordable(self, price: tuple[float, float], kept: tuple[float, float] = (0.0, 0.0)) -> float:
        """How many times what is left, but for what is kept, pays a price in seconds and passes."""
        left = [have - keep for have, keep in zip(self.left(), kept, strict=True)]
        if min(left) <= 0:
            return 0.0
        return min((have / cost for have, cost in zip(left, price, strict=True) if cost > 0), default=math.inf)

    def look(self, passes: float = 0.0, kept: float = 0.0) -> None:
        """Raise `BudgetSpent` where less than so many seconds are left, or fewer passes than these."""
        late = self.left()[0] <= kept
        if passes > 0:
            self.require_passes(passes)
        if late:
            raise BudgetSpent

    def require_passes(self, passes: float) -> None:
        """Raise `BudgetSpent` where fewer passes than these are left, whatever the time is."""
        self.reached = max(self.reached, self.used()[1] + passes)
        if passes > self.left()[1]:
            raise BudgetSpent

    @contextmanager
    def piece(self, operations: float) -> Iterator[None]:
        """Work that cannot be cut, of so many multiplications in products of matrices: not begun, but `BudgetSpent`,
        where it is expected to take more seconds than are left.

        How long a multiplication takes, a small product tells.
        """
        self.look()
        if operations > _SHORT and math.isfinite(self.limits[0]):
            seconds = operations * trial(self._clock)
            if seconds > self.left()[0]:
                self.needed = self.used()[0] + seconds
                raise BudgetSpent
        yield

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Seconds that do not count."""
        began, self._paused = self._clock(), min(self._paused, self._clock())
        try:
            yield
        finally:
            self._paused = math.inf
            self.compiling += self._clock() - began

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Within this every `look` of this thread looks at this deadline."""
        before = _binding.set(_NONE if self.unlimited else self)
        try:
            yield
        finally:
            _binding.reset(before)


_NONE = Deadline(1)  # where no deadline binds a call
_binding: ContextVar[Deadline] = ContextVar("binding", default=_NONE)


def look(passes: float = 0.0) -> None:
    """Raise `BudgetSpent` if the deadline that binds this call has passed, or these passes go beyond it."""
    if (deadline := _binding.get()) is not _NONE:  # which takes 2 µs to look at, where this takes 0.3
        deadline.look(passes)


def looking() -> Look:
    """`look`, for threads that this one starts."""
    return _binding.get().look


def looked(items: Iterable[T]) -> Iterator[T]:
    """One after another, with a look before each."""
    for item in items:
        look()
        yield item


def passes_left() -> float:
    """Passes that the deadline that binds this call leaves; infinite where none does."""
    return _binding.get().left()[1]


def piece(operations: float) -> AbstractContextManager[None]:
    """Work of so many multiplications that cannot be cut, under the deadline that binds this call."""
    return _binding.get().piece(operations)


@contextmanager
def spending(share: float) -> Iterator[None]:
    """Within this, a share of what is left of the budgets is all there is: for what helps, and can be left out."""
    deadline = _binding.get()
    before, left = deadline.limits, deadline.left()
    seconds, passes = (
        have - (1 - share) * rest if rest < math.inf else have for have, rest in zip(before, left, strict=True)
    )
    deadline.limits = (seconds, passes)
    try:
        yield
    finally:
        deadline.limits = before


def done(share: float) -> None:
    """Tell the deadline, and who waits for it, how much of a stage of unknown length is done."""
    progress.share(share)
    _binding.get().done = share


def trial(clock: Clock) -> float:
    """Seconds of a multiplication in a product of two small matrices: the less of two."""
    square, taken = np.ones((_SIDE, _SIDE)), []
    for _ in range(2):
        began = clock()
        square @ square
        taken.append(clock() - began)
    return min(taken) / _SIDE**3
