"""Regressions as scikit-learn has them: `fit`, `predict`, `predict_proba`, `score`, with a posterior behind them.

An estimator is fitted by `svrhmc.fitting.regress`: columns are standardised inside, priors are weak and on the data's
scale, and what is reported is in the data's units. `posterior_` is the whole result, `coef_` and `intercept_` are its
means. Whatever is predicted is an average over the draws of the posterior, found for a block of rows at a time: of
probabilities, and of means of y, never a probability at an average of coefficients.

A row of weight w counts as w rows like it (rows of weight 0 are left out), so the posterior of a table with weights is
that of the table with its rows repeated.

Each estimator takes the same parameters.

fit_intercept: whether the predictor has a constant.
prior: of the coefficients, in the units of the data: one of `svrhmc.targets.priors` for all of them but the intercept,
    or a dictionary by the names of the columns, with "Intercept", and "sigma", "scale" or "shape" where the family has
    one; "auto": a normal one whose scale is learnt with the coefficients (`svrhmc.targets.priors.LearntScale`), for
    predictions from many columns; None: weak ones that follow the data's scale (`svrhmc.fitting.regress`).
prior_scale: the standard deviation of a normal prior of all coefficients but the intercept, for a change of a column by
    its standard deviation, and of a column of two values (0 and 1, one-hot) for the step from one to the other, however
    rare it is; in standard deviations of y (of classes: in log odds; of counts: of their logarithm). It can be
    searched, by `GridSearchCV` and the like: 2.5 is the default prior. None: that of `prior`.
groups: columns of X, by their names or numbers, that are taken out of it: the intercept varies by their levels, which
    may be texts, as by (1 | school) in a formula of `svrhmc.fit`.
new_groups: what the effects of levels that were not fitted are: "draw" them as those of other levels vary, which
    intervals and new y then allow for (as `Posterior.predict` does), "average" for 0, a typical group, or "refuse" such
    rows.
draws, chains, tolerance, method, certificate, budget_seconds: as `svrhmc.sample` takes them.
on_undecided: "warn" or "raise" (`svrhmc.VerdictError`, and nothing is fitted) where the verdict on the posterior is
    undecided, refuted or (certificate=False) unjudged, or where it has fewer draws than were asked for.
n_jobs: threads; None is one, −1 every core, as everywhere in scikit-learn. The draws do not depend on them.
random_state: a whole number is the seed itself, and fixes every draw; a `RandomState` gives a seed at each fit; with
    None every fit has another.
verbose: 1 or True to show progress, 0 or False not to, None to show it on a terminal only.

There is no `warm_start`: `svrhmc.fit(…, prior=posterior)` continues from an earlier fit with new rows.

By default such a `fit` gives scikit-learn's `ConvergenceWarning`, which says why and what to do, and so does reading
the pickle of an estimator whose verdict is undecided or refuted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np

from svrhmc.core.arrays import Array, Indices, Selection, Values
from svrhmc.core.errors import (
    DataError,
    NoResidualsError,
    VerdictError,
    boolean,
    did_you_mean,
    missing_package,
    one_of,
    positive,
    real_array,
    require_unmasked,
    requirement,
    whole_number,
)
from svrhmc.core.summaries import interval_ends
from svrhmc.core.version import VERSION
from svrhmc.families.base import Classes, Loss
from svrhmc.fitting.priors import INTERCEPT, Priors
from svrhmc.fitting.regression import build_regression, sample_regression
from svrhmc.priors.groups import Group
from svrhmc.priors.shrinkage import LearntScale
from svrhmc.priors.terms import LKJ, Prior, StandardNormal
from svrhmc.results.advice import ARRAYS, warn_of_verdict
from svrhmc.results.base import thin_draws
from svrhmc.results.posterior import Posterior
from svrhmc.results.predict import NEW_GROUPS, Grouping, Predictions, predictions_at, unseen_levels_error
from svrhmc.sampling.run import require_draws
from svrhmc.tables.arrays import ArrayDesign
from svrhmc.tables.columns import Columns, columns_of
from svrhmc.tables.design import log_exposure, missing_in_words
from svrhmc.tables.formula import Factor, GroupTerm, Term, quote_name
from svrhmc.tables.groups import GroupDesign, group_designs, groups_to_array

try:
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import d2_tweedie_score
    from sklearn.utils import check_array, check_random_state, check_X_y
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise missing_package("scikit-learn 1.6 or newer", "sklearn", "an estimator") from None

__all__ = [
    "BayesianLogisticRegression",
    "BayesianNegativeBinomialRegression",
    "BayesianPoissonRegression",
    "BayesianRegression",
]

Own = TypeVar("Own")
Given = ParamSpec("Given")
Result = TypeVar("Result")
Input = Any  # what scikit-learn takes as X, y and weights: lists, arrays, sparse matrices, data frames
RandomState = int | np.random.RandomState | None
Method = Any  # the name of a sampler, a sampler, or None
EstimatorPrior = Prior | Mapping[str, Prior | LKJ] | str | None
GroupColumns = Any  # names of columns, in a list or as a formula of groups
_DRAWS = 4000  # of the posterior: most that a prediction is averaged over
_ROWS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}  # what scikit-learn checks rows for
_ADVICE = replace(
    ARRAYS,
    link="another link (svrhmc.fit takes family=svrhmc.targets.families.bernoulli('probit'))",
    words={
        **ARRAYS.words,
        "prior=svrhmc.targets.priors.LearntScale() learns": "prior='auto' learns",
        "use 'gaussian' or 'student-t'": "use BayesianRegression",
        "use 'gaussian' or 'gamma'": "use BayesianRegression",
        "family='negative-binomial'": "BayesianNegativeBinomialRegression",
        "family='hurdle-": "svrhmc.fit with family='hurdle-",
        "family='student-t'": "BayesianRegression(family='student-t')",
        "'bernoulli'": "BayesianLogisticRegression",
    },
)
_PRIORS = "None, 'auto', one of svrhmc.targets.priors such as Normal.with_sd(1.0), or a dictionary of these by column"
_SCALE = (
    "prior_scale is the standard deviation of the prior, for one standard deviation of a column of numbers and for the "
    "step of a column of 0 and 1 (one-hot), and prior='auto' learns one for standardised columns."
)
_STARTS = "draws and tolerance say how many draws are made, budget_seconds how long."
_EXPOSURE = "BayesianPoissonRegression and BayesianNegativeBinomialRegression take it in fit, predict and the like."
_INTERVALS = "predict_interval(X, 0.9) has the ends of an interval, and posterior_ the draws."
_INSTEAD_OF_KEYWORD = {  # keywords of methods
    "exposure": _EXPOSURE,
    "offset": "exposure=np.exp(offset) is the same; " + _EXPOSURE,
    "return_std": "of classes predict_proba(X, return_std=True) has standard deviations of probabilities.",
    "return_cov": "posterior_.trace.draws has the draws of the coefficients.",
    "quantiles": _INTERVALS,
    "quantile": _INTERVALS,
    "alpha": _INTERVALS,
}
_INSTEAD_OF_PARAMETER = {  # parameters of scikit-learn's estimators, and what does the same here
    "C": f"{_SCALE} C of LogisticRegression is prior_scale², on columns on these scales.",
    "alpha": _SCALE,
    "penalty": f"{_SCALE} A normal prior is an L2 penalty, and a Laplace prior an L1 penalty.",
    "l1_ratio": "prior=Laplace(…) and Horseshoe(…) of svrhmc.targets.priors are for many columns of which few matter.",
    "class_weight": "fit(X, y, sample_weight=sklearn.utils.compute_sample_weight('balanced', y)) is the same; for "
    "decisions alone, sklearn.model_selection.TunedThresholdClassifierCV leaves the probabilities as they are.",
    "warm_start": "every fit begins anew; svrhmc.fit(…, prior=posterior) continues from an earlier fit with new rows.",
    "exposure": _EXPOSURE,
    "offset": f"it is the logarithm of an exposure; {_EXPOSURE}",
    "max_iter": _STARTS,
    "n_iter": _STARTS,
    "tol": _STARTS,
    "solver": "method names a sampler, and None chooses one.",
    "seed": "random_state is the seed.",
    "normalize": "columns are standardised inside.",
}
_INSTEAD_OF_METHOD = {"partial_fit": _INSTEAD_OF_PARAMETER["warm_start"]}  # methods of its estimators
_RATES = "without it counts are scored as if they were rates; in scikit-learn's tools metadata routing passes it on"
_ON_UNDECIDED: dict[str, type[Exception]] = {"warn": ConvergenceWarning, "raise": VerdictError}
_SETTINGS = ("draws", "chains", "tolerance", "method", "certificate", "budget_seconds")
_REMEDIES = {
    "X": (
        "make numbers of categories first (sklearn.preprocessing.OneHotEncoder in a pipeline), or give the table to "
        "svrhmc.fit, which takes them as they are"
    ),
    "y": "for classes use BayesianLogisticRegression",
}
_OTHER_FAMILIES = (
    "counts have BayesianPoissonRegression and BayesianNegativeBinomialRegression, and svrhmc.fit(formula, table, "
    "family=…) has all others, such as 'gamma' for amounts and 'beta' for shares"
)
_TIMES = "of times, some of which are censored, svrhmc.fit('Surv(time, event) ~ …', table) makes a model"
_DATES = "make a number of it first, such as days since the first one"


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Rows without the columns of groups, and the index of each row's level, for each group. Levels that were not
    fitted have indices above those that were.
    """

    X: Input
    levels: Indices

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of X, without the columns of groups."""
        return tuple(self.X.shape)

    def __getitem__(self, rows: Selection) -> Input:
        return GroupedRows(self.X[rows], self.levels[rows])


class _WithExposure(NamedTuple):
    """Rows and exposures, before they are checked."""

    rows: Input
    exposure: Input


class RowsWithOffset(NamedTuple):
    """Rows, and the logarithm of the exposure of each."""

    rows: Input
    offset: Array


def _require_known_parameters(kind: type[BaseEstimator], names: Iterable[str], error: type[Exception]) -> None:
    """Refuse parameters that an estimator does not have, and say what does the same here."""
    own = kind._get_param_names()
    for name in names:
        if name not in own:
            instead = _INSTEAD_OF_PARAMETER.get(name) or did_you_mean(name, own) or f"it has {', '.join(own)}."
            raise error(f"{kind.__name__} has no parameter {name!r}: {instead}")


def _with_parameter_advice(
    constructor: Callable[Concatenate[Own, Given], None],
) -> Callable[Concatenate[Own, Given], None]:
    """Wrap a constructor, so that it says what to use instead of a parameter that it does not have."""

    @wraps(constructor)
    def checked(self: Own, /, *args: Given.args, **parameters: Given.kwargs) -> None:
        _require_known_parameters(type(self), parameters, TypeError)
        constructor(self, *args, **parameters)

    return checked


def _with_keyword_advice(own: Callable[Concatenate[Own, Given], Result]) -> Callable[Concatenate[Own, Given], Result]:
    """Wrap a method, so that it says what to use instead of a keyword that it does not have."""
    known = [name for name in signature(own).parameters if name != "self"]

    @wraps(own)
    def checked(self: Own, /, *args: Given.args, **keywords: Given.kwargs) -> Result:
        for name in keywords:
            if name not in known:
                method = f"{type(self).__name__}.{own.__name__}"
                hint = _INSTEAD_OF_KEYWORD.get(name) or did_you_mean(name, known) or f"it has {', '.join(known)}."
                raise TypeError(f"{method} has no parameter {name!r}: {hint}")
        return own(self, *args, **keywords)

    return checked


def _unpickled(kind: type, version: str) -> object:
    """An empty estimator for a pickle to fill. Refuses a pickle of a version that differs in more than its last
    number.
    """
    if version.rpartition(".")[0] != VERSION.rpartition(".")[0]:
        raise DataError(
            f"svrhmc {version} wrote this pickle of {kind.__name__}, and {VERSION} does not read it: fit again, or "
            "save its posterior_ in that version (model.posterior_.save(path)), which later ones read."
        )
    return object.__new__(kind)


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What all estimators share: parameters, the fit, and averages over the draws."""

    @_with_parameter_advice
    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        prior: EstimatorPrior = None,
        prior_scale: float | None = None,
        groups: GroupColumns = None,
        new_groups: str = "draw",
        draws: int = 1000,
        chains: int = 4,
        tolerance: float = 0.02,
        method: Method = None,
        certificate: bool = True,
        on_undecided: str = "warn",
        budget_seconds: float | None = None,
        n_jobs: int | None = None,
        random_state: RandomState = 0,
        verbose: int | bool | None = None,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.prior = prior
        self.prior_scale = prior_scale
        self.groups = groups
        self.new_groups = new_groups
        self.draws = draws
        self.chains = chains
        self.tolerance = tolerance
        self.method = method
        self.certificate = certificate
        self.on_undecided = on_undecided
        self.budget_seconds = budget_seconds
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def set_params(self, **parameters: object) -> Self:
        """Set parameters by name. A parameter that it does not have is refused as by the constructor."""
        _require_known_parameters(type(self), (name for name in parameters if "__" not in name), ValueError)
        changed: Self = super().set_params(**parameters)
        return changed

    if not TYPE_CHECKING:  # what is missing stays an error of the type checker

        def __getattr__(self, name: str) -> Any:
            """An error for what there is not, which says what does the same here."""
            hint = f": {_INSTEAD_OF_METHOD[name]}" if name in _INSTEAD_OF_METHOD else ""
            kind = type(self).__name__
            raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __reduce__(self) -> tuple[Callable[..., object], tuple[type, str], dict[str, object]]:
        """For a pickle: the version that wrote it comes first, so that it is checked before anything else is read."""
        return _unpickled, (type(self), VERSION), self.__getstate__()

    def __getstate__(self) -> dict[str, object]:
        """The state without the rows that were fitted: `posterior_` knows them, and a file should not hold them."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "posterior_" in state:
            state["posterior_"] = state["posterior_"].about(None)
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        """Restore from a pickle. Warns again of an open verdict, as whoever predicts may not have seen the fit."""
        super().__setstate__(state)
        posterior = state.get("posterior_")
        if isinstance(posterior, Posterior) and posterior.certificate.verdict != "unjudged":
            warn_of_verdict(posterior, ConvergenceWarning)

    def sample_y(self, X: Input, n_samples: int = 1, random_state: RandomState = 0) -> Values:
        """New y at each row, (rows, n_samples): a draw of the posterior for each sample, and a y of its law.

        The rows of one sample share their coefficients, so a sample is one data set that the model takes for possible.
        """
        X = self._check_rows(X)
        count = whole_number("n_samples", n_samples, 1)
        seed = _seed(random_state)
        effects = self.posterior_.group_effects
        draws = self.posterior_.trace.draws if effects is None else effects.draws
        size = draws.shape[0] * draws.shape[1]
        chosen = np.random.default_rng(seed).choice(size, count, replace=count > size)
        blocks = [block.new.T for block in self._predictions(X, size, seed, chosen).blocks()]
        return self._as_labels(np.concatenate(blocks))

    def _as_labels(self, y: Array) -> Values:
        """Coded labels as the user gave them."""
        return y

    def _sample(
        self,
        X: Input,
        y: Array,
        family: str | Loss,
        weights: Array | None,
        classes: Classes | None = None,
        offset: Array | None = None,
        count: int | None = None,
    ) -> None:
        """Sample the posterior of these rows and set `posterior_`. count: how many rows the user gave, if not these."""
        require_draws(self.draws, self.chains)
        one_of("on_undecided", self.on_undecided, tuple(_ON_UNDECIDED))
        if self.n_jobs is not None:
            _require_job_count(self.n_jobs)
        groups: list[Group] = []
        if isinstance(X, GroupedRows):
            names = [(group.level_names, group.name) for group in self.group_designs_]
            groups = [Group(index, None, *own) for index, own in zip(X.levels.T, names, strict=True)]
            X = X.X
        shown = [self._column_name(j) for j in self._other_columns()]
        intercept = boolean("fit_intercept", self.fit_intercept)
        with _ADVICE.speaking([INTERCEPT] * intercept + shown):
            model = build_regression(
                X, y, family, names=shown, intercept=intercept, weights=weights, prior=self._chosen_prior(),
                classes=classes, groups=groups, offset=offset,
            )  # fmt: skip
            posterior = sample_regression(
                model,
                _ON_UNDECIDED[self.on_undecided],
                _ADVICE,
                **{name: getattr(self, name) for name in _SETTINGS},
                threads=effective_n_jobs(self.n_jobs),
                seed=_seed(self.random_state),
                progress=_progress_of(self.verbose),
            )
        arrays = ArrayDesign(
            self._response,
            () if classes is None else tuple(map(str, classes)),
            groups_to_array(self.group_designs_) if groups else None,
            matrix=not groups and not hasattr(self, "feature_names_in_"),
        )
        self.posterior_: Posterior = replace(posterior, arrays=arrays, fitted_rows=count or X.shape[0])

    def _chosen_prior(self) -> Priors:
        """The prior of the coefficients, from `prior` or `prior_scale`."""
        if self.prior_scale is not None:
            if self.prior is not None:
                raise requirement("prior", "None where prior_scale is given", repr(self.prior))
            return StandardNormal(positive("prior_scale", self.prior_scale))
        if isinstance(self.prior, str):
            if self.prior != "auto":
                raise requirement("prior", _PRIORS, repr(self.prior))
            if self.groups is not None:
                why = "prior_scale has one strength for all coefficients, which a search can choose"
                raise requirement("prior", "other than 'auto' where there are groups", "'auto'", why)
            return LearntScale()
        return self.prior

    def _mean_coefficients(self) -> tuple[Array, Array]:
        """Posterior means, by block: intercepts (blocks,) and slopes (blocks, columns)."""
        units, mean = self.posterior_.units, self.posterior_.mean
        assert units is not None  # `build_regression` always says them
        first = int(units.intercept)
        by_block = mean[: units.dim - units.shared].reshape(units.blocks, -1)
        return by_block[:, 0] if first else np.zeros(units.blocks), by_block[:, first:].copy()

    def _check_rows(self, X: Input) -> Any:
        """Check new rows, and separate the columns of groups if there are any."""
        check_is_fitted(self)
        one_of("new_groups", self.new_groups, NEW_GROUPS)
        if self.groups is None:
            with _clear_errors(X=X):
                return validate_data(self, X, reset=False, **_ROWS)
        with _clear_errors():
            validate_data(self, X, reset=False, skip_check_array=True)
        rows, columns = self._split_groups(X)
        with _clear_errors(X=rows):
            rows = check_array(rows, ensure_min_features=0, **_ROWS)
        return GroupedRows(rows, np.column_stack([self._group_levels(group, columns) for group in self.group_designs_]))

    def _check_data(self, X: Input, y: Input, numeric: bool = True) -> tuple[Input, Input]:
        """Check rows and labels, and learn the levels of groups. numeric: whether labels are numbers, not classes."""
        self._response = str(getattr(y, "name", None) or "")
        if fields := getattr(getattr(y, "dtype", None), "names", None):
            raise requirement("y", "one label for each row", f"the fields {', '.join(map(repr, fields))}", _TIMES)
        one_of("new_groups", self.new_groups, NEW_GROUPS)
        labels = {"y": y} if numeric else {}
        if self.groups is None:
            with _clear_errors(X=X, **labels):
                X, y = validate_data(self, X, y, y_numeric=numeric, **_ROWS)
                return X, np.asarray(y, np.float64) if numeric else y
        with _clear_errors():
            validate_data(self, X, y, skip_check_array=True)
        rows, columns = self._split_groups(X)
        with _clear_errors(X=rows, **labels):
            rows, y = check_X_y(rows, y, y_numeric=numeric, ensure_min_features=0, **_ROWS)
            y = np.asarray(y, np.float64) if numeric else y
        self.group_designs_ = [_varying_intercept(name, columns, self.groups) for name in columns.by_name]
        return GroupedRows(rows, np.column_stack([group.level_indices(columns) for group in self.group_designs_])), y

    def _group_levels(self, group: GroupDesign, columns: Columns) -> Indices:
        """The index of the level of each new row. Levels that were not fitted come last, or are refused."""
        index = group.level_indices(columns)
        unseen = np.flatnonzero(index < 0)
        if len(unseen) and self.new_groups == "refuse":
            raise unseen_levels_error(group.name, group.level_names_at(columns, unseen))
        if len(unseen):
            names = np.unique(group.level_names_at(columns, unseen), return_inverse=True)[1]
            index[unseen] = len(group.level_names) + names
        return index

    def _column_name(self, j: int) -> str:
        """The name of a column of X."""
        names = getattr(self, "feature_names_in_", None)
        return f"x{j}" if names is None or len(set(names)) < len(names) else str(names[j])

    def _group_columns(self) -> list[int]:
        """The indices of the columns of groups."""
        if self.groups is None:
            return []
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        if isinstance(self.groups, str) or not isinstance(self.groups, Sequence) or not self.groups:
            raise requirement("groups", "a list of columns of X, by name or number", repr(self.groups)[:60])
        places = []
        for column in self.groups:
            if isinstance(column, str) and column in names:
                places.append(names.index(column))
            elif isinstance(column, str):
                hint = did_you_mean(column, names) or ("X has no names of columns: give numbers" if not names else "")
                raise requirement("groups", "columns of X", repr(column), hint)
            else:
                places.append(whole_number("a column of groups", column, 0, self.n_features_in_ - 1))
        if len(set(places)) < len(places):
            raise requirement("groups", "different columns", repr(list(self.groups)))
        return places

    def _other_columns(self) -> list[int]:
        """The indices of the columns of X that are not columns of groups."""
        groups = set(self._group_columns())
        return [j for j in range(self.n_features_in_) if j not in groups]

    def _split_groups(self, X: Input) -> tuple[Input, Columns]:
        """The rows without the columns of groups, and these columns by name. Missing values in them are refused."""
        places, others = self._group_columns(), self._other_columns()
        if hasattr(X, "iloc"):
            by_name, rows = {self._column_name(j): X.iloc[:, j] for j in places}, X.iloc[:, others]
        elif hasattr(X, "select"):
            by_name, rows = {self._column_name(j): X[:, j] for j in places}, X.select([X.columns[j] for j in others])
        elif hasattr(X, "format"):
            by_column = X.tocsc()
            by_name = {self._column_name(j): by_column[:, [j]].toarray().ravel() for j in places}
            rows = by_column[:, others]
        else:
            array = np.asarray(X, None if isinstance(X, np.ndarray) else object)
            by_name, rows = {self._column_name(j): array[:, j] for j in places}, array[:, others]
        columns = columns_of(by_name, by_name, "X")
        if gaps := columns.gaps():
            raise DataError(
                f"X must have no missing values in {missing_in_words(gaps)}: leave these rows out, or fill them."
            )
        return rows if others else np.empty((columns.n, 0)), columns

    def _predictions(self, X: Input, most: int, seed: int = 0, chosen: Indices | None = None) -> Predictions:
        """Predictions at checked rows. most: how many draws of the posterior are used; chosen: the indices of some of
        these.
        """
        posterior, offset = self.posterior_, None
        assert posterior.units is not None
        if isinstance(X, RowsWithOffset):
            X, offset = X
        if not isinstance(X, GroupedRows):
            x = thin_draws(posterior.trace.draws, most)
            x = x if chosen is None else x[chosen]
            return Predictions(posterior.model.at(X, offset, posterior.units), posterior.units.inward(x), seed)
        grouping = Grouping(new=self.new_groups, given=list(X.levels.T))
        predictions = predictions_at(posterior, X.X, offset, None, most, seed, grouping)
        return predictions if chosen is None else predictions.under_draws(chosen)

    def _mean_blocks(self, X: Input) -> Iterator[Array]:
        """The mean of y, averaged over the draws, for one block of rows after another."""
        predictions = self._predictions(X, _DRAWS)
        for _, t, _ in predictions.predictors():
            yield predictions.form.loss.mean(t).mean(axis=0)


def _for_both_classes(second: Array, total: float = 1.0) -> Array:
    """A value for both of two classes, from the value p of the second: total − p and p. With total = 0 both have the
    same standard deviation.
    """
    if second.ndim > 1:
        return second
    return np.column_stack([np.abs(total - second), second])


def _require_job_count(count: object) -> None:
    """Refuse an n_jobs that is no number of threads."""
    if isinstance(count, bool | np.bool_) or not isinstance(count, Integral) or count == 0:
        why = "None is one thread, and -1 every core"
        raise requirement("n_jobs", "None or a whole number other than 0", repr(count), why)


def _log_mean(logarithms: Array) -> Array:
    """log of the mean over the first axis, of draws, of numbers given by their logarithms."""
    mean: Array = np.logaddexp.reduce(logarithms, axis=0) - np.log(len(logarithms))
    return mean


def _varying_intercept(name: str, columns: Columns, groups: GroupColumns) -> GroupDesign:
    """The design of an intercept that varies by the levels of one column."""

    def unusable(why: str) -> DataError:
        return DataError(f"groups={list(groups)!r} cannot be used: {why}.")

    term = GroupTerm((), True, Term((Factor(name),)), True, (), f"(1 | {quote_name(name)})")
    (design,) = group_designs(term, (), columns, unusable)
    return design


def _progress_of(verbose: object) -> bool | None:
    """Whether to show progress: always, never, or (None) only on a terminal."""
    if verbose is None or isinstance(verbose, bool | np.bool_):
        return None if verbose is None else bool(verbose)
    return whole_number("verbose", verbose, 0) > 0


class BayesianLogisticRegression(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Classes by logistic regression: of two, log odds of the second; of more, by softmax with the first as baseline.

    Parameters are those of `svrhmc.estimators`.

    classes_: sorted. coef_, intercept_: posterior means, as `sklearn.linear_model.LogisticRegression` has them: (1,
    columns) and (1,) for two classes; for K (K, columns) and (K,), where those of the first class are 0, and each
    other's are of log odds against it. posterior_: all of the posterior, with `summary()`, draws and verdict.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = BayesianLogisticRegression().fit(X[["mean radius", "mean texture"]], y)
    >>> model.posterior_.names, model.coef_.shape
    (('Intercept', 'mean radius', 'mean texture'), (1, 2))
    >>> model.predict_proba(X[["mean radius", "mean texture"]][:1]).round(2)
    array([[0.79, 0.21]])
    """

    @_with_keyword_advice
    def fit(self, X: Input, y: Input, sample_weight: Input = None) -> Self:
        """Sample the posterior. X: (n, columns), dense, sparse, or a data frame; y: n labels of any kind."""
        require_unmasked("y", y)
        labels = y
        try:
            X, y = self._check_data(X, y, numeric=False)
            check_classification_targets(y)
            np.unique(y)
        except (TypeError, ValueError) as error:
            if (clearer := _label_error(labels, error)) is not None:
                raise clearer from None
            raise
        X, y, weights = _with_positive_weights(X, y, sample_weight)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise requirement("y", "labels of at least two classes", f"one class, {self.classes_[:1].tolist()[0]!r}")
        two = len(self.classes_) == 2
        if not two and self.groups is not None:
            why = "make one model of each class against the others (sklearn.multiclass.OneVsRestClassifier)"
            raise requirement("groups", "None for more than two classes", repr(self.groups)[:60], why)
        self._sample(X, codes.astype(np.float64), "bernoulli" if two else "categorical", weights, self.classes_)
        intercept, slopes = self._mean_coefficients()
        if not two:
            intercept, slopes = np.append(0.0, intercept), np.concatenate([np.zeros((1, slopes.shape[1])), slopes])
        self.intercept_, self.coef_ = intercept, slopes
        return self

    @_with_keyword_advice
    def predict_proba(self, X: Input, return_std: bool = False) -> Any:
        """Probabilities of the classes (rows, classes), averaged over the draws: those of the posterior predictive.

        With return_std also their standard deviations over the draws: what is not known of the probabilities.
        """
        X = self._check_rows(X)
        if boolean("return_std", return_std):
            prediction = self._predictions(X, _DRAWS).summarise(())
            return _for_both_classes(prediction.mean), _for_both_classes(prediction.sd, 0.0)
        return _for_both_classes(np.concatenate(list(self._mean_blocks(X))))

    @_with_keyword_advice
    def predict_interval(self, X: Input, level: float = 0.9) -> Array:
        """(rows, classes, 2): between these two the probability of a class lies with probability `level`."""
        ends = self._predictions(self._check_rows(X), _DRAWS).summarise(interval_ends(level)).quantiles
        if ends.ndim == 2:
            ends = np.stack([1 - ends[::-1], ends], axis=2)
        return np.ascontiguousarray(np.moveaxis(ends, 0, 2))

    def decision_function(self, X: Input) -> Array:
        """How far each row leans to a class, as scikit-learn's tools rank rows by it: of two classes the log odds of
        the second (rows,), log E[1/(1 + e⁻ᵗ)] − log E[1/(1 + eᵗ)] over the draws of its linear predictor t; of more
        `predict_log_proba`. Probabilities are those of `predict_proba`, here without rounding near 0 and 1.
        """
        X = self._check_rows(X)
        if len(self.classes_) > 2:
            return self.predict_log_proba(X)
        predictions = self._predictions(X, _DRAWS)
        sides = [[_log_mean(-np.logaddexp(0.0, -side)) for side in (t, -t)] for _, t, _ in predictions.predictors()]
        return np.concatenate([second - first for second, first in sides])

    def predict_log_proba(self, X: Input) -> Array:
        """The logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))

    @_with_keyword_advice
    def predict(self, X: Input) -> Values:
        """The class of the largest probability."""
        places = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[places])

    def _as_labels(self, y: Array) -> Values:
        return np.asarray(self.classes_[y.astype(np.int64)])


class _Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Regressions of numbers: the mean of a new y, its standard deviation and intervals."""

    @_with_keyword_advice
    def predict(self, X: Input, return_std: bool = False) -> Any:
        """The mean of a new y at each row; with return_std also the standard deviation of a new y there.

        That deviation has both parts, what is not known of the coefficients and how y varies about its mean, as that of
        `sklearn.linear_model.BayesianRidge`.
        """
        X = self._check_rows(X)
        mean = self._mean(X)
        return (mean, self._prediction_summary(X, ()).new_sd) if boolean("return_std", return_std) else mean

    @_with_keyword_advice
    def predict_interval(self, X: Input, level: float = 0.9) -> Array:
        """(rows, 2): between these two a new y lies with probability `level`, and as probably below as above.

        They are quantiles of one new y for each draw. For counts, which jump, the probability is at least about that.
        """
        ends = interval_ends(level)
        return np.ascontiguousarray(self._prediction_summary(self._check_rows(X), ends).new_quantiles.T)

    def _prediction_summary(self, X: Input, levels: tuple[float, ...]) -> Any:
        return self._predictions(X, _DRAWS).summarise(levels)

    def _mean(self, X: Input) -> Array:
        return np.concatenate(list(self._mean_blocks(X)))

    def _fit(self, X: Input, y: Array, family: str | Loss, weights: Array | None, **more: Any) -> Self:
        self._sample(X, y, family, weights, **more)
        intercepts, slopes = self._mean_coefficients()
        self.intercept_, self.coef_ = float(intercepts[0]), slopes[0]
        return self


