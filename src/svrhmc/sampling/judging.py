"""From the draws of an attempt to an answer: the doubts about them, the verdict, and the reported moments."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.progress import stage
from svrhmc.diagnostics import spread
from svrhmc.exact.base import Runnable
from svrhmc.rows.forms import functions_of
from svrhmc.sampling import costs
from svrhmc.sampling.answer import Answer, stated_parameters
from svrhmc.sampling.certificate import Certificate, judge_invariant, unjudged, unmeasured
from svrhmc.sampling.choice import Choice
from svrhmc.sampling.correction import Corrected, DrawMoments, Location
from svrhmc.sampling.doubts import (
    DRAWS,
    MOST_COORDINATES,
    cut_short_doubt,
    is_narrow,
    largest_curvatures,
    largest_r_hat,
    least_tail_acceptance,
    long_stay_doubt,
    longest_stay,
    settling_doubt,
    tail_acceptance_doubt,
    tail_draws,
    unstable_steps_doubt,
)
from svrhmc.sampling.drawing import Drawing, Drawn
from svrhmc.sampling.modes import Modes, exchanged_components
from svrhmc.sampling.preparation import Preparation
from svrhmc.sampling.rays import missed_part_doubt
from svrhmc.sampling.tails import (
    NO_VARIANCE,
    density_tail_doubt,
    draws_tail_doubt,
    heavy_shapes,
    moments_with_tails,
    tails_by_density,
)
from svrhmc.trace import numbered

_NARROW = 4  # times the draws asked for that are made where a part of the posterior is narrow
_WIDE_PART = "and a wide part around it along rays"
_WIDER = 2.0  # times the sd of this attempt that an earlier one had where it reached more of the posterior


def draws_factor(sampler: Runnable) -> int:
    """How many times the draws asked for a sampler makes: more if some of its steps are shorter because a part of the
    posterior is narrow. Chains that stopped as soon as their draws seem to be enough would stop before they have been
    there, as that is when the draws seem so.
    """
    return _NARROW if sampler.invariant and sampler.cycle > 1 else 1


@dataclass(frozen=True, eq=False)
class Attempt:
    """A choice at work: its number, its seed and the sampler as it was tuned."""

    number: int
    seed: int
    choice: Choice
    sampler: Runnable


class DrawJudge:
    """Judges the draws of one attempt after another.

    hopeless: whether no other step can help, by what the last draws show. steep: whether the curvature at them rises
        too steeply for their steps, as far as it was looked at.
    """

    def __init__(self, preparation: Preparation) -> None:
        self._prepared = preparation
        self._locations: dict[int, Location] = {}  # of the draws of each attempt, by its number
        self.hopeless = self.steep = False
        target = preparation.request.target
        self._names = target.names or numbered(target.dim)

    def answer(self, attempt: Attempt, drawing: Drawing, drawn: Drawn, moments: DrawMoments) -> Answer:
        """The answer that these draws give."""
        prepared, request, sampler, x = self._prepared, self._prepared.request, attempt.sampler, drawn.x
        target, budget, count = request.target, prepared.budget, prepared.parts
        with stage("tails", request.progress), prepared.recording(f"tails-{attempt.number}", drawn):
            raw, r_hat = Location(x.mean(axis=(0, 1)), spread(x)), largest_r_hat(x)
            effective = np.minimum(drawn.effective, 2 * tail_draws(x))  # half as many are enough in the tails
            narrow = self._narrow_part(sampler, drawn) if sampler.invariant else ""
            self.steep = bool(narrow)
            modes = self._modes(x)
        doubt = settling_doubt(
            effective,
            r_hat,
            request.draws,
            len(request.chains),
            drawn.stopped,
            count,
            longest_stay(x),
            draws_factor(sampler),
        )
        with stage("tails", request.progress), prepared.recording(f"density-{attempt.number}", drawn):
            tails = tails_by_density(target, x, raw.sd, budget, prepared.space.whitening, drawn.stopped, not doubt)
        shapes = tails.shapes
        heavy = density_tail_doubt(self._names, shapes)
        infinite = heavy if (shapes >= NO_VARIANCE).any() else ""
        seldom_between_modes = "" if modes is None or prepared.regions is None else modes.doubt
        self.hopeless = bool(infinite or target.doubt or seldom_between_modes)
        doubt = f"{infinite}; besides, {doubt}" if infinite and doubt else infinite or doubt
        doubt = doubt or seldom_between_modes or self._narrower_than_before(raw, attempt.number)
        doubt = doubt or moments.doubt or target.doubt
        if sampler.invariant:
            doubt = doubt or long_stay_doubt(sampler.stay_index(prepared.gaussianity))
            acceptance = least_tail_acceptance(x, drawing.first_number, sampler.cycle)
            doubt = doubt or tail_acceptance_doubt(acceptance) or narrow
        if not doubt and target.one_mode is None:  # a wide mode, or the foot of a peak, is no tail
            with prepared.recording(f"shapes-{attempt.number}", drawn):
                shapes = heavy_shapes(x, tails.known) if prepared.regions is None and count == 1 else shapes
                missed = self._missed_part(drawn)
            doubt = heavy or draws_tail_doubt(self._names, shapes) or missed
            self.hopeless = self.hopeless or bool(doubt)  # other steps see the same tail
        certificate = self._certificate(attempt, drawn, moments, doubt)
        modes_found = len(target.modes())
        starts = target.mode_starts if count == modes_found else f"{target.mode_starts}, {_WIDE_PART}"
        certificate = certificate.knowing(target.one_mode, modes_found, starts)
        budget.end_stage("certificate")
        corrected = moments.corrected.missing(tails.unseen)
        best: Location | Corrected = corrected if certificate.corrects else raw
        with stage("parameters", request.progress), prepared.recording(f"parameters-{attempt.number}", drawn):
            corrected_at = moments.corrected_at if certificate.corrects else None
            parameters = stated_parameters(target, x, corrected_at, prepared.space.whitening.pull, tails)
        mean, sd = moments_with_tails(best.mean, best.sd, shapes) if shapes.any() else (best.mean, best.sd)
        rough = prepared.space.whitening.why
        notes = (attempt.choice.why, f"The whitening is only rough: {rough}." if rough else "", target.note)
        return Answer(
            mean=mean,
            sd=sd,
            raw=raw,
            corrected=corrected,
            laplace=prepared.reported.laplace,
            trace=drawing.trace(drawn, x),
            method=attempt.choice.method,
            sampler=sampler,
            why=" ".join(filter(None, notes)),
            certificate=certificate,
            ess=drawn.effective,
            r_hat=r_hat,
            complete=drawn.complete,
            stopped=drawn.stopped,
            parameters=parameters,
            modes=modes,
            tails=shapes if shapes.any() else None,
        )

    def _certificate(self, attempt: Attempt, drawn: Drawn, moments: DrawMoments, doubt: str) -> Certificate:
        """The verdict, given a doubt about the draws ("" for none)."""
        request, tolerance = self._prepared.request, self._prepared.request.tolerance
        if attempt.sampler.invariant:
            return judge_invariant(moments.stein, tolerance, doubt)
        if not request.certificate:
            return unjudged(tolerance, moments.stein, doubt)
        if moments.doubt:
            return unmeasured(tolerance, moments.stein, doubt)
        relaxation = drawn.x.shape[1] * len(request.chains) / (2 * float(drawn.effective.min()))
        with stage("certificate", request.progress):
            place = attempt.seed, attempt.number
            return self._prepared.bias_judge.judge(attempt.sampler, moments, place, doubt, relaxation)

    def _narrow_part(self, sampler: Runnable, drawn: Drawn) -> str:
        """The doubt that steps are too long for a narrow part of the posterior; for models of functions alone.

        Not examined if a budget ended the draws or does not pay for it, nor if chains jump between several modes in the
        variables of each. If a budget ended a run with some shorter steps before it had all of its draws, that is the
        doubt.
        """
        prepared, needed = self._prepared, draws_factor(sampler) * self._prepared.request.draws
        target, space, budget = prepared.request.target, prepared.space, prepared.budget
        if drawn.stopped and sampler.cycle > 1 and drawn.effective.min() < needed:
            return cut_short_doubt(needed)
        examined = functions_of(target.form()) is not None and space.dim <= MOST_COORDINATES and not drawn.stopped
        if not examined or sampler.reach is None or prepared.regions_for(sampler) is not None:
            return ""
        passes = float(DRAWS * space.dim)
        if not budget.covers(passes * costs.pass_seconds(space), passes):
            return ""
        budget.evaluations += passes * space.n
        if not is_narrow(largest_curvatures(target, drawn.x, space.whitening), sampler.reach):
            return ""
        return f"{unstable_steps_doubt(sampler.reach)}; modes were looked for from {target.mode_starts}"

    def _missed_part(self, drawn: Drawn) -> str:
        """The doubt that the draws miss a wide part; "" where there are no rays that could show it."""
        prepared, units = self._prepared, self._prepared.request.units
        if prepared.rays is None:
            return ""
        flat = (drawn.x if units is None else units.inward(drawn.x)).reshape(-1, drawn.x.shape[2])
        z = prepared.space.into(flat)
        return missed_part_doubt(prepared.rays, float(np.sqrt((z * z).sum(axis=1).max())), float(drawn.effective.min()))

    def _modes(self, x: Array) -> Modes | None:
        """What the draws say of several modes, or of one and a wide part around it; None if there is one without."""
        prepared, units = self._prepared, self._prepared.request.units
        points, regions = prepared.request.target.modes(), prepared.regions
        if prepared.parts == 1:
            return None
        if regions is not None:
            points = np.concatenate([points, prepared.space.out(regions.centres[len(points) :])])
        inward, location = (x, points) if units is None else (units.inward(x), units.outward(points))
        exchanged = exchanged_components(prepared.request.target, prepared.request.target.modes())
        if regions is None:
            return replace(Modes.unknown(location), exchanged=exchanged)
        z = prepared.space.into(inward.reshape(-1, x.shape[2]))
        shares = regions.memberships(z).reshape(*x.shape[:2], -1)
        return replace(Modes.of(location, shares, np.exp(regions.log_masses)), exchanged=exchanged)

    def _narrower_than_before(self, raw: Location, number: int) -> str:
        """The doubt that an earlier attempt reached more of the posterior than this one."""
        self._locations[number] = raw
        for earlier, location in self._locations.items():
            wider = (np.abs(location.mean - raw.mean) > location.sd) | (location.sd > _WIDER * raw.sd)
            if earlier < number and wider.any():
                return "a run with a longer step reached more of the posterior, which may have other modes"
        return ""
