"""Which sampler runs: an exact one wherever it is affordable, by the seconds that draws and their verdict take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from svrhmc.core.deadline import Budget
from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum
from svrhmc.dynamics import BAOAB, UBU, Anchored, Dynamics
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.exact.base import Runnable
from svrhmc.exact.jumps import Regions
from svrhmc.exact.marginal import MarginalMH
from svrhmc.families.base import Loss
from svrhmc.gradients import SVRG, Full, Gradient
from svrhmc.rows.forms import functions_of, rows_of
from svrhmc.samplers import Sampler
from svrhmc.sampling import costs
from svrhmc.sampling.gradients import FreshGradients, Gaussianity
from svrhmc.whitening.targets import Space

_PATIENCE = 3.0  # seconds up to which an exact sampler is chosen whatever else is cheaper
_SHORT = (0.53, 3)  # step and leapfrogs of split HMC where tails are long
_AROUND = 64  # states around each of several modes at which the step is chosen
_CORRELATION = 0.7  # of subsampled Metropolis where π has heavier tails than its proposals
_FEW_ROWS = 32  # below which no batch is worth it
_HALF = 0.5  # of a budget that the draws of an exact sampler may be expected to take
_SPLIT, _LONG = 2.5, 4.5  # passes of split HMC for an effective draw; the second if tails are long
_SUBSAMPLED, _STEPS = 1.5, 2.5  # steps of subsampled Metropolis, and time of biased samplers, for an effective draw
_WORTH, _CHEAPER = 0.2, 3.0  # seconds and a factor that subsampled steps must save if full gradients are affordable
_BIASED: dict[str, tuple[Callable[..., Dynamics], float]] = {
    "anchored": (Anchored, 1.0),
    "baoab": (BAOAB, 1.0),
    "ubu": (UBU, 0.3),
}
_UNBOUNDED = "no bound on single components is known"
_BRANCH = (
    "jnp.where lets through the derivative of the branch that is not taken, and 0 · inf is nan; replace what that "
    "branch is computed from as well, as in jnp.log(jnp.where(x > 0, x, 1.0))"
)
_EXACT = {"split-hmc": SplitHMC, "subsampled-mh": SubsampledMH}
METHODS = ("closed-form", *_EXACT, MarginalMH.method, *_BIASED)


@dataclass(frozen=True)
class Choice:
    """A method, its sampler and the reason."""

    method: str
    sampler: Runnable
    why: str

    def with_half_step(self, outcome: str) -> Choice:
        """The same with half the step, and the same batches, whose noise then counts half as much."""
        step = self.sampler.dynamics.step_size
        dynamics = replace(self.sampler.dynamics, step_size=step / 2)
        why = f"{self.why.rstrip('.')}; the step is {step / 2:g}, because a run with {step:g} {outcome}."
        return Choice(self.method, Sampler(dynamics, self.sampler.gradient), why)

    def with_sampler(self, sampler: Runnable, outcome: str) -> Choice:
        """Another sampler, or another step, with the outcome of this one as the reason."""
        if sampler.method == self.method:
            step, why = self.sampler.step_size, self.why.rstrip(".")
            if sampler.cycle > self.sampler.cycle:
                why = (
                    f"{why}; some steps are shorter, down to 1/{sampler.cycle}, because a run without those {outcome}."
                )
            else:
                why = f"{why}; the step is {sampler.step_size:.2g}, because a run with {step:.2g} {outcome}."
            return Choice(self.method, sampler, why)
        return Choice(sampler.method, sampler, f"exact, because a run of {self.method} {outcome}.")


@dataclass(frozen=True, eq=False)
class Chooser:
    """Chooses a sampler for a target.

    space: the target in whitened variables. regions: those around several modes between which chains can jump.
    verdict_seconds: how long it takes to judge the draws of a sampler that has a bias.
    """

    target: FiniteSum
    space: Space
    draws: int
    tolerance: float
    seconds: float
    fresh: FreshGradients
    gaussianity: Gaussianity
    budget: Budget
    regions: Regions | None = None
    verdict_seconds: Callable[[Sampler], float] = lambda sampler: 0.0

    def choose(self, method: Any) -> Choice:
        """The sampler of this name, or (None) the best by its cost; a sampler is taken as it is."""
        if not (method is None or isinstance(method, str)):
            if method.invariant:
                method.require(self.target)
            return Choice(method.method, method, "as asked for.")
        if method == MarginalMH.method:
            MarginalMH().require(self.target)
        form = rows_of(self.target.form())
        if self.regions is not None and method in (None, SplitHMC.method):
            return self._choose_between_modes(self.regions, method)
        if form is None and self.of_functions and method in (None, SplitHMC.method):
            return self._choose_for_functions(method)
        if form is None:
            if not (method is None or method in _BIASED):
                named = ", ".join(map(repr, _BIASED))
                raise requirement("method", f"None, {named} or a sampler for this target", repr(method))
            return self._choose_for_components(method)
        if method in _EXACT:
            _EXACT[method]().require(self.target)
            sampler = self._subsampled_metropolis() if method == SubsampledMH.method else SplitHMC()
            return Choice(method, sampler, "as asked for.")
        if method is None:
            return self._choose_automatically(form.loss)
        kind, step = _BIASED[method]
        return Choice(method, Sampler(kind(step, 1.0, 1.0), self._batches(self._batch_size(step))), "as asked for.")

    def exact_sampler(self) -> SplitHMC | None:
        """The exact sampler of last resort; None if none is known for the target."""
        form = rows_of(self.target.form())
        possible = self.of_functions if form is None else SplitHMC().refuses(form.loss) is None
        return self._split_hmc() if possible else None

    @property
    def of_functions(self) -> bool:
        """Whether the target is a model of JAX functions."""
        return functions_of(self.target.form()) is not None

    def _split_hmc(self) -> SplitHMC:
        """Split HMC, with shorter steps if chains could get stuck in a long tail, or the whitening is only rough."""
        if self.gaussianity.long_tails():
            return SplitHMC(*_SHORT)
        whitening = self.space.whitening
        return SplitHMC.for_leftover(whitening.leftover, whitening.least_curvature)

    def _subsampled_metropolis(self) -> SubsampledMH:
        """Independent proposals if the tails of π are no heavier than those of their law ν: else E[π/ν] may be infinite
        and the chain has no central limit theorem. Correlated proposals enter and leave a tail step by step.
        """
        return SubsampledMH() if self.gaussianity.nearly_gaussian() else SubsampledMH(_CORRELATION)

    def _choose_automatically(self, loss: Loss) -> Choice:
        """The cheapest exact sampler if that is affordable, else batches if those are cheaper."""
        n, patience = self.target.n, min(_PATIENCE, _HALF * self.seconds)
        split = self._split_hmc_seconds(loss)
        subsampled, rows = self._subsampled_cost(loss)
        if split <= patience and not (subsampled * _CHEAPER <= split and split - subsampled > _WORTH):
            why = f"exact, with full gradients, in {_seconds_in_words(split)}"
            return Choice("split-hmc", self._split_hmc(), f"{why} for {self.draws} effective draws.")
        if subsampled <= min(patience, split):
            row_count = f"about {rows:.0f} rows" if rows >= 1.5 else "less than 2 rows"
            why = f"exact, with {row_count} a step of the {n:,} there are"
            return Choice("subsampled-mh", SubsampledMH(), f"{why}, in {_seconds_in_words(subsampled)}.")
        whole = loss.barrier or loss.kernel is None  # batches would leave the region, or be a loop in Python
        size = None if whole else self._batch_size(1.0)
        biased = Sampler(Anchored(1.0, 1.0, 1.0), self._batches(size))
        batches = math.inf
        if size is not None:
            batches = 2 * _STEPS * self.draws * costs.rows_seconds(self.space, size) + self.verdict_seconds(biased)
        if split < math.inf and (size is None or split <= batches):
            why = f"exact, with full gradients, in {_seconds_in_words(split)}: nothing else would be faster."
            return Choice("split-hmc", self._split_hmc(), why)
        too_slow = (
            f"would take {_seconds_in_words(min(split, subsampled))}"
            if split < math.inf
            else f"is not known for {loss}"
        )
        gradients = "full gradients" if size is None else f"batches of {size} rows, drawn by importance,"
        why = f"{gradients} are enough for the tolerance; an exact sampler {too_slow}."
        return Choice("anchored", biased, why)

    def _split_hmc_seconds(self, loss: Loss) -> float:
        """Seconds of split HMC."""
        if SplitHMC().refuses(loss) is not None:
            return math.inf
        passes = _LONG if self.gaussianity.long_tails() else _SPLIT * self._split_hmc().leapfrogs / SplitHMC().leapfrogs
        return passes * self.draws * costs.pass_seconds(self.space)

    def _subsampled_cost(self, loss: Loss) -> tuple[float, float]:
        """Seconds of subsampled Metropolis, infinite if chains could get stuck, and its rows per step."""
        if not self.fresh.by_rows or SubsampledMH().refuses(loss) is not None:
            return math.inf, math.inf
        rows = SubsampledMH().rows_of_step(self.space)
        seconds = _SUBSAMPLED * self.draws * costs.rows_seconds(self.space, rows)
        return (seconds if self.gaussianity.nearly_gaussian() else math.inf), rows

    def _batches(self, size: int | None) -> Gradient:
        return Full() if size is None else self.fresh.batches(size)

    def _batch_size(self, step: float) -> int | None:
        """B with hV₂/(2γB) ≤ δ/2, V₂ the largest variance of a row's remainder, and B ≥ hV₁/(4γ) for stability, γ = 1.

        None if that is nearly all rows.
        """
        space, n = self.space, self.target.n
        if not self.fresh.by_rows or n < _FEW_ROWS:
            return None
        first, second = space.curvature_noise, self.fresh.row_noise
        size = max(step * second / self.tolerance, step * first / 4, 4.0)
        return None if size > n / 8 else math.ceil(size)

    def _choose_for_functions(self, method: str | None) -> Choice:
        """Full gradients, which all chains compute in one pass, if that is affordable or nothing is cheaper."""
        sampler = self._split_hmc_for_remainder()
        if method is not None:
            return Choice(SplitHMC.method, sampler, "as asked for.")
        passes = _LONG * sampler.leapfrogs / SplitHMC().leapfrogs
        seconds, biased = passes * self.draws * costs.pass_seconds(self.space), self._choose_for_components(None)
        if not self.space.identity_hessian and sampler.smaller() is None:
            seconds = math.inf  # its step could not be made any shorter
        step = min(
            biased.sampler.dynamics.step_size, sampler.step_size / SplitHMC().step_size
        )  # no longer than its own
        steps = _STEPS / (step * self.space.whitening.least_curvature)
        batches = 2 * steps * self.draws * costs.recipe_seconds(self.space, biased.sampler.gradient.recipe(self.space))
        if seconds <= max(min(_PATIENCE, _HALF * self.seconds), batches):
            modes = len(self.target.modes())
            passing = f", if chains pass between the {modes} modes that were found" if modes > 1 else ""
            slow = sampler.step_size < SplitHMC().step_size  # how slow it is, nobody knows yet
            time = f"{max(seconds, 0.1):.2g} s or more" if slow else _seconds_in_words(seconds)
            why = (
                f"exact, with full gradients, which take {time} for {self.draws} effective draws of a nearly Gaussian "
                f"posterior{passing}; compilation, the search for modes and the verdict come on top."
            )
            return Choice(SplitHMC.method, sampler, why)
        too_slow = "need steps that are too short" if math.isinf(seconds) else f"take {_seconds_in_words(seconds)}"
        return replace(biased, why=f"{biased.why.rstrip('.')}; an exact sampler would {too_slow}.")

    def _choose_between_modes(self, regions: Regions, method: str | None) -> Choice:
        """Split HMC with jumps, with the shortest step that the remainder at any mode requires."""
        u = self.fresh.laplace(np.arange(_AROUND))
        u[0] = 0.0
        self.budget.check(float(regions.count * len(u)))
        self.budget.evaluations += float(regions.count * len(u) * self.space.n)
        samplers = []
        for i in range(regions.count):
            f = regions.potentials(self.space, np.full(len(u), i), u)
            with np.errstate(invalid="ignore"):
                R = f - 0.5 * (u * u).sum(axis=1)
                samplers.append(SplitHMC.for_remainder(R[1:] - R[0]))
        sampler = min(samplers, key=lambda sampler_of_mode: (sampler_of_mode.leapfrogs > 1, sampler_of_mode.step_size))
        count = f"the {regions.count} modes that were found"
        why = f"exact, with full gradients and jumps between {count}." if method is None else "as asked for."
        return Choice(SplitHMC.method, sampler, why)

    def _split_hmc_for_remainder(self) -> SplitHMC:
        """Split HMC with a step for the non-Gaussian remainder R = f(z) − f(0) − ½|z|² at some draws of N(0, I)."""
        z, whitening = self.fresh.laplace(self.fresh.pilot), self.space.whitening
        z[0] = 0.0
        self.budget.check(1.0 + len(z))
        self.budget.evaluations += float(len(z) * self.space.n)
        f, slopes = self.space.energies(z)
        not_finite = np.isfinite(f) & ~np.isfinite(slopes).all(axis=1)
        if not_finite.any():
            states = f"nan or inf at {not_finite.sum()} of {len(z)} states drawn around the mode"
            raise requirement("the gradient", "finite wherever the log posterior is", states, _BRANCH)
        R = f - 0.5 * (z * z).sum(axis=1)
        return SplitHMC.for_remainder(R[1:] - R[0], whitening.leftover, whitening.least_curvature)

    def _choose_for_components(self, method: str | None) -> Choice:
        """Long steps if the whitening is by the curvature at the mode, else short ones; with control variates at the
        mode if batches of a reasonable size suffice, else SVRG, else full gradients.
        """
        target = self.target
        method = method or ("anchored" if self.space.whitening.identity_hessian else "ubu")
        kind, step = _BIASED[method]
        full = Sampler(kind(step, 1.0, 1.0), Full())
        noise = self.fresh.row_noise if target.n >= _FEW_ROWS else 0.0
        if noise == 0:
            return Choice(method, full, f"{_UNBOUNDED}, and there are few of them.")
        if not math.isfinite(noise):
            return Choice(method, full, f"{_UNBOUNDED}, and the gradients of some are not finite.")
        size = math.ceil(max(step * noise / self.tolerance, 4.0))
        dynamics = kind(step, 1.0, 1.0)
        if 2 * size <= target.n / 8:
            why = f"{_UNBOUNDED}; control variates at the mode with {size} rows a step are enough."
            return Choice(method, Sampler(dynamics, self.fresh.batches(size)), why)
        period = (1.5 * self.tolerance * target.n / noise) ** (1 / 3)  # T* of the snapshot, in time
        epoch = max(1, round(period / step))
        if epoch >= 3 and target.n >= 4 * epoch:
            gradient = SVRG(max(1, target.n // (4 * epoch)), epoch)
            why = f"{_UNBOUNDED}; snapshots every {epoch} steps are enough."
            return Choice(method, Sampler(dynamics, gradient), why)
        return Choice(method, full, f"{_UNBOUNDED}, and batches would be nearly all components.")


def _seconds_in_words(seconds: float) -> str:
    return f"about {seconds:.2g} s" if seconds >= 0.095 else "less than a tenth of a second"
