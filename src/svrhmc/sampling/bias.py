"""The bias of a sampler, measured by pairs of short chains; more of them are run until they decide.

The chains of a pair have the steps η and η/2 on one Brownian path, and the same batches. Their moments differ by 3/4 of
the bias where that is of second order in η, and by 1/2 where it is of first order, as that from noisy gradients is. The
same holds for every other average, in particular for that of the corrected terms (`Correction`), which is what a
posterior reports.

From the long chain the terms of its balance are collected as well: what stationarity implies for a chain's own moments,
a measure of bias without the noise of the draws. In whitened variables write ∇f(z) = z + r(z), with r small where π is
nearly N(0, I). In any one direction, with y = (z, v), a scheme makes y* = P y + Lp ξ and then, with r̂ the estimate of
r at y*,

    y′ = A y* − k r̂ + Lq ξ′,            A = Q − k e₁ᵀ,      M = A P,

and E[r̂ | y*, memory] = r(z*) for every gradient that is unbiased. In its stationary law a chain has E y′ = E y and
E y′y′ᵀ = E yyᵀ (with snapshots, on average over an epoch), so that exactly

    E y = −(I − M)⁻¹ k E r(z*),
    S − M S Mᵀ = A Lp Lpᵀ Aᵀ + Lq Lqᵀ − A h kᵀ − k hᵀ Aᵀ + q k kᵀ,      S = E yyᵀ,  h = E y* r(z*),  q = E r̂².

Both are linear in averages of terms of the size of r:

    E z = −c₁ E r(z*),            E z² = s₀ + s_z E z*r(z*) + s_v E v*r(z*) + s_q E r̂².

Stein's identities, E ∇f = 0 and E z ∇f = 1 under π, then measure the bias of a mean, in standard deviations, and that
of a standard deviation, relative, to first order by

    E[r(z) − c₁ r(z*)],           ½ E[s₀ + s_z z*r(z*) + s_v v*r(z*) + s_q r̂² + z r(z) − 1],

whose terms vary as little as r does: the spread of z itself, which is all the noise of Stein's own averages where r is
small, has dropped out. Where the recorded state is the one at the kick, z = z*, the first is blind (c₁ = 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from svrhmc.checkpoint import Clock, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget, BudgetSpent
from svrhmc.core.errors import whole_number
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.dynamics import IDENTITY, SILENT, Kick, Scheme, StepNoise, pushed, step_noise
from svrhmc.engines import NONE, Chains, Setup, State, chains, estimates
from svrhmc.gradients import Gradient
from svrhmc.samplers import Sampler, memory_of
from svrhmc.sampling import costs
from svrhmc.sampling.certificate import Bias, Certificate, Measured, judge, unmeasured
from svrhmc.sampling.coordinates import ReportedCoordinates
from svrhmc.sampling.correction import Correction, DrawMoments
from svrhmc.sampling.gradients import FreshGradients
from svrhmc.whitening.targets import Space

_ORDER = 2.0  # bias over (moment at η − moment at η/2): 4/3 for second order, 2 for first
_FALL = Scheme(IDENTITY, SILENT, Kick(0.0, 1.0), IDENTITY, SILENT)  # v ← v − g
_LEAST = 0.01  # of the variance, where noise says that less than nothing is left
_SETTLED = 5.0  # relaxation times
_MOST_REMEMBERED = 1 << 22  # numbers that all chains together may remember of the rows
_FEWEST, _FIRST, _MOST = 64, 256, 4096  # pairs
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 30.0  # that the first of them, and all of them, may be expected to take
# The terms that are averaged for a pair: four of its long chain, the same of its short one, and those of the balance
_MEAN, _SQUARE, _CORRECTED_MEAN, _CORRECTED_SQUARE = range(4)
_SHORT, _BALANCE_MEAN, _BALANCE_SD, _TERMS = 4, 8, 9, 10


class Balance(NamedTuple):
    """The five constants of a scheme."""

    c1: float
    s0: float
    sz: float
    sv: float
    sq: float

    def mean_terms(self, r: Array, r_kick: Array) -> Array:
        """r(z) − c₁ r(z*): their mean is the bias of the mean, in standard deviations."""
        terms: Array = r - self.c1 * r_kick
        return terms

    def sd_terms(
        self, z: Array, r: Array, z_kick: Array, v_kick: Array, r_kick: Array, estimate_square: Array
    ) -> Array:
        """½(E z² by the balance + z r(z) − 1), term by term: their mean is the relative bias of the sd."""
        second = self.s0 + self.sz * z_kick * r_kick + self.sv * v_kick * r_kick + self.sq * estimate_square
        terms: Array = (second + z * r - 1) / 2
        return terms


def balance(scheme: Scheme) -> Balance:
    """The constants of a scheme, by one linear solve for the means and one for the second moments.

    >>> from svrhmc.dynamics import Anchored
    >>> from svrhmc.targets import synthetic
    >>> constants = balance(Anchored(1.0).scheme(synthetic(4, 2)))
    >>> round(constants.c1, 12), round(constants.s0, 12)
    (1.0, 1.0)
    """
    P, Q = scheme.before.matrix(), scheme.after.matrix()
    k, first, second = np.array(scheme.kick), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    A = Q - np.outer(k, first)
    M = A @ P
    before, after = scheme.before_noise.covariance(), scheme.after_noise.covariance()

    def crossed(h: Array) -> Array:
        return -np.outer(A @ h, k) - np.outer(k, A @ h)

    sides = (A @ before @ A.T + after, crossed(first), crossed(second), np.outer(k, k))
    solved = np.linalg.solve(np.eye(4) - np.kron(M, M), np.stack([side.ravel() for side in sides], axis=1))
    c1 = np.linalg.solve(np.eye(2) - M, k)[0]
    return Balance(float(c1), *(float(value) for value in solved[0]))


def relaxation(scheme: Scheme) -> float:
    """Steps in which the mean of a chain on N(0, I) forgets a factor e of where it began."""
    return -1 / math.log(min(max(scheme.growth(1.0), 1e-6), 1 - 1e-12))


def settling_steps(scheme: Scheme, epoch: int) -> int:
    """Five relaxation times on N(0, I)."""
    return whole_epochs(_SETTLED * relaxation(scheme), epoch)


def whole_epochs(steps: float, epoch: int) -> int:
    """A number of steps, rounded up to whole epochs if these are shorter."""
    count = math.ceil(steps)
    return -(-count // epoch) * epoch if epoch <= count else count


class OwnEstimates:
    """A sampler's own estimates of ∇f, with the memory of its chains, at states that are moved from outside."""

    def __init__(self, setup: Setup) -> None:
        empty = np.zeros((len(setup.chains), setup.target.dim))
        self.chains: Chains = chains("auto", _with_parts(setup, scheme=_FALL), State(empty, empty))

    def __call__(self, x: Array, step: int) -> Array:
        """The estimates that the chains would make at the states x in this step."""
        own_chains = self.chains
        own_chains.state = State(x, np.zeros_like(x), own_chains.state.memory, step)
        own_chains.extend(1, NONE)
        return -own_chains.state.v


