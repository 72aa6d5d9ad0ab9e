"""The report: figures, tables, and each claim of the paper with what the numbers say of it."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import svrhmc
from svrhmc.paper.blocks import Block, Grid, Heading, Picture, Text, as_html, as_markdown, write_csv
from svrhmc.paper.data import DATASETS
from svrhmc.paper.figures import Results, draw_paths, draw_synthetic, finished
from svrhmc.paper.settings import Settings, panel_name
from svrhmc.samplers import LABELS

_OURS = "svr-hmc"
Claims = list[tuple[str, str, str]]  # claim, verdict, numbers


def write_report(
    results: Results, settings: Settings, parts: tuple[str, ...], out: Path, missing: tuple[str, ...], quick: bool
) -> Path:
    """report.md, report.html (self-contained), the figures as SVG and the numbers as CSV."""
    blocks: list[Block] = [Text(_opening(quick))]
    blocks += [Text(f"**Missing:** {text}") for text in missing]
    sections: list[Block] = []
    claims: Claims = []
    for part, write in (("figure1", _figure1), ("figure2", _figure2), ("table3", _table3), ("figure3", _figure3)):
        if part in parts:
            sections += write(results, settings, out, claims)
    if "table1" in parts:
        sections += _table1(results, settings, out, claims)
    if claims:
        blocks += [Heading("The paper's claims"), Grid((("claim", "verdict", "numbers"), *claims))]
    blocks += sections + _closing()
    (out / "report.md").write_text(as_markdown(blocks), encoding="utf-8")
    (out / "report.html").write_text(as_html(blocks), encoding="utf-8")
    (out / "runtime.txt").write_text(_runtime(results), encoding="utf-8")
    return out / "report.md"


def _opening(quick: bool) -> str:
    text = (
        "The experiments of Zou, Xu & Gu, *Stochastic Variance-Reduced Hamilton Monte Carlo Methods* (ICML 2018), "
        "run again by "
        "`svrhmc reproduce`. The paper gives no step sizes, masses or scaling; every setting used here is in "
        "`src/svrhmc/paper/settings.toml`. A data pass is n component gradients really evaluated, snapshots included."
    )
    return text + (" **A quick run: few chains, seeds and settings; its verdicts mean little.**" if quick else "")


# Figure 1.


def _figure1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    one = settings["figure1"]
    blocks: list[Block] = [
        Heading("Figure 1: synthetic targets"),
        Text(
            f"W₂ against data passes; {one['chains']:,} chains from 0, batch {one['batch_size']}, epoch n, friction "
            f"2, "
            f"inverse mass 1/L. One budget for all, {one['passes']} passes; for each sampler the step of the grid "
            f"{one['step_sizes']} with the least exact W₂ at its end. Lines are exact (`theory.law`) and go to the "
            f"end; the "
            f"chains go {one['chain_steps']} steps at most. Dots are the Gaussian plug-in of the chains, dotted "
            f"lines what to "
            "expect of it under the exact law, and dashed lines what it would show for so many exact draws."
        ),
    ]
    rows = []
    for spread in one["spreads"]:
        name = "figure1_common.svg" if spread == 0 else "figure1_own.svg"
        if draw_synthetic(results, one, spread, out / name):
            text = (
                "one S for all components, as in the paper"
                if spread == 0
                else f"Sᵢ = (1 ± {spread:g})S: variance to reduce"
            )
            blocks.append(Picture(out / name, f"Figure 1, {text}"))
        for dim in one["dims"]:
            for n in one["sizes"]:
                rows += _panel_rows(results, one, spread, dim, n)
    write_csv(
        out / "figure1.csv",
        ("spread", "d", "n", "sampler", "step_size", "step", "passes", "paper_passes", "w2", "expected", "deviation"),
        (
            (
                *_panel_key(key),
                result["step_size"],
                *(p[k] for k in ("step", "passes", "paper_passes", "w2", "expected", "deviation")),
            )
            for key, result in results.items()
            if key.startswith("figure1 ")
            for p in result["points"]
        ),
    )
    head = (
        "S", "d", "n",
        *(f"{LABELS[m]}: passes to {level:g}" for level in one["thresholds"] for m in one["samplers"]),
        "largest |z|",
    )  # fmt: skip
    blocks.append(Grid((head, *(row.cells for row in rows))))
    blocks.append(
        Text(
            "Passes to a distance are exact, for the step of the grid (given) that gets there in the fewest; in "
            "brackets "
            "by the paper's count, one gradient for an inner step instead of two. |z|: how far the chains' plug-in "
            "is from "
            "its expectation under the exact law, in its deviations (both by simulating sample means and "
            "covariances), at "
            "the worst of a panel's dots, which depend on each other."
        )
    )
    _claims1(rows, one, settings["report"], claims)
    return blocks


@dataclass(frozen=True)
class _PanelRow:
    spread: float
    dim: int
    n: int
    passes: dict[str, tuple[float, float]]
    scores: tuple[float, ...]
    cells: tuple[str, ...]


def _panel_rows(results: Results, one: Settings, spread: float, dim: int, n: int) -> list[_PanelRow]:
    passes: dict[str, tuple[float, float]] = {}
    cells: list[str] = []
    keys = [panel_name(spread, dim, n, method) for method in one["samplers"]]
    if any(key not in results for key in keys):
        return []
    scores = tuple((p["w2"] - p["expected"]) / p["deviation"] for key in keys for p in results[key]["points"])
    for level in one["thresholds"]:
        for method, key in zip(one["samplers"], keys, strict=True):
            result = results[key]
            reached = result["reach"][str(level)]
            if reached is None:
                cells.append("never")
                continue
            if level == one["thresholds"][0]:
                passes[method] = (reached["passes"], reached["paper_passes"])
            other = f" ({reached['paper_passes']:.3g})" if method == _OURS else ""
            cells.append(f"{reached['passes']:.3g}{other}, η = {reached['step_size']:g}")
    name = "common" if spread == 0 else f"±{spread:g}"
    worst = f"{np.abs(scores).max():.2f}"
    return [_PanelRow(spread, dim, n, passes, scores, (name, str(dim), str(n), *cells, worst))]


def _panel_key(key: str) -> tuple[str, ...]:
    return tuple(word.split("=")[-1] for word in key.split()[1:])


def _claims1(rows: list[_PanelRow], one: Settings, limits: Settings, claims: Claims) -> None:
    common = [row for row in rows if row.spread == 0]
    if not common:
        return
    scores = np.array([score for row in rows for score in row.scores])
    worst = float(np.abs(scores).max())
    numbers = (
        f"largest |z| {worst:.2f} of {len(scores)} dots in {len(rows)} panels, which depend on each other in part; all "
        f"of them: mean {scores.mean():+.2f}, deviation {scores.std():.2f}"
    )
    claim = f"Figure 1: the chains have the exact law (|z| ≤ {limits['deviations_of_law']:g} at every dot)"
    claims.append((claim, _yes(worst <= limits["deviations_of_law"]), numbers))

    def beats(row: _PanelRow, other: str, count: int) -> bool:
        inf = (np.inf, np.inf)
        return row.passes.get(_OURS, inf)[count] < row.passes.get(other, inf)[count]

    level = one["thresholds"][0]
    for other, largest in (("hmc", np.inf), ("sg-hmc", limits["small"])):
        chosen = [row for row in common if row.n <= largest]
        for count, how in ((0, "gradients evaluated"), (1, "the paper's count")):
            lost = [f"d = {row.dim}, n = {row.n}" for row in chosen if not beats(row, other, count)]
            where = "in all panels" if largest == np.inf else f"for n ≤ {largest:g}"
            claims.append(
                (
                    f"Figure 1: SVR-HMC reaches W₂ = {level:g} in fewer passes than {LABELS[other]} {where} ({how})",
                    _yes(not lost),
                    "not in " + "; ".join(lost) if lost else f"all {len(chosen)} panels",
                )
            )
    big = [row for row in common if row.n == max(one["sizes"]) and {_OURS, "sg-hmc"} <= row.passes.keys()]
    ratios = [row.passes[_OURS][0] / row.passes["sg-hmc"][0] for row in big]
    if ratios:
        claims.append(
            (
                f"Figure 1: for large n SVR-HMC comes close to SG-HMC (n = {max(one['sizes'])})",
                _yes(max(ratios) < limits["close"]),
                "SVR-HMC needs "
                + ", ".join(f"{ratio:.2g}" for ratio in ratios)
                + " times SG-HMC's passes: the first snapshot alone is one",
            )
        )


# Figures 2 and 3.


def _figure2(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    label = "test negative log-likelihood"
    return _paths(results, settings, "figure2", "Figure 2: Bayesian logistic regression", label, out, claims)


def _figure3(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    label = "test mean squared error"
    return _paths(results, settings, "figure3", "Figure 3: Bayesian linear regression", label, out, claims)


def _paths(
    results: Results,
    settings: Settings,
    key: str,
    title: str,
    label: str,
    out: Path,
    claims: Claims,
) -> list[Block]:
    section, limits = settings[key], settings["report"]
    blocks: list[Block] = [
        Heading(title),
        Text(
            f"{label.capitalize()} of the path average against data passes: mean of {section['seeds']} runs, band "
            f"two "
            f"standard errors; the first {section['burn_in']} iterations are dropped. A snapshot's slopes are "
            f"remembered "
            "(one number a row), so that the paper's count of passes and ours are the same here. Settings by one "
            "rule for "
            f"all samplers: the least loss after {section['passes']} passes on a held-out part of each split's own "
            "training rows. The last two columns are what SVR-HMC's loss is lower by, seed by seed; their standard "
            "errors "
            "contain the choice of settings, except where one split serves all seeds."
        ),
    ]
    if not draw_paths(results, section, key, label, out / f"{key}.svg"):
        return [*blocks, Text("No data.")]
    blocks.append(Picture(out / f"{key}.svg", title))
    names = [name for name in section["datasets"] if f"{key} {name} {_OURS}" in results]
    rows, gaps = [], {}
    far: list[str] = []
    untold: list[str] = []
    for name in names:
        exact, unsure = _reference(results, key, name)
        for method in section["samplers"]:
            result = results.get(f"{key} {name} {method}")
            if result is None:
                continue
            final = float(np.mean([run["loss"][-1] for run in finished(result)]))
            if abs(final / exact - 1) > limits["near"]:
                (untold if unsure > limits["near"] * exact / 2 else far).append(
                    f"{LABELS[method]} on {name}: {final / exact:.3g} of it"
                )
            paired = ("", "")
            if method != _OURS:
                gaps[name, method] = _paired(result, results[f"{key} {name} {_OURS}"])
                paired = (_signed(*gaps[name, method][0]), _signed(*gaps[name, method][1]))
            shown = f"{exact:.5g}" + (f" ± {unsure:.1g}" if unsure else "")
            rows.append((name, LABELS[method], _chosen(result, section), f"{final:.5g}", shown, *paired))
    head = (
        "data",
        "sampler",
        "chosen most often (step and inverse mass in units of 1/L)",
        "loss in the end",
        "posterior mean's",
        "loss above SVR-HMC's, mean of all passes",
        "the same in the end",
    )
    blocks.append(Grid((head, *rows)))
    notes = "; ".join(f"{name}: {DATASETS[name].note}" for name in names)
    blocks.append(Text(f"Data: {notes}."))
    columns = ("passes", "loss", "error") if key == "figure2" else ("passes", "loss")
    write_csv(
        out / f"{key}.csv",
        ("data", "sampler", "seed", *columns),
        (
            (name, method, seed, *values)
            for name in names
            for method in section["samplers"]
            if (result := results.get(f"{key} {name} {method}")) is not None
            for seed, run in enumerate(result["runs"])
            if run is not None
            for values in zip(*(run[column] for column in columns), strict=True)
        ),
    )
    figure = title.split(":")[0]
    verdict = "does not" if far else "cannot be told" if untold else "holds"
    text = "; ".join(far + [f"{line} (the reference itself is not sure to that)" for line in untold]) or "all of them"
    claims.append(
        (f"{figure}: every sampler's loss ends within {limits['near']:.0%} of the posterior mean's", verdict, text)
    )
    for method in section["samplers"]:
        found = {name: gaps[name, method] for name in names if (name, method) in gaps}
        if found:
            words = {name: _sign(*pair[0], limits["errors"]) for name, pair in found.items()}
            text = "; ".join(
                f"{name}: {words[name]} ({_signed(*pair[0])}; in the end {_signed(*pair[1])})"
                for name, pair in found.items()
            )
            claims.append(
                (f"{figure}: SVR-HMC is faster than {LABELS[method]} on all data sets", _joint(words.values()), text)
            )
    return blocks


def _reference(results: Results, key: str, name: str) -> tuple[float, float]:
    """The posterior mean's loss over the reported splits, and how sure that is."""
    found = results.get(f"{key} {name} reference")
    if found is None:
        return float("nan"), 0.0
    unsure = found.get("uncertainty")
    return float(np.mean(found["loss"])), float(np.mean(unsure)) if unsure else 0.0


