"""Tables from files: CSV (packed or not), Parquet, NumPy's files and LIBSVM's; whatever is wrong is said in one line.

What a file is, is told by its name and its first bytes, and whether it fits into memory before it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Values
from svrhmc.core.errors import ArchiveFileError, DataError, first_line, missing_package, requirement
from svrhmc.core.machine import free_memory
from svrhmc.core.npz import ArrayHeader, mapped_npy, read_npz
from svrhmc.core.storage import open_file
from svrhmc.rows.csr import CsrMatrix
from svrhmc.tables.columns import Series
from svrhmc.tables.csv import (
    BYTES_PER_COLUMN,
    COPIES_OF_A_FIT,
    Reading,
    UsedColumns,
    decoded_lines,
    drop_empty_columns,
    pyarrow_or_none,
    read_csv,
    read_head,
    require_memory,
    require_names,
    survey_text,
)

_PACKED = (".gz",)
_TEXTS, _PARQUET, _LIBSVM = (".csv", ".tsv", ".txt", ".tab"), (".parquet", ".pq"), (".libsvm", ".svm", ".svmlight")
KINDS = "a .csv, .tsv or .txt (also .gz), a .parquet, a .libsvm or .svm, an .npy or an .npz"
_LINE = re.compile(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?(?:\s+\d+:\S+)+\s*(?:#.*)?")
_MOST_INDEX = 1 << 26


@dataclass(frozen=True, eq=False)
class FileTable:
    """What a file holds: a table with columns, or sparse rows X and their labels y.

    response: the column that is the response, where the file itself says so. notes: what the reader of a report should
    know of how it was read.
    """

    table: Series
    names: tuple[str, ...]
    n: int
    response: str = ""
    notes: tuple[str, ...] = ()
    X: Any = None  # a matrix, dense or sparse
    y: Array | None = None


def read(path: str | Path, how: Reading | None = None, used: UsedColumns | None = None) -> FileTable:
    """The table of a file; anything wrong with it is a `DataError` of one line.

    used: the columns of a text whose values have to be numbers or texts throughout, by the names of all; None: all.

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
        return _table_of_columns(place, from_npz(place, free_memory()))
    if last == ".npy":
        return _table_of_columns(place, from_npy(place, free_memory()))
    if last in _PARQUET:
        return _read_parquet(place)
    head = read_head(place, how.encoding)
    if last in _LIBSVM or is_libsvm(head.lines):
        require_memory(place, 2 * survey_text(place, how.encoding, free_memory() / 2).size)
        X, y = from_libsvm(place, decoded_lines(place, how.encoding))
        names = tuple(f"x{j + 1}" for j in range(X.shape[1]))
        return FileTable(None, names, X.shape[0], "label", (), X, y)
    if last not in _TEXTS:
        raise DataError(f"{place} must be {KINDS}, by its name.")
    return _table_of_frame(*read_csv(place, head, how, used))


def _table_of_columns(path: Path, columns: dict[str, Values]) -> FileTable:
    n = len(next(iter(columns.values())))
    return FileTable(columns, tuple(columns), n, next(reversed(columns)))


