"""Passes over many rows with products and sums in float64, whatever the rows are stored in."""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import kept
from svrhmc.kernels.layout import BLOCK, TILE
from svrhmc.kernels.losses import shift, weigh
from svrhmc.kernels.wide import sizes, tile_slopes

_PART = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
_OPTIONS = {**_PART, "nogil": True}


@kept
@njit(**_OPTIONS)
def predict(X, x, low, high, out):
    """out = aᵢᵀx of some rows."""
    for i in range(low, high):
        row, total = X[i], 0.0
        for j in range(len(x)):
            total += np.float64(row[j]) * x[j]
        out[i] = total


@kept
@njit(**_OPTIONS)
def combine(X, weights, low, high, partial):
    """Add wᵢaᵢ of some rows to the sums of their blocks."""
    for i in range(low, high):
        row, weight, total = X[i], weights[i], partial[i // BLOCK]
        for j in range(len(row)):
            total[j] += weight * row[j]


@njit(**_PART)
def _dots(X, x, begin, end, t):
    """t = aᵢᵀx of the rows of a tile, four by four."""
    dim, whole = len(x), begin + (end - begin) // 4 * 4
    for i in range(begin, whole, 4):
        a, b, c, d = X[i], X[i + 1], X[i + 2], X[i + 3]
        ta = tb = tc = td = 0.0
        for j in range(dim):
            ta += np.float64(a[j]) * x[j]
            tb += np.float64(b[j]) * x[j]
            tc += np.float64(c[j]) * x[j]
            td += np.float64(d[j]) * x[j]
        t[i - begin], t[i - begin + 1], t[i - begin + 2], t[i - begin + 3] = ta, tb, tc, td
    for i in range(whole, end):
        row, ta = X[i], 0.0
        for j in range(dim):
            ta += np.float64(row[j]) * x[j]
        t[i - begin] = ta


@njit(**_PART)
def _add(X, s, begin, end, total):
    """total += Σ sᵢaᵢ of the rows of a tile, four by four."""
    dim, whole = len(total), begin + (end - begin) // 4 * 4
    for i in range(begin, whole, 4):
        a, b, c, d = X[i], X[i + 1], X[i + 2], X[i + 3]
        k = i - begin
        wa, wb, wc, wd = s[k], s[k + 1], s[k + 2], s[k + 3]
        for j in range(dim):
            total[j] += (wa * a[j] + wb * b[j]) + (wc * c[j] + wd * d[j])
    for i in range(whole, end):
        row, wa = X[i], s[i - begin]
        for j in range(dim):
            total[j] += wa * row[j]


@kept
@njit(**_OPTIONS)
def gradient(loss, X, y, offset, weights, x, low, high, partial, t, s):
    """Add Jᵢᵀ(wᵢ∂ℓ/∂t) to the sums of the rows' blocks, each row read once; t and s are room for a tile.

    The k blocks and q shared parameters of a family that has one predictor are constants here, and the loops over them
    are none: it takes 1.01 to 1.02 times as long as a body without them (1.05 for 4 columns if they were no constants).
    """
    (k, q), p = sizes(loss), X.shape[1]
    for begin in range(low, high, TILE):
        end = min(high, begin + TILE)
        count, total = end - begin, partial[begin // BLOCK]
        for c in range(k):
            _dots(X, x[c * p : (c + 1) * p], begin, end, t[c])
        for j in range(q):
            t[k + j, :count] = x[k * p + j]
        shift(offset, begin, count, t[0])
        tile_slopes(loss, count, t, y[begin:end], s)
        for c in range(k + q):
            weigh(weights, begin, count, s[c])
        for c in range(k):
            _add(X, s[c], begin, end, total[c * p : (c + 1) * p])
        for j in range(q):
            for b in range(count):
                total[k * p + j] += s[k + j, b]


@kept
@njit(**_OPTIONS)
def lower_gram(data, columns, begin, weights, out):
    """Add Σ wᵢaᵢaᵢᵀ of sparse rows, whose columns are sorted, to the lower triangle of `out`."""
    for i in range(len(weights)):
        first, last = begin[i], begin[i + 1]
        for k in range(first, last):
            row, weight = out[columns[k]], weights[i] * data[k]
            for j in range(first, k + 1):
                row[columns[j]] += weight * data[j]
