"""From a formula and a table to rows, a response and a design."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError
from svrhmc.tables import grammar, making
from svrhmc.tables.columns import CATEGORY, Column, Columns, columns_of, names_of
from svrhmc.tables.design import Design, told
from svrhmc.tables.expressions import require_transforms
from svrhmc.tables.grammar import parsed
from svrhmc.tables.terms import Category, Made, Number, Term, to_text


@dataclass(frozen=True, eq=False)
class Designed:
    """Rows, the response and further columns that were asked for; the design; which rows of the table are in it; and
    the columns that all of it was made of.
    """

    X: Any
    y: Column
    extra: dict[str, Column]
    design: Design
    kept: npt.NDArray[np.bool_]
    gaps: dict[str, int]
    columns: Columns

    @property
    def dropped(self) -> int:
        """How many rows were left out."""
        return int((~self.kept).sum())


def designed(
    formula: str,
    table: Any,
    extra: Iterable[str] = (),
    drop: bool = False,
    transforms: Mapping[str, Callable[..., Any]] | None = None,
) -> Designed:
    """The rows of a regression.

    extra: further columns that are wanted, such as weights. drop: whether rows with missing values are left out; else
    they are refused, with their numbers by column. transforms: functions that the formula calls, by name, beside those
    that every formula has.

    >>> made = designed("y ~ age + plan", {"y": [1, 0, 1], "age": [31, 48, 50], "plan": ["a", "b", "a"]})
    >>> made.design.names, made.design.baselines
    (('age', 'plan[b]'), ('plan[a]',))
    """
    given = require_transforms(transforms)
    response, terms, intercept = parsed(formula, names_of(table))
    wanted = [*response.variables, *(name for term in terms for name in term.variables), *extra]
    columns = columns_of(table, dict.fromkeys(wanted))
    gaps, kept = columns.gaps(), np.ones(columns.n, bool)
    if gaps and not drop:
        raise DataError(
            f"the table has missing values in {told(gaps)}. Fill them, or leave these rows out: missing='drop' (in the "
            "shell --missing drop)."
        )
    if gaps:
        kept = columns.whole()
        if not kept.any():
            raise DataError(f"no row of the table is without missing values: {told(gaps)}.")
        columns = columns.kept(kept)
    made = _terms(terms, columns, intercept, given)
    design = Design(formula, response.text, to_text(made), intercept).with_transforms(given)
    X = design.matrix(columns)
    y = columns[response.text] if response.expression is None else _expression(response, columns, given)
    if "Intercept" in design.variables:
        raise DataError("column 'Intercept' has the name of another parameter of the model: rename the column.")
    if response.text in design.variables:
        raise DataError(f"the response {response.text!r} stands among its own predictors: take it out of the formula.")
    return Designed(X, y, {name: columns[name] for name in extra}, design, kept, gaps, columns)


def _terms(
    terms: Sequence[grammar.Term], columns: Columns, intercept: bool, transforms: making.Transforms
) -> tuple[Term, ...]:
    """Numbers and categories by ourselves, the rest by formulaic: all of it where categories interact."""
    simple = {term: _simple(term, columns) for term in terms}
    odd = [term for term in terms if simple[term] is None]
    if any(_has_category(term, columns) for term in odd):
        return (_made(terms, columns, intercept, transforms),)
    found: list[Term] = []
    full = not intercept
    for one in simple.values():
        if one is None:
            continue
        if one.kind == "category":
            making.require_few(f"column {one.variable!r}", len(one.levels), columns.n)
            if len(one.levels) < 2 and not full:
                only = one.levels[0]
                raise DataError(f"column {one.variable!r} has one level only, {only!r}: leave it out of the formula.")
            one, full = replace(one, full=full), False
        found.append(one)
    if odd:
        found.append(_made(odd, columns, False, transforms))
    return tuple(found)


def _simple(term: grammar.Term, columns: Columns) -> Any:
    """A number or a category; None for all else."""
    if len(term.factors) != 1:
        return None
    factor = term.factors[0]
    if factor.expression is None:
        column = columns[factor.text]
        return Category(factor.text, column.levels) if column.kind == CATEGORY else Number(factor.text)
    name = factor.expression.category
    if name is None:
        return None
    column = columns[name]
    return Category(name, column.levels or tuple(sorted(set(column.values.tolist()))))


def _has_category(term: grammar.Term, columns: Columns) -> bool:
    coded = any(factor.expression is not None and factor.expression.coded for factor in term.factors)
    return coded or any(columns[name].kind == CATEGORY for name in term.variables)


def _made(terms: Sequence[grammar.Term], columns: Columns, intercept: bool, transforms: making.Transforms) -> Made:
    """By formulaic, without the column of the intercept, which the design has by itself."""
    names = sorted({name for term in terms for name in term.variables})
    some = Columns({name: columns[name] for name in names}, columns.n)
    state: dict[str, Any] = {}
    _, made = making.made(terms, intercept, some, transforms, state)
    text = " + ".join(["1" if intercept else "0", *(term.written for term in terms)])
    try:
        remembered = making.remembered(state)
    except (TypeError, ValueError, AttributeError):
        raise DataError(
            f"the formula's {text[:120]!r} learns more of the table than numbers and texts, and cannot be used."
        ) from None
    coded = {factor.expression.category for term in terms for factor in term.factors if factor.expression is not None}
    kinds, levels = [], []
    for name in names:
        column = columns[name]
        known = column.levels
        if not known and name in coded:
            known = tuple(sorted(set(column.values.tolist())))
        kinds.append(column.kind)
        levels.append(tuple(known))
    return Made(text, tuple(names), tuple(kinds), tuple(levels), tuple(made), remembered)


def _expression(response: grammar.Factor, columns: Columns, transforms: making.Transforms) -> Column:
    """A response that is computed, such as log(price)."""
    values = making.computed(response, columns, transforms)
    if values.shape[1] != 1:
        raise DataError(f"the response {response.text!r} must be one column; it makes {values.shape[1]}.")
    y = values[:, 0]
    if not np.isfinite(y).all():
        raise DataError(f"the response {response.text!r} must be finite; it is {y[~np.isfinite(y)][0]} in some rows.")
    return Column("number", y, None)
