"""What a NumPyro model says: its arguments, its statements, and which of them are a sum over which rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from svrhmc.core.errors import first_line, requirement
from svrhmc.core.jax import Tree
from svrhmc.models.description import NotByRowsError

Model = Callable[..., object]  # a function of NumPyro's primitives

_MODULE_PARAMETERS = "$params"  # where a network's own parameters were; with a prior on each, they are not used


@dataclass(frozen=True)
class Arguments:
    """What a model is called with, leaf by leaf, each with a name such as `X` or `table['age']`."""

    leaves: dict[str, Tree]
    structure: Tree

    @classmethod
    def of(cls, model: Model, args: tuple[Tree, ...], kwargs: dict[str, Tree]) -> Arguments:
        """The arguments with which a model is called, by their names or places."""
        import jax

        try:
            positional = list(inspect.signature(model).parameters)
        except (TypeError, ValueError):  # such as a function of C
            positional = []
        leaves: dict[str, Tree] = {}
        paths, structure = jax.tree_util.tree_flatten_with_path((args, kwargs))
        for (kind, first, *rest), leaf in paths:
            place = first.idx if kind.idx == 0 else first.key
            name = positional[place] if kind.idx == 0 and place < len(positional) else str(place)
            label = name + jax.tree_util.keystr(tuple(rest))
            array = (
                np.asarray(leaf)
                if hasattr(leaf, "__array__") and not isinstance(leaf, jax.Array | np.generic)
                else leaf
            )
            leaves[label if label not in leaves else f"{label} {len(leaves)}"] = array
        return cls(leaves, structure)

    def called(self, model: Model, arrays: Mapping[str, Tree]) -> tuple[Model, tuple[Tree, ...], dict[str, Tree]]:
        """A model and its arguments, some of them replaced."""
        import jax

        args, kwargs = jax.tree_util.tree_unflatten(self.structure, {**self.leaves, **arrays}.values())
        return model, args, kwargs

    def on_device(self, without: Iterable[str]) -> Arguments:
        """With JAX's arrays for all but the rows, so that rows still unknown can index them."""
        import jax.numpy as jnp

        kept = {name: jnp.asarray(x) if np.ndim(x) and name not in without else x for name, x in self.leaves.items()}
        return Arguments(kept, self.structure)

    def arrays(self, count: int) -> tuple[str, ...]:
        """The names of those that have so many rows."""
        return tuple(name for name, leaf in self.leaves.items() if np.ndim(leaf) and np.shape(leaf)[0] == count)


@dataclass(frozen=True)
class Site:
    """What a model says at one of its statements."""

    name: str
    kind: str
    observed: bool
    discrete: bool
    shape: tuple[int, ...]  # of the value
    batch: tuple[int, ...]  # of its log density
    plates: tuple[str, ...]
    axes: tuple[str, ...]  # of the value: the plate along each, "" where there is none
    size: int  # of a plate
    taken: int  # of its rows; fewer where it is subsampled


def sites_of(model: Model, arguments: Arguments, arrays: Mapping[str, Tree]) -> dict[str, Site]:
    """The statements of a model; nothing is computed."""
    import jax
    from numpyro import handlers
    from numpyro.infer import init_to_median

    sites: dict[str, Site] = {}

    def look(arrays: Mapping[str, Tree]) -> None:
        started = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_median())
        run, args, kwargs = arguments.called(started, arrays)
        for name, site in handlers.trace(run).get_trace(*args, **kwargs).items():
            kind, shape = site["type"], np.shape(site["value"]) if site["type"] != "plate" else ()
            sampled = kind == "sample"
            event = len(site["fn"].event_shape) if sampled else 0
            batch = np.broadcast_shapes(shape[: len(shape) - event], site["fn"].batch_shape) if sampled else ()
            discrete = sampled and not site["is_observed"] and bool(site["fn"].support.is_discrete)
            frames = site.get("cond_indep_stack", ())
            plates = tuple(frame.name for frame in frames)
            frame_of_axis = {len(shape) - event + frame.dim: frame for frame in frames}
            axes = tuple(
                frame_of_axis[k].name if k in frame_of_axis and frame_of_axis[k].size == n else ""
                for k, n in enumerate(shape)
            )
            size, size_taken = (int(site["args"][0]), len(site["value"])) if kind == "plate" else (0, 0)
            observed = sampled and site["is_observed"]
            sites[name] = Site(name, kind, observed, discrete, shape, batch, plates, axes, size, size_taken)

    jax.eval_shape(look, dict(arrays))
    return sites


