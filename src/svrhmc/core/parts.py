"""Settings that can be written to a file: frozen dataclasses known by name, whose fields are numbers, texts or parts.

What reads a file builds only what was declared with `part`, so that a file names no other code.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, TypeVar

from svrhmc.core.errors import requirement

Kind = TypeVar("Kind", bound=type)
_KINDS: dict[str, type] = {}


def part(kind: Kind) -> Kind:
    """Declare that objects of a frozen dataclass can be written and read by the name of their class."""
    known = _KINDS.get(kind.__name__, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise requirement("a part", "of a name of its own", kind.__name__, f"{known.__module__} has one of this name")
    _KINDS[kind.__name__] = kind
    return kind


def is_part(value: Any) -> bool:
    """Whether it can be written, with all the parts in it."""
    if value is None or isinstance(value, bool | int | float | str):
        return True
    known = _KINDS.get(type(value).__name__) is type(value)
    return known and all(is_part(getattr(value, field.name)) for field in fields(value))


def described(value: Any) -> str:
    """Its repr, without the place in memory that Python writes for objects which have none of their own."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def to_settings(value: Any) -> dict[str, Any]:
    """A part as plain data."""
    if _KINDS.get(type(value).__name__) is not type(value):
        raise requirement("sampler", "made of parts declared with svrhmc.core.parts.part to be saved", repr(value))
    names = [field.name for field in fields(value)]  # type: ignore[arg-type]
    return {"type": type(value).__name__, **{name: _plain(getattr(value, name)) for name in names}}


def from_settings(settings: Any) -> Any:
    """The part that plain data describe; anything else is a ValueError."""
    if not isinstance(settings, dict) or not isinstance(settings.get("type"), str):
        raise requirement("a part", "a type with its settings", repr(settings)[:60])
    name = settings["type"]
    if name not in _KINDS:
        raise requirement("a part", "one that is known here", repr(name), "import the module that defines it")
    known = {field.name for field in fields(_KINDS[name]) if field.init}
    given = {key: value for key, value in settings.items() if key != "type"}
    unknown = [key for key in given if key not in known]
    if unknown:
        raise requirement(f"a part {name}", "made of " + (", ".join(sorted(known)) or "nothing"), repr(unknown[0][:40]))
    try:
        return _KINDS[name](**{key: from_settings(v) if isinstance(v, dict | list) else v for key, v in given.items()})
    except (TypeError, OverflowError) as error:
        raise requirement(f"a part {name}", "made of settings of their kinds", repr(given)[:60], str(error)) from error


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else to_settings(value)
