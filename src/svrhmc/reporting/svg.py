"""Figures as SVG within a page: shapes with the page's colours, a title and a description for those who cannot see it.

Colours are classes, so that one figure serves a light and a dark page; every text from outside is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import count

_ids = count(1)


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


class Drawing:
    """Shapes on a sheet of so many units; `write` makes the text of it."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height, self._shapes = width, height, list[str]()
        self._title, self._description = title, description

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """From one point to another."""
        self._shapes.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 4.0) -> None:
        """A disc."""
        self._shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>')

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A rectangle."""
        self._shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" class="{kind}"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], kind: str, closed: bool = False) -> None:
        """Through some points."""
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
            self.text(axis(value), y + 17, f"{value:g}".replace("-", "−"), "middle", "n")
        self.text((axis.begin + axis.end) / 2, y + 36, name, "middle", "n", 60)

    def side(self, axis: Axis, x: float, right: float, name: str, about: int = 4) -> None:
        """Numbers along the left, with lines to `right`; what they are stands above."""
        for value in axis.ticks(about):
            self.line(x, axis(value), right, axis(value), "grid")
            self.text(x - 6, axis(value) + 4.5, f"{value:g}".replace("-", "−"), "end", "n")
        if name:
            self.text(4, axis.end - 10, name, "start", "n", 60)

    def write(self, kind: str = "figure") -> str:
        """As HTML."""
        k = next(_ids)
        return (
            f'<svg class="{kind}" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-labelledby="f{k}t f{k}d"><title id="f{k}t">{escape(self._title)}</title>'
            f'<desc id="f{k}d">{escape(self._description)}</desc>{"".join(self._shapes)}</svg>'
        )
