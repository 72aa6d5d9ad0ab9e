"""Posteriors on which `sample` once ran for ever, was wrong, or called itself exact: it ends, is right and says so."""

import math
from functools import cache

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_limits

from quadrature import line_moments, moments_of_one_coordinate
from svrhmc import Sampler, sample, targets
from svrhmc.core.deadline import Budget
from svrhmc.dynamics import Anchored
from svrhmc.gradients import Minibatch
from svrhmc.sampling import gradients as gradients_module
from svrhmc.sampling import judging
from svrhmc.sampling.gradients import FreshGradients, Gaussianity
from svrhmc.whitening import whitened

DECIDED = ("exact", "certified")


def nearly_separable(seed, precision):
    """Forty rows of three columns that a plane all but separates."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    y = X @ [0.3, 4.0, -3.0] + 0.5 * rng.normal(size=40) > 0
    y[np.argmin(np.abs(X @ [0.3, 4.0, -3.0]))] ^= True
    return targets.logistic(X, y, precision)


@pytest.mark.untraced
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 20), marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("precision", [1e-3, 1e-2])
def test_nearly_separable_data_end_and_their_chains_agree(precision, seeds):
    """Case 1: over 20 data sets, each with two seeds that must tell the same."""
    for seed in seeds:
        one, two = (sample(nearly_separable(seed, precision), 400, seed=each) for each in (0, 1))
        for found in (one, two):
            assert found.certificate.verdict == "exact", (seed, str(found))
            assert found.r_hat.max() < 1.1
        apart = np.abs(one.mean - two.mean)
        assert (apart < 5 * np.hypot(one.errors[0], two.errors[0])).all(), seed


def with_a_rare_column(n=15_000, rare=5):
    """Column 3 is 1 in the first rows alone, all of them events."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2)), np.arange(n) < rare])
    y = rng.random(n) < 1 / (1 + np.exp(-X[:, :3] @ [-1.0, 0.3, -0.2]))
    y[:rare] = True
    return targets.logistic(X, y, prior_precision=0.1)


@cache
def rare_truth():
    """By the trapezoid rule in the rare column's coefficient; the others hardly move it."""
    target = with_a_rare_column()
    mode = target.mode()
    b = np.linspace(-2, 22, 4001)
    predictors = (target.rows.X[:5, :3] @ mode[:3])[:, None] + b
    return line_moments(b, np.log1p(np.exp(-predictors)).sum(axis=0) + 0.05 * b**2)


@pytest.mark.untraced
def test_a_column_of_five_ones_is_not_missed():
    """Case 2: its mean is a third of an sd from the Laplace approximation's."""
    mean, sd = rare_truth()
    target = with_a_rare_column()
    scores = []
    for seed in range(20):
        posterior = sample(target, 400, seed=seed)
        assert posterior.certificate.verdict in DECIDED
        assert abs(posterior.mean[3] - mean) < 0.02 * sd + 4 * posterior.errors[0][3]
        assert abs(posterior.sd[3] - sd) < 0.02 * sd + 4 * posterior.errors[1][3]
        scores.append(
            [(posterior.mean[3] - mean) / posterior.errors[0][3], (posterior.sd[3] - sd) / posterior.errors[1][3]]
        )
    rms = np.sqrt(np.square(scores).mean(axis=0))
    assert (rms > 0.5).all()
    assert (rms < 1.5).all()
    assert abs(posterior.laplace.mean[3] - mean) > 0.2 * sd  # what a correction that missed the rows would report


def test_a_correction_whose_rows_miss_what_matters_is_left_out(monkeypatch):
    """Case 2: rows drawn by importance meet the five; where even ones do not, the draws contradict the correction."""
    mean, sd = rare_truth()
    target = with_a_rare_column(150_000)
    monkeypatch.setattr(gradients_module, "_FULL_SECONDS", 0.0)
    sampler = Sampler(Anchored(0.5), Minibatch(400, importance=True))
    posterior = sample(target, method=sampler)
    assert (posterior.certificate.verdict, posterior.certificate.corrects) == ("certified", True)
    assert abs(posterior.mean[3] - mean) < 0.02 * sd + 4 * posterior.errors[0][3]
    monkeypatch.setattr(FreshGradients, "batches", lambda self, size: Minibatch(size))
    monkeypatch.setattr(FreshGradients, "row_noise", 1e-3)
    missed = sample(target, method=sampler)
    assert abs(missed.corrected.mean[3] - mean) > 0.15 * sd
    assert (missed.certificate.verdict, missed.certificate.corrects) == ("undecided", False)
    assert missed.mean is missed.raw.mean
    assert "the corrected moments contradict the draws" in str(missed)
    for doubt in (
        "long_stay_doubt",
        "tail_acceptance_doubt",
    ):  # its five rows make a long tail, which is doubted already
        monkeypatch.setattr(judging, doubt, lambda number: "")
    exact = sample(target, draws=1000, method="subsampled-mh", certificate=True)
    assert exact.mean is exact.raw.mean
    assert "do not agree with the gradients at them" in str(exact)


