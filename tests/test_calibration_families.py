"""Simulation-based calibration of every family (Talts et al. 2018).

If x ~ prior, y ~ p(y | x) and x¹ … x⁹⁹ are draws from the posterior of y, then the number of xᵏ below x is uniform on
0 … 99, for every coordinate. 200 data sets each; χ² over ten bins, at an error rate of 10⁻³ over all coordinates of all
families together. Families made wrong on purpose are found out by the same test. Draws are the ends of 99 independent
chains of split HMC, or those of `sample` where the law is known.
"""

import numpy as np
import pytest
from scipy import stats

from quadrature import NOISE_VARIANCE
from svrhmc import sample
from svrhmc.exact import SplitHMC
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Normal
from test_exact_families import FAMILIES, draw_labels

SETS, ROWS, DRAWS, BURN_IN, BINS = 200, 50, 99, 40, 10
SHARED = {"gaussian": 0.5, "student-t": 0.5, "negative-binomial": 1.0, "gamma": 0.5}  # sd of log σ, log s, log φ, log α
CLOSED = ("gaussian, known noise", "gaussian", "log-normal")


def times(noise):
    """Times e^{t + σε}, of which those beyond a random end are right-censored."""

    def draw(t, shared, rng):
        time, end = (
            np.exp(t + np.exp(shared[0] if len(shared) else 0.0) * noise(rng, len(t))),
            rng.uniform(0.2, 4, len(t)),
        )
        return families.censored(np.minimum(time, end), time <= end)

    return draw


def gumbel(rng, n):
    return np.log(rng.exponential(size=n))


# standard deviation and mean of the priors of shared parameters, and how labels are drawn at t
MORE = {
    "geometric": ([], lambda t, s, rng: rng.geometric(1 / (1 + np.exp(t))) - 1),
    "log-normal": ([(0.5, 0.0)], lambda t, s, rng: np.exp(t + np.exp(s[0]) * rng.standard_normal(len(t)))),
    "inverse-gaussian": ([(0.5, 0.5)], lambda t, s, rng: rng.wald(np.exp(t), np.exp(s[0]))),
    "exponential": ([], times(gumbel)),
    "weibull": ([(0.4, -0.3)], times(gumbel)),
    "log-logistic": ([(0.4, -0.5)], times(lambda rng, n: rng.logistic(size=n))),
    "log-normal, censored": ([(0.4, -0.3)], times(lambda rng, n: rng.normal(size=n))),
}
LOSSES = {**FAMILIES, **{name: name for name in MORE}, "log-normal, censored": families.log_normal(censored=True)}
COORDINATES = 2 * (len(FAMILIES) - 1) + len(SHARED) + 4 + sum(2 + len(priors) for priors, _ in MORE.values())
LEVEL = 1e-3 / COORDINATES


def simulate(family, rng):
    """Parameters from the prior, rows and labels from the model."""
    X = np.column_stack([np.ones(ROWS), rng.standard_normal(ROWS)])
    if family in MORE:
        return simulate_more(family, X, rng)
    if family == "categorical":
        x = rng.standard_normal(4)
        t = np.column_stack([np.zeros(ROWS), X @ x[:2], X @ x[2:]])
        y = (t + rng.gumbel(size=t.shape)).argmax(axis=1)
        return (x, X, y, {}) if len(set(y)) == 3 else simulate(family, rng)  # a choice by y alone: ranks stay uniform
    x = rng.standard_normal(2)
    t = X @ x
    if family == "binomial":
        trials = rng.integers(1, 6, ROWS)
        return x, X, rng.binomial(trials, 1 / (1 + np.exp(-t))), {"trials": trials}
    if family not in SHARED:
        return x, X, draw_labels(family, t, NOISE_VARIANCE**0.5, rng), {}
    x = np.append(x, SHARED[family] * rng.standard_normal())
    return x, X, draw_labels(family, t, np.exp(x[2]), rng), {"shared_prior": Normal(SHARED[family] ** -2)}


def simulate_more(family, X, rng):
    """The same for families of `MORE`, again where the labels are refused."""
    priors, draw = MORE[family]
    while True:
        x = rng.standard_normal(2)
        shared = np.array([mean + sd * rng.standard_normal() for sd, mean in priors])
        more = {"shared_prior": [Normal(sd**-2, mean=mean) for sd, mean in priors]} if priors else {}
        y = draw(X @ x, shared, rng)
        try:
            glm(X, y, LOSSES[family], **more)
        except ValueError:
            continue
        return np.append(x, shared), X, y, more


def ranks(family, sets=SETS, seed=0, wrong=lambda family: {}):
    """How many of 99 draws are below the truth: (sets, coordinates); `wrong` changes arguments of `glm`."""
    found = []
    for k in range(sets):
        x, X, y, more = simulate(family, np.random.default_rng([seed, k]))
        target = glm(X, y, LOSSES[family], **(more | wrong(family)))
        if family in CLOSED:
            draws = sample(target, DRAWS, chains=1, seed=k).trace.draws[0, :DRAWS]
        else:
            draws = SplitHMC().run(target, 1, chains=DRAWS, burn_in=BURN_IN, seed=k).draws[:, 0]
        assert draws.shape == (DRAWS, len(x))
        found.append((draws < x).sum(axis=0))
    return np.array(found)


def least_p(found):
    """The smallest p-value over coordinates."""
    return min(stats.chisquare(np.bincount(column * BINS // (DRAWS + 1), minlength=BINS)).pvalue for column in found.T)


@pytest.mark.slow
@pytest.mark.parametrize("family", LOSSES)
def test_ranks_are_uniform(family):
    assert least_p(ranks(family)) > LEVEL


def twice(family):
    """Every row counted twice."""
    return {"weights": np.full(ROWS, 2.0)}


def four_times(family):
    """Every row counted four times, which half as many data sets show."""
    return {"weights": np.full(ROWS, 4.0)}


def without_jacobian(family):
    """A prior that is meant for log φ taken for one of φ: N(0, s²) times 1/φ is N(−s², s²)."""
    return {"shared_prior": Normal(SHARED[family] ** -2, mean=-(SHARED[family] ** 2))}


def another_prior(family):
    """N(1, 1) where N(0, 1) is true."""
    return {"prior_precision": 1.0, "prior_mean": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "wrong"),
    [
        ("student-t", twice),
        ("binomial", twice),
        ("negative-binomial", without_jacobian),
        ("categorical", another_prior),
        *((family, four_times) for family in MORE),
    ],
)
def test_families_made_wrong_are_found_out(family, wrong):
    assert least_p(ranks(family, SETS // 2 if wrong is four_times else SETS, wrong=wrong)) < LEVEL
