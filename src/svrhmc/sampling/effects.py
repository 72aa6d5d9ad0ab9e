"""Draws of group effects, as a posterior keeps them beside its coefficients and scales."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement


@dataclass(frozen=True, eq=False)
class GroupEffects:
    """Effects of all terms of groups, one after another; of a term level by level, of a level column by column.

    names, columns, levels: of each term the grouping factor, its columns ("1" is the intercept) and its levels.
    rows: how many rows each level has, of all terms one after another.
    draws: (chain, draw, effect); every `every`-th of the posterior's draws.
    smooth: of each term whether it is a smooth, whose "levels" are its functions; (): none is.
    information: BᵀWB of the functions of all smooths, less what the columns of the coefficients explain of it: what
        rows tell of the smooths, in units of 1/σ² where there is a σ. None without smooths.
    """

    names: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    levels: tuple[tuple[str, ...], ...]
    rows: Indices
    draws: Array
    every: int = 1
    smooth: tuple[bool, ...] = ()
    information: Array | None = None

    @property
    def smooths(self) -> list[int]:
        """The numbers of the terms that are smooths."""
        return [k for k, smooth in enumerate(self.smooth) if smooth]

    @property
    def groups(self) -> list[int]:
        """The numbers of the terms that are effects of groups."""
        return [k for k in range(len(self.names)) if k not in self.smooths]

    @property
    def factors(self) -> list[str]:
        """The grouping factors, each once, in the order of their terms."""
        return list(dict.fromkeys(self.names[k] for k in self.groups))

    def counted(self) -> str:
        """The grouping factors with the number of their levels: "school (8 levels), town (30 levels)"."""
        count = {self.names[k]: len(self.levels[k]) for k in self.groups}
        return ", ".join(f"{name} ({levels:,} levels)" for name, levels in count.items())

    def slices(self) -> list[slice]:
        """Where the effects of each term are."""
        sizes = [len(levels) * len(columns) for levels, columns in zip(self.levels, self.columns, strict=True)]
        ends = np.cumsum([0, *sizes])
        return [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def stated(self, k: int) -> slice:
        """Where the standard deviations and correlations of term k are among the coordinates, from their end."""
        sizes = [len(columns) * (len(columns) + 1) // 2 for columns in self.columns]
        begin = sum(sizes[:k]) - sum(sizes)
        return slice(begin, begin + sizes[k] or None)

    @property
    def covariances(self) -> int:
        """Standard deviations and correlations of all terms."""
        return sum(len(columns) * (len(columns) + 1) // 2 for columns in self.columns)

    def in_words(self) -> str:
        """The grouping factors and how many levels each has, such as "groups: school (12 levels)", and the smooths."""
        words = (("groups", self.counted()), ("smooths", ", ".join(self.names[k] for k in self.smooths)))
        return "; ".join(f"{word}: {names}" for word, names in words if names)

    def of_term(self, k: int) -> Array:
        """The effects of term k: (chain, draw, level, column)."""
        effects = self.draws[..., self.slices()[k]]
        return effects.reshape(*effects.shape[:2], len(self.levels[k]), len(self.columns[k]))

    def rows_of_term(self, k: int) -> Indices:
        """How many rows each level of term k has."""
        begin = sum(len(levels) for levels in self.levels[:k])
        return self.rows[begin : begin + len(self.levels[k])]

    def require_sound(self) -> None:
        """Refuse draws of other sizes than the names say; used when a file is read."""
        slices = self.slices()
        if not len(self.names) == len(self.columns) == len(self.levels) or self.draws.ndim != 3:
            raise requirement("group effects", "with names, columns and levels of each term", "others")
        if self.draws.shape[2] != slices[-1].stop or len(self.rows) != sum(map(len, self.levels)):
            raise requirement("group effects", f"{slices[-1].stop} of them", self.draws.shape[2])
        if len(self.smooth) not in (0, len(self.names)):
            raise requirement("smooth", f"one truth value for each of {len(self.names)} terms", len(self.smooth))
        functions = sum(len(self.levels[k]) for k in self.smooths)
        shape = () if self.information is None else self.information.shape
        if shape != ((functions, functions) if functions else ()):
            raise requirement("information", f"that of {functions} functions", shape)
