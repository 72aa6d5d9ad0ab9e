"""Subsampled Metropolis on rows in partitions: the rows that steps may pick are fetched before them.

A step makes N ~ Poisson(Λ) picks, Λ = rate·(|z|³ + |z′|³), and pick k is a function of the random stream alone. z is
not known beforehand, but a bound on |z| is: with z′ = ρz + √(1 − ρ²)ξ and ξ of the stream,

    |z| ≤ b,   |z′| ≤ |ρ|b + √(1 − ρ²)|ξ| = b′,   and after the step |z| ≤ max(b, b′).

So Λ ≤ rate·(b³ + b′³), and N is at most what the same uniform number gives for that. (N is found by inversion from 0 up
where Λ < 16, and so grows with Λ; beyond that it is less than ten standard deviations above Λ.) All picks of a stretch
of steps are fetched in one pass, and the chains then run as they do on rows in memory, with a list in place of the
table.
"""

from __future__ import annotations

from threading import Lock

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import UndefinedDensityError
from svrhmc.core.randomness import Purpose, Stream, threefry2x32
from svrhmc.engines.base import NONE, STEPS_PER_KEY, Keep, Setup, State
from svrhmc.engines.compiled.engine import CompiledKernel, lacks_map, runs
from svrhmc.engines.compiled.subsampled import SubsampledCall, SubsampledKernel, require_dense
from svrhmc.gradients import Memory
from svrhmc.kernels import subsampled
from svrhmc.kernels.rows import fixed
from svrhmc.rows.partitions import Places
from svrhmc.whitening.partitions import WhitenedPartitions, Window
from svrhmc.whitening.targets import Region

_STRETCH, _MOST_PICKS = 1024, 1 << 22  # steps that rows are fetched for, at least, and picks of all chains, at most
_SMALL, _FAR, _MORE = 16.0, 10.0, 30.0  # Λ from which N is not by inversion from 0; its bound there
_SLACK = 1 + 1e-9  # for rounding


@runs("subsampled", lambda engine: {"rows": lambda sampler, form: lacks_map(form)})
def subsampled_kernel(setup: Setup) -> CompiledKernel:
    """On rows that are all in memory, or are fetched before they are picked."""
    space, sampler = setup.target, setup.sampler
    whitening, target = space.whitening, space.target
    require_dense(whitening)
    at_mode = np.array_equal(whitening.centre, target.mode())
    hessian = target.modal_hessian if at_mode else target.hessian(whitening.centre)
    region = sampler.region(space)
    if space.at_hand < space.n:
        return GatheredKernel(setup, space.with_radius(sampler.radius), hessian, region)
    return SubsampledKernel(setup, setup.form, hessian, space.row_norms, region)


