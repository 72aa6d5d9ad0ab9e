"""Chains of `svrhmc.exact.SplitHMC` on rows that are not in memory: a leapfrog of all chains is one pass over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import real_array
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.base import EVERY, Chains, Extension, Keep, Report, State, quiet, require_defined
from svrhmc.gradients import Memory


class SplitByPasses(Chains):
    """The same draws as those of compiled chains, to rounding; f and ∇f at z are the memory of a chain."""

    engine = "reference"

    def __init__(self, space: Any, sampler: Any, seed: int, chains: Indices, start: Array | None = None) -> None:
        self.space, self.sampler, self.stream = space, sampler, Stream(seed, chains)
        if start is None:
            z = self.stream.normals(0, space.dim, Purpose.START, Purpose.START_FINE)
        else:
            z = np.array(real_array("start", start, (len(chains), space.dim)), np.float64)
        self.state = State(z, np.zeros_like(z))

    def empty_memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.space.dim))}

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """All chains in step."""
        state, (chains, dim) = self.state, self.state.x.shape
        z, n = state.x, self.space.n
        leapfrogs = self.sampler.leapfrogs_of(state.step + 1 + np.arange(count))
        kept = keep.within(state.step, state.step + count)
        draws, gradients = np.empty((chains, len(kept), dim)), np.empty((chains, len(kept), dim))
        spent, accepted, first = state.spent, np.zeros(chains, np.int64), state.spent
        if state.memory:
            f, gradient = state.memory["f"], state.memory["gradient"]
        else:
            f, gradient = self._at(z)
            spent += n
        costs, place = np.empty(len(kept)), 0
        for step in range(state.step, state.step + count):
            new, new_f, new_gradient, fall = self._proposed(step, z, f, gradient)
            better = np.log(self.stream.uniforms(step, 1, Purpose.ACCEPT)[:, 0]) < fall
            z, gradient = (np.where(better[:, None], a, b) for a, b in ((new, z), (new_gradient, gradient)))
            f, accepted, spent = np.where(better, new_f, f), accepted + better, spent + leapfrogs[step - state.step] * n
            if place < len(kept) and kept[place] == step + 1:
                draws[:, place], gradients[:, place], costs[place] = z, gradient, spent
                place += 1
            report(chains)
        self.state = State(z, state.v, {"f": f, "gradient": gradient}, state.step + count, spent)
        return Extension(draws, costs, round((spent - first) * chains), gradients, accepted)

    def _proposed(self, step: int, z: Array, f: Array, gradient: Array) -> tuple[Array, Array, Array, Array]:
        """The end of each trajectory with f and ∇f there, and what H fell by."""
        sampler, v = self.sampler, self.stream.normals(step, self.space.dim)
        jitter = 2 * self.stream.uniforms(step, 2, Purpose.ACCEPT)[:, 1] - 1
        pieces = int(sampler.leapfrogs_of(np.array(step + 1))) // sampler.leapfrogs
        angle = (sampler.step_size * (1 + sampler.jitter * jitter) / pieces)[:, None]
        before, q, force, energy = f + 0.5 * (v * v).sum(axis=1), z, gradient, f
        for turn, first, last in pieces * list(zip(*sampler.kicks(), strict=True)):
            v = v - first * angle * (force - q)
            rise = energy + 0.5 * (v * v).sum(axis=1) - before
            cosine, sine = np.cos(turn * angle), np.sin(turn * angle)
            q, v = cosine * q + sine * v, cosine * v - sine * q
            energy, force = self._at(q)
            require_defined(self.stream.chains, step + 1, q, energy, rise)
            v = v - last * angle * (force - q)
        return q, energy, force, before - (energy + 0.5 * (v * v).sum(axis=1))

    def _at(self, z: Array) -> tuple[Array, Array]:
        """f and ∇f, by one pass."""
        f, gradient = self.space.energies(z)
        return f, gradient
