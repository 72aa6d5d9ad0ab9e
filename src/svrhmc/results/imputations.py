"""The posteriors of several imputed tables pooled as a mixture, and the information that missing values cost.

A table with missing values, imputed m times, is m tables. The posterior given the observed values is

    p(x | observed) = ∫ p(x | observed, missing) p(missing | observed) d missing ≈ (1/m) Σₖ pₖ(x),

pₖ the posterior under one prior given the k-th table: so the draws of all together, as many from each, are draws of it.
With mₖ, sₖ² the mean and variance of pₖ, m̄ = (1/m) Σ mₖ, W = (1/m) Σ sₖ² (within) and B = Σ(mₖ − m̄)²/(m − 1)
(between tables), the mixture of m has

    mean m̄,        variance W + (m − 1)B/m.

With m tables rather than infinitely many, m̄ is off by √(B/m) (one standard error). The fraction of missing information
is λ = (1 + 1/m)B/T with T = W + (1 + 1/m)B (Rubin, Multiple Imputation for Nonresponse in Surveys, 1987, 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices, ratio
from svrhmc.core.errors import requirement
from svrhmc.core.summaries import Summary
from svrhmc.results.base import PosteriorData, effect_interval
from svrhmc.results.prior import Influence
from svrhmc.sampling.correction import Corrected, Location
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.trace import Trace

_FEW = 0.1  # posterior sds by which the choice of imputations may move a mean without a note
_WEAKEST_FIRST = ("refuted", "undecided", "unjudged", "local", "certified", "exact")


@dataclass(frozen=True, eq=False)
class Imputations:
    """How many tables were pooled, and √W and √B of each coordinate."""

    count: int
    within: Array
    between: Array

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes; used when a file is read."""
        if self.within.shape != self.between.shape or self.count < 2:
            raise requirement("imputations", "of two tables or more, with a number for each coordinate", self.count)

    @property
    def missing_information(self) -> Array:
        """λ of each coordinate."""
        between = (1 + 1 / self.count) * self.between**2
        share: Array = ratio(between, self.within**2 + between)
        return share

    @property
    def error(self) -> Array:
        """√(B/m): the standard error of each mean from the choice of the imputations alone."""
        error: Array = self.between / np.sqrt(self.count)
        return error


def imputations_of(posterior: PosteriorData) -> Summary:
    """A table with mean and sd of each coordinate, √W, √B, λ, and the error that more imputations would remove."""
    pooled = posterior.imputed
    if pooled is None:
        raise requirement("the posterior", "one that `fit` gave for a list of imputed tables", repr(posterior.family))
    columns = {
        "mean": posterior.mean, "sd": posterior.sd, "within": pooled.within, "between": pooled.between,
        "missing information": pooled.missing_information, "error of few tables": pooled.error,
    }  # fmt: skip
    title = f"Standard deviations within and between {pooled.count} imputed tables, by coefficient."
    return Summary(posterior.labels, columns, title, imputation_notes(posterior))


def imputation_notes(posterior: PosteriorData) -> tuple[str, ...]:
    """How many imputed tables were pooled, where most information is missing, and whether they are enough; () where the
    posterior is of a single table.
    """
    pooled: Imputations | None = posterior.imputed
    if pooled is None:
        return ()
    share = pooled.missing_information
    most = int(np.argmax(share))
    sentence = (
        f"Imputations: {pooled.count} tables, pooled as a mixture of their posteriors; what is missing takes up to "
        f"{share[most]:.0%} of the information on a coefficient ({posterior.labels[most]}; posterior.imputations())."
    )
    error = ratio(pooled.error, posterior.sd)
    worst = int(np.argmax(error))
    if error[worst] <= _FEW:
        return (sentence,)
    wanted = int(np.ceil(pooled.count * (error[worst] / _FEW) ** 2))
    few = (
        f"Imputations: {pooled.count} are few: their choice alone puts the mean of {posterior.labels[worst]} off by "
        f"about {error[worst]:.2g} posterior sds; with {wanted:,} tables it would be {_FEW:g}."
    )
    return sentence, few


