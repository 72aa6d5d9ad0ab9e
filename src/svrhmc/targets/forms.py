"""What a target is made of, as plain data: engines, exact samplers, theory and `sample` read it and ask no class.

A form says its `kind` and holds the arrays; a target whose structure is not known has none: its `form()` is None, and
its methods alone say what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy.typing as npt

from svrhmc.core.arrays import Array, Indices
from svrhmc.targets.losses import Loss
from svrhmc.targets.priors import Heavy
from svrhmc.targets.rows import Rows

ALL = slice(None)


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


@dataclass(frozen=True, eq=False)
class RowsForm:
    """f(x) = Σᵢ wᵢℓ(tᵢ, yᵢ) + ½(x − p)ᵀΛ(x − p) + Σⱼ ψⱼ(xⱼ), tᵢ = oᵢ + aᵢᵀx; x = z or (with a whitening) x̂ + W z,
    less what is removed. The ψⱼ are in `heavy`, which is None where all priors are normal or flat.

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
    whitening: Any = None
    removed: Removed | None = None
    offset: Array | None = None
    weights: Array | None = None
    heavy: Heavy | None = None

    def prior_curvature(self, x: Array) -> Array:
        """Λ + ψ″ of every coordinate at one x."""
        return self.prior_precision if self.heavy is None else self.prior_precision + self.heavy.curvature(x)

    def predictors(self, x: Array) -> Array:
        """All tᵢ at some x, in the user's variables: (chains, dim) → (chains, n)."""
        t = self.rows.predict(x)
        return t if self.offset is None else t + self.offset

    def predictors_at(self, x: Array, indices: Indices) -> Array:
        """The chosen tᵢ: (chains, dim), (chains, batch) → (chains, batch)."""
        t = self.rows.predict_at(x, indices)
        return t if self.offset is None else t + self.offset[indices]

    def values(self, t: Array, chosen: Any = ALL) -> Array:
        """wᵢℓ(tᵢ, yᵢ) of all or of some rows."""
        return self._weighed(self.loss.value(t, self.y[chosen]), chosen)

    def slopes(self, t: Array, chosen: Any = ALL) -> Array:
        """wᵢℓ′(tᵢ, yᵢ)."""
        return self._weighed(self.loss.slope(t, self.y[chosen]), chosen)

    def curvatures(self, t: Array, chosen: Any = ALL) -> Array:
        """wᵢℓ″(tᵢ, yᵢ)."""
        return self._weighed(self.loss.curvature(t, self.y[chosen]), chosen)

    def weighed(self, each: Array) -> Array:
        """Something of every row, times its weight."""
        return self._weighed(each, ALL)

    def _weighed(self, each: Array, chosen: Any) -> Array:
        return each if self.weights is None else each * self.weights[chosen]


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


Form = RowsForm | QuadraticForm | ComponentsForm


def rows_of(form: Form | None) -> RowsForm | None:
    """The form itself where it is one of rows, else None."""
    return form if isinstance(form, RowsForm) else None
