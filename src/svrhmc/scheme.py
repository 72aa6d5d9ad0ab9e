"""One step of a dynamics as sixteen numbers, which every engine interprets.

Per coordinate, with z = (x, v), fresh standard normals ξ, ξ′ and one gradient estimate g a step,

    z ← P z + Lp ξ ;      g = ∇f̂(x) ;      z ← Q z − k g + Lq ξ′ .
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import finite


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
        """Of (εˣ, εᵛ)."""
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
        return [list(each) for each in (self.before, self.before_noise, self.kick, self.after, self.after_noise)]

    @staticmethod
    def of(numbers: list[list[float]]) -> Scheme:
        """The scheme of these numbers; anything but as many finite numbers is an error."""
        kinds: tuple[type[Any], ...] = (Map, NoiseFactor, Kick, Map, NoiseFactor)
        for part in numbers:
            for number in part:
                finite("a number of a scheme", number)
        return Scheme(*(kind(*each) for kind, each in zip(kinds, numbers, strict=True)))

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
