"""Which of the paper's samplers is the cheapest, at n rows and an accuracy ε: a map by exact laws on quadratics.

The log posterior of each of the paper's nine data sets is replaced by the quadratic with its curvature at the mode: a
linear regression with noise 1 on the rows rᵢ = √ℓᵢ″·aᵢ, with responses yᵢ = rᵢᵀx* − ℓᵢ′/√ℓᵢ″ and the prior precision λ
of the data set (of a linear regression that is the posterior itself). With n rows of this kind in place of its n₀,

    f(x) = (n/n₀) Σᵢ ½(rᵢᵀx − yᵢ)² + ½λ|x|²,

whose mean of n components, their curvatures and their gradients are known for every n. The paper's synthetic instance
has one f whatever n is. ε is given as a share of the posterior's spread, W₂ = share·√tr Σ: about how far standard
deviations are off, as a share of themselves.

A cell of the map is the least number of gradients of single rows after which W₂ ≤ ε, from x = 0 as in the paper: the
cheapest step, batch (1, 4, 16, …) or epoch (n/16 to 64n, batch 1) and number of steps that `theory.plan(rule="exact")`
finds, by moments of the exact law in each eigenvector of the curvature (of gisette, in every eighth). A snapshot counts
n, and a step after it 1 where the slopes of its rows are kept (data sets), else 2 (synthetic). A run that comes nearer
than ε also serves ε. Friction 2 and inverse mass 1/L, as in the paper.

    python benchmarks/samplers_map.py                         # the figure and the tables, from results/samplers_map.csv
    python benchmarks/samplers_map.py --measure --data DIR    # the map itself; DIR as in docs/data.md
    python benchmarks/samplers_map.py --check --data DIR      # some cells again, by chains
"""

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from svrhmc import targets, theory
from svrhmc.core.figures import STYLE, import_matplotlib, write_figure
from svrhmc.paper.data import load
from svrhmc.paper.regression import posterior, split_of
from svrhmc.paper.settings import load_settings
from svrhmc.samplers import LABELS, METHODS, Sampler
from svrhmc.theory.planning import _Search
from svrhmc.theory.quadratic import Quadratic, eigen_components, elementwise_noise

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIGURE = ROOT / "docs" / "images" / "samplers_map.svg"
SETTINGS = load_settings()
SECTIONS = {name: SETTINGS[figure] for figure in ("figure2", "figure3") for name in SETTINGS[figure]["datasets"]}
SYNTHETIC = {"synthetic, equal": 0.0, "synthetic, unequal": 0.5}  # spread of the components' curvatures; d = 10
SIZES = [10**k for k in range(2, 9)]
SHARES = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01]
OURS = "svr-hmc"
WITHOUT = ("lmc", "hmc", "sgld", "sg-hmc")  # no variance reduction
CHOOSING, MOST = 16, 125  # eigenvectors on which steps and epochs are chosen, and on which steps are counted
MARGINS = (1.0, 0.97, 0.9, 0.8)  # of ε, that are aimed at in turn until all eigenvectors together come within ε
TABLED, TABLED_SHARE = (1000, 100_000, 10_000_000), 0.1
CHAINS, CHECKED_SHARE, LONGER = 20_000, 0.1, 1.3  # of the checks; the control has steps so many times as long
CHECKS = [
    ("synthetic, unequal", 1, OURS), ("noise", 1, OURS), ("noise", 1, "vr-sgld"), ("noise", 1, "sg-hmc"),
    ("noise", 4, OURS), ("pima", 1, OURS), ("pima", 4, OURS),
]  # fmt: skip
CHECKED = (
    f"{CHAINS:,} chains of each run, from 0, beside the exact law with all pairs of coordinates (`theory.law`): W₂ as "
    "a share of the spread, as the map has it, coordinate by coordinate, and by that law; the largest |z| of all means "
    f"and covariances; and the same beside the law of steps {LONGER:g} times as long, which has to be refused."
)
TITLES = {
    "pima": "384 rows, 9 columns", "noise": "752, 5", "geographical": "530, 69", "parkinson": "2,938, 21",
    "a3a": "3,185, 123", "mushroom": "4,062, 112", "gisette": "5,000, 1,000", "toms": "14,090, 96",
    "casp": "22,865, 9", "synthetic, equal": "one S, 10 columns", "synthetic, unequal": "(1 ± ½)S, 10",
}  # fmt: skip
KEY = """How many times the gradients of
SVR-HMC the cheapest of LMC, HMC,
SGLD and SG-HMC needs.

Blue: SVR-HMC needs fewer.
Orange: it needs more.

Titles: the rows and columns that
each data set has."""
DIM, FIRST = 10, 1000  # of the synthetic instance: coordinates, and components of the one whose moments all n have


