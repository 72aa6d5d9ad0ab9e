"""Chains in compiled code, of every sampler: across threads, in pieces of a tenth of a second.

One compiled call runs a piece of the work; between pieces Python shows progress and hears an interrupt. Neither pieces
nor threads change a digit.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Lock
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.engines import base
from svrhmc.engines.base import EVERY, HIGH, NONE, Chains, Extension, Keep, Pace, Report, Setup, State, joined, quiet
from svrhmc.gradients import Memory


class Call(ABC):
    """Some chains of a sampler on their way from a state, which is copied, to an end.

    team: how many are moved in step; None where they are moved one after another.
    """

    team: int | None = None

    def __init__(self, state: State, end: int) -> None:
        self.begin, self.end, self.x = state.step, end, state.x.copy()

    @property
    def last(self) -> int:
        """The step up to which it is worth to go."""
        return self.end

    @abstractmethod
    def room(self) -> Any:
        """Room for the chains that one thread runs at a time."""

    @abstractmethod
    def advance(self, room: Any, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """One piece of some chains."""

    def share_passes(self, threads: int, report: Report) -> bool:
        """Run chains one after another, each pass over the rows on all threads, where that is better: whether it is."""
        return False

    @abstractmethod
    def finish(self) -> tuple[State, Extension]:
        """Where the chains are at the end, and what they made; an error where one has left the finite numbers."""


class CompiledKernel(ABC):
    """A sampler on a target, in arrays that compiled code reads."""

    @abstractmethod
    def call(self, state: State, end: int, keep: Keep) -> Call:
        """Chains in a state, to an end."""

    @abstractmethod
    def empty_memory(self) -> Memory:
        """As `Chains.empty_memory`."""

    def blank(self, state: State) -> Call:
        """Chains that make no step, to compile for."""
        return self.call(state, state.step, NONE)

    def until(self, state: State, end: int) -> int:
        """Up to which step, at most `end`, all is at hand that the chains need; it is fetched first."""
        return end


class CompiledChains(Chains):
    """Chains whose steps are made by `svrhmc.kernels`."""

    engine = "numba"

    def __init__(self, setup: Setup, state: State, kernel: CompiledKernel) -> None:
        self.setup, self.state, self.kernel = setup, state, kernel

    def compile(self) -> None:
        """Compile the loop, or load it, by running no chain for no step."""
        call = self.kernel.blank(self.state)
        call.advance(call.room(), (0, 0), (call.begin, call.begin))

    def empty_memory(self) -> Memory:
        """As the sampler says."""
        return self.kernel.empty_memory()

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """Stretch by stretch, never across a multiple of 2³² steps, where the keys of the stream change."""
        now, end = self.state, self.state.step + count
        parts: list[Extension] = []
        while now.step < end or not parts:
            until = min(self.kernel.until(now, end), (now.step // HIGH + 1) * HIGH)
            call = self.kernel.call(now, until, keep)
            self._run(call, report)
            now, part = call.finish()
            parts.append(part)
        self.state = now if count else self.state
        return joined(parts)

    def _run(self, call: Call, report: Report) -> None:
        chains, wanted = len(call.x), self.setup.threads
        threads = min(wanted, chains)
        if wanted > threads and call.share_passes(wanted, report):
            return
        teams = Teams(chains, wanted, call.end - call.begin, call.team)

        def work(tell: Report) -> None:
            room, clock = call.room(), Pace()
            for first, last in teams.take(clock):
                step, each = call.begin, last - first
                while step < (end := call.last) and not teams.stopping.is_set():
                    whole = call.team is None and each > 1
                    piece = end if whole else min(end, step + max(1, clock.steps // each))
                    began = time.perf_counter()
                    call.advance(room, (first, last), (step, piece))
                    clock.learn(each * (piece - step), time.perf_counter() - began)
                    tell(each * (piece - step))
                    step = piece

        share(work, threads, report, teams.stopping)


class MetropolisCall(Call):
    """Of a sampler with proposals, whose loop keeps every draw.

    draws: (chains, steps, dim). gradients: ∇f at them, where it is known. counts: rows evaluated, by chain and step.
    """

    gradients: Array | None = None
    counts: Indices

    def __init__(self, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end)
        self._state, self._keep = state, keep
        self.draws = np.empty((len(self.x), end - state.step, self.x.shape[1]))
        self.accepted = np.zeros(len(self.x), np.int64)

    def memory(self) -> Memory:
        """What the chains carry besides z."""
        return {}

    def finish(self) -> tuple[State, Extension]:
        """Every draw, or those that are kept."""
        state, chains = self._state, len(self.x)
        evaluated = round(state.spent * chains) + np.cumsum(self.counts.sum(axis=0))
        kept = self._keep.within(self.begin, self.end) - self.begin - 1
        chosen = slice(None) if len(kept) == self.end - self.begin else kept
        made = Extension(
            draws=self.draws[:, chosen],
            spent=evaluated[kept] / chains,
            evaluations=int(self.counts.sum()),
            gradients=None if self.gradients is None else self.gradients[:, chosen],
            accepted=self.accepted,
            counts=self.counts,
        )
        spent = float(evaluated[-1] / chains) if len(evaluated) else state.spent
        return State(self.x, state.v, self.memory(), self.end, spent), made


class Teams:
    """Chains that are still to be run, of which threads take some at a time.

    size: how many; None for as many as a piece has steps of, out of few enough that all threads have some.
    """

    def __init__(self, chains: int, threads: int, steps: int, size: int | None = None) -> None:
        self.stopping = Event()
        self._chains, self._threads, self._steps, self._size = chains, threads, max(1, steps), size
        self._lock, self._next = Lock(), 0

    def take(self, clock: Pace) -> Iterator[tuple[int, int]]:
        """The next chains, from one to before another, until none is left."""
        while not self.stopping.is_set():
            with self._lock:
                first, left = self._next, self._chains - self._next
                size = self._size or max(1, min(clock.steps // self._steps, left // (2 * self._threads)))
                self._next += min(size, left)
            if left < 1:
                return
            yield first, first + min(size, left)


def share(work: Callable[[Report], None], threads: int, report: Report, stopped: Event) -> None:
    """The work on some threads; an interrupt sets `stopped`, and they end after their present piece."""
    if threads == 1:
        work(report)
        return
    done, told = [0] * threads, 0

    def count(place: int) -> None:
        def tell(amount: int) -> None:
            done[place] += amount

        try:
            work(tell)
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(threads) as pool:
        futures: list[Future[None]] = [pool.submit(count, place) for place in range(threads)]
        try:
            waiting = set(futures)
            while waiting:
                _, waiting = wait(waiting, timeout=base.PIECE_SECONDS)
                now = sum(done)
                if now > told:
                    report(now - told)
                told = now
        finally:
            stopped.set()
    for future in futures:
        future.result()
