"""Centre and scale of columns, with weights that count rows. For rows in memory they are computed at once; for rows in
partitions by a pass, and these rows are standardised as they are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, map_blocks
from svrhmc.core.errors import DataError
from svrhmc.families.base import Loss
from svrhmc.rows.coding import Coding
from svrhmc.rows.csr import MatrixLike
from svrhmc.rows.partitions import sum_partitions
from svrhmc.rows.reading import Block, Partitions, Reader, require_finite
from svrhmc.sampling.coordinates import Units

_FEW = 1000  # rows that show most columns to have more than two values
_BLOCK = 1 << 21  # numbers looked at in one piece
_LARGEST = 1e70
_ROUNDING = 1e-10  # of a column's size, below which its spread is nothing but rounding


class Scales(NamedTuple):
    """Centre and scale of each column.

    centre: the mean; 0 for sparse columns, which are not centred. scale: the standard deviation; 1 if it is constant.
    constant: which columns are constant. left: what is left of the mean after centring, in scales. step: a typical
    change of the column: its scale, or the difference of its two values if it has only two.
    """

    centre: Array
    scale: Array
    constant: npt.NDArray[np.bool_]
    left: Array
    step: Array

    def of(self, columns: slice) -> Scales:
        """The scales of some columns."""
        values: Any = [array[columns] for array in self]
        return Scales(*values)


def require_size(X: MatrixLike, names: Sequence[str], what: str = "column") -> None:
    """Refuse columns whose numbers are so large, or differ by so little, that squares of coefficients would overflow:
    with sizes from 10⁻⁷⁰ to 10⁷⁰ a coefficient is at most 10¹⁴⁰, and its square 10²⁸⁰.
    """
    if not X.shape[1]:
        return
    if hasattr(X, "format"):
        low, high = (np.asarray(ends.todense(), np.float64).ravel() for ends in (X.min(axis=0), X.max(axis=0)))
    else:
        ends = map_blocks(lambda some: (X[some].min(axis=0), X[some].max(axis=0)), X.shape[0], _block_rows(X.shape[1]))
        low = np.asarray(np.min([least for least, _ in ends], axis=0), np.float64)
        high = np.asarray(np.max([most for _, most in ends], axis=0), np.float64)
    size, differ = np.maximum(np.abs(low), np.abs(high)), high / 2 - low / 2
    odd = (size > _LARGEST) | ((differ > 0) & (differ < 1 / _LARGEST))
    if odd.any():
        j = int(np.argmax(odd))
        raise DataError(
            f"{f'{what} {names[j]!r}' if names else what} goes from {low[j]:.3g} to {high[j]:.3g}, which is too "
            f"{'large' if size[j] > _LARGEST else 'small'} to calculate with: take another unit."
        )


def scales_by_piece(X: MatrixLike, weights: Array | None, pieces: Sequence[tuple[slice, bool]]) -> Scales:
    """The scales of columns in pieces. pieces: the columns of each, and whether they are centred."""
    if len(pieces) == 1:
        return scales_of(X, weights, pieces[0][1])
    parts = [scales_of(X[:, columns], weights, centred) for columns, centred in pieces]
    return Scales(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def scales_of(X: MatrixLike, weights: Array | None, centred: bool) -> Scales:
    """The scales of the columns of dense or CSR rows. centred: whether there is an intercept; without one columns are
    only scaled, by their standard deviation as well.
    """
    sparse = hasattr(X, "format")
    first, mean, second = _moments(X, weights, sparse)
    return _scales(first, mean, np.sqrt(second), _differences(X, sparse), centred, not sparse)


def _scales(first: Array, mean: Array, sd: Array, difference: Array, centred: bool, shifted: bool = True) -> Scales:
    """Scales from moments of each column. first: a value of it. mean: the mean minus that value. difference: of its two
    values if it has only two, else nan. shifted: whether columns may be centred, as sparse ones may not.
    """
    size = np.abs(first + mean)
    constant = sd <= _ROUNDING * np.maximum(size, np.abs(first))  # its spread is nothing but rounding
    scale = np.where(constant, 1.0 if centred else size, sd)
    scale = np.where(scale > 0, scale, 1.0)
    centre = first + mean if shifted and centred else np.zeros_like(mean)
    step = np.where(constant | np.isnan(difference), scale, difference)
    return Scales(centre, scale, constant, (first + mean - centre) / scale, step)


def constant_column_error(name: str, low: float, high: float) -> DataError:
    """The error for a column that an intercept makes redundant: it is constant, or its range is lost in the rounding of
    its size, as that of time stamps in nanoseconds may be.
    """
    if high > low:
        return DataError(
            f"column {name!r} goes from {low:.17g} to {high:.17g}, a range that would be lost in rounding beside its "
            "size: subtract its smallest value first (column - column.min())."
        )
    return DataError(f"column {name!r} is constant, and cannot be told from the intercept: leave it out.")


def _differences(X: MatrixLike, sparse: bool) -> Array:
    """The difference of the two values of each column that has only two; nan for other columns.

    A sparse column of one value v beside zeros has Σx² = vΣx.
    """
    n, dim = X.shape
    if sparse:
        ones = np.ones(n)
        high, low = (np.asarray(ends.todense(), np.float64).ravel() for ends in (X.max(axis=0), X.min(axis=0)))
        value = np.where(high > 0, high, low)
        sums, squares = (np.asarray(part.T @ ones, np.float64).ravel() for part in (X, X.multiply(X)))
        return np.where(np.abs(squares - value * sums) <= 1e-12 * squares, np.abs(value), np.nan)
    differences, blocks = np.full(dim, np.nan), [slice(begin, begin + _BLOCK) for begin in range(0, n, _BLOCK)]
    for j in np.flatnonzero([len(np.unique(X[:_FEW, j])) <= 2 for j in range(dim)]):
        least, most = float(X[:, j].min()), float(X[:, j].max())
        if all(((X[some, j] == least) | (X[some, j] == most)).all() for some in blocks):
            differences[j] = most - least
    return differences


def _moments(X: MatrixLike, weights: Array | None, sparse: bool) -> tuple[Array, Array, Array]:
    """For each column a first value, the mean minus that value, and the variance. Sums are taken about the first value,
    so that a large offset costs no digits.
    """
    n, dim = X.shape
    total = float(n if weights is None else weights.sum())
    if sparse:
        w = np.ones(n) if weights is None else weights
        mean = np.asarray(X.T @ w, np.float64).ravel() / total
        square = np.asarray(X.multiply(X).T @ w, np.float64).ravel() / total
        return np.zeros(dim), mean, np.maximum(square - mean**2, 0.0)
    first = np.asarray(X[0], np.float64)

    def sums(some: slice) -> Array:
        away: Array = np.asarray(X[some], np.float64) - first
        return np.asarray(away.sum(axis=0) if weights is None else weights[some] @ away, np.float64)

    mean = sum(map_blocks(sums, n, _block_rows(dim)), np.zeros(dim)) / total

    def squares(some: slice) -> Array:
        away: Array = np.asarray(X[some], np.float64) - first - mean
        total: Array = np.einsum("ij,ij->j", away, away if weights is None else away * weights[some, None])
        return total

    return first, mean, sum(map_blocks(squares, n, _block_rows(dim)), np.zeros(dim)) / total


def _block_rows(dim: int) -> int:
    """The number of rows that are looked at in one piece."""
    return max(1, _BLOCK // max(1, dim))


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
    y: Array  # `_sums_of_labels`

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
        y = coding.form(block, reader.partition_name(number)).y
        w = np.ones(len(y)) if block.weights is None else block.weights
        X = block.X if isinstance(block.X, np.ndarray) else block.X.toarray()
        away = np.asarray(X, np.float64) - x0
        least, most = (np.asarray(ends, np.float64) for ends in (X.min(axis=0), X.max(axis=0)))
        offset = np.zeros(len(y)) if block.offset is None else block.offset
        two = np.asarray((np.equal(X, least) | np.equal(X, most)).all(axis=0), np.bool_)
        one = Described(
            float(w.sum()), w @ away, w @ away**2, least, most, two,
            _sums_of_labels(coding.loss, y, w, offset, y0),
        )  # fmt: skip
        total = one if total is None else total + one
    return total


class Typical(NamedTuple):
    """Scales of the columns; for the labels a typical predictor and the size of a large effect; and the smallest and
    largest values of the columns.
    """

    scales: Scales
    typical: float
    size: float
    least: Array  # numbers of the columns
    most: Array


def typical_of(data: Partitions, coding: Coding, intercept: bool) -> Typical:
    """Scales and typical labels by one pass. Sums are taken about the first row."""
    reader = data.reader
    first = next(block for number in np.flatnonzero(reader.sizes) for block in reader.read(int(number)))
    x0 = np.asarray(first.choose(slice(1)).X if isinstance(first.X, np.ndarray) else first.X[:1].toarray(), np.float64)
    y0 = float(coding.form(first.choose(slice(1)), reader.partition_name(0)).y[0])
    arguments = [(number, coding, x0[0], y0) for number in range(len(reader.sizes))]
    none = np.zeros(x0.shape[1])
    zero = Described(0.0, none, none, none, none, none.astype(np.bool_), np.zeros(6))
    sums = sum_partitions(
        lambda first: data.pass_over(described, arguments[first:], "means and scales of columns"), len(arguments), zero
    )
    return _typical(sums, coding, x0[0], y0, intercept)


def _typical(sums: Described, coding: Coding, x0: Array, y0: float, intercept: bool) -> Typical:
    mean = sums.sums / sums.weight
    sd = np.sqrt(np.maximum(sums.squares / sums.weight - mean**2, 0.0))
    difference = np.where(sums.two, sums.most - sums.least, np.nan)
    scales = _scales(x0, mean, sd, difference, intercept)
    return Typical(scales, *_overall(sums, coding, y0), sums.least, sums.most)


def _overall(sums: Described, coding: Coding, y0: float) -> tuple[float, float]:
    """`Loss.typical_predictor_and_effect` of all rows: of two labels that have the mean and the spread of all, or their
    share of events, and for a rate by the sums of events and of exposures.
    """
    loss, w = coding.loss, sums.weight
    residual, square, offset, events, exposure, rate = sums.y
    if loss.outcome == "events":
        values, weights = np.array([-1.0 if _signed(coding) else 0.0, 1.0]), np.array([w - events, events])
        return loss.typical_predictor_and_effect(values, weights, np.full(2, offset / w))
    mean, sd = y0 + residual / w, np.sqrt(max(square / w - (residual / w) ** 2, 0.0))
    typical, size = loss.typical_predictor_and_effect(np.array([mean - sd, mean + sd]), np.full(2, w / 2), np.zeros(2))
    return typical if loss.identity_link or loss.label_on_link else math.log((rate or 0.5) / exposure), size


def _sums_of_labels(loss: Loss, y: Array, w: Array, offset: Array, y0: float) -> Array:
    """Σwr and Σwr² of r = y − offset − y₀ (y − y₀ where the mean is no sum of both), Σw offset, Σw of the rows with
    y > 0, and the numerator and denominator of a rate, Σwe^{offset} and, of counts, Σwy.
    """
    on_link = loss.identity_link or loss.label_on_link
    residual, exposure, rate = y - y0 - (offset if on_link else 0.0), 1.0, 1.0
    if loss.outcome in ("counts", "numbers") and not on_link:
        exposure = float(w @ np.exp(offset))
        rate = (
            float(w @ y)
            if loss.outcome == "counts"
            else exposure * math.exp(loss.typical_predictor_and_effect(y, w, offset)[0])
        )
    return np.array([w @ residual, w @ residual**2, w @ offset, w @ (y > 0), exposure, rate])


def _signed(coding: Coding) -> bool:
    """Whether labels of events are −1 and 1."""
    return coding.coded is not None and float(coding.coded.min()) < 0


class StandardReader(Reader):
    """Another reader's rows, standardised as the variables of a model, with a column of ones first."""

    def __init__(self, reader: Reader, units: Units) -> None:
        self.reader, self.units = reader, units
        self.sizes, self.dtype, self.storage = reader.sizes, reader.dtype, reader.storage
        self.names = (("Intercept",) if units.intercept else ()) + reader.names
        self.has_offset, self.has_weights = reader.has_offset or units.response != 0, reader.has_weights

    def read(self, number: int) -> Iterator[Block]:
        units = self.units
        for block in self.reader.read(number):
            offset = block.offset
            if units.response != 0:
                offset = np.full(len(block.y), units.response) + (0.0 if offset is None else offset)
            yield block._replace(X=units.rows_by_column(block.X), offset=offset)

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        return self.reader.labels(number)

    def single_partition(self, number: int) -> Reader:
        return StandardReader(self.reader.single_partition(number), self.units)

    def partition_name(self, number: int) -> str:
        return self.reader.partition_name(number)

    def identity(self) -> list[str]:
        """The identity of the rows, and the units."""
        return [*self.reader.identity(), repr((self.units.centre.tolist(), self.units.scale.tolist()))]


def require_dense(reader: Reader) -> None:
    """Refuse sparse rows, which cannot be centred."""
    if reader.storage == "sparse":
        raise DataError("sparse rows in partitions are sampled as they are: use svrhmc.targets.glm and svrhmc.sample.")
