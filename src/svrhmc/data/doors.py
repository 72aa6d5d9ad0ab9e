"""How rows that are not in memory are opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from svrhmc.core.arrays import cores
from svrhmc.core.errors import DataError, requirement, whole
from svrhmc.data.arrays import ArraysReader, SparseReader, cuts_of, loaded_csr, mapped, names_for, source_of
from svrhmc.data.collections import (
    ChunksReader,
    FrameReader,
    Graphs,
    counted,
    graphs_of,
    kind_of,
    require_dask,
    shape_of,
)
from svrhmc.data.csv import CsvParts, CsvReader, agreed_kinds, before, ranges_of, surveyed_csv
from svrhmc.data.files import files_of, stamps_of
from svrhmc.data.layout import MOST_LEVELS, Columns, agreed_levels, chosen_columns
from svrhmc.data.parquet import ParquetReader, kinds_of, values_of
from svrhmc.data.workers import InPartitions, Threads, Workers, each_of, workers_of

_ROWS = 1 << 20  # of a partition of an array


def from_parquet(
    path: str | os.PathLike[str] | list[Any],
    target: str,
    features: Sequence[str] | None = None,
    client: Any = None,
    *,
    offset: str | None = None,
    weights: str | None = None,
    intercept: bool = False,
) -> InPartitions:
    """Rows of Parquet files, for `targets.glm` and its kin in place of X and y. They are read again in every pass.

    path: a file, a folder, a pattern such as "data/part-*.parquet", or a list of files. All must have the same columns.
    target: the name of the column of labels.
    features: the names of the columns of X, in their order; None takes every other column. Columns of texts are
        categories: they have one column for each level but the first, in the order of the levels.
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
    workers, files = workers_of(client), files_of(path, (".parquet", ".pq"))
    kinds, groups = kinds_of(files)
    columns = chosen_columns(kinds, target, features, offset, weights, intercept)
    texts = [name for name in columns.features if kinds[name] == "text"]
    stamps, levels = stamps_of(files), {}
    if texts:
        plain = columns.laid_out({**kinds, **dict.fromkeys(texts, "bool")}, {})
        reader = ParquetReader(groups, plain, stamps, texts)
        arguments = [(k, texts, MOST_LEVELS) for k in range(len(groups))]
        found = list(each_of(workers, reader, values_of, arguments, "levels"))
        levels = {name: agreed_levels(name, [each[name] for each in found]) for name in texts}
    words = [name for name in columns.names if kinds[name] == "text"]
    reader = ParquetReader(groups, columns.laid_out(kinds, levels), stamps, words)
    if not reader.sizes.sum():
        raise DataError(f"{path} has no rows.")
    return InPartitions(reader, workers)


def from_csv(
    path: str | os.PathLike[str] | list[Any],
    target: str,
    features: Sequence[str] | None = None,
    client: Any = None,
    *,
    offset: str | None = None,
    weights: str | None = None,
    intercept: bool = False,
    delimiter: str = ",",
    partition_bytes: int = 1 << 26,
) -> InPartitions:
    """Rows of CSV files, in parts of about `partition_bytes`; every file begins with the same header line.

    A column is one of numbers where every value in all files is a number, and one of categories where none is; both
    together are refused. Values with line breaks in them are refused, as such files cannot be read in parts.
    path, target, features, client, offset, weights, intercept: as for `from_parquet`.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "rows.csv")
    >>> with open(file, "w") as out:
    ...     _ = out.write("x,y\\n1.0,1\\n2.0,1\\n-1.0,0\\n0.5,0\\n")
    >>> from_csv(file, target="y")
    Partitions(4 rows, 1 columns, 1 partitions)
    """
    workers, files = workers_of(client), files_of(path, (".csv",))
    if len(str(delimiter)) != 1:
        raise requirement("delimiter", "one character", repr(delimiter))
    ranges, header = ranges_of(files, whole("partition_bytes", partition_bytes, 1), delimiter)
    columns = chosen_columns(dict.fromkeys(header, "text"), target, features, offset, weights, intercept)
    if not ranges:
        raise DataError(f"{path} has no rows.")
    parts, names = CsvParts(ranges, header, delimiter), columns.names
    arguments = [(k, names, MOST_LEVELS) for k in range(len(ranges))]
    found = list(each_of(workers, parts, surveyed_csv, arguments, "columns"))
    kinds, texts = agreed_kinds(found, names)
    levels = {name: agreed_levels(name, texts[name]) for name in columns.features if kinds[name] == "text"}
    layout = columns.laid_out(kinds, levels)
    sizes = np.array([each.rows for each in found], np.int64)
    if not sizes.sum():
        raise DataError(f"{path} has no rows.")
    firsts = np.array([before(found, each) for each in found], np.int64)
    return InPartitions(CsvReader(parts, sizes, firsts, layout, kinds, stamps_of(files)), workers)


