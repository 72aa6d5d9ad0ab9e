"""How rows that are not in memory are opened."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from svrhmc.core.arrays import cores
from svrhmc.core.errors import DataError, requirement, whole
from svrhmc.data.arrays import ArraysReader, SparseReader, cuts_of, loaded_csr, mapped, names_for, source_of
from svrhmc.data.layout import MOST_LEVELS, laid_out
from svrhmc.data.parquet import ParquetReader, files_of, kinds_of, stamps_of, values_of
from svrhmc.data.workers import InPartitions, Threads, Workers, workers_of

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
    array([0.784])
    """
    workers, files = workers_of(client), files_of(path, (".parquet", ".pq"))
    kinds, groups = kinds_of(files)
    asked = list(kinds) if features is None else list(features)
    texts = [name for name in asked if kinds.get(name) == "text" and name not in (target, offset, weights)]
    stamps, options = stamps_of(files), (target, features, offset, weights, intercept)
    levels: dict[str, Any] = {}
    if texts:
        plain = laid_out({**kinds, **dict.fromkeys(texts, "bool")}, {}, *options)
        levels = _levels(InPartitions(ParquetReader(groups, plain, stamps), workers), texts)
    reader = ParquetReader(groups, laid_out(kinds, levels, *options), stamps)
    if not reader.sizes.sum():
        raise DataError(f"{path} has no rows.")
    return InPartitions(reader, workers)


def _levels(data: InPartitions, columns: list[str]) -> dict[str, Any]:
    """The levels of text columns: one list for all partitions, in order."""
    found = data.each(values_of, [(k, columns, MOST_LEVELS) for k in range(len(data.reader.sizes))], "levels")
    levels: dict[str, Any] = {}
    for name in columns:
        known = [each[name] for each in found]
        if any(each is None for each in known) or len(union := np.unique(np.concatenate(known))) > MOST_LEVELS:
            raise DataError(f"the column {name!r} has more than {MOST_LEVELS} levels; leave it out of features.")
        levels[name] = union.tolist()
    return levels


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


def from_csv(path: Any, target: str, features: Any = None, client: Any = None) -> InPartitions:
    """CSV."""
    raise NotImplementedError


def from_dask(X: Any, y: Any, client: Any = None) -> InPartitions:
    """Dask."""
    raise NotImplementedError


def _require_paths(workers: Workers, sources: list[Any]) -> None:
    """Arrays stay in this process: others read files."""
    if not isinstance(workers, Threads) and any(not (each is None or isinstance(each, str)) for each in sources):
        why = "save it by numpy.save, where all workers can read it, and give its path"
        raise requirement("X and y", "paths of .npy files where others than threads read them", "an array", why)
