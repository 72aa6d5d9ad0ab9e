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
    many = counts.astype(np.int64)
    if (many == 1).all():
        return 0.25 * _jacobi(rng, 0.5 * np.abs(t))
    row = np.repeat(np.arange(len(t)), many)
    return np.asarray(0.25 * np.bincount(row, _jacobi(rng, 0.5 * np.abs(t[row])), len(t)), np.float64)


def _jacobi(rng: np.random.Generator, z: Array) -> Array:
    """J*(1, z)."""
    from scipy.special import expit, log_ndtr

    rate = math.pi**2 / 8 + z * z / 2
    root = math.sqrt(_CUT)
    log_right = np.log(math.pi / (2 * rate)) - rate * _CUT
    left = np.logaddexp(log_ndtr((_CUT * z - 1) / root) - z, log_ndtr(-(_CUT * z + 1) / root) + z)
    right_share = expit(log_right - math.log(2) - left)
    out, open_ = np.empty(len(z)), np.arange(len(z))
    while len(open_):
        right = rng.random(len(open_)) < right_share[open_]
        x = np.empty(len(open_))
        x[right] = _CUT + rng.standard_exponential(int(right.sum())) / rate[open_[right]]
        x[~right] = _cut_inverse_gaussian(rng, z[open_[~right]])
        taken = _accepted(rng, x)
        out[open_[taken]] = x[taken]
        open_ = open_[~taken]
    return out


def _cut_inverse_gaussian(rng: np.random.Generator, z: Array) -> Array:
    """An inverse Gaussian law of mean 1/z and shape 1, below the cut."""
    out, open_ = np.empty(len(z)), np.arange(len(z))
    while len(open_):
        own = z[open_]
        near = own * _CUT < 1  # where most of the law is above the cut
        x = np.empty(len(open_))
        x[near], kept = _cut_levy(rng, own[near])
        x[~near] = rng.wald(1 / own[~near], 1.0)
        taken = x < _CUT
        taken[near] = kept
        out[open_[taken]] = x[taken]
        open_ = open_[~taken]
    return out


def _cut_levy(rng: np.random.Generator, z: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Proposals of 1/ξ² below the cut, ξ a normal number above 1/√s, and which are kept with probability e^{−z²x/2}.

    ξ²  is 1/s·(1 + sE)², E exponential, kept where E² ≤ 2E′/s.
    """
    e, other = rng.standard_exponential(len(z)), rng.standard_exponential(len(z))
    x = _CUT / (1 + _CUT * e) ** 2
    return x, (e * e <= 2 * other / _CUT) & (rng.standard_exponential(len(z)) >= 0.5 * z * z * x)


def _terms(x: Array, k: int) -> Array:
    """aₖ(x)."""
    half = k + 0.5
    small = x <= _CUT
    safe = np.where(small, x, _CUT)
    left = math.pi * half * (2 / (math.pi * safe)) ** 1.5 * np.exp(-2 * half * half / safe)
    return np.where(small, left, math.pi * half * np.exp(-0.5 * (half * math.pi) ** 2 * x))


def _accepted(rng: np.random.Generator, x: Array) -> npt.NDArray[np.bool_]:
    """Which proposals lie below the alternating sum."""
    total = _terms(x, 0)
    level = rng.random(len(x)) * total
    taken, open_, k = np.zeros(len(x), bool), np.arange(len(x)), 0
    while len(open_):
        k += 1
        term = _terms(x[open_], k)
        total[open_] += term if k % 2 == 0 else -term
        if k % 2:  # a lower bound
            sure = level[open_] <= total[open_]
            taken[open_[sure]] = True
        else:
            sure = level[open_] > total[open_]
        open_ = open_[~sure]
    return taken
