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
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, digest
from svrhmc.core.errors import DataError, requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.recording import ANY, Ordered, Whole, once, repeat, unusable
from svrhmc.families.base import Loss
from svrhmc.rows.base import Rows
from svrhmc.rows.coding import Coding
from svrhmc.rows.forms import RowsForm, Some
from svrhmc.rows.reading import Partitions, Reader, require_finite, stacked

Places = npt.NDArray[np.uint64]
_LARGEST = (1 << 63) - 1
_FEW_ENTRIES, _FEW_PARTITIONS, _FEW_ROWS = 1 << 24, 16, 100  # of the rows that a search for the mode starts from
_REMEMBERED = 2  # passes, besides the last
_CUSHION = {np.dtype(np.float32): (1 + 1e-3) ** 3, np.dtype(np.float64): (1 + 1e-9) ** 3}  # for rounding of |ã| and u


def total_of(parts: Callable[[int], Iterable[Any]], count: int, zero: Any, of: Any = ()) -> Any:
    """The sum of what a pass over so many partitions gives, in their order. `zero` is a sum of the same kind, and
    `of` what the pass depends on.

    parts: what the partitions from one of them on give. No more is held, or recorded, than the sum so far.
    """
    source = Ordered(parts)

    def add(number: int, state: Any) -> Any:
        filled, total, one = state[0], type(zero)(*state[1:]), source.take(number)
        if one is not None:
            filled, total = filled + 1, total + one if filled else one
        return filled, *total, False

    filled, *total = repeat(add, (0.0, *zero), count, of)
    if not filled:
        raise DataError("there are no rows in any partition.")
    return type(zero)(*total)


def listed(
    parts: Callable[[int], Iterable[Any]],
    count: int,
    pack: Callable[[Any], Any],
    unpack: Callable[[Any], Any],
    *shapes: Any,
    of: Sequence[Any],
) -> Any:
    """What so many partitions give, in their order, each recorded as the arrays that `pack` makes of it."""
    source = Ordered(parts)

    def taken(number: int) -> Any:
        return pack(source.take(number))

    return [unpack(once(partial(taken, k), *shapes, of=of[k])) for k in range(count)]


def added(reader: Reader, number: int, coding: Coding, function: Callable[..., Any], arguments: Sequence[Array]) -> Any:
    """function(form, *arguments) over the blocks of one partition; None where it has no rows."""
    total = None
    for block in reader.blocks(number):
        with np.errstate(over="ignore", invalid="ignore"):  # an error below
            part = function(coding.form(block, reader.where(number)), *arguments)
        if not all(np.isfinite(one).all() for one in part):
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
    def packed(measured: Measured | None) -> tuple[Any, float]:
        """As arrays; a total that is too large, or whose parts are, as the largest."""
        return (_LARGEST, 0.0) if measured is None else (min(measured.total, _LARGEST), measured.noise)

    @staticmethod
    def unpacked(arrays: Any) -> Measured | None:
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
        places = Whole((ANY,))
        entries: tuple[Any, ...] = ((ANY,), places, places) if self._sparse else ((ANY, self._columns),)
        self.shapes = entries + ((ANY,),) * 3  # labels, offsets and weights

    def packed(self, X: Any, y: Array, *optional: Array | None) -> tuple[Any, ...]:
        """Entries, labels, offsets and weights."""
        entries = (X.data, *(each.astype(np.int64) for each in (X.indices, X.indptr))) if self._sparse else (X,)
        return (*entries, y, *(np.zeros(0) if one is None else one for one in optional))

    def unpacked(self, arrays: Any) -> tuple[Any, ...]:
        """The same, of arrays; an error where a record was changed so that they are no rows."""
        *entries, y, offset, weights = arrays
        X, lengths = entries[0], [len(y) if given else 0 for given in self._optional]
        if self._sparse:
            from scipy.sparse import csr_matrix

            try:
                X = csr_matrix(tuple(entries), shape=(len(y), self._columns))
                X.check_format(full_check=True)
            except ValueError:
                raise unusable() from None
        finite = all(np.isfinite(each).all() for each in (entries[0], y, offset, weights))
        if not finite or X.shape[0] != len(y) or [len(offset), len(weights)] != lengths:
            raise unusable()
        optional = (one if given else None for one, given in zip((offset, weights), self._optional, strict=True))
        return X, y, *optional


class Gathered(NamedTuple):
    """Rows of a partition: their numbers in it (growing), entries, labels in the loss's form, and weights q."""

    rows: Indices
    X: Any
    y: Array
    offset: Array | None
    weights: Array | None
    q: npt.NDArray[np.uint64]
    found: Indices  # the row, counted among these, of each place that was asked for

    def require_sound(self, size: int, places: int) -> None:
        """Refuse rows that are not those of so many places in a partition of this size: a record may be changed."""
        rows, found = self.rows, self.found
        inside = len(rows) == len(self.y) == len(self.q) and (np.diff(rows, prepend=-1, append=size) > 0).all()
        if not inside or len(found) != places or not ((found >= 0) & (found < len(rows))).all():
            raise unusable()


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
        chosen, found = np.unique(here, return_inverse=True)
        some = block.chosen(chosen)
        require_finite(some, reader, number)
        y = coding.form(some, reader.where(number)).y
        parts.append(Gathered(block.first + chosen, some.X, y, some.offset, some.weights, q[chosen], found))
    return joined(parts)


