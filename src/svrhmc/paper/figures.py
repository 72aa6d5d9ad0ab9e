"""The figures of the report: one style, small multiples, colour-blind safe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.paper.settings import Settings, panel_name
from svrhmc.plots import COLOURS, MARKERS, STYLE, require_matplotlib, save
from svrhmc.samplers import LABELS

Results = dict[str, dict[str, Any]]
_LOOK = {"hmc": 0, "sgld": 3, "sg-hmc": 1, "vr-sgld": 4, "svr-hmc": 2}  # place among COLOURS and MARKERS
_SMALL = {**STYLE, "font.size": 9, "axes.titlesize": 10}


def finished(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs that did not diverge."""
    return [run for run in result["runs"] if run is not None]


def draw_synthetic(results: Results, settings: Settings, spread: float, path: Path) -> bool:
    """Figure 1 for one spread: panels by d and n; False if nothing of it is there."""
    pyplot = require_matplotlib()
    dims, sizes = settings["dims"], settings["sizes"]
    found = False
    with pyplot.rc_context(_SMALL):
        shape = (len(dims), len(sizes))
        figure, grid = pyplot.subplots(
            *shape,
            figsize=(3.1 * shape[1] + 0.4, 2.7 * shape[0] + 0.4),
            layout="constrained",
            squeeze=False,
            sharex="col",
        )
        for row, dim in enumerate(dims):
            for column, n in enumerate(sizes):
                axes = grid[row, column]
                for method in settings["samplers"]:
                    result = results.get(panel_name(spread, dim, n, method))
                    if result is not None:
                        found = True
                        _panel(axes, result, method)
                axes.set_title(f"d = {dim}, n = {n}", loc="left")
                axes.set_xscale("log")
                axes.set_yscale("log")
                axes.legend(
                    fontsize=7, handletextpad=0.3, loc="lower left", frameon=True, framealpha=0.9, edgecolor="none"
                )
        text = (
            "data passes (component gradients evaluated / n).  "
            "Dots: chains; dotted: expected of them; lines: exact; dashed: floor of dots"
        )
        figure.supxlabel(text if shape[1] > 2 else "data passes", fontsize=10)
        figure.supylabel("W₂ to the target", fontsize=10)
        if found:
            save(pyplot, figure, path)
        pyplot.close(figure)
    return found


def _panel(axes: Any, result: dict[str, Any], method: str) -> None:
    look = _LOOK[method]
    curve, points = result["curve"], result["points"]
    axes.plot([p["passes"] for p in curve], [p["w2"] for p in curve], color=COLOURS[look], linewidth=1.3)
    label = f"{LABELS[method]}, η = {result['step_size']:g}"
    spent, seen = [p["passes"] for p in points], [p["w2"] for p in points]
    axes.plot(spent, seen, MARKERS[look], color=COLOURS[look], markersize=3, linestyle="none", label=label)
    axes.plot(spent, [p["expected"] for p in points], color=COLOURS[look], linestyle=":", linewidth=0.9)
    axes.axhline(result["floor"], color="0.5", linestyle="--", linewidth=0.8, zorder=0)


def draw_paths(results: Results, settings: Settings, figure_name: str, label: str, path: Path) -> bool:
    """Figures 2 and 3: loss of the path average against passes, mean over the seeds with two standard errors."""
    pyplot = require_matplotlib()
    names = [name for name in settings["datasets"] if any(key.startswith(f"{figure_name} {name} ") for key in results)]
    if not names:
        return False
    with pyplot.rc_context(_SMALL):
        figure, grid = pyplot.subplots(
            1, len(names), figsize=(2.9 * len(names) + 0.3, 2.9), layout="constrained", squeeze=False
        )
        for axes, name in zip(grid[0], names, strict=True):
            for method in settings["samplers"]:
                result = results.get(f"{figure_name} {name} {method}")
                if result is not None:
                    _losses(axes, result, method)
            reference = results.get(f"{figure_name} {name} reference")
            if reference is not None:
                level = float(np.mean(reference["loss"]))
                axes.axhline(level, color="0.3", linestyle="--", linewidth=1, label="posterior mean")
            axes.set_title(name, loc="left")
            low, high = axes.dataLim.y0, axes.dataLim.y1
            if high > 3 * low:
                axes.set_yscale("log")
                axes.yaxis.get_major_locator().set_params(subs=(1.0, 2.0, 5.0))
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.yaxis.set_minor_formatter(lambda value, _: "")
            axes.set_xlabel("data passes")
            axes.set_xlim(0.5, settings["passes"] + 0.5)
        grid[0, 0].set_ylabel(label)
        handles, labels = grid[0, -1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8.5)
        save(pyplot, figure, path)
        pyplot.close(figure)
    return True


def _losses(axes: Any, result: dict[str, Any], method: str) -> None:
    look, runs = _LOOK[method], finished(result)
    passes = sorted(set.intersection(*(set(run["passes"]) for run in runs)))
    kept = [dict(zip(run["passes"], run["loss"], strict=True)) for run in runs]
    losses = np.array([[by_pass[spent] for spent in passes] for by_pass in kept])
    mean, error = losses.mean(axis=0), 2 * losses.std(axis=0, ddof=min(1, len(losses) - 1)) / np.sqrt(len(losses))
    axes.plot(
        passes, mean, color=COLOURS[look], marker=MARKERS[look], markersize=3.5, linewidth=1.3, label=LABELS[method]
    )
    axes.fill_between(
        passes, np.maximum(mean - error, 0.5 * mean), mean + error, color=COLOURS[look], alpha=0.15, linewidth=0
    )
