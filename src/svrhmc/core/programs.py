"""Programs that XLA compiled, in files, so that no process compiles again what another has compiled.

JAX asks a cache for each program before it compiles it, and offers it what it compiled. By default there is none. The
one here lies beside the code that numba compiled (`caching.py`) and serves what is compiled for this package, inside
`jaxed.scope`, and nothing else; where the user has a cache of JAX's own (JAX_COMPILATION_CACHE_DIR), that is used and
this is not. Each file is written in one step, begins with its checksum and holds its key: one that a kill cut short, of
another program, or that somebody else has written (`caching.is_trusted`) is as good as none. The folder's name holds
the processor and the versions, as a program of another machine need not run here. Files that nobody has used for two
months go.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from svrhmc.core import caching
from svrhmc.core.storage import read_checked, write_checked

_UNUSED = 60 * 86400.0  # seconds
_LAYOUT = 2  # of a file: the key of its program, then the program
_own: ContextVar[bool] = ContextVar("own", default=False)  # whether what is compiled belongs to this package


@contextmanager
def kept() -> Iterator[None]:
    """What is compiled inside is kept, whatever compiling it took."""
    keeping = _at_any_price if _installed() else nullcontext
    before = _own.set(True)
    try:
        with keeping():
            yield
    finally:
        _own.reset(before)


def _at_any_price() -> Any:
    """Else JAX offers only what took a second."""
    return import_module("jax._src.config").persistent_cache_min_compile_time_secs(0.0)


@lru_cache(maxsize=1)
def _installed() -> bool:
    """Whether JAX asks the cache here: not where the user has another, nothing can be written, or JAX has changed."""
    folder = caching.place()
    try:
        jax, asked, states = map(import_module, ("jax", "jax._src.compilation_cache", "jax._src.config"))
        if folder is None or jax.config.jax_compilation_cache_dir or asked._cache is not None:
            return False
        with states.persistent_cache_min_compile_time_secs(0.0):
            vars(asked).update(_cache_initialized=True, _cache=_made(folder / f"xla-{_stamp(jax)}", asked))
    except (ImportError, AttributeError, TypeError, OSError):
        return False
    return True


def _stamp(jax: Any) -> str:
    """A digest of the processor, the versions, and the layout of files."""
    llvm = import_module("llvmlite.binding")
    versions = jax.__version__, import_module("jaxlib").__version__
    told = repr((_LAYOUT, *versions, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _made(folder: Path, asked: Any) -> Any:
    """The cache, of the class that JAX wants."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNUSED:
                path.unlink()

    class Programs(asked.CacheInterface):  # type: ignore[misc]
        _path = folder

        def get(self, key: str) -> bytes | None:
            """The program of this key; None where there is none, or none that is whole."""
            other = _of_user(asked)
            if not _own.get():
                return None if other is None else other.get(key)
            content, mark = read_checked(self._place(key), caching.is_trusted), _mark(key)
            if content is None or not content.startswith(mark):
                return None
            with suppress(OSError):
                os.utime(self._place(key))
            return content[len(mark) :]

        def put(self, key: str, value: bytes) -> None:
            """In one step; a disk that is full keeps nothing."""
            other = _of_user(asked)
            if _own.get():
                try:
                    write_checked(self._place(key), _mark(key) + value)
                except OSError as error:
                    caching.note(error.strerror or str(error))
            elif other is not None:
                other.put(key, value)

        def _place(self, key: str) -> Path:
            return folder / _mark(key).hex()[:40]

    return Programs()


def _mark(key: str) -> bytes:
    """By which a file says whose program it holds."""
    return hashlib.sha256(key.encode()).digest()


def _of_user(asked: Any) -> Any:
    """JAX's own cache, where the user has asked for one since."""
    path = asked.config.compilation_cache_dir.value
    return None if not path else _file_cache(asked, path)


@lru_cache(maxsize=4)
def _file_cache(asked: Any, path: str) -> Any:
    return asked.get_file_cache(path)[0]
