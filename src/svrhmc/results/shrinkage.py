"""What a shrinking prior did to each coefficient.

With vⱼ the prior's variance of βⱼ given its scales and σ̃ the noise, κⱼ = 1/(1 + nvⱼ/σ̃²) is how far the coefficient of a
standardised column is drawn from the estimate of least squares to 0, where columns are uncorrelated, and
m_eff = Σⱼ(1 − κⱼ) the effective number of coefficients that are not 0 (Piironen & Vehtari 2017).
"""

from __future__ import annotations

import numpy as np

from svrhmc.core.errors import requirement
from svrhmc.core.summaries import Summary, end_names, level_ends
from svrhmc.results.base import Fitted

_LEFT = 0.5  # of κ, below which a coefficient is more left alone than shrunk


def inclusion_of(posterior: Fitted, level: float) -> Summary:
    """The table, from the least shrunk coefficient on."""
    kept = posterior.shrinkage
    if kept is None:
        raise requirement(
            "the posterior", "one under prior=Horseshoe(…), to say what it shrank", repr(posterior.family)
        )
    order = np.argsort(kept.factors, kind="stable")
    places, (low, high), ends = kept.columns[order], end_names(level), posterior.interval(level)
    columns = {
        "mean": posterior.mean[places], "sd": posterior.sd[places], low: ends[places, 0], high: ends[places, 1],
        "kappa": kept.factors[order], "1 - kappa": 1 - kept.factors[order],
    }  # fmt: skip
    names = tuple(posterior.labels[j] for j in places)
    return Summary(names, columns, "Coefficients from the least shrunk on.", shrinkage_notes(posterior, level))


def shrinkage_notes(posterior: Fitted, level: float = 0.9) -> tuple[str, ...]:
    """How many coefficients are not 0, in effect, and how many are shrunk by less than half."""
    kept = posterior.shrinkage
    if kept is None:
        return ()
    count = len(kept.factors)
    low, high = np.quantile(kept.effective, level_ends(level))
    if "slab" not in kept.names:
        scale = kept.scales[..., kept.names.index("scale")]
        ends = np.quantile(scale, level_ends(level))
        return (
            "Shrinkage: the standard deviation of the prior of standardised coefficients was learnt: "
            f"{scale.mean():.3g} ({level:.0%} interval {ends[0]:.3g} to {ends[1]:.3g}), with which {count:,} of them "
            f"count as {kept.effective.mean():.3g} in effect (posterior.inclusion()).",
        )
    left = int((kept.factors < _LEFT).sum())
    return (
        f"Shrinkage: of {count:,} coefficients {kept.effective.mean():.3g} are not 0, in effect ({level:.0%} interval "
        f"{low:.3g} to {high:.3g}); {left:,} {'is' if left == 1 else 'are'} shrunk by less than half "
        "(posterior.inclusion()).",
    )
