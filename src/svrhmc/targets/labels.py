"""Labels that are counts, checked at the door."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import real_array, requirement

_MOST = 2.0**53  # from here on float64 does not tell one count from the next


def counts(name: str, value: npt.ArrayLike, shape: tuple[int | str, ...]) -> Array:
    """Whole numbers from 0 to below 2⁵³, as floats; others are refused, and the first of them is named."""
    array = np.asarray(real_array(name, value, shape), np.float64)
    for wrong, why in ((array < 0, "a negative count"), (array != np.floor(array), "not a whole number")):
        if wrong.any():
            raise requirement(name, "counts: whole numbers not below 0", f"{first(array, wrong)}, {why}")
    if (array >= _MOST).any():
        raise requirement(
            name, "counts below 2⁵³", first(array, array >= _MOST), "float64 cannot tell larger ones apart"
        )
    return array


def first(array: Array, wrong: npt.NDArray[Any]) -> str:
    """The first wrong one and its place."""
    row = int(np.argmax(wrong))
    return f"{array.flat[row]:.17g} at row {row}"
