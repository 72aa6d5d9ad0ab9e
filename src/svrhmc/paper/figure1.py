"""Figure 1 in the report: W₂ on the synthetic targets, passes to a distance, and the claims about both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from svrhmc.paper.blocks import Block, Grid, Heading, Picture, Text, write_csv
from svrhmc.paper.claims import OURS, Claims, yes
from svrhmc.paper.figures import Results, draw_synthetic
from svrhmc.paper.settings import Settings, panel_name
from svrhmc.samplers import LABELS


def figure1(results: Results, settings: Settings, out: Path, claims: Claims) -> list[Block]:
    """The section of Figure 1; its claims are added to `claims`."""
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
            other = f" ({reached['paper_passes']:.3g})" if method == OURS else ""
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
    claims.append((claim, yes(worst <= limits["deviations_of_law"]), numbers))

    def beats(row: _PanelRow, other: str, count: int) -> bool:
        inf = (np.inf, np.inf)
        return row.passes.get(OURS, inf)[count] < row.passes.get(other, inf)[count]

    level = one["thresholds"][0]
    for other, largest in (("hmc", np.inf), ("sg-hmc", limits["small"])):
        chosen = [row for row in common if row.n <= largest]
        for count, how in ((0, "gradients evaluated"), (1, "the paper's count")):
            lost = [f"d = {row.dim}, n = {row.n}" for row in chosen if not beats(row, other, count)]
            where = "in all panels" if largest == np.inf else f"for n ≤ {largest:g}"
            claims.append(
                (
                    f"Figure 1: SVR-HMC reaches W₂ = {level:g} in fewer passes than {LABELS[other]} {where} ({how})",
                    yes(not lost),
                    "not in " + "; ".join(lost) if lost else f"all {len(chosen)} panels",
                )
            )
    big = [row for row in common if row.n == max(one["sizes"]) and {OURS, "sg-hmc"} <= row.passes.keys()]
    ratios = [row.passes[OURS][0] / row.passes["sg-hmc"][0] for row in big]
    if ratios:
        claims.append(
            (
                f"Figure 1: for large n SVR-HMC comes close to SG-HMC (n = {max(one['sizes'])})",
                yes(max(ratios) < limits["close"]),
                "SVR-HMC needs "
                + ", ".join(f"{ratio:.2g}" for ratio in ratios)
                + " times SG-HMC's passes: the first snapshot alone is one",
            )
        )
