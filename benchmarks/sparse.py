"""Sparse rows with many columns: effective draws a second, seconds and memory of `svrhmc.sample`.

    python benchmarks/sparse.py [--before FOLDER] [--cases random,crossed,wide] [--seconds 300] [--out FOLDER]

random: 200,000 × 5,000, an intercept and 19 entries a row at random columns, float32 (part `large` of posterior.py).
crossed: 200,000 × 5,054, an intercept, 3 numbers, and categories with 50, 2,000 and 3,000 levels of Zipf frequencies.
wide: 500,000 × 100,000, five categories with 20,000 levels each of Zipf frequencies, float32.
even: the same with levels of even frequencies.

--before names the source folder (src) of another revision, which runs on the same data, each in a process of its own,
in turn. That ends with the draws that it has where it would take longer than --seconds.
"""

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse

HERE = Path(__file__).parent


def random(n=200_000, dim=5000, nonzero=20):
    rng = np.random.default_rng(20261116)
    weights = np.linspace(1, 20, dim - 1)
    columns = 1 + rng.choice(dim - 1, (n, nonzero - 1), p=weights / weights.sum())
    columns = np.hstack([np.zeros((n, 1), columns.dtype), columns])
    values = rng.standard_normal(columns.shape).astype(np.float32)
    values[:, 0] = 1
    X = scipy.sparse.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * nonzero + 1, nonzero)), (n, dim))
    X.sum_duplicates()
    x = 0.5 * rng.standard_normal(dim)
    return X, rng.random(n) < 1 / (1 + np.exp(-(X @ x)))


def categories(n, levels, numbers=0, zipf=1.0, kind=np.float64):
    rng = np.random.default_rng(7)
    parts = []
    if numbers:
        parts.append(scipy.sparse.csr_matrix(np.column_stack([np.ones(n), rng.normal(size=(n, numbers))])))
    for count in levels:
        share = np.arange(1, count + 1) ** -zipf
        place = rng.choice(count, n, p=share / share.sum())
        parts.append(scipy.sparse.csr_matrix((np.ones(n), place, np.arange(n + 1)), (n, count)))
    X = scipy.sparse.csr_matrix(scipy.sparse.hstack(parts), dtype=kind)
    x = 0.5 * rng.normal(size=X.shape[1])
    return X, rng.random(n) < 1 / (1 + np.exp(-(X @ x)))


CASES = {
    "random": random,
    "crossed": lambda: categories(200_000, (50, 2000, 3000), 3),
    "wide": lambda: categories(500_000, 5 * (20_000,), kind=np.float32),
    "even": lambda: categories(500_000, 5 * (20_000,), zipf=0.0, kind=np.float32),
}


def run(options):
    """One case by the package that is found first; the last line printed is the row."""
    import svrhmc

    X, y = CASES[options.case]()
    settings = {"budget_seconds": options.seconds} if options.seconds else {}
    svrhmc.sample(svrhmc.targets.logistic(X[:2000], y[:2000]), 10, seed=3, progress=False, budget_seconds=20)
    began, busy = time.perf_counter(), time.process_time()
    posterior = svrhmc.sample(svrhmc.targets.logistic(X, y), options.draws, seed=1, progress=False, **settings)
    took = time.perf_counter() - began - posterior.compile_seconds
    busy = time.process_time() - busy - posterior.compile_seconds
    unit = 1 if sys.platform == "darwin" else 1024
    worst, middle = float(posterior.ess.min()), float(np.median(posterior.ess))
    row = {
        "n, d": f"{X.shape[0]:,}, {X.shape[1]:,}",
        "entries": f"{X.nnz:,}",
        "step, leapfrogs": f"{posterior.sampler.step_size:.2g}, {posterior.sampler.leapfrogs}",
        "seconds": f"{took:.0f}",
        "of these: mode and whitening": f"{posterior.steps['mode and whitening']:.1f}",
        "sampling": f"{posterior.steps['sampling']:.1f}",
        "certificate": f"{posterior.steps['certificate']:.1f}",
        "CPU, s": f"{busy:.0f}",
        "draws": int(np.prod(posterior.trace.draws.shape[:2])),
        "asked": options.draws,
        "least ESS": f"{worst:.0f}",
        "median ESS": f"{middle:.0f}",
        "least ESS/s": f"{worst / took:.3g}",
        "least ESS/CPU s": f"{worst / busy:.3g}",
        "passes": f"{posterior.passes:.4g}",
        "verdict": posterior.certificate.verdict,
        "memory, MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6:.0f}",
    }
    print(f"{posterior}", file=sys.stderr)
    print(json.dumps(row))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--cases", default="random,crossed,wide")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    if options.case:
        run(options)
        return
    from bench import machine

    rows = []
    for case in options.cases.split(","):
        for when, folder in (("before", options.before), ("now", HERE.parent / "src")):
            if folder is None:
                continue
            command = [sys.executable, __file__, "--case", case, "--draws", str(options.draws)]
            command += ["--seconds", str(options.seconds)] if when == "before" else []
            shown = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(folder)}
            )
            failed = {"verdict": f"failed with code {shown.returncode}"}
            found = failed if shown.returncode else json.loads(shown.stdout.splitlines()[-1])
            rows.append({"case": case, "": when, **found})
            print(rows[-1], flush=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [[str(row.get(key, "")) for key in columns] for row in rows]
    where = f"`benchmarks/sparse.py`, {time.strftime('%Y-%m-%d')}. {machine()}."
    lines = ["# Sparse rows with many columns", "", where]
    lines += ["", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in table]
    lines += ["", __doc__.split("\n\n", 2)[2].strip(), "", NOTE]
    options.out.mkdir(exist_ok=True, parents=True)
    (options.out / "sparse.md").write_text("\n".join(lines) + "\n")
    with (options.out / "sparse.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(table)


NOTE = (
    "Default options, before with a limit of seconds; compilation apart. ESS: the fewer of those of x and of x², at "
    "the worst coordinate (an estimate, and the least of as many as there are columns) and at the median one. The "
    "machine had other work: seconds of its processors, on which all threads count, are the steadier measure."
)

if __name__ == "__main__":
    main()
