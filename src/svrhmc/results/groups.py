"""Results on groups: the effects of their levels, shares of variance, and contrasts.

**Levels.** With u the effect of one of q levels, ū the mean of all, and τ² the variance of such effects, u − ū has the
variance (1 − 1/q)τ² a priori, and less of it the more information the level's own rows have. The shrinkage of the level
is

    s = E var(u − ū | τ)/((1 − 1/q) E τ²),        from 0 to 1.

(u itself also has the uncertainty of the intercept in it. The variance given τ is the residual variance of a quadratic
regression of u − ū on τ over the draws.) Where each level has n rows with noise σ², and τ and σ are known, s is
(σ²/n)/(τ² + σ²/n): s is the share by which the level's own estimate is drawn towards the other levels, and 1 − s the
share of it that is kept.

**Shares of variance**, on the scale of the linear predictor, under each draw (Nakagawa & Schielzeth, Methods in Ecology
and Evolution 4, 2013; slopes that vary as by Johnson, ibid. 5, 2014):

    F = var(aᵢᵀβ) over the rows,      Vₖ = mean of zᵢₖᵀΣₖzᵢₖ over the rows,      ε = variance of one observation,

    icc of term k = Vₖ/(Σ V + ε),     share = Vₖ/(F + Σ V + ε),
    marginal R² = F/(F + Σ V + ε),    conditional R² = (F + Σ V)/(F + Σ V + ε).

ε is what the family says (`Loss.link_variance`): σ² of "gaussian", π²/3 with a logit link, 1 with a probit link,
log(1 + 1/λ) of "poisson", with λ the mean of y over the rows (Nakagawa, Johnson & Schielzeth, Journal of the Royal
Society Interface 14, 2017).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import did_you_mean, requirement, whole_number
from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure
from svrhmc.core.summaries import Summary, interval_ends
from svrhmc.families.base import Loss
from svrhmc.results.base import DerivedQuantities, PosteriorData, Tabular, even_rows, interval_columns
from svrhmc.results.effects import design_of, effect_draws, fitted_rows, predictions_with
from svrhmc.results.predict import Predictions, covariance_factors, predictions_at
from svrhmc.results.probability import match_moments, quantiles
from svrhmc.results.summary import predictor_in_words, ratio_name
from svrhmc.sampling.effects import GroupEffects
from svrhmc.tables.columns import Level
from svrhmc.tables.terms import level_name

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_MOST_ROWS = 10_000  # over which variances are averaged
_MOST_LEVELS_IN_PAIRS = 12  # levels of a group up to which all pairs are compared by default
_MOST_PLOTTED = 60  # levels in one figure
_CELL_SEPARATOR = ":"  # between the levels in the name of a cell


@dataclass(frozen=True, eq=False, repr=False)
class Quantities(DerivedQuantities):
    """Quantities that follow from a posterior, by draws (draws, quantities) of them. Print it, or take `to_frame()`.

    signed: whether the table has the probability that each is above 0.
    """

    title: str
    notes: tuple[str, ...] = ()
    signed: bool = False

    def summary(self) -> Summary:
        columns = interval_columns(self.mean, self.sd, self.interval, self.level)
        if self.signed:
            columns["P(> 0)"] = np.asarray((self.draws > 0).mean(axis=0))
        return Summary(self.names, columns, self.title, self.notes)

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame by name."""
        return self.summary().to_frame()


