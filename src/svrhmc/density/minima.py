"""The minima of an f that need not be convex: one by L-BFGS and Newton's method, others from many points around it.

**Points** lie around a minimum x̂ with Hessian H = (LLᵀ)⁻¹, at x̂ + rLu with u on the unit sphere. How many are needed
to find a narrow mode? Let x̂ be the mode of a Gaussian law, of width 1 and weight w in the variables u, and s a mode of
width ρ and weight w_s at a distance D from it. The density of s is above that of x̂ within about R(D) of s, where

    log w_s − d log ρ − R²/2ρ² = log w − D²/2,    R(D)² = ρ²(c + D²),    c = 2d log(1/ρ) − 2 log(w/w_s),

and a search that begins there ends at s. Outside that ball f says nothing about s: only a point inside finds it. If the
expected number of points in the ball is to be the same, m, at every D up to a radius r₀, points need a density in
proportion to R(|ru|)^{−d}, which means a radius with a density in proportion to r^{d−1}(c + r²)^{−d/2}, and there are

    N = m d ρ^{−d} ∫₀^{r₀} r^{d−1}(c + r²)^{−d/2} dr

of them. For ρ = 1/10 and w_s = w/20, m = 8 takes 4·10³ points in two dimensions, 4·10⁴ in three, 3·10⁵ in four and
3·10⁶ in five; there 10⁶, the largest number that is used, give m = 3, with which one ball in thirty is missed. How many
points a target can afford is decided by the cost that it declares, never by a clock, so that the same minima are found
on every machine. A quarter of the points lie beyond r₀, equally many in each range from r to 2r, for wider modes, which
need few. The points are those of an additive recurrence (a lattice modulo 1), which fill balls a little more evenly
than random ones.

**Lines** x̂ + tΣⱼ/√Σⱼⱼ, Σ = H⁻¹, move coordinate j by t standard deviations and the others to their means given it:
along them coordinates leave the spike of a prior, or fall back into it, one by one.

**Searches** begin at the points of every range of radii where f is lowest, and where it is lowest relative to what the
known minima explain, −log Σₖ exp(−f(x̂ₖ) − ½(x − x̂ₖ)ᵀHₖ(x − x̂ₖ)), which shows a spike inside a wide mode; no two of
these points are close to each other. They also begin at the minima along every line and at draws of the prior (its own,
if a library can draw them, and those of a Gaussian law with its curvature at the start). They run together
(`lbfgs.py`), and Newton's method completes those that ended at a new place. As long as there are new minima, more
searches begin at the same points by what is explained then; and the same is done around every new minimum, the heaviest
first.

A point where the gradient is 0 and the Hessian has a negative eigenvalue is a saddle: the search continues along that
eigenvector, in both directions. Minima are ordered by the mass of the Gaussian law at each, e^{−f(x̂)}√(det H⁻¹), so
that the first is where most of the posterior is, and not a spike that holds little of it. Two minima are the same if
neither is more than a standard deviation away from the other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from svrhmc.core.arrays import Array, Indices, Mask, contract
from svrhmc.core.deadline import BudgetSpent, check_budget, limit_to_share, passes_left
from svrhmc.core.errors import requirement
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import FiniteSum
from svrhmc.density.lbfgs import descend
from svrhmc.density.mode import Minima
from svrhmc.density.newton import Factored, Newton, StalledError
from svrhmc.density.profile import SHARE
from svrhmc.density.unbounded import describe_funnel

DENSE = 2000  # coordinates up to which Hessians are made
_FEW_STARTS = 3  # with the one that was given; where Hessians are not made
_INDEFINITE = "the log posterior is not concave at its mode (the Hessian there is not positive definite)"
_NEWTON, _SADDLES = 20, 4  # most steps, and most saddles that are left behind
_ITERATIONS = 2000
_APART = 1.0  # standard deviations between two minima that are not the same
_BEYOND = 4.0  # standard deviations that the law at a minimum reaches
_WORSE = 30.0  # by how much f at a minimum may exceed its least value if masses are not known
_LIGHTER = 7.0  # by how much the log mass of a minimum may be below the largest: a weight of a thousandth
_WALL, _FAR_OFF = 1e12, 1e9
_ENDLESS = "no mode found: f falls without end, so that the posterior is improper; is a prior missing?"
_ROUNDING = 1e-10  # of the largest |eigenvalue| of a Hessian
_SINGULAR = 1e-7  # of a diagonal entry of the factor of a Hessian whose diagonal is 1: its rounding
_SMALL = 1e-8  # of the Newton decrement at which a minimum is found
_SHORTEST = 1e-9  # of a step

_NANOSECONDS = 2e9  # for the points around a minimum and the searches from them
_POINTS, _SEARCHES = (64, 1 << 20), (4, 256)  # at least and at most
_PASSES = 100  # of a search
_FOR_POINTS = 4  # one part in so many of the time is for points
_RANGES = 16  # of radii, with as many points in each
_NARROW, _LIGHT = 0.1, 0.05  # ρ and w_s/w of a mode that is to be found
_WITHIN, _FARTHEST = 12.0, 30.0  # r₀, and the largest radius, in √d
_FAR = 0.25  # the share of points that are farther away
_EXPECTED, _ANYWAY = 8.0, 1 << 12  # m; points that are looked at where they can be afforded, though fewer may do
_SHOWN = 6  # coordinates of a point in an error
_ROUNDS = 4  # of searches from the points around one minimum
_LOWEST = 512  # points of a range among which those are that searches begin at
_NEAR, _STEP, _FARTHER, _REACH = 10.0, 0.5, 1.12, 30.0  # along a line: even steps so far, and then growing ones
_TOGETHER, _NUMBERS = 64, 1 << 24  # points looked at together, and numbers of their rows at most
_MANY, _OF_BLOCK = 1 << 13, 1 << 22  # points whose f alone is found together, and numbers of their rows at most
_AROUND, _SETTLED, _MOST = 6, 16, 32  # minima around which others are looked for; ends settled at a time; minima
_FROM_PRIOR = (1.0, 3.0)  # standard deviations of the prior, for draws of it


class _Minimum(NamedTuple):
    """A point, f and ∇²f there (None where it is not made), whether f curves upwards, and the log mass around it."""

    value: float
    point: Array
    hessian: Array | None
    curved: bool
    mass: float


class _MinimumSearch:
    """Finds single minima, and counts the passes over the data that this takes."""

    def __init__(self, target: FiniteSum) -> None:
        self.target, self.passes = target, 0.0
        self._last: tuple[Array, tuple[float, Array]] | None = None  # a point, with f and ∇f there

    def energy(self, x: Array) -> tuple[float, Array]:
        """f and ∇f; where they are not finite, f is huge and the gradient 0."""
        if not np.abs(x).max() <= _WALL:
            return 1e300, np.zeros_like(x)
        if self._last is None or not np.array_equal(self._last[0], x):
            check_budget(self.passes + 1)
            self.passes += 1
            with np.errstate(over="ignore", invalid="ignore"):
                value, slope = self.target.energies(x[None])
            finite = np.isfinite(value[0]) and np.isfinite(slope).all()
            self._last = x.copy(), (float(value[0]), slope[0]) if finite else (1e300, np.zeros_like(x))
        return self._last[1]

    def energies(self, x: Array) -> tuple[Array, Array]:
        """f and ∇f at many points, in blocks of one size, as compiled functions want them; f is infinite where it is
        not finite.
        """
        block_size = max(1, min(_TOGETHER, _NUMBERS // self.target.n))
        values, slopes = [], []
        for first in range(0, len(x), block_size):
            block = x[first : first + block_size]
            check_budget(self.passes + len(block))
            self.passes += len(block)
            padded = np.concatenate([block, np.repeat(block[:1], block_size - len(block), axis=0)])
            with np.errstate(all="ignore"):
                value, slope = self.target.energies(padded)
            values.append(value[: len(block)])
            slopes.append(slope[: len(block)])
        value, slope = np.concatenate(values), np.concatenate(slopes)
        return np.where(np.isfinite(value), value, np.inf), slope

    def potentials(self, x: Array) -> Array:
        """f alone at points whose number is a power of two, in blocks; infinite where it is not finite."""
        block_size, values = min(len(x), _power_of_two(_OF_BLOCK / self.target.n)), np.empty(len(x))
        for first in range(0, len(x), block_size):
            block = slice(first, first + block_size)
            check_budget(self.passes + block_size)
            self.passes += block_size
            with np.errstate(all="ignore"):
                values[block] = self.target.potentials(x[block])
        return np.where(np.isfinite(values), values, np.inf)

    def descend(self, x: Array) -> Array:
        """A minimum below a point, by L-BFGS."""
        from scipy.optimize import minimize

        options = {"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "ftol": 1e-14, "gtol": 1e-9, "maxcor": 20}
        end = np.asarray(minimize(self.energy, x, jac=True, method="L-BFGS-B", options=options).x, np.float64)
        if np.abs(end).max() > _FAR_OFF:
            raise RuntimeError(_ENDLESS)
        return end

    def polished_minimum(self, x: Array) -> _Minimum:
        """The minimum near x, where L-BFGS ended."""
        return self.minimum_at(*self.polished(x))

    def minimum_at(self, point: Array, curved: bool) -> _Minimum:
        """A minimum at this point, with the mass of the Gaussian law that has its curvature."""
        value = self.energy(point)[0]
        if curved and self.target.dim <= DENSE:
            hessian = self.target.hessian(point)
            if (log_determinant := _log_determinant(hessian)) is None:
                return _Minimum(value, point, None, curved, -value)
            return _Minimum(value, point, hessian, curved, -value - 0.5 * log_determinant)
        return _Minimum(value, point, None, curved, -value)

    def polished(self, x: Array) -> tuple[Array, bool]:
        """The minimum near x, where L-BFGS ended, and whether f curves upwards there in every direction."""
        if self.target.dim > DENSE:
            return x, True
        for _ in range(_SADDLES):
            x, curved = self._newton_steps(x)
            if curved:
                return x, True
            H = self.target.hessian(x)
            if not np.isfinite(H).all():
                return x, False
            values, vectors = np.linalg.eigh(H)
            descents = [
                self.descend(x + sign * vectors[:, 0] / np.sqrt(max(-values[0], 1e-12))) for sign in (1.0, -1.0)
            ]
            lowest = min(descents, key=lambda point: self.energy(point)[0])
            if self.energy(lowest)[0] >= self.energy(x)[0]:  # a kink, or a flat bottom, unless f curves downwards
                return x, bool(values[0] >= -_ROUNDING * np.abs(values).max())
            x = lowest
        return x, False

    def _newton_steps(self, x: Array) -> tuple[Array, bool]:
        """Newton steps, halved while f rises; whether H is positive definite at the end."""
        search = Newton(
            lambda at: self.energy(at)[1],
            lambda at: self.energy(at)[0],
            self._factored,
            _SMALL,
            convex=False,
            lazy=False,
            steps=_NEWTON,
            shortest=_SHORTEST,
        )
        try:
            end = search.find(x)
        except StalledError as stalled:
            return stalled.point, True
        except ValueError:  # of which LinAlgError is one
            return self._at, False
        return end.x - end.step, True

    def _factored(self, x: Array) -> Factored:
        self._at = x
        self.passes += self.target.dim
        return Factored(self.target.hessian(x))


class _Points(NamedTuple):
    """Points x = centre + root·z around a minimum, f at each (infinite where a search began), and the range of radii
    that each is in. c: as in the module's formulas.
    """

    centre: Array
    root: Array
    c: float
    x: Array
    f: Array
    ranges: Indices

    def separated(self, candidates: Indices, most: int) -> list[int]:
        """Those of the candidates that are farther than 2R from all chosen before them, R as in the module's formulas;
        at most `most`.
        """
        z = np.linalg.solve(self.root, (self.x[candidates] - self.centre).T).T
        radii, chosen = 4 * _NARROW**2 * (self.c + (z * z).sum(axis=1)), list[int]()
        remaining: Mask = np.ones(len(candidates), bool)
        while remaining.any() and len(chosen) < most:
            first = int(np.argmax(remaining))
            chosen.append(int(candidates[first]))
            remaining &= ((z - z[first]) ** 2).sum(axis=1) > radii[first]
        return chosen


class _MinimaSearch:
    """The known minima, and the search for more."""

    def __init__(self, search: _MinimumSearch, first: _Minimum, spread: Array, nanoseconds: float) -> None:
        self.search, self.minima, self.spread = search, [first], spread
        evaluations = min(_NANOSECONDS / max(nanoseconds, 1.0), passes_left() - search.passes)
        self._points = _power_of_two(float(np.clip(evaluations / _FOR_POINTS, *_POINTS)))
        self._searches = int(np.clip(evaluations / (2 * _PASSES), *_SEARCHES))
        self.looked_at = 0

    def search_around_each(self, starts: Array) -> None:
        """Search around one minimum after another, the heaviest first; around the first also from these starts."""
        done = list[_Minimum]()
        while len(done) < _AROUND:
            remaining = [minimum for minimum in self.minima if not any(minimum is finished for finished in done)]
            if not remaining:
                return
            centre = max(remaining, key=lambda minimum: minimum.mass)
            if centre.mass < max(minimum.mass for minimum in self.minima) - 2 * _LIGHTER:
                return
            self.search_around(centre, starts[:0] if done else starts)
            done.append(centre)

    def search_around(self, centre: _Minimum, starts: Array) -> None:
        """Search from points around a minimum, and from these starts."""
        points = self._points_around(centre, _covariance_root(centre, self.spread))
        self.looked_at += len(starts)
        first_starts = np.concatenate(
            [starts, self._minima_along_lines(centre, starts), self._lowest(points, by_value=True)]
        )
        for _ in range(_ROUNDS):
            known_count = len(self.minima)
            self._descend_from(points, np.concatenate([first_starts, self._lowest(points, by_value=False)]))
            if len(self.minima) == known_count:
                return
            first_starts = starts[:0]

    def _descend_from(self, points: _Points, starts: Array) -> None:
        """L-BFGS from some points, in the whitened variables of the minimum that they lie around."""
        centre, L, inverse = points.centre, points.root, np.linalg.inv(points.root)

        def energies(z: Array) -> tuple[Array, Array]:
            value, slope = self.search.energies(centre + z @ L.T)
            return value, slope @ L

        def is_known(z: Array) -> Mask:
            return self._near_known_minimum(centre + z @ L.T)

        z, f = descend(energies, (starts - centre) @ inverse.T, is_known, _PASSES, _NARROW * math.sqrt(points.c))
        self.add_minima(centre + z @ L.T, f)

    def _points_around(self, centre: _Minimum, L: Array) -> _Points:
        """Points around a minimum, as the module describes them, with f at each."""
        d = len(centre.point)
        c = max(1.0, -2 * d * math.log(_NARROW) + 2 * math.log(_LIGHT))
        needed, *law = _radius_law(d, c)
        count = min(self._points, max(_ANYWAY, _power_of_two(2 * needed)))
        x, f, ranges = np.empty((count, d)), np.empty(count), np.empty(count, np.int64)
        for first in range(0, count, _MANY):
            block = slice(first, min(first + _MANY, count))
            z, quantile = _points_by_radius(first, block.stop, d, *law)
            x[block], ranges[block] = centre.point + z @ L.T, (quantile * _RANGES).astype(np.int64)
            f[block] = self.search.potentials(x[block])
        self.looked_at += count
        return _Points(centre.point, L, c, x, f, ranges)

    def _lowest(self, points: _Points, by_value: bool) -> Array:
        """The points of each range of radii with the lowest f, or the lowest f relative to what the known minima
        explain; no point is taken twice.
        """
        f = points.f if by_value else points.f + self._log_explained(points.x)
        count, chosen = max(1, self._searches // (2 * _RANGES)), list[int]()
        for number in range(_RANGES):
            members = np.flatnonzero((points.ranges == number) & np.isfinite(f))
            lowest = members[np.argpartition(f[members], _LOWEST)[:_LOWEST]] if len(members) > _LOWEST else members
            chosen += points.separated(lowest[np.argsort(f[lowest], kind="stable")], count)
        chosen = chosen[:: max(1, 2 * _RANGES // self._searches)]
        points.f[chosen] = np.inf
        return points.x[chosen]

    def _log_explained(self, x: Array) -> Array:
        """log Σₖ exp(−f(x̂ₖ) − ½(x − x̂ₖ)ᵀHₖ(x − x̂ₖ)), over the minima with a Hessian; 0 if none has one."""
        laws = [
            (minimum.value, minimum.point, minimum.hessian) for minimum in self.minima if minimum.hessian is not None
        ]
        total = np.full(len(x), -np.inf if laws else 0.0)
        for first in range(0, len(x), _MANY):
            block = slice(first, first + _MANY)
            for value, point, hessian in laws:
                deviation = x[block] - point
                total[block] = np.logaddexp(
                    total[block], -value - 0.5 * contract("nd,nd->n", deviation @ hessian, deviation)
                )
        return total

    def _minima_along_lines(self, centre: _Minimum, starts: Array) -> Array:
        """The lowest minima along the lines through a minimum, except itself, at least as far as the other minima and
        the starts are away.
        """
        d = len(centre.point)
        if centre.hessian is None:
            return np.zeros((0, d))
        covariance = np.linalg.inv(centre.hessian)
        sd = np.sqrt(np.diag(covariance))
        if not (np.isfinite(sd).all() and (sd > 0).all()):
            return np.zeros((0, d))
        points = np.concatenate([np.array([minimum.point for minimum in self.minima]), starts])
        reach = np.maximum(_REACH, np.abs(points - centre.point).max(axis=0) / sd)
        candidates, t = list[tuple[float, Array]](), _line_places(2.0 * float(reach.max()))
        lines = min(d, max(1, 2 * self._points // len(t)))
        for j in np.argsort(-reach, kind="stable")[:lines]:
            x = centre.point + t[:, None] * covariance[j] / sd[j]
            f = self.search.energies(x)[0]
            self.looked_at += len(f)
            inner = np.isfinite(f[1:-1]) & (f[1:-1] < f[:-2]) & (f[1:-1] <= f[2:]) & (np.abs(t[1:-1]) > _STEP)
            indices = 1 + np.flatnonzero(inner)
            candidates += list(zip(f[indices], x[indices], strict=True))
        candidates.sort(key=lambda candidate: candidate[0])
        return np.array([x for _, x in candidates[: self._searches]]).reshape(-1, d)

    def _near_known_minimum(self, x: Array, sds: float = _APART / 2) -> Mask:
        """Whether points are within some standard deviations of a known minimum, by the curvature there."""
        near: Mask = np.zeros(len(x), bool)
        for minimum in self.minima:
            if minimum.hessian is not None:
                deviation = x - minimum.point
                near |= ((deviation @ minimum.hessian) * deviation).sum(axis=1) < sds**2
        return near

    def add_minima(self, ends: Array, values: Array) -> None:
        """Add the minima near the ends of searches, the lowest first, by Newton's method; skip known ones."""
        polished_count = 0
        for k in np.argsort(values, kind="stable"):
            if not np.isfinite(values[k]) or polished_count == _SETTLED or len(self.minima) == _MOST:
                return
            if self._near_known_minimum(ends[k][None])[0] or self._negligible(-values[k]):
                continue
            polished_count += 1
            try:
                new = self.search.polished_minimum(ends[k])
            except RuntimeError:  # f falls without end from there
                continue
            matters = new.curved and new.value < 1e300 and all(_are_distinct(new, minimum) for minimum in self.minima)
            if matters and not describe_funnel(self.search.target, new.point, self.spread):
                self.minima.append(new)

    def keep_shoulders(self, starts: Array) -> None:
        """Add starts at which f curves upwards and which are far from the laws at all minima."""
        for start in starts[~self._near_known_minimum(starts, _BEYOND)]:
            shoulder = self.search.minimum_at(start, True)
            if shoulder.hessian is not None:
                self.minima.append(shoulder)

    def _negligible(self, height: float) -> bool:
        """Whether a minimum with this log density is far below all others, whatever its width."""
        return height < max(-minimum.value for minimum in self.minima) - 10 * _WORSE

    def heaviest(self) -> list[_Minimum]:
        """The minima that matter, the heaviest first; the lowest first if f does not curve upwards there."""
        lowest = min(self.minima, key=lambda minimum: minimum.value)
        if not lowest.curved:
            return [
                lowest,
                *(
                    minimum
                    for minimum in self.minima
                    if minimum is not lowest and minimum.value - lowest.value < _WORSE
                ),
            ]
        heaviest = sorted((minimum for minimum in self.minima if minimum.curved), key=lambda minimum: -minimum.mass)
        return [minimum for minimum in heaviest if minimum.mass > heaviest[0].mass - _LIGHTER]


