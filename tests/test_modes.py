"""What is known of the number of modes, and what a verdict makes of it."""

import numpy as np
import pytest

import svrhmc
from svrhmc import sample, targets
from svrhmc.posterior.certificate import Bias, Certificate
from svrhmc.targets import families, glm
from svrhmc.targets.priors import Flat, Laplace, Normal, StudentT

ONE_PREDICTOR = [
    (families.bernoulli(), [-1.0, 1.0]), (families.bernoulli("probit"), [-1.0, 1.0]),
    (families.binomial(), [0.0, 0.3, 1.0]), (families.poisson(), [0.0, 2.0, 40.0]), (families.gaussian(2.0), [0.7]),
]  # fmt: skip
SHARED = [
    (families.gaussian(), [-3.0, 0.7]), (families.negative_binomial(), [0.0, 2.0, 40.0]), (families.gamma(), [-2.0, 0.7]),
    (families.student_t(), [-3.0, 0.7]),
]  # fmt: skip


def test_losses_that_say_they_are_convex_are():
    t = np.linspace(-30, 30, 241)
    for loss, labels in ONE_PREDICTOR:
        assert loss.convex
        assert all((loss.curvature(t, np.full(t.shape, y)) >= 0).all() for y in labels)
    loss = families.categorical(4)
    points = np.random.default_rng(0).normal(size=(200, 3)) * 5
    for y in range(4):
        values = np.linalg.eigvalsh(loss.curvature(points, np.full(200, float(y))))
        assert loss.convex
        assert values.min() > -1e-12


def test_losses_that_say_they_are_convex_given_a_shared_parameter_are():
    t = np.stack(np.meshgrid(np.linspace(-12, 12, 97), np.linspace(-6, 6, 25)), axis=-1).reshape(-1, 2)
    for loss, labels in SHARED:
        least = min(loss.curvature(t, np.full(len(t), y))[:, 0, 0].min() for y in labels)
        assert (least >= 0) == loss.convex_given_shared  # Student's is the negative control
        assert not loss.convex


@pytest.mark.parametrize("prior", [Normal(), Laplace(0.5), StudentT()], ids=lambda prior: type(prior).__name__)
def test_a_log_concave_prior_and_loss_have_one_mode(prior):
    X = np.random.default_rng(1).normal(size=(30, 2))
    target = glm(X, X[:, 0] > 0.3 * np.cos(np.arange(30)), prior=prior)
    known = "its density is log-concave" if not isinstance(prior, StudentT) else None
    assert target.one_mode == known


def rows_of(family):
    rng = np.random.default_rng(2)
    X = np.column_stack([np.ones(60), rng.normal(size=(60, 2))])
    mean = np.exp(X @ [0.5, 0.3, -0.2])
    y = {
        "gaussian": X @ [1.0, 2.0, 3.0] + rng.normal(size=60), "student-t": X @ [1.0, 2.0, 3.0] + rng.normal(size=60),
        "negative-binomial": rng.poisson(mean * rng.gamma(2.0, 0.5, 60)), "gamma": rng.gamma(2.0, mean / 2),
    }  # fmt: skip
    return X, y[family]


@pytest.mark.parametrize("family", ["gaussian", "negative-binomial", "gamma", "student-t"])
def test_the_profile_of_a_shared_parameter_shows_one_mode(family):
    target = glm(*rows_of(family), family)
    if family == "student-t":
        assert target.one_mode is None
    else:
        assert target.one_mode.startswith(f"it is log-concave given {target.loss.shared_names[0]}, and the profile")
    heavy = glm(*rows_of(family), family, prior=StudentT())
    assert heavy.one_mode is None


def test_a_prior_far_from_the_data_gives_a_gaussian_two_modes_which_the_profile_shows():
    """y ~ N(8, 0.3²) in 50 rows and β ~ N(0, ½²): σ = 0.3 with β near 8, or σ = 8 with β near 0."""
    y = 8.0 + 0.3 * np.random.default_rng(3).normal(size=50)
    prior, shared = Normal.with_sd(0.5), Normal.with_sd(5.0)
    target = glm(np.ones((50, 1)), y, "gaussian", prior=prior, shared_prior=shared)
    tau = np.linspace(-2, 4, 2001)  # the profile by hand
    S, W, mean = ((y - y.mean()) ** 2).sum(), 50.0, y.mean()
    beta = W * np.exp(-2 * tau) * mean / (W * np.exp(-2 * tau) + 4.0)
    p = W * tau + 0.5 * np.exp(-2 * tau) * (S + W * (mean - beta) ** 2) + 2 * beta**2 + 0.02 * tau**2
    minima = ((p[1:-1] < p[:-2]) & (p[1:-1] < p[2:])).sum()
    assert minima == 2
    assert target.one_mode is None
    assert glm(np.ones((50, 1)), y, "gaussian").one_mode is not None  # under N(0, 1) for each there is one


def test_what_a_custom_target_declares():
    centres = np.array([[0.0], [2.0]])
    known = targets.custom(2, 1, lambda x, rows: x - centres[rows], convexity=1.0)
    assert known.one_mode == "its density is log-concave, by the convexity that was given"
    assert targets.custom(2, 1, lambda x, rows: x - centres[rows]).one_mode is None
    assert targets.gaussian(centres, [[1.0]]).one_mode == "it is Gaussian"


def certificate(verdict, draws):
    zero = np.zeros(1)
    return Certificate(verdict, 0.02, Bias(zero, zero, zero, zero), None, draws)


@pytest.mark.parametrize("verdict", ["exact", "certified", "undecided", "refuted", "unjudged"])
def test_a_verdict_where_other_modes_are_not_excluded(verdict):
    known = certificate(verdict, verdict).knowing("its density is log-concave", 1, "one start")
    assert (known.verdict, known.draws) == (verdict, verdict)
    open_ = certificate(verdict, verdict).knowing(None, 3, "64 starts at 1, 3, 10 and 30 times the spread")
    word = "local" if verdict in ("exact", "certified") else verdict
    assert (open_.verdict, open_.draws) == (word, word)
    told = "3 modes found from 64 starts at 1, 3, 10 and 30 times the spread, and nothing shows that there is no other"
    assert (told in str(open_), told in open_.brief()) == (word == "local", word == "local")
    open_.require_sound()


def test_sample_calls_what_may_have_other_modes_local():
    X, y = rows_of("student-t")
    found = sample(glm(X, y, "student-t"), draws=200)
    assert found.certificate.verdict == "local"
    assert "1 mode found from" in str(found.certificate)
    found = sample(glm(X, y > 0, prior=Flat()), draws=200)
    assert found.certificate.verdict == "exact"
    assert "the posterior has one mode, because its density is log-concave" in str(found.certificate)


def test_a_fit_of_a_family_with_a_shared_parameter_is_exact():
    X, y = rows_of("gamma")
    found = svrhmc.fit("y ~ a + b", {"y": y, "a": X[:, 1], "b": X[:, 2]}, family="gamma", draws=200)
    assert found.certificate.verdict == "exact"
