"""What every door for models of other libraries is held to."""

from typing import NamedTuple

import jax
import numpy as np
import pytest

from svrhmc import diagnostics
from svrhmc.core.jax import scope
from svrhmc.sampling.correction import error_of_mean
from svrhmc.trace import grids

POINTS = 100
CHAINS, WARMUP, DRAWS = 4, 1000, 4000  # of NUTS
NEAR = 0.05  # posterior sd that means may be apart, and sds relative to it
LIMIT = 4.5  # standard errors
N = 60  # rows
RNG = np.random.default_rng(7)
X = RNG.standard_normal((N, 3))
GROUP = np.arange(N) % 7
EVENTS = (RNG.random(N) < 0.4).astype(np.int64)
COUNTS = RNG.poisson(2.0, N)
LEVELS = np.arange(N) % 4
NUMBERS = RNG.standard_normal(N)
BASIS = np.sin(np.linspace(0.1, 3.0, N)[:, None] * np.arange(1, 6))
ROWS = {"x": X, "group": GROUP}


def around(init, count=POINTS, spread=0.7):
    """Random points around a start, all of them in one array for each parameter."""
    rng = np.random.default_rng(11)
    return {
        name: np.asarray(value) + spread * rng.standard_normal((count, *np.shape(value)))
        for name, value in init.items()
    }


def densities(described, params):
    """The log density at each of the points, as the sum over rows and the rest; in float64."""
    with scope():

        def of_row(point, row):
            if described.batched:
                row = {name: value[None] for name, value in row.items()}
            return described.log_likelihood(point, row)

        def one(point):
            each = jax.vmap(of_row, (None, 0))(point, described.data)
            assert each.shape == (len(next(iter(described.data.values()))),)
            return each.sum() + described.log_prior(point)

        return np.asarray(jax.jit(jax.vmap(one))(params))


class Apart(NamedTuple):
    """Of every number: |mean − mean of NUTS|, in posterior sd, and |sd/(sd of NUTS) − 1|, with the standard errors of
    both sides together; and the fewest effective draws of NUTS.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    mean_error: np.ndarray
    sd: np.ndarray
    sd_error: np.ndarray
    effective: float


def apart(parameters, theirs):
    """What `sample` reports beside draws of NUTS: arrays (chain, draw, …) by name."""
    found, order, draws = parameters.moments, [], []
    for name, places in grids(parameters.names).items():
        order += list(np.ravel(places))
        draws.append(theirs[name].reshape(*theirs[name].shape[:2], -1))
    x = np.concatenate(draws, axis=2)
    moving = x.std(axis=(0, 1)) > 0  # the diagonal of a correlation matrix does not
    x, order = x[:, :, moving], np.array(order)[moving]
    mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1))
    square_error = error_of_mean((x - mean) ** 2) / (2 * sd)
    return Apart(
        tuple(parameters.names[k] for k in order),
        np.abs(found.mean[order] - mean) / sd,
        np.hypot(found.mean_error[order], error_of_mean(x)) / sd,
        np.abs(found.sd[order] / sd - 1),
        np.hypot(found.sd_error[order], square_error) / sd,
        float(diagnostics.ess(x).min()),
    )


def require_near(posterior, theirs):
    """Means and sds as NUTS has them, within 0.05 posterior sd, and a verdict that says so."""
    found = apart(posterior.parameters, theirs)
    assert posterior.certificate.verdict == "local"
    assert found.effective >= 4000
    np.testing.assert_array_less(found.mean, NEAR)
    np.testing.assert_array_less(found.sd, NEAR)


def require_honest(posterior, theirs):
    """Either as NUTS has them, within 0.05 sd or else within chance, or no verdict that says they are."""
    found = apart(posterior.parameters, theirs)
    if posterior.certificate.verdict in ("exact", "certified", "local"):
        np.testing.assert_array_less(found.mean, np.maximum(NEAR, LIMIT * found.mean_error))
        np.testing.assert_array_less(found.sd, np.maximum(NEAR, LIMIT * found.sd_error))


def moved(theirs, parameters):
    """The draws of NUTS, moved by 0.1 sd and twice what chance may do."""
    found = apart(parameters, theirs)
    shift = 0.1 + 2 * LIMIT * found.mean_error.max()
    return {name: x + shift * x.std(axis=(0, 1)) for name, x in theirs.items()}


def require_posterior(posterior, theirs, log_concave):
    """The posterior of a model beside that of NUTS; and what is off is seen to be."""
    check = require_near if log_concave else require_honest
    check(posterior, theirs)
    if posterior.certificate.verdict == "local":
        with pytest.raises(AssertionError):
            check(posterior, moved(theirs, posterior.parameters))
