"""Terms of a design: what each makes of the columns of a table.

A number is a column of its own, a truth value one of 0 and 1, and a category one for each level but the first (its
*baseline*) or, where the design has no intercept, one for every level. All else (transformations, splines,
interactions) is an `Encoded` term: its factors are computed by `svrhmc.tables.expressions`, and formulaic, which sees
their values only and evaluates nothing, codes categories and multiplies factors so that columns stay independent.

A term is plain data, so that a design can be kept in a file and applied to new tables: what a transformation learned of
the table it was made with (the knots of a spline, the centre of `center`, the levels of a category) is kept as JSON.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Reals, Values
from svrhmc.core.cells import thousands_advice
from svrhmc.core.errors import DataError, missing_package, requirement
from svrhmc.core.machine import free_memory
from svrhmc.families.labels import names_rows
from svrhmc.tables import formula
from svrhmc.tables.columns import CATEGORY, KINDS, Column, Columns, Level
from svrhmc.tables.expressions import Rows, State, Value, require_state, unwrapped
from svrhmc.tables.formula import Factor
from svrhmc.tables.portable import Portable, column, level, portable, product, total

Transforms = Mapping[str, Callable[..., object]]
_INTERCEPT = "Intercept"  # formulaic's name for a column that the design has by itself
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m|[⧛⧚]")
_COPIES = 3  # of a design while it is made


class Term(ABC):
    """Some columns of a design."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """The columns of the table that it needs."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of the columns it makes."""

    @abstractmethod
    def matrix(self, columns: Columns) -> Values:
        """(n, columns)."""

    @abstractmethod
    def require_sound(self) -> None:
        """Raise an error where it cannot be used; asked when it is read from a file."""

    @abstractmethod
    def portable(self) -> list[Portable]:
        """Its columns as expressions for other languages (`svrhmc.tables.portable`); refused where there are none."""

    def active_columns(self, columns: Columns) -> npt.NDArray[np.int64] | None:
        """For each row the one column that is 1 in it (−1: none); None where a row has numbers."""
        return None

    @property
    def baseline(self) -> str:
        """The level that has no column, where there is one."""
        return ""

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """The levels of those of its variables that are categories, the baseline first."""
        return {}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """For each of its names the term that it belongs to, and the level or the number within that ("": all of it).

        >>> Category("plan", ("basic", "pro")).parts, Number("age").parts
        ((('plan', 'pro'),), (('age', ''),))
        """
        return tuple((name, "") for name in self.names)

    @property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """For each of its names those of the columns whose product it is."""
        return tuple((name,) for name in self.names)

    @property
    def variables_by_term(self) -> tuple[tuple[str, ...], ...]:
        """For each term of the formula that it stands for, the columns of the table that this needs."""
        return (self.variables,)


@dataclass(frozen=True)
class Number(Term):
    """A column of numbers, or of truth values as 0 and 1."""

    kind = "number"
    variable: str

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.variable,)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.variable,)

    def require_sound(self) -> None:
        """A name is enough."""

    def portable(self) -> list[Portable]:
        """The column of the table, as it is."""
        return [column(self.variable)]

    def matrix(self, columns: Columns) -> Values:
        """As they are; a text where numbers were is refused."""
        column = columns[self.variable]
        if column.kind == CATEGORY:
            raise DataError(f"column {self.variable!r} must hold numbers, as in the table that was fitted; got texts.")
        return np.asarray(column.values)[:, None]


