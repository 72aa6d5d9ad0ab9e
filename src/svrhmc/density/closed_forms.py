"""Posteriors whose law is known: a Gaussian, or a Gaussian given log σ, whose own law is found on a line.

For y ~ N(aᵀβ, σ²) with rows of weight wᵢ, and priors β ~ N(m, Λ⁻¹) and τ = log σ ~ N(m_τ, 1/λ_τ) (or any that is
log-concave in τ, whose −log density then stands for ½λ_τ(τ − m_τ)² below), the rows enter
only by the sums G = Aᵀ diag(w) A, and for a fit β̂ with residuals e = y − Aβ̂, W = Σw, S = Σwe², g = Aᵀ(we).
With c = β − β̂ and r = e^{−2τ},

    −log π(c, τ) = Wτ + ½r(S − 2gᵀc + cᵀGc) + ½(c − m̂)ᵀΛ(c − m̂) + ½λ_τ(τ − m_τ)²,       m̂ = m − β̂.

Given τ this is a Gaussian in c. In coordinates b of c in which M = s⁻²G + Λ is the identity and s⁻²G = diag(ω),
Λ = diag(1 − ω) (s some scale near σ; ρ = s²r), with p = the image of s⁻²g and q that of Λm̂,

    b | τ ~ N(h/k, 1/k),   k = ωρ + 1 − ω,   h = ρp + q,
    −log π(τ) = Wτ + ½rS − ½Σ h²/k + ½Σ log k + ½λ_τ(τ − m_τ)² + const.

With u = p/ω, and R = S/s² − Σωu² what no coefficients explain, the sum of the terms that grow with ρ is, without a
difference of large numbers,

    ½rS − ½Σ h²/k = ½ρR + ½Σ (ρω((1 − ω)u² − 2uq) − q²)/k.

This matters if there are at least as many coefficients as rows: then R is 0, and log σ is determined by its prior
alone. (R is at least the rounding of y, and directions in which no row varies have exactly ω = 0 = p.)

So π(τ) can be computed for each τ. Its integrals are computed by the trapezoidal rule, which converges faster than any
power for a smooth density that vanishes at both ends; then E b = E h/k, cov b = E diag(1/k) + cov h/k. An independent
draw is τ by inversion, and b given τ. If there are many rows, all ω are close to 1, and the eigenvectors V that map c
to b are determined only up to a rotation by rounding errors. So the normal numbers ξ of a draw are rotated with them,
b = h/k + k^{−1/2}Vᵀξ: then c depends on V by V k^{−1/2}Vᵀ alone, which no rotation changes. With a conjugate prior,
c | τ ~ N(m̂, σ²Λ⁻¹) and σ² ~ inverse gamma(α, β₀), the same holds with Λ among the rows (G + Λ, g + Λm̂, S + m̂ᵀΛm̂,
W + dim), none in the prior, and 2ατ + β₀r for the prior of τ; then the marginal laws of coefficients are Student's with
2α + W degrees of freedom.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import EIGENVECTORS, INVERSE, LEAST_SQUARES, indivisible_work
from svrhmc.core.errors import requirement
from svrhmc.core.randomness import Stream
from svrhmc.families.base import Loss
from svrhmc.priors.terms import Heavy
from svrhmc.rows.base import Rows
from svrhmc.rows.forms import RowsForm

_POINTS = 2001  # of the line
_NEGLIGIBLE = 45.0  # below the largest log density: e⁻⁴⁵ is below all rounding
_LEAST = 0.03  # of the size of y: the smallest scale in which coefficients are measured
_ROUNDING = 1e-16  # of the size of y, below which no residual is known
_CANCELLED = 1e-10  # of the sum of squares, below which a difference is rounding
_WIDEST = 200  # doublings in search of that


class Law(ABC):
    """A posterior with known moments, from which independent draws can be made; `why` is the reason in words."""

    mean: Array
    covariance: Array
    why: ClassVar[str]
    gaussian: ClassVar[bool] = False  # whether every coordinate is

    @abstractmethod
    def draw(self, stream: Stream, count: int) -> Array:
        """(chains, count, dim) independent draws."""


@dataclass(frozen=True, eq=False)
class GaussianLaw(Law):
    """N(mean, covariance)."""

    mean: Array
    covariance: Array
    why = "the posterior is Gaussian, so its moments are exact and its draws independent"
    gaussian = True

    def draw(self, stream: Stream, count: int) -> Array:
        """mean + L ξ."""
        dim = len(self.mean)
        normals = stream.normals(0, count * dim).reshape(len(stream.chains), count, dim)
        drawn: Array = self.mean + normals @ self._root.T
        return drawn

    @cached_property
    def _root(self) -> Array:
        """L with LLᵀ the covariance."""
        return np.asarray(np.linalg.cholesky(self.covariance), np.float64)


@dataclass(frozen=True, eq=False)
class Sums:
    """The sums over the rows G, g, S and W about the fit β̂, and the prior of c, Λ and m̂.

    size: Σwy²; if that is 0, a typical value by the prior of the coefficients.
    """

    fit: Array
    gram: Array
    force: Array
    squares: float
    weight: float
    precision: Array
    mean: Array
    size: float


def sums_of(rows: Rows, y: Array, weights: Array | None, precision: Array, mean: Array) -> Sums:
    """In three passes: the Gram matrix, a fit, and its residuals; twice, so that the fit is near the posterior's."""
    w = np.ones(rows.n) if weights is None else weights
    total = float(w.sum())
    gram, fit = rows.gram(w, precise=True), np.zeros(rows.dim)
    e, scale = y, 0.0
    for _ in range(2):
        force = rows.combine((w * e)[None, :])[0]
        scale = max(float(w @ (e * e)) / total, 1e-300)
        matrix, right = gram / scale + np.diag(precision), force / scale + precision * (mean - fit)
        _require_finite(matrix, right)
        with indivisible_work(LEAST_SQUARES * rows.dim**3):
            fit = fit + np.linalg.lstsq(matrix, right, rcond=None)[0]
        e = y - rows.predict(fit[None, :])[0]
    size = float(w @ (y * y)) or total / (float(precision.max(initial=0.0)) or 1.0)
    squares = float(w @ (e * e))
    return Sums(fit, gram, rows.combine((w * e)[None, :])[0], squares, total, precision, mean - fit, size)


