"""Objects as files, without pickle: settings by the names of their classes, results by the types of their fields.

**Settings** are frozen dataclasses declared with `part`, whose fields are numbers, strings, tuples of these or parts
again. Only declared classes are built from a file, so that a file cannot name other code.

**Results** are frozen dataclasses, written and read by the declared types of their fields: a number, a string, a bool,
an array of float64 or int64, a dict or a tuple of such plain values, a dataclass again, or `Any`, which stands for a
part; each may be None if its type says so. So a new field of these types is saved with the others and needs no line
here; one with the metadata {"saved": False} lives in memory alone, and has its default after reading. What a class
requires beyond that is checked by its method `require_sound`, before anything is written and after anything is read:
what can be saved can be loaded. A file has a format and a version. A file of a later version is refused with an error
that says so; files of earlier versions are read, with the default of a field that they do not have. (cattrs or
pydantic would be a dependency of `import svrhmc`, which loads NumPy alone.)

**Functions** of the user's own can only be pickled (`pickle_functions`); no file of ours holds them.
"""

from __future__ import annotations

import dataclasses
import pickle
import re
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import StorageError, boolean, requirement, whole_number
from svrhmc.core.storage import is_record, read_record, remove_partials, write_record
from svrhmc.core.version import VERSION

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from typing_extensions import TypeIs

Class = TypeVar("Class", bound=type)
Result = TypeVar("Result")
Annotation = object  # of a field, as `typing.get_type_hints` gives it
Settings = dict[str, object]  # plain values and dictionaries of them, as JSON holds them
_PARTS: dict[str, type] = {}
_ARRAYS: dict[object, np.dtype[np.generic]] = {Array: np.dtype(np.float64), Indices: np.dtype(np.int64)}
_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1b\x7f\x80-\x84\x86-\x9f\ud800-\udfff]")


def part(kind: Class) -> Class:
    """Declare that objects of a frozen dataclass can be written and read by the name of their class."""
    registered = _PARTS.get(kind.__name__, kind)
    if (registered.__module__, registered.__qualname__) != (kind.__module__, kind.__qualname__):
        raise requirement(
            "a part", "of a name of its own", kind.__name__, f"{registered.__module__} has one of this name"
        )
    _PARTS[kind.__name__] = kind
    return kind


def is_part(value: object) -> bool:
    """Whether a value is plain, or a declared part whose fields are plain or parts."""
    return _is_plain(value) or (
        _is_declared(value) and all(is_part(getattr(value, field.name)) for field in dataclasses.fields(value))
    )


def to_settings(value: object) -> Settings:
    """A part as plain data."""
    if not _is_declared(value):
        raise requirement("sampler", "made of parts declared with svrhmc.core.serialise.part to be saved", repr(value))
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    plain = {name: field if _is_plain(field) else to_settings(field) for name, field in fields.items()}
    return {"type": type(value).__name__, **plain}


def from_settings(settings: object) -> Any:
    """The part described by plain data; a ValueError if they describe none."""
    if not isinstance(settings, dict) or not isinstance(settings.get("type"), str):
        raise requirement("a part", "a type with its settings", repr(settings)[:60])
    name, values = settings["type"], {key: value for key, value in settings.items() if key != "type"}
    if name not in _PARTS:
        raise requirement("a part", "of a declared type", repr(name), "import the module that defines it")
    allowed = {field.name for field in dataclasses.fields(_PARTS[name]) if field.init}
    unknown = [key for key in values if key not in allowed]
    if unknown:
        fields = ", ".join(sorted(allowed)) or "nothing"
        raise requirement(f"a part {name}", f"made of {fields}", repr(unknown[0][:40]))
    try:
        return _PARTS[name](**{key: _setting(value) for key, value in values.items()})
    except (TypeError, OverflowError) as error:
        raise requirement(f"a part {name}", "made of settings of their kinds", repr(values)[:60], str(error)) from error


