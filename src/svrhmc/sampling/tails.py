"""How heavy the tails of a posterior are: as its density shows it far from the mode, and as the draws show it.

**By the density.** Along a ray from the mode let f grow like c·log t: between 10⁴ and 10⁸ standard deviations by
c·log 10⁴. One ray follows a coordinate with all others fixed at the mode, another with the others at their means given
that coordinate under N(x̂, Σ̂). How wide the others are at a point on the ray follows from their block of the Hessian
there, so that by Laplace's method the marginal density π(t) of the coordinate is

    −log π(t) ≈ f + ½ log det ∇²f(x) of the others ∼ c·log t,            k = 1/(c − 1),

where k is the shape of the generalised Pareto law of the tail. Moments of order 1/k and above are infinite: there is no
variance from k = ½ on, and no mean from k = 1 on.

Chains seldom enter a tail, even one with a finite E a⁴. The law p(t) = p₀(1 + t²/b²)^{−c/2} with the same tail
(Student's t) says how much of the variance lies beyond the farthest draw T:

    ∫_T^∞ t²p(t) dt = ½p₀b³B(½(c − 3), 3/2) I_u(½(c − 3), 3/2),            u = 1/(1 + T²/b²).

**By the draws.** Beyond a high threshold u nearly every law is P(x − u > y) ≈ (1 + ky/σ)^{−1/k}. A second moment is an
average of squares, whose tail has the shape 2k; averages are reliable for shapes below 0.7 (Vehtari et al. 2024, Pareto
smoothed importance sampling), which is k < 0.35 here.

The M largest of S draws are the tail, M = min(S/5, 3√(S/r)), where r is the number of effective draws for each draw.
With y₁ ≤ … ≤ y_M their distances from the next lower draw, k̂ is the estimate of Zhang and Stephens (2009): with
θ = −k/σ the likelihood is largest for k(θ) = (1/M) Σ log(1 − θyᵢ), where it is
ℓ(θ) = M(log(−θ/k(θ)) − k(θ) − 1), by which θ is averaged over

    θⱼ = 1/y_M + (1 − √(m/(j − ½)))/(3 y_{M/4}),      j = 1 … m = 30 + √M,

and k̂ is k of that average, shrunk towards ½ with the weight of ten draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from svrhmc import diagnostics
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import Budget
from svrhmc.density.base import FiniteSum
from svrhmc.rows.forms import functions_of
from svrhmc.sampling.doubts import MOST_COORDINATES
from svrhmc.whitening import Whitening

NO_MEAN, NO_VARIANCE, UNKNOWN_ERROR = 1.0, 0.5, 0.25  # Pareto shapes from which these hold, as the density shows them
UNSTABLE = 0.35  # Pareto shape of the draws from which averages of squares are not repeated by another run

_NEAR, _FAR = 1e4, 1e8  # standard deviations from the mode between which f is compared
_LOG_RATIO = math.log(_FAR / _NEAR)
_MOST = 8  # coordinates whose tails are examined
_KURTOSIS = 3.0  # E a⁴/(E a²)² of the draws, that of a Gaussian, above which a coordinate's tail is examined
_FAR_FROM_MODE = 2.0  # sds between mean and mode, or ratio of the draws' sd to Laplace's, above which it is examined
_INFINITE_VARIANCE, _INFINITE_FOURTH = 3.0, 5.0  # powers c of 1/|a| in a density up to which E a², E a⁴ are infinite
_LIGHT = 30.0  # power up to which the part of the variance beyond all draws is estimated
_LARGEST_PEAK = 0.8  # density at the mode of a law of variance 1; that of a Gaussian is 0.4
_ROUNDING = 1e-4  # of a power that is computed from values of f
_INNER, _MATTERS = 10.0, 1e-4  # a finite variance counts if a share of 1e-4 lies beyond 10 standard deviations
_LEAST_SHARE = 1e-20  # of E a² in a tail, along its ray; the volume of the other coordinates is not known there
_QUICK_PASS = 1e5  # nanoseconds of a pass that is made even after a budget has ended
_INNER_PLACES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)  # sds at which f is examined where it overflows later
_FLAT = 0.1  # by which f has risen at the last of them where it is flat
_EXPONENTIAL_KURTOSIS = 6.0  # E a⁴/(E a²)² of draws below which no Pareto shape is fitted: 9 for an exponential law
_FEWEST = 25  # draws of a tail to which a Pareto law is fitted

_WITHOUT = (
    "No standard deviation can be reported of what has so heavy a tail (a Pareto shape k of 0.5 or more, by the "
    "draws or the density: its variance is infinite or depends on draws that no run has made); quantiles 5%, 50%, "
    "95% of"
)
_LOOSE = (
    "The standard deviation is unstable, and its error not known, as it hangs on few draws far out, or on places where "
    "none was made (a Pareto shape k of 0.35 or more, by the draws, or of 0.25 by the density); quantiles 5%, "
    "50%, 95% of"
)


class Tails(NamedTuple):
    """What the density shows of the tails of each coordinate.

    shapes: the Pareto shape k of the heavier tail where E a⁴ is infinite, 0 elsewhere. From ¼ on the error of an sd is
        unknown, from ½ on there is no variance, from 1 on no mean.
    unseen: the share of E a² beyond all draws.
    """

    shapes: Array
    unseen: Array

    @property
    def known(self) -> Array:
        """The shapes, 0 where E a⁴ is known to be finite, nan where nothing is known."""
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
    """What the density shows of the tail of each coordinate, where it falls like a power of the distance.

    Draws do not show it, as no chain of a reasonable length gets that far, but they tell which coordinates to examine:
    those with many draws far out, and those whose chains ran far away from the mode or have many times the spread of
    the Laplace approximation; if chains have not settled, those that come nearest to this. Only models of functions are
    examined, since other models know whether they are proper, and only if the budget pays for it; if the budget has
    ended the draws, only if a pass takes next to no time.

    A tail counts if it holds some of E a²: t³·exp(f(x̂) − f(x̂ + t d)) is the share between t and 2t standard deviations
    along the ray d. Where f has risen by thousands before it becomes flat, because exp(t) underflows or a probability
    is rounded to 1, that share is 0 and what f does there has no consequence. A tail with a finite variance counts if,
    continued inwards to 10 standard deviations, it holds a share of 10⁻⁴ there.
    """
    shapes, unseen = np.zeros(target.dim), np.zeros((2, target.dim))
    tails = Tails(shapes, unseen.sum(axis=0))
    if functions_of(target.form()) is None or not budget.covers(0.0, 4.0 * _MOST):
        return tails
    if stopped and target.n * (target.row_nanoseconds or 0.0) > _QUICK_PASS:
        return tails
    mode, away = target.mode(), x.reshape(-1, target.dim) - x.mean(axis=(0, 1))
    coordinates = _suspicious_coordinates(x, away, sd, mode, whitening, settled)
    if not len(coordinates):
        return tails
    dense = target.dim <= MOST_COORDINATES
    axes = np.zeros((len(coordinates), target.dim))
    axes[np.arange(len(coordinates)), coordinates] = 1.0
    directions = [axes]
    if dense and whitening is not None:
        conditional_means = whitening.displace(whitening.pull(axes))
        directions.append(conditional_means / conditional_means[np.arange(len(coordinates)), coordinates][:, None])
    for rays in directions:
        rays = rays * sd[coordinates][:, None]
        states = np.concatenate([mode[None], *(mode + s * t * rays for t in (_NEAR, _FAR) for s in (-1.0, 1.0))])
        budget.evaluations += float(len(states)) * target.n
        with np.errstate(over="ignore", invalid="ignore"):
            f = target.potentials(states)
            rises = (f[1:] - f[0]).reshape(2, 2, len(coordinates))
        for side, sign in enumerate((-1.0, 1.0)):
            for place, j in enumerate(coordinates):
                near, far = (float(rise) for rise in rises[:, side, place])
                power = (far - near) / _LOG_RATIO
                if not (math.isfinite(power) and power <= _LIGHT + target.dim - 1):
                    continue
                volumes = None
                if dense and target.dim > 1:
                    budget.evaluations += 3.0 * target.dim * target.n
                    points = [mode + sign * t * rays[place] for t in (0.0, _NEAR, _FAR)]
                    volumes = _half_log_determinants(target, int(j), points)
                if volumes is not None:
                    near, far = near + volumes[1] - volumes[0], far + volumes[2] - volumes[0]
                elif dense and target.dim > 1 and power > _INFINITE_VARIANCE:
                    continue  # how much of the posterior is there is not known
                shapes[j] = max(shapes[j], _shape_by_rises(near, far))
                farthest = float((sign * away[:, j]).max()) / sd[j]
                unseen[side, j] = max(unseen[side, j], _share_beyond(farthest, near, far))
    if not settled:
        smaller_sd = np.fmin(sd, np.sqrt(whitening.variances)) if whitening is not None else sd
        shapes[_flat_coordinates(target, mode, axes, smaller_sd)] = math.inf
    return Tails(shapes, unseen.sum(axis=0))


def _suspicious_coordinates(
    x: Array, away: Array, sd: Array, mode: Array, whitening: Whitening | None, settled: bool
) -> Indices:
    """The coordinates whose tails are examined, the most suspicious first; `away` are the draws less their mean."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        squares = away * away
        kurtosis = (squares * squares).mean(axis=0) / squares.mean(axis=0) ** 2
        from_mode = np.abs(x.mean(axis=(0, 1)) - mode) / np.maximum(sd, 1e-300)
        wider = sd / np.sqrt(whitening.variances) if whitening is not None else np.ones(len(mode))
        suspicion = np.fmax(kurtosis / _KURTOSIS, np.fmax(from_mode / _FAR_FROM_MODE, wider / _FAR_FROM_MODE))
    worst = np.argsort(-suspicion, kind="stable")[:_MOST]
    coordinates: Indices = worst[((suspicion[worst] > 1) | (not settled)) & (sd[worst] > 0)]
    return coordinates


