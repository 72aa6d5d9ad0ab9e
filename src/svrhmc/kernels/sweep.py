"""Sweeps over coefficients whose prior variances have unknown parts: each with its own part, given all others.

Rows are rᵢ = xᵢⱼβⱼ + noise of precision ωᵢ, r what is left of a row without column j. So given its variance v

    βⱼ ~ N(bv/(1 + av), v/(1 + av)),    a = Σωᵢxᵢⱼ²,    b = Σωᵢxᵢⱼrᵢ,
    and with βⱼ integrated out v has the likelihood (1 + av)^{−½} e^{½b²v/(1 + av)}.

HORSESHOE and SHARES draw l = log λⱼ from it times the prior of l by slice sampling with stepping out (Neal 2003), and
then βⱼ; SPIKE draws whether βⱼ is not 0, by the likelihood of v = e^{2 scale} times the odds of the prior, and then βⱼ.

    HORSESHOE     1/v = e^{−2(l + overall)} + e^{−2 slab},  prior 1/(e^l + e^{−l}),
    SHARES        v = e^{2(l + overall + noise)},           prior e^{2αl − g} W^A (1 + W)^{−(A + B)}, g = e^{2l},
                                                            W = e^{2 overall} Σₖgₖ.
"""

from __future__ import annotations

import math

from numba import njit

from svrhmc.kernels.compiling import ENTRY, INLINE, PLAIN, QUICK, kept, unshared
from svrhmc.kernels.words import uniform_of

HORSESHOE, SHARES, SPIKE = 0, 1, 2
_WIDTH = 8.0  # of the interval that is stepped out: a coefficient's l may have two modes, some 6 apart
_FAR = 300.0


@njit(**QUICK)
def _products(x, omega, rest):
    """Σωx² and Σωxr."""
    unshared()
    a, b = 0.0, 0.0
    for i in range(len(x)):
        weighted = omega[i] * x[i]
        a += weighted * x[i]
        b += weighted * rest[i]
    return a, b


@njit(**QUICK)
def _taken(x, change, rest):
    """r ← r − x·change."""
    unshared()
    for i in range(len(x)):
        rest[i] -= x[i] * change


@njit(**PLAIN)
def _variance(kind, size, overall, slab):
    if kind == HORSESHOE:
        return 1.0 / (math.exp(-2.0 * (size + overall)) + math.exp(-2.0 * slab))
    return math.exp(2.0 * (size + overall + slab))


@njit(**PLAIN)
def _log_density(kind, size, a, b, overall, slab, alpha, left, right, others):
    """Of l = `size`, with βⱼ integrated out. others: Σgₖ of the others, for SHARES."""
    if not -_FAR < size < _FAR:
        return -math.inf
    v = _variance(kind, size, overall, slab)
    spread = 1.0 + a * v
    fit = 0.5 * b * b * v / spread
    if kind == HORSESHOE:
        far = math.exp(-2.0 * abs(size))
        return fit - abs(size) - 0.5 * math.log((1.0 + far) * (1.0 + far) * spread)
    g = math.exp(2.0 * size)
    total = math.exp(2.0 * overall) * (others + g)
    return fit - 0.5 * math.log(spread) + 2.0 * alpha * size - g + left * math.log(total) - right * math.log1p(total)


@njit(**INLINE)
def _normal(k0, k1, place):
    u, turn = uniform_of(k0, k1, place, 0), uniform_of(k0, k1, place, 1)
    return math.sqrt(-2.0 * math.log(u)) * math.cos(2.0 * math.pi * turn)


@kept
@njit(**ENTRY)
def sweep(kind, columns, some, order, omega, rest, beta, local, overall, slab, alpha, left, right, k0, k1):
    """All coefficients in turn, in place: β, their own parts, and what is left of the rows.

    columns: (coefficients, rows), of which `some` are those of β; order: in which β is gone through. overall, slab: in
    logarithms τ and c for HORSESHOE, √θ and the noise for SHARES, and for SPIKE the odds of the prior and the slab's
    scale; local is 1 there where a coefficient is not 0, else 0. alpha, left, right: α, A and A + B.
    """
    total = 0.0
    if kind == SHARES:
        for j in range(len(beta)):
            total += math.exp(2.0 * local[j])
    for j in order:
        x = columns[some[j]]
        a, b = _products(x, omega, rest)
        b += a * beta[j]
        if kind == SPIKE:
            v = math.exp(2.0 * slab)
            spread = 1.0 + a * v
            log_odds = overall + 0.5 * b * b * v / spread - 0.5 * math.log(spread)
            u = uniform_of(k0, k1, j, 2)
            chosen = math.log(u) - math.log1p(-u) < log_odds
            local[j] = 1.0 if chosen else 0.0
            v = v if chosen else 0.0
        else:
            size = local[j]
            others = max(total - math.exp(2.0 * size), 0.0)
            level = _log_density(kind, size, a, b, overall, slab, alpha, left, right, others)
            level += math.log(uniform_of(k0, k1, j, 2))
            low = size - _WIDTH * uniform_of(k0, k1, j, 3)
            high = low + _WIDTH
            while _log_density(kind, low, a, b, overall, slab, alpha, left, right, others) > level:
                low -= _WIDTH
            while _log_density(kind, high, a, b, overall, slab, alpha, left, right, others) > level:
                high += _WIDTH
            turn = 4
            while True:
                new = low + (high - low) * uniform_of(k0, k1, j, turn)
                turn += 1
                if new == size or _log_density(kind, new, a, b, overall, slab, alpha, left, right, others) >= level:
                    break
                if new < size:
                    low = new
                else:
                    high = new
            local[j] = new
            total = others + math.exp(2.0 * new)
            v = _variance(kind, new, overall, slab)
        drawn = 0.0
        if v > 0.0:
            spread = 1.0 + a * v
            drawn = b * v / spread + math.sqrt(v / spread) * _normal(k0, k1, j)
        if drawn != beta[j]:
            _taken(x, drawn - beta[j], rest)
            beta[j] = drawn
