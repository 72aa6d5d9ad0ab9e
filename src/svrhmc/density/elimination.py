"""Cholesky factors of sparse positive definite matrices, by eliminating independent coordinates first.

A set I of coordinates no two of which share an entry of H has a diagonal block D, and with R the others

    H = ⎡D  Bᵀ⎤ = ⎡D^½       0⎤ ⎡I  0⎤ ⎡D^½  D^−½Bᵀ⎤        S = C − B D⁻¹ Bᵀ.
        ⎣B  C ⎦   ⎣B D^−½    I⎦ ⎣0  S⎦ ⎣0        I ⎦,

So eliminating I costs no more than the entries of B, and S, the Hessian of R with I minimised out, is factorised in the
same way: each step takes a maximal set among coordinates with few neighbours, those with the fewest first (multiple
minimum degree). The levels of a category are such a set: a one-hot block is eliminated at once, rare levels before
common ones. When every remaining coordinate has a tenth of the others for neighbours, they are the core, whose factor
is dense (LAPACK).

Work and memory are known beforehand, and a factor that would take too much is refused with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Mask, Reals
from svrhmc.core.deadline import CHOLESKY, SPARSE, indivisible_work
from svrhmc.rows.csr import MatrixLike

MOST_CORE = 6000  # coordinates of the dense core: 18 million numbers, and 7·10¹⁰ operations
_MOST_ENTRIES = 4e7  # of a matrix on the way
_MOST_WORK = 3e8  # multiplications in sparse products
_HOPELESS = 3  # times MOST_CORE that are left where the entries grow with a level already
_SHARE = 0.1  # of the others, that a coordinate may have for neighbours to be eliminated sparsely
_LEAST = 0.01  # of what is left, that a level takes
_SINGLE = 1500  # coordinates from which a core is kept in float32: it no longer fits a near cache


# the diagonal of L at the columns of a level; how many entries each has below it, in which rows, and these entries
Level = tuple[Array, tuple[Indices, Indices, Reals]]


@dataclass(frozen=True, eq=False)
class Eliminated:
    """L as `svrhmc.kernels.triangular` reads it."""

    order: Indices
    inverse: Array
    begin: Indices
    rows: npt.NDArray[np.uint32]
    values: Array
    core: Reals

    def arrays(self) -> tuple[Indices, Array, Indices, npt.NDArray[np.uint32], Array, Reals]:
        """All arrays, in the order in which compiled code takes them."""
        return self.order, self.inverse, self.begin, self.rows, self.values, self.core


def eliminate(H: MatrixLike, single: int = _SINGLE) -> Eliminated | str:
    """The factor of a scipy CSR matrix with a full diagonal, or of the lower triangle of an array; or the reason why
    there is none. single: coordinates from which on the core is kept in float32.
    """
    if isinstance(H, np.ndarray):
        return _assemble_factor([], [], np.arange(len(H)), H, single)
    remaining, schur = np.arange(H.shape[0]), H
    levels: list[Indices] = []  # coordinates, level by level
    columns: list[Level] = []
    work = 0.0
    while True:
        with indivisible_work(SPARSE * schur.nnz):
            few = np.diff(schur.indptr) - 1 <= _SHARE * schur.shape[0]
            chosen = independent_set(schur, few)
            if chosen.sum() < max(1, _LEAST * len(remaining)):
                break
            diagonal, below, others = split_matrix(schur, chosen)
        if not (diagonal > 0).all():
            return _INDEFINITE
        root = np.sqrt(diagonal)
        below.data /= np.repeat(root, np.diff(below.indptr))
        degrees = np.diff(below.indptr).astype(np.float64)
        work += float((degrees**2).sum())
        entries, previous_entries = others.nnz + float((degrees**2).sum()), schur.nnz
        levels.append(remaining[chosen])
        remaining = remaining[~chosen]
        columns.append((root, (np.diff(below.indptr), remaining[below.indices], below.data)))
        if len(remaining) > MOST_CORE and (work > _MOST_WORK or min(entries, len(remaining) ** 2.0) > _MOST_ENTRIES):
            return _too_full_reason(H.shape[0], len(remaining))
        with indivisible_work(SPARSE * float((degrees**2).sum())):
            by_rows = below.tocsr()
            schur = (others - by_rows @ by_rows.T).tocsr() if len(remaining) else others
        if len(remaining) > _HOPELESS * MOST_CORE and schur.nnz > previous_entries:
            return _too_full_reason(H.shape[0], len(remaining))
    if len(remaining) > MOST_CORE:
        return _too_full_reason(H.shape[0], len(remaining))
    return _assemble_factor(levels, columns, remaining, schur.toarray(), single)


_INDEFINITE = "the Hessian at the mode is singular to rounding"


def _too_full_reason(dim: int, remaining: int) -> str:
    return (
        f"of {dim:,} columns {remaining:,} would be left that nearly all depend on each other, beyond the "
        f"{MOST_CORE:,} of which a dense factor is made"
    )


def independent_set(H: MatrixLike, few: Mask) -> Mask:
    """A maximal set of coordinates, no two of which are neighbours, among those where `few` is true; coordinates with
    the fewest neighbours first.

    A coordinate is taken if it comes before all of its undecided neighbours, which are then excluded.
    """
    size = H.shape[0]
    degree = np.diff(H.indptr).astype(np.int64) - 1
    undecided = few.copy()
    rank = np.empty(size, np.int64)
    rank[np.lexsort((np.arange(size), degree))] = np.arange(size)
    row = np.repeat(np.arange(size), np.diff(H.indptr))
    within = undecided[row] & undecided[H.indices] & (row != H.indices)
    row, column = row[within], H.indices[within]
    chosen = np.zeros(size, bool)
    while undecided.any():
        first = np.full(size, size)
        if len(row):
            starts = np.flatnonzero(np.diff(row, prepend=-1))
            first[row[starts]] = np.minimum.reduceat(rank[column], starts)
        new = undecided & (rank < first)
        chosen |= new
        undecided &= ~new
        undecided[column[new[row]]] = False
        within = undecided[row] & undecided[column]
        row, column = row[within], column[within]
    return chosen


def split_matrix(H: MatrixLike, chosen: Mask) -> tuple[Array, MatrixLike, MatrixLike]:
    """The diagonal of the chosen coordinates, their columns in the rows of the others (CSC), and the block of the
    others.
    """
    rows_of_others = H[~chosen]
    return H.diagonal()[chosen], rows_of_others[:, chosen].tocsc(), rows_of_others[:, ~chosen].tocsr()


def _assemble_factor(
    levels: list[Indices], columns: list[Level], remaining: Indices, core: Array, single: int
) -> Eliminated | str:
    """All levels one after another, then the core; rows as places in the order of elimination, sorted."""
    from scipy.linalg.lapack import dpotrf

    if len(core):
        with indivisible_work(CHOLESKY * len(core) ** 3):
            upper, failed = dpotrf(core.T, lower=0, clean=0, overwrite_a=1)  # lower for C is upper for Fortran
        if failed:
            return _INDEFINITE
        core = upper.T
    order = np.concatenate([*levels, remaining])
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    counts = np.concatenate([np.zeros(1, np.int64), *(level[1][0] for level in columns)])
    rows = np.concatenate([np.zeros(0, np.int64), *(position[level[1][1]] for level in columns)])
    values = np.concatenate([np.zeros(0), *(level[1][2] for level in columns)])
    begin = np.cumsum(counts)
    sorted_by = np.lexsort((rows, np.repeat(np.arange(len(begin) - 1), np.diff(begin))))
    packed: Reals = np.empty(len(core) * (len(core) - 1) // 2, np.float32 if len(core) > single else np.float64)
    for i in range(1, len(core)):
        packed[i * (i - 1) // 2 : i * (i + 1) // 2] = core[i, :i]
    diagonal = np.concatenate([*(level[0] for level in columns), np.diag(core)])
    return Eliminated(order, 1 / diagonal, begin, rows[sorted_by].astype(np.uint32), values[sorted_by], packed)
