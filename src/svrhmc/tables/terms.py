"""Terms of a design: each makes some columns of the design matrix from the columns of a table.

A number is a column of its own, and a truth value is a column of 0 and 1. A category has a column for each level but
the first, its *baseline*; if the design has no intercept, it has one for every level. All else (transformations,
splines, interactions) is an `Encoded` term: `svrhmc.tables.expressions` computes its factors, and formulaic codes
categories and multiplies factors so that the columns stay independent. Formulaic sees values only, and evaluates
nothing.

A term is plain data, so that a design can be stored in a file and applied to new tables. What a transformation learned
from the table that was fitted (the knots of a spline, the centre of `center`, the levels of a category) is stored as
JSON.
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
from svrhmc.core.cells import is_number, thousands_advice
from svrhmc.core.errors import DataError, missing_package, requirement
from svrhmc.core.machine import free_memory
from svrhmc.families.labels import identifies_rows
from svrhmc.tables import formula
from svrhmc.tables.columns import CATEGORY, KINDS, Column, Columns, Level
from svrhmc.tables.expressions import Rows, State, Value, require_state, unwrapped, wrapped_columns
from svrhmc.tables.formula import Factor
from svrhmc.tables.portable import Portable, column, level, portable, product, total

Transforms = Mapping[str, Callable[..., object]]
_INTERCEPT = "Intercept"  # formulaic's name for a column that the design adds by itself
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*m|[⧛⧚]")
_COPIES = 3  # of a design matrix that are in memory while it is made
_MANY_NUMBERS = 12  # different ones among texts; fewer may well be steps of a scale, beside a word for none of them
_MOST_WORDS = 0.5  # the share of rows, as where a file is read (`svrhmc.tables.csv`), with words among numbers
_MOST_COMPARED = 10_000  # levels whose spelling is compared
_NAMED = 3  # words, or levels that are spelt alike, that a message names


class Term(ABC):
    """Some columns of a design matrix."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def variables(self) -> tuple[str, ...]:
        """The columns of the table that it needs."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of the columns that it makes."""

    @abstractmethod
    def matrix(self, columns: Columns) -> Values:
        """(n, columns): its columns at the rows of a table."""

    @abstractmethod
    def require_sound(self) -> None:
        """Raise an error if it cannot be used. Called when it is read from a file."""

    @abstractmethod
    def portable(self) -> list[Portable]:
        """Its columns as expressions for other languages (`svrhmc.tables.portable`). Refused if there are none."""

    def active_columns(self, columns: Columns) -> npt.NDArray[np.int64] | None:
        """For each row, the index of the only column that is 1 (−1: none is); None for terms that are not 0 and 1."""
        return None

    @property
    def baseline(self) -> str:
        """The name of the level that has no column; "" if there is none."""
        return ""

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """The levels of each of its variables that is a category, the baseline first."""
        return {}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """For each of its columns, the name of the term of the formula, and the level within it ("": the term itself).

        >>> Category("plan", ("basic", "pro")).parts, Number("age").parts
        ((('plan', 'pro'),), (('age', ''),))
        """
        return tuple((name, "") for name in self.names)

    @property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """For each of its columns, the names of the columns whose product it is."""
        return tuple((name,) for name in self.names)

    @property
    def variables_by_term(self) -> tuple[tuple[str, ...], ...]:
        """For each term of the formula that it stands for, the columns of the table that the term needs."""
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
        """Any name will do."""

    def portable(self) -> list[Portable]:
        """The column of the table, as it is."""
        return [column(self.variable)]

    def matrix(self, columns: Columns) -> Values:
        """The numbers, unchanged. Texts are refused."""
        column = columns[self.variable]
        if column.kind == CATEGORY:
            raise DataError(f"column {self.variable!r} must hold numbers, as in the table that was fitted; got texts.")
        return np.asarray(column.values)[:, None]


