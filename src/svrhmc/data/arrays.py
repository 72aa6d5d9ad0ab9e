"""Arrays cut into partitions: in memory, in .npy files that are mapped, or sparse blocks on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Values, cores, digest
from svrhmc.core.errors import DataError, one_of, require_unmasked, requirement, whole_number
from svrhmc.core.npz import mapped_npy, read_npz
from svrhmc.rows.csr import CsrMatrix
from svrhmc.rows.reading import BLOCK_ENTRIES, Block, Reader
from svrhmc.rows.workers import ClientLike, InPartitions, Threads, Workers, workers_of
from svrhmc.tables.sources import file_stamps, list_files

Source = Any  # an array, or the path of an .npy file
_ROWS = 1 << 20  # of a partition


def from_arrays(
    X: Source,
    y: Source,
    client: ClientLike = None,
    *,
    partitions: int | None = None,
    names: Sequence[str] | None = None,
    offset: Source = None,
    weights: Source = None,
) -> InPartitions:
    """Rows of an array, of a memory map, or of an .npy file, in partitions.

    X, y, offset, weights: arrays, or paths of .npy files, which are mapped and not loaded. Processes and clusters take
        paths only.
    partitions: into how many parts the rows are cut; None for parts of about a million rows.
    client: as for `from_parquet`.
    """
    workers = workers_of(client)
    sources = [None if source is None else source_of(source) for source in (X, y, offset, weights)]
    _require_paths(workers, sources)
    arrays = [None if source is None else map_array(source) for source in sources]
    rows, labels = arrays[0], arrays[1]
    assert rows is not None
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not len(rows):
        raise requirement("X", "an array of numbers, (rows, columns)", f"{rows.dtype} of shape {rows.shape}")
    for name, array in zip(("y", "offset", "weights"), (labels, *arrays[2:]), strict=True):
        if array is not None and array.shape != (len(rows),):
            raise requirement(name, f"an array of {len(rows)} numbers", f"one of shape {array.shape}")
    column_names = names_or_default(names, rows.shape[1])
    if len(column_names) != rows.shape[1]:
        raise requirement("names", f"{rows.shape[1]} names", len(column_names))
    count = -(-len(rows) // _ROWS) if partitions is None else whole_number("partitions", partitions, 1, len(rows))
    count = max(count, cores()) if partitions is None and len(rows) > _ROWS else count
    return InPartitions(
        ArraysReader(sources[0], sources[1], cuts_of(len(rows), count), column_names, *sources[2:]), workers
    )


def from_sparse(
    path: str | os.PathLike[str] | list[str | os.PathLike[str]], y: Source, client: ClientLike = None
) -> InPartitions:
    """Sparse rows in files of `scipy.sparse.save_npz`: a partition each.

    path: a folder, a pattern, or a list of files, in the order of their names.
    y: the labels of all rows in that order: an array, or the path of an .npy file.
    client: as for `from_parquet`.
    """
    workers, files, labels = workers_of(client), list_files(path, (".npz",)), source_of(y)
    _require_paths(workers, [labels])
    shapes, kinds = zip(*((block.shape, block.dtype) for block in map(load_csr, files)), strict=True)
    for file, shape in zip(files, shapes, strict=True):
        if shape[1] != shapes[0][1]:
            raise DataError(f"{file} has {shape[1]} columns, and {files[0]} has {shapes[0][1]}.")
    sizes = np.array([shape[0] for shape in shapes], np.int64)
    if map_array(labels).shape != (int(sizes.sum()),):
        raise requirement("y", f"an array of {int(sizes.sum())} labels", f"one of shape {map_array(labels).shape}")
    kind = np.float32 if all(kind_of_block == np.float32 for kind_of_block in kinds) else np.float64
    cuts = np.concatenate([[0], np.cumsum(sizes)])
    return InPartitions(SparseReader(files, labels, cuts, names_or_default(None, shapes[0][1]), kind), workers)


def _require_paths(workers: Workers, sources: list[Source]) -> None:
    """Arrays stay in this process: others read files."""
    if not isinstance(workers, Threads) and any(not (source is None or isinstance(source, str)) for source in sources):
        why = "save it by numpy.save, where all workers can read it, and give its path"
        raise requirement("X and y", "paths of .npy files where others than threads read them", "an array", why)


class ArraysReader(Reader):
    """Rows of an array, from one cut to the next."""

    def __init__(
        self, X: Source, y: Source, cuts: npt.NDArray[np.int64], names: tuple[str, ...], offset: Source, weights: Source
    ) -> None:
        self.X, self.y, self.offset, self.weights, self.cuts, self.names = X, y, offset, weights, cuts, names
        self.sizes = np.diff(cuts)
        self.dtype = np.dtype(np.float32) if map_array(X).dtype == np.float32 else np.dtype(np.float64)
        self.has_offset, self.has_weights = offset is not None, weights is not None

    def single_partition(self, number: int) -> ArraysReader:
        """From one cut to the next."""
        cuts = self.cuts[number : number + 2]
        return ArraysReader(self.X, self.y, cuts, self.names, self.offset, self.weights)

    def partition_name(self, number: int) -> str:
        """Rows are counted within the partition."""
        name = self.X if isinstance(self.X, str) else "X"
        return f"{name}, rows from {self.cuts[number]} on"

    def identity(self) -> list[str]:
        """Paths, sizes and times of files, or digests of arrays."""
        return [_identity(source) for source in (self.X, self.y, self.offset, self.weights) if source is not None]

    def read(self, number: int) -> Iterator[Block]:
        rows = slice(*self.cuts[number : number + 2])
        sources = (self.X, self.y, self.offset, self.weights)
        return blocks_of(self.dtype, *(None if source is None else map_array(source)[rows] for source in sources))

    def labels(self, number: int) -> Iterator[Values]:
        yield np.asarray(map_array(self.y)[self.cuts[number] : self.cuts[number + 1]])


class SparseReader(Reader):
    """Blocks of CSR rows, each in a file of `scipy.sparse.save_npz`, with the labels of all in one array."""

    storage = "sparse"

    def __init__(
        self,
        files: list[str],
        y: Source,
        cuts: npt.NDArray[np.int64],
        names: tuple[str, ...],
        dtype: type[np.floating] | np.dtype[np.floating],
    ) -> None:
        self.files, self.y, self.cuts, self.names, self.dtype = files, y, cuts, names, np.dtype(dtype)
        self.sizes = np.diff(cuts)

    def single_partition(self, number: int) -> SparseReader:
        return SparseReader([self.files[number]], self.y, self.cuts[number : number + 2], self.names, self.dtype)

    def partition_name(self, number: int) -> str:
        return self.files[number]

    def identity(self) -> list[str]:
        """Paths, sizes and times."""
        return [*file_stamps(self.files), _identity(self.y)]

    def read(self, number: int) -> Iterator[Block]:
        """Block by block of a file, which is loaded wholly."""
        X, y = load_csr(self.files[number]).astype(self.dtype), next(self.labels(number))
        return blocks_of(self.dtype, X, y)

    def labels(self, number: int) -> Iterator[Values]:
        yield np.asarray(map_array(self.y)[self.cuts[number] : self.cuts[number + 1]])


def blocks_of(
    dtype: np.dtype[np.floating], X: Source, y: Source, offset: Source = None, weights: Source = None
) -> Iterator[Block]:
    """The rows of a partition, dense or CSR, some at a time."""
    sparse = not isinstance(X, np.ndarray)
    entries = int(X.nnz / max(1, X.shape[0])) + 1 if sparse else X.shape[1]
    rows = max(1024, BLOCK_ENTRIES // max(1, entries))
    for low in range(0, X.shape[0], rows):
        some = slice(low, low + rows)
        more = (None if values is None else np.asarray(values[some], np.float64) for values in (offset, weights))
        block = X[some] if sparse else np.asfortranarray(X[some], dtype)
        yield Block(low, block, np.asarray(y[some]), *more)


def map_array(source: Source) -> Values:
    """An array as it is, or the one in an .npy file, mapped into memory."""
    if not isinstance(source, str):
        array: Values = source
        return array
    return mapped_npy(Path(source))


def load_csr(path: str) -> CsrMatrix:
    """A CSR matrix from a file of `scipy.sparse.save_npz`."""
    from scipy.sparse import csc_matrix, csr_matrix

    kinds = {"csr": csr_matrix, "csc": csc_matrix}
    try:
        arrays = read_npz(Path(path), ("format", "shape", "data", "indices", "indptr"))
        kind = kinds[one_of("the format", str(arrays["format"].astype(str)), tuple(kinds))]
        rows = kind(tuple(arrays[name] for name in ("data", "indices", "indptr")), tuple(arrays["shape"].tolist()))
        rows.check_format(full_check=True)
        matrix: CsrMatrix = csr_matrix(rows)
        return matrix
    except (ValueError, TypeError, OverflowError) as error:
        why = str(error).removesuffix(".")
        raise DataError(f"{path} is no file of scipy.sparse.save_npz with CSR rows, or is damaged ({why}).") from None


def cuts_of(rows: int, partitions: int) -> npt.NDArray[np.int64]:
    """Into parts of nearly equal length."""
    return np.linspace(0, rows, partitions + 1).round().astype(np.int64)


def source_of(value: Source) -> Source:
    """A path as text, anything else as an array."""
    require_unmasked("an array of rows", value)
    return str(value) if isinstance(value, (str, os.PathLike)) else np.asanyarray(value)


def _identity(source: Source) -> str:
    return file_stamps([source])[0] if isinstance(source, str) else digest(source)


def names_or_default(names: Sequence[str] | None, columns: int) -> tuple[str, ...]:
    """Those given, or x0, x1, …"""
    return tuple(f"x{j}" for j in range(columns)) if names is None else tuple(map(str, names))
