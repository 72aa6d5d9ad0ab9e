"""What a prior did, and whether a model contradicts the scale of the data.

How much of the information on a coefficient comes from its prior: where likelihood and prior are about Gaussian,
precisions add. With s₀ the prior's standard deviation and s the posterior's, the prior's share of the precision is
(s/s₀)², and it has moved the mean by (s/s₀)²(m − m₀) towards its own. An intercept is looked at where its prior is, at
the centre of the columns.

Coefficients may each be known better than their priors say, while some combination of them is not: where a column is
the sum of others, the data say nothing of how an effect is shared among them. With P the prior's precisions and S the
posterior's covariance, C = P^½SP^½ has the shares on its diagonal, and its eigenvalues λₖ are the prior's shares for
the combinations of its eigenvectors vₖ. From N draws of d coordinates the largest comes out as up to (1 + √(d/N))²
times what it is (Marchenko & Pastur), so that much more is asked of it.

Prior and likelihood contradict each other, or do not: with m, s the posterior's mean and sd of a coordinate, N(m₀, s₀²)
its prior, and L the curvature of the likelihood along it, the others being given, precisions add, and the likelihood
alone would put it at m_L:

    1/s² = 1/s₀² + L,       m_L − m = (m − m₀)/(s₀²L),
    z = (m_L − m₀)/√(s₀² + 1/L) = (m − m₀)/s₀ · √(1 + 1/(s₀²L)).

Under the model z is a standard normal number. A prior clashes where |z| > 5, and where it matters: it moves the mean by
more than one posterior sd, |m_L − m| > s (or, as coordinates depend on each other, by the `Influence` of the prior).
What chance alone may do to m, four standard errors, is taken from |m − m₀| beforehand.

Noise: where σ is given, the residuals at the posterior mean have the mean square σ²(n − p)/n. A σ that is five times
too large or too small clashes: then all sds are wrong by that factor.

Scales of groups τ: where groups are few their prior p counts. Under one twice as wide, p(τ/2)/2, the posterior mean of
τ is that of the draws with the weights p(τ/2)/p(τ).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices, require_equal_lengths
from svrhmc.density.mixed import Term
from svrhmc.results.advice import Advice
from svrhmc.results.base import even_rows
from svrhmc.rows.forms import RowsForm

DOMINATES = 0.5  # of the precision: from here on more is known from the prior than from the data
_LOOKED = 1000  # most coordinates whose combinations are examined
_FAR, _MATTERS, _FACTOR = 5.0, 1.0, 5.0  # |z|, |shift|, and the factor of σ
_SPREAD_TOLD = 1e-4  # of the prior's precision: a spread of which rows say less is no clash, as they have no residuals
_TOLD = 1e-12  # the same for a coefficient: the rows looked at say nothing of it
_ERRORS = 4.0  # standard errors that are attributed to chance
_WIDER = 0.15  # posterior sds by which a prior twice as wide may move the mean of a scale of groups without a note
_ROWS, _FREE = 5000, 20  # rows that are looked at, and the least n − p


@dataclass(frozen=True, eq=False, repr=False)
class Influence:
    """Location and precision (0 where flat) of the prior of each standardised coordinate, its share of the posterior's
    precision, and the shift of the mean towards it, in posterior standard deviations.

    said: the prior in words. wider: which scales of groups would be others under a prior twice as wide, in sentences.
    """

    location: Array
    precision: Array
    share: Array
    shift: Array
    said: str
    wider: tuple[str, ...] = ()

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes."""
        require_equal_lengths(self)

    def __repr__(self) -> str:
        """The priors, a line for each, and what they did."""
        lines = [f"  {part[:1].upper()}{part[1:]}." for part in self.said.split("; ")]
        if len(self.share):
            share, shift = float(self.share.max()), float(np.abs(self.shift).max())
            lines.append(
                f"  At most {share:.2g} of the precision of a coefficient is that of its prior (share), which moves a "
                f"mean by at most {shift:.2g} posterior sds (shift)."
            )
        return "\n".join(["Prior:", *lines, *(f"  {sentence}" for sentence in self.wider)])

    @staticmethod
    def of(location: Array, precision: Array, draws: Array, said: str) -> Influence:
        """The influence of a prior, from draws (chain, draw, dim) in the variables that it is stated in."""
        flat = draws.reshape(-1, draws.shape[2])
        with np.errstate(over="ignore", invalid="ignore"):  # more than all of it is all of it
            mean, sd = flat.mean(axis=0), flat.std(axis=0, ddof=1)
            share = np.minimum(sd**2 * precision, 1.0)
            shift = share * (location - mean) / np.where(sd > 0, sd, 1.0)  # where sd is 0, so is the share
        return Influence(location, precision, np.nan_to_num(share, nan=1.0), np.nan_to_num(shift), said)

    def dominated(self) -> Indices:
        """The coordinates whose precision comes from the prior more than from the data."""
        return np.flatnonzero(self.share > DOMINATES)

    def entangled(self, draws: Array) -> Indices:
        """The coordinates that are in a combination of which more is known from the prior than from the data, while
        each by itself is not (`dominated`): those most of whose variance is along such combinations. From draws in the
        variables of the prior; none where there are too many coordinates to look at, or no more draws than coordinates.
        """
        flat = draws.reshape(-1, draws.shape[-1])
        count, dim = flat.shape
        if dim > _LOOKED or dim >= count:
            return np.empty(0, np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (flat - flat.mean(axis=0)) * np.sqrt(self.precision)
            square = scaled.T @ scaled / (count - 1)
        if not np.isfinite(square).all():  # so far beyond the prior that it says nothing
            return np.empty(0, np.int64)
        size, vector = np.linalg.eigh(square)
        along = np.where(size > DOMINATES * (1 + np.sqrt(dim / count)) ** 2, size, 0.0)
        variance = vector**2 @ np.maximum(size, 0.0)
        places = np.flatnonzero((vector**2 @ along > 0.5 * variance) & (self.share <= DOMINATES))
        return places if len(places) > 1 else places[:0]


def under_wider_priors(terms: Sequence[Term], stated: Array) -> tuple[str, ...]:
    """Which standard deviations of group effects have another mean under a prior twice as wide, in sentences.

    terms: of groups, with their covariances. stated: draws (…, coordinates) of standard deviations and correlations.
    """
    sentences, flat, place = [], stated.reshape(-1, stated.shape[-1]), 0
    for term in terms:
        own = flat[:, place : place + term.covariance.dim]
        place += term.covariance.dim
        tau, heavy = own[:, : term.width], term.covariance.heavy
        phi = np.log(term.covariance.centred_sds_and_correlations(own)[:, : term.width])
        log_ratio = heavy.values(phi) - heavy.values(phi - math.log(2.0))
        weights = np.exp(log_ratio - log_ratio.max(axis=0))
        mean, sd, wider = tau.mean(axis=0), tau.std(axis=0), (weights * tau).sum(axis=0) / weights.sum(axis=0)
        for name, before, after, spread in zip(term.group.parameter_names(), mean, wider, sd, strict=False):
            if abs(after - before) > _WIDER * spread:
                sentences.append(
                    f"The prior of {name} counts{term.group.few()}: under one twice as wide its mean "
                    f"would be about {after:.3g} instead of {before:.3g}."
                )
    return tuple(sentences)


def clashes(
    form: RowsForm, prior: Influence, mean: Array, chance: float, names: tuple[str, ...], given: bool, advice: Advice
) -> tuple[str, ...]:
    """What contradicts the scale of the data, in sentences.

    mean: the posterior's, in the variables of the form; chance: its largest standard error, in posterior sd. given:
    whether the prior was. One that follows the data's scale by itself is weak, and no matter of a warning.
    """
    some = form.choose(even_rows(form.rows.n, _ROWS, 0))
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is as far as can be
        noise = _noise(some, form.rows.n, mean)
        single = given and form.terms is None  # a term is the prior of several coordinates together
        clash = _prior(prior, some, form.rows.n, mean, chance, names) if single else ""
    sentences = f"{noise}, or {advice.noise}." if noise else "", f"{clash} {advice.prior}." if clash else ""
    return tuple(filter(None, sentences))


def _prior(prior: Influence, some: RowsForm, rows: int, mean: Array, chance: float, names: tuple[str, ...]) -> str:
    proper = prior.precision > 0
    precision = np.where(proper, prior.precision, 1.0)
    curvature = np.abs(some.rows.gram_diagonal(some.curvatures(some.predictors(mean[None])[0]))) * (rows / some.rows.n)
    shared = np.arange(len(precision)) >= len(precision) - some.loss.shared
    proper &= curvature > np.where(shared, _SPREAD_TOLD, _TOLD) * precision
    ratio = precision / np.maximum(curvature, 1e-300 * precision)
    sd = np.sqrt(prior.share / precision)
    away = np.maximum(np.abs(mean - prior.location) - _ERRORS * chance * sd, 0.0) * proper
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
    stated, columns = some.loss.known_noise, some.rows.columns
    if stated is None or n - columns < _FREE:
        return ""
    w = np.ones(some.rows.n) if some.weights is None else some.weights
    square = float(np.average((some.y - some.predictors(mean[None])[0]) ** 2, weights=w))
    variance = square * n / (n - columns)
    residual = math.sqrt(variance)
    if stated / _FACTOR <= residual <= stated * _FACTOR:
        return ""
    small, large = _short(residual / stated), _short(stated / max(residual, 1e-300))
    how = f"{small} times too small" if residual > stated else f"{large} times too large"
    return (
        f"the noise is said to have the sd {stated:.4g}, but residuals have {residual:.4g}, so that posterior sds are "
        f"about {how}. Take noise_variance={variance:.3g}"
    )


def prior_in_words(form: RowsForm) -> str:
    """The prior of a target, which has no other words for it."""
    precision, mean = np.unique(form.prior_precision), np.unique(form.prior_mean)
    if form.heavy is None and len(precision) == len(mean) == 1 and precision[0] > 0:
        return f"every coefficient ~ N({mean[0]:g}, {precision[0] ** -0.5:.4g}²)"
    return "as the target states it, coefficient by coefficient"


def _short(number: float) -> str:
    return f"{number:,.0f}" if 10 <= number < 1e6 else f"{number:.2g}"
