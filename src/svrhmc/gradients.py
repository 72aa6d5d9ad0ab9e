"""How ∇f is estimated: one formula with different memories.

g = ḡ + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − mᵢ)

The reference says what ḡ and mᵢ are:

    "none"       ḡ = mᵢ = 0,
    "snapshot"   mᵢ = ∇fᵢ(x̃) and ḡ = ∇f(x̃), where x̃ is the state at the steps 0, period, 2·period, …,
    "mode"       the same at the mode x̂, which never changes,
    "table"      mᵢ is ∇fᵢ where it was last evaluated, and ḡ is the mean of all mᵢ.

What a chain has to carry from step to step is its `Memory`; what a run costs, when a snapshot is due and how long an
epoch is follow from the recipe too.

The gradients by name (`Full`, `Minibatch`, `SVRG`, `SAGA`, `ControlVariate`) are settings that become a `Recipe`, plain
data which every engine and the theory read. `Estimator` is a recipe at work, in NumPy: the definition of what every
engine has to give.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from svrhmc.core.arrays import Array, Indices, contract
from svrhmc.core.errors import boolean, one_of, requirement, set_fields, whole_number
from svrhmc.core.randomness import MAX_BOUND, MAX_SLOTS, Purpose, Stream
from svrhmc.core.serialise import part
from svrhmc.density.base import Expansion, FiniteSum

__all__ = [
    "SAGA",
    "SVRG",
    "Batched",
    "ControlVariate",
    "Estimator",
    "Full",
    "Gradient",
    "Memory",
    "Minibatch",
    "Recipe",
    "require_gradient",
]

Count = TypeVar("Count", int, Indices)

# Arrays by name, each with the chains as its first axis: "snapshot", "anchor" (ḡ without the prior's part) and "table"
# (the mᵢ). It is empty before the first step. Its numbers are those of the engine that made it.
Memory = dict[str, Array]

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
        whole_number("n", self.n, 1)
        whole_number("batch", self.batch, 0, MAX_SLOTS)
        one_of("draw", self.draw, DRAWS)
        one_of("reference", self.reference, REFERENCES)
        whole_number("period", self.period, 1)
        whole_number("snapshot_rows", self.snapshot_rows, 0, MAX_SLOTS)
        boolean("remembers", self.remembers)
        whole_number("order", self.order, 1, 2)
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
        """Whether the state of this many chains holds the mᵢ: those of a snapshot only if they are few enough."""
        return self.reference == "table" or (self.remembers and self.carries and chains * self.n <= _MOST_KEPT)

    def evaluations(self, steps: Count) -> Count:
        """Component gradients that a chain evaluates in its first `steps` steps (one number, or an array)."""
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


class Counted(Protocol):
    """What a recipe needs to know of a target."""

    @property
    def n(self) -> int:
        """The number of components."""

    @property
    def lasting_parts(self) -> bool:
        """Whether a number for every component can be kept, and is all there is to keep of it."""


class Gradient(ABC):
    """A way to estimate ∇f. Gradients with equal settings are equal objects.

    To write your own, derive from this class and return a `Recipe`; it runs on every engine that supports the recipe.
    """

    @abstractmethod
    def recipe(self, target: Counted) -> Recipe:
        """The recipe on this target, as plain data; settings that do not fit the target are an error."""

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """An object that evaluates the recipe for the chains of a random stream."""
        return Estimator(self.recipe(target), target, stream)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """Component gradients that a chain evaluates in its first `steps` steps (one number, or an array)."""
        return self.recipe(target).evaluations(steps)


def require_gradient(gradient: object) -> Gradient:
    """Refuse anything but a gradient."""
    if not isinstance(gradient, Gradient):
        raise requirement("gradient", "one of svrhmc.gradients, such as SVRG()", repr(gradient))
    return gradient


@part
@dataclass(frozen=True)
class Full(Gradient):
    """g = ∇f(x): n component gradients a step.

    >>> from svrhmc.targets import synthetic
    >>> Full().evaluations(synthetic(50, 2), steps=10)
    500
    """

    def recipe(self, target: Counted) -> Recipe:
        """All components, at every step."""
        return Recipe(target.n)


class Batched(Gradient):
    """The settings that every gradient from a batch of rows has."""

    batch_size: int
    replacement: bool
    importance: bool

    def __post_init__(self) -> None:
        set_fields(
            self,
            batch_size=whole_number("batch_size", self.batch_size, 1, MAX_SLOTS),
            replacement=boolean("replacement", self.replacement),
            importance=boolean("importance", self.importance),
        )
        if self.importance and not self.replacement:
            raise requirement("replacement", "True where rows are drawn by importance", False)

    @property
    def draw(self) -> str:
        """How rows are drawn, in the words of a recipe."""
        if self.importance:
            return "weighted"
        return "evenly" if self.replacement else "distinct"


@part
@dataclass(frozen=True)
class Minibatch(Batched):
    """g = (1/B) Σ_{i ∈ batch} ∇fᵢ(x): B component gradients a step.

    The batch is drawn anew each step, with or without replacement. Its noise has covariance C(x)/B, with C the
    covariance of the component gradients, times (n − B)/(n − 1) without replacement.

    >>> Minibatch(batch_size=10)
    Minibatch(batch_size=10, replacement=True, importance=False)
    """

    batch_size: int = 1
    replacement: bool = True
    importance: bool = False

    def recipe(self, target: Counted) -> Recipe:
        """A fresh batch each step."""
        return Recipe(target.n, self.batch_size, self.draw)


@part
@dataclass(frozen=True)
class SVRG(Batched):
    """g = ∇f(x̃) + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − ∇fᵢ(x̃)): the paper's semi-stochastic gradient (eq. 7, with batches).

    The snapshot x̃ is the state at steps 0, m, 2m, … with m = `epoch_length` (None: n // batch_size, at least 1),
    taken before the step is made. A snapshot costs n component gradients; a step costs B where the snapshot's parts
    are remembered (models with a linear predictor: one number a row), else 2B.

    With `snapshot_size` the snapshot's gradient is itself estimated, from so many rows drawn anew at each
    snapshot (the paper's "an estimation of the full gradient"). It then costs that many component gradients, nothing is
    remembered by row, and a step costs 2B. g stays unbiased.

    >>> from svrhmc.targets import synthetic
    >>> SVRG(batch_size=5).evaluations(synthetic(50, 2), steps=20)      # two snapshots, 2·5 a step
    300
    """

    batch_size: int = 1
    epoch_length: int | None = None
    replacement: bool = True
    snapshot_size: int | None = None
    importance: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        m, size = self.epoch_length, self.snapshot_size
        set_fields(
            self,
            epoch_length=None if m is None else whole_number("epoch_length", m, 1, NEVER),
            snapshot_size=None if size is None else whole_number("snapshot_size", size, 1, MAX_SLOTS),
        )

    def recipe(self, target: Counted) -> Recipe:
        """A snapshot with its clock."""
        period = max(1, target.n // self.batch_size) if self.epoch_length is None else self.epoch_length
        return Recipe(
            target.n,
            self.batch_size,
            self.draw,
            "snapshot",
            period,
            snapshot_rows=self.snapshot_size or 0,
            remembers=target.lasting_parts and self.snapshot_size is None,
        )


@part
@dataclass(frozen=True)
class ControlVariate(Batched):
    """g = ∇f(x̂) + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − ∇fᵢ(x̂)), with x̂ the target's mode (Baker et al. 2019).

    The mode is found once for a run and not counted; the pass for ∇f(x̂) and the remembered parts is. A step then
    costs B component gradients where parts are numbers (models with a linear predictor), else 2B, whatever n is. On a
    quadratic its noise is that of Cᵢ(x − x̂), half that of a snapshot older than the correlation time.

    `order=2` adds the Hessians Hᵢ at the mode, for models with a linear predictor:

        g = ∇f(x̂) + H(x − x̂) + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − ∇fᵢ(x̂) − Hᵢ(x − x̂)),

    at the cost of a product with H, dim × dim, a step. Its noise is of the size of the third derivatives: none on a
    quadratic, and on a posterior over n rows smaller by a factor of the order dim/n than that of order 1.

    >>> from svrhmc.targets import linear
    >>> target = linear([[1.0], [2.0], [0.5]], [1.0, 3.0, 0.0])
    >>> ControlVariate(batch_size=2).evaluations(target, steps=10)
    23
    """

    batch_size: int = 1
    replacement: bool = True
    order: int = 1
    importance: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, order=whole_number("order", self.order, 1, 2))

    def recipe(self, target: Counted) -> Recipe:
        """A snapshot at the mode that is never taken anew."""
        return Recipe(target.n, self.batch_size, self.draw, "mode", remembers=target.lasting_parts, order=self.order)


@part
@dataclass(frozen=True)
class SAGA(Batched):
    """g = (1/n) Σⱼ αⱼ + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − αᵢ), and then αᵢ ← ∇fᵢ(x) for i in the batch (Dubey et al. 2016).

    Begins with a pass over all components at the start; after that a step costs B component gradients, and no epoch
    ever begins. It keeps one number a row for models with a linear predictor, else a gradient a component, for each
    chain.

    >>> from svrhmc.targets import synthetic
    >>> SAGA(batch_size=5).evaluations(synthetic(50, 2), steps=20)
    150
    """

    batch_size: int = 1
    replacement: bool = True
    importance: bool = False

    def recipe(self, target: Counted) -> Recipe:
        """All components remembered, each as of its last turn."""
        return Recipe(target.n, self.batch_size, self.draw, "table", remembers=True)


@dataclass(frozen=True, eq=False)
class AtMode:
    """What a recipe whose reference is the mode needs there; computed once for all chains."""

    recipe: Recipe
    target: FiniteSum

    @cached_property
    def point(self) -> Array:
        """x̂, as one row."""
        return self.target.mode()[None, :]

    @cached_property
    def parts(self) -> Array | None:
        """All mᵢ where they are remembered."""
        return self.target.parts(self.point, None) if self.recipe.remembers else None

    @cached_property
    def anchor(self) -> Array:
        """∇f(x̂) without the prior's part."""
        if self.parts is not None:
            return self.target.assemble(self.parts, None)
        return self.target.gradients(self.point) - self.target.prior_gradient(self.point)

    @cached_property
    def expansion(self) -> Expansion:
        """Second derivatives of the components."""
        return self.target.expansion(self.point[0])


