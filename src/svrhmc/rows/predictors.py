"""Rows with several linear predictors: main ones that use all columns, and further ones with columns of their own or
none.

    x = (β¹, …, βᵏ, θ¹, …, θ^q),   tᵢ = (aᵢᵀβ¹, …, aᵢᵀβᵏ, zᵢ₁ᵀθ¹, …, z_iqᵀθ^q) ∈ ℝᵐ,   m = k + q,

where row i is (aᵢ, zᵢ₁, …, z_iq).

A parameter that all rows share is a predictor whose only column is 1, which is not stored. So each predictor has a
window of the columns of a row, and a range of the coefficients in x (`Loss.windows`). Where a row of one predictor has
a number, a row of m predictors has m numbers on the last axis (predictors, slopes) or m × m (curvatures): with Jᵢ =
∂tᵢ/∂x,

    ∇f = Σ Jᵢᵀsᵢ + …,       ∇²f = Σ JᵢᵀCᵢJᵢ + ….

The methods are those of `Rows`, so that targets need not distinguish. Here, in the definition, each predictor takes a
pass of its own; in compiled code it is one more loop over a row in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals
from svrhmc.families.base import Loss, Window
from svrhmc.rows.base import Labels, LinearMap, Norms, Rows


class PredictorRows(Rows):
    """Rows with all predictors of a loss."""

    def __init__(self, rows: Rows, loss: Loss) -> None:
        self.rows, self.loss, self.windows = rows, loss, loss.windows(rows.dim)
        self.n, self.dtype, self.width = rows.n, rows.dtype, self.windows[0].width
        self.dim = self.windows[-1].coefficients.stop
        self.with_columns = [(c, window) for c, window in enumerate(self.windows) if not window.shared]
        self.shared_runs = _runs([c for c, window in enumerate(self.windows) if window.shared], self.windows)
        self.storage = rows.storage  # type: ignore[misc]

    def predict(self, x: Array) -> Array:
        """(chains, dim) → (chains, n, m)."""
        return self._stacked(x, self.n, self.rows.predict)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        """(chains, dim), (chains, batch) → (chains, batch, m)."""
        return self._stacked(x, indices.shape[1], lambda part: self.rows.predict_at(part, indices))

    def _stacked(self, x: Array, count: int, predict: Callable[[Array], Array]) -> Array:
        out = np.empty((len(x), count, len(self.windows)))
        for c, window in self.with_columns:
            out[:, :, c] = predict(self._padded(x[:, window.coefficients], window))
        for lines, places in self.shared_runs:
            out[:, :, lines] = x[:, None, places]
        return out

    def _padded(self, part: Array, window: Window) -> Array:
        """Coefficients of a window, padded with zeros to those of the whole row."""
        if window.width == self.rows.dim:
            return np.ascontiguousarray(part)
        wide = np.zeros((len(part), self.rows.dim), part.dtype)
        wide[:, window.columns] = part
        return wide

    def combine_slopes(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        return self.rows.combine_slopes(loss, x, labels)

    def can_combine_slopes(self, loss: Loss) -> bool:
        return self.rows.can_combine_slopes(loss)

    @property
    def columns(self) -> int:
        """The number of columns of the first predictor."""
        return self.width

    @property
    def design_matrix(self) -> Rows:
        return self.rows

    def columns_of(self, coordinates: Indices) -> Indices:
        """The columns of all predictors together; parameters that all rows share have none."""
        columns = [
            coordinates[(coordinates >= window.place) & (coordinates < window.coefficients.stop)]
            + (window.first - window.place)
            for _, window in self.with_columns
        ]
        return np.unique(np.concatenate(columns))

    def dense_matrix(self, indices: Indices) -> Array:
        """The chosen rows of the design matrix, which all predictors share."""
        return self.rows.dense_matrix(indices)

    def jacobians(self, indices: Indices) -> Array:
        """Jᵢ, whose row for each predictor holds the columns of that predictor, or 1 for a shared parameter."""
        wide, rows = np.zeros((len(indices), len(self.windows), self.dim)), self.rows.dense_matrix(indices)
        for c, window in self.with_columns:
            wide[:, c, window.coefficients] = rows[:, window.columns]
        for lines, places in self.shared_runs:
            wide[:, lines, places] = np.eye(places.stop - places.start)
        return wide

    def combine(self, weights: Array) -> Array:
        """Σᵢ Jᵢᵀsᵢ: (chains, n, m) → (chains, dim)."""
        return self._joined(weights, self.rows.combine)

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        """Σᵢ Jᵢᵀsᵢ over the chosen rows."""
        return self._joined(weights, lambda part: self.rows.combine_at(part, indices))

    def _joined(self, weights: Array, combine: Callable[[Array], Array]) -> Array:
        out = np.empty((len(weights), self.dim))
        for c, window in self.with_columns:
            out[:, window.coefficients] = combine(np.ascontiguousarray(weights[:, :, c]))[:, window.columns]
        for lines, places in self.shared_runs:
            out[:, places] = weights[:, :, lines].sum(axis=1)
        return out

    @property
    def entries(self) -> float:
        """The stored entries of a row, counted anew for each predictor."""
        share = sum(window.width for _, window in self.with_columns) / max(1, self.rows.dim)
        return share * self.rows.entries + (len(self.windows) - len(self.with_columns))

    @property
    def entries_read_once(self) -> float:
        """The stored entries of a row of the design matrix."""
        return self.rows.entries

    def digest(self) -> str:
        widths = f" of {self.loss.widths}" if any(self.loss.widths) else ""
        return f"{self.loss.blocks} × {self.rows.digest()} + {self.loss.shared}{widths}"

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Σᵢ JᵢᵀCᵢJᵢ for symmetric Cᵢ of either sign: (n, m, m) → (dim, dim)."""
        total = np.zeros((self.dim, self.dim))
        pairs = [(left, right) for k, left in enumerate(self.with_columns) for right in self.with_columns[k:]]
        grams = self.rows.grams([weights[:, a, b] for (a, _), (b, _) in pairs], precise)
        for ((_, left), (_, right)), gram in zip(pairs, grams, strict=True):
            block = gram[left.columns, right.columns]
            total[left.coefficients, right.coefficients], total[right.coefficients, left.coefficients] = block, block.T
        for lines, places in self.shared_runs:
            for a, window in self.with_columns:
                for c, place in zip(range(lines.start, lines.stop), range(places.start, places.stop), strict=True):
                    column = self.rows.combine(np.ascontiguousarray(weights[None, :, a, c]))[0, window.columns]
                    total[window.coefficients, place] = total[place, window.coefficients] = column
            for other_lines, other_places in self.shared_runs:
                total[places, other_places] = weights[:, lines, other_lines].sum(axis=0)
        return total

    def gram_diagonal(self, weights: Array) -> Array:
        """The diagonal of `gram`."""
        out = np.empty(self.dim)
        for c, window in self.with_columns:
            out[window.coefficients] = self.rows.gram_diagonal(np.ascontiguousarray(weights[:, c, c]))[window.columns]
        for lines, places in self.shared_runs:
            shared = np.arange(lines.start, lines.stop)
            out[places] = weights[:, shared, shared].sum(axis=0)
        return out

    def squared_norms(self) -> Array:
        """|Jᵢ|² in the operator norm, that of its longest row, as no two rows of it share a coordinate."""
        if all(window.width == self.rows.dim for _, window in self.with_columns):
            norms = self.rows.squared_norms()
        else:
            parts = [self.rows.lengths(_norms_of(window)) ** 2 for _, window in self.with_columns]
            norms = np.max(parts, axis=0)
        return np.maximum(norms, 1.0) if self.shared_runs else norms

    def choose(self, indices: Indices) -> PredictorRows:
        return PredictorRows(self.rows.choose(indices), self.loss)

    def lengths(self, norms: Norms) -> Array:
        """√Σ_c |(Jᵢ)_c|², at least the operator norm of Jᵢ, for a norm of vectors of all coordinates."""

        def norms_in_block(window: Window) -> Norms:
            def padded_norms(block: Reals) -> Array:
                wide = np.zeros((len(block), self.dim), block.dtype)
                wide[:, window.coefficients] = block[:, window.columns]
                return norms(wide)

            return padded_norms

        parts = [self.rows.lengths(norms_in_block(window)) ** 2 for _, window in self.with_columns]
        total: Array = sum(parts, np.zeros(self.n))
        return np.sqrt(total + self._shared_squares(norms))

    def whitened_lengths(self, whitening: LinearMap) -> Array:
        """√Σ_c |Wᵀ(Jᵢ)_c|², at least the operator norm of JᵢW; in one pass where the whitening can."""
        norms = None if any(self.loss.widths) else whitening.block_norms(self.loss.blocks, self.width)
        if norms is None:
            return super().whitened_lengths(whitening)
        return np.sqrt(self.rows.lengths(norms) ** 2 + self._shared_squares(whitening.norms))

    def _shared_squares(self, norms: Norms) -> float:
        """The sum of squared norms of the rows of Jᵢ for shared parameters, the same for all i."""
        parts = [norms(np.eye(self.dim)[places]) ** 2 for _, places in self.shared_runs]
        return float(sum(part.sum() for part in parts))

    def warm(self, loss: Loss, labels: Labels) -> None:
        self.rows.warm(loss, labels)


def _runs(constant: list[int], windows: Sequence[Window]) -> list[tuple[slice, slice]]:
    """Runs of consecutive predictors that all rows share, each with the places of their coefficients."""
    begins = [c for c in constant if c - 1 not in constant]
    ends = [c for c in constant if c + 1 not in constant]
    return [
        (slice(low, high + 1), slice(windows[low].place, windows[high].place + 1))
        for low, high in zip(begins, ends, strict=True)
    ]


def _norms_of(window: Window) -> Norms:
    """The norm of the columns in a window."""
    return lambda block: np.asarray(np.sqrt((block[:, window.columns].astype(np.float64) ** 2).sum(axis=1)), np.float64)


def rows_for_loss(rows: Rows, loss: Loss) -> Rows:
    """The rows with the predictors of a loss: the rows themselves where it has one predictor."""
    return PredictorRows(rows, loss) if loss.predictor_shape else rows
