"""Split HMC on many rows: its definition in NumPy (`svrhmc.exact.split`), with f and ∇f from compiled passes.

Chains move in blocks, one for each thread; where chains are fewer than threads, these share the rows of a pass.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from threading import Event, Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import Purpose, Steps, Stream
from svrhmc.engines.base import Report, Setup, State
from svrhmc.engines.compiled.arrays import slots_of
from svrhmc.engines.compiled.chains import share
from svrhmc.engines.reference import ReferenceChains, Walk
from svrhmc.kernels import normals

_SHARED_PASS = 1 << 21  # entries of rows from which a pass is worth the hand-over to other threads
_MANY = 1 << 10  # normals of a step that are worth code of their own


class SplitChains(ReferenceChains):
    """Blocks of chains on threads, each of which moves its chains in step."""

    engine = "numba"

    def __init__(self, setup: Setup, state: State) -> None:
        form, blocks = setup.form, -(-len(setup.chains) // -(-len(setup.chains) // setup.threads))
        large = form.rows.n * form.rows.stored >= _SHARED_PASS
        density = Passes(setup.target, max(1, setup.threads // blocks) if large else 1)
        super().__init__(replace(setup, target=density, randomness=CompiledStream), state)

    def blocks(self, chains: int) -> list[slice]:
        """As even as whole chains have it, no more than threads."""
        size = -(-chains // self.setup.threads)
        return [slice(low, min(low + size, chains)) for low in range(0, chains, size)]

    def walk_all(self, walk: Walk, count_of: int, report: Report) -> None:
        """A thread for each block."""
        stopping, numbers, lock = Event(), count(), Lock()

        def work(tell: Report) -> None:
            with lock:
                number = next(numbers)
            walk(number, tell, stopping.is_set)

        share(work, count_of, report, stopping)


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
        """As `Stream.normals`."""
        if count < _MANY or np.ndim(step) != 1:
            return super().normals(step, count, purpose, fine)
        steps, half = np.asarray(step, np.int64), (count + 1) // 2
        out = np.empty((len(self.chains), len(steps), count))
        room = np.zeros(half, np.uint32), np.empty((4, half), np.uint32), np.empty((3, half))
        slots = slots_of(purpose, half), slots_of(fine, half)
        normals.normals_of_steps(*self.keys(int(steps[0]) >> 32), steps.astype(np.uint32), *slots, *room, out)
        return out
