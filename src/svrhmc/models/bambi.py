"""The door for Bambi: the PyMC model that it builds, with the names and the intercept of its own results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from svrhmc.core.errors import requirement
from svrhmc.core.jax import load
from svrhmc.models.description import Described, Params, needed
from svrhmc.models.pymc import describe_pymc

Quantities = dict[str, Any]


def describe_bambi(model: Any) -> Described:
    """Take a Bambi model apart, by the PyMC model that it builds.

    Bambi centres the columns and reports the intercept of those that it was given, and it leaves out the standardised
    effects of groups, from which it computes the effects: so does this.
    """
    bambi = needed("bambi", "from_bambi")
    if not isinstance(model, bambi.Model):
        raise requirement("model", "a bambi.Model", repr(model))
    _build(bambi, model)
    described = describe_pymc(model.backend.model)
    names = tuple(name for name in described.names if name.removesuffix("_offset") not in {*described.names} - {name})
    moves = _intercepts(model)

    def constrain(params: Params) -> Quantities:
        found = described.constrain(params)
        for move in moves:
            found = move(found)
        return {name: found[name] for name in names}

    return replace(described, constrain=constrain, names=names)


def _build(bambi: Any, model: Any) -> None:
    """Build it, unless it is built, without sparse matrices: JAX has no rows of those."""
    sparse = bambi.config["SPARSE_DOT"]
    if sparse or not model.built:
        bambi.config["SPARSE_DOT"] = False
        try:
            model.build()
        finally:
            bambi.config["SPARSE_DOT"] = sparse


def _intercepts(model: Any) -> list[Callable[[Quantities], Quantities]]:
    """How each intercept changes from centred columns to those that were given: by −mean(X)·b."""
    from bambi.utils import get_aliased_name

    found = []
    for built in model.backend.distributional_components.values():
        component = built.component
        if component.intercept_term and component.common_terms and model.center_predictors:
            means = np.asarray(built.design_matrix_without_intercept).mean(0)
            slopes = [get_aliased_name(term) for term in component.common_terms.values()]
            found.append(_moved(get_aliased_name(component.intercept_term), slopes, means))
    return found


def _moved(intercept: str, slopes: list[str], means: Any) -> Callable[[Quantities], Quantities]:
    def move(quantities: Quantities) -> Quantities:
        jnp = load().numpy
        level = quantities[intercept]
        columns = jnp.concatenate([quantities[name].reshape(-1, *level.shape) for name in slopes])
        return {**quantities, intercept: level - jnp.tensordot(means, columns, 1)}

    return move
