"""Responses: labels of any kind as a family takes them, and a family for a response of which nothing else is said."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError
from svrhmc.families import family_of
from svrhmc.families.base import Loss
from svrhmc.families.labels import require_shared_classes
from svrhmc.tables.columns import CATEGORY, TRUTH, Column

_EVENTS = ([0.0, 1.0], [-1.0, 1.0])  # numbers that stand for no and yes
_CLASSES, _COUNT = 50, 1000  # most classes of texts that are taken for classes, and largest number taken for a count


class Response(NamedTuple):
    """Labels as numbers, the family, and the classes that they stand for, where they do."""

    y: Array
    loss: Loss
    classes: tuple[Any, ...]
    guessed: str  # why this family, where none was named


def response_of(name: str, column: Column, family: str | Loss | None) -> Response:
    """The labels of a family; one is chosen where it is None, and the reason said."""
    guessed = ""
    if family is None:
        family, guessed = _guess(column)
    loss = family_of(family)
    if loss.most_classes:
        return _classes(name, column, loss, guessed)
    if column.kind == CATEGORY:
        fit = "bernoulli" if len(column.levels) == 2 else "categorical"
        raise DataError(
            f"the response {name!r} holds texts ({', '.join(map(repr, column.levels[:3]))}, …), and the family "
            f"{loss.name!r} needs numbers: the family {fit!r} takes texts as classes."
        )
    return Response(np.asarray(column.values, np.float64), loss, (), guessed)


def _classes(name: str, column: Column, loss: Loss, guessed: str) -> Response:
    """Labels as the numbers of their classes, which are sorted: of two, the last is the event that is modelled."""
    texts = column.kind == CATEGORY  # in the table's order
    classes = np.array(column.levels, object) if texts else np.unique(column.values)
    if len(classes) < 2:
        raise DataError(
            f"the response {name!r} has one class only, {classes[:1].tolist()[0]!r}: there is nothing to tell apart."
        )
    if len(classes) > loss.most_classes:
        shown = ", ".join(map(repr, classes[:4].tolist()))
        instead = "take 'categorical' for classes, 'gaussian' for numbers"
        if loss.most_classes > 2:
            instead = "join some of them" if texts else "take 'gaussian' for numbers"
        raise DataError(
            f"the response {name!r} has {len(classes):,} different values ({shown}, …), and the family {loss.name!r} "
            f"takes {'two' if loss.most_classes == 2 else f'at most {loss.most_classes}'}: {instead}."
        )
    require_shared_classes(len(classes), len(column.values))
    made, levels = loss.with_classes(classes.tolist(), column.ordered or not texts)
    if texts:
        codes = column.codes(tuple(levels))
    else:  # levels may have another order than the numbers
        codes = np.argsort(np.searchsorted(classes, levels))[np.searchsorted(classes, column.values)]
    known = tuple(_plain(each, column.kind) for each in levels)
    return Response(np.asarray(codes, np.float64), made, known, guessed)


def _guess(column: Column) -> tuple[str, str]:
    """A family by what the response holds."""
    if column.kind == TRUTH:
        return "bernoulli", "the response is true or false"
    if column.kind == CATEGORY:
        if len(column.levels) <= 2:
            return "bernoulli", "the response has two classes"
        if len(column.levels) <= _CLASSES:
            order = "; the family 'ordinal' would use their order" if column.ordered else ""
            return "categorical", f"the response has {len(column.levels)} classes{order}"
        raise DataError(f"the response has {len(column.levels):,} different texts: name the family that is meant.")
    values = np.asarray(column.values, np.float64)
    two = np.unique(values) if len(np.unique(values[:1000])) <= 2 else values[:0]
    if two.tolist() in _EVENTS:
        return "bernoulli", f"the response is {two[0]:g} or {two[1]:g}"
    if (values >= 0).all() and (values == np.floor(values)).all() and values.min() == 0 and values.max() <= _COUNT:
        return "poisson", "the response holds counts from 0 on"
    classes = f"; if {two[0]:g} and {two[1]:g} are classes, name the family 'bernoulli'" if len(two) == 2 else ""
    return "gaussian", f"the response holds numbers{classes}"


def _plain(value: Any, kind: str) -> Any:
    return int(value) if kind != CATEGORY and float(value).is_integer() and kind != TRUTH else value
