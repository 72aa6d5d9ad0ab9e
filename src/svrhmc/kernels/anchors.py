"""What a chain's gradient stands on besides its batch: snapshots, SAGA's memory, the Hessian at the mode, the frame."""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK, call_bound
from svrhmc.kernels.frames import Dense, LowRank, Shift, product, pull, unknown
from svrhmc.kernels.layout import is_a, is_none
from svrhmc.kernels.passes import KEPT, spread
from svrhmc.kernels.triangular import Factor
from svrhmc.kernels.words import draw_rows, threefry

SNAPSHOT_SLOT = int(Purpose.SNAPSHOT) * MAX_SLOTS


def finish_gradient(frame, inner, full, held):
    """What the batch's part needs before it joins the rest of the gradient."""


@overload(finish_gradient, jit_options=PLAIN)
def _finish_gradient(frame, inner, full, held):
    if is_a(frame, Shift):
        return lambda frame, inner, full, held: _expand(held.base, held.hessian, held.at, held.anchor)
    if is_a(frame, Dense) or is_a(frame, Factor):

        def by_matrix(frame, inner, full, held):
            if not full:
                pull(frame, held.sum, held.room, held.sum)

        return by_matrix
    if is_a(frame, LowRank):
        return lambda frame, inner, full, held: _pull_all(frame, inner, full, held.at, held.room, held.sum)
    if is_none(frame):
        return lambda frame, inner, full, held: None
    raise unknown(frame)


@njit(**QUICK)
def _expand(base, hessian, away, out):
    """∇f(x̂) + H(x − x̂), without the prior."""
    product(hessian, away, out)
    for j in range(len(out)):
        out[j] += base[j]


@njit(**QUICK)
def _pull_all(frame, inner, full, at, room, batch):
    """The batch's part in the variables of the chain, with the prior's, which a frame of low rank does not hold."""
    for j in range(len(batch)):
        rows = 0.0 if full else np.float64(batch[j])
        batch[j] = rows + inner[j] * at[j]
    pull(frame, batch, room, batch)


@njit(**PLAIN)
def settle(frame, saga, held):
    """An anchor that was just found is pulled back; SAGA's is remembered as it was."""
    if saga:
        for j in range(len(held.anchor)):
            held.base[j] = held.anchor[j]
    pull(frame, held.anchor, held.room, held.anchor)


@njit(**INLINE)
def draw_snapshot(plan, k0, k1, base, draw, words, rows):
    """The rows from which the gradient at a snapshot is estimated."""
    w0, w1 = words[0], words[1]
    for k in range(len(rows)):
        w0[k], w1[k] = threefry(k0, k1, base, np.uint32(SNAPSHOT_SLOT + k))
    draw_rows(w0, w1, plan.n, plan.replacement, rows, draw.seen)


@njit(**INLINE)
def recall(frame, plan, calls, kept, chain, held, sums):
    """The memory with which a chain goes on; slopes that were not kept are made again, to the same digits."""
    for j in range(len(held.anchor)):
        held.snapshot[j] = kept.snapshot[chain, j]
        held.anchor[j] = kept.anchor[chain, j]
        held.base[j] = kept.anchor[chain, j]
    if plan.remembers and kept.table.shape[1] > 0:
        for i in range(kept.table.shape[1]):
            held.memory[i] = kept.table[chain, i]
    elif plan.remembers and calls.pass_address:
        spread(held.snapshot, calls.predictors, calls.shared, sums.wide)
        call_bound(calls.pass_address, calls.pass_data, 0, len(sums.partial), KEPT)
    if plan.saga:
        pull(frame, held.anchor, held.room, held.anchor)


@njit(**INLINE)
def keep(plan, held, chain, kept):
    """The memory of a chain where its steps end."""
    for j in range(len(held.anchor)):
        kept.snapshot[chain, j] = held.snapshot[j]
        kept.anchor[chain, j] = held.base[j] if plan.saga else held.anchor[j]
    if plan.remembers and kept.table.shape[1] > 0:
        for i in range(kept.table.shape[1]):
            kept.table[chain, i] = held.memory[i]
