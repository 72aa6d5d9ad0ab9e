"""Array types, cores, and sums whose rounding does not depend on how many chains are summed at once."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


def contract(subscripts: str, *arrays: Array) -> Array:
    """np.einsum without BLAS: each sum runs in one order, whatever the other axes are, and on one thread.

    A BLAS product may round a chain differently when other chains stand beside it; then a seed would not fix the draws.
    """
    result: Array = np.einsum(subscripts, *arrays, optimize=False)
    return result


def tally(places: Indices, amounts: Array, size: int) -> Array:
    """Sums of the amounts that fall on each place 0 … size − 1, added in the order given."""
    return np.bincount(places, amounts, size).astype(np.float64, copy=False)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
