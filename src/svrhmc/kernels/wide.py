"""Losses of several predictors in compiled code: m = k + q numbers for each row where others have one.

A row's predictors are found block by block while the row is at hand: k is one more loop over it, not one more pass over
all rows. Everything of a row but its entries is float64. Functions of a model choose this path by the type of its loss,
whose tuple says its `blocks` and `shared`; losses of one predictor are compiled as if this file did not exist.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import ENTRY, INLINE, PLAIN
from svrhmc.kernels.layout import BLOCK, is_none, is_plain
from svrhmc.kernels.losses import FORMULAS, KERNELS, Formulas, formula, weight_of
from svrhmc.kernels.rows import row_add, row_dot

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


def wide_energy(loss, t, y, s):
    """s = ∂ℓ/∂t, and gives ℓ."""


@overload(wide_energy, jit_options=PLAIN)
def _wide_energy(loss, t, y, s):
    return formula(loss, "energies")(t.dtype)


@njit(**INLINE)
def _row_predictors(model, i, x, t):
    """t = Jᵢx."""
    k, q = model.loss.blocks, model.loss.shared
    p = (len(x) - q) // k
    for c in range(k):
        t[c] = row_dot(model, i, x[c * p : (c + 1) * p])
    for j in range(q):
        t[k + j] = x[k * p + j]


@njit(**INLINE)
def _add_one(model, i, c, weight, total, dim):
    """total += weight·(Jᵢ)_c."""
    k = model.loss.blocks
    p = (dim - model.loss.shared) // k
    if c < k:
        row_add(model, i, weight, total[c * p : (c + 1) * p])
    else:
        total[k * p + c - k] += weight


@njit(**PLAIN)
def wide_add(model, i, weight, s, total, dim):
    """total += weight·Jᵢᵀs."""
    for c in range(len(s)):
        _add_one(model, i, c, total.dtype.type(weight * s[c]), total, dim)


def add_offset(offset, i, t):
    """The offset joins the first predictor."""


@overload(add_offset, jit_options=PLAIN)
def _add_offset(offset, i, t):
    if is_none(offset):
        return lambda offset, i, t: None

    def one(offset, i, t):
        t[0] += np.float64(offset[i])

    return one


def wide_slopes(model, i, x, t, s):
    """s = the slopes of a row at x, less what is taken from it."""


@overload(wide_slopes, jit_options=PLAIN)
def _wide_slopes(model, i, x, t, s):
    if is_plain(model):

        def plain(model, i, x, t, s):
            _row_predictors(model, i, x, t)
            add_offset(model.offset, i, t)
            wide_energy(model.loss, t, model.y[i], s)
            weight = weight_of(model.weights, i)
            for c in range(len(s)):
                s[c] *= weight

        return plain

    def beyond(model, i, x, t, s):
        taken, m = model.taken, len(s)
        some = len(taken.predictors) > 0
        _row_predictors(model, i, x, t)
        if some:
            for c in range(m):
                t[c] += taken.predictors[i, c]
        else:
            add_offset(model.offset, i, t)
        wide_energy(model.loss, t, model.y[i], s)
        weight = weight_of(model.weights, i)
        for c in range(m):
            s[c] *= weight
        if some:
            for c in range(m):
                bend = 0.0
                for b in range(m):
                    bend += taken.curvatures[i, c, b] * (t[b] - taken.predictors[i, b])
                s[c] -= taken.slopes[i, c] + bend

    return beyond


@njit(**PLAIN)
def wide_blocks(model, x, begin, end, sums, memory, keep):
    """`sum_blocks` for several predictors."""
    partial, total, t, s = sums.partial, sums.total, sums.t, sums.slopes
    n, dim, m = len(model.y), len(x), len(s)
    for block in range(begin, end):
        total[:] = 0.0
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            wide_slopes(model, i, x, t, s)
            if keep:
                for c in range(m):
                    memory[i * m + c] = s[c]
            wide_add(model, i, 1.0, s, total, dim)
        for j in range(dim):
            partial[block, j] = total[j]


@njit(**PLAIN)
def wide_gradient(model, rows, weights, reduced, remembers, held, batch):
    """`rows_gradient` for several predictors; batch.labels[b] holds the slopes of row b at `at`."""
    memory, total, at, snapshot = held.memory, held.sum, held.at, held.snapshot
    t, s, then, labels, count = batch.t, batch.slopes, batch.then, batch.labels, len(rows)
    m, dim, share = len(s), len(at), len(model.y) / count
    total[:] = 0
    for b in range(count):
        i = rows[b]
        wide_slopes(model, i, at, t, s)
        for c in range(m):
            labels[b, c] = s[c]
        if reduced and remembers:
            for c in range(m):
                s[c] -= memory[i * m + c]
        elif reduced:
            wide_slopes(model, i, snapshot, t, then)
            for c in range(m):
                s[c] -= then[c]
        weight = share * np.float64(weights[i]) if len(weights) > 0 else share
        wide_add(model, i, weight, s, total, dim)


@njit(**PLAIN)
def wide_renew(model, rows, labels, memory, base):
    """SAGA: the slopes just found replace those remembered, and the sum follows."""
    m, dim = labels.shape[1], len(base)
    for b in range(len(rows)):
        i = rows[b]
        for c in range(m):
            change = labels[b, c] - memory[i * m + c]
            memory[i * m + c] = labels[b, c]
            _add_one(model, i, c, change, base, dim)


@njit(**PLAIN)
def wide_pass(model, t_centre, sums, energy, chains):
    """The pass of split HMC for several predictors: values always."""
    wides, totals, t, s = sums.wide, sums.total, sums.t, sums.slope
    dim, m = sums.u.shape[1], len(s)
    for c in range(chains):
        energy[c] = 0.0
        for j in range(totals.shape[1]):
            totals[c, j] = 0.0
    for low in range(0, len(model.y), BLOCK):
        high = min(len(model.y), low + BLOCK)
        for c in range(chains):
            x, part = wides[c][:dim], 0.0
            for i in range(low, high):
                _row_predictors(model, i, x, t)
                for b in range(m):
                    t[b] += t_centre[i, b]
                weight = weight_of(model.weights, i)
                part += weight * wide_energy(model.loss, t, model.y[i], s)
                wide_add(model, i, weight, s, totals[c], dim)
            energy[c] += part


@njit(**ENTRY)
def all_wide_slopes(loss, t, y, weights, out):
    """The slopes of many rows at their predictors: (n, m)."""
    for i in range(len(y)):
        wide_energy(loss, t[i], y[i], out[i])
        weight = weight_of(weights, i)
        for c in range(out.shape[1]):
            out[i, c] *= weight


# The losses.


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
    def one(loss, t, y, s):
        inverse = math.exp(-t[1])
        r = (y - t[0]) * inverse
        v = np.float64(loss.df)
        if v == 0.0:
            s[0], s[1] = -r * inverse, 1.0 - r * r
            return t[1] + 0.5 * r * r
        g = (v + 1.0) * r / (v + r * r)
        s[0], s[1] = -g * inverse, 1.0 - r * g
        return t[1] + 0.5 * (v + 1.0) * math.log1p(r * r / v)

    return one


def _negative_binomial(t):
    def one(loss, t, y, s):
        phi = math.exp(t[1])
        soft, p, rest = _soft(t[0] - t[1])
        rising, rate = _rising(phi, y)
        s[0] = phi * p - y * rest
        s[1] = phi * (soft - p) + y * rest - phi * rate
        return phi * soft + y * _soft(t[1] - t[0])[0] - rising

    return one


def _gamma(t):
    def one(loss, t, y, s):
        alpha, r = math.exp(t[1]), y - t[0]
        apart, rate = _gamma_parts(alpha, t[1])
        grown = math.expm1(r)
        s[0] = -alpha * grown
        s[1] = alpha * (grown - r + rate)
        return alpha * (grown - r) + apart

    return one


def _categorical(t):
    def one(loss, t, y, s):
        top, own, k = 0.0, np.int64(y), len(t)
        for c in range(k):
            top = max(top, t[c])
        here = t[own - 1] if own > 0 else 0.0
        total = math.exp(-top)
        others = 0.0 if own == 0 else total  # all classes but the row's own
        for c in range(k):
            s[c] = math.exp(t[c] - top)
            total += s[c]
            if c != own - 1:
                others += s[c]
        for c in range(k):
            s[c] = s[c] / total if c != own - 1 else -others / total
        return math.log1p(others) if here == top else (top - here) + math.log(total)

    return one


KERNELS |= {
    "location-scale": LocationScale,
    "negative-binomial": NegativeBinomial,
    "gamma": Gamma,
    "categorical": Categorical,
}
for _kind, _energy in (
    (LocationScale, _location_scale),
    (NegativeBinomial, _negative_binomial),
    (Gamma, _gamma),
    (Categorical, _categorical),
):
    FORMULAS[_kind] = Formulas(None, _energy, None)
