"""How the state moves: each dynamics becomes a `Scheme`, sixteen numbers that every engine interprets.

The continuous process behind the underdamped schemes (paper eq. 3, where T = 1) is

    dX = V dt,      dV = −γ V dt − u ∇f(X) dt + √(2γuT) dB,

whose invariant law is π(x, v) ∝ exp(−(f(x) + |v|²/(2u))/T). The schemes are named by what they do to it. None has
exactly that law: on quadratics the law each one does have is known in closed form, and the tests check that one.

T is the `temperature`, which the paper calls β in its eqs. 1 and 2: dX = −∇f dt + √(2β) dB has the law e^{−f/β}, not
the e^{−βf} that it prints (docs/errata.md, A39); for e^{−βf} take T = 1/β. It enters the noise alone, as √T. With
f′ = f/T the same process is one at T = 1: u∇f = (uT)∇f′, so that a step on f with u at temperature T is a step on f/T
with uT at temperature 1, and overdamped, η∇f = (ηT)∇f′.

A scheme is one step as numbers. Per coordinate, with z = (x, v), fresh standard normals ξ, ξ′ and one gradient estimate
g a step,

    z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′ .

P, Q, Lp and Lq come from what Langevin dynamics does over a time in which no gradient acts (`flow`, `exact_noise`),
without cancellation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import UnstableStepError, finite, positive, requirement, set_fields
from svrhmc.core.serialise import part

__all__ = [
    "BAOAB",
    "IDENTITY",
    "SILENT",
    "UBU",
    "Anchored",
    "Curved",
    "Dynamics",
    "EulerMaruyama",
    "Exponential",
    "Overdamped",
    "Underdamped",
    "require_dynamics",
]


class Map(NamedTuple):
    """A linear map of (x, v): x ← xx·x + xv·v, v ← vx·x + vv·v."""

    xx: float
    xv: float
    vx: float
    vv: float

    def matrix(self) -> Array:
        """The map of the column (x, v)."""
        return np.array([[self.xx, self.xv], [self.vx, self.vv]])


class NoiseFactor(NamedTuple):
    """A triangular factor, v first: εᵛ = vv·ξ₁, εˣ = xv·ξ₁ + xx·ξ₂."""

    vv: float
    xv: float
    xx: float

    def covariance(self) -> Array:
        """The covariance of (εˣ, εᵛ)."""
        L: Array = np.array([[self.xv, self.xx], [self.vv, 0.0]])
        return np.asarray(L @ L.T, np.float64)

    def times(self, factor: float) -> NoiseFactor:
        """The factor of noise that many times as large."""
        return NoiseFactor(self.vv * factor, self.xv * factor, self.xx * factor)


class Kick(NamedTuple):
    """What a unit of gradient takes away: x ← x − x·g, v ← v − v·g."""

    x: float
    v: float


IDENTITY = Map(1.0, 0.0, 0.0, 1.0)
SILENT = NoiseFactor(0.0, 0.0, 0.0)
PLAIN = NoiseFactor(1.0, 0.0, 1.0)  # εᵛ and εˣ are given themselves
NOTHING = Map(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Scheme:
    """One step as numbers: `before` and its noise, a gradient, then `kick`, `after` and its noise."""

    before: Map
    before_noise: NoiseFactor
    kick: Kick
    after: Map
    after_noise: NoiseFactor

    def numbers(self) -> list[list[float]]:
        """The sixteen numbers, part by part."""
        parts = (self.before, self.before_noise, self.kick, self.after, self.after_noise)
        return [list(numbers) for numbers in parts]

    @staticmethod
    def of(numbers: list[list[float]]) -> Scheme:
        """The scheme of these numbers; anything but as many finite numbers is an error."""
        kinds: tuple[type, ...] = (Map, NoiseFactor, Kick, Map, NoiseFactor)
        for number in (number for numbers_of_part in numbers for number in numbers_of_part):
            finite("a number of a scheme", number)
        return Scheme(*(kind(*row) for kind, row in zip(kinds, numbers, strict=True)))

    def at(self, temperature: float) -> Scheme:
        """The same motion with √T times its noise: at T = 1, number by number, itself.

        Nothing else changes. On a quadratic with exact gradients the covariance of a chain is linear in that of its
        noise, so it is T times what it is at T = 1, as that of e^{−f/T} is; noise of the gradient is not heated.
        """
        root = math.sqrt(temperature)
        return replace(self, before_noise=self.before_noise.times(root), after_noise=self.after_noise.times(root))

    @property
    def normals(self) -> int:
        """How many standard normal vectors one step needs."""
        return normals_of(self.before_noise) + normals_of(self.after_noise)

    @property
    def moves_before(self) -> bool:
        """Whether the state moves between the end of a step and the next gradient."""
        return (self.before, self.before_noise) != (IDENTITY, SILENT)

    @property
    def recorded_at_kick(self) -> bool:
        """Whether the states that are recorded are those at which gradients are evaluated.

        There a stationary velocity (or state) makes E ∇f = 0 whatever the bias, so that this average says nothing.
        """
        return not self.moves_before or (self.after, self.after_noise) == (IDENTITY, SILENT)

    def growth(self, curvature: float) -> float:
        """Largest |eigenvalue| of the mean of one step where ∇f(x) = curvature·x: above 1 the chain diverges."""
        P, Q = self.before.matrix(), self.after.matrix()
        kick = np.array([[self.kick.x * curvature, 0.0], [self.kick.v * curvature, 0.0]])
        with np.errstate(over="ignore", invalid="ignore"):
            step = (Q - kick) @ P
        return float(np.abs(np.linalg.eigvals(step)).max()) if np.isfinite(step).all() else math.inf


def normals_of(noise: NoiseFactor) -> int:
    """1 for each of ξ₁, ξ₂ that the factor uses."""
    return int(noise.vv != 0.0 or noise.xv != 0.0) + int(noise.xx != 0.0)


def move(linear: Map, factor: NoiseFactor, x: Array, v: Array, normals: Iterator[Array]) -> tuple[Array, Array]:
    """(x, v) ← M (x, v) + L ξ, taking from `normals` only those that L uses."""
    if linear == IDENTITY and factor == SILENT:
        return x, v
    x, v = linear.xx * x + linear.xv * v, linear.vx * x + linear.vv * v
    if factor.vv or factor.xv:
        first = next(normals)
        x, v = x + factor.xv * first, v + factor.vv * first
    if factor.xx:
        x = x + factor.xx * next(normals)
    return x, v


class StepNoise(NamedTuple):
    """(εˣ, εᵛ) of the two halves of a step."""

    before: tuple[Array, Array]
    after: tuple[Array, Array]


def step_noise(scheme: Scheme, normals: Array) -> StepNoise:
    """From the normals of one step: (chains, normals of the scheme, dim)."""
    rows, zero = iter(normals.transpose(1, 0, 2)), np.zeros_like(normals[:, 0])
    before = move(NOTHING, scheme.before_noise, zero, zero, rows)
    return StepNoise(before, move(NOTHING, scheme.after_noise, zero, zero, rows))


def pushed(linear: Map, state: tuple[Array, Array], noise: tuple[Array, Array]) -> tuple[Array, Array]:
    """M (x, v) + (εˣ, εᵛ)."""
    return move(linear, PLAIN, *state, iter((noise[1], noise[0])))


def _harmonic_flow(time: float, friction: float, pull: float) -> Map:
    """Φ(t) = e^{−γt/2}[[C + γS/2, S], [−pull·S, C − γS/2]], with C = cos ωt, S = sin(ωt)/ω, ω² = pull − γ²/4."""
    a, square = friction / 2, pull - friction**2 / 4
    root = math.sqrt(abs(square))
    y = root * time
    if y < 1e-4:
        C, S = 1 - square * time**2 / 2, time * (1 - square * time**2 / 6)
    elif square > 0:
        C, S = math.cos(y), math.sin(y) / root
    else:
        C, S = math.cosh(y), math.sinh(y) / root
    decay = math.exp(-a * time)
    return Map(decay * (C + a * S), decay * S, -decay * pull * S, decay * (C - a * S))


def _harmonic_noise(time: float, friction: float, inverse_mass: float, curvature: float) -> NoiseFactor:
    """Factor of ∫₀ᵗ 2γu Φ(r)e₂e₂ᵀΦ(r)ᵀ dr: by Gauss's rule, all terms positive, where t is short, else Σ − ΦΣΦᵀ."""
    u, pull = inverse_mass, inverse_mass * curvature
    if time * (friction + math.sqrt(pull)) < 2:
        nodes, weights = np.polynomial.legendre.leggauss(24)
        flows = [_harmonic_flow(time * (node + 1) / 2, friction, pull) for node in nodes]
        xv, vv = (np.array([getattr(flow, name) for flow in flows]) for name in ("xv", "vv"))
        scale = friction * u * time
        var_x, cov, var_v = (float(scale * (weights @ q)) for q in (xv * xv, xv * vv, vv * vv))
    else:
        flow = _harmonic_flow(time, friction, pull)
        var_x = (1 - flow.xx**2) / curvature - flow.xv**2 * u
        var_v = u * (1 - flow.vv**2) - flow.vx**2 / curvature
        cov = -flow.xx * flow.vx / curvature - flow.xv * flow.vv * u
    vv_factor = math.sqrt(var_v)
    return NoiseFactor(vv_factor, cov / vv_factor, math.sqrt(var_x - cov**2 / var_v))


