"""Rows, dense and sparse: products with one of them or with a tile of consecutive ones, in their precision."""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK, peek, prefetch
from svrhmc.kernels.layout import TILE, DenseModel, SparseModel, is_a


def row_dot(model, i, x):
    """aᵢᵀx; x may be padded."""


def row_add(model, i, weight, total):
    """total += weight·aᵢ; total may be padded."""


def row_prefetch(model, i):
    """Ask for row i before it is needed."""


@overload(row_dot, jit_options={**QUICK, "forceinline": True})
def _row_dot(model, i, x):
    if is_a(model, DenseModel):

        def dense(model, i, x):
            total = model.X[i, 0] * x[0]
            for j in range(1, model.X.shape[1]):
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
    if is_a(model, DenseModel):

        def dense(model, i, weight, total):
            for j in range(model.X.shape[1]):
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


@overload(row_prefetch, jit_options={**PLAIN, "forceinline": True})
def _row_prefetch(model, i):
    if is_a(model, DenseModel):

        def dense(model, i):
            dim = model.X.shape[1]
            for j in range(0, dim, 64 // model.X.itemsize):
                prefetch(model.X, i * dim + j)

        return dense
    if is_a(model, SparseModel):

        def sparse(model, i):
            for k in range(model.begin[i], model.begin[i + 1], 16):
                prefetch(model.columns, k)
                if len(model.data) > 1:
                    prefetch(model.data, k)

        return sparse
    return lambda model, i: None


def pair_dots(model, i, a, b):
    """(aᵢᵀa, aᵢᵀb); a and b may be padded with zeros."""


@overload(pair_dots, jit_options={**QUICK, "forceinline": True})
def _pair_dots(model, i, a, b):
    if is_a(model, DenseModel):

        def dense(model, i, a, b):
            flat, dim = model.flat, model.X.shape[1]
            begin = i * dim
            length = len(a) if begin + len(a) <= flat.size else dim
            first = second = a.dtype.type(0)
            for j in range(length):
                first += peek(flat, begin + j) * a[j]
                second += peek(flat, begin + j) * b[j]
            return first, second

        return dense
    return lambda model, i, a, b: (row_dot(model, i, a), row_dot(model, i, b))


def some_predictors(model, rows, x, t):
    """t[b] = aᵀx of row rows[b]; x may be padded with zeros."""


@overload(some_predictors, jit_options=QUICK)
def _some_predictors(model, rows, x, t):
    if is_a(model, DenseModel):

        def dense(model, rows, x, t):
            flat, dim, count = model.flat, model.X.shape[1], len(rows)
            for k in range(0, count - 3, 4):
                a, b, c, d = rows[k] * dim, rows[k + 1] * dim, rows[k + 2] * dim, rows[k + 3] * dim
                length = len(x) if max(max(a, b), max(c, d)) + len(x) <= flat.size else dim
                ta = tb = tc = td = x.dtype.type(0)
                for j in range(length):
                    ta += peek(flat, a + j) * x[j]
                    tb += peek(flat, b + j) * x[j]
                    tc += peek(flat, c + j) * x[j]
                    td += peek(flat, d + j) * x[j]
                t[k], t[k + 1], t[k + 2], t[k + 3] = ta, tb, tc, td
            for k in range(count // 4 * 4, count):
                t[k] = row_dot(model, rows[k], x)

        return dense

    def sparse(model, rows, x, t):
        for k in range(len(rows)):
            t[k] = row_dot(model, rows[k], x)

    return sparse


def some_sum(model, rows, s, total):
    """total += Σ s[b]·(row rows[b]), in the precision of the rows; what is added beyond the row's end is of no use."""


@overload(some_sum, jit_options=QUICK)
def _some_sum(model, rows, s, total):
    if is_a(model, DenseModel):

        def dense(model, rows, s, total):
            flat, dim, count, kind = model.flat, model.X.shape[1], len(rows), total.dtype.type
            for k in range(0, count - 3, 4):
                a, b, c, d = rows[k] * dim, rows[k + 1] * dim, rows[k + 2] * dim, rows[k + 3] * dim
                length = len(total) if max(max(a, b), max(c, d)) + len(total) <= flat.size else dim
                sa, sb, sc, sd = kind(s[k]), kind(s[k + 1]), kind(s[k + 2]), kind(s[k + 3])
                for j in range(length):
                    two = sa * peek(flat, a + j) + sb * peek(flat, b + j)
                    total[j] += two + (sc * peek(flat, c + j) + sd * peek(flat, d + j))
            for k in range(count // 4 * 4, count):
                row_add(model, rows[k], kind(s[k]), total)

        return dense

    def sparse(model, rows, s, total):
        for k in range(len(rows)):
            row_add(model, rows[k], total.dtype.type(s[k]), total)

    return sparse


# Tiles.


def tile_predictors(model, x, low, high, t):
    """t[i − low] = aᵢᵀx for the rows of a tile; x may be padded with zeros."""


def tile_sum(model, s, low, high, tile, total):
    """total += Σ s[i − low]·aᵢ over the rows of a tile; what is added beyond the row's end is of no use.

    Dense rows are summed in their own precision within the tile, and in float64 from tile to tile.
    """


@njit(**INLINE)
def _prefetch_tile(flat, begin, count):
    """Ask for two rows of the next tile: each of the two loops over a tile asks for one half of it."""
    for j in range(0, count, 64 // flat.itemsize):
        prefetch(flat, begin + j)


@overload(tile_predictors, jit_options=QUICK)
def _tile_predictors(model, x, low, high, t):
    if is_a(model, DenseModel):

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
    if is_a(model, DenseModel):

        def dense(model, s, low, high, tile, total):
            flat, dim, pad = model.flat, model.X.shape[1], len(tile)
            tile[:] = 0
            for i in range(low, high, 4):
                _prefetch_tile(flat, (low + TILE + TILE // 2 + (i - low) // 2) * dim, 2 * dim)
                a, b, c, d = i * dim, (i + 1) * dim, (i + 2) * dim, (i + 3) * dim
                k, kind = i - low, tile.dtype.type
                sa, sb, sc, sd = kind(s[k]), kind(s[k + 1]), kind(s[k + 2]), kind(s[k + 3])
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
    if is_a(model, DenseModel):
        return lambda model, low, high, pad: (
            high - low == TILE and (high - 1) * model.X.shape[1] + pad <= model.flat.size
        )
    return lambda model, low, high, pad: True


def tile_end(model, low, high, pad):
    """The last row of a tile up to which rows may be read four by four, and `pad` numbers from each."""


@overload(tile_end, jit_options=PLAIN)
def _tile_end(model, low, high, pad):
    if is_a(model, DenseModel):

        def dense(model, low, high, pad):
            end = low + (high - low) // 4 * 4
            while end > low and (end - 1) * model.X.shape[1] + pad > model.flat.size:
                end -= 4
            return end

        return dense
    return lambda model, low, high, pad: high
