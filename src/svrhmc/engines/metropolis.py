"""Chains of `svrhmc.exact` that can be continued: compiled loops, chains across threads, pieces of a tenth of a second.

What a chain draws depends neither on the threads, nor on the chains beside it, nor on the pieces or the calls of
`extend` it was made in. An interrupt leaves the chains where the last whole call left them.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from svrhmc.core.alias import alias_table
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import real_array, requirement, whole
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines.numba import make_frame, make_model, row_bytes
from svrhmc.engines.pieces import CHUNK_BLOCKS, HIGH, Pace, apart, fixed, noise_room, row_width, share
from svrhmc.kernels import split, subsampled
from svrhmc.kernels.layout import TILE, Noise
from svrhmc.targets.glm import GeneralisedLinear
from svrhmc.whitening import DenseWhitening, Whitening

if TYPE_CHECKING:
    from svrhmc.exact.split import SplitHMC
    from svrhmc.exact.subsampled import SubsampledMH

Report = Callable[[int], None]

_CHUNK_PICKS = 512
_NORM_ELEMENTS = 1 << 18  # of a block of transformed rows: it stays in the cache
_CUSHION = {np.dtype(np.float32): 1 + 1e-3, np.dtype(np.float64): 1 + 1e-9}  # for the rounding of |ã| and of u
_ROUNDING = 1e-10  # of WᵀHW − I, below which it is taken for 0
_MOST_IN_STEP, _NEAR_BYTES = 4, 1 << 19  # chains that share a pass over rows that take more than this
_THIRD = 1 / (6 * math.sqrt(3))  # max |ℓ‴| of the logistic loss
MOST_ROWS = 1e6  # that a typical step may evaluate


@dataclass(frozen=True, eq=False)
class Extension:
    """Some more draws of each chain.

    z: (chains, draws, dim). gradients: ∇f with respect to z at each, where they came for free. accepted: proposals, by
    chain. evaluations: rows evaluated, all chains together; counts: the same by chain and draw.
    """

    z: Array
    gradients: Array | None
    accepted: Indices
    evaluations: int
    counts: Indices


@dataclass
class _Chains(ABC):
    """Chains in whitened coordinates, and what they share."""

    target: GeneralisedLinear
    whitening: Whitening
    sampler: Any
    seed: int
    chains: Indices
    threads: int
    start_z: Array | None = None
    made: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.model, self.frame = make_model(self.target), make_frame(self.whitening)
        self.stream = Stream(self.seed, self.chains)
        shape = (len(self.chains), self.target.dim)
        if self.start_z is None:
            self.z = self.stream.normals(0, shape[1], Purpose.START, Purpose.START_FINE)
        else:
            self.z = np.array(real_array("start_z", self.start_z, shape), np.float64)

    def compile(self) -> None:
        """Compile the loop, or load it, by making no draw."""
        self._advance(self._room(), (0, 0), self._state(), self._out(0), (0, 0), 0)

    def extend(self, count: int, report: Report = lambda amount: None) -> Extension:
        """The next `count` draws of each chain; `report` is told of draws made, all chains together."""
        count = whole("count", count, 1)
        state, out = self._state(), self._out(count)
        total, size = len(self.chains), self._team_size()
        teams, stopped = iter(range(0, total, size)), Event()

        def work(tell: Report) -> None:
            room, pace = self._room(), Pace()
            for first in teams:  # next() of a range is atomic: each team of chains goes to one thread
                members = (first, min(first + size, total))
                step, end = self.made, self.made + count
                while step < end and not stopped.is_set():
                    piece = min(end, step + pace.steps, (step // HIGH + 1) * HIGH)
                    began = time.perf_counter()
                    self._advance(room, members, state, out, (step, piece), step - self.made)
                    pace.learn(piece - step, time.perf_counter() - began)
                    tell((piece - step) * (members[1] - members[0]))
                    step = piece

        share(work, min(self.threads, total), report, stopped)
        self._keep(state)
        self.made += count
        return Extension(out.z, out.gradients, out.accepted, int(out.counts.sum()), out.counts)

    @abstractmethod
    def _state(self) -> Any:
        """A copy of the state, to be advanced."""

    @abstractmethod
    def _keep(self, state: Any) -> None:
        """The state after a whole call."""

    @abstractmethod
    def _out(self, count: int) -> _Out:
        """Room for the draws."""

    @abstractmethod
    def _advance(
        self, room: Any, members: tuple[int, int], state: Any, out: _Out, steps: tuple[int, int], slot: int
    ) -> None:
        """One piece of some chains; the first draw of each goes to `slot`."""

    @abstractmethod
    def _room(self) -> Any:
        """Room for the chains that one thread runs at a time."""

    def _team_size(self) -> int:
        """Chains that one thread runs in step."""
        return 1


@dataclass(frozen=True, eq=False)
class _Out:
    z: Array
    gradients: Array | None
    accepted: Indices
    counts: Indices


@dataclass
class SplitChains(_Chains):
    """Chains of `SplitHMC`, for every kind of whitening; their gradients are ∇f with respect to z."""

    sampler: SplitHMC

    def __post_init__(self) -> None:
        super().__post_init__()
        target, sampler, centre = self.target, self.sampler, self.whitening.centre
        self.plan = split.SplitPlan(sampler.step_size, sampler.leapfrogs, sampler.jitter)
        t = target.rows.predict(centre[None, :])[0].astype(target.rows.dtype)
        shift = target.prior_precision * (centre - target.prior_mean)
        self.centre = split.Centre(fixed(t), fixed(target.prior_precision), fixed(shift))
        self.gradient, self.f = np.zeros_like(self.z), np.full(len(self.z), np.nan)

    def _state(self) -> Any:
        return self.z.copy(), self.gradient.copy(), self.f.copy()

    def _keep(self, state: Any) -> None:
        self.z, self.gradient, self.f = state

    def _out(self, count: int) -> _Out:
        shape = (len(self.chains), count, self.target.dim)
        rows = np.full(shape[:2], self.sampler.leapfrogs * self.target.n)
        if self.made == 0:
            rows[:, :1] += self.target.n  # f and ∇f at the start
        return _Out(np.empty(shape), np.empty(shape), np.zeros(shape[0], np.int64), rows)

    def _advance(
        self, room: Any, members: tuple[int, int], state: Any, out: _Out, steps: tuple[int, int], slot: int
    ) -> None:
        split.split(
            self.model, self.centre, self.frame, self.plan, *room, *self.stream.keys(steps[0] >> 32), *state,
            out.z, out.gradients, out.accepted, members, steps, slot,
        )  # fmt: skip

    def _team_size(self) -> int:
        """Several where the rows do not fit a near cache: then a pass over them serves them all."""
        size = min(_MOST_IN_STEP, -(-len(self.chains) // self.threads))
        return size if row_bytes(self.model) > _NEAR_BYTES else 1

    def _room(self) -> Any:
        return _team(self.model, self.target.dim, self._team_size())


@dataclass
class SubsampledChains(_Chains):
    """Chains of `SubsampledMH`, for a dense whitening.

    gradient, hessian: ∇f and ∇²f at the centre of the whitening where they are known; each is else a pass over the
    rows. typical: Λ where |z| = |z′| = √dim.
    """

    sampler: SubsampledMH
    gradient: Array | None = field(default=None, kw_only=True)
    hessian: Array | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.whitening, DenseWhitening):
            raise requirement("whitening", "dense for SubsampledMH", f"a {type(self.whitening).__name__}", _WHY_DENSE)
        super().__post_init__()
        target, centre, F, c = self.target, self.whitening.centre, self.whitening.factor, self.sampler.spread
        g = target.gradient(centre) if self.gradient is None else self.gradient
        H = target.hessian(centre) if self.hessian is None else self.hessian
        slope, leftover = self.whitening.pull(g), F.T @ H @ F - np.eye(target.dim)
        if np.abs(leftover).max() < _ROUNDING:
            leftover = leftover[:0]
        cells, cards, cubes = np.zeros(1, np.uint64), np.zeros(2), 0.0
        if not target.loss.quadratic:
            cells, cards, cubes = _tables(target, self.whitening)
        rate = (1 + c) * _THIRD / 6 * cubes
        self.typical = 2 * rate * target.dim**1.5
        if not self.typical <= MOST_ROWS:
            raise requirement(
                "target", f"one with at most {MOST_ROWS:,.0f} rows to evaluate in a typical step of SubsampledMH",
                f"{self.typical:.3g} for n = {target.n}", "use SplitHMC",
            )  # fmt: skip
        self.anchor = subsampled.Anchor(fixed(cells), fixed(cards), fixed(slope), fixed(leftover))
        keep = self.sampler.correlation
        self.plan = subsampled.SubsampledPlan(
            keep, math.sqrt((1 - keep) * (1 + keep)), c, math.log1p(1 / c), rate, _THIRD
        )

    def _state(self) -> Any:
        return self.z.copy()

    def _keep(self, state: Any) -> None:
        self.z = state

    def _out(self, count: int) -> _Out:
        shape = (len(self.chains), count, self.target.dim)
        return _Out(np.empty(shape), None, np.zeros(shape[0], np.int64), np.zeros(shape[:2], np.int64))

    def _advance(
        self, room: Any, members: tuple[int, int], state: Any, out: _Out, steps: tuple[int, int], slot: int
    ) -> None:
        place = members[0]
        k0, k1 = self.stream.keys(steps[0] >> 32)
        reason, number = subsampled.subsampled(
            self.model, self.anchor, self.frame, self.plan, room, (k0[place], k1[place]), state[place],
            out.z[place, slot:], out.counts[place, slot:], steps,
        )  # fmt: skip
        if reason == subsampled.FAR:
            raise requirement(
                f"chain {self.chains[place]}", f"where a step draws at most {subsampled.MOST_PICKS // 2} rows",
                f"more at step {steps[0] + number}", "it is too far from the mode",
            )  # fmt: skip
        if reason == subsampled.LOOSE:
            raise RuntimeError(
                f"chain {self.chains[place]}, step {steps[0] + number}: the rate of a row is above its bound by "
                "rounding; the columns of X are too nearly dependent for SubsampledMH in this precision."
            )
        out.accepted[place] += number

    def _room(self) -> Any:
        return _room(self.model, self.target.dim)


_WHY_DENSE = "the Gaussian part of f cancels only where WᵀHW = I"


def _tables(target: GeneralisedLinear, whitening: DenseWhitening) -> tuple[Any, Any, float]:
    """Alias cells, cards and a sum s with s·pᵢ ≥ |ãᵢ|³ for every row."""
    cubes = target.row_lengths(whitening) ** 3 * _CUSHION[target.rows.dtype] ** 3
    threshold, alias, p = alias_table(cubes)
    cells = (threshold.astype(np.uint64) << np.uint64(32)) | alias.astype(np.uint64)
    t = target.rows.predict(whitening.centre[None, :])[0]
    some = cubes > 0
    return cells, np.stack([t, p], axis=1).reshape(-1), float((cubes[some] / p[some]).max())


def _noise(dim: int) -> Noise:
    half = (dim + 1) // 2
    return noise_room(half, max(1, CHUNK_BLOCKS // half))


def _team(model: Any, dim: int, chains: int) -> Any:
    pad, kind = row_width(model, dim), model[0].dtype
    noise = _noise(dim)
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
        wide=apart((chains, pad), kind),
        total=apart((chains, pad)),
        room=apart(dim),
        tile=apart(pad, kind),
        t=apart(TILE, kind),
        slope=apart(TILE, kind),
        value=apart(TILE, kind),
    )
    return paths, sums, noise


def _room(model: Any, dim: int) -> Any:
    pad, kind = row_width(model, dim), model[0].dtype
    noise = _noise(dim)
    return subsampled.Room(
        q=apart(dim),
        u=apart(dim),
        room=apart(dim),
        wide=apart(pad, kind),
        wide_now=apart(pad, kind),
        noise=noise,
        normals=apart((3, len(noise.steps))),
        xi=apart(dim),
        pick_steps=apart(_CHUNK_PICKS, np.uint32),
        pick_words=apart((4, _CHUNK_PICKS), np.uint32),
        pick_slots=apart(_CHUNK_PICKS, np.uint32),
        rows=apart(_CHUNK_PICKS, np.int64),
    )
