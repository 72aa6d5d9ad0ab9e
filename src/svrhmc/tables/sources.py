"""Tables in partitions: sources that yield columns batch by batch, and the columns of a batch."""

from __future__ import annotations

import glob
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from svrhmc.core.arrays import Indices, Integers
from svrhmc.core.errors import DataError
from svrhmc.core.storage import require_file
from svrhmc.tables.columns import CATEGORY, NUMBER, TRUTH, CodedTexts, Column, Columns, Level, Series, date_column_error

LONGEST = 400  # bytes of a category or a label
Batch = tuple[int, Mapping[str, Series]]  # the number of its first row, and columns of pyarrow or pandas


class Source(ABC):
    """A table in partitions. It is sent to workers, so it holds names of files and not their contents.

    sizes: the number of rows of each partition. kinds: of each column the name of a type of numbers ("float32", "bool",
    …), "text" or "other". levels: of columns of texts, if they are known; None if there are too many. ordered: columns
    of texts whose levels have an order.
    """

    sizes: Indices
    kinds: Mapping[str, str]
    levels: Mapping[str, Sequence[Level] | None] = {}
    ordered: Collection[str] = ()

    @abstractmethod
    def batches(self, number: int, names: Sequence[str], rows: int) -> Iterator[Batch]:
        """Some columns of a partition, in batches of about so many rows."""

    @abstractmethod
    def single_partition(self, number: int) -> Source:
        """The same with one partition, which has the number 0: all that a worker needs of it."""

    @abstractmethod
    def partition_name(self, number: int) -> str:
        """What a partition is called, for errors."""

    @abstractmethod
    def identity(self) -> list[str]:
        """What has to be the same for an interrupted run to continue."""

    def columns(
        self, number: int, names: Sequence[str], rows: int, gaps: bool = False
    ) -> Iterator[tuple[int, Columns]]:
        """The same as `batches`, as columns of a table. gaps: whether missing values are marked; if not, they are
        refused, but for nan, which a later pass finds.
        """
        where = self.partition_name(number)
        for first, batch in self.batches(number, names, rows):
            columns = {name: column_of(values, name, where, name in self.ordered) for name, values in batch.items()}
            count = len(next(iter(columns.values())).values)
            for name, column in columns.items():
                if gaps and column.kind == NUMBER and column.gaps is None and column.values.dtype.kind == "f":
                    absent = np.isnan(column.values)
                    columns[name] = Column(NUMBER, column.values, absent if absent.any() else None)
                elif not gaps and column.gaps is not None:
                    raise missing_value_error(where, first + int(np.argmax(column.gaps)), name)
            yield first, Columns(columns, count)


def column_of(values: Series, name: str, where: str, ordered: bool = False) -> Column:
    """A column of a batch, from a column of pyarrow or pandas. Numbers keep their type, and texts are coded."""
    if hasattr(values, "null_count"):
        return _column_of_arrow(values, name, where, ordered)
    kind = kind_of(values.dtype)
    if kind == "text":
        return _column_of_texts(*_factorise(values), name, where, ordered)
    gaps = np.asarray(values.isna())
    if kind == "other":
        raise _kind_error(name, str(values.dtype), where)
    if not gaps.any():
        array = np.asarray(values.to_numpy())
        array = array.astype(bool if kind == "bool" else np.float64) if array.dtype == object else array
        return Column(TRUTH if kind == "bool" else NUMBER, array, None)
    if kind == "bool":
        return Column(TRUTH, values.to_numpy(bool, na_value=False), gaps)
    return Column(NUMBER, values.to_numpy(np.float64, na_value=np.nan), gaps)


def _column_of_arrow(values: Series, name: str, where: str, ordered: bool) -> Column:
    from pyarrow import compute, types

    kind = values.type
    if types.is_string(kind) or types.is_large_string(kind):
        values = values.dictionary_encode()
    if types.is_dictionary(values.type):
        texts = values.dictionary
        if types.is_string(texts.type) or types.is_large_string(texts.type):
            require_short(compute.max(compute.binary_length(texts)).as_py() or 0, name, where)
        try:
            different = texts.to_pylist()
        except UnicodeDecodeError:
            raise DataError(f"{where}: the column {name!r} has a text that is not in UTF-8.") from None
        numbers = np.asarray(values.indices.fill_null(-1) if values.null_count else values.indices)
        return _column_of_texts(numbers, different, name, where, ordered)
    gaps = np.asarray(values.is_null()) if values.null_count else None
    if types.is_boolean(kind):
        values = values if gaps is None else values.fill_null(False)
        return Column(TRUTH, np.asarray(values.to_numpy(zero_copy_only=False)), gaps)
    if types.is_integer(kind) or types.is_floating(kind):
        return Column(NUMBER, np.asarray(values.to_numpy(zero_copy_only=False)), gaps)
    if types.is_null(kind):
        return Column(NUMBER, np.full(len(values), np.nan), gaps)
    raise _kind_error(name, str(kind), where)


