"""What a shrinking prior did to each coefficient, as a posterior keeps it beside its coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import require_finite, requirement
from svrhmc.core.summaries import interval_ends

_HALF = 0.5  # of κ, below which a coefficient is more left alone than shrunk


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

    def notes(self, level: float = 0.9) -> tuple[str, ...]:
        """How many coefficients are not 0, in effect, and how many are shrunk by less than half, in a sentence."""
        return (f"Shrinkage: {self._in_words(level)} (posterior.inclusion()).",)

    def _in_words(self, level: float) -> str:
        count, effective = len(self.factors), self.effective
        if self.names[0] == "scale" and "slab" not in self.names:
            return (
                f"the standard deviation of the prior of standardised coefficients was learnt: "
                f"{self._first_scale(level)}, with which {count:,} of them count as {effective.mean():.3g} in effect"
            )
        low, high = np.quantile(effective, interval_ends(level))
        left_alone = int((self.factors < _HALF).sum())
        are = f"{left_alone:,} {'is' if left_alone == 1 else 'are'}"
        if self.point_mass:
            return (
                f"of {count:,} coefficients {effective.mean():.3g} are not 0 ({level:.0%} interval {low:.3g} to "
                f"{high:.3g}); {are} so with a probability above one half"
            )
        r_squared = f", R² of the prior is {self._first_scale(level)}" if self.names[0] == "r2" else ""
        return (
            f"of {count:,} coefficients {effective.mean():.3g} are not 0, in effect ({level:.0%} interval {low:.3g} to "
            f"{high:.3g}){r_squared}; {are} shrunk by less than half"
        )

    def _first_scale(self, level: float) -> str:
        """The mean and the interval of the first of the scales."""
        values = self.scales[..., 0]
        low, high = np.quantile(values, interval_ends(level))
        return f"{values.mean():.3g} ({level:.0%} interval {low:.3g} to {high:.3g})"
