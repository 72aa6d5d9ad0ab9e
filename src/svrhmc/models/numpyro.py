"""The door for NumPyro: a model is run on one row at a time, by NumPyro's own handlers.

Let the model have latent z and, in a plate of n rows, observed yᵢ. Its log density is log p(z) + Σᵢ log p(yᵢ | z). The
term of row i is what the model gives in that plate where every array of rows among its arguments is cut to row i, and
the plate to size 1; a plate that is subsampled multiplies by n / size, and that is undone. All outside the plate,
observed or not, is taken for log p(z), with the Jacobians by which NumPyro makes z unconstrained. Both are compared
with NumPyro's density of all rows, site by site. What is sampled is the model on a batch of rows at a time, as it was
written: the same sum, without an axis of length 1 in every array, by which a gradient would take four times as long.

A model that is no such sum (a Gaussian process, a hidden Markov model, an effect of each row) is one component: a
single "row" that has all data, with log p(y | z) whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.errors import first_line, requirement
from svrhmc.core.jax import Tree, scope
from svrhmc.models.description import (
    DRAWN,
    LONG,
    LibraryDensity,
    ModelDescription,
    NotByRowsError,
    Params,
    Parts,
    Row,
    comparison_points,
    find_start,
    import_package,
    log_likelihoods_by_value,
    require_sum,
    sum_of_parts,
)  # fmt: skip
from svrhmc.models.numpyro_effects import standardise_effects
from svrhmc.models.numpyro_sites import (
    Arguments,
    Model,
    Rows,
    Site,
    initial_sites,
    require_all_rows,
    require_sampled,
    sites_of,
)

if TYPE_CHECKING:
    import jax

_CHECKED_ROWS = 1 << 17  # at most, by which a model is compared with itself


Run = tuple[Model, tuple[Tree, ...], dict[str, Tree]]  # a model and its arguments


def describe_numpyro(model: Model, *args: Tree, plate: str | None = None, **kwargs: Tree) -> ModelDescription:
    """Take a NumPyro model apart; the arguments are the model's own."""
    import_package("numpyro", "from_numpyro")
    if not callable(model):
        raise requirement("model", "a function with NumPyro's statements in it", repr(model))
    with scope():
        arguments = Arguments.of(model, args, kwargs)
        own = initial_sites(model, arguments)
        require_sampled(own)
        model = standardise_effects(model, arguments)
        sites = initial_sites(model, arguments)
        try:
            described = _describe_by_rows(model, arguments, sites, plate)
        except NotByRowsError as error:
            if plate is not None:  # the user asked for rows
                raise
            described = _describe_as_one(model, arguments, sites, error)
        return described.restricted(own, {name: site.axes for name, site in own.items()})


def _describe_by_rows(
    model: Model, arguments: Arguments, sites: Mapping[str, Site], plate: str | None
) -> ModelDescription:
    """The model as a sum over the rows of a plate."""
    rows = Rows.of(sites, arguments, plate)
    row_model = _RowModel(model, arguments.on_device(rows.arrays), rows, 1)
    _require_shared_latents(sites, row_model.sites())
    data = {name: arguments.leaves[name] for name in rows.arrays}
    checked_rows = data if rows.count <= _CHECKED_ROWS else _select_rows(data, rows.count)
    origin, library_density = row_model.origin(sites), row_model.library_density(checked_rows)
    row_model.require_rows(origin)
    init = find_start(origin, library_density)
    require_sum(row_model.parts, row_model.log_prior, checked_rows, init, library_density)
    same = row_model.names(init, checked_rows)
    names = tuple(name for name in sites if name in same)
    return ModelDescription(
        sum_of_parts(row_model.observed),
        row_model.log_prior,
        data,
        init,
        row_model.constrain(names),
        names,
        batched=True,
        prior_draws=row_model.prior_draws(init),
        dims={name: sites[name].axes for name in names},
        observed=rows.sites,
        observations=row_model.observations,
    )


