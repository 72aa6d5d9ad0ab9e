"""Leave-one-out cross-validation, by row and by group: against closed forms, quadrature, and ArviZ."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import svrhmc
from conftest import LIMIT
from svrhmc.fitting import regress
from svrhmc.results import integrated, loo, moment_matching
from svrhmc.results.integrated import GroupedRows
from svrhmc.results.psis import fit_pareto, leave_out
from svrhmc.targets import Group, glm
from svrhmc.targets.families import binomial, gaussian, negative_binomial, student_t
from svrhmc.targets.priors import HalfNormal, Normal

LEVELS, EACH = 10, 6
RNG = np.random.default_rng(5)
INDEX = np.repeat(np.arange(LEVELS), EACH)
X = np.column_stack([np.ones(LEVELS * EACH), RNG.normal(size=LEVELS * EACH)])
NOISE, SCALE, BETA_SD = 0.6, 0.9, 1.0
Y = X @ [0.5, 1.0] + RNG.normal(0, 0.8, LEVELS)[INDEX] + RNG.normal(0, NOISE, len(X))


@pytest.fixture(scope="module")
def gaussian_posterior():
    """Known noise, one unknown scale: its leave-one-out densities are integrals over that scale."""
    target = glm(
        X, Y, gaussian(NOISE**2), prior=Normal(BETA_SD**-2), groups=[Group(INDEX, prior=HalfNormal(SCALE), name="g")]
    )  # fmt: skip
    return svrhmc.sample(target, draws=2500, seed=1)


def log_evidence(rows, y=Y):
    """log ∫ N(y; 0, β's part + τ²ZZᵀ + σ²I) p(τ) dτ of some rows, by the trapezoid rule."""
    tau = np.linspace(1e-4, 6 * SCALE, 400)
    prior = stats.halfnorm(scale=SCALE).logpdf(tau)
    A, same = X[rows], INDEX[rows][:, None] == INDEX[rows]
    values = [
        stats.multivariate_normal(cov=BETA_SD**2 * A @ A.T + t**2 * same + NOISE**2 * np.eye(len(A))).logpdf(y[rows])
        for t in tau
    ]
    return logsumexp(np.array(values) + prior) + np.log(tau[1] - tau[0])


def standard_errors(posterior, log_likelihood):
    """Of log p(y | the others) = −log mean e^{−ℓ}, by the effective draws of the scales and coefficients."""
    inverse = np.exp(-(log_likelihood - log_likelihood.min(axis=0)))
    return inverse.std(axis=0) / inverse.mean(axis=0) / np.sqrt(posterior.ess.min())


def test_rows_of_a_gaussian_model_have_their_exact_densities(gaussian_posterior):
    every, some = np.arange(len(Y)), np.arange(0, len(Y), 7)
    whole = log_evidence(every)
    exact = np.array([whole - log_evidence(np.delete(every, i)) for i in some])
    result = gaussian_posterior.loo()
    log_likelihood = np.concatenate([block for _, block in gaussian_posterior.log_likelihood()], axis=1)
    z = (result.pointwise[some] - exact) / standard_errors(gaussian_posterior, log_likelihood)[some]
    assert (np.abs(z) < LIMIT).all()
    assert (result.k < result.good_k).all()
    lpd = logsumexp(log_likelihood, axis=0) - np.log(len(log_likelihood))
    assert result.p_loo == pytest.approx((lpd - result.pointwise).sum())
    faulty = (lpd[some] - exact) / standard_errors(gaussian_posterior, log_likelihood)[some]  # nothing left out
    assert np.abs(faulty).max() > LIMIT


def outlier(seed):
    """40 rows of which the first lies far out, with a response far off; the log density of each given the others."""
    rng = np.random.default_rng(3)
    x = np.concatenate([[6.0], rng.normal(size=39)])
    y = 1 + x + rng.normal(size=40)
    y[0] = -6.0
    A = np.column_stack([np.ones(40), x])

    def evidence(rows):
        return stats.multivariate_normal(cov=100 * A[rows] @ A[rows].T + np.eye(len(rows))).logpdf(y[rows])

    posterior = svrhmc.sample(svrhmc.targets.linear(A, y, prior_precision=0.01), draws=4000, seed=seed)
    return posterior, evidence(np.arange(40)) - evidence(np.arange(1, 40))


def test_a_row_that_decides_much_has_its_density_by_moved_draws(monkeypatch):
    """Off by more than 5 without them, by less than 0.3 in each of five runs with them; with a wrong map by more."""
    for seed in range(5):
        posterior, exact = outlier(seed)
        raw, matched = posterior.loo(), posterior.loo(moment_match=True)
        assert raw.bad.tolist() == matched.matched.tolist() == [0]
        assert raw.pointwise[0] - exact > 5
        assert matched.pointwise[0] == pytest.approx(exact, abs=0.3)
        assert matched.k[0] < min(0.8, raw.k[0] - 0.5)
        assert (matched.pointwise[1:] == raw.pointwise[1:]).all()
        assert matched.p_loo - raw.p_loo == pytest.approx(raw.elpd - matched.elpd)
    assert "For 1 row of large Pareto k, draws were moved" in str(matched)
    assert "try loo(moment_match=True)" in str(raw)
    monkeypatch.setattr(moment_matching.Affine, "forward", lambda self, x: x * 1.0 if self.A.ndim == 2 else x * self.A)
    assert abs(posterior.loo(moment_match=True).pointwise[0] - exact) > 1  # a map that forgets its shift


def test_draws_of_a_mixed_model_are_moved_too():
    """A response far off in one of six rows of a group, beside the exact integral over the scale."""
    y = Y.copy()
    y[0] -= 6.0
    target = glm(
        X, y, gaussian(NOISE**2), prior=Normal(BETA_SD**-2), groups=[Group(INDEX, prior=HalfNormal(SCALE), name="g")]
    )  # fmt: skip
    posterior, every = svrhmc.sample(target, draws=2500, seed=1), np.arange(len(Y))
    exact = log_evidence(every, y) - log_evidence(every[1:], y)
    raw, matched = posterior.loo(), posterior.loo(moment_match=True)
    assert raw.k[0] > raw.good_k > matched.k[0]
    assert abs(raw.pointwise[0] - exact) > 0.5
    assert matched.pointwise[0] == pytest.approx(exact, abs=0.3)


def test_groups_are_not_left_out_by_moved_draws(gaussian_posterior):
    with pytest.raises(ValueError, match="moment_match must be False where groups are left out"):
        gaussian_posterior.loo(by="g", moment_match=True)


def test_groups_of_a_gaussian_model_have_their_exact_densities(gaussian_posterior):
    every = np.arange(len(Y))
    whole = log_evidence(every)
    exact = np.array([whole - log_evidence(every[INDEX[every] != g]) for g in range(LEVELS)])
    result = gaussian_posterior.loo(by="g")
    laws = [(X[g == INDEX], Y[g == INDEX]) for g in np.arange(LEVELS)]
    log_likelihood = np.array([
        [stats.multivariate_normal(A @ b[:2], b[2] ** 2 + NOISE**2 * np.eye(EACH)).logpdf(y) for A, y in laws]
        for b in gaussian_posterior.trace.draws.reshape(-1, 3)[::20]  # β, sd
    ])  # fmt: skip
    errors = standard_errors(gaussian_posterior, log_likelihood)
    assert (np.abs(result.pointwise - exact) / errors < LIMIT).all()
    assert result.names == tuple(map(str, range(LEVELS)))
    assert result.rows.tolist() == [EACH] * LEVELS
    rows = gaussian_posterior.loo().pointwise.reshape(LEVELS, EACH).sum(axis=1)  # given the group's other rows
    assert (np.abs(rows - exact) / errors).max() > 4 * LIMIT


def grid_integral(density, r):
    """∫ density(v) N(v; 0, I) dv by a fine grid."""
    axis = np.linspace(-9, 9, 2001 if r == 1 else 301 if r == 2 else 61)
    v = np.stack(np.meshgrid(*[axis] * r, indexing="ij"), axis=-1).reshape(-1, r)
    return np.log((axis[1] - axis[0]) ** r) + logsumexp(density(v) + stats.norm.logpdf(v).sum(axis=1))


TOLERANCES = {
    "bernoulli": 1e-6, "poisson": 1e-4, "negative-binomial": 1e-4, "gaussian": 1e-11,
    "student-t": 1e-4,  # h may have several minima, where rows of a group disagree
}  # fmt: skip


def log_density(family, y, t, shared):
    if family == "bernoulli":
        return np.where(y == 1, -np.logaddexp(0, -t), -np.logaddexp(0, t))
    if family == "poisson":
        return stats.poisson.logpmf(y, np.exp(t))
    if family == "gaussian":
        return stats.norm.logpdf(y, t, np.exp(shared))
    if family == "student-t":
        return stats.t.logpdf(y, 4.0, t, np.exp(shared))
    size = np.exp(shared)
    return stats.nbinom.logpmf(y, size, size / (size + np.exp(t)))


@pytest.mark.parametrize("family", TOLERANCES)
@pytest.mark.parametrize("r", [1, 2])
def test_integrals_over_the_effects_of_a_group_agree_with_a_grid(family, r):
    rng = np.random.default_rng(r)
    n, starts = 9, np.array([0, 4, 5])
    z = np.column_stack([np.ones(n), rng.normal(size=n)])[:, :r]
    factor = np.array([[[1.3, 0.0], [0.4, 0.7]], [[0.2, 0.0], [-0.1, 0.5]]])[:, :r, :r]
    offset, x = rng.normal(size=n), rng.normal(size=(2, 1))
    y = {"bernoulli": rng.random(n) < 0.6, "gaussian": rng.normal(size=n), "student-t": rng.normal(size=n)}.get(
        family, rng.poisson(2.0, n)
    )
    loss = {"student-t": student_t(4.0), "negative-binomial": negative_binomial()}.get(family, family)
    weights = rng.uniform(0.5, 2.0, n)
    target = glm(np.ones((n, 1)), y, loss, offset=offset, weights=weights)
    shared = np.array([[0.3], [-0.2]])[:, : target.loss.shared]
    got = GroupedRows(target.form(), np.concatenate([x, shared], axis=1), starts, z, factor).integral()
    for draw in range(2):
        tail = shared[draw][0] if shared.size else 0.0
        for group, rows in enumerate(np.split(np.arange(n), starts[1:])):
            t = offset[rows] + x[draw, 0]

            def log_of(v, rows=rows, t=t, draw=draw, tail=tail):
                u = v @ factor[draw].T
                return (weights[rows] * log_density(family, y[rows], t + u @ z[rows].T, tail)).sum(axis=1)

            assert got.log_likelihood[draw, group] == pytest.approx(grid_integral(log_of, r), abs=TOLERANCES[family])
    assert (got.error == 0).all()


def test_trials_are_of_one_observation_and_three_effects_have_a_standard_error():
    rng = np.random.default_rng(0)
    n, trials = 12, rng.integers(1, 9, 12)
    y = rng.binomial(trials, 0.4)
    z, factor = np.column_stack([np.ones(n), rng.normal(size=(n, 2))]), np.diag([0.9, 0.5, 0.4])[None]
    target = glm(np.ones((n, 1)), y, binomial(), trials=trials)
    got = GroupedRows(target.form(), np.array([[0.2]]), np.array([0]), z, factor).integral()

    def log_of(v):
        t = 0.2 + (v @ factor[0].T) @ z.T
        return stats.binom.logpmf(y, trials, 1 / (1 + np.exp(-t))).sum(axis=1)

    exact = grid_integral(log_of, 3)
    assert 0 < got.error[0, 0] < 0.1
    assert abs(np.expm1(got.log_likelihood[0, 0] - exact)) < LIMIT * got.error[0, 0]


def test_blocks_change_nothing(gaussian_posterior, monkeypatch):
    whole, small = gaussian_posterior.loo("g", draws=400), 7 * 400
    monkeypatch.setattr(loo, "_BLOCK_NUMBERS", small)
    monkeypatch.setattr(integrated, "_BLOCK_NUMBERS", small)
    parts = gaussian_posterior.loo("g", draws=400)
    assert np.allclose(whole.pointwise, parts.pointwise, rtol=1e-12)
    assert np.allclose(whole.k, parts.k, rtol=1e-9)


# Smoothing


@pytest.mark.parametrize("efficiency", [1.0, 0.4])
def test_smoothed_weights_are_those_of_arviz(efficiency):
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(0)
    log_likelihood = -0.5 * np.linspace(0.01, 3, 60) * rng.standard_t(4, (500, 60)) ** 2
    log_likelihood[20:60] = log_likelihood[19]  # proposals that were rejected
    got = leave_out(log_likelihood, efficiency)
    weights, k = arviz.psislw(-log_likelihood.T.copy(), reff=efficiency)
    assert np.allclose(got.elpd, logsumexp(weights + log_likelihood.T, axis=1), rtol=0, atol=1e-8)
    assert np.allclose(got.k, k, rtol=0, atol=1e-8)
    assert np.allclose(got.lpd, logsumexp(log_likelihood, axis=0) - np.log(500), atol=1e-10)
    assert not np.allclose(leave_out(log_likelihood, 3.0).k, k, atol=1e-3)


def test_a_posterior_has_the_loo_of_arviz(gaussian_posterior):
    arviz = pytest.importorskip("arviz")
    mine = gaussian_posterior.loo()
    efficiency = min(1.0, gaussian_posterior.ess.mean() / mine.draws)
    theirs = arviz.loo(gaussian_posterior.to_arviz(log_likelihood=True), pointwise=True, reff=efficiency)
    values = [getattr(theirs, name, None) for name in ("elpd_loo", "p_loo", "se")]
    if values[0] is None:  # of ArviZ 1
        values = [theirs.elpd, theirs.p, theirs.se]
    assert np.allclose([mine.elpd, mine.p_loo, mine.se], values, rtol=0, atol=1e-8)
    assert np.allclose(mine.k, np.asarray(theirs.pareto_k), rtol=0, atol=1e-8)


def test_the_shape_of_a_pareto_law_is_found():
    rng = np.random.default_rng(2)
    for shape in (-0.2, 0.3, 0.9):
        x = np.sort(stats.genpareto(shape, scale=2.0).rvs((200, 400), random_state=rng), axis=1)
        k, sigma = fit_pareto(x)
        drawn = (400 * shape + 5) / 410  # towards a half
        assert abs(k.mean() - drawn) < LIMIT * k.std() / np.sqrt(200) + 0.01
        assert sigma.mean() == pytest.approx(2.0, rel=0.03)


def test_equal_weights_are_reliable_and_a_row_that_decides_is_not():
    assert leave_out(np.full((100, 2), -3.0)).k.tolist() == [0.0, 0.0]
    assert np.allclose(leave_out(np.full((100, 2), -3.0)).elpd, -3.0)
    rng = np.random.default_rng(0)
    x = np.append(rng.normal(size=40), 100.0)
    y = np.append(x[:40] + rng.normal(size=40), 0.0)
    result = regress(x[:, None], y, names=["x"]).loo()
    assert 40 in result.bad
    assert "Pareto k is above" in str(result)
    assert "(first 40" in " ".join(str(result).split())
    assert "nan" not in str(result)


# The result


def test_what_is_left_out_is_a_frame_and_fewer_draws_may_be_used(gaussian_posterior):
    by_group, by_row = gaussian_posterior.loo("g", draws=200), gaussian_posterior.loo(draws=200)
    assert by_group.draws == 200
    frame = by_group.to_frame()
    assert list(frame.columns) == ["elpd", "p_loo", "pareto_k", "rows"]
    assert frame["elpd"].sum() == pytest.approx(by_group.elpd)
    assert list(by_row.to_frame().columns) == ["elpd", "p_loo", "pareto_k"]
    assert "10 groups of g" in repr(by_group)
    assert "60 rows" in repr(by_row)
    assert "elpd_loo" in by_row._repr_html_()


def test_every_factor_is_left_out_with_all_its_terms():
    rng = np.random.default_rng(4)
    n = 90
    a, b, x = rng.integers(0, 6, n), rng.integers(0, 5, n), rng.normal(size=n)
    table = {
        "y": rng.random(n) < 1 / (1 + np.exp(-x - rng.normal(size=6)[a])), "a": [f"a{k}" for k in a],
        "b": [f"b{k}" for k in b], "x": x,
    }  # fmt: skip
    posterior = svrhmc.fit("y ~ x + (1 | a) + (0 + x | a) + (1 | b)", table, draws=100, budget_seconds=20)
    assert posterior.loo("a").names == tuple(f"a{k}" for k in range(6))
    assert posterior.loo("b").names == tuple(f"b{k}" for k in range(5))
    with pytest.raises(ValueError, match=r"a grouping factor \('a', 'b'\); got 'c'"):
        posterior.loo("c")


def test_what_has_no_rows_is_refused(gaussian_posterior, tmp_path):
    plain = regress(X[:, 1:], Y)
    assert len(plain.loo().pointwise) == len(Y)
    with pytest.raises(ValueError, match="of a model with groups"):
        plain.loo("g")
    with pytest.raises(ValueError, match="draws must be"):
        plain.loo(draws=3)
    plain.save(tmp_path / "a.posterior")
    with pytest.raises(ValueError, match="no file keeps the rows"):
        svrhmc.Posterior.load(tmp_path / "a.posterior").loo()


def test_rows_in_partitions_are_refused_in_words():
    parts = svrhmc.data.from_arrays(X, Y)
    with pytest.raises(ValueError, match="the rows must be in memory, to be left out one by one"):
        svrhmc.sample(glm(parts, None, gaussian(NOISE**2)), draws=100).loo()
