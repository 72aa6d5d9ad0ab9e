"""Posteriors as ArviZ keeps them, with names for variables and coordinates.

With a design there is a variable for each term, as Bambi has it: `Intercept`, `age`, `plan` with a dimension `plan_dim`
of its levels, and a dimension `class` before that where each class has coefficients of its own. The arrays that a model
of JAX functions has for parameters are variables of their own shapes. Else there is one variable `x` with the dimension
`coefficient`. Effects of groups are variables such as `1|school` and `x|school`, with the levels of `school` as
coordinates, beside their standard deviations `sd(1 | school)`. Groups beside the draws: log_prior (of each coordinate
in the variables that its prior is stated in, up to a constant, which is what prior sensitivity needs), sample_stats,
observed_data, constant_data, and on request log_likelihood and posterior_predictive.

sample_stats has what is known, and nothing else: `lp`, the log density of the posterior up to a constant; `passes`, the
passes over the data that a chain had made by then; and `acceptance_rate`, that of the whole chain, where there is a
Metropolis step. There is no `energy` and no `diverging`: momenta at the draws are not kept, and no run goes on after a
divergence, which is an error here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import requirement, whole_number
from svrhmc.density.base import FiniteSum
from svrhmc.density.mixed import MixedModel
from svrhmc.results.base import PosteriorData, effect_interval, even_draws, even_rows, thin_chains, with_effects
from svrhmc.results.predict import Predictions, log_likelihoods
from svrhmc.rows.forms import RowsForm
from svrhmc.sampling.effects import GroupEffects
from svrhmc.trace import COEFFICIENT, Trace, grids, inference_data

_MOST = 1 << 30  # bytes of a group
_SMALL = 100_000  # rows up to which observed data are given unasked
_UNASKED, _HELD = 1 << 24, 1 << 22  # rows times draws up to which densities are found unasked, and at a time
_INTERCEPT, _CLASS, _ROW = "Intercept", "class", "row"


class Variable(NamedTuple):
    """A variable: its name, its dimensions with their coordinates, and the numbers of the coefficients in it."""

    name: str
    dims: dict[str, Sequence[object]]
    places: Indices


class Wanted(NamedTuple):
    """What is wanted beside the draws (`Posterior.to_arviz`)."""

    log_likelihood: bool
    posterior_predictive: bool
    rows: int | npt.ArrayLike | None
    seed: int
    draws: int | None
    lp: bool | None
    coords: Mapping[str, Sequence[object]] | None = None
    dims: Mapping[str, Sequence[str]] | None = None


def to_arviz(posterior: PosteriorData, wanted: Wanted) -> Any:
    """A `Posterior` as ArviZ has it."""
    stated = posterior.parameters
    variables = _variables(posterior) if stated is None else _arrays(stated.names, posterior._target)
    kept = posterior.group_effects
    every = _some(posterior.trace, slice(None, None, effect_interval(kept)))
    trace = every if wanted.draws is None else _fewer(every, wanted.draws)
    effects = None if kept is None else kept.draws if wanted.draws is None else thin_chains(kept.draws, wanted.draws)
    inner = _inner(posterior, trace.draws, effects)
    whole_trace = every if stated is None else replace(posterior.trace, draws=stated.draws)
    shown = (whole_trace if wanted.draws is None else _fewer(whole_trace, wanted.draws)).draws
    by_level = _effects(kept, {one.name for one in variables})
    coords: dict[str, Sequence[object] | Indices] = {
        name: labels for one in [*variables, *by_level] for name, labels in one.dims.items()
    }
    dims = {one.name: list(one.dims) for one in [*variables, *by_level]}
    groups: dict[str, dict[str, Values]] = {"posterior": _arranged(variables, shown)}
    if effects is not None:
        groups["posterior"] |= _arranged(by_level, effects)
    groups["sample_stats"] = _log_density(posterior, inner, trace.draws, wanted.lp) | trace.stats()
    asked = wanted.log_likelihood or wanted.posterior_predictive or wanted.rows is not None
    own = None if posterior._target is None or posterior._target.observed_count is None else posterior._target
    if own is not None and asked:
        groups |= _of_model(own, inner, wanted, trace.seed or 0, coords, dims)
    if own is not None and (of_prior := own.log_prior_at(inner.reshape(-1, inner.shape[2]))) is not None:
        groups["log_prior"] = {"log_prior": of_prior.reshape(inner.shape[:2])}
    form = posterior.fitted() if asked and own is None else posterior.form
    if form is not None:
        if posterior.shrinkage is None:  # else no coefficient has a prior of its own
            groups["log_prior"] = _arranged(variables, log_priors(posterior, form, inner, trace.draws))
        if asked or form.rows.n <= _SMALL:
            y = "y" if posterior.design is None or posterior.design.response in dims else posterior.design.response
            places = _places(wanted.rows, form.rows.n, wanted.seed)
            coords[_ROW], dims[_clean(y)] = places, [_ROW]
            of_rows = _of_rows(form.choose(places), inner, wanted, trace.seed)
            groups |= {group: {_clean(y): values} for group, values in of_rows.items()}
            if (columns := _columns(posterior, places)) is not None:
                names = {name: name if name not in dims else f"{name} (column)" for name in columns}
                groups["constant_data"] = {names[name]: values for name, values in columns.items()}
                dims |= {name: [_ROW] for name in names.values()}
    _rename(groups, coords, dims, wanted)
    attrs = {**trace.attributes(), "sampler": posterior.method, "verdict": str(posterior.certificate)}
    return inference_data(groups, coords, dims, attrs)


def _rename(
    groups: Mapping[str, Mapping[str, Values]],
    coords: dict[str, Sequence[object] | Indices],
    dims: dict[str, list[str]],
    wanted: Wanted,
) -> None:
    """Give axes of variables, and places along them, the names that are wanted."""
    known = {name for group in groups.values() for name in group}
    for name, axes in (wanted.dims or {}).items():
        given = [axes] if isinstance(axes, str) else list(axes)
        if name not in known or len(given) != len(dims.get(name, [])):
            listed = ", ".join(f"{one}: {axes}" for one, axes in dims.items() if axes and one in known)
            raise requirement("dims", f"names of the axes of variables ({listed})", f"{name}: {given}")
        for before, after in zip(dims[name], given, strict=True):
            if before in coords:
                coords.setdefault(after, coords[before])
        dims[name] = given
    for axis, labels in (wanted.coords or {}).items():
        if axis in coords and len(coords[axis]) != len(labels):
            raise requirement(f"coords[{axis!r}]", f"{len(coords[axis])} labels", len(labels))
        coords[axis] = list(labels)
    used = {axis for axes in dims.values() for axis in axes}
    for axis in [axis for axis in coords if axis not in used and (wanted.dims or wanted.coords)]:
        del coords[axis]


def _fewer(trace: Trace, most: int) -> Trace:
    """At most so many draws, evenly from every chain."""
    chains, places = even_draws(trace.draws.shape[0], trace.draws.shape[1], most)
    acceptance = None if trace.acceptance is None else trace.acceptance[:chains]
    return replace(
        trace, draws=trace.draws[:chains, places], passes=trace.passes[places], acceptance=acceptance,
        velocity=trace.velocity[:chains], chains=trace.chains[:chains],
    )  # fmt: skip


def _some(trace: Trace, draws: slice) -> Trace:
    return trace if draws.step == 1 else replace(trace, draws=trace.draws[:, draws], passes=trace.passes[draws])


def _inner(posterior: PosteriorData, draws: Array, effects: Array | None) -> Array:
    """Draws (chain, draw, coordinate) in the variables of the rows, with effects of groups where there are some."""
    own = draws[..., : draws.shape[-1] - posterior.group_scales]
    own = own if posterior.units is None else posterior.units.inward(own)
    if effects is None:
        return own
    return with_effects(own, effects, posterior.model.loss.shared, posterior._target)


def log_priors(posterior: PosteriorData, form: RowsForm, inner: Array, draws: Array) -> Array:
    """Of every reported coordinate; the law of effects given their scales is no part of it."""
    values, kept = form.log_prior(inner), posterior.group_effects
    if kept is None:
        return values
    edge = values.shape[-1] - form.loss.shared
    parts = [values[..., : edge - kept.draws.shape[2]], values[..., edge:]]
    assert posterior._target is not None  # whose rows these are
    for k, term in enumerate(posterior._target.group_terms):
        stated = draws[..., kept.stated(k)]
        parts.append(term.covariance.log_prior(stated.reshape(-1, stated.shape[-1])).reshape(stated.shape))
    return np.concatenate(parts, axis=-1)


def _log_density(posterior: PosteriorData, inner: Array, draws: Array, wanted: bool | None) -> dict[str, Values]:
    """log π up to a constant, where the target says it; unasked only where that takes no time worth mentioning."""
    target, count = posterior._target, inner.shape[0] * inner.shape[1]
    if wanted is False or target is None or not target.has_potential:
        if wanted:
            why = "no file keeps the rows" if target is None else "its target has gradients alone"
            raise requirement("lp", "None or False for this posterior", wanted, why)
        return {}
    if wanted is None and count * target.n > _UNASKED:
        return {}
    x = in_coordinates(target, inner.reshape(count, -1), draws.reshape(count, -1))
    return {"lp": log_densities(target, x).reshape(inner.shape[:2])}


def in_coordinates(target: FiniteSum, inner: Array, draws: Array) -> Array:
    """Draws in the variables of a target, (draws, dim): those of its rows, then the covariances of group effects."""
    if not target.theta_dim:
        return inner
    return np.concatenate([inner, cast(MixedModel, target).coordinates_of(draws[:, -target.theta_dim :])], axis=1)


def log_densities(target: FiniteSum, x: Array) -> Array:
    """log π of every draw, up to a constant, for some draws at a time."""
    size = max(1, _HELD // target.n)
    return -np.concatenate([target.potentials(x[begin : begin + size]) for begin in range(0, len(x), size)])


def _of_rows(form: RowsForm, inner: Array, wanted: Wanted, seed: int) -> dict[str, Values]:
    """What there is one number of for each row; found for some rows at a time, and held once."""
    shape = (*inner.shape[:2], form.rows.n)
    trials = form.loss.trials_of(form.y, form.weights)
    y = form.loss.original_labels(form.y, trials)
    kind = np.int64 if form.loss.outcome != "numbers" and (y == np.floor(y)).all() else np.float64
    groups: dict[str, Values] = {"observed_data": y.astype(kind)}  # ArviZ tells counts by their type
    if not (wanted.log_likelihood or wanted.posterior_predictive):
        return groups
    _require_room(shape)
    x = inner.reshape(-1, inner.shape[2])
    if wanted.log_likelihood:
        groups["log_likelihood"] = _filled(np.empty(shape), log_likelihoods(form, x))
    if wanted.posterior_predictive:
        blocks = Predictions(form, x, seed or 0, trials).blocks()
        new = _filled(np.empty(shape, kind), ((block.start, block.new) for block in blocks))
        groups["posterior_predictive"] = new
    return groups


def _of_model(
    target: FiniteSum,
    inner: Array,
    wanted: Wanted,
    seed: int,
    coords: dict[str, Sequence[object] | Indices],
    dims: dict[str, list[str]],
) -> dict[str, dict[str, Values]]:
    """What a model of one's own says of its rows or observed values, whose coordinates and dimensions are added.

    Variables that have a number for each of them have the dimension `row`; others have dimensions of their own.
    """
    count, shape, x = cast(int, target.observed_count), inner.shape[:2], inner.reshape(-1, inner.shape[2])
    name = target.observed[0] if len(target.observed) == 1 else "y"
    name = name if name not in dims else f"{name} (observed)"
    if wanted.log_likelihood or wanted.posterior_predictive:
        _require_room((*shape, count))
    coords[_ROW] = places = _places(wanted.rows, count, wanted.seed)
    kinds = {"observed_data": target.observed_values()}
    if wanted.log_likelihood:
        kinds["log_likelihood"] = {name: _filled(np.empty((*shape, count)), target.row_log_likelihoods(x) or iter(()))}
    if wanted.posterior_predictive:
        new = target.drawn_observations(x, seed)
        kinds["posterior_predictive"] = {key: y.reshape(*shape, *y.shape[1:]) for key, y in new.items()}
    groups: dict[str, dict[str, Values]] = {}
    for group, variables in kinds.items():
        leading = () if group == "observed_data" else shape
        for key, values in variables.items():
            by_row = values.shape == (*leading, count)
            groups.setdefault(group, {})[_clean(key)] = values[..., places] if by_row else values
            dims |= {_clean(key): [_ROW]} if by_row else {}
    return groups


def _require_room(shape: tuple[int, ...]) -> None:
    """Refuse what would not be held, chains × draws × rows."""
    if (size := 8 * math.prod(shape)) > _MOST:
        remedy = (
            "ask for fewer draws (draws=…) or rows (rows=…), or take them in blocks, by log_likelihood(draws) and "
            "predict_draws(X, draws)"
        )
        raise requirement("the rows and draws", "fewer: all of it would be held", f"{size:,} bytes", remedy)


def _filled(out: Values, blocks: Iterator[tuple[int, Array]]) -> Values:
    """(chain, draw, row) from blocks (draws, rows), each from a row on."""
    for start, values in blocks:
        out[:, :, start : start + values.shape[1]] = values.reshape(*out.shape[:2], -1)
    return out


def _columns(posterior: PosteriorData, places: Indices) -> dict[str, Values] | None:
    """The columns of the table, where all of it is at hand."""
    rows = posterior._table_rows
    if rows is None or rows.columns.n < rows.n:
        return None
    columns = {_clean(name): column.values[places] for name, column in rows.columns.by_name.items()}
    # texts as NumPy has them, so that they can be written to a file
    return {name: values.astype(str) if values.dtype.kind == "O" else values for name, values in columns.items()}


def _places(rows: int | npt.ArrayLike | None, n: int, seed: int) -> Indices:
    """All rows, so many of them spread evenly, or those of these numbers."""
    if rows is None:
        return np.arange(n)
    places = np.asarray(rows)
    if not places.ndim:
        return even_rows(n, whole_number("rows", places.item(), 1), seed)
    if places.dtype.kind not in "iu" or not len(places) or places.min() < 0 or places.max() >= n:
        raise requirement("rows", f"None, a number of rows, or numbers of rows below {n:,}", repr(rows)[:60])
    return places.astype(np.int64)


def _arranged(variables: list[Variable], values: Array) -> dict[str, Values]:
    """(chain, draw, dim) as variables."""
    return {one.name: np.ascontiguousarray(values[:, :, one.places]) for one in variables}


def _variables(posterior: PosteriorData) -> list[Variable]:
    """By terms where there is a design whose names can be told apart, by arrays where a target states them; else one
    for all, as in a regression without a design.
    """
    dim = len(posterior.mean)
    stated = () if posterior.units is not None else posterior.names
    variables = _arrays(stated, posterior._target) if posterior.design is None else _terms(posterior)
    names = [one.name for one in variables]
    taken = {"chain", "draw", _ROW} | {name for one in variables for name in one.dims}
    if not variables or len(set(names)) < len(names) or taken & set(names):
        return [Variable("x", {COEFFICIENT: list(posterior.names or range(dim))}, np.arange(dim))]
    return variables


def _arrays(names: tuple[str, ...], target: FiniteSum | None) -> list[Variable]:
    """The arrays of which these are the entries, with the model's own names of their axes where it has some."""
    arrays, variables = grids(names) or {}, []
    for name, places in arrays.items():
        own = () if target is None else target.dims.get(name, ())
        dims: dict[str, Sequence[object]] = {}
        for axis, size in enumerate(places.shape):
            dim = own[axis] if len(own) == places.ndim and own[axis] not in (*arrays, *dims) else ""
            labels = target.coords.get(dim, ()) if target is not None else ()
            dims[_clean(dim) or f"{_clean(name)}_dim_{axis}"] = labels if len(labels) == size else list(range(size))
        variables.append(Variable(_clean(name), dims, places))
    return variables


