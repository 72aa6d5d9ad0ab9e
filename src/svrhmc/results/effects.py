"""Average marginal effects: what a change of a column does to the mean of y, on the scale of y.

With μ(row, x) the mean of y at a row under a draw x (of one trial, where y counts successes), weights wᵢ of the rows
that were fitted (times their trials, as a row of m trials stands for m observations) and W their sum,

    a number:      (1/W) Σᵢ wᵢ [μ(rowᵢ with a + h, x) − μ(rowᵢ with a − h, x)]/2h,      h = 10⁻⁴ sd(a),
    a category:    (1/W) Σᵢ wᵢ [μ(rowᵢ with the level, x) − μ(rowᵢ with the baseline, x)],

and true or false is a category with the baseline False. The design makes new rows for every changed column, so that
logarithms, splines and interactions count as they should; a ± h stays within the values that were fitted, beyond which
a spline is not defined. These are `avg_slopes` and `avg_comparisons` of pymarginaleffects, whose names for the
contrasts (dY/dX, pro - basic) are used. Each draw of the posterior gives a draw of each effect.

Without a design every column is a number, t is linear in it, and the effect is βⱼ·(1/W) Σᵢ wᵢ μ′(tᵢ), summed over the
predictors where there are several: one pass over the rows serves all columns.

Not every row is needed under every draw. Let e(R, x) be the average over rows R under a draw x, K the rows that are
kept beside a posterior, and R those of them that are used. Then e(R, x) + e(K, x̄) − e(R, x̄) is about e(K, x), because
the difference between K and R hardly depends on x near the posterior mean x̄ (a control variate). How far K differs
from all rows is estimated by the standard error of e(K, x̄), from equal parts of K.

Nor does every level of a category need new rows. Where the category stands in a term of its own and in no other, a
level l adds the same number b_l to the predictor of every row. So the rows at the baseline, and a single row at every
level, give all predictors, and the average mean of y at a level is a function of b_l alone, for each draw:

    g(b) = Σᵢ wᵢ μ(tᵢ + b),        b = b_l.

Where μ is the predictor itself, g(b) − g(0) = b Σᵢ wᵢ. Else g is smooth, as μ is analytic near the real line, and its
Chebyshev interpolant on the interval of the b_l has an error that falls geometrically with the degree: of a logistic μ
and an interval of half-width r by the factor π/r + √(1 + (π/r)²) for each degree (Trefethen, *Approximation Theory and
Approximation Practice*, theorem 8.2). The degree is doubled until the last coefficients are below 10⁻¹⁰ of the largest
value. So a few dozen passes over the rows suffice, however many levels there are; with fewer levels than that, and
where every class has a b of its own, g is computed at each level.

Where there are groups, each row keeps the effects of its own groups under every draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import DataError, requirement, whole_number
from svrhmc.core.summaries import Summary, interval_ends
from svrhmc.families.base import Loss
from svrhmc.results.base import (
    DerivedQuantities,
    FittedRows,
    PosteriorData,
    even_rows,
    interval_columns,
    no_rows,
    thin_draws,
)
from svrhmc.results.predict import Predictions, SmoothRows, TermRows, term_effects
from svrhmc.results.probability import match_moments
from svrhmc.rows.forms import RowsForm
from svrhmc.tables.columns import TRUTH, Level, column_names, columns_of
from svrhmc.tables.design import Design, missing_in_words
from svrhmc.tables.terms import level_name

if TYPE_CHECKING:
    import pandas

SLOPE = "dY/dX"
_STEP = 1e-4  # h in standard deviations of a column; for a linear predictor, h itself
_ROUNDING = 1e-6  # relative error of a sum over rows in float32
_MOST_PARTS = 100  # values of a column whose rows are averaged apart
_LARGE_ERROR = 0.1  # posterior sds; from here on the error that unused rows leave in a mean is mentioned
_DEGREES = (16, 32, 64, 128, 256, 512)
# The degree suffices when the last coefficients are this small; several are looked at, as half of an odd function's are
# 0
_LAST_TOLERANCE, _LAST_COUNT = 1e-10, 4


class Contrast(NamedTuple):
    """One effect: the class of y whose probability changes (or ""), the column that is changed, the comparison, and the
    rows that it is averaged over, where these are of one value of a column (or "").
    """

    group: str
    term: str
    contrast: str
    rows: str = ""

    @property
    def name(self) -> str:
        """The name of the effect, in the style of coefficients: C: plan[pro - basic] (region = north)."""
        label = self.term if self.contrast == SLOPE else f"{self.term}[{self.contrast}]"
        label = f"{label} ({self.rows})" if self.rows else label
        return f"{self.group}: {label}" if self.group else label


@dataclass(frozen=True, eq=False, repr=False)
class Effects(DerivedQuantities):
    """Average marginal effects: draws (draws, effects), and a mean, an sd and an interval of each.

    groups: the class of y whose probability changes, where there are several. terms: the columns that are changed.
    contrasts: "dY/dX" for a number, "level - baseline" for a category. said: which rows and draws were averaged over.
    on: what changes. rows_used: where these are some of all rows, which, and how others are taken. by: the column by
    whose values rows are averaged apart, or ""; values: those of the effects.
    """

    groups: tuple[str, ...]
    terms: tuple[str, ...]
    contrasts: tuple[str, ...]
    said: str
    on: str = "the mean of y"
    rows_used: str = ""
    by: str = ""
    values: tuple[str, ...] = ()

    def summary(self) -> Summary:
        columns = interval_columns(self.mean, self.sd, self.interval, self.level)
        return Summary(self.names, columns, f"Average marginal effects on {self.on}{self.rows_used}", (self.said,))

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame: term and contrast, mean, sd and the ends of the interval."""
        frame = self.summary().to_frame()
        frame.insert(0, "contrast", list(self.contrasts))
        frame.insert(0, "term", list(self.terms))
        if self.by:
            frame.insert(0, self.by, list(self.values), allow_duplicates=True)
        if any(self.groups):
            frame.insert(0, "group", list(self.groups))
        return frame


