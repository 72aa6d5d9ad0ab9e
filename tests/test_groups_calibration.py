"""Mixed models by simulation: where parameters are drawn from the prior and data given them, the rank of each among draws
of its posterior is uniform (Talts et al. 2018). A law without the Jacobian of its variables fails.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from conftest import LIMIT
from group_faults import jacobian_of_scales_twice, without_jacobian
from svrhmc.posterior import usual_settings
from svrhmc.sampling.run import find_answer
from svrhmc.targets import Group, glm, priors

KEPT, BINS = 39, 10  # draws of a posterior that are kept, far apart; ranks 0 to 39 in ten bins
CHANCE = 1e-4  # of a false alarm for one parameter


class Simulated:
    """One data set from the prior: what was drawn, in the order of a posterior's parameters, and its model."""

    sds, levels, rows, prior_sd = (1.0,), (8,), 6, 1.0
    shared_prior = None

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        index = [np.repeat(np.arange(self.levels[0]), self.rows)]
        n = len(index[0])
        index += [rng.permutation(np.arange(n) % count) for count in self.levels[1:]]
        x = rng.normal(size=n)
        X = np.stack([np.ones(n), x], axis=1)
        beta = self.prior_sd * rng.normal(size=2)
        t, stated, groups = X @ beta, [], []
        for k, own in enumerate(index):
            covariance, known = self.covariance(rng)
            Z = X[:, : len(covariance)].copy()
            effects = rng.multivariate_normal(np.zeros(len(covariance)), covariance, size=own.max() + 1)
            t = t + (Z * effects[own]).sum(axis=1)
            stated += known
            groups.append(Group(own, Z, name=f"g{k}", prior=[priors.HalfNormal(s) for s in self.sds]))
        y, shared = self.labels(t, rng)
        self.truth = np.array([*beta, *shared, *stated])
        self.model = glm(
            X, y, self.family, prior_precision=self.prior_sd**-2, groups=groups, shared_prior=self.shared_prior
        )

    def covariance(self, rng):
        tau = np.abs(rng.normal(size=len(self.sds))) * self.sds
        if len(tau) == 1:
            return np.diag(tau**2), [*tau]
        rho = rng.uniform(-1, 1)  # LKJ with η = 1
        return np.outer(tau, tau) * np.array([[1, rho], [rho, 1]]), [*tau, rho]

    def rank(self, seed):
        settings = {**usual_settings(), "draws": 100, "seed": seed, "threads": 1}
        x = find_answer(self.model, None, **settings)[0].trace.draws
        flat = x.reshape(-1, x.shape[2])
        some = flat[np.linspace(0, len(flat) - 1, KEPT).astype(int)]
        return (some < self.truth).sum(axis=0)


class Logit(Simulated):
    family = "bernoulli"

    def labels(self, t, rng):
        return (rng.random(len(t)) < 1 / (1 + np.exp(-t))).astype(float), []


class Poisson(Simulated):
    family, sds, levels, rows, prior_sd = "poisson", (0.7,), (6, 5), 5, 0.5

    def labels(self, t, rng):
        return rng.poisson(np.exp(t)).astype(float), []


class Slopes(Simulated):
    family, sds = "gaussian", (1.0, 0.7)
    shared_prior = priors.Normal(4.0)

    def labels(self, t, rng):
        log_sigma = 0.5 * rng.normal()
        return t + np.exp(log_sigma) * rng.normal(size=len(t)), [log_sigma]


def chances(kind, count):
    """Of ranks as uneven as these, for each parameter."""
    ranks = np.array([kind(seed).rank(seed) for seed in range(count)])
    bins = ranks * BINS // (KEPT + 1)
    counts = np.array([np.bincount(column, minlength=BINS) for column in bins.T])
    return stats.chisquare(counts, axis=1).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Logit, Slopes, Poisson])
def test_ranks_of_what_was_drawn_are_uniform(kind):
    assert chances(kind, 200).min() > CHANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fault", "count"),
    [(Logit, without_jacobian, 60), (Slopes, jacobian_of_scales_twice, 120)],
)
def test_with_a_part_of_the_law_of_the_scales_left_out_they_are_not(kind, fault, count, monkeypatch):
    fault(monkeypatch)
    assert chances(kind, count).min() < CHANCE


def benchmark():
    """`benchmarks/groups_references.py`, as a module."""
    place = Path(__file__).parents[1] / "benchmarks" / "groups_references.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_groups", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "eight schools", "two levels only, logit", "one row a level, Poisson", "scale 0 truly, logit",
        "huge scale, Gaussian", "negative binomial", "ordinal", "Student-t", "slopes, logit", "crossed, Poisson",
    ],
)  # fmt: skip
def test_moments_are_those_of_quadrature_or_of_nuts(name):
    """Of three seeds: each |z| < 4.5, and together within what chance and the reference allow."""
    made = benchmark()
    known = json.loads(made.STORED.read_text(encoding="utf-8"))[name]
    found = made.compared(made.MODELS[name](), known, 3)
    assert found["z"] < LIMIT
    assert found["mean"] < 0.1
    assert found["sd"] < 0.1
