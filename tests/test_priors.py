"""Priors by coordinate: normal, flat, Student-t and smoothed Laplace, exact in every sampler."""

import re

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

import svrhmc
from conftest import LIMIT
from svrhmc import gradients, sample
from svrhmc.dynamics import UBU, Underdamped
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Flat, Laplace, Normal, StudentT, settle
from svrhmc.whitening import whitened
from test_families import by_quadrature, far_off

MIXED = [StudentT(3.0, 0.4, location=0.2), Laplace(0.2)]


def data(n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    return X, rng.poisson(np.exp(X @ [0.7, -0.4])), rng.random(n) < 0.7


def test_densities_are_those_of_scipy():
    x = np.linspace(-5, 5, 41)[:, None]
    heavy = settle(StudentT(4.0, 0.7, location=0.3), 1).heavy
    wanted = stats.t(4.0, 0.3, 0.7).logpdf(x[:, 0])
    assert -heavy.value(x) + wanted.max() == pytest.approx(wanted + heavy.value(np.array([0.3])) * 0, abs=0.02)
    assert np.ptp(heavy.value(x) + wanted) < 1e-13
    assert np.ptp(heavy.value(x) + stats.t(4.0, 0.3, 0.8).logpdf(x[:, 0])) > 0.1
    smooth = settle(Laplace(0.7, location=0.3, smoothing=1e-9), 1).heavy
    assert np.ptp(smooth.value(x) + stats.laplace(0.3, 0.7).logpdf(x[:, 0])) < 1e-8
    rounder = settle(Laplace(0.7, location=0.3), 1).heavy
    assert 0.01 < np.ptp(rounder.value(x) + stats.laplace(0.3, 0.7).logpdf(x[:, 0])) <= 0.1 + 1e-12


def test_slopes_and_curvatures_are_derivatives_within_their_bounds():
    heavy = settle([*MIXED, Normal(2.0), Laplace(0.3, location=-1.0, smoothing=0.5)], 4).heavy
    rng = np.random.default_rng(0)
    least, most = heavy.bounds(4)
    for x in rng.normal(size=(200, 4)) * 2:
        step = 1e-6 * np.eye(4)
        slope = np.array([(heavy.value(x + h) - heavy.value(x - h)) / 2e-6 for h in step])
        assert heavy.slope(x) == pytest.approx(slope, abs=1e-7)
        bend = np.array([(heavy.slope(x + h) - heavy.slope(x - h))[j] / 2e-6 for j, h in enumerate(step)])
        assert heavy.curvature(x) == pytest.approx(bend, abs=1e-6)
        assert ((heavy.curvature(x) >= least - 1e-12) & (heavy.curvature(x) <= most + 1e-12)).all()
    assert heavy.strength(4) == pytest.approx(most)
    assert heavy.slope(np.full(4, 1e60)) == pytest.approx([0, 5, 0, 1 / 0.3], abs=1e-12)


def test_targets_hold_their_prior():
    X, y, _ = data()
    target = glm(X, y, "poisson", prior=MIXED)
    x = np.array([0.4, -0.3])
    numeric = np.array([(target.potential(x + h) - target.potential(x - h)) / 2e-6 for h in 1e-6 * np.eye(2)])
    assert target.gradient(x) == pytest.approx(numeric, rel=1e-6)
    bend = np.array([(target.gradient(x + h) - target.gradient(x - h)) / 2e-6 for h in 1e-6 * np.eye(2)])
    assert target.hessian(x) == pytest.approx(bend, rel=1e-6)
    assert target.hessian_product(x, x) == pytest.approx(target.hessian(x) @ x)
    assert target.component_gradients(x, np.arange(40)).mean(axis=0) == pytest.approx(target.gradient(x))
    assert not target.convex_components
    assert glm(X, y, "poisson", prior=Laplace()).convex_components
    law = glm(X, y.astype(float), families.gaussian(1.0), prior=[Flat(), Normal(4.0, mean=1.0)]).closed_form
    assert law.mean == pytest.approx(
        glm(X, y, families.gaussian(1.0), prior_precision=[0, 4.0], prior_mean=[0, 1.0]).mode()
    )
    assert glm(X, y.astype(float), families.gaussian(1.0), prior=Laplace()).closed_form is None
    assert target.identity() != glm(X, y, "poisson", prior=MIXED[::-1]).identity()


@pytest.mark.slow
@pytest.mark.parametrize(
    "storage", [np.asarray, pytest.param(scipy.sparse.csr_matrix, marks=pytest.mark.slow)], ids=["dense", "csr"]
)
def test_both_engines_walk_the_same_path(storage):
    X, y, _ = data()
    target = glm(storage(X), y, "poisson", prior=MIXED)
    spaces = {"plain": target, "dense": whitened(target), "diagonal": whitened(target, "diagonal")}
    cases = [
        ("plain", gradients.SVRG(3, 7)),
        ("plain", gradients.Full()),
        ("plain", gradients.ControlVariate(3, order=2)),
    ]
    if storage is np.asarray:
        cases += [(name, kind) for name in ("dense", "diagonal") for kind in (gradients.Minibatch(5), gradients.Full())]
    for name, gradient in cases:
        sampler = svrhmc.Sampler(Underdamped(0.1, 2.0, 0.01 if name == "plain" else 1.0), gradient)
        one, other = (sampler.run(spaces[name], 100, chains=2, engine=each).draws for each in ("reference", "numba"))
        assert np.abs(one - other).max() < 1e-11 * np.abs(one).max(), (name, gradient)


@pytest.mark.parametrize("sampler", [SplitHMC(), SubsampledMH()], ids=["split", "subsampled"])
def test_exact_samplers_are_exact(sampler):
    X, _, labels = data(25)
    wide = [StudentT(3.0, 0.8, location=0.2), Laplace(0.5, location=0.1, smoothing=1.0)]
    target = glm(X, labels, prior=wide)
    draws = sampler.run(target, 300, chains=200, seed=2).draws
    assert far_off(draws, *by_quadrature(target, 9.0, 361)) < LIMIT
    other = glm(X, labels, prior=[Normal(1 / 0.8**2, mean=0.2), Normal(1 / 0.5**2, mean=0.1)])
    assert far_off(draws, *by_quadrature(other)) > 2 * LIMIT


@pytest.mark.slow
def test_sample_decides():
    X, y, _ = data(200)
    target = glm(X, y, "poisson", prior=MIXED)
    mean, sd = by_quadrature(target)
    for method in (None, "anchored"):
        posterior = sample(target, method=method)
        assert posterior.certificate.verdict in ("exact", "certified", "local")
        assert (np.abs(posterior.mean - mean) < LIMIT * posterior.errors[0] + 0.02 * sd).all()
        assert posterior.sd == pytest.approx(sd, rel=0.03)


def test_a_mode_far_from_where_the_prior_bends_upwards():
    """Student-t priors far from the data: f bends downwards between them, and Newton's own steps fail."""
    X, _, _ = data(30)
    y = X @ [8.0, -9.0]
    target = glm(X, y, families.gaussian(1.0), prior=StudentT(1.0, 0.05))
    mode = target.mode()
    g = target.gradient(mode)
    assert np.linalg.eigvalsh(target.hessian(mode))[0] > 0
    assert g @ np.linalg.solve(target.hessian(mode), g) < 1e-14
    assert mode == pytest.approx([8.0, -9.0], abs=0.05)


def test_flat_where_the_rows_determine_it():
    X, _, labels = data()
    assert glm(X, labels, prior=Flat()).mode() == pytest.approx(glm(X, labels, prior_precision=0.0).mode())
    twice = np.column_stack([X, X[:, 1]])
    with pytest.raises(ValueError, match="linearly dependent; got 0 for columns 1, 2"):
        sample(glm(twice, labels, prior=Flat()))
    assert np.isfinite(glm(twice, labels, prior=[Flat(), Flat(), StudentT()]).mode()).all()
    separable = X[:, 1] > 0
    with pytest.raises(ValueError, match="the data are separable"):
        sample(glm(X, separable, prior=Flat()))
    assert np.isfinite(glm(X, separable, prior=[StudentT(), StudentT()]).mode()).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: glm(X, y, prior=[Flat()]), "prior must be one of svrhmc.targets.priors, or a list of 2, one for each column; got a list of 1."),
        (lambda X, y: glm(X, y, prior="normal"), "got a list of 6"),
        (lambda X, y: glm(X, y, prior=2.0), "prior must be one of svrhmc.targets.priors"),
        (lambda X, y: glm(X, y, prior=Flat(), prior_precision=2.0), "prior must be None where prior_precision or prior_mean is given"),
        (lambda X, y: glm(X, y, prior=Normal([1.0, -1.0])), "prior_precision must be a number not below 0; got -1.0."),
        (lambda X, y: glm(X, y, prior=Laplace(0.0)), "scale must be a positive number; got 0.0."),
        (lambda X, y: glm(X, y, prior=Laplace(1.0, smoothing=0.0)), "smoothing must be a positive number; got 0.0: without it the density has a kink"),
        (lambda X, y: glm(X, y, prior=StudentT(0.0)), "df must be a positive number; got 0.0."),
    ],
)  # fmt: skip
def test_bad_priors_are_refused(make, message):
    X, _, labels = data()
    with pytest.raises(ValueError, match="must be") as caught:
        make(X, labels)
    assert message in str(caught.value)