def effects_of(
    posterior: PosteriorData,
    level: float,
    rows: int,
    draws: int,
    seed: int,
    variables: str | Sequence[str] | None,
    table: object,
    by: str | None = None,
) -> Effects:
    """Average marginal effects, from at most `rows` rows and `draws` draws; the arguments are those of
    `Posterior.effects`.
    """
    interval_ends(level)
    names = _column_names(variables)
    rows, draws, seed = (
        whole_number("rows", rows, 1),
        whole_number("draws", draws, 2),
        whole_number("seed", seed, 0, (1 << 63) - 1),
    )
    if posterior.model is None:
        raise no_rows("to have effects")
    x, largest_error, values_of_by = effect_draws(posterior, draws), 0.0, list[str]()
    if posterior.design is not None:
        fitted = fitted_rows(posterior, table)
        parts = {"": fitted} if by is None else _rows_by_value(fitted, by)
        if by is not None and names is None:
            names = [name for name in posterior.design.coefficient_variables if name != by]
        contrasts, blocks, used_count = list[Contrast](), list[Array](), 0
        for value, part in parts.items():
            own, effects, error, used = _effects_of_rows(posterior, part, rows, seed, x, names)
            contrasts += [contrast._replace(rows=f"{by} = {value}" if by else "") for contrast in own]
            values_of_by += [value] * len(own)
            blocks, used_count, largest_error = [*blocks, effects], used_count + used, max(largest_error, error)
        draws_of_effects = np.concatenate(blocks, axis=1)
        kept_count, n, weights = fitted.columns.n, fitted.n, fitted.weights
    else:
        for word, value_given in {"table": table, "by": by}.items():
            if value_given is not None:
                raise requirement(word, "None where the model has no formula", type(value_given).__name__)
        form = posterior.fitted()
        n, places = form.rows.n, even_rows(form.rows.n, rows, seed)
        contrasts, draws_of_effects = _effects_by_columns(posterior, form.choose(places), x, names)
        used_count, kept_count, weights = len(places), n, form.weights
    which_rows = f"{used_count:,} of {n:,} rows, spread evenly" if used_count < n else f"all {n:,} rows"
    weighting = (
        "" if weights is None else ", by their trials" if posterior.model.loss.in_trials else ", by their weights"
    )
    if posterior.design is not None and posterior.design.exposure:
        weighting = f", each with its own {posterior.design.exposure!r}{weighting}"
    apart = f", those of each value of {by!r} apart" if by else ""
    sentence = f"Averaged over {which_rows}{weighting}{apart}, under {len(x.inner):,} draws of the posterior."
    if largest_error > _LARGE_ERROR:
        sentence += (
            f" As not every row was used, a mean has a further standard error of up to {largest_error:.2g} of its sd."
        )
    some = ""
    if used_count < n:
        cure = f"rows={n} takes all"
        if kept_count < n:
            most = f"rows={kept_count} takes all that are kept" if used_count < kept_count else "no more are kept"
            cure = f"{most}; effects(table=…) averages over any"
        some = f", averaged over {used_count:,} of {n:,} rows ({cure})"
    on = _response_in_words(posterior.design, posterior.model.loss)
    groups, terms, kinds, _ = zip(*contrasts, strict=True)
    names, values = tuple(contrast.name for contrast in contrasts), tuple(values_of_by) if by else ()
    return Effects(names, draws_of_effects, level, groups, terms, kinds, sentence, on, some, by or "", values)


