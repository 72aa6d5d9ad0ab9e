"""Steps of the grid as compiled programs: random numbers of many steps at once, then a loop over these.

    z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′

The estimate ∇f̂ is that of a recipe, which `svrhmc.gradients.Estimator` defines.

A program makes up to `capacity` steps; how many is an argument, so that a run may be cut anywhere. It is compiled for a
form, a recipe and a number of chains; the sixteen numbers of a scheme are arguments too.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from svrhmc.core.devices import AXIS
from svrhmc.core.jax import Tree
from svrhmc.core.jit import program
from svrhmc.core.randomness import Purpose
from svrhmc.engines.jax import gpu, randomness
from svrhmc.engines.jax.maps import Arrays
from svrhmc.engines.jax.operations import Batch, Operations, apply_weights
from svrhmc.engines.jax.placement import Spread
from svrhmc.engines.jax.scheme import Kept, Noise, Number, move
from svrhmc.gradients import Recipe

Memory = dict[str, jax.Array]
Keys = tuple[jax.Array, jax.Array]


_UNROLLED = 8  # steps of a turn of the loop on a GPU, where each turn takes time of its own
MANY_NUMBERS = 1 << 16  # random numbers of a step


def random_numbers_of_step(chains: int, dim: int, noise: Noise, recipe: Recipe) -> int:
    """Random numbers that a step of all chains needs."""
    return chains * (noise.total * dim + max(1, recipe.batch))


class ChainArrays(NamedTuple):
    """Where chains are: x and v, (chains, dim), and what their gradient remembers."""

    x: jax.Array
    v: jax.Array
    memory: Memory


Carried = tuple[ChainArrays, jax.Array, jax.Array, Tree]  # with the states kept, their number, and numbers drawn early


class Program(NamedTuple):
    """What a program is compiled for.

    capacity: steps that it makes at most; records: how many of their states it keeps at most.
    refresh: whether the memory is renewed at the first step and every period of the recipe after it.
    whole: whether all steps of the capacity are made, which spares a GPU a look at their number in each.
    early: whether the random numbers of a step, where they are too many to be made for all steps before the first, are
        made in the step before it: each once, while a CPU would make them anew for everything that is computed of them.
    """

    operations: Operations
    recipe: Recipe
    noise: Noise
    capacity: int
    records: int
    refresh: bool
    whole: bool
    early: bool


class Inputs(NamedTuple):
    """What a program is called with: `count` steps from step `begin` on.

    fetched: the data of every step's batch, where they are not on the device.
    """

    arrays: Arrays
    scheme: tuple[jax.Array, ...]
    keys: Keys
    place: ChainArrays
    begin: Number
    count: Number  # type: ignore[assignment]
    kept: Kept
    fetched: Tree = None


@partial(program, static_argnames=("program", "spread"))
def advance(program: Program, spread: Spread, inputs: Inputs) -> tuple[ChainArrays, jax.Array]:
    """Where the chains are after these steps, and the states kept of them, (records + 1, chains, dim), the rest of
    which means nothing. spread: where each device has chains of its own, it makes their steps alone.
    """
    steps = partial(_make_all_steps, program)
    if spread.chains:
        mine, every = PartitionSpec(AXIS), PartitionSpec()
        needed = Inputs(every, every, mine, mine, every, every, every, every)  # type: ignore[arg-type]
        outputs = mine, PartitionSpec(None, AXIS)
        steps = jax.shard_map(steps, mesh=spread.mesh, in_specs=(needed,), out_specs=outputs, check_vma=False)
    result: tuple[ChainArrays, jax.Array] = steps(inputs)
    return result


def _make_all_steps(program: Program, inputs: Inputs) -> tuple[ChainArrays, jax.Array]:
    operations, recipe, noise, capacity, records, refresh, whole, early = program
    arrays, scheme, keys, place, begin, count, kept, fetched = inputs
    chains, dim = place.x.shape
    steps = (begin + jnp.arange(capacity)).astype(jnp.uint32)
    resides = gpu.supports_steps(operations, recipe, arrays)
    ahead = (
        resides or random_numbers_of_step(chains, dim, noise, recipe) < MANY_NUMBERS
    )  # else one step fills the device by itself
    fine = Purpose.NOISE_FINE if operations.dtype == jnp.float64 else None

    def draw_numbers(steps: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        xi = randomness.normals(keys, steps, noise.total * dim, Purpose.NOISE, fine)
        return xi.reshape(len(steps), chains, noise.total, dim), batches(recipe, arrays, keys, steps)

    numbers_ahead: Tree = draw_numbers(steps) if ahead else draw_numbers(steps[:1]) if early else None
    before, before_noise, kick, after, after_noise = scheme

    def step(i: jax.Array, carried: Tree, renew: bool) -> Carried:
        (x, v, memory), draws, slot, next_ones = carried
        numbers = numbers_ahead if ahead else next_ones if early else draw_numbers(steps[i][None])
        xi, rows = (None if array is None else array[i if ahead else 0] for array in numbers)
        normals = [xi[:, k] for k in range(noise.total)]  # type: ignore[index]
        at, velocity = move(before, before_noise, noise.before, x, v, normals)
        if renew:
            memory = refreshed_memory(operations, recipe, arrays, keys, steps[i], at)
        here = arrays if fetched is None else {**arrays, "data": jax.tree.map(lambda leaf: leaf[i], fetched)}
        g, memory = estimate(operations, recipe, here, at, memory, rows)
        at, velocity = move(after, after_noise, noise.after, at, velocity, normals)
        x, v = at - kick[0] * g, velocity - kick[1] * g
        number = begin + i + 1
        keeps = kept.has(number)
        after_it = draw_numbers(steps[i + 1][None]) if early and not ahead else None
        return ChainArrays(x, v, memory), draws.at[slot].set(x), slot + keeps, after_it

    def step_without_refresh(i: jax.Array, carried: Tree) -> Carried:
        return step(i, carried, renew=False)

    def make_steps(first: jax.Array | int, last: jax.Array | int, carried: Tree, unroll: int | None = None) -> Carried:
        if not resides:
            return jax.lax.fori_loop(first, last, step_without_refresh, carried, unroll=unroll)
        (x, v, memory), draws, slot, _ = carried
        walk = gpu.StepRange(first, last, begin, kept)
        state = x, v, draws, slot
        x, v, draws, slot = gpu.make_steps(
            operations, recipe, arrays, memory, noise, scheme, numbers_ahead, walk, state
        )
        return ChainArrays(x, v, memory), draws, slot, None

    def epoch(k: jax.Array, carried: Tree) -> Carried:
        first = k * recipe.period
        carried = step(first, carried, renew=True)
        return make_steps(first + 1, jnp.minimum(first + recipe.period, count), carried)

    if refresh and not place.memory:  # room for what the first step will remember
        shapes = jax.eval_shape(lambda x: refreshed_memory(operations, recipe, arrays, keys, steps[0], x), place.x)
        place = place._replace(memory=jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes))
    carried = place, jnp.zeros((records + 1, chains, dim)), 0, None if ahead else numbers_ahead
    if refresh:
        place, draws, *_ = jax.lax.fori_loop(0, -(-count // recipe.period), epoch, carried)
    else:
        end, unroll = (capacity, min(_UNROLLED, capacity)) if whole else (count, None)
        place, draws, *_ = make_steps(0, end, carried, unroll)
    return place, draws


@partial(program, static_argnames=("operations", "recipe"))
def first_estimate(
    operations: Operations,
    recipe: Recipe,
    arrays: Arrays,
    keys: Keys,
    step: jax.Array,
    x: jax.Array,
) -> tuple[jax.Array, Memory]:
    """The estimate of ∇f that chains at x would make at a step at which their memory is renewed, if they have one."""
    memory = refreshed_memory(operations, recipe, arrays, keys, step, x) if recipe.carries else {}
    rows = batches(recipe, arrays, keys, step[None])
    return estimate(operations, recipe, arrays, x, memory, None if rows is None else rows[0])


@partial(program, static_argnames=("recipe", "count"))
def draw_batches(recipe: Recipe, arrays: Arrays, keys: Keys, begin: Number, count: int) -> jax.Array | None:
    """The rows of so many steps, as `advance` draws them."""
    return batches(recipe, arrays, keys, (begin + jnp.arange(count)).astype(jnp.uint32))


@partial(program, static_argnames=("operations",))
def recompute_table(operations: Operations, arrays: Arrays, snapshot: jax.Array) -> jax.Array:
    """The mᵢ of all components at a snapshot."""
    return operations.all_parts(arrays, snapshot)


def batches(recipe: Recipe, arrays: Arrays, keys: Keys, steps: jax.Array) -> jax.Array | None:
    """The row numbers of some steps: (steps, chains, batch); None where all are used."""
    if recipe.full:
        return None
    if recipe.weighted:
        return randomness.weighted_rows(keys, steps, recipe.batch, arrays["threshold"], arrays["alias"])
    return randomness.rows(keys, steps, recipe.batch, recipe.n, recipe.replacement)


def refreshed_memory(
    operations: Operations,
    recipe: Recipe,
    arrays: Arrays,
    keys: Keys,
    step: jax.Array,
    x: jax.Array,
) -> Memory:
    """The memory at x: from all components, or from some drawn for this snapshot."""
    memory: Memory = {} if recipe.reference == "table" else {"snapshot": x}
    if recipe.snapshot_rows:
        settings = recipe.snapshot_rows, recipe.n, recipe.replacement
        rows = randomness.rows(keys, step[None], *settings, Purpose.SNAPSHOT)[0]
        return memory | {"anchor": operations.batch_gradient(arrays, x, operations.batch(arrays, rows))}
    if recipe.remembers:
        table, anchor = operations.parts_and_gradient(arrays, x)
        return memory | {"table": table, "anchor": anchor}
    return memory | {"anchor": operations.full_gradient(arrays, x)}


def estimate(
    operations: Operations, recipe: Recipe, arrays: Arrays, x: jax.Array, memory: Memory, rows: Tree
) -> tuple[jax.Array, Memory]:
    """g at x from a batch, and the memory after it."""
    prior = operations.prior(arrays, x)
    if recipe.full:
        return prior + operations.full_gradient(arrays, x), memory
    weights = 1 / (recipe.n * arrays["probabilities"][rows]) if recipe.weighted else None
    batch = operations.batch(arrays, rows)
    if recipe.reference == "none":
        return prior + operations.batch_gradient(arrays, x, batch, weights), memory
    at_mode = recipe.reference == "mode"
    anchor = arrays["mode anchor"] if at_mode else memory["anchor"]
    if recipe.order == 2:
        displacement = x - arrays["mode"]
        parts = operations.parts(arrays, x, batch) - operations.hessian_parts(arrays, displacement, batch)
        reference_parts = _stored_parts(recipe, arrays, memory, rows)
        if reference_parts is None:
            reference_parts = operations.parts(arrays, _broadcast_point(arrays["mode"], x), batch)
        rest = operations.assemble(arrays, apply_weights(parts - reference_parts, weights), batch)
        return prior + anchor + rest + displacement @ arrays["mode hessian"], memory
    if recipe.remembers:
        parts, reference_parts = operations.parts(arrays, x, batch), _stored_parts(recipe, arrays, memory, rows)
        assert reference_parts is not None
        g = prior + anchor + operations.assemble(arrays, apply_weights(parts - reference_parts, weights), batch)
        return g, _updated_memory(
            operations, recipe, arrays, memory, batch, parts
        ) if recipe.reference == "table" else memory
    point = _broadcast_point(arrays["mode"], x) if at_mode else memory["snapshot"]
    return prior + anchor + operations.gradient_difference(arrays, x, point, batch, weights), memory


def _broadcast_point(point: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.broadcast_to(point, x.shape)


def _stored_parts(recipe: Recipe, arrays: Arrays, memory: Memory, rows: jax.Array) -> jax.Array | None:
    """The mᵢ of a batch, where they are stored."""
    if not recipe.remembers:
        return None
    if recipe.reference == "mode":
        return arrays["mode parts"][rows]
    return jax.vmap(lambda table, own_rows: table[own_rows])(memory["table"], rows)


def _updated_memory(
    operations: Operations, recipe: Recipe, arrays: Arrays, memory: Memory, batch: Batch, parts: jax.Array
) -> Memory:
    """The mᵢ of a batch become what was just evaluated, one after another: a row drawn twice is renewed once."""

    def renew_row(b: jax.Array, carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        table, anchor = carried
        row, new = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, b, 1, 1), (batch, parts))
        old = jax.vmap(lambda own, own_row: own[own_row])(table, row.rows)
        anchor = anchor + operations.assemble(arrays, new - old, row) / recipe.n
        return jax.vmap(lambda own, own_row, part: own.at[own_row].set(part))(table, row.rows, new), anchor

    table, anchor = jax.lax.fori_loop(0, batch.rows.shape[1], renew_row, (memory["table"], memory["anchor"]))
    return {**memory, "table": table, "anchor": anchor}
