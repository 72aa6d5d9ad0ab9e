"""Generalised linear models: a scalar loss, rows of data and a Gaussian prior.

    fᵢ(x) = n ℓ(aᵢᵀx, yᵢ) + ½ (x − p)ᵀΛ(x − p),      Λ = diag(prior_precision),      p = prior_mean,

so that f = (1/n) Σ fᵢ is minus the log posterior and π is the posterior. (The paper prints the posterior without the
1/n, and labels {0, 1} for a likelihood that needs {−1, 1}; both are corrected here.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, contract
from svrhmc.core.errors import nonnegative, real_array, requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.targets.base import Expansion, FiniteSum, Moments
from svrhmc.targets.losses import LogisticLoss, Loss, SquaredLoss
from svrhmc.targets.rows import Rows, make_rows

DENSE_DIM = 2000  # up to this many columns the dim × dim Hessian is formed; beyond it only its products are
_NEWTON_STEPS = 100
_TOLERANCE = 1e-9  # of the Newton decrement: the distance to the mode in posterior standard deviations
_ROUNDING = 1e-14  # of f: half the squared decrement below this is lost in it
_FLOOR = 1e-10  # of the squared decrement: below it a step that does not help is rounding
_TALL = 400  # from so many rows a column on, Newton starts at the mode of some of them:
_SHARE, _SOME, _MOST_ENTRIES = 8, 100, 1 << 26  # an eighth, but no more than so many a column or so many entries
_ROUGH = 0.3  # the tolerance there
_VANISHED = 1e-10  # of the curvature at 0: rare events keep 1e-4 of it and more


def logistic(
    X: Any,
    y: npt.ArrayLike,
    prior_precision: float | npt.ArrayLike = 1.0,
    prior_mean: float | npt.ArrayLike = 0.0,
) -> GeneralisedLinear:
    """Bayesian logistic regression: p(y = 1 | a, x) = 1/(1 + e^{−aᵀx}), x ~ N(prior_mean, 1/prior_precision).

    X: (n, dim), dense or scipy CSR, float32 or float64. y: n labels, {0, 1} or {−1, 1}. prior_precision (not below 0; 0
    is a flat prior) and prior_mean: one number, or one for each column.

    >>> target = logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> target.n, target.dim
    (3, 2)
    >>> target.mode().round(3)
    array([0.3  , 0.833])
    """
    rows = make_rows(X)
    return GeneralisedLinear(rows, _signs(y, rows.n), LogisticLoss(), prior_precision, prior_mean)


def linear(
    X: Any,
    y: npt.ArrayLike,
    noise_variance: float = 1.0,
    prior_precision: float | npt.ArrayLike = 1.0,
    prior_mean: float | npt.ArrayLike = 0.0,
) -> GeneralisedLinear:
    """Bayesian linear regression with known noise: y ~ N(aᵀx, noise_variance), x ~ N(prior_mean, 1/prior_precision).

    The posterior is Gaussian; `closed_form` has it.

    >>> target = linear([[1.0], [2.0]], [1.0, 3.0])
    >>> target.closed_form.mean.round(6), target.closed_form.covariance.round(6)
    (array([1.166667]), array([[0.166667]]))
    """
    rows = make_rows(X)
    targets = np.asarray(real_array("y", y, (rows.n,)), np.float64)
    return GeneralisedLinear(rows, targets, SquaredLoss(noise_variance), prior_precision, prior_mean)


@dataclass(frozen=True, eq=False)
class RowExpansion(Expansion):
    """H = Aᵀ diag(ℓ″) A, and nℓ″ of every row."""

    hessian: Array
    curvatures: Array
    rows: Rows

    def parts(self, away: Array, indices: Indices) -> Array:
        """nℓ″ aᵢᵀ·away."""
        return self.curvatures[indices] * self.rows.predict_at(away, indices)


class GeneralisedLinear(FiniteSum):
    """Loss × rows × Gaussian prior; made by `logistic` and `linear`."""

    scalar_parts = True

    def __init__(
        self,
        rows: Rows,
        y: Array,
        loss: Loss,
        prior_precision: float | npt.ArrayLike,
        prior_mean: float | npt.ArrayLike = 0.0,
    ) -> None:
        self.rows, self.y, self.loss = rows, y, loss
        self.n, self.dim = rows.n, rows.dim
        self.row_size = rows.dim
        self.prior_precision = _per_column("prior_precision", prior_precision, self.dim)
        nonnegative("prior_precision", float(self.prior_precision.min()))
        self.prior_mean = _per_column("prior_mean", prior_mean, self.dim)
        self.mode_passes = 0.0  # over the rows, to find the mode
        self._lengths: tuple[Any, Array] | None = None

    def __repr__(self) -> str:
        return f"GeneralisedLinear({self.loss}, n={self.n}, dim={self.dim})"

    @cached_property
    def smoothness(self) -> float:
        """λ_max(c AᵀA + Λ), c the loss's largest curvature: exact for a quadratic loss, else a bound."""
        return self._extreme_eigenvalue("LA", np.full(self.n, self.loss.curvature_bound))

    @cached_property
    def component_smoothness(self) -> float:
        """max_i n c |aᵢ|² + max Λ."""
        largest = self.rows.squared_norms().max()
        return float(self.n * self.loss.curvature_bound * largest + self.prior_precision.max())

    @cached_property
    def convexity(self) -> float:
        """λ_min of the Hessian for a quadratic loss, else what the prior alone guarantees."""
        weakest = float(self.prior_precision.min())
        if not self.loss.quadratic or (self.n < self.dim and weakest == self.prior_precision.max()):
            return weakest
        return max(weakest, self._extreme_eigenvalue("SA", np.full(self.n, self.loss.curvature_bound)))

    def curvature_range(self, bound: bool) -> tuple[float, float]:
        """Exact for a quadratic loss; else the prior and the smoothness as bounds, and the largest at the mode."""
        if bound or self.loss.quadratic:
            return self.convexity, self.smoothness
        return self.convexity, self._modal_curvature

    @cached_property
    def closed_form(self) -> Moments | None:
        """The Gaussian posterior of a quadratic loss."""
        if not self.loss.quadratic:
            return None
        from scipy.linalg import cho_solve

        factor = self._factor(np.zeros(self.dim))
        covariance = cho_solve(factor, np.eye(self.dim))
        return Moments(cho_solve(factor, -self.gradient(np.zeros(self.dim))), (covariance + covariance.T) / 2)

    def laplace(self) -> Moments:
        """The Gaussian at the mode with the inverse Hessian there; exact for a quadratic loss."""
        if self.closed_form is not None:
            return self.closed_form
        covariance = np.linalg.inv(self.modal_hessian)
        return Moments(self.mode(), (covariance + covariance.T) / 2)

    def hessian(self, x: npt.ArrayLike) -> Array:
        """∇²f(x) = Aᵀ diag(ℓ″) A + Λ, dense."""
        return self.rows.gram(self.row_curvatures(x)) + np.diag(self.prior_precision)

    def expansion(self, x: Array) -> RowExpansion:
        """Hᵢ = n ℓ″ aᵢaᵢᵀ at x, without the prior, which is never subsampled."""
        curvature = self.row_curvatures(x)
        return RowExpansion(self.rows.gram(curvature), self.n * curvature, self.rows)

    def importance(self) -> Array:
        """|aᵢ|, mixed with a tenth of even weights: then the largest component counts no more than their mean."""
        return mixed(np.sqrt(self.rows.squared_norms()))

    def hessian_product(self, x: npt.ArrayLike, direction: Array) -> Array:
        """∇²f(x)·direction in two passes over the rows, with no dim × dim matrix."""
        return self.curved_product(self.row_curvatures(x), direction)

    def row_lengths(self, whitening: Any) -> Array:
        """|Wᵀaᵢ| of every row, found once for a whitening."""
        if self._lengths is None or self._lengths[0] is not whitening:
            self._lengths = (whitening, self.rows.lengths(whitening.norms))
        return self._lengths[1]

    def mode(self) -> Array:
        """Newton's method, found once: on the Hessian up to 2000 columns, by conjugate gradients beyond.

        Where rows are many (n > 400·dim) it starts from the mode of an eighth of them, found in the same way, and with
        their Hessian. A Hessian serves as long as each step with it leaves less than a twentieth of the Newton
        decrement √(∇fᵀH⁻¹∇f), the distance to go in posterior standard deviations. The end is a decrement below 1e-9,
        or one that rounding no longer lets fall.
        """
        return self._mode.copy()

    @cached_property
    def _mode(self) -> Array:
        if self.loss.quadratic and self.dim <= DENSE_DIM:
            assert self.closed_form is not None
            return self.closed_form.mean
        return self._find_mode(_TOLERANCE)

    def _find_mode(self, tolerance: float) -> Array:
        start, hessian = np.zeros(self.dim), None
        if self.n > _TALL * self.dim and (guess := self._mode_of_some()) is not None:
            if self.potential(guess[0]) < self.potential(start):
                start, hessian = guess
            self.mode_passes += 2
        if self.dim > DENSE_DIM:
            return self._newton_products(start, tolerance)
        return self._newton(start, hessian, tolerance)

    def _mode_of_some(self) -> tuple[Array, Array | None] | None:
        """Mode and Hessian from some of the rows, with as much less of the prior; None where they have no mode."""
        count = min(self.n // _SHARE, max(_SOME * self.dim, _MOST_ENTRIES // self.dim))
        chosen = Stream(0, np.arange(1)).indices(0, count, self.n, True, Purpose.DATA)[0]
        chosen.sort()
        share = count / self.n
        precision = share * self.prior_precision
        part = GeneralisedLinear(self.rows.choose(chosen), self.y[chosen], self.loss, precision, self.prior_mean)
        try:
            mode = part._find_mode(_ROUGH)
            hessian = part.hessian(mode) / share if self.dim <= DENSE_DIM else None
        except (ValueError, RuntimeError):
            return None
        self.mode_passes += part.mode_passes * share
        return mode, hessian

    def _newton(self, x: Array, hessian: Array | None, tolerance: float) -> Array:
        """Each step must lessen ∇fᵀH⁻¹∇f, for the H it was made with: then no value of f is needed."""
        from scipy.linalg import cho_factor, cho_solve

        fresh = hessian is None
        factor = self._factor(x) if hessian is None else cho_factor(hessian)
        gradient = self.gradient(x)
        self.mode_passes += 1 + fresh
        for _ in range(_NEWTON_STEPS):
            step = cho_solve(factor, gradient)
            size = float(gradient @ step)
            if fresh:
                self._require_curvature(x, step)
            if size <= tolerance**2:
                return np.asarray(x - step, np.float64)
            scale = 1.0
            while True:
                there = self.gradient(x - scale * step)
                self.mode_passes += 1
                left = float(there @ cho_solve(factor, there))
                if left < (1 - 1e-4 * scale) * size or not fresh:
                    break
                if size < _FLOOR:  # rounding, and nothing else, is left
                    return x
                scale /= 2
            if left < (1 - 1e-4 * scale) * size:
                x, gradient = x - scale * step, there
                fresh = left > 0.0025 * size
            else:
                fresh = True
            if fresh:
                factor = self._factor(x)
                self.mode_passes += 1
        raise self._no_mode(size)

    def _newton_products(self, x: Array, tolerance: float) -> Array:
        """With conjugate gradients for each step, and halving until f falls."""
        value = self.potential(x)
        for _ in range(_NEWTON_STEPS):
            gradient = self.gradient(x)
            step = self._newton_step(x, gradient)
            decrement = float(gradient @ step)
            self._require_curvature(x, step)
            self.mode_passes += 2
            if decrement <= tolerance**2 or decrement <= _ROUNDING * abs(value):
                return x - step
            scale = 1.0
            while (trial := self.potential(x - scale * step)) > value - 1e-4 * scale * decrement:
                scale /= 2
                if scale < 1e-10:  # the potential is flat to rounding
                    return x
            x, value = x - scale * step, trial
        raise self._no_mode(decrement)

    def _no_mode(self, size: float) -> RuntimeError:
        return RuntimeError(f"no mode within {_NEWTON_STEPS} Newton steps: {size**0.5:.2g} sd are left to go.")

    @cached_property
    def modal_hessian(self) -> Array:
        """∇²f at the mode, dense; found once."""
        return self.hessian(self._mode)

    def potentials(self, x: Array) -> Array:
        """Σᵢ ℓ(aᵢᵀx, yᵢ) + ½ (x − p)ᵀΛ(x − p)."""
        away = x - self.prior_mean
        prior = 0.5 * contract("cd,cd,d->c", away, away, self.prior_precision)
        total: Array = self.loss.value(self.rows.predict(x), self.y).sum(axis=1) + prior
        return total

    def gradients(self, x: Array) -> Array:
        """Aᵀℓ′ + Λ(x − p)."""
        if isinstance(self.loss, LogisticLoss):
            combined = self.rows.logistic_slopes_combined(x, self.y)
            if combined is not None:
                return combined + self.prior_gradient(x)
        return self.assemble(self.parts(x, None), None) + self.prior_gradient(x)

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """nℓ′(aᵢᵀx, yᵢ): one number a row."""
        if indices is None:
            return self.n * self.loss.slope(self.rows.predict(x), self.y)
        return self.n * self.loss.slope(self.rows.predict_at(x, indices), self.y[indices])

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """(1/B) Σ_b part_b a_{i_b}."""
        if indices is None:
            return self.rows.combine(parts / self.n)
        return self.rows.combine_at(parts / indices.shape[1], indices)

    def prior_gradient(self, x: Array) -> Array:
        """Λ(x − p)."""
        return (x - self.prior_mean) * self.prior_precision

    def _require_posterior(self) -> None:
        """A flat prior on separable data, or on columns that depend on each other, has no posterior."""
        if self.prior_precision.min() > 0:
            return
        if self.dim <= DENSE_DIM:
            spectrum = np.linalg.eigvalsh(self.rows.gram(np.ones(self.n)) + np.diag(self.prior_precision))
            if spectrum[0] <= self.dim * np.finfo(np.float64).eps * spectrum[-1]:
                raise self._improper()
        self.mode()  # says so where the data are separable

    def _with_quadratic(self, strength: float, centre: Array) -> GeneralisedLinear:
        """The prior and the quadratic together are one Gaussian."""
        precision = self.prior_precision + strength
        mean = (self.prior_precision * self.prior_mean + strength * centre) / precision
        return GeneralisedLinear(self.rows, self.y, self.loss, precision, mean)

    def _require_curvature(self, x: Array, step: Array) -> None:
        """Newton's steps on separable data never shrink, while the curvature along them falls like e^{−|t|}."""
        flat = np.where(self.prior_precision == 0, step, 0.0)
        if not flat.any():
            return
        here, there = (float(flat @ self.hessian_product(at, flat)) for at in (x, np.zeros(self.dim)))
        if here < _VANISHED * there:
            raise ValueError(
                "the posterior has no mode: the data are separable and the prior is flat along a direction that "
                "separates them; use a positive prior_precision."
            )

    def _newton_step(self, x: Array, gradient: Array) -> Array:
        from scipy.sparse.linalg import cg

        product = self._operator(self.row_curvatures(x))
        step, _ = cg(product, gradient, rtol=1e-8, maxiter=10 * self.dim)  # cut short, it is still a way down
        return np.asarray(step, np.float64)

    def _factor(self, x: Array) -> Any:
        """Cholesky factor of the Hessian, for scipy's cho_solve; refused where the posterior is improper."""
        from scipy.linalg import cho_factor

        try:
            return cho_factor(self.hessian(x))
        except np.linalg.LinAlgError:
            raise self._improper() from None

    def _improper(self) -> ValueError:
        return requirement(
            "prior_precision",
            "positive where the columns of X are linearly dependent or the data are separable",
            f"a smallest value of {self.prior_precision.min():g}",
            "the posterior is improper",
        )

    def row_curvatures(self, x: npt.ArrayLike) -> Array:
        """ℓ″ of every row at x."""
        return self.loss.curvature(self.rows.predict(self._point(x))[0], self.y)

    def _operator(self, curvature: Array) -> Any:
        """Aᵀ diag(curvature) A + Λ as scipy's linear operator."""
        from scipy.sparse.linalg import LinearOperator

        shape = (self.dim, self.dim)
        return LinearOperator(shape, matvec=lambda p: self.curved_product(curvature, p), dtype=np.float64)

    def curved_product(self, curvature: Array, direction: Array) -> Array:
        """(Aᵀ diag(curvature) A + Λ)·direction."""
        row = np.asarray(direction, np.float64).reshape(1, -1)
        product: Array = (self.rows.combine(self.rows.predict(row) * curvature) + row * self.prior_precision)[0]
        return product

    @cached_property
    def _modal_curvature(self) -> float:
        return self._extreme_eigenvalue("LA", self.row_curvatures(self._mode))

    def _extreme_eigenvalue(self, which: str, curvature: Array) -> float:
        """λ_max ("LA") or λ_min ("SA") of Aᵀ diag(curvature) A + Λ: dense up to DENSE_DIM columns, Lanczos beyond."""
        if self.dim <= DENSE_DIM:
            spectrum = np.linalg.eigvalsh(self.rows.gram(curvature) + np.diag(self.prior_precision))
            return float(spectrum[-1 if which == "LA" else 0])
        from scipy.sparse.linalg import eigsh

        start = np.ones(self.dim)  # fixed, so that the answer is the same every time
        return float(eigsh(self._operator(curvature), k=1, which=which, v0=start, return_eigenvectors=False)[0])


def mixed(weights: Array) -> Array:
    """Probabilities in proportion to the weights, with a tenth shared evenly, so that none is divided by nearly 0."""
    total = float(weights.sum())
    even = np.full(len(weights), 1 / len(weights))
    return 0.9 * weights / total + 0.1 * even if total > 0 else even


def _per_column(name: str, value: float | npt.ArrayLike, dim: int) -> Array:
    """One finite number for each column."""
    array = real_array(name, np.atleast_1d(np.asarray(value)), (1 if np.ndim(value) == 0 else dim,))
    return np.array(np.broadcast_to(array, dim), np.float64)


def _signs(y: npt.ArrayLike, n: int) -> Array:
    labels = np.asarray(real_array("y", y, (n,)), np.float64)
    found = np.unique(labels)
    if not (np.isin(found, (0, 1)).all() or np.isin(found, (-1, 1)).all()):
        shown = ", ".join(f"{value:g}" for value in found[:4]) + (", …" if len(found) > 4 else "")
        raise requirement("y", "labels in {0, 1} or {-1, 1}", f"the values {shown}")
    return np.where(labels > 0, 1.0, -1.0)
