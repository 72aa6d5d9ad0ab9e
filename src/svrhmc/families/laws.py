"""Laws F of ε in y = η + σε, or log y = η + σε: what families of times, and of numbers within bounds, are made of.

             1 − F(z)         h(z) = −log f(z) up to a constant       −log(1 − F(z))
extreme      exp(−eᶻ)         eᶻ − z                                  eᶻ
logistic     1/(1 + eᶻ)       softplus(z) + softplus(−z)              softplus(z)
normal       Φ(−z)            ½z²                                     −log Φ(−z)
Student's    Student's t      ½(ν + 1) log(1 + z²/ν)                  (`intervals.py`)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.families import intervals
from svrhmc.families.base import Formulas
from svrhmc.families.primitives import Fields, Primitives, Value


class Law(NamedTuple):
    """The law of ε.

    parts: g, g′ and g″ of (z, d) over some primitives, g = h(z) for an event (d = 1) and −log(1 − F(z)) for a
        right-censored time (d = 0). interval: −log(F(a) − F(b)) and its derivatives.
    quantile, mean, variance: F⁻¹, E e^{σε} as a function of σ, and the variance of ε. constant: −log f − h.
    log_concave: whether f is.
    truncated: whether −log P(row | ε > z) is convex, and grows as the law moves away from the row; and the same of
        ε < z. Of laws with a tail like e^{−|z|}, or heavier, it is neither.
    """

    parts: Callable[[Primitives], tuple[Value, Value, Value]]
    interval: Callable[[Primitives], intervals.Interval]
    quantile: Callable[[Array], Array]
    mean: Callable[[Array], Array]
    variance: float
    constant: float = 0.0
    log_concave: bool = True
    truncated: tuple[bool, bool] = (False, False)


def _extreme_parts(op: Primitives) -> tuple[Value, Value, Value]:
    exp = op.exp

    def value(z: Value, event: Value) -> Value:
        return exp(z) - event * z

    def slope(z: Value, event: Value) -> Value:
        return exp(z) - event

    def bend(z: Value, event: Value) -> Value:
        return exp(z)

    return op.function(value), op.function(slope), bend


def _logistic_parts(op: Primitives) -> tuple[Value, Value, Value]:
    softplus, sigmoid = op.softplus, op.sigmoid

    def value(z: Value, event: Value) -> Value:
        return softplus(z) + event * softplus(-z)

    def slope(z: Value, event: Value) -> Value:
        return sigmoid(z) - event * sigmoid(-z)

    def bend(z: Value, event: Value) -> Value:
        return (1.0 + event) * sigmoid(z) * sigmoid(-z)

    return op.function(value), op.function(slope), bend


def _gamma_of_one_more(sigma: Array) -> Array:
    from scipy.special import gamma

    return np.asarray(gamma(1 + sigma), np.float64)


def _logistic_mean(sigma: Array) -> Array:
    """πσ/sin πσ, and ∞ from σ = 1 on."""
    return np.where(sigma < 1, 1 / np.sinc(np.minimum(sigma, 0.999999999)), np.inf)


def _normal_parts(op: Primitives) -> tuple[Value, Value, Value]:
    """λ = φ(z)/Φ(−z): g′ = λ and g″ = λ(λ − z) of a censored time."""
    mills, minus_log_normal, where, half = op.mills, op.minus_log_normal, op.where, op.number(0.5)

    def value(z: Value, event: Value) -> Value:
        return where(event > half, half * z * z, minus_log_normal(-z, mills(-z)[0]))

    def slope(z: Value, event: Value) -> Value:
        return where(event > half, z, mills(-z)[0])

    def bend(z: Value, event: Value) -> Value:
        hazard, excess = mills(-z)
        return where(event > half, 1.0, hazard * excess)

    return op.function(value), op.function(slope), bend


def _normal_quantile(u: Array) -> Array:
    from scipy.special import ndtri

    return np.asarray(ndtri(u), np.float64)


EXTREME = Law(
    _extreme_parts, intervals.cloglog, lambda u: np.log(-np.log1p(-u)), _gamma_of_one_more, math.pi**2 / 6,
    truncated=(True, False),
)  # fmt: skip
LOGISTIC = Law(_logistic_parts, intervals.logit, lambda u: np.log(u) - np.log1p(-u), _logistic_mean, math.pi**2 / 3)
NORMAL = Law(
    _normal_parts, intervals.probit, _normal_quantile, lambda sigma: np.exp(0.5 * sigma**2), 1.0,
    0.5 * math.log(2 * math.pi), truncated=(True, True),
)  # fmt: skip


@cache
def student(df: float) -> Law:
    """Student's law with ν degrees of freedom; of numbers alone, as e^{σε} has no mean."""

    def parts(op: Primitives) -> tuple[Value, Value, Value]:
        def value(z: Value, event: Value) -> Value:
            return 0.5 * (df + 1.0) * op.log1p(z * z / df)

        def slope(z: Value, event: Value) -> Value:
            return (df + 1.0) * z / (df + z * z)

        def bend(z: Value, event: Value) -> Value:
            return (df + 1) * (df - z * z) / (df + z * z) ** 2

        return value, slope, bend

    def quantile(u: Array) -> Array:
        from scipy.special import stdtrit

        return np.asarray(stdtrit(df, u), np.float64)

    constant = math.lgamma(df / 2) - math.lgamma((df + 1) / 2) + 0.5 * math.log(df * math.pi)
    return Law(
        parts, lambda op: intervals.student(df), quantile, lambda sigma: np.full(np.shape(sigma), math.inf),
        df / (df - 2) if df > 2 else math.inf, constant, log_concave=False,
    )  # fmt: skip


def accelerated(op: Primitives, law: Law) -> Formulas:
    """t = (η, τ), τ = log σ: slopes −g′e^{−τ} and d − zg′, curvatures g″e^{−2τ}, (g′ + zg″)e^{−τ} and z(g′ + zg″)."""
    exp, log, where, zero, one = op.exp, op.log, op.where, op.number(0), op.number(1)
    g, pull_of, bend_of = law.parts(op)

    @op.function
    def parts(eta: Value, tau: Value, y: Value) -> Value:
        inverse = exp(-tau)
        return (log(abs(y)) - eta) * inverse, where(y > zero, one, zero), inverse

    def value(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
        z, event, _ = parts(eta, tau, y)
        return event * tau + g(z, event)

    def slope(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
        z, event, inverse = parts(eta, tau, y)
        pull = pull_of(z, event)
        return -pull * inverse, event - z * pull

    def curvature(loss: Fields, eta: Value, tau: Value, y: Value) -> Value:
        z, event, inverse = parts(eta, tau, y)
        bend = bend_of(z, event)
        cross = pull_of(z, event) + z * bend
        return bend * inverse * inverse, cross * inverse, z * cross

    def energies(loss: Fields, count: Value, t: Value, y: Value, s: Value, valued: Value) -> None:
        for i in range(count):
            z, event, inverse = parts(t[0, i], t[1, i], y[i])
            pull = pull_of(z, event)
            s[0, i], s[1, i] = -pull * inverse, event - z * pull
            if valued:
                t[2, i] = event * t[1, i] + g(z, event)

    return Formulas(slope, curvature, value, energies=energies, arguments=2)
