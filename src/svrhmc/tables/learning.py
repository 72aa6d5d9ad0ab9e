"""Passes over a table in partitions, which learn what a design needs (levels, means, knots), or read some rows."""

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
from svrhmc.tables.expressions import State, Value, parse_expression, wrapped_columns
from svrhmc.tables.formula import Factor
from svrhmc.tables.sources import Source
from svrhmc.tables.terms import Transforms, formulaic_errors, rows_with_levels, state_to_json
from svrhmc.tables.transforms import Learner, Statistic, make_learner

MOST_LEVELS = 1000
_ROWS = 1 << 18  # of a batch
Part = TypeVar("Part")
Levels = Mapping[str, tuple[Level, ...]]


class PartitionedTable(NamedTuple):
    """A table in partitions, the workers that read it, and the columns (`drop`) whose missing values leave a row out;
    without any, missing values are refused.
    """

    source: Source
    workers: Workers
    drop: tuple[str, ...]

    def over_partitions(self, work: Callable[..., Part], arguments: tuple[object, ...], purpose: str) -> list[Part]:
        """The result of work(source, number, *arguments, drop) for each partition. purpose: for progress."""
        rest: tuple[object, ...] = (*arguments, self.drop)
        tasks: list[tuple[int, *tuple[object, ...]]] = [(k, *rest) for k in range(len(self.source.sizes))]
        return list(pass_over(self.workers, self.source, work, tasks, purpose))


def complete_rows(columns: Columns) -> Columns:
    """The rows without missing values."""
    rows = columns.whole()
    return columns if rows.all() else select_rows(columns, np.flatnonzero(rows))


def select_rows(columns: Columns, places: npt.NDArray[np.int64]) -> Columns:
    """Rows by their numbers."""
    by_name = {name: Column(c.kind, c.values[places], None, (), c.ordered) for name, c in columns.by_name.items()}
    return Columns(by_name, len(places))


def used_blocks(
    source: Source, number: int, names: Sequence[str], drop: tuple[str, ...]
) -> Iterator[tuple[Columns, dict[str, int]]]:
    """Blocks of the rows of a partition, without those that miss a value in a column of `drop`, and for each block how
    many values are missing by column.
    """
    for _, columns in source.columns(number, list(dict.fromkeys([*names, *drop])), _ROWS, bool(drop)):
        yield (complete_rows(columns), columns.gaps()) if drop else (columns, {})


class Survey(NamedTuple):
    """What is known of some rows. Surveys of disjoint rows can be added up.

    rows: how many are used. gaps: how many values are missing, by column. values: the different values of each column;
    None if there are too many. orders: the order of the levels of ordered categories. ends: for columns of numbers the
    smallest, the largest, and whether all are whole.
    """

    rows: int
    gaps: dict[str, int]
    values: dict[str, Any]
    orders: dict[str, tuple[Level, ...]]
    ends: dict[str, tuple[float, float, bool]]

    @staticmethod
    def empty(names: Sequence[str]) -> Survey:
        """The survey of no rows."""
        return Survey(0, {}, {name: set() for name in names}, {}, {})

    @staticmethod
    def of(columns: Columns, gaps: dict[str, int], names: Sequence[str]) -> Survey:
        """The survey of a block of rows."""
        surveyed = {name: columns[name] for name in names}
        ends = {}
        for name, column in surveyed.items():
            if column.kind == NUMBER and columns.n:
                x = np.asarray(column.values, np.float64)
                ends[name] = float(x.min()), float(x.max()), bool((x == np.floor(x)).all())
        values = {name: set(_distinct_values(column)) for name, column in surveyed.items()}
        orders = {name: tuple(column.values.different) for name, column in surveyed.items() if column.ordered}
        return Survey(columns.n, gaps, values, orders, ends)

    def __add__(self, other: Survey) -> Survey:  # type: ignore[override]
        gaps = {name: self.gaps.get(name, 0) + other.gaps.get(name, 0) for name in {**self.gaps, **other.gaps}}
        values = {name: _union(self.values[name], other.values.get(name)) for name in self.values}
        names = {**self.orders, **other.orders}
        orders = {name: _common_order(name, self.orders.get(name, ()), other.orders.get(name, ())) for name in names}
        ends = dict(self.ends)
        for name, (low, high, whole) in other.ends.items():
            own_low, own_high, own_whole = ends.get(name, (low, high, whole))
            ends[name] = min(low, own_low), max(high, own_high), whole and own_whole
        return Survey(self.rows + other.rows, gaps, values, orders, ends)


def survey_partition(source: Source, number: int, names: list[str], drop: tuple[str, ...]) -> Survey:
    """The survey of one partition."""
    total = Survey.empty(names)
    for columns, gaps in used_blocks(source, number, names, drop):
        total = total + Survey.of(columns, gaps, [name for name in names if total.values[name] is not None])
    return total


def survey_response(
    source: Source, number: int, text: str, transforms: Transforms, state: State, drop: tuple[str, ...]
) -> Survey:
    """The survey of a computed response in one partition. text: its expression."""
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
    """The levels of all partitions together, sorted; None if there are too many, or if one partition has None."""
    levels: set[Level] | None = set()
    for part in parts:
        levels = _union(levels, None if part is None else set(part))
    return None if levels is None else sorted(levels)  # type: ignore[type-var]


def _common_order(name: str, a: tuple[Level, ...], b: tuple[Level, ...]) -> tuple[Level, ...]:
    """The common order of the levels of an ordered category in two partitions. Refuses different orders."""
    short, long = sorted((a, b), key=len)
    if tuple(level for level in long if level in set(short)) != short:
        raise DataError(f"the column {name!r} has its levels in one order in some partitions, and another in others.")
    return long


