"""Times until an event, some of them right-censored: accelerated failure time, log T = η + σε.

A label is +time where the event was seen, and −time where the row was last seen without it (`censored`). With
z = (log time − η)/σ, d = 1 for an event and 0 for a censored time, f the density of ε and S its survival function,

    ℓ = d log σ + g(z),     g = −log f(z) for an event,     −log S(z) for a censored time;     constant: d log time.

    exponential      σ = 1, ε as for Weibull times      g = eᶻ − dz
    weibull          S(z) = exp(−eᶻ)                    g = eᶻ − dz
    log-logistic     S(z) = 1/(1 + eᶻ)                  g = softplus(z) + d softplus(−z)
    log-normal       S(z) = Φ(−z)                       g = ½z² or −log Φ(−z)      (`log_normal.py`)

g is convex in z, so that ℓ is convex in η given σ, but not in (η, log σ). e^β multiplies every quantile of the time; of
exponential and Weibull times the hazard is multiplied by e^{−β/σ}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from svrhmc.core.arrays import Array
from svrhmc.core.errors import real_array, requirement
from svrhmc.core.serialise import part
from svrhmc.families.base import Coded, Family, Formulas, Loss, Parameter, SharedFamily, family, spread_improper_reason
from svrhmc.families.bounds import Bounded
from svrhmc.families.labels import first_place
from svrhmc.families.laws import EXTREME, LOGISTIC, Law, accelerated
from svrhmc.families.primitives import NUMPY, Fields, Primitives, Value
from svrhmc.families.recession import RecessionCones, one_predictor_cones


@family
def exponential() -> Loss:
    """Times with a constant hazard e^{−t}; labels are +time for events, −time for censored times.

    >>> float(exponential().value(np.array(0.0), np.array(-2.0)))  # still without the event at time 2
    2.0
    """
    return ExponentialLoss()


@family
def weibull() -> Loss:
    """Times with survival function exp(−(time/eᵗ)^{1/σ}), log σ the last coordinate of x; labels are +time for events,
    −time for censored times.

    >>> float(weibull().mean(np.array([0.0, 0.0])))
    1.0
    """
    return WeibullLoss()


@family
def log_logistic() -> Loss:
    """Times with survival function 1/(1 + (time/eᵗ)^{1/σ}), log σ the last coordinate of x; labels are +time for
    events, −time for censored times.

    >>> float(log_logistic().draw(np.array([0.0, 0.3]), np.array(0.5)))  # eᵗ is the median
    1.0
    """
    return LogLogisticLoss()


class Exponential(NamedTuple):
    """eᶻ − dz, z = log time − η."""

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """ℓ′ = d − eᶻ, ℓ″ = eᶻ."""
        exp, log, where, zero, one = op.exp, op.log, op.where, op.number(0), op.number(1)

        def both(loss: Fields, t: Value, y: Value) -> Value:
            z, event = log(abs(y)) - t, where(y > zero, one, zero)
            hazard = exp(z)
            return hazard - event * z, event - hazard

        def slope(loss: Fields, t: Value, y: Value) -> Value:
            return where(y > zero, one, zero) - exp(log(abs(y)) - t)

        def curvature(loss: Fields, t: Value, y: Value) -> Value:
            return exp(log(abs(y)) - t)

        return Formulas(slope, curvature, both=both)


class Weibull(NamedTuple):
    """d log σ + eᶻ − dz."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Those of the extreme value law."""
        return accelerated(op, EXTREME)


class LogLogistic(NamedTuple):
    """d log σ + softplus(z) + d softplus(−z)."""

    blocks: int
    shared: int

    @staticmethod
    def formulas(op: Primitives) -> Formulas:
        """Those of the logistic law."""
        return accelerated(op, LOGISTIC)


