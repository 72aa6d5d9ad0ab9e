"""How a mixed model can be sampled: in which variables, by which sampler, and what tells where its scales are."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget, time_small_product
from svrhmc.core.errors import requirement
from svrhmc.core.machine import free_memory, one_blas_thread
from svrhmc.core.progress import format_duration, set_progress_note
from svrhmc.density.mixed import MixedModel
from svrhmc.exact.base import Runnable
from svrhmc.sampling.answer import Request

PILOT_SEED = 1 << 52  # added to the seed, for what is drawn before the draws that are kept
_BELOW_PRIOR = 1.1  # in log τ
_LONG = 60.0  # seconds, from which a person who waits is told how long it takes
_OF_DRAWN = 2000.0  # multiplications that an effect of a draw takes, until it is drawn, kept and judged
_COPIES = 2.5  # of the draws of all effects, while they are put in order and their moments are found
_COPIES_OF_ROWS, _ENTRY = 4.0, 12.0  # of the rows, while a Hessian is made of them; bytes of an entry and its column
MOST_KEPT = 1 << 27  # numbers of effects that are kept: 1 GB


class Forecast(NamedTuple):
    """What sampling will take: seconds on cores that do nothing else, and bytes.

    least: whether these are only lower bounds.
    """

    seconds: float
    bytes: float
    least: bool = False

    def __str__(self) -> str:
        return f"{'at least' if self.least else 'about'} {format_duration(self.seconds)} and {self.bytes / 1e9:.1f} GB"

    @property
    def is_long(self) -> bool:
        """Whether it takes so long that a person should know."""
        return self.seconds > _LONG


class Variables(NamedTuple):
    """The variables `space`, states of the chains in them, the sampler, and Laplace's approximation: θ, w, standard
    deviations of θ, and a map `displace` from standard normal numbers to w less its mean given θ.
    """

    space: Any
    start: Array
    theta: Array
    w: Array
    sds: Array
    sampler: Runnable
    displace: Callable[[Array], Array]


class UnsuitedError(Exception):
    """Raised if the proposals or variables that were found are useless, and another approach may work."""


class Approach(ABC):
    """One way to sample a `MixedModel`.

    method, sampler: its name, and the class of its sampler. why: a sentence for the result. scanned: the name of the
    density that is scanned along each scale. burn_in: draws that are not kept, by which a step is judged. expected,
    fewest_expected: effective draws that a draw is worth, by an optimistic and by a cautious estimate.
    """

    method: ClassVar[str]
    sampler: ClassVar[type[Runnable]]
    why: ClassVar[str]
    scanned: ClassVar[str]
    burn_in: ClassVar[int]
    expected: ClassVar[float]
    fewest_expected: ClassVar[float]

    def __init__(
        self, model: MixedModel, request: Request, journal: Journal, budget: Budget, replaceable: bool = False
    ) -> None:
        """replaceable: whether there is another approach that can sample the model."""
        self.model, self.request, self.journal, self.budget = model, request, journal, budget
        self.replaceable = replaceable

    @staticmethod
    @abstractmethod
    def refusal(model: MixedModel) -> str | None:
        """Why it cannot sample a model; None if it can."""

    @abstractmethod
    def variables(self) -> Variables:
        """The variables, from the journal or anew; an `UnsuitedError` if another approach should be used."""

    @abstractmethod
    def theta(self, space: Any, z: Array) -> Array:
        """θ of states."""

    @abstractmethod
    def log_density_along(self, space: Any, centre: Array, coordinate: int, steps: Array) -> Array:
        """The log density of θ at steps of one coordinate from a centre."""

    @property
    def first_proposed(self) -> int:
        """The index of the first reported number that stays unchanged when a proposal is refused."""
        return 0

    def threads(self) -> AbstractContextManager[Any]:
        """A context that limits the threads of linear algebra."""
        return nullcontext()

    @abstractmethod
    def forecast(self) -> Forecast:
        """What finding the variables and drawing take together, estimated before either begins."""

    def announce_forecast(self) -> None:
        """Show the forecast, and refuse a run that does not fit into memory."""
        forecast, free = self.forecast(), free_memory()
        if forecast.bytes > free:
            raise requirement(
                "draws", f"such that a run fits into memory, {free / 1e9:.3g} GB",
                f"{self.request.draws:,} of {self.model.effect_count:,} effects, about {forecast.bytes / 1e9:.3g} GB",
                "take fewer draws, or a part of the levels",
            )  # fmt: skip
        if forecast.is_long:
            set_progress_note(f"{forecast} in all; budget_seconds=… or fewer draws end it sooner")

    @property
    def expected_draws(self) -> float:
        """Draws of a chain after its burn-in, by a cautious estimate."""
        return self.request.draws / (len(self.request.chains) * self.fewest_expected)

    def drawing_seconds(self, multiplication: float) -> float:
        """Seconds of all draws, without evaluations of the density; `multiplication`: seconds of one."""
        return multiplication * _OF_DRAWN * self.model.effect_count * self.expected_draws * len(self.request.chains)

    @property
    def keep_every(self) -> int:
        """One draw in this many is kept with all of its effects: 1 unless they would take more than 1 GB."""
        return max(1, round(self.request.draws / self.expected * self.model.inner_dim / MOST_KEPT))

    @property
    def memory_bytes(self) -> float:
        """Bytes of the draws that are kept, and of the rows while a Hessian is computed from them."""
        draws = self.expected_draws * len(self.request.chains) / self.keep_every
        rows: Any = self.model.conditional.rows
        return 8 * _COPIES * draws * self.model.dim + _COPIES_OF_ROWS * _ENTRY * float(rows.entries) * self.model.n

    def first_theta(self) -> Array:
        """A third of the scale that the prior allows, and no correlation."""
        theta = np.zeros(self.model.theta_dim)
        for term in self.model.terms:
            theta[term.theta][: term.width] = term.covariance.heavy.location - _BELOW_PRIOR
        return theta


def multiplication_seconds() -> float:
    """Seconds of one multiplication in a product of two small matrices, on one thread."""
    with one_blas_thread():
        return time_small_product(time.perf_counter)
