"""The primitives over which formulas of families are written: those of NumPy here, of Numba and JAX with their engines.

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

The factory takes the primitives of a compiled function out of `op` beforehand, as compiled code has no `op`. In
compiled code there is no `xp`, and `rising` and `gamma_excess` stand for the functions that they join; a formula that
is not compiled, because its family has `energies`, takes such functions from `op` when it is called. Curvatures are
evaluated by NumPy alone, and only they use functions that are not in the list.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array

Primitives = SimpleNamespace  # exp, log, … of NumPy, of JAX or of compiled code
Value = Any  # a number or array that these take
Fields = Any  # a `Record`, with the numbers of its family

MILLS_TAIL, MILLS_TERMS = 4.0, 40  # below −4 λ is a continued fraction, which has all digits with so many terms


def logistic_functions(op: Primitives) -> None:
    """softplus(v) = max(v, 0) + log(1 + e^{−|v|}), sigmoid(v) and soft, from what `op` has: nothing overflows."""
    exp, where, maximum, log1p_unit, zero, one = op.exp, op.where, op.maximum, op.log1p_unit, op.number(0), op.number(1)

    def softplus(v: Value) -> Value:
        return maximum(v, zero) + log1p_unit(exp(-abs(v)))

    def sigmoid(v: Value) -> Value:
        e = exp(-abs(v))
        return where(v > zero, one, e) / (one + e)

    op.softplus, op.sigmoid = op.function(softplus), op.function(sigmoid)
    op.soft = lambda v: (softplus(v), sigmoid(v), sigmoid(-v))


def _mills(s: Value) -> tuple[Array, Array]:
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


def _trigamma(z: Value) -> Array:
    from scipy.special import polygamma

    return np.asarray(polygamma(1, z), np.float64)


def _special() -> Value:
    from scipy import special  # loaded where it is needed

    return special


def _log_rising(phi: Value, y: Value) -> Array:
    """Without the difference of two large numbers."""
    safe = np.maximum(y, 1.0)
    return np.where(y > 0, _special().gammaln(safe) - _special().betaln(safe, phi), 0.0)


def array_primitives(
    xp: ModuleType, special: Callable[[], Value], log_rising: Callable[[Value, Value], Value]
) -> SimpleNamespace:
    """The primitives of NumPy and JAX: `xp` is NumPy or JAX's NumPy, and `special` returns the special functions of
    SciPy or JAX, which have no accurate log_rising in common.
    """

    def rising_rate(phi: Value, y: Value) -> Value:
        return special().digamma(y + phi) - special().digamma(phi)

    def log_gamma_excess(alpha: Value, theta: Value) -> Value:
        return alpha * (1 - theta) + special().gammaln(alpha)

    def digamma_excess(alpha: Value, theta: Value) -> Value:
        return special().digamma(alpha) - theta

    return SimpleNamespace(
        number=float,
        exp=xp.exp,
        log=xp.log,
        log1p=xp.log1p,
        log1p_unit=xp.log1p,
        expm1=xp.expm1,
        where=xp.where,
        maximum=xp.maximum,
        minimum=xp.minimum,
        minus_log_normal=lambda s, hazard: -special().log_ndtr(s),
        log_rising=log_rising,
        rising_rate=rising_rate,
        rising=lambda phi, y: (log_rising(phi, y), rising_rate(phi, y)),
        log_gamma_excess=log_gamma_excess,
        digamma_excess=digamma_excess,
        gamma_excess=lambda alpha, theta: (log_gamma_excess(alpha, theta), digamma_excess(alpha, theta)),
        polynomial=lambda coefficients, x: xp.polyval(xp.asarray(coefficients[::-1]), x),
        function=lambda f: f,
        xp=xp,
    )


NUMPY = array_primitives(np, _special, _log_rising)
NUMPY.mills, NUMPY.trigamma = _mills, _trigamma
logistic_functions(NUMPY)
