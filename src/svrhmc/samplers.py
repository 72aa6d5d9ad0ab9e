"""A sampler is dynamics × gradient; the known algorithms are cells of that grid.

|                 | Full  | Minibatch | SVRG          | SAGA        | ControlVariate |
|-----------------|-------|-----------|---------------|-------------|----------------|
| Overdamped      | `lmc` | `sgld`    | `vr_sgld`     | `saga_ld`   | `sgld_cv`      |
| Underdamped     | `hmc` | `sg_hmc`  | **`svr_hmc`** | `saga_hmc`  | `cv_hmc`       |
| UBU             |       |           | `svrg_ubu`    | `saga_ubu`  |                |

A run of any sampler goes from where its chains stand to an end, piece by piece where what they made is kept
(`carried_out`).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from svrhmc import engines
from svrhmc.checkpoint import Checkpoint, Clock, InMemory, Journal, is_checkpoint
from svrhmc.core.arrays import Array, Indices, Values, cores, digest
from svrhmc.core.errors import nonnegative, one_of, positive, real_array, requirement, whole_number
from svrhmc.core.machine import free_memory
from svrhmc.core.progress import Progress, compilation_stage, reporter
from svrhmc.core.serialise import is_part, part, stable_repr, to_settings
from svrhmc.core.storage import Record
from svrhmc.core.version import VERSION
from svrhmc.density.base import FiniteSum, require_target
from svrhmc.dynamics import UBU, Dynamics, Overdamped, Scheme, Underdamped, require_dynamics
from svrhmc.engines import Chains, Grid, Keep, Setup, State
from svrhmc.engines.base import Report
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Gradient, Memory, Minibatch, require_gradient
from svrhmc.trace import Trace

MOST_STEPS = 1 << 53  # of a chain: years of them
_NEGLIGIBLE = 1 << 20  # bytes, of which nobody asks whether there is room for them
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
    names: tuple[str, ...] = ()


def carried_out(order: Order, begin: Callable[[], Begun], journal: Journal, progress: Progress) -> Trace:
    """Chains to their end, from where the journal left them; they begin once it is open."""
    report, finish = reporter(progress, order.end * len(order.chains))
    with journal, ExitStack() as cleanup:
        cleanup.callback(finish)
        chains, out = begin()
        if not is_whole(journal.get("state"), order.end):
            with compilation_stage(progress):
                chains.compile()
        draws, spent, accepted, seconds = _run_chains(order, chains, out, journal, report)
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
        names=order.names,
    )


def _run_chains(
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
    clock, count = Clock(), draws.array().shape[1]
    if record is not None and not count == spent.array().shape[1] == order.keep.count(chains.state.step):
        raise record.unusable(f"{count} draws are not those of {chains.state.step} steps")
    while (step := chains.state.step) < end:
        left = (order.burn_in if step < order.burn_in else end) - step
        began = time.perf_counter()
        extension = chains.extend(clock.piece(left) if journal.kept else left, order.keep, report)
        took = time.perf_counter() - began
        clock.learn(chains.state.step - step, took)
        seconds += took
        draws.append(out(extension.draws, count))
        count += extension.draws.shape[1]
        spent.append(extension.spent[None, :])
        if extension.accepted is not None and step >= order.burn_in:
            accepted = extension.accepted + (0 if accepted is None else accepted)
        if journal.kept and (clock.due() or chains.state.step == end):
            counts = {} if accepted is None else {"accepted": accepted}
            sampler = order.sampler.settings() if is_part(order.sampler) else {}
            settings = {"sampler": sampler, "seed": order.seed, "engine": chains.engine, "n": order.n}
            settings |= {**said_of(chains.state), "seconds": seconds}
            journal.put("state", settings, {**arrays_of(chains.state), **counts, "chains": order.chains})
    return draws.array(), spent.array()[0], accepted, seconds


def require_room(name: str, draws: int, chains: int, dim: int, checkpoint: object = None) -> None:
    """Refuse draws that this process, or with a checkpoint the disk, cannot hold, before anything is made for them."""
    states_bytes, draws_bytes = 8.0 * _STATES * chains * dim, 8.0 * draws * chains * dim
    if states_bytes + draws_bytes < _NEGLIGIBLE:
        return
    available = max(free_memory(), 0.0)
    request = f"{draws:,} draws of {chains:,} chains"
    if states_bytes + (draws_bytes if checkpoint is None else 0) > available:
        raise requirement(
            name, f"such that the draws fit into memory, {available / 1e9:.3g} GB",
            f"{request}, {(states_bytes + draws_bytes) / 1e9:.3g} GB",
            "thin them, keep only the last ones, or give a checkpoint, so that they are read from the disk",
        )  # fmt: skip
    if checkpoint is None or not isinstance(checkpoint, str | os.PathLike):
        return
    place = Path(checkpoint).absolute()
    folder = next((parent for parent in (place, *place.parents) if parent.is_dir()), None)
    if folder is None or is_checkpoint(place):
        return
    disk = shutil.disk_usage(folder)
    if disk.total and draws_bytes > disk.free:  # where there is no disk at all, the checkpoint says so
        raise requirement(
            name, f"such that the draws fit onto the disk of {folder}, {disk.free / 1e9:.3g} GB",
            f"{request}, {draws_bytes / 1e9:.3g} GB", "thin them, or take another disk",
        )  # fmt: skip


def said_of(state: State) -> dict[str, object]:
    """The numbers of a state."""
    return {"step": state.step, "spent": state.spent}


def arrays_of(state: State) -> dict[str, Values]:
    """The arrays of a state, by name."""
    return {"x": state.x, "v": state.v, **{f"{_MEMORY}{name}": array for name, array in state.memory.items()}}


def state_of(record: Record, chains: Chains, end: int = MOST_STEPS) -> State:
    """The state that a record holds, after at most `end` steps, with arrays such as these chains have."""
    shape, step = chains.state.x.shape, record.value("step", whole_number, 0, end)
    memory = memory_of(record, _MEMORY, chains) if step else {}
    return State(record.array("x", shape), record.array("v", shape), memory, step, record.value("spent", nonnegative))


def memory_of(record: Record, prefix: str, chains: Chains) -> Memory:
    """What these chains remember, by the names that begin so in a record."""
    empty: Mapping[str, Values] | None = chains.empty_memory()
    count = len(chains.state.x)
    if empty is None:
        empty = {name.removeprefix(prefix): a[:0] for name, a in record.arrays.items() if name.startswith(prefix)}
    memory = {name: record.array(f"{prefix}{name}", (count, *a.shape[1:]), a.dtype) for name, a in empty.items()}
    return cast(Memory, memory)


def accepted_of(record: Record, chains: int) -> Indices | None:
    """The proposals that each chain accepted, where there are any."""
    return record.array("accepted", (chains,), np.int64) if "accepted" in record.arrays else None


def is_whole(record: Record | None, end: int) -> bool:
    """Whether a run is at its end."""
    return record is not None and record.value("step", whole_number, 0, end) >= end


def chain_list(chains: Indices) -> list[int] | str:
    """Chain numbers as settings say them."""
    return f"0 to {len(chains) - 1}" if np.array_equal(chains, np.arange(len(chains))) else chains.tolist()


@part
@dataclass(frozen=True)
class Sampler:
    """A sampler: a dynamics, which says how the state moves, with a gradient, which says which rows are read.

    >>> from svrhmc import dynamics, gradients
    >>> Sampler(dynamics.Underdamped(0.01), gradients.SVRG()) == svr_hmc(step_size=0.01)
    True
    """

    dynamics: Dynamics
    gradient: Gradient
    gradients_come_free: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_dynamics(self.dynamics)
        require_gradient(self.gradient)

    @property
    def invariant(self) -> bool:
        """Whether the sampler has exactly π as its distribution: always False here, since it is only close to π.

        `sample` asks this of every sampler that it is given. As it reports and judges e^{−f}, any temperature but 1 is
        an error.
        """
        if self.dynamics.temperature != 1:
            needs = "1 for the posterior, which is e^(-f)"
            raise requirement("temperature", needs, self.dynamics.temperature, "Sampler.run samples e^(-f/temperature)")
        return False

    @property
    def method(self) -> str:
        """The name that `sample` uses for it: that of the dynamics."""
        return type(self.dynamics).__name__.lower()

    def run(
        self,
        target: FiniteSum,
        steps: int | None = None,
        *,
        passes: float | None = None,
        chains: int | Sequence[int] = 4,
        seed: int = 0,
        start: str | npt.ArrayLike | None = None,
        burn_in: int = 0,
        thin: int = 1,
        keep: str = "all",
        engine: str = "auto",
        threads: int | None = None,
        devices: object = None,
        progress: Progress = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Trace:
        """Sample from π ∝ exp(−f), or from exp(−f/T) at the `temperature` T of the dynamics.

        target: what to sample.
        steps: the number of steps of each chain, including burn-in.
        passes: instead of `steps`: make as many steps as this many passes over the data allow, including snapshots.
        chains: how many chains, or which ones: `range(4, 8)` runs chains 4 to 7 exactly as `chains=8` would.
        seed: fixes every draw.
        start: None (the origin, as in the paper), "mode", or an array of shape (dim,) or (chains, dim). Velocities
            start at 0.
        burn_in, thin: drop the first `burn_in` states, then keep every `thin`-th.
        keep: "all", or "last" to keep only the final state.
        engine: "auto" (compiled if possible), "numba", "jax" (on the CPU or GPU that JAX finds) or "reference".
        threads: threads of "numba"; None for every core. The draws do not depend on it.
        devices: of "jax": None for JAX's default device; "all" to share out rows or chains over all devices of this
            host, "gpu" or "cpu" over all of that kind; or a list of devices. The draws are the same, to rounding. (A
            model of functions has its own: `targets.model(…, devices=…)`.)
        progress: True or False to show a line of progress or not, None to show it on a terminal only, or a function
            that is called with (done, total) in chain steps.
        checkpoint: a folder in which to store the state and the draws during the run. After an interruption the same
            call continues from there, with the same draws as without it; after the end it returns them at once. The
            draws are then read from the folder as they are needed, so they may be larger than memory.

        >>> from svrhmc.targets import synthetic
        >>> trace = svr_hmc(step_size=0.1).run(synthetic(n=50, dim=2), steps=100, chains=3, thin=10)
        >>> trace.draws.shape
        (3, 10, 2)
        """
        require_target(target)
        seed = whole_number("seed", seed, 0, (1 << 64) - 1)
        numbers = chain_numbers(chains)
        if (steps is None) == (passes is None):
            raise requirement("steps and passes", "given one at a time", f"steps={steps}, passes={passes}")
        length = self.steps_for(target, passes) if passes is not None else whole_number("steps", steps, 1, MOST_STEPS)
        keep_rule = _states_to_keep(length, burn_in, thin, keep)
        require_room("steps", keep_rule.count(length), len(numbers), target.dim, checkpoint)
        self.dynamics.check_stable(target)
        target.require_decided()
        initial = _initial_states(start, target, len(numbers))
        setup = self.setup(target, seed, numbers, cores() if threads is None else whole_number("threads", threads, 1))
        setup = replace(setup, devices=devices)
        name = engines.choose(engine, setup).name
        journal: Journal = InMemory()
        if checkpoint is not None:
            first = start if start is None or isinstance(start, str) else digest(initial)
            run_settings = {"steps": length, "burn_in": int(burn_in), "thin": int(thin), "keep": keep, "start": first}
            journal = Checkpoint(checkpoint, self._identity(target, seed, numbers, name) | run_settings)

        def begin() -> Begun:
            settled, states = _recorded_start(journal, setup, initial)
            return Begun(engines.chains(name, settled, State(states, np.zeros_like(states))), target.out)

        return carried_out(
            Order(self, target.n, seed, numbers, length, keep_rule, names=target.names), begin, journal, progress
        )

    def setup(self, target: FiniteSum, seed: int, chains: Indices, threads: int) -> Setup:
        """The sampler on a target as plain data, which engines read."""
        scheme, recipe = self.dynamics.scheme_on(target), self.gradient.recipe(target).check()
        return Setup(target, Grid(scheme, recipe, self.dynamics.step_size), seed, chains, threads)

    def chains(
        self, target: Any, seed: int, chains: Indices, threads: int, start: Array | None = None, engine: str = "auto"
    ) -> engines.Chains:
        """Chains that can be continued. They start at the origin of the target's variables unless a start is given."""
        self.dynamics.check_stable(target)
        states = np.zeros((len(chains), target.dim)) if start is None else start
        return engines.chains(engine, self.setup(target, seed, chains, threads), State(states, np.zeros_like(states)))

    def settings(self) -> dict[str, object]:
        """Its parts as plain data, for a file."""
        return {"dynamics": to_settings(self.dynamics), "gradient": to_settings(self.gradient)}

    def _identity(self, target: FiniteSum, seed: int, chains: Indices, engine: str) -> dict[str, object]:
        """What decides the numbers of a run, but for its length."""
        return {
            "call": "Sampler.run",
            "version": VERSION,
            "sampler": stable_repr(self),
            **target.identity(),
            "seed": seed,
            "chains": chain_list(chains),
            "engine": engine,
        }

    def steps_for(self, target: FiniteSum, passes: float) -> int:
        """How many steps this many passes over the data allow, including snapshots; at least one."""
        budget = positive("passes", passes) * target.n * (1 + 1e-12)  # 0.29·100 is 28.999… in floating point
        recipe = self.gradient.recipe(target)
        affordable = recipe.steps_within(budget, MOST_STEPS + 1)
        if affordable > MOST_STEPS:
            raise requirement("passes", f"so many that at most {MOST_STEPS} steps are made", passes)
        if affordable == 0:
            least = recipe.evaluations(1) / target.n
            raise requirement("passes", f"at least {least:g}", passes, "that is what the first step costs")
        return affordable


