"""The one random stream: every random number is a function of (seed, chain, step, purpose, slot).

A block of the counter-based generator Threefry-2x32-20 (Salmon, Moraes, Dror & Shaw, SC 2011) maps a 64-bit key and
a 64-bit counter to two 32-bit words:

    key     = threefry(key = seed, counter = (chain, step div 2³²))
    w₀, w₁  = threefry(key, counter = (step mod 2³², purpose·2²⁸ + slot))

so that a chain depends neither on the other chains, nor on threads, nor on how a run is divided into calls.

`count` standard normals of one step take the first words of the blocks 0 … h−1 and then their second words,
h = ⌈count/2⌉. A word w gives the sign (top bit) and 31 bits m of magnitude; a second purpose supplies 32 further bits
w′, so that with p = (m + (w′ + ½)/2³²)/2³² ∈ (0, ½)

    ξ = ± Φ⁻¹(p),         |ξ| < 9.3.

The float32 normal is the same with w′ dropped ((m + ½)/2³², |ξ| < 6.4): a float32 chain follows its float64 twin.

An index below `bound` ≤ 2³² is ⌊(w₀·2³² + w₁)·bound/2⁶⁴⌋: no index is more likely than another by over 2⁻³².
Sets without replacement are drawn by Floyd's method, exactly uniform over all subsets.

Indices with unequal probabilities take constant time by Walker's alias table: cell i of n is taken with probability
1/n; it gives i with probability thresholdᵢ/2³², else aliasᵢ. From one block (w₀, w₁) of the stream,

    sum = w₀n + ⌊w₁n/2³²⌋,   i = ⌊sum/2³²⌋,   i if sum mod 2³² < thresholdᵢ, else aliasᵢ.

SciPy's alias table (`scipy.stats.sampling.DiscreteAliasUrn`) takes its random numbers from a generator with a state,
where engines need the table itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import real_array, requirement, set_fields, whole_number

Words = npt.NDArray[np.uint32]

MAX_SLOTS = 1 << 28
MAX_BOUND = 1 << 32
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_LOW = 0xFFFFFFFF
_UNIT = 1 << 32


class Purpose(IntEnum):
    """What a random word is used for: a part of the counter, so that no two uses share a word."""

    NOISE = 0
    NOISE_FINE = 1
    BATCH = 2
    SNAPSHOT = 3
    DATA = 4
    DATA_FINE = 5
    PROJECTION = 6
    PROJECTION_FINE = 7
    START = 8
    START_FINE = 9
    ACCEPT = 10
    COUNT = 11
    PICK = 12
    NEW = 13
    NEW_FINE = 14
    JUMP = 15


Steps = int | Indices


def threefry2x32(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """Threefry-2x32 with 20 rounds, on arrays of uint32, NumPy's or JAX's, that broadcast against each other."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    with np.errstate(over="ignore"):
        x0, x1 = counter[0] + keys[0], counter[1] + keys[1]
        for group in range(5):
            for rotation in _ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))) ^ x0
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


@dataclass(frozen=True, eq=False)
class Stream:
    """The random numbers of some chains of one seed.

    >>> together = Stream(seed=7, chains=np.arange(4)).normals(step=3, count=5)
    >>> alone = Stream(seed=7, chains=np.array([2])).normals(step=3, count=5)
    >>> bool((together[2] == alone[0]).all())
    True
    """

    seed: int
    chains: Indices

    def __post_init__(self) -> None:
        set_fields(self, seed=whole_number("seed", self.seed, 0, (1 << 64) - 1))

    def normals(
        self, step: Steps, count: int, purpose: Purpose = Purpose.NOISE, fine: Purpose = Purpose.NOISE_FINE
    ) -> Array:
        """Standard normals, shape (chains, count), from 64 bits each; (chains, steps, count) for an array of steps."""
        from scipy.special import ndtri

        half = (count + 1) // 2
        coarse = np.concatenate(self.words(step, purpose, half), axis=-1)[..., :count]
        refine = np.concatenate(self.words(step, fine, half), axis=-1)[..., :count]
        magnitude = (coarse & np.uint32(0x7FFFFFFF)).astype(np.float64)
        p = (magnitude + (refine.astype(np.float64) + 0.5) * 2.0**-32) * 2.0**-32
        z: Array = ndtri(p)
        return np.where(coarse >> np.uint32(31), -z, z)

    def uniforms(self, step: Steps, count: int, purpose: Purpose) -> Array:
        """Uniform numbers between 0 and 1, from 52 bits each, in the shape of `normals`."""
        w0, w1 = (w.astype(np.uint64) for w in self.words(step, purpose, count))
        bits = (w0 << np.uint64(20)) | (w1 >> np.uint64(12))
        return np.asarray((bits.astype(np.float64) + 0.5) * 2.0**-52, np.float64)

    def indices(
        self, step: int, count: int, bound: int, replacement: bool, purpose: Purpose = Purpose.BATCH
    ) -> Indices:
        """Indices below `bound`, shape (chains, count); distinct within a chain unless `replacement`."""
        w0, w1 = (w.astype(np.uint64) for w in self.words(step, purpose, count))
        if replacement:
            return scale_words(w0, w1, np.uint64(bound))[0]
        first = bound - count
        picks = scale_words(w0, w1, np.arange(first + 1, bound + 1, dtype=np.uint64))[0]
        for j in range(1, count):  # Floyd: a number already taken is replaced by the newest possible one
            is_taken = (picks[:, :j] == picks[:, j : j + 1]).any(axis=1)
            picks[is_taken, j] = first + j
        return picks

    def weighted_indices(
        self, step: int, count: int, threshold: Words, alias: Indices, purpose: Purpose = Purpose.BATCH
    ) -> Indices:
        """Indices drawn by an alias table, shape (chains, count), each from the block that `indices` would use."""
        return alias_indices(*self.words(step, purpose, count), threshold, alias)

    def words(self, step: Steps, purpose: Purpose, slots: int) -> tuple[Words, Words]:
        """Two random words for each slot of a step, (chains, slots) each; (chains, steps, slots) for an array of steps,
        which must have the same step div 2³².
        """
        low = (np.asarray(step) & _LOW).astype(np.uint32)[..., None]
        high = int(np.asarray(step).flat[0]) >> 32
        k0, k1 = (key.reshape(-1, *(1,) * low.ndim) for key in self.keys(high))
        return threefry2x32((k0, k1), (low, slot_counters(purpose, slots)))

    @lru_cache(maxsize=2)  # noqa: B019 - a stream lives as long as its run
    def keys(self, high: int) -> tuple[Words, Words]:
        """Each chain's key, (chains,) words, for the steps from high·2³² on."""
        seed = np.array([self.seed & _LOW], np.uint32), np.array([self.seed >> 32], np.uint32)
        return threefry2x32(seed, (self.chains.astype(np.uint32), np.array([high], np.uint32)))


