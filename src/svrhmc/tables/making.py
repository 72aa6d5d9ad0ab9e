"""Columns of a design from the terms of a formula: factors are computed by `svrhmc.tables.expressions`, and formulaic,
which sees their values only and evaluates nothing, codes categories and multiplies factors so that columns stay
independent.

What a transformation learned of the table it was made with (the knots of a spline, the centre of `center`, the levels
of a category) is kept as JSON.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, missing
from svrhmc.core.memory import free_memory
from svrhmc.families.labels import names_rows
from svrhmc.tables.columns import Columns
from svrhmc.tables.grammar import Factor, Term

Transforms = Mapping[str, Callable[..., Any]]
_MARK = re.compile(r"\x1b\[[0-9;]*m|[⧛⧚]")
_COPIES = 3  # of a design while it is made


def require_few(name: str, levels: int, rows: int, what: str = "levels") -> None:
    """Refuse a category that has fewer than two rows for a level: it names rows, and tells nothing about others."""
    if names_rows(levels, rows):
        raise DataError(
            f"{name} has {levels:,} different {what} in {rows:,} rows, and would have a coefficient for each of them: "
            "leave it out of the formula where it names rows, put rare levels together where it is a category, or take "
            "it as a number."
        )


def require_memory(columns: int, rows: int, more: float = 0.0) -> None:
    """Refuse a dense design, and so many bytes more, for which there is no memory."""
    needed, there = 8.0 * rows * columns * _COPIES + more, free_memory()
    if needed > there:
        raise DataError(
            f"the formula makes {columns:,} columns of {rows:,} rows, which take about {needed / 1e9:.3g} GB, and "
            f"{there / 1e9:.3g} GB are free: take fewer terms, smaller bases, or a part of the rows."
        )


def made(
    terms: Sequence[Term],
    intercept: bool,
    columns: Columns,
    transforms: Transforms,
    state: dict[str, Any],
    levels: Mapping[str, tuple[Any, ...]] | None = None,
) -> tuple[Array, list[str]]:
    """The columns of some terms, and their names, the intercept among them.

    state, levels: as `Expression.compute` takes them.
    """
    factors = dict.fromkeys(factor for term in terms for factor in term.factors)
    text = " + ".join(term.written for term in terms)
    series = columns.series()
    with plainly(text):
        values = {factor: _values(factor, series, columns.n, transforms, state, levels) for factor in factors}
    _require_room(terms, values, columns.n, levels is None)
    with plainly(text):
        return _coded(terms, intercept, values, columns.n)


def computed(factor: Factor, columns: Columns, transforms: Transforms) -> Array:
    """The numbers of one factor: (n, columns)."""
    with plainly(factor.text):
        values = _values(factor, columns.series(), columns.n, transforms, {}, None)
        return _coded([Term((factor,))], False, {factor: values}, columns.n)[0]


def remembered(state: dict[str, Any]) -> str:
    """What transformations learned, as JSON; a TypeError where that is more than numbers and texts."""
    return json.dumps(state, default=_number)


def _values(
    factor: Factor,
    series: dict[str, Any],
    n: int,
    transforms: Transforms,
    state: dict[str, Any],
    levels: Mapping[str, Any] | None,
) -> Any:
    if factor.expression is None:
        return series[factor.text]
    found = factor.expression.compute(series, n, transforms, state, levels)
    if not hasattr(found, "__formulaic_metadata__") and getattr(found, "dtype", np.dtype(float)).kind == "O":
        raise DataError(f"the formula's {factor.text!r} holds texts: write C({factor.text}) for a category.")
    return found


def _coded(terms: Sequence[Term], intercept: bool, values: dict[Factor, Any], n: int) -> tuple[Array, list[str]]:
    """By formulaic, from values that it looks up by the texts of their factors."""
    try:
        import formulaic
        from formulaic.parser import types
    except ModuleNotFoundError:
        raise missing("formulaic", "formula", "a formula") from None
    import pandas

    first = [types.Term([types.Factor("1", eval_method="literal")])] if intercept else []
    others = [types.Term([types.Factor(each.text, eval_method="lookup") for each in term.factors]) for term in terms]
    found = formulaic.Formula(first + others).get_model_matrix(
        pandas.DataFrame(index=range(n)),
        context={factor.text: value for factor, value in values.items()},
        na_action="ignore",
        output="numpy",
    )
    names = [_pretty(str(name)) for name in found.model_spec.column_names]
    return np.asarray(found.__wrapped__, np.float64), names


def _require_room(terms: Sequence[Term], values: dict[Factor, Any], n: int, fitted: bool) -> None:
    """Refuse terms that would have too many columns for the memory, or for the rows fitted, before any is made.

    With n rows, kⱼ columns of term j and lᵢ levels of category i that is Σ 8nkⱼ bytes, a few times, and Σ 8lᵢ² for the
    codes of levels.
    """
    widths = {factor: _width(value) for factor, value in values.items()}
    total = 0
    for term in terms:
        coded = math.prod(width for width, category in (widths[factor] for factor in term.factors) if category)
        if fitted and coded > 1:
            what = "levels" if len(term.factors) == 1 else "combinations of levels"
            require_few(f"the formula's {':'.join(factor.text for factor in term.factors)!r}", coded, n, what)
        total += math.prod(widths[factor][0] for factor in term.factors)
    codes = sum(width**2 for width, category in widths.values() if category)
    require_memory(total, n, 8.0 * codes)


def _width(value: Any) -> tuple[int, bool]:
    """How many columns a factor has, and whether these are levels."""
    import pandas

    known = getattr(value, "__formulaic_metadata__", None)
    inner = getattr(value, "__wrapped__", value)
    if known is not None and getattr(known.kind, "value", known.kind) == "categorical":
        return int(pandas.Series(np.asarray(inner)).nunique()), True
    if isinstance(inner, dict):
        return sum(not str(key).startswith("__") for key in inner), False
    if isinstance(getattr(inner, "dtype", None), pandas.CategoricalDtype):
        return len(inner.cat.categories), True
    return (int(np.shape(inner)[1]) if np.ndim(inner) > 1 else 1), False


def _number(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value.item()


def _pretty(name: str) -> str:
    """Without the marks that only formulaic needs: C(plan)[T.basic] is plan[basic]."""
    return re.sub(r"C\(([^(),]+)(?:,[^()]*(?:\([^()]*\))?[^()]*)?\)", r"\1", name).replace("[T.", "[")


@contextmanager
def plainly(formula: str) -> Iterator[None]:
    """Formulaic's errors in one line, of our own kind."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except Exception as error:
        told = " ".join(_MARK.sub("", str(error)).split())
        raise DataError(f"the formula {formula[:120]!r} cannot be used: {told or type(error).__name__}") from error
