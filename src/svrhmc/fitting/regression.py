"""Regressions in the units of their data: `fit` from a formula and a table, `regress` from arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, VerdictWarning, one_of, positive, real_array, requirement, whole_number
from svrhmc.core.progress import Progress, stage
from svrhmc.core.serialise import is_text
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.density.glm import glm, require_groups, require_identified_spreads, require_parameter, row_weights
from svrhmc.families import family_of
from svrhmc.families.base import Classes, Loss
from svrhmc.families.distributional import with_predictors
from svrhmc.fitting.labels import Response, response_of
from svrhmc.fitting.priors import (
    INTERCEPT,
    Further,
    Priors,
    locations_and_precisions,
    prior_in_words,
    scale_names,
    units_and_priors,
    with_priors,
)
from svrhmc.fitting.standardise import (
    Scales,
    StandardReader,
    constant_column_error,
    require_dense,
    require_size,
    scales_by_piece,
    typical_of,
)
from svrhmc.fitting.update import ALL_ROWS, Carried
from svrhmc.posterior import Posterior, usual_settings
from svrhmc.priors.groups import EffectTerm
from svrhmc.priors.terms import LKJ, Prior
from svrhmc.results.advice import ARRAYS, Advice, of_formula, warn_of_verdict
from svrhmc.results.base import ROWS_KEPT, FittedRows, even_rows
from svrhmc.results.imputations import pooled
from svrhmc.results.posterior import build_posterior
from svrhmc.results.prior import Influence
from svrhmc.rows.coding import Coding, make_coding
from svrhmc.rows.csr import MatrixLike, checked_csr
from svrhmc.rows.reading import Partitions
from svrhmc.rows.sparse import is_sparse
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.run import find_answer, require_draws
from svrhmc.tables.columns import CATEGORY, Columns, column_names
from svrhmc.tables.design import Design, Designed, designed, log_exposure, parse_parameter_formulas, required_columns
from svrhmc.tables.formula import Formulas, parse_formula, parse_formulas, quote_name
from svrhmc.tables.imputed import stack_tables
from svrhmc.tables.learning import read_rows
from svrhmc.tables.partitions import OpenedTable, TableInPartitions, open_by_formula


class Regression(NamedTuple):
    """A target in standardised variables, the units of its coefficients, their names, and the priors as stated."""

    target: GeneralisedLinear
    units: Units
    names: tuple[str, ...]
    location: Array
    precision: Array
    prior_words: str
    given: bool  # whether the prior was


def fit(
    formula: str | Mapping[str, str] | Sequence[str],
    table: object,
    family: str | Loss | None = None,
    *,
    weights: str | npt.ArrayLike | None = None,
    offset: str | npt.ArrayLike | None = None,
    exposure: str | npt.ArrayLike | None = None,
    trials: str | npt.ArrayLike | None = None,
    noise_variance: float | None = None,
    prior: Prior | Mapping[str, Prior | LKJ] | Posterior | None = None,
    missing: str = "refuse",
    transforms: Mapping[str, Callable[..., object]] | None = None,
    **settings: Any,
) -> Posterior:
    """The posterior of a regression, from a formula and a table.

    formula: such as "churn ~ age + C(plan)"; texts are categories, `.` stands for all other columns, and interactions,
        arithmetic and functions such as `np.log`, `poly`, `bs` can be used (`svrhmc.tables.expressions`). There is an
        intercept unless the formula says 0. s(x) is a smooth function of x, whose smoothness is learnt
        (`svrhmc.tables.smooths`). (1 + x | school) lets the intercept and the slope of x vary by school, with
        standard deviations and correlations that are estimated too. Parameters that all rows share otherwise may have
        formulas of their own: {"y": "y ~ x", "sigma": "~ z"}, or ["y ~ x", "sigma ~ z"]. They are "sigma" of
        "gaussian", "log-normal", "weibull" and "log-logistic" (log σ is then that sum), "scale" of "student-t", "shape"
        of "gamma", "negative-binomial" and "inverse-gaussian", "concentration" of "beta" and "beta-binomial", and
        "zero" of families with zeros of their own (the log odds of a zero).
    table: a pandas, polars or pyarrow table, or a dictionary of columns; or a table in partitions
        (`svrhmc.data.from_parquet`, `from_csv`, `from_dask`), whose rows are read in passes. A list of tables are
        imputations of one that misses values: each is fitted, and their posteriors are pooled as a mixture, of which
        `posterior.imputations()` says what is missing (`svrhmc.results.imputations`).
    family: "gaussian" (the noise is unknown), "bernoulli", "binomial", "beta-binomial", "poisson",
        "negative-binomial", "geometric", "hurdle-poisson", "hurdle-negative-binomial", "zero-inflated-poisson",
        "zero-inflated-negative-binomial", "gamma", "log-normal", "inverse-gaussian", "beta", "student-t",
        "categorical", "ordinal", for times that may be censored (the response `Surv(time, event)`) "weibull",
        "exponential", "log-normal", "log-logistic", or one of `svrhmc.targets.families`; None chooses by the
        response, and `posterior.design.guessed` says why.
    weights, offset, exposure, trials: a column's name, or one number for each row (of a table in memory). Weights count
        rows; an exposure (for counts: months observed, say) is an offset of its logarithm.
    noise_variance: the variance of the noise of "gaussian", where it is known.
    prior: in the units of the data, one of `svrhmc.targets.priors` for all coefficients but the intercept, or a
        dictionary by the names of coefficients or of categories (for all of their levels), with "Intercept" for the
        intercept at the means of the columns and "sigma", "scale" or "shape" for that parameter of the family, "1 |
        school", "x | school" for the standard deviations of group effects, and "cor(school)" (`LKJ`) for their
        correlations; None: weak ones that follow the data's scale (`svrhmc.fitting.regress`). `posterior.prior` states
        all of them. Or a posterior that `fit` gave of the same formula: the rows of the table are new ones, and what
        earlier ones told is taken for a normal law of all coefficients together (`svrhmc.fitting.update`).
    missing: "refuse" rows with missing values, or "drop" them.
    transforms: functions of your own that the formula calls, by their names: {"f": f} for "y ~ f(x)". They get columns
        as pandas series, and give one number for each row (or a row of numbers). No file holds them: pass them to
        `Posterior.load` again.
    settings: those of `svrhmc.sample`, such as draws, tolerance, seed, budget_seconds, checkpoint.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> age, plan = rng.uniform(20, 70, 400), rng.choice(["basic", "pro"], 400)
    >>> odds = np.exp(-3 + 0.05 * age - (plan == "pro"))
    >>> churn = np.where(rng.random(400) < odds / (1 + odds), "yes", "no")
    >>> posterior = fit("churn ~ age + plan", {"churn": churn, "age": age, "plan": plan})
    >>> posterior.names, posterior.family
    (('Intercept', 'age', 'plan[pro]'), 'bernoulli')
    """
    one_of("missing", missing, ("refuse", "drop"))
    require_settings(fit, settings)
    special: dict[str, object] = {"weights": weights, "offset": offset, "exposure": exposure, "trials": trials}
    model = {"prior": prior, "noise_variance": noise_variance}
    formulas = parse_formulas(formula)
    if isinstance(prior, Posterior):
        if isinstance(table, Partitions):
            raise requirement("table", "rows in memory where a posterior is the prior", "partitions", ALL_ROWS)
        if formulas.further:
            raise requirement("formula", "a single one where a posterior is the prior", str(formulas), ALL_ROWS)
    if isinstance(table, Partitions):
        if formulas.further:
            why = "read the table into memory, such as by pandas, for formulas of other parameters"
            raise requirement("formula", "one where the table is in partitions", str(formulas), why)
        return _fit_partitions(formulas.main, table, family, special, model, missing == "drop", transforms, settings)
    with stage("making columns of the table", settings.get("progress")):
        prepared = prepare(formulas, table, family, special, model, missing == "drop", transforms)
    return _fitted(prepared, settings)


class Prepared(NamedTuple):
    """What becomes of a table before any scale or prior is found: rows of its columns, labels (None: the rows of
    partitions have them), how both were made, the arguments of `regression` besides, and the rows that effects are
    averaged over. tables: how many imputed ones the rows are those of, one after the other.
    """

    X: object
    y: Array | None
    design: Design
    response: Response
    given: Mapping[str, Any]
    table_rows: FittedRows | Callable[[], FittedRows]
    tables: int = 1


def prepare(
    formulas: Formulas,
    table: object,
    family: str | Loss | None,
    special: dict[str, object],
    model: Mapping[str, Any],
    drop: bool,
    transforms: Mapping[str, Callable[..., object]] | None,
) -> Prepared:
    """Of a table in memory, or of a list of imputed ones. special: weights, offset, exposure and trials. model: the
    prior and the noise variance.
    """
    prior = model["prior"]
    columns = [value for value in special.values() if isinstance(value, str)]
    tables = len(table) if isinstance(table, list | tuple) else 1
    if isinstance(table, list | tuple):
        available = column_names(table[0] if table else {})
        made = parse_formula(formulas.main, available)
        others = parse_parameter_formulas(formulas.further, made, available).values()
        table = stack_tables(table, [*required_columns(made, others), *columns], made.response.open_columns)
        special |= {word: _repeated(value, tables) for word, value in special.items()}
    carried = Carried(prior) if isinstance(prior, Posterior) else None
    learned = None if carried is None else carried.design_for(formulas.main)
    designed_table = designed(formulas.main, table, columns, drop, transforms, learned, formulas.further)
    name, survival = designed_table.design.response, designed_table.survival
    if carried is None:
        response = response_of(name, designed_table.y, family, survival=survival)
        y = response.coded(designed_table.y)
    else:
        response, y = carried.response(name, designed_table.y, family, model["noise_variance"])
    given: dict[str, Any] = {word: _numbers(word, value, designed_table) for word, value in special.items()}
    given["offset"] = _with_exposure(given["offset"], given.pop("exposure"))
    design = _described(designed_table.design, response, special, designed_table.dropped)
    needed = Columns({name: designed_table.columns[name] for name in design.variables}, designed_table.columns.n)
    counts = [_by_row(given[word], needed.n) for word in ("weights", "trials") if given[word] is not None]
    table_rows = FittedRows.of(needed, _by_row(given["offset"], needed.n), np.prod(counts, axis=0) if counts else None)
    given |= {**model, "groups": designed_table.groups}
    _require_classes(y, response, tables)
    return Prepared(designed_table.X, y, design, response, given, table_rows, tables)


class Modelled(NamedTuple):
    """The regressions of a table, one for each imputed one; advice on the words of its formula, and the names of the
    columns, by which errors about them are said.
    """

    models: list[Regression]
    advice: Advice
    columns: list[str]


def modelled(prepared: Prepared, progress: Progress = None) -> Modelled:
    """With priors by the names of the formula."""
    X, y, design, response, given, _, tables = prepared
    names = design.names
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise DataError(f"the formula makes two columns named {twice!r}: take one of them out.")
    smooths = y is not None and (response.loss.outcome != "classes" or response.loss.ordered)
    advice = of_formula({name: quote_name(name) for name in design.variables}, smooths)
    columns = [INTERCEPT] * design.intercept + list(names)
    prior = _by_column(given["prior"], design.parts, names)
    further = further_of(response.loss, design) if design.further else ()
    if further and given["noise_variance"] is not None:
        raise requirement("noise_variance", "None where sigma has a formula", given["noise_variance"])
    for own in design.further:
        called = require_parameter(response.loss, own.response).name
        parts = [(f"{called}: {term}", level) for term, level in own.parts]
        prior = _by_column(prior, parts, [f"{called}: {name}" for name in own.names])
    with stage("scales of the columns", progress), advice.speaking(columns):
        models = [
            regression(
                X, y, response.loss, names=names if y is not None else None, intercept=design.intercept,
                classes=response.classes or None, varied=True, rows=rows, further=further, **{**given, "prior": prior},
            )
            for rows in _rows_by_table(tables, len(y) if y is not None else 0)
        ]  # fmt: skip
    return Modelled(models, advice, columns)


def _fitted(prepared: Prepared, settings: Mapping[str, Any]) -> Posterior:
    """The posterior of rows in memory or in partitions, with their design."""
    models, advice, columns = modelled(prepared, settings.get("progress"))
    table_rows, tables = prepared.table_rows, prepared.tables
    kept = table_rows if isinstance(table_rows, FittedRows) else table_rows()
    with advice.speaking(columns):
        posteriors = [
            posterior_of(
                model, advice=advice, design=prepared.design, table_rows=kept, **_settings(settings, k, tables)
            )
            for k, model in enumerate(models)
        ]
        return pooled(posteriors) if tables > 1 else posteriors[0]


def _rows_by_table(tables: int, n: int) -> list[slice | None]:
    """Which of n rows are those of each table; None: all."""
    return [None] if tables == 1 else [slice(k * n // tables, (k + 1) * n // tables) for k in range(tables)]


def _require_classes(y: Array, response: Response, tables: int) -> None:
    """Refuse imputed tables of which one lacks a class that others have."""
    for k, rows in enumerate(_rows_by_table(tables, len(y)) if tables > 1 else ()):
        absent = set(range(len(response.classes))) - set(np.unique(y[rows]).astype(int).tolist())
        if absent:
            label = response.classes[min(absent)]
            raise DataError(
                f"table {k + 1} of {tables} has no row of the class {label!r}, which others have: join classes that "
                "are rare, or impute the columns alone."
            )


def _settings(settings: Mapping[str, Any], number: int, tables: int) -> dict[str, Any]:
    """Those of one of several tables: a seed and a checkpoint of its own, and its share of the budget."""
    own = dict(settings)
    if tables == 1:
        return own
    own["seed"] = whole_number("seed", own.get("seed", 0), 0, (1 << 63) - 1 - tables) + number
    for word in ("budget_seconds", "budget_passes"):
        if own.get(word) is not None:
            own[word] = positive(word, own[word]) / tables
    if own.get("checkpoint") is not None:
        own["checkpoint"] = Path(own["checkpoint"]) / f"table-{number + 1}"
    return own


def _repeated(value: Any, tables: int) -> Any:
    """What was given beside the tables, a number for each row of each of them."""
    return value if value is None or isinstance(value, str) or np.ndim(value) == 0 else np.tile(value, tables)


def _described(design: Design, response: Response, special: Mapping[str, object], dropped: int) -> Design:
    """A design that knows its labels, and where offsets, exposures and trials come from."""
    columns: dict[str, Any] = {
        word: value if isinstance(value, str) else "" for word, value in special.items() if word != "weights"
    }
    beside = {word for word, value in special.items() if value is not None and not isinstance(value, str)}
    return replace(
        design,
        intercept=design.intercept and response.loss.has_intercept,
        classes=tuple(map(str, response.classes)),
        dropped=dropped,
        guessed=response.guessed,
        notes=response.notes,
        shifted=bool(beside & {"offset", "exposure"}),
        tried="trials" in beside,
        **columns,
    ).with_transforms(design.transforms)


def _fit_partitions(
    formula: str,
    table: Partitions,
    family: str | Loss | None,
    special: dict[str, Any],
    model: Mapping[str, object],
    drop: bool,
    transforms: Mapping[str, Callable[..., object]] | None,
    settings: Mapping[str, Any],
) -> Posterior:
    if not isinstance(table, TableInPartitions):
        raise DataError(
            "rows of arrays in partitions have no columns by name, and take no formula: give them to "
            "svrhmc.fitting.regress(rows, family=…), or a table to svrhmc.data.from_parquet, from_csv or from_dask."
        )
    for word, value in special.items():
        if value is not None and not isinstance(value, str):
            raise requirement(word, "the name of a column where the table is in partitions", type(value).__name__)
    special = {word: value or table.special.get(word) for word, value in special.items()}
    if special["trials"]:
        why = "a row for each success and each failure, with the number of them as weights, has the same posterior"
        raise requirement("trials", "None where the table is in partitions", repr(special["trials"]), why)
    with stage("making columns of the table", settings.get("progress")):
        extra = [name for name in special.values() if name is not None]
        opened = open_by_formula(formula, table, extra, drop, transforms)
        label = opened.parsed_formula.response
        response = response_of(label.text, opened.y, family, opened.columns.n, opened.ends, label.survival)
        columns = {word: special[word] for word in ("offset", "exposure", "weights")}
        rows, plain = opened.rows(response.levels, columns)
    design = _described(plain, response, special, opened.dropped)

    def table_rows() -> FittedRows:
        return _some_rows(opened, design, columns)

    return _fitted(Prepared(rows, None, design, response, model, table_rows), settings)


def _some_rows(opened: OpenedTable, design: Design, special: Mapping[str, str | None]) -> FittedRows:
    """Some rows of all partitions, for average effects."""
    places, heads = even_rows(opened.columns.n, ROWS_KEPT, 0), opened.columns
    columns = read_rows(opened.table, opened.sizes, list(heads.by_name), places)
    numbers = {word: None if name is None else columns[name].values for word, name in special.items()}
    some = {name: replace(columns[name], levels=heads[name].levels) for name in design.variables}
    offset = _with_exposure(numbers["offset"], numbers["exposure"])
    return FittedRows(Columns(some, len(places)), offset, numbers["weights"], heads.n)


def regress(
    X: object,
    y: npt.ArrayLike | None = None,
    family: str | Loss = "gaussian",
    *,
    names: Sequence[str] | None = None,
    intercept: bool = True,
    trials: npt.ArrayLike | None = None,
    offset: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    prior: Prior | Mapping[str, Prior | LKJ] | Posterior | None = None,
    noise_variance: float | None = None,
    groups: Sequence[EffectTerm] = (),
    **settings: Any,
) -> Posterior:
    """The posterior of a regression on arrays, in the units of X and y.

    X: (n, columns), dense or CSR, without a column for the intercept; or rows in partitions (`svrhmc.data`), which have
        y, offset and weights among their columns.
    y: n labels of the family.
    family: its name, or one of `svrhmc.targets.families`.
    names: the names of the columns; x0, x1, … if None.
    intercept: whether there is one.
    trials, offset, weights: as `svrhmc.targets.glm` takes them.
    prior: the prior of the coefficients, in the units of the data: one of `svrhmc.targets.priors` for all of them but
        the intercept, or a dictionary by name, with "Intercept" for the intercept at the centre of the columns, and
        "sigma", "scale" or "shape" ("log sigma", … for the logarithm) for what all rows share, and "1 | school" and
        "cor(school)" for groups, as in `fit`. None, and whatever the dictionary does not name, stands for weakly
        informative priors that follow the scale of the data.
    noise_variance: the variance of the noise of "gaussian", if it is known.
    groups: effects that vary by the levels of grouping factors (`svrhmc.targets.Group`), and smooths (`Smooth`).
    settings: those of `svrhmc.sample`.

    >>> posterior = regress([[1.0], [2.0], [3.0], [4.0]], [301.0, 302.0, 303.5, 303.9], names=["dose"])
    >>> posterior.names
    ('Intercept', 'dose', 'log sigma')
    """
    require_settings(regress, settings)
    with ARRAYS.speaking(_columns(X, names, intercept and family_of(family).has_intercept)):
        model = regression(
            X,
            y,
            family,
            names=names,
            intercept=intercept,
            trials=trials,
            offset=offset,
            weights=weights,
            prior=prior,
            noise_variance=noise_variance,
            groups=groups,
        )
        return posterior_of(model, **settings)


def _columns(X: MatrixLike, names: Sequence[str] | None, intercept: bool) -> list[str]:
    """Those of the target, by name."""
    given = X.reader.names if isinstance(X, Partitions) else names
    columns = [f"x{j}" for j in range(np.shape(X)[-1])] if given is None and np.ndim(X) == 2 else list(given or ())
    return [INTERCEPT] * bool(intercept) + [str(name) for name in columns]


def require_settings(door: Callable[..., Posterior], settings: Mapping[str, Any]) -> None:
    """Refuse keywords that neither a door nor `sample` has, and more draws than can be kept of a single coefficient;
    the first two parameters of a door are the data.
    """
    own, usual = tuple(signature(door).parameters)[2:-1], usual_settings()
    for word in settings:
        if word == "levels":
            family = "svrhmc.targets.families.ordinal(levels=['bad', 'fair', 'good'])"
            raise ValueError(f"{door.__name__} takes no levels=: they belong to the family, {family}.")
        one_of(f"a keyword of {door.__name__}", word, (*own, *usual))
    require_draws(**{word: settings.get(word, usual[word]) for word in ("draws", "chains", "checkpoint")})


def posterior_of(
    model: Regression,
    warning: type[Exception] = VerdictWarning,
    advice: Advice = ARRAYS,
    design: Design | None = None,
    table_rows: FittedRows | None = None,
    **settings: object,
) -> Posterior:
    """Sample it, with the settings of `svrhmc.sample` (`require_settings`); warning: of a verdict that is open, or the
    error for it; advice: in the words of the door. design, table_rows: of a table.
    """
    answer, cost = find_answer(model.target, model.units, **{**usual_settings(), **settings})
    own = answer.trace.draws[..., : model.units.dim]  # without standard deviations and correlations of groups
    heavy, mean = model.target.heavy, model.units.inward(answer.mean[: model.units.dim])
    precision = model.precision if heavy is None else heavy.equivalent(mean, model.precision)
    posterior = build_posterior(
        answer,
        cost,
        model.target,
        model.units,
        model.names,
        family=model.target.loss.name,
        prior=Influence.of(model.location, precision, model.units.inward(own), model.prior_words),
        given=model.given,
        design=design,
        table_rows=table_rows,
        advice=advice,
    )
    warn_of_verdict(posterior, warning)
    return posterior


def regression(
    X: Any,
    y: npt.ArrayLike | None,
    family: str | Loss,
    *,
    names: Sequence[str] | None = None,
    intercept: bool = True,
    trials: npt.ArrayLike | None = None,
    offset: npt.ArrayLike | None = None,
    weights: npt.ArrayLike | None = None,
    prior: Prior | Mapping[str, Prior | LKJ] | Posterior | None = None,
    classes: Classes | None = None,
    noise_variance: float | None = None,
    varied: bool = False,
    groups: Sequence[EffectTerm] = (),
    rows: slice | None = None,
    further: Sequence[Further] = (),
) -> Regression:
    """The target of `regress`, with all that leads back to the units of the data.

    varied: whether columns that say nothing are refused. rows: those of the target, where units and priors are learnt
    from others as well; None: all. further: the shared parameters of the family, where some have predictors of their
    own, whose columns are the last of X, without intercepts.
    """
    if isinstance(X, Partitions):
        if isinstance(prior, Posterior):
            raise requirement("prior", "no posterior where X is in partitions", repr(prior), ALL_ROWS)
        if groups:
            raise requirement("groups", "() where X is in partitions", list(groups), "read the rows into memory first")
        given = {"y": y, "names": names, "trials": trials, "offset": offset, "weights": weights}
        return _of_partitions(X, family, given, intercept, prior, noise_variance, classes)
    if y is None:
        raise requirement("y", "the labels of the rows", "None", "only partitions of svrhmc.data have them in X")
    if is_sparse(X):
        X = checked_csr(X)
    else:
        X = real_array("X", X, ("n", "columns")) if np.shape(X)[1:] != (0,) else np.empty(np.shape(X))
    n, columns = X.shape[0], X.shape[1] - sum(len(one.names) for one in further)
    carried = Carried(prior) if isinstance(prior, Posterior) else None
    known_family = family_of(family) if carried is None else carried.require_family(family, noise_variance)
    if noise_variance is not None and carried is None:
        known_family = known_family.with_noise(noise_variance)
    groups = require_groups(groups, n, known_family)
    intercept = intercept and known_family.has_intercept
    thresholds = not known_family.has_intercept  # shared parameters in the place of an intercept
    if n and thresholds and not (columns or groups):
        raise DataError(f"the family {known_family.name!r} needs a column that may explain the response.")
    if groups and n and not (columns or intercept or thresholds):
        raise DataError("effects of groups stand beside an intercept or a column: leave out the 0, or add a column.")
    if not (n and (columns or intercept or (thresholds and groups))):
        raise requirement("X", "an array with rows, and with columns where there is no intercept", f"shape {X.shape}")
    weak = None if isinstance(prior, Posterior) else prior  # what priors of single coordinates are made of
    groups, weak = with_priors(groups, weak)
    loss, label, own_classes = known_family.coded(y)
    labels = own_classes if classes is None else classes
    observed = loss.observed(label, n, trials)
    require_identified_spreads(groups, loss, weights is not None, observed.counts)
    plain = weights is None and observed.counts is None
    count = _counted(weights, observed.counts, n)
    shift = np.zeros(n) if offset is None else np.asarray(real_array("offset", offset, (n,)), np.float64)
    names = tuple(f"x{j}" for j in range(columns)) if names is None else tuple(map(str, names))
    if len(names) != columns or len(set(names)) < columns:
        raise requirement("names", f"{columns} different ones, one for each column", f"{len(names)}: {names[:8]}")
    loss = loss if not further else with_predictors(
        loss, [one.width for one in further], [one.intercept for one in further],
        [one.coefficients if one.width else () for one in further],
    )  # fmt: skip
    parameters = loss.parameter_names(labels)
    for name in names:
        if name == INTERCEPT or name in parameters:
            raise DataError(f"column {name!r} has the name of another parameter of the model: rename the column.")
    for name in names:
        if not is_text(name):
            raise DataError(f"{name!r} has a control sign in it, which no file of results can hold: rename it.")
    all_names = (*names, *(f"{one.parameter.name}: {name}" for one in further for name in one.names))
    require_size(X, all_names)
    require_size(loss.centre(observed.y)[:, None], ["y"], "the response")
    require_size(shift[:, None], (), "the offset")
    typical, size = loss.typical_predictor_and_effect(observed.y, count, shift)
    centred = intercept or not loss.has_intercept
    ends = np.cumsum([0, columns, *(len(one.names) for one in further)])
    pieces = [(slice(*ends[k : k + 2]), one) for k, one in enumerate([centred, *(one.intercept for one in further)])]
    scales = scales_by_piece(X, None if plain else count, pieces)
    if varied and carried is None:
        alike = scales if plain else scales_by_piece(X, None, pieces)
        for some, one in pieces:
            _require_varied(X[:, some], all_names[some], one, alike.of(some))
    units, priors, shared = units_and_priors(
        loss, scales, names, parameters, typical, size, intercept, weak, scale_names(groups), further
    )
    coupled: dict[str, Any] = {}
    if carried is not None:
        if groups:
            raise requirement("groups", "() where a posterior is the prior", list(groups), ALL_ROWS)
        carried.require_columns(names, intercept)
        single, term = carried.priors()
        units, priors, shared = carried.units, [*single[: len(priors)]], [*single[len(priors) :]] or None
        coupled = {"terms": [term]}
    by_offset = loss.identity_link and intercept
    some = slice(None) if rows is None else rows
    chosen = groups if rows is None else [group.chosen(np.arange(n)[rows]) for group in groups]
    grouped: dict[str, Any] = {"groups": chosen} if groups else {}
    target = glm(
        units.rows(X[some]),
        np.asarray(label)[some],
        loss,
        trials=trials if trials is None or np.ndim(trials) == 0 else np.asarray(trials)[some],
        offset=(shift + units.response)[some] if by_offset or offset is not None else None,
        weights=None if weights is None else np.asarray(weights)[some],
        prior=priors,
        shared_prior=shared,
        **grouped,
        **coupled,
    )
    made = _regression(target, units, names, labels, priors, shared, weak)
    if carried is None:
        return made
    precision = 1 / np.diag(carried.covariance)
    return made._replace(location=carried.mean, precision=precision, prior_words=carried.words, given=True)


def further_of(loss: Loss, design: Design) -> tuple[Further, ...]:
    """The shared parameters of a family with the predictors that a design has for some; refuses others."""
    own = {require_parameter(loss, one.response).name: one for one in design.further}
    if len(own) < len(design.further):
        names = " and ".join(repr(one.response) for one in design.further)
        raise DataError(f"{names} are one parameter of {loss.name!r}: take one of their formulas out.")
    return tuple(
        Further(parameter, own[parameter.name].names, own[parameter.name].intercept)
        if parameter.name in own and own[parameter.name].names
        else Further(parameter)
        for parameter in loss.parameters
    )


def _regression(
    target: GeneralisedLinear,
    units: Units,
    names: tuple[str, ...],
    labels: Classes | None,
    priors: list[Prior],
    shared: list[Prior] | None,
    prior: Priors,
) -> Regression:
    location, precision = locations_and_precisions(priors, target.loss, shared)
    named, parameters = _names(names, units.intercept, target.loss, labels), target.loss.parameter_names(labels)
    named = (*named, *target.covariance_names)
    words = prior_in_words(
        prior, target.loss, priors[0] if units.intercept else None, units.response, parameters, shared
    )
    words = "; ".join([words, *(term.group.prior_words() for term in target.group_terms)])
    given = prior is not None and not (isinstance(prior, Prior) and prior.by_data)
    return Regression(target, units, named, location, precision, words, given)


def _of_partitions(
    data: Partitions,
    family: str | Loss,
    given: Mapping[str, object],
    intercept: bool,
    prior: Priors,
    noise: float | None,
    classes: Classes | None,
) -> Regression:
    """The same for rows in partitions, which have labels, offsets and weights themselves."""
    for name, value in given.items():
        if value is not None:
            why = "the partitions have it themselves: say which column it is when you open them"
            raise requirement(name, "None where X is in partitions", type(value).__name__, why)
    require_dense(data.reader)
    loss = family_of(family)
    loss = loss if noise is None else loss.with_noise(noise)
    if classes is None:
        coding, classes = make_coding(data, loss)
    else:
        coding = _numbered(loss, len(classes))
    intercept = intercept and loss.has_intercept
    centred, parameters = intercept or not loss.has_intercept, coding.loss.parameter_names(classes)
    scales, typical, size, least, most = typical_of(data, coding, centred)
    if centred and scales.constant.any():
        j = int(np.argmax(scales.constant))
        raise constant_column_error(data.reader.names[j], float(least[j]), float(most[j]))
    units, priors, shared = units_and_priors(
        coding.loss, scales, data.reader.names, parameters, typical, size, intercept, prior
    )
    target = glm(
        data.with_reader(StandardReader(data.reader, units)), None, coding.loss, prior=priors, shared_prior=shared
    )
    return _regression(target, units, data.reader.names, classes, priors, shared, prior)


def _numbered(loss: Loss, classes: int) -> Coding:
    """Of labels that are the numbers of their classes."""
    numbers = np.arange(classes, dtype=np.float64)
    coded = loss.coded(numbers)
    return Coding(coded.loss, numbers, coded.loss.observed(coded.y, classes).y)


def _require_varied(X: MatrixLike, names: Sequence[str], intercept: bool, scales: Scales) -> None:
    """Refuse columns that say nothing: constant ones beside an intercept, and those that repeat another."""
    if intercept and scales.constant.any():
        j = int(np.argmax(scales.constant))
        column = X[:, j].toarray() if hasattr(X, "format") else X[:, j]
        raise constant_column_error(names[j], float(column.min()), float(column.max()))
    if hasattr(X, "format") or X.shape[1] > _LOOKED:
        return
    few = X[:: max(1, len(X) // _ROWS)]
    away = few - few.mean(axis=0) * intercept
    standard = away / np.maximum(np.sqrt((away**2).mean(axis=0)), 1e-300)
    alike = np.abs(standard.T @ standard / len(few))
    np.fill_diagonal(alike, 0.0)
    for i, j in zip(*np.nonzero(np.triu(alike > 1 - 1e-12)), strict=True):
        a, b = np.asarray(X[:, i], np.float64), np.asarray(X[:, j], np.float64)
        a, b = (a - a[0], b - b[0]) if intercept else (a, b)
        ratio = scales.scale[j] / scales.scale[i] * np.sign((standard[:, i] * standard[:, j]).sum())
        if np.allclose(a * ratio, b, rtol=1e-9, atol=1e-9 * scales.scale[j]):
            raise DataError(f"column {names[j]!r} repeats column {names[i]!r}: leave one of them out.")


_MOST_WEIGHT = 1e18  # of all rows together
_LOOKED, _ROWS = 2000, 2000  # columns up to which, and rows by which, columns are compared with each other


def _counted(weights: npt.ArrayLike | None, counts: Array | None, n: int) -> Array:
    """How many rows each row counts as: its weight times the observations that its label stands for."""
    with np.errstate(over="ignore"):
        count = row_weights(weights, counts, n)
        if count is None:
            return np.ones(n)
        total = float(count.sum())
    if not total < _MOST_WEIGHT:
        allowed, why = f"numbers with a sum below {_MOST_WEIGHT:g}", "a row of weight w counts as w rows"
        raise requirement("weights", allowed, f"a sum of {total:g}", why)
    return count


def _with_exposure(offset: npt.ArrayLike | None, exposure: npt.ArrayLike | None) -> Any:
    """offset + log exposure; refuses exposures that are not above 0."""
    if exposure is None:
        return offset
    return log_exposure(exposure) + (0.0 if offset is None else np.asarray(offset, np.float64))


def _by_column(prior: Priors, parts: Sequence[tuple[str, str]], names: Sequence[str]) -> Priors:
    """A dictionary in which the prior of a category is that of each of its levels that has none of its own."""
    if not isinstance(prior, Mapping):
        return prior
    terms = {term for term, _ in parts} - set(names)
    by_term = {name: prior[term] for name, (term, _) in zip(names, parts, strict=True) if term in terms & set(prior)}
    return {**by_term, **{name: own for name, own in prior.items() if name not in terms}}


def _by_row(value: npt.ArrayLike | None, n: int) -> Any:
    """One number for each row."""
    return None if value is None else np.broadcast_to(np.asarray(value, np.float64), n)


def _numbers(word: str, value: Any, table: Designed) -> Any:
    """A column of the table, or what was given beside it, without the rows that were dropped."""
    if value is None:
        return None
    if isinstance(value, str):
        if table.extra[value].kind == CATEGORY:
            raise DataError(f"the column {value!r} of {word} must hold numbers; got texts.")
        return np.asarray(table.extra[value].values, np.float64)
    array = real_array(word, value, (len(table.kept),)) if np.ndim(value) else value
    return array[table.kept] if np.ndim(array) else array


def _names(columns: tuple[str, ...], intercept: bool, loss: Loss, classes: Classes | None) -> tuple[str, ...]:
    block = ([INTERCEPT] if intercept else []) + list(columns)
    if loss.blocks == 1:
        return (*block, *loss.parameter_names(classes))
    labels = tuple(map(str, range(loss.blocks + 1))) if classes is None else tuple(map(str, classes))
    return tuple(f"{label}: {name}" for label in labels[1:] for name in block)
