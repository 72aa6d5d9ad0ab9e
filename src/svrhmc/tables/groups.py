"""Group effects of a design: which level of a grouping factor a row belongs to, and which columns vary by level.

A term (x | a:b) has a level for each combination of a and b that occurs in the table, in the order of the levels of a,
then of b. Its name joins theirs by a colon. What stands before the bar makes columns as the rest of a formula does,
with what its transformations learned from the table. With || each column is a term of its own, whose effects are
independent of the others'.

In a file the terms are JSON, as other terms of a design are. Texts in files must be short, and there may be a million
levels, so the bytes of this JSON are stored as an array of integers, eight bytes in each.
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
from svrhmc.families.labels import identifies_rows
from svrhmc.priors.groups import INTERCEPT_COLUMN, MOST_COLUMNS, Group
from svrhmc.tables.columns import CATEGORY, NUMBER, Column, Columns, Level
from svrhmc.tables.formula import GroupTerm
from svrhmc.tables.terms import (
    Term,
    Transforms,
    level_name,
    require_finite,
    require_levels,
    terms_from_json,
    terms_to_json,
)

_MOST_FRACTIONS = 100  # different numbers that are not whole, above which a column is taken for a measurement
_BYTES = 8  # of JSON in one number
_LARGEST = 1 << 62  # number of a combination


@dataclass(frozen=True, eq=False)
class GroupDesign:
    """How a table becomes a `Group`.

    text: the term as it stands in the formula. factors: the columns of the grouping factor. levels: the levels of each
    of these columns. combinations: if there are several columns, the combinations of levels that occur, as indices of
    shape (combinations, columns); else None. intercept, terms: what varies by group. column: the index of the only
    column of the terms that varies; −1: all of them do.
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
        """The name of the grouping factor, such as "school:class"."""
        return ":".join(self.factors)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns that vary; "1" is an intercept."""
        names = tuple(name for term in self.terms for name in term.names)
        return (INTERCEPT_COLUMN,) * self.intercept + (names if self.column < 0 else (names[self.column],))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the standard deviations."""
        return tuple(f"sd({name} | {self.name})" for name in self.column_names)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a table that it needs."""
        return tuple(dict.fromkeys([*self.factors, *(name for term in self.terms for name in term.variables)]))

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        """The names of the levels: those of the factors' levels, joined by colons. If two levels would have one name,
        texts in the names are quoted as in JSON.
        """
        parts = [[level_name(level) for level in levels] for levels in self.levels]
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
    def level_count(self) -> int:
        """The number of levels."""
        return len(self.levels[0] if self.combinations is None else self.combinations)

    def level_indices(self, columns: Columns) -> Indices:
        """The index of the level of each row; −1 for a level that was not fitted."""
        codes = [
            self._level_codes(name, columns[name], levels)
            for name, levels in zip(self.factors, self.levels, strict=True)
        ]
        if self.combinations is None:
            return codes[0]
        fitted = self.combinations
        keys = _row_keys(np.concatenate([fitted, np.column_stack(codes)]))
        places = np.full(int(keys.max()) + 1, -1, np.int64)
        places[keys[: len(fitted)]] = np.arange(len(fitted))
        return np.asarray(places[keys[len(fitted) :]])

    def level_names_at(self, columns: Columns, rows: Indices) -> list[str]:
        """The names of the levels of some rows, fitted or not."""
        parts = [
            [level_name(level) for level in np.asarray(columns[name].values[rows]).tolist()] for name in self.factors
        ]
        return [":".join(names) for names in zip(*parts, strict=True)]

    def varying_columns(self, columns: Columns) -> Array:
        """(n, r): the columns that the effects of a row's level are multiplied by."""
        parts = [np.ones((columns.n, 1))] if self.intercept else []
        for term in self.terms:
            numbers = np.asarray(term.matrix(columns), np.float64)
            require_finite(term.names, numbers, 0)
            parts.append(numbers)
        columns_of_numbers = np.concatenate(parts, axis=1)
        return columns_of_numbers if self.column < 0 else np.ascontiguousarray(columns_of_numbers[:, [self.column]])

    def build_group(self, columns: Columns) -> Group:
        """The group term of the table that is fitted. If it has an intercept, its priors hold at the column means."""
        numbers = self.varying_columns(columns)
        centre = np.array([0.0, *numbers[:, 1:].mean(axis=0)]) if self.intercept and self.terms else None
        return Group(
            self.level_indices(columns), numbers, self.level_names, self.name, self.column_names, centre=centre
        )

    def require_sound(self) -> None:
        """Raise an error if it cannot be used. Called when it is read from a file."""
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
            if len(np.unique(_row_keys(numbers))) < len(numbers):
                raise ValueError("a combination of levels that stands twice")
        width = sum(len(term.names) for term in self.terms)
        if not -1 <= self.column < max(width, 1) or not 1 <= len(self.column_names) <= MOST_COLUMNS:
            raise ValueError("a group of no or too many columns")

    @staticmethod
    def _level_codes(name: str, column: Column, levels: tuple[Level, ...]) -> Indices:
        texts = isinstance(levels[0], str)
        if texts != (column.kind == CATEGORY and all(isinstance(level, str) for level in column.levels)):
            kinds = ("texts", "numbers") if texts else ("numbers", "texts")
            raise DataError(
                f"the levels of {name!r} were {kinds[0]} in the table that was fitted; here they are {kinds[1]}, of "
                "which none would be known: make them the same."
            )
        return np.asarray(column.codes(levels), np.int64)


