"""Bayesian R²: the share of the variance of y that its mean explains, under each draw of the posterior.

With μᵢ = E(yᵢ | x) and vᵢ = var(yᵢ | x) under a draw x, and V the variance over the rows by their weights,

    R² = V(μᵢ)/(V(μᵢ) + mean vᵢ),

never above 1, with an interval (Gelman, Goodrich, Gabry & Vehtari, The American Statistician 73, 2019). vᵢ is what the
family says (`Loss.variance`): σ² of "gaussian", p(1 − p) of yes or no, which is that of one trial where there are
several.

It is on the scale of y, of the rows that were fitted and of the groups that they are in, whose effects are in μᵢ. The
R² of `svrhmc.results.groups` are on the scale of the linear predictor, with the variance of groups as a whole.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import ratio
from svrhmc.core.errors import requirement, whole_number
from svrhmc.core.summaries import interval_ends
from svrhmc.results.base import PosteriorData, even_rows
from svrhmc.results.groups import Quantities
from svrhmc.results.predict import Predictions

_MOST_ROWS = 10_000  # over which it is averaged


def r2_of(posterior: PosteriorData, level: float, draws: int) -> Quantities:
    """Bayesian R² from at most `draws` draws, with an interval of probability `level`."""
    draws = whole_number("draws", draws, 2)
    interval_ends(level)
    form = posterior.fitted()
    form = form.choose(even_rows(form.rows.n, _MOST_ROWS, 0))
    loss, x = form.loss, posterior.inner(draws)
    w = np.ones(form.rows.n) if form.weights is None else form.weights
    trials = loss.trials_of(form.y, form.weights)
    w = w if trials is None or loss.weights_are_trials else w * trials
    w = w / w.sum()
    sums, squares, residual, first = np.zeros(len(x)), np.zeros(len(x)), np.zeros(len(x)), None
    for _, t, rows in Predictions(form, x, 0).predictors():
        mean, variance = loss.mean(t), loss.variance(t)
        if variance is None:
            family = posterior.family or str(loss)
            raise requirement("the family", "one that says the variance of y, to have an R²", family)
        first = mean[:, :1] if first is None else first  # against cancellation of large numbers
        difference = mean - first
        sums, squares = sums + difference @ w[rows], squares + difference**2 @ w[rows]
        residual = residual + variance @ w[rows]
    explained = np.maximum(squares - sums**2, 0.0)
    which_rows = (
        f" From {form.rows.n:,} of {posterior.rows:,} rows, spread evenly." if form.rows.n < posterior.rows else ""
    )
    note = (
        "R2 is the variance of the mean of y over the rows, as a share of itself and the variance of y about its mean, "
        f"on the scale of y.{which_rows}"
    )
    if posterior.group_scales:
        note += (
            " Effects of groups are part of the mean; variances() has shares with and without them, on the scale of "
            "the linear predictor."
        )
    return Quantities(("R2",), ratio(explained, explained + residual)[:, None], level, "Bayesian R².", (note,))
