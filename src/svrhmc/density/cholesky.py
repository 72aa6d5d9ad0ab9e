"""Cholesky factors of many symmetric positive definite matrices with the same sparsity pattern.

The order of elimination and the places of the entries of L are found once (`Pattern`), by sets of independent
coordinates as in `svrhmc.density.elimination`; each factor then only computes numbers. A coordinate with d neighbours
among m remaining ones costs d²/2 multiplications in a sparse factor, and m²/2 in a dense one, where they are `_SLOWER`
times as fast. So it is eliminated sparsely while d ≤ m/√_SLOWER, and the rest is the core, whose factor is LAPACK's.
Nested levels have no more neighbours than levels above them, so that all of them are eliminated, with linear work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import CHOLESKY, indivisible_work
from svrhmc.density.elimination import independent_set, split_matrix
from svrhmc.rows.csr import MatrixLike

_Number = TypeVar("_Number", bound=np.generic)

_SLOWER = 16.0
_FEW = 256  # coordinates up to which a dense factor takes as long as the calls around it
_WORTH = 0.8  # of the work of a dense factor, up to which a sparse one is taken
_NEARLY = 1.5  # times the fewest neighbours, that a coordinate eliminated together with others may have
_MOST_ENTRIES, _MOST_WORK = 4e7, 3e8  # of a pattern on the way, and multiplications until the core is small enough


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where the factor of some matrices has entries.

    order: the coordinates in the order of their elimination. begin, rows: the entries below the diagonal of the first
    columns, the head, as in `svrhmc.kernels.triangular`; the other columns, the core, are dense.
    """

    order: Indices
    begin: Indices
    rows: npt.NDArray[np.uint32]

    @staticmethod
    def full(size: int) -> Pattern:
        """The pattern of a dense matrix, in its own order."""
        return Pattern(np.arange(size), np.zeros(1, np.int64), np.zeros(0, np.uint32))

    @staticmethod
    def of(size: int, border: Indices, rows: Indices, columns: Indices, largest_core: float = np.inf) -> Pattern:
        """The pattern of matrices with entries on the diagonal, in the rows and columns of a border, and at some other
        places, of which one of (i, j) and (j, i) is given. The elimination stops early if it takes much work and the
        core stays larger than `largest_core`.
        """
        if size <= _FEW:
            return Pattern.full(size)
        inner = np.setdiff1d(np.arange(size), border)
        number = np.full(size, -1)
        number[inner] = np.arange(len(inner))
        inside = (number[rows] >= 0) & (number[columns] >= 0)
        eliminated, remaining = _eliminate_levels(
            len(inner), len(border), number[rows[inside]], number[columns[inside]], largest_core
        )
        counts = np.concatenate([np.zeros(1, np.int64), *(counts_of_level for _, counts_of_level, _ in eliminated)])
        whole, core = counts[1:] + len(border), len(remaining) + len(border)
        work = _SLOWER * float((whole**2.0).sum()) + core**3 / 3
        if work > _WORTH * size**3 / 3:
            return Pattern.full(size)
        order = np.concatenate([*(coordinates for coordinates, _, _ in eliminated), remaining])
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        begin = np.cumsum(np.append(0, whole))
        below = np.empty(begin[-1], np.uint32)
        counts_of_level = np.ones(begin[-1], bool)
        for k in range(len(border)):  # last in each column
            last = begin[1:] - len(border) + k
            below[last], counts_of_level[last] = len(order) + k, False
        entries = np.concatenate([np.zeros(0, np.int64), *(position[last] for _, _, last in eliminated)])
        column = np.repeat(np.arange(len(whole)), counts[1:])
        below[counts_of_level] = entries[np.lexsort((entries, column))]
        return Pattern(np.concatenate([inner[order], border]), begin, below)

    @property
    def size(self) -> int:
        """Of the matrices, in rows."""
        return len(self.order)

    @property
    def head(self) -> int:
        """Columns that are sparse."""
        return len(self.begin) - 1

    @property
    def core(self) -> int:
        """Coordinates of the dense part."""
        return self.size - self.head

    @property
    def multiplications(self) -> float:
        """Of a factor, as `svrhmc.core.deadline` counts them: a coordinate of the head with d neighbours takes as long
        as 3·CHOLESKY·_SLOWER·d² of them.
        """
        sparse = _SLOWER * float((np.diff(self.begin) ** 2.0).sum())
        return float(CHOLESKY * (self.core**3.0 + 3 * sparse))

    @property
    def entries(self) -> float:
        """Of L, without its diagonal."""
        return len(self.rows) + self.core * (self.core - 1) / 2

    @property
    def numbers(self) -> int:
        """Of a factor: the entries of the head, its diagonal, and the core."""
        return len(self.rows) + self.head + self.core**2

    def places(self, rows: Indices, columns: Indices) -> Indices:
        """The indices of entries among these numbers; one of (i, j) and (j, i) is given."""
        position = np.empty(self.size, np.int64)
        position[self.order] = np.arange(self.size)
        a, b = position[rows], position[columns]
        low, high = np.minimum(a, b), np.maximum(a, b)
        first = len(self.rows) + self.head
        out = first + (low - self.head) * self.core + (high - self.head)
        out = np.where((low == high) & (low < self.head), len(self.rows) + low, out)
        sparse = (low < self.head) & (low < high)
        column = np.repeat(np.arange(self.head), np.diff(self.begin))
        out[sparse] = np.searchsorted(column * self.size + self.rows, low[sparse] * self.size + high[sparse])
        return out

    @cached_property
    def by_row(self) -> tuple[Indices, Indices, Indices]:
        """The entries of L row by row: where each row begins, which of the entries they are, and in which columns."""
        row = self.rows.astype(np.int64)
        entry = np.argsort(row, kind="stable")
        begin = np.searchsorted(row[entry], np.arange(self.size + 1))
        return begin, entry, np.repeat(np.arange(self.head), np.diff(self.begin))[entry]

    def factor(self, numbers: Array) -> Factor:
        """L of the matrix with these numbers, which it overwrites."""
        factor = Factor(self, numbers)
        if self.head:
            from svrhmc.kernels.cholesky import factor_head

            buffer = np.empty(self.size)
            factor_head(self.begin, self.rows, *self.by_row, factor.values, factor.inverse, factor.core.T, buffer)
        factorise(factor.core)
        return factor


