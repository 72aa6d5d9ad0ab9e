"""What a GPU does: full gradients, exact HMC with chains that share a pass, batches, and many chains.

    python benchmarks/device.py [--only NAME] [--out FILE]

Each case prints one line as it ends. Without a GPU the sizes are cut by a thousand, to see that it runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import svrhmc
from svrhmc import Sampler, dynamics, gradients, targets
from svrhmc.core.jax import scope

ON_GPU = jax.default_backend() == "gpu"
CUT = 1 if ON_GPU else 1000


def seconds(function: Callable[[], Any], repeat: int = 20) -> float:
    """The median of some calls after one that is not counted."""
    function()
    took = []
    for _ in range(repeat):
        began = time.perf_counter()
        jax.block_until_ready(function())
        took.append(time.perf_counter() - began)
    return float(np.median(took))


def table(n: int, dim: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows and labels of a logistic regression in float32, made on the device."""
    one, two, three = jax.random.split(jax.random.key(seed), 3)
    X = jax.random.normal(one, (n, dim), jnp.float32).at[:, 0].set(1.0)
    theta = jax.random.normal(two, (dim,), jnp.float32) / np.sqrt(dim)
    y = (jax.random.uniform(three, (n,)) < jax.nn.sigmoid(X @ theta)).astype(jnp.float32)
    return X, y


def log_likelihood(theta: Any, rows: Any) -> Any:
    """Of many rows of a logistic regression."""
    X, y = rows
    t = X @ theta
    return y * t - jax.nn.softplus(t)


def log_prior(theta: Any) -> Any:
    """N(0, 1)."""
    return -0.5 * theta @ theta


def case_full_gradient() -> dict[str, Any]:
    """8,000,000 × 128: bytes of X over the time of a gradient, in TB/s."""
    n, dim = 8_000_000 // CUT, 128
    X, y = table(n, dim)
    theta = jnp.full(dim, 0.01, jnp.float32)

    @jax.jit
    def two_reads(X: Any, y: Any, theta: Any) -> Any:
        t = jnp.matmul(X, theta, precision="highest")
        return jnp.matmul(jax.nn.sigmoid(t) - y, X, precision="highest")

    found = {"XLA, two reads": n * dim * 4 / seconds(lambda: two_reads(X, y, theta)) / 1e12}
    for block in (1 << 17,):
        count = n // block

        @jax.jit
        def blocks(X: Any, y: Any, theta: Any, block: int = block, count: int = count) -> Any:
            def one(k: Any, total: Any) -> Any:
                rows = jax.lax.dynamic_slice_in_dim(X, k * block, block)
                t = jnp.matmul(rows, theta, precision="highest")
                s = jax.nn.sigmoid(t) - jax.lax.dynamic_slice_in_dim(y, k * block, block)
                return total + jnp.matmul(s, rows, precision="highest")

            return jax.lax.fori_loop(0, count, one, jnp.zeros(dim))

        if count:
            found[f"XLA, blocks of {block}"] = n * dim * 4 / seconds(lambda: blocks(X, y, theta)) / 1e12
    from svrhmc.engines.jax.gpu import gradient
    from svrhmc.engines.jax.placement import place_form

    target = targets.logistic(np.asarray(X), np.asarray(y))
    operations = place_form(target.form()).operations
    step = per_step(Sampler(dynamics.Overdamped(1e-12), gradients.Full()), target, 1, 200 if ON_GPU else 5)
    found["engine, a step of one chain"] = n * dim * 4 / (step * 1e-6) / 1e12
    want = np.asarray(two_reads(X, y, theta))
    for tile, warps in ((64, 8), (128, 8)):
        try:
            fused = partial(jax.jit(gradient, static_argnums=(0, 4, 5)), operations, X, 2 * y - 1, theta, tile, warps)
            off = float(np.abs(np.asarray(fused()) - want).max() / np.abs(want).max())
            took = seconds(fused)
            found[f"fused, {tile} rows, {warps} warps"] = [n * dim * 4 / took / 1e12, off]
        except Exception as error:
            found[f"fused, {tile} rows, {warps} warps"] = f"{type(error).__name__}: {str(error)[:300]}"
    return found


def case_exact_hmc() -> dict[str, Any]:
    """8,000,000 × 128, 64 chains that share a pass: effective draws a second of sampling."""
    n, dim = 8_000_000 // CUT, 128 if ON_GPU else 8
    X, y = table(n, dim)
    began = time.perf_counter()
    target = targets.model(log_likelihood, log_prior, (X, y), np.zeros(dim), batched=True, dtype="float32")
    door = time.perf_counter() - began
    posterior = svrhmc.sample(target, draws=10_000, chains=64, method="split-hmc", progress=False)
    sampling = posterior.steps["sampling"]
    return {
        "door": door, "steps": posterior.steps, "compile": posterior.compile_seconds, "passes": posterior.passes,
        "ess": float(posterior.ess.min()), "ess a second": float(posterior.ess.min()) / sampling,
        "verdict": posterior.certificate.verdict, "method": posterior.method,
        "acceptance": float(np.mean(posterior.trace.acceptance)),
    }  # fmt: skip


