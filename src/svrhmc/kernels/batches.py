"""Gradients from some rows, and the drawing of these."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import BOUND, FAST, PLAIN, QUICK, kept, prefetch
from svrhmc.kernels.layout import Batch, Held, is_none
from svrhmc.kernels.passes import draw_in, evaluate, sizes, spread
from svrhmc.kernels.rows import row_add, row_prefetch, some_predictors, some_sum
from svrhmc.kernels.words import draw_rows, draw_weighted, random_words


@njit(**PLAIN)
def draw_batches(k0, k1, base, steps, plan, draw, words, rows):
    """The rows of the batches of a chunk of steps."""
    count = steps * plan.batch
    w0, w1 = words[0], words[1]
    random_words(k0, k1, base, count, draw.steps, draw.slots, words, 0)
    if plan.importance:
        draw_weighted(w0[:count], w1[:count], draw.threshold, draw.alias, rows[:count])
        return
    size = count if plan.replacement else plan.batch
    for low in range(0, count, size):
        high = low + size
        draw_rows(w0[low:high], w1[low:high], plan.n, plan.replacement, rows[low:high], draw.seen)


ASKED, NEXT, WEIGHTED, REDUCED, RENEWED, SLOPES = 1, 2, 4, 8, 16, 32  # what is asked of a batch


class Batched(NamedTuple):
    """What a gradient from some rows reads and writes."""

    rows: Any
    loss: Any
    y: Any
    added: Any
    weights: Any
    taken: Any
    held: Held
    batch: Batch
    remembers: int  # whether slopes at the snapshot are remembered; a number, as pointers are to no truth values


@kept
@njit(**BOUND)
def batch_of_rows(batched, first, last, how):
    """Of the rows batch.rows[first:last]: ASKED, ask for all that is known of them before it is needed; RENEWED,
    replace what SAGA remembers of their slopes; SLOPES, find their slopes at products of 0.

    Else held.sum = mean over them of their parts at `held.at`, less those at the snapshot where REDUCED, each times its
    weight where WEIGHTED and there are weights; `batch.labels` holds the slopes at `at` in the end. NEXT: the rows
    behind them, as many, are asked for.
    """
    model = batched[0]
    held, batch, picked = model.held, model.batch, model.batch.rows[first:last]
    if how & (ASKED | NEXT):
        _ask_for(model, picked if how & ASKED else batch.rows[last : 2 * last - first], held.memory)
    if how & RENEWED:
        _renew(model.rows, model.loss, picked, batch.labels, held.memory, held.base)
    elif not how & ASKED:
        _gradient(model, picked, how, held, batch)


def _ask(array, i):
    """Ask for an element, where there is an array."""


@overload(_ask, jit_options={**PLAIN, "forceinline": True})
def _ask_of(array, i):
    return (lambda array, i: None) if is_none(array) else (lambda array, i: prefetch(array, i))


@njit(**PLAIN)
def _ask_for(model, picked, memory):
    """Ask for rows: their entries, labels, and what is added to them, taken from them and remembered of them."""
    added = model.added
    for b in range(len(picked)):
        i = picked[b]
        row_prefetch(model.rows, i)
        prefetch(model.y, i)
        _ask(model.weights, i)
        if added.shape[1] > 0:
            prefetch(added, i * added.shape[1])
        taken_ahead(model.taken, i)
        if model.remembers:
            prefetch(memory, i)


def taken_ahead(taken, i):
    """Ask for what is taken from row i."""


@overload(taken_ahead, jit_options={**PLAIN, "forceinline": True})
def _taken_ahead(taken, i):
    if is_none(taken):
        return lambda taken, i: None

    def some(taken, i):
        m = taken.slopes.shape[1]
        if len(taken.slopes) > 0:
            prefetch(taken.slopes, i * m)
            for j in range(0, m * m, 8):
                prefetch(taken.curvatures, i * m * m + j)

    return some


@njit(**PLAIN)
def _some_slopes(model, picked, at, moved, x, t, y, s):
    """s = the slopes of some rows at `at`, or at products of 0 unless `moved`; y becomes their labels; x and t are
    room.
    """
    loss, count = model.loss, len(picked)
    k, q = sizes(loss)
    for b in range(count):
        y[b] = model.y[picked[b]]
    if k + q > 1:
        spread(at, k, q, x)
    else:
        x = at
    pad = (len(x) - q) // k
    if moved:
        for c in range(k):
            some_predictors(model.rows, picked, x[c * pad : (c + 1) * pad], t[c])
        for j in range(q):
            for b in range(count):
                t[k + j, b] = x[k * pad + j]
    else:
        t[: k + q] = 0
    evaluate(loss, y, model.added, model.weights, model.taken, picked, count, t, s, False)


@njit(**QUICK)
def _gradient(model, picked, how, held, batch):
    weighted, reduced, moved = how & WEIGHTED != 0, how & REDUCED != 0, how & SLOPES == 0
    memory, x, t, s, then, labels = held.memory, batch.u, batch.t, batch.slopes, batch.then, batch.labels
    (k, q), count, share, remembers = sizes(model.loss), len(picked), len(model.y) / len(picked), model.remembers != 0
    m, weights = k + q, batch.weights
    for turn in range(0 if reduced and not remembers else 1, 2):  # one line: so that it is compiled into this once
        _some_slopes(model, picked, held.at if turn else held.snapshot, moved, x, t, labels[0], s if turn else then)
    if not moved:
        return
    for b in range(count):
        i = picked[b]
        weight = s.dtype.type(share * np.float64(weights[i]) if weighted and len(weights) > 0 else share)
        for c in range(m):
            labels[c, b] = s[c, b]
            if reduced:
                s[c, b] -= memory[i * m + c] if remembers else then[c, b]
            s[c, b] *= weight
    if m == 1:
        x = held.sum
    x[:] = 0
    pad = (len(x) - q) // k
    for c in range(k):
        some_sum(model.rows, picked, s[c], x[c * pad : (c + 1) * pad])
    for j in range(q):
        for b in range(count):
            x[k * pad + j] += s[k + j, b]
    if m > 1:
        draw_in(x, k, q, held.sum)


@njit(**PLAIN)
def _renew(rows, loss, picked, slopes, memory, base):
    """The slopes just found replace those remembered, and their sum follows; a row drawn twice is renewed once."""
    k, q = sizes(loss)
    m, p = k + q, (len(base) - q) // k
    for b in range(len(picked)):
        i = picked[b]
        for c in range(m):
            change = np.float64(slopes[c, b]) - np.float64(memory[i * m + c])
            memory[i * m + c] = slopes[c, b]
            if c < k:
                row_add(rows, i, change, base[c * p : (c + 1) * p])
            else:
                base[k * p + c - k] += change


class GaussianBatched(NamedTuple):
    """The same of quadratics."""

    S: Any
    forces: Any
    at: Any
    snapshot: Any
    sum: Any
    then: Any
    rows: Any


@kept
@njit(fastmath=FAST, **BOUND)
def batch_of_quadratics(batched, first, last, how):
    """As `batch_of_rows`."""
    if how & ASKED:
        return
    matrices, forces, at, snapshot, total, then, drawn = batched[0]
    rows, reduced = drawn[first:last], how & REDUCED != 0
    many, count, dim = len(matrices) > 1, len(rows), len(at)
    for j in range(dim):
        then[j] = at[j] - snapshot[j] if reduced else at[j]
        total[j] = 0.0
    for k in range(count if many else 1):  # one S for all: its product once
        S = matrices[rows[k]] if many else matrices[0]
        for i in range(dim):
            product = 0.0
            for j in range(dim):
                product += S[i, j] * then[j]
            total[i] += product / count if many else product
    if not reduced:
        for k in range(count):
            for j in range(dim):
                total[j] -= forces[rows[k], j] / count
