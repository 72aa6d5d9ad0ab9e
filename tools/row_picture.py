"""The picture of docs/how_it_works.md: a row's way from a table to a posterior. Writes docs/images/row.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

PLACE = Path(__file__).parents[1] / "docs" / "images" / "row.svg"
WIDTH, HEIGHT = 940, 590
STYLE = """
  .page { fill: #ffffff } .box { fill: #eef4fa; stroke: #4477aa } .factor { fill: #fdf3e1; stroke: #b8860b }
  .name { fill: #16242f; font-weight: 600 } .says { fill: #16242f } .path { fill: #4a5b6a } .line { stroke: #5f7080 }
  .head { fill: #5f7080 } text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif; font-size: 14px }
  .path { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12px }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14191f } .box { fill: #1d2c3a; stroke: #7fb0dd } .factor { fill: #33291a; stroke: #d9a93a }
    .name, .says { fill: #e8eef3 } .path { fill: #a9bac8 } .line { stroke: #93a5b5 } .head { fill: #93a5b5 }
  }
"""


class Box(NamedTuple):
    """A rectangle with a name, what is true of the example's row there, and the files that do it."""

    x: int
    y: int
    width: int
    name: str
    says: tuple[str, ...]
    paths: tuple[str, ...]
    kind: str = "box"

    @property
    def height(self) -> int:
        """As many lines as it has."""
        return 34 + 19 * len(self.says) + 17 * len(self.paths)


TABLE = Box(20, 20, 200, "a row of the table", ("age 41, plan basic,", "calls 3, churn yes"), ("tables/columns.py",))
FORMULA = Box(
    270,
    20,
    250,
    "Design, from the formula",
    ("churn ~ age + plan + calls", "→ 1, 41, 0, 0, 3 and y = 1"),
    ("tables/formula.py", "tables/design.py"),
)
ROW = Box(
    570,
    20,
    350,
    "standardised row",
    ("aᵢ = (1, −0.44, −0.71, −0.69, 1.22), yᵢ = 1:", "columns have mean 0 and sd 1"),
    ("fitting/labels.py", "fitting/standardise.py"),
)
FACTORS = (
    Box(20, 185, 205, "family", ("ℓ(t, y) = log(1 + eᵗ) − yt",), ("families/bernoulli.py",), "factor"),
    Box(252, 185, 205, "rows", ("t = aᵢᵀx, summed over i",), ("rows/base.py", "rows/forms.py"), "factor"),
    Box(484, 185, 205, "prior", ("x ~ N(m, s²)",), ("priors/terms.py", "fitting/priors.py"), "factor"),
    Box(716, 185, 204, "map", ("x = x̂ + W z, mode x̂",), ("whitening/maps.py", "density/mode.py"), "factor"),
)
DENSITY = Box(
    225,
    315,
    490,
    "density = family × rows × prior, in the variables of the map",
    ("f(z) = Σᵢ ℓ(aᵢᵀx, yᵢ) − log prior(x): the row is one term of the sum",),
    ("density/generalised.py", "whitening/targets.py"),
)
CHOICE = Box(
    20,
    460,
    200,
    "a sampler is chosen",
    ("exact, where affordable",),
    ("sampling/choice.py", "exact/split.py", "samplers.py"),
)
ENGINE = Box(
    250,
    460,
    205,
    "an engine runs it",
    ("every step asks for ∇f",),
    ("engines/reference.py", "engines/compiled/engine.py", "engines/jax/engine.py"),
)
VERDICT = Box(
    485,
    460,
    205,
    "draws, and a verdict",
    ("do chains agree? any bias?",),
    ("sampling/drawing.py", "sampling/correction.py", "sampling/certificate.py"),
)
POSTERIOR = Box(
    720,
    460,
    200,
    "Posterior",
    ("in the units of the table",),
    ("results/posterior.py", "results/summary.py", "results/predict.py"),
)
BOXES = (TABLE, FORMULA, ROW, *FACTORS, DENSITY, CHOICE, ENGINE, VERDICT, POSTERIOR)


def across(one: Box, other: Box) -> str:
    """An arrow from the right side of a box to the left side of another."""
    y = (max(one.y, other.y) + min(one.y + one.height, other.y + other.height)) / 2
    return arrow((one.x + one.width, y), (other.x, y))


def down(one: Box, other: Box, shift: float = 0.0) -> str:
    """An arrow from below a box to the top of another; shift: where it ends, from the middle of the other."""
    start = one.x + one.width / 2
    end = min(max(start, other.x + 20), other.x + other.width - 20) if not shift else other.x + other.width / 2 + shift
    return arrow((start, one.y + one.height), (end, other.y))


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A line with a head."""
    (a, b), (c, d) = start, end
    return (
        f'<line class="line" x1="{a:g}" y1="{b:g}" x2="{c:g}" y2="{d:g}" stroke-width="1.6" marker-end="url(#head)"/>'
    )


def drawn(box: Box) -> str:
    """A box with its lines of text."""
    lines = [
        f'<rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="8"/>',
        f'<text class="name" x="{box.x + 12}" y="{box.y + 22}">{escape(box.name)}</text>',
    ]
    y = box.y + 22
    for text in box.says:
        y += 19
        lines.append(f'<text class="says" x="{box.x + 12}" y="{y}">{escape(text)}</text>')
    for path in box.paths:
        y += 17
        lines.append(f'<text class="path" x="{box.x + 12}" y="{y}">{escape(path)}</text>')
    return "\n".join(lines)


def picture() -> str:
    """The picture as SVG, for light and dark screens."""
    rows = FACTORS[1]
    arrows = [across(TABLE, FORMULA), across(FORMULA, ROW), down(ROW, rows, 40)]
    arrows += [down(factor, DENSITY) for factor in FACTORS]
    arrows += [down(DENSITY, ENGINE, 0.1), across(CHOICE, ENGINE), across(ENGINE, VERDICT), across(VERDICT, POSTERIOR)]
    title = "A row's way from a table to a posterior"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="head" d="M0 0 10 5 0 10z"/></marker></defs>',
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
            *arrows,
            *map(drawn, BOXES),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    PLACE.write_text(picture(), encoding="utf-8")
