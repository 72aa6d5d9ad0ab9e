"""The former place of `svrhmc.core.serialise.part`."""

from collections.abc import Callable

from svrhmc.core import serialise
from svrhmc.core.errors import deprecated


def __getattr__(name: str) -> Callable[[type], type]:
    if name != "part":
        raise AttributeError(f"module 'svrhmc.core.parts' has no attribute {name!r}")
    deprecated("svrhmc.core.parts.part", "svrhmc.core.serialise.part")
    return serialise.part
