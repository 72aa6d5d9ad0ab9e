"""Among which samplers the cheapest run by the exact law is looked for, and on what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from svrhmc.core.arrays import Array
from svrhmc.samplers import METHODS, Sampler, saga_hmc, saga_ld
from svrhmc.targets.base import FiniteSum
from svrhmc.theory.chain import Chain
from svrhmc.theory.moments import recursion_of
from svrhmc.theory.problem import Problem
from svrhmc.theory.quadratic import Quadratic
from svrhmc.theory.recursion import Recursion

UNDERDAMPED = ("hmc", "sg-hmc", "svr-hmc", "saga-hmc")
TABLED: dict[str, Callable[..., Sampler]] = {"saga-ld": saga_ld, "saga-hmc": saga_hmc}
MAX_TABLED = 16  # numbers of a state with a table, of which many steps and batches are tried
PLANNED = {**METHODS, **TABLED}


@dataclass(frozen=True, eq=False)
class Search:
    """Where a plan by the exact law is looked for: runs from `origin` on a spectrum, or (a table) on the target."""

    problem: Problem
    method: str
    importance: bool
    target: FiniteSum | None
    model: Quadratic
    origin: Array

    def chain(self, sampler: Sampler) -> Recursion:
        """The moments of a sampler."""
        if self.target is not None and self.method in TABLED:
            return recursion_of(sampler, self.target)
        return Chain(sampler, self.model, self.problem)

    def samplers(self) -> Iterator[Callable[[float], Sampler]]:
        """Samplers by their step, for each epoch or batch that is tried."""
        n, method = self.problem.n, self.method
        mass = {"inverse_mass": 1 / self.problem.smoothness} if method in UNDERDAMPED else {}
        settings: list[dict[str, int]] = [{}]
        if method in ("svr-hmc", "vr-sgld"):
            settings = [{"epoch_length": m} for m in epochs_tried(n)]
        elif method in ("sg-hmc", "sgld", *TABLED):
            settings = [{"batch_size": 4**k} for k in range(12) if 4**k <= n]
        for chosen in settings:
            make = partial(PLANNED[method], **mass, **chosen)
            yield partial(_by_importance, make) if self.importance else make


def _by_importance(make: Callable[[float], Sampler], eta: float) -> Sampler:
    made: Any = make(eta)
    return Sampler(made.dynamics, replace(made.gradient, importance=True))


def epochs_tried(n: int) -> list[int]:
    """Epoch lengths that are tried; of equals, the one nearest n is taken."""
    return list(dict.fromkeys(max(1, round(n * factor)) for factor in (1, 1 / 2, 2, 1 / 4, 4, 1 / 16, 16, 64)))
