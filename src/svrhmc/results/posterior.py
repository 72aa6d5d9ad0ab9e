"""What `sample` and `fit` give back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from svrhmc.core import serialise
from svrhmc.core.arrays import Array, Values, ratio
from svrhmc.core.errors import (
    PosteriorFileError,
    StorageError,
    boolean,
    nonnegative,
    require_finite,
    requirement,
    whole_number,
)
from svrhmc.core.serialise import is_part
from svrhmc.core.summaries import Summary, quantile_levels
from svrhmc.density.base import FiniteSum
from svrhmc.results import summary
from svrhmc.results.advice import Advice, warn_user
from svrhmc.results.arviz import ArvizOptions, to_arviz
from svrhmc.results.base import (
    FittedRows,
    Input,
    Model,
    PosteriorData,
    draw_count,
    draws_of_rows,
    thin_draws,
    with_effects,
)
from svrhmc.results.checks import find_misfits
from svrhmc.results.effects import Effects, effects_of
from svrhmc.results.export import export
from svrhmc.results.groups import GroupLevels, LevelOrCell, Quantities, contrasts_of, levels_of, variances_of
from svrhmc.results.imputations import Imputations, imputations_of
from svrhmc.results.loo import Loo, loo_of
from svrhmc.results.loo_subsample import SubsampledLoo, loo_subsample_of
from svrhmc.results.onnx import to_onnx
from svrhmc.results.plots import forest
from svrhmc.results.predict import (
    Block,
    Grouping,
    Levels,
    LogLikelihoods,
    Prediction,
    offset_with_exposure,
    pointwise_log_likelihoods,
    prediction_of,
    predictions_at,
)
from svrhmc.results.prior import Influence, clashes, prior_in_words, under_wider_priors
from svrhmc.results.probability import match_moments, probability
from svrhmc.results.projection import project
from svrhmc.results.r2 import r2_of
from svrhmc.results.sensitivity import sensitivity_of
from svrhmc.results.shrinkage import inclusion_of
from svrhmc.results.smooths import Curves, curves_of
from svrhmc.results.sql import to_sql
from svrhmc.results.survival import Survival, survival_of
from svrhmc.results.waic import Waic, waic_of
from svrhmc.rows.forms import rows_of
from svrhmc.sampling.answer import Answer, Cost, standard_errors
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.tails import NO_MEAN, NO_VARIANCE
from svrhmc.tables.design import Design
from svrhmc.tables.expressions import require_transforms
from svrhmc.tables.new_rows import Handling
from svrhmc.trace import grids, numbered

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

_VERSION, _WITHOUT_GROUPS = 2, 1  # of its files; a reader of version 1 would leave effects of groups out


@dataclass(frozen=True, eq=False, repr=False)
class Posterior(PosteriorData):
    """A posterior as `sample` returns it: draws, moments, and a verdict on them.

    mean, sd: the best estimates for each coordinate; `errors` has their standard errors. They are corrected by the
        gradients at the draws, unless the correction contradicts the draws or the chains have not settled.
    raw: the mean and standard deviation of the draws themselves.
    corrected: the corrected ones, with their standard errors.
    laplace: those of the Laplace approximation, or of the nearest Gaussian law where that is far from the mode's.
    trace: the draws; `trace.draws` has the shape (chain, draw, coordinate).
    method: the name of the method, such as "split-hmc".
    sampler: the sampler that was used; None for a closed form.
    why: the reason for this choice, in one sentence.
    certificate: the verdict, and what it rests on.
    ess: effective draws of each coordinate (of x or of x², whichever has fewer).
    r_hat: R-hat of each coordinate.
    passes: passes over the data, for the mode, the sampling and the certificate together.
    seconds: the time taken by everything but compilation.
    compile_seconds: the time taken by compilation.
    complete: False if the run ended before there were as many draws as asked for, because of a budget or because it
        reached the largest number of draws that are made. stopped: whether it was a budget.
    steps: seconds spent on each step of the search, by name.
    model: the family and the columns of a row, which predictions need; None if the target has no rows.
    modes: where several modes were found, what each of them is worth; None where there is one.

    `fit`, the estimators and the shell fill in the rest. names: of the coordinates. units: how they follow from the
    standardised variables that were sampled. design: how a table becomes rows. prior: the one used, and what it did.
    family: its name. gaussian: whether the posterior is known to be. clashes: what in the model contradicts the scale
    of the data, in sentences. misfits: how the model fails to fit the rows (`svrhmc.results.checks`), in sentences,
    from checked_rows of them (0: it was not checked). parameters: as a model states them, where other coordinates were
    sampled. shrinkage: of a shrinking prior (`inclusion`). imputed: where several imputed tables were pooled, what
    differs between them (`imputations`). fitted_rows, fitted_at: how many rows it was fitted on, and when (UTC); 0 and
    "" in files of 0.1.0. covariance: of all coordinates, where their law is known and they are at most 1,000. tails:
    the Pareto shape of each coordinate whose tail is so heavy that the error of its sd is not known (0 for others):
    from 0.5 on its sd is nan, from 1 on its mean; None where there is no such tail. arrays: what is known of rows that
    the estimators took, for exports. stopped: whether a budget ended the run. The target and some rows of its table are
    there for what needs the rows that were fitted; no file keeps them.
    """

    prior: Influence | None = None
    imputed: Imputations | None = None

    def __str__(self) -> str:
        return summary.print_text(self)

    def probability(self, statement: str) -> float:
        """The probability of a statement about the coefficients, such as "age > 0 and plan[pro] < 2*age": the share of
        the draws, moved as for `quantile`, for which it holds. Where a model states parameters it is about those, with
        their draws as they are.

        It may have names (any of them also between backticks), numbers, + - * / **, abs, exp, log, sqrt, comparisons
        (chained ones too), and, or, not and brackets.

        >>> from svrhmc import sample, targets
        >>> sample(targets.linear([[1.0], [2.0]], [1.0, 3.0]), draws=4000).probability("x[0] > 7/6")
        0.49725
        """
        if self.parameters is not None:
            return probability(statement, self.parameters.names, self.parameters.flat())
        factors = () if self.group_effects is None else self.group_effects.factors
        return probability(statement, self.labels, match_moments(self.trace._flat(), *self.stretched), factors)

    def effects(
        self,
        level: float = 0.9,
        rows: int = 2000,
        draws: int = 400,
        seed: int = 0,
        *,
        variables: str | Sequence[str] | None = None,
        table: object = None,
        by: str | None = None,
    ) -> Effects:
        """Average marginal effects: what a change of each column does to the mean of y, averaged over the rows that
        were fitted (`svrhmc.results.effects`).

        level: of the intervals. rows, draws: at most so many are used, spread evenly; seed: chooses the rows.
        variables: of which columns; None for all. table: rows to average over instead; one from a file needs it. by: a
        column of the formula; the rows of each of its values are averaged apart, at most `rows` of each.
        """
        return effects_of(self, level, rows, draws, seed, variables, table, by)

    def groups(self, name: str | None = None, level: float = 0.9) -> GroupLevels:
        """The effects of the levels of a grouping factor: mean, sd, interval, shrinkage and number of rows of each
        level and column (`svrhmc.results.groups`). Print it, take `to_frame()`, or `plot()` it.

        name: of the factor, such as "school"; None where there is one. level: of the intervals.
        """
        return levels_of(self, name, level)

    def smooth(self, name: str | None = None, level: float = 0.9, points: int = 200) -> Curves:
        """The curves of smooths such as s(age), with bands that allow for what is not known of the smoothness, and
        their effective degrees of freedom (`svrhmc.results.smooths`). Print it, take `to_frame()`, or `plot()` it.

        name: of the smooth, such as "s(age)", or of its column; None for all. level: of the intervals. points: of the
        curve, over the range of the rows that were fitted.
        """
        return curves_of(self, name, level, points)

    def variances(self, level: float = 0.9, draws: int = 1000, *, table: object = None) -> Quantities:
        """Where there are groups: intraclass correlations, the share of the variance of each term, and marginal and
        conditional R² (`svrhmc.results.groups` has their definitions), with intervals.

        level: of the intervals. draws: at most so many are used. table: rows over which columns vary, instead of those
        that were fitted; a posterior from a file needs it.
        """
        return variances_of(self, level, draws, table)

    def contrast(
        self,
        name: str | Sequence[str],
        levels: Sequence[LevelOrCell] | None = None,
        *,
        against: LevelOrCell | None = None,
        level: float = 0.9,
        draws: int = 1000,
    ) -> Quantities:
        """Differences between the levels of a category or of a grouping factor, on the scale of the linear predictor:
        mean, sd, interval, and the probability to be above 0.

        name: of the column, such as "plan", or of the factor, such as "school"; of several columns, such as ["plan",
        "region"], for their cells, averaged over the rest as the rows have it. levels: those to compare, of cells such
        as ("pro", "north"); None for all. against: one level that the others are compared with; None: every pair.
        draws: at most so many are used where differences are averaged over rows, as in interactions.
        """
        return contrasts_of(self, name, levels, against, level, draws)

    def to_frame(self, level: float = 0.9) -> pandas.DataFrame:
        """A pandas data frame by the names of the coefficients: mean, sd, ends of the interval, ratios where the family
        has them, ess and r_hat.
        """
        return summary.coefficient_table(self, level).to_frame()

    def ratios(self, level: float = 0.9) -> Summary:
        """e to the power of each coefficient, its median and interval: odds ratios for yes or no and for classes,
        ratios of means for counts and amounts. A year of age with the ratio 0.97 multiplies the odds by 0.97.
        """
        return summary.ratio_table(self, level)

    def inclusion(self, level: float = 0.9) -> Summary:
        """Under a `Horseshoe`, `R2D2` or `LearntScale`: of each coefficient that has it, from the least shrunk on,
        mean, sd and interval, the shrinkage factor κ (the posterior mean: 1 where the prior draws it to 0, 0 where it
        is left alone) and 1 − κ; under a `SpikeAndSlab` the probability that it is not 0; and how many coefficients
        that amounts to (`svrhmc.results.shrinkage`).
        """
        return inclusion_of(self, level)

    def project(
        self, columns: Sequence[str] | None = None, *, most: int = 20, draws: int = 400, level: float = 0.9
    ) -> Summary:
        """How many columns suffice: the posterior projected onto ever more of them, so that what each smaller model
        predicts is as near as can be to what this one does (`svrhmc.results.projection`). explained: the share of the
        divergence from none of them that is gone. score: the log density of each row given the others, less that
        under the whole model, summed; error: its standard error.

        columns: onto these alone; gives their coefficients. Those that no shrinking prior has, such as the intercept,
            are always kept.
        most: columns of the path. draws: at most so many are projected. level: of the intervals of coefficients.

        For the families "gaussian", "bernoulli" and "binomial" with their usual links, and rows in memory.

        >>> import numpy as np
        >>> from svrhmc import fit
        >>> from svrhmc.targets.priors import SpikeAndSlab
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((60, 4))
        >>> table = {f"x{j}": X[:, j] for j in range(4)} | {"y": 2 * X[:, 0] - X[:, 2] + 0.5 * rng.standard_normal(60)}
        >>> fit("y ~ .", table, prior=SpikeAndSlab(expected=2), draws=100).project().names[:3]
        ('none', '+ x0', '+ x2')
        """
        return project(self, columns, most, draws, level)

    def imputations(self) -> Summary:
        """Where `fit` was given a list of imputed tables: of each coefficient the standard deviations within tables
        and between them, the share of the information that is missing, and how far off its mean is because tables are
        few (`svrhmc.results.imputations`).
        """
        return imputations_of(self)

    def by_name(self) -> dict[str, Array]:
        """The draws by the names of the model: arrays (chain, draw, …) in the shapes that it gives its parameters, or
        those of the coefficients.

        >>> from svrhmc import sample, targets
        >>> sample(targets.linear([[1.0], [2.0]], [1.0, 3.0]), draws=400).by_name()["x"].shape
        (4, 100, 1)
        """
        if self.parameters is not None:
            return self.parameters.by_name()
        arrays = grids(self.labels) or {name: np.array(place) for place, name in enumerate(self.labels)}
        return {name: self.trace.draws[:, :, places] for name, places in arrays.items()}

    def posterior_predictive(self, *, draws: int | None = None, seed: int = 0) -> dict[str, Values]:
        """New values of the observed variables of a NumPyro model, by name: arrays (draw, …), one for each draw of the
        posterior. Of a regression there is `predict`.

        draws: use at most this many draws, taken evenly from every chain; None for all of them. seed: of new values.
        """
        if self._target is None or self._target.observed_count is None:
            raise requirement("the posterior", "of a NumPyro model", "another", "predict(X) predicts of a regression")
        x = thin_draws(self.trace.draws, draw_count(self, draws))
        return self._target.drawn_observations(x, whole_number("seed", seed, 0, (1 << 63) - 1))

    def draws_frame(self) -> pandas.DataFrame:
        """The draws as a pandas data frame, with the columns chain and draw and one for each coefficient."""
        return summary.draws_frame(self)

    def summary(self, level: float = 0.9, *, mcse: bool = False) -> Summary:
        """A table of the coefficients, with odds ratios and the like where the family has them, and in sentences what
        was fitted, how, under which prior, and how far to trust it. Print it, or take `to_frame()`.

        level: of the intervals. mcse: whether with the standard errors of means and sds, which sampling leaves open.
        """
        return summary.build_summary(self, level, boolean("mcse", mcse))

    def __repr__(self) -> str:
        return summary.repr_text(self)

    def _repr_html_(self) -> str:
        return summary.html_text(self)

    def plot(self, path: str | Path | None = None, level: float = 0.9) -> Figure:
        """A forest plot: mean and interval of each coefficient; the figure, saved where a path is given."""
        return forest(self, level, path)

    def predict(
        self,
        X: Input,
        *,
        offset: npt.ArrayLike | None = None,
        trials: npt.ArrayLike | None = None,
        exposure: npt.ArrayLike | None = None,
        levels: Sequence[float] = (0.05, 0.5, 0.95),
        draws: int = 1000,
        seed: int = 0,
        include_groups: bool = True,
        new_groups: str = "draw",
        groups: Levels | None = None,
        missing: str = "refuse",
        new_levels: str = "refuse",
    ) -> Prediction:
        """Predict at new rows: the mean, sd and quantiles of E y over the posterior, and those of a new y.

        X: rows with the same columns as those of the target, in the same order.
        offset, trials: as for the target, one number for each new row. A column that `fit` was told by name is found in
            the table; what `fit` was given as an array has to be given here too. Of rows of arrays offsets are 0 and
            trials 1 unless they are given. With trials y is the number of successes in them, and `probability` in the
            result is that of a success in one.
        exposure: of the new rows, one number for all or for each, in the place of the column that `fit` was told: 1
            predicts a rate.
        levels: the levels of the quantiles.
        draws: use at most this many draws of the posterior, taken evenly from every chain.
        seed: of the random numbers that make new y, and effects of new levels of groups.
        include_groups: whether the effects of groups are added, where the model has some.
        new_groups: what the effects of levels that were not fitted are: "draw" them as those of other levels vary (rows
            of one level share them), "average" for 0, a typical group, or "refuse" such rows.
        groups: where rows are arrays, the level of each row in every term of groups, by number; where more than an
            intercept varies, pairs of levels and columns. A table has them itself.
        missing: what becomes of rows of a table that miss a value: "refuse" them, "drop" them, or predict "nan".
        new_levels: the same of rows with a level of a category that was not fitted: "refuse", "nan", or "average" to
            predict from the mean of the linear predictors of the fitted levels, each of which counts the same. That
            says nothing of how far levels differ; effects of groups, (1 | region), do (new_groups).

        Columns of the table stand beside the predictions by `to_frame(keep=True)` or `to_frame(keep=["id"])`.
        Rows are processed in blocks, so that rows × draws numbers are never in memory at once.

        >>> from svrhmc import sample, targets
        >>> posterior = sample(targets.linear([[1.0], [2.0]], [1.0, 3.0]), draws=4000)
        >>> new = posterior.predict([[3.0]], draws=4000)
        >>> new.mean.round(1), new.sd.round(1), new.new_sd.round(1)  # 7/6 · 3, and 1 more in the variance
        (array([3.5]), array([1.2]), array([1.6]))
        """
        grouping, handling = Grouping(include_groups, new_groups, groups), Handling(missing, new_levels)
        offset = offset_with_exposure(self, X, offset, exposure)
        return prediction_of(self, X, offset, trials, quantile_levels(levels), draws, seed, grouping, handling)

    def survival(
        self,
        X: Input,
        times: npt.ArrayLike | None = None,
        *,
        horizon: float | None = None,
        level: float = 0.9,
        offset: npt.ArrayLike | None = None,
        draws: int = 1000,
        seed: int = 0,
        include_groups: bool = True,
        new_groups: str = "draw",
        groups: Levels | None = None,
    ) -> Survival:
        """Survival curves at new rows, of a fit to times: P(T > time) with its band, and median and restricted mean
        times (`svrhmc.results.survival`). Print it, take `to_frame()`, or `plot()` it.

        times: of the curves; None: 101 even ones up to the longest that was fitted. horizon: up to which mean times are
        restricted; None: the last of the times. level: of the intervals. Other parameters are those of `predict`.
        """
        grouping = Grouping(include_groups, new_groups, groups)
        return survival_of(self, X, times, horizon, level, offset, draws, seed, grouping)

    def predict_draws(
        self,
        X: Input,
        *,
        offset: npt.ArrayLike | None = None,
        trials: npt.ArrayLike | None = None,
        draws: int = 1000,
        seed: int = 0,
        include_groups: bool = True,
        new_groups: str = "draw",
        groups: Levels | None = None,
    ) -> Iterator[Block]:
        """Predict draw by draw: yields blocks of rows, each with `start` (the number of its first row) and the arrays
        `mean` and `new` of shape (draws, rows). Other parameters are those of `predict`.
        """
        grouping = Grouping(include_groups, new_groups, groups)
        return predictions_at(self, X, offset, trials, draws, seed, grouping).blocks()

    def log_likelihood(self, draws: int | None = None) -> LogLikelihoods:
        """log p(yᵢ | x) of the rows that were fitted, found when they are asked for: `array()` has all of them, (draws,
        rows), and a loop over it takes pairs (number of the first row, array (draws, rows)), some rows at a time. A
        model of your own has the terms of its rows, as it states them.

        draws: use at most this many draws, taken evenly from every chain; None for all of them, chain after chain.

        >>> from svrhmc import sample, targets
        >>> posterior = sample(targets.linear([[1.0], [2.0], [1.5]], [1.0, 3.0, 2.0]), draws=400)
        >>> posterior.log_likelihood().array().shape
        (400, 3)
        """
        return LogLikelihoods(*pointwise_log_likelihoods(self, draw_count(self, draws)))

    def loo(self, by: str | None = None, *, draws: int | None = None, moment_match: bool = False) -> Loo:
        """How well the model predicts rows that it has not seen, by leave-one-out cross-validation from this one fit
        (`svrhmc.results.loo`). Print it, or take `to_frame()`.

        by: a grouping factor, such as "school", whose groups are left out whole: their effects are integrated, as those
            of a school that was never seen. None: each row is left out, and groups keep the effects that they have.
        draws: use at most this many draws, taken evenly from every chain; None for all of them.
        moment_match: whether draws are moved to the posterior without a row where the row decides so much that its
            term is not reliable (`svrhmc.results.moment_matching`). Each such row takes some ten passes over all rows
            for every draw.

        >>> from svrhmc import sample, targets
        >>> sample(targets.linear([[1.0], [2.0], [1.5]], [1.0, 3.0, 2.0]), draws=4000).loo().elpd  # doctest: +ELLIPSIS
        -3...
        """
        return loo_of(self, by, draws, moment_match=boolean("moment_match", moment_match))

    def loo_subsample(self, rows: int = 2000, *, draws: int | None = None, seed: int = 0) -> SubsampledLoo:
        """The same as `loo()` of many rows, from some of them, with the error that their choice leaves
        (`svrhmc.results.loo_subsample`). Print it, or take `to_frame()`.

        rows: how many are left out in turn, drawn by `seed`. draws: use at most this many, taken evenly from every
            chain; None for all of them.

        >>> from svrhmc import sample, targets
        >>> posterior = sample(targets.linear([[1.0], [2.0], [1.5]] * 4, [1.0, 3.0, 2.0] * 4), draws=4000)
        >>> posterior.loo_subsample(12).subsampling_se
        0.0
        """
        return loo_subsample_of(self, rows, draws, seed)

    def sensitivity(self, draws: int = 1000) -> Summary:
        """How much each coordinate would move if the prior, or the likelihood, were raised to another power, from these
        draws alone (`svrhmc.results.sensitivity`). Above 0.05 it is worth a thought; the sentences say what to do.

        draws: at most so many are used, taken evenly from every chain.

        >>> from svrhmc import sample, targets
        >>> posterior = sample(targets.linear([[1.0], [2.0]], [1.0, 3.0], prior_precision=10.0), draws=2000)
        >>> bool(posterior.sensitivity().prior[0] > 0.05)
        True
        """
        return sensitivity_of(self, draws)

    def waic(self, *, draws: int | None = None) -> Waic:
        """The widely applicable information criterion (`svrhmc.results.waic`), for comparison with what others report;
        `loo` is to be preferred, as it is right more often and says where it is not.

        draws: use at most this many draws, taken evenly from every chain; None for all of them.
        """
        return waic_of(self, draws)

    def r2(self, level: float = 0.9, *, draws: int = 1000) -> Quantities:
        """Bayesian R²: the share of the variance of y that its mean explains, with an interval, on the scale of y and
        with the effects of groups (`svrhmc.results.r2`). `variances` has shares on the scale of the linear predictor.

        level: of the interval. draws: at most so many are used.
        """
        return r2_of(self, level, draws)

    def to_arviz(
        self,
        log_likelihood: bool = False,
        posterior_predictive: bool = False,
        rows: int | npt.ArrayLike | None = None,
        seed: int = 0,
        *,
        draws: int | None = None,
        lp: bool | None = None,
        coords: Mapping[str, Sequence[object]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
    ) -> Any:
        """All of it as ArviZ keeps it, with names (`svrhmc.results.arviz`); on request with the likelihood of the
        rows (for `az.loo`) and new y of them (for `az.plot_ppc`).

        Both have chains × draws × rows numbers, and are refused where that is more than 2³⁰ bytes. rows: at most so
        many, spread evenly by the seed, or the numbers of those that are wanted. draws: at most so many in all, taken
        evenly from every chain. lp: whether to find the log density of each draw, which is a pass over the rows for
        each; None: where rows times draws are at most 2²⁴. dims: names of the axes of variables, such as
        {"theta": ["school"]}; coords: the places along axes, such as {"school": ["A", "B", …]}.
        """
        options = ArvizOptions(
            boolean("log_likelihood", log_likelihood),
            boolean("posterior_predictive", posterior_predictive),
            rows,
            whole_number("seed", seed, 0, (1 << 63) - 1),
            None if draws is None else whole_number("draws", draws, 1),
            None if lp is None else boolean("lp", lp),
            coords,
            dims,
        )
        return to_arviz(self, options)

    def about(self, target: FiniteSum | None, kept: FittedRows | None = None) -> Posterior:
        """The same with another target, or none, and with some rows of its table: for what needs the rows that were
        fitted, which no file keeps.
        """
        return replace(self, _target=target, _table_rows=kept)

    def __getstate__(self) -> dict[str, object]:
        """For a pickle: without a target that none can hold, as after `load`."""
        travels = self._target is None or self._target.travels
        return {name: value for name, value in self.__dict__.items() if travels or name != "_target"}

    def export(self, path: str | Path | None = None) -> str:
        """The model as one JSON document that is read without svrhmc: how rows are made of a table, means and
        covariance, family, levels, and a card of what it was fitted on and how far to trust it. docs/production.md
        has every field, and a script that predicts from it.

        path: where to write it, besides; None: nowhere.

        >>> import json
        >>> from svrhmc.fitting import regress
        >>> posterior = regress([[1.0], [2.0], [3.0], [4.0]], [301.0, 302.0, 303.5, 303.9], names=["dose"])
        >>> json.loads(posterior.export())["predictors"][0]["coefficients"][1]["expression"]
        ['column', 'dose']
        """
        return export(self, path)

    def to_sql(self, dialect: str = "duckdb", table: str = "new_rows", level: float = 0.9) -> str:
        """A query that predicts within a database: all columns of a table, and `predicted_linear`,
        `predicted_linear_sd`, `predicted_mean`, `predicted_lower` and `predicted_upper` (`svrhmc.results.sql`). Rows
        with missing values or with levels of categories that were not fitted have NULL; groups that were not fitted
        are typical ones, with the variance between groups.

        dialect: "duckdb", "postgresql" or "bigquery". table: the name of the table. level: of the interval.

        >>> from svrhmc.fitting import regress
        >>> posterior = regress([[1.0], [2.0], [3.0], [4.0]], [301.0, 302.0, 303.5, 303.9], names=["dose"])
        >>> posterior.to_sql(table="patients").splitlines()[0]
        'WITH svrhmc_columns AS ('
        """
        return to_sql(self, dialect, table, level)

    def to_onnx(self, path: str | Path | None = None, level: float = 0.9) -> bytes | Path:
        """The model as an ONNX graph in float64, for onnxruntime and the like, with the columns and the missing values
        of `to_sql` (`svrhmc.results.onnx`). Each column of the table is an input of one number (float64) or text for
        each row; `predicted_linear`, `predicted_linear_sd`, `predicted_mean`, `predicted_lower` and `predicted_upper`
        are outputs. Columns without names (of an estimator that was fitted on arrays) are one input X.

        path: where to write it, and the answer is this path; None: the answer is the graph, as bytes. level: of the
            interval.

        >>> from svrhmc.fitting import regress
        >>> posterior = regress([[1.0], [2.0], [3.0], [4.0]], [301.0, 302.0, 303.5, 303.9], names=["dose"])
        >>> import onnxruntime
        >>> session = onnxruntime.InferenceSession(posterior.to_onnx())
        >>> session.run(["predicted_mean"], {"dose": np.array([2.5])})[0].round(4)
        array([302.6])
        """
        return to_onnx(self, path, level)

    def report(self, path: str | Path, **told: Any) -> Path:
        """Write a report on it, one HTML file, with the keywords of `svrhmc.report`."""
        from svrhmc.results.report import report  # which draws figures and writes a page: loaded where one is asked for

        return report(self, path, **told)

    def save(self, path: str | Path) -> None:
        """Write everything to one file. If the process is killed meanwhile, an older file of that name stays intact.

        The file has a checksum and contains no pickle. Later versions of svrhmc can read it.

        >>> import tempfile
        >>> from svrhmc import Posterior, sample, targets
        >>> posterior = sample(targets.linear([[1.0], [2.0]], [1.0, 3.0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/fit.posterior")
        ...     str(Posterior.load(f"{folder}/fit.posterior")) == str(posterior)
        True
        """
        saved = self if is_part(self.model) else replace(self, model=None)  # a loss of one's own has no name in files
        version = _WITHOUT_GROUPS if self.group_effects is None else _VERSION
        serialise.save(Path(path), saved, "posterior", version)

    @staticmethod
    def load(path: str | Path, transforms: Mapping[str, Callable[..., object]] | None = None) -> Posterior:
        """Read a file that `save` wrote, in this version or an earlier one; other files raise `PosteriorFileError`.

        transforms: the functions of your own that its formula calls, as `fit` was given them. A file holds none, and
        runs none: whoever it comes from, loading it and predicting from it only calculates.
        """
        given = require_transforms(transforms)
        try:
            posterior = serialise.load(Path(path), Posterior, "posterior", _VERSION)
        except StorageError as error:
            raise PosteriorFileError(str(error)) from error
        design = posterior.design
        return posterior if design is None else replace(posterior, design=design.with_transforms(given))

    def require_sound(self) -> None:
        """Raise an error unless shapes and numbers are such as `sample` returns; used when a file is read."""
        dim = self.trace.draws.shape[2]
        parts = {"": self, "raw.": self.raw, "corrected.": self.corrected, "laplace.": self.laplace}
        arrays = {f"{place}{name}": getattr(part, name) for place, part in parts.items() for name in ("mean", "sd")}
        for name, array in {**arrays, "ess": self.ess, "r_hat": self.r_hat}.items():
            if array.shape != (dim,):
                raise requirement(name, f"an array of {dim} numbers, as the draws have it", f"shape {array.shape}")
        shapes = np.zeros(dim) if self.tails is None else self.tails
        if shapes.shape != (dim,) or np.isnan(shapes).any():
            raise requirement("tails", f"{dim} Pareto shapes", f"shape {shapes.shape}")
        for name, array in arrays.items():
            missing = (shapes >= (NO_MEAN if name == "mean" else NO_VARIANCE)) & (name in ("mean", "sd"))
            require_finite(name, np.where(missing, 0.0, array))
        if self.covariance is not None and self.covariance.shape != (dim, dim):
            raise requirement("covariance", f"of {dim} coordinates", f"shape {self.covariance.shape}")
        if len(self.certificate.stein.mean) != dim:
            raise requirement("certificate", f"one of {dim} coordinates", len(self.certificate.stein.mean))
        for name in ("passes", "seconds", "compile_seconds"):
            nonnegative(name, getattr(self, name))
        if not (self.sampler is None or hasattr(self.sampler, "invariant")):
            raise requirement("sampler", "a sampler", repr(self.sampler)[:60])


def _inner_mean(answer: Answer, shared: int, units: Units | None, target: FiniteSum) -> Array:
    """The posterior mean in the variables of the rows."""
    kept = answer.group_effects
    own = answer.mean[: len(answer.mean) - (0 if kept is None else kept.covariances)]
    own = own if units is None else units.inward(own)
    return own if kept is None else with_effects(own, kept.draws.mean(axis=(0, 1)), shared, target)


def build_posterior(
    answer: Answer,
    cost: Cost,
    target: FiniteSum,
    units: Units | None,
    names: tuple[str, ...],
    *,
    family: str = "",
    prior: Influence | None = None,
    given: bool = True,
    design: Design | None = None,
    table_rows: FittedRows | None = None,
    advice: Advice | None = None,
) -> Posterior:
    """What a search found, with all that is known of its target, and with what is wrong with the model: a `UserWarning`
    tells what contradicts the data's scale.

    prior: what it did; None for that of the target. given: whether it was. advice: what its user can change; None
    stands for a target.
    """
    form, advice = rows_of(target.shown().form()), advice or Advice()
    contradictions: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    checked_rows = 0
    if form is not None:
        if prior is None:
            draws = answer.trace.draws[..., : len(answer.mean) - target.theta_dim]
            keeps = np.full(len(form.prior_mean), True)
            keeps[form.rows.columns - target.effect_count : form.rows.columns] = not target.effect_count
            words = "; ".join([prior_in_words(form), *(term.group.prior_words() for term in target.group_terms)])
            prior = Influence.of(form.prior_mean[keeps], form.prior_precision[keeps], draws, words)
        if target.theta_dim:
            wider = under_wider_priors(target.group_terms, answer.trace.draws[..., -target.theta_dim :])
            prior = replace(prior, wider=wider)
        labels = names or target.names or numbered(len(answer.mean))
        mean = _inner_mean(answer, form.loss.shared, units, target)
        chance = float(ratio(standard_errors(answer, answer.tails)[0], answer.sd).max())
        single = given and not target.effect_count
        contradictions = clashes(form, prior, mean, chance, labels, single, advice)
        if contradictions:
            warn_user("The model contradicts the data's scale: " + " And ".join(contradictions))
        first = int(units is not None and units.intercept)
        failures, checked_rows = find_misfits(
            form, mean, labels, first, advice, target.effect_count, () if design is None else design.classes,
            lambda most: draws_of_rows(answer, form.loss.shared, units, target, most), bool(contradictions),
            None if table_rows is None else table_rows.numbers,
        )  # fmt: skip
    return Posterior(
        **vars(answer),
        **cost._asdict(),
        model=Model.of(target),
        names=names or (target.names if target.effect_count else ()),
        units=units,
        design=design,
        prior=prior,
        family=family,
        clashes=contradictions,
        misfits=failures,
        checked_rows=checked_rows,
        fitted_rows=target.n,
        fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        _target=target,
        _table_rows=table_rows,
    )