def _effects_of_rows(
    posterior: PosteriorData, fitted: FittedRows, most: int, seed: int, x: EffectDraws, names: Sequence[str] | None
) -> tuple[list[Contrast], Array, float, int]:
    """The contrasts of a model with a formula, the value of each under every draw, the largest error that unused rows
    leave, in posterior sds, and how many rows were used: at most `most`.
    """
    used_rows, mean_draw = fitted.take(even_rows(fitted.columns.n, most, seed)), x.mean()
    contrasts, values = _effects_by_design(posterior, used_rows, x.append(mean_draw), names)
    values, at_mean_draw = values[:-1], values[-1]
    if used_rows.columns.n == fitted.n:
        return contrasts, values, 0.0, fitted.n
    average, error = fitted.average(lambda part: _effects_by_design(posterior, part, mean_draw, names)[1][0])
    largest_error = float((error / values.std(axis=0, ddof=1)).max())
    return contrasts, values + (average - at_mean_draw), largest_error, used_rows.columns.n


def _rows_by_value(fitted: FittedRows, by: object) -> dict[str, FittedRows]:
    """The rows of each value of a column of the formula. Values of which a single row is kept are left out where there
    are others: nothing tells how far that one is from them.
    """
    names = list(fitted.columns.by_name)
    if not isinstance(by, str) or by not in names:
        raise requirement("by", f"None, or a column of the formula ({', '.join(names)})", repr(by))
    column = fitted.columns[by]
    levels = column.distinct()
    if len(levels) > _MOST_PARTS:
        allowed = f"a column with at most {_MOST_PARTS} different values"
        raise requirement("by", allowed, f"{by!r}, which has {len(levels):,}")
    codes, share, parts = column.codes(levels), fitted.n / fitted.columns.n, dict[str, FittedRows]()
    for k, level in enumerate(levels):
        places = np.flatnonzero(codes == k)
        if len(places) > (share > 1):
            parts[level_name(level)] = replace(fitted.take(places), n=round(share * len(places)))
    return parts


class EffectDraws(NamedTuple):
    """Draws of the coefficients as they are reported, the same in the variables of the target, and draws of the effects
    of each term of groups.
    """

    reported: Array
    inner: Array
    effects: tuple[Array, ...]

    def mean(self) -> EffectDraws:
        """A single draw: the mean of all draws."""
        reported, inner, *effects = (x.mean(axis=0, keepdims=True) for x in (*self[:2], *self.effects))
        return EffectDraws(reported, inner, tuple(effects))

    def append(self, other: EffectDraws) -> EffectDraws:
        """These draws, and those of `other` after them."""
        pairs = zip((*self[:2], *self.effects), (*other[:2], *other.effects), strict=True)
        reported, inner, *effects = (np.concatenate(pair) for pair in pairs)
        return EffectDraws(reported, inner, tuple(effects))


