"""Regressions on rows in partitions, in the units of their data: what is typical of columns and labels is found by a
pass, and rows are standardised as they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError
from svrhmc.fitting.scales import Scales, constant_columns
from svrhmc.sampling.coordinates import Units
from svrhmc.targets.coding import Coding
from svrhmc.targets.partitions import total_of
from svrhmc.targets.reading import Block, Partitions, Reader, require_finite


class Described(NamedTuple):
    """Of some rows: Σw, sums of w(x − x₀) and w(x − x₀)² by column, the least and the largest number of each column and
    whether it has no others; the same sums of labels, and of offsets.
    """

    weight: float
    sums: Array
    squares: Array
    least: Array
    most: Array
    two: npt.NDArray[np.bool_]
    y: Array  # Σw(y − y₀), Σw(y − y₀)², Σ offset·w, and Σw of the rows with y > 0

    def __add__(self, other: Described) -> Described:  # type: ignore[override]
        ends = np.stack([self.least, self.most, other.least, other.most])
        low, high = ends.min(axis=0), ends.max(axis=0)
        two = self.two & other.two & ((ends == low) | (ends == high)).all(axis=0)
        return Described(
            self.weight + other.weight, self.sums + other.sums, self.squares + other.squares, low, high, two,
            self.y + other.y,
        )  # fmt: skip


def described(reader: Reader, number: int, coding: Coding, x0: Array, y0: float) -> Described | None:
    """Of one partition; None where it has no rows."""
    total: Described | None = None
    for block in reader.read(number):
        require_finite(block, reader, number)
        y = coding.form(block, reader.where(number)).y
        w = np.ones(len(y)) if block.weights is None else block.weights
        X = block.X if isinstance(block.X, np.ndarray) else block.X.toarray()
        away = np.asarray(X, np.float64) - x0
        least, most = (np.asarray(each, np.float64) for each in (X.min(axis=0), X.max(axis=0)))
        offset = np.zeros(len(y)) if block.offset is None else block.offset
        residual = y - y0
        two = np.asarray((np.equal(X, least) | np.equal(X, most)).all(axis=0), np.bool_)
        one = Described(
            float(w.sum()), w @ away, w @ away**2, least, most, two,
            np.array([w @ residual, w @ residual**2, w @ offset, w @ (y > 0)]),
        )  # fmt: skip
        total = one if total is None else total + one
    return total


class Known(NamedTuple):
    """Scales of the columns, and what is typical of the labels: a predictor, and the size of a large effect."""

    scales: Scales
    typical: float
    size: float
    least: Array  # numbers of the columns
    most: Array


def known_of(data: Partitions, coding: Coding, intercept: bool) -> Known:
    """By one pass, about the first row that there is."""
    reader = data.reader
    first = next(block for number in np.flatnonzero(reader.sizes) for block in reader.read(int(number)))
    x0 = np.asarray(first.chosen(slice(1)).X if isinstance(first.X, np.ndarray) else first.X[:1].toarray(), np.float64)
    y0 = float(coding.form(first.chosen(slice(1)), reader.where(0)).y[0])
    arguments = [(number, coding, x0[0], y0) for number in range(len(reader.sizes))]
    none = np.zeros(x0.shape[1])
    zero = Described(0.0, none, none, none, none, none.astype(np.bool_), np.zeros(4))
    found = total_of(
        lambda first: data.each(described, arguments[first:], "means and scales of columns"), len(arguments), zero
    )
    return _known(found, coding, x0[0], y0, intercept)


def _known(told: Described, coding: Coding, x0: Array, y0: float, intercept: bool) -> Known:
    mean = told.sums / told.weight
    sd = np.sqrt(np.maximum(told.squares / told.weight - mean**2, 0.0))
    size = np.abs(x0 + mean)
    constant = constant_columns(sd, size, x0)
    scale = np.where(constant, 1.0 if intercept else size, sd)
    scale = np.where(scale > 0, scale, 1.0)
    centre = x0 + mean if intercept else np.zeros_like(mean)
    step = np.where(told.two & ~constant, told.most - told.least, scale)
    scales = Scales(centre, scale, constant, (x0 + mean - centre) / scale, step)
    return Known(scales, *_overall(told, coding, y0), told.least, told.most)


def _overall(told: Described, coding: Coding, y0: float) -> tuple[float, float]:
    """`Loss.overall` of two labels that have the mean and the spread of all, or their share of events."""
    loss, w = coding.loss, told.weight
    if loss.outcome == "events":
        values, weights = np.array([-1.0 if _signed(coding) else 0.0, 1.0]), np.array([w - told.y[3], told.y[3]])
    else:
        mean = y0 + told.y[0] / w
        sd = np.sqrt(max(told.y[1] / w - (told.y[0] / w) ** 2, 0.0))
        values, weights = np.array([mean - sd, mean + sd]), np.array([w / 2, w / 2])
    return loss.overall(values, weights, np.full(2, told.y[2] / w))


def _signed(coding: Coding) -> bool:
    """Whether labels of events are −1 and 1."""
    return coding.meant is not None and float(coding.meant.min()) < 0


class StandardReader(Reader):
    """Another reader's rows in the variables of a model: standardised, after a column of ones."""

    def __init__(self, reader: Reader, units: Units) -> None:
        self.reader, self.units = reader, units
        self.sizes, self.dtype, self.storage = reader.sizes, reader.dtype, reader.storage
        self.names = (("Intercept",) if units.intercept else ()) + reader.names
        self.has_offset, self.has_weights = reader.has_offset or units.response != 0, reader.has_weights

    def read(self, number: int) -> Iterator[Block]:
        """Block by block."""
        units = self.units
        for block in self.reader.read(number):
            offset = block.offset
            if units.response != 0:
                offset = np.full(len(block.y), units.response) + (0.0 if offset is None else offset)
            yield block._replace(X=units.rows_by_column(block.X), offset=offset)

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """As they are."""
        return self.reader.labels(number)

    def only(self, number: int) -> Reader:
        """Of one partition."""
        return StandardReader(self.reader.only(number), self.units)

    def where(self, number: int) -> str:
        """As it is."""
        return self.reader.where(number)

    def identity(self) -> list[str]:
        """As it is, and the units."""
        return [*self.reader.identity(), repr((self.units.centre.tolist(), self.units.scale.tolist()))]


def require_dense(reader: Reader) -> None:
    """Refuse sparse rows, which no centre is taken from."""
    if reader.storage == "sparse":
        raise DataError("sparse rows in partitions are sampled as they are: use svrhmc.targets.glm and svrhmc.sample.")
