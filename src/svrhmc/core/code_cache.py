"""Compiled code in files, so that each machine compiles once: the folder they are in, and the files of numba's code.

The folder is the first of these that can be written: that of NUMBA_CACHE_DIR; the package's own; this user's caches
(`user_caches`). Where none can be written, code is compiled anew by each process, and one line says so.

Whoever writes such a file decides what this process does. So a file counts only where this user, root, or the owner of
the package's own folder has written it, and nobody else can (`is_trusted`).

numba's own cache has an index beside its files and numbers them. Two processes that compile at once can give one number
to two things, a kill between index and file can leave old code under a new name, an index cut short is an error for
ever, and so is a disk that is full. Here the name of a file says all that its code depends on: the function, the text
of all compiled code (`stamp`), the versions, and a digest of numba's key (types of the arguments, processor). The file
begins with its checksum and holds its key again; one that is not as it should be is as good as none, and is written
anew.

One function can take 20 s to compile, and nothing of that can be kept on the way. So work that was interrupted once,
and may be again, has its code compiled by a process of its own (`compiling_apart`), which a kill of this one does not
end: it holds a lock, for which the next process waits.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from glob import escape
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

from svrhmc.core.storage import read_checked, remove_partials, write_checked

if TYPE_CHECKING:
    from numba.core.compiler import CompileResult


Types = Iterable[object]  # numba's, of the arguments of a function
Function = TypeVar("Function", bound="Dispatcher")
Key = tuple[object, ...]  # those types with the processor and digests of sources

_PACKAGE = Path(__file__).resolve().parent.parent
_OWN_FOLDER = _PACKAGE / "kernels" / "__pycache__"
_ROOM = 1 << 26  # bytes that have to be free
_LOCK_PERIOD = 0.05  # seconds between two looks at a lock
_COMPILE = """
import pickle, sys
sys.path[:], module, name, types = pickle.load(sys.stdin.buffer)
getattr(__import__(module, fromlist=[name]), name).compile(pickle.loads(types))
"""
_apart = [0]  # calls under way whose code is compiled by another process
_failure = ""  # why compiled code could not be kept, where there is a folder
_warned = False


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """Where compiled code is kept; None where nothing can be written. Looked for once in a process."""
    return next(filter(_usable, _candidates()), None)


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named)
    yield _OWN_FOLDER
    yield from (folder / "compiled" for folder in user_caches())


def user_caches() -> Iterator[Path]:
    """Where this user's caches may be, the first choice first: SVRHMC_CACHE, $XDG_CACHE_HOME/svrhmc, ~/.cache/svrhmc.

    An empty variable counts as unset, and so does a relative XDG_CACHE_HOME, as its standard says.
    """
    own, shared = os.environ.get("SVRHMC_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        yield Path(own).absolute()
    if shared and Path(shared).is_absolute():
        yield Path(shared) / "svrhmc"
    with suppress(RuntimeError):  # a user without a home
        home = Path.home()
        if home.is_absolute():
            yield home / ".cache" / "svrhmc"


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free > _ROOM
    except OSError:
        return False


def is_trusted(status: os.stat_result) -> bool:
    """Whether a file can only have been written by those whose code this process runs anyway."""
    return status.st_uid in _owners() and not status.st_mode & stat.S_IWOTH


def _owners() -> set[int]:
    """This user, root, and the owner of the package."""
    return {os.getuid() if hasattr(os, "getuid") else 0, 0, _PACKAGE.stat().st_uid}


def note_failure(error: OSError) -> None:
    """Compiled code could not be kept; `warn_if_not_kept` says so when it is called next."""
    global _failure
    _failure = error.strerror or str(error)


def warn_if_not_kept(stream: TextIO | None = None) -> None:
    """Say once that compiled code is not kept, and what to do."""
    global _warned
    out, folder = stream or sys.stderr, cache_folder()
    if _warned or out is None or (folder is not None and not _failure):
        return
    _warned = True
    why = "there is no folder to keep compiled code in" if folder is None else f"{folder} cannot be used ({_failure})"
    out.write(f"svrhmc: {why}, so each process compiles again; set SVRHMC_CACHE to a folder that can be written to.\n")


@contextmanager
def compiling_apart() -> Iterator[None]:
    """Within this, code is compiled by another process, which outlives this one."""
    _apart[0] += 1
    try:
        yield
    finally:
        _apart[0] -= 1


def stamp_of(texts: Iterable[Path]) -> str | None:
    """A digest of all texts that are compiled, and of what compiles them; None where compiled code is not kept."""
    if not _numba_uses_folder():
        return None
    from numba import __version__ as numba_version

    total = hashlib.sha256(f"{numba_version} {sys.version}".encode())
    for path in sorted(texts):
        total.update(path.name.encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _numba_uses_folder() -> bool:
    """Let numba keep the code of this package in the folder; False where there is none."""
    folder = cache_folder()
    if folder is None:
        return False
    if folder == _OWN_FOLDER or os.environ.get("NUMBA_CACHE_DIR") == str(folder):
        return True  # as numba does by itself
    try:
        caching = import_module("numba.core.caching")
        locators: list[type] = caching.CacheImpl._locator_classes
        locator = _locator(caching, folder)
        if all(other.__name__ != locator.__name__ for other in locators):
            locators.insert(0, locator)
    except (ImportError, AttributeError):  # another numba
        return False
    return True


class Dispatcher(Protocol):
    """A function that numba compiles for each types of arguments it is called with."""

    py_func: FunctionType
    _cache: object


class Codegen(Protocol):
    """What numba compiles for: a processor."""

    def codegen(self) -> object:
        """The generator of code for it."""


def _locator(caching: ModuleType, folder: Path) -> type:
    """numba's way to ask where the code of a function is kept, which answers for this package alone."""

    class OfThisPackage(caching.UserWideCacheLocator):  # type: ignore[misc,name-defined]
        def __init__(self, function: FunctionType, file: str) -> None:
            self._py_file, self._lineno = file, function.__code__.co_firstlineno
            name = hashlib.sha256(str(Path(file).resolve().parent).encode()).hexdigest()[:16]
            self._cache_path = str(folder / name)

        @classmethod
        def from_function(cls, function: FunctionType, file: str) -> OfThisPackage | None:
            """None for code of others."""
            if not Path(file).resolve().is_relative_to(_PACKAGE):
                return None
            locator: OfThisPackage | None = super().from_function(function, file)
            return locator

    return OfThisPackage


