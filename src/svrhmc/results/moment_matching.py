"""Leave-one-out densities of rows that decide much: draws are moved to where the posterior without the row lies.

Under the posterior p(x | y), with draws xₛ, the posterior without row i is p(x | y₋ᵢ) ∝ p(x | y)e^{−ℓᵢ(x)}. Where row i
has much weight the draws reach too little of it, and k, the shape of the importance weights, is large
(`svrhmc.results.psis`). An affine map T(x) = Ax + b brings them nearer. Moved draws have the weights

    wₛ ∝ p(T xₛ | y) e^{−ℓᵢ(T xₛ)} |det A| / p(xₛ | y).

T is made of steps of three kinds: the mean of the draws becomes their weighted mean; the standard deviations too; the
covariance too. A step is kept if it lowers k, and the kinds are tried in this order until k is small or none helps.

The draws that are used at last are both xₛ and T xₛ, which have the density q(z) = ½p(z | y) + ½p(T⁻¹z | y)/|det A|:
with wₛ ∝ p(zₛ | y)e^{−ℓᵢ(zₛ)}/q(zₛ) over all 2S of them, smoothed,

    log p(yᵢ | y₋ᵢ) ≈ log Σₛ wₛe^{ℓᵢ(zₛ)} − log Σₛ wₛ,

whose numerator has weights of at most 2. (Paananen, Piironen, Bürkner & Vehtari, Implicitly adaptive importance
sampling, Statistics and Computing 31, 2021.) Each evaluation of p is a pass over all rows for every draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.results.psis import good_shape, smoothed_log_weights

_STEPS = 30  # that may be taken, of all kinds
_PER_COORDINATE = 10  # draws for each coordinate, from which on a covariance is matched


class Density(NamedTuple):
    """Functions of draws (draws, dim): log p(x | y) up to a constant, and ℓ(x), the log density of what is left out."""

    posterior: Callable[[Array], Array]
    left_out: Callable[[Array], Array]


class Matched(NamedTuple):
    """log p(yᵢ | y₋ᵢ), and the shape k of the weights it was estimated with."""

    elpd: float
    k: float


@dataclass(frozen=True, eq=False)
class Affine:
    """T(x) = Ax + b; A is a diagonal, or a matrix."""

    A: Array
    b: Array

    def forward(self, x: Array) -> Array:
        """T x for draws (draws, dim)."""
        return (x * self.A if self.A.ndim == 1 else x @ self.A.T) + self.b

    def backward(self, z: Array) -> Array:
        """T⁻¹ z for draws (draws, dim)."""
        deviation = z - self.b
        return deviation / self.A if self.A.ndim == 1 else np.asarray(np.linalg.solve(self.A, deviation.T).T)

    def after(self, first: Affine) -> Affine:
        """The composition that applies `first`, then this map."""
        matrices = self.A.ndim == 2 or first.A.ndim == 2
        A = _as_matrix(self.A) @ _as_matrix(first.A) if matrices else self.A * first.A
        return Affine(A, self.forward(first.b[None])[0])

    @property
    def log_determinant(self) -> float:
        """log |det A|."""
        return float(np.log(np.abs(self.A)).sum() if self.A.ndim == 1 else np.linalg.slogdet(self.A)[1])


def match(x: Array, density: Density) -> Matched:
    """Estimate the density of a row given the others, from draws x (draws, dim) of the posterior given all rows."""
    good, map_ = good_shape(len(x)), Affine(np.ones(x.shape[1]), np.zeros(x.shape[1]))
    log_density = density.posterior(x)
    best, kind = smoothed_log_weights(-density.left_out(x)), 0
    kinds = [_match_mean, _match_sds]
    if len(x) >= _PER_COORDINATE * x.shape[1]:
        kinds.append(_match_covariance)
    for _ in range(_STEPS):
        if best.k <= good or kind == len(kinds):
            break
        moved = map_.forward(x)
        candidate = kinds[kind](moved, np.exp(best.log_weights)).after(map_)
        z = candidate.forward(x)
        log_weights = density.posterior(z) - density.left_out(z) + candidate.log_determinant - log_density
        smoothed = smoothed_log_weights(log_weights)
        if smoothed.k < best.k:
            map_, best, kind = candidate, smoothed, 0
        else:
            kind += 1
    return _estimate_from_both(x, log_density, density, map_)


def _estimate_from_both(x: Array, log_density: Array, density: Density, map_: Affine) -> Matched:
    """The estimate from the draws and the moved draws together."""
    moved, back = map_.forward(x), map_.backward(x)
    log_p = np.concatenate([log_density, density.posterior(moved)])
    log_p_back = np.concatenate([density.posterior(back), log_density])  # at T⁻¹z
    log_q = np.logaddexp(log_p, log_p_back - map_.log_determinant)
    log_likelihood = density.left_out(np.concatenate([x, moved]))
    smoothed = smoothed_log_weights(log_p - log_likelihood - log_q)
    elpd = _log_sum(smoothed.log_weights + log_likelihood) - _log_sum(smoothed.log_weights)
    return Matched(elpd, smoothed.k)


def _match_mean(x: Array, weights: Array) -> Affine:
    """The map that gives draws their weighted mean."""
    return Affine(np.ones(x.shape[1]), np.average(x, axis=0, weights=weights) - x.mean(axis=0))


def _match_sds(x: Array, weights: Array) -> Affine:
    """The map that gives draws their weighted mean and standard deviations."""
    mean, target = x.mean(axis=0), np.average(x, axis=0, weights=weights)
    A: Array = np.sqrt(np.average((x - target) ** 2, axis=0, weights=weights) / x.var(axis=0))
    return Affine(A, target - A * mean)


def _match_covariance(x: Array, weights: Array) -> Affine:
    """The map that gives draws their weighted mean and covariance: A = L′L⁻¹, Cholesky factors of both covariances."""
    mean, target = x.mean(axis=0), np.average(x, axis=0, weights=weights)
    try:
        L = np.linalg.cholesky(np.atleast_2d(np.cov(x, rowvar=False)))
        L_weighted = np.linalg.cholesky(np.atleast_2d(np.cov(x, rowvar=False, aweights=weights)))
    except np.linalg.LinAlgError:  # a few draws have all the weight
        return _match_sds(x, weights)
    A = np.asarray(np.linalg.solve(L.T, L_weighted.T).T, np.float64)
    return Affine(A, target - A @ mean)


def _as_matrix(A: Array) -> Array:
    return np.diag(A) if A.ndim == 1 else A


def _log_sum(x: Array) -> float:
    largest = float(x.max())
    return largest + math.log(float(np.exp(x - largest).sum()))
