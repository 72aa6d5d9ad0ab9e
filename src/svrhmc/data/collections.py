"""Dask data frames and arrays: the graph of a partition goes to whoever reads it, and is computed there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError, missing, requirement
from svrhmc.data.layout import Layout, labels
from svrhmc.targets.reading import BLOCK_ENTRIES, Block, Reader


class Graph(NamedTuple):
    """How one partition of a collection is made."""

    tasks: Mapping[Any, Any]
    key: Any

    def made(self) -> Any:
        """The partition, computed in this thread."""
        from dask.delayed import Delayed

        return Delayed(self.key, self.tasks).compute(scheduler="synchronous")  # type: ignore[no-untyped-call]


class Graphs:
    """Partitions of a collection, as graphs."""

    def __init__(self, parts: list[Graph]) -> None:
        self.parts = parts

    def only(self, number: int) -> Graphs:
        """One of them."""
        return Graphs([self.parts[number]])


class FrameReader(Reader):
    """Partitions of a data frame."""

    def __init__(self, graphs: Graphs, sizes: npt.NDArray[np.int64], layout: Layout, first: int = 0) -> None:
        """first: the number of the first of these among all partitions, for errors."""
        self.graphs, self.sizes, self.layout, self.first = graphs, sizes, layout, first
        self.names, self.dtype = layout.names, np.dtype(layout.dtype)
        self.has_offset, self.has_weights = layout.offset is not None, layout.weights is not None

    def only(self, number: int) -> FrameReader:
        """Of one partition."""
        return FrameReader(self.graphs.only(number), self.sizes[number : number + 1], self.layout, self.first + number)

    def where(self, number: int) -> str:
        """Its number."""
        return f"partition {self.first + number} of the data frame"

    def identity(self) -> list[str]:
        """The names that Dask gives partitions, which depend on how they are made, and which columns are used how."""
        return [*(str(part.key) for part in self.graphs.parts), repr(self.layout)]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block of a partition, which is made wholly."""
        rows = max(1024, BLOCK_ENTRIES // max(1, len(self.names)))
        frame = self._frame(number, self.layout.columns)
        for low in range(0, len(frame), rows):
            some = frame.iloc[low : low + rows]
            yield self.layout.block(low, {name: some[name] for name in self.layout.columns}, self.where(number))

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """The one column."""
        target = self.layout.target
        yield labels(self._frame(number, [target])[target], target, 0, self.where(number))

    def _frame(self, number: int, columns: list[str]) -> Any:
        frame = self.graphs.parts[number].made()
        require_columns(frame, columns, self.where(number))
        if len(frame) != self.sizes[number]:
            raise DataError(
                f"{self.where(number)} has {len(frame)} rows, and had {self.sizes[number]} when it was opened."
            )
        return frame


class Counted(NamedTuple):
    """Of a partition of a data frame: its rows, the kinds of its columns, and the texts of some; None if too many."""

    rows: int
    kinds: dict[str, str]
    texts: dict[str, Any]


def counted(graphs: Graphs, number: int, place: int, columns: list[str], texts: list[str], most: int) -> Counted:
    """Of one partition. place: its number among all."""
    frame, where = graphs.parts[number].made(), f"partition {place} of the data frame"
    require_columns(frame, columns, where)
    found: dict[str, Any] = {}
    for name in texts:
        values = np.unique(labels(frame[name], name, 0, where)) if len(frame) else np.zeros(0, "<U1")
        found[name] = None if len(values) > most else values
    return Counted(len(frame), {name: kind_of(frame[name].dtype) for name in columns}, found)


def require_columns(frame: Any, columns: list[str], where: str) -> None:
    """Refuse a partition that lacks some."""
    for name in columns:
        if name not in frame.columns:
            raise DataError(f"{where} has no column {name!r}. All partitions must have the same columns.")


def kind_of(dtype: Any) -> str:
    """Of a column: the name of a type of numbers, "text" or "other"."""
    name = str(dtype).lower()
    if name == "category":
        return kind_of(dtype.categories.dtype) if kind_of(dtype.categories.dtype) == "text" else "other"
    if name.startswith(("string", "object", "str", "large_string")):
        return "text"
    plain = {"boolean": "bool", "double[pyarrow]": "float64", "float[pyarrow]": "float32"}.get(name, name)
    plain = plain.removesuffix("[pyarrow]")
    return plain if plain.startswith(("int", "uint", "float", "bool")) else "other"


class ChunksReader(Reader):
    """Chunks of rows of an array, with those of y, offset and weights."""

    def __init__(
        self, X: Graphs, more: tuple[Graphs | None, ...], sizes: npt.NDArray[np.int64], names: tuple[str, ...],
        dtype: Any, first: int = 0,
    ) -> None:  # fmt: skip
        """more: of y, offset and weights. first: the number of the first of these among all chunks, for errors."""
        self.X, self.more, self.sizes, self.names, self.first = X, more, sizes, names, first
        self.dtype = np.dtype(dtype)
        self.has_offset, self.has_weights = more[1] is not None, more[2] is not None

    def only(self, number: int) -> ChunksReader:
        """Of one chunk."""
        more = tuple(None if each is None else each.only(number) for each in self.more)
        return ChunksReader(
            self.X.only(number), more, self.sizes[number : number + 1], self.names, self.dtype, self.first + number
        )

    def where(self, number: int) -> str:
        """Its number."""
        return f"chunk {self.first + number} of X"

    def identity(self) -> list[str]:
        """The names that Dask gives chunks, which depend on how they are made."""
        return [str(part.key) for graphs in (self.X, *self.more) if graphs is not None for part in graphs.parts]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block of a chunk, which is made wholly."""
        rows, X = max(1024, BLOCK_ENTRIES // max(1, len(self.names))), np.asarray(self.X.parts[number].made())
        y, offset, weights = (None if each is None else np.asarray(each.parts[number].made()) for each in self.more)
        assert y is not None
        if X.shape != (self.sizes[number], len(self.names)):
            raise DataError(
                f"{self.where(number)} has the shape {X.shape}, and should have "
                f"{(int(self.sizes[number]), len(self.names))}."
            )
        for low in range(0, len(X), rows):
            some = slice(low, low + rows)
            more = (None if each is None else np.asarray(each[some], np.float64) for each in (offset, weights))
            yield Block(low, np.asfortranarray(X[some], self.dtype), y[some], *more)

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """Of a chunk."""
        assert self.more[0] is not None
        yield np.asarray(self.more[0].parts[number].made())


def shape_of(graphs: Graphs, number: int) -> tuple[int, ...]:
    """Of a chunk, computed."""
    return tuple(np.shape(graphs.parts[number].made()))


def graphs_of(collection: Any) -> Graphs:
    """The graph of each partition of a data frame, or of each chunk of an array, without the others'."""
    from dask.optimization import cull

    try:
        delayed = np.ravel(collection.to_delayed()).tolist()
        tasks = dict(delayed[0].dask)
    except Exception as error:
        raise DataError(f"the Dask collection has no graph that can be made: {type(error).__name__}: {error}") from None
    parts = [Graph(cull(tasks, [each.key])[0], each.key) for each in delayed]  # type: ignore[no-untyped-call]
    if any(_is_elsewhere(task) for task in parts[0].tasks.values()):
        raise requirement(
            "data", "a Dask collection that workers can make again", "one that is kept on a cluster",
            "give it as it was before persist()",
        )  # fmt: skip
    return Graphs(parts)


def _is_elsewhere(task: Any) -> bool:
    """Whether a task stands for a result on a cluster."""
    value = getattr(task, "value", task)
    return type(value).__module__.startswith("distributed") and hasattr(value, "client")


def require_dask() -> Any:
    """The package."""
    try:
        import dask
    except ImportError:
        raise missing("dask", "dask", "a Dask collection") from None
    return dask
