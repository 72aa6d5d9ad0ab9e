"""Passes over many dense rows, compiled and on all cores; sums in float64 and in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, cores
from svrhmc.kernels import float64
from svrhmc.kernels.layout import BLOCK, TILE
from svrhmc.kernels.losses import KERNELS


def predict(X: Any, x: Array) -> Array:
    """All aᵢᵀx, products in float64."""
    out = np.empty(len(X))
    _spread(len(X), lambda low, high: float64.predict(X, x, low, high, out))
    return out


def combine(X: Any, weights: Array) -> Array:
    """Σᵢ wᵢaᵢ, in float64."""
    partial = np.zeros((-(-len(X) // BLOCK), X.shape[1]))
    _spread(len(X), lambda low, high: float64.combine(X, weights, low, high, partial))
    total: Array = partial.sum(axis=0)
    return total


def gradient(kernel: str, scale: float, X: Any, y: Array, x: Array) -> Array:
    """Σᵢ ℓ′(aᵢᵀx, yᵢ)aᵢ of a compiled loss, each row read once; threads share the rows."""
    loss, partial = KERNELS[kernel](scale), np.zeros((-(-len(X) // BLOCK), X.shape[1]))

    def some(low: int, high: int) -> None:
        float64.gradient(loss, X, y, x, low, high, partial, np.empty(TILE), np.empty(TILE))

    _spread(len(X), some)
    total: Array = partial.sum(axis=0)
    return total


def gradients(kernel: str, scale: float, X: Any, y: Array, states: Array) -> Array:
    """The same at many states, which the threads share."""
    if len(states) < cores():
        return np.array([gradient(kernel, scale, X, y, state) for state in states])
    loss, n = KERNELS[kernel](scale), len(X)

    def one(state: Array) -> Array:
        partial = np.zeros((-(-n // BLOCK), X.shape[1]))
        float64.gradient(loss, X, y, state, 0, n, partial, np.empty(TILE), np.empty(TILE))
        total: Array = partial.sum(axis=0)
        return total

    with ThreadPoolExecutor(cores()) as pool:
        return np.array(list(pool.map(one, states)))


def gram(X: Any, weights: Array) -> Array:
    """Aᵀ diag(w) A for weights not below 0, by BLAS (syrk) in the precision of X, block by block; blocks join in
    float64.
    """
    from scipy.linalg.blas import dsyrk, ssyrk

    update = ssyrk if X.dtype == np.float32 else dsyrk
    roots = np.sqrt(weights).astype(X.dtype)
    upper = np.zeros((X.shape[1], X.shape[1]))
    for low in range(0, len(X), 2 * BLOCK):
        upper += update(1, (X[low : low + 2 * BLOCK] * roots[low : low + 2 * BLOCK, None]).T)
    return upper + np.triu(upper, 1).T


def _spread(count: int, work: Callable[[int, int], None]) -> None:
    """Ranges of 0 … count, cut between blocks, on all cores."""
    threads = min(cores(), -(-count // BLOCK))
    cuts = np.linspace(0, -(-count // BLOCK), 4 * threads + 1).astype(np.int64) * BLOCK
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda low, high: work(int(low), int(min(high, count))), cuts[:-1], cuts[1:]))
