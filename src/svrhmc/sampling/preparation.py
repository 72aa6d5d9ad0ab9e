"""What comes before the draws: whitened variables and the regions around modes, which all attempts of a search share,
and chains of a sampler that are started, tuned and burnt in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget, BudgetSpent, check_budget
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.storage import Record
from svrhmc.exact.base import Runnable
from svrhmc.exact.jumps import MOST_COORDINATES, Jumps, Regions, find_regions
from svrhmc.samplers import Sampler
from svrhmc.sampling import costs
from svrhmc.sampling.answer import Request
from svrhmc.sampling.bias import BiasJudge, settling_steps
from svrhmc.sampling.coordinates import ReportedCoordinates, find_whitening
from svrhmc.sampling.drawing import Drawing, Drawn, FollowUp
from svrhmc.sampling.gradients import FreshGradients, Gaussianity
from svrhmc.sampling.rays import Rays, find_rays
from svrhmc.whitening import whitened
from svrhmc.whitening.targets import Space

CORRECTED = 4  # states, for each effective draw asked for, at which ∇f is computed for the correction of moments
_TUNING = 40  # draws after which a step is judged
_ACCEPTED, _LEAST_ACCEPTED = 0.7, 0.3  # shares of accepted proposals that are enough, of all chains and of each
_QUARTER_LESS, _HALF = 0.75, 0.5  # factors of a step with which too few, or next to no, proposals are accepted
_NEXT_TO_NONE = 0.1  # the share of proposals that counts as next to none
_FAR, _SHRINKS = 5.0, 6  # √dim above its mean that f may be where a chain starts, and halvings of a start
_SPARE = 2.0  # times the states that are corrected at least, for which rows are fetched ahead
GRADIENT_SEED = 1 << 50  # added to the seed of an attempt, for gradients at its draws


@dataclass(frozen=True, eq=False)
class Preparation:
    """What every attempt of a search shares.

    space: the target in whitened variables. regions: those around several modes between which chains can jump; None
    where there is one mode without a wide part around it. rays: f along rays; None where nothing is looked for there.
    reported: the map from whitened variables to the reported coefficients.
    """

    request: Request
    journal: Journal
    budget: Budget
    space: Space
    rays: Rays | None
    regions: Regions | None
    fresh: FreshGradients
    gaussianity: Gaussianity
    reported: ReportedCoordinates
    bias_judge: BiasJudge

    @classmethod
    def find(cls, request: Request, journal: Journal, budget: Budget) -> Preparation:
        """From the journal, or anew; an error if the budget ends first."""
        space = _whitened_target(request, journal, budget)
        fresh = FreshGradients(space, request.threads, budget)
        reported = ReportedCoordinates(space.whitening, request.units)
        rays = None
        if request.target.one_mode is None:
            with stage("wide parts", request.progress):
                rays = find_rays(request.target, space, request.seed, journal, budget)
        return cls(
            request,
            journal,
            budget,
            space,
            rays,
            _regions(request, space, rays, journal, budget),
            fresh,
            Gaussianity(fresh),
            reported,
            BiasJudge(fresh, budget, journal, request.tolerance, reported),
        )

    @property
    def parts(self) -> int:
        """The number of modes, and of wide parts around one, that were found."""
        return len(self.request.target.modes()) if self.regions is None else self.regions.count

    def regions_for(self, sampler: Runnable) -> Regions | None:
        """The regions between which chains of a sampler jump; None if they do not."""
        return self.regions if sampler.invariant and sampler.jumps else None

    def verdict_seconds(self, sampler: Sampler) -> float:
        """Seconds of the gradients at draws of a biased sampler, and of the first pairs that measure its bias."""
        count = CORRECTED * self.request.draws
        gradient = self.fresh.low_noise_gradient(count)
        seconds = count * costs.recipe_seconds(self.space, gradient.recipe(self.space))
        return seconds + (self.bias_judge.first_cost(sampler, gradient)[0] if self.request.certificate else 0.0)

    def recording(self, name: str, drawn: Drawn, needed: int = 0) -> AbstractContextManager[None]:
        """Keeps the results of long work on these draws, of which `needed` effective ones are to be made."""
        return self.journal.recording(name, self.budget, {"draws": drawn.x.shape[1], "wanted": needed})


def _whitened_target(request: Request, journal: Journal, budget: Budget) -> Space:
    try:
        with stage("finding the mode", request.progress), budget.binding():
            whitening = find_whitening(request.target, request.seed, journal, budget)
            _ = whitening.variances  # part of every answer; computed here, where its time is recorded
            with journal.recording("space", budget):
                space: Space = whitened(request.target, whitening)
                space.prepare()
    except BudgetSpent:
        raise budget.exceeded_error("the mode and the curvature there are found") from None
    return space


def _regions(request: Request, space: Space, rays: Rays | None, journal: Journal, budget: Budget) -> Regions | None:
    """What jumps between modes need, if there are several, or one has a wide part around it, or is a narrow peak above
    a wide foot; found once for a journal.
    """
    target, dim = request.target, space.dim
    modes = target.modes()
    if not target.has_potential or dim > MOST_COORDINATES:
        return None
    wide = rays.wide_part() if rays is not None and len(modes) == 1 else None
    if len(modes) == 1 and wide is None and not target.has_feet():
        return None

    def make() -> Record:
        around = find_regions(space, modes, wide)
        budget.evaluations += 2.0 * len(modes) * space.n
        return Record({}, {field.name: getattr(around, field.name) for field in fields(Regions)})

    record = journal.once("regions", make)
    centres, offsets = record.array("centres", (None, dim)), record.array("offsets", (None,))
    if not len(centres):
        raise record.unusable("it has no modes")
    count = len(offsets)
    return Regions(
        centres,
        record.array("roots", (len(centres), dim, dim)),
        record.array("log_masses", (len(centres),)),
        record.array("rows", (None, dim)),
        offsets,
        record.array("ways", (count, dim)),
        record.array("reaches", (count,)),
    )


class ChainStarter:
    """Starts chains of any sampler, from the journal where it has them."""

    def __init__(self, preparation: Preparation, sampler_given: bool) -> None:
        """sampler_given: whether the user gave the sampler, which is then run as it is."""
        self._prepared, self._sampler_given = preparation, sampler_given

    def start(self, sampler: Runnable, seed: int, number: int) -> tuple[Runnable, Drawing]:
        """The sampler of attempt `number`, tuned, and its chains after their burn-in.

        The step of an exact sampler falls by a quarter until 7 in 10 proposals are accepted, and 3 in 10 of every
        single chain; to half while next to none are.
        """
        prepared, progress = self._prepared, self._prepared.request.progress
        if not sampler.invariant:
            drawing = self._drawing(sampler, seed, f"{number}")
            drawing.burn_in(self._burn_in_steps(sampler), progress)
            return sampler, drawing
        proposals, tuning = _TUNING * len(prepared.request.chains), 0
        convex = prepared.request.target.convex_components
        while True:
            drawing = self._drawing(sampler, seed, f"{number}" if not tuning else f"{number}-{tuning}")
            accepted = drawing.burn_in(_TUNING, progress)
            factor = _QUARTER_LESS if accepted.sum() > _NEXT_TO_NONE * proposals else _HALF
            smaller = None if self._sampler_given else sampler.smaller(factor, convex)
            enough = accepted.sum() >= _ACCEPTED * proposals and accepted.min() >= _LEAST_ACCEPTED * _TUNING
            if smaller is None or drawing.draws_made or enough or drawing.burn_in_was_cut(_TUNING):
                return sampler, drawing
            sampler, tuning = smaller, tuning + 1

    def _burn_in_steps(self, sampler: Sampler) -> int:
        space = self._prepared.space
        return settling_steps(sampler.dynamics.scheme(space), sampler.gradient.recipe(space).epoch)

    def _drawing(self, sampler: Runnable, seed: int, name: str) -> Drawing:
        """Chains of a sampler, compiled, where the journal left them."""
        prepared, request, space = self._prepared, self._prepared.request, self._prepared.space
        with prepared.journal.recording(f"start-{name}", prepared.budget):
            regions = prepared.regions_for(sampler)
            start = self._start_states(sampler, regions, seed)
            if space.at_hand < space.n:
                count = math.ceil(_SPARE * CORRECTED * request.draws)
                gradient = prepared.fresh.low_noise_gradient(count)
                prepared.fresh.expect(gradient, np.arange(count), seed + GRADIENT_SEED)
            moves = sampler if regions is None else Jumps(sampler, regions)
            chains = moves.chains(space, seed, request.chains, request.threads, start, request.engine)
        prepared.budget.compile(chains.compile)
        near_mode = not sampler.invariant and space.identity_hessian
        return Drawing(
            chains,
            sampler,
            request,
            prepared.reported,
            f"chains-{name}",
            prepared.journal,
            prepared.budget,
            self._follow_up(sampler),
            step_size=sampler.dynamics.step_size if near_mode else None,
            keeps_states=not (sampler.invariant and sampler.gradients_come_free),
            modes=prepared.parts,
        )

    def _start_states(self, sampler: Runnable, regions: Regions | None, seed: int) -> Array:
        """Draws of N(0, I) about the modes in turn, so that chains that do not find each other disagree.

        For an exact sampler each is moved to its mode by halves while f is far above its value there, where a chain
        could stand still. If chains jump, the draws are in the variables of each mode, and of the heaviest modes if
        there are more modes than chains.
        """
        prepared, chains = self._prepared, self._prepared.request.chains
        numbers = np.arange(len(chains))
        if regions is not None:
            index = np.argsort(-regions.log_masses, kind="stable")[numbers % regions.count]
            return self._near_mode(lambda u: regions.out(index, u), seed)
        if sampler.invariant and prepared.gaussianity.nearly_gaussian():
            return self._normals(seed)
        modes = prepared.space.into(prepared.request.target.modes())
        modes[0] = 0.0
        centre = np.asarray(modes[numbers % len(modes)], np.float64)
        if sampler.invariant:
            return self._near_mode(lambda z: centre + z, seed)
        return centre + prepared.fresh.laplace(chains, seed)

    def _normals(self, seed: int) -> Array:
        stream = Stream(seed, self._prepared.request.chains)
        return stream.normals(0, self._prepared.space.dim, Purpose.START, Purpose.START_FINE)

    def _near_mode(self, state_of: Callable[[Array], Array], seed: int) -> Array:
        """States made of draws of N(0, I), which are halved while f is too large at them."""
        space, z = self._prepared.space, self._normals(seed)
        allowed = space.dim / 2 + _FAR * math.sqrt(space.dim)
        least = space.potentials(state_of(np.zeros_like(z)))
        for _ in range(_SHRINKS):
            check_budget()
            far = ~(space.potentials(state_of(z)) - least <= allowed)
            z = np.where(far[:, None], z / 2, z)
        return state_of(z)

    def _follow_up(self, sampler: Runnable) -> FollowUp:
        """What the correction of moments and the verdict take after the draws, for the budget."""
        prepared, request, space = self._prepared, self._prepared.request, self._prepared.space
        chains, correction = len(request.chains), costs.correction_seconds(space, CORRECTED * request.draws)
        if prepared.budget.unlimited:
            return FollowUp()
        if sampler.gradients_come_free:
            passes = sampler.rows_of_step(space) / space.n
            return FollowUp((correction, 0.0), (0.0, 0.0), chains * passes * costs.pass_seconds(space), chains * passes)
        gradient = prepared.fresh.low_noise_gradient(CORRECTED * request.draws)
        recipe = gradient.recipe(space)
        per_draw = (correction + costs.recipe_seconds(space, recipe), recipe.rows_of_estimate / space.n)
        if sampler.invariant:
            rows = sampler.rows_of_step(space)
            return FollowUp(per_draw, (0.0, 0.0), chains * costs.rows_seconds(space, rows), chains * rows / space.n)
        once = prepared.bias_judge.first_cost(sampler, gradient)
        if not (request.certificate and prepared.budget.covers(2 * once[0], 2 * once[1])):  # else the draws come first
            once = (0.0, 0.0)
        own_recipe = sampler.gradient.recipe(space)
        return FollowUp(
            per_draw,
            once,
            chains * costs.recipe_seconds(space, own_recipe),
            chains * own_recipe.rows_of_estimate / space.n,
        )
