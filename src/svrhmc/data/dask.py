"""Dask data frames and arrays: the graph of a partition goes to whoever reads it, and is computed there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Values
from svrhmc.core.errors import DataError, missing_package, requirement
from svrhmc.data.arrays import blocks_of, names_or_default
from svrhmc.rows.reading import Block, Reader
from svrhmc.rows.workers import ClientLike, InPartitions, Workers, pass_over, workers_of
from svrhmc.tables.columns import Level, Series
from svrhmc.tables.learning import MOST_LEVELS, levels_of_all
from svrhmc.tables.partitions import open_partitions
from svrhmc.tables.sources import Batch, Source, column_of, kind_of

Lazy = Any  # an array or data frame of Dask, a task of its graph or a key of one: Dask has no types


def from_dask(
    data: Lazy,
    target: Lazy = None,
    features: Sequence[str] | None = None,
    client: ClientLike = None,
    *,
    offset: Lazy = None,
    weights: Lazy = None,
    intercept: bool = False,
) -> InPartitions:
    """Rows of a Dask data frame, or of a Dask array. Partitions are computed where they are read, in every pass.

    data: a data frame, or an array (rows, columns) whose chunks are whole rows.
    target: the name of the column of labels, or None where a formula will say it; for an array X, the array y.
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
        names = None if target is None or features is None else [target, *features, offset, weights]
        source = _frame_source(data, workers, names)
        return open_partitions(source, workers, target, features, offset, weights, intercept, "the data frame")
    if intercept:
        raise requirement("intercept", "False for an array", intercept, "give it a column of ones")
    return _partitions_of_array(data, (target, offset, weights), features, workers)


def _partitions_of_array(
    X: Lazy, more: tuple[Lazy, ...], names: Sequence[str] | None, workers: Workers
) -> InPartitions:
    if X.ndim != 2 or X.dtype.kind not in "biuf" or X.numblocks[1] != 1:
        given = f"{X.dtype} of shape {X.shape} in {X.numblocks} chunks"
        raise requirement("data", "an array of numbers (rows, columns) in chunks of whole rows", given, "rechunk it")
    column_names = names_or_default(names, X.shape[1])
    if len(column_names) != X.shape[1]:
        raise requirement("features", f"{X.shape[1]} names", len(column_names))
    graphs = graphs_of(X)
    others: list[Graphs | None] = []
    sizes = _chunk_sizes(X, graphs, workers)
    for name, collection in zip(("target", "offset", "weights"), more, strict=True):
        if collection is None and name != "target":
            others.append(None)
            continue
        if not hasattr(collection, "to_delayed") or collection.ndim != 1:
            raise requirement(name, "a Dask array of one axis, as X is one", type(collection).__name__)
        parts = graphs_of(collection)
        others.append(parts)
        if _chunk_sizes(collection, parts, workers) != sizes:
            raise requirement(name, "in chunks of as many rows as those of X", f"{collection.chunks[0]}", "rechunk it")
    if not sum(sizes):
        raise DataError("the array has no rows.")
    kind = np.float32 if X.dtype == np.float32 else np.float64
    return InPartitions(ChunksReader(graphs, tuple(others), np.array(sizes, np.int64), column_names, kind), workers)


def _chunk_sizes(array: Lazy, graphs: Graphs, workers: Workers) -> list[int]:
    """Rows of each chunk; computed where Dask does not know them."""
    if not np.isnan(np.array(array.chunks[0], np.float64)).any():
        return [int(size) for size in array.chunks[0]]
    shapes = pass_over(workers, graphs, shape_of, [(k,) for k in range(len(graphs.parts))], "sizes of chunks")
    return [shape[0] for shape in shapes]


class Graph(NamedTuple):
    """How one partition of a collection is made."""

    tasks: Mapping[Lazy, Lazy]
    key: Lazy

    def compute(self) -> Lazy:
        """The partition, computed in this thread."""
        from dask.delayed import Delayed

        return Delayed(self.key, self.tasks).compute(scheduler="synchronous")  # type: ignore[no-untyped-call]


