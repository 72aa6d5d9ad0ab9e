"""Rows in partitions, read again whenever they are needed, and the passes over them.

A pass is a pure function of a partition and a few numbers. It goes through the partition block by block, adds in
float64 and in the order of the rows, and returns sums; these are added in the order of the partitions. So neither the
number of workers nor the order in which they finish changes a digit.

    sums       f, ∇f and ∇²f of the rows, without the prior
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import DataError
from svrhmc.targets.blocks import seen_by
from svrhmc.targets.forms import BlocksForm, RowsForm
from svrhmc.targets.losses import Loss
from svrhmc.targets.rows import Rows, make_rows

T = TypeVar("T")
Places = npt.NDArray[np.uint64]
BLOCK_ENTRIES = 1 << 21  # of X that a block has, about
_CUSHION = {np.dtype(np.float32): (1 + 1e-3) ** 3, np.dtype(np.float64): (1 + 1e-9) ** 3}  # for rounding of |ã| and u


class Block(NamedTuple):
    """Some rows of a partition, from number `first` on: X (rows, columns) and what else is known of each."""

    first: int
    X: Any
    y: npt.NDArray[Any]
    offset: Array | None = None
    weights: Array | None = None


class Reader(ABC):
    """Reads partitions; it is sent to workers, so it holds names of files and not their contents.

    sizes: the number of rows of each partition. names: of the columns of X. dtype: of X.
    """

    sizes: Indices
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    storage: str = "dense"
    has_offset: bool = False
    has_weights: bool = False

    @abstractmethod
    def read(self, number: int) -> Iterator[Block]:
        """The rows of a partition, block by block, in their order."""

    @abstractmethod
    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """The labels alone."""

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
    def each(self, work: Callable[..., T], arguments: Sequence[tuple[Any, ...]], told: str) -> list[T]:
        """work(reader, *some) for each of some arguments, by whoever works, in their order; `told` names the pass."""


@dataclass(frozen=True, eq=False)
class Coding:
    """The labels of a loss: values as they are read, in order, and what the loss has for them; or as they are."""

    loss: Loss
    values: npt.NDArray[Any] | None = None
    meant: Array | None = None

    def form(self, block: Block, where: str) -> RowsForm:
        """The rows of a block with their labels, and no prior."""
        rows: Rows = seen_by(make_rows(block.X), self.loss)
        nothing = np.zeros(rows.dim)
        kind = BlocksForm if self.loss.wide else RowsForm
        return kind(
            rows, self._meant(block, where), self.loss, nothing, nothing, offset=block.offset, weights=block.weights
        )

    def _meant(self, block: Block, where: str) -> Array:
        try:
            if self.values is None or self.meant is None:
                return self.loss.observed(block.y, len(block.y)).y
            places = np.minimum(np.searchsorted(self.values, block.y), len(self.values) - 1)
            if not (found := self.values[places] == block.y).all():
                row = int(np.argmin(found))
                raise DataError(
                    f"row {block.first + row} has the label {block.y[row]!r}, which no other partition has."
                )
            return self.meant[places]
        except ValueError as error:
            raise DataError(f"{where}, rows from {block.first} on: {error}") from None


class Sums(NamedTuple):
    """Of some rows, or of all: f, ∇f and ∇²f, without the prior; rows, and the sum of their weights."""

    value: float
    gradient: Array
    hessian: Array

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian)


def sums(reader: Reader, number: int, coding: Coding, x: Array) -> Sums | None:
    """Of one partition at x; None where it has no rows."""
    total: Sums | None = None
    for block in reader.read(number):
        form = coding.form(block, reader.where(number))
        with np.errstate(over="ignore", invalid="ignore"):  # told below
            t = form.predictors(x[None, :])
            found = Sums(
                float(form.values(t).sum()),
                form.rows.combine(form.slopes(t))[0],
                form.rows.gram(form.curvatures(t)[0], precise=True),
            )
        if not (math.isfinite(found.value) and np.isfinite(found.gradient).all() and np.isfinite(found.hessian).all()):
            require_finite(block, reader, number)
        total = found if total is None else total + found
    return total


class Squares(NamedTuple):
    """Σw, and Σ w(a, e)(a, e)ᵀ with e = y − o − aᵀβ."""

    weight: float
    gram: Array


def squares(reader: Reader, number: int, coding: Coding, beta: Array) -> Squares | None:
    """Of one partition; None where it has no rows."""
    total: Squares | None = None
    for block in reader.read(number):
        rows, y = make_rows(block.X), coding.form(block, reader.where(number)).y
        e = y - rows.predict(beta[None, :])[0] - (0.0 if block.offset is None else block.offset)
        w = np.ones(len(y)) if block.weights is None else block.weights
        gram = np.empty((rows.dim + 1, rows.dim + 1))
        gram[:-1, :-1] = rows.gram(w, precise=True)
        gram[-1, :-1] = gram[:-1, -1] = rows.combine((w * e)[None, :])[0]
        gram[-1, -1] = float(w @ (e * e))
        if not np.isfinite(gram).all():
            require_finite(block, reader, number)
        one = Squares(float(w.sum()), gram)
        total = one if total is None else Squares(total.weight + one.weight, total.gram + one.gram)
    return total


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


class Lengths(NamedTuple):
    """What weights are made of: the centre, the map W of a dense whitening, S, and R where Mᵢ holds in a ball."""

    centre: Array
    factor: Array
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
        cubes = form.weighed(size * length**3 + self.floor) * (_CUSHION[form.rows.dtype] * self.scale)
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
        """|Wᵀaᵢ|, in float64; of rows with several predictors √Σ_c |W_cᵀaᵢ|² and the shared parameters' part."""
        rows, loss = form.rows.seen_once, form.loss
        parts = [self.factor[c * rows.dim : (c + 1) * rows.dim] for c in range(loss.blocks)]
        shared = float((self.factor[loss.blocks * rows.dim :] ** 2).sum())
        return np.asarray(np.sqrt(_squares(rows, np.hstack(parts)) + shared), np.float64)


