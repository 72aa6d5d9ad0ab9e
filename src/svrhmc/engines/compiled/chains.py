"""Chains of the grid in compiled code.

One compiled call runs a piece of the work; between pieces Python shows progress and hears an interrupt. Where
chains are fewer than threads and the rows many, the threads share each pass over all rows instead. Neither changes
a digit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Event, Lock
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DivergenceError
from svrhmc.core.randomness import Stream
from svrhmc.engines.base import EVERY, Chains, Extension, Keep, Report, Setup, State, quiet
from svrhmc.engines.compiled.models import (
    longer,
    make_model,
    row_shape,
    second_order_model,
    slope_kind,
    stored_entries,
)
from svrhmc.engines.compiled.threads import share
from svrhmc.engines.compiled.workspace import make_memory, make_plan, make_table, make_workspace, own_room
from svrhmc.engines.pace import HIGH, Pace
from svrhmc.gradients import Memory
from svrhmc.gradients.recipe import NEVER
from svrhmc.kernels import estimates, layout, loop, passes

_SHARED_PASS = 1 << 19  # entries of X from which a pass is worth the hand-over to other threads


class Program:
    """A setup in arrays: what every call of compiled code reads."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        form, recipe = setup.form, setup.sampler.recipe
        second = recipe.order == 2 and form.whitening is None  # else that order is taken out already
        self.model = second_order_model(form, setup.target.mode()) if second else make_model(form)
        if recipe.reference == "table" or recipe.weighted:
            self.model = longer(self.model)
        self.plan = make_plan(recipe, setup.sampler.scheme, self.model, second)
        self.table = make_table(setup.sampler.scheme)
        self.stream = Stream(setup.seed, setup.chains)
        self.nothing = make_memory(self.model, 0, 0, 0)

    @property
    def passes_are_large(self) -> bool:
        """Whether passes over all rows are made, and long enough to be shared."""
        plan = self.plan
        none = plan.kind == layout.MINIBATCH or plan.anchored or plan.saga or plan.snapshot_rows
        return not none and stored_entries(self.model) >= _SHARED_PASS

    def workspace(self, steps: int) -> Any:
        """Room for one thread, with what all threads read."""
        setup = self.setup
        work = make_workspace(self.model, self.plan, setup.target.dim, setup.sampler.scheme.normals, steps)
        work = work._replace(**{name: getattr(work, name)._replace(**known) for name, known in self._shared.items()})
        if self.plan.anchored or self.plan.second:
            work.held.anchor[:] = work.held.base
        return work

    @cached_property
    def _shared(self) -> dict[str, dict[str, Any]]:
        """Arrays that every thread reads: the mode with what is known there, and the alias table."""
        target, recipe, kind = self.setup.target, self.setup.sampler.recipe, self.model[0].dtype
        held: dict[str, Any] = {}
        found: dict[str, dict[str, Any]] = {"held": held}
        if recipe.reference == "mode":
            mode = target.mode()[None, :]
            held["base"] = (target.gradients(mode) - target.prior_gradient(mode))[0]
            if self.plan.anchored:
                held["snapshot"] = mode[0].astype(kind)
            if self.plan.anchored and self.plan.remembers:
                held["memory"] = (target.parts(mode, None)[0] / target.n).astype(slope_kind(self.model)).reshape(-1)
            if self.plan.second:
                held["hessian"] = target.expansion(mode[0]).hessian
        if recipe.weighted:
            threshold, alias, probability = target.row_table
            found["draw"] = {"threshold": threshold, "alias": alias}
            found["batch"] = {"weights": (1 / (target.n * probability)).astype(kind)}
        return found

    def memory(self, chains: int) -> Any:
        """Room for what so many chains remember."""
        recipe = self.setup.sampler.recipe
        columns = recipe.n * math.prod(row_shape(self.model)) if recipe.keeps_table(len(self.setup.chains)) else 0
        return make_memory(self.model, chains, self.setup.target.dim, columns)

    def diverged(self, chain: int, step: int) -> DivergenceError:
        """The error for a chain that left the finite numbers in a step."""
        size = self.setup.sampler.step_size
        return DivergenceError(int(self.setup.chains[chain]), step, size, size / 4)


