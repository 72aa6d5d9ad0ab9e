"""Gradients from some rows, and the drawing of these."""

from __future__ import annotations

from numba import njit
from numba.extending import overload

from svrhmc.kernels.compiling import INLINE, PLAIN, QUICK, prefetch
from svrhmc.kernels.layout import GaussianModel, is_a, is_none, is_plain, is_wide
from svrhmc.kernels.losses import shift_at, slopes, weigh_at
from svrhmc.kernels.rows import row_add, row_dot, row_prefetch
from svrhmc.kernels.wide import wide_gradient
from svrhmc.kernels.words import draw_rows, draw_weighted, random_words


@njit(**INLINE)
def draw_batches(model, k0, k1, base, steps, plan, draw, words, rows):
    """The rows of the batches of a chunk of steps."""
    count = steps * plan.batch
    w0, w1 = words[0], words[1]
    random_words(k0, k1, base, count, draw.steps, draw.slots, words, 0)
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

        def plain(model, rows, u, t, labels, out):
            shift_at(model.offset, rows, t)
            slopes(model.loss, len(rows), t, labels, out)
            weigh_at(model.weights, rows, out)

        return plain

    def beyond(model, rows, u, t, labels, out):
        taken, count = model.taken, len(rows)
        some = len(taken.predictors) > 0
        if some:
            for b in range(count):
                u[b] = t[b]
                t[b] += taken.predictors[rows[b]]
        else:
            shift_at(model.offset, rows, t)
        slopes(model.loss, count, t, labels, out)
        weigh_at(model.weights, rows, out)
        if some:
            for b in range(count):
                i = rows[b]
                out[b] -= taken.slopes[i] + taken.curvatures[i] * u[b]

    return beyond


def _ask(array, i):
    """Ask for an element, where there is an array."""


@overload(_ask, jit_options={**PLAIN, "forceinline": True})
def _ask_for(array, i):
    return (lambda array, i: None) if is_none(array) else (lambda array, i: prefetch(array, i))


def card_prefetch(model, i):
    """Ask for what else is known of row i: its label, and what is taken from it."""


@overload(card_prefetch, jit_options={**PLAIN, "forceinline": True})
def _card_prefetch(model, i):
    if is_a(model, GaussianModel):
        return lambda model, i: None
    if is_wide(model) and not is_plain(model):

        def wide(model, i):
            prefetch(model.y, i)
            _ask(model.weights, i)
            taken = model.taken
            if len(taken.predictors) > 0:
                m = taken.predictors.shape[1]
                prefetch(taken.predictors, i * m)
                prefetch(taken.slopes, i * m)
                for j in range(0, m * m, 8):
                    prefetch(taken.curvatures, i * m * m + j)

        return wide
    if is_plain(model):

        def plain(model, i):
            prefetch(model.y, i)
            _ask(model.offset, i)
            _ask(model.weights, i)

        return plain

    def framed(model, i):
        prefetch(model.y, i)
        _ask(model.weights, i)
        taken = model.taken
        if len(taken.predictors) > 0:
            prefetch(taken.predictors, i)
            prefetch(taken.slopes, i)
            prefetch(taken.curvatures, i)

    return framed


@njit(**INLINE)
def ask_for(model, plan, held, rows):
    """Ask for all of some rows before they are needed, where they are far away."""
    if plan.far_rows:
        for b in range(len(rows)):
            row_prefetch(model, rows[b])
            card_prefetch(model, rows[b])
            if plan.remembers:
                prefetch(held.memory, rows[b])


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
    if is_wide(model):
        return lambda model, rows, weights, reduced, remembers, held, batch: wide_gradient(
            model, rows, weights, reduced, remembers, held, batch
        )

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