def flow(time: float, friction: float) -> Map:
    """U(h): x ← x + (1 − e^{−γh})/γ · v, v ← e^{−γh} v."""
    lost = -math.expm1(-friction * time)
    return Map(1.0, lost / friction, 0.0, 1 - lost)


def exact_noise(time: float, friction: float, inverse_mass: float) -> NoiseFactor:
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
    return NoiseFactor(vv, vv * t / friction, root_u / friction * math.sqrt(2 * remainder(a)))


def remainder(a: float) -> float:
    """r(a) = a − 2 tanh(a/2), from tanh y = y/(1 + c), c = y²/(3 + y²/(5 + y²/(7 + …))): all terms positive."""
    if a > 2:
        return a - 2 * math.tanh(a / 2)
    y = a / 2
    tail = 0.0
    for odd in range(23, 1, -2):
        tail = y * y / (odd + tail)
    return a * tail / (1 + tail)


class Curved(Protocol):
    """What a dynamics may ask of a target."""

    @property
    def smoothness(self) -> float:
        """λ_max of the Hessian of f, or a bound on it."""

    @property
    def typical_curvature(self) -> float:
        """What 1/u is where it is not given: the smoothness or, where there is no bound, λ_max at the mode."""

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Smallest and largest curvature: bounds on them everywhere, or those that a chain meets for certain."""


class Dynamics(ABC):
    """A rule by which the state moves, with a `step_size`. Dynamics with equal settings are equal objects."""

    step_size: float
    temperature: float = 1.0
    couples_halves: ClassVar[bool] = False  # whether `joined` is known

    @abstractmethod
    def scheme(self, target: Curved) -> Scheme:
        """The sixteen numbers, in float64."""

    @abstractmethod
    def describe(self) -> str:
        """The name, with the settings that decide whether a step is stable, for error messages."""

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """The noise of a step η from those of the two steps η/2 within it, so that both follow one Brownian path."""
        raise requirement("dynamics", "one whose step and half step can share their noise", repr(self))

    def scheme_on(self, target: Curved) -> Scheme:
        """The sixteen numbers, or an error if settings are so large or small that the numbers are not finite."""
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                scheme = self.scheme(target)
        except (ArithmeticError, np.linalg.LinAlgError):
            raise self._out_of_range() from None
        except ValueError as error:
            if "math domain" in str(error):
                raise self._out_of_range() from None
            raise
        if not all(math.isfinite(number) for part in scheme.numbers() for number in part):
            raise self._out_of_range()
        return scheme

    def _out_of_range(self) -> ValueError:
        names = "step_size, friction and inverse_mass"
        return requirement(names, "of ordinary size beside each other", repr(self), "float64 cannot tell the step")

    def check_stable(self, target: Curved) -> None:
        """Raise an error if the step is so long that a chain on this target would diverge.

        One that is stable for the target's bounds on its curvature, or for the curvature at the mode, is not; what
        costs the target less is tried first.
        """
        for bound in (False, True) if getattr(target, "modal_first", False) else (True, False):
            curvatures = target.curvature_range(bound)
            if not bound if curvatures is None else self._stable(target, curvatures):
                return
        curvatures = target.curvature_range(bound=False)
        assert curvatures is not None
        stable, unstable = 0.0, self.step_size
        while unstable - stable > 1e-3 * unstable:
            middle = (stable + unstable) / 2
            if replace(self, step_size=middle)._stable(target, curvatures):  # type: ignore[type-var]
                stable = middle
            else:
                unstable = middle
        raise requirement(
            "step_size",
            f"a positive number below {stable:.3g} for {self.describe()} on curvatures up to {curvatures[1]:.4g}",
            self.step_size,
            "the chain would diverge",
            UnstableStepError,
        )

    def _stable(self, target: Curved, curvatures: tuple[float, float]) -> bool:
        scheme = self.scheme_on(target)
        return max(map(scheme.growth, curvatures)) <= 1 + 1e-12  # room for rounding, as 1 − ηs → 1


@part
@dataclass(frozen=True)
class Overdamped(Dynamics):
    """Euler–Maruyama for overdamped Langevin dynamics (paper eq. 2, whose β is the temperature T).

        x ← x − η g + √(2ηT) ξ

    On a quadratic with curvature s and exact gradients x has variance (T/s)/(1 − ηs/2) instead of T/s, and the chain is
    stable for ηs < 2.

    >>> Overdamped(step_size=0.5)
    Overdamped(step_size=0.5, temperature=1.0)
    """

    couples_halves = True
    step_size: float
    temperature: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        set_fields(
            self,
            step_size=positive("step_size", self.step_size),
            temperature=positive("temperature", self.temperature),
        )

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """ε + ε′: what a Brownian path gains over η."""
        return _compose_noise(IDENTITY, noise)

    def scheme(self, target: Curved) -> Scheme:
        """x ← x − η g + √(2ηT) ξ, with a velocity that stays 0."""
        eta = self.step_size
        noise = NoiseFactor(0.0, 0.0, math.sqrt(2 * eta))
        return Scheme(IDENTITY, SILENT, Kick(eta, 0.0), Map(1.0, 0.0, 0.0, 0.0), noise).at(self.temperature)

    def describe(self) -> str:
        """Its name: it has no other setting."""
        return "Overdamped"


@dataclass(frozen=True)
class _WithVelocity(Dynamics):
    """What sets every discretisation of the underdamped process: η, γ, u (None: 1/`typical_curvature`) and T."""

    step_size: float
    friction: float = 2.0
    inverse_mass: float | None = None
    temperature: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        u = self.inverse_mass
        set_fields(
            self,
            friction=positive("friction", self.friction),
            inverse_mass=None if u is None else positive("inverse_mass", u),
            step_size=positive("step_size", self.step_size),
            temperature=positive("temperature", self.temperature),
        )

    def describe(self) -> str:
        return f"{type(self).__name__} with friction {self.friction}"

    def _settings(self, target: Curved) -> tuple[float, float, float]:
        """η, γ and u on a target."""
        if self.inverse_mass is not None:
            return self.step_size, self.friction, self.inverse_mass
        curvature = target.typical_curvature
        if not (curvature > 0 and math.isfinite(1 / curvature)):
            why = f"1/smoothness would be used, and the target's smoothness is {curvature:g}"
            raise requirement("inverse_mass", "given", "None", why)
        return self.step_size, self.friction, 1 / curvature


@dataclass(frozen=True)
class _EulerDrift(_WithVelocity):
    """Schemes that multiply the velocity by 1 − γη."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size * self.friction >= 2:
            raise requirement(
                "step_size",
                f"a positive number below {2 / self.friction} for {self.describe()}",
                self.step_size,
                "the chain would diverge",
                UnstableStepError,
            )


