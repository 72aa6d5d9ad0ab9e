"""Extreme eigenvalues of a symmetric matrix, given by its products with vectors, by Lanczos' method (ARPACK).

It need not converge: eigenvalues at an end of the spectrum may lie close together. So the number of restarts is
limited, the budget is checked before each product, and what was not found is reported.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import check_budget

Product = Callable[[Array], Array]

_RESTARTS = 100  # of some ten products each
_ROUGH = 1e-3  # the relative tolerance if an eigenvalue is not found to rounding


def largest_eigenvalue(product: Product, dim: int) -> float:
    """λ_max, or a thousandth more if it is not found to rounding."""
    value = _extreme(product, dim, "LA")
    if value is None:
        raise RuntimeError(
            f"the largest curvature was not found in {_RESTARTS} restarts of Lanczos' method. Scale the columns of X "
            "to about 1, or drop those that nearly depend on others."
        )
    return value


def smallest_eigenvalue(product: Product, dim: int) -> float | None:
    """λ_min, or a thousandth less if it is not found to rounding; None if it is not found."""
    return _extreme(product, dim, "SA")


def extreme_pairs(product: Product, dim: int, count: int, which: str, tolerance: float) -> tuple[Array, Array]:
    """Those of `count` eigenpairs at the upper (which="LA") or lower end ("SA") that converge; vectors in columns."""
    from scipy.sparse.linalg import ArpackNoConvergence

    try:
        values, vectors = _eigsh(product, dim, count, which, tolerance)
    except ArpackNoConvergence as error:
        values, vectors = error.eigenvalues, np.reshape(error.eigenvectors, (dim, -1))
    return np.asarray(values, np.float64), np.asarray(vectors, np.float64)


def _extreme(product: Product, dim: int, which: str) -> float | None:
    from scipy.sparse.linalg import ArpackError

    for tolerance in (0.0, _ROUGH):
        try:
            value = float(_eigsh(product, dim, 1, which, tolerance, return_eigenvectors=False)[0])
        except ArpackError:
            continue
        return value + (tolerance if which == "LA" else -tolerance) * abs(value)
    return None


def _eigsh(product: Product, dim: int, count: int, which: str, tolerance: float, **options: object) -> Array:
    from scipy.sparse.linalg import LinearOperator, eigsh

    def multiply(z: Array) -> Array:
        check_budget()
        return product(z.ravel())

    operator = LinearOperator((dim, dim), matvec=multiply, dtype=np.float64)
    values: Array = eigsh(operator, count, which=which, v0=np.ones(dim), tol=tolerance, maxiter=_RESTARTS, **options)
    return values
