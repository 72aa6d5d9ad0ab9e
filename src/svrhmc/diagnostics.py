"""Effective draws, R-hat and standard errors of many quantities at once.

The effective sample size is ArviZ's `ess(method="mean")` (Vehtari et al. 2021; Geyer's monotone positive pairs on split
chains), for all coordinates in one transform: a run asks for it again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from itertools import pairwise

import numpy as np

from svrhmc.core.arrays import Array, unit_of

_BLOCK = 1 << 18  # numbers of draws looked at in one piece


def some_columns(rows: int, columns: int) -> list[slice]:
    """Columns, some at a time, of a table with so many rows; never one alone, whose sums would run in another order."""
    wide = max(2, _BLOCK // max(1, rows))
    ends = [*range(0, max(columns - 1, 1), wide), columns]
    return [slice(low, high) for low, high in pairwise(ends)]


def by_columns(measure: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A measure of each quantity of (chain, draw, quantity), some quantities at a time: its room does not grow with
    their number.
    """

    @wraps(measure)
    def measured(draws: Array) -> Array:
        chains, count, columns = draws.shape
        return np.concatenate([measure(draws[:, :, some]) for some in some_columns(chains * count, columns)])

    return measured


@by_columns
def ess(draws: Array) -> Array:
    """Effective draws for the mean of each quantity: (chain, draw, quantity) → (quantity,), at least 4 draws a chain.

    N/τ with τ = −1 + 2 Σ_{k<K} P̂ₖ + max(ρ̂ at 2K, 0), ρ̂ the autocorrelation pooled over split chains, P̂ₖ = ρ̂₂ₖ +
    ρ̂₂ₖ₊₁ made monotone, and K the first pair that is not positive (or the last there is, whose ρ̂ may be below 0).
    """
    from scipy.fft import irfft, next_fast_len, rfft

    split = _split(draws)
    chains, n, count = split.shape
    away = np.ascontiguousarray((split - split.mean(axis=1, keepdims=True)).transpose(2, 0, 1))
    size = next_fast_len(2 * n, real=True)
    spectrum = (np.abs(rfft(away, size)) ** 2).mean(axis=1)
    covariance = irfft(spectrum, size)[:, :n].T / n  # (lag, quantity)
    within = covariance[0] * n / (n - 1)
    total = covariance[0] + split.mean(axis=1).var(axis=0, ddof=1)
    moving = total > 0
    rho = 1 - (within - covariance) / np.where(moving, total, 1.0)
    rho[0] = 1.0
    last = max(0, (n - 3) // 2)  # the last pair that is looked at
    pairs = rho[: 2 * last + 2].reshape(-1, 2, count).sum(axis=1)
    stops = pairs <= 0
    stops[last] = True
    first = stops.argmax(axis=0)
    kept = np.arange(last + 1)[:, None] < first
    tail = np.take_along_axis(rho, 2 * first[None, :], axis=0)[0]
    ended = np.take_along_axis(pairs, first[None, :], axis=0)[0] > 0  # by the length of the chains
    tail = np.where(ended, tail, np.maximum(tail, 0.0))
    tau = 2 * np.where(kept, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0) - 1 + tail
    tau = np.maximum(tau, 1 / np.log10(chains * n))
    return np.where(moving, chains * n / tau, float(chains * n))


@by_columns
def r_hat(draws: Array) -> Array:
    """√(var⁺/within) of split chains, for each quantity."""
    split = _split(draws)
    n = split.shape[1]
    within = split.var(axis=1, ddof=1).mean(axis=0)
    between = split.mean(axis=1).var(axis=0, ddof=1)
    least = np.maximum(within, np.finfo(np.float64).eps ** 2 * between)  # of halves that stand still, but apart
    ratio: Array = ((n - 1) / n * within + between) / np.where(least > 0, least, 1.0)
    return np.sqrt(np.where(least > 0, ratio, 1.0))


@by_columns
def standard_error(draws: Array) -> Array:
    """Of the mean of each quantity: sd/√ess."""
    unit = unit_of(draws)
    spread = unit * (draws / unit).reshape(-1, draws.shape[2]).std(axis=0, ddof=1)
    return np.asarray(spread / np.sqrt(ess(draws)), np.float64)


def _split(draws: Array) -> Array:
    """Each chain as two halves, the middle draw of an odd number dropped; in a unit in which squares can be taken."""
    half, unit = draws.shape[1] // 2, unit_of(draws)
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]]) / unit
