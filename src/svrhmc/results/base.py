"""What the functions of `results` ask of a posterior; `posterior.py` has the one that there is, made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from svrhmc.core.arrays import Array
from svrhmc.density.base import FiniteSum
from svrhmc.rows.forms import RowsForm
from svrhmc.sampling.certificate import Certificate
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location
from svrhmc.sampling.effects import GroupEffects
from svrhmc.sampling.inclusion import Shrinkage
from svrhmc.sampling.modes import Modes
from svrhmc.sampling.parameters import Parameters
from svrhmc.tables.arrays import ArrayDesign
from svrhmc.tables.design import Design
from svrhmc.trace import Trace


class Fitted(Protocol):
    """A posterior, as far as others ask for it: the fields that the docstring of `Posterior` explains, and what it
    makes of its draws.
    """

    mean: Array
    sd: Array
    raw: Location
    corrected: Corrected
    laplace: Location
    trace: Trace
    method: str
    sampler: object
    why: str
    certificate: Certificate
    ess: Array
    r_hat: Array
    passes: float
    seconds: float
    complete: bool
    stopped: bool
    model: Any  # a `Model`; None where the target has no rows
    names: tuple[str, ...]
    units: Units | None
    design: Design | None
    prior: Any  # an `Influence`, or None
    family: str
    clashes: tuple[str, ...]
    parameters: Parameters | None
    modes: Modes | None
    misfits: tuple[str, ...]
    checked_rows: int
    group_effects: GroupEffects | None
    shrinkage: Shrinkage | None
    imputed: Any  # `Imputations`, or None
    fitted_rows: int
    fitted_at: str
    tails: Array | None
    arrays: ArrayDesign | None
    _target: FiniteSum | None
    _table_rows: Any  # `FittedRows`, or None

    @property
    def errors(self) -> tuple[Array, Array]:
        """Standard errors of the reported means and standard deviations."""

    @property
    def stretched(self) -> tuple[Array, Array]:
        """Means and sds that draws are moved to for quantiles and statements."""

    @property
    def rows(self) -> int:
        """How many rows were fitted."""

    @property
    def left_out(self) -> int:
        """How many rows had the weight 0."""

    @property
    def group_scales(self) -> int:
        """How many coordinates, the last ones, are standard deviations and correlations of group effects."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the coordinates."""

    @property
    def form(self) -> RowsForm | None:
        """The rows that were fitted, where they are known."""

    def fitted(self) -> RowsForm:
        """The rows that were fitted; an error where they are not known."""

    def inner(self, most: int) -> Array:
        """At most so many draws, in the variables of the rows: with the effects of groups."""

    def without_groups(self, most: int) -> Array:
        """At most so many draws of coefficients and shared parameters, in the variables of the target."""

    def quantile(self, levels: float | Sequence[float]) -> Array:
        """Quantiles of each coordinate, (levels…, dim)."""

    def interval(self, level: float = 0.9) -> Array:
        """The middle interval of so much probability, of each coordinate: (dim, 2)."""