def _describe_as_one(
    model: Model, arguments: Arguments, sites: Mapping[str, Site], error: NotByRowsError
) -> ModelDescription:
    """The model as one component, whose only row has all arrays among the arguments."""
    require_all_rows(sites)
    arrays = _traceable_arrays(model, arguments)
    observed = tuple(site.name for site in sites.values() if site.observed)
    traceable = arguments.on_device(arrays) if arrays else arguments
    row_model = _RowModel(model, traceable, Rows(1, arrays, observed, None), None)
    data = {name: np.asarray(arguments.leaves[name])[None] for name in arrays} or {"all data": np.zeros(1)}

    def parts(params: Params, row: Row) -> Parts:
        return row_model.observed(params, {name: row[name] for name in arrays})

    def whole(rows: Row) -> Parts:
        return {name: rows[name][0] for name in arrays}

    def log_likelihood(params: Params, rows: Row) -> jax.Array:
        return sum_of_parts(parts)(params, whole(rows))

    library_density = row_model.library_density({name: arguments.leaves[name] for name in arrays})
    init = find_start(row_model.origin(sites), library_density)
    try:
        require_sum(parts, row_model.log_prior, data, init, library_density)
    except NotByRowsError:
        raise requirement(
            "model",
            "one that has the same density each time it is run",
            "two densities at the same parameters",
            "it draws random numbers of its own, such as the weights of a network without priors; draw them by "
            "numpyro.sample, or give them to the model as arguments",
        ) from error
    long = tuple(name for name, site in sites.items() if site.kind == "deterministic" and np.prod(site.shape) > LONG)
    names = tuple(name for name in row_model.quantities(init) if name not in long)
    constrain = row_model.constrain(names)
    return ModelDescription(
        log_likelihood,
        row_model.log_prior,
        data,
        init,
        constrain,
        names,
        True,
        error.note(long),
        row_model.prior_draws(init),
        dims={name: sites[name].axes for name in names if name in sites},
        observed=observed,
        terms=lambda params, rows: log_likelihoods_by_value(row_model.terms(params, whole(rows))),
        observations=lambda params, rows, key: row_model.observations(params, whole(rows), key),
    )


def _traceable_arrays(model: Model, arguments: Arguments) -> tuple[str, ...]:
    """The arrays among the arguments, if the model runs where their numbers are not known; else none."""
    import jax

    arrays = {name: leaf for name, leaf in arguments.leaves.items() if np.ndim(leaf)}
    try:
        sites_of(model, arguments.on_device(arrays), arrays)
    except jax.errors.JAXTypeError:
        return ()
    return tuple(arrays)


