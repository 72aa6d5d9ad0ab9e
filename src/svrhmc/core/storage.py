"""Records: files of named numbers, texts and arrays with a checksum, written in one step and without pickle.

A record is

    "svrhmc\\n" | length of the header, 8 bytes | header (JSON: settings, and name, type and shape of each array) |
    the arrays, one after another | SHA-256 of all before it, 32 bytes.

It is written to a temporary file in the same folder, flushed to the disk (fsync) and renamed: whoever reads finds the
old record or the new one, never a part of one.

A checksum shows that a file is complete, not who wrote it. So values are taken from a record by `Record.value` and
`Record.array`, which check their types and shapes.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Values
from svrhmc.core.errors import StorageError
from svrhmc.core.machine import free_memory

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAGIC = b"svrhmc\n"
_TYPES = ("<f8", "<f4", "<i8", "<u4")
_DIGEST = hashlib.sha256().digest_size
_MOST_HEADER = 1 << 24  # bytes; the objects that Python parses from them can take twelve times as many
_MOST_NESTED = 1 << 17  # lists and dictionaries in a header
_PIECE = 1 << 24  # bytes written or read at a time
_ABANDONED_AFTER = 3600.0  # seconds
_PARTIAL = r"\.\d+\.\d+\.part"  # what follows the name of a file in the making: the process, and a number
_KINDS_OF_FILES = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link"),
)  # fmt: skip
_partial_numbers = count()  # of files in the making, so that threads do not write into one
Value = TypeVar("Value")
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, eq=False)
class Record:
    """The content of a file: settings (numbers, texts and lists of them) and arrays. path: the file, if it was read."""

    settings: dict[str, object]
    arrays: Mapping[str, Values] = field(default_factory=dict)
    path: Path | None = None

    def value(self, name: str, check: Callable[..., Value], *bounds: object) -> Value:
        """The setting of a name, as `check(name, value, *bounds)` returns it; a `StorageError` if it is missing or the
        check raises an error.

        >>> from svrhmc.core.errors import whole_number
        >>> Record({"step": 7}).value("step", whole_number, 0, 10)
        7
        """
        try:
            return check(name, self.settings[name], *bounds)
        except KeyError as error:
            raise self.unusable(f"it has no {error.args[0]}") from None
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise self.unusable(str(error).rstrip(".")) from error

    @overload
    def array(self, name: str, shape: tuple[int | None, ...]) -> Array:
        """An array of float64."""

    @overload
    def array(
        self, name: str, shape: tuple[int | None, ...], kind: type[Number] | np.dtype[Number]
    ) -> npt.NDArray[Number]:
        """An array of another type."""

    def array(self, name: str, shape: tuple[int | None, ...], kind: npt.DTypeLike = np.float64) -> Values:
        """An array of this type and shape (None for any length), all finite; otherwise a `StorageError`."""
        array, expected = self.arrays.get(name), np.dtype(kind)
        if array is None:
            raise self.unusable(f"it has no {name}")
        fits = len(shape) == array.ndim and all(s in (None, have) for s, have in zip(shape, array.shape, strict=True))
        if array.dtype != expected or not fits:
            allowed = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
            raise self.unusable(f"{name} must be {expected} of shape {allowed}; got {array.dtype} of {array.shape}")
        if not all(np.isfinite(piece).all() for piece in _blocks(array)):
            raise self.unusable(f"{name} must be finite everywhere; got numbers that are not")
        return array

    def unusable(self, why: str) -> StorageError:
        """The error if a record is complete, but cannot be one of the work that reads it."""
        return StorageError(f"{self.path or 'the record'} does not belong to this work or was changed: {why}.")


def open_file(path: Path, follow: bool = True, kind: type[ValueError] = StorageError) -> IO[bytes]:
    """Open a regular file for reading. A folder, pipe, socket or device is refused: reading it could wait for ever.

    follow: whether it may be a link. kind: the type of the error.
    """
    require_file(path, os.stat(path) if follow else os.lstat(path), kind)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    try:
        require_file(path, os.fstat(handle), kind)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def require_file(path: Path, status: os.stat_result, kind: type[ValueError] = StorageError) -> None:
    """Refuse anything but a regular file, by its status."""
    if not stat.S_ISREG(status.st_mode):
        kind_word = next((word for test, word in _KINDS_OF_FILES if test(status.st_mode)), "a device")
        raise kind(f"{path} is {kind_word}, not a file: give the name of a file.")


def write_record(
    path: Path,
    settings: Mapping[str, object],
    arrays: Mapping[str, Values] | None = None,
    follow: bool = True,
) -> None:
    """Write a record in one step; memory maps are read piece by piece."""
    parts = arrays or {}
    described = [[name, _type_of(name, array), list(array.shape)] for name, array in parts.items()]
    header = json.dumps({"said": settings, "arrays": described}).encode()
    if len(header) > _MOST_HEADER:
        raise StorageError(
            f"{path} is not written: names and texts must take at most {_MOST_HEADER:,} bytes to be read again; got "
            f"{len(header):,}."
        )
    total = hashlib.sha256()
    with _replace_file(path, follow) as file:
        front = (_MAGIC, len(header).to_bytes(8, "little"), header)
        pieces: Iterator[Buffer] = chain(front, *(_pieces(array) for array in parts.values()))
        for piece in pieces:
            total.update(piece)
            file.write(piece)
        file.write(total.digest())


def _pieces(array: Values) -> Iterator[Buffer]:
    """The bytes of an array in C order, piece by piece if it is not contiguous."""
    if array.flags.c_contiguous:
        yield array.reshape(-1).data
        return
    yield from (np.ascontiguousarray(block).reshape(-1).data for block in _blocks(array))


def _blocks(array: Values) -> Iterator[Values]:
    """An array in blocks of at most `_PIECE` bytes, in C order."""
    if array.nbytes <= _PIECE:
        yield array
        return
    rows = _PIECE // max(1, array[:1].nbytes)
    for begin in range(0, len(array), max(1, rows)):
        yield from _blocks(array[begin : begin + rows] if rows else array[begin])


def write_text(path: Path, text: str) -> None:
    """Write a text in one step."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes in one step."""
    with _replace_file(path) as file:
        file.write(content)


