"""Regressions in the units of their data: `fit` from a formula and a table, `regress` from arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import (
    DataError,
    VerdictWarning,
    did_you_mean,
    explain_foreign_keywords,
    one_of,
    positive,
    real_array,
    requirement,
    whole_number,
)
from svrhmc.core.progress import Progress, stage
from svrhmc.core.serialise import is_text
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.density.glm import glm, require_groups, require_identified_spreads, require_parameter, row_weights
from svrhmc.families import family_of
from svrhmc.families.base import Classes, Loss
from svrhmc.families.distributional import with_predictors
from svrhmc.fitting.labels import Response, read_response
from svrhmc.fitting.priors import (
    INTERCEPT,
    FurtherParameter,
    Priors,
    locations_and_precisions,
    prior_in_words,
    scale_names,
    units_and_priors,
    with_given_priors,
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
from svrhmc.fitting.update import ALL_ROWS, EarlierPosterior
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
from svrhmc.tables.formula import Formulas, parse_formula, parse_formulas, quote_name, split_offsets
from svrhmc.tables.imputed import stack_tables
from svrhmc.tables.learning import read_rows
from svrhmc.tables.partitions import OpenedTable, TableInPartitions, open_by_formula
from svrhmc.tables.terms import notes_on_spelling


class Regression(NamedTuple):
    """A target in standardised variables, with the units and the names of its coefficients.

    location, precision: of the priors of the standardised coefficients. prior_words: the priors in words.
    """

    target: GeneralisedLinear
    units: Units
    names: tuple[str, ...]
    location: Array
    precision: Array
    prior_words: str
    prior_given: bool  # whether the user gave a prior


@explain_foreign_keywords(data="table", df="table", priors="prior")
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
    row_values = {"weights": weights, "offset": offset, "exposure": exposure, "trials": trials}
    formulas, row_values = take_offsets(parse_formulas(formula), row_values)
    request = ModelRequest(formulas, family, row_values, prior, noise_variance, missing == "drop", transforms)
    if isinstance(prior, Posterior):
        if isinstance(table, Partitions):
            raise requirement("table", "rows in memory where a posterior is the prior", "partitions", ALL_ROWS)
        if formulas.further:
            raise requirement("formula", "a single one where a posterior is the prior", str(formulas), ALL_ROWS)
    if isinstance(table, Partitions):
        if formulas.further:
            why = "read the table into memory, such as by pandas, for formulas of other parameters"
            raise requirement("formula", "one where the table is in partitions", str(formulas), why)
        return _fit_partitions(table, request, settings)
    with stage("making columns of the table", settings.get("progress")):
        prepared = prepare(table, request)
    return _sample_prepared(prepared, settings)


def take_offsets(formulas: Formulas, row_values: Mapping[str, Any]) -> tuple[Formulas, dict[str, Any]]:
    """Formulas without offset(…), whose column is then that of the offset or the exposure."""
    main, columns = split_offsets(formulas.main)
    for word, name in columns.items():
        if row_values[word] is not None:
            raise requirement(word, "given once", f"offset(…) of {name!r} in the formula too")
    for word in ("offset", "exposure"):
        text = row_values[word]
        if isinstance(text, str) and (within := re.fullmatch(r"(?:np\.)?log\((.+)\)", text)):
            why = f"the logarithm of a column is exposure={within[1].strip()!r}"
            raise requirement(word, "the name of a column", repr(text), why)
    return formulas._replace(main=main), {**row_values, **columns}


class ModelRequest(NamedTuple):
    """The model that a caller of `fit` or `design` asks for.

    row_values: weights, offset, exposure and trials, each the name of a column, numbers, or None. drop: whether rows
    with missing values are left out.
    """

    formulas: Formulas
    family: str | Loss | None
    row_values: Mapping[str, Any]
    prior: Any  # of `Priors`, or a posterior
    noise_variance: float | None
    drop: bool
    transforms: Mapping[str, Callable[..., object]] | None


class Prepared(NamedTuple):
    """A table and its design, before scales and priors are found.

    X: the design matrix. y: the labels; None for rows in partitions, which hold their labels. response: how the labels
    are coded. arguments: further arguments of `build_regression`. table_rows: the rows that effects are averaged over.
    tables: how many imputed tables the rows come from, one table after the other.
    """

    X: object
    y: Array | None
    design: Design
    response: Response
    arguments: Mapping[str, Any]
    table_rows: FittedRows | Callable[[], FittedRows]
    tables: int = 1


def prepare(table: object, request: ModelRequest) -> Prepared:
    """Make the design and the rows of a table in memory, or of a list of imputed tables."""
    formulas, prior, row_values = request.formulas, request.prior, dict(request.row_values)
    columns = [value for value in row_values.values() if isinstance(value, str)]
    tables = len(table) if isinstance(table, list | tuple) else 1
    if isinstance(table, list | tuple):
        available = column_names(table[0] if table else {})
        main = parse_formula(formulas.main, available)
        parameters = parse_parameter_formulas(formulas.further, main, available).values()
        table = stack_tables(table, [*required_columns(main, parameters), *columns], main.response.open_columns)
        row_values = {word: _repeat_for_tables(value, tables) for word, value in row_values.items()}
    earlier = EarlierPosterior(prior) if isinstance(prior, Posterior) else None
    learned = None if earlier is None else earlier.design_for(formulas.main)
    made = designed(formulas.main, table, columns, request.drop, request.transforms, learned, formulas.further)
    if earlier is None:
        response = _read_response(made, request)
        y = response.codes(made.y)
    else:
        response, y = earlier.response(made.design.response, made.y, request.family, request.noise_variance)
    arguments: dict[str, Any] = {word: _numbers_of_argument(word, value, made) for word, value in row_values.items()}
    arguments["offset"] = _offset_with_exposure(arguments["offset"], arguments.pop("exposure"))
    notes = (*notes_on_spelling(made.columns, [*made.design.variables, made.design.response]), *response.notes)
    design = _complete_design(made.design, response, row_values, made.dropped, notes)
    n = made.columns.n
    needed = Columns({name: made.columns[name] for name in design.variables}, n)
    counts = [_number_by_row(arguments[word], n) for word in ("weights", "trials") if arguments[word] is not None]
    offset = _number_by_row(arguments["offset"], n)
    weights = np.prod(counts, axis=0) if counts else None
    table_rows = FittedRows.of(needed, offset, weights, np.flatnonzero(made.kept))
    arguments |= {"prior": prior, "noise_variance": request.noise_variance, "groups": made.groups}
    _require_classes(y, response, tables)
    return Prepared(made.X, y, design, response, arguments, table_rows, tables)


def _read_response(made: Designed, request: ModelRequest) -> Response:
    """How the labels are coded. Trials that are given make a binomial family, where none is named."""
    in_trials = request.family is None and request.row_values["trials"] is not None
    family = "binomial" if in_trials else request.family
    response = read_response(made.design.response, made.y, family, survival=made.survival)
    return response._replace(guessed="its rows have trials") if in_trials else response


class TableModels(NamedTuple):
    """The regression of a table, or one for each imputed table. advice, columns: to say errors in the words of the
    formula, by the names of the columns.
    """

    models: list[Regression]
    advice: Advice
    columns: list[str]


def build_models(prepared: Prepared, progress: Progress = None) -> TableModels:
    """The regressions of a table, with scales and priors. Priors go by the names of the formula."""
    X, y, design, response, arguments, _, tables = prepared
    names = design.names
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise DataError(f"the formula makes two columns named {twice!r}: take one of them out.")
    smooths = y is not None and (response.loss.outcome != "classes" or response.loss.ordered)
    advice = of_formula({name: quote_name(name) for name in design.variables}, smooths)
    columns = [INTERCEPT] * design.intercept + list(names)
    prior = _prior_by_column(arguments["prior"], design.parts, names)
    further = further_parameters(response.loss, design) if design.further else ()
    if further and arguments["noise_variance"] is not None:
        raise requirement("noise_variance", "None where sigma has a formula", arguments["noise_variance"])
    for parameter in design.further:
        parameter_name = require_parameter(response.loss, parameter.response).name
        parts = [(f"{parameter_name}: {term}", level) for term, level in parameter.parts]
        prior = _prior_by_column(prior, parts, [f"{parameter_name}: {name}" for name in parameter.names])
    with stage("scales of the columns", progress), advice.speaking(columns):
        models = [
            build_regression(
                X, y, response.loss, names=names if y is not None else None, intercept=design.intercept,
                classes=response.classes or None, require_informative=True, rows=rows, further=further,
                **{**arguments, "prior": prior},
            )
            for rows in _rows_by_table(tables, len(y) if y is not None else 0)
        ]  # fmt: skip
    return TableModels(models, advice, columns)


def _sample_prepared(prepared: Prepared, settings: Mapping[str, Any]) -> Posterior:
    """Sample the regressions of a table. The posteriors of imputed tables are pooled."""
    try:
        return _sample_interruptibly(prepared, settings)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # without the frames of the sampler, which say nothing to who interrupts


def _sample_interruptibly(prepared: Prepared, settings: Mapping[str, Any]) -> Posterior:
    models, advice, columns = build_models(prepared, settings.get("progress"))
    tables = prepared.tables
    table_rows = prepared.table_rows if isinstance(prepared.table_rows, FittedRows) else prepared.table_rows()
    with advice.speaking(columns):
        posteriors = [
            sample_regression(
                model,
                advice=advice,
                design=prepared.design,
                table_rows=table_rows,
                **_settings_of_table(settings, k, tables),
            )
            for k, model in enumerate(models)
        ]
        return pooled(posteriors) if tables > 1 else posteriors[0]


def _rows_by_table(tables: int, n: int) -> list[slice | None]:
    """Which of n rows belong to each table; [None] if there is one table."""
    return [None] if tables == 1 else [slice(k * n // tables, (k + 1) * n // tables) for k in range(tables)]


def _require_classes(y: Array, response: Response, tables: int) -> None:
    """Refuse an imputed table without a class that other tables have."""
    for k, rows in enumerate(_rows_by_table(tables, len(y)) if tables > 1 else ()):
        absent = set(range(len(response.classes))) - set(np.unique(y[rows]).astype(int).tolist())
        if absent:
            label = response.classes[min(absent)]
            raise DataError(
                f"table {k + 1} of {tables} has no row of the class {label!r}, which others have: join classes that "
                "are rare, or impute the columns alone."
            )


def _settings_of_table(settings: Mapping[str, Any], number: int, tables: int) -> dict[str, Any]:
    """The settings for one of several tables: its own seed and checkpoint, and its share of the budgets."""
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


def _repeat_for_tables(value: Any, tables: int) -> Any:
    """An argument with a number for each row of a table, repeated for each table."""
    return value if value is None or isinstance(value, str) or np.ndim(value) == 0 else np.tile(value, tables)


def _complete_design(
    design: Design, response: Response, row_values: Mapping[str, object], dropped: int, notes: tuple[str, ...]
) -> Design:
    """The design with the classes of its labels, and with the columns of offsets, exposures and trials."""
    columns: dict[str, Any] = {word: value if isinstance(value, str) else "" for word, value in row_values.items()}
    as_numbers = {word for word, value in row_values.items() if value is not None and not isinstance(value, str)}
    return replace(
        design,
        intercept=design.intercept and response.loss.has_intercept,
        classes=tuple(map(str, response.classes)),
        dropped=dropped,
        guessed=response.guessed,
        notes=notes,
        shifted=bool(as_numbers & {"offset", "exposure"}),
        tried="trials" in as_numbers,
        weighted=row_values["weights"] is not None,
        **columns,
    ).with_transforms(design.transforms)


def _fit_partitions(table: Partitions, request: ModelRequest, settings: Mapping[str, Any]) -> Posterior:
    if not isinstance(table, TableInPartitions):
        raise DataError(
            "rows of arrays in partitions have no columns by name, and take no formula: give them to "
            "svrhmc.fitting.regress(rows, family=…), or a table to svrhmc.data.from_parquet, from_csv or from_dask."
        )
    for word, value in request.row_values.items():
        if value is not None and not isinstance(value, str):
            raise requirement(word, "the name of a column where the table is in partitions", type(value).__name__)
    columns = {word: value or table.special.get(word) for word, value in request.row_values.items()}
    if columns["trials"]:
        why = "a row for each success and each failure, with the number of them as weights, has the same posterior"
        raise requirement("trials", "None where the table is in partitions", repr(columns["trials"]), why)
    with stage("making columns of the table", settings.get("progress")):
        extra = [name for name in columns.values() if name is not None]
        opened = open_by_formula(request.formulas.main, table, extra, request.drop, request.transforms)
        label = opened.parsed_formula.response
        response = read_response(label.text, opened.y, request.family, opened.columns.n, opened.ends, label.survival)
        rows, plain_design = opened.rows(response.levels, columns)
    notes = (*notes_on_spelling(opened.columns, [*plain_design.variables, plain_design.response]), *response.notes)
    design = _complete_design(plain_design, response, columns, opened.dropped, notes)
    arguments = {"prior": request.prior, "noise_variance": request.noise_variance}

    def table_rows() -> FittedRows:
        return _rows_for_effects(opened, design, columns)

    return _sample_prepared(Prepared(rows, None, design, response, arguments, table_rows), settings)


def _rows_for_effects(opened: OpenedTable, design: Design, columns_of: Mapping[str, str | None]) -> FittedRows:
    """Rows from all partitions, over which effects are averaged. columns_of: the columns of offset, exposure and
    weights.
    """
    places, heads = even_rows(opened.columns.n, ROWS_KEPT, 0), opened.columns
    columns = read_rows(opened.table, opened.sizes, list(heads.by_name), places)
    numbers = {word: None if name is None else columns[name].values for word, name in columns_of.items()}
    with_levels = {name: replace(columns[name], levels=heads[name].levels) for name in design.variables}
    offset = _offset_with_exposure(numbers["offset"], numbers["exposure"])
    return FittedRows(Columns(with_levels, len(places)), offset, numbers["weights"], heads.n)


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
    with ARRAYS.speaking(_names_of_coefficients(X, names, intercept and family_of(family).has_intercept)):
        model = build_regression(
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
        return sample_regression(model, **settings)


def _names_of_coefficients(X: MatrixLike, names: Sequence[str] | None, intercept: bool) -> list[str]:
    """The names of the coefficients, for errors."""
    names = X.reader.names if isinstance(X, Partitions) else names
    columns = [f"x{j}" for j in range(np.shape(X)[-1])] if names is None and np.ndim(X) == 2 else list(names or ())
    return [INTERCEPT] * bool(intercept) + [str(name) for name in columns]


def require_settings(function: Callable[..., Posterior], settings: Mapping[str, Any]) -> None:
    """Refuse keywords that neither a function (`fit` or `regress`) nor `sample` has, and more draws than fit into
    memory for a single coefficient. The first two parameters of the function are the data.
    """
    own, usual = tuple(signature(function).parameters)[2:-1], usual_settings()
    for word in settings:
        if word == "levels":
            family = "svrhmc.targets.families.ordinal(levels=['bad', 'fair', 'good'])"
            raise ValueError(f"{function.__name__} takes no levels=: they belong to the family, {family}.")
        if word not in (*own, *usual):
            allowed = "one of " + ", ".join(map(repr, (*own, *usual)))
            hint = did_you_mean(word, (*own, *usual), 0.7)
            raise requirement(f"a keyword of {function.__name__}", allowed, repr(word), hint)
    require_draws(**{word: settings.get(word, usual[word]) for word in ("draws", "chains", "checkpoint")})


def sample_regression(
    model: Regression,
    warning: type[Exception] = VerdictWarning,
    advice: Advice = ARRAYS,
    design: Design | None = None,
    table_rows: FittedRows | None = None,
    **settings: object,
) -> Posterior:
    """Sample a regression with the settings of `svrhmc.sample`.

    warning: the warning, or the error, for a verdict that is open. advice: says what to do in the words of the function
    that was called. design, table_rows: of a table.
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
        given=model.prior_given,
        design=design,
        table_rows=table_rows,
        advice=advice,
    )
    warn_of_verdict(posterior, warning)
    return posterior


