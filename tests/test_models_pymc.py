"""The door for PyMC: the density is the model's own, data are arguments, and what is no sum is one component."""

import os

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pm = pytest.importorskip("pymc")

import pytensor.tensor as pt  # noqa: E402
from scipy.stats import norm  # noqa: E402

import library_models  # noqa: E402
import svrhmc  # noqa: E402
from library_models import BASIS, COUNTS, EVENTS, GROUP, LEVELS, NUMBERS, N, X, around, densities  # noqa: E402
from quadrature import line_moments  # noqa: E402
from svrhmc.core.jax import scope  # noqa: E402
from svrhmc.models import description as described_module  # noqa: E402
from svrhmc.models import pymc as pymc_module  # noqa: E402
from svrhmc.models.pymc import describe_pymc  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore:Data in y contains missing values"),
]


def logistic():
    b = pm.Normal("b", 0, 2, shape=3)
    pm.Bernoulli("y", logit_p=pt.dot(pm.Data("x", X), b), observed=EVENTS)


def poisson():
    pm.modelcontext(None).add_coords({"group": range(7), "row": range(N)})
    b = pm.Normal("b", 0, 1, shape=3)
    spread = pm.HalfCauchy("spread", 1)
    raw = pm.Normal("raw", dims="group")
    intercept = pm.Deterministic("intercept", 0.5 + spread * raw, dims="group")
    mean = pm.Deterministic("mean", pt.exp(0.3 * pt.dot(X, b) + intercept[GROUP]), dims="row")
    pm.Poisson("y", mean, observed=COUNTS, dims="row")


def spline():
    scale = pm.LogNormal("scale", 0, 1)
    weights = pm.GaussianRandomWalk("weights", sigma=scale, init_dist=pm.Normal.dist(0, 1), steps=4)
    noise = pm.InverseGamma("noise", 2, 1)
    pm.Normal("y", pt.dot(BASIS, weights) + pt.zeros(N), noise, observed=NUMBERS)


def mixture():
    weights = pm.Dirichlet("weights", np.ones(3))
    means = pm.Normal("means", 0, 2, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1, 0, 1])
    spread = pm.HalfNormal("spread", 1)
    pm.NormalMixture("y", weights, means, sigma=spread, observed=NUMBERS)


def ordinal():
    b = pm.Normal("b", 0, 1, shape=3)
    cuts = pm.Normal("cuts", 0, 2, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1, 0, 1])
    pm.OrderedLogistic("y", eta=pt.dot(X, b), cutpoints=cuts, observed=LEVELS, compute_p=False)


def network():
    first = pm.Normal("first", shape=(3, 4))
    second = pm.Normal("second", shape=4)
    noise = pm.Exponential("noise", 1)
    pm.StudentT("y", 4, mu=pt.dot(pt.tanh(pt.dot(X, first)), second), sigma=noise, observed=NUMBERS)


def bounded_by_another():
    top = pm.Gamma("top", 2, 1)
    b = pm.Uniform("b", -top, top, shape=3)
    pm.Bernoulli("y", logit_p=pt.dot(X, b), observed=EVENTS)


def likelihood_of_ones_own():
    b = pm.Normal("b", 0, 2, shape=3)
    x = pm.Data("x", X)
    pm.Potential("prior", -pt.sum(b**4))
    pm.Potential("more", -0.1 * pt.sum((x[:, 1] - b[0]) ** 2))
    pm.Normal("once", b[0], 0.1, observed=0.3)
    pm.Binomial("y", n=N, p=pm.math.invlogit(pt.dot(x, b)), observed=COUNTS)  # as many trials as rows
    pm.MvNormal("several", b, np.eye(3), observed=X)


def probit():
    """Normal CDFs go by erfcx, which JAX does not have; and PyMC has some numbers in float32."""
    b = pm.Normal("b", 0, 1, shape=3)
    pm.OrderedProbit("y", eta=pt.dot(X, b), cutpoints=[-1.0, 0.0, 1.0], observed=LEVELS, compute_p=False)


def correlated():
    """The prior has arrays of numbers beside float32, which JAX would round."""
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0, shape=2))
    effects = pm.Deterministic("effects", pt.dot(pm.Normal("z", shape=(7, 2)), chol.T))
    pm.Normal("y", effects[GROUP, 0] + effects[GROUP, 1] * X[:, 0].astype(np.float32), 1.0, observed=NUMBERS)


