"""Rows that several predictors see: m = k + q numbers for each row where others have one.

The coefficients of the k blocks lie one behind the other, each padded as a row is (`spread`), and the q shared
parameters last. Rows come in tiles, or as a batch: the predictors of all of them, then their slopes in vector code,
then the sums; k is one more loop over what is at hand, not one more pass over all rows. Everything of a row but its
entries is float64. Functions of a model choose this path by the type of its loss, whose tuple says its `blocks` and
`shared`; losses of one predictor are compiled as if this file did not exist.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import ENTRY, INLINE, PLAIN, QUICK, kept
from svrhmc.kernels.layout import BLOCK, TILE, is_none, is_plain, is_several
from svrhmc.kernels.losses import needed, slopes, weight_of
from svrhmc.kernels.rows import row_add, row_dot, some_predictors, some_sum, tile_end, tile_predictors, tile_sum

ROOM = 3  # lines after those of the predictors, in the first of which values are left


def wide_energies(loss, count, t, y, s, valued):
    """s = ∂ℓ/∂t at so many rows' predictors, a row in each column, and ℓ in line m of t if `valued`."""


@overload(wide_energies, jit_options=QUICK)
def _wide_energies(loss, count, t, y, s, valued):
    return needed(loss, t.dtype, "energies")


def sizes(loss):
    """(k, q): predictors that have coefficients, and parameters that rows share; constants where there is but one."""


@overload(sizes, inline="always")
def _sizes(loss):
    return (lambda loss: (loss.blocks, loss.shared)) if is_several(loss) else (lambda loss: (1, 0))


def tile_slopes(loss, count, t, y, s):
    """s = ∂ℓ/∂t at so many rows' predictors, of any family: a line of t and s for each predictor."""


@overload(tile_slopes, jit_options=QUICK, inline="always")
def _tile_slopes(loss, count, t, y, s):
    if is_several(loss):
        return lambda loss, count, t, y, s: wide_energies(loss, count, t, y, s, False)
    return lambda loss, count, t, y, s: slopes(loss, count, t[0], y, s[0])


def wide_energy(loss, t, y, s):
    """s = ∂ℓ/∂t at one row's predictors, and gives ℓ."""


@overload(wide_energy)
def _wide_energy(loss, t, y, s):
    def one(loss, t, y, s):
        m = len(t)
        lines, slopes = np.empty((m + ROOM, 1)), np.empty((m, 1))
        for c in range(m):
            lines[c, 0] = t[c]
        wide_energies(loss, 1, lines, np.full(1, np.float64(y)), slopes, True)
        for c in range(m):
            s[c] = slopes[c, 0]
        return lines[m, 0]

    return one


@njit(**PLAIN)
def spread(x, k, q, out):
    """x in blocks that are as long as padded rows; shared parameters last."""
    p, pad = (len(x) - q) // k, (len(out) - q) // k
    for c in range(k):
        for j in range(p):
            out[c * pad + j] = x[c * p + j]
        for j in range(p, pad):
            out[c * pad + j] = 0
    for j in range(q):
        out[k * pad + j] = x[k * p + j]


@njit(**PLAIN)
def draw_in(total, k, q, out):
    """What `spread` was made of; `out` may be the beginning of `total`."""
    p, pad = (len(out) - q) // k, (len(total) - q) // k
    for c in range(k):
        for j in range(p):
            out[c * p + j] = total[c * pad + j]
    for j in range(q):
        out[k * p + j] = total[k * pad + j]


def _enter(model, i, b, t):
    """What row i, in column b, has besides its products: its offset, or the predictors at the centre."""


@overload(_enter, jit_options={**PLAIN, "forceinline": True})
def _enter_as(model, i, b, t):
    if is_plain(model):
        return lambda model, i, b, t: _add_offset(model.offset, i, b, t)

    def beyond(model, i, b, t):
        predictors = model.taken.predictors
        if len(predictors) > 0:
            for c in range(predictors.shape[1]):
                t[c, b] += predictors[i, c]
        else:
            _add_offset(model.offset, i, b, t)

    return beyond