def _chosen(result: dict[str, Any], section: Settings) -> str:
    """The setting chosen most often, of how many, and whether it stands at an edge of the grid."""
    choices = [tuple(sorted(choice.items())) for choice in result["choices"]]
    most = max(choices, key=choices.count)
    choice = dict(most)
    steps = section["underdamped_steps" if "inverse_mass" in choice else "overdamped_steps"]
    edge = choice["step"] in (max(steps), min(steps)) or choice.get("inverse_mass") == max(section["inverse_masses"])
    lost = len(result["runs"]) - len(finished(result))
    times = f" ({choices.count(most)} of {len(choices)})" if len(choices) > 1 else ""
    return _choice(choice) + times + (", at the grid's edge" if edge else "") + (f"; {lost} diverged" if lost else "")


def _paired(other: dict[str, Any], ours: dict[str, Any]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Other's loss less ours, seed by seed, with standard errors: mean of all passes that both report; the last."""
    means, ends = [], []
    for theirs, mine in zip(other["runs"], ours["runs"], strict=True):
        if theirs is None or mine is None:
            continue
        a, b = (dict(zip(run["passes"], run["loss"], strict=True)) for run in (theirs, mine))
        gaps = [a[spent] - b[spent] for spent in sorted(a.keys() & b.keys())]
        means.append(float(np.mean(gaps)))
        ends.append(gaps[-1])
    return _with_error(means), _with_error(ends)


def _with_error(values: Any) -> tuple[float, float]:
    """Mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return float(np.mean(values)), float(error)


# Tables.


def _table3(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    two, limits = settings["figure2"], settings["report"]
    names = [name for name in two["datasets"] if f"figure2 {name} {_OURS}" in results]
    if not names:
        return [Heading("Table 3: test error"), Text("No data.")]
    rows, table, errors = [], [], {}
    away: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        reference = results.get(f"figure2 {name} reference")
        for method in two["samplers"]:
            found = [run["error"][-1] if run else np.nan for run in results[f"figure2 {name} {method}"]["runs"]]
            mean, deviation = float(np.nanmean(found)), float(np.nanstd(found, ddof=min(1, len(found) - 1)))
            paper, spread = two["paper"][name][method]
            errors[name, method] = np.array(found)
            exact = f"{np.mean(reference['error']):.4g}" if reference else ""
            ours, theirs = f"{mean:.4g} ± {deviation:.2g}", f"{paper:.4g} ± {spread:.2g}"
            rows.append((name, LABELS[method], ours, theirs, f"{(mean - paper) / spread:+.1f}", exact))
            table.append((name, method, mean, deviation, paper, spread))
            if abs(mean - paper) > limits["deviations"] * spread:
                away[name].append(f"{LABELS[method]} {ours} against {theirs}")
    write_csv(out / "table3.csv", ("data", "sampler", "error", "deviation", "paper", "paper_deviation"), table)
    head = (
        "data",
        "sampler",
        f"ours after {two['passes']} passes",
        "the paper's",
        "away, in the paper's deviations",
        "posterior mean's error",
    )
    blocks: list[Block] = [
        Heading("Table 3: test error"),
        Text(
            "gisette has the first 1000 of its 5000 features here, and 5000 training rows; its errors cannot be the "
            "paper's. "
            "pima and mushroom are split anew for each seed, which our deviations contain. What is further away than "
            f"{limits['deviations']:g} of the paper's deviations is looked into below."
        ),
        Grid((head, *rows)),
    ]
    blocks += _experiments(results, settings)
    for name in names:
        if name != "gisette":
            text = "; ".join(away[name]) or "all four samplers"
            claim = f"Table 3: our errors on {name} are the paper's, within {limits['deviations']:g} of its deviations"
            claims.append((claim, _yes(not away[name]), text))
    for name in names:
        best = min(two["samplers"], key=lambda method: float(np.nanmean(errors[name, method])))
        gaps = {}
        for method in two["samplers"]:
            gap = errors[name, method] - errors[name, _OURS]
            if method != _OURS:
                gaps[method] = _with_error(gap[np.isfinite(gap)])
        text = ", ".join(f"{LABELS[m]} {_signed(*gap)}" for m, gap in gaps.items())
        verdict = _joint(_sign(*gap, limits["errors"]) for gap in gaps.values())
        numbers = f"least: {LABELS[best]}; errors above SVR-HMC's: {text}"
        claims.append((f"Table 3: SVR-HMC has the least error on {name}", verdict, numbers))
    return blocks


def _experiments(results: Results, settings: Settings) -> list[Block]:
    blocks: list[Block] = []
    rows = []
    for name in settings["experiment"]["datasets"]:
        result = results.get(f"experiment {name}")
        rows += [
            (name, "yes" if row["intercept"] else "no", row["scale"], f"{row['error']:.4g} ± {row['deviation']:.2g}")
            for row in (result or {"rows": []})["rows"]
        ]
    if rows:
        blocks += [
            Text(
                "**What preparation brings the paper's errors?** Test error of the posterior mode, by intercept and "
                "scaling of the columns:"
            ),
            Grid((("data", "intercept", "scale", "error of the mode"), *rows)),
        ]
    steps = results.get("experiment steps")
    if steps:
        blocks += [
            Text(
                f"**Is it the step?** Test error of {LABELS[steps['method']]} on {steps['data']} after the same "
                "passes, for every step and batch of its grid: a step that reaches the paper's error may be what the "
                "paper used:"
            ),
            Grid(
                (
                    ("step (in units of 1/L)", "batch", "error"),
                    *(
                        (f"{r['step']:g}", f"{r['batch_size']:g}", f"{r['error']:.4g} ± {r['deviation']:.2g}")
                        for r in steps["rows"]
                    ),
                )
            ),
        ]
    longer = results.get("experiment mushroom passes")
    if longer:
        blocks += [
            Text(
                "**Is it the number of passes?** Test error on mushroom after more passes, with the settings tuned "
                "for 10. A sampler that comes to the paper's error only later has not converged after 10:"
            ),
            Grid(
                (
                    ("sampler", "passes", "error"),
                    *(
                        (LABELS[r["method"]], str(r["passes"]), f"{r['error']:.4g} ± {r['deviation']:.2g}")
                        for r in longer["rows"]
                    ),
                )
            ),
        ]
    return blocks


def _table1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    found = {key.split()[1]: result for key, result in results.items() if key.startswith("table1 ")}
    if not found:
        return [Heading("Table 1 at the experiments' constants"), Text("No data.")]
    methods = list(next(iter(found.values()))["totals"])
    head = ("data", "n", "d", "κ", "ε", *(LABELS[m] for m in methods), "cheapest")
    rows = [
        (
            name,
            str(r["n"]),
            str(r["dim"]),
            f"{r['condition_number']:.3g}",
            f"{r['accuracy']:.3g}",
            *(f"{r['totals'][m]:.2g}" for m in methods),
            LABELS[r["cheapest"]],
        )
        for name, r in found.items()
    ]  # fmt: skip
    write_csv(out / "table1.csv", ("data", "n", "d", "kappa", "accuracy", *methods, "cheapest"), rows)
    cheap = [name for name, r in found.items() if r["cheapest"] == _OURS]
    claims.append(
        (
            "Table 1: SVR-HMC outperforms all existing algorithms",
            _yes(len(cheap) == len(found)),
            f"at the constants of {len(found)} data sets it is cheapest on {len(cheap)} ({', '.join(cheap) or 'none'})",
        )
    )
    text = (
        "Leading terms of `theory.compare`, with the global constants of each posterior on its first split, chains "
        "from 0, and "
        f"ε = {settings['table1']['accuracy']:g}√(d/μ). For logistic regression μ is the prior's precision, which "
        f"makes κ far larger than it is near the mode."
    )
    return [Heading("Table 1 at the experiments' constants"), Text(text), Grid((head, *rows))]


def _closing() -> list[Block]:
    packages = ("numpy", "scipy", "numba", "matplotlib")
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    return [
        Heading("Versions, settings, runtime"),
        Text(
            f"svrhmc {svrhmc.__version__}, Python {platform.python_version()}, {versions}. All settings: "
            f"settings.toml of "
            "`svrhmc.paper`. Times of all tasks, which differ from run to run: runtime.txt."
        ),
    ]


def _runtime(results: Results) -> str:
    groups: dict[str, float] = {}
    for key, result in results.items():
        groups[key.split()[0]] = groups.get(key.split()[0], 0.0) + result["seconds"]
    lines = [f"{name}: {seconds:.0f} s" for name, seconds in groups.items()]
    return "Work of all tasks, as if one after another:\n" + "\n".join(lines) + f"\nall: {sum(groups.values()):.0f} s\n"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def _choice(choice: dict[str, float]) -> str:
    text = f"step {choice['step']:g}, batch {choice['batch_size']:g}"
    return text + (f", inverse mass {choice['inverse_mass']:g}" if "inverse_mass" in choice else "")


def _signed(mean: float, error: float) -> str:
    return f"{mean:+.2g} ± {error:.2g}"


def _sign(mean: float, error: float, errors: float) -> str:
    return "holds" if mean > errors * error else "does not" if mean < -errors * error else "cannot be told"


def _joint(verdicts: Iterable[str]) -> str:
    """Of a claim about all: it fails where one fails, and holds where all hold."""
    found = set(verdicts)
    return "does not" if "does not" in found else "holds" if found == {"holds"} else "cannot be told"


def _yes(holds: bool) -> str:
    return "holds" if holds else "does not"