@dataclass(frozen=True)
class Category(Term):
    """One column for each level but the first; with `full`, for every level."""

    kind = "category"
    variable: str
    levels: tuple[Any, ...]
    full: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.variable,)

    @property
    def names(self) -> tuple[str, ...]:
        """variable[level]."""
        return tuple(f"{self.variable}[{level_name(level)}]" for level in self._coded_levels)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        return {self.variable: self.levels}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The variable, and its levels."""
        return tuple((self.variable, level_name(level)) for level in self._coded_levels)

    @property
    def baseline(self) -> str:
        return "" if self.full else f"{self.variable}[{level_name(self.levels[0])}]"

    @property
    def _coded_levels(self) -> tuple[Level, ...]:
        return self.levels if self.full else self.levels[1:]

    def require_sound(self) -> None:
        """Refuse levels that are none."""
        require_levels(self.levels)
        if not self.levels:
            raise ValueError("a category without levels")

    def portable(self) -> list[Portable]:
        """1 in the rows of a level."""
        return [level(self.variable, one) for one in self._coded_levels]

    def active_columns(self, columns: Columns) -> npt.NDArray[np.int64]:
        """The number of the level; a level that the design does not know is refused."""
        column = columns[self.variable]
        codes = column.codes(self.levels)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise UnknownLevelError(self.variable, column.values[row], row, self.levels)
        return codes if self.full else codes - 1

    def matrix(self, columns: Columns) -> Array:
        """0 and 1."""
        places = self.active_columns(columns)
        return np.asarray(places[:, None] == np.arange(len(self._coded_levels)), np.float64)


class UnknownLevelError(DataError):
    """A row has a level that a design does not know. variable, row, level: which."""

    def __init__(self, variable: str, level: Level, row: int, levels: Sequence[Level]) -> None:
        self.variable, self.level, self.row, self.levels = variable, level, row, levels
        fitted_levels = ", ".join(repr(known) for known in levels[:8]) + (", …" if len(levels) > 8 else "")
        super().__init__(
            f"column {variable!r} has {level!r} in row {row}, which was not among the levels that the model was "
            f"fitted with ({fitted_levels}), so nothing is known about it: predict() has new_levels='nan' and "
            "'average' for such rows."
        )

    def at(self, row: int) -> UnknownLevelError:
        """The same for another number of the row."""
        return UnknownLevelError(self.variable, self.level, row, self.levels)


@dataclass(frozen=True)
class Encoded(Term):
    """A part of a formula that formulaic codes; `state` is what its transformations remember, as JSON."""

    kind = "made"
    text: str
    needs: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    made: tuple[str, ...]
    state: str
    transforms: ClassVar[Transforms] = {}  # set by `terms_from_json`: no file holds functions

    @property
    def variables(self) -> tuple[str, ...]:
        """All that stand in it."""
        return self.needs

    @property
    def names(self) -> tuple[str, ...]:
        """As formulaic calls them, without the marks that only it needs."""
        return tuple(name for name in self.made if name != _INTERCEPT)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """Those of the variables that have levels."""
        return {name: levels for name, levels in zip(self.needs, self.levels, strict=True) if levels}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """plan[pro]:age belongs to plan:age, with the level pro."""
        return tuple(_split_levels(name) for name in self.names)

    @property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """plan[pro]:age is the product of plan[pro] and age."""
        return tuple(_split_product(name) for name in self.names)

    @property
    def variables_by_term(self) -> tuple[tuple[str, ...], ...]:
        """Of each term that formulaic codes."""
        return tuple(term.variables for term in self._parsed_terms[0])

    @property
    def baseline(self) -> str:
        """Of each category the one level that has no column, where all the others have one."""
        without = {name: levels_without_column(name, levels, self.names) for name, levels in self.choices.items()}
        return ", ".join(f"{name}[{level_name(levels[0])}]" for name, levels in without.items() if len(levels) == 1)

    def matrix(self, columns: Columns) -> Array:
        """By formulaic; levels that it does not know are refused."""
        for name, kind, levels in zip(self.needs, self.kinds, self.levels, strict=True):
            if kind == CATEGORY:
                Category(name, levels).active_columns(columns)
            elif columns[name].kind == CATEGORY:
                raise DataError(f"column {name!r} must hold numbers, as in the table that was fitted; got texts.")
        terms, intercept = self._parsed_terms
        fitted = dict(zip(self.needs, self.levels, strict=True))
        X, names = encode_terms(
            terms, intercept, rows_with_levels(columns, self.transforms, json.loads(self.state), fitted)
        )
        if tuple(names) != self.made:
            raise DataError(f"the formula's {self.text[:80]!r} makes other columns of these rows than of those fitted.")
        return X[:, [name != _INTERCEPT for name in names]]

    def require_sound(self) -> None:
        """Refuse a text that is no formula, and a state that is more than numbers and texts."""
        terms, _ = self._parsed_terms
        unknown = {name for term in terms for name in term.variables} - set(self.needs)
        if unknown:
            raise ValueError(f"a term of columns that it does not name: {sorted(unknown)[0]!r}")
        state = json.loads(self.state)
        if not isinstance(state, dict) or not all(isinstance(value, dict) for value in state.values()):
            raise TypeError("a state that is no dictionary")
        require_state(state)
        if not len(self.needs) == len(self.kinds) == len(self.levels) or not set(self.kinds) <= set(KINDS):
            raise ValueError("kinds and levels that do not fit its columns")
        for levels in self.levels:
            require_levels(levels)

    def portable(self) -> list[Portable]:
        """Of each column, Σ over the levels of its categories and the columns of its numbers of their product times
        what formulaic makes of them: a column is linear in each factor, so that its coefficients are what it is where
        every factor has one level, or 1 in one of its columns and 0 in the others.
        """
        terms, intercept = self._parsed_terms
        parts: list[tuple[int, Portable]] = []
        for term in terms:
            parts.extend(self._portable_columns(term, terms, intercept))
        by_place = dict(parts)
        return [by_place[j] for j, name in enumerate(self.made) if name != _INTERCEPT]

    def _portable_columns(
        self, term: formula.Term, terms: Sequence[formula.Term], intercept: bool
    ) -> Iterator[tuple[int, Portable]]:
        """The places of the columns of one term, and their expressions."""
        state, fitted = json.loads(self.state), dict(zip(self.needs, self.levels, strict=True))
        for factor in {factor for one in terms for factor in one.factors}:  # numbers that C codes by other contrasts
            name = None if factor.expression is None else factor.expression.coded_column
            if name is not None and not fitted[name]:
                fitted[name] = tuple(state[factor.text]["levels"])
        texts = {name for name, kind in zip(self.needs, self.kinds, strict=True) if kind == CATEGORY}
        coded = {factor: one for factor in term.factors if (one := self._coded_column(factor, texts))}
        one_row = self._rows_at_levels({name: fitted[name][:1] for name in fitted if fitted[name]}, 1, state, fitted)
        numbers = {
            factor: [column(factor.text)] if factor.expression is None else portable(factor.expression, one_row)
            for factor in term.factors
            if factor not in coded
        }
        choices = [
            [level(coded[factor], one) for one in fitted[coded[factor]]] if factor in coded else numbers[factor]
            for factor in term.factors
        ]
        grid = np.indices([len(some) for some in choices]).reshape(len(choices), -1)
        n = grid.shape[1]
        at = {
            coded[factor]: tuple(fitted[coded[factor]][k] for k in grid[i])
            for i, factor in enumerate(term.factors)
            if factor in coded
        }
        rest = {name: (fitted[name][0],) * n for name in fitted if fitted[name] and name not in at}
        rows = self._rows_at_levels({**at, **rest}, n, state, fitted)
        factors = dict.fromkeys(factor for one in terms for factor in one.factors)
        with formulaic_errors(self.text):
            values = {factor: _factor_values(factor, rows) for factor in factors}
            for i, factor in enumerate(term.factors):
                if factor not in coded:
                    values[factor] = _unit_values(values[factor], grid[i], len(choices[i]))
            matrix = _formulaic_matrix(terms, intercept, values, n)
        X = np.asarray(matrix.__wrapped__, np.float64)
        for place in matrix.model_spec.term_indices[_formulaic_term(term)]:
            yield (
                int(place),
                total([
                    product([float(X[row, place]), *(choices[i][k] for i, k in enumerate(grid[:, row]))])
                    for row in np.flatnonzero(X[:, place])
                ]),
            )  # fmt: skip

    def _coded_column(self, factor: Factor, texts: set[str]) -> str | None:
        """The column whose levels a factor codes; None of numbers."""
        if factor.expression is None:
            return factor.text if factor.text in texts else None
        if not factor.expression.makes_category:
            return None
        variables = factor.expression.variables
        if len(variables) != 1 or factor.expression.coded_column != variables[0]:
            raise DataError(
                f"the formula's {factor.text[:80]!r} cannot be exported: it codes levels that are computed. Make them "
                "a column of the table."
            )
        return variables[0]

    def _rows_at_levels(
        self, values: Mapping[str, Sequence[Any]], n: int, state: State, fitted: Mapping[str, tuple[Level, ...]]
    ) -> Rows:
        """Rows with these levels, and no numbers."""
        kinds = dict(zip(self.needs, self.kinds, strict=True))
        some = {
            name: Column(
                kinds[name],
                np.array(values[name], object if kinds[name] == CATEGORY else None)
                if name in values
                else np.full(n, np.nan),
                None,
                fitted[name],
            )
            for name in self.needs
        }
        return rows_with_levels(Columns(some, n), self.transforms, state, fitted)

    @cached_property
    def _parsed_terms(self) -> tuple[tuple[formula.Term, ...], bool]:
        return formula.parse_terms(self.text)


@dataclass(frozen=True)
class Line(Term):
    """The straight line of a smooth: x − centre, times what the smooth is multiplied by.

    smooth: its name, such as "s(age):plan[pro]". argument: the term that makes x, as JSON. by: the column that
    multiplies it; "": none. levels: of that column, where it is a category; then the line is that of the rows of one of
    them, by its number `level`.
    """

    kind = "line"
    smooth: str
    argument: str
    centre: float
    by: str = ""
    levels: tuple[Any, ...] = ()
    level: int = -1
    transforms: ClassVar[Transforms] = {}

    @property
    def variables(self) -> tuple[str, ...]:
        """Those of x, and the one that multiplies it."""
        return tuple(dict.fromkeys([*self._argument_term.variables, *([self.by] if self.by else [])]))

    @property
    def names(self) -> tuple[str, ...]:
        """s(age)[line]."""
        return (f"{self.smooth}[line]",)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """The levels of the category that multiplies it."""
        return {self.by: self.levels} if self.levels else {}

    @property
    def argument_name(self) -> str:
        """What it is a function of: a column, or an expression."""
        return self._argument_term.names[0]

    def matrix(self, columns: Columns) -> Array:
        """(n, 1)."""
        factor = self.multiplier(columns)
        away = self.argument_values(columns) - self.centre
        return np.asarray(away if factor is None else factor * away)[:, None]

    def argument_values(self, columns: Columns) -> Array:
        """What it is a function of, by row."""
        return np.asarray(self._argument_term.matrix(columns), np.float64)[:, 0]

    def multiplier(self, columns: Columns) -> Array | None:
        """What it is multiplied by: 1 in the rows of its level and 0 in others, or a number; None where nothing is."""
        if not self.by:
            return None
        if not self.levels:
            return np.asarray(Number(self.by).matrix(columns), np.float64)[:, 0]
        return np.asarray(Category(self.by, self.levels, True).active_columns(columns) == self.level, np.float64)

    def portable(self) -> list[Portable]:
        """x − centre, times its factor."""
        return [product([*self.portable_multipliers(), ["-", self.portable_argument(), self.centre]])]

    def portable_argument(self) -> Portable:
        """The expression that it is a function of."""
        return self._argument_term.portable()[0]

    def portable_multipliers(self) -> list[Portable]:
        """What it is multiplied by, if anything."""
        if not self.by:
            return []
        return [level(self.by, self.levels[self.level]) if self.levels else column(self.by)]

    def require_sound(self) -> None:
        """Refuse an argument of other than one column, and a level that there is not."""
        if len(self._argument_term.names) != 1 or type(self.level) is not int or not math.isfinite(self.centre):
            raise ValueError("a line of no number")
        require_levels(self.levels)
        if not -1 <= self.level < max(len(self.levels), 0) or bool(self.levels) != (self.level >= 0):
            raise ValueError("a line of a level that there is not")

    @cached_property
    def _argument_term(self) -> Term:
        (term,) = terms_from_json(self.argument, self.transforms)
        return term


_KINDS: dict[str, type[Any]] = {kind.kind: kind for kind in (Number, Category, Encoded, Line)}


def terms_to_json(terms: tuple[Term, ...]) -> str:
    """Terms as a text in JSON, as a design keeps them."""
    return json.dumps([{"kind": term.kind, **asdict(term)} for term in terms])  # type: ignore[call-overload]


def terms_from_json(text: str, transforms: Transforms | None = None) -> tuple[Term, ...]:
    """What `terms_to_json` wrote; anything else is a ValueError. transforms: functions that its formulas call."""
    try:
        terms = tuple(
            _KINDS[fields.pop("kind")](**{key: _lists_to_tuples(value) for key, value in fields.items()})
            for fields in json.loads(text)
        )
        for term in terms:
            if transforms and isinstance(term, Encoded | Line):
                object.__setattr__(term, "transforms", transforms)
            if not all(isinstance(name, str) for name in (*term.variables, *term.names)):
                raise TypeError("a name that is no text")
            term.require_sound()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise requirement("terms", "those of a design", text[:60], str(error)) from error
    return terms


def levels_without_column(category: str, levels: Sequence[Level], names: Sequence[str]) -> list[Level]:
    """Those of which no column is named: the baseline, where it is one.

    >>> levels_without_column("plan", ["basic", "pro"], ["age", "plan[pro]"])
    ['basic']
    """
    return [
        level
        for level in levels
        if f"{category}[{level_name(level)}]" not in names and f"{category}[{level}]" not in names
    ]


def level_name(level: Level) -> str:
    """A level as names have it."""
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level)


def require_few_levels(name: str, levels: int, rows: int, what: str = "levels", some: Sequence[Level] = ()) -> None:
    """Refuse a category that has fewer than two rows for a level: it names rows, and tells nothing about others.

    some: of its levels, which may be numbers that were read as texts.
    """
    if not names_rows(levels, rows):
        return
    has = f"{name} has {levels:,} different {what} in {rows:,} rows"
    if remedy := thousands_advice(some):
        raise DataError(f"{has}, {remedy}.")
    raise DataError(
        f"{has}, and would have a coefficient for each of them: leave it out of the formula where it names rows, put "
        "rare levels together where it is a category, or take it as a number."
    )


def require_memory_for_design(columns: int, rows: int, more: float = 0.0) -> None:
    """Refuse a dense design, and so many bytes more, for which there is no memory."""
    needed, available = 8.0 * rows * columns * _COPIES + more, free_memory()
    if needed > available:
        raise DataError(
            f"the formula makes {columns:,} columns of {rows:,} rows, which take about {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are free: take fewer terms, smaller bases, or a part of the rows."
        )


def require_finite(names: Sequence[str], some: Reals, begin: int) -> None:
    """Refuse what a transformation, such as the log of 0, does not make a number of. begin: the first of these rows."""
    bad = ~np.isfinite(some)
    if bad.any():
        row, j = (int(place) for place in np.unravel_index(int(np.argmax(bad)), bad.shape))
        raise DataError(
            f"the formula's {names[j]!r} must be finite; it is {some[row, j]} in row {begin + row} of those that are "
            "used."
        )


def rows_with_levels(
    columns: Columns, transforms: Transforms, state: State, levels: Mapping[str, tuple[Level, ...]]
) -> Rows:
    """The columns that have levels here ((): numbers), for what was learned of another table."""
    some = {
        name: Column(columns[name].kind, columns[name].values, None, levels[name] or columns[name].levels)
        for name in levels
    }
    return Rows(Columns(some, columns.n).series(), columns.n, transforms, state, levels)


def encode_terms(
    terms: Sequence[formula.Term], intercept: bool, rows: Rows, fitted: int = 0
) -> tuple[Array, list[str]]:
    """The columns of some terms, and their names, the intercept among them. fitted: the rows of the table that is
    fitted; 0 for new rows.
    """
    factors = dict.fromkeys(factor for term in terms for factor in term.factors)
    text = " + ".join(term.formula_text for term in terms)
    with formulaic_errors(text):
        values = {factor: _factor_values(factor, rows) for factor in factors}
    _require_few_columns(terms, values, rows.n, fitted)
    with formulaic_errors(text):
        return _encode(terms, intercept, values, rows.n)


def compute_factor(factor: Factor, rows: Rows) -> Array:
    """The numbers of one factor: (n, columns)."""
    with formulaic_errors(factor.text):
        return _encode([formula.Term((factor,))], False, {factor: _factor_values(factor, rows)}, rows.n)[0]


def state_to_json(state: State, text: str) -> str:
    """What transformations learned, as JSON; refused where that is more than numbers and texts."""
    try:
        return json.dumps(
            state, default=lambda value: value.tolist() if isinstance(value, np.ndarray) else value.item()
        )
    except (TypeError, ValueError, AttributeError):
        raise DataError(
            f"the formula's {text[:120]!r} learns more of the table than numbers and texts, and cannot be used."
        ) from None


def _factor_values(factor: Factor, rows: Rows) -> Value:
    if factor.expression is None:
        return rows.columns[factor.text]
    values = factor.expression.compute(rows)
    if not hasattr(values, "__formulaic_metadata__") and getattr(values, "dtype", np.dtype(float)).kind == "O":
        raise DataError(f"the formula's {factor.text!r} holds texts: write C({factor.text}) for a category.")
    return values


def _encode(
    terms: Sequence[formula.Term], intercept: bool, values: dict[Factor, Value], n: int
) -> tuple[Array, list[str]]:
    """The columns, and their names."""
    matrix = _formulaic_matrix(terms, intercept, values, n)
    names = [_clean_name(str(name)) for name in matrix.model_spec.column_names]
    return np.asarray(matrix.__wrapped__, np.float64), names


def _formulaic_matrix(terms: Sequence[formula.Term], intercept: bool, values: dict[Factor, Value], n: int) -> Any:
    """By formulaic, from values that it looks up by the texts of their factors."""
    try:
        import formulaic
        from formulaic.parser import types
    except ModuleNotFoundError:
        raise missing_package("formulaic", "formula", "a formula") from None
    import pandas

    first = [types.Term([types.Factor("1", eval_method="literal")])] if intercept else []
    return formulaic.Formula(first + [_formulaic_term(term) for term in terms]).get_model_matrix(
        pandas.DataFrame(index=range(n)),
        context={factor.text: value for factor, value in values.items()},
        na_action="ignore",
        output="numpy",
    )


def _formulaic_term(term: formula.Term) -> Any:
    from formulaic.parser import types

    return types.Term([types.Factor(one.text, eval_method="lookup") for one in term.factors])


def _unit_values(value: Value, chosen: npt.NDArray[np.int64], width: int) -> Value:
    """What formulaic would be given of a factor whose columns are 0 but for one in each row, which is 1."""
    inner, metadata = unwrapped(value), getattr(value, "__formulaic_metadata__", None)
    units: Value = np.asarray(chosen[:, None] == np.arange(width), np.float64)
    if isinstance(inner, dict):
        keys = [key for key in inner if not str(key).startswith("__")]
        units = {**inner, **{key: units[:, j] for j, key in enumerate(keys)}}
    elif np.ndim(inner) < 2:
        units = units[:, 0]
    if metadata is None:
        return units
    from formulaic.materializers.types import FactorValues

    return FactorValues(units, metadata=metadata)


def _require_few_columns(terms: Sequence[formula.Term], values: dict[Factor, Value], n: int, fitted: int) -> None:
    """Refuse terms that would have too many columns for the memory, or for the rows fitted, before any is made.

    With n rows, kⱼ columns of term j and lᵢ levels of category i that is Σ 8nkⱼ bytes, a few times, and Σ 8lᵢ² for the
    codes of levels.
    """
    widths = {factor: _factor_width(value) for factor, value in values.items()}
    total = 0
    for term in terms:
        coded = math.prod(width for width, category in (widths[factor] for factor in term.factors) if category)
        if fitted and coded > 1:
            what = "levels" if len(term.factors) == 1 else "combinations of levels"
            require_few_levels(
                f"the formula's {':'.join(factor.text for factor in term.factors)!r}", coded, fitted, what
            )
        total += math.prod(widths[factor][0] for factor in term.factors)
    codes = sum(width**2 for width, category in widths.values() if category)
    require_memory_for_design(total, n, 8.0 * codes)


def _factor_width(value: Value) -> tuple[int, bool]:
    """How many columns a factor has, and whether these are levels."""
    import pandas

    metadata = getattr(value, "__formulaic_metadata__", None)
    inner = unwrapped(value)
    if metadata is not None and getattr(metadata.kind, "value", metadata.kind) == "categorical":
        return int(pandas.Series(np.asarray(inner)).nunique()), True
    if isinstance(inner, dict):
        return sum(not str(key).startswith("__") for key in inner), False
    if isinstance(getattr(inner, "dtype", None), pandas.CategoricalDtype):
        return len(inner.cat.categories), True
    return (int(np.shape(inner)[1]) if np.ndim(inner) > 1 else 1), False


@contextmanager
def formulaic_errors(text: str) -> Iterator[None]:
    """Formulaic's errors in one line, of our own kind."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DataError:
        raise
    except Exception as error:
        why = " ".join(_TERMINAL_CODES.sub("", str(error)).split())
        raise DataError(f"the formula {text[:120]!r} cannot be used: {why or type(error).__name__}") from error


