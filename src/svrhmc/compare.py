"""The former place of `svrhmc.compare_samplers`, which was `svrhmc.compare.compare`.

The package loads this module before it gives the name to its function `svrhmc.compare`, which compares models: so no
later import of the module hides the function.
"""

from __future__ import annotations

from collections.abc import Sequence

from svrhmc.core.errors import deprecated
from svrhmc.core.progress import Progress
from svrhmc.density.base import FiniteSum
from svrhmc.sampler_comparison import Curve, compare_samplers
from svrhmc.samplers import Sampler

__all__ = ["Curve", "compare"]


def compare(
    target: FiniteSum,
    samplers: Sequence[tuple[str, Sampler]],
    passes: float,
    chains: int,
    seed: int = 0,
    engine: str = "auto",
    progress: Progress = None,
) -> list[Curve]:
    """Deprecated: `svrhmc.compare_samplers` with the same parameters."""
    deprecated("svrhmc.compare.compare", "svrhmc.compare_samplers", "svrhmc.compare compares models")
    return compare_samplers(target, samplers, passes, chains, seed, engine, progress)