@dataclass(frozen=True)
class Category(Term):
    """A column of 0 and 1 for each level but the first; with `full`, for every level."""

    kind = "category"
    variable: str
    levels: tuple[Any, ...]
    full: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        return (self.variable,)

    @property
    def names(self) -> tuple[str, ...]:
        """Such as plan[pro]."""
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
        """Raise an error if its levels cannot be used."""
        require_levels(self.levels)
        if not self.levels:
            raise ValueError("a category without levels")

    def portable(self) -> list[Portable]:
        """For each level with a column: 1 in its rows, and 0 in the others."""
        return [level(self.variable, one) for one in self._coded_levels]

    def active_columns(self, columns: Columns) -> npt.NDArray[np.int64]:
        """The index of the column of each row's level. A level that was not fitted is refused."""
        column = columns[self.variable]
        codes = column.codes(self.levels)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise UnknownLevelError(self.variable, column.values[row], row, self.levels)
        return codes if self.full else codes - 1

    def matrix(self, columns: Columns) -> Array:
        active = self.active_columns(columns)
        return np.asarray(active[:, None] == np.arange(len(self._coded_levels)), np.float64)


class UnknownLevelError(DataError):
    """A row has a level that was not fitted."""

    def __init__(self, variable: str, level: Level, row: int, levels: Sequence[Level]) -> None:
        self.variable, self.level, self.row, self.levels = variable, level, row, levels
        fitted_levels = ", ".join(repr(known) for known in levels[:8]) + (", …" if len(levels) > 8 else "")
        super().__init__(
            f"column {variable!r} has {level!r} in row {row}, which was not among the levels that the model was "
            f"fitted with ({fitted_levels}), so nothing is known about it: predict() has new_levels='nan' and "
            "'average' for such rows."
        )

    def at(self, row: int) -> UnknownLevelError:
        """The same error with another number for the row."""
        return UnknownLevelError(self.variable, self.level, row, self.levels)


