"""What `sample` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from svrhmc.core.arrays import Indices
from svrhmc.core.progress import Progress
from svrhmc.posterior.units import Units
from svrhmc.targets.base import FiniteSum


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked for, checked."""

    target: FiniteSum
    draws: int
    chains: Indices
    tolerance: float
    seed: int
    method: Any
    seconds: float
    passes: float
    engine: str
    threads: int
    certificate: bool
    progress: Progress
    units: Units | None = None  # in which coefficients are shown
