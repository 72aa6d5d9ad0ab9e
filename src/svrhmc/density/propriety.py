"""Whether a posterior has a density, found out before any other work if a prior is flat.

With x free in the coordinates F, whose prior is flat, f(x) = Σᵢ wᵢℓ(tᵢ, yᵢ) + prior is bounded along d exactly where
d is 0 outside F and no row's loss grows: with the faces nᵣ of row i (`families/recession.py`) and the change of its
predictors, uᵢ = (aᵢᵀdᶜ)_c,

    cᵢᵣᵀd = nᵣᵀuᵢ ≤ 0  for every row i of weight above 0 and every face r     (= 0 where the face is closed both ways).

A convex f has a density if and only if d = 0 is the only such direction. (A loss with a shared parameter is not convex
in it; there this is asked of the coefficients given that parameter, and the parameter is looked at by itself.) So:

- *Proof from some rows.* If a few rows leave d = 0 alone, then so do all rows. By Stiemke's lemma they do if and only
  if the cᵢᵣ span all of F and Σ λᵢᵣcᵢᵣ = 0 for some λ that is positive on the one-sided faces. Newton's method on
  Σ log(1 + e^{cᵀd}) + ½Σ (cᵀd)², the first sum over one-sided faces and the second over the others, finds λ: with
  λ = 1/(1 + e^{−cᵀd}) and a step p, the numbers λ − λ(1 − λ)·cᵀp solve that equation, and they are positive if
  (1 − λ)·cᵀp < 1 for each one-sided face. Where classes overlap this takes a few steps on some thousand rows, whatever
  n is.
- *Otherwise*, some direction d is looked for that these rows allow: one that they do not see at all, or the answer of a
  linear programme. All rows are asked whether they allow it too. If they do, the posterior is improper, and the error
  names the columns of d. If not, those that object most join the rows, and it is tried again.

What is too large to decide in this way is left to the search for the mode, which also finds it out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import NoResidualsError, requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import RowsDensity
from svrhmc.density.rank import dependent_columns_error, empty_columns_error, require_rank_of, separable_error
from svrhmc.density.recession import MARGIN, OBJECTS, FacedRows
from svrhmc.families.recession import RecessionCones

_EACH, _LEAST_ROWS, _POOL = 20, 200, 8  # rows of the first try: so many for each column, and more; out of so many times
_PULLING = 8  # rows for each coordinate of the second try
_ROUNDS = 40  # of asking all rows
_MOST_NEWTON = 2e10  # products in a step: beyond, the mode will tell
_DENSE = 2000  # flat coordinates up to which a Gram matrix is made
_PIECE = 1 << 20  # entries of X looked at in one piece
_EXACT = 1e-12  # of the labels' size: residuals below it are rounding
_MOST_COLUMNS = 500  # up to which an exact fit is looked for
_ORDINARY = (1e-300, 1e300)  # sizes whose inverses float64 holds
_DIGITS = 30.0  # nats: a spread e⁻³⁰ of the labels' size is below the rounding of their residuals


def require_proper(target: RowsDensity) -> bool:
    """Refuse a posterior that has no density; gives whether columns with a flat prior were proved independent.

    >>> from svrhmc.targets import logistic
    >>> logistic([[1.0, 3.0], [1.0, 1.0], [1.0, 2.0]], [1, 0, 0], prior_precision=0.0)
    Traceback (most recent call last):
    ValueError: the posterior is improper and has no mode: the data are separable and the prior is flat along a \
