"""From a formula and a table to rows, a response and a design."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError
from svrhmc.tables import making
from svrhmc.tables.columns import CATEGORY, Column, Columns, columns_of, names_of
from svrhmc.tables.design import Design, told
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


def designed(formula: str, table: Any, extra: Iterable[str] = (), drop: bool = False) -> Designed:
    """The rows of a regression.

    extra: further columns that are wanted, such as weights. drop: whether rows with missing values are left out; else
    they are refused, with their numbers by column.

    >>> made = designed("y ~ age + plan", {"y": [1, 0, 1], "age": [31, 48, 50], "plan": ["a", "b", "a"]})
    >>> made.design.names, made.design.baselines
    (('age', 'plan[b]'), ('plan[a]',))
    """
    available = names_of(table)
    response, terms, intercept = making.parsed(formula, available)
    of_response = [response] if response in available else making.variables_in(response, available) or [response]
    needed = {term: making.variables_in(term, available) for term in terms}
    wanted = [*of_response, *(name for names in needed.values() for name in names), *extra]
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
    made = _terms(terms, needed, columns, intercept)
    design = Design(formula, response, to_text(made), intercept)
    X = design.matrix(columns)
    y = columns[response] if response in columns.by_name else _expression(response, columns)
    if "Intercept" in design.variables:
        raise DataError("column 'Intercept' has the name of another parameter of the model: rename the column.")
    if response in design.variables:
        raise DataError(f"the response {response!r} stands among its own predictors: take it out of the formula.")
    return Designed(X, y, {name: columns[name] for name in extra}, design, kept, gaps, columns)


def _terms(terms: list[str], needed: dict[str, list[str]], columns: Columns, intercept: bool) -> tuple[Term, ...]:
    """Numbers and categories by ourselves, the rest by formulaic: all of it where categories interact."""
    simple = {term: _simple(term, columns, needed[term]) for term in terms}
    odd = [term for term in terms if simple[term] is None]
    if any(_has_category(needed[term], term, columns) for term in odd):
        return (
            _made(" + ".join(terms), sorted({name for names in needed.values() for name in names}), columns, intercept),
        )
    found: list[Term] = []
    full = not intercept
    for term in terms:
        one = simple[term]
        if one is None:
            continue
        if one.kind == "category":
            if len(one.levels) < 2 and not full:
                only = one.levels[0]
                raise DataError(
                    f"column {one.variables[0]!r} has one level only, {only!r}: leave it out of the formula."
                )
            one, full = replace(one, full=full), False
        found.append(one)
    if odd:
        found.append(_made(" + ".join(odd), sorted({name for t in odd for name in needed[t]}), columns, None))
    return tuple(found)


def _simple(term: str, columns: Columns, names: list[str]) -> Any:
    """A number or a category; None for all else."""
    if len(names) != 1:
        return None
    name = names[0]
    column = columns[name]
    bare = re.escape(name)
    if re.fullmatch(rf"C\(\s*`?{bare}`?\s*\)", term):
        levels = column.levels or tuple(sorted(set(column.values.tolist())))
        return Category(name, tuple(levels))
    if term != name and term != f"`{name}`":
        return None
    return Category(name, tuple(column.levels)) if column.kind == CATEGORY else Number(name)


def _has_category(names: list[str], term: str, columns: Columns) -> bool:
    return "C(" in term or any(columns[name].kind == CATEGORY for name in names)


def _made(text: str, names: list[str], columns: Columns, intercept: bool | None) -> Made:
    """By formulaic, without the column of the intercept, which the design has by itself."""
    whole = f"{'1' if intercept else '0'} + {text}"
    some = Columns({name: columns[name] for name in names}, columns.n)
    _, made, spec = making.made(whole, some)
    kinds, levels = [], []
    for name in names:
        column = columns[name]
        known = column.levels
        if not known and re.search(rf"C\(\s*`?{re.escape(name)}`?\s*[,)]", text):
            known = tuple(sorted(set(column.values.tolist())))
        kinds.append(column.kind)
        levels.append(tuple(known))
    try:
        state = making.remembered(spec)
    except (TypeError, ValueError, AttributeError):
        raise DataError(
            f"the formula's {text!r} remembers more of the table than numbers, and cannot be used."
        ) from None
    return Made(whole, tuple(names), tuple(kinds), tuple(levels), tuple(made), state)


def _expression(response: str, columns: Columns) -> Column:
    """A response that is computed, such as log(price)."""
    values, made, _ = making.made(f"0 + {response}", columns)
    if values.shape[1] != 1:
        raise DataError(f"the response {response!r} must be one column; it makes {len(made)}.")
    y = np.asarray(values[:, 0], np.float64)
    if not np.isfinite(y).all():
        raise DataError(f"the response {response!r} must be finite; it is {y[~np.isfinite(y)][0]} in some rows.")
    return Column("number", y, None)
