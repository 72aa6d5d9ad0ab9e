"""Priors that are not normal, in JAX: ψ′ of every coordinate, by kind; `targets.priors` has the definitions."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from svrhmc.targets.forms import RowsForm
from svrhmc.targets.priors import HALF_POWER, HALF_STUDENT, LAPLACE, STUDENT

Arrays = dict[str, Any]


def heavy_arrays(form: RowsForm) -> Arrays:
    """What `slopes` reads: of each coordinate its kind, 0 where it has no ψ, and the numbers of ψ; and what was taken
    out at the centre of other variables.
    """
    heavy, dim = form.heavy, form.rows.dim
    if heavy is None:
        return {}
    found: Arrays = {"ψ kinds": np.zeros(dim, np.int32), "ψ location": np.zeros(dim)}
    found |= {"ψ scale": np.ones(dim), "ψ shape": np.ones(dim)}
    each = (heavy.kinds, heavy.location, heavy.scale, heavy.shape)
    for array, numbers in zip(found.values(), each, strict=True):
        array[heavy.columns] = numbers
    if form.whitening is not None:
        centre = form.whitening.centre
        found |= {"ψ slopes": heavy.slope(centre), "bend": form.prior_curvature(centre)}
    return found


def slopes(arrays: Arrays, x: Any) -> Any:
    """ψ′ at states (chains, dim)."""
    kinds, d = arrays["ψ kinds"], x - arrays["ψ location"]
    scale, shape = arrays["ψ scale"], arrays["ψ shape"]
    student = (shape + 1) * d / (shape * scale**2 + d**2)
    laplace = d / jnp.hypot(d, shape) / scale
    half_student = (shape + 1) / (1 + shape * jnp.exp(-2 * d)) - 1
    half_power = jnp.exp(shape * d) - 1
    by_kind = {STUDENT: student, LAPLACE: laplace, HALF_STUDENT: half_student, HALF_POWER: half_power}
    return jnp.select([kinds == kind for kind in by_kind], list(by_kind.values()), 0.0)
