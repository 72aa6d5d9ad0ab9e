"""Densities without an upper bound: funnels are sampled, and told from improper posteriors."""

import numpy as np
import pytest

import svrhmc
from conftest import LIMIT
from svrhmc import targets
from svrhmc.density.unbounded import describe_funnel

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


class Centred:
    """x = (log τ, μ, θ), yⱼ ~ N(θⱼ, sⱼ²), θⱼ ~ N(μ, τ²), μ ~ N(0, 5²), and log τ has a density like τ^power at 0."""

    names = ("log tau", "mu", *(f"theta[{j}]" for j in range(len(EFFECTS))))

    def __init__(self, power):
        self.power = power

    def potentials(self, x):
        scale, mean, theta = np.exp(x[:, :1]), x[:, 1:2], x[:, 2:]
        slope = theta.shape[1] - self.power
        squares = ((theta - mean) / scale) ** 2 + ((EFFECTS - theta) / ERRORS) ** 2
        return squares.sum(axis=1) / 2 + slope * x[:, 0] + x[:, 1] ** 2 / 50

    def energies(self, x):
        scale, mean, theta = np.exp(x[:, :1]), x[:, 1:2], x[:, 2:]
        z = (theta - mean) / scale
        by_scale = -(z * z).sum(axis=1, keepdims=True) + theta.shape[1] - self.power
        by_theta = z / scale - (EFFECTS - theta) / ERRORS**2
        by_mean = -(z / scale).sum(axis=1, keepdims=True) + mean / 25
        return self.potentials(x), np.concatenate([by_scale, by_mean, by_theta], axis=1)

    def hessian(self, x):
        step = 1e-6 * np.r_[1.0, np.full(len(x) - 1, np.exp(x[0]))]
        ways = np.diag(step)
        differences = self.energies(x + ways)[1] - self.energies(x - ways)[1]
        H = differences / (2 * step[:, None])
        return (H + H.T) / 2


def deep(log_scale):
    """In the neck of the funnel."""
    return np.r_[log_scale, np.full(1 + len(EFFECTS), 0.25)]


@pytest.mark.parametrize("log_scale", [-5.0, -10.0, -15.0])
@pytest.mark.parametrize("power", [0.2, 1.0, 3.0])
def test_a_hierarchy_whose_effects_narrow_is_a_funnel(power, log_scale):
    why = describe_funnel(Centred(power), deep(log_scale), np.ones(10))
    assert "the density has no upper bound: it rises without end as log tau falls" in why
    assert "theta = mu + tau z" in why


@pytest.mark.parametrize("log_scale", [-5.0, -10.0, -15.0])
@pytest.mark.parametrize("power", [0.0, -1.0])
def test_where_the_scale_has_no_proper_prior_the_fall_is_no_funnel(power, log_scale):
    assert describe_funnel(Centred(power), deep(log_scale), np.ones(10)) == ""


def test_at_a_minimum_and_on_a_slope_that_ends_nothing_is_unbounded():
    class Quadratic(Centred):
        def potentials(self, x):
            return (x * x).sum(axis=1) / 2

        def energies(self, x):
            return self.potentials(x), x

        def hessian(self, x):
            return np.eye(len(x))

    target = Quadratic(1.0)
    assert describe_funnel(target, np.zeros(10), np.ones(10)) == ""
    assert describe_funnel(target, np.full(10, 3.0), np.ones(10)) == ""
    assert describe_funnel(Centred(1.0), np.r_[2.0, np.full(9, 4.0)], np.ones(10)) == ""


class Stalled:
    """With one more coordinate w, of the density e^{−20√(1 + w²)}, along which f falls at first and rises then."""

    names = (*Centred.names, "w")

    def __init__(self, power):
        self.funnel = Centred(power)

    def potentials(self, x):
        return self.funnel.potentials(x[:, :-1]) + 20 * np.sqrt(1 + x[:, -1] ** 2)

    def energies(self, x):
        slope = 20 * x[:, -1:] / np.sqrt(1 + x[:, -1:] ** 2)
        return self.potentials(x), np.concatenate([self.funnel.energies(x[:, :-1])[1], slope], axis=1)

    def hessian(self, x):
        H = np.diag(np.r_[np.zeros(len(x) - 1), 20 / (1 + x[-1] ** 2) ** 1.5])
        H[:-1, :-1] = self.funnel.hessian(x[:-1])
        return H


