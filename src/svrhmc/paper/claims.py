"""A claim and what the numbers say of it: it holds, it does not, or it cannot be told; and what decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

OURS = "svr-hmc"  # the sampler that the claims are about
PAPER, CHECK = "the paper", "our check"  # who says it


@dataclass(frozen=True)
class Claim:
    """Who says what, the threshold that decides it, the verdict, and the numbers."""

    whose: str
    text: str
    threshold: str
    verdict: str
    numbers: str


Claims = list[Claim]


def with_error(values: Any) -> tuple[float, float]:
    """Mean and its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return float(np.mean(values)), float(error)


def signed(mean: float, error: float) -> str:
    """A mean with its sign and its standard error.

    >>> signed(0.123, 0.04)
    '+0.12 ± 0.04'
    """
    return f"{mean:+.2g} ± {error:.2g}"


def sign(mean: float, error: float, errors: float) -> str:
    """Of a claim that a mean is positive: so many standard errors must speak for it, or against it.

    >>> [sign(mean, 1.0, 2.0) for mean in (3.0, 1.0, -3.0)]
    ['holds', 'cannot be told', 'does not']
    """
    return "holds" if mean > errors * error else "does not" if mean < -errors * error else "cannot be told"


def joint(verdicts: Iterable[str]) -> str:
    """Of a claim about all: it fails where one fails, and holds where all hold.

    >>> joint(["holds", "cannot be told"])
    'cannot be told'
    """
    found = set(verdicts)
    return "does not" if "does not" in found else "holds" if found == {"holds"} else "cannot be told"


def yes(holds: bool) -> str:
    """Of a claim that can be told either way."""
    return "holds" if holds else "does not"
