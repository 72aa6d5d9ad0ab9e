"""Speed of the compiled engine beside other libraries and the machine's limits: a table in Markdown and CSV.

    make bench                     (or: python benchmarks/bench.py [--data DIR] [--rounds 7] [--only steps,passes,…])

Each group of contenders is measured in turn, round after round; a row gives the median of each and the ratio of the
two medians. One chain on one thread unless the row says otherwise. Compilation is timed only in the rows about it.
"""

import argparse
import csv
import importlib.metadata
import lzma
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse
from numba import njit

import svrhmc
from svrhmc.engines.compiled.engine import make_noise
from svrhmc.kernels.normals import fill_noise

HERE = Path(__file__).parent
ROWS = []


def add(problem, ours, other, unit, mine, theirs, bar=None, higher=True):
    """A row: how many times faster we are (or, with higher=False, our share of the other's time), and the bar."""
    ratio = theirs / mine if higher else mine / theirs
    met = "" if bar is None else "yes" if (ratio >= bar if higher else ratio <= bar) else "no"
    ROWS.append(
        {
            "problem": problem,
            "ours": ours,
            "compared with": other,
            "unit": unit,
            "ours (median)": f"{mine:.4g}",
            "other (median)": f"{theirs:.4g}",
            "ratio": f"{ratio:.3g}×" if higher else f"{ratio:.3g}",
            "bar": "" if bar is None else f"{'≥' if higher else '≤'} {bar:g}",
            "met": met,
        }
    )
    print("  " + " | ".join(str(value) for value in ROWS[-1].values()), flush=True)


def medians(rounds, **contenders):
    """Median seconds of each contender, measured in turn; the first round is for warming up."""
    times = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, run in contenders.items():
            began = time.perf_counter()
            run()
            if turn:
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in times.items()}


def simulate(n, dim, dtype, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, dim), dtype=np.float32).astype(dtype) / np.sqrt(dim).astype(dtype)
    y = rng.random(n) < 1 / (1 + np.exp(-X @ rng.standard_normal(dim) * 2))
    return X, y


def stepper(X, y, batch, steps, engine="numba"):
    target = svrhmc.targets.logistic(X, y)
    sampler = svrhmc.svr_hmc(0.01, batch_size=batch)
    return lambda: sampler.run(target, steps, chains=1, keep="last", engine=engine, threads=1, progress=False)


def blackjax_stepper(X, y, batch, steps, kept=True):
    """SGHMC from BlackJAX's parts in one compiled scan, rows drawn inside it.

    kept: its integrator and its gradient estimator, momentum carried on, one gradient a step. Else `blackjax.sghmc`
    itself with one integration step: there the momentum is drawn anew and the gradient is never used, so the compiler
    leaves it out.
    """
    import blackjax
    import jax
    import jax.numpy as jnp
    from blackjax.sgmcmc import diffusions

    n, dim = X.shape
    data, labels = jnp.asarray(X, jnp.float32), jnp.asarray(y, jnp.float32)

    def log_prior(x):
        return -0.5 * jnp.dot(x, x)

    def log_likelihood(x, row):
        t = jnp.dot(row[0], x)
        return row[1] * t - jnp.logaddexp(0.0, t)

    gradient = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, n)
    integrate, algorithm = diffusions.sghmc(), blackjax.sghmc(gradient, num_integration_steps=1)

    def body(state, key):
        for_rows, for_noise = jax.random.split(key)
        rows = jax.random.randint(for_rows, (batch,), 0, n)
        minibatch = data[rows], labels[rows]
        x, momentum = state
        if kept:
            return integrate(for_noise, x, momentum, gradient(x, minibatch), 1e-6), None
        return (algorithm.step(for_noise, x, minibatch, 1e-6), momentum), None

    @jax.jit
    def run(key, x):
        return jax.lax.scan(body, (x, jnp.zeros_like(x)), jax.random.split(key, steps))[0]

    return lambda: jax.block_until_ready(run(jax.random.PRNGKey(0), jnp.zeros(dim, jnp.float32)))


