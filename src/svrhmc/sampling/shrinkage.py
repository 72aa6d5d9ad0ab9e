"""`sample` for regressions under a joint shrinking prior: chains of a Gibbs sampler from starts that are far apart.

The posterior is not log-concave, and may have several modes (of two nearly equal columns either may have the effect):
no run is called exact. If chains agree on the coefficients, on the scales that all share and on the effective number of
coefficients, the verdict is "local".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget, BudgetSpent
from svrhmc.core.errors import requirement
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import FiniteSum
from svrhmc.density.shrunk import ShrunkModel
from svrhmc.diagnostics import spread
from svrhmc.exact.base import Runnable
from svrhmc.exact.gibbs import ShrinkageGibbs, generator, start
from svrhmc.sampling.answer import Answer, Cost, Request
from svrhmc.sampling.certificate import Bias, Certificate, unmeasured
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location, error_of_mean
from svrhmc.sampling.doubts import largest_r_hat, settling_doubt, tail_draws
from svrhmc.sampling.drawing import Drawing, Drawn, FollowUp
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.trace import Trace

_BURN_IN = 300  # draws that are not kept
_EXPECTED = 0.25  # effective draws of a draw
_MOST_STATES = 1 << 27  # numbers of states that are kept: 1 GB
_WHY = (
    "exact: each coefficient together with its own part of the prior given all others, and in turn the parts that all "
    "share."
)
_INVARIANT = (
    "the sampler leaves the posterior invariant, so that it has no bias, and its chains agree, on the coefficients, on "
    "what their prior shares and on the effective number of coefficients"
)


class ReportedCoefficients:
    """The map from a state to coefficients in the units of the data, shared parameters, the scales that the prior
    shares, and m_eff.
    """

    def __init__(self, model: ShrunkModel, units: Units | None) -> None:
        self._model, self._units = model, units
        self.dim = model.reported_dim + len(model.scales.names) + 1

    def out(self, x: Array, first: int = 0) -> Array:
        """The reported numbers of draws (chain, draw, dim) or states."""
        flat, model = x.reshape(-1, x.shape[-1]), self._model
        end, inner = model.reported_dim, model.reported_dim + len(model.shrunk)
        coefficients = flat[:, :end] if self._units is None else self._units.outward(flat[:, :end])
        scales = model.scales.reported(flat[:, end:inner], flat[:, inner:])
        effective = (1 - model.shrinkage_factors(flat)).sum(axis=1, keepdims=True)
        return np.concatenate([coefficients, scales, effective], axis=1).reshape(*x.shape[:-1], self.dim)


class ShrinkageSearch:
    """From a request to an answer, for a `ShrunkModel`."""

    why, invariant, starts = _WHY, _INVARIANT, "starts whose scales were drawn from their prior"
    model: Any  # a `ShrunkModel`, or another whose coefficients share a prior
    reported: Any

    @staticmethod
    def width(target: FiniteSum, draws: int) -> int:
        """How many numbers are kept of each draw."""
        return int(target.dim)

    def __init__(self, request: Request, journal: Journal, budget: Budget) -> None:
        self.request, self.journal, self.budget = request, journal, budget
        assert isinstance(request.target, ShrunkModel)
        self.model = request.target
        given = request.method
        if not (given in (None, ShrinkageGibbs.method) or isinstance(given, ShrinkageGibbs)):
            raise requirement(
                "method", f"None or {ShrinkageGibbs.method!r} under a {type(self.model.prior).__name__}", repr(given)
            )
        self.reported = ReportedCoefficients(self.model, request.units)

    @property
    def one_mode(self) -> str | None:
        """Why there is one mode, if that is known."""
        return None

    def run(self) -> tuple[Answer, Cost]:
        """Draws until there are as many effective ones as were asked for, or a budget ends."""
        try:
            with self.budget.binding():
                answer = self._draw()
        except BudgetSpent:
            raise self.budget.exceeded_error("there are draws") from None
        seconds, passes = self.budget.used()
        return answer, Cost(passes, seconds, self.budget.compiling, dict(self.budget.steps))

    def _draw(self) -> Answer:
        request, sampler, model = self.request, ShrinkageGibbs(), self.model
        streams = [Stream(request.seed, request.chains[c : c + 1]) for c in range(len(request.chains))]
        begin = np.stack([start(model, generator(stream, 0, Purpose.START)) for stream in streams])
        chains = sampler.chains(model, request.seed, request.chains, request.threads, begin)
        drawing = Drawing(
            chains, sampler, request, self.reported, "chains", self.journal, self.budget, FollowUp(step_passes=1.0),
            width=self.reported.dim, keeps_gradients=False, every=self._every,
        )  # fmt: skip
        drawing.burn_in(_BURN_IN, request.progress)
        drawn = drawing.draw(request.draws, _EXPECTED, request.progress)
        self.budget.end_stage("sampling")
        return self._answer(sampler, drawing, drawn)

    @property
    def _every(self) -> int:
        """One draw in this many is kept with its local scales: 1 unless they would take more than 1 GB."""
        return max(1, round(self.request.draws / _EXPECTED * int(self.model.dim) / _MOST_STATES))

    def _answer(self, sampler: Runnable, drawing: Drawing, drawn: Drawn) -> Answer:
        request, chains, x = self.request, len(self.request.chains), drawn.x
        params = slice(0, self.model.reported_dim)
        with stage("checking the scales", request.progress):
            r_hat = largest_r_hat(x)
            effective = np.minimum(drawn.effective, 2 * tail_draws(x))
            doubt = settling_doubt(effective, r_hat, request.draws, chains, drawn.stopped)
        mean, sd = x.mean(axis=(0, 1))[params], spread(x)[params]
        errors = Corrected(
            mean, sd, error_of_mean(x[..., params]),
            error_of_mean((x[..., params] - mean) ** 2) / np.maximum(2 * sd, 1e-300),
        )  # fmt: skip
        trace = Trace(
            draws=np.ascontiguousarray(x[..., params]),
            passes=drawn.spent / self.model.n,
            gradient_evaluations=round(drawing.chains.state.spent),
            velocity=np.zeros((chains, len(mean))),
            seconds=self.budget.steps.get("sampling", 0.0),
            sampler=sampler,
            seed=request.seed,
            chains=request.chains,
            engine=drawing.chains.engine,
        )
        return Answer(
            mean=mean, sd=sd, raw=Location(mean, sd), corrected=errors, laplace=Location(mean, sd), trace=trace,
            method=sampler.method, sampler=sampler, why=self.why, certificate=self._certificate(doubt, errors),
            ess=drawn.effective[params], r_hat=r_hat[params], complete=drawn.complete, stopped=drawn.stopped,
            parameters=None, shrinkage=self._shrinkage(drawn.z, x),
        )  # fmt: skip

    def _certificate(self, doubt: str, errors: Corrected) -> Certificate:
        zero = np.zeros(len(errors.mean))
        sd = np.where(errors.sd > 0, errors.sd, 1.0)  # 0 where a coefficient is 0 in all draws
        bias = Bias(zero, errors.mean_error / sd, zero, errors.sd_error / sd)
        if doubt:
            return unmeasured(self.request.tolerance, bias, doubt)
        certificate = Certificate("exact", self.request.tolerance, bias, None, "exact", self.invariant)
        return certificate.knowing(self.one_mode, 1, self.starts)

    def _shrinkage(self, states: Array, x: Array) -> Shrinkage:
        flat = states.reshape(-1, states.shape[-1])
        law, count = self.model.scales, len(self.model.scales.names)
        scales = np.concatenate([law.to_reported_units(x[..., -count - 1 : -1]), x[..., -1:]], axis=-1)
        factors = self.model.shrinkage_factors(flat).mean(axis=0)
        return Shrinkage(self.model.shrunk, factors, scales, (*law.names, "effective"))