class Graphs:
    """Partitions of a collection, as graphs."""

    def __init__(self, parts: list[Graph]) -> None:
        self.parts = parts

    def single_partition(self, number: int) -> Graphs:
        """The graph of one partition, which has the number 0."""
        return Graphs([self.parts[number]])


class FrameSource(Source):
    """Partitions of a data frame."""

    def __init__(
        self, graphs: Graphs, sizes: npt.NDArray[np.int64], kinds: Mapping[str, str],
        levels: Mapping[str, Sequence[Level] | None],
        ordered: Collection[str], first: int = 0,
    ) -> None:  # fmt: skip
        """first: the number of the first of these among all partitions, for errors."""
        self.graphs, self.sizes, self.kinds, self.first = graphs, sizes, kinds, first
        self.levels, self.ordered = levels, ordered

    def single_partition(self, number: int) -> FrameSource:
        sizes = self.sizes[number : number + 1]
        return FrameSource(
            self.graphs.single_partition(number), sizes, self.kinds, {}, self.ordered, self.first + number
        )

    def partition_name(self, number: int) -> str:
        return f"partition {self.first + number} of the data frame"

    def identity(self) -> list[str]:
        """The names that Dask gives partitions, which depend on how they are made."""
        return [str(part.key) for part in self.graphs.parts]

    def batches(self, number: int, names: Sequence[str], rows: int) -> Iterator[Batch]:
        """Of a partition, which is made wholly."""
        frame = self.graphs.parts[number].compute()
        _require_columns(frame, names, self.partition_name(number))
        if len(frame) != self.sizes[number]:
            raise DataError(
                f"{self.partition_name(number)} has {len(frame)} rows, and had {self.sizes[number]} when it was opened."
            )
        for low in range(0, len(frame), rows):
            some = frame.iloc[low : low + rows]
            yield low, {name: some[name] for name in names}


def _frame_source(data: Lazy, workers: Workers, wanted: Sequence[str | None] | None) -> FrameSource:
    """Sizes of the partitions, and levels of texts. wanted: the columns that will be used; None: any."""
    kinds = {str(name): kind_of(dtype) for name, dtype in zip(data.columns, data.dtypes, strict=True)}
    names = [name for name in kinds if wanted is None or name in wanted]
    texts = [name for name in names if kinds[name] == "text"]
    graphs = graphs_of(data[names] if names else data)
    arguments = [(k, k, names, texts, MOST_LEVELS) for k in range(len(graphs.parts))]
    counted_parts = list(pass_over(workers, graphs, survey_partition, arguments, "levels and sizes"))
    for k, part in enumerate(counted_parts):
        for name in names:
            if part.rows and part.kinds[name] != kinds[name]:
                raise DataError(
                    f"partition {k} of the data frame: the column {name!r} is {part.kinds[name]}, and the frame says "
                    f"{kinds[name]}. All partitions must have the same columns with the same types."
                )
    levels = {name: levels_of_all(part.texts[name] for part in counted_parts) for name in texts}
    ordered = [name for name in texts if getattr(data.dtypes[name], "ordered", False)]
    return FrameSource(graphs, np.array([part.rows for part in counted_parts], np.int64), kinds, levels, ordered)


class PartitionSurvey(NamedTuple):
    """Of a partition of a data frame: its rows, the kinds of its columns, and the texts of some; None if too many."""

    rows: int
    kinds: dict[str, str]
    texts: dict[str, Series]


