"""What shows that draws are not to be trusted, and the sentence that says so.

Narrow parts. Let λ(x) be the largest eigenvalue of Wᵀ∇²f(x)W, which is 1 at the mode where W whitens: across, a part of
the posterior is 1/√λ as wide there as at the mode. Trajectories of steps h are stable where h²λ < 4, and of split HMC's
with two steps of 0.8 half are accepted at h²λ = 3 and one in eight at 6 (fewer with more steps). So chains seldom
enter, and seldom leave, what is narrower than that, and if it is a few draws in a hundred that are missing, neither
R-hat nor effective draws nor acceptance shows it: chains that have not been there agree. The curvature where they have
been shows it, as it rises on the way.

Along a bent ridge, or into a neck, λ grows like a power of how rare its values are: P(λ > s) ≈ s^{−1/g}. With λ₁ and λ₂
the values that shares p₁ > p₂ of the draws exceed,

    g = log(λ₂/λ₁)/log(p₁/p₂),            λ₃ = λ₂(p₂/p₃)^g

is what a share p₃ of the posterior exceeds, p₃ = 1/1000 being more rare than what the draws tell of. Draws that miss a
part have λ₁ and λ₂ too small, and g with them; but where steps were what kept them out, λ₂ is near 4/h² already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget
from svrhmc.density.base import FiniteSum
from svrhmc.diagnostics import by_columns, ess, r_hat, some_columns
from svrhmc.rows.forms import functions_of
from svrhmc.whitening import Whitening

_AGREE, _FEW = 1.05, 100  # R-hat up to which chains agree, and effective draws below which that says little
_CHANCE = 1e-3  # that R-hat of settled chains is larger than is allowed
_SHARE = 0.5  # of the draws asked for, without which a run that went on to its very end was too slow to tell
STUCK = 100  # draws in a row at one point, after which a chain sticks: where 3 in 10 proposals are accepted, 1 in 10¹⁵
_OUTER, _SURE = 0.05, 2.5  # of the draws that are a tail; standard errors by which its acceptance is raised
_TAIL = 0.6  # of the overall acceptance that the tails of every coordinate must have
_STAYS = 0.25  # Pareto index of stays in a tail up to which errors are known
MOST_COORDINATES = 32  # whose Hessian is found in one call of a program
DRAWS = 256  # at which it is found
_LARGEST = 4  # the number, from above, of the curvature that is λ₂: p₂ is 1/64
_RARE = 1e-3  # p₃
_STABLE = 4.0  # h²λ
_BULGE = 3.0  # E a⁴/(E a²)² of draws, that of a Gaussian, from which a coordinate's tail is looked at
_AWAY = 2.0  # sds of a mean from the mode, or sds of the law there in one, from which on it is looked at
_SHORTER, _RISEN = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0), 0.1
_NO_TIME = 1e5  # nanoseconds of a pass
_MOST = 8  # coordinates whose tails are looked at
_NEAR, _FAR = 1e4, 1e8  # standard deviations from the mode between which f is compared
_POWER = 3.0  # of 1/|a| in a density, up to which E a² is infinite
_FINITE = 5.0  # up to which E a⁴ is
_LIGHT = 30.0  # up to which draws are asked how much of E a² lies beyond them
_PEAK = 0.8  # the largest density of a law of variance 1 at its mode: of a Gaussian 0.4
_DECADES = math.log(_FAR / _NEAR)
_ROUNDED = 1e-4  # of a power that is found from f
_WITHIN, _MATTERS = 10.0, 1e-4  # standard deviations, and the share of E a² there, from which a finite one is looked at
NO_MEAN, NO_VARIANCE, UNKNOWN_ERROR = 1.0, 0.5, 0.25  # Pareto shapes from which there is none
_HELD = 1e-20  # of E a² that a tail has to hold along its ray; the volume of the other coordinates is not known there
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
    """The fewer of the effective draws of x and of (x − x̄)², for each coordinate."""
    away = x - x.mean(axis=(0, 1))
    return np.minimum(ess(away), ess(away**2))


@by_columns
def tail_draws(x: Array) -> Array:
    """The fewer of the effective draws for the shares below the 5th and above the 95th percentile."""
    low, high = np.quantile(x, (0.05, 0.95), axis=(0, 1))
    return np.minimum(ess((x <= low).astype(np.float64)), ess((x >= high).astype(np.float64)))


@by_columns
def agreement(x: Array) -> Array:
    """R-hat of each coordinate: the larger of that of x and that of its distance from the median."""
    return np.maximum(r_hat(x), r_hat(np.abs(x - np.median(x, axis=(0, 1)))))


def longest_stay(x: Array) -> int:
    """How many draws in a row, at most, a chain stood at one point: proposals refused one after another."""
    moved = (x[:, 1:] != x[:, :-1]).any(axis=2)
    ends = [np.flatnonzero(np.concatenate([[True], chain, [True]])) for chain in moved]
    return int(max(np.diff(places).max() for places in ends))


def unsettled(
    effective: Array,
    r_hat: Array,
    wanted: int,
    chains: int,
    stopped: bool,
    modes: int = 1,
    stay: int = 1,
    times: int = 1,
) -> str:
    """Why the draws of some chains are not to be trusted yet; empty where they are. times: as many effective draws as
    elsewhere are needed before R-hat says something, where a part is narrow and chains seldom enter or leave it.

    A chain that stood still for `stay` draws was where about one proposal in `stay` is accepted. Where a posterior has
    such points at all it has worse ones, which no chain has entered yet, and which neither R-hat nor effective draws
    can show. And where many times as many draws as expected, with no budget that ended them, are worth less than half
    of those asked for, chains move too slowly through some part for what they say of their own slowness.

    By chance alone R-hat² of m halves of chains is about 1 + (m/ess) χ²/(m − 1), which counts where few draws were
    asked for.
    """
    from scipy.special import chdtri

    fewest, worst, halves = float(effective.min()), float(r_hat.max()), 2 * chains
    chance = math.sqrt(1 + float(chdtri(halves - 1, _CHANCE)) / (halves - 1) * halves / max(fewest, 1.0))
    if worst <= max(_AGREE, chance) and fewest >= times * min(_FEW, wanted):
        if stay > STUCK:
            return f"a chain stood at one point for {stay:,} draws: {_NARROW}"
        if not stopped and fewest < _SHARE * wanted:
            return f"the chains move slowly (only {fewest:.0f} effective draws of the {wanted:,} asked for): {_NARROW}"
        return ""
    why = "the budget ended too soon" if stopped else _UNSETTLED
    if stay > STUCK:
        why = f"one stood at one point for {stay:,} draws, and {_NARROW}"
    if modes > 1:
        why = f"the posterior has {modes} modes or more, and chains that began at different ones did not all meet"
    return f"the chains have not settled (R-hat up to {worst:.3g}, as few as {fewest:.0f} effective draws): {why}"


def least_tail_acceptance(x: Array, first: int = 1, cycle: int = 1) -> float:
    """How often proposals are accepted in that tail of a coordinate where they are accepted least, as a share of how
    often they are accepted overall; a tail is the outer twentieth of the draws (chain, draw, coordinate).

    A chain that seldom leaves a tail seldom enters it: for a kernel in detailed balance the flows are equal. Where
    acceptance falls towards a tail it falls further beyond the draws there are, and the chain has too few, and too
    long, visits for its own estimates of error. Of m proposals in a tail of which k were accepted, k + 2½√(k + 1) are
    counted, so that few draws tell nothing. Where the sampler's steps repeat with a `cycle` of draws and the shortest
    come last in it, these alone count, as they are the ones that are to reach a narrow part; x[:, 0] is draw number
    `first`.
    """
    number = first + np.arange(1, x.shape[1])
    some = number % cycle == 0
    moved = (x[:, 1:] != x[:, :-1]).any(axis=2)[:, some].reshape(-1).astype(np.float64)
    if not moved.any():
        return 1.0
    before, least = x[:, :-1][:, some].reshape(-1, x.shape[2]), math.inf
    for columns in some_columns(len(moved), x.shape[2]):
        values = before[:, columns]
        low, high = np.quantile(values, (_OUTER, 1 - _OUTER), axis=0)
        for tail in (values <= low, values >= high):
            k, m = moved @ tail, tail.sum(axis=0)
            least = min(least, float(((k + _SURE * np.sqrt(k + 1)) / m).min()))
    return least / float(moved.mean())


def refusing_tail(acceptance: float) -> str:
    """Why draws are not to be trusted whose chains accept proposals in a tail only so often, as a share of how often
    they do overall; empty where they do. Below 0.6 errors were found to be understated, on small skewed posteriors
    with known moments, 40 seeds each.
    """
    if acceptance >= _TAIL:
        return ""
    return (
        f"proposals in a tail of a coordinate are accepted {acceptance:.2g} times as often as elsewhere, and chains "
        f"seldom enter what they seldom leave: {_NARROW}"
    )


def staying(index: float) -> str:
    """Why draws are not to be trusted whose chains stay in a tail for times of such a Pareto index, which is
    `Gaussianity.stay_index`; empty where their errors are known. Above ¼, rms z of 16 seeds on small posteriors of
    known moments was up to 18; below it, 1.7 at most.
    """
    if index <= _STAYS:
        return ""
    return (
        f"a tail of the posterior is so much heavier than that of the Gaussian law its proposals come from that chains "
        f"seldom enter it and then stay (the times of these stays have a Pareto index of {index:.2g}, and up to "
        f"{_STAYS:g} errors are known): leave `method` out, or take method='split-hmc'"
    )


def curvatures(target: FiniteSum, x: Array, whitening: Whitening) -> Array:
    """λ at some of the draws (chain, draw, dim), from the smallest on; without those where it is not finite."""
    flat = x.reshape(-1, x.shape[2])
    largest = []
    for state in flat[:: max(1, len(flat) // DRAWS)][:DRAWS]:
        with np.errstate(over="ignore", invalid="ignore"):
            curved = whitening.pull(whitening.pull(target.hessian(state)).T)
        if np.isfinite(curved).all():
            largest.append(float(np.linalg.eigvalsh(curved)[-1]))
    return np.sort(np.array(largest))


def rare_curvature(curvature: Array) -> float:
    """λ₃, from sorted λ; 0 where they are too few to tell.

    >>> rare = np.arange(1, 257) / 257
    >>> round(rare_curvature(np.sort(rare**-0.5)))  # a thousandth exceeds 1000^½
    32
    """
    if len(curvature) < _LARGEST**2:
        return 0.0
    rare = _LARGEST / len(curvature)
    rarer, often = float(curvature[-_LARGEST]), float(curvature[-round(len(curvature) * math.sqrt(rare))])
    if not rarer > 0:
        return 0.0
    growth = max(0.0, math.log(rarer / max(often, 1e-300)) / -math.log(math.sqrt(rare)))
    return float(rarer * max(1.0, rare / _RARE) ** growth)


def is_narrow(curvature: Array, step: float) -> bool:
    """Whether steps of such a length are unstable in a part of the posterior that matters, by sorted λ."""
    return bool(step**2 * rare_curvature(curvature) > _STABLE)


def narrowing(step: float) -> str:
    """Why draws are not to be trusted whose steps, of such a length, are unstable in a part of the posterior."""
    return (
        f"the curvature at the draws rises so steeply that steps of {step:.2g}, which the chains make often, are "
        f"unstable in a part of about one draw in a thousand, which they hardly enter or leave: {_NARROW}"
    )


def cut_short(wanted: int) -> str:
    """Why draws are not to be trusted that a budget ended before chains had been in the narrow parts of a posterior."""
    return (
        f"a budget ended the draws before there were {wanted:,} effective ones, as many as are made where some steps "
        "are shorter because a part of the posterior may be narrow: chains seldom enter it, and may not have been "
        "there; give a larger budget, or none"
    )


class Tails(NamedTuple):
    """Of each coordinate: the Pareto shape k of its tail, where the density shows that E a⁴ is infinite (from ¼ on how
    far an sd is off cannot be told, from ½ on there is no variance, from 1 on no mean; 0 for all others); and the share
    of E a² beyond all draws.
    """

    shapes: Array
    unseen: Array

    @property
    def known(self) -> Array:
        """The shapes, 0 where it is known that E a⁴ is finite, nan where nothing is known."""
        return np.where((self.shapes > 0) | (self.unseen > 0), self.shapes, np.nan)


def tails_by_density(
    target: FiniteSum,
    x: Array,
    sd: Array,
    budget: Budget,
    whitening: Whitening | None = None,
    stopped: bool = False,
    settled: bool = True,
) -> Tails:
    """What the density itself shows of the tail of each coordinate, where it falls like a power.

    Along a ray from the mode let f grow like c·log t: between 10⁴ and 10⁸ standard deviations by c·log 10⁴. Rays go
    along a coordinate, with the others as they are at the mode, and as N(x̂, Σ̂) has them given that one. How wide the
    others are at x their block of the Hessian there says, so that by Laplace's method the marginal density is

        −log π(t) ≈ f + ½ log det ∇²f(x) of the others ∼ c·log t,            k = 1/(c − 1).

    Draws do not show it: no chain of a reasonable length gets so far. They tell where to look: at coordinates with many
    draws far out, and at those whose chains ran far away from the mode or reach many times as far as the law there;
    where chains have not settled, at those that are nearest to this. Only models of functions are looked at, as others
    say themselves whether they are proper, and where a budget allows it; one that ended the draws does where this takes
    next to no time.

    A tail counts where it holds some of E a²: t³·exp(f(x̂) − f(x̂ + t d)) is its share between t and 2t standard
    deviations, d along the ray. Where f has risen by thousands before it becomes flat, because exp(t) is 0 or a
    probability is rounded to 1, the share is 0, and what f does there is of no consequence. Of a variance that is
    finite a tail counts where, continued inwards to 10 standard deviations, it holds a share of 10⁻⁴ there.

    Chains seldom enter a tail whose E a⁴ is finite, too. What lies beyond their farthest draw T a law
    p(t) = p₀(1 + t²/b²)^{−c/2} with that tail tells, which is Student's:

        ∫_T^∞ t²p(t) dt = ½p₀b³B(½(c − 3), 3/2) I_u(½(c − 3), 3/2),            u = 1/(1 + T²/b²).
    """
    shapes, unseen = np.zeros(target.dim), np.zeros((2, target.dim))
    tails = Tails(shapes, unseen.sum(axis=0))
    if functions_of(target.form()) is None or not budget.covers(0.0, 4.0 * _MOST):
        return tails
    if stopped and target.n * (target.row_nanoseconds or 0.0) > _NO_TIME:
        return tails
    a = x.reshape(-1, target.dim) - x.mean(axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = a * a
        bulge = (squares * squares).mean(axis=0) / squares.mean(axis=0) ** 2
        mode = target.mode()
        away = np.abs(x.mean(axis=(0, 1)) - mode) / np.maximum(sd, 1e-300)
        wide = sd / np.sqrt(whitening.variances) if whitening is not None else np.ones(target.dim)
        far_out = np.fmax(bulge / _BULGE, np.fmax(away / _AWAY, wide / _AWAY))
    worst = np.argsort(-far_out, kind="stable")[:_MOST]
    worst = worst[((far_out[worst] > 1) | (not settled)) & (sd[worst] > 0)]
    if not len(worst):
        return tails
    dense = target.dim <= MOST_COORDINATES
    axes = np.zeros((len(worst), target.dim))
    axes[np.arange(len(worst)), worst] = 1.0
    kinds = [axes]
    if dense and whitening is not None:
        along = whitening.displace(whitening.pull(axes))
        kinds.append(along / along[np.arange(len(worst)), worst][:, None])
    for rays in kinds:
        rays = rays * sd[worst][:, None]
        states = np.concatenate([mode[None], *(mode + s * t * rays for t in (_NEAR, _FAR) for s in (-1.0, 1.0))])
        budget.evaluations += float(len(states)) * target.n
        with np.errstate(over="ignore", invalid="ignore"):
            f = target.potentials(states)
            rises = (f[1:] - f[0]).reshape(2, 2, len(worst))
        for side, sign in enumerate((-1.0, 1.0)):
            for place, j in enumerate(worst):
                near, far = (float(rise) for rise in rises[:, side, place])
                power = (far - near) / _DECADES
                if not (math.isfinite(power) and power <= _LIGHT + target.dim - 1):
                    continue
                volumes = None
                if dense and target.dim > 1:
                    budget.evaluations += 3.0 * target.dim * target.n
                    volumes = _log_widths(target, int(j), [mode + sign * t * rays[place] for t in (0.0, _NEAR, _FAR)])
                if volumes is not None:
                    near, far = near + volumes[1] - volumes[0], far + volumes[2] - volumes[0]
                elif dense and target.dim > 1 and power > _POWER:
                    continue  # how much of the posterior is there is not known
                shapes[j] = max(shapes[j], _shape_of_tail(near, far))
                beyond = float((sign * a[:, j]).max()) / sd[j]
                unseen[side, j] = max(unseen[side, j], _share_beyond(beyond, near, far))
    if not settled:
        _run_off(target, mode, axes, np.fmin(sd, np.sqrt(whitening.variances)) if whitening is not None else sd, shapes)
    return Tails(shapes, unseen.sum(axis=0))


def _run_off(target: FiniteSum, mode: Array, axes: Array, sd: Array, shapes: Array) -> None:
    """Mark coordinates along which f has not risen by a tenth as far out as it is finite, at 1 to 200 standard
    deviations of the law at the mode, at each of which it rises by ½ or more elsewhere: where a parameter is exp(t), it
    is beyond float64 long before 10⁴ of them. Asked only where chains have not settled.
    """
    places = axes.argmax(axis=1)
    rays = axes * sd[places][:, None]
    states = np.concatenate([mode[None], *(mode + s * t * rays for s in (-1.0, 1.0) for t in _SHORTER)])
    with np.errstate(over="ignore", invalid="ignore"):
        f = target.potentials(states)
        rises = (f[1:] - f[0]).reshape(2, len(_SHORTER), len(places))
    farthest = np.isfinite(rises).sum(axis=1) - 1
    rise = np.take_along_axis(rises, np.maximum(farthest, 0)[:, None], axis=1)[:, 0]
    flat = (farthest >= 0) & (np.abs(rise) < _RISEN)
    shapes[places[flat.any(axis=0)]] = math.inf


def _share_beyond(t: float, near: float, far: float) -> float:
    """Of E a², beyond so many standard deviations on one side, from the rises of minus the log density; 0 where it is
    not finite, or no power.
    """
    from scipy.special import beta, betainc

    power = (far - near) / _DECADES
    if not (_POWER + _ROUNDED < power <= _LIGHT and t > 0):
        return 0.0
    b, half = math.exp(math.log(_NEAR) - near / power), (power - 3) / 2
    peak = min(1 / (b * beta(0.5, (power - 1) / 2)), _PEAK)
    return float(min(peak * b**3 * beta(half, 1.5) * betainc(half, 1.5, 1 / (1 + (t / b) ** 2)) / 2, 1.0))


def _log_widths(target: FiniteSum, j: int, states: list[Array]) -> list[float] | None:
    """½ log det ∇²f at some states, of all coordinates but j; None where it is not positive definite."""
    logs = []
    for state in states:
        with np.errstate(over="ignore", invalid="ignore"):
            others = np.delete(np.delete(target.hessian(state), j, axis=0), j, axis=1)
        if not np.isfinite(others).all():
            return None
        units = np.sqrt(np.maximum(np.diag(others), 1e-300))
        sign, value = np.linalg.slogdet(others / units / units[:, None])
        if not (sign > 0 and float(np.linalg.eigvalsh(others / units / units[:, None])[0]) > 0):
            return None
        logs.append(float(value) / 2 + float(np.log(units).sum()))
    return logs


def _shape_of_tail(near: float, far: float) -> float:
    """k, from the rises of minus the log density; 0 where E a⁴ is finite, or hardly anything is in the tail."""
    power = (far - near) / _DECADES
    shares = [3 * math.log(_NEAR) - near, 3 * math.log(_FAR) - far]
    if power <= _POWER + _ROUNDED:
        counts = max(shares) > math.log(_HELD)
    else:
        inwards = shares[0] + (power - 3) * math.log(_NEAR / _WITHIN)
        counts = power <= _FINITE + _ROUNDED and inwards > math.log(_MATTERS)
    return 0.0 if not counts else 1 / (power - 1) if power > 1 + _ROUNDED else math.inf


def heavy_tail(names: Sequence[str], shapes: Array) -> str:
    """A doubt, where the density falls so slowly along a coordinate that its variance is infinite, or that it cannot be
    told how far its sd is off; else empty.
    """
    largest = (shapes > shapes.max() - _ROUNDED) | np.isinf(shapes)  # several that are the same, but for rounding
    worst = int(np.argmax(largest))
    k, name = float(shapes[worst]), names[worst]
    if not k >= UNKNOWN_ERROR:
        return ""
    if math.isinf(k):
        return (
            f"far from its mode the density falls along {name} no faster than 1/|{name}|, so that the posterior has no "
            "integral: it is improper; give a proper prior"
        )
    falls = f"far from its mode the density falls along {name} only like 1/|{name}|^{1 + 1 / k:.2g}, so that"
    if k >= NO_VARIANCE:
        without = "neither mean nor variance" if k > NO_MEAN - _ROUNDED else "no variance"
        return f"{falls} it has {without}; quantiles are those of the draws; give a prior with a lighter tail"
    some = [names[int(j)] for j in np.flatnonzero(shapes >= UNKNOWN_ERROR)]
    more = f" (and those of {len(some) - 1:,} more)" if len(some) > 1 else ""
    return (
        f"{falls} its sd{more} hangs on places so far out that hardly any draw is made there, and how far it is off "
        "cannot be told, mostly too small; report quantiles, which are those of the draws and hang on no tail, or give "
        "a prior with a lighter tail"
    )


def tail_of_draws(names: Sequence[str], shapes: Array) -> str:
    """A doubt, where draws that are otherwise sound have a tail in which no variance is to be seen; else empty."""
    worst = int(np.argmax(shapes))
    if not shapes[worst] >= NO_VARIANCE:
        return ""
    return (
        f"the draws of {names[worst]} have so heavy a tail (a Pareto shape of {shapes[worst]:.2g}, and from "
        f"{NO_VARIANCE:g} on there is no variance) that no sd can be reported; quantiles are those of the draws; "
        "give a prior with a lighter tail"
    )
