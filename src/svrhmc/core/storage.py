"""Files that are either whole or not there: named numbers, texts and arrays with a checksum, and no pickle.

A record is

    "svrhmc\\n" | length of the header, 8 bytes | header (JSON: what is said, and name, type and shape of each array) |
    the arrays, one after another | SHA-256 of all before it, 32 bytes.

It is written beside its place, brought to the disk (fsync) and moved there in one step: whoever reads finds the old
record or the new one, never a part.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import StorageError

_MAGIC = b"svrhmc\n"
_TYPES = ("<f8", "<f4", "<i8", "<u4")
_DIGEST = hashlib.sha256().digest_size
_MOST_HEADER = 1 << 26


@dataclass(frozen=True, eq=False)
class Record:
    """What a file holds."""

    said: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


def write_record(path: Path, said: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
    """Write a record in one step."""
    parts = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    described = [[name, _type_of(name, array), list(array.shape)] for name, array in parts.items()]
    header = json.dumps({"said": said, "arrays": described}).encode()
    total = hashlib.sha256()
    with _replacing(path) as file:
        contents: list[Any] = [array.reshape(-1).data for array in parts.values()]
        for piece in (_MAGIC, len(header).to_bytes(8, "little"), header, *contents):
            total.update(piece)
            file.write(piece)
        file.write(total.digest())


def write_text(path: Path, text: str) -> None:
    """Write a text in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes in one step."""
    with _replacing(path) as file:
        file.write(content)


def remove_partials(path: Path) -> None:
    """What processes that were killed while they wrote this file have left."""
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        partial.unlink(missing_ok=True)


def read_record(path: Path) -> Record | None:
    """Read a record; None where there is no file. Anything but a whole record is a `StorageError`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from error
    begin = len(_MAGIC) + 8
    if content[: len(_MAGIC)] != _MAGIC:
        raise StorageError(f"{path} is not a file of svrhmc.")
    body, checksum = content[:-_DIGEST], content[-_DIGEST:]
    if len(content) < begin + _DIGEST or hashlib.sha256(body).digest() != checksum:
        raise StorageError(f"{path} is cut short or was changed: its checksum does not fit.")
    size = int.from_bytes(content[len(_MAGIC) : begin], "little")
    if size > min(_MOST_HEADER, len(body) - begin):
        raise StorageError(f"{path} has a header that does not fit.")
    header = json.loads(body[begin : begin + size])
    return Record(header["said"], _arrays(path, header["arrays"], memoryview(body)[begin + size :]))


def _arrays(path: Path, described: list[Any], body: memoryview) -> dict[str, npt.NDArray[Any]]:
    arrays, place = {}, 0
    for name, kind, shape in described:
        if kind not in _TYPES or any(not isinstance(size, int) or size < 0 for size in shape):
            raise StorageError(f"{path} holds an array {name!r} of a type that is not known.")
        size = np.dtype(kind).itemsize * math.prod(shape)
        if place + size > len(body):
            raise StorageError(f"{path} is shorter than its arrays.")
        arrays[name] = np.frombuffer(body[place : place + size], kind).reshape(shape).copy()
        place += size
    return arrays


def _type_of(name: str, array: npt.NDArray[Any]) -> str:
    kind = array.dtype.newbyteorder("<").str
    if kind not in _TYPES:
        raise TypeError(f"{name} is of type {array.dtype}, which is not kept in files")
    return kind


class _replacing:  # noqa: N801 - a context manager, read as a word
    """A file that takes the place of another when it is whole, and is gone where it could not be made."""

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.{os.getpid()}.part")

    def __enter__(self) -> Any:
        self._file = self._partial.open("wb")
        return self._file

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        try:
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
            with suppress(FileNotFoundError):
                self._partial.unlink()


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
