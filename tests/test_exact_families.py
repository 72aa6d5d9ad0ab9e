"""A million draws of every family by the exact samplers have the law of the posterior, found by quadrature.

|z| < 4.5 of moments to the third order and of five quantiles of each coordinate; laws that are a little wrong are told
apart by the same draws. (`test_exact.py` has the same for logistic regression in every test run.)
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import quadrature
from conftest import LIMIT
from quadrature import FREEDOM, NOISE_VARIANCE, SHARED_SD, Data, Fault
from simulated_data import events
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.targets import families, glm
from svrhmc.whitening import whitened

FAMILIES = {
    "bernoulli": "bernoulli",
    "probit": families.bernoulli("probit"),
    "binomial": "binomial",
    "poisson": "poisson",
    "gaussian, known noise": families.gaussian(NOISE_VARIANCE),
    "gaussian": "gaussian",
    "student-t": families.student_t(FREEDOM),
    "negative-binomial": "negative-binomial",
    "gamma": "gamma",
    "categorical": families.categorical(3),
}
COLUMNS = {"bernoulli": 3, "gaussian, known noise": 1, "student-t": 1, "categorical": 1}  # others have two
BOUNDED = ("bernoulli", "probit", "binomial", "gaussian, known noise")
CHAINS, BURN_IN = 100, 100


def draw_labels(family, t, shared, rng):
    """Labels of their family at predictors t; `shared` is the shared parameter itself."""
    n = len(t)
    if family == "bernoulli":
        return events(rng, t)
    if family == "probit":
        return t + rng.standard_normal(n) > 0
    if family == "poisson":
        return rng.poisson(np.exp(t))
    if family in ("gaussian", "gaussian, known noise"):
        return t + shared * rng.standard_normal(n)
    if family == "student-t":
        return t + shared * rng.standard_t(FREEDOM, n)
    if family == "negative-binomial":
        return rng.negative_binomial(shared, shared / (shared + np.exp(t)))
    assert family == "gamma"
    return rng.gamma(shared, np.exp(t) / shared)


@cache
def problem(family, n=24, columns=None):
    """Rows with offsets and weights, where the family takes them."""
    rng = np.random.default_rng(7)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])[:, : columns or COLUMNS.get(family, 2)]
    offset, weights, trials = rng.normal(size=n) / 4, rng.choice([0.5, 1.0, 2.0], n), None
    t = offset + X @ [0.4, -0.7, 0.3][: X.shape[1]]
    if family == "categorical":
        offset, y = np.zeros(n), rng.choice(3, n, p=[0.5, 0.3, 0.2])
    elif family == "binomial":
        trials = rng.integers(0, 5, n).astype(float)
        y = rng.binomial(trials.astype(int), 1 / (1 + np.exp(-t)))
    else:
        shared = {"gaussian, known noise": NOISE_VARIANCE**0.5, "gaussian": 1.3, "student-t": 0.8}.get(family, 2.0)
        y = draw_labels(family, t, shared, rng)
    return Data(family, X, np.asarray(y, float), offset, weights, trials)


def target_of(data):
    more = {} if data.trials is None else {"trials": data.trials}
    offset = None if data.family == "categorical" else data.offset
    return glm(data.X, data.y, FAMILIES[data.family], offset=offset, weights=data.weights, **more)


@cache
def exact_law(data, fault=quadrature.NONE):
    laplace = target_of(data).laplace()
    return quadrature.law(data, laplace.mean, np.sqrt(np.diag(laplace.covariance)), fault)


@cache
def draws_of(sampler, family, per_chain):
    return sampler.run(target_of(problem(family)), per_chain, chains=CHAINS, burn_in=BURN_IN, seed=11).draws


FAULTS = {
    "slope": Fault(slope=1.02),
    "prior": Fault(prior=2.0),
    "constant": Fault(constants=1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_million_draws_of_split_hmc(family):
    draws = draws_of(SplitHMC(), family, 10_000)
    data = problem(family)
    assert quadrature.worst_z(draws, exact_law(data)) < LIMIT
    for name, fault in FAULTS.items():
        if name == "constant" and family not in SHARED_SD:
            continue  # it has no shared parameter
        assert quadrature.worst_z(draws, exact_law(data, fault)) > LIMIT, name


@pytest.mark.slow
@pytest.mark.parametrize("family", BOUNDED)
def test_a_million_draws_of_subsampled_metropolis(family):
    correlation = 0.7 if family == "binomial" else 0.0  # independent proposals stay in its tails for up to 70 draws
    draws = draws_of(SubsampledMH(correlation), family, 10_000)
    data = problem(family)
    assert quadrature.worst_z(draws, exact_law(data)) < LIMIT
    for name in ("slope", "prior"):
        assert quadrature.worst_z(draws, exact_law(data, FAULTS[name])) > LIMIT, name


@pytest.mark.parametrize("family", [pytest.param("bernoulli", marks=pytest.mark.slow), "probit", "binomial"])
def test_a_bound_that_is_halved_is_noticed(family):
    """With one column |aᵀz| = |a||z|, and rows come close to their bounds."""
    space = whitened(target_of(problem(family, 40, 1)))
    for share in (1.0, 0.5):
        chains = SubsampledMH().chains(space, 3, np.arange(4), 1)
        chains.kernel.plan = chains.kernel.plan._replace(rate=share * chains.kernel.plan.rate)
        if share == 1.0:
            chains.extend(5000)
        else:
            with pytest.raises(RuntimeError, match="the rate of a row is above its bound"):
                chains.extend(5000)


@pytest.mark.parametrize("family", ["gamma", "categorical"])
def test_quadrature_has_the_density_of_the_target(family):
    """Differences of −log π at random points are those of `potentials`; a fault shows."""
    data = replace(problem(family))
    target = target_of(data)
    x = target.mode() + np.random.default_rng(1).normal(size=(20, data.dim)) / 5
    f = target.potentials(x)
    assert np.ptp(quadrature.potential(data, x) - f) < 1e-9 * np.abs(f).max()
    assert np.ptp(quadrature.potential(data, x, Fault(slope=1.02)) - f) > 1e-3
