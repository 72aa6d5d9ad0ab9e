"""Pairs of short chains, with the steps η and η/2 on one Brownian path and the same batches: what they say of a bias.

The moments of the two chains of a pair differ by 3/4 of the bias where that is of second order in η, and by 1/2 where
it is of first order, as that from noisy gradients is. The same holds for every other average, in particular for that
of the corrected terms (`Correction`), which is what a posterior reports. Beside the long chain the terms of its
balance are collected (`svrhmc.posterior.balance`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svrhmc.checkpoint import Clock, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.errors import whole
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.engines import NONE, Chains, Setup, State, chains, estimates
from svrhmc.posterior.balance import balance
from svrhmc.posterior.certificate import Bias, Measured
from svrhmc.posterior.correction import Correction
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.units import Shown
from svrhmc.runs import memory_of
from svrhmc.samplers import Sampler
from svrhmc.scheme import IDENTITY, SILENT, Kick, Scheme, StepNoise, pushed, step_noise

_ORDER = 2.0  # bias over (moment at η − moment at η/2): 4/3 for second order, 2 for first
_FALL = Scheme(IDENTITY, SILENT, Kick(0.0, 1.0), IDENTITY, SILENT)  # v ← v − g
_LEAST = 0.01  # of the variance, where noise says that less than nothing is left
_SETTLED = 5.0  # relaxation times
_MOST_REMEMBERED = 1 << 22  # numbers that all chains together may keep of the rows


def relaxation(scheme: Scheme) -> float:
    """Steps in which the mean of a chain on N(0, I) forgets a factor e of where it began."""
    return -1 / math.log(min(max(scheme.growth(1.0), 1e-6), 1 - 1e-12))


def settling_steps(scheme: Scheme, epoch: int) -> int:
    """Five relaxation times on N(0, I)."""
    return whole_epochs(_SETTLED * relaxation(scheme), epoch)


def whole_epochs(steps: float, epoch: int) -> int:
    """So many steps, in whole epochs where these are shorter."""
    count = math.ceil(steps)
    return -(-count // epoch) * epoch if epoch <= count else count


class Own:
    """A sampler's own estimates of ∇f at states that something else moves, with what its chains remember."""

    def __init__(self, setup: Setup) -> None:
        empty = np.zeros((len(setup.chains), setup.target.dim))
        self.made: Chains = chains("auto", _with(setup, scheme=_FALL), State(empty, empty))

    def __call__(self, x: Array, step: int) -> Array:
        """At the states x, as the chains make them in this step."""
        made = self.made
        made.state = State(x, np.zeros_like(x), made.state.memory, step)
        made.extend(1, NONE)
        return -made.state.v


