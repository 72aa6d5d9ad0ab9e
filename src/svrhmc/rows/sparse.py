"""Rows of sparse matrices, and `make_rows`, which makes rows from any matrix."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, digest, sums_by_index
from svrhmc.core.deadline import SPARSE, checking_budget, indivisible_work
from svrhmc.core.errors import real_array
from svrhmc.rows.base import DenseRows, Norms, Rows
from svrhmc.rows.csr import CsrMatrix, Matrix, checked_csr

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from svrhmc.kernels.rows import SparseRows as CompiledSparse

_BLOCK_ELEMENTS = 1 << 20
_BLOCK_PRODUCTS = 1 << 22  # of entries of sparse rows


class SparseRows(Rows):
    """Rows of a scipy CSR matrix or array, with float32 or float64 entries."""

    storage = "sparse"

    def __init__(self, X: CsrMatrix) -> None:
        self.X = X
        self.n, self.dim = X.shape
        self.dtype = X.dtype
        self._products = float((np.diff(X.indptr).astype(np.float64) ** 2).sum())  # of two entries of a row

    @cached_property
    def compiled(self) -> CompiledSparse:
        """Entries, columns and the beginnings of rows."""
        from svrhmc.kernels.rows import sparse_rows

        return sparse_rows(self.X)

    @cached_property
    def _by_columns(self) -> CsrMatrix:
        """The matrix stored column by column."""
        return self.X.tocsc()

    def predict(self, x: Array) -> Array:
        return np.ascontiguousarray(np.asarray(self.X @ x.T).T, np.float64)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        """Sums over the entries of the chosen rows."""
        entries, slot, columns = self._entries(indices)
        chain = slot // indices.shape[1]
        return sums_by_index(slot, entries * x[chain, columns], indices.size).reshape(indices.shape)

    def dense_matrix(self, indices: Indices) -> Array:
        return np.asarray(self.X[indices].toarray(), np.float64)

    def column_values(self, columns: Indices) -> Array:
        return np.asarray(self._by_columns[:, columns].toarray(), np.float64)

    def stored_weights(self, weights: Array) -> Array:
        stored = np.repeat(weights, np.diff(self.X.indptr))
        return sums_by_index(self.X.indices.astype(np.int64, copy=False), stored, self.dim)

    def combine(self, weights: Array) -> Array:
        """A sparse product with the transpose."""
        return np.ascontiguousarray(np.asarray(self.X.T @ weights.T).T, np.float64)

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        """Sums over the entries of the chosen rows."""
        entries, slot, columns = self._entries(indices)
        chains, batch = indices.shape
        place = slot // batch * self.dim + columns
        return sums_by_index(place, entries * weights.ravel()[slot], chains * self.dim).reshape(chains, self.dim)

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Sparse products in float64, a block of columns at a time."""
        weighted, left = self.X.multiply(weights[:, None]).tocsc(), self.X.T
        total = np.empty((self.dim, self.dim))
        width = max(1, int(self.dim * _BLOCK_PRODUCTS / max(self._products, 1.0)))
        for begin in checking_budget(range(0, self.dim, width)):
            total[:, begin : begin + width] = (left @ weighted[:, begin : begin + width]).toarray()
        return total

    def sparse_gram(self, weights: Array, diagonal: Array, most: float, full: int) -> CsrMatrix | Array | None:
        """A sparse product, or compiled sums."""
        from scipy.sparse import csr_matrix, diags

        products = self._products
        if self.dim <= full and products > self.dim**2 / 2:
            from svrhmc.kernels.float64 import lower_gram

            lower = np.diag(diagonal)
            with indivisible_work(SPARSE / 8 * products):  # compiled
                lower_gram(self.X.data, self.X.indices, self.X.indptr, weights, lower)
            return lower
        if products > most:
            return None
        with indivisible_work(2 * SPARSE * products):  # and sorted
            weighted = csr_matrix(self.X.multiply(weights[:, None]), dtype=np.float64)
            total: CsrMatrix = csr_matrix(csr_matrix(self.X).T.tocsr() @ weighted + diags(diagonal))
            total.sort_indices()
        return total

    def gram_diagonal(self, weights: Array) -> Array:
        """Sums over each column's entries."""
        entries = self.X.data.astype(np.float64) ** 2 * np.repeat(weights, np.diff(self.X.indptr))
        return sums_by_index(self.X.indices.astype(np.int64, copy=False), entries, self.dim)

    def squared_norms(self) -> Array:
        """Sums over each row's entries."""
        rows = np.repeat(np.arange(self.n), np.diff(self.X.indptr))
        return sums_by_index(rows, self.X.data.astype(np.float64) ** 2, self.n)

    @property
    def entries(self) -> float:
        """The number of stored entries of a row, on average."""
        return float(self.X.nnz) / self.n

    def digest(self) -> str:
        return digest(self.X.data, self.X.indices.astype(np.int64), self.X.indptr.astype(np.int64))

    def choose(self, indices: Indices) -> SparseRows:
        return SparseRows(self.X[indices])

    def lengths(self, norms: Norms) -> Array:
        """Block by block, each made dense."""
        size = max(1, _BLOCK_ELEMENTS // self.dim)
        begins = checking_budget(range(0, self.n, size))
        return np.concatenate([norms(self.X[begin : begin + size].toarray()) for begin in begins])

    def _entries(self, indices: Indices) -> tuple[Array, Indices, Indices]:
        """The entries of the chosen rows, and for each entry its place in `indices` and its column."""
        rows = indices.ravel()
        start, count = self.X.indptr[rows].astype(np.int64), np.diff(self.X.indptr)[rows].astype(np.int64)
        slot = np.repeat(np.arange(len(rows)), count)
        place = np.arange(len(slot)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)
        return self.X.data[place].astype(np.float64), slot, self.X.indices[place].astype(np.int64)


def make_rows(X: npt.ArrayLike | CsrMatrix, empty: bool = False) -> Rows:
    """Dense rows from anything array-like, sparse rows from scipy CSR; checked once, and not copied where avoidable.

    empty: whether rows may have no columns, as a model of group effects alone has.
    """
    if empty and np.ndim(X) == 2 and np.shape(X)[0] and not np.shape(X)[1]:  # type: ignore[arg-type]
        return DenseRows(np.empty(np.shape(X)))
    if is_sparse(X):
        return SparseRows(checked_csr(X))
    return DenseRows(real_array("X", X, ("n", "dim")))


def is_sparse(X: object) -> TypeIs[CsrMatrix]:
    """Whether X is a scipy sparse matrix or array."""
    if "scipy.sparse" not in sys.modules:  # then no sparse matrix can have been made
        return False
    from scipy.sparse import issparse

    return bool(issparse(X))


def side_by_side(parts: Sequence[Matrix]) -> Matrix:
    """Matrices side by side; sparse where one of them is."""
    if len(parts) == 1:
        return parts[0]
    if any(hasattr(part, "format") for part in parts):
        from scipy.sparse import csr_matrix, hstack

        joined: CsrMatrix = csr_matrix(hstack([csr_matrix(part) for part in parts], format="csr"))
        return joined
    dense: Any = parts
    return np.ascontiguousarray(np.concatenate(dense, axis=1))