def build_regression(
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
    require_informative: bool = False,
    groups: Sequence[EffectTerm] = (),
    rows: slice | None = None,
    further: Sequence[FurtherParameter] = (),
) -> Regression:
    """The regression of arrays: a target in standardised variables, and what leads back to the units of the data.

    require_informative: whether to refuse columns that are constant or repeat another. rows: the rows of the target;
    units and priors are found from all rows of X. None: all. further: the shared parameters of the family, if some have
    predictors of their own; the columns of these come last in X, without intercepts.
    """
    if isinstance(X, Partitions):
        if isinstance(prior, Posterior):
            raise requirement("prior", "no posterior where X is in partitions", repr(prior), ALL_ROWS)
        if groups:
            raise requirement("groups", "() where X is in partitions", list(groups), "read the rows into memory first")
        held_by_rows = {"y": y, "names": names, "trials": trials, "offset": offset, "weights": weights}
        return _regression_of_partitions(X, family, held_by_rows, intercept, prior, noise_variance, classes)
    if y is None:
        raise requirement("y", "the labels of the rows", "None", "only partitions of svrhmc.data have them in X")
    if is_sparse(X):
        X = checked_csr(X)
    else:
        X = real_array("X", X, ("n", "columns")) if np.shape(X)[1:] != (0,) else np.empty(np.shape(X))
    n, columns = X.shape[0], X.shape[1] - sum(len(parameter.names) for parameter in further)
    earlier = EarlierPosterior(prior) if isinstance(prior, Posterior) else None
    loss = family_of(family) if earlier is None else earlier.require_family(family, noise_variance)
    if noise_variance is not None and earlier is None:
        loss = loss.with_noise(noise_variance)
    groups = require_groups(groups, n, loss)
    intercept = intercept and loss.has_intercept
    thresholds = not loss.has_intercept  # shared parameters in the place of an intercept
    if n and thresholds and not (columns or groups):
        raise DataError(f"the family {loss.name!r} needs a column that may explain the response.")
    if groups and n and not (columns or intercept or thresholds):
        raise DataError("effects of groups stand beside an intercept or a column: leave out the 0, or add a column.")
    if not (n and (columns or intercept or (thresholds and groups))):
        raise requirement("X", "an array with rows, and with columns where there is no intercept", f"shape {X.shape}")
    groups, coefficient_prior = with_given_priors(groups, None if isinstance(prior, Posterior) else prior)
    loss, coded_y, classes_of_y = loss.coded(y)
    classes = classes_of_y if classes is None else classes
    observed = loss.observed(coded_y, n, trials)
    require_identified_spreads(groups, loss, weights is not None, observed.counts)
    unweighted = weights is None and observed.counts is None
    count = _row_counts(weights, observed.counts, n)
    offsets = np.zeros(n) if offset is None else np.asarray(real_array("offset", offset, (n,)), np.float64)
    names = tuple(f"x{j}" for j in range(columns)) if names is None else tuple(map(str, names))
    if len(names) != columns or len(set(names)) < columns:
        raise requirement("names", f"{columns} different ones, one for each column", f"{len(names)}: {names[:8]}")
    if further:
        loss = with_predictors(
            loss, [parameter.width for parameter in further], [parameter.intercept for parameter in further],
            [parameter.coefficients if parameter.width else () for parameter in further],
        )  # fmt: skip
    parameters = loss.parameter_names(classes)
    for name in names:
        if name == INTERCEPT or name in parameters:
            raise DataError(f"column {name!r} has the name of another parameter of the model: rename the column.")
    for name in names:
        if not is_text(name):
            raise DataError(f"{name!r} has a control sign in it, which no file of results can hold: rename it.")
    all_names = (*names, *(f"{own.parameter.name}: {name}" for own in further for name in own.names))
    require_size(X, all_names)
    require_size(loss.centre(observed.y)[:, None], ["y"], "the response")
    require_size(offsets[:, None], (), "the offset")
    typical, size = loss.typical_predictor_and_effect(observed.y, count, offsets)
    # the columns of each predictor, and whether they are centred
    ends = np.cumsum([0, columns, *(len(parameter.names) for parameter in further)])
    centred = [intercept or not loss.has_intercept, *(parameter.intercept for parameter in further)]
    pieces = [(slice(*ends[k : k + 2]), is_centred) for k, is_centred in enumerate(centred)]
    scales = scales_by_piece(X, None if unweighted else count, pieces)
    if require_informative and earlier is None:
        unweighted_scales = scales if unweighted else scales_by_piece(X, None, pieces)
        for piece, is_centred in pieces:
            _require_informative(X[:, piece], all_names[piece], is_centred, unweighted_scales.of(piece))
    units, priors, shared = units_and_priors(
        loss, scales, names, parameters, typical, size, intercept, coefficient_prior, scale_names(groups), further
    )
    options: dict[str, Any] = {}
    if earlier is not None:
        if groups:
            raise requirement("groups", "() where a posterior is the prior", list(groups), ALL_ROWS)
        earlier.require_columns(names, intercept)
        single, joint = earlier.priors()
        units, priors, shared = earlier.units, [*single[: len(priors)]], [*single[len(priors) :]] or None
        options["terms"] = [joint]
    if groups:
        options["groups"] = groups if rows is None else [group.chosen(np.arange(n)[rows]) for group in groups]
    has_offset = offset is not None or (loss.identity_link and intercept)
    chosen = slice(None) if rows is None else rows
    target = glm(
        units.rows(X[chosen]),
        np.asarray(coded_y)[chosen],
        loss,
        trials=trials if trials is None or np.ndim(trials) == 0 else np.asarray(trials)[chosen],
        offset=(offsets + units.response)[chosen] if has_offset else None,
        weights=None if weights is None else np.asarray(weights)[chosen],
        prior=priors,
        shared_prior=shared,
        **options,
    )
    regression = _regression_of_target(target, units, names, classes, priors, shared, coefficient_prior)
    if earlier is None:
        return regression
    precision = 1 / np.diag(earlier.covariance)
    return regression._replace(
        location=earlier.mean, precision=precision, prior_words=earlier.prior_words, prior_given=True
    )