def _flat_coordinates(target: FiniteSum, mode: Array, axes: Array, sd: Array) -> Indices:
    """Coordinates along which f has not risen by a tenth at the farthest place where it is finite, of places at 1 to
    200 standard deviations. Elsewhere f rises by ½ or more at the first of them. Where a parameter is exp(t), f leaves
    float64 long before 10⁴ standard deviations. Examined only if chains have not settled.
    """
    coordinates = axes.argmax(axis=1)
    rays = axes * sd[coordinates][:, None]
    states = np.concatenate([mode[None], *(mode + s * t * rays for s in (-1.0, 1.0) for t in _INNER_PLACES)])
    with np.errstate(over="ignore", invalid="ignore"):
        f = target.potentials(states)
        rises = (f[1:] - f[0]).reshape(2, len(_INNER_PLACES), len(coordinates))
    farthest = np.isfinite(rises).sum(axis=1) - 1
    rise = np.take_along_axis(rises, np.maximum(farthest, 0)[:, None], axis=1)[:, 0]
    flat = (farthest >= 0) & (np.abs(rise) < _FLAT)
    chosen: Indices = coordinates[flat.any(axis=0)]
    return chosen


def _share_beyond(t: float, near: float, far: float) -> float:
    """The share of E a² beyond t standard deviations on one side, from the rises of −log π at the two far places; 0 if
    the variance is infinite, or the tail falls faster than a power.
    """
    from scipy.special import beta, betainc

    power = (far - near) / _LOG_RATIO
    if not (_INFINITE_VARIANCE + _ROUNDING < power <= _LIGHT and t > 0):
        return 0.0
    b, half = math.exp(math.log(_NEAR) - near / power), (power - 3) / 2
    peak = min(1 / (b * beta(0.5, (power - 1) / 2)), _LARGEST_PEAK)
    return float(min(peak * b**3 * beta(half, 1.5) * betainc(half, 1.5, 1 / (1 + (t / b) ** 2)) / 2, 1.0))


