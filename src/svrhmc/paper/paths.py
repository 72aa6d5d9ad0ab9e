"""Figures 2 and 3 in the report: losses of path averages, what each sampler chose, and who is faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.paper.blocks import Block, Grid, Heading, Picture, Text, write_csv
from svrhmc.paper.claims import CHECK, OURS, PAPER, Claim, Claims, joint, sign, signed, with_error
from svrhmc.paper.data import DATASETS
from svrhmc.paper.figures import Results, by_pass, draw_paths, finished
from svrhmc.paper.settings import Settings
from svrhmc.paper.tuning import at_edge
from svrhmc.samplers import LABELS

_STAIRS = (
    "A sampler with snapshots spends a whole pass on each of them and draws nothing meanwhile: its first point is at "
    "two passes, and its line is flat from then on wherever a pass went into a snapshot (the stairs)."
)
_BELOW = (
    "A line may run below the posterior mean's: that one is best on average over data from the model, not on a given "
    "test set, and a path that has not settled, or has settled to a law that is too wide, is another estimate, which "
    "may do better there."
)


def figure2(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 2; its claims are added to `claims`."""
    label = "test negative log-likelihood"
    said = (
        "The paper gives neither λ nor step sizes, masses, batches or the scaling of columns; here λ = "
        f"{settings['figure2']['prior_precision']:g}. "
    )
    return _paths(results, settings, "figure2", "Figure 2: Bayesian logistic regression", label, said, out, claims)


