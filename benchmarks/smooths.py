"""Time of smooths: `fit("y ~ s(x)", table)` of 50,000 rows, warm, in seconds and in seconds of the processor.

python benchmarks/smooths.py [rows]
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


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
