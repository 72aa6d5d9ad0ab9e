"""How biased some draws are, measured from the draws themselves; and moments with that measure taken off.

Under π, for every smooth f (integration by parts),

    E ∇f(x) = 0,            E (x − x̄)∇f(x)ᵀ = I.

With C the covariance of the draws and h = C∇f, each draw gives for each coordinate j two numbers of known mean,

    hⱼ/σⱼ                      whose mean is, to first order, the bias of the mean in units of σⱼ, and
    ½((xⱼ − x̄ⱼ)hⱼ/σⱼ² − 1)      whose mean is, to first order, the relative bias of the standard deviation

where π is near to Gaussian. ∇f may be an unbiased estimate whose noise is independent of the draw. They must be taken
half a step away from the point where the chain's own gradient was evaluated: there stationarity of the velocity makes
E ∇f = 0 whatever the bias. So BAOAB's mean is judged by step-halving alone, and those of Overdamped, EulerMaruyama,
Underdamped and Exponential not at all: they are never certified.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.diagnostics import ess, standard_error

_WIDTH = 2.5  # standard errors of one coordinate on each side
_AGREE, _FEW = 1.05, 100  # R-hat up to which chains agree, and effective draws below which that says little
_FALSE_ALARM = 0.01  # chance that any of all coordinates' tests refutes an unbiased run


@dataclass(frozen=True, eq=False)
class Bias:
    """A measured bias of each coordinate with its standard error: of the mean in posterior sd, and of the sd,
    relative.
    """

    mean: Array
    mean_error: Array
    sd: Array
    sd_error: Array

    def largest(self) -> tuple[float, float]:
        """The largest |bias| of a mean and of a standard deviation."""
        return float(np.abs(self.mean).max()), float(np.abs(self.sd).max())

    def upper(self, means: bool = True) -> float:
        """max(|bias| + 2.5 standard errors), of the means (if asked for) and the sds."""
        return float(max((np.abs(b) + _WIDTH * e).max() for b, e in self._tests(means)))

    def lower(self, means: bool = True) -> float:
        """max(|bias| − k standard errors), k so large that unbiased draws give more than 0 once in a hundred runs."""
        return float(max((np.abs(b) - self._width() * e).max() for b, e in self._tests(means)))

    def more(self, tolerance: float, means: bool = True) -> float:
        """How many times the draws it would take for the upper end to fall below the tolerance, if the bias is what
        these draws prove and no more; infinite where that is above the tolerance."""
        factor = 1.0
        for b, e in self._tests(means):
            room = tolerance - np.maximum(np.abs(b) - self._width() * e, 0.0)
            if (room <= 0).any():
                return math.inf
            factor = max(factor, float((((_WIDTH + 1) * e / room) ** 2).max()))
        return factor

    def _width(self) -> float:
        from scipy.special import ndtri

        return float(-ndtri(_FALSE_ALARM / (4 * len(self.mean))))

    def _tests(self, means: bool) -> list[tuple[Array, Array]]:
        both = [(self.mean, self.mean_error), (self.sd, self.sd_error)]
        return both if means else both[1:]


@dataclass(frozen=True, eq=False)
class Certificate:
    """A verdict with what it rests on.

    verdict: "exact" (the sampler leaves π itself invariant and its chains agree: only Monte Carlo error), "certified"
        (every bias is below the tolerance with its 2.5 standard errors, by Stein's identities and, where it can be run,
        by step-halving), "undecided" (too few draws to tell; `draws_needed` effective draws would do, None where it is
        not for want of draws; or chains that do not agree, see `reason`), or "refuted" (a bias is above the tolerance
        beyond doubt).
    stein, halving: the two measurements; None where one was not made.
    """

    verdict: str
    tolerance: float
    stein: Bias
    halving: Bias | None
    draws_needed: int | None
    mean_test: bool  # whether Stein's mean identity can see a bias of this sampler
    reason: str = ""  # why a sampler that leaves π invariant is not called exact

    def __str__(self) -> str:
        mean, sd = self.stein.largest()
        width = _WIDTH * max(float(self.stein.mean_error.max()), float(self.stein.sd_error.max()))
        seen = f"largest measured bias: mean {mean:.2g} sd, sd {sd:.2g} (each ± up to {width:.2g})"
        if not self.mean_test:
            seen = f"largest measured bias of an sd: {sd:.2g} (± up to {width:.2g}); means are not tested by it"
        if self.halving is not None:
            m, s = self.halving.largest()
            seen += f"; by step-halving mean {m:.2g} sd, sd {s:.2g}"
        if self.verdict == "exact":
            check = f"mean {mean:.2g} sd, sd {sd:.2g}, each ± up to {width:.2g}"
            return (
                f"exact: the sampler leaves the posterior invariant (what Stein's identities see in the draws: {check})"
            )
        if self.reason:
            return f"{self.verdict}: {self.reason}"
        if self.verdict == "undecided":
            end = "step-halving leaves it open" if self.halving is not None else "nothing has looked at the means"
            if self.draws_needed:
                end = f"about {self.draws_needed:,} effective draws would decide"
            return f"undecided at tolerance {self.tolerance:g}: {seen}; {end}"
        return f"{self.verdict} at tolerance {self.tolerance:g}: {seen}"


def stein_bias(x: Array, h: Array, variances: Array) -> Bias:
    """From draws (chain, draw, dim) and h = Σ̂∇f at them, with `variances` the diagonal of Σ̂.

    Σ̂ is the covariance of the draws where they are many; another matrix near it gives numbers of mean 0 under π too,
    which measure a bias in proportion only.
    """
    away = x - x.mean(axis=(0, 1))
    mean_terms, sd_terms = h / np.sqrt(variances), (away * h / variances - 1) / 2
    return Bias(
        mean_terms.mean(axis=(0, 1)),
        standard_error(mean_terms),
        sd_terms.mean(axis=(0, 1)),
        standard_error(sd_terms),
    )


@dataclass(frozen=True, eq=False)
class Corrected:
    """Means and standard deviations freed of what Stein's identities explain, with their standard errors."""

    mean: Array
    sd: Array
    mean_error: Array
    sd_error: Array


