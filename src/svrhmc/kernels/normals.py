"""Scalar functions that LLVM can vectorise: Threefry, normal quantiles, log, exp and the slopes of the losses.

Loops over these compile to vector code: no calls, no branches that depend on the data. The random words and the normals
are those that `svrhmc.core.randomness` defines; the quantile is

    Φ⁻¹(p) = (2p − 1) R(w),      w = −log(4p(1 − p)),

with R a polynomial in w for w < 6.25 (999 of 1000 draws) and in √w beyond. Relative error, tested: below 4e-16 in
float64 and 3e-7 in float32.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from svrhmc.engines import coefficients as table

# No nnan or ninf: a diverged chain must stay visible as such.
FAST = {"reassoc", "contract", "nsz", "arcp"}
# Without its runtime numba cannot allocate, nor count references, in these functions; and only engines call them.
PLAIN = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
QUICK = {**PLAIN, "fastmath": FAST}
INLINE = {**PLAIN, "inline": "always"}  # no function of its own to compile
ENTRY = {"error_model": "numpy", "_nrt": False, "nogil": True, "cache": True, "no_cfunc_wrapper": True}
LOGISTIC, SQUARED = 0, 1

_LN2 = math.log(2.0)
_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
_SPLIT = 6.25


def _cast(source, target):
    @intrinsic
    def bits(context, value):
        def generate(context, builder, signature, arguments):
            return builder.bitcast(arguments[0], context.get_value_type(target))

        return target(source), generate

    return bits


_bits_of_float64 = _cast(types.float64, types.int64)
_float64_of_bits = _cast(types.int64, types.float64)
_bits_of_float32 = _cast(types.float32, types.int32)
_float32_of_bits = _cast(types.int32, types.float32)


@intrinsic
def prefetch(context, array, offset):
    """Ask for the cache line that holds element `offset` of a flat array."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.bitcast(builder.gep(view.data, [arguments[1]]), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3])
        function = builder.module.declare_intrinsic("llvm.prefetch", [ir.IntType(8).as_pointer()], kind)
        builder.call(function, [pointer, *(ir.Constant(ir.IntType(32), k) for k in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def peek(context, array, offset):
    """Element `offset` of a flat array, with no thought of negative offsets, so that sums of indices vectorise."""

    def generate(context, builder, signature, arguments):
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(view.data, [arguments[1]]))

    return array.dtype(array, types.intp), generate


@intrinsic
def wide_vectors(context):
    """Let LLVM use the widest vectors in the calling function, which is kept apart from its callers for that."""

    def generate(context, builder, signature, arguments):
        attributes = builder.function.attributes
        attributes.add("noinline")
        set.add(attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def unshared(context):
    """Tell LLVM that what the calling function writes through one argument is read through no other."""

    def generate(context, builder, signature, arguments):
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.void(), generate


@njit(forceinline=True, **PLAIN)
def threefry(k0, k1, c0, c1):
    """Threefry-2x32-20 on uint32; see `svrhmc.core.randomness`."""
    k2 = k0 ^ k1 ^ np.uint32(0x1BD11BDA)
    x0, x1 = np.uint32(c0 + k0), np.uint32(c1 + k1)
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(1))
    x0, x1 = _four(x0, x1, 17, 29, 16, 24)
    x0, x1 = np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(2))
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    x0, x1 = np.uint32(x0 + k0), np.uint32(x1 + k1 + np.uint32(3))
    x0, x1 = _four(x0, x1, 17, 29, 16, 24)
    x0, x1 = np.uint32(x0 + k1), np.uint32(x1 + k2 + np.uint32(4))
    x0, x1 = _four(x0, x1, 13, 15, 26, 6)
    return np.uint32(x0 + k2), np.uint32(x1 + k0 + np.uint32(5))


@njit(forceinline=True, **PLAIN)
def _four(x0, x1, a, b, c, d):
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32((x1 << np.uint32(a)) | (x1 >> np.uint32(32 - a))) ^ x0
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32((x1 << np.uint32(b)) | (x1 >> np.uint32(32 - b))) ^ x0
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32((x1 << np.uint32(c)) | (x1 >> np.uint32(32 - c))) ^ x0
    x0 = np.uint32(x0 + x1)
    x1 = np.uint32((x1 << np.uint32(d)) | (x1 >> np.uint32(32 - d))) ^ x0
    return x0, x1


@njit(forceinline=True, **PLAIN)
def _log64(u):
    """log u for normal u > 0: u = 2ᵉm with m from √½ to √2, log m = 2 atanh((m − 1)/(m + 1))."""
    bits = _bits_of_float64(u) + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    e = (bits >> 52) - 1023
    m = _float64_of_bits((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    tail = _poly7(table.LOG64, z - table.LOG64_CENTRE)
    return np.float64(e) * _LN2_HIGH + (2.0 * s + (s * z * tail + np.float64(e) * _LN2_LOW))


@njit(forceinline=True, **PLAIN)
def _log32(u):
    """log u in float32, from (log(1 + f) − f)/f²; a sum of two int32 is an int64 to numba, and made an int32 again."""
    bits = np.int32(_bits_of_float32(u) + np.int32(0x3F800000 - 0x3F3504F3))
    e = np.float32(np.int32((bits >> np.int32(23)) - np.int32(127)))
    f = _float32_of_bits(np.int32((bits & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3))) - np.float32(1)
    tail = _poly8(_LOG32, f - _LOG32_CENTRE)
    return e * np.float32(_LN2) + (f + f * f * tail)


@njit(forceinline=True, **PLAIN)
def _exp64(t):
    """exp t for |t| ≤ 700, clamped there: 2ᵏ exp(t − k log 2)."""
    t = min(max(t, -700.0), 700.0)
    k = math.floor(t * (1.0 / _LN2) + 0.5)
    r = (t - k * _LN2_HIGH) - k * _LN2_LOW
    return _poly11(table.EXP64, r) * _float64_of_bits((np.int64(k) + 1023) << 52)


@njit(forceinline=True, **PLAIN)
def _exp32(t):
    """exp t in float32 for |t| ≤ 87, clamped there."""
    t = min(max(t, np.float32(-87)), np.float32(87))
    k = np.float32(math.floor(t * np.float32(1.0 / _LN2) + np.float32(0.5)))
    r = (t - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
    return _poly6(_EXP32, r) * _float32_of_bits(np.int32(np.int32(np.int32(k) + np.int32(127)) << np.int32(23)))


@njit(forceinline=True, **PLAIN)
def _poly6(c, x):
    y = x * x
    even = c[0] + y * (c[2] + y * (c[4] + y * (c[6])))
    odd = c[1] + y * (c[3] + y * (c[5]))
    return even + x * odd


@njit(forceinline=True, **PLAIN)
def _poly7(c, x):
    y = x * x
    even = c[0] + y * (c[2] + y * (c[4] + y * (c[6])))
    odd = c[1] + y * (c[3] + y * (c[5] + y * (c[7])))
    return even + x * odd


@njit(forceinline=True, **PLAIN)
def _poly8(c, x):
    y = x * x
    even = c[0] + y * (c[2] + y * (c[4] + y * (c[6] + y * (c[8]))))
    odd = c[1] + y * (c[3] + y * (c[5] + y * (c[7])))
    return even + x * odd


@njit(forceinline=True, **PLAIN)
def _poly9(c, x):
    y = x * x
    even = c[0] + y * (c[2] + y * (c[4] + y * (c[6] + y * (c[8]))))
    odd = c[1] + y * (c[3] + y * (c[5] + y * (c[7] + y * (c[9]))))
    return even + x * odd


@njit(forceinline=True, **PLAIN)
def _poly10(c, x):
    y = x * x
    even = c[0] + y * (c[2] + y * (c[4] + y * (c[6] + y * (c[8] + y * (c[10])))))
    odd = c[1] + y * (c[3] + y * (c[5] + y * (c[7] + y * (c[9]))))
    return even + x * odd


@njit(forceinline=True, **PLAIN)
def _poly11(c, x):
    y = x * x
    even = c[0] + y * (c[2] + y * (c[4] + y * (c[6] + y * (c[8] + y * (c[10])))))
    odd = c[1] + y * (c[3] + y * (c[5] + y * (c[7] + y * (c[9] + y * (c[11])))))
    return even + x * odd


@njit(forceinline=True, **PLAIN)
def _poly23(c, x):
    y = x * x
    even = c[0] + y * (
        c[2]
        + y
        * (
            c[4]
            + y
            * (
                c[6]
                + y
                * (
                    c[8]
                    + y * (c[10] + y * (c[12] + y * (c[14] + y * (c[16] + y * (c[18] + y * (c[20] + y * (c[22])))))))
                )
            )
        )
    )
    odd = c[1] + y * (
        c[3]
        + y
        * (
            c[5]
            + y
            * (
                c[7]
                + y
                * (
                    c[9]
                    + y * (c[11] + y * (c[13] + y * (c[15] + y * (c[17] + y * (c[19] + y * (c[21] + y * (c[23])))))))
                )
            )
        )
    )
    return even + x * odd


def _single(values):
    return tuple(np.float32(value) for value in values)


_QUANTILE32, _QUANTILE32_CENTRE = _single(table.QUANTILE32), np.float32(table.QUANTILE32_CENTRE)
_LOG32, _LOG32_CENTRE = _single(table.LOG32), np.float32(table.LOG32_CENTRE)
_EXP32 = _single(table.EXP32)
_LOG1P32, _LOG1P32_CENTRE = _single(table.LOG1P32), np.float32(table.LOG1P32_CENTRE)
_QUANTILE32_TAIL, _QUANTILE32_TAIL_CENTRE = _single(table.QUANTILE32_TAIL), np.float32(table.QUANTILE32_TAIL_CENTRE)
_QUANTILE64_NEAR, _QUANTILE64_FAR = np.array(table.QUANTILE64_NEAR), np.array(table.QUANTILE64_FAR)


@njit(**PLAIN)
def _far_ratio64(w):
    """R(w) in the tails, w ≥ 6.25."""
    root = math.sqrt(w)
    near = root < 4.0
    powers = _QUANTILE64_NEAR if near else _QUANTILE64_FAR
    s = root - (table.QUANTILE64_NEAR_CENTRE if near else table.QUANTILE64_FAR_CENTRE)
    total = 0.0
    for k in range(len(powers) - 1, -1, -1):
        total = total * s + powers[k]
    return total


# A normal is made in two loops, w and then R(w). In float64 one loop with both is a chain of operations too long for a
# processor to work on two turns of it at once, and takes a quarter longer.
_NORMAL = {**PLAIN, "fastmath": {"contract", "nsz"}}
_PART = 256  # normals in float64 between two looks for tails


def make_normals(coarse, fine, out, w):
    """Standard normals in the precision of `out`, from 32 or 64 bits each; w is room for as many numbers."""


@overload(make_normals, jit_options=_NORMAL)
def _make_normals(coarse, fine, out, w):
    if out.dtype == types.float32:

        def single(coarse, fine, out, w):
            if _places32(coarse, out, w):
                _stretch_all32(out, w)
            else:
                _stretch32(out, w)

        return single

    def double(coarse, fine, out, w):
        for low in range(0, len(out), _PART):
            high = min(len(out), low + _PART)
            far = _places64(coarse[low:high], fine[low:high], out[low:high], w[low:high])
            _stretch64(out[low:high], w[low:high])
            if far:
                _stretch_tails64(coarse[low:high], out[low:high], w[low:high])

    return double


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
        x[i] *= _poly23(table.QUANTILE64, w[i] - table.QUANTILE64_CENTRE)


@njit(**_NORMAL)
def _stretch_tails64(coarse, out, w):
    """The normals in the tails: |1 − 2p| = √(1 − e⁻ʷ)."""
    for i in range(len(out)):
        if w[i] >= _SPLIT:
            z = math.sqrt(-math.expm1(-w[i])) * _far_ratio64(w[i])
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
        x[i] *= _poly10(_QUANTILE32, w[i] - _QUANTILE32_CENTRE)


@njit(**_NORMAL)
def _stretch_all32(x, w):
    """The same where some w lie in the tails."""
    wide_vectors()
    for i in range(len(x)):
        near = _poly10(_QUANTILE32, w[i] - _QUANTILE32_CENTRE)
        far = _poly9(_QUANTILE32_TAIL, np.float32(math.sqrt(w[i])) - _QUANTILE32_TAIL_CENTRE)
        x[i] *= near if w[i] < np.float32(_SPLIT) else far


@njit(**PLAIN)
def random_words(k0, k1, base, steps, slots, w0, w1):
    """Words of many blocks of one chain: counters (base + steps[i], slots[i])."""
    wide_vectors()
    for i in range(len(w0)):
        w0[i], w1[i] = threefry(k0, k1, np.uint32(base + steps[i]), slots[i])


def _exp(t):
    """exp in the precision of its argument."""


@overload(_exp, jit_options=PLAIN)
def _exp_of(t):
    if t == types.float32:
        return lambda t: _exp32(t)
    return lambda t: _exp64(t)


@njit(fastmath=FAST, **PLAIN)
def slopes(loss, scale, t, y, out):
    """out = scale·∂ℓ/∂t for `loss`: LOGISTIC, with y = ±1, or SQUARED, with 1/σ² in the scale."""
    one = t.dtype.type(1)
    if loss == LOGISTIC:
        for i in range(len(out)):
            out[i] = -scale * y[i] / (one + _exp(y[i] * t[i]))
    else:
        for i in range(len(out)):
            out[i] = scale * (t[i] - y[i])


def _atanh_ratio(square):
    """2 atanh(s)/s from s² ≤ 1/9, in the precision of its argument."""


@overload(_atanh_ratio, jit_options=PLAIN)
def _atanh_ratio_of(square):
    if square == types.float32:
        return lambda square: _poly6(_LOG1P32, square - _LOG1P32_CENTRE)
    return lambda square: _poly11(table.LOG1P64, square - table.LOG1P64_CENTRE)


@njit(fastmath=FAST, **PLAIN)
def energies(loss, scale, t, y, slope, value):
    """slope = scale·∂ℓ/∂t as `slopes` has it, and value = scale·ℓ.

    log(1 + e^{−yt}) = max(−yt, 0) + 2 atanh(s), s = e/(2 + e), e = e^{−|yt|}: no term of it cancels another.
    """
    zero, one, half = t.dtype.type(0), t.dtype.type(1), t.dtype.type(0.5)
    if loss == LOGISTIC:
        for i in range(len(value)):
            margin = y[i] * t[i]
            e = _exp(-abs(margin))
            s = e / (one + (one + e))
            value[i] = scale * (max(-margin, zero) + s * _atanh_ratio(s * s))
            slope[i] = -scale * y[i] * (e if margin > zero else one) / (one + e)
    else:
        for i in range(len(value)):
            away = t[i] - y[i]
            value[i] = half * scale * away * away
            slope[i] = scale * away
