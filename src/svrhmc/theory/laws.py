"""The exact law of a sampler on a quadratic target: no simulation, no bound (ours).

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

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement, whole
from svrhmc.distances import gaussian_w2
from svrhmc.dynamics import IDENTITY, SILENT, Curved, Map, Noise
from svrhmc.gradients import SVRG, ControlVariate, Full, Gradient, Minibatch
from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.theory.problem import Start, starting_point
from svrhmc.theory.quadratic import Quadratic

if TYPE_CHECKING:
    from svrhmc.samplers import Sampler

_DENSE = 1500  # largest matrix of a step on all pairs together
_REFINEMENTS = 6  # of the iteration to a stationary law
_SETTLED = 1e-13


@dataclass(frozen=True, eq=False)
class Law:
    """Mean (2·dim) and covariance (2·dim, 2·dim) of (x, v) after `step` steps (None: stationary), and the passes spent.

    `w2` is the distance of x to the target, by these moments.
    """

    step: int | None
    passes: float
    mean: Array
    covariance: Array
    target: Moments

    @property
    def position(self) -> Moments:
        """Mean and covariance of x alone."""
        dim = len(self.mean) // 2
        return Moments(self.mean[:dim], self.covariance[:dim, :dim])

    @cached_property
    def w2(self) -> float:
        """W₂ between the Gaussian with these moments of x and the target."""
        x, pi = self.position, self.target
        return gaussian_w2(x.mean, x.covariance, pi.mean, pi.covariance)


def laws(sampler: Sampler, target: FiniteSum, steps: int, start: Start = None) -> Iterator[Law]:
    """The law after 0, 1, …, `steps` steps, from a fixed start (None: the origin; "mode"; a point) and
    velocity 0.

    >>> from svrhmc import svr_hmc, targets
    >>> *_, last = laws(svr_hmc(step_size=0.1), targets.synthetic(n=50, dim=2), steps=100)
    >>> last.position.mean.shape
    (2,)
    """
    chain = Chain.of(sampler, target)
    state = chain.at(starting_point(target, start))
    yield chain.law(state, 0, 0.0)
    for step in range(whole("steps", steps, 0)):
        state = chain.step(state, step)
        yield chain.law(state, step + 1, sampler.gradient.evaluations(target, step + 1) / target.n)


def law(sampler: Sampler, target: FiniteSum, steps: int, start: Start = None) -> Law:
    """The law after `steps` steps alone: for a common S, in time that grows with the logarithm of the steps.

    >>> from svrhmc import hmc, targets
    >>> float(round(law(hmc(step_size=1e-6), targets.synthetic(n=5000, dim=50), steps=10**9).w2, 9))
    1.227e-06
    """
    chain, steps = Chain.of(sampler, target), whole("steps", steps, 0)
    state = chain.after(chain.at(starting_point(target, start)), steps)
    return chain.law(state, steps, sampler.gradient.evaluations(target, steps) / target.n)


def stationary(sampler: Sampler, target: FiniteSum) -> Law:
    """The law that the sampler settles to; with snapshots, the one at the end of an epoch.

    >>> from svrhmc import hmc, targets
    >>> settled = stationary(hmc(step_size=0.1, inverse_mass=2 / 3), targets.gaussian([[3.0]], [[1.2]]))
    >>> float(settled.covariance[0, 0].round(9))  # 1/1.2 is 0.833333333
    0.86858999
    """
    chain = Chain.of(sampler, target)
    return chain.law(chain.stationary(), None, math.inf)


class UnsettledError(ValueError):
    """A sampler has no stationary law at its step."""

    def __init__(self) -> None:
        super().__init__(
            "step_size must be small enough for a stationary law; got one at which the chain, or the noise of its "
            "gradient, grows (or is damped too little to tell): try half the step or a larger batch_size."
        )


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
        gradient = sampler.gradient
        gradient.check(model.n)
        self.model, self.gradient = model, gradient
        self.scheme = sampler.dynamics.scheme(curved)
        self.period = gradient.period(model.n) if isinstance(gradient, SVRG) else 1
        self.k = _parts(gradient)  # of y that matter: x, v, then x̃, then ζ̃
        self._diagonal = np.where(model.a == model.b, 1.0, 0.0)
        self._plain = (self.scheme.before, self.scheme.before_noise) == (IDENTITY, SILENT)
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
        self._coordinates = np.flatnonzero(model.a == model.b)

    @staticmethod
    def of(sampler: Sampler, target: FiniteSum) -> Chain:
        """On a quadratic target."""
        if not hasattr(sampler, "dynamics"):
            raise requirement("sampler", "a Sampler, such as svr_hmc(0.1)", repr(sampler))
        return Chain(sampler, Quadratic.of(target, noisy=not isinstance(sampler.gradient, Full)), target)

    def at(self, x: Array) -> State:
        """The state at a fixed point with velocity 0."""
        away = self.model.basis.T @ (x - self.model.centre)
        mean = np.zeros((self.model.dim, self.k + 1))
        mean[:, 0], mean[:, self.k] = away, 1.0
        if self.k > 2:
            mean[:, 2] = away
        return self._fixed(mean)

    def _fixed(self, mean: Array) -> State:
        """No spread about a mean m̂ of each coordinate."""
        pairs = mean[self.model.a, :, None] * mean[self.model.b, None, :]
        return State(np.zeros((len(pairs), self.k, self.k)), pairs)

    def law(self, state: State, step: int | None, passes: float) -> Law:
        """Moments of (x, v) in the target's coordinates."""
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
        return Law(step, passes, mean, (turned + turned.T) / 2, model.moments)

    def spread(self, state: State) -> tuple[Array, Array]:
        """Mean and variance of x in each coordinate."""
        return self._mean(state)[:, 0], state.C[self._coordinates, 0, 0]

    def step(self, state: State, number: int) -> State:
        """One step, with its snapshot where one is due."""
        return self._advance(state, isinstance(self.gradient, SVRG) and number % self.period == 0)

    def after(self, state: State, steps: int) -> State:
        """So many steps from the start of a run."""
        if not self.compact:
            for number in range(steps):
                state = self.step(state, number)
            return state
        epochs, rest = divmod(steps, self.period)
        numbers = self.apply(_power(self.epoch_map, epochs), self.numbers(state))
        if rest:
            numbers = self.apply(_after(_power(self.inner_map, rest - 1), self.first_map), numbers)
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
            powers.append(_after(powers[-1], powers[-1]))
            if len(powers) > 62:
                raise requirement("accuracy", "one that the exact law reaches", "one that it does not come near")
        epochs, numbers = self._walk(powers, numbers, far)
        first = self.apply(self.first_map, numbers)
        if self.period == 1 or not far(first):
            return epochs * self.period + 1
        powers = [self.inner_map]
        while 2 ** len(powers) < self.period:
            powers.append(_after(powers[-1], powers[-1]))
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

    def stationary(self) -> State:
        """The fixed point of the map of an epoch; refused where there is none that is a covariance."""
        settled = self._settled_mean()
        state = self._solved(settled) if self.compact else self._iterated(settled)
        variances = np.einsum("pii->pi", state.C[self._coordinates])
        if not (np.isfinite(variances).all() and variances.min() >= -1e-9 * np.abs(variances).max()):
            raise UnsettledError()
        return state

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
        return self._matrix(isinstance(self.gradient, SVRG))

    @cached_property
    def inner_map(self) -> Array:
        """The same for every other step of an epoch."""
        return self._matrix(False) if isinstance(self.gradient, SVRG) else self.first_map

    @cached_property
    def epoch_map(self) -> Array:
        """The same for a whole epoch."""
        return _after(_power(self.inner_map, self.period - 1), self.first_map)

    def _advance(self, state: State, snapshot: bool) -> State:
        change = self._change(state, snapshot)
        return State(state.C + change.C, state.mm + change.mm)

    def _change(self, state: State, snapshot: bool) -> State:
        """What a step adds to a state: linear in it, and never by way of 1 plus something small."""
        changes = []
        C, mm = state.C, state.mm
        if not self._plain:
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
        take = self._take + np.eye(self.k + 1)
        inner = take[: self.k, : self.k]
        moved = inner @ C @ inner.T
        if self.k == 4:
            assert isinstance(self.gradient, SVRG)
            assert self.gradient.snapshot_size is not None
            scale = _scale(self.gradient.snapshot_size, self.model.n, self.gradient.replacement)
            moved[..., 3, 3] = scale * self._component_noise(C, mm)
        return moved - C, take @ mm @ take.T - mm

    def _gradient_noise(self, C: Array, mm: Array) -> Array | None:
        """ρV of each pair."""
        gradient = self.gradient
        if isinstance(gradient, ControlVariate) and gradient.order == 2:
            return None
        if not isinstance(gradient, Minibatch | SVRG | ControlVariate):
            return None
        scale = _scale(gradient.batch_size, self.model.n, gradient.replacement)
        if isinstance(gradient, Minibatch):
            return scale * self._component_noise(C, mm)
        M = C + mm[..., :-1, :-1]
        apart = M[..., 0, 0]  # from the mode, or from the snapshot
        if isinstance(gradient, SVRG):
            apart = apart - M[..., 0, 2] - M[..., 2, 0] + M[..., 2, 2]
        return scale * self.model.noise.curvature(apart)

    def _component_noise(self, C: Array, mm: Array) -> Array:
        noise = self.model.noise
        mean = mm[..., self._coordinates, 0, -1]
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

    def _noise(self, noise: Noise) -> Array:
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
        mean: Array = state.mm[self._coordinates, :, -1]
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

    def _settled_mean(self) -> State:
        """C = 0 with the mean that an epoch leaves as it is."""
        k, (first, inner) = self.k, self._quiet_steps
        epoch = _after(_power(inner, self.period - 1), first)[:, :k]
        _require_decay(epoch[:, :, :k])
        mean = np.zeros((self.model.dim, k + 1))
        mean[:, k] = 1.0
        mean[:, :k] = np.linalg.solve(-epoch[:, :, :k], epoch[:, :, k:])[..., 0]
        return self._fixed(mean)

    def _solved(self, settled: State) -> State:
        """(I − T_CC) C = T_Cm mm, in every block, with T − I at hand."""
        count = self.k**2
        maps, numbers = self.epoch_map, self.numbers(settled)
        if self.model.noise.elementwise:
            inner = slice(0, count)
        else:
            per_pair = np.arange(numbers.shape[1]).reshape(len(self.model.a), -1)
            inner = per_pair[:, :count].reshape(-1)  # type: ignore[assignment]
        change = maps[:, inner][:, :, inner]
        _require_decay(change)
        pushed = (maps @ numbers[:, :, None])[:, inner]
        solved = numbers.copy()
        solved[:, inner] = np.linalg.solve(-change, pushed)[:, :, 0]
        return self.state(solved)

    def _iterated(self, settled: State) -> State:
        """C − Φ(C) = Φ₀, Φ an epoch without and Φ₀ one from nothing: GMRES, with (I − T₀)⁻¹ of each pair in front.

        T₀ is an epoch without the noise that mixes pairs, so what is left to the iteration is that noise alone.
        """
        from scipy.sparse.linalg import LinearOperator, gmres

        k, a, b, shape = self.k, self.model.a, self.model.b, settled.C.shape
        eye = np.eye(k)

        def of_pairs(G: Array) -> Array:
            left, right = G[a, :k, :k], G[b, :k, :k]
            joined: Array = np.einsum("pij,kl->pikjl", left, eye) + np.einsum("ij,pkl->pikjl", eye, right)
            joined += np.einsum("pij,pkl->pikjl", left, right)
            return joined.reshape(-1, k * k, k * k)

        first, inner = (of_pairs(G) for G in self._quiet_steps)
        alone = -_after(_power(inner, self.period - 1), first)

        def epoch(C: Array, mm: Array) -> Array:
            state = State(C.reshape(shape), mm)
            for number in range(self.period):
                state = self.step(state, number)
            return np.asarray(state.C.ravel(), np.float64)

        def quiet(C: Array) -> Array:
            return C - epoch(C, np.zeros_like(settled.mm))

        def divided(C: Array) -> Array:
            return np.asarray(np.linalg.solve(alone, C.reshape(-1, k * k, 1)).ravel(), np.float64)

        size = settled.C.size
        system, front = (LinearOperator((size, size), matvec=f, dtype=np.float64) for f in (quiet, divided))
        pushed = epoch(settled.C.ravel(), settled.mm)
        C, left = np.zeros(size), pushed
        for _ in range(_REFINEMENTS):
            step, _ = gmres(system, left, M=front, rtol=1e-10, restart=40, maxiter=3)
            C, before = C + step, left
            left = pushed - quiet(C)
            if not np.isfinite(left).all() or np.abs(divided(left)).max() <= _SETTLED * np.abs(C).max():
                break
            if np.linalg.norm(left) > 0.5 * np.linalg.norm(before):  # rounding is reached
                break
        if not (np.isfinite(C).all() and np.abs(divided(left)).max() <= 1e-6 * np.abs(C).max()):
            raise UnsettledError()
        return State(C.reshape(shape), settled.mm)

    @cached_property
    def _quiet_steps(self) -> tuple[Array, Array]:
        """The first and every other step of an epoch on (y, 1) in each coordinate, without noise."""
        inner = _after(self._after, self._before)
        if self.k == 2:
            return inner, inner
        return _after(self._after, _after(np.broadcast_to(self._take, inner.shape), self._before)), inner

    @cached_property
    def _take(self) -> Array:
        """What a snapshot changes on (y, 1): x̃ ← x, ζ̃ ← 0."""
        take = np.zeros((self.k + 1, self.k + 1))
        take[2, 0], take[2, 2] = 1.0, -1.0
        for k in range(3, self.k):
            take[k, k] = -1.0
        return take


