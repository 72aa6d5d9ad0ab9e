"""Draws of Pólya–Gamma variables, by which rows of a logistic regression are Gaussian.

PG(1, t) is a quarter of J*(1, z), z = |t|/2, whose density is e^{−z²x/2} cosh(z) Σₖ (−1)ᵏ aₖ(x),

    aₖ(x) = π(k + ½)(2/(πx))^{3/2} e^{−2(k + ½)²/x}  where x ≤ s,      π(k + ½) e^{−(k + ½)²π²x/2}  where x > s,

falling in k at every x for s = 0.64 (Devroye 2009; Polson, Scott & Windle 2013). A proposal is one of a₀(x)e^{−z²x/2}:
beyond s an exponential law of rate K = π²/8 + z²/2, below it an inverse Gaussian one of mean 1/z and shape 1 cut off at
s. It is accepted where a uniform number times a₀ is below the alternating sum, which ever more terms bound from both
sides, so that the draws are exact. PG(b, t) of a whole b is the sum of b such draws.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array

_CUT = 0.64


def polya_gamma(rng: np.random.Generator, counts: Array, t: Array) -> Array:
    """PG(bᵢ, tᵢ), with whole bᵢ ≥ 1.

    >>> rng = np.random.default_rng(0)
    >>> draws = polya_gamma(rng, np.ones(20_000), np.full(20_000, 2.0))
    >>> bool(abs(draws.mean() - np.tanh(1.0) / 4) < 0.005)
    True
    """
    counts_int = counts.astype(np.int64)
    if (counts_int == 1).all():
        return 0.25 * _draw_jacobi(rng, 0.5 * np.abs(t))
    row = np.repeat(np.arange(len(t)), counts_int)
    return np.asarray(0.25 * np.bincount(row, _draw_jacobi(rng, 0.5 * np.abs(t[row])), len(t)), np.float64)


def _draw_jacobi(rng: np.random.Generator, z: Array) -> Array:
    """J*(1, z)."""
    from scipy.special import expit, log_ndtr

    rate = math.pi**2 / 8 + z * z / 2
    root = math.sqrt(_CUT)
    log_right = np.log(math.pi / (2 * rate)) - rate * _CUT
    left = np.logaddexp(log_ndtr((_CUT * z - 1) / root) - z, log_ndtr(-(_CUT * z + 1) / root) + z)
    right_share = expit(log_right - math.log(2) - left)
    out, pending = np.empty(len(z)), np.arange(len(z))
    while len(pending):
        right = rng.random(len(pending)) < right_share[pending]
        x = np.empty(len(pending))
        x[right] = _CUT + rng.standard_exponential(int(right.sum())) / rate[pending[right]]
        x[~right] = _draw_truncated_inverse_gaussian(rng, z[pending[~right]])
        is_accepted = _is_accepted(rng, x)
        out[pending[is_accepted]] = x[is_accepted]
        pending = pending[~is_accepted]
    return out


def _draw_truncated_inverse_gaussian(rng: np.random.Generator, z: Array) -> Array:
    """An inverse Gaussian law of mean 1/z and shape 1, below the cut."""
    out, pending = np.empty(len(z)), np.arange(len(z))
    while len(pending):
        own = z[pending]
        near = own * _CUT < 1  # where most of the law is above the cut
        x = np.empty(len(pending))
        x[near], is_kept = _propose_truncated_levy(rng, own[near])
        x[~near] = rng.wald(1 / own[~near], 1.0)
        is_accepted = x < _CUT
        is_accepted[near] = is_kept
        out[pending[is_accepted]] = x[is_accepted]
        pending = pending[~is_accepted]
    return out


def _propose_truncated_levy(rng: np.random.Generator, z: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Proposals of 1/ξ² below the cut, ξ a normal number above 1/√s, and which are kept with probability e^{−z²x/2}.

    ξ²  is 1/s·(1 + sE)², E exponential, kept where E² ≤ 2E′/s.
    """
    e, e2 = rng.standard_exponential(len(z)), rng.standard_exponential(len(z))
    x = _CUT / (1 + _CUT * e) ** 2
    return x, (e * e <= 2 * e2 / _CUT) & (rng.standard_exponential(len(z)) >= 0.5 * z * z * x)


def _terms(x: Array, k: int) -> Array:
    """aₖ(x)."""
    half = k + 0.5
    small = x <= _CUT
    safe = np.where(small, x, _CUT)
    left = math.pi * half * (2 / (math.pi * safe)) ** 1.5 * np.exp(-2 * half * half / safe)
    return np.where(small, left, math.pi * half * np.exp(-0.5 * (half * math.pi) ** 2 * x))


def _is_accepted(rng: np.random.Generator, x: Array) -> npt.NDArray[np.bool_]:
    """Which proposals lie below the alternating sum."""
    total = _terms(x, 0)
    level = rng.random(len(x)) * total
    accepted, pending, k = np.zeros(len(x), bool), np.arange(len(x)), 0
    while len(pending):
        k += 1
        term = _terms(x[pending], k)
        total[pending] += term if k % 2 == 0 else -term
        if k % 2:  # a lower bound
            sure = level[pending] <= total[pending]
            accepted[pending[sure]] = True
        else:
            sure = level[pending] > total[pending]
        pending = pending[~sure]
    return accepted
