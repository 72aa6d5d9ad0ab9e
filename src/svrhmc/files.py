"""Tables from text, read strictly: a bad line is an error with its number."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement


def read_table(path: Path) -> tuple[Array, Array]:
    """X and y from an .npz with arrays of these names, or a .csv (a header or none) whose last column is y."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            if not {"X", "y"} <= set(arrays.files):
                raise requirement(str(path), "an .npz with arrays X and y", f"arrays {sorted(arrays.files)}")
            return arrays["X"], arrays["y"]
    if path.suffix != ".csv":
        raise requirement("a data file", "a .csv or an .npz", path)
    with path.open(newline="", encoding="utf-8-sig") as file:
        table = numbers(file, str(path), ",", header=None)
    if table.shape[1] < 2:
        raise requirement(str(path), "at least two columns", table.shape[1])
    return table[:, :-1], table[:, -1]


def numbers(lines: Iterable[str], name: str, delimiter: str, header: bool | None = False) -> Array:
    """A table of numbers, as many in each line; `header` None: a first line that is not numbers is one."""
    rows: list[Array] = []
    for number, words in enumerate(_split(lines, delimiter), start=1):
        if not words or (number == 1 and header):
            continue
        try:
            values = np.array([float(word) for word in words])
        except ValueError:
            if number == 1 and header is None and not any(map(_is_number, words)):
                continue
            raise requirement(f"{name}, line {number},", "numbers", delimiter.join(words)[:60]) from None
        if not np.isfinite(values).all():
            raise requirement(f"{name}, line {number},", "finite numbers", delimiter.join(words)[:60])
        if rows and len(values) != len(rows[0]):
            raise requirement(f"{name}, line {number},", f"{len(rows[0])} numbers", len(values))
        rows.append(values)
    if not rows:
        raise requirement(name, "at least one row of numbers", "none")
    return np.array(rows)


def libsvm(lines: Iterable[str], name: str, columns: int) -> tuple[Array, Array, Array, Array]:
    """Labels, values, columns (from 0) and row ends of `label index:value …` lines with indices from 1, increasing."""
    labels: list[float] = []
    values: list[float] = []
    indices: list[int] = []
    ends = [0]
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words:
            continue
        try:
            labels.append(float(words[0]))
            last = 0
            for word in words[1:]:
                index, value = word.split(":")
                if not last < int(index) <= columns or not math.isfinite(float(value)):
                    raise ValueError
                last = int(index)
                indices.append(last - 1)
                values.append(float(value))
        except ValueError:
            allowed = f"a label and index:value pairs with increasing indices from 1 to {columns}"
            raise requirement(f"{name}, line {number},", allowed, line.strip()[:60]) from None
        ends.append(len(values))
    if not labels:
        raise requirement(name, "at least one row", "none")
    return np.array(labels), np.array(values), np.array(indices), np.array(ends)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _split(lines: Iterable[str], delimiter: str) -> Iterable[list[str]]:
    if delimiter == " ":
        return (line.split() for line in lines)
    return csv.reader(lines, delimiter=delimiter)
