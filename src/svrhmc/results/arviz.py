"""Posteriors as ArviZ data, with names for variables and coordinates.

With a design there is a variable for each term, as in Bambi: `Intercept`, `age`, `plan` with a dimension `plan_dim` of
its levels, and a dimension `class` before that where each class has coefficients of its own. The parameter arrays of a
model of JAX functions are variables with their own shapes. Otherwise there is one variable `x` with the dimension
`coefficient`. Effects of groups are variables such as `1|school` and `x|school`, with the levels of `school` as
coordinates, beside their standard deviations `sd(1 | school)`. Besides the posterior there are the groups log_prior (of
each coordinate in the variables that its prior is stated in, up to a constant, which is what prior sensitivity needs),
sample_stats, observed_data, constant_data, and on request log_likelihood and posterior_predictive.

sample_stats has only what is known: `lp`, the log density of the posterior up to a constant; `passes`, the passes over
the data that a chain had made by then; and `acceptance_rate`, that of the whole chain, where there is a Metropolis
step. There is no `energy` and no `diverging`: momenta at the draws are not kept, and a divergence is an error here."""

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

_MOST_BYTES = 1 << 30  # bytes of one group of arrays
_MOST_OBSERVED_ROWS = 100_000  # rows up to which observed data are always included
_MOST_UNREQUESTED, _BLOCK_NUMBERS = (
    1 << 24,
    1 << 22,
)  # rows times draws: for lp without request, and of a block
_INTERCEPT, _CLASS, _ROW = "Intercept", "class", "row"


class Variable(NamedTuple):
    """A variable: its name, its dimensions with their labels, and the coordinates of the posterior in it."""

    name: str
    dims: dict[str, Sequence[object]]
    places: Indices


class ArvizOptions(NamedTuple):
    """The arguments of `Posterior.to_arviz`."""

    log_likelihood: bool
    posterior_predictive: bool
    rows: int | npt.ArrayLike | None
    seed: int
    draws: int | None
    lp: bool | None
    coords: Mapping[str, Sequence[object]] | None = None
    dims: Mapping[str, Sequence[str]] | None = None


def to_arviz(posterior: PosteriorData, options: ArvizOptions) -> Any:
    """A posterior as an ArviZ object."""
    parameters = posterior.parameters
    variables = _variables(posterior) if parameters is None else _array_variables(parameters.names, posterior._target)
    group_effects = posterior.group_effects
    k, trace = effect_interval(group_effects), posterior.trace
    whole_trace = trace if k == 1 else replace(trace, draws=trace.draws[:, ::k], passes=trace.passes[::k])
    trace = whole_trace if options.draws is None else _thin_trace(whole_trace, options.draws)
    effects = (
        None
        if group_effects is None
        else group_effects.draws
        if options.draws is None
        else thin_chains(group_effects.draws, options.draws)
    )
    inner = _draws_with_effects(posterior, trace.draws, effects)
    parameter_trace = whole_trace if parameters is None else replace(posterior.trace, draws=parameters.draws)
    draws = (parameter_trace if options.draws is None else _thin_trace(parameter_trace, options.draws)).draws
    by_level = _effect_variables(group_effects, {variable.name for variable in variables})
    coords: dict[str, Sequence[object] | Indices] = {
        name: labels for variable in [*variables, *by_level] for name, labels in variable.dims.items()
    }
    dims = {variable.name: list(variable.dims) for variable in [*variables, *by_level]}
    groups: dict[str, dict[str, Values]] = {"posterior": _split_variables(variables, draws)}
    if effects is not None:
        groups["posterior"] |= _split_variables(by_level, effects)
    groups["sample_stats"] = _log_density(posterior, inner, trace.draws, options.lp) | trace.stats()
    rows_requested = options.log_likelihood or options.posterior_predictive or options.rows is not None
    own_model = None if posterior._target is None or posterior._target.observed_count is None else posterior._target
    if own_model is not None and rows_requested:
        groups |= _model_groups(own_model, inner, options, trace.seed or 0, coords, dims)
    if own_model is not None and (log_prior := own_model.log_prior_at(inner.reshape(-1, inner.shape[2]))) is not None:
        groups["log_prior"] = {"log_prior": log_prior.reshape(inner.shape[:2])}
    form = posterior.fitted() if rows_requested and own_model is None else posterior.form
    if form is not None:
        if posterior.shrinkage is None:  # else no coefficient has a prior of its own
            groups["log_prior"] = _split_variables(variables, log_priors(posterior, form, inner, trace.draws))
        if rows_requested or form.rows.n <= _MOST_OBSERVED_ROWS:
            y = "y" if posterior.design is None or posterior.design.response in dims else posterior.design.response
            places = _row_numbers(options.rows, form.rows.n, options.seed)
            coords[_ROW], dims[_without_slash(y)] = places, [_ROW]
            row_groups = _row_groups(form.choose(places), inner, options, trace.seed)
            groups |= {group: {_without_slash(y): values} for group, values in row_groups.items()}
            if (columns := _table_columns(posterior, places)) is not None:
                names = {name: name if name not in dims else f"{name} (column)" for name in columns}
                groups["constant_data"] = {names[name]: values for name, values in columns.items()}
                dims |= {name: [_ROW] for name in names.values()}
    _rename_axes(groups, coords, dims, options)
    attrs = {**trace.attributes(), "sampler": posterior.method, "verdict": str(posterior.certificate)}
    return inference_data(groups, coords, dims, attrs)


