"""Rows in partitions: the interfaces of what reads them and of what makes passes; `svrhmc.data` implements them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

import numpy as np

from svrhmc.core.arrays import Array, Indices, Selection, Values
from svrhmc.core.errors import DataError
from svrhmc.rows.csr import Matrix

T = TypeVar("T")
Stacked = TypeVar("Stacked")
BLOCK_ENTRIES = 1 << 21  # the approximate number of entries of X in a block


class Block(NamedTuple):
    """Some rows of a partition, from number `first` on: X (rows, columns), labels, offsets and weights."""

    first: int
    X: Matrix
    y: Values
    offset: Array | None = None
    weights: Array | None = None

    def choose(self, rows: Selection) -> Block:
        """The chosen rows of the block."""
        offset, weights = (None if values is None else values[rows] for values in (self.offset, self.weights))
        return Block(self.first, self.X[rows], self.y[rows], offset, weights)

    def clear_weightless_rows(self) -> Block:
        """The block with zeros as entries and offsets of rows of weight 0, whose terms could be 0 · ∞ otherwise. These
        rows keep their places, by which rows are drawn.
        """
        if self.weights is None or self.weights.all():
            return self
        counts = self.weights > 0
        if isinstance(self.X, np.ndarray):
            X: Matrix = np.where(counts[:, None], self.X, self.X.dtype.type(0))
        else:
            X = self.X.multiply(counts[:, None]).tocsr().astype(self.X.dtype)
        return self._replace(X=X, offset=None if self.offset is None else np.where(counts, self.offset, 0.0))


class Reader(ABC):
    """Reads partitions. It is sent to workers, so it holds names of files and not their contents.

    sizes: the number of rows of each partition. names: of the columns of X. dtype: of X.
    """

    sizes: Indices
    names: tuple[str, ...]
    dtype: np.dtype[np.floating]
    storage: str = "dense"
    has_offset: bool = False
    has_weights: bool = False

    @abstractmethod
    def read(self, number: int) -> Iterator[Block]:
        """The rows of a partition, block by block, in their order."""

    def blocks(self, number: int) -> Iterator[Block]:
        """The rows of a partition, block by block, with zeros in rows of weight 0."""
        return (block.clear_weightless_rows() for block in self.read(number))

    @abstractmethod
    def labels(self, number: int) -> Iterator[Values]:
        """The labels of a partition without its rows, block by block."""

    @abstractmethod
    def single_partition(self, number: int) -> Reader:
        """A reader of this partition alone, which then has the number 0, to be sent to a worker."""

    @abstractmethod
    def partition_name(self, number: int) -> str:
        """The name of a partition in error messages."""

    @abstractmethod
    def identity(self) -> list[str]:
        """What must be unchanged when a run is resumed: names and sizes, and when files were last written."""


class Partitions(ABC):
    """Rows that a target accepts in place of X and y; made by `svrhmc.data`."""

    reader: Reader

    @abstractmethod
    def pass_over(
        self, work: Callable[..., T], arguments: Sequence[tuple[int, *tuple[object, ...]]], purpose: str
    ) -> Iterator[T]:
        """The results of work(reader, 0, *rest) for each (number, *rest) in `arguments`, in their order, each as soon
        as it is there; the reader is that of one partition. purpose: a name for the pass, shown as progress.
        """

    @abstractmethod
    def with_reader(self, reader: Reader) -> Partitions:
        """The same workers with another reader."""


def require_finite(block: Block, reader: Reader, number: int) -> None:
    """Refuse a block with an entry, offset or weight that is not finite, with its place."""
    entries = block.X if isinstance(block.X, np.ndarray) else block.X.toarray()
    for name, values in (("", entries), ("offset", block.offset), ("weights", block.weights)):
        if values is None or (finite := np.isfinite(values)).all():
            continue
        row = int(np.argmin(finite.all(axis=1) if finite.ndim > 1 else finite))
        column = name or f"column {reader.names[int(np.argmin(finite[row]))]!r}"
        raise DataError(
            f"{reader.partition_name(number)}, row {block.first + row}, {column}: a missing value or one that is not "
            "finite. Fill such values in, or leave these rows out."
        )


def concatenate(parts: Sequence[Stacked]) -> Stacked:
    """Arrays or CSR matrices, one below the other; None if the parts are None."""
    first: object = parts[0]
    if first is None:
        return parts[0]
    if isinstance(first, np.ndarray):
        return cast(Stacked, np.concatenate(cast(Sequence[Values], parts)))
    from scipy.sparse import csr_matrix, vstack

    return cast(Stacked, csr_matrix(vstack(parts)))
