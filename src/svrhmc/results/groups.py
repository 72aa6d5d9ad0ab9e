"""What a fit says of groups: the effects of their levels, shares of variance, and contrasts.

**Levels.** With u the effect of one of q levels, ū the mean of all, and τ² the variance of such effects, u − ū has the
variance (1 − 1/q)τ² before the rows are seen, and less the more the level's own rows say. The shrinkage of the level is

    s = E var(u − ū | τ)/((1 − 1/q) E τ²),        from 0 to 1.

(u itself has what is not known of the intercept in it too. The variance given τ is what a quadratic function of τ,
fitted to the draws, leaves of u − ū.) Where each level has n rows with noise σ², at known τ and σ, it is
(σ²/n)/(τ² + σ²/n): 1 − s is the share of the level's own estimate that is kept, and s the share by which it is drawn
towards the other levels.

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
from svrhmc.results.probability import moved, quantiles
from svrhmc.sampling.effects import GroupEffects
from svrhmc.tables.columns import Level
from svrhmc.tables.terms import level_name

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_ROWS = 10_000  # of which variances are found
_PAIRS = 12  # levels of a group up to which all pairs are compared unasked
_CATERPILLARS = 60  # levels in one figure
_CELL = ":"  # between the levels of a cell


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

    levels, columns: of each row the level, and what varies by it ("1" is the intercept). mean, sd, interval (rows, 2):
    of the effect. shrinkage: the share by which a level's own estimate is drawn towards the other levels, from 0 to 1;
    1 − shrinkage of it is kept (`svrhmc.results.groups` has how it is found). rows: how many rows the level has.
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

    @property
    def names(self) -> tuple[str, ...]:
        """By level, and by column where several vary."""
        if len(set(self.columns)) == 1:
            return self.levels
        return tuple(f"{level}: {column}" for level, column in zip(self.levels, self.columns, strict=True))

    def summary(self) -> Summary:
        columns = interval_columns(self.mean, self.sd, self.interval, self.level)
        columns |= {"shrinkage": self.shrinkage, "rows": self.rows.astype(np.float64)}
        varying = ", ".join(dict.fromkeys(self.columns))
        note = (
            "Effects are differences from a typical group, on the scale of the linear predictor. Shrinkage is the "
            "share by which a group's own estimate is drawn towards the others."
        )
        return Summary(self.names, columns, f"Effects of {self.factor} ({varying} | {self.factor}).", (note,))

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame: level, column, mean, sd, the ends of the interval, shrinkage and rows."""
        frame = self.summary().to_frame().reset_index(drop=True)
        frame["rows"] = self.rows
        frame.insert(0, "column", list(self.columns))
        frame.insert(0, "level", list(self.levels))
        return frame

    def ordered(self, column: str, most: int = _CATERPILLARS) -> Indices:
        """The rows of one column by their means; where there are more than so many, the lowest and the highest."""
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
            for k, (column, some) in enumerate(zip(columns, chosen, strict=True)):
                axes, place = figure.add_subplot(1, len(columns), k + 1), np.arange(len(some))
                axes.axvline(0.0, color="0.4", linewidth=1, linestyle="--")
                axes.hlines(place, self.interval[some, 0], self.interval[some, 1], color=COLOURS[0], linewidth=1.4)
                axes.plot(self.mean[some], place, "o", color=COLOURS[0], markersize=4, markeredgecolor="white")
                axes.set_yticks(place, [self.levels[j] for j in some])
                axes.set_ylim(-0.8, len(some) - 0.2)
                axes.grid(axis="y", visible=False)
                axes.set_xlabel(f"{column} | {self.factor}: mean and {self.level:.0%} interval")
            total = len(self.columns) // len(columns)
            if size < total:
                figure.suptitle(f"the lowest and the highest {size // 2} of {total:,}", fontsize=11)
            if path is not None:
                write_figure(figure, path)
        return figure


