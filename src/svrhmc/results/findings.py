"""The effects of the columns of a table in sentences, the clearest first.

A column that stands in one term alone, untransformed, is described by its coefficient: e^β multiplies the odds, the
mean or the time where the link is a logarithm, and β is added to the response where it is the identity. A column in
interactions, splines or other transformations has no single coefficient, and is described by its average effect on the
response. Where the average response goes up and down along the column, so that its average slope means little, the
sentence has its values at both ends of the column (the 5% and 95% quantiles) and where it is furthest from them.
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

_MOST_SENTENCES = 6  # findings that are reported
_SMALL_COEFFICIENT = 0.01  # smaller coefficients are given for a standard deviation of their column
_QUANTILES = np.linspace(0.05, 0.95, 19)  # of a column, at which averages are computed
_ROWS, _DRAWS, _LEAST_DISTANCE = 200, 100, 3.0  # for these averages, and posterior sds from which a bend is reported
_TRUE = "True - False"


class Finding(NamedTuple):
    """A sentence. distance: that of its number from 0, in posterior standard deviations. course: for an average that
    goes up and down, "rises and then falls" or the reverse.
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

    multiplied: the quantity that e to the power of a coefficient multiplies, "" where that has no name. predictor: the
    quantity that a coefficient is added to. bends: those of `find_bends`, if they were computed before.
    """
    design = posterior.design
    steps, plain = _standard_steps(posterior), None if design is None else design.plain_columns
    parts = {} if design is None else dict(zip(design.names, design.parts, strict=True))
    truth_columns = (
        () if effects is None else [t for t, c in zip(effects.terms, effects.contrasts, strict=True) if c == _TRUE]
    )
    all_findings = []
    for row in clear_coefficients(rows, posterior):
        group, _, name = row.name.rpartition(": ")
        column, level = parts.get(name, (name, ""))
        if plain is not None and column not in plain:
            continue
        step = steps.get(name)
        small = step is not None and max(abs(row.lower), abs(row.upper)) < _SMALL_COEFFICIENT and step > 1
        change = step if small and step is not None else 1.0
        if level and design is not None:
            subject = _level_subject(column, level, _baseline(design, column))
        elif column in truth_columns:
            subject = _truth_subject(column)
        else:
            subject = _increase_subject(column, step) if small else f"a one-unit increase in {column}"
        numbers = (row.mean * change, row.lower * change, row.upper * change)
        multiplied_in_words = multiplied.replace("a class", group) if group else multiplied
        sentence = f"{subject} {_coefficient_predicate(numbers, multiplied_in_words, predictor)}"
        all_findings.append(
            Finding(row.distance, f"{group}: {sentence}" if group and multiplied_in_words == multiplied else sentence)
        )
    if effects is not None and plain is not None:
        bends = find_bends(effects, posterior) if bends is None else bends
        all_findings += _effect_findings(effects, posterior, plain, bends)
    return [
        finding.sentence for finding in sorted(all_findings, key=lambda finding: -finding.distance)[:_MOST_SENTENCES]
    ]


def _coefficient_predicate(numbers: tuple[float, float, float], multiplied: str, predictor: str) -> str:
    """The predicate of a sentence about a coefficient. numbers: mean, and the ends of the interval."""
    if multiplied:
        factors = tuple(math.exp(min(value, 700.0)) for value in numbers)
        return f"multiplies {multiplied} by {interval_in_words(*factors)}."
    return f"goes with {_change_in_words(numbers, predictor)}."


def find_bends(effects: Effects, posterior: PosteriorData) -> dict[str, Finding]:
    """Findings for the columns along which the average mean of y goes up and down, so that its slope means little."""
    if posterior.design is None:
        return {}
    columns, bends = fitted_rows(posterior, None).columns, dict[str, Finding]()
    for term, group, contrast in zip(effects.terms, effects.groups, effects.contrasts, strict=True):
        if contrast != SLOPE or group or term in posterior.design.plain_columns:
            continue
        if (bend := _find_bend(posterior, term, columns[term].values, effects.on)) is not None:
            bends[term] = bend
    return bends


def _effect_findings(
    effects: Effects, posterior: PosteriorData, plain: frozenset[str], bends: Mapping[str, Finding]
) -> list[Finding]:
    """Findings from average effects, for columns that no single coefficient describes."""
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
            subject = _increase_subject(term, step)
        else:
            subject = _truth_subject(term) if contrast == _TRUE else _level_subject(term, level, baseline)
        numbers = (float(mean) * step, float(ends[0]) * step, float(ends[1]) * step)
        change = _change_in_words(numbers, effects.on.replace("…", group))
        sentences.append(Finding(abs(float(mean)) / float(sd), f"On average, {subject} goes with {change}."))
    return sentences


def _find_bend(posterior: PosteriorData, column: str, values: Values, on: str) -> Finding | None:
    """A finding where the average mean of y clearly goes up and down along a column; else None."""
    places = np.unique(np.quantile(values.astype(np.float64), _QUANTILES))
    if values.dtype.kind in "iu":
        places = np.unique(np.round(places))
    if len(places) < 3:
        return None
    averages = column_averages(posterior, column, places, _ROWS, _DRAWS)[:, :, 0]
    mean = averages.mean(axis=0)
    turning_point = int(np.argmax(np.minimum(abs(mean - mean[0]), abs(mean - mean[-1]))))
    differences = averages[:, [turning_point]] - averages[:, [0, -1]]
    distances = differences.mean(axis=0) / np.maximum(differences.std(axis=0, ddof=1), 1e-300)
    if distances[0] * distances[1] <= 0 or abs(distances).min() < _LEAST_DISTANCE:
        return None
    descriptions = [
        f"{short(float(mean[k]))} where {column} is {short(float(places[k]))}" for k in (0, turning_point, -1)
    ]
    course = "rises and then falls" if distances[0] > 0 else "falls and then rises"
    sentence = f"On average, {on} {course} along {column}: {descriptions[0]}, {descriptions[1]}, and {descriptions[2]}."
    return Finding(float(abs(distances).min()), sentence, course)


def _change_in_words(numbers: tuple[float, float, float], quantity: str) -> str:
    size, *ends = (abs(value) for value in numbers)
    return (
        f"{'an increase' if numbers[0] > 0 else 'a decrease'} of {interval_in_words(size, *sorted(ends))} in {quantity}"
    )


def _increase_subject(column: str, step: float | None) -> str:
    return f"an increase of one standard deviation ({short(step or 1.0)}) in {column}"


def _level_subject(column: str, level: str, baseline: str) -> str:
    return f"compared with {baseline}, {column} {level}"


def _truth_subject(column: str) -> str:
    return f"{column} being true"


def _baseline(design: Design, column: str) -> str:
    return level_name(levels_without_column(column, design.choices[column], design.names)[0])


def _standard_steps(posterior: PosteriorData) -> dict[str, float]:
    """The standard deviation of each numeric column that stands untransformed in the formula, by the names of its
    coefficients.
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


