"""A recipe at work, in NumPy: the definition of what every engine has to give."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array, Indices, contract
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.gradients.recipe import Memory, Recipe
from svrhmc.targets.base import Expansion, FiniteSum


@dataclass(frozen=True, eq=False)
class AtMode:
    """What a recipe with the mode as its reference needs to know there; found once for all chains."""

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
        if self._memory and recipe.remembers and "table" not in self._memory:  # made again, as it was made
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
            self._refresh(x, step)
        if recipe.reference == "mode" and not self._seen_mode:
            self._seen_mode = True
            self.evaluations += target.n
        batch = self._rows(step)
        now = target.parts(x, batch)
        self.evaluations += recipe.batch
        if recipe.reference == "none":
            return target.prior_gradient(x) + self._mean(now, batch)
        if recipe.order == 2:
            return self._second_order(x, batch, now)
        estimate = self._reduced(x, batch, now)
        if recipe.reference == "table":
            self._renew(batch, now)
        return estimate

    def _reduced(self, x: Array, batch: Indices, now: Array) -> Array:
        """g with mᵢ and ḡ from the memory, or from the mode."""
        then, anchor = self._then(batch, now), self._anchor(len(x))
        return self._target.prior_gradient(x) + anchor + self._mean(now - then, batch)

    def _second_order(self, x: Array, batch: Indices, now: Array) -> Array:
        """g with Hᵢ(x − x̂) taken from each component, and H(x − x̂) added."""
        mode = self._at_mode
        away = x - np.broadcast_to(mode.point, x.shape)
        rest = now - mode.expansion.parts(away, batch)
        return self._reduced(x, batch, rest) + contract("cd,de->ce", away, mode.expansion.hessian)

    def _then(self, batch: Indices, now: Array) -> Array:
        """The mᵢ of a batch, remembered or evaluated again."""
        recipe, target, chains = self._recipe, self._target, len(batch)
        place = batch if now.ndim == 2 else batch[:, :, None]
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

    def _refresh(self, x: Array, step: int) -> None:
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

    def _renew(self, batch: Indices, now: Array) -> None:
        """The mᵢ of a batch become what was just evaluated, and ḡ follows."""
        target, table = self._target, self._memory["table"]
        for b in range(batch.shape[1]):  # one after another: a row drawn twice is renewed once
            one = batch[:, b : b + 1]
            place = one if now.ndim == 2 else one[:, :, None]
            change = now[:, b : b + 1] - np.take_along_axis(table, place, axis=1)
            self._memory["anchor"] = self._memory["anchor"] + target.assemble(change, one) / target.n
            np.put_along_axis(table, place, now[:, b : b + 1], axis=1)

    def _rows(self, step: int) -> Indices:
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
