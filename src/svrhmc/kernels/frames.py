"""Changes of variables for the compiled loops, chosen by the type of the frame.

A frame says how the displacement u = x − x̂ that the rows meet is made of the state, and how a gradient with respect
to x becomes one with respect to the state. Without a frame (None) u = x.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numba.core.errors import TypingError
from numba.extending import overload

from svrhmc.core.arrays import Array
from svrhmc.kernels.compiling import QUICK, one_copy, unshared
from svrhmc.kernels.layout import is_a, is_none
from svrhmc.kernels.triangular import Factor, solve_by_address


class Shift(NamedTuple):
    """u = x − centre."""

    centre: Array


class Dense(NamedTuple):
    """u = F z: `factor` is F by rows, `turned` is Fᵀ by rows."""

    turned: Array
    factor: Array


class LowRank(NamedTuple):
    """u = s∘(z + V(c∘Vᵀz)): scale s, gain c, and the columns of V, which are orthonormal, as rows of `basis`."""

    scale: Array
    basis: Array
    gain: Array


Frame = Shift | Dense | LowRank | Factor


def shift(centre: Array) -> Shift:
    """The frame of a shift."""
    return Shift(np.asarray(centre, np.float64))


def dense(factor: Array) -> Dense:
    """The frame of u = F z."""
    F = np.ascontiguousarray(factor)
    return Dense(np.ascontiguousarray(F.T), F)


def low_rank(scale: Array, basis: Array, gain: Array) -> LowRank:
    """The frame of u = s∘(z + V(c∘Vᵀz)), with the columns of V side by side in `basis`."""
    return LowRank(scale, np.ascontiguousarray(basis.T), gain)


def unknown(frame):
    """The error for a frame that a function has no formula for."""
    kinds = ", ".join(kind.__name__ for kind in (Shift, Dense, LowRank, Factor))
    return TypingError(f"no change of variables is compiled for the frame {frame}: one of {kinds} is needed")


def displace(frame, z, room, out):
    """out = u of the state z, in the precision of `out`; where u = z, it must hold z already.

    `room` is float64 and as long as z.
    """


@overload(displace, jit_options=QUICK)
def _displace(frame, z, room, out):
    if is_none(frame):
        return lambda frame, z, room, out: None
    if is_a(frame, Shift):

        def shifted(frame, z, room, out):
            for j in range(len(z)):
                out[j] = z[j] - frame.centre[j]

        return shifted
    if is_a(frame, Dense):

        def by_matrix(frame, z, room, out):
            product(frame.turned, z, room)
            for j in range(len(z)):
                out[j] = room[j]

        return by_matrix
    if is_a(frame, LowRank):

        def by_basis(frame, z, room, out):
            for j in range(len(z)):
                room[j] = z[j]
            _spread(frame, room)
            for j in range(len(z)):
                out[j] = frame.scale[j] * room[j]

        return by_basis
    if is_a(frame, Factor):

        def by_factor(frame, z, room, out):
            order = frame.order
            for p in range(len(z)):
                room[p] = z[p]
            solve_by_address(frame, room, 1, False)
            for p in range(len(z)):
                out[order[p]] = room[p]

        return by_factor
    raise unknown(frame)


def pull(frame, gradient, room, out):
    """out = Wᵀ·gradient; the two may be one array, and must be where W = I."""


@overload(pull, jit_options=QUICK)
def _pull(frame, gradient, room, out):
    if is_none(frame) or is_a(frame, Shift):
        return lambda frame, gradient, room, out: None
    if is_a(frame, Dense):

        def by_matrix(frame, gradient, room, out):
            product(frame.factor, gradient, room)
            for j in range(len(out)):
                out[j] = room[j]

        return by_matrix
    if is_a(frame, LowRank):

        def by_basis(frame, gradient, room, out):
            for j in range(len(out)):
                room[j] = frame.scale[j] * np.float64(gradient[j])
            _spread(frame, room)
            for j in range(len(out)):
                out[j] = room[j]

        return by_basis
    if is_a(frame, Factor):
        return lambda frame, gradient, room, out: _pull_by_factor(frame, gradient, room, out)
    raise unknown(frame)


@njit(**QUICK)
def _pull_by_factor(frame, gradient, room, out):
    """A function of its own, compiled once, where an overload is compiled for each kind of caller."""
    order = frame.order
    for p in range(len(out)):
        room[p] = gradient[order[p]]
    solve_by_address(frame, room, 1, True)
    for p in range(len(out)):
        out[p] = room[p]


@njit(**QUICK)
def product(rows, weights, out):
    """out = Σₖ weights[k]·rows[k], four rows at a time, so that `out` is read and written less often.

    `weights` may be padded.
    """
    one_copy()
    unshared()
    for j in range(len(out)):
        out[j] = 0.0
    whole = len(rows) // 4 * 4
    for k in range(0, whole, 4):
        a, b = np.float64(weights[k]), np.float64(weights[k + 1])
        c, d = np.float64(weights[k + 2]), np.float64(weights[k + 3])
        first, second, third, fourth = rows[k], rows[k + 1], rows[k + 2], rows[k + 3]
        for j in range(len(out)):
            out[j] += (a * first[j] + b * second[j]) + (c * third[j] + d * fourth[j])
    for k in range(whole, len(rows)):
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