def _log_determinant(hessian: Array) -> float | None:
    """log det H; None if H is not positive definite, or only by rounding, as where f is flat along a ring."""
    units = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
    try:
        factor = np.linalg.cholesky(hessian / units / units[:, None])
    except np.linalg.LinAlgError:
        return None
    diagonal = np.diag(factor)
    if not diagonal.min() > _SINGULAR:
        return None
    return 2 * float(np.log(diagonal).sum() + np.log(units).sum())


def _covariance_root(centre: _Minimum, spread: Array) -> Array:
    """L with LLᵀ = H⁻¹; that of the prior if H is not known or not positive definite."""
    from scipy.linalg import solve_triangular

    if centre.hessian is not None:
        try:
            factor = np.linalg.cholesky(centre.hessian)
            return np.asarray(solve_triangular(factor, np.eye(len(factor)), lower=True, trans="T"), np.float64)
        except np.linalg.LinAlgError:
            pass
    return np.diag(spread)


def _radius_law(d: int, c: float) -> tuple[float, Array, Array]:
    """N, quantiles of the law of radii, and the radii: a density in proportion to r^{d−1}(c + r²)^{−d/2} up to r₀, and
    one in proportion to 1/r from √d to the largest.
    """
    radii = np.concatenate([[0.0], np.geomspace(1e-3, max(_WITHIN, _FARTHEST * math.sqrt(d)), 4096)])
    middle = (radii[1:] + radii[:-1]) / 2
    density = np.exp(d * np.log(middle) - d / 2 * np.log(c + middle**2)) / middle * (middle < _WITHIN)
    near = np.concatenate([[0.0], np.cumsum(density * np.diff(radii))])
    far = np.log(np.maximum(radii, math.sqrt(d)))
    far -= far[0]
    needed = _EXPECTED * d * _NARROW**-d * near[-1] / (1 - _FAR)
    return needed, (1 - _FAR) * near / near[-1] + _FAR * far / far[-1], radii


