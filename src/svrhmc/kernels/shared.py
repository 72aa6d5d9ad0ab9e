"""Formulas of losses of several predictors, for many rows at once.

t has a line for each of the m = k + q numbers that a row's loss is of, then three lines of room, in the first of which
values are left; s has m lines of slopes. A loop runs over rows within a line, so that it becomes vector code wherever
the formula has no branch: exp is that of `losses.py`, logarithms are taken in loops of their own.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from svrhmc.kernels.compiling import PLAIN
from svrhmc.kernels.losses import FORMULAS, KERNELS, Formulas, exp

ROOM = 3  # lines
_FAR = 16.0  # from where on series in 1/z give all digits
_FEW = 32.0  # counts up to which logarithms are summed one by one
_HALF_LOG = 0.5 * math.log(2 * math.pi)


class LocationScale(NamedTuple):
    """τ + h((y − μ)e^{−τ}): normal where df is 0, else Student's t."""

    df: float
    blocks: int
    shared: int


class NegativeBinomial(NamedTuple):
    """φ sp(v) + y sp(−v) − log Γ(y + φ)/Γ(φ)."""

    blocks: int
    shared: int


class Gamma(NamedTuple):
    """α(eʳ − 1 − r) + α − α log α + log Γ(α), with the label log y."""

    blocks: int
    shared: int


class Categorical(NamedTuple):
    """log(1 + Σ eᵗ) − t_y."""

    blocks: int
    shared: int


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
def _rising(phi, y):
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
def _gamma_parts(alpha, theta):
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
def _soft(v):
    """log(1 + eᵛ), 1/(1 + e⁻ᵛ) and 1/(1 + eᵛ)."""
    e = math.exp(-abs(v))
    near, far = 1.0 / (1.0 + e), e / (1.0 + e)
    value = max(v, 0.0) + math.log1p(e)
    return (value, near, far) if v > 0.0 else (value, far, near)


def _location_scale(t):
    def many(loss, count, t, y, s, valued):
        mu, tau, r, value = t[0], t[1], t[4], t[2]
        by_mu, by_tau, v = s[0], s[1], np.float64(loss.df)
        for i in range(count):
            inverse = exp(-tau[i])
            r[i] = (y[i] - mu[i]) * inverse
            g = r[i] if v == 0.0 else (v + 1.0) * r[i] / (v + r[i] * r[i])
            by_mu[i], by_tau[i] = -g * inverse, 1.0 - r[i] * g
        if valued and v == 0.0:
            for i in range(count):
                value[i] = tau[i] + 0.5 * r[i] * r[i]
        elif valued:
            for i in range(count):
                value[i] = tau[i] + 0.5 * (v + 1.0) * math.log1p(r[i] * r[i] / v)

    return many


def _negative_binomial(t):
    def many(loss, count, t, y, s, valued):
        for i in range(count):
            phi, v = math.exp(t[1, i]), t[0, i] - t[1, i]
            soft, p, rest = _soft(v)
            rising, rate = _rising(phi, y[i])
            s[0, i] = phi * p - y[i] * rest
            s[1, i] = phi * (soft - p) + y[i] * rest - phi * rate
            t[2, i] = phi * soft + y[i] * _soft(-v)[0] - rising

    return many


def _gamma(t):
    def many(loss, count, t, y, s, valued):
        alpha = apart = rate = 0.0
        for i in range(count):
            if i == 0 or t[1, i] != t[1, i - 1]:  # α is the same for all rows
                alpha = math.exp(t[1, i])
                apart, rate = _gamma_parts(alpha, t[1, i])
            r = y[i] - t[0, i]
            grown = math.expm1(r)
            s[0, i] = -alpha * grown
            s[1, i] = alpha * (grown - r + rate)
            t[2, i] = alpha * (grown - r) + apart

    return many


def _categorical(t):
    def many(loss, count, t, y, s, valued):
        """e_c = e^{t_c − top}, top = max(0, t); p_c = e_c/Σe, and of the row's own class 1 − p as a sum of others."""
        k = len(s)
        top, total, others = t[k], t[k + 1], t[k + 2]
        for i in range(count):
            top[i] = max(0.0, t[0, i])
        for c in range(1, k):
            one = t[c]
            for i in range(count):
                top[i] = max(top[i], one[i])
        for i in range(count):
            e = exp(-top[i])
            total[i], others[i] = e, (0.0 if y[i] == 0.0 else e)
        for c in range(k):
            one, e, own = t[c], s[c], c + 1.0
            for i in range(count):
                e[i] = exp(one[i] - top[i])
                total[i] += e[i]
                others[i] += 0.0 if y[i] == own else e[i]
        for c in range(k):
            e, own = s[c], c + 1.0
            for i in range(count):
                e[i] = (-others[i] if y[i] == own else e[i]) / total[i]
        if valued:
            for i in range(count):
                own = np.int64(y[i])
                here = t[own - 1, i] if own > 0 else 0.0
                top[i] = math.log1p(others[i]) if here == top[i] else (top[i] - here) + math.log(total[i])

    return many


KERNELS |= {
    "location-scale": LocationScale,
    "negative-binomial": NegativeBinomial,
    "gamma": Gamma,
    "categorical": Categorical,
}
for _kind, _energies in (
    (LocationScale, _location_scale),
    (NegativeBinomial, _negative_binomial),
    (Gamma, _gamma),
    (Categorical, _categorical),
):
    FORMULAS[_kind] = Formulas(None, _energies, None)
