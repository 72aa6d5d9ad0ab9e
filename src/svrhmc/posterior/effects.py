"""Average marginal effects: what a change of a column does to the mean of y, on the scale of y.

With μ(row, x) the mean of y at a row under a draw x (of one trial, where y counts successes), weights wᵢ of the rows
that were fitted (their trials too, as a row of m trials stands for m observations) and W their sum,

    a number:      (1/W) Σᵢ wᵢ [μ(rowᵢ with a + h, x) − μ(rowᵢ with a − h, x)]/2h,      h = 10⁻⁴ sd(a),
    a category:    (1/W) Σᵢ wᵢ [μ(rowᵢ with the level, x) − μ(rowᵢ with the baseline, x)],

true or false like a category with the baseline False. Rows are made anew by the design for every changed column, so
that logarithms, splines and interactions count as they should; a ± h stays within the values that were fitted, beyond
which a spline is not defined. These are `avg_slopes` and `avg_comparisons` of pymarginaleffects, whose names for the
contrasts (dY/dX, pro - basic) are used. Each draw of the posterior gives one value of each effect: a draw of it.

Not every row is needed under every draw: what the others would add is found at the mean of the draws
(`svrhmc.posterior.kept`).

Without a design every column is a number, t is linear in it, and the effect is βⱼ·(1/W) Σᵢ wᵢ μ′(tᵢ), summed over the
predictors where there are several: one look at the rows serves all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError, requirement, whole
from svrhmc.core.summaries import Summary
from svrhmc.families.base import Loss
from svrhmc.posterior.kept import Kept, beyond, spread
from svrhmc.posterior.levels import level_averages
from svrhmc.posterior.prediction import Model, Predictions, no_rows, thinned
from svrhmc.posterior.statements import end_names, level_ends, moved
from svrhmc.posterior.units import Units
from svrhmc.tables.columns import TRUTH, Column, Columns, columns_of, names_of
from svrhmc.tables.design import Design, told
from svrhmc.tables.terms import shown
from svrhmc.targets.forms import RowsForm

_STEP = 1e-4  # h, in standard deviations of a column; of a predictor it is the number itself
_ROUNDING = 1e-6  # of a sum over rows in float32
_MATTERS = 0.1  # standard deviations from which it is said that rows which were not seen may put a mean off
SLOPE = "dY/dX"


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
        interval = np.quantile(draws, level_ends(level), axis=0).T
        groups, terms, names = (tuple(column) for column in zip(*contrasts, strict=True))
        return Effects(
            tuple(each.name for each in contrasts),
            groups,
            terms,
            names,
            draws.mean(axis=0),
            draws.std(axis=0, ddof=1),
            np.asarray(interval, np.float64),
            draws,
            level,
            said,
            on,
        )

    def summary(self) -> Summary:
        """The same as a table."""
        low, high = end_names(self.level)
        columns = {"mean": self.mean, "sd": self.sd, low: self.interval[:, 0], high: self.interval[:, 1]}
        return Summary(self.names, columns, f"Average marginal effects on {self.on}", (self.said,))

    def __str__(self) -> str:
        return str(self.summary())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def to_frame(self) -> Any:
        """As a pandas data frame: term and contrast, mean, sd and the ends of the interval."""
        frame = self.summary().to_frame()
        frame.insert(0, "contrast", list(self.contrasts))
        frame.insert(0, "term", list(self.terms))
        if any(self.groups):
            frame.insert(0, "group", list(self.groups))
        return frame


def by_design(
    design: Design, model: Model, units: Units, kept: Kept, x: Array, variables: Sequence[str] | None
) -> tuple[list[Contrast], Array]:
    """Contrasts, and a value of each under every draw x (draws, dim) in the target's variables."""
    chosen = design.variables if variables is None else tuple(variables)
    for name in chosen:
        if name not in design.variables:
            raise requirement("variables", f"of the formula ({', '.join(design.variables)})", repr(name))
    if not chosen:
        raise requirement(
            "variables", "at least one column of the formula", "none", "of an intercept no change is made"
        )
    w = np.ones(kept.columns.n) if kept.weights is None else kept.weights
    w = w / w.sum()

    def form_of(table: Kept, name: str, values: Any) -> RowsForm:
        some = replace(table.columns[name], values=values)
        columns = Columns({**table.columns.by_name, name: some}, table.columns.n)
        return model.at(design.matrix(columns), table.offset, units)

    found, draws = [], []
    for name in chosen:
        column, levels = kept.columns[name], design.choices.get(name)
        if levels is None and column.kind == TRUTH:
            levels = (False, True)
        if levels is None:
            contrasts = [SLOPE]
            sides = [_total(form_of(kept, name, values), x, each) for values, each in _sides(column, w)]
            change = np.stack(sides).sum(axis=0)[:, None]
        else:
            contrasts = [f"{shown(level)} - {shown(levels[0])}" for level in levels[1:]]
            if design.separate(name):
                one = kept.chosen(np.zeros(len(levels), np.int64))
                at_each = form_of(one, name, np.array(levels, column.values.dtype))
                totals = level_averages(form_of(kept, name, _filled(column, levels[0])), at_each, x, w)
            else:
                totals = np.stack([_total(form_of(kept, name, _filled(column, each)), x, w) for each in levels], axis=1)
            change = totals[:, 1:] - totals[:, :1]
        groups = _groups(change.shape[2], design.classes)
        found += [Contrast(group, name, contrast) for contrast in contrasts for group in groups]
        draws.append(change.reshape(len(x), -1))
    return found, np.concatenate(draws, axis=1)


