"""Rows of a new table for a fitted design, some of which miss values or have levels of categories that were not fitted.

If an unknown level stands for the average of the K fitted ones, its row of the design matrix is the mean of the K rows
that it would have with each of them,

    a = (1/K) Σₖ a(level k),

and the mean over all combinations if several columns have unknown levels. Linear predictors are linear in a, so this
gives the mean of the predictors of the K levels, with equal weights. Interactions and smooths by level are averaged in
the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError, one_of, requirement
from svrhmc.rows.csr import Matrix
from svrhmc.tables.columns import Columns, columns_of
from svrhmc.tables.columns import column_names as table_names
from svrhmc.tables.design import Design, missing_in_new_rows_error
from svrhmc.tables.terms import UnknownLevelError

MISSING = ("refuse", "drop", "nan")
NEW_LEVELS = ("refuse", "nan", "average")


@dataclass(frozen=True)
class Handling:
    """What to do with rows that miss values, and with rows that have levels of categories that were not fitted."""

    missing: str = "refuse"
    new_levels: str = "refuse"

    def __post_init__(self) -> None:
        one_of("missing", self.missing, MISSING)
        one_of("new_levels", self.new_levels, NEW_LEVELS)


def require_applicable(design: Design, new_levels: str, new_groups: str) -> None:
    """Refuse an option for new levels of categories if the model has only groups, and one for groups if it has only
    categories.
    """
    categories, factors = design.all_choices, dict.fromkeys(group.name for group in design.groups)
    if new_levels != "refuse" and factors and not categories:
        why = f"new levels of {_listed(factors)} follow new_groups"
        allowed = "'refuse' where the model has grouping factors, such as (1 | region), and no other categories"
        raise requirement("new_levels", allowed, repr(new_levels), why, DataError)
    if new_groups == "average" and categories and not factors:
        why = f"new levels of {_listed(categories)} follow new_levels"
        allowed = "'draw' where the model has no grouping factors, such as (1 | region)"
        raise requirement("new_groups", allowed, repr(new_groups), why, DataError)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


@dataclass(frozen=True, eq=False)
class NewRows:
    """The rows of a new table that can be predicted.

    columns: of these rows. kept: which rows of the table they are. reported: which rows of the table the prediction has
    a line for: all, or those without missing values. average: whether unknown levels stand for the average of the
    fitted ones.
    """

    design: Design
    columns: Columns
    kept: npt.NDArray[np.bool_]
    reported: npt.NDArray[np.bool_]
    average: bool = False

    @staticmethod
    def of(design: Design, table: object, handling: Handling, groups: bool = True) -> NewRows:
        """The rows of a table. groups: whether effects of groups are predicted, and so their columns needed."""
        names = list(design.variables if groups else design.coefficient_variables)
        there = table_names(table)
        names += [name for name in (design.offset, design.exposure, design.trials) if name and name in there]
        columns = columns_of(table, dict.fromkeys(names))
        if handling.missing == "refuse" and (gaps := columns.gaps()):
            raise missing_in_new_rows_error(gaps)
        kept = columns.whole()
        reported = kept.copy() if handling.missing == "drop" else np.ones(columns.n, bool)
        if handling.new_levels == "nan":
            for name, levels in design.all_choices.items():
                if name in columns.by_name:
                    kept &= columns[name].codes(levels) >= 0
        columns = columns.kept(kept) if kept.any() and not kept.all() else columns
        return NewRows(design, columns, kept, reported, handling.new_levels == "average")

    @cached_property
    def _expanded(self) -> tuple[Columns, Any]:
        """Columns in which a row with an unknown level is repeated for each of the fitted levels, and the matrix (rows,
        repeated rows) that averages the repetitions; None if no level is unknown.
        """
        columns, place, weight = self.columns, np.arange(self.columns.n), np.ones(self.columns.n)
        choices = self.design.all_choices if self.average else {}
        for name, levels in choices.items():
            if name not in columns.by_name:
                continue
            unknown = columns[name].codes(levels) < 0
            if unknown.any():
                times = np.where(unknown, len(levels), 1)
                again = np.repeat(np.arange(columns.n), times)
                places = np.flatnonzero(unknown[again])
                columns = columns.taken(again).replaced(name, places, list(levels) * int(unknown.sum()))
                place, weight = place[again], (weight / times)[again]
        if len(place) == self.columns.n:
            return columns, None
        from scipy.sparse import csr_matrix

        entries = (weight, (place, np.arange(len(place))))
        return columns, csr_matrix(entries, shape=(self.columns.n, len(place)))

    @contextmanager
    def _errors_by_table_row(self) -> Iterator[None]:
        """Let errors name a row by its number in the table, which counts the rows that were left out."""
        try:
            yield
        except UnknownLevelError as error:
            raise error.at(int(np.flatnonzero(self.kept)[error.row])) from None

    def _average(self, numbers: Any) -> Any:
        matrix = self._expanded[1]
        return numbers if matrix is None else matrix @ numbers

    def rows(self) -> Matrix:
        """The design matrix of these rows, with unknown levels averaged if that was asked for."""
        with self._errors_by_table_row():
            averaged: Matrix = self._average(self.design.matrix(self._expanded[0]))
            return averaged

    def bases(self) -> list[Array]:
        """For each smooth, its basis at the rows."""
        with self._errors_by_table_row():
            return [self._average(basis) for basis in self.design.bases_of(self._expanded[0])]

    def levels(self) -> tuple[list[Indices], list[Array], list[list[str]]]:
        """For each group term: the index of each row's level (−1: not fitted), the columns that vary by level, and for
        each row whose level was not fitted, the name of that level.
        """
        indices, columns, names = [], [], []
        for group in self.design.groups:
            index = group.level_indices(self.columns)
            indices.append(index)
            with self._errors_by_table_row():
                columns.append(self._average(group.varying_columns(self._expanded[0])))
            names.append(group.level_names_at(self.columns, np.flatnonzero(index < 0)))
        return indices, columns, names
