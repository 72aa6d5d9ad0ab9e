"""Passes over many rows with products and sums in float64, whatever the rows are stored in."""

from __future__ import annotations

from numba import njit

from svrhmc.kernels.compiling import ENTRY, kept
from svrhmc.kernels.layout import TILE
from svrhmc.kernels.rows import tile_predictors, tile_sum

_OPTIONS = {"error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}, "nogil": True}


@kept
@njit(**ENTRY)
def predict(rows, x, low, high, out):
    """out[0] = aᵢᵀx of some rows."""
    for begin in range(low, high, TILE):
        end = min(high, begin + TILE)
        tile_predictors(rows, 0, len(x), x, 1, 0, len(x), begin, end, out[:, begin:end], 0, 1)


@kept
@njit(**ENTRY)
def combine(rows, weights, size, low, high, tile, partial):
    """Add wᵢaᵢ of some rows, w = weights[0], to the sums of their blocks of `size` rows; `tile` is room for one row."""
    for begin in range(low, high, TILE):
        end, sums = min(high, begin + TILE), partial[begin // size]
        tile_sum(rows, 0, len(tile), weights[:, begin:end], 0, 1, begin, end, tile, sums, 1, 0, len(tile))


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
