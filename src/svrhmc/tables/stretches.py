"""Times cut into stretches, so that a hazard may be another in each: a table of which each row is one stretch.

A time T with the hazard λⱼ in the stretch j has the likelihood Πⱼ λⱼ^{dⱼ} exp(−λⱼeⱼ), with eⱼ the time that was watched
in the stretch and dⱼ = 1 where the event came in it: that of independent Poisson counts dⱼ of mean λⱼeⱼ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from svrhmc.core.errors import DataError, real_array, requirement
from svrhmc.tables.columns import plain_columns

_MADE = ("start", "stop", "exposure", "stretch")


def split_times(
    table: object, time: str, event: str, cuts: Sequence[float], entry: str | None = None
) -> dict[str, Any]:
    """Each row of a table cut at some times: a row for each stretch in which it was watched.

    time, event: the columns of `Surv(time, event)`, event 0 or 1. cuts: the times at which stretches meet, in order.
    entry: the column of times from which rows were watched; None: from 0 on.

    The columns are those of the table, with `event` 1 in the stretch in which it came, and start, stop, exposure = stop
    − start, and stretch, the number of it from 0 on: for `fit("event ~ C(stretch) + x", …, "poisson",
    exposure="exposure")`.

    >>> pieces = split_times({"time": [1.5, 4.0], "event": [1, 0], "x": [7, 8]}, "time", "event", cuts=[1.0, 2.0])
    >>> pieces["exposure"].tolist(), pieces["event"].tolist(), pieces["stretch"].tolist(), pieces["x"].tolist()
    ([1.0, 0.5, 1.0, 1.0, 2.0], [0.0, 1.0, 0.0, 0.0, 0.0], [0, 1, 0, 1, 2], [7, 7, 8, 8, 8])
    """
    columns: Mapping[str, Any] = plain_columns(table)
    for name in (time, event, *([] if entry is None else [entry])):
        if name not in columns:
            raise DataError(f"the table has no column {name!r}; it has {', '.join(map(repr, list(columns)[:12]))}.")
    for name in set(_MADE) & (columns.keys() - {time, event, entry}):
        raise DataError(f"column {name!r} has the name of one that is made: rename it.")
    end = np.asarray(real_array(time, np.asarray(columns[time]), ("n",)), np.float64)
    observed = np.asarray(real_array(event, np.asarray(columns[event]), (len(end),)), np.float64)
    begin = np.zeros(len(end)) if entry is None else np.asarray(real_array(entry, columns[entry], (len(end),)))
    edges = np.asarray(real_array("cuts", cuts, ("cuts",)), np.float64)
    if not np.isin(observed, (0, 1)).all():
        raise requirement(event, "0 or 1, or false or true", f"{observed[~np.isin(observed, (0, 1))][0]:g}")
    if (wrong := (begin < 0) | (begin >= end)).any():
        k = int(np.argmax(wrong))
        why = "such a row was never watched; leave it out"
        raise requirement(time, "above 0, and above the entry", f"{end[k]:g} after {begin[k]:g} at row {k}", why)
    if not len(edges) or edges[0] <= 0 or (np.diff(edges) <= 0).any():
        raise requirement("cuts", "times above 0, in order", f"{edges.tolist()[:6]}")
    low, high = np.concatenate([[0.0], edges]), np.concatenate([edges, [np.inf]])
    start, stop = np.maximum(begin[:, None], low), np.minimum(end[:, None], high)
    row, stretch = np.nonzero(start < stop)
    start, stop = start[row, stretch], stop[row, stretch]
    split = {name: np.asarray(values)[row] for name, values in columns.items()}
    last = observed[row] * (stop == end[row])
    return {**split, event: last, "start": start, "stop": stop, "exposure": stop - start, "stretch": stretch}
