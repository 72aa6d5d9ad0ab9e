"""Tables from files: CSV (packed or not), Parquet, NumPy's files and LIBSVM's; whatever is wrong is said in one line.

A file is looked at before it is read: what it is (by its name and its first bytes), which sign parts its columns, and
whether it fits into memory. A CSV is read by pyarrow where that is installed, else by pandas; where one of them fails,
or finds texts among numbers, the file is read once more, line by line, to say which line, column and value it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.core.cells import unguarded
from svrhmc.core.errors import DataError, missing
from svrhmc.core.machine import free_memory
from svrhmc.core.storage import open_file
from svrhmc.tables import csv as texts
from svrhmc.tables import matrices

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL", "None")
_PACKED = (".gz",)
_TEXTS, _PARQUET, _LIBSVM = (".csv", ".tsv", ".txt", ".tab"), (".parquet", ".pq"), (".libsvm", ".svm", ".svmlight")
KINDS = "a .csv, .tsv or .txt (also .gz), a .parquet, a .libsvm or .svm, an .npy or an .npz"
_BLOCK = 1 << 20  # bytes that pyarrow takes apart at once; a line lies in one block or in two
_COLUMN = 1 << 14  # bytes that pyarrow takes for a column, whatever is in it


@dataclass(frozen=True, eq=False)
class Read:
    """What a file holds: a table with columns, or sparse rows X and their labels y.

    response: the column that is the response, where the file itself says so. notes: what the reader of a report should
    know of how it was read.
    """

    table: Any
    names: tuple[str, ...]
    n: int
    response: str = ""
    notes: tuple[str, ...] = ()
    X: Any = None
    y: Any = None


@dataclass(frozen=True)
class Reading:
    """How a text is read. delimiter: None finds it. na: words that stand for a missing value, beside the usual ones.
    decimal: the sign before the decimals. as_text: columns whose numbers are the names of categories. single: whether
    there may be one column only.
    """

    delimiter: str | None = None
    encoding: str = "utf-8"
    na: tuple[str, ...] = ()
    decimal: str = "."
    as_text: tuple[str, ...] = ()
    single: bool = False
    missing: tuple[str, ...] = field(default=MISSING)

    def __post_init__(self) -> None:
        if len(self.decimal) != 1:
            raise DataError(f"--decimal must be one sign; got {self.decimal!r}.")

    @property
    def gaps(self) -> list[str]:
        """All words for a missing value."""
        return list(dict.fromkeys((*self.missing, *self.na)))


def read(path: str | Path, how: Reading | None = None) -> Read:
    """The table of a file; anything wrong with it is a `DataError` of one line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/a.csv").write_text("dose;died\\n1.5;no\\n2.5;yes\\n")
    ...     read(f"{folder}/a.csv").names
    ('dose', 'died')
    """
    place, how = Path(path), Reading() if how is None else how
    if place.is_dir():
        raise DataError(f"{place} is a folder: name a file in it.")
    with open_file(place, kind=DataError) as file:  # what the system says of one that cannot be opened names it already
        if not file.read(1):
            raise DataError(f"{place} is empty.")
    suffixes = [suffix.lower() for suffix in place.suffixes]
    last = next((suffix for suffix in reversed(suffixes) if suffix not in _PACKED), "")
    if last == ".npz":
        return _of_matrix(place, matrices.from_npz(place, free_memory()))
    if last == ".npy":
        return _of_matrix(place, matrices.from_npy(place, free_memory()))
    if last in _PARQUET:
        return _parquet(place)
    head = texts.look(place, how.encoding)
    if last in _LIBSVM or matrices.is_libsvm(head.lines):
        _require_memory(place, 2 * texts.survey(place, how.encoding, free_memory() / 2).size)
        X, y = matrices.from_libsvm(place, texts.lines(place, how.encoding))
        names = tuple(f"x{j + 1}" for j in range(X.shape[1]))
        return Read(None, names, X.shape[0], "label", (), X, y)
    if last not in _TEXTS:
        raise DataError(f"{place} must be {KINDS}, by its name.")
    return _text(place, head, how)


def _of_matrix(path: Path, columns: dict[str, Any]) -> Read:
    n = len(next(iter(columns.values())))
    return Read(columns, tuple(columns), n, next(reversed(columns)))


def _parquet(path: Path) -> Read:
    pyarrow = _pyarrow()
    if pyarrow is None:
        raise missing("pyarrow", "tables", "a Parquet file")
    from pyarrow import parquet

    try:
        known, schema = parquet.read_metadata(path), parquet.read_schema(path)
        texts.require_names(path, schema.names)
        _require_memory(path, known.num_columns * (8.0 * known.num_rows * matrices.COPIES + _COLUMN))
        words = [each.name for each in schema if _has_bytes(each.type)]
        table = _unpacked(path, parquet.ParquetFile(path, read_dictionary=words).read(), words)
    except (pyarrow.ArrowException, OSError, OverflowError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {_first(error)}") from None
    return _arrow(path, table, ())


def _has_bytes(kind: Any) -> bool:
    """Whether the values of a column are texts, of any length."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _unpacked(path: Path, table: Any, words: list[str]) -> Any:
    """A table whose columns of texts are lists of different texts and their numbers, with the texts themselves: once it
    is known that they fit into memory, as one long text may stand in every row.
    """
    import pyarrow
    from pyarrow import compute

    chunks = {name: table[name].chunks for name in words}
    needed = 0
    for chunk in (chunk for some in chunks.values() for chunk in some):
        lengths = compute.binary_length(chunk.dictionary).take(chunk.indices)
        needed += compute.sum(lengths).as_py() or 0
    _require_memory(path, float(needed))
    for name, some in chunks.items():
        place, plain = table.schema.get_field_index(name), [chunk.dictionary_decode() for chunk in some]
        kind = table.schema.field(place).type.value_type
        table = table.set_column(place, name, pyarrow.chunked_array(plain, kind))
    return table


