"""One call of `sample`: finds the mode, chooses, runs and judges, and goes on until the verdict stands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from svrhmc.checkpoint import Clock, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import BudgetSpent, look
from svrhmc.core.errors import DivergenceError, finite, nonnegative, optional, text, whole
from svrhmc.core.parts import from_settings, is_part, to_settings
from svrhmc.core.progress import stage
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.storage import Record
from svrhmc.diagnostics import spread
from svrhmc.exact.jumps import MOST_COORDINATES, Jumps, Regions, has_feet, regions
from svrhmc.gradients import Full, Gradient
from svrhmc.posterior import costs
from svrhmc.posterior.approximate import ENDED, approximation, uncorrected
from svrhmc.posterior.certificate import (
    DECIDED,
    cut_short,
    judge_invariant,
    narrowing,
    refusing_tail,
    staying,
    unjudged,
    unmeasured,
    unsettled,
)
from svrhmc.posterior.choice import Choice, Chooser
from svrhmc.posterior.correction import Location, agreement, least_tail_acceptance, longest_stay, tail_draws
from svrhmc.posterior.drawing import Drawing, Drawn, Later
from svrhmc.posterior.fresh import Fresh
from svrhmc.posterior.judging import Found, Judging
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.modes import Modes
from svrhmc.posterior.narrow import DRAWS, curvatures, is_narrow
from svrhmc.posterior.narrow import MOST_COORDINATES as FEW_COORDINATES
from svrhmc.posterior.pairs import settling_steps
from svrhmc.posterior.parameters import stated
from svrhmc.posterior.request import Request
from svrhmc.posterior.result import Posterior
from svrhmc.posterior.shape import Shape
from svrhmc.posterior.tails import heavy_tail
from svrhmc.posterior.units import Shown
from svrhmc.posterior.variables import variables
from svrhmc.runs import MOST_STEPS
from svrhmc.samplers import Sampler
from svrhmc.targets.forms import FunctionsForm
from svrhmc.trace import Trace, sampler_of
from svrhmc.whitening import whitened

_HALVINGS, _STEPS_SHORTER = 4, 2  # of a refuted step; of those before an exact sampler takes over
_TUNING, _ACCEPTED, _LEAST = 40, 0.7, 0.3  # draws after which shares of proposals are accepted, by all and by each
_FAR, _SHRINKS = 5.0, 6  # √dim above its mean that f may be where a chain starts, and halvings of a start
_HALF = 0.5  # of a step that left a run undecided
_NARROW = 4  # times the draws asked for that are made where a part of the posterior is narrow
_WIDER = 2.0  # times the spread of an attempt that another has where it saw more
_ADVICE = "another `method`"
_MOST_DRAWS = 16  # times the draws asked for that are made where chance would hide whether a bias is small
_NUMBERS = 1 << 21  # of states at which gradients are found at once
_AGAIN = 2.0  # times the states that are corrected at least
_CORRECTED = 4  # states, for each effective draw asked for, at which ∇f is found for a correction


@dataclass(frozen=True, eq=False)
class _Attempt:
    """A choice at work: its number, its seed and the sampler as it was tuned."""

    number: int
    seed: int
    choice: Choice
    sampler: Any


class Search:
    """From a request to a posterior; what is finished stands in the journal."""

    def __init__(self, request: Request, journal: Journal, ledger: Ledger) -> None:
        self.request, self.journal, self.ledger = request, journal, ledger
        request.target.watched(ledger.spend)

    def run(self) -> Posterior:
        """Until the verdict stands or the budget ends."""
        request = self.request
        try:
            with stage("finding the mode", request.progress), self.ledger.binding():
                how = variables(request.target, request.seed, self.journal, self.ledger)
                _ = how.variances  # part of every answer, and found once where that is long
                with self.journal.recording("space", self.ledger):
                    space: Any = whitened(request.target, how)
                    space.prepare()
        except BudgetSpent:
            raise self.ledger.missing("the mode and the curvature there are found") from None
        self.space, self.modes = space, self._regions(space)
        self.fresh = Fresh(self.space, request.threads, self.ledger)
        self.shape = Shape(self.fresh)
        known = (self.fresh, self.shape, self.ledger, self.modes)
        self.chooser = Chooser(request.target, self.space, request.draws, request.tolerance, request.seconds, *known)
        self.shown = Shown(self.space.whitening, request.units)
        self.judging = Judging(self.fresh, self.ledger, self.journal, request.tolerance, self.shown)
        self._raw: dict[int, Location] = {}  # moments of the draws of each attempt, by its number
        self._best: Posterior | None = None
        self._endless = ""  # why no step can help
        self.ledger.lap("mode and whitening")
        try:
            with self.ledger.binding():
                self._attempts()
        except BudgetSpent:
            self.ledger.lap("sampling")
        best = self._best
        if best is None:
            best = approximation(request.target, self.shown, self.fresh, request, self.ledger, self.journal)
        seconds, passes = self.ledger.used()
        return replace(  # what all attempts took
            best, seconds=seconds, passes=passes, compile_seconds=self.ledger.compiling, steps=dict(self.ledger.steps)
        )

    def _regions(self, space: Any) -> Regions | None:
        """What jumps between modes need, where there are several, or one is a peak above a wide foot; found once for a
        journal.
        """
        target = self.request.target
        modes = target.modes()
        if not target.has_potential or space.dim > MOST_COORDINATES or not (len(modes) > 1 or has_feet(target)):
            return None

        def make() -> Record:
            found = regions(space, modes)
            self.ledger.evaluations += 2.0 * len(modes) * space.n
            return Record({}, {field.name: getattr(found, field.name) for field in fields(Regions)})

        found, dim = self.journal.once("regions", make), space.dim
        centres = found.array("centres", (None, dim))
        if not len(centres):
            raise found.unusable("it has no modes")
        roots, log_masses = found.array("roots", (len(centres), dim, dim)), found.array("log_masses", (len(centres),))
        rows, offsets = found.array("rows", (None, dim)), found.array("offsets", (None,))
        count = len(offsets)
        ways, reaches = found.array("ways", (count, dim)), found.array("reaches", (count,))
        return Regions(centres, roots, log_masses, rows, offsets, ways, reaches)

    def _jumps(self, sampler: Any) -> Regions | None:
        """The modes between which chains of a sampler jump."""
        return self.modes if sampler.invariant and sampler.jumps else None

    def _attempts(self) -> None:
        """Chooses and draws, again and again; `_best` is what came of it so far."""
        if self.journal.get(ENDED) is not None:
            raise BudgetSpent
        choice = self._choose()
        self.ledger.lap("choice")
        for attempt in range(2 * _HALVINGS):
            begun = self.ledger.used()
            try:
                posterior, stopped = self._attempt(choice, attempt)
            except DivergenceError as error:
                if (other := self._after(choice, "diverged", attempt, begun)) is None:
                    if self._best is None:
                        raise error.advising(_ADVICE) from None
                    break
            else:
                best = self._best
                self._best = posterior if best is None or _rank(posterior) >= _rank(best) else best
                if posterior.certificate.verdict in DECIDED or stopped:
                    break
                other = self._after(choice, f"was {posterior.certificate.verdict}", attempt, begun)
                if other is None:
                    break
            choice = other

    def _after(self, choice: Choice, how: str, attempt: int, begun: tuple[float, float]) -> Choice | None:
        """What to try next: half the step, then an exact sampler, then smaller steps of that; None where a sampler was
        given, nothing is left to try, or the budget does not pay for as much again.
        """
        now, sampler = self.ledger.used(), choice.sampler
        if (
            self._given
            or self._endless
            or (self.modes is None and len(self.request.target.modes()) > 1)
            or not self.ledger.pays(now[0] - begun[0], now[1] - begun[1])
        ):
            return None
        exact = self.chooser.exact() if self.request.method is None else None
        if sampler.invariant:
            other = sampler.narrowing() or sampler.smaller(_HALF) or exact
            return None if other is None or attempt >= _HALVINGS or other == sampler else choice.instead(other, how)
        if attempt >= (_HALVINGS if exact is None else _STEPS_SHORTER):
            return None if exact is None else choice.instead(exact, how)
        return choice.halved(how)

    @property
    def _given(self) -> bool:
        """Whether a sampler was given, which is run as it is."""
        return self.request.method is not None and not isinstance(self.request.method, str)

    def _choose(self) -> Choice:
        found = None if self._given else self.journal.get("choice")
        if found is not None:
            self.ledger.restore(found)
            self.fresh.recall(found.value("row noise", optional, nonnegative))
            spread = found.array("spread", (self.space.dim,)) if "spread" in found.arrays else None
            self.shape.recall(found.value("tail", optional, finite), spread)
            sampler = found.value("sampler", lambda _, parts: sampler_of(parts))
            return Choice(found.value("method", text), sampler, found.value("why", text))
        with stage("choosing a sampler", self.request.progress), self.journal.recording("choosing", self.ledger):
            choice = self.chooser.choose(self.request.method)
        if self.journal.kept and not self._given:
            tail, spread = self.shape.known()
            said = {"method": choice.method, "sampler": choice.sampler.settings(), "why": choice.why}
            said |= {"row noise": self.fresh.known(), "tail": tail, "ledger": self.ledger.said()}
            self.journal.put("choice", said, {} if spread is None else {"spread": spread})
        return choice

    def _attempt(self, choice: Choice, number: int) -> tuple[Posterior, bool]:
        """What came of a choice, and whether a budget ended it."""
        seed, request = self.request.seed + (number << 40), self.request
        if choice.sampler.invariant:
            sampler, drawing = self._tuned(choice.sampler, seed, number)
        else:
            sampler, drawing = choice.sampler, self._drawing(choice.sampler, seed, f"{number}")
            drawing.settle(self._burn_in(sampler), request.progress)
        expected = 0.7 if sampler.invariant else 0.4
        made, wanted = _Attempt(number, seed, choice, sampler), self._wanted(sampler, number)
        before: Posterior | None = None
        while True:
            drawn = drawing.draw(wanted, expected, request.progress)
            self.ledger.lap("sampling")
            since = self.ledger.used()
            with stage("moments", request.progress):
                try:
                    few, gradient, pulled = self._gradients(drawn, made, wanted)
                except BudgetSpent:
                    return before or self._posterior(made, drawing, drawn, uncorrected(drawn)), True
                self.ledger.lap("gradients at the draws")
                with self._recording(f"moments-{number}", drawn, wanted):
                    one_mode = request.target.one_mode is not None or not sampler.invariant
                    found = Found.of(few, gradient, pulled, self.shown.variances, drawn.effective, one_mode)
            more = 1.0 if sampler.invariant or self._given else found.chance.more(request.tolerance)
            if wanted > request.draws or not 1 < more <= _MOST_DRAWS or not drawn.complete:
                posterior = self._posterior(made, drawing, drawn, found)
                if drawn.stopped and drawn.effective.min() < wanted and drawing.goes_on(since):
                    before = posterior
                    continue
                return posterior, drawn.stopped
            wanted = math.ceil(float(f"{1.2 * more:.6g}") * request.draws)
            if self.journal.kept:
                self.journal.put(f"wanted-{number}", {"wanted": wanted, "ledger": self.ledger.said()})

    def _recording(self, name: str, drawn: Drawn, wanted: int = 0) -> Any:
        """Of work on these draws, of which so many effective ones are wanted."""
        return self.journal.recording(name, self.ledger, {"draws": drawn.x.shape[1], "wanted": wanted})

    def _wanted(self, sampler: Any, number: int) -> int:
        """Effective draws: those asked for, or more where an attempt that was killed had found that it needs them; and
        more where some steps are shorter because a part of the posterior is narrow. Chains that stop as soon as their
        draws seem to be enough stop before they have been in such a part, as that is when the draws seem so.
        """
        found = self.journal.get(f"wanted-{number}")
        if found is None:
            return self.request.draws * (_NARROW if sampler.invariant and sampler.cycle > 1 else 1)
        if self.ledger.is_before(found):  # else the chains' own record is the later
            self.ledger.restore(found)
        return found.value("wanted", whole, 1, MOST_STEPS)

    def _burn_in(self, sampler: Sampler) -> int:
        return settling_steps(sampler.dynamics.scheme(self.space), sampler.gradient.recipe(self.space).epoch)

    def _tuned(self, sampler: Any, seed: int, number: int) -> tuple[Any, Drawing]:
        """Chains after their burn-in; the step of an automatic SplitHMC falls by a quarter until 7 in 10 proposals are
        accepted, and 3 in 10 of every single chain.
        """
        proposals, tuning = _TUNING * len(self.request.chains), 0
        while True:
            drawing = self._drawing(sampler, seed, f"{number}" if not tuning else f"{number}-{tuning}")
            accepted = drawing.settle(_TUNING, self.request.progress)
            smaller = None if self._given else sampler.smaller()
            enough = accepted.sum() >= _ACCEPTED * proposals and accepted.min() >= _LEAST * _TUNING
            if smaller is None or drawing.made or enough or drawing.cut(_TUNING):
                return sampler, drawing
            sampler, tuning = smaller, tuning + 1

    def _drawing(self, sampler: Any, seed: int, name: str) -> Drawing:
        """Chains of a sampler, compiled, where the journal left them."""
        request, space = self.request, self.space
        with self.journal.recording(f"start-{name}", self.ledger):
            modes = self._jumps(sampler)
            if modes is not None:
                start = self._around(modes, seed)
            elif sampler.invariant:
                start = self._start(seed)
            else:
                start = self._centres() + self.fresh.laplace(request.chains, seed)
            if space.at_hand < space.n:
                count = math.ceil(_AGAIN * _CORRECTED * request.draws)
                self.fresh.expect(self.fresh.quiet(count), np.arange(count), seed + (1 << 50))
            moves = sampler if modes is None else Jumps(sampler, modes)
            chains = moves.chains(space, seed, request.chains, request.threads, start, request.engine)
        self.ledger.compile(chains.compile)
        near = not sampler.invariant and space.identity_hessian
        told = {
            "sampler": sampler.settings() if is_part(sampler) else {}, "engine": chains.engine,
            "seed": request.seed, "n": request.target.n,
            "step_size": sampler.dynamics.step_size if near else None,
        }  # fmt: skip
        return Drawing(
            chains,
            request.chains,
            self.shown,
            f"chains-{name}",
            self.journal,
            self.ledger,
            told,
            self._later(sampler),
            states=not (sampler.invariant and sampler.gradients_come_free),
            modes=len(request.target.modes()),
        )

    def _start(self, seed: int) -> Array:
        """Draws of N(0, I) about the modes, each moved to its mode by halves while it is far out in the posterior,
        where a chain could stand still.
        """
        if self.shape.nearly_gaussian():
            return self._normals(seed)
        centre = self._centres()
        return self._near(lambda z: centre + z, seed)

    def _around(self, modes: Regions, seed: int) -> Array:
        """The same in the variables of each mode; where modes are more than chains, of those with the largest mass."""
        order = np.argsort(-modes.log_masses, kind="stable")
        index = order[np.arange(len(self.request.chains)) % modes.count]
        return self._near(lambda u: modes.out(index, u), seed)

    def _normals(self, seed: int) -> Array:
        return Stream(seed, self.request.chains).normals(0, self.space.dim, Purpose.START, Purpose.START_FINE)

    def _near(self, out: Callable[[Array], Array], seed: int) -> Array:
        """States from draws of N(0, I), halved while they are far out."""
        z, allowed = self._normals(seed), self.space.dim / 2 + _FAR * math.sqrt(self.space.dim)
        least = self.space.potentials(out(np.zeros_like(z)))
        for _ in range(_SHRINKS):
            look()
            far = ~(self.space.potentials(out(z)) - least <= allowed)
            z = np.where(far[:, None], z / 2, z)
        return out(z)

    def _centres(self) -> Array:
        """Where each chain starts: at the modes in turn, so that chains that do not find each other disagree."""
        modes = self.space.into(self.request.target.modes())
        modes[0] = 0.0
        return np.asarray(modes[np.arange(len(self.request.chains)) % len(modes)], np.float64)

    def _later(self, sampler: Any) -> Later:
        """What a verdict takes; what is free, or not asked for, is nothing."""
        request, space = self.request, self.space
        chains, own = len(request.chains), costs.of_correction(space, _CORRECTED * request.draws)
        if self.ledger.unlimited:
            return Later()
        if sampler.gradients_come_free:
            passes = sampler.rows_of_step(space) / space.n
            return Later((own, 0.0), (0.0, 0.0), chains * passes * costs.of_pass(space), chains * passes)
        gradient = self.fresh.quiet(_CORRECTED * request.draws)
        recipe = gradient.recipe(space)
        each = (own + costs.of_recipe(space, recipe), recipe.rows_of_estimate / space.n)
        if sampler.invariant:
            rows = sampler.rows_of_step(space)
            return Later(each, (0.0, 0.0), chains * costs.of_rows(space, rows), chains * rows / space.n)
        once = self.judging.once(sampler, gradient)
        if not (request.certificate and self.ledger.pays(2 * once[0], 2 * once[1])):  # else the draws come first
            once = (0.0, 0.0)
        own = sampler.gradient.recipe(space)
        return Later(each, once, chains * costs.of_recipe(space, own), chains * own.rows_of_estimate / space.n)

    def _posterior(self, attempt: _Attempt, drawing: Drawing, drawn: Drawn, found: Found) -> Posterior:
        request, ledger, how, sampler = self.request, self.ledger, self.shown, attempt.sampler
        x, chains = drawn.x, len(request.chains)
        with stage("tails", request.progress), self._recording(f"tails-{attempt.number}", drawn):
            raw, agree = Location(x.mean(axis=(0, 1)), spread(x)), agreement(x)
            effective = np.minimum(drawn.effective, 2 * tail_draws(x))  # of the tails half as many do
            heavy = heavy_tail(request.target, drawn, raw.sd, ledger)
            narrow = self._narrow(sampler, drawn) if sampler.invariant else ""
            modes = self._modes(x)
        count = len(request.target.modes())
        seldom = "" if modes is None or self.modes is None else modes.doubt
        self._endless = heavy or request.target.doubt or seldom
        doubt = heavy or unsettled(effective, agree, request.draws, chains, drawn.stopped, count, longest_stay(x))
        doubt = doubt or seldom or self._seen_before(raw, attempt.number) or found.doubt or request.target.doubt
        if sampler.invariant:
            doubt = doubt or staying(sampler.stay_index(self.shape))
            doubt = doubt or refusing_tail(least_tail_acceptance(x, drawing.first, sampler.cycle)) or narrow
            certificate = judge_invariant(found.stein, request.tolerance, doubt)
        elif request.certificate and found.doubt:
            certificate = unmeasured(request.tolerance, found.stein, doubt)
        elif request.certificate:
            slow = x.shape[1] * chains / (2 * float(drawn.effective.min()))
            with stage("certificate", request.progress):
                certificate = self.judging.judge(sampler, found, (attempt.seed, attempt.number), doubt, slow)
        else:
            certificate = unjudged(request.tolerance, found.stein, doubt)
        certificate = certificate.knowing(request.target.one_mode, count, request.target.mode_starts)
        ledger.lap("certificate")
        best: Any = found.corrected if certificate.corrects else raw
        with stage("parameters", request.progress), self._recording(f"parameters-{attempt.number}", drawn):
            parameters = stated(
                request.target, x, found.seen if certificate.corrects else None, self.space.whitening.pull
            )
        seconds, passes = ledger.used()
        trace = Trace(
            draws=x,
            passes=drawn.spent / request.target.n,
            gradient_evaluations=round(drawing.chains.state.spent),
            velocity=np.zeros_like(x[:, 0]),
            seconds=ledger.steps.get("sampling", 0.0),
            sampler=sampler,
            seed=request.seed,
            chains=request.chains,
            engine=drawing.chains.engine,
            acceptance=drawing.acceptance,
        )
        return Posterior(
            mean=best.mean,
            sd=best.sd,
            raw=raw,
            corrected=found.corrected,
            laplace=Location(how.centre, np.sqrt(how.variances)),
            trace=trace,
            method=attempt.choice.method,
            sampler=sampler,
            why=" ".join(filter(None, (attempt.choice.why, _whitened(self.space.whitening), request.target.note))),
            certificate=certificate,
            ess=drawn.effective,
            r_hat=agree,
            passes=passes,
            seconds=seconds,
            compile_seconds=ledger.compiling,
            complete=drawn.complete,
            modes=modes,
            steps=dict(ledger.steps),
            parameters=parameters,
        )

    def _narrow(self, sampler: Any, drawn: Drawn) -> str:
        """A doubt, where steps are too long for a part of a model of functions; not asked where a budget ended the
        draws or does not pay for it, nor where chains move around several modes in the variables of each. Where a
        budget ended a run with shorter steps before it had its draws, that is a doubt too.
        """
        target, space, ledger = self.request.target, self.space, self.ledger
        if drawn.stopped and sampler.cycle > 1 and drawn.effective.min() < _NARROW * self.request.draws:
            return cut_short(_NARROW * self.request.draws)
        asked = isinstance(target.form(), FunctionsForm) and space.dim <= FEW_COORDINATES and not drawn.stopped
        if not asked or sampler.reach is None or self._jumps(sampler) is not None:
            return ""
        passes = float(DRAWS * space.dim)
        if not ledger.pays(passes * costs.of_pass(space), passes):
            return ""
        ledger.evaluations += passes * space.n
        known = curvatures(target, drawn.x, space.whitening)
        if not is_narrow(known, sampler.reach):
            return ""
        return f"{narrowing(sampler.reach)}; modes were looked for from {target.mode_starts}"

    def _modes(self, x: Array) -> Modes | None:
        """What the draws say of several modes; None where there is one."""
        points, units = self.request.target.modes(), self.request.units
        if len(points) == 1:
            return None
        inward, shown = (x, points) if units is None else (units.inward(x), units.outward(points))
        if self.modes is None:
            return Modes.unknown(shown)
        z = self.space.into(inward.reshape(-1, x.shape[2]))
        shares = self.modes.memberships(z).reshape(*x.shape[:2], -1)
        return Modes.of(shown, shares, np.exp(self.modes.log_masses))

    def _seen_before(self, raw: Location, number: int) -> str:
        """A doubt, where an earlier attempt saw more of the posterior than this one."""
        self._raw[number] = raw
        for other in (self._raw[earlier] for earlier in range(number) if earlier in self._raw):
            if ((np.abs(other.mean - raw.mean) > other.sd) | (other.sd > _WIDER * raw.sd)).any():
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
        found, rows = self.journal.get(name), self.journal.growing(name, (1, few.z.shape[2]), name)
        if found is not None:
            self.ledger.restore(found)
            gradient = found.value("gradient", lambda _, parts: from_settings(parts))
        else:
            gradient = self.fresh.quiet(len(flat))
            if not self.ledger.pays(0.0, len(flat) * gradient.recipe(self.space).rows_of_estimate / self.space.n):
                gradient = self.fresh.quiet(_CORRECTED * self.request.draws)  # as `_later` has it
        clock, done = Clock(), rows.array().shape[1]
        if found is not None and done > len(flat):
            raise found.unusable(f"it has {done} gradients at {len(flat)} draws")
        rows.expect(len(flat) - done)
        while done < len(flat):
            piece = min(len(flat) - done, most)
            piece = clock.piece(piece) if self.journal.kept else piece
            before = self.ledger.used()[0]
            with self.journal.within(f"within-{name}", self.ledger, done, piece):
                estimates = self.fresh.at(gradient, flat[done : done + piece], attempt.seed + (1 << 50), done)
            rows.append(estimates[None])
            clock.learn(piece, self.ledger.used()[0] - before)
            done += piece
            if self.journal.kept and (clock.due() or done >= len(flat)):
                said = {"gradient": to_settings(gradient), "ledger": self.ledger.said()}
                self.journal.put(name, said)
        found_there = rows.array()[0].reshape(few.z.shape)
        return few, gradient, self.shown.displace(found_there, into=None if self.journal.kept else found_there)


def _whitened(how: Any) -> str:
    """What is to be said of a whitening that is not the best kind."""
    return f"The whitening is only rough: {how.why}." if how.why else ""


def _rank(posterior: Posterior) -> tuple[bool, bool, bool]:
    """Decided ones first, then those that are not refuted, then whole ones."""
    verdict = posterior.certificate.verdict
    return verdict in DECIDED, verdict != "refuted", posterior.complete
