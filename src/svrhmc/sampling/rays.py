"""What the density shows along rays from the centre of whitened variables: wide parts that chains hardly enter.

A narrow normal law in the middle of a wide one has a single mode, from which the wide one cannot be seen by the
curvature: in four dimensions, seven times as wide and with a weight of 0.3, its density at the mode is 2·10⁻⁴ of that
of the narrow one. Chains that begin at the mode enter it about once in a thousand draws, and those that have not been
there agree.

Let u be uniform on the unit sphere of z, x = x̂ + W z. The density of log |z|, and with it the posterior's mass, is

    M(log r) = |S| E_u m(u, r),     m(u, r) = rᵈ π(x̂ + r W u),     |S| = 2π^{d/2}/Γ(d/2),

of which the average over some directions, ± each, is an unbiased estimate. It is found at even steps of log r, so that
integrals over log r are sums.

**Before the draws** M shows two parts if it has two peaks with a valley between them that is deep (a quarter of the
lower peak, or less). The mean and the covariance of the outer part, which the same sums give, make a region between
which and the mode chains jump (`svrhmc.exact.jumps`), if it is seen in several directions, and ends.

**After the draws** the share of the mass farther out than all of them,

    ∫_{r > R} M / ∫ M,     R the largest |z| of a draw,

has to be next to nothing. Of N independent draws of the posterior all lie within a radius that leaves out a share s of
it with probability (1 − s)^N: s = 12/N would be exceeded once in 160,000 runs. The draws miss a part if the estimate is
above this and above a hundredth, without the direction that sees most of it: on average an estimate is no larger than
what it estimates, and so seldom much larger (Markov), but of 16 directions a single one along a far tail that is thin
may be the better part of it. What lies in few directions is not seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.core.deadline import Budget
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.core.storage import Record
from svrhmc.density.base import FiniteSum
from svrhmc.exact.jumps import WidePart
from svrhmc.rows.forms import functions_of
from svrhmc.sampling.doubts import MOST_COORDINATES
from svrhmc.whitening.targets import Space

_RADII, _NEAREST, _FARTHEST = 64, 1e-2, 1e4  # radii along a ray, in √d
_DIRECTIONS = (16, 256)  # at least and at most
_NANOSECONDS = 5e8  # for all rays
_SHARE_OF_PASSES = 20  # one part in so many of a budget's passes is for rays
_RAY_SEED = 1 << 54  # added to the seed, for the directions
_VALLEY = 0.25  # of the lower of two peaks, at which parts are apart
_MATTERS = 0.01  # share of the mass from which on a part matters
_SURE = 12.0  # −log of the chance that draws leave out as much as raises a doubt
_SEVERAL = 8.0  # directions in which a part is seen, in effect
_INFINITE = 1e300  # for f where it is not finite
_ENDED = 1e-3  # of the outer peak, that M has at the last radius of a part that ends


@dataclass(frozen=True, eq=False)
class Rays:
    """−log π at points r·u of whitened variables: directions u (count, dim), radii r, energies (count, radii)."""

    directions: Array
    radii: Array
    energies: Array

    @property
    def _log_masses(self) -> tuple[Array, float]:
        """log m at every point less the largest, −∞ where f is not finite; and the largest."""
        dim = self.directions.shape[1]
        logs = np.where(self.energies < _INFINITE, dim * np.log(self.radii) - self.energies, -np.inf)
        most = float(logs.max())
        return (logs - most, most) if np.isfinite(most) else (np.full_like(logs, -np.inf), 0.0)

    def share_beyond(self, radius: float) -> tuple[float, float]:
        """The share of the mass beyond a radius, by all directions but the one that sees most of it, and the radius
        that half of it exceeds.
        """
        masses = np.exp(self._log_masses[0])
        beyond = np.where(self.radii > radius, masses, 0.0)
        others = np.arange(len(masses)) != beyond.sum(axis=1).argmax()
        outer = beyond[others].sum(axis=0)
        if not outer.sum() > 0:
            return 0.0, radius
        middle = self.radii[np.searchsorted(np.cumsum(outer), outer.sum() / 2)]
        return float(outer.sum() / masses[others].sum()), float(middle)

    def wide_part(self) -> WidePart | None:
        """The part beyond a deep valley of M; None if there is none."""
        logs, most = self._log_masses
        dim = self.directions.shape[1]
        profile = np.exp(logs).mean(axis=0)
        lower_peaks = np.minimum(np.maximum.accumulate(profile)[:-2], np.maximum.accumulate(profile[::-1])[::-1][2:])
        beyond = np.cumsum(profile[::-1])[::-1][1:-1]
        matters = (beyond > _MATTERS * profile.sum()) & (lower_peaks > 0)
        depths = np.where(matters, profile[1:-1] / np.where(matters, lower_peaks, 1.0), np.inf)
        valley = 1 + int(depths.argmin())
        outer = profile[valley:]
        if depths.min() > _VALLEY or outer[-1] > _ENDED * outer.max():
            return None
        weights = np.exp(logs[:, valley:])
        by_direction = weights.sum(axis=1)
        several = float(by_direction.sum() ** 2 / (by_direction**2).sum())
        if several < _SEVERAL:
            return None
        points = (self.radii[valley:, None] * self.directions[:, None]).reshape(-1, dim)
        shares = weights.ravel() / weights.sum()
        centre = shares @ points
        covariance = (points * shares[:, None]).T @ points - np.outer(centre, centre)
        even = float(np.trace(covariance)) / dim
        covariance = (several * covariance + dim * even * np.eye(dim)) / (several + dim)
        values, vectors = np.linalg.eigh(covariance)
        step = math.log(float(self.radii[1] / self.radii[0]))
        log_sphere = math.log(2) + dim / 2 * math.log(math.pi) - math.lgamma(dim / 2)
        log_mass = most + math.log(float(outer.sum()) * step) + log_sphere - dim / 2 * math.log(2 * math.pi)
        return WidePart(centre, (vectors * np.sqrt(values)) @ vectors.T, log_mass)


def find_rays(target: FiniteSum, space: Space, seed: int, journal: Journal, budget: Budget) -> Rays | None:
    """f along rays, found once for a journal; None for densities that are no models of functions, or too costly for it,
    and where a budget does not pay for it.
    """
    if functions_of(target.form()) is None or space.dim > MOST_COORDINATES:
        return None
    nanoseconds = max(1.0, space.n * (target.row_nanoseconds or 0.0))
    fewest, most = _DIRECTIONS
    count = most
    while count > fewest and count * _RADII * nanoseconds > _NANOSECONDS:
        count //= 2
    states = count * _RADII
    if states * nanoseconds > _NANOSECONDS:
        return None

    def make() -> Record:
        if not budget.covers(_SHARE_OF_PASSES * states * nanoseconds / 1e9, _SHARE_OF_PASSES * states):
            return Record({}, {"directions": np.zeros((0, space.dim)), "energies": np.zeros((0, _RADII))})
        stream = Stream(seed + _RAY_SEED, np.arange(count // 2))
        half = stream.normals(0, space.dim, Purpose.START, Purpose.START_FINE)
        half /= np.sqrt((half * half).sum(axis=1, keepdims=True))
        directions = np.concatenate([half, -half])
        states_on_rays = (_radii(space.dim)[:, None] * directions[:, None]).reshape(-1, space.dim)
        with np.errstate(all="ignore"):
            energies = space.potentials(states_on_rays).reshape(count, _RADII)
        budget.evaluations += float(states) * space.n
        return Record({}, {"directions": directions, "energies": np.where(np.isfinite(energies), energies, _INFINITE)})

    record = journal.once("rays", make)
    directions = record.array("directions", (None, space.dim))
    energies = record.array("energies", (len(directions), _RADII))
    return Rays(directions, _radii(space.dim), energies) if len(directions) else None


def missed_part_doubt(rays: Rays, radius: float, effective: float) -> str:
    """The doubt that a part of the posterior lies farther out than all draws, the farthest of which is at this radius;
    empty if there is none. effective: how many effective draws there are.
    """
    share, middle = rays.share_beyond(radius)
    if share <= max(_MATTERS, _SURE / max(effective, 1.0)):
        return ""
    return (
        f"about {share:.0%} of the posterior lies farther from its mode than any draw (beyond {radius:.2g} times its "
        f"spread there, half of it beyond {middle:.2g} times): a wide part that chains which begin at the mode hardly "
        "enter; write the model in other parameters, or with a tighter prior"
    )


def _radii(dim: int) -> Array:
    return np.geomspace(_NEAREST, _FARTHEST, _RADII) * math.sqrt(dim)