def _text(path: Path, head: texts.Head, how: Reading) -> Read:
    _require_memory(path, float(head.columns * _COLUMN))  # before a list is made of that many names
    layout = texts.layout(path, head, how.delimiter, how.single)
    columns = len(layout.names)
    grows = 1.0 + 8.0 * matrices.COPIES * columns / max(1.0, head.width)
    survey = texts.survey(path, how.encoding, free_memory() / grows)
    _require_memory(path, columns * _COLUMN + grows * survey.size)
    if survey.odd:
        texts.require_closed(path, layout, how.encoding)
    for name in how.as_text:
        if name not in layout.names:
            raise DataError(f"{path} has no column {name!r} to be read as text.")
    if _pyarrow() is None:
        found = _pandas_csv(path, layout, how)
    else:
        found = _arrow_csv(path, layout, how, head.width, survey.newlines)
    if not found.n:
        texts.require_rows(path, layout, how.encoding)
    return found


def _arrow_csv(path: Path, layout: texts.Layout, how: Reading, width: float, newlines: bool) -> Read:
    """newlines: whether there are line ends within quotes; where that is not said, pyarrow drops rows silently."""
    import pyarrow
    from pyarrow import csv

    block = max(_BLOCK, 4 * int(width))

    try:
        table = csv.read_csv(
            str(path),
            csv.ReadOptions(
                column_names=list(layout.names), skip_rows=int(layout.header), encoding=how.encoding, block_size=block
            ),
            csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=newlines),
            csv.ConvertOptions(
                null_values=how.gaps,
                strings_can_be_null=True,
                decimal_point=how.decimal,
                column_types=dict.fromkeys(how.as_text, pyarrow.string()),
            ),
        )
    except (pyarrow.ArrowException, UnicodeError, OSError) as error:
        texts.require_even(path, layout, how.encoding)
        texts.require_rows(path, layout, how.encoding)
        raise DataError(f"{path} cannot be read: {_first(error)}") from None
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        if pyarrow.types.is_binary(kind):
            texts.require_even(path, layout, how.encoding)
            raise DataError(f"{path}: column {name!r} is no text in {how.encoding}: name its --encoding.")
    for name, column in zip(table.column_names, table.columns, strict=True):
        if (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)) and (
            name not in how.as_text
        ):
            some = column.slice(0, _LOOKED).drop_null().to_pylist()
            texts.require_one_kind(path, layout, name, some, how)
            table = table.set_column(table.schema.get_field_index(name), name, _unguarded(column))
    return _arrow(path, table, layout.notes)