def further_parameters(loss: Loss, design: Design) -> tuple[FurtherParameter, ...]:
    """The shared parameters of a family, with the predictors that a design has for some of them. Refuses predictors of
    other parameters.
    """
    designs = {require_parameter(loss, own.response).name: own for own in design.further}
    if len(designs) < len(design.further):
        names = " and ".join(repr(own.response) for own in design.further)
        raise DataError(f"{names} are one parameter of {loss.name!r}: take one of their formulas out.")
    return tuple(
        FurtherParameter(parameter, designs[parameter.name].names, designs[parameter.name].intercept)
        if parameter.name in designs and designs[parameter.name].names
        else FurtherParameter(parameter)
        for parameter in loss.parameters
    )


def _regression_of_target(
    target: GeneralisedLinear,
    units: Units,
    names: tuple[str, ...],
    labels: Classes | None,
    priors: list[Prior],
    shared: list[Prior] | None,
    prior: Priors,
) -> Regression:
    location, precision = locations_and_precisions(priors, target.loss, shared)
    named, parameters = (
        _parameter_names(names, units.intercept, target.loss, labels),
        target.loss.parameter_names(labels),
    )
    named = (*named, *target.covariance_names)
    words = prior_in_words(
        prior, target.loss, priors[0] if units.intercept else None, units.response, parameters, shared
    )
    words = "; ".join([words, *(term.group.prior_words() for term in target.group_terms)])
    prior_given = prior is not None and not (isinstance(prior, Prior) and prior.by_data)
    return Regression(target, units, named, location, precision, words, prior_given)


