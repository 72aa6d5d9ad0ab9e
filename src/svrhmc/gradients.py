"""How ∇f is estimated: one formula with different memories.

    g = ḡ + (1/B) Σ_{i ∈ batch} (∇fᵢ(x) − mᵢ)

`Minibatch` has no memory (ḡ = mᵢ = 0). `SVRG` remembers a snapshot x̃: mᵢ = ∇fᵢ(x̃), ḡ = ∇f(x̃). `ControlVariate`
remembers the mode instead, for good. `SAGA` remembers each ∇fᵢ where it was last evaluated. Each gives E g = ∇f(x)
over the batch. A gradient owns its clock, and counts the component gradients that it really evaluates.

Rows are drawn evenly, or with `importance=True` with the target's probabilities Pᵢ (`target.importance`), and then
each term of the batch is divided by nPᵢ, which keeps E g = ∇f(x).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from svrhmc.core.arrays import Array, Indices, contract
from svrhmc.core.errors import requirement, settle, truth, whole
from svrhmc.core.randomness import MAX_BOUND, MAX_SLOTS, Purpose, Stream
from svrhmc.targets.base import FiniteSum

Count = TypeVar("Count", int, Indices)


class Counted(Protocol):
    """What the cost of a gradient depends on."""

    @property
    def n(self) -> int:
        """Components."""

    @property
    def scalar_parts(self) -> bool:
        """Whether a component's part is one number."""


class Estimator(ABC):
    """A gradient at work on some chains of one target; `evaluations` counts component gradients for each chain."""

    evaluations: int = 0

    @abstractmethod
    def __call__(self, x: Array, step: int) -> Array:
        """Estimates of ∇f at (chains, dim) states, at this step of the run."""


class Gradient(ABC):
    """A way to estimate ∇f; frozen, so that equal settings are equal objects."""

    @abstractmethod
    def check(self, n: int) -> None:
        """Refuse settings that do not fit n components."""

    @abstractmethod
    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """The estimator for the chains of a stream."""

    @abstractmethod
    def evaluations(self, target: Counted, steps: Count) -> Count:
        """Component gradients that a chain evaluates in so many steps (one number, or many), from its start."""

    @property
    @abstractmethod
    def rows_at_once(self) -> int:
        """Rows drawn together for one chain, which an engine has to make room for."""

    def steps_within(self, target: Counted, budget: float) -> int:
        """The most steps that evaluate no more component gradients than the budget."""
        low, high = 0, 1
        while self.evaluations(target, high) <= budget:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.evaluations(target, middle) <= budget else (low, middle)
        return low


@dataclass(frozen=True)
class Full(Gradient):
    """g = ∇f(x): n component gradients a step.

    >>> from svrhmc.targets import synthetic
    >>> Full().evaluations(synthetic(50, 2), steps=10)
    500
    """

    def check(self, n: int) -> None:
        """Fits every target."""

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """∇f itself."""
        return _FullEstimator(target)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """n a step."""
        return steps * target.n

    @property
    def rows_at_once(self) -> int:
        """None is drawn."""
        return 0


