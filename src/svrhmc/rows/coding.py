"""Labels of rows in partitions: one list of classes for all partitions, and the numbers by which a loss codes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Integers, Values
from svrhmc.core.errors import DataError, requirement
from svrhmc.families.base import Loss
from svrhmc.rows.base import Rows
from svrhmc.rows.columns import make_block_rows
from svrhmc.rows.forms import RowsForm
from svrhmc.rows.predictors import rows_for_loss
from svrhmc.rows.reading import Block, Partitions, Reader
from svrhmc.rows.sparse import make_rows

_MOST_CLASSES = 1000
_FEW = 8  # different labels


@dataclass(frozen=True, eq=False)
class Coding:
    """How labels are coded for a loss: `coded` has numbers for the sorted `values`; None leaves labels as they are."""

    loss: Loss
    values: Values | None = None
    coded: Array | None = None

    def form(self, block: Block, where: str) -> RowsForm:
        """The form of the rows of a block, without a prior; `where` is the name of the partition in errors."""
        rows: Rows = rows_for_loss(make_block_rows(block.X, make_rows), self.loss)
        flat = np.zeros(rows.dim)
        return RowsForm(
            rows, self._coded_labels(block, where), self.loss, flat, flat, offset=block.offset, weights=block.weights
        )

    def _coded_labels(self, block: Block, where: str) -> Array:
        try:
            if self.values is None or self.coded is None:
                return self.loss.observed(block.y, len(block.y)).y
            places = _places(self.values, block.y)
            if not (known := self.values[places] == block.y).all():
                row = int(np.argmin(known))
                raise DataError(
                    f"row {block.first + row} has the label {block.y[row]!r}, which no other partition has."
                )
            return self.coded[places]
        except ValueError as error:
            raise DataError(f"{where}, rows from {block.first} on: {error}") from None


def _places(values: Values, y: Values) -> Integers:
    """For each label the index of the last value that is not larger, or 0. Few values are compared one by one, which is
    faster than a binary search.
    """
    if len(values) > _FEW:
        return np.maximum(np.searchsorted(values, y, "right") - 1, 0)
    places = np.zeros(len(y), np.uint8)
    for value in values[1:]:
        places += y >= value
    return places


def make_coding(data: Partitions, loss: Loss) -> tuple[Coding, Values | None]:
    """The coding of labels for a loss, and the classes they stand for.

    Where labels are events or classes, a pass over all partitions finds the list of classes.
    """
    if loss.outcome not in ("events", "classes"):
        return Coding(loss), None
    reader = data.reader
    by_partition = data.pass_over(distinct_labels, [(k, _MOST_CLASSES) for k in range(len(reader.sizes))], "labels")
    filled = [labels for labels in by_partition if labels is None or len(labels)]
    if not filled:
        raise DataError("there are no rows in any partition.")
    few = [labels for labels in filled if labels is not None]
    if len(few) < len(filled) or len(values := _union(few)) > _MOST_CLASSES:
        raise requirement("y", f"labels of at most {_MOST_CLASSES} classes for {loss}", "more")
    coded = loss.coded(values)
    return Coding(coded.loss, values, coded.loss.observed(coded.y, len(values)).y), coded.classes


def _union(by_partition: list[Values]) -> Values:
    """The different labels of all partitions, sorted."""
    kinds = {labels.dtype.kind for labels in by_partition}
    if len(kinds) > 1 and kinds & set("USO") and kinds - set("USO"):
        raise DataError("the labels are texts in some partitions and numbers in others. Give all of them one type.")
    return np.unique(np.concatenate(by_partition))


def distinct_labels(reader: Reader, number: int, most: int) -> Values | None:
    """The different labels of a partition, sorted; None if there are more than `most`."""
    distinct: Values | None = None
    for y in reader.labels(number):
        in_block = np.unique(y)
        distinct = in_block if distinct is None else np.union1d(distinct, in_block)
        if len(distinct) > most:
            return None
    return np.zeros(0) if distinct is None else distinct
