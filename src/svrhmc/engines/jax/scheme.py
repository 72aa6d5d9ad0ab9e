"""A scheme in JAX: the linear half of a step, as `svrhmc.scheme.move` has it, and which states are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp

from svrhmc.dynamics import NoiseFactor, Scheme


class Noise(NamedTuple):
    """Which of ξ₁, ξ₂ the two halves of a step use."""

    before: tuple[bool, bool]
    after: tuple[bool, bool]

    @staticmethod
    def of(scheme: Scheme) -> Noise:
        """Which normals a scheme uses before and after its kick."""
        return Noise(_used(scheme.before_noise), _used(scheme.after_noise))

    @property
    def total(self) -> int:
        """Normals of a coordinate and a step."""
        return sum(self.before) + sum(self.after)


Number = jax.Array | int  # a whole number, known or traced


class Kept(NamedTuple):
    """Which states are kept: those after `first` steps, first + thin, … (`engines.base.Keep`)."""

    first: Number
    thin: Number

    def has(self, number: Number) -> jax.Array:
        """Whether the state after so many steps is kept."""
        return cast(jax.Array, (number >= self.first) & ((number - self.first) % self.thin == 0))

    def count(self, end: Number) -> jax.Array:  # type: ignore[override]
        """How many states are kept of a run of so many steps."""
        return jnp.maximum(0, (end - self.first) // self.thin + 1)


def _used(noise: NoiseFactor) -> tuple[bool, bool]:
    return (noise.vv != 0.0 or noise.xv != 0.0), noise.xx != 0.0


def move(
    linear: jax.Array | Sequence[jax.Array],
    factor: jax.Array | Sequence[jax.Array],
    used: tuple[bool, bool],
    x: jax.Array,
    v: jax.Array,
    normals: list[jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """(x, v) ← M (x, v) + L ξ, taking from `normals` only those that L uses."""
    x, v = linear[0] * x + linear[1] * v, linear[2] * x + linear[3] * v
    if used[0]:
        first = normals.pop(0)
        x, v = x + factor[1] * first, v + factor[0] * first
    if used[1]:
        x = x + factor[2] * normals.pop(0)
    return x, v
