"""Where a loss stays bounded, face by face: what each family declares, so that a posterior can be told to be proper.

Let ℓ(t, y) be the loss of one row with k predictors. Going from any t along u ∈ ℝᵏ, ℓ(t + su, y) either grows without
bound as s → ∞, or it does not. The u along which it does not are a cone with k faces,

    C(y) = {u : nᵣᵀu ≤ 0 for r = 1 … k},       and nᵣᵀu = 0 where a face is closed on both sides.

For one predictor a cone is known from two answers: does ℓ grow as t → +∞, and as t → −∞?

    both       C = {0}            a number that was measured; a count above 0
    only up    C = {u ≤ 0}        a class 0; a count of 0
    only down  C = {u ≥ 0}        a class 1
    neither    C = ℝ              a row that says nothing
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.families.primitives import Value


class Faces(NamedTuple):
    """Normals (n, k, k), a row of the second axis for each face, and which faces are closed on both sides (n, k)."""

    normals: Array
    both: npt.NDArray[np.bool_]


def sides(up: Value, down: Value) -> Faces:
    """The cones of one predictor, from whether the loss grows as t → +∞ and as t → −∞.

    >>> sides(np.array([True, True, False]), np.array([True, False, True])).normals.ravel()
    array([ 1.,  1., -1.])
    """
    up, down = np.broadcast_arrays(np.atleast_1d(up), np.atleast_1d(down))
    normals = np.where(up, 1.0, np.where(down, -1.0, 0.0))
    return Faces(normals[:, None, None], (up & down)[:, None])
