"""How the state moves: each dynamics becomes a `Scheme`, sixteen numbers that every engine interprets.

Per coordinate, with z = (x, v), fresh standard normals ξ, ξ′ and one gradient estimate g a step,

    z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′ .

The continuous process behind the underdamped schemes (paper eq. 3) is

    dX = V dt,      dV = −γ V dt − u ∇f(X) dt + √(2γu) dB,

whose invariant law is π(x, v) ∝ exp(−f(x) − |v|²/(2u)). The schemes are named by what they do to it. None has exactly
that law: on quadratics the law each one does have is known in closed form, and the tests check that one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from svrhmc.errors import positive, requirement, settle


class Curved(Protocol):
    """What a dynamics may ask of a target."""

    @property
    def smoothness(self) -> float:
        """λ_max of the Hessian of f, or a bound on it."""

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Smallest and largest curvature: bounds on them everywhere, or those that a chain meets for certain."""


class Map(NamedTuple):
    """A linear map of (x, v): x ← xx·x + xv·v, v ← vx·x + vv·v."""

    xx: float
    xv: float
    vx: float
    vv: float


class Noise(NamedTuple):
    """A triangular factor, v first: εᵛ = vv·ξ₁, εˣ = xv·ξ₁ + xx·ξ₂."""

    vv: float
    xv: float
    xx: float


class Kick(NamedTuple):
    """What a unit of gradient takes away: x ← x − x·g, v ← v − v·g."""

    x: float
    v: float