@part
@dataclass(frozen=True)
class EulerMaruyama(_EulerDrift):
    """Euler–Maruyama for underdamped Langevin dynamics (paper eq. 4).

        x ← x + η v
        v ← (1 − γη) v − ηu g + √(2γuη) ξ                    (both lines use the old x and v)

    On a quadratic with curvature s the variance of x is (1/s)(1 + ηus/γ + O(η²)).
    `inverse_mass=None` stands for 1/smoothness of the target, as in `Underdamped`.

    >>> EulerMaruyama(step_size=0.1, friction=2.0, inverse_mass=1.0).step_size
    0.1
    """

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """ε + ε′, as the noise of a step is a Brownian path's gain over it."""
        return _compose_noise(IDENTITY, noise)

    def scheme(self, target: Curved) -> Scheme:
        """The paper's eq. 4."""
        eta, gamma, u = self._settings(target)
        noise = NoiseFactor(math.sqrt(2 * gamma * u * eta), 0.0, 0.0)
        return Scheme(IDENTITY, SILENT, Kick(0.0, eta * u), Map(1.0, eta, 0.0, 1 - gamma * eta), noise).at(
            self.temperature
        )


@part
@dataclass(frozen=True)
class Underdamped(_EulerDrift):
    """The paper's update: Euler drift with the exact, correlated noise of the process (Algorithm 1, eqs. 6 and 8).

        x ← x + η v + εˣ
        v ← (1 − γη) v − ηu g + εᵛ                           (both lines use the old x and v)

    where (εˣ, εᵛ) has the covariance given at `exact_noise`. On a quadratic with curvature s the variance of x is
    (1/s)(1 + ηus/γ + η²(us/12 + u²s²/γ²) + O(η³)): to first order the bias of `EulerMaruyama`.
    `inverse_mass=None` stands for 1/smoothness of the target, the paper's u = 1/L; for a model of your own it stands
    for 1/λ_max of the Hessian at its mode, which bounds nothing elsewhere.

    >>> Underdamped(step_size=0.01)
    Underdamped(step_size=0.01, friction=2.0, inverse_mass=None, temperature=1.0)
    """

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """Φ(η/2)ε + ε′ with Φ the flow of the process, not this scheme's drift: the noise is the process's own."""
        return _compose_noise(flow(self.step_size / 2, self.friction), noise)

    def scheme(self, target: Curved) -> Scheme:
        """Algorithm 1 of the paper."""
        eta, gamma, u = self._settings(target)
        drift = Map(1.0, eta, 0.0, 1 - gamma * eta)
        return Scheme(IDENTITY, SILENT, Kick(0.0, eta * u), drift, exact_noise(eta, gamma, u)).at(self.temperature)