def first_rows(table: PartitionedTable, names: Sequence[str], most: int = 1000) -> Columns:
    """The first rows that are used, at most so many, all from one partition."""
    for number in np.flatnonzero(table.source.sizes):
        for columns, _ in used_blocks(table.source, int(number), names, table.drop):
            if columns.n:
                return select_rows(columns, np.arange(min(columns.n, most)))
    raise DataError("the table has no rows.")


def learn_states(table: PartitionedTable, factors: Sequence[Factor], transforms: Transforms, levels: Levels) -> State:
    """What the transformations of some factors learn from all rows. Each pass serves all calls that can learn at that
    time; a call within another learns before it.
    """
    expressions = [factor.expression for factor in dict.fromkeys(factors) if factor.expression is not None]
    waiting = {one.call_key(node): (one, node) for one in expressions for node in one.learning_calls}
    own_levels = {name: levels[name] for name in sorted({name for one in expressions for name in one.variables})}
    first = first_rows(table, list(own_levels)) if waiting else Columns({}, 0)
    state: State = {}
    active: dict[str, tuple[str, int, Learner, Statistic]] = {}

    def advance(key: str, text: str, place: int, steps: Learner, total: Value) -> None:
        try:
            active[key] = text, place, steps, steps.send(total)
        except StopIteration as stop:
            active.pop(key, None)
            state[key] = json.loads(state_to_json(stop.value, key))

    with formulaic_errors(" + ".join(one.text for one in expressions)):
        while waiting or active:
            for key, (one, node) in list(waiting.items()):
                inner = {
                    one.call_key(call) for call in ast.walk(node) if isinstance(call, ast.Call) and call is not node
                }
                if not inner & (waiting.keys() | active.keys()):
                    call = one.call(node, rows_with_levels(first, transforms, state, own_levels))
                    del waiting[key]
                    if call.learns:
                        advance(key, one.text, one.learning_calls.index(node), make_learner(call), None)
            if active:
                calls = [(text, place, statistic) for text, place, _, statistic in active.values()]
                parts = table.over_partitions(
                    sum_statistics, (calls, transforms, state, own_levels), "what transformations learn"
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
    """Sums over one partition of statistics of the first arguments of calls; None if the partition has no rows.

    calls: for each, the text of its expression, its place among the learning calls of that, and the statistic.
    """
    parsed_calls = [(parse_expression(text), place, statistic) for text, place, statistic in calls]
    total = None
    for columns, _ in used_blocks(source, number, list(levels), drop):
        if columns.n:
            rows, block = rows_with_levels(columns, transforms, state, levels), []
            for expression, place, statistic in parsed_calls:
                call = expression.call(expression.learning_calls[place], rows)
                block.append(statistic((call.arguments or list(call.keywords.values()))[0]))
            total = block if total is None else _add_statistics(total, block)
    return total


def _add_statistics(a: list[Value], b: list[Value]) -> list[Value]:
    return list(map(add, a, b))


def require_rowwise(
    factors: Sequence[Factor], columns: Columns, transforms: Transforms, state: State, levels: Levels
) -> None:
    """Refuse an expression in which a row depends on other rows, as in `lag(x)`, because rows come in blocks. The
    expression is computed at some rows, and at each half of them; both must be equal.
    """
    if columns.n < 2:
        return
    numbers = np.arange(columns.n)
    all_and_halves = [
        rows_with_levels(select_rows(columns, places), transforms, state, levels)
        for places in (numbers, *np.array_split(numbers, 2))
    ]
    for factor in factors:
        if factor.expression is not None:
            with formulaic_errors(factor.text):
                values = [_numeric_columns(factor.expression.compute(rows)) for rows in all_and_halves]
            for at_all, *at_halves in zip(*values, strict=True):
                if not np.allclose(at_all, np.concatenate(at_halves), 1e-9, 1e-12, equal_nan=True):
                    raise DataError(
                        f"the formula's {factor.text[:80]!r} makes of a row what depends on other rows, and cannot be "
                        "used on rows in partitions: make a column of it first."
                    )


def _numeric_columns(values: Value) -> list[npt.NDArray[np.float64]]:
    """The columns of numbers among the values of a factor."""
    arrays = [np.asarray(column) for column in wrapped_columns(values)]
    return [np.asarray(array, np.float64) for array in arrays if array.ndim and array.dtype.kind in "iufb"]


def read_rows(
    table: PartitionedTable, sizes: npt.NDArray[np.int64], names: Sequence[str], places: npt.NDArray[np.int64]
) -> Columns:
    """Rows by their numbers, in order, among all rows that are used. sizes: how many rows are used of each
    partition.
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
    """Rows of one partition by their numbers, in order."""
    first, parts = 0, []
    for columns, _ in used_blocks(source, number, names, drop):
        low, high = np.searchsorted(places, [first, first + columns.n])
        parts.append(select_rows(columns, places[low:high] - first))
        first += columns.n
    return _concatenate(parts)


def _concatenate(parts: list[Columns]) -> Columns:
    """Blocks of rows one after another, with numbers as float64."""
    joined = {}
    for name, column in parts[0].by_name.items():
        values = np.concatenate([np.asarray(part[name].values) for part in parts])
        joined[name] = Column(column.kind, values.astype(np.float64) if column.kind == NUMBER else values, None)
    return Columns(joined, sum(part.n for part in parts))
