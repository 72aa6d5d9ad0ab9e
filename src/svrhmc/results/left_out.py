"""What a model says of each row given the others, from the moments of its linear predictor under the posterior.

Given the other rows a row's predictor t is taken for normal, N(m₋, v₋): such that this law times the row's own
likelihood e^{−ℓ(t)} has the mean m and the variance v that t has given all rows. With the slope s and the curvature c
of ℓ at m it begins at

    v₋ = v/(1 − vc),        m₋ = m + v₋s,

which is the answer where ℓ is quadratic (vc is then the row's leverage). Elsewhere the moments m̃ and ṽ of the product
are found at Hermite's points, and 1/v₋ and (m₋ − m)/v₋ are raised by 1/v − 1/ṽ and −(m̃ − m)/ṽ until they agree, as
sites are by expectation propagation (Minka, 2001). Other predictors of a row, and parameters that all rows share, are
at their posterior means. Where a row has a class, whose predictors are several, the points are draws of the posterior,
with the weights e^{ℓ(t)}, none above 1/√draws.

A row that stands for several observations (its weight) is one of them at a time; one of m trials is left out whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.rows.forms import RowsForm

_NODES, _MANY_NODES, _STEPS = 7, 21, 8  # Hermite's points, and steps to the law without a row
_SMALL_LEVERAGE = 0.05  # of all rows, up to which the first step is the last
_MOST_LEVERAGE = 0.95  # above which the variance of a predictor, from draws, does not tell the leverage any more
_FARTHEST = 8.0  # standard deviations from the mean given all rows to that without one
_LEAST = 1e-200


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictors (points, rows, …) of each row given the others, and their weights (points, rows), which add up to 1;
    fitted: the predictors given all rows. leverage: of each row, 1 − v/v₋; 0 where it is not known.
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


def left_out(form: RowsForm, mean: Array, draws: Array | None) -> LeftOut:
    """Of all rows of a form, at a posterior mean, from draws, in its variables; None: the posterior has no width."""
    t = form.predictors(mean[None])[0]
    if draws is None:
        return LeftOut(t[None], np.ones((1, form.rows.n)), t, np.zeros(form.rows.n))
    around = form.predictors(draws)
    around += t - around.mean(axis=0)
    if form.loss.outcome == "classes":
        return _by_draws(form, t, around)
    return _by_points(form, t, form.loss.predictor(around).var(axis=0))


def _by_points(form: RowsForm, t: Array, variance: Array) -> LeftOut:
    m, v = form.loss.predictor(t), np.maximum(variance, _LEAST)
    slope, curvature = _own(form, form.loss.slope(t, form.y), 1), _own(form, form.loss.curvature(t, form.y), 2)
    leverage = np.clip(v * curvature, 0.0, _MOST_LEVERAGE)
    precision = (1 - leverage) / v
    moved = slope / precision
    count = _NODES if leverage.max(initial=0.0) < _SMALL_LEVERAGE else _MANY_NODES
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)

    def at(middle: Array, sd: Array) -> Array:
        points = np.repeat(t[None], count, axis=0)
        form.loss.predictor(points)[...] = middle + nodes[:, None] * sd
        return points

    if count > _NODES:  # the product is about N(m, v), so that points of this law see all of it
        away = nodes[:, None] * np.sqrt(v)
        fixed = (np.log(weights) + 0.5 * nodes**2)[:, None] - _own(form, form.loss.value(at(m, np.sqrt(v)), form.y), 0)
        for _ in range(_STEPS):
            w = _normalised(fixed - 0.5 * precision * (away - moved) ** 2)
            mean = (w * away).sum(axis=0)
            spread = np.maximum((w * (away - mean) ** 2).sum(axis=0), _LEAST)
            shift = precision * moved - mean / spread
            precision = np.clip(precision + 1 / v - 1 / spread, (1 - _MOST_LEVERAGE) / v, 1 / v)
            moved = np.clip(shift / precision, -_FARTHEST / np.sqrt(precision), _FARTHEST / np.sqrt(precision))
    points = at(m + moved, 1 / np.sqrt(precision))
    return LeftOut(points, np.repeat((weights / weights.sum())[:, None], len(m), axis=1), t, 1 - precision * v)


def _by_draws(form: RowsForm, t: Array, around: Array) -> LeftOut:
    w = _normalised(_own(form, form.loss.value(around, form.y), 0))
    w = np.minimum(w, 1 / np.sqrt(len(w)))
    w /= w.sum(axis=0)
    return LeftOut(around, w, t, np.zeros(form.rows.n))


def _own(form: RowsForm, values: Array, axes: int) -> Array:
    """What one observation has in its first predictor: of trials, all of a row's."""
    own = (
        values.reshape(*values.shape[: values.ndim - axes], -1)[..., 0]
        if form.loss.predictor_shape and axes
        else values
    )
    return own * form.weights if form.loss.weights_are_trials and form.weights is not None else own


def _normalised(exponent: Array) -> Array:
    w = np.exp(exponent - exponent.max(axis=0))
    total: Array = w / w.sum(axis=0)
    return total
