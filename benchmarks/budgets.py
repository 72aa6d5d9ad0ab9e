"""Whether budgets bind: what `sample` takes beyond them, on 31 problems from small to large.

    python benchmarks/budgets.py [--only WORD,WORD] [--seconds 1,5] [--passes 50] [--clock processor] [--out FILE]

Each problem is compiled first on a small copy of itself, and a run in which something was compiled nevertheless is made
again. A line for each budget says what was used (seconds on the clock and of the processor, passes), what came of it,
and whether the overshoot is at most a fifth of the budget or a second, whichever is more; for passes a fifth. Runs with
a budget in passes have one of 3 seconds besides, so that they end.

The clock of the deadline is that on the wall, or the processor's: seconds of all threads together. On a machine that
others use, seconds on the wall count what they do, and those of the processor do not.
"""

import argparse
import contextlib
import time
from pathlib import Path

import numpy as np
import scipy.sparse

import svrhmc
from svrhmc import sample, targets
from svrhmc.core.deadline import Budget
from svrhmc.sampling import run


def dense(n, dim, family="bernoulli", **settings):
    """Rows of an intercept and standard normals."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, dim), dtype=np.float32).astype(np.float64)
    X[:, 0] = 1.0
    t = X @ (rng.normal(size=dim) / np.sqrt(dim))
    if family == "poisson" or family == "negative-binomial":
        y = rng.poisson(np.exp(0.3 * t))
    elif family == "categorical":
        y = rng.integers(0, 5, n)
        y[:5] = np.arange(5)
    elif family in ("student-t", "gaussian", "linear"):
        y = t + rng.standard_t(4, size=n)
    else:
        y = (t + rng.logistic(size=n) > 0).astype(float)
    if family == "linear":
        return targets.linear(X, y)
    return targets.glm(X, y, family, **settings)


def sparse(n, dim, filled):
    """Few entries in each row."""
    rng = np.random.default_rng(1)
    X = scipy.sparse.random_array((n, dim), density=filled, rng=rng, format="csr")
    return targets.logistic(X, rng.random(n) < 0.4)


def crossed(n, levels, count):
    """Categories, each with so many levels."""
    rng = np.random.default_rng(2)
    columns = np.concatenate([k * levels + rng.integers(0, levels, n) for k in range(count)])
    X = scipy.sparse.csr_array((np.ones(count * n), (np.tile(np.arange(n), count), columns)), (n, count * levels))
    return targets.logistic(X, rng.random(n) < 0.4)


def custom(n, dim, wait=0.0):
    """A logistic regression known by its gradients alone."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, dim))
    y = (rng.random(n) < 0.4).astype(float)

    def gradients(x, rows):
        until = time.process_time() + wait
        while time.process_time() < until:
            pass
        return n * X[rows] * (1 / (1 + np.exp(-(X[rows] @ x))) - y[rows])[:, None] + x

    return targets.custom(n, dim, gradients)


