"""Figure 1 in the report: W₂ on the synthetic targets, passes to a distance, and the claims about both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.paper.blocks import Block, Grid, Heading, Picture, Text, write_csv
from svrhmc.paper.claims import CHECK, OURS, PAPER, Claim, Claims, yes
from svrhmc.paper.figures import Results, draw_synthetic
from svrhmc.paper.settings import Settings, panel_name
from svrhmc.paper.synthetic import COUNTS
from svrhmc.samplers import LABELS

_HOW = {"passes": "gradients evaluated", "paper_passes": "the paper's count"}


def figure1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 1; its claims are added to `claims`."""
    one = settings["figure1"]
    blocks: list[Block] = [
        Heading("Figure 1: synthetic targets"),
        Text(
            "W₂ to the target against data passes, from the origin, with batches of "
            f"{one['batch_size']}, epochs of n steps, friction 2 and inverse mass 1/L. The paper does not give its "
            "step sizes, and the best one depends on where one looks. So the thick lines are envelopes: at each number "
            f"of passes the least W₂ over all steps from {one['largest_step']:g} down to {one['smallest_step']:g}, "
            f"{one['per_decade']} a decade, by the exact law (`theory.law`). They are dashed where the largest step is "
            "the best one: the scheme itself diverges from η = 1 on, so that no wider grid would help there. "
            "Thin lines keep one step: the one that is first at "
            + " and the one that is first at ".join(f"W₂ = {level:g}" for level in one["thresholds"])
            + " (the second only where all components have one S, which the claims are about). "
            f"Dots are {one['chains']:,} chains run with that step: their Gaussian plug-in W₂, less what it shows "
            "too much for so many draws from the exact law (two deviations up and down, which are mostly smaller than "
            "the dot). Where the gradient is noisy the law is Gaussian only nearly, and the W₂ of its moments is a "
            "lower bound."
        ),
    ]
    rows: list[_Panel] = []
    for spread in one["spreads"]:
        name = "figure1_common.svg" if spread == 0 else "figure1_own.svg"
        if draw_synthetic(results, one, spread, out / name):
            text = (
                "one S for all components, as in the paper"
                if spread == 0
                else f"Sᵢ = (1 ± {spread:g})S: components differ in curvature too"
            )
            blocks.append(Picture(out / name, f"Figure 1, {text}"))
        for dim in one["dims"]:
            for n in one["sizes"]:
                rows += _panels(results, one, spread, dim, n)
    _write(results, out)
    for level in one["thresholds"]:
        head = ("S", "d", "n", *(f"{LABELS[method]}: passes to {level:g}" for method in one["samplers"]), "first")
        blocks.append(Grid((head, *(row.cells(level) for row in rows))))
    blocks.append(
        Text(
            "Passes to a distance are exact, for the step (given) of the grid that gets there in the fewest. For "
            "SVR-HMC the brackets hold the paper's count, one gradient for an inner step instead of the two that are "
            "evaluated. “First” names the sampler with the fewest passes, by gradients evaluated and, where that is "
            "another, by the paper's count. " + _edges(rows)
        )
    )
    end = ("S", "d", "n", *(f"{LABELS[m]}: least W₂" for m in one["samplers"]), "SVR-HMC over SG-HMC")
    blocks += [
        Text(f"The least W₂ that {one['passes']:g} passes reach, with its step, at the right end of the envelopes:"),
        Grid((end, *(row.least for row in rows))),
    ]
    _judge(rows, one, settings["report"], claims)
    return blocks


@dataclass(frozen=True)
class _Panel:
    """The three samplers in one panel."""

    spread: float
    dim: int
    n: int
    found: dict[str, dict[str, Any]]

    @property
    def key(self) -> tuple[str, str, str]:
        return ("common" if self.spread == 0 else f"±{self.spread:g}", str(self.dim), str(self.n))

    def passes(self, method: str, level: float, count: str) -> float:
        """The fewest passes to a distance; infinite if no step gets there."""
        reached = self.found[method]["reach"][str(level)]
        return float("inf") if reached is None else float(reached[count][count])

    def first(self, level: float, count: str) -> str:
        """The sampler with the fewest."""
        return min(self.found, key=lambda method: self.passes(method, level, count))

    def cells(self, level: float) -> tuple[str, ...]:
        """A row of the table of passes."""
        cells = []
        for method, result in self.found.items():
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
        ends = {method: result["envelope"][-1] for method, result in self.found.items()}
        ratio = f"{ends[OURS]['w2'] / ends['sg-hmc']['w2']:.2g}"
        return (*self.key, *(f"{end['w2']:.2g}, η = {_step(end)}" for end in ends.values()), ratio)

    @property
    def scores(self) -> list[float]:
        """Of every dot: how far the plug-in is from its expectation, in its deviations."""
        runs = [run for result in self.found.values() for run in result["runs"]]
        return [(p["w2"] - p["expected"]) / p["deviation"] for run in runs for p in run["points"]]


