"""Figures, in one style: colour-blind safe colours (Okabe & Ito), named axes, no frame but the two axes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from svrhmc.compare import Curve
from svrhmc.errors import missing

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLE = {
    "figure.dpi": 150,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "svg.hashsalt": "svrhmc",
}


def plot_comparison(curves: Sequence[Curve], title: str, path: str | Path) -> None:
    """W₂ against data passes: dots from the chains, lines from the exact law, the plug-in's floor dashed."""
    pyplot = require_matplotlib()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
        for curve, colour, marker in zip(curves, COLOURS, MARKERS, strict=False):
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
        metadata = {"Date": None} if str(path).endswith(".svg") else {}
        figure.savefig(path, metadata=metadata)
        pyplot.close(figure)


def require_matplotlib() -> Any:
    """Matplotlib, drawing to files; or an error that says how to install it."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise missing("Matplotlib", "plot", "a figure") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
