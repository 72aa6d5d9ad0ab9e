"""Compiled code in files: one for each function and each kind of arguments, whole or not there.

numba keeps an index beside its files and numbers them. Two processes that compile at once can give one number to two
things, a kill between index and file can leave old code under a new name, an index cut short is an error for ever, and
so is a disk that is full. Here the name of a file says all that its code depends on: the function, the text of all
compiled code (`stamp`), the versions, and a digest of numba's key (types of the arguments, processor). The file begins
with its checksum and holds its key again; one that is not as it should be is as good as none, and is written anew.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from svrhmc.core import caching
from svrhmc.core.storage import read_checked, remove_partials, write_checked


def stamp_of(texts: Iterable[Path]) -> str:
    """A digest of these files, which are all that is compiled, and of what compiles them."""
    from numba import __version__ as numbas

    total = hashlib.sha256(f"{numbas} {sys.version}".encode())
    for path in sorted(texts):
        total.update(path.name.encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def keep(dispatcher: Any, stamp: str) -> Any:
    """Let a compiled function look for its code in files before it compiles, and keep there what it compiles."""
    numbas: Any = import_module("numba.core.caching")

    class Cache(numbas.FunctionCache):  # type: ignore[misc]
        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self._cache_file = Files(Path(self._cache_path), self._impl.filename_base, stamp)

        @contextmanager
        def _guard_against_spurious_io_errors(self) -> Iterator[None]:
            """Code that cannot be kept is there all the same."""
            try:
                yield
            except OSError as error:
                caching.note(error.strerror or str(error))

    dispatcher._cache = Cache(dispatcher.py_func)
    return dispatcher


class Files:
    """The files of one function."""

    def __init__(self, folder: Path, name: str, stamp: str) -> None:
        self._folder, self._name, self._stamp = folder, name, stamp

    def load(self, key: Any) -> Any:
        """What was saved under this key; None where there is nothing, or nothing whole."""
        content = read_checked(self._path(key))
        if content is None:
            return None
        try:
            found, data = pickle.loads(content)
        except Exception:  # made with another release of something that numba keeps objects of
            return None
        return data if found == key else None

    def save(self, key: Any, data: Any) -> None:
        """In one step; what older texts were compiled to goes."""
        content: bytes = import_module("numba.core.serialize").dumps((key, data))
        write_checked(self._path(key), content)
        remove_partials(self._path(key), abandoned=True)
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            if not path.name.startswith(f"{self._name}.{self._stamp}."):
                with suppress(OSError):
                    path.unlink()

    def flush(self) -> None:
        """Nothing is there any more."""
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        return self._folder / f"{self._name}.{self._stamp}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"
