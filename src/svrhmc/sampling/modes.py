"""How much of a posterior with several modes belongs to each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.core.summaries import Summary
from svrhmc.density.base import FiniteSum
from svrhmc.diagnostics import ess, r_hat
from svrhmc.sampling.correction import error_of_mean
from svrhmc.trace import grids

if TYPE_CHECKING:
    import pandas

_EFFECTIVE, _AGREE, _ARRIVALS = 50, 1.1, 10  # effective draws, R-hat and arrivals that make a mode's weight known
_SAME, _EVEN = 0.01, 0.1  # of the distance of two modes, and of a log density, that count as none
_RARE = 0.01  # a weight below which a mode may stay without visits
_SHOWN = 6  # coordinates, and weights, that are printed


@dataclass(frozen=True, eq=False)
class Modes:
    """The modes that were found of a posterior with several; print it, or take `to_frame()`.

    location: where they are, (modes, dim), in the coordinates of `Posterior.mean`.
    weight: the posterior probability of each: the mean membership of a draw, which is 1 or 0 if modes are well
        separated (`svrhmc.exact.jumps.Regions.memberships`); nan if it is unknown, because chains moved between modes
        too seldom.
    error: its standard error.
    arrivals: how often a chain came to the mode from another.
    exchanged: names of arrays of parameters whose entries stand in another order at other modes, with the same density:
        components that can change places.
    """

    location: Array
    weight: Array
    error: Array
    arrivals: Indices
    exchanged: tuple[str, ...] = ()

    @classmethod
    def unknown(cls, location: Array) -> Modes:
        """The modes if it is unknown which draws belong to which of them."""
        count = len(location)
        return cls(location, np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, np.int64))

    @classmethod
    def of(cls, location: Array, shares: Array, masses: Array) -> Modes:
        """From the memberships of the draws, (chain, draw, mode), and the mass of each mode by Laplace's method.

        A weight is known where its mean has settled over many arrivals. Weights are known only together: what a mode
        that chains did not reach has, the others have too much. A mode that is rare by its visits and by its mass needs
        none; its weight is off by about its mass, as far as Laplace's method is right. Where all modes but one are
        rare, none need be visited.
        """
        weight, error = shares.mean(axis=(0, 1)), error_of_mean(shares)
        nearest = shares.argmax(axis=2)
        came = nearest[:, 1:][nearest[:, 1:] != nearest[:, :-1]]
        arrivals = np.bincount(came, minlength=len(masses))
        settled = (ess(shares) >= _EFFECTIVE) & (r_hat(shares) <= _AGREE) & (arrivals >= _ARRIVALS)
        rare = np.maximum(weight, masses) < _RARE
        error = np.where(settled, error, np.maximum(error, np.maximum(masses, 1 / nearest.size)))
        if (~rare).sum() > 1 and not (settled | rare).all():
            weight, error = np.full(len(masses), np.nan), np.full(len(masses), np.nan)
        return cls(location, weight, error, arrivals.astype(np.int64))

    @property
    def known(self) -> bool:
        """Whether the weights are known."""
        return bool(np.isfinite(self.weight).all())

    @property
    def doubt(self) -> str:
        """Why the draws may have other shares of the modes than the posterior; empty if weights are known."""
        if self.known:
            return ""
        few = ", ".join(map(str, self.arrivals))
        return (
            f"the posterior has {len(self.weight)} modes or more, and chains moved between them too seldom to know how "
            f"much of it each has (arrivals at each: {few})"
        )

    def brief(self) -> str:
        """The number of modes with their weights, in a few words."""
        count = len(self.weight)
        if not self.known:
            return f"{count}, whose weights are not known"
        weights = (f"{w:.2g} ± {e:.1g}" for w, e in zip(self.weight[:_SHOWN], self.error, strict=False))
        return f"{count}, with weights {', '.join(weights)}{', …' if count > _SHOWN else ''}"

    def labels_switch(self) -> str:
        """What components that can change places mean for the numbers of each, in two sentences; "" where none can."""
        if not self.exchanged:
            return ""
        return (
            f"The components of {', '.join(self.exchanged)} can change places: modes are the same but for their order, "
            f"and the mean and sd of {self.exchanged[0]}[0] are those of a component that is another one at each mode. "
            "Order them, as by OrderedTransform in NumPyro, transforms.ordered in PyMC, or "
            "jnp.cumsum of a first one and of exp of steps; or report what does not depend on their order, such as "
            "predictions."
        )

    def to_frame(self) -> pandas.DataFrame:
        """A pandas data frame with a row for each mode: weight, error, arrivals and all coordinates."""
        return self._table(self.location.shape[1]).to_frame()

    def __str__(self) -> str:
        return str(self._table(_SHOWN))

    def _table(self, coordinates: int) -> Summary:
        names = tuple(f"mode {i + 1}" for i in range(len(self.weight)))
        columns = {"weight": self.weight, "error": self.error, "arrivals": self.arrivals.astype(np.float64)}
        places = {f"x[{j}]": column for j, column in enumerate(self.location.T[:coordinates])}
        return Summary(names, {**columns, **places}, "", () if self.known else ("The weights are not known.",))

    def require_sound(self) -> None:
        """Refuse arrays of unequal lengths; used when a file is read."""
        count = len(self.location)
        for name in ("weight", "error", "arrivals"):
            if getattr(self, name).shape != (count,):
                raise requirement(f"modes.{name}", f"{count} numbers", f"shape {getattr(self, name).shape}")


def exchanged_components(target: FiniteSum, modes: Array) -> tuple[str, ...]:
    """The names of arrays of parameters whose entries are only in another order at two modes, at which the density is
    the same; () where there are none.
    """
    named = target.stated(modes[None])
    names, values = (target.names, modes) if named is None else (named[0], named[1][0])
    arrays = grids(tuple(names))
    if not arrays or not target.has_potential:
        return ()
    f = target.potentials(modes)
    for count in sorted({places.shape[0] for places in arrays.values() if places.ndim and places.shape[0] > 1}):
        same_length = {name: places for name, places in arrays.items() if places.ndim and places.shape[0] == count}
        other_places = [int(place) for name in arrays.keys() - same_length.keys() for place in arrays[name].ravel()]
        entries = np.concatenate([places.reshape(count, -1) for places in same_length.values()], axis=1)
        for first in range(len(modes)):
            for second in range(first):
                if abs(f[first] - f[second]) < _EVEN and _is_reordered(
                    values[first], values[second], entries, other_places
                ):
                    return tuple(same_length)
    return ()


def _is_reordered(first: Array, second: Array, entries: Indices, other_places: list[int]) -> bool:
    """Whether two points are the same but for the order of the rows of entries."""
    from scipy.optimize import linear_sum_assignment

    distance = float(np.abs(first - second).max())
    if not distance > 0 or (
        len(other_places) and np.abs(first[other_places] - second[other_places]).max() > _SAME * distance
    ):
        return False
    distances = np.abs(first[entries][:, None] - second[entries][None]).max(axis=2)
    rows, columns = linear_sum_assignment(distances)
    return bool(distances[rows, columns].max() <= _SAME * distance)