def numpy_noise(dim, steps):
    rng, out = np.random.default_rng(0), np.empty(2 * dim)

    def run():
        for _ in range(steps):
            rng.standard_normal(2 * dim, out=out)

    return run


def bench_steps(rounds):
    print("steps", flush=True)
    X, y = simulate(384, 8, np.float64)
    name, steps = "n = 384, d = 8, B = 1, float64", 200_000
    found = medians(
        rounds,
        ours=stepper(X, y, 1, steps),
        blackjax=blackjax_stepper(X, y, 1, steps // 10),
        without=blackjax_stepper(X, y, 1, steps // 10, kept=False),
        reference=stepper(X, y, 1, 500, "reference"),
    )
    mine = found["ours"] / steps * 1e9
    add(
        name, "SVR-HMC step", "BlackJAX SGHMC step, 1 gradient", "ns", mine, found["blackjax"] / (steps // 10) * 1e9, 25
    )
    theirs = found["without"] / (steps // 10) * 1e9
    add(name, "SVR-HMC step", "blackjax.sghmc, 1 integration step: its gradient is optimised away", "ns", mine, theirs)
    add(name, "SVR-HMC step", "reference engine", "ns", mine, found["reference"] / 500 * 1e9, 100)

    X, y = simulate(3185, 122, np.float32)
    name, steps = "n = 3185, d = 122, B = 1, float32", 50_000
    found = medians(
        rounds,
        ours=stepper(X, y, 1, steps),
        blackjax=blackjax_stepper(X, y, 1, steps // 10),
        noise=numpy_noise(122, steps // 5),
    )
    mine = found["ours"] / steps * 1e9
    add(name, "SVR-HMC step", "BlackJAX SGHMC step, 1 gradient", "ns", mine, found["blackjax"] / (steps // 10) * 1e9, 8)
    add(
        name,
        "SVR-HMC step",
        "NumPy draws 2d normals",
        "ns",
        mine,
        found["noise"] / (steps // 5) * 1e9,
        0.35,
        higher=False,
    )

    X, y = simulate(100_000, 50, np.float32)
    for batch, bar, steps in ((1, 10, 200_000), (32, 4, 50_000)):
        found = medians(rounds, ours=stepper(X, y, batch, steps), blackjax=blackjax_stepper(X, y, batch, steps // 10))
        name = f"n = 100,000, d = 50, B = {batch}, float32"
        theirs = found["blackjax"] / (steps // 10) * 1e9
        add(name, "SVR-HMC step", "BlackJAX SGHMC step, 1 gradient", "ns", found["ours"] / steps * 1e9, theirs, bar)


def read_a3a(folder):
    """The LIBSVM file as CSR rows of 123 columns, or rows of the same shape made up."""
    path = folder and Path(folder) / "a3a" / "a3a.xz"
    if not (path and path.exists()):
        rng = np.random.default_rng(0)
        columns = np.concatenate([np.sort(rng.choice(123, 14, replace=False)) for _ in range(3185)])
        X = scipy.sparse.csr_matrix((np.ones(len(columns)), columns, np.arange(0, len(columns) + 1, 14)), (3185, 123))
        return "rows like a3a's", X, rng.random(3185) < 0.25
    labels, columns, begin = [], [], [0]
    with lzma.open(path, "rt") as file:
        for line in file:
            label, *entries = line.split()
            labels.append(float(label) > 0)
            columns += [int(entry.split(":")[0]) - 1 for entry in entries]
            begin.append(len(columns))
    X = scipy.sparse.csr_matrix((np.ones(len(columns)), np.array(columns), np.array(begin)), (len(labels), 123))
    return "a3a", X, np.array(labels)


def bench_sparse(rounds, folder):
    """Whole steps, and full gradients, where noise and state cost next to nothing and the rows all."""
    print("sparse", flush=True)
    name, X, y = read_a3a(folder)
    dense = X.toarray()
    steps = 50_000
    other = X.copy()
    other.data = np.random.default_rng(0).uniform(0.5, 1.5, X.nnz)
    found = medians(
        rounds,
        sparse=stepper(X, y, 32, steps),
        various=stepper(other, y, 32, steps),
        dense=stepper(dense, y, 32, steps),
    )
    each = {kind: seconds / steps * 1e9 for kind, seconds in found.items()}
    add(f"{name}, B = 32, float64", "CSR rows", "the same rows dense", "ns a step", each["sparse"], each["dense"], 2)
    various = "the same places, entries not all 1"
    add(f"{name}, B = 32, float64", f"CSR rows, {various}", "dense", "ns a step", each["various"], each["dense"])
    full = {"sparse": svrhmc.targets.logistic(X, y), "dense": svrhmc.targets.logistic(dense, y)}
    runs = {
        kind: lambda target=target: svrhmc.hmc(0.01).run(target, 500, chains=1, keep="last", threads=1, progress=False)
        for kind, target in full.items()
    }
    each = {kind: seconds / 500 * 1e6 for kind, seconds in medians(rounds, **runs).items()}
    add(
        f"{name}, full gradient, float64", "CSR rows", "the same rows dense", "µs a step", each["sparse"], each["dense"]
    )


@njit(nogil=True, fastmath=True)
def plain_sum(values):
    """Sum of all entries, as fast as they can be read."""
    total = np.float32(0)
    for i in range(values.size):
        total += values[i]
    return total


def bench_passes(rounds):
    print("passes", flush=True)
    X, y = simulate(1_000_000, 50, np.float32)
    target = svrhmc.targets.logistic(X, y)
    sampler, flat = svrhmc.hmc(1e-3, inverse_mass=1e-6), X.reshape(-1)
    halves = flat[: flat.size // 2], flat[flat.size // 2 :]
    passes = 10
    with ThreadPoolExecutor(2) as pool:
        found = medians(
            rounds,
            ours=lambda: sampler.run(target, passes, chains=1, keep="last", threads=2, progress=False),
            read=lambda: [list(pool.map(plain_sum, halves)) for _ in range(passes)],
        )
    rate = {name: X.nbytes * passes / seconds / 1e9 for name, seconds in found.items()}
    add(
        "full gradient, n = 1,000,000, d = 50, float32, 2 threads",
        "HMC step, read rate",
        "plain threaded sum",
        "GB/s",
        1 / rate["ours"],
        1 / rate["read"],
        0.7,
    )
    ROWS[-1] |= {"ours (median)": f"{rate['ours']:.3g}", "other (median)": f"{rate['read']:.3g}"}


@njit(nogil=True, fastmath=True)
def vector_work(values):
    """Vector arithmetic in the first cache: two of these at once show how far two threads go on this machine."""
    for _ in range(400_000):
        for j in range(len(values)):
            values[j] = values[j] * 0.999999 + 1e-6
    return values[0]


def many_chains(chains, threads):
    X, y = simulate(1000, 10, np.float64)
    target, sampler = svrhmc.targets.logistic(X, y), svrhmc.svr_hmc(0.05, batch_size=10)
    return lambda: sampler.run(target, 200, chains=chains, keep="last", threads=threads, progress=False)


def half_the_chains():
    """A process of its own that runs half of them whenever it gets a line."""
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import bench\n"
        "run = bench.many_chains(10_000, 1)\n"
        "for line in sys.stdin: run(); print('done', flush=True)\n"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def bench_chains(rounds):
    print("chains", flush=True)
    with half_the_chains() as one, half_the_chains() as other, ThreadPoolExecutor(2) as pool:

        def in_processes():
            for half in (one, other):
                half.stdin.write("go\n")
                half.stdin.flush()
            if [half.stdout.readline() for half in (one, other)] != ["done\n"] * 2:
                raise RuntimeError("a process with half of the chains ended")

        rooms = np.ones((2, 2048))
        found = medians(
            rounds,
            two=many_chains(20_000, 2),
            one=many_chains(20_000, 1),
            processes=in_processes,
            machine_two=lambda: list(pool.map(vector_work, rooms)),
            machine_one=lambda: [vector_work(room) for room in rooms],
        )
    name = "20,000 chains, n = 1000, d = 10, 200 steps"
    add(name, "2 threads", "1 thread", "s", found["two"], found["one"], 1.8)
    add(name, "the machine: 2 processes, half each", "1 thread", "s", found["processes"], found["one"])
    add("the machine: vector arithmetic", "2 threads", "1 thread", "s", found["machine_two"], found["machine_one"])
    code = (
        "import tracemalloc, numpy as np, svrhmc\n"
        "rng = np.random.default_rng(0); X = rng.normal(size=(1000, 10)); y = rng.random(1000) < 0.5\n"
        "t = svrhmc.targets.logistic(X, y); s = svrhmc.svr_hmc(0.05, batch_size=10)\n"
        "s.run(t, 2, chains=4, keep='last'); tracemalloc.start()\n"
        "s.run(t, 200, chains=20_000, keep='last')\n"
        "print(tracemalloc.get_traced_memory()[1] / 1e6)\n"
    )
    grown = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    add("20,000 chains, keep='last'", "memory of the run", "200 MB", "MB", max(grown, 0.1), 200.0, 1, higher=False)


def bench_first_call(rounds):
    print("first call", flush=True)
    code = (
        "import time; began = time.perf_counter()\n"
        "import numpy as np, svrhmc\n"
        "rng = np.random.default_rng(0); X = rng.normal(size=(384, 8)); y = rng.random(384) < 0.5\n"
        "svrhmc.svr_hmc(0.01).run(svrhmc.targets.logistic(X, y), 1000, chains=1)\n"
        "print(time.perf_counter() - began)\n"
    )

    def call(folder):
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        shown = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        return float(shown.stdout)

    cold, warm = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(call(folder))
            warm += [call(folder) for _ in range(2)]
    add(
        "first call in a new process, import included",
        "cached",
        "1.5 s",
        "s",
        statistics.median(warm),
        1.5,
        1,
        higher=False,
    )
    add(
        "first call in a new process, import included",
        "not cached",
        "15 s",
        "s",
        statistics.median(cold),
        15.0,
        1,
        higher=False,
    )


def worst_ess(draws):
    """ArviZ's effective draws of the worst coordinate."""
    import arviz

    return min(float(arviz.ess(np.ascontiguousarray(draws[:, :, j]))) for j in range(draws.shape[2]))


def nuts(X, y, warmup=150, kept=100, chains=1):
    """NumPyro's NUTS on a logistic posterior with N(0, 1) priors, in the type of X: seed → draws.

    The first call compiles, later ones do not.
    """
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    data, labels = jnp.asarray(X), jnp.asarray(y, X.dtype)

    def potential(x):
        t = data @ x
        return jnp.sum(jnp.logaddexp(0.0, t) - labels * t) + 0.5 * jnp.dot(x, x)

    mcmc = MCMC(
        NUTS(potential_fn=potential),
        num_warmup=warmup,
        num_samples=kept,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    start = jnp.zeros(X.shape[1] if chains == 1 else (chains, X.shape[1]), X.dtype)

    def run(seed):
        mcmc.run(jax.random.PRNGKey(seed), init_params=start)
        return np.asarray(mcmc.get_samples(group_by_chain=True))

    return run


def bench_effective(rounds):
    """Seconds for one effective draw of the worst coordinate; scikit-learn's point fit for scale."""
    print("effective draws", flush=True)
    from sklearn.linear_model import LogisticRegression

    X, y = simulate(100_000, 50, np.float32)
    target = svrhmc.targets.logistic(X, y)
    sampler = svrhmc.svr_hmc(0.3, batch_size=500, epoch_length=100, friction=1.0)

    target.mode()
    sampler.run(target, 10, chains=2)
    began = time.perf_counter()
    trace = sampler.run(target, 20_000, chains=2, thin=10, start="mode", progress=False)
    ours = (time.perf_counter() - began) / worst_ess(trace.draws)

    run = nuts(X, y)
    began = time.perf_counter()
    draws = run(0)
    theirs = (time.perf_counter() - began) / worst_ess(draws)
    name = "n = 100,000, d = 50, float32"
    add(
        name,
        "SVR-HMC, 2 chains on 2 threads, mode found first",
        "NumPyro NUTS, warm-up and compilation included",
        "s an effective draw",
        ours,
        theirs,
    )
    found = medians(3, fit=lambda: LogisticRegression(C=1.0, fit_intercept=False).fit(X, y))
    add(name, "100 effective draws of SVR-HMC", "scikit-learn's point fit", "s", 100 * ours, found["fit"])


@njit
def draw_noise(repeats, noise, normals):
    """Normals as a run makes them, a chunk at a time."""
    for k in range(repeats):
        fill_noise(np.uint32(1), np.uint32(2), np.uint32(k), len(noise.steps), noise, normals)


def bench_noise(rounds):
    print("noise", flush=True)
    half, repeats = 512, 2000
    for kind in (np.float32, np.float64):
        room = make_noise(half, 1, kind == np.float64), np.zeros((3, half), kind)
        rng, out = np.random.default_rng(0), np.empty(2 * half, kind)
        found = medians(
            rounds,
            ours=lambda room=room: draw_noise(repeats, *room),
            numpy=lambda rng=rng, out=out, kind=kind: [
                rng.standard_normal(out=out, dtype=kind) for _ in range(repeats)
            ],
        )
        each = {name: seconds / repeats / (2 * half) * 1e9 for name, seconds in found.items()}
        add(f"one normal, {kind.__name__}", "random words and quantile", "NumPy", "ns", each["ours"], each["numpy"])


def machine():
    """What the numbers depend on."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(": ")[1].strip() for line in lines if line.startswith("model name")), model)
    packages = ("svrhmc", "numpy", "scipy", "numba", "jax", "blackjax", "numpyro", "scikit-learn", "arviz")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{model}, {cores} cores, Python {platform.python_version()}; {versions}"


def save(folder, note):
    folder.mkdir(exist_ok=True)
    names = list(ROWS[0])
    lines = ["# Speed", "", f"`make bench`, {time.strftime('%Y-%m-%d')}. {note}.", ""]
    lines += ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(row.values()) + " |" for row in ROWS]
    lines += [
        "",
        "Ratios: how many times faster ours is; under a bar with ≤, our share of the other's time or of the limit.",
    ]
    (folder / "speed.md").write_text("\n".join(lines) + "\n")
    with (folder / "speed.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(ROWS)
    print("\n".join(lines))


def main():
    parts = {
        "noise": bench_noise,
        "steps": bench_steps,
        "sparse": None,
        "passes": bench_passes,
        "chains": bench_chains,
        "first": bench_first_call,
        "effective": bench_effective,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("SVRHMC_DATA"), help="folder with a3a/a3a.xz, if there is one")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default=",".join(parts), help="some of: " + ", ".join(parts))
    parser.add_argument("--out", type=Path, default=HERE / "results")
    chosen = parser.parse_args()
    for name in chosen.only.split(","):
        if name == "sparse":
            bench_sparse(chosen.rounds, chosen.data)
        else:
            parts[name](chosen.rounds)
    save(chosen.out, machine())


if __name__ == "__main__":
    main()
