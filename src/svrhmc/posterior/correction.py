"""Moments by control variates that every posterior has.

Under π, for every smooth f (integration by parts),

    E ∇f(x) = 0,            E (x − x̄)∇f(x)ᵀ = I.

With C the covariance of the draws and h = C∇f, each draw gives for each coordinate j two numbers of known mean,

    hⱼ/σⱼ                      whose mean is, to first order, the bias of the mean in units of σⱼ, and
    ½((xⱼ − x̄ⱼ)hⱼ/σⱼ² − 1)      whose mean is, to first order, the relative bias of the standard deviation

where π is near to Gaussian. ∇f may be an unbiased estimate whose noise is independent of the draw. As control variates
they free the moments of nearly all Monte Carlo error, and of most of the bias of a sampler that has one. A sampler that
leaves π invariant must give them the mean 0: where they have another, its chains have not settled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.diagnostics import ess, r_hat, standard_error
from svrhmc.posterior.certificate import Bias

_MANY = 20  # draws of each coordinate from which coefficients of all of them are found together


def stein_bias(x: Array, h: Array, variances: Array) -> Bias:
    """From draws (chain, draw, dim) and h = Σ̂∇f at them, with `variances` the diagonal of Σ̂.

    Σ̂ is the covariance of the draws where they are many; another matrix near it gives numbers of mean 0 under π too,
    which measure a bias in proportion only.
    """
    away = x - x.mean(axis=(0, 1))
    mean_terms, sd_terms = h / np.sqrt(variances), (away * h / variances - 1) / 2
    return Bias(
        mean_terms.mean(axis=(0, 1)),
        standard_error(mean_terms),
        sd_terms.mean(axis=(0, 1)),
        standard_error(sd_terms),
    )


@dataclass(frozen=True, eq=False)
class Correction:
    """Control variates with their coefficients: h = Σ̂∇f with Σ̂ fixed, E h = 0, E(xⱼ − x̄ⱼ)hⱼ = Σ̂ⱼⱼ = control.

    The mean is that of x − B h, the variance that of (xⱼ − x̄ⱼ)² − βⱼ((xⱼ − x̄ⱼ)hⱼ − Σ̂ⱼⱼ), x̄ the corrected mean. Under
    π both are right for every B and β, and nearly without noise where π is nearly Gaussian.
    """

    slopes: Array  # Bᵀ, or its diagonal
    mean: Array
    beta: Array
    variance: Array
    control: Array

    def means(self, x: Array, h: Array) -> Array:
        """x − B h, for draws (…, dim)."""
        return x - (h @ self.slopes if self.slopes.ndim == 2 else h * self.slopes)

    def squares(self, x: Array, h: Array) -> Array:
        """(x − x̄)² with its control taken off."""
        away = x - self.mean
        squares: Array = away**2 - self.beta * (away * h - self.control)
        return squares

    def terms(self, x: Array, h: Array) -> tuple[Array, Array]:
        """Those of the mean and of the variance."""
        return self.means(x, h), self.squares(x, h)


@dataclass(frozen=True, eq=False)
class Corrected:
    """Means and standard deviations freed of what Stein's identities explain, with their standard errors."""

    mean: Array
    sd: Array
    mean_error: Array
    sd_error: Array


def correction(x: Array, h: Array, control: Array) -> tuple[Correction, Corrected]:
    """Coefficients by least squares from draws (chain, draw, dim), and the moments with their errors.

    B = Cov(x, h)Cov(h, h)⁻¹ where draws are many (else its diagonal, one by one), in units of each coordinate.
    """
    chains, draws, dim = x.shape
    spread = np.sqrt(control)
    flat_x, flat_h = x.reshape(-1, dim), h.reshape(-1, dim)
    away_x, away_h = (flat_x - flat_x.mean(axis=0)) / spread, (flat_h - flat_h.mean(axis=0)) / spread
    if len(flat_x) >= _MANY * dim:
        slopes = np.linalg.lstsq(away_h.T @ away_h, away_h.T @ away_x, rcond=None)[0] * spread / spread[:, None]
    else:
        slopes = (away_h * away_x).sum(axis=0) / (away_h**2).sum(axis=0)
    found = Correction(slopes, np.zeros(dim), np.zeros(dim), np.zeros(dim), control)
    terms = found.means(x, h)
    mean = terms.mean(axis=(0, 1))
    away = flat_x - mean
    both = away * flat_h - control
    squares = away**2
    c = both - both.mean(axis=0)
    beta = (c * (squares - squares.mean(axis=0))).sum(axis=0) / np.maximum((c * c).sum(axis=0), 1e-300)
    found = Correction(slopes, mean, beta, np.zeros(dim), control)
    square_terms = found.squares(x, h)
    variance = np.maximum(square_terms.mean(axis=(0, 1)), 1e-300)
    sd = np.sqrt(variance)
    found = Correction(slopes, mean, beta, variance, control)
    return found, Corrected(mean, sd, standard_error(terms), standard_error(square_terms) / (2 * sd))


def effective_draws(x: Array) -> Array:
    """The fewer of the effective draws of x and of (x − x̄)², for each coordinate."""
    away = x - x.mean(axis=(0, 1))
    return np.minimum(ess(away), ess(away**2))


def tail_draws(x: Array) -> Array:
    """The fewer of the effective draws for the shares below the 5th and above the 95th percentile."""
    low, high = np.quantile(x, (0.05, 0.95), axis=(0, 1))
    return np.minimum(ess((x <= low).astype(np.float64)), ess((x >= high).astype(np.float64)))


def agreement(x: Array) -> Array:
    """R-hat of each coordinate: the larger of that of x and that of its distance from the median."""
    return np.maximum(r_hat(x), r_hat(np.abs(x - np.median(x, axis=(0, 1)))))


def chosen_states(x: Array, count: int) -> Array:
    """`count` states spread evenly over all chains and their later half: (count, dim)."""
    _, draws, dim = x.shape
    late = x[:, draws // 2 :].reshape(-1, dim)
    places: Indices = np.linspace(0, len(late) - 1, count).astype(np.int64)
    return late[places]