@dataclass(frozen=True)
class Instance:
    """Rows r, responses and prior precision of a linear regression; or (synthetic) a target whatever n is."""

    name: str
    X: np.ndarray | None = None
    y: np.ndarray | None = None
    precision: float = 1.0
    fixed: object = None

    @property
    def n(self):
        """Rows that there are."""
        return FIRST if self.X is None else len(self.y)

    def target(self, copies=1):
        """The posterior given every row so many times."""
        if self.X is None:
            return self.fixed
        return targets.linear(np.tile(self.X, (copies, 1)), np.tile(self.y, copies), 1.0, self.precision)

    def model(self, n):
        """The quadratic with n rows, one eigenvector by itself beside another, as a search reads it."""
        rows = self.X is not None
        scale = n / self.n if rows else 1.0
        target = targets.linear(self.X, self.y, 1.0, self.precision / scale) if rows else self.fixed
        spectrum, basis, components = eigen_components(target, target.mode())
        s = scale * np.maximum(spectrum, self.precision / scale if rows else 0.0)
        noise = scale**2 * (components.squares() * (s[:, None] / s)).sum(axis=1)
        forces = scale**2 * components.P @ components.forces**2
        return Model(n, s, noise, forces, -basis.T @ target.mode(), target.scalar_parts).thinned(MOST)


@dataclass(frozen=True)
class Model:
    """Of each eigenvector: its curvature s, the noise of a reduced gradient and of a row's, and where chains begin."""

    n: int
    s: np.ndarray
    noise: np.ndarray
    forces: np.ndarray
    origin: np.ndarray
    scalar_parts: bool

    @property
    def spread(self):
        """√tr Σ."""
        return math.sqrt((1 / self.s).sum())

    def thinned(self, most):
        """Every k-th eigenvector, so that so many are left."""
        some = np.unique(np.linspace(0, len(self.s) - 1, min(most, len(self.s))).round().astype(int))
        parts = (part[some] for part in (self.s, self.noise, self.forces, self.origin))
        return Model(self.n, *parts, self.scalar_parts)

    def search(self, method):
        """Where the cheapest run is looked for."""
        axes, zero = np.arange(len(self.s)), np.zeros(len(self.s))
        noise = elementwise_noise(self.noise, zero, zero, self.forces)
        model = Quadratic(self.n, zero, np.eye(len(self.s)), self.s, axes, axes, noise)
        radius, variance = float(np.linalg.norm(self.origin)), float(self.forces.sum())
        problem = theory.Problem(
            self.n, len(self.s), self.s.max(), self.s.min(), radius, variance, scalar_parts=self.scalar_parts
        )
        return _Search(problem, method, False, None, model, self.origin)

    def runs(self, method):
        """The cheapest run of a method by share, where one that comes nearer also serves."""
        few, all_of_them, cheapest, best = self.thinned(CHOOSING), self.search(method), {}, None
        search = few.search(method)
        for share in sorted(SHARES):
            for margin in MARGINS:
                run = search.cheapest(margin * share * few.spread)
                run = run and all_of_them._run(run.sampler, share * self.spread)
                if run is not None:
                    break
            best = min((each for each in (run, best) if each is not None), key=lambda each: each.evaluations)
            cheapest[share] = best
        return cheapest


