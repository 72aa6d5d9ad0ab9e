"""Regressions whose coefficients have a joint shrinking prior (`svrhmc.priors.shrinkage`).

The unknowns are (β, shared parameters, local scales, shared scales), in this order. Given the scales β has a Gaussian
prior N(m, D), and rows that are Gaussian given their noise, or given Pólya–Gamma variables ω, a Gaussian likelihood

    zᵢ ~ N(aᵢᵀβ, 1/ωᵢ),        ωᵢ = wᵢ/σ², zᵢ = yᵢ − oᵢ,        or        ωᵢ ~ PG(wᵢ, tᵢ), zᵢ = κᵢ/ωᵢ − oᵢ,

κᵢ = wᵢ(ȳᵢ − ½) (Polson, Scott & Windle, Journal of the American Statistical Association 108, 2013). So

    β | … ~ N(A⁻¹(Xᵀωz + D⁻¹m), A⁻¹),    A = Xᵀ diag(ω) X + D⁻¹,                            where p ≤ n, and
    β = u + DXᵀ S⁻¹(z − Xu − ω^{−½}δ),   S = XDXᵀ + diag(1/ω),    u ~ N(m, D), δ ~ N(0, I),   where p > n

(Bhattacharya, Chakraborty & Mallick, Biometrika 103, 2016): one factor of the smaller side. The same holds of some
coefficients given the others, with what is left of z.

Gaussian rows of one noise are taken as √w(a, y − o), and where they are more than the coefficients, as the p rows of
the triangle R of √wX = QR with Qᵀ√wz, beside what of z no coefficient explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, NoReturn

import numpy as np

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.families import FAMILIES
from svrhmc.priors.local_scales import Scales
from svrhmc.priors.shrinkage import Shrinking
from svrhmc.priors.terms import Heavy

_MOST_ENTRIES = 1 << 28  # of X, which is held dense
_MOST_TRIALS = 1_000_000


class SampledRows(NamedTuple):
    """Rows for the sampler: columns (coefficients, rows); for Gaussian rows z and its unexplained sum of squares."""

    columns: Array
    z: Array
    unexplained: float


class ShrunkModel(FiniteSum):
    """Made by `svrhmc.targets.glm(…, prior=Horseshoe(…))`, or with another prior that is `Shrinking`."""

    scalar_parts = True
    searched_by = "shrinkage"
    heavy: Heavy | None = None  # of single coordinates
    covariance_names: tuple[str, ...] = ()
    has_potential = False
    classes: Values | None = None

    def __init__(self, conditional: GeneralisedLinear, prior: Shrinking, columns: Sequence[int]) -> None:
        """conditional: the model whose shrunk coefficients, in these columns, have a flat prior."""
        self.conditional, self.prior, self.loss = conditional, prior, conditional.loss
        self.shrunk: Indices = np.array(columns, np.int64)
        self.is_shrunk = np.isin(np.arange(conditional.rows.columns), self.shrunk)
        self.n, self.left_out = conditional.n, conditional.left_out
        self.width, self.reported_dim = conditional.rows.columns, conditional.dim
        self.require_sampled()
        self.total = self.n if conditional.weights is None else float(conditional.weights.sum())
        self.scales = prior.scales(len(columns), self.total)
        self.dim = self.reported_dim + len(columns) + self.scales.shared_count
        self.row_size = conditional.rows.columns

    def __repr__(self) -> str:
        return f"ShrunkModel({self.loss}, n={self.n}, coefficients={self.reported_dim}, {self.prior!r})"

    def require_sampled(self) -> None:
        """Refuse models for which there is no sampler."""
        conditional_law, model, kind = self.loss.gaussian_given, self.conditional, f"a {type(self.prior).__name__}"
        if not conditional_law:
            able = ", ".join(repr(name) for name, make in FAMILIES.items() if make().gaussian_given)
            link = f" with the link {self.loss.link!r}" if self.loss.link else ""
            why = f"its sampler is one for {able}; Laplace, StudentT and LearntScale are priors for every family"
            allowed = f"one of single coefficients for {self.loss.name!r}{link}"
            raise requirement("prior", allowed, repr(self.prior), why)
        other_columns = np.delete(np.arange(self.reported_dim), self.shrunk)
        width = self.width
        heavy = [] if model.heavy is None else [j for j in model.heavy.columns if j < width]
        flat = [j for j in other_columns if j < width and model.prior_precision[j] == 0 and j not in heavy]
        if heavy or flat:
            raise requirement(f"the priors beside {kind}", "Normal", "a flat one" if flat else "another")
        if self.loss.shared and model.heavy is None and model.prior_precision[-1] == 0:
            raise requirement(f"the prior of log sigma beside {kind}", "a proper one", "Flat()")
        if self.n * width > _MOST_ENTRIES:
            raise requirement("X", f"of at most {_MOST_ENTRIES:,} entries under {kind}", f"{self.n * width:,}")
        counts = model.weights
        if conditional_law == "polya-gamma" and counts is not None:
            if (counts != np.round(counts)).any():
                why = "Pólya–Gamma variables are drawn one for each observation"
                raise requirement("weights", f"whole numbers under {kind}", "others", why)
            if counts.sum() > _MOST_TRIALS:
                allowed = f"at most {_MOST_TRIALS:,} in all under {kind}"
                raise requirement("weights and trials", allowed, f"{counts.sum():,.0f}")

    def identity(self) -> dict[str, object]:
        """The data and the model."""
        shrinkage = [repr(self.prior), *map(int, self.shrunk)]
        return {**self.conditional.identity(), **self._kind(), "shrinkage": shrinkage}

    def shown(self) -> GeneralisedLinear:
        """The model given the scales, with a flat prior of the shrunk coefficients, whose rows can be examined."""
        return self.conditional

    # What the sampler asks for.

    @cached_property
    def sampled_rows(self) -> SampledRows:
        """All of them, dense."""
        data = self.conditional.rows.design_matrix
        X = np.asarray(data.dense_matrix(np.arange(self.n)), np.float64)
        if self.loss.gaussian_given != "noise":
            return SampledRows(np.ascontiguousarray(X.T), np.zeros(self.n), 0.0)
        root = np.sqrt(self.counts)
        X, z = X * root[:, None], root * (self.conditional.y - self.offset)
        if self.n <= self.width:
            return SampledRows(np.ascontiguousarray(X.T), z, 0.0)
        triangle: Array = np.asarray(np.linalg.qr(np.concatenate([X, z[:, None]], axis=1), mode="r"))
        return SampledRows(np.ascontiguousarray(triangle[:-1, :-1].T), triangle[:-1, -1], float(triangle[-1, -1] ** 2))

    @cached_property
    def lengths(self) -> Array:
        """|xⱼ| of the columns that are shrunk, 1 where a column is 0."""
        lengths = np.sqrt((self.sampled_rows.columns[self.shrunk] ** 2).sum(axis=1))
        return np.where(lengths > 0, lengths, 1.0)

    @cached_property
    def offset(self) -> Array:
        """oᵢ of every row, 0 if none is given."""
        offset = self.conditional.offset
        return np.zeros(self.n) if offset is None else np.asarray(offset, np.float64)

    @cached_property
    def counts(self) -> Array:
        """wᵢ of every row, 1 if none is given."""
        weights = self.conditional.weights
        return np.ones(self.n) if weights is None else np.asarray(weights, np.float64)

    @cached_property
    def kappa(self) -> Array:
        """w(ȳ − ½), minus the slope of the loss at 0."""
        return np.asarray(-self.counts * self.loss.slope(np.zeros(self.n), self.conditional.y))

    @cached_property
    def pseudo_noise(self) -> float:
        """σ̃ of events: 1/√(p̄(1 − p̄)), with half an event more of each kind."""
        share = (float(self.counts @ self.share) + 0.5) / (self.total + 1.0)
        return 1 / math.sqrt(share * (1 - share))

    @property
    def share(self) -> Array:
        """ȳᵢ, the share of events, of every row."""
        return self.kappa / self.counts + 0.5

    def log_noise(self, shared: Array) -> float:
        """log σ̃ of a state."""
        if self.loss.gaussian_given == "polya-gamma":
            return math.log(self.scales.logistic_noise or self.pseudo_noise)
        known_noise = self.loss.known_noise
        return float(shared[0]) if known_noise is None else math.log(known_noise)

    def split(self, x: Array) -> tuple[Array, Array, Scales]:
        """β, shared parameters and scales of one state."""
        end, inner = self.reported_dim, self.reported_dim + len(self.shrunk)
        return x[: self.width].copy(), x[self.width : end].copy(), Scales(x[end:inner].copy(), x[inner:].copy())

    @staticmethod
    def joined(beta: Array, shared: Array, scales: Scales) -> Array:
        """The reverse of `split`."""
        return np.concatenate([beta, shared, scales.local, scales.shared])

    def prior_of(self, scales: Scales, shared: Array) -> tuple[Array, Array]:
        """m and D of all coefficients."""
        with np.errstate(divide="ignore"):
            variance = 1 / self.conditional.prior_precision[: self.width]
        variance[self.shrunk] = 1 / self.scales.precisions(scales, self.log_noise(shared))
        return self.conditional.prior_mean[: self.width], variance

    def log_shared(self, shared: Array) -> float:
        """log p of the shared parameters."""
        model, place = self.conditional, slice(self.width, self.reported_dim)
        deviation = shared - model.prior_mean[place]
        value = -0.5 * float(model.prior_precision[place] @ deviation**2)
        if model.heavy is not None:
            state = np.zeros(self.reported_dim)
            state[place] = shared
            value -= float(model.heavy.value(state))
        return value

    def log_scales(self, beta: Array, shared: Array, scales: Scales) -> float:
        """log p(β, scales | σ) of the coefficients that are shrunk."""
        log_noise = self.log_noise(shared)
        coefficients, precision = beta[self.shrunk], self.scales.precisions(scales, log_noise)
        if self.scales.point_mass:
            coefficients, precision = coefficients[scales.local > 0], precision[scales.local > 0]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            log_normal = 0.5 * float(np.log(precision).sum() - coefficients**2 @ precision)
        return self.scales.log_prior(scales, log_noise) + (log_normal if math.isfinite(log_normal) else -math.inf)

    def log_likelihood(self, fitted: Array, shared: Array) -> float:
        """Of the sampled rows, at Xβ; up to a constant."""
        if self.loss.gaussian_given == "polya-gamma":
            t = fitted + self.offset
            return float(self.kappa @ t - self.counts @ (np.logaddexp(0.5 * t, -0.5 * t)))
        log_sigma = self.log_noise(shared)
        residuals = self.sampled_rows.z - fitted
        squares = self.sampled_rows.unexplained + float(residuals @ residuals)
        return -0.5 * squares * math.exp(min(-2 * log_sigma, 700.0)) - self.total * log_sigma

    def shrinkage_factors(self, x: Array) -> Array:
        """κⱼ of states (states, dim): 1 where a coefficient is drawn to 0, 0 where it is not."""
        parts = (self.split(row)[1:] for row in x)
        return np.stack([self.scales.factors(scales, self.log_noise(shared)) for shared, scales in parts])

    # The protocol of a target, of which this one only has the rows.

    def _refuse(self) -> NoReturn:
        why = "its coefficients and scales are drawn by svrhmc.sample, which takes blocks of them in turn"
        raise requirement("target", "one with gradients of single components", repr(self), why)

    def mode(self) -> Array:
        """Refused: the joint density of coefficients and scales is unbounded."""
        self._refuse()

    def potentials(self, x: Array) -> Array:
        """Refused, as all below."""
        self._refuse()

    def gradients(self, x: Array) -> Array:
        self._refuse()

    def parts(self, x: Array, indices: Indices | None) -> Array:
        self._refuse()

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        self._refuse()

    def prior_gradient(self, x: Array) -> Array:
        self._refuse()

    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        self._refuse()


class GaussianBlock:
    """The law of some coefficients given all else, by a Cholesky factor of the smaller of two matrices.

    columns: those of the coefficients, (coefficients, rows). omega, z: of the rows. mean, variance: m and D.
    """

    def __init__(self, columns: Array, omega: Array, z: Array, mean: Array, variance: Array) -> None:
        from scipy.linalg import cholesky

        self._columns, self._omega, self._z, self._mean, self._variance = columns, omega, z, mean, variance
        p, n = columns.shape
        self._wide = p > n
        scaled = columns * np.sqrt(variance)[:, None]  # so no entry is large where a coefficient is drawn to 0
        if self._wide:
            S = scaled.T @ scaled
            S.flat[:: n + 1] += 1 / omega
            self._factor = cholesky(S, lower=True, overwrite_a=True, check_finite=False)
            return
        scaled *= np.sqrt(omega)
        A = scaled @ scaled.T
        A.flat[:: p + 1] += 1.0
        self._pull = scaled @ (np.sqrt(omega) * z) + mean / np.sqrt(variance)
        self._factor = cholesky(A, lower=True, overwrite_a=True, check_finite=False)

    def draw(self, rng: np.random.Generator) -> Array:
        """A draw of these coefficients."""
        from scipy.linalg import cho_solve, solve_triangular

        root = np.sqrt(self._variance)
        if not self._wide:
            half = solve_triangular(self._factor, self._pull, lower=True, check_finite=False)
            ends = half + rng.standard_normal(len(root))
            return np.asarray(root * solve_triangular(self._factor, ends, lower=True, trans=1, check_finite=False))
        u = self._mean + root * rng.standard_normal(len(root))
        noise = rng.standard_normal(len(self._z)) / np.sqrt(self._omega)
        solution = cho_solve((self._factor, True), self._z - u @ self._columns - noise, check_finite=False)
        return np.asarray(u + self._variance * (self._columns @ solution))
