"""What the compiled loops read and write: named tuples of arrays, which numba takes apart.

A model is a target in arrays; a plan is a sampler and its schedule as numbers; a workspace is room for one thread.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import types

from svrhmc.core.arrays import Array, Indices, Reals

Record = Any  # a named tuple by whose type compiled code chooses: of rows, a frame, priors or a family
Words = npt.NDArray[np.uint32]  # of the random stream: counters, and what is made of them

BLOCK = 4096  # rows summed together before they join the total
TILE = 64  # rows whose predictors are found before their slopes
ROOM = 3  # lines after those of the predictors, in the first of which values are left
FULL, MINIBATCH, SVRG = 0, 1, 2
DONE, DIVERGED, PASS_DUE = 0, 1, 2


class Taken(NamedTuple):
    """What is taken from every row's slope at t̂ + u, slope + curvature·u, t̂ being what is added to its product u; empty
    arrays where nothing is.
    """

    slopes: Reals
    curvatures: Reals


class Layout(NamedTuple):
    """Which columns of a row each predictor has coefficients of, and where these are in a state as passes read it: one
    predictor behind the other, each as long as its columns or padded to whole vectors; a parameter that all rows share
    is one number. Of sparse rows each has as many coefficients as there are columns, those of others being 0.
    """

    first: Indices  # of a row's columns, of each predictor
    count: Indices  # of its columns; 0: a parameter that all rows share
    begin: Indices  # of its coefficients in the state, and where the last of them end
    place: Indices  # in the state, of each coordinate of x


class Model(NamedTuple):
    """Rows of a generalised linear model, their labels and the prior; the variables that a chain moves in.

    g = prior·z − prior_force + Wᵀ(inner·u + the rows' part), with u the displacement that the frame makes of z: u = z
    and W = I where it is None. Where `taken` is None nothing is taken, rows are drawn evenly and SAGA is unknown: a
    shorter loop.
    """

    rows: Record
    layout: Layout
    y: Reals
    prior: Array
    prior_force: Array
    loss: Record
    frame: Record | None
    inner: Array | None
    taken: Taken | None
    added: Reals  # (rows, 1): offsets of the first predictor; (rows, predictors) at the centre; no columns for none
    weights: Reals | None  # of every row
    heavy: Record | None  # priors that are not normal


class GaussianModel(NamedTuple):
    """Quadratic components: S (1 or n matrices), forces Sᵢaᵢ, and their means."""

    S: Reals
    forces: Reals
    mean_precision: Array
    mean_force: Array
    prior: Array
    prior_force: Array
    frame: None


Models = Model | GaussianModel


class Plan(NamedTuple):
    """Sampler and schedule as numbers."""

    n: int
    kind: int
    batch: int
    epoch: int
    replacement: bool
    remembers: bool
    snapshot_rows: int
    before: bool
    before_normals: int
    first: int
    thin: int
    far_rows: bool
    anchored: bool  # the snapshot is the mode, given before the run
    second: bool  # the Hessian there times the displacement belongs to the gradient
    saga: bool  # the memory of a row is renewed with each use of it
    importance: bool  # rows are drawn by an alias table


class Held(NamedTuple):
    """What a chain works with at every step."""

    at: Reals  # x in the rows' precision
    snapshot: Reals  # x̃ in the rows' precision
    anchor: Array  # data part of ḡ
    sum: Reals  # what the batch adds to ḡ; stays 0 for full gradients
    memory: Reals  # the slopes of all rows at x̃
    hessian: Array  # the data part of the Hessian at the mode, for second order
    base: Array  # the data part of ∇f(x̂); of SAGA's memory, before it is pulled back
    room: Array
    extra: Array  # the gradient of priors that are not normal
    normals: Reals  # (3, blocks): first and second normals of each block of a chunk of steps, and room
    z: Reals  # the normals of one step


class Memory(NamedTuple):
    """What some chains remember between two calls, each a row; no rows where nothing is remembered.

    snapshot: what the rows met there, u of x̃. anchor: the data part of ḡ, for SAGA before it is pulled back. table: the
    rows' slopes at x̃ in their precision; without columns they are made again by a pass.
    """

    snapshot: Array
    anchor: Array
    table: Reals


class Flags(NamedTuple):
    """How a call of the loop begins and ends."""

    fresh: bool  # a snapshot is taken at the first step
    load: bool  # else the memory of each chain is taken from what was kept
    store: bool  # in the end it is kept
    passed: bool  # the pass that was due has been made by the caller
    outside: bool  # passes are made by the caller


class Pass(NamedTuple):
    """For a pass over all rows: sums of blocks of rows; the others belong to one thread."""

    partial: Array
    wide: Reals  # x, padded with zeros
    tile: Reals  # the sum of a tile, and of a block
    total: Array
    t: Reals  # predictors and slopes of a tile: a line for each predictor
    slopes: Reals
    labels: Reals  # of a tile, and the numbers of its rows
    numbers: Indices
    value: Array  # of a tile, which a gradient has no use for


class Batch(NamedTuple):
    """For a gradient from some rows."""

    rows: Indices  # drawn row numbers: of a chunk's batches, then of a snapshot
    weights: Reals  # 1/(nP) of each row, or none
    u: Reals  # a state or a gradient whose blocks are padded
    t: Reals  # predictors, labels and slopes of some rows: a line for each predictor
    labels: Reals
    slopes: Reals
    then: Reals


class Draws(NamedTuple):
    """Room and tables for drawing the rows of a batch."""

    steps: Words  # counters of a chunk of random blocks
    slots: Words
    seen: Indices  # hash table for draws without replacement
    threshold: Words  # an alias table
    alias: Indices


class Noise(NamedTuple):
    """For drawing normals: counters of a chunk of random blocks, and their words."""

    steps: Words
    slots: Words
    fine_slots: Words
    words: Words  # (4, blocks): two words of each block, and two fine ones


class Workspace(NamedTuple):
    """Room for one thread: nothing is allocated while a chain runs."""

    held: Held
    sums: Pass | None  # None where no pass over all rows is made
    batch: Batch
    draw: Draws
    noise: Noise


def is_a(value: types.Type | None, kind: type) -> bool:
    """Whether the type that numba has for a value is this named tuple."""
    return isinstance(value, types.BaseNamedTuple) and value.instance_class is kind


def is_plain(model: types.BaseNamedTuple) -> bool:
    """Whether the type that numba has for a model is of one for the shorter loop."""
    return "taken" not in model.fields or isinstance(model[model.fields.index("taken")], types.NoneType)


def is_several(loss: types.Type) -> bool:
    """Whether the type that numba has for a record is of a family with several predictors or shared parameters."""
    return isinstance(loss, types.BaseNamedTuple) and "blocks" in loss.fields


def is_none(value: types.Type | None) -> bool:
    """Whether the type that numba has for a value is that of None."""
    return value is None or isinstance(value, types.NoneType)
