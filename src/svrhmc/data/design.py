"""From a table in partitions to the rows of a model: passes that learn a design, and the reader that applies it.

A design needs the levels of categories and what transformations remember (means, knots, …). Both are sums over blocks
of rows, found by a few passes (`svrhmc.tables.transforms`); the design is then that of a table in memory, and
`TableReader` applies it to each block as it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError, nearest, requirement, truth
from svrhmc.data.sources import Source, missing_value
from svrhmc.data.workers import InPartitions, Workers, each_of
from svrhmc.tables import formula as grammar
from svrhmc.tables.columns import CATEGORY, NUMBER, TRUTH, Column, Columns, Texts, no_column, require_usable
from svrhmc.tables.design import (
    Design,
    coded_columns,
    design_of,
    log_exposure,
    no_whole_row,
    response_of,
    wanted,
)
from svrhmc.tables.expressions import expression, require_transforms
from svrhmc.tables.formula import Factor, Parsed, parsed
from svrhmc.tables.terms import (
    Category,
    Number,
    Term,
    Transforms,
    UnknownLevelError,
    encoded,
    plainly,
    remembered,
    to_text,
    with_levels,
)
from svrhmc.tables.transforms import learner
from svrhmc.targets.reading import BLOCK_ENTRIES, Block, Partitions, Reader

MOST_LEVELS = 1000
_MOST_CLASSES = 1000  # different numbers of a response that are counted
_ROWS = 1 << 18  # of a batch that is looked at for its values
_SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"}  # types that float32 holds exactly


@dataclass(frozen=True)
class Layout:
    """A design, and the columns of labels, offsets, exposures and weights.

    response: a column, or an expression. state: what it remembers, as JSON. levels: the classes of the labels, in the
    order in which they are numbered; None where labels are as they come. drop: whether rows with missing values are
    left out. ones: whether a column of ones comes first.
    """

    design: Design
    response: str
    dtype: str = "float64"
    offset: str | None = None
    exposure: str | None = None
    weights: str | None = None
    state: str | None = None
    levels: tuple[Any, ...] | None = None
    numbers: bool = False
    drop: bool = False
    ones: bool = False
    transforms: Transforms = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of X."""
        return (("Intercept",) if self.ones else ()) + self.design.names

    @property
    def columns(self) -> list[str]:
        """Of the table, that are read."""
        special = [name for name in (self.offset, self.exposure, self.weights) if name is not None]
        return list(dict.fromkeys([*self.factor.variables, *self.design.variables, *special]))

    @property
    def factor(self) -> Factor:
        """The response."""
        return Factor(self.response) if self.state is None else Factor(self.response, expression(self.response))

    def block(self, first: int, columns: Columns, where: str) -> Block:
        """Some rows of a partition."""
        X = np.empty((len(self.names), columns.n), self.dtype).T  # column by column, as it comes
        X[:, : int(self.ones)] = 1.0
        try:
            self.design.fill(columns, X[:, int(self.ones) :])
        except UnknownLevelError as error:
            raise DataError(
                f"{where}, row {first + error.row}, column {error.variable!r}: the category {error.level!r} was not "
                "there before; open the data again."
            ) from None
        y = self.labels(first, columns, where)
        offset, exposure, weights = (
            None if name is None else _numbers(columns[name], name, first, where)
            for name in (self.offset, self.exposure, self.weights)
        )
        if exposure is not None:
            offset = log_exposure(exposure) + (0.0 if offset is None else offset)
        if weights is not None and (weights < 0).any():
            row = int(np.argmax(weights < 0))
            raise DataError(f"{where}, row {first + row}: the weight in {self.weights!r} is below 0.")
        return Block(first, X, y, offset, weights)

    def labels(self, first: int, columns: Columns, where: str) -> npt.NDArray[Any]:
        """Numbers, or texts of one type; where classes are known, their numbers."""
        state = None if self.state is None else json.loads(self.state)
        column = response_of(self.factor, columns, self.transforms, state)
        if column.kind == NUMBER and column.values.dtype.kind == "f" and not (fine := np.isfinite(column.values)).all():
            raise missing_value(where, first + int(np.argmin(fine)), self.response)
        if self.levels is None:
            if self.numbers and column.kind != CATEGORY:
                return np.asarray(column.values, np.float64)
            values = np.asarray(column.values)
            return values.astype(str) if column.kind == CATEGORY else values
        codes = column.codes(self.levels)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise DataError(
                f"{where}, row {first + row} has the label {column.values[row]!r}, which was not there before."
            )
        return codes.astype(np.float64)