def survey_partition(
    graphs: Graphs, number: int, place: int, columns: list[str], texts: list[str], most: int
) -> PartitionSurvey:
    """Of one partition. place: its number among all."""
    frame, where = graphs.parts[number].compute(), f"partition {place} of the data frame"
    _require_columns(frame, columns, where)
    kinds = {name: kind_of(frame[name].dtype) for name in columns}
    values: dict[str, Series] = {}
    for name in texts:
        present = set(column_of(frame[name], name, where).values.present_texts()) if kinds[name] == "text" else set()
        values[name] = None if len(present) > most else present
    return PartitionSurvey(len(frame), kinds, values)


def _require_columns(frame: Lazy, columns: Sequence[str], where: str) -> None:
    """Refuse a partition that lacks some."""
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"{where} has no column {name!r}. All partitions must have the same columns.")


class ChunksReader(Reader):
    """Chunks of rows of an array, with those of y, offset and weights."""

    def __init__(
        self, X: Graphs, more: tuple[Graphs | None, ...], sizes: npt.NDArray[np.int64], names: tuple[str, ...],
        dtype: type[np.floating] | np.dtype[np.floating], first: int = 0,
    ) -> None:  # fmt: skip
        """more: of y, offset and weights. first: the number of the first of these among all chunks, for errors."""
        self.X, self.more, self.sizes, self.names, self.first = X, more, sizes, names, first
        self.dtype = np.dtype(dtype)
        self.has_offset, self.has_weights = more[1] is not None, more[2] is not None

    def single_partition(self, number: int) -> ChunksReader:
        more = tuple(None if collection is None else collection.single_partition(number) for collection in self.more)
        return ChunksReader(
            self.X.single_partition(number),
            more,
            self.sizes[number : number + 1],
            self.names,
            self.dtype,
            self.first + number,
        )

    def partition_name(self, number: int) -> str:
        return f"chunk {self.first + number} of X"

    def identity(self) -> list[str]:
        """The names that Dask gives chunks, which depend on how they are made."""
        return [str(part.key) for graphs in (self.X, *self.more) if graphs is not None for part in graphs.parts]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block of a chunk, which is made wholly."""
        X = np.asarray(self.X.parts[number].compute())
        more = [None if graphs is None else np.asarray(graphs.parts[number].compute()) for graphs in self.more]
        if X.shape != (self.sizes[number], len(self.names)):
            raise DataError(
                f"{self.partition_name(number)} has the shape {X.shape}, and should have "
                f"{(int(self.sizes[number]), len(self.names))}."
            )
        return blocks_of(self.dtype, X, *more)

    def labels(self, number: int) -> Iterator[Values]:
        assert self.more[0] is not None
        yield np.asarray(self.more[0].parts[number].compute())


def shape_of(graphs: Graphs, number: int) -> tuple[int, ...]:
    """The shape of a chunk, once it is computed."""
    return tuple(np.shape(graphs.parts[number].compute()))


def graphs_of(collection: Lazy) -> Graphs:
    """The graph of each partition of a data frame, or of each chunk of an array, without the others'."""
    from dask.optimization import cull

    try:
        delayed = np.ravel(collection.to_delayed()).tolist()
        tasks = dict(delayed[0].dask)
    except Exception as error:
        raise DataError(f"the Dask collection has no graph that can be made: {type(error).__name__}: {error}") from None
    parts = [Graph(cull(tasks, [part.key])[0], part.key) for part in delayed]  # type: ignore[no-untyped-call]
    if any(_is_on_cluster(task) for task in parts[0].tasks.values()):
        raise requirement(
            "data", "a Dask collection that workers can make again", "one that is kept on a cluster",
            "give it as it was before persist()",
        )  # fmt: skip
    return Graphs(parts)


def _is_on_cluster(task: Lazy) -> bool:
    """Whether a task stands for a result on a cluster."""
    value = getattr(task, "value", task)
    return type(value).__module__.startswith("distributed") and hasattr(value, "client")


def require_dask() -> ModuleType:
    """The package dask, or an error that says how to install it."""
    try:
        import dask
    except ImportError:
        raise missing_package("dask", "dask", "a Dask collection") from None
    return dask
