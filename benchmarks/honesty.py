"""Is a certified run ever wrong? Samplers of the whole grid at random settings, on posteriors that are known.

    python benchmarks/honesty.py --runs 600 --out DIR              # appends to DIR/honesty_runs.csv
    PYTHONPATH=OTHER/src python benchmarks/honesty.py --name before --out DIR      # the same runs with another version
    python benchmarks/honesty.py --table --out DIR                 # shares of the verdicts, before and after

Each run has a dynamics, a gradient, a step, a batch, a tolerance and a number of draws, all drawn at random from the
number of the run alone; `sample` runs that sampler as it is. References: benchmarks/holdout.npz.
"""

import argparse
import csv
import math
import time
from pathlib import Path

import numpy as np
from holdout import FILE, HOLDOUT, rows_of, stated

import svrhmc
from svrhmc.dynamics import BAOAB, UBU, Anchored, EulerMaruyama, Exponential, Overdamped, Underdamped
from svrhmc.gradients import SAGA, SVRG, ControlVariate, Full, Minibatch

POSTERIORS = (
    "iris_standard", "nearly_separable", "wine_separable", "correlated", "unscaled", "sparse_levels", "one_class",
    "digits38", "quasi_separated", "intercept_only", "skewed", "heavy_tails",
)  # fmt: skip
STEPS = {
    Overdamped: (0.02, 0.8), EulerMaruyama: (0.03, 0.6), Underdamped: (0.03, 0.6), Exponential: (0.05, 1.0),
    UBU: (0.1, 1.5), BAOAB: (0.1, 1.6), Anchored: (0.2, 1.8),
}  # fmt: skip
GRADIENTS = (Full, Minibatch, SVRG, SAGA, ControlVariate)
MOST_ROWS = 2e8  # that the steps of a run may evaluate
VERDICTS = ("exact", "certified", "local", "undecided", "refuted", "diverged")


def between(rng, low, high):
    """Log-uniform."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def settings(number, n):
    """A sampler, a tolerance and a number of draws; every cell of the grid in its turn."""
    rng = np.random.default_rng(number)
    kinds = list(STEPS)
    kind, gradient = kinds[number % len(kinds)], GRADIENTS[number // len(kinds) % len(GRADIENTS)]
    step = between(rng, *STEPS[kind])
    dynamics = kind(step) if kind is Overdamped else kind(step, 1.0, 1.0)
    batch = int(between(rng, max(2, n / 30), 0.7 * n))
    if gradient is Full:
        made = Full()
    elif gradient is SVRG:
        made = SVRG(batch, int(rng.integers(2, 12)))
    elif gradient is Minibatch:
        made = Minibatch(batch, importance=bool(rng.integers(2)))
    else:
        made = gradient(batch)
    draws = int(between(rng, 200, 2000))
    steps = draws * 4 / step
    draws = int(max(100, draws * min(1.0, MOST_ROWS / (steps * (n if gradient is Full else 2 * batch)))))
    return svrhmc.Sampler(dynamics, made), round(float(rng.uniform(0.02, 0.1)), 4), draws


def one(number, name, problem, known):
    sampler, tolerance, draws = settings(number, problem.X.shape[0])
    row = {
        "run": number, "problem": name, "dynamics": type(sampler.dynamics).__name__,
        "step": f"{sampler.dynamics.step_size:.4g}", "gradient": str(sampler.gradient), "tolerance": tolerance,
        "draws": draws,
    }  # fmt: skip
    began = time.perf_counter()
    try:
        found = svrhmc.sample(
            problem.target(), draws, tolerance=tolerance, seed=number, method=sampler, progress=False, budget_seconds=60
        )
    except (svrhmc.DivergenceError, svrhmc.UnstableStepError):
        return row | {"verdict": "diverged"}
    error = max(
        float((np.maximum(np.abs(have - known[key]) - 3 * known[f"{key}_se"], 0) / known["sd"]).max())
        for have, key in ((found.mean, "mean"), (found.sd, "sd"))
    )
    plain = max(
        float((np.abs(have - known[key]) / known["sd"]).max()) for have, key in ((found.mean, "mean"), (found.sd, "sd"))
    )
    return row | {
        "verdict": found.certificate.verdict,
        "error": f"{error:.4g}",
        "plain error": f"{plain:.4g}",
        "stated": f"{stated(found, known):.4g}" if hasattr(found, "errors") else "",  # not in 0.1.0
        "ess": round(float(found.ess.min())),
        "draws verdict": getattr(found.certificate, "draws", ""),
        "seconds": f"{time.perf_counter() - began:.3g}",
    }


def run(options):
    path = options.out / f"honesty_{options.name}.csv"
    done = {int(row["run"]) for row in rows_of(path)}
    options.out.mkdir(parents=True, exist_ok=True)
    columns = (
        "run", "problem", "dynamics", "step", "gradient", "tolerance", "draws", "verdict", "error", "plain error",
        "stated", "ess", "draws verdict", "seconds",
    )  # fmt: skip
    problems = {name: HOLDOUT[name]() for name in POSTERIORS}
    with np.load(FILE) as file:
        known = {
            name: {key: file[f"{name}/{key}"] for key in ("mean", "sd", "mean_se", "sd_se")} for name in POSTERIORS
        }
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        if not done:
            writer.writeheader()
        for number in range(options.first, options.runs):
            if number in done:
                continue
            name = POSTERIORS[number % len(POSTERIORS)]
            row = one(number, name, problems[name], known[name])
            writer.writerow(row)
            file.flush()
            print(" ".join(f"{value}" for value in row.values()), flush=True)


def table(options):
    """Shares of the verdicts, and the worst certified run: its error in tolerances."""
    lines = [
        "| version | runs | " + " | ".join(VERDICTS[1:]) + " | worst certified error / tolerance |",
        "|" + "---|" * 7,
    ]
    for path in sorted(options.out.glob("honesty_*.csv")):
        rows = rows_of(path)
        counts = [sum(row["verdict"] == word for row in rows) for word in VERDICTS[1:]]
        ratios = [float(row["error"]) / float(row["tolerance"]) for row in rows if row["verdict"] == "certified"]
        shown = " | ".join(f"{count} ({count / len(rows):.0%})" for count in counts)
        lines.append(f"| {path.stem.removeprefix('honesty_')} | {len(rows)} | {shown} | {max(ratios, default=0):.2f} |")
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=600)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--name", default="after")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        run(options)
    table(options)


if __name__ == "__main__":
    main()
