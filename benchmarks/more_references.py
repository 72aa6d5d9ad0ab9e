"""Means and deviations of posteriors of families by NumPyro's NUTS in float64, for `tests/test_more_families.py`.

    python benchmarks/more_references.py [family …]

Densities are those of `references.py`, from NumPyro's own distributions. x ~ N(0, 1); shared parameters have the
default priors of `svrhmc.targets.glm`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax.random
import numpy as np
import numpyro
import numpyro.distributions as law
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from references import log_likelihood, prior_of_shared


def model(name, X, y, trials):
    x = numpyro.sample("x", law.Normal(0, 1).expand([X.shape[1]]))
    shared = [numpyro.sample(f"shared{k}", law.Normal(0, sd)) for k, sd in enumerate(prior_of_shared(name, 2))]
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
        columns = [draws["x"], *(draws[f"shared{k}"][..., None] for k in range(len(prior_of_shared(name, 2))))]
        x = np.concatenate([np.asarray(column) for column in columns], axis=-1)
        flat = x.reshape(-1, x.shape[-1])
        ess = int(min(effective_sample_size(x).min(), effective_sample_size((x - flat.mean(axis=0)) ** 2).min()))
        print(f'    "{name}": ({flat.mean(axis=0).round(5).tolist()}, {flat.std(axis=0).round(5).tolist()}, {ess}),')


if __name__ == "__main__":
    main()
