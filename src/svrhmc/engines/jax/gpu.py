"""Kernels of our own for GPUs, through Pallas and Triton: a gradient with one read of X, and many steps in one kernel.

Both are for dense rows with one linear predictor, and add up slope times row in registers (`_row_sum`):

- XLA reads X twice for a gradient over all rows, for Xθ and for Xᵀs. `gradient` reads it once: a program takes a tile
  of rows, and the sums of all programs are added in float64.
- A turn of a loop that XLA makes starts a kernel for every part of a step, which takes longer than the parts themselves
  where batches are small. In `make_steps` a chain is a program: x and v stay in registers from step to step, and a step
  reads the rows of its batch once, for

      tᵢ = aᵢᵀx ;      g = ∇prior(x) + ḡ + (1/B) Σᵢ (n wᵢℓ′(oᵢ + tᵢ, yᵢ) − mᵢ) aᵢ .

  Normals and row numbers of all steps are made before, by `randomness.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from svrhmc.core.jax import Tree
from svrhmc.engines.jax.maps import Arrays
from svrhmc.engines.jax.scheme import Kept, Noise, Number, move
from svrhmc.gradients import Recipe

TILE = 64  # rows of a program of `gradient`
_COLUMNS = tuple(1 << k for k in range(4, 10))
_MOST = 1 << 17  # bytes of a batch, which lies in registers
_WARPS, _OF_WARP = 8, 1 << 11  # at most, and bytes for each

triton: Any = None
with suppress(ImportError):  # that it will go one day is announced; without it XLA does everything
    triton = import_module("jax.experimental.pallas.triton")


def on_gpu() -> bool:
    """Whether kernels can be made, and are worth it."""
    return triton is not None and jax.default_backend() == "gpu"


def _row_sum(X: jax.Array, x: jax.Array, slope: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Σᵢ slope(aᵢᵀx)aᵢ over some rows of X, in its precision."""
    s = slope(jnp.sum(X * x[None, :], axis=1))
    return jnp.sum(X * s[:, None], axis=0)


def _call(kernel: Callable[..., None], warps: int, **options: Tree) -> Callable[..., Tree]:
    """A kernel as a function; interpreted on a CPU."""
    parameters = triton.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, interpret=jax.default_backend() == "cpu", compiler_params=parameters, **options)


def supports_gradient(operations: Any, rows: dict[str, jax.Array], chains: int) -> bool:
    """Whether `gradient` is for such rows, and worth it: for one state. (Many share a read by XLA too.)"""
    if not on_gpu() or not operations.plain or chains != 1 or rows.keys() != {"X", "y"}:
        return False
    X = rows["X"]
    fits = X.dtype == jnp.float32 and X.shape[1] in _COLUMNS and len(X) >= TILE
    return fits and not operations.record._fields


