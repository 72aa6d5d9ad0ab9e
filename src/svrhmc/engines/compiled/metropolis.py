"""Chains of the exact samplers: compiled loops, chains across threads, pieces of a tenth of a second."""

from __future__ import annotations

import time
from abc import abstractmethod
from threading import Event
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import UndefinedDensityError, whole
from svrhmc.core.randomness import Stream
from svrhmc.engines.base import EVERY, NEAR, Chains, Extension, Keep, Report, Setup, State, quiet
from svrhmc.engines.compiled.models import (
    make_frame,
    make_heavy,
    plain_model,
    row_bytes,
    row_lines,
    row_shape,
    slope_kind,
)
from svrhmc.engines.compiled.room import CHUNK_BLOCKS, apart, fixed, noise_room, row_width, state_width
from svrhmc.engines.compiled.threads import share
from svrhmc.engines.pace import HIGH, Pace
from svrhmc.gradients import Memory
from svrhmc.kernels import split
from svrhmc.kernels.layout import TILE, Noise, SparseModel
from svrhmc.kernels.twins import Twins
from svrhmc.targets.forms import RowsForm

_MOST_IN_STEP, _NEAR_BYTES = 4, 1 << 19  # chains that share a pass over rows that take more than this


class MetropolisChains(Chains):
    """Chains in whitened variables, and what they share."""

    engine = "numba"

    def __init__(self, setup: Setup, state: State, form: RowsForm) -> None:
        assert form.removed is not None
        self.setup, self.state, self.form = setup, state, form
        self.chains, self.threads = setup.chains, setup.threads
        self.model, self.frame = plain_model(form), make_frame(form.whitening)
        self.stream, self.dim = Stream(setup.seed, setup.chains), form.rows.dim

    def empty_memory(self) -> Memory:
        """None: z is all."""
        return {}

    def compile(self) -> None:
        """Compile the loop, or load it, by making no draw."""
        call = self._call(self.state, 0)
        call.advance(self._room(), (0, 0), (0, 0), 0)

    def extend(self, count: int, keep: Keep = EVERY, report: Report = quiet) -> Extension:
        """The next `count` draws of each chain."""
        state, count = self.state, whole("count", count, 1)
        call, stopped = self._call(state, count), Event()
        total, size = len(self.chains), self._team_size()
        teams = iter(range(0, total, size))

        def work(tell: Report) -> None:
            room, pace = self._room(), Pace()
            for first in teams:  # next() of a range is atomic: each team of chains goes to one thread
                members = (first, min(first + size, total))
                step, end = state.step, state.step + count
                while step < end and not stopped.is_set():
                    piece = min(end, step + pace.steps, (step // HIGH + 1) * HIGH)
                    began = time.perf_counter()
                    call.advance(room, members, (step, piece), step - state.step)
                    pace.learn(piece - step, time.perf_counter() - began)
                    tell((piece - step) * (members[1] - members[0]))
                    step = piece

        share(work, min(self.threads, total), report, stopped)
        evaluated = round(state.spent * total) + np.cumsum(call.counts.sum(axis=0))
        kept = keep.within(state.step, state.step + count) - state.step - 1
        everything = len(kept) == count
        self.state = State(call.z, state.v, call.memory(), state.step + count, float(evaluated[-1] / total))
        return Extension(
            draws=call.draws if everything else call.draws[:, kept],
            spent=evaluated[kept] / total,
            evaluations=int(call.counts.sum()),
            gradients=call.gradients if call.gradients is None or everything else call.gradients[:, kept],
            accepted=call.accepted,
            counts=call.counts,
        )

    @abstractmethod
    def _call(self, state: State, count: int) -> Call:
        """One extension on its way."""

    @abstractmethod
    def _room(self) -> Any:
        """Room for the chains that one thread runs at a time."""

    def _team_size(self) -> int:
        """Chains that one thread runs in step."""
        return 1


class Call:
    """One extension: the chains' state, copied, and room for what they draw."""

    gradients: Array | None = None
    counts: Indices  # rows evaluated, by chain and draw

    def __init__(self, state: State, count: int) -> None:
        chains, dim = state.x.shape
        self.z = state.x.copy()
        self.draws = np.empty((chains, count, dim))
        self.accepted = np.zeros(chains, np.int64)

    @abstractmethod
    def advance(self, room: Any, members: tuple[int, int], steps: tuple[int, int], slot: int) -> None:
        """One piece of some chains; the first draw of each goes to `slot`."""

    def memory(self) -> Memory:
        """What the chains carry besides z."""
        return {}


class SplitChains(MetropolisChains):
    """Chains of `svrhmc.exact.SplitHMC`, for every kind of whitening; their gradients are ∇f with respect to z.

    f and ∇f at z are the memory of a chain.
    """

    def __init__(self, setup: Setup, state: State) -> None:
        form, sampler = setup.form, setup.sampler
        super().__init__(setup, state, form)
        self.sampler, kicks = sampler, (fixed(part) for part in sampler.kicks())
        sizes = (sampler.step_size, sampler.leapfrogs, sampler.jitter, sampler.halvings, NEAR)
        self.plan = split.SplitPlan(*sizes, *kicks)
        assert form.removed is not None
        t = form.removed.predictors.astype(slope_kind(self.model))
        shift = form.prior_precision * (form.whitening.centre - form.prior_mean)
        heavy = make_heavy(form, form.whitening.centre, 0)
        self.centre = split.Centre(fixed(t), fixed(form.prior_precision), fixed(shift), heavy)

    def _call(self, state: State, count: int) -> Call:
        return _SplitCall(self, state, count)

    def _team_size(self) -> int:
        """Several where the rows do not fit a near cache: then a pass over them serves them all."""
        size = min(_MOST_IN_STEP, -(-len(self.chains) // self.threads))
        return size if row_bytes(self.model) > _NEAR_BYTES else 1

    def empty_memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.dim))}

    def _room(self) -> Any:
        return _team(self.model, self.dim, self._team_size(), self.form.whitening.for_sparse_rows)


class _SplitCall(Call):
    def __init__(self, chains: SplitChains, state: State, count: int) -> None:
        super().__init__(state, count)
        self.chains, self.gradients = chains, np.empty_like(self.draws)
        self.f = state.memory["f"].copy() if state.memory else np.full(len(self.z), np.nan)
        self.gradient = state.memory["gradient"].copy() if state.memory else np.zeros_like(self.z)
        n, steps = len(chains.form.y), state.step + 1 + np.arange(count)
        self.counts = np.tile(n * chains.sampler.leapfrogs_of(steps), (len(self.z), 1))
        if not state.memory:
            self.counts[:, :1] += n  # f and ∇f at the start

    def advance(self, room: Any, members: tuple[int, int], steps: tuple[int, int], slot: int) -> None:
        chains = self.chains
        lost, step = split.split(
            chains.model, chains.centre, chains.frame, chains.plan, *room, *chains.stream.keys(steps[0] >> 32),
            self.z, self.gradient, self.f, self.draws, self.gradients, self.accepted, members, steps, slot,
        )  # fmt: skip
        if lost >= 0:
            raise UndefinedDensityError(int(chains.chains[lost]), step)

    def memory(self) -> Memory:
        return {"f": self.f, "gradient": self.gradient}


def chunk_noise(dim: int) -> Noise:
    """Room for the normals of as many steps as are made together."""
    half = (dim + 1) // 2
    return noise_room(half, max(1, CHUNK_BLOCKS // half))


def _twins(dim: int, kind: Any) -> Twins:
    """Room for two chains that share a pass over sparse rows; none where none do."""
    tiles = [apart((2, TILE), kind) for _ in range(3)]
    return Twins(apart(2 * dim, kind), apart(2 * dim), *tiles)


def _team(model: Any, dim: int, chains: int, paired: bool) -> Any:
    pad, wide, kind, slopes = row_width(model, dim), state_width(model, dim), model[0].dtype, slope_kind(model)
    noise = chunk_noise(dim)
    paths = split.Paths(
        q=apart((chains, dim)),
        v=apart((chains, dim)),
        force=apart((chains, dim)),
        angle=apart(chains),
        before=apart(chains),
        energy=apart(chains),
        normals=apart((chains, 3, len(noise.steps))),
    )
    sums = split.Sums(
        u=apart((chains, dim)),
        wide=apart((chains, wide), kind),
        total=apart((chains, wide)),
        room=apart(dim),
        tile=apart(pad, kind),
        t=apart((*row_lines(model), TILE), slopes),
        slope=apart((*row_shape(model), TILE), slopes),
        value=apart(TILE, kind),
        twins=_twins(dim if paired and isinstance(model, SparseModel) else 0, kind),
    )
    return paths, sums, noise
