"""Constants of a cost model: seconds of a pass, of a step and of an estimate, and steps for an effective draw.

Four chains on two threads. Seconds are the processor's, divided by the threads: what a chain's pass or step costs by
the clock where nobody else uses the machine (of what is made once, they are the clock's). Of all rounds the least
counts. Constants are fitted by least squares of relative errors, none below 0.
"""

import time
from dataclasses import replace
from itertools import product

import numpy as np
import scipy.sparse
from scipy.optimize import nnls

import svrhmc
from svrhmc.dynamics import Anchored
from svrhmc.engines import Grid, Setup, estimates
from svrhmc.exact import SplitHMC, SubsampledMH
from svrhmc.gradients import Minibatch
from svrhmc.sampling import costs
from svrhmc.sampling.doubts import effective_draws
from svrhmc.sampling.gradients import _NO_SCHEME
from svrhmc.whitening import LowRankWhitening, dense_whitening, whitened

CHAINS, THREADS, ROUNDS, PIECE = np.arange(4), 2, 6, 0.15


def model(n, dim, entries=None, family=svrhmc.targets.logistic):
    """Labels by chance, so that the mode is near 0 and the Hessian of a logistic model near (n/4)·E aaᵀ."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, dim if entries is None else entries), np.float32).astype(np.float64)
    if entries is not None:
        columns = (rng.integers(0, dim, (n, 1)) + np.arange(entries) * (dim // entries)) % dim
        X = scipy.sparse.csr_matrix((X.ravel(), columns.ravel(), np.arange(0, n * entries + 1, entries)), (n, dim))
    return family(X, rng.random(n) < 0.5)


def guessed(target, rank=None):
    """In variables that are nearly white, without a search for the mode: dense, or of some rank."""
    scale, zero = (target.n * target.row_entries / target.dim / 4 + 1) ** -0.5, np.zeros(target.dim)
    basis = np.eye(target.dim)[:, : min(rank or 0, target.dim - 1)]
    low = LowRankWhitening(zero, zero + scale, basis, np.zeros(basis.shape[1]))
    return whitened(target, dense_whitening(zero, np.eye(target.dim) / scale**2) if rank is None else low)


def least(run):
    """The least seconds of `run(count)` for one of count, with counts that take about PIECE seconds."""
    count, best = 1, np.inf
    for _ in range(ROUNDS):
        began = time.process_time()
        run(count)
        best = min(best, (time.process_time() - began) / THREADS / count)
        count = max(1, int(PIECE / best))
    return best


def of_chains(sampler, space):
    """Seconds of a chain's draw, and the rows that it evaluates."""
    chains, rows = sampler.chains(space, 1, CHAINS, THREADS), []
    cost = least(lambda count: rows.append(chains.extend(count).evaluations / count / len(CHAINS)))
    return cost / len(CHAINS), rows[-1]


def fit(name, form, points):
    """A row of the table: `points` are (terms, seconds) and `form` names the terms."""
    terms, seconds = (np.array(each, float) for each in zip(*points, strict=True))
    found = nnls(terms / seconds[:, None], np.ones(len(seconds)))[0]
    off = np.abs(terms @ found / seconds - 1)
    shown = " + ".join(f"{value * 1e9:.3g} {term}" for value, term in zip(found, form.split(), strict=True))
    print(f"| {name} | {shown} | {len(points)} | {np.median(off):.0%} | {off.max():.0%} |", flush=True)


def passes():
    sizes = [(n, dim) for n, dim in product((10_000, 100_000, 1_000_000), (1, 5, 20, 54, 200)) if n * dim < 6e7]
    dense = [([n, n * dim], of_chains(SplitHMC(), guessed(model(n, dim)))[0] / 2) for n, dim in sizes]
    for far, name in enumerate(("below", "above")):
        fit(f"pass, dense float64 {name} 32 MB", "n n·dim", [one for one in dense if (one[0][1] > 4e6) == far])
    sizes = [(n, dim, k) for n in (10_000, 100_000) for dim, k in ((100, 5), (100, 20), (500, 14), (500, 100))]
    sparse = [([n, n * k, dim**2], of_chains(SplitHMC(), guessed(model(n, dim, k)))[0] / 2) for n, dim, k in sizes]
    fit("pass, CSR float64", "n nnz dim²", sparse)
    for rank, name, form in ((None, "dense", "1 dim dim²"), (20, "rank 20", "1 dim"), (0, "diagonal", "1 dim")):
        spaces = [guessed(model(2, dim), rank) for dim in (10, 30, 100, 200, 500)]
        points = [([1, s.dim, s.dim**2][: len(form.split())], of_chains(SplitHMC(), s)[0] / 2) for s in spaces]
        fit(f"leapfrog without rows, {name}", form, points)


def steps():
    """With a short step, which costs the same and is stable even with one row."""
    near, far = [(20_000, dim) for dim in (5, 20, 54, 200)], [(1_000_000, dim) for dim in (5, 20, 54)]
    sparse = [(100_000, 50, 10), (100_000, 200, 10), (100_000, 200, 50)]
    for name, sizes in (("n = 2e4", near), ("n = 1e6", far), ("CSR, n = 1e5", sparse)):
        points = []
        for s, B in product([guessed(model(*size)) for size in sizes], (1, 10, 100, 1000)):
            sampler = svrhmc.Sampler(Anchored(0.01, 1.0, 1.0), Minibatch(B, importance=True))
            points.append(([1, B, B * s.row_entries, s.dim**2, s.dim], of_chains(sampler, s)[0]))
        fit(f"step of the grid, {name}", "1 B B·entries dim² dim", points)


