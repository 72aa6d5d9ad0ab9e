"""Predictions from the draws: the mean of y at new rows, new y themselves, and the likelihood of the rows at hand.

For a draw x of the posterior and a row a the predictor is t = o + aᵀx, the mean of y there is μ(t), and a new y is the
quantile of its law at t for a number u that is uniform on (0, 1). Averages over the draws are those of the posterior
predictive law. Rows are taken in blocks, so that what is held at once is a block of rows times the draws, however many
rows there are; u is a function of (seed, draw, row), so that blocks change nothing.

What is summed up over the draws is about one row at a time, and u need not be independent there, only even: the u of
row i are vᵢ, vᵢ + g, vᵢ + 2g, … modulo 1, with vᵢ uniform and g the golden ratio. Of K such numbers the share below any
p is p but for O(log K/K), where independent ones leave √(p(1 − p)/K): with a thousand draws the 5% quantile of a new y
is off by some 0.01 sd rather than 0.07. Draws themselves (`blocks`), whose rows are seen together, have independent
u.

Group effects add Σₖ zᵢₖᵀuₖ,ℓ to the predictor. Those of a level that was not fitted are Mε with Σ = MMᵀ of each draw,
ε being a function of (seed, draw, name of the level): so rows of one such level share their effects, in whatever blocks
or tables they come."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from svrhmc.tables.columns import columns_of, plain_columns
from svrhmc.tables.design import Design, is_table, log_exposure
from svrhmc.tables.new_rows import Handling, NewRows, require_applicable

if TYPE_CHECKING:
    import pandas

Levels = Sequence[
    Any
]  # of rows in each term, by number; pairs of these and columns where more than an intercept varies

_HELD = 1 << 22  # numbers of a block, rows times draws
_TOGETHER = 256  # rows that share a step of the random stream
_GOLDEN = (5**0.5 - 1) / 2
_LEAST = 2.0**-54  # u is above 0
_LAST_ROWS = 1 << 20  # stretches of steps before those of effects of new levels
NEW_GROUPS = ("draw", "average", "refuse")
_SQUARED = 1e150  # up to which many squares can be added


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """At each of some rows: the mean of y under each draw, and new y, summed up over the draws.

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
    def summary(self) -> Summary:
        """A table with a line for each row: mean, sd, quantiles of the mean of y ("5%") and of a new y ("new 5%"); for
        classes, the probability of each. Where there are trials these are numbers of successes, and the trials and the
        probability of a success stand before them.
        """
        rows = tuple(map(str, range(len(self.mean)) if self.rows is None else self.rows))
        if self.mean.ndim > 1:
            names = self.classes or tuple(map(str, range(self.mean.shape[1])))
            return Summary(rows, dict(zip(names, self.mean.T, strict=True)))
        named = [f"{100 * level:.4g}%" for level in self.levels]
        columns = {"mean": self.mean, "sd": self.sd, **dict(zip(named, self.quantiles, strict=True))}
        if self.trials is not None and self.probability is not None:
            columns = {"trials": self.trials, "probability": self.probability, **columns}
        if self.new_quantiles is not None and not self.binary:
            columns |= {f"new {name}": values for name, values in zip(named, self.new_quantiles, strict=True)}
        return Summary(rows, columns)

    def __repr__(self) -> str:
        return str(self.summary)

    def to_frame(self, keep: bool | str | Sequence[str] = False) -> pandas.DataFrame:
        """The same as a pandas data frame, by the numbers of the rows from 0 on.

        keep: columns of the table that was predicted, to stand before the predictions: True for all, or their names.
        """
        frame = self.summary.to_frame()
        frame.index = frame.index.astype(int)
        frame.index.name = None
        import pandas

        kept = pandas.DataFrame(self.kept_columns(keep, frame.columns), index=frame.index)
        return pandas.concat([kept, frame], axis=1) if len(kept.columns) else frame

    def kept_columns(self, keep: bool | str | Sequence[str], names: Iterable[str]) -> dict[str, Any]:
        """Columns of the table at the rows predicted; refuses those that have names of predictions."""
        if isinstance(keep, bool) and not keep:
            return {}
        if self.table is None:
            raise requirement("keep", "False where no table was predicted, whose columns have names", repr(keep))
        wanted = None if keep is True else [keep] if isinstance(keep, str) else list(keep)
        columns = plain_columns(self.table, wanted)
        both = [name for name in columns if name in set(names)]
        if both:
            why = "rename it in the table, or name the columns to keep"
            raise requirement("keep", "columns whose names no prediction has", repr(both[0]), why)
        return columns if self.rows is None else {name: column.iloc[self.rows] for name, column in columns.items()}

    def at_rows(self, rows: NewRows, table: object) -> Prediction:
        """That of the rows of a table that are reported, with nan for those which could not be predicted."""
        kept = rows.kept[rows.reported]
        numbers = None if rows.reported.all() else np.flatnonzero(rows.reported)
        if kept.all():
            return replace(self, table=table, rows=numbers)

        def widened(array: Array | None, axis: int = 0) -> Any:
            if array is None:
                return None
            shape = list(array.shape)
            shape[axis] = len(kept)
            out = np.full(shape, np.nan)
            out[(slice(None),) * axis + (kept,)] = array
            return out

        return replace(
            self, mean=widened(self.mean), sd=widened(self.sd), quantiles=widened(self.quantiles, 1),
            new_sd=widened(self.new_sd), new_quantiles=widened(self.new_quantiles, 1), trials=widened(self.trials),
            probability=widened(self.probability), table=table, rows=numbers,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows, from `start` on: μ(t) (draws, rows, …) and new y (draws, rows) under every draw, and the mean of one
    observation: of one trial, where y is the number of successes in several.
    """

    start: int
    mean: Array
    new: Array
    each: Array


class Grouping(NamedTuple):
    """What a prediction makes of groups (`Posterior.predict`)."""

    include: bool = True
    new: str = "draw"
    given: Levels | None = None


@dataclass(frozen=True, eq=False)
class TermRows:
    """One term of groups at some rows: the level of each, −1 where it was not fitted, what varies by level (n, r), and
    draws of the effects (draws, levels, r).

    factor: M with Σ = MMᵀ of each draw, (draws, r, r), by which effects of other levels are drawn; None: they are 0.
    steps: of the random stream, by which rows of one such level have one effect in each draw.
    """

    index: Indices
    columns: Array
    effects: Array
    factor: Array | None = None
    steps: Indices | None = None
    seed: int = 0

    def under(self, draws: Indices) -> TermRows:
        """The same under some of the draws."""
        factor = None if self.factor is None else self.factor[draws]
        return replace(self, effects=self.effects[draws], factor=factor)

    def added(self, rows: Indices) -> Array:
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
    """One smooth at some rows: its functions (n, q), and draws of their coefficients (draws, q, 1)."""

    columns: ClassVar[None] = None  # nothing varies by level
    basis: Array
    effects: Array

    def under(self, draws: Indices) -> SmoothRows:
        """The same under some of the draws."""
        return replace(self, effects=self.effects[draws])

    def added(self, rows: Indices) -> Array:
        """What it adds to the predictors of some rows: (draws, rows)."""
        return np.asarray(self.effects[:, :, 0] @ self.basis[rows].T)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions at the rows of a form, under draws x (draws, dim), in blocks of rows.

    Draw k and row i have the same u however many draws and rows there are besides. groups: terms of groups, whose
    effects are not in x.
    """

    form: RowsForm
    x: Array
    seed: int
    trials: Array | None = None
    groups: tuple[TermRows | SmoothRows, ...] = ()

    def under(self, draws: Indices) -> Predictions:
        """The same under some of the draws."""
        return replace(self, x=self.x[draws], groups=tuple(term.under(draws) for term in self.groups))

    def blocks(self) -> Iterator[Block]:
        """μ(t) and new y of one block of rows after another."""
        return self._blocks(self._uniform)

    def _blocks(self, chances: Callable[[int, int], Array]) -> Iterator[Block]:
        """With the u that `chances` has for the rows from one on, so many of them."""
        for start, t, chosen in self.predictors():
            trials = None if self.trials is None else self.trials[chosen]
            of_one = self.form.loss.mean(t)
            mean = of_one if trials is None else of_one * trials
            yield Block(start, mean, self.form.loss.draw(t, chances(start, t.shape[1]), trials), of_one)

    def predictors(self) -> Iterator[tuple[int, Array, Indices]]:
        """t of one block of rows after another: (draws, rows, …), with the numbers of the rows."""
        n, size = self.form.rows.n, _TOGETHER * max(1, _HELD // (_TOGETHER * len(self.x)))
        for start in range(0, n, size):
            chosen = np.arange(start, min(start + size, n))
            t = self.form.choose(chosen).predictors(self.x)
            for term in self.groups:
                t = (
                    t
                    + term.added(chosen)[(..., *(None,) * len(self.form.loss.predictor_shape))] * self.form.loss.unit()
                )
            yield start, t, chosen

    def summed(self, levels: tuple[float, ...], classes: tuple[str, ...] = ()) -> Prediction:
        """Means, deviations and quantiles over the draws."""
        means, sds, quantiles, new_sds, new_quantiles, shares = [], [], [], [], [], []
        several = False
        for block in self._blocks(self._even):
            several = block.mean.ndim > block.new.ndim
            mean, sd = _moments(block.mean)
            means.append(mean)
            sds.append(sd)
            quantiles.append(np.quantile(block.mean, levels, axis=0))
            shares.append(block.each.mean(axis=0))
            new_sds.append(_moments(block.new)[1])
            new_quantiles.append(np.quantile(block.new, levels, axis=0))
        binary = self.form.loss.most_classes == 2 and self.trials is None
        return Prediction(
            np.concatenate(means),
            np.concatenate(sds),
            np.concatenate(quantiles, axis=1),
            None if several else np.concatenate(new_sds),
            None if several else np.concatenate(new_quantiles, axis=1),
            levels,
            len(self.x),
            classes,
            self.trials,
            None if self.trials is None else np.concatenate(shares),
            binary,
        )

    def _even(self, start: int, count: int) -> Array:
        """(draws, rows) numbers that are even in each row, from a first one by the golden ratio."""
        turned: Array = (self._uniform(start, count, 1) + _GOLDEN * np.arange(len(self.x))[:, None]) % 1.0
        return np.maximum(turned, _LEAST)

    def _uniform(self, start: int, count: int, draws: int | None = None) -> Array:
        """(draws, rows) numbers: by the steps of the stream that these rows are in."""
        from scipy.special import ndtr

        stream = Stream(self.seed, np.arange(len(self.x) if draws is None else draws))
        steps = range(start // _TOGETHER, (start + count - 1) // _TOGETHER + 1)
        normals = [stream.normals(step, _TOGETHER, Purpose.NEW, Purpose.NEW_FINE) for step in steps]
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
    """Those of a `Posterior` at new rows, of a table or of an array."""
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
    groups = _groups_at(posterior, table, form.rows.n, draws, seed, grouping)
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
    """That of a `Posterior`, with what is made of rows that miss values or have levels that were not fitted."""
    design = posterior.design
    if design is None or not is_table(X):
        if handling != Handling():
            allowed = "'refuse' where rows are no table with the columns of a formula"
            raise requirement("missing and new_levels", allowed, f"{handling.missing!r} and {handling.new_levels!r}")
        classes = () if design is None else design.classes
        return predictions_at(posterior, X, offset, trials, draws, seed, grouping).summed(levels, classes)
    require_applicable(design, handling.new_levels, one_of("new_groups", grouping.new, NEW_GROUPS))
    rows = NewRows.of(design, X, handling, boolean("include_groups", grouping.include))
    if rows.kept.any():
        offset, trials = (_of_rows(value, rows.kept) for value in (offset, trials))
        given = None if grouping.given is None else [_of_rows(one, rows.kept) for one in grouping.given]
        grouping = grouping._replace(given=given)
        prediction = predictions_at(posterior, rows, offset, trials, draws, seed, grouping).summed(
            levels, design.classes
        )
    elif not rows.reported.any():
        raise DataError("no row is without missing values: missing='nan' predicts nan for them.")
    else:
        prediction = _of_no_rows(posterior.model.loss, levels, draws, design.classes)
    return prediction.at_rows(rows, X)


def offset_with(
    posterior: PosteriorData, X: Input, offset: npt.ArrayLike | None, exposure: npt.ArrayLike | None
) -> npt.ArrayLike | None:
    """The offset of new rows, with the logarithm of an exposure that is given beside the table."""
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


def _of_rows(value: Any, kept: npt.NDArray[np.bool_]) -> Any:
    """What some rows have of what was given for all of them: one number, an array, or a pair of arrays."""
    if isinstance(value, tuple):
        return tuple(_of_rows(one, kept) for one in value)
    return value if np.shape(value)[:1] != kept.shape else np.asarray(value)[kept]


def _of_no_rows(loss: Loss, levels: tuple[float, ...], draws: int, classes: tuple[str, ...]) -> Prediction:
    """A prediction that has no row yet."""
    of_row = loss.mean(np.zeros((1, *loss.predictor_shape))).shape[1:]
    empty, quantiles = np.empty((0, *of_row)), np.empty((len(levels), 0, *of_row))
    binary = loss.most_classes == 2
    if of_row:
        return Prediction(empty, empty, quantiles, None, None, levels, draws, classes, binary=binary)
    return Prediction(empty, empty, quantiles, empty, quantiles, levels, draws, classes, binary=binary)


def _groups_at(
    posterior: PosteriorData, table: NewRows | None, n: int, draws: int, seed: int, grouping: Grouping
) -> tuple[TermRows | SmoothRows, ...]:
    """The terms of groups at new rows, and the smooths, which are there whether groups are included or not."""
    new, kept = one_of("new_groups", grouping.new, NEW_GROUPS), posterior.group_effects
    if kept is None and grouping.given is not None:
        raise requirement("groups", "None where the model has no groups", type(grouping.given).__name__)
    included = boolean("include_groups", grouping.include)
    if kept is None or not (included or kept.smooths):
        return ()
    table = table if grouping.given is None else None
    bases = _given_bases(kept, grouping.given, n) if table is None else table.bases()
    out: list[TermRows | SmoothRows] = [
        SmoothRows(basis, term_effects(kept, k, draws)) for k, basis in zip(kept.smooths, bases, strict=True)
    ]
    if not included or not kept.groups:
        return tuple(out)
    indices, columns, names = _given_levels(kept, grouping.given, n) if table is None else table.levels()
    for k, index, z, name in zip(kept.groups, indices, columns, names, strict=True):
        unseen = index < 0
        if unseen.any() and new == "refuse":
            raise unseen_levels(kept.names[k], name)
        effects = term_effects(kept, k, draws)
        if not unseen.any() or new == "average":
            out.append(TermRows(index, z, effects))
            continue
        steps = np.zeros(n, np.int64)
        steps[unseen] = _steps(name, _LAST_ROWS + k)
        factor = covariance_factors(posterior, k, draws)
        out.append(TermRows(index, z, effects, factor, steps, seed))
    return tuple(out)


def term_effects(kept: GroupEffects, k: int, most: int) -> Array:
    """At most so many draws of the effects of term k: (draws, levels, r)."""
    some = thin_draws(kept.draws[..., kept.slices()[k]], most)
    return some.reshape(len(some), len(kept.levels[k]), len(kept.columns[k]))


def covariance_factors(posterior: PosteriorData, k: int, most: int) -> Array:
    """M with Σ = MMᵀ of the effects of term k, under at most so many draws: (draws, r, r)."""
    kept = posterior.group_effects
    assert kept is not None
    stated = thin_draws(posterior.trace.draws[:, :: kept.every, kept.stated(k)], most)
    r = len(kept.columns[k])
    correlation = np.broadcast_to(np.eye(r), (len(stated), r, r)).copy()
    i, j = np.tril_indices(r, -1)
    correlation[:, i, j] = correlation[:, j, i] = stated[:, r:]
    factor: Array = stated[:, :r, None] * semidefinite_root(correlation)
    return factor


def _require_terms(kept: GroupEffects, given: Levels | None) -> str:
    """Refuse another number of terms than the model has; the terms in words."""
    labels = {k: f"({' + '.join(kept.columns[k])} | {kept.names[k]})" for k in kept.groups}
    labels |= {k: f"{kept.names[k]} (its functions at the rows)" for k in kept.smooths}
    terms = ", ".join(labels[k] for k in sorted(labels))
    if given is None or len(given) != len(kept.names):
        why = "" if kept.smooths else "or include_groups=False, to leave their effects out"
        raise requirement("groups", f"the levels of the rows for each of {terms}", type(given).__name__, why)
    return terms


def _given_bases(kept: GroupEffects, given: Levels | None, n: int) -> list[Array]:
    """The functions of smooths at rows of arrays."""
    if not kept.smooths:
        return []
    _require_terms(kept, given)
    assert given is not None
    shapes = {k: (n, len(kept.levels[k])) for k in kept.smooths}
    return [
        np.asarray(real_array(f"functions of {kept.names[k]}", given[k], shape), np.float64)
        for k, shape in shapes.items()
    ]


def _given_levels(
    kept: GroupEffects, given: Levels | None, n: int
) -> tuple[list[Indices], list[Array], list[list[str]]]:
    """The same from arrays: for each term an index, or an index and columns."""
    terms = _require_terms(kept, given)
    assert given is not None
    indices, columns, names = [], [], []
    for k in kept.groups:
        one, levels, varying = given[k], kept.levels[k], kept.columns[k]
        index, z = one if isinstance(one, tuple) else (one, np.ones((n, 1)))
        index = np.asarray(index)
        if index.shape != (n,) or index.dtype.kind not in "iu":
            raise requirement("groups", f"{n} whole numbers for each of {terms}", f"shape {index.shape}")
        z = np.asarray(real_array("columns of groups", z, (n, len(varying))), np.float64)
        unseen = (index < 0) | (index >= len(levels))
        names.append([str(number) for number in index[unseen]])
        indices.append(np.where(unseen, -1, index).astype(np.int64))
        columns.append(z)
    return indices, columns, names


def _steps(names: Sequence[str], high: int) -> Indices:
    """A step of the stream for each level by its name, so that a level has the same effects whatever rows there are."""
    step_of: dict[str, int] = {}
    taken: set[int] = set()
    for name in sorted(set(names)):
        step = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())
        while step in taken:
            step = (step + 1) % (1 << 32)
        taken.add(step)
        step_of[name] = step
    return np.array([(high << 32) + step_of[name] for name in names], np.int64)


def unseen_levels(factor: str, names: Iterable[str]) -> DataError:
    """The error where some levels of a factor were not fitted."""
    some = list(dict.fromkeys(names))
    listed = ", ".join(map(repr, some[:5])) + (f" and {len(some) - 5:,} more" if len(some) > 5 else "")
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
    """Under at most so many draws of a `Posterior`: their number, and log p(yᵢ | x) of some rows after another, by the
    linear predictors or, for a model of one's own, by its own terms of rows.
    """
    if posterior._target is not None:
        x = thin_draws(posterior.trace.draws, most)
        own = posterior._target.row_log_likelihoods(x)
        if own is not None:
            return len(x), own
    form, x = posterior.fitted(), posterior.inner(most)
    return len(x), log_likelihoods(form, x)


def log_likelihoods(form: RowsForm, x: Array) -> Iterator[tuple[int, Array]]:
    """log p(yᵢ | tᵢ) of the rows of a form under draws x: blocks (draws, rows) from a row on.

    A row of weight w stands for w observations, and has their sum.
    """
    for start, t, chosen in Predictions(form, x, 0).predictors():
        yield start, -form.values(t, chosen) - form.constants(chosen)


def _moments(values: Array) -> tuple[Array, Array]:
    """Mean and deviation over the draws; of numbers whose squares float64 does not hold, in units of a power of 2."""
    largest = np.abs(values).max(axis=0)
    unit = np.ldexp(1.0, np.where(largest > _SQUARED, np.frexp(largest)[1] - 1, 0))
    scaled = values / unit
    with np.errstate(invalid="ignore"):  # where some are ∞, as means of log-logistic times may be
        return unit * scaled.mean(axis=0), unit * scaled.std(axis=0, ddof=1)
