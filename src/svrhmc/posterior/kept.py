"""Rows of a table that are kept beside a posterior, and what averages over some of them say of all.

With e(R, x) an average over rows R under a draw x, R the rows used and K those kept, e(R, x) + e(K, x̄) − e(R, x̄) is
about e(K, x), as what rows add to e hardly depends on x near the posterior's mean x̄ (a control variate). What is left
open is by how much K differs from all rows: the standard error of e(K, x̄), from equal parts of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.tables.columns import Column, Columns

KEPT = 10_000  # rows of a table that are kept for effects
_PARTS = 5  # of the rows kept, by which a standard error is found


@dataclass(frozen=True, eq=False)
class Kept:
    """Some rows of the table that was fitted, spread evenly over it, with their offsets and weights; n: of all."""

    columns: Columns
    offset: Array | None
    weights: Array | None
    n: int

    @staticmethod
    def of(columns: Columns, offset: Array | None, weights: Array | None, most: int = KEPT) -> Kept:
        """At most so many rows."""
        places = spread(columns.n, most, 0)
        return Kept(columns, offset, weights, columns.n).chosen(places)

    def chosen(self, places: Indices) -> Kept:
        """Some of them."""
        some = Columns({name: _at(column, places) for name, column in self.columns.by_name.items()}, len(places))
        offset, weights = (None if each is None else each[places] for each in (self.offset, self.weights))
        return Kept(some, offset, weights, self.n)


def _at(column: Column, places: Indices) -> Column:
    return Column(column.kind, column.values[places], None, column.levels)


def spread(n: int, most: int, seed: int) -> Indices:
    """At most so many of n places, one drawn from each of as many equal stretches: even, and in step with nothing.

    >>> spread(5, 9, 0), len(spread(1000, 10, 0))
    (array([0, 1, 2, 3, 4]), 10)
    """
    if n <= most:
        return np.arange(n)
    ends = np.linspace(0, n, most + 1)
    u = np.random.default_rng(seed).random(most)
    return np.minimum((ends[:-1] + u * np.diff(ends)).astype(np.int64), n - 1)


def beyond(kept: Kept, at: Callable[[Kept], Array]) -> tuple[Array, Array]:
    """Averages over the rows kept, by a function that has those over any of them, and their standard errors as
    averages over all rows that there were.
    """
    parts = [kept.chosen(np.arange(k, kept.columns.n, _PARTS)) for k in range(min(_PARTS, kept.columns.n))]
    found = np.stack([at(part) for part in parts])
    size = [part.columns.n if part.weights is None else part.weights.sum() for part in parts]
    error = found.std(axis=0, ddof=1) / np.sqrt(len(parts)) * np.sqrt(1 - kept.columns.n / kept.n)
    return np.average(found, axis=0, weights=size), error
