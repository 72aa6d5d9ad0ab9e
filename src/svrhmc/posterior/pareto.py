"""How heavy the tails of a quantity are, from its draws: the shape k of a generalised Pareto law.

Beyond a high threshold u nearly every law is P(x − u > y) ≈ (1 + ky/σ)^{−1/k}: moments of order 1/k and above are
infinite. From k = ½ on there is no variance, from k = 1 on no mean. A second moment is an average of squares, whose
tail has the shape 2k; averages are reliable for shapes below 0.7 (Vehtari et al. 2024, Pareto smoothed importance
sampling), which is k < 0.35 here.

The M largest of S draws are the tail, M = min(S/5, 3√(S/r)) with r the effective draws for each draw. With y₁ ≤ … ≤ y_M
their distances from the next lower draw, k̂ is the estimate of Zhang and Stephens (2009): with θ = −k/σ the likelihood
is largest for k(θ) = (1/M) Σ log(1 − θyᵢ) and there is ℓ(θ) = M(log(−θ/k(θ)) − k(θ) − 1), by which θ is averaged over

    θⱼ = 1/y_M + (1 − √(m/(j − ½)))/(3 y_{M/4}),      j = 1 … m = 30 + √M,

and k̂ is k of that average, drawn towards ½ by ten draws' worth.
"""

from __future__ import annotations

import math

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.diagnostics import bulk_ess

NO_VARIANCE, NO_MEAN = 0.5, 1.0
UNSTABLE = 0.35  # from which squares have averages that another run does not repeat
_BULGE = 6.0  # E a⁴/(E a²)² of draws, below which no tail is looked at: 3 for a Gaussian, 9 for an exponential law
_FEWEST = 25  # draws of a tail


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
        share = min(1.0, float(bulk_ess(one)[0]) / total)
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
    known = np.isfinite(likelihood)
    weight = np.exp(likelihood[known] - likelihood[known].max())
    mean = float(weight @ theta[known] / weight.sum())
    return float((count * np.log1p(-mean * y).mean() + 10 * 0.5) / (count + 10))