def _factorise(values: Series) -> tuple[Indices, list[Level]]:
    """The different texts of a pandas series, and for each row the index of its text."""
    import pandas

    if hasattr(values, "cat"):
        return np.asarray(values.cat.codes), values.cat.categories.tolist()
    numbers, different = pandas.factorize(values)
    return np.asarray(numbers), list(different)


def _column_of_texts(numbers: Integers, different: list[Level], name: str, where: str, ordered: bool) -> Column:
    require_short(max((len(text) for text in different if isinstance(text, str)), default=0), name, where)
    if not all(isinstance(text, str) for text in different):
        raise _kind_error(name, "values of several types", where)
    gaps = numbers < 0
    return Column(CATEGORY, CodedTexts(different, numbers), gaps if gaps.any() else None, (), ordered)


def require_short(longest: int, name: str, where: str) -> None:
    """Refuse texts too long for a category or a label: an array of texts takes the longest length for every row."""
    if longest > LONGEST:
        raise DataError(
            f"{where}: the column {name!r} has a text of {longest:,} bytes, and a category or a label has at most "
            f"{LONGEST}: leave that column out, or shorten its texts."
        )


def _kind_error(name: str, kind: str, where: str) -> DataError:
    if any(word in kind for word in ("date", "time", "duration")):
        return date_column_error(name)
    return DataError(f"{where}: the column {name!r} must hold numbers, truth values or texts; got {kind}.")


def kind_of(dtype: Series) -> str:
    """The kind of a column of pandas: the name of a type of numbers, "text" or "other"."""
    name = str(dtype).lower()
    if name == "category":
        return kind_of(dtype.categories.dtype) if kind_of(dtype.categories.dtype) == "text" else "other"
    if name.startswith(("string", "object", "str", "large_string")):
        return "text"
    plain = {"boolean": "bool", "double[pyarrow]": "float64", "float[pyarrow]": "float32"}.get(name, name)
    plain = plain.removesuffix("[pyarrow]")
    return plain if plain.startswith(("int", "uint", "float", "bool")) else "other"


def missing_value_error(where: str, row: int, name: str) -> DataError:
    """The error for a missing value."""
    return DataError(
        f"{where}, row {row}, column {name!r}: a missing value. Fill such values in, or leave these rows out."
    )


def list_files(path: str | os.PathLike[str] | list[str | os.PathLike[str]], suffixes: tuple[str, ...]) -> list[str]:
    """Files of a folder, of a pattern such as "part-*.parquet", or of a list, in the order of their names."""
    if isinstance(path, (list, tuple)):
        files = [str(file) for file in path]
    elif os.path.isdir(path):
        try:
            files = sorted(str(file) for file in Path(path).rglob("*") if file.suffix in suffixes and file.is_file())
        except OSError as error:
            raise DataError(f"the folder {path} cannot be read: {error.strerror} ({error.filename}).") from None
        if not files:
            raise DataError(f"the folder {path} has no {' or '.join(suffixes)} file in it.")
    elif os.path.exists(path):
        files = [str(path)]
    else:
        files = sorted(glob.glob(str(path), recursive=True))
        if not files:
            raise DataError(f"{path} is not there: give a file, a folder, or a pattern such as 'data/part-*.parquet'.")
    if not files:
        raise DataError("there are no files in the list.")
    for file in files:
        if not os.path.exists(file):
            raise DataError(f"{file} is not there.")
        require_file(Path(file), os.stat(file), DataError)
    return files


def file_stamps(files: Sequence[str]) -> list[str]:
    """Path, size and time of each file, by which a run that continues knows that the files are unchanged."""
    return [f"{path}:{(stat := os.stat(path)).st_size}:{stat.st_mtime_ns}" for path in files]