def _half_log_determinants(target: FiniteSum, j: int, states: list[Array]) -> list[float] | None:
    """½ log det ∇²f at some states, of all coordinates but j; None if one is not positive definite."""
    logs = []
    for state in states:
        with np.errstate(over="ignore", invalid="ignore"):
            block = np.delete(np.delete(target.hessian(state), j, axis=0), j, axis=1)
        if not np.isfinite(block).all():
            return None
        units = np.sqrt(np.maximum(np.diag(block), 1e-300))
        sign, value = np.linalg.slogdet(block / units / units[:, None])
        if not (sign > 0 and float(np.linalg.eigvalsh(block / units / units[:, None])[0]) > 0):
            return None
        logs.append(float(value) / 2 + float(np.log(units).sum()))
    return logs


def _shape_by_rises(near: float, far: float) -> float:
    """k, from the rises of −log π at the two far places; 0 if E a⁴ is finite or next to nothing is in the tail."""
    power = (far - near) / _LOG_RATIO
    log_shares = [3 * math.log(_NEAR) - near, 3 * math.log(_FAR) - far]
    if power <= _INFINITE_VARIANCE + _ROUNDING:
        counts = max(log_shares) > math.log(_LEAST_SHARE)
    else:
        inwards = log_shares[0] + (power - 3) * math.log(_NEAR / _INNER)
        counts = power <= _INFINITE_FOURTH + _ROUNDING and inwards > math.log(_MATTERS)
    return 0.0 if not counts else 1 / (power - 1) if power > 1 + _ROUNDING else math.inf


