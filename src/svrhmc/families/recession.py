"""Recession cones: the directions in which the loss of a row stays bounded, from which propriety is decided.

Let ℓ(t, y) be the loss of one row with k predictors. Along a ray t + su, s → ∞, with u ∈ ℝᵏ, ℓ either grows without
bound or stays bounded. The directions u in which it stays bounded are a cone with k faces,

    C(y) = {u : nᵣᵀu ≤ 0 for r = 1 … k},       and nᵣᵀu = 0 where a face is closed on both sides.

The cone of one predictor follows from two answers: does ℓ grow as t → +∞, and does it grow as t → −∞?

    both       C = {0}            a number that was measured; a count above 0
    only up    C = {u ≤ 0}        a class 0; a count of 0
    only down  C = {u ≥ 0}        a class 1
    neither    C = ℝ              a row without information
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.families.primitives import Value


class RecessionCones(NamedTuple):
    """Normals (n, k, k) of n cones, with faces on the second axis, and which faces are closed on both sides, (n, k)."""

    normals: Array
    both: npt.NDArray[np.bool_]


def one_predictor_cones(grows_up: Value, grows_down: Value) -> RecessionCones:
    """The cones of one predictor, from whether the loss grows as t → +∞ and as t → −∞.

    >>> one_predictor_cones(np.array([True, True, False]), np.array([True, False, True])).normals.ravel()
    array([ 1.,  1., -1.])
    """
    up, down = np.broadcast_arrays(np.atleast_1d(grows_up), np.atleast_1d(grows_down))
    normals = np.where(up, 1.0, np.where(down, -1.0, 0.0))
    return RecessionCones(normals[:, None, None], (up & down)[:, None])
