"""The whitening of a Hessian that is known by its products: what it leaves, and that it changes no law."""

from functools import cache

import numpy as np
import pytest

from svrhmc import sample, targets
from svrhmc.exact import SplitHMC
from svrhmc.sampling.correction import correction
from svrhmc.whitening import LowRankWhitening, whitened, whitening
from svrhmc.whitening import at_mode as made_module
from svrhmc.whitening.krylov import Krylov
from svrhmc.whitening.products import _whitened

pytest.importorskip("jax")

LIMIT = 4.5
STIFF, LOOSE = np.array([100.0, 30.0, 10.0]), np.array([0.01, 0.05, 0.1])


def directions(dim, count, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, count)))[0]


def odd_hessian(dim=400, values=(*STIFF, *LOOSE)):
    """The identity but for some directions that lie along no axis."""
    V = directions(dim, len(values))
    return np.eye(dim) + (V * (np.array(values) - 1)) @ V.T


def left(how, H):
    """Eigenvalues of WᵀHW."""
    W = how.displace(np.eye(len(H))).T
    return np.linalg.eigvalsh(W.T @ H @ W)


def made(H, rank=None):
    return _whitened(np.zeros(len(H)), lambda u: H @ u, len(H) if rank is None else rank)


def test_what_stands_out_is_put_right_and_the_diagonal_alone_does_not_do_it():
    H = odd_hessian()
    how, diagonal = made(H), made(H, 0)
    values = left(how, H)
    assert 6 <= how.basis.shape[1] <= 12
    assert (values[0], values[-1]) == pytest.approx((1, 1), abs=0.7)
    assert how.left == pytest.approx(((values - 1) ** 2).sum(), rel=0.5)
    assert how.least > 0.5
    others = left(diagonal, H)
    assert diagonal.basis.shape == (400, 0)
    assert others[0] < 0.02
    assert others[-1] > 20
    assert diagonal.left == pytest.approx(((others - 1) ** 2).sum(), rel=0.9)


@pytest.mark.parametrize("spread", [1.0, 2.5])
def test_units_of_the_coordinates_do_not_matter_much(spread):
    scale = np.exp(spread * np.random.default_rng(1).normal(size=400))
    H = scale[:, None] * odd_hessian() * scale
    values = left(made(H), H)
    assert values[0] > 0.02
    assert values[-1] < 4
    plain = np.linalg.eigvalsh(H)
    assert plain[-1] / plain[0] > 1e3 * values[-1] / values[0]


def test_a_range_full_of_eigenvalues_is_not_taken_for_directions_that_stand_out():
    X = np.random.default_rng(0).normal(size=(1200, 600))
    H = X.T @ X / 1200
    with_one = H + 50 * np.outer(*2 * (directions(600, 1)[:, 0],))
    how, other = made(H), made(with_one)
    assert how.basis.shape[1] < 25  # of 80 directions that were looked at
    assert other.basis.shape[1] < 25
    assert left(other, with_one)[-1] < 0.2 * left(made(with_one, 0), with_one)[-1]
    assert 0.05 < how.least < 0.3  # the least of all is (1 − √½)² = 0.086


def test_an_indefinite_hessian_gets_the_map_of_its_absolute_values():
    H = odd_hessian(values=(50.0, -3.0))
    values = left(made(H), H)
    assert (values[0], *values[[1, -1]]) == pytest.approx((-1, 1, 1), abs=0.5)


@pytest.mark.parametrize("H", [np.eye(40), np.zeros((40, 40)), np.diag(np.geomspace(1e-9, 1e9, 40))])
def test_hessians_of_which_nothing_stands_out_have_a_diagonal_map(H):
    how = made(H)
    assert how.basis.shape == (40, 0)
    if H.any():
        assert left(how, H) == pytest.approx(np.ones(40))


def test_the_rank_is_the_most_there_may_be():
    H = odd_hessian()
    how = made(H, 2)
    assert how.basis.shape == (400, 2)
    assert how.gain == pytest.approx([0.01**-0.5 - 1, 100**-0.5 - 1], rel=0.2)


def test_a_krylov_space_in_other_units_is_that_of_the_other_matrix():
    X, ratio = np.random.default_rng(1).normal(size=(90, 60)), np.exp(np.random.default_rng(2).normal(size=60))
    H = X.T @ X
    other = H / np.outer(ratio, ratio)
    space = Krylov(60)
    start = np.random.default_rng(3).normal(size=(60, 4))
    for _ in range(3):
        start = space.grow(lambda u: H @ u, start)
    space.rescale(ratio)
    assert space.basis.T @ space.basis == pytest.approx(np.eye(12), abs=1e-12)
    assert space.image == pytest.approx(other @ space.basis, abs=1e-9)