def effect_draws(posterior: PosteriorData, most: int) -> EffectDraws:
    """At most `most` draws of a posterior, spread evenly over its chains."""
    group_effects = posterior.group_effects
    if group_effects is None:
        x = match_moments(thin_draws(posterior.trace.draws, most), *posterior.stretched)
        return EffectDraws(x, x if posterior.units is None else posterior.units.inward(x), ())
    x = thin_draws(posterior.trace.draws[:, :: group_effects.every], most)
    effects = tuple(term_effects(group_effects, k, most) for k in range(len(group_effects.names)))
    return EffectDraws(x, posterior.without_groups(most), effects)


def _column_names(variables: object) -> Sequence[str] | None:
    """The names of columns as a list; None stands for all columns."""
    names = [variables] if isinstance(variables, str) else variables
    if names is not None and not (isinstance(names, Sequence) and all(isinstance(name, str) for name in names)):
        raise requirement("variables", "names of columns, or None for all", repr(variables))
    return names


def design_of(posterior: PosteriorData) -> Design:
    """The design of a posterior that has one."""
    assert posterior.design is not None
    return posterior.design


def fitted_rows(posterior: PosteriorData, table: object) -> FittedRows:
    """The rows to average over: those of a table, or the fitted rows that are kept beside the posterior."""
    if table is not None:
        design = design_of(posterior)
        columns = columns_of(table, design.variables)
        if gaps := columns.gaps():
            raise DataError(f"the table must have no missing values in {missing_in_words(gaps)}: leave these rows out.")
        counts = design.trials_of(table) if design.trials in column_names(table) else None
        return FittedRows(columns, design.offsets(table), counts, columns.n)
    if posterior._table_rows is None:
        raise requirement(
            "the posterior",
            "as `fit` gave it, or given a table to average over: effects(table=…)",
            "one from a file",
            "no file keeps the rows that were fitted",
        )
    return posterior._table_rows


def _response_in_words(design: Design | None, loss: Loss) -> str:
    """The quantity that effects are changes of, in words."""
    response = "y" if design is None else design.response_in_words
    if loss.in_trials:
        of = f" of {design.trials}" if design is not None and design.trials else ""
        return f"the probability of a success in one trial ({response}{of})"
    if design is None:
        return "the mean of y"
    if len(design.classes) == 2 and design.event_in_words.startswith("that "):
        return f"the probability {design.event_in_words}"
    if design.classes:
        return f"the probability of {design.response} = {design.classes[1] if len(design.classes) == 2 else '…'}"
    return f"the mean of {response}"


# Tables


def _effects_by_design(
    posterior: PosteriorData, rows: FittedRows, x: EffectDraws, names: Sequence[str] | None
) -> tuple[list[Contrast], Array]:
    """The contrasts of a model with a formula, and the value of each under every draw: (draws, contrasts)."""
    design = design_of(posterior)
    variables = design.coefficient_variables
    column_names = variables if names is None else tuple(names)
    for name in column_names:
        if name not in variables:
            raise requirement("variables", f"of the formula ({', '.join(variables)})", repr(name))
    if not column_names:
        raise requirement(
            "variables", "at least one column of the formula", "none", "of an intercept no change is made"
        )
    w = np.ones(rows.columns.n) if rows.weights is None else rows.weights
    w = w / w.sum()
    contrasts, draws = [], []
    for name in column_names:
        column, levels = rows.columns[name], design.choices.get(name)
        if levels is None and column.kind == TRUTH:
            levels = (False, True)
        if levels is None:
            contrast_names, differences = [SLOPE], _average_slope(posterior, rows, name, x, w)
        else:
            contrast_names = [f"{level_name(level)} - {level_name(levels[0])}" for level in levels[1:]]
            averages = _averages_at_levels(posterior, rows, name, levels, x, w)
            differences = averages[:, 1:] - averages[:, :1]
        groups = _class_names(differences.shape[2], design.classes)
        contrasts += [Contrast(group, name, contrast) for contrast in contrast_names for group in groups]
        draws.append(differences.reshape(len(x.inner), -1))
    return contrasts, np.concatenate(draws, axis=1)


