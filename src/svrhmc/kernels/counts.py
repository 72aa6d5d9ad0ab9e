"""Losses of counts, and the probit: compiled forms of `svrhmc.targets.families`.

The energy of a count in float32 rows is found in float64 and less the value at the best t there is for its label: what
is kept in float32 is then as small as the row fits well.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit, types

from svrhmc.kernels.compiling import PLAIN, polynomial
from svrhmc.kernels.losses import FORMULAS, KERNELS, Formulas, atanh_ratio, exp, logistic_remainder

_TAIL, _TERMS = 4.0, 40  # as in targets/families.py
_ROOT_HALF, _LOG_ROOT = math.sqrt(0.5), 0.5 * math.log(2 * math.pi)
_SMALL = 0.25  # |u| below which a remainder of the Poisson loss is summed as a series
_SERIES = tuple(1 / math.factorial(k + 3) for k in range(13))
_NEAR = 1.0  # |u| up to which a remainder of the probit is an integral of its third derivative
_POINTS, _SHARES = np.polynomial.legendre.leggauss(8)
_POINTS = tuple(float(p) for p in (1 + _POINTS) / 2)
_SHARES = tuple(float(w * (1 - p) ** 2 / 4) for p, w in zip(_POINTS, _SHARES, strict=True))  # ½∫₀¹(1 − s)²g(s) ds


class Binomial(NamedTuple):
    """scale·(y log(1 + e⁻ᵗ) + (1 − y) log(1 + eᵗ)) with y from 0 to 1."""

    scale: float


class Poisson(NamedTuple):
    """scale·(eᵗ − yt)."""

    scale: float


class Probit(NamedTuple):
    """−scale·log Φ(yt) with y = ±1."""

    scale: float


def _binomial_slope(t):
    """(1 − y)p − y(1 − p), p = eᵗ/(1 + eᵗ)."""
    one = np.float32(1) if t == types.float32 else 1.0

    def binomial(loss, t, y):
        e = exp(-abs(t))
        near, far = one / (one + e), e / (one + e)
        p, rest = (near, far) if t > 0 else (far, near)
        return loss.scale * ((one - y) * p - y * rest)

    return binomial


def _binomial_energies(t):
    """log(1 + e^{±t}) = max(±t, 0) + 2 atanh(s), s = e/(2 + e), e = e^{−|t|}."""

    def binomial(loss, count, t, y, slope, value):
        scale, zero, one = loss.scale, t.dtype.type(0), t.dtype.type(1)
        for i in range(count):
            e = exp(-abs(t[i]))
            s = e / (one + (one + e))
            common = s * atanh_ratio(s * s)
            value[i] = scale * (common + (y[i] * max(-t[i], zero) + (one - y[i]) * max(t[i], zero)))
            near, far = one / (one + e), e / (one + e)
            p, rest = (near, far) if t[i] > zero else (far, near)
            slope[i] = scale * ((one - y[i]) * p - y[i] * rest)

    return binomial


def _poisson_slope(t):
    return lambda loss, t, y: loss.scale * (exp(t) - y)


def _poisson_energies(t):
    if t == types.float32:

        def coarse(loss, count, t, y, slope, value):
            scale = loss.scale
            for i in range(count):
                label, at = np.float64(y[i]), np.float64(t[i])
                mean = math.exp(at)
                best = label - label * math.log(label) if label > 0.0 else 0.0
                value[i] = scale * ((mean - label * at) - best)
                slope[i] = scale * (mean - label)

        return coarse

    def fine(loss, count, t, y, slope, value):
        scale = loss.scale
        for i in range(count):
            mean = exp(t[i])
            value[i] = scale * (mean - y[i] * t[i])
            slope[i] = scale * (mean - y[i])

    return fine


def _poisson_remainder(t):
    """eᵗ(eᵘ − 1 − u − ½u²), the same for every label, as ℓ is −yt beside eᵗ."""

    def poisson(loss, t, y, u):
        if abs(u) < _SMALL:
            return loss.scale * (math.exp(t) * (u * u * u * polynomial(_SERIES, u)))
        return loss.scale * (math.exp(t + u) - math.exp(t) * (1.0 + u * (1.0 + 0.5 * u)))

    return poisson


@njit(**PLAIN)
def _mills(s):
    """λ = φ(s)/Φ(s) and s + λ, in float64."""
    if s < -_TAIL:
        x, rest = -s, 0.0
        for k in range(_TERMS, 1, -1):
            rest = k / (x + rest)
        rest = 1.0 / (x + rest)
        return x + rest, rest
    hazard = 2.0 * math.exp(-0.5 * s * s - _LOG_ROOT) / math.erfc(-s * _ROOT_HALF)
    return hazard, s + hazard


@njit(**PLAIN)
def _minus_log(s, hazard):
    """−log Φ(s), where λ is known: below −4 by Φ = φ/λ."""
    if s < -_TAIL:
        return 0.5 * s * s + _LOG_ROOT + math.log(hazard)
    if s < 0.0:
        return -math.log(0.5 * math.erfc(-s * _ROOT_HALF))
    return -math.log1p(-0.5 * math.erfc(s * _ROOT_HALF))


def _probit_slope(t):
    kind = np.float32 if t == types.float32 else np.float64
    return lambda loss, t, y: -loss.scale * y * kind(_mills(np.float64(y * t))[0])


def _probit_energies(t):
    def probit(loss, count, t, y, slope, value):
        scale = loss.scale
        for i in range(count):
            s = np.float64(y[i] * t[i])
            hazard, _ = _mills(s)
            value[i] = scale * _minus_log(s, hazard)
            slope[i] = -scale * y[i] * hazard

    return probit


def _probit_remainder(t):
    """With s = yt and v = yu: ½v³ ∫₀¹ (1 − q)² ℓ‴(s + qv) dq, ℓ‴ = λ(1 − e(e + λ)), where |u| is at most 1."""

    def probit(loss, t, y, u):
        s, v = y * t, y * u
        if abs(v) <= _NEAR:
            total = 0.0
            for k in range(len(_POINTS)):
                hazard, rest = _mills(s + _POINTS[k] * v)
                total += _SHARES[k] * hazard * (1.0 - rest * (rest + hazard))
            return loss.scale * (v * v * v * total)
        hazard, rest = _mills(s)
        there = _minus_log(s + v, _mills(s + v)[0])
        return loss.scale * ((there - _minus_log(s, hazard)) + v * hazard - 0.5 * hazard * rest * v * v)

    return probit


KERNELS |= {"binomial": Binomial, "poisson": Poisson, "probit": Probit}
FORMULAS[Binomial] = Formulas(_binomial_slope, _binomial_energies, logistic_remainder)
FORMULAS[Poisson] = Formulas(_poisson_slope, _poisson_energies, _poisson_remainder)
FORMULAS[Probit] = Formulas(_probit_slope, _probit_energies, _probit_remainder)