def initial_sites(model: Model, arguments: Arguments) -> dict[str, Site]:
    """Where it is not yet known which arguments have the rows: with the values of none of them, if that will do."""
    import jax

    try:
        return sites_of(model, arguments, {name: leaf for name, leaf in arguments.leaves.items() if np.ndim(leaf)})
    except jax.errors.JAXTypeError:
        return sites_of(model, arguments, {})
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise requirement("model", "one that runs with these arguments", reason) from error


def require_sampled(sites: Mapping[str, Site]) -> None:
    """Refuse what is neither drawn from a continuous prior nor observed."""
    if not any(site.observed for site in sites.values()):
        raise requirement("model", "given data", "no observed site", "give it what its obs= takes")
    for site in sites.values():
        if site.kind in ("param", "mutable") and not site.name.endswith(_MODULE_PARAMETERS):
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


def require_all_rows(sites: Mapping[str, Site]) -> None:
    """Refuse a batch in the place of all rows."""
    for site in sites.values():
        if site.kind == "plate" and site.taken != site.size:
            raise requirement(
                "model",
                "given all of its rows, each counted once",
                f"{site.taken:,} of the {site.size:,} rows of plate {site.name!r}",
                "leave subsample_size out: batches are drawn by the sampler, where there are rows among the arguments",
            )


@dataclass(frozen=True)
class Rows:
    """Which statements are a sum over which rows."""

    count: int
    arrays: tuple[str, ...]  # arguments that have them
    sites: tuple[str, ...]  # observed
    plate: str | None

    @classmethod
    def of(cls, sites: Mapping[str, Site], arguments: Arguments, plate: str | None) -> Rows:
        """By the plate that is named; or by the only one that has observed sites and rows among the arguments; or,
        without any, by the leading axis that all observed sites share.
        """
        observed = [site for site in sites.values() if site.observed]
        plate_sizes = {name: sites[name].size for site in observed for name in site.plates}
        if plate is not None and plate not in plate_sizes:
            allowed = (
                f"the name of a plate with observed sites ({', '.join(map(repr, plate_sizes)) or 'there is none'})"
            )
            raise requirement("plate", allowed, repr(plate))
        fitting = [name for name in plate_sizes if arguments.arrays(plate_sizes[name])] if plate is None else [plate]
        if len(fitting) > 1:
            listed = ", ".join(f"{name!r} of size {plate_sizes[name]}" for name in fitting)
            raise requirement("plate", "named where several may be the rows", f"none, and there are {listed}")
        if fitting:
            (name,) = fitting
            inside = tuple(site.name for site in observed if name in site.plates)
            return cls._with_arguments(plate_sizes[name], arguments, inside, name)
        counts = {site.batch[0] for site in observed if site.batch}
        if plate_sizes or len(counts) != 1:
            given = ", ".join(f"{site.name!r} of shape {site.batch}" for site in observed)
            raise NotByRowsError(
                "its observed sites have no rows in common with its arguments",
                "a sum over rows that are among its arguments",
                f"the observed {given}" + "".join(f", plate {name!r} of size {n}" for name, n in plate_sizes.items()),
                "put the observations into numpyro.plate, and give all rows to the model as arguments",
            )
        (count,) = counts
        return cls._with_arguments(count, arguments, tuple(site.name for site in observed if site.batch), None)

    @classmethod
    def _with_arguments(cls, count: int, arguments: Arguments, sites: tuple[str, ...], plate: str | None) -> Rows:
        arrays = arguments.arrays(count)
        if not arrays:
            raise NotByRowsError(
                f"none of its arguments has the {count} rows of its observed sites",
                f"called with its {count} rows",
                "no array among its arguments that has so many",
                "give the data to the model as arguments, all rows of it and no batch",
            )
        return cls(count, arrays, sites, plate)
