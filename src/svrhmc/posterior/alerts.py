"""Warnings in Python: what is said of a posterior as well to those who never print it."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from svrhmc.core.errors import VerdictWarning
from svrhmc.posterior.certificate import SOUND, Certificate

_PACKAGE = __name__.partition(".")[0]


def alert(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of this package from which it was called."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def alert_of_verdict(posterior: Any, category: type[Warning] = VerdictWarning) -> None:
    """Warn unless the verdict is that the reported numbers are right."""
    found: Certificate = posterior.certificate
    if found.verdict not in SOUND:
        said = f"The verdict on this posterior is {found.verdict!r}: {found.because().rstrip('.')}."
        alert(f"{said} {_advice(found, posterior.complete)}", category)


def _advice(found: Certificate, complete: bool) -> str:
    """What to do about it."""
    if found.verdict == "unjudged":
        return "To know whether its means and sds are right, leave out certificate=False."
    if found.verdict == "refuted":
        return "Do not use its means and sds: let method=None choose a sampler, or accept more by a larger tolerance."
    if not complete:
        return "Do not rely on its means and sds: give a larger budget, or none."
    if found.draws_needed is not None:
        return f"Do not rely on its means and sds: ask for draws={found.draws_needed}, or for a larger tolerance."
    return "Do not rely on its means and sds."