@part
@dataclass(frozen=True)
class Exponential(_WithVelocity):
    """The process with its gradient frozen over a step, solved exactly (Cheng et al. 2018); a = γη, E = 1 − e^{−a}.

        x ← x + (E/γ) v − (u/γ²)(a − E) g + εˣ
        v ← e^{−a} v − (u/γ) E g + εᵛ

    On a quadratic the variance of x is (1/s)(1 + ηus/(2γ) + O(η²)): half the bias of the paper's update.

    >>> Exponential(step_size=0.1, inverse_mass=1.0).step_size
    0.1
    """

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """Φ(η/2)ε + ε′ with Φ the flow without gradient, which is this scheme's drift."""
        return _compose_noise(flow(self.step_size / 2, self.friction), noise)

    def scheme(self, target: Curved) -> Scheme:
        """One map, with a − E = r(a) + 2t²/(1 + t) free of cancellation."""
        eta, gamma, u = self._settings(target)
        a = gamma * eta
        t = math.tanh(a / 2)
        kick = Kick(u / gamma**2 * (remainder(a) + 2 * t * t / (1 + t)), u / gamma * 2 * t / (1 + t))
        return Scheme(IDENTITY, SILENT, kick, flow(eta, gamma), exact_noise(eta, gamma, u)).at(self.temperature)


