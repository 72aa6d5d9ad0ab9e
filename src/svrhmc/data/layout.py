"""From the columns of a table to the rows of a model, the same for every partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError, nearest, requirement, truth
from svrhmc.targets.reading import Block

MOST_LEVELS = 1000
_LONGEST = 400  # bytes of a category or a label
_SMALL = {"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"}  # types that float32 holds exactly


@dataclass(frozen=True)
class Feature:
    """A column of numbers; or of categories, with one list of levels for all partitions, of which the first has no
    column of its own.
    """

    name: str
    levels: tuple[Any, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of X that it makes."""
        return (self.name,) if self.levels is None else tuple(f"{self.name}[{level}]" for level in self.levels[1:])


@dataclass(frozen=True)
class Layout:
    """Which column is y, which are features, offset and weights, and whether a column of ones comes first."""

    target: str
    features: tuple[Feature, ...]
    offset: str | None
    weights: str | None
    intercept: bool
    dtype: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns of X."""
        first = ("Intercept",) if self.intercept else ()
        return first + tuple(name for feature in self.features for name in feature.names)

    @property
    def columns(self) -> list[str]:
        """Of the table, that are read."""
        more = [name for name in (self.offset, self.weights) if name is not None]
        return [self.target, *(feature.name for feature in self.features), *more]

    def block(self, first: int, columns: Mapping[str, Any], where: str) -> Block:
        """Some rows of a partition."""
        y = labels(columns[self.target], self.target, first, where)
        X = np.empty((len(self.names), len(y)), self.dtype).T  # column by column, as it comes
        place = 0
        if self.intercept:
            X[:, 0] = 1.0
            place = 1
        for feature in self.features:
            width, column = len(feature.names), columns[feature.name]
            if feature.levels is None:
                X[:, place] = numbers(array_of(column, feature.name, first, where), feature.name, first, where)
            else:
                X[:, place : place + width] = _indicators(column, feature, first, where)
            place += width
        more = [
            None if name is None else numbers(array_of(columns[name], name, first, where), name, first, where)
            for name in (self.offset, self.weights)
        ]
        if more[1] is not None and (more[1] < 0).any():
            row = int(np.argmax(more[1] < 0))
            raise DataError(f"{where}, row {first + row}: the weight in {self.weights!r} is below 0.")
        return Block(first, X, y, *(None if each is None else each.astype(np.float64) for each in more))


@dataclass(frozen=True)
class Columns:
    """Which columns of a table are used how, and the kind of each of the table's."""

    kinds: Mapping[str, str]
    target: str
    features: tuple[str, ...]
    offset: str | None
    weights: str | None
    intercept: bool

    @property
    def names(self) -> list[str]:
        """Of all that are used."""
        return [name for name in (self.target, *self.features, self.offset, self.weights) if name is not None]

    def laid_out(self, kinds: Mapping[str, str], levels: Mapping[str, Sequence[Any]]) -> Layout:
        """From the type of each column ("float32", "int64", "bool", "text", …) and the levels of those with texts."""
        for name in self.features:
            if kinds[name] == "other":
                raise DataError(f"the column {name!r} holds neither numbers nor texts; leave it out of features.")
            if kinds[name] == "text" and len(levels[name]) < 2:
                raise DataError(f"the column {name!r} has one level everywhere, which says nothing; leave it out.")
        numeric = [kinds[name] for name in self.features if kinds[name] != "text"]
        small = "float32" in numeric and all(kind in _SMALL for kind in numeric)
        made = tuple(Feature(name, tuple(levels[name]) if kinds[name] == "text" else None) for name in self.features)
        return Layout(self.target, made, self.offset, self.weights, self.intercept, "float32" if small else "float64")


def chosen_columns(
    kinds: Mapping[str, str],
    target: str,
    features: Sequence[str] | None,
    offset: str | None,
    weights: str | None,
    intercept: bool,
) -> Columns:
    """Columns by name, of a table that has them; where no features are named, every other column is one."""
    special = [name for name in (target, offset, weights) if name is not None]
    if isinstance(features, str):
        raise requirement("features", "a list of names, or None", repr(features))
    chosen = [name for name in kinds if name not in special] if features is None else list(features)
    for name in (*special, *chosen):
        if name not in kinds:
            hint = nearest(str(name), list(kinds), 0.6) or f"there are {', '.join(list(kinds)[:8])}."
            raise DataError(f"there is no column {name!r}; {hint}")
    if len(set(chosen)) != len(chosen) or set(chosen) & set(special):
        raise requirement("features", "different columns, none of them the target, the offset or the weights", chosen)
    if not chosen and not intercept:
        raise requirement("features", "at least one column", "none")
    return Columns(kinds, target, tuple(chosen), offset, weights, truth("intercept", intercept))


