"""A file out of what a publisher ships: zip, tar, gz, bz2, xz, one within another; in any folder, in any case."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator

_PACKED: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", ".gz", gzip.decompress),
    (b"BZh", ".bz2", bz2.decompress),
    (b"\xfd7zXZ\x00", ".xz", lzma.decompress),
)
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_DEEPEST = 4  # archives within archives; a publisher needs two


class ArchiveError(ValueError):
    """What is wrong with a file, as the end of a sentence that begins with its name."""


def unpack(content: bytes, file: str, member: str) -> bytes:
    """The bytes of `member` from the content of `file`: the file itself, compressed, or within an archive.

    >>> unpack(gzip.compress(b"1 2"), "a.data.gz", "a.data")
    b'1 2'
    """
    _require_content(content)
    seen: list[str] = []
    found = _search(content, file, member.casefold(), seen, _DEEPEST)
    if found is None:
        there = ", ".join(seen[:6]) + (", …" if len(seen) > 6 else "")
        raise ArchiveError(f"holds no file named {member} (it holds {there or 'nothing'})")
    _require_content(found, f"holds a file {member} that")
    return found


def _require_content(content: bytes, who: str = "") -> None:
    space = f"{who} " if who else ""
    if not content:
        raise ArchiveError(f"{space}is empty")
    head = content[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise ArchiveError(f"{space}is a web page and not the data")


def _search(content: bytes, file: str, member: str, seen: list[str], depth: int) -> bytes | None:
    """The member, in lower case, of a file or of an archive within it; what else is there goes to `seen`."""
    for magic, suffix, open_up in _PACKED:
        if content.startswith(magic):
            try:
                inner = open_up(content)
            except Exception as error:  # the decompressors have no error in common
                raise ArchiveError(f"cannot be decompressed ({_reason(error)}): it is cut short or damaged") from None
            name = file.casefold()
            name = name[:-4] + ".tar" if name.endswith(".tgz") else name.removesuffix(suffix)
            return _search(inner, name, member, seen, depth)
    files = _files_of_zip if content.startswith(b"PK") else _files_of_tar if _is_tar(content) else None
    if files is None:
        if file.casefold().endswith(_ARCHIVES):
            raise ArchiveError("is not an archive: it is cut short, or another file under this name")
        return content
    if depth == 0:
        return None
    try:
        # by depth and name, so that the choice among several of one name is always the same
        entries = sorted(files(content), key=lambda entry: (entry[0].count("/"), entry[0]))
        within = []
        for name, read in entries:
            base = name.rsplit("/", 1)[-1].casefold()
            if base == member:
                return read()
            seen.append(name)
            if base.endswith(_ARCHIVES) or base in [member + suffix for _, suffix, _ in _PACKED]:
                within.append((name, read))
        for name, read in within:
            found = _search(read(), name, member, seen, depth - 1)
            if found is not None:
                return found
    except ArchiveError:
        raise
    except Exception as error:  # nor have zip and tar
        raise ArchiveError(f"cannot be unpacked ({_reason(error)}): it is cut short or damaged") from None
    return None


def _files_of_zip(content: bytes) -> Iterator[tuple[str, Callable[[], bytes]]]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    for entry in archive.infolist():
        if not entry.is_dir() and _real(entry.filename):
            yield entry.filename, lambda entry=entry: archive.read(entry)  # type: ignore[misc]


def _files_of_tar(content: bytes) -> Iterator[tuple[str, Callable[[], bytes]]]:
    archive = tarfile.open(fileobj=io.BytesIO(content), mode="r:")  # noqa: SIM115 - read from until all is found
    for entry in archive:
        if entry.isfile() and _real(entry.name):
            yield entry.name, lambda entry=entry: _whole(archive, entry)  # type: ignore[misc]


def _whole(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry)
    content = b"" if file is None else file.read()
    if len(content) != entry.size:
        raise EOFError(f"{entry.name} ends early")
    return content


def _is_tar(content: bytes) -> bool:
    if content[257:262] == b"ustar":
        return True
    try:
        tarfile.open(fileobj=io.BytesIO(content), mode="r:").close()
    except (tarfile.TarError, EOFError):
        return False
    return True


def _real(name: str) -> bool:
    """Not what macOS adds to an archive."""
    return not name.startswith("__MACOSX/") and not name.rsplit("/", 1)[-1].startswith("._")


def _reason(error: BaseException) -> str:
    text = str(error).strip().rstrip(".")
    return text or type(error).__name__
