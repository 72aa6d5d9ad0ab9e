"""Results as files: frozen dataclasses written and read by what their fields are declared to be.

A field is a number, a text, True or False, an array of float64 or int64, a dict or a tuple of such plain values, a
dataclass again, or `Any`, which stands for a part (`svrhmc.core.parts`); each may be None where it says so. So a new
field of these kinds is saved with the others and needs no line here; one with the metadata {"saved": False} lives in
memory alone, and has its default after it was read. What a class demands beyond that it says in
`require_sound`, which is asked before anything is written and after anything is read: what can be saved can be loaded.

A file has a format and a version. A file of a later version is refused, and says so; those of earlier versions are
read, with the default of a field that they do not have.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import StorageError, requirement, truth, whole
from svrhmc.core.parts import from_settings, to_settings
from svrhmc.core.storage import is_record, read_record, remove_partials, write_record
from svrhmc.core.version import VERSION

Result = TypeVar("Result")
_ARRAYS: dict[Any, np.dtype[Any]] = {Array: np.dtype(np.float64), Indices: np.dtype(np.int64)}


def save(path: Path, value: Any, name: str, version: int) -> None:
    """Write a result in one step: a kill at any moment leaves the old file or the new one."""
    _require_sound(value)
    arrays: dict[str, npt.NDArray[Any]] = {}
    said = _said(value, "", arrays)
    remove_partials(path, abandoned=True)
    front = {"format": f"svrhmc-{name}", "version": version, "written_by": VERSION}
    write_record(path, {**front, name: said}, arrays)


def load(path: Path, kind: type[Result], name: str, version: int) -> Result:
    """Read what `save` wrote; anything else is a `StorageError`, and that there is no file the system's error."""
    if not is_record(path):
        raise StorageError(f"{path} is not a svrhmc {name}.")
    record = read_record(path)
    if record is None:
        raise FileNotFoundError(path)
    found, written = str(record.said.get("format")), record.said.get("version")
    if found != f"svrhmc-{name}":
        what = found.removeprefix("svrhmc-")[:40]
        raise StorageError(f"{path} is not a svrhmc {name}: it is a {what}, and not read by {kind.__name__}.load.")
    if type(written) is not int or not 0 < written <= version:
        by = str(record.said.get("written_by"))[:40]
        raise StorageError(
            f"{path} is a {name} of version {_short(written)}, written by svrhmc {by}; this svrhmc ({VERSION}) reads "
            f"versions up to {version}. Load it with that svrhmc, or a later one."
        )
    try:
        value: Result = _value(name, kind, record.said.get(name), "", record.arrays)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StorageError(f"{path} is not a svrhmc {name}: {str(error).rstrip('.')}.") from error
    return value


def _said(value: Any, place: str, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """The fields that are no arrays, as JSON takes them; arrays go by the names of the fields that lead to them."""
    said: dict[str, Any] = {}
    for name, kind in _fields(value).items():
        field, here = getattr(value, name), f"{place}{name}"
        if field is not None and _array_kind(kind) is not None:
            arrays[here] = field if isinstance(field, np.memmap) else np.asarray(field, _array_kind(kind))
        elif field is not None and _inner(kind) is not None:
            said[name] = _said(field, f"{here}.", arrays)
        elif _bare(kind) is Any:
            said[name] = None if field is None else to_settings(field)
        else:
            said[name] = field
    return said


def _value(name: str, kind: type[Any], said: Any, place: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    """A dataclass from what is said of it, each field of the kind that it is declared to be."""
    if not isinstance(said, dict):
        raise requirement(name, "what its fields are", _short(said))
    defaults = {field.name for field in dataclasses.fields(kind) if _has_default(field)}
    given: dict[str, Any] = {}
    for field, wanted in _fields(kind).items():
        here, inner, array = f"{place}{field}", _inner(wanted), _array_kind(wanted)
        if array is not None and here in arrays:
            given[field] = arrays[here]
            if arrays[here].dtype != array:
                raise requirement(here, f"an array of {array}", arrays[here].dtype)
        elif said.get(field) is not None and inner is not None:
            given[field] = _value(here, inner, said[field], f"{here}.", arrays)
        elif field in said and array is None:
            given[field] = _plain(here, wanted, said[field])
        elif _may_be_none(wanted):
            given[field] = None
        elif field not in defaults:
            raise requirement(here, "there", "nothing")
    value = kind(**given)
    _require_sound(value)
    return value


def _plain(name: str, kind: Any, value: Any) -> Any:
    if value is None and (_may_be_none(kind) or kind is Any):
        return None
    bare = _bare(kind)
    if typing.get_origin(bare) in (dict, tuple, list):
        return _several(name, bare, value)
    if bare is Any:
        return from_settings(value)
    if bare not in _READERS:
        raise requirement(name, "of a kind that is kept in files", bare)
    return _READERS[bare](name, value)


def _several(name: str, kind: Any, value: Any) -> Any:
    many, inner = typing.get_origin(kind), typing.get_args(kind)
    if many is dict and isinstance(value, dict):
        return {key: _plain(f"{name}[{key[:20]!r}]", inner[1], each) for key, each in value.items()}
    if many is not dict and isinstance(value, list):
        return many(_plain(f"{name}[{k}]", inner[0], each) for k, each in enumerate(value))
    raise requirement(name, "a dict" if many is dict else "a list", _short(value))


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise requirement(name, "a number", _short(value))
    return float(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise requirement(name, "a text", _short(value))
    return value


def is_text(value: str) -> bool:
    r"""Whether files and pages can hold it: any signs but those that steer a terminal, and halves of signs.

    >>> is_text("a no-break\u00a0space,\ta tab"), is_text("\x1b[31m"), is_text("\ud800")
    (True, False, False)
    """
    return _NO_TEXT.search(value) is None


_NO_TEXT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\x80-\x84\x86-\x9f\ud800-\udfff]")


_READERS: dict[Any, Any] = {
    bool: truth, int: lambda name, value: whole(name, value, -(1 << 64)), float: _number, str: _text,
}  # fmt: skip


def _fields(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind if isinstance(kind, type) else type(kind))
    saved = [field.name for field in dataclasses.fields(kind) if field.metadata.get("saved", True)]
    return {name: hints[name] for name in saved}


def _bare(kind: Any) -> Any:
    """What it is where it is not None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind


def _may_be_none(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _inner(kind: Any) -> Any:
    """The dataclass that a field holds, or None."""
    bare = _bare(kind)
    return bare if isinstance(bare, type) and dataclasses.is_dataclass(bare) else None


def _array_kind(kind: Any) -> np.dtype[Any] | None:
    """The type of an array's numbers; None for what is no array."""
    return _ARRAYS.get(_bare(kind))


def _has_default(field: Any) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _require_sound(value: Any) -> None:
    if hasattr(value, "require_sound"):
        value.require_sound()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