def by_columns(
    form: RowsForm, x: Array, slopes: Array, columns: Sequence[str], classes: Sequence[str]
) -> tuple[list[Contrast], Array]:
    """The same where every column is a number: from slopes (draws, blocks, columns) in the units of the data."""
    w = np.ones(form.rows.n) if form.weights is None else form.weights
    total: Any = 0.0
    for _, t, chosen in Predictions(form, x, 0).predictors():
        each = [_derivative(form, t, block) for block in range(slopes.shape[1])]
        total = total + np.einsum("bdrk,r->dbk", np.stack(each), w[chosen])
    draws = np.einsum("dbk,dbj->djk", total / w.sum(), slopes)
    groups = _groups(draws.shape[2], classes)
    return [Contrast(group, name, SLOPE) for name in columns for group in groups], draws.reshape(len(x), -1)


def varied(form: RowsForm) -> Indices:
    """The columns that are not the same in every row: of a column of ones no change can be made.

    Weights whose sum is 0 add a constant column up to 0, and no other one, but by a rare chance.
    """
    r = np.random.default_rng(0).normal(size=form.rows.n)
    weights = np.stack([np.ones(form.rows.n), r - r.mean()])
    each = np.multiply.outer(weights, np.ones(form.loss.tail))
    sums = np.abs(form.rows.combine(each)[:, : form.rows.columns])
    return np.flatnonzero(sums[1] > _ROUNDING * sums[0])


def _derivative(form: RowsForm, t: Array, block: int) -> Array:
    """∂μ/∂t of one of the predictors: (draws, rows, classes)."""
    if form.loss.identity_link:
        return np.ones((*t.shape[:2], 1))
    step = _STEP * form.loss.unit(block)
    change: Array = (form.loss.mean(t + step) - form.loss.mean(t - step)) / (2 * _STEP)
    return change.reshape(*t.shape[:2], -1)


