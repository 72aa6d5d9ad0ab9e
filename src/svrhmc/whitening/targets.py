"""Targets in whitened variables: the same target, seen through x = x̂ + W z."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from svrhmc.core.arrays import Array, Indices, digest
from svrhmc.core.errors import requirement
from svrhmc.core.lanczos import largest_eigenvalue
from svrhmc.core.randomness import mix_with_uniform
from svrhmc.core.recording import compute_once
from svrhmc.density.base import Expansion, FiniteSum, Moments
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.rows.base import Labels
from svrhmc.rows.forms import Form, Removed, RowsForm, functions_of
from svrhmc.whitening.maps import Map, Whitening

if TYPE_CHECKING:
    from svrhmc.rows.passes import RowsPass


Space = Any  # a target in whitened variables: `Whitened`, with what the target itself has, rows or functions


@dataclass(frozen=True, eq=False)
class Region:
    """Mᵢ = third·sharesᵢ where |z| ≤ radius; shares are None where the radius is ∞ and all Mᵢ are the same.

    rows: what a step is expected to evaluate.
    """

    radius: float
    third: float
    shares: Array | None
    rows: float


class Whitened(FiniteSum):
    """Any target in other variables, by the chain rule: f(T(z)) − log |det T′(z)| and its gradient."""

    unbounded = "the smoothness in whitened variables is not known"
    identity_hessian: bool = False  # whether the Hessian at the mode is known to be the identity

    def __init__(self, target: FiniteSum, how: Map) -> None:
        self.target, self.map = target, how
        self.n, self.dim, self.row_size = target.n, target.dim, target.row_size
        self.scalar_parts = target.scalar_parts
        functions = functions_of(target.form())
        self._functions = replace(functions, whitening=how) if functions is not None else None
        self.identity_hessian = functions is not None and self.whitening.identity_hessian

    def __repr__(self) -> str:
        return f"whitened({self.target!r})"

    @property
    def whitening(self) -> Whitening:
        """The map, where it is linear."""
        if not isinstance(self.map, Whitening):
            raise requirement("whitening", "a map x = centre + W z for this", repr(self.map))
        return self.map

    @property
    def typical_curvature(self) -> float:
        """1 where the Hessian at the mode is the identity."""
        return 1.0 if self.identity_hessian else super().typical_curvature

    def form(self) -> Form | None:
        """Of a model of JAX functions: these, with the map."""
        return self._functions

    def identity(self) -> dict[str, object]:
        """The target, and the map."""
        arrays = self.whitening.arrays()
        return {**self.target.identity(), "whitening": self.whitening.kind, "map": digest(*arrays.values())}

    @property
    def row_nanoseconds(self) -> float | None:  # type: ignore[override]
        """As in the target's own variables."""
        return self.target.row_nanoseconds

    @property
    def convex_components(self) -> bool:
        """As in the target's own variables, where the map is linear."""
        return isinstance(self.map, Whitening) and self.target.convex_components

    @property
    def row_entries(self) -> float:
        return self.target.row_entries

    def third_sums(self, radius: float | None) -> tuple[float, float, float] | None:
        """R, a factor of all bounds on ℓ‴ where |z| ≤ R, and the sum over rows of bound times |Wᵀaᵢ|³, where that is
        found by passes; else None. radius: R, or None for one of its own.
        """
        return None

    def prepare(self) -> None:
        """Find what takes passes over the rows and every sampler needs; nothing where rows are in memory."""
        return

    def into(self, x: Array) -> Array:
        """z of x."""
        return self.map.into(x)

    def out(self, state: Array, first: int = 0) -> Array:
        """x of z."""
        return self.map.out(state, first)

    @property
    def closed_form(self) -> Moments | None:
        """The Gaussian in z where it is one in x, and the map is linear."""
        law = self.target.closed_form
        if law is None or not isinstance(self.map, Whitening):
            return None
        centre = self.map.centre
        covariance = self.into(self.into(law.covariance + centre).T + centre)
        return Moments(self.into(law.mean), covariance)

    def mode(self) -> Array:
        """z of the mode in x."""
        state: Array = self.into(self.target.mode())
        return state

    def potentials(self, x: Array) -> Array:
        """f(T(z)) − log |det T′(z)|."""
        value, determinant = self.target.potentials(self.out(x)), self.map.log_determinant(x)
        return value if determinant is None else value - determinant[0]

    def energies(self, z: Array) -> tuple[Array, Array]:
        """f and its gradient, by one pass where the target has one."""
        value, slope = self.target.energies(self.out(z))
        pulled, determinant = self.map.pulled(z, slope), self.map.log_determinant(z)
        return (value, pulled) if determinant is None else (value - determinant[0], pulled - determinant[1])

    def gradients(self, x: Array) -> Array:
        """T′(z)ᵀ∇f(T(z)) − ∇ log |det T′(z)|."""
        pulled, determinant = self.map.pulled(x, self.target.gradients(self.out(x))), self.map.log_determinant(x)
        return pulled if determinant is None else pulled - determinant[1]

    def parts(self, x: Array, indices: Indices | None) -> Array:
        return self.target.parts(self.out(x), indices)

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """Those of the target, pulled back."""
        return self.whitening.pull(self.target.assemble(parts, indices))

    def prior_gradient(self, x: Array) -> Array:
        """That of the target, pulled back."""
        return self.whitening.pull(self.target.prior_gradient(self.out(x)))

    def _with_quadratic(self, strength: float, centre: Array) -> FiniteSum:
        raise requirement("target", "one in its own coordinates: regularise it first, then whiten it", repr(self))


