"""Parameters as a model states them, such as a standard deviation above 0, where other coordinates were sampled."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from svrhmc import diagnostics
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import require_finite, requirement
from svrhmc.core.summaries import Summary
from svrhmc.posterior.correction import error_of_mean
from svrhmc.posterior.statements import end_names, level_ends

_ENTRY = re.compile(r"[^\[\]]+\[\d+(, *\d+)*\]")


@dataclass(frozen=True, eq=False)
class Parameters:
    """names: of every number, such as sigma or w[0, 1]. draws: an array (chain, draw, number)."""

    names: tuple[str, ...]
    draws: Array

    def require_sound(self) -> None:
        """Refuse draws that are not finite or of another number."""
        if self.draws.ndim != 3 or self.draws.shape[2] != len(self.names):
            raise requirement("parameters", f"draws of {len(self.names)} numbers", f"shape {self.draws.shape}")
        require_finite("parameters", self.draws)

    def by_name(self) -> dict[str, Array]:
        """Arrays (chain, draw, …) in the shapes that the model gives them."""
        return {name: self.draws[:, :, places] for name, places in (grids(self.names) or {}).items()}

    def columns(self, level: float) -> dict[str, Array]:
        """Mean, sd, the ends of the interval, standard errors, effective draws and R-hat: those of the draws."""
        x, (low, high) = self.draws, end_names(level)
        mean, sd = x.mean(axis=(0, 1)), diagnostics.spread(x)
        ends = np.quantile(x.reshape(-1, x.shape[2]), level_ends(level), axis=0)
        known = np.where(sd > 0, sd, 1.0)
        return {
            "mean": mean, "sd": sd, low: ends[0], high: ends[1], "mcse_mean": error_of_mean(x),
            "mcse_sd": error_of_mean((x - mean) ** 2) / (2 * known),
            "ess": diagnostics.bulk_ess(x), "r_hat": diagnostics.rank_r_hat(x),
        }  # fmt: skip

    def summary(self, level: float, title: str, notes: tuple[str, ...]) -> Summary:
        """A table of them."""
        return Summary(self.names, self.columns(level), title, notes)


def grids(names: tuple[str, ...]) -> dict[str, Indices] | None:
    """From the names of entries, w[0, 0], w[0, 1], …, the numbers of the entries of each array in its shape; None where
    some entry is missing.

    >>> grids(("b", "w[0]", "w[1]"))
    {'b': array(0), 'w': array([1, 2])}
    """
    places: dict[str, list[tuple[int, ...]]] = {}
    numbers: dict[str, list[int]] = {}
    for number, full in enumerate(names):
        name, _, inside = full.rstrip("]").partition("[")
        index = tuple(int(part) for part in inside.split(",")) if _ENTRY.fullmatch(full) else ()
        places.setdefault(name if index else full, []).append(index)
        numbers.setdefault(name if index else full, []).append(number)
    found = {}
    for name, indices in places.items():
        shape = tuple(1 + max(axis) for axis in zip(*indices, strict=True)) if len(set(map(len, indices))) == 1 else ()
        if indices != list(np.ndindex(*shape)):
            return None
        found[name] = np.array(numbers[name]).reshape(shape)
    return found