def _terms(posterior: PosteriorData) -> list[Variable]:
    design, units = posterior.design, posterior.units
    assert design is not None
    assert units is not None
    parts = [(_INTERCEPT, "")] * design.intercept + list(design.parts)
    names = [_INTERCEPT] * design.intercept + list(design.names)
    by_term: dict[str, list[int]] = {}
    for k, (term, _) in enumerate(parts):
        by_term.setdefault(term, []).append(k)
    variables = []
    blocks = np.arange(units.blocks) * len(parts)
    classes = {_CLASS: list(design.classes[1:])} if units.blocks > 1 else {}
    for term, members in by_term.items():
        levels = [parts[k][1] for k in members]
        if all(levels) and len(set(levels)) == len(levels):
            places = blocks[:, None] + np.array(members)
            variables.append(Variable(_clean(term), {**classes, f"{_clean(term)}_dim": levels}, places))
        else:
            variables += [Variable(_clean(names[k]), dict(classes), blocks[:, None] + k) for k in members]
    variables = [one._replace(places=one.places.reshape([len(d) for d in one.dims.values()])) for one in variables]
    last = len(posterior.mean) - posterior.group_scales - units.shared
    return variables + [Variable(_clean(posterior.names[j]), {}, np.array(j)) for j in range(last, len(posterior.mean))]


def _effects(kept: GroupEffects | None, taken: set[str]) -> list[Variable]:
    """Effects of groups as variables, `1|school` and `x|school`, with the levels of `school` as coordinates; of a
    smooth the coefficients of its functions, `s(x)`.
    """
    variables = []
    for k in range(0 if kept is None else len(kept.names)):
        assert kept is not None
        factor, count = _clean(kept.names[k]), len(kept.columns[k])
        if k in kept.smooths:
            places = np.arange(kept.slices()[k].start, kept.slices()[k].stop)
            variables.append(Variable(factor, {f"{factor}_function": list(kept.levels[k])}, places))
            continue
        dim = factor if factor not in taken else f"{factor}_level"
        for j, column in enumerate(kept.columns[k]):
            places = kept.slices()[k].start + j + count * np.arange(len(kept.levels[k]))
            variables.append(Variable(_clean(f"{column}|{kept.names[k]}"), {dim: list(kept.levels[k])}, places))
    return variables


def _clean(name: str) -> str:
    """Without a slash, which leads to another group there."""
    return name.replace("/", "÷")
