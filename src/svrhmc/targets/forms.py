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
from svrhmc.targets.rows import Rows


@dataclass(frozen=True, eq=False)
class Removed:
    """What is taken from every row's loss at the centre x̂ of the variables: value and slope, and curvature too.

    With t̂ᵢ = aᵢᵀx̂ in `predictors`, a row's slope at t̂ᵢ + u is ℓ′(t̂ᵢ + u) − slopesᵢ − curvaturesᵢ·u, curvatures being 0
    where only the first orders are taken. `force` is −b: what was taken is put back, never subsampled, as bᵀz and,
    where curvatures were taken, ½|z|².
    """

    predictors: Array
    slopes: Array
    curvatures: Array
    second_order: bool
    force: Array


@dataclass(frozen=True, eq=False)
class RowsForm:
    """f(x) = Σᵢ ℓ(aᵢᵀx, yᵢ) + ½(x − p)ᵀΛ(x − p), x = z or (with a whitening) x̂ + W z, less what is removed."""

    kind: ClassVar[str] = "rows"
    rows: Rows
    y: Array
    loss: Loss
    prior_precision: Array
    prior_mean: Array
    whitening: Any = None
    removed: Removed | None = None


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
