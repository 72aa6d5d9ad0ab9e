"""Whitening by a sparse factor is the map of its matrix, and what is drawn through it has the posterior's law."""

import hashlib

import numpy as np
import pytest
import scipy.sparse

from svrhmc import Sampler, sample, targets
from svrhmc.density import elimination, generalised, mode
from svrhmc.density.elimination import eliminate, independent_set
from svrhmc.dynamics import Anchored
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.gradients import Full, Minibatch
from svrhmc.whitening import (
    DenseWhitening,
    LowRankWhitening,
    SparseWhitening,
    whitened,
    whitening,
    whitening_of,
)
from svrhmc.whitening import at_mode as made

WAYS = {"crossed": (900, (7, 150, 151)), "one": (400, (300,)), "chained": (300, (299, 300)), "few": (200, (3, 4))}


def design(way, kind=np.float64, intercept=True, seed=5):
    """An intercept, two numbers, and categories of Zipf frequencies."""
    n, levels = WAYS[way]
    rng = np.random.default_rng(seed)
    parts = [scipy.sparse.csr_array(np.column_stack([np.ones(n), rng.normal(size=(n, 2))]))] if intercept else []
    for m in levels:
        share = 1 / np.arange(1, m + 1)
        place = rng.choice(m, n, p=share / share.sum())
        parts.append(scipy.sparse.csr_array((np.ones(n), place, np.arange(n + 1)), (n, m)))
    X = scipy.sparse.csr_array(scipy.sparse.hstack(parts, format="csr"), dtype=kind)
    return X, rng.random(n) < 1 / (1 + np.exp(-(X @ (0.5 * rng.normal(size=X.shape[1])))))


def make(way="crossed", **options):
    X, y = design(way, **options)
    return targets.logistic(X, y, np.linspace(0.5, 2.0, X.shape[1]))


@pytest.fixture(scope="module")
def crossed():
    return make()


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("way", WAYS)
def test_the_map_is_that_of_its_matrix(way, kind):
    target = make(way, kind=kind)
    how, dim, rng = whitening(target, "sparse"), target.dim, np.random.default_rng(0)
    assert isinstance(how, SparseWhitening)
    assert sorted(how.order) == list(range(dim))
    A = target.rows.X.toarray().astype(np.float64)
    H = (A.T * target.row_curvatures(target.mode())) @ A + np.diag(target.prior_precision)
    W, inverse = how.displace(np.eye(dim)).T, np.linalg.inv(H)
    product, white = W @ W.T, W.T @ H @ W
    assert np.abs(product - inverse).max() < 1e-10
    assert np.abs(white - np.eye(dim)).max() < 1e-10
    assert np.abs(1.001 * white - np.eye(dim)).max() > 1e-4  # it would be seen
    z, x, g = rng.normal(size=(3, 2, 5, dim))
    assert how.displace(z) == pytest.approx(z @ W.T, abs=1e-11)
    assert how.out(z) == pytest.approx(target.mode() + z @ W.T, abs=1e-11)
    assert how.pull(g) == pytest.approx(g @ W, abs=1e-11)
    assert how.into(x) == pytest.approx(np.linalg.solve(W, (x - target.mode()).reshape(-1, dim).T).T.reshape(x.shape))
    assert how.into(how.out(z)) == pytest.approx(z, abs=1e-11)
    assert how.variances == pytest.approx(np.diag(inverse), rel=1e-10)
    assert how.norms(A[:9]) == pytest.approx(np.linalg.norm(A[:9] @ W, axis=1), rel=1e-10)
    again = whitening_of(how.kind, how.arrays(), how.said())
    assert (again.displace(z) == how.displace(z)).all()


def test_no_digit_depends_on_what_stands_beside_a_state(crossed):
    how, z = whitening(crossed, "sparse"), np.random.default_rng(0).normal(size=(3, 40, crossed.dim))
    for map_ in (how.displace, how.pull, how.into):
        whole = map_(z)
        assert (map_(z[1:2, 7:9]) == whole[1:2, 7:9]).all()
        assert (map_(z[2, 39]) == whole[2, 39]).all()


def test_a_large_core_is_kept_in_float32_and_its_map_is_still_its_own_inverse(crossed):
    H = crossed.rows.sparse_gram(crossed.row_curvatures(crossed.mode()), crossed.prior_precision, 1e9, 0)
    single, double = (SparseWhitening(crossed.mode(), *eliminate(H, most).arrays()) for most in (10, 1000))
    assert (single.core.dtype, double.core.dtype) == (np.float32, np.float64)
    z = np.random.default_rng(0).normal(size=(5, crossed.dim))
    assert single.into(single.out(z)) == pytest.approx(z, abs=1e-10)
    W = single.displace(np.eye(crossed.dim)).T
    assert W.T @ H.toarray() @ W == pytest.approx(np.eye(crossed.dim), abs=1e-6)
    assert single.variances == pytest.approx((W**2).sum(axis=1), rel=1e-10)