def lmc(step_size: float) -> Sampler:
    """Langevin Monte Carlo: Overdamped × Full (paper eq. 2; Dalalyan 2017).

    >>> print(lmc(0.1))
    Sampler(dynamics=Overdamped(step_size=0.1, temperature=1.0), gradient=Full())
    """
    return Sampler(Overdamped(step_size), Full())


def sgld(step_size: float, batch_size: int = 1, replacement: bool = True) -> Sampler:
    """Stochastic gradient Langevin dynamics: Overdamped × Minibatch (Welling & Teh 2011)."""
    return Sampler(Overdamped(step_size), Minibatch(batch_size, replacement))


def vr_sgld(
    step_size: float,
    batch_size: int = 1,
    epoch_length: int | None = None,
    replacement: bool = True,
    snapshot_size: int | None = None,
) -> Sampler:
    """Variance-reduced SGLD: Overdamped × SVRG (Dubey et al. 2016)."""
    return Sampler(Overdamped(step_size), SVRG(batch_size, epoch_length, replacement, snapshot_size))


def hmc(step_size: float, friction: float = 2.0, inverse_mass: float | None = None) -> Sampler:
    """The paper's HMC: Underdamped × Full, that is underdamped Langevin with no Metropolis step (Cheng et al. 2018)."""
    return Sampler(Underdamped(step_size, friction, inverse_mass), Full())


