"""Poisson counts: what subsampled Metropolis with a ball takes, beside split HMC and batches of rows.

    python benchmarks/counts.py [--sizes 1000000x10,1000000x50] [--mean 1.0] [--rounds 3]

For each size the radius and the rows that a step is expected to evaluate; then for each sampler, on one thread, the
share of proposals accepted, rows a step, full steps, and effective draws (the least over coordinates, of x) for a
second of the processor, the best of some rounds. The batches are those that `sample` takes for a tolerance of 0.02.
"""

import argparse
import math
import time

import numpy as np

import svrhmc
from svrhmc.core.deadline import Budget
from svrhmc.diagnostics import ess
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.exact.subsampled import region
from svrhmc.sampling.choice import Chooser
from svrhmc.sampling.gradients import FreshGradients, Gaussianity
from svrhmc.whitening import whitened

CHAINS = np.arange(4)


def counts(n, dim, mean):
    """Float32 rows with an intercept, and predictors of standard deviation 0.3."""
    rng = np.random.default_rng(1)
    X = np.empty((n, dim), np.float32)
    X[:, 0] = 1
    X[:, 1:] = rng.standard_normal((n, dim - 1), dtype=np.float32)
    x = np.append(math.log(mean), 0.3 * rng.normal(size=dim - 1) / math.sqrt(dim))
    return svrhmc.targets.glm(X, rng.poisson(np.exp(X @ x)), "poisson")


def measured(name, chains, draws, n, rounds):
    """One line: chains extended `rounds` times, after a start."""
    chains.compile()
    chains.extend(max(10, draws // 20))
    best = None
    for _ in range(rounds):
        began = time.process_time()
        made = chains.extend(draws)
        took = time.process_time() - began
        each = took / draws / len(CHAINS)
        best = (each, made) if best is None or each < best[0] else best
    each, made = best
    effective = float(ess(made.draws).min()) / (draws * len(CHAINS))
    accepted = "" if made.accepted is None else f"accepted {made.accepted.mean() / draws:.3f}, "
    full = "" if made.counts is None else f"full steps {(made.counts >= n).mean():.1g}, "
    rows = made.evaluations / (draws * len(CHAINS))
    print(
        f"  {name:14} {accepted}{rows:.1f} rows a step, {full}{1e6 * each:.1f} µs a step, "
        f"{effective:.2f} effective a step: {effective / each:,.0f} effective draws a second",
        flush=True,
    )


def compare(n, dim, mean, rounds):
    target = counts(n, dim, mean)
    space = whitened(target, "dense")
    found = region(space, SubsampledMH().spread, None)
    print(f"{n:,} × {dim}, counts of mean {mean:g}: radius {found.radius:.2f}, √dim = {math.sqrt(dim):.2f}")
    print(f"  rows expected: {found.rows:.2f}; with R = √dim + 6: {region(space, 0.5, math.sqrt(dim) + 6).rows:.2f}")
    measured("SubsampledMH", SubsampledMH().chains(space, 0, CHAINS, 1), 4000, n, rounds)
    measured("SplitHMC", SplitHMC().chains(space, 0, CHAINS, 1), 100, n, 1)
    ledger = Budget(n, math.inf, math.inf, False)
    fresh = FreshGradients(space, 1, ledger)
    batches = Chooser(target, space, 1000, 0.02, math.inf, fresh, Gaussianity(fresh), ledger).choose("anchored").sampler
    chains = batches.chains(space, 0, CHAINS, 1, fresh.laplace(CHAINS))
    measured(f"Anchored, {batches.gradient.batch_size}", chains, 4000, n, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="1000000x10,1000000x50")
    parser.add_argument("--mean", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for size in given.sizes.split(","):
        compare(*map(int, size.split("x")), given.mean, given.rounds)


if __name__ == "__main__":
    main()
