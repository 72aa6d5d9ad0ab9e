"""Drawing i with given probabilities at the cost of one random block, whatever n is: Walker's alias table.

Of n buckets one is chosen evenly; it holds its own number with probability threshold/2³², else its alias. Thresholds are whole
numbers, so that the probabilities really drawn with are known exactly, and are the ones to divide by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from svrhmc.arrays import Array, Indices

_ONE = 1 << 32


def alias_table(weights: Array) -> tuple[Any, Indices, Array]:
    """(threshold, alias, probability) of each number, for weights not below 0 that are not all 0.

    >>> threshold, alias, probability = alias_table(np.array([1.0, 3.0]))
    >>> probability.round(6)
    array([0.25, 0.75])
    """
    n = len(weights)
    share = np.asarray(weights, np.float64) * (n / np.sum(weights, dtype=np.float64))
    threshold, alias = np.zeros(n, np.uint32), np.arange(n)
    _fill(share, threshold, alias, np.zeros(n, np.int64))
    own = np.where(alias == np.arange(n), float(_ONE), threshold.astype(np.float64))
    given = np.bincount(alias, _ONE - own, n)
    return threshold, alias, (own + given) / (n * float(_ONE))


@njit(cache=True)
def _fill(share: Any, threshold: Any, alias: Any, queue: Any) -> None:
    """Vose's method: each bucket with less than an even share is filled up from one with more."""
    n = len(share)
    low, high = 0, n  # the small ones at the front of the queue, the large ones at its back
    for i in range(n):
        if share[i] < 1.0:
            queue[low] = i
            low += 1
        else:
            high -= 1
            queue[high] = i
    while low > 0 and high < n:
        small, large = queue[low - 1], queue[high]
        low -= 1
        threshold[small] = min(np.int64(share[small] * 4294967296.0), 4294967295)
        alias[small] = large
        share[large] -= 1.0 - share[small]
        if share[large] < 1.0:
            high += 1
            queue[low] = large
            low += 1
