"""A posterior with no options set: mode, whitening, choice of a sampler, a run until there are enough draws, a
certificate.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from svrhmc.certificate import (
    Bias,
    Certificate,
    Corrected,
    chosen_states,
    corrected_moments,
    effective_draws,
    halving_bias,
    judge,
    stein_bias,
)
from svrhmc.core.arrays import Array, Indices, cores
from svrhmc.core.errors import DivergenceError, one_of, positive, requirement, whole
from svrhmc.core.progress import Progress, reporter
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.diagnostics import r_hat
from svrhmc.dynamics import BAOAB, UBU, Anchored
from svrhmc.engines import Job, Schedule, gradients_at, prepare, run
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.exact.base import ExactSampler, require_rows
from svrhmc.gradients import SAGA, SVRG, Batched, ControlVariate, Full, Gradient, Minibatch
from svrhmc.samplers import Sampler
from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.targets.glm import GeneralisedLinear
from svrhmc.trace import Trace
from svrhmc.whitening import LowRankWhitening, Whitened, WhitenedRows, Whitening, dense_whitening, whitened

METHODS = ("closed-form", "split-hmc", "subsampled-mh", "anchored", "baoab", "ubu")
_EXACT_WORK = 6e9  # entries of X up to which an exact sampler is chosen whatever else is cheaper
_SMALL, _FAR_CHEAPER = 2e4, 50.0  # beyond so many entries, and cheaper by so much, subsampled steps come first
_RANDOM = 3.0  # what an entry of a random row costs, in entries of rows in their order
_HALVINGS = 4  # of a refuted step
_HALVING_CHAINS, _MOST_CHAINS = 256, 4096  # of step-halving: four times as many as long as it does not decide
_PILOT = 4096  # states at which the noise of a single row is measured
_DENSE_CUSTOM = 100  # columns up to which a custom target's Hessian is found by differences


@dataclass(frozen=True, eq=False)
class Location:
    """Mean and standard deviation of each coordinate."""

    mean: Array
    sd: Array


@dataclass(frozen=True, eq=False)
class Posterior:
    """What `sample` gives back.

    mean, sd: the best known: Stein-corrected for exact and certified draws, else raw. `corrected`, `raw` and
    `laplace` hold all three. trace: the draws. sampler, why: what was chosen and the reason in one sentence. ess,
    r_hat: of each coordinate (the fewer of x and x²). passes: over the data, of the mode, the sampling and the
    certificate. seconds: of everything; compilation is apart, in `compile_seconds`. complete: False where a budget
    ended the run first.
    """

    mean: Array
    sd: Array
    raw: Location
    corrected: Corrected
    laplace: Location
    trace: Trace
    method: str
    sampler: Any
    why: str
    certificate: Certificate
    ess: Array
    r_hat: Array
    passes: float
    seconds: float
    compile_seconds: float
    complete: bool
    steps: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        chains, draws, dim = self.trace.draws.shape
        short = "" if self.complete else ", stopped by the budget"
        return "\n".join(
            (
                f"posterior of {dim} coordinates by {self.method}: {self.why}",
                f"  {chains} chains × {draws} draws, at least {self.ess.min():.0f} effective, R-hat at most "
                f"{self.r_hat.max():.3f}, {self.passes:.4g} passes, {self.seconds:.3g} s{short}",
                f"  {self.certificate}",
            )
        )

    def summary(self) -> str:
        """One line a coordinate: mean and sd with their standard errors, the Laplace approximation's beside them."""
        lines = [str(self), f"{'':>8}" + "".join(f"{name:>12}" for name in _COLUMNS)]
        used = self.corrected if self.mean is self.corrected.mean else None
        errors = (
            (used.mean_error, used.sd_error)
            if used is not None
            else (self.raw.sd / np.sqrt(self.ess), self.raw.sd / np.sqrt(2 * self.ess))
        )
        columns = (self.mean, errors[0], self.sd, errors[1], self.laplace.mean, self.laplace.sd, self.ess, self.r_hat)
        for j in range(len(self.mean)):
            shown = [
                f"{c[j]:12.0f}" if name == "ess" else f"{c[j]:12.4g}" for name, c in zip(_COLUMNS, columns, strict=True)
            ]
            lines.append(f"{f'x[{j}]':>8}" + "".join(shown))
        return "\n".join(lines)

    def to_arviz(self) -> Any:
        """The draws as ArviZ keeps them."""
        return self.trace.to_arviz()


