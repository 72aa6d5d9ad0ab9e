"""Rows of weight 0 say nothing: they are left out, whatever their entries are, and an energy that is NaN is an error."""

import numpy as np
import pytest
import scipy.sparse

import svrhmc
from conftest import LIMIT
from quadrature import moments_of_one_coordinate
from svrhmc.core.errors import UndefinedDensityError
from svrhmc.data import from_arrays
from svrhmc.exact import SplitHMC
from svrhmc.kernels.rows import fixed
from svrhmc.rows import forms
from svrhmc.whitening import whitened

FAMILIES = ("poisson", "bernoulli", "gaussian", "negative-binomial", "gamma", "student-t")


def a_table(dtype=np.float32):
    """A count of 1 at x = 1 and one of 2 at x = 0.3, and a row of weight 0 whose predictor overflows beyond x = 0.44."""
    X = np.array([[1.0], [200.0], [0.3]], dtype)
    return X, np.array([1.0, 3.0, 2.0]), np.array([1.0, 0.0, 1.0])


def moments(target):
    return moments_of_one_coordinate(target, np.linspace(-12, 12, 20_001))


@pytest.mark.ordinary(lambda method: method == "split-hmc")
@pytest.mark.parametrize("method", ["split-hmc", "subsampled-mh"])
def test_a_row_of_weight_0_cuts_nothing_off(method):
    X, y, w = a_table()
    target = svrhmc.targets.glm(X, y, "poisson", weights=w)
    mean, sd = moments(svrhmc.targets.glm(X[w > 0], y[w > 0], "poisson"))
    posterior = svrhmc.sample(target, 2000, seed=1, method=method)
    assert (target.n, target.left_out) == (2, 1)
    assert abs(posterior.raw.mean[0] - mean) < LIMIT * sd / np.sqrt(posterior.ess[0])
    assert mean > 0.02  # with the tail beyond 0.44 cut off it would be -0.27


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [np.float32, np.float64, "sparse"])
def test_a_row_of_weight_0_is_no_row(family, kind):
    X, y, w = a_table(np.float32 if kind == "sparse" else kind)
    y = np.minimum(y, 1.0) if family == "bernoulli" else y
    some = w > 0
    stored = scipy.sparse.csr_matrix if kind == "sparse" else np.asarray
    target = svrhmc.targets.glm(stored(X), y, family, weights=w, offset=np.array([0.1, -0.2, 0.3]))
    alone = svrhmc.targets.glm(stored(X[some]), y[some], family, weights=w[some], offset=np.array([0.1, 0.3]))
    assert target.identity() == alone.identity()


def test_rows_without_trials_are_left_out():
    target = svrhmc.targets.glm([[1.0], [500.0], [2.0]], [1, 0, 0], "binomial", trials=[2, 0, 1])
    assert (target.n, target.left_out) == (2, 1)
    with pytest.raises(ValueError, match="trials must be above 0 for some row"):
        svrhmc.targets.glm([[1.0], [2.0]], [0, 0], "binomial", trials=0)
    with pytest.raises(ValueError, match="weights must be above 0 for some row that has trials"):
        svrhmc.targets.glm([[1.0], [2.0]], [0, 0], "binomial", trials=[0, 3], weights=[1, 0])


def test_weights_that_rounding_loses_are_refused():
    with pytest.raises(ValueError, match=r"weights must be 0, or at least 1e-30; got 1e-40 at row 1"):
        svrhmc.targets.glm([[1.0], [2.0]], [0, 1], "poisson", weights=[1, 1e-40])


def test_a_table_says_how_many_rows_were_left_out():
    table = {"y": [1.0, 2.0, 0.0, 3.0, 2.0, 1.0], "x": [0.1, 0.7, 1e4, 0.9, 0.5, 0.2], "w": [1, 2, 0, 1, 1, 0]}
    posterior = svrhmc.fit("y ~ x", table, "gaussian", weights="w", draws=100)
    kept = {name: [value for value, w in zip(column, table["w"], strict=True) if w] for name, column in table.items()}
    alone = svrhmc.fit("y ~ x", kept, "gaussian", weights="w", draws=100)
    assert np.array_equal(posterior.trace.draws, alone.trace.draws)
    assert (posterior.rows, posterior.left_out) == (4, 2)
    assert "4 rows (2 of weight 0 left out)" in str(posterior.summary())


def test_rows_of_weight_0_in_partitions_do_not_count():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2)).astype(np.float32)
    y, w = rng.poisson(1.0, 60).astype(float), np.ones(60)
    X[::7], w[::7] = 300.0, 0.0
    data = from_arrays(X, y, weights=w, partitions=3)
    target, alone = svrhmc.targets.glm(data, family="poisson"), svrhmc.targets.glm(X[w > 0], y[w > 0], "poisson")
    assert np.allclose(target.mode(), alone.mode(), atol=1e-6)
    far = alone.mode() + np.array([[0.4, 0.4], [-0.4, 0.4]])  # 300 · 0.8 is beyond what exp of a float32 can be
    assert np.isfinite(target.potentials(far)).all()
    assert np.isfinite(target.gradients(far)).all()
    assert np.allclose(np.diff(target.potentials(far)), np.diff(alone.potentials(far)), rtol=1e-5)


def nan_beyond(bound):
    """A standard normal law whose log density is NaN beyond a bound, or −∞ with a finite slope."""
    import jax.numpy as jnp

    def log_prior(x):
        inside = x["x"] < bound
        return -0.5 * x["x"] ** 2 + jnp.where(inside, 0.0, jnp.nan)

    return svrhmc.targets.model(lambda x, row: 0.0 * row, log_prior, np.zeros(1), {"x": 0.0})


