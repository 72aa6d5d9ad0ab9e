"""How many modes a posterior has that is log-concave given one shared parameter: by its profile, on a line.

Where a loss is convex in the predictors at every value of a shared parameter τ (log σ of a Gaussian, the log shape of
negative binomial and gamma laws), and the prior of the coefficients β is log-concave, there is one
β(τ) = argmin f(·, τ), and f has a minimum at (β, τ) if and only if β = β(τ) and the profile p(τ) = f(β(τ), τ) has a
minimum at τ. With H the Hessian at (β(τ), τ),

    β′(τ) = −H_ββ⁻¹H_βτ,     p′(τ) = ∂f/∂τ,     p″(τ) = H_ττ − H_τβH_ββ⁻¹H_βτ.

From the mode p′ is followed both ways, over what the prior of τ makes possible. Where the cubic that has p′ and p″ of
two neighbouring values goes through 0 between them while p′ has one sign at both, the interval is halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import BudgetSpent, check_budget, limit_to_share
from svrhmc.density.base import RowsDensity
from svrhmc.density.mode import DENSE_DIM
from svrhmc.density.newton import Factored, Newton, StalledError

_REACH, _FLAT, _LEAST = 4.0, 20.0, 4.0  # prior sds of τ; without a normal prior; at least, around the mode
_STEP, _LONG_STEP, _MANY = 1.0, 2.0, 1e7  # of τ; where X has more entries than these
_SHORTEST = 1 / 32  # of an interval that is halved
_NEWTON, _NEAR = 30, 0.05  # steps for β; in sd
SHARE = 0.2  # of a budget that may be spent on modes besides the first
_PLACES = np.linspace(0.1, 0.9, 9)  # of an interval, where the cubic is looked at


class _ProfilePoint(NamedTuple):
    """(β(τ), τ), p′, p″ and dβ/dτ."""

    x: Array
    slope: float
    curvature: float
    tangent: Array


@dataclass(frozen=True, eq=False)
class Profile:
    """Values of τ at which p′ was computed, and points near minima of p other than the mode."""

    values: Array
    others: tuple[Array, ...]
    passes: float

    def __str__(self) -> str:
        return f"at {len(self.values)} values from {self.values.min():.3g} to {self.values.max():.3g}"


class _ConditionalHessian(Factored):
    """The Hessian in (β, τ), for steps of β alone."""

    def __init__(self, hessian: Array) -> None:
        super().__init__(hessian[:-1, :-1])
        self.full = hessian


class _Scan:
    """Follows β(τ), and counts passes."""

    def __init__(self, target: RowsDensity) -> None:
        self.target, self.passes = target, 0.0
        self._last: tuple[Array, Array] | None = None  # a point, and the gradient there

    def minimum_given_shared(self, x: Array) -> _ProfilePoint | None:
        """The minimum over β at the τ of x, by Newton's method from x; None if it overflows."""
        shared = x[-1:]

        def with_shared(beta: Array) -> Array:
            return np.concatenate([beta, shared])

        search = Newton(
            lambda beta: self._slope(with_shared(beta))[:-1],
            lambda beta: 0.0,
            lambda beta: _ConditionalHessian(self._hessian(with_shared(beta))),
            _NEAR,
            lazy=False,
            steps=_NEWTON,
            before_round=lambda: check_budget(self.passes + 2),
        )
        try:
            end = search.find(x[:-1])
        except (StalledError, ValueError):  # of which LinAlgError is one
            return None
        point, hessian = with_shared(end.x), end.curvature.full  # type: ignore[attr-defined]
        cross = end.curvature.solve(hessian[:-1, -1])
        slope = float(self._slope(point)[-1] - hessian[-1, :-1] @ end.step)
        return _ProfilePoint(point, slope, float(hessian[-1, -1] - hessian[-1, :-1] @ cross), -cross)

    def _slope(self, x: Array) -> Array:
        if self._last is None or not np.array_equal(self._last[0], x):
            self.passes += 1
            if not self.target.rows.in_memory:
                self.target.hessian(x)  # whose pass finds the gradient too
            self._last = x, self.target.gradients(x[None])[0]
        return self._last[1]

    def _hessian(self, x: Array) -> Array:
        self.passes += 1
        hessian: Array = self.target.hessian(x)
        if not np.isfinite(hessian).all():
            raise ValueError("a Hessian that float64 does not hold")
        return hessian

    def follow(self, begin: _ProfilePoint, end: float, step: float) -> list[_ProfilePoint] | None:
        """Points of the profile from one to where τ is `end`, in order; None if one of them cannot be computed."""
        sign, points = float(np.sign(end - begin.x[-1])), [begin]
        while sign * (end - points[-1].x[-1]) > 0:
            last = points[-1]
            width = min(step, sign * (end - last.x[-1]))
            while True:
                distance = sign * width
                next_point = self.minimum_given_shared(last.x + distance * np.append(last.tangent, 1.0))
                if next_point is None:
                    return None
                if width <= _SHORTEST or not _may_hide_zero(last, next_point):
                    break
                width /= 2
            points.append(next_point)
        return points


