"""Files from their publishers: fetched once, checked before they are kept, kept whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from svrhmc.core.errors import DataError, requirement
from svrhmc.core.storage import write_bytes
from svrhmc.core.version import VERSION
from svrhmc.paper.archives import ArchiveError

T = TypeVar("T")
_SILENCE = 30.0  # seconds without a byte after which a publisher is given up


def cache_folder() -> Path:
    """Where downloads and parsed tables are kept: SVRHMC_CACHE, $XDG_CACHE_HOME/svrhmc or ~/.cache/svrhmc.

    An empty variable counts as unset, and so does a relative XDG_CACHE_HOME, as its standard says.
    """
    given, shared = os.environ.get("SVRHMC_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if given:
        return Path(given)
    if shared and Path(shared).is_absolute():
        return Path(shared) / "svrhmc"
    try:
        return Path.home() / ".cache" / "svrhmc"
    except RuntimeError:
        raise DataError("there is no home folder to keep downloads in: set SVRHMC_CACHE to a folder.") from None


def name_of(url: str) -> str:
    """The name under which a browser would save it.

    >>> name_of("https://a.org/x/airfoil%2Bself+noise.zip")
    'airfoil+self+noise.zip'
    """
    return unquote(urlsplit(url).path).rsplit("/", 1)[-1]


def fetch(urls: tuple[str, ...], accept: Callable[[str, bytes], T]) -> T:
    """What `accept` makes of the published file, from its name and its bytes, at the first of these addresses.

    One that it refuses (`ArchiveError`) is not kept; one kept earlier that it refuses, such as an empty one, is fetched
    again. Where no address has it, the `DataError` says of each why.
    """
    for url in urls:
        try:
            return accept(name_of(url), place_of(url).read_bytes())
        except (OSError, ArchiveError, DataError):
            pass  # not there, or not whole
    reasons = []
    for url in urls:
        try:
            return _fetch(url, accept)
        except DataError as error:
            reasons.append(str(error).rstrip("."))
    raise DataError("; ".join(reasons))


def place_of(url: str) -> Path:
    """Where a download is kept."""
    name = f"{hashlib.sha256(address_of(url).encode()).hexdigest()[:12]}-{name_of(url)}"
    return cache_folder() / "downloads" / name


def _fetch(url: str, accept: Callable[[str, bytes], T]) -> T:
    address, place = address_of(url), place_of(url)
    content = _receive(address)
    try:
        accepted = accept(name_of(url), content)
    except ArchiveError as error:
        raise DataError(f"what {address} sends {error}") from None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, content)
    except OSError as error:
        raise DataError(
            f"the download cannot be saved in {place.parent} ({error.strerror or error}): make room there or make it "
            f"writable, or set SVRHMC_CACHE to another folder"
        ) from None
    return accepted


def address_of(url: str) -> str:
    """The address itself, or its copy on the server that SVRHMC_MIRROR names: MIRROR/host/path."""
    mirror = os.environ.get("SVRHMC_MIRROR")
    if not mirror:
        return url
    return f"{mirror.rstrip('/')}/{url.split('://', 1)[1]}"


def _receive(address: str) -> bytes:
    silence = _silence()
    try:
        request = urllib.request.Request(address, headers={"User-Agent": f"svrhmc/{VERSION}"})
        with urllib.request.urlopen(request, timeout=silence) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{address} answers with HTTP status {error.code} ({error.reason})") from None
    except TimeoutError:
        raise DataError(f"{address} was silent for {silence:g} s") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise DataError(f"{address} was silent for {silence:g} s") from None
        raise DataError(f"{address} cannot be reached ({_reason(error.reason)})") from None
    except http.client.IncompleteRead as error:
        raise DataError(f"{address} ended the connection after {len(error.partial)} bytes, before the end") from None
    except (http.client.HTTPException, OSError) as error:
        raise DataError(f"{address} ended the connection ({_reason(error)})") from None
    except ValueError as error:
        raise DataError(f"{address} is no address ({error})") from None
    return content


def _silence() -> float:
    given = os.environ.get("SVRHMC_TIMEOUT")
    try:
        seconds = float(given) if given else _SILENCE
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:
        raise requirement("SVRHMC_TIMEOUT", "a positive number of seconds", repr(given), kind=DataError)
    return seconds


def _reason(error: object) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__
