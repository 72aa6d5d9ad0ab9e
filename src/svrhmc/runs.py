"""A run: chains from where they stand to an end, piece by piece where what they made is kept."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from svrhmc.checkpoint import Clock, Journal, is_checkpoint
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import nonnegative, requirement, whole
from svrhmc.core.memory import free_memory
from svrhmc.core.parts import is_part
from svrhmc.core.progress import Progress, compiling, finishing, reporter
from svrhmc.core.storage import Record
from svrhmc.engines.base import Chains, Keep, Report, State
from svrhmc.gradients import Memory
from svrhmc.trace import Trace

MOST_STEPS = 1 << 53  # of a chain: years of them
_STATES = 4  # of a chain that a sampler holds at least
_MEMORY = "memory "  # before the names of a memory's arrays in a record


class Begun(NamedTuple):
    """Chains at their start, and how their draws, of which the first has a number, become the user's."""

    chains: Chains
    out: Callable[[Array, int], Array]


@dataclass(frozen=True, eq=False)
class Order:
    """A run: of a sampler, on a target of n components, by some chains, to an end, and what is kept of it."""

    sampler: Any
    n: int
    seed: int
    chains: Indices
    end: int
    keep: Keep
    burn_in: int = 0


def carried_out(order: Order, begin: Callable[[], Begun], journal: Journal, progress: Progress) -> Trace:
    """Chains to their end, from where the journal left them; they begin once it is open."""
    report, finish = reporter(progress, order.end * len(order.chains))
    with journal, finishing(finish):
        chains, out = begin()
        if not is_whole(journal.get("state"), order.end):
            with compiling(progress):
                chains.compile()
        draws, spent, accepted, seconds = _driven(order, chains, out, journal, report)
    return Trace(
        draws=draws,
        passes=spent / order.n,
        gradient_evaluations=round(chains.state.spent),
        velocity=chains.state.v,
        seconds=seconds,
        sampler=order.sampler,
        seed=order.seed,
        chains=order.chains,
        engine=chains.engine,
        acceptance=None if accepted is None else accepted / (order.end - order.burn_in),
    )


def _driven(
    order: Order, chains: Chains, out: Callable[[Array, int], Array], journal: Journal, report: Report
) -> tuple[Array, Array, Indices | None, float]:
    """What was kept, (chains, draws, dim), what a chain had spent at each draw, acceptances after the burn-in, and
    seconds.
    """
    record, end = journal.get("state"), order.end
    seconds, accepted = 0.0, None
    if record is not None:
        chains.state = state_of(record, chains, end)
        seconds, accepted = record.value("seconds", nonnegative), accepted_of(record, len(order.chains))
        report(chains.state.step * len(chains.state.x))
    draws = journal.growing("draws", chains.state.x.shape, "state")
    spent = journal.growing("spent", (1,), "state")
    clock, made = Clock(), draws.array().shape[1]
    if record is not None and not made == spent.array().shape[1] == order.keep.count(chains.state.step):
        raise record.unusable(f"{made} draws are not those of {chains.state.step} steps")
    while (step := chains.state.step) < end:
        left = (order.burn_in if step < order.burn_in else end) - step
        began = time.perf_counter()
        extension = chains.extend(clock.piece(left) if journal.kept else left, order.keep, report)
        took = time.perf_counter() - began
        clock.learn(chains.state.step - step, took)
        seconds += took
        draws.append(out(extension.draws, made))
        made += extension.draws.shape[1]
        spent.append(extension.spent[None, :])
        if extension.accepted is not None and step >= order.burn_in:
            accepted = extension.accepted + (0 if accepted is None else accepted)
        if journal.kept and (clock.due() or chains.state.step == end):
            counts = {} if accepted is None else {"accepted": accepted}
            settings = order.sampler.settings() if is_part(order.sampler) else {}
            told = {"sampler": settings, "seed": order.seed, "engine": chains.engine, "n": order.n}
            said = {**told, **said_of(chains.state), "seconds": seconds}
            journal.put("state", said, {**arrays_of(chains.state), **counts, "chains": order.chains})
    return draws.array(), spent.array()[0], accepted, seconds


def require_room(name: str, draws: int, chains: int, dim: int, checkpoint: Any = None) -> None:
    """Refuse draws that this process, or with a checkpoint the disk, cannot hold, before anything is made for them."""
    there, states, wanted = max(free_memory(), 0.0), 8.0 * _STATES * chains * dim, 8.0 * draws * chains * dim
    given = f"{draws:,} draws of {chains:,} chains"
    if states + (wanted if checkpoint is None else 0) > there:
        raise requirement(
            name, f"such that the draws fit into memory, {there / 1e9:.3g} GB",
            f"{given}, {(states + wanted) / 1e9:.3g} GB",
            "thin them, keep only the last ones, or give a checkpoint, so that they are read from the disk",
        )  # fmt: skip
    if checkpoint is None or not isinstance(checkpoint, str | os.PathLike):
        return
    place = Path(checkpoint).absolute()
    folder = next((each for each in (place, *place.parents) if each.is_dir()), None)
    if folder is None or is_checkpoint(place):
        return
    disk = shutil.disk_usage(folder)
    if disk.total and wanted > disk.free:  # where there is no disk at all, the checkpoint says so
        raise requirement(
            name, f"such that the draws fit onto the disk of {folder}, {disk.free / 1e9:.3g} GB",
            f"{given}, {wanted / 1e9:.3g} GB", "thin them, or take another disk",
        )  # fmt: skip


def said_of(state: State) -> dict[str, Any]:
    """The numbers of a state."""
    return {"step": state.step, "spent": state.spent}


def arrays_of(state: State) -> dict[str, Any]:
    """The arrays of a state, by name."""
    return {"x": state.x, "v": state.v, **{f"{_MEMORY}{name}": array for name, array in state.memory.items()}}


def state_of(record: Record, chains: Chains, end: int = MOST_STEPS) -> State:
    """The state that a record holds, after at most `end` steps, with arrays such as these chains have."""
    shape, step = chains.state.x.shape, record.value("step", whole, 0, end)
    memory = memory_of(record, _MEMORY, chains) if step else {}
    return State(record.array("x", shape), record.array("v", shape), memory, step, record.value("spent", nonnegative))


def memory_of(record: Record, prefix: str, chains: Chains) -> Memory:
    """What these chains remember, by the names that begin so in a record."""
    known, count = chains.empty_memory(), len(chains.state.x)
    if known is None:
        known = {name.removeprefix(prefix): a[:0] for name, a in record.arrays.items() if name.startswith(prefix)}
    return {name: record.array(f"{prefix}{name}", (count, *a.shape[1:]), a.dtype) for name, a in known.items()}


def accepted_of(record: Record, chains: int) -> Indices | None:
    """The proposals that each chain accepted, where there are any."""
    return record.array("accepted", (chains,), np.int64) if "accepted" in record.arrays else None


def is_whole(record: Record | None, end: int) -> bool:
    """Whether a run is at its end."""
    return record is not None and record.value("step", whole, 0, end) >= end


def chain_list(chains: Indices) -> list[int] | str:
    """Chain numbers as settings say them."""
    return f"0 to {len(chains) - 1}" if np.array_equal(chains, np.arange(len(chains))) else chains.tolist()
