"""The picture of README: what a fit says of simulated customers, beside the truth. Writes docs/images/first.svg."""

from pathlib import Path

import numpy as np

import svrhmc
from svrhmc.plots import STYLE, require_matplotlib

COUNT = 3000
TRUTH = {"ten years older": -0.3, "family plan\n(instead of basic)": -0.6, "premium plan\n(instead of basic)": -1.2,
         "one more support call": 0.5}  # fmt: skip
PLANS = {"basic": "#CC3311", "family": "#B8860B", "premium": "#0072B2"}


def customers():
    rng = np.random.default_rng(0)
    age, calls = rng.uniform(18, 80, COUNT), rng.poisson(1.5, COUNT)
    plan = rng.choice(list(PLANS), COUNT)
    odds = 0.4 - 0.03 * age + 0.5 * calls + np.select([plan == "family", plan == "premium"], [-0.6, -1.2], 0.0)
    churn = rng.random(COUNT) < 1 / (1 + np.exp(-odds))
    return {"decades": age / 10, "plan": plan, "calls": calls, "churn": churn}


def main():
    posterior = svrhmc.fit("churn ~ decades + plan + calls", customers())
    pyplot = require_matplotlib()
    with pyplot.rc_context({**STYLE, "axes.grid": False}):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 3.4), width_ratios=(1, 1.15), layout="constrained")
        ends = posterior.interval(0.9)[1:]
        for place, true in enumerate(TRUTH.values()):
            y, first = -place, place == 0
            left.plot(ends[place], [y, y], linewidth=5, color="#0072B2", solid_capstyle="round",
                      label="90% interval" if first else None)  # fmt: skip
            left.plot(posterior.mean[place + 1], y, "o", color="white", markeredgecolor="#0072B2", markersize=6,
                      zorder=3, label="estimate" if first else None)  # fmt: skip
            left.plot(true, y, "|", color="#CC3311", markersize=16, markeredgewidth=2.2, zorder=4,
                      label="true value" if first else None)  # fmt: skip
        left.axvline(0, color="0.5", linewidth=0.8, linestyle=":")
        left.set_yticks([-k for k in range(len(TRUTH))], list(TRUTH))
        left.set_ylim(-3.6, 0.9)
        left.set_xlabel("effect on the log odds of leaving")
        left.set_title("What drives churn, and how sure we are", fontsize=10.5)
        left.legend(fontsize=8, loc="upper right")
        ages = np.linspace(18, 80, 60)
        for plan, colour in PLANS.items():
            new = {"decades": ages / 10, "plan": [plan] * 60, "calls": np.full(60, 2.0)}
            found = posterior.predict(new, levels=(0.05, 0.95))
            right.fill_between(ages, *found.quantiles, color=colour, alpha=0.25, linewidth=0)
            right.plot(ages, found.mean, color=colour)
            right.text(80.7, found.mean[-1], plan, color=colour, va="center", fontsize=9)
        right.set_xlim(18, 91)
        right.set_ylim(0, 1)
        right.set_xticks([20, 40, 60, 80])
        right.set_xlabel("age")
        right.set_ylabel("chance of leaving")
        right.set_title("Whom to call: customers with two support calls", fontsize=10.5)
        path = Path(__file__).parents[1] / "docs" / "images" / "first.svg"
        figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
