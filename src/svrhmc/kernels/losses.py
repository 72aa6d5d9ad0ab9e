"""The formulas of families in compiled code: a loss is the record of its family, a named tuple by whose type functions
choose (`svrhmc.families.base`).

A record of one predictor has the precision of the rows.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.extending import overload

from svrhmc.families.base import Formulas
from svrhmc.kernels.compiling import PLAIN, QUICK, prefetch
from svrhmc.kernels.layout import is_none
from svrhmc.kernels.primitives import primitives


def formulas(loss, t):
    """Those of the type of a loss, for predictors of the type t."""
    make = getattr(getattr(loss, "instance_class", None), "formulas", None)
    if make is None:
        raise TypingError(f"{loss} is no record of a family, which has formulas")
    op = primitives(np.float32 if t == types.float32 else np.float64)
    return Formulas(*map(_bare, make(op))), op.function


def _bare(entry):
    """A function without annotations, which numba compares with those of the function it stands for."""
    if not isinstance(entry, FunctionType):
        return entry
    return FunctionType(entry.__code__, entry.__globals__, entry.__name__, entry.__defaults__, entry.__closure__)


def needed(loss, t, what):
    """One of them, which a family may not have."""
    made = getattr(formulas(loss, t)[0], what)
    if made is None:
        raise TypingError(f"{loss} has no {what}")
    return made


def slope(loss, t, y):
    """∂ℓ/∂t at one predictor."""


@overload(slope, jit_options={**QUICK, "forceinline": True})
def _slope(loss, t, y):
    return needed(loss, t, "slope")


def slopes(loss, count, t, y, out):
    """out = ∂ℓ/∂t at so many predictors."""


@overload(slopes, jit_options=QUICK)
def _slopes(loss, count, t, y, out):
    def each(loss, count, t, y, out):
        for i in range(count):
            out[i] = slope(loss, t[i], y[i])

    return each


def energies(loss, count, t, y, slope, value):
    """slope = ∂ℓ/∂t and value = ℓ at so many predictors."""


@overload(energies, jit_options=QUICK)
def _energies(loss, count, t, y, slope, value):
    made, function = formulas(loss, t.dtype)
    if made.energies is not None:
        return made.energies
    if made.both is not None:
        both = function(made.both)

        def at_once(loss, count, t, y, slope, value):
            for i in range(count):
                value[i], slope[i] = both(loss, t[i], y[i])

        return at_once
    value_of, slope_of = function(made.value), function(made.slope)

    def each(loss, count, t, y, slope, value):
        for i in range(count):
            value[i] = value_of(loss, t[i], y[i])
            slope[i] = slope_of(loss, t[i], y[i])

    return each


def remainder(loss, t, y, u):
    """ℓ(t + u) − ℓ(t) − ℓ′(t)u − ½ℓ″(t)u² in float64."""


@overload(remainder, jit_options=PLAIN)
def _remainder(loss, t, y, u):
    return needed(loss, t, "remainder")


def weight_of(weights, i):
    """The weight of a row in float64; 1 where there are none."""


@overload(weight_of, jit_options={**PLAIN, "forceinline": True})
def _weight_of(weights, i):
    if is_none(weights):
        return lambda weights, i: 1.0
    return lambda weights, i: np.float64(weights[i])


def expect_weight(weights, i):
    """Ask for the weight of a row before it is needed."""


@overload(expect_weight, jit_options={**PLAIN, "forceinline": True})
def _expect_weight(weights, i):
    if is_none(weights):
        return lambda weights, i: None
    return lambda weights, i: prefetch(weights, i)
