"""Numbers and times with bounds: censored on either side, known up to an interval, or truncated.

A label is (l, u, c, e) on the scale of y = η + σε (for times, of their logarithms): y lies between l and u, and the row
was observed only because y lies above c and below e. Where l = u the number itself was observed; l = −∞ is censored on
the left, u = ∞ on the right, and c = −∞, e = ∞ is not truncated; c of a time is when the row entered. With z(v) = (v −
η)/σ and I(a, b) = −log(F(a) − F(b)) of `intervals.py`,

    ℓ = log σ + h(z(u)) where l = u,     I(z(u), z(l)) elsewhere;     less I(z(e), z(c)) where the row is truncated.

With s = −(I_a + I_b), p, r and w of `intervals.py`, d = (u − l)/σ, m the midpoint of z(u) and z(l), or the one that is
finite, the derivatives of I in t = (η, τ), τ = log σ, have no difference that cancels where d → 0:

    I_η = s/σ,     I_τ = ms − ½d(I_a − I_b),
    I_ηη = (p + r)/σ²,     I_ητ = (pa + rb − s)/σ,     I_ττ = pa² + rb² + wd² − I_τ.

ℓ is convex in η where the law is log-concave and no row is truncated. Truncated to y > c it stays so under the extreme
value law, as S(l)/S(c) is that of a time under the hazard from c on, and under the normal law from any side: ℓ_ηη is
(Var(y | c < y < e) − Var(y | l < y < u))/σ⁴, and a variance grows with the interval, because (u − E y)² ≥ Var y under
any log-concave law (Borell, Periodica Mathematica Hungarica 6, 1975).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import real_array, require_unmasked, requirement
from svrhmc.families.base import Coded, Family, Loss
from svrhmc.families.labels import first_place
from svrhmc.families.laws import Law
from svrhmc.families.primitives import NUMPY
from svrhmc.families.recession import RecessionCones, one_predictor_cones


def censored(time: npt.ArrayLike, event: npt.ArrayLike) -> Array:
    """Labels of times that may be right-censored: +time where the event was seen, −time where it was not.

    event: 1 or True where the event was seen at that time, 0 or False where the row was last seen without it.

    >>> censored([2.0, 5.0], [True, False])
    array([ 2., -5.])
    """
    times = np.asarray(real_array("time", time, ("n",)), np.float64)
    observed = np.asarray(real_array("event", event, (len(times),)), np.float64)
    if (wrong := times <= 0).any():
        why = "give rows that end at once half of the shortest time, or leave them out"
        raise requirement("time", "numbers above 0", first_place(times, wrong), why)
    if (wrong := (observed != 0) & (observed != 1)).any():
        why = "compare it with what stands for the event, such as status == 2"
        raise requirement("event", "0 or 1, or false or true", first_place(observed, wrong), why)
    return np.where(observed == 1, times, -times)


def bounded(
    lower: npt.ArrayLike,
    upper: npt.ArrayLike | None = None,
    lb: npt.ArrayLike | None = None,
    ub: npt.ArrayLike | None = None,
) -> Array:
    """Labels of numbers or times that lie from lower to upper, of rows that are there only if they lie from lb to ub.

    lower, upper: equal where the number was seen; −∞ (for times also 0) and ∞ where it has no such bound. upper=None:
        every number was seen.
    lb, ub: where rows are truncated, one number for all rows or one for each: of a time that was watched from its
        entry on, lb is the entry. None: they are not.

    >>> bounded([2.0, 5.0, 1.0], [2.0, np.inf, 3.0])  # seen, right-censored, between 1 and 3
    array([[  2.,   2., -inf,  inf],
           [  5.,  inf, -inf,  inf],
           [  1.,   3., -inf,  inf]])
    """
    n = np.shape(lower)[:1]
    given = (lower, lower if upper is None else upper, -math.inf if lb is None else lb, math.inf if ub is None else ub)
    columns = []
    for name, value in zip(("lower", "upper", "lb", "ub"), given, strict=True):
        require_unmasked(name, value)
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or array.ndim > 1 or (array.ndim == 1 and array.shape != n) or not n:
            shown = f"shape {array.shape}" if array.dtype.kind in "biuf" else f"{array.dtype}"
            raise requirement(name, "one number for each row, where there is no bound −inf or inf", shown)
        if (gap := np.isnan(np.atleast_1d(array.astype(np.float64)))).any():
            why = "a bound that is not known is −inf or inf"
            raise requirement(name, "a number in every row", first_place(np.atleast_1d(array), gap), why)
        columns.append(np.broadcast_to(array.astype(np.float64), n))
    y = np.stack(columns, axis=1)
    _require_ordered(y)
    return y


def _require_ordered(y: Array) -> None:
    """Refuse bounds that exclude every number, and rows without information."""
    lower, upper, lb, ub = y.T
    for wrong, name, allowed, one, why in (
        (lower > upper, "lower", "at most upper", lower, "the two bounds are given in the other order"),
        (lb >= ub, "lb", "below ub", lb, "rows from lb to ub are the ones that can be seen"),
        ((lower >= ub) | ((lower == upper) & (lower == math.inf)), "lower", "below ub", lower, _OUTSIDE),
        ((upper <= lb) | ((lower == upper) & (lower <= lb)), "upper", "above lb", upper, _OUTSIDE),
        ((lower <= lb) & (upper >= ub), "bounds", "narrower than what can be seen", lower, _NOTHING),
    ):
        if wrong.any():
            raise requirement(name, allowed, first_place(one, wrong), why)


_NOTHING = "such rows say nothing; leave them out"
_HOW_TO_MAKE = "svrhmc.targets.families.bounded(lower, upper) makes them"
_OUTSIDE = "a row outside of lb and ub, or that ends when it begins, is one that cannot have been seen"


Parts = tuple[Array, ...]


def _of_number(law: Law, order: int, eta: Array, tau: Array, v: Array) -> Parts:
    """log σ + h(z)."""
    value, slope, bend = law.parts(NUMPY)
    inverse = np.exp(-tau)
    z = (v - eta) * inverse
    if order == 0:
        return (tau + value(z, 1.0),)
    pull = slope(z, 1.0)
    if order == 1:
        return -pull * inverse, 1.0 - z * pull
    cross = pull + z * bend(z, 1.0)
    return bend(z, 1.0) * inverse**2, cross * inverse, z * cross


def _of_interval(law: Law, order: int, eta: Array, tau: Array, low: Array, high: Array) -> Parts:
    """I(z(high), z(low))."""
    interval, inverse = law.interval(NUMPY), np.exp(-tau)
    a, b, d = (high - eta) * inverse, (low - eta) * inverse, (high - low) * inverse
    if order == 0:
        return (interval.value(a, b, d),)
    shift, by_a, by_b = interval.slopes(a, b, d)
    top, bottom, both = np.where(a < math.inf, a, 0.0), np.where(b > -math.inf, b, 0.0), np.where(d < math.inf, d, 0.0)
    middle = np.where(both > 0, 0.5 * (top + bottom), top + bottom)
    by_tau = middle * shift - 0.5 * both * np.where(both > 0, by_a - by_b, 0.0)
    if order == 1:
        return shift * inverse, by_tau
    p, r, w = interval.curvatures(a, b, d)
    p, r, w = np.where(a < math.inf, p, 0.0), np.where(b > -math.inf, r, 0.0), np.where(both > 0, w, 0.0)
    cross = p * top + r * bottom - shift
    return (p + r) * inverse**2, cross * inverse, p * top**2 + r * bottom**2 + w * both**2 - by_tau


@dataclass(frozen=True)
class Bounded(Family):
    """A family of y = η + σε, or of log y, whose labels are bounds; its formulas are in NumPy alone.

    truncated_below, truncated_above: whether rows are truncated to values above a bound, and below one.
    """

    kernel: ClassVar[Any] = None
    signed = False
    mixture = False
    gaussian_given = ""
    nanoseconds = 300.0
    truncated_below: bool = False
    truncated_above: bool = False

    @property
    @abstractmethod
    def law(self) -> Law:
        """The law of ε."""

    @property
    @abstractmethod
    def without_bounds(self) -> Loss:
        """The family for labels that are all numbers, or times that may be right-censored."""

    @property
    def convex_given_shared(self) -> bool:  # type: ignore[override]
        """Whether the law is log-concave, and stays so where rows are truncated."""
        truncated = self.truncated_below, self.truncated_above
        convex = (not cut or stays_convex for cut, stays_convex in zip(truncated, self.law.truncated, strict=True))
        return self.law.log_concave and all(convex)

    def with_bounds(self) -> Loss:
        return self

    def with_noise(self, noise_variance: float) -> Loss:
        """Refused: the spread of numbers within bounds is not known beforehand."""
        return Loss.with_noise(self, noise_variance)

    def coded(self, y: npt.ArrayLike) -> Coded:
        """The loss for the kinds of truncation that occur. If no row is truncated, and each is a number or a
        right-censored time, it is the family without bounds.
        """
        if np.ndim(y) != 2:
            return self.without_bounds.coded(y)
        array = np.asarray(y, np.float64)
        if array.shape[1] != 4:
            raise requirement("y", "rows of (lower, upper, lb, ub)", f"shape {array.shape}", _HOW_TO_MAKE)
        labels = bounded(*array.T)
        low, high, lb, ub = labels.T
        floor = -math.inf
        if not self.identity_link:
            floor = 0.0
            _require_times(labels)
        beyond, below = high == math.inf, low <= floor
        if beyond.all() or below.all():
            side = "right" if beyond.all() else "left"
            why = "nothing tells how far it is beyond the bounds: look at which of them is which"
            raise requirement(
                "y", "labels of which some are bounded on either side", f"{side}-censored ones alone", why
            )
        truncated = bool((lb > floor).any()), bool((ub < math.inf).any())
        numbers = low == high
        if not any(truncated) and (numbers | (beyond & (not self.identity_link))).all():
            return self.without_bounds.coded(np.where(numbers, low, -low))
        return Coded(replace(self, truncated_below=truncated[0], truncated_above=truncated[1]), labels)

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """Four bounds for each row, on the scale of the predictor, the first two within the others."""
        array = np.asarray(y, np.float64)
        if array.shape != (n, 4):
            raise requirement("y", f"{n} rows of (lower, upper, lb, ub)", f"shape {array.shape}", _HOW_TO_MAKE)
        low, high, lb, ub = array.T
        clipped = np.stack([np.maximum(low, lb), np.minimum(high, ub), lb, ub], axis=1)
        if self.identity_link:
            return clipped
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(clipped, 0.0)), np.float64)

    def value(self, t: Array, y: Array) -> Array:
        return self._parts(0, t, y)[0]

    def slope(self, t: Array, y: Array) -> Array:
        by_eta, by_tau = self._parts(1, t, y)
        return np.stack([by_eta, by_tau], axis=-1) if self.predictor_shape else by_eta

    def curvature(self, t: Array, y: Array) -> Array:
        twice_eta, both, twice_tau = self._parts(2, t, y)
        rows = [np.stack(pair, axis=-1) for pair in ((twice_eta, both), (both, twice_tau))]
        return np.stack(rows, axis=-2) if self.predictor_shape else twice_eta

    def _parts(self, order: int, t: Array, y: Array) -> Parts:
        """ℓ; its slopes by η and τ; or its curvatures by ηη, ητ and ττ."""
        eta, tau = (t[..., 0], t[..., 1]) if self.predictor_shape else (np.asarray(t), np.zeros(np.shape(t)))
        arrays = np.broadcast_arrays(eta, tau, *(y[..., k] for k in range(4)))
        eta, tau, low, high, lb, ub = (np.atleast_1d(array) for array in arrays)
        parts = tuple(np.empty(eta.shape) for _ in range(order + 1))
        numbers, cut = low == high, (lb > -math.inf) | (ub < math.inf)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for some, formula, ends in (
                (numbers, _of_number, (low,)), (~numbers, _of_interval, (low, high)), (cut, _of_interval, (lb, ub))
            ):  # fmt: skip
                if not some.any():
                    continue
                terms = formula(self.law, order, eta[some], tau[some], *(end[some] for end in ends))
                for part, term in zip(parts, terms, strict=True):
                    part[some] = part[some] - term if some is cut else term
        return tuple(part.reshape(arrays[0].shape) for part in parts)

    def centre(self, y: Array) -> Array:
        """A number within the bounds of each label, on the scale of the predictor: their middle, or the finite one."""
        low, high = y[..., 0], y[..., 1]
        low, high = np.where(low > -math.inf, low, high), np.where(high < math.inf, high, low)
        return np.asarray(0.5 * low + 0.5 * high, np.float64)

    def on_link(self, y: Array) -> Array:
        return self.centre(y)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """The number, the middle of an interval (of times, of their logarithms), or the bound of a censored one."""
        return self.centre(y) if self.identity_link else np.exp(self.centre(y))

    def bounds(self, y: Array) -> Array:
        return y if self.identity_link else np.exp(y)

    def _labels_without_bounds(self, y: Array, events: npt.NDArray[np.bool_]) -> Array:
        """Labels of the family without bounds: numbers, or signed times."""
        return self.centre(y) if self.identity_link else np.where(events, 1.0, -1.0) * np.exp(self.centre(y))

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """That of numbers and right-censored times at the centres of the bounds."""
        return super().typical_predictor_and_effect(
            self._labels_without_bounds(y, y[..., 1] < math.inf), weights, offset
        )

    def shared_start(self, y: Array) -> Array:
        return super().shared_start(self.centre(y))

    def recession_cones(self, y: Array) -> RecessionCones:
        """ℓ grows as the law moves away from a row beyond one of its bounds, unless rows are truncated on that side and
        tails are heavy there, or the bounds are equal.
        """
        low, high, lb, ub = y.T
        light_up, light_down = self.law.truncated
        up = (high < ub) & (light_down | (ub == math.inf))
        down = (low > lb) & (light_up | (lb == -math.inf))
        return one_predictor_cones(up, down)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """The reason of the family without bounds, counting rows with two finite bounds as numbers; truncated rows do
        not bound the spread.
        """
        if self.truncated_below or self.truncated_above:
            return "as the spread grows the law of truncated rows has a limit, which is not 0"
        events = np.zeros(0, bool) if y is None else (y[..., 0] > -math.inf) & (y[..., 1] < math.inf)
        if exact and y is not None and not (y[..., 0] == y[..., 1]).any():
            return None
        observed = weight if y is None else min(weight, float(events.sum()))
        return super().improper_reason(
            observed, free, exact, flat, None if y is None else self._labels_without_bounds(y, events)
        )

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """−log f − h of a number, and of a time its logarithm."""
        numbers = y[..., 0] == y[..., 1]
        return np.where(numbers, self.law.constant + (0.0 if self.identity_link else self.centre(y)), 0.0)

    def censored(self, y: Array) -> npt.NDArray[np.bool_]:
        return np.asarray(y[..., 1] == math.inf)

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """P(y ≤ l | c < y < e) and P(y ≤ u | c < y < e), given that the row can be observed."""
        low, high, lb, ub = (y[..., k] for k in range(4))
        whole = self._log_probability(t, lb, ub)
        below, at_most = (np.exp(self._log_probability(t, lb, end) - whole) for end in (low, high))
        return np.clip(below, 0.0, 1.0), np.where(high >= ub, 1.0, np.clip(at_most, 0.0, 1.0))

    def _log_probability(self, t: Array, low: Array, high: Array) -> Array:
        """log P(low < y < high): −∞ where there is nothing between, 0 where all is."""
        eta, tau = (t[..., 0], t[..., 1]) if self.predictor_shape else (np.asarray(t), np.zeros(np.shape(t)))
        empty, whole = high <= low, (low == -math.inf) & (high == math.inf)
        ends = np.where(empty | whole, 0.0, low), np.where(empty | whole, 1.0, high)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            (energy,) = _of_interval(self.law, 0, eta, tau, *ends)
        return np.where(empty, -math.inf, np.where(whole, 0.0, -energy))


def _require_times(labels: Array) -> None:
    """Refuse bounds that times cannot have."""
    low, high, lb, ub = labels.T
    for name, wrong, allowed, one, why in (
        ("lower", (low < 0) & (low > -math.inf), "0 or more for times, 0 where there is no bound", low, ""),
        ("upper", high <= 0, "above 0 for times", high, "give rows that end at once half of the shortest time"),
        ("bounds", (low <= np.maximum(lb, 0)) & (high >= ub), "narrower than what can be seen", low, _NOTHING),
        ("lb", (lb < 0) & (lb > -math.inf), "0 or more for times", lb, "time begins at 0"),
    ):
        if wrong.any():
            raise requirement(name, allowed, first_place(one, wrong), why)
