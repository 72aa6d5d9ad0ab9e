"""The random stream of `svrhmc.core.randomness` with normals of many coordinates from compiled code."""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.randomness import Purpose, Steps, Stream, slot_counters
from svrhmc.kernels.normals import normals_of_steps

_MANY = 1 << 10  # coordinates, of which normals in NumPy take long


class CompiledStream(Stream):
    """The same numbers to 4e-16."""

    def normals(
        self, step: Steps, count: int, purpose: Purpose = Purpose.NOISE, fine: Purpose = Purpose.NOISE_FINE
    ) -> Array:
        """Standard normals, as those of `Stream`."""
        if count < _MANY:
            return super().normals(step, count, purpose, fine)
        steps, half = np.atleast_1d(np.asarray(step, np.int64)), (count + 1) // 2
        out = np.empty((len(self.chains), len(steps), count))
        room = np.zeros(half, np.uint32), np.empty((4, half), np.uint32), np.empty((3, half))
        slots = slot_counters(purpose, half), slot_counters(fine, half)
        normals_of_steps(*self.keys(int(steps[0]) >> 32), steps.astype(np.uint32), *slots, *room, out)
        return out if np.ndim(step) else out[:, 0]
