"""The data of a posterior, and what follows from them at once: what every function of `results` takes.
`posterior.py` adds the methods that users call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import real_array, requirement, whole_number
from svrhmc.core.serialise import part
from svrhmc.core.summaries import Summary, interval_end_names, interval_ends
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.density.mixed import MixedModel
from svrhmc.families.base import Loss
from svrhmc.results.probability import quantiles
from svrhmc.rows.forms import RowsForm, rows_of
from svrhmc.rows.predictors import rows_for_loss
from svrhmc.rows.sparse import make_rows
from svrhmc.sampling.answer import Answer, Parameters, SamplingResult, standard_errors
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.sampling.modes import Modes
from svrhmc.tables.arrays import ArrayDesign
from svrhmc.tables.columns import Column, Columns
from svrhmc.tables.design import Design
from svrhmc.trace import numbered

Input = Any  # rows as users have them: lists, arrays or sparse matrices
ROWS_KEPT = 10_000  # rows of a table that are kept beside a posterior
_PARTS = 5  # parts of these rows, from whose averages a standard error is found
_IN_MEMORY = {"saved": False}  # metadata of fields that are not saved to files


@part
@dataclass(frozen=True)
class Model:
    """What predictions need to know of a target: its loss, and how many columns the first linear predictor has."""

    loss: Loss
    columns: int

    @staticmethod
    def of(target: FiniteSum) -> Model | None:
        """The model of a target whose rows have linear predictors; None for any other target."""
        form = rows_of(target.shown().form())
        return None if form is None else Model(form.loss, form.rows.columns - target.effect_count)

    def at(self, X: Input, offset: npt.ArrayLike | None, units: Units | None = None) -> RowsForm:
        """The form of the target with new rows X in place of its own; refuses another number of columns."""
        columns = self.columns + sum(self.loss.widths) if units is None else len(units.centre)
        if columns or np.ndim(X) != 2 or not len(X) or np.shape(X)[1]:  # an intercept alone needs no columns
            width = make_rows(X).dim
            if width != columns:
                raise requirement("X", f"rows of {columns} columns, as the posterior has", f"{width} columns")
        rows = make_rows(X if units is None else units.rows(X), empty=True)
        shift = None
        if offset is not None:
            offsets = offset if np.ndim(offset) else np.full(rows.n, offset)
            shift = np.asarray(real_array("offset", offsets, (rows.n,)), np.float64)
        if units is not None:
            shift = units.response + (np.zeros(rows.n) if shift is None else shift)
        return GeneralisedLinear(rows_for_loss(rows, self.loss), np.zeros(rows.n), self.loss, 1.0, offset=shift).form()


@dataclass(frozen=True, eq=False)
class FittedRows:
    """Some rows of the table that was fitted, spread evenly over it, with their offsets and weights. n: how many rows
    were fitted. numbers: the number in the table of each of those, from 0 on; None where it is not known.
    """

    columns: Columns
    offset: Array | None
    weights: Array | None
    n: int
    numbers: Indices | None = None

    @staticmethod
    def of(
        columns: Columns, offset: Array | None, weights: Array | None, numbers: Indices, most: int = ROWS_KEPT
    ) -> FittedRows:
        """At most `most` rows of a table."""
        return FittedRows(columns, offset, weights, columns.n, numbers).take(even_rows(columns.n, most, 0))

    def take(self, places: Indices) -> FittedRows:
        """Some of the rows, by their places."""
        columns = {
            name: Column(column.kind, column.values[places], None, column.levels)
            for name, column in self.columns.by_name.items()
        }
        offset, weights = (None if values is None else values[places] for values in (self.offset, self.weights))
        return FittedRows(Columns(columns, len(places)), offset, weights, self.n, self.numbers)

    def with_columns(self, changes: Mapping[str, Values]) -> Columns:
        """The columns, with other values in those that `changes` names."""
        changed = {name: replace(self.columns[name], values=values) for name, values in changes.items()}
        return Columns({**self.columns.by_name, **changed}, self.columns.n)

    def average(self, average_of: Callable[[FittedRows], Array]) -> tuple[Array, Array]:
        """Averages over these rows, and their standard errors as estimates of the averages over the whole table.
        average_of: the averages over any part of the rows.
        """
        parts = [self.take(np.arange(k, self.columns.n, _PARTS)) for k in range(min(_PARTS, self.columns.n))]
        averages = np.stack([average_of(part) for part in parts])
        sizes = [part.columns.n if part.weights is None else part.weights.sum() for part in parts]
        error = averages.std(axis=0, ddof=1) / np.sqrt(len(parts)) * np.sqrt(1 - self.columns.n / self.n)
        return np.average(averages, axis=0, weights=sizes), error


@dataclass(frozen=True, eq=False, repr=False)
class PosteriorData(SamplingResult):
    """The fields of a `Posterior`, whose docstring explains them. `model` holds a `Model`; `prior` and `imputed` hold
    an `Influence` and `Imputations`, whose modules import this one.
    """

    passes: float
    seconds: float
    compile_seconds: float
    complete: bool
    steps: dict[str, float] = field(default_factory=dict)
    model: Any = None
    names: tuple[str, ...] = ()
    units: Units | None = None
    design: Design | None = None
    prior: Any = None
    family: str = ""
    gaussian: bool = False
    clashes: tuple[str, ...] = ()
    parameters: Parameters | None = None
    modes: Modes | None = None
    misfits: tuple[str, ...] = ()
    checked_rows: int = 0
    group_effects: GroupEffects | None = None
    shrinkage: Shrinkage | None = None
    imputed: Any = None
    fitted_rows: int = 0
    fitted_at: str = ""
    covariance: Array | None = None
    tails: Array | None = None
    stopped: bool = False
    arrays: ArrayDesign | None = None
    _target: FiniteSum | None = field(default=None, metadata=_IN_MEMORY)
    _table_rows: FittedRows | None = field(default=None, metadata=_IN_MEMORY)

    @property
    def errors(self) -> tuple[Array, Array]:
        """Standard errors of the reported means and standard deviations: how far they may be off by chance alone."""
        return standard_errors(self, self.tails)

    @property
    def stretched(self) -> tuple[Array, Array]:
        """The means and sds to which draws are moved and stretched, coordinate by coordinate, for quantiles and
        statements: the reported ones, or those of the draws themselves where a tail is so heavy that the error of an
        sd is not known.
        """
        if self.tails is None:
            return self.mean, self.sd
        heavy = self.tails > 0
        return np.where(heavy, self.raw.mean, self.mean), np.where(heavy, self.raw.sd, self.sd)

    @property
    def rows(self) -> int:
        """How many rows were fitted; 0 where that is not known, as after `load`."""
        return 0 if self._target is None else self._target.n

    @property
    def left_out(self) -> int:
        """How many rows were left out because they have a weight of 0, as far as that is known."""
        return 0 if self._target is None else self._target.left_out

    @property
    def group_scales(self) -> int:
        """How many coordinates, the last ones, are standard deviations and correlations of group effects."""
        return 0 if self.group_effects is None else self.group_effects.covariances

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the coordinates, or x[0], x[1], … where they have none."""
        return self.names or numbered(len(self.mean))

    def quantile(self, levels: float | Sequence[float]) -> Array:
        """Quantiles of each coordinate, (levels…, dim): those of the draws, moved and stretched so that their mean and
        sd are the reported ones (`svrhmc.results.probability`), and as they are where a tail is so heavy that the
        error of the sd is not known; exact where the posterior is Gaussian.

        >>> from svrhmc import sample, targets
        >>> sample(targets.linear([[1.0], [2.0]], [1.0, 3.0])).quantile([0.05, 0.5]).round(4)
        array([[0.4952],
               [1.1667]])
        """
        return quantiles(self.trace._flat(), *self.stretched, levels, self.gaussian)

    def interval(self, level: float = 0.9) -> Array:
        """The middle interval of each coordinate that has the probability `level`: (dim, 2)."""
        return self.quantile(interval_ends(level)).T

    @property
    def form(self) -> RowsForm | None:
        """The rows that were fitted, where they are known; some of them, where they are not in memory."""
        return None if self._target is None else rows_of(self._target.shown().form())

    def fitted(self) -> RowsForm:
        """The rows that were fitted; an error where they are not known."""
        form = self.form
        if form is None:
            if self.imputed is not None:
                why = "the rows of imputed tables have no likelihood together; fit one of the tables by itself"
                raise requirement("the posterior", "that of a single table", f"{self.imputed.count} pooled", why)
            if self._target is not None:
                raise no_rows("to have a likelihood of each")
            why = "no file keeps the rows; fit again, or keep the posterior in memory; svrhmc.compare also takes what "
            why += "loo() gave, which posterior.loo().save(path) and svrhmc.results.loo.Loo.load(path) keep"
            raise requirement("the posterior", "as `sample` or `fit` gave it, with its rows", "one from a file", why)
        return form

    def without_groups(self, most: int) -> Array:
        """At most `most` draws of coefficients and shared parameters, in the variables of the target."""
        return draws_without_effects(self, self.units, most)

    def inner(self, most: int) -> Array:
        """At most `most` draws in the variables of the rows: with the effects of groups."""
        return draws_of_rows(self, self.model.loss.shared, self.units, self._target, most)


