"""Compiled passes over many rows, on all cores; sums in float64, in an order that does not depend on threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Reals, cores
from svrhmc.core.deadline import budget_check, indivisible_work
from svrhmc.core.machine import NARROW, blas_for
from svrhmc.core.recording import OrderedResults, iterate_recorded
from svrhmc.families.base import Loss
from svrhmc.kernels import float64
from svrhmc.kernels import passes as compiled
from svrhmc.kernels.compiling import Bound
from svrhmc.kernels.layout import BLOCK, ROOM, TILE
from svrhmc.kernels.rows import fixed

_TOGETHER = {"dense": 4, "sparse": 2}  # states that one reading of the rows serves
_BLOCK_ENTRIES = 16  # of sparse rows in a block, for each column, at least
_CACHED_NUMBERS = 1 << 16  # of rows, which stay in a near cache while several sums are made of them
_PARTS = 16  # into which rows of few columns are cut
_RECORDED = 1 << 34  # multiplications after which sums of wide rows are recorded: about a second's

_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}  # by process and number of threads

RowLabels = tuple[Array, Array | None, Array | None]  # y, offsets and weights


class CompiledRows(Protocol):
    """Rows in memory that compiled code can read."""

    n: int
    dim: int
    storage: ClassVar[str]

    @property
    def compiled(self) -> Any:
        """The entries as compiled code reads them."""

    @property
    def entries(self) -> float:
        """Stored entries of a row, on average."""


class RowsPass:
    """Σᵢ wᵢℓ(tᵢ, yᵢ) and its gradient at many states in one pass over the rows, tᵢ = offset + Jᵢx; of compiled losses.

    rows: with the columns of all predictors. labels: with offsets of the first predictor, (n,), or of all, (n, m).
    kind: the precision of products, and with one predictor of all numbers of a row. Threads share the rows, or the
    states where these are many; no digit of a result depends on the threads or on the other states.
    """

    def __init__(self, rows: CompiledRows, loss: Loss, labels: RowLabels, kind: npt.DTypeLike = np.float64) -> None:
        self.kind, self.number = np.dtype(kind), np.dtype(np.float64 if loss.predictor_shape else kind)
        windows = loss.windows(rows.dim)
        self.m, self.layout = len(windows), rows.compiled.layout(windows, rows.dim, kind)
        y, offset, weights = labels
        added = np.zeros((0, 0)) if offset is None else offset.reshape(len(offset), -1)
        self.rows, self.dense = rows.compiled, rows.storage == "dense"
        self.size, self.together = _block_rows(rows), _TOGETHER[rows.storage]
        self.blocks, self.width = -(-rows.n // self.size), int(self.layout.begin[-1])
        self.record, self.y = loss.record(self.number.type), fixed(y.astype(self.number, copy=False))
        self.added = fixed(added.astype(self.number, copy=False))
        self.weights = None if weights is None else fixed(weights.astype(self.number, copy=False))
        place = self.layout.place
        self.place: slice | Indices = slice(None) if np.array_equal(place, np.arange(self.width)) else place
        self._spare: dict[int, list[PassBuffers]] = {}  # buffers that are not in use, by their number of states
        self.bound: Bound | None = None  # the compiled function bound to some buffers, from which others are made

    def __call__(self, states: Array, valued: bool = True, threads: int | None = None) -> tuple[Array, Array]:
        """Σ wℓ of each state (0 unless `valued`), and ∂/∂x: (states, dim) → (states,) and (states, dim)."""
        if threads == 1 and len(states) <= self.together:
            with self.buffers(len(states)) as buffers:
                buffers.fill(states)
                buffers.shares[0](0, self.blocks, valued)
                sums = np.empty(states.shape)
                return buffers.join(sums), sums
        threads = cores() if threads is None else threads
        begins = range(0, len(states), self.together)
        shares = max(1, min(self.blocks, 1 if len(begins) >= threads else 2 * threads // len(begins)))
        cuts, look = np.linspace(0, self.blocks, shares + 1).astype(np.int64).tolist(), budget_check()

        def work(share: Bound, first: int, last: int) -> None:
            look(0.0)
            share(first, last, valued)

        with ExitStack() as used:
            groups = [
                used.enter_context(self.buffers(len(states[low : low + self.together]), shares)) for low in begins
            ]
            for low, group in zip(begins, groups, strict=True):
                group.fill(states[low : low + self.together])
            tasks = [
                (share, *cut) for group in groups for share, cut in zip(group.shares, pairwise(cuts), strict=False)
            ]
            if threads == 1 or len(tasks) == 1:
                for task in tasks:
                    work(*task)
            else:
                list(_pool(threads).map(lambda task: work(*task), tasks))
            sums = np.empty(states.shape)
            values = [group.join(sums[low : low + group.count]) for low, group in zip(begins, groups, strict=True)]
        return np.concatenate(values), sums

    @contextmanager
    def buffers(self, count: int, shares: int = 1) -> Iterator[PassBuffers]:
        """Buffers for `count` states, which no other thread uses meanwhile, with bound functions for `shares`
        threads.
        """
        spare = self._spare.setdefault(count, [])
        buffers = spare.pop() if spare else PassBuffers(self, count, *self.arrays(count))
        buffers.share(shares)
        yield buffers
        spare.append(buffers)

    def arrays(self, count: int) -> tuple[Array, Array, Array]:
        """Flat arrays for `count` states as compiled code reads them, and for their sums and values by blocks
        of rows.
        """
        number = count * self.width
        return np.zeros(number, self.kind), np.empty(self.blocks * number), np.empty(self.blocks * count)

    def __getstate__(self) -> dict[str, object]:
        """Without its buffers, whose addresses are valid in this process alone."""
        return {**self.__dict__, "_spare": {}, "bound": None}


class PassBuffers:
    """A few states as compiled code reads them (`kernels.layout.Layout`; for sparse rows coordinate by coordinate),
    with the sums and values of each block of rows.
    """

    def __init__(self, rows_pass: RowsPass, count: int, states: Array, sums: Array, values: Array) -> None:
        self.count, self._pass, self.states = count, rows_pass, states
        self.sums, self.values = sums.reshape(rows_pass.blocks, -1), values.reshape(rows_pass.blocks, -1)
        self.shares: list[Bound] = []
        self.share(1)

    def share(self, count: int) -> None:
        """Make bound functions for `count` threads, each with scratch space of its own."""
        own = self._pass
        while len(self.shares) < count:
            t, s = (np.empty((self.count * lines, TILE), own.number) for lines in (2 * own.m + ROOM, own.m))
            data = own.rows, own.layout, own.record, own.y, own.added, own.weights, self.states, self.count, own.size
            tile = np.empty(np.diff(own.layout.begin).max(), own.kind)
            arguments = compiled.Summing(*data, tile, t, s, self.sums, self.values)
            own.bound = own.bound.like(arguments) if own.bound else Bound(compiled.pass_blocks, arguments)
            self.shares.append(own.bound)

    def fill(self, states: Array) -> None:
        """Copy states (count, dim) into the buffer."""
        self._by_state(self.states)[:, self._pass.place] = states

    def join(self, sums: Array) -> Array:
        """The values of all blocks, added in their order; the sums are written to `sums`."""
        total = self.sums[0] if len(self.sums) == 1 else self.sums.sum(axis=0)
        sums[:] = self._by_state(total)[:, self._pass.place]
        return np.asarray(self.values.sum(axis=0))

    def _by_state(self, flat: Array) -> Array:
        """A view of shape (count, width)."""
        return flat.reshape(self.count, -1) if self._pass.dense else flat.reshape(-1, self.count).T


def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads that all passes of this process share; a forked process makes its own."""
    key = os.getpid(), threads
    return _POOLS[key] if key in _POOLS else _POOLS.setdefault(key, ThreadPoolExecutor(threads))


