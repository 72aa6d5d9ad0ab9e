"""Heavy tails of parameters on the scale on which a model states them."""

import re

import numpy as np
import pytest

from svrhmc.core.summaries import Summary
from svrhmc.sampling.parameters import NO_MEAN, NO_VARIANCE, UNSTABLE, Parameters, pareto_shapes

LAWS = {  # and the largest moment that exists
    "pareto, no variance": (lambda rng, size: rng.pareto(1.3, size), 1.3),
    "pareto to the left": (lambda rng, size: -rng.pareto(1.3, size), 1.3),
    "e to an exponential": (lambda rng, size: np.exp(rng.exponential(0.8, size)), 1.25),
    "cauchy": (lambda rng, size: rng.standard_cauchy(size), 1.0),
}
LIGHT = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "gamma": lambda rng, size: rng.gamma(0.5, size=size),
    "log-normal": lambda rng, size: rng.lognormal(0.0, 0.5, size),
    "student": lambda rng, size: rng.standard_t(8, size),
    "constant": lambda rng, size: np.ones(size),
    "two values": lambda rng, size: 1.0 * (rng.random(size) < 0.01),
    "huge": lambda rng, size: 1e200 * rng.standard_normal(size),
}


def drawn(law, seed=0, size=(4, 1000, 20)):
    """Twenty quantities of one law."""
    return law(np.random.default_rng(seed), size)


@pytest.mark.parametrize("name", LAWS)
def test_the_shape_of_a_heavy_tail_is_that_of_its_law(name):
    """k = 1/(the largest moment); its error is (1 + k)/√M for M = 190 draws of the tail, and 20 are averaged. A shape
    of half as much would be seen.
    """
    law, largest = LAWS[name]
    k, error = 1 / largest, (1 + 1 / largest) / np.sqrt(190 * 20)
    found = pareto_shapes(drawn(law))
    assert abs(found.mean() - k) < 4.5 * error + 10 / 200 * abs(k - 0.5) + 0.02  # drawn towards one half
    assert abs(found.mean() - k / 2) > 4.5 * error
    assert (found >= UNSTABLE).all()


@pytest.mark.parametrize("name", LIGHT)
def test_light_tails_have_a_standard_deviation(name):
    assert (pareto_shapes(drawn(LIGHT[name])) < UNSTABLE).all()


def test_draws_that_repeat_have_a_longer_tail_and_the_same_shape():
    """Each draw eight times in a row, as of a chain that moves slowly."""
    slow = np.repeat(drawn(LAWS["pareto, no variance"][0], size=(4, 1000, 20)), 8, axis=1)
    assert abs(pareto_shapes(slow).mean() - 1 / 1.3) < 0.15


def test_of_a_parameter_without_variance_quantiles_are_reported_and_no_sd():
    rng = np.random.default_rng(1)
    size = (4, 2000)
    columns = [rng.standard_normal(size), rng.pareto(1.3, size), rng.pareto(2.5, size), rng.pareto(0.8, size)]
    found = Parameters(("light", "heavy", "loose", "heaviest"), np.stack(columns, axis=2))
    assert found.shapes[0] < UNSTABLE <= found.shapes[2] < NO_VARIANCE <= found.shapes[1] < NO_MEAN <= found.shapes[3]
    moments = found.moments
    np.testing.assert_array_equal(np.isnan(moments.sd), [False, True, False, True])
    np.testing.assert_array_equal(np.isnan(moments.mean_error), [False, True, False, True])
    np.testing.assert_array_equal(np.isnan(moments.mean), [False, False, False, True])
    said = found.heavy(8)
    median = np.median(columns[1])
    assert "No standard deviation can be reported" in said
    assert f"heavy (k {found.shapes[1]:.2f})" in said
    assert f" {median:.4g}, " in said
    assert "is unstable" in said
    assert "loose (k" in said.split("is unstable")[1]
    assert "light" not in said
    assert found.heavy(1).count("more") == 3  # "or more" twice, and one name that is left out
    assert re.search(r"^heaviest +– +– ", str(Summary(found.names, found.columns(0.9))), flags=re.MULTILINE)


def test_light_parameters_say_nothing():
    found = Parameters(("a",), drawn(LIGHT["normal"], size=(4, 100, 1)))
    assert found.heavy(8) == ""
    assert np.isfinite(found.moments.sd).all()
