"""The compiled formulas of a family with several predictors, at one row."""

import numpy as np
from numba import njit

from svrhmc.kernels.layout import ROOM
from svrhmc.kernels.passes import several_energies


@njit
def row_energy(record, t, y, s):
    """s = ∂ℓ/∂t, and gives ℓ. By loops: numba takes seconds to compile the assignment of an array to another."""
    m = len(t)
    lines, slopes = np.empty((m + ROOM, 1)), np.empty((m, 1))
    for k in range(m):
        lines[k, 0] = t[k]
    several_energies(record, 1, lines, np.full(1, y), slopes, True)
    for k in range(m):
        s[k] = slopes[k, 0]
    return lines[m, 0]
