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
from svrhmc.core.summaries import Summary, interval_end_names
from svrhmc.results.base import PosteriorData


def inclusion_of(posterior: PosteriorData, level: float) -> Summary:
    """The table, from the least shrunk coefficient on."""
    shrinkage = posterior.shrinkage
    if shrinkage is None:
        allowed = "one under prior=Horseshoe(…), R2D2(…), SpikeAndSlab(…) or LearntScale(), to say what it shrank"
        raise requirement("the posterior", allowed, repr(posterior.family))
    order = np.argsort(shrinkage.factors, kind="stable")
    places, (low, high), ends = shrinkage.columns[order], interval_end_names(level), posterior.interval(level)
    columns: dict[str, Array] = {
        "mean": posterior.mean[places], "sd": posterior.sd[places], low: ends[places, 0], high: ends[places, 1],
    }  # fmt: skip
    names, factors = tuple(posterior.labels[j] for j in places), shrinkage.factors[order]
    if shrinkage.point_mass:
        columns |= {"included": 1 - factors}
        title = "Coefficients from the most probable on; included: the probability that it is not 0."
    else:
        columns |= {"kappa": factors, "1 - kappa": 1 - factors}
        title = "Coefficients from the least shrunk on."
    return Summary(names, columns, title, shrinkage.notes(level))
