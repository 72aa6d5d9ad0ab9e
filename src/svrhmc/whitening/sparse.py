"""The whitening of a sparse Hessian, by its Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Reals, cores
from svrhmc.core.deadline import CHOLESKY, checking_budget, indivisible_work
from svrhmc.core.errors import requirement
from svrhmc.whitening.maps import Whitening, dense_row_lengths, require_arrays

if TYPE_CHECKING:
    from svrhmc.kernels.triangular import Factor

_TOGETHER = 8  # states that one reading of the factor serves


@dataclass(frozen=True, eq=False)
class SparseWhitening(Whitening):
    """W = P L⁻ᵀ with H = P L Lᵀ Pᵀ: WᵀHW = I. L is sparse in its first columns and dense in the last ones.

    x = x̂ + W z is one triangular system, Lᵀ(Pᵀ(x − x̂)) = z, and a gradient is pulled back by another, L g′ = Pᵀg: each
    takes as many operations as L has entries, and no matrix of dim × dim is ever made. Where the dense part is large it
    is stored in float32: then W is the map of that L, and WᵀHW = I to 1e-6.

    |Wᵀaᵢ| of a single row takes as much as a whole gradient: samplers that need it of every row are not for this map.
    """

    kind = "sparse"
    identity_hessian = True
    row_lengths = False
    centre: Array
    order: Indices  # the p-th coordinate to be eliminated
    inverse: Array  # 1/Lⱼⱼ
    begin: Indices  # of the sparse columns of L below the diagonal: where each begins,
    rows: npt.NDArray[np.uint32]  # at which rows it has entries, as places in the order,
    values: Array
    core: Reals  # the dense rows of L, one after another, without the diagonal
    why: str = ""

    @property
    def log_volume(self) -> float:
        """From the diagonal of L."""
        return float(np.log(np.abs(self.inverse)).sum())

    def displace(self, z: Array, first: int = 0) -> Array:
        """P y with Lᵀy = z."""
        out = np.empty(np.shape(z))
        out[..., self.order] = self._mapped(z, "backs")
        return out

    def pull(self, gradient: Array) -> Array:
        """y with L y = Pᵀg."""
        return self._mapped(gradient[..., self.order], "forwards")

    def into(self, x: Array) -> Array:
        """LᵀPᵀ(x − centre)."""
        return self._mapped((x - self.centre)[..., self.order], "turns")

    def norms(self, rows: Reals) -> Array:
        """One triangular system a row."""
        return dense_row_lengths(self.pull(np.asarray(rows, np.float64)))

    @property
    def for_sparse_rows(self) -> bool:
        """That is what it is for."""
        return True

    @property
    def operations(self) -> float:
        """The entries of L."""
        return float(len(self.values) + len(self.core) + len(self.order))

    @property
    def variances(self) -> Array:
        """The diagonal of H⁻¹, from the entries that it has on the pattern of L; found once."""
        return self._variances

    @cached_property
    def _variances(self) -> Array:
        from scipy.linalg.lapack import dpotri, dtrtri

        from svrhmc.kernels import triangular

        head = len(self.begin) - 1
        size = len(self.order) - head
        inner = np.zeros((size, size))
        for i in range(size):
            inner[i, :i] = self.core[i * (i - 1) // 2 : i * (i + 1) // 2]
            inner[i, i] = 1 / self.inverse[head + i]
        if not head:  # H⁻¹ = L⁻ᵀL⁻¹, of which the diagonal is all that is needed
            with indivisible_work(2 * CHOLESKY * size**3):  # the transpose is upper, and LAPACK's own order
                inner, _ = dtrtri(inner.T, lower=0, overwrite_c=1)
            diagonal = np.einsum("ij,ij->i", inner, inner)
            return np.asarray(diagonal[np.argsort(self.order)], np.float64)
        if size:
            with indivisible_work(2 * CHOLESKY * size**3):
                inner, _ = dpotri(inner.T, lower=0, overwrite_c=1)
        diagonal, most = np.empty(len(self.order)), int(np.diff(self.begin).max(initial=0))
        room = (np.empty(len(self.rows)), np.empty(most))
        triangular.inverse_diagonal(self.frame, np.ascontiguousarray(inner), *room, diagonal)
        unknown = np.flatnonzero(np.isnan(diagonal))
        for some in checking_budget(np.array_split(unknown, -(-len(unknown) // 64) if len(unknown) else 1)):
            units = np.zeros((len(some), len(self.order)))
            units[np.arange(len(some)), some] = 1.0
            diagonal[some] = (self._mapped(units, "forwards") ** 2).sum(axis=1)
        variances = np.empty(len(self.order))
        variances[self.order] = diagonal
        return variances

    def arrays(self) -> dict[str, Any]:
        names = ("centre", "order", "inverse", "begin", "rows", "values", "core")
        return {name: getattr(self, name) for name in names}

    def require_sound(self) -> None:
        """An order of all coordinates; columns one after another, whose rows lie below the diagonal, each once; a core
        of the size of what is left.
        """
        dim, head, size = len(self.centre), len(self.begin) - 1, len(self.values)
        left = dim - head
        require_arrays(self, {"centre": (dim,), "inverse": (dim,), "values": (size,)})
        require_arrays(self, {"order": (dim,), "begin": (head + 1,)}, np.int64)
        require_arrays(self, {"rows": (size,)}, np.uint32)
        kind = np.float32 if getattr(self.core, "dtype", None) == np.float32 else np.float64
        require_arrays(self, {"core": (left * (left - 1) // 2,)}, kind)
        counts = np.diff(self.begin)
        tiled = 0 <= head <= dim and self.begin[0] == 0 and self.begin[-1] == size and (counts >= 0).all()
        if not tiled or not np.array_equal(np.sort(self.order), np.arange(dim)) or not (self.inverse != 0).all():
            raise requirement("whitening", "of a triangular factor of all coordinates", "another")
        column, rows = np.repeat(np.arange(head), counts), self.rows.astype(np.int64)
        growing = np.diff(rows, prepend=-1) > 0
        growing[self.begin[:-1][counts > 0]] = True
        if not ((rows > column) & (rows < dim) & growing).all():
            raise requirement("rows of a sparse whitening", "increasing places below the diagonal", "others")

    @cached_property
    def frame(self) -> Factor:
        """As compiled code reads it."""
        from svrhmc.kernels.triangular import Factor

        parts = (self.order, self.inverse, self.begin, self.rows, self.values, self.core)
        return Factor(*(_fixed(part) for part in parts))

    def _mapped(self, states: Array, name: str) -> Array:
        """A compiled map of states (…, dim), which the threads share."""
        from svrhmc.kernels import triangular

        work: Callable[..., None] = getattr(triangular, name)
        out = np.array(states, np.float64, order="C")
        flat = out.reshape(-1, len(self.order))
        begins = range(0, len(flat), _TOGETHER)
        if len(flat) <= _TOGETHER:
            work(self.frame, flat, 0, len(flat))
            return out
        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(lambda low: work(self.frame, flat, low, min(low + _TOGETHER, len(flat))), begins))
        return out


def _fixed(array: Any) -> Any:
    """A view that cannot be written, as arrays read from a file are: so that both compile to the same code."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
