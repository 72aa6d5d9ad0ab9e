"""Metropolis that looks at a few rows a step and is exact all the same.

Rows are thinned everywhere, or in a ball |z| ≤ R in which ℓ‴ of every row has a bound (`region`). In the ball a row's
predictor is within R|ãᵢ| of t̂ᵢ, so that with what the loss says of an interval,

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
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from svrhmc.core.errors import positive, real_number, requirement, set_fields
from svrhmc.core.serialise import part
from svrhmc.density.base import FiniteSum
from svrhmc.exact.base import ExactSampler
from svrhmc.exact.split import SplitHMC
from svrhmc.families.base import Loss
from svrhmc.families.primitives import NUMPY
from svrhmc.rows.forms import rows_of
from svrhmc.whitening.targets import Region, Whitened, WhitenedRows

_WIDER = 1 + 1e-3  # for the rounding of |ã| and of u
_LEAST_TAIL = 12  # q is at least 10 to minus this
_regions: WeakKeyDictionary[Whitened, dict[tuple[float, float | None], Region]] = WeakKeyDictionary()  # by target


@part
@dataclass(frozen=True)
class SubsampledMH(ExactSampler):
    """Poisson-thinned Metropolis with second-order control variates (after Prado, Nemeth & Sherlock 2024).

    In z, x = x̂ + W z with WᵀHW = I, H = ∇²f(x̂), and with ãᵢ = Wᵀaᵢ, uᵢ = ãᵢᵀz and t̂ᵢ = oᵢ + aᵢᵀx̂,

        f(z) = const + ½|z|² + g·z + Σᵢ ρᵢ(z),   g = Wᵀ∇f(x̂),   ρᵢ = ℓ(t̂ᵢ + uᵢ) − ℓ(t̂ᵢ) − ℓ′(t̂ᵢ)uᵢ − ½ℓ″(t̂ᵢ)uᵢ².

    (A row of weight wᵢ has wᵢρᵢ for ρᵢ, and so wᵢ|ãᵢ|³ for |ãᵢ|³ in all that follows.)

    One draw, with c = spread, ρ = correlation and M = sup|ℓ‴| (logistic 1/(6√3), squared 0, probit 0.2957):

        z′ = ρz + √(1 − ρ²) ξ,   ξ ~ N(0, I)
        N ~ Poisson(Λ),   Λ = (1 + c)(M/6) Σᵢ|ãᵢ|³ (|z|³ + |z′|³)
        N rows i, each with probability pᵢ ∝ |ãᵢ|³ and kept with probability φᵢ(z, z′)/(Λpᵢ),
            φᵢ(z, z′) = max(0, −rᵢ) + c|rᵢ|,   rᵢ(z, z′) = ρᵢ(z) − ρᵢ(z′)
        accept with probability min(1, e^{g·(z − z′)} Π_{kept i} ((1 + c)/c)^{sign rᵢ}).

    It costs the evaluation of N rows, about 0.048 d^{3/2} Σ|ãᵢ|³ at c = ½ for the logistic loss, which falls like
    n^{−1/2}. A larger c costs more rows and is accepted more often. A whitening that is dense but not quite H^{−½} is
    put right by ½zᵀ(WᵀHW − I)z beside g·z.

    A ball. Where ℓ‴ has no bound everywhere (Poisson's is eᵗ), the loss may have one on every interval. Then M is
    replaced, row by row, by Mᵢ = sup{|ℓ‴(t)| : |t − t̂ᵢ| ≤ R|ãᵢ|}, and Mᵢ|ãᵢ|³ takes the place of M|ãᵢ|³ in Λ and pᵢ. A
    step with |z| ≤ R and |z′| ≤ R is made as above; any other evaluates all rows, and accepts with probability

        min(1, e^{g·(z − z′) + Σᵢrᵢ(z, z′)}).

    No draw is cut off, and the law is π whatever R = `radius` is. None takes the R for which a step is expected to
    evaluate the fewest rows (`region`), and R = ∞ where M is known.

    Invariance. (1) |ρᵢ(z)| ≤ M|uᵢ|³/6 ≤ M|ãᵢ|³|z|³/6 by Taylor and Cauchy–Schwarz, so φᵢ ≤ (1 + c)|rᵢ| ≤ Λpᵢ: what a
    row is kept with is a probability. A Poisson number of picks, each marked i with probability pᵢ and kept
    independently, leaves counts Sᵢ that are independent Poisson(φᵢ(z, z′)).
    (2) rᵢ(z′, z) = −rᵢ(z, z′), so φᵢ(z′, z) − φᵢ(z, z′) = rᵢ, and φᵢ(z′, z)/φᵢ(z, z′) is (1 + c)/c for rᵢ > 0 and its
    inverse for rᵢ < 0; where rᵢ = 0, Sᵢ = 0. Hence

        P(S | z′, z)/P(S | z, z′) = Πᵢ (φᵢ(z′, z)/φᵢ(z, z′))^{Sᵢ} e^{−rᵢ} = e^{−Σrᵢ} Πᵢ ((1 + c)/c)^{Sᵢ sign rᵢ}.

    (3) z′ is proposed reversibly for N(0, I), with density ν: ν(z)q(z, z′) = ν(z′)q(z′, z); and
    π(z′)/π(z) = [ν(z′)/ν(z)] e^{g·(z − z′) + Σrᵢ}. So

        π(z′)q(z′, z)P(S | z′, z) / [π(z)q(z, z′)P(S | z, z′)] = e^{g·(z − z′)} Πᵢ ((1 + c)/c)^{Sᵢ sign rᵢ},

    the acceptance ratio: for each S the move is in detailed balance with π, and so is their sum over S. The sum Σrᵢ
    over all rows, which would need a pass, has cancelled.
    (4) With a ball B, (1) holds for z and z′ in B: there |uᵢ| ≤ R|ãᵢ|, so that every t between t̂ᵢ and t̂ᵢ + uᵢ is where
    Mᵢ bounds |ℓ‴|. So (2) and (3) hold on B × B. Elsewhere the acceptance is min(1, π(z′)q(z′, z)/(π(z)q(z, z′))), by
    (3), and π(z)q(z, z′) times it is the smaller of π(z)q(z, z′) and π(z′)q(z′, z): the same for (z′, z). Which of the
    two rules is used depends on whether both ends are in B, so on the pair and not on its order. Hence the flow from
    z to z′ is that from z′ to z for every pair, and the kernel, with what it rejects staying at z, is in detailed
    balance with π on the whole space. A state beyond B costs full passes and no bias.
    Thresholds of the alias table are rounded: pᵢ are the probabilities it has, and Λ is raised until Λpᵢ bounds φᵢ.

    >>> from svrhmc import targets
    >>> target = targets.linear([[1.0], [2.0]], [1.0, 3.0])
    >>> trace = SubsampledMH().run(target, 500)
    >>> trace.acceptance.tolist(), trace.gradient_evaluations
    ([1.0, 1.0, 1.0, 1.0], 0)
    """

    kind = "subsampled"
    method = "subsampled-mh"
    whitening = "dense"
    correlation: float = 0.0
    spread: float = 0.5
    radius: float | None = None

    def __post_init__(self) -> None:
        correlation = real_number("correlation", self.correlation, "a number between -1 and 1", lambda r: -1 < r < 1)
        radius = None if self.radius is None else positive("radius", self.radius)
        set_fields(self, correlation=correlation, spread=positive("spread", self.spread), radius=radius)

    def require(self, target: FiniteSum) -> None:
        """Refuse rows of which only sums over all of them are known too."""
        super().require(target)
        rows = rows_of(target.form())
        if rows is not None and not rows.rows.single:
            why = f"single rows cannot be had where rows are {rows.rows.where}; leave devices= out"
            raise requirement("method", f"None or {SplitHMC.method!r} with devices=", repr(self.method), why)

    def refuses(self, loss: Loss) -> str | None:
        """A loss that says no bound on its third derivative, not even on an interval."""
        if loss.third_within(np.zeros(1), np.zeros(1)) is None:
            return f"the third derivative of {loss} has no bound, not even on an interval"
        reason = super().refuses(loss)
        if reason is None and (loss.kernel is None or loss.kernel.formulas(NUMPY).remainder is None):
            return f"the formulas of {loss} have no remainder (svrhmc.families.base.Formulas)"
        return reason

    def rows_of_step(self, space: Whitened) -> float:
        """Λ of a typical step, |z| = |z′| = √dim, and its share of full passes: the rows that it evaluates."""
        return self.region(space).rows

    def stay_index(self, shape: Any) -> float:
        """Proposals follow N(0, I), whatever the density is."""
        return float(shape.stay_index(self.correlation))

    def region(self, space: Whitened) -> Region:
        """Where rows are thinned."""
        return region(space, self.spread, self.radius)


def region(space: Whitened, spread: float, radius: float | None) -> Region:
    """For a target in whitened variables; found once. radius: R, or None for the whole space where ℓ‴ has a bound
    there, and else for the R with the fewest rows. Where ℓ‴ is 0 there is nothing to bound, and R is ∞.
    """
    regions = _regions.setdefault(space, {})
    if (spread, radius) not in regions:
        regions[spread, radius] = _find_region(space, spread, radius)
    return regions[spread, radius]


def _find_region(space: Whitened, spread: float, radius: float | None) -> Region:
    if (sums := space.third_sums(radius)) is not None:
        reach, third, cubes = sums
        return Region(reach, third, None, _expected_rows(space, spread, reach, cubes))
    rows = cast(WhitenedRows, space)  # as no passes are made for its sums
    form = rows.form()
    bound = form.loss.third_bound
    if bound is not None and (bound == 0 or radius is None):
        cubes = float(form.multiply_by_weights(rows.row_norms**3).sum())
        return Region(math.inf, bound, None, 2 * (1 + spread) * bound / 6 * space.dim**1.5 * cubes)
    if radius is not None:
        return _ball_region(rows, spread, radius)
    from scipy.special import gammainccinv

    best: Region | None = None
    for power in range(1, _LEAST_TAIL + 1):
        tried = _ball_region(rows, spread, math.sqrt(2 * gammainccinv(space.dim / 2, 10.0**-power)))
        if best is not None and not tried.rows < best.rows:
            return best
        best = tried
    assert best is not None
    return best


def _ball_region(space: WhitenedRows, spread: float, radius: float) -> Region:
    form, lengths = space.form(), space.row_norms
    t, reach = space.predictors, _WIDER * radius * lengths
    with np.errstate(over="ignore", invalid="ignore"):  # then rows are not finite, and too many
        bounds = form.loss.third_within(t - reach, t + reach)
        assert bounds is not None  # of a loss that is not refused
        cubes = float(form.multiply_by_weights(bounds * lengths**3).sum())
    return Region(radius, 1.0, bounds, _expected_rows(space, spread, radius, cubes))


def _expected_rows(space: Whitened, spread: float, radius: float, cubes: float) -> float:
    """rows(R), with Σᵢ wᵢMᵢ(R)|ãᵢ|³."""
    from scipy.special import gammaincc

    beyond = float(gammaincc(space.dim / 2, radius**2 / 2))
    return float((1 + spread) / 3 * space.dim**1.5 * cubes + space.n * beyond * (2 - beyond))
