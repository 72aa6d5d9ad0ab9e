"""Linear regression with unknown noise: moments by brute-force integration, Student's marginals, draws of the law."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.sparse import csr_matrix

import svrhmc
from svrhmc.core.randomness import Stream
from svrhmc.targets import glm
from svrhmc.targets.priors import Flat, Normal, StudentT

rng = np.random.default_rng(0)
X = np.column_stack([np.ones(30), rng.normal(size=30)])
Y = X @ [1.0, -2.0] + 0.7 * rng.normal(size=30)


def integrated(target):
    """Mean and covariance of (β, τ) by a product rule in three dimensions about the mode."""
    mode = target.mode()
    root = np.linalg.cholesky(np.linalg.inv(target.modal_hessian))
    z = np.linspace(-12, 12, 121)
    grid = np.stack(np.meshgrid(z, z, z, indexing="ij"), axis=-1).reshape(-1, 3)
    points = mode + grid @ root.T
    logs = np.concatenate([-target.potentials(part) for part in np.array_split(points, 60)])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ points
    return mean, ((points - mean) * weights[:, None]).T @ (points - mean)


@pytest.mark.ordinary(lambda options: "shared_prior" in options or "weights" in options)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prior": Normal([4.0, 0.5], mean=[1.0, -1.0]), "shared_prior": Normal(2.0, mean=0.3)},
        {"prior": Flat()},
        {"weights": rng.integers(0, 4, 30), "offset": rng.normal(size=30)},
    ],
    ids=["default", "informative", "flat", "weights and offset"],
)
def test_moments_are_those_of_integration(options):
    target = glm(X, Y, "gaussian", **options)
    mean, covariance = integrated(target)
    law = target.exact_law
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((law.mean - mean) / sd, 0, atol=1e-8)
    np.testing.assert_allclose(law.covariance / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=1e-8)
    wrong = glm(X, Y + 0.3, "gaussian", **options).exact_law  # the control
    assert np.abs((wrong.mean - mean) / sd).max() > 0.1


def test_conjugate_marginals_are_students():
    """By the textbook formulas: Vₙ = (XᵀX + Λ)⁻¹, aₙ = a + n/2, bₙ = b + ½(yᵀy + m₀ᵀΛm₀ − mₙᵀVₙ⁻¹mₙ)."""
    precision, m0, a, b = np.array([2.0, 0.5]), np.array([0.3, -0.1]), 1.5, 2.0
    target = svrhmc.targets.conjugate(X, Y, precision, m0, a, b)
    V = np.linalg.inv(X.T @ X + np.diag(precision))
    m = V @ (X.T @ Y + precision * m0)
    an, bn = a + 15, b + 0.5 * (Y @ Y + m0 @ (precision * m0) - m @ np.linalg.solve(V, m))
    law = target.exact_law
    np.testing.assert_allclose(law.mean[:2], m, rtol=1e-10)
    np.testing.assert_allclose(law.covariance[:2, :2], V * bn / (an - 1), rtol=1e-9)
    from scipy.special import digamma, polygamma

    assert law.mean[2] == pytest.approx(0.5 * (np.log(bn) - digamma(an)), rel=1e-10)
    assert law.covariance[2, 2] == pytest.approx(polygamma(1, an) / 4, rel=1e-9)
    x = law.draw(Stream(3, np.arange(50)), 2000).reshape(-1, 3)
    for j in range(2):
        student = stats.t(2 * an, m[j], np.sqrt(V[j, j] * bn / an))
        assert stats.kstest(x[:, j], student.cdf).pvalue > 1e-4
        assert (
            stats.kstest(x[:, j], stats.norm(m[j], student.std()).cdf).pvalue
            < stats.kstest(x[:, j], student.cdf).pvalue
        )
    assert stats.kstest(np.exp(2 * x[:, 2]), stats.invgamma(an, scale=bn).cdf).pvalue > 1e-4
    assert stats.kstest(np.exp(2 * x[:, 2]), stats.invgamma(an + 1, scale=bn).cdf).pvalue < 1e-6


def test_conjugate_with_few_rows_has_heavy_tails():
    target = svrhmc.targets.conjugate([[1.0], [2.0]], [1.0, 3.0], shape=0.5, rate=0.5)
    V, an = 1 / 6, 1.5
    m = 7 * V
    bn = 0.5 + 0.5 * (10 - m * m / V)
    x = target.exact_law.draw(Stream(1, np.arange(10)), 5000)[..., 0].ravel()
    assert stats.kstest(x, stats.t(2 * an, m, np.sqrt(V * bn / an)).cdf).pvalue > 1e-4
    assert stats.kstest(x, stats.norm(m, np.sqrt(V * bn / an)).cdf).pvalue < 1e-6


def test_draws_have_the_moments_and_the_seed_fixes_them():
    law = glm(X, Y, "gaussian").exact_law
    x = law.draw(Stream(5, np.arange(40)), 5000)
    flat = x.reshape(-1, 3)
    z = (flat.mean(axis=0) - law.mean) / np.sqrt(np.diag(law.covariance) / len(flat))
    assert np.abs(z).max() < 4.5
    spread = np.cov(flat.T) / np.sqrt(np.outer(np.diag(law.covariance), np.diag(law.covariance)))
    correlation = law.covariance / np.sqrt(np.outer(np.diag(law.covariance), np.diag(law.covariance)))
    np.testing.assert_allclose(spread, correlation, atol=4.5 * np.sqrt(3 / len(flat)))
    assert np.array_equal(law.draw(Stream(5, np.array([7])), 5000)[0], x[7])


def test_sample_takes_it_and_every_sampler_agrees():
    target = glm(X, Y, "gaussian")
    posterior = svrhmc.sample(target, 2000)
    assert (posterior.method, posterior.certificate.verdict) == ("closed-form", "exact")
    assert "Gaussian" in posterior.why
    other = svrhmc.sample(target, 2000, method="split-hmc", seed=1)
    error, sd_error = other.errors
    assert np.abs((other.mean - posterior.mean) / error).max() < 4.5
    assert np.abs((other.sd - posterior.sd) / sd_error).max() < 4.5
    heavy = glm(X, Y, "gaussian", prior=StudentT(3.0, 1.0))
    assert heavy.exact_law is None


@pytest.mark.parametrize("kind", ["float32", "sparse", "units"])
def test_other_rows_and_units(kind):
    law = glm(X, Y, "gaussian").exact_law
    if kind == "sparse":
        found = glm(csr_matrix(X), Y, "gaussian").exact_law
        np.testing.assert_allclose(found.mean, law.mean, rtol=1e-10)
    elif kind == "float32":
        rows = X.astype(np.float32)
        found, same = glm(rows, Y, "gaussian").exact_law, glm(rows.astype(float), Y, "gaussian").exact_law
        np.testing.assert_allclose(found.mean, same.mean, rtol=1e-6)
        np.testing.assert_allclose(found.covariance, same.covariance, rtol=1e-5, atol=1e-9)
    else:  # flat priors: coefficients follow the units of X and y, however large
        scale, unit = np.array([1e6, 1e-6]), 1e8
        plain = glm(X, Y, "gaussian", prior=Flat(), shared_prior=Flat()).exact_law
        found = glm(X * scale, Y * unit, "gaussian", prior=Flat(), shared_prior=Flat()).exact_law
        np.testing.assert_allclose(found.mean[:2] * scale / unit, plain.mean[:2], rtol=1e-8)
        assert found.mean[2] == pytest.approx(plain.mean[2] + np.log(unit), rel=1e-9)
        assert found.covariance[2, 2] == pytest.approx(plain.covariance[2, 2], rel=1e-7)


@pytest.mark.slow
def test_one_dimension_against_quad():
    y = np.array([1.0, 2.0, 4.0])
    target = glm(np.ones((3, 1)), y, "gaussian")

    def density(tau):
        at = [np.exp(-float(target.potentials(np.array([[b, tau]]))[0])) for b in b_grid]
        return np.trapezoid(at, b_grid)

    b_grid = np.linspace(-15, 15, 2001)
    total = quad(density, -6, 8, limit=200)[0]
    mean = quad(lambda tau: tau * density(tau), -6, 8, limit=200)[0] / total
    assert target.exact_law.mean[1] == pytest.approx(mean, abs=1e-5)


def test_what_is_refused():
    with pytest.raises(ValueError, match="shape"):
        svrhmc.targets.conjugate(X, Y, shape=0.0)
    with pytest.raises(ValueError, match="prior_precision"):
        svrhmc.targets.conjugate(X, Y, 0.0)
    twice = np.column_stack([X, X[:, 1]])
    with pytest.raises(ValueError, match="depend"):
        svrhmc.sample(glm(twice, Y, "gaussian", prior=Flat()))


def test_fewer_rows_than_coefficients_against_the_law_of_y():
    """y ~ N(0, σ²I + AΛ⁻¹Aᵀ) given σ: moments of log σ and of β by sums over a fine grid, with no fit in between."""
    rng = np.random.default_rng(0)
    A, y, last, home = rng.normal(size=(5, 9)), rng.normal(size=5), 0.5, -0.3
    precision = rng.uniform(0.1, 2.0, 9)
    target = glm(A, y, "gaussian", prior=[Normal(p) for p in precision], shared_prior=Normal(last, mean=home))
    taus = np.linspace(home - 14, home + 12, 6001)
    logs, betas = [], []
    for tau in taus:
        C = np.exp(2 * tau) * np.eye(5) + (A / precision) @ A.T
        solved = np.linalg.solve(C, y)
        logs.append(-0.5 * (y @ solved + np.linalg.slogdet(C)[1] + last * (tau - home) ** 2))
        betas.append(A.T @ solved / precision)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    by_hand = np.append(weights @ np.array(betas), weights @ taus)
    np.testing.assert_allclose(target.exact_law.mean, by_hand, rtol=1e-7, atol=1e-9)
    sd = np.sqrt(weights @ (taus - weights @ taus) ** 2)
    np.testing.assert_allclose(np.sqrt(target.exact_law.covariance[-1, -1]), sd, rtol=1e-7)
