"""Heavy tails of parameters on the scale on which a model states them."""

import re

import numpy as np
import pytest

import svrhmc
from svrhmc.core.summaries import Summary
from svrhmc.sampling.answer import Parameters
from svrhmc.sampling.tails import NO_MEAN, NO_VARIANCE, UNKNOWN_ERROR, UNSTABLE, heavy_shapes, pareto_shapes

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
    assert np.isinf(moments.sd_error[2])  # E a⁴ may be infinite
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


def test_what_the_density_shows_stands_above_what_draws_do():
    """nan: nothing is known; 0: E a⁴ is finite; from ¼ on it is not."""
    rng = np.random.default_rng(1)
    draws = rng.pareto(2.5, (4, 2000, 4))
    found = heavy_shapes(draws, np.array([np.nan, 0.0, 0.3, 1.0]))
    np.testing.assert_array_equal(found[1:], [0.0, 0.3, 1.0])
    assert found[0] >= UNSTABLE > UNKNOWN_ERROR


def student(df, dim=3, shape=None):
    """Student's law with no data that say anything: independent coordinates, or a joint one of such a shape matrix."""
    jnp = pytest.importorskip("jax").numpy

    def log_prior(params):
        x = params["x"]
        if shape is None:
            return (-(df + 1) / 2 * jnp.log1p(x**2 / df)).sum()
        return -(df + dim) / 2 * jnp.log1p(x @ jnp.linalg.solve(jnp.array(shape), x) / df)

    return svrhmc.targets.model(
        lambda params, row: 0.0 * params["x"].sum() * row["y"], log_prior, {"y": np.zeros(2)}, {"x": np.zeros(dim)}
    )


@pytest.mark.filterwarnings("ignore::svrhmc.VerdictWarning")
@pytest.mark.untraced
def test_a_heavy_tail_of_finite_variance_leaves_the_sds_undecided():
    """Student's law of 2.2 degrees of freedom has an sd of 3.3, of which draws show 1.9: its k is 1/2.2, and quantiles
    are those of the draws. The 95% quantile is 2.77, and its error of 1,000 effective draws 0.16.
    """
    posterior = svrhmc.sample(student(2.2), seed=0)
    assert posterior.certificate.verdict == "undecided"
    assert "only like 1/|x[0]|^3.2, so that its sd (and those of 2 more)" in posterior.certificate.reason
    np.testing.assert_allclose(posterior.tails, 1 / 2.2, atol=1e-3)
    assert np.isinf(posterior.errors[1]).all()
    text = str(posterior.summary())
    assert "Tails: The standard deviation is unstable" in text.replace("\n", " ")
    draws = posterior.trace.draws.reshape(-1, 3)
    np.testing.assert_allclose(posterior.interval(0.9)[:, 1], np.quantile(draws, 0.95, axis=0), rtol=1e-12)
    assert abs(posterior.interval(0.9)[:, 1] - 2.77).max() < 4.5 * 0.16


@pytest.mark.filterwarnings("ignore::svrhmc.VerdictWarning")
@pytest.mark.untraced
def test_the_tail_of_a_joint_law_is_that_of_its_coordinates():
    """Along a ray a joint law falls like 1/|x|^(df + 3), and a coordinate like 1/|x|^(df + 1), as the others widen."""
    shape = [[1.0, 0.8, 0.0], [0.8, 1.0, 0.3], [0.0, 0.3, 1.0]]
    posterior = svrhmc.sample(student(2.5, shape=shape), seed=0)
    np.testing.assert_allclose(posterior.tails, 1 / 2.5, atol=1e-2)


@pytest.mark.untraced
def test_the_error_of_an_sd_knows_what_lies_beyond_all_draws():
    """Of Student's law with 5 degrees of freedom, sd 1.291, one coordinate of these draws lacks a tail."""
    posterior = svrhmc.sample(student(5.0), seed=0)
    assert posterior.certificate.verdict == "local"
    assert posterior.tails is None
    assert (abs(posterior.sd - np.sqrt(5 / 3)) < 3 * posterior.errors[1]).all()
    assert abs(posterior.sd - np.sqrt(5 / 3)).max() > 0.05  # without that the error was 0.008


@pytest.mark.filterwarnings("ignore::svrhmc.VerdictWarning")
@pytest.mark.untraced
def test_of_cauchys_law_no_mean_and_no_sd_is_printed(tmp_path):
    posterior = svrhmc.sample(student(1.0), seed=0)
    assert posterior.certificate.verdict == "undecided"
    assert "neither mean nor variance" in posterior.certificate.reason
    assert np.isnan(posterior.mean).all()
    assert np.isnan(posterior.sd).all()
    assert np.isfinite(posterior.interval()).all()
    assert re.search(r"^x\[0\] +– +– +-\d", str(posterior.summary()), flags=re.MULTILINE)
    posterior.save(tmp_path / "cauchy")
    again = svrhmc.Posterior.load(tmp_path / "cauchy")
    np.testing.assert_array_equal(again.sd, posterior.sd)


@pytest.mark.untraced
@pytest.mark.parametrize("law", ["normal", "logistic", "log of exponential"])
def test_light_tails_raise_no_alarm(law):
    """100 seeds each, and 100 each of a logistic regression, the eight schools and a mixed model, raised none."""
    jnp = pytest.importorskip("jax").numpy
    jax = pytest.importorskip("jax")
    log_prior = {
        "normal": lambda x: -0.5 * x**2 + 0.05 * jnp.tanh(x),
        "logistic": lambda x: -x - 2 * jax.nn.softplus(-x),
        "log of exponential": lambda x: x - jnp.exp(x),
    }[law]
    target = svrhmc.targets.model(
        lambda params, row: 0.0 * params["x"].sum() * row["y"], lambda params: log_prior(params["x"]).sum(),
        {"y": np.zeros(2)}, {"x": np.zeros(3)},
    )  # fmt: skip
    for seed in range(3):
        posterior = svrhmc.sample(target, seed=seed)
        assert posterior.tails is None
        assert posterior.certificate.verdict == "local"