def sg_hmc(
    step_size: float,
    friction: float = 2.0,
    inverse_mass: float | None = None,
    batch_size: int = 1,
    replacement: bool = True,
) -> Sampler:
    """The paper's SG-HMC: Underdamped × Minibatch (Cheng et al. 2018)."""
    return Sampler(Underdamped(step_size, friction, inverse_mass), Minibatch(batch_size, replacement))


def svr_hmc(
    step_size: float,
    friction: float = 2.0,
    inverse_mass: float | None = None,
    batch_size: int = 1,
    epoch_length: int | None = None,
    replacement: bool = True,
    snapshot_size: int | None = None,
) -> Sampler:
    """SVR-HMC: Underdamped × SVRG (Zou, Xu & Gu 2018, Algorithm 1, with its indices corrected)."""
    return Sampler(
        Underdamped(step_size, friction, inverse_mass),
        SVRG(batch_size, epoch_length, replacement, snapshot_size),
    )


def svrg_ubu(
    step_size: float,
    friction: float = 2.0,
    inverse_mass: float | None = None,
    batch_size: int = 1,
    epoch_length: int | None = None,
    replacement: bool = True,
) -> Sampler:
    """UBU × SVRG: the paper's gradient with a second-order integrator (Lu, Ye & Zhou 2025)."""
    return Sampler(UBU(step_size, friction, inverse_mass), SVRG(batch_size, epoch_length, replacement))


