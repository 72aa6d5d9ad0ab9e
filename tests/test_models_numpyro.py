"""The door for NumPyro: the density is the model's own, quantities come back by name, and what is no sum is one component."""

from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")
numpyro = pytest.importorskip("numpyro")

import jax.numpy as jnp  # noqa: E402
import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402
from numpyro.infer.reparam import LocScaleReparam  # noqa: E402
from numpyro.infer.util import potential_energy  # noqa: E402
from scipy.stats import norm  # noqa: E402

import library_models  # noqa: E402
import svrhmc  # noqa: E402
from library_models import BASIS, COUNTS, EVENTS, GROUP, LEVELS, NUMBERS, N, X, around, densities  # noqa: E402
from quadrature import line_moments  # noqa: E402
from svrhmc.core.jax import scope  # noqa: E402
from svrhmc.models import description as described_module  # noqa: E402
from svrhmc.models import numpyro as numpyro_module  # noqa: E402
from svrhmc.models.numpyro import describe_numpyro  # noqa: E402
from svrhmc.models.numpyro_effects import standardise_effects  # noqa: E402
from svrhmc.models.numpyro_sites import Arguments  # noqa: E402
from svrhmc.sampling.answer import Parameters  # noqa: E402


def logistic(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)


@handlers.reparam(config={"intercept": LocScaleReparam(0)})
def poisson(x, group, y, groups):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]))
    spread = numpyro.sample("spread", dist.HalfCauchy(1.0))
    with numpyro.plate("groups", groups):
        intercept = numpyro.sample("intercept", dist.Normal(0.5, spread))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(0.3 * x @ b + intercept[group])), obs=y)


def known_spread(x, group, y, groups):
    """The same where the spread of the intercepts is known: log-concave."""
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]))
    with numpyro.plate("groups", groups):
        intercept = numpyro.sample("intercept", dist.Normal(0.5, 0.7))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(0.3 * x @ b + intercept[group])), obs=y)


def known_scale(basis, y):
    """A spline whose weights have a known scale."""
    weights = numpyro.sample("weights", dist.Normal(0, 0.8).expand([5]).to_event(1))
    noise = numpyro.sample("noise", dist.InverseGamma(2.0, 1.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(basis @ weights, noise), obs=y)


def spline(basis, y=None):
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    weights = numpyro.sample("weights", dist.Normal(0, scale).expand([5]).to_event(1))
    noise = numpyro.sample("noise", dist.InverseGamma(2.0, 1.0))
    numpyro.deterministic("roughness", jnp.sum(jnp.diff(weights) ** 2))
    mean = numpyro.deterministic("mean", basis @ weights)
    numpyro.deterministic("level", mean.mean())
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def mixture(y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    base = dist.Normal(0, 2).expand([3])
    means = numpyro.sample("means", dist.TransformedDistribution(base, dist.transforms.OrderedTransform()))
    spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, spread)), obs=y)


def ordinal(x, y):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]).to_event(1))
    cuts = numpyro.sample("cuts", dist.ImproperUniform(constraints.ordered_vector, (), event_shape=(3,)))
    numpyro.factor("cuts_prior", -0.5 * jnp.sum(cuts**2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.OrderedLogistic(x @ b, cuts), obs=y)


def network(data):
    first = numpyro.sample("first", dist.Normal(0, 1).expand([3, 4]).to_event(2))
    second = numpyro.sample("second", dist.Normal(0, 1).expand([4]).to_event(1))
    noise = numpyro.sample("noise", dist.Exponential(1.0))
    with numpyro.plate("rows", data["x"].shape[0]):
        numpyro.sample("y", dist.StudentT(4.0, jnp.tanh(data["x"] @ first) @ second, noise), obs=data["y"])


def bounded_by_another(x, y):
    """Without to_event: with it NumPyro 0.22 takes the bounds for fixed, and a tenth of NUTS's draws lie outside."""
    top = numpyro.sample("top", dist.Gamma(2.0, 1.0))
    b = numpyro.sample("b", dist.Uniform(-top, top).expand([3]))
    with handlers.scale(scale=0.5), numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)


