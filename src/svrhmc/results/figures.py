"""The figures of a report, as SVG within its page: shapes with the page's colours, a title and a description for those
who cannot see it.

Colours are classes, so that one figure serves a light and a dark page; every text from outside is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import count
from textwrap import wrap

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.results.checks import Check, groups_of_equal_weight
from svrhmc.results.summary import Coefficient, number
from svrhmc.results.survival import kaplan_meier, survivors

_ids = count(1)
WIDTH, _LINE, _GAP = 470.0, 18.0, 5.0
_NAMES = 176.0  # width of the names in a forest
_DIGIT = 11.0  # width of a digit, at the most
_SIGNS, _ACROSS = 20, 50  # of a line of text beside the intervals of a forest, and across a sheet
_BINS = 10  # of a calibration curve, and of residuals
_DOTS = 300  # residuals that are shown one by one
_LONGEST = 160  # points of a chain that are shown
_BOUNDED = 500  # rows of which bounds are estimated without a model
_COUNTS = 21  # bars of a rootogram
_NARROW = 1e-12  # of the numbers: draws closer together have no histogram
CHAINS = ("c0", "c1", "c2", "c3")


class Axis:
    """A linear map from [low, high] to [begin, end] on the page, with round numbers to write along it."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        if not high > low:
            low, high = low - max(1.0, abs(low)) / 2, high + max(1.0, abs(high)) / 2
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, value: float) -> float:
        """Where a value stands."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers within it.

        >>> Axis(0.0, 1.0, 0, 100).ticks()
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = power * next(m for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [round(k * step, 12) for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


class Sheet:
    """Shapes on a sheet of so many units; `write` makes the text of it."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height, self._shapes = width, height, list[str]()
        self._title, self._description = title, description

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """From one point to another."""
        self._shapes.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 4.0) -> None:
        """Draw a disc around a point."""
        self._shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draw a rectangle from its upper left corner."""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" class="{kind}"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], kind: str, closed: bool = False) -> None:
        """Draw a line through some points."""
        if points:
            way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            self._shapes.append(f'<path d="M{way}{"Z" if closed else ""}" class="{kind}"/>')

    def text(self, x: float, y: float, words: str, anchor: str = "start", kind: str = "t", most: int = 0) -> None:
        """A text; with `most`, no longer than that many signs, and the whole of it where a pointer rests."""
        shown = words if not most or len(words) <= most else words[: most - 1] + "…"
        whole = f"<title>{escape(words)}</title>" if shown != words else ""
        self._shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{whole}{escape(shown)}</text>'
        )

    def bottom(self, axis: Axis, y: float, top: float, name: str, about: int = 5) -> None:
        """Numbers along the bottom, with lines up to `top`, and what they are."""
        for value in axis.ticks(about):
            self.line(axis(value), top, axis(value), y, "grid")
            shown, place = f"{value:g}".replace("-", "−"), axis(value)
            half = _DIGIT * len(shown) / 2  # a number near an edge is moved to stay on the sheet
            self.text(min(max(place, half), self.width - half), y + 17, shown, "middle", "n")
        self.text((axis.begin + axis.end) / 2, y + 36, name, "middle", "n", 60)

    def side(self, axis: Axis, x: float, right: float, name: str, about: int = 4) -> None:
        """Numbers along the left, with lines to `right`; what they are stands above."""
        for value in axis.ticks(about):
            self.line(x, axis(value), right, axis(value), "grid")
            self.text(x - 6, axis(value) + 4.5, f"{value:g}".replace("-", "−"), "end", "n")
        if name:
            self.text(4, axis.end - 10, name, "start", "n", 60)

    def write(self, kind: str = "figure") -> str:
        """All that was drawn, as an SVG element of a page."""
        k = next(_ids)
        return (
            f'<svg class="{kind}" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-labelledby="f{k}t f{k}d"><title id="f{k}t">{escape(self._title)}</title>'
            f'<desc id="f{k}d">{escape(self._description)}</desc>{"".join(self._shapes)}</svg>'
        )


def forest_figure(groups: Sequence[tuple[str, Sequence[Coefficient]]], axis_name: str, title: str) -> str:
    """Means with their intervals, one a row beside its whole name; groups have a heading, or none ("")."""
    rows = [row for _, group in groups for row in group]
    left, right = min(0.0, *(row.lower for row in rows)), max(0.0, *(row.upper for row in rows))
    pad = 0.04 * (right - left)
    lines = [(words, row) for heading, group in groups for words, row in _heading_and_rows(heading, group)]
    heights = [_LINE * len(words) + _GAP for words, _ in lines]
    height = 8 + sum(heights) + 44
    described = "; ".join(f"{row.name}: {number(row.mean)}, {number(row.lower)} to {number(row.upper)}" for row in rows)
    out = Sheet(WIDTH, height, title, described)
    axis, bottom, y = Axis(left - pad, right + pad, _NAMES, WIDTH - 8), height - 44, 8.0
    out.bottom(axis, bottom, 4, axis_name)
    out.line(axis(0), 4, axis(0), bottom, "zero")
    for (words, row), step in zip(lines, heights, strict=True):
        for k, line in enumerate(words):
            out.text(4, y + 15 + k * _LINE, line, "start", "h" if row is None else "t name")
        y += step
        if row is not None:
            middle = y - step / 2
            out.line(axis(row.lower), middle, axis(row.upper), middle, "bar")
            out.dot(axis(row.mean), middle, "mark")
    return out.write()


def _heading_and_rows(heading: str, rows: Sequence[Coefficient]) -> list[tuple[list[str], Coefficient | None]]:
    """A heading across the sheet, and each row with the lines of its name."""
    above: list[tuple[list[str], Coefficient | None]] = [(wrap(heading, _ACROSS), None)] if heading else []
    return above + [(wrap(row.name, _SIGNS) or [""], row) for row in rows]


def marginal_figure(name: str, draws: Array, mode: float, sd: float) -> str:
    """A histogram of the draws, with Laplace's density over it."""
    flat = np.ravel(draws)
    low, high = (float(end) for end in np.quantile(flat, [0.002, 0.998]))
    if not high - low > max(_NARROW * max(abs(low), abs(high)), 1e-300):  # no room for bins
        low, high = low - max(1.0, abs(low)) / 2, high + max(1.0, abs(high)) / 2
    counts, edges = np.histogram(flat, 30, (low, high), density=True)
    grid = np.linspace(low, high, 60)
    density = np.exp(-0.5 * ((grid - mode) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
    out = Sheet(
        220, 140, f"Posterior of {name}", f"Draws from {number(float(flat.min()))} to {number(float(flat.max()))}."
    )
    x_axis, y_axis = Axis(low, high, 12, 208), Axis(0, float(max(counts.max(), density.max())), 104, 26)
    for height, begin, end in zip(counts, edges[:-1], edges[1:], strict=True):
        out.box(x_axis(begin), y_axis(height), x_axis(end) - x_axis(begin), 104 - y_axis(height), "fill")
    out.path([(x_axis(t), y_axis(d)) for t, d in zip(grid, density, strict=True)], "other")
    out.bottom(x_axis, 104, 104, "", 3)
    return out.write("small")


def chains_figure(name: str, draws: Array) -> str:
    """Up to four chains, one line each."""
    count = draws.shape[1]
    places = np.unique(np.linspace(0, count - 1, min(count, _LONGEST)).round().astype(int))
    low, high = float(draws.min()), float(draws.max())
    out = Sheet(
        220, 140, f"Chains of {name}", f"{draws.shape[0]} chains of {count:,} draws, {number(low)} to {number(high)}."
    )
    x_axis, y_axis = Axis(0, count, 64, 214), Axis(low, high, 112, 26)
    out.side(y_axis, 64, 214, "", 3)
    for kind, chain in zip(CHAINS, draws, strict=False):
        out.path([(x_axis(k), y_axis(float(chain[k]))) for k in places], kind)
    out.text(120, 132, f"{count:,} draws of each chain", "middle", "n")
    return out.write("small")


def fit_figure(check: Check) -> tuple[str, str]:
    """A figure, and what it shows in words."""
    if check.bounds is not None:
        return _turnbull(check, check.bounds)
    if check.censored is not None:
        return _kaplan_meier(check, check.censored)
    makers = {"events": _calibration, "classes": _calibration, "counts": _rootogram, "numbers": _residuals}
    return makers[check.outcome](check)


def _legend(out: Sheet, lines: Mapping[str, str]) -> None:
    """What each kind of line is, in the upper right corner."""
    for k, (kind, words) in enumerate(lines.items()):
        y = 44 + 20 * k
        out.path([(288, y), (312, y)], kind)
        out.text(318, y + 4.5, words, "start", "n")


def _kaplan_meier(check: Check, censored: npt.NDArray[np.bool_]) -> tuple[str, str]:
    """Kaplan and Meier's curve beside the mean of the model's survival curves over the same rows."""
    curve = kaplan_meier(check.seen, ~censored, check.weights)
    last = float(check.seen.max())
    times = np.linspace(0.0, last, _LONGEST)
    new = np.sort(np.minimum(check.new, 2 * last), axis=0)
    fitted = np.average([1 - np.searchsorted(row, times, "right") / len(row) for row in new.T], 0, check.weights)
    observed = curve.at(times)
    quarters = np.linspace(0, _LONGEST - 1, 5).astype(int)
    out = Sheet(
        WIDTH, 330, "Kaplan–Meier curve and fitted survival",
        "; ".join(f"at {number(times[k])} seen {observed[k]:.2f}, fitted {fitted[k]:.2f}" for k in quarters),
    )  # fmt: skip
    x_axis, y_axis = Axis(0, last, 52, 452), Axis(0, 1, 284, 30)
    out.bottom(x_axis, 284, 30, "time")
    out.side(y_axis, 52, 452, "share without the event")
    corners = [(time, share) for time in curve.times for share in (curve.at(time, before=True), curve.at(time))]
    shown = np.unique(np.linspace(0, len(corners) - 1, min(len(corners), 2 * _LONGEST)).round().astype(int))
    out.path([(x_axis(0), y_axis(1)), *((x_axis(corners[k][0]), y_axis(float(corners[k][1]))) for k in shown)], "join")
    out.path([(x_axis(t), y_axis(s)) for t, s in zip(times, fitted, strict=True)], "other")
    _legend(out, {"join": "Kaplan–Meier estimate", "other": "model"})
    watched = times <= np.quantile(check.seen, 0.9)  # beyond, few rows tell
    off = int(np.argmax(np.where(watched, np.abs(observed - fitted), 0.0)))
    error = np.append(0.0, curve.error)[np.searchsorted(curve.times, times[off], "right")]
    return out.write(), (
        "The steps are Kaplan and Meier's estimate of the share without the event, which allows for censored times; "
        "the line is the mean of the model's survival curves of the same rows. While a tenth of the rows is "
        f"watched they are furthest apart at {number(times[off])}: {observed[off]:.2f} (standard error {error:.2f}) "
        f"and {fitted[off]:.2f}."
    )


def _turnbull(check: Check, bounds: Array) -> tuple[str, str]:
    """Turnbull's estimate beside the law of the model over the same rows."""
    chosen = np.unique(np.linspace(0, len(bounds) - 1, min(len(bounds), _BOUNDED)).round().astype(int))
    ends = bounds[chosen, :2]
    first, last = (float(np.quantile(ends[np.isfinite(ends)], share)) for share in (0.01, 0.99))
    first, span = min(0.0, first) if (ends >= 0).any() else first, last - first
    at = np.linspace(first, last + 0.02 * span, _LONGEST)
    observed = survivors(bounds[chosen], at, check.weights[chosen])
    new = np.sort(check.new[:, chosen], axis=0)
    fitted = np.average([1 - np.searchsorted(row, at, "right") / len(row) for row in new.T], 0, check.weights[chosen])
    quarters = np.linspace(0, _LONGEST - 1, 5).astype(int)
    out = Sheet(
        WIDTH, 330, "Turnbull's estimate and the fitted law",
        "; ".join(f"above {number(at[k])} seen {observed[k]:.2f}, fitted {fitted[k]:.2f}" for k in quarters),
    )  # fmt: skip
    x_axis, y_axis = Axis(first, float(at[-1]), 52, 452), Axis(0, 1, 284, 30)
    out.bottom(x_axis, 284, 30, "y")
    out.side(y_axis, 52, 452, "share above y")
    out.path([(x_axis(v), y_axis(float(s))) for v, s in zip(at, observed, strict=True)], "join")
    out.path([(x_axis(v), y_axis(float(s))) for v, s in zip(at, fitted, strict=True)], "other")
    _legend(out, {"join": "Turnbull's estimate", "other": "model"})
    off = int(np.argmax(np.abs(observed - fitted)))
    return out.write(), (
        "The steps are Turnbull's estimate of the share above y, which allows for rows that are censored, truncated or "
        "known up to an interval, as if all rows had one law; the line is the mean of the laws that the model has for "
        f"the same rows. They are furthest apart at {number(at[off])}: {observed[off]:.2f} and {fitted[off]:.2f}. "
        "Where rows are truncated the estimate holds if the bounds do not go with the columns."
    )


def _calibration(check: Check) -> tuple[str, str]:
    fitted, observed = check.fitted.reshape(-1), check.seen.reshape(-1)
    weights = np.repeat(check.weights, check.fitted.size // len(check.weights))
    points = _binned(fitted, observed, weights)
    out = Sheet(
        WIDTH, 330, "Calibration curve",
        "; ".join(f"predicted {p:.2f}, seen {s:.2f}" for p, s, _ in points),
    )  # fmt: skip
    x_axis, y_axis = Axis(0, 1, 52, 452), Axis(0, 1, 284, 30)
    out.bottom(x_axis, 284, 30, "predicted probability")
    out.side(y_axis, 52, 452, "share that was seen")
    out.line(x_axis(0), y_axis(0), x_axis(1), y_axis(1), "zero")
    for p, s, total in points:
        error = 1.645 * math.sqrt(max(s * (1 - s), 0.25 / max(total, 1)) / max(total, 1))
        out.line(x_axis(p), y_axis(max(0.0, s - error)), x_axis(p), y_axis(min(1.0, s + error)), "bar")
    out.path([(x_axis(p), y_axis(s)) for p, s, _ in points], "join")
    for p, s, _ in points:
        out.dot(x_axis(p), y_axis(s), "mark")
    brier = float(np.average((fitted - observed) ** 2, weights=weights))
    overall = float(np.average(observed, weights=weights))
    caption = "On the diagonal, events happen as often as the model says; the bars are 90% intervals of chance."
    if check.outcome == "events":
        flat = overall * (1 - overall)
        caption += f" The Brier score is {brier:.3g}; the overall share alone would have {flat:.3g}."
    return out.write(), caption


def _rootogram(check: Check) -> tuple[str, str]:
    """√ of how often each count was seen, hanging from √ of how often the model has it."""
    most = int(min(max(check.seen.max(), np.quantile(check.new, 0.999)), _COUNTS - 1))
    total = float(check.weights.sum())
    new = np.clip(check.new, 0, most).astype(int)
    expected = np.array([float(((new == k) @ check.weights).mean()) for k in range(most + 1)])
    observed = np.bincount(np.clip(check.seen, 0, most).astype(int), check.weights, most + 1)
    top, hang = np.sqrt(expected), np.sqrt(expected) - np.sqrt(observed)
    out = Sheet(
        WIDTH, 330, "Hanging rootogram",
        "; ".join(f"{k}: seen {observed[k]:.0f}, expected {expected[k]:.1f}" for k in range(most + 1)),
    )  # fmt: skip
    x_axis, y_axis = Axis(-0.5, most + 0.5, 52, 452), Axis(min(0.0, float(hang.min())), float(top.max()), 284, 30)
    out.bottom(x_axis, 284, 284, f"count ({most} and more in the last bar)" if (check.seen > most).any() else "count")
    out.side(y_axis, 52, 452, "square root of the number of rows")
    wide = 0.7 * (x_axis(1) - x_axis(0))
    for k in range(most + 1):
        high, low = max(top[k], hang[k]), min(top[k], hang[k])
        out.box(x_axis(k) - wide / 2, y_axis(high), wide, y_axis(low) - y_axis(high), "fill")
    out.line(52, y_axis(0), 452, y_axis(0), "zero")
    out.path([(x_axis(k), y_axis(float(t))) for k, t in enumerate(top)], "other")
    for k, t in enumerate(top):
        out.dot(x_axis(k), y_axis(float(t)), "second", 3)
    caption = (
        "The line is how often the model has each count; the bars hang from it and are as long as what was seen. Bars "
        f"that end near 0 fit. Zeros: {observed[0]:,.0f} seen, {expected[0]:,.1f} expected of {total:,.0f} rows."
    )
    return out.write(), caption


def _residuals(check: Check) -> tuple[str, str]:
    fitted, away = check.fitted, check.seen - check.fitted
    points = _binned(fitted, away, check.weights)
    ends = [float(end) for end in np.quantile(away, [0.005, 0.995])]
    out = Sheet(
        WIDTH, 330, "Residuals against fitted values",
        "; ".join(f"at {number(p)} on average {number(s)}" for p, s, _ in points),
    )  # fmt: skip
    low, high = (float(end) for end in np.quantile(fitted, [0.005, 0.995]))
    x_axis, y_axis = Axis(low, high, 66, 452), Axis(min(0.0, ends[0]), max(0.0, ends[1]), 284, 30)
    out.bottom(x_axis, 284, 30, "fitted value")
    out.side(y_axis, 66, 452, "seen less fitted")
    out.line(66, y_axis(0), 452, y_axis(0), "zero")
    for k in np.unique(np.linspace(0, len(fitted) - 1, min(_DOTS, len(fitted))).round().astype(int)):
        out.dot(x_axis(float(fitted[k])), y_axis(float(away[k])), "speck", 2.2)
    out.path([(x_axis(p), y_axis(s)) for p, s, _ in points], "other")
    total = float(np.average((check.seen - np.average(check.seen, weights=check.weights)) ** 2, weights=check.weights))
    left = float(np.average(away**2, weights=check.weights))
    share = f" The model explains {1 - left / total:.1%} of the variance." if total > 0 else ""
    return (
        out.write(),
        f"The line is the mean of the residuals: near 0 throughout, where the form of the model is right.{share}",
    )


def _binned(x: Array, y: Array, weights: Array) -> list[tuple[float, float, float]]:
    """Means of x and y, and the weight, in groups of about equal weight by x."""
    order, groups = groups_of_equal_weight(x, weights, _BINS)
    x, y, weights = x[order], y[order], weights[order]
    bins = []
    for k in np.unique(groups):
        chosen = groups == k
        w = weights[chosen]
        if w.sum() > 0:
            x_mean, y_mean = (float(np.average(values[chosen], weights=w)) for values in (x, y))
            bins.append((x_mean, y_mean, float(w.sum())))
    return bins


def curve_figure(name: str, argument: str, x: Array, mean: Array, interval: Array) -> str:
    """A curve with its band."""
    low, high = min(0.0, float(interval.min())), max(0.0, float(interval.max()))
    pad, height = 0.05 * (high - low), 240.0
    described = "; ".join(f"at {number(float(x[j]))}: {number(float(mean[j]))}" for j in (0, len(x) // 2, -1))
    out = Sheet(WIDTH, height, f"{name} with its band", described)
    x_axis = Axis(float(x[0]), float(x[-1]), 56, WIDTH - 10)
    y_axis = Axis(low - pad, high + pad, height - 48, 26)
    out.bottom(x_axis, height - 48, 26, argument)
    out.side(y_axis, 56, WIDTH - 10, name)
    out.line(56, y_axis(0.0), WIDTH - 10, y_axis(0.0), "zero")
    places = [x_axis(float(value)) for value in x]
    lower, upper = ([(at, y_axis(float(value))) for at, value in zip(places, side, strict=True)] for side in interval.T)
    out.path([*lower, *upper[::-1]], "band", closed=True)
    out.path([(at, y_axis(float(value))) for at, value in zip(places, mean, strict=True)], "line")
    return out.write()
