"""How the posterior would move if prior or likelihood said a little more or a little less: power scaling.

Under a prior p(x)^α in the place of p(x), or a likelihood p(y | x)^α, the draws xₛ at hand have the weights

    wₛ ∝ p(xₛ)^{α − 1},   or   wₛ ∝ p(y | xₛ)^{α − 1},

whose tail is smoothed (`svrhmc.results.psis`). With F the distribution function of a coordinate's draws and F_α that of
the weighted ones, its distance is the square root of the cumulative Jensen–Shannon divergence

    D² = [∫ F log₂ 2F/(F + F_α) + F_α log₂ 2F_α/(F + F_α)] / ∫ (F + F_α),

with integrals over the range of the draws; and that of the draws with the other sign, where it is larger. Its
sensitivity is how far it moves when the power is doubled,

    (D(1/(1 + δ)) + D(1 + δ)) / 2 log₂(1 + δ),       δ = 0.01,

which is no distance to a posterior with twice the power, but a derivative. Above 0.05 it is worth a thought: where the
prior moves the posterior and the likelihood does too, they contradict each other; where the likelihood does not, the
prior decides. All priors are scaled together: where one of them contradicts the data and holds its own coefficient
fast, it is others that move, so that the clash itself is found otherwise (`svrhmc.results.prior`) and named first.
(Kallioinen, Paananen, Bürkner & Vehtari, Detecting and diagnosing prior and likelihood sensitivity with power-scaling,
Statistics and Computing 34, 2024.)

The prior is that of coefficients, of what rows share and of the standard deviations of groups; the law of effects given
their standard deviations stays as it is. A coordinate whose prior is flat adds nothing. Of a model of one's own
the prior is the function that was given, and all else of its log density the likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole_number
from svrhmc.core.summaries import Summary
from svrhmc.results.arviz import log_priors
from svrhmc.results.base import PosteriorData, effect_interval, thin_draws
from svrhmc.results.loo import require_rows_in_memory
from svrhmc.results.predict import pointwise_log_likelihoods
from svrhmc.results.psis import smoothed_log_weights
from svrhmc.rows.forms import RowsForm

_STEP = 0.01  # δ
_MATTERS = 0.05
_LISTED = 8


def sensitivity_of(posterior: PosteriorData, draws: int) -> Summary:
    """The sensitivity of each reported coordinate to prior and likelihood, from at most `draws` draws."""
    most = whole_number("draws", draws, 100)
    require_rows_in_memory(posterior)
    form: RowsForm | None = posterior.form
    if form is None and (own := _of_functions(posterior, most)) is not None:
        return _summary(*own)
    if form is None or posterior.shrinkage is not None or form.terms is not None:
        kind = (
            "a model of another library"
            if form is None
            else "a prior that couples coefficients by parameters of its own"
        )
        raise requirement("the posterior", "of a regression whose coordinates have priors of their own", kind)
    x = thin_draws(posterior.trace.draws[:, :: effect_interval(posterior.group_effects)], most)
    log_prior = log_priors(posterior, form, posterior.inner(most), x).sum(axis=1)
    count, blocks = pointwise_log_likelihoods(posterior, most)
    log_likelihood = np.zeros(count)
    for _, block in blocks:
        log_likelihood += block.sum(axis=1)
    return _summary(posterior.labels, x, log_prior, log_likelihood, posterior.clashes)


def _summary(
    names: tuple[str, ...], x: Array, log_prior: Array, log_likelihood: Array, clashes: Sequence[str] = ()
) -> Summary:
    """Of quantities at draws (draw, quantity) with these log densities. clashes: of priors, in sentences."""
    prior, likelihood = (_sensitivities(x, log_density) for log_density in (log_prior, log_likelihood))
    return Summary(
        names,
        {"prior": prior, "likelihood": likelihood},
        f"Sensitivity to prior and likelihood by power scaling, from {len(x):,} draws.",
        tuple(_notes(names, prior, likelihood, clashes)),
    )


def _of_functions(posterior: PosteriorData, most: int) -> tuple[tuple[str, ...], Array, Array, Array] | None:
    """Names and draws of the parameters of a model of one's own, with log p(params) and log p(data | params), which is
    −f − log p(params); None where its prior is no function by itself.
    """
    target, x = posterior._target, thin_draws(posterior.trace.draws, most)
    log_prior = None if target is None else target.log_prior_at(x)
    if target is None or log_prior is None:
        return None
    stated = posterior.parameters
    shown = (posterior.labels, x) if stated is None else (stated.names, thin_draws(stated.draws, most))
    return (*shown, log_prior, -target.potentials(x) - log_prior)


def _notes(names: tuple[str, ...], prior: Array, likelihood: Array, clashes: Sequence[str]) -> list[str]:
    moved, told = prior > _MATTERS, likelihood > _MATTERS
    sentences = []
    if priors := [clash for clash in clashes if clash.startswith("the prior of ")]:
        sentences += [f"Clash: {clash}" for clash in priors]
        if moved.any():
            sentences.append(
                "All priors are scaled together, so that by this one others move too, and its own coefficient perhaps "
                f"little; those that move are {_listed(names, moved)}."
            )
        return sentences
    if (both := moved & told).any():
        sentences.append(
            f"Prior and likelihood may contradict each other in {_listed(names, both)}: look at what the prior "
            "says of it, and in which units."
        )
    if (weak := moved & ~told).any():
        sentences.append(
            f"The prior counts, and the data say little, in {_listed(names, weak)}: say there what is known, or report "
            "the result under another prior too."
        )
    return sentences or [f"No coordinate moves much with its prior (all below {_MATTERS:g})."]


def _listed(names: tuple[str, ...], places: npt.NDArray[np.bool_]) -> str:
    some = [name for name, there in zip(names, places, strict=True) if there]
    return ", ".join(some[:_LISTED]) + (f" and {len(some) - _LISTED} more" if len(some) > _LISTED else "")


def _sensitivities(x: Array, log_density: Array) -> Array:
    """Of every column of draws (draws, dim), to the power of a density whose logarithm each draw has."""
    total = np.zeros(x.shape[1])
    for power in (1 / (1 + _STEP), 1 + _STEP):
        log_weights = smoothed_log_weights((power - 1) * log_density).log_weights
        weights = np.exp(log_weights - log_weights.max())
        total += np.array([max(distance(sign * column, weights) for sign in (1.0, -1.0)) for column in x.T])
    return np.asarray(total / (2 * np.log2(1 + _STEP)))


def distance(draws: Array, weights: Array) -> float:
    """D between draws and the same draws with weights: 0 for equal weights, 1 at most.

    >>> draws = np.linspace(0.0, 1.0, 101)
    >>> distance(draws, np.ones(101)) < 0.01, distance(draws, np.exp(3 * draws)) > 0.1
    (True, True)
    """
    order = np.argsort(draws)
    widths, n = np.diff(draws[order]), len(draws)
    F = np.arange(1, n) / n
    F_weighted = np.cumsum(weights[order])[:-1] / weights.sum()
    bound = float(widths @ (F + F_weighted))
    if bound <= 0:
        return 0.0
    middle = np.log2((F + F_weighted) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(F_weighted > 0, F_weighted * (np.log2(F_weighted) - middle), 0.0)
    difference = float(widths @ (F_weighted - F)) / (2 * np.log(2))
    parts = float(widths @ (F * (np.log2(F) - middle))) + difference, float(widths @ own) - difference
    return float(np.sqrt(sum(max(0.0, part) for part in parts) / bound))
