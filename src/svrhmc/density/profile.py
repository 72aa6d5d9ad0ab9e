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


class _Place(NamedTuple):
    """(β(τ), τ), p′, p″ and dβ/dτ."""

    x: Array
    slope: float
    curvature: float
    tangent: Array


@dataclass(frozen=True, eq=False)
class Profile:
    """Values of τ at which p′ was found, and points near its minima other than the mode."""

    values: Array
    others: tuple[Array, ...]
    passes: float

    def __str__(self) -> str:
        return f"at {len(self.values)} values from {self.values.min():.3g} to {self.values.max():.3g}"


class _Given(Factored):
    """The Hessian in (β, τ), for steps of β alone."""

    def __init__(self, hessian: Array) -> None:
        super().__init__(hessian[:-1, :-1])
        self.given = hessian


class _Scan:
    """Follows β(τ), and counts passes."""

    def __init__(self, target: RowsDensity) -> None:
        self.target, self.passes = target, 0.0
        self._last: tuple[Array, Array] | None = None  # a point, and the gradient there

    def place(self, x: Array) -> _Place | None:
        """The minimum over β from x on, by Newton's method; None where float64 does not hold it."""
        shared = x[-1:]

        def whole(beta: Array) -> Array:
            return np.concatenate([beta, shared])

        search = Newton(
            lambda beta: self._slope(whole(beta))[:-1],
            lambda beta: 0.0,
            lambda beta: _Given(self._hessian(whole(beta))),
            _NEAR,
            lazy=False,
            steps=_NEWTON,
            before_round=lambda: check_budget(self.passes + 2),
        )
        try:
            end = search.find(x[:-1])
        except (StalledError, ValueError):  # of which LinAlgError is one
            return None
        at, hessian = whole(end.x), end.curvature.given  # type: ignore[attr-defined]
        cross = end.curvature.solve(hessian[:-1, -1])
        slope = float(self._slope(at)[-1] - hessian[-1, :-1] @ end.step)
        return _Place(at, slope, float(hessian[-1, -1] - hessian[-1, :-1] @ cross), -cross)

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

    def side(self, begin: _Place, end: float, step: float) -> list[_Place] | None:
        """Places from one to where τ is `end`, in order; None where some are not known."""
        sign, places = float(np.sign(end - begin.x[-1])), [begin]
        while sign * (end - places[-1].x[-1]) > 0:
            last = places[-1]
            width = min(step, sign * (end - last.x[-1]))
            while True:
                away = sign * width
                there = self.place(last.x + away * np.append(last.tangent, 1.0))
                if there is None:
                    return None
                if width <= _SHORTEST or not _hides(last, there):
                    break
                width /= 2
            places.append(there)
        return places


def _hides(one: _Place, other: _Place) -> bool:
    """Whether p′ has one sign at two places, and the cubic between them another."""
    width = other.x[-1] - one.x[-1]
    u = _PLACES
    cubic = (
        (1 + 2 * u) * (1 - u) ** 2 * one.slope + u**2 * (3 - 2 * u) * other.slope
        + width * (u * (1 - u) ** 2 * one.curvature + u**2 * (u - 1) * other.curvature)
    )  # fmt: skip
    same = one.slope * other.slope > 0
    return bool(same and (cubic * one.slope < 0).any())


def profile(target: RowsDensity, mode: Array) -> Profile | None:
    """That of a target with one shared parameter, the last coordinate, from its mode; None where it is not known."""
    scan = _Scan(target)
    try:
        with limit_to_share(SHARE):
            return _followed(scan, mode)
    except BudgetSpent:
        return None


def _followed(scan: _Scan, mode: Array) -> Profile | None:
    target = scan.target
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        begin = scan.place(mode)
        if begin is None:
            return None
        step = _LONG_STEP if target.n * target.row_entries > _MANY else _STEP
        low, high = _range(target, float(mode[-1]))
        check_budget(scan.passes + 4 * (high - low) / step)
        below, above = (scan.side(begin, end, step) for end in (low, high))
    if below is None or above is None:
        return None
    values = np.array([place.x[-1] for place in (*below[:0:-1], *above)])
    return Profile(values, (*_minima(below, -1.0), *_minima(above, 1.0)), scan.passes)


def convex_given_shared(target: RowsDensity) -> bool:
    """Whether a target of rows is known to be log-concave given one shared parameter, and its Hessian is made."""
    loss, bounds = target.loss, target.prior_bounds()[0]
    return bool(loss.convex_given_shared and loss.shared == 1 and target.dim <= DENSE_DIM and (bounds[:-1] >= 0).all())


def one_mode_of_profile(target: RowsDensity, scan: Profile | None) -> str | None:
    """Why a target has one mode, by its profile; None where that is not known, or has others."""
    if scan is None or scan.others:
        return None
    name = target.loss.shared_names[0] if target.loss.shared_names else "its shared parameter"
    return f"it is log-concave given {name}, and the profile of that has one maximum ({scan})"


def _minima(places: list[_Place], sign: float) -> list[Array]:
    """Where, on the way from the mode, p has risen, fallen, and rises again."""
    uphill = [sign * place.slope > 0 for place in places[1:]]
    return [places[k + 1].x for k in range(1, len(uphill)) if uphill[k] and not uphill[k - 1]]


def _range(target: RowsDensity, mode: float) -> tuple[float, float]:
    precision, mean = float(target.prior_precision[-1]), float(target.prior_mean[-1])
    if precision == 0:
        return mode - _FLAT, mode + _FLAT
    reach = _REACH * precision**-0.5
    return min(mean - reach, mode - _LEAST), max(mean + reach, mode + _LEAST)