class BayesianRegression(_Regressor):
    """Linear regression whose noise is unknown: y ~ N(t, σ²), or ("student-t") t + scale·Student's t of 4 degrees of
    freedom, which rows far off do not pull.

    family: "gaussian", "student-t", or svrhmc.targets.families.student_t(df) with other degrees of freedom.
    Where some coefficients fit every y exactly no row is far off, and the scale of "student-t" would lie below
    rounding: "gaussian" is fitted instead, and `posterior_.family` says so. The other parameters are those of
    `svrhmc.estimators`.

    coef_ (columns,), intercept_: posterior means. posterior_: all of the posterior; its last parameter is log σ.

    >>> import numpy as np
    >>> X = np.arange(20.0)[:, None]
    >>> y = 3 + 2 * X[:, 0] + np.random.default_rng(0).normal(size=20)
    >>> model = BayesianRegression().fit(X, y)
    >>> mean, sd = model.predict([[10.0]], return_std=True)
    >>> model.coef_.round(1), mean.round(0), sd.round(0)
    (array([2.]), array([23.]), array([1.]))
    """

    @_with_parameter_advice
    def __init__(
        self,
        *,
        family: str | Loss = "gaussian",
        fit_intercept: bool = True,
        prior: EstimatorPrior = None,
        prior_scale: float | None = None,
        groups: GroupColumns = None,
        new_groups: str = "draw",
        draws: int = 1000,
        chains: int = 4,
        tolerance: float = 0.02,
        method: Method = None,
        certificate: bool = True,
        on_undecided: str = "warn",
        budget_seconds: float | None = None,
        n_jobs: int | None = None,
        random_state: RandomState = 0,
        verbose: int | bool | None = None,
    ) -> None:
        self.family = family
        super().__init__(
            fit_intercept=fit_intercept, prior=prior, prior_scale=prior_scale, groups=groups, new_groups=new_groups,
            draws=draws, chains=chains, tolerance=tolerance, method=method, certificate=certificate,
            on_undecided=on_undecided, budget_seconds=budget_seconds, n_jobs=n_jobs, random_state=random_state,
            verbose=verbose,
        )  # fmt: skip

    @_with_keyword_advice
    def fit(self, X: Input, y: Input, sample_weight: Input = None) -> Self:
        """Sample the posterior. X: (n, columns), dense, sparse, or a data frame; y: n numbers."""
        family = self.family
        if getattr(family, "name", family) not in ("gaussian", "student-t"):
            allowed = "'gaussian', 'student-t' or svrhmc.targets.families.student_t(df)"
            raise requirement("family", allowed, repr(family), _OTHER_FAMILIES)
        X, y, weights = _with_positive_weights(*self._check_data(X, y), sample_weight)
        try:
            return self._fit(X, y, family, weights)
        except NoResidualsError:  # nothing is far off, and the law of the other family is known
            return self._fit(X, y, "gaussian", weights)

    def _mean(self, X: Input) -> Array:
        """At the means of the coefficients and effects, as the mean of y is linear in them."""
        if not isinstance(X, GroupedRows):
            return np.asarray(X @ self.coef_ + self.intercept_, np.float64)
        mean = np.asarray(X.X @ self.coef_ + self.intercept_, np.float64)
        effects = self.posterior_.group_effects
        assert effects is not None  # as there are groups
        for k, index in enumerate(X.levels.T):
            effect = effects.of_term(k).mean(axis=(0, 1))[:, 0]
            mean += np.append(effect, 0.0)[index.clip(max=len(effect))]  # 0 of levels that were not fitted
        return mean