def no_plate(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)


def two_likelihoods(x, y, z, once):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    numpyro.sample("once", dist.Normal(b[0], 0.1), obs=once)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)
        numpyro.factor("z", -0.1 * (z - x[:, 0] * b[1]) ** 2)


def several_outcomes(x, y):
    with numpyro.plate("outcomes", 2):
        b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("outcomes", 2, dim=-1), numpyro.plate("rows", x.shape[0], dim=-2):
        numpyro.sample("y", dist.Normal(x @ b.T, 1.0), obs=y)


MODELS = {
    "logistic": (logistic, (X, EVENTS), {}),
    "poisson": (poisson, (X, GROUP), {"y": COUNTS, "groups": 7}),
    "spline": (spline, (BASIS,), {"y": NUMBERS}),
    "mixture": (mixture, (NUMBERS,), {}),
    "ordinal": (ordinal, (X, LEVELS), {}),
    "network": (network, ({"x": X, "y": NUMBERS},), {}),
    "bounded by another": (bounded_by_another, (X, EVENTS), {}),
    "no plate": (no_plate, (X, EVENTS), {}),
    "two likelihoods": (two_likelihoods, (X, EVENTS, NUMBERS, 0.3), {}),
    "several outcomes": (several_outcomes, (X, X[:, :2]), {}),
    "known spread": (known_spread, (X, GROUP), {"y": COUNTS, "groups": 7}),
    "known scale": (known_scale, (BASIS, NUMBERS), {}),
}
LOG_CONCAVE = (
    "logistic", "ordinal", "no plate", "two likelihoods", "several outcomes", "known spread", "known scale",
)  # fmt: skip


def own(model, args, kwargs, params):
    with scope():
        energy = jax.vmap(lambda point: potential_energy(handlers.seed(model, 0), args, kwargs, point))
        return -np.asarray(jax.jit(energy)(params))


@pytest.mark.parametrize("name", MODELS)
def test_the_density_is_the_models_own(name):
    """In the variables of its effects of groups, if it has any (`test_models_effects.py`)."""
    model, args, kwargs = MODELS[name]
    described = describe_numpyro(model, *args, **kwargs)
    params = around(described.init)
    with scope():
        in_variables = standardise_effects(model, Arguments.of(model, args, kwargs))
    assert (in_variables is not model) == (name == "spline")
    expected = own(in_variables, args, kwargs, params)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(densities(described, params), expected, rtol=1e-10)
    assert not jax.config.jax_enable_x64  # what the user set stays


def test_a_difference_would_be_seen():
    """The test above is not blind: another prior gives another density."""
    model, args, kwargs = MODELS["logistic"]
    described = describe_numpyro(handlers.reparam(model, config={}), *args)
    params = around(described.init)
    other = own(bounded_by_another, args, kwargs, {**params, "top": np.zeros(100)})
    assert np.abs(densities(described, params) / other - 1).min() > 1e-6


def target(name):
    model, args, kwargs = MODELS[name]
    return svrhmc.targets.from_numpyro(model, *args, **kwargs)


def nuts(name):
    """Draws of NumPyro's NUTS, arrays (chain, draw, …) by name."""
    from numpyro.infer import MCMC, NUTS

    model, args, kwargs = MODELS[name]
    with scope():
        runs = MCMC(
            NUTS(model, target_accept_prob=0.9),
            num_warmup=library_models.WARMUP,
            num_samples=library_models.DRAWS,
            num_chains=library_models.CHAINS,
            chain_method="vectorized",
            progress_bar=False,
        )
        runs.run(jax.random.key(0), *args, **kwargs)
        return {name: np.asarray(value) for name, value in runs.get_samples(group_by_chain=True).items()}


