"""A forest plot: coefficients below each other, with their intervals.

One axis serves coefficients whose intervals are of similar widths. Where they are not, as with columns of different
units, each is drawn for a typical change of its column: one standard deviation of a number, and the way from the
baseline of a category, from false to true, or from one value to the other of a column that has but two. An interaction
is drawn for the product of the changes of its factors (`Design.typical_changes`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure
from svrhmc.core.summaries import interval_ends
from svrhmc.results.base import PosteriorData

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 100  # coefficients in one figure
_INTERCEPT = "Intercept"
_ALIKE = 30.0  # ratio of the widest interval to the narrowest, up to which one axis serves them in their own units


def column_changes(posterior: PosteriorData, places: Sequence[int], widths: Array) -> tuple[Array, str]:
    """The change of its column for which each coefficient is drawn, and the same in words ("" for one more of each).

    widths: of the intervals of the coefficients. Coefficients of columns without scales, as of arrays, are drawn as
    they are.
    """
    units, design = posterior.units, posterior.design
    if units is None or widths.max() <= _ALIKE * widths.min():
        return np.ones(len(places)), ""
    typical = (units.scale if units.step is None else units.step)[: units.columns]
    steps = typical if design is None else design.typical_changes(typical)
    every = np.concatenate(
        [np.tile(np.append(np.ones(int(units.intercept)), steps), units.blocks), np.ones(units.shared)]
    )
    two = bool((steps != units.scale[: units.columns]).any())
    return every[list(places)], "for one standard deviation of a number" + (
        ", or from the baseline of a category" * two
    )


def forest(posterior: PosteriorData, level: float, path: str | Path | None) -> Figure:
    """Dots for the means, thick lines for the middle half, thin ones for the interval. Intercepts, parameters that rows
    share and scales of groups are left out beside other coefficients, whose scale they do not have.
    """
    stated, levels = posterior.parameters, [*interval_ends(level), 0.25, 0.75]
    if stated is None:
        names, mean, ends = posterior.labels, posterior.mean, posterior.quantile(levels)
    else:
        names, mean, ends = stated.names, stated.moments.mean, np.quantile(stated.flat(), levels, axis=0)
    shared = 0 if posterior.model is None else posterior.model.loss.shared
    end = len(names) - shared - posterior.group_scales
    slopes = [j for j, name in enumerate(names[:end]) if name.rpartition(": ")[2] != _INTERCEPT]
    chosen = (slopes or list(range(len(names))))[:_MOST]
    steps, change = column_changes(posterior, chosen, ends[1, chosen] - ends[0, chosen])
    mean, ends = mean[chosen] * steps, ends[:, chosen] * steps
    place = np.arange(len(chosen))[::-1]
    colour = COLOURS[0]
    with import_matplotlib().rc_context(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 1.2 + 0.28 * len(chosen)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(0.0, color="0.4", linewidth=1, linestyle="--")
        axes.hlines(place, ends[0], ends[1], color=colour, linewidth=1.2)
        axes.hlines(place, ends[2], ends[3], color=colour, linewidth=3.5)
        axes.plot(mean, place, "o", color=colour, markersize=5, markeredgecolor="white")
        axes.set_yticks(place, [names[j] for j in chosen])
        axes.set_ylim(-0.8, len(chosen) - 0.2)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(
            f"coefficient: mean, half and {level:.0%} of its probability" + (f"\n({change})" if change else "")
        )
        if len(slopes) > _MOST:
            axes.set_title(f"the first {_MOST} of {len(slopes):,}", loc="left", fontsize=11)
        if path is not None:
            write_figure(figure, path)
    return figure
