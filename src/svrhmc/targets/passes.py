"""Passes over many dense rows, compiled and on all cores; sums in float64 and in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, cores
from svrhmc.kernels import float64
from svrhmc.kernels.known import KERNELS
from svrhmc.kernels.layout import BLOCK, TILE
from svrhmc.targets.losses import Loss


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


def gradient(loss: Loss, X: Any, labels: Any, x: Array) -> Array:
    """Σᵢ wᵢℓ′(oᵢ + aᵢᵀx, yᵢ)aᵢ of a compiled loss, each row read once; threads share the rows."""
    kernel, partial = _kernel(loss), np.zeros((-(-len(X) // BLOCK), X.shape[1]))

    def some(low: int, high: int) -> None:
        float64.gradient(kernel, X, *labels, x, low, high, partial, np.empty(TILE), np.empty(TILE))

    _spread(len(X), some)
    total: Array = partial.sum(axis=0)
    return total


def gradients(loss: Loss, X: Any, labels: Any, states: Array) -> Array:
    """The same at many states, which the threads share."""
    if len(states) < cores():
        return np.array([gradient(loss, X, labels, state) for state in states])
    kernel, n = _kernel(loss), len(X)

    def one(state: Array) -> Array:
        partial = np.zeros((-(-n // BLOCK), X.shape[1]))
        float64.gradient(kernel, X, *labels, state, 0, n, partial, np.empty(TILE), np.empty(TILE))
        total: Array = partial.sum(axis=0)
        return total

    with ThreadPoolExecutor(cores()) as pool:
        return np.array(list(pool.map(one, states)))


def _kernel(loss: Loss) -> Any:
    """The compiled form of a loss, in float64."""
    assert loss.kernel is not None
    return KERNELS[loss.kernel](*map(float, loss.numbers))


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
