"""Priors that are not normal, in compiled code: ψ of some coordinates, by kind.

At u, the displacement that the rows meet, coordinate j is at d = uⱼ − atⱼ from its location; `slopes` and `curvatures`
are what was taken out of ψ at u = 0: its first orders, or nothing. A model without such priors has None, and then all
of this compiles to nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from svrhmc.core.arrays import Array, Indices
from svrhmc.kernels.compiling import PLAIN
from svrhmc.kernels.frames import LowRank, pull
from svrhmc.kernels.layout import FULL, is_a, is_none

STUDENT, LAPLACE, HALF_STUDENT, HALF_POWER = 1, 2, 3, 4


class Heavy(NamedTuple):
    """The ψⱼ of some columns."""

    columns: Indices
    kinds: Indices
    at: Array
    scale: Array
    shape: Array
    slopes: Array
    curvatures: Array


@njit(**PLAIN)
def _slope(kind, d, s, shape):
    """ψ′; nan for a kind that is not known."""
    if kind == STUDENT:
        return (shape + 1.0) * d / (shape * s * s + d * d)
    if kind == LAPLACE:
        return d / math.sqrt(d * d + shape * shape) / s
    if kind == HALF_STUDENT:
        return (shape + 1.0) / (1.0 + shape * math.exp(-2.0 * d)) - 1.0
    if kind == HALF_POWER:
        return math.exp(shape * d) - 1.0
    return math.nan


@njit(**PLAIN)
def _value(kind, d, s, shape):
    if kind == STUDENT:
        return 0.5 * (shape + 1.0) * math.log1p((d / s) ** 2 / shape)
    if kind == LAPLACE:
        return d * (d / (math.sqrt(d * d + shape * shape) + shape)) / s
    if kind == HALF_STUDENT:
        w = 2.0 * d - math.log(shape)
        return 0.5 * (shape + 1.0) * (max(w, 0.0) + math.log1p(math.exp(-abs(w)))) - d
    if kind == HALF_POWER:
        return math.exp(shape * d) / shape - d
    return math.nan


def prior_slopes(heavy, u, total):
    """total += ψ′ at u, less what was taken."""


@overload(prior_slopes, jit_options=PLAIN)
def _prior_slopes(heavy, u, total):
    if is_none(heavy):
        return lambda heavy, u, total: None

    def some(heavy, u, total):
        for k in range(len(heavy.columns)):
            j = heavy.columns[k]
            at = np.float64(u[j])
            there = _slope(heavy.kinds[k], at - heavy.at[k], heavy.scale[k], heavy.shape[k])
            total[j] += there - (heavy.slopes[k] + heavy.curvatures[k] * at)

    return some


def prior_value(heavy, u):
    """Σ ψ at u, less its value at 0 and what was taken."""


@overload(prior_value, jit_options=PLAIN)
def _prior_value(heavy, u):
    if is_none(heavy):
        return lambda heavy, u: 0.0

    def some(heavy, u):
        total = 0.0
        for k in range(len(heavy.columns)):
            at = np.float64(u[heavy.columns[k]])
            kind, scale, shape = heavy.kinds[k], heavy.scale[k], heavy.shape[k]
            there = _value(kind, at - heavy.at[k], scale, shape) - _value(kind, -heavy.at[k], scale, shape)
            total += there - at * (heavy.slopes[k] + 0.5 * heavy.curvatures[k] * at)
        return total

    return some


def add_prior(model, plan, held):
    """The part of these priors, in the variables of the chain, joins what the batch adds."""


@overload(add_prior, jit_options=PLAIN)
def _add_prior(model, plan, held):
    if "heavy" not in model.fields or is_none(model[model.fields.index("heavy")]):
        return lambda model, plan, held: None

    low_rank = is_a(model[model.fields.index("frame")], LowRank)

    def some(model, plan, held):
        extra = held.extra
        for j in range(len(extra)):
            extra[j] = 0.0
        prior_slopes(model.heavy, held.at, extra)
        pull(model.frame, extra, held.room, extra)
        fresh = plan.kind == FULL and not low_rank  # then nothing else has written to the sum
        for j in range(len(extra)):
            held.sum[j] = extra[j] + (0.0 if fresh else np.float64(held.sum[j]))

    return some
