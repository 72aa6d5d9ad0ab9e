"""The constants that the theory knows a target by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.errors import boolean, nonnegative, positive, real_array, requirement, set_fields, whole_number
from svrhmc.density.base import FiniteSum, is_target, require_target
from svrhmc.rows.forms import rows_of

Start = str | npt.ArrayLike | None  # of chains: None (the origin), "mode" or a point
_RANGE = (1e-60, 1e60)  # of every constant, so that no formula overflows
_BLOCK = 1 << 14  # components whose gradients are held at once


P = ParamSpec("P")
R = TypeVar("R")


def refuses_overflow(formula: Callable[P, R]) -> Callable[P, R]:
    """A formula whose numbers may leave float64 on the way: then an error says so."""

    @wraps(formula)
    def evaluated(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                return formula(*args, **kwargs)
        except ArithmeticError:
            why = f"numbers of {formula.__name__} are beyond float64"
            raise requirement("the constants", "of ordinary size beside each other", "others", why) from None

    return evaluated


@dataclass(frozen=True)
class Problem:
    """n components in `dim` dimensions, and what Assumptions 1 and 2 of the paper bound.

    n, dim: the number of components, and of coordinates.
    smoothness: L of f, its largest curvature.
    convexity: μ of f, its smallest curvature.
    radius: R, a bound on the distance from the start to the minimiser x* (the paper starts at 0, so there it is |x*|).
    gradient_variance: (1/n) Σ|∇fᵢ(x*)|², needed for the conditions of Theorem 1 and for SGLD and SG-HMC; the paper's
        σ² stands for it (in its Remark) or for 1/dim of it (in its Table 1).
    component_smoothness: L_max of the fᵢ (None: L, as in the paper, whose L bounds every fᵢ).
    convex_components: whether every fᵢ is convex; then L_max counts only as √(L_max L).
    scalar_parts: whether a snapshot can remember one number a row, so that a step evaluates one gradient, not two.

    >>> Problem(n=1000, dim=10, smoothness=1.5, convexity=0.5).condition_number
    3.0
    """

    n: int
    dim: int
    smoothness: float
    convexity: float
    radius: float = 0.0
    gradient_variance: float | None = None
    component_smoothness: float | None = None
    convex_components: bool = True
    scalar_parts: bool = False

    @property
    def lasting_parts(self) -> bool:
        """Whether a number for every component is kept."""
        return self.scalar_parts

    def __post_init__(self) -> None:
        L_max, variance = self.component_smoothness, self.gradient_variance
        set_fields(
            self,
            n=whole_number("n", self.n, 1, 1 << 62),
            dim=whole_number("dim", self.dim, 1, 1 << 62),
            smoothness=positive("smoothness", self.smoothness),
            convexity=positive(
                "convexity", self.convexity, "for a target that is not strongly convex, see target.regularised"
            ),
            radius=nonnegative("radius", self.radius),
            gradient_variance=None if variance is None else nonnegative("gradient_variance", variance),
            component_smoothness=None if L_max is None else positive("component_smoothness", L_max),
            convex_components=boolean("convex_components", self.convex_components),
            scalar_parts=boolean("scalar_parts", self.scalar_parts),
        )
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and value and not _RANGE[0] <= value <= _RANGE[1]:
                raise requirement(field.name, f"from {_RANGE[0]:g} to {_RANGE[1]:g}", f"{value:g}")
        if self.component_smoothness is not None and self.component_smoothness < self.smoothness * (1 - 1e-12):
            raise requirement(
                "component_smoothness",
                f"at least the smoothness, {self.smoothness:g}",
                f"{self.component_smoothness:g}",
                "the mean of the components cannot be less smooth than all of them",
            )
        if self.convexity > self.smoothness * (1 + 1e-12):
            raise requirement("convexity", f"at most the smoothness, {self.smoothness:g}", f"{self.convexity:g}")

    @staticmethod
    @refuses_overflow
    def of(target: FiniteSum, start: Start = None) -> Problem:
        """The constants of a target, for chains from `start`: None (the origin), "mode" or a point.

        >>> from svrhmc import targets
        >>> problem = Problem.of(targets.synthetic(n=100, dim=10))
        >>> round(problem.condition_number, 6)
        2.25
        """
        _require_bound(require_target(target))
        mode = target.mode()
        return Problem(
            n=target.n,
            dim=target.dim,
            smoothness=target.smoothness,
            convexity=target.convexity,
            radius=float(np.linalg.norm(starting_point(target, start) - mode)),
            gradient_variance=_gradient_variance(target, mode),
            component_smoothness=max(target.component_smoothness, target.smoothness),
            convex_components=target.convex_components,
            scalar_parts=target.scalar_parts,
        )

    @property
    def condition_number(self) -> float:
        """κ = L/μ."""
        return self.smoothness / self.convexity

    @property
    def scale(self) -> float:
        """√(d/μ), which bounds the posterior's root mean square distance from x*."""
        return math.sqrt(self.dim / self.convexity)

    @property
    def variance_ratio(self) -> float:
        """Λ²/L², with Λ² ≥ (1/n) Σ|∇fᵢ(x) − ∇fᵢ(y)|²/|x − y|²: L_max/L for convex fᵢ, else (L_max/L)²."""
        if self.component_smoothness is None:
            return 1.0
        ratio = self.component_smoothness / self.smoothness
        return ratio if self.convex_components else ratio**2

    @property
    def typical_curvature(self) -> float:
        """L."""
        return self.smoothness

    def curvature_range(self, bound: bool) -> tuple[float, float]:
        """μ and L."""
        return self.convexity, self.smoothness

    def __str__(self) -> str:
        shown = [(f.name, getattr(self, f.name)) for f in fields(self)[:7]]
        return "Problem(" + ", ".join(f"{name}={_short(value)}" for name, value in shown if value is not None) + ")"