def _read_parquet(path: Path) -> FileTable:
    pyarrow = pyarrow_or_none()
    if pyarrow is None:
        raise missing_package("pyarrow", "tables", "a Parquet file")
    from pyarrow import parquet

    try:
        metadata, schema = parquet.read_metadata(path), parquet.read_schema(path)
        require_names(path, schema.names)
        require_memory(path, metadata.num_columns * (8.0 * metadata.num_rows * COPIES_OF_A_FIT + BYTES_PER_COLUMN))
        words = [field.name for field in schema if _is_text(field.type)]
        table = _without_dictionaries(path, parquet.ParquetFile(path, read_dictionary=words).read(), words)
    except (pyarrow.ArrowException, OSError, OverflowError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {first_line(error)}.") from None
    return _table_of_frame(*drop_empty_columns(path, table))


def _table_of_frame(table: Series, notes: list[str]) -> FileTable:
    """What was read, from a table of pyarrow or pandas."""
    names = getattr(table, "column_names", None)
    return FileTable(table, tuple(table.columns if names is None else names), len(table), "", tuple(notes))


def _is_text(kind: Series) -> bool:
    """Whether the values of a column are texts, of any length."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind))


def _without_dictionaries(path: Path, table: Series, words: list[str]) -> Series:
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
    require_memory(path, float(needed))
    for name, some in chunks.items():
        place, plain = table.schema.get_field_index(name), [chunk.dictionary_decode() for chunk in some]
        kind = table.schema.field(place).type.value_type
        table = table.set_column(place, name, pyarrow.chunked_array(plain, kind))
    return table


def from_npz(path: Path, most: float) -> dict[str, Values]:
    """Columns of X (named by `names`, where that is there), and y as the last; in at most so many bytes."""

    def check(headers: dict[str, ArrayHeader]) -> None:
        X, y = headers["X"].shape, headers["y"].shape
        require_shapes(path, X, y)
        require_room_for_numbers(path, X[0] * (X[1] + 1), most)

    try:
        arrays = read_npz(path, ("X", "y"), ("names",), most, check)
    except ArchiveFileError as error:
        raise DataError(f"{error} An .npz for a fit has arrays X (rows × columns) and y (and names).") from None
    return _columns(path, arrays["X"], arrays["y"], arrays.get("names"))


def from_npy(path: Path, most: float) -> dict[str, Values]:
    """Columns of a structured array by their names, or those of a matrix, whose last one is y."""
    array = mapped_npy(path)
    fields = 1 if array.dtype.names is None else len(array.dtype.names)
    require_room_for_numbers(path, array.size * fields, most)
    if array.dtype.names is not None and array.ndim == 1:
        return {name: np.array(array[name]) for name in array.dtype.names}  # type: ignore[call-overload]
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"{path} must hold rows × columns, the last of which is y; got an array of {array.shape}.")
    return _columns(path, array[:, :-1], array[:, -1], None)


def require_room_for_numbers(path: Path, numbers: float, most: float) -> None:
    """Refuse so many numbers where a fit of them would take more bytes than there are."""
    require_memory(path, 8.0 * COPIES_OF_A_FIT * numbers, most)


def require_shapes(path: Path, X: tuple[int, ...], y: tuple[int, ...]) -> None:
    """Refuse arrays that are no rows with a label each."""
    if len(X) != 2 or y != X[:1] or not X[0]:
        raise DataError(f"{path} must hold X of shape (rows, columns) and y of (rows,); got {X} and {y}.")


def _columns(path: Path, X: Values, y: Values, names: Values | None) -> dict[str, Values]:
    require_shapes(path, X.shape, y.shape)
    if X.dtype.kind not in "biuf":
        raise DataError(f"{path} must hold numbers in X; got {X.dtype}.")
    column_names = [f"x{j}" for j in range(X.shape[1])] if names is None else [str(name) for name in np.ravel(names)]
    if len(column_names) != X.shape[1] or len({*column_names, "y"}) <= len(column_names):
        raise DataError(f"{path} must have {X.shape[1]} different names for the columns of X, none of them 'y'.")
    return {**{name: np.array(X[:, j]) for j, name in enumerate(column_names)}, "y": np.array(y)}


def is_libsvm(head: Iterable[str]) -> bool:
    """Whether the first lines are of LIBSVM's form."""
    some = [line for line in list(head)[:5] if line.strip()]
    return bool(some) and all(_LINE.fullmatch(line) for line in some)


def from_libsvm(
    name: str | Path, lines: Iterable[str], columns: int | None = None, dtype: npt.DTypeLike = np.float64
) -> tuple[CsrMatrix, Array]:
    """CSR rows and labels of `label index:value …` lines; indices begin at 1 and grow within a line.

    Without `columns` there are as many as the largest index. (scikit-learn's reader takes NaN and infinite labels, and
    names no line.)
    """
    from scipy.sparse import csr_matrix

    most = columns or _MOST_INDEX
    labels: list[float] = []
    indices: list[npt.NDArray[np.int32]] = []
    values: list[Values] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            label = float(words[0])
            pairs = [word.split(":") for word in words[1:]]
            places = np.array([int(index) for index, _ in pairs], np.int64)
            entries = np.array([float(value) for _, value in pairs], dtype)
            growing = not len(places) or (places[0] > 0 and places[-1] <= most and (places[1:] > places[:-1]).all())
            if not growing or not (math.isfinite(label) and np.isfinite(entries).all()):
                raise ValueError
        except (ValueError, OverflowError):
            allowed = f"a label and index:value pairs of finite numbers with increasing indices from 1 to {most}"
            raise requirement(f"{name}, line {number},", allowed, repr(line.strip()[:60]), kind=DataError) from None
        labels.append(label)
        indices.append((places - 1).astype(np.int32))
        values.append(entries)
    if not labels or not (ends := np.cumsum([0, *map(len, values)]))[-1]:
        raise DataError(f"{name} has no rows with numbers in them.")
    places = np.concatenate(indices)
    X = csr_matrix((np.concatenate(values), places, ends), shape=(len(labels), columns or int(places.max()) + 1))
    return X, np.array(labels)


def listed_names(names: Sequence[str]) -> str:
    """Some names, for a message."""
    return ", ".join(map(repr, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