class ScaleMixture(Law):
    """The law of (β, log σ), Gaussian given log σ."""

    why = (
        "given log σ the posterior is Gaussian, and the law of log σ is found on a line, so that its moments are exact "
        "to rounding and its draws independent"
    )

    def __init__(self, sums: Sums, prior: Callable[[Array], Array]) -> None:
        """`prior` is −log of the prior density of τ."""
        from scipy.linalg import eigh, solve_triangular

        self._fit, self._sums, self._prior = sums.fit, sums, prior
        free = max(sums.weight, 1e-300)
        self._scale = max(np.sqrt(max(sums.squares, _LEAST**2 * sums.size) / free), 1e-150)
        inside = sums.gram / self._scale**2
        matrix = inside + np.diag(sums.precision)
        _require_finite(matrix, self._scale**2, sums.force / self._scale**2, sums.precision * sums.mean)
        try:
            with indivisible_work(INVERSE * len(matrix) ** 3):
                root = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            raise requirement(
                "prior_precision", "positive where columns of X depend on each other", "0 for some of them",
                "the posterior is improper",
            ) from None  # fmt: skip
        half = solve_triangular(root, inside, lower=True)
        middle = solve_triangular(root, half.T, lower=True)
        with indivisible_work(EIGENVECTORS * len(middle) ** 3):
            omega, vectors = eigh((middle + middle.T) / 2)
        with indivisible_work(EIGENVECTORS * len(middle) ** 3):
            determined = np.arange(len(omega)) >= _null_directions(sums.gram)
        self._omega = np.where(determined, np.clip(omega, 0.0, 1.0), 0.0)
        self._vectors = vectors
        self._basis = solve_triangular(root, vectors, lower=True, trans="T")  # c = basis · b
        self._pull = np.where(determined, self._basis.T @ sums.force / self._scale**2, 0.0)
        self._prior_pull = self._basis.T @ (sums.precision * sums.mean)
        self._fit_in_basis = np.divide(self._pull, self._omega, out=np.zeros_like(self._pull), where=self._omega > 0)
        total = sums.squares / self._scale**2
        _require_finite(self._pull, self._prior_pull**2, self._fit_in_basis**2)
        unexplained = total - float((self._omega * self._fit_in_basis**2).sum())
        rounding = (_ROUNDING / self._scale) ** 2 * sums.size
        self._unexplained = max(unexplained if unexplained > _CANCELLED * total else 0.0, rounding, 1e-300)
        self._integrate()

    def _log_density(self, tau: Array) -> Array:
        """log π(τ) but for a constant."""
        rho = self._scale**2 * np.exp(-2 * tau)
        k, _ = self._precision_and_pull(rho)
        u, q, omega = self._fit_in_basis, self._prior_pull, self._omega
        explained = ((rho[..., None] * (omega * ((1.0 - omega) * u**2 - 2 * u * q)) - q**2) / k).sum(axis=-1)
        rows = self._sums.weight * tau + 0.5 * (rho * self._unexplained + explained + np.log(k).sum(axis=-1))
        density: Array = -rows - self._prior(tau)
        return density

    def _precision_and_pull(self, rho: Array) -> tuple[Array, Array]:
        """Precision k and pull h of b, a row for each ρ."""
        column = rho[..., None]
        return self._omega * column + (1.0 - self._omega), column * self._pull + self._prior_pull

    def _integrate(self) -> None:
        """Compute the moments, and the distribution function of τ, on points that cover its density."""
        tau = self._range()
        log = self._log_density(tau)
        weights = np.exp(log - log.max())
        weights /= weights.sum()
        k, h = self._precision_and_pull(self._scale**2 * np.exp(-2 * tau))
        b = h / k
        centre = weights @ b
        deviation = b - centre
        inner = np.diag(weights @ (1 / k)) + (deviation * weights[:, None]).T @ deviation
        mean_tau = float(weights @ tau)
        cross = (deviation * weights[:, None]).T @ (tau - mean_tau)
        dim = len(self._fit)
        self.mean = np.append(self._fit + self._basis @ centre, mean_tau)
        self.covariance = np.empty((dim + 1, dim + 1))
        self.covariance[:dim, :dim] = self._basis @ inner @ self._basis.T
        self.covariance[:dim, dim] = self.covariance[dim, :dim] = self._basis @ cross
        self.covariance[dim, dim] = float(weights @ (tau - mean_tau) ** 2)
        _require_finite(self.mean, self.covariance)
        self._tau, self._cumulated = tau, self._distribution(tau, log)

    def _range(self) -> Array:
        """Evenly spaced from where the density begins to where it ends."""
        from scipy.optimize import minimize_scalar

        start = float(np.log(self._scale)) + 0.5 * np.log(self._unexplained / max(self._sums.weight, self._unexplained))
        step = 1.0 / np.sqrt(2 * max(self._sums.weight, 0.5))

        def fall(tau: float) -> float:
            return -float(self._log_density(np.array([tau]))[0])

        peak = float(minimize_scalar(fall, bracket=(start, start + step), options={"xtol": 1e-10}).x)
        top, ends = fall(peak), []
        for sign in (-1.0, 1.0):
            reach = step
            for _ in range(_WIDEST):
                if fall(peak + sign * reach) - top > _NEGLIGIBLE:
                    break
                reach *= 1.25
            else:
                raise requirement("shared_prior", "such that log σ has a proper posterior", "one with which it has not")
            ends.append(peak + sign * reach)
        return np.linspace(ends[0], ends[1], _POINTS)

    def _distribution(self, tau: Array, log: Array) -> Array:
        """P(τ ≤ each point), by Simpson's rule on every interval."""
        middle = self._log_density((tau[1:] + tau[:-1]) / 2)
        p, q = np.exp(log - log.max()), np.exp(middle - log.max())
        total = np.concatenate([[0.0], np.cumsum(p[:-1] + 4 * q + p[1:])])
        return np.asarray(total / total[-1], np.float64)

    def draw(self, stream: Stream, count: int) -> Array:
        """τ by inversion, b given τ."""
        from scipy.interpolate import PchipInterpolator
        from scipy.special import ndtr

        dim, chains = len(self._fit), len(stream.chains)
        normals = stream.normals(0, count * (dim + 1)).reshape(chains, count, dim + 1)
        rising = np.flatnonzero(np.diff(self._cumulated) > 1e-100)
        increasing = np.append(rising, rising[-1] + 1)
        tau = PchipInterpolator(self._cumulated[increasing], self._tau[increasing])(ndtr(normals[..., dim]))
        k, h = self._precision_and_pull(self._scale**2 * np.exp(-2 * tau))
        b = h / k + normals[..., :dim] @ self._vectors / np.sqrt(k)
        return np.concatenate([self._fit + b @ self._basis.T, tau[..., None]], axis=-1)