class WhitenedRows(Whitened):
    """A generalised linear model in the variables z = W⁻¹(x − x̂), each component freed of its first orders at x̂.

        f(x̂ + W z) = bᵀz + ½ zᵀM z + Σᵢ ρᵢ(aᵢᵀW z) + constant,          b = Wᵀ∇f(x̂),  t̂ᵢ = oᵢ + aᵢᵀx̂,

        dense W:   M = I,       ρᵢ(u) = wᵢ(ℓ(t̂ᵢ + u) − ℓ(t̂ᵢ) − ℓ′(t̂ᵢ)u − ½ℓ″(t̂ᵢ)u²),
        else:      M = WᵀΛW,    ρᵢ(u) = wᵢ(ℓ(t̂ᵢ + u) − ℓ(t̂ᵢ) − ℓ′(t̂ᵢ)u).

    Priors ψ that are not normal have their curvature at x̂ in M = I, or are beside M, and the rest of their gradient is
    added exactly. The part before the sum is never subsampled. So `Minibatch` here is `ControlVariate` in the user's
    coordinates: of order 2 for a dense W, of order 1 for the others.
    """

    target: GeneralisedLinear

    def __init__(self, target: GeneralisedLinear, how: Whitening, force: Array | None = None) -> None:
        """force: −Wᵀ∇f(x̂), where it is known."""
        super().__init__(target, how)
        self.identity_hessian = how.identity_hessian  # M = I
        self.modal_first = how.identity_hessian  # curvatures at the mode are known, bounds take passes over the rows
        self.rows_form, kind = target.form(), target.rows.dtype
        found = target.predictors_at_centre(how.centre)
        self._float64_predictors: Array = found[0]  # t̂ᵢ in float64; `predictors` are those of the rows' precision
        self.predictors: Array = found[0].astype(kind, copy=False).astype(np.float64, copy=False)
        self.slopes: Array = self.rows_form.slopes(self.predictors)
        self.curvatures: Array = self.rows_form.curvatures(self.predictors)
        self.force = -how.pull(target.gradient_at_centre(how.centre)) if force is None else force

    def form(self) -> RowsForm:
        """The target's, with the map and what was taken out; made once."""
        return self._form

    @cached_property
    def _form(self) -> RowsForm:
        removed = Removed(
            self.predictors,
            self.slopes,
            self.curvatures if self.identity_hessian else np.zeros_like(self.curvatures),
            self.identity_hessian,
            self.force,
        )
        return replace(self.rows_form, whitening=self.whitening, removed=removed)

    @cached_property
    def smoothness(self) -> float:
        """λ_max(Wᵀ(c Aᵀ diag(w) A + Λ)W), c the loss's largest curvature: a bound."""
        bounds = self.rows_form.isotropic_curvatures(self.target.curvature_bounds())
        return self._largest_eigenvalue(bounds, self.target.prior_bounds()[1])

    @cached_property
    def component_smoothness(self) -> float:
        """max_i n c wᵢ|Wᵀaᵢ|² + λ_max(M)."""
        largest = float((self.target.curvature_bounds() * self.row_norms**2).max())
        prior = self.target.prior_bounds()[1]
        quadratic = 1.0 if self.identity_hessian else self._largest_eigenvalue(0.0 * self.curvatures, prior)
        return self.n * largest + quadratic

    @property
    def convexity(self) -> float:
        """What the prior alone guarantees, where W is diagonal; else nothing is known."""
        least = self.target.prior_bounds()[0]
        return self.whitening.least_square(least) if least.min() >= 0 else 0.0

    def energies(self, z: Array, threads: int | None = None, valued: bool = True) -> tuple[Array, Array]:
        """Of many rows by one pass, in which tᵢ = t̂ᵢ + aᵢᵀu, u = W z, with products in the rows' precision.

        In float32 f may lack a constant of the labels. threads: that share a pass; all cores for None. f is 0 unless
        `valued`.
        """
        rows_pass = self._pass
        if rows_pass is None:
            return super().energies(z)
        u, target = self.whitening.displace(z), self.target
        values, slopes = compute_once(lambda: rows_pass(u, valued, threads), (len(z),), z.shape, depends_on=z)
        u += self.whitening.centre
        slopes += target.prior_gradient(u)
        return values + target.prior_potential(u) if valued else values, self.whitening.pull(slopes)

    @cached_property
    def _pass(self) -> RowsPass | None:
        """Where rows are so many that passes over them are compiled; else None."""
        form = self.rows_form
        if form.is_small or form.loss.kernel is None or form.rows.design_matrix.compiled is None:
            return None
        from svrhmc.rows.passes import RowsPass

        labels = Labels(form.y, self.predictors, form.weights)
        return RowsPass(form.rows.design_matrix, form.loss, labels, form.rows.dtype)

    def curvature_range(self, bound: bool) -> tuple[float, float] | None:
        """Bounds, or those at the mode: 1 for a dense W."""
        if bound:
            return None if self.target.loss.curvature_bound is None else (self.convexity, self.smoothness)
        return (
            (1.0, 1.0)
            if self.identity_hessian
            else (self.convexity, self._largest_eigenvalue(self.curvatures, self._prior_curvature))
        )

    def parts(self, x: Array, indices: Indices | None) -> Array:
        """nρᵢ′: one number a row."""
        at, target = self.whitening.displace(x), self.target
        u = target.rows.predict(at) if indices is None else target.rows.predict_at(at, indices)
        chosen = slice(None) if indices is None else indices
        rest = self.rows_form.slopes(self.predictors[chosen] + u, chosen) - self.slopes[chosen]
        return self.n * (
            rest - self.rows_form.slope_changes(self.curvatures[chosen], u) if self.identity_hessian else rest
        )

    def assemble(self, parts: Array, indices: Indices | None) -> Array:
        """(1/B) Σ_b part_b Wᵀa_{i_b}."""
        return self.whitening.pull(self.target.assemble(parts, indices))

    def prior_gradient(self, x: Array) -> Array:
        """b + M z, and what is left of ψ′."""
        heavy, how = self.rows_form.heavy, self.whitening
        if self.identity_hessian and heavy is None:
            return x - self.force
        u = how.displace(x)
        slope = u * self.target.prior_precision
        if heavy is not None:
            slope = slope + (heavy.slope(how.centre + u) - heavy.slope(how.centre))
        if self.identity_hessian:
            return x + how.pull(slope - u * self._prior_curvature) - self.force
        return how.pull(slope) - self.force

    @property
    def _prior_curvature(self) -> Array:
        """Λ + ψ″ at the centre."""
        return self.rows_form.prior_curvature(self.whitening.centre)

    def prior_remainder(self, x: Array) -> Array:
        """Σⱼ ψⱼ less its first two orders at the centre, at some states."""
        heavy, u, centre = self.rows_form.heavy, self.whitening.displace(x), self.whitening.centre
        if heavy is None:
            return np.zeros(len(x))
        taken = u * (heavy.slope(centre) + heavy.curvature(centre) * u / 2)
        rest: Array = heavy.value(centre + u) - heavy.value(centre) - taken.sum(axis=-1)
        return rest

    def expansion(self, x: Array) -> Expansion:
        """None is left at the mode where W is dense."""
        if not self.identity_hessian or x.any():
            return super().expansion(x)
        return _NoExpansion(np.zeros((self.dim, self.dim)), self.predictors.shape[1:])

    def laplace(self) -> Moments:
        """N(0, I) for a dense W."""
        return Moments(np.zeros(self.dim), np.eye(self.dim)) if self.identity_hessian else super().laplace()

    def importance(self) -> Array:
        """wᵢ|ℓ‴||Wᵀaᵢ|³, the size of a third-order term, mixed with a tenth of even weights."""
        form, one = self.rows_form, self.curvatures
        if form.weights is not None:
            one = form.loss.curvature(self.predictors, form.y)
        third = form.loss.third_size(form.curvature_norms(one))
        return mix_with_uniform(form.multiply_by_weights(third) * self.row_norms**3)

    def spaced(self, count: int) -> tuple[WhitenedRows, Indices, Array]:
        """Rows at even distances in the order of all of them, measured by their probabilities, without chance; with the
        target that has them, and weights with which sums over them stand for those over all rows.
        """
        probability = self.row_table[2]
        places = (np.arange(count) + 0.5) / count
        rows = np.minimum(np.searchsorted(np.cumsum(probability), places), self.n - 1)
        return self, rows, 1 / (count * probability[rows])

    @cached_property
    def curvature_noise(self) -> float:
        """V₁ = Σᵢ |WᵀHᵢW|²_F/(Pᵢ dim), of rows drawn by importance: what the curvature of one varies by."""
        at_mode = (self.curvatures, self.row_norms, self.row_table[2], self.whitening)
        return self.rows_form.curvature_noise(*at_mode) / self.dim

    @cached_property
    def row_norms(self) -> Array:
        """|Wᵀaᵢ| of every row."""
        return self.target.row_lengths(self.whitening)

    def _largest_eigenvalue(self, curvature: Array, bend: Array) -> float:
        def product(z: Array) -> Array:
            return self.whitening.pull(self.target.curved_product(curvature, self.whitening.displace(z), bend))

        if self.dim <= 3:
            return float(np.linalg.eigvalsh(np.array([product(row) for row in np.eye(self.dim)]))[-1])
        return largest_eigenvalue(product, self.dim)


@dataclass(frozen=True, eq=False)
class _NoExpansion(Expansion):
    """All second derivatives are 0."""

    hessian: Array
    tail: tuple[int, ...]  # numbers of a part, where it has several

    def parts(self, away: Array, indices: Indices) -> Array:
        """0 for each."""
        return np.zeros((*indices.shape, *self.tail))


WhitenedComponents = Whitened


def pass_of(target: WhitenedRows) -> RowsPass | None:
    """The compiled pass over the rows of a target (`svrhmc.rows.passes.RowsPass`), where there is one; else None."""
    return target._pass


def is_whitened(target: FiniteSum) -> bool:
    """Whether a target is in whitened variables already."""
    return isinstance(target, Whitened)
