"""Mixed models by split HMC on effects and scales together: pilot runs find the variables.

The variables do not affect correctness: split HMC leaves the posterior invariant whatever they are. A first centre
comes from Laplace's approximation of the scales' marginal density, which may be several posterior standard deviations
off if levels have few rows; short pilot runs then show where the scales are, and how they vary together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import check_budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.mixed import MixedModel
from svrhmc.exact import SplitHMC
from svrhmc.sampling.approach import PILOT_SEED, Approach, Forecast, Variables, multiplication_seconds
from svrhmc.trace import sampler_of
from svrhmc.whitening.groups import Bend, GroupVariables, first_centre, log_marginal, mode_given

T = TypeVar("T")

_PILOTS = (50, 100)  # draws of each chain in the pilot runs
_PILOT_CHAINS = 4
_EVERY, _WIDE = 8, 2000  # draws of a pilot run by which a step is chosen; coordinates from which it begins short
_FIRST = 20  # draws after which the step of a pilot run is judged
_ACCEPTED, _LEAST_ACCEPTED = 0.85, 0.75  # shares of proposals: wanted, and below which a step is made shorter
_LEAST_LEAPFROGS, _QUARTER = 2, 1.6  # of a trajectory, and how far it turns
_FAR, _SHRINKS = 5.0, 8

# Of a forecast: leapfrogs of a draw, and of one where rows are Gaussian; Hessians and factors of the first centre, and
# of a scan of one scale as many; maps that are made; multiplications that an entry of a triangular factor and an effect
# take in a map
_LEAPFROGS, _OF_GAUSSIAN, _HESSIANS, _MAPS = 3, 2, 12, 3
_OF_ENTRY, _OF_EFFECT = 9.0, 400.0
_CORE_BYTES = 48.0  # of an entry of the core while a map is made


class JointDensity(Approach):
    """Effects and scales together, in the variables of `svrhmc.whitening.groups`."""

    method, sampler = SplitHMC.method, SplitHMC
    why = "exact, with full gradients, in variables that make effects and their scales nearly independent."
    scanned = "Laplace's approximation"
    burn_in, expected, fewest_expected = 60, 0.6, 0.4

    @staticmethod
    def refusal(model: MixedModel) -> str | None:
        return None

    def theta(self, space: GroupVariables, z: Array) -> Array:
        return _theta_of(space, z)

    def log_density_along(self, space: GroupVariables, centre: Array, coordinate: int, steps: Array) -> Array:
        """Laplace's approximation, outwards from the centre on both sides."""
        values, middle = np.empty(len(steps)), int(np.argmin(np.abs(steps)))
        for side in (range(middle, len(steps)), range(middle - 1, -1, -1)):
            w = space.w
            for k in side:
                check_budget()
                theta = centre.copy()
                theta[coordinate] += steps[k]
                values[k], w = log_marginal(self.model, theta, w)
        return values

    def variables(self) -> Variables:
        record, model = self.journal.get("variables"), self.model
        dim = model.theta_dim
        if record is not None:
            self.budget.restore(record)
            bend = Bend(*(record.array(field.name, (dim,)) for field in fields(Bend)))
            mixing, w = record.array("mixing", (dim, dim)), record.array("w", (model.inner_dim,))
            space = GroupVariables(model, bend, mixing, w)
            return Variables(
                space,
                record.array("start", (None, model.dim)),
                record.array("first theta", (dim,)),
                record.array("first w", (model.inner_dim,)),
                record.array("sds", (dim,)),
                record.value("sampler", lambda _, parts: sampler_of(parts)),
                space.displace,
            )
        self.announce_forecast()
        variables = self._find_variables()
        space = variables.space
        arrays = {field.name: getattr(space.bend, field.name) for field in fields(Bend)}
        arrays |= {"mixing": space.mixing, "w": space.w, "start": variables.start, "first theta": variables.theta}
        settings = {"ledger": self.budget.ledger(), "sampler": variables.sampler.settings()}
        self.journal.put("variables", settings, {**arrays, "first w": variables.w, "sds": variables.sds})
        return variables

    def _find_variables(self) -> Variables:
        model = self.model
        theta, w, sds = first_centre(model, self.first_theta())
        space = GroupVariables(model, Bend.straight(theta, sds), np.eye(len(theta)), w)
        scales = [term.theta.start + a for term in model.terms for a in range(term.width)]
        z = self._start_states(space, Stream(self.request.seed + PILOT_SEED, np.arange(_PILOT_CHAINS)))
        sampler = SplitHMC() if space.dim < _WIDE else SplitHMC(_QUARTER / 4, 4)
        for number, count in enumerate(_PILOTS):
            sampler, states, accepted = self._pilot_run(space, sampler, z, count, number)
            draws = _theta_of(space, states[:, count // 3 :].reshape(-1, model.dim))
            bend = Bend.of_draws(draws, scales)
            mixing = _correlation_root(bend.into(draws))
            x, last = space.out_joint(states[:, -1])
            later_states = states[:, count // 2 :: _EVERY].reshape(-1, model.dim)
            w_new = mode_given(model, bend(np.zeros(model.theta_dim))[0], space.w)
            previous, space = space, GroupVariables(model, bend, mixing, w_new)
            z = space.into(x, last)
            sampler = self._suitable_sampler(space, space.into(*previous.out_joint(later_states)), sampler, accepted)
        chains = len(self.request.chains)
        start = z[np.arange(chains) % _PILOT_CHAINS]
        return Variables(space, start, theta, w, sds, sampler, space.displace)

    def forecast(self) -> Forecast:
        """By the time of one pass over the rows and one Hessian, and by the number of entries and multiplications of a
        factor. If there is no factor, because too many effects depend on each other, draws are more correlated than
        this assumes, so that the forecast is a lower bound.
        """
        model, w = self.model, np.zeros((_PILOT_CHAINS, self.model.inner_dim))
        self.budget.compile(lambda: model.conditional_energies(w))
        passing = min(_timed(lambda: model.conditional_energies(w))[1] for _ in range(2))
        hessian, making = _timed(lambda: model.with_prior(model.curvature(w[0]).hessian, self.first_theta()))
        multiplication = multiplication_seconds()
        factoring, finding, entries, core = 0.0, 0.0, 0.0, 0
        if not isinstance(hessian, np.ndarray):
            pattern, finding = _timed(lambda: model.factors.pattern(hessian))
            if model.factors.apply:
                factoring = multiplication * pattern.multiplications
                if len(model.terms) > 1:
                    entries, core = pattern.entries, pattern.core
        mapping = 2 * _PILOT_CHAINS * multiplication * (_OF_ENTRY * entries + _OF_EFFECT * model.effect_count)
        hessians = _HESSIANS * (1 + model.theta_dim)
        chains = len(self.request.chains) / _PILOT_CHAINS
        leapfrogs = _OF_GAUSSIAN if model.loss.quadratic or model.loss.mixture else _LEAPFROGS
        gradients = leapfrogs * (sum(_PILOTS) + chains * (self.burn_in + self.expected_draws))
        seconds = (hessians + _MAPS) * making + hessians * factoring + _MAPS * finding
        seconds += gradients * (passing + mapping) + self.drawing_seconds(multiplication)
        return Forecast(seconds, self.memory_bytes + _CORE_BYTES * core**2, not model.factors.apply)

    def _start_states(self, space: GroupVariables, stream: Stream) -> Array:
        """Draws of N(0, I), halved while f is too large at them."""
        z = stream.normals(0, space.dim, Purpose.START, Purpose.START_FINE)
        least, allowed = space.energies(np.zeros_like(z))[0], space.dim / 2 + _FAR * np.sqrt(space.dim)
        for _ in range(_SHRINKS):
            with np.errstate(over="ignore", invalid="ignore"):
                far = ~(space.energies(z)[0] - least <= allowed)
            z = np.where(far[:, None], z / 2, z)
        return z

    @staticmethod
    def _suitable_sampler(space: GroupVariables, z: Array, sampler: SplitHMC, accepted: float) -> SplitHMC:
        """The sampler of the next run: one leapfrog if R = f(z) − ½|z|² hardly varies over some states, else steps of
        which 0.85 are accepted, by extrapolation from the share `accepted` in a pilot run.

        A change of energy of variance s² is accepted with probability 2Φ(−s/2), and s grows as the square of a step.
        (Over grids of steps and leapfrogs on eight models, most effective draws a gradient, of numbers and of their
        squares, were at shares of 0.85 to 0.95 and about a quarter of a turn.)
        """
        from scipy.special import ndtri

        R = space.energies(z)[0] - 0.5 * (z * z).sum(axis=1)
        one_leapfrog = SplitHMC.for_remainder(R - R[0])
        if one_leapfrog.leapfrogs == 1:
            return one_leapfrog
        change = np.sqrt(ndtri(_ACCEPTED / 2) / ndtri(min(max(accepted, 0.05), 0.99) / 2))
        longest = sampler.step_size * float(np.clip(change, 0.5, 2.0))
        leapfrogs = max(_LEAST_LEAPFROGS, math.ceil(_QUARTER / longest))
        return SplitHMC(_QUARTER / leapfrogs, leapfrogs)

    def _pilot_run(
        self, space: GroupVariables, sampler: SplitHMC, z: Array, count: int, number: int
    ) -> tuple[SplitHMC, Array, float]:
        """States (chain, draw, dim) of a short run, whose step is shortened until enough proposals are accepted, with
        the sampler and the share that was accepted.
        """
        seed, tries = self.request.seed + PILOT_SEED + ((number + 1) << 44), 0
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


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """The result of a function, and the seconds that it took."""
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began


def _theta_of(space: GroupVariables, z: Array) -> Array:
    """θ of states, without their effects."""
    theta: Array = space.bend(z[:, space.model.inner_dim :] @ space.mixing.T)[0]
    return theta


def _correlation_root(t: Array) -> Array:
    """A lower triangle A with AAᵀ the correlations of some draws, shrunk a little towards 0."""
    if t.shape[1] == 1:
        return np.eye(1)
    correlation = 0.95 * np.corrcoef(t.T) + 0.05 * np.eye(t.shape[1])
    return np.asarray(np.linalg.cholesky(correlation), np.float64)
