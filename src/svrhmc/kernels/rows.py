"""The one accessor of rows: products of some rows with a state, and sums of rows, however their entries lie.

Rows are consecutive ones, a tile, for one state or several that are read beside each other, or picked ones, a batch.
Products have the precision of the state, in which each row is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import overload

from svrhmc.core.arrays import Integers, Reals, Values
from svrhmc.families.base import Window
from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK, STRICT, larger, peek, prefetch, unshared
from svrhmc.kernels.layout import TILE, Layout, is_a, is_none

Number = TypeVar("Number", bound=np.generic)

_LANES = {np.dtype(np.float32): 32, np.dtype(np.float64): 16}  # numbers that a vector loop takes at once
_PADDING = 1.4  # rows are read to a multiple of that where it costs no more than this


class DenseRows(NamedTuple):
    """Rows of a C-ordered array, one behind the other, of so many columns."""

    flat: Reals
    dim: int

    def layout(self, windows: Sequence[Window], columns: int, kind: type[np.floating]) -> Layout:
        """How states of this type are read: of each predictor the columns that it sees, padded where that costs
        little to whole vectors.
        """
        lengths = [1 if window.shared else _padded(window.width, kind) for window in windows]
        return _layout(windows, lengths, [0] * len(windows))


class SparseRows(NamedTuple):
    """CSR rows; `data` has length 1 where all entries are one number, as in one-hot rows."""

    data: Reals
    columns: Integers
    begin: Integers

    def layout(self, windows: Sequence[Window], columns: int, kind: type[np.floating]) -> Layout:
        """How states are read: of each predictor all columns."""
        lengths = [1 if window.shared else columns for window in windows]
        return _layout(windows, lengths, [0 if window.shared else window.first for window in windows])


Rows = DenseRows | SparseRows


def _padded(columns: int, kind: type[np.floating]) -> int:
    """To how many numbers columns are read, for a state of this type: where it costs little, to whole vectors."""
    lanes = _LANES[np.dtype(kind)]
    width = -(-columns // lanes) * lanes
    return width if width <= _PADDING * columns else columns


def _layout(windows: Sequence[Window], lengths: Sequence[int], within: Sequence[int]) -> Layout:
    """States that have so many numbers for each predictor, its own from some place within these on."""
    begin = np.cumsum([0, *lengths])
    pieces = [
        begin[c] + at + np.arange(window.coefficients.stop - window.place)
        for c, (window, at) in enumerate(zip(windows, within, strict=True))
    ]
    parts = [window.first for window in windows], [window.width for window in windows], begin, np.concatenate(pieces)
    return Layout(*(fixed(np.array(part, np.int64)) for part in parts))


def dense_rows(X: Reals) -> DenseRows:
    """The record of an array."""
    return DenseRows(fixed(X).reshape(-1), X.shape[1])


def sparse_rows(X) -> SparseRows:
    """The record of a scipy CSR matrix."""
    data = X.data[:1] if _same(X.data[:1000]) and _same(X.data) else X.data
    return SparseRows(fixed(data), fixed(X.indices.astype(np.uint32)), fixed(X.indptr.astype(np.uint64)))


def fixed(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """A view that cannot be written, as memory maps are: so that both compile to the same code."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _same(values: Values) -> bool:
    """Whether there are values, and all of them are one number."""
    return len(values) > 0 and bool((values == values[0]).all())


def place_of(rows, size, chains, chain, j):
    """Where coordinate j of one of several states is, in an array of this size: they lie state by state, or for sparse
    rows coordinate by coordinate.
    """


