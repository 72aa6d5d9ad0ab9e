"""A model as JAX functions: log p(row | params) and log p(params), over any pytrees, with all their derivatives.

Everything here is traced by JAX, inside `core.jax.scope`. States are flat, x = ravel(params), in float64; the user's
functions see params in `dtype`. Sums over rows are made block by block in float64, in the order of the rows, wherever
these are (`placement.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn

from svrhmc.core.arrays import Array
from svrhmc.core.jax import Tree
from svrhmc.core.jit import program
from svrhmc.core.recording import compute_array_once
from svrhmc.models.placement import RowPlace, sum_by_groups
from svrhmc.models.validation import explain_derivative_errors

State = jax.Array | Array  # traced, or of the host
COLUMNS = 32  # of a Hessian that are found together
_TOGETHER = 32  # states at which likelihoods of rows are found together
_COUNTED = 256  # rows whose operations are counted
_UNKNOWN = 64  # turns of a loop whose end is not known beforehand


@dataclass(frozen=True, eq=False)
class Functions:
    """What the user gave, and sums of it over rows.

    likelihood: of (params, rows), rows having a leading axis: log p of every row, or (with `summed`) their sum.
    prior: of params. unravel: params from a flat x. The data are no part of it but an argument of programs: JAX keeps
    what these are compiled for as long as it lives. forward: whether ∇ can be differentiated in forward mode; that of a
    function with a rule for reverse mode alone (`jax.custom_vjp`, as `odeint` has) cannot.
    """

    n: int
    dim: int
    likelihood: Callable[[Tree, Tree], jax.Array]
    prior: Callable[[Tree], jax.Array]
    unravel: Callable[[jax.Array], Tree]
    dtype: np.dtype[np.floating]
    place: RowPlace
    forward: bool = True

    def params(self, x: State) -> Tree:
        """The pytree of a state."""
        return self.unravel(x.astype(self.dtype))  # type: ignore[arg-type]

    def log_prior(self, x: State) -> jax.Array:
        """At one state, in float64."""
        return jnp.asarray(self.prior(self.params(x))).astype(jnp.float64)

    def total(self, x: State, rows: Tree) -> jax.Array:
        """Σ log p over some rows, at one state."""
        with jax.default_matmul_precision("highest"):  # else a GPU rounds factors to 10 bits
            log_likelihood = self.likelihood(self.params(x), rows)
        return jnp.sum(log_likelihood.astype(jnp.float64))

    def prior_gradient(self, x: State) -> jax.Array:
        """Of log p(params), at many states."""
        return jax.vmap(jax.grad(self.log_prior))(x)

    def batch_gradient(self, x: State, taken: Tree) -> jax.Array:
        """Σ_b ∇log p(row_b), for rows taken for each chain: (chains, dim), (chains, batch, …) → (chains, dim)."""
        return jax.vmap(jax.grad(self.total))(x, taken)

    def gradients_by_row(self, x: State, taken: Tree) -> jax.Array:
        """∇log p of every row by itself: (chains, batch, dim)."""
        return jax.vmap(self._single_row_gradients)(x, taken)

    def row_gradients(self, data: Tree, x: State) -> jax.Array:
        """The same of all rows: (chains, n, dim)."""
        return self.place.map_rows(
            data, lambda rows, at: jax.vmap(lambda state: self._single_row_gradients(state, rows))(at), x
        )

    def _single_row_gradients(self, x: State, rows: Tree) -> jax.Array:
        return jax.vmap(lambda row: jax.grad(self.total)(x, jax.tree.map(lambda leaf: leaf[None], row)))(rows)

    def sum_over_rows(self, data: Tree, function: Callable[[State, Tree], Tree], x: State) -> Tree:
        """What a function of a state and some rows gives, summed over all rows, at many states."""
        return self.place.sum_over_rows(
            data, sum_by_groups(lambda rows, at: jax.vmap(lambda state: function(state, rows))(at)), x
        )

    def full_gradient(self, data: Tree, x: State) -> jax.Array:
        """Σᵢ ∇log p(rowᵢ), at many states."""
        return self.sum_over_rows(data, jax.grad(self.total), x)

    def whole(self, data: Tree, x: State) -> jax.Array:
        """Σᵢ log p(rowᵢ), at many states."""
        return self.sum_over_rows(data, self.total, x)

    def energies(self, data: Tree, x: State) -> tuple[jax.Array, jax.Array]:
        """f = −Σᵢ log p(rowᵢ) − log p(params) and ∇f, at many states, in one pass."""
        value, slope = self.sum_over_rows(data, jax.value_and_grad(self.total), x)
        prior, prior_slope = jax.vmap(jax.value_and_grad(self.log_prior))(x)
        return -value - prior, -slope - prior_slope

    def products(self, data: Tree, x: State, directions: State) -> jax.Array:
        """∇²f(x)·d for some directions, at one state: (count, dim) → (count, dim)."""

        def of_rows(rows: Tree, at: jax.Array, along: jax.Array) -> jax.Array:
            return jax.vmap(partial(self.product, lambda state: self.total(state, rows), at))(along)

        data_part = self.place.sum_over_rows(data, sum_by_groups(of_rows), x, directions)
        return -data_part - jax.vmap(partial(self.product, self.log_prior, x))(directions)

    def product(self, function: Callable[[State], jax.Array], x: State, d: State) -> jax.Array:
        """∇²g(x)·d of a function g: the derivative of ∇g along d, or, the same, ∇(∇gᵀd) by reverse mode alone."""
        if self.forward:
            return jax.jvp(jax.grad(function), (x,), (d,))[1]
        return jax.grad(lambda state: jnp.vdot(jax.grad(function)(state), d))(x)


@partial(program, static_argnames="functions")
def potentials(functions: Functions, data: Tree, x: State) -> jax.Array:
    """f at many states."""
    return -functions.whole(data, x) - jax.vmap(functions.log_prior)(x)


@partial(program, static_argnames="functions")
def energies(functions: Functions, data: Tree, x: State) -> tuple[jax.Array, jax.Array]:
    """f and ∇f at many states."""
    return functions.energies(data, x)


@partial(program, static_argnames="functions")
def parts(functions: Functions, data: Tree, x: State, rows: Tree) -> jax.Array:
    """∇log p of some rows by themselves."""
    return functions.gradients_by_row(x, functions.place.take(data, rows))


@partial(program, static_argnames="functions")
def prior_gradient(functions: Functions, x: State) -> jax.Array:
    """The gradient of log p(params)."""
    return functions.prior_gradient(x)


@partial(program, static_argnames="functions")
def log_likelihoods(functions: Functions, data: Tree, x: State, rows: Tree) -> jax.Array:
    """log p of some rows by themselves, at one state."""
    taken = functions.place.take(data, rows)
    return jax.vmap(lambda row: functions.total(x, jax.tree.map(lambda leaf: leaf[None], row)))(taken)


@partial(program, static_argnames="functions")
def row_log_likelihoods(functions: Functions, data: Tree, x: State, rows: Tree) -> jax.Array:
    """The same at many states: (states, rows)."""
    return jax.lax.map(lambda state: log_likelihoods(functions, data, state, rows), x, batch_size=_TOGETHER)


@partial(program, static_argnames=("functions", "terms"))
def value_log_likelihoods(functions: Functions, terms: Callable[[Tree, Tree], jax.Array], data: Tree, x: State) -> Tree:
    """log p of every observed value of a model that is one component, at many states: (states, values)."""
    rows = functions.place.take(data, jnp.arange(functions.n))
    return jax.lax.map(lambda state: terms(functions.params(state), rows), x, batch_size=_TOGETHER)


@partial(program, static_argnames=("functions", "observations"))
def new_observations(
    functions: Functions, observations: Callable[[Tree, Tree, Tree], Tree], data: Tree, x: State, keys: jax.Array
) -> Tree:
    """New values of every observed variable, (states, …), with a key of JAX's random numbers for each state."""
    rows = functions.place.take(data, jnp.arange(functions.n))
    return jax.lax.map(
        lambda state_and_key: observations(functions.params(state_and_key[0]), rows, state_and_key[1]), (x, keys)
    )


