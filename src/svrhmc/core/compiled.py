"""Compiled code in files: one for each function and each kind of arguments, whole or not there.

numba keeps an index beside its files and numbers them. Two processes that compile at once can give one number to two
things, a kill between index and file can leave old code under a new name, an index cut short is an error for ever, and
so is a disk that is full. Here the name of a file says all that its code depends on: the function, the text of all
compiled code (`stamp`), the versions, and a digest of numba's key (types of the arguments, processor). The file begins
with its checksum and holds its key again; one that is not as it should be is as good as none, and is written anew.

One function can take 20 s to compile, and nothing of that can be kept on the way. So work that was interrupted once,
and may be again, has its code compiled by a process of its own (`apart`), which a kill of this one does not end: it
holds a lock, for which the next process waits.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from svrhmc.core import caching
from svrhmc.core.storage import read_checked, remove_partials, write_checked

_apart = [0]  # calls under way whose code is compiled by another process
_PERIOD = 0.05  # seconds between two looks at a lock
_COMPILES = """
import pickle, sys
sys.path[:], module, name, types = pickle.load(sys.stdin.buffer)
getattr(__import__(module, fromlist=[name]), name).compile(pickle.loads(types))
"""


@contextmanager
def apart() -> Iterator[None]:
    """Within this, code is compiled by another process, which outlives this one."""
    _apart[0] += 1
    try:
        yield
    finally:
        _apart[0] -= 1


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

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            """With the texts of families from outside, which the stamp does not know."""
            return (*super()._index_key(sig, codegen), *sorted(_outside(sig)))

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            """From its file, which another process makes first where that is asked for."""
            loaded = super().load_overload(sig, target_context)
            if loaded is None and _apart[0]:
                key = self._index_key(sig, target_context.codegen())
                _compile_apart(dispatcher, sig, self._cache_file.lock(key))
                loaded = super().load_overload(sig, target_context)
            return loaded

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
        content = read_checked(self._path(key), caching.is_trusted)
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
        self.lock(key).unlink(missing_ok=True)
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            if not path.name.startswith(f"{self._name}.{self._stamp}."):
                with suppress(OSError):
                    path.unlink()

    def lock(self, key: Any) -> Path:
        """A file that is locked while the code of this key is compiled by a process of its own."""
        return self._path(key).with_suffix(".lock")

    def flush(self) -> None:
        """Nothing is there any more."""
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            path.unlink(missing_ok=True)

    def _path(self, key: Any) -> Path:
        return self._folder / f"{self._name}.{self._stamp}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"


def _outside(types: Iterable[Any]) -> Iterator[str]:
    """Digests of the modules that have the named tuples among some types, but for those of this package."""
    for kind in types:
        yield from _outside(getattr(kind, "types", ()))
        module = getattr(getattr(kind, "instance_class", None), "__module__", __name__)
        if not module.startswith("svrhmc."):
            file = getattr(sys.modules.get(module), "__file__", None)
            text = Path(file).read_bytes() if file else f"{os.getpid()} {time.time_ns()}".encode()
            yield hashlib.sha256(text).hexdigest()


def _compile_apart(dispatcher: Any, types: Any, lock: Path) -> None:
    """Have a function compiled for these types of arguments by a process of its own, and wait for it.

    Where that is not possible nothing happens, and whoever asked compiles it.
    """
    function = dispatcher.py_func
    with suppress(ImportError, OSError, pickle.PicklingError, TypeError, AttributeError):
        blob = import_module("numba.core.serialize").dumps(types)
        given = pickle.dumps((sys.path, function.__module__, function.__name__, blob))
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if _locked(handle):
                child = subprocess.Popen(
                    [sys.executable, "-c", _COMPILES], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(handle,),
                )  # fmt: skip
                with child:
                    child.communicate(given)
            else:
                while not _locked(handle):  # the child of a process that was killed has it
                    time.sleep(_PERIOD)
            lock.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _locked(handle: int) -> bool:
    """Lock a file, unless another process has done so; a child that has this handle keeps the lock."""
    fcntl: Any = import_module("fcntl")  # not on Windows
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
