"""Average marginal effects: what a change of a column does to the mean of y, on the scale of y.

With μ(row, x) the mean of y at a row under a draw x (of one trial, where y counts successes), weights wᵢ of the rows
that were fitted (their trials too, as a row of m trials stands for m observations) and W their sum,

    a number:      (1/W) Σᵢ wᵢ [μ(rowᵢ with a + h, x) − μ(rowᵢ with a − h, x)]/2h,      h = 10⁻⁴ sd(a),
    a category:    (1/W) Σᵢ wᵢ [μ(rowᵢ with the level, x) − μ(rowᵢ with the baseline, x)],

true or false like a category with the baseline False. Rows are made anew by the design for every changed column, so
that logarithms, splines and interactions count as they should; a ± h stays within the values that were fitted, beyond
which a spline is not defined. These are `avg_slopes` and `avg_comparisons` of pymarginaleffects, whose names for the
contrasts (dY/dX, pro - basic) are used. Each draw of the posterior gives one value of each effect: a draw of it.

Without a design every column is a number, t is linear in it, and the effect is βⱼ·(1/W) Σᵢ wᵢ μ′(tᵢ), summed over the
predictors where there are several: one look at the rows serves all columns.

Not every row is needed under every draw. With e(R, x) an average over rows R under a draw x, R the rows used and K
those that are kept beside a posterior, e(R, x) + e(K, x̄) − e(R, x̄) is about e(K, x), as what rows add to e hardly
depends on x near the posterior's mean x̄ (a control variate). What is left open is by how much K differs from all rows:
the standard error of e(K, x̄), from equal parts of K.

Nor does every level of a category need a design. Where the category stands in a term of its own and in no other, a
level l adds the same number b_l to the predictor of every row, whatever else the row has. So one design of the rows at
the baseline, and one of a single row at every level, say all predictors, and the average mean of y at a level is a
function of b_l alone, for each draw of the posterior:

    g(b) = Σᵢ wᵢ μ(tᵢ + b),        b = b_l.

Where μ is the predictor itself, g(b) − g(0) = b Σᵢ wᵢ. Else g is smooth, as μ is analytic near the real line, and its
Chebyshev interpolant on the interval of the b_l has an error that falls geometrically with the degree: of a logistic μ
and an interval of half-width r by the factor π/r + √(1 + (π/r)²) for each degree (Trefethen, *Approximation Theory and
Approximation Practice*, theorem 8.2). The degree is doubled until the last coefficients are below 10⁻¹⁰ of the largest
value. So the work is that of some dozens of looks at the rows, however many levels there are; with fewer levels than
that, and where every class has a b of its own, g is found at each level.

Where there are groups, each row keeps the effects of its own groups under every draw: effects are averaged over the
groups as the rows have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import DataError, requirement, whole_number
from svrhmc.core.summaries import Summary, interval_end_names, interval_ends
from svrhmc.families.base import Loss
from svrhmc.results.base import FittedRows, PosteriorData, even_rows, no_rows, thin_draws
from svrhmc.results.predict import Predictions, SmoothRows, TermRows, term_effects
from svrhmc.results.probability import moved
from svrhmc.rows.forms import RowsForm
from svrhmc.tables.columns import TRUTH, Level, column_names, columns_of
from svrhmc.tables.design import Design, missing_in_words
from svrhmc.tables.terms import level_name

if TYPE_CHECKING:
    import pandas

SLOPE = "dY/dX"
_STEP = 1e-4  # h, in standard deviations of a column; of a predictor it is the number itself
_ROUNDING = 1e-6  # of a sum over rows in float32
_MATTERS = 0.1  # standard deviations from which it is said that rows which were not seen may put a mean off
_DEGREES = (16, 32, 64, 128, 256, 512)
_ENOUGH, _LAST = 1e-10, 4  # how small the last coefficients are to be, and how many: half of an odd function's are 0


class Contrast(NamedTuple):
    """Of which class of y (or ""), of which column, and what is compared."""

    group: str
    term: str
    contrast: str

    @property
    def name(self) -> str:
        """As coefficients are named: C: plan[pro - basic]."""
        label = self.term if self.contrast == SLOPE else f"{self.term}[{self.contrast}]"
        return f"{self.group}: {label}" if self.group else label


@dataclass(frozen=True, eq=False)
class Effects:
    """Average marginal effects: a mean, an sd and an interval of each, from draws (draws, effects).

    groups: the class of y whose probability changes, where there are several. terms: the columns that are changed.
    contrasts: "dY/dX" for a number, "level - baseline" for a category. said: over which rows and draws.
    on: what changes.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    terms: tuple[str, ...]
    contrasts: tuple[str, ...]
    mean: Array
    sd: Array
    interval: Array
    draws: Array
    level: float
    said: str
    on: str = "the mean of y"

    @staticmethod
    def of(contrasts: Sequence[Contrast], draws: Array, level: float, said: str, on: str = "the mean of y") -> Effects:
        """Sum up draws of each contrast."""
        return Effects(
            names=tuple(contrast.name for contrast in contrasts),
            groups=tuple(contrast.group for contrast in contrasts),
            terms=tuple(contrast.term for contrast in contrasts),
            contrasts=tuple(contrast.contrast for contrast in contrasts),
            mean=draws.mean(axis=0),
            sd=draws.std(axis=0, ddof=1),
            interval=np.asarray(np.quantile(draws, interval_ends(level), axis=0).T, np.float64),
            draws=draws,
            level=level,
            said=said,
            on=on,
        )

    def summary(self) -> Summary:
        """The same as a table."""
        low, high = interval_end_names(self.level)
        columns = {"mean": self.mean, "sd": self.sd, low: self.interval[:, 0], high: self.interval[:, 1]}
        return Summary(self.names, columns, f"Average marginal effects on {self.on}", (self.said,))

    def __str__(self) -> str:
        return str(self.summary())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame: term and contrast, mean, sd and the ends of the interval."""
        frame = self.summary().to_frame()
        frame.insert(0, "contrast", list(self.contrasts))
        frame.insert(0, "term", list(self.terms))
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
) -> Effects:
    """The effects of a `Posterior`."""
    interval_ends(level)
    names = _names(variables)
    rows, draws, seed = (
        whole_number("rows", rows, 1),
        whole_number("draws", draws, 2),
        whole_number("seed", seed, 0, (1 << 63) - 1),
    )
    if posterior.model is None:
        raise no_rows("to have effects")
    x, off = effect_draws(posterior, draws), 0.0
    if posterior.design is not None:
        fitted = fitted_rows(posterior, table)
        some, centre = fitted.take(even_rows(fitted.columns.n, rows, seed)), x.mean()
        contrasts, values = _by_design(posterior, some, x.followed(centre), names)
        values, at_centre, used, n, weights = values[:-1], values[-1], some.columns.n, fitted.n, fitted.weights
        if used < n:
            average, error = fitted.average(lambda part: _by_design(posterior, part, centre, names)[1][0])
            values, off = values + (average - at_centre), float((error / values.std(axis=0, ddof=1)).max())
    else:
        if table is not None:
            raise requirement("table", "None where the model has no formula", type(table).__name__)
        form = posterior.fitted()
        n, places = form.rows.n, even_rows(form.rows.n, rows, seed)
        contrasts, values = _by_columns(posterior, form.choose(places), x, names)
        used, weights = len(places), form.weights
    few = f"{used:,} of {n:,} rows, spread evenly" if used < n else f"all {n:,} rows"
    by = "" if weights is None else ", by their trials" if posterior.model.loss.in_trials else ", by their weights"
    said = f"Averaged over {few}{by}, under {len(x.inner):,} draws of the posterior."
    if off > _MATTERS:
        said += f" As not every row was used, a mean has a further standard error of up to {off:.2g} of its sd."
    return Effects.of(contrasts, values, level, said, _changed(posterior.design, posterior.model.loss))


class EffectDraws(NamedTuple):
    """Draws as they are reported, in the variables of the target, and of the effects of each term of groups."""

    reported: Array
    inner: Array
    effects: tuple[Array, ...]

    def mean(self) -> EffectDraws:
        """One draw, at the mean of all."""
        reported, inner, *effects = (x.mean(axis=0, keepdims=True) for x in (*self[:2], *self.effects))
        return EffectDraws(reported, inner, tuple(effects))

    def followed(self, other: EffectDraws) -> EffectDraws:
        """With others after them."""
        pairs = zip((*self[:2], *self.effects), (*other[:2], *other.effects), strict=True)
        reported, inner, *effects = (np.concatenate(pair) for pair in pairs)
        return EffectDraws(reported, inner, tuple(effects))


def effect_draws(posterior: PosteriorData, most: int) -> EffectDraws:
    """At most so many of a `Posterior`."""
    kept = posterior.group_effects
    if kept is None:
        x = moved(thin_draws(posterior.trace.draws, most), *posterior.stretched)
        return EffectDraws(x, x if posterior.units is None else posterior.units.inward(x), ())
    x = thin_draws(posterior.trace.draws[:, :: kept.every], most)
    effects = tuple(term_effects(kept, k, most) for k in range(len(kept.names)))
    return EffectDraws(x, posterior.without_groups(most), effects)


def _names(variables: object) -> Sequence[str] | None:
    """Of columns; one name alone is a list of it."""
    names = [variables] if isinstance(variables, str) else variables
    if names is not None and not (isinstance(names, Sequence) and all(isinstance(name, str) for name in names)):
        raise requirement("variables", "names of columns, or None for all", repr(variables))
    return names


def design_of(posterior: PosteriorData) -> Design:
    """How a table becomes rows, of a posterior that has one."""
    assert posterior.design is not None
    return posterior.design


def fitted_rows(posterior: PosteriorData, table: object) -> FittedRows:
    """The rows to average over."""
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
    rows: FittedRows = posterior._table_rows
    return rows


def _changed(design: Design | None, loss: Loss) -> str:
    """What the effects are on, in words."""
    response = "y" if design is None else design.response_in_words
    if loss.in_trials:
        of = f" of {design.trials}" if design is not None and design.trials else ""
        return f"the probability of a success in one trial ({response}{of})"
    if design is None:
        return "the mean of y"
    if design.classes:
        return f"the probability of {design.response} = {design.classes[1] if len(design.classes) == 2 else '…'}"
    return f"the mean of {response}"


# Tables


def _by_design(
    posterior: PosteriorData, rows: FittedRows, x: EffectDraws, names: Sequence[str] | None
) -> tuple[list[Contrast], Array]:
    """Contrasts, and a value of each under every draw x."""
    design = design_of(posterior)
    variables = design.coefficient_variables
    chosen = variables if names is None else tuple(names)
    for name in chosen:
        if name not in variables:
            raise requirement("variables", f"of the formula ({', '.join(variables)})", repr(name))
    if not chosen:
        raise requirement(
            "variables", "at least one column of the formula", "none", "of an intercept no change is made"
        )
    w = np.ones(rows.columns.n) if rows.weights is None else rows.weights
    w = w / w.sum()
    contrasts, draws = [], []
    for name in chosen:
        column, levels = rows.columns[name], design.choices.get(name)
        if levels is None and column.kind == TRUTH:
            levels = (False, True)
        if levels is None:
            compared, change = [SLOPE], _slope(posterior, rows, name, x, w)
        else:
            compared = [f"{level_name(level)} - {level_name(levels[0])}" for level in levels[1:]]
            averages = _at_levels(posterior, rows, name, levels, x, w)
            change = averages[:, 1:] - averages[:, :1]
        groups = _groups(change.shape[2], design.classes)
        contrasts += [Contrast(group, name, contrast) for contrast in compared for group in groups]
        draws.append(change.reshape(len(x.inner), -1))
    return contrasts, np.concatenate(draws, axis=1)


def predictions_with(
    posterior: PosteriorData, rows: FittedRows, changes: Mapping[str, Values], x: EffectDraws
) -> Predictions:
    """Those of rows with other values in some columns, whose groups stay as they are."""
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


def _slope(posterior: PosteriorData, rows: FittedRows, name: str, x: EffectDraws, w: Array) -> Array:
    """(draws, 1, classes): by both sides of a small change of numbers, one-sided at the ends of what was fitted."""
    a = np.asarray(rows.columns[name].values, np.float64)
    h = _STEP * float(a.std())
    low, high = np.maximum(a - h, a.min()), np.minimum(a + h, a.max())
    if h == 0:
        h = _STEP * max(1.0, abs(float(a[0])))
        low, high = a - h, a + h
    w = w / (high - low)
    sides = [_total(predictions_with(posterior, rows, {name: values}, x), of) for values, of in ((high, w), (low, -w))]
    return np.asarray(np.stack(sides).sum(axis=0)[:, None])


def _at_levels(
    posterior: PosteriorData, rows: FittedRows, name: str, levels: Sequence[Level], x: EffectDraws, w: Array
) -> Array:
    """Σᵢ wᵢ μ at every level of a category, (draws, levels, classes), perhaps less a constant of each draw."""
    kind = rows.columns[name].values.dtype

    def at(level: Level) -> Predictions:
        values = np.empty(rows.columns.n, kind)
        values[:] = level
        return predictions_with(posterior, rows, {name: values}, x)

    if not design_of(posterior).separate(name):
        return np.stack([_total(at(level), w) for level in levels], axis=1)
    row_of_each = rows.take(np.zeros(len(levels), np.int64))
    each = predictions_with(posterior, row_of_each, {name: np.array(levels, kind)}, x)
    baseline = at(levels[0])
    return level_averages(baseline.form, each.form, x.inner, w, baseline.groups)


def _total(at: Predictions, w: Array) -> Array:
    """(draws, classes) of Σᵢ wᵢ μᵢ; what all rows have in common cancels where the mean is the predictor itself."""
    if at.form.loss.identity_link:
        at = replace(at, form=replace(at.form, offset=None))
    total: Array | float = 0.0
    for _, t, places in at.predictors():
        total = total + np.einsum("dr...,r->d...", at.form.loss.mean(t), w[places])
    return np.asarray(total, np.float64).reshape(len(at.x), -1)


def averages_along(posterior: PosteriorData, name: str, values: Array, rows: int, draws: int) -> Array:
    """(draws, values, classes): the average mean of y over rows that were fitted, if a column of numbers had one of
    some values in all of them.
    """
    fitted = fitted_rows(posterior, None)
    some, x = fitted.take(even_rows(fitted.columns.n, rows, 0)), effect_draws(posterior, draws)
    w = np.ones(some.columns.n) if some.weights is None else some.weights
    kind = some.columns[name].values.dtype
    averages = []
    for value in values.astype(kind):
        at = predictions_with(posterior, some, {name: np.full(some.columns.n, value, kind)}, x)
        parts = (np.einsum("dr...,r->d...", at.form.loss.mean(t), w[chosen]) for _, t, chosen in at.predictors())
        averages.append(np.asarray(sum(parts) / w.sum()).reshape(len(x.inner), -1))
    return np.stack(averages, axis=1)


def _groups(count: int, classes: Sequence[str]) -> list[str]:
    if count == 1:
        return [""]
    return list(classes) if len(classes) == count else [str(k) for k in range(count)]


def level_averages(
    baseline: RowsForm, levels: RowsForm, x: Array, w: Array, groups: tuple[TermRows | SmoothRows, ...] = ()
) -> Array:
    """Σᵢ wᵢ μ at every level, less a constant of each draw: (draws, levels, classes), under draws x (draws, dim).

    baseline: the rows, all at the first level. levels: one row at every level, the first level first. groups: terms of
    groups at the rows.
    """
    blocks = Predictions(replace(levels, offset=None), x, 0).predictors()
    t = np.concatenate([predictors for _, predictors, _ in blocks], axis=1)
    shifts = t - t[:, :1]
    if baseline.loss.identity_link:
        return np.asarray(baseline.loss.mean(shifts) * w.sum()).reshape(*shifts.shape[:2], -1)
    at = Predictions(baseline, x, 0, None, groups)
    if baseline.loss.blocks == 1 and not any(baseline.loss.widths):
        along = shifts.reshape(*shifts.shape[:2], -1)[..., 0]  # what rows share no level changes
        if (averages := _interpolated(at, along, w)) is not None:
            return averages
    return _averages(at, shifts, w)


def _averages(at: Predictions, shifts: Array, w: Array) -> Array:
    """g at shifts (draws, points, …) of the predictors: (draws, points, classes)."""
    blocks = []
    for _, t, places in at.predictors():
        sums = [
            np.einsum("dr...,r->d...", at.form.loss.mean(t + shifts[:, k, None]), w[places]).reshape(len(at.x), -1)
            for k in range(shifts.shape[1])
        ]
        blocks.append(np.stack(sums, axis=1))
    return np.asarray(sum(blocks))


def _interpolated(at: Predictions, b: Array, w: Array) -> Array | None:
    """g at the shifts b (draws, levels) of the first predictor; None where interpolation saves nothing."""
    middle, half = (b.max(axis=1) + b.min(axis=1)) / 2, (b.max(axis=1) - b.min(axis=1)) / 2
    scaled = (b - middle[:, None]) / np.where(half > 0, half, 1.0)[:, None]
    first = at.form.loss.unit()
    for degree in _DEGREES:
        if degree >= b.shape[1]:
            return None
        nodes = chebyshev.chebpts1(degree + 1)
        points = middle[:, None] + half[:, None] * nodes
        values = _averages(at, points[(..., *(None,) * first.ndim)] * first, w)
        scale = np.where(np.arange(degree + 1) == 0, 1.0, 2.0) / (degree + 1)
        coefficients = np.einsum("jk,djc->kdc", chebyshev.chebvander(nodes, degree) * scale, values)
        if (np.abs(coefficients[-_LAST:]).max(axis=0) <= _ENOUGH * np.abs(values).max(axis=1)).all():
            by_class = np.moveaxis(coefficients, 2, 0)
            return np.stack([chebyshev.chebval(scaled, c[..., None], tensor=False) for c in by_class], axis=2)
    return None


# Arrays


def _by_columns(
    posterior: PosteriorData, form: RowsForm, draws_of: EffectDraws, names: Sequence[str] | None
) -> tuple[list[Contrast], Array]:
    """The same without a design, where every column is a number; those of the intercept, and others that are constant,
    are left out.
    """
    if any(form.loss.widths):
        why = "by columns alone nothing says which columns of several predictors are the same"
        raise requirement("the posterior", "one of `fit` with a formula for each predictor", "one of arrays", why)
    x, blocks, width = draws_of.reported, form.loss.blocks, posterior.model.columns
    inner = draws_of.inner if posterior.group_effects is None else posterior.inner(len(x))
    first = int(posterior.units is not None and posterior.units.intercept)
    columns, classes = _columns_and_classes(posterior.labels[: blocks * width], blocks, width)
    places = [int(j) for j in varied(form) if first <= j < width and (names is None or columns[j] in names)]
    unknown = [name for name in names or () if name not in columns[first:]]
    if unknown or not places:
        listed = ", ".join(columns[first:][:8]) or "none"
        raise requirement("variables", f"columns that vary ({listed})", repr(unknown[0]) if unknown else "none of them")
    slopes = x[:, : blocks * width].reshape(len(x), blocks, width)[:, :, places]
    w = np.ones(form.rows.n) if form.weights is None else form.weights
    total: Array | float = 0.0
    for _, t, rows in Predictions(form, inner, 0).predictors():
        derivatives = np.stack([_derivative(form, t, block) for block in range(blocks)])
        total = total + np.einsum("bdrk,r->dbk", derivatives, w[rows])
    draws = np.einsum("dbk,dbj->djk", total / w.sum(), slopes)
    groups = _groups(draws.shape[2], classes)
    return [Contrast(group, columns[j], SLOPE) for j in places for group in groups], draws.reshape(len(x), -1)


def varied(form: RowsForm) -> Indices:
    """The columns that are not the same in every row: of a column of ones no change can be made.

    Weights whose sum is 0 add a constant column up to 0, and no other one, but by a rare chance.
    """
    r = np.random.default_rng(0).normal(size=form.rows.n)
    weights = np.stack([np.ones(form.rows.n), r - r.mean()])
    sums = np.abs(
        form.rows.combine(np.multiply.outer(weights, np.ones(form.loss.predictor_shape)))[:, : form.rows.columns]
    )
    return np.flatnonzero(sums[1] > _ROUNDING * sums[0])


def _derivative(form: RowsForm, t: Array, block: int) -> Array:
    """∂μ/∂t of one of the predictors: (draws, rows, classes)."""
    if form.loss.identity_link:
        return np.ones((*t.shape[:2], 1))
    step = _STEP * form.loss.unit(block)
    change: Array = (form.loss.mean(t + step) - form.loss.mean(t - step)) / (2 * _STEP)
    return change.reshape(*t.shape[:2], -1)


def _columns_and_classes(labels: Sequence[str], blocks: int, width: int) -> tuple[list[str], list[str]]:
    """The names of the columns, and of the classes: those of coefficients are "class: column" where there are several
    blocks, and their classes follow the first one, of which nothing is said.
    """
    if blocks == 1:
        return list(labels), []
    prefixes = [_class_prefix(labels[first : first + width]) for first in range(0, blocks * width, width)]
    classes = ["the first class", *(prefix[:-2] for prefix in prefixes)] if all(prefixes) else []
    return [name.removeprefix(prefixes[0]) for name in labels[:width]], classes


def _class_prefix(names: Sequence[str]) -> str:
    """What all names begin with, up to a colon: the class."""
    first = names[0]
    cuts = [k + 2 for k in range(len(first)) if first.startswith(": ", k)]
    common = [first[:cut] for cut in cuts if all(name.startswith(first[:cut]) for name in names)]
    return max(common, key=len, default="")