def subsampled():
    """A linear model evaluates no rows, and shows what a step takes besides."""
    bare = [whitened(model(2000, dim, None, svrhmc.targets.linear), "dense") for dim in (54, 200, 500)]
    for n, points in ((20_000, []), (1_000_000, [])):
        spaces = bare + [whitened(model(n, dim), "dense") for dim in (5, 20, 54)]
        for s, spread in product(spaces, (0.1, 0.5, 3.0, 20.0)):
            if (sampler := SubsampledMH(spread=spread)).rows_of_step(s) < 5000:
                cost, rows = of_chains(sampler, s)
                points.append(([1, rows, rows * s.dim, s.dim**2, s.dim], cost))
        fit(f"step of SubsampledMH, n = {n:.0e}", "1 Λ Λ·entries dim² dim", points)


def of_estimates():
    for n, points in ((20_000, []), (1_000_000, [])):
        for s, B, k in product([guessed(model(n, dim)) for dim in (5, 20, 54)], (4, 40, 400), (10, 4000)):
            z = np.random.default_rng(1).normal(size=(k, s.dim))
            setup = Setup(s, Grid(_NO_SCHEME, Minibatch(B, importance=True).recipe(s), 1.0), 1, np.arange(k), THREADS)
            cost = least(lambda count, setup=setup, z=z: [estimates(setup, z, 0) for _ in range(count)])
            points.append(([1, k, k * B, k * B * s.dim, k * s.dim**2], cost))
        fit(f"estimates of ∇f, n = {n:.0e}", "call state state·B state·B·dim state·dim²", points)


def once():
    names, points = ("mode", "Hessian and dense whitening", "|Wᵀa| of all rows", "importance table"), []
    for n, dim in ((1_000_000, 5), (1_000_000, 20), (1_000_000, 54), (100_000, 54), (100_000, 200)):
        spent = []
        for target in (model(n, dim) for _ in range(ROUNDS)):
            target.warm()
            clock = [time.perf_counter(), target.mode() is None or time.perf_counter()]
            space = whitened(target, "dense")
            clock += [time.perf_counter(), space.row_norms is None or time.perf_counter()]
            spent.append(np.diff([*clock, space.row_table is None or time.perf_counter()]))
        points.append(([n, n * dim, n * dim**2], np.min(spent, axis=0)))
    for k, name in enumerate(names):
        fit(f"{name}, by the clock", "n n·dim n·dim²", [(terms, seconds[k]) for terms, seconds in points])


def of_families():
    """What a row costs beside its entries, in a pass and drawn at random, and what `svrhmc.sampling.costs` says."""
    print("\n| family | predictors | pass, ns a row | said | row of a batch, ns | said |\n|---|---|---|---|---|---|")
    n, dim, batch = 20_000, 20, 100
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((n, dim)), rng.standard_normal(n)
    families = svrhmc.targets.families
    labels = {
        "bernoulli": rng.random(n) < 0.5,
        families.bernoulli("probit"): rng.random(n) < 0.5,
        "poisson": rng.poisson(1.0, n),
        "gaussian": z,
        "student-t": z,
        "gamma": rng.gamma(2.0, 0.5, n),
        "negative-binomial": rng.negative_binomial(2, 0.5, n),
        families.categorical(3): rng.integers(0, 3, n),
        families.categorical(5): rng.integers(0, 5, n),
        families.categorical(10): rng.integers(0, 10, n),
    }
    for family, y in labels.items():
        space = whitened(svrhmc.targets.glm(X, y, family), "dense")
        one = of_chains(SplitHMC(), space)[0] / 2
        sampler = svrhmc.Sampler(Anchored(0.01, 1.0, 1.0), Minibatch(batch, importance=True))
        some, few = (
            of_chains(replace(sampler, gradient=Minibatch(size, importance=True)), space)[0] for size in (batch, 1)
        )
        said = (
            costs.pass_seconds(space) / n,
            (costs.rows_seconds(space, batch) - costs.rows_seconds(space, 1)) / (batch - 1),
        )
        shown = one / n, said[0], (some - few) / (batch - 1), said[1]
        loss = space.target.loss
        print(f"| {family} | {loss.blocks} + {loss.shared} | " + " | ".join(f"{1e9 * s:.3g}" for s in shown) + " |")


def effective():
    print("\n| sampler | dim | draws or steps for an effective one: mean over coordinates | most |\n|---|---|---|---|")
    grid = svrhmc.Sampler(Anchored(1.0, 1.0, 1.0), Minibatch(100, importance=True))
    for sampler, dim in product((SplitHMC(), SubsampledMH(), grid), (1, 5, 20)):
        chains = sampler.chains(whitened(model(20_000, dim), "dense"), 1, CHAINS, THREADS)
        chains.extend(100)
        draws = chains.extend(10_000).draws
        each = draws.shape[0] * draws.shape[1] / effective_draws(draws)
        print(f"| {sampler} | {dim} | {each.mean():.3g} | {each.max():.3g} |", flush=True)


if __name__ == "__main__":
    print("| what | nanoseconds | measurements | median error | largest |\n|---|---|---|---|---|")
    for part in (passes, steps, subsampled, of_estimates, once, of_families, effective):
        part()
