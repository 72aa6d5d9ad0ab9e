"""What shows that draws are not to be trusted, and the sentence that says so (tails are in `tails.py`).

**Narrow parts.** Let λ(x) be the largest eigenvalue of Wᵀ∇²f(x)W, which is 1 at the mode where W whitens: there the
narrowest direction at x is 1/√λ as wide as at the mode. Trajectories with steps h are stable if h²λ < 4; with the two
steps of 0.8 of split HMC half of the proposals are accepted at h²λ = 3 and one in eight at 6 (fewer with more steps).
So chains seldom enter, and seldom leave, what is narrower than that. If a few draws in a hundred are missing there,
neither R-hat nor effective draws nor acceptance show it, as chains that have not been there agree. The curvature where
they have been shows it, as it rises on the way.

Along a bent ridge, or into a neck, λ grows like a power of how rare its values are: P(λ > s) ≈ s^{−1/g}. If shares
p₁ > p₂ of the draws exceed the values λ₁ and λ₂,

    g = log(λ₂/λ₁)/log(p₁/p₂),            λ₃ = λ₂(p₂/p₃)^g

is the value that a share p₃ of the posterior exceeds; p₃ = 1/1000 is rarer than the draws can show. Draws that miss a
part have λ₁ and λ₂ too small, and g with them; but if steps were what kept them out, λ₂ is near 4/h² already.
"""

from __future__ import annotations

import math

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.density.base import FiniteSum
from svrhmc.diagnostics import by_columns, ess, r_hat, some_columns
from svrhmc.whitening import Whitening

_AGREE, _FEW = 1.05, 100  # R-hat up to which chains agree, and effective draws below which that says little
_CHANCE = 1e-3  # that R-hat of settled chains is larger than is allowed
_SHARE = 0.5  # of the draws asked for: with fewer at its very end a run was too slow to tell
STUCK = 100  # draws in a row at one point, after which a chain sticks: where 3 in 10 proposals are accepted, 1 in 10¹⁵
_OUTER, _SURE = 0.05, 2.5  # share of the draws in a tail; standard errors that are added to its acceptance
_TAIL = 0.6  # of the overall acceptance that the tails of every coordinate must have
_STAYS = 0.25  # Pareto index of stays in a tail up to which errors are known
MOST_COORDINATES = 32  # for which Hessians at draws are computed, each in one call of a program
DRAWS = 256  # at which they are computed
_LARGEST = 4  # λ₂ is the curvature with this rank from above: p₂ is 1/64
_RARE = 1e-3  # p₃
_STABLE = 4.0  # h²λ
_UNSETTLED = (
    "the posterior may be improper or nearly so, need more draws, or have a narrow part (a funnel, as where both a "
    "scale and the effects that it scales are unknown), for which other parameters help, such as standardised effects"
)
_NARROW = (
    "the posterior may have a narrow or a far part (a funnel, a bent ridge, a heavy tail) that its steps hardly reach; "
    "write the model in other parameters, such as standardised effects, or give it a tighter prior"
)


@by_columns
def effective_draws(x: Array) -> Array:
    """Effective draws of x or of (x − x̄)², whichever are fewer, for each coordinate."""
    deviation = x - x.mean(axis=(0, 1))
    return np.minimum(ess(deviation), ess(deviation**2))


@by_columns
def tail_draws(x: Array) -> Array:
    """Effective draws for the share below the 5th or above the 95th percentile, whichever are fewer."""
    low, high = np.quantile(x, (0.05, 0.95), axis=(0, 1))
    return np.minimum(ess((x <= low).astype(np.float64)), ess((x >= high).astype(np.float64)))


@by_columns
def largest_r_hat(x: Array) -> Array:
    """R-hat of each coordinate: the larger of that of x and that of its distance from the median."""
    return np.maximum(r_hat(x), r_hat(np.abs(x - np.median(x, axis=(0, 1)))))