class Estimator:
    """A recipe for some chains of one target, with the memory that they carry; the prior's gradient, which all
    components share, is taken at x and is no part of it.

    `evaluations` counts the component gradients that each chain really evaluates.
    """

    def __init__(
        self,
        recipe: Recipe,
        target: FiniteSum,
        stream: Stream,
        memory: Memory | None = None,
        at_mode: AtMode | None = None,
    ) -> None:
        self._recipe, self._target, self._stream = recipe, target, stream
        self._memory: Memory = dict(memory or {})
        self._at_mode = AtMode(recipe, target) if at_mode is None else at_mode
        self._seen_mode = False
        self.evaluations = 0
        if self._memory and recipe.remembers and "table" not in self._memory:  # it can be computed again
            self._memory["table"] = target.parts(self._memory["snapshot"], None)

    @property
    def memory(self) -> Memory:
        """What the chains carry to the next step."""
        return dict(self._memory)

    def __call__(self, x: Array, step: int) -> Array:
        """Estimates of ∇f at (chains, dim) states, at this step of the run."""
        recipe, target = self._recipe, self._target
        if recipe.full:
            self.evaluations += target.n
            return target.gradients(x)
        if recipe.due(step) or (recipe.carries and not self._memory):
            self._take_snapshot(x, step)
        if recipe.reference == "mode" and not self._seen_mode:
            self._seen_mode = True
            self.evaluations += target.n
        batch = self._draw_batch(step)
        parts = target.parts(x, batch)
        self.evaluations += recipe.batch
        if recipe.reference == "none":
            return target.prior_gradient(x) + self._mean(parts, batch)
        if recipe.order == 2:
            return self._second_order(x, batch, parts)
        estimate = self._reduced_estimate(x, batch, parts)
        if recipe.reference == "table":
            self._update_table(batch, parts)
        return estimate

    def _reduced_estimate(self, x: Array, batch: Indices, parts: Array) -> Array:
        """g with mᵢ and ḡ from the memory, or from the mode."""
        reference_parts, anchor = self._reference_parts(batch, parts.ndim), self._anchor(len(x))
        return self._target.prior_gradient(x) + anchor + self._mean(parts - reference_parts, batch)

    def _second_order(self, x: Array, batch: Indices, parts: Array) -> Array:
        """g with Hᵢ(x − x̂) taken from each component, and H(x − x̂) added."""
        mode = self._at_mode
        displacement = x - np.broadcast_to(mode.point, x.shape)
        rest = parts - mode.expansion.parts(displacement, batch)
        return self._reduced_estimate(x, batch, rest) + contract("cd,de->ce", displacement, mode.expansion.hessian)

    def _reference_parts(self, batch: Indices, axes: int) -> Array:
        """The mᵢ of a batch, remembered or evaluated again; axes: how many an array of parts has."""
        recipe, target, chains = self._recipe, self._target, len(batch)
        place = batch if axes == 2 else batch[:, :, None]
        if recipe.reference == "mode":
            parts, point = self._at_mode.parts, self._at_mode.point
            if parts is not None:
                return np.take_along_axis(np.broadcast_to(parts, (chains, *parts.shape[1:])), place, axis=1)
            point = np.broadcast_to(point, (chains, target.dim))
        elif recipe.remembers:
            return np.take_along_axis(self._memory["table"], place, axis=1)
        else:
            point = self._memory["snapshot"]
        self.evaluations += recipe.batch
        return target.parts(point, batch)

    def _anchor(self, chains: int) -> Array:
        if self._recipe.reference == "mode":
            return np.broadcast_to(self._at_mode.anchor, (chains, self._target.dim))
        anchor: Array = self._memory["anchor"]
        return anchor

    def _take_snapshot(self, x: Array, step: int) -> None:
        """The memory at x: from all components, or from some drawn for this snapshot."""
        recipe, target, size = self._recipe, self._target, self._recipe.snapshot_rows
        memory: Memory = {} if recipe.reference == "table" else {"snapshot": x.copy()}
        if size:
            rows = self._stream.indices(step, size, target.n, recipe.replacement, Purpose.SNAPSHOT)
            memory["anchor"] = target.assemble(target.parts(x, rows), rows)
        elif recipe.remembers:
            memory["table"] = target.parts(x, None)
            memory["anchor"] = target.assemble(memory["table"], None)
        else:
            memory["anchor"] = target.gradients(x) - target.prior_gradient(x)
        self._memory = memory
        self.evaluations += size or target.n

    def _update_table(self, batch: Indices, parts: Array) -> None:
        """Replace the mᵢ of a batch by the parts just evaluated, and update ḡ."""
        target, table = self._target, self._memory["table"]
        for b in range(batch.shape[1]):  # one after another: a row that was drawn twice changes ḡ once
            row = batch[:, b : b + 1]
            place = row if parts.ndim == 2 else row[:, :, None]
            change = parts[:, b : b + 1] - np.take_along_axis(table, place, axis=1)
            self._memory["anchor"] = self._memory["anchor"] + target.assemble(change, row) / target.n
            np.put_along_axis(table, place, parts[:, b : b + 1], axis=1)

    def _draw_batch(self, step: int) -> Indices:
        """The batch of this step: (chains, batch)."""
        recipe = self._recipe
        if recipe.weighted:
            return self._target.drawn(self._stream, step, recipe.batch)
        return self._stream.indices(step, recipe.batch, self._target.n, recipe.replacement)

    def _mean(self, parts: Array, batch: Indices) -> Array:
        """(1/B) Σ_b parts_b/(nP), as gradients."""
        if self._recipe.weighted:
            weights = 1 / (self._target.n * self._target.drawn_with(batch))
            parts = parts * (weights if parts.ndim == 2 else weights[:, :, None])
        return self._target.assemble(parts, batch)
