"""Parquet: a partition is a row group of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError, missing
from svrhmc.data.layout import Layout, labels, words
from svrhmc.targets.reading import BLOCK_ENTRIES, Block, Reader

_HELD = 1 << 23  # entries of a row group, up to which it is read at once


class ParquetReader(Reader):
    """Row groups of some files, each read on its own; offsets come from the files' metadata."""

    def __init__(
        self,
        groups: list[tuple[str, int, int]],
        layout: Layout,
        stamps: dict[str, tuple[int, int]],
        texts: Sequence[str] = (),
    ) -> None:
        """groups: path, number in the file and rows of each row group. stamps: size and time of each file. texts: the
        columns of texts, each of which is read once, with its number in every row: a small file can hold one long text
        in a million rows.
        """
        self.groups, self.layout, self.stamps, self.texts = groups, layout, stamps, list(texts)
        self.sizes = np.array([rows for _, _, rows in groups], np.int64)
        self.names, self.dtype = layout.names, np.dtype(layout.dtype)
        self.has_offset, self.has_weights = layout.offset is not None, layout.weights is not None

    def only(self, number: int) -> ParquetReader:
        """Of one row group."""
        return ParquetReader([self.groups[number]], self.layout, {}, self.texts)

    def where(self, number: int) -> str:
        """File and row group."""
        path, group, _ = self.groups[number]
        return f"{path}, row group {group}"

    def identity(self) -> list[str]:
        """Paths, sizes and times of files, and which columns are used how."""
        return [*(f"{path}:{size}:{when}" for path, (size, when) in self.stamps.items()), repr(self.layout)]

    def read(self, number: int) -> Iterator[Block]:
        """Batch by batch of a row group."""
        rows = max(1024, BLOCK_ENTRIES // max(1, len(self.names)))
        first = 0
        for batch in self._batches(number, self.layout.columns, rows):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield self.layout.block(first, columns, self.where(number))
            first += batch.num_rows

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """The one column."""
        first = 0
        for batch in self._batches(number, [self.layout.target], 1 << 20):
            yield labels(batch.column(0), self.layout.target, first, self.where(number))
            first += batch.num_rows

    def _batches(self, number: int, columns: list[str], rows: int) -> Iterator[Any]:
        path, group, size = self.groups[number]
        if not size:
            return
        with _worded(path), opened(path, size * len(columns) > _HELD, self.texts) as file:
            yield from file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)


def values_of(reader: ParquetReader, number: int, columns: list[str], most: int) -> dict[str, Any]:
    """The values of some text columns in a row group, in order; None where they are more than `most`."""
    found: dict[str, Any] = {name: np.zeros(0, "<U1") for name in columns}
    first = 0
    for batch in reader._batches(number, columns, 1 << 18):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if found[name] is not None:
                found[name] = np.union1d(found[name], words(column, name, first, reader.where(number)))
                if len(found[name]) > most:
                    found[name] = None
        first += batch.num_rows
    return found


def opened(path: str, mapped: bool = True, texts: Sequence[str] = ()) -> Any:
    """A Parquet file; errors of pyarrow are put into words.

    mapped: whether its contents come by a memory map, page by page, so that a row group need not fit in memory; else
        all that is asked for of a row group is read at once, which is faster.
    texts: the columns whose values come as a list of different ones, and their numbers.
    """
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise missing("pyarrow", "parquet", "reading Parquet") from None
    with _worded(path):
        return ParquetFile(path, memory_map=mapped, pre_buffer=True, read_dictionary=list(texts))


@contextmanager
def _worded(path: str) -> Iterator[None]:
    """Errors of pyarrow about a file, in one line."""
    import pyarrow

    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        told = next(iter(ascii(str(error))[1:-1].split("\\n")))[:200]
        raise DataError(f"{path} is no Parquet file, or is damaged: {told}") from None


def kinds_of(files: list[str]) -> tuple[dict[str, str], list[tuple[str, int, int]]]:
    """The type of each column, which all files must agree on, and the row groups of all files."""
    kinds: dict[str, str] = {}
    groups: list[tuple[str, int, int]] = []
    for path in files:
        with _worded(path), opened(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            found = {name: _kind(str(schema.field(name).type)) for name in schema.names}
            groups += [(path, k, metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)]
        kinds = kinds or found
        for name in {**kinds, **found}:
            if kinds.get(name) != found.get(name):
                raise DataError(
                    f"{path}: the column {name!r} is {found.get(name, 'not there')}, and in {files[0]} "
                    f"it is {kinds.get(name, 'not there')}. All files must have the same columns with the same types."
                )
    return kinds, groups


def _kind(arrow: str) -> str:
    plain = {"float": "float32", "double": "float64", "halffloat": "float16"}.get(arrow, arrow)
    if plain.startswith(("string", "large_string", "dictionary<values=string", "dictionary<values=large_string")):
        return "text"
    if plain.startswith(("int", "uint", "float", "bool")):
        return plain
    return "other"