def test_a_krylov_space_that_is_used_up_stays_orthonormal():
    H = odd_hessian(50, (9.0,))
    space, start = Krylov(50), np.random.default_rng(3).normal(size=(50, 4))
    for _ in range(6):
        start = space.grow(lambda u: H @ u, start)
    assert space.basis.shape[1] < 12
    assert space.basis.T @ space.basis == pytest.approx(np.eye(space.basis.shape[1]), abs=1e-12)
    assert space.pairs().values[-1] == pytest.approx(9)


DIM, ROWS = 40, 64


@cache
def odd_model():
    """y = a·x + noise with rows along three directions, and a prior that is loose along three others: Gaussian."""
    V = directions(DIM, 6)
    which = np.arange(ROWS) % 3
    A = (V[:, :3] * np.sqrt((STIFF - 1) * 3 / ROWS)).T[which]
    y = np.random.default_rng(5).normal(size=ROWS)
    away = 1 - LOOSE

    def log_likelihood(x, row):
        a, seen = row
        return -0.5 * (seen - a @ x) ** 2

    def log_prior(x):
        along = x @ V[:, 3:]
        return -0.5 * (x @ x - (away * along * along).sum())

    H = np.eye(DIM) - (V[:, 3:] * away) @ V[:, 3:].T + A.T @ A
    return targets.model(log_likelihood, log_prior, (A, y), np.zeros(DIM)), H, np.linalg.solve(H, A.T @ y)


@cache
def bad_map():
    """Far from the inverse Hessian, and not symmetric."""
    _, H, mean = odd_model()
    rng = np.random.default_rng(7)
    scale = np.exp(0.5 * rng.normal(size=DIM)) * np.diag(H) ** -0.5
    V = directions(DIM, 12, 8)
    V, _ = np.linalg.qr(np.hstack([directions(DIM, 6), V]))
    gain = np.concatenate([np.array([*STIFF, *LOOSE]) ** -0.5 - 1, rng.uniform(-0.4, 1.0, 12)])
    return LowRankWhitening(mean + 0.1, scale, V, gain)


def test_the_map_of_a_model_is_its_own_inverse_and_transpose():
    target, H, _ = odd_model()
    for how in (whitening(target, "low rank"), whitening(target, "diagonal"), bad_map()):
        z = np.random.default_rng(0).normal(size=(5, DIM))
        W = how.displace(np.eye(DIM)).T
        assert how.into(how.out(z)) == pytest.approx(z, abs=1e-9)
        assert how.pull(z) == pytest.approx(z @ W, abs=1e-9)
        assert how.variances == pytest.approx((W**2).sum(axis=1))
    values = left(whitening(target, "low rank"), H)
    assert (values[0], values[-1]) == pytest.approx((1, 1), abs=0.8)
    with pytest.raises(
        ValueError, match="kind must be 'dense', 'low rank' or 'diagonal' for this target; got 'sparse'"
    ):
        whitening(target, "sparse")


def slope_error(space, gradient):
    """Of f along a direction, by differences, in parts of its size."""
    rng = np.random.default_rng(1)
    z, way = rng.normal(size=(2, DIM))
    ahead, behind = space.potentials(np.array([z + 1e-4 * way, z - 1e-4 * way]))
    slope = (ahead - behind) / 2e-4
    return abs(way @ gradient(z[None])[0] - slope) / abs(slope)


def test_gradients_in_other_variables_are_those_of_f_there_and_a_wrong_transpose_shows():
    from svrhmc.core.jax import scoped
    from svrhmc.engines.jax.placement import place_form

    target, _, _ = odd_model()
    how = bad_map()
    space = whitened(target, how)
    _, operations, arrays = place_form(space.form())

    @scoped
    def in_jax(z):
        return np.asarray(operations.energies(arrays, z)[1])

    assert slope_error(space, space.gradients) < 1e-6
    assert slope_error(space, in_jax) < 1e-6
    assert slope_error(space, lambda z: how.displace(target.gradients(how.out(z)))) > 0.05  # W instead of Wᵀ


def moments_away(x, H, mean):
    """The largest z-value of means and variances along all eigenvectors of H, from independent draws."""
    values, vectors = np.linalg.eigh(H)
    y = (x - mean) @ vectors * np.sqrt(values)
    return float(max(np.abs(each.mean(axis=0) / (each.std(axis=0) / len(x) ** 0.5)).max() for each in (y, y**2 - 1)))


def test_exact_draws_have_the_law_of_the_target_whatever_the_map():
    """1000 chains that start with the law have it after 20 draws: 80 moments of their last states."""
    target, H, mean = odd_model()
    how, rng = bad_map(), np.random.default_rng(11)
    start = mean + np.linalg.solve(np.linalg.cholesky(H).T, rng.normal(size=(DIM, 1000))).T
    chains = SplitHMC(0.3, 6).chains(whitened(target, how), 3, np.arange(1000), 1, how.into(start))
    made = chains.extend(20)
    assert 0.15 < made.accepted.mean() / 20 < 0.9
    x = how.out(made.draws[:, -1])
    assert moments_away(x, H, mean) < LIMIT
    assert np.abs(x - start).max(axis=0).min() > 0.1
    assert moments_away(how.centre + how.pull(made.draws[:, -1]), H, mean) > 3 * LIMIT  # Wᵀz instead of Wz


