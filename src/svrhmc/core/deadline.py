"""What a call may spend, in seconds and in passes over the data, and what it has spent.

A loop that could be long calls `check_budget()` wherever it can stop. This raises `BudgetSpent` if the budget in force
is used up, and does nothing if there is none, so that a loop needs no argument for a budget. Between two checks lies
one indivisible piece of work (a block of rows, a step of all chains), by which a budget may be exceeded. One that could
be long, a Hessian or its factorisation, is not started unless it is expected to end in time: `with
indivisible_work(operations):`. Passes over the data that are not counted yet are given to `check_budget(passes)`, which
raises if they exceed the budget.
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
from svrhmc.core.progress import Progress, compilation_stage, set_share_done
from svrhmc.core.storage import Record

Clock = Callable[[], float]
Look = Callable[[float], None]
T = TypeVar("T")

_SIDE = 256  # of the matrices whose product measures how fast the machine is
_SHORT = 1e7  # multiplications that are started whatever is left of the budget: some milliseconds
_NEARLY = 0.9  # a stage that has not ended is never taken to be closer to its end than this share

# How many multiplications of a matrix product take as long as n³ of each of these, and as one of a sparse product
CHOLESKY, INVERSE, EIGENVECTORS, LEAST_SQUARES, SPARSE = 0.2, 1.0, 5.0, 6.0, 1000.0


class BudgetSpent(Exception):  # noqa: N818  (a signal: what is ready is returned)
    """A budget ended. It never leaves `sample`, which returns what is ready or raises a `BudgetError`."""


class Budget:
    """Limits on seconds (without those of compilation) and on passes over n rows, and what was spent.

    evaluations: component gradients so far, of all chains together. compiling: seconds that do not count. steps: the
    seconds of each stage, by name. done: the share of the current stage that is done; 0 if it is not known. after: the
    passes that will follow this stage before there is an answer, as far as they are known. reached: the most passes
    that were made or requested. needed: the seconds from the start to the end of a piece of work that was not started
    for lack of time; infinite if there was none.
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

    def is_spent(self) -> bool:
        """Whether a budget is used up."""
        return min(self.left()) <= 0

    def covers(self, seconds: float, passes: float) -> bool:
        """Whether what is left of the budgets is enough for this."""
        left = self.left()
        return seconds <= left[0] and passes <= left[1]

    def affordable(self, price: tuple[float, float], reserve: tuple[float, float] = (0.0, 0.0)) -> float:
        """How many times the rest of the budget, less a reserve, pays a price in seconds and passes."""
        left = [have - keep for have, keep in zip(self.left(), reserve, strict=True)]
        if min(left) <= 0:
            return 0.0
        return min((have / cost for have, cost in zip(left, price, strict=True) if cost > 0), default=math.inf)

    def check(self, passes: float = 0.0, reserve: float = 0.0) -> None:
        """Raise `BudgetSpent` if at most `reserve` seconds are left, or fewer passes than `passes`."""
        late = self.left()[0] <= reserve
        if passes > 0:
            self.require_passes(passes)
        if late:
            raise BudgetSpent

    def require_passes(self, passes: float) -> None:
        """Raise `BudgetSpent` if fewer passes than these are left, whatever the time is."""
        self.reached = max(self.reached, self.used()[1] + passes)
        if passes > self.left()[1]:
            raise BudgetSpent

    @contextmanager
    def indivisible_work(self, operations: float) -> Iterator[None]:
        """Work that cannot be cut, of so many multiplications in matrix products. Raises `BudgetSpent` in its place if
        it is expected to take more seconds than are left.

        How long a multiplication takes is measured with a small product.
        """
        self.check()
        if operations > _SHORT and math.isfinite(self.limits[0]):
            seconds = operations * time_small_product(self._clock)
            if seconds > self.left()[0]:
                self.needed = self.used()[0] + seconds
                raise BudgetSpent
        yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The seconds spent within do not count."""
        began, self._paused = self._clock(), min(self._paused, self._clock())
        try:
            yield
        finally:
            self._paused = math.inf
            self.compiling += self._clock() - began

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Within this, `check_budget` checks this budget in this thread."""
        before = _binding.set(_NONE if self.unlimited else self)
        try:
            yield
        finally:
            _binding.reset(before)

    def spend(self, evaluations: float) -> None:
        """Count some more component gradients."""
        self.evaluations += evaluations

    def compile(self, work: Callable[[], object]) -> None:
        """Do work that compiles, or loads compiled code: it is shown on a terminal, and its time does not count."""
        with self.paused(), compilation_stage(self._progress):
            work()

    def end_stage(self, name: str) -> None:
        """Add the time since the previous call to the stage of this name."""
        self.steps[name] = self.steps.get(name, 0.0) + self.used()[0] - sum(self.steps.values())

    def exceeded_error(self, result: str) -> BudgetError:
        """The error if a budget ended before there was a result to return."""
        by_time = self.left()[0] <= 0 or math.isfinite(self.needed)
        name, limit = ("budget_seconds", self.limits[0]) if by_time else ("budget_passes", self.limits[1])
        needed = self._seconds_needed() if by_time else self._passes_needed()
        return BudgetError(name, limit, result, float(f"{needed:.2g}"))

    def _passes_needed(self) -> float:
        """Passes until there is an answer: those so far divided by the share of the stage that is done, and those that
        are known to follow it.
        """
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
        return self.evaluations < record.value("ledger", _read_ledger)[0]

    def restore(self, record: Record, name: str = "ledger") -> None:
        """Go on from what a record says under this name."""
        self.evaluations, _, self.steps = record.value(name, _read_ledger)
        self.resume(record, name)

    def resume(self, record: Record, name: str) -> None:
        """Go on within a stage that is gone through again: its passes are counted anew, and its seconds are not."""
        self._began = self._clock() - record.value(name, _read_ledger)[1] - self.compiling


