"""The verdict on a sampler that has a bias: pairs of chains, more of them as long as they do not decide."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.arrays import Array
from svrhmc.gradients import Gradient
from svrhmc.posterior import costs
from svrhmc.posterior.certificate import Bias, Certificate, judge, unmeasured
from svrhmc.posterior.correction import Correction, chosen_states
from svrhmc.posterior.fresh import Fresh
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.pairs import Pairs, plan_of
from svrhmc.samplers import Sampler

_FEWEST, _FIRST, _MOST = 64, 256, 4096  # pairs
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 30.0  # that the first of them, and all of them, may be expected to take


@dataclass(frozen=True, eq=False)
class Judging:
    """What a verdict is made with."""

    fresh: Fresh
    ledger: Ledger
    journal: Journal
    tolerance: float

    def judge(
        self,
        sampler: Sampler,
        z: Array,
        stein: Bias,
        control: Correction,
        gradient: Gradient,
        place: tuple[int, int],
    ) -> Certificate:
        """From draws z (chain, draw, dim), whose law is the sampler's; `place` is the seed and number of an attempt."""
        (seed, number), space, count = place, self.fresh.space, z.shape[0] * z.shape[1]
        certificate, found, begun = unmeasured(self.tolerance, stein), [], 0
        price, wanted = self.price(sampler, gradient), self.first(sampler, gradient)
        if not self.ledger.unlimited:
            wanted = max(_FEWEST, min(wanted, int(self.ledger.affordable(price))))
        while wanted <= _MOST and self.ledger.pays(price[0] * (wanted - begun), price[1] * (wanted - begun)):
            plan = plan_of(sampler, space, wanted - begun)
            numbers = np.arange(begun, begun + plan.chains)
            pairs = Pairs(sampler, self.fresh.setup(gradient, numbers, seed + (3 << 49)), control, seed + (1 << 51))
            self.ledger.compile(pairs.compile)
            start = chosen_states(z, count)[numbers * _STRIDE % count]
            found.append(pairs.sums(start, plan, self.journal, f"pairs-{number}-{begun}"))
            self.ledger.evaluations += price[1] * plan.chains * space.n
            begun += plan.chains
            measured = pairs.measured(np.concatenate(found, axis=1), plan.effective)
            certificate = judge(stein, measured, self.tolerance)
            factor = measured.corrected.more(self.tolerance)
            wanted = math.ceil(min(max(1.2 * factor, 2.0), 8.0) * begun)
            if certificate.verdict != "undecided" or factor * begun > _MOST or price[0] * wanted > _MOST_SECONDS:
                break
        return certificate

    def first(self, sampler: Sampler, gradient: Gradient) -> int:
        """As many pairs as a second pays for, within bounds."""
        return int(min(max(_FIRST_SECONDS / self.price(sampler, gradient)[0], _FEWEST), _FIRST))

    def once(self, sampler: Sampler, gradient: Gradient) -> tuple[float, float]:
        """What the first pairs take, in seconds and in passes."""
        seconds, passes = self.price(sampler, gradient)
        count = self.first(sampler, gradient)
        return count * seconds, count * passes

    def price(self, sampler: Sampler, gradient: Gradient) -> tuple[float, float]:
        """Of a pair, in seconds and in passes."""
        space, plan = self.fresh.space, plan_of(sampler, self.fresh.space, 1)
        own, fresh = (each.recipe(space) for each in (sampler.gradient, gradient))
        seconds = 3 * plan.steps * costs.of_recipe(space, own) + 3 * plan.collected * costs.of_recipe(space, fresh)
        return seconds, plan.rows(own.rows_of_estimate, fresh.rows_of_estimate) / space.n


_STRIDE = 7919  # a prime: pairs that are begun together begin in all parts of the run
