"""One call of `sample`: finds the mode, chooses, draws and judges, and goes on until the verdict stands.

Where a budget ends too soon, what is ready is the answer. Draws without gradients at them have moments that nothing
corrects. Where fewer than four draws of a chain were affordable, the posterior is taken as N(x̂, H⁻¹), of which
independent draws cost nothing more than the map x = x̂ + W z. Nothing is known of its error: the verdict is "undecided",
and the standard errors are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace

import numpy as np

from svrhmc.checkpoint import Clock, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget, BudgetSpent, check_budget
from svrhmc.core.errors import DivergenceError, finite, nonnegative, optional, text, whole_number
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import from_settings, is_part, to_settings
from svrhmc.core.storage import Record
from svrhmc.density.base import FiniteSum
from svrhmc.diagnostics import spread
from svrhmc.exact.base import Runnable
from svrhmc.exact.jumps import MOST_COORDINATES, Jumps, Regions, regions
from svrhmc.gradients import Full, Gradient
from svrhmc.rows.forms import functions_of
from svrhmc.samplers import MOST_STEPS, Sampler
from svrhmc.sampling import costs
from svrhmc.sampling.answer import Answer, Cost, Request, independent_trace
from svrhmc.sampling.bias import BiasJudge, settling_steps
from svrhmc.sampling.certificate import DECIDED, Certificate, judge_invariant, unjudged, unknown_bias, unmeasured
from svrhmc.sampling.choice import Choice, Chooser
from svrhmc.sampling.coordinates import ReportedCoordinates, find_whitening
from svrhmc.sampling.correction import Corrected, DrawMoments, Location
from svrhmc.sampling.doubts import (
    DRAWS,
    NO_VARIANCE,
    agreement,
    curvatures,
    cut_short,
    heavy_tail,
    is_narrow,
    least_tail_acceptance,
    longest_stay,
    narrowing,
    refusing_tail,
    staying,
    tail_draws,
    tail_of_draws,
    tails_by_density,
    unsettled,
)
from svrhmc.sampling.doubts import MOST_COORDINATES as FEW_COORDINATES
from svrhmc.sampling.drawing import LEAST, Drawing, Drawn, FollowUp
from svrhmc.sampling.gaussianity import Gaussianity
from svrhmc.sampling.gradients import FreshGradients
from svrhmc.sampling.modes import Modes, exchanged_components
from svrhmc.sampling.parameters import heavy_shapes, stated_parameters, without_unknown
from svrhmc.trace import Trace, numbered, sampler_of
from svrhmc.whitening import whitened
from svrhmc.whitening.targets import Space

_HALVINGS, _STEPS_SHORTER = 4, 2  # of a refuted step; of those before an exact sampler takes over
_TUNING, _ACCEPTED, _LEAST = 40, 0.7, 0.3  # draws after which shares of proposals are accepted, by all and by each
_FAR, _SHRINKS = 5.0, 6  # √dim above its mean that f may be where a chain starts, and halvings of a start
_HALF = 0.5  # of a step that left a run undecided, or with which next to no proposals are accepted
_QUARTER_LESS, _NEXT_TO_NONE = 0.75, 0.1  # of a step with which too few proposals are accepted; the share of those
_NARROW = 4  # times the draws asked for that are made where a part of the posterior is narrow
_WIDER = 2.0  # times the spread of an attempt that another has where it saw more
_ADVICE = "another `method`"
_MOST_DRAWS = 16  # times the draws asked for that are made where chance would hide whether a bias is small
_NUMBERS = 1 << 21  # of states at which gradients are found at once
_AGAIN = 2.0  # times the states that are corrected at least
_CORRECTED = 4  # states, for each effective draw asked for, at which ∇f is found for a correction
_LAPLACE_RECORD, _LAPLACE_SEED = "budget", 1 << 53  # of a search that ended before there were draws
_LAPLACE_NUMBERS = 1 << 19  # in draws of the Laplace approximation, that are made whatever is left of a budget
_NO_DRAWS = "the budget ended before any draw; these numbers are those of the Laplace approximation"


@dataclass(frozen=True, eq=False)
class _Attempt:
    """A choice at work: its number, its seed and the sampler as it was tuned."""

    number: int
    seed: int
    choice: Choice
    sampler: Runnable


class Search:
    """From a request to an answer; what is finished stands in the journal."""

    @staticmethod
    def width(target: FiniteSum, draws: int) -> int:
        """How many numbers are kept of each draw."""
        return int(target.dim)

    def __init__(self, request: Request, journal: Journal, budget: Budget) -> None:
        self.request, self.journal, self.budget = request, journal, budget
        request.target.watched(budget.spend)
        self._raw_moments: dict[int, Location] = {}  # of the draws of each attempt, by its number
        self._best: Answer | None = None
        self._hopeless = False  # whether no other step can help
        self._names = request.target.names or numbered(request.target.dim)

    def run(self) -> tuple[Answer, Cost]:
        """Until the verdict stands or the budget ends; with what all attempts took."""
        request, budget = self.request, self.budget
        self.space = self._whitened()
        self.modes = self._regions()
        self.fresh = FreshGradients(self.space, request.threads, budget)
        self.gaussianity = Gaussianity(self.fresh)
        self.chooser = Chooser(
            request.target,
            self.space,
            request.draws,
            request.tolerance,
            request.seconds,
            self.fresh,
            self.gaussianity,
            budget,
            self.modes,
            self._seconds_of_verdict,
        )
        self.reported = ReportedCoordinates(self.space.whitening, request.units)
        self.bias_judge = BiasJudge(self.fresh, budget, self.journal, request.tolerance, self.reported)
        budget.end_stage("mode and whitening")
        try:
            with budget.binding():
                self._attempts()
        except BudgetSpent:
            budget.end_stage("sampling")
        answer = self._laplace() if self._best is None else self._best
        seconds, passes = budget.used()
        return answer, Cost(passes, seconds, budget.compiling, dict(budget.steps))

    def _whitened(self) -> Space:
        """The target in whitened variables."""
        request = self.request
        try:
            with stage("finding the mode", request.progress), self.budget.binding():
                whitening = find_whitening(request.target, request.seed, self.journal, self.budget)
                _ = whitening.variances  # part of every answer, and found once where that is long
                with self.journal.recording("space", self.budget):
                    space: Space = whitened(request.target, whitening)
                    space.prepare()
        except BudgetSpent:
            raise self.budget.exceeded_error("the mode and the curvature there are found") from None
        return space

    def _regions(self) -> Regions | None:
        """What jumps between modes need, where there are several, or one is a peak above a wide foot; found once for a
        journal.
        """
        target, space = self.request.target, self.space
        modes, dim = target.modes(), space.dim
        if not target.has_potential or dim > MOST_COORDINATES or not (len(modes) > 1 or target.has_feet()):
            return None

        def make() -> Record:
            around = regions(space, modes)
            self.budget.evaluations += 2.0 * len(modes) * space.n
            return Record({}, {field.name: getattr(around, field.name) for field in fields(Regions)})

        record = self.journal.once("regions", make)
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

    def _jumps(self, sampler: Runnable) -> Regions | None:
        """The modes between which chains of a sampler jump."""
        return self.modes if sampler.invariant and sampler.jumps else None

    # Attempts

    def _attempts(self) -> None:
        """Chooses and draws, again and again; `_best` is what came of it so far."""
        if self.journal.get(_LAPLACE_RECORD) is not None:
            raise BudgetSpent
        choice = self._choose()
        self.budget.end_stage("choice")
        for number in range(2 * _HALVINGS):
            begun = self.budget.used()
            try:
                answer, stopped = self._attempt(choice, number)
            except DivergenceError as error:
                following = self._after(choice, "diverged", number, begun)
                if following is None and self._best is None:
                    raise error.advising(_ADVICE) from None
            else:
                if self._best is None or _rank(answer) >= _rank(self._best):
                    self._best = answer
                if answer.certificate.verdict in DECIDED or stopped:
                    return
                following = self._after(choice, f"was {answer.certificate.verdict}", number, begun)
            if following is None:
                return
            choice = following

    def _after(self, choice: Choice, outcome: str, number: int, begun: tuple[float, float]) -> Choice | None:
        """What to try next: half the step, then an exact sampler, then smaller steps of that; None where a sampler was
        given, nothing is left to try, or the budget does not pay for as much again.
        """
        now, sampler = self.budget.used(), choice.sampler
        if (
            self._given
            or self._hopeless
            or (self.modes is None and len(self.request.target.modes()) > 1)
            or not self.budget.covers(now[0] - begun[0], now[1] - begun[1])
        ):
            return None
        exact = self.chooser.exact() if self.request.method is None else None
        if sampler.invariant:
            other = sampler.narrowing() or sampler.smaller(_HALF) or exact
            return None if other is None or number >= _HALVINGS or other == sampler else choice.instead(other, outcome)
        if number >= (_HALVINGS if exact is None else _STEPS_SHORTER):
            return None if exact is None else choice.instead(exact, outcome)
        return choice.halved(outcome)

    @property
    def _given(self) -> bool:
        """Whether a sampler was given, which is run as it is."""
        return self.request.method is not None and not isinstance(self.request.method, str)

    def _choose(self) -> Choice:
        record = None if self._given else self.journal.get("choice")
        if record is not None:
            self.budget.restore(record)
            self.fresh.recall(record.value("row noise", optional, nonnegative))
            spread = record.array("spread", (self.space.dim,)) if "spread" in record.arrays else None
            self.gaussianity.recall(record.value("tail", optional, finite), spread)
            sampler = record.value("sampler", lambda _, parts: sampler_of(parts))
            return Choice(record.value("method", text), sampler, record.value("why", text))
        with stage("choosing a sampler", self.request.progress), self.journal.recording("choosing", self.budget):
            choice = self.chooser.choose(self.request.method)
        if self.journal.kept and not self._given:
            tail, spread = self.gaussianity.measured()
            settings = {"method": choice.method, "sampler": choice.sampler.settings(), "why": choice.why}
            settings |= {"row noise": self.fresh.measured_noise(), "tail": tail, "ledger": self.budget.ledger()}
            self.journal.put("choice", settings, {} if spread is None else {"spread": spread})
        return choice

    def _attempt(self, choice: Choice, number: int) -> tuple[Answer, bool]:
        """What came of a choice, and whether a budget ended it."""
        seed, request = self.request.seed + (number << 40), self.request
        if choice.sampler.invariant:
            sampler, drawing = self._tuned(choice.sampler, seed, number)
        else:
            sampler, drawing = choice.sampler, self._drawing(choice.sampler, seed, f"{number}")
            drawing.settle(self._burn_in(sampler), request.progress)
        expected = 0.7 if sampler.invariant else 0.4
        attempt, wanted = _Attempt(number, seed, choice, sampler), self._wanted(sampler, number)
        before: Answer | None = None
        while True:
            drawn = drawing.draw(wanted, expected, request.progress)
            self.budget.end_stage("sampling")
            since = self.budget.used()
            with stage("moments", request.progress):
                try:
                    few, gradient, pulled = self._gradients(drawn, attempt, wanted)
                except BudgetSpent:
                    return before or self._answer(attempt, drawing, drawn, DrawMoments.uncorrected(drawn)), True
                self.budget.end_stage("gradients at the draws")
                with self._recording(f"moments-{number}", drawn, wanted):
                    one_mode = request.target.one_mode is not None or not sampler.invariant
                    variances = self.reported.variances
                    moments = DrawMoments.of(few, gradient, pulled, variances, drawn.effective, one_mode)
            more = 1.0 if sampler.invariant or self._given else moments.chance.more(request.tolerance)
            if wanted > request.draws or not 1 < more <= _MOST_DRAWS or not drawn.complete:
                answer = self._answer(attempt, drawing, drawn, moments)
                if drawn.stopped and drawn.effective.min() < wanted and drawing.goes_on(since):
                    before = answer
                    continue
                return answer, drawn.stopped
            wanted = math.ceil(float(f"{1.2 * more:.6g}") * request.draws)
            if self.journal.kept:
                self.journal.put(f"wanted-{number}", {"wanted": wanted, "ledger": self.budget.ledger()})

    def _recording(self, name: str, drawn: Drawn, wanted: int = 0) -> AbstractContextManager[None]:
        """Of work on these draws, of which so many effective ones are wanted."""
        return self.journal.recording(name, self.budget, {"draws": drawn.x.shape[1], "wanted": wanted})

    def _wanted(self, sampler: Runnable, number: int) -> int:
        """Effective draws: those asked for, or more where an attempt that was killed had found that it needs them; and
        more where some steps are shorter because a part of the posterior is narrow. Chains that stop as soon as their
        draws seem to be enough stop before they have been in such a part, as that is when the draws seem so.
        """
        record = self.journal.get(f"wanted-{number}")
        if record is None:
            return self.request.draws * self._times(sampler)
        if self.budget.is_before(record):  # else the chains' own record is the later
            self.budget.restore(record)
        return record.value("wanted", whole_number, 1, MOST_STEPS)

    def _times(self, sampler: Runnable) -> int:
        """How many times as many draws are made because a part of the posterior is narrow."""
        return _NARROW if sampler.invariant and sampler.cycle > 1 else 1

    # Chains

    def _burn_in(self, sampler: Sampler) -> int:
        return settling_steps(sampler.dynamics.scheme(self.space), sampler.gradient.recipe(self.space).epoch)

    def _tuned(self, sampler: Runnable, seed: int, number: int) -> tuple[Runnable, Drawing]:
        """Chains after their burn-in; the step of an automatic SplitHMC falls by a quarter until 7 in 10 proposals are
        accepted, and 3 in 10 of every single chain; to half while next to none are.
        """
        proposals, tuning = _TUNING * len(self.request.chains), 0
        convex = self.request.target.convex_components
        while True:
            drawing = self._drawing(sampler, seed, f"{number}" if not tuning else f"{number}-{tuning}")
            accepted = drawing.settle(_TUNING, self.request.progress)
            share = _QUARTER_LESS if accepted.sum() > _NEXT_TO_NONE * proposals else _HALF
            smaller = None if self._given else sampler.smaller(share, convex)
            enough = accepted.sum() >= _ACCEPTED * proposals and accepted.min() >= _LEAST * _TUNING
            if smaller is None or drawing.draws_made or enough or drawing.cut(_TUNING):
                return sampler, drawing
            sampler, tuning = smaller, tuning + 1

    def _drawing(self, sampler: Runnable, seed: int, name: str) -> Drawing:
        """Chains of a sampler, compiled, where the journal left them."""
        request, space = self.request, self.space
        with self.journal.recording(f"start-{name}", self.budget):
            modes = self._jumps(sampler)
            start = self._start(sampler, modes, seed)
            if space.at_hand < space.n:
                count = math.ceil(_AGAIN * _CORRECTED * request.draws)
                self.fresh.expect(self.fresh.quiet(count), np.arange(count), seed + (1 << 50))
            moves = sampler if modes is None else Jumps(sampler, modes)
            chains = moves.chains(space, seed, request.chains, request.threads, start, request.engine)
        self.budget.compile(chains.compile)
        near = not sampler.invariant and space.identity_hessian
        settings = {
            "sampler": sampler.settings() if is_part(sampler) else {}, "engine": chains.engine,
            "seed": request.seed, "n": request.target.n,
            "step_size": sampler.dynamics.step_size if near else None,
        }  # fmt: skip
        return Drawing(
            chains,
            request.chains,
            self.reported,
            f"chains-{name}",
            self.journal,
            self.budget,
            settings,
            self._follow_up(sampler),
            states=not (sampler.invariant and sampler.gradients_come_free),
            modes=len(request.target.modes()),
        )

    def _start(self, sampler: Runnable, modes: Regions | None, seed: int) -> Array:
        """Draws of N(0, I) about the modes, in turn, so that chains that do not find each other disagree; of an exact
        sampler each is moved to its mode by halves while it is far out in the posterior, where a chain could stand
        still. Where chains jump these are in the variables of each mode, and of the modes with the largest mass where
        there are more than chains.
        """
        numbers = np.arange(len(self.request.chains))
        if modes is not None:
            index = np.argsort(-modes.log_masses, kind="stable")[numbers % modes.count]
            return self._near(lambda u: modes.out(index, u), seed)
        if sampler.invariant and self.gaussianity.nearly_gaussian():
            return self._normals(seed)
        points = self.space.into(self.request.target.modes())
        points[0] = 0.0
        centre = np.asarray(points[numbers % len(points)], np.float64)
        if sampler.invariant:
            return self._near(lambda z: centre + z, seed)
        return centre + self.fresh.laplace(self.request.chains, seed)

    def _normals(self, seed: int) -> Array:
        return Stream(seed, self.request.chains).normals(0, self.space.dim, Purpose.START, Purpose.START_FINE)

    def _near(self, out: Callable[[Array], Array], seed: int) -> Array:
        """States from draws of N(0, I), halved while they are far out."""
        z, allowed = self._normals(seed), self.space.dim / 2 + _FAR * math.sqrt(self.space.dim)
        least = self.space.potentials(out(np.zeros_like(z)))
        for _ in range(_SHRINKS):
            check_budget()
            far = ~(self.space.potentials(out(z)) - least <= allowed)
            z = np.where(far[:, None], z / 2, z)
        return out(z)

    def _follow_up(self, sampler: Runnable) -> FollowUp:
        """What a verdict takes; what is free, or not asked for, is nothing."""
        request, space = self.request, self.space
        chains, correction = len(request.chains), costs.of_correction(space, _CORRECTED * request.draws)
        if self.budget.unlimited:
            return FollowUp()
        if sampler.gradients_come_free:
            passes = sampler.rows_of_step(space) / space.n
            return FollowUp((correction, 0.0), (0.0, 0.0), chains * passes * costs.of_pass(space), chains * passes)
        gradient = self.fresh.quiet(_CORRECTED * request.draws)
        recipe = gradient.recipe(space)
        of_draw = (correction + costs.of_recipe(space, recipe), recipe.rows_of_estimate / space.n)
        if sampler.invariant:
            rows = sampler.rows_of_step(space)
            return FollowUp(of_draw, (0.0, 0.0), chains * costs.of_rows(space, rows), chains * rows / space.n)
        once = self.bias_judge.once(sampler, gradient)
        if not (request.certificate and self.budget.covers(2 * once[0], 2 * once[1])):  # else the draws come first
            once = (0.0, 0.0)
        own = sampler.gradient.recipe(space)
        return FollowUp(of_draw, once, chains * costs.of_recipe(space, own), chains * own.rows_of_estimate / space.n)

    def _seconds_of_verdict(self, sampler: Sampler) -> float:
        """Seconds of the gradients at draws of a biased sampler, and of the first pairs that measure its bias."""
        count = _CORRECTED * self.request.draws
        gradient = self.fresh.quiet(count)
        seconds = count * costs.of_recipe(self.space, gradient.recipe(self.space))
        return seconds + (self.bias_judge.once(sampler, gradient)[0] if self.request.certificate else 0.0)

    # What the draws say

    def _answer(self, attempt: _Attempt, drawing: Drawing, drawn: Drawn, moments: DrawMoments) -> Answer:
        request, sampler, x = self.request, attempt.sampler, drawn.x
        with stage("tails", request.progress), self._recording(f"tails-{attempt.number}", drawn):
            raw, r_hat = Location(x.mean(axis=(0, 1)), spread(x)), agreement(x)
            effective = np.minimum(drawn.effective, 2 * tail_draws(x))  # of the tails half as many do
            narrow = self._narrow(sampler, drawn) if sampler.invariant else ""
            modes = self._modes(x)
        seldom = "" if modes is None or self.modes is None else modes.doubt
        count, chains = len(request.target.modes()), len(request.chains)
        stay, times = longest_stay(x), self._times(sampler)
        doubt = unsettled(effective, r_hat, request.draws, chains, drawn.stopped, count, stay, times)
        with stage("tails", request.progress), self._recording(f"density-{attempt.number}", drawn):
            law, settled = self.space.whitening, not doubt
            tails = tails_by_density(request.target, x, raw.sd, self.budget, law, drawn.stopped, settled)
        shapes = tails.shapes
        heavy = heavy_tail(self._names, shapes)
        infinite = heavy if (shapes >= NO_VARIANCE).any() else ""
        self._hopeless = bool(infinite or request.target.doubt or seldom)
        doubt = f"{infinite}; besides, {doubt}" if infinite and doubt else infinite or doubt
        doubt = doubt or seldom or self._reached_less(raw, attempt.number) or moments.doubt or request.target.doubt
        if sampler.invariant:
            doubt = doubt or staying(sampler.stay_index(self.gaussianity))
            doubt = doubt or refusing_tail(least_tail_acceptance(x, drawing.first, sampler.cycle)) or narrow
        if not doubt and request.target.one_mode is None:  # a wide mode, or the foot of a peak, is no tail
            with self._recording(f"shapes-{attempt.number}", drawn):
                shapes = heavy_shapes(x, tails.known) if self.modes is None and count == 1 else shapes
            doubt = heavy or tail_of_draws(self._names, shapes)
            self._hopeless = self._hopeless or bool(doubt)  # other steps see the same tail
        certificate = self._judged(attempt, drawn, moments, doubt)
        certificate = certificate.knowing(request.target.one_mode, count, request.target.mode_starts)
        self.budget.end_stage("certificate")
        corrected = moments.corrected.missing(tails.unseen)
        best: Location | Corrected = corrected if certificate.corrects else raw
        with stage("parameters", request.progress), self._recording(f"parameters-{attempt.number}", drawn):
            parameters = stated_parameters(
                request.target,
                x,
                moments.corrected_at if certificate.corrects else None,
                self.space.whitening.pull,
                tails,
            )
        mean, sd = without_unknown(best.mean, best.sd, shapes) if shapes.any() else (best.mean, best.sd)
        trace = Trace(
            draws=x,
            passes=drawn.spent / request.target.n,
            gradient_evaluations=round(drawing.chains.state.spent),
            velocity=np.zeros_like(x[:, 0]),
            seconds=self.budget.steps.get("sampling", 0.0),
            sampler=sampler,
            seed=request.seed,
            chains=request.chains,
            engine=drawing.chains.engine,
            acceptance=drawing.acceptance,
        )
        rough = self.space.whitening.why
        notes = (attempt.choice.why, f"The whitening is only rough: {rough}." if rough else "", request.target.note)
        return Answer(
            mean=mean,
            sd=sd,
            raw=raw,
            corrected=corrected,
            laplace=self.reported.laplace,
            trace=trace,
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

    def _judged(self, attempt: _Attempt, drawn: Drawn, moments: DrawMoments, doubt: str) -> Certificate:
        """The verdict, given a doubt about the draws or none."""
        request, tolerance = self.request, self.request.tolerance
        if attempt.sampler.invariant:
            return judge_invariant(moments.stein, tolerance, doubt)
        if not request.certificate:
            return unjudged(tolerance, moments.stein, doubt)
        if moments.doubt:
            return unmeasured(tolerance, moments.stein, doubt)
        slow = drawn.x.shape[1] * len(request.chains) / (2 * float(drawn.effective.min()))
        with stage("certificate", request.progress):
            return self.bias_judge.judge(attempt.sampler, moments, (attempt.seed, attempt.number), doubt, slow)

    def _narrow(self, sampler: Runnable, drawn: Drawn) -> str:
        """A doubt, where steps are too long for a part of a model of functions; not asked where a budget ended the
        draws or does not pay for it, nor where chains move around several modes in the variables of each. Where a
        budget ended a run with shorter steps before it had its draws, that is a doubt too.
        """
        target, space, budget = self.request.target, self.space, self.budget
        if drawn.stopped and sampler.cycle > 1 and drawn.effective.min() < _NARROW * self.request.draws:
            return cut_short(_NARROW * self.request.draws)
        asked = functions_of(target.form()) is not None and space.dim <= FEW_COORDINATES and not drawn.stopped
        if not asked or sampler.reach is None or self._jumps(sampler) is not None:
            return ""
        passes = float(DRAWS * space.dim)
        if not budget.covers(passes * costs.of_pass(space), passes):
            return ""
        budget.evaluations += passes * space.n
        if not is_narrow(curvatures(target, drawn.x, space.whitening), sampler.reach):
            return ""
        return f"{narrowing(sampler.reach)}; modes were looked for from {target.mode_starts}"

    def _modes(self, x: Array) -> Modes | None:
        """What the draws say of several modes; None where there is one."""
        points, units = self.request.target.modes(), self.request.units
        if len(points) == 1:
            return None
        inward, location = (x, points) if units is None else (units.inward(x), units.outward(points))
        exchanged = exchanged_components(self.request.target, points)
        if self.modes is None:
            return replace(Modes.unknown(location), exchanged=exchanged)
        z = self.space.into(inward.reshape(-1, x.shape[2]))
        shares = self.modes.memberships(z).reshape(*x.shape[:2], -1)
        return replace(Modes.of(location, shares, np.exp(self.modes.log_masses)), exchanged=exchanged)

    def _reached_less(self, raw: Location, number: int) -> str:
        """A doubt, where an earlier attempt saw more of the posterior than this one."""
        self._raw_moments[number] = raw
        for attempt, moments in self._raw_moments.items():
            wider = (np.abs(moments.mean - raw.mean) > moments.sd) | (moments.sd > _WIDER * raw.sd)
            if attempt < number and wider.any():
                return "a run with a longer step reached more of the posterior, which may have other modes"
        return ""

    def _gradients(self, drawn: Drawn, attempt: _Attempt, wanted: int) -> tuple[Drawn, Gradient, Array]:
        """WWᵀ∇f in the user's variables at the draws where it came for free; else estimates from rows of their own, at
        some of them.
        """
        if drawn.pulled is not None:
            return drawn, Full(), drawn.pulled
        few = drawn.thinned(_CORRECTED * wanted)
        name = f"gradients-{attempt.number}-{wanted}-{drawn.x.shape[1]}"
        flat = few.z.reshape(-1, few.z.shape[2])
        most = max(1, _NUMBERS // flat.shape[1])
        record, rows = self.journal.get(name), self.journal.growing(name, (1, few.z.shape[2]), name)
        if record is not None:
            self.budget.restore(record)
            gradient = record.value("gradient", lambda _, parts: from_settings(parts))
        else:
            gradient = self.fresh.quiet(len(flat))
            if not self.budget.covers(0.0, len(flat) * gradient.recipe(self.space).rows_of_estimate / self.space.n):
                gradient = self.fresh.quiet(_CORRECTED * self.request.draws)  # as `_follow_up` has it
        clock, done = Clock(), rows.array().shape[1]
        if record is not None and done > len(flat):
            raise record.unusable(f"it has {done} gradients at {len(flat)} draws")
        rows.expect(len(flat) - done)
        while done < len(flat):
            piece = min(len(flat) - done, most)
            piece = clock.piece(piece) if self.journal.kept else piece
            before = self.budget.used()[0]
            with self.journal.within(f"within-{name}", self.budget, done, piece):
                estimates = self.fresh.at(gradient, flat[done : done + piece], attempt.seed + (1 << 50), done)
            rows.append(estimates[None])
            clock.learn(piece, self.budget.used()[0] - before)
            done += piece
            if self.journal.kept and (clock.due() or done >= len(flat)):
                self.journal.put(name, {"gradient": to_settings(gradient), "ledger": self.budget.ledger()})
        gradients = rows.array()[0].reshape(few.z.shape)
        return few, gradient, self.reported.displace(gradients, into=None if self.journal.kept else gradients)

    def _laplace(self) -> Answer:
        """The Laplace approximation, with draws of it: as many as were asked for where that is no work."""
        request, chains, dim = self.request, len(self.request.chains), self.request.target.dim
        count = max(LEAST, min(-(-request.draws // chains), _LAPLACE_NUMBERS // (chains * dim)))
        stream = Stream(request.seed + _LAPLACE_SEED, request.chains)
        z = stream.normals(0, count * dim, Purpose.START, Purpose.START_FINE).reshape(1, chains * count, dim)
        x = self.reported.out(z).reshape(chains, count, dim)
        laplace, unknown = self.reported.laplace, np.full(dim, np.inf)
        if self.journal.kept and self.journal.get(_LAPLACE_RECORD) is None:
            self.journal.put(_LAPLACE_RECORD, {"ledger": self.budget.ledger()})
        return Answer(
            mean=laplace.mean,
            sd=laplace.sd,
            raw=Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)),
            corrected=Corrected(laplace.mean, laplace.sd, unknown, unknown),
            laplace=laplace,
            trace=independent_trace(x, request, 0.0),
            method="laplace",
            sampler=None,
            why="the Laplace approximation, because the budget did not pay for draws of the posterior.",
            certificate=unmeasured(request.tolerance, unknown_bias(dim), _NO_DRAWS),
            ess=np.full(dim, float(chains * count)),
            r_hat=np.ones(dim),
            complete=False,
            stopped=True,
            parameters=stated_parameters(request.target, x),
        )


def _rank(answer: Answer) -> tuple[bool, bool, bool]:
    """Decided ones first, then those that are not refuted, then whole ones."""
    verdict = answer.certificate.verdict
    return verdict in DECIDED, verdict != "refuted", answer.complete
