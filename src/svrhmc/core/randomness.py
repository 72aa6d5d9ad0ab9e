"""The one random stream: every random number is a function of (seed, chain, step, purpose, slot).

A block of the counter-based generator Threefry-2x32-20 (Salmon, Moraes, Dror & Shaw, SC 2011) maps a 64-bit key and
a 64-bit counter to two 32-bit words:

    key     = threefry(key = seed, counter = (chain, step div 2³²))
    w₀, w₁  = threefry(key, counter = (step mod 2³², purpose·2²⁸ + slot))

so a chain depends neither on the chains beside it, nor on threads, nor on the pieces a run is cut into.

`count` standard normals of one step take the first words of the blocks 0 … h−1 and then their second words,
h = ⌈count/2⌉. A word w gives the sign (top bit) and 31 bits m of magnitude; a second purpose supplies 32 further bits
w′, so that with p = (m + (w′ + ½)/2³²)/2³² ∈ (0, ½)

    ξ = ± Φ⁻¹(p),         |ξ| < 9.3.

The float32 normal is the same with w′ dropped ((m + ½)/2³², |ξ| < 6.4): a float32 chain follows its float64 twin.

An index below `bound` ≤ 2³² is ⌊(w₀·2³² + w₁)·bound/2⁶⁴⌋: no index is more likely than another by over 2⁻³².
Sets without replacement are drawn by Floyd's method, exactly uniform over all subsets. An alias table takes its
bucket so, and its coin from what that division leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import settle, whole

Words = npt.NDArray[np.uint32]

MAX_SLOTS = 1 << 28
MAX_BOUND = 1 << 32
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
_LOW = 0xFFFFFFFF


class Purpose(IntEnum):
    """What a random word is for; part of the counter, so that no two uses share a word."""

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


Steps = int | npt.NDArray[np.int64]


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
    chains: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        settle(self, seed=whole("seed", self.seed, 0, (1 << 64) - 1))

    def normals(
        self, step: Steps, count: int, purpose: Purpose = Purpose.NOISE, fine: Purpose = Purpose.NOISE_FINE
    ) -> npt.NDArray[np.float64]:
        """Standard normals, shape (chains, count), from 64 bits each; (chains, steps, count) for an array of steps."""
        from scipy.special import ndtri

        half = (count + 1) // 2
        coarse = np.concatenate(self.words(step, purpose, half), axis=-1)[..., :count]
        refine = np.concatenate(self.words(step, fine, half), axis=-1)[..., :count]
        magnitude = (coarse & np.uint32(0x7FFFFFFF)).astype(np.float64)
        p = (magnitude + (refine.astype(np.float64) + 0.5) * 2.0**-32) * 2.0**-32
        z: npt.NDArray[np.float64] = ndtri(p)
        return np.where(coarse >> np.uint32(31), -z, z)

    def uniforms(self, step: Steps, count: int, purpose: Purpose) -> npt.NDArray[np.float64]:
        """Uniform numbers between 0 and 1, from 52 bits each, in the shape of `normals`."""
        w0, w1 = (w.astype(np.uint64) for w in self.words(step, purpose, count))
        bits = (w0 << np.uint64(20)) | (w1 >> np.uint64(12))
        return np.asarray((bits.astype(np.float64) + 0.5) * 2.0**-52, np.float64)

    def indices(
        self, step: int, count: int, bound: int, replacement: bool, purpose: Purpose = Purpose.BATCH
    ) -> npt.NDArray[np.int64]:
        """Row numbers below `bound`, shape (chains, count); distinct within a chain unless `replacement`."""
        w0, w1 = (w.astype(np.uint64) for w in self.words(step, purpose, count))
        if replacement:
            return _below(w0, w1, np.uint64(bound))
        first = bound - count
        picks = _below(w0, w1, np.arange(first + 1, bound + 1, dtype=np.uint64))
        for j in range(1, count):  # Floyd: a number already taken is replaced by the newest possible one
            taken = (picks[:, :j] == picks[:, j : j + 1]).any(axis=1)
            picks[taken, j] = first + j
        return picks

    def weighted(
        self, step: int, count: int, threshold: Words, alias: npt.NDArray[np.int64], purpose: Purpose = Purpose.BATCH
    ) -> npt.NDArray[np.int64]:
        """Row numbers drawn by an alias table, shape (chains, count), each from the block that `indices` would use."""
        w0, w1 = (w.astype(np.uint64) for w in self.words(step, purpose, count))
        bucket, rest = divide(w0, w1, np.uint64(len(alias)))
        return np.where(rest < threshold[bucket], bucket, alias[bucket])

    def words(self, step: Steps, purpose: Purpose, slots: int) -> tuple[Words, Words]:
        """Two random words for each slot of a step, (chains, slots) each; (chains, steps, slots) for an array of steps,
        all of them within one stretch from high·2³² on.
        """
        low = (np.asarray(step) & _LOW).astype(np.uint32)[..., None]
        high = int(np.asarray(step).flat[0]) >> 32
        k0, k1 = (key.reshape(-1, *(1,) * low.ndim) for key in self.keys(high))
        slot = np.arange(slots, dtype=np.uint32) + np.uint32(int(purpose) * MAX_SLOTS)
        return threefry2x32((k0, k1), (low, slot))

    @lru_cache(maxsize=2)  # noqa: B019 - a stream lives as long as its run
    def keys(self, high: int) -> tuple[Words, Words]:
        """Each chain's key, (chains,) words, for the steps from high·2³² on."""
        seed = np.array([self.seed & _LOW], np.uint32), np.array([self.seed >> 32], np.uint32)
        return threefry2x32(seed, (self.chains.astype(np.uint32), np.array([high], np.uint32)))


def _below(
    w0: npt.NDArray[np.uint64], w1: npt.NDArray[np.uint64], bound: np.uint64 | npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """⌊(w₀·2³² + w₁)·bound/2⁶⁴⌋."""
    return divide(w0, w1, bound)[0]


def divide(
    w0: npt.NDArray[np.uint64], w1: npt.NDArray[np.uint64], bound: np.uint64 | npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """(w₀·2³² + w₁)·bound/2⁶⁴, its whole part and 2³² times the rest: two 64-bit products, whose sum stays in 64 bits.

    On arrays of uint64, NumPy's or JAX's.
    """
    product = w0 * bound + ((w1 * bound) >> np.uint64(32))
    return (product >> np.uint64(32)).astype(np.int64), product & np.uint64(_LOW)
