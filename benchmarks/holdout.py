"""Twenty-four posteriors that differ in kind, made without regard to how `svrhmc.sample` works, to see where it errs.

Their means and deviations in holdout.npz come from other methods than this library's: quadrature, a closed form in long
double, NumPyro's NUTS, and importance sampling about the mode with control variates of known expectation.

    python benchmarks/holdout.py --references                    # makes holdout.npz again (some ten minutes)
    python benchmarks/holdout.py --seeds 20 --only a,b --out DIR   # runs sample, appends to DIR/holdout_runs.csv
"""

import argparse
import csv
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from problems import bundled, standard, with_ones

import svrhmc

FILE = Path(__file__).with_name("holdout.npz")


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows, labels or responses, and the model: "logistic", "linear" with noise of variance 1, or "poisson".

    Every coefficient, the intercept's too, has the prior N(0, 1/prior_precision); precision 0 is a flat prior.
    """

    name: str
    X: Any
    y: np.ndarray
    family: str = "logistic"
    prior_precision: float = 1.0
    note: str = ""

    def target(self):
        """A new one each time: nothing, such as the mode, is known to it yet."""
        if self.family != "poisson":
            return getattr(svrhmc.targets, self.family)(self.X, self.y, prior_precision=self.prior_precision)
        X, y, (n, dim) = self.X, self.y, self.X.shape

        def gradients(x, rows):
            return n * (np.exp(X[rows] @ x) - y[rows])[:, None] * X[rows] + self.prior_precision * x

        def potential(x):
            predictor = X @ x
            return float(np.sum(np.exp(predictor) - y * predictor) + self.prior_precision * (x @ x) / 2)

        return svrhmc.targets.custom(n, dim, gradients, potential)

    def print_of_data(self):
        """A few numbers that change when the data do: references are for these data alone."""
        dense = self.X.data if scipy.sparse.issparse(self.X) else self.X
        return np.array([*self.X.shape, dense.sum(dtype=float), np.square(dense, dtype=float).sum(), self.y.sum()])


def events(rng, X, x):
    return (rng.random(X.shape[0]) < 1 / (1 + np.exp(-(X @ x)))).astype(float)


def normals(seed, n, dim):
    """The generator, n rows of an intercept and dim − 1 normals, and coefficients for them."""
    rng = np.random.default_rng(seed)
    return rng, with_ones(rng.standard_normal((n, dim - 1))), rng.standard_normal(dim) / 2


def iris_flat():
    X, y = bundled("iris")
    return Problem("iris_flat", with_ones(X[50:]), (y[50:] == 2).astype(float), "logistic", 0.0, "as measured, in cm")


def nearly_separable():
    """Split by a line but for the row nearest to it."""
    _, X, _ = normals(2602, 24, 3)
    predictor = X @ [0.3, 1.0, -1.0]
    y = (predictor > 0).astype(float)
    nearest = np.abs(predictor).argmin()
    y[nearest] = 1 - y[nearest]
    return Problem("nearly_separable", X, y, "logistic", 0.001, "one row on the wrong side")


def wine_separable():
    """The first two kinds of wine by alcohol, ash and hue."""
    X, y = bundled("wine")
    X, y = X[y != 2][:, [0, 2, 10]], y[y != 2]
    return Problem("wine_separable", with_ones(standard(X)), (y == 1).astype(float), "logistic", 0.1, "almost split")


def rare_column():
    rng, X, x = normals(2604, 600_000, 9)
    x[0] = -1.0
    y = events(rng, X, x)
    y[:5] = 1
    X = np.column_stack([X, np.arange(len(X)) < 5])
    return Problem("rare_column", X, y, "logistic", 0.1, "a column of five ones, events all")


def rare_dummy():
    rng, X, x = normals(2605, 100_000, 6)
    X = np.column_stack([X, np.isin(np.arange(len(X)), rng.choice(len(X), 20, replace=False))])
    return Problem("rare_dummy", X, events(rng, X, np.append(x, 1.5)), note="a dummy of 20 rows")


def heavy_tails():
    rng = np.random.default_rng(2606)
    X, x = with_ones(rng.standard_t(3, (50_000, 9))), rng.standard_normal(10) / 2
    return Problem("heavy_tails", X, events(rng, X, x), note="rows from Student's t, 3 degrees of freedom")


def five_events():
    rng, X, _ = normals(2607, 100_000, 3)
    odds = np.exp(X @ [0.0, 1.0, -0.5])
    y = np.zeros(len(X))
    y[rng.choice(len(X), 5, replace=False, p=odds / odds.sum())] = 1
    return Problem("five_events", X, y, "logistic", 0.1, "5 ones")


def imbalanced():
    rng, X, x = normals(2608, 300_000, 30)
    x /= 2
    x[0] = -7.0
    return Problem("imbalanced", X, events(rng, X, x), note="0.3% of ones")


def correlated():
    """Breast cancer: radius, perimeter and area are correlated by 0.99 and more."""
    X, y = bundled("breast_cancer")
    return Problem("correlated", with_ones(standard(X[:, :10])), y.astype(float), note="correlations of 0.99")


def unscaled():
    rng, X, x = normals(2610, 5_000, 8)
    scales = np.array([1.0, 1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6])
    return Problem("unscaled", X * scales, events(rng, X, x), note="scales from 1e-6 to 1e6")


def wide():
    rng, X, x = normals(2611, 40, 60)
    return Problem("wide", X, events(rng, X, x / 2), note="fewer rows than columns")


def levels(rng, n, count, power):
    """One-hot columns: level k about k^−power as often as the first, each at least once."""
    share = np.arange(1, count + 1.0) ** -power
    code = rng.choice(count, n, p=share / share.sum())
    code[rng.choice(n, count, replace=False)] = np.arange(count)
    return np.eye(count)[code]


def sparse_levels():
    rng = np.random.default_rng(2612)
    X = with_ones(np.hstack([levels(rng, 20_000, count, 2.2) for count in (9, 30, 60)]))
    y = events(rng, X, rng.standard_normal(100) / 2)
    return Problem("sparse_levels", scipy.sparse.csr_matrix(X), y, note="three factors, many rare levels, CSR")


def single_precision():
    rng, X, x = normals(2613, 50_000, 20)
    X = X.astype(np.float32)
    return Problem("single_precision", X, events(rng, X, x), note="float32 rows")


def sorted_rows():
    rng, X, x = normals(2614, 30_000, 8)
    y = events(rng, X, x)
    order = np.lexsort((X[:, 1], y))
    return Problem("sorted_rows", X[order], y[order], note="sorted by label, then by a column")


def one_class():
    _, X, _ = normals(2615, 500, 4)
    return Problem("one_class", X, np.ones(500), note="every label is 1")


def digits38():
    X, y = bundled("digits")
    both = np.isin(y, (3, 8))
    return Problem("digits38", with_ones(X[both] / 16), (y[both] == 8).astype(float), note="dead pixels among them")


def one_column():
    rng = np.random.default_rng(2617)
    X = rng.standard_normal((1_000_000, 1))
    return Problem("one_column", X, events(rng, X, np.array([0.7])), note="no intercept")


def two_factors():
    rng = np.random.default_rng(2618)
    X = np.hstack([levels(rng, 50_000, 100, 1.0), levels(rng, 50_000, 100, 0.5)])
    return Problem("two_factors", X, events(rng, X, rng.standard_normal(200) / 2), note="two of 100 levels, dense")


def linear_known():
    rng, X, x = normals(2619, 3_000, 20)
    return Problem("linear_known", X, X @ x + rng.standard_normal(3_000), "linear", 1.0, "Gaussian")


def iris_standard():
    X, y = bundled("iris")
    return Problem("iris_standard", with_ones(standard(X)), (y == 2).astype(float), note="virginica or not")


def poisson():
    rng, X, x = normals(2621, 20_000, 10)
    x *= 0.4
    return Problem("poisson", X, rng.poisson(np.exp(X @ x)).astype(float), "poisson", 1.0, "through targets.custom")


def quasi_separated():
    rng, X, x = normals(2622, 100, 3)
    X = np.column_stack([X, np.arange(100) < 20])
    y = events(rng, X[:, :3], x)
    y[:20] = 1
    return Problem("quasi_separated", X, y, note="a dummy of 20 rows, events all")


def intercept_only():
    return Problem("intercept_only", np.ones((30, 1)), (np.arange(30) < 3.0).astype(float), "logistic", 0.0, "3 ones")


def skewed():
    """Every label is 1 but that of the least row: almost half of a normal."""
    X = np.sort(np.exp(np.random.default_rng(2624).standard_normal((12, 1))), axis=0)
    return Problem("skewed", X, (np.arange(12) > 0.0).astype(float), "logistic", 0.01, "almost half of a normal")


HOLDOUT = {
    make.__name__: make
    for make in (
        *(iris_flat, nearly_separable, wine_separable, rare_column, rare_dummy, heavy_tails, five_events, imbalanced),
        *(correlated, unscaled, wide, sparse_levels, single_precision, sorted_rows, one_class, digits38, one_column),
        *(two_factors, linear_known, iris_standard, poisson, quasi_separated, intercept_only, skewed),
    )
}


# Runs ----------------------------------------------------------------------------------------------------------------

COLUMNS = (
    *("problem", "seed", "method", "verdict", "seconds", "compile_seconds", "passes", "complete"),
    *("mean_error", "sd_error", "mean_beyond", "sd_beyond", "mean_rms_z", "sd_rms_z", "largest_z", "stated"),
)
TOLERANCE = 0.02  # of `sample`, by default


def compare(posterior, reference):
    """Errors in posterior deviations: whole; beyond 3 errors of the reference and 3 stated ones; and over both."""
    row, largest = {}, []
    for key, chance in zip(("mean", "sd"), posterior.errors, strict=True):
        error, own = np.abs(getattr(posterior, key) - reference[key]), reference[f"{key}_se"]
        z = error / np.maximum(np.hypot(chance, own), 1e-12 * reference["sd"])
        largest.append(z.max())
        row[f"{key}_error"] = np.max(error / reference["sd"])
        row[f"{key}_beyond"] = np.max(np.maximum(error - 3 * own - 3 * chance, 0) / reference["sd"])
        row[f"{key}_rms_z"] = np.sqrt(np.mean(z**2))
    row |= {"largest_z": np.max(largest), "stated": stated(posterior, reference)}
    return {key: f"{value:.4g}" for key, value in row.items()}


def stated(posterior, reference):
    """The largest, over the coordinates, of a standard error and the measured bias together, in deviations."""
    bias, worst = posterior.certificate.reported, 0.0
    for key, error in zip(("mean", "sd"), posterior.errors, strict=True):
        measured = 0.0 if bias is None else getattr(bias, key)
        worst = max(worst, float(np.hypot(measured, error / reference["sd"]).max()))
    return worst


def run(problem, seed, reference, limit):
    """One row. Whatever goes wrong, also taking more than `limit` seconds, is the row's verdict."""

    def stop(*_):
        raise TimeoutError(f"more than {limit} s")

    before, begin = signal.signal(signal.SIGALRM, stop), time.perf_counter()
    signal.alarm(limit)
    try:
        posterior = svrhmc.sample(problem.target(), seed=seed, progress=False)
        found = {"method": posterior.method, "verdict": posterior.certificate.verdict, "complete": posterior.complete}
        found |= {key: f"{getattr(posterior, key):.4g}" for key in ("seconds", "compile_seconds", "passes")}
        found |= compare(posterior, reference)
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        found = {"verdict": f"error: {words[:300]}", "seconds": f"{time.perf_counter() - begin:.4g}"}
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return {"problem": problem.name, "seed": seed, **found}