# name: (maker, its sizes, sizes of the small copy, settings of `sample`)
PROBLEMS = {
    "tiny": (dense, (200, 2), (200, 2), {}),
    "small": (dense, (2_000, 10), (200, 10), {}),
    "middle": (dense, (20_000, 50), (2_000, 50), {}),
    "tall": (dense, (200_000, 20), (2_000, 20), {}),
    "very-tall": (dense, (1_000_000, 10), (2_000, 10), {}),
    "broad": (dense, (100_000, 200), (2_000, 200), {}),
    "square": (dense, (3_000, 1_500), (300, 10), {"draws": 10_000}),
    "wide": (dense, (500, 1_900), (300, 10), {"draws": 10_000}),
    "thousand": (dense, (2_000, 1_000), (300, 10), {"draws": 10_000}),
    "large": (dense, (40_000, 1_000), (300, 10), {"draws": 10_000}),
    "beyond": (dense, (300, 4_000), (20, 2_001), {"draws": 2_000}),
    "beyond-tall": (dense, (4_000, 3_000), (20, 2_001), {"draws": 2_000}),
    "sparse": (sparse, (20_000, 300, 0.05), (500, 20, 0.2), {}),
    "sparse-tall": (sparse, (300_000, 500, 0.02), (500, 20, 0.2), {}),
    "levels": (crossed, (100_000, 5_000, 2), (2_000, 1_500, 2), {"draws": 10_000}),
    "levels-core": (crossed, (200_000, 2_000, 3), (2_000, 1_500, 2), {"draws": 10_000}),
    "levels-five": (crossed, (200_000, 10_000, 5), (2_000, 1_500, 2), {"draws": 2_000}),
    "poisson": (dense, (5_000, 20, "poisson"), (500, 5, "poisson"), {}),
    "poisson-tall": (dense, (500_000, 10, "poisson"), (500, 5, "poisson"), {}),
    "student": (dense, (5_000, 20, "student-t"), (500, 5, "student-t"), {}),
    "softmax": (dense, (20_000, 20, "categorical"), (500, 5, "categorical"), {}),
    "overdispersed": (dense, (10_000, 10, "negative-binomial"), (500, 5, "negative-binomial"), {}),
    "linear": (dense, (20_000, 800, "linear"), (500, 5, "linear"), {}),
    "custom": (custom, (1_000, 5), (100, 5), {}),
    "custom-tall": (custom, (100_000, 20), (100, 5), {}),
    "custom-wide": (custom, (2_000, 300), (100, 101), {}),
    "custom-slow": (custom, (1_000, 20, 0.05), (100, 20), {}),
    "chains-thousand": (dense, (2_000, 10), (200, 10), {"chains": 1_000}),
    "chains-many": (dense, (200, 3), (200, 3), {"chains": 100_000, "draws": 1_000_000}),
    "batches": (dense, (200_000, 50), (20_000, 10), {"method": "anchored"}),
    "subsampled": (dense, (200_000, 10), (20_000, 10), {"method": "subsampled-mh"}),
}  # fmt: skip


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
COMPILED = 0.2  # seconds of loading what was compiled before; beyond that, something was compiled
LONGEST = 3.0  # seconds of a run with a budget in passes


def told(target, settings, clock):
    """One run: seconds on the wall, of the processor and of compilation (by the clock), passes, and what came of it."""
    began, ledgers = (time.perf_counter(), time.process_time()), []
    run.Budget = lambda *given: ledgers.append(Budget(*given, clock=clock)) or ledgers[-1]
    try:
        found = sample(target, **settings)
        said = f"{found.method}, {found.trace.draws.shape[1]} draws, {found.certificate.verdict}"
        passes = found.passes
    except svrhmc.BudgetError as error:
        unit = "s" if error.name == "budget_seconds" else "passes"
        said, passes = f"BudgetError: roughly {error.needed:g} {unit} needed", float("nan")
    wall, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    return wall, processor, ledgers[0].compiling, passes, said


def measured(make, sizes, settings, clock):
    """A run in which nothing was compiled."""
    for _ in range(3):
        found = told(make(*sizes), settings, clock)
        if found[2] <= COMPILED:
            break
    return found


def main():
    """Print a line for each problem and budget."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", default="1,5")
    parser.add_argument("--passes", default="50")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--out", type=Path, help="a Markdown table is appended to it")
    asked = parser.parse_args()
    clock = CLOCKS[asked.clock]
    budgets = [("s", float(each)) for each in asked.seconds.split(",") if each]
    budgets += [("passes", float(each)) for each in asked.passes.split(",") if each]
    kept = missed = 0
    for name, (make, sizes, small, settings) in PROBLEMS.items():
        if asked.only and name not in asked.only.split(","):
            continue
        few = {key: value for key, value in settings.items() if key == "method"}
        with contextlib.suppress(svrhmc.BudgetError):
            sample(make(*small), 20, budget_seconds=20.0, **few)
        for unit, budget in budgets:
            limits = {"budget_seconds": budget if unit == "s" else LONGEST}
            if unit == "passes":
                limits["budget_passes"] = budget
            given = {"draws": 100_000, **settings, **limits}
            wall, processor, compiling, passes, said = measured(make, sizes, given, clock)
            seconds = (wall if asked.clock == "wall" else processor) - compiling
            over = seconds - limits["budget_seconds"]
            good = over <= max(0.2 * limits["budget_seconds"], 1.0)
            if unit == "passes":
                over = passes - budget
                good = good and not over > 0.2 * budget
            kept, missed = kept + good, missed + (not good)
            line = f"| {name} | {budget:g} {unit} | {over:+.2f} | {'yes' if good else 'NO'} | {wall - compiling:.2f} | "
            line += f"{processor - compiling:.2f} | {passes:.4g} | {said} |"
            print(line, flush=True)
            if asked.out is not None:
                with asked.out.open("a") as file:
                    file.write(line + "\n")
    print(f"{kept} kept, {missed} not")


if __name__ == "__main__":
    main()