def shape_of(target):
    return Gaussianity(FreshGradients(whitened(target), 1, Budget(target.n, math.inf, math.inf, False)))


def events(count, n=20_000):
    """So many events among the rows, with two columns."""
    rng = np.random.default_rng(count)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = np.zeros(n, bool)
    y[rng.permutation(n)[:count]] = True
    return targets.logistic(X, y)


def test_subsampled_metropolis_is_for_posteriors_that_are_nearly_gaussian():
    """Case 3: five events make a long tail, in which its proposals from the Laplace approximation would stick."""
    few, many = shape_of(events(5)), shape_of(events(8000))
    assert few.tail > 0.4 > 0.1 > many.tail
    assert few.spread.max() > 0.4 > 0.1 > many.spread.max()
    assert (few.nearly_gaussian(), many.nearly_gaussian()) == (False, True)
    rare = shape_of(with_a_rare_column())
    assert (rare.nearly_gaussian(), rare.long_tails(), many.long_tails()) == (False, True, False)


def test_the_tail_is_that_of_the_density():
    """max of ½·9 − f(±3u) + f(0) over the coordinates' own directions, for few rows and for many."""
    for target in (events(5, 3000), events(40)):
        shape, space = shape_of(target), whitened(target)
        rows = space.whitening.pull(np.eye(space.dim))
        u = 3 * rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))
        f = space.potentials(np.concatenate([u, -u, np.zeros((1, space.dim))]))
        assert shape.tail == pytest.approx((4.5 - f[:-1] + f[-1]).max(), rel=1e-6 if target.n == 3000 else 0.05)


@pytest.mark.slow
def test_the_errors_of_skewed_posteriors_are_calibrated():
    """Case 6: three events in thirty rows; 60 seeds against the trapezoid rule."""
    X = np.ones((30, 1))
    target = targets.logistic(X, np.arange(30) < 3, prior_precision=0.01)
    mean, sd = moments_of_one_coordinate(target, np.linspace(-12, 4, 8001))
    found = [sample(target, seed=seed) for seed in range(60)]
    z = np.array([[(p.mean[0] - mean) / p.errors[0][0], (p.sd[0] - sd) / p.errors[1][0]] for p in found])
    assert all(p.certificate.verdict == "exact" for p in found)
    rms = np.sqrt((z**2).mean(axis=0))
    assert (rms > 0.7).all()
    assert (rms < 1.35).all()


def test_corrected_moments_do_not_depend_on_the_columns_units():
    """Case 6: scales of 1e±6."""
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(400), rng.normal(size=(400, 3))])
    y = X @ [0.2, 1.0, -1.0, 0.5] + rng.logistic(size=400) > 0
    units = np.array([1.0, 1e6, 1e-6, 1.0])
    plain = sample(targets.logistic(X, y, prior_precision=0.01), seed=3)
    scaled = sample(targets.logistic(X * units, y, prior_precision=0.01 * units**2), seed=3)
    assert scaled.mean * units == pytest.approx(plain.mean, rel=1e-5)
    assert scaled.errors[0] * units == pytest.approx(plain.errors[0], rel=1e-2)


