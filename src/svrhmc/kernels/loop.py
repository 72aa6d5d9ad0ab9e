"""The compiled loop: one function for every sampler of the grid, on rows or on Gaussians.

A model is a named tuple of arrays (`DenseModel`, `SparseModel`, `GaussianModel`); numba compiles the loop once for
each, and for each precision of the rows. Scheme, gradient and loss are numbers, so that no other choice is compiled
anew; but a model without a frame makes a shorter loop, which knows nothing of changed variables, of SAGA and of rows
drawn by importance, and compiles in less time.

States are float64 always. Products with the rows, and the normals, have the precision of the rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.engines.frames import DENSE, LOW_RANK, displace, product, pull
from svrhmc.engines.layout import DIVERGED, DONE, FULL, PASS_DUE, SVRG, GaussianModel, is_a, is_plain
from svrhmc.engines.numeric import (
    ENTRY,
    INLINE,
    PLAIN,
    QUICK,
    make_normals,
    prefetch,
    random_words,
    slopes,
    threefry,
    unshared,
)
from svrhmc.engines.sums import join, row_add, row_dot, row_prefetch, sum_blocks

SNAPSHOT_SLOT = int(Purpose.SNAPSHOT) * MAX_SLOTS


# The gradient from some rows.


@njit(**INLINE)
def _row_slopes(model, rows, at, u, t, labels, out):
    """out = the slopes of the given rows, less what is taken from them; `labels` and `out` may be one array."""
    for b in range(len(rows)):
        t[b] = row_dot(model, rows[b], at)
        labels[b] = model.y[rows[b]]
    picked_slopes(model, rows, u, t, labels, out)


def picked_slopes(model, rows, u, t, labels, out):
    """The same from the predictors in t."""


@overload(picked_slopes, jit_options={**QUICK, "forceinline": True})
def _picked_slopes(model, rows, u, t, labels, out):
    if is_plain(model):
        return lambda model, rows, u, t, labels, out: slopes(
            model.loss, model.scale, t[: len(rows)], labels[: len(rows)], out[: len(rows)]
        )

    def beyond(model, rows, u, t, labels, out):
        taken, count = model.taken, len(rows)
        some = len(taken.predictors) > 0
        if some:
            for b in range(count):
                u[b] = t[b]
                t[b] += taken.predictors[rows[b]]
        slopes(model.loss, model.scale, t[:count], labels[:count], out[:count])
        if some:
            for b in range(count):
                i = rows[b]
                out[b] -= taken.slopes[i] + taken.curvatures[i] * u[b]

    return beyond


def card_prefetch(model, i):
    """Ask for what else is known of row i: its label, and what is taken from it."""


@overload(card_prefetch, jit_options={**PLAIN, "forceinline": True})
def _card_prefetch(model, i):
    if is_a(model, GaussianModel):
        return lambda model, i: None
    if is_plain(model):
        return lambda model, i: prefetch(model.y, i)

    def framed(model, i):
        prefetch(model.y, i)
        taken = model.taken
        if len(taken.predictors) > 0:
            prefetch(taken.predictors, i)
            prefetch(taken.slopes, i)
            prefetch(taken.curvatures, i)

    return framed


def weigh(model, rows, weights, s):
    """Each row's slope times its weight, where there are weights."""


@overload(weigh, jit_options={**QUICK, "forceinline": True})
def _weigh(model, rows, weights, s):
    if is_plain(model):
        return lambda model, rows, weights, s: None

    def by_rows(model, rows, weights, s):
        if len(weights) > 0:
            for b in range(len(rows)):
                s[b] *= weights[rows[b]]

    return by_rows


def rows_gradient(model, rows, weights, reduced, remembers, held, batch):
    """held.sum = mean over the given rows of their parts at `held.at`, less those at the snapshot where `reduced`.

    Each is multiplied by its weight, where there are weights. `batch.labels` holds the slopes at `at` in the end.
    """


