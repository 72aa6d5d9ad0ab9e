"""Several imputed tables as one, with their rows one table after the other, so that all have the same design.

Levels, knots, centres, scales and priors are learnt from the rows of all tables, so that the coefficients of each table
mean the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from svrhmc.core.errors import DataError, requirement
from svrhmc.tables.columns import Column, Columns, columns_of

_MOST_NAMED = 4  # columns that an error names


def stack_tables(tables: Sequence[object], names: Collection[str], open_columns: Collection[str] = ()) -> Columns:
    """The columns of all tables, one table after the other. Refuses tables with different numbers of rows or with
    missing values. open_columns: as for `columns_of`.

    >>> stack_tables([{"age": [31.0, 48.0]}, {"age": [31.0, 52.0]}], ["age"])["age"].values
    array([31., 48., 31., 52.])
    """
    if len(tables) < 2:
        raise requirement("a list of imputed tables", "2 tables or more", len(tables), "give a single table by itself")
    parts = [columns_of(table, names, f"table {k} of {len(tables)}", open_columns) for k, table in enumerate(tables, 1)]
    for k, part in enumerate(parts, 1):
        if part.n != parts[0].n:
            why = "they are imputations of one table, row by row"
            raise requirement(f"table {k} of {len(tables)}", f"as many rows as the first, {parts[0].n:,}", part.n, why)
        if gaps := part.gaps():
            some = ", ".join(f"{name!r} ({count:,} rows)" for name, count in list(gaps.items())[:_MOST_NAMED])
            raise DataError(
                f"table {k} of {len(tables)} misses values: {some}. An imputed table has none: impute these columns "
                "as well, or leave them out of the formula."
            )
    return Columns(
        {name: _stack_column(name, [part[name] for part in parts]) for name in names}, sum(p.n for p in parts)
    )


def _stack_column(name: str, parts: Sequence[Column]) -> Column:
    """One column, from its parts in all tables."""
    kinds = dict.fromkeys(part.kind for part in parts)
    if len(kinds) > 1:
        raise requirement(f"column {name!r}", "of one kind in all tables", " in one and ".join(kinds) + " in another")
    values = np.concatenate([np.asarray(part.values) for part in parts])
    if all(part.levels == parts[0].levels for part in parts):
        return replace(parts[0], values=values)
    if any(part.ordered for part in parts):
        listed = " and ".join(dict.fromkeys(", ".join(map(str, part.levels)) for part in parts))
        raise DataError(
            f"rows of all tables must have the same levels of the ordered category {name!r}; got {listed}: join levels "
            "that are rare, or make it a column of texts or numbers."
        )
    levels: set[Any] = {level for part in parts for level in part.levels}
    return replace(parts[0], values=values, levels=tuple(sorted(levels)))