@pytest.mark.untraced
def test_the_choice_is_the_same_for_all_seeds():
    """Case 5: with noise measured at the same states and rows, whatever the seed."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(200_000), rng.normal(size=(200_000, 9))])
    target = targets.logistic(X, rng.random(200_000) < 0.01)
    found = [sample(target, 100, seed=seed, certificate=False) for seed in range(3)]
    assert len({(str(p.sampler), p.why) for p in found}) == 1


def test_threads_of_the_linear_algebra_do_not_change_the_number_of_draws():
    """Case 6: they change the last digits of a mode, and so of all that follows."""

    def sizes_and_means(threads):
        rng = np.random.default_rng(2)
        with threadpool_limits(threads, "blas"):
            for dim in (30, 150):
                X = rng.normal(size=(1000, dim))
                posterior = sample(targets.logistic(X, X[:, 0] + rng.logistic(size=1000) > 0), 300, seed=4)
                yield posterior.trace.draws.shape, posterior.mean.round(8).sum().round(6)

    of_one, of_two = (list(sizes_and_means(threads)) for threads in (1, 2))
    assert of_one == of_two
    assert [shape[0] for shape, _ in of_one] == [4, 4]


@pytest.mark.untraced
@pytest.mark.ordinary(lambda kind: kind != "sparse")
@pytest.mark.parametrize("kind", ["sparse", "one-hot", "tall"])
def test_budgets_in_seconds_are_kept(kind):
    """Case 5: all but compilation counted; a fifth more on a quiet machine, and much more on a busy one."""
    rng = np.random.default_rng(6)
    if kind == "sparse":
        X = scipy.sparse.random_array((20_000, 300), density=0.05, rng=rng, format="csr")
    elif kind == "one-hot":
        X = np.zeros((20_000, 100))
        X[np.arange(20_000), rng.integers(0, 100, 20_000)] = 1
    else:
        X = rng.normal(size=(300_000, 2))
    target = targets.logistic(X, rng.random(X.shape[0]) < 0.3)
    sample(target, 10)  # compiled, and the mode is known
    posterior = sample(target, 10**6, budget_seconds=2.0)
    assert not posterior.complete
    assert 0.1 < posterior.seconds < 8.0
    assert posterior.ess.min() > 20


@pytest.mark.untraced
def test_many_columns_and_draws_do_not_make_an_exact_run_doubtful():
    """A covariance found from the draws themselves would shift the average of (x − x̄)∇f by dim over their number."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(1500, 80))
    target = targets.logistic(X, X[:, 0] + rng.logistic(size=1500) > 0)
    for seed in range(2):
        posterior = sample(target, 6000, seed=seed)
        assert posterior.certificate.verdict == "exact", str(posterior)
        assert "was undecided" not in posterior.why


@pytest.mark.untraced
def test_of_several_attempts_the_best_is_given_with_what_all_of_them_took():
    X = np.ones((30, 1))
    target = targets.logistic(X, np.arange(30) < 3, prior_precision=0.01)
    posterior = sample(target, 200, method="anchored", tolerance=1e-6)
    assert posterior.certificate.verdict != "certified"
    assert posterior.sampler.dynamics.step_size == 1 / 16
    one = sample(target, 200, method=posterior.sampler, tolerance=1e-6)
    assert posterior.passes > 1.5 * one.passes
    assert posterior.seconds == pytest.approx(sum(posterior.steps.values()), rel=0.2)


def two_modes(away):
    """A mixture of N(−a, 1) and N(a, 1), by its gradients."""

    def gradients(x, rows):
        a, b = 0.4 * np.exp(-((x + away) ** 2) / 2), 0.6 * np.exp(-((x - away) ** 2) / 2)
        return np.repeat(((x + away) * a + (x - away) * b) / (a + b), len(rows))[:, None]

    def potential(x):
        return float(-np.log(0.4 * np.exp(-((x[0] + away) ** 2) / 2) + 0.6 * np.exp(-((x[0] - away) ** 2) / 2)))

    return targets.custom(4, 1, gradients, potential)


@pytest.mark.slow
def test_a_posterior_of_two_modes_is_not_certified_as_one():
    """Where chains see both; what none of them has seen, nothing can tell."""
    away = 2.0
    sd = math.sqrt(1 + 4 * 0.4 * 0.6 * away**2)
    for seed in (0, 1):
        posterior = sample(two_modes(away), 100, seed=seed)
        if posterior.certificate.verdict == "certified":
            assert posterior.sd[0] == pytest.approx(sd, abs=0.02 * sd + 4 * posterior.errors[1][0])


def test_a_single_component_is_enough():
    target = targets.custom(1, 2, lambda x, rows: (np.asarray(x) - [1.0, 2.0])[None] * [1.0, 4.0])
    posterior = sample(target, 100, tolerance=0.1)
    assert posterior.certificate.verdict == "local"  # nothing says that f is convex
    assert posterior.mean == pytest.approx([1.0, 2.0], abs=1e-6)
    assert posterior.sd == pytest.approx([1.0, 0.5], rel=1e-6)


@pytest.mark.parametrize("method", ["anchored", None])
def test_budgets_of_passes_hold_where_rows_are_few(method):
    X = np.column_stack([np.ones(5), [-1.0, 0.3, 0.8, 1.9, -0.4]])
    target = targets.logistic(X, [0, 1, 0, 1, 1])
    for budget in (300, 3000):
        assert sample(target, 10**5, method=method, budget_passes=budget).passes < 1.2 * budget
