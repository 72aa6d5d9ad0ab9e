"""The figures of the report: one style, one legend a figure, small multiples, colour-blind safe.

They are drawn nine inches wide, so that their text stays readable at the width of a page.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from svrhmc.paper.claims import OURS, Results, by_pass, finished, paired_gaps
from svrhmc.paper.settings import Result, Settings, panel_name
from svrhmc.plots import STYLE, look, require_matplotlib, save
from svrhmc.samplers import LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Grid = Any  # an array of axes, rows × columns
_WIDTH = 9.0
_SMALL = {**STYLE, "font.size": 9, "axes.titlesize": 9.5, "xtick.labelsize": 8, "ytick.labelsize": 8}
_TICKS = (1.0, 2.0, 5.0)


@contextmanager
def _figure(
    path: Path, rows: int, columns: int, height: float, **options: object
) -> Iterator[tuple[ModuleType, Figure, Grid]]:
    """pyplot, a figure and its grid of axes; written to the path in the end."""
    pyplot = require_matplotlib()
    with pyplot.rc_context(_SMALL):
        figure, grid = pyplot.subplots(
            rows, columns, figsize=(_WIDTH, height), layout="constrained", squeeze=False, sharex=True, **options
        )
        yield pyplot, figure, grid
        save(pyplot, figure, path)


def draw_synthetic(results: Results, settings: Settings, spread: float, path: Path) -> bool:
    """Figure 1 for one spread: panels by d and n; False if nothing of it is there."""
    dims, sizes, methods = settings["dims"], settings["sizes"], settings["samplers"]
    if not any(panel_name(spread, *panel) in results for panel in itertools.product(dims, sizes, methods)):
        return False
    with _figure(path, len(dims), len(sizes), 2.3 * len(dims) + 0.9, sharey="row") as (pyplot, figure, grid):
        for axes, (dim, n) in zip(grid.flat, itertools.product(dims, sizes), strict=True):
            for method in methods:
                result = results.get(panel_name(spread, dim, n, method))
                if result is not None:
                    _panel(axes, result, method)
            for level in settings["thresholds"]:
                axes.axhline(level, color="0.6", linewidth=0.7, zorder=0)
            axes.set_title(f"d = {dim}, n = {n}", loc="left")
            axes.set_xscale("log")
            axes.set_yscale("log")
        figure.supxlabel("data passes (component gradients evaluated / n)", fontsize=9.5)
        figure.supylabel("W₂ to the target", fontsize=9.5)
        _legend_of_panels(pyplot, figure, settings, spread)
    return True


def _legend_of_panels(pyplot: ModuleType, figure: Figure, settings: Settings, spread: float) -> None:
    line = pyplot.Line2D
    handles = [line([], [], color=look(m)[0], linewidth=1.8, label=LABELS[m]) for m in settings["samplers"]]
    confirmed = zip(settings["thresholds"], settings["beyond"][str(spread)], strict=False)
    levels = " and ".join(f"{level:g}" for level, _ in confirmed)
    handles += [
        line([], [], color="0.2", linewidth=1.8, label="best step at each point"),
        line([], [], color="0.2", linewidth=1.8, linestyle=(0, (2, 1)), label="the same, at the largest step"),
        line([], [], color="0.2", linewidth=0.7, label=f"one step: the first at {levels}"),
        line([], [], color="0.2", marker="o", markersize=3.5, linestyle="none",
             label=f"{settings['chains']:,} chains with it"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8.5)


def _panel(axes: Axes, result: Result, method: str) -> None:
    colour, marker = look(method)
    envelope = result["envelope"]
    edges = [point["edge"] for point in envelope]
    first = edges.index(False) if False in edges else len(edges)
    for part, style in ((envelope[: first + 1], (0, (2, 1))), (envelope[first:], "-")):
        passes, w2 = ([point[name] for point in part] for name in ("passes", "w2"))
        axes.plot(passes, w2, color=colour, linewidth=1.8, linestyle=style)
    for run in result["runs"]:
        curve, points = run["curve"], run["points"]
        axes.plot([p["passes"] for p in curve], [p["w2"] for p in curve], color=colour, linewidth=0.7)
        unbiased = [p["w2"] - p["expected"] + p["exact"] for p in points]
        axes.errorbar(
            [p["passes"] for p in points], unbiased, [2 * p["deviation"] for p in points],
            color=colour, marker=marker, markersize=3, linestyle="none", elinewidth=0.8,
        )  # fmt: skip


def draw_paths(results: Results, settings: Settings, figure_name: str, label: str, path: Path) -> bool:
    """Figures 2 and 3: the loss of the path average above, and below it what each other sampler's is above SVR-HMC's.

    A column for each data set. The differences are taken seed by seed and have a row for each sampler, so that no band
    hides another.
    """
    names = [name for name in settings["datasets"] if f"{figure_name} {name} {OURS}" in results]
    if not names:
        return False
    others = [method for method in settings["samplers"] if method != OURS]
    rows, height, ratios = 1 + len(others), 2.1 + 1.25 * len(others), [1.7] + [1.0] * len(others)
    with _figure(path, rows, len(names), height, height_ratios=ratios) as (pyplot, figure, grid):
        for column, name in zip(grid.T, names, strict=True):
            top, *below = column
            ours, reference = results[f"{figure_name} {name} {OURS}"], results.get(f"{figure_name} {name} reference")
            for method in settings["samplers"]:
                _median(top, results.get(f"{figure_name} {name} {method}"), method)
            if reference is not None:
                top.axhline(float(np.mean(reference["loss"])), color="0.3", linestyle=(0, (4, 2)), linewidth=1)
            top.set_title(name, loc="left")
            _log_where_wide(top)
            for axes, method in zip(below, others, strict=True):
                _gap(axes, results.get(f"{figure_name} {name} {method}"), ours, method)
            column[-1].set_xlim(0.5, settings["passes"] + 0.5)
            column[-1].set_xticks(range(2, settings["passes"] + 1, 2))
        grid[0, 0].set_ylabel(label.replace(" ", "\n", 1))
        for axes, method in zip(grid[1:, 0], others, strict=True):
            axes.set_ylabel(f"{LABELS[method]} −\nSVR-HMC")
        figure.supxlabel("data passes", fontsize=9.5)
        _legend_of_paths(pyplot, figure, settings)
    return True


def _legend_of_paths(pyplot: ModuleType, figure: Figure, settings: Settings) -> None:
    line = pyplot.Line2D
    handles = [
        line([], [], color=look(m)[0], marker=look(m)[1], markersize=3.5, linewidth=1.3, label=LABELS[m])
        for m in settings["samplers"]
    ]
    handles += [
        line([], [], color="0.3", linestyle=(0, (4, 2)), linewidth=1, label="posterior mean"),
        line([], [], color="0.2", linewidth=1.3, label="median of the runs"),
        pyplot.Rectangle((0, 0), 1, 1, color="0.2", alpha=0.25, linewidth=0, label="middle half of the differences"),
        line([], [], color="0.2", marker="_", markersize=8, linestyle="none", label="their mean"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8.5)


def _median(axes: Axes, result: Result | None, method: str) -> None:
    if result is not None and finished(result):
        passes, losses = by_pass(finished(result))
        colour, marker = look(method)
        axes.plot(passes, np.median(losses, axis=0), color=colour, marker=marker, markersize=3, linewidth=1.3)


def _gap(axes: Axes, result: Result | None, ours: Result, method: str) -> None:
    """Another's loss less ours, seed by seed."""
    axes.axhline(0, color="0.3", linewidth=0.8)
    paired = None if result is None else paired_gaps(result, ours)
    if paired is not None:
        passes, gaps = paired
        low, middle, high = np.quantile(gaps, (0.25, 0.5, 0.75), axis=0)
        colour, _ = look(method)
        axes.fill_between(passes, low, high, color=colour, alpha=0.25, linewidth=0)
        axes.plot(passes, middle, color=colour, linewidth=1.3)
        mean, size = gaps.mean(axis=0), 3 * max(np.abs(low).max(), np.abs(high).max())
        inside = np.abs(mean) <= size  # a mean made by one run would flatten all else; the table has it
        axes.plot(np.array(passes)[inside], mean[inside], "_", color=colour, markersize=7)


def _log_where_wide(axes: Axes) -> None:
    low, high = axes.dataLim.y0, axes.dataLim.y1
    if low > 0 and high > 3 * low:
        axes.set_yscale("log")
        axes.yaxis.get_major_locator().set_params(subs=_TICKS)  # type: ignore[call-arg]
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
