"""`fit`: a formula and a table in, a posterior with names out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import DataError, one_of, real_array
from svrhmc.core.progress import stage
from svrhmc.families.base import Loss
from svrhmc.fitting.regress import INTERCEPT, posterior_of, regression, require_settings
from svrhmc.fitting.responses import response_of
from svrhmc.results.advice import of_formula
from svrhmc.results.effects import FittedRows
from svrhmc.results.posterior import Posterior
from svrhmc.tables import designed
from svrhmc.tables.columns import CATEGORY, Column, Columns
from svrhmc.tables.design import log_exposure
from svrhmc.tables.grammar import quoted
from svrhmc.targets.priors import Prior
from svrhmc.targets.reading import Partitions


def fit(
    formula: str,
    table: Any,
    family: str | Loss | None = None,
    *,
    weights: str | npt.ArrayLike | None = None,
    offset: str | npt.ArrayLike | None = None,
    exposure: str | npt.ArrayLike | None = None,
    trials: str | npt.ArrayLike | None = None,
    noise_variance: float | None = None,
    prior: Prior | Mapping[str, Prior] | None = None,
    missing: str = "refuse",
    transforms: Mapping[str, Callable[..., Any]] | None = None,
    **settings: Any,
) -> Posterior:
    """The posterior of a regression, from a formula and a table.

    formula: such as "churn ~ age + C(plan)"; texts are categories, `.` stands for all other columns, and interactions,
        arithmetic and functions such as `np.log`, `poly`, `bs` can be used (`svrhmc.tables.expressions`). There is an
        intercept unless the formula says 0.
    table: a pandas, polars or pyarrow table, or a dictionary of columns.
    family: "gaussian" (the noise is unknown), "bernoulli", "binomial", "poisson", "negative-binomial", "gamma",
        "student-t", "categorical", "ordinal", or one of `svrhmc.targets.families`; None chooses by the response, and
        `posterior.design.guessed` says why.
    weights, offset, exposure, trials: a column's name, or one number for each row. Weights count rows; an exposure (for
        counts: months observed, say) is an offset of its logarithm.
    noise_variance: the variance of the noise of "gaussian", where it is known.
    prior: in the units of the data, one of `svrhmc.targets.priors` for all coefficients but the intercept, or a
        dictionary by the names of coefficients or of categories (for all of their levels), with "Intercept" for the
        intercept at the means of the columns and "sigma", "scale" or "shape" for that parameter of the family; None:
        weak ones that follow the data's scale (`svrhmc.fitting.regress`). `posterior.prior` states all of them.
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
    if isinstance(table, Partitions):
        raise DataError(
            "rows in partitions have their columns chosen where they are opened, and take no formula: "
            "svrhmc.data.from_parquet(folder, target='churn', features=['age', 'plan']), for instance, and then "
            "svrhmc.fitting.regress(rows, family=…)."
        )
    one_of("missing", missing, ("refuse", "drop"))
    require_settings(fit, settings)
    named: dict[str, Any] = {"weights": weights, "offset": offset, "exposure": exposure, "trials": trials}
    columns = [value for value in named.values() if isinstance(value, str)]
    with stage("making columns of the table", settings.get("progress")):
        made = designed(formula, table, columns, missing == "drop", transforms)
    response = response_of(made.design.response, made.y, family)
    given = {word: _numbers(word, value, made.extra, made) for word, value in named.items()}
    given["offset"] = _with_exposure(given["offset"], given.pop("exposure"))
    names = made.design.names
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise DataError(f"the formula makes two columns named {twice!r}: take one of them out.")
    advice = of_formula({name: quoted(name) for name in made.design.variables})
    intercept = made.design.intercept and response.loss.has_intercept
    columns = [INTERCEPT] * intercept + list(names)
    with stage("scales of the columns", settings.get("progress")), advice.speaking(columns):
        found = regression(
            made.X,
            response.y,
            response.loss,
            names=names,
            intercept=intercept,
            prior=_by_column(prior, made.design.parts, names),
            noise_variance=noise_variance,
            classes=response.classes or None,
            varied=True,
            **given,
        )
    design = replace(
        made.design,
        intercept=intercept,
        classes=tuple(map(str, response.classes)),
        offset=offset if isinstance(offset, str) else "",
        exposure=exposure if isinstance(exposure, str) else "",
        trials=trials if isinstance(trials, str) else "",
        dropped=made.dropped,
        guessed=response.guessed,
        shifted=any(value is not None and not isinstance(value, str) for value in (offset, exposure)),
        tried=trials is not None and not isinstance(trials, str),
    ).with_transforms(made.design.transforms)
    needed = Columns({name: made.columns[name] for name in design.variables}, made.columns.n)
    counts = [_each(given[word], needed.n) for word in ("weights", "trials") if given[word] is not None]
    table_rows = FittedRows.of(needed, _each(given["offset"], needed.n), np.prod(counts, axis=0) if counts else None)
    with advice.speaking(columns):
        return posterior_of(found, advice=advice, design=design, table_rows=table_rows, **settings)


def _with_exposure(offset: Any, exposure: Any) -> Any:
    """offset + log exposure; refuses exposures that are not above 0."""
    if exposure is None:
        return offset
    return log_exposure(exposure) + (0.0 if offset is None else np.asarray(offset, np.float64))


def _by_column(prior: Any, parts: Sequence[tuple[str, str]], names: Sequence[str]) -> Any:
    """A dictionary in which the prior of a category is that of each of its levels that has none of its own."""
    if not isinstance(prior, Mapping):
        return prior
    terms = {term for term, _ in parts} - set(names)
    by_term = {name: prior[term] for name, (term, _) in zip(names, parts, strict=True) if term in terms & set(prior)}
    return {**by_term, **{name: each for name, each in prior.items() if name not in terms}}


def _each(value: Any, n: int) -> Any:
    """One number for each row."""
    return None if value is None else np.broadcast_to(np.asarray(value, np.float64), n)


def _numbers(word: str, value: Any, extra: dict[str, Column], made: Any) -> Any:
    """A column of the table, or what was given beside it, without the rows that were dropped."""
    if value is None:
        return None
    if isinstance(value, str):
        if extra[value].kind == CATEGORY:
            raise DataError(f"the column {value!r} of {word} must hold numbers; got texts.")
        return np.asarray(extra[value].values, np.float64)
    array = real_array(word, value, (len(made.kept),)) if np.ndim(value) else value
    return array[made.kept] if np.ndim(array) else array
