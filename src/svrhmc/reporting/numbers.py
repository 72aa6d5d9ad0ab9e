"""The numbers of a report: one row for each coefficient."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from svrhmc.core.cells import csv_text
from svrhmc.posterior.result import Posterior
from svrhmc.posterior.statements import moved


class Coefficient(NamedTuple):
    """A coefficient in the units of the data: its posterior, the point fit (mode) with Laplace's sd, effective draws,
    R-hat, the probability that it is above 0, and the prior's share of what is known of it (0 where none is stated).
    """

    name: str
    mean: float
    sd: float
    lower: float
    upper: float
    mode: float
    laplace_sd: float
    ess: float
    r_hat: float
    positive: float
    prior_share: float

    @property
    def distance(self) -> float:
        """From 0, in sd; infinite where all draws are the same."""
        return abs(self.mean) / self.sd if self.sd > 0 else math.inf


def coefficients(posterior: Posterior, level: float = 0.9) -> tuple[Coefficient, ...]:
    """One for each coordinate; `level` is the probability within lower and upper."""
    ends, names = posterior.interval(level), posterior.labels
    draws = np.asarray(posterior.trace.draws).reshape(-1, len(posterior.mean))
    above = (moved(draws, posterior.mean, posterior.sd) > 0).mean(axis=0)
    share = None if posterior.prior is None else posterior.prior.share
    return tuple(
        Coefficient(
            name,
            float(posterior.mean[j]),
            float(posterior.sd[j]),
            float(ends[j, 0]),
            float(ends[j, 1]),
            float(posterior.laplace.mean[j]),
            float(posterior.laplace.sd[j]),
            float(posterior.ess[j]),
            float(posterior.r_hat[j]),
            float(above[j]),
            0.0 if share is None else float(share[j]),
        )
        for j, name in enumerate(names)
    )


def coefficients_csv(rows: tuple[Coefficient, ...]) -> str:
    """A line for each, under the names of the fields; a text that a spreadsheet would run is kept a text.

    >>> coefficients_csv(()).strip()
    'name,mean,sd,lower,upper,mode,laplace_sd,ess,r_hat,positive,prior_share'
    """
    return csv_text(Coefficient._fields, rows, 10)