def _squares(rows: Rows, factor: Array) -> Array:
    """|Fᵀaᵢ|² of every row, in float64. Rᵀ of the QR decomposition of Fᵀ has as long images, and no more rows than F."""
    root = np.ascontiguousarray(np.linalg.qr(factor.T, mode="r").T) if factor.shape[1] > len(factor) else factor

    def lengths(some: Any) -> Array:
        image = np.asarray(some, np.float64) @ root
        return np.asarray(np.einsum("nd,nd->n", image, image), np.float64)

    return rows.lengths(lengths)


class Measured(NamedTuple):
    """Of a partition: Σ qᵢ, and Σ |Cᵢ|²|ãᵢ|⁴/qᵢ, for what the curvature of one row varies by."""

    total: int
    noise: float


def measured(reader: Reader, number: int, coding: Coding, lengths: Lengths) -> Measured | None:
    """One pass; None where a weight overflows, so that S must be smaller."""
    total, noise = 0, 0.0
    for block in reader.read(number):
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


class Gathered(NamedTuple):
    """Rows of a partition: their numbers in it (growing), entries, labels in the loss's form, and weights q."""

    rows: Indices
    X: Any
    y: Array
    offset: Array | None
    weights: Array | None
    q: npt.NDArray[np.uint64]
    found: Indices  # the row, counted among these, of each place that was asked for


def gathered(reader: Reader, number: int, coding: Coding, lengths: Lengths | None, places: Places) -> Gathered:
    """The rows that places (growing, from 0 on within the partition) fall on: by weight, or by number without it."""
    parts: list[Gathered] = []
    low, before = 0, 0  # of the places; weights before this block
    for block in reader.read(number):
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
        some = Block(block.first, block.X[chosen], block.y[chosen], *(
            None if each is None else each[chosen] for each in (block.offset, block.weights)))  # fmt: skip
        require_finite(some, reader, number)
        y = coding.form(some, reader.where(number)).y
        parts.append(Gathered(block.first + chosen, some.X, y, some.offset, some.weights, q[chosen], found))
    return joined(parts)


def joined(parts: Sequence[Gathered]) -> Gathered:
    """Several one after another."""
    offsets = np.cumsum([0, *(len(part.rows) for part in parts)])
    if not isinstance(parts[0].X, np.ndarray):
        from scipy.sparse import csr_matrix, vstack

        X: Any = csr_matrix(vstack([part.X for part in parts]))
    else:
        X = np.concatenate([part.X for part in parts])
    offset, weights = (
        None if getattr(parts[0], name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("offset", "weights")
    )
    return Gathered(
        np.concatenate([part.rows for part in parts]),
        X,
        np.concatenate([part.y for part in parts]),
        offset,
        weights,
        np.concatenate([part.q for part in parts]),
        np.concatenate([part.found + begin for part, begin in zip(parts, offsets[:-1], strict=True)]),
    )


def share(reader: Reader, number: int, coding: Coding, most: int) -> tuple[Any, ...] | None:
    """The first rows of a partition, at most so many: X, labels, offsets and weights."""
    held: list[Block] = []
    count = 0
    for block in reader.read(number):
        X, y, *more = (None if each is None else each[: most - count] for each in block[1:])  # type: ignore[index]
        assert y is not None
        few = Block(block.first, X, y, *more)
        require_finite(few, reader, number)
        held.append(few._replace(y=coding.form(few, reader.where(number)).y))
        count += len(y)
        if count >= most:
            break
    if not held:
        return None
    dense = isinstance(held[0].X, np.ndarray)
    if dense:
        X: Any = np.concatenate([block.X for block in held])
    else:
        from scipy.sparse import csr_matrix, vstack

        X = csr_matrix(vstack([block.X for block in held]))
    return X, _all([b.y for b in held]), _all([b.offset for b in held]), _all([b.weights for b in held])


def _all(parts: Sequence[Array | None]) -> Array | None:
    return None if parts[0] is None else np.concatenate(parts)  # type: ignore[arg-type]


def surveyed(reader: Reader, number: int, most: int) -> npt.NDArray[Any] | None:
    """The values that labels of a partition have, in order; None where they are more than `most`."""
    known: npt.NDArray[Any] | None = None
    for y in reader.labels(number):
        found = np.unique(y)
        known = found if known is None else np.union1d(known, found)
        if len(known) > most:
            return None
    return np.zeros(0) if known is None else known
