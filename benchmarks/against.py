"""Another version of the source beside this one: the same rows, measured in turn, as ratios.

    python benchmarks/against.py OTHER/src [--rounds 5] [--only step,pass] [--processor]

Each round starts a process for each of the two, which times every row several times; what is compared is the best time
of all rounds, and the median. First calls are measured in processes of their own, with nothing in the cache. On a
machine that others use as well, `--processor` compares seconds of processor, of all threads together.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse

HERE = Path(__file__).parent


def table(n, dim, kind=np.float64, density=1.0):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, dim))
    X[rng.random(X.shape) > density] = 0
    return X.astype(kind), rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(size=dim) / dim**0.5))


def rows():
    """Names and functions of no argument, each some tenths of a second long."""
    import svrhmc
    from svrhmc import Sampler, dynamics, gradients, targets
    from svrhmc.exact import SplitHMC, SubsampledMH
    from svrhmc.whitening import whitened

    small = targets.logistic(*table(384, 8))
    wide = targets.logistic(*table(3185, 122, np.float32))
    tall = targets.logistic(*table(100_000, 50, np.float32))
    double = targets.logistic(*table(100_000, 50))
    X, y = table(3185, 122, density=0.11)
    sparse = targets.logistic(scipy.sparse.csr_matrix(X), y)
    ones = targets.logistic(scipy.sparse.csr_matrix((X != 0).astype(float)), y)
    cancer = targets.logistic(*table(569, 31))
    quadratic, white = targets.synthetic(1000, 50), whitened(tall)
    anchored = Sampler(dynamics.Anchored(1.0), gradients.Minibatch(100, importance=True))

    def run(sampler, target, steps, chains=1, **more):
        settings = {"chains": chains, "threads": 1, "keep": "last", **more}
        return lambda: sampler.run(target, steps, **settings).seconds

    def exact(sampler, target, draws):
        return lambda: sampler.run(target, draws, chains=1, threads=1).seconds

    def sample(target, **more):
        return lambda: (lambda p: p.seconds)(svrhmc.sample(target, seed=1, **more))

    return {
        "step: n = 384, d = 8, SVRG, B = 1": run(svrhmc.svr_hmc(0.01), small, 600_000),
        "step: n = 384, d = 8, full": run(svrhmc.hmc(0.01), small, 60_000),
        "step: n = 3185, d = 122, float32, SVRG, B = 1": run(svrhmc.svr_hmc(0.01), wide, 150_000),
        "step: n = 100,000, d = 50, float32, SVRG, B = 1": run(svrhmc.svr_hmc(0.01), tall, 300_000),
        "step: n = 100,000, d = 50, float32, SVRG, B = 32": run(svrhmc.svr_hmc(0.01, batch_size=32), tall, 60_000),
        "step: the same, SAGA": run(svrhmc.saga_hmc(0.01, batch_size=32), tall, 40_000),
        "step: the same, control variates of order 2": run(
            Sampler(dynamics.Underdamped(0.01), gradients.ControlVariate(32, order=2)), tall, 40_000
        ),
        "step: CSR, n = 3185, d = 122, B = 32": run(svrhmc.svr_hmc(0.01, batch_size=32), sparse, 40_000),
        "step: CSR of ones": run(svrhmc.svr_hmc(0.01, batch_size=32), ones, 40_000),
        "step: Gaussian, n = 1000, d = 50": run(svrhmc.svr_hmc(0.01), quadratic, 100_000),
        "step: whitened, by importance, B = 100": run(anchored, white, 20_000),
        "pass: n = 100,000, d = 50, float32": run(svrhmc.hmc(0.01), tall, 100),
        "pass: n = 100,000, d = 50": run(svrhmc.hmc(0.01), double, 60),
        "pass: two threads": run(svrhmc.hmc(0.01), tall, 150, threads=2),
        "chains: 20,000 of n = 384, d = 8, two threads": run(svrhmc.svr_hmc(0.01), small, 200, 20_000, threads=2),
        "exact: split HMC, 569 × 31": exact(SplitHMC(), cancer, 4000),
        "exact: split HMC, 384 × 8": exact(SplitHMC(), small, 20_000),
        "exact: split HMC, CSR": exact(SplitHMC(), sparse, 1000),
        "exact: subsampled Metropolis, 100,000 × 50": exact(SubsampledMH(), tall, 8000),
        "sample: 569 × 31": sample(cancer),
        "sample: 100,000 × 50": sample(tall),
        "sample: 100,000 × 50, anchored": sample(tall, method="anchored"),
    }


FIRST = """
import json, sys, time
began = time.perf_counter()
sys.path.insert(0, {here!r})
from against import table
import svrhmc
target = svrhmc.targets.logistic(*table({n}, {dim}))
began = time.perf_counter()
svrhmc.sample(target, draws=500)
print(json.dumps(time.perf_counter() - began))
"""
FIRSTS = {"first sample: 500 × 8": (500, 8), "first sample: 100,000 × 20": (100_000, 20)}


def processor_seconds(run):
    began = time.process_time()
    run()
    return time.process_time() - began


def child(only, processor):
    """Times of every row in this process."""
    times = {}
    for name, run in rows().items():
        if any(name.startswith(word) for word in only):
            run()
            times[name] = [processor_seconds(run) if processor else run() for _ in range(3)]
    print(json.dumps(times))


def ask(source, arguments, **environment):
    settings = {**os.environ, "PYTHONPATH": str(source), **environment}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=settings, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="step,pass,chains,exact,sample,first")
    parser.add_argument("--processor", action="store_true", help="seconds of processor, not of the clock")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    only = chosen.only.split(",")
    if chosen.child:
        return child(only, chosen.processor)
    sources = {"before": chosen.other.resolve(), "after": HERE.parent / "src"}
    times = {which: {} for which in sources}
    for number in range(chosen.rounds):
        print(f"round {number + 1} of {chosen.rounds}, {time.strftime('%X')}", file=sys.stderr, flush=True)
        for which in list(sources)[:: -1 if number % 2 else 1]:
            arguments = ["--child", "--only", chosen.only, *["--processor"][: chosen.processor]]
            measured = ask(sources[which], [__file__, *arguments])
            for name, seconds in measured.items():
                times[which].setdefault(name, []).extend(seconds)
            for name, (n, dim) in FIRSTS.items():
                if "first" in only and number < 3:
                    with tempfile.TemporaryDirectory() as cache:
                        code = FIRST.format(here=str(HERE), n=n, dim=dim)
                        seconds = ask(sources[which], ["-c", code], NUMBA_CACHE_DIR=cache)
                    times[which].setdefault(name, []).append(seconds)
    print("| row | before, s | after, s | after/before, best | median |\n|---|---|---|---|---|")
    for name, before in times["before"].items():
        after = times["after"][name]
        best, middle = min(after) / min(before), statistics.median(after) / statistics.median(before)
        print(f"| {name} | {min(before):.3g} | {min(after):.3g} | {best:.2f} | {middle:.2f} |")


if __name__ == "__main__":
    main()
