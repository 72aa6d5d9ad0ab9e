"""Trajectories of split HMC (`svrhmc.exact.split`, the definition), whose passes over the rows are called by address:
so this is compiled once for each kind of map, whatever the family, the storage and the number of predictors.

A step that comes to where H is not a number is left to the definition, which finds out why.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from numba import njit
from numba.extending import overload

from svrhmc.core.arrays import Array, Integers, Reals
from svrhmc.kernels.compiling import ENTRY, FAST, PLAIN, QUICK, call_bound, kept
from svrhmc.kernels.frames import displace, pull
from svrhmc.kernels.layout import is_a
from svrhmc.kernels.priors import Heavy, prior_slopes, prior_value
from svrhmc.kernels.triangular import Factor, solve_by_address


class Rows(NamedTuple):
    """A pass over the rows at the states of some chains, which are evaluated some at a time."""

    address: int
    data: Integers  # one for each of these groups
    states: Reals  # one behind the other, as the pass reads them
    partial: Array  # sums of blocks of rows, likewise
    values: Array
    together: int  # states of a group; the last may have fewer
    blocks: int  # of rows
    place: Integers  # of each coordinate in a state as it is laid for the pass
    width: int  # numbers of a state there
    aside: bool  # whether the states of a group lie side by side


class Prior(NamedTuple):
    """½Λ(x − p)², and ψ (`priors.Heavy` or None) plus a constant, at x = centre + u."""

    centre: Array
    mean: Array
    precision: Array
    heavy: Heavy | None
    constant: float


class Path(NamedTuple):
    """Settings of trajectories: turns, and kicks before and after them, in steps."""

    step_size: float
    jitter: float
    halvings: int
    turns: Array
    first: Array
    last: Array


class Room(NamedTuple):
    """For some chains that move in step; the first axis is the chain."""

    q: Array
    v: Array
    force: Array
    u: Array
    total: Array
    angle: Array
    before: Array
    energy: Array
    spare: Array  # for one state


def displace_all(frame, states, room, spare, out):
    """`displace` of several states; where a map is read from memory, it is read once for all. `room` is as large."""


@overload(displace_all, jit_options=QUICK)
def _displace_all(frame, states, room, spare, out):
    if is_a(frame, Factor):

        def by_factor(frame, states, room, spare, out):
            order, dim = frame.order, out.shape[1]
            for c in range(len(out)):
                for p in range(dim):
                    room[c, p] = states[c, p]
            solve_by_address(frame, room, len(out), False)
            for c in range(len(out)):
                for p in range(dim):
                    out[c, order[p]] = room[c, p]

        return by_factor

    def one_by_one(frame, states, room, spare, out):
        for c in range(len(out)):
            displace(frame, states[c], spare, out[c])

    return one_by_one


def pull_all(frame, gradients, spare, out):
    """`pull` of several gradients."""


@overload(pull_all, jit_options=QUICK)
def _pull_all(frame, gradients, spare, out):
    if is_a(frame, Factor):

        def by_factor(frame, gradients, spare, out):
            order, dim = frame.order, out.shape[1]
            for c in range(len(out)):
                for p in range(dim):
                    out[c, p] = gradients[c, order[p]]
            solve_by_address(frame, out, len(out), True)

        return by_factor

    def one_by_one(frame, gradients, spare, out):
        for c in range(len(out)):
            pull(frame, gradients[c], spare, out[c])

    return one_by_one


@njit(**PLAIN)
def _pass(rows, us, totals, energy, valued):
    """Σ ℓ and Σ Jᵀs of all rows at each u, by one pass for each group of states."""
    address, data, states, partial, values, together, blocks, place, width, aside = rows
    chains, dim = us.shape
    for group in range(len(data)):
        first = group * together
        count = min(together, chains - first)
        size, beside = count * width, count if aside else 1
        laid, sums = states[first * width :], partial[first * width * blocks :]
        worth = values[first * blocks :]
        for c in range(count):
            _lay(us[first + c], place, laid[c if aside else c * width :], beside)
        call_bound(address, data[group], 0, blocks, valued)
        for c in range(count):
            energy[first + c] = 0.0
            for j in range(dim):
                totals[first + c, j] = 0.0
            for block in range(blocks):
                energy[first + c] += worth[block * count + c]
                begin = block * size + (c if aside else c * width)
                _take(sums[begin:], place, beside, totals[first + c])


@njit(**QUICK)
def _lay(u, place, out, beside):
    """A state as the pass reads it, each number so far beside the one before it."""
    for j in range(len(u)):
        out[place[j] * beside] = u[j]


@njit(**QUICK)
def _take(sums, place, beside, total):
    """Add to a total what lies so."""
    for j in range(len(total)):
        total[j] += sums[place[j] * beside]


@njit(**QUICK)
def _add_prior(prior, u, total):
    """The prior at x = centre + u joins the gradient; gives its value. u becomes x."""
    centre, mean, precision, heavy, constant = prior
    value = 0.0
    for j in range(len(u)):
        u[j] += centre[j]
        away = u[j] - mean[j]
        total[j] += precision[j] * away
        value += away * away * precision[j]
    prior_slopes(heavy, u, total)
    return 0.5 * value + prior_value(heavy, u) + constant


@njit(**QUICK)
def _kick(q, v, force, kick):
    for j in range(len(q)):
        v[j] -= kick * (force[j] - q[j])


@njit(**QUICK)
def _turn(q, v, cosine, sine):
    for j in range(len(q)):
        at, by = q[j], v[j]
        q[j], v[j] = cosine * at + sine * by, cosine * by - sine * at


@njit(**QUICK)
def _kinetic(v):
    """½|v|²."""
    total = 0.0
    for j in range(len(v)):
        total += v[j] * v[j]
    return 0.5 * total


@kept
@njit(fastmath=FAST, **ENTRY)
def follow(
    rows, prior, frame, path, room, z, f, gradient, noise, uniform, draws, gradients, accepted, step, span, slot
):
    """Draws from number `step` + 1 on of some chains, which move in step: from z with f and ∇f there, by the normals
    noise[:, span[0] : span[1]] of (chain, draw, dim) and numbers `uniform` of (chain, draw, 2): the log of the one that
    decides, and U. They go to `draws` and `gradients` (chain, draw, dim) from `slot` on, and what is accepted is
    counted.

    Gives how many were made: fewer than asked for where the next comes to where H is not a number.
    """
    step_size, jitter, halvings, turns, first, last = path
    q, v, force, u, total, angle, before, energy, spare = room
    chains, dim = z.shape
    leapfrogs = len(turns)
    for made in range(span[1] - span[0]):
        s, at, number = span[0] + made, slot + made, step + made + 1
        pieces = min(number & -number, 1 << halvings)
        for c in range(chains):
            angle[c] = step_size * (1.0 + jitter * uniform[c, s, 1]) / pieces
            for j in range(dim):
                q[c, j], v[c, j], force[c, j] = z[c, j], noise[c, s, j], gradient[c, j]
            before[c] = f[c] + _kinetic(v[c])
        share, leaps = first[0], leapfrogs * pieces
        for leap in range(leaps):
            place = leap % leapfrogs
            for c in range(chains):
                turn = turns[place] * angle[c]
                _kick(q[c], v[c], force[c], share * angle[c])
                _turn(q[c], v[c], math.cos(turn), math.sin(turn))
            displace_all(frame, q, force, spare, u)
            _pass(rows, u, total, energy, leap + 1 == leaps)
            for c in range(chains):
                energy[c] += _add_prior(prior, u[c], total[c])
            pull_all(frame, total, spare, force)
            share = last[place] + (first[(leap + 1) % leapfrogs] if leap + 1 < leaps else 0.0)
        for c in range(chains):
            _kick(q[c], v[c], force[c], share * angle[c])
            before[c] -= energy[c] + _kinetic(v[c])
            if math.isnan(before[c]):
                return made
        for c in range(chains):
            if uniform[c, s, 0] < before[c]:
                accepted[c] += 1
                f[c] = energy[c]
                for j in range(dim):
                    z[c, j], gradient[c, j] = q[c, j], force[c, j]
            for j in range(dim):
                draws[c, at, j], gradients[c, at, j] = z[c, j], gradient[c, j]
    return span[1] - span[0]
