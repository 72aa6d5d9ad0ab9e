"""`sample` for mixed models: finds variables, draws in them, and judges the scales before all else.

There are two approaches (`svrhmc.sampling.approach`): to sample the scales by their own density, if all else is
Gaussian given them (`svrhmc.sampling.scales`), or effects and scales together by split HMC (`svrhmc.sampling.joint`).
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from svrhmc.checkpoint import InMemory, Journal
from svrhmc.core.arrays import Array, Indices, cores
from svrhmc.core.deadline import Budget, BudgetSpent, check_budget
from svrhmc.core.errors import requirement
from svrhmc.core.progress import set_progress_note, stage
from svrhmc.core.randomness import Purpose
from svrhmc.density.base import FiniteSum
from svrhmc.density.mixed import MixedModel
from svrhmc.diagnostics import spread
from svrhmc.exact.base import Runnable
from svrhmc.sampling.answer import Answer, Cost, Request, independent_trace
from svrhmc.sampling.approach import MOST_KEPT, PILOT_SEED, Approach, Forecast, UnsuitedError
from svrhmc.sampling.certificate import Bias, Certificate, unknown_bias, unmeasured
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location, error_of_mean
from svrhmc.sampling.doubts import (
    largest_r_hat,
    least_tail_acceptance,
    longest_stay,
    settling_doubt,
    tail_acceptance_doubt,
    tail_draws,
)
from svrhmc.sampling.drawing import LEAST, Drawing, Drawn, FollowUp, tuned
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.joint import JointDensity
from svrhmc.sampling.scales import DensityOfScales
from svrhmc.whitening.targets import Space

_APPROACHES: tuple[type[Approach], ...] = (DensityOfScales, JointDensity)  # the first that can sample a model does
_LEAST_ACCEPTED = 0.75  # of proposals, below which a step is made shorter
_JUDGED = 1000  # effects whose effective draws and agreement are looked at
_SPREAD_OUT = 0.25  # of log τ: a standard deviation from which a scale may be near 0
_MISSED = 0.08  # of the mass, below the draws' first percentile, that Laplace's approximation may see
_SCAN = np.array([-6.0, -4.0, -3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
_COARSE = np.array([-4.0, -1.5, 0.0, 1.5])  # where a scale is well known
_LAPLACE, _NUMBERS = 256, 1 << 22  # draws of Laplace's approximation; numbers that are looked at together

_INVARIANT = (
    "the sampler leaves the posterior invariant, so that it has no bias, and its chains agree, on the scales of the "
    "groups and on the effects"
)
_NO_DRAWS = "the budget ended before any draw; these numbers are those of Laplace's approximation"


class ReportedEffects:
    """The map from z to coefficients in the units of the data, shared parameters, standard deviations, correlations,
    and after them some of the effects.
    """

    def __init__(self, space: Space, units: Units | None) -> None:
        self._space, self._units, model = space, units, space.model
        count = model.effects.stop - model.effects.start
        judged = np.unique(np.linspace(0, count - 1, min(count, _JUDGED)).astype(np.int64))
        self._judged = model.effects.start + judged
        self.dim = model.reported_dim + len(judged)

    def parameters(self, w: Array, theta: Array) -> Array:
        """Coefficients, shared parameters, standard deviations and correlations of states (w, θ)."""
        model = self._space.model
        coefficients_in_model = np.concatenate([w[:, : model.columns], w[:, model.effects.stop :]], axis=1)
        coefficients = coefficients_in_model if self._units is None else self._units.outward(coefficients_in_model)
        stated = [term.covariance.sds_and_correlations(theta[:, term.theta]) for term in model.terms]
        return np.concatenate([coefficients, *stated], axis=1)

    def out(self, z: Array, first: int = 0) -> Array:
        """The reported numbers of draws (chain, draw, dim) or states."""
        flat = z.reshape(-1, z.shape[-1])
        out = np.empty((len(flat), self.dim))
        size = max(1, _NUMBERS // flat.shape[1])
        for begin in range(0, len(flat), size):
            check_budget()
            w, theta = self._space.out_joint(flat[begin : begin + size])
            parameters = self.parameters(w, theta)
            out[begin : begin + size] = np.concatenate([parameters, w[:, self._judged]], axis=1)
        return out.reshape(*z.shape[:-1], self.dim)


class GroupSearch:
    """From a request to an answer, for a `MixedModel`; what is finished is in the journal."""

    @staticmethod
    def width(target: MixedModel, draws: int) -> int:
        """How many numbers are kept of each draw; an average, as all effects are kept of some draws only."""
        judged = min(target.effect_count, _JUDGED)
        return target.reported_dim + min(target.inner_dim, judged + MOST_KEPT // draws)

    def __init__(self, request: Request, journal: Journal, budget: Budget) -> None:
        self.request, self.journal, self.budget = request, journal, budget
        assert isinstance(request.target, MixedModel)
        self.model: MixedModel = request.target
        self._given = None if isinstance(request.method, str) else request.method
        self._suitable = self._suitable_approaches()
        self.approach = self._suitable[0](self.model, request, journal, budget)

    def _suitable_approaches(self) -> list[type[Approach]]:
        """The approach that was asked for; else those that can sample this model, in the order in which to try them."""
        method = self.request.method
        suitable = [approach for approach in _APPROACHES if approach.refusal(self.model) is None]
        if method is None:
            return suitable
        for approach in _APPROACHES:
            if method == approach.method or isinstance(method, approach.sampler):
                if approach in suitable:
                    return [approach]
                alternatives = " or ".join(["None", *(repr(approach.method) for approach in suitable)])
                why = str(approach.refusal(self.model))
                raise requirement("method", f"{alternatives} for this model", repr(approach.method), why)
        methods = ", ".join(repr(approach.method) for approach in reversed(_APPROACHES))
        samplers = " or a ".join(approach.sampler.__name__ for approach in reversed(_APPROACHES))
        raise requirement("method", f"None, {methods}, a {samplers} for groups", repr(method))

    def run(self) -> tuple[Answer, Cost]:
        """Draws until there are as many effective ones as were asked for, or a budget ends."""
        *replaceable, last = self._suitable
        for approach in replaceable:
            with suppress(UnsuitedError):
                return self._run_approach(approach, True)
        return self._run_approach(last, False)

    def _run_approach(self, approach: type[Approach], replaceable: bool) -> tuple[Answer, Cost]:
        self.approach = approach(self.model, self.request, self.journal, self.budget, replaceable)
        with self.approach.threads():
            return self._run()

    def _run(self) -> tuple[Answer, Cost]:
        request, budget = self.request, self.budget
        try:
            with stage("finding the scales of the groups", request.progress), budget.binding():
                self.variables = self.approach.variables()
        except BudgetSpent:
            raise budget.exceeded_error("the scales of the groups are found") from None
        finally:
            set_progress_note("")
        self.reported = ReportedEffects(self.variables.space, request.units)
        budget.end_stage("mode and variables")
        try:
            with budget.binding():
                answer = self._draw()
        except BudgetSpent:
            answer = self._laplace_answer()
        seconds, passes = budget.used()
        return answer, Cost(passes, seconds, budget.compiling, dict(budget.steps))

    # Draws

    def _draw(self) -> Answer:
        request, given_sampler = self.request, self._given
        sampler: Runnable = self.variables.sampler if given_sampler is None else given_sampler
        burn_in, fixed = self.approach.burn_in, given_sampler is not None
        sampler, drawing = tuned(self._drawing, sampler, burn_in, _LEAST_ACCEPTED, request.progress, fixed)
        drawn = drawing.draw(request.draws, self.approach.expected, request.progress)
        self.budget.end_stage("sampling")
        return self._answer(sampler, drawing, drawn)

    def _drawing(self, sampler: Runnable, number: int) -> Drawing:
        request, space = self.request, self.variables.space
        seed, start = request.seed + (number << 40), self.variables.start
        chains = sampler.chains(space, seed, request.chains, request.threads, start)
        follow_up = FollowUp(step_passes=sampler.rows_of_step(space) / space.n)
        return Drawing(
            chains, sampler, request, self.reported, f"chains-{number}", self.journal, self.budget, follow_up,
            width=self.reported.dim, keeps_gradients=False, every=self.approach.keep_every,
        )  # fmt: skip

    def _answer(self, sampler: Runnable, drawing: Drawing, drawn: Drawn) -> Answer:
        request, count = self.request, self.model.reported_dim
        x = drawn.x
        with stage("checking the scales", request.progress):
            raw, r_hat = Location(x.mean(axis=(0, 1)), spread(x)), largest_r_hat(x)
            effective = np.minimum(drawn.effective, 2 * tail_draws(x))
            chains, proposed = len(request.chains), x[..., self._proposed]
            stay = longest_stay(proposed)
            doubt = settling_doubt(effective, r_hat, request.draws, chains, drawn.stopped, 1, stay)
            doubt = doubt or tail_acceptance_doubt(least_tail_acceptance(proposed, drawing.first_number, sampler.cycle))
            scan = self._scan_scales(drawn.z)
        params = slice(0, count)
        errors = Corrected(
            raw.mean[params], raw.sd[params], error_of_mean(x[..., params]),
            error_of_mean((x[..., params] - raw.mean[params]) ** 2) / np.maximum(2 * raw.sd[params], 1e-300),
        )  # fmt: skip
        certificate = self._judged(doubt or scan.doubt, scan.one_mode, errors)
        trace = drawing.trace(drawn, np.ascontiguousarray(x[..., params]))
        return Answer(
            mean=raw.mean[params], sd=raw.sd[params], raw=Location(raw.mean[params], raw.sd[params]), corrected=errors,
            laplace=self._laplace_location(), trace=trace, method=sampler.method, sampler=sampler,
            why=self.approach.why, certificate=certificate, ess=drawn.effective[params],
            r_hat=r_hat[params], complete=drawn.complete, stopped=drawn.stopped, parameters=None,
            group_effects=self._group_effects(drawn.z),
        )  # fmt: skip

    @property
    def _proposed(self) -> slice:
        """The reported numbers that stay unchanged when a proposal is refused."""
        return slice(self.approach.first_proposed, self.model.reported_dim)

    def _judged(self, doubt: str, one_mode: str | None, errors: Corrected) -> Certificate:
        zero = np.zeros(len(errors.mean))
        bias = Bias(zero, errors.mean_error / errors.sd, zero, errors.sd_error / errors.sd)
        if doubt:
            return unmeasured(self.request.tolerance, bias, doubt)
        certificate = Certificate("exact", self.request.tolerance, bias, None, "exact", _INVARIANT)
        return certificate.knowing(one_mode, 1, "a pilot run of four chains")

    def _scan_scales(self, z: Array) -> _Scan:
        """Compare the draws with Laplace's approximation (exact if all else is Gaussian) along the axis of each scale.

        There is a doubt if it puts mass below what the draws reach. There is one mode if every conditional model is
        log-concave and no scale's density falls and rises again.
        """
        model, space = self.model, self.variables.space
        flat = z.reshape(-1, model.dim)
        draws = self.approach.theta(space, flat)
        centre, sd = draws.mean(axis=0), draws.std(axis=0)
        one_maximum = True
        for term in model.terms:
            for a in range(term.width):
                coordinate = term.theta.start + a
                is_wide = sd[coordinate] > _SPREAD_OUT
                grid = _SCAN * max(1.0, 1.5 * float(sd[coordinate])) if is_wide else _COARSE * 4 * float(sd[coordinate])
                density = self.approach.log_density_along(space, centre, coordinate, grid)
                one_maximum = one_maximum and bool(np.isfinite(density).all()) and _rises_and_falls_once(density)
                if is_wide and np.isfinite(density).all():
                    low = float(np.quantile(draws[:, coordinate], 0.01))
                    below = _mass_below(centre[coordinate] + grid, density, low)
                    if below > _MISSED:
                        return _Scan(
                            _unvisited_doubt(self.approach.scanned, term.group.parameter_names()[a], below), None
                        )
        loss = model.loss
        convex = bool(loss.convex or (loss.shared and loss.convex_given_shared))
        reason = "it is log-concave given the scales of the groups, whose density, scanned along each, has one maximum"
        return _Scan("", reason if one_maximum and convex else None)

    def _group_effects(self, z: Array) -> GroupEffects:
        """Draws of all effects."""
        model, space = self.model, self.variables.space
        count, chains = model.effect_count, len(z)
        states = z.reshape(-1, model.dim)
        out, mean = np.empty((len(states), count)), np.zeros(model.inner_dim)
        size = max(1, _NUMBERS // model.dim)
        for begin in range(0, len(states), size):
            w = space.out_joint(states[begin : begin + size])[0]
            out[begin : begin + size] = model.outward(w[:, model.effects])
            mean += w.sum(axis=0) / len(states)
        return self._effects_of_terms(out.reshape(chains, -1, count), self.approach.keep_every, mean)

    def _effects_of_terms(self, draws: Array, every: int, mean: Array) -> GroupEffects:
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
        variables, count = self.variables, self.model.reported_dim
        mean = self.reported.parameters(variables.w[None, :], variables.theta[None, :])[0]
        size = max(1, _NUMBERS // self.model.dim)  # draws at a time: those of 10⁶ effects would take gigabytes
        parts = np.split(np.arange(_LAPLACE), np.arange(size, _LAPLACE, size))
        draws = [self.reported.parameters(*self._laplace_draws(numbers, PILOT_SEED)) for numbers in parts]
        return Location(mean, np.concatenate(draws).std(axis=0)[:count])

    def _laplace_draws(self, numbers: Indices, seed: int) -> tuple[Array, Array]:
        """w and θ of the draws of these numbers."""
        variables, model = self.variables, self.model
        stream = model.randomness(self.request.seed + seed, numbers)
        z = stream.normals(0, model.dim, Purpose.START, Purpose.START_FINE)
        theta = variables.theta + variables.sds * z[:, model.inner_dim :]
        w = variables.w + variables.displace(np.ascontiguousarray(z[:, : model.inner_dim]))
        return w, theta

    def _laplace_answer(self) -> Answer:
        """The answer if a budget ended before there were draws."""
        request, dim = self.request, self.model.reported_dim
        chains = len(request.chains)
        count = max(LEAST, -(-request.draws // chains))
        w, theta = self._laplace_draws(np.arange(chains * count), PILOT_SEED + 1)
        x = self.reported.parameters(w, theta).reshape(chains, count, dim)
        effects = self.model.outward(w[:, self.model.effects])
        location, unknown = self._laplace_location(), np.full(dim, np.inf)
        return Answer(
            mean=location.mean, sd=location.sd, raw=Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)),
            corrected=Corrected(location.mean, location.sd, unknown, unknown), laplace=location,
            trace=independent_trace(x, request, 0.0), method="laplace", sampler=None,
            why="Laplace's approximation, because the budget did not pay for draws of the posterior.",
            certificate=unmeasured(request.tolerance, unknown_bias(dim), _NO_DRAWS),
            ess=np.full(dim, float(chains * count)), r_hat=np.ones(dim), complete=False, stopped=True, parameters=None,
            group_effects=self._effects_of_terms(effects.reshape(chains, count, -1), 1, w.mean(axis=0)),
        )  # fmt: skip


def forecast_of(model: FiniteSum, draws: int = 1000, chains: int = 4) -> Forecast:
    """What `sample` would take for this many effective draws."""
    request = Request(
        target=model, draws=draws, chains=np.arange(chains), tolerance=0.02, seed=0, method=None, seconds=math.inf,
        passes=math.inf, engine="auto", threads=cores(), certificate=True, progress=False,
    )  # fmt: skip
    search = GroupSearch(request, InMemory(), Budget(model.n))
    with search.approach.threads():
        return search.approach.forecast()


class _Scan(NamedTuple):
    doubt: str
    one_mode: str | None


def _rises_and_falls_once(values: Array) -> bool:
    """Whether a sequence has one maximum, apart from rounding."""
    steps = np.diff(values)
    rising = steps > 1e-6 * max(1.0, float(np.ptp(values)))
    falls = np.flatnonzero(steps < 0)
    return not (len(falls) and rising[falls[0] :].any())


def _mass_below(grid: Array, log_density: Array, end: float) -> float:
    """The share of a density, given by its logarithm on a grid, below a place."""
    fine = np.linspace(grid[0], grid[-1], 2001)
    p = np.exp(np.interp(fine, grid, log_density) - log_density.max())
    return float(p[fine < end].sum() / p.sum())


def _unvisited_doubt(density: str, name: str, below: float) -> str:
    return (
        f"{density} puts {below:.0%} of {name} below what 99 in 100 draws have: the chains may not have "
        "been where this scale is near 0 often enough; more draws would tell"
    )
