"""Gaussian mixed models by the density of their scales: that density against a dense multivariate normal one, draws
against quadrature and split HMC, and what a run keeps.
"""

import re

import numpy as np
import pytest
from scipy import sparse, stats

from conftest import LIMIT
from svrhmc import checkpoint, design
from svrhmc.core.errors import NoResidualsError
from svrhmc.core.randomness import Stream
from svrhmc.density import cholesky, gaussian_scales, mixed
from svrhmc.density.cholesky import Factors, Pattern
from svrhmc.density.gaussian_scales import GaussianScales, refusal
from svrhmc.exact import marginal
from svrhmc.posterior import usual_settings
from svrhmc.sampling import approach, groups, joint, scales
from svrhmc.sampling.correction import error_of_mean
from svrhmc.sampling.drawing import Drawing
from svrhmc.sampling.run import find_answer
from svrhmc.targets import Group, families, glm, priors
from svrhmc.whitening.groups import log_marginal, mode_given

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
    "one row a level but one": [Group(np.minimum(np.arange(N), N - 2), name="g")],
    "nested": [Group(INNER, name="a:b"), Group(INNER // 3, name="a")],
    "crossed": [single(7), single(5, name="h"), single(3, name="k")],
    "slopes": [single(5, SLOPE, lkj=2.0)],
    "slopes beside": [single(9, name="h"), single(4, SLOPE)],
    "slopes both": [single(9, SLOPE, name="h"), single(4, SLOPE)],
    "a slope that is often 0": [
        single(9, SLOPE[:, 1:] * (np.arange(N) % 3 == 0)[:, None], name="h"), single(4), single(3, SLOPE, name="k"),
    ],
    "a slope seen once": [Group(np.minimum(np.arange(N), 30), SLOPE, name="g")],
}  # fmt: skip
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


@pytest.mark.parametrize("design", ["nested", "crossed", "slopes beside", "slopes both", "a slope that is often 0"])
def test_a_sparse_factor_gives_the_same_density(design, monkeypatch):
    """As the one of levels by the thousand, which are eliminated before what they have in common."""
    monkeypatch.setattr(cholesky, "_FEW", 0)
    monkeypatch.setattr(cholesky, "_WORTH", np.inf)
    monkeypatch.setattr(cholesky, "_SLOWER", 1.0)
    density = GaussianScales(model := model_of(design))
    assert density.pattern.head > 0
    phi = np.random.default_rng(2).normal(size=(6, density.dim)) * 0.7
    phi[5, model.terms[0].theta.start] = 6.0
    want = np.array([dense_log_density(model, one) for one in phi])
    got = density.log_density(phi)
    assert got - got[0] == pytest.approx(want - want[0], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("few", [0, 256])
def test_a_model_without_columns_has_its_density(few, monkeypatch):
    monkeypatch.setattr(cholesky, "_FEW", few)
    monkeypatch.setattr(cholesky, "_WORTH", np.inf)
    y = np.sin(np.arange(N))
    model = glm(np.zeros((N, 0)), y, families.gaussian(0.7), groups=DESIGNS["nested"])
    phi = np.array([[0.3, -0.2], [-1.0, 0.1]])
    want = []
    for one in phi:
        spread = [np.exp(2 * t) * (g.index[:, None] == g.index) for t, g in zip(one, DESIGNS["nested"], strict=True)]
        prior = sum(term.covariance.prior(one[None, term.theta])[0][0] for term in model.terms)
        want.append(stats.multivariate_normal(np.zeros(N), sum(spread) + 0.7 * np.eye(N)).logpdf(y) - prior)
    assert np.diff(GaussianScales(model).log_density(phi)) == pytest.approx(np.diff(want), rel=1e-9)


def a_matrix(size=60, border=2, seed=0):
    """A sparse positive definite one with full first rows."""
    rng = np.random.default_rng(seed)
    A = np.where(rng.random((size, size)) < 0.04, rng.normal(size=(size, size)), 0.0)
    A[:border] = rng.normal(size=(border, size))
    A += A.T
    return A + np.diag(np.abs(A).sum(axis=1) + 0.1)


def pattern_of(K, border):
    return Pattern.of(len(K), np.arange(border), *np.nonzero(np.tril(K)))


def numbers_of(pattern, K):
    at = np.nonzero(np.tril(K))
    numbers = np.zeros(pattern.numbers)
    numbers[pattern.places(*at)] = K[at]
    return numbers


@pytest.mark.parametrize("slower", [1.0, 16.0, 1e9])
@pytest.mark.parametrize("border", [0, 2])
def test_a_factor_by_its_pattern_is_one_of_the_matrix(border, slower, monkeypatch):
    monkeypatch.setattr(cholesky, "_FEW", 0)
    monkeypatch.setattr(cholesky, "_WORTH", np.inf)
    monkeypatch.setattr(cholesky, "_SLOWER", slower)
    K = a_matrix(border=border)
    pattern = pattern_of(K, border)
    assert (pattern.head > 0) == (slower < 1e9)
    factor = pattern.factor(numbers_of(pattern, K))
    assert factor.log_root == pytest.approx(0.5 * np.linalg.slogdet(K)[1], rel=1e-12)
    force = np.arange(len(K)) - 20.0
    assert factor.solve(force) == pytest.approx(np.linalg.solve(K, force), rel=1e-10, abs=1e-12)
    W = np.array([factor.displace(one) for one in np.eye(len(K))]).T
    assert pytest.approx(np.linalg.inv(K), rel=1e-10, abs=1e-12) == W @ W.T
    K[30, 30] = -1.0
    assert np.isnan(pattern.factor(numbers_of(pattern, K)).log_root)


def test_factors_follow_the_places_of_entries(monkeypatch):
    monkeypatch.setattr(cholesky, "_FEW", 0)
    factors = Factors(np.arange(2), 50)
    for seed in (0, 0, 1):
        K = a_matrix(seed=seed) * (1 + seed)
        assert factors(sparse.csr_matrix(K)).log_root == pytest.approx(0.5 * np.linalg.slogdet(K)[1], rel=1e-12)
    K[30, 30] = -1.0
    assert factors(sparse.csr_matrix(K)) is None
    assert factors.apply
    few = Factors(np.arange(2), 1)
    assert few(sparse.csr_matrix(a_matrix())) is None
    assert not few.apply


@pytest.mark.parametrize("family", ["bernoulli", "gaussian"])
def test_modes_by_sparse_factors_are_those_of_dense_ones(family, monkeypatch):
    y = np.sin(np.arange(N)) if family == "gaussian" else np.arange(N) % 3 == 0
    model = glm(X, y, family, prior_precision=0.3, groups=DESIGNS["crossed"])
    theta, w = np.zeros(model.theta_dim), np.zeros(model.inner_dim)
    want = mode_given(model, theta, w)
    value, _ = log_marginal(model, theta, want)
    monkeypatch.setattr(mixed, "DENSE", 0)
    monkeypatch.setattr(cholesky, "_FEW", 0)
    assert mode_given(model, theta, w) == pytest.approx(want, abs=1e-6)
    assert model.factors.apply
    assert log_marginal(model, theta, want)[0] == pytest.approx(value, rel=1e-9)


def test_multiplications_of_a_factor_are_counted():
    """Of a dense one 0.2 n³; of a head of one neighbour each 0.6 · 16 for each of its columns."""
    assert Pattern.full(10).multiplications == pytest.approx(200)
    assert Pattern.full(10).entries == 45
    chain = Pattern(np.arange(5), np.arange(5), np.arange(1, 5, dtype=np.uint32))
    assert chain.multiplications == pytest.approx(4 * 9.6 + 0.2)
    assert chain.entries == 4


def test_a_line_that_is_left_out_of_a_factor_is_seen(monkeypatch):
    """The negative control."""
    monkeypatch.setattr(cholesky, "_FEW", 0)
    K = a_matrix()
    pattern = pattern_of(K, 2)
    begin, entry, column = pattern.by_row
    assert pattern.head > 30
    monkeypatch.setitem(pattern.__dict__, "by_row", (np.maximum(begin - 1, 0), entry[1:], column[1:]))
    assert abs(pattern.factor(numbers_of(pattern, K)).log_root - 0.5 * np.linalg.slogdet(K)[1]) > 1e-6


@pytest.mark.parametrize("levels", [4000, 40_000])
def test_levels_in_levels_take_numbers_in_proportion(levels):
    """Two levels of a in each of b, ten of b in each of c: b and c go one after another, the coefficients are left."""
    inner = np.repeat(np.arange(levels), 2)
    groups = [Group(inner // by, name=name) for by, name in ((1, "a"), (2, "b"), (20, "c"))]
    model = glm(np.ones((2 * levels, 1)), np.sin(np.arange(2.0 * levels)), "gaussian", groups=groups)
    assert refusal(model) is None
    density = GaussianScales(model)
    assert density.pattern.core == 1
    assert density.pattern.numbers < 4 * density.core


def test_levels_that_are_left_out_are_seen(monkeypatch):
    """The negative control: with N = I for every level, in the determinant and in what the levels explain."""
    model = model_of("single")
    phi = np.array([[0.3, -0.2], [-1.0, 0.1]])
    want = np.diff([dense_log_density(model, one) for one in phi])[0]
    assert np.diff(GaussianScales(model).log_density(phi))[0] == pytest.approx(want, rel=1e-9)
    plain = gaussian_scales._inverse_factor
    monkeypatch.setattr(
        gaussian_scales, "_inverse_factor", lambda Y, within: plain(Y, within) if within else plain(0 * Y, within)
    )
    assert abs(np.diff(GaussianScales(model).log_density(phi))[0] - want) > 0.1


@pytest.mark.parametrize(("log_tau", "log_sigma"), [(-40.0, 0.0), (12.0, 0.0), (0.0, -14.0), (14.0, -3.0)])
def test_digits_stay_where_a_ratio_of_scales_is_extreme(log_tau, log_sigma):
    """Against 60 digits, for one term and an intercept that is flat."""
    mpmath = pytest.importorskip("mpmath")
    index, y = np.repeat(np.arange(4), 3), np.array([3.1, 2.9, 3.3, 1.0, 1.2, 0.7, 2.0, 2.4, 2.1, 4.0, 4.4, 3.9])
    model = glm(np.ones((12, 1)), y, prior_precision=0.0, family="gaussian", groups=[Group(index, name="g")])
    phi = np.array([[log_tau, log_sigma], [0.0, 0.0]])
    want = []
    with mpmath.workdps(60):
        for a, b in phi:
            tau2, sigma2 = mpmath.exp(2 * mpmath.mpf(float(a))), mpmath.exp(2 * mpmath.mpf(float(b)))
            V = mpmath.matrix(12, 12)
            for i in range(12):
                for j in range(12):
                    V[i, j] = tau2 * int(index[i] == index[j]) + sigma2 * int(i == j)
            inverse, ones = V**-1, mpmath.matrix([1] * 12)
            inside = (ones.T * inverse * ones)[0]
            mean = (ones.T * inverse * mpmath.matrix(y.tolist()))[0] / inside
            e = mpmath.matrix([mpmath.mpf(float(one)) - mean for one in y])
            want.append(-(mpmath.log(mpmath.det(V)) + mpmath.log(inside) + (e.T * inverse * e)[0]) / 2)
        likelihood = float(want[0] - want[1])
    term, conditional = model.terms[0], model.conditional
    prior = -np.diff(term.covariance.prior(phi[::-1, :1])[0])[0]
    prior -= 0.5 * conditional.prior_precision[-1] * -np.diff((phi[:, 1] - conditional.prior_mean[-1]) ** 2)[0]
    got = -np.diff(GaussianScales(model).log_density(phi))[0]
    assert got == pytest.approx(likelihood + prior, rel=1e-10)


@pytest.mark.parametrize("design", ["single", "slopes", "crossed", "a slope seen once", "slopes both"])
def test_draws_given_the_scales_have_the_moments_of_the_normal_law(design):
    """Mean by a dense solution; the covariance by what unit vectors in the place of normal numbers are mapped to."""
    model = model_of(design, **SETTINGS["weights and offset"])
    density = GaussianScales(model)
    phi = np.full((1, density.dim), -0.4)
    given, theta = density.conditional_law(phi), phi[0, : model.theta_dim]
    conditional, count = model.conditional, model.effects.stop
    A = model.matrix if isinstance(model.matrix, np.ndarray) else model.matrix.toarray()
    H = (A.T * conditional.weights) @ A * np.exp(0.8)
    H[:2, :2] += 0.3 * np.eye(2)
    for term in model.terms:
        M = term.covariance.factor(theta[None, term.theta])[0]
        H[term.effects, term.effects] += np.kron(np.eye(term.count), np.linalg.inv(M @ M.T))
    ahead = A.T @ (conditional.weights * (conditional.y - conditional.offset)) * np.exp(0.8)
    mean = density.draw(given, 0, np.zeros(model.inner_dim))[:count]
    assert mean == pytest.approx(np.linalg.solve(H, ahead), rel=1e-9, abs=1e-10)
    root = np.array([density.draw(given, 0, unit)[:count] - mean for unit in np.eye(model.inner_dim)[:count]])
    assert root.T @ root == pytest.approx(np.linalg.inv(H), rel=1e-8, abs=1e-10)


# Draws


def answer_of(model, draws=300, seed=0, **settings):
    return find_answer(model, None, **{**usual_settings(), "draws": draws, "seed": seed, **settings})[0]


class OneScale:
    """Levels that do not differ, σ known: moments of log τ, β and effects on a line."""

    index = np.repeat(np.arange(6), 5)
    y = np.random.default_rng(11).normal(size=30)

    @classmethod
    def model(cls):
        group = Group(cls.index, name="g", prior=priors.HalfNormal(1.0))
        return glm(np.ones((30, 1)), cls.y, families.gaussian(1.0), prior_precision=0.2, groups=[group])

    @classmethod
    def scores(cls, answer):
        A, total = np.concatenate([np.ones((30, 1)), np.eye(6)[cls.index]], axis=1), []
        for phi in np.linspace(-13, 2.0, 3000):
            V = np.linalg.inv(A.T @ A + np.diag([0.2, *[np.exp(-2 * phi)] * 6]))
            mean = V @ A.T @ cls.y
            log_p = 0.5 * (A.T @ cls.y) @ mean + 0.5 * np.linalg.slogdet(V)[1] - 6 * phi
            log_p += stats.halfnorm.logpdf(np.exp(phi)) + phi
            total.append(
                [log_p, mean[0], phi, *mean[1:], *(mean**2 + np.diag(V))[:1], phi**2, *(mean**2 + np.diag(V))[1:]]
            )
        values = np.array(total)
        p = np.exp(values[:, 0] - values[:, 0].max())
        want = p @ values[:, 1:] / p.sum()
        x = answer.trace.draws
        own = np.concatenate([x[..., :1], np.log(x[..., 1:]), answer.group_effects.draws], axis=2)
        both = np.concatenate([own, own**2], axis=2)
        return (both.mean(axis=(0, 1)) - want) / error_of_mean(both)


def test_where_levels_do_not_differ_draws_reach_small_scales_as_often_as_they_should():
    answer = answer_of(OneScale.model(), 1000, seed=3)
    assert answer.method == "marginal-mh"
    assert answer.certificate.verdict == "exact"
    assert np.abs(OneScale.scores(answer)).max() < LIMIT


def test_without_the_density_of_the_proposals_they_do_not(monkeypatch):
    """The negative control: ω without t(s)."""
    plain = marginal.log_weights

    def without(space, s, freedom, log_density=None):
        return plain(space, s, freedom, log_density) - 0.5 * (freedom + 1) * np.log1p((s * s).sum(axis=1) / freedom)

    monkeypatch.setattr(marginal, "log_weights", without)
    assert np.abs(OneScale.scores(answer_of(OneScale.model(), 1000, seed=3))).max() > LIMIT


def worth_of_proposals(seed):
    """Of fresh proposals: the share that counts, where slopes and a second term hardly vary by level."""
    rng = np.random.default_rng(seed)
    index, other, x = rng.integers(0, 12, 240), rng.integers(0, 6, 240), rng.normal(size=240)
    y = 0.5 * x + 0.7 * rng.normal(size=12)[index] + rng.normal(size=240)
    Z = np.column_stack([np.ones(240), x])
    few = glm(Z, y, "gaussian", groups=[Group(index, Z, name="g"), Group(other, name="h")])
    density, start = GaussianScales(few), np.zeros(few.theta_dim)
    space = scales.find_scales(few, density, start, seed, 4).space
    s = marginal.student_draws(
        Stream(seed, np.zeros(1, np.int64)), np.arange(1000), density.dim, marginal.MarginalMH().freedom
    )[0]
    weights = np.exp((log := marginal.log_weights(space, s, marginal.MarginalMH().freedom)) - log.max())
    return weights.sum() ** 2 / (weights**2).sum() / len(weights)


def test_scales_that_may_be_0_beside_a_correlation_have_proposals_that_count():
    assert min(worth_of_proposals(seed) for seed in range(3)) > 0.4


def test_where_the_search_for_a_mode_goes_astray_walkers_find_them(monkeypatch):
    monkeypatch.setattr(scales, "_FAR", 25.0)
    assert min(worth_of_proposals(seed) for seed in range(3)) > 0.4


def test_by_the_first_weights_alone_they_do_not(monkeypatch):
    monkeypatch.setattr(scales, "_FAR", 25.0)
    monkeypatch.setattr(scales, "_LOST", 0.0)
    assert min(worth_of_proposals(seed) for seed in range(3)) < 0.05


class Normal:
    """N((0, 2, 4), diag(1, 9, 1/4)), with the first two correlated."""

    dim, mean = 3, np.array([0.0, 2.0, 4.0])
    covariance = np.array([[1.0, 2.4, 0.0], [2.4, 9.0, 0.0], [0.0, 0.0, 0.25]])

    def log_density(self, phi):
        away = phi - self.mean
        return -0.5 * np.einsum("sa,ab,sb->s", away, np.linalg.inv(self.covariance), away)


def scores_of_walks(law):
    """Of second moments where walkers are that began as independent draws of the law."""
    squares = []
    for seed in range(100):
        starts = np.random.default_rng(seed).multivariate_normal(law.mean, law.covariance, 48)
        places, values = scales._walk(law, starts, law.log_density(starts), Stream(seed, np.zeros(1, np.int64)))
        assert values == pytest.approx(law.log_density(places))
        squares.append(((places - law.mean) ** 2).mean(axis=0))
    error = np.std(squares, axis=0, ddof=1) / np.sqrt(len(squares))
    return (np.mean(squares, axis=0) - np.diag(law.covariance)) / error


def test_walkers_keep_the_law_they_go_by():
    assert np.abs(scores_of_walks(Normal())).max() < LIMIT


def test_without_the_jacobian_of_their_moves_they_do_not(monkeypatch):
    monkeypatch.setattr(Normal, "dim", 1)
    assert np.abs(scores_of_walks(Normal())).max() > LIMIT


@pytest.mark.parametrize("design", ["crossed", "slopes beside", "nested"])
def test_it_agrees_with_split_hmc(design):
    model = model_of(design)
    ours, other = answer_of(model, 600, seed=1), answer_of(model, 600, seed=2, method="split-hmc")
    assert (ours.method, other.method) == ("marginal-mh", "split-hmc")

    def moments(answer):
        x = np.concatenate([answer.trace.draws, answer.group_effects.draws], axis=2)
        x = np.concatenate([x, x**2], axis=2)
        return x.mean(axis=(0, 1)), error_of_mean(x)

    (a, da), (b, db) = moments(ours), moments(other)
    assert np.abs((a - b) / np.hypot(da, db)).max() < LIMIT


@pytest.fixture(scope="module")
def model():
    return model_of("slopes beside")


@pytest.fixture(scope="module")
def answer(model):
    return answer_of(model, 200, seed=5, threads=1)


@pytest.mark.parametrize("large", [False, True])
def test_a_seed_has_its_draws_whatever_the_threads_and_the_other_chains(model, answer, large, monkeypatch):
    monkeypatch.setattr(marginal, "_MUCH", 0 if large else 1 << 60)
    again, two = answer_of(model, 200, seed=5, threads=2), answer_of(model, 100, seed=5, chains=2)
    assert (again.trace.draws == answer.trace.draws).all()
    assert (again.group_effects.draws == answer.group_effects.draws).all()
    count = min(two.trace.draws.shape[1], answer.trace.draws.shape[1])
    assert (two.trace.draws[:, :count] == answer.trace.draws[:2, :count]).all()


@pytest.mark.parametrize("after", [2, 3, 5])
def test_a_run_cut_short_goes_on_to_the_same_draws(model, answer, after, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    record, count = Drawing._record, []

    def counted(drawing):
        record(drawing)
        count.append(1)
        if len(count) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Drawing, "_record", counted)
    with pytest.raises(KeyboardInterrupt):
        answer_of(model, 200, seed=5, threads=1, checkpoint=tmp_path / "cut")
    monkeypatch.setattr(scales, "find_scales", lambda *_: pytest.fail("the scales were searched for again"))
    again = answer_of(model, 200, seed=5, threads=1, checkpoint=tmp_path / "cut")
    assert (again.trace.draws == answer.trace.draws).all()
    assert (again.group_effects.draws == answer.group_effects.draws).all()


def test_a_budget_of_passes_ends_it(model):
    cut = answer_of(model, 10**5, seed=5, budget_passes=3000.0)
    assert not cut.complete
    assert np.isfinite(cut.mean).all()


def test_what_is_not_gaussian_keeps_split_hmc_and_says_why():
    heavy = glm(X, X[:, 1], "gaussian", prior=priors.StudentT(4.0, 1.0), groups=DESIGNS["single"])
    counts = glm(X, np.arange(N) % 3, "poisson", groups=DESIGNS["single"])
    assert "not normal" in refusal(heavy)
    assert "not Gaussian" in refusal(counts)
    with pytest.raises(ValueError, match="not Gaussian"):
        answer_of(counts, method="marginal-mh")
    with pytest.raises(ValueError, match="with groups"):
        answer_of(glm(X, np.arange(N) % 2, "bernoulli"), method="marginal-mh")


def test_where_proposals_of_scales_do_not_count_split_hmc_takes_over_unless_they_were_asked_for(model, monkeypatch):
    usual = answer_of(model, 50, method="split-hmc")
    monkeypatch.setattr(scales, "_HOPELESS", 2.0)
    answer = answer_of(model, 50)
    assert answer.method == "split-hmc"
    assert np.array_equal(answer.trace.draws, usual.trace.draws)
    assert answer_of(model, 50, method="marginal-mh").method == "marginal-mh"


def test_a_response_that_groups_fit_exactly_is_refused():
    """As where it is a function of the factor; noise of 1e-7 of it is some, and its size is found."""
    index, effects = np.arange(N) % 6, np.sin(np.arange(6.0))
    groups = [Group(index, name="g", prior=priors.HalfNormal(1.5))]
    with pytest.raises(NoResidualsError, match="labels that the groups and columns fit exactly"):
        answer_of(glm(X, effects[index] + X[:, 1], "gaussian", prior_precision=0.3, groups=groups), 20)
    noise = 1e-7 * np.random.default_rng(1).normal(size=N)
    answer = answer_of(glm(X, effects[index] + X[:, 1] + noise, "gaussian", prior_precision=0.3, groups=groups), 200)
    assert answer.method == "marginal-mh"
    assert answer.mean[2] == pytest.approx(np.log(1e-7), abs=5 * N**-0.5)
    assert answer.mean[1] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("away", [1e3, 1e6])
def test_slopes_of_a_column_far_from_0_are_effects_of_levels(away):
    """x v with x near a: τ a is the standard deviation of an intercept. A search that steps to where all digits of Q
    are lost takes what it finds there for the mode.
    """
    index, x = np.arange(N) % 6, np.random.default_rng(3).normal(size=N)
    y = X @ [2.0, 0.5] + np.sin(3.0 * index) + 0.5 * np.random.default_rng(1).normal(size=N)
    modes = []
    for columns, scale in ((None, 1.0), ((x + away)[:, None], away)):
        groups = [Group(index, columns, name="g", prior=priors.HalfNormal(1.5 / scale))]
        model = glm(X, y, "gaussian", prior_precision=0.3, groups=groups)
        modes.append(np.add(scales._find_mode(GaussianScales(model), np.array([-0.5, 0.0])), [np.log(scale), 0.0]))
    assert modes[1] == pytest.approx(modes[0], abs=0.03 if away < 1e6 else 0.01)


def test_where_no_digit_is_left_there_is_no_density():
    """σ = e⁻⁴⁰ beside residuals of 0.5: f is 10³⁴ and more, and rounding of it was as large."""
    density = GaussianScales(model_of("crossed"))
    value = density.log_density(np.array([[0.3, -0.2, 0.1, -0.5], [25.0, 25.0, 25.0, -40.0]]))
    assert np.isfinite(value[0])
    assert value[1] == -np.inf


def test_a_large_core_keeps_split_hmc(monkeypatch):
    monkeypatch.setattr(gaussian_scales, "MOST_CORE", 8)
    assert "are left beside" in refusal(model_of("crossed"))
    monkeypatch.setattr(gaussian_scales, "MOST_CORE", 2500)
    monkeypatch.setattr(gaussian_scales, "MOST_PAIRS", 100)
    assert "pairs of effects" in refusal(model_of("crossed"))


def test_laplace_s_approximation_has_a_spread_of_every_parameter():
    answer, _ = find_answer(model_of("single"), None, **{**usual_settings(), "draws": 200})
    assert answer.method == "marginal-mh"
    ratio = answer.laplace.sd / answer.sd
    assert (ratio > 0.4).all()  # that of log σ was 0
    assert (ratio < 2.5).all()


@pytest.mark.parametrize("method", ["marginal-mh", "split-hmc"])
def test_a_person_who_waits_is_told_beforehand_how_long_it_takes(method, monkeypatch):
    """As whoever asks for hours of crossed effects is; of short runs nothing is said."""
    notes = []
    for module in (approach, groups):
        monkeypatch.setattr(module, "set_progress_note", notes.append)
    answer_of(model_of("single"), draws=20, method=method)
    assert notes == [""]
    monkeypatch.setattr(approach, "_LONG", 0.0)
    answer_of(model_of("single"), draws=20, method=method)
    assert re.fullmatch(r"about \d+ s and \d\.\d GB in all; budget_seconds=… or fewer draws end it sooner", notes[1])
    assert notes[2:] == [""]


def test_a_forecast_is_made_of_what_its_pieces_take(monkeypatch):
    """A pass and a Hessian of 1 s each, the pattern found in 1 s, a multiplication in 1 ms: 1000 draws of 0.4, and 60
    and 150 before them, of two leapfrogs.
    """
    monkeypatch.setattr(joint, "multiplication_seconds", lambda: 1e-3)
    monkeypatch.setattr(joint, "_timed", lambda work: (work(), 1.0))
    monkeypatch.setattr(mixed, "DENSE", 0)
    monkeypatch.setattr(cholesky, "_FEW", 0)
    monkeypatch.setattr(gaussian_scales, "MOST_CORE", 2)
    model = model_of("crossed")
    assert refusal(model) is not None
    forecast = groups.forecast_of(model)
    pattern = model.factors.pattern(model.with_prior(model.curvature(np.zeros(model.inner_dim)).hessian, np.zeros(3)))
    mapping = 1e-3 * 8 * (9 * pattern.entries + 400 * 15)
    draws = 1000 / 4 / 0.4
    seconds = 2 * (150 + 60 + draws) * (1 + mapping) + 4 * draws * 15 * 2.0
    seconds += (12 * 4 + 3) + 12 * 4 * 1e-3 * pattern.multiplications + 3
    assert forecast.seconds == pytest.approx(seconds)
    rows = 4 * 12 * model.conditional.rows.entries * N
    assert forecast.bytes == pytest.approx(8 * 2.5 * 2500 * model.dim + rows + 48 * pattern.core**2)
    assert not forecast.least
    model.factors._largest_core = 2
    model.factors._last = None
    assert groups.forecast_of(model).least  # no factor is made
    assert str(approach.Forecast(500.0, 2.84e9)) == "about 8 minutes and 2.8 GB"
    assert str(approach.Forecast(500.0, 2.84e9, True)) == "at least 8 minutes and 2.8 GB"


@pytest.mark.parametrize("method", ["marginal-mh", "split-hmc"])
def test_what_does_not_fit_into_memory_is_refused_beforehand(method, monkeypatch):
    monkeypatch.setattr(approach, "free_memory", lambda: 1e4)
    monkeypatch.setattr(scales, "find_scales", pytest.fail)
    monkeypatch.setattr(joint, "first_centre", pytest.fail)
    with pytest.raises(ValueError, match=r"such that a run fits into memory, 1e-05 GB; got 50 of 6 effects, about"):
        answer_of(model_of("single"), draws=50, method=method)


def test_a_preview_says_what_a_long_fit_takes(monkeypatch):
    table = {"y": np.sin(np.arange(20.0)), "g": [f"level {k % 4}" for k in range(20)]}
    assert "A fit takes" not in str(design("y ~ (1 | g)", table))
    monkeypatch.setattr(approach, "_LONG", 0.0)
    assert re.search(
        r"A fit takes about \d+ s and 0\.0 GB on cores that do nothing else\.", str(design("y ~ (1 | g)", table))
    )
