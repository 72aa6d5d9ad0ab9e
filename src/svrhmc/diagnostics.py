"""Effective draws, R-hat and standard errors of many quantities at once.

They are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), the same numbers as ArviZ's: `ess` with
Geyer's monotone positive pairs on split chains, `bulk_ess` and `rank_r_hat` of normal scores, `tail_ess` of the shares
below the 5% and 95% quantiles. All look at some quantities at a time, and at one chain after another where these are
long. (ArviZ's own functions are not called: it is an optional extra, and takes quantities one by one in Python.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from itertools import pairwise

import numpy as np

from svrhmc.core.arrays import Array, scaling_unit
from svrhmc.core.progress import set_share_done
from svrhmc.core.recording import compute_array_once

_BLOCK = 1 << 18  # numbers of draws looked at in one piece
_LONG = 1 << 19  # numbers from which the chains of a piece are transformed one by one
_TAILS = (0.05, 0.95)


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
        values = []
        for block in some_columns(chains * count, columns):
            values.append(compute_array_once(partial(measure, draws[:, :, block]), (block.stop - block.start,)))
            set_share_done(block.stop / columns)
        return np.concatenate(values)

    return measured


@by_columns
def ess(draws: Array) -> Array:
    """Effective draws for the mean of each quantity: (chain, draw, quantity) → (quantity,), at least 4 draws a chain.

    N/τ with τ = −1 + 2 Σ_{k<K} P̂ₖ + max(ρ̂ at 2K, 0), ρ̂ the autocorrelation pooled over split chains, P̂ₖ = ρ̂₂ₖ +
    ρ̂₂ₖ₊₁ made monotone, and K the first pair that is not positive (or the last there is, whose ρ̂ may be below 0).
    """
    return _effective_draws(_split_chains(draws))


def _effective_draws(split: Array) -> Array:
    """Of chains that are split already."""
    chains, n, count = split.shape
    covariance = _covariances(split)
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
    is_summed = np.arange(last + 1)[:, None] < first
    tail = np.take_along_axis(rho, 2 * first[None, :], axis=0)[0]
    ended = np.take_along_axis(pairs, first[None, :], axis=0)[0] > 0  # by the length of the chains
    tail = np.where(ended, tail, np.maximum(tail, 0.0))
    tau = 2 * np.where(is_summed, np.minimum.accumulate(pairs, axis=0), 0.0).sum(axis=0) - 1 + tail
    tau = np.maximum(tau, 1 / np.log10(chains * n))
    return np.where(moving, chains * n / tau, float(chains * n))


def _covariances(split: Array) -> Array:
    """Covariances (lag, quantity) within chains, averaged over them, by one transform of each chain."""
    from scipy.fft import irfft, next_fast_len, rfft

    chains, n, count = split.shape
    size = next_fast_len(2 * n, real=True)
    at_once = chains if split.size < _LONG else 1
    spectrum = np.zeros((count, size // 2 + 1))
    for begin in range(0, chains, at_once):
        block = split[begin : begin + at_once]
        centred = np.ascontiguousarray((block - block.mean(axis=1, keepdims=True)).transpose(2, 0, 1))
        powers = rfft(centred, size)
        spectrum += (np.abs(powers) ** 2).sum(axis=1)
    return np.asarray(irfft(spectrum / chains, size)[:, :n].T / n, np.float64)


@by_columns
def r_hat(draws: Array) -> Array:
    """√(var⁺/within) of split chains, for each quantity."""
    return _split_r_hat(_split_chains(draws))


def _split_r_hat(split: Array) -> Array:
    n = split.shape[1]
    within = np.mean([chain.var(axis=0, ddof=1) for chain in split], axis=0)
    between = split.mean(axis=1).var(axis=0, ddof=1)
    least = np.maximum(within, np.finfo(np.float64).eps ** 2 * between)  # of halves that stand still, but apart
    ratio: Array = ((n - 1) / n * within + between) / np.where(least > 0, least, 1.0)
    return np.sqrt(np.where(least > 0, ratio, 1.0))


@by_columns
def bulk_ess(draws: Array) -> Array:
    """Effective draws for the middle of the law: those of the normal scores."""
    return _effective_draws(_normal_scores(_split_chains(draws)))


@by_columns
def tail_ess(draws: Array) -> Array:
    """Effective draws for the tails: the fewer of those for the shares below the 5% and the 95% quantile."""
    ends = np.quantile(draws, _TAILS, axis=(0, 1))
    return np.minimum(*(_effective_draws(_split_chains(draws <= end).astype(np.float64)) for end in ends))


@by_columns
def rank_r_hat(draws: Array) -> Array:
    """The larger R-hat of the normal scores of x and of |x − median|."""
    bulk = _split_r_hat(_normal_scores(_split_chains(draws)))
    folded = _split_chains(draws)
    folded -= [np.median(folded[:, :, k]) for k in range(folded.shape[2])]
    return np.maximum(bulk, _split_r_hat(_normal_scores(np.abs(folded, out=folded))))


@by_columns
def spread(draws: Array) -> Array:
    """The standard deviation of each quantity over all draws of all chains."""
    unit = _scaling_units(draws)
    return np.asarray(unit * (draws / unit).reshape(-1, draws.shape[2]).std(axis=0, ddof=1), np.float64)


def _scaling_units(draws: Array) -> Array | float:
    """A unit for each quantity in which it can be squared; beside one of 1e290 others would be 0 in the same unit."""
    if scaling_unit(draws) == 1.0:
        return 1.0
    return np.array([scaling_unit(draws[..., k]) for k in range(draws.shape[-1])])


def _normal_scores(draws: Array) -> Array:
    """Φ⁻¹((rank − 3/8)/(N + 1/4)) of each draw among all of its quantity, in its place; those that are equal have
    their mean rank.
    """
    from scipy.special import ndtri

    for k in range(draws.shape[2]):
        x = draws[:, :, k].reshape(-1)
        order = np.argsort(x, kind="stable")
        x = x[order]
        ranks, is_new_value = np.arange(1.0, len(x) + 1), x[1:] != x[:-1]
        if not is_new_value.all():
            ends = np.flatnonzero(np.append(is_new_value, True)) + 1  # one past the last of each group
            begins = np.append(0, ends[:-1])
            ranks = np.repeat((begins + ends + 1) / 2, ends - begins)
        ranks -= 3 / 8
        ranks /= len(x) + 1 / 4
        x[order] = ranks
        del ranks, order
        draws[:, :, k] = ndtri(x, out=x).reshape(draws.shape[:2])
    return draws


@by_columns
def standard_error(draws: Array) -> Array:
    """Of the mean of each quantity: sd/√ess."""
    return np.asarray(spread(draws) / np.sqrt(ess(draws)), np.float64)


def _split_chains(draws: Array) -> Array:
    """Each chain as two halves, the middle draw of an odd number dropped; in a unit in which squares can be taken."""
    half, unit = draws.shape[1] // 2, _scaling_units(draws)
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]]) / unit
