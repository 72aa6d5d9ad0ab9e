"""Gaussian mixed models by the density of their scales: that density against a dense multivariate normal one, draws
against quadrature and split HMC, and what a run keeps.
"""

import numpy as np
import pytest
from scipy import stats

from svrhmc.density.gaussian_scales import GaussianScales, refusal
from svrhmc.targets import Group, families, glm, priors

RNG = np.random.default_rng(4)
N = 36
X = np.stack([np.ones(N), RNG.normal(size=N)], axis=1)
SLOPE = np.stack([np.ones(N), RNG.normal(size=N)], axis=1)
INNER = np.arange(N) // 3


def single(levels, columns=None, name="g", lkj=1.0):
    return Group(RNG.permutation(np.arange(N) % levels), columns, name=name, prior=priors.HalfNormal(1.5), lkj=lkj)


DESIGNS = {
    "single": [single(6)],
    "two levels": [single(2)],
    "one row a level": [Group(np.arange(N), name="g")],
    "nested": [Group(INNER, name="a:b"), Group(INNER // 3, name="a")],
    "crossed": [single(7), single(5, name="h"), single(3, name="k")],
    "slopes": [single(5, SLOPE, lkj=2.0)],
    "slopes beside": [single(9, name="h"), single(4, SLOPE)],
    "slopes both": [single(9, SLOPE, name="h"), single(4, SLOPE)],
    "a slope seen once": [Group(np.minimum(np.arange(N), 30), SLOPE, name="g")],
}
SETTINGS = {
    "plain": {"prior_precision": 0.3},
    "weights and offset": {
        "prior_precision": 0.3, "weights": RNG.uniform(0.5, 2.0, N), "offset": RNG.normal(size=N),
    },
    "flat": {"prior_precision": 0.0},
    "known noise": {"prior_precision": 0.2, "loss": families.gaussian(0.7)},
}  # fmt: skip


def model_of(design, prior_precision=0.3, loss="gaussian", y=None, **settings):
    groups = DESIGNS[design]
    if y is None:
        y = X @ [2.0, 0.5] + sum(np.sin(3.0 * g.index) for g in groups) + 0.5 * np.random.default_rng(1).normal(size=N)
    return glm(X, y, loss, prior_precision=prior_precision, groups=groups, **settings)


def dense_log_density(model, phi):
    """log p(φ | y) by the covariance of y, W⁻¹σ² + ZΣZᵀ + X P⁻¹Xᵀ; with flat priors by the density of y less what X
    explains.
    """
    conditional = model.conditional
    known, t = conditional.loss.known_noise, model.theta_dim
    sigma = np.exp(phi[t]) if known is None else known
    weights = np.ones(model.n) if conditional.weights is None else conditional.weights
    y = conditional.y - (0.0 if conditional.offset is None else conditional.offset)
    V = np.diag(sigma**2 / weights)
    for term in model.terms:
        M = term.covariance.factor(phi[None, term.theta])[0]
        Z = term.group.design().toarray().reshape(model.n, term.count, term.width)
        V += np.einsum("nla,ab,mlb->nm", Z, M @ M.T, Z)
    own = X[: model.n]
    total = -sum(term.covariance.prior(phi[None, term.theta])[0][0] for term in model.terms)
    precision = conditional.prior_precision[: model.columns]
    if precision.max() > 0:
        total += stats.multivariate_normal(np.zeros(model.n), V + own @ np.diag(1 / precision) @ own.T).logpdf(y)
    else:
        inside = own.T @ np.linalg.solve(V, own)
        rest = y - own @ np.linalg.solve(inside, own.T @ np.linalg.solve(V, y))
        total += -0.5 * (np.linalg.slogdet(V)[1] + np.linalg.slogdet(inside)[1] + rest @ np.linalg.solve(V, y))
    if known is None:
        total += (weights.sum() - model.n) * -np.log(sigma)  # a weight w is that of w rows
        total -= 0.5 * conditional.prior_precision[-1] * (phi[t] - conditional.prior_mean[-1]) ** 2
    return total


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("design", DESIGNS)
def test_the_density_of_the_scales_is_that_of_a_dense_normal_law(design, settings):
    model = model_of(design, **SETTINGS[settings])
    assert refusal(model) is None
    density = GaussianScales(model)
    phi = np.random.default_rng(2).normal(size=(6, density.dim)) * 0.7
    phi[4, model.terms[0].theta.start] = -9.0
    phi[5, model.terms[0].theta.start] = 6.0
    want = np.array([dense_log_density(model, one) for one in phi])
    got = density.log_density(phi)
    assert got - got[0] == pytest.approx(want - want[0], rel=1e-9, abs=1e-9)
