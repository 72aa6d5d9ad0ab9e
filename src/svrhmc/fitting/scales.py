"""Centre and scale of columns: in one pass over blocks of rows, with weights that count rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError

_FEW = 1000  # rows that show most columns to have more than two values
_BLOCK = 1 << 21  # numbers looked at in one piece
_LARGEST = 1e70
_ROUNDING = 1e-10  # of a column's size, below which its spread is nothing but rounding


class Scales(NamedTuple):
    """Of each column: its mean (0 for sparse ones, which no centre is taken from), its standard deviation (1 where it
    is constant), and whether it is.
    """

    centre: Array
    scale: Array
    constant: npt.NDArray[np.bool_]
    left: Array  # the mean, in scales, that no centre takes off
    step: Array  # a typical change of the column: its scale, or the difference of its two values where it has but two


def require_size(X: Any, names: Sequence[str], what: str = "column") -> None:
    """Refuse columns whose numbers are so large, or differ by so little, that squares of coefficients would overflow:
    with sizes from 10⁻⁷⁰ to 10⁷⁰ a coefficient is at most 10¹⁴⁰, and its square 10²⁸⁰.
    """
    if not X.shape[1]:
        return
    if hasattr(X, "format"):
        low, high = (np.asarray(each.todense(), np.float64).ravel() for each in (X.min(axis=0), X.max(axis=0)))
    else:
        low, high = np.asarray(X.min(axis=0), np.float64), np.asarray(X.max(axis=0), np.float64)
    size, differ = np.maximum(np.abs(low), np.abs(high)), high / 2 - low / 2
    odd = (size > _LARGEST) | ((differ > 0) & (differ < 1 / _LARGEST))
    if odd.any():
        j = int(np.argmax(odd))
        raise DataError(
            f"{f'{what} {names[j]!r}' if names else what} goes from {low[j]:.3g} to {high[j]:.3g}, which is too "
            f"{'large' if size[j] > _LARGEST else 'small'} to calculate with: take another unit."
        )


def scales_of(X: Any, weights: Array | None, centred: bool) -> Scales:
    """Of dense or CSR rows; without `centred` (no intercept takes the centres up) they are only scaled, by √mean square
    about the mean as well."""
    sparse = hasattr(X, "format")
    first, mean, second = _moments(X, weights, sparse)
    sd = np.sqrt(second)
    size = np.abs(first + mean)
    constant = constant_columns(sd, size, first)
    scale = np.where(constant, 1.0 if centred else size, sd)
    scale = np.where(scale > 0, scale, 1.0)
    centre = np.zeros_like(mean) if sparse or not centred else first + mean
    step = np.where(constant, np.nan, _differences(X, sparse))
    return Scales(centre, scale, constant, (first + mean - centre) / scale, np.where(np.isnan(step), scale, step))


def constant_columns(sd: Array, size: Array, first: Array) -> npt.NDArray[np.bool_]:
    """Those whose spread is nothing but rounding."""
    return sd <= _ROUNDING * np.maximum(size, np.abs(first))


def no_column(name: str, low: float, high: float) -> DataError:
    """Why a column from low to high says nothing beside an intercept: it is constant, or its spread is lost in the
    rounding of its size, as that of time stamps in nanoseconds may be.
    """
    if high > low:
        return DataError(
            f"column {name!r} goes from {low:.17g} to {high:.17g}, a range that would be lost in rounding beside its "
            "size: subtract its smallest value first (column - column.min())."
        )
    return DataError(f"column {name!r} is constant, and cannot be told from the intercept: leave it out.")


def _differences(X: Any, sparse: bool) -> Array:
    """The difference of the two values of each column that has two; nan of the others.

    A sparse column of one value v beside zeros has Σx² = vΣx.
    """
    n, dim = X.shape
    if sparse:
        ones = np.ones(n)
        high, low = (np.asarray(each.todense(), np.float64).ravel() for each in (X.max(axis=0), X.min(axis=0)))
        value = np.where(high > 0, high, low)
        sums, squares = (np.asarray(part.T @ ones, np.float64).ravel() for part in (X, X.multiply(X)))
        return np.where(np.abs(squares - value * sums) <= 1e-12 * squares, np.abs(value), np.nan)
    found = np.full(dim, np.nan)
    for j in np.flatnonzero([len(np.unique(X[:_FEW, j])) <= 2 for j in range(dim)]):
        least, most = float(X[:, j].min()), float(X[:, j].max())
        if all(((X[some, j] == least) | (X[some, j] == most)).all() for some in _blocks(n, 1)):
            found[j] = most - least
    return found


def _moments(X: Any, weights: Array | None, sparse: bool) -> tuple[Array, Array, Array]:
    """A first value, the mean of what lies beyond it, and the variance: sums about a value of the column's own, so that
    a large offset takes no digits away.
    """
    n, dim = X.shape
    total = float(n if weights is None else weights.sum())
    if sparse:
        w = np.ones(n) if weights is None else weights
        mean = np.asarray(X.T @ w, np.float64).ravel() / total
        square = np.asarray(X.multiply(X).T @ w, np.float64).ravel() / total
        return np.zeros(dim), mean, np.maximum(square - mean**2, 0.0)
    first = np.asarray(X[0], np.float64)
    sums, squares = np.zeros(dim), np.zeros(dim)
    for some in _blocks(n, dim):
        away: Array = np.asarray(X[some], np.float64) - first
        sums += away.sum(axis=0) if weights is None else weights[some] @ away
    mean = sums / total
    for some in _blocks(n, dim):
        away = np.asarray(X[some], np.float64) - first - mean
        squares += np.einsum("ij,ij->j", away, away if weights is None else away * weights[some, None])
    return first, mean, squares / total


def _blocks(n: int, dim: int) -> list[slice]:
    size = max(1, _BLOCK // max(1, dim))
    return [slice(begin, begin + size) for begin in range(0, n, size)]
