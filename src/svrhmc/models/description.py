"""A model of another library, taken apart: one row's log-likelihood, the rest, the rows, a start, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.errors import missing_package, requirement
from svrhmc.core.jax import Tree

if TYPE_CHECKING:
    import jax

Params = dict[str, Tree]
Row = Mapping[str, Tree]
Parts = dict[str, Tree]
LibraryDensity = Callable[[Params], tuple[Parts, Tree]]  # the parts of all rows together, and the whole log density

_TRIALS = 100  # of places to start from
_POINTS = 3  # at which a model is compared with itself
_SPREAD = 0.3  # of these points around the start, in unconstrained coordinates
DRAWN = 48  # draws of a prior, from which modes are looked for
LONG = 1000  # numbers of a derived quantity, beyond which it does not come along where a model is one component
_BLOCK = 1 << 14  # rows that are summed in one call
_TOLERANCE = 1e-10  # of a difference, relative to the sum of absolute values


class NotByRowsError(ValueError):
    """The error for a model that is no sum over rows of its arguments. reason: in a few words, for a note."""

    def __init__(self, reason: str, allowed: str, got: str, why: str) -> None:
        super().__init__(str(requirement("model", allowed, got, why)))
        self.reason = reason

    def note(self, left_out: Sequence[str]) -> str:
        """What is to be said where such a model is sampled all the same, without these derived quantities."""
        left = f" Derived quantities of more than {LONG} numbers are left out: {', '.join(left_out)}."
        note = f"All data are one component, so that batches of rows are not possible: {self.reason}."
        return note + (left if left_out else "")


@dataclass(frozen=True)
class ModelDescription:
    """A model as a sum over rows. The functions are JAX's, to be called where it has float64 (`core.jax.scope`).

    log_likelihood: of (params, row), for one row: the entries of `data` without their leading axis. Where the model is
        `batched`, of (params, rows), for the sum over any number of rows.
    log_prior: of params: all that belongs to no row, with the Jacobians of the constraints.
    data: the rows, by name; every array has them along its leading axis.
    init: parameters in unconstrained coordinates, by name.
    constrain: of params: the model's own quantities by their names, with those derived ones that take no rows.
    names: of what `constrain` gives.
    note: what the user should know of how the model was taken; empty where it is a sum over rows.
    prior_draws: parameters as in `init`, with a leading axis; None where the prior is not drawn.
    dims: the names of axes of quantities, "" for one without, and coords: their coordinates, where the model has some.
    observed: the names of the observed variables.
    terms: of (params, rows), where all data are one component: log p of every observed value. None: rows have theirs.
    observations: of (params, rows, key): the observed values, all of them; with a key, new ones. None: nothing in the
        door draws them.
    """

    log_likelihood: Callable[[Params, Row], jax.Array]
    log_prior: Callable[[Params], jax.Array]
    data: dict[str, Tree]
    init: Params
    constrain: Callable[[Params], dict[str, Tree]]
    names: tuple[str, ...]
    batched: bool = False
    note: str = ""
    prior_draws: Params | None = None
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    coords: Mapping[str, Sequence[object]] = field(default_factory=dict)
    observed: tuple[str, ...] = ()
    terms: Callable[[Params, Row], jax.Array] | None = None
    observations: Callable[[Params, Row, Tree], Parts] | None = None

    def restricted(self, names: Collection[str], dims: Mapping[str, tuple[str, ...]]) -> ModelDescription:
        """The same where `constrain` gives no other quantities than these, with these names of their axes."""
        kept = tuple(name for name in self.names if name in names)
        if kept == self.names:
            return self

        def constrain(params: Params) -> dict[str, Tree]:
            quantities = self.constrain(params)
            return {name: quantities[name] for name in kept}

        return replace(self, constrain=constrain, names=kept, dims={name: dims[name] for name in kept})


def import_package(package: str, purpose: str) -> ModuleType:
    """A package that one door needs, imported; or the one error that says how to get it."""
    for name in ("jax", package):
        if find_spec(name) is None:
            raise missing_package(name, "jax", purpose, also=package)
    return import_module(package)


def sum_of_parts(parts: Callable[[Params, Row], Parts]) -> Callable[[Params, Row], jax.Array]:
    """The sum of a row's parts."""

    def log_likelihood(params: Params, row: Row) -> jax.Array:
        whole: Tree = sum(parts(params, row).values())
        return whole

    return log_likelihood