def _add_offset(offset, i, b, t):
    """The offset joins the first predictor."""


@overload(_add_offset, jit_options={**PLAIN, "forceinline": True})
def _add_offset_if_any(offset, i, b, t):
    if is_none(offset):
        return lambda offset, i, b, t: None

    def one(offset, i, b, t):
        t[0, b] += np.float64(offset[i])

    return one


def _leave(model, i, b, t, s):
    """The slopes of row i, in column b, weighed, less what is taken from them; its predictors are no more needed."""


@overload(_leave, jit_options={**PLAIN, "forceinline": True})
def _leave_as(model, i, b, t, s):
    if is_plain(model):
        return lambda model, i, b, t, s: _weigh(model.weights, i, b, s)

    def beyond(model, i, b, t, s):
        taken, m = model.taken, len(s)
        _weigh(model.weights, i, b, s)
        if len(taken.predictors) > 0:
            predictors, slopes, curvatures = taken.predictors[i], taken.slopes[i], taken.curvatures[i]
            for e in range(m):
                t[e, b] -= predictors[e]
            for c in range(m):
                bend = slopes[c]
                for e in range(m):
                    bend += curvatures[c, e] * t[e, b]
                s[c, b] -= bend

    return beyond


@njit(**INLINE)
def _weigh(weights, i, b, s):
    weight = weight_of(weights, i)
    for c in range(len(s)):
        s[c, b] *= weight


@njit(**INLINE)
def _tile_in(model, wide, k, q, low, high, end, t):
    """The predictors of a tile of rows, `end` of them by fours, as products alone."""
    pad = (len(wide) - q) // k
    for c in range(k):
        x, line = wide[c * pad : (c + 1) * pad], t[c]
        tile_predictors(model, x, low, end, line)
        for i in range(end, high):
            line[i - low] = row_dot(model, i, x)
    for j in range(q):
        for b in range(high - low):
            t[k + j, b] = wide[k * pad + j]


@njit(**INLINE)
def _tile_out(model, s, k, q, low, high, end, tile, total):
    """total += Σ Jᵢᵀsᵢ of a tile of rows."""
    pad = (len(total) - q) // k
    for c in range(k):
        sums, line = total[c * pad : (c + 1) * pad], s[c]
        tile_sum(model, line, low, end, tile, sums)
        for i in range(end, high):
            row_add(model, i, line[i - low], sums)
    for j in range(q):
        for b in range(high - low):
            total[k * pad + j] += s[k + j, b]


@njit(**PLAIN)
def wide_blocks(model, x, begin, end, sums, memory, keep):
    """`sum_blocks` for several predictors."""
    partial, wide, tile, total, t, s = sums.partial, sums.wide, sums.tile, sums.total, sums.t, sums.slopes
    y, loss = model.y, model.loss
    n, m, k, q = len(y), len(s), loss.blocks, loss.shared
    spread(x, k, q, wide)
    for block in range(begin, end):
        total[:] = 0.0
        stop = min(n, (block + 1) * BLOCK)
        for low in range(block * BLOCK, stop, TILE):
            high = min(stop, low + TILE)
            fours = tile_end(model, low, high, len(tile))
            _tile_in(model, wide, k, q, low, high, fours, t)
            for b in range(high - low):
                _enter(model, low + b, b, t)
            wide_energies(loss, high - low, t, y[low:high], s, False)
            for b in range(high - low):
                _leave(model, low + b, b, t, s)
            if keep:
                for b in range(high - low):
                    for c in range(m):
                        memory[(low + b) * m + c] = s[c, b]
            _tile_out(model, s, k, q, low, high, fours, tile, total)
        draw_in(total, k, q, partial[block])


@njit(**PLAIN)
def _some_slopes(model, rows, at, x, t, labels, s):
    """s = the slopes of some rows at `at`, less what is taken from them; x, t and a line of `labels` are room."""
    loss, count, y = model.loss, len(rows), labels[0]
    k, q = loss.blocks, loss.shared
    pad = (len(x) - q) // k
    spread(at, k, q, x)
    for c in range(k):
        some_predictors(model, rows, x[c * pad : (c + 1) * pad], t[c])
    for j in range(q):
        for b in range(count):
            t[k + j, b] = x[k * pad + j]
    for b in range(count):
        y[b] = model.y[rows[b]]
        _enter(model, rows[b], b, t)
    wide_energies(loss, count, t, y, s, False)
    for b in range(count):
        _leave(model, rows[b], b, t, s)