class _RowModel:
    """A model on some of its rows. shown: how many of them quantities are computed with, which need none; None: all."""

    def __init__(self, model: Model, arguments: Arguments, rows: Rows, shown: int | None) -> None:
        import jax.numpy as jnp

        self._model, self._arguments, self._rows = model, arguments, rows
        self._first = {name: jnp.asarray(arguments.leaves[name][:shown]) for name in rows.arrays}

    def sites(self) -> dict[str, Site]:
        """The statements of the model where there is only one row."""
        with _explain_single_row_errors(self._rows.arrays):
            plate = self._rows.plate
            one = self._model if plate is None else _resize_plate(self._model, plate, 1)
            return sites_of(one, self._arguments, self._first)

    def require_rows(self, params: Params) -> None:
        """Refuse a model whose density cannot be had for one row."""
        import jax

        with _explain_single_row_errors(self._rows.arrays):
            jax.eval_shape(self.observed, params, self._first)

    def parts(self, params: Params, row: Row) -> Parts:
        """The log density of one row at every observed site."""
        one = {name: row[name][None] for name in self._rows.arrays}
        return self.observed(params, one)

    def observed(self, params: Params, data: Mapping[str, Tree], seed: int = 0) -> Parts:
        """The log density at every observed site that belongs to rows."""
        from numpyro.infer.util import compute_log_probs

        log_densities: Parts = compute_log_probs(*self._condition(params, data, self._run(data, seed)), {})[0]
        return log_densities

    def _condition(self, params: Params, data: Mapping[str, Tree], run: Run) -> Run:
        """A run whose latent quantities are those of params, and which shows the observed sites that belong to rows."""
        from numpyro import handlers

        model, args, kwargs = run
        latent = {name: value for name, value in self._constrained(params, data).items() if name in params}
        return handlers.block(handlers.substitute(model, data=latent), expose=list(self._rows.sites)), args, kwargs

    def terms(self, params: Params, data: Mapping[str, Tree]) -> Parts:
        """The log density of every observed value, by site; a factor observes nothing."""
        from numpyro.infer.util import compute_log_probs

        inner, args, kwargs = self._condition(params, data, self._run(data))
        log_densities, sites = compute_log_probs(inner, args, kwargs, {}, sum_log_prob=False)
        return {name: term for name, term in log_densities.items() if np.size(sites[name]["value"])}

    def observations(self, params: Params, data: Mapping[str, Tree], key: Tree) -> Parts:
        """The observed values that belong to rows; with a key, new ones in their places."""
        from numpyro import handlers

        model, args, kwargs = self._run(data, 0 if key is None else key)
        given = self._condition(params, data, (model if key is None else handlers.uncondition(model), args, kwargs))
        inner, args, kwargs = given
        sites = handlers.trace(inner).get_trace(*args, **kwargs)
        return {name: sites[name]["value"] for name in self._rows.sites if np.size(sites[name]["value"])}

    def log_prior(self, params: Params) -> jax.Array:
        """All that belongs to no row."""
        from numpyro.infer.util import potential_energy

        return -potential_energy(*self._outside(), params)

    def quantities(self, params: Params) -> dict[str, Tree]:
        """All latent and derived quantities, as they are where there are only the rows shown."""
        return self._constrained(params, self._first)

    def constrain(self, names: tuple[str, ...]) -> Callable[[Params], dict[str, Tree]]:
        """A function of params that gives the quantities of these names."""

        def constrain(params: Params) -> dict[str, Tree]:
            quantities = self.quantities(params)
            return {name: quantities[name] for name in names}

        return constrain

    def origin(self, order: Iterable[str]) -> Params:
        """The unconstrained parameters, all of them 0, in this order."""
        import jax
        from numpyro import handlers
        from numpyro.infer import init_to_median

        def median(model: Model) -> Model:
            return handlers.substitute(model, substitute_fn=init_to_median())

        shapes = jax.eval_shape(lambda: self._unconstrained(0, median))
        return {name: np.zeros(shapes[name].shape) for name in order if name in shapes}

    def prior_draws(self, init: Params) -> Params | None:
        """Of the unconstrained parameters, always the same, as many as `described.DRAWN` along a leading axis; None
        where one has a prior that cannot be drawn, such as a flat one.
        """
        import jax

        from svrhmc.core.jit import program

        @program
        def draw(key: Tree) -> Params:
            return jax.vmap(lambda one: self._unconstrained(one, lambda model: model))(jax.random.split(key, DRAWN))

        try:
            draws = draw(jax.random.PRNGKey(0))
        except NotImplementedError:
            return None
        return {name: np.asarray(draws[name]) for name in init}

    def _unconstrained(self, seed: Tree, drawn: Callable[[Model], Model]) -> Params:
        """The parameters of one run of the model without what belongs to rows, its statements drawn so."""
        from numpyro import handlers
        from numpyro.infer.util import unconstrain_fn

        model, args, kwargs = self._outside(seed)
        sites = handlers.trace(drawn(model)).get_trace(*args, **kwargs).items()
        latent = {name: site["value"] for name, site in sites if site["type"] == "sample" and not site["is_observed"]}
        params: Params = unconstrain_fn(model, args, kwargs, latent)
        return params

    def library_density(self, data: Mapping[str, Tree]) -> LibraryDensity:
        """NumPyro's density of all these rows together: by observed site, and the whole.

        With other random numbers than elsewhere, so that a model that draws some of its own is found out.
        """
        from numpyro.infer.util import potential_energy

        from svrhmc.core.jit import program

        @program
        def both(params: Params, data: Mapping[str, Tree]) -> tuple[Parts, jax.Array]:
            return self.observed(params, data, 1), -potential_energy(*self._run(data, 1), params)

        return lambda params: both(params, data)

    def names(self, init: Params, data: Mapping[str, Tree]) -> set[str]:
        """Of the quantities that are the same whatever the rows: with the first row only, and with all."""
        import jax

        from svrhmc.core.jit import program

        one, every = jax.eval_shape(lambda p, d: (self.quantities(p), self._constrained(p, d)), init, data)
        same = [name for name in one if one[name].shape == every[name].shape]

        @program
        def both(params: Params, data: Mapping[str, Tree]) -> tuple[dict[str, Tree], dict[str, Tree]]:
            one, every = self.quantities(params), self._constrained(params, data)
            return {name: one[name] for name in same}, {name: every[name] for name in same}

        *_, last = comparison_points(init)
        with_one_row, with_all_rows = both(last, data)
        return {
            name for name in same if name in init or np.allclose(with_one_row[name], with_all_rows[name], 1e-9, 1e-12)
        }

    def _outside(self, seed: Tree = 0) -> Run:
        """The model without what belongs to rows."""
        from numpyro import handlers

        model, args, kwargs = self._run(self._first, seed)
        return handlers.block(model, hide=list(self._rows.sites)), args, kwargs

    def _run(self, data: Mapping[str, Tree], seed: Tree = 0) -> Run:
        """The model and its arguments with these rows only."""
        from numpyro import handlers

        seeded = handlers.seed(self._model, seed)
        if self._rows.plate is not None:
            seeded = _resize_plate(seeded, self._rows.plate, len(next(iter(data.values()))))
        return self._arguments.called(seeded, data)

    def _constrained(self, params: Params, data: Mapping[str, Tree]) -> dict[str, Tree]:
        from jax import numpy as jnp
        from numpyro.infer.util import constrain_fn

        arrays = {name: jnp.asarray(value) for name, value in params.items()}  # a scan takes them by traced numbers
        quantities: dict[str, Tree] = constrain_fn(*self._run(data), arrays, return_deterministic=True)
        return quantities


