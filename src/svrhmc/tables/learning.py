"""Passes over a table in partitions that learn what a design needs: levels, means, knots; and some of its rows."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError
from svrhmc.rows.workers import Workers, pass_over
from svrhmc.tables.columns import NUMBER, CodedTexts, Column, Columns, Level
from svrhmc.tables.design import response_column
from svrhmc.tables.expressions import State, Value, parse_expression
from svrhmc.tables.formula import Factor
from svrhmc.tables.sources import Source
from svrhmc.tables.terms import Transforms, formulaic_errors, rows_with_levels, state_to_json
from svrhmc.tables.transforms import Learner, Statistic, make_learner

MOST_LEVELS = 1000
_ROWS = 1 << 18  # of a batch that is looked at for its values
Part = TypeVar("Part")
Levels = Mapping[str, tuple[Level, ...]]


class PartitionedTable(NamedTuple):
    """A table in partitions, who reads it, and the columns whose missing values leave a row out (none: refused)."""

    source: Source
    workers: Workers
    drop: tuple[str, ...]

    def over_partitions(self, work: Callable[..., Part], arguments: tuple[object, ...], purpose: str) -> list[Part]:
        """work(source, number, *arguments, drop) of every partition."""
        rest: tuple[object, ...] = (*arguments, self.drop)
        tasks: list[tuple[int, *tuple[object, ...]]] = [(k, *rest) for k in range(len(self.source.sizes))]
        return list(pass_over(self.workers, self.source, work, tasks, purpose))


def complete_rows(columns: Columns) -> Columns:
    """The rows that miss nothing."""
    rows = columns.whole()
    return columns if rows.all() else select_rows(columns, np.flatnonzero(rows))


def select_rows(columns: Columns, places: npt.NDArray[np.int64]) -> Columns:
    """Some rows, by their numbers."""
    some = {name: Column(c.kind, c.values[places], None, (), c.ordered) for name, c in columns.by_name.items()}
    return Columns(some, len(places))


def used_blocks(
    source: Source, number: int, names: Sequence[str], drop: tuple[str, ...]
) -> Iterator[tuple[Columns, dict[str, int]]]:
    """Blocks of the rows that are used, with how many values are missing by column."""
    for _, columns in source.columns(number, list(dict.fromkeys([*names, *drop])), _ROWS, bool(drop)):
        yield (complete_rows(columns), columns.gaps()) if drop else (columns, {})


class Survey(NamedTuple):
    """Of some rows: how many are used, how many values are missing by column, and by column its different values (None:
    too many), the order that it has them in, and the ends of numbers and whether all are whole.
    """

    rows: int
    gaps: dict[str, int]
    values: dict[str, Any]
    orders: dict[str, tuple[Level, ...]]
    ends: dict[str, tuple[float, float, bool]]

    @staticmethod
    def empty(names: Sequence[str]) -> Survey:
        """What is known of no rows at all."""
        return Survey(0, {}, {name: set() for name in names}, {}, {})

    @staticmethod
    def of(columns: Columns, gaps: dict[str, int], names: Sequence[str]) -> Survey:
        """What a block of rows tells."""
        some = {name: columns[name] for name in names}
        ends = {}
        for name, column in some.items():
            if column.kind == NUMBER and columns.n:
                x = np.asarray(column.values, np.float64)
                ends[name] = float(x.min()), float(x.max()), bool((x == np.floor(x)).all())
        values = {name: set(_distinct_values(column)) for name, column in some.items()}
        orders = {name: tuple(column.values.different) for name, column in some.items() if column.ordered}
        return Survey(columns.n, gaps, values, orders, ends)

    def __add__(self, other: Survey) -> Survey:  # type: ignore[override]
        gaps = {name: self.gaps.get(name, 0) + other.gaps.get(name, 0) for name in {**self.gaps, **other.gaps}}
        values = {name: _union(self.values[name], other.values.get(name)) for name in self.values}
        names = {**self.orders, **other.orders}
        orders = {name: _common_order(name, self.orders.get(name, ()), other.orders.get(name, ())) for name in names}
        ends = dict(self.ends)
        for name, (low, high, whole) in other.ends.items():
            here = ends.get(name, (low, high, whole))
            ends[name] = min(low, here[0]), max(high, here[1]), whole and here[2]
        return Survey(self.rows + other.rows, gaps, values, orders, ends)


def survey_partition(source: Source, number: int, names: list[str], drop: tuple[str, ...]) -> Survey:
    """What the rows of one partition tell."""
    total = Survey.empty(names)
    for columns, gaps in used_blocks(source, number, names, drop):
        total = total + Survey.of(columns, gaps, [name for name in names if total.values[name] is not None])
    return total


def survey_response(
    source: Source, number: int, text: str, transforms: Transforms, state: State, drop: tuple[str, ...]
) -> Survey:
    """Of a response that is computed, in one partition."""
    total, factor = Survey.empty([text]), Factor(text, parse_expression(text))
    for columns, gaps in used_blocks(source, number, factor.variables, drop):
        y = Columns({text: response_column(factor, columns, transforms, state)}, columns.n)
        total = total + Survey.of(y, gaps, [text])
    return total


def _distinct_values(column: Column) -> list[Value]:
    if isinstance(column.values, CodedTexts):
        return column.values.present_texts()
    values = np.asarray(column.values)
    few = np.unique(values[: 2 * MOST_LEVELS])
    return list((np.unique(values) if len(few) <= MOST_LEVELS else few).tolist())


def _union(a: set[Level] | None, b: set[Level] | None) -> set[Level] | None:
    return None if a is None or b is None or len(a | b) > MOST_LEVELS else a | b


def levels_of_all(parts: Iterable[Iterable[Level] | None]) -> list[Level] | None:
    """The levels that all partitions have together, in order; None where those of one, or of all, are too many."""
    levels: set[Level] | None = set()
    for part in parts:
        levels = _union(levels, None if part is None else set(part))
    return None if levels is None else sorted(levels)  # type: ignore[type-var]


def _common_order(name: str, a: tuple[Level, ...], b: tuple[Level, ...]) -> tuple[Level, ...]:
    """One order of the levels of an ordered category, where partitions agree on it."""
    short, long = sorted((a, b), key=len)
    if tuple(level for level in long if level in set(short)) != short:
        raise DataError(f"the column {name!r} has its levels in one order in some partitions, and another in others.")
    return long


def first_rows(table: PartitionedTable, names: Sequence[str], most: int = 1000) -> Columns:
    """Some rows that are used, of the first partition that has any."""
    for number in np.flatnonzero(table.source.sizes):
        for columns, _ in used_blocks(table.source, int(number), names, table.drop):
            if columns.n:
                return select_rows(columns, np.arange(min(columns.n, most)))
    raise DataError("the table has no rows.")


def learn_states(table: PartitionedTable, factors: Sequence[Factor], transforms: Transforms, levels: Levels) -> State:
    """What the transformations of some factors remember. A pass serves all that can be learned at a time; what stands
    within another is learned before it.
    """
    whole = {factor.text: factor.expression for factor in factors if factor.expression is not None}
    waiting = {one.call_key(node): (one, node) for one in whole.values() for node in one.learning_calls}
    own = {name: levels[name] for name in sorted({name for one in whole.values() for name in one.variables})}
    first = first_rows(table, list(own)) if waiting else Columns({}, 0)
    state: State = {}
    active: dict[str, tuple[str, int, Learner, Statistic]] = {}

    def advance(key: str, text: str, place: int, steps: Learner, total: Value) -> None:
        try:
            active[key] = text, place, steps, steps.send(total)
        except StopIteration as stop:
            active.pop(key, None)
            state[key] = json.loads(state_to_json(stop.value, key))

    with formulaic_errors(" + ".join(whole)):
        while waiting or active:
            for key, (one, node) in list(waiting.items()):
                inner = {
                    one.call_key(call) for call in ast.walk(node) if isinstance(call, ast.Call) and call is not node
                }
                if not inner & (waiting.keys() | active.keys()):
                    call = one.call(node, rows_with_levels(first, transforms, state, own))
                    del waiting[key]
                    if call.learns:
                        advance(key, one.text, one.learning_calls.index(node), make_learner(call), None)
            if active:
                calls = [(text, place, statistic) for text, place, _, statistic in active.values()]
                parts = table.over_partitions(
                    sum_statistics, (calls, transforms, state, own), "what transformations learn"
                )
                totals = reduce(_add_statistics, [part for part in parts if part is not None])
                for (key, (text, place, steps, _)), total in zip(list(active.items()), totals, strict=True):
                    advance(key, text, place, steps, total)
    return state


def sum_statistics(
    source: Source,
    number: int,
    calls: list[tuple[str, int, Statistic]],
    transforms: Transforms,
    state: State,
    levels: Levels,
    drop: tuple[str, ...],
) -> list[Value] | None:
    """Statistics of what some calls of expressions are made with, over one partition; None where it has no rows."""
    wholes = [(parse_expression(text), place, statistic) for text, place, statistic in calls]
    total = None
    for columns, _ in used_blocks(source, number, list(levels), drop):
        if columns.n:
            rows, part = rows_with_levels(columns, transforms, state, levels), []
            for whole, place, statistic in wholes:
                call = whole.call(whole.learning_calls[place], rows)
                part.append(statistic((call.arguments or list(call.keywords.values()))[0]))
            total = part if total is None else _add_statistics(total, part)
    return total


def _add_statistics(a: list[Value], b: list[Value]) -> list[Value]:
    return list(map(add, a, b))


def require_rowwise(
    factors: Sequence[Factor], columns: Columns, transforms: Transforms, state: State, levels: Levels
) -> None:
    """Refuse an expression in which a row depends on others, as in `lag(x)`: rows come in blocks. It is computed of
    some rows, and of each half of them.
    """
    rows = np.arange(columns.n)
    parts = [select_rows(columns, some) for some in (rows, *np.array_split(rows, 2))] if columns.n > 1 else []
    halves = [rows_with_levels(part, transforms, state, levels) for part in parts]
    for factor in factors if parts else ():
        if factor.expression is not None:
            with formulaic_errors(factor.text):
                values = [_numeric_columns(factor.expression.compute(some)) for some in halves]
            for whole, *separate in zip(*values, strict=True):
                if not np.allclose(whole, np.concatenate(separate), 1e-9, 1e-12, equal_nan=True):
                    raise DataError(
                        f"the formula's {factor.text[:80]!r} makes of a row what depends on other rows, and cannot be "
                        "used on rows in partitions: make a column of it first."
                    )


def _numeric_columns(values: Value) -> list[npt.NDArray[np.float64]]:
    """The columns of numbers that a factor has."""
    inner = getattr(values, "__wrapped__", values)
    arrays = [np.asarray(column) for column in (inner.values() if isinstance(inner, dict) else [inner])]
    return [np.asarray(array, np.float64) for array in arrays if array.ndim and array.dtype.kind in "iufb"]


def read_rows(
    table: PartitionedTable, sizes: npt.NDArray[np.int64], names: Sequence[str], places: npt.NDArray[np.int64]
) -> Columns:
    """Some of the rows that are used, by their numbers among all of them, which are in order. sizes: how many are used
    of each partition.
    """
    ends = np.cumsum([0, *sizes])
    tasks = [
        (k, list(names), places[low:high] - ends[k], table.drop)
        for k, (low, high) in enumerate(pairwise(np.searchsorted(places, ends)))
        if high > low
    ]
    return _concatenate(list(pass_over(table.workers, table.source, take_rows, tasks, "rows for average effects")))


def take_rows(
    source: Source, number: int, names: list[str], places: npt.NDArray[np.int64], drop: tuple[str, ...]
) -> Columns:
    """Some rows of one partition."""
    first, parts = 0, []
    for columns, _ in used_blocks(source, number, names, drop):
        low, high = np.searchsorted(places, [first, first + columns.n])
        parts.append(select_rows(columns, places[low:high] - first))
        first += columns.n
    return _concatenate(parts)


def _concatenate(parts: list[Columns]) -> Columns:
    """Blocks one after another; numbers as float64."""
    joined = {}
    for name, column in parts[0].by_name.items():
        values = np.concatenate([np.asarray(part[name].values) for part in parts])
        joined[name] = Column(column.kind, values.astype(np.float64) if column.kind == NUMBER else values, None)
    return Columns(joined, sum(part.n for part in parts))