@njit(**PLAIN)
def wide_gradient(model, rows, weights, reduced, remembers, held, batch):
    """`rows_gradient` for several predictors; column b of batch.labels holds the slopes of row b at `at`."""
    memory, x, t, s, then, labels = held.memory, batch.u, batch.t, batch.slopes, batch.then, batch.labels
    count, m, k, q = len(rows), len(s), model.loss.blocks, model.loss.shared
    pad, share = (len(x) - q) // k, len(model.y) / count
    if reduced and not remembers:
        _some_slopes(model, rows, held.snapshot, x, t, labels, then)
    _some_slopes(model, rows, held.at, x, t, labels, s)
    for b in range(count):
        i = rows[b]
        weight = share * np.float64(weights[i]) if len(weights) > 0 else share
        for c in range(m):
            labels[c, b] = s[c, b]
            if reduced:
                s[c, b] -= memory[i * m + c] if remembers else then[c, b]
            s[c, b] *= weight
    x[:] = 0
    for c in range(k):
        some_sum(model, rows, s[c], x[c * pad : (c + 1) * pad])
    for j in range(q):
        for b in range(count):
            x[k * pad + j] += s[k + j, b]
    draw_in(x, k, q, held.sum)


@njit(**PLAIN)
def wide_renew(model, rows, labels, memory, base):
    """SAGA: the slopes just found replace those remembered, and the sum follows."""
    m, k = len(labels), model.loss.blocks
    p = (len(base) - model.loss.shared) // k
    for b in range(len(rows)):
        i = rows[b]
        for c in range(m):
            change = labels[c, b] - memory[i * m + c]
            memory[i * m + c] = labels[c, b]
            if c < k:
                row_add(model, i, change, base[c * p : (c + 1) * p])
            else:
                base[k * p + c - k] += change


@njit(**PLAIN)
def wide_pass(model, t_centre, sums, energy, chains, valued):
    """The pass of split HMC for several predictors."""
    wides, totals, tile, t, s = sums.wide, sums.total, sums.tile, sums.t, sums.slope
    y, loss, weights = model.y, model.loss, model.weights
    n, dim, m, k, q = len(y), sums.u.shape[1], len(s), loss.blocks, loss.shared
    for c in range(chains):
        energy[c] = 0.0
        totals[c, :] = 0.0
        spread(sums.u[c], k, q, wides[c])
    for low in range(0, n, TILE):
        high = min(n, low + TILE)
        fours, count = tile_end(model, low, high, len(tile)), high - low
        for chain in range(chains):
            _tile_in(model, wides[chain], k, q, low, high, fours, t)
            for b in range(count):
                for c in range(m):
                    t[c, b] += t_centre[low + b, c]
            wide_energies(loss, count, t, y[low:high], s, valued)
            part = 0.0
            for b in range(count):
                _weigh(weights, low + b, b, s)
                if valued:
                    part += weight_of(weights, low + b) * t[m, b]
            energy[chain] += part
            _tile_out(model, s, k, q, low, high, fours, tile, totals[chain])
    for c in range(chains):
        draw_in(totals[c], k, q, totals[c, :dim])


@kept
@njit(**ENTRY)
def all_wide_slopes(loss, t, y, weights, lines, s, out):
    """The slopes of many rows at their predictors, (n, m), as the loops find them; `lines` and `s` are room."""
    m = len(s)
    for low in range(0, len(y), TILE):
        high = min(len(y), low + TILE)
        for b in range(high - low):
            for c in range(m):
                lines[c, b] = t[low + b, c]
        wide_energies(loss, high - low, lines, y[low:high], s, False)
        for b in range(high - low):
            _weigh(weights, low + b, b, s)
            for c in range(m):
                out[low + b, c] = s[c, b]
