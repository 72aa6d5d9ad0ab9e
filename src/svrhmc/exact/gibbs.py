"""Gibbs sampling of regressions under a joint shrinking prior (`svrhmc.density.shrunk` has the model).

A draw is, with vⱼ the variance of βⱼ given the scales and ηⱼ = √vⱼ but for a slab,

    1. ω | β                 for events;
    2. (βⱼ, own scale) | all else, one coefficient after another in random order: the scale with βⱼ integrated out,
                             then βⱼ (`svrhmc.kernels.sweep`);
    3. some β | all else     jointly (`GaussianBlock`): those that have no part in the prior, and those of which nvⱼ/σ̃²
                             is above a level; in one draw of some, which a random number decides, all;
    4. β_S → e^u β_S         for events, u by the likelihood of the rows (without ω), the prior and the determinant; S
                             as in 3, with a higher level;
    5. scales that all share | β, own scales, but for the one that stretches all;
    6. the scale τ that stretches all | ηⱼ, β: by the prior alone;
    7. τ | what is held:     each coefficient is held with probability 1/(1 + e^h σ̃²/nηⱼ²), h random: then βⱼ and ηⱼ
                             stay; else βⱼ/τ and λⱼ do. By the prior of all, the likelihood of the rows at the β that
                             moves with τ (without ω), the determinant, and the probability of that choice;
    8. σ | β, scales         by its prior, that of what depends on it, and the residuals;
    9. (βⱼ, own scale) ↔ (βₖ, own scale), j drawn by βⱼ², k by wⱼₖ = ρⱼₖ⁸ with ρ the correlation of columns, accepted
                             with probability min(1, p(y | exchanged)/p(y | as it was) · Σₗwⱼₗ/Σₗwₖₗ).

4 to 8 move one number at a time by slice sampling (Neal, Annals of Statistics 31, 2003). Each step leaves the posterior
of (β, σ, scales) invariant: 2, 3, 5 and 8 are draws of full conditional laws, or steps that leave those invariant, 2
and 3 given ω, which 1 draws given all the others and which the later ones leave out; what 3 and 4 choose depends on
scales and on numbers drawn apart, of which they change none; 4, 6 and 7 are so in other variables, which the change of
variables takes back, 7 given a choice that is an auxiliary variable; 9 is a Metropolis step, as the prior is the same
for all coefficients and the one exchanged back is drawn by the same βⱼ².

What makes it fast. With β and λ drawn in turn, a coefficient that may be near 0 or not stays where it is, as λ follows
β and β follows λ; with βⱼ integrated out λⱼ goes from one to the other in one step. A sweep takes some 6np operations,
a factor n²p: with n = 400, p = 1,000 that is 0.35 ms beside 4. Columns that depend on each other strongly need the
joint draw, which is small where most coefficients are near 0. τ hardly moves given λ, as p coefficients tell what it is
(Johndrow, Orenstein & Bhattacharya, Journal of Machine Learning Research 21, 2020). Where the rows say little of a
coefficient it may follow τ instead, and where they say much it may not: 7 does for each what suits it, between the two
ways that are interwoven by Yu & Meng (Journal of Computational and Graphical Statistics 20, 2011), and as β moves by a
factor one product with X serves all its τ. Pólya–Gamma variables tell how large the log odds are, all at once: 4 moves
their size without them. And of two columns that are nearly the same 9 gives each its share of the effect, between
which nothing else goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.core.machine import one_blas_thread
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.serialise import part
from svrhmc.density.shrunk import GaussianBlock, ShrunkModel
from svrhmc.engines import Setup, State
from svrhmc.engines.base import Kernel, StepResult
from svrhmc.exact.base import ExactSampler
from svrhmc.exact.polya_gamma import polya_gamma
from svrhmc.gradients import Memory
from svrhmc.priors.local_scales import Scales

_SWEEPS = 2  # of a draw
_JOINTLY, _LARGE = 0.2, 1.0  # nv/σ̃² from which coefficients are drawn together, and moved by a factor
_ALL = 1 / 32  # of the draws, in which all are
_HELD = (-1.0, 4.0)  # between which h is
_STRETCHES = 4  # times that 6 and 7 are made in a draw
_MUCH = 1 << 16  # entries of X from which chains are shared by threads


@part
@dataclass(frozen=True)
class ShrinkageGibbs(ExactSampler):
    """The sampler of this module."""

    kind = "gibbs"
    defined, in_numpy = True, "always"
    method = "gibbs"

    def kernel(self, setup: Setup) -> Kernel:
        """The steps of every chain by itself."""
        return GibbsKernel(setup.target, setup)

    def require(self, target: object) -> None:
        """Refuse whatever is given to it directly."""
        why = "it samples regressions under a prior such as Horseshoe(…); take another method"
        raise requirement("target", "a model with prior=Horseshoe(…), given to svrhmc.sample", repr(target), why)

    def spent(self, state: State, steps: Indices, n: int) -> Array:
        """A pass for each step."""
        return np.asarray(state.spent + float(n) * (steps - state.step), np.float64)


class GibbsKernel(Kernel):
    """Steps of `ShrinkageGibbs`; the numbers of a step are those of a generator whose key is a word of the stream, so
    that nothing but the state is carried from one to the next.
    """

    def __init__(self, model: ShrunkModel, setup: Setup) -> None:
        self.model, self.setup = model, setup

    def empty_memory(self, state: State) -> Memory:
        """A state is all there is."""
        return {}

    def walk(self, chains: Indices, state: State, end: int) -> Iterator[StepResult]:
        x = state.x
        with one_blas_thread():
            large = self.model.sampled_rows.columns.size > _MUCH  # found before threads ask for it
        for step in range(state.step, end):

            def moved(c: int, x: Array = x, step: int = step) -> Array:
                rng = generator(self.setup.stream(chains[c : c + 1]), step)
                return gibbs_step(self.model, x[c], rng)

            with one_blas_thread():
                places = range(len(chains))
                x = np.stack(list(self._pool.map(moved, places) if large else map(moved, places)))
            yield StepResult(x, state.v, dict)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.setup.threads)


def generator(stream: Stream, step: int, purpose: Purpose = Purpose.NOISE) -> np.random.Generator:
    """Random numbers of one step of one chain."""
    return generators(stream, step, purpose)[0]


def generators(stream: Stream, step: int, purpose: Purpose = Purpose.NOISE) -> list[np.random.Generator]:
    """Random numbers of one step of each chain."""
    low, high = (words[:, 0].tolist() for words in stream.words(step, purpose, 1))
    return [
        np.random.Generator(np.random.Philox(key=(first << 32) | last)) for last, first in zip(low, high, strict=True)
    ]


def start(model: ShrunkModel, rng: np.random.Generator) -> Array:
    """A state with scales from their prior, τ and σ near their usual sizes, and β given them."""
    place = slice(model.width, model.reported_dim)
    shared = np.asarray(model.conditional.loss.shared_start(model.conditional.y - model.offset)[: model.loss.shared])
    assert len(shared) == place.stop - place.start
    scales = model.scales.start(rng, model.log_noise(shared))
    beta = np.zeros(model.width)
    omega, z = _augmented_rows(model, beta, shared, rng)
    return model.joined(_draw_jointly(model, beta, omega, z, shared, scales, rng, True), shared, scales)


def gibbs_step(model: ShrunkModel, x: Array, rng: np.random.Generator) -> Array:
    """One draw after another."""
    beta, shared, scales = model.split(x)
    omega, z = _augmented_rows(model, beta, shared, rng)
    for _ in range(_SWEEPS):
        beta, scales = _sweep_coefficients(model, beta, omega, z, shared, scales, rng)
    beta = _draw_jointly(model, beta, omega, z, shared, scales, rng, float(rng.random()) < _ALL)
    if model.loss.gaussian_given == "polya-gamma":
        beta = _rescale_large(model, beta, shared, scales, rng)
    scales = _draw_shared_scales(model, beta, shared, scales, rng)
    for _ in range(_STRETCHES if model.scales.stretches else 0):
        scales = _draw_overall_scale(model, shared, scales, rng)
        beta, scales = _move_overall_scale(model, beta, shared, scales, rng)
    if model.loss.shared:
        shared = _draw_noise_scale(model, beta, shared, scales, rng)
    beta, scales = _exchange_coefficients(model, beta, shared, scales, rng)
    return model.joined(beta, shared, scales)


def _augmented_rows(model: ShrunkModel, beta: Array, shared: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """ω and z."""
    rows = model.sampled_rows
    if model.loss.gaussian_given == "noise":
        return np.full(len(rows.z), math.exp(-2 * model.log_noise(shared))), rows.z
    omega = polya_gamma(rng, model.counts, beta @ rows.columns + model.offset)
    return omega, model.kappa / omega - model.offset


def _sweep_coefficients(
    model: ShrunkModel, beta: Array, omega: Array, z: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> tuple[Array, Scales]:
    """Each coefficient and its own scale | all else."""
    from svrhmc.kernels.sweep import sweep

    columns, shrunk = model.sampled_rows.columns, model.shrunk
    own, local, residual = beta[shrunk], scales.local.copy(), z - beta @ columns
    numbers = model.scales.sweep_numbers(scales, model.log_noise(shared))
    keys = rng.integers(0, 1 << 32, 2, dtype=np.uint32)
    sweep(numbers.kind, columns, shrunk, rng.permutation(len(shrunk)), omega, residual, own, local, *numbers[1:], *keys)
    beta = beta.copy()
    beta[shrunk] = own
    return beta, scales._replace(local=local)


def _draw_jointly(
    model: ShrunkModel, beta: Array, omega: Array, z: Array, shared: Array, scales: Scales, rng: np.random.Generator,
    every: bool,
) -> Array:  # fmt: skip
    """Some coefficients | all else, or all that may be other than 0."""
    columns = model.sampled_rows.columns
    mean, variance = model.prior_of(scales, shared)
    chosen = _indices_above(model, variance, shared, 0.0 if every else _JOINTLY)
    if not len(chosen):
        return beta
    own = columns if len(chosen) == len(beta) else columns[chosen]
    residual = z if len(chosen) == len(beta) else z - beta @ columns + beta[chosen] @ own
    beta = beta.copy()
    beta[chosen] = GaussianBlock(own, omega, residual, mean[chosen], variance[chosen]).draw(rng)
    return beta


def _indices_above(model: ShrunkModel, variance: Array, shared: Array, level: float) -> Indices:
    """The coefficients of which nv/σ̃² is above a level, and those that have no part in the prior."""
    signal = variance * math.exp(math.log(model.total) - 2 * model.log_noise(shared))
    return np.flatnonzero((signal > level) | ~model.is_shrunk)


def _rescale_large(model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator) -> Array:
    """Large coefficients times a number."""
    columns, (mean, variance) = model.sampled_rows.columns, model.prior_of(scales, shared)
    large = _indices_above(model, variance, shared, _LARGE)
    if not len(large):
        return beta
    own, mean, precision = beta[large], mean[large], 1 / variance[large]
    moving = own @ columns[large]
    rest = beta @ columns - moving

    def log_density(by: float) -> float:
        factor = math.exp(min(by, 300.0))
        away = factor * own - mean
        fit = model.log_likelihood(rest + factor * moving, shared)
        return fit - 0.5 * float(precision @ away**2) + len(large) * by

    beta = beta.copy()
    beta[large] = own * math.exp(slice_step(rng, 0.0, log_density, 0.3))
    return beta


def _draw_shared_scales(
    model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> Scales:
    """Those that do not stretch all | β, own scales."""

    def changed(k: int, value: float) -> Scales:
        values = scales.shared.copy()
        values[k] = value
        return scales._replace(shared=values)

    for k in range(int(model.scales.stretches), len(scales.shared)):

        def log_density(value: float, k: int = k) -> float:
            return model.log_scales(beta, shared, changed(k, value))

        scales = changed(k, slice_step(rng, float(scales.shared[k]), log_density))
    return scales


def _shift_overall_scale(scales: Scales, by: float, is_held: npt.ArrayLike = True) -> Scales:
    """log τ further by a number, with the own scales of what is held that much less."""
    return Scales(
        np.where(is_held, scales.local - by, scales.local), np.append(scales.shared[0] + by, scales.shared[1:])
    )


def _draw_overall_scale(model: ShrunkModel, shared: Array, scales: Scales, rng: np.random.Generator) -> Scales:
    """log τ | all variances."""
    log_noise = model.log_noise(shared)
    return _shift_overall_scale(
        scales, slice_step(rng, 0.0, lambda by: model.scales.log_prior(_shift_overall_scale(scales, by), log_noise))
    )


def _move_overall_scale(
    model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> tuple[Array, Scales]:
    """log τ | what is held: the others move with it."""
    from scipy.special import expit, log_expit

    columns, shrunk = model.sampled_rows.columns, model.shrunk
    low, high = _HELD
    log_signal = math.log(model.total) - 2 * model.log_noise(shared) - (low + (high - low) * float(rng.random()))
    log_squares = log_signal + model.scales.log_stretched(scales, model.log_noise(shared))
    is_held = rng.random(len(shrunk)) < expit(log_squares)
    moving = np.zeros_like(beta)
    moving[shrunk[~is_held]] = beta[shrunk[~is_held]]
    fitted = beta @ columns
    at_moving = moving @ columns
    at_held, count, let_go = fitted - at_moving, int((~is_held).sum()), log_squares[~is_held]

    def log_density(by: float) -> float:
        factor = math.exp(min(by, 300.0))
        at, choice = beta + moving * (factor - 1), float(log_expit(-(let_go + 2 * by)).sum())
        fit = model.log_likelihood(at_held + factor * at_moving, shared)
        return model.log_scales(at, shared, _shift_overall_scale(scales, by, is_held)) + fit + choice + count * by

    by = slice_step(rng, 0.0, log_density)
    return beta + moving * math.expm1(by), _shift_overall_scale(scales, by, is_held)


def _draw_noise_scale(
    model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> Array:
    """log σ | β, scales."""
    fitted = beta @ model.sampled_rows.columns

    def log_density(value: float) -> float:
        at = np.array([value])
        return model.log_likelihood(fitted, at) + model.log_shared(at) + model.log_scales(beta, at, scales)

    return np.array([slice_step(rng, float(shared[0]), log_density, 0.3)])


def _exchange_coefficients(
    model: ShrunkModel, beta: Array, shared: Array, scales: Scales, rng: np.random.Generator
) -> tuple[Array, Scales]:
    """Two coefficients of columns that go along with each other change places."""
    columns, shrunk, own = model.sampled_rows.columns, model.shrunk, beta[model.shrunk]
    squares, numbers, threshold = own**2, rng.random(2), -float(rng.standard_exponential())
    if not squares.sum() > 0:
        return beta, scales

    def similarities(j: int) -> Array:
        """wⱼₖ of all k."""
        w = ((columns @ columns[shrunk[j]])[shrunk] / (model.lengths * model.lengths[j])) ** 8
        w[j] = 0.0
        return np.asarray(w)

    j = _draw_index(squares, numbers[0])
    of_j = similarities(j)
    if not of_j.sum() > 0:
        return beta, scales
    k = _draw_index(of_j, numbers[1])
    exchanged, places = beta.copy(), [k, j]
    exchanged[shrunk[[j, k]]] = own[places]
    fitted = beta @ columns
    moved = fitted + (own[k] - own[j]) * (columns[shrunk[j]] - columns[shrunk[k]])
    gained = model.log_likelihood(moved, shared) - model.log_likelihood(fitted, shared)
    if not threshold < gained + math.log(of_j.sum()) - math.log(similarities(k).sum()):
        return beta, scales
    local = scales.local.copy()
    local[[j, k]] = local[places]
    return exchanged, scales._replace(local=local)


def _draw_index(weights: Array, u: float) -> int:
    """A place with probability proportional to its weight."""
    ends = np.cumsum(weights)
    return int(np.searchsorted(ends, u * ends[-1], side="right"))


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