def drawn(seed, away=0.0, wide=1.0, verdict="local"):
    """A stand-in for a posterior of two numbers, with draws of their law moved and stretched."""
    x = np.random.default_rng(seed).standard_normal((4, 4000, 2))
    parameters = Parameters(("b[0]", "b[1]"), away + wide * x)
    return SimpleNamespace(parameters=parameters, certificate=SimpleNamespace(verdict=verdict))


def test_a_posterior_that_is_off_would_be_seen():
    """What the next test asks for is passed by draws of the same law, and by no others."""
    theirs = {"b": drawn(1).parameters.draws}
    library_models.require_posterior(drawn(0), theirs, log_concave=True)
    library_models.require_posterior(drawn(0), theirs, log_concave=False)
    for wrong in (drawn(0, away=0.1), drawn(0, wide=1.1)):
        for log_concave in (True, False):
            with pytest.raises(AssertionError):
                library_models.require_posterior(wrong, theirs, log_concave)
    undecided = drawn(0, away=0.1, verdict="undecided")
    library_models.require_posterior(undecided, theirs, log_concave=False)  # which claims nothing
    with pytest.raises(AssertionError):
        library_models.require_posterior(undecided, theirs, log_concave=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_posterior_is_that_of_nuts(name):
    library_models.require_posterior(svrhmc.sample(target(name)), nuts(name), name in LOG_CONCAVE)


def test_quantities_come_back_constrained_by_their_names():
    model, args, kwargs = MODELS["mixture"]
    described = describe_numpyro(model, *args, **kwargs)
    assert described.names == ("weights", "means", "spread")
    with scope():
        found = jax.device_get(jax.jit(jax.vmap(described.constrain))(around(described.init)))
    assert {name: value.shape for name, value in found.items()} == {
        "weights": (100, 3),
        "means": (100, 3),
        "spread": (100,),
    }
    np.testing.assert_allclose(found["weights"].sum(1), 1)
    assert (np.diff(found["means"]) > 0).all()
    assert (found["spread"] > 0).all()
    assert found["spread"].dtype == np.float64


def test_derived_quantities_come_along_where_they_need_no_rows():
    model, args, kwargs = MODELS["spline"]
    assert describe_numpyro(model, *args, **kwargs).names == ("scale", "weights", "noise", "roughness")
    model, args, kwargs = MODELS["poisson"]
    assert "intercept" in describe_numpyro(model, *args, **kwargs).names  # of the reparametrised


def subsampled(x, y, size):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=size) as some:
        numpyro.sample("y", dist.Bernoulli(logits=numpyro.subsample(x, 1) @ b), obs=y[some])


def test_a_plate_that_is_subsampled_has_all_its_rows_once():
    described = describe_numpyro(subsampled, X, EVENTS, 10)
    params = around(described.init)
    expected = own(logistic, (X, EVENTS), {}, params)
    np.testing.assert_allclose(densities(described, params), expected, rtol=1e-10)


def test_more_rows_than_are_compared(monkeypatch):
    monkeypatch.setattr(numpyro_module, "_CHECKED_ROWS", 40)
    monkeypatch.setattr(described_module, "_BLOCK", 16)
    model, args, kwargs = MODELS["mixture"]
    described = describe_numpyro(model, *args)
    params = around(described.init)
    np.testing.assert_allclose(densities(described, params), own(model, args, kwargs, params), rtol=1e-10)


def latent_in_the_plate(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        own = numpyro.sample("own", dist.Normal(0, 1))
        numpyro.sample("y", dist.Bernoulli(logits=x @ b + own), obs=y)


def latent_without_a_plate(x, y):
    own = numpyro.sample("own", dist.Normal(0, 1).expand([len(y)]))
    numpyro.sample("y", dist.Bernoulli(logits=x[:, 0] + own), obs=y)


def standardises(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=(x - x.mean(0)) @ b), obs=y)


def prior_by_the_data(x, y):
    b = numpyro.sample("b", dist.Normal(x.mean(), 2).expand([3]).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)


def all_rows_at_once(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    numpyro.sample("y", dist.MultivariateNormal(x @ b, jnp.eye(N)), obs=y)


def rows_from_outside(y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=X @ b), obs=y)


