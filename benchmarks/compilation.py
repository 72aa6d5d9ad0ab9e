"""How long a first run compiles: every family, storage and whitening, each in a process with an empty cache of its own.

    python benchmarks/compilation.py [--only WORD] [--rows 60000] [--columns 44]

The seconds are those of `posterior.compile_seconds`, and of the whole call. Labels are drawn from each family at small
coefficients, so a case that compiles nothing shows 0.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import scipy.sparse

STORAGES = ("float32", "CSR", "partitions")
METHODS = ("split-hmc", "subsampled-mh", "anchored")
WHITENINGS = ("dense", "low rank", "sparse")
LEVELS = 2000  # of the categorical column for which a whitening is sparse


def labels(family, linear_predictor, rng):
    """A label for each row; of families with classes, three of them."""
    from svrhmc.families import family_of

    n = len(linear_predictor)
    if family in ("categorical", "ordinal"):
        return np.digitize(linear_predictor + rng.logistic(size=n), [-1.0, 1.0])
    loss = family_of(family)
    t = linear_predictor
    if loss.predictor_shape:
        t = np.zeros((n, *loss.predictor_shape))
        t[:, : loss.blocks] = linear_predictor[:, None]
    y = loss.draw(t, rng.random(n), np.full(n, 10.0) if loss.in_trials or loss.weights_are_trials else None)
    return np.clip(y, 1e-6, 1 - 1e-6) if family == "beta" else y


def target(family, storage, rows, columns):
    from svrhmc import data, targets
    from svrhmc.families import family_of

    rng = np.random.default_rng(0)
    if storage == "levels":
        level = scipy.sparse.csr_matrix((np.ones(rows), rng.integers(LEVELS, size=rows), np.arange(rows + 1)))
        X = scipy.sparse.hstack([np.ones((rows, 1)), rng.normal(size=(rows, 2)), level]).tocsr()
        y = labels(family, X @ (0.3 * rng.normal(size=X.shape[1])), rng)
        return targets.glm(X, y, family, prior_precision=1.0)
    X = rng.normal(size=(rows, columns))
    X[:, 0] = 1.0
    if storage == "CSR":
        X *= rng.random(X.shape) < 0.1
    y = labels(family, X @ rng.normal(size=columns) / columns**0.5, rng)
    loss = family_of(family)
    more = {"trials": np.full(rows, 10.0)} if loss.in_trials or loss.weights_are_trials else {}
    if storage == "float32":
        X = X.astype(np.float32)
    elif storage == "CSR":
        X = scipy.sparse.csr_matrix(X)
    elif storage == "partitions":
        return targets.glm(data.from_arrays(X, np.asarray(y, float), partitions=3), family=family)
    return targets.glm(X[:, 1:] if not loss.has_intercept else X, y, family, **more)


def measured(case):
    """Seconds of compilation and of the whole call, and what ran."""
    import svrhmc
    from svrhmc.whitening import whitened, whitening

    given = target(case["family"], case["storage"], case["rows"], case["columns"])
    began = time.perf_counter()
    if case["whitening"]:
        variables = whitened(given, whitening(given, case["whitening"]))
        began = time.perf_counter()
        svrhmc.svr_hmc(0.01, inverse_mass=1.0, batch_size=32).run(variables, 10, chains=1, threads=1)
        took = time.perf_counter() - began
        return took, took, "svr_hmc, ten steps"
    posterior = svrhmc.sample(given, method=case["method"])
    return posterior.compile_seconds, time.perf_counter() - began, posterior.method


def cases(rows, columns):
    from svrhmc.families.base import FAMILIES

    def case(name, family="negative-binomial", storage="dense", method=None, whitening=None):
        shape = {"rows": rows, "columns": columns}
        return name, {"family": family, "storage": storage, "method": method, "whitening": whitening, **shape}

    yield from (case(f"family: {family}", family) for family in FAMILIES)
    yield from (case(f"storage: {storage}", storage=storage) for storage in STORAGES)
    yield from (case(f"storage: {storage}, logit", "bernoulli", storage) for storage in STORAGES)
    yield from (case(f"method: {method}, logit", "bernoulli", method=method) for method in METHODS)
    for kind in WHITENINGS:
        sparse = kind == "sparse"  # of families with one predictor, where rows have a few of many columns
        data = {"family": "poisson", "storage": "levels"} if sparse else {}
        yield case(f"whitening: {kind}", whitening=kind, **data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=44)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.case:
        return print(json.dumps(measured(json.loads(chosen.case))))
    print("| case | compiles, s | whole call, s | sampler |\n|---|---|---|---|")
    for name, case in cases(chosen.rows, chosen.columns):
        if chosen.only not in name:
            continue
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            command = [sys.executable, __file__, "--case", json.dumps(case)]
            run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if run.returncode:
            print(f"| {name} | {run.stderr.strip().splitlines()[-1]} | | |", flush=True)
            continue
        compiling, whole, method = json.loads(run.stdout.splitlines()[-1])
        print(f"| {name} | {compiling:.1f} | {whole:.1f} | {method} |", flush=True)


if __name__ == "__main__":
    main()
