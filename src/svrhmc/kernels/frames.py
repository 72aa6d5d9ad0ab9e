"""Changes of variables for the compiled loops: `svrhmc.whitening` in arrays.

A frame says how the displacement u = x − x̂ that the rows meet is made of the state, and how a gradient with respect
to x becomes one with respect to the state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from svrhmc.engines.numeric import QUICK, unshared
from svrhmc.whitening import DenseWhitening, LowRankWhitening, Whitening

PLACE, SHIFT, DENSE, LOW_RANK = 0, 1, 2, 3  # u = x; u = x − centre; u = F z; u = s∘(z + V(c∘Vᵀz))


class Frame(NamedTuple):
    """What `kind` needs; the other arrays are empty. `factor` is F by rows, `turned` is Fᵀ by rows."""

    kind: int
    centre: Any
    turned: Any
    factor: Any
    scale: Any
    basis: Any
    gain: Any


def make_frame(whitening: Whitening | None = None, centre: Any = None) -> Frame:
    """The frame of a whitening; without one, of a shift by `centre`, or of none."""
    none, empty = np.zeros(0), np.zeros((0, 0))
    if isinstance(whitening, DenseWhitening):
        F = np.ascontiguousarray(whitening.factor)
        return Frame(DENSE, none, np.ascontiguousarray(F.T), F, none, empty, none)
    if isinstance(whitening, LowRankWhitening):
        basis = np.ascontiguousarray(whitening.basis.T)
        return Frame(LOW_RANK, none, empty, empty, whitening.scale, basis, whitening.gain)
    if centre is not None:
        return Frame(SHIFT, np.asarray(centre, np.float64), empty, empty, none, empty, none)
    return Frame(PLACE, none, empty, empty, none, empty, none)


@njit(**QUICK)
def displace(frame, z, room, out):
    """out = u of the state z, in the precision of `out`; where u = z, it must hold z already.

    `room` is float64 and as long as z.
    """
    if frame is None:
        return
    if frame.kind == SHIFT:
        for j in range(len(z)):
            out[j] = z[j] - frame.centre[j]
    elif frame.kind == DENSE:
        product(frame.turned, z, room)
        for j in range(len(z)):
            out[j] = room[j]
    elif frame.kind == LOW_RANK:
        for j in range(len(z)):
            room[j] = z[j]
        _spread(frame, room)
        for j in range(len(z)):
            out[j] = frame.scale[j] * room[j]


@njit(**QUICK)
def pull(frame, gradient, room, out):
    """out = Wᵀ·gradient; the two may be one array, and must be where W = I."""
    if frame is None:
        return
    if frame.kind == DENSE:
        product(frame.factor, gradient, room)
        for j in range(len(out)):
            out[j] = room[j]
    elif frame.kind == LOW_RANK:
        for j in range(len(out)):
            room[j] = frame.scale[j] * np.float64(gradient[j])
        _spread(frame, room)
        for j in range(len(out)):
            out[j] = room[j]


@njit(**QUICK)
def product(rows, weights, out):
    """out = Σₖ weights[k]·rows[k], four rows at a time, so that `out` is read and written less often."""
    unshared()
    for j in range(len(out)):
        out[j] = 0.0
    whole = len(weights) // 4 * 4
    for k in range(0, whole, 4):
        a, b = np.float64(weights[k]), np.float64(weights[k + 1])
        c, d = np.float64(weights[k + 2]), np.float64(weights[k + 3])
        first, second, third, fourth = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        for j in range(len(out)):
            out[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j])
    for k in range(whole, len(weights)):
        weight, row = np.float64(weights[k]), rows[k]
        for j in range(len(out)):
            out[j] += weight * row[j]


@njit(**QUICK)
def _spread(frame, z):
    """z += V(c∘Vᵀz), one column of V after another: they are orthonormal, so each sees its own share of z alone."""
    for k in range(len(frame.gain)):
        column = frame.basis[k]
        along = 0.0
        for j in range(len(z)):
            along += column[j] * z[j]
        along *= frame.gain[k]
        for j in range(len(z)):
            z[j] += along * column[j]