def pareto_shapes(draws: Array) -> Array:
    """k̂ of the heavier tail of each quantity, of draws (chain, draw, quantity); 0 if they have no long tail."""
    away = draws - np.median(draws, axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = np.abs(away).max(axis=(0, 1))
        squares = (away / np.where(scale > 0, scale, 1.0)) ** 2
        kurtosis = (squares * squares).mean(axis=(0, 1)) / squares.mean(axis=(0, 1)) ** 2
    shapes = np.zeros(draws.shape[2])
    for j in np.flatnonzero(kurtosis > _EXPONENTIAL_KURTOSIS):
        quantity = away[:, :, j : j + 1]
        total = quantity.size
        effective_share = min(1.0, float(diagnostics.bulk_ess(quantity)[0]) / total)
        count = math.ceil(min(total / 5, 3 * math.sqrt(total / max(effective_share, 1.0 / total))))
        if count >= _FEWEST:
            shapes[j] = max(_fitted_shape(np.sort(side.ravel()), count) for side in (quantity, -quantity))
    return shapes


def _fitted_shape(x: Array, count: int) -> float:
    """k̂ of the last `count` of sorted draws; 0 if too many of them are equal."""
    y = x[-count:] - x[-count - 1]
    quarter = y[max(0, round(count / 4) - 1)]
    if not quarter > 0:
        return 0.0
    j = np.arange(1, 31 + math.isqrt(count))
    theta = 1 / y[-1] + (1 - np.sqrt(len(j) / (j - 0.5))) / (3 * quarter)
    with np.errstate(divide="ignore", invalid="ignore"):
        k = np.log1p(-theta[:, None] * y).mean(axis=1)
        likelihood = count * (np.log(-theta / k) - k - 1)
    finite = np.isfinite(likelihood)
    weight = np.exp(likelihood[finite] - likelihood[finite].max())
    mean = float(weight @ theta[finite] / weight.sum())
    return float((count * np.log1p(-mean * y).mean() + 10 * 0.5) / (count + 10))


def heavy_shapes(draws: Array, known: Array | None = None) -> Array:
    """Pareto shapes of those quantities of draws (chain, draw, quantity) whose sd has an unknown error, 0 for others:
    by the density where it tells (`Tails.known`), else by the draws, from 0.35 on.
    """
    shapes = pareto_shapes(draws)
    shapes = np.where(shapes >= UNSTABLE, shapes, 0.0)
    return shapes if known is None else np.where(np.isnan(known), shapes, np.where(known >= UNKNOWN_ERROR, known, 0.0))


def moments_with_tails(mean: Array, sd: Array, shapes: Array) -> tuple[Array, Array]:
    """Means and standard deviations, nan where the Pareto shape says that there is none."""
    return np.where(shapes < NO_MEAN, mean, np.nan), np.where(shapes < NO_VARIANCE, sd, np.nan)


def errors_with_tails(mean_error: Array, sd_error: Array, shapes: Array) -> tuple[Array, Array]:
    """Standard errors: nan where there is no variance, infinite for an sd whose squares have no variance."""
    unknown = np.where(shapes >= UNKNOWN_ERROR, np.inf, sd_error)
    return np.where(shapes < NO_VARIANCE, mean_error, np.nan), np.where(shapes < NO_VARIANCE, unknown, np.nan)


def density_tail_doubt(names: Sequence[str], shapes: Array) -> str:
    """The doubt that the density falls so slowly along a coordinate that its variance is infinite, or the error of its
    sd unknown; empty if it falls fast enough.
    """
    largest = (shapes > shapes.max() - _ROUNDING) | np.isinf(shapes)  # several may be equal but for rounding
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
        without = "neither mean nor variance" if k > NO_MEAN - _ROUNDING else "no variance"
        return f"{falls} it has {without}; quantiles are those of the draws; give a prior with a lighter tail"
    heavy = int((shapes >= UNKNOWN_ERROR).sum())
    more = f" (and those of {heavy - 1:,} more)" if heavy > 1 else ""
    return (
        f"{falls} its sd{more} hangs on places so far out that hardly any draw is made there, and how far it is off "
        "cannot be told, mostly too small; report quantiles, which are those of the draws and hang on no tail, or give "
        "a prior with a lighter tail"
    )


def draws_tail_doubt(names: Sequence[str], shapes: Array) -> str:
    """The doubt that draws which are otherwise sound have a tail without a variance; empty if they have none."""
    worst = int(np.argmax(shapes))
    if not shapes[worst] >= NO_VARIANCE:
        return ""
    return (
        f"the draws of {names[worst]} have so heavy a tail (a Pareto shape of {shapes[worst]:.2g}, and from "
        f"{NO_VARIANCE:g} on there is no variance) that no sd can be reported; quantiles are those of the draws; "
        "give a prior with a lighter tail"
    )


def tails_in_words(names: tuple[str, ...], draws: Array, shapes: Array, most: int) -> str:
    """Which quantities have no sd, or one that another run would not repeat, with quantiles of at most `most` of each
    kind; `shapes` is 0 for all other quantities.
    """

    def quantiles(chosen: Indices) -> str:
        ends = np.quantile(draws[:, :, chosen].reshape(-1, len(chosen)), (0.05, 0.5, 0.95), axis=0).T
        return "; ".join(
            f"{names[j]} (k {shapes[j]:.2f}) {', '.join(f'{end:.4g}' for end in row)}"
            for j, row in zip(chosen, ends, strict=True)
        )

    without = np.flatnonzero(shapes >= NO_VARIANCE)
    unstable = np.flatnonzero((shapes > 0) & (shapes < NO_VARIANCE))
    return " ".join(
        f"{words}: {quantiles(heavy[:most])}{f' and {len(heavy) - most:,} more' if len(heavy) > most else ''}."
        for words, heavy in ((_WITHOUT, without), (_LOOSE, unstable))
        if len(heavy)
    )