@partial(program, static_argnames="functions")
def totals_of(functions: Functions, data: Tree, x: State, parts: Sequence[Tree]) -> list[jax.Array]:
    """Σ log p over each of several sets of rows, at one state."""
    return [functions.total(x, functions.place.take(data, rows)) for rows in parts]


@partial(program, static_argnames=("functions", "constrain"))
def constrained_values(functions: Functions, constrain: Callable[[Tree], Tree], x: State) -> Tree:
    """What `constrain` makes of the params of many states."""
    return jax.lax.map(lambda state: constrain(functions.params(state)), x, batch_size=4096)


@partial(program, static_argnames="functions")
def products(functions: Functions, data: Tree, x: State, directions: State) -> jax.Array:
    """∇²f(x)·d."""
    return functions.products(data, x, directions)


@partial(program, static_argnames="functions")
def prior_with_curvature(functions: Functions, x: State) -> tuple[jax.Array, jax.Array]:
    """log p(params) at one state, and row sums of the Hessian of −log p: its diagonal where coordinates are
    independent.
    """
    return functions.log_prior(x), -functions.product(functions.log_prior, x, jnp.ones_like(x))


_COPIES: WeakKeyDictionary[Functions, tuple[Functions, Tree]] = WeakKeyDictionary()


def copy_to_devices(functions: Functions, data: Tree) -> tuple[Functions, Tree]:
    """The same with all rows on each of the devices over which they are cut; made once."""
    if functions not in _COPIES:
        place, copies = functions.place.copy_to_devices(data)
        _COPIES[functions] = replace(functions, place=place), copies
    return _COPIES[functions]