@dataclass(frozen=True)
class _Symmetric(_WithVelocity):
    """Schemes that go half a step without gradient, kick, and go the other half; flows without gradient compose."""

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """Over η/2 the long step's is Φ(η/4)ε + ε′ of a whole short step."""
        first, second = (pushed(short.before, half_step.before, half_step.after) for half_step in noise)
        return StepNoise(first, second)


@part
@dataclass(frozen=True)
class UBU(_Symmetric):
    """Half a step of the process without gradient, a kick, the other half (Sanz-Serna & Zygalakis 2021).

        (x, v) ← U(η/2)(x, v) + ε ;      v ← v − ηu g(x) ;      (x, v) ← U(η/2)(x, v) + ε′

    with U(h)(x, v) = (x + (1 − e^{−γh})/γ · v, e^{−γh} v) and the noise of `exact_noise` over η/2. One gradient a
    step; second order: on a quadratic the variance of x is (1/s)(1 − usη²/6 + O(η³)).

    >>> UBU(step_size=0.5, friction=1.0, inverse_mass=1.0).friction
    1.0
    """

    def scheme(self, target: Curved) -> Scheme:
        """The kick goes through the second half with the velocity."""
        eta, gamma, u = self._settings(target)
        half, noise = flow(eta / 2, gamma), exact_noise(eta / 2, gamma, u)
        return Scheme(half, noise, Kick(half.xv * eta * u, half.vv * eta * u), half, noise).at(self.temperature)


