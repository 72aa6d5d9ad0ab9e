"""Draws with unequal probabilities in constant time: Walker's alias table.

Cell i of n is taken with probability 1/n; it gives i with probability thresholdᵢ/2³², else aliasᵢ. From one block
(w₀, w₁) of the random stream, with the products of `svrhmc.core.randomness`,

    sum = w₀n + ⌊w₁n/2³²⌋,   i = ⌊sum/2³²⌋,   i if sum mod 2³² < thresholdᵢ, else aliasᵢ.

The table is filled as by Vose (IEEE Trans. Softw. Eng. 17, 1991) with the cells in their order: D, the running sum of
what light cells lack, and S, that of what heavy ones have too much, say who fills whom. So it takes two binary searches
and no loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import real_array, requirement
from svrhmc.core.randomness import MAX_BOUND, divide

_UNIT = 1 << 32


class AliasTable(NamedTuple):
    """`probabilities` are those of the table as it stands, 32-bit thresholds and all: exact to float64."""

    threshold: npt.NDArray[np.uint32]
    alias: Indices
    probabilities: Array

    def pick(self, w0: npt.NDArray[np.uint32], w1: npt.NDArray[np.uint32]) -> Indices:
        """Numbers from random words."""
        cell, rest = divide(w0.astype(np.uint64), w1.astype(np.uint64), np.uint64(len(self.threshold)))
        return np.where(rest < self.threshold[cell], cell, self.alias[cell])


def alias_table(weights: npt.ArrayLike) -> AliasTable:
    """The table of probabilities ∝ weights.

    A light cell's threshold is rounded up, so that no positive weight is lost: what is drawn too rarely, is so by a
    relative 2⁻³² or so.

    >>> alias_table([1.0, 2.0, 5.0]).probabilities.round(6)
    array([0.125, 0.25 , 0.625])
    """
    w = np.asarray(real_array("weights", weights, ("n",)), np.float64)
    total = float(w.sum())
    if w.min() < 0 or not 0 < total < np.inf:
        raise requirement("weights", "not below 0, with a positive finite sum", f"{w.min():g} to {w.max():g}")
    n = len(w)
    if n > MAX_BOUND:
        raise requirement("weights", f"at most {MAX_BOUND} numbers", n)
    share = w * (n / total)
    rich = share >= 1
    rich[np.argmax(share)] = True  # equal weights may all round to less than 1
    light, heavy = np.flatnonzero(~rich), np.flatnonzero(rich)
    D, S = np.cumsum(1 - share[light]), np.cumsum(np.maximum(share[heavy] - 1, 0))
    threshold, alias = np.full(n, float(_UNIT)), np.arange(n)
    threshold[light] = np.ceil(share[light] * _UNIT)
    alias[light] = heavy[np.minimum(np.searchsorted(S, D - (1 - share[light]), "left"), len(heavy) - 1)]
    emptied = np.searchsorted(D, S[:-1], "right")  # the light cell that takes more than is left
    runs_out = np.flatnonzero(emptied < len(light))
    lacking = D[emptied[runs_out]] - S[runs_out]
    threshold[heavy[runs_out]] = np.rint((1 - lacking) * _UNIT)
    alias[heavy[runs_out]] = heavy[runs_out + 1]
    threshold = np.clip(threshold, 0, _UNIT)
    full = threshold == _UNIT
    alias[full] = np.flatnonzero(full)
    kept = threshold / _UNIT
    probabilities = (kept + np.bincount(alias, 1 - kept, n)) / n
    return AliasTable(np.minimum(threshold, _UNIT - 1).astype(np.uint32), alias, probabilities)


def mixed(weights: Array) -> Array:
    """Probabilities in proportion to the weights, with a tenth shared evenly, so that none is divided by nearly 0."""
    total = float(weights.sum())
    even = np.full(len(weights), 1 / len(weights))
    return 0.9 * weights / total + 0.1 * even if total > 0 else even
