"""The JAX engine on every family, prior and whitening that compiled code runs: the same chains as `reference`."""

import numpy as np
import pytest

from svrhmc import Sampler, dynamics, gradients, targets
from svrhmc.targets import families, priors
from svrhmc.whitening import whitened

jax = pytest.importorskip("jax")

STEPS = 200
MOVES = dynamics.UBU(0.02, 1.0, 1.0)
RNG = np.random.default_rng(5)
N = 60
X = np.column_stack([np.ones(N), RNG.standard_normal((N, 2))])
T = X @ [0.3, 0.6, -0.4]
LABELS = {
    "gaussian": T + RNG.standard_normal(N),
    "student-t": T + RNG.standard_t(3.0, N),
    "negative-binomial": RNG.negative_binomial(1.5, 1.5 / (1.5 + np.exp(T))).astype(float),
    "gamma": RNG.gamma(2.0, np.exp(T) / 2),
    "categorical": (RNG.random(N)[:, None] > [0.3, 0.6]).sum(axis=1).astype(float),
    "bernoulli": (RNG.random(N) < 0.5).astype(float),
    "probit": (RNG.random(N) < 0.5).astype(float),
    "binomial": (RNG.random(N) < 0.5).astype(float),
    "poisson": RNG.poisson(np.exp(T)).astype(float),
    "known noise": T + RNG.standard_normal(N),
}
ASKED = {"probit": families.bernoulli("probit"), "known noise": families.gaussian(0.5)}
HEAVY = [priors.StudentT(4.0, 1.5), priors.Laplace(0.7, location=0.2), priors.Normal(2.0, mean=0.1)]
WEIGHTS, OFFSET = RNG.uniform(0.5, 2.0, N), RNG.uniform(-0.3, 0.3, N)


def target_of(family, prior=None, sparse=False, **more):
    rows = X
    if sparse:
        from scipy.sparse import csr_matrix

        rows = csr_matrix(np.where(np.abs(X) < 0.5, 0.0, X))
    return targets.glm(rows, LABELS[family], ASKED.get(family, family), prior=prior, **more)


def apart(target, gradient, steps=STEPS):
    """The largest difference between the draws of two engines."""
    sampler = Sampler(MOVES, gradient)
    draws = [sampler.run(target, steps, chains=2, seed=3, engine=engine).draws for engine in ("reference", "jax")]
    return np.abs(draws[0] - draws[1]).max()


CASES = {  # how rows are drawn and which variables, so that every operation is met by some family
    "gaussian": ("dense", gradients.SAGA(3)),
    "student-t": (None, gradients.SVRG(3, 7, importance=True)),
    "negative-binomial": ("dense", gradients.SVRG(3, 7)),
    "gamma": ("diagonal", gradients.ControlVariate(4)),
    "categorical": ("dense", gradients.Minibatch(4)),
    "bernoulli": ("low rank", gradients.Minibatch(4)),
    "probit": (None, gradients.ControlVariate(4, order=2)),
    "binomial": ("dense", gradients.Full()),
    "poisson": ("dense", gradients.SVRG(3, 7, snapshot_size=20)),
    "known noise": ("diagonal", gradients.Minibatch(4)),
}
QUICK = ("negative-binomial",)


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_a_family_has_the_chains_of_reference(family):
    """With weights, an offset and priors of every kind; the shared parameter has a prior of its own."""
    how, gradient = CASES[family]
    offset = None if family == "categorical" else OFFSET
    target = target_of(family, HEAVY, weights=WEIGHTS, offset=offset)
    assert apart(target if how is None else whitened(target, how), gradient) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "sparse", "gradient"),
    [
        (None, True, gradients.Full()),
        ("diagonal", False, gradients.Full()),
        (None, False, gradients.SVRG(3, 7)),
        ("dense", True, gradients.SVRG(3, 7)),
        (None, True, gradients.ControlVariate(4, order=2)),
        ("dense", False, gradients.ControlVariate(4, order=2)),
    ],
)
@pytest.mark.parametrize("family", ["categorical", "gamma"])
def test_rows_of_several_predictors(family, how, sparse, gradient):
    target = target_of(family, sparse=sparse)
    assert apart(target if how is None else whitened(target, how), gradient) < 1e-9


def crossed(levels, n=300):
    """Rows of an intercept and one of each of some categories."""
    from scipy.sparse import csr_array, hstack

    parts = [csr_array(np.ones((n, 1)))]
    for count in levels:
        parts.append(csr_array((np.ones(n), RNG.integers(0, count, n), np.arange(n + 1)), (n, count)))
    return targets.logistic(csr_array(hstack(parts)), RNG.random(n) < 0.4, 1.0)


@pytest.mark.parametrize("levels", [(5, 60, 80), (299, 300), ()], ids=["crossed", "chained", "none"])
def test_a_sparse_factor_is_the_same_map(levels):
    from svrhmc.core.jax import scope
    from svrhmc.engines.jax.maps import Map
    from svrhmc.whitening import whitening

    how = whitening(crossed(levels), "sparse")
    z = RNG.standard_normal((3, len(how.centre)))
    with scope():
        variables, arrays = Map.of(how)
        arrays = {name: jax.numpy.asarray(array) for name, array in arrays.items()}
        for mine, its in ((variables.displace, how.displace), (variables.pull, how.pull)):
            np.testing.assert_allclose(jax.jit(mine)(arrays, z), its(z), rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [gradients.Minibatch(4), gradients.Full()])
def test_chains_in_the_variables_of_a_sparse_factor(gradient):
    assert apart(whitened(crossed((5, 60, 80)), "sparse"), gradient) < 1e-9


def test_other_labels_are_other_chains():
    """The comparison sees one label in sixty."""
    sampler, chains = Sampler(MOVES, gradients.SVRG(3, 7)), []
    for changed in (0.0, 1.0):
        y = LABELS["negative-binomial"].copy()
        y[7] += changed
        target = whitened(targets.glm(X, y, "negative-binomial", prior=HEAVY, weights=WEIGHTS, offset=OFFSET), "dense")
        chains.append(sampler.run(target, STEPS, chains=2, seed=3, engine="jax").draws)
    assert np.abs(chains[0] - chains[1]).max() > 1e-6