def sgld_cv(step_size: float, batch_size: int = 1, replacement: bool = True) -> Sampler:
    """SGLD with control variates at the mode: Overdamped × ControlVariate (Baker et al. 2019)."""
    return Sampler(Overdamped(step_size), ControlVariate(batch_size, replacement))


def cv_hmc(
    step_size: float,
    friction: float = 2.0,
    inverse_mass: float | None = None,
    batch_size: int = 1,
    replacement: bool = True,
) -> Sampler:
    """CV-ULD with the paper's integrator: Underdamped × ControlVariate (Chatterji et al. 2018)."""
    return Sampler(Underdamped(step_size, friction, inverse_mass), ControlVariate(batch_size, replacement))


def saga_ld(step_size: float, batch_size: int = 1, replacement: bool = True) -> Sampler:
    """SAGA-LD: Overdamped × SAGA (Dubey et al. 2016)."""
    return Sampler(Overdamped(step_size), SAGA(batch_size, replacement))


def saga_hmc(
    step_size: float,
    friction: float = 2.0,
    inverse_mass: float | None = None,
    batch_size: int = 1,
    replacement: bool = True,
) -> Sampler:
    """SAGA-HMC with the paper's integrator: Underdamped × SAGA (after Li et al. 2019)."""
    return Sampler(Underdamped(step_size, friction, inverse_mass), SAGA(batch_size, replacement))


