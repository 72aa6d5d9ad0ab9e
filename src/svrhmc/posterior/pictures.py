"""A forest plot: coefficients below each other, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.figures import COLOURS, STYLE, matplotlib, written

_MOST = 100  # coefficients in one figure
_INTERCEPT = "Intercept"


def forest(names: Sequence[str], mean: Array, ends: Array, level: float, path: str | Path | None) -> Any:
    """Dots for the means, thick lines for the middle half, thin ones for the interval; ends: (4, dim), of the interval
    and of the half. Intercepts are left out beside other coefficients, whose scale they do not share.
    """
    slopes = [j for j, name in enumerate(names) if name != _INTERCEPT and not name.endswith(f": {_INTERCEPT}")]
    shown = (slopes or list(range(len(names))))[:_MOST]
    place = np.arange(len(shown))[::-1]
    colour = COLOURS[0]
    with matplotlib().rc_context(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 1.2 + 0.28 * len(shown)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(0.0, color="0.4", linewidth=1, linestyle="--")
        axes.hlines(place, ends[0, shown], ends[1, shown], color=colour, linewidth=1.2)
        axes.hlines(place, ends[2, shown], ends[3, shown], color=colour, linewidth=3.5)
        axes.plot(mean[shown], place, "o", color=colour, markersize=5, markeredgecolor="white")
        axes.set_yticks(place, [names[j] for j in shown])
        axes.set_ylim(-0.8, len(shown) - 0.2)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"coefficient: mean, half and {level:.0%} of its probability")
        if len(slopes) > _MOST:
            axes.set_title(f"the first {_MOST} of {len(slopes):,}", loc="left", fontsize=11)
        if path is not None:
            written(figure, path)
    return figure
