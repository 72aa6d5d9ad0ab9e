"""What in a model contradicts the scale of the data.

Prior and likelihood: with m, s the posterior's mean and sd of a coordinate, N(m₀, s₀²) its prior, and L the curvature
of the likelihood along it, the others being given, precisions add, and the likelihood alone would put it at m_L:

    1/s² = 1/s₀² + L,       m_L − m = (m − m₀)/(s₀²L),
    z = (m_L − m₀)/√(s₀² + 1/L) = (m − m₀)/s₀ · √(1 + 1/(s₀²L)).

Under the model z is a standard normal number. A prior clashes where |z| > 5, and where it matters: it moves the mean by
more than one posterior sd, |m_L − m| > s (or, as coordinates depend on each other, by the `Influence` of the prior).
What chance alone may do to m, four standard errors, is taken from |m − m₀| beforehand.

Noise: where σ is given, the residuals at the posterior mean have the mean square σ²(n − p)/n. A σ that is five times
too large or too small clashes: then all sds are wrong by that factor.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, ratio
from svrhmc.posterior.advice import Advice
from svrhmc.posterior.alerts import alert
from svrhmc.posterior.influence import Influence
from svrhmc.posterior.kept import spread
from svrhmc.posterior.misfits import misfits
from svrhmc.targets.forms import RowsForm

_FAR, _MATTERS, _FACTOR = 5.0, 1.0, 5.0  # |z|, |shift|, and the factor of σ
_SAID = 1e-4  # of the prior's precision: a spread of which rows say less is no clash, as they have no residuals
_SEEN = 1e-12  # the same for a coefficient: the rows looked at say nothing of it
_ERRORS = 4.0  # standard errors that chance is allowed
_ROWS, _FREE = 5000, 20  # rows that are looked at, and the least n − p


def examined(posterior: Any, given: bool = True, advice: Advice | None = None) -> Any:
    """A `Posterior` with what clashes in it, of which a `UserWarning` tells as well, and with how its model misfits.

    given: whether the prior was. One that follows the data's scale by itself is weak, and no matter of a warning; what
    it did stands in `posterior.prior`. advice: what its user can change; None stands for a target.
    """
    form, advice = posterior.form, advice or Advice()
    if form is None:
        return posterior
    prior = posterior.prior
    if prior is None:
        draws = posterior.trace.draws
        prior = Influence.of(form.prior_mean, form.prior_precision, draws, _said(form))
    mean = posterior.mean if posterior.units is None else posterior.units.inward(posterior.mean)
    chance = float(ratio(posterior.errors[0], posterior.sd).max())
    some = form.chosen(spread(form.rows.n, _ROWS, 0))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is as far as can be
        noise, clash = _noise(some, form.rows.n, mean), _prior(prior, some, form.rows.n, mean, chance, posterior.labels)
        said = [f"{noise}, or {advice.noise}." if noise else "", f"{clash} {advice.prior}." if clash and given else ""]
    found = tuple(filter(None, said))
    if found:
        alert("The model contradicts the data's scale: " + " And ".join(found))
    ones = int(posterior.units is not None and posterior.units.intercept)
    failures, rows = misfits(form, mean, posterior.labels, ones, advice)
    told = replace(posterior, prior=prior, clashes=found, misfits=failures, checked_rows=rows)
    return told.about(posterior._target, posterior._kept)


def _prior(prior: Influence, some: RowsForm, rows: int, mean: Array, chance: float, names: tuple[str, ...]) -> str:
    stated = prior.precision > 0
    precision = np.where(stated, prior.precision, 1.0)
    curvature = np.abs(some.rows.squares(some.curvatures(some.predictors(mean[None])[0]))) * (rows / some.rows.n)
    shared = np.arange(len(precision)) >= len(precision) - some.loss.shared
    stated &= curvature > np.where(shared, _SAID, _SEEN) * precision
    ratio = precision / np.maximum(curvature, 1e-300 * precision)
    sd = np.sqrt(prior.share / precision)
    away = np.maximum(np.abs(mean - prior.location) - _ERRORS * chance * sd, 0.0) * stated
    z = away * np.sqrt(precision * (1 + ratio))
    shift = np.maximum(away * ratio / np.maximum(sd, 1e-300), np.abs(prior.shift))
    clash = np.flatnonzero((z > _FAR) & (shift > _MATTERS))
    if not len(clash):
        return ""
    worst = int(clash[np.argmax(z[clash])])
    more = f" (and that of {len(clash) - 1:,} more)" if len(clash) > 1 else ""
    return (
        f"the prior of {names[worst]}{more} is {_short(z[worst])} standard deviations from where the data put it, and "
        f"moves its mean by {_short(shift[worst])} posterior sds."
    )


def _noise(some: RowsForm, n: int, mean: Array) -> str:
    known, columns = some.loss.known_noise, some.rows.columns
    if known is None or n - columns < _FREE:
        return ""
    w = np.ones(some.rows.n) if some.weights is None else some.weights
    square = float(np.average((some.y - some.predictors(mean[None])[0]) ** 2, weights=w))
    variance = square * n / (n - columns)
    seen = math.sqrt(variance)
    if known / _FACTOR <= seen <= known * _FACTOR:
        return ""
    small, large = _short(seen / known), _short(known / max(seen, 1e-300))
    how = f"{small} times too small" if seen > known else f"{large} times too large"
    return (
        f"the noise is said to have the sd {known:.4g}, but residuals have {seen:.4g}, so that posterior sds are about "
        f"{how}. Take noise_variance={variance:.3g}"
    )


def _said(form: RowsForm) -> str:
    precision, mean = np.unique(form.prior_precision), np.unique(form.prior_mean)
    if form.heavy is None and len(precision) == len(mean) == 1 and precision[0] > 0:
        return f"every coefficient ~ N({mean[0]:g}, {precision[0] ** -0.5:.4g}²)"
    return "as the target states it, coefficient by coefficient"


def _short(number: float) -> str:
    return f"{number:,.0f}" if 10 <= number < 1e6 else f"{number:.2g}"
