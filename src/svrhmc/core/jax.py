"""JAX, an optional dependency: loaded when it is first used, in double precision, with its programs cached in files.

The user's own configuration of JAX is not changed: all of this holds inside `scope` alone.

JAX can ask a cache for each program before it compiles it, and store there what it compiled; by default it has none.
The cache here is a folder beside that of numba's code (`code_cache.py`), and only serves programs of this package. If
the user has a cache of JAX's own (JAX_COMPILATION_CACHE_DIR), that is used instead. JAX's own would serve the whole
process, and trusts whatever is in its folder. Here each file is written in one step, begins with its checksum and holds
its key: a file that a kill truncated, of another program, or that somebody else has written (`is_trusted`) is ignored.
The folder's name has a digest of the processor and the versions, since a program need not run on another machine. Files
that were not used for two months are removed.
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

Tree = Any  # a pytree: arrays in tuples, lists and dictionaries, nested in any way

INSTALL = "install it with: pip install 'svrhmc[jax]'"
_UNUSED = 60 * 86400.0  # seconds
_LAYOUT = 2  # the version of the layout of a file: the digest of its program's key, then the program
_in_scope: ContextVar[bool] = ContextVar("in_scope", default=False)


class ProgramCache(Protocol):
    """A cache of compiled programs as JAX expects it, its own `CacheInterface`."""

    def get(self, key: str) -> bytes | None:
        """The program of this key; None if there is none."""

    def put(self, key: str, value: bytes) -> None:
        """Store a program under a key."""


def is_installed() -> bool:
    """Whether JAX can be loaded."""
    return find_spec("jax") is not None


def load_jax() -> ModuleType:
    """The module `jax`; an error that says how to install it if it is missing."""
    if not is_installed():
        raise ModuleNotFoundError(f"this needs JAX, which is not installed; {INSTALL}", name="jax")
    return import_module("jax")


@contextmanager
def scope() -> Iterator[None]:
    """Within this, in this thread, JAX has double precision, and programs that it compiles are kept in files."""
    with load_jax().enable_x64(True), keep_programs():
        yield


def scoped(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, always called inside `scope`."""

    @wraps(function)
    def inside(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with scope():
            return function(*args, **kwargs)

    return inside


@contextmanager
def keep_programs() -> Iterator[None]:
    """Within this, compiled programs are kept in files, however little time they took to compile."""
    before = _in_scope.set(True)
    try:
        if _cache_installed():
            with _keep_quick_programs():
                yield
        else:
            yield
    finally:
        _in_scope.reset(before)


def _keep_quick_programs() -> AbstractContextManager[None]:
    """A context in which JAX caches every program; otherwise only those that took a second to compile."""
    keep_all: AbstractContextManager[None] = import_module("jax._src.config").persistent_cache_min_compile_time_secs(
        0.0
    )
    return keep_all


@lru_cache(maxsize=1)
def _cache_installed() -> bool:
    """Whether JAX uses the cache of this module: not if the user has another, no folder is writable, or this version
    of JAX does not have the internals that are needed.
    """
    folder = code_cache.cache_folder()
    try:
        jax, cache = map(import_module, ("jax", "jax._src.compilation_cache"))
        if folder is None or jax.config.jax_compilation_cache_dir or cache._cache is not None:
            return False
        with _keep_quick_programs():
            vars(cache).update(_cache_initialized=True, _cache=_cache_in(folder / f"xla-{_stamp(jax)}", cache))
    except (ImportError, AttributeError, TypeError, OSError):
        return False
    return True


def _stamp(jax: ModuleType) -> str:
    """A digest of the processor, the versions, and the layout of the files."""
    llvm = import_module("llvmlite.binding")
    versions = jax.__version__, import_module("jaxlib").__version__
    parts = repr((_LAYOUT, *versions, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _cache_in(folder: Path, cache: ModuleType) -> ProgramCache:
    """A cache in a folder, of the class that JAX expects."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNUSED:
                path.unlink()

    class Programs(cache.CacheInterface):  # type: ignore[misc,name-defined]
        _path = folder

        def get(self, key: str) -> bytes | None:
            """The program of this key; None if there is none, or its file is damaged."""
            if not _in_scope.get():
                users_cache = _users_cache(cache)
                return None if users_cache is None else users_cache.get(key)
            path, digest = self._file(key), _key_digest(key)
            content = read_checked(path, code_cache.is_trusted)
            if content is None or not content.startswith(digest):
                return None
            with suppress(OSError):
                os.utime(path)
            return content[len(digest) :]

        def put(self, key: str, value: bytes) -> None:
            """Write a program in one step; on a full disk it is not kept."""
            if not _in_scope.get():
                if (users_cache := _users_cache(cache)) is not None:
                    users_cache.put(key, value)
                return
            try:
                write_checked(self._file(key), _key_digest(key) + value)
            except OSError as error:
                code_cache.note_failure(error)

        def _file(self, key: str) -> Path:
            return folder / _key_digest(key).hex()[:40]

    return Programs()


def _key_digest(key: str) -> bytes:
    """The first bytes of the file of a program, by which its key is recognised."""
    return hashlib.sha256(key.encode()).digest()


def _users_cache(cache: ModuleType) -> ProgramCache | None:
    """JAX's own cache, if the user has configured one by now."""
    path = cache.config.compilation_cache_dir.value
    return None if not path else _file_cache(cache, path)


@lru_cache(maxsize=4)
def _file_cache(cache: ModuleType, path: str) -> ProgramCache:
    file_cache: ProgramCache = cache.get_file_cache(path)[0]
    return file_cache
