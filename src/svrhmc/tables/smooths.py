"""Smooths of a design: for each its argument, its straight line and its spline.

s(x) is a column for the line of x, `s(x)[line]`, and a spline that has neither constant nor line over the fitted rows
(`svrhmc.tables.splines`), whose coefficients share one unknown standard deviation, `sd(s(x))`. s(x, by=g) of a category
g has both for each of its levels, from the rows of that level alone; s(x, by=z) of a number z has both multiplied by z.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.priors.groups import Smooth
from svrhmc.tables.columns import CATEGORY, TRUTH, Columns
from svrhmc.tables.expressions import SMOOTH
from svrhmc.tables.formula import ParsedFormula, SmoothTerm, quote_name
from svrhmc.tables.formula import Term as FormulaTerm
from svrhmc.tables.groups import ErrorForReason, json_from_array, json_to_array
from svrhmc.tables.splines import FEWEST, Spline
from svrhmc.tables.terms import (
    Category,
    Line,
    Term,
    Transforms,
    level_name,
    require_finite,
    terms_from_json,
    terms_to_json,
)

USUAL = 10  # functions of a smooth if k is not given, with constant and line
_MOST = 300


@dataclass(frozen=True, eq=False)
class SmoothDesign:
    """How a table becomes a `Smooth`. text: the term as it stands in the formula. line: its straight line, which holds
    what it is a function of. spline: the rest of the smooth.
    """

    text: str
    line: Line
    spline: Spline

    @property
    def name(self) -> str:
        """The name of the smooth, such as "s(age)" or "s(age):plan[pro]"."""
        return self.line.smooth

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The name of its standard deviation."""
        return (f"sd({self.name})",)

    def basis(self, columns: Columns) -> Array:
        """(n, q): the functions of the spline at the rows of a table."""
        factor = self.line.multiplier(columns)
        B = self.spline.basis(self.line.argument_values(columns))
        return B if factor is None else np.asarray(factor[:, None] * B)

    def build_smooth(self, columns: Columns) -> Smooth:
        """The smooth of the table that is fitted."""
        return Smooth(self.basis(columns), self.name)


def smooth_designs(
    smooth: SmoothTerm, argument: tuple[Term, ...], columns: Columns, unusable: ErrorForReason, transforms: Transforms
) -> Iterator[SmoothDesign]:
    """The designs of a smooth term: one, or one for each level of a category. argument: the terms of what it is a
    function of, with what these learned from the columns. unusable: makes the error for a reason.
    """
    text, (term, *more) = smooth.text, argument
    if isinstance(term, Category) or any(columns[name].kind == CATEGORY for name in smooth.argument.variables):
        raise unusable(f"{text} is a smooth of {smooth.argument.text!r}, which holds texts or categories, not numbers")
    if more or len(term.names) != 1:
        raise unusable(
            f"{smooth.argument.text!r} in {text} makes {len(term.names)} columns, and a smooth is one of one"
        )
    x = np.asarray(term.matrix(columns), np.float64)[:, 0]
    require_finite(term.names, x[:, None], 0)
    name_in_formula, argument_json = f"s({smooth.argument.text})", terms_to_json((term,))

    def build(name: str, rows: Any, where: str, **by: Any) -> SmoothDesign:
        x_of_rows = x if rows is None else x[rows]
        line = Line(name, argument_json, float(x_of_rows.mean()), **by)
        spline = Spline.fit(x_of_rows, _function_count(smooth, x_of_rows, where, unusable))
        (line,) = terms_from_json(terms_to_json((line,)), transforms)  # type: ignore[assignment]
        return SmoothDesign(text, line, spline)

    if smooth.by is None:
        yield build(name_in_formula, None, "")
        return
    column = columns[smooth.by]
    if not _is_category(smooth, columns):
        z = np.asarray(column.values, np.float64)
        if z.min() == z.max():
            raise unusable(f"by={quote_name(smooth.by)} of {text} is {z[0]:g} in every row: leave it out")
        yield build(f"{name_in_formula}:{smooth.by}", None, "", by=smooth.by)
        return
    levels = column.distinct()
    if len(levels) < 2:
        raise unusable(
            f"by={quote_name(smooth.by)} of {text} has one level only, {level_name(levels[0])!r}: leave it out"
        )
    codes = column.codes(levels)
    for number, level in enumerate(levels):
        label = f"{smooth.by}[{level_name(level)}]"
        where = f" in the rows of {label}"
        yield build(f"{name_in_formula}:{label}", codes == number, where, by=smooth.by, levels=levels, level=number)


