"""Projections of posteriors onto few columns."""

import numpy as np
import pytest
from scipy.optimize import minimize

import svrhmc
from svrhmc.results.projection import Reference
from svrhmc.targets.priors import Horseshoe, SpikeAndSlab


def table(family="gaussian", n=150, seed=0):
    rng = np.random.default_rng(seed)
    data = {f"x{j}": rng.standard_normal(n) * 10.0 ** (j % 3) for j in range(8)}
    t = 2 * data["x0"] + 0.1 * data["x4"] + 1
    noise = rng.standard_normal(n)
    return {**data, "y": t + noise if family == "gaussian" else t + noise > 0}


@pytest.fixture(scope="module", params=["gaussian", "bernoulli"])
def posterior(request):
    return svrhmc.fit("y ~ .", table(request.param), family=request.param, prior=Horseshoe(2), draws=100, seed=1)


def test_a_path_begins_with_the_effects_and_says_how_many_suffice(posterior):
    path = posterior.project()
    assert path.names[:3] == ("none", "+ x0", "+ x4")
    assert len(path.names) == 9
    assert path["explained"][0] == 0
    assert path["explained"][-1] == pytest.approx(1.0, abs=1e-6)
    assert (np.diff(path["explained"]) > -1e-6).all()
    assert "2 suffice" in path.notes[0] or "1 suffice" in path.notes[0]
    assert len(posterior.project(most=3).to_frame()) == 4


def test_onto_all_columns_is_the_posterior(posterior):
    whole = posterior.project([f"x{j}" for j in range(8)])
    every = posterior.trace.draws.reshape(-1, posterior.trace.draws.shape[2])
    assert np.abs((whole["mean"] - every.mean(axis=0)) / every.std(axis=0)).max() < 0.4  # from 200 of the draws
    assert "100.0%" in whole.notes[0]


def test_events_are_projected_to_the_least_divergence():
    posterior = svrhmc.fit("y ~ .", table("bernoulli"), family="bernoulli", prior=SpikeAndSlab(2), draws=50, seed=1)
    reference = Reference(posterior.fitted(), posterior.inner(3))
    C, share = reference.X[:, [0, 1]], 1 / (1 + np.exp(-reference.t[0]))
    b = reference.onto([0, 1]).b[0]
    best = minimize(lambda b: (np.logaddexp(0, C @ b) - share * (C @ b)).sum(), np.zeros(2), tol=1e-12)
    assert np.allclose(b, best.x, atol=1e-4)
    assert not np.allclose(b, posterior.inner(3)[0][[0, 1]], atol=1e-3)


def test_gaussian_noise_takes_what_is_lost(posterior):
    if posterior.family != "gaussian":
        pytest.skip("of numbers")
    few = posterior.project(["x4"])
    assert few.names == ("Intercept", "x4", "log sigma")
    assert few["mean"][2] > posterior.mean[-1] + 0.5


def test_what_cannot_be_projected_is_refused(posterior):
    with pytest.raises(ValueError, match="columns must be a list of names"):
        posterior.project(["nobody"])
    with pytest.raises(ValueError, match="columns must be a list of names"):
        posterior.project("x0")
    counts = {"x": np.arange(40) % 5, "y": np.arange(40) % 7}
    with pytest.raises(ValueError, match="to be projected"):
        svrhmc.fit("y ~ x", counts, family="poisson", draws=50).project()
