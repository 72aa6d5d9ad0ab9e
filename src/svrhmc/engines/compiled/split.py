"""Split HMC on many rows: its definition in NumPy (`svrhmc.exact.split`), with f and ∇f from compiled passes, or its
trajectories in compiled code (`svrhmc.kernels.split`).

A thread moves its chains in step, so that a pass over the rows serves them all. Where chains are fewer than threads,
these share the rows of a pass. The definition runs then, where the prior has terms from outside, and where passes are
so long that what NumPy does between them is nothing beside them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.engines.base import NONE, Keep, Reasons, Setup, State
from svrhmc.engines.compiled.engine import (
    Compiled,
    CompiledKernel,
    MetropolisCall,
    apart,
    lacks_map,
    make_frame,
    make_heavy,
    runs,
)
from svrhmc.gradients import Memory
from svrhmc.kernels import split
from svrhmc.kernels.frames import Frame
from svrhmc.kernels.rows import fixed
from svrhmc.kernels.stream import CompiledStream
from svrhmc.rows.passes import PassBuffers
from svrhmc.whitening.targets import WhitenedRows, pass_of

_LONG_PASS = 1 << 21  # entries of rows: worth the hand-over to other threads, and long beside a step in NumPy
_MANY = 1 << 10  # coordinates, of which trajectories in NumPy take long


def _reasons(engine: Compiled) -> Reasons:
    return {"rows": lambda sampler, form: lacks_map(form) or engine.lacks_compiled(form)}


@runs("split", _reasons)
class SplitKernel(CompiledKernel):
    """f and ∇f at z are the memory of a chain; gradients are with respect to z."""

    def __init__(self, setup: Setup) -> None:
        self.setup, rows = setup, setup.form.rows
        self.team = -(-len(setup.chains) // setup.threads)
        long = rows.n * rows.entries_read_once >= _LONG_PASS
        shared = setup.threads // -(-len(setup.chains) // self.team) if long else 1
        density = Passes(setup.target, max(1, shared))
        self.definition: Any = setup.sampler.kernel(replace(setup, target=density, randomness=CompiledStream))
        worth = shared <= 1 and (not long or rows.dim >= _MANY)
        self.compiled = worth and pass_of(setup.target) is not None and setup.target.target.terms is None

    @cached_property
    def arrays(self) -> tuple[split.Prior, Frame, split.Path]:
        """Prior, map and settings in arrays."""
        sampler, form, whitening = self.setup.sampler, self.setup.form, self.setup.target.whitening
        heavy, at = make_heavy(form, 0.0, 0), np.zeros_like(form.prior_mean)
        constant = 0.0 if heavy is None else float(form.heavy.value(at))
        centre, mean, precision = map(fixed, (whitening.centre, form.prior_mean, form.prior_precision))
        prior = split.Prior(centre, mean, precision, heavy, constant)
        path = split.Path(sampler.step_size, sampler.jitter, sampler.halvings, *map(fixed, sampler.kicks()))
        return prior, make_frame(whitening), path

    def call(self, state: State, end: int, keep: Keep) -> SplitCall:
        """Trajectories of some chains in step."""
        return SplitCall(self, state, end, keep)

    def blank(self, state: State) -> SplitCall:
        """Compile the pass, and trajectories."""
        self.definition.warm(state)
        call = SplitCall(self, state, state.step, NONE)
        if self.compiled:
            noise, uniform = (np.empty((1, 0, size)) for size in (self.setup.target.dim, 2))
            Trajectories(self, 1).follow(call, (0, 1), state.step, noise, uniform)
        return call

    def empty_memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.setup.target.dim))}


class SplitCall(MetropolisCall["dict[int, Trajectories]"]):
    """The definition's steps, a piece of them at a time."""

    def __init__(self, kernel: SplitKernel, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end, keep)
        self.kernel, self.team, self.v = kernel, kernel.team, state.v
        self.gradients: Array = np.empty_like(self.draws)
        self._evaluated = bool(state.memory)  # f and ∇f at the start
        self.f = state.memory["f"].copy() if state.memory else np.empty(len(self.x))
        self.gradient = state.memory["gradient"].copy() if state.memory else np.empty_like(self.x)
        setup, steps = kernel.setup, np.arange(state.step, end + 1)
        evaluated = np.diff(setup.sampler.spent(state, steps, setup.target.n)).astype(np.int64)
        self.counts = np.tile(evaluated, (len(self.x), 1))

    def room(self) -> dict[int, Trajectories]:
        """By the number of chains that move in step."""
        return {}

    def advance(self, room: dict[int, Trajectories], chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """All of a team."""
        if steps[0] == steps[1]:
            return
        if not self.kernel.compiled:
            return self._by_definition(chains, *steps)
        definition, some, count = self.kernel.definition, slice(*chains), chains[1] - chains[0]
        stream = definition.stream(self.kernel.setup.chains[some])
        if not self._evaluated and steps[0] == self.begin:
            _, self.f[some], self.gradient[some] = definition.evaluate_point(stream, steps[0], self.x[some])
        if count not in room:
            room[count] = Trajectories(self.kernel, count)
        for first, v, uniform in definition.noise_ahead(stream, self.x[some].size, *steps):
            drawn, number = 0, v.shape[1]
            while drawn < number:
                drawn += room[count].follow(self, chains, first + drawn, v, uniform, drawn)
                if drawn < number:
                    self._by_definition(chains, first + drawn, first + drawn + 1)
                    drawn += 1

    def _by_definition(self, chains: tuple[int, int], step: int, end: int) -> None:
        some, kernel = slice(*chains), self.kernel
        memory = {"f": self.f[some], "gradient": self.gradient[some]} if self._evaluated or step > self.begin else {}
        state = State(self.x[some], self.v[some], memory, step)
        for slot, place in enumerate(kernel.definition.walk(kernel.setup.chains[some], state, end), step - self.begin):
            self.draws[some, slot], self.gradients[some, slot] = place.x, place.gradient
            self.accepted[some] += place.accepted
        self.x[some] = place.x
        self.f[some], self.gradient[some] = (place.memory()[name] for name in ("f", "gradient"))

    def memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": self.f, "gradient": self.gradient}


class Trajectories:
    """Some chains that move in step, in compiled code."""

    def __init__(self, kernel: SplitKernel, count: int) -> None:
        rows, dim = pass_of(kernel.setup.target), kernel.setup.target.dim
        assert rows is not None  # of rows that are compiled
        flat, widths, self._rooms = rows.arrays(count), (rows.width, rows.blocks * rows.width, rows.blocks), []
        for low in range(0, count, rows.together):
            size = min(rows.together, count - low)
            own = (part[low * width : (low + size) * width] for part, width in zip(flat, widths, strict=True))
            self._rooms.append(PassBuffers(rows, size, *own))
        passes = [room.shares[0] for room in self._rooms]
        data, (states, sums, values) = np.array([share.data for share in passes]), flat
        self._rows = split.Rows(
            passes[0].address, data, states, sums, values, rows.together, rows.blocks, rows.layout.place,
            rows.width, not rows.dense,
        )  # fmt: skip
        shapes = 5 * [(count, dim)] + 3 * [(count,)] + [(dim,)]
        self._room = split.Room._make(map(apart, shapes))
        self._arrays = kernel.arrays

    def follow(
        self, call: SplitCall, chains: tuple[int, int], step: int, noise: Array, uniform: Array, begin: int = 0
    ) -> int:
        """Make draws from a step on, by noise from one of its draws on; how many were made before one comes to where H
        is not a number.
        """
        some = slice(*chains)
        states = call.x[some], call.f[some], call.gradient[some], noise, uniform, call.draws[some], call.gradients[some]
        span, slot = (begin, noise.shape[1]), step - call.begin
        drawn: int = split.follow(self._rows, *self._arrays, self._room, *states, call.accepted[some], step, span, slot)
        return drawn


class Passes:
    """A target in whitened variables as a `Density` whose passes over the rows are on so many threads."""

    def __init__(self, target: WhitenedRows, threads: int) -> None:
        self.target, self.threads, self.n, self.dim, self.out = target, threads, target.n, target.dim, target.out

    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f."""
        both: tuple[Array, Array] = self.target.energies(z, self.threads)
        return both

    def forces(self, z: Array) -> Array:
        """∇f alone."""
        gradient: Array = self.target.energies(z, self.threads, valued=False)[1]
        return gradient
