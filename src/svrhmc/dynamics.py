"""How the state moves: each dynamics becomes a `Scheme`, sixteen numbers that every engine interprets.

The continuous process behind the underdamped schemes (paper eq. 3, where T = 1) is

    dX = V dt,      dV = −γ V dt − u ∇f(X) dt + √(2γuT) dB,

whose invariant law is π(x, v) ∝ exp(−(f(x) + |v|²/(2u))/T). The schemes are named by what they do to it. None has
exactly that law: on quadratics the law each one does have is known in closed form, and the tests check that one.

T is the `temperature`, which the paper calls β in its eqs. 1 and 2: dX = −∇f dt + √(2β) dB has the law e^{−f/β}, not
the e^{−βf} that it prints (docs/errata.md, A39); for e^{−βf} take T = 1/β. It enters the noise alone, as √T. With
f′ = f/T the same process is one at T = 1: u∇f = (uT)∇f′, so that a step on f with u at temperature T is a step on f/T
with uT at temperature 1, and overdamped, η∇f = (ηT)∇f′.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np

from svrhmc.core.errors import UnstableStepError, positive, requirement, settle
from svrhmc.core.parts import part
from svrhmc.flows import exact_noise, flow, harmonic_flow, harmonic_noise, remainder
from svrhmc.scheme import IDENTITY, SILENT, Kick, Map, NoiseFactor, Scheme, StepNoise, pushed


class Curved(Protocol):
    """What a dynamics may ask of a target."""

    @property
    def smoothness(self) -> float:
        """λ_max of the Hessian of f, or a bound on it."""

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
            met = target.curvature_range(bound)
            if not bound if met is None else self._stable(target, met):
                return
        met = target.curvature_range(bound=False)
        assert met is not None
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
        settle(
            self,
            step_size=positive("step_size", self.step_size),
            temperature=positive("temperature", self.temperature),
        )

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """ε + ε′: what a Brownian path gains over η."""
        return _composed(IDENTITY, noise)

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
    """What sets every discretisation of the underdamped process: η, γ, u (None: 1/smoothness of the target) and T."""

    step_size: float
    friction: float = 2.0
    inverse_mass: float | None = None
    temperature: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        u = self.inverse_mass
        settle(
            self,
            friction=positive("friction", self.friction),
            inverse_mass=None if u is None else positive("inverse_mass", u),
            step_size=positive("step_size", self.step_size),
            temperature=positive("temperature", self.temperature),
        )

    def describe(self) -> str:
        """Name and friction."""
        return f"{type(self).__name__} with friction {self.friction}"

    def _settings(self, target: Curved) -> tuple[float, float, float]:
        """η, γ and u on a target."""
        if self.inverse_mass is not None:
            return self.step_size, self.friction, self.inverse_mass
        if not (target.smoothness > 0 and math.isfinite(1 / target.smoothness)):
            why = f"1/smoothness would be used, and the target's smoothness is {target.smoothness:g}"
            raise requirement("inverse_mass", "given", "None", why)
        return self.step_size, self.friction, 1 / target.smoothness


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
    `inverse_mass=None` stands for 1/smoothness of the target.

    >>> EulerMaruyama(step_size=0.1, friction=2.0, inverse_mass=1.0).step_size
    0.1
    """

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """ε + ε′, as the noise of a step is a Brownian path's gain over it."""
        return _composed(IDENTITY, noise)

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
    `inverse_mass=None` stands for 1/smoothness of the target, the paper's u = 1/L.

    >>> Underdamped(step_size=0.01)
    Underdamped(step_size=0.01, friction=2.0, inverse_mass=None, temperature=1.0)
    """

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """Φ(η/2)ε + ε′ with Φ the flow of the process, not this scheme's drift: the noise is the process's own."""
        return _composed(flow(self.step_size / 2, self.friction), noise)

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
        return _composed(flow(self.step_size / 2, self.friction), noise)

    def scheme(self, target: Curved) -> Scheme:
        """One map, with a − E = r(a) + 2t²/(1 + t) free of cancellation."""
        eta, gamma, u = self._settings(target)
        a = gamma * eta
        t = math.tanh(a / 2)
        kick = Kick(u / gamma**2 * (remainder(a) + 2 * t * t / (1 + t)), u / gamma * 2 * t / (1 + t))
        return Scheme(IDENTITY, SILENT, kick, flow(eta, gamma), exact_noise(eta, gamma, u)).at(self.temperature)


@dataclass(frozen=True)
class _Mirrored(_WithVelocity):
    """Schemes that go half a step without gradient, kick, and go the other half; flows without gradient compose."""

    couples_halves = True

    def joined(self, long: Scheme, short: Scheme, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
        """Over η/2 the long step's is Φ(η/4)ε + ε′ of a whole short step."""
        first, second = (pushed(short.before, one.before, one.after) for one in noise)
        return StepNoise(first, second)


@part
@dataclass(frozen=True)
class UBU(_Mirrored):
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
class Anchored(_Mirrored):
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
        settle(self, curvature=positive("curvature", self.curvature))

    def scheme(self, target: Curved) -> Scheme:
        """The part −s x of the kick is linear in the state, and goes into the map after the gradient."""
        eta, gamma, u = self._settings(target)
        s = self.curvature
        half = harmonic_flow(eta / 2, gamma, u * s)
        noise = harmonic_noise(eta / 2, gamma, u, s)
        middle = half.matrix()
        kappa = 1 / (s * np.linalg.solve(np.eye(2) - middle @ middle, middle)[0, 1])
        after = Map(half.xx + half.xv * kappa * s, half.xv, half.vx + half.vv * kappa * s, half.vv)
        return Scheme(half, noise, Kick(half.xv * kappa, half.vv * kappa), after, noise).at(self.temperature)


def _composed(half: Map, noise: tuple[StepNoise, StepNoise]) -> StepNoise:
    """For schemes with all their noise after the gradient: the first half's goes through the second half."""
    return StepNoise(noise[0].before, pushed(half, noise[0].after, noise[1].after))


def require_dynamics(dynamics: object) -> Dynamics:
    """Refuse what is no dynamics."""
    if not isinstance(dynamics, Dynamics):
        raise requirement("dynamics", "one of svrhmc.dynamics, such as Underdamped(0.01)", repr(dynamics))
    return dynamics
