"""Posteriors as ArviZ keeps them, with names for variables and coordinates.

With a design there is a variable for each term, as Bambi has it: `Intercept`, `age`, `plan` with a dimension `plan_dim`
of its levels, and a dimension `class` before that where each class has coefficients of its own. Else there is one
variable `x` with the dimension `coefficient`. Groups beside the draws: log_prior (of each coordinate in the variables
that its prior is stated in, up to a constant, which is what prior sensitivity needs), sample_stats, observed_data,
constant_data, and on request log_likelihood and posterior_predictive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement, whole
from svrhmc.core.version import VERSION
from svrhmc.posterior.effects import spread
from svrhmc.posterior.prediction import Predictions, log_likelihoods
from svrhmc.targets.forms import RowsForm
from svrhmc.trace import COEFFICIENT, inference_data

_MOST = 1 << 30  # bytes of a group
_SMALL = 100_000  # rows up to which observed data are given unasked
_INTERCEPT, _CLASS, _ROW = "Intercept", "class", "row"


class Variable(NamedTuple):
    """A variable: its name, its dimensions with their coordinates, and the numbers of the coefficients in it."""

    name: str
    dims: dict[str, list[Any]]
    places: Indices


def to_arviz(
    posterior: Any, log_likelihood: bool, posterior_predictive: bool, rows: int | npt.ArrayLike | None, seed: int
) -> Any:
    """A `Posterior` as ArviZ has it."""
    variables = _variables(posterior)
    draws = posterior.trace.draws
    coords: dict[str, Any] = {name: each for one in variables for name, each in one.dims.items()}
    dims = {one.name: list(one.dims) for one in variables}
    groups: dict[str, dict[str, Any]] = {"posterior": _arranged(variables, draws)}
    if posterior.trace.acceptance is not None:
        rate = np.broadcast_to(posterior.trace.acceptance[:, None], draws.shape[:2])
        groups["sample_stats"] = {"acceptance_rate": np.array(rate)}
    wanted = log_likelihood or posterior_predictive or rows is not None
    form = posterior.fitted() if wanted else posterior.form
    if form is not None:
        prior = form.log_prior(draws if posterior.units is None else posterior.units.inward(draws))
        groups["log_prior"] = _arranged(variables, prior)
        if wanted or form.rows.n <= _SMALL:
            y = "y" if posterior.design is None or posterior.design.response in dims else posterior.design.response
            places = _places(rows, form.rows.n, seed)
            coords[_ROW], dims[_clean(y)] = places, [_ROW]
            seen = _of_rows(posterior, form.chosen(places), log_likelihood, posterior_predictive)
            groups |= {group: {_clean(y): values} for group, values in seen.items()}
            if (known := _columns(posterior, places)) is not None:
                names = {name: name if name not in dims else f"{name} (column)" for name in known}
                groups["constant_data"] = {names[name]: values for name, values in known.items()}
                dims |= {name: [_ROW] for name in names.values()}
    attrs = {
        "inference_library": "svrhmc",
        "inference_library_version": VERSION,
        "seed": int(posterior.trace.seed),
        "sampler": posterior.method,
        "verdict": str(posterior.certificate),
    }
    return inference_data(groups, coords, dims, attrs)


def _of_rows(posterior: Any, form: RowsForm, log_likelihood: bool, posterior_predictive: bool) -> dict[str, Array]:
    """What there is one number of for each row."""
    chains, draws, _ = posterior.trace.draws.shape
    trials = form.weights if form.loss.tried else None
    found = {"observed_data": form.loss.seen(form.y, trials)}
    if not (log_likelihood or posterior_predictive):
        return found
    size = 8 * chains * draws * form.rows.n
    if size > _MOST:
        remedy = (
            "name fewer rows (rows=…), or take them in blocks, by log_likelihood(draws) and predict_draws(X, draws)"
        )
        raise requirement("the rows and draws", "fewer: all of it would be held", f"{size:,} bytes", remedy)
    x, shape = posterior.inner(chains * draws), (chains, draws, form.rows.n)
    if log_likelihood:
        parts = [values for _, values in log_likelihoods(form, x)]
        found["log_likelihood"] = np.concatenate(parts, axis=1).reshape(shape)
    if posterior_predictive:
        new = [block.new for block in Predictions(form, x, posterior.trace.seed or 0, trials).blocks()]
        found["posterior_predictive"] = np.concatenate(new, axis=1).reshape(shape)
    return found


def _columns(posterior: Any, places: Indices) -> dict[str, Any] | None:
    """The columns of the table, where all of it is at hand."""
    kept = posterior._kept
    if kept is None or kept.columns.n < kept.n:
        return None
    return {_clean(name): _plain(column.values[places]) for name, column in kept.columns.by_name.items()}


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Texts as NumPy has them, so that they can be written to a file."""
    return values.astype(str) if values.dtype.kind == "O" else values


def _places(rows: int | npt.ArrayLike | None, n: int, seed: int) -> Indices:
    """All rows, so many of them spread evenly, or those of these numbers."""
    if rows is None:
        return np.arange(n)
    places = np.asarray(rows)
    if not places.ndim:
        return spread(n, whole("rows", places.item(), 1), seed)
    if places.dtype.kind not in "iu" or not len(places) or places.min() < 0 or places.max() >= n:
        raise requirement("rows", f"None, a number of rows, or numbers of rows below {n:,}", repr(rows)[:60])
    return places.astype(np.int64)


def _arranged(variables: list[Variable], values: Array) -> dict[str, Array]:
    """(chain, draw, dim) as variables."""
    return {one.name: np.ascontiguousarray(values[:, :, one.places]) for one in variables}


def _variables(posterior: Any) -> list[Variable]:
    """By terms where there is a design whose names can be told apart; else one for all."""
    dim = len(posterior.mean)
    found = [] if posterior.design is None else _terms(posterior)
    names = [one.name for one in found]
    taken = {"chain", "draw", _ROW} | {name for one in found for name in one.dims}
    if not found or len(set(names)) < len(names) or taken & set(names):
        return [Variable("x", {COEFFICIENT: list(posterior.names or range(dim))}, np.arange(dim))]
    return found


def _terms(posterior: Any) -> list[Variable]:
    design, units = posterior.design, posterior.units
    parts = [(_INTERCEPT, "")] * design.intercept + list(design.parts)
    names = [_INTERCEPT] * design.intercept + list(design.names)
    by_term: dict[str, list[int]] = {}
    for k, (term, _) in enumerate(parts):
        by_term.setdefault(term, []).append(k)
    width, found = len(parts), []
    blocks = np.arange(units.blocks) * width
    classes = {_CLASS: list(design.classes[1:])} if units.blocks > 1 else {}
    for term, members in by_term.items():
        levels = [parts[k][1] for k in members]
        if all(levels) and len(set(levels)) == len(levels):
            places = blocks[:, None] + np.array(members)
            found.append(Variable(_clean(term), {**classes, f"{_clean(term)}_dim": levels}, places))
        else:
            found += [Variable(_clean(names[k]), dict(classes), blocks[:, None] + k) for k in members]
    found = [one._replace(places=one.places.reshape([len(each) for each in one.dims.values()])) for one in found]
    last = len(posterior.mean) - units.shared
    return found + [Variable(_clean(posterior.names[last + k]), {}, np.array(last + k)) for k in range(units.shared)]


def _clean(name: str) -> str:
    """Without a slash, which leads to another group there."""
    return name.replace("/", "÷")
