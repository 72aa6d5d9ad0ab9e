"""Slopes of families in JAX: their formulas over its primitives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
from jax.nn import sigmoid, softplus
from jax.scipy.special import betaln, digamma, gammaln, log_ndtr

from svrhmc.families.base import Formulas

_HALF_LOG = 0.9189385332046727  # ½ log 2π


def _mills(s: Any) -> tuple[Any, Any]:
    """λ = φ(s)/Φ(s) as the exponential of a difference of logarithms, and s + λ."""
    hazard = jnp.exp(-0.5 * s * s - _HALF_LOG - log_ndtr(s))
    return hazard, s + hazard


def _log_rising(phi: Any, y: Any) -> Any:
    safe = jnp.maximum(y, 1.0)
    return jnp.where(y > 0, gammaln(safe) - betaln(safe, phi), 0.0)


def _rising_rate(phi: Any, y: Any) -> Any:
    return digamma(y + phi) - digamma(phi)


def _log_gamma_excess(alpha: Any, theta: Any) -> Any:
    return alpha * (1 - theta) + gammaln(alpha)


def _digamma_excess(alpha: Any, theta: Any) -> Any:
    return digamma(alpha) - theta


PRIMITIVES = SimpleNamespace(
    number=float,
    exp=jnp.exp,
    log=jnp.log,
    log1p=jnp.log1p,
    log1p_unit=jnp.log1p,
    expm1=jnp.expm1,
    where=jnp.where,
    maximum=jnp.maximum,
    minimum=jnp.minimum,
    softplus=softplus,
    sigmoid=sigmoid,
    soft=lambda v: (softplus(v), sigmoid(v), sigmoid(-v)),
    polynomial=lambda coefficients, x: jnp.polyval(jnp.asarray(coefficients[::-1]), x),
    mills=_mills,
    minus_log_normal=lambda s, hazard: -log_ndtr(s),
    log_rising=_log_rising,
    rising_rate=_rising_rate,
    rising=lambda phi, y: (_log_rising(phi, y), _rising_rate(phi, y)),
    log_gamma_excess=_log_gamma_excess,
    digamma_excess=_digamma_excess,
    gamma_excess=lambda alpha, theta: (_log_gamma_excess(alpha, theta), _digamma_excess(alpha, theta)),
    function=lambda f: f,
    xp=jnp,
)


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
