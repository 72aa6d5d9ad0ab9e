"""Group effects of a design: which level of a grouping factor a row belongs to, and which columns vary by level.

A term (x | a:b) has a level for each combination of a and b that occurs in the table, in the order of the levels of a,
then of b, and named "a:b" by them. What stands before the bar makes columns as the rest of a formula does, with what
transformations learned of the table. With || each column is a term of its own, whose effects are independent of the
others'.

In a file the terms are JSON, as the other terms of a design are. There may be a million levels, and texts in files are
short, so that its bytes are kept as an array, eight of them to a number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError, requirement
from svrhmc.families.labels import names_rows
from svrhmc.priors.groups import INTERCEPT_COLUMN, MOST_COLUMNS, Group
from svrhmc.tables.columns import CATEGORY, NUMBER, Column, Columns, Level
from svrhmc.tables.formula import GroupTerm
from svrhmc.tables.terms import Term, Transforms, from_text, require_finite, require_levels, shown, to_text

_MEASURED = 100  # different numbers that are not whole, above which a column is taken for a measurement
_BYTES = 8  # of JSON in one number
_LARGEST = 1 << 62  # number of a combination


@dataclass(frozen=True, eq=False)
class GroupDesign:
    """How a table makes a `Group`.

    text: the term as the formula has it. factors: the columns of the grouping factor. levels: those of each of these
    columns. combinations: where there are several, the combinations of levels that occur, by their numbers (levels,
    columns); else None. intercept, terms: what varies. column: the one column of the terms that does; −1: all of them.
    """

    text: str
    factors: tuple[str, ...]
    levels: tuple[tuple[Level, ...], ...]
    combinations: Indices | None
    intercept: bool
    terms: tuple[Term, ...]
    column: int = -1

    @property
    def name(self) -> str:
        """Of the grouping factor, such as "school:class"."""
        return ":".join(self.factors)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Of what varies; "1" is an intercept."""
        names = tuple(name for term in self.terms for name in term.names)
        return (INTERCEPT_COLUMN,) * self.intercept + (names if self.column < 0 else (names[self.column],))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Of its standard deviations."""
        return tuple(f"sd({name} | {self.name})" for name in self.column_names)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a table that it needs."""
        return tuple(dict.fromkeys([*self.factors, *(name for term in self.terms for name in term.variables)]))

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        """Those of the columns, joined by colons; where two would have one name, as JSON has texts."""
        parts = [[shown(level) for level in levels] for levels in self.levels]
        if self.combinations is None:
            return tuple(parts[0])
        for text_of in (str, json.dumps):
            texts = [np.array([text_of(level) for level in levels], object) for levels in parts]
            columns = [own[numbers] for own, numbers in zip(texts, self.combinations.T, strict=True)]
            names: tuple[str, ...] = tuple(reduce(lambda before, after: before + ":" + after, columns).tolist())
            if len(set(names)) == len(names):
                break
        return names

    @property
    def count(self) -> int:
        """The number of levels."""
        return len(self.levels[0] if self.combinations is None else self.combinations)

    def index(self, columns: Columns) -> Indices:
        """The level of each row, −1 where it was not fitted."""
        codes = [
            self._codes(name, columns[name], levels) for name, levels in zip(self.factors, self.levels, strict=True)
        ]
        if self.combinations is None:
            return codes[0]
        fitted = self.combinations
        keys = _keys(np.concatenate([fitted, np.column_stack(codes)]))
        places = np.full(int(keys.max()) + 1, -1, np.int64)
        places[keys[: len(fitted)]] = np.arange(len(fitted))
        return np.asarray(places[keys[len(fitted) :]])

    def names_at(self, columns: Columns, rows: Indices) -> list[str]:
        """The names of the levels of some rows, whether they were fitted or not."""
        parts = [[shown(level) for level in np.asarray(columns[name].values[rows]).tolist()] for name in self.factors]
        return [":".join(names) for names in zip(*parts, strict=True)]

    def numbers(self, columns: Columns) -> Array:
        """(n, r): what the effects of a row's level are multiplied by."""
        parts = [np.ones((columns.n, 1))] if self.intercept else []
        for term in self.terms:
            numbers = np.asarray(term.numbers(columns), np.float64)
            require_finite(term.names, numbers, 0)
            parts.append(numbers)
        columns_of_numbers = np.concatenate(parts, axis=1)
        return columns_of_numbers if self.column < 0 else np.ascontiguousarray(columns_of_numbers[:, [self.column]])

    def made(self, columns: Columns) -> Group:
        """Of the table that is fitted; its priors hold at the means of the columns, where there is an intercept."""
        numbers = self.numbers(columns)
        centre = np.array([0.0, *numbers[:, 1:].mean(axis=0)]) if self.intercept and self.terms else None
        return Group(self.index(columns), numbers, self.level_names, self.name, self.column_names, centre=centre)

    def require_sound(self) -> None:
        """Raise an error where it cannot be used; asked when it is read from a file."""
        if not self.factors or len(self.levels) != len(self.factors):
            raise ValueError("a group without levels")
        if not all(isinstance(text, str) for text in (self.text, *self.factors)) or type(self.intercept) is not bool:
            raise TypeError("a group of names that are no texts")
        for levels in self.levels:
            require_levels(levels)
        if type(self.column) is not int:
            raise TypeError("a group whose columns have no numbers")
        numbers = self.combinations
        if (numbers is not None) != (len(self.factors) > 1):
            raise ValueError("combinations of levels that do not fit")
        if numbers is not None:
            if numbers.dtype != np.int64 or not numbers.size:
                raise ValueError("combinations of levels without numbers")
            if (numbers < 0).any() or (numbers >= [len(levels) for levels in self.levels]).any():
                raise ValueError("a combination of levels that there are not")
            if len(np.unique(_keys(numbers))) < len(numbers):
                raise ValueError("a combination of levels that stands twice")
        width = sum(len(term.names) for term in self.terms)
        if not -1 <= self.column < max(width, 1) or not 1 <= len(self.column_names) <= MOST_COLUMNS:
            raise ValueError("a group of no or too many columns")

    @staticmethod
    def _codes(name: str, column: Column, levels: tuple[Level, ...]) -> Indices:
        texts = isinstance(levels[0], str)
        if texts != (column.kind == CATEGORY and all(isinstance(level, str) for level in column.levels)):
            kinds = ("texts", "numbers") if texts else ("numbers", "texts")
            raise DataError(
                f"the levels of {name!r} were {kinds[0]} in the table that was fitted; here they are {kinds[1]}, of "
                "which none would be known: make them the same."
            )
        return np.asarray(column.codes(levels), np.int64)


