"""Generalised linear models: a scalar loss, rows of data and a Gaussian prior.

    fᵢ(x) = n wᵢℓ(tᵢ, yᵢ) + ½ (x − p)ᵀΛ(x − p),   tᵢ = oᵢ + aᵢᵀx,   Λ = diag(prior_precision),   p = prior_mean,

so that f = (1/n) Σ fᵢ is minus the log posterior and π is the posterior. (The paper prints the posterior without the
1/n, and labels {0, 1} for a likelihood that needs {−1, 1}; both are corrected here.) A row of weight wᵢ stands for wᵢ
rows like it: f is the same function as that of the longer table, n is smaller, and a component is larger. So weights
enter as wᵢℓ, wᵢℓ′ and wᵢℓ″, in lengths as wᵢ|aᵢ|, and in bounds as wᵢ sup|ℓ‴|.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from svrhmc.core.alias import mixed
from svrhmc.core.arrays import Array, Indices, contract, digest
from svrhmc.core.deadline import CHOLESKY, INVERSE, piece
from svrhmc.core.errors import nonnegative, require_finite, requirement
from svrhmc.core.lanczos import largest_eigenvalue, smallest_eigenvalue
from svrhmc.core.recording import once, recorded
from svrhmc.families.base import Loss
from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.targets.expansion import RowExpansion
from svrhmc.targets.forms import RowsForm
from svrhmc.targets.improper import least_eigenvalue, no_density, require_rank, require_rank_by_products
from svrhmc.targets.laws import Law, mixes, scale_mixture
from svrhmc.targets.minima import Minima, minima_around, minima_from
from svrhmc.targets.mode import DENSE_DIM, ModeSearch
from svrhmc.targets.priors import Heavy, per_column
from svrhmc.targets.profile import Profile, convex_given_shared, one_mode_of_profile, profile
from svrhmc.targets.rows import Labels, Rows

_FLOAT32 = 1e-3  # of a scaled Hessian's eigenvalues: sums in float32 are wrong by 1e-6
_IN_PLANE = 1e-7  # of a typical aᵢᵀd: less is rounding
_OF_LOSS = 20.0  # nanoseconds of a row, besides one for each of its entries
_WEAK, _ROUGH = 1e-4, 0.1  # of the rows' curvature, for a prior in place of a heavy one; sds to its mode


class GeneralisedLinear(FiniteSum):
    """Loss × rows × prior; made by `glm`, `logistic`, `linear` and `conjugate`, whose examples show it."""

    scalar_parts = True
    classes: Any = None  # what the labels 0, 1, … stand for, where they were not numbers (for classes: always)
    determined = False  # whether columns whose prior is flat were shown to be independent already (`proper.py`)

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
    ) -> None:
        self.rows, self.y, self.loss, self.offset, self.weights = rows, y, loss, offset, weights
        self.n, self.dim = rows.n, rows.dim
        self.row_size = rows.dim
        self.prior_precision = per_column("prior_precision", prior_precision, self.dim)
        nonnegative("prior_precision", float(self.prior_precision.min()))
        self.prior_mean, self.heavy = per_column("prior_mean", prior_mean, self.dim), heavy
        self.prior_strength = self.prior_precision + (0.0 if heavy is None else heavy.strength(self.dim))
        self.quadratic = loss.quadratic and heavy is None
        known = (rows, y, loss, self.prior_precision, self.prior_mean)
        self._form = RowsForm(*known, offset=offset, weights=weights, heavy=heavy)
        self._lengths: tuple[Any, Array] | None = None

    def __repr__(self) -> str:
        return f"GeneralisedLinear({self.loss}, n={self.n}, dim={self.dim})"

    def form(self) -> RowsForm:
        """Rows, labels, loss and prior."""
        return self._form

    def identity(self) -> dict[str, Any]:
        """The data and the model."""
        return {
            **self._kind(),
            "X": self.rows.digest(),
            "y": digest(self.y),
            "loss": self.loss.identity(self.y[:1]),
            "prior": digest(self.prior_precision, self.prior_mean),
            **{
                name: digest(given)
                for name, given in (("offset", self.offset), ("weights", self.weights))
                if given is not None
            },
            **({} if self.heavy is None else {"heavy prior": self.heavy.digest()}),
        }

    @property
    def convex_components(self) -> bool:
        """As the loss and the prior are."""
        return self.loss.convex and float(self.prior_bounds()[0].min()) >= 0

    @cached_property
    def one_mode(self) -> str | None:
        """Where f is convex, or is so given a shared parameter along whose profile no other minimum is found."""
        return super().one_mode or one_mode_of_profile(self, self._profile)

    @property
    def row_entries(self) -> float:
        """Entries of a row of X that are stored, on average."""
        return self.rows.entries

    @cached_property
    def smoothness(self) -> float:
        """λ_max(c Aᵀ diag(w) A + Λ), c the loss's largest curvature: exact for a quadratic loss, else a bound."""
        bounds = self._form.bounded(self.curvature_bounds())
        return self._extreme_eigenvalue("LA", bounds, self.prior_bounds()[1])

    @cached_property
    def component_smoothness(self) -> float:
        """max_i n c wᵢ|aᵢ|² + max Λ."""
        rows = self._known(
            "a bound on a component's curvature", None,
            lambda _: self.n * (self.curvature_bounds() * self.rows.squared_norms()).max(),
        )  # fmt: skip
        return float(rows + self.prior_bounds()[1].max())

    @cached_property
    def convexity(self) -> float:
        """λ_min of the Hessian for a quadratic loss, else what the prior alone guarantees."""
        weakest = float(self.prior_bounds()[0].min())
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
        return self._known("the prior's curvature", x[None, :], lambda at: self._form.prior_curvature(at[0]))

    def curvature_bounds(self) -> Array:
        """wᵢ sup ℓ″ of every row; refused where the loss has none."""
        if self.loss.curvature_bound is None:
            why = f"the curvature of {self.loss} has no bound; svrhmc.sample(target) finds one that fits"
            raise requirement("inverse_mass", "given", "None", why)
        return self._form.weighed(np.full(self.n, self.loss.curvature_bound))

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Exact for a quadratic loss; else the prior and the smoothness as bounds, and the largest at the mode."""
        if bound and self.loss.curvature_bound is None:
            return None
        if bound or self.quadratic:
            return self.convexity, self.smoothness
        return max(self.convexity, 0.0), self._modal_curvature

    @cached_property
    def closed_form(self) -> Moments | None:
        """The Gaussian posterior of a quadratic loss with a normal prior."""
        if not self.quadratic:
            return None
        from scipy.linalg import cho_solve

        self._require_rank()
        factor = self.factor(np.zeros(self.dim))
        with piece(INVERSE * self.dim**3):
            covariance = cho_solve(factor, np.eye(self.dim))
        require_finite("the covariance (with a larger prior_precision it would be)", covariance)
        return Moments(cho_solve(factor, -self.gradient(np.zeros(self.dim))), (covariance + covariance.T) / 2)

    @cached_property
    def exact_law(self) -> Law | None:
        """Also where coefficients are Gaussian given log σ."""
        if not mixes(self.loss, self.heavy, self.dim):
            return super().exact_law
        self._require_rank()
        return scale_mixture(self._form)

    def laplace(self) -> Moments:
        """The Gaussian at the mode with the inverse Hessian there; exact for a quadratic loss."""
        if self.closed_form is not None:
            return self.closed_form
        return Moments(self.mode(), ((covariance := np.linalg.inv(self.modal_hessian)) + covariance.T) / 2)

    def hessian(self, x: npt.ArrayLike) -> Array:
        """∇²f(x) = Aᵀ diag(wℓ″) A + Λ, dense; summed in float64 where it is the posterior's precision, or float32 would
        spoil it.
        """
        point = self._point(x)
        curvature, prior = self.row_curvatures(x), self.prior_curvature(point[0])
        quick = self._gram(curvature, prior, point, precise=self.quadratic)
        if self.quadratic or self.rows.dtype == np.float64 or least_eigenvalue(quick) > _FLOAT32:
            return quick
        return self._gram(curvature, prior, point, precise=True)

    def _gram(self, curvature: Array, bend: Array, point: Array | None = None, precise: bool = False) -> Array:
        """Aᵀ diag(curvature) A + diag(bend); `point`: where these are the curvatures, or None for bounds on them."""
        bent, what = np.diag(bend), "a bound on ∇²f" if point is None else "∇²f"

        def gram(_: Any) -> Array:
            made: Array = recorded(lambda: self.rows.gram(curvature, precise=precise), bent.shape, curvature)
            return made + bent

        return self._known(what, point, gram)

    def expansion(self, x: Array) -> RowExpansion:
        """Hᵢ = n wᵢℓ″ aᵢaᵢᵀ at x, without the prior, which is never subsampled."""
        curvature = self.row_curvatures(x)
        return RowExpansion(self.rows.gram(curvature), self.n * curvature, self._form)

    def importance(self) -> Array:
        """wᵢ|aᵢ|, mixed with a tenth of even weights: then the largest component counts no more than their mean."""
        return mixed(self._form.weighed(np.sqrt(self.rows.squared_norms())))

    def hessian_product(self, x: npt.ArrayLike, direction: Array) -> Array:
        """∇²f(x)·direction in two passes over the rows, with no dim × dim matrix."""
        curvature, bend = self.row_curvatures(x), self.prior_curvature(self._point(x)[0])
        return self._known("a product", self._point(x), lambda _: self.curved_product(curvature, direction, bend))

    def row_lengths(self, whitening: Any) -> Array:
        """|Wᵀaᵢ| of every row, found once for a whitening."""
        if self._lengths is None or self._lengths[0] is not whitening:
            self._lengths = (whitening, self.rows.whitened_lengths(whitening))
        return self._lengths[1]

    def mode(self) -> Array:
        """The heaviest of the modes, found once."""
        return self._mode.copy()

    def modes(self) -> Array:
        """One by Newton's method (`svrhmc.targets.mode`), and where f need not be convex others (`minima.py`)."""
        return self.minima.points.copy()

    @property
    def mode_starts(self) -> str:
        """Those of the minima."""
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
            return Minima(self.closed_form.mean[None, :], 0.0, "a formula")
        found = self.minimum()
        if not self.convex_components and self.dim <= DENSE_DIM:
            found = self._others(found.first, found.passes)
        self.mode_passes = found.passes
        return found

    def minimum(self) -> Minima:
        """One of the minima, by Newton's method."""
        self._require_rank()
        search = ModeSearch(self)
        return Minima(search.find()[None, :], search.passes, "one start")

    def _others(self, mode: Array, passes: float) -> Minima:
        """Besides a mode: by the profile of a shared parameter, or else around the mode and that of a weak prior."""
        found = self._scanned(mode)
        if found is not None:
            starts = np.array(found.others).reshape(-1, self.dim)
            return minima_from(self, mode, starts, f"a profile {found}", passes + found.passes)
        nanoseconds = self.n * (_OF_LOSS + self.row_entries)
        return minima_around(self, mode, self._weak_mode(mode), nanoseconds, passes)

    @cached_property
    def _profile(self) -> Profile | None:
        """Along the shared parameter, from the mode."""
        return self._scanned(self._mode)

    def _scanned(self, mode: Array) -> Profile | None:
        found = profile(self, mode) if convex_given_shared(self) else None
        self.__dict__["_profile"] = found
        return found

    def _weak_mode(self, mode: Array) -> Array:
        """The mode under normal priors, weak beside the rows, in place of the ψⱼ: (1, dim), or none."""
        if self.heavy is None:
            return np.zeros((0, self.dim))
        columns = self.heavy.columns
        weak, mean = self.prior_precision.copy(), self.prior_mean.copy()
        weak[columns] = _WEAK * np.abs(np.diag(self.hessian(mode)) - self.prior_curvature(mode))[columns]
        mean[columns] = self.heavy.location
        other = GeneralisedLinear(self.rows, self.y, self.loss, weak, mean, self.offset, self.weights)
        try:
            return ModeSearch(other).find(_ROUGH)[None, :]
        except (ValueError, RuntimeError):
            return np.zeros((0, self.dim))

    def feet(self, mode: Array) -> tuple[Array, Array]:
        """By the ψⱼ."""
        location, wider = super().feet(mode)
        if self.heavy is not None:
            location[self.heavy.columns] = self.heavy.location
            wider = self.heavy.feet(mode, np.asarray(np.linalg.inv(self.hessian(mode)), np.float64))
        return location, wider

    def warm(self) -> None:
        """Compile, or load, what passes over the rows need, so that it is not timed with them."""
        self.rows.warm(self.loss, self._labels)

    @property
    def _labels(self) -> Labels:
        return Labels(self.y, self.offset, self.weights)

    def share(self, chosen: Indices, prior_precision: Array) -> GeneralisedLinear:
        """The model of some of its rows, with another prior precision."""
        rows, (y, offset, weights) = self.rows.choose(chosen), self._labels.chosen(chosen)
        return GeneralisedLinear(rows, y, self.loss, prior_precision, self.prior_mean, offset, weights)

    def guess(self) -> Array | None:
        """Where the search for the mode starts: the least squares fit to the predictors that the labels alone would
        have, weighed by the curvature there. Where the loss has no such predictors, or columns are too many, shared
        parameters alone start where the labels say; None where there are none of these.
        """
        if (t := self.loss.start(self.y)) is None or self.dim > DENSE_DIM:
            shared = self.loss.shared_start(self.y)
            return np.concatenate([np.zeros(self.dim - len(shared)), shared]) if len(shared) else None
        from scipy.linalg import cho_factor, cho_solve

        curvature = self._form.curvatures(t)
        pull = curvature * (t if self.offset is None else t - self.offset)
        force = self.rows.combine(pull[None, :])[0] + self.prior_precision * self.prior_mean
        gram = recorded(lambda: self.rows.gram(curvature, precise=True), (self.dim, self.dim), curvature)
        gram = gram + np.diag(self.prior_precision)
        try:
            with piece(CHOLESKY * self.dim**3):
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
        values: Array = recorded(lambda: self._form.values(self._form.predictors(x)).sum(axis=1), (len(x),), x)
        return values + self._prior_potential(x)

    def _prior_potential(self, x: Array) -> Array:
        away = x - self.prior_mean
        prior: Array = 0.5 * contract("cd,cd,d->c", away, away, self.prior_precision)
        return prior if self.heavy is None else prior + self.heavy.value(x)

    def energies(self, x: Array) -> tuple[Array, Array]:
        """From the same predictors, where rows are few; else by one pass where there is one for both."""
        if not self._form.is_small:
            return self._by_pass(x) if self.rows.one_pass(self.loss) else super().energies(x)
        t = self._form.predictors(x)
        slopes = self.assemble(self.n * self._form.slopes(t), None)
        return self._form.values(t).sum(axis=1) + self._prior_potential(x), slopes + self.prior_gradient(x)

    def _by_pass(self, x: Array) -> tuple[Array, Array]:
        from svrhmc.targets.passes import RowsPass

        by_rows = RowsPass(self.rows.seen_once, self.loss, self._labels)
        values, slopes = once(lambda: by_rows(x), (len(x),), x.shape, of=x)
        return values + self._prior_potential(x), slopes + self.prior_gradient(x)

    def gradients(self, x: Array) -> Array:
        """Aᵀ(wℓ′) + Λ(x − p)."""

        def of_rows() -> Array:
            combined = self.rows.slopes_combined(self.loss, x, self._labels)
            return self.assemble(self.parts(x, None), None) if combined is None else combined

        slopes: Array = recorded(of_rows, x.shape, x)
        return slopes + self.prior_gradient(x)

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """nwᵢℓ′(tᵢ, yᵢ): one number a row."""
        if indices is None:
            return self.n * self._form.slopes(self._form.predictors(x))
        return self.n * self._form.slopes(self._form.predictors_at(x, indices), indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """(1/B) Σ_b part_b a_{i_b}."""
        if indices is None:
            return self.rows.combine(parts / self.n)
        return self.rows.combine_at(parts / indices.shape[1], indices)

    def prior_gradient(self, x: Array) -> Array:
        """Λ(x − p) + ψ′."""
        slope = (x - self.prior_mean) * self.prior_precision
        return slope if self.heavy is None else slope + self.heavy.slope(x)

    def _require_posterior(self) -> None:
        """A flat prior on separable data, or on columns that depend on each other, has no posterior."""
        if self.prior_strength.min() == 0:
            self._require_rank()
            self.mode()  # says so where the data are separable

    def require_decided(self) -> None:
        """By the mode, where flat columns are too many for a proof (`proper.py`)."""
        if not self.determined:
            self._require_posterior()

    def _require_rank(self) -> None:
        """Refuse columns that depend on each other where the prior is flat; where it is not, only if H is known."""
        if self.determined or (self.prior_strength.min() > 0 and not (self.quadratic and self.dim <= DENSE_DIM)):
            return
        curvature = self.row_curvatures(np.zeros(self.dim))
        if not self.loss.convex:  # then any curvature will do that no row has below 0
            curvature = self._form.bounded(self._form.weighed(np.ones(self.n)))
        if self.dim > DENSE_DIM:
            require_rank_by_products(self, curvature, self.rows.squares(curvature) + self.prior_strength)
        else:
            require_rank(self, self._gram(curvature, self.prior_strength, precise=True))

    def runs_off(self, x: Array, direction: Array) -> bool:
        """Whether, from x on, no row's loss grows along a direction in which the prior is flat.

        Rows in the plane that separates move a little, by rounding: a little of what those do that bend f along it.
        """
        t, along = self._form.predictors(x[None, :])[0], self.rows.predict(direction[None, :])[0]
        form, slopes = self._form, self._form.slopes(t)
        bend = form.along(form.turned(form.curvatures(t), along), along)
        typical = float(bend @ form.largest(along)) / max(float(bend.sum()), 1e-300)
        return bool((form.along(slopes, along) <= _IN_PLANE * typical * form.largest(slopes)).all())

    def _with_quadratic(self, strength: float, centre: Array) -> GeneralisedLinear:
        """The prior and the quadratic together are one Gaussian."""
        precision = self.prior_precision + strength
        mean = (self.prior_precision * self.prior_mean + strength * centre) / precision
        return GeneralisedLinear(self.rows, self.y, self.loss, precision, mean, self.offset, self.weights, self.heavy)

    def factor(self, x: Array) -> Any:
        """Cholesky factor of the Hessian, for scipy's cho_solve; refused where the posterior is improper."""
        from scipy.linalg import cho_factor

        hessian = self.hessian(x)
        try:
            with piece(CHOLESKY * self.dim**3):
                return cho_factor(hessian)
        except np.linalg.LinAlgError:
            raise no_density(self) from None

    def row_curvatures(self, x: npt.ArrayLike) -> Array:
        """wᵢℓ″ of every row at x."""
        form = self._form
        return self._known("ℓ″ of a row", self._point(x), lambda at: form.curvatures(form.predictors(at)[0]))

    def operator(self, curvature: Array, bend: Array) -> Any:
        """Aᵀ diag(curvature) A + diag(bend) as scipy's linear operator."""
        from scipy.sparse.linalg import LinearOperator

        shape = (self.dim, self.dim)
        return LinearOperator(shape, matvec=lambda p: self.curved_product(curvature, p, bend), dtype=np.float64)

    def preconditioner(self, curvature: Array, bend: Array) -> Any:
        """The inverse of that operator's diagonal, where rows are sparse."""
        from scipy.sparse import diags

        return None if self.rows.storage == "dense" else diags(1 / (self.rows.squares(curvature) + bend))

    def curved_product(self, curvature: Array, direction: Array, bend: Array) -> Array:
        """(Aᵀ diag(curvature) A + diag(bend))·direction."""
        row = np.asarray(direction, np.float64).reshape(1, -1)

        def of_rows() -> Any:
            return self.rows.combine(self._form.turned(curvature, self.rows.predict(row)))[0]

        product: Array = recorded(of_rows, (self.dim,), row)
        return np.asarray(product + row[0] * bend)

    @cached_property
    def _modal_curvature(self) -> float:
        return self._extreme_eigenvalue("LA", self.row_curvatures(self._mode), self.prior_curvature(self._mode))

    def _extreme_eigenvalue(self, which: str, curvature: Array, bend: Array) -> float:
        """λ_max ("LA") or λ_min ("SA") of Aᵀ diag(curvature) A + diag(bend): dense up to DENSE_DIM columns, Lanczos
        beyond, where λ_min may be known only to be no less than the bend.
        """
        if self.dim <= DENSE_DIM:
            return float(np.linalg.eigvalsh(self._gram(curvature, bend))[-1 if which == "LA" else 0])
        product = self.operator(curvature, bend).matvec
        if which == "LA":
            return largest_eigenvalue(product, self.dim)
        found = smallest_eigenvalue(product, self.dim)
        return float(bend.min()) if found is None else found