def _regression_of_partitions(
    data: Partitions,
    family: str | Loss,
    held_by_rows: Mapping[str, object],
    intercept: bool,
    prior: Priors,
    noise: float | None,
    classes: Classes | None,
) -> Regression:
    """The regression of rows in partitions. held_by_rows: arguments that must be None, because the rows hold labels,
    offsets and weights.
    """
    for name, value in held_by_rows.items():
        if value is not None:
            why = "the partitions have it themselves: say which column it is when you open them"
            raise requirement(name, "None where X is in partitions", type(value).__name__, why)
    require_dense(data.reader)
    loss = family_of(family)
    loss = loss if noise is None else loss.with_noise(noise)
    if classes is None:
        coding, classes = make_coding(data, loss)
    else:
        coding = _coding_of_numbers(loss, len(classes))
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
    return _regression_of_target(target, units, data.reader.names, classes, priors, shared, prior)


def _coding_of_numbers(loss: Loss, classes: int) -> Coding:
    """The coding of labels that are already the indices of their classes."""
    numbers = np.arange(classes, dtype=np.float64)
    coded = loss.coded(numbers)
    return Coding(coded.loss, numbers, coded.loss.observed(coded.y, classes).y)


def _require_informative(X: MatrixLike, names: Sequence[str], intercept: bool, scales: Scales) -> None:
    """Refuse columns without information: constant ones beside an intercept, and those that repeat another."""
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