Refusal = Callable[[str], DataError]  # of what holds a term, for a reason


def group_designs(
    group: GroupTerm, terms: tuple[Term, ...], columns: Columns, unusable: Refusal
) -> Iterator[GroupDesign]:
    """Those of a term of a formula. terms: what varies beside the intercept, with what it learned of the columns."""
    factors = tuple(factor.text for factor in group.factor.factors)
    for name in factors:
        if name not in group.coded:
            _require_no_measurement(group.text, name, columns[name], unusable)
    levels = tuple(columns[name].distinct() for name in factors)
    combinations: Indices | None = None
    if len(factors) > 1:
        codes = np.column_stack(
            [columns[name].codes(levels_of_factor) for name, levels_of_factor in zip(factors, levels, strict=True)]
        )
        combinations = codes[np.unique(_keys(codes), return_index=True)[1]]
    if own := [name for term in terms for name in term.variables if name in factors]:
        raise unusable(
            f"{own[0]!r} stands before and after the bar of {group.text}, and cannot vary by itself: write "
            f"(1 | {':'.join(factors)})"
        )
    whole = GroupDesign(group.text, factors, levels, combinations, group.intercept, terms)
    if whole.count < 2:
        raise unusable(
            f"{whole.name!r} has one level only, {whole.level_names[0]!r}, and nothing can vary by it: leave "
            f"{group.text} out"
        )
    _require_columns(whole, columns, unusable)
    yield from [whole] if group.correlated else _separate(whole)