def case_regression() -> dict[str, Any]:
    """8,000,000 × 128 in float32, in the host's memory: a logistic regression by `svrhmc.sample(…, devices=…)`."""
    X, y = map(np.asarray, table(8_000_000 // CUT, 128 if ON_GPU else 8))
    found = {}
    for call, chains in (("first", 4), ("again", 4), ("32 chains", 32)):
        began = time.perf_counter()
        target = targets.logistic(X, y)
        door = time.perf_counter() - began
        posterior = svrhmc.sample(target, chains=chains, devices="all", progress=False)
        found[call] = {
            "seconds": time.perf_counter() - began, "door": door, "steps": posterior.steps, "passes": posterior.passes,
            "compile": posterior.compile_seconds, "ess": float(posterior.ess.min()), "method": posterior.method,
            "verdict": posterior.certificate.verdict,
        }  # fmt: skip
    return found


def case_fit() -> dict[str, Any]:
    """The same from arrays of a table, with units, an intercept and default priors: `regress`."""
    from svrhmc.fitting.regression import regress

    X, y = map(np.asarray, table(8_000_000 // CUT, 128 if ON_GPU else 8))
    began = time.perf_counter()
    posterior = regress(X[:, 1:], y.astype(int), "bernoulli", devices="all", progress=False)
    found = {"seconds": time.perf_counter() - began, "steps": posterior.steps, "compile": posterior.compile_seconds}
    began = time.perf_counter()
    str(posterior.summary())
    return {**found, "summary": time.perf_counter() - began, "verdict": posterior.certificate.verdict}


def per_step(sampler: Sampler, target: Any, chains: int, steps: int) -> float:
    """Microseconds of a step of all chains, after a run that is not counted."""
    made = sampler.setup(target, 0, np.arange(chains), 1)
    from svrhmc.engines import Keep, State
    from svrhmc.engines.base import load

    origin = np.zeros((chains, target.dim))
    running = load("jax").chains(made, State(origin, origin.copy()))
    last = Keep(1 << 60, 1 << 60)
    running.extend(steps, last)
    took = []
    for _ in range(3):
        began = time.perf_counter()
        running.extend(steps, last)
        took.append(time.perf_counter() - began)
    return float(np.median(took)) / steps * 1e6


def case_batches() -> dict[str, Any]:
    """1,000,000 × 100, 64 chains, batches of 256: microseconds a step of all chains."""
    n, dim = 1_000_000 // CUT, 100
    X, y = table(n, dim)
    with scope():
        target = targets.logistic(np.asarray(X), np.asarray(y))
    kinds = {"minibatch": gradients.Minibatch(256), "svrg": gradients.SVRG(256, 4000)}
    found = {}
    for name, gradient in kinds.items():
        for dynamic in (dynamics.Overdamped(1e-9), dynamics.Underdamped(1e-3, 2.0, 1e-6)):
            label = f"{name}, {type(dynamic).__name__}"
            found[label] = per_step(Sampler(dynamic, gradient), target, 64, 4000 // (1 if ON_GPU else 20))
    for batch, chains in ((32, 64), (1024, 64), (256, 512)):
        sampler = Sampler(dynamics.Overdamped(1e-9), gradients.Minibatch(batch))
        found[f"minibatch of {batch}, {chains} chains"] = per_step(sampler, target, chains, 4000 // CUT)
    found["against the reference"] = off_reference(target)
    return found


def off_reference(target: Any) -> float:
    """The largest difference between 60 steps on the device and by the reference, in sizes of a coordinate."""
    worst = 0.0
    for dynamic in (dynamics.Overdamped(1e-9), dynamics.Underdamped(1e-3, 2.0, 1e-6)):
        for gradient in (gradients.Minibatch(37), gradients.SVRG(16, 25)):
            settings: dict[str, Any] = {"steps": 60, "chains": 2, "seed": 1}
            one, other = (Sampler(dynamic, gradient).run(target, engine=e, **settings) for e in ("jax", "reference"))
            worst = max(worst, float(np.abs(one.draws - other.draws).max() / np.abs(other.draws).max()))
    return worst


def case_many_chains() -> dict[str, Any]:
    """Figure 1's target, d = 50, 20,000 chains: microseconds a step of all chains."""
    target = targets.synthetic(n=1000, dim=50)
    chains = 20_000 // CUT
    steps = 2000 // (1 if ON_GPU else 20)
    return {
        "svr-hmc": per_step(svrhmc.svr_hmc(0.1, batch_size=1, epoch_length=100), target, chains, steps),
        "hmc": per_step(svrhmc.hmc(0.1), target, chains, steps),
        "sgld": per_step(svrhmc.sgld(0.01), target, chains, steps),
    }


CASES = {
    "regression": case_regression,
    "fit": case_fit,
    "full gradient": case_full_gradient,
    "batches": case_batches,
    "many chains": case_many_chains,
    "exact hmc": case_exact_hmc,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--out")
    options = parser.parse_args()
    found: dict[str, Any] = {"device": str(jax.devices()[0].device_kind), "jax": jax.__version__}
    for name, case in CASES.items():
        if options.only in (None, name):
            began = time.perf_counter()
            try:
                found[name] = case()
            except Exception as error:
                import traceback

                traceback.print_exc()
                found[name] = f"{type(error).__name__}: {str(error)[:500]}"
            print(f"{name} ({time.perf_counter() - began:.0f} s): {json.dumps(found[name])}", flush=True)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
