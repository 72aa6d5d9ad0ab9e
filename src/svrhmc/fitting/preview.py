"""A preview of a fit: the columns of a table, how they are coded, their priors, and a prior predictive check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import explain_foreign_keywords, one_of, requirement, whole_number
from svrhmc.core.summaries import Summary
from svrhmc.families.base import Loss
from svrhmc.fitting.regression import ModelRequest, Regression, build_models, prepare, take_offsets
from svrhmc.posterior import Posterior
from svrhmc.priors.terms import LKJ, Prior
from svrhmc.results.prior_predictive import prior_predictive
from svrhmc.rows.reading import Partitions
from svrhmc.sampling.groups import forecast_of
from svrhmc.tables.design import Design
from svrhmc.tables.formula import parse_formulas

if TYPE_CHECKING:
    import pandas


_ROUNDING = 1e-12  # of a mean, in sds of its column
_NO_DRAWS = (
    "No prior predictive check: a flat prior expects no table rather than another, and one that shrinks coefficients "
    "together is not drawn from."
)


@dataclass(frozen=True, eq=False, repr=False)
class Preview:
    """A model of a table before it is fitted. Print it, or take `to_frame()` for a row for each coefficient.

    coefficients: mean and sd of the column of each coefficient, and location and scale of its prior in the units of the
    data. prior_predictive: the table compared with tables drawn from the prior; None if the prior cannot be drawn from.
    design: how the table becomes columns. family: its name. rows: how many are fitted.
    """

    coefficients: Summary
    prior_predictive: Summary | None
    design: Design
    family: str
    rows: int

    def to_frame(self) -> pandas.DataFrame:
        """A pandas data frame with a row for each coefficient."""
        return self.coefficients.to_frame()

    def __repr__(self) -> str:
        checked = _NO_DRAWS if self.prior_predictive is None else str(self.prior_predictive)
        return f"{self.coefficients}\n\n{checked}"

    def _repr_html_(self) -> str:
        checked = f"<p>{_NO_DRAWS}</p>" if self.prior_predictive is None else self.prior_predictive._repr_html_()
        return self.coefficients._repr_html_() + checked


@explain_foreign_keywords(data="table", df="table", priors="prior")
def design(
    formula: str | Mapping[str, str] | Sequence[str],
    table: object,
    family: str | Loss | None = None,
    *,
    weights: str | npt.ArrayLike | None = None,
    offset: str | npt.ArrayLike | None = None,
    exposure: str | npt.ArrayLike | None = None,
    trials: str | npt.ArrayLike | None = None,
    noise_variance: float | None = None,
    prior: Prior | Mapping[str, Prior | LKJ] | None = None,
    missing: str = "refuse",
    transforms: Mapping[str, Callable[..., object]] | None = None,
    seed: int = 0,
) -> Preview:
    """What `fit` would fit: the columns that a formula makes of a table, the coding of its categories, the prior of
    each coefficient in the units of the data, and a prior predictive check. Nothing is sampled from the posterior.

    seed: of the draws of the prior. The other arguments are those of `fit`, for a table in memory.

    >>> from svrhmc import design
    >>> table = {"y": [1.0, 2.5, 2.0, 4.5], "age": [20.0, 30.0, 40.0, 50.0], "plan": ["a", "b", "a", "b"]}
    >>> preview = design("y ~ age + C(plan, Sum)", table)
    >>> preview.coefficients.names, preview.rows
    (('Intercept', 'age', 'plan[S.a]', 'log sigma'), 4)
    """
    one_of("missing", missing, ("refuse", "drop"))
    seed = whole_number("seed", seed, 0)
    if isinstance(table, Partitions | list | tuple):
        kind = "a table in partitions" if isinstance(table, Partitions) else "several tables"
        raise requirement("table", "one in memory, to be looked at before a fit", kind, "give a part of it")
    if isinstance(prior, Posterior):
        raise requirement("prior", "one of svrhmc.targets.priors, or a dictionary of them", "a posterior")
    row_values = {"weights": weights, "offset": offset, "exposure": exposure, "trials": trials}
    formulas, row_values = take_offsets(parse_formulas(formula), row_values)
    request = ModelRequest(formulas, family, row_values, prior, noise_variance, missing == "drop", transforms)
    prepared = prepare(table, request)
    (regression,) = build_models(prepared).models
    checked = prior_predictive(regression.target, seed, prepared.design.classes, prepared.design.response or "y")
    name, n = regression.target.loss.name, regression.target.n
    coefficients = _coefficients(regression, prepared.design, name, n)
    if regression.target.group_terms and (forecast := forecast_of(regression.target)).is_long:
        sentence = f"A fit takes {forecast} on cores that do nothing else."
        coefficients = replace(coefficients, notes=(*coefficients.notes, sentence))
    return Preview(coefficients, checked, prepared.design, name, n)


def _coefficients(regression: Regression, design: Design, family: str, rows: int) -> Summary:
    """The column and the prior of each coefficient, in the units of the data. Of x = A x̃ only the diagonal of A is
    used, which is exact for all coefficients but intercepts.
    """
    units, count = regression.units, len(regression.location)
    column = units.column_of_each
    centre, scale = (np.append(values, np.nan)[column] for values in (units.centre, units.scale))  # −1: nan
    centre = np.where(abs(centre) < _ROUNDING * scale, 0.0, centre)
    with np.errstate(divide="ignore"):
        spread = units.factors / np.sqrt(regression.precision)
    location = units.factors * regression.location
    location[units.intercepts] += units.response
    names = regression.names[:count]
    columns_shown = {"mean of column": centre, "sd of column": scale, "prior location": location, "prior scale": spread}
    notes: list[str] = []
    if baselines := dict.fromkeys(design.baselines):
        notes.append(f"Levels of categories are compared with {', '.join(baselines)}.")
    notes += [f"Labels: {note}." for note in design.notes]
    if units.intercept:
        notes.append("The prior of the intercept is that at the means of the columns.")
    notes.append(f"Prior: {regression.prior_words}.")
    return Summary(names, columns_shown, _title(design, family, rows), tuple(notes))


def _title(design: Design, family: str, rows: int) -> str:
    sentence = f"Design of {design.formula}, family {family!r}" + (f" ({design.guessed})" if design.guessed else "")
    if len(design.classes) == 2:
        sentence += f"; modelled is the probability {design.event_in_words}"
    elif design.classes:
        sentence += f"; classes: {', '.join(design.classes)}"
    sentence += f"{design.row_values_in_words.replace(', with', '; with', 1)}; {rows:,} rows"
    if design.dropped:
        sentence += f"; {design.dropped:,} row{'s' if design.dropped > 1 else ''} left out because of missing values"
    return f"{sentence}."
