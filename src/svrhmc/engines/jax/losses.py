"""Slopes of families in JAX: their formulas over its primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax.numpy as jnp
from jax.nn import sigmoid, softplus
from jax.scipy import special

from svrhmc.families.base import Formulas
from svrhmc.families.primitives import array_primitives

_HALF_LOG = 0.9189385332046727  # ½ log 2π


def _mills(s: Any) -> tuple[Any, Any]:
    """λ = φ(s)/Φ(s) as the exponential of a difference of logarithms, and s + λ."""
    hazard = jnp.exp(-0.5 * s * s - _HALF_LOG - special.log_ndtr(s))
    return hazard, s + hazard


PRIMITIVES = array_primitives(jnp, lambda: special)
PRIMITIVES.mills, PRIMITIVES.softplus, PRIMITIVES.sigmoid = _mills, softplus, sigmoid
PRIMITIVES.soft = lambda v: (softplus(v), sigmoid(v), sigmoid(-v))


@cache
def formulas(record: Any) -> Formulas:
    """Those of a family, by the type of its record."""
    made: Formulas = record.formulas(PRIMITIVES)
    return made


def slope_of(record: Any) -> Callable[[Any, Any, Any], Any]:
    """∂ℓ/∂t as a function of (record with its numbers, t, y); several predictors are the last axis of t and of it."""
    made = formulas(record)

    def slope(loss: Any, t: Any, y: Any) -> Any:
        given = (t,) if made.arguments == 1 else tuple(t[..., j] for j in range(made.arguments))
        slopes = made.slope(loss, *given, y)
        return slopes if made.arguments == 1 else jnp.stack(slopes, axis=-1)

    return slope