class _Counts(_Regressor):
    """Regressions of counts, whose mean is eᵗ.

    A y between two counts is taken as partly the one and partly the other: with f its fraction, 1 − f rows of ⌊y⌋ and f
    rows of ⌈y⌉. Poisson's −log p = eᵗ − yt is linear in y, and so the same as for y itself. It makes rates right: with
    y = count/exposure and the exposure E as weight, E(eᵗ − yt) = Eeᵗ − count·t, which is the count's own likelihood.
    """

    _family: ClassVar[str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    @_with_keyword_advice
    def fit(self, X: Input, y: Input, sample_weight: Input = None, exposure: Input = None) -> Self:
        """Sample the posterior. X: (n, columns), dense, sparse, or a data frame; y: n numbers not below 0.

        exposure: one number for each row, such as the months observed: y are counts with the mean exposure·eᵗ.
        """
        X, y = self._check_data(X, y)
        self._has_exposure = exposure is not None
        offset = np.zeros(len(y)) if exposure is None else _log_exposure_by_row(exposure, len(y))
        X, both, weights = _with_positive_weights(X, np.column_stack([y, offset]), sample_weight)
        (y, offset), count = both.T, len(both)
        part = y - np.floor(y)
        between = np.flatnonzero(part)
        if len(between):
            weights = np.ones(len(y)) if weights is None else weights
            weights = np.append(weights * (1 - part), (weights * part)[between])
            X, offset = X[np.append(np.arange(len(y)), between)], np.append(offset, offset[between])
            y = np.append(np.floor(y), np.ceil(y)[between])
        more = {"count": count, "offset": None if exposure is None else offset}
        return self._fit(X, y, self._family, weights, **more)

    @_with_keyword_advice
    def predict(self, X: Input, return_std: bool = False, exposure: Input = None) -> Any:
        """The mean of a new y at each row; with return_std also the standard deviation of a new y there.

        exposure: that of the rows, one number for all of them or one for each; None: 1, so that y is a rate.
        """
        return super().predict(X if exposure is None else _WithExposure(X, exposure), return_std)

    @_with_keyword_advice
    def predict_interval(self, X: Input, level: float = 0.9, exposure: Input = None) -> Array:
        """(rows, 2): between these two a new y, a count, lies with probability `level` or a little more, and as
        probably below as above. exposure: as for `predict`.
        """
        interval: Array = super().predict_interval(X if exposure is None else _WithExposure(X, exposure), level)
        return interval

    @_with_keyword_advice
    def sample_y(self, X: Input, n_samples: int = 1, random_state: RandomState = 0, exposure: Input = None) -> Values:
        """New y at each row, (rows, n_samples): a draw of the posterior for each sample, and a y of its law.

        The rows of one sample share their coefficients, so a sample is one data set that the model takes for possible.
        exposure: as for `predict`.
        """
        return super().sample_y(X if exposure is None else _WithExposure(X, exposure), n_samples, random_state)

    @_with_keyword_advice
    def score(self, X: Input, y: Input, sample_weight: Input = None, exposure: Input = None) -> float:
        """D², the share of Poisson's deviance that is explained, as `sklearn.linear_model.PoissonRegressor` has it.

        exposure: that of the rows, as for `predict`; y are then counts. Poisson's deviance of a count y of mean Eμ is E
        times that of the rate y/E of mean μ, so this is the score of the rates with the exposures as weights, beside
        one rate for all rows. Of a model that was fitted with exposures it is required, unless y are rates with a
        sample_weight.
        """
        if exposure is None:
            if getattr(self, "_has_exposure", False) and sample_weight is None:
                raise requirement("exposure", "given to score a model that was fitted with one", None, _RATES)
            return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
        counts = np.asarray(real_array("y", y, ("rows",)), np.float64)
        size = np.exp(_log_exposure_by_row(exposure, len(counts)))
        weights = size if sample_weight is None else size * np.asarray(sample_weight, np.float64)
        return float(d2_tweedie_score(counts / size, self.predict(X), sample_weight=weights, power=1))

    def _check_rows(self, X: Input) -> Any:
        """New rows, with the exposures that came with them."""
        if not isinstance(X, _WithExposure):
            return super()._check_rows(X)
        rows = super()._check_rows(X.rows)
        return RowsWithOffset(rows, _log_exposure_by_row(X.exposure, rows.shape[0]))


def _log_exposure_by_row(exposure: Input, n: int) -> Array:
    """The logarithm of an exposure for each of n rows. exposure: one number, or one for each row."""
    values = np.asarray(exposure)
    return np.asarray(
        log_exposure(real_array("exposure", np.broadcast_to(values, n) if not values.ndim else values, (n,)))
    )


class BayesianPoissonRegression(_Counts):
    """Counts with E y = eᵗ, or E y = exposure·eᵗ; or rates (counts over exposures) with the exposures as sample_weight.

    Parameters are those of `svrhmc.estimators`.

    coef_ (columns,), intercept_: posterior means, of log E y. posterior_: all of the posterior.

    >>> import numpy as np
    >>> X = np.linspace(0, 2, 200)[:, None]
    >>> y = np.random.default_rng(0).poisson(np.exp(0.5 + X[:, 0]))
    >>> model = BayesianPoissonRegression().fit(X, y)
    >>> model.coef_.round(1), model.predict_interval([[1.0]], 0.9)
    (array([1.]), array([[1., 8.]]))
    """

    _family = "poisson"


class BayesianNegativeBinomialRegression(_Counts):
    """Counts with E y = μ = eᵗ that vary more than Poisson's: their variance is μ + μ²/φ, with φ unknown.

    Parameters are those of `svrhmc.estimators`.

    coef_ (columns,), intercept_: posterior means, of log E y. posterior_: all of the posterior; its last parameter is
    log φ.

    >>> import numpy as np
    >>> X = np.linspace(0, 2, 200)[:, None]
    >>> y = np.random.default_rng(0).negative_binomial(2, 1 / (1 + np.exp(0.5 + X[:, 0]) / 2))
    >>> BayesianNegativeBinomialRegression().fit(X, y).posterior_.names
    ('Intercept', 'x0', 'log shape')
    """

    _family = "negative-binomial"


def _seed(random_state: RandomState) -> int:
    """A whole number is the seed itself; of anything else scikit-learn's `check_random_state` makes the next one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint((1 << 31) - 1))


@contextmanager
def _clear_errors(**arguments: object) -> Iterator[None]:
    """Replace scikit-learn's error for a text or a date among the arguments by one that says where it is, and that for
    columns of one name.

    Other errors stay as they are. Rows with both inf and -inf are refused without a warning about their sum. Masked
    arrays, whose masks scikit-learn ignores, are refused at once.
    """
    for name, values in arguments.items():
        require_unmasked(name, values)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except (TypeError, ValueError) as failure:
        if type(failure).__name__ == "DuplicateError":  # of narwhals, by which scikit-learn reads names of columns
            repeated = ", ".join(re.findall(r"'.*' \d+ times", str(failure)))
            raise requirement("X", "a table whose columns have different names", repeated, "rename columns") from None
        for name, values in arguments.items():
            if (error := _first_unreadable(name, values)) is not None:
                raise error from None
        raise


def _with_positive_weights(X: Input, y: Input, sample_weight: Input) -> tuple[Input, Input, Array | None]:
    """Rows, labels and weights without rows of weight 0. The weights are None if all are 1."""
    from sklearn.utils import check_array, check_consistent_length

    if sample_weight is None:
        return X, y, None
    if isinstance(sample_weight, Real):
        sample_weight = np.full(X.shape[0], sample_weight)
    with _clear_errors(sample_weight=sample_weight):
        weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.ndim != 1:
        raise requirement("sample_weight", "one number for each row", f"shape {weights.shape}")
    check_consistent_length(X, weights)
    if (weights < 0).any():
        raise requirement("sample_weight", "numbers not below 0", f"{weights.min():g}")
    if not weights.any():
        raise requirement("sample_weight", "positive for some row", "zero for all of them")
    positive_rows = weights > 0
    if not positive_rows.all():
        X, y, weights = X[positive_rows], y[positive_rows], weights[positive_rows]
    return X, y, None if (weights == 1).all() else weights


def _first_unreadable(name: str, values: Input) -> ValueError | None:
    """The error for the first text or date among rows, a column or a list; None without any, and for sparse rows."""
    if values is None or hasattr(values, "format"):
        return None
    try:
        array = np.asarray(values, object)
    except ValueError:  # lists of unequal lengths
        return None
    columns = getattr(values, "columns", None)
    for place, value in np.ndenumerate(array):
        if (kind := _unreadable_kind(value)) is not None:
            row, *rest = place
            of_column = "".join(f" of column {j if columns is None else columns[j]!r}" for j in rest)
            remedy = _DATES if kind == "date" else _REMEDIES.get(name, "")
            return requirement(name, "numbers", f"the {kind} {str(value)!r:.40} in row {row}{of_column}", remedy)
    return None


def _label_error(y: Input, error: Exception) -> ValueError | None:
    """A clearer error for labels that are missing or cannot be sorted; None for other errors."""
    labels = np.asarray(y, object)
    values = labels.tolist() if labels.ndim == 1 else []
    kinds = sorted({type(value).__name__ for value in values if not _is_missing(value)})
    rows = [row for row, value in enumerate(values) if _is_missing(value)]
    if rows:
        given = f"none in {len(rows):,} of {len(values):,} rows (the first is row {rows[0]})"
        return requirement("y", "a label for every row", given, "leave these rows out of X and y")
    if len(kinds) > 1 and isinstance(error, TypeError):
        return requirement("y", "labels of one kind", " and ".join(kinds), "make texts of them, as by y.astype(str)")
    return None


def _is_missing(value: object) -> bool:
    """Whether a label is missing: None, nan, or a missing value of pandas."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _unreadable_kind(value: object) -> str | None:
    """What a value is that is no number: "date" or "text"; None for numbers and texts of numbers."""
    if isinstance(value, date | np.datetime64):
        return "date"
    if not isinstance(value, str):
        return None
    try:
        float(value)
    except ValueError:
        return "text"
    return None
