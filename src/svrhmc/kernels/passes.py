"""What rows give at a state: values, slopes, and Σᵢ Jᵢᵀsᵢ; the one body for every family, storage and precision.

A row has m = k + q predictors, each of some of its columns (`layout.Layout`), whose coefficients lie one predictor
behind the other in a state; a predictor without columns is a parameter that all rows share. k = 1 and q = 0 are
constants where the family has one predictor, and the loops over them are none. For a tile of rows, or a batch of picked
ones, come the products of all of them, then their values and slopes in vector code (`evaluate`), then the sums.
Predictors and slopes are lines t[c, b], c the predictor and b the row, in the precision of the labels.

Sums over all rows are in float64 from tile to tile, and in blocks of a fixed size, which join in their order: so they
do not depend on the number of threads, nor a state's on the others that are evaluated with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from svrhmc.core.arrays import Array, Reals
from svrhmc.families.primitives import Fields
from svrhmc.kernels.compiling import BOUND, ENTRY, PLAIN, QUICK, kept, one_copy, peek, smaller
from svrhmc.kernels.frames import pull
from svrhmc.kernels.layout import BLOCK, ROOM, TILE, GaussianModel, Layout, is_a, is_none, is_several
from svrhmc.kernels.losses import energies, needed, slopes
from svrhmc.kernels.rows import Rows, many, place_of, tile_predictors, tile_sum


@intrinsic
def sizes(context, loss):
    """(k, q): predictors of all columns, and further ones; constants where there is but one."""
    names = ("blocks", "shared") if is_several(loss) else ()

    def generate(context, builder, signature, arguments):
        numbers = [builder.extract_value(arguments[0], loss.fields.index(name)) for name in names]
        constants = [context.get_constant(types.intp, number) for number in (1, 0)]
        return context.make_tuple(builder, signature.return_type, numbers or constants)

    return types.UniTuple(types.intp, 2)(loss), generate


def formulas_of_rows(loss, count, t, y, s, valued):
    """s = ∂ℓ/∂t at so many rows' predictors, and ℓ in line k + q of t if `valued`."""


@overload(formulas_of_rows, jit_options=QUICK, inline="always")
def _formulas_of_rows(loss, count, t, y, s, valued):
    if is_several(loss):
        if is_none(valued):
            return lambda loss, count, t, y, s, valued: several_energies(loss, count, t, y, s, False)
        return lambda loss, count, t, y, s, valued: several_energies(loss, count, t, y, s, valued)
    if is_none(valued):
        return lambda loss, count, t, y, s, valued: slopes(loss, count, t[0], y, s[0])

    def one(loss, count, t, y, s, valued):
        if valued:
            energies(loss, count, t[0], y, s[0], t[1])
        else:
            slopes(loss, count, t[0], y, s[0])

    return one


def several_energies(loss, count, t, y, s, valued):
    """The same of a family with several predictors."""


@overload(several_energies, jit_options=QUICK)
def _several_energies(loss, count, t, y, s, valued):
    return needed(loss, t.dtype, "energies")


def place(where, b):
    """The number of row b: of consecutive ones from `where` on, or of those picked."""


@overload(place, jit_options={**PLAIN, "forceinline": True})
def _place(where, b):
    if isinstance(where, types.Array):
        return lambda where, b: where[b]
    return lambda where, b: where + b


@njit(**QUICK)
def evaluate(loss, y, added, weights, taken, where, count, t, s, valued):
    """Slopes of some rows, weighed and less what is taken from them, from their products in t; and gives the sum of
    their values, weighed, if `valued`; None where none ever are, and then nothing is compiled for them.

    t = product + added (the offset of the first predictor, or what all predictors are at the centre). What is taken
    from the slopes at t̂ + u is slope + curvature·u, u the product. y: the labels of these rows.
    """
    k, q = sizes(loss)
    m = k + q
    if takes(taken):
        for c in range(m):
            for b in range(count):
                t[m + ROOM + c, b] = t[c, b]
    if added.shape[1] == 1:
        for b in range(count):
            t[0, b] += peek(added, place(where, b))
    elif m > 1 and added.shape[1] == m:
        for c in range(m):
            for b in range(count):
                t[c, b] += peek(added, place(where, b) * m + c)
    formulas_of_rows(loss, count, t, y, s, valued)
    weigh(weights, where, count, s, m)
    total = 0.0
    if valued is not None and valued:
        weigh(weights, where, count, t[m:], 1)
        for b in range(count):
            total += np.float64(t[m, b])
    remove(taken, where, count, t, s, m)
    return total


