"""What every door for models of other libraries is held to."""

import jax
import numpy as np

from svrhmc.core.jaxed import scope

POINTS = 100
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
