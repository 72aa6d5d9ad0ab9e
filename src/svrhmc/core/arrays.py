"""Array types, the number of cores, and sums whose rounding does not depend on how many chains are summed at once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import requirement

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Result = TypeVar("Result")
Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Reals = npt.NDArray[np.floating]  # of float32 or float64, as rows are stored
Integers = npt.NDArray[np.integer]  # of any width
Values = npt.NDArray[np.generic]  # of any type: labels, texts, numbers
Mask = npt.NDArray[np.bool_]
Selection = slice | Integers | Mask  # some places along an axis

_MIDDLE = 1.349  # standard deviations of a normal law between its quartiles


def interquartile_sd(values: Array) -> float:
    """The standard deviation estimated by the interquartile range, which outliers do not change; it may be infinite."""
    low, high = np.quantile(np.nan_to_num(values, nan=np.inf), (0.25, 0.75), method="nearest")
    return float(high - low) / _MIDDLE if np.isfinite([low, high]).all() else np.inf


def contract(subscripts: str, *arrays: Array) -> Array:
    """np.einsum without BLAS: each sum runs in one order, whatever the other axes are, and on one thread.

    A BLAS product may round one chain differently in the company of others; then a seed would not fix the draws.
    """
    result: Array = np.einsum(subscripts, *arrays, optimize=False)
    return result


def sums_by_index(indices: Indices, amounts: Array, size: int) -> Array:
    """The sum of the amounts of each index 0 … size − 1, added in the order of the amounts."""
    return np.bincount(indices, amounts, size).astype(np.float64, copy=False)


def scaling_unit(*arrays: Array) -> float:
    """A power of 2 near the largest number if its powers could overflow or underflow float64; else 1."""
    largest = max(float(np.abs(array).max(initial=0.0)) for array in arrays)
    return 1.0 if largest == 0 or 1e-60 < largest < 1e60 else 2.0 ** min(int(np.frexp(largest)[1]), 1023)


def ratio(amount: Array, size: Array) -> Array:
    """amount/size with 0/0 = 0: a quantity that never changes has no error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(amount == 0, 0.0, np.divide(amount, size))


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_blocks(function: Callable[[slice], Result], n: int, size: int) -> list[Result]:
    """function(block) of blocks of `size` rows each, in their order, on all cores."""
    blocks = [slice(begin, begin + size) for begin in range(0, n, size)]
    if len(blocks) == 1:
        return [function(blocks[0])]
    with ThreadPoolExecutor(min(cores(), max(1, len(blocks)))) as pool:
        return list(pool.map(function, blocks))


def require_equal_lengths(numbers: DataclassInstance) -> None:
    """Refuse a dataclass whose arrays do not all have one number for each coordinate."""
    values = {field.name: getattr(numbers, field.name) for field in fields(numbers)}
    shapes = {name: value.shape for name, value in values.items() if isinstance(value, np.ndarray)}
    if len(set(shapes.values())) > 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise requirement(type(numbers).__name__, "arrays of one number for each coordinate", shapes)


def digest(*arrays: Values) -> str:
    """A hash of the contents, shapes and types of arrays."""
    total = hashlib.blake2b(digest_size=16)
    for array in arrays:
        total.update(f"{array.shape}{array.dtype.str}".encode())
        for begin in range(0, len(array), rows := max(1, (1 << 22) // max(1, array[:1].nbytes))):
            total.update(np.ascontiguousarray(array[begin : begin + rows]).view(np.uint8).data)
    return total.hexdigest()