def _row_counts(weights: npt.ArrayLike | None, counts: Array | None, n: int) -> Array:
    """How many rows each row counts as: its weight times the number of observations that its label stands for."""
    with np.errstate(over="ignore"):
        count = row_weights(weights, counts, n)
        if count is None:
            return np.ones(n)
        total = float(count.sum())
    if not total < _MOST_WEIGHT:
        allowed, why = f"numbers with a sum below {_MOST_WEIGHT:g}", "a row of weight w counts as w rows"
        raise requirement("weights", allowed, f"a sum of {total:g}", why)
    return count


def _offset_with_exposure(offset: npt.ArrayLike | None, exposure: npt.ArrayLike | None) -> Any:
    """offset + log(exposure). Refuses exposures that are not above 0."""
    if exposure is None:
        return offset
    return log_exposure(exposure) + (0.0 if offset is None else np.asarray(offset, np.float64))


def _prior_by_column(prior: Priors, parts: Sequence[tuple[str, str]], names: Sequence[str]) -> Priors:
    """A dictionary of priors in which the prior of a category is given to each of its levels without one of its own."""
    if not isinstance(prior, Mapping):
        return prior
    terms = {term for term, _ in parts} - set(names)
    by_term = {name: prior[term] for name, (term, _) in zip(names, parts, strict=True) if term in terms & set(prior)}
    return {**by_term, **{name: own for name, own in prior.items() if name not in terms}}


def _number_by_row(value: npt.ArrayLike | None, n: int) -> Any:
    """An argument as one number for each row."""
    return None if value is None else np.broadcast_to(np.asarray(value, np.float64), n)


def _numbers_of_argument(word: str, value: Any, table: Designed) -> Any:
    """The numbers of an argument: those of a column of the table, or those given as an array, without the rows that
    were dropped.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if table.extra[value].kind == CATEGORY:
            raise DataError(f"the column {value!r} of {word} must hold numbers; got texts.")
        return np.asarray(table.extra[value].values, np.float64)
    array = real_array(word, value, (len(table.kept),)) if np.ndim(value) else value
    return array[table.kept] if np.ndim(array) else array


def _parameter_names(columns: tuple[str, ...], intercept: bool, loss: Loss, classes: Classes | None) -> tuple[str, ...]:
    block = ([INTERCEPT] if intercept else []) + list(columns)
    if loss.blocks == 1:
        return (*block, *loss.parameter_names(classes))
    labels = tuple(map(str, range(loss.blocks + 1))) if classes is None else tuple(map(str, classes))
    return tuple(f"{label}: {name}" for label in labels[1:] for name in block)