def all_from_outside():
    return logistic(X, EVENTS)


def counts_its_groups(x, group, y):
    with numpyro.plate("groups", len(np.unique(group))):
        intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(intercept[group])), obs=y)


def discrete(y):
    which = numpyro.sample("which", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(which, 1), obs=y)


def optimised(y):
    mean = numpyro.param("mean", 0.0)
    numpyro.sample("b", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def network_without_priors(x, y):
    nn = pytest.importorskip("flax.linen")
    module = pytest.importorskip("numpyro.contrib.module")
    b = numpyro.sample("b", dist.Normal(0, 1))
    network = module.flax_module("network", nn.Dense(1), input_shape=(3,))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(b + network(x)[:, 0], 1), obs=y)


def network_with_priors(x, y):
    nn = pytest.importorskip("flax.linen")
    module = pytest.importorskip("numpyro.contrib.module")
    network = module.random_flax_module("network", nn.Dense(1), dist.Normal(0.0, 1.0), input_shape=(3,))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(network(x)[:, 0], 1), obs=y)


def two_plates(x, y, z):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)
    with numpyro.plate("others", len(z)):
        numpyro.sample("z", dist.Normal(b[0], 1.0), obs=z)


def a_batch(x, y):
    b = numpyro.sample("b", dist.Normal(0, 2).expand([3]).to_event(1))
    with numpyro.plate("rows", 1000, subsample_size=len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ b), obs=y)


def a_hidden_markov_chain(y):
    stay = numpyro.sample("stay", dist.Beta(2, 1).expand([2]).to_event(1))
    mean = numpyro.sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    step = jnp.log(jnp.stack([jnp.stack([stay[0], 1 - stay[0]]), jnp.stack([1 - stay[1], stay[1]])]))

    def forward(state, one):
        return jax.nn.logsumexp(state[:, None] + step, axis=0) + dist.Normal(mean, 1).log_prob(one), None

    last, _ = jax.lax.scan(forward, jnp.zeros(2), y)
    numpyro.factor("chain", jax.nn.logsumexp(last))


def two_processes(x, y, z):
    """Two likelihoods, each of all its rows at once, and a derived quantity for each row."""
    scale = numpyro.sample("scale", dist.LogNormal(0, 1))
    kernel = jnp.exp(-0.5 * ((x[:, None, 0] - x[:, 0]) / scale) ** 2) + jnp.eye(len(x))
    numpyro.deterministic("variance", jnp.diag(kernel) * scale)
    numpyro.sample("y", dist.MultivariateNormal(0.0, kernel), obs=y)
    numpyro.sample("z", dist.MultivariateNormal(1.0, 2 * kernel[:50, :50]), obs=z)


ONE_COMPONENT = {  # and why
    "latent in the plate": (latent_in_the_plate, (X, EVENTS), "every row has a 'own' of its own"),
    "latent without a plate": (latent_without_a_plate, (X, EVENTS), "every row has a 'own' of its own"),
    "standardises": (standardises, (X, EVENTS), "its density is no sum over rows"),
    "prior by the data": (prior_by_the_data, (X, EVENTS), "its density is no sum over rows"),
    "all rows at once": (
        all_rows_at_once,
        (X, NUMBERS),
        "its observed sites have no rows in common with its arguments",
    ),
    "rows from outside": (rows_from_outside, (EVENTS,), "its density is no sum over rows"),
    "all from outside": (all_from_outside, (), "its observed sites have no rows in common with its arguments"),
    "counts its groups": (counts_its_groups, (X, GROUP, COUNTS), "what it does depends on the numbers in its rows"),
    "hidden Markov chain": (a_hidden_markov_chain, (NUMBERS,), "its observed sites have no rows in common"),
    "two processes": (two_processes, (X, NUMBERS, NUMBERS[:50]), "its observed sites have no rows in common"),
}