@dataclass(frozen=True)
class Encoded(Term):
    """A part of a formula that formulaic codes.

    text: the part. needs, kinds, levels: the columns of the table that it needs, their kinds and their levels. made:
    the names of the columns that formulaic makes. state: what its transformations learned, as JSON.
    """

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
        return self.needs

    @property
    def names(self) -> tuple[str, ...]:
        """The names that formulaic gives, without the intercept."""
        return tuple(name for name in self.made if name != _INTERCEPT)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        return {name: levels for name, levels in zip(self.needs, self.levels, strict=True) if levels}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The column plan[pro]:age belongs to the term plan:age, with the level pro."""
        return tuple(_split_levels(name) for name in self.names)

    @property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """The column plan[pro]:age is the product of plan[pro] and age."""
        return tuple(_split_product(name) for name in self.names)

    @property
    def variables_by_term(self) -> tuple[tuple[str, ...], ...]:
        return tuple(term.variables for term in self._parsed_terms[0])

    @property
    def baseline(self) -> str:
        """For each category with a column for all levels but one, the name of that level."""
        without = {name: levels_without_column(name, levels, self.names) for name, levels in self.choices.items()}
        return ", ".join(f"{name}[{level_name(levels[0])}]" for name, levels in without.items() if len(levels) == 1)

    def matrix(self, columns: Columns) -> Array:
        """The columns that formulaic makes. Levels that were not fitted are refused."""
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
        """Raise an error if the text is no formula, or if the state holds more than numbers and texts."""
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
        """A column is linear in each factor: in the indicators of the levels of a category, and in the columns of a
        factor of numbers. So it is a sum of products of these. The coefficient of a product is the value that formulaic
        gives the column when each factor has that one level, or is 1 in that one column and 0 in its others.
        """
        terms, intercept = self._parsed_terms
        by_place = dict(column for term in terms for column in self._portable_columns(term, terms, intercept))
        return [by_place[j] for j, name in enumerate(self.made) if name != _INTERCEPT]

    def _portable_columns(
        self, term: formula.Term, terms: Sequence[formula.Term], intercept: bool
    ) -> Iterator[tuple[int, Portable]]:
        """The indices of the columns of one term among those of all, and their expressions."""
        factors = list(dict.fromkeys(factor for one in terms for factor in one.factors))
        state, fitted = json.loads(self.state), dict(zip(self.needs, self.levels, strict=True))
        for factor in factors:  # C may code numbers: then their levels are in the state
            name = None if factor.expression is None else factor.expression.coded_column
            if name is not None and not fitted[name]:
                fitted[name] = tuple(state[factor.text]["levels"])
        texts = {name for name, kind in zip(self.needs, self.kinds, strict=True) if kind == CATEGORY}
        category_of = {factor: name for factor in term.factors if (name := self._coded_column(factor, texts))}
        one_row = self._rows_at_levels({name: fitted[name][:1] for name in fitted if fitted[name]}, 1, state, fitted)
        columns_by_factor: list[list[Portable]] = []
        for factor in term.factors:
            if factor in category_of:
                name = category_of[factor]
                columns_by_factor.append([level(name, value) for value in fitted[name]])
            elif factor.expression is None:
                columns_by_factor.append([column(factor.text)])
            else:
                columns_by_factor.append(portable(factor.expression, one_row))
        # a row for each combination of one column of each factor
        grid = np.indices([len(columns) for columns in columns_by_factor]).reshape(len(columns_by_factor), -1)
        n = grid.shape[1]
        levels_by_row = {
            category_of[factor]: tuple(fitted[category_of[factor]][k] for k in grid[i])
            for i, factor in enumerate(term.factors)
            if factor in category_of
        }
        rest = {name: (fitted[name][0],) * n for name in fitted if fitted[name] and name not in levels_by_row}
        rows = self._rows_at_levels({**levels_by_row, **rest}, n, state, fitted)
        with formulaic_errors(self.text):
            values = {factor: _factor_values(factor, rows) for factor in factors}
            for i, factor in enumerate(term.factors):
                if factor not in category_of:
                    values[factor] = _unit_values(values[factor], grid[i], len(columns_by_factor[i]))
            matrix = _formulaic_matrix(terms, intercept, values, n)
        X = np.asarray(matrix.__wrapped__, np.float64)
        for place in matrix.model_spec.term_indices[_formulaic_term(term)]:
            yield (
                int(place),
                total([
                    product([float(X[row, place]), *(columns_by_factor[i][k] for i, k in enumerate(grid[:, row]))])
                    for row in np.flatnonzero(X[:, place])
                ]),
            )  # fmt: skip

    def _coded_column(self, factor: Factor, texts: set[str]) -> str | None:
        """The column whose levels a factor codes; None for a factor of numbers."""
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
        """n rows with these values in some columns, and nan in the others."""
        columns: dict[str, Column] = {}
        for name, kind in zip(self.needs, self.kinds, strict=True):
            numbers = np.full(n, np.nan)
            own = np.array(values[name], object if kind == CATEGORY else None) if name in values else numbers
            columns[name] = Column(kind, own, None, fitted[name])
        return rows_with_levels(Columns(columns, n), self.transforms, state, fitted)

    @cached_property
    def _parsed_terms(self) -> tuple[tuple[formula.Term, ...], bool]:
        return formula.parse_terms(self.text)


@dataclass(frozen=True)
class Line(Term):
    """The straight line of a smooth: x − centre, times what the smooth is multiplied by.

    smooth: its name, such as "s(age):plan[pro]". argument: the term that makes x, as JSON. by: the column that it is
    multiplied by; "": none. levels: the levels of that column, if it is a category. The line is then 0 but in the rows
    of one level, whose index is `level`.
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
        """The columns of x, and the column that it is multiplied by."""
        return tuple(dict.fromkeys([*self._argument_term.variables, *([self.by] if self.by else [])]))

    @property
    def names(self) -> tuple[str, ...]:
        """Such as s(age)[line]."""
        return (f"{self.smooth}[line]",)

    @property
    def choices(self) -> dict[str, tuple[Level, ...]]:
        """The levels of the category that it is multiplied by."""
        return {self.by: self.levels} if self.levels else {}

    @property
    def argument_name(self) -> str:
        """The name of what it is a function of: a column, or an expression."""
        return self._argument_term.names[0]

    def matrix(self, columns: Columns) -> Array:
        factor = self.multiplier(columns)
        centred = self.argument_values(columns) - self.centre
        return np.asarray(centred if factor is None else factor * centred)[:, None]

    def argument_values(self, columns: Columns) -> Array:
        """x (n,): what it is a function of."""
        return np.asarray(self._argument_term.matrix(columns), np.float64)[:, 0]

    def multiplier(self, columns: Columns) -> Array | None:
        """What it is multiplied by (n,): numbers, or 1 in the rows of its level and 0 in others; None for nothing."""
        if not self.by:
            return None
        if not self.levels:
            return np.asarray(Number(self.by).matrix(columns), np.float64)[:, 0]
        return np.asarray(Category(self.by, self.levels, True).active_columns(columns) == self.level, np.float64)

    def portable(self) -> list[Portable]:
        """x − centre, times its multiplier."""
        return [product([*self.portable_multipliers(), ["-", self.portable_argument(), self.centre]])]

    def portable_argument(self) -> Portable:
        """The expression of x."""
        return self._argument_term.portable()[0]

    def portable_multipliers(self) -> list[Portable]:
        """The expression of what it is multiplied by; [] for nothing."""
        if not self.by:
            return []
        return [level(self.by, self.levels[self.level]) if self.levels else column(self.by)]

    def require_sound(self) -> None:
        """Raise an error if the argument has other than one column, or if there is no such level."""
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
    """Terms as JSON, in which a design stores them."""
    return json.dumps([{"kind": term.kind, **asdict(term)} for term in terms])  # type: ignore[call-overload]