def rows_of(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_all(names, seeds, path, limit):
    """Appends a row for each problem and seed that the file has not."""
    done = {(row["problem"], int(row["seed"])) for row in rows_of(path)}
    stored = np.load(FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    for name in names:
        missing = [seed for seed in range(seeds) if (name, seed) not in done]
        if not missing:
            continue
        problem = HOLDOUT[name]()
        if not np.allclose(problem.print_of_data(), stored[f"{name}/data"], rtol=1e-9):
            raise SystemExit(f"The data of {name} are not those of {FILE.name}: make the references again.")
        reference = {key: stored[f"{name}/{key}"] for key in ("mean", "sd", "mean_se", "sd_se")}
        for seed in missing:
            row = run(problem, seed, reference, limit)
            new = not path.exists()
            with path.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if new:
                    writer.writeheader()
                writer.writerow(row)


def table(rows, names=()):
    """Markdown. Within: no mean or deviation off by more than the tolerance beyond 3 errors of both sides."""
    lines = ["| problem | method | verdicts | within | rms z, means | sds | largest z | worst error, means | sds | s |"]
    lines.append("|" + "---|" * 10)
    for name in names or HOLDOUT:
        mine = [row for row in rows if row["problem"] == name]
        good = [row for row in mine if row.get("largest_z")]
        if not mine:
            continue
        value = {key: np.array([float(row[key]) for row in good]) for key in COLUMNS[8:15]}
        within = np.sum(np.maximum(value["mean_beyond"], value["sd_beyond"]) <= TOLERANCE)
        cells = [name]
        for key in ("method", "verdict"):
            cells.append(
                ", ".join(f"{count} {word}" for word, count in Counter(row.get(key, "") for row in mine).most_common())
            )
        cells.append(f"{within}/{len(mine)}")
        cells += [f"{np.sqrt(np.mean(value[key] ** 2)):.2f}" if good else "" for key in COLUMNS[12:14]]
        cells += [f"{value[key].max():.3g}" if good else "" for key in ("largest_z", "mean_error", "sd_error")]
        cells.append(f"{np.median([float(row['seconds']) for row in mine]):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--references", action="store_true", help="make holdout.npz again")
    parser.add_argument("--seeds", type=int, default=20, help="run seeds 0, 1, …")
    parser.add_argument("--only", help="names of problems, with commas between")
    parser.add_argument("--out", type=Path, default=Path("build"), help="the folder of holdout_runs.csv")
    parser.add_argument("--limit", type=int, default=900, help="seconds after which a run is an error")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(HOLDOUT)
    if unknown := set(names) - set(HOLDOUT):
        parser.error(f"no such problem: {', '.join(sorted(unknown))}")
    if options.references:
        from holdout_references import make_references

        make_references({name: HOLDOUT[name] for name in names}, FILE)
        return
    path = options.out / "holdout_runs.csv"
    run_all(names, options.seeds, path, options.limit)
    title = "# Held-out posteriors, default options\n\n"
    (options.out / "holdout.md").write_text(title + table(rows_of(path)) + "\n")
    print(table(rows_of(path)))


if __name__ == "__main__":
    main()
