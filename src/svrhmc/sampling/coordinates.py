"""The coordinates of a posterior: those in which it is sampled, and those in which it is reported.

It is sampled in variables z that are whitened at the mode, x̃ = x̂ + W z, by the Hessian or by differences. A
regression is sampled in variables x̃ of its columns less their centre m and over their scale s, in which it is well
conditioned whatever the units are; what a user reads are the coefficients x of the columns as they came. With one block
of coefficients (or one for each class), an intercept α̃ at the centre of the columns and a centre μ of the response,

    t = μ + α̃ + Σⱼ β̃ⱼ(aⱼ − mⱼ)/sⱼ = α + Σⱼ βⱼaⱼ,        βⱼ = β̃ⱼ/sⱼ,        α = μ + α̃ − Σⱼ mⱼβⱼ,

and parameters that rows share stay as they are. So x = A x̃ + c with A = diag(1/s) but for the rows of the intercepts.
A linear map takes draws, control variates and covariances with it: the moments and the verdict of a posterior are those
of the coefficients as they are reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array, Indices, Reals, map_blocks
from svrhmc.core.deadline import Budget
from svrhmc.core.errors import optional, requirement, text
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.models.model import Model
from svrhmc.rows.csr import CsrMatrix, Matrix
from svrhmc.rows.forms import functions_of, rows_of
from svrhmc.sampling import costs
from svrhmc.sampling.correction import Location
from svrhmc.whitening import LowRankWhitening, Whitening, dense_whitening, whitening
from svrhmc.whitening.at_mode import read_whitening
from svrhmc.whitening.nearest_gaussian import find_nearest_gaussian

_BLOCK = 1 << 13  # rows at a time
_NUMBERS, _LEAST = 1 << 20, 64  # numbers of draws at a time, and draws at least
_MODES = "modes"
_SEARCH = "search"  # the record of what was found on the way to the mode, and of the curvature there
_DENSE_CUSTOM = 100  # columns up to which a custom target's Hessian is found by differences


def draw_blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Slices (chains, draws) of an array (chain, draw, dim) block by block: whole chains, or parts of one."""
    chains, draws, dim = shape
    part = max(_LEAST, _NUMBERS // max(1, dim))
    size = max(1, part // max(1, draws))
    for chain in range(0, chains, size):
        for draw in range(0, draws, part):
            yield slice(chain, chain + size), slice(draw, draw + part)


@dataclass(frozen=True, eq=False)
class Units:
    """What it takes to map coefficients of standardised columns to the units of the table.

    centre, scale: mⱼ and sⱼ of each column. intercept: whether an intercept comes before the columns. blocks: number of
        blocks of coefficients. shared: number of shared parameters that follow. response: the centre μ.
    step: a typical change of each column: its standard deviation, or the difference of its values if it has only two;
        None in old files.
    lifted: whether shared parameters take the place of the intercept, with the opposite sign, as thresholds of aᵀβ do:
        c = c̃ + Σⱼ mⱼβⱼ.
    further: for shared parameters with predictors of their own, how many columns each has and whether there is an
        intercept; 0 and 0 if all rows share the parameter. Their columns and steps follow those of the first predictor.
    """

    centre: Array
    scale: Array
    intercept: bool
    blocks: int
    shared: int
    response: float
    step: Array | None = None
    lifted: bool = False
    further: Indices | None = None

    def require_sound(self) -> None:
        """Refuse numbers that no columns can have."""
        if self.step is not None and self.step.shape != self.scale.shape:
            raise requirement("units", "one step for each column", f"shape {self.step.shape}")
        if self.centre.shape != self.scale.shape or self.centre.ndim != 1:
            raise requirement("units", "one centre and one scale for each column", f"shapes {self.centre.shape}")
        if not (np.isfinite(self.centre).all() and np.isfinite(self.scale).all() and (self.scale > 0).all()):
            raise requirement("units", "of finite centres and positive scales", "others")
        if self.further is not None and (
            self.further.ndim != 2
            or self.further.shape[1] != 2
            or self.further.min() < 0
            or self.further[:, 0].sum() > len(self.centre)
            or np.maximum(self.further.sum(axis=1), 1).sum() != self.shared
        ):
            raise requirement("units", "columns of further predictors, as many as there are", self.further.tolist())
        if self.blocks < 1 or self.shared < 0 or not np.isfinite(self.response):
            raise requirement("units", "of at least one block and a finite response", f"{self.blocks}, {self.shared}")

    @property
    def dim(self) -> int:
        """The number of coordinates, including shared parameters."""
        return self.blocks * self._width + self.shared

    @property
    def columns(self) -> int:
        """The number of columns of the first predictor, without the intercept."""
        return len(self.centre) - (0 if self.further is None else int(self.further[:, 0].sum()))

    @property
    def _width(self) -> int:
        return self.columns + int(self.intercept)

    @property
    def _pieces(self) -> list[_Piece]:
        """The predictors that have columns or an intercept."""
        first = slice(0, self.columns)
        pieces = [_Piece(block * self._width, self.intercept, first) for block in range(self.blocks)]
        place, column = self.blocks * self._width, self.columns
        for count, has_intercept in [] if self.further is None else self.further.tolist():
            if count or has_intercept:
                pieces.append(_Piece(place, bool(has_intercept), slice(column, column + count)))
            place, column = place + max(1, count + has_intercept), column + count
        return pieces

    @property
    def factors(self) -> Array:
        """The diagonal of A."""
        factors = np.ones(self.dim)
        for piece in self._pieces:
            factors[piece.slopes] = 1 / self.scale[piece.columns]
        return factors

    @property
    def column_of_each(self) -> Indices:
        """The column of each coordinate; −1 for intercepts and shared parameters."""
        column = np.full(self.dim, -1)
        for piece in self._pieces:
            column[piece.slopes] = np.arange(piece.columns.start, piece.columns.stop)
        return column

    @property
    def intercepts(self) -> slice:
        """The places of the intercepts, to which the centre of the response is added; none if there are none."""
        return self._intercepts if self.intercept else slice(0)

    def intercept_rows(self) -> Iterator[tuple[int, Array]]:
        """The rows of A that have entries off the diagonal, those of intercepts or thresholds, with their places."""
        for piece in self._pieces:
            if piece.intercept:
                row = np.zeros(self.dim)
                row[piece.place] = 1.0
                row[piece.slopes] = -self.centre[piece.columns] / self.scale[piece.columns]
                yield piece.place, row
        for place in range(self.blocks * self._width, self.dim) if self.lifted else ():
            row = np.zeros(self.dim)
            row[place], row[: self._width] = 1.0, self.centre / self.scale
            yield place, row

    def linear(self, x: Array) -> Array:
        """A x̃, for (…, dim)."""
        return self._map(x, 1 / self.scale, -self.centre / self.scale)

    def outward(self, x: Array) -> Array:
        """A x̃ + c: coefficients of the columns in the units of the table."""
        out = self.linear(x)
        if self.intercept:
            out[..., self._intercepts] += self.response
        return out

    def inward(self, x: Array) -> Array:
        """x̃ of coefficients x."""
        x = np.array(x, np.float64)
        if self.intercept:
            x[..., self._intercepts] -= self.response
        return self._map(x, self.scale, self.centre)

    def rows(self, X: Matrix) -> Matrix:
        """Rows in the units of the table, mapped to those of the model: standardised, with a column of ones before the
        columns of each predictor that has an intercept.
        """
        pieces = self._pieces[self.blocks - 1 :]
        if hasattr(X, "format"):  # SciPy's, which no centre is taken from
            from scipy.sparse import csr_matrix, diags, hstack

            scaled = csr_matrix(X @ diags(1 / self.scale))
            ones = csr_matrix(np.ones((scaled.shape[0], 1)))
            parts = [part for piece in pieces for part in ([ones] * piece.intercept + [scaled[:, piece.columns]])]
            standardised: CsrMatrix = csr_matrix(hstack(parts)) if len(parts) > 1 else scaled
            return standardised
        X = np.asarray(X)
        width = sum(piece.slopes.stop - piece.place for piece in pieces)
        out = np.empty((len(X), width), X.dtype if X.dtype == np.float32 else np.float64)

        def fill(block: slice) -> None:
            end = 0
            for piece in pieces:
                first, columns = end + int(piece.intercept), piece.columns
                out[block, end:first] = 1.0
                end = first + columns.stop - columns.start
                out[block, first:end] = (X[block, columns] - self.centre[columns]) / self.scale[columns]

        map_blocks(fill, len(X), _BLOCK)
        return out

    def rows_by_column(self, X: Any) -> Reals:
        """The same as `rows` for a dense block that is stored column by column."""
        first = int(self.intercept)
        out = np.empty((self._width, len(X)), X.dtype if X.dtype == np.float32 else np.float64)
        out[:first] = 1.0
        for j, (centre, scale) in enumerate(zip(self.centre, self.scale, strict=True)):
            np.divide(X[:, j] - centre, scale, out=out[first + j], casting="same_kind")
        return out.T

    @property
    def _intercepts(self) -> slice:
        return slice(0, self.blocks * self._width, self._width)

    def _map(self, x: Array, factor: Array, lean: Array) -> Array:
        """Slopes times their factor, and Σⱼ leanⱼxⱼ added to the intercept of their block, or subtracted from
        thresholds.
        """
        out = np.array(x, np.float64)
        for piece in self._pieces:
            slopes, columns = piece.slopes, piece.columns
            if piece.intercept:
                out[..., piece.place] = x[..., piece.place] + (np.asarray(x)[..., slopes] * lean[columns]).sum(axis=-1)
            out[..., slopes] = x[..., slopes] * factor[columns]
        if self.lifted:
            out[..., self.blocks * self._width :] -= (np.asarray(x)[..., : self._width] * lean).sum(axis=-1)[..., None]
        return out


class _Piece(NamedTuple):
    """A predictor: where its coefficients begin in x, whether the first is an intercept, and its columns."""

    place: int
    intercept: bool
    columns: slice

    @property
    def slopes(self) -> slice:
        """The places of its coefficients but the intercept."""
        begin = self.place + int(self.intercept)
        return slice(begin, begin + self.columns.stop - self.columns.start)


class ReportedCoordinates:
    """The map x = A(x̂ + W z) + c from whitened variables to the reported coefficients.

    Draws (chain, draw, dim) are mapped block by block; `first` is the number of the first draw.
    """

    def __init__(self, whitening: Any, units: Units | None) -> None:
        self._whitening, self._units = whitening, units

    def out(self, z: Array, first: int = 0) -> Array:
        """x of z."""
        units = self._units
        return self._map_draws(z, first, self._whitening.out, None if units is None else units.outward)

    def displace(self, z: Array, first: int = 0, into: Array | None = None) -> Array:
        """A W z, written into an array if one is given, which may be z itself."""
        units = self._units
        return self._map_draws(z, first, self._whitening.displace, None if units is None else units.linear, into)

    @staticmethod
    def _map_draws(
        z: Array,
        first: int,
        whiten: Callable[[Array, int], Array],
        to_units: Callable[[Array], Array] | None,
        into: Array | None = None,
    ) -> Array:
        if z.ndim < 3:
            x = whiten(z, first)
            return x if to_units is None else to_units(x)
        out = np.empty(z.shape) if into is None else into
        for block in draw_blocks(z.shape):
            mapped = whiten(z[block], first + block[1].start)
            out[block] = mapped if to_units is None else to_units(mapped)
        return out

    @property
    def centre(self) -> Array:
        """x of the mode."""
        centre: Array = self._whitening.centre
        return centre if self._units is None else self._units.outward(centre)

    @property
    def laplace(self) -> Location:
        """Moments of the Laplace approximation."""
        return Location(self.centre, np.sqrt(self.variances))

    @property
    def variances(self) -> Array:
        """The diagonal of A WWᵀ Aᵀ."""
        variances: Array = self._whitening.variances
        units = self._units
        if units is None:
            return variances
        variances = variances * units.factors**2
        for place, row in units.intercept_rows():
            variances[place] = float((self._whitening.pull(row) ** 2).sum())
        return variances


def find_whitening(target: FiniteSum, seed: int, journal: Journal, budget: Budget) -> Whitening:
    """The map to whitened variables, found once for a journal."""
    record = journal.get("variables")
    if record is not None:
        budget.restore(record)
        whitening_map = read_whitening(record, target.dim, beside=(_MODES,))
        modes, one_mode = record.array(_MODES, (None, target.dim)), record.value("one mode", optional, text)
        if not len(modes):
            raise record.unusable("it has no mode")
        if len(np.unique(modes, axis=0)) < len(modes) or (one_mode is not None and len(modes) > 1):
            raise record.unusable("it has one mode several times, or several where there is one")
        target.recall_modes(modes, record.value("doubt", text), record.value("starts", text), one_mode)
    else:
        with journal.recording(_SEARCH, budget):
            whitening_map = _make_whitening(target, seed, budget)
            modes = target.modes()
        in_words = {"doubt": target.doubt, "starts": target.mode_starts, "one mode": target.one_mode}
        settings = {"kind": whitening_map.kind, "map": whitening_map.said(), "ledger": budget.ledger(), **in_words}
        journal.put("variables", settings, {**whitening_map.arrays(), _MODES: modes})
        journal.remove(_SEARCH)
    return whitening_map


def _make_whitening(target: FiniteSum, seed: int, budget: Budget) -> Whitening:
    form = target.form()
    if rows_of(form) is not None:
        return _whitening_by_hessian(cast(GeneralisedLinear, target), budget)
    if functions_of(form) is not None:
        model = cast(Model, target)
        return _whitening_of_bulk(model, _whitening_by_hessian(model, budget), budget)
    return _whitening_by_differences(target, seed, budget)


def _whitening_of_bulk(target: Model, at_mode: Whitening, budget: Budget) -> Whitening:
    """The nearest Gaussian's map instead, if most of a posterior with one mode lies elsewhere and the budget allows to
    find out.
    """
    one_mode = len(target.modes()) == 1 and not target.doubt
    return find_nearest_gaussian(target, at_mode, budget, costs.pass_seconds(target)) if one_mode else at_mode


def _whitening_by_hessian(target: GeneralisedLinear | Model, budget: Budget) -> Whitening:
    budget.compile(target.warm)
    map_at_mode = whitening(target)
    if not target.tells_passes:
        budget.require_passes(target.mode_passes + 2)  # where the mode was known, nobody has looked yet
        budget.evaluations += (target.mode_passes + 2) * target.n
    return map_at_mode


def _whitening_by_differences(target: FiniteSum, seed: int, budget: Budget) -> Whitening:
    """The curvature at the mode by differences of the gradient: all of it, or its diagonal from random directions."""
    if target.dim <= _DENSE_CUSTOM:
        directions = np.eye(target.dim)
    else:
        signs = Stream(seed, np.arange(30)).normals(0, target.dim, Purpose.DATA, Purpose.DATA_FINE)
        directions = np.where(signs > 0, 1.0, -1.0)
    budget.after = 2.0 * len(directions)
    mode = target.mode()
    budget.require_passes(target.mode_passes)
    budget.evaluations += target.mode_passes * target.n
    budget.done, budget.after = 1.0, 0.0
    budget.require_passes(2.0 * len(directions))
    scale = max(1e-5, 1e-5 * float(np.abs(mode).max()))
    change = np.empty((len(directions), target.dim))
    steps = scale * directions
    for number, step in enumerate(steps):
        budget.done = (target.mode_passes + 2 * number) / (target.mode_passes + 2 * len(directions))
        change[number] = (target.gradient(mode + step) - target.gradient(mode - step)) / (2 * scale)
    budget.evaluations += 2.0 * len(directions) * target.n
    if target.dim <= _DENSE_CUSTOM:
        return dense_whitening(mode, (change + change.T) / 2)
    diagonal = (change * steps / scale).mean(axis=0)
    floor = 0.05 * float(np.median(np.abs(diagonal)))
    return LowRankWhitening(mode, np.maximum(diagonal, floor) ** -0.5, np.zeros((target.dim, 0)), np.zeros(0))