def _may_hide_zero(first: _ProfilePoint, second: _ProfilePoint) -> bool:
    """Whether p′ has the same sign at two points, and the cubic between them another."""
    width = second.x[-1] - first.x[-1]
    u = _PLACES
    cubic = (
        (1 + 2 * u) * (1 - u) ** 2 * first.slope + u**2 * (3 - 2 * u) * second.slope
        + width * (u * (1 - u) ** 2 * first.curvature + u**2 * (u - 1) * second.curvature)
    )  # fmt: skip
    same_sign = first.slope * second.slope > 0
    return bool(same_sign and (cubic * first.slope < 0).any())


def profile(target: RowsDensity, mode: Array) -> Profile | None:
    """The profile of a target with one shared parameter, the last coordinate, from its mode; None if it cannot be
    computed, or not within the budget.
    """
    scan = _Scan(target)
    try:
        with limit_to_share(SHARE):
            return _follow_profile(scan, mode)
    except BudgetSpent:
        return None


def _follow_profile(scan: _Scan, mode: Array) -> Profile | None:
    target = scan.target
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        begin = scan.minimum_given_shared(mode)
        if begin is None:
            return None
        step = _LONG_STEP if target.n * target.row_entries > _MANY else _STEP
        low, high = _scan_range(target, float(mode[-1]))
        check_budget(scan.passes + 4 * (high - low) / step)
        below, above = (scan.follow(begin, end, step) for end in (low, high))
    if below is None or above is None:
        return None
    values = np.array([point.x[-1] for point in (*below[:0:-1], *above)])
    return Profile(values, (*_other_minima(below, -1.0), *_other_minima(above, 1.0)), scan.passes)


def convex_given_shared(target: RowsDensity) -> bool:
    """Whether a target of rows is known to be log-concave given one shared parameter, and its Hessian is made."""
    loss, bounds = target.loss, target.prior_bounds()[0]
    return bool(loss.convex_given_shared and loss.shared == 1 and target.dim <= DENSE_DIM and (bounds[:-1] >= 0).all())


def one_mode_of_profile(target: RowsDensity, scan: Profile | None) -> str | None:
    """Why a target has one mode, by its profile; None if that is unknown or has other minima."""
    if scan is None or scan.others:
        return None
    name = target.loss.shared_names[0] if target.loss.shared_names else "its shared parameter"
    return f"it is log-concave given {name}, and the profile of that has one maximum ({scan})"


def _other_minima(points: list[_ProfilePoint], sign: float) -> list[Array]:
    """Where p, on the way from the mode, rises again after it has risen and fallen."""
    uphill = [sign * point.slope > 0 for point in points[1:]]
    return [points[k + 1].x for k in range(1, len(uphill)) if uphill[k] and not uphill[k - 1]]


def _scan_range(target: RowsDensity, mode: float) -> tuple[float, float]:
    precision, mean = float(target.prior_precision[-1]), float(target.prior_mean[-1])
    if precision == 0:
        return mode - _FLAT, mode + _FLAT
    reach = _REACH * precision**-0.5
    return min(mean - reach, mode - _LEAST), max(mean + reach, mode + _LEAST)
