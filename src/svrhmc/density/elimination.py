"""Cholesky factors of sparse positive definite matrices, by eliminating independent coordinates first.

A set I of coordinates no two of which share an entry of H has a diagonal block D, and with R the others

    H = ⎡D  Bᵀ⎤ = ⎡D^½       0⎤ ⎡I  0⎤ ⎡D^½  D^−½Bᵀ⎤        S = C − B D⁻¹ Bᵀ.
        ⎣B  C ⎦   ⎣B D^−½    I⎦ ⎣0  S⎦ ⎣0        I ⎦,

So I costs the entries of B and no more, and S, the Hessian of R with I left free, is factorised in the same way: each
level takes a maximal set among coordinates of few neighbours, in the order of their number (multiple minimum degree).
The levels of a category are such a set: all of a one-hot block goes at once, rare levels before common ones. What is
left when every coordinate has a tenth of all others for neighbours is the core, whose factor is dense (LAPACK).

Work and memory are known before they are spent, and a factor that is not worth them is refused with the reason.
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
    """The factor of a scipy CSR matrix with its whole diagonal, or of the lower triangle of an array; or why there is
    none.
    """
    if isinstance(H, np.ndarray):
        return _finished([], [], np.arange(len(H)), H, single)
    left, left_over = np.arange(H.shape[0]), H
    taken: list[Indices] = []  # coordinates, level by level
    columns: list[Level] = []
    work = 0.0
    while True:
        with indivisible_work(SPARSE * left_over.nnz):
            few = np.diff(left_over.indptr) - 1 <= _SHARE * left_over.shape[0]
            chosen = independent(left_over, few)
            if chosen.sum() < max(1, _LEAST * len(left)):
                break
            diagonal, below, rest = cut(left_over, chosen)
        if not (diagonal > 0).all():
            return _INDEFINITE
        root = np.sqrt(diagonal)
        below.data /= np.repeat(root, np.diff(below.indptr))
        degrees = np.diff(below.indptr).astype(np.float64)
        work += float((degrees**2).sum())
        entries, before = rest.nnz + float((degrees**2).sum()), left_over.nnz
        taken.append(left[chosen])
        left = left[~chosen]
        columns.append((root, (np.diff(below.indptr), left[below.indices], below.data)))
        if len(left) > MOST_CORE and (work > _MOST_WORK or min(entries, len(left) ** 2.0) > _MOST_ENTRIES):
            return _too_full(H.shape[0], len(left))
        with indivisible_work(SPARSE * float((degrees**2).sum())):
            by_rows = below.tocsr()
            left_over = (rest - by_rows @ by_rows.T).tocsr() if len(left) else rest
        if len(left) > _HOPELESS * MOST_CORE and left_over.nnz > before:
            return _too_full(H.shape[0], len(left))
    if len(left) > MOST_CORE:
        return _too_full(H.shape[0], len(left))
    return _finished(taken, columns, left, left_over.toarray(), single)


_INDEFINITE = "the Hessian at the mode is singular to rounding"


def _too_full(dim: int, left: int) -> str:
    return (
        f"of {dim:,} columns {left:,} would be left that nearly all depend on each other, beyond the {MOST_CORE:,} "
        "of which a dense factor is made"
    )


def independent(H: MatrixLike, few: Mask) -> Mask:
    """A maximal set of some coordinates, those with few neighbours, of which no two are neighbours, those with the
    fewest first.

    A coordinate is taken where it comes before all its neighbours that are not decided yet; its neighbours are out.
    """
    size = H.shape[0]
    degree = np.diff(H.indptr).astype(np.int64) - 1
    undecided = few.copy()
    place = np.empty(size, np.int64)
    place[np.lexsort((np.arange(size), degree))] = np.arange(size)
    row = np.repeat(np.arange(size), np.diff(H.indptr))
    here = undecided[row] & undecided[H.indices] & (row != H.indices)
    row, column = row[here], H.indices[here]
    chosen = np.zeros(size, bool)
    while undecided.any():
        first = np.full(size, size)
        if len(row):
            starts = np.flatnonzero(np.diff(row, prepend=-1))
            first[row[starts]] = np.minimum.reduceat(place[column], starts)
        new = undecided & (place < first)
        chosen |= new
        undecided &= ~new
        undecided[column[new[row]]] = False
        here = undecided[row] & undecided[column]
        row, column = row[here], column[here]
    return chosen


def cut(H: MatrixLike, chosen: Mask) -> tuple[Array, MatrixLike, MatrixLike]:
    """The diagonal of the chosen, the columns of the chosen at the rows of the others (CSC), and the others."""
    others = H[~chosen]
    return H.diagonal()[chosen], others[:, chosen].tocsc(), others[:, ~chosen].tocsr()


def _finished(taken: list[Indices], columns: list[Level], left: Indices, core: Array, single: int) -> Eliminated | str:
    """All levels one after another, then the core; rows as places in the order of elimination, sorted."""
    from scipy.linalg.lapack import dpotrf

    if len(core):
        with indivisible_work(CHOLESKY * len(core) ** 3):
            upper, failed = dpotrf(core.T, lower=0, clean=0, overwrite_a=1)  # lower for C is upper for Fortran
        if failed:
            return _INDEFINITE
        core = upper.T
    order = np.concatenate([*taken, left])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    counts = np.concatenate([np.zeros(1, np.int64), *(level[1][0] for level in columns)])
    rows = np.concatenate([np.zeros(0, np.int64), *(place[level[1][1]] for level in columns)])
    values = np.concatenate([np.zeros(0), *(level[1][2] for level in columns)])
    begin = np.cumsum(counts)
    sorted_by = np.lexsort((rows, np.repeat(np.arange(len(begin) - 1), np.diff(begin))))
    packed: Reals = np.empty(len(core) * (len(core) - 1) // 2, np.float32 if len(core) > single else np.float64)
    for i in range(1, len(core)):
        packed[i * (i - 1) // 2 : i * (i + 1) // 2] = core[i, :i]
    diagonal = np.concatenate([*(level[0] for level in columns), np.diag(core)])
    return Eliminated(order, 1 / diagonal, begin, rows[sorted_by].astype(np.uint32), values[sorted_by], packed)
