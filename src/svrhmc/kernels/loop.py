"""The compiled loop: one function for every sampler of the grid, on rows or on Gaussians.

What depends on the family and on how rows lie, passes over all rows and gradients from some, is called by address
(`passes.pass_blocks`, `batches.batch_of_rows`): numba compiles the loop once for each precision of the rows, and each
kind of frame. Scheme and gradient are numbers, so that no other choice is compiled anew.

States are float64 always. Products with the rows, and the normals, have the precision of the rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.anchors import draw_snapshot, finish_gradient, keep, recall, settle
from svrhmc.kernels.batches import ASKED, NEXT, REDUCED, RENEWED, WEIGHTED, draw_batches
from svrhmc.kernels.compiling import ENTRY, PLAIN, QUICK, call_bound, kept, unshared
from svrhmc.kernels.frames import displace, pull
from svrhmc.kernels.layout import DIVERGED, DONE, FULL, PASS_DUE, SVRG
from svrhmc.kernels.normals import fill_noise
from svrhmc.kernels.passes import KEPT, join, spread
from svrhmc.kernels.priors import add_prior


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


@njit(forceinline=True, **PLAIN)
def _copy(source, out):
    for j in range(len(out)):
        out[j] = source[j]


@kept
@njit(**ENTRY)
def advance(
    around, plan, table, calls, held, sums, rows, draw, noise, k0, k1, x, v, draws, kept, keeps, chains, steps, flags
):  # fmt: skip
    """Run chains from one step to another; each chain's keys, state, draws and memory are rows of the arrays.

    A chain's memory is read from `kept` and written to `keeps`, where the flags say so. Gives (reason, chain, step):
    DONE; DIVERGED in that step; or PASS_DUE, a pass over all rows before that step, which the caller makes on many
    threads (only if `outside`) and then calls again with `passed`.
    """
    prior, force, frame, inner, heavy = around
    dim, size, whole, far = x.shape[1], plan.batch, plan.kind == FULL, plan.far_rows
    at, z, words, anchor = held.at, held.z, noise.words, held.anchor
    gradient = prior, force, anchor, held.sum
    half = (len(z) + 1) // 2  # blocks of random words a step
    span = len(noise.steps) // half  # steps whose noise is made together
    later = z[min(plan.before_normals * dim, len(z) - dim) :]  # what is not used is read all the same, and times 0
    first, second, passed = held.normals[0], held.normals[1], flags.passed
    drawn, reduced = len(rows) - plan.snapshot_rows, REDUCED if plan.kind == SVRG else 0
    for chain in range(chains[0], chains[1]):
        xc, vc = x[chain], v[chain]
        for j in range(dim):
            at[j] = xc[j]
        if flags.load and not flags.fresh and not passed:
            recall(frame, plan, calls, kept, chain, held, sums)
        step = steps[0]
        while step < steps[1]:
            count = min(span, steps[1] - step)
            base = np.uint32(step & 0xFFFFFFFF)
            if not whole:
                draw_batches(k0[chain], k1[chain], base, count, plan, draw, words, rows)
                if far:
                    call_bound(calls.batch_address, calls.batch_data, 0, size, ASKED)
            fill_noise(k0[chain], k1[chain], base, count * half, noise, held.normals)
            for s in range(count):
                _copy(first[s * half : (s + 1) * half], z[:half])
                _copy(second[s * half : (s + 1) * half], z[half:])
                if plan.before and not passed:
                    _move(table[:9], xc, vc, gradient, z, at)
                displace(frame, xc, held.room, at)
                if whole or (
                    plan.kind == SVRG
                    and not plan.anchored
                    and (step % plan.epoch == 0 or (flags.fresh and step == steps[0]))
                ):
                    if not passed:
                        _copy(at, held.snapshot)
                    if plan.snapshot_rows == 0:
                        if not passed:
                            spread(at, calls.predictors, calls.shared, sums.wide)
                            if flags.outside:
                                return PASS_DUE, chain, step
                            keeps_slopes = KEPT if plan.remembers else 0
                            call_bound(calls.pass_address, calls.pass_data, 0, len(sums.partial), keeps_slopes)
                        join(sums.partial, calls.predictors, calls.shared, anchor)
                    else:
                        now = np.uint32(step & 0xFFFFFFFF)
                        draw_snapshot(plan, k0[chain], k1[chain], now, draw, words, rows[drawn:])
                        call_bound(calls.batch_address, calls.batch_data, drawn, len(rows), 0)
                        _copy(held.sum, anchor)
                    settle(frame, plan.saga, held)
                passed = False
                if not whole:
                    ahead = NEXT if far and s + 1 < count else 0
                    how = WEIGHTED | reduced | ahead
                    call_bound(calls.batch_address, calls.batch_data, s * size, (s + 1) * size, how)
                finish_gradient(frame, inner, whole, held)
                add_prior(heavy, frame, whole, held)
                fine = _move(table[9:], xc, vc, gradient, later, at)
                if plan.saga:
                    call_bound(calls.batch_address, calls.batch_data, s * size, (s + 1) * size, RENEWED)
                    _copy(held.base, anchor)
                    pull(frame, anchor, held.room, anchor)
                step += 1
                if not fine:
                    return DIVERGED, chain, step
                if step >= plan.first and (step - plan.first) % plan.thin == 0:
                    slot = (step - plan.first) // plan.thin
                    for j in range(dim):
                        draws[chain, slot, j] = xc[j]
        if flags.store:
            keep(plan, held, chain, keeps)
    return DONE, 0, steps[1]