@pytest.mark.ordinary(lambda name: name not in ("hidden Markov chain", "two processes"))
@pytest.mark.parametrize("name", ONE_COMPONENT)
def test_what_is_no_sum_over_rows_is_one_component_with_a_note(name):
    model, args, reason = ONE_COMPONENT[name]
    described = describe_numpyro(model, *args)
    assert described.note.startswith(f"All data are one component, so that batches of rows are not possible: {reason}")
    assert {len(value) for value in described.data.values()} == {1}
    params = around(described.init, count=5)
    np.testing.assert_allclose(densities(described, params), own(model, args, {}, params), rtol=1e-10)


def test_one_component_is_sampled_and_says_so():
    """A Gaussian process with everything else known: E and sd of log scale by quadrature, |z| < 4.5."""

    def process(x, y):
        log_scale = numpyro.sample("log_scale", dist.Normal(0, 1))
        kernel = jnp.exp(-0.5 * ((x[:, None] - x) / jnp.exp(log_scale)) ** 2) + jnp.eye(len(x))
        numpyro.sample("y", dist.MultivariateNormal(0.0, kernel), obs=y)

    x, y = np.linspace(-2, 2, 8), np.array([0.5, 1.0, 1.5, 0.3, -0.2, -1.0, 0.1, 0.4])
    target = svrhmc.targets.from_numpyro(process, x, y)
    assert target.n == 1
    assert "note='All data are one component" in repr(target)
    grid = np.linspace(-5, 5, 2001)
    mean, sd = line_moments(grid, target.potentials(grid[:, None]))
    posterior = svrhmc.sample(target, draws=500, seed=0)
    found = posterior.parameters.moments
    assert abs(found.mean[0] - mean) < 4.5 * found.mean_error[0]
    assert abs(found.sd[0] - sd) < 4.5 * found.sd_error[0]
    assert abs(found.mean[0] - mean - sd / 2) > 4.5 * found.mean_error[0]  # so far off would be seen
    assert "All data are one component" in posterior.why
    assert "All data are one component" in str(posterior)


def test_a_long_derived_quantity_of_one_component_is_left_out_and_named(monkeypatch):
    for module in (described_module, numpyro_module):
        monkeypatch.setattr(module, "LONG", 50)
    described = describe_numpyro(two_processes, X, NUMBERS, NUMBERS[:50])
    assert described.names == ("scale",)
    assert described.note.endswith("Derived quantities of more than 50 numbers are left out: variance.")


