"""The gradients by name: settings that become a `Recipe`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from svrhmc.core.errors import requirement, settle, truth, whole
from svrhmc.core.parts import part
from svrhmc.core.randomness import MAX_SLOTS, Stream
from svrhmc.gradients.estimator import Estimator
from svrhmc.gradients.recipe import NEVER, Count, Recipe
from svrhmc.targets.base import FiniteSum


class Counted(Protocol):
    """What a recipe depends on."""

    @property
    def n(self) -> int:
        """Components."""

    @property
    def lasting_parts(self) -> bool:
        """Whether a number for every component can be kept, and is all there is to keep of it."""


class Gradient(ABC):
    """A way to estimate ∇f. Gradients with equal settings are equal objects.

    To write your own, derive from this class and return a `Recipe`; it runs on every engine that supports the recipe.
    """

    @abstractmethod
    def recipe(self, target: Counted) -> Recipe:
        """What is done on this target, as plain data; settings that do not fit the target are an error."""

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """An object that evaluates the recipe for the chains of a random stream."""
        return Estimator(self.recipe(target), target, stream)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """Component gradients that a chain evaluates in so many steps (one number, or many), from its start."""
        return self.recipe(target).evaluations(steps)


def require_gradient(gradient: object) -> Gradient:
    """Refuse what is no gradient."""
    if not isinstance(gradient, Gradient):
        raise requirement("gradient", "one of svrhmc.gradients, such as SVRG()", repr(gradient))
    return gradient


@part
@dataclass(frozen=True)
class Full(Gradient):
    """g = ∇f(x): n component gradients a step.

    >>> from svrhmc.targets import synthetic
    >>> Full().evaluations(synthetic(50, 2), steps=10)
    500
    """

    def recipe(self, target: Counted) -> Recipe:
        """All components, at every step."""
        return Recipe(target.n)


class Batched(Gradient):
    """The settings that every gradient from a batch of rows has."""

    batch_size: int
    replacement: bool
    importance: bool

    def __post_init__(self) -> None:
        settle(
            self,
            batch_size=whole("batch_size", self.batch_size, 1, MAX_SLOTS),
            replacement=truth("replacement", self.replacement),
            importance=truth("importance", self.importance),
        )
        if self.importance and not self.replacement:
            raise requirement("replacement", "True where rows are drawn by importance", False)

    @property
    def draw(self) -> str:
        """How rows are drawn, in the words of a recipe."""
        if self.importance:
            return "weighted"
        return "evenly" if self.replacement else "distinct"


@part
@dataclass(frozen=True)
class Minibatch(Batched):
    """g = (1/B) Σ_{i ∈ batch} ∇fᵢ(x): B component gradients a step.

    The batch is drawn anew each step, with or without replacement. Its noise has covariance C(x)/B, with C the
    covariance of the component gradients, times (n − B)/(n − 1) without replacement.

    >>> Minibatch(batch_size=10)
    Minibatch(batch_size=10, replacement=True, importance=False)
    """

    batch_size: int = 1
    replacement: bool = True
    importance: bool = False

    def recipe(self, target: Counted) -> Recipe:
        """A fresh batch each step."""
        return Recipe(target.n, self.batch_size, self.draw)


@part
@dataclass(frozen=True)
class SVRG(Batched):
    """g = ∇f(x̃) + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − ∇fᵢ(x̃)): the paper's semi-stochastic gradient (eq. 7, with batches).

    The snapshot x̃ is the state at steps 0, m, 2m, … with m = `epoch_length` (None: n // batch_size, at least 1),
    taken before the step is made. A snapshot costs n component gradients; a step costs B where the snapshot's parts
    are remembered (models with a linear predictor: one number a row), else 2B.

    With `snapshot_size` the snapshot's gradient is itself estimated, from so many rows drawn anew at each
    snapshot (the paper's "an estimation of the full gradient"). It then costs that many component gradients, nothing is
    remembered by row, and a step costs 2B. g stays unbiased.

    >>> from svrhmc.targets import synthetic
    >>> SVRG(batch_size=5).evaluations(synthetic(50, 2), steps=20)      # two snapshots, 2·5 a step
    300
    """

    batch_size: int = 1
    epoch_length: int | None = None
    replacement: bool = True
    snapshot_size: int | None = None
    importance: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        m, size = self.epoch_length, self.snapshot_size
        settle(
            self,
            epoch_length=None if m is None else whole("epoch_length", m, 1, NEVER),
            snapshot_size=None if size is None else whole("snapshot_size", size, 1, MAX_SLOTS),
        )

    def recipe(self, target: Counted) -> Recipe:
        """A snapshot with its clock."""
        period = max(1, target.n // self.batch_size) if self.epoch_length is None else self.epoch_length
        return Recipe(
            target.n,
            self.batch_size,
            self.draw,
            "snapshot",
            period,
            snapshot_rows=self.snapshot_size or 0,
            remembers=target.lasting_parts and self.snapshot_size is None,
        )


@part
@dataclass(frozen=True)
class ControlVariate(Batched):
    """g = ∇f(x̂) + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − ∇fᵢ(x̂)), with x̂ the target's mode (Baker et al. 2019).

    The mode is found once for a run and not counted; the pass for ∇f(x̂) and the remembered parts is. A step then
    costs B component gradients where parts are numbers (models with a linear predictor), else 2B, whatever n is. On a
    quadratic its noise is that of Cᵢ(x − x̂), half that of a snapshot older than the correlation time.

    `order=2` adds the Hessians Hᵢ at the mode, for models with a linear predictor:

        g = ∇f(x̂) + H(x − x̂) + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − ∇fᵢ(x̂) − Hᵢ(x − x̂)),

    at the cost of a product with H, dim × dim, a step. Its noise is of the size of the third derivatives: none on a
    quadratic, and on a posterior over n rows smaller by a factor of the order dim/n than that of order 1.

    >>> from svrhmc.targets import linear
    >>> target = linear([[1.0], [2.0], [0.5]], [1.0, 3.0, 0.0])
    >>> ControlVariate(batch_size=2).evaluations(target, steps=10)
    23
    """

    batch_size: int = 1
    replacement: bool = True
    order: int = 1
    importance: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, order=whole("order", self.order, 1, 2))

    def recipe(self, target: Counted) -> Recipe:
        """A snapshot at the mode that is never taken anew."""
        return Recipe(target.n, self.batch_size, self.draw, "mode", remembers=target.lasting_parts, order=self.order)


@part
@dataclass(frozen=True)
class SAGA(Batched):
    """g = (1/n) Σⱼ αⱼ + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − αᵢ), and then αᵢ ← ∇fᵢ(x) for i in the batch (Dubey et al. 2016).

    Begins with a pass over all components at the start; after that a step costs B component gradients, and no epoch
    ever begins. It keeps one number a row for models with a linear predictor, else a gradient a component, for each
    chain.

    >>> from svrhmc.targets import synthetic
    >>> SAGA(batch_size=5).evaluations(synthetic(50, 2), steps=20)
    150
    """

    batch_size: int = 1
    replacement: bool = True
    importance: bool = False

    def recipe(self, target: Counted) -> Recipe:
        """All components remembered, each as of its last turn."""
        return Recipe(target.n, self.batch_size, self.draw, "table", remembers=True)