def _unguarded(column: Any) -> Any:
    """Texts of a column without the apostrophes that keep them from being run (`svrhmc.core.cells`)."""
    import pyarrow
    from pyarrow import compute

    if not compute.any(compute.starts_with(column, "'")).as_py():
        return column
    packed = column.combine_chunks().dictionary_encode()
    return pyarrow.array(unguarded(packed.dictionary.to_pylist()), column.type).take(packed.indices)


def _arrow(path: Path, table: Any, notes: tuple[str, ...]) -> Read:
    import pyarrow

    empty = [
        name
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if pyarrow.types.is_null(kind) and table.num_rows
    ]
    table, said = table.drop_columns(empty), [f"column {name!r} has no values and is left out" for name in empty]
    counted = texts.NUMBERS_OF_ROWS in table.column_names
    if counted:
        first = table[texts.NUMBERS_OF_ROWS].to_numpy()
        _require_counting(path, first)
        table = table.drop_columns([texts.NUMBERS_OF_ROWS])
    return Read(table, tuple(table.column_names), table.num_rows, "", (*notes, *said))


def _pandas_csv(path: Path, layout: texts.Layout, how: Reading) -> Read:
    try:
        import pandas
    except ModuleNotFoundError:
        raise missing("pandas or pyarrow", "formula", "a table in a file") from None
    try:
        table = pandas.read_csv(
            path,
            sep=layout.delimiter,
            names=list(layout.names),
            skiprows=int(layout.header),
            index_col=False,
            encoding=how.encoding,
            na_values=how.gaps,
            keep_default_na=False,
            decimal=how.decimal,
            dtype=dict.fromkeys(how.as_text, str),
            low_memory=False,
        )
    except (ValueError, UnicodeError, OverflowError) as error:
        texts.require_even(path, layout, how.encoding)
        raise DataError(f"{path} cannot be read: {_first(error)}") from None
    if table[layout.names[-1]].isna().any():  # pandas fills short lines up
        texts.require_even(path, layout, how.encoding)
    said = list(layout.notes)
    for name in list(table.columns):
        column = table[name]
        if column.isna().all() and len(table):
            said.append(f"column {name!r} has no values and is left out")
            table = table.drop(columns=name)
        elif name == texts.NUMBERS_OF_ROWS:
            _require_counting(path, column.to_numpy())
            table = table.drop(columns=name)
        elif not pandas.api.types.is_numeric_dtype(column) and name not in how.as_text:
            texts.require_one_kind(path, layout, name, column.iloc[:_LOOKED].dropna().astype(str).tolist(), how)
            words = [word for word in column.dropna().unique() if isinstance(word, str)]
            table[name] = column.replace(dict(zip(words, unguarded(words), strict=True)))
    return Read(table, tuple(table.columns), len(table), "", tuple(said))


_LOOKED = 2000  # values by which a column of texts is told from one of numbers


def _require_counting(path: Path, values: Any) -> None:
    """A first column without a name may count rows, as spreadsheets and pandas write it; nothing else."""
    if values.dtype.kind not in "iu" or not (np.diff(values) == 1).all():
        raise DataError(f"{path}: the first column has no name. Give it one in the first line.")


def _require_memory(path: Path, needed: float) -> None:
    there = free_memory()
    if needed > there:
        raise DataError(
            f"{path} would take about {needed / 1e9:.3g} GB of memory to fit, and {there / 1e9:.3g} GB are free: take "
            "a part of its rows or columns, or a larger machine."
        )


def _pyarrow() -> Any:
    """The library, or None."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        return None
    return pyarrow


def _first(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".") + "."


def wanted(names: Sequence[str]) -> str:
    """Some names, for a message."""
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
