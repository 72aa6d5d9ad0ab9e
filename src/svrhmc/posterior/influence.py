"""What a prior did: how much of what is known of a coefficient comes from it.

Where likelihood and prior are about Gaussian, precisions add: with s₀ the prior's standard deviation and s the
posterior's, the prior's share of the precision is (s/s₀)², and it has moved the mean by (s/s₀)²(m − m₀) towards its
own. An intercept is looked at where its prior is, at the centre of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices, require_alike

DOMINATES = 0.5  # of the precision: from here on more is known from the prior than from the data


@dataclass(frozen=True, eq=False)
class Influence:
    """Location and precision (0 where flat) of the prior of each standardised coordinate, its share of the posterior's
    precision, and the shift of the mean towards it, in posterior standard deviations.

    said: the prior in words.
    """

    location: Array
    precision: Array
    share: Array
    shift: Array
    said: str

    def require_sound(self) -> None:
        """Refuse arrays of unequal shapes."""
        require_alike(self)

    @staticmethod
    def of(location: Array, precision: Array, draws: Array, said: str) -> Influence:
        """From draws (chain, draw, dim) in the variables that the prior is stated in."""
        flat = draws.reshape(-1, draws.shape[2])
        mean, sd = flat.mean(axis=0), flat.std(axis=0, ddof=1)
        with np.errstate(over="ignore"):  # more than all of it is all of it
            share = np.minimum(sd**2 * precision, 1.0)
        shift = share * (location - mean) / np.where(sd > 0, sd, 1.0)  # where sd is 0, so is the share
        return Influence(location, precision, share, shift, said)

    def dominated(self) -> Indices:
        """The coordinates of which more is known from the prior than from the data."""
        return np.flatnonzero(self.share > DOMINATES)
