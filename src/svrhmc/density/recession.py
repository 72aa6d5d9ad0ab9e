"""Directions of recession: whether rows allow any d ≠ 0 along which no loss grows, cᵢᵣᵀd ≤ 0, by Newton's method.

Row i has the vectors cᵢᵣ = (nᵣ₁aᵢ, …, nᵣₖaᵢ), one for each face r (`families/recession.py`), here of length 1: whether
a direction is allowed does not depend on how long they are. With A of n × p entries they are n·k vectors of k·p
numbers, which are never formed: products with them are products with A and with the normals. `propriety.py` says why
this decides whether a posterior is proper.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.families.recession import RecessionCones

MARGIN, OBJECTS = 1e-6, 1e-9  # of cᵀd where |c| = 1 and |dⱼ| ≤ 1: a row is clear of the plane; a row objects to d
_NEWTON, _HALVINGS = 16, 30  # steps of Newton's method
_PIVOT = 1e-5  # of a Cholesky factor with a unit diagonal: below it columns may depend on each other
_UNSEEN = 1e-12  # of a Gram matrix's largest eigenvalue
_MOST_LINEAR = 1e6  # entries of a linear programme: beyond, it is not tried


@dataclass(frozen=True, eq=False)
class Recession:
    """What was shown: that d = 0 alone is allowed, or a direction that every row is clear of, or neither."""

    overlap: bool = False
    way: Array | None = None

    def ways(self, dim: int) -> Array:
        """The direction as a column, where there is one."""
        return np.zeros((dim, 0)) if self.way is None else self.way[:, None]


@dataclass(frozen=True, eq=False)
class FacedRows:
    """Rows (n, p) of length 1, normals (n, k, k) of length 1, and which faces are closed both ways (n, k)."""

    A: Array
    normals: Array
    both: npt.NDArray[np.bool_]

    @staticmethod
    def of(A: Array, faces: RecessionCones) -> FacedRows:
        """Rows of any length: their largest entries are made 1 before any is squared."""
        largest = np.abs(A).max(axis=1, initial=0.0)[:, None]
        return FacedRows(_unit(A / np.where(largest > 0, largest, 1.0)), _unit(faces.normals), faces.both)

    @property
    def blocks(self) -> int:
        """k."""
        return int(self.normals.shape[2])

    def along(self, ways: Array) -> Array:
        """cᵢᵣᵀd for directions in columns: (k·p, q) → (n, k, q)."""
        u = np.stack([self.A @ part for part in np.split(ways, self.blocks)], axis=1)
        return np.asarray(self.normals @ u, np.float64)

    def combine(self, weights: Array) -> Array:
        """Σ wᵢᵣcᵢᵣ: (n, k) → (k·p)."""
        return np.concatenate([self.A.T @ part for part in np.einsum("nr,nrc->cn", weights, self.normals)])

    def gram(self, weights: Array) -> Array:
        """Σ wᵢᵣcᵢᵣcᵢᵣᵀ, block by block."""
        p, by_row = self.A.shape[1], np.einsum("nrc,nr,nrd->cdn", self.normals, weights, self.normals)
        total = np.empty((self.blocks * p, self.blocks * p))
        for c in range(self.blocks):
            for d in range(c, self.blocks):
                block = self.A.T @ (by_row[c, d][:, None] * self.A)
                total[c * p : (c + 1) * p, d * p : (d + 1) * p] = block
                total[d * p : (d + 1) * p, c * p : (c + 1) * p] = block.T
        return total

    def pulls(self) -> Iterator[Array]:
        """For every block, how far a row's faces reach up along each column, and how far down."""
        for c in range(self.blocks):
            high, low = self.normals[:, :, c].max(axis=1)[:, None], self.normals[:, :, c].min(axis=1)[:, None]
            twice = np.asarray(self.both.any(axis=1))[:, None]
            high, low = np.where(twice, np.maximum(high, -low), high), np.where(twice, np.minimum(low, -high), low)
            yield np.maximum(high * self.A, low * self.A)
            yield -np.minimum(high * self.A, low * self.A)

    def unseen(self) -> Array:
        """Directions that no row sees, as columns: of one block, repeated in each."""
        values, vectors = np.linalg.eigh(self.A.T @ self.A)
        return np.kron(np.eye(self.blocks), vectors[:, values <= _UNSEEN * max(values[-1], 1e-300)])

    def search(self) -> Recession:
        """Newton's method on Σ log(1 + e^{cᵀd}) + ½Σ (cᵀd)², the second sum over faces that are closed both ways.

        >>> from svrhmc.families.recession import one_predictor_cones
        >>> one, other = np.array([True, True]), np.array([True, False])  # whether the loss grows upwards
        >>> FacedRows.of(np.ones((2, 1)), one_predictor_cones(one, ~one)).search().way
        array([-1.])
        >>> FacedRows.of(np.ones((2, 1)), one_predictor_cones(other, ~other)).search().overlap
        True
        """
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        one, d = ~self.both, np.zeros(self.blocks * self.A.shape[1])
        t, value = self.along(d[:, None])[..., 0], np.inf
        for _ in range(_NEWTON):
            slope = np.where(one, 1 / (1 + np.exp(-np.clip(t, -500.0, 500.0))), t)
            H = self.gram(np.where(one, slope * (1 - slope), 1.0))
            root = np.sqrt(np.diag(H))
            if not (root > 0).all():
                return Recession()
            try:
                factor = cho_factor(H / root / root[:, None], lower=True)
            except LinAlgError:
                return Recession()
            if np.diag(factor[0]).min() < _PIVOT:
                return Recession()
            step = cho_solve(factor, self.combine(slope) / root) / root
            change = self.along(step[:, None])[..., 0]
            if ((1 - slope[one]) * change[one] < 0.999).all():
                return Recession(overlap=True)
            for _ in range(_HALVINGS):
                there = t - change
                trial = float(np.where(one, np.logaddexp(0.0, there), there**2 / 2).sum())
                if trial < value:
                    break
                step, change = step / 2, change / 2
            d, t, value = d - step, there, trial
            if one.all() and t.max() < -MARGIN * np.abs(d).max():
                return Recession(way=d / np.abs(d).max())
        return Recession()

    def allowed(self) -> Array:
        """A direction with cᵀd ≤ 0 (= 0 where closed both ways) that moves some row, as a column, or no column.

        Of all such d within |dⱼ| ≤ 1 it is the one with the least Σ cᵀd: a linear programme.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        none = np.zeros((self.blocks * self.A.shape[1], 0))
        if np.count_nonzero(self.A) * np.count_nonzero(self.normals) > _MOST_LINEAR * len(self.A):
            return none
        C = (self.normals[..., None] * self.A[:, None, None, :]).reshape(self.both.size, -1)
        one, two = (csr_matrix(C[which]) for which in (~self.both.ravel(), self.both.ravel()))
        tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        cost = self.combine(np.where(self.both, 0.0, 1.0))
        solution = linprog(cost, one, np.zeros(one.shape[0]), two, np.zeros(two.shape[0]), (-1, 1), options=tight)
        if solution.x is None or (C @ solution.x).min() > -MARGIN:
            return none
        return np.asarray(solution.x, np.float64)[:, None]


def _unit(vectors: Array) -> Array:
    """Vectors (along the last axis) of length 1; those of length 0 stay."""
    lengths = np.sqrt((vectors**2).sum(axis=-1, keepdims=True))
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), np.float64)
