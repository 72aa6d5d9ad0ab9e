"""The probability of an interval, −log(F(a) − F(b)) with b < a, under the laws F of three links.

b may be −∞ and a may be ∞. d = a − b is given with all its digits, and so is every formula: no difference of nearly
equal numbers is left where d → 0 or where both ends are far out on one side. With P = F(a) − F(b), f = F′ and

    w = f(a)f(b)/P²,     p = ∂²ℓ/∂a² − w,     r = ∂²ℓ/∂b² − w,

the Hessian in (a, b) is that of p, r and w as weights of the squares of da, db and da − db; all of them are ≥ 0, as F
has a log-concave density (Pratt, Journal of the American Statistical Association 76, 1981).

logit      F(v) = σ(v) = 1/(1 + e^{−v}), and P = σ(a)σ(−b)(1 − e^{−d}). With g = 1/(e^d − 1):

               ℓ = sp(−a) + sp(b) − log(1 − e^{−d}),     ∂ℓ/∂a = −σ(−a) − g,     ∂ℓ/∂b = σ(b) + g,
               p = σ(a)σ(−a),     r = σ(b)σ(−b),     w = g(1 + g).

cloglog    F(v) = 1 − exp(−eᵛ). With A = e^a, B = e^b, G = A − B = A(1 − e^{−d}), ρ = G/(e^G − 1) and u = 1 − ρ:

               ℓ = B − log(1 − e^{−G}),     ∂ℓ/∂a = −ρ(1 + g),     ∂ℓ/∂b = B + ρg,
               p = ρ(1 + g)(G − u),     r = u(B + ρg),     w = ρg(1 + g)(ρ + G).

probit     F = Φ. As Φ(a) − Φ(b) = Φ(−b) − Φ(−a), let a + b ≤ 0; k = −d(a + b)/2 ≥ 0 has φ(b) = φ(a)e^{−k}. With

               J = P/φ(a) = ∫₀^d e^{as − s²/2} ds,     K = ∫₀^d s e^{as − s²/2} ds:

               ℓ = a²/2 + ½ log 2π − log J,     ∂ℓ/∂a = −1/J,     ∂ℓ/∂b = e^{−k}/J,     ∂ℓ/∂a + ∂ℓ/∂b = −(1 − e^{−k})/J,
               p = K/J²,     r = e^{−k}(dJ − K)/J²,     w = e^{−k}/J².

           Where d ≤ 1 and k ≤ 1 the integrals are sums over eight points, exact to rounding. Elsewhere, with
           λ = φ/Φ, e(v) = v + λ(v) and q = Φ(b)/Φ(a) = e^{−k}λ(a)/λ(b), which is not near 1:

               ℓ = −log Φ(a) − log(1 − q),     1/J = λ(a)/(1 − q),
               p = λ(a)(e(a) − q(e(b) + d))/(1 − q)²,     r = e^{−k}λ(a)(d − e(a) + qe(b))/(1 − q)².

Student's  F of ν degrees of freedom, over NumPy alone, and not log-concave: p and r may be negative. With h = −log f
           and E the mean over the law between both ends,

               ∂ℓ/∂a = −f(a)/P,     ∂ℓ/∂b = f(b)/P,     ∂ℓ/∂a + ∂ℓ/∂b = E h′,
               p = f(a) E[h′(a) − h′]/P,     r = f(b) E[h′ − h′(b)]/P,     w = f(a)f(b)/P².

           Where log f changes by less than 1 between ends that are close beside √(ν + z²), E is a sum over twelve
           points; elsewhere E h′ = (f(b) − f(a))/P, and P is a difference of tails, of which one is much the smaller.

Where d ≤ 0 there is no interval: ℓ = ∞, and slopes and curvatures are finite, those of ends that know nothing of each
other (logit, cloglog: g = 0 and G = A) or of one end (probit).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.families.primitives import Primitives, Value

_LOG2, _HALF_LOG = math.log(2.0), 0.5 * math.log(2 * math.pi)
_LEAST, _MOST = 1e-300, 700.0  # in place of a distance that is not above 0, and of a G whose e^{−G} is nothing
_TINY = -40.0  # log G below which 1 − e^{−G} is G
_FURTHEST = 1e4  # in place of an end at −∞, where it counts for nothing
_SERIES = tuple(1 / math.factorial(k + 2) for k in range(14))
_points, _weights = np.polynomial.legendre.leggauss(8)
_POINTS, _WEIGHTS = tuple(float(x) for x in (1 + _points) / 2), tuple(float(w) for w in _weights / 2)


class Interval(NamedTuple):
    """Functions of (a, b, d): ℓ; its slopes by a common shift of both ends downwards, by a and by b; p, r and w."""

    value: Callable[..., Value]
    slopes: Callable[..., Value]
    curvatures: Callable[..., Value]


def _minus_log_share(op: Primitives) -> Callable[[Value], Value]:
    """−log(1 − e^{−x}) of x > 0."""
    exp, expm1, log, log1p, where, maximum, minimum = (
        op.exp, op.expm1, op.log, op.log1p, op.where, op.maximum, op.minimum,
    )  # fmt: skip

    def minus_log_share(x: Value) -> Value:
        return -where(x > _LOG2, log1p(-exp(-maximum(x, _LOG2))), log(-expm1(-minimum(maximum(x, _LEAST), 1.0))))

    share: Callable[[Value], Value] = op.function(minus_log_share)
    return share


def _gap_force(op: Primitives) -> Callable[[Value], Value]:
    """g = 1/(e^d − 1), the force that keeps two ends apart; 0 where they are not in order."""
    expm1, where, maximum = op.expm1, op.where, op.maximum

    def gap_force(d: Value) -> Value:
        return where(d > 0.0, 1.0 / expm1(maximum(d, _LEAST)), 0.0)

    force: Callable[[Value], Value] = op.function(gap_force)
    return force


def logit(op: Primitives) -> Interval:
    """Of the logistic law."""
    where, softplus, sigmoid, infinity = op.where, op.softplus, op.sigmoid, math.inf
    minus_log_share, gap_force = _minus_log_share(op), _gap_force(op)

    @op.function
    def value(a: Value, b: Value, d: Value) -> Value:
        return where(d > 0.0, softplus(-a) + softplus(b) + minus_log_share(d), infinity)

    @op.function
    def slopes(a: Value, b: Value, d: Value) -> Value:
        below, above, g = sigmoid(-a), sigmoid(b), gap_force(d)
        return below - above, -below - g, above + g

    def curvatures(a: Value, b: Value, d: Value) -> Value:
        g = gap_force(d)
        return sigmoid(a) * sigmoid(-a), sigmoid(b) * sigmoid(-b), g * (1.0 + g)

    return Interval(value, slopes, curvatures)


def cloglog(op: Primitives) -> Interval:
    """Of the law of log T, T exponential."""
    exp, log, expm1, where, maximum, minimum, infinity = (
        op.exp, op.log, op.expm1, op.where, op.maximum, op.minimum, math.inf,
    )  # fmt: skip
    minus_log_share, gap_force = _minus_log_share(op), _gap_force(op)

    @op.function
    def share(d: Value) -> Value:
        """1 − e^{−d}."""
        return where(d > 0.0, -expm1(-maximum(d, _LEAST)), 1.0)

    @op.function
    def hazard_of(gap: Value) -> Value:
        """ρ; 0 but for rounding from 700 on."""
        some = minimum(maximum(gap, _LEAST), _MOST)
        return some / expm1(some)

    @op.function
    def value(a: Value, b: Value, d: Value) -> Value:
        part = share(d)
        log_gap = a + log(part)
        inside = where(log_gap < _TINY, -log_gap, minus_log_share(exp(maximum(log_gap, _TINY))))
        return where(d > 0.0, exp(b) + inside, infinity)

    @op.function
    def slopes(a: Value, b: Value, d: Value) -> Value:
        rate, g, lower = hazard_of(exp(a) * share(d)), gap_force(d), exp(b)
        return rate - lower, -rate * (1.0 + g), lower + rate * g

    def curvatures(a: Value, b: Value, d: Value) -> Value:
        gap, g, lower = minimum(exp(a) * share(d), _MOST), gap_force(d), exp(b)
        rate = hazard_of(gap)
        near = minimum(gap, 0.5)
        series = near * op.polynomial(_SERIES, near)  # (e^G − 1 − G)/G
        rest = where(gap < 0.5, series / (1.0 + series), 1.0 - rate)
        pull = rate * (1.0 + g)
        return pull * (gap - rest), rest * (lower + rate * g), pull * g * (rate + gap)

    return Interval(value, slopes, curvatures)


def probit(op: Primitives) -> Interval:
    """Of the normal law."""
    exp, expm1, log, log1p, where, maximum = op.exp, op.expm1, op.log, op.log1p, op.where, op.maximum
    mills, minus_log_normal, infinity = op.mills, op.minus_log_normal, math.inf

    @op.function
    def reflected(a: Value, b: Value, d: Value) -> Value:
        """The ends with a + b ≤ 0, k, and whether integrals are sums."""
        upper, lower = where(a + b > 0.0, -b, a), where(a + b > 0.0, -a, b)
        k = where(d > 0.0, 0.5 * maximum(d, _LEAST) * abs(a + b), infinity)
        return upper, maximum(lower, -_FURTHEST), k, (d <= 1.0) & (k <= 1.0)

    @op.function
    def sums(upper: Value, d: Value, near: Value) -> Value:
        """J/d and K/d²."""
        width, end = where(near, d, 1.0), where(near, upper, 0.0)
        whole, first = 0.0 * end, 0.0 * end
        for j in range(len(_POINTS)):
            s = _POINTS[j] * width
            height = _WEIGHTS[j] * exp(s * (end - 0.5 * s))
            whole, first = whole + height, first + _POINTS[j] * height
        return whole, first

    @op.function
    def value(a: Value, b: Value, d: Value) -> Value:
        upper, lower, k, near = reflected(a, b, d)
        hazard = mills(upper)[0]
        q = where(near, 0.0, exp(-k) * hazard / mills(lower)[0])
        integral = where(near, maximum(d, _LEAST), 1.0) * sums(upper, d, near)[0]
        inside = where(
            near, 0.5 * upper * upper + _HALF_LOG - log(integral), minus_log_normal(upper, hazard) - log1p(-q)
        )
        return where(d > 0.0, inside, infinity)

    @op.function
    def slopes(a: Value, b: Value, d: Value) -> Value:
        upper, lower, k, near = reflected(a, b, d)
        hazard = mills(upper)[0]
        q = where(near, 0.0, exp(-k) * hazard / mills(lower)[0])
        integral = where(near, maximum(d, _LEAST), 1.0) * sums(upper, d, near)[0]
        rate = where(near, 1.0 / integral, hazard / (1.0 - q))
        by_upper, by_lower, shift = -rate, rate * exp(-k), -rate * expm1(-k)
        turn = a + b > 0.0
        return where(turn, -shift, shift), where(turn, -by_lower, by_upper), where(turn, -by_upper, by_lower)

    def curvatures(a: Value, b: Value, d: Value) -> Value:
        upper, lower, k, near = reflected(a, b, d)
        (hazard, e_upper), (other, e_lower) = mills(upper), mills(lower)
        fade = exp(-k)
        q = where(near, 0.0, fade * hazard / other)
        whole, first = sums(upper, d, near)
        width = where(d > 0.0, op.minimum(d, 1.0 / _LEAST), 0.0)
        scale = where(near, 1.0 / whole, hazard / (1.0 - q))
        by_upper = where(near, scale**2 * first, scale * (e_upper - q * (e_lower + width)) / (1.0 - q))
        by_lower = fade * where(near, scale**2 * (whole - first), scale * (width - e_upper + q * e_lower) / (1.0 - q))
        between = fade * where(near, scale / maximum(d, _LEAST), scale) ** 2
        turn = a + b > 0.0
        return where(turn, by_lower, by_upper), where(turn, by_upper, by_lower), between

    return Interval(value, slopes, curvatures)


_dense_points, _dense_weights = np.polynomial.legendre.leggauss(12)


def student(df: float) -> Interval:
    """Of Student's law with ν degrees of freedom, over NumPy."""
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)

    def log_density(z: Array) -> Array:
        return np.asarray(constant - 0.5 * (df + 1) * np.log1p(z * z / df), np.float64)

    def rate(z: Array) -> Array:
        """h′(z), which is 0 at both infinities."""
        far = np.abs(z) > 1e150
        safe = np.where(far, 1.0, z)
        return np.where(far, 0.0, (df + 1) * safe / (df + safe * safe))

    def change(z: Array, other: Array, gap_force: Array) -> Array:
        """h′(z) − h′(other) of z − other = gap_force, which is given with all its digits."""
        return (df + 1) * gap_force * (df - z * other) / ((df + z * z) * (df + other * other))

    def upper_tail(z: Array) -> Array:
        """P(ε > z) of z ≥ 0."""
        from scipy.special import betainc

        root = np.sqrt(df + np.minimum(z, 1e150) ** 2)
        share, rest = np.sqrt(df) / root, np.minimum(z, 1e150) / root  # share² and rest² are 1 together
        near = rest < 0.5
        upper = np.where(near, 0.5 - 0.5 * betainc(0.5, df / 2, rest**2), 0.5 * betainc(df / 2, 0.5, share**2))
        return np.asarray(upper, np.float64)

    def ends(a: Value, b: Value, d: Value) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
        """The ends with a + b ≤ 0, whether they are reflected, log P, E h′, E[h′(a) − h′] and E[h′ − h′(b)]."""
        a, b, d = (np.asarray(v, np.float64) for v in (a, b, d))
        turn = a + b > 0
        a, b = np.where(turn, -b, a), np.where(turn, -a, b)
        least = np.where((a > 0) & (b < 0), 0.0, np.minimum(np.abs(a), np.abs(b)))
        near = (d <= np.minimum(1.0, 0.5 * np.sqrt(df + least**2))) & (d * np.abs(rate(least)) <= 1.0)
        top, width = np.where(near, a, 0.0), np.where(near, d, 1.0)
        from_top, from_bottom = (width[..., None] * (0.5 + sign * 0.5 * _dense_points) for sign in (1, -1))
        z = top[..., None] - from_top
        mass = 0.5 * _dense_weights * np.exp(log_density(z) - log_density(top)[..., None])
        whole = mass.sum(axis=-1)
        share = mass / whole[..., None]
        bottom = top - width
        sums = (
            np.log(width * whole) + log_density(top), (share * rate(z)).sum(axis=-1),
            (share * change(top[..., None], z, from_top)).sum(axis=-1),
            (share * change(z, bottom[..., None], from_bottom)).sum(axis=-1),
        )  # fmt: skip
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(a > 0, 1.0 - upper_tail(np.abs(a)), upper_tail(np.abs(a))) - upper_tail(np.abs(b))
            log_p = np.log(np.where(near, 1.0, inside))
            mean = np.exp(log_density(b) - log_p) - np.exp(log_density(a) - log_p)
        far = log_p, mean, rate(a) - mean, mean - rate(b)
        return a, b, turn, *(np.where(near, one, other) for one, other in zip(sums, far, strict=True))

    def value(a: Value, b: Value, d: Value) -> Value:
        return np.where(d > 0, -ends(a, b, d)[3], math.inf)

    def slopes(a: Value, b: Value, d: Value) -> Value:
        upper, lower, turn, log_p, mean, _, _ = ends(a, b, d)
        by_upper, by_lower = -np.exp(log_density(upper) - log_p), np.exp(log_density(lower) - log_p)
        return np.where(turn, mean, -mean), np.where(turn, -by_lower, by_upper), np.where(turn, -by_upper, by_lower)

    def curvatures(a: Value, b: Value, d: Value) -> Value:
        upper, lower, turn, log_p, _, above, below = ends(a, b, d)
        at_upper, at_lower = np.exp(log_density(upper) - log_p), np.exp(log_density(lower) - log_p)
        p, r = at_upper * above, at_lower * below
        return np.where(turn, r, p), np.where(turn, p, r), at_upper * at_lower

    return Interval(value, slopes, curvatures)
