"""The grid in compiled code.

Where chains are fewer than threads and the rows many, the threads share each pass over all rows; no digit changes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from svrhmc.core.errors import DivergenceError
from svrhmc.core.randomness import Stream
from svrhmc.engines.base import Extension, Keep, Pace, Report, Setup, State
from svrhmc.engines.compiled.arrays import (
    entry_kind,
    longer,
    make_memory,
    make_model,
    make_plan,
    make_table,
    make_workspace,
    own_room,
    row_shape,
    second_order_model,
    slope_kind,
    stored_entries,
)
from svrhmc.engines.compiled.chains import Call, CompiledKernel
from svrhmc.gradients import NEVER, Memory
from svrhmc.kernels import layout, loop, passes

_SHARED_PASS = 1 << 19  # entries of X from which a pass is worth the hand-over to other threads


class GridKernel(CompiledKernel):
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
        target, recipe, kind = self.setup.target, self.setup.sampler.recipe, entry_kind(self.model)
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

    def empty_memory(self) -> Memory:
        """The snapshot, its gradient, and slopes of the rows where they are kept."""
        recipe = self.setup.sampler.recipe
        return _to_memory(self.memory(0), recipe.remembers) if recipe.carries else {}

    def call(self, state: State, end: int, keep: Keep) -> Call:
        """By `svrhmc.kernels.loop`."""
        return GridCall(self, state, end, keep)

    def diverged(self, chain: int, step: int) -> DivergenceError:
        """The error for a chain that left the finite numbers in a step."""
        size = self.setup.sampler.step_size
        return DivergenceError(int(self.setup.chains[chain]), step, size, size / 4)


class GridCall(Call):
    """Chains on their way; what they remember enters where a chain begins, and leaves where it ends."""

    def __init__(self, kernel: GridKernel, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end)
        self.kernel, self.recipe, self.v = kernel, kernel.setup.sampler.recipe, state.v.copy()
        self.kept = keep.within(state.step, end)
        self.draws = np.empty((len(self.x), len(self.kept), self.x.shape[1]))
        self.plan = kernel.plan._replace(first=int(self.kept[0]) if len(self.kept) else NEVER, thin=keep.thin)
        self.fresh = self.recipe.carries and not state.memory
        self.old = self.new = kernel.nothing
        if self.recipe.carries:
            self.old = kernel.nothing if self.fresh else _from_memory(kernel.model, state.memory)
            self.new = kernel.memory(len(self.x))
        self._lock = Lock()
        self._diverged: tuple[int, int] | None = None  # (step, place of the chain): the earliest so far

    @property
    def last(self) -> int:
        """Steps to make: all, or as many as could still diverge earlier than a chain that has."""
        return self.end if self._diverged is None else min(self.end, self._diverged[0])

    def room(self) -> Any:
        """For one chain at a time."""
        return self.kernel.workspace(self.end - self.begin)

    def finish(self) -> tuple[State, Extension]:
        """What was kept on the way."""
        if self._diverged is not None:
            raise self.kernel.diverged(self._diverged[1], self._diverged[0])
        memory = _to_memory(self.new, self.recipe.remembers) if self.recipe.carries else {}
        spent = self.recipe.evaluations(np.r_[self.begin, self.kept, self.end])
        state = State(self.x, self.v, memory, self.end, float(spent[-1]))
        return state, Extension(self.draws, spent[1:-1].astype(float), int(spent[-1] - spent[0]) * len(self.x))

    def advance(self, room: Any, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """Chain by chain; one that diverges stops, and the others go on."""
        first, last = chains
        while True:
            reason, chain, reached = self.loop(room, (first, last), steps)
            if reason != layout.DIVERGED:
                return
            self._note(chain, reached)
            if (first := chain + 1) >= last:
                return

    def share_passes(self, threads: int, report: Report) -> bool:
        """Where rows are many, and passed over."""
        if self.kernel.passes_are_large:
            self._share_passes(threads, report)
        return self.kernel.passes_are_large

    def _share_passes(self, threads: int, report: Report) -> None:
        kernel, work = self.kernel, self.room()
        held, sharers = work.held, [own_room(work.sums) for _ in range(threads)]
        cuts = np.linspace(0, len(work.sums.partial), threads + 1).astype(int)
        with ThreadPoolExecutor(threads) as pool:

            def part(own: Any, low: int, high: int) -> None:
                passes.share_pass(kernel.model, held.at, low, high, own, held.memory, self.plan.remembers)

            def everyone() -> None:
                held.snapshot[:] = held.at
                list(pool.map(part, sharers, cuts[:-1], cuts[1:]))
                passes.join_shares(kernel.model, work.sums.partial, held.room, held.anchor)

            for chain in range(len(self.x)):
                self._run_chain(work, chain, everyone, report)

    def _run_chain(self, work: Any, chain: int, everyone: Callable[[], None], report: Report) -> None:
        step, passed, pace = self.begin, False, Pace()
        while step < self.last:
            piece = min(self.last, step + pace.steps)
            began = time.perf_counter()
            reason, _, reached = self.loop(work, (chain, chain + 1), (step, piece), passed, outside=True)
            pace.learn(reached - step, time.perf_counter() - began)
            passed = reason == layout.PASS_DUE
            report(reached - step)
            step = reached
            if reason == layout.PASS_DUE:
                everyone()
            elif reason == layout.DIVERGED:
                self._note(chain, reached)

    def loop(
        self, work: Any, chains: tuple[int, int], steps: tuple[int, int], passed: bool = False, outside: bool = False
    ) -> tuple[int, int, int]:
        """One call: why it ended, the chain that it ended with, and how many steps that has made."""
        k0, k1 = self.kernel.stream.keys(steps[0] >> 32)
        begins, ends = steps[0] == self.begin, steps[1] == self.end
        flags = layout.Flags(
            fresh=begins and self.fresh,
            load=begins and self.recipe.carries and not self.fresh,
            store=ends and self.recipe.carries,
            passed=passed,
            outside=outside,
        )
        result: tuple[int, int, int] = loop.advance(
            self.kernel.model, self.plan, self.kernel.table, *work, k0, k1, self.x, self.v, self.draws,
            self.old, self.new, chains, steps, flags,
        )  # fmt: skip
        return result

    def _note(self, chain: int, step: int) -> None:
        with self._lock:
            self._diverged = min(self._diverged or (step, chain), (step, chain))


def _from_memory(model: Any, memory: Memory) -> Any:
    """What chains carry, as the loop reads it."""
    empty = np.zeros((len(memory["anchor"]), 0), slope_kind(model))
    return layout.Memory(memory["snapshot"], memory["anchor"], memory.get("table", empty))


def _to_memory(kept: Any, remembers: bool) -> Memory:
    """What the loop wrote, by name."""
    table = {"table": kept.table} if remembers and kept.table.shape[1] else {}
    return {"snapshot": kept.snapshot, "anchor": kept.anchor, **table}
