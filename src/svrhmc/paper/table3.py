"""Table 3 in the report: test errors beside the paper's, and what was tried where they differ."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.paper.blocks import Block, heading, paragraph, table, text, write_csv
from svrhmc.paper.claims import (
    CHECK,
    OURS,
    PAPER,
    Claim,
    Claims,
    Gap,
    Results,
    finished,
    joint,
    sign,
    signed,
    with_error,
    yes,
)
from svrhmc.paper.settings import Result, Settings
from svrhmc.samplers import LABELS

_TITLE = "Table 3: test error"


def table3(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Table 3; its claims are added to `claims`."""
    figure2, limits = settings["figure2"], settings["report"]
    names = [name for name in figure2["datasets"] if f"figure2 {name} {OURS}" in results]
    if not names:
        return [heading(_TITLE), paragraph("No data.")]
    rows, numbers, errors = [], [], {}
    away: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        reference = results.get(f"figure2 {name} reference")
        for method in figure2["samplers"]:
            ends = [run["error"][-1] if run else np.nan for run in results[f"figure2 {name} {method}"]["runs"]]
            mean, deviation = float(np.nanmean(ends)), float(np.nanstd(ends, ddof=min(1, len(ends) - 1)))
            paper, spread = figure2["paper"][name][method]
            errors[name, method] = np.array(ends)
            exact = f"{np.mean(reference['error']):.4g}" if reference else ""
            ours, theirs = f"{mean:.4g} ± {deviation:.2g}", f"{paper:.4g} ± {spread:.2g}"
            yardstick = _yardstick(figure2, name, deviation, spread)
            score = (mean - paper) / yardstick if yardstick else math.nan
            rows.append((name, LABELS[method], ours, theirs, f"{yardstick:.2g}", f"{score:+.1f}", exact))
            numbers.append((name, method, mean, deviation, paper, spread, yardstick))
            if not abs(score) <= limits["yardsticks"]:
                away[name].append(f"{LABELS[method]} {ours} against {theirs} ({score:+.1f})")
    columns = ("data", "sampler", "error", "deviation", "paper", "paper_deviation", "yardstick")
    write_csv(out / "table3.csv", columns, numbers)
    ours_after = f"ours after {figure2['passes']} passes"
    head = ("data", "sampler", ours_after, "the paper's", "yardstick", "away, in yardsticks", "posterior mean's error")
    partial = {name: lack for name, lack in settings.get("partial", {}).items() if name in names}
    blocks: list[Block] = [heading(_TITLE), paragraph(text("table3", **limits)), table(head, rows)]
    blocks += [paragraph(f"**{name}:** {lack}.") for name, lack in partial.items()]
    blocks += _experiments(results, settings)
    claims += _near([name for name in names if name not in partial], away, limits)
    claims += _least(figure2, names, errors, limits)
    burn_in = _burn_in(results, settings)
    if burn_in:
        more, claim = burn_in
        blocks += more
        claims.append(claim)
    return blocks


def _yardstick(figure2: Settings, name: str, deviation: float, spread: float) -> float:
    """By how much the paper's mean and ours may differ by chance."""
    split_anew = "train" in figure2["preparation"][name] and "split_seed" not in figure2["preparation"][name]
    if split_anew:
        return deviation
    return math.sqrt((deviation**2 + spread**2) / figure2["seeds"])


def _near(names: list[str], away: dict[str, list[str]], limits: Settings) -> Claims:
    threshold = f"all four samplers within {limits['yardsticks']:g} yardsticks"
    return [
        Claim(
            CHECK,
            f"Table 3: our errors on {name} are the paper's",
            threshold,
            yes(not away[name]),
            "; ".join(away[name]) or "all four samplers",
        )
        for name in names
    ]


def _least(figure2: Settings, names: list[str], errors: dict[tuple[str, str], Array], limits: Settings) -> Claims:
    claims: Claims = []
    for name in names:
        best = min(figure2["samplers"], key=lambda method: float(np.nanmean(errors[name, method])))
        gaps = {}
        for method in figure2["samplers"]:
            gap = errors[name, method] - errors[name, OURS]
            if method != OURS:
                gaps[method] = with_error(gap[np.isfinite(gap)])
        above = ", ".join(f"{LABELS[m]} {signed(*gap)}" for m, gap in gaps.items())
        printed = {method: figure2["paper"][name][method][0] for method in figure2["samplers"]}
        theirs = LABELS[min(printed, key=lambda method: printed[method])]
        claims.append(
            Claim(
                PAPER,
                f"Table 3: SVR-HMC has the least error on {name}",
                f"by {limits['errors']:g} standard errors of the differences, seed by seed",
                joint(sign(*gap, limits["errors"]) for gap in gaps.values()),
                f"least: {LABELS[best]} (in the paper's own table: {theirs}); errors above SVR-HMC's: {above}",
            )
        )
    return claims