def takes(taken):
    """Whether something is taken from slopes."""


@overload(takes, jit_options=PLAIN, inline="always")
def _takes(taken):
    return (lambda taken: False) if is_none(taken) else (lambda taken: len(taken.slopes) > 0)


def weigh(weights, where, count, s, lines):
    """Lines times the weights of their rows, where there are weights."""


@overload(weigh, jit_options=QUICK, inline="always")
def _weigh(weights, where, count, s, lines):
    if is_none(weights):
        return lambda weights, where, count, s, lines: None

    def by_rows(weights, where, count, s, lines):
        for c in range(lines):
            for b in range(count):
                s[c, b] *= peek(weights, place(where, b))

    return by_rows


def remove(taken, where, count, t, s, m):
    """Take what is to be taken from the slopes of some rows."""


@overload(remove, jit_options=QUICK, inline="always")
def _remove(taken, where, count, t, s, m):
    if is_none(taken):
        return lambda taken, where, count, t, s, m: None

    def by_rows(taken, where, count, t, s, m):
        slopes, curvatures = taken.slopes, taken.curvatures
        if len(slopes) > 0:
            for c in range(m):
                for b in range(count):
                    i = place(where, b)
                    bend = peek(slopes, i * m + c)
                    for e in range(m):
                        bend += peek(curvatures, (i * m + c) * m + e) * t[m + ROOM + e, b]
                    s[c, b] -= bend

    return by_rows


@njit(**PLAIN)
def spread(x, place, out):
    """x as passes read it, with zeros between."""
    one_copy()
    for j in range(len(out)):
        out[j] = 0
    for j in range(len(x)):
        out[place[j]] = x[j]


@njit(**PLAIN)
def draw_in(total, place, out):
    """What `spread` was made of."""
    one_copy()
    for j in range(len(out)):
        out[j] = total[place[j]]


@njit(**{**PLAIN, "forceinline": True})
def pass_tile(
    rows, layout, loss, y, where, added, weights, taken, states, chains, low, high, tile, t, s, sums, values, valued
):  # fmt: skip
    """Add what a tile of rows gives at each of several states to its sum and, if `valued`, to its value. The lines of a
    state in t and s follow those of the one before; `tile` is room. y and `where`: the labels of these rows, and their
    numbers as `place` has them.
    """
    (k, q), count, size = sizes(loss), high - low, len(states)
    m, lines, first, columns, begin = k + q, len(t) // many(chains), layout.first, layout.count, layout.begin
    for c in range(m):
        if c < k or columns[c] > 0:
            length = begin[c + 1] - begin[c]
            tile_predictors(rows, first[c], columns[c], states, chains, begin[c], length, low, high, t, c, lines)
    for chain in range(many(chains)):
        for c in range(k, m):
            if columns[c] == 0:
                shared = states[place_of(rows, size, chains, chain, begin[c])]
                for b in range(count):
                    t[chain * lines + c, b] = shared
        own, slopes = t[chain * lines : (chain + 1) * lines], s[chain * m : (chain + 1) * m]
        values[chain] += evaluate(loss, y, added, weights, taken, where, count, own, slopes, valued)
        for c in range(k, m):
            if columns[c] == 0:
                at = place_of(rows, size, chains, chain, begin[c])
                for b in range(count):
                    sums[at] += slopes[c, b]
    for c in range(m):
        if c < k or columns[c] > 0:
            length = begin[c + 1] - begin[c]
            tile_sum(rows, first[c], columns[c], s, c, m, low, high, tile, sums, chains, begin[c], length)


class Summing(NamedTuple):
    """What a pass over all rows at several states reads and writes."""

    rows: Rows
    layout: Layout
    loss: Fields
    y: Reals
    added: Reals
    weights: Reals | None
    states: Reals
    chains: int
    size: int  # rows of a block
    tile: Reals  # room of one thread
    t: Reals
    slopes: Reals
    partial: Array
    values: Array


