"""Parameters as a model states them, such as a standard deviation above 0, where other coordinates were sampled.

How heavy the tails of a parameter are, the shape k of a generalised Pareto law says. Beyond a high threshold u nearly
every law is P(x − u > y) ≈ (1 + ky/σ)^{−1/k}: moments of order 1/k and above are infinite. From k = ½ on there is no
variance, from k = 1 on no mean. A second moment is an average of squares, whose tail has the shape 2k; averages are
reliable for shapes below 0.7 (Vehtari et al. 2024, Pareto smoothed importance sampling), which is k < 0.35 here.

The M largest of S draws are the tail, M = min(S/5, 3√(S/r)) with r the effective draws for each draw. With y₁ ≤ … ≤ y_M
their distances from the next lower draw, k̂ is the estimate of Zhang and Stephens (2009): with θ = −k/σ the likelihood
is largest for k(θ) = (1/M) Σ log(1 − θyᵢ) and there is ℓ(θ) = M(log(−θ/k(θ)) − k(θ) − 1), by which θ is averaged over

    θⱼ = 1/y_M + (1 − √(m/(j − ½)))/(3 y_{M/4}),      j = 1 … m = 30 + √M,

and k̂ is k of that average, drawn towards ½ by ten draws' worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc import diagnostics
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import require_finite, requirement
from svrhmc.core.summaries import interval_end_names, interval_ends
from svrhmc.density.base import FiniteSum
from svrhmc.sampling.correction import Corrected, corrected_functions, error_of_mean
from svrhmc.sampling.doubts import NO_MEAN, NO_VARIANCE, UNKNOWN_ERROR, Tails
from svrhmc.trace import grids

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
UNSTABLE = 0.35  # from which squares have averages that another run does not repeat
_BULGE = 6.0  # E a⁴/(E a²)² of draws, below which no tail is looked at: 3 for a Gaussian, 9 for an exponential law
_FEWEST = 25  # draws of a tail


@dataclass(frozen=True, eq=False)
class Parameters:
    """names: of every number, such as sigma or w[0, 1]. draws: an array (chain, draw, number). corrected: moments that
    are corrected by the gradients at the draws; None where those of the draws are the best there are. known: Pareto
    shapes that the density shows of some of them, 0 where it shows that E a⁴ is finite, nan for others; None where it
    shows nothing.
    """

    names: tuple[str, ...]
    draws: Array
    corrected: Corrected | None = None
    known: Array | None = None

    def require_sound(self) -> None:
        """Refuse draws that are not finite or of another number."""
        if self.draws.ndim != 3 or self.draws.shape[2] != len(self.names):
            raise requirement("parameters", f"draws of {len(self.names)} numbers", f"shape {self.draws.shape}")
        require_finite("parameters", self.draws)
        if self.corrected is not None and len(self.corrected.mean) != len(self.names):
            raise requirement("parameters", f"moments of {len(self.names)} numbers", len(self.corrected.mean))
        if self.known is not None and len(self.known) != len(self.names):
            raise requirement("parameters", f"shapes of {len(self.names)} numbers", len(self.known))

    def by_name(self) -> dict[str, Array]:
        """Arrays (chain, draw, …) in the shapes that the model gives them."""
        return {name: self.draws[:, :, places] for name, places in (grids(self.names) or {}).items()}

    def flat(self) -> Array:
        """The draws of all chains, (draw, number)."""
        return self.draws.reshape(-1, len(self.names))

    @cached_property
    def shapes(self) -> Array:
        """The Pareto shape of the heavier tail of each number: from 0.5 on it has no variance, from 1 on no mean. 0
        where the error of its sd is known.
        """
        return heavy_shapes(self.draws, self.known)

    @cached_property
    def moments(self) -> Corrected:
        """Means and sds with their standard errors: the corrected ones, or those of the draws; nan where the tail of
        the draws shows that there is none.
        """
        moments, x = self.corrected, self.draws
        if moments is None:
            with np.errstate(over="ignore", invalid="ignore"):  # of what has no moments
                mean, sd = x.mean(axis=(0, 1)), diagnostics.spread(x)
                sd_error = error_of_mean((x - mean) ** 2) / (2 * np.where(sd > 0, sd, 1.0))
                moments = Corrected(mean, sd, error_of_mean(x), sd_error)
        return Corrected(
            *without_unknown(moments.mean, moments.sd, self.shapes),
            *errors_with_tails(moments.mean_error, moments.sd_error, self.shapes),
        )

    def heavy(self, most: int) -> str:
        """Which of the numbers have no sd, or one that another run would not repeat, and quantiles of some of them."""
        return tails_in_words(self.names, self.draws, self.shapes, most)

    @np.errstate(over="ignore", invalid="ignore")
    def columns(self, level: float) -> dict[str, Array]:
        """Mean and sd, the ends of the interval, which are those of the draws, standard errors, effective draws and
        R-hat.
        """
        x, moments, (low, high) = self.draws, self.moments, interval_end_names(level)
        ends = np.quantile(self.flat(), interval_ends(level), axis=0)
        return {
            "mean": moments.mean, "sd": moments.sd, low: ends[0], high: ends[1], "mcse_mean": moments.mean_error,
            "mcse_sd": moments.sd_error, "ess": diagnostics.bulk_ess(x), "r_hat": diagnostics.rank_r_hat(x),
        }  # fmt: skip


@np.errstate(over="ignore", invalid="ignore")  # numbers of a model whose chains run off are beyond float64
def stated_parameters(
    target: FiniteSum,
    draws: Array,
    corrected_at: tuple[Array, Array] | None = None,
    pull: Callable[[Array], Array] | None = None,
    tails: Tails | None = None,
) -> Parameters | None:
    """The parameters of a target as it states them, at draws; None where they are its coordinates.

    corrected_at: some of the draws and WWᵀ∇f at them, by which moments are corrected; pull(w) = Wᵀw. tails: of its
    coordinates, as its density shows them; a parameter of the same name is that coordinate.
    """
    named = target.stated(draws)
    if named is None:
        return None
    names, values = named
    by_name = (
        {} if tails is None else dict(zip(target.names, zip(tails.known, tails.unseen, strict=True), strict=False))
    )
    shapes, unseen = np.array([by_name.get(name, (np.nan, 0.0)) for name in names]).reshape(-1, 2).T
    known = None if np.isnan(shapes).all() else shapes
    if corrected_at is None or pull is None:
        return Parameters(names, values, None, known)
    x, h = corrected_at
    some = values if x is draws else (target.stated(x) or named)[1]
    moments = corrected_functions(some, x, h, pull, target.one_mode is not None)
    return Parameters(names, values, None if moments is None else moments.missing(unseen), known)


def heavy_shapes(draws: Array, known: Array | None = None) -> Array:
    """Pareto shapes of those numbers (chain, draw, number) whose sd has an error that is not known, 0 for others: by
    the density where it tells (`Tails.known`), else by the draws, from 0.35 on.
    """
    shapes = pareto_shapes(draws)
    shapes = np.where(shapes >= UNSTABLE, shapes, 0.0)
    return shapes if known is None else np.where(np.isnan(known), shapes, np.where(known >= UNKNOWN_ERROR, known, 0.0))


def without_unknown(mean: Array, sd: Array, shapes: Array) -> tuple[Array, Array]:
    """Means and sds, nan where there is none."""
    return np.where(shapes < NO_MEAN, mean, np.nan), np.where(shapes < NO_VARIANCE, sd, np.nan)


def errors_with_tails(mean_error: Array, sd_error: Array, shapes: Array) -> tuple[Array, Array]:
    """Standard errors: nan of what there is not, infinite of an sd whose squares have no variance."""
    unknown = np.where(shapes >= UNKNOWN_ERROR, np.inf, sd_error)
    return np.where(shapes < NO_VARIANCE, mean_error, np.nan), np.where(shapes < NO_VARIANCE, unknown, np.nan)


def tails_in_words(names: tuple[str, ...], draws: Array, shapes: Array, most: int) -> str:
    """Which numbers have no sd, or one that another run would not repeat, and quantiles of some of them; shapes: 0 of
    all others.
    """

    def quantiles(some: Indices) -> str:
        ends = np.quantile(draws[:, :, some].reshape(-1, len(some)), (0.05, 0.5, 0.95), axis=0).T
        return "; ".join(
            f"{names[j]} (k {shapes[j]:.2f}) {', '.join(f'{end:.4g}' for end in row)}"
            for j, row in zip(some, ends, strict=True)
        )

    without = np.flatnonzero(shapes >= NO_VARIANCE)
    unstable = np.flatnonzero((shapes > 0) & (shapes < NO_VARIANCE))
    return " ".join(
        f"{words}: {quantiles(some[:most])}{f' and {len(some) - most:,} more' if len(some) > most else ''}."
        for words, some in ((_WITHOUT, without), (_LOOSE, unstable))
        if len(some)
    )


def pareto_shapes(draws: Array) -> Array:
    """k̂ of the heavier tail of each quantity, of draws (chain, draw, quantity); 0 where the draws have no long tail."""
    a = draws - np.median(draws, axis=(0, 1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = np.abs(a).max(axis=(0, 1))
        squares = (a / np.where(scale > 0, scale, 1.0)) ** 2
        bulge = (squares * squares).mean(axis=(0, 1)) / squares.mean(axis=(0, 1)) ** 2
    shapes = np.zeros(draws.shape[2])
    for j in np.flatnonzero(bulge > _BULGE):
        one = a[:, :, j : j + 1]
        total = one.size
        share = min(1.0, float(diagnostics.bulk_ess(one)[0]) / total)
        count = math.ceil(min(total / 5, 3 * math.sqrt(total / max(share, 1.0 / total))))
        if count >= _FEWEST:
            shapes[j] = max(_shape(np.sort(side.ravel()), count) for side in (one, -one))
    return shapes


def _shape(x: Array, count: int) -> float:
    """k̂ of the last so many of sorted draws; 0 where too many of them are the same."""
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
