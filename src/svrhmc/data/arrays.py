"""Arrays cut into partitions: in memory, in .npy files that are mapped, or sparse blocks on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import digest
from svrhmc.core.errors import DataError, one_of, require_unmasked
from svrhmc.core.npz import mapped_npy, read_npz
from svrhmc.targets.reading import BLOCK_ENTRIES, Block, Reader

Source = Any  # an array, or the path of an .npy file


class ArraysReader(Reader):
    """Rows of an array, from one cut to the next."""

    def __init__(
        self, X: Source, y: Source, cuts: npt.NDArray[np.int64], names: tuple[str, ...], offset: Source, weights: Source
    ) -> None:
        self.X, self.y, self.offset, self.weights, self.cuts, self.names = X, y, offset, weights, cuts, names
        self.sizes = np.diff(cuts)
        self.dtype = np.dtype(np.float32) if mapped(X).dtype == np.float32 else np.dtype(np.float64)
        self.has_offset, self.has_weights = offset is not None, weights is not None

    def only(self, number: int) -> ArraysReader:
        """From one cut to the next."""
        cuts = self.cuts[number : number + 2]
        return ArraysReader(self.X, self.y, cuts, self.names, self.offset, self.weights)

    def where(self, number: int) -> str:
        """Rows are counted within the partition."""
        name = self.X if isinstance(self.X, str) else "X"
        return f"{name}, rows from {self.cuts[number]} on"

    def identity(self) -> list[str]:
        """Paths, sizes and times of files, or digests of arrays."""
        return [_identity(each) for each in (self.X, self.y, self.offset, self.weights) if each is not None]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block."""
        rows = max(1024, BLOCK_ENTRIES // max(1, len(self.names)))
        X, y = mapped(self.X), mapped(self.y)
        more = [None if each is None else mapped(each) for each in (self.offset, self.weights)]
        begin, end = (int(cut) for cut in self.cuts[number : number + 2])
        for low in range(begin, end, rows):
            high = min(low + rows, end)
            some = (None if each is None else np.asarray(each[low:high], np.float64) for each in more)
            yield Block(low - begin, np.asfortranarray(X[low:high], self.dtype), np.asarray(y[low:high]), *some)

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """A part of y."""
        yield np.asarray(mapped(self.y)[self.cuts[number] : self.cuts[number + 1]])


class SparseReader(Reader):
    """Blocks of CSR rows, each in a file of `scipy.sparse.save_npz`, with the labels of all in one array."""

    storage = "sparse"

    def __init__(
        self, files: list[str], y: Source, cuts: npt.NDArray[np.int64], names: tuple[str, ...], dtype: Any
    ) -> None:
        self.files, self.y, self.cuts, self.names, self.dtype = files, y, cuts, names, np.dtype(dtype)
        self.sizes = np.diff(cuts)

    def only(self, number: int) -> SparseReader:
        """Of one file."""
        return SparseReader([self.files[number]], self.y, self.cuts[number : number + 2], self.names, self.dtype)

    def where(self, number: int) -> str:
        """The file."""
        return self.files[number]

    def identity(self) -> list[str]:
        """Paths, sizes and times."""
        return [*(_identity(path) for path in self.files), _identity(self.y)]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block of a file, which is loaded wholly."""
        X, y = loaded_csr(self.files[number]).astype(self.dtype), next(self.labels(number))
        rows = max(1024, BLOCK_ENTRIES // max(1, int(X.nnz / max(1, X.shape[0])) + 1))
        for low in range(0, X.shape[0], rows):
            yield Block(low, X[low : low + rows], y[low : low + rows])

    def labels(self, number: int) -> Iterator[npt.NDArray[Any]]:
        """A part of y."""
        yield np.asarray(mapped(self.y)[self.cuts[number] : self.cuts[number + 1]])


def mapped(source: Source) -> npt.NDArray[Any]:
    """An array as it is, or the one in an .npy file, mapped into memory."""
    if not isinstance(source, str):
        found: npt.NDArray[Any] = source
        return found
    return mapped_npy(Path(source))


def loaded_csr(path: str) -> Any:
    """A CSR matrix from a file of `scipy.sparse.save_npz`."""
    from scipy.sparse import csc_matrix, csr_matrix

    kinds = {"csr": csr_matrix, "csc": csc_matrix}
    try:
        arrays = read_npz(Path(path), ("format", "shape", "data", "indices", "indptr"))
        kind = kinds[one_of("the format", str(arrays["format"].astype(str)), tuple(kinds))]
        rows = kind(tuple(arrays[name] for name in ("data", "indices", "indptr")), tuple(arrays["shape"].tolist()))
        rows.check_format(full_check=True)
        return csr_matrix(rows)
    except (ValueError, TypeError, OverflowError) as error:
        why = str(error).removesuffix(".")
        raise DataError(f"{path} is no file of scipy.sparse.save_npz with CSR rows, or is damaged ({why}).") from None


def cuts_of(rows: int, partitions: int) -> npt.NDArray[np.int64]:
    """Into parts of nearly equal length."""
    return np.linspace(0, rows, partitions + 1).round().astype(np.int64)


def source_of(value: Any) -> Source:
    """A path as text, anything else as an array."""
    require_unmasked("an array of rows", value)
    return str(value) if isinstance(value, (str, os.PathLike)) else np.asanyarray(value)


def _identity(source: Source) -> str:
    if isinstance(source, str):
        stat = os.stat(source)
        return f"{source}:{stat.st_size}:{stat.st_mtime_ns}"
    return digest(source)


def names_for(names: Sequence[str] | None, columns: int) -> tuple[str, ...]:
    """Those given, or x0, x1, …"""
    return tuple(f"x{j}" for j in range(columns)) if names is None else tuple(map(str, names))
