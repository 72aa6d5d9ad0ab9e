"""JAX, where it is installed: loaded when it is first used, and always in double precision.

The user's own configuration of JAX is left as it is: double precision holds inside `scope` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

from svrhmc.core.programs import kept

Given = ParamSpec("Given")
Found = TypeVar("Found")

INSTALL = "install it with: pip install 'svrhmc[jax]'"


def installed() -> bool:
    """Whether JAX can be loaded."""
    return find_spec("jax") is not None


def load() -> Any:
    """The module `jax`; a clear error where it is not installed."""
    if not installed():
        raise ModuleNotFoundError(f"this needs JAX, which is not installed; {INSTALL}", name="jax")
    return import_module("jax")


@contextmanager
def scope() -> Iterator[None]:
    """Double precision for what happens inside, in this thread; programs that are compiled there are kept in files."""
    with load().enable_x64(True), kept():
        yield


def scoped(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """The function, always called inside `scope`."""

    @wraps(function)
    def inside(*args: Given.args, **kwargs: Given.kwargs) -> Found:
        with scope():
            return function(*args, **kwargs)

    return inside