class GatheredKernel(CompiledKernel):
    """On a target in partitions, in whitened variables.

    region: where bounds on ℓ‴ hold, as for rows in memory; its shares are found anew for the rows at hand.
    """

    def __init__(self, setup: Setup, space: WhitenedPartitions, hessian: Array, region: Region) -> None:
        self.setup, self.space, self.hessian, self.region = setup, space, hessian, region
        self.sampler, self.stream = setup.sampler, Stream(setup.seed, setup.chains)
        self._listed: _Listing | None = None

    def empty_memory(self) -> Memory:
        """Nothing: a chain carries z alone."""
        return {}

    def call_without_steps(self, state: State) -> SubsampledCall:
        """A call on a window of one row."""
        nothing = _Listing.empty(self.space, len(self.setup.chains))
        return ListedKernel(self, nothing).call(state, state.step, NONE)

    def fetch_until(self, state: State, end: int) -> int:
        """Fetch the rows of a stretch of steps unless they are there; return the end of the stretch."""
        listing, step = self._listed, state.step
        if listing is None or not listing.first <= step < listing.end:
            limit = (step // STEPS_PER_KEY + 1) * STEPS_PER_KEY  # where the keys of the stream change
            listing = self._listed = self._fetch(state, min(max(end, step + _STRETCH), limit))
        return min(end, listing.end)

    def call(self, state: State, end: int, keep: Keep) -> SubsampledCall:
        """A call on the rows of that stretch."""
        assert self._listed is not None
        return ListedKernel(self, self._listed).call(state, end, keep)

    def _fetch(self, state: State, end: int) -> _Listing:
        """Fetch the rows that steps up to `end` pick, or fewer steps if the rows would not fit in memory."""
        rate, first = self._rate(), state.step
        keep, fresh = self.sampler.correlation, np.sqrt(1 - self.sampler.correlation**2)
        bound = np.sqrt((state.x**2).sum(axis=1))
        counts: list[Indices] = []
        total = 0
        for step in range(first, end):
            xi = np.sqrt((self.stream.normals(step, self.space.dim) ** 2).sum(axis=1))
            new = (abs(keep) * bound + fresh * xi) * _SLACK
            counts.append(self._most_picks(step, rate * (bound**3 + new**3)))
            bound, total = np.maximum(bound, new), total + int(counts[-1].sum())
            if total > _MOST_PICKS and len(counts) > 1:
                break
        counts_by_step = np.array(counts).T  # (chains, steps)
        window, places = self.space.gather(self._pick_places(first, counts_by_step))
        begin = np.concatenate(
            [np.zeros((len(counts_by_step), 1), np.int64), np.cumsum(counts_by_step, axis=1)], axis=1
        )
        rows = np.split(places, np.cumsum(counts_by_step.sum(axis=1))[:-1])
        return _Listing(first, first + counts_by_step.shape[1], window, begin, rows)

    def _most_picks(self, step: int, rate: Array) -> Indices:
        """The most picks that a step of each chain can make, for a bound on its rate."""
        from scipy.special import pdtr

        U = self.stream.uniforms(step, 1, Purpose.COUNT)[:, 0]
        count = np.zeros(len(rate), np.int64)
        small = rate < _SMALL
        while (growing := small & (pdtr(count, rate) <= U * _SLACK) & (count < 200)).any():
            count = count + growing
        bound = rate + _FAR * np.sqrt(rate) + _MORE
        return np.where(small, count + 1, np.minimum(bound, subsampled.MOST_PICKS).astype(np.int64))

    def _pick_places(self, first: int, counts_by_step: Indices) -> Places:
        """The places of the rows of all picks, chain by chain and step by step."""
        chain = np.repeat(np.arange(len(counts_by_step)), counts_by_step.sum(axis=1))
        step = np.repeat(np.tile(np.arange(counts_by_step.shape[1]), len(counts_by_step)), counts_by_step.ravel())
        begin = np.cumsum(counts_by_step.ravel()) - counts_by_step.ravel()
        number = np.arange(len(chain)) - np.repeat(begin, counts_by_step.ravel())
        k0, k1 = self.stream.keys(first >> 32)
        slot = (subsampled.PICK_SLOT + 2 * number).astype(np.uint32)
        counter = ((first + step) & 0xFFFFFFFF).astype(np.uint32)
        return self.space.places(*threefry2x32((k0[chain], k1[chain]), (counter, slot)))

    def _rate(self) -> float:
        """Λ/(|z|³ + |z′|³) = (1 + c)/6 · Q/S."""
        return float((1 + self.sampler.spread) / 6 * self.space.third_total)


class _Listing:
    """Rows that were fetched for the steps from `first` to `end`, and which of them each step picks."""

    def __init__(self, first: int, end: int, window: Window, begin: Indices, rows: list[Indices]) -> None:
        self.first, self.end, self.window = first, end, window
        self.begin, self.rows = fixed(begin), [fixed(np.append(places, 0)) for places in rows]

    @staticmethod
    def empty(space: WhitenedPartitions, chains: int) -> _Listing:
        """A listing of one row, which no step picks."""
        nothing = [np.zeros(0, np.int64)] * chains
        return _Listing(0, 0, space.empty_window(), np.zeros((chains, 2), np.int64), nothing)


class ListedKernel(SubsampledKernel):
    """On the rows of a listing."""

    def __init__(self, outer: GatheredKernel, listing: _Listing) -> None:
        space, window = outer.space, listing.window
        form = window.form()
        third = outer.region.third
        cards = np.stack([window.predictors, window.probabilities], axis=1).reshape(-1)
        cubes = space.third_total / third if third > 0 else 0.0
        cells = subsampled.Listed(listing.begin[0], listing.rows[0])
        region = window.region(outer.region)
        tables = (cells, cards, cubes)
        super().__init__(outer.setup, form, outer.hessian, np.zeros(0), region, tables)
        self.listing, self.space, self._one_at_a_time = listing, space, Lock()

    def anchor_of(self, place: int, step: int) -> subsampled.Anchor:
        """The anchor with the picks of one chain from a step on."""
        slot = step - self.listing.first
        cells = subsampled.Listed(self.listing.begin[place, slot:], self.listing.rows[place])
        return self.anchor._replace(cells=cells)

    def step_by_definition(self, reason: int, call: SubsampledCall, place: int, step: int) -> None:
        """Make a step beyond the ball from f itself, by passes over all rows."""
        if reason != subsampled.BEYOND:
            raise RuntimeError("a step has more picks than its rows were fetched for; this is a mistake of svrhmc.")
        z, slot = call.x[place], step - call.begin
        xi = self.stream.normals(step, self.dim)[place]
        new = self.plan.keep * z + self.plan.fresh * xi
        with self._one_at_a_time:  # a pass has all workers
            f = self.space.potentials(np.array([z, new])) - 0.5 * np.array([z @ z, new @ new])
        if np.isnan(f[1]):
            raise UndefinedDensityError(int(self.setup.chains[place]), step + 1)
        if np.log(self.stream.uniforms(step, 1, Purpose.ACCEPT)[place, 0]) < f[0] - f[1]:
            call.x[place] = new
            call.accepted[place] += 1
        call.draws[place, slot] = call.x[place]
        call.counts[place, slot] = self.space.n
