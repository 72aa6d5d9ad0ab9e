"""Tables from text, read strictly: a bad line is an error with its number."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.cells import is_number
from svrhmc.core.errors import ArchiveFileError, requirement
from svrhmc.core.machine import free_memory
from svrhmc.core.npz import read_npz
from svrhmc.tables.csv import decoded_lines
from svrhmc.tables.files import require_room_for_numbers, require_shapes


def read_table(path: Path) -> tuple[Array, Array]:
    """X and y from an .npz with arrays of these names, or a .csv (a header or none) whose last column is y."""
    if path.suffix == ".npz":
        try:
            arrays = read_npz(
                path, ("X", "y"), check=lambda stored: require_shapes(path, stored["X"].shape, stored["y"].shape)
            )
        except ArchiveFileError as error:
            raise requirement(
                str(path), "an .npz with arrays X and y", "another file", str(error).rstrip(".")
            ) from error
        return cast(Array, arrays["X"]), cast(Array, arrays["y"])
    if path.suffix != ".csv":
        raise requirement("a data file", "a .csv or an .npz", path)
    require_room_for_numbers(
        path, path.stat().st_size, free_memory()
    )  # a number takes 2 bytes of text, and a row some of Python's
    table = numbers(decoded_lines(path, "utf-8"), str(path), ",", header=None)
    if table.shape[1] < 2:
        raise requirement(str(path), "at least two columns", table.shape[1])
    return table[:, :-1], table[:, -1]


def numbers(
    lines: Iterable[str],
    name: str,
    delimiter: str,
    header: bool | None = False,
    columns: int | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> Array:
    """A table of numbers, as many in each line (`columns`, where that is known).

    With `header` None a first line that is not numbers is a header.
    """
    rows: list[Array] = []
    for number, words in enumerate(_split(lines, delimiter, name), start=1):
        if not words or (number == 1 and header):
            continue
        try:
            values = np.array([float(word) for word in words], dtype)
        except ValueError:
            if number == 1 and header is None and not any(map(is_number, words)):
                continue
            raise requirement(f"{name}, line {number},", "numbers", delimiter.join(words)[:60]) from None
        if not np.isfinite(values).all():
            raise requirement(f"{name}, line {number},", "finite numbers", delimiter.join(words)[:60])
        columns = len(values) if columns is None else columns
        if len(values) != columns:
            raise requirement(f"{name}, line {number},", f"{columns} numbers", len(values))
        rows.append(values)
    if not rows:
        raise requirement(name, "at least one row of numbers", "none")
    return np.array(rows)


def _split(lines: Iterable[str], delimiter: str, name: str) -> Iterator[list[str]]:
    if delimiter == " ":
        yield from (line.split() for line in lines)
        return
    reader = csv.reader(lines, delimiter=delimiter)
    try:
        yield from reader
    except csv.Error as error:
        raise requirement(f"{name}, line {reader.line_num},", "numbers", f"other text ({error})") from None
