"""The door for NumPyro: a model is run on one row at a time, by NumPyro's own handlers.

Let the model have latent z and, in a plate of n rows, observed yᵢ. Its log density is log p(z) + Σᵢ log p(yᵢ | z). The
term of row i is what the model gives in that plate where every array of rows among its arguments is cut to row i, and
the plate to size 1; a plate that is subsampled multiplies by n / size, and that is undone. All outside the plate,
observed or not, is taken for log p(z), with the Jacobians by which NumPyro makes z unconstrained. Both are compared
with NumPyro's density of all rows, site by site.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from svrhmc.core.errors import requirement
from svrhmc.core.jaxed import scope
from svrhmc.models.described import Described, Params, Parts, Row, needed, nudged, points, require_sum, total

Model = Callable[..., Any]

_CHECKED_ROWS = 1 << 17  # at most, by which a model is compared with itself


def describe_numpyro(model: Model, *args: Any, plate: str | None = None, **kwargs: Any) -> Described:
    """Take a NumPyro model apart; the arguments are the model's own."""
    needed("numpyro", "from_numpyro")
    if not callable(model):
        raise requirement("model", "a function with NumPyro's statements in it", repr(model))
    with scope():
        arguments = _Arguments.of(model, args, kwargs)
        sites = _first_look(model, arguments)
        _require_sampled(sites)
        rows = _Rows.of(sites, arguments, plate)
        apart = _Apart(model, arguments, rows)
        _require_shared(sites, apart.sites(), rows.plate)
        init, data = apart.init(sites), {name: arguments.leaves[name] for name in rows.arrays}
        apart.require_rows(init)
        some = data if rows.count <= _CHECKED_ROWS else _spread(data, rows.count)
        require_sum(apart.parts, apart.log_prior, some, init, apart.own(some))
        same = apart.names(init, some)
        names = tuple(name for name in sites if name in same)

    def constrain(params: Params) -> dict[str, Any]:
        quantities = apart.quantities(params)
        return {name: quantities[name] for name in names}

    return Described(total(apart.parts), apart.log_prior, data, init, constrain, names)


@dataclass(frozen=True)
class _Arguments:
    """What a model is called with, leaf by leaf, each with a name such as `X` or `table['age']`."""

    leaves: dict[str, Any]
    structure: Any

    @classmethod
    def of(cls, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Arguments:
        import jax

        try:
            positional = list(inspect.signature(model).parameters)
        except (TypeError, ValueError):  # such as a function of C
            positional = []
        leaves = {}
        paths, structure = jax.tree_util.tree_flatten_with_path((args, kwargs))
        for (kind, first, *rest), leaf in paths:
            place = first.idx if kind.idx == 0 else first.key
            name = positional[place] if kind.idx == 0 and place < len(positional) else str(place)
            told = name + jax.tree_util.keystr(tuple(rest))
            array = np.asarray(leaf) if hasattr(leaf, "__array__") and not isinstance(leaf, jax.Array) else leaf
            leaves[told if told not in leaves else f"{told} {len(leaves)}"] = array
        return cls(leaves, structure)

    def called(self, model: Model, arrays: Mapping[str, Any]) -> tuple[Model, tuple[Any, ...], dict[str, Any]]:
        """A model and its arguments, some of them replaced."""
        import jax

        args, kwargs = jax.tree_util.tree_unflatten(self.structure, {**self.leaves, **arrays}.values())
        return model, args, kwargs

    def on_device(self, without: Iterable[str]) -> _Arguments:
        """With JAX's arrays for all but the rows, so that rows still unknown can index them."""
        import jax.numpy as jnp

        kept = {name: jnp.asarray(x) if np.ndim(x) and name not in without else x for name, x in self.leaves.items()}
        return _Arguments(kept, self.structure)

    def arrays(self, count: int) -> tuple[str, ...]:
        """The names of those that have so many rows."""
        return tuple(name for name, leaf in self.leaves.items() if np.ndim(leaf) and np.shape(leaf)[0] == count)


@dataclass(frozen=True)
class _Site:
    """What a model says at one of its statements."""

    name: str
    kind: str
    observed: bool
    discrete: bool
    shape: tuple[int, ...]  # of the value
    batch: tuple[int, ...]  # of its log density
    plates: tuple[str, ...]
    size: int  # of a plate


def _sites(model: Model, arguments: _Arguments, arrays: Mapping[str, Any]) -> dict[str, _Site]:
    """The statements of a model; nothing is computed."""
    import jax
    from numpyro import handlers
    from numpyro.infer import init_to_median

    found: dict[str, _Site] = {}

    def look(arrays: Mapping[str, Any]) -> None:
        started = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_median())
        run, args, kwargs = arguments.called(started, arrays)
        for name, site in handlers.trace(run).get_trace(*args, **kwargs).items():
            kind, shape = site["type"], np.shape(site["value"]) if site["type"] != "plate" else ()
            sampled = kind == "sample"
            event = len(site["fn"].event_shape) if sampled else 0
            batch = np.broadcast_shapes(shape[: len(shape) - event], site["fn"].batch_shape) if sampled else ()
            discrete = sampled and not site["is_observed"] and bool(site["fn"].support.is_discrete)
            plates = tuple(frame.name for frame in site.get("cond_indep_stack", ()))
            size = int(site["args"][0]) if kind == "plate" else 0
            found[name] = _Site(name, kind, sampled and site["is_observed"], discrete, shape, batch, plates, size)

    jax.eval_shape(look, dict(arrays))
    return found


