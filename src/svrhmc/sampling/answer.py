"""What `sample` is asked for, and the result of a search for it, with the parameters as a model states them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from svrhmc import diagnostics
from svrhmc.core.arrays import Array, Indices, ratio
from svrhmc.core.errors import require_finite, requirement
from svrhmc.core.progress import Progress
from svrhmc.core.summaries import interval_end_names, interval_ends
from svrhmc.density.base import FiniteSum
from svrhmc.sampling.certificate import Certificate
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location, corrected_functions, error_of_mean
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.sampling.modes import Modes
from svrhmc.sampling.tails import Tails, errors_with_tails, heavy_shapes, moments_with_tails, tails_in_words
from svrhmc.trace import Trace, grids


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
class Parameters:
    """Draws of parameters as the model states them, such as a standard deviation above 0, where other coordinates were
    sampled.

    names: of every number, such as sigma or w[0, 1]. draws: an array (chain, draw, number).
    corrected: moments corrected by the gradients at the draws; None if there are only those of the draws.
    known: Pareto shapes that the density shows of some numbers, 0 if it shows that E a⁴ is finite, nan for others; None
        if it shows nothing.
    """

    names: tuple[str, ...]
    draws: Array
    corrected: Corrected | None = None
    known: Array | None = None

    def require_sound(self) -> None:
        """Refuse draws that are not finite or of another number."""
        if self.draws.ndim != 3 or self.draws.shape[2] != len(self.names):
            raise requirement("parameters", f"draws of {len(self.names)} numbers", f"shape {self.draws.shape}")
        require_finite("parameters", self.draws)
        if self.corrected is not None and len(self.corrected.mean) != len(self.names):
            raise requirement("parameters", f"moments of {len(self.names)} numbers", len(self.corrected.mean))
        if self.known is not None and len(self.known) != len(self.names):
            raise requirement("parameters", f"shapes of {len(self.names)} numbers", len(self.known))

    def by_name(self) -> dict[str, Array]:
        """Arrays (chain, draw, …) in the shapes that the model gives them."""
        return {name: self.draws[:, :, places] for name, places in (grids(self.names) or {}).items()}

    def flat(self) -> Array:
        """The draws of all chains, (draw, number)."""
        return self.draws.reshape(-1, len(self.names))

    @cached_property
    def shapes(self) -> Array:
        """The Pareto shape of the heavier tail of each number: from 0.5 on it has no variance, from 1 on no mean. 0
        where the error of its sd is known.
        """
        return heavy_shapes(self.draws, self.known)

    @cached_property
    def moments(self) -> Corrected:
        """Means and sds with their standard errors: the corrected ones, or those of the draws; nan if the tail of the
        draws shows that there is none.
        """
        moments, x = self.corrected, self.draws
        if moments is None:
            with np.errstate(over="ignore", invalid="ignore"):  # of what has no moments
                mean, sd = x.mean(axis=(0, 1)), diagnostics.spread(x)
                sd_error = error_of_mean((x - mean) ** 2) / (2 * np.where(sd > 0, sd, 1.0))
                moments = Corrected(mean, sd, error_of_mean(x), sd_error)
        return Corrected(
            *moments_with_tails(moments.mean, moments.sd, self.shapes),
            *errors_with_tails(moments.mean_error, moments.sd_error, self.shapes),
        )

    def heavy(self, most: int) -> str:
        """Which of the numbers have no sd, or one that another run would not repeat, and quantiles of some of them."""
        return tails_in_words(self.names, self.draws, self.shapes, most)

    @np.errstate(over="ignore", invalid="ignore")
    def columns(self, level: float) -> dict[str, Array]:
        """Mean and sd, the ends of the interval, which are those of the draws, standard errors, effective draws and
        R-hat.
        """
        x, moments, (low, high) = self.draws, self.moments, interval_end_names(level)
        ends = np.quantile(self.flat(), interval_ends(level), axis=0)
        return {
            "mean": moments.mean, "sd": moments.sd, low: ends[0], high: ends[1], "mcse_mean": moments.mean_error,
            "mcse_sd": moments.sd_error, "ess": diagnostics.bulk_ess(x), "r_hat": diagnostics.rank_r_hat(x),
        }  # fmt: skip


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


@np.errstate(over="ignore", invalid="ignore")  # numbers of a model whose chains run off are beyond float64
def stated_parameters(
    target: FiniteSum,
    draws: Array,
    corrected_at: tuple[Array, Array] | None = None,
    pull: Callable[[Array], Array] | None = None,
    tails: Tails | None = None,
) -> Parameters | None:
    """The parameters of a target as its model states them, at draws; None if they are its coordinates.

    corrected_at: some of the draws and WWᵀ∇f at them, by which moments are corrected; pull(w) = Wᵀw. tails: those of
    the coordinates, by the density; a parameter with the name of a coordinate is that coordinate.
    """
    named = target.stated(draws)
    if named is None:
        return None
    names, values = named
    by_name = (
        {} if tails is None else dict(zip(target.names, zip(tails.known, tails.unseen, strict=True), strict=False))
    )
    shapes, unseen = np.array([by_name.get(name, (np.nan, 0.0)) for name in names]).reshape(-1, 2).T
    known = None if np.isnan(shapes).all() else shapes
    if corrected_at is None or pull is None:
        return Parameters(names, values, None, known)
    x, h = corrected_at
    values_at = values if x is draws else (target.stated(x) or named)[1]
    moments = corrected_functions(values_at, x, h, pull, target.one_mode is not None)
    return Parameters(names, values, None if moments is None else moments.missing(unseen), known)
