"""Intervals, chances and average effects of a posterior, until it says them itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.posterior.prediction import Predictions, thinned
from svrhmc.posterior.result import Posterior
from svrhmc.targets.forms import rows_of


def interval(posterior: Posterior, level: float) -> Array:
    """(dim, 2): quantiles of the draws, as much beyond one end as beyond the other."""
    flat = np.asarray(posterior.trace.draws).reshape(-1, posterior.trace.draws.shape[2])
    return np.quantile(flat, [(1 - level) / 2, (1 + level) / 2], axis=0).T


def positive(posterior: Posterior) -> Array:
    """The share of the draws above 0."""
    flat = np.asarray(posterior.trace.draws).reshape(-1, posterior.trace.draws.shape[2])
    share: Array = (flat > 0).mean(axis=0)
    return share


class Effects(NamedTuple):
    """Of each column: how much one more of it changes the mean of y, on the average of the rows."""

    names: tuple[str, ...]
    mean: Array
    sd: Array
    interval: Array
    said: str


def effects(posterior: Posterior, level: float = 0.9, rows: int = 500, draws: int = 200) -> Effects | None:
    """By differences, for models with one predictor; None for others."""
    target: Any = posterior._target
    form = None if target is None else rows_of(target.form())
    units, design = posterior.units, posterior.design
    if form is None or units is None or units.blocks > 1 or design is None:
        return None
    chosen = np.unique(np.linspace(0, form.rows.n - 1, min(rows, form.rows.n)).round().astype(int))
    part = target.share(chosen, target.prior_precision).form()
    x = thinned(posterior.trace.draws, draws)
    inner = units.inward(x)
    weights = np.ones(len(chosen)) if part.weights is None else part.weights
    weights = weights / weights.sum()
    t = next(iter(Predictions(part, inner, 0).predictors()))[1]
    first = int(units.intercept)
    names, found = [], []
    small = 1e-4
    for j, name in enumerate(design.names):
        step = small * float(units.scale[j])
        moved = t.copy()
        change = x[:, first + j, None] * step
        if moved.ndim == 3:
            moved[..., 0] += change
        else:
            moved = moved + change
        found.append(((form.loss.mean(moved) - form.loss.mean(t)) / step) @ weights)
        names.append(name)
    each = np.array(found)
    ends = np.quantile(each, [(1 - level) / 2, (1 + level) / 2], axis=1).T
    said = f"by how much the mean changes for one more of a column, on the average of {len(chosen):,} rows"
    return Effects(tuple(names), each.mean(axis=1), each.std(axis=1, ddof=1), ends, said)
