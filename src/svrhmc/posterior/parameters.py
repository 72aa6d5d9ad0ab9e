"""Parameters as a model states them, such as a standard deviation above 0, where other coordinates were sampled."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc import diagnostics
from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import require_finite, requirement
from svrhmc.core.summaries import Summary
from svrhmc.posterior.correction import Corrected, corrected_functions, error_of_mean
from svrhmc.posterior.pareto import NO_MEAN, NO_VARIANCE, UNSTABLE, pareto_shapes
from svrhmc.posterior.statements import end_names, level_ends
from svrhmc.targets.base import FiniteSum

_WITHOUT = (
    "No standard deviation can be reported of what has so heavy a tail (a Pareto shape k of 0.5 or more, by the draws: "
    "its variance is infinite or depends on draws that no run has made); quantiles 5%, 50%, 95% of"
)
_LOOSE = (
    "The standard deviation is unstable, as it hangs on few draws far out (a Pareto shape k of 0.35 or more); "
    "quantiles 5%, 50%, 95% of"
)
_ENTRY = re.compile(r"[^\[\]]+\[\d+(, *\d+)*\]")


@dataclass(frozen=True, eq=False)
class Parameters:
    """names: of every number, such as sigma or w[0, 1]. draws: an array (chain, draw, number). corrected: moments that
    are corrected by the gradients at the draws; None where those of the draws are the best there are.
    """

    names: tuple[str, ...]
    draws: Array
    corrected: Corrected | None = None

    def require_sound(self) -> None:
        """Refuse draws that are not finite or of another number."""
        if self.draws.ndim != 3 or self.draws.shape[2] != len(self.names):
            raise requirement("parameters", f"draws of {len(self.names)} numbers", f"shape {self.draws.shape}")
        require_finite("parameters", self.draws)
        if self.corrected is not None and len(self.corrected.mean) != len(self.names):
            raise requirement("parameters", f"moments of {len(self.names)} numbers", len(self.corrected.mean))

    def by_name(self) -> dict[str, Array]:
        """Arrays (chain, draw, …) in the shapes that the model gives them."""
        return {name: self.draws[:, :, places] for name, places in (grids(self.names) or {}).items()}

    def flat(self) -> Array:
        """The draws of all chains, (draw, number)."""
        return self.draws.reshape(-1, len(self.names))

    @cached_property
    def shapes(self) -> Array:
        """The Pareto shape of the heavier tail of each number: from 0.5 on it has no variance, from 1 on no mean."""
        return pareto_shapes(self.draws)

    @cached_property
    def moments(self) -> Corrected:
        """Means and sds with their standard errors: the corrected ones, or those of the draws; nan where the tail of
        the draws shows that there is none.
        """
        found, x = self.corrected, self.draws
        if found is None:
            mean, sd = x.mean(axis=(0, 1)), diagnostics.spread(x)
            sd_error = error_of_mean((x - mean) ** 2) / (2 * np.where(sd > 0, sd, 1.0))
            found = Corrected(mean, sd, error_of_mean(x), sd_error)
        mean = np.where(self.shapes >= NO_MEAN, np.nan, found.mean)
        others = (
            np.where(self.shapes >= NO_VARIANCE, np.nan, each) for each in (found.sd, found.mean_error, found.sd_error)
        )
        return Corrected(mean, *others)

    def heavy(self, most: int) -> str:
        """Which of the numbers have no sd, or one that another run would not repeat, and quantiles of some of them."""
        without = np.flatnonzero(self.shapes >= NO_VARIANCE)
        unstable = np.flatnonzero((self.shapes >= UNSTABLE) & (self.shapes < NO_VARIANCE))
        return " ".join(
            f"{words}: {self._quantiles(some[:most])}{f' and {len(some) - most:,} more' if len(some) > most else ''}."
            for words, some in ((_WITHOUT, without), (_LOOSE, unstable))
            if len(some)
        )

    def _quantiles(self, some: Indices) -> str:
        ends = np.quantile(self.flat()[:, some], (0.05, 0.5, 0.95), axis=0).T
        told = zip(some, ends, strict=True)
        return "; ".join(
            f"{self.names[j]} (k {self.shapes[j]:.2f}) {', '.join(f'{q:.4g}' for q in e)}" for j, e in told
        )

    def columns(self, level: float) -> dict[str, Array]:
        """Mean and sd, the ends of the interval, which are those of the draws, standard errors, effective draws and
        R-hat.
        """
        x, found, (low, high) = self.draws, self.moments, end_names(level)
        ends = np.quantile(self.flat(), level_ends(level), axis=0)
        return {
            "mean": found.mean, "sd": found.sd, low: ends[0], high: ends[1], "mcse_mean": found.mean_error,
            "mcse_sd": found.sd_error, "ess": diagnostics.bulk_ess(x), "r_hat": diagnostics.rank_r_hat(x),
        }  # fmt: skip

    def summary(self, level: float, title: str, notes: tuple[str, ...]) -> Summary:
        """A table of them."""
        return Summary(self.names, self.columns(level), title, notes)


def stated(
    target: FiniteSum,
    draws: Array,
    seen: tuple[Array, Array] | None = None,
    pull: Callable[[Array], Array] | None = None,
) -> Parameters | None:
    """The parameters of a target as it states them, at draws; None where they are its coordinates.

    seen: some of the draws and WWᵀ∇f at them, by which moments are corrected; pull(w) = Wᵀw.
    """
    named = target.stated(draws)
    if named is None:
        return None
    names, values = named
    if seen is None or pull is None:
        return Parameters(names, values)
    x, h = seen
    some = values if x is draws else (target.stated(x) or named)[1]
    return Parameters(names, values, corrected_functions(some, x, h, pull, target.one_mode is not None))


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
