"""Passes over rows that lie column by column, as tables do: products and sums in float64, in an order of their own.

X is (columns, rows). Tile by tile of rows, entries are copied to float64, where all sums over them are made: so each
entry is read from memory once, whatever is asked of it. A tile has so few rows that BLAS multiplies it on one thread,
and no digit depends on how many there are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import kept

_ALONE = 1 << 18  # multiplications for which BLAS uses one thread
_TILE, _SIDE = 512, 64  # rows of a tile; columns of a part of a product, and rows where there are more columns
_OPTIONS = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}, "nogil": True}


def tile_rows(columns: int) -> int:
    """The rows of a tile, for so many columns."""
    return _SIDE if columns >= _SIDE else int(min(_TILE, _ALONE // (columns * (columns + 1))))


@kept
@njit(**_OPTIONS)
def predict(X, x, t):
    """t += aᵢᵀx of every row."""
    for low in range(0, len(t), _TILE):
        high = min(low + _TILE, len(t))
        for j in range(len(x)):
            column, factor = X[j], x[j]
            for k in range(low, high):
                t[k] += factor * np.float64(column[k])


@kept
@njit(**_OPTIONS)
def combine(X, s, total):
    """total += Σ sᵢaᵢ, in sums of a tile each."""
    for j in range(len(X)):
        column = X[j]
        for low in range(0, len(s), _TILE):
            part = 0.0
            for k in range(low, min(low + _TILE, len(s))):
                part += s[k] * np.float64(column[k])
            total[j] += part


@kept
@njit(**_OPTIONS)
def gram(X, s, c, rows, total):
    """The first rows of total += Σ cᵢaᵢaᵢᵀ, and its last += Σ sᵢaᵢ; `rows` make a tile."""
    dim, n = X.shape
    tile, scaled = np.zeros((dim, rows)), np.zeros((dim + 1, rows))
    side = dim + 1 if dim < _SIDE else _SIDE
    room = np.zeros(side * side)
    for low in range(0, n, rows):
        count = min(rows, n - low)
        if count < rows:
            tile[:] = 0.0
            scaled[:] = 0.0
        for j in range(dim):
            column, row, other = X[j], tile[j], scaled[j]
            for k in range(count):
                row[k] = np.float64(column[low + k])
                other[k] = c[low + k] * row[k]
        for k in range(count):
            scaled[dim, k] = s[low + k]
        for a in range(0, dim + 1, side):
            end = min(a + side, dim + 1)
            for b in range(0, dim, side):
                last = min(b + side, dim)
                product = room[: (end - a) * (last - b)].reshape(end - a, last - b)
                np.dot(scaled[a:end], tile[b:last].T, product)
                total[a:end, b:last] += product


@kept
@njit(**_OPTIONS)
def squares(X, turned, rows, out):
    """|Fᵀaᵢ|² of every row, Fᵀ being `turned`; `rows` make a tile."""
    dim, n = X.shape
    side, images = min(_SIDE, dim) if dim >= _SIDE else dim, len(turned)
    tall = min(_SIDE, images) if dim >= _SIDE else images
    tile, image, room = np.zeros((dim, rows)), np.zeros((tall, rows)), np.zeros((tall, rows))
    some = np.zeros(tall * side)
    for low in range(0, n, rows):
        count = min(rows, n - low)
        for j in range(dim):
            column, row = X[j], tile[j]
            for k in range(count):
                row[k] = np.float64(column[low + k])
        for k in range(count):
            out[low + k] = 0.0
        for e in range(0, images, tall):
            end = min(e + tall, images)
            image[:] = 0.0
            for j in range(0, dim, side):
                last = min(j + side, dim)
                part = some[: (end - e) * (last - j)].reshape(end - e, last - j)
                part[:] = turned[e:end, j:last]
                np.dot(part, tile[j:last], room[: end - e])
                image += room
            for f in range(end - e):
                row = image[f]
                for k in range(count):
                    out[low + k] += row[k] * row[k]
