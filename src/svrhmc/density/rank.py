"""The rank of the design matrix, where a prior is flat; and the errors for posteriors that have no density.

f does not grow for ever along d where the prior is flat, Λd = 0, and either no row sees d (Ad = 0: the columns of X are
linearly dependent) or no row's loss grows with it (the data are separable). Neither depends on units: columns are
scaled before their rank is judged, and the aᵢᵀd of rows are compared with each other.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import EIGENVECTORS, indivisible_work
from svrhmc.core.errors import requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import RowsDensity

SINGULAR = 1e-13  # of the scaled Hessian: dependent columns leave 3e-15 by rounding, and here variances are good to 3%
_ROUNDING = 4 * float(np.finfo(np.float64).eps)  # times dim, where columns are many
_SIZE, _RESTARTS = 40, 10  # of Lanczos, after which columns too many for a dense Hessian pass for independent
_NAMED = 8  # columns, in an error


def require_rank(target: RowsDensity, hessian: Array) -> None:
    """Refuse a Hessian that is singular when its columns are scaled."""
    diagonal = np.diag(hessian)
    if (target.prior_strength > 1e-10 * diagonal).all():  # then no eigenvalue of the scaled Hessian is below 1e-10
        return
    scale = _inverse_root(diagonal)
    with indivisible_work(EIGENVECTORS * target.dim**3):
        values, vectors = np.linalg.eigh(hessian * scale * scale[:, None] + np.diag(np.where(diagonal > 0, 0.0, -1.0)))
    if values[0] <= max(SINGULAR, _ROUNDING * target.dim):
        raise dependence_error(target, vectors[:, 0])


def require_rank_of(target: RowsDensity, gram: Array, columns: Indices) -> None:
    """Refuse columns of which one is a combination of others, by a pivoted Cholesky factor of their scaled Gram matrix.

    P has the pivots: G[P, P] = LLᵀ. A column j beyond them is their combination L⁻ᵀL⁻¹G[P, j], which names it.
    """
    from scipy.linalg import cho_solve
    from scipy.linalg.lapack import dpstrf

    scale = _inverse_root(np.diag(gram))
    unit = gram * scale * scale[:, None]
    if not unit.diagonal().all():
        raise empty_columns_error(target, columns[unit.diagonal() == 0])
    lower, pivots, rank, _ = dpstrf(unit, tol=max(SINGULAR, _ROUNDING * len(gram)), lower=1)
    if rank == len(gram):
        return
    independent, dependent = pivots[:rank] - 1, int(pivots[rank] - 1)
    share = cho_solve((lower[:rank, :rank], True), unit[independent, dependent])
    used = np.abs(share) > 1e-4
    factors = share[used] * scale[independent[used]] / scale[dependent]
    why = f"column {columns[dependent]} is a combination of the others"
    if used.sum() == 1:
        partner, factor = independent[used][0], factors[0]
        first, second, factor = (
            (partner, dependent, factor) if partner < dependent else (dependent, partner, 1 / factor)
        )
        why = f"column {columns[second]} is {factor:.4g} times column {columns[first]}"
    raise dependent_columns_error(target, np.sort(columns[np.append(independent[used], dependent)]), why)


def require_rank_by_products(target: RowsDensity, curvature: Array, diagonal: Array) -> None:
    """The same without a dim × dim matrix; columns pass if a limited number of products finds no dependence."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    unseen = diagonal == 0
    if unseen.any():
        raise dependence_error(target, unseen)
    flat = target.prior_strength == 0
    if flat.sum() > target.n:
        raise dependence_error(target, flat)
    if target.dim == 1:
        return
    scale, product = _inverse_root(diagonal), target.operator(curvature, target.prior_strength)
    scaled = LinearOperator(product.shape, matvec=lambda z: scale * product.matvec(scale * z.ravel()), dtype=float)
    start = Stream(0, np.arange(1)).normals(0, target.dim, Purpose.DATA, Purpose.DATA_FINE)[0]
    size = min(_SIZE, target.dim)
    try:
        values, vectors = eigsh(scaled, k=1, which="SA", v0=start, ncv=size, maxiter=_RESTARTS, tol=1e-6)
    except ArpackNoConvergence:
        return
    if values[0] <= max(SINGULAR, _ROUNDING * target.dim):
        raise dependence_error(target, vectors[:, 0])


