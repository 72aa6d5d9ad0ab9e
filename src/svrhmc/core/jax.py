"""JAX, where it is installed: loaded when it is first used, always in double precision, its programs kept in files.

The user's own configuration of JAX is left as it is: all of this holds inside `scope` alone.

JAX asks a cache for each program before it compiles it, and offers it what it compiled. By default there is none. The
one here lies beside the code that numba compiled (`code_cache.py`) and serves what is compiled for this package and
nothing else; where the user has a cache of JAX's own (JAX_COMPILATION_CACHE_DIR), that is used and this is not. JAX's
own would serve the whole process, and trusts whatever is in its folder. Here each file is written in one step, begins
with its checksum and holds its key: one that a kill cut short, of another program, or that somebody else has written
(`is_trusted`) is as good as none. The folder's name holds the processor and the versions, as a program of another
machine need not run here. Files that nobody has used for two months go.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, Protocol, TypeVar

from svrhmc.core import code_cache
from svrhmc.core.storage import read_checked, write_checked

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

Tree = Any  # a pytree: arrays in tuples, lists and dictionaries, nested as whoever made it likes

INSTALL = "install it with: pip install 'svrhmc[jax]'"
_UNUSED = 60 * 86400.0  # seconds
_LAYOUT = 2  # of a file: the key of its program, then the program
_in_scope: ContextVar[bool] = ContextVar("in_scope", default=False)


class ProgramCache(Protocol):
    """What JAX asks for compiled programs: its own `CacheInterface`."""

    def get(self, key: str) -> bytes | None:
        """The program of this key, where there is one."""

    def put(self, key: str, value: bytes) -> None:
        """Keep a program under a key."""


def installed() -> bool:
    """Whether JAX can be loaded."""
    return find_spec("jax") is not None


def load() -> ModuleType:
    """The module `jax`; a clear error where it is not installed."""
    if not installed():
        raise ModuleNotFoundError(f"this needs JAX, which is not installed; {INSTALL}", name="jax")
    return import_module("jax")


@contextmanager
def scope() -> Iterator[None]:
    """Double precision for what happens inside, in this thread; programs that are compiled there are kept in files."""
    with load().enable_x64(True), programs_kept():
        yield


def scoped(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, always called inside `scope`."""

    @wraps(function)
    def inside(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with scope():
            return function(*args, **kwargs)

    return inside


@contextmanager
def programs_kept() -> Iterator[None]:
    """What is compiled inside is kept, however little time that took."""
    before = _in_scope.set(True)
    try:
        if _cache_installed():
            with _whatever_it_took():
                yield
        else:
            yield
    finally:
        _in_scope.reset(before)


def _whatever_it_took() -> AbstractContextManager[None]:
    """A context in which JAX offers the cache every program; otherwise only those that took a second to compile."""
    keep_all: AbstractContextManager[None] = import_module("jax._src.config").persistent_cache_min_compile_time_secs(
        0.0
    )
    return keep_all


@lru_cache(maxsize=1)
def _cache_installed() -> bool:
    """Whether JAX asks the cache here: not where the user has another, nothing can be written, or JAX has changed."""
    folder = code_cache.cache_folder()
    try:
        jax, cache = map(import_module, ("jax", "jax._src.compilation_cache"))
        if folder is None or jax.config.jax_compilation_cache_dir or cache._cache is not None:
            return False
        with _whatever_it_took():
            vars(cache).update(_cache_initialized=True, _cache=_cache_in(folder / f"xla-{_stamp(jax)}", cache))
    except (ImportError, AttributeError, TypeError, OSError):
        return False
    return True


def _stamp(jax: ModuleType) -> str:
    """A digest of the processor, the versions, and the layout of files."""
    llvm = import_module("llvmlite.binding")
    versions = jax.__version__, import_module("jaxlib").__version__
    parts = repr((_LAYOUT, *versions, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _cache_in(folder: Path, cache: ModuleType) -> ProgramCache:
    """A cache in a folder, of the class that JAX wants."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNUSED:
                path.unlink()

    class Programs(cache.CacheInterface):  # type: ignore[misc,name-defined]
        _path = folder

        def get(self, key: str) -> bytes | None:
            """The program of this key; None where there is none, or none that is whole."""
            if not _in_scope.get():
                other = _users_cache(cache)
                return None if other is None else other.get(key)
            path, mark = self._file(key), _mark(key)
            content = read_checked(path, code_cache.is_trusted)
            if content is None or not content.startswith(mark):
                return None
            with suppress(OSError):
                os.utime(path)
            return content[len(mark) :]

        def put(self, key: str, value: bytes) -> None:
            """In one step; a disk that is full keeps nothing."""
            if not _in_scope.get():
                if (other := _users_cache(cache)) is not None:
                    other.put(key, value)
                return
            try:
                write_checked(self._file(key), _mark(key) + value)
            except OSError as error:
                code_cache.note_failure(error)

        def _file(self, key: str) -> Path:
            return folder / _mark(key).hex()[:40]

    return Programs()


def _mark(key: str) -> bytes:
    """The first bytes of a file, which say whose program it holds."""
    return hashlib.sha256(key.encode()).digest()


def _users_cache(cache: ModuleType) -> ProgramCache | None:
    """JAX's own cache, where the user has asked for one since."""
    path = cache.config.compilation_cache_dir.value
    return None if not path else _file_cache(cache, path)


@lru_cache(maxsize=4)
def _file_cache(cache: ModuleType, path: str) -> ProgramCache:
    file_cache: ProgramCache = cache.get_file_cache(path)[0]
    return file_cache