def terms_from_json(text: str, transforms: Transforms | None = None) -> tuple[Term, ...]:
    """The inverse of `terms_to_json`. Anything else is a ValueError. transforms: the user's functions that the formulas
    call.
    """
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
    """The levels of a category that have no column among these names: the baseline, if it is a single one.

    >>> levels_without_column("plan", ["basic", "pro"], ["age", "plan[pro]"])
    ['basic']
    """
    return [
        level
        for level in levels
        if f"{category}[{level_name(level)}]" not in names and f"{category}[{level}]" not in names
    ]


def level_name(level: Level) -> str:
    """A level as it stands in the names of columns: whole numbers without a point."""
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level)


def require_few_levels(name: str, levels: int, rows: int, what: str = "levels", examples: Sequence[Level] = ()) -> None:
    """Refuse a category with fewer than two rows for a level: it names rows, and says nothing about others.

    examples: of its levels, which may be numbers that were read as texts.
    """
    if not identifies_rows(levels, rows):
        return
    has = f"{name} has {levels:,} different {what} in {rows:,} rows"
    if remedy := thousands_advice(examples):
        raise DataError(f"{has}, {remedy}.")
    raise DataError(
        f"{has}, and would have a coefficient for each of them: leave it out of the formula where it names rows, put "
        "rare levels together where it is a category, or take it as a number."
    )


