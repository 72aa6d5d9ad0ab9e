"""What a posterior says of the columns of its table, in sentences, the clearest first.

A coefficient says all of a column that stands in one term alone, as it is: e^β multiplies the odds, the mean or the
time where the link is a logarithm, and β is added to the response where it is the identity. Of a column in
interactions, splines or other transformations no single coefficient speaks, and the average effect on the response
itself does. Where that average goes up and down along the column, its slope says nothing: said is then what it is at
both ends of the column (the 5% and 95% quantiles) and where it is furthest from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Values
from svrhmc.results.base import PosteriorData
from svrhmc.results.effects import SLOPE, Effects, column_averages, fitted_rows
from svrhmc.results.summary import Coefficient, short
from svrhmc.tables.design import Design
from svrhmc.tables.terms import level_name, levels_without_column

_SHOWN = 6  # findings in sentences
_UNREADABLE = 0.01  # coefficients below are said for a standard deviation of their column
_ALONG = np.linspace(0.05, 0.95, 19)  # quantiles of a column along which a mean may go up and down
_ROWS, _DRAWS, _CLEAR = 200, 100, 3.0  # by which that is seen, and posterior sds from which on it is said
_TRUE = "True - False"


class Finding(NamedTuple):
    """A sentence; distance: of its number from 0, in posterior standard deviations. course: of an average that goes up
    and down.
    """

    distance: float
    sentence: str
    course: str = ""


def findings(
    rows: Sequence[Coefficient],
    posterior: PosteriorData,
    effects: Effects | None,
    multiplied: str,
    predictor: str,
    bends: Mapping[str, Finding] | None = None,
) -> list[str]:
    """A sentence for each coefficient or average effect whose interval leaves out 0, the clearest first.

    multiplied: what e to the power of a coefficient multiplies, "" where that has no name. predictor: what a
    coefficient is added to. bends: by column, where they are known.
    """
    design = posterior.design
    steps, plain = _standard_steps(posterior), None if design is None else design.plain_columns
    parts = {} if design is None else dict(zip(design.names, design.parts, strict=True))
    truths = () if effects is None else [t for t, c in zip(effects.terms, effects.contrasts, strict=True) if c == _TRUE]
    all_found = []
    for row in away(rows, posterior):
        group, _, name = row.name.rpartition(": ")
        column, level = parts.get(name, (name, ""))
        if plain is not None and column not in plain:
            continue
        step = steps.get(name)
        small = step is not None and max(abs(row.lower), abs(row.upper)) < _UNREADABLE and step > 1
        change = step if small and step is not None else 1.0
        if level and design is not None:
            subject = _level(column, level, _baseline(design, column))
        elif column in truths:
            subject = _true(column)
        else:
            subject = _one_more(column, step) if small else f"a one-unit increase in {column}"
        numbers = (row.mean * change, row.lower * change, row.upper * change)
        what = multiplied.replace("a class", group) if group else multiplied
        sentence = f"{subject} {_of_coefficient(numbers, what, predictor)}"
        all_found.append(Finding(row.distance, f"{group}: {sentence}" if group and what == multiplied else sentence))
    if effects is not None and plain is not None:
        bends = bends_of(effects, posterior) if bends is None else bends
        all_found += _of_effects(effects, posterior, plain, bends)
    return [found.sentence for found in sorted(all_found, key=lambda found: -found.distance)[:_SHOWN]]


def _of_coefficient(numbers: tuple[float, float, float], multiplied: str, predictor: str) -> str:
    """numbers: mean, and the ends of the interval."""
    if multiplied:
        factors = tuple(math.exp(min(value, 700.0)) for value in numbers)
        return f"multiplies {multiplied} by {in_words(*factors)}."
    return f"goes with {_change(numbers, predictor)}."


def bends_of(effects: Effects, posterior: PosteriorData) -> dict[str, Finding]:
    """What the average mean of y is along the columns where it goes up and down, so that its slope says nothing."""
    if posterior.design is None:
        return {}
    columns, bends = fitted_rows(posterior, None).columns, dict[str, Finding]()
    for term, group, contrast in zip(effects.terms, effects.groups, effects.contrasts, strict=True):
        if contrast != SLOPE or group or term in posterior.design.plain_columns:
            continue
        if (bend := _bend(posterior, term, columns[term].values, effects.on)) is not None:
            bends[term] = bend
    return bends


def _of_effects(
    effects: Effects, posterior: PosteriorData, plain: frozenset[str], bends: Mapping[str, Finding]
) -> list[Finding]:
    """Those of columns of which no coefficient speaks by itself."""
    columns, sentences = fitted_rows(posterior, None).columns, list(bends.values())
    for term, group, contrast, mean, sd, ends in zip(
        effects.terms, effects.groups, effects.contrasts, effects.mean, effects.sd, effects.interval, strict=True
    ):
        if term in plain or term in bends:
            continue
        if ends[0] <= 0 <= ends[1]:
            continue
        step = float(np.std(columns[term].values.astype(np.float64))) if contrast == SLOPE else 1.0
        level, _, baseline = contrast.rpartition(" - ")
        if contrast == SLOPE:
            subject = _one_more(term, step)
        else:
            subject = _true(term) if contrast == _TRUE else _level(term, level, baseline)
        numbers = (float(mean) * step, float(ends[0]) * step, float(ends[1]) * step)
        change = _change(numbers, effects.on.replace("…", group))
        sentences.append(Finding(abs(float(mean)) / float(sd), f"On average, {subject} goes with {change}."))
    return sentences


def _bend(posterior: PosteriorData, column: str, values: Values, on: str) -> Finding | None:
    """What the average mean of y is along a column, where it goes up and down; else None."""
    places = np.unique(np.quantile(values.astype(np.float64), _ALONG))
    if values.dtype.kind in "iu":
        places = np.unique(np.round(places))
    if len(places) < 3:
        return None
    along = column_averages(posterior, column, places, _ROWS, _DRAWS)[:, :, 0]
    mean = along.mean(axis=0)
    inner = int(np.argmax(np.minimum(abs(mean - mean[0]), abs(mean - mean[-1]))))
    away = along[:, [inner]] - along[:, [0, -1]]
    distances = away.mean(axis=0) / np.maximum(away.std(axis=0, ddof=1), 1e-300)
    if distances[0] * distances[1] <= 0 or abs(distances).min() < _CLEAR:
        return None
    at = [f"{short(float(mean[k]))} where {column} is {short(float(places[k]))}" for k in (0, inner, -1)]
    course = "rises and then falls" if distances[0] > 0 else "falls and then rises"
    sentence = f"On average, {on} {course} along {column}: {at[0]}, {at[1]}, and {at[2]}."
    return Finding(float(abs(distances).min()), sentence, course)


def _change(numbers: tuple[float, float, float], of_what: str) -> str:
    size, *ends = (abs(value) for value in numbers)
    return f"{'an increase' if numbers[0] > 0 else 'a decrease'} of {in_words(size, *sorted(ends))} in {of_what}"


def _one_more(column: str, step: float | None) -> str:
    return f"an increase of one standard deviation ({short(step or 1.0)}) in {column}"


def _level(column: str, level: str, baseline: str) -> str:
    return f"compared with {baseline}, {column} {level}"


def _true(column: str) -> str:
    return f"{column} being true"


def _baseline(design: Design, column: str) -> str:
    return level_name(levels_without_column(column, design.choices[column], design.names)[0])


def _standard_steps(posterior: PosteriorData) -> dict[str, float]:
    """One standard deviation of each column of the table that is a number in the formula as it stands, by the name of
    its coefficients.
    """
    units, design = posterior.units, posterior.design
    if units is None or design is None:
        return {}
    width, first = units.columns + int(units.intercept), int(units.intercept)
    return {
        name: float(units.scale[j % width - first])
        for j, name in enumerate(posterior.names[: units.blocks * width])
        if j % width >= first and name.rpartition(": ")[2] in design.plain_columns
    }


def in_words(mean: float, lower: float, upper: float) -> str:
    """A number and its interval, with as many decimals as the interval warrants.

    >>> in_words(1.62, 1.513, 1.73), in_words(0.304, 0.226, 0.41), in_words(12345.6, 12000.0, 12800.0)
    ('1.6 (1.5 to 1.7)', '0.30 (0.23 to 0.41)', '12,300 (12,000 to 12,800)')
    """
    half, size = (upper - lower) / 2, max(abs(mean), abs(lower), abs(upper))
    if not (half > 0 and 1e-4 <= size < 1e9):
        return f"{short(mean)} ({short(lower)} to {short(upper)})"
    decimals = max(-math.floor(math.log10(half)), 1 - math.floor(math.log10(abs(mean))) if mean else 0)
    middle, *ends = (f"{round(value, decimals):,.{max(decimals, 0)}f}" for value in (mean, lower, upper))
    return f"{middle} ({ends[0]} to {ends[1]})"


def clear(rows: Sequence[Coefficient], posterior: PosteriorData) -> str:
    """How many coefficients are away from 0."""
    slopes, some = slopes_of(rows, posterior), away(rows, posterior)
    if not slopes:
        return "There are no coefficients but the intercept."
    if not some:
        return f"None of the {len(slopes)} coefficients is clearly away from 0: all 90% intervals contain it."
    verb, whose = ("are", "their 90% intervals leave") if len(some) > 1 else ("is", "its 90% interval leaves")
    return f"{len(some)} of {len(slopes)} coefficients {verb} clearly away from 0 ({whose} it out)."


def away(rows: Sequence[Coefficient], posterior: PosteriorData) -> list[Coefficient]:
    """Those whose intervals leave out 0, the clearest first."""
    some = [row for row in slopes_of(rows, posterior) if row.lower > 0 or row.upper < 0]
    return sorted(some, key=lambda row: -row.distance)


def with_sign(posterior: PosteriorData) -> frozenset[str]:
    """The names of what may be above or below 0 and says something by it: coefficients and correlations, and neither
    intercepts and thresholds, nor logarithms of scales, nor standard deviations.
    """
    labels: tuple[str, ...] = posterior.labels
    correlations = [name for name in labels if name.startswith("cor(")]
    units = posterior.units
    if units is None:
        return frozenset(labels)
    width, first = units.columns + int(units.intercept), int(units.intercept)
    slopes = [name for j, name in enumerate(labels[: units.blocks * width]) if j % width >= first]
    return frozenset([*slopes, *correlations])


def slopes_of(rows: Sequence[Coefficient], posterior: PosteriorData) -> list[Coefficient]:
    """Without intercepts and parameters that rows share."""
    units = posterior.units
    if units is None:
        return list(rows)
    width, first = units.columns + int(units.intercept), int(units.intercept)
    return [row for j, row in enumerate(rows[: units.blocks * width]) if j % width >= first]