class TableReader(Reader):
    """The partitions of a table, by a layout."""

    def __init__(self, source: Source, layout: Layout, sizes: npt.NDArray[np.int64] | None = None) -> None:
        """sizes: the rows that are used of each partition; None: all."""
        self.source, self.layout = source, layout
        self.sizes = source.sizes if sizes is None else sizes
        self.names, self.dtype = layout.names, np.dtype(layout.dtype)
        self.has_offset = layout.offset is not None or layout.exposure is not None
        self.has_weights = layout.weights is not None

    def only(self, number: int) -> TableReader:
        """Of one partition."""
        return TableReader(self.source.only(number), self.layout, self.sizes[number : number + 1])

    def where(self, number: int) -> str:
        """As the table has it."""
        return self.source.where(number)

    def identity(self) -> list[str]:
        """That of the table, and which columns are used how."""
        return [*self.source.identity(), repr(self.layout)]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block."""
        for first, columns in self.columns(number, self.layout.columns, len(self.names)):
            yield self.layout.block(first, columns, self.where(number))

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """The one column, where no others say which rows are used."""
        names = self.layout.columns if self.layout.drop else list(self.layout.factor.variables)
        for first, columns in self.columns(number, names, 2):
            yield self.layout.labels(first, columns, self.where(number))

    def columns(self, number: int, names: Sequence[str], width: int) -> Iterator[tuple[int, Columns]]:
        """The columns of the rows that are used, as many at a time as fit a block of so many columns."""
        first, rows = 0, max(1024, BLOCK_ENTRIES // max(1, width))
        for place, columns in self.source.columns(number, names, rows, self.layout.drop):
            if not self.layout.drop:
                yield place, columns
            elif (some := _whole(columns)).n:
                yield first, some
                first += some.n


def _numbers(column: Column, name: str, first: int, where: str) -> npt.NDArray[np.float64]:
    if column.kind == CATEGORY:
        raise DataError(f"{where}, rows from {first} on: the column {name!r} has no numbers but texts.")
    return np.asarray(column.values, np.float64)


def _whole(columns: Columns) -> Columns:
    """The rows that miss nothing."""
    rows = columns.whole()
    if rows.all():
        return columns
    some = {name: Column(c.kind, c.values[rows], None, (), c.ordered) for name, c in columns.by_name.items()}
    return Columns(some, int(rows.sum()))


class TableInPartitions(InPartitions):
    """A table in partitions, for formulas; where it was said which columns are labels and features, rows as well."""

    def __init__(self, source: Source, workers: Workers, reader: TableReader | None, **special: str | None) -> None:
        """special: columns of offsets and weights, by those words."""
        self.source, self.workers, self.special, self._reader = source, workers, special, reader

    @property
    def reader(self) -> Reader:  # type: ignore[override]
        """Of labels and features."""
        if self._reader is None:
            raise requirement(
                "target",
                "the name of a column of the partitions",
                "None",
                "only fit with a formula takes them without one",
            )
        return self._reader

    def __repr__(self) -> str:
        columns = len(self.source.kinds) if self._reader is None else len(self._reader.names)
        return (
            f"Partitions({int(self.source.sizes.sum()):,} rows, {columns} columns, {len(self.source.sizes)} partitions)"
        )


def opened(
    source: Source,
    workers: Workers,
    target: str | None,
    features: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
    intercept: bool,
    what: str,
) -> TableInPartitions:
    """A table whose columns may be chosen already; what: its name, for errors."""
    special = {"offset": offset, "weights": weights}
    if target is None:
        if features is not None or intercept:
            raise requirement("target", "given where features or an intercept are", "None")
        _require_columns(source, [name for name in (offset, weights) if name is not None])
        reader = None
    else:
        chosen = chosen_columns(source, target, features, offset, weights, intercept)
        found = levels_of(source, workers, [name for name in chosen if source.kinds[name] == "text"])
        layout = Layout(
            plain_design(source, target, chosen, found), target, plain_dtype(source, chosen), offset,
            weights=weights, ones=intercept,
        )  # fmt: skip
        reader = TableReader(source, layout)
    if not source.sizes.sum():
        raise DataError(f"{what} has no rows.")
    return TableInPartitions(source, workers, reader, **special)


def chosen_columns(
    source: Source,
    target: str,
    features: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
    intercept: bool,
) -> list[str]:
    """The features; where none are named, every other column is one."""
    special = [name for name in (target, offset, weights) if name is not None]
    if isinstance(features, str):
        raise requirement("features", "a list of names, or None", repr(features))
    chosen = [name for name in source.kinds if name not in special] if features is None else list(features)
    _require_columns(source, [*special, *chosen])
    if len(set(chosen)) != len(chosen) or set(chosen) & set(special):
        raise requirement("features", "different columns, none of them the target, the offset or the weights", chosen)
    if not chosen and not truth("intercept", intercept):
        raise requirement("features", "at least one column", "none")
    for name in chosen:
        if source.kinds[name] == "other":
            raise DataError(f"the column {name!r} holds neither numbers nor texts; leave it out of features.")
    return chosen


def _require_columns(source: Source, names: Sequence[str]) -> None:
    for name in names:
        if name not in source.kinds:
            hint = nearest(str(name), list(source.kinds), 0.6) or f"there are {', '.join(list(source.kinds)[:8])}."
            raise DataError(f"there is no column {name!r}; {hint}")


def levels_of(source: Source, workers: Workers, names: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The levels of columns of texts, sorted."""
    levels = {name: source.levels[name] for name in names if name in source.levels}
    if asked := [name for name in names if name not in levels]:
        survey, _ = survey_of(source, workers, surveyed, (asked, asked, False), "levels")
        levels |= {name: survey.values[name] for name in asked}
    for name, known in levels.items():
        if known is None:
            raise DataError(f"the column {name!r} has more than {MOST_LEVELS} levels; leave it out of features.")
        if len(known) < 2:
            raise DataError(f"the column {name!r} has one level everywhere, which says nothing; leave it out.")
    return {name: tuple(sorted(known or ())) for name, known in levels.items()}


