"""Twelve small runs whose draws 0.1.0 made: the same seed gives the same draws from version to version.

`python tests/stored_runs.py` prints them; what 0.1.0 printed is in stored/draws-0.1.0.json, and what has changed since
then on purpose, as the changelog says, in stored/draws-changed.json. Each is kept as the last
state of every chain and the mean over its draws. They are compared to rounding and not bit for bit, because sums in
another order, as on another processor, end in other last digits.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from scipy import sparse

import svrhmc
from svrhmc import dynamics, gradients, targets
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.whitening import whitened


def table(n: int, dim: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of a logistic model."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, dim))
    return X, (rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=dim)))).astype(float)


def dense() -> targets.FiniteSum:
    """A logistic posterior."""
    return targets.logistic(*table(300, 5))


def counts() -> targets.FiniteSum:
    """A Poisson regression by its component gradients alone."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 3)) / 2
    y = rng.poisson(np.exp(X @ np.array([0.5, -0.3, 0.2])))
    return targets.custom(200, 3, lambda x, i: 200 * (np.exp(X[i] @ x) - y[i])[:, None] * X[i] + x, smoothness=500.0)


def sparse_rows() -> targets.FiniteSum:
    """A logistic posterior over CSR rows."""
    X, y = table(300, 12)
    return targets.logistic(sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0.0)), y)


def grid(sampler: svrhmc.Sampler, target: Callable[[], targets.FiniteSum], **more: object) -> Callable[[], np.ndarray]:
    """A run of a sampler of the grid."""
    return lambda: sampler.run(target(), steps=400, chains=3, seed=7, **more).draws


RUNS: dict[str, Callable[[], np.ndarray]] = {
    "svr-hmc, dense": grid(svrhmc.svr_hmc(0.05, batch_size=4), dense, start="mode"),
    "svr-hmc, sparse": grid(svrhmc.svr_hmc(0.05, batch_size=3, epoch_length=50), sparse_rows),
    "svr-hmc, reference": grid(svrhmc.svr_hmc(0.05, batch_size=4), dense, engine="reference"),
    "svr-hmc, gaussian": grid(svrhmc.svr_hmc(0.1, batch_size=2), lambda: targets.synthetic(40, 4, spread=0.5)),
    "sgld, custom": grid(svrhmc.sgld(1e-3, batch_size=20), counts),
    "vr-sgld, estimated snapshots": grid(svrhmc.vr_sgld(1e-3, 5, 20, snapshot_size=60), dense),
    "saga-ubu, dense": grid(svrhmc.saga_ubu(0.1, batch_size=5), dense),
    "control variates of order 2": grid(
        svrhmc.Sampler(dynamics.Underdamped(0.05), gradients.ControlVariate(5, order=2)), dense
    ),
    "anchored, whitened, by importance": grid(
        svrhmc.Sampler(dynamics.Anchored(1.0), gradients.Minibatch(20, importance=True)), lambda: whitened(dense())
    ),
    "split HMC": lambda: SplitHMC().run(dense(), 200, chains=3, seed=7).draws,
    "subsampled Metropolis": lambda: SubsampledMH().run(targets.logistic(*table(20_000, 4)), 200, chains=3).draws,
    "sample": lambda: svrhmc.sample(dense(), draws=400, seed=5, method="split-hmc").trace.draws,
    "sample, custom": lambda: svrhmc.sample(counts(), draws=20, seed=5, tolerance=0.5, method="ubu").trace.draws,
}


def digest(draws: np.ndarray) -> dict[str, list[float]]:
    """The last states, flat, and the mean."""
    return {"last": draws[:, -1].ravel().tolist(), "mean": draws.mean(axis=(0, 1)).tolist(), "shape": list(draws.shape)}


if __name__ == "__main__":
    print(json.dumps({name: digest(run()) for name, run in RUNS.items()}, indent=1))