def longest_stay(x: Array) -> int:
    """The largest number of draws in a row that a chain stood at one point, its proposals refused one after another."""
    moved = (x[:, 1:] != x[:, :-1]).any(axis=2)
    ends = [np.flatnonzero(np.concatenate([[True], chain, [True]])) for chain in moved]
    return int(max(np.diff(places).max() for places in ends))


def settling_doubt(
    effective: Array,
    r_hat: Array,
    requested: int,
    chains: int,
    stopped: bool,
    modes: int = 1,
    stay: int = 1,
    times: int = 1,
) -> str:
    """Why draws are not to be trusted yet; empty if the chains have settled.

    stopped: whether a budget ended the draws. stay: the longest stay of a chain at one point. times: by what factor
    more effective draws are needed than elsewhere before R-hat says something, because a part of the posterior is
    narrow and chains seldom enter or leave it.

    A chain that stood still for `stay` draws was where about one proposal in `stay` is accepted. A posterior with such
    points has worse ones, which no chain has entered yet, and which neither R-hat nor effective draws can show. And
    if many times the expected number of draws, with no budget that ended them, are worth less than half of those asked
    for, chains move too slowly through some part to estimate their own slowness.

    By chance alone R-hat² of m halves of chains is about 1 + (m/ess) χ²/(m − 1), which matters if few draws were
    asked for.
    """
    from scipy.special import chdtri

    fewest, worst, halves = float(effective.min()), float(r_hat.max()), 2 * chains
    chance = math.sqrt(1 + float(chdtri(halves - 1, _CHANCE)) / (halves - 1) * halves / max(fewest, 1.0))
    if worst <= max(_AGREE, chance) and fewest >= times * min(_FEW, requested):
        if stay > STUCK:
            return f"a chain stood at one point for {stay:,} draws: {_NARROW}"
        if not stopped and fewest < _SHARE * requested:
            return (
                f"the chains move slowly (only {fewest:.0f} effective draws of the {requested:,} asked for): {_NARROW}"
            )
        return ""
    why = "the budget ended too soon" if stopped else _UNSETTLED
    if stay > STUCK:
        why = f"one stood at one point for {stay:,} draws, and {_NARROW}"
    if modes > 1:
        why = f"the posterior has {modes} modes or more, and chains that began at different ones did not all meet"
    return f"the chains have not settled (R-hat up to {worst:.3g}, as few as {fewest:.0f} effective draws): {why}"


def least_tail_acceptance(x: Array, first: int = 1, cycle: int = 1) -> float:
    """How often proposals are accepted in the tail of a coordinate where they are accepted least, relative to how often
    they are accepted overall; a tail is the outer twentieth of the draws (chain, draw, coordinate).

    A chain that seldom leaves a tail seldom enters it, as the flows are equal for a kernel in detailed balance. Where
    acceptance falls towards a tail it falls further beyond the draws, and the chain makes too few, and too long, visits
    for its own estimates of error. Of m proposals in a tail of which k were accepted, k + 2½√(k + 1) are counted, so
    that few draws prove nothing. If the sampler's steps repeat with a `cycle` of draws, of which the last has the
    shortest step, only these last ones count, as they are meant to reach a narrow part; x[:, 0] is draw number `first`.
    """
    number = first + np.arange(1, x.shape[1])
    counted = number % cycle == 0
    moved = (x[:, 1:] != x[:, :-1]).any(axis=2)[:, counted].reshape(-1).astype(np.float64)
    if not moved.any():
        return 1.0
    before, least = x[:, :-1][:, counted].reshape(-1, x.shape[2]), math.inf
    for columns in some_columns(len(moved), x.shape[2]):
        values = before[:, columns]
        low, high = np.quantile(values, (_OUTER, 1 - _OUTER), axis=0)
        for tail in (values <= low, values >= high):
            k, m = moved @ tail, tail.sum(axis=0)
            least = min(least, float(((k + _SURE * np.sqrt(k + 1)) / m).min()))
    return least / float(moved.mean())


