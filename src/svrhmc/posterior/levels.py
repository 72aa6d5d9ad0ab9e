"""Averages over rows for every level of a category, without a design for each level.

Where a category stands in a term of its own and in no other, a level l adds the same number b_l to the predictor of
every row, whatever else the row has. So one design of the rows at the baseline, and one of a single row at every level,
say all predictors, and the average mean of y at a level is a function of b_l alone, for each draw of the posterior:

    g(b) = Σᵢ wᵢ μ(tᵢ + b),        b = b_l.

Where μ is the predictor itself, g(b) − g(0) = b Σᵢ wᵢ. Else g is smooth, as μ is analytic near the real line, and its
Chebyshev interpolant on the interval of the b_l has an error that falls geometrically with the degree: of a logistic μ
and an interval of half-width r by the factor π/r + √(1 + (π/r)²) for each degree (Trefethen, *Approximation Theory and
Approximation Practice*, theorem 8.2). The degree is doubled until the last coefficients are below 10⁻¹⁰ of the largest
value. So the work is that of some dozens of looks at the rows, however many levels there are; with fewer levels than
that, and where every class has a b of its own, g is found at each level.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.polynomial import chebyshev

from svrhmc.core.arrays import Array
from svrhmc.posterior.prediction import Predictions
from svrhmc.targets.forms import RowsForm

_DEGREES = (16, 32, 64, 128, 256, 512)
_ENOUGH, _LAST = 1e-10, 4  # how small the last coefficients are to be, and how many: half of an odd function's are 0


def level_averages(baseline: RowsForm, levels: RowsForm, x: Array, w: Array) -> Array:
    """Σᵢ wᵢ μ at every level, less a constant of each draw: (draws, levels, classes), under draws x (draws, dim).

    baseline: the rows, all at the first level. levels: one row at every level, the first level first.
    """
    t = np.concatenate([each for _, each, _ in Predictions(replace(levels, offset=None), x, 0).predictors()], axis=1)
    shifts = t - t[:, :1]
    if baseline.loss.identity_link:
        return np.asarray(baseline.loss.mean(shifts) * w.sum()).reshape(*shifts.shape[:2], -1)
    if baseline.loss.blocks == 1:
        along = shifts.reshape(*shifts.shape[:2], -1)[..., 0]  # what rows share no level changes
        if (found := _interpolated(baseline, x, along, w)) is not None:
            return found
    return _averages(baseline, x, shifts, w)


def _averages(form: RowsForm, x: Array, shifts: Array, w: Array) -> Array:
    """g at shifts (draws, points, …) of the predictors: (draws, points, classes)."""
    found = []
    for _, t, chosen in Predictions(form, x, 0).predictors():
        each = [np.einsum("dr...,r->d...", form.loss.mean(t + shifts[:, k, None]), w[chosen]) for k in _points(shifts)]
        found.append(np.stack([one.reshape(len(x), -1) for one in each], axis=1))
    return np.asarray(sum(found))


def _points(shifts: Array) -> range:
    return range(shifts.shape[1])


def _interpolated(form: RowsForm, x: Array, b: Array, w: Array) -> Array | None:
    """g at the shifts b (draws, levels) of the first predictor; None where interpolation saves nothing."""
    middle, half = (b.max(axis=1) + b.min(axis=1)) / 2, (b.max(axis=1) - b.min(axis=1)) / 2
    scaled = (b - middle[:, None]) / np.where(half > 0, half, 1.0)[:, None]
    first = form.loss.unit()
    for degree in _DEGREES:
        if degree >= b.shape[1]:
            return None
        nodes = chebyshev.chebpts1(degree + 1)
        at = middle[:, None] + half[:, None] * nodes
        values = _averages(form, x, at[(..., *(None,) * first.ndim)] * first, w)
        scale = np.where(np.arange(degree + 1) == 0, 1.0, 2.0) / (degree + 1)
        coefficients = np.einsum("jk,djc->kdc", chebyshev.chebvander(nodes, degree) * scale, values)
        if (np.abs(coefficients[-_LAST:]).max(axis=0) <= _ENOUGH * np.abs(values).max(axis=1)).all():
            shown = [
                chebyshev.chebval(scaled, each[..., None], tensor=False) for each in np.moveaxis(coefficients, 2, 0)
            ]
            return np.stack(shown, axis=2)
    return None