def keep(dispatcher: Function, stamp: str) -> Function:
    """Let a compiled function look for its code in files before it compiles, and keep there what it compiles."""
    caching = import_module("numba.core.caching")

    class Cache(caching.FunctionCache):  # type: ignore[misc,name-defined]
        def __init__(self, function: FunctionType) -> None:
            super().__init__(function)
            self._cache_file = Files(Path(self._cache_path), self._impl.filename_base, stamp)

        def _index_key(self, sig: Types, codegen: object) -> Key:
            """With the texts of families from outside, which the stamp does not cover."""
            return (*super()._index_key(sig, codegen), *sorted(_foreign_digests(sig)))

        def load_overload(self, sig: Types, target_context: Codegen) -> CompileResult | None:
            """From its file, which another process makes first where that is asked for."""
            loaded: CompileResult | None = super().load_overload(sig, target_context)
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
                note_failure(error)

    dispatcher._cache = Cache(dispatcher.py_func)
    return dispatcher


class Files:
    """The files of one function."""

    def __init__(self, folder: Path, name: str, stamp: str) -> None:
        self._folder, self._name, self._stamp = folder, name, stamp

    def load(self, key: Key) -> object:
        """The compiled code that was saved under this key; None where there is none, or none that is whole."""
        content = read_checked(self._path(key), is_trusted)
        if content is None:
            return None
        try:
            saved_key, data = pickle.loads(content)
        except Exception:  # made with another release of something that numba keeps objects of
            return None
        return data if saved_key == key else None

    def save(self, key: Key, data: object) -> None:
        """Write compiled code in one step, and remove that of older sources."""
        content: bytes = import_module("numba.core.serialize").dumps((key, data))
        write_checked(self._path(key), content)
        remove_partials(self._path(key), abandoned=True)
        self.lock(key).unlink(missing_ok=True)
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            if not path.name.startswith(f"{self._name}.{self._stamp}."):
                with suppress(OSError):
                    path.unlink()

    def lock(self, key: Key) -> Path:
        """A file that is locked while the code of this key is compiled by a process of its own."""
        return self._path(key).with_suffix(".lock")

    def flush(self) -> None:
        """Remove all of them."""
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            path.unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        return self._folder / f"{self._name}.{self._stamp}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"


def _foreign_digests(types: Types) -> Iterator[str]:
    """Digests of the modules that have the named tuples among some types, but for those of this package."""
    for kind in types:
        yield from _foreign_digests(getattr(kind, "types", ()))
        module = getattr(getattr(kind, "instance_class", None), "__module__", __name__)
        if not module.startswith("svrhmc."):
            file = getattr(sys.modules.get(module), "__file__", None)
            text = Path(file).read_bytes() if file else f"{os.getpid()} {time.time_ns()}".encode()
            yield hashlib.sha256(text).hexdigest()


def _compile_apart(dispatcher: Dispatcher, types: Types, lock: Path) -> None:
    """Have a function compiled for these types of arguments by a process of its own, and wait for it.

    Where that is not possible nothing happens, and whoever asked compiles it.
    """
    function = dispatcher.py_func
    with suppress(ImportError, OSError, pickle.PicklingError, TypeError, AttributeError):
        blob = import_module("numba.core.serialize").dumps(types)
        job = pickle.dumps((sys.path, function.__module__, function.__name__, blob))
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if _locked(handle):
                child = subprocess.Popen(
                    [sys.executable, "-c", _COMPILE], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(handle,),
                )  # fmt: skip
                with child:
                    child.communicate(job)
            else:
                while not _locked(handle):  # the child of a process that was killed has it
                    time.sleep(_LOCK_PERIOD)
            lock.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _locked(handle: int) -> bool:
    """Lock a file, unless another process has done so; a child that has this handle keeps the lock."""
    fcntl = import_module("fcntl")  # not on Windows
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
