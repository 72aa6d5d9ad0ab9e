"""Passes over many rows, compiled and on all cores; sums in float64 and in an order that no thread changes."""

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
_JOINED = 16  # entries of sparse rows in a block, for each column, at least
_NEAR_NUMBERS = 1 << 16  # of rows that stay in a near cache while several sums are made of them
_PARTS = 16  # into which rows of few columns are cut
_ROUND = 1 << 34  # multiplications, after which sums of wide rows are recorded: about a second's

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

    rows: with the columns of all predictors. labels: with an offset (n,), of the first predictor, or (n, m) of all.
    kind: the precision of products, those of rows in float64 unless it is given, and of all that one predictor has.
    Threads share the rows, or the states where these are many; neither changes a digit, nor do other states.
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
        self._spare: dict[int, list[PassRoom]] = {}  # rooms that are not in use, by their number of states
        self.bound: Bound | None = None  # to one of them, as to others

    def __call__(self, states: Array, valued: bool = True, threads: int | None = None) -> tuple[Array, Array]:
        """Σ wℓ of each state (0 unless `valued`), and ∂/∂x: (states, dim) → (states,) and (states, dim)."""
        if threads == 1 and len(states) <= self.together:
            with self.room(len(states)) as room:
                room.fill(states)
                room.shares[0](0, self.blocks, valued)
                sums = np.empty(states.shape)
                return room.joined(sums), sums
        threads = cores() if threads is None else threads
        begins = range(0, len(states), self.together)
        shares = max(1, min(self.blocks, 1 if len(begins) >= threads else 2 * threads // len(begins)))
        cuts, look = np.linspace(0, self.blocks, shares + 1).astype(np.int64).tolist(), budget_check()

        def work(share: Bound, first: int, last: int) -> None:
            look(0.0)
            share(first, last, valued)

        with ExitStack() as used:
            some = [used.enter_context(self.room(len(states[low : low + self.together]), shares)) for low in begins]
            for low, room in zip(begins, some, strict=True):
                room.fill(states[low : low + self.together])
            todo = [(share, *cut) for room in some for share, cut in zip(room.shares, pairwise(cuts), strict=False)]
            if threads == 1 or len(todo) == 1:
                for task in todo:
                    work(*task)
            else:
                list(_pool(threads).map(lambda task: work(*task), todo))
            sums = np.empty(states.shape)
            values = [room.joined(sums[low : low + room.count]) for low, room in zip(begins, some, strict=True)]
        return np.concatenate(values), sums

    @contextmanager
    def room(self, count: int, shares: int = 1) -> Iterator[PassRoom]:
        """Room for so many states, which no other thread has meanwhile."""
        spare = self._spare.setdefault(count, [])
        room = spare.pop() if spare else PassRoom(self, count, *self.arrays(count))
        room.share(shares)
        yield room
        spare.append(room)

    def arrays(self, count: int) -> tuple[Array, Array, Array]:
        """For so many states as compiled code reads them, and by blocks of rows their sums and values; all flat."""
        number = count * self.width
        return np.zeros(number, self.kind), np.empty(self.blocks * number), np.empty(self.blocks * count)

    def __getstate__(self) -> dict[str, object]:
        """Without its rooms, whose addresses hold in this process alone."""
        return {**self.__dict__, "_spare": {}, "bound": None}


class PassRoom:
    """Some states as compiled code reads them (`kernels.layout.Layout`; those of sparse rows side by side), and for
    each block of rows what these give at them.
    """

    def __init__(self, by: RowsPass, count: int, states: Array, sums: Array, values: Array) -> None:
        self.count, self._by, self.states = count, by, states
        self.sums, self.values = sums.reshape(by.blocks, -1), values.reshape(by.blocks, -1)
        self.shares: list[Bound] = []
        self.share(1)

    def share(self, count: int) -> None:
        """Let so many threads have shares of a pass."""
        by = self._by
        while len(self.shares) < count:
            t, s = (np.empty((self.count * lines, TILE), by.number) for lines in (2 * by.m + ROOM, by.m))
            data = by.rows, by.layout, by.record, by.y, by.added, by.weights, self.states, self.count, by.size
            tile = np.empty(np.diff(by.layout.begin).max(), by.kind)
            arguments = compiled.Summing(*data, tile, t, s, self.sums, self.values)
            by.bound = by.bound.like(arguments) if by.bound else Bound(compiled.pass_blocks, arguments)
            self.shares.append(by.bound)

    def fill(self, states: Array) -> None:
        """With states (count, dim)."""
        self._laid(self.states)[:, self._by.place] = states

    def joined(self, sums: Array) -> Array:
        """Values of all blocks, in their order; their sums are put into their place."""
        total = self.sums[0] if len(self.sums) == 1 else self.sums.sum(axis=0)
        sums[:] = self._laid(total)[:, self._by.place]
        return np.asarray(self.values.sum(axis=0))

    def _laid(self, flat: Array) -> Array:
        """As (count, width)."""
        return flat.reshape(self.count, -1) if self._by.dense else flat.reshape(-1, self.count).T


def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that all passes share and that stay for the next one; a process that was forked has its own."""
    key = os.getpid(), threads
    return _POOLS[key] if key in _POOLS else _POOLS.setdefault(key, ThreadPoolExecutor(threads))


def _block_rows(rows: CompiledRows) -> int:
    """Rows of a block; of sparse ones so many that to join the sums costs little beside them."""
    if rows.storage == "dense":
        return BLOCK
    blocks = max(1, min(-(-rows.n // BLOCK), int(rows.n * rows.entries / (_JOINED * rows.dim))))
    return int(-(-rows.n // blocks))


def predict(rows: CompiledRows, x: Array) -> Array:
    """All aᵢᵀx, products in float64."""
    out = np.empty((1, rows.n))
    _spread(rows.n, lambda low, high: float64.predict(rows.compiled, x, low, high, out))
    first: Array = out[0]
    return first


def combine(rows: CompiledRows, weights: Array) -> Array:
    """Σᵢ wᵢaᵢ, in float64."""
    partial = np.zeros((-(-rows.n // BLOCK), rows.dim))
    _spread(
        rows.n,
        lambda low, high: float64.combine(rows.compiled, weights[None], BLOCK, low, high, np.empty(rows.dim), partial),
    )
    total: Array = partial.sum(axis=0)
    return total


def grams(X: Reals, weights: Sequence[Array]) -> Array:
    """Aᵀ diag(w) A for each of some weights: (count, dim, dim), in one pass over the rows: by BLAS in the precision of
    X, in blocks of rows that stay in a near cache for all of them; blocks join in float64.

    Threads share the rows, each with one thread of BLAS, in parts whose number they do not decide; of wide rows, where
    a sum for each part would take more room than the rows, one part is all, and BLAS has its own threads.
    """
    (n, dim), count = X.shape, len(weights)
    size = max(64, min(2 * BLOCK, _NEAR_NUMBERS // dim))
    parts = min(_PARTS, -(-n // (2 * BLOCK))) if dim <= NARROW else 1
    cuts, look = np.linspace(0, -(-n // size), parts + 1).astype(np.int64) * size, budget_check()

    def added(total: Array, begin: int, end: int) -> Array:
        room = np.empty((size, dim), X.dtype)
        for low in range(begin, min(end, n), size):
            look(0.0)
            block = X[low : min(low + size, end)]
            for gram, w in zip(total, weights, strict=True):
                gram += _weighted_square(block, w[low : low + len(block)], room[: len(block)])
        return total

    zero = np.zeros((count, dim, dim))
    with indivisible_work(count * n * dim**2 / 2), blas_for(dim), ThreadPoolExecutor(min(cores(), parts)) as pool:
        if parts == 1:
            rows = size * max(1, _ROUND // (count * size * dim**2))
            (joined,) = iterate_recorded(
                lambda k, now: (added(now[0], k * rows, (k + 1) * rows), False), (zero,), -(-n // rows), tuple(weights)
            )
        else:
            sums = OrderedResults(
                lambda first: pool.map(lambda a, b: added(np.zeros_like(zero), a, b), cuts[first:-1], cuts[first + 1 :])
            )
            (joined,) = iterate_recorded(lambda k, now: (now[0] + sums.take(k), False), (zero,), parts, tuple(weights))
    return np.asarray(joined)


def _weighted_square(block: Reals, w: Array, room: Reals) -> Reals:
    """Aᵀ diag(w) A: that of (√|w| A)ᵀ(√|w| A), half the work, with its sign where all w have one."""
    least, most = w.min(), w.max()
    if least < 0 < most:
        np.multiply(block, w[:, None], out=room, casting="same_kind")
        both = block.T @ room
        return (both + both.T) / 2
    np.multiply(block, np.sqrt(np.abs(w))[:, None], out=room, casting="same_kind")
    return -(room.T @ room) if least < 0 else room.T @ room


def _spread(count: int, work: Callable[[int, int], None]) -> None:
    """Ranges of 0 … count, cut between blocks, on all cores."""
    threads = min(cores(), -(-count // BLOCK))
    cuts = np.linspace(0, -(-count // BLOCK), 4 * threads + 1).astype(np.int64) * BLOCK
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda low, high: work(int(low), int(min(high, count))), cuts[:-1], cuts[1:]))