def _require_finite(*arrays: Array) -> None:
    """Refuse numbers that have overflowed."""
    if not all(np.isfinite(array).all() for array in arrays):
        why = "scale them to about 1"
        raise requirement("X, y and the prior", "of ordinary size beside each other", "sums beyond float64", why)


def _null_directions(gram: Array) -> int:
    """The number of directions in which no row varies: eigenvalues of the scaled Gram matrix that are rounding."""
    length = np.sqrt(np.diag(gram))
    length[length == 0] = 1.0
    eigenvalues = np.linalg.eigvalsh(gram / length[:, None] / length)
    rounding = 4 * len(eigenvalues) * np.finfo(np.float64).eps * max(eigenvalues[-1], 0.0)
    return int((eigenvalues <= rounding).sum())


def scale_mixture(form: RowsForm) -> ScaleMixture:
    """The law for rows with one predictor and log σ, the last coordinate, if `is_scale_mixture`."""
    dim, precision, mean = form.rows.columns, form.prior_precision, form.prior_mean

    def prior(tau: Array) -> Array:
        x = np.zeros((*np.shape(tau), dim + 1))
        x[..., dim] = tau
        value: Array = -form.log_prior(x)[..., dim]
        return value

    y = form.y if form.offset is None else form.y - form.offset
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sums = sums_of(form.rows.design_matrix, y, form.weights, precision[:dim], mean[:dim])
        return ScaleMixture(sums, prior)


def is_scale_mixture(loss: Loss, heavy: Heavy | None, dim: int) -> bool:
    """Whether coefficients are Gaussian given the shared parameter, the last coordinate, whose own prior has a log
    density that is concave.
    """
    if not loss.mixture or heavy is None:
        return bool(loss.mixture)
    return bool(heavy.columns.min() >= dim - loss.shared and heavy.bounds(dim)[0].min() >= 0)