def _points_by_radius(first: int, last: int, d: int, quantiles: Array, radii: Array) -> tuple[Array, Array]:
    """Points with this law of radii in uniform directions, and the quantile of each radius."""
    from scipy.special import ndtri

    u = _recurrence(first, last, d + 1)
    z = ndtri(u[:, 1:])
    z *= (np.interp(u[:, 0], quantiles, radii) / np.sqrt((z * z).sum(axis=1)))[:, None]
    return z, u[:, 0]


def _recurrence(first: int, last: int, dim: int) -> Array:
    """uᵢ = ½ + i(g⁻¹, …, g^{−dim}) modulo 1 for i = first + 1 … last, with the g > 1 that has g^{dim+1} = g + 1."""
    g = 2.0
    for _ in range(64):
        g = (1 + g) ** (1 / (dim + 1))
    u = 0.5 + np.arange(first + 1, last + 1)[:, None] * g ** -np.arange(1.0, dim + 1)
    return np.asarray(u - np.floor(u), np.float64)


def _power_of_two(number: float) -> int:
    """The largest power of two that is not above a number, at least 1."""
    return 1 << max(0, math.floor(math.log2(max(number, 1.0))))


def _line_places(reach: float) -> Array:
    """Places along a line in both directions: evenly spaced near 0, then at growing distances."""
    even = np.arange(_STEP, _NEAR + _STEP / 2, _STEP)
    count = max(1, math.ceil(math.log(reach / _NEAR) / math.log(_FARTHER)))
    side = np.concatenate([even, _NEAR * _FARTHER ** np.arange(1, count + 1)])
    return np.concatenate([-side[::-1], [0.0], side])