IDENTITY = Map(1.0, 0.0, 0.0, 1.0)
SILENT = Noise(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scheme:
    """One step as numbers: `before` and its noise, a gradient, then `kick`, `after` and its noise."""

    before: Map
    before_noise: Noise
    kick: Kick
    after: Map
    after_noise: Noise

    @property
    def normals(self) -> int:
        """How many standard normal vectors one step needs."""
        return normals_of(self.before_noise) + normals_of(self.after_noise)

    def growth(self, curvature: float) -> float:
        """Largest |eigenvalue| of the mean of one step where ∇f(x) = curvature·x: above 1 the chain diverges."""
        P, Q = (np.array([[m.xx, m.xv], [m.vx, m.vv]]) for m in (self.before, self.after))
        kick = np.array([[self.kick.x * curvature, 0.0], [self.kick.v * curvature, 0.0]])
        return float(np.abs(np.linalg.eigvals((Q - kick) @ P)).max())


def normals_of(noise: Noise) -> int:
    """1 for each of ξ₁, ξ₂ that the factor uses."""
    return int(noise.vv != 0.0 or noise.xv != 0.0) + int(noise.xx != 0.0)


class Dynamics(ABC):
    """A rule of motion with a `step_size`; frozen, so that equal settings are equal objects."""

    step_size: float

    @abstractmethod
    def scheme(self, target: Curved) -> Scheme:
        """The sixteen numbers, in float64."""

    @abstractmethod
    def describe(self) -> str:
        """The name with the settings that decide stability, for error messages."""

    def check_stable(self, target: Curved) -> None:
        """Refuse a step with which a chain cannot stay near the mode of this target.

        A step that is stable for the target's bounds on its curvature is stable everywhere; only one that is not is
        tried on the curvature at the mode.
        """
        bounds = target.curvature_range(bound=True)
        if bounds is None or self._stable(target, bounds):
            return
        met = target.curvature_range(bound=False)
        if met is None or self._stable(target, met):
            return
        stable, unstable = 0.0, self.step_size
        while unstable - stable > 1e-3 * unstable:
            middle = (stable + unstable) / 2
            if replace(self, step_size=middle)._stable(target, met):  # type: ignore[type-var]
                stable = middle
            else:
                unstable = middle
        raise requirement(
            "step_size",
            f"a positive number below {stable:.3g} for {self.describe()} on curvatures up to {met[1]:.4g}",
            self.step_size,
            "the chain would diverge",
        )

    def _stable(self, target: Curved, curvatures: tuple[float, float]) -> bool:
        scheme = self.scheme(target)
        return max(map(scheme.growth, curvatures)) <= 1 + 1e-12  # room for rounding, as 1 − ηs → 1


@dataclass(frozen=True)
class Overdamped(Dynamics):
    """Euler–Maruyama for overdamped Langevin dynamics (paper eq. 2 with β = 1).

        x ← x − η g + √(2η) ξ

    On a quadratic with curvature s and exact gradients x has variance (1/s)/(1 − ηs/2) instead of 1/s, and the chain is
    stable for ηs < 2.

    >>> from svrhmc.targets import synthetic
    >>> Overdamped(step_size=0.5).scheme(synthetic(10, 2)).after_noise.xx
    1.0
    """

    step_size: float

    def __post_init__(self) -> None:
        settle(self, step_size=positive("step_size", self.step_size))

    def scheme(self, target: Curved) -> Scheme:
        """x ← x − η g + √(2η) ξ, with a velocity that stays 0."""
        eta = self.step_size
        return Scheme(IDENTITY, SILENT, Kick(eta, 0.0), Map(1.0, 0.0, 0.0, 0.0), Noise(0.0, 0.0, math.sqrt(2 * eta)))

    def describe(self) -> str:
        """Overdamped has no setting but its step."""
        return "Overdamped"


@dataclass(frozen=True)
class EulerMaruyama(Dynamics):
    """Euler–Maruyama for underdamped Langevin dynamics (paper eq. 4).

        x ← x + η v
        v ← (1 − γη) v − ηu g + √(2γuη) ξ                    (both lines use the old x and v)

    On a quadratic with curvature s the variance of x is (1/s)(1 + ηus/γ + O(η²)).
    `inverse_mass=None` stands for 1/smoothness of the target.

    >>> EulerMaruyama(step_size=0.1, friction=2.0, inverse_mass=1.0).step_size
    0.1
    """

    step_size: float
    friction: float = 2.0
    inverse_mass: float | None = None

    def __post_init__(self) -> None:
        _check_underdamped(self)

    def scheme(self, target: Curved) -> Scheme:
        """The paper's eq. 4."""
        eta, gamma, u = self.step_size, self.friction, _inverse_mass(self.inverse_mass, target)
        noise = Noise(math.sqrt(2 * gamma * u * eta), 0.0, 0.0)
        return Scheme(IDENTITY, SILENT, Kick(0.0, eta * u), Map(1.0, eta, 0.0, 1 - gamma * eta), noise)

    def describe(self) -> str:
        """Name and friction."""
        return f"EulerMaruyama with friction {self.friction}"


@dataclass(frozen=True)
class Underdamped(Dynamics):
    """The paper's update: Euler drift with the exact, correlated noise of the process (Algorithm 1, eqs. 6 and 8).

        x ← x + η v + εˣ
        v ← (1 − γη) v − ηu g + εᵛ                           (both lines use the old x and v)

    where (εˣ, εᵛ) has the covariance given at `exact_noise`. On a quadratic with curvature s the variance of x is
    (1/s)(1 + ηus/γ + η²(us/12 + u²s²/γ²) + O(η³)): to first order the bias of `EulerMaruyama`.
    `inverse_mass=None` stands for 1/smoothness of the target, the paper's u = 1/L.

    >>> Underdamped(step_size=0.01)
    Underdamped(step_size=0.01, friction=2.0, inverse_mass=None)
    """

    step_size: float
    friction: float = 2.0
    inverse_mass: float | None = None

    def __post_init__(self) -> None:
        _check_underdamped(self)

    def scheme(self, target: Curved) -> Scheme:
        """Algorithm 1 of the paper."""
        eta, gamma, u = self.step_size, self.friction, _inverse_mass(self.inverse_mass, target)
        drift = Map(1.0, eta, 0.0, 1 - gamma * eta)
        return Scheme(IDENTITY, SILENT, Kick(0.0, eta * u), drift, exact_noise(eta, gamma, u))

    def describe(self) -> str:
        """Name and friction."""
        return f"Underdamped with friction {self.friction}"


def exact_noise(time: float, friction: float, inverse_mass: float) -> Noise:
    """Factor of the noise that underdamped dynamics gathers over `time` (paper eq. 8), with no cancellation.

    With a = γη, t = tanh(a/2) and r(a) = a − 2t,

        Var εᵛ = u (1 − e^{−2a})                             = u·4t/(1+t)²
        Cov    = (u/γ)(1 − e^{−a})²                          = (u/γ)·4t²/(1+t)²
        Var εˣ = (u/γ²)(2a + 4e^{−a} − e^{−2a} − 3)          = (u/γ²)(2r + 4t³/(1+t)²)

    and the Schur complement Var εˣ − Cov²/Var εᵛ is exactly 2ur/γ², so that

        εᵛ = √u·2√t/(1+t) ξ₁,      εˣ = (√u/γ)( 2t^{3/2}/(1+t) ξ₁ + √(2r) ξ₂ ).

    The printed form loses 6ε/a³ of its digits; this one none, for any a > 0.

    >>> noise = exact_noise(1e-4, friction=1.0, inverse_mass=1.0)
    >>> float(noise.xv**2 + noise.xx**2)
    6.666166689999166e-13
    """
    a = friction * time
    t = math.tanh(a / 2)
    root_u = math.sqrt(inverse_mass)
    vv = root_u * 2 * math.sqrt(t) / (1 + t)
    return Noise(vv, vv * t / friction, root_u / friction * math.sqrt(2 * _remainder(a)))


def _remainder(a: float) -> float:
    """r(a) = a − 2 tanh(a/2), from tanh y = y/(1 + c), c = y²/(3 + y²/(5 + y²/(7 + …))): all terms positive."""
    if a > 2:
        return a - 2 * math.tanh(a / 2)
    y = a / 2
    tail = 0.0
    for odd in range(23, 1, -2):
        tail = y * y / (odd + tail)
    return a * tail / (1 + tail)


def _inverse_mass(given: float | None, target: Curved) -> float:
    return 1 / target.smoothness if given is None else given


def _check_underdamped(dynamics: EulerMaruyama | Underdamped) -> None:
    u = dynamics.inverse_mass
    settle(
        dynamics,
        friction=positive("friction", dynamics.friction),
        inverse_mass=None if u is None else positive("inverse_mass", u),
        step_size=positive("step_size", dynamics.step_size),
    )
    if dynamics.step_size * dynamics.friction >= 2:
        raise requirement(
            "step_size",
            f"a positive number below {2 / dynamics.friction} for {dynamics.describe()}",
            dynamics.step_size,
            "the chain would diverge",
        )