def tail_acceptance_doubt(acceptance: float) -> str:
    """The doubt that proposals in a tail are accepted too seldom, by `least_tail_acceptance`; empty if there is none.
    Below 0.6 errors were found to be understated, on small skewed posteriors with known moments, 40 seeds each.
    """
    if acceptance >= _TAIL:
        return ""
    return (
        f"proposals in a tail of a coordinate are accepted {acceptance:.2g} times as often as elsewhere, and chains "
        f"seldom enter what they seldom leave: {_NARROW}"
    )


def are_doomed(x: Array, first: int, cycle: int) -> bool:
    """Whether draws are doubted for what more draws of the same steps do not change: a chain that stood still for too
    long, or proposals that are accepted too seldom in a tail.
    """
    return longest_stay(x) > STUCK or bool(tail_acceptance_doubt(least_tail_acceptance(x, first, cycle)))


def long_stay_doubt(index: float) -> str:
    """The doubt that chains stay in a tail for times with a large Pareto index (`Gaussianity.stay_index`), so that
    errors are unknown; empty if there is none. Above ¼ the rms z of 16 seeds on small posteriors of known moments was
    up to 18; below it, 1.7 at most.
    """
    if index <= _STAYS:
        return ""
    return (
        f"a tail of the posterior is so much heavier than that of the Gaussian law its proposals come from that chains "
        f"seldom enter it and then stay (the times of these stays have a Pareto index of {index:.2g}, and up to "
        f"{_STAYS:g} errors are known): leave `method` out, or take method='split-hmc'"
    )


def largest_curvatures(target: FiniteSum, x: Array, whitening: Whitening) -> Array:
    """λ at some of the draws (chain, draw, dim), sorted, without those that are not finite."""
    flat = x.reshape(-1, x.shape[2])
    largest = []
    for state in flat[:: max(1, len(flat) // DRAWS)][:DRAWS]:
        with np.errstate(over="ignore", invalid="ignore"):
            whitened = whitening.pull(whitening.pull(target.hessian(state)).T)
        if np.isfinite(whitened).all():
            largest.append(float(np.linalg.eigvalsh(whitened)[-1]))
    return np.sort(np.array(largest))


def rare_curvature(curvature: Array) -> float:
    """λ₃, from sorted λ; 0 if they are too few to tell.

    >>> rare = np.arange(1, 257) / 257
    >>> round(rare_curvature(np.sort(rare**-0.5)))  # a thousandth exceeds 1000^½
    32
    """
    if len(curvature) < _LARGEST**2:
        return 0.0
    p2 = _LARGEST / len(curvature)
    lambda2, lambda1 = float(curvature[-_LARGEST]), float(curvature[-round(len(curvature) * math.sqrt(p2))])
    if not lambda2 > 0:
        return 0.0
    g = max(0.0, math.log(lambda2 / max(lambda1, 1e-300)) / -math.log(math.sqrt(p2)))
    return float(lambda2 * max(1.0, p2 / _RARE) ** g)


def is_narrow(curvature: Array, step: float) -> bool:
    """Whether steps of this length are unstable in a part of the posterior that matters, by sorted λ."""
    return bool(step**2 * rare_curvature(curvature) > _STABLE)


def unstable_steps_doubt(step: float) -> str:
    """The doubt that steps of this length are unstable in a part of the posterior."""
    return (
        f"the curvature at the draws rises so steeply that steps of {step:.2g}, which the chains make often, are "
        f"unstable in a part of about one draw in a thousand, which they hardly enter or leave: {_NARROW}"
    )


def cut_short_doubt(needed: int) -> str:
    """The doubt that a budget ended the draws before chains had been in the narrow parts of a posterior."""
    return (
        f"a budget ended the draws before there were {needed:,} effective ones, as many as are made where some steps "
        "are shorter because a part of the posterior may be narrow: chains seldom enter it, and may not have been "
        "there; give a larger budget, or none"
    )