class Times(Family):
    """What the families of times have in common, by the law of ε."""

    law: ClassVar[Law]
    ratio = "time ratio"
    modelled = "the logarithm of {response}"
    reading = (
        "A coefficient is a change of the logarithm of time: e to its power is a time ratio, above 1 for longer times "
        "(posterior.ratios())."
    )
    signed = True

    def scale(self, t: Array) -> tuple[Array, Array]:
        """η and σ."""
        return t[..., 0], np.exp(t[..., 1])

    def with_censoring(self) -> Loss:
        return self

    def labels(self, y: npt.ArrayLike, n: int) -> Array:
        """+time or −time, and no 0."""
        array = np.asarray(real_array("y", y, (n,)), np.float64)
        if (wrong := array == 0).any():
            why = "give rows that end at once half of the shortest time, or leave them out"
            raise requirement("y", f"times above 0 for the {self.name} family", first_place(array, wrong), why)
        return array

    def coded(self, y: npt.ArrayLike) -> Coded:
        """Refuses labels without a single event."""
        require_event(np.asarray(y))
        return super().coded(y)

    def on_link(self, y: Array) -> Array:
        return np.log(np.abs(y))

    def typical_predictor_and_effect(self, y: Array, weights: Array, offset: Array) -> tuple[float, float]:
        """The log of all time over the number of events, as for a constant hazard (half an event where there is none),
        and 1: a large effect is the same in any unit of time.
        """
        logs = np.log(np.maximum(np.abs(y), 1e-300)) - offset
        high = float(logs.max())
        events = max(float(weights @ (y > 0)), 0.5)
        return high + math.log(float(weights @ np.exp(logs - high))) - math.log(events), 1.0

    def recession_cones(self, y: Array) -> RecessionCones:
        """At a given σ an event bounds η both ways, a censored time from below alone."""
        return one_predictor_cones(np.asarray(y) > 0, True)

    def improper_reason(
        self, weight: float, free: int, exact: bool, flat: Sequence[bool] = (), y: Array | None = None
    ) -> str | None:
        """∫dβ e^{−f} ~ e^{−(events − free)τ} as τ → ∞; where events have no residual, f falls for ever as τ → −∞."""
        events = weight if y is None else min(weight, float((y > 0).sum()))
        return spread_improper_reason(events, free, exact)

    def link_variance(self, mean: Array, shared: Array) -> Array:
        """That of σε."""
        sigma = np.exp(shared[:, 0]) if self.shared else np.ones(len(mean))
        return np.asarray(self.law.variance * sigma**2, np.float64)

    def mean(self, t: Array) -> Array:
        """e^η E e^{σε}, which may be ∞."""
        eta, sigma = self.scale(t)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(eta) * self.law.mean(sigma), np.float64)

    def constant(self, y: Array, trials: Array | None = None) -> Array:
        """log time of an event, and what its density has besides."""
        return np.where(np.asarray(y) > 0, np.log(np.abs(y)) + self.law.constant, 0.0)

    def original_labels(self, y: Array, trials: Array | None = None) -> Array:
        """The times, whether they ended in an event or not."""
        return np.abs(y)

    def censored(self, y: Array) -> npt.NDArray[np.bool_]:
        return np.asarray(y) < 0

    def draw(self, t: Array, u: Array, trials: Array | None = None) -> Array:
        """e^{η + σε} with ε the quantile of its law."""
        eta, sigma = self.scale(t)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(eta + sigma * self.law.quantile(np.asarray(u))), np.float64)

    def _minus_log_survival(self, t: Array, time: Array) -> Array:
        """−log(1 − F(z))."""
        eta, sigma = self.scale(t)
        with np.errstate(over="ignore"):
            return np.asarray(self.law.parts(NUMPY)[0]((np.log(time) - eta) / sigma, 0.0), np.float64)

    def survival(self, t: Array, time: Array) -> Array:
        """S."""
        return np.exp(-self._minus_log_survival(t, time))

    def cumulative(self, t: Array, y: Array, trials: Array | None = None) -> tuple[Array, Array]:
        """1 − S at the time of an event; of a censored time all that lies beyond it."""
        p = -np.expm1(-self._minus_log_survival(t, np.abs(y)))
        return p, np.where(np.asarray(y) < 0, 1.0, p)