def _rename_axes(
    groups: Mapping[str, Mapping[str, Values]],
    coords: dict[str, Sequence[object] | Indices],
    dims: dict[str, list[str]],
    options: ArvizOptions,
) -> None:
    """Give the axes of variables, and the places along them, the names in `options.dims` and `options.coords`."""
    variable_names = {name for group in groups.values() for name in group}
    for name, axes in (options.dims or {}).items():
        new_axes = [axes] if isinstance(axes, str) else list(axes)
        if name not in variable_names or len(new_axes) != len(dims.get(name, [])):
            listed = ", ".join(
                f"{variable}: {axes}" for variable, axes in dims.items() if axes and variable in variable_names
            )
            raise requirement("dims", f"names of the axes of variables ({listed})", f"{name}: {new_axes}")
        for before, after in zip(dims[name], new_axes, strict=True):
            if before in coords:
                coords.setdefault(after, coords[before])
        dims[name] = new_axes
    for axis, labels in (options.coords or {}).items():
        if axis in coords and len(coords[axis]) != len(labels):
            raise requirement(f"coords[{axis!r}]", f"{len(coords[axis])} labels", len(labels))
        coords[axis] = list(labels)
    used = {axis for axes in dims.values() for axis in axes}
    for axis in [axis for axis in coords if axis not in used and (options.dims or options.coords)]:
        del coords[axis]


def _thin_trace(trace: Trace, most: int) -> Trace:
    """A trace of at most `most` draws, evenly from every chain."""
    chains, places = even_draws(trace.draws.shape[0], trace.draws.shape[1], most)
    acceptance = None if trace.acceptance is None else trace.acceptance[:chains]
    return replace(
        trace, draws=trace.draws[:chains, places], passes=trace.passes[places], acceptance=acceptance,
        velocity=trace.velocity[:chains], chains=trace.chains[:chains],
    )  # fmt: skip


def _draws_with_effects(posterior: PosteriorData, draws: Array, effects: Array | None) -> Array:
    """Draws (chain, draw, coordinate) in the variables of the rows, with effects of groups where there are some."""
    own = draws[..., : draws.shape[-1] - posterior.group_scales]
    own = own if posterior.units is None else posterior.units.inward(own)
    if effects is None:
        return own
    return with_effects(own, effects, posterior.model.loss.shared, posterior._target)


def log_priors(posterior: PosteriorData, form: RowsForm, inner: Array, draws: Array) -> Array:
    """The log prior density of every reported coordinate; that of effects given their scales is not included."""
    values, group_effects = form.log_prior(inner), posterior.group_effects
    if group_effects is None:
        return values
    edge = values.shape[-1] - form.loss.shared
    parts = [values[..., : edge - group_effects.draws.shape[2]], values[..., edge:]]
    assert posterior._target is not None  # whose rows these are
    for k, term in enumerate(posterior._target.group_terms):
        scales = draws[..., group_effects.stated(k)]
        parts.append(term.covariance.log_prior(scales.reshape(-1, scales.shape[-1])).reshape(scales.shape))
    return np.concatenate(parts, axis=-1)


def _log_density(posterior: PosteriorData, inner: Array, draws: Array, requested: bool | None) -> dict[str, Values]:
    """log π up to a constant, where the target has it: on request, or where it takes little time."""
    target, count = posterior._target, inner.shape[0] * inner.shape[1]
    if requested is False or target is None or not target.has_potential:
        if requested:
            why = "no file keeps the rows" if target is None else "its target has gradients alone"
            raise requirement("lp", "None or False for this posterior", requested, why)
        return {}
    if requested is None and count * target.n > _MOST_UNREQUESTED:
        return {}
    x = target_coordinates(target, inner.reshape(count, -1), draws.reshape(count, -1))
    return {"lp": log_densities(target, x).reshape(inner.shape[:2])}


