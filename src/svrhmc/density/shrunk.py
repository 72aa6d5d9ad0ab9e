"""Regressions whose coefficients have a joint shrinking prior (`svrhmc.priors.shrinkage`).

The unknowns are (β, shared, log λ, log τ, log c), in this order. Given λ, τ and c, β has a Gaussian prior N(m, D), and
rows that are Gaussian given their noise, or given Pólya–Gamma variables ω, a Gaussian likelihood

    zᵢ ~ N(aᵢᵀβ, 1/ωᵢ),        ωᵢ = wᵢ/σ², zᵢ = yᵢ − oᵢ,        or        ωᵢ ~ PG(wᵢ, tᵢ), zᵢ = κᵢ/ωᵢ − oᵢ,

κᵢ = wᵢ(ȳᵢ − ½) (Polson, Scott & Windle, Journal of the American Statistical Association 108, 2013). So

    β | … ~ N(A⁻¹(Xᵀωz + D⁻¹m), A⁻¹),    A = Xᵀ diag(ω) X + D⁻¹,                            where p ≤ n, and
    β = u + DXᵀ S⁻¹(z − Xu − ω^{−½}δ),   S = XDXᵀ + diag(1/ω),    u ~ N(m, D), δ ~ N(0, I),   where p > n

(Bhattacharya, Chakraborty & Mallick, Biometrika 103, 2016): one factor of the smaller side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np

from svrhmc.core.arrays import Array, Indices, Values
from svrhmc.core.errors import requirement
from svrhmc.density.base import FiniteSum
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.families import FAMILIES
from svrhmc.priors.shrinkage import Horseshoe
from svrhmc.priors.terms import Heavy

_MOST_ENTRIES = 1 << 28  # of X, which is held dense
_MOST_TRIALS = 1_000_000


class Scales(NamedTuple):
    """log λ, log τ and log c of one state."""

    local: Array
    overall: float
    slab: float

    @property
    def log_variances(self) -> Array:
        """log vⱼ."""
        return -np.logaddexp(-2 * (self.local + self.overall), -2 * self.slab)


class ShrunkModel(FiniteSum):
    """Made by `svrhmc.targets.glm(…, prior=Horseshoe(…))`."""

    scalar_parts = True
    searched_by = "shrinkage"
    heavy: Heavy | None = None  # of single coordinates
    covariance_names: tuple[str, ...] = ()
    has_potential = False
    classes: Values | None = None

    def __init__(self, conditional: GeneralisedLinear, horseshoe: Horseshoe, columns: Sequence[int]) -> None:
        """conditional: the model whose shrunk coefficients, in these columns, have a flat prior."""
        self.conditional, self.horseshoe, self.loss = conditional, horseshoe, conditional.loss
        self.shrunk: Indices = np.array(columns, np.int64)
        self.n, self.left_out = conditional.n, conditional.left_out
        self.width, self.reported_dim = conditional.rows.columns, conditional.dim
        self.dim, self.row_size = self.reported_dim + len(columns) + 2, conditional.rows.columns
        self.require_sampled()
        self.total = self.n if conditional.weights is None else float(conditional.weights.sum())
        self.global_scale = horseshoe.global_scale(len(columns), self.total)

    def __repr__(self) -> str:
        return f"ShrunkModel({self.loss}, n={self.n}, coefficients={self.reported_dim}, {self.horseshoe!r})"

    def require_sampled(self) -> None:
        """Refuse what the sampler does not have."""
        given, model = self.loss.gaussian_given, self.conditional
        if not given:
            able = ", ".join(repr(name) for name, make in FAMILIES.items() if make().gaussian_given)
            link = f" with the link {self.loss.link!r}" if self.loss.link else ""
            why = f"its sampler is one for {able}; Laplace or StudentT are priors for every family"
            raise requirement("prior", f"one of single coefficients for {self.loss.name!r}{link}", "a Horseshoe", why)
        others = np.delete(np.arange(self.reported_dim), self.shrunk)
        width = self.width
        heavy = [] if model.heavy is None else [j for j in model.heavy.columns if j < width]
        flat = [j for j in others if j < width and model.prior_precision[j] == 0 and j not in heavy]
        if heavy or flat:
            raise requirement("the priors beside a Horseshoe", "Normal", "a flat one" if flat else "another")
        if self.loss.shared and model.heavy is None and model.prior_precision[-1] == 0:
            raise requirement("the prior of log sigma beside a Horseshoe", "a proper one", "Flat()")
        if self.n * width > _MOST_ENTRIES:
            raise requirement("X", f"of at most {_MOST_ENTRIES:,} entries under a Horseshoe", f"{self.n * width:,}")
        counts = model.weights
        if given == "polya-gamma" and counts is not None:
            if (counts != np.round(counts)).any():
                why = "Pólya–Gamma variables are drawn one for each observation"
                raise requirement("weights", "whole numbers under a Horseshoe", "others", why)
            if counts.sum() > _MOST_TRIALS:
                allowed = f"at most {_MOST_TRIALS:,} in all under a Horseshoe"
                raise requirement("weights and trials", allowed, f"{counts.sum():,.0f}")

    def identity(self) -> dict[str, object]:
        """The data and the model."""
        shrinkage = [repr(self.horseshoe), *map(int, self.shrunk)]
        return {**self.conditional.identity(), **self._kind(), "shrinkage": shrinkage}

    def shown(self) -> GeneralisedLinear:
        """The model given the scales, with a flat prior of the shrunk coefficients: for what looks at rows."""
        return self.conditional

    # What the sampler asks for.

    @cached_property
    def X(self) -> Array:
        """The columns of all rows as a dense array."""
        rows = self.conditional.rows.seen_once
        return np.ascontiguousarray(rows.taken(np.arange(self.n)), np.float64)

    @cached_property
    def offset(self) -> Array:
        """oᵢ of every row, 0 where none is given."""
        given = self.conditional.offset
        return np.zeros(self.n) if given is None else np.asarray(given, np.float64)

    @cached_property
    def counts(self) -> Array:
        """wᵢ of every row, 1 where none is given."""
        given = self.conditional.weights
        return np.ones(self.n) if given is None else np.asarray(given, np.float64)

    @cached_property
    def kappa(self) -> Array:
        """w(ȳ − ½), minus the slope of the loss at 0."""
        return np.asarray(-self.counts * self.loss.slope(np.zeros(self.n), self.conditional.y))

    @cached_property
    def gram(self) -> tuple[Array, Array]:
        """Xᵀ diag(w) X and Xᵀ diag(w)(y − o), of rows that are Gaussian given their noise."""
        weighted = self.X * self.counts[:, None]
        return self.X.T @ weighted, weighted.T @ (self.conditional.y - self.offset)

    @cached_property
    def pseudo_noise(self) -> float:
        """σ̃ of events: 1/√(p̄(1 − p̄)), with half an event more of each kind."""
        share = (float(self.counts @ self.share) + 0.5) / (self.total + 1.0)
        return 1 / math.sqrt(share * (1 - share))

    @property
    def share(self) -> Array:
        """ȳᵢ, the share of events, of every row."""
        return self.kappa / self.counts + 0.5

    def noise(self, shared: Array) -> float:
        """σ̃ of a state."""
        if self.loss.gaussian_given == "polya-gamma":
            return self.pseudo_noise
        known = self.loss.known_noise
        return math.exp(float(shared[0])) if known is None else known

    def split(self, x: Array) -> tuple[Array, Array, Scales]:
        """β, shared parameters and scales of one state."""
        end = self.reported_dim
        return x[: self.width].copy(), x[self.width : end].copy(), Scales(x[end:-2].copy(), float(x[-2]), float(x[-1]))

    @staticmethod
    def joined(beta: Array, shared: Array, scales: Scales) -> Array:
        """The reverse of `split`."""
        return np.concatenate([beta, shared, scales.local, [scales.overall, scales.slab]])

    def prior_of(self, scales: Scales) -> tuple[Array, Array]:
        """m and D of all coefficients."""
        with np.errstate(divide="ignore"):
            variance = 1 / self.conditional.prior_precision[: self.width]
        variance[self.shrunk] = np.exp(scales.log_variances)
        return self.conditional.prior_mean[: self.width], variance

    def log_shared(self, shared: Array) -> float:
        """log p of the shared parameters."""
        model, place = self.conditional, slice(self.width, self.reported_dim)
        away = shared - model.prior_mean[place]
        value = -0.5 * float(model.prior_precision[place] @ away**2)
        if model.heavy is not None:
            whole = np.zeros(self.reported_dim)
            whole[place] = shared
            value -= float(model.heavy.value(whole))
        return value

    def log_global(self, overall: float, shared: Array) -> float:
        """log p(log τ | σ)."""
        d = overall - math.log(self.global_scale * self.noise(shared))
        return d - float(np.logaddexp(0.0, 2 * d))

    def log_slab(self, slab: float) -> float:
        """log p(log c)."""
        prior = self.horseshoe
        return -prior.slab_df * (slab + 0.5 * math.exp(min(2 * (math.log(prior.slab_scale) - slab), 700.0)))

    def log_likelihood(self, predictor: Array, shared: Array) -> float:
        """Of the rows, at aᵀβ; up to a constant."""
        t = predictor + self.offset
        if self.loss.gaussian_given == "polya-gamma":
            return float(self.kappa @ t - self.counts @ (np.logaddexp(0.5 * t, -0.5 * t)))
        sigma = self.noise(shared)
        return -0.5 * float(self.counts @ ((self.conditional.y - t) / sigma) ** 2) - self.total * math.log(sigma)

    def shrinkage_factors(self, x: Array) -> Array:
        """κⱼ = 1/(1 + nvⱼ/σ̃²) of states (states, dim): 1 where a coefficient is drawn to 0, 0 where it is not."""
        end, log_n = self.reported_dim, math.log(self.total)
        variances = -np.logaddexp(-2 * (x[:, end:-2] + x[:, -2:-1]), -2 * x[:, -1:])
        noise = np.log([self.noise(row[self.width : end]) for row in x])[:, None]
        return np.asarray(1 / (1 + np.exp(np.minimum(log_n + variances - 2 * noise, 700.0))))

    # The protocol of a target, of which this one has its rows alone.

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
    """The law of β given all else, by a factor of its smaller side.

    omega, z: of the rows. mean, variance: m and D. gram: Xᵀωx and Xᵀωz, where they are known.
    """

    def __init__(
        self,
        X: Array,
        omega: Array,
        z: Array,
        mean: Array,
        variance: Array,
        gram: tuple[Array, Array] | None = None,
    ) -> None:
        from scipy.linalg import cholesky

        self._X, self._omega, self._z, self._mean, self._variance = X, omega, z, mean, variance
        n, p = X.shape
        self._wide = p > n
        if self._wide:
            scaled = X * np.sqrt(variance)
            S = scaled @ scaled.T
            S.flat[:: n + 1] += 1 / omega
            self._factor = cholesky(S, lower=True, overwrite_a=True, check_finite=False)
            return
        if gram is None:
            weighted = X * omega[:, None]
            gram = X.T @ weighted, weighted.T @ z
        # in units of √D, so that no entry is large where a coefficient is drawn to 0
        root = np.sqrt(variance)
        A = gram[0] * root * root[:, None]
        A.flat[:: p + 1] += 1.0
        self._pull = root * (gram[1] + mean / variance)
        self._factor = cholesky(A, lower=True, overwrite_a=True, check_finite=False)

    def draw(self, rng: Any) -> Array:
        """β."""
        from scipy.linalg import cho_solve, solve_triangular

        root = np.sqrt(self._variance)
        if not self._wide:
            half = solve_triangular(self._factor, self._pull, lower=True, check_finite=False)
            ends = half + rng.standard_normal(len(root))
            return np.asarray(root * solve_triangular(self._factor, ends, lower=True, trans=1, check_finite=False))
        u = self._mean + root * rng.standard_normal(len(root))
        noise = rng.standard_normal(len(self._z)) / np.sqrt(self._omega)
        rest = cho_solve((self._factor, True), self._z - self._X @ u - noise, check_finite=False)
        return np.asarray(u + self._variance * (self._X.T @ rest))
