"""The columns of any table: pandas, polars, pyarrow (through narwhals) or a dictionary of sequences.

A column holds numbers, truth values or a category (texts). Anything else, such as dates, is refused with a hint on what
to make of it. Missing values are counted column by column.

The levels of a category are in the order that its type declares (ordered categories of pandas, an ordered dictionary of
pyarrow, an Enum of polars); without one they are sorted, because the order in which an unordered type stores its levels
means nothing. So the same values have the same first level, the baseline, in every kind of table.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Selection, Values
from svrhmc.core.errors import DataError, did_you_mean, missing_package
from svrhmc.core.serialise import is_text

Level = Hashable  # the value of a category: a text, a number or a truth value
Series = Any  # a column, or a whole table, of pandas, polars or pyarrow: they have no types in common
KINDS = NUMBER, TRUTH, CATEGORY = "number", "truth value", "category"


class CodedTexts:
    """A column of texts as a list of different texts and, for each row, the index of its text (−1: missing). A small
    file can hold one long text in a million rows.
    """

    def __init__(self, different: list[Level], numbers: Values) -> None:
        self.different, self.numbers = different, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Selection) -> Series:
        numbers = self.numbers[rows]
        return CodedTexts(self.different, numbers) if np.ndim(numbers) else self.different[numbers]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Values:
        values: Values = np.array([*self.different, None], object)
        return np.asarray(values[self.numbers])

    def tolist(self) -> list[Level]:
        """A list with the text of each row."""
        return list(np.asarray(self).tolist())

    def places(self, levels: tuple[Level, ...]) -> npt.NDArray[np.int64]:
        """The index of each row's text among some levels; −1 if it is not among them."""
        place = {level: k for k, level in enumerate(levels)}
        places = np.array([*(place.get(text, -1) for text in self.different), -1], np.int64)
        return np.asarray(places[self.numbers])

    def present_texts(self) -> list[Level]:
        """The different texts that occur in some row."""
        return [self.different[k] for k in np.unique(self.numbers) if k >= 0]