ErrorForReason = Callable[[str], DataError]  # makes the error for a reason why a formula cannot be used


def group_designs(
    group: GroupTerm, terms: tuple[Term, ...], columns: Columns, unusable: ErrorForReason
) -> Iterator[GroupDesign]:
    """The designs of a group term of a formula. terms: what varies beside the intercept, with what these terms learned
    from the columns. unusable: makes the error for a reason.
    """
    factors = tuple(factor.text for factor in group.factor.factors)
    for name in factors:
        if name not in group.coded:
            _require_not_measurement(group.text, name, columns[name], unusable)
    levels = tuple(columns[name].distinct() for name in factors)
    combinations: Indices | None = None
    if len(factors) > 1:
        codes = np.column_stack(
            [columns[name].codes(levels_of_factor) for name, levels_of_factor in zip(factors, levels, strict=True)]
        )
        combinations = codes[np.unique(_row_keys(codes), return_index=True)[1]]
    if own := [name for term in terms for name in term.variables if name in factors]:
        raise unusable(
            f"{own[0]!r} stands before and after the bar of {group.text}, and cannot vary by itself: write "
            f"(1 | {':'.join(factors)})"
        )
    whole = GroupDesign(group.text, factors, levels, combinations, group.intercept, terms)
    if whole.level_count < 2:
        raise unusable(
            f"{whole.name!r} has one level only, {whole.level_names[0]!r}, and nothing can vary by it: leave "
            f"{group.text} out"
        )
    _require_varying_columns(whole, columns, unusable)
    yield from [whole] if group.correlated else _one_per_column(whole)


def _require_varying_columns(group: GroupDesign, columns: Columns, unusable: ErrorForReason) -> None:
    """Refuse too many varying columns, two of one name, and columns that are constant beside an intercept."""
    names = group.column_names
    if len(names) > MOST_COLUMNS:
        raise unusable(
            f"{group.text} makes {len(names):,} columns that vary by group, and takes at most {MOST_COLUMNS}: take "
            "some of them out, or put levels together"
        )
    (twice, count), *_ = Counter(names).most_common(1)
    if count > 1:
        raise unusable(f"{group.text} makes two columns named {twice!r}: take one of them out")
    numbers = group.varying_columns(columns)
    low, high = numbers.min(axis=0), numbers.max(axis=0)
    for j in range(int(group.intercept), len(names)):
        if low[j] == high[j] and (group.intercept or low[j] == 0):
            why = "cannot be told from the intercept" if low[j] else "has no slope"
            raise unusable(
                f"the column {names[j]!r} of {group.text} is {low[j]:g} in every row, and {why}: take it out"
            )