def predictions_with(
    posterior: PosteriorData, rows: FittedRows, changes: Mapping[str, Values], x: EffectDraws
) -> Predictions:
    """Predictions at rows with other values in some columns; the rows stay in their groups."""
    columns, design = rows.with_columns(changes), design_of(posterior)
    form: RowsForm = posterior.model.at(design.matrix(columns), rows.offset, posterior.units)
    count = len(design.groups)
    groups = zip(design.groups, x.effects[:count], strict=True)
    smooths = zip(design.bases_of(columns), x.effects[count:], strict=True)
    return Predictions(form, x.inner, 0, None, (
        *(
            TermRows(group.level_indices(rows.columns), group.varying_columns(columns), effects)
            for group, effects in groups
        ),
        *(SmoothRows(basis, effects) for basis, effects in smooths),
    ))  # fmt: skip


def _average_slope(posterior: PosteriorData, rows: FittedRows, name: str, x: EffectDraws, w: Array) -> Array:
    """The average derivative of μ by a column of numbers, (draws, 1, classes): a central difference, one-sided at the
    ends of the values that were fitted.
    """
    a = np.asarray(rows.columns[name].values, np.float64)
    h = _STEP * float(a.std())
    low, high = np.maximum(a - h, a.min()), np.minimum(a + h, a.max())
    if h == 0:
        h = _STEP * max(1.0, abs(float(a[0])))
        low, high = a - h, a + h
    w = w / (high - low)
    above, below = (
        _weighted_mean(predictions_with(posterior, rows, {name: values}, x), weights)
        for values, weights in ((high, w), (low, -w))
    )
    return np.asarray((above + below)[:, None])


def _averages_at_levels(
    posterior: PosteriorData, rows: FittedRows, name: str, levels: Sequence[Level], x: EffectDraws, w: Array
) -> Array:
    """Σᵢ wᵢ μ at every level of a category, (draws, levels, classes), up to a constant for each draw."""
    dtype = rows.columns[name].values.dtype

    def predictions_at_level(level: Level) -> Predictions:
        values = np.empty(rows.columns.n, dtype)
        values[:] = level
        return predictions_with(posterior, rows, {name: values}, x)

    if not design_of(posterior).separate(name):
        return np.stack([_weighted_mean(predictions_at_level(level), w) for level in levels], axis=1)
    one_row_per_level = rows.take(np.zeros(len(levels), np.int64))
    at_each_level = predictions_with(posterior, one_row_per_level, {name: np.array(levels, dtype)}, x)
    baseline = predictions_at_level(levels[0])
    return level_averages(baseline.form, at_each_level.form, x.inner, w, baseline.groups)


def _weighted_mean(predictions: Predictions, w: Array) -> Array:
    """Σᵢ wᵢ μᵢ, (draws, classes). Where the mean is the linear predictor itself, offsets are left out: they cancel."""
    if predictions.form.loss.identity_link:
        predictions = replace(predictions, form=replace(predictions.form, offset=None))
    total: Array | float = 0.0
    for _, t, places in predictions.predictors():
        total = total + np.einsum("dr...,r->d...", predictions.form.loss.mean(t), w[places])
    return np.asarray(total, np.float64).reshape(len(predictions.x), -1)