def _require_bound(target: FiniteSum) -> None:
    """Refuse a loss whose curvature has no bound, and say what to do instead."""
    form = rows_of(target.form())
    if form is not None and form.loss.curvature_bound is None:
        raise requirement(
            "target",
            "one whose curvature has a bound, from which the theory finds step sizes",
            repr(target),
            f"the curvature of {form.loss} has no bound; use svrhmc.sample(target), which needs none, or run a sampler "
            "with a step_size and an inverse_mass of your own",
        )


def starting_point(target: FiniteSum, start: Start) -> npt.NDArray[np.float64]:
    """The point that `start` stands for."""
    if start is None:
        return np.zeros(target.dim)
    if isinstance(start, str):
        if start != "mode":
            raise requirement("start", "None, 'mode' or an array", repr(start))
        return target.mode()
    return np.asarray(real_array("start", start, (target.dim,)), np.float64)


def _gradient_variance(target: FiniteSum, mode: npt.NDArray[np.float64]) -> float:
    total = 0.0
    for begin in range(0, target.n, _BLOCK):
        rows = np.arange(begin, min(begin + _BLOCK, target.n))
        total += float((target.component_gradients(mode, rows) ** 2).sum())
    return total / target.n


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def as_problem(problem: Problem | FiniteSum) -> Problem:
    """The constants, of a target too (for chains from the origin)."""
    if isinstance(problem, Problem):
        return problem
    if not is_target(problem):
        raise requirement("problem", "a target or a theory.Problem", repr(problem))
    return Problem.of(problem)


def accuracy_of(accuracy: float) -> float:
    """ε, within the range of the constants."""
    eps = positive("accuracy", accuracy)
    if not _RANGE[0] <= eps <= _RANGE[1]:
        raise requirement("accuracy", f"from {_RANGE[0]:g} to {_RANGE[1]:g}", f"{eps:g}")
    return eps
