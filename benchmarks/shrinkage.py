"""The regularised horseshoe beside NumPyro's NUTS: effective draws a second of processor time, and agreement.

    python benchmarks/shrinkage.py speed --family gaussian        # p = 1,000, n = 400
    python benchmarks/shrinkage.py agreement --family bernoulli   # p = 30, n = 60

Both sample the same density: the model of `svrhmc.priors.shrinkage`, in NumPyro with standardised effects, in float64
on a processor. Effective draws are those of x and of (x − x̄)², whichever are fewer, by one function for both.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

from svrhmc import sample
from svrhmc.core.arrays import Array
from svrhmc.diagnostics import r_hat
from svrhmc.sampling.doubts import effective_draws
from svrhmc.targets import glm
from svrhmc.targets.priors import Horseshoe, Normal

EFFECTS = (2.0, -1.5, 1.0, 0.7, 0.4)
SIGMA_SD = 5.0  # of log σ, the family's own


def problem(n: int, p: int, family: str, seed: int = 0) -> tuple[Array, Array, Horseshoe]:
    """Independent columns, five effects."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    t = X[:, : len(EFFECTS)] @ EFFECTS
    y = t + rng.standard_normal(n) if family == "gaussian" else (rng.random(n) < 1 / (1 + np.exp(-t))) * 1.0
    return X, y, Horseshoe(expected=5.0, slab_scale=4.0 if family == "gaussian" else 2.0)


def by_gibbs(X: Array, y: Array, family: str, prior: Horseshoe, draws: int, seed: int) -> tuple[Array, Array, float]:
    """Coefficients, τ and processor seconds, warm-up among them."""
    shared = {"shared_prior": Normal.with_sd(SIGMA_SD)} if family == "gaussian" else {}
    began = time.process_time()
    posterior = sample(glm(X, y, family, prior=prior, **shared), draws=draws, seed=seed)
    print(posterior.certificate.brief())
    return posterior.trace.draws[..., : X.shape[1]], posterior.shrinkage.scales[..., :1], time.process_time() - began


def by_nuts(
    X: Array, y: Array, family: str, prior: Horseshoe, warmup: int, draws: int, chains: int, seed: int
) -> tuple[Array, Array, float]:
    """The same by NumPyro; compilation and warm-up are counted."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    n, p = X.shape
    scale = prior.expected / ((p - prior.expected) * math.sqrt(n))
    share = (y.sum() + 0.5) / (n + 1)

    def model(X: Any, y: Any) -> None:
        sigma = 1 / math.sqrt(share * (1 - share))
        if family == "gaussian":
            sigma = jnp.exp(numpyro.sample("log sigma", dist.Normal(0.0, SIGMA_SD)))
        tau = numpyro.sample("tau", dist.HalfCauchy(1.0)) * scale * sigma
        local = numpyro.sample("lambda", dist.HalfCauchy(1.0).expand([p]))
        nu = prior.slab_df
        square = numpyro.sample("c2", dist.InverseGamma(nu / 2, nu / 2 * prior.slab_scale**2))
        z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([p]))
        beta = numpyro.deterministic("beta", z / jnp.sqrt(1 / (tau * local) ** 2 + 1 / square))
        numpyro.deterministic("scale", tau)
        t = X @ beta
        numpyro.sample("y", dist.Normal(t, sigma) if family == "gaussian" else dist.Bernoulli(logits=t), obs=y)

    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.95), num_warmup=warmup, num_samples=draws, num_chains=chains,
        chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    began = time.process_time()
    mcmc.run(jax.random.PRNGKey(seed), jnp.asarray(X), jnp.asarray(y), extra_fields=("num_steps", "diverging"))
    got = mcmc.get_samples(group_by_chain=True)
    jax.block_until_ready(got)
    seconds = time.process_time() - began
    fields = mcmc.get_extra_fields()
    print(f"NUTS: {np.mean(fields['num_steps']):.0f} leapfrogs a draw, {int(np.sum(fields['diverging']))} divergences")
    return np.asarray(got["beta"]), np.asarray(got["scale"])[..., None], seconds


def line(name: str, beta: Array, tau: Array, seconds: float) -> str:
    """Effective draws a second of the least and the median coefficient and of τ."""
    own, scale = effective_draws(beta), effective_draws(np.log(tau))
    worst = float(r_hat(np.concatenate([beta, np.log(tau)], axis=2)).max())
    return (
        f"| {name} | {beta.shape[0]} × {beta.shape[1]:,} | {seconds:,.0f} | {own.min() / seconds:.3g} | "
        f"{np.median(own) / seconds:.3g} | {scale[0] / seconds:.3g} | {worst:.3f} |"
    )


def main() -> None:
    """Speed or agreement, of one family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("speed", "agreement"))
    parser.add_argument("--family", choices=("gaussian", "bernoulli"), default="gaussian")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int)
    parser.add_argument("--draws", type=int, default=100, help="effective draws by Gibbs")
    parser.add_argument("--nuts", type=int, nargs=3, default=(300, 200, 1), help="warm-up, draws and chains of NUTS")
    given = parser.parse_args()
    small = given.what == "agreement"
    n, p = given.rows or (60 if small else 400), given.columns or (30 if small else 1000)
    X, y, prior = problem(n, p, given.family)
    ours = by_gibbs(X, y, given.family, prior, given.draws, 1)
    print(f"n = {n}, p = {p}, {given.family}\n")
    print("| sampler | chains × draws | processor s | least β, ess/s | median β, ess/s | τ, ess/s | R-hat |")
    print("|---|---|---|---|---|---|---|")
    print(line("Gibbs", *ours), flush=True)
    theirs = by_nuts(X, y, given.family, prior, *given.nuts, 1)
    print(line("NUTS", *theirs))
    if small:
        a, b = ours[0], theirs[0]
        sd = b.std(axis=(0, 1))
        error = np.sqrt(a.var(axis=(0, 1)) / effective_draws(a) + b.var(axis=(0, 1)) / effective_draws(b))
        apart = a.mean(axis=(0, 1)) - b.mean(axis=(0, 1))
        print(
            f"means: largest |z| {np.abs(apart / error).max():.2f} of {p}, largest distance "
            f"{np.abs(apart / sd).max():.3f} sd; sds: largest relative distance "
            f"{np.abs(a.std(axis=(0, 1)) / sd - 1).max():.3f}"
        )


if __name__ == "__main__":
    main()