def _require_shared_latents(sites: Mapping[str, Site], sites_of_one_row: Mapping[str, Site]) -> None:
    """Refuse a latent of each row: one of another shape where there is one row alone."""
    for name, site in sites.items():
        latent = site.kind == "sample" and not site.observed
        if latent and (name not in sites_of_one_row or site.shape != sites_of_one_row[name].shape):
            raise NotByRowsError(
                f"every row has a {name!r} of its own",
                "one whose parameters are shared by the rows",
                f"{name!r}, which every row has for itself",
                "a batch of rows says nothing about the others' values; sum or integrate it out",
            )


@contextmanager
def _explain_single_row_errors(arrays: Iterable[str]) -> Iterator[None]:
    """Where a model is run on one row; says why it cannot be."""
    import jax

    try:
        yield
    except jax.errors.JAXTypeError as error:
        raise NotByRowsError(
            "what it does depends on the numbers in its rows, as with `if`, float(x) or len(np.unique(x))",
            "one that takes its rows as numbers still unknown",
            f"one that looks at them ({first_line(error)})",
            "compute what it looks for outside, and give it to the model as an argument",
        ) from error
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        raise NotByRowsError(
            "it cannot be run on a single row",
            "one that can be run on a single row",
            first_line(error),
            f"it was given one row of each of {', '.join(arrays)}; rows that are not among the model's "
            "arguments, and numbers of rows that are written into it, have to become arguments",
        ) from error


def _resize_plate(model: Model, plate: str, count: int) -> Model:
    """A model whose plate has so many rows, all of them there and none counted for others."""
    import jax.numpy as jnp
    from numpyro.primitives import Messenger

    class Sized(Messenger):  # type: ignore[misc]
        factor: Tree = 1.0

        def process_message(self, message: dict[str, Tree]) -> None:
            if message["type"] == "plate" and message["name"] == plate:
                size = message["args"][0]
                message["args"], message["value"], self.factor = (size, None), jnp.arange(count), size / count
            elif message["type"] == "sample" and plate in {frame.name for frame in message["cond_indep_stack"]}:
                message["scale"] = None if message["scale"] is None else message["scale"] / self.factor

    return Sized(model)


def _select_rows(data: Mapping[str, Tree], count: int) -> dict[str, Tree]:
    """Some of the rows, from first to last."""
    chosen = np.linspace(0, count - 1, _CHECKED_ROWS).astype(np.int64)
    return {name: value[chosen] for name, value in data.items()}
