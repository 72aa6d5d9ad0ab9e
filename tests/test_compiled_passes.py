"""The compiled pass over rows beside the definition of the same sums in NumPy."""

import numpy as np
import pytest
import scipy.sparse

from svrhmc import targets
from svrhmc.rows import passes
from svrhmc.rows.base import Labels
from svrhmc.rows.passes import RowsPass

N, COLUMNS = 10_000, 5  # more than two blocks of rows, the last of which ends within a tile
FAMILIES = ["bernoulli", "poisson", "negative-binomial", "gamma", "categorical", "student-t"]


def problem(family, storage):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + 7, COLUMNS)) * (rng.random((N + 7, COLUMNS)) < 0.6)
    t = X @ rng.normal(size=COLUMNS) / 2
    y = {
        "bernoulli": rng.random(len(t)) < 1 / (1 + np.exp(-t)),
        "poisson": rng.poisson(np.exp(t)),
        "negative-binomial": rng.poisson(np.exp(t)),
        "gamma": rng.gamma(2.0, np.exp(t)),
        "categorical": rng.integers(0, 4, len(t)),
        "student-t": t + rng.standard_t(4, len(t)),
    }[family]
    X = {"float64": X, "float32": X.astype(np.float32), "csr": scipy.sparse.csr_matrix(X)}[storage]
    offset = None if family == "categorical" else rng.normal(size=len(t)) / 4
    target = targets.glm(X, y, family, offset=offset, weights=rng.uniform(0.5, 2.0, len(t)))
    return target, rng.normal(size=(5, target.dim)) / 4


def passed(target, states, weights=1.0, **settings):
    """By the compiled pass."""
    labels = Labels(target.y, target.offset, target.weights * weights)
    return RowsPass(target.rows.design_matrix, target.loss, labels)(states, **settings)


@pytest.mark.ordinary(
    lambda family, storage: (family, storage) in {("bernoulli", "csr"), ("negative-binomial", "float64")}
)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("storage", ["float64", "float32", "csr"])
def test_the_pass_has_the_sums_of_the_definition(family, storage):
    """To rounding in float64, whatever rows are stored in; with other weights, not."""
    target, states = problem(family, storage)
    expected = target.form().energies(states)
    values, gradients = passed(target, states)
    assert np.allclose(values, expected.values, rtol=1e-11)
    assert np.allclose(gradients, expected.gradients, rtol=1e-9, atol=1e-8)
    wrong = passed(target, states, weights=1 + 1e-6)
    assert not np.allclose(wrong[0], expected.values, rtol=1e-9)
    assert np.abs(wrong[1] - expected.gradients).max() > 1e-6


@pytest.mark.parametrize("storage", ["float64", pytest.param("csr", marks=pytest.mark.slow)])
def test_no_digit_of_a_pass_depends_on_threads_or_company(storage):
    target, states = problem("bernoulli", storage)
    values, gradients = passed(target, states)
    for threads in (1, 3):
        again = passed(target, states, threads=threads)
        assert (again[0] == values).all()
        assert (again[1] == gradients).all()
    for k, state in enumerate(states):
        alone = passed(target, state[None])
        assert alone[0] == values[k]
        assert (alone[1] == gradients[k]).all()
    alone = passed(target, states, valued=False)  # by the formula of slopes alone, which rounds otherwise
    assert np.allclose(alone[1], gradients, rtol=1e-12, atol=1e-10)


def test_passes_share_their_threads():
    """Those of many models that are kept, too."""
    target, states = problem("bernoulli", "float64")
    for _ in range(3):
        passed(target, states, threads=3)
    assert passes._pool(3) is passes._pool(3)
    assert len(passes._pool(3)._threads) <= 3