def require_levels(levels: object) -> None:
    """Refuse what is not a list of different texts, numbers or truth values."""
    if not isinstance(levels, tuple) or not all(isinstance(level, str | int | float) for level in levels):
        raise TypeError("levels that are no texts or numbers")
    if len(set(levels)) < len(levels):
        raise ValueError("a level that stands twice")


def _clean_name(name: str) -> str:
    """Without the marks that only formulaic needs: C(plan)[T.basic] is plan[basic]."""
    return re.sub(r"C\(([^(),]+)(?:,[^()]*(?:\([^()]*\))?[^()]*)?\)", r"\1", name).replace("[T.", "[")


def _split_levels(name: str) -> tuple[str, str]:
    """A name of formulaic's without what stands in square brackets, and that."""
    bare, levels, depth = "", [""], 0
    for sign in name:
        if sign == "[":
            depth += 1
            levels.append("")
        if depth:
            levels[-1] += sign
        else:
            bare += sign
        if sign == "]":
            depth -= 1
    return bare, ", ".join(level[1:-1] for level in levels[1:])


def _split_product(name: str) -> tuple[str, ...]:
    """The factors of a product: what stands between colons that no bracket encloses."""
    pieces, depth = [""], 0
    for sign in name:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == ":" and not depth:
            pieces.append("")
        else:
            pieces[-1] += sign
    return tuple(piece.strip() for piece in pieces)


def _lists_to_tuples(value: Value) -> Value:
    return tuple(_lists_to_tuples(item) for item in value) if isinstance(value, list) else value
