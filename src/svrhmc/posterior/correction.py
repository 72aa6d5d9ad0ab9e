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

from dataclasses import dataclass, replace

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.diagnostics import ess, r_hat, standard_error
from svrhmc.posterior.certificate import Bias

_TAIL = 3.0  # of the factor for skewed terms; found on three skewed posteriors, 60 to 200 seeds each
_RAW = 0.08  # of the error of raw moments, for a skewness of 1; found on two skewed posteriors, 60 seeds each
_LEAST = 0.01  # of the raw variance that a corrected one has
_PARTS = 4  # of a run, each with coefficients from the others, for the errors
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
    """Control variates with their coefficients: h = Σ̂∇f with Σ̂ fixed, whose diagonal is v.

    For every smooth φ, E φ hⱼ = E (Σ̂∇φ)ⱼ. So E h = 0, and with a = xⱼ − cⱼ for any fixed c, E a hⱼ = vⱼ and
    E a²hⱼ = 2 E a vⱼ. With c first the mean of x − B h, then x̄, the mean and the variance are those of

        x − B h − α₂(a hⱼ − vⱼ) − α₃(a²hⱼ − 2a vⱼ)        and        a² − β₁hⱼ − β₂(a hⱼ − vⱼ) − β₃(a²hⱼ − 2a vⱼ).

    Under π both are right for all coefficients, and nearly without noise where π is nearly Gaussian; the terms with a
    take off most of what is left where it is skewed.
    """

    slopes: Array  # Bᵀ, or its diagonal
    control: Array  # v
    centre: Array  # c of the mean
    alpha: Array  # (2, dim)
    mean: Array
    beta: Array  # (3, dim)
    variance: Array

    def means(self, x: Array, h: Array) -> Array:
        """x with its controls taken off, for draws (…, dim)."""
        terms: Array = x - (h @ self.slopes if self.slopes.ndim == 2 else h * self.slopes)
        for alpha, each in zip(self.alpha, self.controls(x - self.centre, h)[1:], strict=True):
            terms = terms - alpha * each
        return terms

    def squares(self, x: Array, h: Array) -> Array:
        """(x − x̄)² with its controls taken off."""
        a = x - self.mean
        squares: Array = a**2
        for beta, each in zip(self.beta, self.controls(a, h), strict=True):
            squares = squares - beta * each
        return squares

    def controls(self, a: Array, h: Array) -> tuple[Array, Array, Array]:
        """h, a h − v and a²h − 2a v: of mean 0 under π."""
        return h, a * h - self.control, a**2 * h - 2 * a * self.control

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
    dim = x.shape[2]
    spread = np.sqrt(control)
    flat_x, flat_h = x.reshape(-1, dim), h.reshape(-1, dim)
    away_x, away_h = (flat_x - flat_x.mean(axis=0)) / spread, (flat_h - flat_h.mean(axis=0)) / spread
    if len(flat_x) >= _MANY * dim:
        slopes = np.linalg.lstsq(away_h.T @ away_h, away_h.T @ away_x, rcond=None)[0] * spread / spread[:, None]
    else:
        slopes = (away_h * away_x).sum(axis=0) / (away_h**2).sum(axis=0)
    none = np.zeros(dim)
    found = Correction(slopes, control, none, np.zeros((2, dim)), none, np.zeros((3, dim)), none)
    first = found.means(x, h).reshape(-1, dim)
    found = replace(found, centre=first.mean(axis=0))
    found = replace(found, alpha=_coefficients(found.controls(flat_x - found.centre, flat_h)[1:], first))
    terms = found.means(x, h)
    found = replace(found, mean=terms.mean(axis=(0, 1)))
    away = flat_x - found.mean
    found = replace(found, beta=_coefficients(found.controls(away, flat_h), away**2))
    raw = (away**2).mean(axis=0)
    variance = found.squares(x, h).mean(axis=(0, 1))
    some = variance > _LEAST * raw  # few draws can leave less than nothing
    found = replace(found, beta=np.where(some, found.beta, 0.0), variance=np.where(some, variance, raw))
    return found, Corrected(found.mean, np.sqrt(found.variance), *_errors(found, x, h))