def require_separate_smooths(
    parsed: ParsedFormula, columns: Columns, transforms: Transforms, unusable: ErrorForReason
) -> None:
    """Refuse smooths whose straight line is also a term of the formula, and smooths by a column that has no effect of
    its own in the formula.
    """
    if parsed.smooths and SMOOTH in transforms:
        raise unusable(
            f"{parsed.smooths[0].text} is a smooth, and transforms={{{SMOOTH!r}: …}} has that name: rename it"
        )
    alone = {term.factors[0].variables[0] for term in parsed.terms if len(term.factors) == 1 and _is_plain_column(term)}
    alone |= {name for group in parsed.groups if group.intercept for name in group.factor.variables}
    numbers = {term.factors[0] for term in parsed.terms if len(term.factors) == 1}
    arguments = {smooth.argument: smooth for smooth in parsed.smooths if smooth.by is None}
    for smooth in parsed.smooths:
        if smooth.argument in numbers:
            raise unusable(
                f"{smooth.text} has the straight line of {smooth.argument.text!r} in it: take the term "
                f"{smooth.argument.formula_text} out"
            )
        if smooth.by is not None and smooth.by not in alone:
            raise unusable(
                f"{smooth.text} has curves about 0, and {smooth.by!r} has no effect of its own: add it, as in "
                f"{quote_name(smooth.by)} + {smooth.text}"
            )
        if smooth.by is not None and smooth.argument in arguments and _is_category(smooth, columns):
            raise unusable(f"{arguments[smooth.argument].text} is in the curves of {smooth.text}: take one of them out")


def _is_category(smooth: SmoothTerm, columns: Columns) -> bool:
    """Whether the smooth is by a category, so that each level has a curve of its own."""
    return smooth.coded or (smooth.by is not None and columns[smooth.by].kind in (CATEGORY, TRUTH))


def _is_plain_column(term: FormulaTerm) -> bool:
    """Whether a term is a column x or C(x)."""
    expression = term.factors[0].expression
    return expression is None or expression.category is not None


def _function_count(smooth: SmoothTerm, x: Array, where: str, unusable: ErrorForReason) -> int:
    """k: how many functions the smooth has, with constant and line. Refuses a k that the values of x do not allow."""
    name, count = smooth.argument.text, len(np.unique(x))
    if count == 1:
        raise unusable(
            f"{name!r} in {smooth.text} is {x[0]:g} in every row{where and ' of ' + where[16:]}: leave it out"
        )
    if not np.isfinite(np.ptp(x)):
        raise unusable(f"{name!r} in {smooth.text} has numbers too large to take differences of: change its unit")
    if count < FEWEST:
        raise unusable(
            f"{smooth.text} needs at least {FEWEST} different values of {name!r}, and there are {count}{where}: take "
            f"{smooth.argument.formula_text} or C({smooth.argument.formula_text}) instead"
        )
    if smooth.k is None:
        return min(USUAL, count)
    if smooth.k < FEWEST:
        raise unusable(f"k of {smooth.text} is at least {FEWEST}, as it counts the constant and the straight line")
    if smooth.k > min(count, _MOST):
        why = f"{name!r} has {count} different values{where}" if count < _MOST else "a smooth has no more functions"
        raise unusable(f"k of {smooth.text} is at most {min(count, _MOST)}, as {why}")
    return smooth.k


def smooths_to_array(smooths: Sequence[SmoothDesign]) -> Indices | None:
    """Smooths as an array of integers (`json_to_array`); None if there are none."""
    if not smooths:
        return None
    return json_to_array(
        [[smooth.text, terms_to_json((smooth.line,)), *smooth.spline.to_numbers()] for smooth in smooths]
    )


def smooths_from_array(numbers: Indices | None, transforms: Transforms | None = None) -> tuple[SmoothDesign, ...]:
    """The inverse of `smooths_to_array`. Anything else is a ValueError. transforms: the user's functions that the
    formulas call.
    """
    if numbers is None:
        return ()
    try:
        return tuple(_smooth_from_json(*described, transforms=transforms) for described in json_from_array(numbers))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise requirement("smooth_terms", "those of a design", f"{np.shape(numbers)}", str(error)) from error


def _smooth_from_json(text: str, line: str, *stored: Any, transforms: Transforms | None) -> SmoothDesign:
    (read,) = terms_from_json(line, transforms)
    if type(text) is not str or not isinstance(read, Line):
        raise TypeError("a smooth without a line")
    return SmoothDesign(text, read, Spline.from_numbers(list(stored)))
