"""How labels of any kind are coded for a family, and the family of a response if none was named."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError
from svrhmc.families import FAMILIES, family_of
from svrhmc.families.base import Loss
from svrhmc.families.labels import require_shared_classes
from svrhmc.tables.columns import CATEGORY, NUMBER, TRUTH, Column
from svrhmc.tables.formula import quote_name
from svrhmc.tables.surv import SURV

_EVENT_CODES = ([0.0, 1.0], [-1.0, 1.0])  # numbers that stand for no and yes
_CLASSES, _COUNT = 50, 1000  # most classes of texts that are taken for classes, and largest number taken for a count
_YES = frozenset(("1", "yes", "y", "true", "t", "on", "ja", "j", "oui", "o", "si", "sí", "s", "sim"))
_NO = frozenset(("0", "no", "n", "false", "f", "off", "nein", "non", "não"))
_MOST_STEPS = 10  # largest number that may be a step of a scale from 1 on
Ends = tuple[float, float, bool]  # of numbers: the least, the largest, and whether all are whole


class Response(NamedTuple):
    """How a response is modelled.

    loss: the family. levels: the labels in the order of their codes 0, 1, …; None if labels are numbers. classes: the
    levels as they are shown. guessed: why this family was chosen, if none was named. notes: what a user should know
    about how labels were read.
    """

    loss: Loss
    levels: tuple[Any, ...] | None
    classes: tuple[Any, ...]
    guessed: str
    notes: tuple[str, ...] = ()

    def codes(self, column: Column) -> Array:
        """The labels of a column, coded as numbers for the family."""
        return np.asarray(column.values if self.levels is None else column.codes(self.levels), np.float64)


def read_response(
    name: str,
    column: Column,
    family: str | Loss | None,
    rows: int | None = None,
    ends: Ends | None = None,
    survival: bool = False,
) -> Response:
    """How the labels of a column are coded. If the family is None, one is chosen, and the reason given.

    rows, ends: the number of rows and the range of numbers, for a column whose rows are in partitions. survival:
    whether the column is `Surv(time, event)`.
    """
    if survival:
        return _censored_response(name, column, family, ends)
    guessed = ""
    if family is None:
        family, guessed = _guess_family(name, column, ends)
    loss = family_of(family)
    if loss.most_classes:
        return _class_response(name, column, loss, guessed, len(column.values) if rows is None else rows)
    if column.kind == CATEGORY:
        fit = "bernoulli" if len(column.levels) == 2 else "categorical"
        raise DataError(
            f"the response {name!r} holds texts ({', '.join(map(repr, column.levels[:3]))}, …), and the family "
            f"{loss.name!r} needs numbers: the family {fit!r} takes texts as classes."
        )
    least = _range(column, ends)[0]
    if loss.signed:
        if least <= 0:
            raise DataError(
                f"the response {name!r} must hold times above 0 for the family {loss.name!r}; the least is {least:g}: "
                "give rows that end at once half of the shortest time, or leave them out."
            )
        guessed = "every time is taken as one that ended in the event; Surv(time, event) says which were censored"
    return Response(loss, None, (), guessed, tuple(filter(None, [loss.remark(least)])))


def _censored_response(name: str, column: Column, family: str | Loss | None, ends: Ends | None) -> Response:
    """The response of times that may be censored: +time or −time, or bounds."""
    bounds = column.values if np.ndim(column.values) == 2 else None
    usual = "gaussian" if bounds is not None and not name.startswith(SURV) else "weibull"
    loss = family_of(usual if family is None else family)
    taken = loss.with_censoring() if bounds is None else loss.with_bounds()
    if taken is None:
        able = [made().with_censoring if bounds is None else made().with_bounds for made in FAMILIES.values()]
        allowed = ", ".join(repr(known) for known, some in zip(FAMILIES, able, strict=True) if some() is not None)
        what = "times that may be censored" if bounds is None else "bounds"
        hint = "; numbers with limits are cens(y, lower=…, upper=…)" if loss.identity_link and bounds is None else ""
        raise DataError(
            f"the response {name!r} holds {what}, and the family {loss.name!r} takes none: take one of {allowed}{hint}."
        )
    if bounds is not None:
        return Response(taken, None, (), "; ".join([*_reason_for_family(name, family, loss), _bounds_in_words(bounds)]))
    if _range(column, ends)[1] < 0:
        raise DataError(
            f"in {name!r} every time is censored, and nothing tells how long it takes until the event: look at which "
            "value of the event column stands for it."
        )
    reasons = _reason_for_family(name, family, loss)
    if ends is None:
        reasons.append(f"{int((column.values < 0).sum()):,} of {len(column.values):,} times are censored")
    return Response(taken, None, (), "; ".join(reasons))


def _reason_for_family(name: str, family: str | Loss | None, loss: Loss) -> list[str]:
    response = name.partition("(")[0]
    return [f"the response is {response}(…), and no family was named: {loss.name!r} is taken"] if family is None else []


def _bounds_in_words(bounds: Array) -> str:
    """How many rows have which kind of bounds, in words."""
    low, high, lb, ub = bounds.T
    number, above = low == high, high == math.inf
    below = (low == -math.inf) | ((low == 0) & ~number & ~above)
    kinds = {
        "known": number, "censored on the right": above, "censored on the left": below,
        "known up to an interval": ~(number | above | below), "truncated": (lb > -math.inf) | (ub < math.inf),
    }  # fmt: skip
    return f"of {len(bounds):,} rows " + ", ".join(
        f"{some.sum():,} are {kind}" for kind, some in kinds.items() if some.any()
    )


def _range(column: Column, ends: Ends | None) -> tuple[float, float]:
    """The smallest and the largest number of a column."""
    if ends is not None:
        return ends[0], ends[1]
    values = np.asarray(column.values, np.float64)
    return float(values.min()), float(values.max())


def _class_response(name: str, column: Column, loss: Loss, guessed: str, rows: int) -> Response:
    """The response of classes, sorted or in the order of the table. Of two, the last is the event that is modelled."""
    texts, classes = column.kind == CATEGORY, column.distinct()
    if len(classes) == 1:
        raise DataError(f"the response {name!r} has one class only, {classes[0]!r}: there is nothing to tell apart.")
    if not classes or len(classes) > loss.most_classes:
        count = f"{len(classes):,} different values ({', '.join(map(repr, classes[:4]))}, …)"
        instead = (
            _spelling_advice(name, classes)
            or "take 'categorical' for classes, 'ordinal' for ordered ones, 'gaussian' for numbers"
        )
        if loss.most_classes > 2:
            instead = "join some of them" if texts else "take 'gaussian' for numbers"
        raise DataError(
            f"the response {name!r} has {count if classes else 'very many different values'}, and the family "
            f"{loss.name!r} takes {'two' if loss.most_classes == 2 else f'at most {loss.most_classes}'}: {instead}."
        )
    require_shared_classes(len(classes), rows)
    loss, levels = loss.with_classes(list(classes), column.ordered or not texts)
    shown = tuple(plain_label(level, column.kind) for level in levels)
    return Response(loss, tuple(levels), shown, guessed, _note_on_unused_levels(name, column))


def _note_on_unused_levels(name: str, column: Column) -> tuple[str, ...]:
    """A note on levels that the table declares and no row has."""
    if not column.unused:
        return ()
    listed = ", ".join(map(repr, column.unused[:4])) + (", …" if len(column.unused) > 4 else "")
    return (f"{name} has levels that are in no row ({listed}): the model has no class for them, nor have predictions",)


def _spelling_advice(name: str, levels: Sequence[object]) -> str:
    """What to do about several spellings of yes and no; "" for a response of anything else.

    >>> _spelling_advice("churn", ["Y", "no", "yes"])
    "write {churn in ['Y', 'yes']} before the '~' of the formula"
    """
    plainly = {level: str(level).strip().casefold() for level in levels}
    yes = [level for level, word in plainly.items() if word in _YES]
    if len(levels) <= 2 or not set(plainly.values()) <= _YES | _NO or not 0 < len(yes) < len(levels):
        return ""
    return f"write {{{quote_name(name)} in {yes!r}}} before the '~' of the formula"


def _odd_among_spellings(name: str, column: Column) -> str:
    """What to say of a response whose rows mostly spell yes and no in several ways, but not all; "" of others."""
    words = {level: str(level).strip().casefold() for level in column.levels}
    spelled = [level for level, word in words.items() if word in _YES | _NO]
    used = {words[level] for level in spelled}
    whole_words = {len(word) > 1 for word in used & _YES} and any(len(word) > 1 for word in used)
    if len(spelled) <= 2 or not used & _YES or not used & _NO or not whole_words:
        return ""
    places = column.codes(column.levels)
    rows = {level: int((places == k).sum()) for k, level in enumerate(column.levels)}
    odd = {level: count for level, count in rows.items() if level not in spelled}
    if len(places) and 2 * sum(odd.values()) >= len(places):
        return ""
    listed = ", ".join(f"{level!r} in {count:,} row{'s' if count > 1 else ''}" for level, count in [*odd.items()][:8])
    more = f" and {len(odd) - 8} more" if len(odd) > 8 else ""
    return (
        f"the response {name!r} spells yes and no in {len(spelled)} ways, and holds other texts too ({listed}{more}): "
        f"leave these rows out or say what they mean, then {_spelling_advice(name, spelled)}. If these are classes of "
        "their own, name the family 'categorical'."
    )


def _guess_family(name: str, column: Column, ends: Ends | None) -> tuple[str, str]:
    """The name of a family that suits the response, and the reason."""
    if column.kind == TRUTH:
        return "bernoulli", "the response is true or false"
    if column.kind == CATEGORY:
        if len(column.levels) <= 2:
            return "bernoulli", "the response has two classes"
        if spelling := _spelling_advice(name, column.levels):
            listed = ", ".join(map(repr, column.levels[:8])) + (", …" if len(column.levels) > 8 else "")
            raise DataError(
                f"the response {name!r} spells yes and no in {len(column.levels)} ways ({listed}): {spelling}. If "
                "these are classes of their own, name the family 'categorical'."
            )
        if odd := _odd_among_spellings(name, column):
            raise DataError(odd)
        if len(column.levels) <= _CLASSES:
            if column.ordered:
                why = "whose order its type declares; the family 'categorical' takes none"
                return "ordinal", f"the response has {len(column.levels)} classes, {why}"
            return "categorical", f"the response has {len(column.levels)} classes"
        raise DataError(f"the response has {len(column.levels):,} different texts: name the family that is meant.")
    values = np.asarray(column.values, np.float64)
    if ends is None:
        two = np.unique(values).tolist() if len(np.unique(values[:1000])) <= 2 else []
        low, high, whole = float(values.min()), float(values.max()), bool((values == np.floor(values)).all())
    else:
        two, (low, high, whole) = list(column.levels), ends
    if two in _EVENT_CODES:
        return "bernoulli", f"the response is {two[0]:g} or {two[1]:g}"
    if low == 0 and high <= _COUNT and whole:
        return "poisson", "the response holds counts from 0 on"
    if whole and low == 1 and 2 < high <= _MOST_STEPS:
        steps = f"whole numbers from 1 to {high:g}; if they are steps of a scale, name the family 'ordinal'"
        return "gaussian", f"the response holds {steps}"
    classes = f"; if {two[0]:g} and {two[1]:g} are classes, name the family 'bernoulli'" if len(two) == 2 else ""
    return "gaussian", f"the response holds numbers{classes}"


def plain_label(value: Any, kind: str) -> Any:
    """A label as it is shown: whole numbers without a decimal point."""
    return int(value) if kind == NUMBER and float(value).is_integer() else value
