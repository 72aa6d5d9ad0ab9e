"""Generalised linear models: a family, rows of data wherever they lie, and a prior.

    fᵢ(x) = n wᵢℓ(tᵢ, yᵢ) + ½ (x − p)ᵀΛ(x − p),   tᵢ = oᵢ + aᵢᵀx,   Λ = diag(prior_precision),   p = prior_mean,

so that f = (1/n) Σ fᵢ is minus the log posterior and π is the posterior. (The paper prints the posterior without the
1/n, and labels {0, 1} for a likelihood that needs {−1, 1}; both are corrected here.) A row of weight wᵢ stands for wᵢ
rows like it: f is the same function as that of the longer table, n is smaller, and a component is larger. So weights
enter as wᵢℓ, wᵢℓ′ and wᵢℓ″, in lengths as wᵢ|aᵢ|, and in bounds as wᵢ sup|ℓ‴|.

All properties of the rows are sums over them (`Rows.reduce`). For rows in partitions nothing else is available: no
array has a number for each row, and what needs one (bounds, single rows) is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, contract, digest
from svrhmc.core.deadline import CHOLESKY, INVERSE, indivisible_work
from svrhmc.core.errors import nonnegative, require_finite, requirement
from svrhmc.core.lanczos import largest_eigenvalue, smallest_eigenvalue
from svrhmc.core.randomness import mix_with_uniform
from svrhmc.core.recording import compute_array_once, compute_once
from svrhmc.density.base import Expansion, FiniteSum, Moments, RowsDensity
from svrhmc.density.closed_forms import Law, is_scale_mixture, scale_mixture
from svrhmc.density.minima import minima_around, minima_from
from svrhmc.density.mode import DENSE_DIM, Minima, ModeSearch
from svrhmc.density.profile import Profile, convex_given_shared, one_mode_of_profile, profile
from svrhmc.density.rank import no_density_error, require_rank, require_rank_by_products, smallest_scaled_eigenvalue
from svrhmc.families.base import Classes, Loss
from svrhmc.priors.terms import Heavy, Terms, per_column
from svrhmc.rows.base import LabelledRows, Labels, LinearMap, Rows
from svrhmc.rows.forms import Derivatives, Energies, RowsForm, Squares
from svrhmc.rows.predictors import rows_for_loss
from svrhmc.rows.sparse import make_rows

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


_FLOAT32 = 1e-3  # of a scaled Hessian's eigenvalues: sums in float32 are wrong by 1e-6
_FAR = 1e8  # from where a prior is: the mode is at infinity
_IN_PLANE = 1e-7  # of a typical aᵢᵀd: less is rounding
_OF_LOSS = 20.0  # nanoseconds of a row, besides one for each of its entries
_WEAK, _ROUGH = 1e-4, 0.1  # of the rows' curvature, for a prior in place of a heavy one; sds to its mode


@dataclass(frozen=True, eq=False)
class RowExpansion(Expansion):
    """H = Aᵀ diag(wℓ″) A, and nwℓ″ of every row."""

    hessian: Array
    curvatures: Array
    form: RowsForm

    def parts(self, away: Array, indices: Indices) -> Array:
        """nwℓ″ aᵢᵀ·away."""
        return self.form.slope_changes(self.curvatures[indices], self.form.rows.predict_at(away, indices))


class GeneralisedLinear(RowsDensity):
    """Loss × rows × prior; made by `glm`, `logistic`, `linear` and `conjugate`, which have examples."""

    scalar_parts = True
    unbounded = "rows in partitions, and terms of a prior, have no bound on it; use svrhmc.sample"
    covariance_names: tuple[str, ...] = ()  # of effects of groups, of which there are none
    classes: Classes | None = (
        None  # what the labels 0, 1, … stand for, where they were not numbers (for classes: always)
    )
    determined = False  # whether columns whose prior is flat were shown to be independent already (`propriety.py`)

    def __init__(
        self,
        rows: Rows,
        y: Array,
        loss: Loss,
        prior_precision: float | npt.ArrayLike,
        prior_mean: float | npt.ArrayLike = 0.0,
        offset: Array | None = None,
        weights: Array | None = None,
        heavy: Heavy | None = None,
        terms: Terms | None = None,
    ) -> None:
        self.rows, self.y, self.loss, self.offset, self.weights = rows, y, loss, offset, weights
        self.n, self.dim = rows.n, rows.dim + (0 if terms is None else terms.parameters)
        self.row_size, self.terms, self._curvature_bound = rows.dim, terms, loss.curvature_bound
        self.prior_precision = per_column("prior_precision", prior_precision, self.dim)
        nonnegative("prior_precision", float(self.prior_precision.min()))
        self.prior_mean, self.heavy = per_column("prior_mean", prior_mean, self.dim), heavy
        self.prior_strength = self.prior_precision + (0.0 if heavy is None else heavy.strength(self.dim))
        self.prior_strength[rows.dim :] = 1.0  # what a term says of its own parameters is its own affair
        coupled = terms is None or all(term.quadratic for term in terms.terms)
        self.quadratic = loss.quadratic and heavy is None and coupled
        model = (rows, y, loss, self.prior_precision, self.prior_mean)
        self._form = RowsForm(*model, offset=offset, weights=weights, heavy=heavy, terms=terms)
        self._lengths: tuple[LinearMap, Array] | None = None
        if not rows.in_memory and self.dim > DENSE_DIM:
            raise requirement("X", f"at most {DENSE_DIM} columns where rows are in partitions or on devices", self.dim)
        if terms is not None and self.dim > DENSE_DIM:
            raise requirement("X", f"at most {DENSE_DIM} columns where terms of the prior couple them", self.dim)

    def __repr__(self) -> str:
        storage = "" if self.rows.in_memory else f", {self.rows!r}"
        return f"GeneralisedLinear({self.loss}, n={self.n}, dim={self.dim}{storage})"

    def form(self) -> RowsForm:
        """Rows, labels, loss and prior."""
        return self._form

    def identity(self) -> dict[str, object]:
        """The data and the model."""
        return {
            **self._kind(),
            "X": self.rows.digest(),
            **({"y": digest(self.y)} if self.rows.in_memory else {}),
            "loss": self.loss.identity(self.y[:1]) if self.rows.in_memory else repr(self.loss),
            "prior": digest(self.prior_precision, self.prior_mean),
            **{
                name: digest(values)
                for name, values in (("offset", self.offset), ("weights", self.weights))
                if values is not None
            },
            **({} if self.heavy is None else {"heavy prior": self.heavy.digest()}),
            **({} if self.terms is None else {"terms": [term.identity() for term in self.terms.terms]}),
        }

    @property
    def convex_components(self) -> bool:
        """Whether the loss and the prior are convex."""
        coupled = self.terms is None or all(term.convex for term in self.terms.terms)
        return self.loss.convex and coupled and float(self.prior_bounds()[0].min()) >= 0

    @cached_property
    def one_mode(self) -> str | None:
        """Why there is one mode: f is convex, or it is given a shared parameter whose profile has no other minimum."""
        if not self.rows.in_memory and self.loss.mixture:
            return self._equivalent_rows.one_mode  # which is the same function
        return super().one_mode or one_mode_of_profile(self, self._profile)

    @property
    def is_bounded(self) -> bool:
        """Whether there are bounds on its curvature: for rows in memory, under priors of single coordinates."""
        return self.rows.in_memory and self.terms is None

    @property
    def row_entries(self) -> float:
        """Entries of a row of X that are stored, on average."""
        return self.rows.entries

    @cached_property
    def smoothness(self) -> float:
        """λ_max(c Aᵀ diag(w) A + Λ), c the loss's largest curvature: exact for a quadratic loss, else a bound."""
        if not self.is_bounded:
            return super().smoothness
        bounds = self._form.isotropic_curvatures(self.curvature_bounds())
        return self._extreme_eigenvalue("LA", bounds, self.prior_bounds()[1])

    @cached_property
    def component_smoothness(self) -> float:
        """max_i n c wᵢ|aᵢ|² + max Λ."""
        if not self.is_bounded:
            return super().component_smoothness
        rows = self._finite_value(
            "a bound on a component's curvature", None,
            lambda _: self.n * (self.curvature_bounds() * self.rows.squared_norms()).max(),
        )  # fmt: skip
        return float(rows + self.prior_bounds()[1].max())

    @cached_property
    def convexity(self) -> float:
        """λ_min of the Hessian for a quadratic loss, else what the prior alone guarantees."""
        weakest = float(self.prior_bounds()[0].min())
        if not self.is_bounded:
            return weakest if self.heavy is None and self.terms is None else 0.0
        if not self.quadratic or (self.n < self.dim and weakest == self.prior_precision.max()):
            return weakest
        return max(weakest, self._extreme_eigenvalue("SA", self.curvature_bounds(), self.prior_precision))

    def prior_bounds(self) -> tuple[Array, Array]:
        """The least and the largest curvature of the prior anywhere, of every coordinate."""
        if self.heavy is None:
            return self.prior_precision, self.prior_precision
        least, most = self.heavy.bounds(self.dim)
        return self.prior_precision + least, self.prior_precision + most

    def prior_curvature(self, x: Array) -> Array:
        """Λ + ψ″ at x."""
        return self._finite_value("the prior's curvature", x[None, :], lambda at: self._form.prior_curvature(at[0]))

    def curvature_bounds(self) -> Array:
        """wᵢ sup ℓ″ of every row; refused if ℓ″ has no bound."""
        if self._curvature_bound is None:
            why = f"the curvature of {self.loss} has no bound; svrhmc.sample(target) finds one that fits"
            raise requirement("inverse_mass", "given", "None", why)
        return self._form.multiply_by_weights(np.full(self.n, self._curvature_bound))

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Exact for a quadratic loss; else bounds by the prior and the smoothness, or the largest eigenvalue at the
        mode.
        """
        if not self.is_bounded:
            return None if bound else tuple(np.linalg.eigvalsh(self.modal_hessian)[[0, -1]].tolist())
        if bound and self._curvature_bound is None:
            return None
        if bound or self.quadratic:
            return self.convexity, self.smoothness
        return max(self.convexity, 0.0), self._modal_curvature

    @cached_property
    def closed_form(self) -> Moments | None:
        """The Gaussian posterior of a quadratic loss with a normal prior."""
        if not self.quadratic:
            return None
        if not self.rows.in_memory:
            return self._equivalent_rows.closed_form
        from scipy.linalg import cho_solve

        self._require_rank()
        factor = self.factor(np.zeros(self.dim))
        with indivisible_work(INVERSE * self.dim**3):
            covariance = cho_solve(factor, np.eye(self.dim))
        require_finite("the covariance (with a larger prior_precision it would be)", covariance)
        return Moments(cho_solve(factor, -self.gradient(np.zeros(self.dim))), (covariance + covariance.T) / 2)

    @cached_property
    def exact_law(self) -> Law | None:
        """A Gaussian, or a mixture of Gaussians if coefficients are Gaussian given log σ."""
        mixture = self.terms is None and is_scale_mixture(self.loss, self.heavy, self.dim)
        if not self.rows.in_memory:
            return self._equivalent_rows.exact_law if self.quadratic or mixture else None
        if not mixture:
            return super().exact_law
        self._require_rank()
        return scale_mixture(self._form)

    def laplace(self) -> Moments:
        """The Gaussian at the mode with the inverse Hessian there; exact for a quadratic loss."""
        if self.closed_form is not None:
            return self.closed_form
        return Moments(self.mode(), ((covariance := np.linalg.inv(self.modal_hessian)) + covariance.T) / 2)

    def hessian(self, x: npt.ArrayLike) -> Array:
        """∇²f(x) = Aᵀ diag(wℓ″) A + Λ, dense; summed in float64 if it is the posterior's precision, or float32 sums
        would not be accurate enough.
        """
        point = self._point(x)
        if not self.rows.in_memory:
            return self._with_prior_terms(
                self._padded_for_terms(self.row_derivatives(point[0]).hessian, 2)
                + np.diag(self._form.prior_curvature(point[0])),
                x,
            )
        curvature, prior = self.row_curvatures(x), self.prior_curvature(point[0])
        quick = self._with_prior_terms(self._gram(curvature, prior, point, precise=self.quadratic), x)
        if self.quadratic or self.rows.dtype == np.float64 or smallest_scaled_eigenvalue(quick) > _FLOAT32:
            return quick
        return self._with_prior_terms(self._gram(curvature, prior, point, precise=True), x)

    def _with_prior_terms(self, hessian: Array, x: npt.ArrayLike) -> Array:
        """The Hessian with that of the prior's terms at x added."""
        return hessian if self.terms is None else hessian + self.terms.hessian(np.asarray(x, np.float64))

    def _padded_for_terms(self, of_rows: Array, axes: int = 1) -> Array:
        """Sums over rows with zeros appended for the parameters of the prior's terms, on the last axes."""
        missing = self.dim - self.rows.dim
        return np.pad(of_rows, [(0, 0)] * (of_rows.ndim - axes) + [(0, missing)] * axes) if missing else of_rows

    def _gram(self, curvature: Array, bend: Array, point: Array | None = None, precise: bool = False) -> Array:
        """Aᵀ diag(curvature) A + diag(bend); `point`: where these are the curvatures, None if they are bounds."""
        diagonal, name = np.diag(bend), "a bound on ∇²f" if point is None else "∇²f"

        def gram(_: object) -> Array:
            size = self.rows.dim
            of_rows: Array = compute_array_once(
                lambda: self.rows.gram(curvature, precise=precise), (size, size), curvature
            )
            return self._padded_for_terms(of_rows, 2) + diagonal

        return self._finite_value(name, point, gram)

    def expansion(self, x: Array) -> RowExpansion:
        """Hᵢ = n wᵢℓ″ aᵢaᵢᵀ at x; without the prior, which is never subsampled."""
        curvature = self.row_curvatures(x)
        return RowExpansion(self.rows.gram(curvature), self.n * curvature, self._form)

    def importance(self) -> Array:
        """wᵢ|aᵢ|, mixed with a tenth of uniform weights, which bounds the variance of components drawn by them."""
        return mix_with_uniform(self._form.multiply_by_weights(np.sqrt(self.rows.squared_norms())))

    def hessian_product(self, x: npt.ArrayLike, direction: Array) -> Array:
        """∇²f(x)·direction in two passes over the rows, with no dim × dim matrix."""
        if not self.rows.in_memory or self.terms is not None:
            return self.hessian(x) @ direction
        curvature, bend = self.row_curvatures(x), self.prior_curvature(self._point(x)[0])
        return self._finite_value(
            "a product", self._point(x), lambda _: self.curved_product(curvature, direction, bend)
        )

    def row_derivatives(self, x: Array) -> Derivatives:
        """Value, gradient and Hessian of the rows at x, in one pass."""
        size = self.rows.dim
        zero = Derivatives(np.zeros(()), np.zeros(size), np.zeros((size, size)))
        derivatives: Derivatives = self.rows.reduce(
            RowsForm.derivatives, self._form, x, zero=zero, task="sums over all rows"
        )
        return derivatives

    @cached_property
    def _equivalent_rows(self) -> GeneralisedLinear:
        """A few rows with the same likelihood, for y ~ N(aᵀx, σ²), by one pass.

        That likelihood depends on the rows by their weight W and by G = Σ w(a, y)(a, y)ᵀ alone. With RᵀR = G, the
        m = columns + 1 rows of R√(m/W), each of weight W/m, have the same W and G. (G is summed with the residuals of a
        first fit in place of y, so that no digits cancel.)
        """
        beta, size = self._first_fit(), self.rows.columns + 1
        zero = Squares(np.zeros(()), np.zeros((size, size)))
        weight, gram = self.rows.reduce(RowsForm.squares, self._form, beta, zero=zero, task="squares of all rows")
        scale = np.sqrt(np.where(np.diag(gram) > 0, np.diag(gram), 1.0))
        values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
        root = math.sqrt(size / weight) * np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * scale
        X, y = np.ascontiguousarray(root[:, :-1]), root[:, -1] + root[:, :-1] @ beta
        return self._with_rows(LabelledRows(X, y, None, np.full(size, weight / size)))

    def _first_fit(self) -> Array:
        """Coefficients near those of the posterior, from some rows."""
        guess = self.guess()
        return np.zeros(self.rows.columns) if guess is None else guess[: self.rows.columns]

    def row_lengths(self, whitening: LinearMap) -> Array:
        """|Wᵀaᵢ| of every row, computed once for a whitening."""
        if self._lengths is None or self._lengths[0] is not whitening:
            self._lengths = (whitening, self.rows.whitened_lengths(whitening))
        return self._lengths[1]

    def mode(self) -> Array:
        """The heaviest of the modes."""
        return self._mode.copy()

    def modes(self) -> Array:
        """One by Newton's method (`svrhmc.density.mode`), and others if f need not be convex (`minima.py`)."""
        return self.minima.points.copy()

    @property
    def mode_starts(self) -> str:
        return self.minima.starts

    def recall_mode(self, mode: Array) -> None:
        """Unless it is known already."""
        self.__dict__.setdefault("minima", Minima(np.array(mode)[None, :], 0.0, "one that was given"))

    def recall_modes(self, modes: Array, doubt: str, starts: str, one_mode: str | None) -> None:
        """Unless they are known already."""
        if "minima" not in self.__dict__:
            self.__dict__ |= {"minima": Minima(np.array(modes), 0.0, starts, doubt), "one_mode": one_mode}

    @property
    def _mode(self) -> Array:
        return self.minima.first

    @cached_property
    def minima(self) -> Minima:
        """Where f has minima, the heaviest first."""
        if self.quadratic and self.dim <= DENSE_DIM:
            assert self.closed_form is not None
            return Minima(self.closed_form.mean[None, :], 0.0, "a formula" if self.rows.in_memory else "one start")
        minima = self.minimum()
        if not self.rows.in_memory:
            return minima
        if not self.convex_components and self.dim <= DENSE_DIM:
            minima = self._other_minima(minima.first, minima.passes)
        self.mode_passes = minima.passes
        return minima

    def minimum(self) -> Minima:
        """One of the minima, by Newton's method."""
        self._require_rank()
        search = ModeSearch(self)
        return Minima(search.find()[None, :], search.passes, "one start")

    def _other_minima(self, mode: Array, passes: float) -> Minima:
        """All minima: by the profile of a shared parameter, or else around the mode and the mode under weak priors."""
        scan = self._scan_profile(mode)
        if scan is not None:
            starts = np.array(scan.others).reshape(-1, self.dim)
            return minima_from(self, mode, starts, f"a profile {scan}", passes + scan.passes)
        nanoseconds = self.n * (_OF_LOSS + self.row_entries)
        return minima_around(self, mode, self._weak_mode(mode), nanoseconds, passes)

    @cached_property
    def _profile(self) -> Profile | None:
        """The profile of the shared parameter, from the mode."""
        return self._scan_profile(self._mode)

    @property
    def pass_seconds(self) -> float:
        """Seconds of the quickest pass over rows that are not in memory."""
        return self.rows.pass_seconds

    @property
    def tells_passes(self) -> bool:  # type: ignore[override]
        """True for passes over partitions."""
        return not self.rows.in_memory

    def watched(self, tell: Callable[[float], None]) -> None:
        """Call `tell` for passes over partitions, except those for gradients at states."""
        self.rows.watch = tell

    def shown(self) -> FiniteSum:
        """This model, or that of some rows with the whole prior if the rows are not in memory."""
        return self if self.rows.in_memory else self._with_rows(self._sampled_rows)

    @property
    def at_hand(self) -> int:
        return self.n if self.rows.in_memory else 0

    @cached_property
    def _sampled_rows(self) -> LabelledRows:
        """LabelledRows rows of partitions."""
        sample: LabelledRows = self.rows.sample_rows()
        return sample

    def with_rows(self, rows: Rows) -> GeneralisedLinear:
        """The same model of the same rows, which lie elsewhere."""
        target = GeneralisedLinear(
            rows, self.y, self.loss, self.prior_precision, self.prior_mean, self.offset, self.weights, self.heavy,
            self.terms,
        )  # fmt: skip
        target.names, target.classes = self.names, self.classes
        return target

    def _with_rows(self, sample: LabelledRows, prior_precision: Array | None = None) -> GeneralisedLinear:
        """The same model of other rows in memory; with a normal prior of this precision, if one is given."""
        precision, heavy = (self.prior_precision, self.heavy) if prior_precision is None else (prior_precision, None)
        rows = rows_for_loss(make_rows(sample.X), self.loss)
        return GeneralisedLinear(
            rows, sample.y, self.loss, precision, self.prior_mean, sample.offset, sample.weights, heavy, self.terms
        )

    def _scan_profile(self, mode: Array) -> Profile | None:
        scan = profile(self, mode) if convex_given_shared(self) else None
        self.__dict__["_profile"] = scan
        return scan

    def _weak_mode(self, mode: Array) -> Array:
        """The mode with the ψⱼ replaced by normal priors that are weak beside the rows: (1, dim), or (0, dim)."""
        if self.heavy is None:
            return np.zeros((0, self.dim))
        columns = self.heavy.columns
        weak, mean = self.prior_precision.copy(), self.prior_mean.copy()
        weak[columns] = _WEAK * np.abs(np.diag(self.hessian(mode)) - self.prior_curvature(mode))[columns]
        mean[columns] = self.heavy.location
        substitute = GeneralisedLinear(
            self.rows, self.y, self.loss, weak, mean, self.offset, self.weights, terms=self.terms
        )
        try:
            return ModeSearch(substitute).find(_ROUGH)[None, :]
        except (ValueError, RuntimeError):
            return np.zeros((0, self.dim))

    def feet(self, mode: Array) -> tuple[Array, Array]:
        """Those of the ψⱼ."""
        location, wider = super().feet(mode)
        if self.heavy is not None:
            location[self.heavy.columns] = self.heavy.location
            wider = self.heavy.feet(mode, np.asarray(np.linalg.inv(self.hessian(mode)), np.float64))
        return location, wider

    def warm(self) -> None:
        """Compile, or load, what passes over the rows need, so that passes are timed without it."""
        if not self.rows.in_memory:
            assert self._sampled_rows is not None  # whose passes compile the same
        self.rows.warm(self.loss, self._labels)

    @property
    def _labels(self) -> Labels:
        return Labels(self.y, self.offset, self.weights)

    def share(self, chosen: Indices, prior_precision: Array) -> GeneralisedLinear:
        """The model of some of its rows, with another prior precision."""
        rows, (y, offset, weights) = self.rows.choose(chosen), self._labels.choose(chosen)
        return GeneralisedLinear(
            rows, y, self.loss, prior_precision, self.prior_mean, offset, weights, terms=self.terms
        )

    def guess(self) -> Array | None:
        """Where the search for the mode starts: the least squares fit to the predictors that the labels alone suggest,
        weighted by the curvature there. If the loss has no such predictors, or there are too many columns, 0 but for
        shared parameters, which start at values suggested by the labels; None if there are none. For rows in
        partitions, the mode of some of them, with the prior scaled down in proportion.
        """
        if not self.rows.in_memory:
            part = self._with_rows(self._sampled_rows, self.prior_strength * (len(self._sampled_rows.y) / self.n))
            try:
                return part.minimum().first
            except (ValueError, RuntimeError):
                return None
        if (t := self.loss.start(self.y)) is None or self.dim > DENSE_DIM or self.terms is not None:
            shared = self.loss.shared_start(self.y)
            start = np.zeros(self.dim)
            start[self.rows.dim - len(shared) : self.rows.dim] = shared
            return start if len(shared) else None
        from scipy.linalg import cho_factor, cho_solve

        curvature = self._form.curvatures(t)
        pull = curvature * (t if self.offset is None else t - self.offset)
        force = self.rows.combine(pull[None, :])[0] + self.prior_precision * self.prior_mean
        gram = compute_array_once(lambda: self.rows.gram(curvature, precise=True), (self.dim, self.dim), curvature)
        gram = gram + np.diag(self.prior_precision)
        try:
            with indivisible_work(CHOLESKY * self.dim**3):
                factor = cho_factor(gram)
        except ValueError:  # too large for float64, or no factor
            return None
        return np.asarray(cho_solve(factor, force), np.float64)

    @cached_property
    def modal_hessian(self) -> Array:
        """∇²f at the mode, dense; found once."""
        return self.hessian(self._mode)

    def potentials(self, x: Array) -> Array:
        """Σᵢ wᵢℓ(tᵢ, yᵢ) + ½ (x − p)ᵀΛ(x − p)."""
        if not self.rows.in_memory:
            return self._energies(x).values + self.prior_potential(x)
        values: Array = compute_array_once(
            lambda: self._form.values(self._form.predictors(x)).sum(axis=1), (len(x),), x
        )
        return values + self.prior_potential(x)

    def prior_potential(self, x: Array) -> Array:
        """−log prior of states, up to a constant: (states, dim) → (states,)."""
        deviation = x - self.prior_mean
        prior: Array = 0.5 * contract("cd,cd,d->c", deviation, deviation, self.prior_precision)
        if self.heavy is not None:
            prior = prior + self.heavy.value(x)
        return prior if self.terms is None else prior + self.terms.value(x)

    def energies(self, x: Array) -> tuple[Array, Array]:
        """From the same predictors if rows are few or not in memory; else by one compiled pass, if there is one."""
        if self.rows.in_memory and not self._form.is_small:
            return self._energies_by_pass(x) if self.rows.can_combine_slopes(self.loss) else super().energies(x)
        values, gradients = self._energies(x)
        return values + self.prior_potential(x), self._padded_for_terms(gradients) + self.prior_gradient(x)

    def _energies(self, x: Array) -> Energies:
        """Values and gradients summed over the rows; recalled if a pass for the Hessian just computed them too."""
        sums = [self.rows.recall(RowsForm.derivatives, state) for state in x]
        remembered = [derivatives for derivatives in sums if derivatives is not None]
        if len(remembered) == len(x):
            values = np.array([derivatives.value for derivatives in remembered])
            return Energies(values, np.array([derivatives.gradient for derivatives in remembered]))
        zero = Energies(np.zeros(len(x)), np.zeros((len(x), self.rows.dim)))
        energies: Energies = self.rows.reduce(
            RowsForm.energies, self._form, x, zero=zero, task="gradients over all rows", counted=True
        )
        return energies

    def _energies_by_pass(self, x: Array) -> tuple[Array, Array]:
        from svrhmc.rows.passes import RowsPass

        by_rows = RowsPass(self.rows.design_matrix, self.loss, self._labels)
        inner = np.ascontiguousarray(x[:, : self.rows.dim])
        values, slopes = compute_once(lambda: by_rows(inner), (len(x),), inner.shape, depends_on=x)
        return values + self.prior_potential(x), self._padded_for_terms(slopes) + self.prior_gradient(x)

    def gradients(self, x: Array) -> Array:
        """Aᵀ(wℓ′) + Λ(x − p)."""
        return self._gradients(x)

    def _gradients(self, x: Array, predictors: Array | None = None) -> Array:
        """predictors: all tᵢ at x, if they are known."""
        if not self.rows.in_memory:
            return self._padded_for_terms(self._energies(x).gradients) + self.prior_gradient(x)

        def of_rows() -> Array:
            combined = self.rows.combine_slopes(self.loss, x[:, : self.rows.dim], self._labels)
            if combined is None:
                combined = self._form.gradients_at(self._form.predictors(x) if predictors is None else predictors)
            return self._padded_for_terms(combined)

        slopes: Array = compute_array_once(of_rows, x.shape, x)
        return slopes + self.prior_gradient(x)

    def predictors_at_centre(self, centre: Array) -> Array:
        """All tᵢ at the centre of a whitening, (1, n) in float64. Those of the last centre are kept, because a target
        is often whitened several times at its mode.
        """
        key, last = centre.tobytes(), self._last_centre
        known = last.get(key)
        if known is None:
            known = {"predictors": self._form.predictors(centre[None, :])}
            last.clear()
            last[key] = known
        return known["predictors"]

    def gradient_at_centre(self, centre: Array) -> Array:
        """∇f there, from the same predictors; it is kept with them."""
        predictors, known = self.predictors_at_centre(centre), self._last_centre.get(centre.tobytes(), {})
        if "gradient" not in known:
            known["gradient"] = self._finite_value(
                "the gradient", self._point(centre), lambda at: self._gradients(at, predictors)
            )[0]
        return known["gradient"]

    @cached_property
    def _last_centre(self) -> dict[bytes, dict[str, Array]]:
        return {}

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """nwᵢℓ′(tᵢ, yᵢ): one number a row."""
        if not self.rows.in_memory:
            raise requirement("target", "one whose rows are in memory, for single rows", repr(self))
        if indices is None:
            return self.n * self._form.slopes(self._form.predictors(x))
        return self.n * self._form.slopes(self._form.predictors_at(x, indices), indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """(1/B) Σ_b part_b a_{i_b}."""
        if indices is None:
            return self._padded_for_terms(self.rows.combine(parts / self.n))
        return self._padded_for_terms(self.rows.combine_at(parts / indices.shape[1], indices))

    def prior_gradient(self, x: Array) -> Array:
        """Λ(x − p) + ψ′."""
        slope = (x - self.prior_mean) * self.prior_precision
        if self.heavy is not None:
            slope = slope + self.heavy.slope(x)
        return slope if self.terms is None else slope + self.terms.gradient(x)

    def _require_posterior(self) -> None:
        """Refuse a flat prior on separable data, or on linearly dependent columns: there is no posterior."""
        if not self.rows.in_memory:
            self.mode()
        elif self.prior_strength.min() == 0:
            self._require_rank()
            self.mode()  # says so where the data are separable

    def require_decided(self) -> None:
        """By the mode, if columns with a flat prior are too many for a proof (`propriety.py`)."""
        if self.rows.in_memory and not self.determined:
            self._require_posterior()

    def _require_rank(self) -> None:
        """Refuse linearly dependent columns if the prior is flat; if it is not, only for a Hessian that is constant."""
        if (
            not self.rows.in_memory
            or self.determined
            or (self.prior_strength.min() > 0 and not (self.quadratic and self.dim <= DENSE_DIM))
        ):
            return
        curvature = self.row_curvatures(np.zeros(self.dim))
        if not self.loss.convex:  # then any curvature will do that no row has below 0
            curvature = self._form.isotropic_curvatures(self._form.multiply_by_weights(np.ones(self.n)))
        if self.dim > DENSE_DIM:
            require_rank_by_products(self, curvature, self.rows.gram_diagonal(curvature) + self.prior_strength)
        else:
            require_rank(self, self._gram(curvature, self.prior_strength, precise=True))

    def runs_off(self, x: Array, direction: Array) -> bool:
        """Whether no row's loss grows, from x on, along a direction in which the prior is flat; for rows in partitions
        that is only known far away from the prior's mean.

        By rounding, rows in the separating plane change a little: a tiny fraction of what rows change that curve f.
        """
        if not self.rows.in_memory:
            return bool(np.abs(x).max() > _FAR * (1 + np.abs(self.prior_mean).max()))
        t, change = self._form.predictors(x[None, :])[0], self.rows.predict(direction[None, : self.rows.dim])[0]
        form, slopes = self._form, self._form.slopes(t)
        bend = form.value_changes(form.slope_changes(form.curvatures(t), change), change)
        typical = float(bend @ form.largest_by_row(change)) / max(float(bend.sum()), 1e-300)
        return bool((form.value_changes(slopes, change) <= _IN_PLANE * typical * form.largest_by_row(slopes)).all())

    def _with_quadratic(self, strength: float, centre: Array) -> GeneralisedLinear:
        """The prior and the quadratic together are one Gaussian."""
        if not self.rows.in_memory:
            raise requirement("target", "one whose rows are in memory, to be regularised", repr(self))
        precision = self.prior_precision + strength
        mean = (self.prior_precision * self.prior_mean + strength * centre) / precision
        return GeneralisedLinear(
            self.rows, self.y, self.loss, precision, mean, self.offset, self.weights, self.heavy, self.terms
        )

    def factor(self, x: Array) -> tuple[Array, bool]:
        """Cholesky factor of the Hessian, for scipy's cho_solve; refused where the posterior is improper."""
        from scipy.linalg import cho_factor

        hessian = self.hessian(x)
        try:
            with indivisible_work(CHOLESKY * self.dim**3):
                factor: tuple[Array, bool] = cho_factor(hessian)
                return factor
        except np.linalg.LinAlgError:
            raise no_density_error(self) from None

    def row_curvatures(self, x: npt.ArrayLike) -> Array:
        """wᵢℓ″ of every row at x."""
        form = self._form
        return self._finite_value("ℓ″ of a row", self._point(x), lambda at: form.curvatures(form.predictors(at)[0]))

    def operator(self, curvature: Array, bend: Array) -> LinearOperator:
        """Aᵀ diag(curvature) A + diag(bend) as scipy's linear operator."""
        from scipy.sparse.linalg import LinearOperator

        shape = (self.dim, self.dim)
        return LinearOperator(shape, matvec=lambda p: self.curved_product(curvature, p, bend), dtype=np.float64)

    def preconditioner(self, curvature: Array, bend: Array) -> LinearOperator:
        """The inverse of that operator's diagonal, if rows are sparse."""
        from scipy.sparse import diags

        return None if self.rows.storage == "dense" else diags(1 / (self.rows.gram_diagonal(curvature) + bend))

    def curved_product(self, curvature: Array, direction: Array, bend: Array) -> Array:
        """(Aᵀ diag(curvature) A + diag(bend))·direction."""
        row = np.asarray(direction, np.float64).reshape(1, -1)

        def of_rows() -> Array:
            total: Array = self.rows.combine(self._form.slope_changes(curvature, self.rows.predict(row)))[0]
            return total

        product: Array = compute_array_once(of_rows, (self.dim,), row)
        return np.asarray(product + row[0] * bend)

    @cached_property
    def _modal_curvature(self) -> float:
        return self._extreme_eigenvalue("LA", self.row_curvatures(self._mode), self.prior_curvature(self._mode))

    def _extreme_eigenvalue(self, which: str, curvature: Array, bend: Array) -> float:
        """λ_max ("LA") or λ_min ("SA") of Aᵀ diag(curvature) A + diag(bend): of the dense matrix up to DENSE_DIM
        columns, by Lanczos beyond, where λ_min may only be bounded by the smallest entry of bend.
        """
        if self.dim <= DENSE_DIM:
            return float(np.linalg.eigvalsh(self._gram(curvature, bend))[-1 if which == "LA" else 0])
        product = self.operator(curvature, bend).matvec
        if which == "LA":
            return largest_eigenvalue(product, self.dim)
        smallest = smallest_eigenvalue(product, self.dim)
        return float(bend.min()) if smallest is None else smallest
