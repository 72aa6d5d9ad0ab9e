"""Slopes of the losses of one linear predictor, by the name of their compiled form; `targets` has the definitions.

A slope is a function of (numbers, t, y), `numbers` being those of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.nn import sigmoid
from jax.scipy.special import log_ndtr

Slope = Callable[[Any, Any, Any], Any]


def _probit(numbers: Any, t: Any, y: Any) -> Any:
    """−y φ(s)/Φ(s), s = yt, as the exponential of a difference of logarithms."""
    s = y * t
    return -y * jnp.exp(-0.5 * s * s - 0.5 * jnp.log(2 * jnp.pi).astype(t.dtype) - log_ndtr(s))


SLOPES: dict[str, Slope] = {
    "logistic": lambda numbers, t, y: -y * sigmoid(-y * t),
    "binomial": lambda numbers, t, y: (1 - y) * sigmoid(t) - y * sigmoid(-t),
    "probit": _probit,
    "poisson": lambda numbers, t, y: jnp.exp(t) - y,
    "squared": lambda numbers, t, y: (t - y) * numbers[0],
}