@pytest.mark.slow
def test_chains_with_momentum_agree_too():
    X, y, _ = data(25)
    target = glm(X, y, "poisson", prior=MIXED)
    sampler = svrhmc.Sampler(UBU(0.1, 2.0, 1.0), gradients.Full())
    run = sampler.run(whitened(target), 1100, chains=100, burn_in=100, thin=10)
    mean, sd = by_quadrature(target)
    by_chain = run.draws.mean(axis=1)
    assert (np.abs(by_chain.mean(axis=0) - mean) < LIMIT * by_chain.std(axis=0) / 10 + 0.01 * sd).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Normal(0, 2.5), r"the arguments are precision and mean, and N\(0, sd²\) is Normal.with_sd\(2.5\)"),
        (lambda: Normal(0.0, mean=-1), r"above 0 where a mean is given; got 0 with the mean -1"),
        (lambda: StudentT(3, 0, 2.5), r"about 0 it is StudentT\(3, scale=2.5\)"),
        (lambda: Laplace(0, 2.5), r"about 0 it is Laplace\(scale=2.5\)"),
    ],
)
def test_a_location_where_other_libraries_have_it_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
    assert Normal(0) == Normal(0, mean=0.0)
    assert Normal(0).shifted(3.0).of(0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("build", "named", "advice"),
    [
        (lambda: Normal(1.0, 2.5), Normal(1.0, mean=2.5), "with the standard deviation 2.5 it is Normal.with_sd(2.5, mean=1.0)"),
        (lambda: StudentT(3, 1, 2.5), StudentT(3, 1, location=2.5), "use StudentT(df=3, scale=1, location=2.5) for"),
        (lambda: Laplace(1, 2.5, 0.2), Laplace(1, location=2.5, smoothing=0.2), "use Laplace(scale=1, location=2.5, smoothing=0.2)"),
    ],
)  # fmt: skip
def test_a_location_that_is_not_named_is_deprecated(build, named, advice):
    with pytest.warns(DeprecationWarning, match=re.escape(advice)) as caught:
        assert build() == named
    assert caught[0].filename == __file__


def test_normal_priors_are_printed_by_mean_and_standard_deviation():
    assert Normal.with_sd(2.5, mean=1).in_words() == "N(1, 2.5²)"
    assert Normal(0).in_words() == "flat"
    assert Normal([1.0, 4.0]).in_words() == "Normal(precision=[1.0, 4.0], mean=0.0)"
