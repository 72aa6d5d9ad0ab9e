"""The reference engine: every sampler that has a definition in NumPy, by that definition; and that of the grid.

z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DivergenceError, requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import Scheme, move
from svrhmc.engines.base import (
    EVERY,
    Chains,
    Engine,
    Extension,
    Keep,
    Kernel,
    Report,
    Setup,
    State,
    StepResult,
    concatenate_extensions,
    form_of,
    no_report,
)
from svrhmc.gradients import AtMode, Estimator, Memory, Recipe
from svrhmc.rows.forms import rows_of

# Chains are run in blocks whose arrays of (chains, n) or (chains, batch, dim) stay this small.
_BLOCK_ELEMENTS = 1 << 22
_STRETCH, _MOST_PICKS = 1024, 1 << 18  # steps that rows are fetched for, and picks of all chains, at most


class Reference(Engine):
    """Whatever a target's own methods can do; nothing is compiled."""

    name = "reference"

    def supports(self, sampler: Any, density: object) -> str | None:
        """Samplers with a definition in NumPy; of the grid, on rows in partitions, those that need no table of them."""
        if not sampler.defined:
            return f"{type(sampler).__name__} is not defined in NumPy"
        rows = rows_of(form_of(density))
        if sampler.kind != Grid.kind or rows is None or rows.rows.in_memory:
            return None
        recipe = sampler.recipe
        if rows.whitening is None:
            return "rows in partitions are sampled in whitened variables: svrhmc.whitening.whitened(target)"
        if recipe.reference == "table" or recipe.snapshot_rows:
            return "no table of all rows is kept where rows are in partitions"
        if not (recipe.full or recipe.weighted):
            return "rows in partitions are drawn by importance: give importance=True"
        return None

    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains of NumPy arrays."""
        return ReferenceChains(setup, state)


class ReferenceChains(Chains):
    """Chains in blocks, each of which walks from the start to the end of a call."""

    engine = "reference"

    def __init__(self, setup: Setup, state: State) -> None:
        self.setup, self.state = setup, state
        self.kernel: Kernel = setup.sampler.kernel(setup)

    def compile(self) -> None:
        """What a first evaluation of the target needs."""
        self.kernel.warm(self.state)

    def empty_memory(self) -> Memory:
        return self.kernel.empty_memory(self.state)

    def extend(self, count: int, keep: Keep = EVERY, report: Report = no_report) -> Extension:
        """Stretch by stretch; the state moves when all are made."""
        now, end = self.state, self.state.step + count
        parts: list[Extension] = []
        while not parts or now.step < end:
            now, part = self._stretch(now, self.kernel.until(now.step, end), keep, report)
            parts.append(part)
        self.state = now
        return concatenate_extensions(parts)

    def _stretch(self, state: State, end: int, keep: Keep, report: Report) -> tuple[State, Extension]:
        kernel, kept_steps, numbers = self.kernel, keep.within(state.step, end), self.setup.chains
        draws = np.empty((len(state.x), len(kept_steps), state.x.shape[1]))
        gradients = np.empty_like(draws) if kernel.gradients else None
        accepted = np.zeros(len(state.x), np.int64) if kernel.proposes else None
        x, v, memories = state.x.copy(), state.v.copy(), []
        for block in kernel.blocks(len(x)):
            memory = {name: array[block] for name, array in state.memory.items()}
            place = StepResult(x[block], v[block], memory.copy)
            start = State(*place[:2], memory, state.step, state.spent)
            slot = 0
            for step, place in enumerate(kernel.walk(numbers[block], start, end), state.step + 1):
                if accepted is not None:
                    accepted[block] += place.accepted
                if slot < len(kept_steps) and kept_steps[slot] == step:
                    draws[block, slot] = place.x
                    if gradients is not None:
                        gradients[block, slot] = place.gradient
                    slot += 1
                report(len(place.x))
            x[block], v[block] = place.x, place.v
            memories.append(place.memory())
        memory = {name: np.concatenate([part[name] for part in memories]) for name in memories[0]}
        spent = self.setup.sampler.spent(state, np.r_[state.step, kept_steps, end], self.setup.target.n)
        evaluations = round((spent[-1] - spent[0]) * len(x))
        extension = Extension(draws, spent[1:-1], evaluations, gradients, accepted)
        return State(x, v, memory, end, float(spent[-1])), extension


@dataclass(frozen=True)
class Grid:
    """A sampler of the grid on a target: a scheme, which says how the state moves, and a recipe for the gradient."""

    kind: ClassVar[str] = "grid"
    defined: ClassVar[bool] = True
    in_numpy: ClassVar[str] = "never"
    scheme: Scheme
    recipe: Recipe
    step_size: float

    def kernel(self, setup: Setup) -> Kernel:
        """The kernel that defines a sampler of the grid."""
        return GridKernel(setup)

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """The evaluations of components that the recipe says its steps take."""
        return np.asarray(self.recipe.evaluations(steps), np.float64)


class GridKernel(Kernel):
    """A scheme with an `Estimator`. Rows that are not in memory are fetched for a stretch of steps at a time, as which
    ones are drawn does not depend on the state.
    """

    def __init__(self, setup: Setup) -> None:
        recipe: Recipe = setup.sampler.recipe
        self.setup, target = setup, setup.target
        self._fetches_rows = target.at_hand < target.n and not recipe.full  # full gradients are passes in any case
        self._stretch: int = max(1, min(_STRETCH, _MOST_PICKS // (max(1, recipe.batch) * len(setup.chains))))
        self._first: int | None = None  # step of the rows that were fetched
        self._target, self._at_mode = target, AtMode(recipe, target)

    def until(self, step: int, end: int) -> int:
        """The end of a stretch, where rows are elsewhere."""
        if not self._fetches_rows:
            return end
        first = step // self._stretch * self._stretch
        if self._first != first:
            self._first, self._target = None, self.setup.target  # the rows of before go before others come
            self._fetch(first, first + self._stretch)
            self._first = first
        return min(end, first + self._stretch)

    def _fetch(self, first: int, end: int) -> None:
        """A target that holds the rows of some steps."""
        setup, recipe, space = self.setup, self.setup.sampler.recipe, self.setup.target
        stream = Stream(setup.seed, setup.chains)
        words = (stream.words(step, Purpose.BATCH, recipe.batch) for step in range(first, end))
        window, at = space.gather(np.stack([space.places(*pair) for pair in words]))
        self._target = window.for_steps(first, setup.chains, at)
        self._at_mode = AtMode(recipe, self._target)

    def blocks(self, chains: int) -> list[slice]:
        """By what a chain's arrays hold: something of every component only where the gradient goes through all."""
        target, recipe = self._target, self.setup.sampler.recipe
        components = target.at_hand if recipe.full or recipe.carries else 0
        per_chain = components + target.dim + target.row_size * recipe.rows_at_once
        size = max(1, _BLOCK_ELEMENTS // per_chain)
        return [slice(begin, min(begin + size, chains)) for begin in range(0, chains, size)]

    def empty_memory(self, state: State) -> Memory:
        """By the gradient, and by the parts of a single chain where they are kept."""
        recipe, x = self.setup.sampler.recipe, state.x[:1]
        memory = {"snapshot": x[:0]} if recipe.carries and recipe.reference != "table" else {}
        if recipe.keeps_table(len(self.setup.chains)):
            memory["table"] = self._target.parts(x, None)[:0]
        return memory | ({"anchor": x[:0]} if recipe.carries else {})

    def walk(self, chains: Indices, state: State, end: int) -> Iterator[StepResult]:
        scheme, recipe, stream = self.setup.sampler.scheme, self.setup.sampler.recipe, Stream(self.setup.seed, chains)
        memory = {name: array.copy() for name, array in state.memory.items()}
        estimate = Estimator(recipe, self._target, stream, memory, self._at_mode)
        x, v, (count, dim) = state.x, state.v, state.x.shape

        def carried() -> Memory:
            keeps = recipe.keeps_table(len(self.setup.chains))
            return {name: array for name, array in estimate.memory.items() if keeps or name != "table"}

        for step in range(state.step, end):
            normals = iter(stream.normals(step, scheme.normals * dim).reshape(count, -1, dim).transpose(1, 0, 2))
            with np.errstate(over="ignore", invalid="ignore"):  # a diverging chain is an error below, not a warning
                x, v = move(scheme.before, scheme.before_noise, x, v, normals)
                g = estimate(x, step)
                _require_gradient(chains, step, x, g)
                x, v = move(scheme.after, scheme.after_noise, x, v, normals)
                x, v = x - scheme.kick.x * g, v - scheme.kick.v * g
            self._require_finite(chains, step, x, v)
            yield StepResult(x, v, carried)

    def estimates(self, states: Array, step: int) -> Array:
        """Of ∇f at many states, each by the chain of its number."""
        if self._fetches_rows:
            self._fetch(step, step + 1)
        out, recipe, numbers = np.empty_like(states), self.setup.sampler.recipe, self.setup.chains
        for block in self.blocks(len(states)):
            stream = Stream(self.setup.seed, numbers[block])
            out[block] = Estimator(recipe, self._target, stream, at_mode=self._at_mode)(states[block], step)
            _require_gradient(numbers[block], step, states[block], out[block])
        return out

    def _require_finite(self, chains: Indices, step: int, x: Array, v: Array) -> None:
        bad = ~(np.isfinite(x).all(axis=1) & np.isfinite(v).all(axis=1))
        if bad.any():
            size = self.setup.sampler.step_size
            raise DivergenceError(_number(chains, bad), step + 1, size, size / 4)


def _require_gradient(chains: Indices, step: int, x: Array, g: Array) -> None:
    """A gradient that is not finite at an ordinary state is the target's fault, not the step size's."""
    bad = ~np.isfinite(g).all(axis=1) & (np.abs(x).max(axis=1) < 1e30)
    if bad.any():
        location = f"chain {_number(chains, bad)}, step {step + 1}, at a finite state"
        raise requirement("the gradient", "finite", "nan or inf", location)


def _number(chains: Indices, bad: npt.NDArray[np.bool_] | np.bool_) -> int:
    return int(chains[int(np.argmax(bad))])
