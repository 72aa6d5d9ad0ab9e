"""The door for Bambi: the PyMC model that it builds, with the names and the intercept of its own results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.errors import requirement
from svrhmc.core.jax import Tree, load_jax
from svrhmc.models.description import ModelDescription, Params, import_package
from svrhmc.models.pymc import describe_pymc

if TYPE_CHECKING:
    from types import ModuleType

    import bambi
    import jax

Quantities = dict[str, Tree]


def describe_bambi(model: bambi.Model) -> ModelDescription:
    """Take a Bambi model apart, by the PyMC model that it builds.

    Bambi centres the columns and reports the intercept of those that it was given, and it leaves out the standardised
    effects of groups, from which it computes the effects: so does this.
    """
    package = import_package("bambi", "from_bambi")
    if not isinstance(model, package.Model):
        raise requirement("model", "a bambi.Model", repr(model))
    _build(package, model)
    described = describe_pymc(model.backend.model)
    names = tuple(name for name in described.names if name.removesuffix("_offset") not in {*described.names} - {name})
    changes = _intercept_changes(model)

    def constrain(params: Params) -> Quantities:
        quantities = described.constrain(params)
        for change in changes:
            quantities = change(quantities)
        return {name: quantities[name] for name in names}

    return replace(described, constrain=constrain, names=names)


def _build(package: ModuleType, model: bambi.Model) -> None:
    """Build it, unless it is built, without sparse matrices: JAX has no rows of those."""
    sparse = package.config["SPARSE_DOT"]
    if sparse or not model.built:
        package.config["SPARSE_DOT"] = False
        try:
            model.build()
        finally:
            package.config["SPARSE_DOT"] = sparse


def _intercept_changes(model: bambi.Model) -> list[Callable[[Quantities], Quantities]]:
    """How each intercept changes from centred columns to those that were given: by −mean(X)·b."""
    from bambi.utils import get_aliased_name

    changes = []
    for built in model.backend.distributional_components.values():
        component = built.component
        if component.intercept_term and component.common_terms and model.center_predictors:
            means = np.asarray(built.design_matrix_without_intercept).mean(0)
            slopes = [get_aliased_name(term) for term in component.common_terms.values()]
            changes.append(_uncentre_intercept(get_aliased_name(component.intercept_term), slopes, means))
    return changes


def _uncentre_intercept(intercept: str, slopes: list[str], means: jax.Array) -> Callable[[Quantities], Quantities]:
    def move(quantities: Quantities) -> Quantities:
        jnp = load_jax().numpy
        level = quantities[intercept]
        columns = jnp.concatenate([quantities[name].reshape(-1, *level.shape) for name in slopes])
        return {**quantities, intercept: level - jnp.tensordot(means, columns, 1)}

    return move
