"""`sample` for regressions under a LearntScale: split HMC on coefficients and their scale together."""

from __future__ import annotations

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget
from svrhmc.core.errors import requirement
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.learnt import LearntScaleModel
from svrhmc.exact.base import Runnable
from svrhmc.exact.learnt import LearntScaleHMC
from svrhmc.sampling.answer import Answer, Request
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.drawing import Drawing, FollowUp, tuned
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.sampling.shrinkage import ShrinkageSearch
from svrhmc.whitening.learnt import LearntScaleVariables

_BURN_IN, _LEAST_ACCEPTED = 60, 0.7  # draws that are not kept, and the share of proposals by which a step is judged
_EXPECTED = 0.7  # effective draws of a draw
_TRIED, _PILOT_SEED = 64, 1 << 52  # states at which a step is chosen
_PILOT, _PILOT_CHAINS = 120, 4  # draws of a pilot run, of which a third is not looked at
_SCAN = np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])  # of t
_ONE_MODE = "it is log-concave given the scale of the prior, whose density has one maximum in Laplace's approximation"


class ReportedWithScale:
    """The map from z to coefficients in the units of the data, shared parameters, log τ and m_eff."""

    def __init__(self, space: LearntScaleVariables, units: Units | None) -> None:
        self._space, self._units = space, units
        self.dim = space.model.reported_dim + 2

    def out(self, z: Array, first: int = 0) -> Array:
        """The reported numbers of draws (chain, draw, dim) or states."""
        x = self._space.out(z.reshape(-1, z.shape[-1]))
        coefficients, phi = x[:, :-1], x[:, -1]
        coefficients = coefficients if self._units is None else self._units.outward(coefficients)
        columns = np.concatenate([coefficients, phi[:, None], self._space.effective(phi)[:, None]], axis=1)
        return columns.reshape(*z.shape[:-1], self.dim)


class LearntScaleSearch(ShrinkageSearch):
    """From a request to an answer, for a `LearntScaleModel`."""

    why = "exact, with full gradients, in variables that make coefficients and the scale of their prior independent."
    invariant = (
        "the sampler leaves the posterior invariant, so that it has no bias, and its chains agree, on the coefficients "
        "and on the scale of their prior"
    )
    starts = "draws of Laplace's approximation"

    def __init__(self, request: Request, journal: Journal, budget: Budget) -> None:
        self.request, self.journal, self.budget = request, journal, budget
        assert isinstance(request.target, LearntScaleModel)
        self.model = request.target
        if request.method not in (None, LearntScaleHMC.method):
            raise requirement("method", f"None or {LearntScaleHMC.method!r} under a LearntScale", repr(request.method))

    def _draw(self) -> Answer:
        request = self.request
        with stage("finding the scale of the prior", request.progress):
            self.budget.compile(lambda: self.model.gradients(np.zeros((2, self.model.dim))))
            self.space, start = self._find_variables()
        self.reported = ReportedWithScale(self.space, request.units)
        self.budget.end_stage("mode and variables")
        sampler, drawing = tuned(
            lambda sampler, trial: self._drawing(sampler, trial, start),
            self._suitable_sampler(self.space),
            _BURN_IN,
            _LEAST_ACCEPTED,
            request.progress,
        )
        drawn = drawing.draw(request.draws, _EXPECTED, request.progress)
        self.budget.end_stage("sampling")
        return self._answer(sampler, drawing, drawn)

    def _find_variables(self) -> tuple[LearntScaleVariables, Array]:
        """Variables by a pilot run from Laplace's approximation, and the states where its chains ended."""
        space, chains = LearntScaleVariables.of(self.model), len(self.request.chains)
        record = self.journal.get("pilot")
        if record is None:
            numbers, sampler = np.arange(max(chains, _PILOT_CHAINS)), self._suitable_sampler(space)
            run = sampler.chains(space, self.request.seed + _PILOT_SEED, numbers, self.request.threads)
            extension = run.extend(_PILOT)
            self.budget.evaluations += float(extension.evaluations)
            x = space.out(extension.draws)
            arrays = {"x": x[:, _PILOT // 3 :].reshape(-1, x.shape[2]), "end": x[:chains, -1]}
            self.journal.put("pilot", {"ledger": self.budget.ledger()}, arrays)
        else:
            self.budget.restore(record)
            arrays = {name: record.array(name, (None, space.dim)) for name in ("x", "end")}
        space = space.following(arrays["x"])
        return space, space.into(arrays["end"])

    def _suitable_sampler(self, space: LearntScaleVariables) -> Runnable:
        """A sampler whose step suits the variation of R = f(z) − ½|z|² over draws of N(0, I)."""
        stream = Stream(self.request.seed + _PILOT_SEED, np.arange(_TRIED))
        z = stream.normals(0, space.dim, Purpose.START, Purpose.START_FINE)
        remainder = space.energies(z)[0] - 0.5 * (z * z).sum(axis=1)
        finite = remainder[np.isfinite(remainder)]
        enough = len(finite) > _TRIED // 2
        return LearntScaleHMC.for_remainder(finite - finite.min()) if enough else LearntScaleHMC()

    def _drawing(self, sampler: Runnable, number: int, start: Array) -> Drawing:
        request = self.request
        seed = request.seed + (number << 40)
        chains = sampler.chains(self.space, seed, request.chains, request.threads, start)
        follow_up = FollowUp(step_passes=sampler.rows_of_step(self.space) / self.model.n)
        return Drawing(
            chains, sampler, request, self.reported, f"chains-{number}", self.journal, self.budget, follow_up,
            width=self.reported.dim, keeps_gradients=False, every=self._every,
        )  # fmt: skip

    @property
    def one_mode(self) -> str | None:
        """Why there is one mode, if the profile of Laplace's approximation has one minimum at some places around it."""
        loss, phi = self.model.loss, self.space.bend(_SCAN[:, None])[0][:, 0]
        steps = np.diff(self.space.known.energy(self.model, phi))
        falls_once = bool((np.diff(np.sign(steps)) >= 0).all())
        convex = loss.convex or (loss.shared and loss.convex_given_shared)
        return _ONE_MODE if falls_once and convex else None

    def _shrinkage(self, states: Array, x: Array) -> Shrinkage:
        factors = self.space.shrinkage_factors(float(x[..., -2].mean()))
        scales = np.stack([np.exp(x[..., -2]), x[..., -1]], axis=-1)
        return Shrinkage(self.model.shrunk, factors, scales, ("scale", "effective"))