class CompiledChains(Chains):
    """Chains whose steps are made by `svrhmc.kernels.loop`."""

    engine = "numba"

    def __init__(self, setup: Setup, state: State) -> None:
        self.setup, self.state = setup, state
        self.program = Program(setup)

    def compile(self) -> None:
        """Compile the loop, or load it, by running no chain for no step."""
        call = _Call(self.program, self.state, 0, np.empty((0, 0, self.setup.target.dim)), NEVER, 1, quiet)
        call.advance(self.program.workspace(1), (0, 0), (self.state.step, self.state.step))

    def empty_memory(self) -> Memory:
        """The snapshot, its gradient, and slopes of the rows where they are kept."""
        recipe = self.setup.sampler.recipe
        return _to_memory(self.program.memory(0), recipe.remembers) if recipe.carries else {}

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """`count` more steps of each chain."""
        state, recipe, chains = self.state, self.setup.sampler.recipe, len(self.setup.chains)
        end = state.step + count
        kept = keep.within(state.step, end)
        draws = np.empty((chains, len(kept), self.setup.target.dim))
        now, done = state, 0
        while now.step < end:  # never across a multiple of 2³² steps, where the keys of the stream change
            piece = min(end, (now.step // HIGH + 1) * HIGH)
            here = keep.within(now.step, piece)
            first = int(here[0]) if len(here) else NEVER
            call = _Call(self.program, now, piece, draws[:, done : done + len(here)], first, keep.thin, report)
            now, done = call.run(), done + len(here)
        self.state = now
        evaluations = int(recipe.evaluations(end) - recipe.evaluations(state.step)) * chains
        return Extension(draws, recipe.evaluations(kept).astype(float), evaluations)


class _Call:
    """One extension: the chains' state, copied, on its way to `end`."""

    def __init__(
        self, program: Program, state: State, end: int, draws: Array, first: int, thin: int, report: Report
    ) -> None:
        self.program, self.draws, self.report = program, draws, report
        self.plan = program.plan._replace(first=first, thin=thin)
        self.begin, self.end, self.recipe = state.step, end, program.setup.sampler.recipe
        self.x, self.v = state.x.copy(), state.v.copy()
        self.chains = len(self.x)
        self.fresh = self.recipe.carries and not state.memory
        self.old = self.new = program.nothing
        if self.recipe.carries:
            self.old = program.nothing if self.fresh else _from_memory(program.model, state.memory)
            self.new = program.memory(self.chains)
        self._lock, self._next, self.stopping = Lock(), 0, Event()
        self._diverged: tuple[int, int] | None = None  # (step, place of the chain): the earliest so far

    def run(self) -> State:
        """All chains to the end, on all threads; the state that they reach."""
        wanted = self.program.setup.threads
        threads = min(wanted, self.chains)
        if wanted > threads and self.program.passes_are_large:
            self._share_passes(wanted)
        else:
            share(self._work, threads, self.report, self.stopping)
        if self._diverged is not None:
            raise self.program.diverged(self._diverged[1], self._diverged[0])
        memory = _to_memory(self.new, self.recipe.remembers) if self.recipe.carries else {}
        return State(self.x, self.v, memory, self.end, float(self.recipe.evaluations(self.end)))

    def _share_passes(self, threads: int) -> None:
        """Chains one after another, each pass over the rows on all threads."""
        program, work = self.program, self.program.workspace(self.end - self.begin)
        held, sharers = work.held, [own_room(work.sums) for _ in range(threads)]
        cuts = np.linspace(0, len(work.sums.partial), threads + 1).astype(int)
        with ThreadPoolExecutor(threads) as pool:

            def part(own: Any, low: int, high: int) -> None:
                passes.pass_blocks(program.model, held.at, low, high, own, held.memory, self.plan.remembers)

            def everyone() -> None:
                held.snapshot[:] = held.at
                list(pool.map(part, sharers, cuts[:-1], cuts[1:]))
                passes.join_blocks(program.model, work.sums.partial, held.room, held.anchor)

            for chain in range(self.chains):
                self._run_chain(work, chain, everyone)

    def _run_chain(self, work: Any, chain: int, everyone: Callable[[], None]) -> None:
        step, passed, pace = self.begin, False, Pace()
        while step < self._last():
            piece = min(self._last(), step + pace.steps)
            began = time.perf_counter()
            reason, _, reached = self.advance(work, (chain, chain + 1), (step, piece), passed, outside=True)
            pace.learn(reached - step, time.perf_counter() - began)
            passed = reason == layout.PASS_DUE
            self.report(reached - step)
            step = reached
            if reason == layout.PASS_DUE:
                everyone()
            elif reason == layout.DIVERGED:
                self._note(chain, reached)

    def _work(self, report: Report) -> None:
        """Take chains until none is left; pieces grow to a tenth of a second."""
        work, pace = self.program.workspace(self.end - self.begin), Pace()
        for first, last in shares(self, pace, self.end - self.begin):
            while first < last and not self.stopping.is_set():
                step, end = self.begin, self._last()
                while step < end:
                    piece = end if last - first > 1 else min(end, step + pace.steps)
                    began, amount = time.perf_counter(), (last - first) * (piece - step)
                    reason, chain, reached = self.advance(work, (first, last), (step, piece))
                    pace.learn(amount, time.perf_counter() - began)
                    report(amount)
                    step = piece
                    if reason == layout.DIVERGED:
                        self._note(chain, reached)
                        first, step = chain, end
                    if self.stopping.is_set():
                        return
                first = first + 1 if reason == layout.DIVERGED else last

    def advance(
        self, work: Any, chains: tuple[int, int], steps: tuple[int, int], passed: bool = False, outside: bool = False
    ) -> tuple[int, int, int]:
        """One call of the loop: memory enters where a chain begins, and leaves where it ends."""
        k0, k1 = self.program.stream.keys(steps[0] >> 32)
        begins, ends = steps[0] == self.begin, steps[1] == self.end
        flags = layout.Flags(
            fresh=begins and self.fresh,
            load=begins and self.recipe.carries and not self.fresh,
            store=ends and self.recipe.carries,
            passed=passed,
            outside=outside,
        )
        result: tuple[int, int, int] = loop.advance(
            self.program.model, self.plan, self.program.table, *work, k0, k1, self.x, self.v, self.draws,
            self.old, self.new, chains, steps, flags,
        )  # fmt: skip
        return result

    def take(self, size: int) -> tuple[int, int]:
        """The next chains, at most so many, for the thread that asks."""
        with self._lock:
            left = self.chains - self._next
            first = self._next
            self._next += min(max(0, left), size, max(1, left // (2 * self.program.setup.threads)))
            return first, self._next

    def _last(self) -> int:
        """Steps to make: all, or as many as could still diverge earlier than a chain that has."""
        return self.end if self._diverged is None else min(self.end, self._diverged[0])

    def _note(self, chain: int, step: int) -> None:
        with self._lock:
            self._diverged = min(self._diverged or (step, chain), (step, chain))


def shares(call: Any, pace: Pace, steps: int) -> Iterator[tuple[int, int]]:
    """Ranges of chains, each about a piece of work long."""
    while not call.stopping.is_set():
        first, last = call.take(max(1, pace.steps // max(1, steps)))
        if first >= last:
            return
        yield first, last


def estimates_at(setup: Setup, states: Array, step: int) -> Array:
    """The recipe's estimates at many states, by a loop that makes no step; a snapshot is taken at each."""
    program, out = Program(setup), np.empty_like(states)
    call = _Call(program, State(states, np.zeros_like(states), step=step), step + 1, states[:, :0], NEVER, 1, quiet)
    k0, k1 = program.stream.keys(step >> 32)

    def work(report: Report) -> None:
        room, pace, recipe = program.workspace(1), Pace(), setup.sampler.recipe
        sums = room.sums if recipe.full or recipe.carries else None  # what is None is not compiled
        some = (None, None) if recipe.full else (room.batch, room.draw)
        rest = (room.held, sums, *some, room.noise.words, k0, k1, call.x, out)
        for chains in shares(call, pace, 1):
            began = time.perf_counter()
            estimates.estimate(program.model, program.plan, *rest, chains, step)
            pace.learn(chains[1] - chains[0], time.perf_counter() - began)

    share(work, min(setup.threads, len(states)), quiet, call.stopping)
    fine = np.isfinite(out).all(axis=1)
    if not fine.all():
        raise program.diverged(int(np.argmin(fine)), step + 1)
    return out


def _from_memory(model: Any, memory: Memory) -> Any:
    """What chains carry, as the loop reads it."""
    empty = np.zeros((len(memory["anchor"]), 0), slope_kind(model))
    return layout.Memory(memory["snapshot"], memory["anchor"], memory.get("table", empty))


def _to_memory(kept: Any, remembers: bool) -> Memory:
    """What the loop wrote, by name."""
    table = {"table": kept.table} if remembers and kept.table.shape[1] else {}
    return {"snapshot": kept.snapshot, "anchor": kept.anchor, **table}
