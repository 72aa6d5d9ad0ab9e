"""The curvature of a model of functions at its mode, where its Hessian there tells of f; else what f itself tells.

|x| has a kink, x⁴ a flat bottom, a density that ends at a bound neither: there ∇²f at the mode says nothing of how far
the posterior reaches. Along a direction d the distance t with f(x̂ + t d) − f(x̂) = ½ does, which is one standard
deviation where f is quadratic. And where there is no such distance the posterior is improper.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.models.model import STATES, Model

_FLAT, _NEGATIVE = 1e-12, -1e-8  # eigenvalues, of the Hessian in units of its diagonal: next to 0, and below it
_STEEP = 32.0  # f above its least value, one standard deviation of the Hessian away on both sides, that belies it
_HALF = 0.5
_DOUBLINGS, _HALVINGS = 20, 60  # of a distance: farther, rounding of what cancels looks like a rise
_UNBOUNDED = (
    "no law: where the search for the mode ended, second derivatives are not finite; the log posterior may rise "
    "without end, so that the posterior is improper (is a prior missing?), or overflow."
)


def told_curvature(target: Model, mode: Array, hessian: Array) -> Array:
    """A positive definite matrix: ∇²f(x̂) = S⁻¹V diag(λ) VᵀS⁻¹ with S its diagonal to the power −½, where λ is replaced
    by 1/t² along the directions Sv that belie it or are flat, and by |λ| at a saddle.
    """
    if not np.isfinite(hessian).all():
        raise RuntimeError(_UNBOUNDED)
    diagonal = np.diag(hessian)
    scale = np.where(diagonal > 0, np.where(diagonal > 0, diagonal, 1.0) ** -0.5, target.prior_spread())
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    flat, saddle = np.abs(values) <= _FLAT, values < _NEGATIVE
    bent = np.where(flat, 1.0, np.abs(values))
    ways = (scale[:, None] * vectors / np.sqrt(bent)).T
    rise = _rises(target, mode, ways, np.ones(len(ways)))
    doubtful = flat | (rise.min(axis=0) > _STEEP)
    if not (doubtful | saddle).any():
        return hessian
    if doubtful.any():
        bent[doubtful] /= _reach(target, mode, ways[doubtful]) ** 2
    bent_matrix = (vectors * bent) @ vectors.T
    return np.asarray((bent_matrix + bent_matrix.T) / 2 / (scale * scale[:, None]), np.float64)


def _rises(target: Model, mode: Array, ways: Array, far: Array) -> Array:
    """f(x̂ ± t d) − f(x̂), (2, direction); what is not finite is infinite."""
    away = far[:, None] * ways
    states = np.concatenate([mode[None], mode + away, mode - away])
    short = -len(states) % STATES
    padded = np.concatenate([states, np.repeat(mode[None], short, axis=0)]).reshape(-1, STATES, len(mode))
    f = np.concatenate([target.energies(some)[0] for some in padded])[: len(states)]
    return np.asarray(np.where(np.isfinite(f[1:]), f[1:] - f[0], np.inf).reshape(2, -1), np.float64)


def _reach(target: Model, mode: Array, ways: Array) -> Array:
    """The distance at which f has risen by ½ along each direction, the mean of both sides, to a factor of 2."""
    far = np.ones((2, len(ways)))
    above = np.stack([_rises(target, mode, ways, side)[k] for k, side in enumerate(far)]) > _HALF
    factor = np.where(above, 0.5, 2.0)
    going, now = np.ones_like(above), above
    for k in range(_HALVINGS):
        going &= above | (k < _DOUBLINGS)
        if not going.any():
            break
        far = np.where(going, far * factor, far)
        now = np.stack([_rises(target, mode, ways, side)[k] for k, side in enumerate(far)]) > _HALF
        going &= now == above
    endless = ~above & ~now
    if endless.all(axis=0).any():
        way = np.abs(ways[np.argmax(endless.all(axis=0))])
        named = ", ".join(target.names[k] for k in np.argsort(-way, kind="stable")[:4] if way[k] > 1e-3 * way.max())
        raise RuntimeError(
            f"no law: the log posterior does not fall along a direction (of {named}), however far, so that the "
            "posterior is improper; is a prior missing, or a parameter that the data do not determine?"
        )
    return np.asarray(np.where(endless, 0.0, far).sum(axis=0) / (~endless).sum(axis=0), np.float64)
