"""What a target is made of, as plain data: engines, exact samplers, theory and `sample` read it and ask no class.

A form says its `kind` and holds the arrays; a target whose structure is not known has none: its `form()` is None, and
its methods alone say what it is.
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
_SMALL, _LOSS = 1 << 17, 16  # entries of rows up to which they are few, and as many as a row's loss costs
_DRAWN = 1024  # rows from which a sum over all of them is estimated


@dataclass(frozen=True, eq=False)
class Removed:
    """What is taken from every row's loss at the centre x̂ of the variables: value and slope, and curvature too.

    With t̂ᵢ = oᵢ + aᵢᵀx̂ in `predictors`, a row's slope at t̂ᵢ + u is wᵢℓ′(t̂ᵢ + u) − slopesᵢ − curvaturesᵢ·u, curvatures
    being 0 where only the first orders are taken. `force` is −b: what was taken is put back, never subsampled, as bᵀz
    and, where curvatures were taken, ½|z|².
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
        return Derivatives(*(one + two for one, two in zip(self, other, strict=True)))


class Squares(NamedTuple):
    """Σ w, and Σ w(a, e)(a, e)ᵀ with e = y − o − aᵀβ."""

    weight: Array
    gram: Array

    def __add__(self, other: Squares) -> Squares:  # type: ignore[override]
        return Squares(self.weight + other.weight, self.gram + other.gram)