def column_averages(posterior: PosteriorData, name: str, values: Array, rows: int, draws: int) -> Array:
    """The mean of y, averaged over fitted rows in which a column of numbers is set to each of `values` in turn: (draws,
    values, classes).
    """
    fitted = fitted_rows(posterior, None)
    used_rows, x = fitted.take(even_rows(fitted.columns.n, rows, 0)), effect_draws(posterior, draws)
    w = np.ones(used_rows.columns.n) if used_rows.weights is None else used_rows.weights
    dtype = used_rows.columns[name].values.dtype
    averages = []
    for value in values.astype(dtype):
        predictions = predictions_with(posterior, used_rows, {name: np.full(used_rows.columns.n, value, dtype)}, x)
        sums = (
            np.einsum("dr...,r->d...", predictions.form.loss.mean(t), w[places])
            for _, t, places in predictions.predictors()
        )
        averages.append(np.asarray(sum(sums) / w.sum()).reshape(len(x.inner), -1))
    return np.stack(averages, axis=1)


def _class_names(count: int, classes: Sequence[str]) -> list[str]:
    if count == 1:
        return [""]
    return list(classes) if len(classes) == count else [str(k) for k in range(count)]


def level_averages(
    baseline: RowsForm, levels: RowsForm, x: Array, w: Array, groups: tuple[TermRows | SmoothRows, ...] = ()
) -> Array:
    """Σᵢ wᵢ μ at every level, up to a constant for each draw: (draws, levels, classes), under draws x (draws, dim).

    baseline: the rows, all at the first level. levels: one row for each level, the first level first. groups: the terms
    of groups at the rows.
    """
    blocks = Predictions(replace(levels, offset=None), x, 0).predictors()
    t = np.concatenate([predictors for _, predictors, _ in blocks], axis=1)
    shifts = t - t[:, :1]
    if baseline.loss.identity_link:
        return np.asarray(baseline.loss.mean(shifts) * w.sum()).reshape(*shifts.shape[:2], -1)
    predictions = Predictions(baseline, x, 0, None, groups)
    if baseline.loss.blocks == 1 and not any(baseline.loss.widths):
        shift_of_level = shifts.reshape(*shifts.shape[:2], -1)[..., 0]  # a level does not change shared parameters
        if (averages := _interpolated_averages(predictions, shift_of_level, w)) is not None:
            return averages
    return _averages_at_shifts(predictions, shifts, w)


def _averages_at_shifts(predictions: Predictions, shifts: Array, w: Array) -> Array:
    """g(b) at shifts b (draws, points, …) of the predictors: (draws, points, classes)."""
    blocks = []
    for _, t, places in predictions.predictors():
        sums = [
            np.einsum("dr...,r->d...", predictions.form.loss.mean(t + shifts[:, k, None]), w[places]).reshape(
                len(predictions.x), -1
            )
            for k in range(shifts.shape[1])
        ]
        blocks.append(np.stack(sums, axis=1))
    return np.asarray(sum(blocks))


def _interpolated_averages(predictions: Predictions, b: Array, w: Array) -> Array | None:
    """g(b) at shifts b (draws, levels) of the first predictor, by Chebyshev interpolation; None where that would take
    as many evaluations as there are levels.
    """
    middle, half = (b.max(axis=1) + b.min(axis=1)) / 2, (b.max(axis=1) - b.min(axis=1)) / 2
    scaled = (b - middle[:, None]) / np.where(half > 0, half, 1.0)[:, None]
    unit = predictions.form.loss.unit()
    for degree in _DEGREES:
        if degree >= b.shape[1]:
            return None
        nodes = chebyshev.chebpts1(degree + 1)
        points = middle[:, None] + half[:, None] * nodes
        values = _averages_at_shifts(predictions, points[(..., *(None,) * unit.ndim)] * unit, w)
        scale = np.where(np.arange(degree + 1) == 0, 1.0, 2.0) / (degree + 1)
        coefficients = np.einsum("jk,djc->kdc", chebyshev.chebvander(nodes, degree) * scale, values)
        if (np.abs(coefficients[-_LAST_COUNT:]).max(axis=0) <= _LAST_TOLERANCE * np.abs(values).max(axis=1)).all():
            by_class = np.moveaxis(coefficients, 2, 0)
            return np.stack([chebyshev.chebval(scaled, c[..., None], tensor=False) for c in by_class], axis=2)
    return None


