"""One call of `sample`: finds the mode, chooses, runs, judges, and tries again with half the step where it has to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svrhmc.checkpoint import Clock, Journal
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.parts import from_settings, is_part, to_settings
from svrhmc.core.progress import Progress
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.diagnostics import r_hat
from svrhmc.engines import Setup, estimates
from svrhmc.gradients import ControlVariate, Full, Gradient, Minibatch
from svrhmc.posterior.certificate import (
    Bias,
    Certificate,
    chosen_states,
    corrected_moments,
    judge,
    judge_invariant,
    stein_bias,
)
from svrhmc.posterior.choice import EXACT_WORK, Choice, Chooser
from svrhmc.posterior.drawing import Drawing, Drawn
from svrhmc.posterior.halving import halving_bias
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.result import Location, Posterior
from svrhmc.posterior.variables import variables
from svrhmc.samplers import Sampler
from svrhmc.scheme import IDENTITY, SILENT, Kick, Scheme
from svrhmc.targets.base import FiniteSum
from svrhmc.trace import Trace, sampler_of

_HALVINGS = 4  # of a refuted step
_HALVING_CHAINS, _MOST_CHAINS = 256, 4096  # of step-halving: four times as many as long as it does not decide
_TUNING, _ACCEPTED, _LEAST = 40, 0.7, 0.3  # draws after which shares of proposals are accepted, by all and by each
_FULL_WORK = 2e9  # entries of X up to which gradients at all draws are full ones
_STILL = Scheme(IDENTITY, SILENT, Kick(0.0, 0.0), IDENTITY, SILENT)  # for estimates, which no scheme enters


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked for, checked."""

    target: FiniteSum
    draws: int
    chains: Indices
    tolerance: float
    seed: int
    method: Any
    seconds: float
    passes: float
    threads: int
    progress: Progress


