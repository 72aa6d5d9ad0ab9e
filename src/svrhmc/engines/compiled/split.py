"""Split HMC (`svrhmc.exact.SplitHMC`) in compiled code, for every kind of whitening."""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.errors import UndefinedDensityError
from svrhmc.core.randomness import Stream
from svrhmc.engines.base import NEAR, Keep, Setup, State
from svrhmc.engines.compiled.arrays import (
    apart,
    chunk_noise,
    fixed,
    make_frame,
    make_heavy,
    plain_model,
    row_bytes,
    row_lines,
    row_shape,
    row_width,
    slope_kind,
    state_width,
)
from svrhmc.engines.compiled.chains import Call, CompiledKernel, MetropolisCall
from svrhmc.gradients import Memory
from svrhmc.kernels import split
from svrhmc.kernels.layout import TILE, SparseModel
from svrhmc.kernels.twins import Twins

_MOST_IN_STEP, _NEAR_BYTES = 4, 1 << 19  # chains that share a pass over rows that take more than this


class SplitKernel(CompiledKernel):
    """f and ∇f at z are the memory of a chain; gradients are with respect to z."""

    def __init__(self, setup: Setup) -> None:
        form, sampler = setup.form, setup.sampler
        self.setup, self.form, self.sampler, self.dim = setup, form, sampler, form.rows.dim
        self.model, self.frame = plain_model(form), make_frame(form.whitening)
        self.stream = Stream(setup.seed, setup.chains)
        sizes = (sampler.step_size, sampler.leapfrogs, sampler.jitter, sampler.halvings, NEAR)
        self.plan = split.SplitPlan(*sizes, *map(fixed, sampler.kicks()))
        t = form.removed.predictors.astype(slope_kind(self.model))
        shift = form.prior_precision * (form.whitening.centre - form.prior_mean)
        heavy = make_heavy(form, form.whitening.centre, 0)
        self.centre = split.Centre(fixed(t), fixed(form.prior_precision), fixed(shift), heavy)

    def call(self, state: State, end: int, keep: Keep) -> Call:
        """By `svrhmc.kernels.split`."""
        return SplitCall(self, state, end, keep)

    def empty_memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": np.empty(0), "gradient": np.empty((0, self.dim))}

    def team_size(self) -> int:
        """Several where the rows do not fit a near cache: then a pass over them serves them all."""
        size = min(_MOST_IN_STEP, -(-len(self.setup.chains) // self.setup.threads))
        return size if row_bytes(self.model) > _NEAR_BYTES else 1


class SplitCall(MetropolisCall):
    """Trajectories of some chains in step."""

    def __init__(self, kernel: SplitKernel, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end, keep)
        self.kernel, self.team, self.gradients = kernel, kernel.team_size(), np.empty_like(self.draws)
        self.f = state.memory["f"].copy() if state.memory else np.full(len(self.x), np.nan)
        self.gradient = state.memory["gradient"].copy() if state.memory else np.zeros_like(self.x)
        n, steps = len(kernel.form.y), state.step + 1 + np.arange(end - state.step)
        self.counts = np.tile(n * kernel.sampler.leapfrogs_of(steps), (len(self.x), 1))
        if not state.memory:
            self.counts[:, :1] += n  # f and ∇f at the start

    def room(self) -> Any:
        """For one team."""
        kernel = self.kernel
        return _team(kernel.model, kernel.dim, kernel.team_size(), kernel.form.whitening.for_sparse_rows)

    def advance(self, room: Any, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """All of a team."""
        kernel, slot = self.kernel, steps[0] - self.begin
        lost, step = split.split(
            kernel.model, kernel.centre, kernel.frame, kernel.plan, *room, *kernel.stream.keys(steps[0] >> 32),
            self.x, self.gradient, self.f, self.draws, self.gradients, self.accepted, chains, steps, slot,
        )  # fmt: skip
        if lost >= 0:
            raise UndefinedDensityError(int(kernel.setup.chains[lost]), step)

    def memory(self) -> Memory:
        """f and ∇f at z."""
        return {"f": self.f, "gradient": self.gradient}


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
