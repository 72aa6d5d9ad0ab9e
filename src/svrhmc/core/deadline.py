"""What a call may spend, in seconds and in passes over the data, and what it has spent.

A loop that could be long calls `look()` wherever it can stop; `look` raises `BudgetSpent` where the budget that binds
the call is used up, and does nothing where none does. So a loop need not be told of a budget, and without one nothing
changes. Between two looks lies one indivisible piece of work (a block of rows, a step of all chains), by which a budget
may be exceeded. One that could be long, a Hessian or the factorisation of one, is not begun unless it is expected to
end in time: `with piece(operations):`. Passes are known beforehand, or as they are made: `look(passes)` is given those
that are not counted yet, and raises if they go beyond the budget.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

import numpy as np

from svrhmc.core.errors import BudgetError, finite, nonnegative
from svrhmc.core.progress import Progress, compiling, share
from svrhmc.core.storage import Record

Clock = Callable[[], float]
Look = Callable[[float], None]
T = TypeVar("T")

_SIDE = 256  # of the matrices whose product tells how fast the machine is
_SHORT = 1e7  # multiplications that are begun whatever is left: some milliseconds
_NEARLY = 0.9  # a stage that has not ended is not thought to be nearer to its end

# Multiplications in products of matrices that take as long as n³ of these; as one of a product of sparse ones
CHOLESKY, INVERSE, EIGENVECTORS, LEAST_SQUARES, SPARSE = 0.2, 1.0, 5.0, 6.0, 1000.0


class BudgetSpent(Exception):  # noqa: N818  (a signal: what is ready is returned)
    """A budget ended. It never leaves `sample`, which returns what is ready or raises a `BudgetError`."""


class Budget:
    """Seconds (but for those apart, of compilation) and passes over n rows, with a limit on each.

    evaluations: component gradients so far, of all chains together. compiling: seconds that do not count. steps: the
    seconds of each stage, by name. done: the share of the present stage that is made, as far as it can tell; 0 where it
    cannot. after: passes that are known to follow it before there is an answer. reached: the most passes that were made
    or asked for. needed: the seconds from the beginning to the end of a piece that was not begun for want of time;
    infinite where there was none.
    """

    def __init__(
        self,
        n: int,
        seconds: float = math.inf,
        passes: float = math.inf,
        progress: Progress = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.limits, self._n, self._clock, self._progress = (seconds, passes), n, clock, progress
        self.steps: dict[str, float] = {}
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
        """Within this every `look` of this thread looks at this budget."""
        before = _binding.set(_NONE if self.unlimited else self)
        try:
            yield
        finally:
            _binding.reset(before)

    def spend(self, evaluations: float) -> None:
        """So many component gradients more."""
        self.evaluations += evaluations

    def compile(self, work: Callable[[], object]) -> None:
        """Work that is compilation, or loads what was compiled; said aloud on a terminal, and counted apart."""
        with self.apart(), compiling(self._progress):
            work()

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to this stage."""
        self.steps[name] = self.steps.get(name, 0.0) + self.used()[0] - sum(self.steps.values())

    def missing(self, what: str) -> BudgetError:
        """The error where a budget ended before there was anything to return."""
        names = ("budget_seconds", "budget_passes")
        which = 0 if self.left()[0] <= 0 or math.isfinite(self.needed) else 1
        about = self._passes_needed() if which else self._seconds_needed()
        return BudgetError(names[which], self.limits[which], what, float(f"{about:.2g}"))

    def _passes_needed(self) -> float:
        """Until there is an answer: those so far over their share of the stage, and what is known to follow it."""
        return max(self.reached, self.reached / self.done) + self.after if self.done else math.inf

    def _seconds_needed(self) -> float:
        """Likewise, where a pass takes as long as those so far did; of a piece that was not begun, its own estimate."""
        guesses = [self.needed] if math.isfinite(self.needed) else []
        if self.done:
            whole, far = self.used()[0] / min(self.done, _NEARLY), max(self.reached, 1.0)
            guesses.append(whole + self.after * self.used()[0] / far)
        return max(guesses, default=math.inf)

    def ledger(self) -> dict[str, object]:
        """What was spent, as a record keeps it."""
        return {"evaluations": self.evaluations, "seconds": self.used()[0], "steps": dict(self.steps)}

    def is_before(self, record: Record) -> bool:
        """Whether less had been spent than a record says."""
        return self.evaluations < record.value("ledger", _restored)[0]

    def restore(self, record: Record, name: str = "ledger") -> None:
        """Go on from what a record says under this name."""
        self.evaluations, _, self.steps = record.value(name, _restored)
        self.resume(record, name)

    def resume(self, record: Record, name: str) -> None:
        """Go on within a stage that is gone through again: its passes are counted anew, and its seconds are not."""
        self._began = self._clock() - record.value(name, _restored)[1] - self.compiling


def _restored(name: str, spent: Mapping[str, object]) -> tuple[float, float, dict[str, float]]:
    """Evaluations, seconds, and the seconds of each stage."""
    evaluations, seconds = (nonnegative(f"{key} of the {name}", spent[key]) for key in ("evaluations", "seconds"))
    steps = cast(dict[str, float], spent["steps"])
    return evaluations, seconds, {stage: finite(f"the time of {stage}", s) for stage, s in steps.items()}


_NONE = Budget(1)  # where no budget binds a call
_binding: ContextVar[Budget] = ContextVar("binding", default=_NONE)


def look(passes: float = 0.0) -> None:
    """Raise `BudgetSpent` if the budget that binds this call is used up, or these passes go beyond it."""
    if (budget := _binding.get()) is not _NONE:  # which takes 2 µs to look at, where this takes 0.3
        budget.look(passes)


def looking() -> Look:
    """`look`, for threads that this one starts."""
    return _binding.get().look


def looked(items: Iterable[T]) -> Iterator[T]:
    """One after another, with a look before each."""
    for item in items:
        look()
        yield item


def passes_left() -> float:
    """Passes that the budget that binds this call leaves; infinite where none does."""
    return _binding.get().left()[1]


def piece(operations: float) -> AbstractContextManager[None]:
    """Work of so many multiplications that cannot be cut, under the budget that binds this call."""
    return _binding.get().piece(operations)


@contextmanager
def spending(part: float) -> Iterator[None]:
    """Within this, a part of what is left of the budgets is all there is: for what helps, and can be left out."""
    budget = _binding.get()
    before, left = budget.limits, budget.left()
    seconds, passes = (
        have - (1 - part) * rest if rest < math.inf else have for have, rest in zip(before, left, strict=True)
    )
    budget.limits = (seconds, passes)
    try:
        yield
    finally:
        budget.limits = before


def done(part: float) -> None:
    """Tell the budget, and who waits for it, how much of a stage of unknown length is done."""
    share(part)
    _binding.get().done = part


def trial(clock: Clock) -> float:
    """Seconds of a multiplication in a product of two small matrices: the less of two."""
    square, taken = np.ones((_SIDE, _SIDE)), []
    for _ in range(2):
        began = clock()
        square @ square
        taken.append(clock() - began)
    return min(taken) / _SIDE**3
