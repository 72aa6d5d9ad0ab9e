"""What a posterior says, in sentences: one for each coefficient that is clearly away from 0, in units that are read
with ease.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from svrhmc.families import FAMILIES
from svrhmc.families.base import Loss
from svrhmc.results.base import Fitted

if TYPE_CHECKING:
    from svrhmc.results.summary import Coefficient

SHOWN = 6  # findings in sentences
_SMALL, _LARGE = 0.01, 5.0  # changes of a predictor that are read with ease lie between


def response_of(posterior: Fitted) -> str:
    """The name of the response."""
    return posterior.design.response if posterior.design is not None and posterior.design.response else "the response"


def scale(posterior: Fitted) -> str:
    """What one more of a column adds its coefficient to."""
    loss = loss_of(posterior)
    return "the linear predictor" if loss is None else _worded(posterior, loss.modelled)


def loss_of(posterior: Fitted) -> Loss | None:
    """With its own link, where the model is there."""
    if posterior.model is not None:
        loss: Loss = posterior.model.loss
        return loss
    return FAMILIES[posterior.family]() if posterior.family in FAMILIES else None


def _worded(posterior: Fitted, words: str) -> str:
    classes: tuple[str, ...] = () if posterior.design is None else posterior.design.classes
    response = response_of(posterior)
    event = f"{response} = {classes[-1]}" if len(classes) == 2 else response
    return words.format(event=event, response=response, first=classes[0] if classes else "the first")


def findings(rows: Sequence[Coefficient], posterior: Fitted) -> list[str]:
    """What the coefficients that are clearly away from 0 say, a sentence for each, the clearest first."""
    steps = standard_steps(posterior)
    multiplied, predictor = _multiplied(posterior), scale(posterior)
    return [finding(row, steps.get(row.name), multiplied, predictor) for row in _away(rows, posterior)[:SHOWN]]


def hard_to_read(rows: Sequence[Coefficient], posterior: Fitted) -> list[str]:
    """The same of coefficients whose change for one more of the column is too small or too large to be read."""
    steps, multiplied, predictor = standard_steps(posterior), _multiplied(posterior), scale(posterior)
    return [
        finding(row, steps[row.name], multiplied, predictor)
        for row in rows
        if row.name in steps and _step_shown(row, steps[row.name], bool(multiplied)) != 1
    ]


def _multiplied(posterior: Fitted) -> str:
    """What e to the power of a coefficient multiplies, or ""."""
    loss = loss_of(posterior)
    return "" if loss is None else _worded(posterior, loss.multiplied)


def _step_shown(row: Coefficient, step: float, multiplied: bool) -> float:
    """How much more of a column a sentence is about: one, or a standard deviation where that is easier to read."""
    low, high = sorted(map(abs, (row.lower, row.upper)))
    small, large = high < _SMALL and step > 1, multiplied and low > _LARGE and step < 1
    return step if small or large else 1.0


def finding(row: Coefficient, step: float | None, multiplied: str, predictor: str) -> str:
    """step: one standard deviation, of a number; None of a category or of what is made of several columns."""
    group, _, column = row.name.rpartition(": ")
    change = 1.0 if step is None else _step_shown(row, step, bool(multiplied))
    if step is None:
        subject = f"{column}, all else being equal,"
    elif change == 1:
        subject = f"Each further {column}"
    else:
        subject = f"Each further {short(step)} of {column} (one standard deviation)"
    mean, *ends = (value * change for value in (row.mean, row.lower, row.upper))
    if multiplied:
        middle, lower, upper = (short(math.exp(min(value, 700.0))) for value in (mean, *ends))
        sentence = f"{subject} multiplies {multiplied} by {middle} ({lower} to {upper})."
    else:
        direction, (low, high) = "an increase" if mean > 0 else "a decrease", sorted(ends, key=abs)
        if low * high < 0:
            low, high = sorted(ends)
            sentence = f"{subject} goes with a change of {predictor} by {short(mean)} ({short(low)} to {short(high)})."
        else:
            sizes = f"{short(abs(mean))} ({short(abs(low))} to {short(abs(high))})"
            sentence = f"{subject} goes with {direction} of {predictor} by {sizes}."
    return f"{group}: {sentence}" if group else sentence


def standard_steps(posterior: Fitted) -> dict[str, float]:
    """One standard deviation of each column of the table that is a number in the formula as it stands, by the name of
    its coefficients.
    """
    units, design = posterior.units, posterior.design
    if units is None or design is None:
        return {}
    plain = {term.names[0] for term in design.made_of if term.names == term.variables}
    width, first = len(units.centre) + int(units.intercept), int(units.intercept)
    return {
        name: float(units.scale[j % width - first])
        for j, name in enumerate(posterior.names[: units.blocks * width])
        if j % width >= first and name.rpartition(": ")[2] in plain
    }


def short(value: float) -> str:
    """Two digits after a leading one, without exponents where they can be had.

    >>> short(1.6234), short(0.0123), short(1234.5)
    ('1.62', '0.0123', '1,230')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < 1e9 else f"{rounded:g}"


def clear(rows: Sequence[Coefficient], posterior: Fitted) -> str:
    """How many coefficients are away from 0; `findings` says what they are."""
    slopes, away = slopes_of(rows, posterior), _away(rows, posterior)
    if not slopes:
        return "There are no coefficients but the intercept."
    if not away:
        return f"None of the {len(slopes)} coefficients is clearly away from 0: all 90% intervals contain it."
    verb, whose = ("are", "their 90% intervals leave") if len(away) > 1 else ("is", "its 90% interval leaves")
    first = f" The {SHOWN} clearest:" if len(away) > SHOWN else ""
    return f"{len(away)} of {len(slopes)} coefficients {verb} clearly away from 0 ({whose} it out).{first}"


def _away(rows: Sequence[Coefficient], posterior: Fitted) -> list[Coefficient]:
    """Those whose intervals leave out 0, the clearest first."""
    away = [row for row in slopes_of(rows, posterior) if row.lower > 0 or row.upper < 0]
    return sorted(away, key=lambda row: -row.distance)


def slopes_of(rows: Sequence[Coefficient], posterior: Fitted) -> list[Coefficient]:
    """Without intercepts and parameters that rows share."""
    units = posterior.units
    if units is None:
        return list(rows)
    width, first = len(units.centre) + int(units.intercept), int(units.intercept)
    return [row for j, row in enumerate(rows[: units.blocks * width]) if j % width >= first]