def joined(parts: Sequence[Gathered]) -> Gathered:
    """Several one after another."""
    begins = np.cumsum([0, *(len(part.rows) for part in parts[:-1])])
    rows, X, y, offset, weights, q, _ = (stacked(each) for each in zip(*parts, strict=True))
    found = np.concatenate([part.found + begin for part, begin in zip(parts, begins, strict=True)])
    return Gathered(rows, X, y, offset, weights, q, found)


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
        self._remembered: dict[Any, Any] = {}

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
        self, function: Callable[..., Any], form: Any, *arguments: Array, zero: Any, task: str, counted: bool = False
    ) -> Any:
        """By one pass, unless it was among the last few."""
        total = self.recalled(function, *arguments)
        if total is None:
            for old in list(self._remembered)[:-_REMEMBERED]:
                del self._remembered[old]
            parts = self._parts(added, (self.coding, function, arguments), task)
            with self._timed():
                total = total_of(parts, len(self.numbers), zero, arguments)
            self._remembered[_key(function, arguments)] = total
            if not counted:
                self.count(1.0)
        return total

    def recalled(self, function: Callable[..., Any], *arguments: Array) -> Any:
        """A sum that was made just before; None where it was not."""
        return self._remembered.get(_key(function, arguments))

    def weights_by(self, lengths: Lengths) -> list[Measured] | None:
        """Weights of all rows, summed by partition; None where S was too large."""
        with self._timed():
            parts = self._parts(measured, (self.coding, lengths), "lengths of all rows")
            by = np.array([lengths.scale, lengths.radius])
            keys = [(by, lengths.centre)] * len(self.numbers)
            sums = listed(parts, len(self.numbers), Measured.packed, Measured.unpacked, Whole(), (), of=keys)
        self.count(1.0)
        return None if any(one is None for one in sums) else sums

    def gather(self, lengths: Lengths | None, places: list[Places]) -> list[Gathered | None]:
        """The rows of places within each partition; a partition that none falls on is not read."""
        wanted = [k for k in self.numbers if len(places[k])]
        arguments, packing = [(k, self.coding, lengths, places[k]) for k in wanted], Packing(self.partitions.reader)

        def pack(one: Gathered) -> Any:
            return one.rows, one.q.view(np.int64), one.found, *packing.packed(*one[1:5])

        def unpack(arrays: Any) -> Gathered:
            X, y, offset, weights = packing.unpacked(arrays[3:])
            return Gathered(arrays[0], X, y, offset, weights, arrays[1].view(np.uint64), arrays[2])

        def parts(first: int) -> Any:
            return self.partitions.each(gathered, arguments[first:], "fetching rows")

        shapes = (Whole((ANY,)),) * 3 + packing.shapes
        by = np.zeros(0) if lengths is None else np.array([lengths.scale, lengths.radius])
        keys = [(by, places[k]) for k in wanted]
        taken = dict(zip(wanted, listed(parts, len(wanted), pack, unpack, *shapes, of=keys), strict=True))
        for k, one in taken.items():
            one.require_sound(int(self.partitions.reader.sizes[k]), len(places[k]))
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
                lambda first: self.partitions.each(first_rows, arguments[first:], "some rows to start from"),
                len(arguments),
                lambda one: packing.packed(*one),
                lambda arrays: Some(*packing.unpacked(arrays)),
                *packing.shapes,
                of=[np.array([k, most]) for k, *_ in arguments],
            )
        )
        self.passes += len(some.y) / self.n
        self.count(len(some.y) / self.n)
        return some

    def count(self, share: float) -> None:
        """Tell of a pass, or of a part of one, that nobody else counts."""
        if self.watch is not None:
            self.watch(share * self.n)

    def _parts(self, work: Callable[..., Any], arguments: tuple[Any, ...], task: str) -> Callable[[int], Any]:
        """What the partitions from one of them on give."""
        return lambda first: self.partitions.each(work, [(k, *arguments) for k in self.numbers[first:]], task)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """A pass over all rows."""
        began = time.perf_counter()
        yield
        self.pass_seconds = min(time.perf_counter() - began, self.pass_seconds or math.inf)
        self.passes += 1

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise requirement("target", "one whose rows are in memory, for this", "rows in partitions")

    predict = predict_at = taken = combine = combine_at = gram = squares = squared_norms = _refuse
    choose = lengths = _refuse


def _key(function: Callable[..., Any], arguments: Sequence[Array]) -> Any:
    return function.__name__, *(np.ascontiguousarray(array).tobytes() for array in arguments)
