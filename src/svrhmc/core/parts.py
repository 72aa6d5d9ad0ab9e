"""The former place of `svrhmc.core.serialise.part`."""

import warnings
from collections.abc import Callable

from svrhmc.core import serialise


def __getattr__(name: str) -> Callable[[type], type]:
    if name != "part":
        raise AttributeError(f"module 'svrhmc.core.parts' has no attribute {name!r}")
    warnings.warn("use svrhmc.core.serialise.part for svrhmc.core.parts.part", DeprecationWarning, stacklevel=2)
    return serialise.part
