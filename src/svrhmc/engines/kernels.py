"""The compiled loop: one function for every sampler of the grid, on rows or on Gaussians.

A model is a named tuple of arrays (`DenseModel`, `SparseModel`, `GaussianModel`); numba compiles the loop once for
each, and for each precision of the rows. Scheme, gradient and loss are numbers, so that no other choice is compiled
anew; but a model without a frame makes a shorter loop, which knows nothing of changed variables, of SAGA and of rows
drawn by importance, and compiles in half of the time.

States are float64 always. Products with the rows, and the normals, have the precision of the rows; sums over all rows
are in float64 from every 64 rows on, in blocks of fixed size, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload

from svrhmc.engines.frames import DENSE, LOW_RANK, PLACE, displace, pull
from svrhmc.engines.numeric import (
    FAST,
    PLAIN,
    make_normals,
    peek,
    prefetch,
    random_words,
    slopes,
    threefry,
    unshared,
)
from svrhmc.randomness import MAX_SLOTS, Purpose

BLOCK = 4096  # rows summed together before they join the total
TILE = 64  # rows whose predictors are found before their slopes
FULL, MINIBATCH, SVRG = 0, 1, 2
DONE, DIVERGED, PASS_DUE = 0, 1, 2
SNAPSHOT_SLOT = int(Purpose.SNAPSHOT) * MAX_SLOTS

QUICK = {**PLAIN, "fastmath": FAST}
INLINE = {**PLAIN, "inline": "always"}  # no function of its own to compile
ENTRY = {"error_model": "numpy", "_nrt": False, "nogil": True, "cache": True, "no_cfunc_wrapper": True}


class Taken(NamedTuple):
    """What is taken from every row's slope: at t̂ + u, slope + curvature·u; empty arrays where nothing is."""

    predictors: Any
    slopes: Any
    curvatures: Any


class DenseModel(NamedTuple):
    """Rows of a generalised linear model, their labels and the prior; the variables that a chain moves in.

    g = prior·z − prior_force + Wᵀ(inner·u + the rows' part), with u the displacement that the frame makes of z. Where
    frame, inner and taken are None, u = z, W = I and nothing is taken.
    """

    X: Any
    flat: Any
    y: Any
    prior: Any
    prior_force: Any
    loss: int
    scale: float
    frame: Any
    inner: Any
    taken: Any


class SparseModel(NamedTuple):
    """The same with CSR rows; `data` has length 1 where all entries are one number, as in one-hot rows."""

    data: Any
    columns: Any
    begin: Any
    y: Any
    prior: Any
    prior_force: Any
    loss: int
    scale: float
    frame: Any
    inner: Any
    taken: Any


class GaussianModel(NamedTuple):
    """Quadratic components: S (1 or n matrices), forces Sᵢaᵢ, and their means."""

    S: Any
    forces: Any
    mean_precision: Any
    mean_force: Any
    prior: Any
    prior_force: Any


class Plan(NamedTuple):
    """Sampler and schedule as numbers."""

    n: int
    kind: int
    batch: int
    epoch: int
    begin: int  # the first step of this call: there a snapshot is taken too
    replacement: bool
    remembers: bool
    snapshot_rows: int
    before: bool
    before_normals: int
    first: int
    thin: int
    far_rows: bool
    anchored: bool  # the snapshot is the mode, given before the run
    second: bool  # the Hessian there times the displacement belongs to the gradient
    saga: bool  # the memory of a row is renewed with each use of it
    importance: bool  # rows are drawn by an alias table


# Room for one thread: nothing is allocated while a chain runs.


class Held(NamedTuple):
    """What a chain holds from step to step."""

    at: Any  # x in the rows' precision
    snapshot: Any  # x̃ in the rows' precision
    anchor: Any  # data part of ḡ
    sum: Any  # what the batch adds to ḡ; stays 0 for full gradients
    memory: Any  # the slopes of all rows at x̃
    hessian: Any  # the data part of the Hessian at the mode, for second order
    base: Any  # the data part of ∇f(x̂); of SAGA's memory, before it is pulled back
    room: Any


