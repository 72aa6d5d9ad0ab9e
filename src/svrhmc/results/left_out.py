"""The law of each row's linear predictor given the other rows, from its moments under the posterior of all rows.

The predictor t of a row given the other rows is approximated by a normal law, N(m₋, v₋), which times the row's own
likelihood e^{−ℓ(t)} has the mean m and the variance v of t given all rows. With the slope s and the curvature c of ℓ at
m the iteration begins at

    v₋ = v/(1 − vc),        m₋ = m + v₋s,

which is exact where ℓ is quadratic (vc is then the row's leverage). Elsewhere the moments m̃ and ṽ of the product are
found by Gauss–Hermite quadrature, and 1/v₋ and (m₋ − m)/v₋ are raised by 1/v − 1/ṽ and −(m̃ − m)/ṽ until they agree, as
in expectation propagation (Minka, 2001). Other predictors of a row, and parameters that all rows share, are at their
posterior means. For families of classes, with several predictors, the points are draws of the posterior with the
weights e^{ℓ(t)}, none above 1/√draws.

Of a row that stands for several observations (its weight) a single one is left out; a row of m trials is left out
whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.rows.forms import RowsForm

_NODES, _MANY_NODES, _STEPS = 7, 21, 8  # nodes for small and for larger leverages, and steps of the iteration
_SMALL_LEVERAGE = 0.05  # where no row has more, the starting values are used
_MOST_LEVERAGE = 0.95  # leverages above cannot be told apart by a variance from draws
_FARTHEST = 8.0  # most standard deviations between the means with and without a row
_LEAST_VARIANCE = 1e-200


@dataclass(frozen=True, eq=False)
class LeftOut:
    """The law of the predictors of each row given the others: points (points, rows, …) and their weights (points,
    rows), which add up to 1. fitted: the predictors given all rows. leverage: 1 − v/v₋ of each row, about tr VC for
    several predictors; 0 without draws.
    """

    points: Array
    weights: Array
    fitted: Array
    leverage: Array

    def mean(self, function: Callable[[Array], Array]) -> Array:
        """The mean of a function of the predictors, (rows, …), over the points."""
        total: Array | float = 0.0
        for t, w in zip(self.points, self.weights, strict=True):
            values = np.asarray(function(t), np.float64)
            total = total + values * w.reshape(*w.shape, *(1,) * (values.ndim - w.ndim))
        return np.asarray(total, np.float64)


def leave_out_rows(form: RowsForm, mean: Array, draws: Array | None) -> LeftOut:
    """The laws of all rows of a form, from the posterior mean and draws in its variables; without draws (None) the
    predictors at the mean are taken for certain.
    """
    t = form.predictors(mean[None])[0]
    if draws is None:
        return LeftOut(t[None], np.ones((1, form.rows.n)), t, np.zeros(form.rows.n))
    around = form.predictors(draws)
    around += t - around.mean(axis=0)
    if form.loss.outcome == "classes":
        return _from_draws(form, t, around)
    return _at_hermite_points(form, t, form.loss.predictor(around).var(axis=0))


def _at_hermite_points(form: RowsForm, t: Array, variance: Array) -> LeftOut:
    m, v = form.loss.predictor(t), np.maximum(variance, _LEAST_VARIANCE)
    slope, curvature = (
        _first_predictor_part(form, form.loss.slope(t, form.y), 1),
        _first_predictor_part(form, form.loss.curvature(t, form.y), 2),
    )
    leverage = np.clip(v * curvature, 0.0, _MOST_LEVERAGE)
    precision = (1 - leverage) / v
    moved = slope / precision
    count = _NODES if leverage.max(initial=0.0) < _SMALL_LEVERAGE else _MANY_NODES
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)

    def at(middle: Array, sd: Array) -> Array:
        points = np.repeat(t[None], count, axis=0)
        form.loss.predictor(points)[...] = middle + nodes[:, None] * sd
        return points

    if count > _NODES:  # the product is about N(m, v), so that the nodes of this law cover it
        away = nodes[:, None] * np.sqrt(v)
        fixed = (np.log(weights) + 0.5 * nodes**2)[:, None] - _first_predictor_part(
            form, form.loss.value(at(m, np.sqrt(v)), form.y), 0
        )
        for _ in range(_STEPS):
            w = _normalise(fixed - 0.5 * precision * (away - moved) ** 2)
            mean = (w * away).sum(axis=0)
            spread = np.maximum((w * (away - mean) ** 2).sum(axis=0), _LEAST_VARIANCE)
            shift = precision * moved - mean / spread
            precision = np.clip(precision + 1 / v - 1 / spread, (1 - _MOST_LEVERAGE) / v, 1 / v)
            moved = np.clip(shift / precision, -_FARTHEST / np.sqrt(precision), _FARTHEST / np.sqrt(precision))
    points = at(m + moved, 1 / np.sqrt(precision))
    return LeftOut(points, np.repeat((weights / weights.sum())[:, None], len(m), axis=1), t, 1 - precision * v)


def _from_draws(form: RowsForm, t: Array, around: Array) -> LeftOut:
    w = _normalise(_first_predictor_part(form, form.loss.value(around, form.y), 0))
    w = np.minimum(w, 1 / np.sqrt(len(w)))
    w /= w.sum(axis=0)
    curvature = np.diagonal(form.loss.curvature(t, form.y), axis1=-2, axis2=-1)
    leverage = np.clip((around.var(axis=0) * curvature).sum(axis=-1), 0.0, _MOST_LEVERAGE)
    return LeftOut(around, w, t, leverage)


def _first_predictor_part(form: RowsForm, values: Array, axes: int) -> Array:
    """The part of ℓ, its slope or its curvature (with as many predictor axes, `axes`) that belongs to the first
    predictor: for one observation, or for all trials of a row.
    """
    own = (
        values.reshape(*values.shape[: values.ndim - axes], -1)[..., 0]
        if form.loss.predictor_shape and axes
        else values
    )
    return own * form.weights if form.loss.weights_are_trials and form.weights is not None else own


def _normalise(exponent: Array) -> Array:
    w = np.exp(exponent - exponent.max(axis=0))
    total: Array = w / w.sum(axis=0)
    return total
