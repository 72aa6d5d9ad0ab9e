"""Tables as arrays: NumPy's .npy and .npz, and LIBSVM's `label index:value …` lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import ArchiveFileError, DataError, requirement
from svrhmc.core.npz import Described, mapped_npy, read_npz

_LINE = re.compile(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?(?:\s+\d+:\S+)+\s*(?:#.*)?")
_MOST_INDEX = 1 << 26
COPIES = 4  # of all numbers that a fit holds at its height: the table, its rows, these standardised, and room to work


def from_npz(path: Path, most: float) -> dict[str, npt.NDArray[Any]]:
    """Columns of X (named by `names`, where that is there), and y as the last; in at most so many bytes."""

    def check(known: dict[str, Described]) -> None:
        X, y = known["X"].shape, known["y"].shape
        require_shapes(path, X, y)
        require_room(path, X[0] * (X[1] + 1), most)

    try:
        arrays = read_npz(path, ("X", "y"), ("names",), most, check)
    except ArchiveFileError as error:
        raise DataError(f"{error} An .npz for a fit has arrays X (rows × columns) and y (and names).") from None
    return _columns(path, arrays["X"], arrays["y"], arrays.get("names"))


def from_npy(path: Path, most: float) -> dict[str, npt.NDArray[Any]]:
    """Columns of a structured array by their names, or those of a matrix, whose last one is y."""
    array = mapped_npy(path)
    fields = 1 if array.dtype.names is None else len(array.dtype.names)
    require_room(path, array.size * fields, most)
    if array.dtype.names is not None and array.ndim == 1:
        return {name: np.array(array[name]) for name in array.dtype.names}
    if array.ndim != 2 or array.shape[1] < 2:
        raise DataError(f"{path} must hold rows × columns, the last of which is y; got an array of {array.shape}.")
    return _columns(path, array[:, :-1], array[:, -1], None)


def require_room(path: Path, numbers: float, most: float) -> None:
    """Refuse so many numbers where a fit of them would take more bytes than there are."""
    if (needed := 8.0 * COPIES * numbers) > most:
        raise DataError(
            f"{path} would take about {needed / 1e9:.3g} GB of memory to fit, and {most / 1e9:.3g} GB are free: take "
            "a part of its rows or columns, or a larger machine."
        )


def require_shapes(path: Path, X: tuple[int, ...], y: tuple[int, ...]) -> None:
    """Refuse arrays that are no rows with a label each."""
    if len(X) != 2 or y != X[:1] or not X[0]:
        raise DataError(f"{path} must hold X of shape (rows, columns) and y of (rows,); got {X} and {y}.")


def _columns(path: Path, X: Any, y: Any, names: Any) -> dict[str, npt.NDArray[Any]]:
    require_shapes(path, X.shape, y.shape)
    if X.dtype.kind not in "biuf":
        raise DataError(f"{path} must hold numbers in X; got {X.dtype}.")
    known = [f"x{j}" for j in range(X.shape[1])] if names is None else [str(name) for name in np.ravel(names)]
    if len(known) != X.shape[1] or len({*known, "y"}) <= len(known):
        raise DataError(f"{path} must have {X.shape[1]} different names for the columns of X, none of them 'y'.")
    return {**{name: np.array(X[:, j]) for j, name in enumerate(known)}, "y": np.array(y)}


def is_libsvm(head: Iterable[str]) -> bool:
    """Whether the first lines are of LIBSVM's form."""
    some = [line for line in list(head)[:5] if line.strip()]
    return bool(some) and all(_LINE.fullmatch(line) for line in some)


def from_libsvm(
    name: str | Path, lines: Iterable[str], columns: int | None = None, dtype: npt.DTypeLike = np.float64
) -> tuple[Any, npt.NDArray[np.float64]]:
    """CSR rows and labels of `label index:value …` lines; indices begin at 1 and grow within a line.

    Without `columns` there are as many as the largest index. (scikit-learn's reader takes NaN and infinite labels, and
    names no line.)
    """
    from scipy.sparse import csr_matrix

    most = columns or _MOST_INDEX
    labels: list[float] = []
    indices: list[npt.NDArray[np.int32]] = []
    values: list[npt.NDArray[Any]] = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            label = float(words[0])
            pairs = [word.split(":") for word in words[1:]]
            places = np.array([int(index) for index, _ in pairs], np.int64)
            found = np.array([float(value) for _, value in pairs], dtype)
            growing = not len(places) or (places[0] > 0 and places[-1] <= most and (places[1:] > places[:-1]).all())
            if not growing or not (math.isfinite(label) and np.isfinite(found).all()):
                raise ValueError
        except (ValueError, OverflowError):
            allowed = f"a label and index:value pairs of finite numbers with increasing indices from 1 to {most}"
            raise requirement(f"{name}, line {number},", allowed, repr(line.strip()[:60]), kind=DataError) from None
        labels.append(label)
        indices.append((places - 1).astype(np.int32))
        values.append(found)
    if not labels or not (ends := np.cumsum([0, *map(len, values)]))[-1]:
        raise DataError(f"{name} has no rows with numbers in them.")
    places = np.concatenate(indices)
    X = csr_matrix((np.concatenate(values), places, ends), shape=(len(labels), columns or int(places.max()) + 1))
    return X, np.array(labels)
