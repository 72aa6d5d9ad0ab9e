"""What a search has spent, and what it may."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from svrhmc.core.deadline import Clock, Deadline
from svrhmc.core.errors import BudgetError, finite, nonnegative
from svrhmc.core.progress import Progress, compiling
from svrhmc.core.storage import Record

_NEARLY = 0.9  # a stage that has not ended is not thought to be nearer to its end


class Budget(Deadline):
    """Component gradients by all chains together, seconds (compilation apart), and the budgets of both.

    `steps` holds the seconds of each stage, by name.
    """

    def __init__(
        self, n: int, seconds: float, passes: float, progress: Progress, clock: Clock = time.perf_counter
    ) -> None:
        super().__init__(n, seconds, passes, clock)
        self._progress = progress
        self.steps: dict[str, float] = {}

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

    def said(self) -> dict[str, object]:
        """What a record keeps of it."""
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


def _restored(name: str, spent: dict[str, Any]) -> tuple[float, float, dict[str, float]]:
    """Evaluations, seconds, and the seconds of each stage."""
    evaluations, seconds = (nonnegative(f"{key} of the {name}", spent[key]) for key in ("evaluations", "seconds"))
    return evaluations, seconds, {str(stage): finite(f"the time of {stage}", s) for stage, s in spent["steps"].items()}