def _first_look(model: Model, arguments: _Arguments) -> dict[str, _Site]:
    """Where it is not yet known which arguments have the rows: with the values of none of them, if that will do."""
    import jax

    try:
        return _sites(model, arguments, {name: leaf for name, leaf in arguments.leaves.items() if np.ndim(leaf)})
    except jax.errors.JAXTypeError:
        return _sites(model, arguments, {})


def _require_sampled(sites: Mapping[str, _Site]) -> None:
    """Refuse what is neither drawn from a continuous prior nor observed."""
    if not any(site.observed for site in sites.values()):
        raise requirement("model", "given data", "no observed site", "give it what its obs= takes")
    for site in sites.values():
        if site.kind in ("param", "mutable"):
            raise requirement(
                "model",
                "made of sample statements",
                f"the {site.kind} {site.name!r}",
                "it has no prior; give it one by numpyro.sample, or a value",
            )
        if site.discrete:
            raise requirement(
                "model",
                "a density of continuous parameters",
                f"the discrete {site.name!r}",
                "sum it out, for instance by numpyro.distributions.MixtureSameFamily",
            )


@dataclass(frozen=True)
class _Rows:
    """Which statements are a sum over which rows."""

    count: int
    arrays: tuple[str, ...]  # arguments that have them
    sites: tuple[str, ...]  # observed
    plate: str | None

    @classmethod
    def of(cls, sites: Mapping[str, _Site], arguments: _Arguments, plate: str | None) -> _Rows:
        """By the plate that is named; or by the only one that has observed sites and rows among the arguments; or,
        without any, by the leading axis that all observed sites share.
        """
        observed = [site for site in sites.values() if site.observed]
        sizes = {name: sites[name].size for site in observed for name in site.plates}
        if plate is not None and plate not in sizes:
            allowed = f"the name of a plate with observed sites ({', '.join(map(repr, sizes)) or 'there is none'})"
            raise requirement("plate", allowed, repr(plate))
        fitting = [name for name in sizes if arguments.arrays(sizes[name])] if plate is None else [plate]
        if len(fitting) > 1:
            listed = ", ".join(f"{name!r} of size {sizes[name]}" for name in fitting)
            raise requirement("plate", "named where several may be the rows", f"none, and there are {listed}")
        if fitting:
            (name,) = fitting
            inside = tuple(site.name for site in observed if name in site.plates)
            return cls._found(sizes[name], arguments, inside, name)
        counts = {site.batch[0] for site in observed if site.batch}
        if sizes or len(counts) != 1:
            given = ", ".join(f"{site.name!r} of shape {site.batch}" for site in observed)
            raise requirement(
                "model",
                "a sum over rows that are among its arguments",
                f"the observed {given}" + "".join(f", plate {name!r} of size {n}" for name, n in sizes.items()),
                "put the observations into numpyro.plate, and give all rows to the model as arguments",
            )
        (count,) = counts
        return cls._found(count, arguments, tuple(site.name for site in observed if site.batch), None)

    @classmethod
    def _found(cls, count: int, arguments: _Arguments, sites: tuple[str, ...], plate: str | None) -> _Rows:
        arrays = arguments.arrays(count)
        if not arrays:
            raise requirement(
                "model",
                f"called with its {count} rows",
                "no array among its arguments that has so many",
                "give the data to the model as arguments, all rows of it and no batch",
            )
        return cls(count, arrays, sites, plate)