@overload(rows_gradient, jit_options={**QUICK, "forceinline": True})
def _rows_gradient(model, rows, weights, reduced, remembers, held, batch):
    if is_a(model, GaussianModel):

        def gaussian(model, rows, weights, reduced, remembers, held, batch):
            at, snapshot, total, then = held.at, held.snapshot, held.sum, batch.then
            many, count, dim = len(model.S) > 1, len(rows), len(at)
            for j in range(dim):
                then[j] = at[j] - snapshot[j] if reduced else at[j]
                total[j] = 0.0
            for k in range(count if many else 1):  # one S for all: its product once
                S = model.S[rows[k]] if many else model.S[0]
                for i in range(dim):
                    product = 0.0
                    for j in range(dim):
                        product += S[i, j] * then[j]
                    total[i] += product / count if many else product
            if not reduced:
                for k in range(count):
                    for j in range(dim):
                        total[j] -= model.forces[rows[k], j] / count

        return gaussian

    def by_rows(model, rows, weights, reduced, remembers, held, batch):
        memory, total, count = held.memory, held.sum, len(rows)
        u, t, labels, s, then = batch.u, batch.t, batch.labels, batch.slopes, batch.then
        _row_slopes(model, rows, held.at, u, t, labels, s)
        for b in range(count):
            labels[b] = s[b]
        if reduced and remembers:
            for b in range(count):
                s[b] -= memory[rows[b]]
        elif reduced:
            _row_slopes(model, rows, held.snapshot, u, t, then, then)
            for b in range(count):
                s[b] -= then[b]
        weigh(model, rows, weights, s)
        total[:] = 0
        weight = t.dtype.type(len(model.y) / count)  # a component is n losses
        for b in range(count):
            row_add(model, rows[b], s[b] * weight, total)

    return by_rows


# Random rows and normals.


@njit(**PLAIN)
def _below(w0, w1, bound):
    high = np.uint64(w0) * np.uint64(bound)
    low = (np.uint64(w1) * np.uint64(bound)) >> np.uint64(32)
    return np.int64((high + low) >> np.uint64(32))


@njit(**PLAIN)
def draw_weighted(w0, w1, threshold, alias, out):
    """Row numbers from random words, as `randomness.Stream.weighted` defines them."""
    bound = np.uint64(len(alias))
    for k in range(len(out)):
        product = np.uint64(w0[k]) * bound + ((np.uint64(w1[k]) * bound) >> np.uint64(32))
        bucket = np.int64(product >> np.uint64(32))
        rest = product & np.uint64(0xFFFFFFFF)
        out[k] = bucket if rest < np.uint64(threshold[bucket]) else alias[bucket]


@njit(**PLAIN)
def draw_rows(w0, w1, n, replacement, out, seen):
    """Row numbers from random words, as `randomness.Stream.indices` defines them."""
    count = len(out)
    if replacement:
        for k in range(count):
            out[k] = _below(w0[k], w1[k], n)
        return
    mask = len(seen) - 1
    seen[:] = -1
    first = n - count
    for k in range(count):
        pick = _below(w0[k], w1[k], first + k + 1)
        place = _place(pick, mask, seen)
        if seen[place] == pick:
            pick = first + k  # the newest possible number, which cannot have been taken
            place = _place(pick, mask, seen)
        seen[place] = pick
        out[k] = pick


@njit(**PLAIN)
def _place(pick, mask, seen):
    """Where a number stands in the hash table, or would."""
    place = (pick * 0x9E3779B1) & mask
    while seen[place] >= 0 and seen[place] != pick:
        place = (place + 1) & mask
    return place


@njit(**INLINE)
def _draw_batches(model, k0, k1, base, steps, plan, draw, words, rows):
    """The rows of the batches of a chunk of steps."""
    count = steps * plan.batch
    w0, w1 = words[0], words[1]
    random_words(k0, k1, base, draw.steps[:count], draw.slots[:count], w0[:count], w1[:count])
    if not draw_by_table(model, plan, w0[:count], w1[:count], draw, rows):
        size = count if plan.replacement else plan.batch
        for low in range(0, count, size):
            high = low + size
            draw_rows(w0[low:high], w1[low:high], plan.n, plan.replacement, rows[low:high], draw.seen)


def draw_by_table(model, plan, w0, w1, draw, rows):
    """Rows by the alias table, where they are drawn so; gives whether they are."""


@overload(draw_by_table, jit_options=PLAIN, inline="always")
def _draw_by_table(model, plan, w0, w1, draw, rows):
    if is_plain(model):
        return lambda model, plan, w0, w1, draw, rows: False

    def by_table(model, plan, w0, w1, draw, rows):
        if plan.importance:
            draw_weighted(w0, w1, draw.threshold, draw.alias, rows[: len(w0)])
        return plan.importance

    return by_table