class Pass(NamedTuple):
    """For a pass over all rows: sums of blocks of rows; the others belong to one thread."""

    partial: Any
    wide: Any  # x, padded with zeros
    tile: Any  # the sum of a tile, and of a block
    total: Any
    t: Any  # predictors and slopes of a tile
    slopes: Any


class Batch(NamedTuple):
    """For a gradient from some rows."""

    rows: Any  # drawn row numbers: of a chunk's batches, then of a snapshot
    weights: Any  # 1/(nP) of each row, or none
    u: Any  # displacements, predictors, labels and slopes of some rows
    t: Any
    labels: Any
    slopes: Any
    then: Any


class Draws(NamedTuple):
    """For drawing rows."""

    steps: Any  # counters of a chunk of random blocks
    slots: Any
    seen: Any  # hash table for draws without replacement
    threshold: Any  # an alias table
    alias: Any


class Noise(NamedTuple):
    """For drawing normals."""

    steps: Any
    slots: Any
    fine_slots: Any
    words: Any  # (4, blocks): two words of each block, and two fine ones
    normals: Any  # (3, blocks): first and second normals of each block, and room
    z: Any  # the normals of one step


class Workspace(NamedTuple):
    """All of it."""

    held: Held
    sums: Pass
    batch: Batch
    draw: Draws
    noise: Noise


def _is(model, kind):
    return isinstance(model, types.NamedTuple) and model.instance_class is kind


def _plain(model):
    """Whether the type of a model has no frame."""
    return "frame" not in model.fields or isinstance(model[model.fields.index("frame")], types.NoneType)


# Rows: one accessor for dense and sparse.


def row_dot(model, i, x):
    """aᵢᵀx."""


def row_add(model, i, weight, total):
    """total += weight·aᵢ."""


def row_prefetch(model, i):
    """Ask for row i before it is needed."""


@overload(row_dot, jit_options={**QUICK, "forceinline": True})
def _row_dot(model, i, x):
    if _is(model, DenseModel):

        def dense(model, i, x):
            total = model.X[i, 0] * x[0]
            for j in range(1, len(x)):
                total += model.X[i, j] * x[j]
            return total

        return dense

    return lambda model, i, x: _sparse_dot(model.data, model.columns, model.begin[i], model.begin[i + 1], x)


@njit(forceinline=True, **PLAIN)
def _sparse_dot(data, columns, begin, end, x):
    """Four sums side by side; not FAST, or LLVM would use vector gathers, which are slower on short rows."""
    a = b = c = d = x.dtype.type(0)
    whole = begin + ((end - begin) & ~np.uint64(3))
    if len(data) == 1:
        for k in range(begin, whole, np.uint64(4)):
            a += x[columns[k]]
            b += x[columns[k + np.uint64(1)]]
            c += x[columns[k + np.uint64(2)]]
            d += x[columns[k + np.uint64(3)]]
        for k in range(whole, end):
            a += x[columns[k]]
        return data[0] * ((a + b) + (c + d))
    for k in range(begin, whole, np.uint64(4)):
        a += data[k] * x[columns[k]]
        b += data[k + np.uint64(1)] * x[columns[k + np.uint64(1)]]
        c += data[k + np.uint64(2)] * x[columns[k + np.uint64(2)]]
        d += data[k + np.uint64(3)] * x[columns[k + np.uint64(3)]]
    for k in range(whole, end):
        a += data[k] * x[columns[k]]
    return (a + b) + (c + d)