def target_coordinates(target: FiniteSum, inner: Array, draws: Array) -> Array:
    """Draws in all variables of a target, (draws, dim): those of its rows, then the covariances of group effects."""
    if not target.theta_dim:
        return inner
    return np.concatenate([inner, cast(MixedModel, target).coordinates_of(draws[:, -target.theta_dim :])], axis=1)


def log_densities(target: FiniteSum, x: Array) -> Array:
    """log π of every draw, up to a constant, computed for a block of draws at a time."""
    size = max(1, _BLOCK_NUMBERS // target.n)
    return -np.concatenate([target.potentials(x[begin : begin + size]) for begin in range(0, len(x), size)])


def _row_groups(form: RowsForm, inner: Array, options: ArvizOptions, seed: int) -> dict[str, Values]:
    """The groups with one number for each row: observed data and, where requested, log likelihoods and new y. They are
    computed for a block of rows at a time.
    """
    shape = (*inner.shape[:2], form.rows.n)
    trials = form.loss.trials_of(form.y, form.weights)
    y = form.loss.original_labels(form.y, trials)
    dtype = np.int64 if form.loss.outcome != "numbers" and (y == np.floor(y)).all() else np.float64
    groups: dict[str, Values] = {"observed_data": y.astype(dtype)}  # ArviZ tells counts by their type
    if not (options.log_likelihood or options.posterior_predictive):
        return groups
    _require_memory(shape)
    x = inner.reshape(-1, inner.shape[2])
    if options.log_likelihood:
        groups["log_likelihood"] = _fill_blocks(np.empty(shape), log_likelihoods(form, x))
    if options.posterior_predictive:
        blocks = Predictions(form, x, seed or 0, trials).blocks()
        new = _fill_blocks(np.empty(shape, dtype), ((block.start, block.new) for block in blocks))
        groups["posterior_predictive"] = new
    return groups


def _model_groups(
    target: FiniteSum,
    inner: Array,
    options: ArvizOptions,
    seed: int,
    coords: dict[str, Sequence[object] | Indices],
    dims: dict[str, list[str]],
) -> dict[str, dict[str, Values]]:
    """The groups on the rows or observed values of a user's own model; adds their coordinates and dimensions.

    Variables with one number for each row have the dimension `row`; others have dimensions of their own.
    """
    count, shape, x = cast(int, target.observed_count), inner.shape[:2], inner.reshape(-1, inner.shape[2])
    name = target.observed[0] if len(target.observed) == 1 else "y"
    name = name if name not in dims else f"{name} (observed)"
    if options.log_likelihood or options.posterior_predictive:
        _require_memory((*shape, count))
    coords[_ROW] = places = _row_numbers(options.rows, count, options.seed)
    values_by_group = {"observed_data": target.observed_values()}
    if options.log_likelihood:
        values_by_group["log_likelihood"] = {
            name: _fill_blocks(np.empty((*shape, count)), target.row_log_likelihoods(x) or iter(()))
        }
    if options.posterior_predictive:
        new = target.drawn_observations(x, seed)
        values_by_group["posterior_predictive"] = {key: y.reshape(*shape, *y.shape[1:]) for key, y in new.items()}
    groups: dict[str, dict[str, Values]] = {}
    for group, variables in values_by_group.items():
        leading = () if group == "observed_data" else shape
        for key, values in variables.items():
            by_row = values.shape == (*leading, count)
            groups.setdefault(group, {})[_without_slash(key)] = values[..., places] if by_row else values
            dims |= {_without_slash(key): [_ROW]} if by_row else {}
    return groups


def _require_memory(shape: tuple[int, ...]) -> None:
    """Refuse an array (chains, draws, rows) that is too large for memory."""
    if (size := 8 * math.prod(shape)) > _MOST_BYTES:
        remedy = (
            "ask for fewer draws (draws=…) or rows (rows=…), or take them in blocks, by log_likelihood(draws) and "
            "predict_draws(X, draws)"
        )
        raise requirement("the rows and draws", "fewer: all of it would be held", f"{size:,} bytes", remedy)


def _fill_blocks(out: Values, blocks: Iterator[tuple[int, Array]]) -> Values:
    """Fill an array (chain, draw, row) from pairs (number of the first row, block (draws, rows))."""
    for start, values in blocks:
        out[:, :, start : start + values.shape[1]] = values.reshape(*out.shape[:2], -1)
    return out


def _table_columns(posterior: PosteriorData, places: Indices) -> dict[str, Values] | None:
    """The columns of the table at some rows; None where not the whole table is in memory."""
    rows = posterior._table_rows
    if rows is None or rows.columns.n < rows.n:
        return None
    columns = {_without_slash(name): column.values[places] for name, column in rows.columns.by_name.items()}
    # texts as fixed-width NumPy strings, which can be written to a file
    return {name: values.astype(str) if values.dtype.kind == "O" else values for name, values in columns.items()}


def _row_numbers(rows: int | npt.ArrayLike | None, n: int, seed: int) -> Indices:
    """The numbers of the rows that are requested: all, a number of them spread evenly, or those with given numbers."""
    if rows is None:
        return np.arange(n)
    places = np.asarray(rows)
    if not places.ndim:
        return even_rows(n, whole_number("rows", places.item(), 1), seed)
    if places.dtype.kind not in "iu" or not len(places) or places.min() < 0 or places.max() >= n:
        raise requirement("rows", f"None, a number of rows, or numbers of rows below {n:,}", repr(rows)[:60])
    return places.astype(np.int64)


def _split_variables(variables: list[Variable], values: Array) -> dict[str, Values]:
    """Values (chain, draw, dim) split into variables."""
    return {variable.name: np.ascontiguousarray(values[:, :, variable.places]) for variable in variables}


def _variables(posterior: PosteriorData) -> list[Variable]:
    """Variables for the terms of a design, or for the parameter arrays of a model; a single one where there are
    neither, or where names would clash.
    """
    dim = len(posterior.mean)
    names_of_arrays = () if posterior.units is not None else posterior.names
    variables = (
        _array_variables(names_of_arrays, posterior._target) if posterior.design is None else _term_variables(posterior)
    )
    names = [variable.name for variable in variables]
    reserved = {"chain", "draw", _ROW} | {name for variable in variables for name in variable.dims}
    if not variables or len(set(names)) < len(names) or reserved & set(names):
        return [Variable("x", {COEFFICIENT: list(posterior.names or range(dim))}, np.arange(dim))]
    return variables


def _array_variables(names: tuple[str, ...], target: FiniteSum | None) -> list[Variable]:
    """Variables for the arrays whose entries have these names, with the model's own names of their axes, if any."""
    arrays, variables = grids(names) or {}, []
    for name, places in arrays.items():
        model_axes = () if target is None else target.dims.get(name, ())
        dims: dict[str, Sequence[object]] = {}
        for axis, size in enumerate(places.shape):
            dim = (
                model_axes[axis] if len(model_axes) == places.ndim and model_axes[axis] not in (*arrays, *dims) else ""
            )
            labels = target.coords.get(dim, ()) if target is not None else ()
            dims[_without_slash(dim) or f"{_without_slash(name)}_dim_{axis}"] = (
                labels if len(labels) == size else list(range(size))
            )
        variables.append(Variable(_without_slash(name), dims, places))
    return variables


def _term_variables(posterior: PosteriorData) -> list[Variable]:
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
            variables.append(Variable(_without_slash(term), {**classes, f"{_without_slash(term)}_dim": levels}, places))
        else:
            variables += [Variable(_without_slash(names[k]), dict(classes), blocks[:, None] + k) for k in members]
    variables = [
        variable._replace(places=variable.places.reshape([len(d) for d in variable.dims.values()]))
        for variable in variables
    ]
    first_scalar = len(posterior.mean) - posterior.group_scales - units.shared
    return variables + [
        Variable(_without_slash(posterior.names[j]), {}, np.array(j)) for j in range(first_scalar, len(posterior.mean))
    ]


def _effect_variables(group_effects: GroupEffects | None, used: set[str]) -> list[Variable]:
    """Variables for effects of groups, `1|school` and `x|school`, with the levels of `school` as coordinates, and for
    the coefficients of smooths, `s(x)`. used: names of other variables, which no dimension may have.
    """
    variables = []
    for k in range(0 if group_effects is None else len(group_effects.names)):
        assert group_effects is not None
        factor, count = _without_slash(group_effects.names[k]), len(group_effects.columns[k])
        if k in group_effects.smooths:
            places = np.arange(group_effects.slices()[k].start, group_effects.slices()[k].stop)
            variables.append(Variable(factor, {f"{factor}_function": list(group_effects.levels[k])}, places))
            continue
        dim = factor if factor not in used else f"{factor}_level"
        for j, column in enumerate(group_effects.columns[k]):
            places = group_effects.slices()[k].start + j + count * np.arange(len(group_effects.levels[k]))
            variables.append(
                Variable(
                    _without_slash(f"{column}|{group_effects.names[k]}"), {dim: list(group_effects.levels[k])}, places
                )
            )
    return variables


def _without_slash(name: str) -> str:
    """A name without slashes, which ArviZ files take for groups."""
    return name.replace("/", "÷")
