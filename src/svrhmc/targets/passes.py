"""Passes over many dense rows, compiled and on all cores; sums in float64 and in an order that no thread changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, cores
from svrhmc.core.blas import NARROW, blas_for
from svrhmc.core.deadline import looking, piece
from svrhmc.core.recording import Ordered, repeat
from svrhmc.families.base import Loss
from svrhmc.kernels import float64
from svrhmc.kernels.layout import BLOCK, TILE
from svrhmc.kernels.wide import ROOM

_NEAR_NUMBERS = 1 << 16  # of rows that stay in a near cache while several sums are made of them
_PARTS = 16  # into which rows of few columns are cut
_ROUND = 1 << 34  # multiplications, after which sums of wide rows are recorded: about a second's


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
    partial, some = np.zeros((-(-len(X) // BLOCK), len(x))), _part(loss, X, labels)
    _spread(len(X), lambda low, high: some(x, low, high, partial))
    total: Array = partial.sum(axis=0)
    return total


def gradients(loss: Loss, X: Any, labels: Any, states: Array) -> Array:
    """The same at many states, which the threads share."""
    if len(states) < cores():
        return np.array([gradient(loss, X, labels, state) for state in states])
    some, n, at = _part(loss, X, labels), len(X), looking()

    def one(state: Array) -> Array:
        at(0.0)
        partial = np.zeros((-(-n // BLOCK), len(state)))
        some(state, 0, n, partial)
        total: Array = partial.sum(axis=0)
        return total

    with ThreadPoolExecutor(cores()) as pool:
        return np.array(list(pool.map(one, states)))


def _part(loss: Loss, X: Any, labels: Any) -> Callable[[Array, int, int, Array], None]:
    """What adds the gradient of some rows at a state to the sums of their blocks, with room of its own."""
    record, m = loss.record(), loss.blocks + loss.shared
    return lambda x, low, high, partial: float64.gradient(
        record, X, *labels, x, low, high, partial, np.empty((m + ROOM, TILE)), np.empty((m, TILE))
    )


def grams(X: Any, weights: Sequence[Array]) -> Array:
    """Aᵀ diag(w) A for each of some weights: (count, dim, dim), in one pass over the rows: by BLAS in the precision of
    X, in blocks of rows that stay in a near cache for all of them; blocks join in float64.

    Threads share the rows, each with one thread of BLAS, in parts whose number they do not decide; of wide rows, where
    a sum for each part would take more room than the rows, one part is all, and BLAS has its own threads.
    """
    (n, dim), count = X.shape, len(weights)
    size = max(64, min(2 * BLOCK, _NEAR_NUMBERS // dim))
    parts = min(_PARTS, -(-n // (2 * BLOCK))) if dim <= NARROW else 1
    cuts, at = np.linspace(0, -(-n // size), parts + 1).astype(np.int64) * size, looking()

    def added(total: Array, begin: int, end: int) -> Array:
        room = np.empty((size, dim), X.dtype)
        for low in range(begin, min(end, n), size):
            at(0.0)
            block = X[low : min(low + size, end)]
            for each, w in zip(total, weights, strict=True):
                each += _weighted_square(block, w[low : low + len(block)], room[: len(block)])
        return total

    zero = np.zeros((count, dim, dim))
    with piece(count * n * dim**2 / 2), blas_for(dim), ThreadPoolExecutor(min(cores(), parts)) as pool:
        if parts == 1:
            rows = size * max(1, _ROUND // (count * size * dim**2))
            (joined,) = repeat(
                lambda k, now: (added(now[0], k * rows, (k + 1) * rows), False), (zero,), -(-n // rows), tuple(weights)
            )
        else:
            sums = Ordered(
                lambda first: pool.map(lambda a, b: added(np.zeros_like(zero), a, b), cuts[first:-1], cuts[first + 1 :])
            )
            (joined,) = repeat(lambda k, now: (now[0] + sums.take(k), False), (zero,), parts, tuple(weights))
    return np.asarray(joined)


def _weighted_square(block: Any, w: Array, room: Any) -> Any:
    """Aᵀ diag(w) A: that of (√|w| A)ᵀ(√|w| A), half the work, with its sign where all w have one."""
    least, most = w.min(), w.max()
    if least < 0 < most:
        np.multiply(block, w[:, None], out=room, casting="same_kind")
        both = block.T @ room
        return (both + both.T) / 2
    np.multiply(block, np.sqrt(np.abs(w))[:, None], out=room, casting="same_kind")
    return -(room.T @ room) if least < 0 else room.T @ room


def _spread(count: int, work: Callable[[int, int], None]) -> None:
    """Ranges of 0 … count, cut between blocks, on all cores."""
    threads = min(cores(), -(-count // BLOCK))
    cuts = np.linspace(0, -(-count // BLOCK), 4 * threads + 1).astype(np.int64) * BLOCK
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda low, high: work(int(low), int(min(high, count))), cuts[:-1], cuts[1:]))