def figure3(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 3; its claims are added to `claims`."""
    label = "test mean squared error"
    said = "λ = 1 and σ² = 1 are the paper's; its step sizes, masses and batches are not given. "
    return _paths(results, settings, "figure3", "Figure 3: Bayesian linear regression", label, said, out, claims)


@dataclass(frozen=True)
class _Gap:
    """Another's loss less SVR-HMC's, seed by seed: mean of all passes and the last, each with its standard error."""

    mean: tuple[float, float]
    end: tuple[float, float]
    median: float

    @staticmethod
    def of(other: dict[str, Any], ours: dict[str, Any]) -> _Gap:
        pairs = [pair for pair in zip(other["runs"], ours["runs"], strict=True) if None not in pair]
        _, losses = by_pass([run for pair in pairs for run in pair])
        gaps = losses[::2] - losses[1::2]
        means = gaps.mean(axis=1)
        return _Gap(with_error(means), with_error(gaps[:, -1]), float(np.median(means)))


def _paths(
    results: Results, settings: Settings, key: str, title: str, label: str, said: str, out: Path, claims: Claims
) -> list[Block]:
    section, limits = settings[key], settings["report"]
    blocks: list[Block] = [Heading(title), Text(said + _caption(section, label))]
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
            ends = np.array([run["loss"][-1] for run in finished(result)])
            middle = float(np.median(ends))
            if abs(middle / exact - 1) > limits["near"]:
                (untold if unsure > limits["near"] * exact / 2 else far).append(
                    f"{LABELS[method]} on {name}: {middle / exact:.3g} of it"
                )
            paired = ("", "", "")
            if method != OURS:
                gap = gaps[name, method] = _Gap.of(result, results[f"{key} {name} {OURS}"])
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
    blocks.append(Grid((head, *rows)))
    blocks += _epochs(results, section, key, names, limits)
    notes = "; ".join(f"{name}: {settings.get('notes', {}).get(name, DATASETS[name].note)}" for name in names)
    blocks.append(Text(f"Data: {notes}."))
    _write(results, section, key, names, out)
    claims += _claims(section, limits, title.split(":")[0], names, gaps, far, untold)
    return blocks


def _caption(section: Settings, label: str) -> str:
    return (
        f"Above: {label} of the path average against data passes, the median of {section['seeds']} runs; the first "
        f"{section['burn_in']} iterations are dropped. Below: what each other sampler's loss is above SVR-HMC's (on "
        "the same split, seed by seed): above zero, SVR-HMC is better. A mean that single runs carry beyond three "
        f"times the band is in the table only. {_STAIRS} {_BELOW} A snapshot's slopes are remembered (one number a "
        "row), so that the paper's count of passes and ours are the same here. Settings by one rule and with grids of "
        f"one size for all samplers: the least loss after {section['passes']} passes on held-out parts of each split's "
        f"own training rows; where one split serves all seeds this is repeated {section['repeats']} times. Standard "
        "errors contain the choice of settings."
    )


def _claims(
    section: Settings, limits: Settings, figure: str, names: list[str],
    gaps: dict[tuple[str, str], _Gap], far: list[str], untold: list[str],
) -> Iterator[Claim]:  # fmt: skip
    verdict = "does not" if far else "cannot be told" if untold else "holds"
    text = "; ".join(far + [f"{line} (the reference itself is not sure to that)" for line in untold]) or "all of them"
    yield Claim(
        CHECK,
        f"{figure}: every sampler ends at the posterior mean's loss",
        f"median within {limits['near']:.0%} of it",
        verdict,
        text,
    )
    for method in section["samplers"]:
        found = {name: gaps[name, method] for name in names if (name, method) in gaps}
        if not found:
            continue
        words = {name: sign(*gap.mean, limits["errors"]) for name, gap in found.items()}
        text = "; ".join(
            f"{name}: {words[name]} ({signed(*gap.mean)}, median {gap.median:+.2g}; in the end {signed(*gap.end)})"
            for name, gap in found.items()
        )
        yield Claim(
            PAPER,
            f"{figure}: SVR-HMC is faster than {LABELS[method]} on all data sets",
            f"lower mean loss over the passes, by {limits['errors']:g} standard errors, on each",
            joint(words.values()),
            text,
        )


def _epochs(results: Results, section: Settings, key: str, names: list[str], limits: Settings) -> list[Block]:
    """What tuning the epoch too would change."""
    rows = []
    for name in names:
        for method in section["epoch_samplers"]:
            result = results.get(f"{key} {name} {method}")
            if result is None or "epochs" not in result:
                continue
            gain = _Gap.of(result["epochs"], result)
            rivals = {m: results.get(f"{key} {name} {m}") for m in section["samplers"]}
            others = [
                f"{LABELS[m]} {sign(*_Gap.of(found, result['epochs']).mean, limits['errors'])}"
                for m, found in rivals.items()
                if m not in section["epoch_samplers"] and found is not None
            ]
            choice = _chosen(result["epochs"], section, method)
            rows.append((name, LABELS[method], choice, signed(*gain.mean), signed(*gain.end), ", ".join(others)))
    if not rows:
        return []
    head = (
        "data", "sampler", "chosen most often (epoch in units of n / batch)",
        "loss above that with epoch 1, all passes", "in the end", "faster than the samplers without snapshots?",
    )  # fmt: skip
    text = (
        "**Would another epoch length help?** The samplers with snapshots once more, with their epoch tuned together "
        "with the step (so with more settings than the others had); differences seed by seed:"
    )
    return [Text(text), Grid((head, *rows))]


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
    found = results.get(f"{key} {name} reference")
    if found is None:
        return float("nan"), 0.0
    unsure = found.get("uncertainty")
    return float(np.mean(found["loss"])), float(np.mean(unsure)) if unsure else 0.0


def _chosen(result: dict[str, Any], section: Settings, method: str) -> str:
    """The setting chosen most often, of how many, and how many of all stand at an edge of the grid, and where."""
    choices = [tuple(sorted(choice.items())) for choice in result["choices"]]
    most = max(choices, key=choices.count)
    edges = [at_edge(section, method, choice) for choice in result["choices"]]
    text = _choice(dict(most)) + f" ({choices.count(most)} of {len(choices)})"
    count = sum(bool(edge) for edge in edges)
    if count:
        where = ", ".join(sorted({name for edge in edges for name in edge}))
        text += f"; {count} of {len(choices)} at the grid's edge ({where})"
    return text


def _choice(choice: dict[str, float]) -> str:
    text = f"step {choice['step']:.3g}, batch {choice['batch_size']:g}"
    text += f", inverse mass {choice['inverse_mass']:.3g}" if "inverse_mass" in choice else ""
    return text + (f", epoch {choice['epoch']:g}" if "epoch" in choice else "")
