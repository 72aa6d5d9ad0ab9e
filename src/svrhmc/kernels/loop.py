"""The compiled loop: one function for every sampler of the grid, on rows or on Gaussians.

A model is a named tuple of arrays (`Model`, `GaussianModel`); numba compiles the loop once for
each, for each precision of the rows, each loss and each kind of frame. Scheme and gradient are numbers, so that no
other choice is compiled anew; but a model of which nothing is taken makes a shorter loop, which knows nothing of SAGA
and of rows drawn by importance, and compiles in less time.

States are float64 always. Products with the rows, and the normals, have the precision of the rows.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from svrhmc.kernels.anchors import batch_gradient, draw_snapshot, finish_gradient, full, keep, recall, renew
from svrhmc.kernels.batches import ask_for, draw_batches
from svrhmc.kernels.compiling import ENTRY, PLAIN, QUICK, copy, kept, smaller, unshared
from svrhmc.kernels.frames import displace
from svrhmc.kernels.layout import DIVERGED, DONE, FULL, PASS_DUE, SVRG
from svrhmc.kernels.normals import fill_noise
from svrhmc.kernels.priors import add_prior

BEFORE, AFTER = 0, 1  # the gradient, in a step


@njit(**{**QUICK, "forceinline": True})
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


@njit(**{**PLAIN, "forceinline": True})
def _copy(source, out):
    for j in range(len(out)):
        out[j] = source[j]


@kept
@njit(**ENTRY)
def advance(
    model, plan, table, held, sums, batch, draw, noise, k0, k1, x, v, draws, kept, keeps, chains, steps, flags
):  # fmt: skip
    """Run chains from one step to another; each chain's keys, state, draws and memory are rows of the arrays.

    A chain's memory is read from `kept` and written to `keeps`, where the flags say so. Gives (reason, chain, step):
    DONE; DIVERGED in that step; or PASS_DUE, a pass over all rows before that step, which the caller makes on many
    threads (only if `outside`) and then calls again with `passed`.
    """
    dim = x.shape[1]
    at, z, words, rows, size = held.at, held.z, noise.words, batch.rows, plan.batch
    gradient = model.prior, model.prior_force, held.anchor, held.sum
    half = (len(z) + 1) // 2  # blocks of random words a step
    span = len(noise.steps) // half  # steps whose noise is made together
    later = smaller(plan.before_normals * dim, len(z) - dim)  # what is not used is read all the same, and times 0
    first, second, passed = held.normals[0], held.normals[1], flags.passed
    snapshot = rows[len(rows) - plan.snapshot_rows :]
    for chain in range(chains[0], chains[1]):
        xc, vc = x[chain], v[chain]
        copy(xc, at)
        if flags.load and not flags.fresh and not passed:
            recall(model, plan, kept, chain, held, sums)
        step = steps[0]
        while step < steps[1]:
            count = smaller(span, steps[1] - step)
            base = np.uint32(step & 0xFFFFFFFF)
            if plan.kind != FULL:
                draw_batches(model, k0[chain], k1[chain], base, count, plan, draw, words, rows)
                ask_for(model, plan, held, rows[:size])
            fill_noise(k0[chain], k1[chain], base, count * half, noise, held.normals)
            for s in range(count):
                _copy(first[s * half : (s + 1) * half], z[:half])
                _copy(second[s * half : (s + 1) * half], z[half:])
                picked = rows[s * size : (s + 1) * size]
                part = BEFORE if plan.before and not passed else AFTER
                while part <= AFTER:  # one line moves the state in both parts, so that it is compiled once
                    if part == AFTER:
                        displace(model.frame, xc, held.room, at)
                        turn = 1
                        if plan.kind == FULL or (
                            plan.kind == SVRG
                            and not plan.anchored
                            and (step % plan.epoch == 0 or (flags.fresh and step == steps[0]))
                        ):
                            if flags.outside and not passed:
                                return PASS_DUE, chain, step
                            if not passed:
                                copy(at, held.snapshot)
                                if plan.snapshot_rows == 0:
                                    full(model, plan, held, sums)
                                else:
                                    turn, now = 0, np.uint32(step & 0xFFFFFFFF)
                                    draw_snapshot(plan, k0[chain], k1[chain], now, draw, words, snapshot)
                        passed = False
                        if plan.kind != FULL:
                            if s + 1 < count:
                                ask_for(model, plan, held, rows[(s + 1) * size : (s + 2) * size])
                            batch_gradient(model, plan, turn, picked, held, batch)
                        finish_gradient(model, plan, held)
                        add_prior(model, plan, held)
                    fine = _move(table[9 * part :], xc, vc, gradient, z[later * part :], at)
                    part += 1
                renew(model, plan, picked, batch.labels, held)
                step += 1
                if not fine:
                    return DIVERGED, chain, step
                if step >= plan.first and (step - plan.first) % plan.thin == 0:
                    slot = (step - plan.first) // plan.thin
                    copy(xc, draws[chain, slot])
        if flags.store:
            keep(plan, held, chain, keeps)
    return DONE, 0, steps[1]