def _parts(gradient: Gradient) -> int:
    """How many parts of y matter to a gradient."""
    if isinstance(gradient, SVRG):
        return 3 if gradient.snapshot_size is None else 4
    if isinstance(gradient, Full | Minibatch | ControlVariate):
        return 2
    raise requirement("gradient", "one whose law is known: Full, Minibatch, SVRG or ControlVariate", repr(gradient))


def _scale(size: int, n: int, replacement: bool) -> float:
    """Variance of a mean of `size` components over that of one."""
    if replacement:
        return 1 / size
    return (n - size) / (size * (n - 1)) if n > 1 else 0.0


def _after(second: Array, first: Array) -> Array:
    """(I + second)(I + first) − I."""
    with np.errstate(over="ignore", invalid="ignore"):  # of an unstable map, which is looked for where it matters
        return second + first + second @ first


def _power(change: Array, exponent: int) -> Array:
    """(I + change)^exponent − I of a stack of matrices, with no digits lost where the change is small."""
    total = np.zeros_like(change)
    while exponent:
        if exponent & 1:
            total = _after(total, change)
        exponent >>= 1
        if exponent:
            change = _after(change, change)
    return total


def _require_decay(change: Array) -> None:
    """Refuse a map I + change that does not shrink: |1 + λ|² − 1 = 2 Re λ + |λ|² must be negative."""
    if not np.isfinite(change).all():
        raise UnsettledError()
    values = np.linalg.eigvals(change)
    with np.errstate(over="ignore"):
        if (2 * values.real + np.abs(values) ** 2).max() >= 0:
            raise UnsettledError()