def _sides(column: Column, w: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Both sides of a small change of numbers: values, and how much each row counts."""
    a = np.asarray(column.values, np.float64)
    h = _STEP * float(a.std())
    low, high = np.maximum(a - h, a.min()), np.minimum(a + h, a.max())  # one-sided at the ends of what was fitted
    if h == 0:
        h = _STEP * max(1.0, abs(float(a[0])))
        low, high = a - h, a + h
    return (high, w / (high - low)), (low, -w / (high - low))


def _filled(column: Column, value: Any) -> Any:
    out = np.empty(len(column.values), column.values.dtype)
    out[:] = value
    return out


def _total(form: RowsForm, x: Array, each: Array) -> Array:
    """(draws, classes) of Σᵢ eachᵢ μᵢ; what all rows have in common cancels where the mean is the predictor itself."""
    if form.loss.identity_link:
        form = replace(form, offset=None)
    total: Any = 0.0
    for _, t, chosen in Predictions(form, x, 0).predictors():
        total = total + np.einsum("dr...,r->d...", form.loss.mean(t), each[chosen])
    return np.asarray(total, np.float64).reshape(len(x), -1)


def _groups(count: int, classes: Sequence[str]) -> list[str]:
    if count == 1:
        return [""]
    return list(classes) if len(classes) == count else [str(k) for k in range(count)]


def effects_of(
    posterior: Any,
    level: float,
    rows: int,
    draws: int,
    seed: int,
    variables: str | Sequence[str] | None,
    table: Any,
) -> Effects:
    """The effects of a `Posterior`."""
    level_ends(level)
    chosen = _listed(variables)
    rows, draws, seed = whole("rows", rows, 1), whole("draws", draws, 2), whole("seed", seed, 0, (1 << 63) - 1)
    if posterior.model is None:
        raise no_rows("to have effects")
    x = moved(thinned(posterior.trace.draws, draws), posterior.mean, posterior.sd)
    inner, off = x if posterior.units is None else posterior.units.inward(x), 0.0
    if posterior.design is not None:
        kept = _kept(posterior, table)
        some, centre = kept.chosen(spread(kept.columns.n, rows, seed)), inner.mean(axis=0, keepdims=True)
        model = posterior.design, posterior.model, posterior.units
        contrasts, found = by_design(*model, some, np.concatenate([inner, centre]), chosen)
        found, middle, used, n, counts = found[:-1], found[-1], some.columns.n, kept.n, kept.weights
        if used < n:
            wide, error = beyond(kept, lambda part: by_design(*model, part, centre, chosen)[1][0])
            found, off = found + (wide - middle), float((error / found.std(axis=0, ddof=1)).max())
    else:
        if table is not None:
            raise requirement("table", "None where the model has no formula", type(table).__name__)
        form = posterior.fitted()
        n, places = form.rows.n, spread(form.rows.n, rows, seed)
        contrasts, found = _of_arrays(posterior, form.chosen(places), x, inner, chosen)
        used, counts = len(places), form.weights
    few = f"{used:,} of {n:,} rows, spread evenly" if used < n else f"all {n:,} rows"
    by = "" if counts is None else ", by their trials" if posterior.model.loss.tried else ", by their weights"
    said = f"Averaged over {few}{by}, under {len(x):,} draws of the posterior."
    if off > _MATTERS:
        said += f" That not every row was seen puts a mean off by up to {off:.2g} of its sd (one standard error)."
    return Effects.of(contrasts, found, level, said, _changed(posterior.design, posterior.model.loss))


def _listed(variables: Any) -> Sequence[str] | None:
    """Names of columns; one name alone is a list of it."""
    names = [variables] if isinstance(variables, str) else variables
    if names is not None and not (isinstance(names, Sequence) and all(isinstance(name, str) for name in names)):
        raise requirement("variables", "names of columns, or None for all", repr(variables))
    return names


def _changed(design: Any, loss: Loss) -> str:
    """What the effects are on, in words."""
    response = "y" if design is None else design.response
    if loss.tried:
        of = f" of {design.trials}" if design is not None and design.trials else ""
        return f"the probability of a success in one trial ({response}{of})"
    if design is None:
        return "the mean of y"
    if design.classes:
        return f"the probability of {design.response} = {design.classes[1] if len(design.classes) == 2 else '…'}"
    return f"the mean of {design.response}"


def _of_arrays(
    posterior: Any, form: RowsForm, x: Array, inner: Array, variables: Sequence[str] | None
) -> tuple[list[Contrast], Array]:
    """Of a model without a design: the columns of the intercept, and others that are constant, are left out."""
    blocks, width = form.loss.blocks, form.rows.columns
    first = int(posterior.units is not None and posterior.units.intercept)
    slopes = x[:, : blocks * width].reshape(len(x), blocks, width)
    names, classes = _own(posterior.labels[: blocks * width], blocks, width)
    shown = [int(j) for j in varied(form) if j >= first and (variables is None or names[j] in variables)]
    unknown = [name for name in variables or () if name not in names[first:]]
    if unknown or not shown:
        known = ", ".join(names[first:][:8]) or "none"
        raise requirement("variables", f"columns that vary ({known})", repr(unknown[0]) if unknown else "none of them")
    return by_columns(form, inner, slopes[:, :, shown], [names[j] for j in shown], classes)


def _own(labels: Sequence[str], blocks: int, width: int) -> tuple[list[str], list[str]]:
    """The names of the columns, and of the classes: those of coefficients are "class: column" where there are several
    blocks, and their classes follow the first one, of which nothing is said.
    """
    if blocks == 1:
        return list(labels), []
    begins = [_begin(labels[first : first + width]) for first in range(0, blocks * width, width)]
    classes = ["the first class", *(begin[:-2] for begin in begins)] if all(begins) else []
    return [name.removeprefix(begins[0]) for name in labels[:width]], classes


def _begin(names: Sequence[str]) -> str:
    """What all names begin with, up to a colon: the class."""
    first = names[0]
    cuts = [k + 2 for k in range(len(first)) if first.startswith(": ", k)]
    return max(
        (first[:cut] for cut in cuts if all(name.startswith(first[:cut]) for name in names)), key=len, default=""
    )


def _kept(posterior: Any, table: Any) -> Kept:
    """The rows to average over."""
    if table is not None:
        columns = columns_of(table, posterior.design.variables)
        if gaps := columns.gaps():
            raise DataError(f"the table must have no missing values in {told(gaps)}: leave these rows out.")
        has_trials = posterior.design.trials in names_of(table)
        counts = posterior.design.trials_of(table) if has_trials else None
        return Kept(columns, posterior.design.offsets(table), counts, columns.n)
    if posterior._kept is None:
        raise requirement(
            "the posterior",
            "as `fit` gave it, or given a table to average over: effects(table=…)",
            "one from a file",
            "no file keeps the rows that were fitted",
        )
    kept: Kept = posterior._kept
    return kept
