"""NumPy's .npz archives, read safely: without pickle, and with no more memory than the arrays in the file need.

The size of each array stands in two places, the archive's directory and the array's own header. All of them are read,
must agree, and must fit into memory, before memory is allocated for the first array.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from tokenize import TokenError
from typing import IO, NamedTuple

import numpy as np

from svrhmc.core.arrays import Values
from svrhmc.core.errors import ArchiveFileError, DataError
from svrhmc.core.machine import free_memory
from svrhmc.core.storage import open_file

_KINDS = "biufUS"  # numbers and texts: what needs no pickle
_MOST_MEMBERS = 1000
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_ENTRY, _TAIL = 46, 22 + (1 << 16) + 20 + 56  # bytes of a directory's entry, and of what may follow the directory
_END, _END64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")  # the end records of ZIP and ZIP64


class ArrayHeader(NamedTuple):
    """The shape and type of an array."""

    shape: tuple[int, ...]
    kind: np.dtype[np.generic]

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.kind.itemsize


Check = Callable[[dict[str, ArrayHeader]], object]


def read_npz(
    path: Path,
    required: Iterable[str],
    optional: Iterable[str] = (),
    most_bytes: float | None = None,
    check: Check | None = None,
) -> dict[str, Values]:
    """The required arrays, and the optional ones that exist, by name; together at most `most_bytes` (None: the free
    memory).

    check: is called with the headers before any array is unpacked, and may raise an error.
    Anything but a complete archive with the required arrays is an `ArchiveFileError`; a missing file is the system's
    error.
    """
    names = list(required)
    try:
        with open_file(path, kind=ArchiveFileError) as file:
            _require_few_members(path, file)
            archive = zipfile.ZipFile(file)
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if len(members) < len(archive.infolist()):
                raise ArchiveFileError(f"{path} has two arrays of one name.")
            absent = [name for name in names if name not in members]
            if absent:
                present = ", ".join(_printable(name, 20) for name in sorted(members)[:8]) or "nothing"
                raise ArchiveFileError(f"{path} has no array {' or '.join(absent)}; it holds {present}.")
            chosen = names + [name for name in optional if name in members]
            total = sum(members[name].file_size for name in chosen)
            if total > (available := free_memory() if most_bytes is None else most_bytes):
                raise ArchiveFileError(
                    f"{path} has {path.stat().st_size:,} bytes and would take {total:,} bytes of memory, and "
                    f"{available:,.0f} are free for it: it is not read."
                )
            headers = {name: _header(path, archive, members[name]) for name in chosen}
            if check is not None:
                check(headers)
            return {name: _array(path, archive, members[name]) for name in chosen}
    except (FileNotFoundError, IsADirectoryError, PermissionError, ArchiveFileError, DataError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        why = _printable(str(error), 80) or type(error).__name__
        raise ArchiveFileError(f"{path} is no .npz archive, or is cut short or damaged ({why}).") from error
    except (ValueError, OverflowError, SyntaxError, TokenError, UnicodeError, MemoryError) as error:
        raise ArchiveFileError(f"{path} is cut short or damaged: an array in it cannot be read.") from error


def mapped_npy(path: Path) -> Values:
    """The array of an .npy file, as a memory map; anything but a complete array of numbers is a `DataError`."""
    open_file(path, kind=DataError).close()
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (FileNotFoundError, PermissionError):
        raise
    except (ValueError, OSError, EOFError, TypeError, OverflowError, SyntaxError, TokenError, MemoryError):
        raise DataError(f"{path} is no .npy file of numbers, or is cut short or damaged.") from None


def _require_few_members(path: Path, file: IO[bytes]) -> None:
    """Refuse a long directory of members, by its end record, before Python reads it."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - _TAIL))
    tail = file.read()
    file.seek(0)
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < _END.size:
        return  # Python will report that it is no archive
    directory_size = _END.unpack_from(tail, place)[5]
    place64 = place - 20 - _END64.size
    if place64 >= 0 and tail[place64 : place64 + 4] == b"PK\x06\x06":
        directory_size = _END64.unpack_from(tail, place64)[8]
    if directory_size > _MOST_MEMBERS * 2 * _ENTRY:
        raise ArchiveFileError(f"{path} holds more than the {_MOST_MEMBERS:,} arrays of an .npz for svrhmc.")


def _header(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> ArrayHeader:
    """The header of an array, which must agree with the archive's directory."""
    name = _printable(info.filename, 40)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveFileError(f"{path} compresses {name} in a way that NumPy cannot read.")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in _HEADERS:
            raise ArchiveFileError(f"{path} holds {name} in a version of NumPy's format that this svrhmc cannot read.")
        shape, _, kind = _HEADERS[version](member)
        if kind.kind not in _KINDS or kind.hasobject:
            raise ArchiveFileError(f"{path} holds Python objects in {name}; only arrays of numbers are read.")
        header, begin = ArrayHeader(shape, kind), member.tell()
    if any(side < 0 for side in shape) or header.size != info.file_size - begin:
        raise ArchiveFileError(f"{path} is damaged: {name} is not as large as it says.")
    return header


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Values:
    with archive.open(info) as member:
        array: Values = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # reading to the end compares the checksum
            name = _printable(info.filename, 40)
            raise ArchiveFileError(f"{path} is damaged: {name} is not as large as it says.")
    return array


def _printable(text: str, length: int) -> str:
    """The beginning of a text from a file, with all control characters escaped."""
    return ascii(text)[1:-1][:length]
