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
    """The result of a search: proof that only d = 0 is allowed (`overlap`), or a direction that every row allows with
    a margin, or neither.
    """

    overlap: bool = False
    direction: Array | None = None

    def as_column(self, dim: int) -> Array:
        """The direction as a column, where there is one."""
        return np.zeros((dim, 0)) if self.direction is None else self.direction[:, None]


@dataclass(frozen=True, eq=False)
class FacedRows:
    """Rows (n, p) of length 1, normals (n, k, k) of length 1, and which faces are closed both ways (n, k)."""

    A: Array
    normals: Array
    both: npt.NDArray[np.bool_]

    @staticmethod
    def of(A: Array, faces: RecessionCones) -> FacedRows:
        """From rows of any length; they are scaled before their entries are squared."""
        largest = np.abs(A).max(axis=1, initial=0.0)[:, None]
        return FacedRows(_unit(A / np.where(largest > 0, largest, 1.0)), _unit(faces.normals), faces.both)

    @property
    def blocks(self) -> int:
        """k."""
        return int(self.normals.shape[2])

    def products(self, directions: Array) -> Array:
        """cᵢᵣᵀd for directions in columns: (k·p, q) → (n, k, q)."""
        u = np.stack([self.A @ part for part in np.split(directions, self.blocks)], axis=1)
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

    def column_pulls(self) -> Iterator[Array]:
        """For every block, how far the faces of each row reach up along each column, then how far down."""
        for c in range(self.blocks):
            high, low = self.normals[:, :, c].max(axis=1)[:, None], self.normals[:, :, c].min(axis=1)[:, None]
            twice = np.asarray(self.both.any(axis=1))[:, None]
            high, low = np.where(twice, np.maximum(high, -low), high), np.where(twice, np.minimum(low, -high), low)
            yield np.maximum(high * self.A, low * self.A)
            yield -np.minimum(high * self.A, low * self.A)

    def null_directions(self) -> Array:
        """Directions in the null space of the rows, as columns: those of one block, repeated in each."""
        values, vectors = np.linalg.eigh(self.A.T @ self.A)
        return np.kron(np.eye(self.blocks), vectors[:, values <= _UNSEEN * max(values[-1], 1e-300)])

    def search(self) -> Recession:
        """Newton's method on Σ log(1 + e^{cᵀd}) + ½Σ (cᵀd)², the second sum over faces that are closed both ways.

        >>> from svrhmc.families.recession import one_predictor_cones
        >>> both_up, one_up = np.array([True, True]), np.array([True, False])  # whether the loss grows upwards
        >>> FacedRows.of(np.ones((2, 1)), one_predictor_cones(both_up, ~both_up)).search().direction
        array([-1.])
        >>> FacedRows.of(np.ones((2, 1)), one_predictor_cones(one_up, ~one_up)).search().overlap
        True
        """
        from scipy.linalg import LinAlgError, cho_factor, cho_solve

        one_sided, d = ~self.both, np.zeros(self.blocks * self.A.shape[1])
        t, value = self.products(d[:, None])[..., 0], np.inf
        for _ in range(_NEWTON):
            slope = np.where(one_sided, 1 / (1 + np.exp(-np.clip(t, -500.0, 500.0))), t)
            H = self.gram(np.where(one_sided, slope * (1 - slope), 1.0))
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
            change = self.products(step[:, None])[..., 0]
            if ((1 - slope[one_sided]) * change[one_sided] < 0.999).all():
                return Recession(overlap=True)
            for _ in range(_HALVINGS):
                trial_products = t - change
                trial = float(np.where(one_sided, np.logaddexp(0.0, trial_products), trial_products**2 / 2).sum())
                if trial < value:
                    break
                step, change = step / 2, change / 2
            d, t, value = d - step, trial_products, trial
            if one_sided.all() and t.max() < -MARGIN * np.abs(d).max():
                return Recession(direction=d / np.abs(d).max())
        return Recession()

    def find_allowed_direction(self) -> Array:
        """A direction with cᵀd ≤ 0 (= 0 for two-sided faces) that changes some row, as a column; or no column.

        Of all such d within |dⱼ| ≤ 1 it is the one with the least Σ cᵀd: a linear programme.
        """
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix

        none = np.zeros((self.blocks * self.A.shape[1], 0))
        if np.count_nonzero(self.A) * np.count_nonzero(self.normals) > _MOST_LINEAR * len(self.A):
            return none
        C = (self.normals[..., None] * self.A[:, None, None, :]).reshape(self.both.size, -1)
        one_sided, two_sided = (csr_matrix(C[chosen]) for chosen in (~self.both.ravel(), self.both.ravel()))
        tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        cost = self.combine(np.where(self.both, 0.0, 1.0))
        solution = linprog(
            cost,
            one_sided,
            np.zeros(one_sided.shape[0]),
            two_sided,
            np.zeros(two_sided.shape[0]),
            (-1, 1),
            options=tolerances,
        )
        if solution.x is None or (C @ solution.x).min() > -MARGIN:
            return none
        return np.asarray(solution.x, np.float64)[:, None]


def _unit(vectors: Array) -> Array:
    """Vectors (along the last axis) of length 1; those of length 0 stay."""
    lengths = np.sqrt((vectors**2).sum(axis=-1, keepdims=True))
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), np.float64)
