"""How well a model predicts what it has not seen: leave-one-out cross-validation from one fit, by row or by group.

With y₋ᵢ all rows but row i, or all rows but those of group i,

    elpd = Σᵢ log p(yᵢ | y₋ᵢ),        se = √(n var log p(yᵢ | y₋ᵢ)),        p_loo = Σᵢ log p(yᵢ | y) − elpd,

estimated from the draws of the posterior given all rows (`svrhmc.results.psis`). p_loo is about the number of
parameters that are determined by the data. A row of weight w, or with m trials, is left out as a whole.

**A group left out** is predicted as one whose effects are unknown: its likelihood under a draw is that with its effects
integrated (`svrhmc.results.integrated`), not the likelihood given the effects that were drawn, which depend on its own
rows. All terms of the grouping factor are integrated; effects of other terms, and smooths, stay as they were drawn.
Under a model without effects of these groups the likelihood of a group is the product over its rows.

Rows and groups are processed in blocks: in memory are a block of rows times the draws, and three numbers for each row
or group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core import serialise
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.deadline import checking_budget
from svrhmc.core.errors import DataError, StorageError, missing_package, requirement
from svrhmc.core.progress import stage
from svrhmc.core.summaries import Summary
from svrhmc.density.base import FiniteSum
from svrhmc.results.arviz import log_densities, target_coordinates
from svrhmc.results.base import PosteriorData, Tabular, draw_count, effect_interval, thin_draws
from svrhmc.results.groups import require_factor, require_groups
from svrhmc.results.integrated import GroupedRows, Integral
from svrhmc.results.moment_matching import Density, match
from svrhmc.results.predict import covariance_factors, pointwise_log_likelihoods
from svrhmc.results.psis import good_shape, leave_out_blocks
from svrhmc.rows.forms import RowsForm
from svrhmc.sampling.effects import GroupEffects

if TYPE_CHECKING:
    import pandas

_BLOCK_NUMBERS = 1 << 21  # rows times draws in one block
_FILE, _VERSION = "cross-validation", 1  # of its files
_FREQUENCIES, _ROUNDING = (1, 2, 3, 5), 1e-12  # of fingerprints
_MANY_BAD = 0.05  # share of rows with too large a k, above which refitting in tenths is advised


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """A fingerprint of numbers vᵢ in their order: Σᵢ vᵢ cos ki for some k, and the size Σ|vᵢ|. It differs for different
    numbers, up to rounding (a family may keep log y, and e^{log y} is y to 16 digits), and does not reveal them.
    """

    sums: Array
    size: float

    @staticmethod
    def of(values: Array) -> Fingerprint:
        """The fingerprint of an array."""
        places = np.arange(len(values), dtype=np.float64)
        sums = [float(values @ np.cos(k * places)) for k in _FREQUENCIES]
        return Fingerprint(np.array(sums), float(np.abs(values).sum()))

    def matches(self, other: Fingerprint) -> bool:
        """Whether the numbers are the same, but for rounding."""
        return bool(np.abs(self.sums - other.sums).max() <= _ROUNDING * max(self.size, other.size))


@dataclass(frozen=True, eq=False)
class Observations:
    """A description of what was predicted, by which results of several models are compared only for equal observations.

    response: as the formula has it; "" where there is no formula. density: whether predictions are densities of a
    number, and not probabilities of events, counts or classes. rows: how many. dropped: rows of the table with missing
    values, that were left out. y, trials, weights: fingerprints of them.
    """

    response: str
    density: bool
    rows: int
    dropped: int
    y: Fingerprint
    trials: Fingerprint
    weights: Fingerprint

    @staticmethod
    def of(posterior: PosteriorData) -> Observations:
        """The observations of the rows that were fitted.

        For a user's own model only their number is known, as nothing says which of its data are y: the number of rows,
        or of observed values where it is a single component.
        """
        form: RowsForm | None = posterior.form
        if form is None:
            empty, target = Fingerprint.of(np.zeros(0)), posterior._target
            count = posterior.rows if target is None else target.observed_count or target.n
            return Observations("", True, count, 0, empty, empty, empty)
        loss, design, ones = form.loss, posterior.design, np.ones(form.rows.n)
        trials = loss.trials_of(form.y, form.weights)
        weights = None if loss.weights_are_trials else form.weights
        return Observations(
            response="" if design is None else design.response,
            density=loss.outcome == "numbers",
            rows=form.rows.n,
            dropped=0 if design is None else design.dropped,
            y=Fingerprint.of(loss.original_labels(form.y, trials)),
            trials=Fingerprint.of(ones if trials is None else trials),
            weights=Fingerprint.of(ones if weights is None else weights),
        )


class PointwiseDensity(Tabular):
    """The log predictive density of all rows or groups, from the terms of each."""

    pointwise: Array

    @property
    def elpd(self) -> float:
        """The expected log predictive density: larger is better."""
        return float(self.pointwise.sum())

    @property
    def se(self) -> float:
        """The standard error of elpd, as other rows or groups would have made it."""
        return math.sqrt(len(self.pointwise) * float(self.pointwise.var()))


@dataclass(frozen=True, eq=False, repr=False)
class Loo(PointwiseDensity):
    """Leave-one-out cross-validation; print it, or take `to_frame()` for what is left out, one by one.

    by: the grouping factor whose groups are left out; "": rows. names: of the groups; (): rows, which have numbers.
    pointwise: log p(yᵢ | y₋ᵢ). p: p_loo of each. k: the shape of the tail of its weights, above `good_k` unreliable.
    rows: how many rows each is. draws: of the posterior, that were used. observations: what was predicted. error: the
    relative standard error of pointwise densities where an integral over effects was estimated from draws; 0 where it
    was not. matched: the numbers of rows to whose posterior draws were moved (`svrhmc.results.moment_matching`).
    """

    by: str
    names: tuple[str, ...]
    pointwise: Array
    p: Array
    k: Array
    rows: Indices
    draws: int
    observations: Observations
    error: float = 0.0
    matched: Indices = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def places(self) -> Indices:
        """The numbers of the rows or groups that are left out: all of them."""
        return np.arange(len(self.pointwise))

    @property
    def rough(self) -> Array:
        """A rough estimate for rows that are not left out; as there are none, the pointwise densities themselves."""
        return self.pointwise

    @property
    def p_loo(self) -> float:
        """The effective number of parameters."""
        return float(self.p.sum())

    @property
    def good_k(self) -> float:
        """The largest k that is reliable for so many draws."""
        return good_shape(self.draws)

    @property
    def bad(self) -> Indices:
        """The numbers of the rows or groups whose k is above `good_k`."""
        return np.flatnonzero(~(self.k <= self.good_k))

    def summary(self) -> Summary:
        """elpd, p_loo and −2 elpd with standard errors, and what to think of them."""
        n = len(self.pointwise)
        p_se = math.sqrt(n * float(self.p.var()))
        estimates, errors = np.array([self.elpd, self.p_loo, -2 * self.elpd]), np.array([self.se, p_se, 2 * self.se])
        left = f"{n:,} groups of {self.by}" if self.by else f"{n:,} rows"
        title = f"Leave-one-out cross-validation, {left}, from {self.draws:,} draws."
        columns = {"estimate": estimates, "se": errors}
        return Summary(("elpd_loo", "p_loo", "looic"), columns, title, tuple(self._notes()), tenths=True)

    def _notes(self) -> Iterator[str]:
        bad, unit = self.bad, f"groups of {self.by}" if self.by else "rows"
        if len(self.matched):
            matched_rows = "1 row" if len(self.matched) == 1 else f"{len(self.matched):,} rows"
            yield (
                f"For {matched_rows} of large Pareto k, draws were moved to the posterior without it (moment matching)."
            )
        if not len(bad):
            yield f"Every Pareto k is at most {self.good_k:.2g}: the estimate is reliable."
        else:
            worst = ", ".join(self._name(j) for j in bad[np.argsort(-self.k[bad], kind="stable")][:5])
            yield (
                f"Pareto k is above {self.good_k:.2g} for {len(bad):,} of {len(self.k):,} {unit} (first {worst}): "
                "the posterior without them differs so much from that with them that their terms of elpd are not "
                "reliable, and usually too high."
            )
            yield self._advice(len(bad) > _MANY_BAD * len(self.k))
        if self.error:
            yield (
                "Integrals over more than two effects are averages over draws, with a relative standard error of at "
                f"most {self.error:.2g} in each density; elpd is off by some {self.error * math.sqrt(len(self.k)):.2g} "
                "by that."
            )

    def _advice(self, many: bool) -> str:
        refit = "fit again without each of them, and take the log density of what was left out."
        if many:
            refit = "fit again without a tenth of them at a time, and add up the log densities of what was left out."
        remedy = f"To have these terms, {refit}"
        if not self.by and not len(self.matched):
            remedy = f"To have these terms, try loo(moment_match=True), or {refit}"
        if many:
            return remedy
        return f"Look at them first: they may be mistakes, or a family with heavier tails may suit them. {remedy}"

    def _name(self, j: int) -> str:
        return self.names[j] if self.names else str(j)

    def save(self, path: str | Path) -> None:
        """Write it to a file, whole or not at all, for `Loo.load`."""
        serialise.save(Path(path), self, _FILE, _VERSION)

    @staticmethod
    def load(path: str | Path) -> Loo:
        """Read a file that `save` wrote; other files raise `DataError`."""
        try:
            return serialise.load(Path(path), Loo, _FILE, _VERSION)
        except StorageError as error:
            raise DataError(str(error)) from error

    def require_sound(self) -> None:
        """Raise an error unless shapes are such as `loo` returns; used when a file is read."""
        n = len(self.pointwise)
        if any(array.shape != (n,) for array in (self.pointwise, self.p, self.k, self.rows)) or not n:
            raise requirement("pointwise, p, k and rows", "arrays of one length", "others")
        if len(self.names) != (n if self.by else 0):
            raise requirement("names", f"those of {n} groups", len(self.names))

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame, a line for each row or group that is left out: elpd, p_loo, pareto_k and rows."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise missing_package("pandas", "formula", "a data frame") from None
        columns = {"elpd": self.pointwise, "p_loo": self.p, "pareto_k": self.k}
        if not self.by:
            return pandas.DataFrame(columns, index=pandas.RangeIndex(len(self.k), name="row"))
        return pandas.DataFrame({**columns, "rows": self.rows}, index=pandas.Index(self.names, name=self.by))


@dataclass(frozen=True, eq=False)
class RowGroups:
    """A grouping factor: its name, the level of each row by number, and the names of the levels."""

    factor: str
    index: Indices
    names: tuple[str, ...]

    @staticmethod
    def of(posterior: PosteriorData, by: str) -> RowGroups:
        """The grouping factor `by` of a posterior, which must have it."""
        group_effects = require_groups(posterior)
        factor = require_factor(group_effects, by)
        term = next(k for k in group_effects.groups if group_effects.names[k] == factor)
        require_rows_in_memory(posterior)
        return RowGroups(factor, _target_of(posterior).group_terms[term].group.index, group_effects.levels[term])

    def blocks(self, most: int) -> Iterator[tuple[Indices, Indices]]:
        """Blocks of at most `most` rows (or of one level with more), sorted by level, and where each level begins."""
        order, counts = np.argsort(self.index, kind="stable"), self.counts()
        ends = np.cumsum(counts[counts > 0])
        begin = 0
        while begin < len(ends):
            low = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, low + most, side="right")))
            yield order[low : ends[end - 1]], np.concatenate([[low], ends[begin : end - 1]]) - low
            begin = end

    def counts(self) -> Indices:
        """How many rows each level has."""
        return np.bincount(self.index, minlength=len(self.names))


def loo_of(
    posterior: PosteriorData,
    by: str | None,
    draws: int | None,
    groups: RowGroups | None = None,
    moment_match: bool = False,
) -> Loo:
    """Cross-validation by rows (by=None) or by a grouping factor: the posterior's own, or the `groups` of another model
    of the same rows.
    """
    most = draw_count(posterior, draws, 20)
    require_rows_in_memory(posterior)
    groups = RowGroups.of(posterior, by) if by is not None and groups is None else groups
    if groups is None:
        count, blocks = pointwise_log_likelihoods(posterior, most)
        left = leave_out_blocks((rows for _, rows in blocks), relative_efficiency(posterior, count))
        ones, observations = np.ones(len(left.k), np.int64), Observations.of(posterior)
        result = Loo("", (), left.elpd, left.lpd - left.elpd, left.k, ones, count, observations)
        return _match_moments(posterior, result, most) if moment_match else result
    if moment_match:
        raise requirement("moment_match", "False where groups are left out", moment_match, "it is for single rows")
    form, x = posterior.fitted(), posterior.inner(most)
    efficiency, observations = relative_efficiency(posterior, len(x)), Observations.of(posterior)
    if len(groups.index) != form.rows.n:
        allowed = f"of the {len(groups.index):,} rows whose {groups.factor} is known"
        raise requirement("the posterior", allowed, f"one of {form.rows.n:,} rows")
    errors = []

    def likelihoods() -> Iterator[Array]:
        for integral in _group_likelihoods(posterior, form, x, groups):
            errors.append(float(integral.error.max()))
            yield integral.log_likelihood

    left, counts = leave_out_blocks(likelihoods(), efficiency), groups.counts()
    names = tuple(groups.names[level] for level in np.flatnonzero(counts))
    p, rows = left.lpd - left.elpd, counts[counts > 0]
    return Loo(groups.factor, names, left.elpd, p, left.k, rows, len(x), observations, max(errors))


def _match_moments(posterior: PosteriorData, loo: Loo, most: int) -> Loo:
    """A cross-validation in which rows with a large k have terms from draws moved to the posterior without them."""
    target, interval = _target_of(posterior), effect_interval(posterior.group_effects)
    if not target.has_potential or posterior.shrinkage is not None:
        why = "the log density is not known at draws that are moved"
        raise requirement("moment_match", "False for this posterior", True, why)
    x = target_coordinates(target, posterior.inner(most), thin_draws(posterior.trace.draws[:, ::interval], most))
    pointwise, k, matched = loo.pointwise.copy(), loo.k.copy(), []
    with stage("moving draws to the posterior without some rows", None):
        for row in checking_budget(loo.bad):
            matched_density = match(
                x, Density(partial(log_densities, target), partial(_log_likelihood_of_row, posterior, int(row)))
            )
            if matched_density.k < k[row]:
                pointwise[row], k[row] = matched_density.elpd, matched_density.k
                matched.append(row)
    p = loo.p + loo.pointwise - pointwise
    return replace(loo, pointwise=pointwise, p=p, k=k, matched=np.array(matched, np.int64))


def _log_likelihood_of_row(posterior: PosteriorData, row: int, x: Array) -> Array:
    """log p(yᵢ | x) of one row at states x of the target."""
    form, target = posterior.form, _target_of(posterior)
    if form is None:
        blocks = target.row_log_likelihoods(x)
        assert blocks is not None  # of a model of one's own
        return np.concatenate([block for _, block in blocks], axis=1)[:, row]
    single_row = form.choose(np.array([row]))
    t = single_row.predictors(np.ascontiguousarray(x[:, : x.shape[1] - target.theta_dim]))
    return np.asarray(-single_row.values(t) - single_row.constants())[:, 0]


def relative_efficiency(posterior: PosteriorData, draws: int) -> float:
    """Effective draws per draw, at most 1."""
    return min(1.0, float(np.mean(posterior.ess)) / draws)


def _target_of(posterior: PosteriorData) -> FiniteSum:
    target = posterior._target
    assert target is not None  # of a posterior with rows
    return target


def require_rows_in_memory(posterior: PosteriorData) -> None:
    """Refuse a posterior whose rows are unknown or not all in memory."""
    if posterior._target is None:
        posterior.fitted()
    if _target_of(posterior).at_hand < posterior.rows:
        why = "read the table into memory, or take some of its rows"
        raise requirement("the rows", "in memory, to be left out one by one", "rows in partitions", why)


def _group_likelihoods(posterior: PosteriorData, form: RowsForm, x: Array, groups: RowGroups) -> Iterator[Integral]:
    """log p(y_g | x) for blocks of groups: with their effects integrated, or the sum over their rows where the model
    has no effects of them.
    """
    group_effects: GroupEffects | None = posterior.group_effects
    terms = (
        [] if group_effects is None else [k for k in group_effects.groups if group_effects.names[k] == groups.factor]
    )
    blocks = groups.blocks(_BLOCK_NUMBERS // len(x))
    if group_effects is None or not terms:
        for rows, starts in blocks:
            block = form.choose(rows)
            log_likelihood_of_rows = -block.values(block.predictors(x)) - block.constants()
            log_likelihood = np.add.reduceat(log_likelihood_of_rows, starts, axis=1)
            yield Integral(log_likelihood, np.zeros(log_likelihood.shape))
        return
    first = form.rows.columns - group_effects.draws.shape[2]
    for k in terms:
        x[:, first + group_effects.slices()[k].start : first + group_effects.slices()[k].stop] = 0.0
    columns = np.concatenate([_target_of(posterior).group_terms[k].group.columns for k in terms], axis=1)
    factors = _block_diagonal([covariance_factors(posterior, k, len(x)) for k in terms])
    for rows, starts in blocks:
        yield GroupedRows(form.choose(rows), x, starts, columns[rows], factors).integral()


def _block_diagonal(factors: list[Array]) -> Array:
    """Factors (draws, r, r) of several terms as one block diagonal factor: the terms are independent."""
    width = sum(factor.shape[1] for factor in factors)
    diagonal, begin = np.zeros((len(factors[0]), width, width)), 0
    for factor in factors:
        size = factor.shape[1]
        diagonal[:, begin : begin + size, begin : begin + size] = factor
        begin += size
    return diagonal