def test_sample_whitens_what_is_too_large_for_a_dense_hessian_by_products(monkeypatch):
    monkeypatch.setattr(made_module, "DENSE_DIM", DIM - 1)
    target, H, mean = odd_model()
    posterior = sample(target, draws=400, chains=8, seed=2)
    assert posterior.certificate.verdict == "local"
    sd = np.sqrt(np.diag(np.linalg.inv(H)))
    assert np.abs((posterior.mean - mean) / (posterior.corrected.mean_error + 1e-9 * sd)).max() < LIMIT
    assert posterior.sd == pytest.approx(sd, rel=0.1)
    assert posterior.sampler.leapfrogs <= 4
    diagonal = whitening(target, "diagonal")
    assert whitening(target, "low rank").leftover < 0.1 * diagonal.leftover


def test_trajectories_are_as_long_as_what_is_left_asks_for():
    assert SplitHMC.for_leftover(0.0) == SplitHMC.for_leftover(0.0, 0.5) == SplitHMC()
    long = SplitHMC.for_leftover(0.0, 0.01)
    assert long.step_size * long.leapfrogs == pytest.approx(8 * 1.6)
    assert SplitHMC.for_leftover(1e4).leapfrogs == round(1.6 / SplitHMC.for_leftover(1e4).step_size)
    both = SplitHMC.for_leftover(1e4, 0.04)
    assert both.step_size * both.leapfrogs == pytest.approx(5 * 1.6, rel=0.05)
    shorter = both.smaller()
    assert shorter is not None
    assert shorter.step_size * shorter.leapfrogs == pytest.approx(5 * 1.6, rel=0.05)
    assert SplitHMC().smaller() == SplitHMC(0.8 * 0.75, 3)
    assert SplitHMC(0.06, 27).smaller() is None
    assert SplitHMC(0.06, 27).smaller(0.5, convex=True) == SplitHMC(0.03, 53)
    assert SplitHMC(0.006, 267).smaller(convex=True) is None


def test_the_first_step_follows_what_is_not_gaussian():
    normals = np.random.default_rng(0).normal(size=63)
    assert SplitHMC.for_remainder(0.1 * normals) == SplitHMC(1.5, 1)
    assert SplitHMC.for_remainder(normals) == SplitHMC()
    far = SplitHMC.for_remainder(100 * normals)
    assert far.step_size == pytest.approx(SplitHMC.for_leftover(2e4).step_size, rel=0.2)
    some = 100 * normals
    some[:5] = [1e9, -1e9, np.inf, np.nan, 1e300]
    assert SplitHMC.for_remainder(some).step_size == pytest.approx(far.step_size, rel=0.2)
    assert SplitHMC.for_remainder(np.full(63, np.nan)).step_size == pytest.approx(0.05, rel=0.01)
    assert SplitHMC.for_remainder(1e300 * normals).step_size == pytest.approx(0.05, rel=0.01)
    assert SplitHMC.for_remainder(normals, 2e4).step_size == pytest.approx(far.step_size, rel=0.2)


@pytest.mark.slow
def test_a_logistic_regression_of_3000_columns_written_as_functions_is_that_of_rows():
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    n, dim = 4000, 3000
    X = rng.normal(size=(n, dim)) + rng.normal(size=(n, 5)) @ rng.normal(size=(5, dim))
    X /= np.sqrt(dim)
    y = (X @ rng.normal(size=dim) + rng.logistic(size=n) > 0).astype(float)

    def log_likelihood(x, rows):
        a, seen = rows
        t = a @ x
        return seen * t - jnp.logaddexp(0.0, t)

    rows = targets.logistic(X, y)
    space = whitened(rows, "dense")
    chains = SplitHMC().chains(space, 1, np.arange(4), 2)
    chains.extend(20)
    made, how = chains.extend(100), space.whitening
    _, known = correction(how.out(made.draws), how.displace(made.gradients), how.variances)
    model = targets.model(log_likelihood, lambda x: -0.5 * x @ x, (X, y), np.zeros(dim), batched=True)
    posterior = sample(model, draws=100, seed=2)
    assert posterior.certificate.verdict == "local"
    assert (np.abs(posterior.mean - known.mean) / known.sd).max() < 0.05
    assert posterior.sd == pytest.approx(known.sd, rel=0.05)
    assert (np.abs(model.mode() - known.mean) / known.sd).max() > 0.05
