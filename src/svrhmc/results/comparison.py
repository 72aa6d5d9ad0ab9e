"""Models of the same observations side by side, by how well they predict what they have not seen.

With eᵢₖ = log p(yᵢ | y₋ᵢ) under model k (`svrhmc.results.loo`), i being a row or a group, and b the model whose elpd is
the largest,

    elpdₖ = Σᵢ eᵢₖ,        diffₖ = Σᵢ dᵢₖ,        se(diffₖ) = √(n var dᵢₖ),        dᵢₖ = eᵢ_b − eᵢₖ.

Models find the same rows hard to predict, so that the dᵢₖ vary much less than the eᵢₖ, and the standard error of a
difference is much smaller than those of the two elpd.

**How far to trust a difference.** Below 4 it is too small for its error to be known, and se is too small with fewer
than 100 observations, or where both models fit badly (Sivula, Magnusson, Matamoros & Vehtari, Uncertainty in Bayesian
leave-one-out cross-validation based model comparison, 2020).

**Weights** are those of stacking: of all mixtures of the predictive laws, the one with the best log score,

    w = argmax Σᵢ log Σₖ wₖ e^{eᵢₖ}        over w ≥ 0, Σ w = 1,

a concave function (Yao, Vehtari, Simpson & Gelman, Bayesian Analysis 13, 2018). A model of large elpd may have a weight
of 0, where a mixture of others predicts no worse.

**Many rows** need not all be left out: with rows=2000 sums over i are estimated from 2,000 of them, the same of every
model (`svrhmc.results.loo_subsample`), and the error that their choice leaves stands beside each difference. Weights
are of all rows too: of the other rows, e is taken to be their log density at the posterior mean, moved by the mean of
what it differs by in those 2,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import boolean, requirement
from svrhmc.core.summaries import Summary
from svrhmc.results.base import Tabular
from svrhmc.results.loo import Loo, Observations, RowGroups, loo_of, require_rows_in_memory
from svrhmc.results.loo_subsample import SubsampledLoo, Total, loo_subsample_of, total_of
from svrhmc.results.posterior import Posterior

if TYPE_CHECKING:
    import pandas

_SMALL, _ERRORS = 4.0, 2.0  # differences below, and in standard errors, that are no evidence
_FEW = 100  # observations, below which standard errors are too small
_TINY, _ROUNDING = np.finfo(np.float64).tiny, 1e-12  # of densities, and of weights


CrossValidated = Loo | SubsampledLoo


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison(Tabular):
    """Models by their elpd, the best first; print it, or take `to_frame()`.

    names: of the models. loo: the cross-validation of each. about: what each is, in words, or "".
    """

    names: tuple[str, ...]
    loo: tuple[CrossValidated, ...]
    about: tuple[str, ...]

    @cached_property
    def _differences(self) -> list[Total]:
        """Σᵢ dᵢₖ for every model."""
        best = self.loo[0]
        return [total_of(best.pointwise - loo.pointwise, best.rough - loo.rough, best.places) for loo in self.loo]

    @property
    def elpd(self) -> Array:
        """The elpd of each model, the largest first."""
        return np.array([loo.elpd for loo in self.loo])

    @property
    def elpd_diff(self) -> Array:
        """How far the elpd of each model is below that of the best."""
        return np.array([difference.value for difference in self._differences])

    @property
    def diff_se(self) -> Array:
        """The standard errors of these differences, had other rows or groups been observed."""
        return np.array([difference.se for difference in self._differences])

    @property
    def subsampling_se(self) -> Array:
        """The standard errors of these differences from the choice of rows; 0 if every row was left out."""
        return np.array([difference.subsampling_se for difference in self._differences])

    @cached_property
    def weights(self) -> Array:
        """The weight of each model in the mixture that predicts best, by stacking, over all rows."""
        return stacking_weights(np.stack([_estimates_of_all_rows(loo) for loo in self.loo], axis=1))

    @property
    def decided(self) -> tuple[bool, ...]:
        """For each model, whether there is evidence that the best one predicts better."""
        pairs = zip(self.elpd_diff, np.hypot(self.diff_se, self.subsampling_se), strict=True)
        return tuple(bool(diff >= _SMALL and diff >= _ERRORS * se) for diff, se in pairs)

    def summary(self) -> Summary:
        """A line for each model, with notes on how to read them."""
        columns = {
            "elpd": self.elpd,
            "se": np.array([loo.se for loo in self.loo]),
            "elpd_diff": self.elpd_diff,
            "diff_se": self.diff_se,
            **({"subsampling_se": self.subsampling_se} if self.subsampling_se.any() else {}),
            "p_loo": np.array([loo.p_loo for loo in self.loo]),
            "weight": self.weights,
            "bad_k": np.array([float(len(loo.bad)) for loo in self.loo]),
        }
        title = f"Models by leave-one-out cross-validation, {self._units}."
        return Summary(self.names, columns, title, self.notes, tenths=True)

    @property
    def _units(self) -> str:
        n, m, by = len(self.loo[0].rough), len(self.loo[0].pointwise), self.loo[0].by
        units = f"{n:,} groups of {by}" if by else f"{n:,} rows"
        return units if m == n else f"{units}, from {m:,} of them"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how to read the comparison, in sentences."""
        return tuple(self._sentences())

    def _sentences(self) -> Iterator[str]:
        listed = [f"{name}: {words}" for name, words in zip(self.names, self.about, strict=True) if words]
        if listed:
            yield "; ".join(listed) + "."
        best, diff, se = self.names[0], self.elpd_diff, self.diff_se
        undecided = [k for k, decided in enumerate(self.decided) if k and not decided]
        if undecided:
            others = " and ".join(f"{self.names[k]} (behind by {diff[k]:.1f} ± {se[k]:.1f})" for k in undecided)
            yield f"{best} has the largest elpd, but that is no evidence that it predicts better than {others}."
        else:
            yield f"{best} predicts better than {self.names[1]} by {diff[1]:.1f} ± {se[1]:.1f}."
        yield (
            f"Differences below {_SMALL:g}, or below {_ERRORS:g} of their standard errors, are no evidence. Weights "
            "are those of the mixture of the models that would predict best (stacking)."
        )
        if len(self.loo[0].pointwise) < _FEW:
            units = f"groups of {self.loo[0].by}" if self.loo[0].by else "rows"
            yield f"With fewer than {_FEW} {units} the standard errors of differences are rough, and mostly too small."
        bad = [name for name, loo in zip(self.names, self.loo, strict=True) if len(loo.bad)]
        if bad:
            yield (
                f"Some Pareto k of {' and '.join(bad)} are too large (bad_k says how many): such terms of elpd are not "
                "reliable, and usually too high. loo() of the posterior says which they are and what to do."
            )

    def to_frame(self) -> pandas.DataFrame:
        """As a pandas data frame, a line for each model, the best first."""
        frame = self.summary().to_frame()
        return frame.astype({"bad_k": np.int64})


