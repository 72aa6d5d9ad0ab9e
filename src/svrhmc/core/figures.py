"""What all figures share: one style, colour-blind safe colours (Okabe & Ito), and files written in one step."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from svrhmc.core.errors import missing_package, requirement
from svrhmc.core.storage import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
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


def write_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure in one step, with no date in it."""
    content = BytesIO()
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in figure.canvas.get_supported_filetypes():
        raise requirement("the path of a figure", "one that ends in .png, .svg or .pdf", repr(str(path)))
    figure.savefig(content, format=suffix, metadata={"Date": None} if suffix == "svg" else {})
    write_bytes(Path(path), content.getvalue())


def import_matplotlib() -> ModuleType:
    """Matplotlib, or an error that says how to install it."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise missing_package("Matplotlib", "plot", "a figure") from None
    return matplotlib
