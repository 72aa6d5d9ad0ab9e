"""Leave-one-out cross-validation of many rows, from a sample of them.

With πᵢ = log p(yᵢ | y₋ᵢ) of m rows S out of n, drawn without replacement, and of all rows what one look at them gives,
their log density at the posterior mean x̂,

    π̃ᵢ = log p(yᵢ | x̂),        elpd = Σᵢ π̃ᵢ + (n/m) Σ_S (πᵢ − π̃ᵢ)

has no bias, however far π̃ is from π (a control variate), and as an estimate of the elpd of all n rows the error

    n √((1 − m/n)/m) · sd_S(πᵢ − π̃ᵢ),

which is small, as πᵢ and π̃ᵢ differ by about p/n, p being the number of parameters. The standard error of elpd, as
other rows would have made it, is √(n v) with v the variance of πᵢ over all rows, c = elpd/n their mean,

    v = (1/n) [Σᵢ (π̃ᵢ − c)² + (n/m) Σ_S ((πᵢ − c)² − (π̃ᵢ − c)²)].

The same holds of the differences of two models, πᵢ and π̃ᵢ being those of each, by the same rows S.

(Magnusson, Riis Andersen, Jonasson & Vehtari, Leave-one-out cross-validation for Bayesian model comparison in large
data, AISTATS 2020.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import missing_package, requirement, whole_number
from svrhmc.core.summaries import Summary
from svrhmc.results.base import PosteriorData, Tabular, draw_count
from svrhmc.results.loo import Observations, relative_efficiency, require_rows_in_memory
from svrhmc.results.predict import log_likelihoods
from svrhmc.results.psis import good_shape, leave_out_blocks
from svrhmc.rows.forms import RowsForm

if TYPE_CHECKING:
    import pandas

_BLOCK = 1 << 16  # rows that are looked at together under one draw


class Total(NamedTuple):
    """A sum over all rows, its standard error as other rows would have made it, and that by the choice of some."""

    value: float
    se: float
    subsampling_se: float


def total_of(values: Array, rough: Array, places: Indices) -> Total:
    """Σᵢ πᵢ with its errors, from π of some rows (`places`) and π̃ of all."""
    n, m = len(rough), len(places)
    some = rough[places]
    value = float(rough.sum() + n * (values - some).mean())
    c = value / n
    v = float(((rough - c) ** 2).mean() + ((values - c) ** 2 - (some - c) ** 2).mean())
    spread = float((values - some).std(ddof=1)) if m > 1 else 0.0
    return Total(value, math.sqrt(n * max(v, 0.0)), n * math.sqrt((1 - m / n) / m) * spread)


@dataclass(frozen=True, eq=False, repr=False)
class SubsampledLoo(Tabular):
    """Leave-one-out cross-validation of n rows from some of them; print it, or take `to_frame()` for these.

    elpd, se: of all rows, and its standard error as other rows would have made it. subsampling_se: how far the choice
    of rows may put elpd off. p_loo: about the number of parameters that the data decide, with its error p_se by the
    choice of rows. rows: the numbers of those that were looked at; pointwise, k: of these. draws: of the posterior.
    rough: of all rows, the log density at the posterior mean. observations: what was predicted.
    """

    by: ClassVar[str] = ""
    names: ClassVar[tuple[str, ...]] = ()

    elpd: float
    se: float
    subsampling_se: float
    p_loo: float
    p_se: float
    n: int
    rows: Indices
    pointwise: Array
    k: Array
    draws: int
    rough: Array
    observations: Observations

    @property
    def places(self) -> Indices:
        """The numbers of the rows that were looked at."""
        return self.rows

    @property
    def bad(self) -> Indices:
        """Which of these have a k above `good_k`."""
        return np.flatnonzero(~(self.k <= self.good_k))

    @property
    def good_k(self) -> float:
        """The largest k that is reliable for so many draws."""
        return good_shape(self.draws)

    def summary(self) -> Summary:
        """elpd, p_loo and −2 elpd, with their errors."""
        estimates, by_choice = np.array([self.elpd, self.p_loo, -2 * self.elpd]), self.subsampling_se
        columns = {
            "estimate": estimates,
            "se": np.array([self.se, np.nan, 2 * self.se]),
            "subsampling se": np.array([by_choice, self.p_se, 2 * by_choice]),
        }
        bad = len(self.bad)
        note = (
            f"Every Pareto k of these rows is at most {self.good_k:.2g}."
            if not bad
            else f"Pareto k is above {self.good_k:.2g} for {bad:,} of these {len(self.k):,} rows: their terms are not "
            "reliable, and elpd is usually too high."
        )
        some = f"{len(self.rows):,} of them and {self.draws:,} draws"
        title = f"Leave-one-out cross-validation of {self.n:,} rows, from {some}."
        said = "se: as other rows would have made it; subsampling se: how far the choice of these rows may put it off."
        return Summary(("elpd_loo", "p_loo", "looic"), columns, title, (said, note), tenths=True)

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame, a line for each row that was looked at: elpd and pareto_k."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise missing_package("pandas", "formula", "a data frame") from None
        return pandas.DataFrame({"elpd": self.pointwise, "pareto_k": self.k}, index=pandas.Index(self.rows, name="row"))


def loo_subsample_of(posterior: PosteriorData, rows: int, draws: int | None, seed: int) -> SubsampledLoo:
    """Cross-validation from `rows` of the rows, drawn by the seed."""
    most = draw_count(posterior, draws, 20)
    size, seed = whole_number("rows", rows, 10), whole_number("seed", seed, 0)
    require_rows_in_memory(posterior)
    if posterior.form is None:
        why = "loo() takes all rows of a model of one's own"
        raise requirement("the posterior", "of a target whose rows have linear predictors", "one of another kind", why)
    form, x = posterior.fitted(), posterior.inner(most)
    n = form.rows.n
    places = np.sort(np.random.default_rng(seed).choice(n, min(size, n), replace=False))
    at_mean = _at_one(form, x.mean(axis=0))
    blocks = log_likelihoods(form.choose(places), x)
    left = leave_out_blocks((rows for _, rows in blocks), relative_efficiency(posterior, len(x)))
    m, p = len(places), left.lpd - left.elpd
    elpd = total_of(left.elpd, at_mean, places)
    p_se = n * math.sqrt((1 - m / n) / m) * float(p.std(ddof=1))
    return SubsampledLoo(
        *elpd, n * float(p.mean()), p_se, n, places, left.elpd, left.k, len(x), at_mean, Observations.of(posterior)
    )


def _at_one(form: RowsForm, x: Array) -> Array:
    """log p(yᵢ | x) of all rows at a single x."""
    out = np.empty(form.rows.n)
    for begin in range(0, form.rows.n, _BLOCK):
        some = np.arange(begin, min(begin + _BLOCK, form.rows.n))
        out[some] = np.concatenate([block[0] for _, block in log_likelihoods(form.choose(some), x[None])])
    return out
