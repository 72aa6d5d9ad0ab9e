"""Checks of CSR matrices: compiled code trusts every index that it reads, so none may point outside its array.

scipy checks little of a CSR matrix that is made from its three arrays, and these may also be changed afterwards or be
mapped from a file. So all of it is checked here, in pieces, whatever flags scipy has set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Integers, Reals, Selection
from svrhmc.core.errors import requirement

_BLOCK = 1 << 22  # entries that are checked in one piece
_MOST_COLUMNS = 1 << 32  # that a column's number of four bytes can tell apart
_REMEDY = "make it again, as with scipy.sparse.csr_matrix((data, (rows, columns)), shape=(n, dim))"


class CsrMatrix(Protocol):
    """What the library uses of a scipy.sparse matrix or array in CSR form, for which scipy has no types."""

    data: Reals
    indices: Integers
    indptr: Integers
    has_sorted_indices: bool
    has_canonical_format: bool

    format: str
    ndim: int
    nnz: int
    shape: tuple[int, int]
    dtype: np.dtype[np.floating]
    T: CsrMatrix

    def __getitem__(self, places: Selection | tuple[Selection, Selection], /) -> CsrMatrix: ...

    @overload
    def __matmul__(self, other: Array, /) -> Array: ...

    @overload
    def __matmul__(self, other: CsrMatrix, /) -> CsrMatrix: ...

    def multiply(self, other: npt.ArrayLike) -> CsrMatrix:
        """Products entry by entry."""

    def tocsr(self) -> CsrMatrix:
        """The matrix stored row by row."""

    def tocsc(self) -> CsrMatrix:
        """The matrix stored column by column."""

    def toarray(self) -> Reals:
        """The entries in a dense array."""

    def astype(self, dtype: npt.DTypeLike) -> CsrMatrix:
        """The matrix with entries of another type."""

    def sum_duplicates(self) -> None:
        """Sort the columns of each row, and add entries of one place."""

    def sort_indices(self) -> None:
        """Sort the columns of each row."""

    def check_format(self, full_check: bool = True) -> None:
        """Raise a ValueError where the three arrays are no CSR matrix."""


Matrix = Reals | CsrMatrix  # of rows, dense or sparse
MatrixLike = Any  # a matrix of NumPy or scipy.sparse in calculations: they share operators, but no types


def checked_csr(X: CsrMatrix) -> CsrMatrix:
    """A sound CSR matrix of float32 or float64: the one given, or a copy where something had to be put right.

    The columns of each row of the result increase. In a copy, columns out of order are sorted, and repeated entries are
    added, as everywhere in scipy. Indices may have four bytes or eight. Entries beyond the end of the last row are left
    out. Anything else that is wrong is refused, with its place.

    >>> from scipy.sparse import csr_matrix
    >>> from svrhmc.targets import logistic
    >>> one_based = csr_matrix(([1.0, 2.0], [1, 2], [0, 1, 2]), shape=(2, 2))
    >>> logistic(one_based, [0, 1])
    Traceback (most recent call last):
    ValueError: X must be a CSR matrix with columns from 0 to 1; got column 2 in row 1: if columns are counted from 1, \
