"""Losses in compiled code: each is a named tuple, and functions choose their formula by its type.

A loss is multiplied by its scale, which has the precision of the rows. `KERNELS` says which tuple a loss has, and
`FORMULAS` what is known of that: a new loss is a tuple with its formulas, and one line in each (`counts.py` has some).

What a row has besides its entries is three arrays: labels y, offsets and weights. The last two are None where there are
none, and then `shift`, `weigh` and their like compile to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from svrhmc.kernels import coefficients as table
from svrhmc.kernels.compiling import PLAIN, QUICK, float32_of_bits, float64_of_bits, polynomial, prefetch
from svrhmc.kernels.layout import is_none
from svrhmc.kernels.normals import LN2, LN2_HIGH, LN2_LOW, single

_NEAR = 0.05  # |u| below which a remainder is summed as a series
_EXP32 = single(table.EXP32)
_LOG1P32, _LOG1P32_CENTRE = single(table.LOG1P32), np.float32(table.LOG1P32_CENTRE)


class Formulas(NamedTuple):
    """What compiled code knows of a loss; each entry makes a function from the type that numba has for t.

    slope: of (loss, t, y), scale·∂ℓ/∂t; None for losses of several predictors (`shared.py`), whose `energies` is of
    (loss, count, t, y, slope, valued). energies: of (loss, count, t, y, slope, value), both at many predictors, for
    split HMC. remainder: of (loss, t, y, u), for subsampled Metropolis; None where no bound on it is known.
    """

    slope: Callable[[Any], Any] | None
    energies: Callable[[Any], Any]
    remainder: Callable[[Any], Any] | None


KERNELS: dict[str, type] = {}
FORMULAS: dict[type, Formulas] = {}


def formula(loss, what):
    """What is known of the type of a loss."""
    kind = getattr(loss, "instance_class", None)
    found = getattr(FORMULAS[kind], what) if kind in FORMULAS else None
    if found is None:
        raise TypingError(f"no {what} is compiled for the loss {loss}: one of {', '.join(KERNELS)} is needed")
    return found


def exp(t):
    """exp t = 2ᵏ exp(t − k log 2) in the precision of t, which is clamped to ±700, or ±87 in float32."""


@overload(exp, jit_options={**PLAIN, "forceinline": True})
def _exp(t):
    if t == types.float32:

        def coarse(t):
            t = min(max(t, np.float32(-87)), np.float32(87))
            k = np.float32(math.floor(t * np.float32(1.0 / LN2) + np.float32(0.5)))
            r = (t - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
            power = np.int32(np.int32(np.int32(k) + np.int32(127)) << np.int32(23))
            return polynomial(_EXP32, r) * float32_of_bits(power)

        return coarse

    def fine(t):
        t = min(max(t, -700.0), 700.0)
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


def slope(loss, t, y):
    """scale·∂ℓ/∂t at one predictor."""


@overload(slope, jit_options={**QUICK, "forceinline": True})
def _slope(loss, t, y):
    return formula(loss, "slope")(t)


def slopes(loss, count, t, y, out):
    """out = scale·∂ℓ/∂t at so many predictors."""


@overload(slopes, jit_options=QUICK)
def _slopes(loss, count, t, y, out):
    def each(loss, count, t, y, out):
        for i in range(count):
            out[i] = slope(loss, t[i], y[i])

    return each


def energies(loss, count, t, y, slope, value):
    """slope = scale·∂ℓ/∂t and value = scale·ℓ at so many predictors."""


@overload(energies, jit_options=QUICK)
def _energies(loss, count, t, y, slope, value):
    return formula(loss, "energies")(t.dtype)


def remainder(loss, t, y, u):
    """scale·(ℓ(t + u) − ℓ(t) − ℓ′(t)u − ½ℓ″(t)u²) in float64."""


@overload(remainder, jit_options=PLAIN)
def _remainder(loss, t, y, u):
    return formula(loss, "remainder")(t)


# Offsets and weights: arrays, or None.


def shift(offset, low, count, t):
    """t += the offsets of consecutive rows."""


@overload(shift, jit_options=QUICK, inline="always")
def _shift(offset, low, count, t):
    if is_none(offset):
        return lambda offset, low, count, t: None

    def by_rows(offset, low, count, t):
        some = offset[low : low + count]
        for k in range(count):
            t[k] += some[k]

    return by_rows


def weigh(weights, low, count, s):
    """s times the weights of consecutive rows."""


@overload(weigh, jit_options=QUICK, inline="always")
def _weigh(weights, low, count, s):
    if is_none(weights):
        return lambda weights, low, count, s: None

    def by_rows(weights, low, count, s):
        some = weights[low : low + count]
        for k in range(count):
            s[k] *= some[k]

    return by_rows


def shift_at(offset, rows, t):
    """t += the offsets of some rows."""


@overload(shift_at, jit_options=QUICK, inline="always")
def _shift_at(offset, rows, t):
    if is_none(offset):
        return lambda offset, rows, t: None

    def by_rows(offset, rows, t):
        for b in range(len(rows)):
            t[b] += offset[rows[b]]

    return by_rows


def weigh_at(weights, rows, s):
    """s times the weights of some rows."""


@overload(weigh_at, jit_options=QUICK, inline="always")
def _weigh_at(weights, rows, s):
    if is_none(weights):
        return lambda weights, rows, s: None

    def by_rows(weights, rows, s):
        for b in range(len(rows)):
            s[b] *= weights[rows[b]]

    return by_rows


def weight_of(weights, i):
    """The weight of a row in float64; 1 where there are none."""


@overload(weight_of, jit_options={**PLAIN, "forceinline": True})
def _weight_of(weights, i):
    if is_none(weights):
        return lambda weights, i: 1.0
    return lambda weights, i: np.float64(weights[i])


def expect_weight(weights, i):
    """Ask for the weight of a row before it is needed."""


@overload(expect_weight, jit_options={**PLAIN, "forceinline": True})
def _expect_weight(weights, i):
    if is_none(weights):
        return lambda weights, i: None
    return lambda weights, i: prefetch(weights, i)


# The two losses that all began with.


class Logistic(NamedTuple):
    """scale·log(1 + e^{−yt}) with y = ±1."""

    scale: float


class Squared(NamedTuple):
    """scale·(t − y)²/2."""

    scale: float


def _logistic_slope(t):
    one = np.float32(1) if t == types.float32 else 1.0
    return lambda loss, t, y: -loss.scale * y / (one + exp(y * t))


def _logistic_energies(t):
    """log(1 + e^{−yt}) = max(−yt, 0) + 2 atanh(s), s = e/(2 + e), e = e^{−|yt|}: no term of it cancels another."""

    def logistic(loss, count, t, y, slope, value):
        scale, zero, one = loss.scale, t.dtype.type(0), t.dtype.type(1)
        for i in range(count):
            margin = y[i] * t[i]
            e = exp(-abs(margin))
            s = e / (one + (one + e))
            value[i] = scale * (max(-margin, zero) + s * atanh_ratio(s * s))
            slope[i] = -scale * y[i] * (e if margin > zero else one) / (one + e)

    return logistic


def logistic_remainder(t):
    """The same for every label, as ℓ(t, 1) − ℓ(t, −1) = −t. Where |u| < 0.05 it is summed by its series to u⁷, whose
    coefficients are polynomials in q = ℓ″ and s = 1 − 2p, p = 1/(1 + e⁻ᵗ).
    """

    def logistic(loss, t, y, u):
        e = math.exp(-abs(t))
        q, s = e / ((1.0 + e) * (1.0 + e)), (1.0 - e) / (1.0 + e)
        if t > 0:
            s = -s
        if abs(u) < _NEAR:
            odd = s * (1 / 6 + u * u * ((1.0 - 12.0 * q) / 120 + u * u * (1.0 - 60.0 * q + 360.0 * q * q) / 5040))
            even = (1.0 - 6.0 * q) / 24 + u * u * (1.0 - 30.0 * q + 120.0 * q * q) / 720
            return loss.scale * (q * u * u * u * (odd + u * even))
        p = (1.0 if t > 0 else e) / (1.0 + e)
        there = max(t + u, 0.0) + math.log1p(math.exp(-abs(t + u)))
        return loss.scale * (there - (max(t, 0.0) + math.log1p(e)) - u * (p + 0.5 * q * u))

    return logistic


def _squared_energies(t):
    def squared(loss, count, t, y, slope, value):
        scale, half = loss.scale, t.dtype.type(0.5)
        for i in range(count):
            away = t[i] - y[i]
            value[i] = half * scale * away * away
            slope[i] = scale * away

    return squared


KERNELS |= {"logistic": Logistic, "squared": Squared}
FORMULAS[Logistic] = Formulas(_logistic_slope, _logistic_energies, logistic_remainder)
FORMULAS[Squared] = Formulas(
    lambda t: lambda loss, t, y: loss.scale * (t - y), _squared_energies, lambda t: lambda loss, t, y, u: 0.0
)
