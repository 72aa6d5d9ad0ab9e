"""The exact law of a sampler on a quadratic target: no simulation, no bound.

Write x for x − x*, S̄ for the mean Hessian, Cᵢ = Sᵢ − S̄ and bᵢ = ∇fᵢ(x*), which average to 0. Then ∇fᵢ(x) = S̄x +
Cᵢx + bᵢ, every scheme is linear in the state y = (x, v, x̃, ζ̃) (snapshot x̃; error ζ̃ of an estimated snapshot
gradient), and its gradient noise has mean zero. So mean m = E y and covariance C = E yyᵀ − mmᵀ obey, over the two
halves of a step,

    m ← P m,   C ← P C Pᵀ + Lp Lpᵀ ;      m ← F m,   C ← F C Fᵀ + Lq Lqᵀ + k (ρ V) kᵀ,

F containing the drift −k(S̄x + ζ̃), ρ = 1/B, or (n − B)/(B(n − 1)) without replacement, and V the second moment of
one component's noise:

    Minibatch:  V = (1/n) Σ E (Cᵢx + bᵢ)(Cᵢx + bᵢ)ᵀ,          SVRG:  V = (1/n) Σ Cᵢ E[(x − x̃)(x − x̃)ᵀ] Cᵢ.

At a snapshot x̃ ← x, and ζ̃ ← a fresh error with second moment ρ̃ (1/n) Σ E (Cᵢx + bᵢ)(Cᵢx + bᵢ)ᵀ, uncorrelated
with the rest. Mean and covariance are exact always; the law itself is Gaussian where the gradient has no noise.
Where it has, W₂ between Gaussians of these moments is a lower bound on W₂ (Gelbrich 1990).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from svrhmc.arrays import Array, contract
from svrhmc.dynamics import Kick, Map, Noise
from svrhmc.errors import real_array, requirement
from svrhmc.gradients import SVRG, Full, Minibatch
from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.targets.gaussian import Gaussian
from svrhmc.targets.glm import GeneralisedLinear

if TYPE_CHECKING:
    from svrhmc.samplers import Sampler


@dataclass(frozen=True, eq=False)
class Law:
    """Mean (2·dim) and covariance (2·dim, 2·dim) of (x, v) after `step` steps, and the passes that took."""

    step: int
    passes: float
    mean: Array
    covariance: Array

    @property
    def position(self) -> Moments:
        """Mean and covariance of x alone."""
        dim = len(self.mean) // 2
        return Moments(self.mean[:dim], self.covariance[:dim, :dim])


def laws(sampler: Sampler, target: FiniteSum, steps: int, start: npt.ArrayLike | None = None) -> Iterator[Law]:
    """The law after 0, 1, …, `steps` steps, from a fixed start (None: the origin) and velocity 0.

    >>> from svrhmc import svr_hmc, targets
    >>> *_, last = laws(svr_hmc(step_size=0.1), targets.synthetic(n=50, dim=2), steps=100)
    >>> last.position.mean.shape
    (2,)
    """
    quadratic = _Quadratic.of(target)
    origin = np.zeros(target.dim) if start is None else real_array("start", start, (target.dim,))
    state = _State.at(np.asarray(origin, np.float64) - quadratic.mean, quadratic.mean)
    scheme, gradient = sampler.dynamics.scheme(target), sampler.gradient
    gradient.check(target.n)
    yield state.law(0, 0.0)
    for step in range(steps):
        state = state.moved(scheme.before, scheme.before_noise)
        if isinstance(gradient, SVRG) and step % gradient.period(target.n) == 0:
            state = state.snapshot(_snapshot_noise(gradient, quadratic, state))
        noise = _gradient_noise(gradient, quadratic, state)
        state = state.kicked(scheme.kick, scheme.after, scheme.after_noise, quadratic.hessian, noise)
        yield state.law(step + 1, gradient.evaluations(target, step + 1) / target.n)


@dataclass(frozen=True, eq=False)
class _State:
    """Mean and covariance of y = (x, v, x̃, ζ̃), x and x̃ measured from x*, the `centre`."""

    mean: Array
    covariance: Array
    centre: Array

    @staticmethod
    def at(x: Array, centre: Array) -> _State:
        mean = np.concatenate([x, np.zeros_like(x), x, np.zeros_like(x)])
        return _State(mean, np.zeros((len(mean), len(mean))), centre)

    @property
    def second(self) -> Array:
        """E yyᵀ, which the noise of a gradient depends on."""
        return self.covariance + np.outer(self.mean, self.mean)

    @property
    def dim(self) -> int:
        return len(self.mean) // 4

    def law(self, step: int, passes: float) -> Law:
        two = 2 * self.dim
        mean = self.mean[:two] + np.concatenate([self.centre, np.zeros_like(self.centre)])
        return Law(step, passes, mean, self.covariance[:two, :two])

    def moved(self, linear: Map, noise: Noise) -> _State:
        F = np.eye(4 * self.dim)
        self._put(F, linear)
        return self._through(F, linear, noise, None, None)

    def kicked(self, kick: Kick, linear: Map, noise: Noise, hessian: Array, gradient_noise: Array | None) -> _State:
        d = self.dim
        F = np.eye(4 * d)
        self._put(F, linear)
        for row, amount in ((0, kick.x), (d, kick.v)):
            F[row : row + d, :d] -= amount * hessian
            F[row : row + d, 3 * d :] -= amount * np.eye(d)
        return self._through(F, linear, noise, kick, gradient_noise)

    def snapshot(self, error: Array) -> _State:
        d = self.dim
        F = np.eye(4 * d)
        F[2 * d :] = 0
        F[2 * d : 3 * d, :d] = np.eye(d)
        covariance = F @ self.covariance @ F.T
        covariance[3 * d :, 3 * d :] = error
        return _State(F @ self.mean, covariance, self.centre)

    def _put(self, F: Array, linear: Map) -> None:
        d, eye = self.dim, np.eye(self.dim)
        F[:d, :d], F[:d, d : 2 * d] = linear.xx * eye, linear.xv * eye
        F[d : 2 * d, :d], F[d : 2 * d, d : 2 * d] = linear.vx * eye, linear.vv * eye

    def _through(self, F: Array, linear: Map, noise: Noise, kick: Kick | None, V: Array | None) -> _State:
        d, eye = self.dim, np.eye(self.dim)
        covariance = F @ self.covariance @ F.T
        added = np.zeros_like(covariance)
        added[:d, :d] = (noise.xv**2 + noise.xx**2) * eye
        added[:d, d : 2 * d] = added[d : 2 * d, :d] = noise.xv * noise.vv * eye
        added[d : 2 * d, d : 2 * d] = noise.vv**2 * eye
        if kick is not None and V is not None:
            added[: 2 * d, : 2 * d] += np.kron(np.outer(kick, kick), V)
        mean = F @ self.mean
        mean[:d] += (linear.xx - 1) * self.centre  # the map acts on x, not on x − x*
        mean[d : 2 * d] += linear.vx * self.centre
        return _State(mean, covariance + added, self.centre)


def _gradient_noise(gradient: object, quadratic: _Quadratic, state: _State) -> Array | None:
    if isinstance(gradient, Full):
        return None
    d, M = state.dim, state.second
    if isinstance(gradient, Minibatch):
        scale = _scale(gradient.batch_size, quadratic.n, gradient.replacement)
        return scale * quadratic.component_noise(state.mean[:d], M[:d, :d])
    if isinstance(gradient, SVRG):
        scale = _scale(gradient.batch_size, quadratic.n, gradient.replacement)
        cross = M[:d, 2 * d : 3 * d]
        return scale * quadratic.curvature_noise(M[:d, :d] - cross - cross.T + M[2 * d : 3 * d, 2 * d : 3 * d])
    raise requirement("gradient", "one whose law is known: Full, Minibatch or SVRG", repr(gradient))


def _snapshot_noise(gradient: SVRG, quadratic: _Quadratic, state: _State) -> Array:
    d = state.dim
    if gradient.snapshot_size is None:
        return np.zeros((d, d))
    scale = _scale(gradient.snapshot_size, quadratic.n, gradient.replacement)
    return scale * quadratic.component_noise(state.mean[:d], state.second[:d, :d])


def _scale(size: int, n: int, replacement: bool) -> float:
    """Variance of a mean of `size` components over that of one."""
    if replacement:
        return 1 / size
    return (n - size) / (size * (n - 1)) if n > 1 else 0.0


@dataclass(frozen=True, eq=False)
class _Quadratic:
    """S̄, x*, and the Sᵢ as scaled outer products or whole matrices, with bᵢ = ∇fᵢ(x*)."""

    n: int
    mean: Array
    hessian: Array
    forces: Array
    rows: Array | None
    matrices: Array | None

    @staticmethod
    def of(target: FiniteSum) -> _Quadratic:
        known = target.closed_form
        if known is None or not isinstance(target, Gaussian | GeneralisedLinear):
            raise requirement("target", "quadratic (gaussian or linear) for an exact law", repr(target))
        forces = target.component_gradients(known.mean, np.arange(target.n))
        if isinstance(target, Gaussian):
            matrices = None if target.shared else target.precision - target.mean_precision
            return _Quadratic(target.n, known.mean, target.mean_precision, forces, None, matrices)
        identity = np.eye(target.dim)
        rows = np.stack([target.rows.predict(axis[None, :])[0] for axis in identity], axis=1)
        rows = rows * np.sqrt(target.n * target.loss.curvature_bound)
        return _Quadratic(target.n, known.mean, target.hessian(known.mean), forces, rows, None)

    def curvature_noise(self, R: Array) -> Array:
        """(1/n) Σ Cᵢ R Cᵢ for symmetric R."""
        if self.rows is not None:  # Sᵢ = rᵢrᵢᵀ + Λ, so Cᵢ = rᵢrᵢᵀ − G with G their mean
            weights = contract("nd,de,ne->n", self.rows, R, self.rows)
            G = self._outer_mean
            return (self.rows * (weights / self.n)[:, None]).T @ self.rows - G @ R @ G
        if self.matrices is not None:
            noise: Array = (self.matrices @ R @ self.matrices).mean(axis=0)
            return noise
        return np.zeros_like(R)

    def component_noise(self, m: Array, M: Array) -> Array:
        """(1/n) Σ E (Cᵢx + bᵢ)(Cᵢx + bᵢ)ᵀ for x with mean m and second moment M."""
        if self.rows is not None:
            turned = self.rows * (self.rows @ m)[:, None] - self._outer_mean @ m
        elif self.matrices is not None:
            turned = self.matrices @ m
        else:
            turned = np.zeros_like(self.forces)
        cross = turned.T @ self.forces / self.n
        return self.curvature_noise(M) + cross + cross.T + self.forces.T @ self.forces / self.n

    @cached_property
    def _outer_mean(self) -> Array:
        assert self.rows is not None
        return self.rows.T @ self.rows / self.n
