"""Where compiled code is kept between runs, so that each machine compiles once.

In this order: the folder that NUMBA_CACHE_DIR names; the package's own, where it can be written; SVRHMC_CACHE,
$XDG_CACHE_HOME/svrhmc and ~/.cache/svrhmc. An empty variable counts as unset, and so does a relative XDG_CACHE_HOME, as
its standard says. Where none can be written, code is compiled anew by each process, and one line says so.

Whoever writes such a file says what this process does. So a file counts only where this user, root, or the owner of the
package's own folder has written it, and nobody else can (`is_trusted`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

_PACKAGE = Path(__file__).resolve().parent.parent
_ROOM = 1 << 26  # bytes free, with which a place is one
_HOMES = ("XDG_CACHE_HOME", "MPLCONFIGDIR")  # where others write
_instead: tempfile.TemporaryDirectory[str] | None = None  # of a home that cannot be written
_told = False
_failed = ""  # why compiled code could not be kept, where a place was found


def candidates() -> Iterator[Path]:
    """Folders in the order in which they are tried, after the one of NUMBA_CACHE_DIR."""
    yield _PACKAGE / "kernels" / "__pycache__"
    given, shared = os.environ.get("SVRHMC_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if given:
        yield Path(given).absolute() / "compiled"
    if shared and Path(shared).is_absolute():
        yield Path(shared) / "svrhmc" / "compiled"
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        return
    if home.is_absolute():
        yield home / ".cache" / "svrhmc" / "compiled"


@lru_cache(maxsize=1)
def place() -> Path | None:
    """Where compiled code is kept; None where nothing can be written. Found once for a process."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return next((folder for folder in [*([Path(given)] if given else []), *candidates()] if _usable(folder)), None)


def keep_compiled() -> bool:
    """Let numba keep compiled code of this package in its place; False where there is none."""
    folder = place()
    if folder is None:
        return False
    if folder == _PACKAGE / "kernels" / "__pycache__" or os.environ.get("NUMBA_CACHE_DIR") == str(folder):
        return True  # as numba does by itself
    try:
        from numba.core import caching

        known: list[Any] = caching.CacheImpl._locator_classes
        kind = _locator(caching, folder)
        if all(each.__name__ != kind.__name__ for each in known):
            known.insert(0, kind)
    except (ImportError, AttributeError):  # another numba
        return False
    return True


def is_trusted(status: os.stat_result) -> bool:
    """Whether a file can only have been written by those whose code this process runs anyway."""
    return status.st_uid in _owners() and not status.st_mode & stat.S_IWOTH


def _owners() -> set[int]:
    """This user, root, and the owner of the package."""
    return {os.getuid() if hasattr(os, "getuid") else 0, 0, _PACKAGE.stat().st_uid}


def tell(stream: TextIO | None = None) -> None:
    """Say once that compiled code is not kept, and what to do."""
    global _told
    out = sys.stderr if stream is None else stream
    folder = place()
    if _told or out is None or (folder is not None and not _failed):
        return
    _told = True
    why = "there is no folder to keep compiled code in" if folder is None else f"{folder} cannot be used ({_failed})"
    out.write(f"svrhmc: {why}, so each process compiles again; set SVRHMC_CACHE to a folder that can be written to.\n")


def note(why: str) -> None:
    """Compiled code could not be kept; `tell` says so when it is called next."""
    global _failed
    _failed = why


@contextmanager
def writable_home() -> Iterator[None]:
    """Where the user's home cannot be written, let libraries that write there when they are imported, and fail where
    they cannot, write into a folder that goes with the process.
    """
    global _instead
    before = {name: os.environ.get(name) for name in _HOMES}
    if not os.access(os.path.expanduser("~"), os.W_OK | os.X_OK):
        _instead = _instead or tempfile.TemporaryDirectory(prefix="svrhmc-")
        os.environ.update({name: _instead.name for name, value in before.items() if not value})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free > _ROOM
    except OSError:
        return False


def _locator(caching: Any, folder: Path) -> Any:
    """numba's way to ask where the code of a function is kept, which answers for this package alone."""

    class OfThisPackage(caching.UserWideCacheLocator):  # type: ignore[misc]
        def __init__(self, function: Any, file: str) -> None:
            self._py_file, self._lineno = file, function.__code__.co_firstlineno
            name = hashlib.sha256(str(Path(file).resolve().parent).encode()).hexdigest()[:16]
            self._cache_path = str(folder / name)

        @classmethod
        def from_function(cls, function: Any, file: str) -> Any:
            """None for code of others."""
            if not Path(file).resolve().is_relative_to(_PACKAGE):
                return None
            return super().from_function(function, file)

    return OfThisPackage
