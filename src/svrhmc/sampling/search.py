"""One call of `sample`: finds the mode, chooses a sampler, draws and judges, and goes on until the verdict stands.

If a budget ends too soon, what is ready is the answer. Draws without gradients at them have moments that nothing
corrects. If fewer than four draws of a chain were affordable, the posterior is approximated by N(x̂, H⁻¹), of which
independent draws cost nothing more than the map x = x̂ + W z. The error of that is unknown: the verdict is "undecided",
and the standard errors are infinite.
"""

from __future__ import annotations

import math

import numpy as np

from svrhmc.checkpoint import Clock, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget, BudgetSpent
from svrhmc.core.errors import DivergenceError, finite, nonnegative, optional, text, whole_number
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import from_settings, to_settings
from svrhmc.density.base import FiniteSum
from svrhmc.exact.base import Runnable
from svrhmc.gradients import Full, Gradient
from svrhmc.samplers import MOST_STEPS
from svrhmc.sampling.answer import Answer, Cost, Request, independent_trace, stated_parameters
from svrhmc.sampling.certificate import DECIDED, unknown_bias, unmeasured
from svrhmc.sampling.choice import Choice, Chooser
from svrhmc.sampling.correction import Corrected, DrawMoments, Location
from svrhmc.sampling.doubts import are_doomed
from svrhmc.sampling.drawing import LEAST, Drawn, SecondsAndPasses
from svrhmc.sampling.judging import Attempt, DrawJudge, draws_factor
from svrhmc.sampling.preparation import CORRECTED, GRADIENT_SEED, ChainStarter, Preparation
from svrhmc.trace import sampler_of

_HALVINGS, _FEW_HALVINGS = 4, 2  # of a refuted step; of those before an exact sampler takes over
_HALF = 0.5  # of the step of an exact sampler that left a run undecided
_ADVICE = "another `method`"
_MOST_DRAWS = 16  # times the draws asked for that are made where chance would hide whether a bias is small
_NUMBERS = 1 << 21  # of states at which gradients are computed at once
_LAPLACE_RECORD, _LAPLACE_SEED = "budget", 1 << 53  # of a search that ended before there were draws
_LAPLACE_NUMBERS = 1 << 19  # in draws of the Laplace approximation, that are made whatever is left of a budget
_NO_DRAWS = "the budget ended before any draw; these numbers are those of the Laplace approximation"