def compare(
    *models: object,
    by: str | None = None,
    draws: int | None = None,
    moment_match: bool = False,
    rows: int | None = None,
    seed: int = 0,
) -> ModelComparison:
    """Compare models of the same observations by how well they predict what they have not seen: leave-one-out
    cross-validation of each, differences to the best with their standard errors, and weights of stacking
    (`svrhmc.results.comparison`). Print it, or take `to_frame()`.

    models: posteriors of `fit` or `sample`, or what their `loo()` gave; or one list of these, or dictionary by name.
    by: a grouping factor, such as "school", whose groups are left out whole, as for `Posterior.loo`. One of the models
        must have effects of it; the others, whether they have or not, are asked for the same groups.
    draws: use at most so many of each.
    moment_match: as for `Posterior.loo`, where single rows decide much.
    rows: leave out so many rows, drawn by the seed, and estimate the sums over all of them (`Posterior.loo_subsample`).

    Samplers are compared by `svrhmc.compare_samplers`.

    >>> import numpy as np
    >>> from svrhmc import compare, fit
    >>> x = np.linspace(-1, 1, 200)
    >>> table = {"y": x + 0.5 * np.sin(9.0 * np.arange(200)), "x": x}
    >>> found = compare({"line": fit("y ~ x", table), "constant": fit("y ~ 1", table)})
    >>> found.names, found.decided
    (('line', 'constant'), (False, True))
    """
    named = _models_by_name(models)
    _require_comparable(named, by)
    groups = None if by is None else _row_groups(named, by)
    if rows is not None and (by is not None or moment_match):
        raise requirement("rows", "None where groups are left out or draws are moved", rows)
    cross_validate: Callable[[Posterior], CrossValidated] = partial(
        loo_of, by=by, draws=draws, groups=groups, moment_match=boolean("moment_match", moment_match)
    )
    if rows is not None:
        cross_validate = partial(loo_subsample_of, rows=rows, draws=draws, seed=seed)
    loo = {name: _cross_validation_of(name, model, by, cross_validate) for name, model in named.items()}
    first, *others = loo
    for other in others:
        if not np.array_equal(loo[first].places, loo[other].places):
            raise requirement(f"{first} and {other}", "cross-validated by the same rows", "others", "give both rows=…")
        if set(loo[first].names) != set(loo[other].names):
            allowed = f"models with the same groups of {loo[first].by}"
            raise requirement(f"{first} and {other}", allowed, "other groups")
    aligned = {name: _reorder_groups(result, loo[first].names) for name, result in loo.items()}
    names = sorted(named, key=lambda name: -aligned[name].elpd)
    about = tuple(_describe(named[name]) for name in names)
    return ModelComparison(tuple(names), tuple(aligned[name] for name in names), about)