def log_likelihoods_by_value(terms: Parts) -> jax.Array:
    """log p of every observed value, those of one variable after another; variables of the same shape are observed
    together, and their terms are added.
    """
    import jax.numpy as jnp

    together: dict[tuple[int, ...], Tree] = {}
    for term in terms.values():
        together[np.shape(term)] = together.get(np.shape(term), 0.0) + term
    return jnp.concatenate([jnp.ravel(term) for term in together.values()])


def find_start(start: Params, library_density: LibraryDensity) -> Params:
    """A start moved by about a tenth at random, and by more where the density is not finite there; always alike.

    Where a model is symmetric, as networks are, all slopes may be 0 in its middle.
    """
    rng = np.random.default_rng(1)
    for spread in np.geomspace(0.1, 3.0, _TRIALS):
        place = {name: np.asarray(x) + spread * rng.standard_normal(np.shape(x)) for name, x in start.items()}
        if np.isfinite(float(library_density(place)[1])):
            return place
    raise requirement(
        "model", "finite near its own start", f"a log density that is not, at {_TRIALS} places", "look at its data"
    )


def comparison_points(init: Params) -> Iterator[Params]:
    """The start and places around it, always the same."""
    rng = np.random.default_rng(0)
    for number in range(_POINTS):
        spread = _SPREAD if number else 0.0
        yield {name: np.asarray(value) + spread * rng.standard_normal(np.shape(value)) for name, value in init.items()}


def require_sum(
    parts: Callable[[Params, Row], Parts],
    log_prior: Callable[[Params], jax.Array],
    data: Mapping[str, Tree],
    init: Params,
    library_density: LibraryDensity,
) -> None:
    """Refuse a model whose log density, as it computes it itself, is not log_prior plus the sum of its rows' parts."""
    import jax

    rest, summed = jax.jit(log_prior), _sum_parts(parts, data)
    for params in comparison_points(init):
        sums, magnitudes = summed(params)
        whole, density = library_density(params)
        if not np.isfinite(float(density)):
            continue
        prior, rest_of_density = float(rest(params)), float(density) - sum(map(float, whole.values()))
        compared = {f"the rows' terms of {name!r}": (sums[name], float(whole[name]), magnitudes[name]) for name in sums}
        compared["all that belongs to no row"] = (prior, rest_of_density, abs(prior) + sum(magnitudes.values()))
        for term, (by_rows, together, scale) in compared.items():
            if not abs(by_rows - together) <= _TOLERANCE * (1.0 + scale):
                raise _not_a_sum_error(term, by_rows, together)


def _not_a_sum_error(term: str, by_rows: float, together: float) -> NotByRowsError:
    return NotByRowsError(
        "its density is no sum over rows",
        "a sum over rows",
        f"{together:.12g} for {term} where all rows are there, and {by_rows:.12g} row by row",
        "something in it takes all rows together, such as a mean of a column, has rows that are not among its "
        "arguments, or is random; compute that outside, and give it to the model as data",
    )


def _sum_parts(
    parts: Callable[[Params, Row], Parts], data: Mapping[str, Tree]
) -> Callable[[Params], tuple[dict[str, float], dict[str, float]]]:
    """Of params: what each part adds up to over all rows, and its absolute values."""
    import jax
    import jax.numpy as jnp

    from svrhmc.core.jit import program

    @program
    def block(params: Params, rows: Mapping[str, Tree]) -> tuple[Parts, Parts]:
        terms = jax.vmap(parts, (None, 0))(params, rows)
        return {name: value.sum() for name, value in terms.items()}, {
            name: jnp.abs(v).sum() for name, v in terms.items()
        }

    def summed(params: Params) -> tuple[dict[str, float], dict[str, float]]:
        sums: dict[str, float] = {}
        magnitudes: dict[str, float] = {}
        for begin in range(0, len(next(iter(data.values()))), _BLOCK):
            block_sums, block_sizes = block(
                params, {name: value[begin : begin + _BLOCK] for name, value in data.items()}
            )
            for name in block_sums:
                sums[name] = sums.get(name, 0.0) + float(block_sums[name])
                magnitudes[name] = magnitudes.get(name, 0.0) + float(block_sizes[name])
        return sums, magnitudes

    return summed