def instance(name, data):
    """A data set's first split as in the paper's experiments, or a synthetic instance."""
    if name in SYNTHETIC:
        return Instance(name, fixed=targets.synthetic(FIRST, DIM, spread=SYNTHETIC[name]))
    section = SECTIONS[name]
    split = split_of(section, name, load(name, data), 0)
    target = posterior(section, split)
    X = np.asarray(split.X.toarray() if hasattr(split.X, "toarray") else split.X, np.float64)
    if not split.logistic:
        return Instance(name, X, np.asarray(split.y, np.float64), section["prior_precision"])
    return quadratic_of(name, X, target, section["prior_precision"])


def quadratic_of(name, X, target, precision):
    """The linear regression with the curvature of a logistic one at its mode, row by row."""
    mode = target.mode()
    form = target.form()
    root = np.sqrt(form.curvatures(form.predictors(mode[None])[0]))
    slopes = target.parts(mode[None], None)[0] / target.n
    rows = X * root[:, None]
    return Instance(name, rows, rows @ mode - slopes / root, precision)


def cells(instance: Instance) -> Iterator[dict[str, object]]:
    """The map of one instance: gradients of each method by n and share, and the run of SVR-HMC."""
    for n in SIZES:
        model = instance.model(n)
        runs = {method: model.runs(method) for method in METHODS}
        for share in SHARES:
            ours = runs[OURS][share]
            yield {
                "instance": instance.name, "rows": n, "share": share,
                **{method: f"{runs[method][share].evaluations:.4g}" for method in METHODS},
                "step": f"{ours.sampler.dynamics.step_size:.4g}",
                "epoch": ours.sampler.gradient.epoch_length, "steps": ours.steps,
            }  # fmt: skip


def measure(data, names):
    """Write the map; instances that are there and are not asked for stay."""
    path = RESULTS / "samplers_map.csv"
    kept = [row for row in read() if row["instance"] not in names] if path.exists() else []
    for name in names:
        kept += cells(instance(name, data))
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, kept[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)
        print(name, flush=True)


