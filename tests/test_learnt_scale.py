"""A prior whose scale is learnt with the coefficients, against quadrature over the scale."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_iris

from svrhmc import BayesianLogisticRegression, sample, targets
from svrhmc.diagnostics import standard_error
from svrhmc.estimators import BayesianRegression
from svrhmc.fitting import regress
from svrhmc.priors.terms import StandardNormal
from svrhmc.targets.priors import Horseshoe, LearntScale, Normal
from svrhmc.whitening.learnt import LearntScaleVariables

DF, SCALE, OTHERS = 4.0, 1.0, 0.04


def rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4))
    X[:, 0] = 1
    return X, X @ [0.5, 0.8, -0.4, 0.0] + rng.normal(size=40)


def by_quadrature(X, y, df=DF, scale=SCALE):
    """Means and sds of the coefficients, and the mean of log τ: Gaussian given τ, and τ on a grid."""
    phi = np.linspace(-9, 4, 2001)
    log_weight, means, seconds = np.empty(len(phi)), [], []
    for k, at in enumerate(phi):
        prior = np.diag([OTHERS] + [np.exp(-2 * at)] * 3)
        P, force = X.T @ X + prior, X.T @ y
        mean, covariance = np.linalg.solve(P, force), np.linalg.inv(P)
        log_weight[k] = (
            0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(P)[1] + force @ mean)
            - 0.5 * (df + 1) * np.log1p(np.exp(2 * at) / (df * scale**2))
            + at
        )
        means.append(mean)
        seconds.append(np.diag(covariance) + mean**2)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ np.array(means)
    return mean, np.sqrt(weight @ np.array(seconds) - mean**2), weight @ phi


@pytest.fixture(scope="module")
def drawn():
    prior = [Normal(OTHERS), *[LearntScale(scale=SCALE, df=DF)] * 3]
    return sample(targets.glm(*rows(), "gaussian", noise_variance=1.0, prior=prior), draws=1500, seed=1)


def z_scores(drawn, mean, sd, log_scale):
    phi = np.log(drawn.shrinkage.scales[..., :1])
    of_scale = (phi.mean() - log_scale) / standard_error(phi)
    return np.concatenate([(drawn.mean - mean) / drawn.errors[0], (drawn.sd - sd) / drawn.errors[1], of_scale])


def test_coefficients_and_their_scale_have_the_law_that_quadrature_finds(drawn):
    assert np.abs(z_scores(drawn, *by_quadrature(*rows()))).max() < 4.5
    assert drawn.certificate.verdict == "exact"
    wrong = by_quadrature(*rows(), scale=4 * SCALE)  # the negative control: another prior of τ
    assert np.abs(z_scores(drawn, *wrong)).max() > 4.5


def test_gradients_are_those_of_the_density_and_variables_go_back():
    X, y = load_iris(return_X_y=True)
    X = np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])
    model = targets.glm(X, y, "categorical", prior=[Normal(OTHERS), *[LearntScale()] * 4])
    space = LearntScaleVariables.of(model)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, space.dim))
    assert space.into(space.out(z)) == pytest.approx(z, abs=1e-8)
    for density, at in ((space, z), (model, space.out(z))):
        steps = 1e-5 * np.eye(space.dim)
        slope = np.stack([(density.energies(at + e)[0] - density.energies(at - e)[0]) / 2e-5 for e in steps], axis=1)
        assert slope == pytest.approx(density.energies(at)[1], rel=1e-5, abs=1e-5)


def test_no_class_is_special():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = targets.glm(X, np.arange(30) % 3, "categorical", prior=LearntScale())
    contrasts = np.kron(np.eye(2) + np.ones((2, 2)), np.eye(2))  # covariances of β₁ − β₀ and β₂ − β₀ for τ = 1
    assert np.linalg.inv(model.metric) == pytest.approx(contrasts, abs=1e-12)


def test_a_posterior_says_how_far_it_shrank(drawn):
    (note,) = (note for note in drawn.summary().notes if note.startswith("Shrinkage: "))
    scale, effective = drawn.shrinkage.scales.mean(axis=(0, 1))
    assert f"was learnt: {scale:.3g} (" in note
    assert f"count as {effective:.3g} in effect" in note
    assert 0 < effective < 3
    assert ((drawn.shrinkage.factors > 0) & (drawn.shrinkage.factors < 1)).all()


def test_estimators_take_a_learnt_prior_or_a_scale_that_can_be_searched():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 8)) * 10.0 ** np.arange(8)
    y = X[:, 0] + rng.normal(size=60) > 0
    learnt = BayesianLogisticRegression(prior="auto", draws=60).fit(X, y)
    assert learnt.posterior_.shrinkage is not None
    narrow = BayesianLogisticRegression(prior_scale=0.1, draws=60).fit(X, y)  # and no warning of its prior
    wide = BayesianLogisticRegression(draws=60).fit(X, y)
    assert np.abs(narrow.coef_ * X.std(axis=0)).max() < 0.3 < np.abs(wide.coef_ * X.std(axis=0)).max()
    usual = BayesianRegression(prior_scale=2.5).fit(X, X[:, 0])
    assert usual.posterior_.prior.said.startswith("given (prior_scale), on the scale of the data: ")
    assert "N(0, (2.5·sd(y)/sd(x))²)" in usual.posterior_.prior.said
    for settings, complaint in (
        ({"prior": "ridge"}, "prior must be None, 'auto', one of svrhmc.targets.priors .*; got 'ridge'"),
        ({"prior": "auto", "prior_scale": 1.0}, "prior must be None where prior_scale is given; got 'auto'"),
        ({"prior_scale": -1.0}, "prior_scale must be a positive number; got -1.0"),
    ):
        with pytest.raises(ValueError, match=complaint):
            BayesianLogisticRegression(**settings).fit(X, y)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_scale_counts_the_step_of_columns_of_two_values(kind):
    """A rare level has a small standard deviation, and a prior over that would be flat. 2.5 is the default."""
    rng = np.random.default_rng(6)
    X = np.column_stack([rng.normal(0, 10, 400), np.arange(400) < 4, 3.0 * (rng.random(400) < 0.5)])
    y = rng.random(400) < 0.5
    precision = [
        BayesianLogisticRegression(prior_scale=scale, draws=60).fit(kind(X), y).posterior_._target.prior_precision[1:]
        for scale in (0.5, 2.5, None)
    ]
    sd, step = X.std(axis=0), np.array([X[:, 0].std(), 1.0, 3.0])
    np.testing.assert_allclose(precision[0], (0.5 * sd / step) ** -2, rtol=1e-10)
    np.testing.assert_allclose(precision[1], precision[2], rtol=1e-10)


def test_what_a_learnt_scale_does_not_do_is_refused():
    X, y = rows()
    with pytest.raises(ValueError, match="the prior of an intercept must be one of a single number"):
        regress(X[:, 1:], y, prior={"Intercept": LearntScale()})
    with pytest.raises(ValueError, match="for all that have a joint prior"):
        targets.glm(X, y, "gaussian", prior=[LearntScale(), LearntScale(scale=2.0), Normal(), Horseshoe(1)])
    with pytest.raises(ValueError, match="one with a mode"):
        targets.glm(X, y, "gaussian", prior=LearntScale()).mode()
    with pytest.raises(ValueError, match="under a LearntScale"):
        sample(targets.glm(X, y, "gaussian", prior=LearntScale()), method="ubu")
    assert StandardNormal(2.0).scaled(2.0) == StandardNormal(4.0)