def plain_design(source: Source, target: str, names: Sequence[str], levels: Mapping[str, tuple[Any, ...]]) -> Design:
    """Numbers, and categories with their levels."""
    terms: tuple[Term, ...] = tuple(
        Category(name, levels[name]) if source.kinds[name] == "text" else Number(name) for name in names
    )
    return Design("", target, to_text(terms), False)


def plain_dtype(source: Source, names: Sequence[str]) -> str:
    """float32 where all numbers are of types that it holds exactly, and some are float32."""
    numeric = [source.kinds[name] for name in names if source.kinds[name] != "text"]
    return "float32" if "float32" in numeric and all(kind in _SMALL for kind in numeric) else "float64"


class Survey(NamedTuple):
    """Of some rows: how many are used, how many values are missing by column, and by column its different values (None:
    too many), the order that it has them in, and the ends of numbers and whether all are whole.
    """

    rows: int
    gaps: dict[str, int]
    values: dict[str, Any]
    orders: dict[str, tuple[Any, ...]]
    ends: dict[str, tuple[float, float, bool]]

    @staticmethod
    def nothing(asked: Sequence[str]) -> Survey:
        """Of no rows."""
        return Survey(0, {}, {name: set() for name in asked}, {}, {})

    @staticmethod
    def of(columns: Columns, gaps: dict[str, int], asked: Sequence[str]) -> Survey:
        """Of a block."""
        some = {name: columns[name] for name in asked}
        ends = {}
        for name, column in some.items():
            if column.kind == NUMBER and columns.n:
                x = np.asarray(column.values, np.float64)
                ends[name] = float(x.min()), float(x.max()), bool((x == np.floor(x)).all())
        values = {name: set(_different(column)) for name, column in some.items()}
        orders = {name: tuple(column.values.different) for name, column in some.items() if column.ordered}
        return Survey(columns.n, gaps, values, orders, ends)

    def __add__(self, other: Survey) -> Survey:  # type: ignore[override]
        gaps = {name: self.gaps.get(name, 0) + other.gaps.get(name, 0) for name in {**self.gaps, **other.gaps}}
        values = {name: _union(self.values[name], other.values.get(name)) for name in self.values}
        orders = {
            name: _order(name, self.orders.get(name), other.orders.get(name))
            for name in {**self.orders, **other.orders}
        }
        ends = dict(self.ends)
        for name, (low, high, whole) in other.ends.items():
            here = ends.get(name, (low, high, whole))
            ends[name] = min(low, here[0]), max(high, here[1]), whole and here[2]
        return Survey(self.rows + other.rows, gaps, values, orders, ends)


