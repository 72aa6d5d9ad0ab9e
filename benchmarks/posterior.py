"""`svrhmc.sample` against its bars: tables in Markdown and CSV, and a figure.

    make bench-posterior       (or: python benchmarks/posterior.py [--only bars,nuts,defaults,needed,large,scaling] …)

bars: time, effective draws and accuracy on eight posteriors, over many seeds.
nuts: effective draws a second beside NumPyro's NUTS.
defaults: default options, many seeds: verdicts, errors, and whether the stated errors are right.
needed: effective draws for a verdict, before and after.
large: many columns, sparse rows, rows on disk; each in a process of its own.
scaling: what an effective draw costs from n = 100,000 to 10,000,000.
"""

import argparse
import csv
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import holdout
import numpy as np
import scipy.sparse
from bench import machine, nuts, worst_ess
from problems import PROBLEMS, breast_cancer, synth_1e5, with_ones

import svrhmc
from svrhmc.dynamics import Anchored
from svrhmc.exact import SplitHMC
from svrhmc.gradients import Minibatch
from svrhmc.plots import COLOURS, MARKERS, STYLE, require_matplotlib
from svrhmc.plots import save as save_figure
from svrhmc.sampling.doubts import effective_draws

HERE = Path(__file__).parent


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def timed(run):
    began = time.perf_counter()
    result = run()
    return result, time.perf_counter() - began


def yes(met):
    return "yes" if met else "no"


