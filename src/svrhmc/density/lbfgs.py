"""L-BFGS from many points at once: each pass computes f and ∇f at the next point of every search. (With SciPy's L-BFGS
a pass over all rows would serve a single search.)

Every search has its own step t along its own direction p = −B∇f, B from its last pairs (s, y). If f has fallen by
1e-4·t·pᵀ∇f the point is accepted and the next direction computed, else t is halved; so no search waits for another. A
step is no longer than 1, or 0.3 times the distance to the origin, so that it does not jump over a narrow mode.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svrhmc.core.arrays import Array, Mask

_PAIRS, _SHORTEST, _ARMIJO = 8, 1e-8, 1e-4
_ENOUGH = 1e-5  # of the decrement √(∇fᵀB∇f) at which a search ends
_LONGEST, _OF_DISTANCE = 1.0, 0.3

Energies = Callable[[Array], tuple[Array, Array]]
Ended = Callable[[Array], Mask]


def descend(energies: Energies, x: Array, is_known: Ended, passes: int, first: float = _LONGEST) -> tuple[Array, Array]:
    """Where searches from some points (count, dim) are after at most this many passes, and f there.

    is_known: whether searches at these points can stop. first: the longest step before a curvature is known.

    >>> def quadratic(x):
    ...     return 0.5 * (x * x).sum(axis=1), x
    >>> x, f = descend(quadratic, np.array([[3.0, 4.0], [0.5, 0.0]]), lambda x: np.zeros(len(x), bool), 60)
    >>> bool(np.abs(x).max() < 1e-4)
    True
    """
    f, g = energies(x)
    alive = np.isfinite(f) & np.isfinite(g).all(axis=1)
    f, g = np.where(alive, f, np.inf), np.where(alive[:, None], g, 0.0)
    s, y, rho = np.zeros((_PAIRS, *x.shape)), np.zeros((_PAIRS, *x.shape)), np.zeros((_PAIRS, len(x)))
    p = _direction(x, g, s, y, rho)
    t = np.minimum(1.0, first / np.sqrt(np.maximum(_dot(p, p), 1e-300)))
    for number in range(passes):
        if not alive.any():
            break
        trial = np.where(alive[:, None], x + t[:, None] * p, x)
        value, slope = energies(trial)
        slope = np.where(np.isfinite(slope), slope, 0.0)
        slope_along = _dot(p, g)
        accepted = alive & np.isfinite(value) & (value <= f + _ARMIJO * t * slope_along)
        step, change = trial - x, slope - g
        curved = accepted & (_dot(step, change) > 1e-10 * np.sqrt(_dot(step, step) * _dot(change, change)))
        for old, new in ((s, step), (y, change)):
            old[:, curved] = np.concatenate([old[1:, curved], new[None, curved]])
        rho[:, curved] = np.concatenate([rho[1:, curved], 1 / _dot(step, change)[None, curved]])
        x, f = np.where(accepted[:, None], trial, x), np.where(accepted, value, f)
        g = np.where(accepted[:, None], slope, g)
        p = np.where(accepted[:, None], _direction(x, g, s, y, rho), p)
        t = np.where(accepted, 1.0, t / 2)
        alive &= (t > _SHORTEST) & (_dot(p, g) < -(_ENOUGH**2))
        if number % 4 == 3:
            alive &= ~is_known(x)
    return x, f


def _dot(a: Array, b: Array) -> Array:
    total: Array = (a * b).sum(axis=-1)
    return total


def _direction(x: Array, g: Array, s: Array, y: Array, rho: Array) -> Array:
    """−B∇f by the two loops over pairs, the newest last; pairs that do not exist yet have ρ = 0."""
    q, factors = g.copy(), []
    for k in reversed(range(len(s))):
        a = rho[k] * _dot(s[k], q)
        q = q - a[:, None] * y[k]
        factors.append(a)
    size = _dot(y[-1], y[-1])
    scale = np.divide(_dot(s[-1], y[-1]), size, out=np.ones(len(x)), where=size > 0)
    q = q * scale[:, None]
    for k, a in zip(range(len(s)), reversed(factors), strict=True):
        q = q + (a - rho[k] * _dot(y[k], q))[:, None] * s[k]
    longest = np.maximum(_LONGEST, _OF_DISTANCE * np.sqrt(_dot(x, x)))
    length = np.sqrt(_dot(q, q))
    return np.asarray(-q * np.minimum(1.0, longest / np.maximum(length, 1e-300))[:, None], np.float64)
