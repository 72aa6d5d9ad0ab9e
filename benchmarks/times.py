"""Time against rows and columns: a logistic posterior beside point fits and NUTS, the first call and later ones apart.

    python benchmarks/times.py [--only svrhmc,glum] [--rounds 2]

An intercept and normal columns, N(0, 1) priors or the penalty that is the same. Each cell is a process of its own with
one thread of BLAS and empty caches of compiled code. Seconds are those of the processor, of all threads together, as
the clock's say little on a machine with other work: "cold" of the first call, imports not counted, and "warm" the least
of the calls after it. svrhmc: `sample` with default options (1,000 effective draws of every coefficient, verdict
included). NUTS: NumPyro, float64, one chain of 300 + 300 draws, on data in JAX; `effective` says how many of its draws
are effective. The others are points: scikit-learn's LogisticRegression (lbfgs), glum's GeneralizedLinearRegressor
(irls-ls), statsmodels' Logit with its standard errors, which has no penalty.

Rows are added to results/times.csv; `python tools/how_fast_picture.py` draws them.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "times.csv"
BY_ROWS = [(10**power, 20) for power in (3, 4, 5, 6)]
BY_COLUMNS = [(100_000, columns) for columns in (5, 80, 200)]
CASES = [*BY_ROWS, *BY_COLUMNS]
MOST = {"nuts": 2_000_000, "statsmodels": 20_000_000}  # entries of X, beyond which a run would take too long
DRAWS = 300  # of NUTS, and as many before them


def data(rows, columns):
    rng = np.random.default_rng(34)
    X = rng.standard_normal((rows, columns))
    X[:, 0] = 1.0
    t = -0.5 + X @ (0.8 * rng.standard_normal(columns) / np.sqrt(columns))
    return X, (rng.random(rows) < 1 / (1 + np.exp(-t))).astype(float)


def svrhmc(X, y):
    from svrhmc import sample, targets

    return lambda: sample(targets.logistic(X, y)).ess.min()


def sklearn(X, y):
    from sklearn.linear_model import LogisticRegression

    return lambda: LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000).fit(X, y)


def glum(X, y):
    from glum import GeneralizedLinearRegressor

    alpha = 1 / len(y)
    return lambda: GeneralizedLinearRegressor(
        family="binomial", alpha=alpha, l1_ratio=0, fit_intercept=False, solver="irls-ls"
    ).fit(X, y)


def statsmodels(X, y):
    from statsmodels.api import Logit

    return lambda: Logit(y, X).fit(disp=0).bse


def nuts(X, y):
    import jax
    import numpyro
    from bench import worst_ess
    from numpyro.infer import MCMC, NUTS

    jax.config.update("jax_enable_x64", True)
    rows, labels = jax.numpy.asarray(X), jax.numpy.asarray(y)

    def model():
        x = numpyro.sample("x", numpyro.distributions.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=rows @ x), obs=labels)

    chain = MCMC(NUTS(model), num_warmup=DRAWS, num_samples=DRAWS, progress_bar=False)

    def run():
        chain.run(jax.random.PRNGKey(0))
        return worst_ess(np.asarray(chain.get_samples(group_by_chain=True)["x"]))

    return run


METHODS = {each.__name__: each for each in (svrhmc, sklearn, glum, statsmodels, nuts)}


def one(method, rows, columns, rounds):
    """Seconds of the first call and the least of the next, and effective draws."""
    warnings.simplefilter("ignore")
    call, seconds = METHODS[method](*data(rows, columns)), []
    for _ in range(1 + rounds):
        began = time.process_time()
        result = call()
        seconds.append(time.process_time() - began)
    effective = f"{float(result):.0f}" if method in ("svrhmc", "nuts") else ""
    print(json.dumps([f"{seconds[0]:.4g}", f"{min(seconds[1:]):.4g}", effective]))


def measured(method, rows, columns, rounds):
    """The same, in a process of its own with empty caches."""
    with tempfile.TemporaryDirectory() as empty:
        caches = dict.fromkeys(("SVRHMC_CACHE", "NUMBA_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"), empty)
        run = subprocess.run(
            [sys.executable, __file__, "--one", method, str(rows), str(columns), str(rounds)],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | caches,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(run.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(METHODS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        method, *numbers = arguments.one
        return one(method, *map(int, numbers))
    head = ["method", "rows", "columns", "cold", "warm", "effective"]
    kept = list(csv.reader(RESULTS.open(encoding="utf-8")))[1:] if RESULTS.exists() else []
    for method in arguments.only.split(","):
        kept = [row for row in kept if row[0] != method]
        for rows, columns in CASES:
            if rows * columns <= MOST.get(method, rows * columns):
                kept.append([method, str(rows), str(columns), *measured(method, rows, columns, arguments.rounds)])
                print(*kept[-1], flush=True)
        with RESULTS.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *kept])


if __name__ == "__main__":
    main()