REFUSED = {
    "discrete": (discrete, (NUMBERS,), "continuous parameters; got the discrete 'which': sum it out"),
    "network without priors": (network_without_priors, (X, NUMBERS), "the same density each time it is run; got two"),
    "optimised": (optimised, (NUMBERS,), "made of sample statements; got the param 'mean': it has no prior"),
    "two plates": (
        two_plates,
        (X, EVENTS, NUMBERS[:50]),
        "plate must be named .* 'rows' of size 60, 'others' of size 50",
    ),
    "a batch": (a_batch, (X, EVENTS), "given all of its rows, .*; got 60 of the 1,000 rows of plate 'rows'"),
    "no data": (logistic, (X, None), "given data; got no observed site"),
    "no model": (3, (), "a function with NumPyro's statements"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_density_of_all_rows_is_refused_with_the_reason(name):
    model, args, told = REFUSED[name]
    with pytest.raises(ValueError, match=told):
        describe_numpyro(model, *args)


def test_rows_that_were_asked_for_are_refused_where_there_are_none():
    with pytest.raises(ValueError, match="shared by the rows; got 'own', which every row has for itself"):
        describe_numpyro(latent_in_the_plate, X, EVENTS, plate="rows")


def test_a_network_with_priors_has_its_parameters_by_name():
    described = describe_numpyro(network_with_priors, X, NUMBERS)
    assert described.names == ("network/bias", "network/kernel")
    params = around(described.init)
    expected = own(network_with_priors, (X, NUMBERS), {}, params)
    np.testing.assert_allclose(densities(described, params), expected, rtol=1e-10)


def test_a_plate_can_be_named():
    args = (X, EVENTS, NUMBERS[:50])
    for plate, rows in [("rows", ("x", "y")), ("others", ("z",))]:
        described = describe_numpyro(two_plates, *args, plate=plate)
        assert tuple(described.data) == rows
        params = around(described.init)
        np.testing.assert_allclose(densities(described, params), own(two_plates, args, {}, params), rtol=1e-10)
    with pytest.raises(ValueError, match=r"plate must be the name of a plate .* \('rows', 'others'\); got 'row'"):
        describe_numpyro(two_plates, *args, plate="row")


def far_apart(y):
    """A prior of two parts 300 apart in each of five coordinates, of which the data say nothing."""
    parts = dist.MultivariateNormal(jnp.array([[0.0], [300.0]]) * jnp.ones(5), jnp.eye(5))
    x = numpyro.sample("x", dist.MixtureSameFamily(dist.Categorical(jnp.ones(2) / 2), parts))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(0 * x[0], 1.0), obs=y)


def test_a_mode_that_only_draws_of_the_prior_reach_is_found():
    """It is 670 spreads away, and points are looked at up to 67; the control is the same model without the draws."""
    target = svrhmc.targets.from_numpyro(far_apart, np.zeros(3))
    assert sorted(target.modes()[:, 0].round(3).tolist()) == [0.0, 300.0]
    control = svrhmc.targets.from_numpyro(far_apart, np.zeros(3))
    control.prior_draws = None
    assert len(control.modes()) == 1


def test_draws_of_the_prior_are_those_of_its_law_without_constraints():
    def model(y):
        scale = numpyro.sample("scale", dist.LogNormal(1.0, 0.5))
        mean = numpyro.sample("mean", dist.Normal(-3.0, scale))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, scale), obs=y)

    drawn = svrhmc.targets.from_numpyro(model, np.zeros(3)).prior_draws
    z = [(drawn[:, 1].mean() - 1.0) / 0.5, ((drawn[:, 0] + 3.0) / np.exp(drawn[:, 1])).mean()]
    assert np.abs(z).max() * np.sqrt(len(drawn)) < 4.5

    def flat(y):
        mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    assert svrhmc.targets.from_numpyro(flat, np.zeros(3)).prior_draws is None


def eight_schools(sigma, y, schools):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", schools):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("effect", dist.Normal(theta, sigma), obs=y)


SIGMA, EFFECTS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18]), np.array([28.0, 8, -3, 7, -1, 1, 18, 12])


def test_the_observed_values_of_one_component_have_log_likelihoods_and_new_values():
    """Eight schools: log p of each against SciPy's, new values against their law (|z| < 4.5), and plates as axes."""
    target = svrhmc.targets.from_numpyro(eight_schools, SIGMA, EFFECTS, 8)
    posterior = svrhmc.sample(target, draws=100, seed=0)
    assert str(posterior.summary()).startswith("Posterior of a model, 10 coordinates, 8 observed values.\n")
    theta = posterior.parameters.by_name()["theta"]
    data = posterior.to_arviz(log_likelihood=True, posterior_predictive=True)
    assert data.posterior["theta"].dims == ("chain", "draw", "school")
    assert data.log_likelihood["effect"].dims == ("chain", "draw", "row")
    np.testing.assert_allclose(data.log_likelihood["effect"], norm.logpdf(EFFECTS, theta, SIGMA), rtol=1e-12)
    ((_, block),) = posterior.log_likelihood()
    np.testing.assert_allclose(block, norm.logpdf(EFFECTS, theta, SIGMA).reshape(-1, 8), rtol=1e-12)
    assert posterior.loo().elpd == pytest.approx(-30.7, abs=0.5)  # Vehtari, Gelman & Gabry: −30.8
    np.testing.assert_array_equal(data.observed_data["effect"], EFFECTS)
    z = ((data.posterior_predictive["effect"].values - theta) / SIGMA).reshape(-1, 8)
    assert abs(z.mean(axis=0) * np.sqrt(len(z))).max() < 4.5
    assert abs((z**2).mean(axis=0) - 1).max() < 4.5 * np.sqrt(2 / len(z))
    assert abs((z + 0.2).mean(axis=0) * np.sqrt(len(z))).max() > 4.5  # so far off would be seen
    some = posterior.to_arviz(log_likelihood=True, posterior_predictive=True, rows=[5, 2], draws=40)
    np.testing.assert_array_equal(some.observed_data["effect"], EFFECTS[[5, 2]])
    assert some.log_likelihood["effect"].shape == (4, 10, 2)