@dataclass(frozen=True, eq=False, repr=False)
class GroupLevels(Tabular):
    """The effects of the levels of a grouping factor, a row for each level and column; print it, take `to_frame()`, or
    `plot()` it.

    levels, columns: the level of each row, and the column whose coefficient varies by it ("1" is the intercept). mean,
    sd, interval (rows, 2): of the effect. shrinkage: the share by which a level's own estimate is drawn towards the
    other levels, from 0 to 1; 1 − shrinkage of it is kept (`svrhmc.results.groups` has how it is found). rows: how many
    rows the level has. scale: what effects are differences of, in words.
    """

    factor: str
    levels: tuple[str, ...]
    columns: tuple[str, ...]
    mean: Array
    sd: Array
    interval: Array
    shrinkage: Array
    rows: Indices
    level: float
    scale: str = "the linear predictor"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows: levels, with columns where several vary."""
        if len(set(self.columns)) == 1:
            return self.levels
        return tuple(f"{level}: {column}" for level, column in zip(self.levels, self.columns, strict=True))

    def summary(self) -> Summary:
        columns = interval_columns(self.mean, self.sd, self.interval, self.level)
        columns |= {"shrinkage": self.shrinkage, "rows": self.rows.astype(np.float64)}
        varying = ", ".join(dict.fromkeys(self.columns))
        note = (
            f"Effects are differences from a typical group in {self.scale}. Shrinkage is the share by which a group's "
            "own estimate is drawn towards the others."
        )
        return Summary(self.names, columns, f"Effects of {self.factor} ({varying} | {self.factor}).", (note,))

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame: level, column, mean, sd, the ends of the interval, shrinkage and rows."""
        frame = self.summary().to_frame().reset_index(drop=True)
        frame["rows"] = self.rows
        frame.insert(0, "column", list(self.columns))
        frame.insert(0, "level", list(self.levels))
        return frame

    def ordered(self, column: str, most: int = _MOST_PLOTTED) -> Indices:
        """The rows of one column in the order of their means; of more than `most` rows the lowest and the highest."""
        places = np.flatnonzero(np.array(self.columns) == column)
        places = places[np.argsort(self.mean[places], kind="stable")]
        if len(places) <= most:
            return places
        return np.concatenate([places[: most // 2], places[-(most - most // 2) :]])

    def plot(self, path: str | Path | None = None) -> Figure:
        """A caterpillar plot: mean and interval of each level in their order, a panel for each column; the figure,
        saved where a path is given. Of more than 60 levels the lowest 30 and the highest 30 are drawn.
        """
        columns = list(dict.fromkeys(self.columns))
        chosen = [self.ordered(column) for column in columns]
        size = len(chosen[0])
        with import_matplotlib().rc_context(STYLE):
            from matplotlib.figure import Figure

            figure = Figure(figsize=(1.5 + 4 * len(columns), 1.2 + 0.2 * size), layout="constrained")
            for k, (column, places_of_column) in enumerate(zip(columns, chosen, strict=True)):
                axes, place = figure.add_subplot(1, len(columns), k + 1), np.arange(len(places_of_column))
                axes.axvline(0.0, color="0.4", linewidth=1, linestyle="--")
                axes.hlines(
                    place,
                    self.interval[places_of_column, 0],
                    self.interval[places_of_column, 1],
                    color=COLOURS[0],
                    linewidth=1.4,
                )
                axes.plot(
                    self.mean[places_of_column], place, "o", color=COLOURS[0], markersize=4, markeredgecolor="white"
                )
                axes.set_yticks(place, [self.levels[j] for j in places_of_column])
                axes.set_ylim(-0.8, len(places_of_column) - 0.2)
                axes.grid(axis="y", visible=False)
                axes.set_xlabel(f"{column} | {self.factor}: mean and {self.level:.0%} interval")
            total = len(self.columns) // len(columns)
            if size < total:
                figure.suptitle(f"the lowest and the highest {size // 2} of {total:,}", fontsize=11)
            if path is not None:
                write_figure(figure, path)
        return figure


def levels_of(posterior: PosteriorData, name: str | None, level: float) -> GroupLevels:
    """The effects of the levels of one grouping factor; None: of the only one."""
    group_effects = require_groups(posterior)
    factor = require_factor(group_effects, name)
    ends = interval_ends(level)
    terms = [
        _term_levels(posterior, group_effects, k, ends)
        for k in group_effects.groups
        if group_effects.names[k] == factor
    ]
    count = len(terms[0].rows)
    parts = zip(*((term.mean, term.sd, term.low, term.high, term.shrinkage) for term in terms), strict=True)
    mean, sd, low, high, shrinkage = (np.concatenate(part, axis=1).ravel() for part in parts)  # level by level
    columns = [column for term in terms for column in term.columns]
    return GroupLevels(
        factor, tuple(np.repeat(terms[0].levels, len(columns)).tolist()), tuple(columns * count), mean, sd,
        np.stack([low, high], axis=1), shrinkage, np.repeat(terms[0].rows, len(columns)), level,
        _scale_in_words(posterior),
    )  # fmt: skip


def _scale_in_words(posterior: PosteriorData) -> str:
    """What effects are differences of, and what e to the power of one is where that has a name."""
    ratio = ratio_name(posterior)
    article = "an" if ratio[:1] in "aeiou" else "a"
    return predictor_in_words(posterior) + (f" (e to the power of one is {article} {ratio})" if ratio else "")


@dataclass(frozen=True, eq=False)
class _TermLevels:
    """The effects of one term in arrays (levels, columns); low, high: the ends of their intervals."""

    levels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Indices
    mean: Array
    sd: Array
    low: Array
    high: Array
    shrinkage: Array


def _term_levels(
    posterior: PosteriorData, group_effects: GroupEffects, k: int, ends: tuple[float, float]
) -> _TermLevels:
    levels, columns = group_effects.levels[k], group_effects.columns[k]
    u = group_effects.draws[..., group_effects.slices()[k]]
    u = u.reshape(-1, u.shape[-1])
    mean, sd = u.mean(axis=0), u.std(axis=0, ddof=1)
    low, high = quantiles(u, mean, sd, ends, False)
    tau = posterior.trace.draws[:, :: group_effects.every, group_effects.stated(k)][..., : len(columns)].reshape(
        -1, len(columns)
    )
    variance = np.maximum((tau**2).mean(axis=0), 1e-300)
    shape = (len(levels), len(columns))
    effects = u.reshape(-1, *shape)
    centred = effects - effects.mean(axis=1, keepdims=True)
    variance_given_tau = np.stack([_residual_variance(centred[..., j], tau[:, j]) for j in range(len(columns))], axis=1)
    shrinkage = np.clip(variance_given_tau / ((1 - 1 / len(levels)) * variance), 0.0, 1.0)
    mean, sd, low, high = (x.reshape(shape) for x in (mean, sd, low, high))
    return _TermLevels(levels, columns, group_effects.rows_of_term(k), mean, sd, low, high, shrinkage)


def _residual_variance(centred: Array, tau: Array) -> Array:
    """The residual variance of a quadratic regression of draws (draws, levels) on τ."""
    powers = np.vander((tau - tau.mean()) / max(float(tau.std()), 1e-300), 3)
    residual: Array = (centred - powers @ np.linalg.lstsq(powers, centred, rcond=None)[0]).var(axis=0, ddof=1)
    return residual


def require_groups(posterior: PosteriorData) -> GroupEffects:
    """The draws of group effects; refuses a posterior without groups."""
    group_effects: GroupEffects | None = posterior.group_effects
    if group_effects is None or not group_effects.groups:
        why = 'such a model has terms like (1 | school): fit("y ~ x + (1 | school)", table)'
        raise requirement("the posterior", "of a model with groups", "one without", why)
    return group_effects


def require_factor(group_effects: GroupEffects, name: str | None) -> str:
    """The name of a grouping factor, which must be one of the model's; None: the only one."""
    factors = group_effects.factors
    if name is None and len(factors) == 1:
        return factors[0]
    if name not in factors:
        hint = did_you_mean(name, factors) if isinstance(name, str) else ""
        raise requirement("name", f"a grouping factor ({', '.join(map(repr, factors))})", repr(name), hint)
    return name


# Shares of variance


def variances_of(posterior: PosteriorData, level: float, draws: int, table: object) -> Quantities:
    """Intraclass correlations, shares of variance and R² of a `Posterior`."""
    group_effects, draws = require_groups(posterior), whole_number("draws", draws, 2)
    interval_ends(level)
    fixed, whole_rows, columns, weights = _predictions_and_columns(posterior, draws, table)
    w = np.ones(fixed.form.rows.n) if weights is None else weights
    w = w / w.sum()
    explained = _predictor_variance(fixed, w)
    loss = fixed.form.loss
    mean = np.sum(
        [w[rows] @ np.atleast_2d(_mean_by_draw(loss, t)) for t, rows in _predictor_blocks(whole_rows)], axis=0
    )
    draws_without_effects = posterior.without_groups(draws)
    residual = loss.link_variance(mean, draws_without_effects[:, draws_without_effects.shape[1] - loss.shared :])
    if residual is None:
        family = posterior.family or str(loss)
        raise requirement("the family", "one whose observations have a variance on the scale of the predictor", family)
    terms, labels = [], []
    for k, z in zip(group_effects.groups, columns, strict=True):
        factor = covariance_factors(posterior, k, draws)
        moment = np.einsum("n,na,nb->ab", w, z, z)
        terms.append(np.einsum("dac,dbc,ab->d", factor, factor, moment))
        labels.append(f"{' + '.join(group_effects.columns[k])} | {group_effects.names[k]}")
    random = np.sum(terms, axis=0)
    total = explained + random + residual
    values = {
        "R2 marginal": explained / total,
        "R2 conditional": (explained + random) / total,
        **{f"icc({label})": term / (random + residual) for label, term in zip(labels, terms, strict=True)},
        **{f"share({label})": term / total for label, term in zip(labels, terms, strict=True)},
        "share(residual)": residual / total,
    }
    note = (
        "R2 marginal is the share of the variance that coefficients and smooths explain, R2 conditional that of these "
        "and groups; icc is the correlation of two observations of one group, given their columns. All on the scale "
        "of the linear predictor, where observations vary about their mean with a variance of "
        f"{float(residual.mean()):.3g}."
    )
    return Quantities(tuple(values), np.stack(list(values.values()), axis=1), level, "Shares of variance.", (note,))


def _predictions_and_columns(
    posterior: PosteriorData, draws: int, table: object
) -> tuple[Predictions, Predictions, list[Array], Array | None]:
    """Over the fitted rows, or those of a table: predictions with smooths, but without offsets and effects of groups;
    predictions with all; for each term of groups the columns that vary; and the weights of the rows.
    """
    if table is not None:
        predictions = predictions_at(posterior, table, None, None, draws, 0)
        smooths = tuple(term for term in predictions.groups if term.columns is None)
        fixed = replace(predictions, form=replace(predictions.form, offset=None), groups=smooths)
        return fixed, predictions, [term.columns for term in predictions.groups if term.columns is not None], None
    form = posterior.fitted()
    rows = even_rows(form.rows.n, _MOST_ROWS, 0)
    form = form.choose(rows)
    inner, group_effects = posterior.inner(draws), require_groups(posterior)
    edge = inner.shape[1] - form.loss.shared
    without_groups, first = inner.copy(), edge - group_effects.draws.shape[2]
    for k in group_effects.groups:
        without_groups[:, first + group_effects.slices()[k].start : first + group_effects.slices()[k].stop] = 0.0
    assert posterior._target is not None  # whose rows these are
    terms = posterior._target.group_terms
    columns = [np.asarray(terms[k].group.columns)[rows] for k in group_effects.groups]
    fixed = Predictions(replace(form, offset=None), without_groups, 0)
    return fixed, Predictions(form, inner, 0), columns, form.weights


def _predictor_blocks(predictions: Predictions) -> Iterator[tuple[Array, Indices]]:
    return ((t, rows) for _, t, rows in predictions.predictors())


def _mean_by_draw(loss: Loss, t: Array) -> Array:
    """The means of y, (rows, draws); 1 where y is a class."""
    mean = loss.mean(t)
    return np.asarray(mean.T if mean.ndim == 2 else np.ones(mean.shape[1::-1]))


def _predictor_variance(predictions: Predictions, w: Array) -> Array:
    """The variance of the linear predictor over the rows, under each draw."""
    first: Array | None = None
    sums, squares = np.zeros(len(predictions.x)), np.zeros(len(predictions.x))
    for t, rows in _predictor_blocks(predictions):
        predictor = predictions.form.loss.predictor(t)
        first = predictor[:, :1] if first is None else first  # against cancellation of large numbers
        difference = predictor - first
        sums, squares = sums + difference @ w[rows], squares + difference**2 @ w[rows]
    return np.maximum(squares - sums**2, 0.0)


# Contrasts

LevelOrCell = Level | tuple[Level, ...]  # a level, or a cell: the levels of several categories


def contrasts_of(
    posterior: PosteriorData,
    name: str | Sequence[str],
    levels: Sequence[LevelOrCell] | None,
    against: LevelOrCell | None,
    level: float,
    draws: int,
) -> Quantities:
    """Differences between levels of a category or a grouping factor, or between cells of several categories; the
    arguments are those of `Posterior.contrast`.
    """
    interval_ends(level)
    group_effects, design = posterior.group_effects, posterior.design
    choices = {} if design is None else design.own_choices
    if not isinstance(name, str):
        categories, draws = _require_categories(name, choices), whole_number("draws", draws, 2)
        name = ":".join(categories)
        level_names, values, suffixes, note = _cells_of_categories(posterior, categories, choices, draws)
    elif name in choices:
        level_names, values, suffixes, note = _levels_of_category(
            posterior, name, choices[name], whole_number("draws", draws, 2)
        )
    elif group_effects is not None and name in group_effects.factors:
        k = group_effects.names.index(name)
        level_names, note = (
            group_effects.levels[k],
            f"Differences of the effects of groups in {_scale_in_words(posterior)}.",
        )
        parts = [
            group_effects.of_term(k).reshape(-1, len(level_names), len(group_effects.columns[k]))
            for k in _terms_of_factor(group_effects, name)
        ]
        values = np.concatenate(parts, axis=2)
        suffixes = [
            "" if column == "1" else f": {column}"
            for k in _terms_of_factor(group_effects, name)
            for column in group_effects.columns[k]
        ]
    else:
        names = [*choices, *(group_effects.factors if group_effects is not None else ())]
        hint = did_you_mean(str(name), names)
        allowed = f"a category or a grouping factor ({', '.join(map(repr, names)) or 'the model has none'})"
        raise requirement("name", allowed, repr(name), hint)
    if levels is None and against is None and len(level_names) > _MOST_LEVELS_IN_PAIRS and name not in choices:
        why = f"{name!r} has {len(level_names):,} levels, and so many pairs are not compared"
        raise requirement("levels", "some levels, or against=… one of them", "None", why)
    chosen = (
        list(level_names)
        if levels is None
        else [_require_level(name, level_or_cell, level_names) for level_or_cell in levels]
    )
    if against is None:
        pairs = [(b, a) for a, b in combinations(chosen, 2)]
    else:
        base = _require_level(name, against, level_names)
        pairs = [(level_or_cell, base) for level_or_cell in chosen if level_or_cell != base]
    if not pairs:
        raise requirement("levels", "at least two different ones", repr(levels))
    position = {level_or_cell: j for j, level_or_cell in enumerate(level_names)}
    differences = np.stack([values[:, position[a]] - values[:, position[b]] for a, b in pairs], axis=1)
    labels = tuple(_difference_name(name, a, b, suffix) for a, b in pairs for suffix in suffixes)
    return Quantities(
        labels, differences.reshape(len(values), -1), level, f"Contrasts of the levels of {name}.", (note,), True
    )


def _require_categories(name: object, choices: Mapping[str, object]) -> list[str]:
    """A list of names, which must be different categories of the formula."""
    names = cast(list[str], list(name) if isinstance(name, Sequence) else [name])
    allowed = f"a category, a grouping factor, or several different categories ({', '.join(map(repr, choices))})"
    for category in names:
        if category not in choices:
            raise requirement("name", allowed, repr(name), did_you_mean(str(category), list(choices)))
    if len(set(names)) < max(len(names), 2):
        raise requirement("name", allowed, repr(name))
    return names


def _difference_name(name: str, a: str, b: str, suffix: str) -> str:
    """The name of a difference: plan[pro - basic]; of a class C: plan[pro - basic]; of a slope school[a - b]: x."""
    label = f"{name}[{a} - {b}]"
    return label + suffix if not suffix.endswith(": ") else suffix + label


def _terms_of_factor(group_effects: GroupEffects, name: str) -> list[int]:
    return [k for k, factor in enumerate(group_effects.names) if factor == name]


def _require_level(name: str, level: LevelOrCell, level_names: Sequence[str]) -> str:
    text = _CELL_SEPARATOR.join(map(level_name, level)) if isinstance(level, tuple | list) else level_name(level)
    if text not in level_names:
        listed = ", ".join(map(repr, level_names[:8])) + (", …" if len(level_names) > 8 else "")
        raise requirement("levels", f"levels of {name!r} ({listed})", repr(level), did_you_mean(text, level_names))
    return text


def _levels_of_category(
    posterior: PosteriorData, name: str, levels: Sequence[Level], draws: int
) -> tuple[tuple[str, ...], Array, list[str], str]:
    """The names of the levels, the predictor at each up to a constant (draws, levels, classes), prefixes of the names
    of differences for each class, and a note.
    """
    design, units, loss = design_of(posterior), posterior.units, posterior.model.loss
    level_names = tuple(map(level_name, levels))
    classes = [f"{label}: " for label in design.classes[1:]] if loss.blocks > 1 else [""]
    if design.separate(name):
        flat = match_moments(posterior.trace._flat(), *posterior.stretched)
        values, place = np.zeros((len(flat), len(level_names), loss.blocks)), int(design.intercept)
        for term in design.made_of:
            if name in term.variables:
                break
            place += len(term.names)
        assert units is not None
        count, width = len(term.names), units.columns + int(design.intercept)
        for block in range(loss.blocks):
            values[:, len(level_names) - count :, block] = flat[:, block * width + place :][:, :count]
        return level_names, values, classes, f"Differences of coefficients, in {_scale_in_words(posterior)}."
    values, rows = _predictors_at_cells(posterior, [name], [(level,) for level in levels], draws)
    note = (
        f"Differences of the linear predictor, averaged over {rows:,} rows, as {name!r} stands in interactions or "
        "varies by group."
    )
    return level_names, values, classes, note


def _cells_of_categories(
    posterior: PosteriorData, names: Sequence[str], choices: Mapping[str, Sequence[Level]], draws: int
) -> tuple[tuple[str, ...], Array, list[str], str]:
    """The same as `_levels_of_category` for the cells of several categories: all combinations of their levels."""
    cells = list(product(*(choices[name] for name in names)))
    classes = [f"{label}: " for label in design_of(posterior).classes[1:]] if posterior.model.loss.blocks > 1 else [""]
    values, rows = _predictors_at_cells(posterior, names, cells, draws)
    note = (
        f"Differences of the linear predictor between cells, averaged over the other columns and the groups as "
        f"{rows:,} rows have them; of a cell without rows they are what the model says of it."
    )
    return tuple(_CELL_SEPARATOR.join(map(level_name, cell)) for cell in cells), values, classes, note


def _predictors_at_cells(
    posterior: PosteriorData, names: Sequence[str], cells: Sequence[tuple[Level, ...]], draws: int
) -> tuple[Array, int]:
    """The linear predictor with the levels of each cell in every row, averaged over rows: (draws, cells, classes); and
    over how many rows.
    """
    rows, loss = fitted_rows(posterior, None), posterior.model.loss
    rows = rows.take(even_rows(rows.columns.n, _MOST_ROWS, 0))
    n, x = rows.columns.n, effect_draws(posterior, draws)
    w = np.ones(n) if rows.weights is None else rows.weights
    averages = []
    for cell in cells:
        changes = {
            name: np.full(n, level, rows.columns[name].values.dtype) for name, level in zip(names, cell, strict=True)
        }
        total: Array | float = 0.0
        for t, places in _predictor_blocks(predictions_with(posterior, rows, changes, x)):
            blocks = np.stack([loss.predictor(t, block) for block in range(loss.blocks)], axis=2)
            total = total + np.einsum("drb,r->db", blocks, w[places] / w.sum())
        averages.append(total)
    return np.stack(averages, axis=1), n
