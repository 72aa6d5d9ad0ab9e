"""Chains of `svrhmc.exact.SplitHMC` in plain NumPy: a leapfrog of all chains is one pass over the rows, which may lie
anywhere. For rows that are not in memory, and for so few that compiling code would take longer than running it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import real_array
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.base import EVERY, Chains, Extension, Keep, Report, State, quiet, require_defined
from svrhmc.engines.pace import HIGH
from svrhmc.gradients import Memory

_AHEAD = 1 << 18  # numbers in the noise that is drawn ahead


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
        self._kicks = list(zip(*sampler.kicks(), strict=True))

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
        for step, v, jitter, threshold in self._noise(state.step, state.step + count):
            new, new_f, new_gradient, fall = self._proposed(step, v, jitter, z, f, gradient)
            better = threshold < fall
            z, gradient = (np.where(better[:, None], a, b) for a, b in ((new, z), (new_gradient, gradient)))
            f, accepted, spent = np.where(better, new_f, f), accepted + better, spent + leapfrogs[step - state.step] * n
            if place < len(kept) and kept[place] == step + 1:
                draws[:, place], gradients[:, place], costs[place] = z, gradient, spent
                place += 1
            report(chains)
        self.state = State(z, state.v, {"f": f, "gradient": gradient}, state.step + count, spent)
        return Extension(draws, costs, round((spent - first) * chains), gradients, accepted)

    def _noise(self, first: int, end: int) -> Iterator[tuple[int, Array, Array, Array]]:
        """Of each step from `first` to before `end`: its number, and v, U and the log of a uniform number by chain."""
        ahead = max(1, _AHEAD // self.state.x.size)
        while first < end:
            steps = np.arange(first, min(end, first + ahead, (first // HIGH + 1) * HIGH))
            v = self.stream.normals(steps, self.space.dim)
            uniform = self.stream.uniforms(steps, 2, Purpose.ACCEPT)
            jitter, threshold = 2 * uniform[..., 1] - 1, np.log(uniform[..., 0])
            for place, step in enumerate(steps.tolist()):
                yield step, v[:, place], jitter[:, place], threshold[:, place]
            first = step + 1

    def _proposed(
        self, step: int, v: Array, jitter: Array, z: Array, f: Array, gradient: Array
    ) -> tuple[Array, Array, Array, Array]:
        """The end of each trajectory with f and ∇f there, and what H fell by."""
        sampler = self.sampler
        pieces = sampler.pieces_of(step + 1)
        angle = (sampler.step_size * (1 + sampler.jitter * jitter) / pieces)[:, None]
        before, q, force, energy = f + 0.5 * (v * v).sum(axis=1), z, gradient, f
        for turn, first, last in pieces * self._kicks:
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
        with np.errstate(over="ignore", invalid="ignore"):  # of a trajectory that is thrown far: ∞ is refused
            f, gradient = self.space.energies(z)
        return f, gradient