def interval_in_words(mean: float, lower: float, upper: float) -> str:
    """A number and its interval in words, with as many decimals as the width of the interval justifies.

    >>> interval_in_words(1.62, 1.513, 1.73), interval_in_words(12345.6, 12000.0, 12800.0)
    ('1.6 (1.5 to 1.7)', '12,300 (12,000 to 12,800)')
    """
    half, size = (upper - lower) / 2, max(abs(mean), abs(lower), abs(upper))
    if not (half > 0 and 1e-4 <= size < 1e9):
        return f"{short(mean)} ({short(lower)} to {short(upper)})"
    decimals = max(-math.floor(math.log10(half)), 1 - math.floor(math.log10(abs(mean))) if mean else 0)
    middle, *ends = (f"{round(value, decimals):,.{max(decimals, 0)}f}" for value in (mean, lower, upper))
    return f"{middle} ({ends[0]} to {ends[1]})"


def clear_count_sentence(rows: Sequence[Coefficient], posterior: PosteriorData) -> str:
    """How many coefficients have intervals without 0, in a sentence."""
    slopes, clear_rows = slope_coefficients(rows, posterior), clear_coefficients(rows, posterior)
    if not slopes:
        return "There are no coefficients but the intercept."
    if not clear_rows:
        return f"None of the {len(slopes)} coefficients is clearly away from 0: all 90% intervals contain it."
    verb, interval = ("are", "their 90% intervals leave") if len(clear_rows) > 1 else ("is", "its 90% interval leaves")
    return f"{len(clear_rows)} of {len(slopes)} coefficients {verb} clearly away from 0 ({interval} it out)."


def clear_coefficients(rows: Sequence[Coefficient], posterior: PosteriorData) -> list[Coefficient]:
    """The coefficients whose intervals leave out 0, the clearest first."""
    clear_rows = [row for row in slope_coefficients(rows, posterior) if row.lower > 0 or row.upper < 0]
    return sorted(clear_rows, key=lambda row: -row.distance)


def signed_names(posterior: PosteriorData) -> frozenset[str]:
    """The names of the quantities whose sign is of interest: coefficients and correlations, but not intercepts,
    thresholds, logarithms of scales and standard deviations.
    """
    labels = posterior.labels
    correlations = [name for name in labels if name.startswith("cor(")]
    units = posterior.units
    if units is None:
        return frozenset(labels)
    width, first = units.columns + int(units.intercept), int(units.intercept)
    slopes = [name for j, name in enumerate(labels[: units.blocks * width]) if j % width >= first]
    return frozenset([*slopes, *correlations])


def slope_coefficients(rows: Sequence[Coefficient], posterior: PosteriorData) -> list[Coefficient]:
    """The coefficients without intercepts and shared parameters."""
    units = posterior.units
    if units is None:
        return list(rows)
    width, first = units.columns + int(units.intercept), int(units.intercept)
    return [row for j, row in enumerate(rows[: units.blocks * width]) if j % width >= first]
