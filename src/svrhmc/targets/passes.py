"""Passes over many dense rows, compiled and on all cores; sums in float64 and in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from svrhmc.arrays import Array, cores

_BLOCK = 4096  # rows whose sum one thread makes
_TILE = 64
_SHARES = 8  # matrices summed apart and then joined
_FAST = {"reassoc", "contract", "nsz"}
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy"}


def predict(X: Any, x: Array) -> Array:
    """All aᵢᵀx, products in float64."""
    out = np.empty(len(X))
    _spread(len(X), lambda low, high: _predict(X, x, low, high, out))
    return out


def combine(X: Any, weights: Array) -> Array:
    """Σᵢ wᵢaᵢ, in float64."""
    partial = np.zeros((-(-len(X) // _BLOCK), X.shape[1]))
    _spread(len(X), lambda low, high: _combine(X, weights, low, high, partial))
    return partial.sum(axis=0)


def gram(X: Any, weights: Array) -> Array:
    """Aᵀ diag(w) A: products and sums of 64 rows in the precision of X, from there on in float64."""
    n, dim = X.shape
    share = -(-n // (_SHARES * _BLOCK)) * _BLOCK
    partial = np.zeros((_SHARES, dim, dim))
    room = np.zeros((_SHARES, 2, dim, _TILE), X.dtype)

    def work(low: int, high: int) -> None:
        for k in range(low, high):
            _gram(X, weights, k * share, min(n, (k + 1) * share), room[k], partial[k])

    _spread(_SHARES, work, 1)
    upper: Array = np.triu(partial.sum(axis=0))
    return upper + np.triu(upper, 1).T


def _spread(count: int, work: Callable[[int, int], None], unit: int = _BLOCK) -> None:
    """Ranges of 0 … count, cut at multiples of `unit`, on all cores."""
    threads = min(cores(), -(-count // unit))
    cuts = np.linspace(0, -(-count // unit), 4 * threads + 1).astype(np.int64) * unit
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda low, high: work(int(low), int(min(high, count))), cuts[:-1], cuts[1:]))


@njit(fastmath=_FAST, **_OPTIONS)
def _predict(X: Any, x: Any, low: int, high: int, out: Any) -> None:
    for i in range(low, high):
        row, total = X[i], 0.0
        for j in range(len(x)):
            total += np.float64(row[j]) * x[j]
        out[i] = total


@njit(fastmath=_FAST, **_OPTIONS)
def _combine(X: Any, weights: Any, low: int, high: int, partial: Any) -> None:
    for i in range(low, high):
        row, weight, total = X[i], weights[i], partial[i // _BLOCK]
        for j in range(len(row)):
            total[j] += weight * row[j]


@njit(fastmath=_FAST, **_OPTIONS)
def _gram(X: Any, weights: Any, low: int, high: int, room: Any, total: Any) -> None:
    """The upper triangle, 64 rows at a time: their transpose, and its rows times the weights, are multiplied."""
    dim = X.shape[1]
    plain, weighted = room[0], room[1]
    for first in range(low, high, _TILE):
        count = min(_TILE, high - first)
        for i in range(count):
            row, weight = X[first + i], weights[first + i]
            for j in range(dim):
                plain[j, i] = row[j]
                weighted[j, i] = row[j] * weight
        for i in range(count, _TILE):
            for j in range(dim):
                plain[j, i] = 0
                weighted[j, i] = 0
        for j in range(0, dim - 1, 2):
            a, b = weighted[j], weighted[j + 1]
            for k in range(j, dim):
                c = plain[k]
                ac = bc = a[0] * 0
                for i in range(_TILE):
                    ac += a[i] * c[i]
                    bc += b[i] * c[i]
                total[j, k] += np.float64(ac)
                total[j + 1, k] += np.float64(bc)
        if dim % 2:
            a, c = weighted[dim - 1], plain[dim - 1]
            ac = a[0] * 0
            for i in range(_TILE):
                ac += a[i] * c[i]
            total[dim - 1, dim - 1] += np.float64(ac)