@njit(**INLINE)
def fill_noise(k0, k1, base, count, noise, normals):
    """Normals of a chunk of steps, from `count` random blocks."""
    steps, slots, fine_slots, words = noise.steps, noise.slots, noise.fine_slots, noise.words
    random_words(k0, k1, base, steps[:count], slots[:count], words[0, :count], words[1, :count])
    if len(fine_slots):
        random_words(k0, k1, base, steps[:count], fine_slots[:count], words[2, :count], words[3, :count])
    for k in range(2):
        make_normals(words[k, :count], words[2 + k, :count], normals[k, :count], normals[2, :count])


# The two halves of a step.


@njit(forceinline=True, **PLAIN)
def copy(source, out):
    """out = source."""
    for j in range(len(out)):
        out[j] = source[j]


@njit(forceinline=True, **QUICK)
def _move(table, x, v, gradient, z, at):
    """(x, v) ← M (x, v) − k g + L ξ, with k, M and L in the table and ξ in z.

    `gradient` holds what g = prior·x − (the prior's pull) + ḡ + (what the batch adds) is made of. `at`
    becomes x in the rows' precision.
    Gives True while the state is finite.
    """
    unshared()
    prior, force, anchor, batch = gradient
    dim = len(x)
    kick_x, kick_v = table[0], table[1]
    xx, xv, vx, vv = table[2], table[3], table[4], table[5]
    lvv, lxv, lxx = table[6], table[7], table[8]
    second = dim if (lvv != 0.0 or lxv != 0.0) and lxx != 0.0 else 0
    ones, twos = z[:dim], z[second : second + dim]  # slices: a sum as an index would be checked for its sign
    check = 0.0
    for j in range(dim):
        old_x, old_v = x[j], v[j]
        one, two = np.float64(ones[j]), np.float64(twos[j])
        g = prior[j] * old_x - force[j] + anchor[j] + np.float64(batch[j])
        new_x = xx * old_x + xv * old_v + (lxv * one + lxx * two) - kick_x * g
        new_v = vx * old_x + vv * old_v + lvv * one - kick_v * g
        x[j], v[j], at[j] = new_x, new_v, new_x
        check += new_x * 0.0 + new_v * 0.0
    return check == 0.0


# What the longer loop does besides: changed variables, and SAGA.


def finish_gradient(model, plan, held):
    """What the batch's part needs before it joins the rest of the gradient."""


@overload(finish_gradient, jit_options=PLAIN, inline="always")
def _finish_gradient(model, plan, held):
    if is_plain(model):
        return lambda model, plan, held: None

    def framed(model, plan, held):
        if plan.second:
            _expand(held.base, held.hessian, held.at, held.anchor)
        if model.frame.kind >= DENSE:
            _pull_batch(model.frame, model.inner, plan.kind == FULL, held.at, held.room, held.sum)

    return framed


@njit(**QUICK)
def _expand(base, hessian, away, out):
    """∇f(x̂) + H(x − x̂), without the prior."""
    product(hessian, away, out)
    for j in range(len(out)):
        out[j] += base[j]


@njit(**QUICK)
def _pull_batch(frame, inner, full, at, room, batch):
    """The batch's part in the variables of the chain, with the prior's where the frame does not hold it."""
    if frame.kind == LOW_RANK:
        for j in range(len(batch)):
            rows = 0.0 if full else np.float64(batch[j])
            batch[j] = rows + inner[j] * at[j]
    if frame.kind == LOW_RANK or not full:
        pull(frame, batch, room, batch)


def renew(model, plan, rows, labels, held):
    """SAGA: the slopes just found replace those remembered, and the anchor follows; a row drawn twice is renewed
    once.
    """


@overload(renew, jit_options=PLAIN, inline="always")
def _renew(model, plan, rows, labels, held):
    if is_plain(model):
        return lambda model, plan, rows, labels, held: None

    def framed(model, plan, rows, labels, held):
        if plan.saga:
            for b in range(len(rows)):
                i = rows[b]
                change = np.float64(labels[b]) - np.float64(held.memory[i])
                held.memory[i] = labels[b]
                row_add(model, i, change, held.base)
            for j in range(len(held.anchor)):
                held.anchor[j] = held.base[j]
            pull(model.frame, held.anchor, held.room, held.anchor)

    return framed


