"""How a mixed model can be sampled: in which variables, by which sampler, and what tells where its scales are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget
from svrhmc.core.progress import duration, note
from svrhmc.density.mixed import MixedModel
from svrhmc.exact.base import Runnable
from svrhmc.sampling.answer import Request

PILOT_SEED = 1 << 52  # added to the seed, for what is drawn before the draws that are kept
_BELOW_PRIOR = 1.1  # in log τ
_LONG = 60.0  # seconds, from which a person who waits is told how long it takes


class Variables(NamedTuple):
    """The variables, states of the chains in them, and Laplace's approximation: θ, w, standard deviations of θ, and w
    less its mean given θ, from standard normal numbers.
    """

    space: Any
    start: Array
    theta: Array
    w: Array
    sds: Array
    sampler: Runnable
    displace: Callable[[Array], Array]


class UnsuitedError(Exception):
    """Raised where proposals or variables were looked for and are of no use, and another approach may do."""


class Approach(ABC):
    """One way to sample a `MixedModel`.

    method, sampler: its name, and the class of its sampler. why: a sentence for the result. scanned: what the density
    is called along which scales are scanned. burn_in: draws that are not kept, by which a step is judged. expected:
    effective draws of a draw.
    """

    method: ClassVar[str]
    sampler: ClassVar[type[Runnable]]
    why: ClassVar[str]
    scanned: ClassVar[str]
    burn_in: ClassVar[int]
    expected: ClassVar[float]

    def __init__(
        self, model: MixedModel, request: Request, journal: Journal, budget: Budget, replaceable: bool = False
    ) -> None:
        """replaceable: whether there is another that can sample the model."""
        self.model, self.request, self.journal, self.budget = model, request, journal, budget
        self.replaceable = replaceable

    @staticmethod
    @abstractmethod
    def refusal(model: MixedModel) -> str | None:
        """Why it cannot sample a model; None where it can."""

    @abstractmethod
    def variables(self) -> Variables:
        """As the journal has them, or found anew; an `UnsuitedError` where it had better be replaced."""

    @abstractmethod
    def theta(self, space: Any, z: Array) -> Array:
        """θ of states."""

    @abstractmethod
    def log_density_along(self, space: Any, centre: Array, place: int, steps: Array) -> Array:
        """The log density of θ at steps of one coordinate from a centre."""

    @property
    def first_decided(self) -> int:
        """The first of the reported numbers that a refused proposal leaves where they are."""
        return 0

    def threads(self) -> AbstractContextManager[Any]:
        """What holds for the threads of linear algebra meanwhile."""
        return nullcontext()

    def foretell(self, seconds: float) -> None:
        """Say what finding the variables and drawing take together, before the first of many draws is made."""
        if seconds > _LONG:
            note(f"about {duration(seconds)} in all; budget_seconds=… or fewer draws end it sooner")

    @property
    def expected_draws(self) -> float:
        """Of a chain, those before the first that is kept among them."""
        return self.burn_in + self.request.draws / (len(self.request.chains) * self.expected)

    def first_theta(self) -> Array:
        """A third of the scale that the prior allows, and no correlation."""
        theta = np.zeros(self.model.theta_dim)
        for term in self.model.terms:
            theta[term.theta][: term.width] = term.covariance.heavy.location - _BELOW_PRIOR
        return theta