@dataclass(frozen=True, eq=False)
class RowsForm:
    """f(x) = Σᵢ wᵢℓ(tᵢ, yᵢ) + ½(x − p)ᵀΛ(x − p) + Σⱼ ψⱼ(xⱼ), tᵢ = oᵢ + aᵢᵀx; x = z or (with a whitening) x̂ + W z,
    less what is removed. The ψⱼ are in `heavy`, which is None where all priors are normal or flat.

    Where m predictors see a row (`svrhmc.rows.predictors`), its slope has m numbers and its curvature m × m, on axes of
    their own (`Loss.predictor_shape`).

    `offset` and `weights` are None where all oᵢ are 0 and all wᵢ are 1. A component is fᵢ = n wᵢℓ(tᵢ, yᵢ) + the prior,
    n being the number of rows whatever they weigh: so a weight multiplies a row's value, slope and curvature, and
    nothing but the methods below has to know of it.
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
    terms: Terms | None = None  # of the prior, that couple coordinates; the rows see the coordinates before theirs

    @property
    def is_small(self) -> bool:
        """Whether a pass in plain NumPy takes so little time that a run is over before code for it is compiled."""
        return self.rows.in_memory and self.rows.n * (self.rows.entries + _LOSS) <= _SMALL

    def chosen(self, places: Indices) -> RowsForm:
        """Some of its rows."""
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
        return Derivatives(value, *self.rows.combined_and_gram(self.slopes(t)[0], self.curvatures(t)[0]))

    def squares(self, beta: Array) -> Squares:
        """All that y ~ N(aᵀx, σ²) knows of the rows; with residuals of β in place of y no digits cancel."""
        rows = self.rows.seen_once
        e = self.y - rows.predict(beta[None, :])[0] - (0.0 if self.offset is None else self.offset)
        w = np.ones(len(e)) if self.weights is None else self.weights
        gram = np.empty((rows.dim + 1, rows.dim + 1))
        gram[-1, :-1], gram[:-1, :-1] = rows.combined_and_gram(w * e, w)
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
        """All tᵢ at some x, in the user's variables: (chains, dim) → (chains, n)."""
        return self._shifted(self.rows.predict(self._coefficients(x)), ALL)

    def predictors_at(self, x: Array, indices: Indices) -> Array:
        """The chosen tᵢ: (chains, dim), (chains, batch) → (chains, batch)."""
        return self._shifted(self.rows.predict_at(self._coefficients(x), indices), indices)

    def _coefficients(self, x: Array) -> Array:
        """The coefficients of the rows: all coordinates but the parameters of the prior's terms."""
        return x if self.terms is None else np.ascontiguousarray(x[..., : self.rows.dim])

    def _shifted(self, t: Array, chosen: Selection) -> Array:
        """The offset belongs to the first predictor, as the others have no exposure: classes, and shared parameters."""
        if self.offset is None:
            return t
        shifted: Array = t if self.loss.predictor_shape else t + self.offset[chosen]
        if self.loss.predictor_shape:
            shifted[..., 0] += self.offset[chosen]
        return shifted

    def values(self, t: Array, chosen: Selection = ALL) -> Array:
        """wᵢℓ(tᵢ, yᵢ) of all or of some rows."""
        return self._of_rows(self.loss.value, t, chosen, 0)

    def constants(self, chosen: Selection = ALL) -> Array:
        """What −log p(yᵢ | tᵢ) has beside wᵢℓ(tᵢ, yᵢ), which does not depend on t."""
        weights = None if self.weights is None else self.weights[chosen]
        constant = self.loss.constant(self.y[chosen], weights)
        return constant if self.loss.weights_are_trials or weights is None else constant * weights

    def slopes(self, t: Array, chosen: Selection = ALL) -> Array:
        """wᵢℓ′(tᵢ, yᵢ)."""
        return self._of_rows(self.loss.slope, t, chosen, 1)

    def curvatures(self, t: Array, chosen: Selection = ALL) -> Array:
        """wᵢℓ″(tᵢ, yᵢ)."""
        return self._of_rows(self.loss.curvature, t, chosen, 2)

    def weighed(self, values: Array) -> Array:
        """A number of every row, times its weight."""
        return values if self.weights is None else values * self.weights

    def turned(self, curvatures: Array, u: Array) -> Array:
        """Cᵢuᵢ: what rows' slopes change by, for changes u of their predictors."""
        return contract("...ab,...b->...a", curvatures, u) if self.loss.predictor_shape else curvatures * u

    def along(self, slopes: Array, u: Array) -> Array:
        """sᵢ·uᵢ: what rows' values change by."""
        total: Array = (slopes * u).sum(axis=-1) if self.loss.predictor_shape else slopes * u
        return total

    def largest(self, values: Array) -> Array:
        """The largest |value| of each row over its linear predictors."""
        sizes: Array = np.abs(values).max(axis=-1) if self.loss.predictor_shape else np.abs(values)
        return sizes

    def sizes(self, curvatures: Array) -> Array:
        """|Cᵢ|, a number for each row: of matrices the Frobenius norm, at least the operator norm."""
        return (
            np.asarray(np.sqrt((curvatures**2).sum(axis=(-2, -1))), np.float64)
            if self.loss.predictor_shape
            else curvatures
        )

    def curvature_noise(self, curvatures: Array, lengths: Array, probabilities: Array, whitening: LinearMap) -> float:
        """Σᵢ |WᵀHᵢW|²_F/Pᵢ, Hᵢ = Cᵢaᵢaᵢᵀ: what the curvature of one row, drawn with probability Pᵢ, varies by.

        For several predictors Hᵢ = JᵢᵀCᵢJᵢ, of which |WᵀHᵢW|²_F = tr (CᵢGᵢ)², Gᵢ = JᵢWWᵀJᵢᵀ: from some rows drawn with
        Pᵢ, in their order, without chance.
        """
        if not self.loss.predictor_shape:
            return float((curvatures**2 * lengths**4 / probabilities).sum())
        places = (np.arange(_DRAWN) + 0.5) / _DRAWN
        some = np.minimum(np.searchsorted(np.cumsum(probabilities), places), len(probabilities) - 1)
        jacobians = self.rows.jacobians(some)
        images = whitening.images(jacobians.reshape(-1, self.rows.dim)).reshape(jacobians.shape)
        products = curvatures[some] @ (images @ images.swapaxes(1, 2))
        squares = (products * products.swapaxes(1, 2)).sum(axis=(1, 2))
        return float((squares / probabilities[some] ** 2).mean())

    def bounded(self, sizes: Array) -> Array:
        """Curvatures of which these are the sizes: numbers, or multiples of the identity."""
        return sizes[..., None, None] * np.eye(sum(self.loss.predictor_shape)) if self.loss.predictor_shape else sizes

    def _of_rows(self, function: Callable[[Array, Array], Array], t: Array, chosen: Selection, axes: int) -> Array:
        """A function of the loss, weighed, which has so many axes of predictors: of all rows of several predictors in
        blocks that stay in a near cache, on all cores.
        """
        n = t.shape[-2] if self.loss.predictor_shape else 0
        if chosen is not ALL or n <= _BLOCK:
            return self._weighed(function(t, self.y[chosen]), chosen, axes)
        from concurrent.futures import ThreadPoolExecutor

        before = (slice(None),) * (t.ndim - 2)

        def block(low: int) -> Array:
            some = slice(low, min(low + _BLOCK, n))
            return self._weighed(function(t[(*before, some)], self.y[some]), some, axes)

        first = block(0)
        out = np.empty((*first.shape[: t.ndim - 2], n, *first.shape[t.ndim - 1 :]))
        out[(*before, slice(0, _BLOCK))] = first

        def fill(low: int) -> None:
            out[(*before, slice(low, low + _BLOCK))] = block(low)

        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(fill, range(_BLOCK, n, _BLOCK)))
        return out

    def _weighed(self, values: Array, chosen: Selection, axes: int) -> Array:
        if self.weights is None:
            return values
        weights = self.weights[chosen]
        weighed: Array = values * (
            weights.reshape(*weights.shape, *(1,) * axes) if self.loss.predictor_shape else weights
        )
        return weighed


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """fᵢ(x) = ½(x − aᵢ)ᵀSᵢ(x − aᵢ): S (one for all if `shared`), the forces Sᵢaᵢ, and the means of both."""

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
    engine: ClassVar[str] = "jax"  # which runs it, where nothing else is said
    functions: Any  # `models.functions.Functions`
    data: object  # the rows, a tree of arrays
    whitening: Any = None  # a map of `svrhmc.whitening`

    @property
    def mesh(self) -> Mesh | None:
        """The devices over which its rows are cut; None where they are not."""
        mesh: Mesh | None = self.functions.place.mesh
        return mesh


Form = RowsForm | QuadraticForm | ComponentsForm | FunctionsForm


def rows_of(form: Form | None) -> RowsForm | None:
    """The form itself where it is one of rows, else None."""
    return form if isinstance(form, RowsForm) else None


def functions_of(form: Form | None) -> FunctionsForm | None:
    """The form itself where it is one of JAX functions, else None."""
    return form if isinstance(form, FunctionsForm) else None
