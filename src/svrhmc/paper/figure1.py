"""Figure 1 in the report: W₂ on the synthetic targets, passes to a distance, and the claims about both."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svrhmc.paper.blocks import Block, heading, paragraph, picture, table, text, write_csv
from svrhmc.paper.claims import CHECK, OURS, PAPER, Claim, Claims, Results, yes
from svrhmc.paper.figures import draw_synthetic
from svrhmc.paper.settings import Result, Settings, panel_name
from svrhmc.paper.synthetic import COUNTS
from svrhmc.samplers import LABELS

_COUNTED = {"passes": "gradients evaluated", "paper_passes": "the paper's count"}


def figure1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 1; its claims are added to `claims`."""
    section = settings["figure1"]
    levels = " and the one that is first at ".join(f"W₂ = {level:g}" for level in section["thresholds"])
    blocks = [heading("Figure 1: synthetic targets"), paragraph(text("figure1", levels=levels, **section))]
    for spread in section["spreads"]:
        name = "figure1_common.svg" if spread == 0 else "figure1_own.svg"
        if draw_synthetic(results, section, spread, out / name):
            components = f"Sᵢ = (1 ± {spread:g})S: components differ in curvature too"
            if spread == 0:
                components = "one S for all components, as in the paper"
            blocks.append(picture(out / name, f"Figure 1, {components}"))
    panels = []
    for spread, dim, n in itertools.product(section["spreads"], section["dims"], section["sizes"]):
        keys = {method: panel_name(spread, dim, n, method) for method in section["samplers"]}
        if all(key in results for key in keys.values()):
            panels.append(_Panel(spread, dim, n, {method: results[key] for method, key in keys.items()}))
    _write(results, out)
    for level in section["thresholds"]:
        head = ("S", "d", "n", *(f"{LABELS[method]}: passes to {level:g}" for method in section["samplers"]), "first")
        blocks.append(table(head, (panel.cells(level) for panel in panels)))
    choices = [choice for panel in panels for choice in panel.choices]
    edge = sum(choice["edge"] for choice in choices)
    end = ("S", "d", "n", *(f"{LABELS[m]}: least W₂" for m in section["samplers"]), "SVR-HMC over SG-HMC")
    blocks += [
        paragraph(text("figure1_passes", count=len(choices), edge=edge or "none")),
        paragraph(text("figure1_least", passes=section["passes"])),
        table(end, (panel.least for panel in panels)),
    ]
    if panels:
        claims += _claims(panels, section, settings["report"])
    return blocks


@dataclass(frozen=True)
class _Panel:
    """The three samplers in one panel."""

    spread: float
    dim: int
    n: int
    results: dict[str, Result]  # by sampler

    @property
    def key(self) -> tuple[str, str, str]:
        return ("common" if self.spread == 0 else f"±{self.spread:g}", str(self.dim), str(self.n))

    @property
    def ends(self) -> dict[str, Result]:
        """Of the envelopes: the least W₂ after all passes."""
        return {method: result["envelope"][-1] for method, result in self.results.items()}

    def passes(self, method: str, level: float, count: str) -> float:
        """The fewest passes to a distance; infinite if no step gets there."""
        reached = self.results[method]["reach"][str(level)]
        return float("inf") if reached is None else float(reached[count][count])

    def first(self, level: float, count: str) -> str:
        """The sampler with the fewest."""
        return min(self.results, key=lambda method: self.passes(method, level, count))

    def cells(self, level: float) -> tuple[str, ...]:
        """A row of the table of passes."""
        cells = []
        for method, result in self.results.items():
            reached = result["reach"][str(level)]
            if reached is None:
                cells.append("not within the grid")
                continue
            best, other = reached["passes"], ""
            if method == OURS:
                other = f" ({reached['paper_passes']['paper_passes']:.3g})"
            cells.append(f"{best['passes']:.3g}{other}, η = {_step(best)}")
        winners = dict.fromkeys(LABELS[self.first(level, count)] for count in COUNTS)
        return (*self.key, *cells, ", ".join(winners))

    @property
    def least(self) -> tuple[str, ...]:
        """A row of the table of distances at the end of the passes."""
        ratio = f"{self.ends[OURS]['w2'] / self.ends['sg-hmc']['w2']:.2g}"
        return (*self.key, *(f"{end['w2']:.2g}, η = {_step(end)}" for end in self.ends.values()), ratio)

    @property
    def choices(self) -> list[Result]:
        """The steps that the tables rest on."""
        reached = [reach for result in self.results.values() for reach in result["reach"].values() if reach is not None]
        return [reach[count] for reach in reached for count in COUNTS] + list(self.ends.values())

    @property
    def scores(self) -> list[float]:
        """Of every dot: how far the plug-in is from its expectation, in its deviations."""
        runs = [run for result in self.results.values() for run in result["runs"]]
        return [(p["w2"] - p["expected"]) / p["deviation"] for run in runs for p in run["points"]]


