"""What a shrinking prior did to each coefficient.

With vⱼ the prior's variance of βⱼ given its scales and σ̃ the noise, κⱼ = 1/(1 + nvⱼ/σ̃²) is how far the coefficient of a
standardised column is drawn from the estimate of least squares to 0, where columns are uncorrelated, and
m_eff = Σⱼ(1 − κⱼ) the effective number of coefficients that are not 0 (Piironen & Vehtari 2017). Of a spike and slab κⱼ
is 1 where βⱼ is 0, and 0 where it is not: the mean of 1 − κⱼ is the probability that it is not 0.
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.summaries import Summary, interval_end_names, interval_ends
from svrhmc.results.base import PosteriorData
from svrhmc.sampling.inclusion import Shrinkage

_LEFT = 0.5  # of κ, below which a coefficient is more left alone than shrunk


def inclusion_of(posterior: PosteriorData, level: float) -> Summary:
    """The table, from the least shrunk coefficient on."""
    kept = posterior.shrinkage
    if kept is None:
        allowed = "one under prior=Horseshoe(…), R2D2(…), SpikeAndSlab(…) or LearntScale(), to say what it shrank"
        raise requirement("the posterior", allowed, repr(posterior.family))
    order = np.argsort(kept.factors, kind="stable")
    places, (low, high), ends = kept.columns[order], interval_end_names(level), posterior.interval(level)
    columns: dict[str, Array] = {
        "mean": posterior.mean[places], "sd": posterior.sd[places], low: ends[places, 0], high: ends[places, 1],
    }  # fmt: skip
    names, factors = tuple(posterior.labels[j] for j in places), kept.factors[order]
    if kept.point_mass:
        columns |= {"included": 1 - factors}
        title = "Coefficients from the most probable on; included: the probability that it is not 0."
    else:
        columns |= {"kappa": factors, "1 - kappa": 1 - factors}
        title = "Coefficients from the least shrunk on."
    return Summary(names, columns, title, shrinkage_notes(posterior, level))


def shrinkage_notes(posterior: PosteriorData, level: float = 0.9) -> tuple[str, ...]:
    """How many coefficients are not 0, in effect, and how many are shrunk by less than half."""
    kept = posterior.shrinkage
    return () if kept is None else (f"Shrinkage: {_note(kept, level)} (posterior.inclusion()).",)


def _note(kept: Shrinkage, level: float) -> str:
    count, effective = len(kept.factors), kept.effective
    if kept.names[0] == "scale" and "slab" not in kept.names:
        return (
            f"the standard deviation of the prior of standardised coefficients was learnt: {_interval(kept, level)}, "
            f"with which {count:,} of them count as {effective.mean():.3g} in effect"
        )
    low, high = np.quantile(effective, interval_ends(level))
    left = int((kept.factors < _LEFT).sum())
    are = f"{left:,} {'is' if left == 1 else 'are'}"
    if kept.point_mass:
        return (
            f"of {count:,} coefficients {effective.mean():.3g} are not 0 ({level:.0%} interval {low:.3g} to "
            f"{high:.3g}); {are} so with a probability above one half"
        )
    r_squared = f", R² of the prior is {_interval(kept, level)}" if kept.names[0] == "r2" else ""
    return (
        f"of {count:,} coefficients {effective.mean():.3g} are not 0, in effect ({level:.0%} interval {low:.3g} to "
        f"{high:.3g}){r_squared}; {are} shrunk by less than half"
    )


def _interval(kept: Shrinkage, level: float) -> str:
    """Of the first of the scales."""
    values = kept.scales[..., 0]
    low, high = np.quantile(values, interval_ends(level))
    return f"{values.mean():.3g} ({level:.0%} interval {low:.3g} to {high:.3g})"
