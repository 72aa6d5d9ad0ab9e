"""Passes over rows that lie column by column, as tables do: products and sums in float64, in an order of their own.

X is (columns, rows). Tile by tile of rows, entries are copied to float64, where all sums over them are made: so each
entry is read from memory once, whatever is asked of it. A tile has so few rows that BLAS multiplies it on one thread,
and no digit depends on how many there are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import KEPT

_ALONE = 1 << 18  # multiplications for which BLAS uses one thread
_TILE, _LEAST = 512, 32  # rows
_OPTIONS = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}, "nogil": True, "cache": KEPT}


def tile_rows(columns: int) -> int:
    """The rows of a tile, for so many columns."""
    return int(max(_LEAST, min(_TILE, _ALONE // (columns * (columns + 1)))))


@njit(**_OPTIONS)
def predict(X, x, t):
    """t += aᵢᵀx of every row."""
    for low in range(0, len(t), _TILE):
        high = min(low + _TILE, len(t))
        for j in range(len(x)):
            column, factor = X[j], x[j]
            for k in range(low, high):
                t[k] += factor * np.float64(column[k])


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


@njit(**_OPTIONS)
def gram(X, s, c, rows, total):
    """The first rows of total += Σ cᵢaᵢaᵢᵀ, and its last += Σ sᵢaᵢ; `rows` make a tile."""
    dim, n = X.shape
    tile, scaled, product = np.zeros((dim, rows)), np.zeros((dim + 1, rows)), np.zeros((dim + 1, dim))
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
        np.dot(scaled, tile.T, product)
        total += product


@njit(**_OPTIONS)
def squares(X, turned, rows, out):
    """|Fᵀaᵢ|² of every row, Fᵀ being `turned`; `rows` make a tile."""
    dim, n = X.shape
    tile, image = np.zeros((dim, rows)), np.zeros((len(turned), rows))
    for low in range(0, n, rows):
        count = min(rows, n - low)
        for j in range(dim):
            column, row = X[j], tile[j]
            for k in range(count):
                row[k] = np.float64(column[low + k])
        np.dot(turned, tile, image)
        for k in range(count):
            out[low + k] = 0.0
        for e in range(len(turned)):
            row = image[e]
            for k in range(count):
                out[low + k] += row[k] * row[k]