@dataclass(frozen=True, eq=False)
class Column:
    """A column of values of one kind.

    values: an array, or `CodedTexts`. gaps: which values are missing; None if none is. levels: of a category; ordered:
    whether the table declares their order. unused: further levels that the table declares and no row has. plain_texts:
    whether it is of texts, whose type does not say that they are a category.
    """

    kind: str
    values: Series
    gaps: npt.NDArray[np.bool_] | None
    levels: tuple[Level, ...] = ()
    ordered: bool = False
    unused: tuple[Level, ...] = ()
    plain_texts: bool = False

    def codes(self, levels: tuple[Level, ...]) -> npt.NDArray[np.int64]:
        """The index of each value among some levels; −1 if it is not among them."""
        if isinstance(self.values, CodedTexts):
            return self.values.places(levels)
        values, numbers = np.asarray(self.values), np.array(levels)
        if len(levels) and values.dtype.kind in "biuf" and numbers.dtype.kind in "biuf":
            order = np.argsort(numbers)
            places = order[np.searchsorted(numbers[order], values).clip(max=len(levels) - 1)]
            return np.where(numbers[places] == values, places, -1)
        place = {level: k for k, level in enumerate(levels)}
        return np.array([place.get(value, -1) for value in values.tolist()], np.int64)

    def distinct(self) -> tuple[Level, ...]:
        """The levels of a category, or the different numbers, sorted."""
        if self.levels or self.kind == CATEGORY:
            return self.levels or tuple(sorted(set(self.values.tolist())))
        return tuple(np.unique(self.values).tolist())

    def as_category(self) -> Column:
        """The column as a category, whatever its values are. Whole numbers become integers."""
        if self.kind == CATEGORY:
            return self
        whole = self.kind == NUMBER and bool(np.all(self.values[self._present_rows] % 1 == 0))
        values = np.array([int(value) if whole and value == value else value for value in self.values.tolist()], object)
        return Column(CATEGORY, values, self.gaps, tuple(sorted(set(values[self._present_rows].tolist()))))

    @property
    def _present_rows(self) -> Series:
        return slice(None) if self.gaps is None else ~self.gaps

    def kept(self, rows: npt.NDArray[np.bool_]) -> Column:
        """The column of some rows, given as a mask, none of which is missing. Levels without a row become `unused`."""
        values = self.values[rows]
        levels = _present_levels(values, np.zeros(len(values), bool), self.levels) if len(self.levels) else ()
        unused = _excluding((*self.levels, *self.unused), levels)
        return replace(self, values=values, gaps=None, levels=levels, unused=unused)


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of one length, by name."""

    by_name: dict[str, Column]
    n: int

    def __getitem__(self, name: str) -> Column:
        return self.by_name[name]

    def gaps(self) -> dict[str, int]:
        """How many values are missing, by column, for columns that miss any."""
        counts = {name: int(c.gaps.sum()) for name, c in self.by_name.items() if c.gaps is not None}
        return {name: count for name, count in counts.items() if count}

    def whole(self) -> npt.NDArray[np.bool_]:
        """Which rows have no missing value."""
        rows = np.ones(self.n, bool)
        for column in self.by_name.values():
            if column.gaps is not None:
                rows &= ~column.gaps
        return rows

    def kept(self, rows: npt.NDArray[np.bool_]) -> Columns:
        """The columns of some rows, given as a mask."""
        return Columns({name: column.kept(rows) for name, column in self.by_name.items()}, int(rows.sum()))

    def taken(self, rows: npt.NDArray[np.int64]) -> Columns:
        """The columns of rows given by number, which may repeat. No row may miss a value."""
        by_name = {name: replace(column, values=column.values[rows]) for name, column in self.by_name.items()}
        return Columns(by_name, len(rows))

    def replaced(self, name: str, rows: npt.NDArray[np.int64], values: Sequence[Level]) -> Columns:
        """The columns with new values in some rows of one column."""
        column = self.by_name[name]
        changed = np.array(np.asarray(column.values))
        changed[rows] = values
        levels = tuple(dict.fromkeys([*column.levels, *values])) if column.levels else ()
        return Columns({**self.by_name, name: replace(column, values=changed, levels=levels)}, self.n)

    def series(self) -> dict[str, Series]:
        """The columns as pandas series, for functions in formulas. Categories stay categories."""
        try:
            import pandas
        except ModuleNotFoundError:
            purpose = "a formula with functions, splines or interactions"
            raise missing_package("pandas and formulaic", "formula", purpose) from None
        series = {}
        for name, column in self.by_name.items():
            values: Series = column.values if column.kind != NUMBER else np.asarray(column.values, np.float64)
            if column.kind == CATEGORY:
                levels = column.distinct()
                values = pandas.Categorical.from_codes(column.codes(levels), categories=list(levels))
            series[name] = pandas.Series(values, name=name)
        return series


def column_names(table: object) -> list[str]:
    """The names of the columns of a table, as texts. Anything but a table is a `DataError`."""
    if isinstance(table, Columns):
        return list(table.by_name)
    return list(_labels_by_name(table if isinstance(table, Mapping) else _narwhals_frame(table)))


def _labels_by_name(frame: Series) -> dict[str, Series]:
    """The labels of the columns of a frame, by their names as texts. A label may be a number, or any key of a
    dictionary.
    """
    labels: dict[str, Series] = {}
    for label in frame if isinstance(frame, Mapping) else frame.columns:
        if labels.setdefault(str(label), label) is not label:
            other = labels[str(label)]
            raise DataError(f"the table has columns {other!r} and {label!r}, which have one name: rename one of them.")
    return labels


def _column_values(frame: Series, label: object) -> Series:
    """The values of a column, by its label. Columns of pandas are taken from pandas: narwhals would take a number for a
    position, and is slow.
    """
    if isinstance(frame, Mapping):
        return frame[label]
    native = frame.to_native()
    return native[label] if hasattr(native, "iloc") else frame[label]


def columns_of(
    table: object, names: Collection[str], what: str = "the table", open_columns: Collection[str] = ()
) -> Columns:
    """The columns with these names. A name that the table lacks is refused, with the nearest name that it has.

    open_columns: columns of bounds, which may be infinite or missing.

    >>> columns_of({"age": [31, 48], "plan": ["basic", "pro"]}, ["plan"])["plan"].kind
    'category'
    """
    if isinstance(table, Columns):
        for name in names:
            if name not in table.by_name:
                raise unknown_column_error(what, name, list(table.by_name))
        return Columns({name: table[name] for name in names}, table.n)
    frame = table if isinstance(table, Mapping) else _narwhals_frame(table)
    labels = _labels_by_name(frame)
    columns: dict[str, Column] = {}
    for name in names:
        if name not in labels:
            raise unknown_column_error(what, name, list(labels))
        columns[name] = _column_of(name, _column_values(frame, labels[name]))
        require_usable(name, columns[name])
        if name in open_columns:
            columns[name] = replace(columns[name], gaps=None)
        else:
            _require_finite(name, columns[name])
    lengths = {name: len(column.values) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{what} must have columns of one length; got {lengths}.")
    n = next(iter(lengths.values())) if lengths else _row_count(frame)
    if not n:
        raise DataError(f"{what} has no rows.")
    return Columns(columns, n)


def plain_columns(table: object, names: Sequence[str] | None = None) -> dict[str, Series]:
    """The columns of a table as pandas series, whatever they hold. names: None for all columns."""
    import pandas

    frame = table if isinstance(table, Mapping) else _narwhals_frame(table)
    labels = _labels_by_name(frame)
    columns: dict[str, Series] = {}
    for name in labels if names is None else names:
        if name not in labels:
            raise unknown_column_error("the table", name, list(labels))
        values = _column_values(frame, labels[name])
        values = values.to_pandas() if hasattr(values, "to_pandas") else values
        plain = values if hasattr(values, "iloc") else np.asarray(values)
        columns[name] = pandas.Series(plain).reset_index(drop=True)
    return columns


def row_labels(table: object, numbers: npt.NDArray[np.int64]) -> Series:
    """The names of some rows of a table, given by their numbers from 0 on: those of the index of a table of pandas, so
    that what is found for the rows can be put beside its columns; of any other table the numbers.
    """
    return table.index[numbers] if hasattr(table, "iloc") and hasattr(table, "index") else numbers


def require_usable(name: str, column: Column) -> None:
    """Refuse a category of many dates, as a CSV file may have them, and texts that no file can hold."""
    levels = column.levels
    if column.kind == CATEGORY and len(levels) > _MANY_DATES and all(_DATE.match(str(level)) for level in levels):
        raise DataError(
            f"column {name!r} holds {len(levels):,} different dates as texts, such as {levels[0]!r}, "
            "each of which would be a category of its own: make a number of them first, such as days since the first "
            "one ((pandas.to_datetime(column) - first).dt.days), or a category, such as the month."
        )
    odd = next((text for text in (name, *levels) if isinstance(text, str) and not is_text(text)), None)
    if odd is not None:
        raise DataError(f"column {name!r} has a control sign in {odd!r}, which no file can hold: rename it.")


def unknown_column_error(what: str, name: str, available: Sequence[str]) -> DataError:
    """The error for a column that a table lacks, with the nearest name that it has."""
    hint = did_you_mean(name, available[:_MOST_COMPARED]) or "it has " + ", ".join(map(repr, available[:12])) + _more(
        available
    )
    return DataError(f"{what} has no column {name!r}: {hint}")


_MOST_COMPARED = 10_000  # names that are compared with one that is not there
_READ_FIRST = ": read the file first, as pandas.read_csv does, or open what is beyond memory by svrhmc.data"
_MANY_DATES, _DATE = 24, re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b")


def _require_finite(name: str, column: Column) -> None:
    if column.kind == NUMBER and np.isinf(column.values).any():
        row = int(np.argmax(np.isinf(column.values)))
        raise DataError(
            f"column {name!r} must hold finite numbers; it is {column.values[row]} in row {row}: correct it, or leave "
            "that row out."
        )


def _more(names: Sequence[str]) -> str:
    return "." if len(names) <= 12 else f" and {len(names) - 12} more."


def _row_count(frame: Series) -> int:
    return len(next(iter(frame.values()))) if isinstance(frame, Mapping) and frame else len(frame)


def _narwhals_frame(table: object) -> Series:
    try:
        import narwhals
    except ModuleNotFoundError:
        raise missing_package("narwhals", "formula", "a data frame") from None
    try:
        return narwhals.from_native(table, eager_only=True)
    except narwhals.exceptions.DuplicateError as error:
        twice = " ".join(str(error).split()[-4:-2]).lstrip("- ")
        raise DataError(f"the table has several columns named {twice}: rename all but one of them.") from None
    except TypeError:
        hint = _READ_FIRST if isinstance(table, str | PathLike) else ""
        raise DataError(
            "the table must be a pandas, polars or pyarrow table, or a dictionary of columns; got "
            f"{type(table).__name__}{hint}."
        ) from None


def _column_of(name: str, values: Series) -> Column:
    """The column of any values: an array, a list, or a series of a data frame."""
    if isinstance(getattr(values, "dtype", None), np.dtype) and hasattr(values, "to_numpy"):  # pandas
        values = values.to_numpy()
    if hasattr(values, "to_native"):
        return _column_of_series(name, values)
    if hasattr(values, "dtype") and not isinstance(values, np.ndarray):  # a data frame's column, in a dictionary
        return _column_of_series(name, _narwhals().from_native(_as_series(values), series_only=True))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning: converting a masked element")  # it is nan, and so missing
            array = np.asarray(values)
    except ValueError:
        raise DataError(f"column {name!r} must be one value for each row; got lists of unequal lengths.") from None
    if array.ndim != 1:
        raise DataError(f"column {name!r} must be one value for each row; got an array of shape {array.shape}.")
    if isinstance(values, np.ma.MaskedArray):
        return _column_of_masked(name, array, np.ma.getmaskarray(values))
    return _column_of_array(name, array)


def _column_of_masked(name: str, array: Values, mask: npt.NDArray[np.bool_]) -> Column:
    """The column of a masked array. Values under the mask are missing."""
    unmasked = _column_of_array(name, array[~mask])
    values = np.full(len(array), _FILL_VALUES[unmasked.kind], unmasked.values.dtype)
    values[~mask] = unmasked.values
    gaps = mask.copy()
    gaps[~mask] = False if unmasked.gaps is None else unmasked.gaps
    return replace(unmasked, values=values, gaps=_mask_or_none(gaps))


_FILL_VALUES: dict[str, Series] = {NUMBER: np.nan, TRUTH: False, CATEGORY: None}  # where a value is missing


def _as_series(values: Series) -> Series:
    """A series of pandas for its indices and its own arrays (`Categorical`, …); any other series as it is."""
    if hasattr(values, "_from_sequence") or hasattr(values, "to_series"):
        import pandas

        return pandas.Series(values)
    return values


def _column_of_series(name: str, series: Series) -> Column:
    """The column of a narwhals series."""
    native = series.to_native()
    dtype, gaps = series.dtype, series.is_null().to_numpy().astype(bool)
    if dtype.is_integer():
        filled = (series.fill_null(series.min()) if gaps.any() and not gaps.all() else series).to_numpy()
        column = (
            _column_of_array(name, np.asarray(filled)) if not gaps.all() else Column(NUMBER, np.empty(len(gaps)), None)
        )
        return Column(NUMBER, np.where(gaps, np.nan, column.values), _mask_or_none(gaps))
    if dtype.is_numeric():
        values = np.asarray(series.cast(_narwhals().Float64()).to_numpy(), np.float64)
        return Column(NUMBER, values, _mask_or_none(gaps | np.isnan(values)))
    if dtype == _narwhals().Boolean:
        values = np.asarray(series.to_numpy())
        if values.dtype != bool:
            values = np.where(gaps, False, values).astype(bool)
        return Column(TRUTH, values, _mask_or_none(gaps))
    if dtype.is_temporal():
        raise date_column_error(name)
    if dtype in (_narwhals().Categorical, _narwhals().Enum):
        if hasattr(native, "cat") and hasattr(native.cat, "categories"):  # pandas
            levels = [
                level if _kind_of_value(level) else str(level) for level in native.cat.categories
            ]  # intervals, as of `cut`
            values = np.array(native.cat.rename_categories(levels).astype(object).to_numpy(), object)
            order = tuple(levels) if native.cat.ordered else _sorted_levels(name, levels)
            return _category_column(values, gaps, order, bool(native.cat.ordered))
        if hasattr(native, "type") and hasattr(native.type, "value_type"):  # pyarrow: what the codes stand for
            plain = _column_of(
                name, _narwhals().from_native(native.cast(native.type.value_type), series_only=True)
            ).as_category()
            if not native.type.ordered:
                return replace(plain, plain_texts=False)
            order = tuple(native.unify_dictionaries().chunk(0).dictionary.to_pylist())
            return _category_column(plain.values, gaps, order, True)
        ordered = tuple(dtype.categories) if dtype == _narwhals().Enum else ()
        values = np.array(series.cast(_narwhals().String()).to_numpy(), object)
        return _category_column(values, gaps, ordered, bool(ordered))
    if dtype == _narwhals().String:
        values = np.array(series.to_numpy(), object)
        return Column(CATEGORY, values, _mask_or_none(gaps), _present_levels(values, gaps, ()), plain_texts=True)
    return _column_of_array(name, np.asarray(series.to_numpy(), object))


def _sorted_levels(name: str, levels: list[Level]) -> tuple[Level, ...]:
    """Levels of an unordered category, sorted. Refuses levels of several kinds."""
    try:
        return tuple(sorted(levels))  # type: ignore[type-var]
    except TypeError:
        kinds = " and ".join(sorted({type(level).__name__ for level in levels}))
        raise DataError(f"column {name!r} has categories of several kinds ({kinds}): make texts of all.") from None


def date_column_error(name: str) -> DataError:
    """The error for a column of dates or times."""
    return DataError(
        f"column {name!r} holds dates or times, which are neither numbers nor categories: make a number of them "
        "first, such as days since the first one ((column - column.min()).dt.days in pandas), or a category, such as "
        "the month."
    )


def _category_column(values: Values, gaps: npt.NDArray[np.bool_], levels: tuple[Level, ...], ordered: bool) -> Column:
    """A category, with its levels divided into those that occur and those that do not."""
    present = _present_levels(values, gaps, levels)
    return Column(CATEGORY, values, _mask_or_none(gaps), present, ordered, _excluding(levels, present))


def _excluding(levels: Iterable[Level], present: Iterable[Level]) -> tuple[Level, ...]:
    """The levels that are not present, in order."""
    excluded = frozenset(present)
    return tuple(level for level in levels if level not in excluded)


def _present_levels(values: Values, gaps: npt.NDArray[np.bool_], levels: tuple[Level, ...]) -> tuple[Level, ...]:
    """The levels that occur, in the order of `levels`; if these are (), sorted."""
    present = set((values[~gaps] if gaps.any() else values).tolist())
    return tuple(level for level in levels if level in present) if levels else tuple(sorted(present))


def _column_of_array(name: str, array: Values) -> Column:
    """The column of an array of numbers, truth values, or texts with None or nan for missing ones."""
    if array.dtype.kind in "iuf":
        values = array.astype(np.float64)
        if array.dtype.kind in "iu" and len(array):
            _require_exact(name, int(array.min()), int(array.max()))
        return Column(NUMBER, values, _mask_or_none(np.isnan(values)))
    if array.dtype.kind == "b":
        return Column(TRUTH, array.astype(bool), None)
    if array.dtype.kind in "Mm":
        raise date_column_error(name)
    if array.dtype.kind == "U":
        return Column(CATEGORY, array.astype(object), None, tuple(sorted(set(array.tolist()))), plain_texts=True)
    if array.dtype.kind != "O":
        raise DataError(f"column {name!r} must hold numbers, truth values or texts; got {array.dtype}.")
    gaps = np.array([_is_missing(value) for value in array], bool)
    kinds = {_kind_of_value(value) for value in array[~gaps]}
    if kinds <= {NUMBER}:
        values = np.array([np.nan if gap else float(value) for value, gap in zip(array, gaps, strict=True)])
        wholes = [value for value in array[~gaps].tolist() if isinstance(value, int)]
        if wholes:
            _require_exact(name, min(wholes), max(wholes))
        return Column(NUMBER, values, _mask_or_none(gaps))
    if kinds == {TRUTH}:
        return Column(TRUTH, np.where(gaps, False, array).astype(bool), _mask_or_none(gaps))
    if kinds == {CATEGORY}:
        levels = tuple(sorted(set(array[~gaps].tolist())))
        return Column(CATEGORY, array, _mask_or_none(gaps), levels, plain_texts=True)
    texts = [k for k, value in enumerate(array) if not gaps[k] and _kind_of_value(value) == CATEGORY]
    odd = next((k for k, value in enumerate(array) if not gaps[k] and _kind_of_value(value) is None), None)
    if odd is not None:
        raise DataError(f"column {name!r} must hold numbers, truth values or texts; row {odd} is {array[odd]!r:.40}.")
    raise DataError(
        f"column {name!r} mixes texts and numbers: row {texts[0]} is {array[texts[0]]!r:.40}. Make all of it numbers, "
        "or all of it texts."
    )


def _require_exact(name: str, low: int, high: int) -> None:
    """Refuse whole numbers whose differences are lost in float64: their rounding, half the spacing of float64 at the
    largest one, must be below a millionth of their range.
    """
    largest = max(abs(low), abs(high))
    if (
        low < high
        and largest > _EXACT_INTEGERS
        and float(np.spacing(float(largest))) / 2 > _RELATIVE_LOSS * (high - low)
    ):
        raise DataError(
            f"column {name!r} holds whole numbers from {low:,} to {high:,}, whose differences are lost in float64: "
            "subtract the smallest one first (column - column.min()), or leave the column out where it names rows."
        )


_EXACT_INTEGERS, _RELATIVE_LOSS = 1 << 53, 1e-6


def _is_missing(value: Series) -> bool:
    """Whether a value is missing: None, nan, or pandas.NA, whose comparison with itself is pandas.NA."""
    differs = value != value
    return value is None or differs is value or (isinstance(differs, bool | np.bool_) and bool(differs))


def _kind_of_value(value: object) -> str | None:
    import numbers
    from decimal import Decimal

    if isinstance(value, str):
        return CATEGORY
    if isinstance(value, bool | np.bool_):
        return TRUTH
    return NUMBER if isinstance(value, numbers.Real | Decimal) else None


def _mask_or_none(gaps: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return gaps if gaps.any() else None


def _narwhals() -> ModuleType:
    import narwhals

    return narwhals