def write_checked(path: Path, content: bytes) -> None:
    """Write bytes in one step, after their checksum."""
    write_bytes(path, hashlib.sha256(content).digest() + content)


def read_checked(path: Path, trusted: Callable[[os.stat_result], bool] = lambda status: True) -> bytes | None:
    """The bytes that `write_checked` wrote; None if there is no file, it is damaged, or its status is not trusted."""
    try:
        with open_file(path, follow=False) as file:
            content = file.read() if trusted(os.fstat(file.fileno())) else b""
    except (OSError, StorageError):
        return None
    return content[_DIGEST:] if content[:_DIGEST] == hashlib.sha256(content[_DIGEST:]).digest() else None


def remove_partials(path: Path, abandoned: bool = False) -> None:
    """Remove temporary files of processes that were killed while they wrote this file. abandoned: only those that were
    not changed for an hour, since other processes may be writing too.
    """
    for partial in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        with suppress(OSError):
            if not re.fullmatch(re.escape(path.name) + _PARTIAL, partial.name) or not is_plain(partial):
                continue
            if not abandoned or time.time() - partial.stat().st_mtime > _ABANDONED_AFTER:
                partial.unlink(missing_ok=True)


def is_plain(path: Path) -> bool:
    """Whether it is a regular file with one name: neither a symbolic link nor a hard link of another file."""
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def is_partial_record(path: Path) -> bool:
    """Whether it is a temporary file of a process that was killed while it wrote a record, by its name and content."""
    if not re.fullmatch(f".+{_PARTIAL}", path.name) or not is_plain(path):
        return False
    with open_file(path, follow=False) as file:
        begin = file.read(len(_MAGIC))
    return _MAGIC.startswith(begin)