def _setting(value: object) -> object:
    """A field of a part: plain, a tuple of plain values, or a part again."""
    if isinstance(value, list) and all(map(_is_plain, value)):
        return tuple(value)
    return from_settings(value) if isinstance(value, dict | list) else value


def _is_declared(value: object) -> TypeIs[DataclassInstance]:
    return _PARTS.get(type(value).__name__) is type(value)


def _is_plain(value: object) -> bool:
    is_scalar = value is None or isinstance(value, bool | int | float | str)
    return is_scalar or (isinstance(value, tuple) and all(map(_is_plain, value)))


def stable_repr(value: object) -> str:
    """The repr of an object without addresses in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def pickle_functions(functions: object) -> bytes:
    """A pickle of functions; by cloudpickle if pickle alone cannot do it."""
    try:
        return pickle.dumps(functions)
    except Exception:  # pickle raises AttributeError, TypeError or PicklingError for functions without a name
        allowed = "defined at the top of a module, so that a pickle can name them"
        try:
            import cloudpickle
        except ModuleNotFoundError:
            why = "a pickle has them by value where cloudpickle is installed: pip install cloudpickle"
            raise requirement("the functions of a pickled model", allowed, "functions without a name", why) from None
        try:
            return bytes(cloudpickle.dumps(functions))
        except Exception as error:
            problem = f"functions that cloudpickle cannot take either ({error})"
            raise requirement("the functions of a pickled model", allowed, problem, "make the model anew") from error


def save(path: Path, value: DataclassInstance, name: str, version: int) -> None:
    """Write a result in one step: after a kill at any moment the file is the old one or the new one."""
    _require_sound(value)
    arrays: dict[str, Values] = {}
    fields = _collect_fields(value, "", arrays)
    remove_partials(path, abandoned=True)
    front = {"format": f"svrhmc-{name}", "version": version, "written_by": VERSION}
    write_record(path, {**front, name: fields}, arrays)


def load(path: Path, kind: type[Result], name: str, version: int) -> Result:
    """Read a file that `save` wrote; anything else is a `StorageError`, and a missing file the system's error."""
    if not is_record(path):
        raise StorageError(f"{path} is not a svrhmc {name}.")
    record = read_record(path)
    if record is None:
        raise FileNotFoundError(path)
    form, written = str(record.settings.get("format")), record.settings.get("version")
    if form != f"svrhmc-{name}":
        actual = form.removeprefix("svrhmc-")[:40]
        raise StorageError(f"{path} is not a svrhmc {name}: it is a {actual}, and not read by {kind.__name__}.load.")
    if type(written) is not int or not 0 < written <= version:
        by = str(record.settings.get("written_by"))[:40]
        raise StorageError(
            f"{path} is a {name} of version {_shorten(written)}, written by svrhmc {by}; this svrhmc ({VERSION}) reads "
            f"versions up to {version}. Load it with that svrhmc, or a later one."
        )
    try:
        value: Result = _read(name, kind, record.settings.get(name), "", record.arrays)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StorageError(f"{path} is not a svrhmc {name}: {str(error).rstrip('.')}.") from error
    return value


def is_text(value: str) -> bool:
    r"""Whether files and pages can hold a text: it has no control characters for terminals, and no lone surrogates.

    >>> is_text("a no-break\u00a0space,\ta tab"), is_text("\x1b[31m"), is_text("\ud800")
    (True, False, False)
    """
    return _NOT_TEXT.search(value) is None


def _collect_fields(value: DataclassInstance, prefix: str, arrays: dict[str, Values]) -> Settings:
    """The fields for JSON; arrays are put into `arrays`, by the path of field names that leads to them."""
    fields: Settings = {}
    for name, kind in _saved_fields(value).items():
        field, path, dtype = getattr(value, name), f"{prefix}{name}", _dtype(kind)
        if field is not None and dtype is not None:
            arrays[path] = field if isinstance(field, np.memmap) else np.asarray(field, dtype)
        elif field is not None and _dataclass(kind) is not None:
            fields[name] = _collect_fields(field, f"{path}.", arrays)
        elif _without_none(kind) is Any:
            fields[name] = None if field is None else to_settings(field)
        else:
            fields[name] = field
    return fields