@pytest.mark.parametrize("w", [0.0, 1.0])
@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_search_that_rounding_ended_beside_the_funnel_is_told_all_the_same(power, w):
    why = describe_funnel(Stalled(power), np.r_[deep(-10.0), w], np.ones(11))
    assert ("it rises without end as log tau falls, in a funnel" in why) == (power > 0)


def moments_of_eight_schools():
    """Means and sds of (log τ, μ, θ): given τ, yⱼ ~ N(μ, sⱼ² + τ²) and all else is Gaussian; τ ~ half-Cauchy(0, 5)."""
    t = np.linspace(-14.0, 9.0, 20_001)[:, None]
    variance = ERRORS**2 + np.exp(2 * t)
    precision = (1 / variance).sum(axis=1) + 1 / 25
    mean = (EFFECTS / variance).sum(axis=1) / precision
    log = -0.5 * np.log(variance).sum(axis=1) - 0.5 * (EFFECTS**2 / variance).sum(axis=1) + 0.5 * mean**2 * precision
    log += -0.5 * np.log(precision) + t[:, 0] - np.log1p(np.exp(2 * t[:, 0]) / 25)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    share = ERRORS**2 / variance  # of μ in E θⱼ
    first = np.c_[t, mean, share * mean[:, None] + (1 - share) * EFFECTS]
    second = np.c_[np.zeros_like(t), 1 / precision, share * np.exp(2 * t) + share**2 / precision[:, None]]
    expected = weight @ first
    return expected, np.sqrt(weight @ (second + (first - expected) ** 2))


def eight_schools():
    jnp = pytest.importorskip("jax").numpy

    def log_likelihood(params, row):
        return -0.5 * ((row["y"] - params["theta"][row["school"]]) / row["error"]) ** 2

    def log_prior(params):
        scale = jnp.exp(params["log tau"])
        z = (params["theta"] - params["mu"]) / scale
        effects = -0.5 * (z @ z) - len(EFFECTS) * params["log tau"]
        return effects - 0.5 * (params["mu"] / 5) ** 2 - jnp.log1p((scale / 5) ** 2) + params["log tau"]

    rows = {"y": EFFECTS, "error": ERRORS, "school": np.arange(len(EFFECTS))}
    return targets.model(log_likelihood, log_prior, rows, {"log tau": 0.0, "mu": 0.0, "theta": np.zeros(len(EFFECTS))})


@pytest.mark.slow
def test_eight_schools_with_centred_effects_agree_with_quadrature():
    """The funnel is narrower than every step, which is said with the cure, although the moments are right. A negative
    control: the same draws do not agree where τ has another prior.
    """
    with pytest.warns(svrhmc.VerdictWarning):
        posterior = svrhmc.sample(eight_schools(), seed=0)
    assert posterior.certificate.verdict == "undecided"
    assert "no upper bound: it rises without end as log tau falls" in str(posterior.certificate)
    assert "write the model in other parameters, such as standardised effects" in str(posterior.certificate)
    mean, sd = moments_of_eight_schools()
    errors = posterior.errors
    assert (np.abs((posterior.mean - mean) / errors[0]) < LIMIT).all()
    assert (np.abs((posterior.sd - sd) / errors[1]) < LIMIT).all()
    assert abs(posterior.mean[0] - mean[0] - 1.0) / errors[0][0] > LIMIT


@pytest.mark.slow
def test_of_a_regression_with_centred_group_effects_the_mode_beside_the_funnel_is_found():
    numpyro = pytest.importorskip("numpyro")
    normal, half = numpyro.distributions.Normal, numpyro.distributions.HalfNormal
    rng = np.random.default_rng(3)
    group, x = rng.integers(0, 6, 60), rng.normal(size=60)
    y = 1 + 0.5 * x + 0.7 * rng.normal(size=6)[group] + rng.normal(size=60)

    def model(group, x, y=None):
        mean, slope = (numpyro.sample(name, normal(0.0, 10.0)) for name in ("mean", "slope"))
        tau, sigma = (numpyro.sample(name, half(2.0)) for name in ("tau", "sigma"))
        with numpyro.plate("groups", 6):
            effect = numpyro.sample("effect", normal(mean, tau))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", normal(effect[group] + slope * x, sigma), obs=y)

    target = targets.from_numpyro(model, group, x, y=y)
    assert len(target.modes()) == 1
    assert np.abs(target.gradients(target.modes())).max() < 1e-6
    assert np.linalg.eigvalsh(target.hessian(target.mode())).min() > 0
