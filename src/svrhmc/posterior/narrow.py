"""Parts of a posterior that are narrower than its middle, as the curvature at its draws shows them.

Let λ(x) be the largest eigenvalue of Wᵀ∇²f(x)W, which is 1 at the mode where W whitens: across, a part of the posterior
is 1/√λ as wide there as at the mode. Trajectories of steps h are stable where h²λ < 4, and of split HMC's with two
steps of 0.8 half are accepted at h²λ = 3 and one in eight at 6 (fewer with more steps). So chains seldom enter, and
seldom leave, what is narrower than that, and if it is a few draws in a hundred that are missing, neither R-hat nor
effective draws nor acceptance shows it: chains that have not been there agree. The curvature where they have been shows
it, as it rises on the way.

Along a bent ridge, or into a neck, λ grows like a power of how rare its values are: P(λ > s) ≈ s^{−1/g}. With λ₁ and λ₂
the values that shares p₁ > p₂ of the draws exceed,

    g = log(λ₂/λ₁)/log(p₁/p₂),            λ₃ = λ₂(p₂/p₃)^g

is what a share p₃ of the posterior exceeds, p₃ = 1/1000 being more rare than what the draws tell of. Draws that miss a
part have λ₁ and λ₂ too small, and g with them; but where steps were what kept them out, λ₂ is near 4/h² already.
"""

from __future__ import annotations

import math

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.targets.base import FiniteSum
from svrhmc.whitening import Whitening

MOST_COORDINATES = 32  # whose Hessian is found in one call of a program
DRAWS = 256  # at which it is found
_LARGEST = 4  # the number, from above, of the curvature that is λ₂: p₂ is 1/64
_RARE = 1e-3  # p₃
_STABLE = 4.0  # h²λ


def curvatures(target: FiniteSum, x: Array, how: Whitening) -> Array:
    """λ at some of the draws (chain, draw, dim), from the smallest on; without those where it is not finite."""
    flat = x.reshape(-1, x.shape[2])
    found = []
    for state in flat[:: max(1, len(flat) // DRAWS)][:DRAWS]:
        with np.errstate(over="ignore", invalid="ignore"):
            curved = how.pull(how.pull(target.hessian(state)).T)
        if np.isfinite(curved).all():
            found.append(float(np.linalg.eigvalsh(curved)[-1]))
    return np.sort(np.array(found))


def rare_curvature(known: Array) -> float:
    """λ₃, from sorted λ; 0 where they are too few to tell.

    >>> rare = np.arange(1, 257) / 257
    >>> round(rare_curvature(np.sort(rare**-0.5)))  # a thousandth exceeds 1000^½
    32
    """
    if len(known) < _LARGEST**2:
        return 0.0
    rare = _LARGEST / len(known)
    rarer, often = float(known[-_LARGEST]), float(known[-round(len(known) * math.sqrt(rare))])
    if not rarer > 0:
        return 0.0
    growth = max(0.0, math.log(rarer / max(often, 1e-300)) / -math.log(math.sqrt(rare)))
    return float(rarer * max(1.0, rare / _RARE) ** growth)


def is_narrow(known: Array, step: float) -> bool:
    """Whether steps of such a length are unstable in a part of the posterior that matters, by sorted λ."""
    return bool(step**2 * rare_curvature(known) > _STABLE)
