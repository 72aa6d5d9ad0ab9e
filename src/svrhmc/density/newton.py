"""Newton's method: the one loop by which minima of f are found, whatever f is made of and wherever its rows lie.

At x, with g = ∇f(x) and H = ∇²f, a step and the Newton decrement are

    p = (H + τ|diag H|)⁻¹g,        δ² = gᵀp,

δ being the distance to go in posterior standard deviations. A shorter step x − sp, s ≤ 1, is taken where

    convex f:   ∇f(x − sp)ᵀH⁻¹∇f(x − sp) < (1 − 10⁻⁴s)δ²,  for the H of the step: then no value of f is needed;
    other f:    f(x − sp) ≤ f(x) − 10⁻⁴sδ².

Where it is not, s is halved; or, where f may bend downwards (`damped`), τ is raised until f falls, and lowered again
after that. A factor of H is kept for the next step (`lazy`) as long as each step leaves less than a twentieth of δ, or
as a few steps more like the last are the end: a gradient costs far less than a Hessian. The end is δ below the
tolerance with τ = 0, or a δ that rounding no longer lets fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import CHOLESKY, indivisible_work

ROUNDED = 1e-10  # of the squared decrement: below it a step that does not help is rounding
_ARMIJO = 1e-4
_FIRST_DAMPING, _MOST_DAMPING = 1e-4, 1e15
_LARGEST = float(np.finfo(np.float64).max)
_KEPT, _PATIENCE = 0.0025, 6  # what a step may leave of δ² where its factor is kept; steps that may be left to make


class Curvature(Protocol):
    """The Hessian at a point, for the solution of linear systems."""

    def solve(self, gradient: Array, damping: float = 0.0) -> Array:
        """(H + τ|diag H|)⁻¹g; `LinAlgError` where that matrix is not positive definite."""


class Factored:
    """A dense Hessian, by its Cholesky factor.

    >>> Factored(np.diag([2.0, 4.0])).solve(np.array([2.0, 2.0]))
    array([1. , 0.5])
    """

    def __init__(self, hessian: Array) -> None:
        self.hessian = hessian
        self._factor: tuple[float, tuple[Array, bool]] | None = None

    def solve(self, gradient: Array, damping: float = 0.0) -> Array:
        """By the Cholesky factor, which is computed once for a damping."""
        from scipy.linalg import cho_factor, cho_solve

        if self._factor is None or self._factor[0] != damping:
            matrix = self.hessian
            if damping:
                diagonal = np.diag(matrix)
                matrix = matrix.copy()
                raised = diagonal + damping * (np.abs(diagonal) + 1e-300)
                np.fill_diagonal(matrix, np.minimum(raised, _LARGEST))
            with indivisible_work(CHOLESKY * len(matrix) ** 3):
                self._factor = damping, cho_factor(matrix)
        return np.asarray(cho_solve(self._factor[1], gradient), np.float64)


class StalledError(Exception):
    """Raised if no step helps: `decrement` is δ² at `point`, where the search stands."""

    def __init__(self, point: Array, decrement: float, reason: str) -> None:
        super().__init__(reason)
        self.point, self.decrement, self.reason = point, decrement, reason


class End(NamedTuple):
    """Where a search ended, the remaining step (0 if it is below rounding), and ∇f and H there."""

    x: Array
    step: Array
    gradient: Array
    curvature: Curvature


def _do_nothing(*_: object) -> None:
    """The default of all hooks of a search."""


@dataclass
class Newton:
    """One search.

    slope, value: ∇f and f at a point, not finite where they overflow. curvature: the Hessian at a point. convex,
    damped, lazy: as in the module's description. before_round, before_step: called before each round and before each
    trial of a step. examine: called with (x, p) for each new Hessian; may raise an error. floor: the rounding error of
    δ² at a point. shortest: the least s.

    >>> def slope(x):
    ...     return np.array([x[0] ** 3 - 8.0])
    >>> search = Newton(slope, lambda x: 0.0, lambda x: Factored(np.array([[3 * x[0] ** 2]])), tolerance=1e-9)
    >>> search.find(np.array([3.0])).x.round(6)
    array([2.])
    """

    slope: Callable[[Array], Array]
    value: Callable[[Array], float]
    curvature: Callable[[Array], Curvature]
    tolerance: float
    convex: bool = True
    damped: bool = False
    lazy: bool = True
    steps: int = 100
    shortest: float = 1e-18
    before_round: Callable[[], None] = _do_nothing
    before_step: Callable[[], None] = _do_nothing
    examine: Callable[[Array, Array], None] = _do_nothing
    floor: Callable[[Array], float] = lambda _: 0.0
    relative: float = 0.0  # of |f|: a smaller δ² is the end as well

    def find(self, x: Array, curvature: Curvature | None = None, gradient: Array | None = None) -> End:
        """The minimum near x; from a Hessian there or nearby, and from ∇f(x), if they are known."""
        fresh, damping, last_decrement = curvature is None, 0.0, math.inf
        gradient = self.slope(x) if gradient is None else gradient
        value = 0.0 if self.convex else self.value(x)
        decrement = math.inf
        for _ in range(self.steps):
            if curvature is None or not self.damped:
                self.before_round()
            if curvature is None:
                curvature = self.curvature(x)
            try:
                step = curvature.solve(gradient, damping)
            except np.linalg.LinAlgError:
                if not self.damped:
                    raise
                if damping >= _MOST_DAMPING:
                    raise StalledError(x, decrement, "damping") from None
                damping = _raised_damping(damping)
                continue
            decrement = float(gradient @ step)
            if fresh:
                self.examine(x, step)
            if damping == 0 and decrement <= max(self.tolerance**2, self.relative * abs(value)):
                return End(x, step, gradient, curvature)
            nearly_converged = damping == 0 and decrement < min(ROUNDED * max(1.0, abs(value)), last_decrement)
            scale, trial = self._line_search(
                x, value, step, decrement, curvature, fresh, nearly_converged and not self.convex
            )
            if trial is None:
                if not fresh:
                    curvature, fresh = None, True
                    continue
                rounding = damping == 0 and (decrement < ROUNDED or decrement <= self.floor(x))
                if rounding or (not self.convex and not self.damped):  # f is flat, but for rounding
                    return End(x, np.zeros_like(x), gradient, curvature)
                if not self.damped:
                    raise StalledError(x, decrement, "rounding")
                if damping >= _MOST_DAMPING:
                    raise StalledError(x, decrement, "damping")
                damping = _raised_damping(damping)
                continue
            x = x - scale * step
            value, new_gradient, remaining = trial
            gradient = self.slope(x) if new_gradient is None else new_gradient
            last_decrement = decrement if nearly_converged else math.inf
            damping = damping / 16 if damping > 1e-3 else 0.0
            slow = (
                remaining > _KEPT * decrement and remaining * (remaining / decrement) ** _PATIENCE > self.tolerance**2
            )
            fresh = not self.lazy or slow
            curvature = None if fresh else curvature
        raise StalledError(x, decrement, "steps")

    def _line_search(
        self,
        x: Array,
        value: float,
        step: Array,
        decrement: float,
        curvature: Curvature,
        fresh: bool,
        nearly_converged: bool,
    ) -> tuple[float, tuple[float, Array | None, float] | None]:
        """s, with f, ∇f and δ² at the new point as far as they are known; None in their place if no s helps."""
        scale = 1.0
        while True:
            self.before_step()
            trial = self._evaluate_step(x - scale * step, value, scale, decrement, curvature, nearly_converged)
            if trial is not None or not fresh or self.damped:
                return scale, trial
            if self.convex and (decrement < ROUNDED or decrement <= self.floor(x)):
                return scale, None
            scale /= 2
            if scale < self.shortest:
                return scale, None

    def _evaluate_step(
        self, x: Array, value: float, scale: float, decrement: float, curvature: Curvature, nearly_converged: bool
    ) -> tuple[float, Array | None, float] | None:
        """f, ∇f and δ² at a point, as far as its acceptance needs them; None if it is not accepted."""
        if self.convex:
            slope = self.slope(x)
            inside = bool(np.isfinite(slope).all()) and math.isfinite(self.value(x))
            remaining = float(slope @ curvature.solve(slope)) if inside else math.inf
            return (0.0, slope, remaining) if remaining < (1 - _ARMIJO * scale) * decrement else None
        new_value = self.value(x)
        return (
            (new_value, None, math.inf)
            if nearly_converged or new_value <= value - _ARMIJO * scale * decrement
            else None
        )


def _raised_damping(damping: float) -> float:
    return max(4 * damping, _FIRST_DAMPING)
