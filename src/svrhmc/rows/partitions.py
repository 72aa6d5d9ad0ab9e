"""Rows in partitions, read again whenever they are needed: a kind of `Rows` whose two verbs are passes.

`reduce` adds up a function of a `RowsForm`, which is that of a block of rows, over all blocks; `gather` takes some.
A pass is a pure function of a partition and a few numbers: it adds in float64 and in the order of the rows, and its
sums are added in the order of the partitions. So neither the number of workers nor the order in which they finish
changes a digit. Reading the rows costs more than multiplying them, so that a pass is remembered for a while.

Draws by weight. With lengths |ãᵢ| = |Wᵀaᵢ|, a bound Mᵢ on |ℓ‴| and a power of two S, row i has the whole number

    qᵢ = ⌈S wᵢMᵢ|ãᵢ|³⌉,      Q = Σᵢ qᵢ,

rounded up so that qᵢ/S is still a bound. A place r, uniform on 0 … Q − 1, belongs to the row i with
q₀ + … + qᵢ₋₁ ≤ r < q₀ + … + qᵢ: to its partition by the sums Qₚ, which the driver has, and within that to its row, by
whoever reads it. Sums of whole numbers do not depend on how rows are cut into partitions. Nobody holds a table of all
rows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values, digest
from svrhmc.core.errors import DataError, requirement
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
from svrhmc.rows.base import Rows, RowSums, Some, Total
from svrhmc.rows.coding import Coding
from svrhmc.rows.csr import CsrMatrix, Matrix
from svrhmc.rows.forms import RowsForm
from svrhmc.rows.reading import Partitions, Reader, require_finite, stacked

Part = TypeVar("Part")
Packed = tuple[Values, ...]
Places = npt.NDArray[np.uint64]
_LARGEST = (1 << 63) - 1
_FEW_ENTRIES, _FEW_PARTITIONS, _FEW_ROWS = 1 << 24, 16, 100  # of the rows that a search for the mode starts from
_REMEMBERED = 2  # passes, besides the last
_CUSHION = {np.dtype(np.float32): (1 + 1e-3) ** 3, np.dtype(np.float64): (1 + 1e-9) ** 3}  # for rounding of |ã| and u


def total_of(
    parts: Callable[[int], Iterable[Total | None]], count: int, zero: Total, depends_on: Dependence = ()
) -> Total:
    """The sum of what a pass over so many partitions gives, in their order. `zero` is a sum of the same kind, and
    `depends_on` what the pass does.

    parts: what the partitions from one of them on give. No more is held, or recorded, than the sum so far.
    """
    source = OrderedResults(parts)
    make: Callable[..., Total] = type(zero)

    def add(number: int, state: tuple[Array, ...]) -> tuple[object, ...]:
        filled, total, part = state[0], make(*state[1:]), source.take(number)
        if part is not None:
            filled, total = filled + 1, total + part if filled else part
        return filled, *total, False

    filled, *total = iterate_recorded(add, (0.0, *zero), count, depends_on)
    if not filled:
        raise DataError("there are no rows in any partition.")
    return make(*total)


def listed(
    parts: Callable[[int], Iterable[Part]],
    count: int,
    pack: Callable[[Part], Packed],
    unpack: Callable[[Packed], Part],
    *shapes: Shape,
    depends_on: Sequence[Dependence],
) -> list[Part]:
    """What so many partitions give, in their order, each recorded as the arrays that `pack` makes of it."""
    source = OrderedResults(parts)

    def taken(number: int) -> Packed:
        return pack(source.take(number))

    return [unpack(compute_once(partial(taken, k), *shapes, depends_on=depends_on[k])) for k in range(count)]


def added(
    reader: Reader, number: int, coding: Coding, function: Callable[..., Total], arguments: Sequence[Array]
) -> Total | None:
    """function(form, *arguments) over the blocks of one partition; None where it has no rows."""
    total = None
    for block in reader.blocks(number):
        with np.errstate(over="ignore", invalid="ignore"):  # an error below
            part = function(coding.form(block, reader.where(number)), *arguments)
        if not all(np.isfinite(array).all() for array in part):
            require_finite(block, reader, number)
        total = part if total is None else total + part
    return total


class Lengths(NamedTuple):
    """What weights are made of: the centre, F with |Fᵀaᵢ|² + shared = |ãᵢ|² (`root_of`), S, and R where Mᵢ holds in a
    ball.
    """

    centre: Array
    factor: Array
    shared: float
    scale: float
    third: float | None
    radius: float
    floor: float = 0.0  # a part of every row's weight beside |ã|³, where no bound is known

    def of(self, form: RowsForm) -> tuple[npt.NDArray[np.uint64], Array]:
        """q of the rows of a block, and their |ã|."""
        length = self._norms(form)
        size: float | Array
        if self.third is not None and math.isinf(self.radius):
            size = self.third
        else:
            t = form.predictors(self.centre[None, :])[0]
            size = self._bounds(form, t, length)
        cubes = form.weighed(size * (length**2 * length) + self.floor) * (_CUSHION[form.rows.dtype] * self.scale)
        if not (cubes < 2.0**62).all():
            raise OverflowError
        return np.ceil(cubes).astype(np.uint64), length

    def _bounds(self, form: RowsForm, t: Array, length: Array) -> Array:
        """On |ℓ‴| in the ball; or its size at the centre, where no bound is known."""
        if self.third is None:
            return form.loss.third_size(form.sizes(form.loss.curvature(t, form.y)))
        reach = (1 + 1e-3) * self.radius * length
        bounds = form.loss.third_within(t - reach, t + reach)
        assert bounds is not None
        return bounds

    def _norms(self, form: RowsForm) -> Array:
        """|ãᵢ|, in float64."""
        return np.asarray(np.sqrt(form.rows.seen_once.image_squares(self.factor) + self.shared), np.float64)


def root_of(factor: Array, loss: Loss, columns: int) -> tuple[Array, float]:
    """F and a number with |Fᵀaᵢ|² + number = |Wᵀaᵢ|², or Σ_c |W_cᵀaᵢ|² with the shared parameters' part for a loss of
    several predictors. With (W₁, W₂, …)ᵀ = QR, F = Rᵀ has as long images, and zeros above its diagonal.
    """
    wide = np.hstack([factor[c * columns : (c + 1) * columns] for c in range(loss.blocks)])
    shared = float((factor[loss.blocks * columns :] ** 2).sum())
    return np.ascontiguousarray(np.asarray(np.linalg.qr(wide.T, mode="r")).T), shared


class Measured(NamedTuple):
    """Of a partition: Σ qᵢ, and Σ |Cᵢ|²|ãᵢ|⁴/qᵢ, for what the curvature of one row varies by."""

    total: int
    noise: float

    @staticmethod
    def packed(measured: Measured | None) -> Packed:
        """As arrays; a total that is too large, or whose parts are, as the largest."""
        total, noise = (_LARGEST, 0.0) if measured is None else (min(measured.total, _LARGEST), measured.noise)
        return np.array(total), np.array(noise)

    @staticmethod
    def unpacked(arrays: Packed) -> Measured | None:
        """What was measured, from the arrays in which it was recorded."""
        return None if int(arrays[0]) == _LARGEST else Measured(int(arrays[0]), float(arrays[1]))


def measured(reader: Reader, number: int, coding: Coding, lengths: Lengths) -> Measured | None:
    """One pass; None where a weight overflows, so that S must be smaller."""
    total, noise = 0, 0.0
    for block in reader.blocks(number):
        form = coding.form(block, reader.where(number))
        try:
            q, length = lengths.of(form)
        except OverflowError:
            return None
        high, low = q >> np.uint64(32), q & np.uint64(0xFFFFFFFF)
        total += (int(high.sum()) << 32) + int(low.sum())
        sizes = form.sizes(form.curvatures(form.predictors(lengths.centre[None, :])[0]))
        noise += float(((sizes * length**2) ** 2 / np.maximum(q, 1)).sum())
    return Measured(total, noise)


class Packing:
    """Rows of partitions as arrays that can be recorded, with None for what a reader has not."""

    def __init__(self, reader: Reader) -> None:
        self._columns, self._sparse = len(reader.names), reader.storage == "sparse"
        self._optional = reader.has_offset, reader.has_weights
        places = IntegerShape((ANY,))
        entries: tuple[Shape, ...] = ((ANY,), places, places) if self._sparse else ((ANY, self._columns),)
        self.shapes = entries + ((ANY,),) * 3  # labels, offsets and weights

    def packed(self, X: Matrix, y: Array, *optional: Array | None) -> Packed:
        """Entries, labels, offsets and weights."""
        rest = y, *(np.zeros(0) if values is None else values for values in optional)
        if isinstance(X, np.ndarray):
            return X, *rest
        return X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64), *rest

    def unpacked(self, arrays: Packed) -> Some:
        """The rows that were packed; an error where a record was changed so that they are none."""
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
        return Some(X, y, offset if has_offset else None, weights if has_weights else None)


class Gathered(NamedTuple):
    """Rows of a partition: their numbers in it (growing), entries, labels in the loss's form, and weights q."""

    rows: Indices
    X: Matrix
    y: Array
    offset: Array | None
    weights: Array | None
    q: npt.NDArray[np.uint64]
    row_of_place: Indices  # for each place that was asked for, its row, counted among these

    def require_sound(self, size: int, places: int) -> None:
        """Refuse rows that are not those of so many places in a partition of this size: a record may be changed."""
        rows, row_of_place = self.rows, self.row_of_place
        inside = len(rows) == len(self.y) == len(self.q) and (np.diff(rows, prepend=-1, append=size) > 0).all()
        if not inside or len(row_of_place) != places or not ((row_of_place >= 0) & (row_of_place < len(rows))).all():
            raise unusable_record_error()


