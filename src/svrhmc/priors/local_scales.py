"""Laws of the variances vⱼ of coefficients βⱼ ~ N(0, vⱼ), each with a local part and parts that all of them share.

σ̃ is the standard deviation of the noise; for events each law defines it. n is the number of rows.

The regularised horseshoe (Piironen & Vehtari, Electronic Journal of Statistics 11, 2017):

    1/vⱼ = 1/(τλⱼ)² + 1/c²,    λⱼ ~ C⁺(0, 1),    τ ~ C⁺(0, τ₀σ̃),    c² ~ InvGamma(ν/2, νs²/2),

    τ₀ = p₀/((p − p₀)√n),        p₀ = expected, the number of effects that are thought not to be near 0.

A coefficient whose τλⱼ is far below the slab's c is drawn to 0; one far above it has the prior N(0, c²), and with c
unknown Student's t of ν degrees of freedom and scale s.

R2D2 (Zhang, Naughton, Bondell & Reich, Journal of the American Statistical Association 117, 2022), in the form of brms:

    vⱼ = σ̃²Wζⱼ,    W = R²/(1 − R²),    R² ~ Beta(A, B),    ζ ~ Dirichlet(α, …, α).

Here ζⱼ = gⱼ/G with independent gⱼ ~ Gamma(α, 1) and their sum G, which is independent of ζ, and W = θG.

Spike and slab (Mitchell & Beauchamp, Journal of the American Statistical Association 83, 1988):

    vⱼ = γⱼs²,    γⱼ ~ Bernoulli(π),    π ~ Beta(1, B).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array


class Scales(NamedTuple):
    """The parts of the variances in one state: each coefficient's own, and those that all share."""

    local: Array
    shared: Array


class SweepNumbers(NamedTuple):
    """The arguments of `svrhmc.kernels.sweep`."""

    kind: int
    overall: float
    slab: float
    alpha: float = 0.0
    left: float = 0.0
    right: float = 0.0


@dataclass(frozen=True)
class LocalScales(ABC):
    """A law of the variances; count, rows: the number of coefficients and of rows."""

    names: ClassVar[tuple[str, ...]]  # of the reported shared parts
    shared_count: ClassVar[int] = 1
    stretches: ClassVar[bool] = True  # whether the first shared part is the logarithm of a factor of all √vⱼ
    point_mass: ClassVar[bool] = False  # whether a coefficient may be 0
    logistic_noise: ClassVar[float | None] = None  # σ̃ of events; None: 1/√(p̄(1 − p̄)), p̄ their share
    count: int
    rows: float

    @abstractmethod
    def precisions(self, scales: Scales, log_noise: float) -> Array:
        """1/vⱼ."""

    @abstractmethod
    def log_prior(self, scales: Scales, log_noise: float) -> float:
        """The log prior of the scales given σ̃, up to a constant."""

    @abstractmethod
    def draw_prior(self, rng: np.random.Generator, log_noise: float) -> Scales:
        """One draw from their prior."""

    @abstractmethod
    def start(self, rng: np.random.Generator, log_noise: float) -> Scales:
        """A starting point: a draw from the prior, but with the shared parts near their usual sizes."""

    @abstractmethod
    def sweep_numbers(self, scales: Scales, log_noise: float) -> SweepNumbers:
        """The arguments of the compiled sweep for one state and its noise."""

    @abstractmethod
    def reported(self, local: Array, shared: Array) -> Array:
        """The reported quantities on an unbounded scale, from (states, coefficients) and (states, shared parts)."""

    @abstractmethod
    def to_reported_units(self, reported: Array) -> Array:
        """The reported quantities in the units of `names`."""

    def log_stretched(self, scales: Scales, log_noise: float) -> Array:
        """log ηⱼ², which is log vⱼ without the slab: it increases by 2u with the first shared part by u."""
        return np.asarray(-np.log(self.precisions(scales, log_noise)))

    def factors(self, scales: Scales, log_noise: float) -> Array:
        """κⱼ = 1/(1 + nvⱼ/σ̃²): 1 where a coefficient is shrunk to 0, 0 where it is not shrunk."""
        return np.asarray(1 / (1 + self.rows * math.exp(-2 * log_noise) / self.precisions(scales, log_noise)))


@dataclass(frozen=True)
class HorseshoeScales(LocalScales):
    """The regularised horseshoe: the local parts are log λ, the shared ones log τ and log c."""

    names = ("scale", "slab")
    shared_count = 2
    global_scale: float
    slab_scale: float
    slab_df: float

    def precisions(self, scales: Scales, log_noise: float) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-2 * (scales.local + scales.shared[0])) + math.exp(-2 * scales.shared[1]))

    def log_stretched(self, scales: Scales, log_noise: float) -> Array:
        return np.asarray(2 * (scales.local + scales.shared[0]))

    def log_prior(self, scales: Scales, log_noise: float) -> float:
        tau, slab = (float(value) for value in scales.shared)
        d = tau - math.log(self.global_scale) - log_noise
        of_slab = -self.slab_df * (slab + 0.5 * math.exp(min(2 * (math.log(self.slab_scale) - slab), 700.0)))
        return _half_cauchy(scales.local) + _half_cauchy(np.array([d])) + of_slab

    def draw_prior(self, rng: np.random.Generator, log_noise: float) -> Scales:
        size = np.log(np.abs(np.tan(math.pi / 2 * rng.random(self.count + 1))))
        slab = 0.5 * math.log(self.slab_df * self.slab_scale**2 / rng.chisquare(self.slab_df))
        return Scales(size[1:], np.array([size[0] + math.log(self.global_scale) + log_noise, slab]))

    def start(self, rng: np.random.Generator, log_noise: float) -> Scales:
        local = np.log(np.abs(np.tan(math.pi / 2 * rng.random(self.count))))
        usual = np.array([math.log(self.global_scale) + log_noise, math.log(self.slab_scale)])
        return Scales(local, usual + np.array([1.0, 0.3]) * rng.standard_normal(2))

    def sweep_numbers(self, scales: Scales, log_noise: float) -> SweepNumbers:
        return SweepNumbers(0, *map(float, scales.shared))

    def reported(self, local: Array, shared: Array) -> Array:
        return shared

    def to_reported_units(self, reported: Array) -> Array:
        return np.exp(reported)