def _one_per_column(group: GroupDesign) -> Iterator[GroupDesign]:
    """A group term for each varying column."""
    if group.intercept:
        yield replace(group, terms=())
    for term in group.terms:
        for place in range(len(term.names)):
            column = place if len(term.names) > 1 else -1
            yield replace(group, intercept=False, terms=(term,), column=column)


def _require_not_measurement(text: str, name: str, column: Column, unusable: ErrorForReason) -> None:
    """Refuse a grouping factor that looks like a measurement: very many different numbers that are not whole."""
    if column.kind != NUMBER:
        return
    values = np.asarray(column.values, np.float64)
    if (values == np.floor(values)).all():
        return
    count = len(np.unique(values))
    if count > _MOST_FRACTIONS or identifies_rows(count, len(values)):
        raise unusable(
            f"the grouping factor {name!r} of {text} has {count:,} different numbers that are not whole, and looks "
            f"like a measurement: for an effect that changes with it take it as a column, such as {name} or "
            f"bs({name}, df=4); if they are names of groups, make texts of them, or write C({name})"
        )


def _row_keys(codes: Indices) -> Indices:
    """For each row of codes (n, columns), which are −1 or more, the rank 0, 1, … of the row among the different rows in
    lexicographic order.
    """
    keys, most = codes[:, 0] + 1, int(codes[:, 0].max()) + 2
    for column in codes.T[1:]:
        size = int(column.max()) + 2
        if most * size > _LARGEST:
            keys = np.unique(keys, return_inverse=True)[1]
            most = len(codes)
        keys, most = keys * size + column + 1, most * size
    return np.asarray(np.unique(keys, return_inverse=True)[1], np.int64)


def groups_to_array(groups: Sequence[GroupDesign]) -> Indices | None:
    """Group terms as an array of integers (`json_to_array`); None if there are none."""
    if not groups:
        return None
    described = []
    for group in groups:
        own = {field.name: getattr(group, field.name) for field in fields(group)}
        numbers = None if group.combinations is None else group.combinations.ravel().tolist()
        described.append({**own, "combinations": numbers, "terms": terms_to_json(group.terms)})
    return json_to_array(described)


def json_to_array(content: object) -> Indices:
    """An object as JSON, in an array of integers of eight bytes each."""
    text = json.dumps(content, separators=(",", ":")).encode()
    return np.frombuffer(text + b" " * (-len(text) % _BYTES), "<i8").astype(np.int64)


def json_from_array(numbers: Indices) -> Any:
    """The inverse of `json_to_array`."""
    return json.loads(numbers.astype("<i8").tobytes())


def groups_from_array(numbers: Indices | None, transforms: Transforms | None = None) -> tuple[GroupDesign, ...]:
    """The inverse of `groups_to_array`. Anything else is a ValueError. transforms: the user's functions that the
    formulas call.
    """
    if numbers is None:
        return ()
    try:
        groups = tuple(_group_from_json(described, transforms) for described in json_from_array(numbers))
        for group in groups:
            group.require_sound()
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise requirement("group_terms", "those of a design", f"{np.shape(numbers)}", str(error)) from error
    return groups


def _group_from_json(described: Any, transforms: Transforms | None) -> GroupDesign:
    terms = terms_from_json(described.pop("terms"), transforms)
    factors, numbers = tuple(described.pop("factors")), described.pop("combinations")
    combinations = None if numbers is None else np.asarray(numbers).reshape(-1, len(factors))
    return GroupDesign(
        factors=factors,
        combinations=combinations,
        levels=tuple(map(tuple, described.pop("levels"))),
        terms=terms,
        **described,
    )
