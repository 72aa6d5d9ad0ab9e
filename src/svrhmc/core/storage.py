"""Files that are either whole or not there: named numbers, texts and arrays with a checksum, and no pickle.

A record is

    "svrhmc\\n" | length of the header, 8 bytes | header (JSON: what is said, and name, type and shape of each array) |
    the arrays, one after another | SHA-256 of all before it, 32 bytes.

It is written beside its place, brought to the disk (fsync) and moved there in one step: whoever reads finds the old
record or the new one, never a part.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import StorageError

_MAGIC = b"svrhmc\n"
_TYPES = ("<f8", "<f4", "<i8", "<u4")
_DIGEST = hashlib.sha256().digest_size
_MOST_HEADER = 1 << 26
_PIECE = 1 << 24  # bytes written or read at once
_ABANDONED = 3600.0  # seconds
_numbers = count()  # of files in the making, so that threads do not write into one


@dataclass(frozen=True, eq=False)
class Record:
    """What a file holds."""

    said: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def write_record(path: Path, said: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
    """Write a record in one step; arrays mapped from files are read piece by piece."""
    parts = arrays or {}
    described = [[name, _type_of(name, array), list(array.shape)] for name, array in parts.items()]
    header = json.dumps({"said": said, "arrays": described}).encode()
    total = hashlib.sha256()
    with _replacing(path) as file:
        front = (_MAGIC, len(header).to_bytes(8, "little"), header)
        for piece in chain(front, *(_pieces(array) for array in parts.values())):
            total.update(piece)
            file.write(piece)
        file.write(total.digest())


def _pieces(array: npt.NDArray[Any]) -> Iterator[Any]:
    """The numbers of an array in their order, some at a time where they do not lie in it."""
    if array.flags.c_contiguous or array.nbytes <= _PIECE:
        yield np.ascontiguousarray(array).reshape(-1).data
        return
    rows = _PIECE // max(1, array[:1].nbytes)
    for begin in range(0, len(array), max(1, rows)):
        yield from _pieces(array[begin : begin + rows] if rows else array[begin])


def write_text(path: Path, text: str) -> None:
    """Write a text in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes in one step."""
    with _replacing(path) as file:
        file.write(content)


def write_checked(path: Path, content: bytes) -> None:
    """Write bytes in one step, after their checksum."""
    write_bytes(path, hashlib.sha256(content).digest() + content)


def read_checked(path: Path) -> bytes | None:
    """What `write_checked` wrote; None where there is nothing, or nothing whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    return content[_DIGEST:] if content[:_DIGEST] == hashlib.sha256(content[_DIGEST:]).digest() else None


def remove_partials(path: Path, abandoned: bool = False) -> None:
    """What processes that were killed while they wrote this file have left; where others may be at it too, only what
    nobody has touched for an hour.
    """
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            if not abandoned or time.time() - partial.stat().st_mtime > _ABANDONED:
                partial.unlink(missing_ok=True)


def is_record(path: Path) -> bool:
    """Whether a file begins as a record does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_record(path: Path, most_said: int = _MOST_HEADER) -> Record | None:
    """Read a record; None where there is no file. Anything but a whole record is a `StorageError`.

    No more memory is taken than the file is long, whatever its header says.
    """
    try:
        with path.open("rb") as file:
            return _read(path, file, os.fstat(file.fileno()).st_size, most_said)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from error


def _read(path: Path, file: IO[bytes], length: int, most_said: int) -> Record:
    front = file.read(len(_MAGIC) + 8)
    if front[: len(_MAGIC)] != _MAGIC:
        raise StorageError(f"{path} is not a file of svrhmc.")
    size, body = int.from_bytes(front[len(_MAGIC) :], "little"), length - len(front) - _DIGEST
    if body < 0 or size > min(most_said, body):
        raise StorageError(f"{path} is cut short or was changed: it has a header that does not fit.")
    total, header = hashlib.sha256(front), file.read(size)
    total.update(header)
    try:
        said, described = _header(json.loads(header))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StorageError(f"{path} is cut short or was changed: it has a header that cannot be read.") from None
    if size + sum(_size(kind, shape) for _, kind, shape in described) != body:
        raise StorageError(f"{path} is cut short or was changed: it is not as long as its arrays.")
    arrays = {name: np.empty(shape, kind) for name, kind, shape in described}
    for array in arrays.values():
        view = memoryview(array.reshape(-1).view(np.uint8).data)
        for begin in range(0, len(view), _PIECE):
            piece = view[begin : begin + _PIECE]
            if file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
                raise StorageError(f"{path} is cut short: it became shorter while it was read.")
            total.update(piece)
    if file.read(_DIGEST + 1) != total.digest():
        raise StorageError(f"{path} is cut short or was changed: its checksum does not fit.")
    return Record(said, arrays)


def _header(header: Any) -> tuple[dict[str, Any], list[tuple[str, str, tuple[int, ...]]]]:
    """What is said, and name, type and shape of each array; anything else is a ValueError."""
    said, described = header["said"], [(name, kind, tuple(shape)) for name, kind, shape in header["arrays"]]
    for name, kind, shape in described:
        whole = all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
        if not (isinstance(name, str) and kind in _TYPES and whole and len(shape) <= 8):
            raise ValueError(name)
    if not isinstance(said, dict) or len({name for name, _, _ in described}) != len(described):
        raise ValueError("said")
    return said, described


def _size(kind: str, shape: tuple[int, ...]) -> int:
    return np.dtype(kind).itemsize * math.prod(shape)


def _type_of(name: str, array: npt.NDArray[Any]) -> str:
    kind = array.dtype.newbyteorder("<").str
    if kind not in _TYPES:
        raise TypeError(f"{name} is of type {array.dtype}, which is not kept in files")
    return kind


class _replacing:  # noqa: N801 - a context manager, read as a word
    """A file that takes the place of another when it is whole, and is gone where it could not be made.

    A link stays a link: what it leads to is replaced.
    """

    def __init__(self, path: Path) -> None:
        self._named, self._path = path, Path(os.path.realpath(path))
        self._partial = self._path.with_name(f"{self._path.name}.{os.getpid()}.{next(_numbers)}.part")

    def __enter__(self) -> Any:
        with self._named_errors():
            if self._path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._file = self._partial.open("wb")
        return self._file

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        try:
            with self._named_errors():
                if kind is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
                self._file.close()
                if kind is None:
                    self._partial.replace(self._path)
                    sync_folder(self._path.parent)
        finally:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)
        if isinstance(value, OSError):
            raise OSError(value.errno, value.strerror, str(self._named)) from value

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """What the system says is about the file that was asked for, and not about the one beside it."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._named)) from error


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
