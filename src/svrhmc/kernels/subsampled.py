"""The compiled loop of subsampled Metropolis.

The state z is float64; the rows meet u = W z in their own precision, as t = t̂ + u·a with t̂ the predictor at the
centre. Where the bounds on ℓ‴ hold in a ball alone, a step that touches what is beyond it evaluates every row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import overload

from svrhmc.core.arrays import Array, Indices, Reals
from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.kernels.compiling import ENTRY, INLINE, PLAIN, QUICK, STRICT, kept, prefetch
from svrhmc.kernels.frames import displace
from svrhmc.kernels.layout import Noise, Words, is_a, is_none
from svrhmc.kernels.losses import expect_weight, remainder, weight_of
from svrhmc.kernels.normals import fill_noise, take_normals
from svrhmc.kernels.priors import Heavy, prior_value
from svrhmc.kernels.rows import pair_dots, row_prefetch
from svrhmc.kernels.words import random_words, uniform, uniform_of

DONE, FAR, LOOSE, ENDLESS, SHORT, BEYOND, LOST = range(7)
MOST_PICKS = 1 << 26  # rows a step may draw: two slots of the stream each
ACCEPT_SLOT = int(Purpose.ACCEPT) * MAX_SLOTS
COUNT_SLOT = int(Purpose.COUNT) * MAX_SLOTS
PICK_SLOT = int(Purpose.PICK) * MAX_SLOTS


class SubsampledPlan(NamedTuple):
    """Settings of subsampled Metropolis.

    `gain` is log((1 + c)/c); `rate` is Λ/(|z|³ + |z′|³); ρ and √(1 − ρ²) are `keep` and `fresh`; `third` is max |ℓ‴|,
    or what the rows' shares are multiplied by; `reach` is R³.
    """

    keep: float
    fresh: float
    spread: float
    gain: float
    rate: float
    third: float
    reach: float


class Anchor(NamedTuple):
    """What subsampled Metropolis knows of the centre.

    cells: thresholdᵢ·2³² + aliasᵢ. cards: t̂ᵢ and the probability of each row, side by side. slope: Wᵀ∇f(x̂). leftover:
    WᵀHW − I, or no rows where it is 0. heavy: ψ less its first two orders, or None. shares: Mᵢ in parts of `third`, or
    None where it is the same for all rows and R = ∞.
    """

    cells: npt.NDArray[np.uint64] | Listed
    cards: Array
    slope: Array
    leftover: Array
    heavy: Heavy | None
    shares: Array | None


class Listed(NamedTuple):
    """The rows that one chain's steps pick, found before: those of step k are rows[begin[k]] to rows[begin[k + 1] − 1].

    In place of `cells`, where the model holds no other rows than these.
    """

    begin: Indices
    rows: Indices


class Room(NamedTuple):
    """Room for one chain of subsampled Metropolis."""

    q: Array  # the proposal
    u: Array
    room: Array
    wide: Reals  # u in the rows' precision, padded with zeros; of the state and of the proposal
    wide_now: Reals
    noise: Noise
    normals: Array
    xi: Array
    pick_steps: Words
    pick_words: Words  # (4, picks): two words for the row, two for the thinning
    pick_slots: Words
    rows: Indices


@njit(**{**QUICK, "forceinline": True})
def _square(x):
    total = 0.0
    for j in range(len(x)):
        total += x[j] * x[j]
    return total


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


def pick(cells, w0, w1, slot, low, rows, count):
    """Row numbers of the picks from `low` on of the step in `slot`: by the alias table, or as they are listed."""


@overload(pick, jit_options={**PLAIN, "forceinline": True})
def _pick(cells, w0, w1, slot, low, rows, count):
    if is_a(cells, Listed):

        def listed(cells, w0, w1, slot, low, rows, count):
            for k in range(count):
                rows[k] = cells.rows[cells.begin[slot] + low + k]

        return listed

    def table(cells, w0, w1, slot, low, rows, count):
        n, shift, mask = np.uint64(len(cells)), np.uint64(32), np.uint64(0xFFFFFFFF)
        for k in range(count):  # asked for before they are needed
            prefetch(cells, np.int64((np.uint64(w0[k]) * n + ((np.uint64(w1[k]) * n) >> shift)) >> shift))
        for k in range(count):
            total = np.uint64(w0[k]) * n + ((np.uint64(w1[k]) * n) >> shift)
            cell = cells[np.int64(total >> shift)]
            rows[k] = np.int64(total >> shift if (total & mask) < (cell >> shift) else cell & mask)

    return table


def listed_picks(cells, slot):
    """How many picks of a step are known: any number, unless they are listed."""


@overload(listed_picks, jit_options={**PLAIN, "forceinline": True})
def _listed_picks(cells, slot):
    if is_a(cells, Listed):
        return lambda cells, slot: cells.begin[slot + 1] - cells.begin[slot]
    return lambda cells, slot: MOST_PICKS


def holds_all(cells):
    """Whether the model holds every row."""


@overload(holds_all, jit_options={**PLAIN, "forceinline": True})
def _holds_all(cells):
    if is_a(cells, Listed):
        return lambda cells: False
    return lambda cells: True


@njit(**INLINE)
def _signs(model, anchor, plan, room, k0, k1, step, slot, count, total_rate):
    """Σᵢ Sᵢ sign rᵢ by thinning `count` rows; and whether a row's rate was above its bound.

    A row is dropped without its ρ where even |ρ(u)| ≤ wMᵢ|u|³/6 would drop it: nearly all are.
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
            random_words(k0, k1, base, size, room.pick_steps, room.pick_slots, words, 2 * half)
        pick(anchor.cells, words[0], words[1], slot, low, rows, size)
        for k in range(size):
            row_prefetch(model.rows, rows[k])
            prefetch(cards, 2 * rows[k])
            expect_weight(anchor.shares, rows[k])
        for k in range(size):
            i = rows[k]
            u, u_new = pair_dots(model.rows, i, room.wide_now, room.wide)
            now, new = np.float64(u), np.float64(u_new)
            bound = total_rate * cards[2 * i + 1]
            threshold = bound * uniform(words[2, k], words[3, k])
            w = weight_of(model.weights, i)
            most = w * weight_of(anchor.shares, i)
            if threshold >= most * (1.0 + c) * (plan.third / 6 * (1.0 + 1e-12)) * (abs(now) ** 3 + abs(new) ** 3):
                continue
            y = np.float64(model.y[i])
            r = w * (remainder(model.loss, cards[2 * i], y, now) - remainder(model.loss, cards[2 * i], y, new))
            rate = (c if r > 0.0 else 1.0 + c) * abs(r)
            loose = loose or not rate <= bound
            if threshold < rate:
                score += 1 if r > 0.0 else -1
    return score, loose