def _read_ledger(name: str, spent: Mapping[str, object]) -> tuple[float, float, dict[str, float]]:
    """Evaluations, seconds, and the seconds of each stage."""
    evaluations, seconds = (nonnegative(f"{key} of the {name}", spent[key]) for key in ("evaluations", "seconds"))
    steps = cast(dict[str, float], spent["steps"])
    return evaluations, seconds, {stage: finite(f"the time of {stage}", s) for stage, s in steps.items()}


_NONE = Budget(1)  # the budget in force where there is no limit
_binding: ContextVar[Budget] = ContextVar("binding", default=_NONE)


def check_budget(passes: float = 0.0) -> None:
    """Raise `BudgetSpent` if the budget in force is used up, or these passes exceed it."""
    if (budget := _binding.get()) is not _NONE:  # `check` takes 2 µs, and this comparison 0.3
        budget.check(passes)


def budget_check() -> Look:
    """`check_budget`, for threads that this one starts."""
    return _binding.get().check


def checking_budget(items: Iterable[T]) -> Iterator[T]:
    """The items one after another, with a check of the budget before each."""
    for item in items:
        check_budget()
        yield item


def passes_left() -> float:
    """Passes that the budget in force leaves; infinite without one."""
    return _binding.get().left()[1]


def indivisible_work(operations: float) -> AbstractContextManager[None]:
    """`Budget.indivisible_work` of the budget in force."""
    return _binding.get().indivisible_work(operations)


@contextmanager
def limit_to_share(part: float) -> Iterator[None]:
    """Within this, only a part of what is left of the budgets may be spent: for work that helps but can be left out."""
    budget = _binding.get()
    before, left = budget.limits, budget.left()
    seconds, passes = (
        limit - (1 - part) * rest if rest < math.inf else limit for limit, rest in zip(before, left, strict=True)
    )
    budget.limits = (seconds, passes)
    try:
        yield
    finally:
        budget.limits = before


def report_share_done(part: float) -> None:
    """Tell the budget and the line of progress how much of a stage of unknown length is done."""
    set_share_done(part)
    _binding.get().done = part


def time_small_product(clock: Clock) -> float:
    """Seconds per multiplication in a product of two small matrices: the smaller of two measurements."""
    square, times = np.ones((_SIDE, _SIDE)), []
    for _ in range(2):
        began = clock()
        square @ square
        times.append(clock() - began)
    return min(times) / _SIDE**3
