"""What a shrinking prior did to each coefficient, as a posterior keeps it beside its coefficients."""

from __future__ import annotations

from dataclasses import dataclass

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import require_finite, requirement


@dataclass(frozen=True, eq=False)
class Shrinkage:
    """columns: the numbers of the coefficients that are shrunk, among the coordinates.
    factors: the posterior mean of each one's shrinkage factor κ, from 1 (drawn to 0) to 0 (left alone).
    scales: draws (chain, draw, numbers) of what the coefficients share, and of m_eff = Σ(1 − κ), the effective number
        of coefficients that are not 0.
    names: what each number of `scales` is: "scale" (τ) and "slab" (c) for standardised columns, "r2", or "share" (π),
        and last "effective".
    """

    columns: Indices
    factors: Array
    scales: Array
    names: tuple[str, ...] = ("scale", "slab", "effective")

    def require_sound(self) -> None:
        """Refuse arrays of other shapes; used when a file is read."""
        if self.factors.shape != self.columns.shape or self.scales.shape[2:] != (len(self.names),):
            raise requirement("shrinkage", "a factor for each column, and draws of each scale", "others")
        require_finite("shrinkage", self.factors)
        require_finite("shrinkage", self.scales)

    @property
    def effective(self) -> Array:
        """Draws (chain, draw) of m_eff."""
        return self.scales[..., -1]

    @property
    def point_mass(self) -> bool:
        """Whether coefficients are 0 with some probability."""
        return "share" in self.names