def levels_of(posterior: PosteriorData, name: str | None, level: float) -> GroupLevels:
    """Those of one grouping factor of a `Posterior`."""
    kept = effects_kept(posterior)
    factor = factor_named(kept, name)
    ends = interval_ends(level)
    found = [_term(posterior, kept, k, ends) for k in kept.groups if kept.names[k] == factor]
    count = len(found[0].rows)
    parts = zip(*((f.mean, f.sd, f.low, f.high, f.shrinkage) for f in found), strict=True)
    mean, sd, low, high, shrinkage = (np.concatenate(part, axis=1).ravel() for part in parts)  # level by level
    columns = [column for f in found for column in f.columns]
    return GroupLevels(
        factor, tuple(np.repeat(found[0].levels, len(columns)).tolist()), tuple(columns * count), mean, sd,
        np.stack([low, high], axis=1), shrinkage, np.repeat(found[0].rows, len(columns)), level,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Term:
    """Of one term: arrays (levels, columns)."""

    levels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Indices
    mean: Array
    sd: Array
    low: Array
    high: Array
    shrinkage: Array


def _term(posterior: PosteriorData, kept: GroupEffects, k: int, ends: tuple[float, float]) -> _Term:
    levels, columns = kept.levels[k], kept.columns[k]
    u = kept.draws[..., kept.slices()[k]]
    u = u.reshape(-1, u.shape[-1])
    mean, sd = u.mean(axis=0), u.std(axis=0, ddof=1)
    low, high = quantiles(u, mean, sd, ends, False)
    tau = posterior.trace.draws[:, :: kept.every, kept.stated(k)][..., : len(columns)].reshape(-1, len(columns))
    variance = np.maximum((tau**2).mean(axis=0), 1e-300)
    shape = (len(levels), len(columns))
    every = u.reshape(-1, *shape)
    away = every - every.mean(axis=1, keepdims=True)
    given = np.stack([_given(away[..., j], tau[:, j]) for j in range(len(columns))], axis=1)
    shrinkage = np.clip(given / ((1 - 1 / len(levels)) * variance), 0.0, 1.0)
    mean, sd, low, high = (x.reshape(shape) for x in (mean, sd, low, high))
    return _Term(levels, columns, kept.rows_of_term(k), mean, sd, low, high, shrinkage)


def _given(away: Array, tau: Array) -> Array:
    """The variance of draws (draws, levels) that a quadratic function of τ leaves."""
    powers = np.vander((tau - tau.mean()) / max(float(tau.std()), 1e-300), 3)
    rest: Array = (away - powers @ np.linalg.lstsq(powers, away, rcond=None)[0]).var(axis=0, ddof=1)
    return rest


def effects_kept(posterior: PosteriorData) -> GroupEffects:
    """The draws of group effects; refuses a posterior without groups."""
    kept: GroupEffects | None = posterior.group_effects
    if kept is None or not kept.groups:
        why = 'such a model has terms like (1 | school): fit("y ~ x + (1 | school)", table)'
        raise requirement("the posterior", "of a model with groups", "one without", why)
    return kept


def factor_named(kept: GroupEffects, name: str | None) -> str:
    """A grouping factor by its name; None: the only one."""
    factors = kept.factors
    if name is None and len(factors) == 1:
        return factors[0]
    if name not in factors:
        hint = did_you_mean(name, factors) if isinstance(name, str) else ""
        raise requirement("name", f"a grouping factor ({', '.join(map(repr, factors))})", repr(name), hint)
    return name


# Shares of variance


def variances_of(posterior: PosteriorData, level: float, draws: int, table: object) -> Quantities:
    """Intraclass correlations, shares of variance and R² of a `Posterior`."""
    kept, draws = effects_kept(posterior), whole_number("draws", draws, 2)
    interval_ends(level)
    fixed, whole_rows, columns, weights = _at_rows(posterior, draws, table)
    w = np.ones(fixed.form.rows.n) if weights is None else weights
    w = w / w.sum()
    explained = _variance(fixed, w)
    loss = fixed.form.loss
    mean = np.sum([w[rows] @ np.atleast_2d(_mean_of(loss, t)) for t, rows in _predictors(whole_rows)], axis=0)
    own = posterior.without_groups(draws)
    residual = loss.link_variance(mean, own[:, own.shape[1] - loss.shared :])
    if residual is None:
        family = posterior.family or str(loss)
        raise requirement("the family", "one whose observations have a variance on the scale of the predictor", family)
    terms, labels = [], []
    for k, z in zip(kept.groups, columns, strict=True):
        factor = covariance_factors(posterior, k, draws)
        moment = np.einsum("n,na,nb->ab", w, z, z)
        terms.append(np.einsum("dac,dbc,ab->d", factor, factor, moment))
        labels.append(f"{' + '.join(kept.columns[k])} | {kept.names[k]}")
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


def _at_rows(
    posterior: PosteriorData, draws: int, table: object
) -> tuple[Predictions, Predictions, list[Array], Array | None]:
    """Predictions without offsets and effects of groups, but with smooths; those with all; what varies by groups; and
    weights.
    """
    if table is not None:
        every = predictions_at(posterior, table, None, None, draws, 0)
        smooths = tuple(term for term in every.groups if term.columns is None)
        fixed = replace(every, form=replace(every.form, offset=None), groups=smooths)
        return fixed, every, [term.columns for term in every.groups if term.columns is not None], None
    form = posterior.fitted()
    places = even_rows(form.rows.n, _ROWS, 0)
    form = form.choose(places)
    inner, kept = posterior.inner(draws), effects_kept(posterior)
    edge = inner.shape[1] - form.loss.shared
    bare, first = inner.copy(), edge - kept.draws.shape[2]
    for k in kept.groups:
        bare[:, first + kept.slices()[k].start : first + kept.slices()[k].stop] = 0.0
    assert posterior._target is not None  # whose rows these are
    terms = posterior._target.group_terms
    columns = [np.asarray(terms[k].group.columns)[places] for k in kept.groups]
    fixed = Predictions(replace(form, offset=None), bare, 0)
    return fixed, Predictions(form, inner, 0), columns, form.weights


def _predictors(at: Predictions) -> Iterator[tuple[Array, Indices]]:
    return ((t, rows) for _, t, rows in at.predictors())


def _mean_of(loss: Loss, t: Array) -> Array:
    """(rows, draws) means of y; 1 where y has classes, and no number to be the mean of."""
    mean = loss.mean(t)
    return np.asarray(mean.T if mean.ndim == 2 else np.ones(mean.shape[1::-1]))


def _variance(at: Predictions, w: Array) -> Array:
    """Of the linear predictor over the rows, under each draw."""
    first: Array | None = None
    sums, squares = np.zeros(len(at.x)), np.zeros(len(at.x))
    for t, rows in _predictors(at):
        one = at.form.loss.predictor(t)
        first = one[:, :1] if first is None else first  # so that large numbers do not cancel
        away = one - first
        sums, squares = sums + away @ w[rows], squares + away**2 @ w[rows]
    return np.maximum(squares - sums**2, 0.0)


# Contrasts

Compared = Level | tuple[Level, ...]  # a level, or a cell: the levels of several categories


def contrasts_of(
    posterior: PosteriorData,
    name: str | Sequence[str],
    levels: Sequence[Compared] | None,
    against: Compared | None,
    level: float,
    draws: int,
) -> Quantities:
    """Differences of the levels of a category or of a grouping factor, or of the cells of several categories."""
    interval_ends(level)
    kept, design = posterior.group_effects, posterior.design
    choices = {} if design is None else design.own_choices
    if not isinstance(name, str):
        compared, draws = _cell_names(name, choices), whole_number("draws", draws, 2)
        name = ":".join(compared)
        known, values, suffixes, said = _of_cells(posterior, compared, choices, draws)
    elif name in choices:
        known, values, suffixes, said = _of_category(posterior, name, choices[name], whole_number("draws", draws, 2))
    elif kept is not None and name in kept.factors:
        k = kept.names.index(name)
        known, said = kept.levels[k], "Differences of the effects of groups, on the scale of the linear predictor."
        parts = [kept.of_term(k).reshape(-1, len(known), len(kept.columns[k])) for k in _terms_of(kept, name)]
        values = np.concatenate(parts, axis=2)
        suffixes = ["" if column == "1" else f": {column}" for k in _terms_of(kept, name) for column in kept.columns[k]]
    else:
        names = [*choices, *(kept.factors if kept is not None else ())]
        hint = did_you_mean(str(name), names)
        allowed = f"a category or a grouping factor ({', '.join(map(repr, names)) or 'the model has none'})"
        raise requirement("name", allowed, repr(name), hint)
    if levels is None and against is None and len(known) > _PAIRS and name not in choices:
        why = f"{name!r} has {len(known):,} levels, and so many pairs are not compared"
        raise requirement("levels", "some levels, or against=… one of them", "None", why)
    chosen = list(known) if levels is None else [_level(name, one, known) for one in levels]
    if against is None:
        pairs = [(b, a) for a, b in combinations(chosen, 2)]
    else:
        base = _level(name, against, known)
        pairs = [(one, base) for one in chosen if one != base]
    if not pairs:
        raise requirement("levels", "at least two different ones", repr(levels))
    place = {one: j for j, one in enumerate(known)}
    differences = np.stack([values[:, place[a]] - values[:, place[b]] for a, b in pairs], axis=1)
    labels = tuple(_difference(name, a, b, suffix) for a, b in pairs for suffix in suffixes)
    return Quantities(
        labels, differences.reshape(len(values), -1), level, f"Contrasts of the levels of {name}.", (said,), True
    )


def _cell_names(given: object, choices: Mapping[str, object]) -> list[str]:
    """Different categories of the formula."""
    names = cast(list[str], list(given) if isinstance(given, Sequence) else [given])
    allowed = f"a category, a grouping factor, or several different categories ({', '.join(map(repr, choices))})"
    for one in names:
        if one not in choices:
            raise requirement("name", allowed, repr(given), did_you_mean(str(one), list(choices)))
    if len(set(names)) < max(len(names), 2):
        raise requirement("name", allowed, repr(given))
    return names


def _difference(name: str, a: str, b: str, suffix: str) -> str:
    """plan[pro - basic], of a class "C: plan[pro - basic]", of a slope "school[a - b]: x"."""
    label = f"{name}[{a} - {b}]"
    return label + suffix if not suffix.endswith(": ") else suffix + label


def _terms_of(kept: GroupEffects, name: str) -> list[int]:
    return [k for k, own in enumerate(kept.names) if own == name]


def _level(name: str, given: Compared, known: Sequence[str]) -> str:
    text = _CELL.join(map(level_name, given)) if isinstance(given, tuple | list) else level_name(given)
    if text not in known:
        some = ", ".join(map(repr, known[:8])) + (", …" if len(known) > 8 else "")
        raise requirement("levels", f"levels of {name!r} ({some})", repr(given), did_you_mean(text, known))
    return text


def _of_category(
    posterior: PosteriorData, name: str, levels: Sequence[Level], draws: int
) -> tuple[tuple[str, ...], Array, list[str], str]:
    """The names of the levels, the predictor at each (draws, levels, classes) but for a constant, and classes."""
    design, units, loss = design_of(posterior), posterior.units, posterior.model.loss
    known = tuple(map(level_name, levels))
    classes = [f"{label}: " for label in design.classes[1:]] if loss.blocks > 1 else [""]
    if design.separate(name):
        flat = moved(posterior.trace._flat(), *posterior.stretched)
        values, place = np.zeros((len(flat), len(known), loss.blocks)), int(design.intercept)
        for term in design.made_of:
            if name in term.variables:
                break
            place += len(term.names)
        assert units is not None
        count, width = len(term.names), units.columns + int(design.intercept)
        for block in range(loss.blocks):
            values[:, len(known) - count :, block] = flat[:, block * width + place :][:, :count]
        return known, values, classes, "Differences of coefficients, on the scale of the linear predictor."
    values, rows = _at_cells(posterior, [name], [(one,) for one in levels], draws)
    said = (
        f"Differences of the linear predictor, averaged over {rows:,} rows, as {name!r} stands in interactions or "
        "varies by group."
    )
    return known, values, classes, said


def _of_cells(
    posterior: PosteriorData, names: Sequence[str], choices: Mapping[str, Sequence[Level]], draws: int
) -> tuple[tuple[str, ...], Array, list[str], str]:
    """The same for all combinations of levels of several categories."""
    cells = list(product(*(choices[name] for name in names)))
    classes = [f"{label}: " for label in design_of(posterior).classes[1:]] if posterior.model.loss.blocks > 1 else [""]
    values, rows = _at_cells(posterior, names, cells, draws)
    said = (
        f"Differences of the linear predictor between cells, averaged over the other columns and the groups as "
        f"{rows:,} rows have them; of a cell without rows they are what the model says of it."
    )
    return tuple(_CELL.join(map(level_name, cell)) for cell in cells), values, classes, said


def _at_cells(
    posterior: PosteriorData, names: Sequence[str], cells: Sequence[tuple[Level, ...]], draws: int
) -> tuple[Array, int]:
    """The linear predictor with these levels in every row, averaged over rows: (draws, cells, classes); and how many
    rows.
    """
    rows, loss = fitted_rows(posterior, None), posterior.model.loss
    rows = rows.take(even_rows(rows.columns.n, _ROWS, 0))
    n, x = rows.columns.n, effect_draws(posterior, draws)
    w = np.ones(n) if rows.weights is None else rows.weights
    averages = []
    for cell in cells:
        changes = {
            name: np.full(n, one, rows.columns[name].values.dtype) for name, one in zip(names, cell, strict=True)
        }
        total: Array | float = 0.0
        for t, places in _predictors(predictions_with(posterior, rows, changes, x)):
            blocks = np.stack([loss.predictor(t, block) for block in range(loss.blocks)], axis=2)
            total = total + np.einsum("drb,r->db", blocks, w[places] / w.sum())
        averages.append(total)
    return np.stack(averages, axis=1), n