def saga_ubu(
    step_size: float,
    friction: float = 2.0,
    inverse_mass: float | None = None,
    batch_size: int = 1,
    replacement: bool = True,
) -> Sampler:
    """SAGA-UBU: UBU × SAGA (Lu, Ye & Zhou 2025)."""
    return Sampler(UBU(step_size, friction, inverse_mass), SAGA(batch_size, replacement))


METHODS: dict[str, Callable[..., Sampler]] = {
    "lmc": lmc, "sgld": sgld, "vr-sgld": vr_sgld, "hmc": hmc, "sg-hmc": sg_hmc, "svr-hmc": svr_hmc,
}  # fmt: skip
LABELS = {name: name.upper() for name in METHODS}  # as the paper writes them


def chain_numbers(chains: int | Sequence[int]) -> Indices:
    """The numbers of the chains, from how many there are or from a list."""
    if isinstance(chains, int | np.integer):
        require_room("chains", 1, whole_number("chains", chains, 1, 1 << 31), 1)
        return np.arange(chains)
    items = list(chains) if hasattr(chains, "__iter__") else []
    numbers = [whole_number("chains", chain, 0, (1 << 32) - 1) for chain in items]
    if not numbers or len(set(numbers)) != len(numbers):
        raise requirement("chains", "a number of chains or a list of distinct chain numbers", repr(chains))
    return np.array(numbers, np.int64)


def _states_to_keep(steps: int, burn_in: int, thin: int, keep: str) -> Keep:
    one_of("keep", keep, ("all", "last"))
    burn_in = whole_number("burn_in", burn_in, 0, steps - 1, f"the run has {steps} steps")
    thin = whole_number("thin", thin, 1, steps - burn_in, f"{steps - burn_in} steps follow the burn-in")
    return Keep(steps, steps) if keep == "last" else Keep(burn_in + thin, thin)


def _recorded_start(journal: Journal, setup: Setup, start: Array) -> tuple[Setup, Array]:
    """What a run begins with, from a journal where it was kept: the sixteen numbers, the states, the mode.

    Their last digits may depend on the machine and on the threads of its linear algebra; so they are found once.
    """
    target, grid = setup.target, setup.sampler
    if not journal.kept:
        return setup, start

    def make() -> Record:
        mode = {"mode": target.mode()} if grid.recipe.reference == "mode" else {}
        return Record({"scheme": grid.scheme.numbers()}, {"start": start, **mode})

    record = journal.once("start", make)
    if grid.recipe.reference == "mode":
        target.recall_mode(record.array("mode", (target.dim,)))
    scheme = record.value("scheme", lambda _, numbers: Scheme.of(numbers))
    return replace(setup, sampler=replace(grid, scheme=scheme)), record.array("start", start.shape)


def _initial_states(start: str | npt.ArrayLike | None, target: FiniteSum, chains: int) -> Array:
    if start is None:
        return np.zeros((chains, target.dim))
    if isinstance(start, str):
        one_of("start", start, ("mode",))
        return np.tile(target.mode(), (chains, 1))
    shape = (target.dim,) if np.ndim(start) == 1 else (chains, target.dim)
    states = np.array(np.broadcast_to(real_array("start", start, shape), (chains, target.dim)), np.float64)
    return target.into(states)