def _are_distinct(first: _Minimum, second: _Minimum) -> bool:
    """Whether two minima are more than a standard deviation apart, by the curvature at either."""
    difference = first.point - second.point
    squares = [
        float(difference @ minimum.hessian @ difference) for minimum in (first, second) if minimum.hessian is not None
    ]
    return bool(max(squares, default=0.0) > _APART**2)


@np.errstate(over="ignore", invalid="ignore")  # points lie far out, where f may be beyond float64
def find_minima(target: Any, start: Array) -> Minima:
    """The minima of a model: from `start`, and from points around the minimum that is found from there."""
    search = _MinimumSearch(target)
    if target.dim > DENSE:
        return _minima_without_hessians(target, start)
    spread = target.prior_spread()
    prior = _prior_draws(start, spread)
    first = search.polished_minimum(_first_finite_descent(search, start, prior))
    if target.prior_draws is not None:
        prior = np.concatenate([prior, target.prior_draws])
    search.passes += target.dim + 1
    if why := describe_funnel(target, first.point, spread):
        return Minima(start[None], search.passes, why)
    return _search_around(search, first, spread, target.n * target.row_nanoseconds, prior)


@np.errstate(over="ignore", invalid="ignore")
def find_only_minimum(target: Any, start: Array, rounding: float) -> Minima:
    """The minimum of an f that was declared to be convex; an error if gradients show that it is not.

    The gradient of a convex f is monotone: (∇f(x) − ∇f(y))ᵀ(x − y) ≥ 0 for all x and y. This is tested for all pairs of
    64 points: around the minimum, as far as other minima would be searched for, and draws of a Gaussian with the
    prior's curvature. rounding: the error of a gradient, relative to its length.
    """
    search, spread = _MinimumSearch(target), target.prior_spread()
    prior = _prior_draws(start, spread)
    first, d = search.polished_minimum(_first_finite_descent(search, start, prior)), len(start)
    z, _ = _points_by_radius(0, _TOGETHER - len(prior), d, *_radius_law(d, 1.0)[1:])
    step = z * spread if first.hessian is None else z @ _covariance_root(first, spread).T
    x = np.concatenate([prior, first.point + step])
    value, slope = search.energies(x)
    finite = np.isfinite(value) & np.isfinite(slope).all(axis=1)
    x, slope = x[finite], slope[finite]
    lengths = np.sqrt((slope * slope).sum(axis=1))
    for point, gradient, length in zip(x, slope, lengths, strict=True):
        differences, changes = x - point, slope - gradient
        rounding_errors = rounding * (length + lengths) * np.sqrt((differences * differences).sum(axis=1))
        rises = (differences * changes).sum(axis=1) < -rounding_errors
        if rises.any():
            raise _not_concave(point, x[int(np.argmax(rises))])
    return Minima(first.point[None], search.passes, "one start", "" if first.curved else _INDEFINITE)


