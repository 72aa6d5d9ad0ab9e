"""What `sample` is asked for, and the result of a search for it."""

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
from svrhmc.sampling.parameters import Parameters
from svrhmc.sampling.tails import errors_with_tails
from svrhmc.trace import Trace


@dataclass(frozen=True, eq=False)
class Request:
    """The checked arguments of `sample`. units: those in which coefficients are reported."""

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
class SamplingResult:
    """Moments, draws and a verdict, and how they were made; `svrhmc.Posterior` describes each field."""

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


@dataclass(frozen=True, eq=False)
class Answer(SamplingResult):
    """What a search found, of which `svrhmc.results.posterior.build_posterior` makes a `Posterior`."""

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
    """Passes over the data, seconds, seconds of compilation, and the seconds of each stage of a search."""

    passes: float
    seconds: float
    compile_seconds: float
    steps: dict[str, float]


def is_corrected(result: SamplingResult) -> bool:
    """Whether the moments that are reported are those corrected by the gradients at the draws."""
    if np.isnan(result.sd).all():
        return False
    pairs = (result.mean, result.corrected.mean), (result.sd, result.corrected.sd)
    # a tail without moments has nan in the one and not in the other
    return all(bool(((reported == corrected) | np.isnan(reported)).all()) for reported, corrected in pairs)


def standard_errors(result: SamplingResult, tails: Array | None) -> tuple[Array, Array]:
    """Standard errors of the means and standard deviations that are reported. tails: as in `Posterior.tails`."""
    x = result.trace.draws
    if is_corrected(result):
        errors = result.corrected.mean_error, result.corrected.sd_error
    else:
        errors = error_of_mean(x), ratio(error_of_mean((x - result.raw.mean) ** 2), 2 * result.raw.sd)
    return errors if tails is None else errors_with_tails(*errors, tails)


def independent_trace(x: Array, request: Request, seconds: float) -> Trace:
    """Independent draws (chain, draw, dim), for which no sampler was run."""
    chains, count, dim = x.shape
    velocity = np.zeros((chains, dim))
    return Trace(x, np.zeros(count), 0, velocity, seconds, None, request.seed, request.chains, "numpy")
