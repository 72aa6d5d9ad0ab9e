"""The mode of a model with a linear predictor, by Newton's method.

The loop is that of `newton.py`, with the Hessian up to 2000 columns, and with conjugate gradients beyond. It starts at
0, or at the model's guess if f is lower there; a step that overflows is halved like any other that does not help. If
there are many rows (n > 400·dim) it starts from the mode of an eighth of them, found in the same way, and with their
Hessian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import check_budget, report_share_done
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.density.base import RowsDensity
from svrhmc.density.newton import Factored, Newton, StalledError
from svrhmc.density.rank import near_dependence_error, separable_error, smallest_scaled_eigenvalue

DENSE_DIM = 2000  # up to this many columns the dim × dim Hessian is formed; beyond it only its products are
TOLERANCE = 1e-9  # of the Newton decrement: the distance to the mode in posterior standard deviations
_NEWTON_STEPS = 100
_ROUNDING = 1e-14  # of f: half the squared decrement below this is lost in it
_DAMPED_STEPS = 500
_PRECISE = 1e-8  # of conjugate gradients
_TALL = 400  # from so many rows a column on, Newton starts at the mode of some of them:
_SHARE, _SOME, _MOST_ENTRIES = 8, 100, 1 << 26  # an eighth, but no more than so many a column or so many entries
_SHORTEST, _SHORTEST_OF_PRODUCTS = 1e-18, 1e-10  # of a step: a shorter one changes nothing
_DIGITS = 64  # times float64's rounding, in a gradient
_ROUGH = 0.3  # the tolerance there
_USUAL = 8  # rounds of a search
_VANISHED = 1e-10  # of the curvature at 0: rare events keep 1e-4 of it and more


@dataclass(frozen=True, eq=False)
class Minima:
    """Minima of f.

    points: the heaviest first. passes: over the data, to find them. starts: of the search, in words. doubt: why the law
    around the first may not be all of the posterior; empty if nothing shows it.
    """

    points: Array
    passes: float
    starts: str
    doubt: str = ""

    @property
    def first(self) -> Array:
        """The mode: the point with the least f."""
        point: Array = self.points[0]
        return point


class ModeSearch:
    """One search; `passes` counts those over the rows, `rounds` the checks of a budget.

    share, before: the part of all rows that this search has, and the passes that were made before it.
    """

    def __init__(self, target: RowsDensity, share: float = 1.0, before: float = 0.0) -> None:
        self.target, self.passes, self.rounds = target, 0.0, 0
        self._share, self._before = share, before

    def find(self, tolerance: float = TOLERANCE) -> Array:
        """The mode, to within this many posterior standard deviations."""
        report_share_done(1 / _USUAL)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no step
            return self._find(tolerance)

    def _find(self, tolerance: float) -> Array:
        start, hessian = np.zeros(self.target.dim), None
        lowest: float | None = None  # f at the start, where it was needed
        if not self.target.rows.in_memory:  # then a look at f is a pass, and the guess is taken as it is
            point = self.target.guess()
            return self._newton(start if point is None else point, None, tolerance)
        if (point := self.target.guess()) is not None and point.any():
            lowest, there = self._value(start), self._value(point)
            if there < lowest:
                start, lowest = point, there
            self.passes += 4
        if self.target.n > _TALL * self.target.dim and (guess := self._mode_of_sample()) is not None:
            lowest = self._value(start) if lowest is None else lowest
            if self._value(guess[0]) < lowest:
                start, hessian = guess
            self.passes += 2
        return self._newton(start, hessian, tolerance)

    def _check_budget(self) -> None:
        """Report progress and check the budget, before each round."""
        self.rounds += 1
        report_share_done((self.rounds + 1) / _USUAL)
        check_budget(self._before + self._share * self.passes)

    def _value(self, x: Array) -> float:
        """f, which may overflow if a step is too long."""
        return float(self.target.potentials(x[None, :])[0])

    def _barrier_value(self, x: Array) -> float:
        """f if it may be ∞ where ∇f is finite, else 0."""
        return self._value(x) if self.target.loss.barrier else 0.0

    def _gradient(self, x: Array) -> Array:
        """∇f, which may overflow too."""
        self.passes += 1
        if not self.target.rows.in_memory:
            self.target.hessian(x)  # whose pass computes the gradient too
        slope: Array = self.target.gradients(x[None, :])[0]
        return slope

    def _mode_of_sample(self) -> tuple[Array, Array | None] | None:
        """Mode and Hessian of some of the rows, with the prior scaled down in proportion; None if they have no mode."""
        count = min(self.target.n // _SHARE, max(_SOME * self.target.dim, _MOST_ENTRIES // self.target.dim))
        chosen = Stream(0, np.arange(1)).indices(0, count, self.target.n, True, Purpose.DATA)[0]
        chosen.sort()
        share = count / self.target.n
        precision = share * self.target.prior_strength
        part = self.target.share(chosen, precision)
        search = ModeSearch(part, self._share * share, self._before + self._share * self.passes)
        try:
            mode = search.find(_ROUGH)
            hessian = part.hessian(mode) / share if self.target.dim <= DENSE_DIM else None
        except (ValueError, RuntimeError):
            return None
        self.passes += search.passes * share
        return mode, hessian

    def _newton(self, x: Array, hessian: Array | None, tolerance: float) -> Array:
        """Newton's method from x: by the Hessian up to 2000 columns, by products with it beyond."""
        target, wide = self.target, self.target.dim > DENSE_DIM
        convex = target.convex_components and not wide
        search = Newton(
            self._gradient if convex else self._finite_gradient,
            self._barrier_value if convex else self._counted_value,
            self._products if wide else self._factored,
            tolerance,
            convex=convex,
            damped=not (convex or wide),
            lazy=not wide,
            steps=_NEWTON_STEPS if convex or wide else _DAMPED_STEPS,
            shortest=_SHORTEST_OF_PRODUCTS if wide else _SHORTEST,
            before_round=self._check_budget,
            before_step=lambda: check_budget(self._before + self._share * self.passes),
            examine=self._require_curvature if convex or wide else lambda x, step: None,
            floor=self._rounding,
            relative=_ROUNDING if wide else 0.0,
        )
        try:
            end = search.find(x, None if hessian is None else self._usable_hessian(hessian), self._finite_gradient(x))
        except StalledError as stalled:
            raise self._stalled_error(stalled, tolerance) from None
        except np.linalg.LinAlgError:
            raise near_dependence_error(target, target.hessian(self._at)) from None
        return end.x - end.step

    def _usable_hessian(self, hessian: Array) -> Factored | None:
        """The Hessian of some rows, unless it is singular."""
        factored = Factored(hessian)
        try:
            factored.solve(np.zeros(len(hessian)))
        except ValueError:  # numpy's LinAlgError is one
            return None
        return factored

    def _factored(self, x: Array) -> Factored:
        self._at = x
        self.passes += 1
        return Factored(self.target.hessian(x))

    def _products(self, x: Array) -> _Products:
        self.passes += 1
        return _Products(self.target, x)

    def _finite_gradient(self, x: Array) -> Array:
        """∇f where the search stands; an error if it overflows."""
        slope = self._gradient(x)
        return slope if np.isfinite(slope).all() else self.target.gradient(x)

    def _counted_value(self, x: Array) -> float:
        self.passes += 1
        return self._value(x)

    def _rounding(self, x: Array) -> float:
        """The rounding error of the squared decrement, which is large if x or the prior's mean is many sd from 0."""
        deviation, prior = x - self.target.prior_mean, self.target.prior_mean
        size = float(x @ self.target.hessian_product(x, x))
        size += float(self.target.prior_precision @ (deviation**2 + prior**2)) + self.target.n
        return (_DIGITS * float(np.finfo(np.float64).eps)) ** 2 * size

    def _stalled_error(self, stalled: StalledError, tolerance: float) -> Exception:
        """The error for a search in which no step helps, with what can be said about the columns."""
        distance = f"{stalled.decrement**0.5:.2g} sd away"
        if stalled.reason == "rounding":
            smallest = smallest_scaled_eigenvalue(self.target.hessian(stalled.point))
            return RuntimeError(
                f"no mode was found: it is still {distance}, and float64 is not precise enough to get closer "
                f"(the eigenvalues of the scaled Hessian fall to {smallest:.1e}). Scale the columns of X to about 1, "
                "drop those that nearly depend on others, raise prior_precision, or give a prior_mean nearer to 0."
            )
        if stalled.decrement <= tolerance**2:  # no way down is left, but only because H was bent upwards for it
            return near_dependence_error(self.target, self.target.hessian(stalled.point))
        return RuntimeError(
            f"no mode was found in {self.rounds} Newton steps; it is still {distance}. Scale the columns "
            "of X, the labels and the weights to about 1, or raise prior_precision."
        )

    def _require_curvature(self, x: Array, step: Array) -> None:
        """Refuse separable data, on which Newton's steps never shrink while the curvature along them falls like
        e^{−|t|}. It may also fall because one row is far out; so the step, or the way so far, must separate the data.
        """
        free = self.target.prior_strength == 0
        flat = np.where(free, step, 0.0)
        if not flat.any():
            return
        if not self.target.rows.in_memory:
            if self.target.runs_off(x, flat):
                raise separable_error()
            return
        points = x, np.zeros(self.target.dim)
        here, at_zero = (float(flat @ self.target.hessian_product(point, flat)) for point in points)
        directions = (-flat, np.where(free, x, 0.0))
        if here < _VANISHED * at_zero and any(self.target.runs_off(x, direction) for direction in directions):
            raise separable_error()


class _Products:
    """Products with the Hessian at a point, for conjugate gradients with a preconditioner."""

    def __init__(self, target: RowsDensity, x: Array) -> None:
        curvature, bend = target.row_curvatures(x), np.maximum(target.prior_curvature(x), 0.0)
        self._product, self._near = target.operator(curvature, bend), target.preconditioner(curvature, bend)
        self._most = 10 * target.dim  # cut short, it is still a way down

    def solve(self, gradient: Array, damping: float = 0.0) -> Array:
        """Only as accurately as the size of the step requires: Newton's method then still converges superlinearly."""
        from scipy.sparse.linalg import cg

        precise = _PRECISE
        if self._near is not None:
            size = math.sqrt(max(float(gradient @ (self._near @ gradient)), 0.0))
            precise = min(0.1, max(0.1 * size, _PRECISE))
        step, _ = cg(
            self._product, gradient, rtol=precise, maxiter=self._most, M=self._near, callback=lambda _: check_budget()
        )
        return np.asarray(step, np.float64)