@dataclass(frozen=True, eq=False)
class Factor:
    """L with LLᵀ = K, in the order of a pattern; nan if K has no factor."""

    pattern: Pattern
    numbers: Array

    @property
    def values(self) -> Array:
        """The entries of the head below the diagonal."""
        return self.numbers[: len(self.pattern.rows)]

    @property
    def inverse(self) -> Array:
        """1/Lⱼⱼ of the head."""
        first = len(self.pattern.rows)
        return self.numbers[first : first + self.pattern.head]

    @property
    def core(self) -> Array:
        """The dense part, a lower triangle in LAPACK's order; entries above the diagonal are not part of it."""
        size = self.pattern.core
        return self.numbers[len(self.numbers) - size**2 :].reshape(size, size).T

    @property
    def log_volume(self) -> float:
        """−log |L|."""
        return -self.log_root

    @property
    def log_root(self) -> float:
        """log |L|; nan if there is no factor."""
        diagonal = np.diag(self.core)
        if not np.isfinite(diagonal).all():
            return float("nan")
        return float(np.log(diagonal).sum() - np.log(self.inverse).sum())

    def solve(self, force: Array) -> Array:
        """K⁻¹ force."""
        from scipy.linalg.lapack import dpotrs

        y = force[self.pattern.order]
        self._solve_head("forwards", y)
        if self.pattern.core:
            y[self.pattern.head :] = dpotrs(self.core, y[self.pattern.head :], lower=1)[0]
        return self._back_through_head(y)

    def pull(self, gradient: Array) -> Array:
        """L⁻¹g, its coordinates in the order of K's."""
        y = gradient[self.pattern.order]
        self._solve_head("forwards", y)
        return self._in_original_order(self._core_solved(y, 0))

    def displace(self, z: Array) -> Array:
        """L⁻ᵀz, the coordinates of z in the order of K's."""
        return self._back_through_head(self._core_solved(z[self.pattern.order], 1))

    def _core_solved(self, y: Array, transposed: int) -> Array:
        from scipy.linalg.lapack import dtrtrs

        if self.pattern.core:
            y[self.pattern.head :] = dtrtrs(self.core, y[self.pattern.head :], lower=1, trans=transposed)[0]
        return y

    def _back_through_head(self, y: Array) -> Array:
        self._solve_head("backs", y)
        return self._in_original_order(y)

    def _in_original_order(self, y: Array) -> Array:
        """In the order of K."""
        out = np.empty_like(y)
        out[self.pattern.order] = y
        return out

    def _solve_head(self, name: str, y: Array) -> None:
        if not self.pattern.head:
            return
        from svrhmc.kernels import triangular

        pattern = self.pattern
        frame = triangular.Factor(
            _read_only(pattern.order), _read_only(self.inverse), _read_only(pattern.begin), _read_only(pattern.rows),
            _read_only(self.values), _read_only(np.zeros(0)),
        )  # fmt: skip
        work: Callable[..., None] = getattr(triangular, name)
        work(frame, y[None], 0, 1)


