"""Parameters that are functions of what was sampled: their means and sds are corrected by the gradients at the draws."""

import numpy as np
import pytest
from scipy.special import gammaln

from svrhmc.sampling import correction as correction_module
from svrhmc.sampling.answer import Parameters
from svrhmc.sampling.correction import corrected_functions, correction

SHAPE = 5.0
W = np.array([[SHAPE**-0.5, 0.0], [SHAPE**-0.5, 1.0]])  # Σ̂ = WWᵀ is the covariance of (x, y) near the mode


def drawn(count=6000, chains=4, seed=0, shape=SHAPE):
    """x = log of a gamma law, y = x + a normal, and Σ̂∇f there, which is that of a gamma law with another shape if it is
    given.
    """
    rng = np.random.default_rng(seed)
    x = np.log(rng.gamma(SHAPE, size=(chains, count // chains)))
    y = x + rng.standard_normal(x.shape)
    draws = np.stack([x, y], axis=2)
    slopes = np.stack([np.exp(x) - shape - (y - x), y - x], axis=2)
    return draws, slopes @ W @ W.T


def functions(draws):
    """√(e^x), whose moments are those of a gamma law's root; 2x − y + 3; and x itself."""
    x, y = draws[..., 0], draws[..., 1]
    return np.stack([np.exp(x / 2), 2 * x - y + 3, x], axis=2)


def known():
    """Means and sds: E g^(1/2) = Γ(k + ½)/Γ(k), and E x is the digamma function, by a difference of log Γ."""
    root = np.exp(gammaln(SHAPE + 0.5) - gammaln(SHAPE))
    step = 1e-4
    mean = (gammaln(SHAPE + step) - gammaln(SHAPE - step)) / (2 * step)
    variance = (gammaln(SHAPE + step) - 2 * gammaln(SHAPE) + gammaln(SHAPE - step)) / step**2
    return np.array([root, mean + 3, mean]), np.sqrt([SHAPE - root**2, variance + 1, variance])


def scores(found):
    mean, sd = known()
    return np.abs(found.mean - mean) / found.mean_error, np.abs(found.sd - sd) / found.sd_error


def test_functions_of_the_draws_have_the_moments_that_they_should_with_small_errors():
    x, h = drawn()
    found = corrected_functions(functions(x), x, h, lambda w: w @ W)
    assert max(map(np.max, scores(found))) < 4.5
    raw = known()[1] / np.sqrt(6000)
    assert (found.mean_error < 0.3 * raw).all()
    assert (found.sd_error < 0.6 * raw).all()


def test_the_gradients_of_another_law_would_be_seen():
    """The test above is not blind."""
    x, h = drawn(shape=SHAPE + 0.3)
    means, sds = scores(corrected_functions(functions(x), x, h, lambda w: w @ W))
    assert (means > 4.5).all()
    means, sds = scores(corrected_functions(functions(x), *drawn(), lambda w: 1.2 * w @ W))
    assert (sds > 4.5).any()


@pytest.mark.parametrize("count", [6000, 32])
def test_a_coordinate_has_the_moments_of_the_coordinate(count):
    """With many draws, where all coordinates are regressed on together, and with few."""
    x, h = drawn(count)
    direct = correction(x, h, (W**2).sum(axis=1))[1]
    found = corrected_functions(x, x, h, lambda w: w @ W)
    for name in ("mean", "sd", "mean_error", "sd_error"):
        np.testing.assert_allclose(getattr(found, name), getattr(direct, name), rtol=1e-6)


def test_what_never_moves_and_what_would_be_long(monkeypatch):
    x, h = drawn(400)
    found = corrected_functions(np.full((4, 100, 1), 3.0), x, h, lambda w: w @ W)
    assert (found.mean[0], found.sd[0], found.mean_error[0], found.sd_error[0]) == (3.0, 0.0, 0.0, 0.0)
    monkeypatch.setattr(correction_module, "_PRODUCTS", 100)
    assert corrected_functions(functions(x), x, h, lambda w: w @ W) is None


def test_moments_of_other_numbers_are_refused():
    x, h = drawn(400)
    moments = corrected_functions(functions(x), x, h, lambda w: w @ W)
    with pytest.raises(ValueError, match="moments of 2 numbers; got 3"):
        Parameters(("a", "b"), x, moments).require_sound()