def _estimates_of_all_rows(loo: CrossValidated) -> Array:
    """eᵢ of the rows that were left out, and π̃ᵢ plus the mean of e − π̃ for the others: their sum is elpd."""
    values = loo.rough + float((loo.pointwise - loo.rough[loo.places]).mean())
    values[loo.places] = loo.pointwise
    return values


def stacking_weights(log_density: Array) -> Array:
    """The weights w from eᵢₖ, (observations, models).

    >>> stacking_weights(np.log([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])).round(4)
    array([0.8472, 0.1528])
    """
    from scipy.optimize import minimize

    p = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    models = p.shape[1]

    def loss_and_slope(w: Array) -> tuple[float, Array]:
        mixture = np.maximum(p @ w, _TINY)
        return -float(np.log(mixture).mean()), -(p / mixture[:, None]).mean(axis=0)

    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(models)}
    start = np.full(models, 1 / models)
    best = minimize(
        loss_and_slope, start, jac=True, method="SLSQP", bounds=[(0, 1)] * models, constraints=simplex,
        options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    w = np.where(best.x > _ROUNDING, best.x, 0.0)
    return np.asarray(w / w.sum())


def _models_by_name(models: tuple[object, ...]) -> dict[str, object]:
    """The models by name: the keys of a dictionary, or "model 1" and so on."""
    if len(models) == 1 and isinstance(models[0], Mapping):
        named = {str(name): model for name, model in models[0].items()}
    elif len(models) == 1 and isinstance(models[0], list | tuple):
        return _models_by_name(tuple(models[0]))
    else:
        named = {f"model {k + 1}": model for k, model in enumerate(models)}
    if len(named) < 2:
        raise requirement("models", "two posteriors or more, or a list or dictionary of them", f"{len(named)}")
    return named


def _row_groups(named: Mapping[str, object], by: str) -> RowGroups | None:
    """The groups of the rows, from the first model that has effects of them; None where none is a posterior."""
    posteriors = [model for model in named.values() if isinstance(model, Posterior)]
    with_factor = [
        model for model in posteriors if model.group_effects is not None and by in model.group_effects.factors
    ]
    return RowGroups.of(with_factor[0] if with_factor else posteriors[0], by) if posteriors else None


def _require_comparable(named: Mapping[str, object], by: str | None) -> None:
    """Refuse models that do not predict the same observations, before they are cross-validated, which takes long."""
    left_out, observations = dict[str, str](), dict[str, Observations]()
    for name, model in named.items():
        if isinstance(model, Posterior):
            require_rows_in_memory(model)
            left_out[name], observations[name] = by or "", Observations.of(model)
        elif isinstance(model, CrossValidated):
            left_out[name], observations[name] = model.by, model.observations
        else:
            why = "samplers are compared by svrhmc.compare_samplers(target, samplers, …)"
            raise requirement(name, "a posterior, as fit and sample give it, or its loo()", type(model).__name__, why)
    first, *others = named
    for other in others:
        both = f"{first} and {other}"
        if by is None and left_out[first] != left_out[other]:
            units = [f"groups of {unit}" if unit else "single rows" for unit in (left_out[first], left_out[other])]
            raise requirement(both, "cross-validated alike", " and ".join(units))
        _require_same(both, observations[first], observations[other])


def _cross_validation_of(
    name: str, model: object, by: str | None, cross_validate: Callable[[Posterior], CrossValidated]
) -> CrossValidated:
    """The cross-validation of a posterior, or the one that the caller has made."""
    if isinstance(model, Posterior):
        return cross_validate(model)
    assert isinstance(model, CrossValidated)
    if by is not None and by != model.by:
        left = f"groups of {model.by}" if model.by else "single rows"
        raise requirement(name, f"a cross-validation by {by!r}", f"one that leaves out {left}")
    return model


def _describe(model: object) -> str:
    """The formula and family of a posterior; "" if it has no formula."""
    if not isinstance(model, Posterior) or model.design is None:
        return ""
    return f"{model.design.formula} ({model.family}{model.design.row_values_in_words})"


def _require_same(both: str, one: Observations, two: Observations) -> None:
    """Refuse two models that are not of the same observations; both: the names of the two."""
    if one.rows != two.rows:
        dropped = [f" ({data.dropped:,} left out for missing values)" if data.dropped else "" for data in (one, two)]
        sizes = f"{one.rows:,} rows{dropped[0]} and {two.rows:,}{dropped[1]}"
        raise requirement(both, "fitted to the same rows", sizes, "fit both to the rows that both can use")
    if one.density != two.density:
        kinds = ["densities of a number" if data.density else "probabilities" for data in (one, two)]
        why = "densities and probabilities have different units; take families of the same kind"
        raise requirement(both, "models of one kind of response", " and ".join(kinds), why)
    if not one.y.matches(two.y):
        if one.response != two.response:
            why = "densities of one are not those of the other; fit both to one of them"
            raise requirement(both, "models of the same response", f"{one.response!r} and {two.response!r}", why)
        why = "fit both to the same rows in the same order"
        raise requirement(both, "models of the same responses", "other values of y", why)
    if not (one.weights.matches(two.weights) and one.trials.matches(two.trials)):
        raise requirement(both, "fitted with the same weights or trials of rows", "other weights or trials")


def _reorder_groups(loo: CrossValidated, names: tuple[str, ...]) -> CrossValidated:
    """The cross-validation with its groups in this order."""
    if loo.names == names or not isinstance(loo, Loo):
        return loo
    place = {name: j for j, name in enumerate(loo.names)}
    order = [place[name] for name in names]
    arrays = {key: getattr(loo, key)[order] for key in ("pointwise", "p", "k", "rows")}
    return replace(loo, names=names, **arrays)