def hessian(functions: Functions, data: Tree, x: Array) -> Array:
    """∇²f at one state, some columns at a time."""
    columns = []
    for first in range(0, functions.dim, COLUMNS):
        columns_of_block = np.arange(first, first + COLUMNS)
        unit = (columns_of_block[:, None] == np.arange(functions.dim)).astype(np.float64)
        columns.append(compute_array_once(partial(products, functions, data, x, unit), unit.shape, (x, unit)))
    H = np.concatenate(columns)[: functions.dim]
    return (H + H.T) / 2


def differentiable(functions: Functions) -> Functions:
    """The same, with `forward` as it can be; an error where JAX cannot differentiate it twice. Nothing is computed, but
    programs are lowered: where a rule for forward mode is missing is not known before.
    """
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), functions.place.row)
    x = jax.ShapeDtypeStruct((functions.dim,), np.float64)

    def whole(state: State, batch: Tree) -> jax.Array:
        return functions.total(state, batch) + functions.log_prior(state)

    def curved(functions_tried: Functions) -> object:
        return jax.jit(lambda state, batch: functions_tried.product(lambda at: whole(at, batch), state, state)).lower(
            x, rows
        )

    explain_derivative_errors(lambda: jax.eval_shape(jax.grad(whole), x, rows))
    try:
        curved(functions)
    except (ValueError, TypeError, NotImplementedError):
        functions = replace(functions, forward=False)
        explain_derivative_errors(lambda: curved(functions), "twice")
    return functions


def operations_of_row(functions: Functions) -> tuple[float, float, float]:
    """Operations, bytes and turns of loops of log p of a row and its gradient, as the compiler counts operations and
    bytes for some rows together. It counts what a loop does once, however often that is done: `count_loops` counts the
    rest.
    """
    count = min(functions.n, _COUNTED)
    rows = jax.tree.map(lambda one: jax.ShapeDtypeStruct((count, *one.shape), one.dtype), functions.place.row)
    x = jax.ShapeDtypeStruct((functions.dim,), np.float64)
    both = jax.value_and_grad(functions.total)
    counted: Tree = jax.jit(both).lower(x, rows).compile().cost_analysis() or {}
    more, turns = count_loops(jax.make_jaxpr(both)(x, rows).jaxpr)
    operations = float(counted.get("flops", 0.0)) + more
    return operations / count, float(counted.get("bytes accessed", 0.0)) / count, turns / count


def count_loops(program: Jaxpr) -> tuple[float, float]:
    """Numbers that loops make after their first turn, and turns that they make in all, loops within loops included.

    A loop whose end is known when it is compiled (`scan`, `fori_loop`) has its length, any other (`while_loop`, as in
    `odeint`) is taken for one of 64 turns.
    """
    more, turns = 0.0, 0.0
    for equation in program.eqns:
        length = 1
        if equation.primitive.name == "scan":
            length = int(equation.params["length"])
        elif equation.primitive.name == "while":
            length = _UNKNOWN
        for inner in _inner_programs(equation):
            inner_more, inner_turns = count_loops(inner)
            more += length * inner_more + (length - 1) * _count_numbers(inner)
            turns += length * inner_turns
        turns += length if length > 1 else 0
    return more, turns


def _count_numbers(program: Jaxpr) -> float:
    """How many numbers a program makes, without its loops' further turns."""
    variables = [variable for equation in program.eqns for variable in equation.outvars]
    own = sum(float(np.prod(variable.aval.shape)) for variable in variables)  # type: ignore[attr-defined,misc]
    return own + sum(_count_numbers(inner) for equation in program.eqns for inner in _inner_programs(equation))


def _inner_programs(equation: JaxprEqn) -> list[Jaxpr]:
    """The programs that an equation runs."""
    params = (one for value in equation.params.values() for one in (value if isinstance(value, tuple) else (value,)))
    return [inner for inner in (getattr(one, "jaxpr", one) for one in params) if hasattr(inner, "eqns")]