def _burn_in(results: Results, settings: Settings) -> tuple[list[Block], Claim] | None:
    """The same comparison with the paper's larger burn-in."""
    experiment, methods, limits = settings["experiment"], settings["figure2"]["samplers"], settings["report"]
    rows, verdicts = [], []
    for name in experiment["burn_in_datasets"]:
        usual = {m: results[key] for m in methods if (key := f"figure2 {name} {m}") in results}
        later = {m: results[key] for m in methods if (key := f"experiment burn-in {name} {m}") in results}
        if len(usual) < len(methods) or len(later) < len(methods):
            continue
        for method in methods:
            *cells, before = _end(usual, method, limits)
            *more, after = _end(later, method, limits)
            rows.append((name, LABELS[method], *cells, *more))
            verdicts += [] if method == OURS else [(f"{name}, {LABELS[method]}", before, after)]
    if not rows:
        return None
    burn_in = f"{experiment['burn_in']:,}"
    head = ("data", "sampler", "burn-in 50: loss in the end", "above SVR-HMC's", f"burn-in {burn_in}: loss in the end",
            "above SVR-HMC's")  # fmt: skip
    differ = [verdict for verdict in verdicts if verdict[1] != verdict[2]]
    opposite = [verdict for verdict in differ if "cannot be told" not in verdict]
    unsure = [verdict for verdict in differ if "cannot be told" in verdict]
    lines = [f"; {what}: {before} with 50, {after} with the larger" for what, before, after in [*opposite, *unsure]]
    claim = Claim(
        PAPER,
        f"Section 5.2: the comparison is similar for a burn-in of {burn_in}",
        f"no difference in the end has the other sign, by {limits['errors']:g} standard errors both times",
        yes(not opposite),
        f"the same verdict for {len(verdicts) - len(differ)} differences" + "".join(lines),
    )
    return [paragraph(text("burn_in", burn_in=burn_in)), table(head, rows)], claim


def _end(by_method: Results, method: str, limits: Settings) -> tuple[str, str, str]:
    """The median loss in the end, what it is above SVR-HMC's, and whether it is."""
    median = f"{np.median([run['loss'][-1] for run in finished(by_method[method])]):.5g}"
    if method == OURS:
        return median, "", ""
    gap = Gap.between(by_method[method], by_method[OURS]).end
    return median, signed(*gap), sign(*gap, limits["errors"])


def _experiments(results: Results, settings: Settings) -> list[Block]:
    """What was tried: preparation, prior, steps and passes."""
    blocks: list[Block] = []
    tried = {
        name: result
        for name in settings["experiment"]["datasets"]
        if (result := results.get(f"experiment {name}")) is not None
    }
    if tried:
        blocks += [
            paragraph(text("preparation")),
            table(
                ("data", "intercept", "scale", "error of the mode"),
                [
                    (name, "yes" if row["intercept"] else "no", row["scale"], _error(row))
                    for name, result in tried.items()
                    for row in result["rows"]
                ],
            ),
            paragraph(text("prior")),
            table(
                ("data", "λ", "error of the mode"),
                [
                    (name, f"{row['prior_precision']:g}", _error(row))
                    for name, result in tried.items()
                    for row in result["priors"]
                ],
            ),
        ]
    steps = results.get("experiment steps")
    if steps:
        batches = sorted({row["batch_size"] for row in steps["rows"]})
        errors = {(row["step"], row["batch_size"]): _error(row) for row in steps["rows"]}
        rows = [
            (f"{step:.3g}", *(errors.get((step, batch), "diverges or too short") for batch in batches))
            for step in sorted({row["step"] for row in steps["rows"]}, reverse=True)
        ]
        blocks += [
            paragraph(text("step", sampler=LABELS[steps["method"]], data=steps["data"])),
            table(("step (in units of 1/L)", *(f"batch {batch:g}" for batch in batches)), rows),
        ]
    longer = results.get("experiment mushroom passes")
    if longer:
        blocks += [
            paragraph(text("passes", seeds=longer["seeds"])),
            table(
                ("sampler", "passes", "error"),
                [(LABELS[row["method"]], str(row["passes"]), _error(row)) for row in longer["rows"]],
            ),
        ]
    return blocks


def _error(row: Result) -> str:
    return f"{row['error']:.4g} ± {row['deviation']:.2g}"
