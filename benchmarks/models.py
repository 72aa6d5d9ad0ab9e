"""Models of one's own beside BlackJAX and NumPyro on a CPU: tables in Markdown.

    python benchmarks/models.py [--rounds 5] [--only network,logistic,curve,digits] [--out benchmarks/results/models.md]

Steps are timed in turn, round after round, in one process, after compilation: the medians of the rounds, in wall time
and in processor time of all threads, which a shared machine disturbs less; what counts are ratios within one run.
BlackJAX's kernels are compiled into one scan with the rows drawn inside it, which is the fastest way to run them. Its
`sghmc` makes ten gradients of one batch in a step; times are those of one gradient everywhere.
"""

import argparse
import importlib.metadata
import itertools
import os
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import svrhmc
from svrhmc import Sampler, dynamics, engines, gradients, targets
from svrhmc.core.errors import DivergenceError
from svrhmc.engines.base import Keep, State

NOTHING = Keep(1 << 62, 1 << 40)
PACKAGES = ("jax", "blackjax", "numpyro", "numba", "numpy")


def medians(rounds, contenders):
    """Median seconds of each contender, by the clock and of the processor, measured in turn; one round to warm up."""
    times = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            began = time.perf_counter(), time.process_time()
            run()
            if turn:
                times[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    return {name: tuple(statistics.median(each) for each in zip(*found, strict=True)) for name, found in times.items()}


def log_network(params, X):
    """Log-probabilities of classes, for one row or many."""
    (w0, b0), (w1, b1) = params
    return jax.nn.log_softmax(jnp.tanh(X @ w0 + b0) @ w1 + b1)


def network_likelihood(params, row):
    x, y = row
    return jnp.take_along_axis(log_network(params, x), y[..., None], axis=-1)[..., 0]


def normal_prior(params):
    return -0.5 * sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(params))


def logistic_likelihood(params, row):
    x, y = row
    t = x @ params
    return y * t - jnp.logaddexp(0.0, t)


def network(widths):
    """Parameters of a network, at random."""
    rng = np.random.default_rng(0)
    shapes = list(itertools.pairwise(widths))
    return [(rng.normal(size=(a, b)).astype(np.float32) / a**0.5, np.zeros(b, np.float32)) for a, b in shapes]


def blackjax_kernels(likelihood, prior, n):
    """Functions of (key, position, batch, step size), with the gradients that each makes."""
    import blackjax

    gradient = blackjax.sgmcmc.gradients.grad_estimator(prior, likelihood, n)
    return {
        "BlackJAX SGHMC, ten gradients of a batch": (blackjax.sghmc(gradient, 10).step, 10),
        "BlackJAX SGLD": (blackjax.sgld(gradient).step, 1),
    }


def blackjax_run(kernel, data, n, batch, steps, step_size, keeps=False):
    """A function of a position that makes steps of a kernel in one program, a batch being drawn for each."""

    @jax.jit
    def run(data, position, key):
        def body(position, key):
            for_rows, for_noise = jax.random.split(key)
            rows = jax.random.randint(for_rows, (batch,), 0, n)
            position = kernel(for_noise, position, jax.tree.map(lambda leaf: leaf[rows], data), step_size)
            return position, position if keeps else None

        return jax.lax.scan(body, position, jax.random.split(key, steps))

    data = jax.tree.map(jnp.asarray, data)
    return lambda position: jax.block_until_ready(run(data, position, jax.random.key(0)))


def chains(sampler, target, start, engine, seed=0):
    setup = sampler.setup(target, seed, np.array([0]), 1)
    return engines.chains(engine, setup, State(start[None], np.zeros((1, target.dim))))