@part
@dataclass(frozen=True)
class ExponentialLoss(Times):
    """log T = η + ε, P(ε > z) = exp(−eᶻ)."""

    name = "exponential"
    law = EXTREME
    far_off = "family='weibull', whose hazard may rise or fall"
    proportional_hazards = True
    convex = True
    nanoseconds = 7.0
    kernel = Exponential

    def with_bounds(self) -> Loss:
        return BoundedExponentialLoss()

    def scale(self, t: Array) -> tuple[Array, Array]:
        """η and 1."""
        return t, np.ones(np.shape(t))

    def start(self, y: Array) -> Array:
        """The η that an event at this time has as its mode."""
        return self.on_link(y)


class ScaledTimes(Times, SharedFamily):
    """Those with a σ of their own, t = (η, log σ)."""

    shared_names = ("log sigma",)
    parameters = (Parameter("sigma"),)
    convex_given_shared = True
    spread = True


@part
@dataclass(frozen=True)
class WeibullLoss(ScaledTimes):
    """log T = η + σε, P(ε > z) = exp(−eᶻ); the shape of the Weibull law is 1/σ."""

    name = "weibull"
    mistaken = ("weibull-aft", "weibullaft", "survreg", "surv", "survival")
    law = EXTREME
    far_off = "family='log-logistic', which has heavier tails"
    proportional_hazards = True
    nanoseconds = 5.0
    kernel = Weibull

    def with_bounds(self) -> Loss:
        return BoundedWeibullLoss()


@part
@dataclass(frozen=True)
class LogLogisticLoss(ScaledTimes):
    """log T = η + σε, P(ε > z) = 1/(1 + eᶻ)."""

    name = "log-logistic"
    aliases = ("loglogistic",)
    mistaken = ("fisk", "loglogistic-aft", "log-logistic-aft")
    law = LOGISTIC
    far_off = "family='weibull' or 'log-normal'"
    nanoseconds = 6.6
    kernel = LogLogistic

    def with_bounds(self) -> Loss:
        return BoundedLogLogisticLoss()


@part
@dataclass(frozen=True)
class BoundedExponentialLoss(Bounded, ExponentialLoss):
    """The same within bounds."""

    law = EXTREME
    without_bounds = ExponentialLoss()

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return self.convex_given_shared

    def coded(self, y: npt.ArrayLike) -> Coded:
        """Rows that enter late and end, or are right-censored, are as those that begin at 0, as there is no memory."""
        coded = super().coded(y)
        low, high, lb, ub = np.asarray(coded.y).T if np.ndim(coded.y) == 2 else np.zeros((4, 0))
        if len(low) and (((low == high) | (high == np.inf)) & (ub == np.inf)).all():
            return self.without_bounds.coded(np.where(low == high, 1.0, -1.0) * (low - np.maximum(lb, 0.0)))
        return coded


@part
@dataclass(frozen=True)
class BoundedWeibullLoss(Bounded, WeibullLoss):  # type: ignore[override]  # convex by what is truncated
    """The same within bounds."""

    law = EXTREME
    without_bounds = WeibullLoss()


@part
@dataclass(frozen=True)
class BoundedLogLogisticLoss(Bounded, LogLogisticLoss):  # type: ignore[override]  # convex by what is truncated
    """The same within bounds."""

    law = LOGISTIC
    without_bounds = LogLogisticLoss()


def require_event(y: Array) -> None:
    """Refuse times of which every one is censored."""
    if y.dtype.kind in "iuf" and y.size and (y < 0).all():
        why = "nothing tells how long it takes until the event: look at which value of the event column stands for it"
        raise requirement("y", "times of which some ended in the event", f"{y.size:,} censored times alone", why)
