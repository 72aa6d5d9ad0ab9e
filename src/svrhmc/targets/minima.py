"""The minima of an f that need not be convex, from several starts: L-BFGS, then Newton where the Hessian is affordable.

A point where the gradient is 0 and the Hessian has an eigenvalue below 0 is a saddle: the search goes on along that
eigenvector, both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import look
from svrhmc.core.randomness import Purpose, Stream

DENSE = 2000  # coordinates up to which Hessians are made
_STARTS, _FEW_STARTS = 6, 3  # with the one that was given; where Hessians are not made
_INDEFINITE = "the log posterior is not concave at its mode (the Hessian there is not positive definite)"
_NEWTON, _SADDLES = 20, 4  # steps, and saddles left, at most
_ITERATIONS = 2000
_APART = 1.0  # standard deviations between two minima that are not the same
_WORSE = 30.0  # that f may be above its least value at a minimum that matters
_WALL, _FAR_OFF = 1e12, 1e9
_ENDLESS = "no mode found: f falls without end, so that the posterior is improper; is a prior missing?"
_ROUNDING = 1e-10  # of the largest |eigenvalue| of a Hessian
_SMALL = 1e-8  # of the Newton decrement at which a minimum is found


@dataclass(frozen=True, eq=False)
class Minima:
    """Points, the lowest first; what finding them took, in passes; from where, in words; and why a law around the
    lowest one may not be all of the posterior (empty where nothing was found).
    """

    points: Array
    passes: float
    starts: str
    doubt: str = ""

    @property
    def lowest(self) -> Array:
        """The mode."""
        point: Array = self.points[0]
        return point


class _Search:
    """Counts passes."""

    def __init__(self, target: Any) -> None:
        self.target, self.passes = target, 0.0

    def energy(self, x: Array) -> tuple[float, Array]:
        """f and ∇f; what is not finite is a wall."""
        if not np.abs(x).max() <= _WALL:
            return 1e300, np.zeros_like(x)
        look(self.passes + 1)
        self.passes += 1
        value, slope = self.target.energies(x[None])
        if not (np.isfinite(value[0]) and np.isfinite(slope).all()):
            return 1e300, np.zeros_like(x)
        return float(value[0]), slope[0]

    def down(self, x: Array) -> Array:
        """L-BFGS."""
        from scipy.optimize import minimize

        options = {"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "ftol": 1e-14, "gtol": 1e-9, "maxcor": 20}
        end = np.asarray(minimize(self.energy, x, jac=True, method="L-BFGS-B", options=options).x, np.float64)
        if np.abs(end).max() > _FAR_OFF:
            raise RuntimeError(_ENDLESS)
        return end

    def settled(self, x: Array) -> tuple[Array, bool]:
        """The minimum near x, where L-BFGS ended, and whether f curves upwards there in every direction."""
        if self.target.dim > DENSE:
            return x, True
        for _ in range(_SADDLES):
            x, curved = self._newton(x)
            if curved:
                return x, True
            H = self.target.hessian(x)
            if not np.isfinite(H).all():
                return x, False
            values, vectors = np.linalg.eigh(H)
            ways = [self.down(x + sign * vectors[:, 0] / np.sqrt(max(-values[0], 1e-12))) for sign in (1.0, -1.0)]
            lowest = min(ways, key=lambda way: self.energy(way)[0])
            if self.energy(lowest)[0] >= self.energy(x)[0]:  # a kink, or a flat bottom, unless f curves downwards
                return x, bool(values[0] >= -_ROUNDING * np.abs(values).max())
            x = lowest
        return x, False

    def _newton(self, x: Array) -> tuple[Array, bool]:
        """Newton steps, halved while f rises; whether H is positive definite at the end."""
        from scipy.linalg import cho_factor, cho_solve

        value, slope = self.energy(x)
        for _ in range(_NEWTON):
            H = self.target.hessian(x)
            self.passes += self.target.dim
            try:
                step = -cho_solve(cho_factor(H), slope)
            except (np.linalg.LinAlgError, ValueError):
                return x, False
            decrement = float(-step @ slope)
            if decrement <= _SMALL**2:
                return x, True
            for _ in range(30):
                there, there_slope = self.energy(x + step)
                if there <= value + 1e-12 * abs(value):
                    break
                step = step / 2
            else:
                return x, True
            x, value, slope = x + step, there, there_slope
            if decrement <= _SMALL:
                return x, True
        return x, True


def minima(target: Any, start: Array) -> Minima:
    """Those found from `start` and from draws of what the prior's curvature says."""
    search = _Search(target)
    others = (_STARTS if target.dim <= DENSE else _FEW_STARTS) - 1
    noise = Stream(0, np.arange(others)).normals(0, target.dim, Purpose.START, Purpose.START_FINE)
    starts, found = [start, *(start + target.prior_spread() * noise)], []
    for number, begin in enumerate(starts):
        if number and not np.isfinite(target.potentials(begin[None])[0]):
            continue
        point = search.down(begin)
        value = search.energy(point)[0]
        if value < 1e300:
            found.append((value, point))
    if not found:
        raise RuntimeError("no mode found: f is not finite where the search for it went; give another init.")
    points = _apart(search, sorted(found, key=lambda one: one[0]))
    doubt = "" if points[0][2] else _INDEFINITE
    return Minima(np.array([point for _, point, _ in points]), search.passes, f"{len(starts)} starts", doubt)


def _apart(search: _Search, ends: list[tuple[float, Array]]) -> list[tuple[float, Array, bool]]:
    """The minima that matter, the lowest first, from where L-BFGS ended. Newton steps and looks for saddles are made
    only where an end is apart from all minima known by then, and low enough to matter.
    """
    known: list[tuple[float, Array, bool]] = []

    def new(value: float, point: Array) -> bool:
        lowest = min(known, key=lambda one: one[0], default=None)
        if lowest is None:
            return True
        low, at = lowest[:2]
        return value - low < _WORSE and all(_far(search.target, at, point - other) for _, other, _ in known)

    for value, end in ends:
        if new(value, end):
            point, curved = search.settled(end)
            settled = search.energy(point)[0]
            if new(settled, point):
                known.append((settled, point, curved))
    known.sort(key=lambda one: one[0])
    return [one for one in known if one[0] - known[0][0] < _WORSE]


def _far(target: Any, at: Array, away: Array) -> bool:
    """Whether a difference is more than a standard deviation, by the curvature at the mode."""
    return bool(away @ target.hessian_products(at, away[None])[0] > _APART**2)