def every_rest(model, anchor, room):
    """Σᵢ wᵢρᵢ of the state and of the proposal, from all rows; of no use where R = ∞, and nothing then."""


@overload(every_rest, jit_options=STRICT)
def _every_rest(model, anchor, room):
    if is_none(anchor[anchor.fields.index("shares")]):
        return lambda model, anchor, room: (math.nan, math.nan)

    def whole(model, anchor, room):
        cards, now, new = anchor.cards, 0.0, 0.0
        for i in range(len(model.y)):
            u, u_new = pair_dots(model.rows, i, room.wide_now, room.wide)
            w, y = weight_of(model.weights, i), np.float64(model.y[i])
            now += w * remainder(model.loss, cards[2 * i], y, np.float64(u))
            new += w * remainder(model.loss, cards[2 * i], y, np.float64(u_new))
        return now, new

    return whole


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


@kept
@njit(**ENTRY)
def subsampled(model, anchor, frame, plan, room, key, z, draws, counts, steps):
    """Draws from steps[0] to steps[1] of one chain; counts[k] rows were evaluated for draw k.

    Gives (DONE, k, accepted); or the reason why only k draws were made: FAR where a step would draw too many rows,
    LOOSE where a bound failed, ENDLESS where a chain is where f is not finite, SHORT where a step has more picks than
    are listed, BEYOND where one needs all rows and the model does not hold them, and LOST where f is not a number at a
    proposal.
    """
    k0, k1 = key
    dim = len(z)
    half = (dim + 1) // 2
    span = len(room.noise.steps) // half
    accepted = 0
    _displace_wide(frame, z, room, room.wide_now)
    known, cube = _log_known(anchor, z) - prior_value(anchor.heavy, room.u), _square(z) ** 1.5
    for low in range(steps[0], steps[1], span):
        count = min(span, steps[1] - low)
        base = np.uint32(low & 0xFFFFFFFF)
        fill_noise(k0, k1, base, count * half, room.noise, room.normals)
        for s in range(count):
            step, q, slot = low + s, room.q, low - steps[0] + s
            take_normals(room.normals, s, half, room.xi)
            for j in range(dim):
                q[j] = plan.keep * z[j] + plan.fresh * room.xi[j]
            new_cube = _square(q) ** 1.5
            _displace_wide(frame, q, room, room.wide)
            new_known = _log_known(anchor, q) - prior_value(anchor.heavy, room.u)
            if max(cube, new_cube) > plan.reach:
                if not holds_all(anchor.cells):
                    return BEYOND, slot, accepted
                now, new = every_rest(model, anchor, room)
                if not math.isfinite(now):
                    return ENDLESS, slot, accepted
                if math.isnan(new):
                    return LOST, slot, accepted
                counts[slot], rest = len(model.y), now - new
            else:
                rate = plan.rate * (cube + new_cube)
                if not rate < 0.5 * MOST_PICKS:
                    return FAR, slot, accepted
                picks = poisson(rate, uniform_of(k0, k1, step, COUNT_SLOT))
                if picks > listed_picks(anchor.cells, slot):
                    return SHORT, slot, accepted
                score, loose = _signs(model, anchor, plan, room, k0, k1, step, slot, picks, rate)
                if loose:
                    return LOOSE, slot, accepted
                counts[slot], rest = picks, score * plan.gain
            log_ratio = new_known - known + rest
            if math.log(uniform_of(k0, k1, step, ACCEPT_SLOT)) < log_ratio:
                accepted += 1
                known, cube = new_known, new_cube
                for j in range(dim):
                    z[j] = q[j]
                for j in range(dim):
                    room.wide_now[j] = room.wide[j]
            for j in range(dim):
                draws[slot, j] = z[j]
    return DONE, steps[1] - steps[0], accepted
