"""Rows seen by several predictors: k blocks of coefficients, and q parameters that all rows share.

    x = (β¹, …, βᵏ, θ),     tᵢ = (aᵢᵀβ¹, …, aᵢᵀβᵏ, θ₁, …, θ_q) ∈ ℝᵐ,     m = k + q.

A shared parameter is a predictor whose column is 1. What a row of one predictor has as a number, a row of m predictors
has as m numbers (predictors, slopes: last axis m) or m × m (curvatures): with Jᵢ = ∂tᵢ/∂x,

    ∇f = Σ Jᵢᵀsᵢ + …,       ∇²f = Σ JᵢᵀCᵢJᵢ + ….

The methods are those of `Rows`, so that targets ask for them in the same words; each block is a pass of its own here,
in the definition, and one more loop over a row that is at hand in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals
from svrhmc.families.base import Loss
from svrhmc.rows.base import Labels, LinearMap, Norms, Rows


class Blocks(Rows):
    """n × p rows for `blocks` predictors, and `shared` parameters."""

    def __init__(self, rows: Rows, blocks: int, shared: int) -> None:
        self.rows, self.blocks, self.shared = rows, blocks, shared
        self.n, self.width, self.dtype = rows.n, rows.dim, rows.dtype
        self.dim = blocks * rows.dim + shared
        self.storage = rows.storage  # type: ignore[misc]

    def predict(self, x: Array) -> Array:
        """(chains, dim) → (chains, n, m)."""
        return self._stacked(x, self.n, self.rows.predict)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        """(chains, dim), (chains, batch) → (chains, batch, m)."""
        return self._stacked(x, indices.shape[1], lambda part: self.rows.predict_at(part, indices))

    def _stacked(self, x: Array, count: int, predict: Callable[[Array], Array]) -> Array:
        out = np.empty((len(x), count, self.blocks + self.shared))
        for c in range(self.blocks):
            out[:, :, c] = predict(np.ascontiguousarray(x[:, self._block(c)]))
        out[:, :, self.blocks :] = x[:, None, self.blocks * self.width :]
        return out

    def _block(self, c: int) -> slice:
        return slice(c * self.width, (c + 1) * self.width)

    def slopes_combined(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        """As the rows of one block have it."""
        return self.rows.slopes_combined(loss, x, labels)

    def one_pass(self, loss: Loss) -> bool:
        """As the rows of one block have it."""
        return self.rows.one_pass(loss)

    @property
    def columns(self) -> int:
        return self.width

    @property
    def seen_once(self) -> Rows:
        return self.rows

    def columns_of(self, coordinates: Indices) -> Indices:
        """Those of all blocks together; shared parameters have none."""
        return np.unique(coordinates[coordinates < self.blocks * self.width] % self.width)

    def taken(self, indices: Indices) -> Array:
        """The rows that the blocks share."""
        return self.rows.taken(indices)

    def jacobians(self, indices: Indices) -> Array:
        """Jᵢ: the row in each block, and 1 for each shared parameter."""
        wide, rows = np.zeros((len(indices), self.blocks + self.shared, self.dim)), self.rows.taken(indices)
        for c in range(self.blocks):
            wide[:, c, self._block(c)] = rows
        for j in range(self.shared):
            wide[:, self.blocks + j, self.blocks * self.width + j] = 1.0
        return wide

    def combine(self, weights: Array) -> Array:
        """Σᵢ Jᵢᵀsᵢ: (chains, n, m) → (chains, dim)."""
        return self._joined(weights, self.rows.combine)

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        """The same over the chosen rows."""
        return self._joined(weights, lambda part: self.rows.combine_at(part, indices))

    def _joined(self, weights: Array, combine: Callable[[Array], Array]) -> Array:
        blocks = [combine(np.ascontiguousarray(weights[:, :, c])) for c in range(self.blocks)]
        return np.concatenate([*blocks, weights[:, :, self.blocks :].sum(axis=1)], axis=1)

    @property
    def entries(self) -> float:
        """As if each block had rows of its own."""
        return self.blocks * self.rows.entries + self.shared

    @property
    def stored(self) -> float:
        """Those of the rows that the blocks share."""
        return self.rows.entries

    def digest(self) -> str:
        return f"{self.blocks} × {self.rows.digest()} + {self.shared}"

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Σᵢ JᵢᵀCᵢJᵢ for symmetric Cᵢ of either sign: (n, m, m) → (dim, dim)."""
        total, edge = np.zeros((self.dim, self.dim)), self.blocks * self.width
        pairs = [(a, b) for a in range(self.blocks) for b in range(a, self.blocks)]
        grams = self.rows.grams([weights[:, a, b] for a, b in pairs], precise)
        for (a, b), block in zip(pairs, grams, strict=True):
            total[self._block(a), self._block(b)], total[self._block(b), self._block(a)] = block, block.T
        for a in range(self.blocks):
            for j in range(self.shared):
                column = self.rows.combine(np.ascontiguousarray(weights[None, :, a, self.blocks + j]))[0]
                total[self._block(a), edge + j] = total[edge + j, self._block(a)] = column
        total[edge:, edge:] = weights[:, self.blocks :, self.blocks :].sum(axis=0)
        return total

    def squares(self, weights: Array) -> Array:
        """The diagonal of `gram`."""
        blocks = [self.rows.squares(np.ascontiguousarray(weights[:, c, c])) for c in range(self.blocks)]
        shared = np.arange(self.blocks, self.blocks + self.shared)
        return np.concatenate([*blocks, weights[:, shared, shared].sum(axis=0)])

    def squared_norms(self) -> Array:
        """|Jᵢ|² in the operator norm: its rows have no column in common."""
        norms = self.rows.squared_norms()
        return np.maximum(norms, 1.0) if self.shared else norms

    def choose(self, indices: Indices) -> Blocks:
        return Blocks(self.rows.choose(indices), self.blocks, self.shared)

    def lengths(self, norms: Norms) -> Array:
        """√Σ_c |(Jᵢ)_c|², at least the operator norm of Jᵢ, for a norm of vectors of all coordinates."""

        def norms_in_block(c: int) -> Norms:
            def padded_norms(some: Reals) -> Array:
                wide = np.zeros((len(some), self.dim), some.dtype)
                wide[:, self._block(c)] = some
                return norms(wide)

            return padded_norms

        total: Array = sum((self.rows.lengths(norms_in_block(c)) ** 2 for c in range(self.blocks)), np.zeros(self.n))
        return np.sqrt(total + self._shared_squares(norms))

    def whitened_lengths(self, whitening: LinearMap) -> Array:
        """√Σ_c |Wᵀ(Jᵢ)_c|², at least the operator norm of JᵢW; in one pass where the whitening has a way."""
        norms = whitening.block_norms(self.blocks, self.width)
        if norms is None:
            return super().whitened_lengths(whitening)
        return np.sqrt(self.rows.lengths(norms) ** 2 + self._shared_squares(whitening.norms))

    def _shared_squares(self, norms: Norms) -> float:
        """Those of the shared parameters, which all rows have."""
        return float((norms(np.eye(self.dim)[self.blocks * self.width :]) ** 2).sum()) if self.shared else 0.0

    def warm(self, loss: Loss, labels: Labels) -> None:
        """Passes over many rows, for one block."""
        self.rows.warm(loss, labels)


def seen_by(rows: Rows, loss: Loss) -> Rows:
    """The rows as a loss sees them: in blocks where it has several predictors."""
    return Blocks(rows, loss.blocks, loss.shared) if loss.tail else rows
