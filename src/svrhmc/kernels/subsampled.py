"""The compiled loops of `svrhmc.exact`: a pass for energy and gradient, split HMC, and subsampled Metropolis.

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
from svrhmc.engines.frames import displace, pull
from svrhmc.engines.kernels import copy, fill_noise
from svrhmc.engines.layout import TILE, DenseModel, is_a
from svrhmc.engines.numeric import (
    ENTRY,
    INLINE,
    PLAIN,
    QUICK,
    energies,
    peek,
    prefetch,
    random_words,
    slopes,
    threefry,
)
from svrhmc.engines.sums import row_add, row_dot, row_prefetch, tile_predictors, tile_sum

DONE, FAR, LOOSE = 0, 1, 2
MOST_PICKS = 1 << 26  # rows a step may draw: two slots of the stream each
THIRD = 1 / (6 * math.sqrt(3))  # max |ℓ‴| of the logistic loss
NEAR = 0.05  # |u| below which ρ is summed as a series
ACCEPT_SLOT = int(Purpose.ACCEPT) * MAX_SLOTS
JITTER_SLOT = ACCEPT_SLOT + 1
COUNT_SLOT = int(Purpose.COUNT) * MAX_SLOTS
PICK_SLOT = int(Purpose.PICK) * MAX_SLOTS


class Centre(NamedTuple):
    """What the rows and the prior are at the centre of the whitening: t̂, Λ and Λ(x̂ − p)."""

    t: Any
    prior: Any
    shift: Any


class SplitPlan(NamedTuple):
    """Settings of split HMC; `weight` multiplies the logarithm of the acceptance ratio, and is 1."""

    step_size: float
    leapfrogs: int
    jitter: float
    weight: float


class SubsampledPlan(NamedTuple):
    """Settings of subsampled Metropolis.

    `gain` is log((1 + c)/c); `rate` is Λ/(|z|³ + |z′|³); ρ and √(1 − ρ²) are `keep` and `fresh`.
    """

    keep: float
    fresh: float
    spread: float
    gain: float
    rate: float


class Anchor(NamedTuple):
    """What subsampled Metropolis knows of the centre.

    cells: thresholdᵢ·2³² + aliasᵢ. cards: t̂ᵢ and the probability of each row, side by side. slope: Wᵀ∇f(x̂). leftover:
    WᵀHW − I, or no rows where it is 0.
    """

    cells: Any
    cards: Any
    slope: Any
    leftover: Any


class Room(NamedTuple):
    """Room for one chain of subsampled Metropolis."""

    q: Any  # the proposal
    u: Any
    room: Any
    wide: Any  # u in the rows' precision, padded with zeros; of the state and of the proposal
    wide_now: Any
    noise: Any
    normals: Any
    xi: Any
    pick_steps: Any
    pick_words: Any  # (4, picks): two words for the row, two for the thinning
    pick_slots: Any
    rows: Any


class Team(NamedTuple):
    """Room for some chains that move in step, so that a pass over the rows serves them all; the first axis is the
    chain.
    """

    q: Any  # where a trajectory is, its velocity, and ∇f there
    v: Any
    force: Any
    u: Any
    wide: Any  # u in the rows' precision, padded with zeros
    total: Any
    energy: Any
    angle: Any  # h of a trajectory, H at its beginning
    before: Any
    normals: Any  # (chains, 3, blocks)
    room: Any  # from here on for one chain at a time
    tile: Any
    t: Any
    slope: Any
    value: Any
    noise: Any


# Energy and gradient in one pass.


def tile_end(model, low, high, pad):
    """The last row of a tile up to which rows may be read four by four, and `pad` numbers from each."""


@overload(tile_end, jit_options=PLAIN)
def _tile_end(model, low, high, pad):
    if is_a(model, DenseModel):

        def dense(model, low, high, pad):
            end = low + (high - low) // 4 * 4
            while end > low and (end - 1) * model.X.shape[1] + pad > model.flat.size:
                end -= 4
            return end

        return dense
    return lambda model, low, high, pad: high


@njit(**INLINE)
def _pass(model, t_centre, team, chains, valued):
    """For each chain Σ ℓ (0 unless `valued`) in team.energy and Σ ℓ′·row in team.total, at t = t̂ + Aᵀu; rows are
    read once.
    """
    tile, t, slope, value = team.tile, team.t, team.slope, team.value
    n, dim, pad = len(model.y), team.u.shape[1], team.wide.shape[1]
    for c in range(chains):
        team.energy[c] = 0.0
        for j in range(pad):
            team.total[c, j] = 0.0
    for low in range(0, n, TILE):
        high = min(n, low + TILE)
        end, count = tile_end(model, low, high, pad), high - low
        centres, labels = t_centre[low:high], model.y[low:high]
        for c in range(chains):
            wide, total = team.wide[c], team.total[c]
            tile_predictors(model, wide, low, end, t)
            for i in range(end, high):
                t[i - low] = row_dot(model, i, wide[:dim])
            for k in range(count):
                t[k] += centres[k]
            if valued:
                energies(model.loss, model.scale, t[:count], labels, slope[:count], value[:count])
                energy = 0.0
                for k in range(count):
                    energy += np.float64(value[k])
                team.energy[c] += energy
            else:
                slopes(model.loss, model.scale, t[:count], labels, slope[:count])
            tile_sum(model, slope, low, end, tile, total)
            for i in range(end, high):
                row_add(model, i, np.float64(slope[i - low]), total[:dim])


@njit(**QUICK)
def _evaluate(model, centre, frame, team, chains, valued):
    """For each chain f(q) up to a constant in team.energy (of no use unless `valued`), ∇f(q) with respect to z in
    team.force.
    """
    dim = team.u.shape[1]
    for c in range(chains):
        u, wide = team.u[c], team.wide[c]
        displace(frame, team.q[c], team.room, u)
        for j in range(dim):
            wide[j] = u[j]
    _pass(model, centre.t, team, chains, valued)
    for c in range(chains):
        u, total = team.u[c], team.total[c]
        for j in range(dim):
            total[j] += centre.prior[j] * u[j] + centre.shift[j]
            team.energy[c] += u[j] * (0.5 * centre.prior[j] * u[j] + centre.shift[j])
        pull(frame, total[:dim], team.room, team.force[c])


# Uniforms.


@njit(forceinline=True, **PLAIN)
def _uniform(w0, w1):
    """52 bits and a half, in (0, 1): with one bit more the largest would round to 1."""
    bits = (np.uint64(w0) << np.uint64(20)) | (np.uint64(w1) >> np.uint64(12))
    return (np.float64(np.int64(bits)) + 0.5) * 2.0**-52


@njit(**PLAIN)
def _uniform_of(k0, k1, step, slot):
    w0, w1 = threefry(k0, k1, np.uint32(step & 0xFFFFFFFF), np.uint32(slot))
    return _uniform(w0, w1)


@njit(forceinline=True, **QUICK)
def _square(x):
    total = 0.0
    for j in range(len(x)):
        total += x[j] * x[j]
    return total


# Split HMC.


@njit(**QUICK)
def _trajectories(model, centre, frame, plan, team, chains):
    """Run each (q, v), with ∇f at q in team.force, along its leapfrog steps."""
    dim = team.u.shape[1]
    for step in range(plan.leapfrogs):
        for c in range(chains):
            q, v, force, h = team.q[c], team.v[c], team.force[c], team.angle[c]
            cosine, sine, half = math.cos(h), math.sin(h), 0.5 * h
            for j in range(dim):
                kicked = v[j] - half * (force[j] - q[j])
                v[j] = cosine * kicked - sine * q[j]
                q[j] = cosine * q[j] + sine * kicked
        _evaluate(model, centre, frame, team, chains, step == plan.leapfrogs - 1)
        for c in range(chains):
            q, v, force, half = team.q[c], team.v[c], team.force[c], 0.5 * team.angle[c]
            for j in range(dim):
                v[j] -= half * (force[j] - q[j])


@njit(**ENTRY)
def split(model, centre, frame, plan, team, k0, k1, z, gradient, f, draws, gradients, accepted, members, steps, slot):
    """Draws from steps[0] to steps[1] of the chains members[0] to members[1], which move in step.

    The first draw of a chain goes to draws[chain, slot]. `f` and `gradient` belong to `z`; they are found first where
    f is nan. Each chain's proposals that were accepted are added to `accepted`.
    """
    first, chains, dim = members[0], members[1] - members[0], z.shape[1]
    half = (dim + 1) // 2
    span = len(team.noise.steps) // half
    if chains > 0 and math.isnan(f[first]):
        for c in range(chains):
            copy(z[first + c], team.q[c])
        _evaluate(model, centre, frame, team, chains, chains > 0)  # not True: numba compiles anew for a constant
        for c in range(chains):
            f[first + c] = team.energy[c]
            copy(team.force[c], gradient[first + c])
    for low in range(steps[0], steps[1], span):
        count = min(span, steps[1] - low)
        base = np.uint32(low & 0xFFFFFFFF)
        for c in range(chains):
            fill_noise(k0[first + c], k1[first + c], base, count * half, team.noise, team.normals[c])
        for s in range(count):
            for c in range(chains):
                chain, normals = first + c, team.normals[c]
                copy(normals[0, s * half : (s + 1) * half], team.v[c, :half])
                copy(normals[1, s * half : (s + 1) * half], team.v[c, half:])
                jitter = 2.0 * _uniform_of(k0[chain], k1[chain], low + s, JITTER_SLOT) - 1.0
                team.angle[c] = plan.step_size * (1.0 + plan.jitter * jitter)
                team.before[c] = f[chain] + 0.5 * _square(team.v[c])
                copy(z[chain], team.q[c])
                copy(gradient[chain], team.force[c])
            _trajectories(model, centre, frame, plan, team, chains)
            for c in range(chains):
                chain = first + c
                fall = team.before[c] - (team.energy[c] + 0.5 * _square(team.v[c]))
                if math.log(_uniform_of(k0[chain], k1[chain], low + s, ACCEPT_SLOT)) < plan.weight * fall:
                    accepted[chain] += 1
                    f[chain] = team.energy[c]
                    copy(team.q[c], z[chain])
                    copy(team.force[c], gradient[chain])
                place = slot + low - steps[0] + s
                copy(z[chain], draws[chain, place])
                copy(gradient[chain], gradients[chain, place])


# Subsampled Metropolis.


@njit(**PLAIN)
def poisson(rate, U):
    """A Poisson number from a uniform, by inversion: from 0 up, or from the mode outwards in O(√rate).

    Any order of summing the probabilities is an inversion. That of the mode m is by Loader's formula,
    e^{−δ(m) − D}/√(2πm), with δ Stirling's error and D = m log(m/rate) + rate − m: no term is large.
    """
    if rate < 16.0:
        p, k = math.exp(-rate), 0
        while 1e-20 < p <= U:
            U -= p
            k += 1
            p *= rate / k
        return k
    m = math.floor(rate)
    s = 1.0 / (m * m)
    stirling = (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360))))) / m
    away = (m - rate) / rate
    deviance = rate * ((1.0 + away) * math.log1p(away) - away)
    up = down = math.exp(-stirling - deviance) / math.sqrt(2 * math.pi * m)
    high = low = np.int64(m)
    U -= up
    while U >= 0.0 and up + down > 1e-20:
        high += 1
        up *= rate / high
        U -= up
        if U < 0.0:
            return high
        down = down * low / rate
        low -= 1
        U -= down
        if U < 0.0:
            return low
    return high if U >= 0.0 else np.int64(m)


@njit(**PLAIN)
def remainder(t, u):
    """ρ(u) = ℓ(t + u) − ℓ(t) − ℓ′(t)u − ½ℓ″(t)u² of the logistic loss, which is the same for both labels.

    Where |u| < 0.05 by its series to u⁷, whose coefficients are polynomials in q = ℓ″ and s = 1 − 2p, p = 1/(1 + e⁻ᵗ).
    """
    e = math.exp(-abs(t))
    q, s = e / ((1.0 + e) * (1.0 + e)), (1.0 - e) / (1.0 + e)
    if t > 0:
        s = -s
    if abs(u) < NEAR:
        odd = s * (1 / 6 + u * u * ((1.0 - 12.0 * q) / 120 + u * u * (1.0 - 60.0 * q + 360.0 * q * q) / 5040))
        even = (1.0 - 6.0 * q) / 24 + u * u * (1.0 - 30.0 * q + 120.0 * q * q) / 720
        return q * u * u * u * (odd + u * even)
    p = (1.0 if t > 0 else e) / (1.0 + e)
    there = max(t + u, 0.0) + math.log1p(math.exp(-abs(t + u)))
    return there - (max(t, 0.0) + math.log1p(e)) - u * (p + 0.5 * q * u)


def pair_dots(model, i, a, b):
    """(aᵢᵀa, aᵢᵀb); a and b may be padded with zeros."""


@overload(pair_dots, jit_options={**QUICK, "forceinline": True})
def _pair_dots(model, i, a, b):
    if is_a(model, DenseModel):

        def dense(model, i, a, b):
            flat, dim = model.flat, model.X.shape[1]
            begin = i * dim
            length = len(a) if begin + len(a) <= flat.size else dim
            first = second = a.dtype.type(0)
            for j in range(length):
                first += peek(flat, begin + j) * a[j]
                second += peek(flat, begin + j) * b[j]
            return first, second

        return dense
    return lambda model, i, a, b: (row_dot(model, i, a), row_dot(model, i, b))


@njit(forceinline=True, **PLAIN)
def _pick(cells, w0, w1, rows, count):
    """Row numbers by the alias table, asked for before they are needed."""
    n, shift, mask = np.uint64(len(cells)), np.uint64(32), np.uint64(0xFFFFFFFF)
    for k in range(count):
        prefetch(cells, np.int64((np.uint64(w0[k]) * n + ((np.uint64(w1[k]) * n) >> shift)) >> shift))
    for k in range(count):
        total = np.uint64(w0[k]) * n + ((np.uint64(w1[k]) * n) >> shift)
        cell = cells[np.int64(total >> shift)]
        rows[k] = np.int64(total >> shift if (total & mask) < (cell >> shift) else cell & mask)


@njit(**PLAIN)
def _signs(model, anchor, plan, room, k0, k1, step, count, total_rate):
    """Σᵢ Sᵢ sign rᵢ by thinning `count` rows; and whether a row's rate was above its bound.

    A row is dropped without its ρ where even |ρ(u)| ≤ M|u|³/6 would drop it: nearly all are.
    """
    base = np.uint32(step & 0xFFFFFFFF)
    words, rows, cards = room.pick_words, room.rows, anchor.cards
    chunk, c = len(rows), plan.spread
    score, loose = 0, False
    for low in range(0, count, chunk):
        size = min(chunk, count - low)
        for half in range(2):
            for k in range(size):
                room.pick_slots[k] = np.uint32(PICK_SLOT + 2 * (low + k) + half)
            random_words(
                k0, k1, base, room.pick_steps[:size], room.pick_slots[:size],
                words[2 * half, :size], words[2 * half + 1, :size],
            )  # fmt: skip
        _pick(anchor.cells, words[0], words[1], rows, size)
        for k in range(size):
            row_prefetch(model, rows[k])
            prefetch(cards, 2 * rows[k])
        for k in range(size):
            i = rows[k]
            u, u_new = pair_dots(model, i, room.wide_now, room.wide)
            now, new = np.float64(u), np.float64(u_new)
            bound = total_rate * cards[2 * i + 1]
            threshold = bound * _uniform(words[2, k], words[3, k])
            if threshold >= (1.0 + c) * (THIRD / 6 * (1.0 + 1e-12)) * (abs(now) ** 3 + abs(new) ** 3):
                continue
            r = remainder(cards[2 * i], now) - remainder(cards[2 * i], new)
            rate = (c if r > 0.0 else 1.0 + c) * abs(r)
            loose = loose or not rate <= bound
            if threshold < rate:
                score += 1 if r > 0.0 else -1
    return score, loose


@njit(**QUICK)
def _log_known(anchor, z):
    """−(g·z + ½zᵀEz): what of log π/N(0, I) is known without the rows."""
    total = 0.0
    for j in range(len(z)):
        total += anchor.slope[j] * z[j]
    for i in range(len(anchor.leftover)):
        row, along = anchor.leftover[i], 0.0
        for j in range(len(z)):
            along += row[j] * z[j]
        total += 0.5 * z[i] * along
    return -total


@njit(**PLAIN)
def _displace_wide(frame, z, room, wide):
    displace(frame, z, room.room, room.u)
    for j in range(len(z)):
        wide[j] = room.u[j]


@njit(**ENTRY)
def subsampled(model, anchor, frame, plan, room, key, z, draws, counts, steps):
    """Draws from steps[0] to steps[1] of one chain; counts[k] rows were evaluated for draw k.

    Gives (DONE, accepted), or (FAR, k) where a step would draw too many rows, or (LOOSE, k) where a bound failed.
    """
    k0, k1 = key
    dim = len(z)
    half = (dim + 1) // 2
    span = len(room.noise.steps) // half
    first, second = room.normals[0], room.normals[1]
    accepted = 0
    _displace_wide(frame, z, room, room.wide_now)
    known, cube = _log_known(anchor, z), _square(z) ** 1.5
    for low in range(steps[0], steps[1], span):
        count = min(span, steps[1] - low)
        base = np.uint32(low & 0xFFFFFFFF)
        fill_noise(k0, k1, base, count * half, room.noise, room.normals)
        for s in range(count):
            step, q, slot = low + s, room.q, low - steps[0] + s
            copy(first[s * half : (s + 1) * half], room.xi[:half])
            copy(second[s * half : (s + 1) * half], room.xi[half:])
            for j in range(dim):
                q[j] = plan.keep * z[j] + plan.fresh * room.xi[j]
            new_known, new_cube = _log_known(anchor, q), _square(q) ** 1.5
            rate = plan.rate * (cube + new_cube)
            if not rate < 0.5 * MOST_PICKS:
                return FAR, slot
            picks = poisson(rate, _uniform_of(k0, k1, step, COUNT_SLOT))
            _displace_wide(frame, q, room, room.wide)
            score, loose = _signs(model, anchor, plan, room, k0, k1, step, picks, rate)
            if loose:
                return LOOSE, slot
            counts[slot] = picks
            log_ratio = new_known - known + score * plan.gain
            if math.log(_uniform_of(k0, k1, step, ACCEPT_SLOT)) < log_ratio:
                accepted += 1
                known, cube = new_known, new_cube
                for j in range(dim):
                    z[j] = q[j]
                for j in range(dim):
                    room.wide_now[j] = room.wide[j]
            for j in range(dim):
                draws[slot, j] = z[j]
    return DONE, accepted
