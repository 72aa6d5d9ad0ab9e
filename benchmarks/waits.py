"""Fits that people wait for: processor seconds, effective draws and verdict, beside scikit-learn's point fit.

    python benchmarks/waits.py [--cases digits,rare,wide] [--draws 1000] [--before FOLDER] [--seconds 900]

digits: the 1797 × 64 of scikit-learn, ten classes that can be told apart without error: 585 coefficients.
rare: 300,000 × 100 normal columns, 333 events.
wide: 3,000 × 1,500 normal columns.

--before names the source folder (src) of another revision, which runs first. Each fit is a process of its own, with one
thread of BLAS, and ends after --seconds of the processor. Seconds are those of the processor, of all threads together,
without imports: beside other work on a machine they can be up to twice those on one that is idle.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np


def digits():
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def rare():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300_000, 100))
    t = X @ (0.15 * rng.normal(size=100)) - 7.9
    return X, rng.random(len(X)) < 1 / (1 + np.exp(-t))


def wide():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 1500))
    return X, rng.random(len(X)) < 1 / (1 + np.exp(-X @ (0.1 * rng.normal(size=1500))))


CASES = {"digits": digits, "rare": rare, "wide": wide}


def ours(case, draws):
    import svrhmc

    X, y = CASES[case]()
    warnings.simplefilter("ignore")
    began = time.process_time()
    posterior = svrhmc.BayesianLogisticRegression(draws=draws).fit(X, y).posterior_
    seconds = time.process_time() - began
    sampler, trace = posterior.sampler, posterior.trace
    said = {
        "seconds": seconds,
        "ess": float(posterior.ess.min()),
        "verdict": posterior.certificate.verdict,
        "sampler": f"{posterior.method}, {getattr(sampler, 'leapfrogs', 1)} steps of {sampler.step_size:.2g}",
        "acceptance": float(np.mean(trace.acceptance)),
    }
    print(json.dumps(said))


def point_fit(case):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = CASES[case]()
    began = time.process_time()
    make_pipeline(StandardScaler(), LogisticRegression(C=2.5**2, max_iter=2000)).fit(X, y)
    return time.process_time() - began


def in_own_process(case, draws, limit, folder=None):
    """What a run says of itself, or None where it took too long."""
    paths = {} if folder is None else {"PYTHONPATH": str(folder)}
    run = subprocess.run(
        [sys.executable, __file__, "--one", case, "--draws", str(draws)],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | paths,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
    )
    return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return ours(arguments.one, arguments.draws)
    print("| case | source | processor s | effective draws, least | s for 1,000 | verdict | sampler | accepted |")
    print("|---|---|---|---|---|---|---|---|")
    for case in arguments.cases.split(","):
        folders = ([("before", arguments.before)] if arguments.before else []) + [("now", None)]
        for label, folder in folders:
            run = in_own_process(case, arguments.draws, arguments.seconds, folder)
            if run is None:
                print(f"| {case} | {label} | more than {arguments.seconds} |  |  |  |  |  |", flush=True)
                continue
            per = run["seconds"] * 1000 / run["ess"]
            row = f"{run['seconds']:.1f} | {run['ess']:.0f} | {per:.1f} | {run['verdict']} | {run['sampler']}"
            print(f"| {case} | {label} | {row} | {run['acceptance']:.2f} |", flush=True)
        print(f"| {case} | scikit-learn's point fit | {point_fit(case):.2f} |  |  |  |  |  |", flush=True)


if __name__ == "__main__":
    main()
