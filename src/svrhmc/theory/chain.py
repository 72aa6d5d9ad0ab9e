"""One step of a sampler on a quadratic target as a linear map of the moments of its state (ours).

In the coordinates of `quadratic`, every scheme acts on each coordinate of y = (x, v, x̃, ζ̃) alone (snapshot x̃; error ζ̃
of an estimated snapshot gradient), and the noise of its gradient has mean zero. So the mean m_a of coordinate a and
the covariance C_ab of a pair obey, over the two halves of a step,

    m_a ← P m_a,   C_ab ← P C_ab Pᵀ + δ_ab Lp Lpᵀ ;     m_a ← F_a m_a,   C_ab ← F_a C_ab F_bᵀ + δ_ab Lq Lqᵀ + ρV_ab kkᵀ,

F_a containing the drift −k(s_a x + ζ̃), ρ = 1/B, or (n − B)/(B(n − 1)) without replacement, and V the second moment of
one component's noise, from M = C + mmᵀ:

    Minibatch:  V = 𝒩(M_xx) + 𝒳(m_x) + ℱ,      SVRG:  V = 𝒩(E (x − x̃)(x − x̃)ᵀ),      ControlVariate:  V = 𝒩(M_xx)

(and 0 for order 2). At a snapshot x̃ ← x, and ζ̃ ← a fresh error with second moment ρ̃ (𝒩(M_xx) + 𝒳(m_x) + ℱ),
uncorrelated with the rest.

All this is linear in (C, m̂m̂ᵀ), m̂ = (m, 1). Where pairs do not mix (a common S, or Sᵢ that commute) or are few, the
map of an epoch is a small matrix: its powers give the law after any number of steps, and a linear system the one at
stationarity. Else the steps are made one by one, each in O(dim⁴) or a pass over the components.

Mean and covariance are exact always; the law itself is Gaussian where the gradient has no noise. Where it has, W₂
between Gaussians of these moments is a lower bound on W₂ (Gelbrich 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.dynamics import Curved
from svrhmc.gradients import Recipe
from svrhmc.samplers import Sampler
from svrhmc.scheme import Map, NoiseFactor
from svrhmc.targets.base import FiniteSum, require_target
from svrhmc.theory.quadratic import Quadratic

_DENSE = 1500  # largest matrix of a step on all pairs together


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


class Chain:
    """A sampler on a quadratic: one step as a linear map of `State`."""

    def __init__(self, sampler: Sampler, model: Quadratic, curved: Curved) -> None:
        self.model, self.recipe = model, sampler.gradient.recipe(model)
        self.scheme = sampler.dynamics.scheme(curved)
        self.period = self.recipe.epoch
        self.k = _parts(self.recipe, sampler)  # of y that matter: x, v, then x̃, then ζ̃
        self._diagonal = np.where(model.a == model.b, 1.0, 0.0)
        kick = np.zeros((model.dim, self.k, self.k))
        kick[:, :2, 0] = -np.outer(model.spectrum, self.scheme.kick)
        if self.k == 4:
            kick[:, :2, 3] = -np.array(self.scheme.kick)
        self._before = self._maps(self.scheme.before, np.zeros_like(kick))
        self._after = self._maps(self.scheme.after, kick)
        self._before_noise, self._after_noise = (
            self._noise(noise) for noise in (self.scheme.before_noise, self.scheme.after_noise)
        )
        self._kick_noise = self._top(np.outer(self.scheme.kick, self.scheme.kick))
        self.coordinates = np.flatnonzero(model.a == model.b)

    @staticmethod
    def of(sampler: Sampler, target: FiniteSum) -> Chain:
        """On a quadratic target."""
        if not hasattr(sampler, "dynamics"):
            raise requirement("sampler", "a Sampler, such as svr_hmc(0.1)", repr(sampler))
        noisy = not sampler.gradient.recipe(require_target(target)).full
        return Chain(sampler, Quadratic.of(target, noisy), target)

    def at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0."""
        away = self.model.basis.T @ (x - self.model.centre)
        mean = np.zeros((self.model.dim, self.k + 1))
        mean[:, 0], mean[:, self.k] = away, 1.0
        if self.k > 2:
            mean[:, 2] = away
        return self.fixed(mean)

    def fixed(self, mean: Array) -> State:
        """No spread about a mean m̂ of each coordinate."""
        pairs = mean[self.model.a, :, None] * mean[self.model.b, None, :]
        return State(np.zeros((len(pairs), self.k, self.k)), pairs)

    def moments(self, state: State) -> tuple[Array, Array]:
        """Mean and covariance of (x, v) in the target's coordinates."""
        model, d, U = self.model, self.model.dim, self.model.basis
        if not np.isfinite(state.C).all():
            raise requirement("step_size", "one with which the moments stay finite", "one with which they do not")
        mean = np.concatenate([U @ self._mean(state)[:, 0] + model.centre, U @ self._mean(state)[:, 1]])
        covariance = np.zeros((2, d, 2, d))
        for i in range(2):
            for j in range(2):
                covariance[j, model.b, i, model.a] = state.C[:, i, j]
                covariance[i, model.a, j, model.b] = state.C[:, i, j]
        turned = np.einsum("da,iajb,eb->idje", U, covariance, U, optimize=True).reshape(2 * d, 2 * d)
        return mean, (turned + turned.T) / 2

    def spread(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate."""
        return self._mean(state)[:, 0], state.C[self.coordinates, 0, 0]

    def step(self, state: State, number: int) -> State:
        """One step, with its snapshot where one is due."""
        return self._advance(state, self.recipe.due(number))

    def after(self, state: State, steps: int) -> State:
        """So many steps from the start of a run."""
        if not self.compact:
            for number in range(steps):
                state = self.step(state, number)
            return state
        epochs, rest = divmod(steps, self.period)
        numbers = self.apply(power_change(self.epoch_map, epochs), self.numbers(state))
        if rest:
            numbers = self.apply(after_change(power_change(self.inner_map, rest - 1), self.first_map), numbers)
        return self.state(numbers)

    def steps_to(self, state: State, near: Callable[[State], bool]) -> int:
        """The least number of steps from the start of a run after which a state is `near`, at least 1.

        Whole epochs by powers of two, then steps within one: for a distance that falls, and a chain that is compact.
        """
        numbers = self.numbers(state)
        if near(state):
            return 1

        def far(at: Array) -> bool:
            return not near(self.state(at))

        powers = [self.epoch_map]
        while far(self.apply(powers[-1], numbers)):
            powers.append(after_change(powers[-1], powers[-1]))
            if len(powers) > 62:
                raise requirement("accuracy", "one that the exact law reaches", "one that it does not come near")
        epochs, numbers = self._walk(powers, numbers, far)
        first = self.apply(self.first_map, numbers)
        if self.period == 1 or not far(first):
            return epochs * self.period + 1
        powers = [self.inner_map]
        while 2 ** len(powers) < self.period:
            powers.append(after_change(powers[-1], powers[-1]))
        inner, _ = self._walk(powers, first, far)
        return epochs * self.period + 2 + min(inner, self.period - 2)

    def _walk(self, powers: list[Array], numbers: Array, far: Callable[[Array], bool]) -> tuple[int, Array]:
        """The most applications of powers[0] after which it is still `far`, by binary digits, and where that is."""
        count = 0
        for k in reversed(range(len(powers))):
            trial = self.apply(powers[k], numbers)
            if far(trial):
                count, numbers = count + 2**k, trial
        return count, numbers

    @cached_property
    def compact(self) -> bool:
        """Whether a step is a matrix of affordable size: pairs that do not mix, or few of them."""
        size = self.k**2 + (self.k + 1) ** 2
        return self.model.noise.elementwise or size * len(self.model.a) <= _DENSE

    @property
    def cost(self) -> float:
        """Operations of a step made by itself, roughly."""
        return 50.0 * len(self.model.a) * self.k**2 + self.model.noise.cost

    @cached_property
    def first_map(self) -> Array:
        """What the first step of an epoch changes, T − I, as a matrix for each block: (blocks, size, size)."""
        return self._matrix(self.recipe.carries)

    @cached_property
    def inner_map(self) -> Array:
        """The same for every other step of an epoch."""
        return self._matrix(False) if self.recipe.carries else self.first_map

    @cached_property
    def epoch_map(self) -> Array:
        """The same for a whole epoch."""
        return after_change(power_change(self.inner_map, self.period - 1), self.first_map)

    def _advance(self, state: State, snapshot: bool) -> State:
        change = self._change(state, snapshot)
        return State(state.C + change.C, state.mm + change.mm)

    def _change(self, state: State, snapshot: bool) -> State:
        """What a step adds to a state: linear in it, and never by way of 1 plus something small."""
        changes = []
        C, mm = state.C, state.mm
        if self.scheme.moves_before:
            dC, dmm = self._through(C, mm, self._before)
            changes.append((dC + self._before_noise * mm[..., -1:, -1:], dmm))
            C, mm = C + changes[-1][0], mm + changes[-1][1]
        if snapshot:
            changes.append(self._snapshot(C, mm))
            C, mm = C + changes[-1][0], mm + changes[-1][1]
        V = self._gradient_noise(C, mm)
        dC, dmm = self._through(C, mm, self._after)
        dC = dC + self._after_noise * mm[..., -1:, -1:]
        if V is not None:
            dC = dC + self._kick_noise * V[..., None, None]
        for earlier in changes:
            dC, dmm = dC + earlier[0], dmm + earlier[1]
        return State(dC, dmm)

    def _through(self, C: Array, mm: Array, maps: Array) -> tuple[Array, Array]:
        """(I + G_a) C (I + G_b)ᵀ − C for both, given G."""
        left, right = maps[self.model.a], maps[self.model.b].swapaxes(-1, -2)
        k = self.k

        def change(M: Array, a: Array, b: Array) -> Array:
            moved: Array = a @ M
            return moved + M @ b + moved @ b

        return change(C, left[:, :k, :k], right[:, :k, :k]), change(mm, left, right)

    def _snapshot(self, C: Array, mm: Array) -> tuple[Array, Array]:
        """What a snapshot changes."""
        take = self.take + np.eye(self.k + 1)
        inner = take[: self.k, : self.k]
        moved = inner @ C @ inner.T
        if self.k == 4:
            scale = _scale(self.recipe.snapshot_rows, self.model.n, self.recipe.replacement)
            moved[..., 3, 3] = scale * self._component_noise(C, mm)
        return moved - C, take @ mm @ take.T - mm

    def _gradient_noise(self, C: Array, mm: Array) -> Array | None:
        """ρV of each pair."""
        recipe = self.recipe
        if recipe.full or recipe.order == 2:
            return None
        scale = _scale(recipe.batch, self.model.n, recipe.replacement)
        if recipe.reference == "none":
            return scale * self._component_noise(C, mm)
        M = C + mm[..., :-1, :-1]
        apart = M[..., 0, 0]  # from the mode, or from the snapshot
        if recipe.reference == "snapshot":
            apart = apart - M[..., 0, 2] - M[..., 2, 0] + M[..., 2, 2]
        return scale * self.model.noise.curvature(apart)

    def _component_noise(self, C: Array, mm: Array) -> Array:
        noise = self.model.noise
        mean = mm[..., self.coordinates, 0, -1]
        cross = noise.cross(mm[..., 0, -1], mm[..., -1, 0], mean)
        return noise.curvature(C[..., 0, 0] + mm[..., 0, 0]) + cross + noise.forces * mm[..., -1, -1]

    def _maps(self, linear: Map, kick: Array) -> Array:
        """G = F − I on (y, 1) in each coordinate; a map with xx ≠ 1 acts on x itself, not on x − x*."""
        d, k = self.model.dim, self.k
        G = np.zeros((d, k + 1, k + 1))
        G[:, 0, 0], G[:, 0, 1], G[:, 1, 0], G[:, 1, 1] = linear.xx - 1, linear.xv, linear.vx, linear.vv - 1
        centre = self.model.basis.T @ self.model.centre
        G[:, 0, k], G[:, 1, k] = (linear.xx - 1) * centre, linear.vx * centre
        G[:, :k, :k] += kick
        return G

    def _noise(self, noise: NoiseFactor) -> Array:
        """LLᵀ on the pairs of equal coordinates."""
        cross = noise.xv * noise.vv
        matrix = np.array([[noise.xv**2 + noise.xx**2, cross], [cross, noise.vv**2]])
        return self._diagonal[:, None, None] * self._top(matrix)

    def _top(self, matrix: Array) -> Array:
        """A 2 × 2 matrix of (x, v) as one of y."""
        whole = np.zeros((self.k, self.k))
        whole[:2, :2] = matrix
        return whole

    def _mean(self, state: State) -> Array:
        mean: Array = state.mm[self.coordinates, :, -1]
        return mean

    def _matrix(self, snapshot: bool) -> Array:
        """A step applied to every unit vector: of each pair at once where pairs do not mix, else of all."""
        pairs, size = len(self.model.a), self.k**2 + (self.k + 1) ** 2
        if self.model.noise.elementwise:
            units = np.broadcast_to(np.eye(size)[:, None, :], (size, pairs, size))
            out = self._change(State.unflat(units, self.k), snapshot).flat()
            return np.ascontiguousarray(out.transpose(1, 2, 0))
        units = np.eye(pairs * size).reshape(-1, pairs, size)
        out = self._change(State.unflat(units, self.k), snapshot).flat()
        return np.ascontiguousarray(out.reshape(-1, pairs * size).T[None])

    def numbers(self, state: State) -> Array:
        """A state as one vector for each block of the maps."""
        numbers = state.flat()
        return numbers if self.model.noise.elementwise else numbers.reshape(1, -1)

    def state(self, numbers: Array) -> State:
        """The state that those numbers are."""
        return State.unflat(numbers.reshape(len(self.model.a), -1), self.k)

    @staticmethod
    def apply(maps: Array, numbers: Array) -> Array:
        """What a map leaves, block by block, given what it changes."""
        applied: Array = numbers + (maps @ numbers[:, :, None])[:, :, 0]
        return applied

    @cached_property
    def quiet_steps(self) -> tuple[Array, Array]:
        """The first and every other step of an epoch on (y, 1) in each coordinate, without noise."""
        inner = after_change(self._after, self._before)
        if self.k == 2:
            return inner, inner
        return after_change(self._after, after_change(np.broadcast_to(self.take, inner.shape), self._before)), inner

    @cached_property
    def take(self) -> Array:
        """What a snapshot changes on (y, 1): x̃ ← x, ζ̃ ← 0."""
        take = np.zeros((self.k + 1, self.k + 1))
        take[2, 0], take[2, 2] = 1.0, -1.0
        for k in range(3, self.k):
            take[k, k] = -1.0
        return take


def _parts(recipe: Recipe, sampler: Sampler) -> int:
    """How many parts of y matter to a recipe; refused where the law is not known."""
    if recipe.reference == "table" or recipe.weighted:
        allowed = "one whose law is known: without a table of its components, and with rows drawn evenly"
        raise requirement("gradient", allowed, repr(sampler.gradient))
    if recipe.reference == "snapshot":
        return 4 if recipe.snapshot_rows else 3
    return 2


def _scale(size: int, n: int, replacement: bool) -> float:
    """Variance of a mean of `size` components over that of one."""
    if replacement:
        return 1 / size
    return (n - size) / (size * (n - 1)) if n > 1 else 0.0


def after_change(second: Array, first: Array) -> Array:
    """(I + second)(I + first) − I."""
    with np.errstate(over="ignore", invalid="ignore"):  # of an unstable map, which is looked for where it matters
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
