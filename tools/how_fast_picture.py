"""The pictures of docs/how_fast.md, from benchmarks/results.

docs/images/how_fast.svg: seconds against rows. docs/images/times.svg: against rows and columns, beside other packages.
"""

import csv
import re
from pathlib import Path

from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DRAWS = 1000  # effective ones, of the slowest coefficient


def rows_of(name: str) -> list[list[str]]:
    """The cells of every line of the tables of a page."""
    lines = (RESULTS / name).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def seconds_by_rows() -> dict[str, list[tuple[float, float]]]:
    """Of each family the rows and the seconds of a posterior, everything but compilation included."""
    curves: dict[str, list[tuple[float, float]]] = {}
    with (RESULTS / "posterior_scaling.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["asked"] == "default" and row["n"][:1].isdigit():
                seconds = float(row["all else, s"]) + DRAWS * float(row["s a draw"])
                curves.setdefault("yes or no (20 columns)", []).append((float(row["n"].replace(",", "")), seconds))
    wanted = {"gaussian": "linear (50 columns)", "poisson": "counts (50)", "categorical": "five classes (50)"}
    for cells in rows_of("families.md"):
        if cells[0] in wanted and re.fullmatch(r"[\d,]+", cells[1]) and "," in cells[1] and len(cells) == 7:
            curves.setdefault(wanted[cells[0]], []).append((float(cells[1].replace(",", "")), float(cells[2])))
        elif cells[0] in wanted and len(cells) == 9:
            curves.setdefault(wanted[cells[0]], []).append((1e6, float(cells[2])))
    return {name: sorted(points) for name, points in curves.items()}


def others() -> list[tuple[str, float, float, str]]:
    """NUTS: seconds for as many effective draws at the rate that was measured. Point fits: scikit-learn's."""
    with (RESULTS / "posterior_nuts.csv").open(encoding="utf-8") as file:
        rate = next(float(row["NUTS: ESS/s"]) for row in csv.DictReader(file) if row["problem"] == "synth_1e5")
    fits = [
        float(cells[1])
        for cells in rows_of("families.md")
        if len(cells) == 9 and cells[0] != "family" and cells[1][:1].isdigit()
    ]
    return [("NUTS (NumPyro), yes or no, 50 columns", 1e5, DRAWS / rate, "D")] + [
        ("point estimates by scikit-learn, 50 columns" if k == 0 else "", 1e6, seconds, "x")
        for k, seconds in enumerate(fits)
    ]


NAMES = {
    "svrhmc": "svrhmc: posterior",
    "nuts": "NumPyro's NUTS: posterior",
    "statsmodels": "statsmodels: point, errors",
    "sklearn": "scikit-learn: point",
    "glum": "glum: point",
}


def warm_and_cold(row: dict[str, str]) -> tuple[float, float]:
    """Of NUTS the seconds of 1,000 effective draws at its rate; a cold call takes as much more as it took more."""
    warm, cold = float(row["warm"]), float(row["cold"])
    asked = warm * DRAWS / float(row["effective"]) if row["method"] == "nuts" else warm
    return asked, asked + cold - warm


def beside() -> None:
    """Rows to the left, columns to the right; lines warm, hollow marks cold."""
    with (RESULTS / "times.csv").open(encoding="utf-8") as file:
        times = list(csv.DictReader(file))
    with import_matplotlib().rc_context(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        for axes, moving, fixed in zip(
            panels, ("rows", "columns"), (("columns", "20"), ("rows", "100000")), strict=True
        ):
            for k, (method, label) in enumerate(NAMES.items()):
                some = [row for row in times if row["method"] == method and row[fixed[0]] == fixed[1]]
                some.sort(key=lambda row: int(row[moving]))
                x = [int(row[moving]) for row in some]
                warm, cold = zip(*map(warm_and_cold, some), strict=True)
                axes.loglog(x, warm, "o-", color=COLOURS[k], markersize=4, label=label)
                axes.loglog(x, cold, "o", color=COLOURS[k], markersize=7, markerfacecolor="none")
            axes.set_xlabel(moving)
            axes.set_title(f"{int(fixed[1]):,} {fixed[0]}", loc="left", fontsize=10)
        panels[0].set_ylabel("seconds of the processor")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
        write_figure(figure, ROOT / "docs" / "images" / "times.svg")


def main() -> None:
    beside()
    with import_matplotlib().rc_context(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        axes = figure.add_subplot()
        for k, (name, points) in enumerate(seconds_by_rows().items()):
            axes.loglog(*zip(*points, strict=True), "o-", color=COLOURS[k], markersize=4, label=name)
        for name, n, seconds, marker in others():
            axes.loglog(n, seconds, marker, color="0.25", markersize=6, label=name or None)
        axes.set_xlabel("rows")
        axes.set_ylabel(f"seconds for {DRAWS:,} effective draws")
        axes.legend(fontsize=8)
        write_figure(figure, ROOT / "docs" / "images" / "how_fast.svg")


if __name__ == "__main__":
    main()
