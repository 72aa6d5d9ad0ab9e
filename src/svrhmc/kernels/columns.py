"""Passes over rows that lie column by column, as tables do: products and sums in float64, in an order of their own.

X is (columns, rows). Tile by tile of rows, entries are copied to float64, where all sums over them are made: so each
entry is read from memory once, whatever is asked of it, and it is asked for a tile ahead. Sums of products take four
columns by four at a time, which is as many as registers hold. One thread makes all of it: no digit depends on how many
there are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import kept, prefetch

_TILE, _SIDE = 256, 64  # rows of a tile; and rows, and columns of a part of a product, where there are more columns
_LINE = 64  # bytes that come from memory together
_OPTIONS = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}, "nogil": True}


@kept
@njit(**_OPTIONS)
def predict(X, x, t):
    """t += aᵢᵀx of every row."""
    many = len(x) // 4 * 4
    for low in range(0, len(t), _TILE):
        high = min(low + _TILE, len(t))
        for j in range(0, many, 4):
            a, b, c, d = X[j], X[j + 1], X[j + 2], X[j + 3]
            e, f, g, h = x[j], x[j + 1], x[j + 2], x[j + 3]
            for k in range(low, high):
                t[k] += e * np.float64(a[k]) + f * np.float64(b[k]) + g * np.float64(c[k]) + h * np.float64(d[k])
        for j in range(many, len(x)):
            a, e = X[j], x[j]
            for k in range(low, high):
                t[k] += e * np.float64(a[k])


@njit(**_OPTIONS)
def _ask(X, j, low, rows):
    """Have the entries of a column in the tile after the one from `low` on brought nearer."""
    n = X.shape[1]
    count = min(rows, n - low)
    ahead = X[j, min(low + rows, n - count) :]
    for k in range(0, count, _LINE // X.itemsize):
        prefetch(ahead, k)


@kept
@njit(**_OPTIONS)
def combine(X, s, total):
    """total += Σ sᵢaᵢ, in sums of a tile each."""
    many = len(X) // 4 * 4
    for low in range(0, len(s), _TILE):
        high = min(low + _TILE, len(s))
        for j in range(0, many, 4):
            for i in range(4):
                _ask(X, j + i, low, _TILE)
            a, b, c, d = X[j], X[j + 1], X[j + 2], X[j + 3]
            e = f = g = h = 0.0
            for k in range(low, high):
                e += s[k] * np.float64(a[k])
                f += s[k] * np.float64(b[k])
                g += s[k] * np.float64(c[k])
                h += s[k] * np.float64(d[k])
            total[j] += e
            total[j + 1] += f
            total[j + 2] += g
            total[j + 3] += h
        for j in range(many, len(X)):
            a, e = X[j], 0.0
            for k in range(low, high):
                e += s[k] * np.float64(a[k])
            total[j] += e


@njit(**_OPTIONS)
def _fill(X, low, tile):
    """The entries of a tile of rows from `low` on, with zeros behind the last; and the next tile is asked for."""
    dim, n = X.shape
    rows = tile.shape[1]
    count = min(rows, n - low)
    for j in range(dim):
        _ask(X, j, low, rows)
        column, row = X[j, low:], tile[j]
        for k in range(count):
            row[k] = np.float64(column[k])
        for k in range(count, rows):
            row[k] = 0.0


@njit(**_OPTIONS)
def _products(left, right, a, b, total):
    """total += left rightᵀ for four of their rows each."""
    p, q, r, s = left[a], left[a + 1], left[a + 2], left[a + 3]
    w, x, y, z = right[b], right[b + 1], right[b + 2], right[b + 3]
    pw = px = py = pz = qw = qx = qy = qz = rw = rx = ry = rz = sw = sx = sy = sz = 0.0
    for k in range(len(p)):
        pw += p[k] * w[k]
        px += p[k] * x[k]
        py += p[k] * y[k]
        pz += p[k] * z[k]
        qw += q[k] * w[k]
        qx += q[k] * x[k]
        qy += q[k] * y[k]
        qz += q[k] * z[k]
        rw += r[k] * w[k]
        rx += r[k] * x[k]
        ry += r[k] * y[k]
        rz += r[k] * z[k]
        sw += s[k] * w[k]
        sx += s[k] * x[k]
        sy += s[k] * y[k]
        sz += s[k] * z[k]
    for i, (f, g, h, j) in enumerate(((pw, px, py, pz), (qw, qx, qy, qz), (rw, rx, ry, rz), (sw, sx, sy, sz))):
        total[a + i, b] += f
        total[a + i, b + 1] += g
        total[a + i, b + 2] += h
        total[a + i, b + 3] += j


@kept
@njit(**_OPTIONS)
def gram(X, s, c):
    """Σ cᵢaᵢaᵢᵀ in the first columns, on and above the diagonal, and Σ sᵢaᵢ in the one after them."""
    dim, n = X.shape
    side = (dim + 4) // 4 * 4
    rows = _TILE if dim <= _SIDE else _SIDE
    tile, scaled, total = np.zeros((side, rows)), np.zeros((side, rows)), np.zeros((side, side))
    for low in range(0, n, rows):
        _fill(X, low, tile)
        slope, curvature, last = s[low : low + rows], c[low : low + rows], scaled[dim]
        if len(slope) < rows:
            last[:] = 0.0
        for j in range(dim):
            row, other = tile[j], scaled[j]
            for k in range(len(curvature)):
                other[k] = curvature[k] * row[k]
        for k in range(len(slope)):
            last[k] = slope[k]
        for begin in range(0, side, _SIDE):
            for b in range(begin, side, 4):
                for a in range(begin, min(begin + _SIDE, b + 4), 4):
                    _products(tile, scaled, a, b, total)
    return total


@kept
@njit(**_OPTIONS)
def squares(X, R, out):
    """|R aᵢ|² of every row, R being zero below its diagonal. Every row has the same digits wherever it stands."""
    dim, n = X.shape
    rows = _TILE if dim <= _SIDE else _SIDE
    side = (dim + 3) // 4 * 4
    tile, image, other, length = np.zeros((side, rows)), np.zeros(rows), np.zeros(rows), np.zeros(rows)
    turned = np.zeros((side, side))
    for e in range(dim):  # numba takes 3 s to compile the assignment of a matrix
        for j in range(dim):
            turned[e, j] = R[e, j]
    for low in range(0, n, rows):
        _fill(X, low, tile)
        length[:] = 0.0
        for e in range(0, dim, 2):
            image[:] = 0.0
            other[:] = 0.0
            first, second = turned[e], turned[e + 1]
            for j in range(e // 4 * 4, side, 4):
                a, b, c, d = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
                p, q, r, s = first[j], first[j + 1], first[j + 2], first[j + 3]
                w, x, y, z = second[j], second[j + 1], second[j + 2], second[j + 3]
                for k in range(rows):
                    image[k] += p * a[k] + q * b[k] + r * c[k] + s * d[k]
                    other[k] += w * a[k] + x * b[k] + y * c[k] + z * d[k]
            for k in range(rows):
                length[k] += image[k] * image[k] + other[k] * other[k]
        here = out[low : low + rows]
        for k in range(len(here)):
            here[k] = length[k]