def _not_concave(x: Array, y: Array) -> ValueError:
    """The error for a declaration that two points refute."""
    first, second = (np.array2string(point[:_SHOWN], precision=4) for point in (x, y))
    return requirement(
        "log_concave",
        "True only for a log posterior that is concave",
        f"one that curves upwards somewhere between {first} and {second}{', …' if len(x) > _SHOWN else ''}",
        'declare nothing; other modes are then looked for, and the verdict is "local"',
    )


@np.errstate(over="ignore", invalid="ignore")
def minima_around(target: FiniteSum, mode: Array, starts: Array, nanoseconds: float, passes: float) -> Minima:
    """The minima around a known mode, and from some starts. A start from which f falls to a minimum far away from it is
    a shoulder: if the law there has mass, the start counts as a mode.
    """
    search = _MinimumSearch(target)
    search.passes = passes
    return _search_around(
        search, search.polished_minimum(mode), np.ones(len(mode)), nanoseconds, starts, shoulders=True
    )


@np.errstate(over="ignore", invalid="ignore")
def minima_from(target: FiniteSum, mode: Array, starts: Array, words: str, passes: float) -> Minima:
    """The minima near some starts, and a known mode, if there are no others."""
    if not len(starts):
        return Minima(mode[None, :], passes, words)
    search = _MinimumSearch(target)
    search.passes = passes
    others = _MinimaSearch(search, search.polished_minimum(mode), np.ones(len(mode)), 1.0)
    others.add_minima(starts, search.energies(starts)[0])
    heaviest = others.heaviest()
    return Minima(np.array([minimum.point for minimum in heaviest]), search.passes, words)


