"""The verdict on a sampler that has a bias: pairs of chains, more of them as long as they do not decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array, ratio
from svrhmc.core.deadline import BudgetSpent
from svrhmc.gradients import Gradient
from svrhmc.posterior import costs
from svrhmc.posterior.certificate import Bias, Certificate, Chance, judge, unmeasured
from svrhmc.posterior.correction import Corrected, Correction, correction, stein_bias
from svrhmc.posterior.drawing import Drawn
from svrhmc.posterior.fresh import Fresh
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.pairs import Pairs, plan_of
from svrhmc.posterior.units import Shown
from svrhmc.samplers import Sampler

_FEWEST, _FIRST, _MOST = 64, 256, 4096  # pairs
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 30.0  # that the first of them, and all of them, may be expected to take


@dataclass(frozen=True, eq=False)
class Found:
    """Corrected moments, with what they rest on: states (chain, draw, dim), their gradient, coefficients, errors.

    doubt: why they are not to be used, where a budget ended before they were found.
    seen: the same states in the user's variables, and WWᵀ∇f there.
    """

    z: Array
    gradient: Gradient
    control: Correction | None
    corrected: Corrected
    stein: Bias
    chance: Chance
    doubt: str = ""
    seen: tuple[Array, Array] | None = None

    @classmethod
    def of(
        cls, few: Drawn, gradient: Gradient, pulled: Array, variances: Array, effective: Array, one_mode: bool
    ) -> Found:
        """From WWᵀ∇f at some draws, where all of them are worth so many; one_mode: whether it is known that there is
        one.
        """
        control, corrected = correction(few.x, pulled, variances, one_mode)
        stein = stein_bias(few.x, pulled, variances)
        errors = ratio(corrected.mean_error, corrected.sd), ratio(corrected.sd_error, corrected.sd)
        chance = Chance(*errors, float(effective.min()))
        return cls(few.z, gradient, control, corrected, stein, chance, seen=(few.x, pulled))


@dataclass(frozen=True, eq=False)
class Judging:
    """What a verdict is made with."""

    fresh: Fresh
    ledger: Ledger
    journal: Journal
    tolerance: float
    shown: Shown

    def judge(
        self,
        sampler: Sampler,
        found: Found,
        place: tuple[int, int],
        doubt: str = "",
        slow: float = 0.0,
    ) -> Certificate:
        """From draws with the law of the sampler.

        `place` is the seed and number of an attempt, `slow` the steps in which its chains were seen to forget.
        """
        (seed, number), space, gradient = place, self.fresh.space, found.gradient
        assert found.control is not None
        late = found.z[:, found.z.shape[1] // 2 :]
        count = late.shape[0] * late.shape[1]
        certificate, averages, begun = unmeasured(self.tolerance, found.stein, doubt), [], 0
        price, wanted = self.price(sampler, gradient, slow), self.first(sampler, gradient, slow)
        if not self.ledger.unlimited:
            wanted = max(_FEWEST, min(wanted, int(self.ledger.affordable(price))))
        while begun < _MOST and self.ledger.pays(price[0] * (wanted - begun), price[1] * (wanted - begun)):
            plan = plan_of(sampler, space, wanted - begun, slow)
            numbers = np.arange(begun, begun + plan.chains)
            setup = self.fresh.setup(gradient, numbers, seed + (3 << 49))
            pairs = Pairs(sampler, setup, found.control, seed + (1 << 51), self.shown)
            self.ledger.compile(pairs.compile)
            start = late[np.unravel_index(numbers * count // plan.chains % count, late.shape[:2])]
            name = f"pairs-{number}-{found.z.shape[1]}-{begun}"
            try:
                averages.append(pairs.averages(start, plan, self.journal, name, self.ledger))
            except BudgetSpent:  # then those before them decide
                break
            self.ledger.evaluations += price[1] * plan.chains * space.n
            begun += plan.chains
            measured = pairs.measured(np.concatenate(averages, axis=1), plan.effective)
            certificate = judge(found.stein, measured, self.tolerance, found.chance, doubt)
            factor = float(f"{measured.corrected.more(self.tolerance):.6g}")
            wanted = min(_MOST, math.ceil(min(max(1.2 * factor, 2.0), 8.0) * begun))
            enough = measured.corrected.verdict(self.tolerance) != "undecided" or not certificate.corrects
            if enough or factor * begun > _MOST or price[0] * wanted > _MOST_SECONDS:
                break
        return certificate

    def first(self, sampler: Sampler, gradient: Gradient, slow: float = 0.0) -> int:
        """As many pairs as a second pays for, within bounds."""
        return int(min(max(_FIRST_SECONDS / self.price(sampler, gradient, slow)[0], _FEWEST), _FIRST))

    def once(self, sampler: Sampler, gradient: Gradient) -> tuple[float, float]:
        """What the first pairs take, in seconds and in passes."""
        seconds, passes = self.price(sampler, gradient)
        count = self.first(sampler, gradient)
        return count * seconds, count * passes

    def price(self, sampler: Sampler, gradient: Gradient, slow: float = 0.0) -> tuple[float, float]:
        """Of a pair, in seconds and in passes."""
        space, plan = self.fresh.space, plan_of(sampler, self.fresh.space, 1, slow)
        own, fresh = (each.recipe(space) for each in (sampler.gradient, gradient))
        seconds = 3 * plan.steps * costs.of_recipe(space, own) + 3 * plan.collected * costs.of_recipe(space, fresh)
        return seconds, plan.rows(own.rows_of_estimate, fresh.rows_of_estimate) / space.n
