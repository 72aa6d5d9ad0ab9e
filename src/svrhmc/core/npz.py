"""NumPy's .npz archives, read with care: no pickle, and no more memory than what the file says of itself and holds.

The size of each array is in two places, the archive's list and the array's own header; both are read, and must agree,
before room is made for it.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import ArchiveFileError

_KINDS = "biufU"  # numbers and texts: what needs no pickle
_MOST_MEMBERS = 1000
_PIECE = 1 << 20  # bytes unpacked at once
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(
    path: Path, needed: Iterable[str], wanted: Iterable[str] = (), most: int | None = None
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of these names, and those wanted that are there; at most so many bytes in all, where that is given.

    Anything but a whole archive that has them is an `ArchiveFileError`; that there is no file stays the system's error.
    """
    names = list(needed)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()[:_MOST_MEMBERS]}
            absent = [name for name in names if name not in members]
            if absent:
                found = ", ".join(ascii(name)[1:-1][:20] for name in sorted(members)[:8]) or "nothing"
                raise ArchiveFileError(f"{path} has no array {' or '.join(absent)}; it holds {found}.")
            chosen = names + [name for name in wanted if name in members]
            total = sum(members[name].file_size for name in chosen)
            if most is not None and total > most:
                raise ArchiveFileError(
                    f"{path} has {path.stat().st_size:,} bytes and would take {total:,} bytes of memory; numbers "
                    "do not shrink that much, and it is not read."
                )
            return {name: _array(path, archive, members[name]) for name in chosen}
    except (FileNotFoundError, IsADirectoryError, PermissionError, ArchiveFileError):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        said = ascii(str(error))[1:-1][:80] or type(error).__name__
        raise ArchiveFileError(f"{path} is no .npz archive, or is cut short or damaged ({said}).") from error
    except (ValueError, OverflowError, SyntaxError, UnicodeError, MemoryError) as error:
        raise ArchiveFileError(f"{path} is damaged: the header of an array cannot be read.") from error


def _array(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    name = ascii(info.filename)[1:-1][:40]
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArchiveFileError(f"{path} packs {name} in a way that NumPy does not.")
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in _HEADERS:
            raise ArchiveFileError(f"{path} holds {name} in a version of NumPy's format that is not known here.")
        shape, fortran, kind = _HEADERS[version](member)
        if kind.kind not in _KINDS or kind.hasobject:
            raise ArchiveFileError(f"{path} holds Python objects in {name}; only arrays of numbers are read.")
        size = math.prod(shape) * kind.itemsize
        if size != info.file_size - member.tell():
            raise ArchiveFileError(f"{path} is damaged: {name} is not as large as it says.")
        content, done = np.empty(size, np.uint8), 0
        while done < size and (piece := member.read(min(size - done, _PIECE))):
            content[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)
        if done != size or member.read(1):
            raise ArchiveFileError(f"{path} is cut short or damaged: {name} is not as large as it says.")
    array = content.view(kind) if size else np.empty(math.prod(shape), kind)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)
