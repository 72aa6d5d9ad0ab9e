"""The Cholesky factor of a sparse matrix, column by column, in the form of `svrhmc.kernels.triangular`.

With K the matrix in the order of elimination, column b of its factor takes what every column j before it with Lbⱼ ≠ 0
leaves (left-looking, Gilbert & Peierls 1988),

    y = K·b − Σⱼ Lbⱼ L·ⱼ,        Lbb = √y_b,   L·b = y/Lbb,

of which no entry is outside the pattern of L. Columns of the core take what the head leaves, and are factorised as a
dense matrix elsewhere.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import ENTRY, PLAIN, kept, peek, unshared


@njit(**PLAIN)
def _take(rows, values, low, high, size, y, offset):
    """y −= size L·ⱼ, the entries of which are those from `low` on."""
    unshared()
    for e in range(low, high):
        y[np.uint32(peek(rows, e) - offset)] -= size * peek(values, e)


@kept
@njit(**ENTRY)
def factor_head(begin, rows, line_begin, line_entry, line_column, values, inverse, core, y):
    """L of the head in the place of the entries of K, 1/Lⱼⱼ in that of its diagonal, and what is left of the core.

    line_begin, line_entry, line_column: where L has entries in each of its rows, and in which columns. y: room for a
    column, of the head. Not a number where there is no factor.
    """
    head = len(begin) - 1
    for b in range(head):
        first, last = begin[b], begin[b + 1]
        y[b] = inverse[b]
        for e in range(first, last):
            y[rows[e]] = values[e]
        for t in range(line_begin[b], line_begin[b + 1]):
            e = line_entry[t]
            _take(rows, values, e, begin[line_column[t] + 1], values[e], y, 0)
        pivot = 1.0 / math.sqrt(y[b])
        inverse[b] = pivot
        for e in range(first, last):
            values[e] = y[rows[e]] * pivot
    for c in range(len(core)):
        line = core[c]
        for t in range(line_begin[head + c], line_begin[head + c + 1]):
            e = line_entry[t]
            _take(rows, values, e, begin[line_column[t] + 1], values[e], line, head)
