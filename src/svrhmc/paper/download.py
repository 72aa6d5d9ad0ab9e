"""Files from their publishers: fetched once, unpacked and checked before they are kept, kept whole or not at all.

Not by pooch: its hashes are of what is sent, where ours are of a file within it (publishers pack anew), and the errors
of requests that it passes on would have to be put into words here all the same.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import http.client
import io
import lzma
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from svrhmc.core.code_cache import user_caches
from svrhmc.core.errors import DataError, requirement
from svrhmc.core.storage import write_bytes
from svrhmc.core.version import VERSION

T = TypeVar("T")
_TIMEOUT = 30.0  # seconds without a byte after which a publisher is given up
_DECOMPRESSORS: tuple[tuple[bytes, str, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", ".gz", gzip.decompress),
    (b"BZh", ".bz2", bz2.decompress),
    (b"\xfd7zXZ\x00", ".xz", lzma.decompress),
)
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
_DEEPEST = 4  # archives within archives; a publisher needs two


def cache_folder() -> Path:
    """Where downloads and parsed tables are kept."""
    for folder in user_caches():
        return folder
    raise DataError("there is no home folder to keep downloads in: set SVRHMC_CACHE to a folder.")


def file_name(url: str) -> str:
    """The name under which a browser would save it.

    >>> file_name("https://a.org/x/airfoil%2Bself+noise.zip")
    'airfoil+self+noise.zip'
    """
    return unquote(urlsplit(url).path).rsplit("/", 1)[-1]


def mirrored(url: str) -> str:
    """The address itself, or its copy on the server that SVRHMC_MIRROR names: MIRROR/host/path."""
    mirror = os.environ.get("SVRHMC_MIRROR")
    return f"{mirror.rstrip('/')}/{url.split('://', 1)[1]}" if mirror else url


def cached_download(url: str) -> Path:
    """Where a download is kept."""
    digest = hashlib.sha256(mirrored(url).encode()).hexdigest()[:12]
    return cache_folder() / "downloads" / f"{digest}-{file_name(url)}"


def fetch(urls: tuple[str, ...], accept: Callable[[str, bytes], T]) -> T:
    """What `accept` makes of the published file, from its name and its bytes, at the first of these addresses.

    One that it refuses (`ArchiveError`) is not kept; one kept earlier that it refuses, such as an empty one, is fetched
    again. Where no address has it, the `DataError` says of each why.
    """
    for url in urls:
        try:
            return accept(file_name(url), cached_download(url).read_bytes())
        except (OSError, ArchiveError, DataError):
            pass  # not there, or not whole
    reasons = []
    for url in urls:
        try:
            return _fetch(url, accept)
        except DataError as error:
            reasons.append(str(error).rstrip("."))
    raise DataError("; ".join(reasons))


def _fetch(url: str, accept: Callable[[str, bytes], T]) -> T:
    address, path = mirrored(url), cached_download(url)
    content = _receive(address)
    try:
        accepted = accept(file_name(url), content)
    except ArchiveError as error:
        raise DataError(f"what {address} sends {error}") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, content)
    except OSError as error:
        raise DataError(
            f"the download cannot be saved in {path.parent} ({error.strerror or error}): make room there or make it "
            "writable, or set SVRHMC_CACHE to another folder"
        ) from None
    return accepted


def _receive(address: str) -> bytes:
    timeout = _timeout()
    try:
        request = urllib.request.Request(address, headers={"User-Agent": f"svrhmc/{VERSION}"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        error.close()
        why = f"answers with HTTP status {error.code} ({error.reason})"
    except TimeoutError:
        why = f"was silent for {timeout:g} s"
    except urllib.error.URLError as error:
        silent = isinstance(error.reason, TimeoutError)
        why = f"was silent for {timeout:g} s" if silent else f"cannot be reached ({_reason(error.reason)})"
    except http.client.IncompleteRead as error:
        why = f"ended the connection after {len(error.partial)} bytes, before the end"
    except (http.client.HTTPException, OSError) as error:
        why = f"ended the connection ({_reason(error)})"
    except ValueError as error:
        why = f"is no address ({error})"
    raise DataError(f"{address} {why}")


def _timeout() -> float:
    setting = os.environ.get("SVRHMC_TIMEOUT")
    try:
        seconds = float(setting) if setting else _TIMEOUT
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise requirement("SVRHMC_TIMEOUT", "a positive number of seconds", repr(setting), kind=DataError)
    return seconds


# Files within what a publisher ships: zip, tar, gz, bz2, xz, one within another; in any folder, in any case.


class ArchiveError(ValueError):
    """What is wrong with a file, as the end of a sentence that begins with its name."""


def unpack(content: bytes, file: str, member: str) -> bytes:
    """The bytes of `member` from the content of `file`: the file itself, compressed, or within an archive.

    >>> unpack(gzip.compress(b"1 2"), "a.data.gz", "a.data")
    b'1 2'
    """
    _require_data(content)
    others: list[str] = []
    unpacked = _search(content, file, member.casefold(), others, _DEEPEST)
    if unpacked is None:
        held = ", ".join(others[:6]) + (", …" if len(others) > 6 else "")
        raise ArchiveError(f"holds no file named {member} (it holds {held or 'nothing'})")
    _require_data(unpacked, f"holds a file {member} that ")
    return unpacked


def _require_data(content: bytes, prefix: str = "") -> None:
    if not content:
        raise ArchiveError(f"{prefix}is empty")
    head = content[:1000].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        raise ArchiveError(f"{prefix}is a web page and not the data")


def _search(content: bytes, file: str, member: str, others: list[str], depth: int) -> bytes | None:
    """The member, in lower case, of a file or of an archive within it; what else is there goes to `others`."""
    for magic, suffix, decompress in _DECOMPRESSORS:
        if content.startswith(magic):
            try:
                inner = decompress(content)
            except Exception as error:  # the decompressors have no error in common
                raise ArchiveError(f"cannot be decompressed ({_reason(error)}): it is cut short or damaged") from None
            name = file.casefold()
            name = name[:-4] + ".tar" if name.endswith(".tgz") else name.removesuffix(suffix)
            return _search(inner, name, member, others, depth)
    members = _zip_members if content.startswith(b"PK") else _tar_members if _is_tar(content) else None
    if members is None:
        if file.casefold().endswith(_ARCHIVES):
            raise ArchiveError("is not an archive: it is cut short, or another file under this name")
        return content
    if depth == 0:
        return None
    compressed = [member + suffix for _, suffix, _ in _DECOMPRESSORS]
    try:
        # by depth and name, so that the choice among several of one name is always the same
        entries = sorted(members(content), key=lambda entry: (entry[0].count("/"), entry[0]))
        for name, read in entries:
            if _base(name) == member:
                return read()
        others += [name for name, _ in entries]
        for name, read in entries:
            if _base(name).endswith(_ARCHIVES) or _base(name) in compressed:
                unpacked = _search(read(), name, member, others, depth - 1)
                if unpacked is not None:
                    return unpacked
    except ArchiveError:
        raise
    except Exception as error:  # nor have zip and tar
        raise ArchiveError(f"cannot be unpacked ({_reason(error)}): it is cut short or damaged") from None
    return None


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1].casefold()


def _zip_members(content: bytes) -> Iterator[tuple[str, Callable[[], bytes]]]:
    archive = zipfile.ZipFile(io.BytesIO(content))
    for entry in archive.infolist():
        if not entry.is_dir() and not _added_by_macos(entry.filename):
            yield entry.filename, lambda entry=entry: archive.read(entry)  # type: ignore[misc]


def _tar_members(content: bytes) -> Iterator[tuple[str, Callable[[], bytes]]]:
    archive = tarfile.open(fileobj=io.BytesIO(content), mode="r:")  # noqa: SIM115 - its members are read later
    for entry in archive:
        if entry.isfile() and not _added_by_macos(entry.name):
            yield entry.name, lambda entry=entry: _read_tar(archive, entry)  # type: ignore[misc]


def _read_tar(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
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


def _added_by_macos(name: str) -> bool:
    return name.startswith("__MACOSX/") or _base(name).startswith("._")


def _reason(error: object) -> str:
    text = str(getattr(error, "strerror", None) or error).strip().rstrip(".")
    return text or type(error).__name__
