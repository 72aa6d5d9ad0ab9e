"""Moments of a state that obey a linear recursion: the law after any number of steps, and the stationary one.

The state of a chain is a vector in blocks of k numbers. What is followed is the covariance C of each pair of blocks and
the outer product m̂m̂ᵀ of the means, m̂ = (m, 1), and a step is linear in (C, m̂m̂ᵀ). Where pairs do not mix or are few, the
map of an epoch is a small matrix: its powers give the law after any number of steps, and a linear system the one at
stationarity. Else the steps are made one by one. What a step is, `moments` says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.density.base import Moments
from svrhmc.dynamics import Scheme
from svrhmc.gradients import Recipe

SMALL = 4  # numbers of a block whose own matrix is always affordable
_DENSE = 1500  # largest matrix of a step, else
_REFINEMENTS = 6  # of the iteration to a stationary law
_SETTLED = 1e-13
_ROUGH = 1e-4  # accuracy of an answer that is only looked at for its sign
_NOTHING = 1e-9  # entries of a power that end a series
_DOUBLINGS = 50


@dataclass(frozen=True, eq=False)
class State:
    """Covariance (…, pairs, k, k) of y, and the outer product (…, pairs, k + 1, k + 1) of its mean m̂ = (m, 1)."""

    C: Array
    mm: Array

    def flat(self) -> Array:
        """Both as one axis of numbers for each pair: (…, pairs, k² + (k + 1)²)."""
        shape = self.C.shape[:-2]
        return np.concatenate([self.C.reshape(*shape, -1), self.mm.reshape(*shape, -1)], axis=-1)

    @staticmethod
    def unflat(numbers: Array, k: int) -> State:
        """The state that `flat` made numbers of."""
        shape = numbers.shape[:-1]
        return State(numbers[..., : k * k].reshape(*shape, k, k), numbers[..., k * k :].reshape(*shape, k + 1, k + 1))


class Recursion(ABC):
    """A sampler on a quadratic: one step as a linear map of `State`.

    k: numbers of a block. a, b: the blocks of each pair that is followed. elementwise: whether pairs do not mix.
    goal: the moments of e^{−f/T} at the temperature T of the dynamics. spectrum: of the mean Hessian.
    """

    spectrum: Array
    scheme: Scheme
    _before: Array  # G = F − I on (y, 1) in each block, of the part of a step before the gradient
    _after: Array  # and of the part from the gradient on
    _before_noise: Array  # LLᵀ of each pair, of the normal numbers in each part
    _after_noise: Array

    def __init__(self, recipe: Recipe, k: int, a: Indices, b: Indices, elementwise: bool, goal: Moments) -> None:
        self.recipe, self.k, self.a, self.b, self.elementwise, self.goal = recipe, k, a, b, elementwise, goal
        self.period = recipe.epoch
        self.coordinates = np.flatnonzero(a == b)
        self._renews = recipe.reference == "snapshot"  # every epoch; a table is filled at the first step alone
        self._fills = recipe.reference == "table"

    @abstractmethod
    def state_at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0."""

    @abstractmethod
    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""

    @abstractmethod
    def marginals(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate, eigenvectors of the mean Hessian."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Roughly how many operations a step takes if it is not part of a power of a map."""

    @property
    @abstractmethod
    def noiseless_steps(self) -> tuple[Array, Array]:
        """The first and every other step of an epoch on (y, 1) in each block, without noise."""

    @abstractmethod
    def _renew(self, C: Array, mm: Array) -> tuple[Array, Array]:
        """What taking a snapshot, or filling a table, adds to C and mm."""

    @abstractmethod
    def _gradient_noise(self, C: Array, mm: Array) -> Array | None:
        """What the noise of the gradient adds to C; None if it has none."""

    def state_without_spread(self, mean: Array) -> State:
        """The state with mean m̂ in each coordinate and C = 0."""
        pairs = mean[self.a, :, None] * mean[self.b, None, :]
        return State(np.zeros((len(pairs), self.k, self.k)), pairs)

    def step(self, state: State, number: int) -> State:
        """The state after step `number`, with a snapshot if one is due."""
        return self._advance(state, self.recipe.due(number))

    def state_after(self, state: State, steps: int) -> State:
        """The state after the first `steps` steps of a run."""
        if not self.compact or steps <= self._side // 4:  # the matrix alone would take longer
            for number in range(steps):
                state = self.step(state, number)
            return state
        if self._fills:
            state, steps = self.step(state, 0), steps - 1
        epochs, rest = divmod(steps, self.period)
        numbers = self.apply(power_change(self.epoch_map, epochs), self.numbers(state))
        if rest:
            numbers = self.apply(after_change(power_change(self.inner_map, rest - 1), self.first_map), numbers)
        return self.state(numbers)

    def states_after(self, state: State, steps: Sequence[int]) -> Iterator[State]:
        """The states after increasing numbers of steps from the start of a run, by powers of the maps that all share.

        Powers by the binary digits of a number lead from one epoch's start to another, and then into the epoch. The
        chain has to be compact.
        """
        if self._fills:
            raise requirement("gradient", "one without a table", "one with a table")
        epoch, inner = self._powers
        numbers, done = self.numbers(state), 0
        for step in steps:
            epochs, rest = divmod(step, self.period)
            numbers, done = self._repeat(epoch, epochs - done, numbers), epochs
            within_epoch = self._repeat(inner, rest - 1, self.apply(self.first_map, numbers)) if rest else numbers
            yield self.state(within_epoch)

    def steps_to(self, state: State, near: Callable[[State], bool]) -> int:
        """The least number of steps from the start of a run after which a state is `near`, at least 1.

        A search by powers of two for the epoch, then for the step in it; only for a distance that falls, and a compact
        chain.
        """
        if near(state):
            return 1
        before = 0
        if self._fills:
            state, before = self.step(state, 0), 1
            if near(state):
                return 1
        numbers = self.numbers(state)

        def far(numbers: Array) -> bool:
            return not near(self.state(numbers))

        epoch, inner = self._powers
        digits = 1
        while far(self.apply(epoch[digits - 1], numbers)):
            digits += 1
            if digits > 62:
                raise requirement("accuracy", "one that the exact law reaches", "one that it does not reach")
        epochs, numbers = self._walk(epoch, digits, numbers, far)
        first = self.apply(self.first_map, numbers)
        if self.period == 1 or not far(first):
            return before + epochs * self.period + 1
        inner_steps, _ = self._walk(inner, (self.period - 1).bit_length(), first, far)
        return epochs * self.period + 2 + min(inner_steps, self.period - 2)

    def _repeat(self, powers: Powers, times: int, numbers: Array) -> Array:
        """Apply a map several times."""
        for k in range(times.bit_length()):
            if times >> k & 1:
                numbers = self.apply(powers[k], numbers)
        return numbers

    def _walk(self, powers: Powers, digits: int, numbers: Array, far: Callable[[Array], bool]) -> tuple[int, Array]:
        """The largest number of applications of a map after which the state is still `far`, and that state."""
        count = 0
        for k in reversed(range(digits)):
            trial = self.apply(powers[k], numbers)
            if far(trial):
                count, numbers = count + 2**k, trial
        return count, numbers

    @property
    def _side(self) -> int:
        """The number of rows of the matrix of a step; of one pair if pairs do not mix."""
        size = self.k**2 + (self.k + 1) ** 2
        return size if self.elementwise else size * len(self.a)

    @property
    def compact(self) -> bool:
        """Whether the matrix of a step is small enough to make: pairs do not mix, or there are few of them."""
        return self._side <= _DENSE or (self.elementwise and self.k <= SMALL)

    def epoch(self, state: State) -> State:
        """The state after the steps of an epoch, made one by one."""
        for number in range(self.period):
            state = self._advance(state, self._renews and number == 0)
        return state

    @cached_property
    def first_map(self) -> Array:
        """What the first step of an epoch changes, T − I, as a matrix for each block: (blocks, size, size)."""
        return self._matrix(self._renews)

    @cached_property
    def inner_map(self) -> Array:
        """The same for every other step of an epoch."""
        return self._matrix(False) if self._renews else self.first_map

    @cached_property
    def epoch_map(self) -> Array:
        """The same for a whole epoch."""
        return after_change(power_change(self.inner_map, self.period - 1), self.first_map)

    @cached_property
    def _powers(self) -> tuple[Powers, Powers]:
        """The powers of the map of an epoch, and of the map of a step within it."""
        return Powers(self.epoch_map), Powers(self.inner_map)

    def _change(self, state: State, snapshot: bool) -> State:
        """What a step adds to a state: linear in it, and never by way of 1 plus something small."""
        stages = [self._move_before] if self.scheme.moves_before else []
        stages += [self._renew] if snapshot else []
        C, mm, changes = state.C, state.mm, []
        for stage in stages:
            dC, dmm = stage(C, mm)
            changes.append((dC, dmm))
            C, mm = C + dC, mm + dmm
        dC, dmm = self._through(C, mm, self._after)
        dC = dC + self._after_noise * mm[..., -1:, -1:]
        noise = self._gradient_noise(C, mm)
        if noise is not None:
            dC = dC + noise
        for earlier in changes:
            dC, dmm = dC + earlier[0], dmm + earlier[1]
        return State(dC, dmm)

    def _move_before(self, C: Array, mm: Array) -> tuple[Array, Array]:
        """What the part of a step before the gradient adds to C and mm."""
        dC, dmm = self._through(C, mm, self._before)
        return dC + self._before_noise * mm[..., -1:, -1:], dmm

    def _advance(self, state: State, snapshot: bool) -> State:
        with np.errstate(over="ignore", invalid="ignore"):  # an unstable chain is refused where it matters
            change = self._change(state, snapshot)
        return State(state.C + change.C, state.mm + change.mm)

    def _through(self, C: Array, mm: Array, maps: Array) -> tuple[Array, Array]:
        """(I + G_a) C (I + G_b)ᵀ − C for both, given G."""
        left, right = maps[self.a], maps[self.b].swapaxes(-1, -2)
        k = self.k

        def change(M: Array, a: Array, b: Array) -> Array:
            product: Array = a @ M
            return product + M @ b + product @ b

        return change(C, left[:, :k, :k], right[:, :k, :k]), change(mm, left, right)

    def _matrix(self, snapshot: bool) -> Array:
        """The matrix of a step, from every unit vector; one matrix for each pair if pairs do not mix."""
        pairs, size = len(self.a), self.k**2 + (self.k + 1) ** 2
        if self.elementwise:
            units = np.broadcast_to(np.eye(size)[:, None, :], (size, pairs, size))
            out = self._change(State.unflat(units, self.k), snapshot).flat()
            return np.ascontiguousarray(out.transpose(1, 2, 0))
        units = np.eye(pairs * size).reshape(-1, pairs, size)
        out = self._change(State.unflat(units, self.k), snapshot).flat()
        return np.ascontiguousarray(out.reshape(-1, pairs * size).T[None])

    def numbers(self, state: State) -> Array:
        """A state as one vector for each block of the maps."""
        numbers = state.flat()
        return numbers if self.elementwise else numbers.reshape(1, -1)

    def state(self, numbers: Array) -> State:
        """The state from the vectors that `numbers` makes of it."""
        return State.unflat(numbers.reshape(len(self.a), -1), self.k)

    @staticmethod
    def apply(maps: Array, numbers: Array) -> Array:
        """(I + map) applied to the numbers of each block."""
        with np.errstate(over="ignore", invalid="ignore"):
            applied: Array = numbers + (maps @ numbers[:, :, None])[:, :, 0]
        return applied


class Powers:
    """The 1st, 2nd, 4th, 8th, … power of a map I + change, each computed once and stored without the I."""

    def __init__(self, change: Array) -> None:
        self._powers = [change]

    def __getitem__(self, k: int) -> Array:
        while len(self._powers) <= k:
            self._powers.append(after_change(self._powers[-1], self._powers[-1]))
        return self._powers[k]


def tempered(goal: Moments, temperature: float) -> Moments:
    """The moments of e^{−f/T} from those of e^{−f}, f a quadratic: the mean stays, and the covariance is T times."""
    return Moments(goal.mean, temperature * goal.covariance)


def original_coordinates(basis: Array, centre: Array, mean: Array, covariance: Array) -> tuple[Array, Array]:
    """Mean and covariance of (x, v) in the target's coordinates, from (2, dim) and (2, dim, 2, dim) in a basis."""
    if not np.isfinite(covariance).all():
        raise requirement("step_size", "so small that the moments stay finite", "a larger one")
    dim = len(centre)
    rotated = np.einsum("da,iajb,eb->idje", basis, covariance, basis, optimize=True).reshape(2 * dim, 2 * dim)
    return np.concatenate([basis @ mean[0] + centre, basis @ mean[1]]), (rotated + rotated.T) / 2


def after_change(second: Array, first: Array) -> Array:
    """(I + second)(I + first) − I."""
    with np.errstate(over="ignore", invalid="ignore"):  # an unstable map is refused where it matters
        return second + first + second @ first


def power_change(change: Array, exponent: int) -> Array:
    """(I + change)^exponent − I of a stack of matrices, with no digits lost where the change is small."""
    total = np.zeros_like(change)
    while exponent:
        if exponent & 1:
            total = after_change(total, change)
        exponent >>= 1
        if exponent:
            change = after_change(change, change)
    return total


# The stationary law: the fixed point of the map of an epoch, on its moments.


class UnsettledError(ValueError):
    """A sampler has no stationary law at its step."""

    def __init__(self) -> None:
        super().__init__(
            "step_size must be small enough for a stationary law; got one at which the chain, or the noise of its "
            "gradient, grows (or is damped too little to tell): try half the step or a larger batch_size."
        )


def stationary_state(chain: Recursion) -> State:
    """The fixed point of the map of an epoch; an error if there is none, or if it is no covariance."""
    mean = _stationary_mean(chain)
    state = _solve_directly(chain, mean) if chain.compact and chain.k <= SMALL else _solve_by_gmres(chain, mean)
    variances = np.einsum("pii->pi", state.C[chain.coordinates])
    if not (np.isfinite(variances).all() and variances.min() >= -1e-9 * np.abs(variances).max()):
        raise UnsettledError()
    return state


def _stationary_mean(chain: Recursion) -> State:
    """The state with C = 0 and the mean that an epoch does not change."""
    k, (first, inner) = chain.k, chain.noiseless_steps
    epoch = after_change(power_change(inner, chain.period - 1), first)[:, :k]
    _require_decay(epoch[:, :, :k])
    mean = np.zeros((len(epoch), k + 1))
    mean[:, k] = 1.0
    mean[:, :k] = np.linalg.solve(-epoch[:, :, :k], epoch[:, :, k:])[..., 0]
    return chain.state_without_spread(mean)


def _solve_directly(chain: Recursion, mean: State) -> State:
    """Solve (I − T_CC) C = T_Cm mm in every block, given T − I."""
    count = chain.k**2
    maps, numbers = chain.epoch_map, chain.numbers(mean)
    per_pair = np.arange(numbers.shape[1]).reshape(1 if chain.elementwise else len(chain.a), -1)
    inner = per_pair[:, :count].reshape(-1)
    change = maps[:, inner][:, :, inner]
    _require_decay(change)
    solved = numbers.copy()
    try:
        solved[:, inner] = np.linalg.solve(-change, (maps @ numbers[:, :, None])[:, inner])[:, :, 0]
    except np.linalg.LinAlgError:  # damped by less than rounding
        raise UnsettledError() from None
    return chain.state(solved)


def _solve_by_gmres(chain: Recursion, mean: State) -> State:
    """Solve C − Φ(C) = Φ₀ by GMRES, preconditioned by (I − T₀)⁻¹ of each pair; Φ is the change by an epoch with mean 0,
    and Φ₀ that from C = 0.

    T₀ is an epoch without the noise that mixes pairs, so what is left to the iteration is that noise alone. Φ maps
    covariances to covariances, so it shrinks if and only if X − Φ(X) = W has a solution X ≥ 0 for a W > 0; then X ≥ W.
    """
    from scipy.sparse.linalg import LinearOperator, gmres

    shape, size = mean.C.shape, mean.C.size
    precondition = (_inverse_by_doubling if chain.k > SMALL else _inverse_by_pairs)(chain)

    def epoch(C: Array, mm: Array) -> Array:
        return np.asarray(chain.epoch(State(C.reshape(shape), mm)).C.ravel(), np.float64)

    def without_mean(C: Array) -> Array:
        return C - epoch(C, np.zeros_like(mean.mm))

    system, preconditioner = (
        LinearOperator((size, size), matvec=product, dtype=np.float64) for product in (without_mean, precondition)
    )

    def solve(right: Array, rtol: float) -> Array:
        C, residual = np.zeros(size), right
        for _ in range(_REFINEMENTS):
            step, _ = gmres(system, residual, M=preconditioner, rtol=rtol, restart=40, maxiter=3)
            C, before = C + step, residual
            residual = right - without_mean(C)
            if not np.isfinite(residual).all() or np.abs(precondition(residual)).max() <= _SETTLED * np.abs(C).max():
                break
            if rtol >= _ROUGH or np.linalg.norm(residual) > 0.5 * np.linalg.norm(before):  # rounding is reached
                break
        small = max(1e-6, 100 * rtol) * np.abs(C).max()
        if not (np.isfinite(C).all() and np.abs(precondition(residual)).max() <= small):
            raise UnsettledError()
        return C.reshape(shape)

    C = solve(epoch(mean.C.ravel(), mean.mm), 1e-10)
    variances = np.abs(np.einsum("pii->pi", C[chain.coordinates]))
    variances = np.where(variances > 0, variances, variances.max())
    W = np.zeros(shape)
    W[chain.coordinates] = variances[:, :, None] * np.eye(chain.k)
    if _least_eigenvalue(chain, solve(W.ravel(), _ROUGH), variances) < 0.5:
        raise UnsettledError()
    return State(C, mean.mm)


def _least_eigenvalue(chain: Recursion, C: Array, variances: Array) -> float:
    """The least eigenvalue of the covariance of all blocks together, in units of the standard deviations."""
    blocks, k = variances.shape
    covariance = np.zeros((blocks, k, blocks, k))
    covariance[chain.b, :, chain.a, :] = C.swapaxes(-1, -2)
    covariance[chain.a, :, chain.b, :] = C
    scale = np.sqrt(variances).ravel()
    return float(np.linalg.eigvalsh(covariance.reshape(blocks * k, -1) / np.outer(scale, scale))[0])


def _inverse_by_pairs(chain: Recursion) -> Callable[[Array], Array]:
    """(I − T₀)⁻¹ as a matrix for each pair."""
    k, eye = chain.k, np.eye(chain.k)

    def kronecker_products(G: Array) -> Array:
        left, right = G[chain.a, :k, :k], G[chain.b, :k, :k]
        change: Array = np.einsum("pij,kl->pikjl", left, eye) + np.einsum("ij,pkl->pikjl", eye, right)
        change += np.einsum("pij,pkl->pikjl", left, right)
        return change.reshape(-1, k * k, k * k)

    first, inner = (kronecker_products(G) for G in chain.noiseless_steps)
    difference = -after_change(power_change(inner, chain.period - 1), first)
    return lambda C: np.asarray(np.linalg.solve(difference, C.reshape(-1, k * k, 1)).ravel(), np.float64)


def _inverse_by_doubling(chain: Recursion) -> Callable[[Array], Array]:
    """(I − T₀)⁻¹C = Σ AʲCAʲᵀ with the map A of the mean by an epoch, which shrinks: each round doubles the terms.

    The powers are made once for all C (SciPy's solve_discrete_lyapunov would factor A anew for each).
    """
    k, (first, inner) = chain.k, chain.noiseless_steps
    A = np.eye(k) + after_change(power_change(inner, chain.period - 1), first)[:, :k, :k]
    powers = [A]
    while np.abs(powers[-1]).max() > _NOTHING and len(powers) < _DOUBLINGS:
        powers.append(powers[-1] @ powers[-1])

    def inverse(C: Array) -> Array:
        total = C.reshape(-1, k, k)
        for A in powers:
            total = total + A[chain.a] @ total @ A[chain.b].swapaxes(-1, -2)
        return np.asarray(total.ravel(), np.float64)

    return inverse


def _require_decay(change: Array) -> None:
    """Refuse a map I + change that does not shrink: |1 + λ|² − 1 = 2 Re λ + |λ|² must be negative."""
    if not np.isfinite(change).all():
        raise UnsettledError()
    values = np.linalg.eigvals(change)
    with np.errstate(over="ignore"):
        if (2 * values.real + np.abs(values) ** 2).max() >= 0:
            raise UnsettledError()
