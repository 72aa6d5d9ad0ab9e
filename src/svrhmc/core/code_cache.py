"""Compiled code in files, so that each machine compiles once: the folder for them, and the files of numba's code.

The folder is the first of these that is writable: NUMBA_CACHE_DIR; the package's own; this user's caches
(`user_caches`). If none is, each process compiles anew, and prints one line that says so.

Whoever writes such a file decides what this process runs. So a file is used only if this user, root, or the owner of
the package's own folder has written it, and nobody else can (`is_trusted`).

numba's own cache numbers its files and has an index of them. Two processes that compile at once can give one number to
two functions, a kill between index and file can leave old code under a new name, and a truncated index or a full disk
is a permanent error. Here the name of a file has everything that its code depends on: the function, a digest of the
source of all compiled code (`stamp`), the versions, and a digest of numba's key (types of the arguments, processor).
The file begins with its checksum and holds its key again; one that is damaged is ignored and written anew.

One function can take 20 s to compile, and a kill loses all of that. So if work was interrupted once, and may be again,
its code is compiled by a subprocess (`compile_in_subprocess`) that outlives this process: it holds a lock, for which
the next process waits.
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
_LEAST_FREE_BYTES = 1 << 26
_LOCK_PERIOD = 0.05  # seconds between two attempts to lock
_COMPILE = """
import pickle, sys
sys.path[:], module, name, types = pickle.load(sys.stdin.buffer)
getattr(__import__(module, fromlist=[name]), name).compile(pickle.loads(types))
"""
_subprocess_calls = [0]  # how many `compile_in_subprocess` are under way
_failure = ""  # why compiled code could not be written to the folder
_warned = False


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """The folder for compiled code; None if none is writable. Determined once in a process."""
    return next(filter(_is_writable, _candidates()), None)


def _candidates() -> Iterator[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named)
    yield _OWN_FOLDER
    yield from (folder / "compiled" for folder in user_caches())


def user_caches() -> Iterator[Path]:
    """Folders for this user's caches, in order of preference: SVRHMC_CACHE, $XDG_CACHE_HOME/svrhmc, ~/.cache/svrhmc.

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


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free > _LEAST_FREE_BYTES
    except OSError:
        return False


def is_trusted(status: os.stat_result) -> bool:
    """Whether only users whose code this process runs anyway can have written a file."""
    return status.st_uid in _trusted_owners() and not status.st_mode & stat.S_IWOTH


def _trusted_owners() -> set[int]:
    """This user, root, and the owner of the package."""
    return {os.getuid() if hasattr(os, "getuid") else 0, 0, _PACKAGE.stat().st_uid}


def note_failure(error: OSError) -> None:
    """Remember why compiled code could not be written, for the next `warn_if_not_kept`."""
    global _failure
    _failure = error.strerror or str(error)


def warn_if_not_kept(stream: TextIO | None = None) -> None:
    """Print once that compiled code is not kept, and what to do."""
    global _warned
    out, folder = stream or sys.stderr, cache_folder()
    if _warned or out is None or (folder is not None and not _failure):
        return
    _warned = True
    why = "there is no folder to keep compiled code in" if folder is None else f"{folder} cannot be used ({_failure})"
    out.write(f"svrhmc: {why}, so each process compiles again; set SVRHMC_CACHE to a folder that can be written to.\n")


@contextmanager
def compile_in_subprocess() -> Iterator[None]:
    """Within this, code is compiled by a subprocess, which outlives this process."""
    _subprocess_calls[0] += 1
    try:
        yield
    finally:
        _subprocess_calls[0] -= 1