def slot_counters(purpose: Purpose, count: int) -> Words:
    """The second words of the counters of the first `count` slots."""
    return np.arange(count, dtype=np.uint32) + np.uint32(int(purpose) * MAX_SLOTS)


def scale_words(
    w0: npt.NDArray[np.uint64], w1: npt.NDArray[np.uint64], bound: np.uint64 | npt.NDArray[np.uint64]
) -> tuple[Indices, npt.NDArray[np.uint64]]:
    """(w₀·2³² + w₁)·bound/2⁶⁴: its integer part, and 2³² times its fraction, by two 64-bit products whose sum stays in
    64 bits. On arrays of uint64, NumPy's or JAX's.
    """
    product = w0 * bound + ((w1 * bound) >> np.uint64(32))
    return (product >> np.uint64(32)).astype(np.int64), product & np.uint64(_LOW)


class AliasTable(NamedTuple):
    """An alias table; `probabilities` are those that its 32-bit thresholds give, exact to float64."""

    threshold: Words
    alias: Indices
    probabilities: Array


def alias_indices(w0: Words, w1: Words, threshold: Words, alias: Indices) -> Indices:
    """Indices by an alias table, from random words."""
    cell, rest = scale_words(w0.astype(np.uint64), w1.astype(np.uint64), np.uint64(len(alias)))
    return np.where(rest < threshold[cell], cell, alias[cell])


def alias_table(weights: npt.ArrayLike) -> AliasTable:
    """The table of probabilities ∝ weights.

    It is filled as by Vose (IEEE Trans. Softw. Eng. 17, 1991) with the cells in their order: D, the running sum of the
    deficits of light cells, and S, that of the surpluses of heavy ones, determine which cell fills which. So it takes
    two binary searches and no loop. A light cell's threshold is rounded up, so that no positive weight is lost: a
    probability is too small by a relative 2⁻³² or so at most.

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
    is_heavy = share >= 1
    is_heavy[np.argmax(share)] = True  # equal weights may all round to less than 1
    light, heavy = np.flatnonzero(~is_heavy), np.flatnonzero(is_heavy)
    D, S = np.cumsum(1 - share[light]), np.cumsum(np.maximum(share[heavy] - 1, 0))
    threshold, alias = np.full(n, float(_UNIT)), np.arange(n)
    threshold[light] = np.ceil(share[light] * _UNIT)
    alias[light] = heavy[np.minimum(np.searchsorted(S, D - (1 - share[light]), "left"), len(heavy) - 1)]
    emptied = np.searchsorted(D, S[:-1], "right")  # the light cell that takes more than a heavy one has left
    runs_out = np.flatnonzero(emptied < len(light))
    lacking = D[emptied[runs_out]] - S[runs_out]
    threshold[heavy[runs_out]] = np.rint((1 - lacking) * _UNIT)
    alias[heavy[runs_out]] = heavy[runs_out + 1]
    threshold = np.clip(threshold, 0, _UNIT)
    full = threshold == _UNIT
    alias[full] = np.flatnonzero(full)
    own_share = threshold / _UNIT
    probabilities = (own_share + np.bincount(alias, 1 - own_share, n)) / n
    return AliasTable(np.minimum(threshold, _UNIT - 1).astype(np.uint32), alias, probabilities)


def mix_with_uniform(weights: Array) -> Array:
    """Probabilities 0.9·weights/Σweights + 0.1/n: bounded away from 0, since estimates divide by them."""
    total = float(weights.sum())
    uniform = np.full(len(weights), 1 / len(weights))
    return 0.9 * weights / total + 0.1 * uniform if total > 0 else uniform
