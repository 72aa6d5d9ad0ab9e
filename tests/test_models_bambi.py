"""The door for Bambi: the density is that of the PyMC model it builds, and the names are those of its results."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
bambi = pytest.importorskip("bambi")

import pandas as pd  # noqa: E402

import library_models  # noqa: E402
import svrhmc  # noqa: E402
from library_models import COUNTS, EVENTS, GROUP, LEVELS, NUMBERS, X, around, densities  # noqa: E402
from svrhmc.core.jax import scope  # noqa: E402
from svrhmc.models.bambi import describe_bambi  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS"),
    pytest.mark.filterwarnings("ignore:The intercept is omitted in ordinal families"),
]
TABLE = pd.DataFrame(
    {
        "event": EVENTS,
        "count": COUNTS,
        "level": pd.Categorical(LEVELS, ordered=True),
        "number": NUMBERS,
        "a": X[:, 0] + 3,
        "b": X[:, 1],
        "group": pd.Categorical(GROUP.astype(str)),
    }
)
MODELS = {
    "logistic": ("event ~ a + b", "bernoulli"),
    "poisson": ("count ~ a + (1 | group)", "poisson"),
    "spline": ("number ~ bs(a, df=5)", "gaussian"),
    "gaussian process": ("number ~ 0 + hsgp(a, m=5, c=1.5)", "gaussian"),
    "ordinal": ("level ~ a + b", "cumulative"),
    "classes": ("group ~ a", "categorical"),
    "distributional": (bambi.Formula("number ~ a + group", "sigma ~ b"), "t"),
    "slopes of groups": ("number ~ a + (a | group)", "gaussian"),
    "known spread": ("count ~ 0 + group + b", "poisson"),  # intercepts of groups with a prior that is known
}
LOG_CONCAVE = ("logistic", "spline", "ordinal", "classes", "known spread")


def made(name):
    formula, family = MODELS[name]
    return bambi.Model(formula, TABLE, family=family)


def target(name):
    return svrhmc.targets.from_bambi(made(name))


def nuts(name):
    """Draws as Bambi gives them, by NUTS of NumPyro."""
    with scope():
        drawn = made(name).fit(
            draws=library_models.DRAWS,
            tune=library_models.WARMUP,
            chains=library_models.CHAINS,
            inference_method="numpyro",
            target_accept=0.9,
            progressbar=False,
            random_seed=0,
            nuts_sampler_kwargs={"chain_method": "vectorized"},
        )
    return {name: value.to_numpy() for name, value in drawn.posterior.data_vars.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_posterior_is_that_of_nuts(name):
    library_models.require_posterior(svrhmc.sample(target(name)), nuts(name), name in LOG_CONCAVE)


def own(model, params):
    density = model.backend.model.compile_logp(mode="FAST_COMPILE")
    return np.array([density({k: v[i] for k, v in params.items()}) for i in range(len(next(iter(params.values()))))])


@pytest.mark.parametrize("name", MODELS)
def test_the_density_is_the_models_own(name):
    model = made(name)
    described = describe_bambi(model)
    params = around(described.init, spread=0.3)
    expected = own(model, params)
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(densities(described, params), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("logistic", {"Intercept", "a", "b"}),
        ("poisson", {"Intercept", "a", "1|group", "1|group_sigma"}),
        ("distributional", {"Intercept", "a", "group", "sigma_Intercept", "sigma_b", "nu"}),
    ],
)
def test_the_names_are_those_of_bambi(name, names):
    assert set(describe_bambi(made(name)).names) == names


@pytest.mark.parametrize("name", ["logistic", "classes", "distributional"])
def test_the_intercept_is_that_of_the_columns_as_they_were_given(name):
    """Against Bambi's own results, which it makes from the draws of its PyMC model."""
    import arviz

    model = made(name)
    described = describe_bambi(model)
    params = around(described.init, 4)
    with scope():
        found = jax.device_get(jax.vmap(described.constrain)(params))
        inner = jax.device_get(jax.vmap(_of_pymc(model).constrain)(params))
    dims = {v.name: list(model.backend.model.named_vars_to_dims.get(v.name, ())) for v in model.backend.model.free_RVs}
    coords = {k: list(v) for k, v in model.backend.model.coords.items() if v is not None}
    raw = {k: v[None] for k, v in inner.items() if k in dims}
    drawn = arviz.from_dict(posterior=raw, dims={k: v for k, v in dims.items() if k in raw}, coords=coords)
    cleaned = model.backend._clean_results(drawn, omit_offsets=True, include_response_params=False)
    for key in ("Intercept", *(k for k in raw if k.endswith("_Intercept"))):
        np.testing.assert_allclose(found[key], cleaned.posterior[key].to_numpy()[0], rtol=1e-10)
        assert not np.allclose(found[key], inner[key])  # something was moved


def _of_pymc(model):
    from svrhmc.models.pymc import describe_pymc

    return describe_pymc(model.backend.model)


def test_sparse_matrices_are_left_out(monkeypatch):
    bambi.config["SPARSE_DOT"] = True
    try:
        model = made("poisson")
        model.build()
        described = describe_bambi(model)
        assert bambi.config["SPARSE_DOT"]
    finally:
        bambi.config["SPARSE_DOT"] = False
    assert "1|group" in described.names


def test_what_takes_all_rows_together_is_one_component_with_a_note():
    """A potential of a sum over rows, put into the PyMC model that Bambi built."""
    import pymc
    import pytensor.tensor as pt

    model = made("logistic")
    model.build()
    with model.backend.model as inner:
        pymc.Potential("together", -0.5 * pt.sqr(pt.dot(X[:, 0], inner["a"] * np.ones(len(X)))))
    described = describe_bambi(model)
    assert described.note.startswith("All data are one component, so that batches of rows are not possible: ")
    assert {"Intercept", "a", "b"} <= set(described.names)
    params = around(described.init, spread=0.3)
    np.testing.assert_allclose(densities(described, params), own(model, params), rtol=1e-10)
    assert svrhmc.targets.from_bambi(model).note == described.note


def test_what_is_no_model_is_refused():
    with pytest.raises(ValueError, match=r"model must be a bambi.Model; got 3\."):
        describe_bambi(3)