def read():
    """The rows of the map."""
    with (RESULTS / "samplers_map.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def advantage(row):
    """The cheapest sampler without variance reduction, in gradients for each of SVR-HMC."""
    return min(float(row[method]) for method in WITHOUT) / float(row[OURS])


def figure():
    """A panel for each instance: rows across, accuracy down, and in each cell what SVR-HMC saves."""
    with import_matplotlib().rc_context({**STYLE, "axes.grid": False, "font.size": 9}):
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure

        shades = LinearSegmentedColormap.from_list("saved", ["#D55E00", "#fff4e6", "#e8f1f8", "#0072B2"])
        drawn = Figure(figsize=(9.0, 9.6), layout="constrained")
        (*grid, last), rows = drawn.subplots(4, 3, sharex=True, sharey=True).flat, read()
        for axes, name in zip(grid, TITLES, strict=True):
            saved = np.array([advantage(row) for row in rows if row["instance"] == name]).reshape(len(SIZES), -1).T
            axes.imshow(np.log10(saved), cmap=shades, vmin=-2, vmax=2, aspect="auto")
            for (i, k), times in np.ndenumerate(saved):
                colour = "white" if abs(math.log10(times)) > 1.3 else "0.1"
                axes.text(k, i, times_of(times), ha="center", va="center", fontsize=6.5, color=colour)
            axes.set_title(f"{name}: {TITLES[name]}", loc="left", fontsize=9)
            axes.set_xticks(range(len(SIZES)), [f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[round(math.log10(n))]}" for n in SIZES])
            axes.set_yticks(range(len(SHARES)), [f"{share:g}" for share in SHARES])
            axes.tick_params(length=0, labelbottom=True)
        last.axis("off")
        last.text(0, 0.95, KEY, transform=last.transAxes, va="top", fontsize=8.5, linespacing=1.4)
        drawn.supxlabel("rows n", fontsize=9.5)
        drawn.supylabel("accuracy: W₂ as a share of the posterior's spread", fontsize=9.5)
        write_figure(drawn, FIGURE)


def times_of(times):
    """A factor in few characters: 1.5, 40, 9.6k, 14M, or 1/40."""
    if times < 0.095:
        return f"1/{times_of(1 / times)}"
    if times >= 950:
        unit, sign = (1e6, "M") if times >= 950_000 else (1e3, "k")
        return f"{times / unit:.0f}{sign}" if times >= 9.5 * unit else f"{times / unit:.1f}{sign}"
    return f"{times:.0f}" if times >= 9.5 else f"{times:.1f}"


def tables():
    """What the figure leaves out: the cost of every sampler, in passes over the rows."""
    rows, lines = (
        read(),
        ["# Which sampler is the cheapest", "", *__doc__.split("\n\n    python")[0].splitlines()[2:], ""],
    )
    for n in TABLED:
        lines += [
            f"## {n:,} rows, W₂ = {TABLED_SHARE:g} of the posterior's spread: passes over the rows", "",
            "| instance | " + " | ".join(LABELS.values()) + " | cheapest without snapshots, beside SVR-HMC |",
            "|---" * (len(LABELS) + 2) + "|",
        ]  # fmt: skip
        for row in rows:
            if int(row["rows"]) == n and float(row["share"]) == TABLED_SHARE:
                costs = " | ".join(f"{float(row[method]) / n:.3g}" for method in LABELS)
                lines.append(f"| {row['instance']} | {costs} | {times_of(advantage(row))} |")
        lines.append("")
    beside = sorted(float(row["vr-sgld"]) / float(row[OURS]) for row in rows)
    lines += [
        f"In the {len(rows)} cells VR-SGLD takes {beside[0]:.2f} to {beside[-1]:.2f} times the gradients of SVR-HMC, "
        f"{beside[len(rows) // 2]:.2f} in the middle."
    ]  # fmt: skip
    checks = RESULTS / "samplers_map_checks.csv"
    if checks.exists():
        lines += ["", "## Cells again, by chains", "", CHECKED, ""]
        table = list(csv.reader(checks.open(encoding="utf-8")))
        lines += ["| " + " | ".join(line) + " |" for line in (table[0], ["---"] * len(table[0]), *table[1:])]
    (RESULTS / "samplers_map.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def check(data):
    """The runs of some cells, by chains of the real sampler: moments beside those of the exact law, and W₂."""
    rows = []
    for name, copies, method in CHECKS:
        one = instance(name, data)
        n, target = copies * one.n, one.target(copies)
        model = one.model(n)
        run = model.search(method).cheapest(CHECKED_SHARE * model.spread)
        law, faulty = (_law(run, target, step) for step in (1.0, LONGER))
        trace = run.sampler.run(target, run.steps, chains=CHAINS, keep="last", seed=34)
        z, control = (largest_z(trace.draws[:, -1], other) for other in (law, faulty))
        rows.append(
            [name, f"{n:,}", LABELS[method], f"{run.evaluations:.4g}", f"{run.w2 / model.spread:.3f}",
             f"{law.w2 / model.spread:.3f}", f"{z:.1f}", f"{control:.1f}"]
        )  # fmt: skip
        print(rows[-1], flush=True)
    with (RESULTS / "samplers_map_checks.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["instance", "rows", "sampler", "gradients", "share, map", "share, law", "z", "z of the control"]
        )
        writer.writerows(rows)


def _law(run, target, longer):
    """After the run's steps, each so many times as long."""
    dynamics = replace(run.sampler.dynamics, step_size=longer * run.sampler.dynamics.step_size)
    return theory.law(Sampler(dynamics, run.sampler.gradient), target, run.steps)


def largest_z(x, law):
    """The largest |z| of means and covariances of draws (chain, dim) beside those of a law."""
    away = x - law.position.mean
    i, j = np.triu_indices(x.shape[1])
    products = away[:, i] * away[:, j]
    numbers = np.hstack([away, products])
    exact = np.concatenate([np.zeros(x.shape[1]), law.position.covariance[i, j]])
    return float(np.abs((numbers.mean(axis=0) - exact) / numbers.std(axis=0)).max() * math.sqrt(len(x)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="*", default=[*SYNTHETIC, *SECTIONS])
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.data, arguments.only)
    if arguments.check:
        check(arguments.data)
    figure()
    tables()


if __name__ == "__main__":
    main()