def _read(name: str, kind: type[Result], fields: object, prefix: str, arrays: Mapping[str, Values]) -> Result:
    """A dataclass from its fields in a file, each of its declared type."""
    if not isinstance(fields, dict):
        raise requirement(name, "what its fields are", _shorten(fields))
    values: Settings = {}
    for field, declared in _saved_fields(kind).items():
        path, inner, dtype = f"{prefix}{field}", _dataclass(declared), _dtype(declared)
        if dtype is not None and path in arrays:
            values[field] = arrays[path]
            if arrays[path].dtype != dtype:
                raise requirement(path, f"an array of {dtype}", arrays[path].dtype)
        elif fields.get(field) is not None and inner is not None:
            values[field] = _read(path, inner, fields[field], f"{path}.", arrays)
        elif field in fields and dtype is None:
            values[field] = _read_plain(path, declared, fields[field])
        elif _may_be_none(declared):
            values[field] = None
        elif field not in _fields_with_default(kind):
            raise requirement(path, "there", "nothing")
    value = kind(**values)
    _require_sound(value)
    return value


def _read_plain(name: str, kind: Annotation, value: object) -> object:
    if value is None and (_may_be_none(kind) or kind is Any):
        return None
    bare = _without_none(kind)
    container, inner = typing.get_origin(bare), typing.get_args(bare)
    if container is dict and isinstance(value, dict):
        return {key: _read_plain(f"{name}[{key[:20]!r}]", inner[1], item) for key, item in value.items()}
    if container in (tuple, list) and isinstance(value, list):
        return container(_read_plain(f"{name}[{k}]", inner[0], item) for k, item in enumerate(value))
    if container in (dict, tuple, list):
        raise requirement(name, "a dict" if container is dict else "a list", _shorten(value))
    if bare is Any:
        return from_settings(value)
    if bare not in _READERS:
        raise requirement(name, "of a kind that is kept in files", bare)
    return _READERS[bare](name, value)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise requirement(name, "a number", _shorten(value))
    return float(value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise requirement(name, "a text", _shorten(value))
    return value


_READERS: dict[Annotation, Callable[[str, object], object]] = {
    bool: boolean, int: lambda name, value: whole_number(name, value, -(1 << 64)), float: _number, str: _text,
}  # fmt: skip


def _saved_fields(kind: object) -> dict[str, Annotation]:
    hints = typing.get_type_hints(kind if isinstance(kind, type) else type(kind))
    saved = [field.name for field in _fields(kind) if field.metadata.get("saved", True)]
    return {name: hints[name] for name in saved}


def _fields(kind: object) -> tuple[dataclasses.Field[object], ...]:
    """The fields of a dataclass, or of an instance of one."""
    return dataclasses.fields(cast("DataclassInstance", kind))


def _fields_with_default(kind: object) -> set[str]:
    none = dataclasses.MISSING
    return {f.name for f in _fields(kind) if f.default is not none or f.default_factory is not none}


def _without_none(kind: Annotation) -> Annotation:
    """The annotation without its None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return next(option for option in typing.get_args(kind) if option is not type(None))
    return kind


def _may_be_none(kind: Annotation) -> bool:
    return type(None) in typing.get_args(kind)


def _dataclass(kind: Annotation) -> type[DataclassInstance] | None:
    """The dataclass that a field holds, or None."""
    bare = _without_none(kind)
    return bare if isinstance(bare, type) and dataclasses.is_dataclass(bare) else None


def _dtype(kind: Annotation) -> np.dtype[np.generic] | None:
    """The dtype of an array field; None for other fields."""
    return _ARRAYS.get(_without_none(kind))


def _require_sound(value: object) -> None:
    if hasattr(value, "require_sound"):
        value.require_sound()


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