def source_digest(texts: Iterable[Path]) -> str | None:
    """A digest of all source that is compiled, and of the compiler's version; None if compiled code is not kept."""
    if not _numba_uses_folder():
        return None
    from numba import __version__ as numba_version

    total = hashlib.sha256(f"{numba_version} {sys.version}".encode())
    for path in sorted(texts):
        total.update(path.name.encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def _numba_uses_folder() -> bool:
    """Let numba keep the code of this package in the folder; False if there is no folder."""
    folder = cache_folder()
    if folder is None:
        return False
    if folder == _OWN_FOLDER or os.environ.get("NUMBA_CACHE_DIR") == str(folder):
        return True  # numba uses it by itself
    try:
        caching = import_module("numba.core.caching")
        locators: list[type] = caching.CacheImpl._locator_classes
        locator = _locator(caching, folder)
        if all(other.__name__ != locator.__name__ for other in locators):
            locators.insert(0, locator)
    except (ImportError, AttributeError):  # another version of numba
        return False
    return True


class Dispatcher(Protocol):
    """A function that numba compiles for the types of the arguments it is called with."""

    py_func: FunctionType
    _cache: object


class Codegen(Protocol):
    """The processor that numba compiles for."""

    def codegen(self) -> object:
        """The generator of code for it."""


def _locator(caching: ModuleType, folder: Path) -> type:
    """A class by which numba finds the folder for a function's code, for functions of this package alone."""

    class OfThisPackage(caching.UserWideCacheLocator):  # type: ignore[misc,name-defined]
        def __init__(self, function: FunctionType, file: str) -> None:
            self._py_file, self._lineno = file, function.__code__.co_firstlineno
            name = hashlib.sha256(str(Path(file).resolve().parent).encode()).hexdigest()[:16]
            self._cache_path = str(folder / name)

        @classmethod
        def from_function(cls, function: FunctionType, file: str) -> OfThisPackage | None:
            """None for functions of other packages."""
            if not Path(file).resolve().is_relative_to(_PACKAGE):
                return None
            locator: OfThisPackage | None = super().from_function(function, file)
            return locator

    return OfThisPackage


def keep_in_files(dispatcher: Function, stamp: str) -> Function:
    """Let a function look for its compiled code in files before it is compiled, and write there what is compiled."""
    caching = import_module("numba.core.caching")

    class Cache(caching.FunctionCache):  # type: ignore[misc,name-defined]
        def __init__(self, function: FunctionType) -> None:
            super().__init__(function)
            self._cache_file = CodeFiles(Path(self._cache_path), self._impl.filename_base, stamp)

        def _index_key(self, sig: Types, codegen: object) -> Key:
            """With the source of families of other packages, which the stamp does not cover."""
            return (*super()._index_key(sig, codegen), *sorted(_outside_module_digests(sig)))

        def load_overload(self, sig: Types, target_context: Codegen) -> CompileResult | None:
            """From its file, which a subprocess makes first within `compile_in_subprocess`."""
            loaded: CompileResult | None = super().load_overload(sig, target_context)
            if loaded is None and _subprocess_calls[0]:
                key = self._index_key(sig, target_context.codegen())
                _compile_in_subprocess(dispatcher, sig, self._cache_file.lock(key))
                loaded = super().load_overload(sig, target_context)
            return loaded

        @contextmanager
        def _guard_against_spurious_io_errors(self) -> Iterator[None]:
            """Compiled code is used even if it cannot be written."""
            try:
                yield
            except OSError as error:
                note_failure(error)

    dispatcher._cache = Cache(dispatcher.py_func)
    return dispatcher


class CodeFiles:
    """The files with the compiled code of one function."""

    def __init__(self, folder: Path, name: str, stamp: str) -> None:
        self._folder, self._name, self._stamp = folder, name, stamp

    def load(self, key: Key) -> object:
        """The compiled code that was saved under this key; None if there is none, or the file is damaged."""
        content = read_checked(self._path(key), is_trusted)
        if content is None:
            return None
        try:
            saved_key, data = pickle.loads(content)
        except Exception:  # pickled with another release of a library whose objects numba stores
            return None
        return data if saved_key == key else None

    def save(self, key: Key, data: object) -> None:
        """Write compiled code in one step, and remove files of older source."""
        content: bytes = import_module("numba.core.serialize").dumps((key, data))
        write_checked(self._path(key), content)
        remove_partials(self._path(key), abandoned=True)
        self.lock(key).unlink(missing_ok=True)
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            if not path.name.startswith(f"{self._name}.{self._stamp}."):
                with suppress(OSError):
                    path.unlink()

    def lock(self, key: Key) -> Path:
        """The file that is locked while a subprocess compiles the code of this key."""
        return self._path(key).with_suffix(".lock")

    def flush(self) -> None:
        """Remove all of them."""
        for path in self._folder.glob(f"{escape(self._name)}.*nb?"):
            path.unlink(missing_ok=True)

    def _path(self, key: Key) -> Path:
        return self._folder / f"{self._name}.{self._stamp}.{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.nbc"


def _outside_module_digests(types: Types) -> Iterator[str]:
    """Digests of the modules that define the named tuples among some types, without modules of this package."""
    for kind in types:
        yield from _outside_module_digests(getattr(kind, "types", ()))
        module = getattr(getattr(kind, "instance_class", None), "__module__", __name__)
        if not module.startswith("svrhmc."):
            file = getattr(sys.modules.get(module), "__file__", None)
            text = Path(file).read_bytes() if file else f"{os.getpid()} {time.time_ns()}".encode()
            yield hashlib.sha256(text).hexdigest()


def _compile_in_subprocess(dispatcher: Dispatcher, types: Types, lock: Path) -> None:
    """Let a subprocess compile a function for these types of arguments, and wait for it.

    If that is not possible nothing happens, and the caller compiles it.
    """
    function = dispatcher.py_func
    with suppress(ImportError, OSError, pickle.PicklingError, TypeError, AttributeError):
        blob = import_module("numba.core.serialize").dumps(types)
        job = pickle.dumps((sys.path, function.__module__, function.__name__, blob))
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if _try_lock(handle):
                child = subprocess.Popen(
                    [sys.executable, "-c", _COMPILE], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, start_new_session=True, pass_fds=(handle,),
                )  # fmt: skip
                with child:
                    child.communicate(job)
            else:
                while not _try_lock(handle):  # the child of a process that was killed has it
                    time.sleep(_LOCK_PERIOD)
            lock.unlink(missing_ok=True)
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    """Lock a file; False if another process holds the lock. A child process that has this handle keeps the lock."""
    fcntl = import_module("fcntl")  # not on Windows
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