def test_rows_of_a_model_have_log_likelihoods_and_new_values_in_arviz():
    target = svrhmc.targets.from_numpyro(known_spread, X, GROUP, COUNTS, 7)
    posterior = svrhmc.sample(target, draws=50, seed=0)
    data = posterior.to_arviz(log_likelihood=True, posterior_predictive=True)
    assert data.posterior["intercept"].dims == ("chain", "draw", "groups")
    assert data.posterior_predictive["y"].shape == data.log_likelihood["y"].shape
    assert data.posterior_predictive["y"].dtype.kind == "i"
    log_likelihoods = np.concatenate([block for _, block in posterior.log_likelihood()], axis=1)
    np.testing.assert_array_equal(data.log_likelihood["y"].values.reshape(-1, N), log_likelihoods)


def test_one_value_of_all_data_has_no_cross_validation_and_the_error_says_why():
    target = svrhmc.targets.from_numpyro(all_rows_at_once, X, NUMBERS)
    with pytest.raises(ValueError, match=r"got one component: All data are one .* arguments\.$"):
        target.row_log_likelihoods(target.start[None])


def test_a_factor_is_no_observation():
    def with_factor(x, y):
        own = numpyro.sample("own", dist.Normal(0, 1).expand([N]))
        numpyro.factor("more", -own.sum())
        numpyro.sample("y", dist.Normal(own, 1.0), obs=y)

    target = svrhmc.targets.from_numpyro(with_factor, X, NUMBERS)
    assert target.observed_count == N
    own = 0.3 * np.ones((2, N))
    ((_, block),) = target.row_log_likelihoods(own)
    np.testing.assert_allclose(block, norm.logpdf(NUMBERS, own, 1.0), rtol=1e-12)


def test_a_model_of_one_component_is_compared_with_one_of_rows():
    """Eight schools, hierarchical and pooled: both predict eight observed values."""

    def pooled(sigma, y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        with numpyro.plate("school", len(y)):
            numpyro.sample("effect", dist.Normal(mu, sigma), obs=y)

    one = svrhmc.sample(svrhmc.targets.from_numpyro(eight_schools, SIGMA, EFFECTS, 8), draws=100, seed=0)
    rows = svrhmc.sample(svrhmc.targets.from_numpyro(pooled, SIGMA, EFFECTS), draws=100, seed=0)
    comparison = svrhmc.compare({"hierarchical": one, "pooled": rows})
    assert comparison.loo[0].observations.rows == 8
    assert abs(comparison.elpd_diff[1]) < 2


@pytest.mark.untraced
def test_an_improper_posterior_of_one_row_is_called_so():
    """Flat priors on a mean and an sd, and one row: the density does not fall as the sd grows, as far as float64 goes.
    The mean had an sd of 0 beside a sd of 1e290.
    """

    def flat(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        sigma = numpyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, sigma), obs=y)

    with pytest.warns(svrhmc.VerdictWarning) as warned:
        posterior = svrhmc.sample(svrhmc.targets.from_numpyro(flat, np.array([2.4])), draws=100, seed=0)
    assert len(warned) == 1
    assert "along sampled sigma no faster than" in str(posterior.certificate)
    table = posterior.summary()
    assert table.sd[table.names.index("mu")] > 0
    assert np.isnan(table.sd[table.names.index("sigma")])
