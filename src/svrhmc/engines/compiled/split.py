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
    lacks_map,
    make_frame,
    make_heavy,
    padded_zeros,
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
        """Prior, map and settings as arrays."""
        sampler, form, whitening = self.setup.sampler, self.setup.form, self.setup.target.whitening
        heavy, zero = make_heavy(form, 0.0, 0), np.zeros_like(form.prior_mean)
        constant = 0.0 if heavy is None else float(form.heavy.value(zero))
        centre, mean, precision = map(fixed, (whitening.centre, form.prior_mean, form.prior_precision))
        prior = split.Prior(centre, mean, precision, heavy, constant)
        path = split.Path(sampler.step_size, sampler.jitter, sampler.halvings, *map(fixed, sampler.kicks()))
        return prior, make_frame(whitening), path

    def call(self, state: State, end: int, keep: Keep) -> SplitCall:
        """A call that moves chains in step."""
        return SplitCall(self, state, end, keep)

    def call_without_steps(self, state: State) -> SplitCall:
        """Compile the pass and the trajectories."""
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
    """Compiled trajectories, or steps of the definition where H is not a number or compiling is not worth it."""

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

    def workspace(self) -> dict[int, Trajectories]:
        """Trajectories by the number of chains that move in step."""
        return {}

    def advance(self, workspace: dict[int, Trajectories], chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """Move all chains of a team."""
        if steps[0] == steps[1]:
            return
        if not self.kernel.compiled:
            return self._by_definition(chains, *steps)
        definition, chosen, count = self.kernel.definition, slice(*chains), chains[1] - chains[0]
        stream = definition.stream(self.kernel.setup.chains[chosen])
        if not self._evaluated and steps[0] == self.begin:
            _, self.f[chosen], self.gradient[chosen] = definition.evaluate_point(stream, steps[0], self.x[chosen])
        if count not in workspace:
            workspace[count] = Trajectories(self.kernel, count)
        for first, v, uniform in definition.noise_ahead(stream, self.x[chosen].size, *steps):
            done, number = 0, v.shape[1]
            while done < number:
                done += workspace[count].follow(self, chains, first + done, v, uniform, done)
                if done < number:
                    self._by_definition(chains, first + done, first + done + 1)
                    done += 1

    def _by_definition(self, chains: tuple[int, int], step: int, end: int) -> None:
        chosen, kernel, evaluated = slice(*chains), self.kernel, self._evaluated or step > self.begin
        memory = {"f": self.f[chosen], "gradient": self.gradient[chosen]} if evaluated else {}
        state = State(self.x[chosen], self.v[chosen], memory, step)
        points = kernel.definition.walk(kernel.setup.chains[chosen], state, end)
        for slot, place in enumerate(points, step - self.begin):
            self.draws[chosen, slot], self.gradients[chosen, slot] = place.x, place.gradient
            self.accepted[chosen] += place.accepted
        self.x[chosen] = place.x
        self.f[chosen], self.gradient[chosen] = (place.memory()[name] for name in ("f", "gradient"))

    def memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": self.f, "gradient": self.gradient}


class Trajectories:
    """The buffers of chains that move in step, and the compiled loop that moves them."""

    def __init__(self, kernel: SplitKernel, count: int) -> None:
        rows, dim = pass_of(kernel.setup.target), kernel.setup.target.dim
        assert rows is not None  # of rows that are compiled
        flat, widths, self._buffers = rows.arrays(count), (rows.width, rows.blocks * rows.width, rows.blocks), []
        for low in range(0, count, rows.together):
            size = min(rows.together, count - low)
            parts = (array[low * width : (low + size) * width] for array, width in zip(flat, widths, strict=True))
            self._buffers.append(PassBuffers(rows, size, *parts))
        passes = [buffers.shares[0] for buffers in self._buffers]
        data, (states, sums, values) = np.array([share.data for share in passes]), flat
        self._rows = split.Rows(
            passes[0].address, data, states, sums, values, rows.together, rows.blocks, rows.layout.place,
            rows.width, not rows.dense,
        )  # fmt: skip
        shapes = 5 * [(count, dim)] + 3 * [(count,)] + [(dim,)]
        self._workspace = split.Room._make(map(padded_zeros, shapes))
        self._arrays = kernel.arrays

    def follow(
        self, call: SplitCall, chains: tuple[int, int], step: int, noise: Array, uniform: Array, begin: int = 0
    ) -> int:
        """Make draws from a step on, with the noise from `begin` on; return how many were made before a trajectory
        came to where H is not a number.
        """
        chosen = slice(*chains)
        states = call.x[chosen], call.f[chosen], call.gradient[chosen]
        draws = call.draws[chosen], call.gradients[chosen], call.accepted[chosen]
        span, slot = (begin, noise.shape[1]), step - call.begin
        count: int = split.follow(
            self._rows, *self._arrays, self._workspace, *states, noise, uniform, *draws, step, span, slot
        )
        return count


class Passes:
    """A target in whitened variables as a `Density` whose passes over the rows run on several threads."""

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
