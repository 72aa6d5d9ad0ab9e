"""Means and deviations of posteriors of families by NumPyro's NUTS in float64, for `tests/test_more_families.py`.

    python benchmarks/more_references.py [family …]

Densities are written here once more, from NumPyro's own distributions. x ~ N(0, 1); shared parameters have the default
priors of `svrhmc.targets.glm`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import jax.random
import numpy as np
import numpyro
import numpyro.distributions as law
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

SHARED = {
    "hurdle-poisson": [5.0], "hurdle-negative-binomial": [2.0, 5.0], "log-normal": [5.0], "geometric": [],
    "inverse-gaussian": [2.0], "beta": [2.0], "beta-binomial": [2.0], "zero-inflated-poisson": [2.0],
    "zero-inflated-negative-binomial": [2.0, 2.0],
}  # fmt: skip


def log_likelihood(name, eta, shared, y, trials):
    mu, first = jnp.exp(eta), jnp.exp(shared[0]) if shared else None
    if name == "log-normal":
        return law.LogNormal(eta, first).log_prob(y)
    if name == "geometric":
        return law.GeometricProbs(1 / (1 + mu)).log_prob(y)
    if name == "inverse-gaussian":
        return 0.5 * jnp.log(first / (2 * jnp.pi * y**3)) - first * (y - mu) ** 2 / (2 * mu**2 * y)
    share = first / (1 + jnp.exp(-eta)), first / (1 + jnp.exp(eta))
    if name == "beta":
        return law.Beta(*share).log_prob(y)
    if name == "beta-binomial":
        return law.BetaBinomial(*share, trials).log_prob(y)
    plain = law.Poisson(mu) if name.endswith("poisson") else law.NegativeBinomial2(mu, first)
    zero = 1 / (1 + jnp.exp(-shared[-1]))
    none = jnp.exp(plain.log_prob(0))
    if name.startswith("hurdle"):
        above = jnp.log1p(-zero) + plain.log_prob(y) - jnp.log1p(-none)
        return jnp.where(y == 0, jnp.log(zero), above)
    return jnp.where(y == 0, jnp.log(zero + (1 - zero) * none), jnp.log1p(-zero) + plain.log_prob(y))


def model(name, X, y, trials):
    x = numpyro.sample("x", law.Normal(0, 1).expand([X.shape[1]]))
    shared = [numpyro.sample(f"shared{k}", law.Normal(0, sd)) for k, sd in enumerate(SHARED[name])]
    numpyro.factor("rows", log_likelihood(name, X @ x, shared, y, trials).sum())


def main() -> None:
    numpyro.enable_x64()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from test_more_families import REFERENCE_DATA

    for name in sys.argv[1:] or REFERENCE_DATA:
        X, y, more = REFERENCE_DATA[name]()
        run = MCMC(NUTS(model), num_warmup=1000, num_samples=5000, num_chains=2, progress_bar=False)
        run.run(jax.random.PRNGKey(0), name, X, y, more.get("trials"))
        draws = run.get_samples(group_by_chain=True)
        columns = [draws["x"], *(draws[f"shared{k}"][..., None] for k in range(len(SHARED[name])))]
        x = np.concatenate([np.asarray(column) for column in columns], axis=-1)
        flat = x.reshape(-1, x.shape[-1])
        ess = int(min(effective_sample_size(x).min(), effective_sample_size((x - flat.mean(axis=0)) ** 2).min()))
        print(f'    "{name}": ({flat.mean(axis=0).round(5).tolist()}, {flat.std(axis=0).round(5).tolist()}, {ess}),')


if __name__ == "__main__":
    main()