def gathered(reader: Reader, number: int, coding: Coding, lengths: Lengths | None, places: Places) -> Gathered:
    """The rows that places (growing, from 0 on within the partition) fall on: by weight, or by number without it."""
    parts: list[Gathered] = []
    low, before = 0, 0  # of the places; weights before this block
    for block in reader.blocks(number):
        if low == len(places):
            break
        if lengths is None:
            ends = np.arange(1, len(block.y) + 1, dtype=np.uint64)
            q = np.ones(len(block.y), np.uint64)
        else:
            q = lengths.of(coding.form(block, reader.where(number)))[0]
            ends = np.cumsum(q)
        high = int(np.searchsorted(places, np.uint64(before + int(ends[-1])), "left"))
        here = np.searchsorted(ends, places[low:high] - np.uint64(before), "right")
        before, low = before + int(ends[-1]), high
        if not len(here):
            continue
        chosen, row_of_place = np.unique(here, return_inverse=True)
        some = block.chosen(chosen)
        require_finite(some, reader, number)
        y = coding.form(some, reader.where(number)).y
        parts.append(Gathered(block.first + chosen, some.X, y, some.offset, some.weights, q[chosen], row_of_place))
    return joined(parts)


def joined(parts: Sequence[Gathered]) -> Gathered:
    """Several one after another."""
    begins = np.cumsum([0, *(len(part.rows) for part in parts[:-1])])
    rows, X, y, offset, weights, q, _ = (stacked(field) for field in zip(*parts, strict=True))
    row_of_place = np.concatenate([part.row_of_place + begin for part, begin in zip(parts, begins, strict=True)])
    return Gathered(rows, X, y, offset, weights, q, row_of_place)