def surveyed(source: Source, number: int, names: list[str], asked: list[str], drop: bool) -> Survey:
    """Of one partition."""
    total = Survey.nothing(asked)
    for columns, gaps in _used(source, number, names, drop):
        total = total + Survey.of(columns, gaps, [name for name in asked if total.values[name] is not None])
    return total


def surveyed_response(source: Source, number: int, names: list[str], text: str, *learned: Any, drop: bool) -> Survey:
    """Of a response that is computed, in one partition. learned: functions and the state of the expression."""
    total, factor = Survey.nothing([text]), Factor(text, expression(text))
    for columns, gaps in _used(source, number, names, drop):
        y = Columns({text: response_of(factor, columns, *learned)}, columns.n)
        total = total + Survey.of(y, gaps, [text])
    return total


def survey_of(
    source: Source, workers: Workers, work: Callable[..., Survey], arguments: tuple[Any, ...], told: str
) -> tuple[Survey, npt.NDArray[np.int64]]:
    """Of all partitions, and how many rows are used of each."""
    parts = list(each_of(workers, source, work, [(k, *arguments) for k in range(len(source.sizes))], told))
    total, sizes = parts[0], [part.rows for part in parts]
    for part in parts[1:]:
        total = total + part
    return total, np.array(sizes, np.int64)


def _used(source: Source, number: int, names: list[str], drop: bool) -> Iterator[tuple[Columns, dict[str, int]]]:
    """Blocks of the rows that are used, with how many values are missing by column."""
    for _, columns in source.columns(number, names, _ROWS, drop):
        yield (_whole(columns), columns.gaps()) if drop else (columns, {})


def _different(column: Column) -> list[Any]:
    if isinstance(column.values, Texts):
        return column.values.present()
    values = np.asarray(column.values)
    few = np.unique(values[: _MOST_CLASSES * 2])
    return list((np.unique(values) if len(few) <= _MOST_CLASSES else few).tolist())


def _union(a: set[Any] | None, b: set[Any] | None) -> set[Any] | None:
    if a is None or b is None or len(union := a | b) > MOST_LEVELS:
        return None
    return union


