"""The picture of docs/groups.md: what partial pooling does to batting averages of 45 at bats. Writes
docs/images/groups.svg.
"""

from pathlib import Path

import numpy as np

import svrhmc
from svrhmc.plots import STYLE, require_matplotlib

PLAYERS = [
    "Clemente", "F. Robinson", "F. Howard", "Johnstone", "Berry", "Spencer", "Kessinger", "Alvarado", "Santo",
    "Swoboda", "Unser", "Williams", "Scott", "Petrocelli", "Rodriguez", "Campaneris", "Munson", "Alvis",
]  # fmt: skip
HITS = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
LATER = np.array(
    [346, 298, 276, 222, 273, 270, 263, 210, 269, 230, 264, 256, 303, 264, 226, 285, 316, 200]
) / 1000  # fmt: skip


def main():
    table = {"player": PLAYERS, "hits": HITS, "at_bats": [45] * len(PLAYERS)}
    posterior = svrhmc.fit("hits ~ (1 | player)", table, "binomial", trials="at_bats")
    found = posterior.predict({"player": PLAYERS}, trials=1, levels=(0.05, 0.95))
    raw, place = HITS / 45, -np.arange(len(PLAYERS))
    pyplot = require_matplotlib()
    with pyplot.rc_context({**STYLE, "axes.grid": False}):
        figure, axes = pyplot.subplots(figsize=(7.5, 4.6), layout="constrained")
        axes.hlines(place, *found.quantiles, color="#0072B2", linewidth=4, alpha=0.35, label="90% interval")
        axes.plot(found.mean, place, "o", color="#0072B2", label="partial pooling")
        axes.plot(raw, place, "x", color="#CC3311", label="45 at bats alone")
        axes.plot(LATER, place, "|", color="black", markersize=13, markeredgewidth=2, label="rest of the season")
        axes.axvline(raw.mean(), color="0.5", linewidth=0.8, linestyle=":")
        axes.set_yticks(place, PLAYERS, fontsize=8)
        axes.set_xlabel("batting average")
        axes.legend(fontsize=8, loc="lower right")
        figure.savefig(Path(__file__).parents[1] / "docs" / "images" / "groups.svg", metadata={"Date": None})
    errors = [np.sqrt(np.mean((estimate - LATER) ** 2)) for estimate in (raw, found.mean, np.full(18, raw.mean()))]
    print("errors of raw, pooled and equal averages:", np.round(errors, 4))


if __name__ == "__main__":
    main()