class Search:
    """From a request to an answer; what is finished is in the journal."""

    @staticmethod
    def width(target: FiniteSum, draws: int) -> int:
        """How many numbers are kept of each draw."""
        return int(target.dim)

    def __init__(self, request: Request, journal: Journal, budget: Budget) -> None:
        self.request, self.journal, self.budget = request, journal, budget
        request.target.watched(budget.spend)
        self._best: Answer | None = None
        self._sampler_given = request.method is not None and not isinstance(request.method, str)  # and run as it is

    def run(self) -> tuple[Answer, Cost]:
        """Until the verdict stands or the budget ends; with the cost of all attempts."""
        request, budget = self.request, self.budget
        self.prepared = Preparation.find(request, self.journal, budget)
        self._starter = ChainStarter(self.prepared, self._sampler_given)
        self._judge = DrawJudge(self.prepared)
        self._chooser = Chooser(
            request.target,
            self.prepared.space,
            request.draws,
            request.tolerance,
            request.seconds,
            self.prepared.fresh,
            self.prepared.gaussianity,
            budget,
            self.prepared.regions,
            self.prepared.verdict_seconds,
        )
        budget.end_stage("mode and whitening")
        try:
            with budget.binding():
                self._make_attempts()
        except BudgetSpent:
            budget.end_stage("sampling")
        answer = self._laplace_answer() if self._best is None else self._best
        seconds, passes = budget.used()
        return answer, Cost(passes, seconds, budget.compiling, dict(budget.steps))

    def _make_attempts(self) -> None:
        """Chooses and draws, again and again; `_best` is the best answer so far."""
        if self.journal.get(_LAPLACE_RECORD) is not None:
            raise BudgetSpent
        choice = self._choose()
        self.budget.end_stage("choice")
        for number in range(2 * _HALVINGS):
            begun = self.budget.used()
            try:
                answer, stopped = self._attempt(choice, number)
            except DivergenceError as error:
                following = self._next_choice(choice, "diverged", number, begun)
                if following is None and self._best is None:
                    raise error.advising(_ADVICE) from None
            else:
                if self._best is None or _rank(answer) >= _rank(self._best):
                    self._best = answer
                if answer.certificate.verdict in DECIDED or stopped:
                    return
                following = self._next_choice(choice, f"was {answer.certificate.verdict}", number, begun)
            if following is None:
                return
            choice = following

    def _next_choice(self, choice: Choice, outcome: str, number: int, begun: SecondsAndPasses) -> Choice | None:
        """What to try after a choice: half its step, then an exact sampler, then smaller steps of that.

        None if a sampler was given, nothing is left to try, or the budget does not pay for as much again as the attempt
        took since `begun`.
        """
        used, sampler = self.budget.used(), choice.sampler
        if self._judge.hopeless or not self.budget.covers(used[0] - begun[0], used[1] - begun[1]):
            return None
        another = self._next_sampler(sampler, number)
        if another is not None:
            return choice.with_sampler(another, outcome)
        may_halve = self._may_change and not sampler.invariant and number < _HALVINGS
        return choice.with_half_step(outcome) if may_halve else None

    @property
    def _may_change(self) -> bool:
        """Whether an attempt may be followed by one with another sampler, or another step."""
        apart = self.prepared.regions is None and len(self.request.target.modes()) > 1
        return not (self._sampler_given or apart)

    def _next_sampler(self, sampler: Runnable, number: int) -> Runnable | None:
        """The sampler of the attempt after attempt `number`; None where there is none, or it is this one with half of
        its step.

        Of an exact sampler all steps are halved first, which costs twice as much and is often enough. Only then, or
        where the curvature rises steeply, some become shorter still, for which many times as many draws are made.
        """
        if not self._may_change:
            return None
        exact = self._chooser.exact_sampler() if self.request.method is None else None
        if not sampler.invariant:
            return exact if number >= (_HALVINGS if exact is None else _FEW_HALVINGS) else None
        smaller, narrowing = sampler.smaller(_HALF), sampler.narrowing()
        halves_first = number == 0 and not self._judge.steep
        another = (smaller or narrowing if halves_first else narrowing or smaller) or exact
        return None if another == sampler or number >= _HALVINGS else another

    def _choose(self) -> Choice:
        """The first choice, as the journal has it or anew."""
        fresh, gaussianity = self.prepared.fresh, self.prepared.gaussianity
        record = None if self._sampler_given else self.journal.get("choice")
        if record is not None:
            self.budget.restore(record)
            fresh.restore(record.value("row noise", optional, nonnegative))
            spread = record.array("spread", (self.prepared.space.dim,)) if "spread" in record.arrays else None
            gaussianity.restore(record.value("tail", optional, finite), spread)
            sampler = record.value("sampler", lambda _, parts: sampler_of(parts))
            return Choice(record.value("method", text), sampler, record.value("why", text))
        with stage("choosing a sampler", self.request.progress), self.journal.recording("choosing", self.budget):
            choice = self._chooser.choose(self.request.method)
        if self.journal.kept and not self._sampler_given:
            tail, spread = gaussianity.measured()
            settings = {"method": choice.method, "sampler": choice.sampler.settings(), "why": choice.why}
            settings |= {"row noise": fresh.measured_noise(), "tail": tail, "ledger": self.budget.ledger()}
            self.journal.put("choice", settings, {} if spread is None else {"spread": spread})
        return choice

    def _attempt(self, choice: Choice, number: int) -> tuple[Answer, bool]:
        """The answer that a choice gives, and whether a budget ended it."""
        seed, request = self.request.seed + (number << 40), self.request
        sampler, drawing = self._starter.start(choice.sampler, seed, number)
        efficiency = 0.7 if sampler.invariant else 0.4  # effective draws that a draw is expected to be worth
        attempt, needed = Attempt(number, seed, choice, sampler), self._needed_draws(sampler, number)
        before: Answer | None = None
        another = self._next_sampler(choice.sampler, number)

        def doomed(x: Array) -> bool:
            return sampler.invariant and are_doomed(x, drawing.first_number, sampler.cycle)

        while True:
            drawn = drawing.draw(needed, efficiency, request.progress, None if another is None else doomed)
            self.budget.end_stage("sampling")
            used = self.budget.used()
            with stage("moments", request.progress):
                try:
                    thinned, gradient, preconditioned = self._gradients(drawn, attempt, needed)
                except BudgetSpent:
                    moments = DrawMoments.uncorrected(drawn.z, drawn.x, drawn.effective)
                    return before or self._judge.answer(attempt, drawing, drawn, moments), True
                self.budget.end_stage("gradients at the draws")
                with self.prepared.recording(f"moments-{number}", drawn, needed):
                    one_mode = request.target.one_mode is not None or not sampler.invariant
                    moments = DrawMoments.of(
                        thinned.z,
                        thinned.x,
                        gradient,
                        preconditioned,
                        self.prepared.reported.variances,
                        drawn.effective,
                        one_mode,
                    )
            factor = 1.0
            if not (sampler.invariant or self._sampler_given):
                factor = moments.chance.draws_factor(request.tolerance)
            if needed > request.draws or not 1 < factor <= _MOST_DRAWS or not drawn.complete:
                answer = self._judge.answer(attempt, drawing, drawn, moments)
                if drawn.stopped and drawn.effective.min() < needed and drawing.may_continue(used):
                    before = answer
                    continue
                return answer, drawn.stopped
            needed = math.ceil(float(f"{1.2 * factor:.6g}") * request.draws)
            if self.journal.kept:
                self.journal.put(f"wanted-{number}", {"wanted": needed, "ledger": self.budget.ledger()})

    def _needed_draws(self, sampler: Runnable, number: int) -> int:
        """Effective draws to make: those asked for, or more if an attempt that was killed had found that it needs them,
        or if a part of the posterior is narrow (`draws_factor`).
        """
        record = self.journal.get(f"wanted-{number}")
        if record is None:
            return self.request.draws * draws_factor(sampler)
        if self.budget.is_before(record):  # else the chains' own record is the later
            self.budget.restore(record)
        return record.value("wanted", whole_number, 1, MOST_STEPS)

    def _gradients(self, drawn: Drawn, attempt: Attempt, needed: int) -> tuple[Drawn, Gradient, Array]:
        """WWᵀ∇f in the user's variables at the draws if it came for free; else estimates, from rows that no chain has
        used, at some of the draws. With these draws, and the gradient by which it was estimated.
        """
        if drawn.preconditioned is not None:
            return drawn, Full(), drawn.preconditioned
        prepared, fresh, journal = self.prepared, self.prepared.fresh, self.journal
        thinned = drawn.thinned(CORRECTED * needed)
        name = f"gradients-{attempt.number}-{needed}-{drawn.x.shape[1]}"
        flat = thinned.z.reshape(-1, thinned.z.shape[2])
        most = max(1, _NUMBERS // flat.shape[1])
        record, rows = journal.get(name), journal.growing(name, (1, thinned.z.shape[2]), name)
        if record is not None:
            self.budget.restore(record)
            gradient = record.value("gradient", lambda _, parts: from_settings(parts))
        else:
            gradient = fresh.low_noise_gradient(len(flat))
            rows_of_estimate = gradient.recipe(prepared.space).rows_of_estimate
            if not self.budget.covers(0.0, len(flat) * rows_of_estimate / prepared.space.n):
                gradient = fresh.low_noise_gradient(CORRECTED * self.request.draws)  # which the budget was kept for
        clock, done = Clock(), rows.array().shape[1]
        if record is not None and done > len(flat):
            raise record.unusable(f"it has {done} gradients at {len(flat)} draws")
        rows.expect(len(flat) - done)
        while done < len(flat):
            piece = min(len(flat) - done, most)
            piece = clock.piece(piece) if journal.kept else piece
            before = self.budget.used()[0]
            with journal.within(f"within-{name}", self.budget, done, piece):
                estimates = fresh.gradients_at(gradient, flat[done : done + piece], attempt.seed + GRADIENT_SEED, done)
            rows.append(estimates[None])
            clock.learn(piece, self.budget.used()[0] - before)
            done += piece
            if journal.kept and (clock.due() or done >= len(flat)):
                journal.put(name, {"gradient": to_settings(gradient), "ledger": self.budget.ledger()})
        gradients = rows.array()[0].reshape(thinned.z.shape)
        return thinned, gradient, prepared.reported.displace(gradients, into=None if journal.kept else gradients)

    def _laplace_answer(self) -> Answer:
        """The Laplace approximation, with draws of it: as many as were asked for where that is little work."""
        request, chains, dim = self.request, len(self.request.chains), self.request.target.dim
        count = max(LEAST, min(-(-request.draws // chains), _LAPLACE_NUMBERS // (chains * dim)))
        stream = Stream(request.seed + _LAPLACE_SEED, request.chains)
        z = stream.normals(0, count * dim, Purpose.START, Purpose.START_FINE).reshape(1, chains * count, dim)
        x = self.prepared.reported.out(z).reshape(chains, count, dim)
        laplace, unknown = self.prepared.reported.laplace, np.full(dim, np.inf)
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
    """Decided answers rank first, then those that are not refuted, then complete ones."""
    verdict = answer.certificate.verdict
    return verdict in DECIDED, verdict != "refuted", answer.complete
