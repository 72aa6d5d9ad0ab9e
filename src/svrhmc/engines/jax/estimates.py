"""A recipe in JAX: the estimate of ∇f, and what is remembered after it. `gradients.estimator` is the definition."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from svrhmc.core.randomness import Purpose
from svrhmc.engines.jax import words
from svrhmc.engines.jax.operations import Batch, Operations, weighed
from svrhmc.engines.jax.rows import Arrays
from svrhmc.gradients import Recipe

Memory = dict[str, Any]


def batches(recipe: Recipe, arrays: Arrays, keys: tuple[Any, Any], steps: Any) -> Any:
    """The rows of some steps: (steps, chains, batch); None where all are used."""
    if recipe.full:
        return None
    if recipe.weighted:
        return words.weighted(keys, steps, recipe.batch, arrays["threshold"], arrays["alias"])
    return words.rows(keys, steps, recipe.batch, recipe.n, recipe.replacement)


def refreshed(
    operations: Operations, recipe: Recipe, arrays: Arrays, keys: tuple[Any, Any], step: Any, x: Any
) -> Memory:
    """The memory at x: from all components, or from some drawn for this snapshot."""
    memory: Memory = {} if recipe.reference == "table" else {"snapshot": x}
    if recipe.snapshot_rows:
        sizes = recipe.snapshot_rows, recipe.n, recipe.replacement
        rows = words.rows(keys, step[None], *sizes, Purpose.SNAPSHOT)[0]
        return memory | {"anchor": operations.mean(arrays, x, operations.batch(arrays, rows))}
    if recipe.remembers:
        table, anchor = operations.remembered(arrays, x)
        return memory | {"table": table, "anchor": anchor}
    return memory | {"anchor": operations.pass_over(arrays, x)}


def estimate(
    operations: Operations, recipe: Recipe, arrays: Arrays, x: Any, memory: Memory, rows: Any
) -> tuple[Any, Memory]:
    """g at x from a batch, and the memory after it."""
    prior = operations.prior(arrays, x)
    if recipe.full:
        return prior + operations.pass_over(arrays, x), memory
    weights = 1 / (recipe.n * arrays["probabilities"][rows]) if recipe.weighted else None
    batch = operations.batch(arrays, rows)
    if recipe.reference == "none":
        return prior + operations.mean(arrays, x, batch, weights), memory
    at_mode = recipe.reference == "mode"
    anchor = arrays["mode anchor"] if at_mode else memory["anchor"]
    if recipe.order == 2:
        away = x - arrays["mode"]
        now = operations.parts(arrays, x, batch) - operations.bends(arrays, away, batch)
        then = _remembered(recipe, arrays, memory, rows)
        then = operations.parts(arrays, _everywhere(arrays["mode"], x), batch) if then is None else then
        rest = operations.assemble(arrays, weighed(now - then, weights), batch)
        return prior + anchor + rest + away @ arrays["mode hessian"], memory
    if recipe.remembers:
        now = operations.parts(arrays, x, batch)
        then = _remembered(recipe, arrays, memory, rows)
        g = prior + anchor + operations.assemble(arrays, weighed(now - then, weights), batch)
        return g, _renewed(operations, recipe, arrays, memory, batch, now) if recipe.reference == "table" else memory
    point = _everywhere(arrays["mode"], x) if at_mode else memory["snapshot"]
    return prior + anchor + operations.change(arrays, x, point, batch, weights), memory


def _everywhere(point: Any, x: Any) -> Any:
    return jnp.broadcast_to(point, x.shape)


def _remembered(recipe: Recipe, arrays: Arrays, memory: Memory, rows: Any) -> Any:
    """The mᵢ of a batch, where they are stored."""
    if not recipe.remembers:
        return None
    if recipe.reference == "mode":
        return arrays["mode parts"][rows]
    return jax.vmap(lambda table, some: table[some])(memory["table"], rows)


def _renewed(operations: Operations, recipe: Recipe, arrays: Arrays, memory: Memory, batch: Batch, now: Any) -> Memory:
    """The mᵢ of a batch become what was just evaluated, one after another: a row drawn twice is renewed once."""

    def one(b: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
        table, anchor = carried
        row, new = jax.tree.map(lambda each: jax.lax.dynamic_slice_in_dim(each, b, 1, 1), (batch, now))
        old = jax.vmap(lambda of, some: of[some])(table, row.rows)
        anchor = anchor + operations.assemble(arrays, new - old, row) / recipe.n
        return jax.vmap(lambda of, some, what: of.at[some].set(what))(table, row.rows, new), anchor

    table, anchor = jax.lax.fori_loop(0, batch.rows.shape[1], one, (memory["table"], memory["anchor"]))
    return {**memory, "table": table, "anchor": anchor}