def _step(choice: dict[str, Any]) -> str:
    return f"{choice['step_size']:.3g}" + (" (at the grid's edge)" if choice["edge"] else "")


def _edges(rows: list[_Panel]) -> str:
    choices = [
        reached[count]
        for row in rows
        for result in row.found.values()
        for reached in result["reach"].values()
        if reached is not None
        for count in COUNTS
    ] + [result["envelope"][-1] for row in rows for result in row.found.values()]
    edge = sum(choice["edge"] for choice in choices)
    return f"Steps at an edge of the grid, of the {len(choices)} that these tables rest on: {edge or 'none'}."


def _panels(results: Results, one: Settings, spread: float, dim: int, n: int) -> list[_Panel]:
    keys = {method: panel_name(spread, dim, n, method) for method in one["samplers"]}
    if any(key not in results for key in keys.values()):
        return []
    return [_Panel(spread, dim, n, {method: results[key] for method, key in keys.items()})]


def _write(results: Results, out: Path) -> None:
    columns = ("passes", "paper_passes", "w2", "expected", "deviation")
    write_csv(
        out / "figure1.csv",
        ("spread", "d", "n", "sampler", "kind", "step_size", *columns),
        (
            (*(word.split("=")[-1] for word in key.split()[1:]), kind, step_size, *(p.get(c, "") for c in columns))
            for key, result in results.items()
            if key.startswith("figure1 ")
            for kind, points in (
                ("envelope", result["envelope"]),
                *((f"chains to {run['level']:g}", run["points"]) for run in result["runs"]),
            )
            for p in points
            for step_size in [p["step_size"] if kind == "envelope" else _of_run(result, kind)]
        ),
    )


def _of_run(result: dict[str, Any], kind: str) -> float:
    return float(next(run["step_size"] for run in result["runs"] if kind == f"chains to {run['level']:g}"))


def _judge(rows: list[_Panel], one: Settings, limits: Settings, claims: Claims) -> None:
    if not rows:
        return
    scores = np.array([score for row in rows for score in row.scores])
    worst, most = float(np.abs(scores).max()), limits["deviations_of_law"]
    claims.append(
        Claim(
            CHECK,
            "Figure 1: the chains have the exact law",
            f"|z| ≤ {most:g} at every dot",
            yes(worst <= most),
            f"largest |z| {worst:.2f} of {len(scores)} dots in {len(rows)} panels, which depend on each other in part; "
            f"all of them: mean {scores.mean():+.2f}, deviation {scores.std():.2f}",
        )
    )
    common = [row for row in rows if row.spread == 0]
    levels = " and ".join(f"{level:g}" for level in one["thresholds"])
    for largest in limits["small"]:
        for count, how in _HOW.items():
            chosen = [row for row in common if row.n <= largest]
            lost = [
                f"d = {row.dim}, n = {row.n}, W₂ = {level:g} ({LABELS[row.first(level, count)]})"
                for row in chosen
                for level in one["thresholds"]
                if row.first(level, count) != OURS
            ]
            claims.append(
                Claim(
                    PAPER,
                    f"Figure 1: SVR-HMC is the best of the three when n is not large (read as n ≤ {largest:g}; {how})",
                    f"fewest passes to W₂ = {levels} in every such panel",
                    yes(not lost),
                    "another is first in " + "; ".join(lost) if lost else f"first in all {len(chosen)} panels",
                )
            )
    lost = [
        f"d = {row.dim}, n = {row.n}, W₂ = {level:g}"
        for row in common
        for level in one["thresholds"]
        if row.passes(OURS, level, "passes") >= row.passes("hmc", level, "passes")
    ]
    claims.append(
        Claim(
            PAPER,
            "Figure 1: SVR-HMC converges faster than HMC in every panel",
            f"fewer passes to W₂ = {levels}, gradients evaluated",
            yes(not lost),
            "not in " + "; ".join(lost) if lost else f"all {len(common)} panels",
        )
    )
    big = [row for row in common if row.n == max(one["sizes"])]
    spent = [
        row.passes(OURS, lv, "passes") / row.passes("sg-hmc", lv, "passes") for row in big for lv in one["thresholds"]
    ]
    ends = [row.found[OURS]["envelope"][-1]["w2"] / row.found["sg-hmc"]["envelope"][-1]["w2"] for row in big]
    for what, ratios in ((f"passes to W₂ = {levels}", spent), (f"least W₂ after {one['passes']:g} passes", ends)):
        claims.append(
            Claim(
                PAPER,
                f"Figure 1: for large n SVR-HMC comes close to SG-HMC (n = {max(one['sizes'])}; read as {what})",
                f"at most {limits['close']:g} times SG-HMC's",
                yes(max(ratios) <= limits["close"]),
                "SVR-HMC's over SG-HMC's: " + ", ".join(f"{ratio:.2g}" for ratio in ratios),
            )
        )
