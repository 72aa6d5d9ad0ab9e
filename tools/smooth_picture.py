"""The picture of docs/smooths.md: a smooth with its band beside the truth. Writes docs/images/smooth.svg."""

from pathlib import Path

import numpy as np

import svrhmc
from svrhmc.core.figures import COLOURS, STYLE, import_matplotlib, write_figure


def truth(x):
    return np.sin(x) + 0.1 * x


def main():
    rng = np.random.default_rng(0)
    x = np.sort(rng.gamma(4.0, 1.0, 200))
    y = truth(x) + 0.5 * rng.normal(size=200)
    posterior = svrhmc.fit("y ~ s(x)", {"y": y, "x": x})
    grid = np.linspace(0.0, x.max() + 2.0, 300)
    found = posterior.predict({"x": grid}, levels=(0.05, 0.95))
    with import_matplotlib().rc_context(STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(x, y, ".", color="0.6", markersize=4, label="rows")
        axes.fill_between(grid, *found.quantiles, color=COLOURS[0], alpha=0.25, linewidth=0, label="90% band")
        axes.plot(grid, found.mean, color=COLOURS[0], label="y ~ s(x)")
        axes.plot(grid, truth(grid), color=COLOURS[1], linestyle="--", linewidth=1.2, label="truth")
        axes.axvline(x.max(), color="0.5", linewidth=0.8, linestyle=":")
        axes.text(x.max() + 0.05, axes.get_ylim()[0] + 0.2, "beyond the rows:\na straight line", fontsize=8)
        axes.set_xlabel("x")
        axes.set_ylabel("y")
        axes.legend(fontsize=8, loc="upper left")
        write_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "smooth.svg")


if __name__ == "__main__":
    main()
