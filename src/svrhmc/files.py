"""Tables from files, read strictly."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from svrhmc.arrays import Array
from svrhmc.errors import requirement


def read_table(path: Path) -> tuple[Array, Array]:
    """X and y from an .npz with arrays of these names, or a .csv (a header or none) whose last column is y.

    A line that is not numbers, or not as many as the first, is an error with its number.
    """
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            if not {"X", "y"} <= set(arrays.files):
                raise requirement(str(path), "an .npz with arrays X and y", f"arrays {sorted(arrays.files)}")
            return arrays["X"], arrays["y"]
    if path.suffix != ".csv":
        raise requirement("a data file", "a .csv or an .npz", path)
    rows: list[list[float]] = []
    with path.open(newline="", encoding="utf-8") as file:
        for number, line in enumerate(csv.reader(file), start=1):
            if not line:
                continue
            try:
                values = [float(word) for word in line]
            except ValueError:
                if number == 1:
                    continue  # a header
                raise requirement(f"{path}, line {number},", "numbers", ",".join(line)[:60]) from None
            if rows and len(values) != len(rows[0]):
                raise requirement(f"{path}, line {number},", f"{len(rows[0])} numbers", len(values))
            rows.append(values)
    if not rows or len(rows[0]) < 2:
        raise requirement(str(path), "at least one row of two numbers", f"{len(rows)} rows")
    table = np.array(rows)
    return table[:, :-1], table[:, -1]
