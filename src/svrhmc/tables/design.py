"""A design: how a table becomes the rows of a regression, with the names of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, requirement
from svrhmc.tables.columns import Columns, columns_of, names_of
from svrhmc.tables.making import require_memory
from svrhmc.tables.terms import Term, from_text, shown

_BLOCK = 1 << 13  # rows that are put together at a time
_SPARSE, _SHARE = 100, 5  # columns of categories from which, and times the others from where, rows are sparse


@dataclass(frozen=True, eq=False)
class Design:
    """formula, response and terms; whether there is an intercept; the classes of the response, the last of two being
    the one whose probability is modelled; the columns that offsets, exposures and trials come from; how many rows were
    left out because of missing values; and why this family, where none was named.
    """

    formula: str
    response: str
    terms: str  # as JSON
    intercept: bool
    classes: tuple[str, ...] = ()
    offset: str = ""
    exposure: str = ""
    trials: str = ""
    dropped: int = 0
    guessed: str = ""
    shifted: bool = False  # whether an offset or an exposure was given beside the table
    tried: bool = False  # whether trials were given beside the table
    transforms: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def require_sound(self) -> None:
        """Refuse terms that are none."""
        from_text(self.terms)

    def with_transforms(self, transforms: Mapping[str, Callable[..., Any]]) -> Design:
        """The same with functions that its formula calls by name, which no file holds."""
        made = replace(self)
        object.__setattr__(made, "transforms", transforms)
        return made

    @cached_property
    def made_of(self) -> tuple[Term, ...]:
        """The terms."""
        return from_text(self.terms, self.transforms)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, without the intercept."""
        return tuple(name for term in self.made_of for name in term.names)

    @property
    def variables(self) -> tuple[str, ...]:
        """The columns of a table that it needs."""
        return tuple(dict.fromkeys(name for term in self.made_of for name in term.variables))

    @property
    def baselines(self) -> tuple[str, ...]:
        """The levels that the columns of their categories are compared with."""
        return tuple(term.baseline for term in self.made_of if term.baseline)

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """The levels of the variables that are categories, the baseline first."""
        return {name: levels for term in self.made_of for name, levels in term.choices.items()}

    def typical_changes(self, own: Array) -> Array:
        """Of each column the change that its coefficient is shown for, from the typical change of each by itself: that
        of an interaction is the product of those of its factors, where a level of a category changes by 1. (By itself
        the column plan[pro]:age, which is 0 in most rows, has a spread that is neither that of age nor 1.)
        """
        by_name = dict(zip(self.names, own, strict=True))
        for name, levels in self.choices.items():
            by_name |= {f"{name}[{text}]": 1.0 for level in levels for text in (shown(level), str(level))}
        factors = [names for term in self.made_of for names in term.factors]
        products = [
            np.prod([by_name[factor] for factor in names]) if by_name.keys() >= set(names) else by_name[name]
            for name, names in zip(self.names, factors, strict=True)
        ]
        return np.array(products, np.float64)

    def separate(self, name: str) -> bool:
        """Whether a column is a category that stands in a term of its own alone, so that a level adds the same number
        to the predictor of every row.
        """
        return [term.kind for term in self.made_of if name in term.variables] == ["category"]

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Of each column the term, and the level or the number within it."""
        return tuple(part for term in self.made_of for part in term.parts)

    def rows(self, table: Any) -> Any:
        """The rows of a new table; missing values are refused."""
        columns = columns_of(table, self.variables)
        if gaps := columns.gaps():
            raise DataError(
                f"the table must have no missing values in {told(gaps)}: leave these rows out, or fill them."
            )
        return self.matrix(columns)

    def offsets(self, table: Any) -> Any:
        """The offsets of a new table, with the logarithms of exposures, where the model has columns of them."""
        if self.shifted:
            raise DataError(
                "the model was fitted with an offset or exposure that was no column of the table: give offset=… for "
                "the new rows too (zeros, where there is none)."
            )
        names = [name for name in (self.offset, self.exposure) if name]
        if not names:
            return None
        known = columns_of(table, names)
        found = np.zeros(known.n)
        if self.offset:
            found += np.asarray(known[self.offset].values, np.float64)
        return found + log_exposure(known[self.exposure].values) if self.exposure else found

    def trials_of(self, table: Any) -> Array | None:
        """The trials of the rows of a new table, where the model has any; else None."""
        if self.trials and self.trials in names_of(table):
            return np.asarray(columns_of(table, [self.trials])[self.trials].values, np.float64)
        if self.trials or self.tried:
            where = f"the column {self.trials!r}, which the table lacks" if self.trials else "an array"
            raise DataError(
                f"the model was fitted with the trials of {where}: give trials=… for the new rows, one number or one "
                "for each (1: predictions are then probabilities of a success)."
            )
        return None

    def matrix(self, columns: Columns) -> Any:
        """Dense, or sparse where most columns are levels."""
        coded = sum(len(term.names) for term in self.made_of if term.kind == "category")
        others = sum(len(term.names) for term in self.made_of if term.kind != "category")
        if coded > max(_SPARSE, _SHARE * others):
            return self._sparse(columns)
        require_memory(coded + others, columns.n)
        parts = [term.numbers(columns) for term in self.made_of]
        out = np.empty((columns.n, coded + others))
        ends = np.cumsum([0, *(part.shape[1] for part in parts)])
        for begin in range(0, columns.n, _BLOCK):
            for part, low, high in zip(parts, ends[:-1], ends[1:], strict=True):
                out[begin : begin + _BLOCK, low:high] = part[begin : begin + _BLOCK]
            self._require_finite(out[begin : begin + _BLOCK], begin)
        return out

    def _require_finite(self, some: Any, begin: int) -> None:
        """Refuse what a transformation, such as the log of 0, does not make a number of."""
        bad = ~np.isfinite(some)
        if bad.any():
            row, j = (int(each) for each in np.unravel_index(int(np.argmax(bad)), bad.shape))
            raise DataError(
                f"the formula's {self.names[j]!r} must be finite; it is {some[row, j]} in row {begin + row} of those "
                "that are used."
            )

    def _sparse(self, columns: Columns) -> Any:
        from scipy.sparse import csr_matrix

        index, value, width = [], [], 0
        for term in self.made_of:
            places = term.places(columns)
            if places is None:
                numbers = term.numbers(columns)
                index.append(np.broadcast_to(width + np.arange(numbers.shape[1]), numbers.shape))
                value.append(numbers)
            else:
                index.append(np.where(places < 0, -1, width + places)[:, None])
                value.append(np.ones((columns.n, 1)))
            width += len(term.names)
        indices, values = np.concatenate(index, axis=1), np.concatenate(value, axis=1)
        kept = (indices >= 0) & (values != 0)
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
        return csr_matrix((values[kept], indices[kept], starts), shape=(columns.n, width))


def log_exposure(exposure: Any) -> Any:
    """Its logarithm; refuses exposures that are not above 0."""
    values = np.asarray(exposure, np.float64)
    if not (values > 0).all():
        raise requirement("exposure", "above 0 in every row", f"{float(np.min(values)):g}")
    return np.log(values)


def is_table(X: Any) -> bool:
    """Whether it has columns with names, so that a design can be applied to it."""
    return isinstance(X, Mapping) or (hasattr(X, "columns") and not hasattr(X, "format")) or hasattr(X, "column_names")


def told(gaps: dict[str, int]) -> str:
    """Counts by column, in words."""
    return ", ".join(f"{name!r} ({count:,} missing)" for name, count in gaps.items())
