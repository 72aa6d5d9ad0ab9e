"""The chains of one attempt: tuned, burnt in, and extended until there are enough effective draws.

With a budget, draws are made as long as it pays for them and for all that follows: `Prices` says what a step takes, as
it is measured while steps are made, and keeps what the correction of the draws and the verdict will take.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svrhmc.checkpoint import Clock, GrowingRows, Journal
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import Budget, BudgetSpent
from svrhmc.core.errors import DivergenceError, boolean, nonnegative, optional, whole_number
from svrhmc.core.progress import Progress, format_duration, reporter, stage
from svrhmc.core.serialise import is_part
from svrhmc.core.storage import Record
from svrhmc.diagnostics import r_hat
from svrhmc.engines import EVERY, NONE, Chains, Extension
from svrhmc.engines.base import Report
from svrhmc.exact.base import Runnable
from svrhmc.samplers import MOST_STEPS, accepted_of, arrays_of, said_of, state_of
from svrhmc.sampling.answer import Request
from svrhmc.sampling.doubts import STUCK, effective_draws, longest_stay
from svrhmc.trace import Trace

_FIRST = 5  # draws, or steps, of a first piece
LEAST = 4  # draws of a chain, without which nothing can be said of them
_LONG_ENOUGH = 0.02  # seconds of a piece that suffice to measure a step
_SLOWEST = 3.0  # times the fastest step, that steps are taken to last at most
_TIMED_CHAINS = 16  # by which it is measured how long the conversion of a draw into the user's variables takes
_NUMBERS, _FEWEST = 1 << 22, 4  # numbers of draws made at once, and steps at least
_LONG, _APART = 4, 1.5  # times the burn-in, after which chains that stick, or modes with a larger R-hat, end it
_MOST = 100  # times the draws that were expected to be enough
_SLOW = 30.0  # seconds that a run is told to take longer, if it is also slower than expected
_USED = 0.85  # of a budget: if less is used, draws that the budget had ended are continued
_WORTH, _SAFE = 0.1, 1.25  # fewest draws to continue for, of those so far; factor of the measured cost of a follow-up

SecondsAndPasses = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Drawn:
    """The draws of an attempt.

    z: in whitened variables; without rows if nobody needs them. x: in the user's variables. spent: component gradients
    that a chain had computed at each draw. effective: effective draws of each coordinate. preconditioned: WWᵀ∇f in the
    user's variables, if it came for free. complete: whether there are as many effective draws as were asked for.
    stopped: whether a budget ended them.
    """

    z: Array
    x: Array
    spent: Array
    effective: Array
    preconditioned: Array | None
    complete: bool
    stopped: bool

    def thinned(self, count: int) -> Drawn:
        """Every k-th draw of each chain, with the largest k that leaves at least `count`."""
        chains, draws, _ = self.x.shape
        every = slice(None, None, max(1, chains * draws // count))
        preconditioned = None if self.preconditioned is None else self.preconditioned[:, every]
        return replace(
            self, z=self.z[:, every], x=self.x[:, every], spent=self.spent[every], preconditioned=preconditioned
        )


@dataclass(frozen=True)
class FollowUp:
    """What is computed after the draws, in seconds and passes over the data.

    per_draw: for a draw of a chain. once: for all draws together. step_seconds, step_passes: those of a step of all
    chains. Seconds are those of `svrhmc.sampling.costs`; the time that a step really takes tells how fast the machine
    is.
    """

    per_draw: SecondsAndPasses = (0.0, 0.0)
    once: SecondsAndPasses = (0.0, 0.0)
    step_seconds: float = 1.0
    step_passes: float = 0.0


class Prices:
    """What a step of all chains costs, and what follows a draw: as expected, then as measured."""

    def __init__(self, chains: Chains, n: int, follow_up: FollowUp, budget: Budget) -> None:
        self._chains, self._n, self._follow_up, self._budget = chains, n, follow_up, budget
        self._count = len(chains.state.x)
        self._pieces: list[tuple[float, int]] = []  # seconds and steps of each
        self._conversion = 0.0  # seconds in which a draw of all chains is mapped to the user's variables
        self.measured_follow_up: SecondsAndPasses | None = None  # what follows a draw of all chains

    def record_piece(self, seconds: float, steps: int) -> None:
        """Note how long some steps took."""
        self._pieces.append((seconds, steps))

    def measure_conversion(self, reported: Any) -> None:
        """Measure how long it takes to map the draws of all chains to the user's variables, on some of them."""
        draws, began = self._chains.state.x[:_TIMED_CHAINS, None], self._budget.used()[0]
        reported.out(draws)
        self._conversion = (self._budget.used()[0] - began) * self._count / len(draws)

    def record_follow_up(self, draws: int, before: SecondsAndPasses, after: SecondsAndPasses) -> None:
        """Note what followed `draws` draws of a chain, from what the budget had used before it and after it."""
        self.measured_follow_up = (
            _SAFE * (after[0] - before[0]) / draws,
            _SAFE * (after[1] - before[1]) / draws,
        )

    def step(self) -> SecondsAndPasses:
        """The cost of a step of all chains.

        Seconds are those of the fastest piece, as another process may have held up the others. If that was too short to
        measure, no more than the expected ones; a short piece counts as the fastest only if it was twice as fast as
        longer ones. Passes are those known beforehand, then their average.
        """
        state, fastest = self._chains.state, min(self._pieces, key=_slowness, default=(0.0, 1))
        passes = self._count * state.spent / (state.step * self._n) if state.step else self._follow_up.step_passes
        seconds = fastest[0] / fastest[1]
        measured = fastest[0] >= _LONG_ENOUGH and self._pieces[1:]
        return seconds if measured else min(self._follow_up.step_seconds, seconds), passes

    def follow_up(self, draws: int) -> SecondsAndPasses:
        """The cost of all that follows `draws` draws of a chain."""
        (seconds, passes), once = self._follow_up_per_draw(), self._follow_up_once()
        return draws * seconds + once[0] + self._conversion, draws * passes + once[1]

    def affordable_draws(self, draws: int, steps: int = 0) -> int:
        """Draws of a chain to make next: those that can be paid for, or half of them if they are many, so that the end
        of a budget cuts off few.
        """
        count = self.payable_draws(draws, steps)
        return count if count < 2 * _FIRST or self._budget.unlimited else count // 2

    def payable_draws(self, draws: int, steps: int = 0) -> int:
        """More draws of a chain that the rest of the budget pays for, with all that follows these and the `draws` that
        are made already, and with `steps` more steps.
        """
        if self._budget.unlimited:
            return sys.maxsize
        (seconds, passes), after, per_draw = self.step(), self.follow_up(draws), self._follow_up_per_draw()
        reserved = (after[0] + steps * seconds, after[1] + steps * passes)
        count = self._budget.affordable((seconds + per_draw[0], passes + per_draw[1]), reserved)
        return math.floor(min(count, sys.maxsize))

    def _pace(self) -> float:
        """Seconds on this machine for one of `svrhmc.sampling.costs`: by all pieces, within a factor of the fastest."""
        seconds, steps = sum(piece[0] for piece in self._pieces), sum(piece[1] for piece in self._pieces)
        fastest = self.step()[0]
        return min(max(fastest, seconds / max(steps, 1)), _SLOWEST * fastest) / self._follow_up.step_seconds

    def _follow_up_per_draw(self) -> SecondsAndPasses:
        """The cost of what follows a draw of all chains, as measured, else as expected."""
        seconds, passes = self._follow_up.per_draw
        return self.measured_follow_up or (self._pace() * self._count * seconds, self._count * passes)

    def _follow_up_once(self) -> SecondsAndPasses:
        """The cost of what follows all draws once; 0 if it was measured with what follows each, or would take more than
        half of a budget: then the draws come first.
        """
        seconds, passes = self._pace() * self._follow_up.once[0], self._follow_up.once[1]
        half = [limit / 2 for limit in self._budget.limits]
        counts = self.measured_follow_up is None and seconds <= half[0] and passes <= half[1]
        return (seconds, passes) if counts else (0.0, 0.0)


