"""What the exact samplers share: how chains begin, and a run."""

from __future__ import annotations

import os
from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from svrhmc import engines
from svrhmc.checkpoint import Checkpoint, InMemory, Journal
from svrhmc.core.arrays import Array, Indices, cores
from svrhmc.core.errors import real_array, requirement, whole_number
from svrhmc.core.progress import Progress
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import stable_repr, to_settings
from svrhmc.core.storage import Record
from svrhmc.core.version import VERSION
from svrhmc.density.base import FiniteSum, is_target, require_target
from svrhmc.engines import Chains, Density, Keep, Setup, State
from svrhmc.engines.base import Kernel, SamplerData
from svrhmc.families.base import Loss
from svrhmc.rows.forms import functions_of, rows_of
from svrhmc.samplers import MOST_STEPS, Begun, Order, carried_out, chain_list, chain_numbers, require_room
from svrhmc.trace import Trace
from svrhmc.whitening import Whitening, whitened
from svrhmc.whitening import whitening as whiten
from svrhmc.whitening.at_mode import read_whitening
from svrhmc.whitening.maps import Map, require_map
from svrhmc.whitening.targets import Space

Runnable = Any  # a `Sampler` of the grid or an `ExactSampler`, which says of itself whether it is `invariant`


class ExactSampler(ABC):
    """A sampler with a Metropolis step, in whitened variables, which engines read as it is."""

    kind: ClassVar[str]  # by which engines know it
    defined: ClassVar[bool] = False  # whether it has a definition in NumPy (`kernel`)
    in_numpy: ClassVar[str] = "never"  # when that is to run: "never", "small" or "always"
    invariant: ClassVar[bool] = True  # π itself is its law
    method: ClassVar[str]  # what `sample` calls it
    whitening: ClassVar[str | None] = None  # the kind that it needs, if it needs one
    gradients_come_free: ClassVar[bool] = False  # whether its draws come with ∇f at them
    of_functions: ClassVar[bool] = False  # whether it runs on models of JAX functions, of which f and ∇f are known
    jumps: ClassVar[bool] = False  # whether its chains can jump between modes (`svrhmc.exact.jumps`)

    def run(
        self,
        target: Any,
        draws: int,
        *,
        chains: int | Sequence[int] = 4,
        seed: int = 0,
        burn_in: int = 100,
        whitening: str | Whitening | None = None,
        engine: str = "auto",
        threads: int | None = None,
        progress: Progress = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Trace:
        """Draw from π ∝ exp(−f): `draws` of each chain after `burn_in`, from starts in N(0, I) of the whitening.

        target: what to sample; or, for `SplitHMC`, a density of your own (`svrhmc.engines.Density`), in whose variables
            the chains run.
        chains: how many, or which, as for `Sampler.run`.
        whitening: None (the default of `svrhmc.whitening`), "dense", "diagonal", "low rank", "sparse", or one that is
            made already; for `SplitHMC` any `svrhmc.whitening.Map`, which need not be linear.
        engine: "auto" (by the size of the problem and where its rows are), or the name of an engine.
        threads: None for every core. The draws do not depend on it.
        progress: True, False, None (a line on a terminal), or a callable of (done, total) in chain steps.
        checkpoint: a folder in which the run keeps what it has made, as for `Sampler.run`.
        """
        own = self.defined and not is_target(target) and isinstance(target, Density)
        if own:
            _require_no_settings(whitening, checkpoint)
            _require_density(target)
        else:
            self.require(target)
        draws, burn_in = whole_number("draws", draws, 1, MOST_STEPS), whole_number("burn_in", burn_in, 0, MOST_STEPS)
        numbers = chain_numbers(chains)
        require_room("draws", draws, len(numbers), target.dim, checkpoint)
        threads = cores() if threads is None else whole_number("threads", threads, 1)
        seed = whole_number("seed", seed, 0, (1 << 64) - 1)
        map_given = self.whitening if whitening is None else whitening
        if not (map_given is None or isinstance(map_given, str)):
            require_map(map_given, target.dim)
        journal: Journal = InMemory()
        if checkpoint is not None:
            length = {"draws": draws, "burn_in": burn_in}
            journal = Checkpoint(checkpoint, self._identity(target, map_given, seed, numbers, engine) | length)

        def begin() -> Begun:
            space = target if own else whitened(target, _recorded_whitening(journal, target, map_given))
            return Begun(self.chains(space, seed, numbers, threads, engine=engine), space.out)

        names = () if own else target.names
        order = Order(self, target.n, seed, numbers, burn_in + draws, Keep(burn_in + 1), burn_in, names)
        return carried_out(order, begin, journal, progress)

    def chains(
        self, space: Space, seed: int, chains: Indices, threads: int, start: Array | None = None, engine: str = "auto"
    ) -> Chains:
        """Chains that can be continued, on a target in whitened variables; from N(0, I) unless a start is given."""
        return start_chains(self, space, seed, chains, threads, start, engine)

    def kernel(self, setup: Setup) -> Kernel:
        """Its definition in NumPy, for samplers that say `defined`."""
        raise NotImplementedError

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """As `engines.base.SamplerData.spent`, for samplers whose number of rows is not random."""
        raise NotImplementedError

    @property
    def cycle(self) -> int:
        """Draws after which its steps repeat; the last of them has the shortest."""
        return 1

    @property
    def reach(self) -> float | None:
        """The length of the longest steps of which one draw in four, or more, has these or shorter ones; None where
        proposals are no trajectories. What only shorter steps enter has so few visits that errors are not known.
        """
        return None

    def narrowing(self) -> ExactSampler | None:
        """The same with shorter steps among its own, for a posterior that is narrower in some parts than in others;
        None where it has some, or there is no such thing.
        """
        return None

    def stay_index(self, shape: object) -> float:
        """The Pareto index of how long a chain may stay in a tail of a posterior of this
        `svrhmc.sampling.gradients.Gaussianity`; 0 where proposals follow the density.
        """
        return 0.0

    def smaller(self, share: float = 0.75, convex: bool = False) -> ExactSampler | None:
        """The same with such a share of its step, for chains that accept too little, on a posterior whose −log density
        may be known to be convex; None where there is none.
        """
        return None

    def rows_of_step(self, space: Space) -> float:
        """Rows that a step evaluates, for what it is expected to cost."""
        return float(space.n)

    def settings(self) -> dict[str, object]:
        """Its parts as plain data, for a file."""
        return {"exact": to_settings(self)}

    def require(self, target: FiniteSum) -> None:
        """Refuse a target that this sampler does not run on."""
        form = require_target(target).form()
        if self.of_functions and functions_of(form) is not None:
            return
        rows = rows_of(form)
        reason = "" if rows is None else self.refuses(rows.loss)
        if reason is not None:
            allowed = "a generalised linear model, such as logistic(X, y) or linear(X, y)"
            raise requirement("target", allowed, repr(target), reason)

    def refuses(self, loss: Loss) -> str | None:
        """Why it does not run with such a loss, or None."""
        return None

    def _identity(
        self, target: FiniteSum, whitening: str | Map | None, seed: int, chains: Indices, engine: str
    ) -> dict[str, object]:
        """What decides the numbers of a run, but for its length."""
        return {
            "call": f"{type(self).__name__}.run",
            "version": VERSION,
            "sampler": stable_repr(self),
            **target.identity(),
            "whitening": whitening if whitening is None or isinstance(whitening, str) else whitening.identity(),
            "seed": seed,
            "chains": chain_list(chains),
            **({} if engine == "auto" else {"engine": engine}),  # else it follows from the target
        }


def start_chains(
    sampler: SamplerData, space: Space, seed: int, chains: Indices, threads: int, start: Array | None, engine: str
) -> Chains:
    """Chains of an exact sampler at their start."""
    if start is None:
        z = _move_inside_support(space, Stream(seed, chains).normals(0, space.dim, Purpose.START, Purpose.START_FINE))
    else:
        z = np.array(real_array("start", start, (len(chains), space.dim)), np.float64)
    randomness = getattr(space, "randomness", Stream)
    setup = Setup(space, sampler, seed, chains, threads, randomness=randomness)
    return engines.chains(engine, setup, State(z, np.zeros_like(z)))


def _move_inside_support(space: Space, z: Array) -> Array:
    """States moved to the mode by halves until f is finite, where a loss may be ∞: from there a chain would go to the
    first place where it is not, however far out that is, and could stay there.
    """
    form = rows_of(space.form()) if is_target(space) else None
    while form is not None and form.loss.barrier and (out := np.isinf(space.potentials(z))).any():
        z = np.where(out[:, None], z / 2, z)
    return z


def _require_no_settings(whitening: object, checkpoint: object) -> None:
    """Refuse what cannot be done with a density of the user's own."""
    if whitening is not None:
        why = "chains run in the variables of the density"
        raise requirement("whitening", "None for a density of your own", repr(whitening), why)
    if checkpoint is not None:
        why = "nothing says whether the density is the same when the run goes on"
        raise requirement("checkpoint", "None for a density of your own", repr(checkpoint), why)


def _require_density(density: Density) -> None:
    """Refuse a density of the user's own that does not say its sizes, or whose f and ∇f do not have them."""
    z = np.zeros((2, whole_number("dim", density.dim, 1)))
    whole_number("n", density.n, 1)
    with np.errstate(all="ignore"):
        energies: object = density.energies(z)
    shapes = [np.shape(part) for part in energies] if isinstance(energies, tuple | list) else [type(energies).__name__]
    if shapes != [z.shape[:1], z.shape]:
        allowed = f"f and ∇f of shapes {z.shape[:1]} and {z.shape} for {len(z)} states"
        raise requirement("energies", allowed, " and ".join(map(str, shapes)))


def _recorded_whitening(journal: Journal, target: FiniteSum, map_given: str | Map | None) -> str | Map | None:
    """The whitening, found once for a journal: its last digits may depend on the machine."""
    if not (map_given is None or isinstance(map_given, str)) or not journal.kept:
        return map_given

    def make() -> Record:
        whitening = whiten(target, map_given)  # type: ignore[arg-type]
        return Record({"kind": whitening.kind, "map": whitening.said()}, whitening.arrays())

    record = journal.once("map", make)
    whitening = read_whitening(record, target.dim)
    target.recall_mode(whitening.centre)
    return whitening
