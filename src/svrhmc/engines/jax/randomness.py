"""The random numbers of `svrhmc.core.randomness`, for many steps at once, in JAX.

Every function takes the keys of the chains, two arrays (chains,) of words, and the steps, an array (steps,) of words;
what it gives has the axes (step, chain, slot).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import jax
import jax.numpy as jnp

from svrhmc.core.randomness import MAX_SLOTS, Purpose, scale_words, threefry2x32
from svrhmc.kernels import coefficients as table

_threefry = cast(Callable[..., tuple[jax.Array, jax.Array]], threefry2x32)
_divide = cast(Callable[..., tuple[jax.Array, jax.Array]], scale_words)
_SPLIT = 6.25  # of w: beyond are the tails


def words(
    keys: tuple[jax.Array, jax.Array], steps: jax.Array, purpose: Purpose, slots: int
) -> tuple[jax.Array, jax.Array]:
    """Two words for each slot: (steps, chains, slots) each."""
    slot = jnp.arange(slots, dtype=jnp.uint32) + jnp.uint32(int(purpose) * MAX_SLOTS)
    k0, k1 = (key[None, :, None] for key in keys)

    return _threefry((k0, k1), (steps[:, None, None], slot[None, None, :]))


def normals(
    keys: tuple[jax.Array, jax.Array], steps: jax.Array, count: int, coarse: Purpose, fine: Purpose | None
) -> jax.Array:
    """Standard normals from 64 bits each, (steps, chains, count); in float32, from 32 bits, without a fine purpose."""
    high = _in_halves(words(keys, steps, coarse, (count + 1) // 2), count)
    above = (high >> jnp.uint32(31)) > 0
    if fine is None:
        quantile = _upper_quantile32((high & jnp.uint32(0x7FFFFFFF)).astype(jnp.int32))
        return jnp.where(above, quantile, -quantile)
    low = _in_halves(words(keys, steps, fine, (count + 1) // 2), count)
    magnitude = (high & jnp.uint32(0x7FFFFFFF)).astype(jnp.float64)
    twice = (magnitude + (low.astype(jnp.float64) + 0.5) * 2.0**-32) * 2.0**-31
    return jnp.where(above, 1.0, -1.0) * _upper_quantile(twice)


def _in_halves(pair: tuple[jax.Array, jax.Array], count: int) -> jax.Array:
    """`count` words, the first of every block before the second ones: by a choice for every word, of which a CPU makes
    vector code, while two arrays set side by side would take it twice as long.
    """
    second = jnp.arange(2)[:, None] > 0
    chosen = jnp.where(second, pair[1][..., None, :], pair[0][..., None, :])
    return chosen.reshape(*pair[0].shape[:-1], -1)[..., :count]


def _upper_quantile(twice: jax.Array) -> jax.Array:
    """−Φ⁻¹(p) of 2p < 1, as `svrhmc.kernels.normals` has it: (1 − 2p)R(w), w = −log(4p(1 − p)), R a polynomial in w or,
    in the tails, in √w.
    """
    w = -jnp.log(twice * (2.0 - twice))
    near = (1.0 - twice) * _polynomial(table.QUANTILE64, w - table.QUANTILE64_CENTRE)
    root = jnp.sqrt(w)
    close = _polynomial(table.QUANTILE64_NEAR, root - table.QUANTILE64_NEAR_CENTRE)
    far = _polynomial(table.QUANTILE64_FAR, root - table.QUANTILE64_FAR_CENTRE)
    tail = jnp.sqrt(-jnp.expm1(-w)) * jnp.where(root < 4.0, close, far)
    return jnp.where(w < _SPLIT, near, tail)


def _upper_quantile32(magnitude: jax.Array) -> jax.Array:
    """The same in float32, from the 31 bits m of 2p = (m + ½)/2³¹."""

    def scaled(bits: jax.Array) -> jax.Array:
        return (bits.astype(jnp.float32) + jnp.float32(0.5)) * jnp.float32(2.0**-31)

    twice = scaled(magnitude)
    w = -jnp.log(twice * (2 - twice))
    near = _polynomial(table.QUANTILE32, w - table.QUANTILE32_CENTRE)
    far = _polynomial(table.QUANTILE32_TAIL, jnp.sqrt(w) - table.QUANTILE32_TAIL_CENTRE)
    return scaled(jnp.int32(0x7FFFFFFF) - magnitude) * jnp.where(w < _SPLIT, near, far)


def _polynomial(powers: Sequence[float], s: jax.Array) -> jax.Array:
    """Σₖ powersₖ sᵏ, by Horner's rule."""
    total = jnp.full_like(s, powers[-1])
    for power in powers[-2::-1]:
        total = total * s + power
    return total


def uniforms(keys: tuple[jax.Array, jax.Array], steps: jax.Array, count: int, purpose: Purpose) -> jax.Array:
    """Uniform numbers between 0 and 1 from 52 bits each."""
    w0, w1 = (w.astype(jnp.uint64) for w in words(keys, steps, purpose, count))
    bits = (w0 << jnp.uint64(20)) | (w1 >> jnp.uint64(12))
    return (bits.astype(jnp.float64) + 0.5) * 2.0**-52


def rows(
    keys: tuple[jax.Array, jax.Array],
    steps: jax.Array,
    count: int,
    bound: int,
    replacement: bool,
    purpose: Purpose = Purpose.BATCH,
) -> jax.Array:
    """Row numbers below `bound`; distinct within a chain and a step unless `replacement`."""
    w0, w1 = (w.astype(jnp.uint64) for w in words(keys, steps, purpose, count))
    if replacement:
        return _divide(w0, w1, jnp.uint64(bound))[0]
    first = bound - count
    bounds: jax.Array = jnp.arange(first + 1, bound + 1, dtype=jnp.uint64)
    picks = _divide(w0, w1, bounds)[0]

    def replace_duplicate(j: jax.Array, picks: jax.Array) -> jax.Array:
        """Floyd: a number already taken is replaced by the newest possible one."""
        before = jnp.arange(count) < j
        is_taken = ((picks == picks[..., j, None]) & before).any(axis=-1)
        return picks.at[..., j].set(jnp.where(is_taken, first + j, picks[..., j]))

    return jax.lax.fori_loop(1, count, replace_duplicate, picks)


def weighted_rows(
    keys: tuple[jax.Array, jax.Array], steps: jax.Array, count: int, threshold: jax.Array, alias: jax.Array
) -> jax.Array:
    """Row numbers drawn by an alias table."""
    w0, w1 = (w.astype(jnp.uint64) for w in words(keys, steps, Purpose.BATCH, count))
    bucket, rest = _divide(w0, w1, jnp.uint64(len(alias)))
    return jnp.where(rest < threshold[bucket], bucket, alias[bucket])