def cut_beyond(bound):
    import jax.numpy as jnp

    def log_prior(x):
        return -0.5 * x["x"] ** 2 + jnp.where(x["x"] < bound, 0.0, -jnp.inf)

    return svrhmc.targets.model(lambda x, row: 0.0 * row, log_prior, np.zeros(1), {"x": 0.0})


def test_an_energy_that_is_not_a_number_stops_jax_chains():
    with pytest.raises(UndefinedDensityError, match=r"chain \d, step \d+: the log posterior is not a number"):
        SplitHMC().run(nan_beyond(1.0), 300, whitening="dense")


def test_an_infinite_energy_is_a_rejection():
    draws = SplitHMC().run(cut_beyond(1.0), 2000, whitening="dense").draws
    assert draws.max() < 1.0
    assert abs(draws.mean() + 0.2876) < 0.1  # −φ(1)/Φ(1)


def steep_then_nan(bound):
    """A law of x that falls like e^{−1000|x|} from 1 on, so that trajectories are thrown beyond, and NaN far out there,
    as where a Cholesky factor fails for a scale of which there is nothing in the posterior.
    """
    import jax.numpy as jnp

    def log_prior(x):
        beyond = jnp.maximum(jnp.abs(x["x"]) - 1.0, 0.0)
        return -0.5 * x["x"] ** 2 - 1000.0 * beyond + jnp.where(jnp.abs(x["x"]) < bound, 0.0, jnp.nan)

    return svrhmc.targets.model(lambda x, row: 0.0 * row, log_prior, np.zeros(1), {"x": 0.0})


def test_a_trajectory_that_is_thrown_to_where_nothing_is_may_find_no_number():
    """The negative control is above: where NaN begins within the posterior it stops the chains."""
    space = whitened(steep_then_nan(5.0), "dense")
    x = SplitHMC(0.1, 3).chains(space, 0, np.arange(4), 1, np.zeros((4, 1))).extend(500).draws
    assert np.abs(x).max() < 1.1
    assert (np.diff(x, axis=1) != 0).mean() > 0.5


class _Spoiled:
    """A target in whitened variables whose energies are NaN beyond a bound."""

    def __init__(self, space, bound):
        self.space, self.bound, self.n, self.dim = space, bound, space.n, space.dim

    def energies(self, z):
        f, gradient = self.space.energies(z)
        return np.where(z[:, 0] > self.bound, np.nan, f), gradient


def test_an_energy_that_is_not_a_number_stops_chains_by_passes():
    space = whitened(svrhmc.targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1]), "dense")
    with pytest.raises(UndefinedDensityError):
        SplitHMC().chains(_Spoiled(space, 1.0), 0, np.arange(2), 1).extend(200)
    assert SplitHMC().chains(_Spoiled(space, 50.0), 0, np.arange(2), 1).extend(200).accepted.min() > 100


@pytest.mark.usefixtures("compiled")
@pytest.mark.ordinary(lambda spoiled: spoiled == "y")
@pytest.mark.parametrize("spoiled", ["y", "weights"])
def test_an_energy_that_is_not_a_number_stops_compiled_chains(spoiled):
    """By a label that is no number, or a weight of 0, that is put past the door."""
    X, y, w = a_table()
    if spoiled == "y":
        target, found = svrhmc.targets.logistic(X.astype(float) / 200, [1, 0, 1]), np.array([1.0, np.nan, 1.0])
    else:
        target, found = svrhmc.targets.glm(X, y, "poisson", weights=[1.0, 1e-12, 1.0]), w
    chains = SplitHMC().chains(whitened(target, "dense"), 0, np.arange(2), 1)
    by_rows = chains.kernel.definition.density.target._pass
    setattr(by_rows, spoiled, fixed(found.astype(getattr(by_rows, spoiled).dtype)))
    with pytest.raises(UndefinedDensityError):
        chains.extend(500)


@pytest.mark.ordinary(lambda small: small)
@pytest.mark.parametrize("small", [True, False])
def test_a_trajectory_that_overflows_is_refused_and_not_an_error(small, monkeypatch):
    """float32 rows with entries of both signs: where the force is ∞ − ∞ the energy is ∞."""
    if not small:
        monkeypatch.setattr(forms, "_SMALL", 0)
    X = np.array([[30.0, 0.0], [-30.0, 0.0], [0.0, 30.0], [1.0, 1.0]], np.float32)
    target = svrhmc.targets.glm(X, [1, 0, 2, 1], "poisson", weights=[1, 1, 1, 2], prior_precision=0.01)
    chains = SplitHMC(3.0, 2).chains(whitened(target, "dense"), 0, np.arange(4), 1)
    chains.state.x[:] = 40.0
    assert np.isfinite(chains.extend(50).draws).all()


def test_blocks_of_sparse_rows_are_silenced_too():
    from svrhmc.rows.reading import Block

    X = np.array([[1.0, 2.0], [3.0, 0.0]], np.float32)
    block = Block(
        0, scipy.sparse.csr_matrix(X), np.zeros(2), np.array([1.0, 2.0]), np.array([0.0, 1.0])
    ).clear_weightless_rows()
    assert block.X.dtype == np.float32
    assert block.X.toarray().tolist() == [[0.0, 0.0], [3.0, 0.0]]
    assert block.offset.tolist() == [0.0, 2.0]