def gradient(
    operations: Any, X: jax.Array, y: jax.Array, x: jax.Array, tile: int = TILE, warps: int = _WARPS
) -> jax.Array:
    """Σᵢ ℓ′(aᵢᵀx, yᵢ)aᵢ at one state, over whole tiles of rows whose number of columns is a power of 2."""
    (n, dim), slope, loss = X.shape, operations.formulas.slope, operations.record()
    count = n // tile

    def kernel(X_ref: jax.Array, y_ref: jax.Array, x_ref: jax.Array, sum_ref: jax.Array) -> None:
        labels = y_ref[...]
        sum_ref[...] = _row_sum(X_ref[...], x_ref[...], lambda t: slope(loss, t, labels))[None, :]

    sums = _call(
        kernel,
        warps,
        grid=(count,),
        in_specs=[
            pl.BlockSpec((tile, dim), lambda i: (i, 0)),
            pl.BlockSpec((tile,), lambda i: (i,)),
            pl.BlockSpec((dim,), lambda i: (0,)),
        ],
        out_specs=pl.BlockSpec((1, dim), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((count, dim), X.dtype),
    )(X, y.astype(X.dtype), x.astype(X.dtype))
    return sums.sum(axis=0, dtype=jnp.float64)


class StepRange(NamedTuple):
    """Which steps are made of those whose random numbers are at hand, and which states are kept of them."""

    begin: Number
    end: Number
    before: Number  # steps made before the first random number
    kept: Kept


def supports_steps(operations: Any, recipe: Recipe, arrays: Arrays) -> bool:
    """Whether `make_steps` is for such steps."""
    anchored = recipe.reference == "none" or (recipe.remembers and recipe.reference != "table")
    if not on_gpu() or not operations.plain or "ψ kinds" in arrays or operations.place.mesh is not None:
        return False
    if recipe.full or recipe.order != 1 or not anchored:
        return False
    X = arrays["data"]["X"]
    width, count = _padded_sizes(X, recipe)
    return width * count * X.dtype.itemsize <= _MOST


def make_steps(
    operations: Any,
    recipe: Recipe,
    arrays: Arrays,
    memory: dict[str, jax.Array],
    noise: Noise,
    scheme: tuple[jax.Array, ...],
    numbers: tuple[jax.Array, jax.Array],
    steps: StepRange,
    state: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Steps from `begin` to `end` of chains at (x, v), of which `slot` states were kept in `draws`: all four then.

    numbers: normals (steps, chains, normals, dim) and row numbers (steps, chains, batch).
    """
    x, v, draws, slot = state
    (chains, dim), batch = x.shape, recipe.batch
    data = arrays["data"]
    width, count = _padded_sizes(data["X"], recipe)
    warps = max(1, min(_WARPS, data["X"].dtype.itemsize * width * count // _OF_WARP))
    inputs = {
        "X": data["X"], "y": data["y"], "precision": arrays["prior precision"], "mean": arrays["prior mean"],
        "scheme": jnp.concatenate(scheme), "normals": numbers[0], "rows": numbers[1],
        "walk": jnp.stack([jnp.asarray(number, jnp.int64) for number in (*steps[:3], *steps.kept, slot)]),
    }  # fmt: skip
    inputs |= {"numbers": arrays["numbers"]} if len(arrays["numbers"]) else {}
    inputs |= {"offset": data["offset"][:, 0]} if "offset" in data else {}
    inputs |= {"weights": data["weights"]} if "weights" in data else {}
    inputs |= {"chances": arrays["probabilities"]} if recipe.weighted else {}
    if recipe.reference == "mode":
        inputs |= {"anchor": arrays["mode anchor"].reshape(1, -1), "parts": arrays["mode parts"][None, :, 0]}
    elif recipe.reference == "snapshot":
        inputs |= {"anchor": memory["anchor"], "parts": memory["table"][..., 0]}
    chain_stride = 0 if recipe.reference == "mode" else 1  # whether a chain has a reference of its own
    names = (*inputs, "x", "v", "draws")

    def kernel(*refs: jax.Array) -> None:
        ref = dict(zip(names, refs, strict=False))
        x_out, v_out, draws_out = refs[len(names) :]
        chain, cols, places = pl.program_id(0), jnp.arange(width), jnp.arange(count)
        is_column, is_row = cols < dim, places < batch

        def row(name: str, *where: Number) -> jax.Array:
            return triton.load(ref[name].at[(*where, cols)], mask=is_column, other=0.0)

        begin, end, before, first, thin, slot = (ref["walk"][k] for k in range(6))
        precision, mean = row("precision"), row("mean")
        anchor = row("anchor", chain_stride * chain) if "anchor" in ref else 0.0
        loss = operations.record(*(ref["numbers"][k] for k in range(len(arrays["numbers"]))))
        slope = operations.formulas.slope
        P, Lp, kick, Q, Lq = _split_numbers([ref["scheme"][k] for k in range(sum(map(len, scheme)))], scheme)

        def noise_of(i: jax.Array) -> list[jax.Array]:
            return [row("normals", i, chain, k).astype(jnp.float64) for k in range(noise.total)]

        def rows_of(i: jax.Array) -> jax.Array:
            """Row numbers of a step; beyond the batch 0. They are read a step before they are needed."""
            return triton.load(ref["rows"].at[jnp.minimum(i, len(numbers[1]) - 1), chain, places], mask=is_row, other=0)

        def read(rows: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
            """Rows of X, 0 beyond the batch, and what else they have: read after X, whose registers it would take."""
            where, mask = (rows[:, None], cols[None, :]), is_row[:, None] & is_column[None, :]
            A, columns_of_rows = triton.load(ref["X"].at[where], mask=mask, other=0.0), {}
            for name, index in (
                ("y", ()),
                ("offset", ()),
                ("weights", ()),
                ("chances", ()),
                ("parts", (chain_stride * chain,)),
            ):
                if name in ref:
                    columns_of_rows[name] = triton.load(ref[name].at[(*index, rows)], mask=is_row, other=1.0)
            return A, columns_of_rows

        def mean_of_batch(x: jax.Array, A: jax.Array, columns_of_rows: dict[str, jax.Array]) -> jax.Array:
            """What the batch adds to g."""

            def change(t: jax.Array) -> jax.Array:
                t = t.astype(jnp.float64)
                t = t + columns_of_rows["offset"] if "offset" in columns_of_rows else t
                s = operations.n * slope(loss, t, columns_of_rows["y"])
                s = s * columns_of_rows["weights"] if "weights" in columns_of_rows else s
                s = s - columns_of_rows["parts"] if "parts" in columns_of_rows else s
                s = s / (recipe.n * columns_of_rows["chances"]) if "chances" in columns_of_rows else s
                return (s / batch).astype(A.dtype)

            return _row_sum(A, x.astype(A.dtype), change).astype(jnp.float64)

        def step(i: jax.Array, carried: Tree) -> tuple[jax.Array, ...]:
            x, v, slot, rows = carried
            normals, after = noise_of(i), rows_of(i + 1)
            x, v = move(P, Lp, noise.before, x, v, normals)
            g = (x - mean) * precision + anchor + mean_of_batch(x, *read(rows))
            x, v = move(Q, Lq, noise.after, x, v, normals)
            x, v = x - kick[0] * g, v - kick[1] * g
            keeps = Kept(first, thin).has(before + i + 1)
            triton.store(draws_out.at[slot, chain, cols], x, mask=is_column & keeps)
            return x, v, slot + keeps.astype(slot.dtype), after

        started = row("x", chain), row("v", chain), slot, rows_of(begin)
        x, v, *_ = jax.lax.fori_loop(begin, end, step, started)
        triton.store(x_out.at[chain, cols], x, mask=is_column)
        triton.store(v_out.at[chain, cols], v, mask=is_column)

    after = _call(
        kernel,
        warps,
        grid=(chains,),
        out_shape=[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (x, v, draws)],
        input_output_aliases={len(names) - 1: 2},
    )(*inputs.values(), x, v, draws)
    until, since = (steps.kept.count(steps.before + step) for step in (steps.end, steps.begin))
    return *after, slot + until - since


def _padded_sizes(X: jax.Array, recipe: Recipe) -> tuple[int, int]:
    """Of a row and of a batch, as powers of 2."""
    return 1 << (X.shape[1] - 1).bit_length(), 1 << (recipe.batch - 1).bit_length()


def _split_numbers(numbers: list[jax.Array], parts: tuple[jax.Array, ...]) -> list[list[jax.Array]]:
    """Numbers in lists as long as these parts."""
    lists, begin = [], 0
    for part in parts:
        lists.append(numbers[begin : begin + len(part)])
        begin += len(part)
    return lists