def is_record(path: Path) -> bool:
    """Whether a file begins as a record does."""
    with open_file(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_record(path: Path, follow: bool = True) -> Record | None:
    """Read a record; None if there is no file. Anything but a complete record is a `StorageError`.

    It takes no more memory than the file is long, whatever its header says, and refuses a file that does not fit.
    """
    try:
        with open_file(path, follow) as file:
            return _read(path, file, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}.") from error


def _read(path: Path, file: IO[bytes], length: int) -> Record:
    front = file.read(len(_MAGIC) + 8)
    if front[: len(_MAGIC)] != _MAGIC:
        raise StorageError(f"{path} is not a file of svrhmc.")
    size, body = int.from_bytes(front[len(_MAGIC) :], "little"), length - len(front) - _DIGEST
    if body < 0 or size > min(_MOST_HEADER, body):
        raise StorageError(f"{path} is cut short or was changed: it has a header that does not fit.")
    total, header = hashlib.sha256(front), file.read(size)
    total.update(header)
    if header.count(b"[") + header.count(b"{") > _MOST_NESTED:
        raise StorageError(f"{path} is not read: its header has more lists than any file of svrhmc.")
    try:
        settings, described = _header(json.loads(header))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise StorageError(f"{path} is cut short or was changed: it has a header that cannot be read.") from None
    if size + sum(_size(kind, shape) for _, kind, shape in described) != body:
        raise StorageError(f"{path} is cut short or was changed: it is not as long as its arrays.")
    if body > (free := free_memory()):
        raise StorageError(f"{path} would take {body / 1e9:.3g} GB of memory, and {free / 1e9:.3g} GB are free.")
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
    return Record(settings, arrays, path)


def _header(header: dict[str, Any]) -> tuple[dict[str, object], list[tuple[str, str, tuple[int, ...]]]]:
    """The settings, and the name, type and shape of each array; a ValueError if the header is not valid."""
    settings, described = header["said"], [(name, kind, tuple(shape)) for name, kind, shape in header["arrays"]]
    for name, kind, shape in described:
        whole = all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
        if not (isinstance(name, str) and kind in _TYPES and whole and len(shape) <= 8):
            raise ValueError(name)
    if not isinstance(settings, dict) or len({name for name, _, _ in described}) != len(described):
        raise ValueError("said")
    return settings, described


def _size(kind: str, shape: tuple[int, ...]) -> int:
    return np.dtype(kind).itemsize * math.prod(shape)


def _type_of(name: str, array: Values) -> str:
    kind = array.dtype.newbyteorder("<").str
    if kind not in _TYPES:
        raise TypeError(f"{name} is of type {array.dtype}, which is not kept in files")
    return kind


@contextmanager
def _replace_file(path: Path, follow: bool = True) -> Iterator[IO[bytes]]:
    """A temporary file that replaces the file at `path` at the end, and is removed after an error.

    follow: whether the target of a link is replaced; otherwise a link is refused. Errors of the system name `path`, not
    the temporary file.
    """
    place = Path(os.path.realpath(path)) if follow else path
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not follow and place.is_symlink():
            raise OSError(errno.ELOOP, "it is a link")
        file = _new_beside(place)
        partial = Path(file.name)
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(place)
            sync_folder(place.parent)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _new_beside(place: Path) -> IO[bytes]:
    """A new file in the same folder; never one that exists already."""
    while True:
        with suppress(FileExistsError):
            return place.with_name(f"{place.name}.{os.getpid()}.{next(_partial_numbers)}.part").open("xb")


def require_free(path: Path, size: int) -> None:
    """Raise the system's error unless this many bytes can be written to the folder of `path` now."""
    if not hasattr(os, "posix_fallocate"):
        if shutil.disk_usage(path.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return
    with tempfile.TemporaryFile(dir=path.parent) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