_COLUMNS = ("mean", "±", "sd", "± ", "laplace mean", "laplace sd", "ess", "r_hat")


def sample(
    target: FiniteSum,
    draws: int = 1000,
    chains: int = 4,
    tolerance: float = 0.02,
    seed: int = 0,
    *,
    method: str | Sampler | ExactSampler | None = None,
    budget_seconds: float | None = None,
    budget_passes: float | None = None,
    threads: int | None = None,
    progress: Progress = None,
) -> Posterior:
    """The posterior, with `draws` effective draws of each coordinate (and of its square) and a measure of their bias.

    method: None chooses; or one of "closed-form", "split-hmc", "subsampled-mh" (exact), "anchored", "baoab", "ubu"
        (biased, with a step that is halved until the certificate does not refute it); or a sampler of the grid or of
        `svrhmc.exact`, run as it is in whitened variables.
    tolerance: the bias allowed in a mean, in posterior standard deviations, and in a standard deviation, relative.
    budget_seconds, budget_passes: stop there with the draws made so far. (With a budget in seconds the number of
        draws, and nothing else, depends on the machine.)

    >>> from svrhmc import sample, targets
    >>> target = targets.linear([[1.0], [2.0]], [1.0, 3.0])
    >>> posterior = sample(target)
    >>> posterior.method, posterior.certificate.verdict, posterior.mean.round(6)
    ('closed-form', 'exact', array([1.166667]))
    """
    if not isinstance(target, FiniteSum):
        raise requirement("target", "one of svrhmc.targets, such as logistic(X, y)", repr(type(target)))
    if isinstance(target, Whitened):
        raise requirement("target", "one in its own coordinates, which `sample` whitens itself", repr(target))
    if isinstance(method, str):
        one_of("method", method, METHODS)
    elif not (method is None or isinstance(method, Sampler | ExactSampler)):
        raise requirement("method", "None, a sampler, or one of " + ", ".join(map(repr, METHODS)), repr(method))
    job = _Job(
        target=target,
        draws=whole("draws", draws, 10),
        chains=np.arange(whole("chains", chains, 1, 1 << 31)),
        tolerance=positive("tolerance", tolerance),
        seed=whole("seed", seed, 0, (1 << 63) - 1),
        seconds=math.inf if budget_seconds is None else positive("budget_seconds", budget_seconds),
        passes=math.inf if budget_passes is None else positive("budget_passes", budget_passes),
        threads=cores() if threads is None else whole("threads", threads, 1),
        progress=progress,
    )
    began = time.perf_counter()
    if target.closed_form is not None and method in (None, "closed-form"):
        return _closed_form(job, target.closed_form, began)
    if method == "closed-form":
        raise requirement("method", "another one for this target", "'closed-form'", "its posterior is not Gaussian")
    return _Search(job, method).run()


@dataclass(frozen=True, eq=False)
class _Job:
    target: FiniteSum
    draws: int
    chains: Indices
    tolerance: float
    seed: int
    seconds: float
    passes: float
    threads: int
    progress: Progress


def _closed_form(job: _Job, law: Moments, began: float) -> Posterior:
    """Independent draws from a Gaussian known exactly."""
    chains, dim = len(job.chains), len(law.mean)
    count = max(4, -(-job.draws // chains))
    root = np.linalg.cholesky(law.covariance)
    normals = Stream(job.seed, job.chains).normals(0, count * dim).reshape(chains, count, dim)
    x = law.mean + normals @ root.T
    sd = np.sqrt(np.diag(law.covariance))
    zero = np.zeros(dim)
    corrected = Corrected(law.mean, sd, zero, zero)
    seconds = time.perf_counter() - began
    trace = Trace(x, np.zeros(count), 0, np.zeros((chains, dim)), seconds, None, job.seed, job.chains, "numpy")
    return Posterior(
        mean=law.mean,
        sd=sd,
        raw=Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)),
        corrected=corrected,
        laplace=Location(law.mean, sd),
        trace=trace,
        method="closed-form",
        sampler=None,
        why="the posterior is Gaussian, so its moments are exact and its draws independent.",
        certificate=Certificate("exact", job.tolerance, Bias(zero, zero, zero, zero), None, None, True),
        ess=np.full(dim, float(chains * count)),
        r_hat=np.ones(dim),
        passes=2.0,
        seconds=seconds,
        compile_seconds=0.0,
        complete=True,
    )


