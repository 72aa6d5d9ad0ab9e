"""The functions that formulas of families are written over: NumPy's here, Numba's and JAX's beside what they run.

A family's formulas are made by a factory, `formulas(op)`, and `op` has

    number(v)                              a constant in the precision of the rows
    exp, log, log1p, expm1                 where(condition, a, b), maximum, minimum
    log1p_unit(e)                          log(1 + e) for 0 ≤ e ≤ 1
    polynomial(c, x)                       Σₖ cₖxᵏ
    softplus(v), sigmoid(v)                log(1 + eᵛ), 1/(1 + e⁻ᵛ);   soft: softplus(v), sigmoid(v) and sigmoid(−v)
    mills(s), minus_log_normal(s, λ)       λ = φ(s)/Φ(s) and s + λ;   −log Φ(s)
    log_rising(φ, y), rising_rate(φ, y)    log Γ(y + φ)/Γ(φ) and ψ(y + φ) − ψ(φ);   rising: both
    log_gamma_excess(α, log α)             α − α log α + log Γ(α);   digamma_excess: ψ(α) − log α;   gamma_excess: both
    function(f)                            f, as others of these functions may call it
    xp                                     NumPy or JAX's NumPy, for formulas over classes

A compiled body takes what it needs out of `op` before it is defined, as compiled code has no `op`; curvatures are asked
of NumPy alone, and only they use what is not in the list.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array

MILLS_TAIL, MILLS_TERMS = 4.0, 40  # below −4 λ is a continued fraction, which has all digits with so many terms


def logistic_functions(op: Any) -> None:
    """softplus(v) = max(v, 0) + log(1 + e^{−|v|}), sigmoid(v) and soft, from what `op` has: nothing overflows."""
    exp, where, maximum, log1p_unit, zero, one = op.exp, op.where, op.maximum, op.log1p_unit, op.number(0), op.number(1)

    def softplus(v: Any) -> Any:
        return maximum(v, zero) + log1p_unit(exp(-abs(v)))

    def sigmoid(v: Any) -> Any:
        e = exp(-abs(v))
        return where(v > zero, one, e) / (one + e)

    op.softplus, op.sigmoid = op.function(softplus), op.function(sigmoid)
    op.soft = lambda v: (softplus(v), sigmoid(v), sigmoid(-v))


def _mills(s: Any) -> tuple[Array, Array]:
    from scipy.special import erfcx

    s = np.asarray(s, np.float64)
    hazard = math.sqrt(2 / math.pi) / erfcx(np.minimum(-s / math.sqrt(2), 1e8))
    x = np.maximum(-s, MILLS_TAIL)
    rest = np.zeros_like(x)
    for k in range(MILLS_TERMS, 1, -1):
        rest = k / (x + rest)
    rest = 1 / (x + rest)
    far = s < -MILLS_TAIL
    return np.where(far, x + rest, hazard), np.where(far, rest, s + hazard)


def _minus_log_normal(s: Any, hazard: Any) -> Array:
    from scipy.special import log_ndtr

    return np.asarray(-log_ndtr(s), np.float64)


def _log_rising(phi: Any, y: Any) -> Array:
    """Without the difference of two large numbers."""
    from scipy.special import betaln, gammaln

    safe = np.maximum(y, 1.0)
    return np.asarray(np.where(y > 0, gammaln(safe) - betaln(safe, phi), 0.0), np.float64)


def _rising_rate(phi: Any, y: Any) -> Array:
    from scipy.special import digamma

    return np.asarray(digamma(y + phi) - digamma(phi), np.float64)


def _log_gamma_excess(alpha: Any, theta: Any) -> Array:
    from scipy.special import gammaln

    return np.asarray(alpha * (1 - theta) + gammaln(alpha), np.float64)


def _digamma_excess(alpha: Any, theta: Any) -> Array:
    from scipy.special import digamma

    return np.asarray(digamma(alpha) - theta, np.float64)


def _trigamma(z: Any) -> Array:
    from scipy.special import polygamma

    return np.asarray(polygamma(1, z), np.float64)


NUMPY = SimpleNamespace(
    number=float,
    exp=np.exp,
    log=np.log,
    log1p=np.log1p,
    log1p_unit=np.log1p,
    expm1=np.expm1,
    where=np.where,
    maximum=np.maximum,
    minimum=np.minimum,
    mills=_mills,
    minus_log_normal=_minus_log_normal,
    log_rising=_log_rising,
    rising_rate=_rising_rate,
    rising=lambda phi, y: (_log_rising(phi, y), _rising_rate(phi, y)),
    log_gamma_excess=_log_gamma_excess,
    digamma_excess=_digamma_excess,
    gamma_excess=lambda alpha, theta: (_log_gamma_excess(alpha, theta), _digamma_excess(alpha, theta)),
    trigamma=_trigamma,
    polynomial=lambda coefficients, x: np.polynomial.polynomial.polyval(x, coefficients),
    function=lambda f: f,
    xp=np,
)
logistic_functions(NUMPY)
