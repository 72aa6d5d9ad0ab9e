"""Second derivatives of rows at a point."""

from __future__ import annotations

from dataclasses import dataclass

from svrhmc.core.arrays import Array, Indices
from svrhmc.targets.base import Expansion
from svrhmc.targets.forms import RowsForm


@dataclass(frozen=True, eq=False)
class RowExpansion(Expansion):
    """H = Aᵀ diag(wℓ″) A, and nwℓ″ of every row."""

    hessian: Array
    curvatures: Array
    form: RowsForm

    def parts(self, away: Array, indices: Indices) -> Array:
        """nwℓ″ aᵢᵀ·away."""
        return self.form.turned(self.curvatures[indices], self.form.rows.predict_at(away, indices))