@dataclass(frozen=True)
class Choice:
    """A method, its sampler and the reason."""

    method: str
    sampler: Any
    why: str


class _Search:
    """One call of `sample`: finds the mode, chooses, runs, judges, and tries again with half the step where it has
    to.
    """

    def __init__(self, job: _Job, method: Any) -> None:
        self.job, self.method = job, method
        self.began = time.perf_counter()
        self.evaluations = 0.0  # component gradients, by all chains together
        self.compiling = 0.0
        self.costs: list[Array] = []  # rows that a chain has evaluated for each of its draws, burn-in included
        self.probed: set[type] = set()  # kinds of gradients that were compiled
        self.steps: dict[str, float] = {}

    def run(self) -> Posterior:
        """Until the verdict stands or the budget ends."""
        target = self.job.target
        how, self.space = self._whiten(target)
        self._lap("mode and whitening")
        choice = self._choose()
        self._lap("choice")
        for attempt in range(_HALVINGS + 1):
            posterior = self._attempt(choice, how, attempt)
            final = self.method is not None and not isinstance(self.method, str)
            if posterior.certificate.verdict != "refuted" or final or not posterior.complete:
                break
            choice = self._smaller(choice)
        return posterior

    # The variables.

    def _whiten(self, target: FiniteSum) -> tuple[Whitening, Any]:
        if isinstance(target, GeneralisedLinear):
            self._timed(target.rows.warm)
            space = whitened(target)
            assert isinstance(space, WhitenedRows)
            self.evaluations += (target.mode_passes + 2) * target.n
            return space.whitening, space
        how = self._differences(target)
        return how, whitened(target, how)

    def _differences(self, target: FiniteSum) -> Whitening:
        """The curvature at the mode by differences of the gradient: all of it, or its diagonal from random
        directions.
        """
        mode = target.mode()
        scale = max(1e-5, 1e-5 * float(np.abs(mode).max()))
        if target.dim <= _DENSE_CUSTOM:
            steps = scale * np.eye(target.dim)
        else:
            signs = Stream(self.job.seed, np.arange(30)).normals(0, target.dim, Purpose.DATA, Purpose.DATA_FINE)
            steps = scale * np.where(signs > 0, 1.0, -1.0)
        change = np.array([(target.gradient(mode + s) - target.gradient(mode - s)) / (2 * scale) for s in steps])
        self.evaluations += 2.0 * len(steps) * target.n
        if target.dim <= _DENSE_CUSTOM:
            return dense_whitening(mode, (change + change.T) / 2)
        diagonal = (change * steps / scale).mean(axis=0)
        floor = 0.05 * float(np.median(np.abs(diagonal)))
        return LowRankWhitening(mode, np.maximum(diagonal, floor) ** -0.5, np.zeros((target.dim, 0)), np.zeros(0))

    # The choice.

    def _choose(self) -> Choice:
        method, target = self.method, self.job.target
        if isinstance(method, ExactSampler):
            require_rows(target)
            return Choice("split-hmc" if isinstance(method, SplitHMC) else "subsampled-mh", method, "as asked for.")
        if isinstance(method, Sampler):
            return Choice(type(method.dynamics).__name__.lower(), method, "as asked for.")
        if not isinstance(target, GeneralisedLinear):
            if method not in (None, "ubu"):
                raise requirement("method", "None, 'ubu' or a sampler for this target", repr(method))
            return self._for_components()
        if method == "split-hmc":
            return Choice(method, SplitHMC(), "as asked for.")
        if method == "subsampled-mh":
            return Choice(method, SubsampledMH(), "as asked for.")
        return self._among(method)

    def _among(self, method: str | None) -> Choice:
        """By what an effective draw costs, in entries of X: exact ones wherever they are affordable."""
        target, space, draws = self.job.target, self.space, self.job.draws
        dim, n = target.dim, target.n
        entries = draws * _row_entries(target)
        split = 4.0 * n * entries
        said = f"{split:.2g} entries of X for {draws} effective draws by full gradients"
        affordable = Choice("split-hmc", SplitHMC(), f"exact full-gradient HMC is affordable ({said}).")
        if method is None and not space.exact:
            return affordable
        poisson = 0.0481 * dim**1.5 * float((space.row_norms**3).sum())
        subsampled = _RANDOM * 2 * poisson / 0.4 * entries
        far_cheaper = n * _row_entries(target) > _SMALL and subsampled <= split / _FAR_CHEAPER
        if method is None and split <= _EXACT_WORK and not far_cheaper:
            return affordable
        if method is None and subsampled <= min(_EXACT_WORK / 4, split):
            return Choice(
                "subsampled-mh", SubsampledMH(), f"exact, with about {poisson:.0f} rows a step of the {n:,} there are."
            )
        kind = {"baoab": BAOAB, "ubu": UBU}.get(method or "", Anchored)
        step = 0.3 if kind is UBU else 1.0
        gradient = self._batch(step, 1.0)
        if method is None and isinstance(gradient, Full):
            return Choice(
                "split-hmc",
                SplitHMC(),
                f"batches that keep the bias below {self.job.tolerance:g} would be nearly all rows.",
            )
        exact = min(split, subsampled)
        return Choice(
            method or "anchored",
            Sampler(kind(step, 1.0, 1.0), gradient),
            "as asked for."
            if method
            else f"batches of {gradient.batch_size} rows, drawn by importance, do; an exact sampler would need "  # type: ignore[attr-defined]
            f"{exact:.2g} entries of X.",
        )

    def _batch(self, step: float, friction: float) -> Gradient:
        """B with hV₂/(2γB) ≤ δ/2, V₂ the largest variance of a row's remainder, and B ≥ hV₁/(4γ) for stability."""
        space, n = self.space, self.job.target.n
        if not space.exact:
            return Full()
        z = Stream(self.job.seed, np.arange(_PILOT)).normals(0, space.dim, Purpose.DATA, Purpose.DATA_FINE)
        second = self._noise(Minibatch(1, importance=True), z, 1 << 20)
        first = float((space.curvatures**2 * space.row_norms**4 / space.row_table[2]).sum() / space.dim)
        size = max(step * second / (friction * self.job.tolerance), step * first / (4 * friction), 4.0)
        return Full() if size > n / 8 else Minibatch(math.ceil(size), importance=True)

    def _for_components(self) -> Choice:
        """UBU with control variates at the mode where batches of a reasonable size do, else SVRG, else full
        gradients.
        """
        target, space, step = self.job.target, self.space, 0.3
        z = Stream(self.job.seed, np.arange(64)).normals(0, space.dim, Purpose.DATA, Purpose.DATA_FINE)
        noise = self._noise(ControlVariate(1), z, 1 << 20)
        size = math.ceil(max(step * noise / self.job.tolerance, 4.0))
        dynamics = UBU(step, 1.0, 1.0)
        if 2 * size <= target.n / 8:
            return Choice(
                "ubu",
                Sampler(dynamics, ControlVariate(size)),
                f"no Hessian is known; control variates at the mode, {size} rows a step, do.",
            )
        period = (1.5 * self.job.tolerance * target.n / noise) ** (1 / 3)  # T* of the snapshot, in time
        epoch = max(1, round(period / step))
        if epoch >= 3 and target.n >= 4 * epoch:
            gradient = SVRG(max(1, target.n // (4 * epoch)), epoch)
            return Choice("ubu", Sampler(dynamics, gradient), f"no Hessian is known; snapshots every {epoch} steps do.")
        return Choice(
            "ubu", Sampler(dynamics, Full()), "no Hessian is known, and batches would be nearly all components."
        )

    def _smaller(self, choice: Choice) -> Choice:
        """Half the step, with the same batches, whose noise then counts half as much."""
        sampler = choice.sampler
        dynamics = replace(sampler.dynamics, step_size=sampler.dynamics.step_size / 2)
        return Choice(
            choice.method,
            Sampler(dynamics, sampler.gradient),
            f"{choice.why.rstrip('.')}; step halved to {dynamics.step_size:g} after a refutation.",
        )

    # The run.

    def _attempt(self, choice: Choice, how: Whitening, attempt: int) -> Posterior:
        job, sampler = self.job, choice.sampler
        seed = job.seed + (attempt << 40)
        exact = isinstance(sampler, ExactSampler)
        chains: Any
        if exact:
            sampler, chains = self._exact_chains(sampler, how, seed)
        else:
            chains = _GridChains(sampler, self.space, seed, job.chains, job.threads)
            self._timed(chains.compile)
            self.costs = []
            self._extend(chains, _burn_in(sampler))
        z, x, effective, gradients, complete = self._draw(chains, exact)
        self._lap("sampling")
        if gradients is None:
            gradients = self._stein_gradients(z, seed)
        self._lap("Stein gradients")
        dim = z.shape[2]
        laplace = how.displace(gradients)  # WWᵀ∇f in the user's coordinates
        if z.shape[0] * z.shape[1] >= 20 * dim:
            covariance = np.atleast_2d(np.cov(z.reshape(-1, dim), rowvar=False))
            stein = stein_bias(x, how.displace(gradients @ covariance), x.var(axis=(0, 1), ddof=1))
        else:
            stein = stein_bias(x, laplace, how.variances)
        corrected = corrected_moments(x, laplace, how.variances)
        if exact:
            certificate = Certificate("exact", job.tolerance, stein, None, None, True)
        else:
            certificate = self._judge(sampler, z, stein, float(effective.min()), seed)
        self._lap("certificate")
        raw = Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1))
        best: Any = corrected if certificate.verdict in ("exact", "certified") else raw
        passes, costs = self.evaluations / job.target.n, np.cumsum(np.concatenate(self.costs))
        seconds = time.perf_counter() - self.began - self.compiling
        trace = Trace(
            draws=x,
            passes=costs[-z.shape[1] :] / job.target.n,
            gradient_evaluations=round(float(costs[-1])),
            velocity=np.zeros_like(z[:, 0]),
            seconds=self.steps.get("sampling", 0.0),
            sampler=sampler,
            seed=job.seed,
            chains=job.chains,
            engine="numba" if exact else chains.engine,
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
            ess=effective,
            r_hat=r_hat(x),
            passes=passes,
            seconds=seconds,
            compile_seconds=self.compiling,
            complete=complete,
            steps=dict(self.steps),
        )

    def _exact_chains(self, sampler: ExactSampler, how: Whitening, seed: int) -> tuple[ExactSampler, Any]:
        """Chains after their burn-in; the step of an automatic SplitHMC falls by a quarter until 7 in 10 are
        accepted.
        """
        job = self.job
        assert isinstance(job.target, GeneralisedLinear)
        while True:
            chains = sampler._chains(job.target, how, seed, job.chains, job.threads)
            self._timed(chains.compile)
            self.costs, count = [], 40
            accepted = self._extend(chains, count).accepted.sum() / (count * len(job.chains))
            if not isinstance(sampler, SplitHMC) or isinstance(self.method, ExactSampler) or accepted >= 0.7:
                return sampler, chains
            step = sampler.step_size * 0.75
            sampler = SplitHMC(step, max(1, round(1.6 / step)), sampler.jitter)

    def _draw(self, chains: Any, exact: bool) -> tuple[Array, Array, Array, Array | None, bool]:
        """Extend until there are enough effective draws of x and x², or the budget ends.

        Gives z, x, the effective draws of each coordinate, ∇f where it came for free, and whether they are enough.
        """
        job = self.job
        count = max(100, math.ceil(job.draws / (len(job.chains) * (0.7 if exact else 0.4))))
        parts: list[Any] = []
        made, complete = 0, True
        self.before_draws = self._used()
        while True:
            while count > 0:
                piece = min(count, self._affordable(made))
                parts.append(self._extend(chains, piece))
                made, count = made + piece, count - piece
                if self._spent():
                    complete, count = False, 0
            z = np.concatenate([part.z for part in parts], axis=1)
            x = self.space.out(z)
            effective = effective_draws(x)
            least = float(effective.min())
            if least >= job.draws or not complete:
                break
            count = math.ceil(min(max(made * (job.draws / max(least, 1.0) * 1.1 - 1), made * 0.1), 2 * made))
        gradients = [part.gradients for part in parts]
        whole_gradients = None if any(g is None for g in gradients) else np.concatenate(gradients, axis=1)
        return z, x, effective, whole_gradients, complete

    def _affordable(self, made: int) -> int:
        """Draws of a chain that what is left of the budgets pays for; at most as many again as are made."""
        job = self.job
        if math.isinf(job.seconds) and math.isinf(job.passes):
            return sys.maxsize
        if not made:
            return 25
        prices = [(now - then) / made for now, then in zip(self._used(), self.before_draws, strict=True)]
        left = [limit - now for limit, now in zip((job.seconds, job.passes), self._used(), strict=True)]
        count = min(have / price for have, price in zip(left, prices, strict=True) if price > 0)
        return max(1, math.ceil(min(count, made)))

    def _used(self) -> tuple[float, float]:
        """Seconds, and passes over the data."""
        return time.perf_counter() - self.began - self.compiling, self.evaluations / self.job.target.n

    def _spent(self) -> bool:
        seconds, passes = self._used()
        return seconds >= self.job.seconds or passes >= self.job.passes

    def _extend(self, chains: Any, count: int) -> Any:
        report, finish = reporter(self.job.progress, count * len(self.job.chains))
        try:
            extension = chains.extend(count, report)
        finally:
            finish()
        self.evaluations += float(extension.evaluations)
        self.costs.append(extension.counts.mean(axis=0))
        return extension

    def _stein_gradients(self, z: Array, seed: int) -> Array:
        """Estimates of ∇f at every draw from rows of their own."""
        target, space = self.job.target, self.space
        flat = z.reshape(-1, z.shape[2])
        if target.n * float(len(flat)) * _row_entries(target) <= 2e9:
            return self._probe(Full(), flat, seed + (1 << 50)).reshape(z.shape)
        gradient: Gradient
        if isinstance(target, GeneralisedLinear) and space.exact:
            pilot = flat[np.linspace(0, len(flat) - 1, 1000).astype(np.int64)]
            for importance in (False, True):  # even rows where they do: no table of weights is needed
                noise = self._noise(Minibatch(4, importance=importance), pilot, seed + (1 << 50) + 1)
                size = 40 * noise  # then that of a batch is a tenth of the spread
                gradient = Minibatch(int(min(max(4.0, size), target.n)), importance=importance)
                if size <= 40:
                    break
        else:
            gradient = ControlVariate(min(100, target.n)) if not isinstance(target, GeneralisedLinear) else Full()
        return self._probe(gradient, flat, seed + (1 << 50)).reshape(z.shape)

    def _judge(self, sampler: Sampler, z: Array, stein: Bias, effective: float, seed: int) -> Certificate:
        """Stein's identities first; step-halving only where they would certify."""
        job = self.job
        sighted = isinstance(sampler.dynamics, Anchored | UBU)  # the others record where the kick is evaluated
        certificate = judge(stein, None, job.tolerance, sighted, effective)
        halvable = isinstance(sampler.dynamics, Anchored | UBU | BAOAB) and isinstance(
            sampler.gradient, Full | Minibatch | ControlVariate
        )
        would = certificate.verdict == "certified" or (not sighted and stein.upper(False) < job.tolerance)
        if not (would and halvable):
            return certificate
        steps = 2 * math.ceil(10 / sampler.dynamics.step_size)
        rows, chains = self._rows(sampler.gradient), _HALVING_CHAINS
        while True:
            halving = halving_bias(sampler, self.space, chosen_states(z, chains), steps, seed + (1 << 51), job.threads)
            self.evaluations += 3.0 * steps * chains * rows
            certificate = judge(stein, halving, job.tolerance, sighted, effective)
            chains *= 4
            work = 3.0 * steps * chains * rows * _row_entries(job.target)
            if (
                certificate.verdict != "undecided"
                or chains > min(_MOST_CHAINS, z.shape[0] * z.shape[1])
                or work > _EXACT_WORK
            ):
                return certificate

    def _noise(self, gradient: Gradient, states: Array, seed: int) -> float:
        """The largest variance, over coordinates, of the gradient's estimate: from two of them at each state."""
        pair = [self._probe(gradient, states, seed + k) for k in (0, 1)]
        return float(((pair[0] - pair[1]) ** 2).mean(axis=0).max() / 2)

    def _rows(self, gradient: Gradient) -> int:
        """Rows of one estimate."""
        return gradient.batch_size if isinstance(gradient, Batched) else self.job.target.n

    def _probe(self, gradient: Gradient, states: Array, seed: int) -> Array:
        self.evaluations += float(len(states)) * self._rows(gradient)
        if type(gradient) not in self.probed:  # it is compiled for each
            self.probed.add(type(gradient))
            self._timed(lambda: gradients_at(self.space, gradient, states[:1], seed, 0, 1, np.arange(1)))
        return gradients_at(self.space, gradient, states, seed, 0, self.job.threads, np.arange(len(states)))

    def _timed(self, compile_: Callable[[], object]) -> None:
        began = time.perf_counter()
        compile_()
        self.compiling += time.perf_counter() - began

    def _lap(self, name: str) -> None:
        now = time.perf_counter() - self.began - self.compiling
        self.steps[name] = self.steps.get(name, 0.0) + now - sum(self.steps.values())


