import math
import sys

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import linear_sum_assignment

from conftest import LIMIT
from svrhmc.distances import empirical_w2, gaussian_w2, plug_in_floor, plug_in_w2, sliced_w2

SPECTRA = {10: 1 / np.linspace(2 / 3, 3 / 2, 10), 50: 1 / np.linspace(2 / 3, 3 / 2, 50)}


def covariance(seed, dim=4):
    root = np.random.default_rng(seed).normal(size=(dim, dim))
    return root @ root.T


def test_gaussian_w2_is_the_textbook_formula():
    a, b = covariance(0), covariance(1)
    root = sqrtm(a)
    expected = 2.0**2 + np.trace(a + b - 2 * np.real(sqrtm(root @ b @ root)))
    assert gaussian_w2([0] * 4, a, [1] * 4, b) ** 2 == pytest.approx(expected, rel=1e-12)
    assert gaussian_w2([1] * 4, b, [0] * 4, a) == pytest.approx(math.sqrt(expected), rel=1e-12)


def test_gaussian_w2_of_commuting_covariances_is_that_of_their_roots():
    s, t = np.array([1.0, 4.0, 9.0]), np.array([4.0, 1.0, 16.0])
    assert gaussian_w2(np.zeros(3), np.diag(s), np.zeros(3), np.diag(t)) == pytest.approx(math.sqrt(3), rel=1e-14)


@pytest.mark.parametrize("tiny", [1e-6, 1e-10, 1e-13])
def test_gaussian_w2_keeps_its_digits_where_the_laws_nearly_agree(tiny):
    """½ Σ H²/(λᵢ + λⱼ) is the second-order expansion; the trace formula has no digit left at 1e-10."""
    lam = np.array([0.5, 1.0, 3.0])
    H = np.array([[1.0, 0.3, -0.2], [0.3, -0.5, 0.4], [-0.2, 0.4, 0.8]])
    expected = tiny * math.sqrt(0.5 * (H**2 / (lam[:, None] + lam)).sum())
    got = gaussian_w2(np.zeros(3), np.diag(lam), np.zeros(3), np.diag(lam) + tiny * H)
    assert got == pytest.approx(expected, rel=max(1e-5, 1e-15 / tiny * 10))
    assert gaussian_w2(np.zeros(3), np.diag(lam), np.zeros(3), np.diag(lam)) < 1e-15


def test_gaussian_w2_of_a_degenerate_law():
    assert gaussian_w2([0.0, 0.0], np.zeros((2, 2)), [3.0, 0.0], np.diag([0.0, 16.0])) == pytest.approx(5.0)


@pytest.mark.parametrize(("dim", "expected"), [(10, 0.0425), (50, 0.1808)])
def test_floor_of_the_paper_repeats(dim, expected):
    assert plug_in_floor(np.diag(SPECTRA[dim]), 20_000) == pytest.approx(expected, rel=0.005)


def test_floor_is_the_root_mean_square_of_the_plug_in_on_exact_draws():
    rng, C, N = np.random.default_rng(5), np.diag(SPECTRA[10]), 2000
    squares = []
    for _ in range(300):
        near = plug_in_w2(rng.normal(size=(N, 10)) * np.sqrt(SPECTRA[10]), np.zeros(10), C)
        squares.append(near.value**2)
    z = (np.mean(squares) - near.floor**2) / (np.std(squares) / math.sqrt(len(squares)))
    assert abs(z) < LIMIT
    biased = plug_in_w2(1.1 * rng.normal(size=(N, 10)) * np.sqrt(SPECTRA[10]), np.zeros(10), C)
    assert biased.value > 2 * biased.floor


def test_floor_of_a_degenerate_law():
    assert plug_in_floor(np.diag([1.0, 0.0, 0.0]), 100) == pytest.approx(math.sqrt(1.5 / 100))


def test_empirical_w2_solves_the_assignment():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(40, 3)), rng.normal(size=(40, 3)) + 1
    cost = ((a[:, None] - b) ** 2).sum(-1)
    row, column = linear_sum_assignment(cost)
    assert empirical_w2(a, b) == pytest.approx(math.sqrt(cost[row, column].mean()), rel=1e-12)
    assert empirical_w2(a, np.repeat(a, 2, axis=0)) == pytest.approx(0, abs=1e-7)


def test_empirical_w2_without_pot_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(ModuleNotFoundError, match=r"empirical_w2 needs POT: pip install 'svrhmc\[transport\]'"):
        empirical_w2([[0.0]], [[1.0]])


def test_sliced_w2_of_a_shift_and_of_unequal_sizes():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(500, 4))
    shift = np.array([3.0, 0, 0, 0])
    assert sliced_w2(a, a + shift, projections=4000) == pytest.approx(1.5, rel=0.05)
    assert sliced_w2(a, np.repeat(a, 3, axis=0)) == pytest.approx(0, abs=1e-12)
    line, other = rng.normal(size=(30, 1)), rng.normal(size=(42, 1))
    assert sliced_w2(line, other) == pytest.approx(empirical_w2(line, other), rel=1e-10)
    assert sliced_w2(a, a + shift, seed=1) != sliced_w2(a, a + shift, seed=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gaussian_w2([0.0], [[1.0]], [0.0, 1.0], np.eye(2)), "mean_b must be of length 1, as mean_a is; got length 2."),
        (lambda: gaussian_w2([0.0], [[-1.0]], [0.0], [[1.0]]), "cov_a must be positive semi-definite; got eigenvalue -1."),
        (lambda: gaussian_w2([0.0] * 2, [[1.0, 0.5], [0.0, 1.0]], [0.0] * 2, np.eye(2)), "cov_a must be symmetric; got a matrix that is not."),
        (lambda: gaussian_w2([0.0], [1.0], [0.0], [[1.0]]), "cov_a must be an array of shape (1, 1); got shape (1,)."),
        (lambda: plug_in_w2([[0.0]], [0.0], [[1.0]]), "draws must be at least 2 rows; got 1."),
        (lambda: sliced_w2([[0.0]], [[0.0, 1.0]]), "b must be an array of shape (M, 1); got shape (1, 2)."),
        (lambda: sliced_w2([[0.0]], [[1.0]], projections=0), "projections must be a whole number of at least 1; got 0."),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises(ValueError, match="must be") as caught:
        make()
    assert str(caught.value) == message


def test_means_far_from_0_do_not_swallow_the_covariances():
    """W₂ of equal means is that of the covariances, wherever the means are."""
    far, C = np.full(2, 1e160), np.array([[0.3, 0.1], [0.1, 0.2]])
    near = gaussian_w2(np.zeros(2), C, np.zeros(2), np.eye(2))
    assert gaussian_w2(far, C, far, np.eye(2)) == pytest.approx(near, rel=1e-14)