def corrected_moments(x: Array, h: Array, variances: Array) -> Corrected:
    """Moments by control variates of known mean: h = Σ̂∇f with Σ̂ fixed, E h = 0, E(xⱼ − x̄ⱼ)hⱼ = Σ̂ⱼⱼ = variances.

    The mean is that of x − B h, B = Cov(x, h)Cov(h, h)⁻¹ where draws are many (else its diagonal, one by one); the
    variance that of (xⱼ − x̄ⱼ)² − βⱼ((xⱼ − x̄ⱼ)hⱼ − Σ̂ⱼⱼ), x̄ⱼ the corrected mean and βⱼ by least squares. Under π
    both are consistent for every f, and nearly without noise where π is nearly Gaussian.
    """
    chains, draws, dim = x.shape
    flat_x, flat_h = x.reshape(-1, dim), h.reshape(-1, dim)
    away_x, away_h = flat_x - flat_x.mean(axis=0), flat_h - flat_h.mean(axis=0)
    if len(flat_x) >= 20 * dim:
        terms = flat_x - flat_h @ np.linalg.lstsq(away_h.T @ away_h, away_h.T @ away_x, rcond=None)[0]
    else:
        terms = flat_x - flat_h * ((away_h * away_x).sum(axis=0) / (away_h**2).sum(axis=0))
    mean = terms.mean(axis=0)
    away = flat_x - mean
    control = away * flat_h - variances
    squares = away**2
    c = control - control.mean(axis=0)
    beta = (c * (squares - squares.mean(axis=0))).sum(axis=0) / np.maximum((c * c).sum(axis=0), 1e-300)
    variance_terms = squares - beta * control
    variance = np.maximum(variance_terms.mean(axis=0), 1e-300)
    sd = np.sqrt(variance)
    shape = (chains, draws, dim)
    return Corrected(
        mean, sd, standard_error(terms.reshape(shape)), standard_error(variance_terms.reshape(shape)) / (2 * sd)
    )


def judge(stein: Bias, halving: Bias | None, tolerance: float, mean_test: bool, effective: float) -> Certificate:
    """The verdict on a sampler that is not exact."""
    measured = [(stein, mean_test)] + ([(halving, True)] if halving is not None else [])
    if any(bias.lower(means) > tolerance for bias, means in measured):
        verdict, needed = "refuted", None
    elif all(bias.upper(means) < tolerance for bias, means in measured):  # but for means that nothing has looked at
        verdict, needed = "certified" if mean_test or halving is not None else "undecided", None
    else:
        factor = stein.more(tolerance, mean_test)
        enough = math.isinf(factor) or stein.upper(mean_test) < tolerance
        verdict, needed = "undecided", None if enough else math.ceil(factor * effective / 100) * 100
    return Certificate(verdict, tolerance, stein, halving, needed, mean_test)


def judge_invariant(stein: Bias, tolerance: float, effective: Array, r_hat: Array, wanted: int) -> Certificate:
    """The verdict on a sampler that leaves π invariant: exact only where its chains agree with each other."""
    fewest, worst = float(effective.min()), float(r_hat.max())
    if worst <= _AGREE and fewest >= min(_FEW, wanted):
        return Certificate("exact", tolerance, stein, None, None, True)
    reason = (
        f"the sampler leaves the posterior invariant, but its chains have not settled (R-hat up to {worst:.3g}, "
        f"{fewest:.0f} effective draws at the least); the posterior may be improper or nearly so, or need more draws"
    )
    return Certificate("undecided", tolerance, stein, None, None, True, reason)


def effective_draws(x: Array) -> Array:
    """The fewer of the effective draws of x and of (x − x̄)², for each coordinate."""
    away = x - x.mean(axis=(0, 1))
    return np.minimum(ess(away), ess(away**2))


def chosen_states(x: Array, count: int) -> Array:
    """`count` states spread evenly over all chains and their later half: (count, dim)."""
    _, draws, dim = x.shape
    late = x[:, draws // 2 :].reshape(-1, dim)
    places: Indices = np.linspace(0, len(late) - 1, count).astype(np.int64)
    return late[places]
