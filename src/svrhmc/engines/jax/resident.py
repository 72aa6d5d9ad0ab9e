"""Many steps of chains in one kernel, through Pallas: batches of dense rows on a GPU.

A turn of a loop that XLA makes starts a kernel for every part of a step, which takes longer than the parts themselves
where batches are small. Here a chain is a program: x and v stay in registers from step to step, and a step reads the
rows of its batch once, for

    tᵢ = aᵢᵀx ;      g = ∇prior(x) + ḡ + (1/B) Σᵢ (n wᵢℓ′(oᵢ + tᵢ, yᵢ) − mᵢ) aᵢ .

Normals and row numbers of all steps are made before, by `engines.jax.words`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from svrhmc.engines.jax import kernels
from svrhmc.engines.jax.kernels import triton
from svrhmc.engines.jax.losses import formulas, slope_of
from svrhmc.engines.jax.moves import Kept, Noise, move
from svrhmc.gradients import Recipe

_MOST = 1 << 17  # bytes of a batch, which lies in registers
_WARPS, _OF_WARP = 8, 1 << 11  # at most, and bytes for each


class Walk(NamedTuple):
    """Which steps are made of those whose random numbers are at hand, and which states are kept of them."""

    begin: Any
    end: Any
    before: Any  # steps made before the first random number
    kept: Kept


def serves(operations: Any, recipe: Recipe, arrays: dict[str, Any]) -> bool:
    """Whether there is a kernel for such steps."""
    plain = getattr(operations, "plain", False) and formulas(operations.record).elementary
    anchored = recipe.reference == "none" or (recipe.remembers and recipe.reference != "table")
    if not plain or operations.place.mesh is not None or recipe.full or recipe.order != 1 or not anchored:
        return False
    X = arrays["data"]["X"]
    width, count = _sizes(X, recipe)
    return kernels.on_gpu() and width * count * X.dtype.itemsize <= _MOST


def walk(
    operations: Any,
    recipe: Recipe,
    arrays: dict[str, Any],
    memory: dict[str, Any],
    noise: Noise,
    scheme: tuple[Any, ...],
    numbers: tuple[Any, Any],
    steps: Walk,
    state: tuple[Any, Any, Any, Any],
) -> tuple[Any, Any, Any, Any]:
    """Steps from `begin` to `end` of chains at (x, v), of which `slot` states were kept in `draws`: all four after it.

    numbers: normals (steps, chains, normals, dim) and row numbers (steps, chains, batch).
    """
    x, v, draws, slot = state
    (chains, dim), batch = x.shape, recipe.batch
    data = arrays["data"]
    width, count = _sizes(data["X"], recipe)
    warps = max(1, min(_WARPS, data["X"].dtype.itemsize * width * count // _OF_WARP))
    given = {
        "X": data["X"], "y": data["y"], "precision": arrays["prior precision"], "mean": arrays["prior mean"],
        "scheme": jnp.concatenate(scheme), "normals": numbers[0], "rows": numbers[1],
        "walk": jnp.stack([jnp.asarray(each, jnp.int64) for each in (*steps[:3], *steps.kept, slot)]),
    }  # fmt: skip
    given |= {"numbers": arrays["numbers"]} if len(arrays["numbers"]) else {}
    given |= {"offset": data["offset"]} if operations.shifted else {}
    given |= {"weights": data["weights"]} if operations.weighed else {}
    given |= {"chances": arrays["probabilities"]} if recipe.weighted else {}
    if recipe.reference == "mode":
        given |= {"anchor": arrays["mode anchor"].reshape(1, -1), "parts": arrays["mode parts"][None]}
    elif recipe.reference == "snapshot":
        given |= {"anchor": memory["anchor"], "parts": memory["table"]}
    own = 0 if recipe.reference == "mode" else 1  # whether a chain has a reference of its own
    names = (*given, "x", "v", "draws")

    def kernel(*refs: Any) -> None:
        ref = dict(zip(names, refs, strict=False))
        x_out, v_out, draws_out = refs[len(names) :]
        chain, cols, places = pl.program_id(0), jnp.arange(width), jnp.arange(count)
        there, real = cols < dim, places < batch

        def row(name: str, *where: Any) -> Any:
            return triton.load(ref[name].at[(*where, cols)], mask=there, other=0.0)

        begin, end, before, first, thin, slot = (ref["walk"][k] for k in range(6))
        precision, mean = row("precision"), row("mean")
        anchor = row("anchor", own * chain) if "anchor" in ref else 0.0
        loss = operations.record(*(ref["numbers"][k] for k in range(len(arrays["numbers"]))))
        P, Lp, kick, Q, Lq = _cut([ref["scheme"][k] for k in range(sum(map(len, scheme)))], scheme)

        def noise_of(i: Any) -> list[Any]:
            return [row("normals", i, chain, k).astype(jnp.float64) for k in range(noise.total)]

        def rows_of(i: Any) -> Any:
            """Row numbers of a step; beyond the batch 0. They are read a step before they are needed."""
            return triton.load(ref["rows"].at[jnp.minimum(i, len(numbers[1]) - 1), chain, places], mask=real, other=0)

        def seen(rows: Any) -> tuple[Any, dict[str, Any]]:
            """Rows of X, 0 beyond the batch, and what else is known of them: read after X, whose registers these would
            take.
            """
            where, mask = (rows[:, None], cols[None, :]), real[:, None] & there[None, :]
            A, found = triton.load(ref["X"].at[where], mask=mask, other=0.0), {}
            for name, index in (("y", ()), ("offset", ()), ("weights", ()), ("chances", ()), ("parts", (own * chain,))):
                if name in ref:
                    found[name] = triton.load(ref[name].at[(*index, rows)], mask=real, other=1.0)
            return A, found

        def added(at: Any, A: Any, known: dict[str, Any]) -> Any:
            """What the batch adds to g."""
            t = jnp.sum(A * at.astype(A.dtype)[None, :], axis=1).astype(jnp.float64)
            t = t + known["offset"] if operations.shifted else t
            s = operations.n * slope_of(operations.record)(loss, t, known["y"])
            s = s * known["weights"] if operations.weighed else s
            s = s - known["parts"] if "parts" in known else s
            s = s / (recipe.n * known["chances"]) if recipe.weighted else s
            return jnp.sum(A * (s / batch).astype(A.dtype)[:, None], axis=0).astype(jnp.float64)

        def step(i: Any, carried: Any) -> Any:
            x, v, slot, rows = carried
            normals, after = noise_of(i), rows_of(i + 1)
            x, v = move(P, Lp, noise.before, x, v, normals)
            g = (x - mean) * precision + anchor + added(x, *seen(rows))
            x, v = move(Q, Lq, noise.after, x, v, normals)
            x, v = x - kick[0] * g, v - kick[1] * g
            keeps = Kept(first, thin).has(before + i + 1)
            triton.store(draws_out.at[slot, chain, cols], x, mask=there & keeps)
            return x, v, slot + keeps.astype(slot.dtype), after

        started = row("x", chain), row("v", chain), slot, rows_of(begin)
        x, v, *_ = jax.lax.fori_loop(begin, end, step, started)
        triton.store(x_out.at[chain, cols], x, mask=there)
        triton.store(v_out.at[chain, cols], v, mask=there)

    made = pl.pallas_call(
        kernel,
        grid=(chains,),
        out_shape=[jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (x, v, draws)],
        input_output_aliases={len(names) - 1: 2},
        interpret=jax.default_backend() == "cpu",
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
    )(*given.values(), x, v, draws)
    until, since = (steps.kept.count(steps.before + step) for step in (steps.end, steps.begin))
    return *made, slot + until - since


def _sizes(X: Any, recipe: Recipe) -> tuple[int, int]:
    """Of a row and of a batch, as powers of 2."""
    return 1 << (X.shape[1] - 1).bit_length(), 1 << (recipe.batch - 1).bit_length()


def _cut(numbers: list[Any], parts: tuple[Any, ...]) -> list[list[Any]]:
    """Numbers in lists as long as these parts."""
    found, begin = [], 0
    for part in parts:
        found.append(numbers[begin : begin + len(part)])
        begin += len(part)
    return found
