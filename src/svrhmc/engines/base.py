"""What an engine is: chains of one sampler on one target, their state, and the one way they move.

Everything a chain carries is its `State`. It goes into a run and comes out of it, so that a run can be cut anywhere, by
pieces, by a budget or by a kill, and go on with no bit changed: `Chains.extend` is the only way to make steps.

Engines are known by their names, and `choose` alone decides which of them runs a sampler on a target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import signature
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import UndefinedDensityError, one_of, requirement
from svrhmc.core.randomness import Stream
from svrhmc.gradients import Memory
from svrhmc.rows.forms import Form, RowsForm, rows_of

Report = Callable[[int], None]  # is told of chain steps made, all chains together
NEARBY = 1e4  # |z|²/dim up to which f has to be a number; a trajectory that is thrown further may overflow
ENERGY_LIMIT = (
    100.0  # above the energy that it began with, from which a trajectory is thrown out, and refused whatever f is
)
PIECE_SECONDS = 0.1  # between two looks at the clock, at an interrupt and at who is told
STEPS_PER_KEY = 1 << 32  # steps after which the keys of chains change


class Pace:
    """How many chain steps a piece of a tenth of a second has, learnt from the pieces so far."""

    def __init__(self) -> None:
        self.steps = 64

    def learn(self, steps: int, seconds: float) -> None:
        """So many chain steps took so long; a call that only asked for a pass over the rows made none."""
        if steps:
            steps_per_piece = steps * PIECE_SECONDS / max(seconds, 1e-9)
            self.steps = int(min(max(steps_per_piece, 1), 8 * self.steps, 1 << 40))


def no_report(amount: int) -> None:
    """A report of progress that nobody hears."""


def require_defined(chains: Indices, step: int, z: Array, f: Array, rise: Array | float = 0.0) -> None:
    """Refuse f that is not a number at a state near the posterior; ∞ is the energy of a density of 0.

    rise: of the total energy of each trajectory, when it was last kicked on the way to z. A kick by a steep slope that
    adds 100 or more throws it to where there is nothing of the posterior, and it is refused whatever f is there.
    """
    lost = np.isnan(f) & ((z * z).sum(axis=1) <= NEARBY * z.shape[1]) & (rise <= ENERGY_LIMIT)
    if lost.any():
        raise UndefinedDensityError(int(chains[int(np.argmax(lost))]), step)


@dataclass(frozen=True, eq=False)
class State:
    """The state of some chains after some steps.

    x, v: positions and velocities, arrays (chains, dim).
    memory: what the gradient remembers, arrays by name.
    step: the number of steps made.
    spent: component gradients that a chain has evaluated so far, on average over the chains.
    """

    x: Array
    v: Array
    memory: Memory = field(default_factory=dict)
    step: int = 0
    spent: float = 0.0


@dataclass(frozen=True)
class Keep:
    """Which states are kept: those after `first` steps, first + thin, first + 2·thin, …, counted from the start."""

    first: int = 1
    thin: int = 1

    def count(self, end: int) -> int:
        """How many are kept of a run of so many steps."""
        return max(0, (end - self.first) // self.thin + 1)

    def within(self, begin: int, end: int) -> Indices:
        """Steps made at each state kept, of those after more than `begin` and at most `end` steps."""
        skipped = max(0, -(-(begin + 1 - self.first) // self.thin))
        return np.arange(self.first + skipped * self.thin, end + 1, self.thin)


EVERY, NONE = Keep(), Keep(1 << 62)


@dataclass(frozen=True, eq=False)
class Extension:
    """Some more steps of each chain.

    draws: an array (chains, kept, dim), in the variables of the target.
    spent: an array (kept,): component gradients that a chain had evaluated from its start to each draw, on average.
    evaluations: component gradients that all chains together evaluated in these steps.
    gradients: ∇f at the draws, if it came at no extra cost.
    accepted: how many proposals each chain accepted, if there are proposals.
    counts: component gradients by chain and step, if their number is random.
    """

    draws: Array
    spent: Array
    evaluations: int
    gradients: Array | None = None
    accepted: Indices | None = None
    counts: Indices | None = None


def concatenate_extensions(parts: list[Extension]) -> Extension:
    """Extensions one after another, as one."""
    if len(parts) == 1:
        return parts[0]

    def joined(name: str, axis: int = 1, join: Callable[..., Values] = np.concatenate) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else join(arrays, axis)

    return Extension(
        draws=joined("draws"),
        spent=joined("spent", 0),
        evaluations=sum(part.evaluations for part in parts),
        gradients=joined("gradients"),
        accepted=joined("accepted", 0, np.sum),
        counts=joined("counts"),
    )


class Chains(ABC):
    """Some chains that can be continued from where they stopped.

    What a chain does depends neither on the threads, nor on the other chains, nor on how the run is divided into calls.
    After an error or an interruption all chains are where the last complete call left them.
    """

    engine: str
    state: State

    @abstractmethod
    def extend(self, count: int, keep: Keep = EVERY, report: Report = no_report) -> Extension:
        """Make `count` more steps of each chain."""

    def compile(self) -> None:
        """Compile or load what `extend` needs, so that this is not part of its time."""
        return

    def empty_memory(self) -> Memory | None:
        """The memory that a state has after a step, of no chains: names, types and shapes by which a state from a file
        is checked. None where an engine does not say.
        """
        return None


@runtime_checkable
class Density(Protocol):
    """All that split HMC asks of a density ∝ e^{−f(z)} in the variables z of its chains, on the reference engine.

    It may have `forces` besides, ∇f alone, where that takes less than f and ∇f; and `randomness`, which makes the
    random stream of its chains from the seed and their numbers.

    n: component gradients that count as one evaluation of ∇f. energies: f and ∇f at many states, (chains, dim) →
    (chains,) and (chains, dim); where x = T(z), f(z) = −log π(T(z)) − log |det T′(z)|. out: x of z, of states or draws
    (chains, draws, dim), `first` being the number of the first draw.
    """

    n: int
    dim: int

    def energies(self, z: Array, /) -> tuple[Array, Array]:
        """f and ∇f."""

    def out(self, state: Array, first: int = 0) -> Array:
        """x of z."""


class SamplerData(Protocol):
    """A sampler as engines read it: plain data of a kind, of which an engine says whether it runs it.

    kind: "grid" (`svrhmc.engines.Grid`), "split" or "subsampled" (`svrhmc.exact`), "jumps" (`svrhmc.exact.jumps`).
    defined: whether it has a definition in NumPy, for the reference engine.
    in_numpy: when the reference engine, which compiles nothing, is to run it: "never", on "small" problems (and where
        rows are not in memory), or "always". Another engine may be asked for by its name.
    """

    kind: ClassVar[str]
    defined: ClassVar[bool]
    in_numpy: ClassVar[str]

    def kernel(self, setup: Setup) -> Kernel:
        """Its definition in NumPy."""

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """Component gradients that a chain in this state has evaluated, on a target of n of them, from its start to
        after each of some steps, the first of which is that of the state; asked for where their number is not random.
        """


@dataclass(frozen=True, eq=False)
class Setup:
    """A sampler on a target, as plain data, with every choice made and checked.

    target: a `svrhmc.density.base.FiniteSum`, or a `Density` where the sampler asks for no more.
    threads, devices: for engines that have them; draws do not depend on them.
    randomness: makes the random stream of some chains from the seed and their numbers.
    """

    target: Any
    sampler: Any
    seed: int
    chains: Indices
    threads: int = 1
    devices: object = None
    randomness: Callable[[int, Indices], Stream] = Stream

    def stream(self, chains: Indices) -> Stream:
        """The random numbers of some of the chains."""
        return self.randomness(self.seed, chains)

    @property
    def form(self) -> Any:
        """What the target is made of."""
        return form_of(self.target)


def form_of(density: object) -> Any:
    """What a target is made of; None where it does not say, as a density from outside need not."""
    form = getattr(density, "form", None)
    return None if form is None else form()


class StepResult(NamedTuple):
    """Where chains are after a step: x, v and what they remember, as in a `State`.

    memory: is asked for at the end of a call alone. gradient: ∇f at x, where it is known. accepted: whether each chain
    accepted its proposal, where there is one.
    """

    x: Array
    v: Array
    memory: Callable[[], Memory]
    gradient: Array | None = None
    accepted: npt.NDArray[np.bool_] | bool = False


class Kernel(ABC):
    """A sampler on a target in NumPy: how some chains begin, and how they make a step."""

    gradients: ClassVar[bool] = False  # whether a place has ∇f
    proposes: ClassVar[bool] = False  # whether there are proposals, which may be refused

    @abstractmethod
    def walk(self, chains: Indices, state: State, end: int) -> Iterator[StepResult]:
        """Where the chains of these numbers are after each step, from their state to the end."""

    @abstractmethod
    def empty_memory(self, state: State) -> Memory:
        """Arrays of the right sizes, for the memory of a state, as `Chains.empty_memory` has them."""

    def warm(self, state: State) -> None:
        """Compile what an evaluation of the target needs, where it needs anything."""
        return

    def until(self, step: int, end: int) -> int:
        """Up to which step, at most `end`, all is at hand that chains at a step need; it is fetched first."""
        return end

    def blocks(self, chains: int) -> list[slice]:
        """Chains that are run together."""
        return [slice(0, chains)]


def spent_by_passes(state: State, steps: Indices, n: int, passes: Callable[[Indices], Indices]) -> Array:
    """`SamplerData.spent` where f and ∇f at the start are remembered, and each draw, by its number from 1 on, takes
    some passes over the components.
    """
    passes_made = np.concatenate([[0], np.cumsum(passes(state.step + 1 + np.arange(steps[-1] - state.step)))])
    first = np.where(steps > state.step, 0 if state.memory else 1, 0)
    return np.asarray(state.spent + float(n) * (first + passes_made[steps - state.step]), np.float64)


Reasons = dict[str, Callable[..., str | None]]  # by kind: why it is not run, if so


class Engine(ABC):
    """Runs samplers, of the grid and exact ones alike.

    has_devices: whether it can be told on which devices to run.
    block: the states at which many estimates are made at a time, where a program is compiled for each number of them,
        and rounds as that number has it; None where estimates at a state do not depend on the others.
    """

    name: str
    has_devices: ClassVar[bool] = False
    block: ClassVar[int | None] = None

    @abstractmethod
    def supports(self, sampler: object, density: object) -> str | None:
        """None where the engine runs such a sampler (`SamplerData`) on such a target, else the reason why not."""

    def lacks(self, sampler: SamplerData, density: object, reasons: dict[str, Reasons]) -> str | None:
        """What `supports` answers for an engine that runs these kinds of sampler, each on these kinds of form."""
        if sampler.kind not in reasons:
            return f"it does not have the steps of {type(sampler).__name__}"
        form, forms = form_of(density), reasons[sampler.kind]
        if form is None or form.kind not in forms:
            kind = "methods" if form is None else form.kind
            return f"it runs {', '.join(forms)} forms, and this target is known by its {kind} alone"
        return forms[form.kind](sampler, form)

    def lacks_rows(self, form: RowsForm, stored: Collection[str], maps: Collection[str]) -> str | None:
        """Why rows with a linear predictor are not run, by an engine with these storages and whitenings, and with
        priors of single coordinates.
        """
        if form.loss.kernel is None:
            return f"it does not have the loss {form.loss}"
        if form.terms is not None:
            return f"it does not have the terms {list(form.terms.terms)} of the prior"
        if not form.rows.in_memory:
            return "the rows are not in memory"
        if form.rows.storage not in stored:
            return f"it does not have {form.rows.storage} rows"
        if form.whitening is not None and form.whitening.kind not in maps:
            return f"it does not have a {form.whitening.kind} whitening"
        return None

    def lacks_order(self, sampler: Any, form: RowsForm) -> str | None:
        """Why rows are not run to the order of a sampler of the grid."""
        if sampler.recipe.order == 2 and form.whitening is not None and not form.whitening.identity_hessian:
            return "second order is for the target's own variables and those of a dense whitening"
        return None

    def check(self, setup: Setup) -> None:
        """Refuse, with an error that says why, what is found out before anything is made."""
        return

    @abstractmethod
    def chains(self, setup: Setup, state: State) -> Chains:
        """Chains in this state."""

    def estimates(self, setup: Setup, states: Array, step: int) -> Array:
        """Of a sampler of the grid: the recipe's estimate of ∇f at each state, as that chain would make it at that
        step. In NumPy unless an engine has a better way: a few thousand estimates take a tenth of a second, and
        compiling a loop for them took 4 to 10 seconds.
        """
        estimates: Array = setup.sampler.kernel(setup).estimates(states, step)
        return estimates


# Where each is: compiled code is not loaded before it is used. "auto" takes the first that can, after the one that is
# preferred.
_ENGINES = {
    "numba": ("svrhmc.engines.compiled", "Compiled"),
    "reference": ("svrhmc.engines.reference", "Reference"),
    "jax": ("svrhmc.engines.jax", "OnJax"),
}
_LOADED: dict[str, Engine] = {}


def names() -> tuple[str, ...]:
    """The names of all engines."""
    return tuple({**_ENGINES, **_LOADED})


def register(engine: Engine) -> None:
    """Add an engine of your own, which can then be chosen by its name.

    With engine="auto" it is tried after the built-in ones.
    """
    if not isinstance(engine, Engine):
        raise requirement("engine", "an svrhmc.engines.Engine", repr(engine))
    if "recipe" in signature(engine.supports).parameters:
        why = 'the form is density.form(), and the recipe is sampler.recipe where sampler.kind is "grid"'
        raise requirement("engine", "one with supports(sampler, density)", "supports(form, recipe)", why)
    _LOADED[engine.name] = engine


def load(name: str) -> Engine:
    """The engine of this name."""
    if name not in _LOADED:
        module, kind = _ENGINES[name]
        _LOADED[name] = getattr(import_module(module), kind)()
    return _LOADED[name]


def choose(name: str, setup: Setup) -> Engine:
    """The engine of this name; for "auto", the first one that supports this sampler on this target.

    That is a function of the kind of sampler, of the size of the problem and of where its rows are, and of nothing
    else: a seed fixes the draws, and their trace says which engine made them.
    """
    one_of("engine", name, ("auto", *names()))
    own, reasons = _preferred(setup), {}
    for candidate in sorted(names(), key=lambda candidate: candidate != own) if name == "auto" else (name,):
        reason = _why_unsupported(load(candidate), setup)
        if reason is None:
            load(candidate).check(setup)
            return load(candidate)
        reasons[candidate] = reason
    if name == "auto":
        why = "; ".join(f"{candidate}: {reason}" for candidate, reason in reasons.items())
        raise requirement("sampler", "one that some engine runs on this target", repr(setup.sampler), why)
    alternatives = [
        candidate for candidate in names() if candidate != name and _why_unsupported(load(candidate), setup) is None
    ]
    allowed = " or ".join(map(repr, ["auto", *alternatives])) + " for this target and sampler"
    raise requirement("engine", allowed, repr(name), reasons[name])


def _preferred(setup: Setup) -> str | None:
    """The engine that is asked first: NumPy where rows are few or elsewhere, and the sampler needs no more; JAX for its
    functions.
    """
    form, when = setup.form, setup.sampler.in_numpy
    if when == "always" or (when == "small" and _is_small(form)):
        return "reference"
    return getattr(form, "engine", None)


def _is_small(form: Form | None) -> bool:
    """Whether a target has few rows in memory, or none there."""
    rows = rows_of(form)
    return form is None or (rows is not None and (rows.is_small or not rows.rows.in_memory))


def _why_unsupported(engine: Engine, setup: Setup) -> str | None:
    """Why an engine does not run this; None where it does."""
    if setup.devices is not None and not engine.has_devices:
        return "it runs on the cores of the host alone, and devices are given"
    return engine.supports(setup.sampler, setup.target)


def chains(name: str, setup: Setup, state: State) -> Chains:
    """Chains of the engine named."""
    return choose(name, setup).chains(setup, state)


def estimates(setup: Setup, states: Array, step: int) -> Array:
    """The recipe's estimate of ∇f at each state, as that chain of the setup would make it at that step: the same to the
    bit however many states are divided into calls.
    """
    rows = rows_of(setup.form)
    engine = choose("reference" if rows is not None and rows.is_small else "auto", setup)
    if (block := engine.block) is None:
        return engine.estimates(setup, states, step)
    estimates = np.empty(states.shape)
    for first in range(0, len(states), block):
        numbers = np.minimum(np.arange(first, first + block), len(states) - 1)  # the last one fills the last block
        block_estimates = engine.estimates(replace(setup, chains=setup.chains[numbers]), states[numbers], step)
        estimates[first : first + block] = block_estimates[: len(states) - first]
    return estimates
