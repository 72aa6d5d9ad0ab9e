"""Single effects of many levels (`SingleEffects` of `svrhmc.whitening.levels` is the definition): from e to u in one
pass, and back from ∇ᵤF to the gradient by e, θ, the outer coordinates and log σ in another.

    V = 1 + ρτ²D,   K² = 1/V,   C = τK,   Cᵀh = ρC(h − yᵀG),   b = Cᵀh + e,   u = C b,
    a = C ∇ᵤF + K² b,   f: ½(Kb)² + ½ log V,   θ: K²(a(b + Cᵀh) − 1) − (Kb)² + 1,
    log σ: (1 − K²)(a(b + Cᵀh) − 1) − 2aCᵀh,   y: −ρ Σ C a G.

Sums are made of blocks of levels, which join in their order. Of a few V the logarithm is that of their product.
"""

from __future__ import annotations

import math

from numba import njit

from svrhmc.kernels.compiling import ENTRY, FAST, QUICK, kept, unshared

BLOCK = 512  # levels that stay in a near cache while several sums are made of them
_PRODUCT = 4  # V of which one logarithm is taken


@njit(**QUICK)
def _fill(out, value):
    for j in range(len(out)):
        out[j] = value


@njit(**QUICK)
def _less(out, along, column):
    """out −= along · column."""
    unshared()
    for j in range(len(out)):
        out[j] -= along * column[j]


@njit(**QUICK)
def _copied(values, out):
    unshared()
    for j in range(len(out)):
        out[j] = values[j]


@njit(**QUICK)
def _out(e, D, tau, rho, u):
    """u, in the place of h − yᵀG."""
    unshared()
    for j in range(len(u)):
        V = 1.0 + rho * tau * tau * D[j]
        C = tau / math.sqrt(V)
        u[j] = C * (rho * C * u[j] + e[j])


@kept
@njit(fastmath=FAST, **ENTRY)
def effects_out(e, y, tau, rho, D, h, G, u):
    """u of one state."""
    for low in range(0, len(D), BLOCK):
        high = min(len(D), low + BLOCK)
        some = u[low:high]
        _copied(h[low:high], some)
        for o in range(len(y)):
            _less(some, y[o], G[o, low:high])
        _out(e[low:high], D[low:high], tau, rho, some)


@njit(**QUICK)
def _back(e, h, D, tau, rho, gradient, product, sums):
    """a in the place of ∇ᵤF, C a in that of h − yᵀG; V goes to `product`."""
    unshared()
    squares, by_theta, by_noise = 0.0, 0.0, 0.0
    for j in range(len(h)):
        V = 1.0 + rho * tau * tau * D[j]
        Phi = 1.0 / V
        C = tau * math.sqrt(Phi)
        Ch = rho * C * h[j]
        b = Ch + e[j]
        square = Phi * b * b
        a = C * gradient[j] + Phi * b
        along = a * (b + Ch) - 1.0
        squares += square
        by_theta += Phi * along - square + 1.0
        by_noise += (1.0 - Phi) * along - 2.0 * a * Ch
        gradient[j] = a
        h[j] = C * a
        product[j] = V
    sums[0] += 0.5 * squares
    sums[1] += by_theta
    sums[2] += by_noise


@njit(**QUICK)
def _dot(some, column):
    total = 0.0
    for j in range(len(some)):
        total += some[j] * column[j]
    return total


@njit(**QUICK)
def _log_product(V):
    """½ Σ log V."""
    total, whole = 0.0, len(V) // _PRODUCT * _PRODUCT
    for j in range(0, whole, _PRODUCT):
        total += math.log((V[j] * V[j + 1]) * (V[j + 2] * V[j + 3]))
    for j in range(whole, len(V)):
        total += math.log(V[j])
    return 0.5 * total


@kept
@njit(fastmath=FAST, **ENTRY)
def effects_back(e, y, tau, rho, D, h, G, gradient, sums, by_outer, room):
    """The way back of one state; sums: of f, and the derivatives by θ and log σ. room: two lines of `BLOCK` numbers."""
    _fill(sums, 0.0)
    _fill(by_outer, 0.0)
    for low in range(0, len(D), BLOCK):
        high = min(len(D), low + BLOCK)
        some, V = room[0, : high - low], room[1, : high - low]
        _copied(h[low:high], some)
        for o in range(len(y)):
            _less(some, y[o], G[o, low:high])
        _back(e[low:high], some, D[low:high], tau, rho, gradient[low:high], V, sums)
        sums[0] += _log_product(V)
        for o in range(len(y)):
            by_outer[o] -= rho * _dot(some, G[o, low:high])
