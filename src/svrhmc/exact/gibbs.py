"""Blocked Gibbs sampling of regressions under a regularised horseshoe (`svrhmc.density.shrunk` has the model).

One draw is, with vⱼ the variance of βⱼ given the scales,

    1. λ | β, τ, c           γ = 1/λ² has the density ∝ (1 + γ)⁻¹ √(1 + k/γ) e^{−mγ}, k = τ²/c², m = β²/2τ². With
                             u₁ uniform below the first factor and u₂ below the second, γ is exponential of rate m below
                             min(1/u₁ − 1, k/(u₂² − 1)), and drawn by its distribution function;
    2. τ | τλ                where all variances, and so β, stay what they are;
    3. τ, c | β, λ           by their priors and N(β; 0, v);
    4. τ | what is held      each coefficient is held with probability 1 − κⱼ = nvⱼ/(σ̃² + nvⱼ), which leaves βⱼ and
                             τλⱼ as they are, and else βⱼ/√vⱼ and λⱼ; by the priors, the likelihood of the rows at
                             the β that moves with τ (without ω), and the probability of that choice;
    5. σ | β, τ              by its prior, p(τ | σ) and the residuals;
    6. ω | β for events, and β | all else (`GaussianBlock`).

1 is made twice, and 2 to 5 move one logarithm at a time by slice sampling (Neal, Annals of Statistics 31, 2003). Each
step leaves the posterior of (β, σ, λ, τ, c) invariant: 1, 3, 5 and 6 are draws of full conditional laws, or steps that
leave those invariant; 2 and 4 are so in other variables, which the change of variables takes back, 4 given a choice
that is an auxiliary variable. By 3 alone τ hardly moves, as p coefficients tell what it is (Johndrow, Orenstein &
Bhattacharya, Journal of Machine Learning Research 21, 2020). Where the rows say little of a coefficient it may follow τ
instead, and where they say much it may not: 4 does for each what suits it, between the two ways that are interwoven by
Yu & Meng (Journal of Computational and Graphical Statistics 20, 2011). With n = 400, p = 1,000 and Gaussian rows that
gave τ about four times the effective draws a second of holding none; a Metropolis step on (τ, c, σ) with β integrated
out, which takes a factor of its own, made a draw twice as long and τ no faster, and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.core.machine import one_blas_thread
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import part
from svrhmc.density.shrunk import GaussianBlock, Scales, ShrunkModel
from svrhmc.engines import Setup, State
from svrhmc.engines.base import Kernel, Place
from svrhmc.exact.base import ExactSampler
from svrhmc.exact.polya_gamma import polya_gamma
from svrhmc.gradients import Memory

_LOCAL = 2  # times that the local scales are drawn in a step: they are cheap beside a factor
_MUCH = 1 << 16  # entries of X from which chains are shared by threads


@part
@dataclass(frozen=True)
class HorseshoeGibbs(ExactSampler):
    """The sampler of this module."""

    kind = "gibbs"
    defined, in_numpy = True, "always"
    method = "gibbs"

    def kernel(self, setup: Setup) -> Kernel:
        """The steps of every chain by itself."""
        return GibbsKernel(setup.target, setup)

    def require(self, target: Any) -> None:
        """Refuse whatever is given to it directly."""
        why = "it samples regressions under a Horseshoe; take another method"
        raise requirement("target", "a model with prior=Horseshoe(…), given to svrhmc.sample", repr(target), why)

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """A pass for each step."""
        return np.asarray(state.spent + float(n) * (steps - state.step), np.float64)


class GibbsKernel(Kernel):
    """Steps of `HorseshoeGibbs`; the numbers of a step are those of a generator whose key is a word of the stream, so
    that nothing but the state is carried from one to the next.
    """

    def __init__(self, model: ShrunkModel, setup: Setup) -> None:
        self.model, self.setup = model, setup

    def empty_memory(self, state: State) -> Memory:
        """A state is all there is."""
        return {}

    def walk(self, chains: Indices, state: State, end: int) -> Iterator[Place]:
        x = state.x
        large = self.model.X.size > _MUCH
        with one_blas_thread():
            self._prepare()
        for step in range(state.step, end):

            def moved(c: int, x: Array = x, step: int = step) -> Array:
                rng = generator(self.setup.stream(chains[c : c + 1]), step)
                return gibbs_step(self.model, x[c], rng)

            with one_blas_thread():
                places = range(len(chains))
                x = np.stack(list(self._pool.map(moved, places) if large else map(moved, places)))
            yield Place(x, state.v, dict)

    def _prepare(self) -> None:
        """What chains share is found before threads ask for it."""
        if self.model.loss.gaussian_given == "noise" and self.model.width <= self.model.n:
            _ = self.model.gram

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.setup.threads)


def generator(stream: Stream, step: int, purpose: Purpose = Purpose.NOISE) -> np.random.Generator:
    """Random numbers of one step of one chain."""
    low, high = stream.words(step, purpose, 1)
    return np.random.Generator(np.random.Philox(key=(int(high[0, 0]) << 32) | int(low[0, 0])))


def start(model: ShrunkModel, rng: np.random.Generator) -> Array:
    """A state with scales from their prior, τ and σ near their usual sizes, and β given them."""
    place = slice(model.width, model.reported_dim)
    shared = np.asarray(model.conditional.loss.shared_start(model.conditional.y - model.offset)[: model.loss.shared])
    assert len(shared) == place.stop - place.start
    local = np.log(np.abs(np.tan(math.pi / 2 * rng.random(len(model.shrunk)))))
    overall = math.log(model.global_scale * model.noise(shared)) + rng.standard_normal()
    scales = Scales(local, overall, math.log(model.horseshoe.slab_scale) + 0.3 * rng.standard_normal())
    omega, z = _rows(model, np.zeros(model.width), shared, rng)
    return model.joined(_block(model, omega, z, shared, scales).draw(rng), shared, scales)


def gibbs_step(model: ShrunkModel, x: Array, rng: np.random.Generator) -> Array:
    """One draw after another."""
    beta, shared, scales = model.split(x)
    own = beta[model.shrunk]
    for _ in range(_LOCAL):
        scales = scales._replace(local=_local_scales(rng, own, scales))
    scales = _global_given_products(model, shared, scales, rng)
    scales = _scales_given_coefficients(model, own, shared, scales, rng)
    beta, scales = _scales_given_held(model, beta, shared, scales, rng)
    if model.loss.shared:
        shared = _noise_scale(model, beta, shared, scales, rng)
    omega, z = _rows(model, beta, shared, rng)
    return model.joined(_block(model, omega, z, shared, scales).draw(rng), shared, scales)


def _local_scales(rng: np.random.Generator, beta: Array, scales: Scales) -> Array:
    """log λ | β, τ, c."""
    gamma = np.exp(-2 * scales.local)
    k = math.exp(2 * (scales.overall - scales.slab))
    m = np.maximum(0.5 * beta**2 * math.exp(-2 * scales.overall), 1e-290)
    u = 1 - rng.random((2, len(beta)))
    first = u[0] / (1 + gamma)
    excess = u[1] ** 2 * (1 + k / gamma) - 1  # of u₂² above 1
    with np.errstate(divide="ignore"):
        end = np.minimum(1 / first - 1, np.where(excess > 0, k / np.maximum(excess, 1e-300), np.inf))
    v = 1 - rng.random(len(beta))
    drawn = -np.log1p(v * np.expm1(-m * end)) / m  # exponential of rate m below the end
    return np.asarray(-0.5 * np.log(np.clip(drawn, 1e-280, 1e280)))


def _global_given_products(model: ShrunkModel, shared: Array, scales: Scales, rng: np.random.Generator) -> Scales:
    """log τ | log τλ."""
    products = scales.local + scales.overall

    def log_density(overall: float) -> float:
        local = products - overall
        return model.log_global(overall, shared) + float((local - np.logaddexp(0.0, 2 * local)).sum())

    overall = slice_step(rng, scales.overall, log_density)
    return scales._replace(local=products - overall, overall=overall)


def _scales_given_coefficients(
    model: ShrunkModel, own: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> Scales:
    """log τ and log c | β, λ, one after the other."""
    squares = own**2

    def log_density(at: Scales) -> float:
        log_v = at.log_variances
        with np.errstate(over="ignore"):
            fit = float((log_v + squares * np.exp(-log_v)).sum())
        return model.log_global(at.overall, shared) + model.log_slab(at.slab) - 0.5 * fit

    scales = scales._replace(overall=slice_step(rng, scales.overall, lambda v: log_density(scales._replace(overall=v))))
    return scales._replace(slab=slice_step(rng, scales.slab, lambda v: log_density(scales._replace(slab=v))))


def _scales_given_held(
    model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> tuple[Array, Scales]:
    """log τ | what is held: β moves with it.

    Each coefficient is held with probability 1 − κⱼ: then βⱼ and τλⱼ stay; else βⱼ/√vⱼ and λⱼ do. The probability of
    having been chosen so is part of the density, as the choice is an auxiliary variable given all else.
    """
    from scipy.special import expit

    own, free = beta[model.shrunk], beta.copy()
    free[model.shrunk] = 0.0
    rest, X = model.X @ free, model.X if len(own) == model.width else model.X[:, model.shrunk]
    log_z = np.log(np.maximum(np.abs(own), 1e-300)) - 0.5 * scales.log_variances
    sign, log_signal = np.sign(own), math.log(model.total) - 2 * math.log(model.noise(shared))
    held = rng.random(len(own)) < expit(scales.log_variances + log_signal)
    log_products = scales.local + scales.overall
    at_held, moving = rest + X[:, held] @ own[held], np.ascontiguousarray(X[:, ~held])

    def moved_to(overall: float) -> Scales:
        return scales._replace(overall=overall, local=np.where(held, log_products - overall, scales.local))

    def log_density(overall: float) -> float:
        at = moved_to(overall)
        log_v, local = at.log_variances[~held], at.local[held]
        coefficients = sign[~held] * np.exp(log_z[~held] + 0.5 * log_v)
        chosen = -np.logaddexp(0.0, log_v + log_signal).sum() + (local - np.logaddexp(0.0, 2 * local)).sum()
        fit = model.log_likelihood(at_held + moving @ coefficients, shared)
        return model.log_global(overall, shared) + float(chosen) + fit

    scales = moved_to(slice_step(rng, scales.overall, log_density))
    out = beta.copy()
    out[model.shrunk] = np.where(held, own, sign * np.exp(log_z + 0.5 * scales.log_variances))
    return out, scales


def _noise_scale(model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator) -> Array:
    """log σ | β, τ."""
    squares = float(model.counts @ (model.conditional.y - model.offset - model.X @ beta) ** 2)

    def log_density(value: float) -> float:
        at = np.array([value])
        fit = -model.total * value - 0.5 * squares * math.exp(min(-2 * value, 700.0))
        return fit + model.log_shared(at) + model.log_global(scales.overall, at)

    return np.array([slice_step(rng, float(shared[0]), log_density, 0.3)])


def _rows(model: ShrunkModel, beta: Array, shared: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """ω and z."""
    if model.loss.gaussian_given == "noise":
        return model.counts / model.noise(shared) ** 2, model.conditional.y - model.offset
    omega = polya_gamma(rng, model.counts, model.X @ beta + model.offset)
    return omega, model.kappa / omega - model.offset


def _block(model: ShrunkModel, omega: Array, z: Array, shared: Array, scales: Scales) -> GaussianBlock:
    mean, variance = model.prior_of(scales)
    gram = None
    if model.loss.gaussian_given == "noise" and model.width <= model.n:
        precision = model.noise(shared) ** -2
        gram = model.gram[0] * precision, model.gram[1] * precision
    return GaussianBlock(model.X, omega, z, mean, variance, gram)


def slice_step(rng: np.random.Generator, x: float, log_density: Callable[[float], float], width: float = 1.0) -> float:
    """One number by slice sampling: an interval is stepped out around x, and shrunk to where the density is above a
    level drawn below that at x.
    """
    level = log_density(x) - float(rng.standard_exponential())
    low = x - width * float(rng.random())
    high = low + width
    while log_density(low) > level:
        low -= width
    while log_density(high) > level:
        high += width
    while True:
        new = low + (high - low) * float(rng.random())
        if log_density(new) >= level:
            return new
        if new < x:
            low = new
        else:
            high = new
