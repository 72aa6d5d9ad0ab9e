"""Subsampled Metropolis (`svrhmc.exact.SubsampledMH`) in compiled code."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import UndefinedDensityError, requirement
from svrhmc.core.randomness import Stream, alias_table
from svrhmc.engines.base import Keep, Setup, State
from svrhmc.engines.compiled.engine import (
    CompiledKernel,
    MetropolisCall,
    entry_kind,
    make_chunk_noise,
    make_frame,
    make_heavy,
    padded_zeros,
    plain_model,
    row_width,
)
from svrhmc.gradients import Memory
from svrhmc.kernels import layout, subsampled
from svrhmc.kernels.rows import fixed
from svrhmc.rows.forms import RowsForm
from svrhmc.whitening.maps import Whitening
from svrhmc.whitening.targets import Region

_CHUNK_PICKS = 512
_CUSHION = {np.dtype(np.float32): 1 + 1e-3, np.dtype(np.float64): 1 + 1e-9}  # for the rounding of |ã| and of u
_ROUNDING = 1e-10  # of WᵀHW − I, below which it is taken for 0
_WHY_DENSE = "the Gaussian part of f cancels only where WᵀHW = I"
MOST_ROWS = 1e6  # that a typical step may evaluate


def require_dense(whitening: Whitening) -> None:
    """Refuse a whitening after which more than Σᵢρᵢ is left, or for which |Wᵀaᵢ| of every row costs too much."""
    if not (whitening.identity_hessian and whitening.row_lengths):
        raise requirement("whitening", "dense for SubsampledMH", f"a {whitening.kind} one", _WHY_DENSE)


class SubsampledKernel(CompiledKernel):
    """For a dense whitening.

    hessian: ∇²f at the centre of the whitening. lengths: |Wᵀaᵢ| of the rows. region: where bounds on ℓ‴ hold, and
    which (`svrhmc.exact.subsampled`). tables: cells, cards and their sum, if the caller has them.
    """

    def __init__(
        self,
        setup: Setup,
        form: RowsForm,
        hessian: Array,
        lengths: Array,
        region: Region,
        tables: tuple[subsampled.Listed, Array, float] | None = None,
    ) -> None:
        sampler, self.setup, self.dim = setup.sampler, setup, form.rows.dim
        self.model, self.frame = plain_model(form), make_frame(form.whitening)
        self.stream = Stream(setup.seed, setup.chains)
        F, c, third = form.whitening.factor, sampler.spread, region.third
        assert form.removed is not None
        if not region.rows <= MOST_ROWS:
            raise requirement(
                "target", f"one with at most {MOST_ROWS:,.0f} rows to evaluate in a typical step of SubsampledMH",
                f"{region.rows:.3g} for n = {form.rows.n}", "use SplitHMC",
            )  # fmt: skip
        leftover = F.T @ hessian @ F - np.eye(self.dim)
        if np.abs(leftover).max() < _ROUNDING:
            leftover = leftover[:0]
        cells: npt.NDArray[np.uint64] | subsampled.Listed = fixed(np.zeros(1, np.uint64))
        cards, cubes = np.zeros(2), 0.0
        if tables is not None:
            cells, cards, cubes = tables
        elif third > 0:
            alias_cells, cards, cubes = _tables(form, setup.target._float64_predictors, lengths, region.shares)
            cells = fixed(alias_cells)
        rate = (1 + c) * third / 6 * cubes
        heavy = make_heavy(form, form.whitening.centre, 2)
        force = fixed(-form.removed.force)
        shares = None if region.shares is None else fixed(region.shares)
        self.anchor = subsampled.Anchor(cells, fixed(cards), force, fixed(leftover), heavy, shares)
        keep = sampler.correlation
        fresh = math.sqrt((1 - keep) * (1 + keep))
        self.plan = subsampled.SubsampledPlan(keep, fresh, c, math.log1p(1 / c), rate, third, region.radius**3)

    def call(self, state: State, end: int, keep: Keep) -> SubsampledCall:
        return SubsampledCall(self, state, end, keep)

    def empty_memory(self) -> Memory:
        """Nothing: a chain carries z alone."""
        return {}

    def anchor_of(self, place: int, step: int) -> subsampled.Anchor:
        """The anchor for one chain from a step on."""
        return self.anchor

    def step_by_definition(self, reason: int, call: SubsampledCall, place: int, step: int) -> None:
        """Make a step that the compiled loop cannot make; with all rows in memory there is no such step."""
        raise AssertionError


class SubsampledCall(MetropolisCall[subsampled.Room]):
    """Chains one at a time."""

    team = 1

    def __init__(self, kernel: SubsampledKernel, state: State, end: int, keep: Keep) -> None:
        super().__init__(state, end, keep)
        self.kernel, self.counts = kernel, np.zeros(self.draws.shape[:2], np.int64)

    def workspace(self) -> subsampled.Room:
        return _make_workspace(self.kernel.model, self.kernel.dim)

    def advance(self, workspace: subsampled.Room, chains: tuple[int, int], steps: tuple[int, int]) -> None:
        """Run the compiled loop; where it stops at a step that it cannot make, make that step and go on."""
        kernel, place = self.kernel, chains[0]
        k0, k1 = kernel.stream.keys(steps[0] >> 32)
        key, (step, end) = (k0[place], k1[place]), steps
        while step < end or step == steps[0]:
            slot = step - self.begin
            reason, number, accepted = subsampled.subsampled(
                kernel.model, kernel.anchor_of(place, step), kernel.frame, kernel.plan, workspace, key, self.x[place],
                self.draws[place, slot:], self.counts[place, slot:], (step, end),
            )  # fmt: skip
            self.accepted[place] += accepted
            step += number
            if reason == subsampled.DONE:
                return
            self._require(reason, place, step)
            kernel.step_by_definition(reason, self, place, step)
            step += 1

    def _require(self, reason: int, place: int, step: int) -> None:
        """Say why a chain cannot go on, unless its step may be made elsewhere."""
        chains = self.kernel.setup.chains
        if reason == subsampled.LOST:
            raise UndefinedDensityError(int(chains[place]), step + 1)
        if reason == subsampled.FAR:
            raise requirement(
                f"chain {chains[place]}", f"where a step draws at most {subsampled.MOST_PICKS // 2} rows",
                f"more at step {step}", "the chain is too far from the mode",
            )  # fmt: skip
        if reason == subsampled.ENDLESS:
            raise requirement(
                f"chain {chains[place]}", "where f is finite", f"another place at step {step}",
                "it is too far from the mode",
            )  # fmt: skip
        if reason == subsampled.LOOSE:
            raise RuntimeError(
                f"chain {chains[place]}, step {step}: the rate of a row is above its bound by "
                "rounding; the columns of X are too nearly dependent for SubsampledMH in this precision."
            )


def _tables(
    form: RowsForm, t: Array, lengths: Array, shares: Array | None
) -> tuple[npt.NDArray[np.uint64], Array, float]:
    """Alias cells, cards and a sum s with s·pᵢ ≥ wᵢ|ãᵢ|³ for every row, times its share in the bound on ℓ‴; s = 0 where
    all rows are zeros, none of which is ever picked then. t: t̂ᵢ of all rows.
    """
    cubes = (
        form.multiply_by_weights(lengths**3 if shares is None else shares * lengths**3) * _CUSHION[form.rows.dtype] ** 3
    )
    if not cubes.any():
        return np.zeros(1, np.uint64), np.stack([t, np.zeros_like(t)], axis=1).reshape(-1), 0.0
    threshold, alias, p = alias_table(cubes)
    cells = (threshold.astype(np.uint64) << np.uint64(32)) | alias.astype(np.uint64)
    positive = cubes > 0
    return cells, np.stack([t, p], axis=1).reshape(-1), float((cubes[positive] / p[positive]).max())


def _make_workspace(model: layout.Model, dim: int) -> subsampled.Room:
    pad, kind = row_width(model, dim), entry_kind(model)
    noise = make_chunk_noise(dim)
    return subsampled.Room(
        q=padded_zeros(dim),
        u=padded_zeros(dim),
        room=padded_zeros(dim),
        wide=padded_zeros(pad, kind),
        wide_now=padded_zeros(pad, kind),
        noise=noise,
        normals=padded_zeros((3, len(noise.steps))),
        xi=padded_zeros(dim),
        pick_steps=padded_zeros(_CHUNK_PICKS, np.uint32),
        pick_words=padded_zeros((4, _CHUNK_PICKS), np.uint32),
        pick_slots=padded_zeros(_CHUNK_PICKS, np.uint32),
        rows=padded_zeros(_CHUNK_PICKS, np.int64),
    )
