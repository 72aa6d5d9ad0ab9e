"""Figures 2 and 3 in the report: losses of path averages, what each sampler chose, and who is faster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.paper.blocks import Block, heading, paragraph, picture, table, text, write_csv
from svrhmc.paper.claims import CHECK, OURS, PAPER, Claim, Claims, Gap, Results, finished, joint, sign, signed
from svrhmc.paper.datasets import DATASETS
from svrhmc.paper.figures import draw_paths
from svrhmc.paper.regression import at_edge
from svrhmc.paper.settings import Settings
from svrhmc.samplers import LABELS


def figure2(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 2; its claims are added to `claims`."""
    title, label = "Figure 2: Bayesian logistic regression", "test negative log-likelihood"
    return _paths(results, settings, "figure2", title, label, out, claims)


def figure3(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 3; its claims are added to `claims`."""
    title, label = "Figure 3: Bayesian linear regression", "test mean squared error"
    return _paths(results, settings, "figure3", title, label, out, claims)


def _paths(
    results: Results, settings: Settings, key: str, title: str, label: str, out: Path, claims: Claims
) -> list[Block]:
    section, limits = settings[key], settings["report"]
    blocks = [heading(title), paragraph(text(key, **section) + text("paths", label=label, **section))]
    if not draw_paths(results, section, key, label, out / f"{key}.svg"):
        return [*blocks, paragraph("No data.")]
    blocks.append(picture(out / f"{key}.svg", title))
    names = [name for name in section["datasets"] if f"{key} {name} {OURS}" in results]
    rows, gaps = [], {}
    far: list[str] = []
    untold: list[str] = []
    for name in names:
        exact, unsure = _reference(results, key, name)
        for method in section["samplers"]:
            result = results.get(f"{key} {name} {method}")
            if result is None:
                continue
            ends = np.array([run["loss"][-1] for run in finished(result)])
            middle = float(np.median(ends))
            if abs(middle / exact - 1) > limits["near"]:
                (untold if unsure > limits["near"] * exact / 2 else far).append(
                    f"{LABELS[method]} on {name}: {middle / exact:.3g} of it"
                )
            paired = ("", "", "")
            if method != OURS:
                gap = gaps[name, method] = Gap.between(result, results[f"{key} {name} {OURS}"])
                paired = (signed(*gap.mean), f"{gap.median:+.2g}", signed(*gap.end))
            shown = f"{exact:.5g}" + (f" ± {unsure:.1g}" if unsure else "")
            bad = int((ends > limits["near_divergent"] * middle).sum())
            lost = len(result["runs"]) - len(ends)
            wild = f"{bad}" + (f", {lost} diverged" if lost else "")
            loss = (f"{ends.mean():.5g}", f"{middle:.5g}", wild)
            rows.append((name, LABELS[method], _chosen(result, section, method), *loss, shown, *paired))
    head = (
        "data",
        "sampler",
        "chosen most often (step and inverse mass in units of 1/L)",
        "loss in the end: mean",
        "median",
        f"runs above {limits['near_divergent']:g} × median",
        "posterior mean's",
        "loss above SVR-HMC's, all passes: mean",
        "median",
        "in the end: mean",
    )
    blocks.append(table(head, rows))
    blocks += _epochs(results, section, key, names, limits)
    notes = "; ".join(f"{name}: {settings.get('notes', {}).get(name, DATASETS[name].note)}" for name in names)
    blocks.append(paragraph(f"Data: {notes}."))
    _write(results, section, key, names, out)
    claims += _claims(section, limits, title.split(":")[0], names, gaps, far, untold)
    return blocks


def _claims(
    section: Settings, limits: Settings, figure: str, names: list[str],
    gaps: dict[tuple[str, str], Gap], far: list[str], untold: list[str],
) -> Iterator[Claim]:  # fmt: skip
    verdict = "does not" if far else "cannot be told" if untold else "holds"
    lines = far + [f"{line} (the reference itself is not sure to that)" for line in untold]
    yield Claim(
        CHECK,
        f"{figure}: every sampler ends at the posterior mean's loss",
        f"median within {limits['near']:.0%} of it",
        verdict,
        "; ".join(lines) or "all of them",
    )
    for method in section["samplers"]:
        of_method = {name: gaps[name, method] for name in names if (name, method) in gaps}
        if not of_method:
            continue
        words = {name: sign(*gap.mean, limits["errors"]) for name, gap in of_method.items()}
        numbers = "; ".join(
            f"{name}: {words[name]} ({signed(*gap.mean)}, median {gap.median:+.2g}; in the end {signed(*gap.end)})"
            for name, gap in of_method.items()
        )
        yield Claim(
            PAPER,
            f"{figure}: SVR-HMC is faster than {LABELS[method]} on all data sets",
            f"lower mean loss over the passes, by {limits['errors']:g} standard errors, on each",
            joint(words.values()),
            numbers,
        )


def _epochs(results: Results, section: Settings, key: str, names: list[str], limits: Settings) -> list[Block]:
    """What tuning the epoch too would change."""
    rows = []
    for name in names:
        for method in section["epoch_samplers"]:
            result = results.get(f"{key} {name} {method}")
            if result is None or "epochs" not in result:
                continue
            gain = Gap.between(result["epochs"], result)
            rivals = {m: results.get(f"{key} {name} {m}") for m in section["samplers"]}
            others = [
                f"{LABELS[m]} {sign(*Gap.between(rival, result['epochs']).mean, limits['errors'])}"
                for m, rival in rivals.items()
                if m not in section["epoch_samplers"] and rival is not None
            ]
            choice = _chosen(result["epochs"], section, method)
            rows.append((name, LABELS[method], choice, signed(*gain.mean), signed(*gain.end), ", ".join(others)))
    if not rows:
        return []
    head = (
        "data", "sampler", "chosen most often (epoch in units of n / batch)",
        "loss above that with epoch 1, all passes", "in the end", "faster than the samplers without snapshots?",
    )  # fmt: skip
    return [paragraph(text("epochs")), table(head, rows)]


def _write(results: Results, section: Settings, key: str, names: list[str], out: Path) -> None:
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


def _reference(results: Results, key: str, name: str) -> tuple[float, float]:
    """The posterior mean's loss over the reported splits, and how sure that is."""
    reference = results.get(f"{key} {name} reference")
    if reference is None:
        return float("nan"), 0.0
    uncertainty = reference.get("uncertainty")
    return float(np.mean(reference["loss"])), float(np.mean(uncertainty)) if uncertainty else 0.0


def _chosen(result: dict[str, Any], section: Settings, method: str) -> str:
    """The setting chosen most often, of how many, and how many of all stand at an edge of the grid, and where."""
    choices = [tuple(sorted(choice.items())) for choice in result["choices"]]
    most = max(choices, key=choices.count)
    edges = [at_edge(section, method, choice) for choice in result["choices"]]
    words = _choice(dict(most)) + f" ({choices.count(most)} of {len(choices)})"
    count = sum(bool(edge) for edge in edges)
    if count:
        where = ", ".join(sorted({name for edge in edges for name in edge}))
        words += f"; {count} of {len(choices)} at the grid's edge ({where})"
    return words


def _choice(choice: dict[str, float]) -> str:
    words = f"step {choice['step']:.3g}, batch {choice['batch_size']:g}"
    words += f", inverse mass {choice['inverse_mass']:.3g}" if "inverse_mass" in choice else ""
    return words + (f", epoch {choice['epoch']:g}" if "epoch" in choice else "")