direction that separates them (that of columns 0, 1): no row becomes less likely along it, however far; give \
prior_precision > 0 or a prior.
    """
    coefficients = target.rows.columns * target.loss.blocks
    flat = np.flatnonzero(target.prior_strength[:coefficients] == 0)
    independent = bool(len(flat)) and _RecessionCone(target, flat).require_no_direction()
    _require_shared_determined(target, coefficients, len(flat))
    return independent


class _RecessionCone:
    """The directions along which no row's loss grows, in the flat coordinates."""

    def __init__(self, target: RowsDensity, flat: Indices) -> None:
        self.target, self.flat, self.blocks = target, flat, target.loss.blocks
        self.columns = flat[flat < target.rows.columns]  # the prior is the same in each block
        self.counted_rows = np.arange(target.n) if target.weights is None else np.flatnonzero(target.weights > 0)
        self.scale = np.ones(len(self.columns))

    def require_no_direction(self) -> bool:
        """Refuse a direction that all rows allow; True if the columns were proved to be independent."""
        rows = self._first_rows()
        knows_cones = self.target.loss.recession_cones(self.target.y[rows]) is not None
        if not knows_cones or len(self.flat) > _DENSE or len(rows) * len(self.flat) ** 2 > _MOST_NEWTON:
            self._require_no_empty_columns()
            return False
        self.scale = self._scales(rows)
        if FacedRows.of(*self._rows(rows)).search().overlap:
            return True
        self._require_rank()
        self._check_all_rows(np.union1d(rows, self._extreme_rows()))
        return True

    def _first_rows(self) -> Indices:
        """Rows with the smallest and the largest labels, and a sample of all with labels as even as possible."""
        count = _EACH * len(self.columns) * (self.blocks + 1) // 2 + _LEAST_ROWS
        if len(self.counted_rows) <= count:
            return self.counted_rows
        y, part = self.target.loss.centre(self.target.y[self.counted_rows]), count // 4
        pool = Stream(0, np.arange(1)).indices(0, min(_POOL * count, len(y)), len(y), True, Purpose.DATA)[0]
        order = np.argsort(y[pool], kind="stable")
        begins = np.searchsorted(y[pool][order], y[pool][order])
        drawn = order[np.argsort(np.arange(len(pool)) - begins, kind="stable")[: count - 2 * part]]
        ends = np.argpartition(y, (part, len(y) - part))
        chosen: Indices = self.counted_rows[np.unique(np.concatenate([pool[drawn], ends[:part], ends[-part:]]))]
        return chosen

    def _scales(self, rows: Indices) -> Array:
        """1/median of the absolute entries of each column that are not 0."""
        size = np.abs(self.target.rows.dense_matrix(rows)[:, self.columns])
        with np.errstate(over="ignore"):
            middle = np.array([np.median(c[c > 0]) if (c > 0).any() else 1.0 for c in size.T])
        return np.asarray(1 / np.clip(middle, *_ORDINARY), np.float64)

    def _rows(self, rows: Indices) -> tuple[Array, RecessionCones]:
        """Some rows with their columns scaled, and their faces."""
        faces = self.target.loss.recession_cones(self.target.y[rows])
        assert faces is not None
        with np.errstate(over="ignore"):
            scaled = self.target.rows.dense_matrix(rows)[:, self.columns] * self.scale
        if not np.isfinite(scaled).all():
            allowed = "made of columns whose entries float64 can hold beside each other"
            raise requirement("X", allowed, "one with entries that differ by a factor of 1e300 and more")
        return scaled, faces

    def _pieces(self) -> Iterator[tuple[Indices, FacedRows]]:
        """All rows, piece by piece."""
        size = max(1, _PIECE // max(self.blocks**2, self.target.rows.columns))
        for begin in range(0, len(self.counted_rows), size):
            rows = self.counted_rows[begin : begin + size]
            yield rows, FacedRows.of(*self._rows(rows))

    def _require_no_empty_columns(self) -> None:
        """Refuse columns of zeros, and more columns than rows; this is cheap for any number of columns."""
        if len(self.columns) > len(self.counted_rows):
            raise dependent_columns_error(self.target, self.columns, "")
        weights = np.ones(self.target.n) if self.target.weights is None else self.target.weights
        unseen = np.flatnonzero(self.target.rows.design_matrix.gram_diagonal(weights)[self.columns] == 0)
        if len(unseen):
            raise empty_columns_error(self.target, self.columns[unseen])

    def _require_rank(self) -> None:
        """Refuse linearly dependent columns, by the Gram matrix of all rows."""
        weights = np.zeros(self.target.n)
        weights[self.counted_rows] = 1.0
        with np.errstate(over="ignore", invalid="ignore"):
            gram = self.target.rows.design_matrix.gram(weights, precise=True)
        if not np.isfinite(gram).all():
            allowed, why = "made of numbers whose squares do not overflow", "scale its columns to about 1"
            raise requirement("X", allowed, "larger ones", why)
        require_rank_of(self.target, gram[np.ix_(self.columns, self.columns)], self.columns)

    def _extreme_rows(self) -> Indices:
        """For every coordinate the rows that pull it up and down the most, so that rare rows are included."""
        by_pull: list[list[tuple[Array, Indices]]] = [[] for _ in range(2 * self.blocks)]
        for rows, faced in self._pieces():
            for index, pulls in enumerate(faced.column_pulls()):
                largest = np.argmax(pulls, axis=0)
                by_pull[index].append((pulls[largest, np.arange(pulls.shape[1])], rows[largest]))
        chosen = []
        for parts in by_pull:
            size, rows = (np.array(arrays) for arrays in zip(*parts, strict=True))
            largest = np.argsort(-size, axis=0, kind="stable")[:_PULLING]
            chosen.append(np.take_along_axis(rows, largest, 0)[np.take_along_axis(size, largest, 0) > 0])
        return np.unique(np.concatenate(chosen))

    def _check_all_rows(self, rows: Indices) -> None:
        """In turn, find directions that some rows allow, and add the rows that object to them; refuse a direction to
        which no row objects.
        """
        count = len(rows)
        for _ in range(_ROUNDS):
            faced = FacedRows.of(*self._rows(rows))
            directions = faced.null_directions()
            if not directions.shape[1]:
                result = faced.search()
                known = result.overlap or result.direction is not None
                directions = result.as_column(len(self.flat)) if known else faced.find_allowed_direction()
            if not directions.shape[1]:
                return
            objecting, changes = self._objections(directions, max(1, count // directions.shape[1]))
            for direction, objectors, changes_rows in zip(directions.T, objecting, changes, strict=True):
                if not len(objectors) and changes_rows:
                    raise separable_error(self._columns_of(direction))
            if not any(map(len, objecting)):
                return
            rows = np.unique(np.concatenate([rows, *objecting]))

    def _objections(self, directions: Array, count: int) -> tuple[list[Indices], npt.NDArray[np.bool_]]:
        """For each direction the rows that object to it most, and whether it changes any row's predictor."""
        worst: list[list[tuple[Array, Indices]]] = [[] for _ in directions.T]
        changes = np.zeros(directions.shape[1], bool)
        for rows, faced in self._pieces():
            products = faced.products(directions)
            changes |= (np.abs(products) > MARGIN).any(axis=(0, 1))
            objections = np.where(faced.both[..., None], np.abs(products), products).max(axis=1)
            for j, column in enumerate(objections.T):
                worst_rows = np.flatnonzero(column > OBJECTS)
                worst_rows = worst_rows[np.argsort(-column[worst_rows], kind="stable")[:count]]
                worst[j].append((column[worst_rows], rows[worst_rows]))
        chosen = []
        for parts in worst:
            size, rows = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            chosen.append(rows[np.argsort(-size, kind="stable")[:count]])
        return chosen, changes

    def _columns_of(self, direction: Array) -> Indices:
        """The columns that a direction is made of."""
        coordinates = np.flatnonzero(np.abs(direction) > 1e-6 * np.abs(direction).max())
        return np.asarray(self.columns[np.unique(coordinates % len(self.columns))], np.int64)


def _require_shared_determined(target: RowsDensity, coefficients: int, free: int) -> None:
    """Refuse a shared parameter that neither the rows nor its prior determine."""
    loss = target.loss
    if not loss.shared:
        return
    weight = float(target.n if target.weights is None else target.weights.sum())
    precision = float(target.prior_precision[coefficients:].min())
    flats = (target.prior_strength[coefficients : coefficients + loss.shared] == 0).tolist()
    flat = any(flats)
    law_known = loss.mixture and not flat and target.heavy is None  # and its prior holds the spread
    exact = loss.spread and not law_known and _has_exact_fit(target, weight, precision)
    if (flat or exact) and (why := loss.improper_reason(weight, free, exact, flats, target.y)) is not None:
        if exact and np.ptp(loss.on_link(target.y)) == 0:
            allowed = f"labels that leave residuals for the family {loss.name!r}"
            way_out = f"look whether it is the right column, or {loss.without_residuals}"
            why = f"no residual tells how large the spread is; {way_out}"
            raise requirement("y", allowed, "the same label in every row", why, NoResidualsError)
        raise requirement(
            "shared_prior" if not exact else "y",
            f"one with which the parameter that rows of the family {loss.name!r} share has a posterior" if not exact
            else f"labels that leave residuals for the family {loss.name!r}",
            "a flat one" if not exact else "labels that leave none",
            f"{why}; {'give a shared_prior' if not exact else loss.without_residuals}",
            NoResidualsError if exact else ValueError,
        )  # fmt: skip


def _has_exact_fit(target: RowsDensity, weight: float, precision: float) -> bool:
    """Whether some coefficients fit every label exactly, and the prior of the spread τ is so weak beside the rows that
    the spread falls below rounding: f falls by W|τ|, and the prior adds ½·precision·τ². If the law given τ is known,
    coefficients are integrated out, which adds rank·|τ|.
    """
    width, n = target.rows.columns, target.n
    mixture = int(target.loss.mixture)
    if width > _MOST_COLUMNS or weight - mixture * min(n, width) < _DIGITS * precision:
        return False
    counted = np.arange(n) if target.weights is None else np.flatnonzero(target.weights > 0)
    label = target.loss.on_link(target.y) - (0.0 if target.offset is None else target.offset)
    sample = counted[np.unique(np.linspace(0, len(counted) - 1, 2 * width + 50).astype(np.int64))]
    size = _EXACT * float(np.abs(label[counted]).max())
    A = target.rows.dense_matrix(sample)
    scale = np.abs(A).max(axis=0)
    scale[scale == 0] = 1.0
    fit, _, rank, _ = np.linalg.lstsq(A / scale, label[sample], rcond=None)
    if np.abs(A / scale @ fit - label[sample]).max() > size or weight - mixture * rank < _DIGITS * precision:
        return False
    residuals = target.rows.design_matrix.predict((fit / scale)[None, :])[0] - label
    return bool(np.abs(residuals[counted]).max() <= 10 * size)