@overload(place_of, jit_options={**PLAIN, "forceinline": True})
def _place_of(rows, size, chains, chain, j):
    if is_a(rows, DenseRows):
        return lambda rows, size, chains, chain, j: chain * (size // many(chains)) + j
    return lambda rows, size, chains, chain, j: j * many(chains) + chain


def many(chains):
    """How many states are read beside each other, where None says that it is one and no code is needed for more."""


@overload(many, jit_options={**PLAIN, "forceinline": True})
def _many(chains):
    return (lambda chains: 1) if is_none(chains) else (lambda chains: chains)


def row_dot(rows, i, first, count, x):
    """aᵢᵀx of so many columns from `first` on, of sparse rows of all; x may be padded."""


def row_add(rows, i, first, count, weight, total):
    """total += weight·aᵢ of so many columns from `first` on, of sparse rows of all; total may be padded."""


def window_add(rows, i, first, count, weight, total):
    """total += weight·aᵢ of so many columns from `first` on, of dense and of sparse rows."""


def row_prefetch(rows, i):
    """Ask for row i before it is needed."""


@overload(row_dot, jit_options={**QUICK, "forceinline": True})
def _row_dot(rows, i, first, count, x):
    if is_a(rows, DenseRows):

        def dense(rows, i, first, count, x):
            flat, begin = rows.flat, i * rows.dim + first
            total = x.dtype.type(0)
            for j in range(count):
                total += peek(flat, begin + j) * x[j]
            return total

        return dense

    return lambda rows, i, first, count, x: _sparse_dot(rows.data, rows.columns, rows.begin[i], rows.begin[i + 1], x)


@njit(**{**STRICT, "forceinline": True})
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
def _row_add(rows, i, first, count, weight, total):
    if is_a(rows, DenseRows):

        def dense(rows, i, first, count, weight, total):
            flat, begin = rows.flat, i * rows.dim + first
            for j in range(count):
                total[j] += weight * peek(flat, begin + j)

        return dense

    def sparse(rows, i, first, count, weight, total):
        data, columns = rows.data, rows.columns
        if len(data) == 1:
            same = weight * data[0]
            for k in range(rows.begin[i], rows.begin[i + 1]):
                total[columns[k]] += same
        else:
            for k in range(rows.begin[i], rows.begin[i + 1]):
                total[columns[k]] += weight * data[k]

    return sparse


@overload(window_add, jit_options={**QUICK, "forceinline": True})
def _window_add(rows, i, first, count, weight, total):
    if is_a(rows, DenseRows):
        return lambda rows, i, first, count, weight, total: row_add(rows, i, first, count, weight, total)

    def sparse(rows, i, first, count, weight, total):
        data, columns = rows.data, rows.columns
        for k in range(rows.begin[i], rows.begin[i + 1]):
            j = np.int64(columns[k]) - first
            if 0 <= j < count:
                total[j] += weight * (data[0] if len(data) == 1 else data[k])

    return sparse


@overload(row_prefetch, jit_options={**PLAIN, "forceinline": True})
def _row_prefetch(rows, i):
    if is_a(rows, DenseRows):

        def dense(rows, i):
            flat, dim = rows.flat, rows.dim
            for j in range(0, dim, 64 // flat.itemsize):
                prefetch(flat, i * dim + j)

        return dense

    def sparse(rows, i):
        for k in range(rows.begin[i], rows.begin[i + 1], 16):
            prefetch(rows.columns, k)
            if len(rows.data) > 1:
                prefetch(rows.data, k)

    return sparse


def pair_dots(rows, i, a, b):
    """(aᵢᵀa, aᵢᵀb); a and b may be padded with zeros."""


@overload(pair_dots, jit_options={**QUICK, "forceinline": True})
def _pair_dots(rows, i, a, b):
    if is_a(rows, DenseRows):

        def dense(rows, i, a, b):
            flat, dim = rows.flat, rows.dim
            begin = i * dim
            length = len(a) if begin + len(a) <= flat.size else dim
            first = second = a.dtype.type(0)
            for j in range(length):
                first += peek(flat, begin + j) * a[j]
                second += peek(flat, begin + j) * b[j]
            return first, second

        return dense

    def sparse(rows, i, a, b):
        data, columns, begin, end = rows.data, rows.columns, rows.begin[i], rows.begin[i + 1]
        return _sparse_dot(data, columns, begin, end, a), _sparse_dot(data, columns, begin, end, b)

    return sparse


def some_predictors(rows, picked, first, columns, x, t):
    """t[b] = aᵀx of row picked[b], of so many columns from `first` on; x may be padded with zeros."""


@overload(some_predictors, jit_options=QUICK)
def _some_predictors(rows, picked, first, columns, x, t):
    if is_a(rows, DenseRows):

        def dense(rows, picked, first, columns, x, t):
            flat, dim, count = rows.flat, rows.dim, len(picked)
            for k in range(0, count - 3, 4):
                a, b, c, d = picked[k] * dim, picked[k + 1] * dim, picked[k + 2] * dim, picked[k + 3] * dim
                a, b, c, d = a + first, b + first, c + first, d + first
                length = len(x) if larger(larger(a, b), larger(c, d)) + len(x) <= flat.size else columns
                ta = tb = tc = td = x.dtype.type(0)
                for j in range(length):
                    ta += peek(flat, a + j) * x[j]
                    tb += peek(flat, b + j) * x[j]
                    tc += peek(flat, c + j) * x[j]
                    td += peek(flat, d + j) * x[j]
                t[k], t[k + 1], t[k + 2], t[k + 3] = ta, tb, tc, td
            for k in range(count // 4 * 4, count):
                t[k] = row_dot(rows, picked[k], first, columns, x)

        return dense

    def sparse(rows, picked, first, columns, x, t):
        for k in range(len(picked)):
            t[k] = row_dot(rows, picked[k], first, columns, x)

    return sparse


def some_sum(rows, picked, first, columns, s, total):
    """total += Σ s[b]·(row picked[b]), of so many columns from `first` on (of sparse rows all), in the precision of the
    total; what is added beyond their end is of no use.
    """


@overload(some_sum, jit_options=QUICK)
def _some_sum(rows, picked, first, columns, s, total):
    if is_a(rows, DenseRows):

        def dense(rows, picked, first, columns, s, total):
            flat, dim, count, kind = rows.flat, rows.dim, len(picked), total.dtype.type
            for k in range(0, count - 3, 4):
                a, b, c, d = picked[k] * dim, picked[k + 1] * dim, picked[k + 2] * dim, picked[k + 3] * dim
                a, b, c, d = a + first, b + first, c + first, d + first
                length = len(total) if larger(larger(a, b), larger(c, d)) + len(total) <= flat.size else columns
                sa, sb, sc, sd = kind(s[k]), kind(s[k + 1]), kind(s[k + 2]), kind(s[k + 3])
                for j in range(length):
                    two = sa * peek(flat, a + j) + sb * peek(flat, b + j)
                    total[j] += two + (sc * peek(flat, c + j) + sd * peek(flat, d + j))
            for k in range(count // 4 * 4, count):
                row_add(rows, picked[k], first, columns, kind(s[k]), total)

        return dense

    def sparse(rows, picked, first, columns, s, total):
        for k in range(len(picked)):
            row_add(rows, picked[k], first, columns, total.dtype.type(s[k]), total)

    return sparse


# Tiles.


def tile_predictors(rows, first, count, states, chains, begin, length, low, high, t, line, lines):
    """t[line, i − low] = aᵢᵀx for the rows of a tile, of so many columns from `first` on (of sparse rows all), x being
    so many coordinates of a state from `begin` on, which may be padded with zeros; of several states (`many`), one or
    two for sparse rows, each `lines` further on.
    """


def tile_sum(rows, first, count, s, line, lines, low, high, tile, sums, chains, begin, length):
    """Σ s[line, i − low]·aᵢ over the rows of a tile is added to so many coordinates of a sum from `begin` on; what is
    added beyond the row's end is of no use.

    Dense rows are summed in the precision of `tile`, which is room, and in float64 from tile to tile.
    """


@njit(**INLINE)
def _prefetch_tile(flat, begin, count):
    """Ask for two rows of the next tile: each of the two loops over a tile asks for one half of it."""
    for j in range(0, count, 64 // flat.itemsize):
        prefetch(flat, begin + j)


@njit(**PLAIN)
def _fours(flat, dim, low, high, reach):
    """The last row of a tile up to which rows may be read four by four, and of each as many numbers as `reach`."""
    end = low + (high - low) // 4 * 4
    while end > low and (end - 1) * dim + reach > flat.size:
        end -= 4
    return end


@overload(tile_predictors, jit_options=QUICK)
def _tile_predictors(rows, first, count, states, chains, begin, length, low, high, t, line, lines):
    if is_a(rows, DenseRows):

        def dense(rows, first, count, states, chains, begin, length, low, high, t, line, lines):
            flat, dim, size = rows.flat, rows.dim, len(states) // many(chains)
            end = _fours(flat, dim, low, high, first + length)
            for chain in range(many(chains)):
                x = states[chain * size + begin : chain * size + begin + length]
                out = t[chain * lines + line]
                for i in range(low, end, 4):
                    _prefetch_tile(flat, (low + TILE + (i - low) // 2) * dim, 2 * dim)
                    a = i * dim + first
                    b, c, d = a + dim, a + 2 * dim, a + 3 * dim
                    ta = tb = tc = td = x.dtype.type(0)
                    for j in range(length):
                        ta += peek(flat, a + j) * x[j]
                        tb += peek(flat, b + j) * x[j]
                        tc += peek(flat, c + j) * x[j]
                        td += peek(flat, d + j) * x[j]
                    out[i - low], out[i - low + 1], out[i - low + 2], out[i - low + 3] = ta, tb, tc, td
                for i in range(end, high):
                    out[i - low] = row_dot(rows, i, first, count, x)

        return dense

    if is_none(chains):
        return lambda rows, first, count, states, chains, begin, length, low, high, t, line, lines: _sparse_dots(
            rows.data, rows.columns, rows.begin[low : high + 1], states[begin:], t[line]
        )

    def sparse(rows, first, count, states, chains, begin, length, low, high, t, line, lines):
        data, columns, starts = rows.data, rows.columns, rows.begin
        x, out = states[begin * chains :], t[line]
        if chains == 1:
            _sparse_dots(data, columns, starts[low : high + 1], x, out)
        else:
            _twin_dots(data, columns, starts[low : high + 1], x, out, t[lines + line])

    return sparse


@njit(**STRICT)
def _sparse_dots(data, columns, begin, x, out):
    """The products of consecutive rows."""
    unshared()
    for i in range(len(begin) - 1):
        out[i] = _sparse_dot(data, columns, begin[i], begin[i + 1], x)


@njit(**QUICK)
def _sparse_adds(data, columns, begin, s, total):
    """The sum of consecutive rows."""
    unshared()
    if len(data) == 1:
        for i in range(len(begin) - 1):
            same = np.float64(s[i]) * data[0]
            for k in range(begin[i], begin[i + 1]):
                total[columns[k]] += same
    else:
        for i in range(len(begin) - 1):
            weight = np.float64(s[i])
            for k in range(begin[i], begin[i + 1]):
                total[columns[k]] += weight * data[k]


@overload(tile_sum, jit_options=QUICK)
def _tile_sum(rows, first, count, s, line, lines, low, high, tile, sums, chains, begin, length):
    if is_a(rows, DenseRows):

        def dense(rows, first, count, s, line, lines, low, high, tile, sums, chains, begin, length):
            flat, dim, size, kind = rows.flat, rows.dim, len(sums) // many(chains), tile.dtype.type
            end = _fours(flat, dim, low, high, first + length)
            for chain in range(many(chains)):
                total, slopes = sums[chain * size + begin : chain * size + begin + length], s[chain * lines + line]
                tile[:length] = 0
                for i in range(low, end, 4):
                    _prefetch_tile(flat, (low + TILE + TILE // 2 + (i - low) // 2) * dim, 2 * dim)
                    a, k = i * dim + first, i - low
                    b, c, d = a + dim, a + 2 * dim, a + 3 * dim
                    sa, sb, sc, sd = kind(slopes[k]), kind(slopes[k + 1]), kind(slopes[k + 2]), kind(slopes[k + 3])
                    for j in range(length):
                        two = sa * peek(flat, a + j) + sb * peek(flat, b + j)
                        tile[j] += two + (sc * peek(flat, c + j) + sd * peek(flat, d + j))
                for j in range(length):
                    total[j] += np.float64(tile[j])
                for i in range(end, high):
                    row_add(rows, i, first, count, np.float64(slopes[i - low]), total)

        return dense

    if is_none(chains):
        return lambda rows, first, count, s, line, lines, low, high, tile, sums, chains, begin, length: _sparse_adds(
            rows.data, rows.columns, rows.begin[low : high + 1], s[line], sums[begin:]
        )

    def sparse(rows, first, count, s, line, lines, low, high, tile, sums, chains, begin, length):
        total, slopes = sums[begin * chains :], s[line]
        if chains == 1:
            _sparse_adds(rows.data, rows.columns, rows.begin[low : high + 1], slopes, total)
        else:
            _twin_adds(rows.data, rows.columns, rows.begin[low : high + 1], slopes, s[lines + line], total)

    return sparse


# Two states side by side, (x₀, x₀′, x₁, x₁′, …): one look at a column finds both, and each entry and its column are
# read once. The sums of each run in the order of `_sparse_dot` and `_sparse_adds`: no digit depends on the other state.


@njit(**{**STRICT, "forceinline": True})
def _twin_dot(data, columns, begin, end, x):
    a = b = c = d = x.dtype.type(0)
    e = f = g = h = x.dtype.type(0)
    whole = begin + ((end - begin) & ~np.uint64(3))
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    if len(data) == 1:
        for k in range(begin, whole, np.uint64(4)):
            i, j = two * columns[k], two * columns[k + one]
            m, n = two * columns[k + two], two * columns[k + three]
            a, e = a + x[i], e + x[i + one]
            b, f = b + x[j], f + x[j + one]
            c, g = c + x[m], g + x[m + one]
            d, h = d + x[n], h + x[n + one]
        for k in range(whole, end):
            i = two * columns[k]
            a, e = a + x[i], e + x[i + one]
        return data[0] * ((a + b) + (c + d)), data[0] * ((e + f) + (g + h))
    for k in range(begin, whole, np.uint64(4)):
        i, j = two * columns[k], two * columns[k + one]
        m, n = two * columns[k + two], two * columns[k + three]
        a, e = a + data[k] * x[i], e + data[k] * x[i + one]
        b, f = b + data[k + one] * x[j], f + data[k + one] * x[j + one]
        c, g = c + data[k + two] * x[m], g + data[k + two] * x[m + one]
        d, h = d + data[k + three] * x[n], h + data[k + three] * x[n + one]
    for k in range(whole, end):
        i = two * columns[k]
        a, e = a + data[k] * x[i], e + data[k] * x[i + one]
    return (a + b) + (c + d), (e + f) + (g + h)


@njit(**STRICT)
def _twin_dots(data, columns, begin, x, first, second):
    unshared()
    for i in range(len(begin) - 1):
        first[i], second[i] = _twin_dot(data, columns, begin[i], begin[i + 1], x)


@njit(**QUICK)
def _twin_adds(data, columns, begin, first, second, total):
    unshared()
    one, two = np.uint64(1), np.uint64(2)
    for i in range(len(begin) - 1):
        p, q = np.float64(first[i]), np.float64(second[i])
        if len(data) == 1:
            p, q = p * data[0], q * data[0]
            for k in range(begin[i], begin[i + 1]):
                j = two * columns[k]
                total[j] += p
                total[j + one] += q
        else:
            for k in range(begin[i], begin[i + 1]):
                j = two * columns[k]
                total[j] += p * data[k]
                total[j + one] += q * data[k]
