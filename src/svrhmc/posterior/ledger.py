"""What a search has spent, and what it may."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from svrhmc.core.progress import Progress, compiling

_TRIFLE = 0.02  # of a budget


class Ledger:
    """Component gradients by all chains together, seconds (compilation apart), and the budgets of both.

    `steps` holds the seconds of each stage, by name.
    """

    def __init__(self, n: int, seconds: float, passes: float, progress: Progress) -> None:
        self._n, self._limits, self._progress = n, (seconds, passes), progress
        self._began = time.perf_counter()
        self.evaluations, self.compiling = 0.0, 0.0
        self.steps: dict[str, float] = {}

    def spend(self, evaluations: float) -> None:
        """So many component gradients more."""
        self.evaluations += evaluations

    def used(self) -> tuple[float, float]:
        """Seconds, and passes over the data."""
        return time.perf_counter() - self._began - self.compiling, self.evaluations / self._n

    @property
    def unlimited(self) -> bool:
        """Whether there is no budget."""
        return all(math.isinf(limit) for limit in self._limits)

    def spent(self) -> bool:
        """Whether a budget is used up."""
        return any(now >= limit for now, limit in zip(self.used(), self._limits, strict=True))

    def affordable(self, price: tuple[float, float], kept: tuple[float, float] = (0.0, 0.0)) -> float:
        """How many draws what is left, but for what is kept, pays for, at a price in seconds and passes each."""
        left = [limit - now - keep for limit, now, keep in zip(self._limits, self.used(), kept, strict=True)]
        return min(have / each for have, each in zip(left, price, strict=True) if each > 0)

    def trifling(self, spent: tuple[float, float]) -> bool:
        """Whether this is a small part of every budget."""
        return all(price <= _TRIFLE * limit for price, limit in zip(spent, self._limits, strict=True))

    def pays(self, seconds: float, passes: float) -> bool:
        """Whether what is left of the budgets is enough for this."""
        return all(
            now + price <= limit for now, price, limit in zip(self.used(), (seconds, passes), self._limits, strict=True)
        )

    def compile(self, work: Callable[[], object]) -> None:
        """Work that is compilation, or loads what was compiled; said aloud on a terminal, and counted apart."""
        began = time.perf_counter()
        with compiling(self._progress):
            work()
        self.compiling += time.perf_counter() - began

    def lap(self, name: str) -> None:
        """The time since the last lap belongs to this stage."""
        self.steps[name] = self.steps.get(name, 0.0) + self.used()[0] - sum(self.steps.values())

    def said(self) -> dict[str, Any]:
        """What a record keeps of it."""
        return {"evaluations": self.evaluations, "seconds": self.used()[0], "steps": dict(self.steps)}

    def restore(self, said: dict[str, Any]) -> None:
        """Go on from a record."""
        self.evaluations, self.steps = float(said["evaluations"]), dict(said["steps"])
        self._began = time.perf_counter() - float(said["seconds"]) - self.compiling
