"""Terms of a formula: what each makes of the columns of a table.

A number is a column of its own, a truth value one of 0 and 1, and a category one for each level but the first (its
*baseline*) or, where the design has no intercept, one for every level. All else (transformations, splines,
interactions) is formulaic's. A term is plain data, so that a design can be kept in a file and applied to new tables.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, requirement
from svrhmc.tables import grammar
from svrhmc.tables.columns import CATEGORY, KINDS, Column, Columns
from svrhmc.tables.expressions import require_state
from svrhmc.tables.making import made

_INTERCEPT = "Intercept"  # formulaic's name for a column that the design has by itself


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
    def places(self, columns: Columns) -> npt.NDArray[np.int64] | None:
        """For each row the one column that is 1 in it (−1: none); None where a row has numbers."""

    @abstractmethod
    def numbers(self, columns: Columns) -> Array:
        """(n, columns)."""

    @abstractmethod
    def require_sound(self) -> None:
        """Raise an error where it cannot be used; asked when it is read from a file."""

    @property
    def baseline(self) -> str:
        """The level that has no column, where there is one."""
        return ""

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
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


@dataclass(frozen=True)
class Number(Term):
    """A column of numbers, or of truth values as 0 and 1."""

    kind = "number"
    variable: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Its own."""
        return (self.variable,)

    @property
    def names(self) -> tuple[str, ...]:
        """That of the variable."""
        return (self.variable,)

    def require_sound(self) -> None:
        """A name is enough."""

    def places(self, columns: Columns) -> None:
        """Numbers."""
        return

    def numbers(self, columns: Columns) -> Array:
        """As they are; a text where numbers were is refused."""
        column = columns[self.variable]
        if column.kind == CATEGORY:
            raise DataError(f"column {self.variable!r} must hold numbers, as in the table that was fitted; got texts.")
        return np.asarray(column.values, np.float64)[:, None]


@dataclass(frozen=True)
class Category(Term):
    """One column for each level but the first; with `full`, for every level."""

    kind = "category"
    variable: str
    levels: tuple[Any, ...]
    full: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Its own."""
        return (self.variable,)

    @property
    def names(self) -> tuple[str, ...]:
        """variable[level]."""
        return tuple(f"{self.variable}[{shown(level)}]" for level in self._coded)

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Its levels."""
        return {self.variable: self.levels}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """The variable, and its levels."""
        return tuple((self.variable, shown(level)) for level in self._coded)

    @property
    def baseline(self) -> str:
        """The first level."""
        return "" if self.full else f"{self.variable}[{shown(self.levels[0])}]"

    @property
    def _coded(self) -> tuple[Any, ...]:
        return self.levels if self.full else self.levels[1:]

    def require_sound(self) -> None:
        """Refuse levels that are none."""
        _require_levels(self.levels)
        if not self.levels:
            raise ValueError("a category without levels")

    def places(self, columns: Columns) -> npt.NDArray[np.int64]:
        """The number of the level; a level that the design does not know is refused."""
        column = columns[self.variable]
        codes = column.codes(self.levels)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            known = ", ".join(repr(level) for level in self.levels[:8]) + (", …" if len(self.levels) > 8 else "")
            raise DataError(
                f"column {self.variable!r} has {column.values[row]!r} in row {row}, which was not among the levels "
                f"that the model was fitted with ({known}): nothing is known of it."
            )
        return codes if self.full else codes - 1

    def numbers(self, columns: Columns) -> Array:
        """0 and 1."""
        places = self.places(columns)
        return np.asarray(places[:, None] == np.arange(len(self._coded)), np.float64)


