"""Figures, in one style: colour-blind safe colours (Okabe & Ito), named axes, no frame but the two axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure
from svrhmc.sampler_comparison import Curve
from svrhmc.samplers import LABELS
from svrhmc.theory.complexity import Comparison, boundaries, cost, crossings

if TYPE_CHECKING:
    from types import ModuleType

    from matplotlib.figure import Figure

__all__ = ["COLOURS", "MARKERS", "STYLE", "look", "plot_comparison", "plot_complexity", "require_matplotlib", "save"]

MARKERS = ("o", "s", "^", "D", "v", "P")
_PLACES = {"hmc": 0, "sg-hmc": 1, "svr-hmc": 2, "sgld": 3, "vr-sgld": 4, "lmc": 5}  # one look a method, everywhere


def look(method: str) -> tuple[str, str]:
    """The colour and the marker of a method, named as in `svrhmc.METHODS` or as it is written.

    >>> look("SVR-HMC") == look("svr-hmc") == (COLOURS[2], MARKERS[2])
    True
    """
    place = _PLACES[method.lower()]
    return COLOURS[place], MARKERS[place]


def plot_comparison(curves: Sequence[Curve], title: str, path: str | Path) -> None:
    """W₂ against data passes: dots from the chains, lines from the exact law, the plug-in's floor dashed."""
    pyplot = require_matplotlib()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
        for curve in curves:
            colour, marker = look(curve.name)
            axes.plot(curve.passes, curve.exact, color=colour, linewidth=1.6)
            label = f"{curve.name}, step {curve.sampler.dynamics.step_size:g}"
            axes.plot(curve.passes, curve.sampled, marker, color=colour, markersize=4, linestyle="none", label=label)
        floor = curves[0].floor
        axes.axhline(floor, color="0.4", linestyle="--", linewidth=1, label="floor of the dots: exact draws")
        axes.plot([], [], color="0.2", linewidth=1.6, label="lines: from the sampler's exact moments")
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        axes.set_xlabel("data passes (component gradients / n, snapshots included)")
        axes.set_ylabel("2-Wasserstein distance to the target")
        axes.set_title(title, loc="left", fontsize=11)
        axes.legend(fontsize=8.5)
        save(pyplot, figure, path)


def plot_complexity(comparison: Comparison, path: str | Path) -> None:
    """Table 1 against n, all else fixed: a line for each method, dots where another becomes the cheapest."""
    pyplot = require_matplotlib()
    problem, accuracy = comparison.problem, comparison.accuracy
    edges = boundaries(problem, accuracy)
    high = min(1e18, 30 * max(problem.n, *edges.values()))
    grid = [high ** (k / 150) for k in range(151)]
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7, 4.4), layout="constrained")
        dashes = {"sgld": (0, (4, 2)), "sg-hmc": (4, (4, 2))}
        for row in comparison.rows:
            values = [cost(problem, accuracy, row.method, n) for n in grid]
            style, colour = dashes.get(row.method, "-"), look(row.method)[0]
            axes.plot(grid, values, color=colour, linestyle=style, linewidth=1.8, label=LABELS[row.method])
        for n in crossings(problem, accuracy, high):
            least = min(cost(problem, accuracy, row.method, n) for row in comparison.rows)
            axes.plot([n], [least], "o", color="0.1", markersize=6)
            axes.annotate(f"n = {n:.2g}", (n, least), (6, -12), textcoords="offset points", fontsize=8.5)
        for name, n in edges.items():
            axes.axvline(n, color="0.6", linewidth=0.8, linestyle=":")
            label = name[0] + "₁₂₃"[int(name[1]) - 1]
            axes.annotate(label, (n, 1), (2, -9), xycoords=("data", "axes fraction"), textcoords="offset points")
        axes.axvline(problem.n, color="0.3", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(bottom=axes.get_ylim()[0] / 4)
        axes.set_xlabel("n, all other constants fixed (solid line: this problem)")
        axes.set_ylabel("component gradients, leading terms")
        axes.set_title(f"Table 1 for W₂ ≤ {accuracy:g}, κ = {problem.condition_number:.3g}", loc="left", fontsize=11)
        axes.legend(fontsize=8.5)
        save(pyplot, figure, path)


def save(pyplot: ModuleType, figure: Figure, path: str | Path) -> None:
    """Write a figure, with no date in it, whole or not at all, and close it."""
    write_figure(figure, path)
    pyplot.close(figure)


def require_matplotlib() -> ModuleType:
    """Matplotlib, drawing to files; or an error that says how to install it."""
    import_matplotlib().use("Agg")
    from matplotlib import pyplot

    return pyplot