@part
@dataclass(frozen=True)
class BAOAB(_WithVelocity):
    """Leimkuhler & Matthews' splitting, whose positions have no bias on a quadratic at any stable step (usη² < 4).

        x ← x + (η/2) v ;   v ← e^{−γη} v + √(u(1 − e^{−2γη})) ξ ;   x ← x + (η/2) v ;   v ← v − ηu g(x)

    The two half-kicks around a position use one gradient, and are made here as one: the velocity of a step's end is
    half a kick ahead of the usual, the positions are the same.

    >>> BAOAB(step_size=1.0, friction=1.0, inverse_mass=1.0).step_size
    1.0
    """

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """The velocity's noise composes over the whole step, e^{−γη/2}ε + ε′, and moves x as its own map says."""
        force = short.before.vv * noise[0].before[1] + noise[1].before[1]
        return StepNoise((long.before_noise.xv / long.before_noise.vv * force, force), noise[0].after)

    def scheme(self, target: Curved) -> Scheme:
        """A, O and A before the gradient, B after it."""
        eta, gamma, u = self._settings(target)
        decay, force = math.exp(-gamma * eta), math.sqrt(-u * math.expm1(-2 * gamma * eta))
        before = Map(1.0, eta / 2 * (1 + decay), 0.0, decay)
        noise = NoiseFactor(force, eta / 2 * force, 0.0)
        return Scheme(before, noise, Kick(0.0, eta * u), IDENTITY, SILENT).at(self.temperature)


@part
@dataclass(frozen=True)
class Anchored(_Symmetric):
    """The process with f = (s/2)|x|² + R solved exactly but for R, whose gradient is a kick in the middle of the step.

        (x, v) ← Φ(η/2)(x, v) + ε ;      v ← v − κ (g(x) − s x) ;      (x, v) ← Φ(η/2)(x, v) + ε′

    Φ(t) is the flow of ẋ = v, v̇ = −us x − γv, and the noise has the covariance Σ − ΦΣΦᵀ, Σ = diag(1/s, u), which Φ and
    it together keep. So N(0, 1/s) is invariant at any step where R = 0, and the error is of the size of R: this is the
    dynamics for whitened targets (`svrhmc.whitening.whitened`), whose s is 1 and whose mode is 0, with steps of 1 and
    more.

    κ = ηu(1 + O(η²)) is such that a constant ∇R moves the mean of x, half a step after the kick, by exactly
    −∇R/s: κ = 1/(s [(I − Φ(η))⁻¹Φ(η/2)]₁₂).

    >>> Anchored(step_size=1.0)
    Anchored(step_size=1.0, friction=1.0, inverse_mass=1.0, temperature=1.0, curvature=1.0)
    """

    friction: float = 1.0
    inverse_mass: float | None = 1.0
    curvature: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, curvature=positive("curvature", self.curvature))

    def scheme(self, target: Curved) -> Scheme:
        """The part −s x of the kick is linear in the state, and goes into the map after the gradient."""
        eta, gamma, u = self._settings(target)
        s = self.curvature
        half = _harmonic_flow(eta / 2, gamma, u * s)
        noise = _harmonic_noise(eta / 2, gamma, u, s)
        middle = half.matrix()
        kappa = 1 / (s * np.linalg.solve(np.eye(2) - middle @ middle, middle)[0, 1])
        after = Map(half.xx + half.xv * kappa * s, half.xv, half.vx + half.vv * kappa * s, half.vv)
        return Scheme(half, noise, Kick(half.xv * kappa, half.vv * kappa), after, noise).at(self.temperature)


def _compose_noise(half: Map, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
    """For schemes with all their noise after the gradient: the first half's goes through the second half."""
    return StepNoise(noise[0].before, pushed(half, noise[0].after, noise[1].after))


def require_dynamics(dynamics: object) -> Dynamics:
    """Refuse what is no dynamics."""
    if not isinstance(dynamics, Dynamics):
        raise requirement("dynamics", "one of svrhmc.dynamics, such as Underdamped(0.01)", repr(dynamics))
    return dynamics
