"""Parquet: a partition is a row group of a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from svrhmc.core.errors import DataError, missing_package
from svrhmc.rows.workers import ClientLike, workers_of
from svrhmc.tables.columns import Series
from svrhmc.tables.partitions import TableInPartitions, open_partitions
from svrhmc.tables.sources import Batch, Source, file_stamps, list_files

_MOST_READ_AT_ONCE = 1 << 23  # entries of a row group, up to which it is read at once
Group = tuple[str, int, int]  # path, number in the file, rows


def from_parquet(
    path: str | os.PathLike[str] | list[str | os.PathLike[str]],
    target: str | None = None,
    features: Sequence[str] | None = None,
    client: ClientLike = None,
    *,
    offset: str | None = None,
    weights: str | None = None,
    intercept: bool = False,
) -> TableInPartitions:
    """Rows of Parquet files, for `fit` with a formula, and for `targets.glm` and its kin in place of X and y. They are
    read again in every pass.

    path: a file, a folder, a pattern such as "data/part-*.parquet", or a list of files. All must have the same columns.
    target: the name of the column of labels; None where a formula will say it.
    features: the names of the columns of X, in their order; None takes every other column. Columns of texts are
        categories: they have one column for each level but the first, in the order of the levels. (A formula may use
        any column.)
    client: who reads: None (threads of this machine), an executor of `concurrent.futures`, a `distributed.Client`, or
        the address of a Dask cluster. The draws do not depend on it.
    offset, weights: names of columns, as `targets.glm` takes them.
    intercept: whether a column of ones comes first.

    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile, os
    >>> from svrhmc import targets
    >>> file = os.path.join(tempfile.mkdtemp(), "rows.parquet")
    >>> pq.write_table(pa.table({"x": [1.0, 2.0, -1.0, 0.5], "y": [1, 1, 0, 0]}), file)
    >>> from_parquet(file, target="y")
    Partitions(4 rows, 1 columns, 1 partitions)
    >>> targets.logistic(from_parquet(file, target="y")).mode().round(3)
    array([0.731])
    """
    workers, files = workers_of(client), list_files(path, (".parquet", ".pq"))
    kinds, ordered, groups = _read_schemas(files)
    source = ParquetSource(groups, kinds, ordered, file_stamps(files))
    return open_partitions(source, workers, target, features, offset, weights, intercept, str(path))


class ParquetSource(Source):
    """Row groups of some files, each read on its own; their sizes come from the files' metadata."""

    def __init__(
        self, groups: list[Group], kinds: Mapping[str, str], ordered: Collection[str], stamps: Sequence[str] = ()
    ) -> None:
        """stamps: of the files (`file_stamps`)."""
        self.groups, self.kinds, self.ordered, self.stamps = groups, kinds, ordered, stamps
        self.sizes = np.array([rows for _, _, rows in groups], np.int64)

    def single_partition(self, number: int) -> ParquetSource:
        return ParquetSource([self.groups[number]], self.kinds, self.ordered)

    def partition_name(self, number: int) -> str:
        """File and row group."""
        path, group, _ = self.groups[number]
        return f"{path}, row group {group}"

    def identity(self) -> list[str]:
        """Paths, sizes and times of files."""
        return list(self.stamps)

    def batches(self, number: int, names: Sequence[str], rows: int) -> Iterator[Batch]:
        path, group, size = self.groups[number]
        if not size:
            return
        first, texts = 0, [name for name in names if self.kinds[name] == "text"]
        with _clear_errors(path), open_parquet(path, size * len(names) > _MOST_READ_AT_ONCE, texts) as file:
            for batch in file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False):
                yield first, dict(zip(batch.schema.names, batch.columns, strict=True))
                first += batch.num_rows


def open_parquet(path: str, mapped: bool = True, texts: Sequence[str] = ()) -> Series:
    """A Parquet file; errors of pyarrow are put into words.

    mapped: whether its contents come by a memory map, page by page, so that a row group need not fit in memory; else
        all that is asked for of a row group is read at once, which is faster.
    texts: the columns whose values come as a list of different ones, and their numbers.
    """
    with _clear_errors(path):
        from pyarrow.parquet import ParquetFile

        return ParquetFile(path, memory_map=mapped, pre_buffer=True, read_dictionary=list(texts))


@contextmanager
def _clear_errors(path: str) -> Iterator[None]:
    """Errors of pyarrow about a file, in one line; where it is absent, what to install."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise missing_package("pyarrow", "parquet", "reading Parquet") from None
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        why = next(iter(ascii(str(error))[1:-1].split("\\n")))[:200]
        raise DataError(f"{path} is no Parquet file, or is damaged: {why}") from None


def _read_schemas(files: list[str]) -> tuple[dict[str, str], set[str], list[Group]]:
    """The kind of each column, which all files must agree on, those of texts whose levels have an order, and the row
    groups of all files.
    """
    kinds: dict[str, str] = {}
    ordered: set[str] = set()
    groups: list[Group] = []
    for path in files:
        with _clear_errors(path), open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            here = {name: _kind_of_type(str(schema.field(name).type)) for name in schema.names}
            ordered |= {name for name in schema.names if "ordered=1" in str(schema.field(name).type)}
            groups += [(path, k, metadata.row_group(k).num_rows) for k in range(metadata.num_row_groups)]
        kinds = kinds or here
        for name in {**kinds, **here}:
            if kinds.get(name) != here.get(name):
                raise DataError(
                    f"{path}: the column {name!r} is {here.get(name, 'not there')}, and in {files[0]} "
                    f"it is {kinds.get(name, 'not there')}. All files must have the same columns with the same types."
                )
    return kinds, ordered, groups


def _kind_of_type(arrow: str) -> str:
    plain = {"float": "float32", "double": "float64", "halffloat": "float16"}.get(arrow, arrow)
    if plain.startswith(("string", "large_string", "dictionary<values=string", "dictionary<values=large_string")):
        return "text"
    return plain if plain.startswith(("int", "uint", "float", "bool")) else "other"
