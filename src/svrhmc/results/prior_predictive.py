"""What a prior expects before any y is seen: draws x of the prior, new y of each under the likelihood, and some numbers
of such tables beside those of the table at hand.

Every coordinate has a prior of its own, p(xⱼ) ∝ exp(−½Λⱼ(xⱼ − pⱼ)² − ψⱼ(xⱼ)), in the standardised variables that it is
stated in. Where ψⱼ is 0 it is drawn as a normal number; else from its distribution function on a grid,

    xⱼ = location + scale · sinh s,      s from −12 to 12,

which reaches 80,000 scales to both sides. Effects of groups are Mε with Σ = MMᵀ, whose log standard deviations and
partial correlations are independent under their prior too (`svrhmc.priors.covariance`), and drawn in the same way.
A flat prior has no draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.summaries import Summary
from svrhmc.density.base import FiniteSum
from svrhmc.families.base import Loss
from svrhmc.priors.terms import Heavy
from svrhmc.results.base import even_rows
from svrhmc.results.predict import Predictions
from svrhmc.rows.forms import RowsForm, rows_of

_GRID = np.linspace(-12.0, 12.0, 2001)
_ROWS, _DRAWS = 200, 400
_MOST_CLASSES = 12
_ENDS = (0.05, 0.5, 0.95)


def prior_predictive(target: FiniteSum, seed: int, classes: tuple[str, ...], response: str) -> Summary | None:
    """Numbers of tables that the prior expects, and of the one at hand; None where the prior is flat."""
    form = rows_of(target.shown().form())
    assert form is not None  # as there are rows
    x = _draws(target, form, np.random.default_rng(seed))
    if x is None:
        return None
    some = form.choose(even_rows(form.rows.n, _ROWS, seed))
    trials = some.loss.trials_of(some.y, some.weights)
    with np.errstate(all="ignore"):
        blocks = Predictions(some, x, seed, trials).blocks()
        pairs = [(block.new, block.mean) for block in blocks]  # a y that is too large to be drawn is about its mean
        new = np.concatenate([np.where(np.isnan(y), mean, y) if y.shape == mean.shape else y for y, mean in pairs], 1)
        observed = np.asarray(some.loss.original_labels(some.y, trials), np.float64)
        names, of_table = _numbers(
            classes, response, some.loss, trials, None if some.loss.weights_are_trials else some.weights
        )
        expected = np.array([of_table(y) for y in new])
        bounded = some.loss.signed or observed.ndim > 1  # known by bounds alone: no y to look at
        at_hand = np.full(len(names), np.nan) if bounded else np.array(of_table(observed))
        ends = np.quantile(expected, _ENDS, axis=0)
    columns = {"5%": ends[0], "50%": ends[1], "95%": ends[2], "in the table": at_hand}
    odd = [name for name, outside in zip(names, (at_hand < ends[0]) | (at_hand > ends[2]), strict=True) if outside]
    note = (
        "The table is one of those that the prior expects."
        if not odd
        else f"Outside of what the prior expects in nine tables of ten: {', '.join(odd)}. See whether the prior, the "
        "family and the units of the response are as they are meant to be."
    )
    title = f"Prior predictive check: {_DRAWS:,} tables drawn from the prior, {len(observed):,} rows each."
    return Summary(tuple(names), columns, title, () if bounded else (note,))


def _numbers(
    classes: tuple[str, ...], response: str, loss: Loss, trials: Array | None, w: Array | None
) -> tuple[list[str], Callable[[Array], list[float]]]:
    """What is looked at in a table of y, by name; w: how many rows each stands for."""
    if loss.outcome == "classes":
        names = [f"share of {response} = {name}" for name in classes[:_MOST_CLASSES]]
        return names, lambda y: [float(np.average(y == k, weights=w)) for k in range(len(names))]
    if loss.outcome == "events" and trials is None:
        name = f"{response} = {classes[1]}" if len(classes) == 2 else response
        return [f"share of {name}"], lambda y: [float(np.average(y, weights=w))]
    names = [f"{word} of {response}" for word in ("mean", "sd", "least", "largest")]

    def of_table(y: Array) -> list[float]:
        mean = float(np.average(y, weights=w))
        return [mean, float(np.sqrt(np.average((y - mean) ** 2, weights=w))), float(np.min(y)), float(np.max(y))]

    return names, of_table


def _draws(target: FiniteSum, form: RowsForm, rng: np.random.Generator) -> Array | None:
    """Draws (draws, dim) of the prior of a form's coordinates, effects of groups among them; None where one is flat, or
    where the prior couples coefficients by parameters of its own.
    """
    by_groups, by_grid = np.zeros(len(form.prior_mean), bool), np.zeros(len(form.prior_mean), bool)
    for term in target.group_terms:
        by_groups[term.effects] = True
    if form.heavy is not None:
        by_grid[form.heavy.columns] = True
    normal = ~by_groups & ~by_grid
    if form.terms is not None or (form.prior_precision[normal] <= 0).any():
        return None
    x = np.zeros((_DRAWS, len(form.prior_mean)))
    x[:, normal] = form.prior_mean[normal] + rng.normal(size=(_DRAWS, normal.sum())) / np.sqrt(
        form.prior_precision[normal]
    )
    if form.heavy is not None:
        x[:, by_grid] = _of_heavy(form.heavy, len(form.prior_mean), rng)[:, by_grid]
    for term in target.group_terms:
        covariance = term.covariance
        scales = _of_heavy(covariance.heavy, covariance.width, rng)
        density = -2 * covariance.correlation_shapes * np.logaddexp(_GRID, -_GRID)[:, None]
        partial = _of_density(np.broadcast_to(_GRID[:, None], density.shape), density, rng)
        factor = covariance.factor(np.concatenate([scales, partial], axis=1))
        e = rng.normal(size=(_DRAWS, term.count, term.width))
        x[:, term.effects] = np.einsum("dab,dlb->dla", factor, e).reshape(_DRAWS, -1)
    return x


def _of_heavy(heavy: Heavy, dim: int, rng: np.random.Generator) -> Array:
    """Draws (draws, dim) with densities ∝ e^{−ψⱼ}; 0 where there is no ψⱼ."""
    grid = np.zeros((len(_GRID), dim))
    grid[:, heavy.columns] = heavy.location + np.sinh(_GRID)[:, None] * np.maximum(heavy.scale, 1e-300)
    density = np.where(np.isfinite(values := heavy.values(grid)), -values, -np.inf)
    out = np.zeros((_DRAWS, dim))
    out[:, heavy.columns] = _of_density(grid[:, heavy.columns], density[:, heavy.columns], rng)
    return out


def _of_density(grid: Array, log_density: Array, rng: np.random.Generator) -> Array:
    """Draws (draws, dim) by the distribution function of each column of a grid (points, dim)."""
    out = np.empty((_DRAWS, grid.shape[1]))
    for j in range(grid.shape[1]):
        height = np.exp(log_density[:, j] - log_density[:, j].max())
        below = np.concatenate([[0.0], np.cumsum((height[1:] + height[:-1]) / 2 * np.diff(grid[:, j]))])
        out[:, j] = np.interp(rng.uniform(size=_DRAWS) * below[-1], below, grid[:, j])
    return out