@kept
@njit(**BOUND)
def pass_blocks(summing, begin, end, valued):
    """One thread's share of a pass over all rows at several states: for each block of rows from `begin` to before
    `end`, Σ Jᵀs in partial[block], which lies as the states do, and Σ ℓ of each state in values[block].
    """
    rows, layout, loss, y, added, weights, states, chains, size, tile, t, s, partial, values = summing[0]
    for block in range(begin, end):
        sums, worth = partial[block], values[block]
        sums[:] = 0.0
        worth[:] = 0.0
        stop = smaller(len(y), (block + 1) * size)
        for low in range(block * size, stop, TILE):
            high = smaller(stop, low + TILE)
            pass_tile(
                rows, layout, loss, y[low:high], low, added, weights, None, states, chains, low, high, tile, t, s, sums,
                worth, valued,
            )  # fmt: skip


def sum_blocks(model, x, begin, end, sums, memory, keep):
    """The data part of ∇f at x, in blocks of rows whose sums are in float64; a Gaussian is one block.

    The slopes of the rows go to `memory` if `keep`.

    `wide`, `tile` and `total` of the pass have blocks as long as the rows, or longer: then a row is read into the next
    one, whose numbers meet zeros in `wide` and are left behind in `total`. So vector code needs no second loop for the
    end of a row.

    Labels and numbers of rows are laid beside each other as those of a batch are, so that one `evaluate` is compiled
    for both.
    """


@overload(sum_blocks, jit_options=QUICK)
def _sum_blocks(model, x, begin, end, sums, memory, keep):
    if is_a(model, GaussianModel):

        def gaussian(model, x, begin, end, sums, memory, keep):
            partial = sums.partial
            for i in range(len(x)):
                product = -model.mean_force[i]
                for j in range(len(x)):
                    product += model.mean_precision[i, j] * x[j]
                partial[0, i] = product

        return gaussian

    def rows(model, x, begin, end, sums, memory, keep):
        partial, wide, tile, total, t, s = sums.partial, sums.wide, sums.tile, sums.total, sums.t, sums.slopes
        labels, numbers = sums.labels, sums.numbers
        rows, layout, loss, y, added, weights, taken = (
            model.rows, model.layout, model.loss, model.y, model.added, model.weights, model.taken
        )  # fmt: skip
        k, q = sizes(loss)
        spread(x, layout.place, wide)
        for block in range(begin, end):
            total[:] = 0.0
            stop = smaller(len(y), (block + 1) * BLOCK)
            for low in range(block * BLOCK, stop, TILE):
                high = smaller(stop, low + TILE)
                for b in range(high - low):
                    labels[b], numbers[b] = y[low + b], low + b
                pass_tile(
                    rows, layout, loss, labels, numbers, added, weights, taken, wide, None, low, high, tile, t, s,
                    total, sums.value, None,
                )  # fmt: skip
                if keep:
                    for b in range(high - low):
                        for c in range(k + q):
                            memory[(low + b) * (k + q) + c] = s[c, b]
            draw_in(total, layout.place, partial[block])

    return rows


@njit(**QUICK)
def join(partial, total):
    """Join the blocks' sums, in their order."""
    total[:] = 0.0
    for block in range(len(partial)):
        for j in range(len(total)):
            total[j] += partial[block, j]


@kept
@njit(**ENTRY)
def share_pass(model, x, begin, end, sums, memory, keep):
    """One thread's share of a pass of the grid."""
    sum_blocks(model, x, begin, end, sums, memory, keep)


@kept
@njit(**ENTRY)
def join_shares(model, partial, room, anchor):
    """What joins the shares."""
    join(partial, anchor)
    pull(model.frame, anchor, room, anchor)


@kept
@njit(**ENTRY)
def all_slopes(loss, y, added, weights, t, s, out):
    """The slopes of all rows, (rows, predictors), where their products are 0, as the loops find them."""
    k, q = sizes(loss)
    for low in range(0, len(y), TILE):
        count = smaller(len(y), low + TILE) - low
        for c in range(k + q):
            for b in range(count):
                t[c, b] = 0.0
        evaluate(loss, y[low : low + count], added, weights, None, low, count, t, s, None)
        for b in range(count):
            for c in range(k + q):
                out[low + b, c] = s[c, b]
