"""Some of many draws or rows, spread evenly over all of them."""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array, Indices


def even_draws(chains: int, count: int, most: int) -> tuple[int, Indices]:
    """At most `most` draws of chains with `count` draws each: how many chains to use, and which draws of each.

    >>> even_draws(4, 100, 12), even_draws(4, 100, 3)
    ((4, array([ 0, 50, 99])), (3, array([0])))
    """
    per_chain = max(1, min(count, most // chains)) if chains <= most else 1
    return min(chains, most), np.unique(np.linspace(0, count - 1, per_chain).round().astype(np.int64))


def thin_chains(draws: Array, most: int) -> Array:
    """At most `most` of the draws (chain, draw, dim), evenly from every chain: (chain, draw, dim)."""
    chains, places = even_draws(draws.shape[0], draws.shape[1], most)
    return draws[:chains, places]


def thin_draws(draws: Array, most: int) -> Array:
    """At most `most` of the draws (chain, draw, dim), evenly from every chain: (draws, dim)."""
    return np.ascontiguousarray(thin_chains(draws, most).reshape(-1, draws.shape[2]))


def even_rows(n: int, most: int, seed: int) -> Indices:
    """At most `most` of n rows, one drawn at random from each of as many equal stretches, so that no period in the
    order of the rows is in step with them.

    >>> even_rows(5, 9, 0), len(even_rows(1000, 10, 0))
    (array([0, 1, 2, 3, 4]), 10)
    """
    if n <= most:
        return np.arange(n)
    ends = np.linspace(0, n, most + 1)
    u = np.random.default_rng(seed).random(most)
    return np.minimum((ends[:-1] + u * np.diff(ends)).astype(np.int64), n - 1)