@dataclass(frozen=True)
class Made(Term):
    """What formulaic makes of a part of a formula; `state` is what its transformations remember, as JSON."""

    kind = "made"
    text: str
    needs: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: tuple[tuple[Any, ...], ...]
    made: tuple[str, ...]
    state: str
    transforms: ClassVar[Mapping[str, Callable[..., Any]]] = {}  # set by `from_text`: no file holds functions

    @property
    def variables(self) -> tuple[str, ...]:
        """All that stand in it."""
        return self.needs

    @property
    def names(self) -> tuple[str, ...]:
        """As formulaic calls them, without the marks that only it needs."""
        return tuple(name for name in self.made if name != _INTERCEPT)

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Those of the variables that have levels."""
        return {name: known for name, known in zip(self.needs, self.levels, strict=True) if known}

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """plan[pro]:age belongs to plan:age, with the level pro."""
        return tuple(_part(name) for name in self.names)

    @property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """plan[pro]:age is the product of plan[pro] and age."""
        return tuple(_pieces(name) for name in self.names)

    @property
    def baseline(self) -> str:
        """The first level of each category."""
        return ", ".join(
            f"{name}[{shown(known[0])}]" for name, known in zip(self.needs, self.levels, strict=True) if known
        )

    def places(self, columns: Columns) -> None:
        """Numbers."""
        return

    def numbers(self, columns: Columns) -> Array:
        """By formulaic; levels that it does not know are refused."""
        for name, kind, levels in zip(self.needs, self.kinds, self.levels, strict=True):
            if kind == CATEGORY:
                Category(name, levels).places(columns)
            elif columns[name].kind == CATEGORY:
                raise DataError(f"column {name!r} must hold numbers, as in the table that was fitted; got texts.")
        terms, intercept = self._terms
        fitted = dict(zip(self.needs, self.levels, strict=True))
        some = {
            name: Column(columns[name].kind, columns[name].values, None, known or columns[name].levels)
            for name, known in fitted.items()
        }
        found, names = made(terms, intercept, Columns(some, columns.n), self.transforms, json.loads(self.state), fitted)
        if tuple(names) != self.made:
            raise DataError(f"the formula's {self.text[:80]!r} makes other columns of these rows than of those fitted.")
        return found[:, [name != _INTERCEPT for name in names]]

    def require_sound(self) -> None:
        """Refuse a text that is no formula, and a state that is more than numbers and texts."""
        terms, _ = self._terms
        unknown = {name for term in terms for name in term.variables} - set(self.needs)
        if unknown:
            raise ValueError(f"a term of columns that it does not name: {sorted(unknown)[0]!r}")
        state = json.loads(self.state)
        if not isinstance(state, dict) or not all(isinstance(each, dict) for each in state.values()):
            raise TypeError("a state that is no dictionary")
        require_state(state)
        if not len(self.needs) == len(self.kinds) == len(self.levels) or not set(self.kinds) <= set(KINDS):
            raise ValueError("kinds and levels that do not fit its columns")
        for levels in self.levels:
            _require_levels(levels)

    @cached_property
    def _terms(self) -> tuple[tuple[grammar.Term, ...], bool]:
        return grammar.terms_of(self.text)


_KINDS: dict[str, type[Any]] = {kind.kind: kind for kind in (Number, Category, Made)}


def to_text(terms: tuple[Term, ...]) -> str:
    """As JSON."""
    return json.dumps([{"kind": term.kind, **asdict(term)} for term in terms])  # type: ignore[call-overload]


def from_text(text: str, transforms: Mapping[str, Callable[..., Any]] | None = None) -> tuple[Term, ...]:
    """What `to_text` wrote; anything else is a ValueError. transforms: functions that its formulas call."""
    try:
        told = json.loads(text)
        terms = tuple(_KINDS[each.pop("kind")](**{key: _tuples(value) for key, value in each.items()}) for each in told)
        for term in terms:
            if not all(isinstance(name, str) for name in (*term.variables, *term.names)):
                raise TypeError("a name that is no text")
            term.require_sound()
            if transforms and isinstance(term, Made):
                object.__setattr__(term, "transforms", transforms)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise requirement("terms", "those of a design", text[:60], str(error)) from error
    return terms


def _require_levels(levels: Any) -> None:
    """Refuse what is not a list of different texts, numbers or truth values."""
    if not isinstance(levels, tuple) or not all(isinstance(level, str | int | float) for level in levels):
        raise TypeError("levels that are no texts or numbers")
    if len(set(levels)) < len(levels):
        raise ValueError("a level that stands twice")


def _part(name: str) -> tuple[str, str]:
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


def _pieces(name: str) -> tuple[str, ...]:
    """The factors of a product: what stands between colons that no bracket encloses."""
    pieces, depth = [""], 0
    for sign in name:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == ":" and not depth:
            pieces.append("")
        else:
            pieces[-1] += sign
    return tuple(piece.strip() for piece in pieces)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def shown(level: Any) -> str:
    """A level as names have it."""
    if isinstance(level, float) and level.is_integer():
        return str(int(level))
    return str(level)
