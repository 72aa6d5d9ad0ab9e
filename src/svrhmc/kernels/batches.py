"""Gradients from some rows, and the drawing of these."""

from __future__ import annotations

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK, prefetch
from svrhmc.kernels.layout import GaussianModel, is_a, is_none, is_plain
from svrhmc.kernels.passes import draw_in, evaluate, sizes, spread
from svrhmc.kernels.rows import row_prefetch, some_predictors, some_sum
from svrhmc.kernels.words import draw_rows, draw_weighted, random_words


@njit(**INLINE)
def draw_batches(model, k0, k1, base, steps, plan, draw, words, rows):
    """The rows of the batches of a chunk of steps."""
    count = steps * plan.batch
    w0, w1 = words[0], words[1]
    random_words(k0, k1, base, count, draw.steps, draw.slots, words, np.int64(0))
    if not draw_by_table(model, plan, w0[:count], w1[:count], draw, rows):
        size = count if plan.replacement else plan.batch
        for low in range(0, count, size):
            high = low + size
            draw_rows(w0[low:high], w1[low:high], plan.n, plan.replacement, rows[low:high], draw.seen)


def draw_by_table(model, plan, w0, w1, draw, rows):
    """Rows by the alias table, where they are drawn so; gives whether they are."""


@overload(draw_by_table, jit_options=PLAIN)
def _draw_by_table(model, plan, w0, w1, draw, rows):
    if is_plain(model):
        return lambda model, plan, w0, w1, draw, rows: False

    def by_table(model, plan, w0, w1, draw, rows):
        if plan.importance:
            draw_weighted(w0, w1, draw.threshold, draw.alias, rows[: len(w0)])
        return plan.importance

    return by_table


def _ask(array, i):
    """Ask for an element, where there is an array."""


@overload(_ask, jit_options={**PLAIN, "forceinline": True})
def _ask_for(array, i):
    return (lambda array, i: None) if is_none(array) else (lambda array, i: prefetch(array, i))


def row_ahead(model, i):
    """Ask for all that is known of row i: its entries, its label, and what is added to it and taken from it."""


@overload(row_ahead, jit_options={**PLAIN, "forceinline": True})
def _row_ahead(model, i):
    if is_a(model, GaussianModel):
        return lambda model, i: None

    def of_row(model, i):
        row_prefetch(model.rows, i)
        prefetch(model.y, i)
        _ask(model.weights, i)
        added = model.added
        if added.shape[1] > 0:
            prefetch(added, i * added.shape[1])
        taken_ahead(model.taken, i)

    return of_row


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


@njit(**INLINE)
def ask_for(model, plan, held, rows):
    """Ask for all of some rows before they are needed, where they are far away."""
    if plan.far_rows:
        for b in range(len(rows)):
            row_ahead(model, rows[b])
            if plan.remembers:
                prefetch(held.memory, rows[b])


@njit(**{**PLAIN, "forceinline": True})
def _some_slopes(model, picked, at, x, t, y, s):
    """s = the slopes of some rows at `at`, whose labels are in y; x and t are room."""
    loss, layout, count = model.loss, model.layout, len(picked)
    first, columns, begin, (k, q) = layout.first, layout.count, layout.begin, sizes(loss)
    if k + q > 1:
        spread(at, layout.place, x)
    else:
        x = at
    for c in range(k + q):
        low, high = (begin[c], begin[c + 1]) if k + q > 1 else (0, len(x))
        if c < k or columns[c] > 0:
            some_predictors(model.rows, picked, first[c], columns[c], x[low:high], t[c])
        else:
            for b in range(count):
                t[c, b] = x[low]
    evaluate(loss, y, model.added, model.weights, model.taken, picked, count, t, s, None)


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
        memory, x, t, s, then, labels = held.memory, batch.u, batch.t, batch.slopes, batch.then, batch.labels
        (k, q), count, share = sizes(model.loss), len(rows), len(model.y) / len(rows)
        m, y = k + q, labels[0]
        for b in range(count):
            y[b] = model.y[rows[b]]
        if reduced and not remembers:
            _some_slopes(model, rows, held.snapshot, x, t, y, then)
        _some_slopes(model, rows, held.at, x, t, y, s)
        for b in range(count):
            i = rows[b]
            weight = s.dtype.type(share * np.float64(weights[i]) if len(weights) > 0 else share)
            for c in range(m):
                labels[c, b] = s[c, b]
                if reduced:
                    s[c, b] -= memory[i * m + c] if remembers else then[c, b]
                s[c, b] *= weight
        if m == 1:
            x = held.sum
        x[:] = 0
        first, columns, begin = model.layout.first, model.layout.count, model.layout.begin
        for c in range(m):
            low, high = (begin[c], begin[c + 1]) if m > 1 else (0, len(x))
            if c < k or columns[c] > 0:
                some_sum(model.rows, rows, first[c], columns[c], s[c], x[low:high])
            else:
                for b in range(count):
                    x[low] += s[c, b]
        if m > 1:
            draw_in(x, model.layout.place, held.sum)

    return by_rows
