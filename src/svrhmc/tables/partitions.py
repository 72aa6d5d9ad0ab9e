"""From a table in partitions to the rows of a model: passes that learn a design, and the reader that applies it.

A design needs the levels of categories and what transformations learn (means, knots, …). Both are sums over blocks of
rows, computed in a few passes (`svrhmc.tables.transforms`). The design is then the same as for a table in memory, and
`TableReader` applies it to each block as it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Values
from svrhmc.core.errors import DataError, boolean, did_you_mean, requirement
from svrhmc.rows.reading import BLOCK_ENTRIES, Block, Reader
from svrhmc.rows.workers import InPartitions, Workers
from svrhmc.tables import formula as grammar
from svrhmc.tables.columns import CATEGORY, NUMBER, TRUTH, Column, Columns, Level, require_usable, unknown_column_error
from svrhmc.tables.design import (
    Design,
    category_columns,
    design_of,
    log_exposure,
    no_complete_row_error,
    required_columns,
    response_column,
)
from svrhmc.tables.expressions import State, Value, parse_expression, require_transforms
from svrhmc.tables.formula import Factor, ParsedFormula, formula_error, parse_formula
from svrhmc.tables.learning import (
    MOST_LEVELS,
    PartitionedTable,
    Survey,
    complete_rows,
    first_rows,
    learn_states,
    require_rowwise,
    survey_partition,
    survey_response,
)
from svrhmc.tables.sources import Source, missing_value_error
from svrhmc.tables.terms import (
    Category,
    Number,
    Term,
    Transforms,
    UnknownLevelError,
    encode_terms,
    rows_with_levels,
    state_to_json,
    terms_to_json,
)

_SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"}  # types that float32 holds exactly


@dataclass(frozen=True)
class Layout:
    """A design, and the columns of labels, offsets, exposures and weights.

    response: a column, or an expression. state: what the expression learned, as JSON; None for a column. levels: the
    classes of the labels, in the order of their codes; () if labels are numbers; None if they are not yet coded. drop:
    whether rows with missing values are left out. ones: whether a column of ones comes first.
    """

    design: Design
    response: str
    dtype: str = "float64"
    offset: str | None = None
    exposure: str | None = None
    weights: str | None = None
    state: str | None = None
    levels: tuple[Level, ...] | None = None
    drop: bool = False
    ones: bool = False
    transforms: Transforms = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of X."""
        return (("Intercept",) if self.ones else ()) + self.design.names

    @property
    def columns(self) -> list[str]:
        """The columns of the table that are read."""
        special = [name for name in (self.offset, self.exposure, self.weights) if name is not None]
        return list(dict.fromkeys([*self.factor.variables, *self.design.variables, *special]))

    @property
    def factor(self) -> Factor:
        """The response, as a factor of the formula."""
        return Factor(self.response) if self.state is None else Factor(self.response, parse_expression(self.response))

    def block(self, first: int, columns: Columns, where: str) -> Block:
        """The rows of a model from a block of a partition. first: the number of the first row. where: the name of the
        partition, for errors.
        """
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
            None if name is None else _numeric_values(columns[name], name, first, where)
            for name in (self.offset, self.exposure, self.weights)
        )
        if exposure is not None:
            offset = log_exposure(exposure) + (0.0 if offset is None else offset)
        if weights is not None and (weights < 0).any():
            row = int(np.argmax(weights < 0))
            raise DataError(f"{where}, row {first + row}: the weight in {self.weights!r} is below 0.")
        return Block(first, X, y, offset, weights)

    def labels(self, first: int, columns: Columns, where: str) -> Values:
        """The labels of a block: numbers or texts, or if the classes are known, their codes."""
        state = None if self.state is None else json.loads(self.state)
        column = response_column(self.factor, columns, self.transforms, state)
        if np.ndim(column.values) == 2:
            raise DataError(
                f"the response {self.response!r} has several bounds in each row, which rows in partitions do not have: "
                "read the table into memory, or take Surv(time, event)."
            )
        if column.kind == NUMBER and column.values.dtype.kind == "f" and not (fine := np.isfinite(column.values)).all():
            raise missing_value_error(where, first + int(np.argmin(fine)), self.response)
        if not self.levels and column.kind != CATEGORY:
            return np.asarray(column.values, None if self.levels is None else np.float64)
        if not self.levels:
            return np.asarray(column.values).astype(str)
        codes = column.codes(self.levels)
        if (codes < 0).any():
            row = int(np.argmax(codes < 0))
            raise DataError(
                f"{where}, row {first + row} has the label {column.values[row]!r}, which was not there before."
            )
        return codes.astype(np.float64)