def from_dask(
    data: Any,
    target: Any,
    features: Sequence[str] | None = None,
    client: Any = None,
    *,
    offset: Any = None,
    weights: Any = None,
    intercept: bool = False,
) -> InPartitions:
    """Rows of a Dask data frame, or of a Dask array. Partitions are computed where they are read, in every pass.

    data: a data frame, or an array (rows, columns) whose chunks are whole rows.
    target: the name of the column of labels; for an array X, the array y.
    features: the names of columns, as for `from_parquet`; for an array, names for all of its columns, or None.
    client: as for `from_parquet`; None computes on threads of this machine, whatever client Dask has.
    offset, weights: names of columns; for an array, arrays like y.
    intercept: whether a column of ones comes first, for a data frame.

    >>> import dask.array as da
    >>> X, y = da.ones((4, 1), chunks=(2, 1)), da.from_array([1, 1, 0, 1], chunks=2)
    >>> from_dask(X, y)
    Partitions(4 rows, 1 columns, 2 partitions)
    """
    workers = workers_of(client)
    if not require_dask().is_dask_collection(data) or not hasattr(data, "to_delayed"):
        raise requirement("data", "a Dask data frame or a Dask array", type(data).__name__)
    if hasattr(data, "columns"):
        columns = chosen_columns(
            {str(name): kind_of(dtype) for name, dtype in zip(data.columns, data.dtypes, strict=True)},
            target, features, offset, weights, intercept,
        )  # fmt: skip
        return _frame(data, columns, workers)
    if intercept:
        raise requirement("intercept", "False for an array", intercept, "give it a column of ones")
    return _chunks(data, (target, offset, weights), features, workers)


def _frame(data: Any, columns: Columns, workers: Workers) -> InPartitions:
    names, texts = columns.names, [name for name in columns.features if columns.kinds[name] == "text"]
    graphs = graphs_of(data[names])
    arguments = [(k, k, names, texts, MOST_LEVELS) for k in range(len(graphs.parts))]
    found = list(each_of(workers, graphs, counted, arguments, "levels and sizes"))
    for k, each in enumerate(found):
        for name in names:
            if each.rows and each.kinds[name] != columns.kinds[name]:
                raise DataError(
                    f"partition {k} of the data frame: the column {name!r} is {each.kinds[name]}, and the frame says "
                    f"{columns.kinds[name]}. All partitions must have the same columns with the same types."
                )
    levels = {name: agreed_levels(name, [each.texts[name] for each in found]) for name in texts}
    sizes = np.array([each.rows for each in found], np.int64)
    if not sizes.sum():
        raise DataError("the data frame has no rows.")
    return InPartitions(FrameReader(graphs, sizes, columns.laid_out(columns.kinds, levels)), workers)


def _chunks(X: Any, more: tuple[Any, Any, Any], names: Sequence[str] | None, workers: Workers) -> InPartitions:
    if X.ndim != 2 or X.dtype.kind not in "biuf" or X.numblocks[1] != 1:
        given = f"{X.dtype} of shape {X.shape} in {X.numblocks} chunks"
        raise requirement("data", "an array of numbers (rows, columns) in chunks of whole rows", given, "rechunk it")
    known = names_for(names, X.shape[1])
    if len(known) != X.shape[1]:
        raise requirement("features", f"{X.shape[1]} names", len(known))
    graphs = graphs_of(X)
    others: list[Graphs | None] = []
    sizes = _sizes(X, graphs, workers)
    for name, each in zip(("target", "offset", "weights"), more, strict=True):
        if each is None and name != "target":
            others.append(None)
            continue
        if not hasattr(each, "to_delayed") or each.ndim != 1:
            raise requirement(name, "a Dask array of one axis, as X is one", type(each).__name__)
        parts = graphs_of(each)
        others.append(parts)
        if _sizes(each, parts, workers) != sizes:
            raise requirement(name, "in chunks of as many rows as those of X", f"{each.chunks[0]}", "rechunk it")
    if not sum(sizes):
        raise DataError("the array has no rows.")
    kind = np.float32 if X.dtype == np.float32 else np.float64
    return InPartitions(ChunksReader(graphs, tuple(others), np.array(sizes, np.int64), known, kind), workers)


