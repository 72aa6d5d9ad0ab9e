"""Parameters with predictors of their own against NumPyro's NUTS in float64, whose models share nothing with ours."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

import svrhmc
from svrhmc.targets import glm, priors

LIMIT = 4.5  # standard errors


def beta(t, tau):
    mean, precision = jax.nn.sigmoid(t), jnp.exp(tau)
    return dist.Beta(mean * precision, (1 - mean) * precision)


LAWS = {
    "gaussian": lambda t, tau: dist.Normal(t, jnp.exp(tau)),
    "negative-binomial": lambda t, tau: dist.NegativeBinomial2(jnp.exp(t), jnp.exp(tau)),
    "beta": beta,
}


def standard(columns):
    """A column of ones, and others of mean 0 and deviation 1."""
    columns = np.asarray(columns, float).reshape(len(columns), -1)
    return np.column_stack([np.ones(len(columns)), (columns - columns.mean(axis=0)) / columns.std(axis=0)])


def simulated(family):
    rng = np.random.default_rng(11)
    X, Z = standard(rng.standard_normal((300, 3))), standard(rng.standard_normal((300, 2)))
    t, tau = X @ [0.5, 0.4, -0.3, 0.2], Z @ [0.8, 0.5, -0.4]
    y = LAWS[family](t, tau).sample(jax.random.PRNGKey(1))
    return X, Z, np.clip(np.asarray(y, float), *((1e-9, 1 - 1e-9) if family == "beta" else (None, None)))


def real(family):
    """Patients with diabetes, and the smoothness of cells in tumours, both of scikit-learn."""
    from sklearn.datasets import load_breast_cancer, load_diabetes

    if family == "beta":
        cells = load_breast_cancer(as_frame=True).frame
        X = standard(cells[["mean radius", "mean texture"]])
        return X, standard(cells[["mean radius"]]), cells["mean smoothness"].to_numpy()
    patients = load_diabetes(as_frame=True).frame
    y = patients["target"].to_numpy()
    X, Z = standard(patients[["bmi", "bp", "s5"]]), standard(patients[["bmi", "age"]])
    return X, Z, (y - y.mean()) / y.std() if family == "gaussian" else y


def by_nuts(family, X, Z, y, draws=1500, chains=4, times=1.0):
    """Moments and their standard errors, by batch means; `times` the other predictor: a twin made wrong."""

    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 2.0).expand((X.shape[1],)).to_event(1))
        z = numpyro.sample("z", dist.Normal(0.0, 2.0).expand((Z.shape[1],)).to_event(1))
        numpyro.sample("y", LAWS[family](X @ x, times * (Z @ z)), obs=y)

    run = MCMC(
        NUTS(model, dense_mass=True), num_warmup=800, num_samples=draws, num_chains=chains,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    run.run(jax.random.PRNGKey(7))
    found = run.get_samples(group_by_chain=True)
    values = np.concatenate([found["x"], found["z"]], axis=2)
    batches = values.reshape(chains * 15, -1, values.shape[2])
    errors = [part.std(axis=0, ddof=1) / np.sqrt(len(part)) for part in (batches.mean(axis=1), batches.std(axis=1))]
    flat = values.reshape(-1, values.shape[2])
    return flat.mean(axis=0), flat.std(axis=0), *errors


@pytest.mark.slow
@pytest.mark.parametrize("data", [simulated, real])
@pytest.mark.parametrize("family", LAWS)
def test_sample_has_the_moments_that_nuts_has(family, data):
    numpyro.enable_x64()
    X, Z, y = data(family)
    name, wide = svrhmc.families.family_of(family).parameters[0].name, priors.Normal(0.25)
    posterior = svrhmc.sample(glm(X, y, family, predictors={name: Z}, prior=wide, shared_prior=wide), seed=5)
    assert posterior.certificate.verdict == "local"
    mean, sd, by_mean, by_sd = by_nuts(family, X, Z, y)
    own = posterior.errors
    assert np.abs((posterior.mean - mean) / np.hypot(own[0], by_mean)).max() < LIMIT
    assert np.abs((posterior.sd - sd) / np.hypot(own[1], by_sd)).max() < LIMIT
    assert np.abs((posterior.mean - mean) / sd).max() < 0.1
    wrong, _, by_wrong, _ = by_nuts(family, X, Z, y, draws=300, times=2.0)
    assert np.abs((posterior.mean - wrong) / np.hypot(own[0], by_wrong)).max() > 3 * LIMIT
