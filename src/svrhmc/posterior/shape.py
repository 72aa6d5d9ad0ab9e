"""How far the posterior is from the Gaussian at its mode."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.deadline import look
from svrhmc.gradients import Full
from svrhmc.posterior.fresh import Fresh
from svrhmc.targets.forms import rows_of

_AWAY = 3.0  # standard deviations at which the tails are looked at
_TAIL, _SPREAD, _LONG = 0.35, 0.22, 1.0  # up to which a posterior is nearly Gaussian; beyond the last, tails are long
_ROWS, _DIRECTIONS = 4096, 100  # that are looked at
_STATES, _BATCH = 64, 16  # at which full gradients of few rows are found; rows of an estimate where there are more


@dataclass(frozen=True, eq=False)
class Shape:
    """What is known of it, found once for a target and the same whatever the seed.

    In whitened variables ∇f(z) = z + r(z) and f(z) = f(0) + ½|z|² + R(z). The thresholds were found on 17 posteriors,
    by whether independent proposals from N(0, I) have calibrated errors.
    """

    fresh: Fresh

    def nearly_gaussian(self) -> bool:
        """Whether proposals from N(0, I) cannot stick in a tail that it does not have."""
        return self.visible and self.spread.max() <= _SPREAD and self.tail <= _TAIL

    def long_tails(self) -> bool:
        """Whether shorter steps are worth their price."""
        return self.visible and self.tail > _LONG

    def known(self) -> tuple[float | None, Array | None]:
        """`tail` and `spread`, where they were found."""
        return self.__dict__.get("tail"), self.__dict__.get("spread")

    def recall(self, tail: float | None, spread: Array | None) -> None:
        """As they were found before."""
        found = {"tail": tail, "spread": spread}
        self.__dict__.update({name: value for name, value in found.items() if value is not None})

    @property
    def visible(self) -> bool:
        """Whether the first two orders at the mode are taken out of the rows, so that the rest is all that is seen."""
        return bool(self.fresh.by_rows and rows_of(self.fresh.space.form()) is not None)

    @cached_property
    def spread(self) -> Array:
        """√E (r·u)² over N(0, I), for the direction u of each of the user's coordinates: from two estimates of r."""
        space = self.fresh.space
        how, few = space.whitening, space.n <= _ROWS and space.at_hand == space.n
        gradient = Full() if few else self.fresh.batches(_BATCH)
        states = self.fresh.laplace(np.arange(_STATES) if few else self.fresh.pilot)
        if space.at_hand < space.n:
            self.fresh.expect_noise()
            space.expect(space.spaced_places(_ROWS))
            for seed in (1 << 21, 1 << 22):
                self.fresh.expect(gradient, np.arange(len(states)), seed)
        first = how.displace(self.fresh.at(gradient, states, 1 << 21) - states)
        second = first if few else how.displace(self.fresh.at(gradient, states, 1 << 22) - states)
        return np.asarray(np.sqrt(np.maximum((first * second).mean(axis=0), 0.0) / how.variances), np.float64)

    @cached_property
    def tail(self) -> float:
        """max −R(±3u): the log of how much heavier a tail is than the Gaussian's, along the user's coordinates.

        For the coordinates with the largest spread of r, from all rows or from some drawn by importance, in their
        order, without chance.
        """
        space, how = self.fresh.space, self.fresh.space.whitening
        worst = np.argsort(-self.spread, kind="stable")[:_DIRECTIONS]
        look()
        unit = how.pull(np.eye(space.dim)[worst])  # rows of W
        unit = _AWAY * unit / np.sqrt((unit**2).sum(axis=1, keepdims=True))
        if space.n <= _ROWS and space.at_hand == space.n:
            some, rows, weights = space, np.arange(space.n), np.ones(space.n)
        else:
            some, rows, weights = space.spaced(_ROWS)
        look()
        u = some.target.rows.choose(rows).predict(how.displace(unit))  # (direction, row), or (direction, row, m)
        t, form = some.predictors[rows], rows_of(some.form())
        assert form is not None
        with np.errstate(over="ignore", invalid="ignore"):  # a tail so light that it overflows is not heavy
            rest = [
                form.values(t + s * u, rows)
                - form.values(t, rows)
                - form.along(some.slopes[rows] * s + form.turned(some.curvatures[rows], u) / 2, u)
                for s in (-1.0, 1.0)
            ]
            prior = [some.prior_remainder(s * unit) for s in (-1.0, 1.0)]
            return float(max((-(each @ weights + more)).max() for each, more in zip(rest, prior, strict=True)))
