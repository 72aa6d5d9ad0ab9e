"""What a target is made of, as plain data that engines, exact samplers, theory and `sample` read.

A form has a `kind` and the arrays of the target. A target whose structure is not known has no form: its `form()` is
None, and only its methods can be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices, Selection, contract, cores
from svrhmc.families.base import Loss
from svrhmc.priors.terms import Heavy, Terms
from svrhmc.rows.base import LinearMap, Rows

if TYPE_CHECKING:
    from jax.sharding import Mesh

ALL = slice(None)
_BLOCK = 4096  # rows
_SMALL, _LOSS = 1 << 17, 16  # entries up to which rows are small; the cost of the loss of a row, in entries
_SAMPLED = 1024  # rows from which a sum over all of them is estimated


@dataclass(frozen=True, eq=False)
class Removed:
    """The Taylor terms at the centre x̂ of the variables that are taken out of every row's loss.

    With t̂ᵢ = oᵢ + aᵢᵀx̂ in `predictors`, the slope of a row at t̂ᵢ + u becomes wᵢℓ′(t̂ᵢ + u) − slopesᵢ − curvaturesᵢ·u.
    The curvatures are 0 unless second orders are taken out too. The sum of these terms is added back without
    subsampling, as bᵀz with b = −`force`, and with second orders also ½|z|².
    """

    predictors: Array
    slopes: Array
    curvatures: Array
    second_order: bool
    force: Array


class Energies(NamedTuple):
    """Σ wℓ and Σ wℓ′a at several states, (states,) and (states, dim)."""

    values: Array
    gradients: Array

    def __add__(self, other: Energies) -> Energies:  # type: ignore[override]
        return Energies(self.values + other.values, self.gradients + other.gradients)


class Derivatives(NamedTuple):
    """Σ wℓ, Σ wℓ′a and Σ wℓ″aaᵀ at one state."""

    value: Array
    gradient: Array
    hessian: Array

    def __add__(self, other: Derivatives) -> Derivatives:  # type: ignore[override]
        return Derivatives(*(own + more for own, more in zip(self, other, strict=True)))


class Squares(NamedTuple):
    """Σ w, and Σ w(a, e)(a, e)ᵀ with e = y − o − aᵀβ."""

    weight: Array
    gram: Array

    def __add__(self, other: Squares) -> Squares:  # type: ignore[override]
        return Squares(self.weight + other.weight, self.gram + other.gram)


@dataclass(frozen=True, eq=False)
class RowsForm:
    """f(x) = Σᵢ wᵢℓ(tᵢ, yᵢ) + ½(x − p)ᵀΛ(x − p) + Σⱼ ψⱼ(xⱼ) with tᵢ = oᵢ + aᵢᵀx, where x = z or, with a whitening,
    x = x̂ + W z, and without the terms in `removed`. The ψⱼ are in `heavy`, None where all priors are normal or flat.

    Where a row has m predictors (`svrhmc.rows.predictors`), its slope has m numbers and its curvature m × m, on axes of
    their own (`Loss.predictor_shape`).

    `offset` and `weights` are None where all oᵢ are 0 and all wᵢ are 1. A component is fᵢ = n wᵢℓ(tᵢ, yᵢ) + the prior,
    where n is the number of rows whatever their weights. So a weight multiplies the value, slope and curvature of a
    row, and only the methods below have to know of it.
    """

    kind: ClassVar[str] = "rows"
    rows: Rows
    y: Array
    loss: Loss
    prior_precision: Array
    prior_mean: Array
    whitening: Any = None  # a `LinearMap` with the methods of its own kind
    removed: Removed | None = None
    offset: Array | None = None
    weights: Array | None = None
    heavy: Heavy | None = None
    terms: Terms | None = None  # of the prior, that couple coordinates; their own parameters are the last coordinates

    @property
    def is_small(self) -> bool:
        """Whether a pass in plain NumPy is so quick that a run ends before compiled code would be ready."""
        return self.rows.in_memory and self.rows.n * (self.rows.entries + _LOSS) <= _SMALL

    def choose(self, places: Indices) -> RowsForm:
        """The same form of the chosen rows."""
        offset, weights = (None if values is None else values[places] for values in (self.offset, self.weights))
        return replace(self, rows=self.rows.choose(places), y=self.y[places], offset=offset, weights=weights)

    # Sums over the rows, for `Rows.reduce`.

    def energies(self, states: Array) -> Energies:
        """Values and gradients at several states, from the same predictors."""
        t = self.predictors(states)
        return Energies(self.values(t).sum(axis=1), self.gradients_at(t))

    def gradients_at(self, t: Array) -> Array:
        """Σ wℓ′a from all predictors: (states, rows) → (states, dim)."""
        return self.rows.combine(self.slopes(t))

    def derivatives(self, x: Array) -> Derivatives:
        """Value, gradient and Hessian at one state."""
        t = self.predictors(x[None, :])
        value = np.asarray(self.values(t).sum())
        return Derivatives(value, *self.rows.combine_and_gram(self.slopes(t)[0], self.curvatures(t)[0]))

    def squares(self, beta: Array) -> Squares:
        """The sufficient statistics of y ~ N(aᵀx, σ²), by residuals of β, so that no digits cancel."""
        rows = self.rows.design_matrix
        e = self.y - rows.predict(beta[None, :])[0] - (0.0 if self.offset is None else self.offset)
        w = np.ones(len(e)) if self.weights is None else self.weights
        gram = np.empty((rows.dim + 1, rows.dim + 1))
        gram[-1, :-1], gram[:-1, :-1] = rows.combine_and_gram(w * e, w)
        gram[:-1, -1] = gram[-1, :-1]
        gram[-1, -1] = float((w * e * e).sum())
        return Squares(np.asarray(w.sum()), gram)

    def log_prior(self, x: Array) -> Array:
        """−½Λ(x − p)² − ψ(x) of every coordinate: (…, dim), up to constants."""
        normal: Array = -0.5 * self.prior_precision * (x - self.prior_mean) ** 2
        return normal if self.heavy is None else normal - self.heavy.values(x)

    def prior_curvature(self, x: Array) -> Array:
        """Λ + ψ″ of every coordinate at one x."""
        return self.prior_precision if self.heavy is None else self.prior_precision + self.heavy.curvature(x)

    def predictors(self, x: Array) -> Array:
        """All tᵢ at states x in the user's variables: (chains, dim) → (chains, n)."""
        return self._add_offset(self.rows.predict(self._coefficients(x)), ALL)

    def predictors_at(self, x: Array, indices: Indices) -> Array:
        """tᵢ of the chosen rows: (chains, dim), (chains, batch) → (chains, batch)."""
        return self._add_offset(self.rows.predict_at(self._coefficients(x), indices), indices)

    def _coefficients(self, x: Array) -> Array:
        """The coefficients of the rows: all coordinates but the parameters of prior terms."""
        return x if self.terms is None else np.ascontiguousarray(x[..., : self.rows.dim])

    def _add_offset(self, t: Array, chosen: Selection) -> Array:
        """Predictors plus offsets, which enter the first predictor alone: classes and shared parameters have none."""
        if self.offset is None:
            return t
        shifted: Array = t if self.loss.predictor_shape else t + self.offset[chosen]
        if self.loss.predictor_shape:
            shifted[..., 0] += self.offset[chosen]
        return shifted

    def values(self, t: Array, chosen: Selection = ALL) -> Array:
        """wᵢℓ(tᵢ, yᵢ) of all rows, or of the chosen ones."""
        return self._evaluate_rows(self.loss.value, t, chosen, 0)

    def constants(self, chosen: Selection = ALL) -> Array:
        """The part of −log p(yᵢ | tᵢ) that is not in wᵢℓ(tᵢ, yᵢ) and does not depend on t."""
        weights = None if self.weights is None else self.weights[chosen]
        constant = self.loss.constant(self.y[chosen], weights)
        return constant if self.loss.weights_are_trials or weights is None else constant * weights

    def slopes(self, t: Array, chosen: Selection = ALL) -> Array:
        """wᵢℓ′(tᵢ, yᵢ)."""
        return self._evaluate_rows(self.loss.slope, t, chosen, 1)

    def curvatures(self, t: Array, chosen: Selection = ALL) -> Array:
        """wᵢℓ″(tᵢ, yᵢ)."""
        return self._evaluate_rows(self.loss.curvature, t, chosen, 2)

    def multiply_by_weights(self, values: Array, chosen: Selection = ALL, predictor_axes: int = 0) -> Array:
        """Values of rows times their weights; predictor_axes: how many last axes of the values are of predictors."""
        if self.weights is None:
            return values
        weighted: Array = values * self.weights[chosen][(..., *(None,) * predictor_axes)]
        return weighted

    def slope_changes(self, curvatures: Array, u: Array) -> Array:
        """Cᵢuᵢ: the changes of slopes for changes u of the predictors, to first order."""
        return contract("...ab,...b->...a", curvatures, u) if self.loss.predictor_shape else curvatures * u

    def value_changes(self, slopes: Array, u: Array) -> Array:
        """sᵢ·uᵢ: the changes of values for changes u of the predictors, to first order."""
        total: Array = (slopes * u).sum(axis=-1) if self.loss.predictor_shape else slopes * u
        return total

    def largest_by_row(self, values: Array) -> Array:
        """The largest |value| of each row over its linear predictors."""
        largest: Array = np.abs(values).max(axis=-1) if self.loss.predictor_shape else np.abs(values)
        return largest

    def curvature_norms(self, curvatures: Array) -> Array:
        """|Cᵢ| of each row; for matrices the Frobenius norm, which is at least the operator norm."""
        return (
            np.asarray(np.sqrt((curvatures**2).sum(axis=(-2, -1))), np.float64)
            if self.loss.predictor_shape
            else curvatures
        )

    def curvature_noise(self, curvatures: Array, lengths: Array, probabilities: Array, whitening: LinearMap) -> float:
        """Σᵢ |WᵀHᵢW|²_F/Pᵢ with Hᵢ = Cᵢaᵢaᵢᵀ: the second moment of the curvature of one row drawn with probability Pᵢ.

        For several predictors Hᵢ = JᵢᵀCᵢJᵢ and |WᵀHᵢW|²_F = tr (CᵢGᵢ)², Gᵢ = JᵢWWᵀJᵢᵀ; the sum is then estimated from
        rows at evenly spaced quantiles of P, without randomness.
        """
        if not self.loss.predictor_shape:
            return float((curvatures**2 * lengths**4 / probabilities).sum())
        places = (np.arange(_SAMPLED) + 0.5) / _SAMPLED
        sampled = np.minimum(np.searchsorted(np.cumsum(probabilities), places), len(probabilities) - 1)
        jacobians = self.rows.jacobians(sampled)
        images = whitening.images(jacobians.reshape(-1, self.rows.dim)).reshape(jacobians.shape)
        products = curvatures[sampled] @ (images @ images.swapaxes(1, 2))
        squares = (products * products.swapaxes(1, 2)).sum(axis=(1, 2))
        return float((squares / probabilities[sampled] ** 2).mean())

    def isotropic_curvatures(self, norms: Array) -> Array:
        """Curvatures with these operator norms: the numbers themselves, or multiples of the identity for each row."""
        return norms[..., None, None] * np.eye(sum(self.loss.predictor_shape)) if self.loss.predictor_shape else norms

    def _evaluate_rows(
        self, function: Callable[[Array, Array], Array], t: Array, chosen: Selection, predictor_axes: int
    ) -> Array:
        """A function of the loss times the weights; over all rows of several predictors on all cores, in blocks that
        stay in a near cache.
        """

        def weighted(places: Selection, t: Array) -> Array:
            axes = predictor_axes if self.loss.predictor_shape else 0
            return self.multiply_by_weights(function(t, self.y[places]), places, axes)

        n = t.shape[-2] if self.loss.predictor_shape else 0
        if chosen is not ALL or n <= _BLOCK:
            return weighted(chosen, t)
        from concurrent.futures import ThreadPoolExecutor

        leading = (slice(None),) * (t.ndim - 2)

        def block(low: int) -> Array:
            places = slice(low, min(low + _BLOCK, n))
            return weighted(places, t[(*leading, places)])

        first = block(0)
        out = np.empty((*first.shape[: t.ndim - 2], n, *first.shape[t.ndim - 1 :]))
        out[(*leading, slice(0, _BLOCK))] = first

        def fill(low: int) -> None:
            out[(*leading, slice(low, low + _BLOCK))] = block(low)

        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(fill, range(_BLOCK, n, _BLOCK)))
        return out


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """fᵢ(x) = ½(x − aᵢ)ᵀSᵢ(x − aᵢ): the precisions Sᵢ (one S for all if `shared`), the forces Sᵢaᵢ, and their means."""

    kind: ClassVar[str] = "quadratic"
    whitening: ClassVar[None] = None
    precision: Array
    shared: bool
    forces: Array
    mean_precision: Array
    mean_force: Array


