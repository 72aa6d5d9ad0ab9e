"""Split Hamiltonian Monte Carlo: the Gaussian part of π is followed exactly, the rest by kicks; Metropolis corrects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import nonnegative, positive, requirement, settle, whole
from svrhmc.core.parts import part
from svrhmc.engines import Chains
from svrhmc.exact.base import ExactSampler
from svrhmc.targets.base import FiniteSum
from svrhmc.targets.forms import rows_of

_TURN = 1.6  # of a trajectory: about a quarter of a circle
_ENERGY = 0.3  # the variance of a trajectory's change of H


@part
@dataclass(frozen=True)
class SplitHMC(ExactSampler):
    """HMC in z, x = x̂ + W z, that rotates where f = ½|z|² + R(z) is Gaussian (Shahbaba, Lan, Johnson & Neal 2014).

    One draw, from z:

        v ~ N(0, I),   h = step_size·(1 + jitter·U),   U ~ uniform(−1, 1)
        leapfrogs times:   v ← v − (h/2)∇R(z)
                           (z, v) ← (z cos h + v sin h, v cos h − z sin h)
                           v ← v − (h/2)∇R(z)
        accept (z′, v′) with probability min(1, exp(H(z, v) − H(z′, v′))),   H = f(z) + ½|v|²,

    where ∇R = Wᵀ∇f − z. It costs `leapfrogs` passes over the rows, which give f and ∇f together.

    Invariance. Let T be the `leapfrogs` steps for one h, and F the flip (z, v) ↦ (z, −v).
    (1) T keeps volume: a kick shifts v by a function of z alone, with Jacobian 1, and a rotation has Jacobian 1.
    (2) (F T)² = 1: for a kick K, F K F = K⁻¹, as its shift of v changes sign; for a rotation Q by h, F Q F is the
    rotation by −h. A step K Q K is a palindrome, so F (K Q K)ᴸ F = (K⁻¹ Q⁻¹ K⁻¹)ᴸ = T⁻¹.
    (3) H∘F = H. So the proposal F T is an involution that keeps volume, and with μ ∝ e^{−H}, for sets A and B,

        ∫_A μ(s) min(1, μ(FTs)/μ(s)) 1[FTs ∈ B] ds = ∫ min(μ(s), μ(FTs)) 1[s ∈ A, FTs ∈ B] ds

    is the same with A and B exchanged (put s = FTs′): the move keeps μ, by detailed balance. A flip of v afterwards,
    and a fresh v, keep μ too, and its z-part is π.
    (4) h is drawn apart from the state, so that the mixture over h keeps μ.
    Nothing is asked of W, of x̂ or of ∇R: whatever function of z the kicks use, only the acceptance suffers.

    >>> from svrhmc import targets
    >>> target = targets.logistic([[1.0, 0.5], [1.0, -2.0], [1.0, 1.5]], [1, 0, 1])
    >>> trace = SplitHMC().run(target, 500, seed=1)
    >>> trace.draws.shape, bool((trace.acceptance > 0.9).all())
    ((4, 500, 2), True)
    """

    method = "split-hmc"
    gradients_come_free = True
    step_size: float = 0.8
    leapfrogs: int = 2
    jitter: float = 0.2

    def __post_init__(self) -> None:
        step_size = positive("step_size", self.step_size)
        if step_size >= math.pi:
            raise requirement("step_size", "a positive number below π", self.step_size, "π is half a turn")
        jitter = nonnegative("jitter", self.jitter)
        if jitter >= 1:
            raise requirement("jitter", "a number from 0 to below 1", self.jitter)
        settle(self, step_size=step_size, leapfrogs=whole("leapfrogs", self.leapfrogs, 1), jitter=jitter)

    @classmethod
    def for_leftover(cls, leftover: float) -> SplitHMC:
        """Its defaults, or a shorter step where a whitening leaves E = WᵀHW − I, `leftover` = |E|²_F.

        Along an eigenvector of E with value e a trajectory changes H by about ½·e(h/2)²·χ, χ of mean 0 and variance 4
        or less: together by something of variance h⁴|E|²_F/16, which is to be at most 0.3: then 3 of 4 proposals are
        accepted.
        """
        step, most = cls().step_size, (16 * _ENERGY / max(leftover, 1e-300)) ** 0.25
        return cls() if most >= step else cls(most, max(1, round(_TURN / most)))

    def rows_of_step(self, space: Any) -> float:
        """A pass for each leapfrog step."""
        return float(self.leapfrogs * space.n)

    def smaller(self) -> SplitHMC | None:
        """Three quarters of the step, and as many of them as make the same turn; None below a step of 0.05."""
        step = self.step_size * 0.75
        if step < 0.05:
            return None
        return SplitHMC(step, max(1, round(_TURN / step)), self.jitter)

    def chains(self, space: FiniteSum, seed: int, chains: Indices, threads: int, start: Array | None = None) -> Chains:
        """Compiled chains, for every kind of whitening."""
        from svrhmc.engines.compiled.metropolis import SplitChains

        form = rows_of(space.form())
        assert form is not None
        return SplitChains(form, self, seed, chains, threads, start)
