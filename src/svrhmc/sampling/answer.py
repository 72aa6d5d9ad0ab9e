"""What `sample` is asked for, and what a search answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices, ratio
from svrhmc.core.progress import Progress
from svrhmc.density.base import FiniteSum
from svrhmc.sampling.certificate import Certificate
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location, error_of_mean
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.sampling.modes import Modes
from svrhmc.sampling.parameters import Parameters, errors_with_tails
from svrhmc.trace import Trace


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked for, checked. units: in which coefficients are reported."""

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
    units: Units | None = None


@dataclass(frozen=True, eq=False)
class Answer:
    """Draws, moments and a verdict, as `svrhmc.results.posterior.Posterior` describes them field by field."""

    mean: Array
    sd: Array
    raw: Location
    corrected: Corrected
    laplace: Location
    trace: Trace
    method: str
    sampler: Any
    why: str
    certificate: Certificate
    ess: Array
    r_hat: Array
    complete: bool
    parameters: Parameters | None
    modes: Modes | None = None
    gaussian: bool = False
    group_effects: GroupEffects | None = None
    shrinkage: Shrinkage | None = None
    covariance: Array | None = None
    tails: Array | None = None
    stopped: bool = False


class Cost(NamedTuple):
    """What an answer took: passes over the data, seconds, those of compilation, and the seconds of each stage."""

    passes: float
    seconds: float
    compile_seconds: float
    steps: dict[str, float]


def is_corrected(answer: Any) -> bool:
    """Whether the moments that an answer, or a posterior, reports are those corrected by the gradients at the draws."""
    if np.isnan(answer.sd).all():
        return False
    pairs = (answer.mean, answer.corrected.mean), (answer.sd, answer.corrected.sd)
    return all(bool(((own == other) | np.isnan(own)).all()) for own, other in pairs)  # nan: of a tail without moments


def standard_errors(answer: Any) -> tuple[Array, Array]:
    """Of the means and standard deviations that an answer, or a posterior, reports."""
    x = answer.trace.draws
    if is_corrected(answer):
        errors = answer.corrected.mean_error, answer.corrected.sd_error
    else:
        errors = error_of_mean(x), ratio(error_of_mean((x - answer.raw.mean) ** 2), 2 * answer.raw.sd)
    return errors if answer.tails is None else errors_with_tails(*errors, answer.tails)


def independent_trace(x: Array, request: Request, seconds: float) -> Trace:
    """Independent draws (chain, draw, dim), for which no sampler was run."""
    chains, count, dim = x.shape
    velocity = np.zeros((chains, dim))
    return Trace(x, np.zeros(count), 0, velocity, seconds, None, request.seed, request.chains, "numpy")
