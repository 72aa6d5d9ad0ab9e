"""Figures 2 and 3 in the report: losses of path averages, what each sampler chose, and who is faster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.paper.blocks import Block, heading, paragraph, picture, table, text, write_csv
from svrhmc.paper.claims import CHECK, OURS, PAPER, Claim, Claims, Gap, Results, finished, joint, sign, signed
from svrhmc.paper.datasets import DATASETS
from svrhmc.paper.figures import draw_paths
from svrhmc.paper.regression import at_edge
from svrhmc.paper.settings import Result, Settings
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
    names = [name for name in section["datasets"] if f"{key} {name} {OURS}" in results]
    outcomes = [
        _Outcome.of(results, key, name, method)
        for name in names
        for method in section["samplers"]
        if f"{key} {name} {method}" in results
    ]
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
    notes = "; ".join(f"{name}: {settings.get('notes', {}).get(name, DATASETS[name].note)}" for name in names)
    blocks += [
        picture(out / f"{key}.svg", title),
        table(head, (outcome.cells(section, limits) for outcome in outcomes)),
        *_epochs(results, section, key, names, limits),
        paragraph(f"Data: {notes}."),
    ]
    _write(results, section, key, names, out)
    claims += _claims(outcomes, section, limits, title.split(":")[0])
    return blocks


@dataclass(frozen=True, eq=False)
class _Outcome:
    """One sampler on one data set: its losses in the end, beside the posterior mean's, and above SVR-HMC's."""

    name: str
    method: str
    result: Result
    reference: float
    uncertainty: float
    gap: Gap | None

    @staticmethod
    def of(results: Results, key: str, name: str, method: str) -> _Outcome:
        result, exact = results[f"{key} {name} {method}"], results.get(f"{key} {name} reference")
        reference = math.nan if exact is None else float(np.mean(exact["loss"]))
        uncertainty = 0.0 if exact is None else float(np.mean(exact.get("uncertainty", 0.0)))
        gap = None if method == OURS else Gap.between(result, results[f"{key} {name} {OURS}"])
        return _Outcome(name, method, result, reference, uncertainty, gap)

    @property
    def losses(self) -> Array:
        return np.array([run["loss"][-1] for run in finished(self.result)])

    @property
    def ratio(self) -> float:
        """Of the median to the posterior mean's."""
        return float(np.median(self.losses)) / self.reference

    def cells(self, section: Settings, limits: Settings) -> tuple[str, ...]:
        """A row of the table."""
        losses = self.losses
        median, diverged = float(np.median(losses)), len(self.result["runs"]) - len(losses)
        bad = f"{(losses > limits['near_divergent'] * median).sum()}" + (f", {diverged} diverged" if diverged else "")
        reference = f"{self.reference:.5g}" + (f" ± {self.uncertainty:.1g}" if self.uncertainty else "")
        paired = ("", "", "")
        if self.gap is not None:
            paired = (signed(*self.gap.mean), f"{self.gap.median:+.2g}", signed(*self.gap.end))
        chosen = _chosen(self.result, section, self.method)
        return (
            self.name, LABELS[self.method], chosen, f"{losses.mean():.5g}", f"{median:.5g}", bad, reference, *paired
        )  # fmt: skip


def _claims(outcomes: list[_Outcome], section: Settings, limits: Settings, figure: str) -> Iterator[Claim]:
    near = limits["near"]
    away = [outcome for outcome in outcomes if abs(outcome.ratio - 1) > near]
    unsure = [outcome for outcome in away if outcome.uncertainty > near * outcome.reference / 2]
    far = [outcome for outcome in away if outcome not in unsure]
    doubt = " (the reference itself is not sure to that)"
    lines = [
        f"{LABELS[outcome.method]} on {outcome.name}: {outcome.ratio:.3g} of it" + (doubt if outcome in unsure else "")
        for outcome in [*far, *unsure]
    ]
    yield Claim(
        CHECK,
        f"{figure}: every sampler ends at the posterior mean's loss",
        f"median within {near:.0%} of it",
        "does not" if far else "cannot be told" if unsure else "holds",
        "; ".join(lines) or "all of them",
    )
    for method in section["samplers"]:
        gaps = {outcome.name: outcome.gap for outcome in outcomes if outcome.method == method and outcome.gap}
        if not gaps:
            continue
        verdicts = {name: sign(*gap.mean, limits["errors"]) for name, gap in gaps.items()}
        yield Claim(
            PAPER,
            f"{figure}: SVR-HMC is faster than {LABELS[method]} on all data sets",
            f"lower mean loss over the passes, by {limits['errors']:g} standard errors, on each",
            joint(verdicts.values()),
            "; ".join(
                f"{name}: {verdicts[name]} ({signed(*gap.mean)}, median {gap.median:+.2g}; "
                f"in the end {signed(*gap.end)})"
                for name, gap in gaps.items()
            ),
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


def _chosen(result: Result, section: Settings, method: str) -> str:
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
