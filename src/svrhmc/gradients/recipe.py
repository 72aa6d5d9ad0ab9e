"""A gradient as plain data, which every engine and the theory read.

    g = ḡ + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − mᵢ)

The reference says what ḡ and mᵢ are:

    "none"       ḡ = mᵢ = 0,
    "snapshot"   mᵢ = ∇fᵢ(x̃) and ḡ = ∇f(x̃), where x̃ is the state at the steps 0, period, 2·period, …,
    "mode"       the same at the mode x̂, which never changes,
    "table"      mᵢ is ∇fᵢ where it was last evaluated, and ḡ is the mean of all mᵢ.

What a chain has to carry from step to step is its `Memory`; what a run costs, when a snapshot is due and how long an
epoch is follow from the recipe too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy.typing as npt

from svrhmc.core.arrays import Indices
from svrhmc.core.errors import one_of, requirement, truth, whole
from svrhmc.core.randomness import MAX_BOUND, MAX_SLOTS

Count = TypeVar("Count", int, Indices)

# Arrays by name, each with the chains as its first axis: "snapshot", "anchor" (ḡ without the prior's part) and "table"
# (the mᵢ). It is empty before the first step. Its numbers are those of the engine that made it.
Memory = dict[str, npt.NDArray[Any]]

DRAWS = ("evenly", "distinct", "weighted")
REFERENCES = ("none", "snapshot", "mode", "table")
NEVER = 1 << 62  # steps
_MOST_KEPT = 1 << 22  # numbers of a table that could be made again from a snapshot


@dataclass(frozen=True)
class Recipe:
    """How an estimate g of ∇f is made of n components: g = ḡ + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − mᵢ).

    n: the number of components.
    batch: the number B of rows drawn at each step, or 0 to use all of them.
    draw: how they are drawn: "evenly", "distinct" (evenly, without replacement) or "weighted" (with the target's
        probabilities Pᵢ; each term is then divided by nPᵢ).
    reference: what ḡ and mᵢ are: "none" (both 0), "snapshot" (∇f and ∇fᵢ at the last snapshot), "mode" (the same at the
        mode) or "table" (∇fᵢ where it was last evaluated, and the mean of these).
    period: the number of steps from one snapshot to the next.
    snapshot_rows: if above 0, ḡ of a snapshot is itself a mean over this many rows.
    remembers: whether the mᵢ of all components are stored, so that a step evaluates its batch only once.
    order: 2 to subtract Hᵢ(x − x̂) from each term as well, and to add H(x − x̂).

    >>> Recipe(n=100, batch=5, reference="snapshot", period=20).evaluations(40)     # two snapshots, 2·5 a step
    600
    """

    n: int
    batch: int = 0
    draw: str = "evenly"
    reference: str = "none"
    period: int = NEVER
    snapshot_rows: int = 0
    remembers: bool = False
    order: int = 1

    def __post_init__(self) -> None:
        whole("n", self.n, 1)
        whole("batch", self.batch, 0, MAX_SLOTS)
        one_of("draw", self.draw, DRAWS)
        one_of("reference", self.reference, REFERENCES)
        whole("period", self.period, 1)
        whole("snapshot_rows", self.snapshot_rows, 0, MAX_SLOTS)
        truth("remembers", self.remembers)
        whole("order", self.order, 1, 2)
        if self.full and self.reference != "none":
            raise requirement("batch", "at least 1 for a gradient with a reference", 0)
        if self.order == 2 and self.reference != "mode":
            raise requirement("order", "1 for a gradient whose reference is not the mode", 2)
        if self.reference != "snapshot" and (self.period != NEVER or self.snapshot_rows):
            raise requirement("reference", "'snapshot' where there is a period or snapshot_rows", repr(self.reference))
        if self.remembers and (self.reference == "none" or self.snapshot_rows):
            raise requirement("remembers", "False without a reference that all components have", True)
        if self.reference == "table" and not self.remembers:
            raise requirement("remembers", "True for a table", False)
        if self.draw == "distinct":
            for name, size in (("batch_size", self.batch), ("snapshot_size", self.snapshot_rows)):
                if size > self.n:
                    raise requirement(name, f"at most n = {self.n} without replacement", size)

    def check(self) -> Recipe:
        """Raise an error if there are more rows than can be drawn. (The theory has no such limit.)"""
        if not self.full and self.n > MAX_BOUND:
            raise requirement("n", f"at most {MAX_BOUND}", self.n, "row numbers are drawn from 32-bit words")
        return self

    @property
    def full(self) -> bool:
        """Whether every step evaluates all components."""
        return self.batch == 0

    @property
    def carries(self) -> bool:
        """Whether a chain carries a memory from step to step."""
        return self.reference in ("snapshot", "table")

    @property
    def replacement(self) -> bool:
        """Whether a batch may hold a row twice."""
        return self.draw != "distinct"

    @property
    def weighted(self) -> bool:
        """Whether rows are drawn with the target's probabilities."""
        return self.draw == "weighted"

    @property
    def rows_at_once(self) -> int:
        """The most rows drawn together for one chain, which an engine has to make room for."""
        return max(self.batch, self.snapshot_rows)

    @property
    def rows_of_estimate(self) -> int:
        """Components that one estimate evaluates at x."""
        return self.batch or self.n

    @property
    def epoch(self) -> int:
        """The number of steps after which the recipe repeats itself; 1 without snapshots."""
        return self.period if self.reference == "snapshot" else 1

    def due(self, step: int) -> bool:
        """Whether a new snapshot is taken before the gradient of this step."""
        return self.carries and step % self.period == 0

    def keeps_table(self, chains: int) -> bool:
        """Whether a state of so many chains holds the mᵢ: those of a snapshot only where they are few enough."""
        return self.reference == "table" or (self.remembers and self.carries and chains * self.n <= _MOST_KEPT)

    def evaluations(self, steps: Count) -> Count:
        """Component gradients that a chain evaluates in so many steps (one number, or many), from its start."""
        if self.full:
            return steps * self.n
        again = 1 if self.reference == "none" or self.remembers else 2
        count: Count = steps * (again * self.batch)
        if self.reference == "snapshot":
            return count + -(-steps // self.period) * (self.snapshot_rows or self.n)
        if self.reference in ("mode", "table"):
            count = count + (steps > 0) * self.n
        return count

    def steps_within(self, budget: float, most: int = 1 << 62) -> int:
        """The most steps that evaluate no more component gradients than the budget, up to `most`."""
        low, high = 0, 1
        while self.evaluations(high) <= budget:
            if high >= most:
                return most
            low, high = high, min(2 * high, most)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.evaluations(middle) <= budget else (low, middle)
        return low