def _order(name: str, a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """One order of the levels of an ordered category, where partitions agree on it."""
    short, long = sorted((a or (), b or ()), key=len)
    if tuple(level for level in long if level in set(short)) != short:
        raise DataError(f"the column {name!r} has its levels in one order in some partitions, and another in others.")
    return long


@dataclass(frozen=True, eq=False)
class Opened:
    """What a formula asks of a table in partitions, and what one pass found: `columns` has no rows but the kind and
    levels of each column, and y what is known of the response.
    """

    formula: str
    made: Parsed
    data: TableInPartitions
    columns: Columns
    y: Column
    ends: tuple[float, float, bool] | None
    sizes: npt.NDArray[np.int64]
    drop: bool
    transforms: Transforms
    state: dict[str, Any] | None

    @property
    def dropped(self) -> int:
        """How many rows are left out."""
        return int(self.data.source.sizes.sum() - self.sizes.sum())

    def rows(self, levels: tuple[Any, ...] | None, special: Mapping[str, str | None]) -> tuple[InPartitions, Design]:
        """Rows for a target. levels: the classes of labels, in the order in which they are numbered."""
        design = design_of(self.formula, self.made, self.columns, self.transforms, self._encode)
        source, response = self.data.source, self.made.response
        plain = all(term.kind != "made" for term in design.made_of)
        state = None if self.state is None else remembered(self.state, response.text)
        layout = Layout(
            design, response.text, plain_dtype(source, design.variables) if plain else "float64", state=state,
            levels=levels, numbers=levels is None, drop=self.drop, transforms=self.transforms,
            offset=special["offset"], exposure=special["exposure"], weights=special["weights"],
        )  # fmt: skip
        return self.data.read_by(TableReader(source, layout, self.sizes)), design

    def _encode(
        self, terms: Sequence[grammar.Term], intercept: bool, columns: Columns
    ) -> tuple[dict[str, Any], list[str]]:
        factors = [factor for term in terms for factor in term.factors]
        state = learned(self, factors, columns)
        levels = {name: column.levels for name, column in columns.by_name.items()}
        first = with_levels(first_rows(self, list(columns.by_name)), levels)
        _require_alone(factors, first, self.transforms, state, levels)
        names = encoded(terms, intercept, first, self.transforms, state, levels, self.columns.n)[1]
        return state, names


def opened_by(
    formula: str, data: TableInPartitions, extra: Sequence[str], drop: bool, transforms: Transforms | None
) -> Opened:
    """Read a formula, and find the levels that it needs."""
    given, source = require_transforms(transforms), data.source
    made = parsed(formula, list(source.kinds))
    names = list(dict.fromkeys([*wanted(made), *extra]))
    for name in names:
        if name not in source.kinds:
            raise no_column("the table", name, list(source.kinds))
    special = {name for name in names if source.kinds[name] == "text"} | coded_columns(made)
    response = made.response
    asked = [name for name in names if name in special] + [
        name for name in response.variables if name not in special and response.expression is None
    ]
    survey, sizes = survey_of(source, data.workers, surveyed, (names if drop else asked, asked, drop), "levels")
    sizes = sizes if drop else source.sizes
    if not sizes.sum():
        raise no_whole_row(survey.gaps) if survey.gaps else DataError("the table has no rows.")
    heads = {name: _head(name, source, survey) for name in names}
    for name, column in heads.items():
        if name in special and survey.values[name] is None and name not in response.variables:
            raise DataError(
                f"column {name!r} has more than {MOST_LEVELS} different values, each of which would be a category: "
                "leave it out of the formula, or take it as a number."
            )
        require_usable(name, column)
    columns, text = Columns(heads, int(sizes.sum())), response.text
    opened_ = Opened(formula, made, data, columns, Column(NUMBER, np.zeros(0), None), None, sizes, drop, given, None)
    if response.expression is not None:
        state = learned(opened_, [response], columns)
        needs = {name: columns[name].levels for name in response.variables}
        work = partial(surveyed_response, drop=drop)
        survey, _ = survey_of(source, data.workers, work, (list(needs), text, given, state), "the response")
        opened_ = replace(opened_, state=state)
    y = heads.get(text, opened_.y)
    if y.kind != CATEGORY and survey.values[text] is not None:
        y = replace(y, levels=tuple(sorted(survey.values[text])))
    return replace(opened_, y=y, ends=survey.ends.get(text))


def _head(name: str, source: Source, survey: Survey) -> Column:
    """Kind and levels of a column, without its rows."""
    kind = {"text": CATEGORY, "bool": TRUTH}.get(source.kinds[name], NUMBER)
    values = survey.values.get(name)
    order = survey.orders.get(name, source.orders.get(name))
    if values is None or (kind != CATEGORY and order is None and name not in survey.values):
        return Column(kind, np.zeros(0), None)
    levels = tuple(level for level in order if level in values) if order else tuple(sorted(values))
    if kind != CATEGORY:
        levels = tuple(float(level) if kind == NUMBER else level for level in levels)
    return Column(kind, np.zeros(0), None, levels, bool(order))


def first_rows(table: Opened, names: list[str], most: int = 1000) -> Columns:
    """Some rows that are used, of the first partition that has any."""
    source, size = table.data.source, 0
    for number in np.flatnonzero(table.sizes):
        for _, columns in source.columns(int(number), names, _ROWS, table.drop):
            some = _whole(columns) if table.drop else columns
            size = min(some.n, most)
            if size:
                rows = np.arange(some.n) < size
                return Columns({name: Column(c.kind, c.values[rows], None) for name, c in some.by_name.items()}, size)
    raise DataError("the table has no rows.")


def learned(table: Opened, factors: Sequence[Factor], columns: Columns) -> dict[str, Any]:
    """What the transformations of some factors remember, found by as many passes as the slowest of them needs; one
    within another waits for that.
    """
    levels = {name: column.levels for name, column in columns.by_name.items()}
    expressions = [factor.expression for factor in dict.fromkeys(factors) if factor.expression is not None]
    waiting = {each.key(call): (each, call) for each in expressions for call in each.learning}
    if not waiting:
        return {}
    names = sorted({name for each in expressions for name in each.variables})
    first = with_levels(first_rows(table, names), {name: levels[name] for name in names}).series()
    rows = len(next(iter(first.values()))) if first else 0
    state: dict[str, Any] = {}
    for key, (each, node) in waiting.items():  # inner calls first
        with plainly(each.text):
            call = each.call(node, first, rows, table.transforms, state, levels)
            if not call.learns:
                continue
            steps = learner(call)
            try:
                statistic = next(steps)
                while True:
                    task = (
                        names,
                        each.text,
                        each.learning.index(node),
                        statistic,
                        table.transforms,
                        state,
                        levels,
                        table.drop,
                    )
                    parts = each_of(
                        table.data.workers, table.data.source, summed,
                        [(k, *task) for k in range(len(table.sizes))], f"what {key} needs",
                    )  # fmt: skip
                    present = [part for part in parts if part is not None]
                    total = present[0]
                    for part in present[1:]:
                        total = total + part
                    statistic = steps.send(total)
            except StopIteration as stop:
                state[key] = json.loads(remembered(stop.value, key))
    return state


def summed(
    source: Source, number: int, names: list[str], text: str, place: int, statistic: Callable[[Any], Any],
    transforms: Transforms, state: dict[str, Any], levels: Mapping[str, tuple[Any, ...]], drop: bool,
) -> Any:  # fmt: skip
    """A statistic of the first argument of a call, over one partition; None where it has no rows."""
    whole, total = expression(text), None
    node = whole.learning[place]
    for _, columns in source.columns(number, names, _ROWS, drop):
        some = _whole(columns) if drop else columns
        if some.n:
            series = with_levels(some, {name: levels[name] for name in names}).series()
            call = whole.call(node, series, some.n, transforms, state, levels)
            part = statistic(call.arguments[0] if call.arguments else next(iter(call.keywords.values())))
            total = part if total is None else total + part
    return total


def _require_alone(
    factors: Sequence[Factor],
    columns: Columns,
    transforms: Transforms,
    state: dict[str, Any],
    levels: Mapping[str, Any],
) -> None:
    """Refuse an expression in which a row depends on others, as that of `lag`: rows come in blocks."""
    half = max(1, columns.n // 2)
    series = columns.series()
    for factor in factors:
        if factor.expression is None or columns.n < 2:
            continue
        with plainly(factor.text):
            whole, *parts = (
                _plain(
                    factor.expression.compute(
                        {n: s.iloc[some].reset_index(drop=True) for n, s in series.items()},
                        len(range(columns.n)[some]),
                        transforms,
                        state,
                        levels,
                    )
                )
                for some in (slice(None), slice(half), slice(half, None))
            )
        for one, *others in zip(whole, *parts, strict=True):
            together = np.concatenate(others)
            same = (
                np.allclose(one, together, 1e-9, 1e-12, equal_nan=True)
                if one.dtype.kind == "f"
                else (one == together).all()
            )
            if not same:
                raise DataError(
                    f"the formula's {factor.text[:80]!r} makes of a row what depends on other rows, and cannot be used "
                    "on rows in partitions: make a column of it first."
                )


def _plain(values: Any) -> list[npt.NDArray[Any]]:
    inner = getattr(values, "__wrapped__", values)
    parts = (
        [part for key, part in inner.items() if not str(key).startswith("__")] if isinstance(inner, dict) else [inner]
    )
    arrays = [np.asarray(part) for part in parts]
    return [array.astype(np.float64) if array.dtype.kind in "iufb" else array.astype(str) for array in arrays]


def kept_rows(data: Partitions, names: Sequence[str], places: npt.NDArray[np.int64]) -> Columns:
    """The columns of some rows of all, by their numbers, which are in order."""
    ends = np.cumsum([0, *data.reader.sizes])
    cuts = np.searchsorted(places, ends)
    arguments = [
        (k, list(names), places[low:high] - ends[k]) for k, (low, high) in enumerate(pairwise(cuts)) if high > low
    ]
    parts = list(data.each(rows_at, arguments, "rows for average effects"))
    kinds = {name: parts[0][name].kind for name in names}
    values = {name: np.concatenate([np.asarray(part[name].values) for part in parts]) for name in names}
    return Columns(
        {n: Column(k, values[n] if k != NUMBER else values[n].astype(np.float64), None) for n, k in kinds.items()},
        len(places),
    )


def rows_at(reader: TableReader, number: int, names: list[str], places: npt.NDArray[np.int64]) -> Columns:
    """Of one partition."""
    wanted_names = reader.layout.columns if reader.layout.drop else names
    parts = []
    for first, columns in reader.columns(number, wanted_names, len(wanted_names)):
        low, high = np.searchsorted(places, [first, first + columns.n])
        parts.append({name: np.asarray(columns[name].values[places[low:high] - first]) for name in names})
        kinds = {name: columns[name].kind for name in names}
    return Columns(
        {name: Column(kinds[name], np.concatenate([p[name] for p in parts]), None) for name in names}, len(places)
    )