@dataclass(frozen=True, eq=False)
class ComponentsForm:
    """∇fᵢ(x) as a Python function of (x, indices)."""

    kind: ClassVar[str] = "components"
    whitening: ClassVar[None] = None
    gradients: Callable[[Array, Indices], npt.ArrayLike]


@dataclass(frozen=True, eq=False)
class FunctionsForm:
    """log p(row | x) and log p(x) as JAX functions (`models/functions.py`), with the rows, in whitened variables."""

    kind: ClassVar[str] = "functions"
    engine: ClassVar[str] = "jax"  # that runs it unless another one is asked for
    functions: Any  # `models.functions.Functions`
    data: object  # the rows, a tree of arrays
    whitening: Any = None  # a map of `svrhmc.whitening`

    @property
    def mesh(self) -> Mesh | None:
        """The devices over which the rows are distributed; None for a single device."""
        mesh: Mesh | None = self.functions.place.mesh
        return mesh


Form = RowsForm | QuadraticForm | ComponentsForm | FunctionsForm


def rows_of(form: Form | None) -> RowsForm | None:
    """The form if it is a `RowsForm`, otherwise None."""
    return form if isinstance(form, RowsForm) else None


def functions_of(form: Form | None) -> FunctionsForm | None:
    """The form if it is a `FunctionsForm`, otherwise None."""
    return form if isinstance(form, FunctionsForm) else None
