"""What a prior did: how much of what is known of a coefficient comes from it.

Where likelihood and prior are about Gaussian, precisions add: with s₀ the prior's standard deviation and s the
posterior's, the prior's share of the precision is (s/s₀)², and it has moved the mean by (s/s₀)²(m − m₀) towards its
own. An intercept is looked at where its prior is, at the centre of the columns.

Coefficients may each be known better than their priors say, while some combination of them is not: where a column is
the sum of others, the data say nothing of how an effect is shared among them. With P the prior's precisions and S the
posterior's covariance, C = P^½SP^½ has the shares on its diagonal, and its eigenvalues λₖ are the prior's shares for
the combinations of its eigenvectors vₖ. From N draws of d coordinates the largest comes out as up to (1 + √(d/N))²
times what it is (Marchenko & Pastur), so that much more is asked of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array, Indices, require_alike

DOMINATES = 0.5  # of the precision: from here on more is known from the prior than from the data
_LOOKED = 1000  # coordinates up to which combinations are looked for


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
        with np.errstate(over="ignore", invalid="ignore"):  # more than all of it is all of it
            mean, sd = flat.mean(axis=0), flat.std(axis=0, ddof=1)
            share = np.minimum(sd**2 * precision, 1.0)
            shift = share * (location - mean) / np.where(sd > 0, sd, 1.0)  # where sd is 0, so is the share
        return Influence(location, precision, np.nan_to_num(share, nan=1.0), np.nan_to_num(shift), said)

    def dominated(self) -> Indices:
        """The coordinates of which more is known from the prior than from the data."""
        return np.flatnonzero(self.share > DOMINATES)

    def entangled(self, draws: Array) -> Indices:
        """The coordinates that are in a combination of which more is known from the prior than from the data, while
        each by itself is not (`dominated`): those most of whose variance is along such combinations. From draws in the
        variables of the prior; none where there are too many coordinates to look at, or no more draws than coordinates.
        """
        flat = draws.reshape(-1, draws.shape[-1])
        count, dim = flat.shape
        if dim > _LOOKED or dim >= count:
            return np.empty(0, np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (flat - flat.mean(axis=0)) * np.sqrt(self.precision)
            square = scaled.T @ scaled / (count - 1)
        if not np.isfinite(square).all():  # so far beyond the prior that it says nothing
            return np.empty(0, np.int64)
        size, vector = np.linalg.eigh(square)
        along = np.where(size > DOMINATES * (1 + np.sqrt(dim / count)) ** 2, size, 0.0)
        variance = vector**2 @ np.maximum(size, 0.0)
        found = np.flatnonzero((vector**2 @ along > 0.5 * variance) & (self.share <= DOMINATES))
        return found if len(found) > 1 else found[:0]