def _search_around(
    search: _MinimumSearch, first: _Minimum, spread: Array, nanoseconds: float, starts: Array, shoulders: bool = False
) -> Minima:
    with limit_to_share(SHARE):
        others = _MinimaSearch(search, first, spread, nanoseconds)
        try:
            others.search_around_each(starts)
            if shoulders:
                others.keep_shoulders(starts)
        except BudgetSpent:  # then those are known that were found by then
            pass
    heaviest = others.heaviest()
    words = f"{others.looked_at:,} points at up to {_FARTHEST:g} times the spread of each"
    return Minima(
        np.array([minimum.point for minimum in heaviest]),
        search.passes,
        words,
        "" if heaviest[0].curved else _INDEFINITE,
    )


def _prior_draws(start: Array, spread: Array, count: int = 8) -> Array:
    """Draws of Gaussians about `start` with the prior's curvature."""
    noise = Stream(0, np.arange(len(_FROM_PRIOR) * count)).normals(0, len(start), Purpose.START, Purpose.START_FINE)
    return np.asarray(start + np.repeat(_FROM_PRIOR, count)[:, None] * spread * noise, np.float64)


def _first_finite_descent(search: _MinimumSearch, start: Array, more_starts: Array) -> Array:
    """Where L-BFGS ends from `start`, or else from the first other point from which it ends at a finite f."""
    for candidate in (start, *more_starts):
        point = search.descend(candidate)
        if search.energy(point)[0] < 1e300:
            return point
    raise RuntimeError("no mode found: f is not finite where the search for it went; give another init.")


def _minima_without_hessians(target: Any, start: Array) -> Minima:
    """The minima from `start` and a few draws about it, one after another, without Hessians."""
    search, ends = _MinimumSearch(target), []
    starts = [start, *_prior_draws(start, target.prior_spread(), _FEW_STARTS)[: _FEW_STARTS - 1]]
    for candidate in starts:
        point = search.descend(candidate)
        if (value := search.energy(point)[0]) < 1e300:
            ends.append((value, point))
    if not ends:
        raise RuntimeError("no mode found: f is not finite where the search for it went; give another init.")
    ends.sort(key=lambda end: end[0])
    distinct = [ends[0]]
    for value, point in ends[1:]:
        differences = [point - other for _, other in distinct]
        is_new = all(
            float(difference @ target.hessian_products(distinct[0][1], difference[None])[0]) > _APART**2
            for difference in differences
        )
        if is_new and value - distinct[0][0] < _WORSE:
            distinct.append((value, point))
    return Minima(np.array([point for _, point in distinct]), search.passes, f"{len(starts)} starts")