class Search:
    """From a request to a posterior; what is finished stands in the journal."""

    def __init__(self, request: Request, journal: Journal) -> None:
        self.request, self.journal = request, journal
        self.ledger = Ledger(request.target.n, request.seconds, request.passes, request.progress)
        self._probed: set[tuple[bool, bool]] = set()  # kinds of recipes whose estimates were compiled

    def run(self) -> Posterior:
        """Until the verdict stands or the budget ends."""
        self.space = variables(self.request.target, self.request.seed, self.journal, self.ledger)
        self.ledger.lap("mode and whitening")
        choice = self._choose()
        self.ledger.lap("choice")
        for attempt in range(_HALVINGS + 1):
            posterior = self._attempt(choice, attempt)
            if posterior.certificate.verdict != "refuted" or self._given or not posterior.complete:
                break
            choice = choice.halved()
        return posterior

    @property
    def _given(self) -> bool:
        """Whether a sampler was given, which is run as it is."""
        return self.request.method is not None and not isinstance(self.request.method, str)

    def _choose(self) -> Choice:
        request = self.request
        found = None if self._given else self.journal.get("choice")
        if found is not None:
            self.ledger.restore(found.said["ledger"])
            return Choice(found.said["method"], sampler_of(found.said["sampler"]), found.said["why"])
        chooser = Chooser(request.target, self.space, request.draws, request.tolerance, request.seed, self._noise)
        choice = chooser.choose(request.method)
        if self.journal.kept and not self._given:
            said = {"method": choice.method, "sampler": choice.sampler.settings(), "why": choice.why}
            self.journal.put("choice", {**said, "ledger": self.ledger.said()})
        return choice

    def _attempt(self, choice: Choice, attempt: int) -> Posterior:
        seed = self.request.seed + (attempt << 40)
        if choice.sampler.invariant:
            sampler, drawing, burn_in = self._tuned(choice.sampler, seed, attempt)
        else:
            sampler, burn_in = choice.sampler, _burn_in(choice.sampler, self.space)
            drawing = self._drawing(sampler, seed, f"{attempt}")
            drawing.settle(burn_in, self.request.progress)
        expected = 0.7 if sampler.invariant else 0.4
        drawn = drawing.draw(burn_in, self.request.draws, expected, self.request.progress)
        self.ledger.lap("sampling")
        gradients = drawn.gradients
        if gradients is None:
            gradients = self._stein_gradients(drawn.z, seed, attempt)
        self.ledger.lap("Stein gradients")
        return self._posterior(choice, sampler, drawing, drawn, gradients, (seed, attempt))

    def _tuned(self, sampler: Any, seed: int, attempt: int) -> tuple[Any, Drawing, int]:
        """Chains after their burn-in; the step of an automatic SplitHMC falls by a quarter until 7 in 10 proposals are
        accepted, and 3 in 10 of every single chain.
        """
        proposals, tuning = _TUNING * len(self.request.chains), 0
        while True:
            drawing = self._drawing(sampler, seed, f"{attempt}" if not tuning else f"{attempt}-{tuning}")
            accepted = drawing.settle(_TUNING, self.request.progress)
            smaller = None if self._given else sampler.smaller()
            enough = accepted.sum() >= _ACCEPTED * proposals and accepted.min() >= _LEAST * _TUNING
            if smaller is None or drawing.made(_TUNING) or enough:
                return sampler, drawing, _TUNING
            sampler, tuning = smaller, tuning + 1

    def _drawing(self, sampler: Any, seed: int, name: str) -> Drawing:
        """Chains of a sampler, compiled, where the journal left them."""
        request, space = self.request, self.space
        start = None
        if not sampler.invariant:
            start = Stream(seed, request.chains).normals(0, space.dim, Purpose.DATA, Purpose.DATA_FINE)
        chains = sampler.chains(space, seed, request.chains, request.threads, start)
        self.ledger.compile(chains.compile)
        near = not sampler.invariant and space.identity_hessian
        told = {
            "sampler": sampler.settings() if is_part(sampler) else {}, "engine": chains.engine,
            "seed": request.seed, "n": request.target.n,
            "step_size": sampler.dynamics.step_size if near else None,
        }  # fmt: skip
        return Drawing(chains, request.chains, space, f"chains-{name}", self.journal, self.ledger, told)

    def _posterior(
        self, choice: Choice, sampler: Any, drawing: Drawing, drawn: Drawn, gradients: Array, place: tuple[int, int]
    ) -> Posterior:
        request, ledger, how = self.request, self.ledger, self.space.whitening
        z, x, dim = drawn.z, drawn.x, drawn.z.shape[2]
        pulled = how.displace(gradients)  # WWᵀ∇f in the user's coordinates
        if z.shape[0] * z.shape[1] >= 20 * dim:
            covariance = np.atleast_2d(np.cov(z.reshape(-1, dim), rowvar=False))
            stein = stein_bias(x, how.displace(gradients @ covariance), x.var(axis=(0, 1), ddof=1))
        else:
            stein = stein_bias(x, pulled, how.variances)
        corrected, agreement = corrected_moments(x, pulled, how.variances), r_hat(x)
        if sampler.invariant:
            certificate = judge_invariant(stein, request.tolerance, drawn.effective, agreement, request.draws)
        else:
            certificate = self._judge(sampler, z, stein, float(drawn.effective.min()), place)
        ledger.lap("certificate")
        raw = Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1))
        best: Any = corrected if certificate.verdict in ("exact", "certified") else raw
        seconds, passes = ledger.used()
        trace = Trace(
            draws=x,
            passes=drawn.spent / request.target.n,
            gradient_evaluations=round(drawing.chains.state.spent),
            velocity=np.zeros_like(z[:, 0]),
            seconds=ledger.steps.get("sampling", 0.0),
            sampler=sampler,
            seed=request.seed,
            chains=request.chains,
            engine=drawing.chains.engine,
        )
        return Posterior(
            mean=best.mean,
            sd=best.sd,
            raw=raw,
            corrected=corrected,
            laplace=Location(how.centre, np.sqrt(how.variances)),
            trace=trace,
            method=choice.method,
            sampler=sampler,
            why=choice.why,
            certificate=certificate,
            ess=drawn.effective,
            r_hat=agreement,
            passes=passes,
            seconds=seconds,
            compile_seconds=ledger.compiling,
            complete=drawn.complete,
            steps=dict(ledger.steps),
        )

    def _stein_gradients(self, z: Array, seed: int, attempt: int) -> Array:
        """Estimates of ∇f at every draw from rows of their own."""
        name, flat = f"stein-{attempt}", z.reshape(-1, z.shape[2])
        found, rows = self.journal.get(name), self.journal.growing(name, (1, z.shape[2]), name)
        if found is not None:
            self.ledger.restore(found.said["ledger"])
            gradient = from_settings(found.said["gradient"])
        else:
            gradient = self._stein_gradient(flat, seed)
        clock, done = Clock(), rows.array().shape[1]
        while done < len(flat):
            piece = clock.piece(len(flat) - done) if self.journal.kept else len(flat)
            before = self.ledger.used()[0]
            rows.append(self._estimates(gradient, flat[done : done + piece], seed + (1 << 50), done)[None])
            clock.learn(piece, self.ledger.used()[0] - before)
            done += piece
            if self.journal.kept and (clock.due() or done >= len(flat)):
                said = {"gradient": to_settings(gradient), "ledger": self.ledger.said()}
                self.journal.put(name, said)
        return np.asarray(rows.array()[0], np.float64).reshape(z.shape)

    def _stein_gradient(self, flat: Array, seed: int) -> Gradient:
        """Full gradients where they are few; else batches so large that their noise is a tenth of the spread."""
        target, space = self.request.target, self.space
        if target.n * float(len(flat)) * target.row_entries <= _FULL_WORK:
            return Full()
        if not space.scalar_parts:
            return ControlVariate(min(100, target.n))
        if not space.identity_hessian:
            return Full()
        pilot = flat[np.linspace(0, len(flat) - 1, 1000).astype(np.int64)]
        for importance in (False, True):  # even rows where they do: no table of weights is needed
            size = 40 * self._noise(Minibatch(4, importance=importance), pilot, seed + (1 << 50) + 1)
            if size <= 40:
                break
        return Minibatch(int(min(max(4.0, size), target.n)), importance=importance)

    def _judge(self, sampler: Sampler, z: Array, stein: Bias, effective: float, place: tuple[int, int]) -> Certificate:
        """Stein's identities first; step-halving only where they would certify."""
        request, (seed, attempt) = self.request, place
        recipe = sampler.gradient.recipe(self.space)
        sighted = not sampler.dynamics.scheme(self.space).recorded_at_kick
        certificate = judge(stein, None, request.tolerance, sighted, effective)
        halvable = sampler.dynamics.couples_halves and not recipe.carries
        would = certificate.verdict == "certified" or (not sighted and stein.upper(False) < request.tolerance)
        if not (would and halvable):
            return certificate
        steps = 2 * math.ceil(10 / sampler.dynamics.step_size)
        rows, chains = recipe.rows_of_estimate, _HALVING_CHAINS
        while True:
            states = chosen_states(z, chains)
            name = f"halving-{attempt}-{chains}"
            halving = halving_bias(
                sampler, self.space, states, steps, seed + (1 << 51), request.threads, self.journal, name
            )
            self.ledger.evaluations += 3.0 * steps * chains * rows
            certificate = judge(stein, halving, request.tolerance, sighted, effective)
            chains *= 4
            work = 3.0 * steps * chains * rows * request.target.row_entries
            if (
                certificate.verdict != "undecided"
                or chains > min(_MOST_CHAINS, z.shape[0] * z.shape[1])
                or work > EXACT_WORK
            ):
                return certificate

    def _noise(self, gradient: Gradient, states: Array, seed: int) -> float:
        """The largest variance, over coordinates, of the gradient's estimate: from two of them at each state."""
        pair = [self._estimates(gradient, states, seed + k) for k in (0, 1)]
        return float(((pair[0] - pair[1]) ** 2).mean(axis=0).max() / 2)

    def _estimates(self, gradient: Gradient, states: Array, seed: int, first: int = 0) -> Array:
        """Estimates of ∇f at some states, each as the chain of its number (from `first` on) makes it."""
        recipe = gradient.recipe(self.space)
        self.ledger.evaluations += float(len(states)) * recipe.rows_of_estimate
        numbers = np.arange(first, first + len(states))
        setup = Setup(self.space, _STILL, recipe, 1.0, seed, numbers, self.request.threads)
        if (kind := (recipe.full, recipe.carries)) not in self._probed:  # it is compiled for each
            self._probed.add(kind)
            few = replace(setup, chains=numbers[:1], threads=1)
            self.ledger.compile(lambda: estimates(few, states[:1], 0))
        return estimates(setup, states, 0)


def _burn_in(sampler: Sampler, space: FiniteSum) -> int:
    """About ten relaxation times, from starts in the Laplace approximation; whole epochs where these are shorter."""
    steps, epoch = math.ceil(10 / sampler.dynamics.step_size), sampler.gradient.recipe(space).epoch
    return -(-steps // epoch) * epoch if epoch <= steps else steps