def test_variances_are_right_where_an_entry_vanishes_on_the_way():
    """Two coordinates that share a neighbour, and whose own entry is just what that neighbour takes: 2·2/4 = 1."""
    H = np.eye(40) * 4.0
    for i, j, value in [(0, 1, 2.0), (0, 2, 2.0), (1, 2, 1.0), (1, 3, 0.5), (2, 3, 0.5), (3, 4, 0.25)]:
        H[i, j] = H[j, i] = value
    how = SparseWhitening(np.zeros(40), *eliminate(scipy.sparse.csr_matrix(H)).arrays())
    assert how.variances == pytest.approx(np.diag(np.linalg.inv(H)), rel=1e-12)


def test_levels_are_independent_and_maximal():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        B = scipy.sparse.random(80, 80, 0.02, random_state=rng)
        H = scipy.sparse.csr_matrix(B + B.T + scipy.sparse.identity(80))
        H.sort_indices()
        dense = H.toarray() != 0
        few = dense.sum(axis=1) - 1 <= 8
        chosen = independent_set(H, few)
        assert (dense[np.ix_(chosen, chosen)].sum(axis=1) == 1).all()
        assert (dense[:, chosen].any(axis=1) | ~few).all()
        assert not (chosen & ~few).any()


def test_gradients_in_z_are_those_of_differences(crossed):
    space = whitened(crossed, "sparse")
    z = np.random.default_rng(1).normal(size=(2, space.dim))
    step = 1e-5 * np.eye(space.dim)
    numeric = (space.potentials(z[:1] + step) - space.potentials(z[:1] - step)) / 2e-5
    assert space.gradients(z)[0] == pytest.approx(numeric, abs=1e-5)
    assert space.prior_gradient(z) + space.assemble(space.parts(z, None), None) == pytest.approx(
        space.gradients(z), abs=1e-9
    )
    assert space.identity_hessian
    near = space.gradients(1e-4 * z) / 1e-4
    assert near == pytest.approx(z, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [Full(), Minibatch(8)], ids=str)
@pytest.mark.parametrize("kind", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_both_engines_make_the_same_path(gradient, kind):
    space = whitened(make("few", kind=kind), "sparse")
    sampler = Sampler(Anchored(0.4), gradient)
    runs = [sampler.run(space, 100, chains=2, seed=4, engine=name).draws for name in ("reference", "numba")]
    assert runs[0] == pytest.approx(runs[1], abs=1e-10 if kind is np.float64 else 5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_split_hmc_is_the_same_on_any_number_of_threads_and_chains(kind):
    target = make(kind=kind)
    runs = [
        SplitHMC().run(target, 20, chains=chains, threads=threads, whitening="sparse", seed=3).draws
        for chains, threads in ((4, 1), (4, 2), (3, 1))
    ]
    assert (runs[0] == runs[1]).all()
    assert runs[0][:3] == pytest.approx(runs[2], abs=1e-9 if kind is np.float64 else 1e-3)


def test_twins_give_what_each_chain_alone_gives():
    """Chains that share a pass, with and without a twin; as in the dense whitening of the same order."""
    target = make("few")
    shared = SplitHMC().run(target, 50, chains=4, threads=1, whitening="sparse", seed=3)
    dense = SplitHMC().run(target, 50, chains=4, threads=1, whitening=_as_dense(whitening(target, "sparse")), seed=3)
    alone = [SplitHMC().run(target, 50, chains=[c], threads=1, whitening="sparse", seed=3).draws[0] for c in range(4)]
    assert shared.draws == pytest.approx(np.array(alone), abs=1e-10)
    assert shared.draws == pytest.approx(dense.draws, abs=1e-9)
    assert np.abs(shared.draws[0] - shared.draws[1]).max() > 0.1


def _as_dense(how):
    return DenseWhitening(how.centre, np.ascontiguousarray(how.displace(np.eye(len(how.centre))).T))


@pytest.mark.slow
def test_moments_agree_with_dense_whitening_and_a_long_run(crossed):
    """Means and mean squares in units of their errors, over 311 coordinates; as a control, of another prior."""
    other = targets.logistic(crossed.rows.X, crossed.y > 0, 1.3 * crossed.prior_precision)
    long = SplitHMC(0.4, 4).run(crossed, 6000, whitening="dense", seed=11).draws
    first = SplitHMC().run(crossed, 1500, whitening="sparse", seed=12).draws
    second = SplitHMC().run(other, 1500, whitening="sparse", seed=12).draws
    assert scores(first, long) < 4.5
    assert scores(second, long) > 9


def scores(draws, reference):
    from svrhmc.diagnostics import standard_error

    worst, centre = 0.0, reference.mean(axis=(0, 1))
    for f in (lambda x: x - centre, lambda x: (x - centre) ** 2):
        a, b = f(draws), f(reference)
        error = np.hypot(standard_error(a), standard_error(b))
        worst = max(worst, float((np.abs(a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))) / error).max()))
    return worst