def _block_rows(rows: CompiledRows) -> int:
    """The number of rows in a block; for sparse rows so many that adding up the blocks costs little in comparison."""
    if rows.storage == "dense":
        return BLOCK
    blocks = max(1, min(-(-rows.n // BLOCK), int(rows.n * rows.entries / (_BLOCK_ENTRIES * rows.dim))))
    return int(-(-rows.n // blocks))


def predict(rows: CompiledRows, x: Array) -> Array:
    """All aᵢᵀx, products in float64."""
    out = np.empty((1, rows.n))
    _run_on_ranges(rows.n, lambda low, high: float64.predict(rows.compiled, x, low, high, out))
    first: Array = out[0]
    return first


def combine(rows: CompiledRows, weights: Array) -> Array:
    """Σᵢ wᵢaᵢ, in float64."""
    partial = np.zeros((-(-rows.n // BLOCK), rows.dim))
    _run_on_ranges(
        rows.n,
        lambda low, high: float64.combine(rows.compiled, weights[None], BLOCK, low, high, np.empty(rows.dim), partial),
    )
    total: Array = partial.sum(axis=0)
    return total


def grams(X: Reals, weights: Sequence[Array]) -> Array:
    """Aᵀ diag(w) A for each of several weights w, (count, dim, dim), in one pass over the rows: by BLAS in the
    precision of X, in blocks of rows that stay in a near cache; blocks are added in float64.

    Threads share the rows, each with one thread of BLAS, in parts whose number does not depend on the threads. Wide
    rows are one part, as a sum for each part would take more memory than the rows; then BLAS uses its own threads.
    """
    (n, dim), count = X.shape, len(weights)
    size = max(64, min(2 * BLOCK, _CACHED_NUMBERS // dim))
    parts = min(_PARTS, -(-n // (2 * BLOCK))) if dim <= NARROW else 1
    cuts, look = np.linspace(0, -(-n // size), parts + 1).astype(np.int64) * size, budget_check()

    def add_blocks(total: Array, begin: int, end: int) -> Array:
        buffer = np.empty((size, dim), X.dtype)
        for low in range(begin, min(end, n), size):
            look(0.0)
            block = X[low : min(low + size, end)]
            for gram, w in zip(total, weights, strict=True):
                gram += _weighted_square(block, w[low : low + len(block)], buffer[: len(block)])
        return total

    zero = np.zeros((count, dim, dim))
    with indivisible_work(count * n * dim**2 / 2), blas_for(dim), ThreadPoolExecutor(min(cores(), parts)) as pool:
        if parts == 1:
            rows = size * max(1, _RECORDED // (count * size * dim**2))
            (joined,) = iterate_recorded(
                lambda k, now: (add_blocks(now[0], k * rows, (k + 1) * rows), False),
                (zero,),
                -(-n // rows),
                tuple(weights),
            )
        else:
            sums = OrderedResults(
                lambda first: pool.map(
                    lambda a, b: add_blocks(np.zeros_like(zero), a, b), cuts[first:-1], cuts[first + 1 :]
                )
            )
            (joined,) = iterate_recorded(lambda k, now: (now[0] + sums.take(k), False), (zero,), parts, tuple(weights))
    return np.asarray(joined)


def _weighted_square(block: Reals, w: Array, buffer: Reals) -> Reals:
    """Aᵀ diag(w) A; where all w have one sign by (√|w| A)ᵀ(√|w| A), which takes half the work."""
    least, most = w.min(), w.max()
    if least < 0 < most:
        np.multiply(block, w[:, None], out=buffer, casting="same_kind")
        product = block.T @ buffer
        return (product + product.T) / 2
    np.multiply(block, np.sqrt(np.abs(w))[:, None], out=buffer, casting="same_kind")
    return -(buffer.T @ buffer) if least < 0 else buffer.T @ buffer


def _run_on_ranges(count: int, work: Callable[[int, int], None]) -> None:
    """Run work(low, high) on ranges of 0 … count that end between blocks, on all cores."""
    threads = min(cores(), -(-count // BLOCK))
    cuts = np.linspace(0, -(-count // BLOCK), 4 * threads + 1).astype(np.int64) * BLOCK
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda low, high: work(int(low), int(min(high, count))), cuts[:-1], cuts[1:]))
