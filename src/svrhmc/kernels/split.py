"""The compiled loop of split HMC, in which one pass over the rows gives energy and gradient.

The state z is float64; the rows meet u = W z in their own precision, as t = t̂ + u·a with t̂ the predictor at the
centre. Energies and gradients are summed in float64 from tile to tile, each row's energy by itself: a sum of 10⁶ of
them is known to 1e-10, and rows in float32 add to it only their own rounding, 3e-8 a row and independent from row to
row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.kernels.compiling import ENTRY, FAST, INLINE, PLAIN, STRICT, kept, unshared
from svrhmc.kernels.frames import displace_team, pull_team
from svrhmc.kernels.layout import TILE, SparseModel, is_a, is_wide
from svrhmc.kernels.losses import energies, slopes, weigh
from svrhmc.kernels.normals import fill_noise, take_normals
from svrhmc.kernels.priors import prior_slopes, prior_value
from svrhmc.kernels.rows import row_add, row_dot, tile_end, tile_predictors, tile_sum
from svrhmc.kernels.twins import twin_pass
from svrhmc.kernels.wide import wide_pass
from svrhmc.kernels.words import uniform_of

ACCEPT_SLOT = int(Purpose.ACCEPT) * MAX_SLOTS
JITTER_SLOT = ACCEPT_SLOT + 1


class Centre(NamedTuple):
    """What the rows and the prior are at the centre of the whitening: t̂, Λ and Λ(x̂ − p), and ψ or None."""

    t: Any
    prior: Any
    shift: Any
    heavy: Any


class SplitPlan(NamedTuple):
    """Settings of split HMC."""

    step_size: float
    leapfrogs: int
    jitter: float
    halvings: int
    near: float  # |z|²/dim up to which f has to be a number
    turns: Any  # (leapfrogs,), in steps
    first: Any  # the kick before each turn, and that after it
    last: Any


# Every use of a field makes LLVM load the whole tuple: so tuples are small, and fields are taken out of them once.


class Paths(NamedTuple):
    """Trajectories of some chains that move in step, so that a pass over the rows serves them all; the first axis is
    the chain.
    """

    q: Any  # where a trajectory is, its velocity, and ∇f there
    v: Any
    force: Any
    angle: Any  # h of a trajectory, H at its beginning
    before: Any
    energy: Any  # f at q
    normals: Any  # (chains, 3, blocks)


class Sums(NamedTuple):
    """Room for a pass over the rows; the first axis of the first three is the chain."""

    u: Any
    wide: Any  # u in the rows' precision, padded with zeros
    total: Any
    room: Any
    tile: Any
    t: Any
    slope: Any
    value: Any
    twins: Any  # of sparse rows


def _pass(model, t_centre, sums, energy, chains, valued):
    """For each chain Σ ℓ (0 unless `valued`) in `energy` and Σ ℓ′·row in sums.total, at t = t̂ + Aᵀu; rows are read
    once: dense ones for all chains, sparse ones for two at a time.
    """


@overload(_pass, jit_options=PLAIN, inline="always")
def _pass_of(model, t_centre, sums, energy, chains, valued):
    if not is_a(model, SparseModel):
        return lambda model, t_centre, sums, energy, chains, valued: _each(
            model, t_centre, sums, energy, 0, chains, valued
        )

    def sparse(model, t_centre, sums, energy, chains, valued):
        paired = chains // 2 * 2 if len(sums.twins.wide) > 0 else 0
        for c in range(0, paired, 2):
            twin_pass(model, t_centre, sums.twins, sums.wide, sums.total, energy, c, sums.u.shape[1], valued)
        if paired < chains:
            _each(model, t_centre, sums, energy, paired, chains, valued)

    return sparse


def every_row(model, t_centre, sums, energy, chains, valued):
    """`_pass`, or that of a loss of several predictors."""


@overload(every_row, jit_options=PLAIN, inline="always")
def _every_row(model, t_centre, sums, energy, chains, valued):
    if is_wide(model):
        return lambda model, t_centre, sums, energy, chains, valued: wide_pass(
            model, t_centre, sums, energy, chains, valued
        )
    return lambda model, t_centre, sums, energy, chains, valued: _pass(model, t_centre, sums, energy, chains, valued)


@njit(**INLINE)
def _each(model, t_centre, sums, energy, first, chains, valued):
    """Chain by chain, for every tile of rows."""
    wides, totals, tile, t, slope, value = sums.wide, sums.total, sums.tile, sums.t, sums.slope, sums.value
    y, loss, weights = model.y, model.loss, model.weights
    n, pad = len(y), len(tile)
    for c in range(first, chains):
        energy[c] = 0.0
        for j in range(pad):
            totals[c, j] = 0.0
    for low in range(0, n, TILE):
        high = min(n, low + TILE)
        end, count = tile_end(model, low, high, pad), high - low
        centres, labels = t_centre[low:high], y[low:high]
        for c in range(first, chains):
            wide, total = wides[c], totals[c]
            tile_predictors(model, wide, low, end, t)
            for i in range(end, high):
                t[i - low] = row_dot(model, i, wide)
            for k in range(count):
                t[k] += centres[k]
            if valued:
                energies(loss, count, t, labels, slope, value)
                weigh(weights, low, count, value)
                tile_energy = 0.0
                for k in range(count):
                    tile_energy += np.float64(value[k])
                energy[c] += tile_energy
            else:
                slopes(loss, count, t, labels, slope)
            weigh(weights, low, count, slope)
            tile_sum(model, slope, low, end, tile, total)
            for i in range(end, high):
                row_add(model, i, np.float64(slope[i - low]), total)


@njit(**INLINE)
def _evaluate(model, centre, frame, sums, q, force, energy, chains, valued):
    """For each chain f(q) up to a constant in `energy` (of no use unless `valued`), ∇f(q) with respect to z in
    `force`, which is room until then.
    """
    us, wide, totals, room, prior, shift = sums.u, sums.wide, sums.total, sums.room, centre.prior, centre.shift
    dim = us.shape[1]
    displace_team(frame, q, chains, force, room, us)
    for c in range(chains):
        for j in range(dim):
            wide[c, j] = us[c, j]
    every_row(model, centre.t, sums, energy, chains, valued)
    for c in range(chains):
        u, total = us[c], totals[c]
        for j in range(dim):
            total[j] += prior[j] * u[j] + shift[j]
            energy[c] += u[j] * (0.5 * prior[j] * u[j] + shift[j])
        prior_slopes(centre.heavy, u, total)
        energy[c] += prior_value(centre.heavy, u)
    pull_team(frame, totals, chains, room, force)


@njit(**STRICT)
def _angle(plan, k0, k1, step):
    """The mean length of a trajectory's leapfrogs."""
    jitter = 2.0 * uniform_of(k0, k1, step, JITTER_SLOT) - 1.0
    return plan.step_size * (1.0 + plan.jitter * jitter)