@dataclass(frozen=True)
class Plan:
    """How many pairs run, for how many steps; every `thin`-th of the last `used` steps counts."""

    chains: int
    steps: int
    used: int
    thin: int
    effective: float  # draws of one pair

    def counts(self, step: int) -> bool:
        """Whether the state after this step counts."""
        return step >= self.steps - self.used and (self.steps - 1 - step) % self.thin == 0

    @property
    def collected(self) -> int:
        """The number of steps that count."""
        return -(-self.used // self.thin)

    def rows(self, own_rows: float, fresh_rows: float) -> float:
        """Component gradients of all pairs, given those of the chain's own estimate and of a fresh one."""
        return float(self.chains) * (3 * self.steps * own_rows + 3 * self.collected * fresh_rows)


def plan_of(sampler: Sampler, space: Space, pairs: int, observed_relaxation: float = 0.0) -> Plan:
    """A plan for this many pairs, or fewer if they have to remember much; whole epochs are used. observed_relaxation:
    steps in which chains were observed to forget where they began, which may be more than on N(0, I).
    """
    recipe = sampler.gradient.recipe(space)
    scheme, epoch = sampler.dynamics.scheme(space), recipe.epoch
    time = max(relaxation(scheme), observed_relaxation)
    settle = whole_epochs(_SETTLED * time, epoch)
    used = settle if epoch <= settle else epoch
    thin = max(1, int(time / 2)) if epoch == 1 else 1  # else all parts of an epoch
    if recipe.carries:
        numbers = recipe.n * (1 if space.scalar_parts else space.dim) if recipe.remembers else space.dim
        pairs = min(pairs, max(16, _MOST_REMEMBERED // (2 * numbers)))
    return Plan(pairs, settle + used, used, thin, max(1.0, used / (2 * time)))


class Pairs:
    """Pairs of chains, whose states are kept in the journal."""

    def __init__(
        self,
        sampler: Sampler,
        fresh: Setup,
        correction: Correction,
        seed: int,
        reported: ReportedCoordinates | None = None,
    ) -> None:
        self.reported = ReportedCoordinates(fresh.target.whitening, None) if reported is None else reported
        self.space, self.fresh, self.correction, self.seed = fresh.target, fresh, correction, seed
        coarse = sampler.dynamics
        fine = replace(coarse, step_size=coarse.step_size / 2)  # type: ignore[type-var]
        self.dynamics, self.schemes = coarse, (coarse.scheme(self.space), fine.scheme(self.space))
        self.balance = balance(self.schemes[0])
        setup = sampler.setup(self.space, seed, fresh.chains, fresh.threads)
        recipe = setup.sampler.recipe
        if recipe.reference == "snapshot":  # the long chain's steps are numbered 0, 2, 4, …
            recipe = replace(recipe, period=2 * recipe.period)
        self.own_estimates = (OwnEstimates(_with_parts(setup, recipe=recipe)), OwnEstimates(setup))

    def compile(self) -> None:
        """Compile what the chains' own estimates need."""
        self.own_estimates[1].chains.compile()

    def averages(self, start: Array, plan: Plan, journal: Journal, name: str, budget: Budget) -> Array:
        """Averages over the used steps (term, pair, dim), from states (pairs, dim) with nearly the sampler's law."""
        count, dim = start.shape
        pairs = [(start.copy(), np.zeros_like(start)) for _ in range(2)]
        sums, begin, clock = np.zeros((_TERMS, count, dim)), 0, Clock()
        stream, short = Stream(self.seed, self.fresh.chains), self.schemes[1]
        if (record := journal.get(name)) is not None:
            budget.restore(record)
            begin, sums = record.value("step", whole_number, 1, plan.steps), record.array("sums", sums.shape).copy()
            pairs = [(record.array(f"x{k}", start.shape), record.array(f"v{k}", start.shape)) for k in (0, 1)]
            for k in (0, 1):
                self.own_estimates[k].chains.state = State(
                    *pairs[k], memory_of(record, f"m{k}", self.own_estimates[k].chains)
                )
        if self.space.at_hand < self.space.n:
            self._expect([step for step in range(begin, plan.steps) if plan.counts(step)])
        for step in range(begin, plan.steps):
            budget.check()
            normals = [stream.normals(2 * step + k, short.normals * dim).reshape(count, -1, dim) for k in (0, 1)]
            noise = (step_noise(short, normals[0]), step_noise(short, normals[1]))
            joined = self._joined_noise(noise, step)
            with journal.within(f"within-{name}", budget, step, 1 + step - begin):
                pairs[0], kicked, estimate = self._step_of_chain(0, pairs[0], joined, 2 * step)
                pairs[1], *_ = self._step_of_chain(1, pairs[1], noise[0], 2 * step)
                pairs[1], *_ = self._step_of_chain(1, pairs[1], noise[1], 2 * step + 1)
                if plan.counts(step):
                    self._collect(sums, pairs, kicked, estimate, step)
            if journal.kept and (clock.due() or step + 1 == plan.steps):
                arrays = {f"{letter}{k}": pairs[k][index] for k in (0, 1) for index, letter in enumerate("xv")}
                memories = {
                    f"m{k}{key}": a for k in (0, 1) for key, a in self.own_estimates[k].chains.state.memory.items()
                }
                journal.put(name, {"step": step + 1, "ledger": budget.ledger()}, {**arrays, **memories, "sums": sums})
        return sums / plan.collected

    def _expect(self, steps: list[int]) -> None:
        """Announce the steps at which gradients will be needed, so that rows not in memory are fetched together."""
        if not self.fresh.sampler.recipe.full:
            stream, batch = Stream(self.fresh.seed, self.fresh.chains), self.fresh.sampler.recipe.batch
            space: Space = self.space
            for step in steps:
                space.expect(space.places(*stream.words(step, Purpose.BATCH, batch)))

    def _joined_noise(self, noise: tuple[StepNoise, StepNoise], step: int) -> StepNoise:
        """The noise of the long step: joined from the two short ones, or its own if they cannot be joined."""
        if self.dynamics.couples_halves:
            return self.dynamics.joined(*self.schemes, noise)
        long, (count, dim) = self.schemes[0], noise[0].before[0].shape
        separate = Stream(self.seed + (1 << 52), self.fresh.chains)
        return step_noise(long, separate.normals(step, long.normals * dim).reshape(count, -1, dim))

    def _step_of_chain(
        self, chain: int, state: tuple[Array, Array], noise: StepNoise, number: int
    ) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
        """A step; gives the state, that at the kick, and the estimate."""
        scheme = self.schemes[chain]
        kicked = pushed(scheme.before, state, noise.before)
        g = self.own_estimates[chain](kicked[0], number)
        x, v = pushed(scheme.after, kicked, noise.after)
        return (x - scheme.kick.x * g, v - scheme.kick.v * g), kicked, g

    def _collect(
        self, sums: Array, pairs: list[tuple[Array, Array]], kicked: tuple[Array, Array], estimate: Array, step: int
    ) -> None:
        """Add the terms of one step: raw and corrected ones of both chains, and the balance of the long one."""
        reported = self.reported
        spread = np.sqrt(reported.variances)
        fresh = []
        for (z, _), terms in zip(pairs, (sums[:_SHORT], sums[_SHORT:]), strict=True):
            x, g = reported.out(z), estimates(self.fresh, z, step)
            fresh.append(g)
            deviation = (x - self.correction.mean) / spread
            terms[_MEAN] += deviation
            terms[_SQUARE] += deviation**2
            mean, square = self.correction.terms(x, reported.displace(g))
            terms[_CORRECTED_MEAN] += (mean - self.correction.mean) / spread
            terms[_CORRECTED_SQUARE] += square / spread**2
        at_kick = estimates(self.fresh, kicked[0], step)
        z, r, z_kick, v_kick, r_kick, r_own = (
            reported.displace(values) / spread
            for values in (
                pairs[0][0], fresh[0] - pairs[0][0], *kicked, at_kick - kicked[0], estimate - kicked[0],
            )
        )  # fmt: skip
        sums[_BALANCE_MEAN] += self.balance.mean_terms(r, r_kick)
        sums[_BALANCE_SD] += self.balance.sd_terms(z, r, z_kick, v_kick, r_kick, r_own**2)

    def measured(self, means: Array, effective: float) -> Measured:
        """From the averages of independent pairs, in units of the whitening's standard deviations; each pair has so
        many effective draws.
        """
        reported, long, short = self.reported, means[:_SHORT], means[_SHORT:]
        centre = short[_MEAN].mean(axis=0)
        squares = [terms[_SQUARE] - 2 * centre * terms[_MEAN] + centre**2 for terms in (long, short)]
        variance, corrected_variance = squares[1].mean(axis=0), self.correction.variance / reported.variances
        halved = (
            _ORDER * (long[_MEAN] - short[_MEAN]) / np.sqrt(variance),
            _ORDER * (squares[0] - squares[1]) / (2 * variance),
        )
        corrected = (
            _ORDER * (long[_CORRECTED_MEAN] - short[_CORRECTED_MEAN]) / np.sqrt(corrected_variance),
            _ORDER * (long[_CORRECTED_SQUARE] - short[_CORRECTED_SQUARE]) / (2 * corrected_variance),
        )
        middle = long[_MEAN].mean(axis=0) + (self.correction.mean - reported.centre) / np.sqrt(reported.variances)
        off = means[_BALANCE_MEAN]
        balanced = off * np.sqrt(variance), means[_BALANCE_SD] - middle * off / 2  # about the mean, not the mode
        sighted = not self.schemes[0].recorded_at_kick
        return Measured(bias_of(*balanced), bias_of(*halved), bias_of(*corrected), sighted, effective * means.shape[1])


def _with_parts(setup: Setup, **parts: object) -> Setup:
    """The setup with another scheme or recipe."""
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


@dataclass(frozen=True, eq=False)
class BiasJudge:
    """Runs pairs of chains for a sampler that has a bias, and gives the verdict on its draws."""

    fresh: FreshGradients
    budget: Budget
    journal: Journal
    tolerance: float
    reported: ReportedCoordinates

    def judge(
        self,
        sampler: Sampler,
        moments: DrawMoments,
        attempt: tuple[int, int],
        doubt: str = "",
        observed_relaxation: float = 0.0,
    ) -> Certificate:
        """The verdict on draws with the law of the sampler.

        attempt: its seed and number. observed_relaxation: steps in which its chains were observed to forget where they
        began.
        """
        (seed, number), space, gradient = attempt, self.fresh.space, moments.gradient
        assert moments.control is not None
        late = moments.z[:, moments.z.shape[1] // 2 :]
        count = late.shape[0] * late.shape[1]
        certificate, averages, begun = unmeasured(self.tolerance, moments.stein, doubt), [], 0
        cost, needed = (
            self.cost_of_pair(sampler, gradient, observed_relaxation),
            self.first_count(sampler, gradient, observed_relaxation),
        )
        if not self.budget.unlimited:
            needed = max(_FEWEST, min(needed, int(self.budget.affordable(cost))))
        while begun < _MOST and self.budget.covers(cost[0] * (needed - begun), cost[1] * (needed - begun)):
            plan = plan_of(sampler, space, needed - begun, observed_relaxation)
            numbers = np.arange(begun, begun + plan.chains)
            setup = self.fresh.setup(gradient, numbers, seed + (3 << 49))
            pairs = Pairs(sampler, setup, moments.control, seed + (1 << 51), self.reported)
            self.budget.compile(pairs.compile)
            start = late[np.unravel_index(numbers * count // plan.chains % count, late.shape[:2])]
            name = f"pairs-{number}-{moments.z.shape[1]}-{begun}"
            try:
                averages.append(pairs.averages(start, plan, self.journal, name, self.budget))
            except BudgetSpent:  # then those before them decide
                break
            self.budget.evaluations += cost[1] * plan.chains * space.n
            begun += plan.chains
            measured = pairs.measured(np.concatenate(averages, axis=1), plan.effective)
            certificate = judge(moments.stein, measured, self.tolerance, moments.chance, doubt)
            factor = float(f"{measured.corrected.more(self.tolerance):.6g}")
            needed = min(_MOST, math.ceil(min(max(1.2 * factor, 2.0), 8.0) * begun))
            enough = measured.corrected.verdict(self.tolerance) != "undecided" or not certificate.corrects
            if enough or factor * begun > _MOST or cost[0] * needed > _MOST_SECONDS:
                break
        return certificate

    def first_count(self, sampler: Sampler, gradient: Gradient, observed_relaxation: float = 0.0) -> int:
        """The number of pairs that fit into a second, within bounds."""
        return int(
            min(max(_FIRST_SECONDS / self.cost_of_pair(sampler, gradient, observed_relaxation)[0], _FEWEST), _FIRST)
        )

    def first_cost(self, sampler: Sampler, gradient: Gradient) -> tuple[float, float]:
        """The cost of the first pairs, in seconds and in passes."""
        seconds, passes = self.cost_of_pair(sampler, gradient)
        count = self.first_count(sampler, gradient)
        return count * seconds, count * passes

    def cost_of_pair(
        self, sampler: Sampler, gradient: Gradient, observed_relaxation: float = 0.0
    ) -> tuple[float, float]:
        """The cost of a pair, in seconds and in passes."""
        space, plan = self.fresh.space, plan_of(sampler, self.fresh.space, 1, observed_relaxation)
        own_recipe, fresh_recipe = sampler.gradient.recipe(space), gradient.recipe(space)
        seconds = 3 * plan.steps * costs.recipe_seconds(space, own_recipe) + 3 * plan.collected * costs.recipe_seconds(
            space, fresh_recipe
        )
        return seconds, plan.rows(own_recipe.rows_of_estimate, fresh_recipe.rows_of_estimate) / space.n