def process():
    cov = pm.gp.cov.Matern52(1, ls=pm.InverseGamma("length", 2, 1))
    mean = pm.gp.HSGP(m=[5], c=1.5, cov_func=cov).prior("f", X[:, :1])
    pm.Normal("y", mean, 1.0, observed=pm.Data("observations", NUMBERS))


def known_spread():
    """Poisson with random intercepts of known spread: log-concave."""
    b = pm.Normal("b", 0, 1, shape=3)
    intercept = pm.Normal("intercept", 0.5, 0.7, shape=7)
    pm.Poisson("y", pt.exp(0.3 * pt.dot(X, b) + intercept[GROUP]), observed=COUNTS)


def known_scale():
    """A spline whose weights have a known scale."""
    weights = pm.GaussianRandomWalk("weights", sigma=0.8, init_dist=pm.Normal.dist(0, 1), steps=4)
    pm.Normal("y", pt.dot(BASIS, weights), pm.InverseGamma("noise", 2, 1), observed=NUMBERS)


def known_process():
    """A Gaussian process of known length."""
    cov = pm.gp.cov.Matern52(1, ls=0.7)
    mean = pm.gp.HSGP(m=[5], c=1.5, cov_func=cov).prior("f", X[:, :1])
    pm.Normal("y", mean, 1.0, observed=pm.Data("observations", NUMBERS))


MODELS = {
    "logistic": logistic,
    "poisson": poisson,
    "spline": spline,
    "mixture": mixture,
    "ordinal": ordinal,
    "network": network,
    "bounded by another": bounded_by_another,
    "likelihood of one's own": likelihood_of_ones_own,
    "probit": probit,
    "correlated": correlated,
    "process": process,
    "known spread": known_spread,
    "known scale": known_scale,
    "known process": known_process,
}
LOG_CONCAVE = (
    "logistic", "ordinal", "likelihood of one's own", "probit", "known spread", "known scale", "known process",
)  # fmt: skip
NOT_IN_JAX = ("probit",)  # by PyMC itself


def made(build):
    with pm.Model() as model:
        build()
    return model


def own(model, params):
    """By PyTensor's Python code, which shares nothing with JAX."""
    density = model.compile_logp(mode="FAST_COMPILE")
    return np.array([density({k: v[i] for k, v in params.items()}) for i in range(len(next(iter(params.values()))))])


@pytest.mark.parametrize("name", MODELS)
def test_the_density_is_the_models_own(name):
    model = made(MODELS[name])
    described = describe_pymc(model)
    params = around(described.init, spread=0.5)
    expected = own(model, params)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(densities(described, params), expected, rtol=1e-10)


def test_a_difference_would_be_seen():
    """The test above is not blind: without one row the density is another."""
    model = made(logistic)
    described = describe_pymc(model)
    params = around(described.init, 5)
    described.data["x"] = np.concatenate([X[:-1], X[:1]])
    assert np.abs(densities(described, params) / own(model, params) - 1).min() > 1e-6


def target(name):
    return svrhmc.targets.from_pymc(made(MODELS[name]))