def some_of(parts: Sequence[Some]) -> Some:
    """Several one after another."""
    return Some(*(stacked(part) for part in zip(*parts, strict=True)))


def first_rows(reader: Reader, number: int, coding: Coding, most: int) -> Some | None:
    """The first rows of a partition, at most so many; None where it has none."""
    held: list[Some] = []
    left = most
    for block in reader.blocks(number):
        few = block.chosen(slice(left))
        require_finite(few, reader, number)
        held.append(Some(few.X, coding.form(few, reader.where(number)).y, few.offset, few.weights))
        left -= len(few.y)
        if left <= 0:
            break
    return some_of(held) if held else None


class PartitionRows(Rows):
    """All rows of some partitions, as a loss sees them."""

    in_memory = False

    def __init__(self, partitions: Partitions, coding: Coding) -> None:
        reader, loss = partitions.reader, coding.loss
        self.partitions, self.coding, self.loss = partitions, coding, loss
        self.n, self.width, self.dtype = int(reader.sizes.sum()), len(reader.names), reader.dtype
        self.dim = loss.blocks * self.width + loss.shared
        self.storage, self.names = reader.storage, reader.names  # type: ignore[misc]
        self._remembered: dict[tuple[str | bytes, ...], RowSums] = {}

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
    def stored(self) -> float:
        """As if rows were dense."""
        return float(self.width)

    def digest(self) -> str:
        """Of the files, as they were when they were opened."""
        return digest(np.array(self.partitions.reader.identity()))

    def reduce(
        self,
        function: Callable[..., Total],
        form: object,
        *arguments: Array,
        zero: Total,
        task: str,
        counted: bool = False,
    ) -> Total:
        """By one pass, unless it was among the last few."""
        total = self.recalled(function, *arguments)
        if total is None:
            for old in list(self._remembered)[:-_REMEMBERED]:
                del self._remembered[old]
            parts: Callable[[int], Iterator[Total | None]] = self._parts(
                added, (self.coding, function, arguments), task
            )
            with self._timed():
                total = total_of(parts, len(self.numbers), zero, arguments)
            self._remembered[_key(function, arguments)] = total
            if not counted:
                self.count(1.0)
        return total

    def recalled(self, function: Callable[..., Total], *arguments: Array) -> Total | None:
        """The sum of a pass that was among the last few; else None."""
        return cast(Total | None, self._remembered.get(_key(function, arguments)))

    def weights_by(self, lengths: Lengths) -> list[Measured] | None:
        """Weights of all rows, summed by partition; None where S was too large."""
        with self._timed():
            parts = self._parts(measured, (self.coding, lengths), "lengths of all rows")
            by = np.array([lengths.scale, lengths.radius])
            keys = [(by, lengths.centre)] * len(self.numbers)
            sums = listed(
                parts, len(self.numbers), Measured.packed, Measured.unpacked, IntegerShape(), (), depends_on=keys
            )
        self.count(1.0)
        by_partition = [part for part in sums if part is not None]
        return by_partition if len(by_partition) == len(sums) else None

    def gather(self, lengths: Lengths | None, places: list[Places]) -> list[Gathered | None]:
        """The rows of places within each partition; a partition that none falls on is not read."""
        wanted = [k for k in self.numbers if len(places[k])]
        arguments, packing = [(k, self.coding, lengths, places[k]) for k in wanted], Packing(self.partitions.reader)

        def pack(rows: Gathered) -> Packed:
            return rows.rows, rows.q.view(np.int64), rows.row_of_place, *packing.packed(*rows[1:5])

        def unpack(arrays: Packed) -> Gathered:
            X, y, offset, weights = packing.unpacked(arrays[3:])
            rows, q, row_of_place = cast(tuple[Indices, ...], arrays[:3])
            return Gathered(rows, X, y, offset, weights, q.view(np.uint64), row_of_place)

        def parts(first: int) -> Iterator[Gathered]:
            return self.partitions.pass_over(gathered, arguments[first:], "fetching rows")

        shapes = (IntegerShape((ANY,)),) * 3 + packing.shapes
        by = np.zeros(0) if lengths is None else np.array([lengths.scale, lengths.radius])
        keys = [(by, places[k]) for k in wanted]
        taken = dict(zip(wanted, listed(parts, len(wanted), pack, unpack, *shapes, depends_on=keys), strict=True))
        for k, rows in taken.items():
            rows.require_sound(int(self.partitions.reader.sizes[k]), len(places[k]))
        share = sum(int(self.partitions.reader.sizes[k]) for k in wanted) / self.n
        self.passes += share
        self.count(share)
        return [taken.get(k) for k in self.numbers]

    def few(self) -> Some:
        """The first rows of some partitions, drawn at random: those that a search for the mode starts from."""
        reader = self.partitions.reader
        filled = np.flatnonzero(reader.sizes > 0)
        if not len(filled):
            raise DataError("there are no rows in any partition.")
        order = np.argsort(Stream(0, filled).normals(0, 1, Purpose.DATA, Purpose.DATA_FINE)[:, 0], kind="stable")
        wanted = max(_FEW_ENTRIES // self.width, _FEW_ROWS * self.dim)
        chosen: list[int] = []
        for k in filled[order]:
            chosen.append(int(k))
            if len(chosen) >= _FEW_PARTITIONS and int(reader.sizes[chosen].sum()) >= wanted:
                break
        most = -(-wanted // len(chosen))
        arguments, packing = [(k, self.coding, most) for k in sorted(chosen)], Packing(reader)
        some = some_of(
            listed(
                lambda first: self.partitions.pass_over(
                    cast(Callable[..., Some], first_rows), arguments[first:], "some rows to start from"
                ),
                len(arguments),
                lambda rows: packing.packed(*rows),
                packing.unpacked,
                *packing.shapes,
                depends_on=[np.array([k, most]) for k, *_ in arguments],
            )
        )
        self.passes += len(some.y) / self.n
        self.count(len(some.y) / self.n)
        return some

    def count(self, share: float) -> None:
        """Tell of a pass, or of a part of one, that nobody else counts."""
        if self.watch is not None:
            self.watch(share * self.n)

    def _parts(
        self, work: Callable[..., Part], arguments: tuple[object, ...], task: str
    ) -> Callable[[int], Iterator[Part]]:
        """What the partitions from one of them on give."""
        return lambda first: self.partitions.pass_over(work, [(k, *arguments) for k in self.numbers[first:]], task)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """A pass over all rows."""
        began = time.perf_counter()
        yield
        self.pass_seconds = min(time.perf_counter() - began, self.pass_seconds or math.inf)
        self.passes += 1

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise requirement("target", "one whose rows are in memory, for this", "rows in partitions")

    predict = predict_at = taken = combine = combine_at = gram = squares = squared_norms = _refuse
    choose = lengths = _refuse


def _key(function: Callable[..., object], arguments: Sequence[Array]) -> tuple[str | bytes, ...]:
    return function.__name__, *(np.ascontiguousarray(array).tobytes() for array in arguments)