def few_columns(monkeypatch, most=10):
    monkeypatch.setattr(made, "DENSE_DIM", most)
    monkeypatch.setattr(mode, "DENSE_DIM", most)
    monkeypatch.setattr(generalised, "DENSE_DIM", most)


def test_sample_takes_it_for_sparse_rows_of_many_columns(monkeypatch):
    few_columns(monkeypatch)
    X, y = design("crossed")
    posterior = sample(targets.logistic(X, y), 300, seed=1)
    assert (posterior.method, posterior.certificate.verdict) == ("split-hmc", "exact")
    assert posterior.laplace.sd == pytest.approx(np.sqrt(whitening(targets.logistic(X, y), "sparse").variances))
    assert "roughly" not in posterior.why
    assert isinstance(whitening(targets.logistic(X.toarray(), y)), LowRankWhitening)
    monkeypatch.setattr(elimination, "MOST_CORE", 5)
    rough = sample(targets.logistic(X, y), 300, seed=1)
    assert "The whitening is only rough: of 311 columns" in rough.why
    assert rough.certificate.verdict == "exact"
    assert np.abs((rough.mean - posterior.mean) / np.hypot(rough.errors[0], posterior.errors[0])).max() < 4.5


def test_directions_that_stand_out_are_put_right_where_there_is_no_factor(monkeypatch):
    few_columns(monkeypatch)
    monkeypatch.setattr(elimination, "MOST_CORE", 5)
    target = make(intercept=False)
    how = whitening(target)
    assert isinstance(how, LowRankWhitening)
    assert how.basis.T @ how.basis == pytest.approx(np.eye(len(how.gain)), abs=1e-10)
    A = target.rows.X.toarray()
    H = (A.T * target.row_curvatures(target.mode())) @ A + np.diag(target.prior_precision)
    W, D = how.displace(np.eye(target.dim)).T, np.diag(np.diag(H) ** -0.5)
    left, before = (np.linalg.norm(M.T @ H @ M - np.eye(target.dim)) ** 2 for M in (W, D))
    assert left < 0.8 * before
    assert how.leftover == pytest.approx(left, rel=0.05)
    spectra = [np.linalg.eigvalsh(M.T @ H @ M) for M in (W, D)]
    assert spectra[0][-1] < 0.6 * spectra[1][-1]
    step = SplitHMC.for_leftover(how.leftover)
    acceptance = SplitHMC(step.step_size, step.leapfrogs).run(target, 200, whitening=how).acceptance.mean()
    assert 0.6 < acceptance < 0.97
    assert SplitHMC.for_leftover(0.0) == SplitHMC.for_leftover(1.0) == SplitHMC()
    assert SplitHMC.for_leftover(1e4).leapfrogs == 11


def test_what_cannot_be_done_is_refused_with_its_reason(crossed, monkeypatch):
    dense = targets.logistic(crossed.rows.X.toarray()[:, :5], crossed.y > 0)
    with pytest.raises(ValueError, match=r"kind must be another one .* got 'sparse': the rows are not sparse"):
        whitening(dense, "sparse")
    with pytest.raises(ValueError, match="whitening must be dense for SubsampledMH; got a sparse one"):
        SubsampledMH().run(crossed, 10, whitening="sparse")
    singular = scipy.sparse.csr_matrix(np.ones((3, 3)))
    assert eliminate(singular) == "the Hessian at the mode is singular to rounding"
    monkeypatch.setattr(elimination, "MOST_CORE", 5)
    with pytest.raises(ValueError, match=r"got 'sparse': of 311 columns .* beyond the 5 of which"):
        whitening(make(), "sparse")


def test_a_checkpoint_keeps_the_map(monkeypatch, tmp_path):
    few_columns(monkeypatch)
    X, y = design("few")
    calls = [sample(targets.logistic(X, y), 100, seed=1, checkpoint=tmp_path / "run") for _ in range(2)]
    assert hashes(calls[0]) == hashes(calls[1]) == hashes(sample(targets.logistic(X, y), 100, seed=1))


def hashes(posterior):
    return hashlib.blake2b(np.ascontiguousarray(posterior.trace.draws).tobytes()).hexdigest(), posterior.why


def test_the_mode_of_sparse_rows_is_found_by_scaled_steps(monkeypatch):
    """As precisely as with the whole Hessian; and with a prior that makes columns very different."""
    X, y = design("crossed")
    prior = np.geomspace(1e-2, 1e4, X.shape[1])
    exact = targets.logistic(X, y, prior).mode()
    few_columns(monkeypatch)
    target = targets.logistic(X, y, prior)
    assert target.mode() == pytest.approx(exact, abs=1e-7)
    assert target.mode_passes < 60