def _step(choice: Result) -> str:
    return f"{choice['step_size']:.3g}" + (" (at the grid's edge)" if choice["edge"] else "")


def _write(results: Results, out: Path) -> None:
    columns = ("passes", "paper_passes", "w2", "expected", "deviation")
    rows: list[tuple[object, ...]] = []
    for key, result in results.items():
        if key.startswith("figure1 "):
            panel = [word.split("=")[-1] for word in key.split()[1:]]
            lines = [("envelope", point["step_size"], point) for point in result["envelope"]]
            for run in result["runs"]:
                lines += [(f"chains to {run['level']:g}", run["step_size"], point) for point in run["points"]]
            rows += [(*panel, kind, step, *(point.get(c, "") for c in columns)) for kind, step, point in lines]
    write_csv(out / "figure1.csv", ("spread", "d", "n", "sampler", "kind", "step_size", *columns), rows)


def _claims(panels: list[_Panel], section: Settings, limits: Settings) -> Iterator[Claim]:
    scores = np.array([score for panel in panels for score in panel.scores])
    worst, most = float(np.abs(scores).max()), limits["deviations_of_law"]
    yield Claim(
        CHECK,
        "Figure 1: the chains have the exact law",
        f"|z| ≤ {most:g} at every dot",
        yes(worst <= most),
        f"largest |z| {worst:.2f} of {len(scores)} dots in {len(panels)} panels, which depend on each other in part; "
        f"all of them: mean {scores.mean():+.2f}, deviation {scores.std():.2f}",
    )
    common = [panel for panel in panels if panel.spread == 0]
    levels = " and ".join(f"{level:g}" for level in section["thresholds"])
    for largest, (count, in_words) in itertools.product(limits["small"], _COUNTED.items()):
        small = [panel for panel in common if panel.n <= largest]
        lost = [
            f"d = {panel.dim}, n = {panel.n}, W₂ = {level:g} ({LABELS[panel.first(level, count)]})"
            for panel in small
            for level in section["thresholds"]
            if panel.first(level, count) != OURS
        ]
        yield Claim(
            PAPER,
            f"Figure 1: SVR-HMC is the best of the three when n is not large (read as n ≤ {largest:g}; {in_words})",
            f"fewest passes to W₂ = {levels} in every such panel",
            yes(not lost),
            "another is first in " + "; ".join(lost) if lost else f"first in all {len(small)} panels",
        )
    lost = [
        f"d = {panel.dim}, n = {panel.n}, W₂ = {level:g}"
        for panel in common
        for level in section["thresholds"]
        if panel.passes(OURS, level, "passes") >= panel.passes("hmc", level, "passes")
    ]
    yield Claim(
        PAPER,
        "Figure 1: SVR-HMC converges faster than HMC in every panel",
        f"fewer passes to W₂ = {levels}, gradients evaluated",
        yes(not lost),
        "not in " + "; ".join(lost) if lost else f"all {len(common)} panels",
    )
    large = [panel for panel in common if panel.n == max(section["sizes"])]
    spent = [
        panel.passes(OURS, level, "passes") / panel.passes("sg-hmc", level, "passes")
        for panel in large
        for level in section["thresholds"]
    ]
    ends = [panel.ends[OURS]["w2"] / panel.ends["sg-hmc"]["w2"] for panel in large]
    for what, ratios in ((f"passes to W₂ = {levels}", spent), (f"least W₂ after {section['passes']:g} passes", ends)):
        yield Claim(
            PAPER,
            f"Figure 1: for large n SVR-HMC comes close to SG-HMC (n = {max(section['sizes'])}; read as {what})",
            f"at most {limits['close']:g} times SG-HMC's",
            yes(max(ratios) <= limits["close"]),
            "SVR-HMC's over SG-HMC's: " + ", ".join(f"{ratio:.2g}" for ratio in ratios),
        )
