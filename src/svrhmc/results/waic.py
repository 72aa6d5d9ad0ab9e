"""The widely applicable information criterion: what leave-one-out cross-validation tends to with many rows.

    elpd_waic = Σᵢ (log mean over draws of p(yᵢ | x) − pᵢ),        pᵢ = variance over draws of log p(yᵢ | x)

(Watanabe, Journal of Machine Learning Research 11, 2010; Gelman, Hwang & Vehtari, Statistics and Computing 24, 2014).
It rests on an expansion that fails where one row decides much, with nothing but pᵢ > 0.4 to show it; `loo` is right
more often and says when it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import missing_package
from svrhmc.core.summaries import Summary
from svrhmc.results.base import PosteriorData, draw_count
from svrhmc.results.loo import PointwiseDensity, require_rows_in_memory
from svrhmc.results.predict import pointwise_log_likelihoods

_LARGE = 0.4  # pᵢ, from which on the expansion fails


@dataclass(frozen=True, eq=False, repr=False)
class Waic(PointwiseDensity):
    """The criterion; print it, or take `to_frame()` for the rows. pointwise: its terms. p: pᵢ. draws: how many."""

    pointwise: Array
    p: Array
    draws: int

    @property
    def p_waic(self) -> float:
        """The effective number of parameters."""
        return float(self.p.sum())

    @property
    def bad(self) -> Indices:
        """The numbers of the rows with pᵢ > 0.4."""
        return np.flatnonzero(~(self.p <= _LARGE))

    def summary(self) -> Summary:
        """elpd, p_waic and −2 elpd with standard errors, and what to think of them."""
        n = len(self.pointwise)
        estimates = np.array([self.elpd, self.p_waic, -2 * self.elpd])
        errors = np.array([self.se, math.sqrt(n * float(self.p.var())), 2 * self.se])
        notes = ["posterior.loo() is to be preferred: it is right more often, and says where it is not."]
        if len(self.bad):
            notes.insert(
                0, f"p is above {_LARGE:g} for {len(self.bad):,} of {n:,} rows: the criterion is not reliable."
            )
        title = f"Widely applicable information criterion, {n:,} rows, from {self.draws:,} draws."
        columns = {"estimate": estimates, "se": errors}
        return Summary(("elpd_waic", "p_waic", "waic"), columns, title, tuple(notes), tenths=True)

    def to_frame(self) -> Any:
        """As a pandas data frame, a line for each row: elpd and p_waic."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise missing_package("pandas", "formula", "a data frame") from None
        index = pandas.RangeIndex(len(self.p), name="row")
        return pandas.DataFrame({"elpd": self.pointwise, "p_waic": self.p}, index=index)


def waic_of(posterior: PosteriorData, draws: int | None) -> Waic:
    """The criterion of a posterior, from at most `draws` draws."""
    most = draw_count(posterior, draws, 20)
    require_rows_in_memory(posterior)
    count, blocks = pointwise_log_likelihoods(posterior, most)
    terms, penalties = [], []
    for _, log_likelihood in blocks:
        largest = log_likelihood.max(axis=0)
        p = log_likelihood.var(axis=0, ddof=1)
        terms.append(np.log(np.exp(log_likelihood - largest).mean(axis=0)) + largest - p)
        penalties.append(p)
    return Waic(np.concatenate(terms), np.concatenate(penalties), count)
