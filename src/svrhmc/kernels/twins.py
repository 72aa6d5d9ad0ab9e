"""A pass over sparse rows that serves two chains at once.

What a sparse row meets lies scattered over memory. With the numbers of two chains side by side, (u₀, u₀′, u₁, u₁′, …),
one look at a column finds both, and each entry of X and its column are read once. For each chain the sums run in the
order in which `rows.row_dot` and `rows.row_add` make them, so that its digits do not depend on whether it has a twin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK
from svrhmc.kernels.layout import TILE
from svrhmc.kernels.losses import energies, slopes, weigh


class Twins(NamedTuple):
    """Room for two chains: what the rows meet and what they give, side by side; predictors, slopes and values apart."""

    wide: Any
    total: Any
    t: Any  # (2, TILE), and so on
    slope: Any
    value: Any


@njit(forceinline=True, **PLAIN)
def _twin_dots(data, columns, begin, end, x):
    """As `rows._sparse_dot`, for both."""
    a = b = c = d = x.dtype.type(0)
    e = f = g = h = x.dtype.type(0)
    whole = begin + ((end - begin) & ~np.uint64(3))
    one, two = np.uint64(1), np.uint64(2)
    if len(data) == 1:
        for k in range(begin, whole, np.uint64(4)):
            i, j = two * columns[k], two * columns[k + one]
            m, n = two * columns[k + two], two * columns[k + np.uint64(3)]
            a += x[i]
            e += x[i + one]
            b += x[j]
            f += x[j + one]
            c += x[m]
            g += x[m + one]
            d += x[n]
            h += x[n + one]
        for k in range(whole, end):
            i = two * columns[k]
            a += x[i]
            e += x[i + one]
        return data[0] * ((a + b) + (c + d)), data[0] * ((e + f) + (g + h))
    for k in range(begin, whole, np.uint64(4)):
        i, j = two * columns[k], two * columns[k + one]
        m, n = two * columns[k + two], two * columns[k + np.uint64(3)]
        a += data[k] * x[i]
        e += data[k] * x[i + one]
        b += data[k + one] * x[j]
        f += data[k + one] * x[j + one]
        c += data[k + two] * x[m]
        g += data[k + two] * x[m + one]
        d += data[k + np.uint64(3)] * x[n]
        h += data[k + np.uint64(3)] * x[n + one]
    for k in range(whole, end):
        i = two * columns[k]
        a += data[k] * x[i]
        e += data[k] * x[i + one]
    return (a + b) + (c + d), (e + f) + (g + h)


@njit(**QUICK)
def _twin_adds(data, columns, begin, low, high, slope, total):
    """total += Σ s·row of some rows, for both."""
    one, two = np.uint64(1), np.uint64(2)
    for i in range(low, high):
        first, second = np.float64(slope[0, i - low]), np.float64(slope[1, i - low])
        if len(data) == 1:
            first, second = first * data[0], second * data[0]
            for k in range(begin[i], begin[i + 1]):
                j = two * columns[k]
                total[j] += first
                total[j + one] += second
        else:
            for k in range(begin[i], begin[i + 1]):
                j = two * columns[k]
                total[j] += first * data[k]
                total[j + one] += second * data[k]


@njit(**INLINE)
def twin_pass(model, t_centre, twins, wides, totals, energy, chain, dim, valued):
    """The pass of `split` for `chain` and the one after it."""
    wide, total, t, slope, value = twins.wide, twins.total, twins.t, twins.slope, twins.value
    data, columns, begin, y, loss, weights = (
        model.data, model.columns, model.begin, model.y, model.loss, model.weights
    )  # fmt: skip
    n = len(y)
    for j in range(dim):
        wide[2 * j], wide[2 * j + 1] = wides[chain, j], wides[chain + 1, j]
        total[2 * j], total[2 * j + 1] = 0.0, 0.0
    energy[chain], energy[chain + 1] = 0.0, 0.0
    for low in range(0, n, TILE):
        high = min(n, low + TILE)
        count = high - low
        centres, labels = t_centre[low:high], y[low:high]
        for i in range(low, high):
            t[0, i - low], t[1, i - low] = _twin_dots(data, columns, begin[i], begin[i + 1], wide)
        for c in range(2):
            for k in range(count):
                t[c, k] += centres[k]
            if valued:
                energies(loss, count, t[c], labels, slope[c], value[c])
                weigh(weights, low, count, value[c])
                tile_energy = 0.0
                for k in range(count):
                    tile_energy += np.float64(value[c, k])
                energy[chain + c] += tile_energy
            else:
                slopes(loss, count, t[c], labels, slope[c])
            weigh(weights, low, count, slope[c])
        _twin_adds(data, columns, begin, low, high, slope, total)
    for j in range(dim):
        totals[chain, j], totals[chain + 1, j] = total[2 * j], total[2 * j + 1]
