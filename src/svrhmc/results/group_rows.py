"""What group effects add to the predictors of new rows.

With uₖ,ℓ the effects of level ℓ of term k under a draw, a new row of that level has Σₖ zₖᵀuₖ,ℓ more in its predictor.
Of a level that was not fitted the covariance of its effects is all that is known: under each draw they are drawn from
their normal law, once for all such levels, so that an average over draws is one over the levels that there might be,
and a new y varies by its level too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from svrhmc.core.arrays import Array, Indices
from svrhmc.results.predict import thinned


@dataclass(frozen=True, eq=False)
class EffectDraws:
    """Draws of coefficients and shared parameters, as the rows have them (draws, dim), and of each term those of its
    effects (draws, levels, r) and of the effects of a level that was not fitted (draws, r).
    """

    x: Array
    known: tuple[Array, ...]
    new: tuple[Array, ...]

    @staticmethod
    def of(posterior: Any, most: int, seed: int) -> EffectDraws:
        """At most so many draws of a posterior that has group effects."""
        effects = posterior.group_effects
        x = thinned(posterior.trace.draws[:, :: effects.every], most)
        edge = x.shape[1] - effects.covariances
        drawn = thinned(effects.draws, most)
        normals = np.random.default_rng(seed)
        known, new, place = [], [], edge
        for k, some in enumerate(effects.slices()):
            r = len(effects.columns[k])
            known.append(drawn[:, some].reshape(len(x), -1, r))
            covariance = x[:, place : place + r * (r + 1) // 2]
            new.append(_new_effects(covariance, r, normals.standard_normal((len(x), r))))
            place += r * (r + 1) // 2
        own = x[:, :edge]
        return EffectDraws(own if posterior.units is None else posterior.units.inward(own), tuple(known), tuple(new))

    def chosen(self, draws: Indices) -> EffectDraws:
        """Some of them."""
        return EffectDraws(self.x[draws], *(tuple(part[draws] for part in parts) for parts in (self.known, self.new)))

    def shift(self, rows: Sequence[tuple[Indices, Array]]) -> Shift:
        """What they add to the predictors of rows, of which each term has the levels (−1: not fitted) and columns."""
        return Shift(self, tuple(rows))


@dataclass(frozen=True, eq=False)
class Shift:
    """What group effects add to the predictors of some rows, (draws, rows)."""

    draws: EffectDraws
    rows: tuple[tuple[Indices, Array], ...]

    def __call__(self, chosen: Indices) -> Array:
        """Of the rows of these numbers."""
        total = np.zeros((len(self.draws.x), len(chosen)))
        for (index, columns), known, new in zip(self.rows, self.draws.known, self.draws.new, strict=True):
            level, z = index[chosen], columns[chosen]
            total += np.where(level < 0, new @ z.T, np.einsum("dnr,nr->dn", known[:, level.clip(min=0)], z))
        return total


def _new_effects(covariance: Array, r: int, normals: Array) -> Array:
    """(draws, r), from the standard deviations and then the correlations of each draw, and as many normal numbers."""
    correlations = np.tile(np.eye(r), (len(covariance), 1, 1))
    lower = np.tril_indices(r, -1)
    correlations[:, lower[0], lower[1]] = covariance[:, r:]
    values, vectors = np.linalg.eigh(correlations, UPLO="L")
    z = np.sqrt(np.maximum(values, 0.0)) * normals
    return np.asarray(covariance[:, :r] * np.einsum("dij,dj->di", vectors, z))
