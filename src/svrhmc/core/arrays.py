"""Array types, cores, and sums whose rounding does not depend on how many chains are summed at once."""

from __future__ import annotations

import hashlib
import os
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import requirement

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Reals = npt.NDArray[np.floating]  # of float32 or float64, as rows are stored
Integers = npt.NDArray[np.integer]  # of any width
Values = npt.NDArray[np.generic]  # of any type: labels, texts, numbers
Mask = npt.NDArray[np.bool_]
Selection = slice | Integers | Mask  # some places along an axis

_MIDDLE = 1.349  # standard deviations of a normal law between its quartiles


def middle_spread(values: Array) -> float:
    """The standard deviation by the interquartile range, on which outliers have no effect; infinite where that is."""
    low, high = np.quantile(np.nan_to_num(values, nan=np.inf), (0.25, 0.75), method="nearest")
    return float(high - low) / _MIDDLE if np.isfinite([low, high]).all() else np.inf


def contract(subscripts: str, *arrays: Array) -> Array:
    """np.einsum without BLAS: each sum runs in one order, whatever the other axes are, and on one thread.

    A BLAS product may round a chain differently when other chains stand beside it; then a seed would not fix the draws.
    """
    result: Array = np.einsum(subscripts, *arrays, optimize=False)
    return result


def tally(places: Indices, amounts: Array, size: int) -> Array:
    """Sums of the amounts that fall on each place 0 … size − 1, added in the order given."""
    return np.bincount(places, amounts, size).astype(np.float64, copy=False)


def unit_of(*arrays: Array) -> float:
    """A power of 2 near the largest number where that is so large or small that its powers leave float64; else 1."""
    largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays)
    return 1.0 if largest == 0 or 1e-60 < largest < 1e60 else 2.0 ** min(int(np.frexp(largest)[1]), 1023)


def ratio(amount: Array, size: Array) -> Array:
    """amount/size with 0/0 = 0: what never moves has no error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(amount == 0, 0.0, np.divide(amount, size))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def require_alike(numbers: DataclassInstance) -> None:
    """Refuse a dataclass whose arrays are not all of one number for each coordinate."""
    values = {field.name: getattr(numbers, field.name) for field in fields(numbers)}
    shapes = {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise requirement(type(numbers).__name__, "arrays of one number for each coordinate", shapes)


def digest(*arrays: Values) -> str:
    """A hash of the contents, shapes and types of some arrays."""
    total = hashlib.blake2b(digest_size=16)
    for array in arrays:
        total.update(f"{array.shape}{array.dtype.str}".encode())
        for begin in range(0, len(array), rows := max(1, (1 << 22) // max(1, array[:1].nbytes))):
            total.update(np.ascontiguousarray(array[begin : begin + rows]).view(np.uint8).data)
    return total.hexdigest()
