"""What the machine of `tests/fuzz` found: each input once, with the answer that it must have."""

import warnings

import numpy as np
import pytest

import svrhmc
from svrhmc import dynamics, targets
from svrhmc.targets import priors


@pytest.fixture(autouse=True)
def _no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda: targets.glm([[0.25]], [0], weights=[1e9], prior_precision=0.125), [1e300]),
        (lambda: targets.glm([[0.0]], [0], prior=priors.StudentT(0.125, 0.125)), [1.7e153]),
        (lambda: targets.glm([[0.75]], [0], "poisson"), [1000.0]),
        (lambda: targets.glm([[0.0]], [0], "negative-binomial"), [0.0, 1000.0]),
        (lambda: targets.gaussian([[0.0], [8e155]], [[[0.125]], [[0.14]]]), [0.5]),
        (lambda: targets.custom(1, 1, lambda x, rows: np.full((1, 1), np.nan)), [0.0]),
    ],
)
def test_what_float64_does_not_hold_is_an_error_and_no_warning_or_nan(make, x):
    target = make()
    for ask in (
        target.potential,
        target.gradient,
        lambda at: target.component_gradients(at, [0]),
        getattr(target, "hessian", target.gradient),
    ):
        try:
            assert np.isfinite(ask(x)).all()
        except ValueError as error:
            assert "must be finite in float64" in str(error) or "must be given to custom" in str(error)


def test_a_regression_whose_sums_overflow_says_so():
    with pytest.raises(ValueError, match=r"∇²f at x = \[0\.\] must be finite in float64"):
        targets.linear([[0.0], [1e300]], [0.0, 1.7e308], prior_precision=1e-300).closed_form
    with pytest.raises(ValueError, match=r"X, y and the prior must be of ordinary size"):
        targets.conjugate([[0.125]], [0.0], 0.125, 1e160).exact_law
    assert targets.glm([[0.0], [1.25e154]], [0, 1], "poisson", prior_precision=1.5).mode() == [0.0]  # e⁰ = y


def test_settings_of_targets_and_priors_are_checked_at_the_door():
    with pytest.raises(ValueError, match="so small that their products do not overflow"):
        targets.synthetic(1, 2, eigenvalues=(0.125, 1.7e308))
    with pytest.raises(ValueError, match="spread must be a number not below 0; got None"):
        targets.synthetic(1, 1, spread=None)
    with pytest.raises(ValueError, match="eigenvalues must be an array of"):
        targets.synthetic(1, 1, eigenvalues="ab")
    with pytest.raises(ValueError, match="prior_precision must be finite"):
        priors.Normal(float("nan"))
    with pytest.raises(ValueError, match="prior_mean must be an array of numbers; got lists of unequal lengths"):
        priors.Normal(1.0, [1, [2, 3]])
    with pytest.raises(ValueError, match="location must be a finite number; got 'x'"):
        priors.StudentT(3.0, 1.0, "x")
    with pytest.raises(ValueError, match="1/sd² must be a positive number; got inf"):
        priors.Normal.with_sd(1e-160)
    with pytest.raises(ValueError, match="that float64 can hold"):
        priors.Normal(10**400)
    with pytest.raises(ValueError, match="that float64 can hold"):
        svrhmc.hmc(10**400)


def test_a_step_beyond_all_measure_is_unstable():
    with pytest.raises(svrhmc.UnstableStepError):
        dynamics.Overdamped(4.5).check_stable(targets.gaussian([[0.0]], [[3.9e307]]))
    with pytest.raises(ValueError, match="of ordinary size beside each other"):
        dynamics.Anchored(1491.0, 2.0).check_stable(targets.gaussian([[0.0]], [[0.125]]))
    with pytest.raises(ValueError, match="step_size"):
        dynamics.BAOAB(1e160).check_stable(targets.gaussian([[0.0]], [[0.125]]))
