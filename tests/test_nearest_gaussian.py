"""The Gaussian nearest to a posterior: known ones are found, and models whose mode is not where they lie are sampled."""

import math

import numpy as np
import pytest

import svrhmc
from svrhmc import targets
from svrhmc.core.deadline import Budget
from svrhmc.whitening import DenseWhitening, whitening
from svrhmc.whitening.nearest_gaussian import _Law, find_nearest_gaussian

jax = pytest.importorskip("jax")
jnp = jax.numpy

PRECISION = np.array([[4.0, 1.5], [1.5, 1.0]])


def unlimited(target):
    return Budget(target.n, math.inf, math.inf)


def gaussian():
    at = jnp.array([3.0, -1.0])
    return targets.model(
        lambda p, row: 0.0 * row, lambda p: -0.5 * (p - at) @ PRECISION @ (p - at), np.ones(1), np.zeros(2)
    )


def groups():
    """Eight means of which nothing but y ~ N(σ zⱼ, 1) is known, all y near 0: the density is highest where σ is large."""
    y = np.array([0.1, -0.3, 0.2, 0.0, -0.1, 0.4, -0.2, 0.1])

    def log_likelihood(params, row):
        return -0.5 * (row["y"] - jnp.exp(params["log_scale"]) * params["z"][row["j"]]) ** 2

    def log_prior(params):
        scale = jnp.exp(params["log_scale"])
        return -0.5 * params["z"] @ params["z"] - 0.5 * (scale / 8) ** 2 + params["log_scale"]

    return targets.model(
        log_likelihood, log_prior, {"y": y, "j": np.arange(8)}, {"log_scale": 0.0, "z": np.zeros(8)}
    ), y


def moments_of_groups(y):
    """Mean and sd of log σ, z being integrated out: y ~ N(0, 1 + σ²)."""
    t = np.linspace(-12.0, 5.0, 20_001)
    variance = 1 + np.exp(2 * t)
    log = -0.5 * (np.exp(t) / 8) ** 2 + t - 0.5 * (y @ y) / variance - 0.5 * len(y) * np.log(variance)
    weight = np.exp(log - log.max())
    mean = weight @ t / weight.sum()
    return mean, math.sqrt(weight @ (t - mean) ** 2 / weight.sum())


def test_a_gaussian_posterior_is_found_from_a_poor_map():
    target = gaussian()
    poor = DenseWhitening(np.array([-5.0, 4.0]), np.diag([0.05, 3.0]))
    found = find_nearest_gaussian(target, poor, unlimited(target), 0.0)
    np.testing.assert_allclose(found.centre, [3.0, -1.0], atol=0.05)
    np.testing.assert_allclose(np.linalg.inv(found.factor @ found.factor.T), PRECISION, rtol=0.1)
    assert find_nearest_gaussian(target, poor, Budget(target.n, math.inf, 100.0), 0.0) is poor  # no budget to look
    good = whitening(target)
    assert find_nearest_gaussian(target, good, unlimited(target), 0.0) is good


def test_the_law_is_that_of_least_divergence():
    """f = eˣ − ax: E f′ = 0 and E f″ = 1/s² have the solution s² = 1/a, μ = log a − 1/(2a)."""
    a = 2.0
    target = targets.model(lambda p, row: a * p - jnp.exp(p) + 0.0 * row, lambda p: 0.0 * p, np.ones(1), 0.0)
    law = _Law(target, np.array([4.0]), np.array([[0.2]]), unlimited(target))
    for k in range(300):
        law.step(256, k, 0.3 if k < 100 else 0.3 / (1 + (k - 100) / 5))
    assert law.centre[0] == pytest.approx(math.log(a) - 1 / (2 * a), abs=0.02)
    assert law.factor[0, 0] == pytest.approx(a**-0.5, rel=0.02)
    mode = math.log(a)
    assert abs(law.centre[0] - mode) > 0.2  # which is not the law at the mode


def test_effects_of_unknown_scale_are_sampled():
    target, y = groups()
    mean, sd = moments_of_groups(y)
    assert target.mode()[0] > mean + 2 * sd  # a law around the mode is no help
    posterior = svrhmc.sample(target, seed=3)
    assert posterior.certificate.verdict == "local"
    assert abs(posterior.laplace.mean[0] - mean) < sd  # where the variables have their centre
    assert abs(posterior.mean[0] - mean) < 0.15 * sd
    assert posterior.sd[0] == pytest.approx(sd, rel=0.12)


@pytest.mark.slow
def test_eight_schools_with_centred_effects():
    """θⱼ ~ N(μ, τ²), yⱼ ~ N(θⱼ, sⱼ²), against quadrature over μ and log τ with θ integrated out."""
    y, s = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def normal(x, at=0.0, sd=1.0):
        return -0.5 * ((x - at) / sd) ** 2 - jnp.log(sd)

    def log_prior(p):
        return normal(p["mu"], 0, 5.0) + normal(p["lt"]) + normal(p["theta"], p["mu"], jnp.exp(p["lt"])).sum()

    target = targets.model(
        lambda p, row: normal(row[0], p["theta"][row[2]], row[1]), log_prior, (y, s, np.arange(8)),
        {"mu": 0.0, "lt": 0.0, "theta": np.zeros(8)},
    )  # fmt: skip
    posterior = svrhmc.sample(target, seed=0)
    assert posterior.certificate.verdict == "local"
    where = [target.names.index(name) for name in ("lt", "mu")]
    np.testing.assert_allclose(posterior.mean[where], [-0.0758, 4.5764], atol=0.15)
    np.testing.assert_allclose(posterior.sd[where], [0.9439, 3.1898], rtol=0.07)