use indices - 1.
    """
    if X.format != "csr":
        raise requirement("X", "a dense array or a scipy CSR matrix", f"a {X.format.upper()} matrix", "use X.tocsr()")
    if X.ndim != 2 or min(X.shape) < 1:
        raise requirement("X", "an array of shape (n, dim)", f"shape {X.shape}")
    if X.shape[1] > _MOST_COLUMNS:
        raise requirement("X", f"a matrix of at most {_MOST_COLUMNS} columns", X.shape[1])
    for name in ("data", "indices", "indptr"):
        if not isinstance(getattr(X, name), np.ndarray) or getattr(X, name).ndim != 1:
            raise _unsound(f"one array {name}", f"{name} that is not", _REMEDY)
    data, indices, indptr = _values(X.data), _whole("indices", X.indices), _whole("indptr", X.indptr)
    ends = _require_ends(indptr, X.shape[0], min(len(data), len(indices)))
    _require_columns(indices[:ends], indptr, X.shape[1])
    _require_finite(data[:ends], indices, indptr)
    same = len(data) == len(indices) == ends and data is X.data and indices is X.indices and indptr is X.indptr
    increasing = _has_increasing_columns(indices[:ends], indptr)
    if same and increasing:
        return X
    matrix = csr_like(X, data[:ends], indices[:ends], indptr, copy=not increasing)
    if not increasing:
        matrix.has_sorted_indices = matrix.has_canonical_format = False  # otherwise scipy may trust its earlier flags
        matrix.sum_duplicates()
        _require_finite(matrix.data, matrix.indices, matrix.indptr)  # a sum may be too large
    return matrix


def csr_like(X: CsrMatrix, data: Reals, indices: Integers, indptr: Integers, copy: bool) -> CsrMatrix:
    """A matrix of the class and shape of X, from three arrays."""
    kind: Callable[..., CsrMatrix] = type(X)
    return kind((data, indices, indptr), shape=X.shape, copy=copy)


def _values(data: Reals) -> Reals:
    if data.dtype.kind in "biu":
        data = data.astype(np.float64)
    if data.dtype not in (np.float32, np.float64):
        raise requirement("X", "an array of float32, float64 or integers", f"dtype {data.dtype}")
    return data


def _whole(name: str, array: Integers) -> Integers:
    """Whole numbers of a type that scipy uses: signed, of four or eight bytes."""
    if array.dtype.kind not in "iu":
        raise _unsound(f"whole numbers as {name}", f"dtype {array.dtype}", _REMEDY)
    if array.dtype in (np.int32, np.int64):
        return array
    if array.dtype.kind == "u" and len(array) and int(array.max()) > np.iinfo(np.int64).max:
        raise _unsound(f"{name} below 2⁶³", int(array.max()), _REMEDY)
    return array.astype(np.int64)


def _require_ends(indptr: Integers, n: int, stored: int) -> int:
    """Check that rows begin at 0, never fall, and end within what is stored; returns the end of the last row."""
    if len(indptr) != n + 1:
        raise _unsound(f"indptr of n + 1 = {n + 1} numbers", len(indptr), _REMEDY)
    if indptr[0] != 0:
        raise _unsound("indptr that begins with 0", int(indptr[0]), _REMEDY)
    for begin in range(0, n, _BLOCK):
        piece = indptr[begin : begin + _BLOCK + 1]
        falls = np.flatnonzero(piece[:-1] > piece[1:])
        if len(falls):
            row = begin + int(falls[0])
            raise _unsound("indptr that never falls", f"{indptr[row]} and then {indptr[row + 1]} in row {row}", _REMEDY)
    if indptr[n] > stored:
        raise _unsound(f"indptr that ends with at most {stored}, the entries there are", int(indptr[n]), _REMEDY)
    return int(indptr[n])


def _require_columns(indices: Integers, indptr: Integers, dim: int) -> None:
    for begin in range(0, len(indices), _BLOCK):
        piece = indices[begin : begin + _BLOCK]
        if int(piece.min()) < 0 or int(piece.max()) >= dim:
            k = int(np.argmax((piece < 0) | (piece >= dim)))
            why = "if columns are counted from 1, use indices - 1" if piece[k] == dim else "give their number in shape"
            place = f"column {piece[k]} in row {_row_of(begin + k, indptr)}"
            raise _unsound(f"columns from 0 to {dim - 1}", place, "they count from 0" if piece[k] < 0 else why)


def _require_finite(data: Reals, indices: Integers, indptr: Integers) -> None:
    for begin in range(0, len(data), _BLOCK):
        finite = np.isfinite(data[begin : begin + _BLOCK])
        if not finite.all():
            k = begin + int(np.argmin(finite))
            raise requirement("X", "finite everywhere", f"{data[k]} at row {_row_of(k, indptr)}, column {indices[k]}")


def _has_increasing_columns(indices: Integers, indptr: Integers) -> bool:
    """Whether each row's columns increase."""
    for begin in range(0, len(indices) - 1, _BLOCK):
        piece = indices[begin : begin + _BLOCK + 1]
        steps = np.flatnonzero(piece[1:] <= piece[:-1]) + begin + 1  # places that do not increase must begin a row
        if len(steps):
            rows = np.searchsorted(indptr, steps)
            if not (np.asarray(indptr)[np.minimum(rows, len(indptr) - 1)] == steps).all():
                return False
    return True


def _row_of(place: int, indptr: Integers) -> int:
    return int(np.searchsorted(indptr, place, side="right")) - 1


def _unsound(allowed: str, given: object, why: str) -> ValueError:
    return requirement("X", f"a CSR matrix with {allowed}", given, why)