def dependence_error(target: RowsDensity, direction: Array) -> ValueError:
    """The error for columns that depend on each other along a direction, given in scaled columns."""
    coordinates = np.flatnonzero(np.abs(direction) > 1e-4 * np.abs(direction).max())
    return dependent_columns_error(target, target.rows.columns_of(coordinates), "")


def dependent_columns_error(target: RowsDensity, columns: Indices, why: str) -> ValueError:
    """The error for columns that depend on each other, with what is known of how."""
    verb = "are" if len(columns) > 1 else "is"
    return requirement(
        "prior_precision",
        "positive where the columns of X are linearly dependent",
        f"{target.prior_strength[columns].min():g} for {_columns_in_words(columns)}, which {verb}",
        f"{why + ', so ' if why else ''}the posterior is improper; give prior_precision > 0 or drop a column",
    )


def empty_columns_error(target: RowsDensity, columns: Indices) -> ValueError:
    """The error for columns of zeros, or of numbers so small that their squares are 0 in float64."""
    several = len(columns) > 1
    why = "nothing but zeros is in them or in their squares" if several else "it is all zeros, or its squares are"
    return dependent_columns_error(target, columns, why)


def _columns_in_words(columns: Indices, names: tuple[str, ...] = ()) -> str:
    words = [repr(names[j % len(names)]) if names else str(j) for j in columns[:_NAMED]]
    listed = ", ".join(words) + (", …" if len(columns) > _NAMED else "")
    return f"columns {listed}" if len(columns) > 1 else f"column {listed}"


def near_dependence_error(target: RowsDensity, hessian: Array) -> ValueError:
    """The error for a Hessian without a Cholesky factor: its rank in float64, and the columns that depend on others."""
    scale = _inverse_root(np.diag(hessian))
    values, vectors = np.linalg.eigh(hessian * scale * scale[:, None])
    rank = int((values > max(SINGULAR, _ROUNDING * target.dim)).sum())
    columns = np.flatnonzero(np.abs(vectors[:, 0]) > 1e-4 * np.abs(vectors[:, 0]).max())
    listed = _columns_in_words(columns, target.rows.names)
    return requirement(
        "prior_precision",
        "larger where the columns of X depend on each other to rounding",
        f"{target.prior_precision[columns].min():g} for {listed}, where X is of rank {rank} of {target.dim}",
        "drop a column, scale them to about 1, or give a larger prior_precision",
    )


def no_density_error(target: RowsDensity) -> ValueError:
    """The error for a Hessian that is not positive definite."""
    return requirement(
        "prior_precision",
        "positive where the columns of X are linearly dependent or the data are separable",
        f"a smallest value of {target.prior_precision.min():g}",
        "the posterior is improper",
    )


def separable_error(columns: Indices | None = None) -> ValueError:
    """The error for data that pull the mode to infinity."""
    listed = "" if columns is None else f" (that of {_columns_in_words(columns)})"
    return ValueError(
        "the posterior is improper and has no mode: the data are separable and the prior is flat along a direction "
        f"that separates them{listed}: no row becomes less likely along it, however far; give prior_precision > 0 or a "
        "prior."
    )


def smallest_scaled_eigenvalue(hessian: Array) -> float:
    """The smallest eigenvalue of the Hessian with its columns scaled to a diagonal of 1."""
    scale = _inverse_root(np.diag(hessian))
    return float(np.linalg.eigvalsh(hessian * scale * scale[:, None])[0])


def _inverse_root(diagonal: Array) -> Array:
    """Scales that make a diagonal 1; 1 for columns of zeros."""
    return np.asarray(np.where(diagonal > 0, diagonal, 1.0) ** -0.5, np.float64)
