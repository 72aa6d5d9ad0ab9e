"""NumPy's .npz archives, read with care: no pickle, and no more memory than what the file says of itself and holds.

The size of each array is in two places, the archive's list and the array's own header; all of them are read, must
agree, and must fit into memory, before room is made for the first.
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
_ENTRY, _TAIL = 46, 22 + (1 << 16) + 20 + 56  # bytes of an entry in the list, and of what may follow the list
_LIST, _LIST64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")  # the ends of a list, short and long


class Described(NamedTuple):
    """An array by its header."""

    shape: tuple[int, ...]
    kind: np.dtype[np.generic]

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.kind.itemsize


Check = Callable[[dict[str, Described]], object]


def read_npz(
    path: Path,
    needed: Iterable[str],
    wanted: Iterable[str] = (),
    most: float | None = None,
    check: Check | None = None,
) -> dict[str, Values]:
    """The arrays of these names, and those wanted that are there; at most so many bytes in all, or as many as are free.

    check: is given what their headers say before any of them is unpacked, and may raise an error.
    Anything but a whole archive that has them is an `ArchiveFileError`; that there is no file stays the system's error.
    """
    names = list(needed)
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
            chosen = names + [name for name in wanted if name in members]
            total = sum(members[name].file_size for name in chosen)
            if total > (room := free_memory() if most is None else most):
                raise ArchiveFileError(
                    f"{path} has {path.stat().st_size:,} bytes and would take {total:,} bytes of memory, and "
                    f"{room:,.0f} are free for it: it is not read."
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
    """The array of an .npy file, mapped and not read; anything but a whole one of numbers is a `DataError`."""
    open_file(path, kind=DataError).close()
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (FileNotFoundError, PermissionError):
        raise
    except (ValueError, OSError, EOFError, TypeError, OverflowError, SyntaxError, TokenError, MemoryError):
        raise DataError(f"{path} is no .npy file of numbers, or is cut short or damaged.") from None


def _require_few_members(path: Path, file: IO[bytes]) -> None:
    """Refuse a long list of members, by what stands at its end, before Python reads it."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - _TAIL))
    tail = file.read()
    file.seek(0)
    place = tail.rfind(b"PK\x05\x06")
    if place < 0 or len(tail) - place < _LIST.size:
        return  # Python says that it is no archive
    sizes = [_LIST.unpack_from(tail, place)[5]]
    before = place - 20 - _LIST64.size
    if before >= 0 and tail[before : before + 4] == b"PK\x06\x06":
        sizes = [_LIST64.unpack_from(tail, before)[8]]
    if max(sizes) > _MOST_MEMBERS * 2 * _ENTRY:
        raise ArchiveFileError(f"{path} holds more than the {_MOST_MEMBERS:,} arrays of an .npz for svrhmc.")


def _header(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Described:
    """What the header of an array says, which is in accord with the archive's list."""
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
        described, begin = Described(shape, kind), member.tell()
    if any(side < 0 for side in shape) or described.size != info.file_size - begin:
        raise ArchiveFileError(f"{path} is damaged: {name} is not as large as it says.")
    return described


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Values:
    with archive.open(info) as member:
        array: Values = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # at its end the checksum is compared
            name = _printable(info.filename, 40)
            raise ArchiveFileError(f"{path} is damaged: {name} is not as large as it says.")
    return array


def _printable(text: str, most: int) -> str:
    """The beginning of a text out of a file, with nothing in it that steers a terminal."""
    return ascii(text)[1:-1][:most]
