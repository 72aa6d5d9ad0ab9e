"""The curvature of a model of functions at its mode: its Hessian, or rises of f where the Hessian is misleading.

At the kink of |x|, the flat bottom of x⁴, or the end of a bounded density, ∇²f at the mode does not tell how far the
posterior extends. Then the distance t with f(x̂ + t d) − f(x̂) = ½ is used for a direction d; it is one standard
deviation where f is quadratic. If there is no such distance, the posterior is improper.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.models.model import STATES, Model

_FLAT, _NEGATIVE = 1e-12, -1e-8  # eigenvalues of the Hessian in units of its diagonal: taken as 0, and as negative
_STEEP = 32.0  # a rise of f at one standard deviation on both sides, from which the Hessian is misleading
_HALF = 0.5
_DOUBLINGS, _HALVINGS = 20, 60  # of a distance: farther, rounding of what cancels looks like a rise
_UNBOUNDED = (
    "where the search for the mode ended, second derivatives are not finite; the log posterior may rise "
    "without end, so that the posterior is improper (is a prior missing?), or overflow."
)


def curvature_at_mode(target: Model, mode: Array, hessian: Array) -> Array:
    """A positive definite matrix in place of ∇²f(x̂) = S⁻¹V diag(λ) VᵀS⁻¹, with S its diagonal to the power −½: λ is
    replaced by 1/t² in directions Sv where it is misleading or flat, and by |λ| at a saddle.
    """
    if not np.isfinite(hessian).all():
        raise RuntimeError(_UNBOUNDED)
    diagonal = np.diag(hessian)
    scale = np.where(diagonal > 0, np.where(diagonal > 0, diagonal, 1.0) ** -0.5, target.prior_spread())
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    flat, saddle = np.abs(values) <= _FLAT, values < _NEGATIVE
    bent = np.where(flat, 1.0, np.abs(values))
    directions = (scale[:, None] * vectors / np.sqrt(bent)).T
    rise = _rises(target, mode, directions, np.ones(len(directions)))
    doubtful = flat | (rise.min(axis=0) > _STEEP)
    if not (doubtful | saddle).any():
        return hessian
    if doubtful.any():
        bent[doubtful] /= _half_rise_distances(target, mode, directions[doubtful]) ** 2
    bent_matrix = (vectors * bent) @ vectors.T
    return np.asarray((bent_matrix + bent_matrix.T) / 2 / (scale * scale[:, None]), np.float64)


def _rises(target: Model, mode: Array, directions: Array, distances: Array) -> Array:
    """f(x̂ ± t d) − f(x̂), (2, directions), and ∞ where f is not finite; distances: t of each direction."""
    away = distances[:, None] * directions
    states = np.concatenate([mode[None], mode + away, mode - away])
    short = -len(states) % STATES
    padded = np.concatenate([states, np.repeat(mode[None], short, axis=0)]).reshape(-1, STATES, len(mode))
    f = np.concatenate([target.energies(some)[0] for some in padded])[: len(states)]
    return np.asarray(np.where(np.isfinite(f[1:]), f[1:] - f[0], np.inf).reshape(2, -1), np.float64)


def _half_rise_distances(target: Model, mode: Array, directions: Array) -> Array:
    """The distance at which f has risen by ½ along each direction, the mean of both sides, to a factor of 2."""
    distances = np.ones((2, len(directions)))
    above = np.stack([_rises(target, mode, directions, side)[k] for k, side in enumerate(distances)]) > _HALF
    factor = np.where(above, 0.5, 2.0)
    going, now = np.ones_like(above), above
    for k in range(_HALVINGS):
        going &= above | (k < _DOUBLINGS)
        if not going.any():
            break
        distances = np.where(going, distances * factor, distances)
        now = np.stack([_rises(target, mode, directions, side)[k] for k, side in enumerate(distances)]) > _HALF
        going &= now == above
    endless = ~above & ~now
    if endless.all(axis=0).any():
        sizes = np.abs(directions[np.argmax(endless.all(axis=0))])
        largest = np.argsort(-sizes, kind="stable")[:4]
        named = ", ".join(target.names[k] for k in largest if sizes[k] > 1e-3 * sizes.max())
        raise RuntimeError(
            f"the log posterior does not fall along a direction (of {named}), however far, so that the "
            "posterior is improper; is a prior missing, or a parameter that the data do not determine?"
        )
    return np.asarray(np.where(endless, 0.0, distances).sum(axis=0) / (~endless).sum(axis=0), np.float64)
