"""Names of a model of one's own in what a sampler of the grid, or a posterior, gives back."""

import numpy as np
import pytest

import svrhmc

jax = pytest.importorskip("jax")
logpdf = jax.scipy.stats.norm.logpdf
X = np.linspace(-1, 1, 30)


@pytest.fixture(scope="module")
def target():
    return svrhmc.targets.model(
        lambda params, row: logpdf(row["y"], params["w"][0] * row["x"] + params["w"][1] + params["b"], 1.0),
        lambda params: logpdf(params["w"], 0, 1).sum() + logpdf(params["b"], 0, 1),
        {"x": X, "y": np.sin(7 * X) + X}, {"w": np.zeros(2), "b": 0.0},
    )  # fmt: skip


def test_a_trace_has_the_names_of_its_target(target, tmp_path):
    trace = svrhmc.svr_hmc(0.1).run(target, 40, burn_in=20, seed=0)
    assert trace.summary().names == ("b", "w[0]", "w[1]")
    data = trace.to_arviz()
    assert data.posterior["w"].shape == (4, 20, 2)
    np.testing.assert_array_equal(data.posterior["b"], trace.draws[:, :, 0])
    trace.save(tmp_path / "run.trace")
    assert svrhmc.Trace.load(tmp_path / "run.trace").names == trace.names
    assert svrhmc.svr_hmc(0.1).run(svrhmc.targets.synthetic(20, 2), 20).summary().names == ("x[0]", "x[1]")


def test_draws_by_name_are_there_where_the_parameters_are_the_coordinates(target):
    posterior = svrhmc.sample(target, draws=50, seed=0)
    arrays = posterior.by_name()
    assert arrays["w"].shape == (*posterior.trace.draws.shape[:2], 2)
    np.testing.assert_array_equal(arrays["b"], posterior.trace.draws[:, :, 0])


@pytest.mark.filterwarnings("ignore::svrhmc.VerdictWarning")
def test_a_sampler_of_the_grid_takes_the_curvature_of_whitened_variables(target):
    """Where the Hessian at the mode is the identity, an inverse mass that is not given is 1."""
    posterior = svrhmc.sample(target, draws=50, seed=0, method=svrhmc.svr_hmc(0.1), certificate=False)
    assert posterior.certificate.verdict == "unjudged"
    assert np.isfinite(posterior.mean).all()


def test_log_likelihoods_print_and_are_an_array(target):
    posterior = svrhmc.sample(target, draws=50, seed=0)
    found = posterior.log_likelihood(20)
    assert "array() has them" in repr(found)
    array = found.array()
    assert array.shape == (20, 30)
    with pytest.raises(ValueError, match="asked once"):
        found.array()
    blocks = np.concatenate([block for _, block in posterior.log_likelihood(20)], axis=1)
    np.testing.assert_array_equal(array, blocks)


def test_samplers_are_compared_where_the_law_is_known(target):
    with pytest.raises(ValueError, match=r"whose law is known, such as targets\.synthetic"):
        svrhmc.compare_samplers(target, [("svr", svrhmc.svr_hmc(0.1))], 5, 4)


def test_the_sensitivity_of_a_model_of_functions_is_that_of_the_same_regression(target):
    """Prior and likelihood are known as functions; the regression has the same ones."""
    y = np.sin(7 * X) + X
    own = svrhmc.sample(
        svrhmc.targets.model(
            lambda params, row: logpdf(row["y"], params["w"][0] * row["x"] + params["w"][1], 1.0),
            lambda params: logpdf(params["w"], 0, 0.3).sum(),
            {"x": X, "y": y}, {"w": np.zeros(2)},
        ), seed=0,
    ).sensitivity()  # fmt: skip
    rows = np.column_stack([X, np.ones(30)])
    known = svrhmc.sample(svrhmc.targets.linear(rows, y, prior_precision=1 / 0.09, noise_variance=1.0)).sensitivity()
    assert own.names == ("w[0]", "w[1]")
    assert np.allclose(own.prior, known.prior, atol=0.02)
    assert np.allclose(own.likelihood, known.likelihood, atol=0.02)
    assert own.prior[0] > 0.05


def test_axes_and_places_have_the_names_that_are_asked_for(target):
    posterior = svrhmc.sample(target, draws=50, seed=0)
    data = posterior.to_arviz(dims={"w": ["term"]}, coords={"term": ["slope", "level"]})
    assert data.posterior["w"].dims == ("chain", "draw", "term")
    assert data.posterior["w"].coords["term"].values.tolist() == ["slope", "level"]
    assert data.log_prior["log_prior"].shape == posterior.trace.draws.shape[:2]
    with pytest.raises(ValueError, match="names of the axes of variables"):
        posterior.to_arviz(dims={"w": ["a", "b"]})
    with pytest.raises(ValueError, match="2 labels"):
        posterior.to_arviz(dims={"w": ["term"]}, coords={"term": ["slope"]})


def test_words_of_other_libraries_are_answered_with_the_own_one(target):
    with pytest.raises(TypeError, match="unexpected keyword argument 'random_seed': it is called 'seed' here"):
        svrhmc.sample(target, random_seed=3)
    with pytest.raises(ValueError, match="got None: leave it out for 0; for other draws each time"):
        svrhmc.sample(target, seed=None)


def test_one_chain_is_not_said_to_agree_with_others(target):
    posterior = svrhmc.sample(target, draws=50, chains=1, seed=0)
    assert "the halves of its chain agree" in " ".join(str(posterior.summary()).split())
