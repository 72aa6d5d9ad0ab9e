"""Passes over many dense rows, compiled and on all cores; sums in float64 and in an order that no thread changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

from svrhmc.arrays import Array, cores

_BLOCK = 4096  # rows whose sum one thread makes
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


def logistic_slopes_combined(X: Any, y: Array, x: Array) -> Array:
    """Σᵢ ℓ′(aᵢᵀx, yᵢ)aᵢ of the logistic loss, each row read once."""
    partial = np.zeros((-(-len(X) // _BLOCK), X.shape[1]))
    _spread(len(X), lambda low, high: _logistic(X, y, x, low, high, partial))
    return partial.sum(axis=0)


def gram(X: Any, weights: Array) -> Array:
    """Aᵀ diag(w) A for weights not below 0, by BLAS (syrk) in the precision of X, block by block; blocks join in float64."""
    from scipy.linalg.blas import dsyrk, ssyrk

    update = ssyrk if X.dtype == np.float32 else dsyrk
    roots = np.sqrt(weights).astype(X.dtype)
    upper = np.zeros((X.shape[1], X.shape[1]))
    for low in range(0, len(X), 2 * _BLOCK):
        upper += update(1, (X[low : low + 2 * _BLOCK] * roots[low : low + 2 * _BLOCK, None]).T)
    return upper + np.triu(upper, 1).T


def _spread(count: int, work: Callable[[int, int], None]) -> None:
    """Ranges of 0 … count, cut between blocks, on all cores."""
    threads = min(cores(), -(-count // _BLOCK))
    cuts = np.linspace(0, -(-count // _BLOCK), 4 * threads + 1).astype(np.int64) * _BLOCK
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
def _logistic(X: Any, y: Any, x: Any, low: int, high: int, partial: Any) -> None:
    for i in range(low, high):
        row, total = X[i], partial[i // _BLOCK]
        t = 0.0
        for j in range(len(x)):
            t += np.float64(row[j]) * x[j]
        slope = -y[i] / (1.0 + math.exp(min(y[i] * t, 700.0)))
        for j in range(len(row)):
            total[j] += slope * row[j]
