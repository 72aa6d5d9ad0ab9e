"""True against stated error of every run of the other benchmarks of `sample`: docs/automatic.svg.

    python benchmarks/calibration.py [--results DIR] [--docs DIR]

Reads posterior_defaults_runs.csv, holdout_runs.csv and honesty_after.csv. Stated: the largest, over the coordinates, of
a standard error and the measured bias together; true: the largest error of a mean or an sd. Both in posterior sd.
"""

import argparse
import csv
from pathlib import Path

import numpy as np

from svrhmc.plots import COLOURS, MARKERS, STYLE, require_matplotlib
from svrhmc.plots import save as save_figure

HERE = Path(__file__).parent
KINDS = ("exact", "certified", "undecided", "refuted", "local")


def points(results):
    """(verdict, stated, true) of every run that ended."""
    found = []
    for name in ("posterior_defaults_runs.csv", "holdout_runs.csv", "honesty_after.csv"):
        with (results / name).open(newline="") as file:
            for row in csv.DictReader(file):
                errors = [row.get(key) for key in ("mean_error", "sd_error", "plain error")]
                if row.get("stated") and row["verdict"] in KINDS:
                    found.append((row["verdict"], float(row["stated"]), max(float(e) for e in errors if e)))
    return [each for each in found if each[1] > 1e-6]  # closed forms have none


def draw(found, path):
    pyplot = require_matplotlib()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(6.4, 4.6))
        for verdict, colour, marker in zip(KINDS, COLOURS, MARKERS, strict=False):
            mine = np.array([each[1:] for each in found if each[0] == verdict]).reshape(-1, 2)
            label = f"{verdict} ({len(mine)} runs)"
            axes.plot(mine[:, 0], mine[:, 1], marker, color=colour, markersize=3, alpha=0.5, label=label)
        ends = np.array([min(each[1] for each in found) / 1.5, max(each[1] for each in found) * 1.5])
        axes.plot(ends, ends, color="0.3", linewidth=1, label="true = stated")
        axes.plot(ends, 3 * ends, color="0.3", linewidth=1, linestyle="--", label="true = 3 × stated")
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel("stated: standard error and measured bias, largest coordinate (posterior sd)")
        axes.set_ylabel("true error, largest coordinate (posterior sd)")
        axes.legend(fontsize=8.5)
        save_figure(pyplot, figure, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs")
    options = parser.parse_args()
    found = points(options.results)
    draw(found, options.docs / "automatic.svg")
    ratio = np.array([true / stated for _, stated, true in found])
    print(f"{len(found)} runs; true / stated: median {np.median(ratio):.2f}, 99% below {np.quantile(ratio, 0.99):.2f}")


if __name__ == "__main__":
    main()
