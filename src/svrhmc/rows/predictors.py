"""Rows seen by several predictors: blocks of coefficients of all columns, and further predictors with columns of their
own, or none.

    x = (β¹, …, βᵏ, θ¹, …, θ^q),   tᵢ = (aᵢᵀβ¹, …, aᵢᵀβᵏ, zᵢ₁ᵀθ¹, …, z_iqᵀθ^q) ∈ ℝᵐ,   m = k + q,

of which row i holds (aᵢ, zᵢ₁, …, z_iq).

A parameter that all rows share is a predictor whose only column is 1, which no row holds. So each predictor sees a
window of the row, and has the coefficients of a piece of x (`Loss.windows`). What a row of one predictor has as a
number, a row of m predictors has as m numbers (predictors, slopes: last axis m) or m × m (curvatures): with
Jᵢ = ∂tᵢ/∂x,

    ∇f = Σ Jᵢᵀsᵢ + …,       ∇²f = Σ JᵢᵀCᵢJᵢ + ….

The methods are those of `Rows`, so that targets ask for them in the same words; each predictor is a pass of its own
here, in the definition, and one more loop over a row that is at hand in compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from svrhmc.core.arrays import Array, Indices, Reals
from svrhmc.families.base import Loss, Window
from svrhmc.rows.base import Labels, LinearMap, Norms, Rows


class Blocks(Rows):
    """Rows as the predictors of a loss see them."""

    def __init__(self, rows: Rows, loss: Loss) -> None:
        self.rows, self.loss, self.windows = rows, loss, loss.windows(rows.dim)
        self.n, self.dtype, self.width = rows.n, rows.dtype, self.windows[0].width
        self.dim = self.windows[-1].coefficients.stop
        self.seeing = [(c, window) for c, window in enumerate(self.windows) if not window.shared]
        self.constant = _runs([c for c, window in enumerate(self.windows) if window.shared], self.windows)
        self.storage = rows.storage  # type: ignore[misc]

    def predict(self, x: Array) -> Array:
        """(chains, dim) → (chains, n, m)."""
        return self._stacked(x, self.n, self.rows.predict)

    def predict_at(self, x: Array, indices: Indices) -> Array:
        """(chains, dim), (chains, batch) → (chains, batch, m)."""
        return self._stacked(x, indices.shape[1], lambda part: self.rows.predict_at(part, indices))

    def _stacked(self, x: Array, count: int, predict: Callable[[Array], Array]) -> Array:
        out = np.empty((len(x), count, len(self.windows)))
        for c, window in self.seeing:
            out[:, :, c] = predict(self._padded(x[:, window.coefficients], window))
        for lines, places in self.constant:
            out[:, :, lines] = x[:, None, places]
        return out

    def _padded(self, part: Array, window: Window) -> Array:
        """Coefficients of a window as those of the whole row, whose others are 0."""
        if window.width == self.rows.dim:
            return np.ascontiguousarray(part)
        wide = np.zeros((len(part), self.rows.dim), part.dtype)
        wide[:, window.columns] = part
        return wide

    def slopes_combined(self, loss: Loss, x: Array, labels: Labels) -> Array | None:
        """As the rows of one block have it."""
        return self.rows.slopes_combined(loss, x, labels)

    def one_pass(self, loss: Loss) -> bool:
        """As the rows of one block have it."""
        return self.rows.one_pass(loss)

    @property
    def columns(self) -> int:
        """Those that the first predictor sees."""
        return self.width

    @property
    def seen_once(self) -> Rows:
        return self.rows

    def columns_of(self, coordinates: Indices) -> Indices:
        """Those of all predictors together; parameters that all rows share have none."""
        columns = [
            coordinates[(coordinates >= window.place) & (coordinates < window.coefficients.stop)]
            + (window.first - window.place)
            for _, window in self.seeing
        ]
        return np.unique(np.concatenate(columns))

    def taken(self, indices: Indices) -> Array:
        """The rows that the predictors share."""
        return self.rows.taken(indices)

    def jacobians(self, indices: Indices) -> Array:
        """Jᵢ: in the line of each predictor its columns, or 1 for a shared parameter."""
        wide, rows = np.zeros((len(indices), len(self.windows), self.dim)), self.rows.taken(indices)
        for c, window in self.seeing:
            wide[:, c, window.coefficients] = rows[:, window.columns]
        for lines, places in self.constant:
            wide[:, lines, places] = np.eye(places.stop - places.start)
        return wide

    def combine(self, weights: Array) -> Array:
        """Σᵢ Jᵢᵀsᵢ: (chains, n, m) → (chains, dim)."""
        return self._joined(weights, self.rows.combine)

    def combine_at(self, weights: Array, indices: Indices) -> Array:
        """The same over the chosen rows."""
        return self._joined(weights, lambda part: self.rows.combine_at(part, indices))

    def _joined(self, weights: Array, combine: Callable[[Array], Array]) -> Array:
        out = np.empty((len(weights), self.dim))
        for c, window in self.seeing:
            out[:, window.coefficients] = combine(np.ascontiguousarray(weights[:, :, c]))[:, window.columns]
        for lines, places in self.constant:
            out[:, places] = weights[:, :, lines].sum(axis=1)
        return out

    @property
    def entries(self) -> float:
        """As if each predictor had rows of its own."""
        share = sum(window.width for _, window in self.seeing) / max(1, self.rows.dim)
        return share * self.rows.entries + (len(self.windows) - len(self.seeing))

    @property
    def stored(self) -> float:
        """Those of the rows that the predictors share."""
        return self.rows.entries

    def digest(self) -> str:
        widths = f" of {self.loss.widths}" if any(self.loss.widths) else ""
        return f"{self.loss.blocks} × {self.rows.digest()} + {self.loss.shared}{widths}"

    def gram(self, weights: Array, precise: bool = False) -> Array:
        """Σᵢ JᵢᵀCᵢJᵢ for symmetric Cᵢ of either sign: (n, m, m) → (dim, dim)."""
        total = np.zeros((self.dim, self.dim))
        pairs = [(one, other) for k, one in enumerate(self.seeing) for other in self.seeing[k:]]
        grams = self.rows.grams([weights[:, a, b] for (a, _), (b, _) in pairs], precise)
        for ((_, one), (_, other)), gram in zip(pairs, grams, strict=True):
            block = gram[one.columns, other.columns]
            total[one.coefficients, other.coefficients], total[other.coefficients, one.coefficients] = block, block.T
        for lines, places in self.constant:
            for a, window in self.seeing:
                for c, place in zip(range(lines.start, lines.stop), range(places.start, places.stop), strict=True):
                    column = self.rows.combine(np.ascontiguousarray(weights[None, :, a, c]))[0, window.columns]
                    total[window.coefficients, place] = total[place, window.coefficients] = column
            for others, other_places in self.constant:
                total[places, other_places] = weights[:, lines, others].sum(axis=0)
        return total

    def squares(self, weights: Array) -> Array:
        """The diagonal of `gram`."""
        out = np.empty(self.dim)
        for c, window in self.seeing:
            out[window.coefficients] = self.rows.squares(np.ascontiguousarray(weights[:, c, c]))[window.columns]
        for lines, places in self.constant:
            shared = np.arange(lines.start, lines.stop)
            out[places] = weights[:, shared, shared].sum(axis=0)
        return out

    def squared_norms(self) -> Array:
        """|Jᵢ|² in the operator norm: no two of its rows have a coordinate in common."""
        if all(window.width == self.rows.dim for _, window in self.seeing):
            norms = self.rows.squared_norms()
        else:
            parts = [self.rows.lengths(_norms_of(window)) ** 2 for _, window in self.seeing]
            norms = np.max(parts, axis=0)
        return np.maximum(norms, 1.0) if self.constant else norms

    def choose(self, indices: Indices) -> Blocks:
        return Blocks(self.rows.choose(indices), self.loss)

    def lengths(self, norms: Norms) -> Array:
        """√Σ_c |(Jᵢ)_c|², at least the operator norm of Jᵢ, for a norm of vectors of all coordinates."""

        def norms_in_block(window: Window) -> Norms:
            def padded_norms(some: Reals) -> Array:
                wide = np.zeros((len(some), self.dim), some.dtype)
                wide[:, window.coefficients] = some[:, window.columns]
                return norms(wide)

            return padded_norms

        parts = [self.rows.lengths(norms_in_block(window)) ** 2 for _, window in self.seeing]
        total: Array = sum(parts, np.zeros(self.n))
        return np.sqrt(total + self._shared_squares(norms))

    def whitened_lengths(self, whitening: LinearMap) -> Array:
        """√Σ_c |Wᵀ(Jᵢ)_c|², at least the operator norm of JᵢW; in one pass where the whitening has a way."""
        norms = None if any(self.loss.widths) else whitening.block_norms(self.loss.blocks, self.width)
        if norms is None:
            return super().whitened_lengths(whitening)
        return np.sqrt(self.rows.lengths(norms) ** 2 + self._shared_squares(whitening.norms))

    def _shared_squares(self, norms: Norms) -> float:
        """Those of the shared parameters, which all rows have."""
        parts = [norms(np.eye(self.dim)[places]) ** 2 for _, places in self.constant]
        return float(sum(part.sum() for part in parts))

    def warm(self, loss: Loss, labels: Labels) -> None:
        """Passes over many rows, for one block."""
        self.rows.warm(loss, labels)


def _runs(constant: list[int], windows: Sequence[Window]) -> list[tuple[slice, slice]]:
    """Predictors that all rows share, in runs of lines next to each other, with the places of their coefficients."""
    begins = [c for c in constant if c - 1 not in constant]
    ends = [c for c in constant if c + 1 not in constant]
    return [
        (slice(low, high + 1), slice(windows[low].place, windows[high].place + 1))
        for low, high in zip(begins, ends, strict=True)
    ]


def _norms_of(window: Window) -> Norms:
    """|z| of the columns that a predictor sees."""
    return lambda some: np.asarray(np.sqrt((some[:, window.columns].astype(np.float64) ** 2).sum(axis=1)), np.float64)


def seen_by(rows: Rows, loss: Loss) -> Rows:
    """The rows as a loss sees them: in windows where it has several predictors."""
    return Blocks(rows, loss) if loss.predictor_shape else rows
