"""What a chain's gradient stands on besides its batch: snapshots, SAGA's memory, the Hessian at the mode, the frame."""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.core.randomness import MAX_SLOTS, Purpose
from svrhmc.kernels.batches import rows_gradient
from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK, copy
from svrhmc.kernels.frames import Dense, LowRank, Shift, product, pull, unknown
from svrhmc.kernels.layout import FULL, SVRG, is_a, is_none, is_plain
from svrhmc.kernels.passes import join, sizes, sum_blocks
from svrhmc.kernels.rows import window_add
from svrhmc.kernels.triangular import Factor
from svrhmc.kernels.words import draw_rows, threefry

SNAPSHOT_SLOT = int(Purpose.SNAPSHOT) * MAX_SLOTS


def finish_gradient(model, plan, held):
    """What the batch's part needs before it joins the rest of the gradient."""


@overload(finish_gradient, jit_options=PLAIN)
def _finish_gradient(model, plan, held):
    frame = model[model.fields.index("frame")]
    if is_a(frame, Shift):
        return lambda model, plan, held: _expand(held.base, held.hessian, held.at, held.anchor)
    if is_a(frame, Dense) or is_a(frame, Factor):

        def by_matrix(model, plan, held):
            if plan.kind != FULL:
                pull(model.frame, held.sum, held.room, held.sum)

        return by_matrix
    if is_a(frame, LowRank):
        return lambda model, plan, held: _pull_all(
            model.frame, model.inner, plan.kind == FULL, held.at, held.room, held.sum
        )
    if is_none(frame):
        return lambda model, plan, held: None
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


def renew(model, plan, rows, labels, held):
    """SAGA: the slopes just found replace those remembered, and the anchor follows; a row drawn twice is renewed
    once.
    """


@overload(renew, jit_options=PLAIN)
def _renew(model, plan, rows, labels, held):
    if is_plain(model):
        return lambda model, plan, rows, labels, held: None

    def framed(model, plan, rows, labels, held):
        if plan.saga:
            memory, base, (k, q) = held.memory, held.base, sizes(model.loss)
            m, first, columns = k + q, model.layout.first, model.layout.count
            for b in range(len(rows)):
                i, place = rows[b], 0
                for c in range(m):
                    change = np.float64(labels[c, b]) - np.float64(memory[i * m + c])
                    memory[i * m + c] = labels[c, b]
                    if c < k or columns[c] > 0:
                        own = base[place : place + columns[c]]
                        window_add(model.rows, i, first[c], columns[c], change, own)
                        place += columns[c]
                    else:
                        base[place] += change
                        place += 1
            copy(base, held.anchor)
            pull(model.frame, held.anchor, held.room, held.anchor)

    return framed


def full(model, plan, held, sums):
    """The anchor (and memory) at the present state, from all rows; nothing where no pass is ever made (`sums` is None),
    so that none is compiled.
    """


@overload(full, jit_options=PLAIN)
def _full(model, plan, held, sums):
    if is_none(sums):
        return lambda model, plan, held, sums: None

    def from_all_rows(model, plan, held, sums):
        sum_blocks(model, held.at, 0, len(sums.partial), sums, held.memory, plan.remembers)
        join(sums.partial, held.anchor)
        if plan.saga:  # before it is pulled back
            copy(held.anchor, held.base)
        pull(model.frame, held.anchor, held.room, held.anchor)

    return from_all_rows


def slopes_again(model, plan, held, sums):
    """The slopes of all rows at the snapshot, where passes are made."""


@overload(slopes_again, jit_options=PLAIN)
def _slopes_again(model, plan, held, sums):
    if is_none(sums):
        return lambda model, plan, held, sums: None
    return lambda model, plan, held, sums: sum_blocks(
        model, held.snapshot, 0, len(sums.partial), sums, held.memory, plan.remembers
    )


@njit(**INLINE)
def draw_snapshot(plan, k0, k1, base, draw, words, rows):
    """The rows from which the gradient at a snapshot is estimated."""
    w0, w1 = words[0], words[1]
    for k in range(len(rows)):
        w0[k], w1[k] = threefry(k0, k1, base, np.uint32(SNAPSHOT_SLOT + k))
    draw_rows(w0, w1, plan.n, plan.replacement, rows, draw.seen)


@njit(**INLINE)
def batch_gradient(model, plan, turn, picked, held, batch):
    """held.sum = what the batch adds to ḡ; before that, in turn 0, the anchor from the rows drawn for a snapshot.

    Turn 0 has the same line, so that the gradient from some rows is compiled into the loop once.
    """
    snapshot, weights, reduced = batch.rows[len(batch.rows) - plan.snapshot_rows :], batch.weights, plan.kind == SVRG
    none = weights[:0]
    while turn < 2:
        some, scales = (picked, weights) if turn == 1 else (snapshot, none)
        rows_gradient(model, some, scales, reduced and turn == 1, plan.remembers, held, batch)
        if turn == 0:
            copy(held.sum, held.anchor)
            pull(model.frame, held.anchor, held.room, held.anchor)
        turn += 1


@njit(**INLINE)
def recall(model, plan, kept, chain, held, sums):
    """The memory with which a chain goes on; slopes that were not kept are made again, to the same digits.

    Loops, as `copy` here makes LLVM place the loop of steps so that full gradients of few rows take 1.15 times as long.
    """
    for j in range(len(held.anchor)):
        held.snapshot[j] = kept.snapshot[chain, j]
        held.anchor[j] = kept.anchor[chain, j]
        held.base[j] = kept.anchor[chain, j]
    if plan.remembers and kept.table.shape[1] > 0:
        for i in range(kept.table.shape[1]):
            held.memory[i] = kept.table[chain, i]
    elif plan.remembers:
        slopes_again(model, plan, held, sums)
    if plan.saga:
        pull(model.frame, held.anchor, held.room, held.anchor)


@njit(**INLINE)
def keep(plan, held, chain, kept):
    """The memory of a chain where its steps end."""
    for j in range(len(held.anchor)):
        kept.snapshot[chain, j] = held.snapshot[j]
        kept.anchor[chain, j] = held.base[j] if plan.saga else held.anchor[j]
    if plan.remembers and kept.table.shape[1] > 0:
        for i in range(kept.table.shape[1]):
            kept.table[chain, i] = held.memory[i]
