"""Rows of a block of a table, stored column by column as tables are."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals
from svrhmc.rows.base import DenseRows, Norms, Rows
from svrhmc.rows.csr import Matrix

_BLOCK = 1 << 20  # entries


class ColumnRows(Rows):
    """Rows of an array (rows, columns) in Fortran's order: sums in float64 by one thread, which reads columns."""

    storage = "columns"

    def __init__(self, X: Reals) -> None:
        self.X, self._columns = X, X.T
        self.n, self.dim = X.shape
        self.dtype = X.dtype

    def predict(self, x: Array) -> Array:
        out = np.zeros((len(x), self.n))
        for state, t in zip(np.ascontiguousarray(x), out, strict=True):
            self._sums.predict(self._columns, state, t)
        return out

    def combine(self, weights: Array) -> Array:
        out = np.zeros((len(weights), self.dim))
        for chain_weights, total in zip(np.ascontiguousarray(weights), out, strict=True):
            self._sums.combine(self._columns, chain_weights, total)
        return out

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Tile by tile, always in float64."""
        return self.combine_and_gram(np.zeros(self.n), weights)[1]

    def combine_and_gram(self, slopes: Array, weights: Array) -> tuple[Array, Array]:
        """One product gives both."""
        out = self._sums.gram(self._columns, np.ascontiguousarray(slopes), np.ascontiguousarray(weights))
        upper = np.triu(out[: self.dim, : self.dim])
        return out[: self.dim, self.dim].copy(), upper + np.triu(upper, 1).T

    def image_squares(self, factor: Array) -> Array:
        out = np.empty(self.n)
        self._sums.squares(self._columns, np.ascontiguousarray(factor.T), out)
        return out

    def gram_diagonal(self, weights: Array) -> Array:
        return np.array([float(weights @ column.astype(np.float64) ** 2) for column in self._columns])

    def squared_norms(self) -> Array:
        return np.asarray(sum(column.astype(np.float64) ** 2 for column in self._columns), np.float64)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        return self._in_rows.predict_at(x, indices)

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        return self._in_rows.combine_at(weights, indices)

    def dense_matrix(self, indices: Indices) -> Array:
        """A copy, row by row."""
        return np.ascontiguousarray(self.X[indices], np.float64)

    def choose(self, indices: Indices) -> Rows:
        """A copy, row by row."""
        return DenseRows(np.ascontiguousarray(self.X[indices]))

    def lengths(self, norms: Norms) -> Array:
        size = max(1, _BLOCK // self.dim)
        return np.concatenate([norms(self.X[low : low + size]) for low in range(0, self.n, size)])

    @property
    def _sums(self) -> ModuleType:
        """Compiled sums over columns, loaded when they are first needed."""
        from svrhmc.kernels import columns

        return columns

    @property
    def _in_rows(self) -> DenseRows:
        return DenseRows(self.X)

    @property
    def entries(self) -> float:
        return float(self.dim)

    def digest(self) -> str:
        return self._in_rows.digest()


def make_block_rows(X: Matrix, make: Callable[[Matrix], Rows]) -> Rows:
    """Rows of a block as they are stored: column by column for arrays in Fortran's order, otherwise by `make`."""
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.flags.f_contiguous and X.dtype in (np.float32, np.float64):
        return ColumnRows(X)
    return make(X)