class Batched(Gradient):
    """What every gradient from a batch of rows is set by."""

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

    def check(self, n: int) -> None:
        """A batch without replacement has at most n rows."""
        _check_rows("batch_size", self.batch_size, n, self.replacement)

    @property
    def rows_at_once(self) -> int:
        """The batch."""
        return self.batch_size


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

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """A fresh batch each step."""
        return _MinibatchEstimator(self, target, stream)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """B a step."""
        return steps * self.batch_size


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
            epoch_length=None if m is None else whole("epoch_length", m, 1),
            snapshot_size=None if size is None else whole("snapshot_size", size, 1, MAX_SLOTS),
        )

    def check(self, n: int) -> None:
        """A batch or an estimated snapshot without replacement has at most n rows."""
        super().check(n)
        if self.snapshot_size is not None:
            _check_rows("snapshot_size", self.snapshot_size, n, self.replacement)

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """A snapshot with its clock."""
        return _SVRGEstimator(self, target, stream)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """A snapshot at the start of each epoch, B or 2B a step."""
        snapshots = -(-steps // self.period(target.n))
        per_row = 1 if self.remembers(target) else 2
        return snapshots * (self.snapshot_size or target.n) + steps * per_row * self.batch_size

    @property
    def rows_at_once(self) -> int:
        """The batch, or an estimated snapshot's rows."""
        return max(self.batch_size, self.snapshot_size or 0)

    def period(self, n: int) -> int:
        """Steps from one snapshot to the next."""
        return max(1, n // self.batch_size) if self.epoch_length is None else self.epoch_length

    def remembers(self, target: Counted) -> bool:
        """Whether a snapshot keeps one number for each row."""
        return target.scalar_parts and self.snapshot_size is None


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

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """An SVRG estimator whose snapshot is the mode and never taken anew."""
        return (_AnchoredEstimator if self.order == 1 else _SecondOrderEstimator)(self, target, stream)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """A pass before the first step, then B or 2B a step."""
        per_row = 1 if target.scalar_parts else 2
        count: Count = (steps > 0) * target.n + steps * per_row * self.batch_size
        return count


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

    def estimator(self, target: FiniteSum, stream: Stream) -> Estimator:
        """All components remembered, each as of its last turn."""
        return _SAGAEstimator(self, target, stream)

    def evaluations(self, target: Counted, steps: Count) -> Count:
        """A pass at the first step, B a step."""
        count: Count = (steps > 0) * target.n + steps * self.batch_size
        return count


class _Picker:
    """Draws the batches of some chains, and takes the mean over a batch of what it makes of each row."""

    def __init__(self, config: Batched, target: FiniteSum, stream: Stream) -> None:
        self._config, self._target, self._stream = config, target, stream
        if config.importance:
            threshold, alias, probability = target.row_table
            self._table, self._weights = (threshold, alias), 1 / (target.n * probability)

    def rows(self, step: int) -> Indices:
        """The batch of this step: (chains, batch)."""
        config = self._config
        if config.importance:
            return self._stream.weighted(step, config.batch_size, *self._table)
        return self._stream.indices(step, config.batch_size, self._target.n, config.replacement)

    def mean(self, parts: Array, batch: Indices) -> Array:
        """(1/B) Σ_b parts_b/(nP), as gradients."""
        if self._config.importance:
            weights = self._weights[batch]
            parts = parts * (weights if self._target.scalar_parts else weights[:, :, None])
        return self._target.assemble(parts, batch)


class _FullEstimator(Estimator):
    def __init__(self, target: FiniteSum) -> None:
        self._target = target

    def __call__(self, x: Array, step: int) -> Array:
        self.evaluations += self._target.n
        return self._target.gradients(x)


class _MinibatchEstimator(Estimator):
    def __init__(self, config: Minibatch, target: FiniteSum, stream: Stream) -> None:
        self._config, self._target, self._picker = config, target, _Picker(config, target, stream)

    def __call__(self, x: Array, step: int) -> Array:
        batch = self._picker.rows(step)
        self.evaluations += self._config.batch_size
        return self._target.prior_gradient(x) + self._picker.mean(self._target.parts(x, batch), batch)


class _ReducedEstimator(Estimator):
    """Keeps x̃, the data part of ḡ and, where parts are numbers, all n of them.

    The prior's gradient is the same in every component, so it is taken at x and drops out of the memory.
    """

    _snapshot: Array
    _anchor: Array
    _memory: Array

    def __init__(self, config: Batched, target: FiniteSum, stream: Stream, remembers: bool) -> None:
        self._config, self._target, self._stream, self._remembers = config, target, stream, remembers
        self._picker = _Picker(config, target, stream)

    def __call__(self, x: Array, step: int) -> Array:
        batch = self._picker.rows(step)
        return self._estimate(x, batch, self._target.parts(x, batch))

    def _estimate(self, x: Array, batch: Indices, now: Array) -> Array:
        target, size = self._target, self._config.batch_size
        if self._remembers:
            then = np.take_along_axis(self._memory, batch if now.ndim == 2 else batch[:, :, None], axis=1)
            self.evaluations += size
        else:
            then = target.parts(self._snapshot, batch)
            self.evaluations += 2 * size
        return target.prior_gradient(x) + self._anchor + self._picker.mean(now - then, batch)

    def _remember(self, x: Array) -> None:
        """A pass over all components at x."""
        target = self._target
        self._snapshot = x.copy()
        if self._remembers:
            self._memory = target.parts(x, None)
            self._anchor = target.assemble(self._memory, None)
        else:
            self._anchor = target.gradients(x) - target.prior_gradient(x)
        self.evaluations += target.n


class _SVRGEstimator(_ReducedEstimator):
    """Takes the snapshot anew every so many steps."""

    def __init__(self, config: SVRG, target: FiniteSum, stream: Stream) -> None:
        super().__init__(config, target, stream, config.remembers(target))
        self._period, self._size = config.period(target.n), config.snapshot_size
        self._begun = False

    def __call__(self, x: Array, step: int) -> Array:
        if step % self._period == 0 or not self._begun:
            self._begun = True
            self._take_snapshot(x, step)
        return super().__call__(x, step)

    def _take_snapshot(self, x: Array, step: int) -> None:
        target, size = self._target, self._size
        if size is None:
            self._remember(x)
            return
        self._snapshot = x.copy()
        rows = self._stream.indices(step, size, target.n, self._config.replacement, Purpose.SNAPSHOT)
        self._anchor = target.assemble(target.parts(x, rows), rows)
        self.evaluations += size


class _SAGAEstimator(_ReducedEstimator):
    """Remembers each component where it was last evaluated."""

    def __init__(self, config: SAGA, target: FiniteSum, stream: Stream) -> None:
        super().__init__(config, target, stream, True)
        self._begun = False

    def __call__(self, x: Array, step: int) -> Array:
        if not self._begun:
            self._begun = True
            self._remember(x)
        batch = self._picker.rows(step)
        now = self._target.parts(x, batch)
        estimate = self._estimate(x, batch, now)
        for b in range(batch.shape[1]):  # one after another: a row drawn twice is renewed once
            one = batch[:, b : b + 1]
            place = one if now.ndim == 2 else one[:, :, None]
            change = now[:, b : b + 1] - np.take_along_axis(self._memory, place, axis=1)
            self._anchor = self._anchor + self._target.assemble(change, one) / self._target.n
            np.put_along_axis(self._memory, place, now[:, b : b + 1], axis=1)
        return estimate


class _AnchoredEstimator(_ReducedEstimator):
    """Looks at all components once, at the mode."""

    def __init__(self, config: ControlVariate, target: FiniteSum, stream: Stream) -> None:
        super().__init__(config, target, stream, target.scalar_parts)
        self._remember(target.mode()[None, :])
        chains = len(stream.chains)
        self._snapshot = np.broadcast_to(self._snapshot, (chains, target.dim))
        self._anchor = np.broadcast_to(self._anchor, (chains, target.dim))
        if self._remembers:
            self._memory = np.broadcast_to(self._memory, (chains, target.n))


class _SecondOrderEstimator(_AnchoredEstimator):
    """Takes Hᵢ(x − x̂) from each component too, and adds H(x − x̂)."""

    def __init__(self, config: ControlVariate, target: FiniteSum, stream: Stream) -> None:
        super().__init__(config, target, stream)
        self._expansion = target.expansion(self._snapshot[0])

    def __call__(self, x: Array, step: int) -> Array:
        batch = self._picker.rows(step)
        away = x - self._snapshot
        now = self._target.parts(x, batch) - self._expansion.parts(away, batch)
        return self._estimate(x, batch, now) + contract("cd,de->ce", away, self._expansion.hessian)


def _check_rows(name: str, size: int, n: int, replacement: bool) -> None:
    if n > MAX_BOUND:
        raise requirement("n", f"at most {MAX_BOUND}", n, "row numbers are drawn from 32-bit words")
    if not replacement and size > n:
        raise requirement(name, f"at most n = {n} without replacement", size)
