"""Standard normals from random words, as `svrhmc.core.randomness` defines them, in loops that compile to vector code:
no calls, no branches that depend on the data. The quantile is

    Φ⁻¹(p) = (2p − 1) R(w),      w = −log(4p(1 − p)),

with R a polynomial in w for w < 6.25 (999 of 1000 draws) and in √w beyond. Relative error, tested: below 4e-16 in
float64 and 3e-7 in float32.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

from svrhmc.kernels import coefficients as table
from svrhmc.kernels.compiling import (
    ENTRY,
    INLINE,
    PLAIN,
    bits_of_float32,
    bits_of_float64,
    float32_of_bits,
    float64_of_bits,
    kept,
    polynomial,
    smaller,
    wide_vectors,
)
from svrhmc.kernels.words import random_words

LN2 = math.log(2.0)
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
_SPLIT = 6.25
# A normal is made in two loops, w and then R(w). In float64 one loop with both is a chain of operations too long for a
# processor to work on two turns of it at once, and takes a quarter longer.
_NORMAL = {**PLAIN, "fastmath": {"contract", "nsz"}}
_PART = 256  # normals in float64 between two looks for tails


def single(values):
    """The numbers in float32."""
    return tuple(np.float32(value) for value in values)


_QUANTILE32, _QUANTILE32_CENTRE = single(table.QUANTILE32), np.float32(table.QUANTILE32_CENTRE)
_QUANTILE32_TAIL, _QUANTILE32_TAIL_CENTRE = single(table.QUANTILE32_TAIL), np.float32(table.QUANTILE32_TAIL_CENTRE)
_QUANTILE64_NEAR, _QUANTILE64_FAR = np.array(table.QUANTILE64_NEAR), np.array(table.QUANTILE64_FAR)
_LOG32, _LOG32_CENTRE = single(table.LOG32), np.float32(table.LOG32_CENTRE)


@njit(**INLINE)
def _log64(u):
    """log u for normal u > 0: u = 2ᵉm with m from √½ to √2, log m = 2 atanh((m − 1)/(m + 1))."""
    bits = bits_of_float64(u) + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    e = (bits >> 52) - 1023
    m = float64_of_bits((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    tail = polynomial(table.LOG64, z - table.LOG64_CENTRE)
    return np.float64(e) * LN2_HIGH + (2.0 * s + (s * z * tail + np.float64(e) * LN2_LOW))


@njit(**INLINE)
def _log32(u):
    """log u in float32, from (log(1 + f) − f)/f²; a sum of two int32 is an int64 to numba, and made an int32 again."""
    bits = np.int32(bits_of_float32(u) + np.int32(0x3F800000 - 0x3F3504F3))
    e = np.float32(np.int32((bits >> np.int32(23)) - np.int32(127)))
    f = float32_of_bits(np.int32((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3))) - np.float32(1)
    tail = polynomial(_LOG32, f - _LOG32_CENTRE)
    return e * np.float32(LN2) + (f + f * f * tail)


@njit(**_NORMAL)
def _places64(coarse, fine, x, w):
    """x = ±(1 − 2p) and w; gives how many w lie in the tails."""
    wide_vectors()
    far = 0
    for i in range(len(x)):
        magnitude = np.float64(np.int32(coarse[i] & np.uint32(0x7FFFFFFF)))
        low = np.float64(np.int32(fine[i] >> np.uint32(1))) * 2.0 + np.float64(np.int32(fine[i] & np.uint32(1)))
        p2 = (magnitude + (low + 0.5) * 2.0**-32) * 2.0**-31
        x[i] = (1.0 - p2) if coarse[i] >> np.uint32(31) else (p2 - 1.0)
        wi = -_log64(p2 * (2.0 - p2))
        far += wi >= _SPLIT
        w[i] = wi
    return far


@njit(**_NORMAL)
def _stretch64(x, w):
    """x ← x R(w)."""
    wide_vectors()
    for i in range(len(x)):
        x[i] *= polynomial(table.QUANTILE64, w[i] - table.QUANTILE64_CENTRE)


@njit(**_NORMAL)
def _stretch_tails64(coarse, out, w):
    """The normals in the tails: |1 − 2p| = √(1 − e⁻ʷ)."""
    for i in range(len(out)):
        if w[i] >= _SPLIT:
            root = math.sqrt(w[i])
            near = root < 4.0
            powers = _QUANTILE64_NEAR if near else _QUANTILE64_FAR
            s = root - (table.QUANTILE64_NEAR_CENTRE if near else table.QUANTILE64_FAR_CENTRE)
            ratio = 0.0
            for k in range(len(powers) - 1, -1, -1):
                ratio = ratio * s + powers[k]
            z = math.sqrt(-math.expm1(-w[i])) * ratio
            out[i] = z if coarse[i] >> np.uint32(31) else -z


@njit(**_NORMAL)
def _places32(coarse, x, w):
    """x = ±(1 − 2p) and w; gives how many w lie in the tails."""
    wide_vectors()
    far = np.int32(0)
    for i in range(len(x)):
        m = np.int32(coarse[i] & np.uint32(0x7FFFFFFF))
        p2 = (np.float32(m) + np.float32(0.5)) * np.float32(2.0**-31)
        away = (np.float32(np.int32(np.int32(0x7FFFFFFF) - m)) + np.float32(0.5)) * np.float32(2.0**-31)
        x[i] = away if coarse[i] >> np.uint32(31) else -away
        wi = -_log32(p2 * (np.float32(2) - p2))
        far = np.int32(far + np.int32(wi >= np.float32(_SPLIT)))
        w[i] = wi
    return far


@njit(**_NORMAL)
def _stretch32(x, w):
    """x ← x R(w)."""
    wide_vectors()
    for i in range(len(x)):
        x[i] *= polynomial(_QUANTILE32, w[i] - _QUANTILE32_CENTRE)


@njit(**_NORMAL)
def _stretch_all32(x, w):
    """The same where some w lie in the tails."""
    wide_vectors()
    for i in range(len(x)):
        near = polynomial(_QUANTILE32, w[i] - _QUANTILE32_CENTRE)
        far = polynomial(_QUANTILE32_TAIL, np.float32(math.sqrt(w[i])) - _QUANTILE32_TAIL_CENTRE)
        x[i] *= near if w[i] < np.float32(_SPLIT) else far


def make_normals(words, count, normals):
    """Two rows of standard normals in their precision, from 32 or 64 bits each: coarse words in the first two rows,
    fine ones in the others. The third row of `normals` is room.
    """


@overload(make_normals, jit_options=PLAIN)
def _make_normals(words, count, normals):
    if normals.dtype == types.float32:

        def coarsely(words, count, normals):
            for k in range(2):
                coarse, out, w = words[k, :count], normals[k, :count], normals[2, :count]
                if _places32(coarse, out, w):
                    _stretch_all32(out, w)
                else:
                    _stretch32(out, w)

        return coarsely

    def finely(words, count, normals):
        for k in range(2):
            for low in range(0, count, _PART):
                high = smaller(count, low + _PART)
                coarse, fine = words[k, low:high], words[2 + k, low:high]
                out, w = normals[k, low:high], normals[2, low:high]
                far = _places64(coarse, fine, out, w)
                _stretch64(out, w)
                if far:
                    _stretch_tails64(coarse, out, w)

    return finely


@njit(**INLINE)
def fill_noise(k0, k1, base, count, noise, normals):
    """Normals of a chunk of steps, from `count` random blocks."""
    steps, slots, fine, words = noise.steps, noise.slots, noise.fine_slots, noise.words
    for k in range(2 if len(fine) else 1):
        random_words(k0, k1, base, count, steps, fine if k else slots, words, 2 * k)
    make_normals(words, count, normals)


@njit(**INLINE)
def take_normals(normals, step, half, z):
    """z = the normals of one step of a chunk: `half` blocks give two numbers each."""
    for k in range(len(z)):
        z[k] = normals[0, step * half + k] if k < half else normals[1, step * half + k - half]


@kept
@njit(**ENTRY)
def normals_of_steps(k0, k1, steps, slots, fine, zeros, words, room, out):
    """out[chain, step] = the normals of each step of each chain; `zeros`, `words` and `room` are as long as slots."""
    half, count = len(slots), out.shape[2]
    for chain in range(len(k0)):
        for s in range(len(steps)):
            random_words(k0[chain], k1[chain], steps[s], half, zeros, slots, words, 0)
            random_words(k0[chain], k1[chain], steps[s], half, zeros, fine, words, 2)
            make_normals(words, half, room)
            take_normals(room, 0, half, out[chain, s, :count])