def steps_table(rounds, ours, kernels, data, n, batch, position, budget):
    """Rows of a table: microseconds of a gradient. ours: name, chains and how many steps are timed; budget: the
    gradients of a kernel.
    """
    contenders = {name: lambda made=made, steps=steps: made.extend(steps, NOTHING) for name, made, steps in ours}
    counts = {name: steps for name, _, steps in ours}
    for name, (kernel, each) in kernels.items():
        run = blackjax_run(kernel, data, n, batch, max(1, budget // each), 1e-7)
        contenders[name], counts[name] = lambda run=run: run(position), max(1, budget // each) * each
    found = {
        name: [1e6 * each / counts[name] for each in seconds] for name, seconds in medians(rounds, contenders).items()
    }
    names = list(kernels)
    head = "| | µs of a gradient, wall | processor | " + " | ".join(f"{name}: times as long" for name in names) + " |"
    lines = [head, "|---|---|---|" + "---|" * len(names)]
    for name, (wall, cpu) in found.items():
        ratios = [f"{found[other][0] / wall:.2f} (processor {found[other][1] / cpu:.2f})" for other in names]
        lines.append(f"| {name} | {wall:.4g} | {cpu:.4g} | " + " | ".join(ratios) + " |")
    return lines


def bench_network(rounds):
    n, batch, rng = 60_000, 512, np.random.default_rng(0)
    data = rng.random((n, 784), dtype=np.float32), rng.integers(0, 10, n).astype(np.int32)
    start = network((784, 200, 10))
    target = targets.model(network_likelihood, normal_prior, data, start, dtype="float32", batched=True)
    rules = {
        "svrhmc Underdamped (two normals a coordinate)": dynamics.Underdamped(1e-5, inverse_mass=1.0),
        "svrhmc EulerMaruyama (one)": dynamics.EulerMaruyama(1e-5, inverse_mass=1.0),
        "svrhmc Overdamped (one)": dynamics.Overdamped(1e-7),
    }
    ours = [
        (name, chains(Sampler(rule, gradients.Minibatch(batch)), target, target.start, "jax"), 32)
        for name, rule in rules.items()
    ]
    kernels = blackjax_kernels(network_likelihood, normal_prior, n)
    head = f"## A 784-200-10 network, {target.dim:,} parameters, n = 60,000, batches of 512, float32, one chain"
    return [head, *steps_table(rounds, ours, kernels, data, n, batch, start, 30)]


def bench_logistic(rounds):
    n, dim, batch, rng = 100_000, 50, 32, np.random.default_rng(0)
    X = rng.standard_normal((n, dim), dtype=np.float32) / np.float32(dim**0.5)
    y = (rng.random(n) < 1 / (1 + np.exp(-2 * X @ rng.standard_normal(dim)))).astype(np.float32)
    rows, zero = targets.logistic(X, y), np.zeros(dim)
    own = targets.model(logistic_likelihood, normal_prior, (X, y), zero, dtype="float32", batched=True)
    rule, slow = dynamics.Underdamped(1e-3, inverse_mass=1.0), dynamics.Overdamped(1e-6)
    noisy = gradients.Minibatch(batch)
    ours = [
        ("svrhmc Underdamped, its default engine", chains(Sampler(rule, noisy), rows, zero, "numba"), 20_000),
        ("svrhmc Overdamped, its default engine", chains(Sampler(slow, noisy), rows, zero, "numba"), 20_000),
        ("svrhmc Underdamped, engine jax", chains(Sampler(rule, noisy), rows, zero, "jax"), 4_000),
        ("svrhmc Underdamped, `targets.model`", chains(Sampler(rule, noisy), own, zero, "jax"), 4_000),
    ]
    kernels = blackjax_kernels(logistic_likelihood, normal_prior, n)
    table = steps_table(rounds, ours, kernels, (X, y), n, batch, zero.astype(np.float32), 4_000)
    return ["## Logistic regression, n = 100,000, d = 50, batches of 32, float32, one chain", *table]


def curve(x, y):
    """y = a + b exp(−cx) with normal noise of unknown size, in NumPyro."""
    import numpyro
    import numpyro.distributions as dist

    a, b = numpyro.sample("a", dist.Normal(0, 5)), numpyro.sample("b", dist.Normal(0, 5))
    c, sigma = numpyro.sample("c", dist.LogNormal(0, 1)), numpyro.sample("sigma", dist.HalfNormal(1))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("y", dist.Normal(a + b * jnp.exp(-c * x), sigma), obs=y)


def least_ess(draws):
    import arviz

    found = arviz.ess(draws)
    return min(float(found[name]) for name in found.data_vars)


def bench_curve(rounds):
    from numpyro.infer import MCMC, NUTS

    n, rng = 100_000, np.random.default_rng(0)
    x = rng.uniform(0, 4, n)
    y = 1.0 + 2.0 * np.exp(-0.7 * x) + 0.5 * rng.normal(size=n)
    target = targets.from_numpyro(curve, x, y)
    began = time.perf_counter()
    svrhmc.sample(target, seed=0)
    first = time.perf_counter() - began
    names, ours = ("a", "b", "c", "sigma"), []
    for seed in range(1, rounds + 1):
        began = time.perf_counter(), time.process_time()
        posterior = svrhmc.sample(target, seed=seed)
        spent = time.perf_counter() - began[0], time.process_time() - began[1]
        ours.append((posterior, *(least_ess(posterior.to_arviz()) / each for each in spent)))
    with jax.enable_x64(True):
        mcmc = MCMC(NUTS(curve), num_warmup=300, num_samples=400, progress_bar=False)
        arrays = jnp.asarray(x), jnp.asarray(y)
        mcmc.warmup(jax.random.key(0), *arrays, extra_fields=("num_steps",))
        mcmc.run(jax.random.key(1), *arrays, extra_fields=("num_steps",))
        began = time.perf_counter(), time.process_time()
        mcmc.run(jax.random.key(2), *arrays, extra_fields=("num_steps",))
        spent = time.perf_counter() - began[0], time.process_time() - began[1]
        theirs = {name: np.asarray(value)[None] for name, value in mcmc.get_samples().items()}
        leaps = float(np.mean(mcmc.get_extra_fields()["num_steps"]))
    nuts = [least_ess(theirs) / each for each in spent]
    long = svrhmc.sample(target, draws=20_000, seed=99)
    truth = {name: _constrained(long, name) for name in names}
    mine = [statistics.median(one[k] for one in ours) for k in (1, 2)]
    every = [{name: _constrained(one[0], name) for name in names} for one in ours]
    lines = [
        "## y = a + b exp(−cx) + noise of unknown size, 100,000 rows, as a NumPyro model",
        "| | effective draws a second, wall | processor | largest error of a mean, posterior sd | of an sd, relative |",
        "|---|---|---|---|---|",
    ]
    for name, rates, runs in (("`svrhmc.sample`", mine, every), ("NumPyro NUTS, float64", nuts, [theirs])):
        away, wide = (statistics.median(each) for each in zip(*(errors(run, truth) for run in runs), strict=True))
        lines.append(f"| {name} | {rates[0]:.4g} | {rates[1]:.4g} | {away:.3f} | {wide:.3f} |")
    lines.append(f"| ratio | {mine[0] / nuts[0]:.3g} | {mine[1] / nuts[1]:.3g} | | |")
    found = ours[-1][0]
    mean, sd = (float((error / found.sd).max()) for error in found.errors)
    corrected = max(float((abs(one[0].mean - long.mean) / long.sd).max()) for one in ours)
    told = (
        f"Least bulk effective draws (ArviZ) over the parameters. `sample`: {found.method}, verdict "
        f"{found.certificate.verdict!r}, {found.trace.draws.shape[:2]} chains and draws, {found.seconds:.2f} s, the "
        f"median of {rounds} runs whose mode and programs were known (the first, with compilation and the search for "
        f"the mode, took {first:.1f} s). NUTS: one chain, 400 draws after a warm-up of 300 that is not timed, "
        f"{leaps:.1f} gradients a draw. Errors are those of averages over the draws (their median over the runs) "
        "against 20,000 effective draws of `sample`. The moments that `sample` reports are corrected by the gradients, "
        f"with standard errors of {mean:.2g} and {sd:.2g} posterior sd; the means of the runs differ by at most "
        f"{corrected:.2g} sd from those of the long one."
    )
    return [*lines, "", told]


def errors(draws, truth):
    """The largest error of a mean, in standard deviations, and of a standard deviation."""
    away = max(abs(draws[name].mean() - truth[name].mean()) / truth[name].std() for name in truth)
    return away, max(abs(draws[name].std() / truth[name].std() - 1) for name in truth)


def _constrained(posterior, name):
    """Draws of a parameter as the model has it."""
    return np.asarray(posterior.to_arviz().posterior[name])


def log_predictive(X, y):
    """A function of draws: the mean over rows of the log of the probability that they give to its class on average."""

    def of(draws):
        found = jax.vmap(lambda params: network_likelihood(params, (X, y)))(draws)
        return jnp.mean(jax.nn.logsumexp(found, axis=0) - jnp.log(found.shape[0]))

    return jax.jit(of)


def bench_digits(rounds):
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X, y = (X / 16).astype(np.float32), y.astype(np.int32)
    X, new_X, y, new_y = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    start, n, batch, budget, kept = network((64, 16, 10)), len(X), 64, 20_000, 200
    target = targets.model(network_likelihood, normal_prior, (X, y), start, dtype="float32", batched=True)
    passes = budget * batch / n
    seen = log_predictive(new_X, new_y)
    lines = [
        f"## A 64-16-10 network on digits, {target.dim:,} parameters, {n} rows, tested on {len(new_X)}",
        f"| {budget:,} gradients of {batch} rows ({passes:.0f} passes), one chain, its second half averaged |"
        " step | log-likelihood of a test row |",
        "|---|---|---|",
    ]
    kernel, each = blackjax_kernels(network_likelihood, normal_prior, n)["BlackJAX SGHMC, ten gradients of a batch"]
    best = {}
    for size in (1e-3, 3e-3, 1e-2, 2e-2):
        steps = budget // each
        draws = blackjax_run(kernel, (X, y), n, batch, steps, size, keeps=True)(start)[1]
        draws = jax.tree.map(lambda leaf: leaf[steps // 2 :: steps // 2 // kept], draws)  # noqa: B023
        note(lines, best, "BlackJAX SGHMC", size, float(seen(draws)))
    with_snapshots = gradients.SVRG(batch, 60)
    for name, gradient in (("svrhmc UBU, batches", gradients.Minibatch(batch)), ("svrhmc UBU, SVRG", with_snapshots)):
        for size in (1e-3, 3e-3, 1e-2, 2e-2):
            sampler = Sampler(dynamics.UBU(size, friction=10.0, inverse_mass=1.0), gradient)
            steps = sampler.gradient.recipe(target).steps_within(budget * batch)
            try:
                made = chains(sampler, target, target.start, "jax").extend(steps, Keep(steps // 2, steps // 2 // kept))
            except DivergenceError:
                continue
            params = [target.params(x) for x in made.draws[0]]
            note(lines, best, name, size, float(seen(jax.tree.map(lambda *leaves: jnp.stack(leaves), *params))))
    target = targets.model(network_likelihood, normal_prior, (X.astype(float), y), start, batched=True)
    target.mode()
    posterior = svrhmc.sample(target, draws=100, budget_seconds=30)
    draws = posterior.trace.draws.reshape(-1, target.dim)[::4]
    value = float(seen(jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(target.params, draws))))
    lines.append("")
    lines.append("The best step of each: " + "; ".join(f"{name} {each:.4f}" for name, each in best.items()) + ".")
    lines.append("")
    lines.append(
        f"`svrhmc.sample` in float64, 30 s after the mode was known ({posterior.passes:,.0f} passes, "
        f"{posterior.method}): {value:.4f}, verdict "
        f"{posterior.certificate.verdict!r}: {posterior.certificate.reason}."
    )
    return lines


def note(lines, best, name, size, value):
    lines.append(f"| {name} | {size:g} | {value:.4f} |")
    if np.isfinite(value):
        best[name] = max(value, best.get(name, -np.inf))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="network,logistic,curve,digits")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    lines = [
        "# Models of one's own beside BlackJAX and NumPyro, on a CPU",
        "",
        f"`python benchmarks/models.py --rounds {chosen.rounds} --only {chosen.only}`, a shared machine with "
        f"{os.cpu_count()} cores; {versions}. " + " ".join(__doc__.split("\n\n")[2].split()),
    ]
    parts = {"network": bench_network, "logistic": bench_logistic, "curve": bench_curve, "digits": bench_digits}
    for name in chosen.only.split(","):
        found = parts[name](chosen.rounds)
        lines += ["", *found]
        print("\n".join(found), flush=True)
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
