"""Where subsampled Metropolis thins rows: everywhere, or in a ball |z| ≤ R in which ℓ‴ of every row has a bound.

In the ball a row's predictor is within R|ãᵢ| of t̂ᵢ, so that with what the loss says of an interval,

    |ℓ‴(tᵢ)| ≤ Mᵢ(R) = third_within(t̂ᵢ − R|ãᵢ|, t̂ᵢ + R|ãᵢ|).

A step with both ends in the ball evaluates Λ rows, another all n. With both ends drawn from N(0, I), which π nearly is
where this sampler is of use, and q = P(χ_dim > R),

    rows(R) = (1 + c)/3 · dim^{3/2} Σᵢ wᵢMᵢ(R)|ãᵢ|³ + n q(2 − q),

whose first term rises with R and whose second falls. R is that of q = 10⁻¹, 10⁻², … after which rows(R) rises. It
decides what a step costs, and not its law; it depends on the data and the settings alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from svrhmc.core.arrays import Array

_WIDER = 1 + 1e-3  # for the rounding of |ã| and of u
_LEAST_TAIL = 12  # q is at least 10 to minus this
_found: WeakKeyDictionary[Any, dict[tuple[float, float | None], Region]] = WeakKeyDictionary()  # by target


@dataclass(frozen=True, eq=False)
class Region:
    """Mᵢ = third·sharesᵢ where |z| ≤ radius; shares are None where the radius is ∞ and all Mᵢ are the same.

    rows: what a step is expected to evaluate.
    """

    radius: float
    third: float
    shares: Array | None
    rows: float


def region(space: Any, spread: float, radius: float | None) -> Region:
    """For a target in whitened variables; found once. radius: R, or None for the whole space where ℓ‴ has a bound
    there, and else for the R with the fewest rows. Where ℓ‴ is 0 there is nothing to bound, and R is ∞.
    """
    known = _found.setdefault(space, {})
    if (spread, radius) not in known:
        known[spread, radius] = _make(space, spread, radius)
    return known[spread, radius]


def _make(space: Any, spread: float, radius: float | None) -> Region:
    if (sums := space.third_sums(radius)) is not None:
        reach, third, cubes = sums
        return Region(reach, third, None, _rows(space, spread, reach, cubes))
    form = space.form()
    third = form.loss.third_bound
    if third == 0 or (third is not None and radius is None):
        cubes = float(form.weighed(space.row_norms**3).sum())
        return Region(math.inf, third, None, 2 * (1 + spread) * third / 6 * space.dim**1.5 * cubes)
    if radius is not None:
        return _ball(space, spread, radius)
    from scipy.special import gammainccinv

    best: Region | None = None
    for power in range(1, _LEAST_TAIL + 1):
        tried = _ball(space, spread, math.sqrt(2 * gammainccinv(space.dim / 2, 10.0**-power)))
        if best is not None and not tried.rows < best.rows:
            return best
        best = tried
    assert best is not None
    return best


def _ball(space: Any, spread: float, radius: float) -> Region:
    form, lengths = space.form(), space.row_norms
    t, reach = form.removed.predictors, _WIDER * radius * lengths
    with np.errstate(over="ignore", invalid="ignore"):  # then rows are not finite, and too many
        bounds = form.loss.third_within(t - reach, t + reach)
        cubes = float(form.weighed(bounds * lengths**3).sum())
    return Region(radius, 1.0, bounds, _rows(space, spread, radius, cubes))


def _rows(space: Any, spread: float, radius: float, cubes: float) -> float:
    """rows(R), with Σᵢ wᵢMᵢ(R)|ãᵢ|³."""
    from scipy.special import gammaincc

    beyond = float(gammaincc(space.dim / 2, radius**2 / 2))
    return float((1 + spread) / 3 * space.dim**1.5 * cubes + space.n * beyond * (2 - beyond))