@dataclass(frozen=True, eq=False)
class _Extension:
    z: Array
    gradients: None
    evaluations: int
    counts: Indices


class _GridChains:
    """Chains of a sampler of the grid, in whitened variables, that go on where they stopped."""

    def __init__(self, sampler: Sampler, space: FiniteSum, seed: int, chains: Indices, threads: int) -> None:
        self.sampler, self.space, self.seed, self.chains, self.threads = sampler, space, seed, chains, threads
        sampler.gradient.check(space.n)
        sampler.dynamics.check_stable(space)
        self.scheme = sampler.dynamics.scheme(space)
        self.x = Stream(seed, chains).normals(0, space.dim, Purpose.DATA, Purpose.DATA_FINE)
        self.v = np.zeros_like(self.x)
        self.made = 0
        self.engine = "reference"

    def compile(self) -> None:
        """Compile the loop, or load it."""
        prepare(self._job(1, lambda amount: None))

    def extend(self, count: int, report: Callable[[int], None]) -> _Extension:
        """So many more steps, each kept."""
        gradient, end = self.sampler.gradient, self.made + count
        self.engine, outcome = run("auto", self._job(count, report))
        z = outcome.draws
        self._require_near(z)
        rows = np.diff(gradient.evaluations(self.space, np.arange(self.made, end + 1)))
        rows[0] += self._again()
        self.x, self.v, self.made = z[:, -1].copy(), outcome.velocity, end
        return _Extension(z, None, int(rows.sum()) * len(self.chains), rows[None, :])

    def _job(self, count: int, report: Callable[[int], None]) -> Job:
        """So many more steps."""
        return Job(
            target=self.space,
            scheme=self.scheme,
            gradient=self.sampler.gradient,
            step_size=self.sampler.dynamics.step_size,
            seed=self.seed,
            chains=self.chains,
            start=self.x,
            schedule=Schedule(self.made + count, self.made, 1, False),
            threads=self.threads,
            report=report,
            begin=self.made,
            velocity=self.v,
        )

    def _again(self) -> int:
        """Component gradients of the snapshot with which every call begins, where the clock of a run has none there."""
        gradient, n = self.sampler.gradient, self.space.n
        if isinstance(gradient, SVRG):
            return (gradient.snapshot_size or n) if self.made % gradient.period(n) else 0
        return n if isinstance(gradient, SAGA) and self.made else 0

    def _require_near(self, z: Array) -> None:
        """In whitened variables |z|² is about dim: what is far beyond has begun to diverge."""
        far = (z**2).sum(axis=2) > 25 * z.shape[2] + 200
        if getattr(self.space, "exact", False) and far.any():
            chain, step = (int(k) for k in np.unravel_index(int(np.argmax(far)), far.shape))
            size = self.sampler.dynamics.step_size
            raise DivergenceError(int(self.chains[chain]), self.made + step + 1, size, size / 4)


def _burn_in(sampler: Sampler) -> int:
    """About ten relaxation times, from starts in the Laplace approximation; whole epochs."""
    steps = math.ceil(10 / sampler.dynamics.step_size)
    gradient = sampler.gradient
    if isinstance(gradient, SVRG) and gradient.epoch_length is not None:
        steps = -(-steps // gradient.epoch_length) * gradient.epoch_length
    return steps


def _row_entries(target: FiniteSum) -> float:
    """Entries of a row, on average."""
    if isinstance(target, GeneralisedLinear):
        X = getattr(target.rows, "X", None)
        return float(getattr(X, "nnz", target.n * target.dim)) / target.n
    return float(target.row_size)