@overload(row_add, jit_options={**QUICK, "forceinline": True})
def _row_add(model, i, weight, total):
    if _is(model, DenseModel):

        def dense(model, i, weight, total):
            for j in range(len(total)):
                total[j] += weight * model.X[i, j]

        return dense

    def sparse(model, i, weight, total):
        if len(model.data) == 1:
            same = weight * model.data[0]
            for k in range(model.begin[i], model.begin[i + 1]):
                total[model.columns[k]] += same
        else:
            for k in range(model.begin[i], model.begin[i + 1]):
                total[model.columns[k]] += weight * model.data[k]

    return sparse


@overload(row_prefetch, jit_options=PLAIN)
def _row_prefetch(model, i):
    if _is(model, DenseModel):

        def dense(model, i):
            dim = model.X.shape[1]
            for j in range(0, dim, 64 // model.X.itemsize):
                prefetch(model.X, i * dim + j)

        return dense
    if _is(model, SparseModel):

        def sparse(model, i):
            for k in range(model.begin[i], model.begin[i + 1], 16):
                prefetch(model.columns, k)
                if len(model.data) > 1:
                    prefetch(model.data, k)

        return sparse
    return lambda model, i: None


# Sums over all rows.


def tile_predictors(model, x, low, high, t):
    """t[i − low] = aᵢᵀx for the rows of a tile; x may be padded with zeros."""


def tile_sum(model, s, low, high, tile, total):
    """total += Σ s[i − low]·aᵢ over the rows of a tile; what is added beyond the row's end is of no use.

    Dense rows are summed in their own precision within the tile, and in float64 from tile to tile.
    """


@njit(forceinline=True, **PLAIN)
def _prefetch_tile(flat, begin, count):
    """Ask for two rows of the next tile: each of the two loops over a tile asks for one half of it."""
    for j in range(0, count, 64 // flat.itemsize):
        prefetch(flat, begin + j)


@overload(tile_predictors, jit_options=QUICK)
def _tile_predictors(model, x, low, high, t):
    if _is(model, DenseModel):

        def dense(model, x, low, high, t):
            flat, dim, pad = model.flat, model.X.shape[1], len(x)
            for i in range(low, high, 4):
                _prefetch_tile(flat, (low + TILE + (i - low) // 2) * dim, 2 * dim)
                a, b, c, d = i * dim, (i + 1) * dim, (i + 2) * dim, (i + 3) * dim
                ta = tb = tc = td = x.dtype.type(0)
                for j in range(pad):
                    ta += peek(flat, a + j) * x[j]
                    tb += peek(flat, b + j) * x[j]
                    tc += peek(flat, c + j) * x[j]
                    td += peek(flat, d + j) * x[j]
                t[i - low], t[i - low + 1], t[i - low + 2], t[i - low + 3] = ta, tb, tc, td

        return dense

    def sparse(model, x, low, high, t):
        for i in range(low, high):
            t[i - low] = row_dot(model, i, x)

    return sparse


@overload(tile_sum, jit_options=QUICK)
def _tile_sum(model, s, low, high, tile, total):
    if _is(model, DenseModel):

        def dense(model, s, low, high, tile, total):
            flat, dim, pad = model.flat, model.X.shape[1], len(tile)
            tile[:] = 0
            for i in range(low, high, 4):
                _prefetch_tile(flat, (low + TILE + TILE // 2 + (i - low) // 2) * dim, 2 * dim)
                a, b, c, d = i * dim, (i + 1) * dim, (i + 2) * dim, (i + 3) * dim
                sa, sb, sc, sd = s[i - low], s[i - low + 1], s[i - low + 2], s[i - low + 3]
                for j in range(pad):
                    two = sa * peek(flat, a + j) + sb * peek(flat, b + j)
                    tile[j] += two + (sc * peek(flat, c + j) + sd * peek(flat, d + j))
            for j in range(pad):
                total[j] += np.float64(tile[j])

        return dense

    def sparse(model, s, low, high, tile, total):
        for i in range(low, high):
            row_add(model, i, np.float64(s[i - low]), total)

    return sparse


def whole_tile(model, low, high, pad):
    """Whether a tile's rows may be read four by four, and `pad` numbers from the beginning of each."""


@overload(whole_tile, jit_options=PLAIN)
def _whole_tile(model, low, high, pad):
    if _is(model, DenseModel):
        return lambda model, low, high, pad: (
            high - low == TILE and (high - 1) * model.X.shape[1] + pad <= model.flat.size
        )
    return lambda model, low, high, pad: True


def tile_slopes(model, low, high, t, s):
    """s = the slopes of consecutive rows at the predictors in t, less what is taken from them.

    Where something is, t holds u: s = slope(t̂ + u) − (slope + curvature·u at t̂).
    """


@overload(tile_slopes, jit_options=QUICK, inline="always")
def _tile_slopes(model, low, high, t, s):
    if _plain(model):
        return lambda model, low, high, t, s: slopes(
            model.loss, model.scale, t[: high - low], model.y[low:high], s[: high - low]
        )

    def beyond(model, low, high, t, s):
        taken, count = model.taken, high - low
        if len(taken.predictors) > 0:
            for k in range(count):
                s[k] = t[k]
                t[k] += taken.predictors[low + k]
            slopes(model.loss, model.scale, t[:count], model.y[low:high], t[:count])
            for k in range(count):
                s[k] = t[k] - (taken.slopes[low + k] + taken.curvatures[low + k] * s[k])
        else:
            slopes(model.loss, model.scale, t[:count], model.y[low:high], s[:count])

    return beyond


def sum_blocks(model, x, begin, end, sums, memory, keep):
    """The data part of ∇f at x in blocks: of rows, each block's Σ slope·row in float64; their slopes go to `memory` if
    `keep`. A Gaussian is one block.

    `wide`, `tile` and `total` of the pass are as long as the rows, or longer: then a row is read into the next one,
    whose numbers meet zeros in `wide` and are left behind in `total`. So vector code needs no second loop for the end
    of a row.
    """


@overload(sum_blocks, jit_options=QUICK)
def _sum_blocks(model, x, begin, end, sums, memory, keep):
    if _is(model, GaussianModel):

        def gaussian(model, x, begin, end, sums, memory, keep):
            partial = sums.partial
            for i in range(len(x)):
                product = -model.mean_force[i]
                for j in range(len(x)):
                    product += model.mean_precision[i, j] * x[j]
                partial[0, i] = product

        return gaussian

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
                        row_add(model, i, np.float64(s[i - low]), total[:dim])
            for j in range(dim):
                partial[block, j] = total[j]

    return rows


@njit(**QUICK)
def _join(partial, total):
    """Join the blocks' sums, in their order."""
    total[:] = 0.0
    for block in range(len(partial)):
        for j in range(len(total)):
            total[j] += partial[block, j]


# The gradient of each model.


@njit(**INLINE)
def _row_slopes(model, rows, at, u, t, labels, out):
    """out = the slopes of the given rows, less what is taken from them; `labels` and `out` may be one array."""
    for b in range(len(rows)):
        t[b] = row_dot(model, rows[b], at)
        labels[b] = model.y[rows[b]]
    picked_slopes(model, rows, u, t, labels, out)


def picked_slopes(model, rows, u, t, labels, out):
    """The same from the predictors in t."""


@overload(picked_slopes, jit_options={**QUICK, "forceinline": True})
def _picked_slopes(model, rows, u, t, labels, out):
    if _plain(model):
        return lambda model, rows, u, t, labels, out: slopes(
            model.loss, model.scale, t[: len(rows)], labels[: len(rows)], out[: len(rows)]
        )

    def beyond(model, rows, u, t, labels, out):
        taken, count = model.taken, len(rows)
        some = len(taken.predictors) > 0
        if some:
            for b in range(count):
                u[b] = t[b]
                t[b] += taken.predictors[rows[b]]
        slopes(model.loss, model.scale, t[:count], labels[:count], out[:count])
        if some:
            for b in range(count):
                i = rows[b]
                out[b] -= taken.slopes[i] + taken.curvatures[i] * u[b]

    return beyond


def weigh(model, rows, weights, s):
    """Each row's slope times its weight, where there are weights."""


@overload(weigh, jit_options={**QUICK, "forceinline": True})
def _weigh(model, rows, weights, s):
    if _plain(model):
        return lambda model, rows, weights, s: None

    def by_rows(model, rows, weights, s):
        if len(weights) > 0:
            for b in range(len(rows)):
                s[b] *= weights[rows[b]]

    return by_rows


def rows_gradient(model, rows, weights, reduced, remembers, held, batch):
    """held.sum = mean over the given rows of their parts at `held.at`, less those at the snapshot where `reduced`.

    Each is multiplied by its weight, where there are weights. `batch.labels` holds the slopes at `at` in the end.
    """


@overload(rows_gradient, jit_options={**QUICK, "forceinline": True})
def _rows_gradient(model, rows, weights, reduced, remembers, held, batch):
    if _is(model, GaussianModel):

        def gaussian(model, rows, weights, reduced, remembers, held, batch):
            at, snapshot, total, then = held.at, held.snapshot, held.sum, batch.then
            many, count, dim = len(model.S) > 1, len(rows), len(at)
            for j in range(dim):
                then[j] = at[j] - snapshot[j] if reduced else at[j]
                total[j] = 0.0
            for k in range(count if many else 1):  # one S for all: its product once
                S = model.S[rows[k]] if many else model.S[0]
                for i in range(dim):
                    product = 0.0
                    for j in range(dim):
                        product += S[i, j] * then[j]
                    total[i] += product / count if many else product
            if not reduced:
                for k in range(count):
                    for j in range(dim):
                        total[j] -= model.forces[rows[k], j] / count

        return gaussian

    def by_rows(model, rows, weights, reduced, remembers, held, batch):
        memory, total, count = held.memory, held.sum, len(rows)
        u, t, labels, s, then = batch.u, batch.t, batch.labels, batch.slopes, batch.then
        _row_slopes(model, rows, held.at, u, t, labels, s)
        for b in range(count):
            labels[b] = s[b]
        if reduced and remembers:
            for b in range(count):
                s[b] -= memory[rows[b]]
        elif reduced:
            _row_slopes(model, rows, held.snapshot, u, t, then, then)
            for b in range(count):
                s[b] -= then[b]
        weigh(model, rows, weights, s)
        total[:] = 0
        weight = t.dtype.type(len(model.y) / count)  # a component is n losses
        for b in range(count):
            row_add(model, rows[b], s[b] * weight, total)

    return by_rows


# Random rows and normals.


@njit(**PLAIN)
def _below(w0, w1, bound):
    high = np.uint64(w0) * np.uint64(bound)
    low = (np.uint64(w1) * np.uint64(bound)) >> np.uint64(32)
    return np.int64((high + low) >> np.uint64(32))


@njit(**PLAIN)
def draw_weighted(w0, w1, threshold, alias, out):
    """Row numbers from random words, as `randomness.Stream.weighted` defines them."""
    bound = np.uint64(len(alias))
    for k in range(len(out)):
        product = np.uint64(w0[k]) * bound + ((np.uint64(w1[k]) * bound) >> np.uint64(32))
        bucket = np.int64(product >> np.uint64(32))
        rest = product & np.uint64(0xFFFFFFFF)
        out[k] = bucket if rest < np.uint64(threshold[bucket]) else alias[bucket]


@njit(**PLAIN)
def draw_rows(w0, w1, n, replacement, out, seen):
    """Row numbers from random words, as `randomness.Stream.indices` defines them."""
    count = len(out)
    if replacement:
        for k in range(count):
            out[k] = _below(w0[k], w1[k], n)
        return
    mask = len(seen) - 1
    seen[:] = -1
    first = n - count
    for k in range(count):
        pick = _below(w0[k], w1[k], first + k + 1)
        place = _place(pick, mask, seen)
        if seen[place] == pick:
            pick = first + k  # the newest possible number, which cannot have been taken
            place = _place(pick, mask, seen)
        seen[place] = pick
        out[k] = pick


@njit(**PLAIN)
def _place(pick, mask, seen):
    """Where a number stands in the hash table, or would."""
    place = (pick * 0x9E3779B1) & mask
    while seen[place] >= 0 and seen[place] != pick:
        place = (place + 1) & mask
    return place


@njit(**INLINE)
def _draw_batches(model, k0, k1, base, steps, plan, draw, words, rows):
    """The rows of the batches of a chunk of steps."""
    count = steps * plan.batch
    w0, w1 = words[0], words[1]
    random_words(k0, k1, base, draw.steps[:count], draw.slots[:count], w0[:count], w1[:count])
    if not draw_by_table(model, plan, w0[:count], w1[:count], draw, rows):
        size = count if plan.replacement else plan.batch
        for low in range(0, count, size):
            high = low + size
            draw_rows(w0[low:high], w1[low:high], plan.n, plan.replacement, rows[low:high], draw.seen)


def draw_by_table(model, plan, w0, w1, draw, rows):
    """Rows by the alias table, where they are drawn so; gives whether they are."""


@overload(draw_by_table, jit_options=PLAIN, inline="always")
def _draw_by_table(model, plan, w0, w1, draw, rows):
    if _plain(model):
        return lambda model, plan, w0, w1, draw, rows: False

    def by_table(model, plan, w0, w1, draw, rows):
        if plan.importance:
            draw_weighted(w0, w1, draw.threshold, draw.alias, rows[: len(w0)])
        return plan.importance

    return by_table


@njit(**INLINE)
def fill_noise(k0, k1, base, count, steps, slots, fine_slots, words, normals):
    """Normals of a chunk of steps."""
    random_words(k0, k1, base, steps[:count], slots[:count], words[0, :count], words[1, :count])
    if len(fine_slots):
        random_words(k0, k1, base, steps[:count], fine_slots[:count], words[2, :count], words[3, :count])
    for k in range(2):
        make_normals(words[k, :count], words[2 + k, :count], normals[k, :count], normals[2, :count])


# The two halves of a step.


@njit(forceinline=True, **PLAIN)
def _copy(source, out):
    for j in range(len(out)):
        out[j] = source[j]


@njit(forceinline=True, **QUICK)
def _move(table, x, v, gradient, z, at):
    """(x, v) ← M (x, v) − k g + L ξ, with k, M and L in the table and ξ in z.

    `gradient` holds what g = prior·x − (the prior's pull) + ḡ + (what the batch adds) is made of. `at`
    becomes x in the rows' precision.
    Gives True while the state is finite.
    """
    unshared()
    prior, force, anchor, batch = gradient
    dim = len(x)
    kick_x, kick_v = table[0], table[1]
    xx, xv, vx, vv = table[2], table[3], table[4], table[5]
    lvv, lxv, lxx = table[6], table[7], table[8]
    second = dim if (lvv != 0.0 or lxv != 0.0) and lxx != 0.0 else 0
    ones, twos = z[:dim], z[second : second + dim]  # slices: a sum as an index would be checked for its sign
    check = 0.0
    for j in range(dim):
        old_x, old_v = x[j], v[j]
        one, two = np.float64(ones[j]), np.float64(twos[j])
        g = prior[j] * old_x - force[j] + anchor[j] + np.float64(batch[j])
        new_x = xx * old_x + xv * old_v + (lxv * one + lxx * two) - kick_x * g
        new_v = vx * old_x + vv * old_v + lvv * one - kick_v * g
        x[j], v[j], at[j] = new_x, new_v, new_x
        check += new_x * 0.0 + new_v * 0.0
    return check == 0.0


# What a model with a frame does besides.


def displaced(model, z, held):
    """`held.at` = the displacement u that the rows meet; without a frame z is there already."""


@overload(displaced, jit_options=PLAIN, inline="always")
def _displaced(model, z, held):
    if _plain(model):
        return lambda model, z, held: None

    def framed(model, z, held):
        if model.frame.kind != PLACE:
            displace(model.frame, z, held.room, held.at)

    return framed


def pulled(model, gradient, room):
    """A gradient with respect to x becomes one with respect to the state, in its place."""


@overload(pulled, jit_options=PLAIN, inline="always")
def _pulled(model, gradient, room):
    if _plain(model):
        return lambda model, gradient, room: None
    return lambda model, gradient, room: pull(model.frame, gradient, room, gradient)


def finish_gradient(model, plan, held):
    """What the batch's part needs before it joins the rest of the gradient."""


@overload(finish_gradient, jit_options=PLAIN, inline="always")
def _finish_gradient(model, plan, held):
    if _plain(model):
        return lambda model, plan, held: None

    def framed(model, plan, held):
        if plan.second:
            _expand(held.base, held.hessian, held.at, held.anchor)
        if model.frame.kind >= DENSE:
            _pull_batch(model.frame, model.inner, plan.kind == FULL, held.at, held.room, held.sum)

    return framed


@njit(**QUICK)
def _expand(base, hessian, away, out):
    """∇f(x̂) + H(x − x̂), without the prior."""
    for j in range(len(out)):
        out[j] = base[j]
    for k in range(len(away)):
        row, length = hessian[k], np.float64(away[k])
        for j in range(len(out)):
            out[j] += row[j] * length


@njit(**QUICK)
def _pull_batch(frame, inner, full, at, room, batch):
    """The batch's part in the variables of the chain, with the prior's where the frame does not hold it."""
    if frame.kind == LOW_RANK:
        for j in range(len(batch)):
            rows = 0.0 if full else np.float64(batch[j])
            batch[j] = rows + inner[j] * at[j]
    if frame.kind == LOW_RANK or not full:
        pull(frame, batch, room, batch)


def remember(model, plan, held):
    """SAGA: keep the rows' part of the gradient as it is before it is pulled back."""


@overload(remember, jit_options=PLAIN, inline="always")
def _remember(model, plan, held):
    if _plain(model):
        return lambda model, plan, held: None

    def framed(model, plan, held):
        if plan.saga:
            for j in range(len(held.base)):
                held.base[j] = held.anchor[j]

    return framed


def renew(model, plan, rows, labels, held):
    """SAGA: the slopes just found replace those remembered, and the anchor follows; a row drawn twice is renewed
    once.
    """


@overload(renew, jit_options=PLAIN, inline="always")
def _renew(model, plan, rows, labels, held):
    if _plain(model):
        return lambda model, plan, rows, labels, held: None

    def framed(model, plan, rows, labels, held):
        if plan.saga:
            for b in range(len(rows)):
                i = rows[b]
                change = np.float64(labels[b]) - np.float64(held.memory[i])
                held.memory[i] = labels[b]
                row_add(model, i, change, held.base)
            for j in range(len(held.anchor)):
                held.anchor[j] = held.base[j]
            pulled(model, held.anchor, held.room)

    return framed


@njit(**INLINE)
def _refresh(model, plan, k0, k1, base, held, sums, batch, draw, words):
    """The anchor (and memory) at the present state: from all rows, or from some drawn for this snapshot."""
    for j in range(len(held.at)):
        held.snapshot[j] = held.at[j]
    size = plan.snapshot_rows
    if size == 0:
        sum_blocks(model, held.at, 0, len(sums.partial), sums, held.memory, plan.remembers)
        _join(sums.partial, held.anchor)
        remember(model, plan, held)
    else:
        w0, w1 = words[0], words[1]
        for k in range(size):
            w0[k], w1[k] = threefry(k0, k1, base, np.uint32(SNAPSHOT_SLOT + k))
        rows = batch.rows[len(batch.rows) - size :]
        draw_rows(w0[:size], w1[:size], plan.n, plan.replacement, rows, draw.seen)
        rows_gradient(model, rows, batch.weights[:0], False, False, held, batch)
        for j in range(len(held.at)):
            held.anchor[j] = held.sum[j]
    pulled(model, held.anchor, held.room)


@njit(**ENTRY)
def pass_blocks(model, x, begin, end, sums, memory, keep):
    """One thread's share of a pass over all rows."""
    sum_blocks(model, x, begin, end, sums, memory, keep)


@njit(**ENTRY)
def all_slopes(loss, scale, t, y, out):
    """The slopes of many rows at their predictors."""
    slopes(loss, scale, t, y, out)


@njit(**ENTRY)
def join_blocks(model, partial, room, anchor):
    """What joins the shares."""
    _join(partial, anchor)
    pulled(model, anchor, room)


@njit(**ENTRY)
def advance(model, plan, table, held, sums, batch, draw, noise, k0, k1, x, v, draws, chains, steps, passed, outside):
    """Run chains from one step to another; each chain's keys, state and draws are rows of the arrays.

    Gives (reason, chain, step): DONE; DIVERGED in that step; or PASS_DUE, a pass over all rows before that step,
    which the caller makes on many threads (only if `outside`) and then calls again with `passed`.
    """
    dim = x.shape[1]
    at, z, words, rows, size = held.at, noise.z, noise.words, batch.rows, plan.batch
    gradient = model.prior, model.prior_force, held.anchor, held.sum
    first, second = noise.normals[0], noise.normals[1]
    half = (len(z) + 1) // 2  # blocks of random words a step
    span = len(noise.steps) // half  # steps whose noise is made together
    later = z[min(plan.before_normals * dim, len(z) - dim) :]  # what is not used is read all the same, and times 0
    for chain in range(chains[0], chains[1]):
        xc, vc = x[chain], v[chain]
        for j in range(dim):
            at[j] = xc[j]
        step = steps[0]
        while step < steps[1]:
            count = min(span, steps[1] - step)
            base = np.uint32(step & 0xFFFFFFFF)
            if plan.kind != FULL:
                _draw_batches(model, k0[chain], k1[chain], base, count, plan, draw, words, rows)
            fill_noise(
                k0[chain], k1[chain], base, count * half,
                noise.steps, noise.slots, noise.fine_slots, words, noise.normals,
            )  # fmt: skip
            for s in range(count):
                _copy(first[s * half : (s + 1) * half], z[:half])
                _copy(second[s * half : (s + 1) * half], z[half:])
                if plan.before and not passed:
                    _move(table[:9], xc, vc, gradient, z, at)
                displaced(model, xc, held)
                if plan.kind == FULL or (
                    plan.kind == SVRG and not plan.anchored and (step % plan.epoch == 0 or step == plan.begin)
                ):
                    if outside and not passed:
                        return PASS_DUE, chain, step
                    if not passed:
                        now = np.uint32(step & 0xFFFFFFFF)
                        _refresh(model, plan, k0[chain], k1[chain], now, held, sums, batch, draw, words)
                passed = False
                picked = rows[s * size : (s + 1) * size]
                if plan.kind != FULL:
                    if plan.far_rows and s + 1 < count:
                        for b in range((s + 1) * size, (s + 2) * size):
                            row_prefetch(model, rows[b])
                    rows_gradient(model, picked, batch.weights, plan.kind == SVRG, plan.remembers, held, batch)
                finish_gradient(model, plan, held)
                fine = _move(table[9:], xc, vc, gradient, later, at)
                renew(model, plan, picked, batch.labels, held)
                step += 1
                if not fine:
                    return DIVERGED, chain, step
                if step >= plan.first and (step - plan.first) % plan.thin == 0:
                    slot = (step - plan.first) // plan.thin
                    for j in range(dim):
                        draws[chain, slot, j] = xc[j]
    return DONE, 0, steps[1]