# Arrays


def _effects_by_columns(
    posterior: PosteriorData, form: RowsForm, draws_of_effects: EffectDraws, names: Sequence[str] | None
) -> tuple[list[Contrast], Array]:
    """The contrasts of a model of arrays, whose columns all are numbers, and their values under every draw. The
    intercept and other constant columns are left out.
    """
    if any(form.loss.widths):
        why = "by columns alone nothing says which columns of several predictors are the same"
        raise requirement("the posterior", "one of `fit` with a formula for each predictor", "one of arrays", why)
    x, blocks, width = draws_of_effects.reported, form.loss.blocks, posterior.model.columns
    inner = draws_of_effects.inner if posterior.group_effects is None else posterior.inner(len(x))
    first = int(posterior.units is not None and posterior.units.intercept)
    columns, classes = _columns_and_classes(posterior.labels[: blocks * width], blocks, width)
    places = [int(j) for j in varying_columns(form) if first <= j < width and (names is None or columns[j] in names)]
    unknown = [name for name in names or () if name not in columns[first:]]
    if unknown or not places:
        listed = ", ".join(columns[first:][:8]) or "none"
        raise requirement("variables", f"columns that vary ({listed})", repr(unknown[0]) if unknown else "none of them")
    slopes = x[:, : blocks * width].reshape(len(x), blocks, width)[:, :, places]
    w = np.ones(form.rows.n) if form.weights is None else form.weights
    total: Array | float = 0.0
    for _, t, rows in Predictions(form, inner, 0).predictors():
        derivatives = np.stack([_mean_derivative(form, t, block) for block in range(blocks)])
        total = total + np.einsum("bdrk,r->dbk", derivatives, w[rows])
    draws = np.einsum("dbk,dbj->djk", total / w.sum(), slopes)
    groups = _class_names(draws.shape[2], classes)
    return [Contrast(group, columns[j], SLOPE) for j in places for group in groups], draws.reshape(len(x), -1)


def varying_columns(form: RowsForm) -> Indices:
    """The columns that are not constant over the rows.

    Random weights that add up to 0 give a constant column the sum 0, and any other column another sum almost surely.
    """
    r = np.random.default_rng(0).normal(size=form.rows.n)
    weights = np.stack([np.ones(form.rows.n), r - r.mean()])
    sums = np.abs(
        form.rows.combine(np.multiply.outer(weights, np.ones(form.loss.predictor_shape)))[:, : form.rows.columns]
    )
    return np.flatnonzero(sums[1] > _ROUNDING * sums[0])


def _mean_derivative(form: RowsForm, t: Array, block: int) -> Array:
    """∂μ/∂t by one of the linear predictors: (draws, rows, classes)."""
    if form.loss.identity_link:
        return np.ones((*t.shape[:2], 1))
    step = _STEP * form.loss.unit(block)
    change: Array = (form.loss.mean(t + step) - form.loss.mean(t - step)) / (2 * _STEP)
    return change.reshape(*t.shape[:2], -1)


def _columns_and_classes(labels: Sequence[str], blocks: int, width: int) -> tuple[list[str], list[str]]:
    """The names of the columns and of the classes. With several blocks of coefficients their names are "class: column",
    for all classes but the first, whose name is not known.
    """
    if blocks == 1:
        return list(labels), []
    prefixes = [_class_prefix(labels[first : first + width]) for first in range(0, blocks * width, width)]
    classes = ["the first class", *(prefix[:-2] for prefix in prefixes)] if all(prefixes) else []
    return [name.removeprefix(prefixes[0]) for name in labels[:width]], classes


def _class_prefix(names: Sequence[str]) -> str:
    """The longest beginning that all names share and that ends with a colon and a space: the class."""
    first = names[0]
    cuts = [k + 2 for k in range(len(first)) if first.startswith(": ", k)]
    common = [first[:cut] for cut in cuts if all(name.startswith(first[:cut]) for name in names)]
    return max(common, key=len, default="")
