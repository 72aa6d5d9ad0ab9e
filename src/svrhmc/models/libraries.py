"""Models of other libraries as targets: NumPyro, PyMC, Bambi. Each is loaded where it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.jax import scoped
from svrhmc.models.description import ModelDescription, Params
from svrhmc.models.model import Model, model

if TYPE_CHECKING:
    import bambi
    import pymc

__all__ = ["from_bambi", "from_numpyro", "from_pymc"]


def from_numpyro(
    model: Callable[..., object], *args: object, plate: str | None = None, log_concave: bool = False, **kwargs: object
) -> Model:
    """A target from a NumPyro model.

    model, args, kwargs: the model and what it is called with, all rows of it: arrays among the arguments that have as
        many rows as the data plate are the data, and everything else is the same for all rows.
    plate: the name of the data plate, where several plates have observed sites and rows among the arguments. Without a
        plate, the leading axis of the observed sites is that of the rows.
    log_concave: whether you know that the density is log-concave in the parameters without constraints; see
        `targets.model`.

    Parameters are sampled without constraints and come back constrained, by their names, with derived quantities that
    need no rows. A model that is no sum over rows (a Gaussian process, a latent for each row) is one component, and the
    target's `note` says why: no batches of rows are possible then. Refused with the reason: discrete latents, batches.
    """
    from svrhmc.models.numpyro import describe_numpyro

    return _to_model(describe_numpyro(model, *args, plate=plate, **kwargs), log_concave)


def from_pymc(model: pymc.Model, *, observed: str | None = None, log_concave: bool = False) -> Model:
    """A target from a PyMC model.

    observed: the name of the observed variable whose rows are the data, where observed ones have unlike lengths.
    log_concave: whether you know that the density is log-concave in the parameters without constraints; see
        `targets.model`.

    The arrays in the model that have as many rows become arguments of a JAX function, and none is compiled into it.
    Parameters come back as the model has them, by their names, with deterministics that need no rows. A model that is
    no sum over rows (a Gaussian process, a latent for each row) is one component, and the target's `note` says why: no
    batches of rows are possible then. Refused with the reason: discrete parameters, minibatches.
    """
    from svrhmc.models.pymc import describe_pymc

    return _to_model(describe_pymc(model, observed), log_concave)


def from_bambi(model: bambi.Model, *, log_concave: bool = False) -> Model:
    """A target from a Bambi model, by the PyMC model that it builds; names and intercept are those of its results.

    log_concave: whether you know that the density is log-concave in the parameters without constraints; see
        `targets.model`.
    """
    from svrhmc.models.bambi import describe_bambi

    return _to_model(describe_bambi(model), log_concave)


def _to_model(described: ModelDescription, log_concave: bool) -> Model:
    target = model(
        described.log_likelihood,
        described.log_prior,
        described.data,
        described.init,
        batched=described.batched,
        constrain=described.constrain,
        log_concave=log_concave,
    )
    target.note, target.observed = described.note, described.observed
    target.dims, target.coords = described.dims, described.coords
    target.terms, target.observations = described.terms, described.observations
    if described.prior_draws is not None:
        target.prior_draws = _ravel_states(described.prior_draws)
    return target


@scoped
def _ravel_states(params: Params) -> Array:
    """States of parameters that have a leading axis; those that are not finite are left out."""
    import jax
    from jax.flatten_util import ravel_pytree

    x = np.asarray(jax.vmap(lambda one: ravel_pytree(one)[0])(params), np.float64)
    return x[np.isfinite(x).all(axis=1)]