class _Apart:
    """A model on some of its rows."""

    def __init__(self, model: Model, arguments: _Arguments, rows: _Rows) -> None:
        self._model, self._arguments, self._rows = model, arguments.on_device(rows.arrays), rows

    def sites(self) -> dict[str, _Site]:
        """The statements of the model where there is only one row."""
        with _one_row(self._rows.arrays):
            return _sites(_of_size(self._model, self._rows.plate, 1), self._arguments, self._first)

    def require_rows(self, init: Params) -> None:
        """Refuse a model whose density cannot be had for one row."""
        import jax

        with _one_row(self._rows.arrays):
            jax.eval_shape(self._observed, init, self._first)

    def parts(self, params: Params, row: Row) -> Parts:
        """The log density of one row at every observed site."""
        one = {name: row[name][None] for name in self._rows.arrays}
        return self._observed(params, one)

    def log_prior(self, params: Params) -> Any:
        """All that belongs to no row."""
        from numpyro.infer.util import potential_energy

        return -potential_energy(*self._outside(), params)

    def quantities(self, params: Params) -> dict[str, Any]:
        """All latent and derived quantities, as they are where there is only the first row."""
        return self._constrained(params, self._first)

    def init(self, order: Iterable[str]) -> Params:
        """Near the origin of the unconstrained parameters, in this order."""
        import jax
        from numpyro import handlers
        from numpyro.infer import init_to_median
        from numpyro.infer.util import unconstrain_fn

        def drawn() -> Params:
            model, args, kwargs = self._outside()
            run = handlers.substitute(model, substitute_fn=init_to_median())
            sites = handlers.trace(run).get_trace(*args, **kwargs).items()
            latent = {name: site["value"] for name, site in sites if site["type"] == "sample" and not site["is_observed"]}
            found: Params = unconstrain_fn(model, args, kwargs, latent)
            return found

        shapes = jax.eval_shape(drawn)
        return nudged({name: np.zeros(shapes[name].shape) for name in order if name in shapes})

    def own(self, data: Mapping[str, Any]) -> Callable[[Params], tuple[Parts, Any]]:
        """NumPyro's density of all these rows together: by observed site, and the whole."""
        import jax
        from numpyro.infer.util import potential_energy

        @jax.jit
        def both(params: Params, data: Mapping[str, Any]) -> tuple[Parts, Any]:
            return self._observed(params, data), -potential_energy(*self._run(data), params)

        return lambda params: both(params, data)

    def names(self, init: Params, data: Mapping[str, Any]) -> set[str]:
        """Of the quantities that are the same whatever the rows: with the first row only, and with all."""
        import jax

        one, every = jax.eval_shape(lambda p, d: (self.quantities(p), self._constrained(p, d)), init, data)
        same = [name for name in one if one[name].shape == every[name].shape]

        @jax.jit
        def both(params: Params, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            one, every = self.quantities(params), self._constrained(params, data)
            return {name: one[name] for name in same}, {name: every[name] for name in same}

        *_, last = points(init)
        found, expected = both(last, data)
        return {name for name in same if name in init or np.allclose(found[name], expected[name], 1e-9, 1e-12)}

    @cached_property
    def _first(self) -> dict[str, Any]:
        import jax.numpy as jnp

        return {name: jnp.asarray(self._arguments.leaves[name][:1]) for name in self._rows.arrays}

    def _outside(self) -> tuple[Model, tuple[Any, ...], dict[str, Any]]:
        """The model without what belongs to rows."""
        from numpyro import handlers

        model, args, kwargs = self._run(self._first)
        return handlers.block(model, hide=list(self._rows.sites)), args, kwargs

    def _run(self, data: Mapping[str, Any]) -> tuple[Model, tuple[Any, ...], dict[str, Any]]:
        """The model and its arguments with these rows only."""
        from numpyro import handlers

        count = len(next(iter(data.values())))
        return self._arguments.called(_of_size(handlers.seed(self._model, 0), self._rows.plate, count), data)

    def _constrained(self, params: Params, data: Mapping[str, Any]) -> dict[str, Any]:
        from numpyro.infer.util import constrain_fn

        found: dict[str, Any] = constrain_fn(*self._run(data), params, return_deterministic=True)
        return found

    def _observed(self, params: Params, data: Mapping[str, Any]) -> Parts:
        """The log density at every observed site that belongs to rows."""
        from numpyro import handlers
        from numpyro.infer.util import compute_log_probs

        model, args, kwargs = self._run(data)
        latent = {name: value for name, value in self._constrained(params, data).items() if name in params}
        inner = handlers.block(handlers.substitute(model, data=latent), expose=list(self._rows.sites))
        found: Parts = compute_log_probs(inner, args, kwargs, {})[0]
        return found


def _require_shared(sites: Mapping[str, _Site], alone: Mapping[str, _Site], plate: str | None) -> None:
    """Refuse a latent of each row: one in the plate, or one whose size follows the number of rows."""
    for name, site in sites.items():
        latent = site.kind == "sample" and not site.observed
        if latent and (plate in site.plates or name not in alone or site.shape != alone[name].shape):
            raise requirement(
                "model",
                "one whose parameters are shared by the rows",
                f"{name!r}, which every row has for itself",
                "a batch of rows says nothing about the others' values; sum or integrate it out",
            )


@contextmanager
def _one_row(arrays: Iterable[str]) -> Iterator[None]:
    """Where a model is run on one row; says why it cannot be."""
    import jax

    try:
        yield
    except jax.errors.JAXTypeError as error:
        raise requirement(
            "model",
            "one that takes its rows as numbers still unknown",
            f"one that looks at them ({_line(error)})",
            "compute what it looks for outside, and give it to the model as an argument",
        ) from error
    except (TypeError, ValueError, IndexError, AssertionError) as error:
        raise requirement(
            "model",
            "one that can be run on a single row",
            _line(error),
            f"it was given one row of each of {', '.join(arrays)}; rows that are not among the model's "
            "arguments, and numbers of rows that are written into it, have to become arguments",
        ) from error


def _of_size(model: Model, plate: str | None, count: int) -> Model:
    """A model whose plate has so many rows, all of them there and none counted for others."""
    import jax.numpy as jnp
    from numpyro.primitives import Messenger

    class Sized(Messenger):  # type: ignore[misc]
        factor = 1.0

        def process_message(self, message: dict[str, Any]) -> None:
            if message["type"] == "plate" and message["name"] == plate:
                size = message["args"][0]
                message["args"], message["value"], self.factor = (size, None), jnp.arange(count), size / count
            elif message["type"] == "sample" and plate in {frame.name for frame in message["cond_indep_stack"]}:
                message["scale"] = None if message["scale"] is None else message["scale"] / self.factor

    return Sized(model)


def _spread(data: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Some of the rows, from first to last."""
    chosen = np.linspace(0, count - 1, _CHECKED_ROWS).astype(np.int64)
    return {name: value[chosen] for name, value in data.items()}


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