def agreed_levels(name: str, known: Sequence[Any]) -> list[Any]:
    """One list of levels for all partitions, in order, from those of each; None stands for too many."""
    if any(each is None for each in known) or len(union := np.unique(np.concatenate(known))) > MOST_LEVELS:
        raise DataError(f"the column {name!r} has more than {MOST_LEVELS} levels; leave it out of features.")
    return list(union.tolist())


def array_of(values: Any, name: str, first: int, where: str) -> npt.NDArray[Any]:
    """A column in NumPy; missing values are refused, with their row."""
    if hasattr(values, "null_count"):  # pyarrow's
        if values.null_count:
            row = int(np.argmax(np.asarray(values.is_null())))
            raise _absent(where, first + row, name)
        if not _has_dictionary(values):
            return np.asarray(values.to_numpy(zero_copy_only=False))
        different = np.array(_different(values, name, where), object)
        return different[np.asarray(values.indices)] if len(different) else different
    found = np.asarray(values)
    if found.dtype == object or hasattr(values, "isna"):
        absent = (
            np.asarray(values.isna()) if hasattr(values, "isna") else np.array([v is None or v != v for v in found])
        )
        if absent.any():
            raise _absent(where, first + int(np.argmax(absent)), name)
    return found


def labels(values: Any, name: str, first: int, where: str) -> npt.NDArray[Any]:
    """A column of labels: numbers, or texts of one type."""
    found = array_of(values, name, first, where)
    if found.dtype.kind == "f" and not (fine := np.isfinite(found)).all():
        raise _absent(where, first + int(np.argmin(fine)), name)
    if found.dtype.kind not in "OT":
        return found
    require_short(max(map(len, filter(lambda value: isinstance(value, str), found)), default=0), name, where)
    return found.astype(str)


def words(values: Any, name: str, first: int, where: str) -> npt.NDArray[Any]:
    """The different texts of a column, in order."""
    if not _has_dictionary(values) or values.null_count:
        return np.unique(labels(values, name, first, where))
    used = np.unique(np.asarray(values.indices))
    different = _different(values, name, where)
    return np.unique(np.array([different[place] for place in used], str)) if len(used) else np.zeros(0, "<U1")


def _has_dictionary(values: Any) -> bool:
    """Whether a column of pyarrow has a list of its different values, and their numbers."""
    return str(getattr(values, "type", "")).startswith("dictionary")


def _different(values: Any, name: str, where: str) -> list[Any]:
    """The values in such a list, none of them longer than a name can be: one may stand in very many rows."""
    from pyarrow import compute, types

    kind = values.dictionary.type
    if types.is_string(kind) or types.is_large_string(kind):
        require_short(compute.max(compute.binary_length(values.dictionary)).as_py() or 0, name, where)
    try:
        listed: list[Any] = values.dictionary.to_pylist()
    except UnicodeDecodeError:
        raise DataError(f"{where}: the column {name!r} has a text that is not in UTF-8.") from None
    return listed


def require_short(longest: int, name: str, where: str) -> None:
    """Refuse a text that is no name, of which an array would take as much for every row."""
    if longest > _LONGEST:
        raise DataError(
            f"{where}: the column {name!r} has a text of {longest:,} bytes, and a category or a label has at most "
            f"{_LONGEST}: leave that column out, or shorten its texts."
        )


def numbers(values: npt.NDArray[Any], name: str, first: int, where: str) -> Array:
    """A column of numbers; whether they are finite is seen in a pass."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"{where}, rows from {first} on: the column {name!r} has no numbers but {values.dtype}.")
    return values


def _indicators(column: Any, feature: Feature, first: int, where: str) -> Array:
    assert feature.levels is not None
    if _has_dictionary(column) and not column.null_count:  # each text is looked up once
        numbered = {level: k for k, level in enumerate(feature.levels)}
        different = _different(column, feature.name, where)
        places = np.array([numbered.get(text, -1) for text in different], np.int64)[np.asarray(column.indices)]
        row = int(np.argmin(places)) if len(places) else 0
        unknown = different[column.indices[row].as_py()] if len(places) and places[row] < 0 else None
    else:
        values, known = array_of(column, feature.name, first, where), np.array(feature.levels)
        texts = values.astype(known.dtype) if values.dtype.kind in "OT" else values
        order = np.argsort(known, kind="stable")
        places = order[np.minimum(np.searchsorted(known[order], texts), len(known) - 1)]
        row = int(np.argmin(known[places].astype(object) == values)) if len(places) else 0
        unknown = values[row] if len(places) and known[places[row]] != values[row] else None
    if unknown is not None:
        raise DataError(
            f"{where}, row {first + row}, column {feature.name!r}: the category {unknown!r} was not there before; "
            "open the data again."
        )
    return np.asarray(places[:, None] == np.arange(1, len(feature.levels)), np.float64)


def _absent(where: str, row: int, name: str) -> DataError:
    return DataError(
        f"{where}, row {row}, column {name!r}: a missing value. Fill such values in, or leave these rows out."
    )
