"""Posteriors that have no density, and the errors that say so.

f does not grow for ever along d where the prior is flat, Λd = 0, and either no row sees d (Ad = 0: the columns of X are
linearly dependent) or no row's loss grows with it (the data are separable). Neither depends on units: columns are
scaled before their rank is judged, and the aᵢᵀd of rows are compared with each other.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.targets.rows import Rows

SINGULAR = 1e-13  # of the scaled Hessian: dependent columns leave 3e-15 by rounding, and here variances are good to 3%
_ROUNDING = 4 * float(np.finfo(np.float64).eps)  # times dim, where columns are many
_SIZE, _RESTARTS = 40, 10  # of Lanczos, after which columns too many for a dense Hessian pass for independent
_NAMED = 8  # columns, in an error


class Modelled(Protocol):
    """What is asked of a model."""

    n: int
    dim: int
    rows: Rows
    prior_precision: Array
    prior_strength: Array  # the curvature of the prior where that is largest: 0 where it is flat

    def operator(self, curvature: Array, bend: Array) -> Any:
        """Aᵀ diag(curvature) A + diag(bend) as scipy's linear operator."""


def require_rank(target: Modelled, hessian: Array) -> None:
    """Refuse a Hessian that is singular when its columns are scaled."""
    diagonal = np.diag(hessian)
    if (target.prior_strength > 1e-10 * diagonal).all():  # then no eigenvalue of the scaled Hessian is below 1e-10
        return
    scale = _inverse_root(diagonal)
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None] + np.diag(np.where(diagonal > 0, 0.0, -1.0)))
    if values[0] <= max(SINGULAR, _ROUNDING * target.dim):
        raise dependent(target, vectors[:, 0])


def require_rank_by_products(target: Modelled, curvature: Array, diagonal: Array) -> None:
    """The same without a dim × dim matrix; what it does not find in so many products is let pass."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    unseen = diagonal == 0
    if unseen.any():
        raise dependent(target, unseen)
    flat = target.prior_strength == 0
    if flat.sum() > target.n:
        raise dependent(target, flat)
    if target.dim == 1:
        return
    scale, product = _inverse_root(diagonal), target.operator(curvature, target.prior_strength)
    scaled: Any = LinearOperator(product.shape, matvec=lambda z: scale * product.matvec(scale * z.ravel()), dtype=float)
    start = Stream(0, np.arange(1)).normals(0, target.dim, Purpose.DATA, Purpose.DATA_FINE)[0]
    size = min(_SIZE, target.dim)
    try:
        values, vectors = eigsh(scaled, k=1, which="SA", v0=start, ncv=size, maxiter=_RESTARTS, tol=1e-6)
    except ArpackNoConvergence:
        return
    if values[0] <= max(SINGULAR, _ROUNDING * target.dim):
        raise dependent(target, vectors[:, 0])


def dependent(target: Modelled, direction: Array) -> ValueError:
    """The error for columns that depend on each other along a direction, given in scaled columns."""
    places = np.flatnonzero(np.abs(direction) > 1e-4 * np.abs(direction).max())
    columns = target.rows.columns_of(places)
    shown = ", ".join(map(str, columns[:_NAMED])) + (", …" if len(columns) > _NAMED else "")
    return requirement(
        "prior_precision",
        "positive where the columns of X are linearly dependent",
        f"{target.prior_strength[places].min():g} for columns {shown}, which are",
        "the posterior is improper; give prior_precision > 0 or drop a column",
    )


def nearly_dependent(target: Modelled, hessian: Array) -> ValueError:
    """The error for a Hessian without a Cholesky factor: its rank in float64, and the columns that depend on others."""
    scale = _inverse_root(np.diag(hessian))
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    rank = int((values > max(SINGULAR, _ROUNDING * target.dim)).sum())
    columns = np.flatnonzero(np.abs(vectors[:, 0]) > 1e-4 * np.abs(vectors[:, 0]).max())
    shown = ", ".join(map(str, columns[:_NAMED])) + (", …" if len(columns) > _NAMED else "")
    return requirement(
        "prior_precision",
        "larger where the columns of X depend on each other to rounding",
        f"{target.prior_precision[columns].min():g} for columns {shown}, where X is of rank {rank} of {target.dim}",
        "drop a column, scale them to about 1, or give a larger prior_precision",
    )


def separable() -> ValueError:
    """The error for data that pull the mode to infinity."""
    return ValueError(
        "the posterior is improper and has no mode: the data are separable and the prior is flat along a direction "
        "that separates them; give prior_precision > 0."
    )


def least_eigenvalue(hessian: Array) -> float:
    """Of the Hessian with its columns scaled."""
    scale = _inverse_root(np.diag(hessian))
    return float(np.linalg.eigvalsh(hessian * scale * scale[:, None])[0])


def _inverse_root(diagonal: Array) -> Array:
    """Scales that make it 1; a column of zeros keeps them."""
    return np.asarray(np.where(diagonal > 0, diagonal, 1.0) ** -0.5, np.float64)
