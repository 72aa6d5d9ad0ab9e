"""Predictions from the draws: the mean of y at new rows, new values of y, and the likelihood of the fitted rows.

For a draw x of the posterior and a row a the predictor is t = o + aᵀx, the mean of y there is μ(t), and a new y is the
quantile of its law at t for a number u that is uniform on (0, 1). Averages over the draws are those of the posterior
predictive law. The variance of a new y is Var μ(t) + E Var(y | t) where the family knows that of y at t, and else that
of the draws of y. Rows are processed in blocks, so that only a block of rows times the draws is in memory; u is a
function of (seed, draw, row), so that blocks change nothing.

Summaries over the draws are about one row at a time, so that its u need not be independent, only evenly distributed:
the u of row i are vᵢ, vᵢ + g, vᵢ + 2g, … modulo 1, with vᵢ uniform and g the golden ratio. The share of K such numbers
below any p is p up to O(log K/K), where independent ones have an error of √(p(1 − p)/K): with a thousand draws the 5%
quantile of a new y is off by some 0.01 sd rather than 0.07. In the draws themselves (`blocks`) all rows of a draw are
used together, and u is independent.

Group effects add Σₖ zᵢₖᵀuₖ,ℓ to the predictor. Those of a level that was not fitted are Mε with Σ = MMᵀ of each draw,
ε being a function of (seed, draw, name of the level): so rows of one such level share their effects, whatever blocks or
tables they are in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError, boolean, one_of, real_array, requirement, whole_number
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.summaries import Summary
from svrhmc.families.base import Loss
from svrhmc.priors.covariance import semidefinite_root
from svrhmc.results.base import Input, PosteriorData, no_rows, thin_draws
from svrhmc.rows.forms import RowsForm
from svrhmc.sampling.effects import GroupEffects
from svrhmc.tables.columns import columns_of, plain_columns, row_labels
from svrhmc.tables.design import Design, is_table, log_exposure
from svrhmc.tables.new_rows import Handling, NewRows, require_applicable

if TYPE_CHECKING:
    import pandas

# For each term of groups the numbers of the levels of the rows; pairs of these and columns where more than an intercept
# varies
Levels = Sequence[Any]

_BLOCK_NUMBERS = 1 << 22  # rows times draws in one block
_ROWS_PER_STEP = 256  # rows that share a step of the random stream
_GOLDEN = (5**0.5 - 1) / 2
_SMALLEST_U = 2.0**-54  # keeps u above 0
_FIRST_LEVEL_STEP = 1 << 20  # steps of the random stream for effects of new levels begin at this number times 2³²
NEW_GROUPS = ("draw", "average", "refuse")
_LARGEST_SQUARED = 1e150  # numbers up to this size have squares whose sums stay within float64


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """Predictions at some rows: the mean of y under each draw, and new y, summarised over the draws.

    mean, sd, quantiles: of μ(t), the mean of y (for classes, their probabilities: one more axis). new_sd,
    new_quantiles: of a new y, which varies about that mean; its mean is `mean`. (For classes they are None.) levels:
    of the quantiles, which are their first axis. draws: how many were used. classes: their names, where they are known.
    trials: those of each row, of a binomial y; then y is the number of successes in them, `mean` that expected, and
    `probability` that of a success in one trial. binary: whether y is yes or no, so that a new y is known by its mean
    alone, and intervals are of the probability. rows: the numbers of the rows of the table that were predicted, where
    rows that miss values were dropped. table: what was predicted from. Print it, or take `to_frame()`.
    """

    mean: Array
    sd: Array
    quantiles: Array
    new_sd: Array | None
    new_quantiles: Array | None
    levels: tuple[float, ...]
    draws: int
    classes: tuple[str, ...] = ()
    trials: Array | None = None
    probability: Array | None = None
    binary: bool = False
    rows: Indices | None = None
    table: Any = None

    @property
    def _index(self) -> Any:
        """What names the rows that were predicted: `row_labels` of the table."""
        return row_labels(self.table, np.arange(len(self.mean)) if self.rows is None else self.rows)

    @property
    def summary(self) -> Summary:
        """A table with a line for each row: mean, sd, quantiles of the mean of y ("5%") and of a new y ("new 5%"); for
        classes, the probability of each. Where there are trials these are numbers of successes, and the trials and the
        probability of a success stand before them.
        """
        rows = tuple(map(str, self._index))
        if self.mean.ndim > 1:
            names = self.classes or tuple(map(str, range(self.mean.shape[1])))
            return Summary(rows, dict(zip(names, self.mean.T, strict=True)))
        level_names = [f"{100 * level:.4g}%" for level in self.levels]
        columns = {"mean": self.mean, "sd": self.sd, **dict(zip(level_names, self.quantiles, strict=True))}
        if self.trials is not None and self.probability is not None:
            columns = {"trials": self.trials, "probability": self.probability, **columns}
        if self.new_quantiles is not None and not self.binary:
            columns |= {f"new {name}": values for name, values in zip(level_names, self.new_quantiles, strict=True)}
        return Summary(rows, columns)

    def __repr__(self) -> str:
        return str(self.summary)

    def to_frame(self, keep: bool | str | Sequence[str] = False) -> pandas.DataFrame:
        """The same as a pandas data frame, with the index of the table if that is one of pandas, else by the numbers of
        the rows from 0 on.

        keep: columns of the table that was predicted, to stand before the predictions: True for all, or their names.
        """
        frame = self.summary.to_frame()
        import pandas

        frame.index = pandas.Index(self._index)
        kept = pandas.DataFrame(self.kept_columns(keep, frame.columns))
        if len(kept.columns):
            kept.index = frame.index
        return pandas.concat([kept, frame], axis=1) if len(kept.columns) else frame

    def kept_columns(self, keep: bool | str | Sequence[str], names: Iterable[str]) -> dict[str, Any]:
        """Columns of the table at the predicted rows; refuses columns that have the name of a prediction."""
        if isinstance(keep, bool) and not keep:
            return {}
        if self.table is None:
            raise requirement("keep", "False where no table was predicted, whose columns have names", repr(keep))
        kept_names = None if keep is True else [keep] if isinstance(keep, str) else list(keep)
        columns = plain_columns(self.table, kept_names)
        clashing = [name for name in columns if name in set(names)]
        if clashing:
            why = "rename it in the table, or name the columns to keep"
            raise requirement("keep", "columns whose names no prediction has", repr(clashing[0]), why)
        return columns if self.rows is None else {name: column.iloc[self.rows] for name, column in columns.items()}

    def at_rows(self, rows: NewRows, table: object) -> Prediction:
        """The prediction at the rows of a table that are reported, with nan at rows that could not be predicted."""
        kept = rows.kept[rows.reported]
        numbers = None if rows.reported.all() else np.flatnonzero(rows.reported)
        if kept.all():
            return replace(self, table=table, rows=numbers)

        def widen(array: Array | None, axis: int = 0) -> Any:
            if array is None:
                return None
            shape = list(array.shape)
            shape[axis] = len(kept)
            widened = np.full(shape, np.nan)
            widened[(slice(None),) * axis + (kept,)] = array
            return widened

        return replace(
            self, mean=widen(self.mean), sd=widen(self.sd), quantiles=widen(self.quantiles, 1),
            new_sd=widen(self.new_sd), new_quantiles=widen(self.new_quantiles, 1), trials=widen(self.trials),
            probability=widen(self.probability), table=table, rows=numbers,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
    """A block of rows, the first of which is number `start`: μ(t) (draws, rows, …) and new y (draws, rows) under every
    draw. each: the mean of a single observation, which is one trial where y is the number of successes in several.
    """

    start: int
    mean: Array
    new: Array
    each: Array


class Grouping(NamedTuple):
    """How a prediction treats groups: the arguments include_groups, new_groups and groups of `Posterior.predict`."""

    include: bool = True
    new: str = "draw"
    given: Levels | None = None


@dataclass(frozen=True, eq=False)
class TermRows:
    """One term of groups at some rows. index: the number of the level of each row, −1 where it was not fitted. columns:
    what varies by level, (n, r). effects: draws of the effects, (draws, levels, r).

    factor: M with Σ = MMᵀ of each draw, (draws, r, r), by which effects of other levels are drawn; None: they are 0.
    steps: the steps of the random stream from which they are drawn, the same for all rows of one such level.
    """

    index: Indices
    columns: Array
    effects: Array
    factor: Array | None = None
    steps: Indices | None = None
    seed: int = 0

    def under_draws(self, draws: Indices) -> TermRows:
        """The same under some of the draws."""
        factor = None if self.factor is None else self.factor[draws]
        return replace(self, effects=self.effects[draws], factor=factor)

    def contribution(self, rows: Indices) -> Array:
        """What it adds to the predictors of some rows: (draws, rows)."""
        index, z = self.index[rows], self.columns[rows]
        out = np.zeros((len(self.effects), len(rows)))
        known = index >= 0
        out[:, known] = np.einsum("drc,rc->dr", self.effects[:, index[known]], z[known])
        if self.factor is not None and self.steps is not None and not known.all():
            steps, place = np.unique(self.steps[rows][~known], return_inverse=True)
            stream = Stream(self.seed, np.arange(len(self.effects)))
            e = stream.normals(steps, z.shape[1], Purpose.NEW, Purpose.NEW_FINE)
            u = np.einsum("dab,dlb->dla", self.factor, e)
            out[:, ~known] = np.einsum("drc,rc->dr", u[:, place], z[~known])
        return out


@dataclass(frozen=True, eq=False)
class SmoothRows:
    """One smooth at some rows: the values of its functions (n, q), and draws of their coefficients (draws, q, 1)."""

    columns: ClassVar[None] = None  # nothing varies by level
    basis: Array
    effects: Array

    def under_draws(self, draws: Indices) -> SmoothRows:
        """The same under some of the draws."""
        return replace(self, effects=self.effects[draws])

    def contribution(self, rows: Indices) -> Array:
        """What it adds to the predictors of some rows: (draws, rows)."""
        return np.asarray(self.effects[:, :, 0] @ self.basis[rows].T)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions at the rows of a form, under draws x (draws, dim), in blocks of rows.

    Draw k and row i have the same u whatever other draws and rows there are. groups: terms of groups, whose effects are
    not in x.
    """

    form: RowsForm
    x: Array
    seed: int
    trials: Array | None = None
    groups: tuple[TermRows | SmoothRows, ...] = ()

    def under_draws(self, draws: Indices) -> Predictions:
        """The same under some of the draws."""
        return replace(self, x=self.x[draws], groups=tuple(term.under_draws(draws) for term in self.groups))

    def blocks(self) -> Iterator[Block]:
        """The means μ(t) and new y, one block of rows after another."""
        for start, t, rows in self.predictors():
            trials = None if self.trials is None else self.trials[rows]
            mean_of_one = self.form.loss.mean(t)
            mean = mean_of_one if trials is None else mean_of_one * trials
            yield Block(start, mean, self.form.loss.draw(t, self._uniforms(start, t.shape[1]), trials), mean_of_one)

    def predictors(self) -> Iterator[tuple[int, Array, Indices]]:
        """For one block of rows after another: the number of its first row, t (draws, rows, …), and the row numbers."""
        n, size = self.form.rows.n, _ROWS_PER_STEP * max(1, _BLOCK_NUMBERS // (_ROWS_PER_STEP * len(self.x)))
        for start in range(0, n, size):
            rows = np.arange(start, min(start + size, n))
            t = self.form.choose(rows).predictors(self.x)
            for term in self.groups:
                t = (
                    t
                    + term.contribution(rows)[(..., *(None,) * len(self.form.loss.predictor_shape))]
                    * self.form.loss.unit()
                )
            yield start, t, rows

    def summarise(self, levels: tuple[float, ...], classes: tuple[str, ...] = ()) -> Prediction:
        """Means, standard deviations and quantiles over the draws."""
        means, sds, quantiles, new_sds, new_quantiles, shares = [], [], [], [], [], []
        has_classes, loss = False, self.form.loss
        for start, t, rows in self.predictors():
            trials = None if self.trials is None else self.trials[rows]
            each = loss.mean(t)
            values = each if trials is None else each * trials
            has_classes = values.ndim > 2
            mean, sd = _moments(values)
            means.append(mean)
            sds.append(sd)
            quantiles.append(np.quantile(values, levels, axis=0))
            shares.append(each.mean(axis=0))
            if has_classes:
                continue
            noise = self._noise(t)
            known = np.isfinite(noise)
            if levels or not known.all():
                new = loss.draw(t, self._even_uniforms(start, len(rows)), trials)
                new_quantiles.append(np.quantile(new, levels, axis=0))
                new_sds.append(np.where(known, np.hypot(sd, noise), _moments(new)[1]))
            else:
                new_quantiles.append(np.empty((0, len(rows))))
                new_sds.append(np.hypot(sd, noise))
        binary = self.form.loss.most_classes == 2 and self.trials is None
        return Prediction(
            np.concatenate(means),
            np.concatenate(sds),
            np.concatenate(quantiles, axis=1),
            None if has_classes else np.concatenate(new_sds),
            None if has_classes else np.concatenate(new_quantiles, axis=1),
            levels,
            len(self.x),
            classes,
            self.trials,
            None if self.trials is None else np.concatenate(shares),
            binary,
        )

    def _noise(self, t: Array) -> Array:
        """√E Var(y | t) over the draws, (rows,); nan where it is not known."""
        variance = None
        if self.trials is None:
            with np.errstate(over="ignore", invalid="ignore"):
                variance = self.form.loss.variance(t)
        return np.full(t.shape[1], np.nan) if variance is None else np.asarray(np.sqrt(variance.mean(axis=0)))

    def _even_uniforms(self, start: int, count: int) -> Array:
        """u (draws, rows) that are evenly distributed in each row: steps of the golden ratio from a random start."""
        uniforms: Array = (self._uniforms(start, count, 1) + _GOLDEN * np.arange(len(self.x))[:, None]) % 1.0
        return np.maximum(uniforms, _SMALLEST_U)

    def _uniforms(self, start: int, count: int, draws: int | None = None) -> Array:
        """Independent u (draws, rows), from the steps of the random stream that belong to these rows."""
        from scipy.special import ndtr

        stream = Stream(self.seed, np.arange(len(self.x) if draws is None else draws))
        steps = range(start // _ROWS_PER_STEP, (start + count - 1) // _ROWS_PER_STEP + 1)
        normals = [stream.normals(step, _ROWS_PER_STEP, Purpose.NEW, Purpose.NEW_FINE) for step in steps]
        u: Array = ndtr(np.concatenate(normals, axis=1)[:, :count])
        return u


def predictions_at(
    posterior: PosteriorData,
    X: Input,
    offset: npt.ArrayLike | None,
    trials: npt.ArrayLike | None,
    draws: int,
    seed: int,
    grouping: Grouping | None = None,
) -> Predictions:
    """Predictions of a posterior at new rows, which are a table or an array."""
    model, design, table, grouping = posterior.model, posterior.design, None, grouping or Grouping()
    if model is None:
        raise no_rows("to predict from")
    draws, seed = whole_number("draws", draws, 2), whole_number("seed", seed, 0, (1 << 63) - 1)
    if isinstance(X, NewRows):
        table = X
    elif design is not None and is_table(X):
        table = NewRows.of(design, X, Handling(), grouping.include)
    if table is not None:
        offset = table.design.offsets(table.columns) if offset is None else offset
        trials = table.design.trials_of(table.columns) if trials is None else trials
        X = table.rows()
    form = model.at(X, offset, posterior.units)
    counts = None
    if trials is not None:
        counts = model.loss.trials_of(*model.loss.observed(np.zeros(form.rows.n), form.rows.n, trials))
    groups = _terms_at(posterior, table, form.rows.n, draws, seed, grouping)
    return Predictions(form, posterior.without_groups(draws), seed, counts, groups)


def prediction_of(
    posterior: PosteriorData,
    X: Input,
    offset: npt.ArrayLike | None,
    trials: npt.ArrayLike | None,
    levels: tuple[float, ...],
    draws: int,
    seed: int,
    grouping: Grouping,
    handling: Handling,
) -> Prediction:
    """The result of `Posterior.predict`. handling: what becomes of rows with missing values or levels that were not
    fitted.
    """
    design = posterior.design
    if design is None or not is_table(X):
        if handling != Handling():
            allowed = "'refuse' where rows are no table with the columns of a formula"
            raise requirement("missing and new_levels", allowed, f"{handling.missing!r} and {handling.new_levels!r}")
        classes = () if design is None else design.classes
        return predictions_at(posterior, X, offset, trials, draws, seed, grouping).summarise(levels, classes)
    require_applicable(design, handling.new_levels, one_of("new_groups", grouping.new, NEW_GROUPS))
    rows = NewRows.of(design, X, handling, boolean("include_groups", grouping.include))
    if rows.kept.any():
        offset, trials = (_rows_of(value, rows.kept) for value in (offset, trials))
        given = None if grouping.given is None else [_rows_of(term_levels, rows.kept) for term_levels in grouping.given]
        grouping = grouping._replace(given=given)
        prediction = predictions_at(posterior, rows, offset, trials, draws, seed, grouping).summarise(
            levels, design.classes
        )
    elif not rows.reported.any():
        raise DataError("no row is without missing values: missing='nan' predicts nan for them.")
    else:
        prediction = _empty_prediction(posterior.model.loss, levels, draws, design.classes)
    return prediction.at_rows(rows, X)


def offset_with_exposure(
    posterior: PosteriorData, X: Input, offset: npt.ArrayLike | None, exposure: npt.ArrayLike | None
) -> npt.ArrayLike | None:
    """The offset of new rows, plus the logarithm of an exposure that is given separately from the table."""
    if exposure is None:
        return offset
    design: Design | None = posterior.design
    if design is None or not (design.exposure or design.shifted):
        raise requirement("exposure", "None where the model was fitted without an exposure", repr(exposure))
    if offset is None and design.offset:
        offset = np.asarray(columns_of(X, [design.offset])[design.offset].values, np.float64)
    logarithm = log_exposure(real_array("exposure", np.atleast_1d(np.asarray(exposure)), ("rows",)))
    shift = logarithm if np.ndim(exposure) else logarithm[0]
    return np.asarray(shift if offset is None else shift + np.asarray(offset, np.float64))


def _rows_of(value: Any, kept: npt.NDArray[np.bool_]) -> Any:
    """The part for some rows of a value given for all rows: one number, an array, or a tuple of arrays."""
    if isinstance(value, tuple):
        return tuple(_rows_of(part, kept) for part in value)
    return value if np.shape(value)[:1] != kept.shape else np.asarray(value)[kept]


def _empty_prediction(loss: Loss, levels: tuple[float, ...], draws: int, classes: tuple[str, ...]) -> Prediction:
    """A prediction for no rows at all."""
    shape_of_row = loss.mean(np.zeros((1, *loss.predictor_shape))).shape[1:]
    empty, quantiles = np.empty((0, *shape_of_row)), np.empty((len(levels), 0, *shape_of_row))
    binary = loss.most_classes == 2
    if shape_of_row:
        return Prediction(empty, empty, quantiles, None, None, levels, draws, classes, binary=binary)
    return Prediction(empty, empty, quantiles, empty, quantiles, levels, draws, classes, binary=binary)


def _terms_at(
    posterior: PosteriorData, table: NewRows | None, n: int, draws: int, seed: int, grouping: Grouping
) -> tuple[TermRows | SmoothRows, ...]:
    """The smooths at new rows, and the terms of groups where these are included."""
    new, group_effects = one_of("new_groups", grouping.new, NEW_GROUPS), posterior.group_effects
    if group_effects is None and grouping.given is not None:
        raise requirement("groups", "None where the model has no groups", type(grouping.given).__name__)
    included = boolean("include_groups", grouping.include)
    if group_effects is None or not (included or group_effects.smooths):
        return ()
    table = table if grouping.given is None else None
    bases = _bases_from_arrays(group_effects, grouping.given, n) if table is None else table.bases()
    out: list[TermRows | SmoothRows] = [
        SmoothRows(basis, term_effects(group_effects, k, draws))
        for k, basis in zip(group_effects.smooths, bases, strict=True)
    ]
    if not included or not group_effects.groups:
        return tuple(out)
    indices, columns, names = _levels_from_arrays(group_effects, grouping.given, n) if table is None else table.levels()
    for k, index, z, name in zip(group_effects.groups, indices, columns, names, strict=True):
        unseen = index < 0
        if unseen.any() and new == "refuse":
            raise unseen_levels_error(group_effects.names[k], name)
        effects = term_effects(group_effects, k, draws)
        if not unseen.any() or new == "average":
            out.append(TermRows(index, z, effects))
            continue
        steps = np.zeros(n, np.int64)
        steps[unseen] = _steps_of_levels(name, _FIRST_LEVEL_STEP + k)
        factor = covariance_factors(posterior, k, draws)
        out.append(TermRows(index, z, effects, factor, steps, seed))
    return tuple(out)


def term_effects(group_effects: GroupEffects, k: int, most: int) -> Array:
    """At most `most` draws of the effects of term k: (draws, levels, r)."""
    effects = thin_draws(group_effects.draws[..., group_effects.slices()[k]], most)
    return effects.reshape(len(effects), len(group_effects.levels[k]), len(group_effects.columns[k]))


def covariance_factors(posterior: PosteriorData, k: int, most: int) -> Array:
    """M with Σ = MMᵀ, the covariance of the effects of term k, under at most `most` draws: (draws, r, r)."""
    group_effects = posterior.group_effects
    assert group_effects is not None
    scales = thin_draws(posterior.trace.draws[:, :: group_effects.every, group_effects.stated(k)], most)
    r = len(group_effects.columns[k])
    correlation = np.broadcast_to(np.eye(r), (len(scales), r, r)).copy()
    i, j = np.tril_indices(r, -1)
    correlation[:, i, j] = correlation[:, j, i] = scales[:, r:]
    factor: Array = scales[:, :r, None] * semidefinite_root(correlation)
    return factor


def _require_terms(group_effects: GroupEffects, given: Levels | None) -> str:
    """Refuse levels for another number of terms than the model has; otherwise return the terms in words."""
    labels = {k: f"({' + '.join(group_effects.columns[k])} | {group_effects.names[k]})" for k in group_effects.groups}
    labels |= {k: f"{group_effects.names[k]} (its functions at the rows)" for k in group_effects.smooths}
    terms = ", ".join(labels[k] for k in sorted(labels))
    if given is None or len(given) != len(group_effects.names):
        why = "" if group_effects.smooths else "or include_groups=False, to leave their effects out"
        raise requirement("groups", f"the levels of the rows for each of {terms}", type(given).__name__, why)
    return terms


def _bases_from_arrays(group_effects: GroupEffects, given: Levels | None, n: int) -> list[Array]:
    """The values of the functions of smooths at rows, as they are given in arrays."""
    if not group_effects.smooths:
        return []
    _require_terms(group_effects, given)
    assert given is not None
    shapes = {k: (n, len(group_effects.levels[k])) for k in group_effects.smooths}
    return [
        np.asarray(real_array(f"functions of {group_effects.names[k]}", given[k], shape), np.float64)
        for k, shape in shapes.items()
    ]


def _levels_from_arrays(
    group_effects: GroupEffects, given: Levels | None, n: int
) -> tuple[list[Indices], list[Array], list[list[str]]]:
    """The level numbers of the rows in each term, the columns that vary, and the names of levels that were not fitted,
    as they are given in arrays: for each term level numbers, or level numbers and columns.
    """
    terms = _require_terms(group_effects, given)
    assert given is not None
    indices, columns, names = [], [], []
    for k in group_effects.groups:
        rows_of_term, levels, columns_of_term = given[k], group_effects.levels[k], group_effects.columns[k]
        index, z = rows_of_term if isinstance(rows_of_term, tuple) else (rows_of_term, np.ones((n, 1)))
        index = np.asarray(index)
        if index.shape != (n,) or index.dtype.kind not in "iu":
            raise requirement("groups", f"{n} whole numbers for each of {terms}", f"shape {index.shape}")
        z = np.asarray(real_array("columns of groups", z, (n, len(columns_of_term))), np.float64)
        unseen = (index < 0) | (index >= len(levels))
        names.append([str(number) for number in index[unseen]])
        indices.append(np.where(unseen, -1, index).astype(np.int64))
        columns.append(z)
    return indices, columns, names


def _steps_of_levels(names: Sequence[str], high: int) -> Indices:
    """A step of the random stream for each level, from a hash of its name, so that the effects of a level do not depend
    on the other rows.
    """
    step_of: dict[str, int] = {}
    taken: set[int] = set()
    for name in sorted(set(names)):
        step = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())
        while step in taken:
            step = (step + 1) % (1 << 32)
        taken.add(step)
        step_of[name] = step
    return np.array([(high << 32) + step_of[name] for name in names], np.int64)


def unseen_levels_error(factor: str, names: Iterable[str]) -> DataError:
    """The error where some levels of a factor were not fitted."""
    distinct = list(dict.fromkeys(names))
    listed = ", ".join(map(repr, distinct[:5])) + (f" and {len(distinct) - 5:,} more" if len(distinct) > 5 else "")
    return DataError(
        f"some levels of {factor!r} were not fitted ({listed}): give new_groups='draw' to draw their effects as those "
        "of other groups vary, or 'average' for a typical group."
    )


class LogLikelihoods(Iterator[tuple[int, Array]]):
    """log p(yᵢ | x) of rows under draws: `array()` has all of them; a loop over it takes some rows at a time, as pairs
    (number of the first row, array (draws, rows)), once.
    """

    def __init__(self, draws: int, blocks: Iterator[tuple[int, Array]]) -> None:
        self.draws, self._blocks = draws, blocks

    def __next__(self) -> tuple[int, Array]:
        return next(self._blocks)

    def array(self) -> Array:
        """All of them, (draws, rows)."""
        blocks = [block for _, block in self]
        if not blocks:
            raise requirement("log_likelihood()", "asked once for its array, or looped over once", "asked again")
        return np.concatenate(blocks, axis=1)

    def __repr__(self) -> str:
        return (
            f"<log-likelihoods of rows under {self.draws:,} draws: array() has them, a loop takes some rows at a time>"
        )


def pointwise_log_likelihoods(posterior: PosteriorData, most: int) -> tuple[int, Iterator[tuple[int, Array]]]:
    """The number of draws that are used, at most `most`, and log p(yᵢ | x) in blocks of rows: by the linear predictors,
    or by the terms of rows that a user's own model states.
    """
    if posterior._target is not None:
        x = thin_draws(posterior.trace.draws, most)
        blocks = posterior._target.row_log_likelihoods(x)
        if blocks is not None:
            return len(x), blocks
    form, x = posterior.fitted(), posterior.inner(most)
    return len(x), log_likelihoods(form, x)


def log_likelihoods(form: RowsForm, x: Array) -> Iterator[tuple[int, Array]]:
    """log p(yᵢ | tᵢ) of the rows of a form under draws x: pairs (number of the first row, block (draws, rows)).

    A row of weight w stands for w observations, and has the sum of their log likelihoods.
    """
    for start, t, chosen in Predictions(form, x, 0).predictors():
        yield start, -form.values(t, chosen) - form.constants(chosen)


def _moments(values: Array) -> tuple[Array, Array]:
    """Mean and standard deviation over the draws, scaled by powers of 2 where squares would leave float64."""
    largest = np.abs(values).max(axis=0)
    unit = np.ldexp(1.0, np.where(largest > _LARGEST_SQUARED, np.frexp(largest)[1] - 1, 0))
    scaled = values / unit
    with np.errstate(invalid="ignore"):  # some are ∞, as means of log-logistic times may be
        return unit * scaled.mean(axis=0), unit * scaled.std(axis=0, ddof=1)
