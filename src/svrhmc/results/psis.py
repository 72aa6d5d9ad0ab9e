"""Leave-one-out predictive densities from draws of the whole posterior, by Pareto-smoothed importance sampling.

With ℓₛ = log p(y | xₛ) of the rows left out, under draws xₛ of the posterior given all data, draws of the posterior
without it are those with the weights wₛ ∝ e^{−ℓₛ}, so that

    log p(y | the others) ≈ log Σₛ wₛe^{ℓₛ} − log Σₛ wₛ.

The largest weights decide the error. The M largest of S, M = min(S/5, 3√(S/r)) with r effective draws for each draw,
are replaced by the expected order statistics of a generalised Pareto law, q(p) = σ((1 − p)^{−k} − 1)/k above the next
weight, and none is left above the largest raw weight. Its shape k says how far to trust the result: weights have a
variance up to k = ½, and the smoothed sum is reliable up to k = min(1 − 1/log₁₀ S, 0.7).
(Vehtari, Simpson, Gelman, Yao & Gabry, Pareto smoothed importance sampling, Journal of Machine Learning Research 25,
2024.)

**The shape.** Of excesses x₁ ≤ … ≤ xₙ with b = −k/σ the likelihood is largest over k at k(b) = mean log(1 − bxᵢ), where
its logarithm is L(b) = n(log(−b/k) − k − 1). b is its mean under weights ∝ e^{L(b)} on a grid of m = 30 + ⌊√n⌋ points,

    bⱼ = 1/xₙ + (1 − √(m/(j − ½)))/(3 x_{n/4}),

and k(b) is drawn towards ½ as by ten more observations (Zhang & Stephens, Technometrics 51, 2009; appendix C of the
paper above).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array

_SMALLEST = math.log(np.finfo(np.float64).tiny)
_FEWEST = 5  # weights, below which no law is fitted
_PRIOR_SHAPE, _PRIOR_COUNT = 0.5, 10


class LeftOut(NamedTuple):
    """For each row or group left out: log p(y | the others), the shape k of the weights' tail, and log p(y | all)."""

    elpd: Array
    k: Array
    lpd: Array


class Smoothed(NamedTuple):
    """Smoothed log weights of draws, and the shape k of their tail."""

    log_weights: Array
    k: float


def good_shape(draws: int) -> float:
    """The shape k up to which a result from this number of draws is reliable.

    >>> round(good_shape(1000), 3), good_shape(100_000)
    (0.667, 0.7)
    """
    return min(1 - 1 / math.log10(max(draws, 11)), 0.7)


def leave_out(log_likelihood: Array, efficiency: float = 1.0) -> LeftOut:
    """Leave-one-out densities from log p(y | xₛ), (draws, count); efficiency: effective draws for each draw, r."""
    x = np.ascontiguousarray(-log_likelihood.T)
    draws = x.shape[1]
    largest = x.max(axis=1)
    x -= largest[:, None]
    size = min(math.ceil(min(draws / 5, 3 * math.sqrt(draws / efficiency))), draws - 1)
    x = np.partition(x, draws - size - 1, axis=1)
    tail = np.sort(x[:, draws - size :], axis=1)
    cut = np.maximum(x[:, draws - size - 1], _SMALLEST)
    lengths = (tail > cut[:, None]).sum(axis=1)
    smooth, k = tail.copy(), np.full(len(x), np.inf)
    for length in np.unique(lengths[lengths >= _FEWEST]):
        rows = np.flatnonzero(lengths == length)
        smooth[rows, size - length :], k[rows] = _smooth_tail(tail[rows, size - length :], cut[rows])
    k[x.min(axis=1) == 0] = 0.0  # all weights are equal
    body = x[:, : draws - size]
    weights = np.exp(body).sum(axis=1) + np.exp(smooth).sum(axis=1)
    density = draws - size + np.exp(smooth - tail).sum(axis=1)  # e^{x + ℓ} is e^{−largest} for every raw weight e^x
    lowest = body.min(axis=1)  # where ℓ is largest
    inverse = sum(np.exp(lowest[:, None] - part).sum(axis=1) for part in (body, tail))
    lpd = np.log(inverse) - lowest - largest - math.log(draws)
    return LeftOut(np.log(density) - np.log(weights) - largest, k, lpd)


def smoothed_log_weights(log_weights: Array) -> Smoothed:
    """Smooth the largest of the log weights of draws, up to a constant."""
    x, k = log_weights - log_weights.max(), math.inf
    draws = len(x)
    size = min(math.ceil(min(draws / 5, 3 * math.sqrt(draws))), draws - 1)
    order = np.argsort(x, kind="stable")
    cut = max(float(x[order[draws - size - 1]]), _SMALLEST)
    tail = order[draws - size :]
    tail = tail[x[tail] > cut]
    if len(tail) >= _FEWEST:
        smooth, shapes = _smooth_tail(x[tail][None], np.array([cut]))
        x[tail], k = smooth[0], float(shapes[0])
    return Smoothed(np.asarray(x), k if x.any() else 0.0)


def leave_out_blocks(blocks: Iterable[Array], efficiency: float) -> LeftOut:
    """Each row or group left out, by blocks of log likelihoods (draws, count): in one thread, while this one finds the
    likelihoods of the next block.
    """
    with ThreadPoolExecutor(1) as pool:
        parts: list[Future[LeftOut]] = []
        for log_likelihood in blocks:
            if parts:
                parts[-1].result()  # so that no more than two blocks are in memory
            parts.append(pool.submit(leave_out, log_likelihood, efficiency))
        results = [part.result() for part in parts]
    return LeftOut(*(np.concatenate(arrays) for arrays in zip(*results, strict=True)))


def _smooth_tail(tail: Array, cut: Array) -> tuple[Array, Array]:
    """Replace sorted log weights (rows, n) by expected order statistics of fitted laws; also the shapes of the laws."""
    n, edge = tail.shape[1], np.exp(cut)[:, None]
    k, sigma = fit_pareto(np.exp(tail) - edge)
    log_rest = np.log1p(-(np.arange(n) + 0.5) / n)  # log (1 − p)
    fitted = np.isfinite(k)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(k[:, None] == 0, -log_rest, np.expm1(-k[:, None] * log_rest) / k[:, None])
        smooth = np.minimum(np.log(sigma[:, None] * excess + edge), 0.0)
    return np.where(fitted[:, None], smooth, tail), np.where(fitted, k, np.inf)


def fit_pareto(x: Array) -> tuple[Array, Array]:
    """Shape k and scale σ of generalised Pareto laws, fitted to sorted excesses x (rows, n)."""
    n = x.shape[1]
    m = 30 + int(math.sqrt(n))
    steps = (1 - np.sqrt(m / (np.arange(m) + 0.5))) / 3
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        b = 1 / x[:, -1:] + steps / x[:, [int(n / 4 + 0.5) - 1]]
        k = np.stack([_shape(x, b[:, j]) for j in range(m)], axis=1)
        L = n * (np.log(-b / k) - k - 1)
        weights = np.exp(L - L.max(axis=1, keepdims=True))
        b_mean = (weights * b).sum(axis=1) / weights.sum(axis=1)
        k_mean = _shape(x, b_mean)
        sigma = -k_mean / b_mean
    return (n * k_mean + _PRIOR_COUNT * _PRIOR_SHAPE) / (n + _PRIOR_COUNT), sigma


def _shape(x: Array, b: Array) -> Array:
    """k(b)."""
    return np.asarray(np.log1p(-b[:, None] * x).mean(axis=1))