@dataclass(frozen=True)
class Plan:
    """How many pairs, for how many steps, of which every `thin`-th of the last `used` counts."""

    chains: int
    steps: int
    used: int
    thin: int
    effective: float  # draws of one pair

    def counts(self, step: int) -> bool:
        """Whether the state after this step is looked at."""
        return step >= self.steps - self.used and (self.steps - 1 - step) % self.thin == 0

    @property
    def collected(self) -> int:
        """Steps that are looked at."""
        return -(-self.used // self.thin)

    def rows(self, own: float, fresh: float) -> float:
        """Component gradients of all of it, given those of an estimate of the chain's own and of a fresh one."""
        return float(self.chains) * (3 * self.steps * own + 3 * self.collected * fresh)


def plan_of(sampler: Sampler, space: Any, wanted: int, slow: float = 0.0) -> Plan:
    """As many pairs as wanted, but for what they have to remember; whole epochs are used. `slow`: steps in which chains
    were seen to forget where they began, which may be more than on N(0, I).
    """
    recipe = sampler.gradient.recipe(space)
    scheme, epoch = sampler.dynamics.scheme(space), recipe.epoch
    time = max(relaxation(scheme), slow)
    settle = whole_epochs(_SETTLED * time, epoch)
    used = settle if epoch <= settle else epoch
    thin = max(1, int(time / 2)) if epoch == 1 else 1  # else all parts of an epoch
    if recipe.carries:
        each = recipe.n * (1 if space.scalar_parts else space.dim) if recipe.remembers else space.dim
        wanted = min(wanted, max(16, _MOST_REMEMBERED // (2 * each)))
    return Plan(wanted, settle + used, used, thin, max(1.0, used / (2 * time)))


class Pairs:
    """Pairs of chains on their way; the journal knows where they are."""

    def __init__(
        self, sampler: Sampler, fresh: Setup, correction: Correction, seed: int, shown: Shown | None = None
    ) -> None:
        self.shown = Shown(fresh.target.whitening, None) if shown is None else shown
        self.space, self.fresh, self.correction, self.seed = fresh.target, fresh, correction, seed
        coarse = sampler.dynamics
        fine = replace(coarse, step_size=coarse.step_size / 2)  # type: ignore[type-var]
        self.dynamics, self.schemes = coarse, (coarse.scheme(self.space), fine.scheme(self.space))
        self.balance = balance(self.schemes[0])
        setup = sampler.setup(self.space, seed, fresh.chains, fresh.threads)
        recipe = setup.sampler.recipe
        if recipe.reference == "snapshot":  # the long chain's steps are numbered 0, 2, 4, …
            recipe = replace(recipe, period=2 * recipe.period)
        self.own = (Own(_with(setup, recipe=recipe)), Own(setup))

    def compile(self) -> None:
        """What the chains' own estimates need."""
        self.own[1].made.compile()

    def averages(self, start: Array, plan: Plan, journal: Journal, name: str, ledger: Ledger) -> Array:
        """Averages over the used steps (term, pair, dim), from states (pairs, dim) with nearly the sampler's law."""
        count, dim = start.shape
        pairs = [(start.copy(), np.zeros_like(start)) for _ in range(2)]
        sums, begin, clock = np.zeros((10, count, dim)), 0, Clock()
        stream, short = Stream(self.seed, self.fresh.chains), self.schemes[1]
        if (found := journal.get(name)) is not None:
            ledger.restore(found)
            begin, sums = found.value("step", whole, 1, plan.steps), found.array("sums", sums.shape).copy()
            pairs = [(found.array(f"x{k}", start.shape), found.array(f"v{k}", start.shape)) for k in (0, 1)]
            for k in (0, 1):
                self.own[k].made.state = State(*pairs[k], memory_of(found, f"m{k}", self.own[k].made))
        if self.space.at_hand < self.space.n:
            self._expect([step for step in range(begin, plan.steps) if plan.counts(step)])
        for step in range(begin, plan.steps):
            ledger.look()
            drawn = [stream.normals(2 * step + k, short.normals * dim).reshape(count, -1, dim) for k in (0, 1)]
            noise = (step_noise(short, drawn[0]), step_noise(short, drawn[1]))
            joined = self._joined(noise, step)
            with journal.within(f"within-{name}", ledger, step, 1 + step - begin):
                pairs[0], kicked, estimate = self._move(0, pairs[0], joined, 2 * step)
                pairs[1], *_ = self._move(1, pairs[1], noise[0], 2 * step)
                pairs[1], *_ = self._move(1, pairs[1], noise[1], 2 * step + 1)
                if plan.counts(step):
                    self._collect(sums, pairs, kicked, estimate, step)
            if journal.kept and (clock.due() or step + 1 == plan.steps):
                arrays = {f"{what}{k}": pairs[k][place] for k in (0, 1) for place, what in enumerate("xv")}
                kept = {f"m{k}{key}": a for k in (0, 1) for key, a in self.own[k].made.state.memory.items()}
                journal.put(name, {"step": step + 1, "ledger": ledger.said()}, {**arrays, **kept, "sums": sums})
        return sums / plan.collected

    def _expect(self, steps: list[int]) -> None:
        """Say at which steps gradients will be asked for: rows that are fetched from elsewhere then come together."""
        if not self.fresh.sampler.recipe.full:
            stream, batch = Stream(self.fresh.seed, self.fresh.chains), self.fresh.sampler.recipe.batch
            space: Any = self.space
            for step in steps:
                space.expect(space.places(*stream.words(step, Purpose.BATCH, batch)))

    def _joined(self, noise: tuple[StepNoise, StepNoise], step: int) -> StepNoise:
        """The noise of the long step: that of the two short ones, or its own where it is not known how to join them."""
        if self.dynamics.couples_halves:
            return self.dynamics.joined(*self.schemes, noise)
        long, (count, dim) = self.schemes[0], noise[0].before[0].shape
        apart = Stream(self.seed + (1 << 52), self.fresh.chains)
        return step_noise(long, apart.normals(step, long.normals * dim).reshape(count, -1, dim))

    def _move(
        self, which: int, state: tuple[Array, Array], noise: StepNoise, at: int
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """A step; gives the state, that at the kick, and the estimate."""
        scheme = self.schemes[which]
        kicked = pushed(scheme.before, state, noise.before)
        g = self.own[which](kicked[0], at)
        x, v = pushed(scheme.after, kicked, noise.after)
        return (x - scheme.kick.x * g, v - scheme.kick.v * g), kicked, g

    def _collect(
        self, sums: Array, pairs: list[tuple[Array, Array]], kicked: tuple[Array, Array], estimate: Array, step: int
    ) -> None:
        """The terms of one step: raw and corrected ones of both chains, and the balance of the long one."""
        how = self.shown
        spread = np.sqrt(how.variances)
        fresh = []
        for k, (z, _) in enumerate(pairs):
            x, g = how.out(z), estimates(self.fresh, z, step)
            fresh.append(g)
            away = (x - self.correction.mean) / spread
            sums[4 * k] += away
            sums[4 * k + 1] += away**2
            mean, square = self.correction.terms(x, how.displace(g))
            sums[4 * k + 2] += (mean - self.correction.mean) / spread
            sums[4 * k + 3] += square / spread**2
        at_kick = estimates(self.fresh, kicked[0], step)
        z, r, z_kick, v_kick, r_kick, r_own = (
            how.displace(each) / spread
            for each in (
                pairs[0][0], fresh[0] - pairs[0][0], *kicked, at_kick - kicked[0], estimate - kicked[0],
            )
        )  # fmt: skip
        sums[8] += self.balance.mean_terms(r, r_kick)
        sums[9] += self.balance.sd_terms(z, r, z_kick, v_kick, r_kick, r_own**2)

    def measured(self, means: Array, effective: float) -> Measured:
        """From the averages of independent pairs, in units of the whitening's standard deviations; each pair has so
        many effective draws.
        """
        centre = means[4].mean(axis=0)
        squares = [means[k + 1] - 2 * centre * means[k] + centre**2 for k in (0, 4)]
        variance = squares[1].mean(axis=0)
        scale = np.sqrt(variance)
        how = self.shown
        known = self.correction.variance / how.variances
        halved = _ORDER * (means[0] - means[4]) / scale, _ORDER * (squares[0] - squares[1]) / (2 * variance)
        corrected = (
            _ORDER * (means[2] - means[6]) / np.sqrt(known),
            _ORDER * (means[3] - means[7]) / (2 * known),
        )
        middle = means[0].mean(axis=0) + (self.correction.mean - how.centre) / np.sqrt(how.variances)
        seen = means[8] * scale, means[9] - middle * means[8] / 2  # about the mean, not the mode
        sighted = not self.schemes[0].recorded_at_kick
        return Measured(bias_of(*seen), bias_of(*halved), bias_of(*corrected), sighted, effective * means.shape[1])


def _with(setup: Setup, **parts: Any) -> Setup:
    """The same with another scheme or recipe."""
    return replace(setup, sampler=replace(setup.sampler, **parts))


def bias_of(mean_terms: Array, half_variance_terms: Array) -> Bias:
    """From terms (chains, dim) of independent chains; those of the sd are half the relative bias of the variance.

    A variance that is 1 + 2ε times as large makes the sd √(1 + 2ε) times as large.
    """
    root = math.sqrt(len(mean_terms))
    stretch = np.sqrt(np.maximum(1 + 2 * half_variance_terms.mean(axis=0), _LEAST))
    return Bias(
        mean_terms.mean(axis=0),
        mean_terms.std(axis=0, ddof=1) / root,
        stretch - 1,
        half_variance_terms.std(axis=0, ddof=1) / (root * stretch),
    )