def _require_columns(group: GroupDesign, columns: Columns, unusable: Refusal) -> None:
    """Refuse too many columns that vary, two of one name, and those that are constant beside an intercept."""
    names = group.column_names
    if len(names) > MOST_COLUMNS:
        raise unusable(
            f"{group.text} makes {len(names):,} columns that vary by group, and takes at most {MOST_COLUMNS}: take "
            "some of them out, or put levels together"
        )
    (twice, count), *_ = Counter(names).most_common(1)
    if count > 1:
        raise unusable(f"{group.text} makes two columns named {twice!r}: take one of them out")
    numbers = group.numbers(columns)
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    for j in range(int(group.intercept), len(names)):
        if low[j] == high[j] and (group.intercept or low[j] == 0):
            why = "cannot be told from the intercept" if low[j] else "has no slope"
            raise unusable(
                f"the column {names[j]!r} of {group.text} is {low[j]:g} in every row, and {why}: take it out"
            )


def _separate(group: GroupDesign) -> Iterator[GroupDesign]:
    """A term for each column."""
    if group.intercept:
        yield replace(group, terms=())
    for term in group.terms:
        for place in range(len(term.names)):
            column = place if len(term.names) > 1 else -1
            yield replace(group, intercept=False, terms=(term,), column=column)


def _require_no_measurement(text: str, name: str, column: Column, unusable: Refusal) -> None:
    """Refuse a column of very many different numbers that are not whole."""
    if column.kind != NUMBER:
        return
    values = np.asarray(column.values, np.float64)
    if (values == np.floor(values)).all():
        return
    count = len(np.unique(values))
    if count > _MEASURED or names_rows(count, len(values)):
        raise unusable(
            f"the grouping factor {name!r} of {text} has {count:,} different numbers that are not whole, and looks "
            f"like a measurement: for an effect that changes with it take it as a column, such as {name} or "
            f"bs({name}, df=4); if they are names of groups, make texts of them, or write C({name})"
        )


def _keys(codes: Indices) -> Indices:
    """A number for each row of codes from −1 on, 0, 1, …, in the order of the rows."""
    keys, most = codes[:, 0] + 1, int(codes[:, 0].max()) + 2
    for column in codes.T[1:]:
        size = int(column.max()) + 2
        if most * size > _LARGEST:
            keys = np.unique(keys, return_inverse=True)[1]
            most = len(codes)
        keys, most = keys * size + column + 1, most * size
    return np.asarray(np.unique(keys, return_inverse=True)[1], np.int64)


def to_numbers(groups: Sequence[GroupDesign]) -> Indices | None:
    """As JSON, eight bytes to a number; None of none."""
    if not groups:
        return None
    described = []
    for group in groups:
        own = {field.name: getattr(group, field.name) for field in fields(group)}
        numbers = None if group.combinations is None else group.combinations.ravel().tolist()
        described.append({**own, "combinations": numbers, "terms": to_text(group.terms)})
    return to_bytes(described)


def to_bytes(content: object) -> Indices:
    """JSON, eight bytes to a number."""
    text = json.dumps(content, separators=(",", ":")).encode()
    return np.frombuffer(text + b" " * (-len(text) % _BYTES), "<i8").astype(np.int64)


def from_bytes(numbers: Indices) -> Any:
    """The object that `to_bytes` wrote as numbers."""
    return json.loads(numbers.astype("<i8").tobytes())


def from_numbers(numbers: Indices | None, transforms: Transforms | None = None) -> tuple[GroupDesign, ...]:
    """What `to_numbers` wrote; anything else is a ValueError. transforms: functions that its formulas call."""
    if numbers is None:
        return ()
    try:
        groups = tuple(_read(described, transforms) for described in from_bytes(numbers))
        for group in groups:
            group.require_sound()
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise requirement("group_terms", "those of a design", f"{np.shape(numbers)}", str(error)) from error
    return groups


def _read(described: Any, transforms: Transforms | None) -> GroupDesign:
    terms = from_text(described.pop("terms"), transforms)
    factors, numbers = tuple(described.pop("factors")), described.pop("combinations")
    combinations = None if numbers is None else np.asarray(numbers).reshape(-1, len(factors))
    return GroupDesign(
        factors=factors,
        combinations=combinations,
        levels=tuple(map(tuple, described.pop("levels"))),
        terms=terms,
        **described,
    )
