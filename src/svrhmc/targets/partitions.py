"""Rows in partitions, read again whenever they are needed, and the passes over them.

A pass is a pure function of a partition and a few numbers. It goes through the partition block by block, adds in
float64 and in the order of the rows, and returns sums; these are added in the order of the partitions. So neither the
number of workers nor the order in which they finish changes a digit.

    sums       ∇f and ∇²f of the rows, without the prior
    slopes     f and ∇f at several states
    measured   whole-number weights of the rows, summed: Qₚ for each partition
    gathered   the rows that some places in 0 … Q − 1 fall on

Draws by weight. With lengths |ãᵢ| = |Wᵀaᵢ|, a bound Mᵢ on |ℓ‴| and a power of two S, row i has the whole number

    qᵢ = ⌈S wᵢMᵢ|ãᵢ|³⌉,      Q = Σᵢ qᵢ,

rounded up so that qᵢ/S is still a bound. A place r, uniform on 0 … Q − 1, belongs to the row i with
q₀ + … + qᵢ₋₁ ≤ r < q₀ + … + qᵢ: to its partition by the sums Qₚ, which the driver has, and within that to its row, by
whoever reads it. Sums of whole numbers do not depend on how rows are cut into partitions. Nobody holds a table of all
rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError
from svrhmc.core.recording import ANY, Ordered, Whole, once, repeat, unusable
from svrhmc.families.base import Loss
from svrhmc.targets.coding import Coding
from svrhmc.targets.columns import rows_of_block
from svrhmc.targets.forms import RowsForm
from svrhmc.targets.reading import Reader, require_finite, stacked
from svrhmc.targets.stored import make_rows

Places = npt.NDArray[np.uint64]
_LARGEST = (1 << 63) - 1
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


class Sums(NamedTuple):
    """Of some rows, or of all: ∇f and ∇²f, without the prior."""

    gradient: Array
    hessian: Array

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(self.gradient + other.gradient, self.hessian + other.hessian)


def sums(reader: Reader, number: int, coding: Coding, x: Array) -> Sums | None:
    """Of one partition at x; None where it has no rows."""
    total: Sums | None = None
    for block in reader.blocks(number):
        form = coding.form(block, reader.where(number))
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            t = form.predictors(x[None, :])
            found = Sums(*form.rows.combined_and_gram(form.slopes(t)[0], form.curvatures(t)[0]))
        if not (np.isfinite(found.gradient).all() and np.isfinite(found.hessian).all()):
            require_finite(block, reader, number)
        total = found if total is None else total + found
    return total


class Slopes(NamedTuple):
    """Of some rows, or of all: f and ∇f at several states, without the prior."""

    values: Array
    gradients: Array

    def __add__(self, other: Slopes) -> Slopes:  # type: ignore[override]
        return Slopes(self.values + other.values, self.gradients + other.gradients)


def slopes(reader: Reader, number: int, coding: Coding, states: Array) -> Slopes | None:
    """Of one partition at some states; None where it has no rows."""
    total: Slopes | None = None
    for block in reader.blocks(number):
        form = coding.form(block, reader.where(number))
        values, gradients = np.empty(len(states)), np.empty(states.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            for k, x in enumerate(states):
                t = form.predictors(x[None, :])
                values[k], gradients[k] = form.values(t).sum(), form.rows.combine(form.slopes(t))[0]
        if not (np.isfinite(values).all() and np.isfinite(gradients).all()):
            require_finite(block, reader, number)
        found = Slopes(values, gradients)
        total = found if total is None else total + found
    return total


class Squares(NamedTuple):
    """Σw, and Σ w(a, e)(a, e)ᵀ with e = y − o − aᵀβ."""

    weight: float
    gram: Array

    def __add__(self, other: Squares) -> Squares:  # type: ignore[override]
        return Squares(self.weight + other.weight, self.gram + other.gram)


def squares(reader: Reader, number: int, coding: Coding, beta: Array) -> Squares | None:
    """Of one partition; None where it has no rows."""
    total: Squares | None = None
    for block in reader.blocks(number):
        rows, y = rows_of_block(block.X, make_rows), coding.form(block, reader.where(number)).y
        e = y - rows.predict(beta[None, :])[0] - (0.0 if block.offset is None else block.offset)
        w = np.ones(len(y)) if block.weights is None else block.weights
        gram = np.empty((rows.dim + 1, rows.dim + 1))
        gram[-1, :-1], gram[:-1, :-1] = rows.combined_and_gram(w * e, w)
        gram[:-1, -1] = gram[-1, :-1]
        gram[-1, -1] = float((w * e * e).sum())
        if not np.isfinite(gram).all():
            require_finite(block, reader, number)
        one = Squares(float(w.sum()), gram)
        total = one if total is None else total + one
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
        """Of arrays."""
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


class Some(NamedTuple):
    """A few rows, with labels in the loss's form."""

    X: Any
    y: Array
    offset: Array | None
    weights: Array | None


def some_of(parts: Sequence[Some]) -> Some:
    """Several one after another."""
    return Some(*(stacked(each) for each in zip(*parts, strict=True)))


def share(reader: Reader, number: int, coding: Coding, most: int) -> Some | None:
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
