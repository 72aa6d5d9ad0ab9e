"""Rows in partitions, read again whenever they are needed: a kind of `Rows` with two operations, both passes.

`reduce` adds up a function of a `RowsForm`, that of one block of rows, over all blocks; `gather` fetches single rows.
A pass is a pure function of a partition and a few numbers: it adds in float64 and in the order of the rows, and the
sums of partitions are added in their order. So neither the number of workers nor the order in which they finish changes
a digit. Reading rows costs more than multiplying them, so the results of the last passes are remembered.

Draws by weight. With lengths |ãᵢ| = |Wᵀaᵢ|, a bound Mᵢ on |ℓ‴| and a power of two S, row i has the integer weight

    qᵢ = ⌈S wᵢMᵢ|ãᵢ|³⌉,      Q = Σᵢ qᵢ,

rounded up so that qᵢ/S is still a bound. A place r, uniform on 0 … Q − 1, belongs to the row i with
q₀ + … + qᵢ₋₁ ≤ r < q₀ + … + qᵢ. The sums Qₚ, which the main process has, give its partition, and the worker that reads
the partition finds the row. Sums of integers do not depend on how rows are cut into partitions, and nothing holds a
table of all rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values, digest
from svrhmc.core.errors import DataError
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.recording import (
    ANY,
    Dependence,
    IntegerShape,
    OrderedResults,
    Shape,
    compute_once,
    iterate_recorded,
    unusable_record_error,
)
from svrhmc.families.base import Loss
from svrhmc.rows.base import LabelledRows, Total
from svrhmc.rows.by_passes import RowsByPasses
from svrhmc.rows.coding import Coding
from svrhmc.rows.csr import CsrMatrix, Matrix
from svrhmc.rows.forms import RowsForm
from svrhmc.rows.reading import Partitions, Reader, concatenate, require_finite

Part = TypeVar("Part")
Packed = tuple[Values, ...]
Places = npt.NDArray[np.uint64]
_LARGEST = (1 << 63) - 1
_SAMPLE_ENTRIES, _SAMPLE_PARTITIONS, _SAMPLE_ROWS = 1 << 24, 16, 100  # of rows from which a search for the mode starts
_MARGIN = {np.dtype(np.float32): (1 + 1e-3) ** 3, np.dtype(np.float64): (1 + 1e-9) ** 3}  # for rounding of |ã| and u


def sum_partitions(
    parts: Callable[[int], Iterable[Total | None]], count: int, zero: Total, depends_on: Dependence = ()
) -> Total:
    """The sum of the parts of `count` partitions, added in their order; only the sum so far is held and recorded.

    parts: gives the parts from a partition on; None for one without rows. zero: the sum over no rows. depends_on: what
    decides the result, for the record.
    """
    source = OrderedResults(parts)
    make: Callable[..., Total] = type(zero)

    def add(number: int, state: tuple[Array, ...]) -> tuple[object, ...]:
        nonempty, total, part = state[0], make(*state[1:]), source.take(number)
        if part is not None:
            nonempty, total = nonempty + 1, total + part if nonempty else part
        return nonempty, *total, False

    nonempty, *total = iterate_recorded(add, (0.0, *zero), count, depends_on)
    if not nonempty:
        raise DataError("there are no rows in any partition.")
    return make(*total)


def collect(
    parts: Callable[[int], Iterable[Part]],
    count: int,
    pack: Callable[[Part], Packed],
    unpack: Callable[[Packed], Part],
    *shapes: Shape,
    depends_on: Sequence[Dependence],
) -> list[Part]:
    """The parts of `count` partitions, in their order, each recorded as the arrays that `pack` makes of it."""
    source = OrderedResults(parts)

    def take(number: int) -> Packed:
        return pack(source.take(number))

    return [unpack(compute_once(partial(take, k), *shapes, depends_on=depends_on[k])) for k in range(count)]


def sum_blocks(
    reader: Reader, number: int, coding: Coding, function: Callable[..., Total], arguments: Sequence[Array]
) -> Total | None:
    """The sum of function(form, *arguments) over the blocks of one partition; None where it has no rows."""
    total = None
    for block in reader.blocks(number):
        with np.errstate(over="ignore", invalid="ignore"):  # which is an error below
            part = function(coding.form(block, reader.partition_name(number)), *arguments)
        if not all(np.isfinite(array).all() for array in part):
            require_finite(block, reader, number)
        total = part if total is None else total + part
    return total


class RowWeights(NamedTuple):
    """What the weights q of rows are computed from: the centre, F with |Fᵀaᵢ|² + shared = |ãᵢ|² (`image_root`), the
    scale S, and the radius R of the ball in which the bounds Mᵢ hold.
    """

    centre: Array
    factor: Array
    shared: float
    scale: float
    third: float | None  # a factor of all bounds on |ℓ‴|; None where no bound is known
    radius: float
    floor: float = 0.0  # added to every row's weight where no bound is known

    def evaluate(self, form: RowsForm) -> tuple[npt.NDArray[np.uint64], Array]:
        """q of the rows of a block, and their |ã|; an OverflowError where a weight needs more than 62 bits."""
        length = self._norms(form)
        third: float | Array
        if self.third is not None and math.isinf(self.radius):
            third = self.third
        else:
            t = form.predictors(self.centre[None, :])[0]
            third = self._bounds(form, t, length)
        margin = _MARGIN[form.rows.dtype]
        cubes = form.multiply_by_weights(third * (length**2 * length) + self.floor) * (margin * self.scale)
        if not (cubes < 2.0**62).all():
            raise OverflowError
        return np.ceil(cubes).astype(np.uint64), length

    def _bounds(self, form: RowsForm, t: Array, length: Array) -> Array:
        """Bounds on |ℓ‴| in the ball, or its size at the centre where no bound is known."""
        if self.third is None:
            return form.loss.third_size(form.curvature_norms(form.loss.curvature(t, form.y)))
        reach = (1 + 1e-3) * self.radius * length
        bounds = form.loss.third_within(t - reach, t + reach)
        assert bounds is not None
        return bounds

    def _norms(self, form: RowsForm) -> Array:
        """|ãᵢ|, in float64."""
        return np.asarray(np.sqrt(form.rows.design_matrix.image_squares(self.factor) + self.shared), np.float64)


def image_root(factor: Array, loss: Loss, columns: int) -> tuple[Array, float]:
    """F and a number with |Fᵀaᵢ|² + number = |Wᵀaᵢ|²; for a loss of several predictors it is Σ_c |W_cᵀaᵢ|², and the
    number is the part of the shared parameters. With (W₁, W₂, …)ᵀ = QR, F = Rᵀ has images of the same length, and zeros
    above its diagonal.
    """
    wide = np.hstack([factor[c * columns : (c + 1) * columns] for c in range(loss.blocks)])
    shared = float((factor[loss.blocks * columns :] ** 2).sum())
    return np.ascontiguousarray(np.asarray(np.linalg.qr(wide.T, mode="r")).T), shared


class WeightSums(NamedTuple):
    """Sums over a partition: Σ qᵢ, and Σ |Cᵢ|²|ãᵢ|⁴/qᵢ, the second moment of the curvature of one row."""

    total: int
    noise: float

    @staticmethod
    def pack(sums: WeightSums | None) -> Packed:
        """The sums as arrays; the largest integer stands for a total that overflows."""
        total, noise = (_LARGEST, 0.0) if sums is None else (min(sums.total, _LARGEST), sums.noise)
        return np.array(total), np.array(noise)

    @staticmethod
    def unpack(arrays: Packed) -> WeightSums | None:
        """The sums from the arrays that `pack` made."""
        return None if int(arrays[0]) == _LARGEST else WeightSums(int(arrays[0]), float(arrays[1]))


def sum_weights(reader: Reader, number: int, coding: Coding, weights: RowWeights) -> WeightSums | None:
    """The sums of weights of a partition; None where a weight overflows, so that S must be smaller."""
    total, noise = 0, 0.0
    for block in reader.blocks(number):
        form = coding.form(block, reader.partition_name(number))
        try:
            q, length = weights.evaluate(form)
        except OverflowError:
            return None
        high, low = q >> np.uint64(32), q & np.uint64(0xFFFFFFFF)
        total += (int(high.sum()) << 32) + int(low.sum())
        norms = form.curvature_norms(form.curvatures(form.predictors(weights.centre[None, :])[0]))
        noise += float(((norms * length**2) ** 2 / np.maximum(q, 1)).sum())
    return WeightSums(total, noise)


class Packing:
    """Converts rows of partitions to arrays that can be recorded, and back."""

    def __init__(self, reader: Reader) -> None:
        self._columns, self._sparse = len(reader.names), reader.storage == "sparse"
        self._optional = reader.has_offset, reader.has_weights
        places = IntegerShape((ANY,))
        entries: tuple[Shape, ...] = ((ANY,), places, places) if self._sparse else ((ANY, self._columns),)
        self.shapes = entries + ((ANY,),) * 3  # labels, offsets and weights

    def pack(self, X: Matrix, y: Array, *optional: Array | None) -> Packed:
        """The arrays of entries, labels, offsets and weights; empty ones where there are no offsets or weights."""
        rest = y, *(np.zeros(0) if values is None else values for values in optional)
        if isinstance(X, np.ndarray):
            return X, *rest
        return X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64), *rest

    def unpack(self, arrays: Packed) -> LabelledRows:
        """The rows that `pack` was given; an error where the record was changed and is not sound."""
        *entries, y, offset, weights = cast(tuple[Array, ...], arrays)
        X: Matrix = entries[0]
        lengths = [len(y) if has else 0 for has in self._optional]
        if self._sparse:
            from scipy.sparse import csr_matrix

            try:
                sparse: CsrMatrix = csr_matrix(tuple(entries), shape=(len(y), self._columns))
                sparse.check_format(full_check=True)
            except ValueError:
                raise unusable_record_error() from None
            X = sparse
        finite = all(np.isfinite(array).all() for array in (entries[0], y, offset, weights))
        if not finite or X.shape[0] != len(y) or [len(offset), len(weights)] != lengths:
            raise unusable_record_error()
        has_offset, has_weights = self._optional
        return LabelledRows(X, y, offset if has_offset else None, weights if has_weights else None)


class Gathered(NamedTuple):
    """Rows of a partition: their increasing numbers, entries, labels in the form that the loss uses, and weights q."""

    rows: Indices
    X: Matrix
    y: Array
    offset: Array | None
    weights: Array | None
    q: npt.NDArray[np.uint64]
    row_of_place: Indices  # for each requested place the index of its row among these

    def require_sound(self, size: int, places: int) -> None:
        """Refuse rows that cannot be those of `places` places in a partition of `size` rows, as a record may have been
        changed.
        """
        rows, row_of_place = self.rows, self.row_of_place
        inside = len(rows) == len(self.y) == len(self.q) and (np.diff(rows, prepend=-1, append=size) > 0).all()
        if not inside or len(row_of_place) != places or not ((row_of_place >= 0) & (row_of_place < len(rows))).all():
            raise unusable_record_error()


def gather_rows(reader: Reader, number: int, coding: Coding, weights: RowWeights | None, places: Places) -> Gathered:
    """The rows to which increasing places within the partition belong: by weight, or by row number without weights."""
    parts: list[Gathered] = []
    low, before = 0, 0  # the first place not yet found; the sum of weights before this block
    for block in reader.blocks(number):
        if low == len(places):
            break
        if weights is None:
            ends = np.arange(1, len(block.y) + 1, dtype=np.uint64)
            q = np.ones(len(block.y), np.uint64)
        else:
            q = weights.evaluate(coding.form(block, reader.partition_name(number)))[0]
            ends = np.cumsum(q)
        high = int(np.searchsorted(places, np.uint64(before + int(ends[-1])), "left"))
        in_block = np.searchsorted(ends, places[low:high] - np.uint64(before), "right")
        before, low = before + int(ends[-1]), high
        if not len(in_block):
            continue
        chosen, row_of_place = np.unique(in_block, return_inverse=True)
        rows = block.choose(chosen)
        require_finite(rows, reader, number)
        y = coding.form(rows, reader.partition_name(number)).y
        parts.append(Gathered(block.first + chosen, rows.X, y, rows.offset, rows.weights, q[chosen], row_of_place))
    return join_gathered(parts)


def join_gathered(parts: Sequence[Gathered]) -> Gathered:
    """The rows of several parts, one after another."""
    begins = np.cumsum([0, *(len(part.rows) for part in parts[:-1])])
    rows, X, y, offset, weights, q, _ = (concatenate(field) for field in zip(*parts, strict=True))
    row_of_place = np.concatenate([part.row_of_place + begin for part, begin in zip(parts, begins, strict=True)])
    return Gathered(rows, X, y, offset, weights, q, row_of_place)


def join_rows(parts: Sequence[LabelledRows]) -> LabelledRows:
    """The rows of several parts, one after another."""
    return LabelledRows(*(concatenate(part) for part in zip(*parts, strict=True)))


def first_rows(reader: Reader, number: int, coding: Coding, most: int) -> LabelledRows | None:
    """The first rows of a partition, at most `most`; None where it has none."""
    parts: list[LabelledRows] = []
    left = most
    for block in reader.blocks(number):
        few = block.choose(slice(left))
        require_finite(few, reader, number)
        parts.append(LabelledRows(few.X, coding.form(few, reader.partition_name(number)).y, few.offset, few.weights))
        left -= len(few.y)
        if left <= 0:
            break
    return join_rows(parts) if parts else None


class PartitionRows(RowsByPasses):
    """All rows of some partitions, with the predictors of a loss."""

    where = "in partitions"

    def __init__(self, partitions: Partitions, coding: Coding) -> None:
        reader, loss = partitions.reader, coding.loss
        self.partitions, self.coding, self.loss = partitions, coding, loss
        self.n, self.width, self.dtype = int(reader.sizes.sum()), len(reader.names), reader.dtype
        self.dim = loss.blocks * self.width + loss.shared
        self.storage, self.names = reader.storage, reader.names  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{len(self.numbers)} partitions of {self.n} rows"

    @property
    def numbers(self) -> range:
        """The numbers of the partitions."""
        return range(len(self.partitions.reader.sizes))

    @property
    def columns(self) -> int:
        """The number of columns of X."""
        return self.width

    @property
    def entries(self) -> float:
        """As if rows were dense."""
        return float(self.width * self.loss.blocks)

    @property
    def entries_read_once(self) -> float:
        """As if rows were dense."""
        return float(self.width)

    def digest(self) -> str:
        """A digest of what the files were when they were opened."""
        return digest(np.array(self.partitions.reader.identity()))

    def sum_over_rows(
        self, function: Callable[..., Total], form: object, arguments: tuple[Array, ...], zero: Total, task: str
    ) -> Total:
        """Partition by partition, in their order."""
        parts: Callable[[int], Iterator[Total | None]] = self._parts(
            sum_blocks, (self.coding, function, arguments), task
        )
        with self.timed():
            return sum_partitions(parts, len(self.numbers), zero, arguments)

    def sum_weights(self, weights: RowWeights) -> list[WeightSums] | None:
        """The weights of all rows, summed by partition; None where S was too large."""
        with self.timed():
            parts = self._parts(sum_weights, (self.coding, weights), "lengths of all rows")
            keys = [(np.array([weights.scale, weights.radius]), weights.centre)] * len(self.numbers)
            sums = collect(
                parts, len(self.numbers), WeightSums.pack, WeightSums.unpack, IntegerShape(), (), depends_on=keys
            )
        self.count(1.0)
        by_partition = [part for part in sums if part is not None]
        return by_partition if len(by_partition) == len(sums) else None

    def gather(self, weights: RowWeights | None, places: list[Places]) -> list[Gathered | None]:
        """The rows of the places within each partition; None for partitions without places, which are not read."""
        read = [k for k in self.numbers if len(places[k])]
        arguments, packing = [(k, self.coding, weights, places[k]) for k in read], Packing(self.partitions.reader)

        def pack(rows: Gathered) -> Packed:
            return rows.rows, rows.q.view(np.int64), rows.row_of_place, *packing.pack(*rows[1:5])

        def unpack(arrays: Packed) -> Gathered:
            X, y, offset, weights = packing.unpack(arrays[3:])
            rows, q, row_of_place = cast(tuple[Indices, ...], arrays[:3])
            return Gathered(rows, X, y, offset, weights, q.view(np.uint64), row_of_place)

        def parts(first: int) -> Iterator[Gathered]:
            return self.partitions.pass_over(gather_rows, arguments[first:], "fetching rows")

        shapes = (IntegerShape((ANY,)),) * 3 + packing.shapes
        rule = np.zeros(0) if weights is None else np.array([weights.scale, weights.radius])
        keys = [(rule, places[k]) for k in read]
        gathered = dict(zip(read, collect(parts, len(read), pack, unpack, *shapes, depends_on=keys), strict=True))
        for k, rows in gathered.items():
            rows.require_sound(int(self.partitions.reader.sizes[k]), len(places[k]))
        share = sum(int(self.partitions.reader.sizes[k]) for k in read) / self.n
        self.passes += share
        self.count(share)
        return [gathered.get(k) for k in self.numbers]

    def sample_rows(self) -> LabelledRows:
        """The first rows of some randomly drawn partitions, from which a search for the mode starts."""
        reader = self.partitions.reader
        nonempty = np.flatnonzero(reader.sizes > 0)
        if not len(nonempty):
            raise DataError("there are no rows in any partition.")
        order = np.argsort(Stream(0, nonempty).normals(0, 1, Purpose.DATA, Purpose.DATA_FINE)[:, 0], kind="stable")
        count = max(_SAMPLE_ENTRIES // self.width, _SAMPLE_ROWS * self.dim)
        chosen: list[int] = []
        for k in nonempty[order]:
            chosen.append(int(k))
            if len(chosen) >= _SAMPLE_PARTITIONS and int(reader.sizes[chosen].sum()) >= count:
                break
        most = -(-count // len(chosen))
        arguments, packing = [(k, self.coding, most) for k in sorted(chosen)], Packing(reader)
        sample = join_rows(
            collect(
                lambda first: self.partitions.pass_over(
                    cast(Callable[..., LabelledRows], first_rows), arguments[first:], "some rows to start from"
                ),
                len(arguments),
                lambda rows: packing.pack(*rows),
                packing.unpack,
                *packing.shapes,
                depends_on=[np.array([k, most]) for k, *_ in arguments],
            )
        )
        self.passes += len(sample.y) / self.n
        self.count(len(sample.y) / self.n)
        return sample

    def _parts(
        self, work: Callable[..., Part], arguments: tuple[object, ...], task: str
    ) -> Callable[[int], Iterator[Part]]:
        """A function that gives the results of `work` from a partition on."""
        return lambda first: self.partitions.pass_over(work, [(k, *arguments) for k in self.numbers[first:]], task)
