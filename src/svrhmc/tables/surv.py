"""`Surv(time, event)` as the response of a formula: times of which some are right-censored, one number for each row.

    Surv(time, event)      +time where event is 1 or true, −time where it is 0 or false (`svrhmc.families.censored`)
    Surv(time)             every time ended in the event

An event that is coded otherwise is compared with what stands for it: Surv(time, status == 2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import DataError
from svrhmc.families import censored

_FORM = "Surv(time, event) has a time and whether it ended in the event (1 or true) or was censored on the right (0)"


def surv(rows: int, *arguments: Any, **keywords: Any) -> Array:
    """The labels of some rows."""
    if (kind := keywords.pop("type", "right")) != "right":
        raise DataError(f"Surv(…, type={kind!r}) cannot be used: {_FORM}, and there is no type but 'right'.")
    if len(arguments) > 2:
        raise DataError(f"Surv(start, stop, event) cannot be used: {_FORM}, and rows that enter late are not modelled.")
    named = {**dict(zip(("time", "event"), arguments, strict=False)), **keywords}
    if "time" not in named or not named.keys() <= {"time", "event"} or len(named) < len(arguments) + len(keywords):
        raise DataError(f"Surv cannot be used so: {_FORM}.")
    time, event = named["time"], named.get("event", np.ones(rows))
    if np.ndim(time) != 1 or np.asarray(time).dtype.kind not in "iuf":
        raise DataError("the time of Surv(time, event) must be a column of numbers.")
    if np.ndim(event) != 1 or np.asarray(event).dtype.kind not in "biuf":
        raise DataError(
            "the event of Surv(time, event) must be a column of 0 and 1, or of false and true; it holds texts: compare "
            "it with the one that stands for the event, such as Surv(time, status == 'died')."
        )
    try:
        return censored(np.asarray(time, np.float64), np.asarray(event, np.float64))
    except ValueError as error:
        raise DataError(f"Surv(time, event) cannot be used: {error}") from None
