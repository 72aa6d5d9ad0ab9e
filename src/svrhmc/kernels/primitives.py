"""The primitives of `svrhmc.families.primitives` in compiled code, for float32 and float64.

Exponentials and logarithms that are polynomials become vector code in the loops that use them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
from numba import njit, types
from numba.extending import overload

from svrhmc.families.primitives import MILLS_TAIL, MILLS_TERMS, logistic_functions
from svrhmc.kernels import coefficients as table
from svrhmc.kernels.compiling import INLINE, PLAIN, float32_of_bits, float64_of_bits, larger, polynomial, smaller
from svrhmc.kernels.normals import LN2, LN2_HIGH, LN2_LOW, single

_EXP32 = single(table.EXP32)
_LOG1P32, _LOG1P32_CENTRE = single(table.LOG1P32), np.float32(table.LOG1P32_CENTRE)
_ROOT_HALF, _HALF_LOG = math.sqrt(0.5), 0.5 * math.log(2 * math.pi)
_FAR = 16.0  # from where on series in 1/z give all digits
_FEW = 32.0  # counts up to which logarithms are summed one by one


@lru_cache(maxsize=2)
def primitives(kind):
    """Those for numbers of this type, float32 or float64."""
    one = kind(1)

    def log1p_unit(e):
        s = e / (one + (one + e))
        return s * atanh_ratio(s * s)

    def where(condition, a, b):
        return a if condition else b

    op = SimpleNamespace(
        number=kind, exp=exp, log=math.log, log1p=math.log1p, expm1=math.expm1, maximum=larger, minimum=smaller,
        polynomial=polynomial, mills=mills, minus_log_normal=minus_log_normal, rising=rising, gamma_excess=gamma_excess,
        function=njit(**INLINE),
    )  # fmt: skip
    op.log1p_unit, op.where = op.function(log1p_unit), op.function(where)
    logistic_functions(op)
    op.soft = soft
    return op


def exp(t):
    """exp t = 2ᵏ exp(t − k log 2) in the precision of t, which is clamped to ±700, or ±87 in float32."""


@overload(exp, jit_options={**PLAIN, "forceinline": True})
def _exp(t):
    if t == types.float32:

        def coarse(t):
            t = smaller(larger(t, np.float32(-87)), np.float32(87))
            k = np.float32(math.floor(t * np.float32(1.0 / LN2) + np.float32(0.5)))
            r = (t - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
            power = np.int32(np.int32(np.int32(k) + np.int32(127)) << np.int32(23))
            return polynomial(_EXP32, r) * float32_of_bits(power)

        return coarse

    def fine(t):
        t = smaller(larger(t, -700.0), 700.0)
        k = math.floor(t * (1.0 / LN2) + 0.5)
        r = (t - k * LN2_HIGH) - k * LN2_LOW
        return polynomial(table.EXP64, r) * float64_of_bits((np.int64(k) + 1023) << 52)

    return fine


def atanh_ratio(square):
    """2 atanh(s)/s from s² ≤ 1/9, in the precision of its argument."""


@overload(atanh_ratio, jit_options={**PLAIN, "forceinline": True})
def _atanh_ratio(square):
    if square == types.float32:
        return lambda square: polynomial(_LOG1P32, square - _LOG1P32_CENTRE)
    return lambda square: polynomial(table.LOG1P64, square - table.LOG1P64_CENTRE)


@njit(**PLAIN)
def _tail_of_log_gamma(z):
    """log Γ(z) − ((z − ½) log z − z + ½ log 2π)."""
    r = 1.0 / (z * z)
    return (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * (1 / 1680 - r / 1188)))) / z


@njit(**PLAIN)
def _tail_of_digamma(z):
    """ψ(z) − log z."""
    r = 1.0 / (z * z)
    return -0.5 / z - r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r / 132))))


@njit(**PLAIN)
def rising(phi, y):
    """log Γ(y + φ)/Γ(φ) and ψ(y + φ) − ψ(φ), without differences of large numbers."""
    total = rate = 0.0
    z, left = phi, y
    while left > 0.0 and (y <= _FEW or z < _FAR):
        total += math.log(z)
        rate += 1.0 / z
        z += 1.0
        left -= 1.0
    if left > 0.0:
        gap, end = math.log1p(left / z), z + left
        total += (z - 0.5) * gap + left * (math.log(end) - 1.0)
        total += _tail_of_log_gamma(end) - _tail_of_log_gamma(z)
        rate += gap + (_tail_of_digamma(end) - _tail_of_digamma(z))
    return total, rate


@njit(**PLAIN)
def gamma_excess(alpha, theta):
    """α − α log α + log Γ(α) and ψ(α) − log α, θ = log α."""
    z, rate, total = alpha, 0.0, 0.0
    if alpha >= _FAR:
        return _HALF_LOG - 0.5 * theta + _tail_of_log_gamma(alpha), _tail_of_digamma(alpha)
    while z < _FAR:
        rate += 1.0 / z
        total += math.log(z)
        z += 1.0
    digamma = math.log(z) + _tail_of_digamma(z) - rate
    log_gamma = (z - 0.5) * math.log(z) - z + _HALF_LOG + _tail_of_log_gamma(z) - total
    return alpha - alpha * theta + log_gamma, digamma - theta


@njit(**PLAIN)
def soft(v):
    """log(1 + eᵛ), 1/(1 + e⁻ᵛ) and 1/(1 + eᵛ) of one number."""
    e = math.exp(-abs(v))
    near, far = 1.0 / (1.0 + e), e / (1.0 + e)
    value = larger(v, 0.0) + math.log1p(e)
    return (value, near, far) if v > 0.0 else (value, far, near)


@njit(**PLAIN)
def mills(s):
    """λ = φ(s)/Φ(s) and s + λ, in float64."""
    s = np.float64(s)
    if s < -MILLS_TAIL:
        x, rest = -s, 0.0
        for k in range(MILLS_TERMS, 1, -1):
            rest = k / (x + rest)
        rest = 1.0 / (x + rest)
        return x + rest, rest
    hazard = 2.0 * math.exp(-0.5 * s * s - _HALF_LOG) / math.erfc(-s * _ROOT_HALF)
    return hazard, s + hazard


@njit(**PLAIN)
def minus_log_normal(s, hazard):
    """−log Φ(s), where λ is known: below −4 by Φ = φ/λ."""
    s = np.float64(s)
    if s < -MILLS_TAIL:
        return 0.5 * s * s + _HALF_LOG + math.log(hazard)
    if s < 0.0:
        return -math.log(0.5 * math.erfc(-s * _ROOT_HALF))
    return -math.log1p(-0.5 * math.erfc(s * _ROOT_HALF))
