"""What reads rows in partitions, and who works through them; made by `svrhmc.data`."""

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
BLOCK_ENTRIES = 1 << 21  # of X that a block has, about


class Block(NamedTuple):
    """Some rows of a partition, from number `first` on: X (rows, columns), labels, offsets and weights."""

    first: int
    X: Matrix
    y: Values
    offset: Array | None = None
    weights: Array | None = None

    def chosen(self, rows: Selection) -> Block:
        """Some of its rows."""
        offset, weights = (None if values is None else values[rows] for values in (self.offset, self.weights))
        return Block(self.first, self.X[rows], self.y[rows], offset, weights)

    def silenced(self) -> Block:
        """The same with zeros for the entries and the offset of rows of weight 0, for which 0 · ∞ would be NaN. They
        keep their places, by which rows are drawn.
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
    """Reads partitions; it is sent to workers, so it holds names of files and not their contents.

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
        """The same with zeros in rows of weight 0."""
        return (block.silenced() for block in self.read(number))

    @abstractmethod
    def labels(self, number: int) -> Iterator[Values]:
        """The labels of a partition without its rows, block by block."""

    @abstractmethod
    def only(self, number: int) -> Reader:
        """A reader of one partition, which has the number 0: all that a worker needs of this one."""

    @abstractmethod
    def where(self, number: int) -> str:
        """What a partition is called, for errors."""

    @abstractmethod
    def identity(self) -> list[str]:
        """What a run that goes on must find unchanged: names and sizes, and when files were last written."""


class Partitions(ABC):
    """Rows that a target takes in place of X and y; made by `svrhmc.data`."""

    reader: Reader

    @abstractmethod
    def pass_over(
        self, work: Callable[..., T], arguments: Sequence[tuple[int, *tuple[object, ...]]], purpose: str
    ) -> Iterator[T]:
        """work(reader, *some) for each of some arguments, by whoever works, in their order and as soon as they are
        there; `purpose` names the pass.
        """

    @abstractmethod
    def read_by(self, reader: Reader) -> Partitions:
        """The same workers with another reader."""


def require_finite(block: Block, reader: Reader, number: int) -> None:
    """Refuse a block with an entry that is no finite number, and name it."""
    entries = block.X if isinstance(block.X, np.ndarray) else block.X.toarray()
    for name, values in (("", entries), *(((n, v) for n, v in block._asdict().items() if n in ("offset", "weights")))):
        if values is None or (fine := np.isfinite(values)).all():
            continue
        row = int(np.argmin(fine.all(axis=1) if fine.ndim > 1 else fine))
        column = name or f"column {reader.names[int(np.argmin(fine[row]))]!r}"
        raise DataError(
            f"{reader.where(number)}, row {block.first + row}, {column}: a missing value or one that is not finite. "
            "Fill such values in, or leave these rows out."
        )


def stacked(parts: Sequence[Stacked]) -> Stacked:
    """Arrays, or CSR matrices, one after another; None where there are none."""
    first: object = parts[0]
    if first is None:
        return parts[0]
    if isinstance(first, np.ndarray):
        return cast(Stacked, np.concatenate(cast(Sequence[Values], parts)))
    from scipy.sparse import csr_matrix, vstack

    return cast(Stacked, csr_matrix(vstack(parts)))
