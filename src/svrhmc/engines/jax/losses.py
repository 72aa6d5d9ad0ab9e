"""Slopes of losses, by the name of their compiled form; `targets` has the definitions.

A slope is a function of (numbers, t, y), `numbers` being those of the loss. Where a row has several predictors, they
are the last axis of t, and of the slopes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.nn import sigmoid, softmax, softplus
from jax.scipy.special import digamma, log_ndtr

Slope = Callable[[Any, Any, Any], Any]


def _probit(numbers: Any, t: Any, y: Any) -> Any:
    """−y φ(s)/Φ(s), s = yt, as the exponential of a difference of logarithms."""
    s = y * t
    return -y * jnp.exp(-0.5 * s * s - 0.5 * jnp.log(2 * jnp.pi).astype(t.dtype) - log_ndtr(s))


def _location_scale(numbers: Any, t: Any, y: Any) -> Any:
    """(−ge^{−τ}, 1 − rg), r = (y − μ)e^{−τ}: g = r where there are no degrees of freedom, else Student's."""
    inverse, df = jnp.exp(-t[..., 1]), numbers[0]
    r = (y - t[..., 0]) * inverse
    g = jnp.where(df == 0, r, (df + 1) * r / (df + r * r))
    return jnp.stack([-g * inverse, 1 - r * g], axis=-1)


def _negative_binomial(numbers: Any, t: Any, y: Any) -> Any:
    """φp − y(1 − p), and φ(sp(v) − p) + y(1 − p) − φ(ψ(y + φ) − ψ(φ)), p = 1/(1 + e⁻ᵛ)."""
    v, phi = t[..., 0] - t[..., 1], jnp.exp(t[..., 1])
    p, rest = sigmoid(v), y * sigmoid(-v)
    by_shape = phi * (softplus(v) - p) + rest - phi * (digamma(y + phi) - digamma(phi))
    return jnp.stack([phi * p - rest, by_shape], axis=-1)


def _gamma(numbers: Any, t: Any, y: Any) -> Any:
    """α(1 − eʳ), and α(eʳ − 1 − r + ψ(α) − log α)."""
    r, alpha = y - t[..., 0], jnp.exp(t[..., 1])
    grown = jnp.expm1(r)
    return jnp.stack([-alpha * grown, alpha * (grown - r + digamma(alpha) - t[..., 1])], axis=-1)


def _categorical(numbers: Any, t: Any, y: Any) -> Any:
    """p_c − 1[y = c]; of the class itself minus the sum of the others."""
    p = softmax(jnp.concatenate([jnp.zeros((*t.shape[:-1], 1)), t], axis=-1), axis=-1)
    own = jnp.arange(p.shape[-1]) == y[..., None].astype(jnp.int32)
    others = jnp.where(own, 0.0, p).sum(axis=-1, keepdims=True)
    return jnp.where(own, -others, p)[..., 1:]


SLOPES: dict[str, Slope] = {
    "logistic": lambda numbers, t, y: -y * sigmoid(-y * t),
    "binomial": lambda numbers, t, y: (1 - y) * sigmoid(t) - y * sigmoid(-t),
    "probit": _probit,
    "poisson": lambda numbers, t, y: jnp.exp(t) - y,
    "squared": lambda numbers, t, y: (t - y) * numbers[0],
    "location-scale": _location_scale,
    "negative-binomial": _negative_binomial,
    "gamma": _gamma,
    "categorical": _categorical,
}
