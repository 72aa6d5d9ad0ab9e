"""Figures 2 and 3 in the report: losses of path averages, what each sampler chose, and who is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.paper.blocks import Block, Grid, Heading, Picture, Text, write_csv
from svrhmc.paper.claims import OURS, Claims, joint, sign, signed, with_error
from svrhmc.paper.data import DATASETS
from svrhmc.paper.figures import Results, draw_paths, finished
from svrhmc.paper.settings import Settings
from svrhmc.samplers import LABELS


def figure2(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 2; its claims are added to `claims`."""
    label = "test negative log-likelihood"
    return _paths(results, settings, "figure2", "Figure 2: Bayesian logistic regression", label, out, claims)


def figure3(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 3; its claims are added to `claims`."""
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
            final = float(np.mean([run["loss"][-1] for run in finished(result)]))
            if abs(final / exact - 1) > limits["near"]:
                (untold if unsure > limits["near"] * exact / 2 else far).append(
                    f"{LABELS[method]} on {name}: {final / exact:.3g} of it"
                )
            paired = ("", "")
            if method != OURS:
                gaps[name, method] = _paired(result, results[f"{key} {name} {OURS}"])
                paired = (signed(*gaps[name, method][0]), signed(*gaps[name, method][1]))
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
    notes = "; ".join(f"{name}: {settings.get('notes', {}).get(name, DATASETS[name].note)}" for name in names)
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
            words = {name: sign(*pair[0], limits["errors"]) for name, pair in found.items()}
            text = "; ".join(
                f"{name}: {words[name]} ({signed(*pair[0])}; in the end {signed(*pair[1])})"
                for name, pair in found.items()
            )
            claims.append(
                (f"{figure}: SVR-HMC is faster than {LABELS[method]} on all data sets", joint(words.values()), text)
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


def _choice(choice: dict[str, float]) -> str:
    text = f"step {choice['step']:g}, batch {choice['batch_size']:g}"
    return text + (f", inverse mass {choice['inverse_mass']:g}" if "inverse_mass" in choice else "")


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
    return with_error(means), with_error(ends)
