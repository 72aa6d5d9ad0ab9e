"""`sample` for mixed models: pilot runs find the variables, split HMC draws in them, and scales are judged first.

Gaussian models of which `svrhmc.density.gaussian_scales` has the density of the scales are drawn by that
(`svrhmc.exact.marginal`): what differs is where the variables come from, the sampler, and the density that is scanned.

Nothing in it decides what is right: split HMC leaves the posterior invariant whatever the variables are. A first centre
comes from Laplace's approximation of the scales' marginal density, which may be several posterior standard deviations
off where levels have few rows; short pilot runs then say where the scales are, and how they vary together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import Budget, BudgetSpent, look
from svrhmc.core.errors import requirement
from svrhmc.core.machine import one_blas_thread
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import is_part
from svrhmc.density.gaussian_scales import GaussianScales, refusal
from svrhmc.density.mixed import MixedModel
from svrhmc.diagnostics import spread
from svrhmc.exact import SplitHMC
from svrhmc.exact.base import Runnable
from svrhmc.exact.marginal import MarginalMH, ScaleVariables
from svrhmc.sampling.answer import Answer, Cost, Request, independent_trace
from svrhmc.sampling.certificate import Bias, Certificate, unknown_bias, unmeasured
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location, error_of_mean
from svrhmc.sampling.doubts import (
    agreement,
    least_tail_acceptance,
    longest_stay,
    refusing_tail,
    tail_draws,
    unsettled,
)
from svrhmc.sampling.drawing import LEAST, Drawing, FollowUp
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.scales import displacement, find_scales
from svrhmc.trace import Trace, sampler_of
from svrhmc.whitening.groups import Bend, GroupVariables, first_centre, log_marginal, mode_given
from svrhmc.whitening.targets import Space

_PILOTS = (50, 100)  # draws of each chain in the pilot runs
_PILOT_CHAINS = 4
_EVERY, _WIDE = 8, 2000  # draws of a pilot run by which a step is chosen; coordinates from which it begins short
_FIRST = 20  # draws after which the step of a pilot run is judged
_ACCEPTED, _LEAST_ACCEPTED = 0.85, 0.75  # shares of proposals: wanted, and below which a step is made shorter
_LEAST_LEAPFROGS, _QUARTER = 2, 1.6  # of a trajectory, and how far it turns
_BURN_IN = {SplitHMC.method: 60, MarginalMH.method: 10}  # draws that are not kept, by which a step is judged
_JUDGED = 1000  # effects whose effective draws and agreement are looked at
_FAR, _SHRINKS = 5.0, 8
_PILOT_SEED = 1 << 52
_EXPECTED = {SplitHMC.method: 0.6, MarginalMH.method: 0.7}  # effective draws of a draw
_WHY = {
    SplitHMC.method: "exact, with full gradients, in variables that make effects and their scales nearly independent.",
    MarginalMH.method: "exact: the scales by their own density, in which effects and coefficients are integrated out, "
    "and these by their Gaussian law given the scales.",
}
_SCANNED = {SplitHMC.method: "Laplace's approximation", MarginalMH.method: "the density of the scales"}
_SPREAD_OUT = 0.25  # of log τ: a standard deviation from which a scale may be near 0
_MISSED = 0.08  # of the mass, below the draws' first percentile, that Laplace's approximation may see
_SCAN = np.array([-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
_COARSE = np.array([-4.0, -1.5, 0.0, 1.5])  # where a scale is well known
_LAPLACE, _NUMBERS = 256, 1 << 22  # draws of Laplace's approximation; numbers that are looked at together
_MOST_KEPT = 1 << 27  # numbers of effects that are kept: 1 GB

_INVARIANT = (
    "the sampler leaves the posterior invariant, so that it has no bias, and its chains agree, on the scales of the "
    "groups and on the effects"
)
_NO_DRAWS = "the budget ended before any draw; these numbers are those of Laplace's approximation"


class _Variables(NamedTuple):
    """The variables, states of the chains in them, and Laplace's approximation: θ, w, standard deviations of θ, and w
    less its mean given θ, from standard normal numbers.
    """

    space: Space
    start: Array
    theta: Array
    w: Array
    sds: Array
    sampler: Runnable
    displace: Callable[[Array], Array]


class ReportedEffects:
    """What is read of z: coefficients in the units of the data, shared parameters, standard deviations, correlations,
    and after them some of the effects.
    """

    def __init__(self, space: GroupVariables, units: Units | None) -> None:
        self._space, self._units, model = space, units, space.model
        count = model.effects.stop - model.effects.start
        some = np.unique(np.linspace(0, count - 1, min(count, _JUDGED)).astype(np.int64))
        self._judged = model.effects.start + some
        self.dim = model.reported_dim + len(some)

    def parameters(self, w: Array, theta: Array) -> Array:
        """Coefficients, shared parameters, standard deviations and correlations of states (states, …)."""
        model = self._space.model
        own = np.concatenate([w[:, : model.columns], w[:, model.effects.stop :]], axis=1)
        coefficients = own if self._units is None else self._units.outward(own)
        stated = [term.covariance.stated(theta[:, term.theta]) for term in model.terms]
        return np.concatenate([coefficients, *stated], axis=1)

    def out(self, z: Array, first: int = 0) -> Array:
        """Of draws (chain, draw, dim) or states."""
        flat = z.reshape(-1, z.shape[-1])
        out = np.empty((len(flat), self.dim))
        size = max(1, _NUMBERS // flat.shape[1])
        for begin in range(0, len(flat), size):
            look()
            w, theta = self._space.out_joint(flat[begin : begin + size])
            parameters = self.parameters(w, theta)
            out[begin : begin + size] = np.concatenate([parameters, w[:, self._judged]], axis=1)
        return out.reshape(*z.shape[:-1], self.dim)


class GroupSearch:
    """From a request to an answer, for a `MixedModel`; what is finished stands in the journal."""

    def __init__(self, request: Request, journal: Journal, budget: Budget) -> None:
        self.request, self.journal, self.budget = request, journal, budget
        assert isinstance(request.target, MixedModel)
        self.model: MixedModel = request.target
        names = (None, SplitHMC.method, MarginalMH.method)
        self._given = None if request.method in names else request.method
        if not (self._given is None or isinstance(self._given, SplitHMC | MarginalMH)):
            allowed = f"None, {SplitHMC.method!r}, {MarginalMH.method!r}, a SplitHMC or a MarginalMH for groups"
            raise requirement("method", allowed, repr(self._given))
        self._method = self._chosen_method()

    def _chosen_method(self) -> str:
        """As asked for; else the density of the scales where it is known and its factors are small enough."""
        asked, reason = getattr(self._given, "method", self.request.method), refusal(self.model)
        if asked == MarginalMH.method and reason is not None:
            raise requirement("method", f"None or {SplitHMC.method!r} for this model", repr(asked), reason)
        return str(asked or (SplitHMC.method if reason else MarginalMH.method))

    def run(self) -> tuple[Answer, Cost]:
        """Until there are as many effective draws as were asked for, or a budget ends."""
        own_threads = self._method == MarginalMH.method  # which threads of BLAS would wait for
        with one_blas_thread() if own_threads else nullcontext():
            return self._run()

    def _run(self) -> tuple[Answer, Cost]:
        request, budget = self.request, self.budget
        try:
            with stage("finding the scales of the groups", request.progress), budget.binding():
                self.variables = self._variables()
        except BudgetSpent:
            raise budget.missing("the scales of the groups are found") from None
        self.reported = ReportedEffects(self.variables.space, request.units)
        budget.lap("mode and variables")
        try:
            with budget.binding():
                answer = self._drawn()
        except BudgetSpent:
            answer = self._laplace()
        seconds, passes = budget.used()
        return answer, Cost(passes, seconds, budget.compiling, dict(budget.steps))

    # Variables

    def _variables(self) -> _Variables:
        return self._scales() if self._method == MarginalMH.method else self._joint_variables()

    def _scales(self) -> _Variables:
        """Of the scales alone."""
        model, request = self.model, self.request
        density = GaussianScales(model)
        record, dim = self.journal.get("scales"), density.dim
        if record is None:
            first, seed = self._first_theta(), request.seed + _PILOT_SEED
            space, start, mode, sds = find_scales(model, density, first, seed, len(request.chains))
            arrays = {field.name: getattr(space.bend, field.name) for field in fields(Bend)}
            arrays |= {"mixing": space.mixing, "start": start, "mode": mode, "sds": sds}
            self.journal.put("scales", {"ledger": self.budget.ledger()}, arrays)
        else:
            self.budget.restore(record)
            bend = Bend(*(record.array(field.name, (dim,)) for field in fields(Bend)))
            space = ScaleVariables(model, density, bend, record.array("mixing", (dim, dim)))
            start, mode = record.array("start", (len(request.chains), model.dim)), record.array("mode", (dim,))
            sds = record.array("sds", (dim,))
        w, displace = displacement(density, mode, sds)
        return _Variables(space, start, mode[: model.theta_dim], w, sds[: model.theta_dim], MarginalMH(), displace)

    def _joint_variables(self) -> _Variables:
        record, model = self.journal.get("variables"), self.model
        dim = model.theta_dim
        if record is not None:
            self.budget.restore(record)
            bend = Bend(*(record.array(field.name, (dim,)) for field in fields(Bend)))
            mixing, w = record.array("mixing", (dim, dim)), record.array("w", (model.inner_dim,))
            space = GroupVariables(model, bend, mixing, w)
            return _Variables(
                space,
                record.array("start", (None, model.dim)),
                record.array("first theta", (dim,)),
                record.array("first w", (model.inner_dim,)),
                record.array("sds", (dim,)),
                record.value("sampler", lambda _, parts: sampler_of(parts)),
                space.displace,
            )
        self.budget.compile(lambda: model.energies_given(np.zeros((2, model.inner_dim))))
        found = self._find_variables()
        space = found.space
        arrays = {field.name: getattr(space.bend, field.name) for field in fields(Bend)}
        arrays |= {"mixing": space.mixing, "w": space.w, "start": found.start, "first theta": found.theta}
        settings = {"ledger": self.budget.ledger(), "sampler": found.sampler.settings()}
        self.journal.put("variables", settings, {**arrays, "first w": found.w, "sds": found.sds})
        return found

    def _find_variables(self) -> _Variables:
        model = self.model
        theta, w, sds = first_centre(model, self._first_theta())
        space = GroupVariables(model, Bend.straight(theta, sds), np.eye(len(theta)), w)
        scales = [term.theta.start + a for term in model.terms for a in range(term.width)]
        z = self._near(space, Stream(self.request.seed + _PILOT_SEED, np.arange(_PILOT_CHAINS)))
        sampler = SplitHMC() if space.dim < _WIDE else SplitHMC(_QUARTER / 4, 4)
        for number, count in enumerate(_PILOTS):
            sampler, states, accepted = self._pilot(space, sampler, z, count, number)
            some = states[:, count // 3 :].reshape(-1, model.dim)
            draws = _theta_of(space, some)
            bend = Bend.of_draws(draws, scales)
            mixing = _correlation_root(bend.into(draws))
            x, last = space.out_joint(states[:, -1])
            at = states[:, count // 2 :: _EVERY].reshape(-1, model.dim)
            w_new = mode_given(model, bend(np.zeros(model.theta_dim))[0], space.w)
            before, space = space, GroupVariables(model, bend, mixing, w_new)
            z = space.into(x, last)
            sampler = self._suited(space, space.into(*before.out_joint(at)), sampler, accepted)
        chains = len(self.request.chains)
        start = z[np.arange(chains) % _PILOT_CHAINS]
        return _Variables(space, start, theta, w, sds, sampler, space.displace)

    def _first_theta(self) -> Array:
        """A third of the scale that the prior allows, and no correlation."""
        theta = np.zeros(self.model.theta_dim)
        for term in self.model.terms:
            theta[term.theta][: term.width] = term.covariance.heavy.location - 1.1
        return theta

    def _near(self, space: GroupVariables, stream: Stream) -> Array:
        """Draws of N(0, I), halved while they are far out."""
        z = stream.normals(0, space.dim, Purpose.START, Purpose.START_FINE)
        least, allowed = space.energies(np.zeros_like(z))[0], space.dim / 2 + _FAR * np.sqrt(space.dim)
        for _ in range(_SHRINKS):
            with np.errstate(over="ignore", invalid="ignore"):
                far = ~(space.energies(z)[0] - least <= allowed)
            z = np.where(far[:, None], z / 2, z)
        return z

    @staticmethod
    def _suited(space: GroupVariables, z: Array, sampler: SplitHMC, accepted: float) -> SplitHMC:
        """The sampler of the next run: one leapfrog where R = f(z) − ½|z|² hardly varies at some states, else steps of
        which 0.85 are accepted, as far as a share `accepted` of those of a pilot run tells.

        A change of energy of variance s² is accepted with probability 2Φ(−s/2), and s grows as the square of a step.
        (Over grids of steps and leapfrogs on eight models, most effective draws a gradient, of numbers and of their
        squares, were at shares of 0.85 to 0.95 and about a quarter of a turn.)
        """
        from scipy.special import ndtri

        R = space.energies(z)[0] - 0.5 * (z * z).sum(axis=1)
        wanted = SplitHMC.for_remainder(R - R[0])
        if wanted.leapfrogs == 1:
            return wanted
        change = np.sqrt(ndtri(_ACCEPTED / 2) / ndtri(min(max(accepted, 0.05), 0.99) / 2))
        longest = sampler.step_size * float(np.clip(change, 0.5, 2.0))
        leapfrogs = max(_LEAST_LEAPFROGS, math.ceil(_QUARTER / longest))
        return SplitHMC(_QUARTER / leapfrogs, leapfrogs)

    def _pilot(
        self, space: GroupVariables, sampler: SplitHMC, z: Array, count: int, number: int
    ) -> tuple[SplitHMC, Array, float]:
        """States (chain, draw, dim) of a short run, whose step is made shorter until proposals are accepted, and the
        share of those that were.
        """
        seed, tries = self.request.seed + _PILOT_SEED + ((number + 1) << 44), 0
        while True:
            numbers = np.arange(_PILOT_CHAINS) + (tries << 8)
            chains = sampler.chains(space, seed, numbers, self.request.threads, z)
            first = chains.extend(_FIRST)
            self.budget.evaluations += float(first.evaluations)
            smaller = sampler.smaller()
            if smaller is None or np.sum(np.asarray(first.accepted)) >= _LEAST_ACCEPTED * _FIRST * _PILOT_CHAINS:
                break
            sampler, z, tries = smaller, chains.state.x, tries + 1
        rest = chains.extend(count - _FIRST)
        self.budget.evaluations += float(rest.evaluations)
        accepted = float(np.sum(np.asarray(first.accepted)) + np.sum(np.asarray(rest.accepted))) / (
            count * len(numbers)
        )
        return sampler, np.concatenate([first.draws, rest.draws], axis=1), accepted

    # Draws

    def _drawn(self) -> Answer:
        request, given = self.request, self._given
        sampler: Runnable = self.variables.sampler if given is None else given
        number, burn_in = 0, _BURN_IN[self._method]
        while True:
            drawing = self._drawing(sampler, number)
            accepted = drawing.settle(burn_in, request.progress)
            smaller = None if given is not None else sampler.smaller()
            enough = accepted.sum() >= _LEAST_ACCEPTED * burn_in * len(request.chains)
            if smaller is None or enough or drawing.draws_made or drawing.cut(burn_in):
                break
            sampler, number = smaller, number + 1
        drawn = drawing.draw(request.draws, _EXPECTED[self._method], request.progress)
        self.budget.lap("sampling")
        return self._answer(sampler, drawing, drawn)

    def _drawing(self, sampler: Runnable, number: int) -> Drawing:
        request, space = self.request, self.variables.space
        seed, start = request.seed + (number << 40), self.variables.start
        chains = sampler.chains(space, seed, request.chains, request.threads, start)
        settings = {
            "sampler": sampler.settings() if is_part(sampler) else {}, "engine": chains.engine, "seed": request.seed,
            "n": self.model.n, "step_size": None,
        }  # fmt: skip
        return Drawing(
            chains, request.chains, self.reported, f"chains-{number}", self.journal, self.budget, settings,
            FollowUp(step=1.0, passes=sampler.rows_of_step(space) / space.n), width=self.reported.dim, gradients=False,
            every=self._every,
        )  # fmt: skip

    @property
    def _every(self) -> int:
        """Of how many draws one is kept with all of its effects: 1 unless they would take more than 1 GB."""
        return max(1, round(self.request.draws / _EXPECTED[self._method] * self.model.inner_dim / _MOST_KEPT))

    def _answer(self, sampler: Runnable, drawing: Drawing, drawn: Any) -> Answer:
        request, count = self.request, self.model.reported_dim
        x = drawn.x
        with stage("checking the scales", request.progress):
            raw, r_hat = Location(x.mean(axis=(0, 1)), spread(x)), agreement(x)
            effective = np.minimum(drawn.effective, 2 * tail_draws(x))
            chains, decided = len(request.chains), x[..., self._decided]
            stay = longest_stay(decided)
            doubt = unsettled(effective, r_hat, request.draws, chains, drawn.stopped, 1, stay)
            doubt = doubt or refusing_tail(least_tail_acceptance(decided, drawing.first, sampler.cycle))
            scan = self._scan(drawn.z)
        own = slice(0, count)
        errors = Corrected(
            raw.mean[own], raw.sd[own], error_of_mean(x[..., own]),
            error_of_mean((x[..., own] - raw.mean[own]) ** 2) / np.maximum(2 * raw.sd[own], 1e-300),
        )  # fmt: skip
        certificate = self._judged(doubt or scan.doubt, scan.one_mode, errors)
        trace = Trace(
            draws=np.ascontiguousarray(x[..., own]),
            passes=drawn.spent / self.model.n,
            gradient_evaluations=round(drawing.chains.state.spent),
            velocity=np.zeros((chains, count)),
            seconds=self.budget.steps.get("sampling", 0.0),
            sampler=sampler,
            seed=request.seed,
            chains=request.chains,
            engine=drawing.chains.engine,
            acceptance=drawing.acceptance,
        )
        return Answer(
            mean=raw.mean[own], sd=raw.sd[own], raw=Location(raw.mean[own], raw.sd[own]), corrected=errors,
            laplace=self._laplace_location(), trace=trace, method=sampler.method, sampler=sampler,
            why=_WHY[self._method], certificate=certificate, ess=drawn.effective[own],
            r_hat=r_hat[own], complete=drawn.complete, parameters=None, group_effects=self._effects(drawn.z),
        )  # fmt: skip

    @property
    def _decided(self) -> slice:
        """Of what is reported, that which a refused proposal leaves where it is."""
        count = self.model.reported_dim
        return slice(count - self.model.theta_dim if self._method == MarginalMH.method else 0, count)

    def _judged(self, doubt: str, one_mode: str | None, errors: Corrected) -> Certificate:
        zero = np.zeros(len(errors.mean))
        bias = Bias(zero, errors.mean_error / errors.sd, zero, errors.sd_error / errors.sd)
        if doubt:
            return unmeasured(self.request.tolerance, bias, doubt)
        certificate = Certificate("exact", self.request.tolerance, bias, None, "exact", _INVARIANT)
        return certificate.knowing(one_mode, 1, "a pilot run of four chains")

    def _scan(self, z: Array) -> _Scan:
        """What Laplace's approximation, exact where all else is Gaussian, says of each scale along its axis, beside the
        draws.

        A doubt where it puts mass below what the draws reach. One mode where every conditional model is log-concave
        and no scale's density falls and rises again.
        """
        model, space = self.model, self.variables.space
        flat = z.reshape(-1, model.dim)
        draws = flat[:, model.inner_dim :] if self._method == MarginalMH.method else _theta_of(space, flat)
        centre, sd = draws.mean(axis=0), draws.std(axis=0)
        alone = True
        for term in model.terms:
            for a in range(term.width):
                place = term.theta.start + a
                wide = sd[place] > _SPREAD_OUT
                grid = _SCAN * max(1.0, 1.5 * float(sd[place])) if wide else _COARSE * 4 * float(sd[place])
                density = self._along(centre, place, grid)
                alone = alone and bool(np.isfinite(density).all()) and _rises_and_falls_once(density)
                if wide and np.isfinite(density).all():
                    low = float(np.quantile(draws[:, place], 0.01))
                    below = _mass_below(centre[place] + grid, density, low)
                    if below > _MISSED:
                        return _Scan(_unvisited(self._method, term.group.parameter_names()[a], below), None)
        loss = model.loss
        convex = bool(loss.convex or (loss.shared and loss.convex_given_shared))
        known = "it is log-concave given the scales of the groups, whose density, scanned along each, has one maximum"
        return _Scan("", known if alone and convex else None)

    def _along(self, centre: Array, place: int, grid: Array) -> Array:
        """The log density at steps of one coordinate of θ from a centre, outwards from there on both sides."""
        if self._method == MarginalMH.method:
            return np.asarray(self.variables.space.along(centre, place, grid), np.float64)
        values, middle = np.empty(len(grid)), int(np.argmin(np.abs(grid)))
        for places in (range(middle, len(grid)), range(middle - 1, -1, -1)):
            w = self.variables.space.w
            for k in places:
                look()
                at = centre.copy()
                at[place] += grid[k]
                values[k], w = log_marginal(self.model, at, w)
        return values

    def _effects(self, z: Array) -> GroupEffects:
        """Draws of all effects."""
        model, space = self.model, self.variables.space
        count, chains = model.effect_count, len(z)
        some = z.reshape(-1, model.dim)
        out, mean = np.empty((len(some), count)), np.zeros(model.inner_dim)
        size = max(1, _NUMBERS // model.dim)
        for begin in range(0, len(some), size):
            w = space.out_joint(some[begin : begin + size])[0]
            out[begin : begin + size] = w[:, model.effects]
            mean += w.sum(axis=0) / len(some)
        return self._named(out.reshape(chains, -1, count), self._every, mean)

    def _named(self, draws: Array, every: int, mean: Array) -> GroupEffects:
        groups = [term.group for term in self.model.terms]
        return GroupEffects(
            tuple(group.name for group in groups),
            tuple(group.column_names or () for group in groups),
            tuple(group.levels or () for group in groups),
            np.concatenate([group.row_counts() for group in groups]),
            draws,
            every,
            tuple(not group.by_level for group in groups),
            self.model.smooth_information(mean),
        )

    # Laplace's approximation

    def _laplace_location(self) -> Location:
        """Means and standard deviations by Laplace's approximation, at the mode of its density of the scales."""
        known, count = self.variables, self.model.reported_dim
        mean = self.reported.parameters(known.w[None, :], known.theta[None, :])[0]
        size = max(1, _NUMBERS // self.model.dim)  # draws at a time: those of 10⁶ effects would take gigabytes
        parts = np.split(np.arange(_LAPLACE), np.arange(size, _LAPLACE, size))
        draws = [self.reported.parameters(*self._laplace_draws(numbers, _PILOT_SEED)) for numbers in parts]
        return Location(mean, np.concatenate(draws).std(axis=0)[:count])

    def _laplace_draws(self, numbers: Indices, seed: int) -> tuple[Array, Array]:
        """w and θ of the draws of these numbers."""
        known, model = self.variables, self.model
        stream = model.randomness(self.request.seed + seed, numbers)
        z = stream.normals(0, model.dim, Purpose.START, Purpose.START_FINE)
        theta = known.theta + known.sds * z[:, model.inner_dim :]
        w = known.w + known.displace(np.ascontiguousarray(z[:, : model.inner_dim]))
        return w, theta

    def _laplace(self) -> Answer:
        """Where a budget ended before there were draws."""
        request, dim = self.request, self.model.reported_dim
        chains = len(request.chains)
        count = max(LEAST, -(-request.draws // chains))
        w, theta = self._laplace_draws(np.arange(chains * count), _PILOT_SEED + 1)
        x = self.reported.parameters(w, theta).reshape(chains, count, dim)
        where, unknown = self._laplace_location(), np.full(dim, np.inf)
        return Answer(
            mean=where.mean, sd=where.sd, raw=Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)),
            corrected=Corrected(where.mean, where.sd, unknown, unknown), laplace=where,
            trace=independent_trace(x, request, 0.0), method="laplace", sampler=None,
            why="Laplace's approximation, because the budget did not pay for draws of the posterior.",
            certificate=unmeasured(request.tolerance, unknown_bias(dim), _NO_DRAWS),
            ess=np.full(dim, float(chains * count)), r_hat=np.ones(dim), complete=False, parameters=None,
            group_effects=self._named(w[:, self.model.effects].reshape(chains, count, -1), 1, w.mean(axis=0)),
        )  # fmt: skip


class _Scan(NamedTuple):
    doubt: str
    one_mode: str | None


def _theta_of(space: GroupVariables, z: Array) -> Array:
    """θ of states, without their effects."""
    theta: Array = space.bend(z[:, space.model.inner_dim :] @ space.mixing.T)[0]
    return theta


def _correlation_root(t: Array) -> Array:
    """A lower triangle A with AAᵀ the correlations of some draws, drawn a little towards none."""
    if t.shape[1] == 1:
        return np.eye(1)
    correlation = 0.95 * np.corrcoef(t.T) + 0.05 * np.eye(t.shape[1])
    return np.asarray(np.linalg.cholesky(correlation), np.float64)


def _rises_and_falls_once(values: Array) -> bool:
    """Whether a sequence rises to one place and falls after it, but for rounding."""
    steps = np.diff(values)
    rising = steps > 1e-6 * max(1.0, float(np.ptp(values)))
    falls = np.flatnonzero(steps < 0)
    return not (len(falls) and rising[falls[0] :].any())


def _mass_below(places: Array, log_density: Array, low: float) -> float:
    """The share of a density, given by its logarithm on a grid, below a place."""
    fine = np.linspace(places[0], places[-1], 2001)
    p = np.exp(np.interp(fine, places, log_density) - log_density.max())
    return float(p[fine < low].sum() / p.sum())


def _unvisited(method: str, name: str, below: float) -> str:
    return (
        f"{_SCANNED[method]} puts {below:.0%} of {name} below what 99 in 100 draws have: the chains may not have "
        "been where this scale is near 0 often enough; more draws would tell"
    )