def _slowness(piece: tuple[float, int]) -> float:
    """Seconds of a step of a piece, doubled if the piece is short."""
    return piece[0] / piece[1] * (1 if piece[0] >= _LONG_ENOUGH else 2)


class Drawing:
    """The chains of a sampler under a name in the journal, which keeps where they are and what they have drawn.

    step_size: that of chains that stay near the mode unless they diverge, else None. keeps_states: whether whitened
    states are kept. width: of what is reported of a state, if it is not as wide as the state. keeps_gradients: whether
    gradients at the draws are kept if they come for free. every: one draw of so many is kept with its state.
    """

    def __init__(
        self,
        chains: Chains,
        sampler: Runnable,
        request: Request,
        reported: Any,
        name: str,
        journal: Journal,
        budget: Budget,
        follow_up: FollowUp,
        *,
        step_size: float | None = None,
        keeps_states: bool = True,
        modes: int = 1,
        width: int | None = None,
        keeps_gradients: bool = True,
        every: int = 1,
    ) -> None:
        self.chains, self._sampler, self._request, self._reported = chains, sampler, request, reported
        self._name, self._journal, self._budget, self._clock = name, journal, budget, Clock()
        self._numbers, self._step_size = request.chains, step_size
        self._keeps_states, self._modes, self._every = keeps_states, modes, every
        self._prices = Prices(chains, request.target.n, follow_up, budget)
        self._accepted: Indices | None = None  # proposals, by chain, if there are any
        self._burn_in: int | None = None  # steps made before the first draw that is kept
        self._goal = self._until = 0  # draws before the next look at them, and before the next look at the budgets
        self._examined = 0  # the goal at which the draws were last looked at
        self._stopped = False  # by a budget
        self._ended = False  # whether no more draws are made, whatever is left of a budget
        self._has_gradients = keeps_gradients  # whether gradients come with the draws
        self._remark = ""  # for a person who waits
        shape = chains.state.x.shape
        record = journal.get(name)
        shapes = {"draws": shape if width is None else (shape[0], width), "states": shape, "pulled": shape}
        self._draws, self._states, self._preconditioned = (
            journal.growing(f"{kind}-{name}", size, name) for kind, size in shapes.items()
        )
        self._spent = journal.growing(f"spent-{name}", (1,), name)
        self._made = self._draws.array().shape[1]
        if record is not None:
            self._restore(record)

    def _restore(self, record: Record) -> None:
        """Go on from where the journal left the chains."""
        self.chains.state = state_of(record, self.chains)
        self._accepted = accepted_of(record, len(self._numbers))
        self._goal, self._until, self._examined = (
            record.value(name, whole_number, 0, MOST_STEPS) for name in ("goal", "until", "looked")
        )
        self._has_gradients, self._stopped = record.value("free", boolean), record.value("stopped", boolean)
        self._burn_in = record.value("burn_in", optional, whole_number, 0, self.chains.state.step)
        self._ended = record.value("ended", boolean)
        self._prices.measured_follow_up = record.value("followed", optional, _two_numbers)
        self._require_rows(record)
        self._budget.restore(record)

    def _require_rows(self, record: Record) -> None:
        """Refuse a record whose draws are not those of its steps, or which has too few states or gradients."""
        counts = {"draws": self._made, "spent": self._spent.array().shape[1]}
        counts |= {"pulled": self._preconditioned.array().shape[1]} if self._has_gradients else {}
        states = self._states.array().shape[1]
        if self._keeps_states and states != -(-self.draws_made // self._every):
            raise record.unusable(
                f"states must have one row for each {self._every} of {self.draws_made} steps; got {states}"
            )
        for name, count in counts.items():
            if count != self.draws_made:
                raise record.unusable(f"{name} must have {self.draws_made} rows, one for each step; got {count}")

    def _record(self) -> None:
        state, sampler = self.chains.state, self._sampler
        settings = {
            "sampler": sampler.settings() if is_part(sampler) else {}, "engine": self.chains.engine,
            "seed": self._request.seed, "n": self._request.target.n, "step_size": self._step_size, **said_of(state),
            "burn_in": self._burn_in, "goal": self._goal, "until": self._until, "free": self._has_gradients,
            "stopped": self._stopped, "looked": self._examined, "ended": self._ended,
            "followed": self._prices.measured_follow_up, "ledger": self._budget.ledger(),
        }  # fmt: skip
        counts = {} if self._accepted is None else {"accepted": self._accepted}
        self._journal.put(self._name, settings, {**arrays_of(state), "chains": self._numbers, **counts})

    @property
    def acceptance(self) -> Array | None:
        """The share of all proposals so far that each chain accepted; None where there are none."""
        return None if self._accepted is None else self._accepted / self.chains.state.step

    def trace(self, drawn: Drawn, x: Array) -> Trace:
        """These draws, x in the user's variables (chain, draw, dim), with what they cost."""
        return Trace(
            draws=x,
            passes=drawn.spent / self._request.target.n,
            gradient_evaluations=round(self.chains.state.spent),
            velocity=np.zeros((len(x), x.shape[2])),
            seconds=self._budget.steps.get("sampling", 0.0),
            sampler=self._sampler,
            seed=self._request.seed,
            chains=self._request.chains,
            engine=self.chains.engine,
            acceptance=self.acceptance,
        )

    @property
    def first_number(self) -> int:
        """The number of the first draw that is kept."""
        return 1 + (self._burn_in or 0)

    @property
    def draws_made(self) -> int:
        """Draws of a chain so far."""
        return 0 if self._burn_in is None else self.chains.state.step - self._burn_in

    def burn_in_was_cut(self, steps: int) -> bool:
        """Whether a budget ended the burn-in before it had this many steps."""
        return self._burn_in is not None and self._burn_in < steps

    def burn_in(self, steps: int, progress: Progress) -> Indices:
        """Make the first steps, none of which is kept, or as many as a budget pays for with as many draws after them;
        gives the number of proposals that each chain accepted in them.
        """
        if self._burn_in is None:
            while (step := self.chains.state.step) < steps:
                if step >= self._until:  # else a piece was begun before a kill, and is made to its end
                    draws = max(step, LEAST)
                    piece = min(self._prices.affordable_draws(draws, draws), max(step, 1))
                    self._until = steps if self._budget.unlimited else min(steps, step + piece)
                if step >= self._until:
                    break
                try:
                    self._advance(self._until, steps, False, progress)
                except BudgetSpent:
                    break
            self._burn_in, self._until = self.chains.state.step, 0
        if self._journal.kept:
            self._record()
        return np.zeros(len(self._numbers), np.int64) if self._accepted is None else self._accepted

    def draw(
        self, needed: int, efficiency: float, progress: Progress, doomed: Callable[[Array], bool] | None = None
    ) -> Drawn:
        """Extend the chains until `needed` draws are effective for x and x², or a budget ends, or no end is in sight.

        efficiency: how many effective draws a draw is expected to be worth. doomed: whether draws will be doubted
            however many follow them, where another attempt can do better.
        """
        first = max(100, math.ceil(needed / (len(self.chains.state.x) * efficiency)))
        self._goal, most = self._goal or first, _MOST * first
        if not self._budget.unlimited and not self.draws_made:
            self._prices.measure_conversion(self._reported)
        while True:
            self._reach_goal(progress)
            draws = self.draws_made
            if draws < LEAST:
                raise BudgetSpent
            counting = self._journal.recording(f"effective-{self._name}", self._budget, {"draws": draws})
            with stage("effective draws", progress), counting:
                x = _ordered(self._draws)
                effective = effective_draws(x)
                least = float(f"{effective.min():.6g}")  # its last digits depend on the threads of a library below
                enough = least >= needed or self._stopped or draws >= most
                hopeless = not enough and draws >= self._patience and self._are_stuck()
                hopeless = hopeless or (not enough and doomed is not None and doomed(x))
            if enough or hopeless:
                break
            self._remark = self._outlook(least, needed, most)
            more = math.ceil(min(max(draws * (needed / max(least, 1.0) * 1.1 - 1), draws * 0.1), 2 * draws))
            self._goal = min(most, self._goal + more)
        return Drawn(
            z=_ordered(self._states),
            x=_ordered(self._draws),
            spent=_ordered(self._spent)[0],
            effective=effective,
            preconditioned=_ordered(self._preconditioned) if self._has_gradients else None,
            complete=least >= needed and not self._stopped,
            stopped=self._stopped,
        )

    def _reach_goal(self, progress: Progress) -> None:
        """Make draws up to the goal, or as many as a budget pays for."""
        if self._goal > self.draws_made and self._budget.unlimited:
            self._expect(self._goal - self.draws_made)
        while self.draws_made < self._goal and not self._stopped:
            draws = self.draws_made
            if draws >= self._until:  # else a piece was begun before a kill, and is made to its end
                more = min(self._goal - draws, self._prices.affordable_draws(draws))
                more = more if self._budget.unlimited else min(more, max(draws, _FIRST))
                self._stopped, self._until = more < 1, draws + more
            if not self._stopped:
                try:
                    before = self._burn_in or 0
                    self._advance(before + self._until, before + self._goal, True, progress)
                except BudgetSpent:
                    self._stopped = True
        if self._examined < self._goal:
            self._stopped, self._examined = (
                self._stopped or self._prices.affordable_draws(self.draws_made) < 1,
                self._goal,
            )
        if self._journal.kept:
            self._record()

    def _expect(self, draws: int) -> None:
        """Reserve space for this many more draws."""
        self._draws.expect(draws)
        if self._keeps_states:
            self._states.expect(-(-draws // self._every))
        else:
            self._preconditioned.expect(draws)

    @property
    def _patience(self) -> int:
        """Draws of a chain from which on chains that are stuck end the run."""
        return _LONG * (self._burn_in or 0)

    def _are_stuck(self) -> bool:
        """Whether chains that began at different modes stay there, or one stays at a point, so that more draws do not
        help.
        """
        draws = _ordered(self._draws)
        at_different_modes = self._modes > 1 and float(r_hat(draws).max()) > _APART
        return at_different_modes or longest_stay(draws) > STUCK

    def _outlook(self, least: float, needed: int, most: int) -> str:
        """What a person who waits reads: how many draws are effective, and how long the others take if that is far
        longer than was expected.
        """
        outlook, draws = f"  {least:,.0f} of {needed:,} effective", self.draws_made * needed / max(least, 1.0)
        seconds = (min(draws, most) - self.draws_made) * self._prices.step()[0]
        if draws > self._patience and seconds > _SLOW:
            outlook += f", {format_duration(seconds)} more (budget_seconds=60 or fewer draws end it sooner)"
        return outlook

    def may_continue(self, used_by_draws: SecondsAndPasses) -> bool:
        """Whether draws that a budget ended are to be continued, after all that follows them was done.

        What follows m draws was reserved in the budget by an estimate. Once it is done it is known: with the measured
        seconds (or passes) p of a draw and a of what follows it, m more draws after `made` are paid for if

            m p + (made + m) a ≤ left.

        used_by_draws: what the budget had used when the draws ended.
        """
        if not self._ended:
            used = self._budget.used()
            self._prices.record_follow_up(self.draws_made, used_by_draws, used)
            share = max(spent / limit for spent, limit in zip(used, self._budget.limits, strict=True))
            self._ended = share > _USED or self._prices.affordable_draws(self.draws_made) < max(
                1, _WORTH * self.draws_made
            )
            self._stopped = self._ended
            if self._journal.kept:
                self._record()
        return not self._ended

    def _advance(self, end: int, goal: int, keeps: bool, progress: Progress) -> None:
        """Make steps up to number `end`, in pieces if the journal outlives the process; keep their draws if `keeps`.
        Progress is that towards `goal`, or towards the end of a budget.
        """
        chains, journal, step = self.chains, self._journal, self.chains.state.step
        left = max(0, end - step, min(goal - step, self._prices.payable_draws(self.draws_made)))
        tell, finish = reporter(progress, left * len(chains.state.x), self._remark)
        report = tell if self._budget.unlimited else self._within_budget(tell)
        try:
            while (step := chains.state.step) < end:
                began = self._budget.used()[0]
                most = min(end - step, max(_FEWEST, _NUMBERS // chains.state.x.size))
                piece = self._clock.piece(most) if journal.kept else most
                with journal.within(f"within-{self._name}", self._budget, step, piece):
                    extension = chains.extend(piece, EVERY if keeps else NONE, report)
                self._store(step, extension, keeps)
                seconds, count = self._budget.used()[0] - began, chains.state.step - step
                self._clock.learn(count, seconds)
                self._prices.record_piece(seconds, count)
                if journal.kept and self._clock.due():
                    self._record()
        finally:
            finish()

    def _within_budget(self, tell: Report) -> Report:
        """A report that interrupts the chains once the rest of a budget is needed for what follows the draws."""
        reserved = self._prices.follow_up(max(self.draws_made, LEAST))[0]

        def report(amount: int) -> None:
            tell(amount)
            self._budget.check(0.0, reserved)

        return report

    def _store(self, step: int, extension: Extension, keeps: bool) -> None:
        self._budget.evaluations += float(extension.evaluations)
        if extension.accepted is not None:
            self._accepted = extension.accepted + (0 if self._accepted is None else self._accepted)
        if not keeps:
            return
        self._require_near(step, extension.draws)
        self._draws.append(self._reported.out(extension.draws, self._made))
        if self._keeps_states:
            self._states.append(extension.draws[:, -self._made % self._every :: self._every])
        first, self._made = self._made, self._made + extension.draws.shape[1]
        self._spent.append(extension.spent[None, :])
        if extension.gradients is None:
            self._has_gradients = False
        elif self._has_gradients:
            self._preconditioned.append(self._reported.displace(extension.gradients, first, into=extension.gradients))

    def _require_near(self, step: int, z: Array) -> None:
        """Refuse draws far out: in whitened variables |z|² is about dim; a chain far beyond has begun to diverge."""
        size = self._step_size
        far = np.einsum("cnd,cnd->cn", z, z) > 25 * z.shape[2] + 200
        if size is not None and far.any():
            chain, place = (int(k) for k in np.unravel_index(int(np.argmax(far)), far.shape))
            raise DivergenceError(int(self._numbers[chain]), step + place + 1, size, size / 4)


def _ordered(rows: GrowingRows) -> Array:
    """All rows in memory, chain by chain, so that sums over them run in one order wherever they were kept."""
    return np.ascontiguousarray(rows.array())


def _two_numbers(name: str, value: list[float]) -> SecondsAndPasses:
    seconds, passes = value
    return nonnegative(name, seconds), nonnegative(name, passes)


def tuned(
    make_drawing: Callable[[Runnable, int], Drawing],
    sampler: Runnable,
    burn_in: int,
    least_accepted: float,
    progress: Progress,
    fixed: bool = False,
) -> tuple[Runnable, Drawing]:
    """A sampler and its chains after their burn-in, with steps made shorter until they accept a share of the proposals.

    make_drawing: the chains of a sampler, and of the number of this trial. fixed: whether the step stays as it is.
    """
    trial = 0
    while True:
        drawing = make_drawing(sampler, trial)
        accepted = drawing.burn_in(burn_in, progress)
        smaller = None if fixed else sampler.smaller()
        enough = accepted.sum() >= least_accepted * burn_in * len(accepted)
        if smaller is None or enough or drawing.draws_made or drawing.burn_in_was_cut(burn_in):
            return sampler, drawing
        sampler, trial = smaller, trial + 1
