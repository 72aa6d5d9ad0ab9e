"""Responses that are known up to bounds: `Surv(…)`, `cens(…)` and `trunc(…)`, alone before the "~" of a formula.

    Surv(time, event)                        right-censored where event is 0 or false
    Surv(time)                               every time ended in the event
    Surv(time, event, type="left")           left-censored where event is 0: it came before that time
    Surv(start, stop, event)                 watched from start on only: left truncation, or stretches of a subject
    Surv(lower, upper, type="interval2")     it came between; lower and upper are equal where the time is known, lower
                                             is 0, −∞ or missing where it is not known, and upper ∞ or missing
    Surv(time, time2, event, type="interval")  event 0: after time, 1: at time, 2: before time, 3: between both
    cens(y, lower=0, upper=100)              y at or beyond these limits is known only to be there
    trunc(y, lb=0, ub=100)                   rows are there only where y lies between; y may be cens(…) or Surv(…)

An event that is coded otherwise is compared with its code: Surv(time, status == 2). Labels are those of
`svrhmc.families`: one number for each row if times are only right-censored (`censored`), else four (`bounded`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError
from svrhmc.families import bounded, censored

SURV, CENS, TRUNC = RESPONSES = ("Surv", "cens", "trunc")
_FORM = "Surv(time, event) has a time and whether it ended in the event (1 or true) or was censored on the right (0)"
_TYPES = {
    "right": ("time", "event"),
    "left": ("time", "event"),
    "counting": ("start", "stop", "event"),
    "interval": ("time", "time2", "event"),
    "interval2": ("lower", "upper"),
}
_R_SPELLING = {"counting": {"time": "start", "time2": "stop"}, "interval2": {"time": "lower", "time2": "upper"}}  # R's


def response_labels(name: str, rows: int, alone: bool, *arguments: object, **keywords: object) -> Array:
    """The labels of some rows. name: one of `RESPONSES`. alone: whether the call stands in no other of these."""
    if name == SURV:
        return _surv_labels(rows, alone, *arguments, **keywords)
    return _limit_labels(name, rows, *arguments, **keywords)


def _surv_labels(rows: int, alone: bool, *arguments: object, **keywords: object) -> Array:
    """The labels of `Surv(…)`."""
    kind = keywords.pop("type", "counting" if len(arguments) > 2 or "stop" in keywords else "right")
    if kind not in _TYPES:
        listed = ", ".join(map(repr, _TYPES))
        raise DataError(f"Surv(…, type={kind!r}) cannot be used: {_FORM}, and its types are {listed}.")
    words = _TYPES[kind]
    spelled = {_R_SPELLING.get(kind, {}).get(word, word): value for word, value in keywords.items()}
    named = {**dict(zip(words, arguments, strict=False)), **spelled}
    most = len(named) == len(arguments) + len(keywords) and named.keys() <= set(words)
    if not most or not set(words) - {"event"} <= named.keys() or (kind == "interval" and "event" not in named):
        shown = f"Surv({', '.join(words)}, type={kind!r})" if kind != "right" else _FORM
        raise DataError(f"Surv cannot be used so: it is {shown}.")
    if kind in ("right", "left") and "event" in named and _is_event(named["time"]) and not _is_event(named["event"]):
        raise DataError("Surv(time, event) takes the time first: these two are the other way round.")
    numbers = [_number_column(word, named[word], kind == "interval2") for word in words if word != "event"]
    codes = (0, 1, 2, 3) if kind == "interval" else (0, 1)
    event = _event_codes(named.get("event", np.ones(rows)), codes)
    try:
        if kind == "right":
            signed = censored(numbers[0], event)
            return signed if alone else bounded(np.abs(signed), np.where(signed > 0, signed, np.inf))
        return bounded(*_bounds(kind, numbers, event))
    except ValueError as error:
        raise DataError(f"Surv({', '.join(words)}) cannot be used: {error}") from None


def _bounds(kind: str, numbers: list[Array], event: Array) -> list[Array]:
    """The bounds [lower, upper] of the times; for stretches of time also when they begin."""
    first = numbers[0]
    if kind == "left":
        return [np.where(event == 1, first, 0.0), first]
    if kind == "counting":
        start, stop = numbers
        if (wrong := start >= stop).any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"start must be below stop in every row; got {start[row]:g} and {stop[row]:g} at row {row}: a row that "
                "ends when it begins was never watched, leave it out."
            )
        return [stop, np.where(event == 1, stop, np.inf), start]
    if kind == "interval":
        return [np.where(event == 2, 0.0, first), np.choose(event.astype(int), [np.inf, first, first, numbers[1]])]
    lower, upper = numbers
    return [np.where(np.isnan(lower) | (lower == -np.inf), 0.0, lower), np.where(np.isnan(upper), np.inf, upper)]


def _limit_labels(name: str, rows: int, *arguments: Any, **keywords: Any) -> Array:
    """The labels of `cens(y, lower, upper)` and `trunc(y, lb, ub)`. A limit is a number, or a column of numbers."""
    words = ("y", "lower", "upper") if name == CENS else ("y", "lb", "ub")
    spelled = {"lower": "lb", "upper": "ub"} if name == TRUNC else {}
    named = {**dict(zip(words, arguments, strict=False)), **{spelled.get(k, k): v for k, v in keywords.items()}}
    if len(named) < len(arguments) + len(keywords) or not named.keys() <= set(words) or not len(named) >= 2:
        raise DataError(f"{name} cannot be used so: it is {name}({', '.join(words)}), with one limit at least.")
    y = named["y"]
    low, high = (
        np.full(rows, beyond) if named.get(word) is None
        else np.full(rows, float(named[word])) if isinstance(named[word], int | float)
        else _number_column(word, named[word], False, name)
        for word, beyond in zip(words[1:], (-np.inf, np.inf), strict=True)
    )  # fmt: skip
    try:
        if name == CENS:
            y = _number_column("y", y, False, name)
            if (wrong := low >= high).any():
                row = int(np.argmax(wrong))
                raise ValueError(f"lower must be below upper; got {low[row]:g} and {high[row]:g} at row {row}.")
            return bounded(
                np.where(y <= low, -np.inf, np.minimum(y, high)), np.where(y >= high, np.inf, np.maximum(y, low))
            )
        if np.ndim(y) != 2:
            y = bounded(_number_column("y", y, False, name))
        return bounded(y[:, 0], y[:, 1], np.maximum(low, y[:, 2]), np.minimum(high, y[:, 3]))
    except ValueError as error:
        raise DataError(f"{name}({', '.join(words)}) cannot be used: {error}") from None


def _number_column(word: str, value: object, gaps: bool, name: str = SURV) -> Array:
    """A column of numbers. gaps: whether some may be missing."""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise DataError(f"the {word} of {name} must be a column of numbers.")
    array = array.astype(np.float64)
    if not gaps and np.isnan(array).any():
        row = int(np.argmax(np.isnan(array)))
        raise DataError(f"the {word} of {name} must be a number in every row; it is missing in row {row}.")
    return array


def _is_event(value: object) -> bool:
    """Whether a column looks like events and not like times: 0 and 1, false and true, or texts."""
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "biufOU":
        return False
    return array.dtype.kind == "b" or set(array[:1000].tolist()) <= {0, 1} or array.dtype.kind in "OU"


def _event_codes(event: object, codes: tuple[int, ...]) -> Array:
    """The column of events as numbers. Refuses numbers that are no codes."""
    array = np.asarray(event)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise DataError(
            "the event of Surv(time, event) must be a column of 0 and 1, or of false and true; it holds texts: compare "
            "it with the one that stands for the event, such as Surv(time, status == 'died')."
        )
    array = array.astype(np.float64)
    if (wrong := ~np.isin(array, codes)).any():
        row = int(np.argmax(wrong))
        listed = "0 or 1, or false or true"
        if len(codes) > 2:
            listed = "0 (right-censored), 1 (event), 2 (left) or 3 (interval)"
        raise DataError(
            f"Surv cannot be used: event must be {listed}; got {array[row]:g} at row {row}: compare it with what "
            "stands for the event, such as status == 2."
        )
    return array