class Tabular:
    """A result that prints as the table that its method `summary` makes."""

    def summary(self) -> Summary:
        """The result as a table."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


@dataclass(frozen=True, eq=False, repr=False)
class DerivedQuantities(Tabular):
    """Quantities that follow from a posterior: draws (draws, quantities) of them, of which `level` is the probability
    of the intervals.
    """

    names: tuple[str, ...]
    draws: Array
    level: float

    @property
    def mean(self) -> Array:
        """The mean of each, over the draws."""
        return np.asarray(self.draws.mean(axis=0))

    @property
    def sd(self) -> Array:
        """The standard deviation of each, over the draws."""
        return np.asarray(self.draws.std(axis=0, ddof=1))

    @property
    def interval(self) -> Array:
        """The middle interval of each: (quantities, 2)."""
        return np.asarray(np.quantile(self.draws, interval_ends(self.level), axis=0).T, np.float64)


def interval_columns(mean: Array, sd: Array, interval: Array, level: float) -> dict[str, Array]:
    """Columns of a table: mean, sd and the ends (…, 2) of intervals of probability `level`."""
    low, high = interval_end_names(level)
    return {"mean": mean, "sd": sd, low: interval[:, 0], high: interval[:, 1]}


def no_rows(purpose: str) -> ValueError:
    """The error for what needs rows with linear predictors, which a posterior does not have."""
    return requirement(
        "the posterior",
        f"of a target whose rows have linear predictors, {purpose}",
        "one of another kind, such as a model of functions",
        "compute it from the draws: posterior.by_name() where parameters have names of their own, and "
        "posterior.trace.draws",
    )


def draw_count(posterior: PosteriorData, draws: int | None, least: int = 1) -> int:
    """How many draws a user wants: all of them for None, and at least `least`."""
    chains, count, _ = posterior.trace.draws.shape
    return chains * count if draws is None else whole_number("draws", draws, least)


def effect_interval(effects: GroupEffects | None) -> int:
    """Group effects are kept for every k-th draw of the coefficients: k, which is 1 without groups."""
    return 1 if effects is None else effects.every


def with_effects(own: Array, effects: Array, shared: int, target: FiniteSum | None) -> Array:
    """Draws (…, dim) of coefficients, effects and shared parameters, in the order that the rows of a mixed model have
    them. own: coefficients and `shared` parameters. target: the mixed model, into whose variables effects are taken.
    """
    edge = own.shape[-1] - shared
    effects = effects if target is None else cast(MixedModel, target).inward(effects)
    return np.concatenate([own[..., :edge], effects, own[..., edge:]], axis=-1)


def draws_without_effects(result: Answer | PosteriorData, units: Units | None, most: int) -> Array:
    """At most `most` draws of coefficients and shared parameters, in the variables of the target."""
    effects = result.group_effects
    scales = 0 if effects is None else effects.covariances
    x = thin_draws(result.trace.draws[:, :: effect_interval(effects), : len(result.mean) - scales], most)
    return x if units is None else units.inward(x)


def draws_of_rows(
    result: Answer | PosteriorData, shared: int, units: Units | None, target: FiniteSum | None, most: int
) -> Array:
    """At most `most` draws in the variables of the rows: with the effects of groups."""
    own, effects = draws_without_effects(result, units, most), result.group_effects
    return own if effects is None else with_effects(own, thin_draws(effects.draws, most), shared, target)


def even_draws(chains: int, count: int, most: int) -> tuple[int, Indices]:
    """At most `most` draws of chains with `count` draws each: how many chains to use, and which draws of each.

    >>> even_draws(4, 100, 12), even_draws(4, 100, 3)
    ((4, array([ 0, 50, 99])), (3, array([0])))
    """
    per_chain = max(1, min(count, most // chains)) if chains <= most else 1
    return min(chains, most), np.unique(np.linspace(0, count - 1, per_chain).round().astype(np.int64))


def thin_chains(draws: Array, most: int) -> Array:
    """At most `most` of the draws (chain, draw, dim), evenly from every chain: (chain, draw, dim)."""
    chains, places = even_draws(draws.shape[0], draws.shape[1], most)
    return draws[:chains, places]


def thin_draws(draws: Array, most: int) -> Array:
    """At most `most` of the draws (chain, draw, dim), evenly from every chain: (draws, dim)."""
    return np.ascontiguousarray(thin_chains(draws, most).reshape(-1, draws.shape[2]))


def even_rows(n: int, most: int, seed: int) -> Indices:
    """At most `most` of n rows, one drawn at random from each of as many equal stretches, so that no period in the
    order of the rows is in step with them.

    >>> even_rows(5, 9, 0), len(even_rows(1000, 10, 0))
    (array([0, 1, 2, 3, 4]), 10)
    """
    if n <= most:
        return np.arange(n)
    ends = np.linspace(0, n, most + 1)
    u = np.random.default_rng(seed).random(most)
    return np.minimum((ends[:-1] + u * np.diff(ends)).astype(np.int64), n - 1)