def save(options, name, title, rows, notes):
    """posterior_{name}.md and .csv; the columns are those of any row."""
    options.out.mkdir(exist_ok=True, parents=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [[str(row.get(key, "")) for key in columns] for row in rows]
    date = time.strftime("%Y-%m-%d")
    lines = [f"# {title}", "", f"`make bench-posterior`, part `{name}`, {date}. {machine()}.", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in table]
    lines += ["", *notes]
    (options.out / f"posterior_{name}.md").write_text("\n".join(lines) + "\n")
    with (options.out / f"posterior_{name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(table)
    print("\n".join(lines), flush=True)


# The truth.


@dataclass(frozen=True, eq=False)
class Truth:
    """Means and standard deviations with their standard errors, and where they come from."""

    mean: np.ndarray
    sd: np.ndarray
    mean_se: np.ndarray
    sd_se: np.ndarray
    how: str

    def errors(self, found):
        """The largest error of a mean and of an sd, in posterior sd, beyond three standard errors of the truth."""
        return tuple(
            float((np.maximum(np.abs(have - want) - 3 * se, 0) / self.sd).max())
            for have, want, se in ((found.mean, self.mean, self.mean_se), (found.sd, self.sd, self.sd_se))
        )


def from_run(posterior, how):
    c = posterior.corrected
    return Truth(c.mean, c.sd, c.mean_error, c.sd_error, how)


TRUTHS = {}


def truth(problem, reference):
    """From the reference file, else from a long run of an exact sampler with a seed that nothing else has."""
    if problem.name not in TRUTHS:
        TRUTHS[problem.name] = _truth(problem, reference)
    return TRUTHS[problem.name]


def _truth(problem, reference):
    if reference is not None:
        with np.load(reference) as file:
            if f"{problem.name}/mean" in file:
                parts = (file[f"{problem.name}/{key}"] for key in ("mean", "sd", "mean_se", "sd_se"))
                return Truth(*parts, "reference file")
    if problem.family == "linear":
        law = problem.target().closed_form
        zero = np.zeros(len(law.mean))
        return Truth(law.mean, np.sqrt(np.diag(law.covariance)), zero, zero, "closed form")
    method = "subsampled-mh" if problem.name.startswith("synth") else "split-hmc"
    draws = {"covtype": 6000, "heavy_tailed": 12_000}.get(problem.name, 40_000)
    say(f"  {problem.name}: truth from {draws:,} effective draws of {method}")
    run = svrhmc.sample(problem.target(), draws, seed=987_654_321, method=method, progress=False)
    return from_run(run, f"{method}, {run.ess.min():.0f} effective draws, corrected")


def make(name, options):
    """A problem by name; None where its file is not given."""
    if name != "covtype":
        return PROBLEMS[name]()
    return PROBLEMS[name](options.covtype) if options.covtype else None


# Part 1.


@dataclass(frozen=True)
class Bar:
    """Seconds (None: those of scikit-learn's fit), effective draws, errors of means and of sds."""

    seconds: float | None
    ess: int
    mean: float
    sd: float


BARS = {
    "wine01": Bar(1.0, 3000, 0.02, 0.02),
    "breast_cancer": Bar(1.0, 3000, 0.02, 0.02),
    "digits49": Bar(1.0, 3000, 0.02, 0.02),
    "rare_event": Bar(3.0, 2000, 0.02, 0.015),
    "synth_1e5": Bar(1.5, 4000, 0.005, 0.003),
    "covtype": Bar(5.0, 2000, 0.02, 0.02),
    "synth_1e6": Bar(None, 4000, 0.005, 0.002),
    "diabetes_linear": Bar(0.1, 1000, 1e-8, 1e-8),
}


def within(values, bar, least=False):
    """The median keeps the bar, and none is off by more than a factor of two."""
    middle = statistics.median(values)
    return (middle >= bar and min(values) >= bar / 2) if least else (middle <= bar and max(values) <= 2 * bar)


def part_bars(options):
    rows, each = [], []
    for name in options.problems or BARS:
        problem, bar = make(name, options), BARS[name]
        if problem is None:
            say(f"bars: {name} skipped: no --covtype")
            continue
        row, runs = bars_of(problem, bar, truth(problem, options.reference), options.seeds)
        rows.append(row)
        each += runs
    save(
        options,
        "bars",
        "The automatic sampler against its bars",
        rows,
        [
            f"{options.seeds} seeds each, median / worst of them. Seconds: of `targets.…(X, y)` and `svrhmc.sample` "
            "together, a new target each time, so that the mode is found each time. Compilation: what the first call "
            "of the process took beyond the median one, from numba's cache where there is one. Errors: largest over "
            "the coordinates, of the corrected moments, in posterior sd, beyond 3 standard errors of the truth; "
            "given: those of `posterior.mean` and `.sd`. met: the median keeps the bar and no seed is off by more than "
            "a factor of two, for seconds, effective draws (fewer of x and x²), means and sds. All runs: "
            "posterior_bars_runs.csv.",
        ],
    )
    with (options.out / "posterior_bars_runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(each[0]))
        writer.writeheader()
        writer.writerows(each)


def bars_of(problem, bar, known, seeds):
    def once(seed):
        return timed(lambda: svrhmc.sample(problem.target(), bar.ess, seed=seed, progress=False))

    say(f"bars: {problem.name}, truth: {known.how}")
    _, first = once(1_000_000)
    point = point_fit(problem) if bar.seconds is None else None
    runs, fits = [], []
    for seed in range(seeds):
        if point is not None:
            fits.append(timed(point)[1])
        posterior, seconds = once(seed)
        mean, sd = known.errors(posterior.corrected)
        given = known.errors(posterior)
        runs.append(
            {
                "problem": problem.name,
                "seed": seed,
                "method": posterior.method,
                "seconds": seconds,
                "ess": float(posterior.ess.min()),
                "mean error": mean,
                "sd error": sd,
                "given mean error": given[0],
                "given sd error": given[1],
                "verdict": posterior.certificate.verdict,
                "passes": posterior.passes,
                **{f"s {step}": posterior.steps.get(step, 0.0) for step in STEPS},
                "fit seconds": fits[-1] if fits else "",
            }
        )
        say(f"  seed {seed}: {posterior.method}, {seconds:.3g} s, ESS {posterior.ess.min():.0f}, {mean:.2g} / {sd:.2g}")
    column = {key: [run[key] for run in runs] for key in runs[0]}
    limit = statistics.median(fits) if fits else bar.seconds
    met = {
        "seconds": within(column["seconds"], limit),
        "ESS": within(column["ess"], bar.ess, least=True),
        "mean": within(column["mean error"], bar.mean),
        "sd": within(column["sd error"], bar.sd),
    }
    seconds, mean, sd = column["seconds"], column["mean error"], column["sd error"]
    row = {
        "problem": problem.name,
        "n, d": f"{problem.X.shape[0]:,}, {problem.X.shape[1]}",
        "method": counted(column["method"]),
        "seconds": f"{statistics.median(seconds):.3g} / {max(seconds):.3g}",
        "bar, s": f"{limit:.3g}" + (" (scikit-learn's fit)" if fits else ""),
        "compilation, s": f"{max(0.0, first - statistics.median(seconds)):.1f}",
        "least ESS": f"{min(column['ess']):.0f}",
        "bar, ESS": bar.ess,
        "mean error": f"{statistics.median(mean):.2g} / {max(mean):.2g}",
        "bar, mean": f"{bar.mean:g}",
        "sd error": f"{statistics.median(sd):.2g} / {max(sd):.2g}",
        "bar, sd": f"{bar.sd:g}",
        "given": f"{max(column['given mean error']):.2g}, {max(column['given sd error']):.2g}",
        "verdicts": counted(column["verdict"]),
        "passes": f"{statistics.median(column['passes']):.4g}",
        "met": "yes" if all(met.values()) else "no: " + ", ".join(key for key, kept in met.items() if not kept),
        "truth": known.how,
    }
    say("  " + " | ".join(f"{key} {value}" for key, value in row.items()))
    return row, runs


STEPS = ("mode and whitening", "choice", "sampling", "gradients at the draws", "certificate")


def counted(words):
    kinds = sorted(set(words))
    return kinds[0] if len(kinds) == 1 else ", ".join(f"{words.count(kind)} {kind}" for kind in kinds)


def point_fit(problem):
    """scikit-learn's default fit, which has an intercept of its own."""
    from sklearn.linear_model import LogisticRegression

    X = np.ascontiguousarray(problem.X[:, 1:])
    return lambda: LogisticRegression().fit(X, problem.y)


# Part 2.


def part_nuts(options):
    import jax

    rows = []
    for problem, bar, x64, settings in (
        (synth_1e5(), 1000, False, {}),
        (breast_cancer(), 20, True, {"warmup": 500, "kept": 500, "chains": 4}),
    ):
        jax.config.update("jax_enable_x64", x64)
        draws = BARS[problem.name].ess

        def ours(seed, problem=problem, draws=draws):
            return svrhmc.sample(problem.target(), draws, seed=seed, progress=False)

        other = nuts(problem.X if x64 else problem.X.astype(np.float32), problem.y, **settings)
        found = {}
        for turn in range(1 + options.repeats):
            posterior, seconds = timed(lambda turn=turn: ours(turn))
            found.setdefault("svrhmc.sample", []).append((worst_ess(posterior.trace.draws), seconds))
            say(f"nuts: {problem.name}: svrhmc.sample, {seconds:.3g} s, ESS {found['svrhmc.sample'][-1][0]:.0f}")
            if turn < 2:
                chain, seconds = timed(lambda turn=turn, other=other: other(turn))
                found.setdefault("NUTS", []).append((worst_ess(chain), seconds))
                say(f"nuts: {problem.name}: NUTS, {seconds:.3g} s, ESS {found['NUTS'][-1][0]:.0f}")
        rate = {name: statistics.median(ess / s for ess, s in runs[1:]) for name, runs in found.items()}
        best = max(ess for ess, _ in found["NUTS"])  # so short a run's ESS is noisy: the better one counts for both
        rate["NUTS"] = best / found["NUTS"][1][1]
        first = {"svrhmc.sample": found["svrhmc.sample"][0], "NUTS": (best, found["NUTS"][0][1])}
        first = {name: ess / s for name, (ess, s) in first.items()}
        ratio = rate["svrhmc.sample"] / rate["NUTS"]
        chains = settings.get("chains", 1)
        rows.append(
            {
                "problem": problem.name,
                "ours": posterior.method,
                "ours: ESS": f"{min(ess for ess, _ in found['svrhmc.sample']):.0f}",
                "ours: ESS/s": f"{rate['svrhmc.sample']:.4g}",
                "NUTS": f"{chains} × ({settings.get('warmup', 150)} + {settings.get('kept', 100)}), "
                + ("float64" if x64 else "float32"),
                "NUTS: seconds": " / ".join(f"{s:.3g}" for _, s in found["NUTS"]),
                "NUTS: ESS": " / ".join(f"{ess:.0f}" for ess, _ in found["NUTS"]),
                "NUTS: ESS/s": f"{rate['NUTS']:.4g}",
                "ratio": f"{ratio:.4g}×",
                "bar": f"≥ {bar}",
                "met": yes(ratio >= bar),
                "first call, ESS/s": f"{first['svrhmc.sample']:.4g} against {first['NUTS']:.3g}",
                "first call, ratio": f"{first['svrhmc.sample'] / first['NUTS']:.4g}×",
            }
        )
    save(
        options,
        "nuts",
        "Effective draws a second, beside NUTS",
        rows,
        [
            "ESS: ArviZ's, of the worst coordinate of x, for both. Ours: the target made, the mode found and "
            "everything else in the time; the median of calls after the first. NUTS: NumPyro's with its defaults "
            "(diagonal mass matrix, adapted), warm-up in the time, chains vectorised; its second call, which compiles "
            "nothing, and the larger ESS of both. First call: compilation in the time of both "
            "(ours from numba's cache where there is one).",
        ],
    )


# Part 3.


def part_defaults(options):
    """Default options on the posteriors with a reference file: verdicts, errors and their calibration."""
    rows = []
    for name in options.problems or BARS:
        problem, known = make(name, options), None
        if problem is not None:
            known = truth(problem, options.reference)
            say(f"defaults: {name}, truth: {known.how}")
            reference = {"mean": known.mean, "sd": known.sd, "mean_se": known.mean_se, "sd_se": known.sd_se}
            rows += [holdout.run(problem, seed, reference, 900) for seed in range(options.seeds)]
    options.out.mkdir(exist_ok=True, parents=True)
    with (options.out / "posterior_defaults_runs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, holdout.COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    lines = [
        "# Default options",
        "",
        f"`make bench-posterior`, part `defaults`, {time.strftime('%Y-%m-%d')}. {machine()}.",
    ]
    lines += ["", holdout.table(rows, list(BARS)), ""]
    lines.append(
        "Within: errors of what is reported at most the tolerance, 0.02, and 3 errors of the reference and 3 stated."
    )
    (options.out / "posterior_defaults.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)


def part_needed(options):
    """Effective draws for a verdict at 0.02: by averages of the gradient, as 0.1.0 had them, and by pairs of chains."""
    rows = []
    for name, size in (("rare_event", 200), ("synth_1e5", 50), ("covtype", 200)):
        problem = make(name, options)
        if problem is None:
            continue
        sampler = svrhmc.Sampler(Anchored(1.0, 1.0, 1.0), Minibatch(size, importance=True))
        run = svrhmc.sample(problem.target(), 2000, method=sampler, progress=False)
        found = run.certificate
        before = found.stein.more(0.02) * float(run.ess.min())
        after = found.reported.more(0.02) * found.measured.effective
        balance = found.balance.more(0.02) * found.measured.effective
        row = {"problem": name, "sampler": f"Anchored(1), {size} rows", "verdict": found.verdict}
        row |= {
            "before": f"{before:,.0f}",
            "what is reported": f"{after:,.0f}",
            "the draws, by balance": f"{balance:,.0f}",
        }
        rows.append(row | {"ratio": f"{before / after:.0f}"})
    note = "Factors of draws are taken as 1 where fewer would do: what is reported then needs at most the number given."
    save(options, "needed", "Effective draws for a verdict at 0.02", rows, [note])


# Part 4.


def gisette(options, folder):
    from svrhmc.paper.data import load

    table = load("gisette", options.data)
    first = table.X[:, :1000]  # also where the folder has all columns
    scale = np.abs(first).max(axis=0)
    X = np.ascontiguousarray(first / np.where(scale > 0, scale, 1), np.float32)
    return X, table.y, 1000, (SplitHMC(0.4, 4), 3000)


def a3a(options, folder):
    from svrhmc.paper.data import load

    table = load("a3a", options.data)
    return table.X, table.y, 1000, (SplitHMC(0.4, 4), 20_000)


def sparse(options, folder, n=200_000, dim=5000, nonzero=20):
    """Column 0 is the intercept's; the others have entries in 1 to 20 rows of 1000."""
    if options.small:
        n, dim = 20_000, 2500
    rng = np.random.default_rng(20261116)
    weights = np.linspace(1, 20, dim - 1)
    columns = 1 + rng.choice(dim - 1, (n, nonzero - 1), p=weights / weights.sum())
    columns = np.hstack([np.zeros((n, 1), columns.dtype), columns])
    values = rng.standard_normal(columns.shape).astype(np.float32)
    values[:, 0] = 1
    X = scipy.sparse.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * nonzero + 1, nonzero)), (n, dim))
    X.sum_duplicates()
    x = 0.5 * rng.standard_normal(dim)
    return X, rng.random(n) < 1 / (1 + np.exp(-(X @ x))), 200, (SplitHMC(0.4, 4), 500)


def on_disk(options, folder):
    X, y = simulated(10_000_000 if not options.small else 500_000, folder)
    return X, y, 1000, ("anchored", 20_000)


def simulated(n, folder=None, dim=20, block=500_000):
    """A logistic model's rows in float32, in memory or in a file, and its labels; fewer rows are the first of more."""
    x = np.random.default_rng(20261117).standard_normal(dim)
    if folder is None:
        X = np.empty((n, dim), np.float32)
    else:
        X = np.memmap(Path(folder) / "rows", np.float32, "w+", shape=(n, dim))
    y = np.empty(n, bool)
    for k, begin in enumerate(range(0, n, block)):
        rng, part = np.random.default_rng([20261117, k]), slice(begin, begin + block)
        size = min(block, n - begin)
        X[part] = with_ones(rng.standard_normal((block, dim - 1))[:size] / np.sqrt(dim))
        y[part] = rng.random(block)[:size] < 1 / (1 + np.exp(-(X[part] @ x)))
    if folder is not None:
        X.flush()
        X = np.memmap(Path(folder) / "rows", np.float32, "r", shape=(n, dim))
    return X, y


LARGE = {
    "gisette": (gisette, "gisette, first 1000 columns, float32"),
    "a3a": (a3a, "a3a, CSR"),
    "sparse": (sparse, "simulated, CSR, 20 entries a row"),
    "disk": (on_disk, "simulated, float32, rows in a file (numpy.memmap)"),
}


def part_large(options):
    rows = []
    for name in options.cases or LARGE:
        if name in ("gisette", "a3a") and options.data is None:
            say(f"large: {name} skipped: no --data")
            continue
        say(f"large: {name}")
        command = [sys.executable, __file__, "--case", name] + (["--small"] if options.small else [])
        command += ["--data", str(options.data)] if options.data else []
        shown = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        rows.append(
            json.loads(shown.stdout.splitlines()[-1])
            if shown.returncode == 0
            else {"problem": LARGE[name][1], "verdict": f"failed with code {shown.returncode}"}
        )
        say(f"  {rows[-1]}")
    save(
        options,
        "large",
        "Many columns, sparse rows, rows on disk",
        rows,
        [
            "Each in a new process, compilation (from numba's cache where there is one) in the first number of seconds "
            "only. Memory: the most that was resident, and of that what was not the mapped file. Errors: of "
            "`posterior.mean` and `.sd`, largest over the coordinates, in posterior sd, beyond 3 standard errors of "
            "the reference: a longer run in the same process, after all this was measured, with another seed and "
            "another sampler, corrected. ± : 2.5 standard errors of our own means and sds.",
        ],
    )


class Watch:
    """Memory in use that is no mapped file, at its highest, in MB; 0 where the system does not say."""

    def __enter__(self):
        self.most, self._stop = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _look(self):
        path = Path("/proc/self/status")
        while path.exists():
            line = next(line for line in path.read_text().splitlines() if line.startswith("RssAnon"))
            self.most = max(self.most, int(line.split()[1]) / 1024)
            if self._stop.wait(0.02):
                return


def large_case(options):
    """In a process of its own: the last line printed is the row."""
    build, label = LARGE[options.case]
    with tempfile.TemporaryDirectory() as folder, Watch() as watch:
        X, y, draws, (other, more) = build(options, folder)

        def run():
            return svrhmc.sample(svrhmc.targets.logistic(X, y), draws, seed=1, progress=False)

        first = timed(run)[1]
        posterior, seconds = timed(run)
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
        own = watch.most
        print(f"  {posterior}; steps {posterior.steps}", file=sys.stderr, flush=True)
        if other == posterior.method:
            other = "subsampled-mh"
        print(f"  reference: {other}, {more} effective draws", file=sys.stderr, flush=True)
        reference, took = timed(
            lambda: svrhmc.sample(
                svrhmc.targets.logistic(X, y), more, tolerance=0.05, seed=2, method=other, progress=False
            )
        )
        known = from_run(reference, f"{other}, {reference.ess.min():.0f} effective draws, {took:.0f} s")
        mean, sd = known.errors(posterior)
        c, n_dim = posterior.corrected, X.shape
        row = {
            "problem": label,
            "n, d": f"{n_dim[0]:,}, {n_dim[1]:,}",
            "method": posterior.method,
            "seconds, first call": f"{first:.3g}",
            "seconds": f"{seconds:.3g}",
            "mode, s": f"{posterior.steps['mode and whitening']:.3g}",
            "memory, MB": f"{peak:.0f}, {own:.0f}",
            "X, MB": f"{(X.data.nbytes + X.indices.nbytes if scipy.sparse.issparse(X) else X.nbytes) / 1e6:.0f}",
            "verdict": posterior.certificate.verdict,
            "asked, least ESS": f"{draws}, {posterior.ess.min():.0f}",
            "passes": f"{posterior.passes:.4g}",
            "mean error": f"{mean:.2g} (± {2.5 * float((c.mean_error / c.sd).max()):.2g})",
            "sd error": f"{sd:.2g} (± {2.5 * float((c.sd_error / c.sd).max()):.2g})",
            "reference": known.how,
            "its largest s.e.": f"{float((known.mean_se / known.sd).max()):.2g}, "
            f"{float((known.sd_se / known.sd).max()):.2g}",
        }
    print(json.dumps(row))


# Part 5.


def part_scaling(options):
    methods = {"default": None, "anchored": "anchored"}
    rows = []
    for n in options.sizes:
        X, y = simulated(n)
        for label, method in methods.items():
            rows.append({"n": f"{n:,}", "asked": label} | cost_of(X, y, method, options))
            say(f"scaling: {rows[-1]}")
        del X, y
    measures = ("s a draw", "rows a draw")
    slopes = []
    for label in methods:
        chosen = [row for row in rows if row["asked"] == label]
        found = {m: slope([math.log(float(row[m])) for row in chosen], options.sizes) for m in measures}
        slopes.append(
            {"n": "slope", "asked": label, "bar": "< 0.1", "met": yes(max(found.values()) < 0.1)}
            | {m: f"{value:.3f}" for m, value in found.items()}
        )
    for row in rows:
        row |= {m: f"{row[m]:.3g}" for m in (*measures, "all else, s")}
    save(
        options,
        "scaling",
        "What an effective draw costs as rows become many",
        rows + slopes,
        [
            "d = 20, float32, simulated logistic regression. s and rows a draw: seconds, and rows evaluated, while "
            f"four chains of the sampler that was chosen make {options.draws:,} steps each, over the effective draws "
            f"of the worst coordinate (the fewer of x and x²); median of {options.repeats} runs. All else: mode, "
            "whitening, tables of rows and the certificate of one call of `sample`, made once and in proportion to n. "
            "Slope: least squares of log cost on log n.",
        ],
    )
    draw_scaling(options, rows, methods)


def cost_of(X, y, method, options):
    """What an effective draw costs while a chain runs: the median over some runs of one sampler, chosen once."""
    target = svrhmc.targets.logistic(X, y)
    posterior = svrhmc.sample(target, 1000, method=method, progress=False)
    how = svrhmc.whitening.whitening(target)
    once = posterior.seconds - posterior.steps["sampling"]
    seconds, rows, effective = [], [], []
    for seed in range(options.repeats):
        draws, took, evaluated = (run_exact if method is None else run_grid)(
            posterior.sampler, target, how, seed, options
        )
        effective.append(effective_draws(draws).min())
        seconds.append(took / effective[-1])
        rows.append(evaluated / effective[-1])
    return {
        "method": posterior.method,
        "sampler": str(getattr(posterior.sampler, "gradient", posterior.sampler)),
        "s a draw": statistics.median(seconds),
        "rows a draw": statistics.median(rows),
        "all else, s": once,
        "verdict": posterior.certificate.verdict,
        "ESS": f"{statistics.median(effective):.0f}",
    }


def run_exact(sampler, target, how, seed, options):
    chains = sampler.chains(svrhmc.whitening.whitened(target, how), seed, np.arange(4), os.cpu_count())
    chains.compile()
    chains.extend(100)
    extension, took = timed(lambda: chains.extend(options.draws))
    return how.out(extension.draws), took, extension.evaluations


def run_grid(sampler, target, how, seed, options):
    space = svrhmc.whitening.whitened(target, how)
    trace = sampler.run(space, options.draws + 100, chains=4, seed=seed, start=how.centre, burn_in=100)
    return trace.draws, trace.seconds, 4 * sampler.gradient.evaluations(space, options.draws + 100)


def slope(logarithms, sizes):
    return float(np.polyfit(np.log(sizes), logarithms, 1)[0])


def draw_scaling(options, rows, methods):
    pyplot = require_matplotlib()
    panels = (("s a draw", "Time of sampling (microseconds)", 1e6), ("rows a draw", "Rows of data evaluated", 1))
    names = {"default": "subsampled Metropolis (what `sample` chooses)", "anchored": "batches of rows (asked for)"}
    with pyplot.rc_context(STYLE | {"svg.fonttype": "none"}):
        figure, both = pyplot.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
        figure.suptitle("What one effective draw costs as the data grow: logistic regression, 20 columns", fontsize=11)
        for axes, (measure, title, unit) in zip(both, panels, strict=True):
            for asked, colour, marker in zip(methods, COLOURS, MARKERS, strict=False):
                chosen = [row for row in rows if row["asked"] == asked]
                values = [unit * float(row[measure]) for row in chosen]
                axes.plot(options.sizes, values, color=colour, marker=marker, linewidth=1.6, label=names[asked])
                power = f"as n to the power {round(slope(np.log(values), options.sizes), 2) + 0:.2f}".replace("-", "−")
                place = (options.sizes[-1], values[-1])
                axes.annotate(power, place, (0, 9), textcoords="offset points", color=colour, fontsize=9, ha="right")
            axes.set_xscale("log")
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_ylim(low / 2, high * 3)
            axes.set_xlabel("rows of the data, n")
            axes.set_title(f"{title} per effective draw", loc="left", fontsize=10)
        figure.legend(*both[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
        save_figure(pyplot, figure, options.docs / "scaling.svg")


def arguments():
    parts = {
        "bars": part_bars,
        "nuts": part_nuts,
        "defaults": part_defaults,
        "needed": part_needed,
        "large": part_large,
        "scaling": part_scaling,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(parts), help="some of: " + ", ".join(parts))
    parser.add_argument("--reference", type=Path, help="npz with {problem}/mean, sd, mean_se and sd_se")
    parser.add_argument("--covtype", type=Path, help="npz with num, bin and label; without it covtype is left out")
    parser.add_argument("--data", type=Path, default=os.environ.get("SVRHMC_DATA"), help="folder with gisette and a3a")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="where figures go")
    parser.add_argument("--seeds", type=int, default=20, help="of each problem of bars and defaults")
    parser.add_argument(
        "--problems", type=lambda text: text.split(","), help="of bars and defaults: some of " + ", ".join(BARS)
    )
    parser.add_argument("--cases", type=lambda text: text.split(","), help="of large: some of " + ", ".join(LARGE))
    parser.add_argument("--small", action="store_true", help="large: fewer rows, to try it out")
    parser.add_argument("--repeats", type=int, default=3, help="of nuts (ours) and scaling")
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(float(n)) for n in text.split(",")],
        default=[100_000, 300_000, 1_000_000, 3_000_000, 10_000_000],
        help="n of scaling",
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=20_000,
        help="steps of each chain in scaling",
    )
    parser.add_argument("--case", help=argparse.SUPPRESS)
    return parser.parse_args(), parts


def main():
    options, parts = arguments()
    if options.case:
        large_case(options)
        return
    for name in options.only.split(","):
        parts[name](options)


if __name__ == "__main__":
    main()
