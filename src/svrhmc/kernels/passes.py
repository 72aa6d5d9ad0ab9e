"""Sums over all rows.

They are in float64 from every 64 rows on, in blocks of fixed size, so that they do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import ENTRY, QUICK, kept
from svrhmc.kernels.frames import pull
from svrhmc.kernels.layout import BLOCK, TILE, GaussianModel, is_a, is_plain, is_wide
from svrhmc.kernels.losses import shift, slope, slopes, weigh
from svrhmc.kernels.rows import row_add, row_dot, tile_predictors, tile_sum, whole_tile
from svrhmc.kernels.wide import wide_blocks


def tile_slopes(model, low, high, t, s):
    """s = the slopes of consecutive rows at the predictors in t, less what is taken from them.

    Where something is, t holds u: s = w·slope(t̂ + u) − (w·slope + w·curvature·u at t̂).
    """


@overload(tile_slopes, jit_options=QUICK, inline="always")
def _tile_slopes(model, low, high, t, s):
    if is_plain(model):

        def plain(model, low, high, t, s):
            loss, y = model.loss, model.y[low:high]
            shift(model.offset, low, high - low, t)
            for k in range(high - low):
                s[k] = slope(loss, t[k], y[k])
            weigh(model.weights, low, high - low, s)

        return plain

    def beyond(model, low, high, t, s):
        taken, count = model.taken, high - low
        if len(taken.predictors) > 0:
            predictors, base, curvatures = (
                taken.predictors[low:high], taken.slopes[low:high], taken.curvatures[low:high],
            )  # fmt: skip
            for k in range(count):
                s[k] = t[k]
                t[k] += predictors[k]
            slopes(model.loss, count, t, model.y[low:high], t)
            weigh(model.weights, low, count, t)
            for k in range(count):
                s[k] = t[k] - (base[k] + curvatures[k] * s[k])
        else:
            shift(model.offset, low, count, t)
            slopes(model.loss, count, t, model.y[low:high], s)
            weigh(model.weights, low, count, s)

    return beyond


def sum_blocks(model, x, begin, end, sums, memory, keep):
    """The data part of ∇f at x, in blocks of rows whose sums are in float64; a Gaussian is one block.

    The slopes of the rows go to `memory` if `keep`.

    `wide`, `tile` and `total` of the pass are as long as the rows, or longer: then a row is read into the next one,
    whose numbers meet zeros in `wide` and are left behind in `total`. So vector code needs no second loop for the end
    of a row.
    """


@overload(sum_blocks, jit_options=QUICK)
def _sum_blocks(model, x, begin, end, sums, memory, keep):
    if is_a(model, GaussianModel):

        def gaussian(model, x, begin, end, sums, memory, keep):
            partial = sums.partial
            for i in range(len(x)):
                product = -model.mean_force[i]
                for j in range(len(x)):
                    product += model.mean_precision[i, j] * x[j]
                partial[0, i] = product

        return gaussian
    if is_wide(model):
        return lambda model, x, begin, end, sums, memory, keep: wide_blocks(model, x, begin, end, sums, memory, keep)

    def rows(model, x, begin, end, sums, memory, keep):
        partial, wide, tile, total, t, s = sums.partial, sums.wide, sums.tile, sums.total, sums.t, sums.slopes
        n, dim = len(model.y), len(x)
        for j in range(dim):
            wide[j] = x[j]
        for block in range(begin, end):
            total[:] = 0.0
            stop = min(n, (block + 1) * BLOCK)
            for low in range(block * BLOCK, stop, TILE):
                high = min(stop, low + TILE)
                whole = whole_tile(model, low, high, len(wide))
                if whole:
                    tile_predictors(model, wide, low, high, t)
                else:
                    for i in range(low, high):
                        t[i - low] = row_dot(model, i, x)
                tile_slopes(model, low, high, t, s)
                if keep:
                    for i in range(low, high):
                        memory[i] = s[i - low]
                if whole:
                    tile_sum(model, s, low, high, tile, total)
                else:
                    for i in range(low, high):
                        row_add(model, i, np.float64(s[i - low]), total)
            for j in range(dim):
                partial[block, j] = total[j]

    return rows


@njit(**QUICK)
def join(partial, total):
    """Join the blocks' sums, in their order."""
    total[:] = 0.0
    for block in range(len(partial)):
        for j in range(len(total)):
            total[j] += partial[block, j]


@kept
@njit(**ENTRY)
def pass_blocks(model, x, begin, end, sums, memory, keep):
    """One thread's share of a pass over all rows."""
    sum_blocks(model, x, begin, end, sums, memory, keep)


@kept
@njit(**ENTRY)
def join_blocks(model, partial, room, anchor):
    """What joins the shares."""
    join(partial, anchor)
    pull(model.frame, anchor, room, anchor)


@kept
@njit(**ENTRY)
def all_slopes(loss, t, y, weights, out):
    """The slopes of many rows at their predictors."""
    slopes(loss, len(out), t, y, out)
    weigh(weights, 0, len(out), out)