class TableReader(Reader):
    """Reads the partitions of a table by a layout."""

    def __init__(self, source: Source, layout: Layout, sizes: npt.NDArray[np.int64] | None = None) -> None:
        """sizes: how many rows are used of each partition; None: all."""
        self.source, self.layout = source, layout
        self.sizes = source.sizes if sizes is None else sizes
        self.names, self.dtype = layout.names, np.dtype(layout.dtype)
        self.has_offset = layout.offset is not None or layout.exposure is not None
        self.has_weights = layout.weights is not None

    def single_partition(self, number: int) -> TableReader:
        return TableReader(self.source.single_partition(number), self.layout, self.sizes[number : number + 1])

    def partition_name(self, number: int) -> str:
        """As the table has it."""
        return self.source.partition_name(number)

    def identity(self) -> list[str]:
        """The identity of the table, and how its columns are used."""
        return [*self.source.identity(), repr(self.layout)]

    def read(self, number: int) -> Iterator[Block]:
        for first, columns in self.columns(number, self.layout.columns, len(self.names)):
            yield self.layout.block(first, columns, self.partition_name(number))

    def labels(self, number: int) -> Iterator[Values]:
        """The labels alone. Other columns are read only if missing values in them leave rows out."""
        names = self.layout.columns if self.layout.drop else list(self.layout.factor.variables)
        for first, columns in self.columns(number, names, 2):
            yield self.layout.labels(first, columns, self.partition_name(number))

    def columns(self, number: int, names: Sequence[str], width: int) -> Iterator[tuple[int, Columns]]:
        """The columns of the rows that are used, in blocks whose design matrix has `width` columns."""
        first, rows = 0, max(1024, BLOCK_ENTRIES // max(1, width))
        for place, columns in self.source.columns(number, names, rows, self.layout.drop):
            if not self.layout.drop:
                yield place, columns
            elif (complete := complete_rows(columns)).n:
                yield first, complete
                first += complete.n


def _numeric_values(column: Column, name: str, first: int, where: str) -> npt.NDArray[np.float64]:
    if column.kind == CATEGORY:
        raise DataError(f"{where}, rows from {first} on: the column {name!r} has no numbers but texts.")
    return np.asarray(column.values, np.float64)


class TableInPartitions(InPartitions):
    """A table in partitions, for formulas. If the columns of labels and features were named, it also has rows."""

    def __init__(self, source: Source, workers: Workers, reader: TableReader | None, **special: str | None) -> None:
        """special: the columns of `offset` and `weights`."""
        self.source, self.workers, self.special, self._reader = source, workers, special, reader

    @property
    def reader(self) -> Reader:  # type: ignore[override]
        """The reader of labels and features."""
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


def open_partitions(
    source: Source,
    workers: Workers,
    target: str | None,
    features: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
    intercept: bool,
    what: str,
) -> TableInPartitions:
    """A table in partitions. target, features: the columns of labels and of X, if they are chosen already. what: the
    name of the table, for errors.
    """
    special = {"offset": offset, "weights": weights}
    if target is None:
        if features is not None or intercept:
            raise requirement("target", "given where features or an intercept are", "None")
        _require_columns(source, [name for name in (offset, weights) if name is not None])
        reader = None
    else:
        chosen = chosen_columns(source, target, features, offset, weights, intercept)
        levels = levels_of(source, workers, [name for name in chosen if source.kinds[name] == "text"])
        layout = Layout(
            plain_design(source, target, chosen, levels), target, plain_dtype(source, chosen), offset,
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
    """The columns of X: those named, or else all columns without another role."""
    special = [name for name in (target, offset, weights) if name is not None]
    if isinstance(features, str):
        raise requirement("features", "a list of names, or None", repr(features))
    chosen = [name for name in source.kinds if name not in special] if features is None else list(features)
    _require_columns(source, [*special, *chosen])
    if len(set(chosen)) != len(chosen) or set(chosen) & set(special):
        raise requirement("features", "different columns, none of them the target, the offset or the weights", chosen)
    if not chosen and not boolean("intercept", intercept):
        raise requirement("features", "at least one column", "none")
    for name in chosen:
        if source.kinds[name] == "other":
            raise DataError(f"the column {name!r} holds neither numbers nor texts; leave it out of features.")
    return chosen


def _require_columns(source: Source, names: Sequence[str]) -> None:
    for name in names:
        if name not in source.kinds:
            hint = did_you_mean(str(name), list(source.kinds), 0.6) or f"there are {', '.join(list(source.kinds)[:8])}."
            raise DataError(f"there is no column {name!r}; {hint}")


def levels_of(source: Source, workers: Workers, names: Sequence[str]) -> dict[str, tuple[Level, ...]]:
    """The sorted levels of columns of texts."""
    levels = {name: source.levels[name] for name in names if name in source.levels}
    if missing := [name for name in names if name not in levels]:
        survey = reduce(
            add, PartitionedTable(source, workers, ()).over_partitions(survey_partition, (missing,), "levels")
        )
        levels |= {name: survey.values[name] for name in missing}
    for name, texts in levels.items():
        if texts is None:
            raise DataError(f"the column {name!r} has more than {MOST_LEVELS} levels; leave it out of features.")
        if len(texts) < 2:
            raise DataError(f"the column {name!r} has one level everywhere, which says nothing; leave it out.")
    return {name: tuple(sorted(texts or ())) for name, texts in levels.items()}  # type: ignore[type-var]


def plain_design(source: Source, target: str, names: Sequence[str], levels: Mapping[str, tuple[Level, ...]]) -> Design:
    """The design whose terms are columns: numbers, and categories with their levels."""
    terms: tuple[Term, ...] = tuple(
        Category(name, levels[name]) if source.kinds[name] == "text" else Number(name) for name in names
    )
    return Design("", target, terms_to_json(terms), False)


def plain_dtype(source: Source, names: Sequence[str]) -> str:
    """float32 if some columns are float32 and it holds all others exactly; else float64."""
    numeric = [source.kinds[name] for name in names if source.kinds[name] != "text"]
    return "float32" if "float32" in numeric and all(kind in _SMALL for kind in numeric) else "float64"


@dataclass(frozen=True, eq=False)
class OpenedTable:
    """A table in partitions with a formula, and what the first passes learned.

    columns: the kind and the levels of each column, without rows. y: the response, without rows. ends: the smallest and
    the largest number of the response, and whether all are whole. sizes: how many rows are used of each partition.
    state: what a computed response learned.
    """

    formula: str
    parsed_formula: ParsedFormula
    table: PartitionedTable
    columns: Columns
    y: Column
    ends: tuple[float, float, bool] | None
    sizes: npt.NDArray[np.int64]
    transforms: Transforms
    state: State | None

    @property
    def dropped(self) -> int:
        """How many rows are left out."""
        return int(self.table.source.sizes.sum() - self.sizes.sum())

    def rows(self, levels: tuple[Level, ...] | None, special: Mapping[str, str | None]) -> tuple[InPartitions, Design]:
        """The rows of a target, and their design. levels: the classes of labels in the order of their codes; None if
        labels are numbers.
        """
        design = design_of(self.formula, self.parsed_formula, self.columns, self.transforms, self._encode)
        source, response = self.table.source, self.parsed_formula.response
        plain = all(term.kind != "made" for term in design.made_of)
        layout = Layout(
            design,
            response.text,
            plain_dtype(source, design.variables) if plain else "float64",
            special["offset"],
            special["exposure"],
            special["weights"],
            state=None if self.state is None else state_to_json(self.state, response.text),
            levels=levels or (),
            drop=bool(self.table.drop),
            transforms=self.transforms,
        )
        return InPartitions(TableReader(source, layout, self.sizes), self.table.workers), design

    def _encode(
        self, terms: Sequence[grammar.Term], intercept: bool, columns: Columns
    ) -> tuple[dict[str, Value], list[str]]:
        factors = list(dict.fromkeys(factor for term in terms for factor in term.factors))
        levels = {name: column.levels for name, column in columns.by_name.items()}
        state = learn_states(self.table, factors, self.transforms, levels)
        first = first_rows(self.table, list(levels))
        require_rowwise(factors, first, self.transforms, state, levels)
        rows = rows_with_levels(first, self.transforms, state, levels)
        return state, encode_terms(terms, intercept, rows, self.columns.n)[1]


def open_by_formula(
    formula: str, data: TableInPartitions, extra: Sequence[str], drop: bool, transforms: Transforms | None
) -> OpenedTable:
    """Parse a formula for a table in partitions, and find the levels that it needs."""
    given, source = require_transforms(transforms), data.source
    data.workers.require_importable(given)
    parsed_formula = parse_formula(formula, list(source.kinds))
    if parsed_formula.smooths:
        raise formula_error(
            formula,
            f"smooths such as {parsed_formula.smooths[0].text} need the whole table in memory: read it first, as "
            "pandas.read_parquet or pandas.read_csv do, or take bs(x, df=…), a spline without a penalty",
        )
    if parsed_formula.groups:
        raise formula_error(
            formula,
            f"effects of groups such as {parsed_formula.groups[0].text} need the whole table in memory: read it first, "
            "as pandas.read_parquet or pandas.read_csv do, or take C(g), which has a coefficient for each level",
        )
    response, names = parsed_formula.response, list(dict.fromkeys([*required_columns(parsed_formula), *extra]))
    for name in names:
        if name not in source.kinds:
            raise unknown_column_error("the table", name, list(source.kinds))
        if source.kinds[name] == "other":
            raise DataError(
                f"column {name!r} holds neither numbers nor truth values nor texts everywhere: make a number or a "
                "category of it first, such as days since the first date."
            )
    table = PartitionedTable(source, data.workers, tuple(names) if drop else ())
    special = {name for name in names if source.kinds[name] == "text"} | category_columns(parsed_formula)
    labels = {response.text} if response.expression is None else set()
    surveyed_names = [name for name in names if name in special | labels]
    parts = table.over_partitions(survey_partition, (surveyed_names,), "levels") if surveyed_names or drop else []
    survey = reduce(add, parts, Survey.empty(surveyed_names))
    sizes = np.array([part.rows for part in parts], np.int64) if drop else source.sizes
    if not sizes.sum():
        raise no_complete_row_error(survey.gaps) if survey.gaps else DataError("the table has no rows.")
    heads = {name: _column_without_rows(name, source, survey) for name in names}
    for name in names:
        if name in special - labels and survey.values[name] is None:
            raise DataError(
                f"column {name!r} has more than {MOST_LEVELS} different values, each of which would be a category: "
                "leave it out of the formula, or take it as a number."
            )
        require_usable(name, heads[name])
    columns, state, text = Columns(heads, int(sizes.sum())), None, response.text
    if response.expression is not None:
        levels = {name: heads[name].levels for name in response.variables}
        state = learn_states(table, [response], given, levels)
        require_rowwise([response], first_rows(table, response.variables), given, state, levels)
        survey = reduce(add, table.over_partitions(survey_response, (text, given, state), "the response"))
    y = heads.get(text, Column(NUMBER, np.zeros(0), None, tuple(sorted(survey.values[text] or ()))))
    return OpenedTable(formula, parsed_formula, table, columns, y, survey.ends.get(text), sizes, given, state)


def _column_without_rows(name: str, source: Source, survey: Survey) -> Column:
    """A column with its kind and levels, and without rows."""
    kind = {"text": CATEGORY, "bool": TRUTH}.get(source.kinds[name], NUMBER)
    values = survey.values.get(name) or ()
    order = survey.orders.get(name)
    levels = tuple(level for level in order if level in values) if order else tuple(sorted(values))
    if kind == NUMBER:
        levels = tuple(float(level) for level in levels)  # type: ignore[arg-type]
    return Column(kind, np.zeros(0), None, levels, bool(order))