@dataclass(frozen=True)
class R2D2Scales(LocalScales):
    """R2D2: the local parts are ½ log g, the shared one is ½ log θ."""

    names = ("r2",)
    logistic_noise = math.pi / math.sqrt(3)
    concentration: float
    a: float
    b: float

    def precisions(self, scales: Scales, log_noise: float) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(-2 * (scales.local + (scales.shared[0] + log_noise))))

    def log_prior(self, scales: Scales, log_noise: float) -> float:
        with np.errstate(over="ignore"):
            total = float(np.exp(2 * scales.local).sum())
        if not 0 < total < math.inf:
            return -math.inf
        log_w = 2 * float(scales.shared[0]) + math.log(total)
        own = 2 * self.concentration * float(scales.local.sum()) - total
        return own + self.a * log_w - (self.a + self.b) * float(np.logaddexp(0.0, log_w))

    def draw_prior(self, rng: np.random.Generator, log_noise: float) -> Scales:
        return self._from_log_shared(rng, math.log(rng.gamma(self.a)) - math.log(rng.gamma(self.b)))

    def start(self, rng: np.random.Generator, log_noise: float) -> Scales:
        return self._from_log_shared(rng, math.log(self.a / self.b) + rng.standard_normal())

    def _from_log_shared(self, rng: np.random.Generator, log_w: float) -> Scales:
        # g of shape α is one of shape α + 1 times u^{1/α}, which does not underflow in logarithms
        log_g = np.log(rng.gamma(self.concentration + 1, size=self.count))
        log_g -= rng.standard_exponential(self.count) / self.concentration
        return Scales(0.5 * log_g, np.array([0.5 * (log_w - float(np.logaddexp.reduce(log_g)))]))

    def sweep_numbers(self, scales: Scales, log_noise: float) -> SweepNumbers:
        return SweepNumbers(1, float(scales.shared[0]), log_noise, self.concentration, self.a, self.a + self.b)

    def reported(self, local: Array, shared: Array) -> Array:
        return np.asarray(2 * shared + np.logaddexp.reduce(2 * local, axis=1, keepdims=True))

    def to_reported_units(self, reported: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-reported)))


@dataclass(frozen=True)
class SpikeScales(LocalScales):
    """Spike and slab: the local parts are γ, the shared one is log π/(1 − π)."""

    names = ("share",)
    stretches = False
    point_mass = True
    slab_scale: float
    b: float

    def precisions(self, scales: Scales, log_noise: float) -> Array:
        return np.where(scales.local > 0, self.slab_scale**-2, np.inf)

    def log_prior(self, scales: Scales, log_noise: float) -> float:
        odds, chosen = float(scales.shared[0]), float(scales.local.sum())
        share = float(np.logaddexp(0.0, -odds))  # −log π; −log(1 − π) is more by the log odds
        return -(1 + chosen) * share - (self.b + self.count - chosen) * (share + odds)

    def draw_prior(self, rng: np.random.Generator, log_noise: float) -> Scales:
        return self._from_log_shared(rng, math.log(rng.gamma(1.0)) - math.log(rng.gamma(self.b)))

    def start(self, rng: np.random.Generator, log_noise: float) -> Scales:
        return self._from_log_shared(rng, -math.log(self.b) + 2.0 * rng.standard_normal())

    def _from_log_shared(self, rng: np.random.Generator, log_odds: float) -> Scales:
        chosen = rng.random(self.count) < 1 / (1 + math.exp(-log_odds))
        return Scales(chosen.astype(np.float64), np.array([log_odds]))

    def sweep_numbers(self, scales: Scales, log_noise: float) -> SweepNumbers:
        return SweepNumbers(2, float(scales.shared[0]), math.log(self.slab_scale))

    def reported(self, local: Array, shared: Array) -> Array:
        return shared

    def to_reported_units(self, reported: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-reported)))

    def factors(self, scales: Scales, log_noise: float) -> Array:
        """1 − γ: the mean over draws is the probability that a coefficient is 0."""
        return 1 - scales.local


def _half_cauchy(log_size: Array) -> float:
    """The sum of the log densities of logarithms of C⁺(0, 1) numbers."""
    with np.errstate(over="ignore"):
        return -float(np.log(np.exp(log_size) + np.exp(-log_size)).sum())