def pooled(posteriors: Sequence[Any]) -> Any:
    """The mixture of posteriors with the same coordinates, units and prior, one from each imputed table.

    Its verdict is that of the table with the weakest one: each mean and sd of the mixture is right where those of all
    its parts are.
    """
    first, count = posteriors[0], len(posteriors)
    means, sds = (np.stack([getattr(posterior, name) for posterior in posteriors]) for name in ("mean", "sd"))
    mean_errors, sd_errors = (np.stack(errors) for errors in zip(*(one.errors for one in posteriors), strict=True))
    mean, away = means.mean(axis=0), means - means.mean(axis=0)
    sd = np.sqrt((sds**2 + away**2).mean(axis=0))
    # of sd² = (1/m) Σ(sₖ² + (mₖ − m̄)²) the derivatives by sₖ and mₖ are 2sₖ/m and 2(mₖ − m̄)/m
    squares = ((sds * sd_errors) ** 2 + (away * mean_errors) ** 2).sum(axis=0)
    corrected = Corrected(mean, sd, _root_sum(mean_errors) / count, ratio(np.sqrt(squares), count * sd))
    counts = [one.trace.draws[:, :: effect_interval(one.group_effects)].shape[1] for one in posteriors]
    places = [np.linspace(0, length - 1, min(counts)).round().astype(np.int64) for length in counts]
    pairs = zip(posteriors, places, strict=True)
    draws = np.concatenate([one.trace.draws[:, :: effect_interval(one.group_effects)][:, some] for one, some in pairs])
    flat = draws.reshape(-1, draws.shape[2])
    laplace = np.stack([one.laplace.mean for one in posteriors])
    laplace_variance = np.stack([one.laplace.sd for one in posteriors]) ** 2 + (laplace - laplace.mean(axis=0)) ** 2
    worst = min(posteriors, key=lambda one: _WEAKEST_FIRST.index(one.certificate.verdict))
    return replace(
        first,
        mean=mean,
        sd=sd,
        raw=Location(flat.mean(axis=0), flat.std(axis=0, ddof=1)),
        corrected=corrected,
        laplace=Location(laplace.mean(axis=0), np.sqrt(laplace_variance.mean(axis=0))),
        trace=_trace(posteriors, draws),
        certificate=worst.certificate,
        ess=np.sum([one.ess for one in posteriors], axis=0),
        r_hat=np.max([one.r_hat for one in posteriors], axis=0),
        passes=sum(one.passes for one in posteriors),
        seconds=sum(one.seconds for one in posteriors),
        compile_seconds=sum(one.compile_seconds for one in posteriors),
        complete=all(one.complete for one in posteriors),
        steps={name: sum(one.steps.get(name, 0.0) for one in posteriors) for name in first.steps},
        modes=None,
        gaussian=False,
        covariance=None,
        prior=_influence(posteriors, draws),
        clashes=_distinct_sentences(one.clashes for one in posteriors),
        misfits=_distinct_sentences(one.misfits for one in posteriors),
        group_effects=_group_effects([one.group_effects for one in posteriors], places),
        shrinkage=_shrinkage([one.shrinkage for one in posteriors], places),
        imputed=Imputations(count, np.sqrt((sds**2).mean(axis=0)), means.std(axis=0, ddof=1)),
        _target=None,
    )


def _root_sum(errors: Array) -> Array:
    """The standard error of a sum of independent terms with these errors."""
    total: Array = np.sqrt((errors**2).sum(axis=0))
    return total


def _trace(posteriors: Sequence[PosteriorData], draws: Array) -> Trace:
    """A trace of the chains of all posteriors, whose draws are already of equal length."""
    traces = [posterior.trace for posterior in posteriors]
    shortest = min(traces, key=lambda trace: len(trace.passes))
    known = [trace.acceptance for trace in traces if trace.acceptance is not None]
    return replace(
        shortest,
        draws=draws,
        passes=np.linspace(0.0, shortest.passes[-1], draws.shape[1]),
        gradient_evaluations=max(trace.gradient_evaluations for trace in traces),
        velocity=np.concatenate([trace.velocity for trace in traces]),
        seconds=sum(trace.seconds for trace in traces),
        chains=np.arange(len(draws)),
        acceptance=np.concatenate(known) if len(known) == len(traces) else None,
    )


def _influence(posteriors: Sequence[PosteriorData], draws: Array) -> Influence:
    """What the prior, which all tables share, did to the mixture."""
    prior, units = posteriors[0].prior, posteriors[0].units
    own = draws[..., : len(prior.location)]
    own = own if units is None else units.inward(own)
    influence = Influence.of(prior.location, prior.precision, own, prior.said)
    return replace(influence, wider=_distinct_sentences(one.prior.wider for one in posteriors))


def _distinct_sentences(sentences: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """All sentences, each of them once."""
    return tuple(dict.fromkeys(chain.from_iterable(sentences)))


def _group_effects(effects: Sequence[GroupEffects | None], places: Sequence[Indices]) -> GroupEffects | None:
    parts = [part for part in effects if part is not None]
    if not parts:
        return None
    information = [part.information for part in parts if part.information is not None]
    return replace(
        parts[0],
        rows=np.mean([part.rows for part in parts], axis=0).round().astype(np.int64),
        draws=np.concatenate([part.draws[:, some] for part, some in zip(parts, places, strict=True)]),
        every=1,
        information=np.mean(information, axis=0) if information else None,
    )


def _shrinkage(shrinkages: Sequence[Shrinkage | None], places: Sequence[Indices]) -> Shrinkage | None:
    parts = [part for part in shrinkages if part is not None]
    if not parts:
        return None
    scales = np.concatenate([part.scales[:, some] for part, some in zip(parts, places, strict=True)])
    return replace(parts[0], factors=np.mean([part.factors for part in parts], axis=0), scales=scales)
