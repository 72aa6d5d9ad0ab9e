"""A posterior in plain words: what was asked, on which scale the answer is, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence

from svrhmc.core.arrays import ratio
from svrhmc.families import FAMILIES
from svrhmc.posterior.misfits import LOOKED_FOR
from svrhmc.posterior.result import Posterior
from svrhmc.reporting.numbers import Coefficient


def response_of(posterior: Posterior) -> str:
    """The name of the response."""
    return posterior.design.response if posterior.design is not None and posterior.design.response else "the response"


def question(posterior: Posterior) -> str:
    """What was asked."""
    return f"What is associated with {response_of(posterior)}?"


def scale(posterior: Posterior) -> str:
    """What one more of a column adds its coefficient to."""
    classes = posterior.design.classes if posterior.design is not None else ()
    event = f"{response_of(posterior)} = {classes[-1]}" if len(classes) == 2 else response_of(posterior)
    known = "the linear predictor"
    if posterior.model is not None:
        known = posterior.model.loss.modelled  # of its own link
    elif posterior.family in FAMILIES:
        known = FAMILIES[posterior.family]().modelled
    return known.format(event=event, response=response_of(posterior), first=classes[0] if classes else "the first")


def verdict(posterior: Posterior) -> str:
    """Whether the numbers are those of the model's posterior, in one sentence; `misfit` is about the model."""
    found = posterior.certificate
    chance = max(float(ratio(error, posterior.sd).max()) for error in posterior.errors)
    if found.verdict == "exact":
        return (
            "The numbers are computed correctly: they are those of the posterior but for chance, which puts a mean or "
            f"a standard deviation off by {chance:.2g} posterior sd at the most (one standard error)."
            if chance > 0
            else "The numbers are computed correctly: means and standard deviations are known in closed form."
        )
    if found.verdict == "certified":
        return (
            "The numbers are computed correctly: bias and chance together put no mean and no standard deviation off by "
            f"more than {found.tolerance:g} posterior sd."
        )
    if found.verdict == "local":
        return (
            "The numbers are computed correctly as far as the modes of the posterior are known: bias and chance put "
            f"them off by little around {found.modes}, but nothing shows that there is no other."
        )
    if found.verdict == "refuted":
        return (
            f"Do not use the numbers: some are off by more than the tolerance of {found.tolerance:g} posterior sd; "
            "allow more time, or a larger tolerance."
        )
    if found.verdict == "unjudged":
        return "It is not known whether the numbers are computed correctly, as no verdict was asked for."
    return f"It is open whether the numbers are computed correctly: {found.because()}."


def misfit(posterior: Posterior) -> str:
    """Whether the model fits the rows, in one sentence; "" where that was not checked."""
    if not posterior.checked_rows:
        return ""
    if posterior.misfits:
        return f"The model does not fit the data. {' '.join(posterior.misfits)}"
    return f"No failure of the model to fit was found in {posterior.checked_rows:,} rows ({LOOKED_FOR})."


def clear(rows: Sequence[Coefficient], posterior: Posterior) -> str:
    """Which coefficients are away from 0, in one sentence or two."""
    slopes = slopes_of(rows, posterior)
    away = [row for row in slopes if row.lower > 0 or row.upper < 0]
    if not slopes:
        return "There are no coefficients but the intercept."
    if not away:
        return f"None of the {len(slopes)} coefficients is clearly away from 0: all 90% intervals contain it."
    away.sort(key=lambda row: -row.distance)
    shown = ", ".join(f"{row.name} ({'more' if row.mean > 0 else 'less'})" for row in away[:6])
    rest = f" and {len(away) - 6} more" if len(away) > 6 else ""
    verb, whose = ("are", "their 90% intervals leave") if len(away) > 1 else ("is", "its 90% interval leaves")
    return f"{len(away)} of {len(slopes)} coefficients {verb} clearly away from 0 ({whose} it out): {shown}{rest}."


def slopes_of(rows: Sequence[Coefficient], posterior: Posterior) -> list[Coefficient]:
    """Without intercepts and parameters that rows share."""
    units = posterior.units
    if units is None:
        return list(rows)
    width, first = len(units.centre) + int(units.intercept), int(units.intercept)
    return [row for j, row in enumerate(rows[: units.blocks * width]) if j % width >= first]


def number(value: float) -> str:
    """With four digits, and few signs.

    >>> number(0.00012345), number(1234567.0), number(-2.5)
    ('0.0001234', '1.235e+06', '-2.5')
    """
    return f"{value:.4g}"