@njit(**STRICT)
def _is_lost(q, force, energy, valued, near):
    """Whether f is NaN at a state near the posterior; where only ∇f is known, whether that has an entry that is NaN."""
    size, total = 0.0, energy if valued else 0.0
    for j in range(len(q)):
        size += q[j] * q[j]
        if not valued:
            total += force[j]
    return math.isnan(total) and size <= near * len(q)


@kept
@njit(fastmath=FAST, **ENTRY)
def split(
    model, centre, frame, plan, paths, sums, noise, k0, k1, z, gradient, f, draws, gradients, accepted, members, steps,
    slot,
):  # fmt: skip
    """Draws from steps[0] to steps[1] of the chains members[0] to members[1], which move in step.

    The first draw of a chain goes to draws[chain, slot]. `f` and `gradient` belong to `z`; they are found first where
    f is nan. Each chain's proposals that were accepted are added to `accepted`.

    Gives (−1, steps[1]), or the chain that came to where f is not a number, and the draw on the way to which it did.
    Where ∇f is NaN within a trajectory, f decides: at f = ∞ sums of slopes may be anything; the proposal is refused.
    """
    unshared()
    q, v, force, angle, before, energy = paths.q, paths.v, paths.force, paths.angle, paths.before, paths.energy
    normals, leapfrogs = paths.normals, plan.leapfrogs
    turns, kicks, others = plan.turns, plan.first, plan.last
    first, chains, dim = members[0], members[1] - members[0], z.shape[1]
    half = (dim + 1) // 2
    span = len(noise.steps) // half
    for low in range(steps[0], steps[1], span):
        count = min(span, steps[1] - low)
        base = np.uint32(low & 0xFFFFFFFF)
        for c in range(chains):
            fill_noise(k0[first + c], k1[first + c], base, count * half, noise, normals[c])
        for s in range(count):
            pieces = min((low + s + 1) & -(low + s + 1), 1 << plan.halvings)
            for leap in range(0 if math.isnan(f[first]) else 1, leapfrogs * pieces + 1):  # leap 0 finds f and ∇f
                place = max(leap - 1, 0) % leapfrogs
                for c in range(chains):
                    chain = first + c
                    if leap <= 1:
                        take_normals(normals[c], s, half, v[c])
                        kinetic = 0.0
                        for j in range(dim):
                            kinetic += v[c, j] * v[c, j]
                        for j in range(dim):
                            q[c, j] = z[chain, j]
                            force[c, j] = gradient[chain, j]
                        before[c] = f[chain] + 0.5 * kinetic
                        angle[c] = _angle(plan, k0[chain], k1[chain], low + s) / pieces
                    if leap > 0:
                        turn, part = turns[place] * angle[c], kicks[place] * angle[c]
                        cosine, sine = math.cos(turn), math.sin(turn)
                        for j in range(dim):
                            kicked = v[c, j] - part * (force[c, j] - q[c, j])
                            v[c, j] = cosine * kicked - sine * q[c, j]
                            q[c, j] = cosine * q[c, j] + sine * kicked
                valued = leap == 0 or leap == leapfrogs * pieces
                for _ in range(2):
                    _evaluate(model, centre, frame, sums, q, force, energy, chains, valued)
                    lost = -1
                    for c in range(chains):
                        if _is_lost(q[c], force[c], energy[c], valued, plan.near):
                            lost = first + c
                    if lost < 0:
                        break
                    if valued:
                        return lost, low + s + 1
                    valued = True
                for c in range(chains):
                    part = others[place] * angle[c]
                    for j in range(dim):
                        v[c, j] -= part * (force[c, j] - q[c, j])
                    if leap == 0:
                        f[first + c] = energy[c]
                        for j in range(dim):
                            gradient[first + c, j] = force[c, j]
            for c in range(chains):
                chain, here, kinetic = first + c, slot + low - steps[0] + s, 0.0
                for j in range(dim):
                    kinetic += v[c, j] * v[c, j]
                fall = before[c] - (energy[c] + 0.5 * kinetic)
                if math.log(uniform_of(k0[chain], k1[chain], low + s, ACCEPT_SLOT)) < fall:
                    accepted[chain] += 1
                    f[chain] = energy[c]
                    for j in range(dim):
                        z[chain, j] = q[c, j]
                        gradient[chain, j] = force[c, j]
                for j in range(dim):
                    draws[chain, here, j] = z[chain, j]
                    gradients[chain, here, j] = gradient[chain, j]
    return -1, steps[1]
