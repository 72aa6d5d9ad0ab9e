"""The chains of one attempt: tuned, burnt in, and extended until there are enough effective draws.

With a budget, draws are made as long as it pays for them and for all that follows: `Prices` says what a step takes, as
it is measured while steps are made, and keeps what the correction of the draws and the verdict will take.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svrhmc.checkpoint import Clock, Growing, Journal
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import Budget, BudgetSpent
from svrhmc.core.errors import DivergenceError, boolean, nonnegative, optional, whole_number
from svrhmc.core.progress import Progress, format_duration, reporter, stage
from svrhmc.core.storage import Record
from svrhmc.diagnostics import r_hat
from svrhmc.engines import EVERY, NONE, Chains, Extension
from svrhmc.engines.base import Report
from svrhmc.samplers import MOST_STEPS, accepted_of, arrays_of, said_of, state_of
from svrhmc.sampling.doubts import STUCK, effective_draws, longest_stay

_FIRST = 5  # draws, or steps, of a first piece
LEAST = 4  # draws of a chain, without which nothing can be said of them
_TELLING = 0.02  # seconds of a piece that tell what a step takes
_HELD_UP = 3.0  # times what steps take at best, that is taken for what they do
_SOME = 16  # chains by which it is told what it takes to show a draw
_NUMBERS, _FEWEST = 1 << 22, 4  # numbers of draws made at once, and steps at least
_LONG, _APART = 4, 1.5  # times the burn-in, after which chains that stick, or modes with a larger R-hat, end it
_MOST = 100  # times the draws that were expected to be enough
_SLOW = 30.0  # seconds more than which a run that is slower than was expected is said to take
_USED = 0.85  # of a budget: with more left than the rest, draws that it ended go on
_WORTH, _SAFE = 0.1, 1.25  # of the draws so far: the fewest to go on for; times what followed them before, that is kept

SecondsAndPasses = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws in whitened variables (none where nobody needs them) and in the user's, what a chain had spent at each, the
    effective ones of each coordinate, WWᵀ∇f in the user's variables where it came for free, and whether all are there.
    """

    z: Array
    x: Array
    spent: Array
    effective: Array
    pulled: Array | None
    complete: bool
    stopped: bool  # by a budget

    def thinned(self, wanted: int) -> Drawn:
        """Every k-th draw of each chain, k so that at least so many are left."""
        chains, draws, _ = self.x.shape
        every = slice(None, None, max(1, chains * draws // wanted))
        free = None if self.pulled is None else self.pulled[:, every]
        return replace(self, z=self.z[:, every], x=self.x[:, every], spent=self.spent[every], pulled=free)


@dataclass(frozen=True)
class FollowUp:
    """What is made after the draws, in seconds and passes: for a draw of a chain, and once.

    The seconds are those of `svrhmc.sampling.costs`, by which a step of all chains takes `step`: what it does take
    tells how fast the machine is. `passes` is what such a step makes.
    """

    of_draw: SecondsAndPasses = (0.0, 0.0)
    once: SecondsAndPasses = (0.0, 0.0)
    step: float = 1.0
    passes: float = 0.0


class Prices:
    """What a step of all chains takes, and what follows a draw: as expected, then as measured."""

    def __init__(self, chains: Chains, n: int, follow_up: FollowUp, budget: Budget) -> None:
        self._chains, self._n, self._follow_up, self._budget = chains, n, follow_up, budget
        self._count = len(chains.state.x)
        self._pieces: list[tuple[float, int]] = []  # seconds and steps of each
        self._showing = 0.0  # seconds that it takes to show a draw of all chains
        self.followed: SecondsAndPasses | None = None  # what follows a draw of all chains, measured

    def learn(self, seconds: float, steps: int) -> None:
        """What a piece of steps took."""
        self._pieces.append((seconds, steps))

    def learn_to_show(self, reported: Any) -> None:
        """What it takes to show the draws of all chains in the user's variables, from some of them."""
        some, began = self._chains.state.x[:_SOME, None], self._budget.used()[0]
        reported.out(some)
        self._showing = (self._budget.used()[0] - began) * self._count / len(some)

    def learn_follow_up(self, draws: int, since: SecondsAndPasses, used: SecondsAndPasses) -> None:
        """What followed so many draws of a chain, from what was used at their end to what is used now."""
        self.followed = (_SAFE * (used[0] - since[0]) / draws, _SAFE * (used[1] - since[1]) / draws)

    def step(self) -> SecondsAndPasses:
        """Of all chains.

        That of the fastest piece, as another process may have held up the others; what the costs say (or less) as long
        as that was too short to tell, which a piece is believed to be only where it was twice as fast as longer ones.
        Passes are known beforehand, then their average.
        """
        state, fastest = self._chains.state, min(self._pieces, key=_slowness, default=(0.0, 1))
        passes = self._count * state.spent / (state.step * self._n) if state.step else self._follow_up.passes
        seconds = fastest[0] / fastest[1]
        measured = fastest[0] >= _TELLING and self._pieces[1:]
        return seconds if measured else min(self._follow_up.step, seconds), passes

    def after(self, draws: int) -> SecondsAndPasses:
        """What is made after so many draws of a chain."""
        (seconds, passes), once = self._follows(), self._once()
        return draws * seconds + once[0] + self._showing, draws * passes + once[1]

    def affordable(self, draws: int, steps: int = 0) -> int:
        """Draws of a chain to make next: those that are paid for, or half of them where they are many, so that the end
        of a budget cuts off few.
        """
        count = self.paid(draws, steps)
        return count if count < 2 * _FIRST or self._budget.unlimited else count // 2

    def paid(self, draws: int, steps: int = 0) -> int:
        """Draws of a chain that what is left of the budgets pays for, with all that comes after these and after those
        that are made, and with some more steps.
        """
        if self._budget.unlimited:
            return sys.maxsize
        (seconds, passes), after, follows = self.step(), self.after(draws), self._follows()
        kept = (after[0] + steps * seconds, after[1] + steps * passes)
        count = self._budget.affordable((seconds + follows[0], passes + follows[1]), kept)
        return math.floor(min(count, sys.maxsize))

    def _pace(self) -> float:
        """Seconds here for one of `svrhmc.sampling.costs`: by all pieces, but no more than some times the fastest."""
        seconds, steps = sum(piece[0] for piece in self._pieces), sum(piece[1] for piece in self._pieces)
        fastest = self.step()[0]
        return min(max(fastest, seconds / max(steps, 1)), _HELD_UP * fastest) / self._follow_up.step

    def _follows(self) -> SecondsAndPasses:
        """What is made for a draw of all chains after it: as it was measured, or as it is expected."""
        seconds, passes = self._follow_up.of_draw
        return self.followed or (self._pace() * self._count * seconds, self._count * passes)

    def _once(self) -> SecondsAndPasses:
        """What is made once after all draws; nothing where it was measured with what follows each, or would take more
        than half of a budget: then the draws come first.
        """
        seconds, passes = self._pace() * self._follow_up.once[0], self._follow_up.once[1]
        half = [limit / 2 for limit in self._budget.limits]
        kept = self.followed is None and seconds <= half[0] and passes <= half[1]
        return (seconds, passes) if kept else (0.0, 0.0)


def _slowness(piece: tuple[float, int]) -> float:
    """Seconds of a step of a piece, twice as many where it is short."""
    return piece[0] / piece[1] * (1 if piece[0] >= _TELLING else 2)


class Drawing:
    """Chains under a name in the journal, which knows where they are and what they have drawn.

    settings: what a record says of them; `step_size` in it, where it is not None, is that of chains that stay near the
    mode unless they diverge. states: whether whitened states are kept. width: of what is reported of a state, if it is
    not as wide as that. gradients: whether those at the draws are kept, where they come for free.
    every: of how many draws one is kept with its state.
    """

    def __init__(
        self,
        chains: Chains,
        numbers: Indices,
        reported: Any,
        name: str,
        journal: Journal,
        budget: Budget,
        settings: dict[str, Any],
        follow_up: FollowUp,
        states: bool = True,
        modes: int = 1,
        width: int | None = None,
        gradients: bool = True,
        every: int = 1,
    ) -> None:
        self.chains, self._numbers, self._reported, self._settings = chains, numbers, reported, settings
        self._name, self._journal, self._budget, self._clock = name, journal, budget, Clock()
        self._keeps_states, self._modes, self._every = states, modes, every
        self._prices = Prices(chains, settings["n"], follow_up, budget)
        self._accepted: Indices | None = None  # proposals, by chain, where there are any
        self._burn_in: int | None = None  # steps made before the first draw that is kept
        self._goal = self._until = 0  # draws before the next look at them, and before the next look at the budgets
        self._looked = 0  # the goal at which the last look was taken
        self._stopped = False  # by a budget
        self._ended = False  # whether no more draws are made, whatever is left of a budget
        self._free = gradients  # whether gradients come with the draws
        self._remark = ""  # for a person who waits
        shape = chains.state.x.shape
        record = journal.get(name)
        shapes = {"draws": shape if width is None else (shape[0], width), "states": shape, "pulled": shape}
        self._draws, self._states, self._pulled = (
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
        self._goal, self._until, self._looked = (
            record.value(name, whole_number, 0, MOST_STEPS) for name in ("goal", "until", "looked")
        )
        self._free, self._stopped = record.value("free", boolean), record.value("stopped", boolean)
        self._burn_in = record.value("burn_in", optional, whole_number, 0, self.chains.state.step)
        self._ended = record.value("ended", boolean)
        self._prices.followed = record.value("followed", optional, _two_numbers)
        self._require_rows(record)
        self._budget.restore(record)

    def _require_rows(self, record: Record) -> None:
        """Refuse a record that speaks of other draws than those of its steps, or of too few states or gradients."""
        counts = {"draws": self._made, "spent": self._spent.array().shape[1]}
        counts |= {"pulled": self._pulled.array().shape[1]} if self._free else {}
        states = self._states.array().shape[1]
        if self._keeps_states and states != -(-self.draws_made // self._every):
            raise record.unusable(
                f"states must have one row for each {self._every} of {self.draws_made} steps; got {states}"
            )
        for name, count in counts.items():
            if count != self.draws_made:
                raise record.unusable(f"{name} must have {self.draws_made} rows, one for each step; got {count}")

    def _record(self) -> None:
        state = self.chains.state
        settings = {
            **self._settings, **said_of(state), "burn_in": self._burn_in, "goal": self._goal, "until": self._until,
            "free": self._free, "stopped": self._stopped, "looked": self._looked, "ended": self._ended,
            "followed": self._prices.followed, "ledger": self._budget.ledger(),
        }  # fmt: skip
        counts = {} if self._accepted is None else {"accepted": self._accepted}
        self._journal.put(self._name, settings, {**arrays_of(state), "chains": self._numbers, **counts})

    @property
    def acceptance(self) -> Array | None:
        """The share of all proposals so far that each chain accepted; None where there are none."""
        return None if self._accepted is None else self._accepted / self.chains.state.step

    @property
    def first(self) -> int:
        """The number of the first draw that is kept."""
        return 1 + (self._burn_in or 0)

    @property
    def draws_made(self) -> int:
        """Draws of a chain so far."""
        return 0 if self._burn_in is None else self.chains.state.step - self._burn_in

    def cut(self, steps: int) -> bool:
        """Whether fewer than so many first steps were made."""
        return self._burn_in is not None and self._burn_in < steps

    def settle(self, steps: int, progress: Progress) -> Indices:
        """Make the first steps, of which none is kept, or as many as a budget pays for if as many draws are made after
        them; gives the proposals that each chain accepted in them.
        """
        if self._burn_in is None:
            while (step := self.chains.state.step) < steps:
                if step >= self._until:  # else a piece was begun before a kill, and is made to its end
                    after = max(step, LEAST)
                    piece = min(self._prices.affordable(after, after), max(step, 1))
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

    def draw(self, wanted: int, expected: float, progress: Progress) -> Drawn:
        """Extend until so many draws are effective for x and x², or a budget ends, or no end is in sight.

        `expected` is how many effective draws a draw is expected to be.
        """
        first = max(100, math.ceil(wanted / (len(self.chains.state.x) * expected)))
        self._goal, most = self._goal or first, _MOST * first
        if not self._budget.unlimited and not self.draws_made:
            self._prices.learn_to_show(self._reported)
        while True:
            self._reach_goal(progress)
            draws = self.draws_made
            if draws < LEAST:
                raise BudgetSpent
            counting = self._journal.recording(f"effective-{self._name}", self._budget, {"draws": draws})
            with stage("effective draws", progress), counting:
                effective = effective_draws(_ordered(self._draws))
                least = float(f"{effective.min():.6g}")  # its last digits depend on the threads of a library below
                enough = least >= wanted or self._stopped or draws >= most
                hopeless = not enough and draws >= self._patience and self._hopeless()
            if enough or hopeless:
                break
            self._remark = self._outlook(least, wanted, most)
            more = math.ceil(min(max(draws * (wanted / max(least, 1.0) * 1.1 - 1), draws * 0.1), 2 * draws))
            self._goal = min(most, self._goal + more)
        return Drawn(
            z=_ordered(self._states),
            x=_ordered(self._draws),
            spent=_ordered(self._spent)[0],
            effective=effective,
            pulled=_ordered(self._pulled) if self._free else None,
            complete=least >= wanted and not self._stopped,
            stopped=self._stopped,
        )

    def _reach_goal(self, progress: Progress) -> None:
        """Make draws up to the goal, or as many as a budget pays for."""
        if self._goal > self.draws_made and self._budget.unlimited:
            self._expect(self._goal - self.draws_made)
        while self.draws_made < self._goal and not self._stopped:
            draws = self.draws_made
            if draws >= self._until:  # else a piece was begun before a kill, and is made to its end
                more = min(self._goal - draws, self._prices.affordable(draws))
                more = more if self._budget.unlimited else min(more, max(draws, _FIRST))
                self._stopped, self._until = more < 1, draws + more
            if not self._stopped:
                try:
                    before = self._burn_in or 0
                    self._advance(before + self._until, before + self._goal, True, progress)
                except BudgetSpent:
                    self._stopped = True
        if self._looked < self._goal:
            self._stopped, self._looked = self._stopped or self._prices.affordable(self.draws_made) < 1, self._goal
        if self._journal.kept:
            self._record()

    def _expect(self, draws: int) -> None:
        """Room for so many more draws, as far as it is known what of them is kept."""
        self._draws.expect(draws)
        if self._keeps_states:
            self._states.expect(-(-draws // self._every))
        else:
            self._pulled.expect(draws)

    @property
    def _patience(self) -> int:
        """Draws of a chain after which it is asked whether more of them help."""
        return _LONG * (self._burn_in or 0)

    def _hopeless(self) -> bool:
        """Whether chains that began at different modes stay there, or one stays at a point: then more draws do not
        help.
        """
        draws = _ordered(self._draws)
        apart = self._modes > 1 and float(r_hat(draws).max()) > _APART
        return apart or longest_stay(draws) > STUCK

    def _outlook(self, least: float, wanted: int, most: int) -> str:
        """What a person who waits is told: how many draws are effective, and how long the others take where that is far
        longer than was expected.
        """
        outlook, needed = f"  {least:,.0f} of {wanted:,} effective", self.draws_made * wanted / max(least, 1.0)
        seconds = (min(needed, most) - self.draws_made) * self._prices.step()[0]
        if needed > self._patience and seconds > _SLOW:
            outlook += f", {format_duration(seconds)} more (budget_seconds=60 or fewer draws end it sooner)"
        return outlook

    def goes_on(self, since: SecondsAndPasses) -> bool:
        """Whether draws that a budget ended are to be continued after all that follows them was done.

        What follows m draws was kept from the budget by an estimate. Once it was done it is known: with seconds (or
        passes) p of a draw and a of what follows it, both measured, m more draws after `made` are paid for where

            m p + (made + m) a ≤ left.

        since: what was used when the draws ended.
        """
        if not self._ended:
            used = self._budget.used()
            self._prices.learn_follow_up(self.draws_made, since, used)
            share = max(now / limit for now, limit in zip(used, self._budget.limits, strict=True))
            self._ended = share > _USED or self._prices.affordable(self.draws_made) < max(1, _WORTH * self.draws_made)
            self._stopped = self._ended
            if self._journal.kept:
                self._record()
        return not self._ended

    def _advance(self, end: int, goal: int, keeps: bool, progress: Progress) -> None:
        """Steps to `end`, in pieces where the journal outlives the process. A person is told how long it takes to
        `goal`, or until a budget ends.
        """
        chains, journal, step = self.chains, self._journal, self.chains.state.step
        left = max(0, end - step, min(goal - step, self._prices.paid(self.draws_made)))
        tell, finish = reporter(progress, left * len(chains.state.x), self._remark)
        report = tell if self._budget.unlimited else self._watched(tell)
        try:
            while (step := chains.state.step) < end:
                began = self._budget.used()[0]
                most = min(end - step, max(_FEWEST, _NUMBERS // chains.state.x.size))
                piece = self._clock.piece(most) if journal.kept else most
                with journal.within(f"within-{self._name}", self._budget, step, piece):
                    extension = chains.extend(piece, EVERY if keeps else NONE, report)
                self._take(step, extension, keeps)
                took, count = self._budget.used()[0] - began, chains.state.step - step
                self._clock.learn(count, took)
                self._prices.learn(took, count)
                if journal.kept and self._clock.due():
                    self._record()
        finally:
            finish()

    def _watched(self, tell: Report) -> Report:
        """A report that ends what is on its way where the rest of a budget is needed for what comes after."""
        needed = self._prices.after(max(self.draws_made, LEAST))[0]

        def watch(amount: int) -> None:
            tell(amount)
            self._budget.check(0.0, needed)

        return watch

    def _take(self, step: int, extension: Extension, keeps: bool) -> None:
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
            self._free = False
        elif self._free:
            self._pulled.append(self._reported.displace(extension.gradients, first, into=extension.gradients))

    def _require_near(self, step: int, z: Array) -> None:
        """In whitened variables |z|² is about dim: what is far beyond has begun to diverge."""
        size = self._settings["step_size"]
        far = np.einsum("cnd,cnd->cn", z, z) > 25 * z.shape[2] + 200
        if size is not None and far.any():
            chain, place = (int(k) for k in np.unravel_index(int(np.argmax(far)), far.shape))
            raise DivergenceError(int(self._numbers[chain]), step + place + 1, size, size / 4)


def _ordered(rows: Growing) -> Array:
    """All rows in memory, chain by chain: sums over them then run in one order, wherever they were kept."""
    return np.ascontiguousarray(rows.array())


def _two_numbers(name: str, value: list[float]) -> SecondsAndPasses:
    seconds, passes = value
    return nonnegative(name, seconds), nonnegative(name, passes)