@njit(**INLINE)
def _refresh(model, plan, k0, k1, base, held, sums, batch, draw, words):
    """The anchor (and memory) at the present state: from all rows, or from some drawn for this snapshot."""
    for j in range(len(held.at)):
        held.snapshot[j] = held.at[j]
    size = plan.snapshot_rows
    if size == 0:
        sum_blocks(model, held.at, 0, len(sums.partial), sums, held.memory, plan.remembers)
        join(sums.partial, held.anchor)
        if plan.saga:  # before it is pulled back
            copy(held.anchor, held.base)
    else:
        w0, w1 = words[0], words[1]
        for k in range(size):
            w0[k], w1[k] = threefry(k0, k1, base, np.uint32(SNAPSHOT_SLOT + k))
        rows = batch.rows[len(batch.rows) - size :]
        draw_rows(w0[:size], w1[:size], plan.n, plan.replacement, rows, draw.seen)
        rows_gradient(model, rows, batch.weights[:0], False, False, held, batch)
        for j in range(len(held.at)):
            held.anchor[j] = held.sum[j]
    pull(model.frame, held.anchor, held.room, held.anchor)


@njit(**ENTRY)
def pass_blocks(model, x, begin, end, sums, memory, keep):
    """One thread's share of a pass over all rows."""
    sum_blocks(model, x, begin, end, sums, memory, keep)


@njit(**ENTRY)
def all_slopes(loss, scale, t, y, out):
    """The slopes of many rows at their predictors."""
    slopes(loss, scale, t, y, out)


@njit(**ENTRY)
def join_blocks(model, partial, room, anchor):
    """What joins the shares."""
    join(partial, anchor)
    pull(model.frame, anchor, room, anchor)


@njit(**ENTRY)
def advance(model, plan, table, held, sums, batch, draw, noise, k0, k1, x, v, draws, chains, steps, passed, outside):
    """Run chains from one step to another; each chain's keys, state and draws are rows of the arrays.

    Gives (reason, chain, step): DONE; DIVERGED in that step; or PASS_DUE, a pass over all rows before that step,
    which the caller makes on many threads (only if `outside`) and then calls again with `passed`.
    """
    dim = x.shape[1]
    at, z, words, rows, size = held.at, held.z, noise.words, batch.rows, plan.batch
    gradient = model.prior, model.prior_force, held.anchor, held.sum
    first, second = held.normals[0], held.normals[1]
    half = (len(z) + 1) // 2  # blocks of random words a step
    span = len(noise.steps) // half  # steps whose noise is made together
    later = z[min(plan.before_normals * dim, len(z) - dim) :]  # what is not used is read all the same, and times 0
    for chain in range(chains[0], chains[1]):
        xc, vc = x[chain], v[chain]
        for j in range(dim):
            at[j] = xc[j]
        step = steps[0]
        while step < steps[1]:
            count = min(span, steps[1] - step)
            base = np.uint32(step & 0xFFFFFFFF)
            if plan.kind != FULL:
                _draw_batches(model, k0[chain], k1[chain], base, count, plan, draw, words, rows)
            fill_noise(k0[chain], k1[chain], base, count * half, noise, held.normals)
            for s in range(count):
                copy(first[s * half : (s + 1) * half], z[:half])
                copy(second[s * half : (s + 1) * half], z[half:])
                if plan.before and not passed:
                    _move(table[:9], xc, vc, gradient, z, at)
                displace(model.frame, xc, held.room, at)
                if plan.kind == FULL or (
                    plan.kind == SVRG and not plan.anchored and (step % plan.epoch == 0 or step == plan.begin)
                ):
                    if outside and not passed:
                        return PASS_DUE, chain, step
                    if not passed:
                        now = np.uint32(step & 0xFFFFFFFF)
                        _refresh(model, plan, k0[chain], k1[chain], now, held, sums, batch, draw, words)
                passed = False
                picked = rows[s * size : (s + 1) * size]
                if plan.kind != FULL:
                    if plan.far_rows and s + 1 < count:
                        for b in range((s + 1) * size, (s + 2) * size):
                            row_prefetch(model, rows[b])
                            card_prefetch(model, rows[b])
                            if plan.remembers:
                                prefetch(held.memory, rows[b])
                    rows_gradient(model, picked, batch.weights, plan.kind == SVRG, plan.remembers, held, batch)
                finish_gradient(model, plan, held)
                fine = _move(table[9:], xc, vc, gradient, later, at)
                renew(model, plan, picked, batch.labels, held)
                step += 1
                if not fine:
                    return DIVERGED, chain, step
                if step >= plan.first and (step - plan.first) % plan.thin == 0:
                    slot = (step - plan.first) // plan.thin
                    for j in range(dim):
                        draws[chain, slot, j] = xc[j]
    return DONE, 0, steps[1]