class Factors:
    """Factors of CSR matrices; the pattern is found anew only if a matrix has another than the one before."""

    def __init__(self, border: Indices, largest_core: int) -> None:
        """largest_core: coordinates of a dense core beyond which no factor is made. The attribute `apply` is whether
        one is made for the last pattern.
        """
        self._border, self._largest_core, self.apply = border, largest_core, True
        self._last: MatrixLike | None = None

    def pattern(self, H: MatrixLike) -> Pattern:
        """Where the factor of H has entries."""
        if self._last is None or not _same_pattern(H, self._last):
            self._last = H
            self._row = np.repeat(np.arange(H.shape[0]), np.diff(H.indptr))
            self._lower = np.flatnonzero(self._row >= H.indices)
            rows, columns = self._row[self._lower], H.indices[self._lower].astype(np.int64)
            self._pattern = Pattern.of(H.shape[0], self._border, rows, columns, self._largest_core)
            self.apply = self._pattern.core <= self._largest_core
            if self.apply:
                self._places = self._pattern.places(rows, columns)
        return self._pattern

    def __call__(self, H: MatrixLike) -> Factor | None:
        """The factor of H; None if the core is too large, or H is not positive definite."""
        pattern = self.pattern(H)
        if not self.apply:
            return None
        numbers = np.zeros(pattern.numbers)
        numbers[self._places] = H.data[self._lower]
        with indivisible_work(CHOLESKY * pattern.core**3):
            factor = pattern.factor(numbers)
        return factor if np.isfinite(factor.log_root) else None


def _same_pattern(H: MatrixLike, other: MatrixLike) -> bool:
    return np.array_equal(H.indptr, other.indptr) and np.array_equal(H.indices, other.indices)


def _eliminate_levels(
    size: int, border: int, rows: Indices, columns: Indices, largest_core: float
) -> tuple[list[tuple[Indices, Indices, Indices]], Indices]:
    """Sets of coordinates in the order of elimination, each with the numbers of their neighbours then and these
    neighbours; and the remaining coordinates. border: the number of further coordinates that are neighbours of all.
    """
    from scipy.sparse import csr_matrix

    entries_of_pattern = (
        np.concatenate([rows, columns, np.arange(size)]),
        np.concatenate([columns, rows, np.arange(size)]),
    )
    schur = csr_matrix((np.ones(len(entries_of_pattern[0]), np.float32), entries_of_pattern), shape=(size, size))
    remaining, eliminated, work = np.arange(size), [], 0.0
    while len(remaining):
        neighbours = np.diff(schur.indptr) - 1 + border
        fewest = int(neighbours.min())
        few = neighbours <= max(_NEARLY * fewest, fewest + 1)
        chosen = independent_set(schur, few & (neighbours <= _SLOWER**-0.5 * (len(remaining) + border)))
        if not chosen.any():
            break
        _, below, others = split_matrix(schur, chosen)
        eliminated.append(
            (remaining[chosen], np.diff(below.indptr).astype(np.int64), remaining[~chosen][below.indices])
        )
        remaining = remaining[~chosen]
        work += float((np.diff(below.indptr) ** 2.0).sum())
        entries = others.nnz + min(work, float(len(np.unique(below.indices))) ** 2)
        if len(remaining) + border > largest_core and (entries > _MOST_ENTRIES or work > _MOST_WORK):
            break
        by_rows = below.tocsr()
        schur = (others + by_rows @ by_rows.T).tocsr()
        schur.data[:] = 1.0
    return eliminated, remaining


def _read_only(array: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """A read-only view, the only kind of array for which the compiled code is compiled."""
    view = array.view()
    view.flags.writeable = False
    return view


@cache
def _lapack_factor() -> Callable[..., None]:
    """LAPACK's dpotrf by its address: SciPy's function of that name blocks all other threads meanwhile, and NumPy's
    Cholesky copies the matrix.
    """
    from scipy.linalg import cython_lapack

    capsule, access = cython_lapack.__pyx_capi__["dpotrf"], ctypes.pythonapi
    access.PyCapsule_GetName.restype, access.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    access.PyCapsule_GetPointer.restype = ctypes.c_void_p
    access.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = access.PyCapsule_GetPointer(capsule, access.PyCapsule_GetName(capsule))
    number = ctypes.POINTER(ctypes.c_int)
    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, number, ctypes.c_void_p, number, number)(address)


def factorise(matrix: Array) -> None:
    """Overwrite K, the lower triangle of a matrix in LAPACK's order, by L with LLᵀ = K; by nan if there is none."""
    assert matrix.flags.f_contiguous
    size, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    if len(matrix):
        _lapack_factor()(b"L", size, matrix.ctypes.data, size, info)
    if info.value:
        matrix[:] = np.nan