def _sizes(array: Any, graphs: Graphs, workers: Workers) -> list[int]:
    """Rows of each chunk; computed where Dask does not know them."""
    if not np.isnan(np.array(array.chunks[0], np.float64)).any():
        return [int(size) for size in array.chunks[0]]
    shapes = each_of(workers, graphs, shape_of, [(k,) for k in range(len(graphs.parts))], "sizes of chunks")
    return [shape[0] for shape in shapes]


def from_arrays(
    X: Any,
    y: Any,
    client: Any = None,
    *,
    partitions: int | None = None,
    names: Sequence[str] | None = None,
    offset: Any = None,
    weights: Any = None,
) -> InPartitions:
    """Rows of an array, of a memory map, or of an .npy file, in partitions.

    X, y, offset, weights: arrays, or paths of .npy files, which are mapped and not loaded. Processes and clusters take
        paths only.
    partitions: into how many parts the rows are cut; None for parts of about a million rows.
    client: as for `from_parquet`.
    """
    workers = workers_of(client)
    sources = [None if each is None else source_of(each) for each in (X, y, offset, weights)]
    _require_paths(workers, sources)
    arrays = [None if each is None else mapped(each) for each in sources]
    rows, labels = arrays[0], arrays[1]
    assert rows is not None
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not len(rows):
        raise requirement("X", "an array of numbers, (rows, columns)", f"{rows.dtype} of shape {rows.shape}")
    for name, each in zip(("y", "offset", "weights"), (labels, *arrays[2:]), strict=True):
        if each is not None and each.shape != (len(rows),):
            raise requirement(name, f"an array of {len(rows)} numbers", f"one of shape {each.shape}")
    known = names_for(names, rows.shape[1])
    if len(known) != rows.shape[1]:
        raise requirement("names", f"{rows.shape[1]} names", len(known))
    count = -(-len(rows) // _ROWS) if partitions is None else whole("partitions", partitions, 1, len(rows))
    count = max(count, cores()) if partitions is None and len(rows) > _ROWS else count
    return InPartitions(ArraysReader(sources[0], sources[1], cuts_of(len(rows), count), known, *sources[2:]), workers)


def from_sparse(path: str | os.PathLike[str] | list[Any], y: Any, client: Any = None) -> InPartitions:
    """Sparse rows in files of `scipy.sparse.save_npz`: a partition each.

    path: a folder, a pattern, or a list of files, in the order of their names.
    y: the labels of all rows in that order: an array, or the path of an .npy file.
    client: as for `from_parquet`.
    """
    workers, files, labels = workers_of(client), files_of(path, (".npz",)), source_of(y)
    _require_paths(workers, [labels])
    shapes, kinds = zip(*((block.shape, block.dtype) for block in map(loaded_csr, files)), strict=True)
    for file, shape in zip(files, shapes, strict=True):
        if shape[1] != shapes[0][1]:
            raise DataError(f"{file} has {shape[1]} columns, and {files[0]} has {shapes[0][1]}.")
    sizes = np.array([shape[0] for shape in shapes], np.int64)
    if mapped(labels).shape != (int(sizes.sum()),):
        raise requirement("y", f"an array of {int(sizes.sum())} labels", f"one of shape {mapped(labels).shape}")
    kind = np.float32 if all(each == np.float32 for each in kinds) else np.float64
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    return InPartitions(SparseReader(files, labels, cuts, names_for(None, shapes[0][1]), kind), workers)


def _require_paths(workers: Workers, sources: list[Any]) -> None:
    """Arrays stay in this process: others read files."""
    if not isinstance(workers, Threads) and any(not (each is None or isinstance(each, str)) for each in sources):
        why = "save it by numpy.save, where all workers can read it, and give its path"
        raise requirement("X and y", "paths of .npy files where others than threads read them", "an array", why)
