"""Survival curves of a fit to times that may be censored, and Kaplan and Meier's estimate beside them.

Under a draw of the posterior a row has the survival function S(time) = P(T > time). Over the draws there are, for each
row,

    the mean and the interval of S at some times,
    the median time m with S(m) = ½,
    the restricted mean time up to h, E min(T, h) = ∫₀ʰ S(time) dtime: finite whatever the family, and not about times
    that nobody was watched for.

The integral is E min(T, h) = ∫₀ᵖ Q(u) du + h S(h), p = 1 − S(h), Q the quantile function; by the rule of Gauss and
Legendre in v, with u = p v²(3 − 2v), which takes the ends of Q off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import positive, real_array, requirement
from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure
from svrhmc.core.summaries import Summary, interval_end_names, interval_ends
from svrhmc.families.base import Loss
from svrhmc.results.base import PosteriorData, Tabular
from svrhmc.results.predict import Grouping, predictions_at
from svrhmc.tables.columns import row_labels

_POINTS = 101  # of curves, where no times are given
_NODES = 48
_BELOW_ONE = 1 - 2.0**-53
_ROUNDS = 2000  # most iterations of Turnbull's estimate
_SHOWN = 10  # curves in one figure


@dataclass(frozen=True, eq=False, repr=False)
class Survival(Tabular):
    """Survival curves of some rows, summed up over the draws.

    times: of the curves. mean, interval: of P(T > time), (rows, times) and (2, rows, times). median, restricted_mean:
    their medians and intervals over the draws, (3, rows). horizon: up to which mean times are restricted. level: of the
    intervals. index: that of the rows in a table of pandas, or their numbers from 0 on. Print it for medians and
    restricted means, take `to_frame()` for the curves, or `plot()` them.
    """

    times: Array
    mean: Array
    interval: Array
    median: Array
    restricted_mean: Array
    horizon: float
    level: float
    index: Any

    def summary(self) -> Summary:
        """Median and restricted mean times of each row."""
        low, high = interval_end_names(self.level)
        columns = {"median": self.median[0], low: self.median[1], high: self.median[2]}
        until = {"restricted mean": self.restricted_mean[0]}
        until |= {f"mean {low}": self.restricted_mean[1], f"mean {high}": self.restricted_mean[2]}
        note = f"Mean times are restricted to {self.horizon:g}; to_frame() has the curves, plot() draws them."
        rows = tuple(map(str, self.index))
        return Summary(rows, {**columns, **until}, "Times until the event.", (note,))

    def to_frame(self) -> Any:
        """The curves as a pandas data frame: row, time, survival, and the ends of the interval."""
        low, high = interval_end_names(self.level)
        rows, count = self.mean.shape
        columns = {
            "time": np.tile(self.times, rows), "survival": self.mean.ravel(),
            low: self.interval[0].ravel(), high: self.interval[1].ravel(),
        }  # fmt: skip
        frame = Summary(tuple(map(str, range(rows * count))), columns).to_frame().reset_index(drop=True)
        frame.insert(0, "row", np.repeat(np.asarray(self.index), count))
        return frame

    def plot(self, path: str | Path | None = None, names: Sequence[str] | None = None) -> Any:
        """The curves of at most ten rows with their bands; the figure, saved where a path is given.

        names: of the rows, for the legend; if None, their numbers, or the index of the table.
        """
        shown = range(min(_SHOWN, len(self.mean)))
        if names is not None and len(names) != len(self.mean):
            raise requirement("names", f"{len(self.mean)}, one for each row", len(names))
        labels = self.index if names is None else names
        with import_matplotlib().rc_context(STYLE):
            from matplotlib.figure import Figure

            figure = Figure(figsize=(7, 4.2), layout="constrained")
            axes = figure.add_subplot()
            for k in shown:
                colour = COLOURS[k % len(COLOURS)]
                axes.fill_between(self.times, *self.interval[:, k], color=colour, alpha=0.2, linewidth=0)
                axes.plot(self.times, self.mean[k], color=colour, label=str(labels[k]))
            axes.set_ylim(0.0, 1.02)
            axes.set_xlabel("time")
            axes.set_ylabel(f"share without the event, and {self.level:.0%} band")
            if len(self.mean) > 1:
                axes.legend(title="row" if names is None else None)
            if path is not None:
                write_figure(figure, path)
        return figure


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """The product-limit estimate of P(T > time), a step function: the times of events, its value from each on, and
    Greenwood's standard error of it.
    """

    times: Array
    survival: Array
    error: Array

    def at(self, time: npt.ArrayLike, before: bool = False) -> Array:
        """Its value at some times; before: just before them."""
        place = np.searchsorted(self.times, np.asarray(time, np.float64), "left" if before else "right")
        return np.concatenate([[1.0], self.survival])[place]


def kaplan_meier(time: npt.ArrayLike, event: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> KaplanMeier:
    """Π (1 − dⱼ/nⱼ) over the times of events up to a time, dⱼ events of nⱼ rows that were still watched; its variance
    is about its square times Σ dⱼ/(nⱼ(nⱼ − dⱼ)).

    >>> kaplan_meier([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 1]).survival
    array([0.75 , 0.375, 0.   ])
    """
    times = np.asarray(real_array("time", time, ("n",)), np.float64)
    seen = np.asarray(real_array("event", event, (len(times),)), np.float64)
    count = np.ones(len(times)) if weights is None else np.asarray(real_array("weights", weights, (len(times),)))
    order, place = np.unique(times, return_inverse=True)
    events, leaving = (np.bincount(place, w, len(order)) for w in (count * seen, count))
    watched = np.cumsum(leaving[::-1])[::-1]
    d, n = events[events > 0], watched[events > 0]
    survival = np.asarray(np.cumprod(1 - d / n), np.float64)
    error = survival * np.sqrt(np.cumsum(np.where(d < n, d / (n * np.where(d < n, n - d, 1.0)), 0.0)))
    return KaplanMeier(order[events > 0], survival, error)


def survivors(labels: Array, times: Array, weights: Array | None = None) -> Array:
    """P(T > time) by the estimate of Turnbull (Journal of the Royal Statistical Society B 38, 1976) from bounds (lower,
    upper, lb, ub): Kaplan and Meier's where times are right-censored alone, that with later entries where rows are
    truncated. With pⱼ the probability of the interval j between neighbouring bounds, repeated until it stays:

        pⱼ ∝ Σᵢ wᵢ(1{j in row i} pⱼ/P(row i) + 1{j out of what is seen of i} pⱼ/P(what is seen of i)).
    """
    w = np.ones(len(labels)) if weights is None else weights
    low, high, lb, ub = labels.T
    number = low == high
    below = np.where(number, np.nextafter(low, -np.inf), low)  # intervals are open below
    edges = np.unique(np.concatenate([below, high, lb, ub, [-np.inf, np.inf]]))
    begin, end = edges[:-1], edges[1:]
    within = (begin >= below[:, None]) & (end <= high[:, None])
    there = (begin >= lb[:, None]) & (end <= ub[:, None])
    used = within.any(axis=0)
    within, there, begin, end = within[:, used], there[:, used], begin[used], end[used]
    p = np.full(within.shape[1], 1.0 / within.shape[1])
    for _ in range(_ROUNDS):
        outside = w / (there @ p)
        new = p * (w @ (within / (within @ p)[:, None]) + outside @ ~there)
        new /= new.sum()
        moved, p = float(np.abs(new - p).max()), new
        if moved < 1e-9:
            break
    place = np.where(end < np.inf, end, np.inf)
    return np.asarray([p[place > time].sum() for time in np.atleast_1d(times)], np.float64)


def survival_of(
    posterior: PosteriorData,
    X: Any,
    times: npt.ArrayLike | None,
    horizon: float | None,
    level: float,
    offset: npt.ArrayLike | None,
    draws: int,
    seed: int,
    grouping: Grouping,
) -> Survival:
    """The curves of a `Posterior` at new rows."""
    model = posterior.model
    if model is None or model.loss.survival(np.zeros(model.loss.predictor_shape), np.ones(())) is None:
        family = repr(posterior.family) if posterior.family else "another target"
        why = "such as fit('Surv(time, event) ~ x', table)"
        raise requirement("the posterior", "of a family for times, to have survival curves", family, why)
    at = _times(posterior, times)
    until = positive("horizon", float(at.max()) if horizon is None else horizon)
    means, intervals, medians, restricted = [], [], [], []
    ends, middle = interval_ends(level), [0.5, *interval_ends(level)]
    for _, t, _ in predictions_at(posterior, X, offset, None, draws, seed, grouping).predictors():
        curves = np.stack([_survival(model.loss, t, time) for time in at], axis=-1)
        means.append(curves.mean(axis=0))
        intervals.append(np.quantile(curves, ends, axis=0))
        medians.append(np.quantile(model.loss.draw(t, np.full(t.shape[:2], 0.5)), middle, axis=0))
        restricted.append(np.quantile(restricted_means(model.loss, t, until), middle, axis=0))
    return Survival(
        at, np.concatenate(means), np.concatenate(intervals, axis=1), np.concatenate(medians, axis=1),
        np.concatenate(restricted, axis=1), until, level, row_labels(X, np.arange(sum(map(len, means)))),
    )  # fmt: skip


def restricted_means(loss: Loss, t: Array, horizon: float) -> Array:
    """E min(T, h) at t."""
    v, weight = np.polynomial.legendre.leggauss(_NODES)
    v, weight = (v + 1) / 2, weight / 2
    at_end = _survival(loss, t, horizon)
    total = horizon * at_end
    for node, w in zip(v**2 * (3 - 2 * v), weight * 6 * v * (1 - v), strict=True):
        u = np.minimum(node * (1 - at_end), _BELOW_ONE)
        total = total + w * (1 - at_end) * np.minimum(loss.draw(t, u), horizon)
    return np.asarray(total, np.float64)


def _survival(loss: Loss, t: Array, time: float) -> Array:
    """P(T > time), which is 1 at 0."""
    shape = t.shape[: t.ndim - len(loss.predictor_shape)]
    return np.asarray(loss.survival(t, np.full(shape, time)) if time > 0 else np.ones(shape), np.float64)


def _times(posterior: PosteriorData, times: npt.ArrayLike | None) -> Array:
    """The given times, or evenly spaced ones up to the longest fitted time."""
    if times is None:
        form = posterior.form
        if form is None:
            raise requirement("times", "given", "None", "a posterior from a file does not have the rows")
        return np.linspace(0.0, float(form.loss.original_labels(form.y).max()), _POINTS)
    at = np.atleast_1d(np.asarray(real_array("times", np.atleast_1d(np.asarray(times)), ("times",)), np.float64))
    if (at < 0).any() or (np.diff(at) < 0).any():
        raise requirement("times", "numbers of 0 or more, in order", f"{at.tolist()[:5]}")
    return at