def require_no_numbers_as_texts(name: str, texts: Column) -> None:
    """Refuse a column of texts that are numbers but for a few words, such as "unknown", which is why they were read as
    texts. A type that says that they are categories is believed.
    """
    if not texts.plain_texts or len(texts.levels) <= _MANY_NUMBERS:
        return
    words = [text for text in texts.levels if not is_number(str(text).strip())]
    if not words or len(texts.levels) - len(words) <= max(_MANY_NUMBERS, len(words)):
        return
    places = texts.codes(tuple(words))
    if (places >= 0).mean() > _MOST_WORDS:
        return
    counts = [int((places == k).sum()) for k in range(len(words))]
    listed = ", ".join(
        f"{word!r} ({count:,} row{'s' if count > 1 else ''})"
        for word, count in [*zip(words, counts, strict=True)][:_NAMED]
    )
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    quoted = formula.quote_name(name)
    raise DataError(
        f"column {name!r} holds numbers as texts, with {listed}{more} among them: make numbers of it, in pandas by "
        f"to_numeric(column, errors='coerce'), for which these are missing values. C({quoted}) takes each of its "
        f"{len(texts.levels):,} different texts for a category of its own."
    )


def notes_on_spelling(columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
    """A note for each of these columns, where they are categories, with levels that differ in capitals and spaces
    alone. (A column that stands in an expression of the response, as in {left in ["Yes", "yes"]}, is none of them.)
    """
    notes = []
    for name in names:
        if name in columns.by_name and (alike := _levels_alike(columns[name].levels)):
            listed = ", ".join(" and ".join(map(repr, levels)) for levels in alike[:_NAMED])
            more = f", and {len(alike) - _NAMED} more" if len(alike) > _NAMED else ""
            notes.append(
                f"{name} has levels that differ in capitals or spaces alone, and each is a level of its own ({listed}"
                f"{more}): where they are one, write them alike, in pandas by column.str.strip().str.lower()"
            )
    return tuple(notes)


def _levels_alike(levels: tuple[Level, ...]) -> list[list[str]]:
    """Texts among some levels that are one without capitals and spaces, together.

    >>> _levels_alike(("North", "South", "north "))
    [['North', 'north ']]
    """
    by_letters: dict[str, list[str]] = {}
    for text in levels if len(levels) <= _MOST_COMPARED else ():
        if isinstance(text, str):
            by_letters.setdefault(" ".join(text.casefold().split()), []).append(text)
    return [same for same in by_letters.values() if len(same) > 1]


def require_memory_for_design(columns: int, rows: int, more: float = 0.0) -> None:
    """Refuse a dense design matrix that does not fit into memory. more: further bytes that are needed."""
    needed, available = 8.0 * rows * columns * _COPIES + more, free_memory()
    if needed > available:
        raise DataError(
            f"the formula makes {columns:,} columns of {rows:,} rows, which take about {needed / 1e9:.3g} GB, and "
            f"{available / 1e9:.3g} GB are free: take fewer terms, smaller bases, or a part of the rows."
        )


def require_finite(names: Sequence[str], rows: Reals, begin: int) -> None:
    """Refuse rows of a design matrix with values that are not finite, such as log(0). begin: the number of the first
    row.
    """
    bad = ~np.isfinite(rows)
    if bad.any():
        row, j = (int(place) for place in np.unravel_index(int(np.argmax(bad)), bad.shape))
        raise DataError(
            f"the formula's {names[j]!r} must be finite; it is {rows[row, j]} in row {begin + row} of those that are "
            "used."
        )


def rows_with_levels(
    columns: Columns, transforms: Transforms, state: State, levels: Mapping[str, tuple[Level, ...]]
) -> Rows:
    """New rows for expressions, with the levels that were fitted (() for a column of numbers). state: what
    transformations learned from the table that was fitted.
    """
    by_name = {
        name: Column(columns[name].kind, columns[name].values, None, levels[name] or columns[name].levels)
        for name in levels
    }
    return Rows(Columns(by_name, columns.n).series(), columns.n, transforms, state, levels)


def encode_terms(
    terms: Sequence[formula.Term], intercept: bool, rows: Rows, fitted: int = 0
) -> tuple[Array, list[str]]:
    """The columns that formulaic makes of some terms, with their names. fitted: the number of rows of the table that is
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
    """The values of one factor (n, columns)."""
    with formulaic_errors(factor.text):
        return _encode([formula.Term((factor,))], False, {factor: _factor_values(factor, rows)}, rows.n)[0]


def state_to_json(state: State, text: str) -> str:
    """What transformations learned, as JSON. Refuses a state that holds more than numbers and texts."""
    try:
        return json.dumps(
            state, default=lambda value: value.tolist() if isinstance(value, np.ndarray) else value.item()
        )
    except (TypeError, ValueError, AttributeError):
        raise DataError(
            f"the formula's {text[:120]!r} learns more of the table than numbers and texts, and cannot be used."
        ) from None


def _factor_values(factor: Factor, rows: Rows) -> Value:
    """The values of a factor, computed by `svrhmc.tables.expressions`. Refuses texts that are no category."""
    if factor.expression is None:
        return rows.columns[factor.text]
    values = factor.expression.compute(rows)
    if not hasattr(values, "__formulaic_metadata__") and getattr(values, "dtype", np.dtype(float)).kind == "O":
        raise DataError(f"the formula's {factor.text!r} holds texts: write C({factor.text}) for a category.")
    return values


def _encode(
    terms: Sequence[formula.Term], intercept: bool, values: dict[Factor, Value], n: int
) -> tuple[Array, list[str]]:
    """The columns that formulaic makes, with their names."""
    matrix = _formulaic_matrix(terms, intercept, values, n)
    names = [_clean_name(str(name)) for name in matrix.model_spec.column_names]
    return np.asarray(matrix.__wrapped__, np.float64), names


def _formulaic_matrix(terms: Sequence[formula.Term], intercept: bool, values: dict[Factor, Value], n: int) -> Any:
    """Formulaic's model matrix. It looks the values up by the texts of the factors."""
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

    return types.Term([types.Factor(factor.text, eval_method="lookup") for factor in term.factors])


def _unit_values(value: Value, chosen: npt.NDArray[np.int64], width: int) -> Value:
    """The values of a factor of `width` columns that are 0 but for the chosen one of each row, which is 1, in the form
    of `value`.
    """
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
    """Refuse terms with too many columns for the memory or for the rows fitted, before any column is made.

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
    """How many columns a factor has, and whether it is a category."""
    import pandas

    metadata = getattr(value, "__formulaic_metadata__", None)
    inner = unwrapped(value)
    if metadata is not None and getattr(metadata.kind, "value", metadata.kind) == "categorical":
        return int(pandas.Series(np.asarray(inner)).nunique()), True
    if isinstance(inner, dict):
        return len(wrapped_columns(value)), False
    if isinstance(getattr(inner, "dtype", None), pandas.CategoricalDtype):
        return len(inner.cat.categories), True
    return (int(np.shape(inner)[1]) if np.ndim(inner) > 1 else 1), False


@contextmanager
def formulaic_errors(text: str) -> Iterator[None]:
    """Turn formulaic's errors into a `DataError` of one line."""
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
    """Refuse anything but a tuple of different texts, numbers or truth values."""
    if not isinstance(levels, tuple) or not all(isinstance(level, str | int | float) for level in levels):
        raise TypeError("levels that are no texts or numbers")
    if len(set(levels)) < len(levels):
        raise ValueError("a level that stands twice")


def _clean_name(name: str) -> str:
    """A name of formulaic's without its marks: plan[basic] for C(plan)[T.basic]."""
    return re.sub(r"C\(([^(),]+)(?:,[^()]*(?:\([^()]*\))?[^()]*)?\)", r"\1", name).replace("[T.", "[")


def _split_levels(name: str) -> tuple[str, str]:
    """A name without its square brackets, and what stands in these: plan:age and pro for plan[pro]:age."""
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
    """The factors of a product: the texts between colons outside of brackets."""
    factors, depth = [""], 0
    for sign in name:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == ":" and not depth:
            factors.append("")
        else:
            factors[-1] += sign
    return tuple(factor.strip() for factor in factors)


def _lists_to_tuples(value: Value) -> Value:
    return tuple(_lists_to_tuples(item) for item in value) if isinstance(value, list) else value