def _errors(found: Correction, x: Array, h: Array) -> tuple[Array, Array]:
    """Of the corrected means and sds.

    Coefficients B for dim coordinates from N effective draws make residuals smaller, and the mean's error larger, by
    dim/2N each.
    And what is left by the correction of a skewed coordinate hangs on few visits of its tail: a part of the error of
    the raw moments, in proportion to the skewness beyond chance, is added.
    """
    dim, terms = x.shape[2], _apart(found, x, h)
    fitted = 1 + dim / ess(x) if found.slopes.ndim == 2 else 1.0
    sd, away = np.sqrt(found.variance), x - x.mean(axis=(0, 1))
    skewness = np.abs((away**3).mean(axis=(0, 1))) / np.maximum(away.std(axis=(0, 1)) ** 3, 1e-300)
    part = _RAW * np.maximum(0.0, skewness - 3 * np.sqrt(6 / ess(away)))
    mean_error = np.hypot(fitted * error_of_mean(terms[0]), part * error_of_mean(away))
    sd_error = np.hypot(error_of_mean(terms[1]), part * error_of_mean(away**2)) / (2 * sd)
    return mean_error, sd_error


def _apart(found: Correction, x: Array, h: Array) -> tuple[Array, Array]:
    """The terms with coefficients from the other parts of the run: those from a visit of a tail explain that visit too
    well.
    """
    chains, draws, dim = x.shape
    parts = np.arange(chains * draws).reshape(chains, draws) * _PARTS // (chains * draws)
    means, squares = np.empty_like(x), np.empty_like(x)
    for part in range(_PARTS):
        here = parts == part
        others_x, others_h = x[~here], h[~here]
        flat = replace(found, alpha=np.zeros((2, dim)))
        alpha = _coefficients(found.controls(others_x - found.centre, others_h)[1:], flat.means(others_x, others_h))
        away = others_x - found.mean
        beta = _coefficients(found.controls(away, others_h), away**2)
        other = replace(found, alpha=alpha, beta=np.where(found.beta == 0.0, 0.0, beta))
        means[here], squares[here] = other.terms(x[here], h[here])
    return means, squares


def _coefficients(controls: tuple[Array, ...], wanted: Array) -> Array:
    """Of the least squares of what is wanted on the controls, for each coordinate, each control in units of its
    spread.
    """
    away = [each - each.mean(axis=0) for each in controls]
    units = [np.sqrt(np.maximum((each**2).mean(axis=0), 1e-300)) for each in away]
    F = np.stack([each / unit for each, unit in zip(away, units, strict=True)])  # (control, draw, coordinate)
    gram = np.einsum("anj,bnj->jab", F, F) / len(wanted)
    right = np.einsum("anj,nj->ja", F, wanted - wanted.mean(axis=0)) / len(wanted)
    beta = np.stack([np.linalg.lstsq(g, r, rcond=1e-10)[0] for g, r in zip(gram, right, strict=True)], axis=1)
    return np.asarray(beta / np.stack(units), np.float64)


def error_of_mean(terms: Array) -> Array:
    """The standard error of the mean of each quantity, larger where few visits of a tail make it.

    Where the terms are skewed and correlated, a run that has seen little of the tail has too small a mean and too
    small an error: with g their skewness and τ draws to an effective one, the error is taken 1 + 3|g|(1 − 1/τ)/√ess
    times as large. For independent draws the factor is 1.
    """
    effective = ess(terms)
    flat = terms.reshape(-1, terms.shape[2])
    away = flat - flat.mean(axis=0)
    spread = away.std(axis=0)
    skewness = np.abs((away**3).mean(axis=0)) / np.maximum(spread**3, 1e-300)
    sticky = np.maximum(0.0, 1 - effective / len(flat))
    return np.asarray(spread / np.sqrt(effective) * (1 + _TAIL * skewness * sticky / np.sqrt(effective)), np.float64)


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
