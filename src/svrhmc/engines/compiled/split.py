"""Split HMC on many rows: its definition in NumPy (`svrhmc.exact.split`), with f and ∇f from compiled passes.

A thread moves its chains in step, so that a pass over the rows serves them all; where chains are fewer than threads,
these share the rows of a pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import Purpose, Steps, Stream
from svrhmc.engines.base import Keep, Kernel, Reasons, Setup, State
from svrhmc.engines.compiled.engine import (
    Call,
    Compiled,
    CompiledKernel,
    MetropolisCall,
    lacks_map,
    runs,
    slots_of,
)
from svrhmc.gradients import Memory
from svrhmc.kernels import normals

_SHARED_PASS = 1 << 21  # entries of rows from which a pass is worth the hand-over to other threads
_MANY = 1 << 10  # normals of a step that are worth code of their own


def _reasons(engine: Compiled) -> Reasons:
    return {"rows": lambda sampler, form: lacks_map(form) or engine.lacks_compiled(form)}


@runs("split", _reasons)
class SplitKernel(CompiledKernel):
    """f and ∇f at z are the memory of a chain; gradients are with respect to z."""

    def __init__(self, setup: Setup) -> None:
        self.setup, rows = setup, setup.form.rows
        self.team = -(-len(setup.chains) // setup.threads)
        shared = setup.threads // -(-len(setup.chains) // self.team) if rows.n * rows.stored >= _SHARED_PASS else 1
        density = Passes(setup.target, max(1, shared))
        self.definition: Kernel = setup.sampler.kernel(replace(setup, target=density, randomness=CompiledStream))

    def call(self, state: State, end: int, keep: Keep) -> Call:
        """Trajectories of some chains in step."""
        return SplitCall(self, state, end, keep)

    def blank(self, state: State) -> Call:
        self.definition.warm(state)
        return super().blank(state)

    def empty_memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.setup.target.dim))}


class SplitCall(MetropolisCall):
    """The definition's steps, a piece of them at a time."""

    def __init__(self, kernel: SplitKernel, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end, keep)
        self.kernel, self.team, self.v = kernel, kernel.team, state.v
        self.gradients: Array = np.empty_like(self.draws)
        self._known = dict(state.memory)
        self.f = state.memory["f"].copy() if state.memory else np.empty(len(self.x))
        self.gradient = state.memory["gradient"].copy() if state.memory else np.empty_like(self.x)
        setup, steps = kernel.setup, np.arange(state.step, end + 1)
        evaluated = np.diff(setup.sampler.spent(state, steps, setup.target.n)).astype(np.int64)
        self.counts = np.tile(evaluated, (len(self.x), 1))

    def room(self) -> None:
        """What a pass needs it makes itself."""
        return

    def advance(self, room: Any, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """All of a team."""
        some, kernel = slice(*chains), self.kernel
        if steps[0] == steps[1]:
            return
        memory = {"f": self.f[some], "gradient": self.gradient[some]} if self._known or steps[0] > self.begin else {}
        state = State(self.x[some], self.v[some], memory, steps[0])
        for slot, place in enumerate(
            kernel.definition.walk(kernel.setup.chains[some], state, steps[1]), steps[0] - self.begin
        ):
            self.draws[some, slot], self.gradients[some, slot] = place.x, place.gradient
            self.accepted[some] += place.accepted
        self.x[some] = place.x
        self.f[some], self.gradient[some] = (place.memory()[name] for name in ("f", "gradient"))

    def memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": self.f, "gradient": self.gradient}


class Passes:
    """A target in whitened variables as a `Density` whose passes over the rows are on so many threads."""

    def __init__(self, target: Any, threads: int) -> None:
        self.target, self.threads, self.n, self.dim, self.out = target, threads, target.n, target.dim, target.out

    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f."""
        both: tuple[Array, Array] = self.target.energies(z, self.threads)
        return both

    def forces(self, z: Array) -> Array:
        """∇f alone."""
        gradient: Array = self.target.energies(z, self.threads, valued=False)[1]
        return gradient


class CompiledStream(Stream):
    """Normals of many coordinates in compiled code: the same numbers to 4e-16."""

    def normals(
        self, step: Steps, count: int, purpose: Purpose = Purpose.NOISE, fine: Purpose = Purpose.NOISE_FINE
    ) -> npt.NDArray[np.float64]:
        if count < _MANY or np.ndim(step) != 1:
            return super().normals(step, count, purpose, fine)
        steps, half = np.asarray(step, np.int64), (count + 1) // 2
        out = np.empty((len(self.chains), len(steps), count))
        room = np.zeros(half, np.uint32), np.empty((4, half), np.uint32), np.empty((3, half))
        slots = slots_of(purpose, half), slots_of(fine, half)
        normals.normals_of_steps(*self.keys(int(steps[0]) >> 32), steps.astype(np.uint32), *slots, *room, out)
        return out