def nuts(name):
    """Draws of NUTS in PyMC: by NumPyro, which is the quicker of those that it has, or its own."""
    own, by = {"cores": 1}, {"nuts_sampler": "numpyro", "nuts_sampler_kwargs": {"chain_method": "vectorized"}}
    with made(MODELS[name]), scope():
        drawn = pm.sample(
            library_models.DRAWS,
            tune=library_models.WARMUP,
            chains=library_models.CHAINS,
            target_accept=0.9,
            progressbar=False,
            random_seed=0,
            compute_convergence_checks=False,
            **(own if name in NOT_IN_JAX else by),
        )
    return {name: value.to_numpy() for name, value in drawn.posterior.data_vars.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_posterior_is_that_of_nuts(name):
    library_models.require_posterior(svrhmc.sample(target(name)), nuts(name), name in LOG_CONCAVE)


def test_loading_the_translation_changes_nothing_for_jax():
    """PyMC's module asks for a hundred devices, and PyTensor's for float64 everywhere."""
    before = os.environ.get("XLA_FLAGS")
    describe_pymc(made(logistic))
    assert os.environ.get("XLA_FLAGS") == before
    assert not jax.config.jax_enable_x64


def test_data_are_arguments():
    described = describe_pymc(made(logistic))
    assert set(described.data) == {"x", "y"}
    params = around(described.init, 1)
    with scope():
        jaxpr = jax.make_jaxpr(described.log_likelihood)(described.init, {"x": X[0], "y": EVENTS[0]})
    assert max(np.size(constant) for constant in jaxpr.consts) < N if jaxpr.consts else True
    whole = densities(described, params)
    described.data.update({name: value[: N // 2] for name, value in described.data.items()})
    assert not np.allclose(densities(described, params), whole)


def test_quantities_come_back_constrained_by_their_names():
    described = describe_pymc(made(mixture))
    assert described.names == ("weights", "means", "spread")
    with scope():
        found = jax.device_get(jax.jit(jax.vmap(described.constrain))(around(described.init)))
    np.testing.assert_allclose(found["weights"].sum(1), 1)
    assert (np.diff(found["means"]) > 0).all()
    assert (found["spread"] > 0).all()


def test_derived_quantities_come_along_where_they_need_no_rows():
    assert describe_pymc(made(poisson)).names == ("b", "spread", "raw", "intercept")  # and not the mean of each row


def latent_of_each_row():
    own = pm.Normal("own", shape=N)
    pm.Bernoulli("y", logit_p=own + X[:, 0], observed=EVENTS)


def standardises():
    b = pm.Normal("b", 0, 2, shape=3)
    x = pm.Data("x", X)
    pm.Bernoulli("y", logit_p=pt.dot(x - x.mean(0), b), observed=EVENTS)


def all_rows_at_once():
    length = pm.HalfNormal("length")
    cov = pm.gp.cov.ExpQuad(3, length)
    pm.gp.Marginal(cov_func=cov).marginal_likelihood("y", X, NUMBERS, sigma=1.0)


def discrete():
    which = pm.Bernoulli("which", 0.5)
    pm.Normal("y", which, observed=NUMBERS)


def batches():
    x, y = pm.Minibatch(X, NUMBERS, batch_size=10)
    pm.Normal("y", pt.dot(x, pm.Normal("b", shape=3)), observed=y, total_size=N)


def scaled():
    pm.Normal("y", pm.Normal("b"), observed=NUMBERS, total_size=1000)


def unlike():
    b = pm.Normal("b")
    pm.Normal("y", b, observed=NUMBERS)
    pm.Normal("z", b, observed=NUMBERS[:50])


def no_rows():
    pm.Normal("y", pm.Normal("b"), observed=1.0)


def nothing_observed():
    pm.Normal("b")


def no_parameters():
    pm.Normal("y", observed=NUMBERS)


def missing():
    y = np.where(np.arange(N) == 3, np.nan, NUMBERS)
    pm.Normal("y", pm.Normal("b"), 1.0, observed=y)


ONE_COMPONENT = {  # and why
    "latent of each row": (latent_of_each_row, "every row has a 'own' of its own"),
    "standardises": (standardises, "its density is no sum over rows"),
    "all rows at once": (all_rows_at_once, "it cannot be cut to a single row"),
    "no rows": (no_rows, "it has no observed array"),
    "missing": (missing, "missing values are parameters ('y_unobserved')"),
}


@pytest.mark.parametrize("name", ONE_COMPONENT)
def test_what_is_no_sum_over_rows_is_one_component_with_a_note(name):
    build, reason = ONE_COMPONENT[name]
    model = made(build)
    described = describe_pymc(model)
    assert described.note.startswith(f"All data are one component, so that batches of rows are not possible: {reason}")
    assert {len(value) for value in described.data.values()} == {1}
    params = around(described.init, count=5)
    np.testing.assert_allclose(densities(described, params), own(model, params), rtol=1e-10)


def test_rows_that_were_asked_for_are_refused_where_there_are_none():
    with pytest.raises(ValueError, match="'own' has as many entries as there are rows"):
        describe_pymc(made(latent_of_each_row), observed="y")


def test_one_component_is_sampled_and_says_so():
    """A Gaussian process: E and sd of log length by quadrature, |z| < 4.5; half an sd off would be seen."""
    target = svrhmc.targets.from_pymc(made(all_rows_at_once))
    assert target.n == 1
    grid = np.linspace(-6, 4, 2001)
    mean, sd = line_moments(grid, target.potentials(grid[:, None]))
    posterior = svrhmc.sample(target, draws=500, seed=0)
    assert abs(posterior.mean[0] - mean) < 4.5 * posterior.errors[0][0]
    assert abs(posterior.sd[0] - sd) < 4.5 * posterior.errors[1][0]
    assert abs(posterior.mean[0] - mean - sd / 2) > 4.5 * posterior.errors[0][0]
    assert "All data are one component" in str(posterior)


def test_a_long_derived_quantity_of_one_component_is_left_out_and_named(monkeypatch):
    def build():
        own = pm.Normal("own", shape=N)
        pm.Deterministic("twice", 2 * own)
        pm.Normal("y", own, 1.0, observed=NUMBERS)

    assert describe_pymc(made(build)).names == ("own", "twice")
    for module in (described_module, pymc_module):
        monkeypatch.setattr(module, "LONG", 50)
    described = describe_pymc(made(build))
    assert described.names == ("own",)
    assert described.note.endswith("Derived quantities of more than 50 numbers are left out: twice.")


REFUSED = {
    "discrete": (discrete, "continuous parameters; got the discrete 'which': sum it out"),
    "batches": (batches, "given all of its rows, .* got total_size for 'y': leave it out"),
    "scaled": (scaled, "got total_size for 'y'"),
    "unlike": (unlike, "observed must be named .* 'y' of length 60, 'z' of length 50"),
    "nothing observed": (nothing_observed, "given data; got no observed variable"),
    "no parameters": (no_parameters, "one with parameters; got none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_density_of_all_rows_is_refused_with_the_reason(name):
    build, told = REFUSED[name]
    model = made(build)
    with pytest.raises(ValueError, match=told):
        describe_pymc(model)


def test_the_rows_can_be_named():
    model = made(unlike)
    for name, count in [("y", 60), ("z", 50)]:
        described = describe_pymc(model, observed=name)
        assert [len(value) for value in described.data.values()] == [count]
        params = around(described.init)
        np.testing.assert_allclose(densities(described, params), own(model, params), rtol=1e-10)
    with pytest.raises(ValueError, match="observed must be one of 'y', 'z'; got 'x'"):
        describe_pymc(model, observed="x")
    with pytest.raises(ValueError, match=r"model must be a pymc\.Model; got 3"):
        describe_pymc(3)


def test_erfcx_is_what_it_should_be():
    from scipy.special import erfcx

    from svrhmc.models.pymc import _erfcx

    x = np.concatenate([np.linspace(-25, 24.999, 200), 25 + np.geomspace(1e-9, 1e6, 50)])
    np.testing.assert_allclose(_erfcx(pt.constant(x)).eval(mode="FAST_COMPILE"), erfcx(x), rtol=1e-12)


def test_observed_values_of_one_component_have_log_likelihoods_and_axes_have_their_names():
    sites, own = [f"site {k}" for k in range(N)], np.linspace(-1, 1, 2 * N).reshape(2, N)
    with pm.Model(coords={"site": sites}) as model:
        effect = pm.Normal("effect", 0, 1, dims="site")
        pm.Normal("y", effect, 2.0, observed=NUMBERS, dims="site")
    target = svrhmc.targets.from_pymc(model)
    assert target.n == 1
    ((_, block),) = target.row_log_likelihoods(own)
    np.testing.assert_allclose(block, norm.logpdf(NUMBERS, own, 2.0), rtol=1e-8)  # PyTensor has log 2π in float32
    posterior = svrhmc.sample(target, draws=50, seed=0)
    data = posterior.to_arviz(log_likelihood=True)
    assert data.log_likelihood["y"].shape[2:] == (N,)
    assert data.posterior["effect"].dims == ("chain", "draw", "site")
    assert list(data.posterior["site"].values) == sites
    with pytest.raises(ValueError, match=r"pm\.sample_posterior_predictive"):
        posterior.to_arviz(posterior_predictive=True)
