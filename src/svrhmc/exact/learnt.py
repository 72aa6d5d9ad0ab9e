"""Split HMC on coefficients and the scale of their prior, with two moves of the scale between trajectories.

The state is (w, φ) in the variables z of `svrhmc.whitening.learnt`. Each draw is a trajectory of `SplitHMC`, and then,
where q coordinates have a prior of the scale τ = e^φ,

    1. τ | w                 τ ~ half-Student-t(ν, s) is τ² | b ~ IG(ν/2, ν/b), b ~ IG(½, 1/s²) (Wand, Ormerod, Padoan &
                             Frühwirth, Bayesian Analysis 6, 2011), so that both are inverse gamma given all else:
                             b ~ IG((ν + 1)/2, ν/τ² + 1/s²), then τ² ~ IG((ν + q)/2, ν/b + ½wᵀDw);
    2. (w, φ) → (e^u w, φ + u) in these q coordinates, u ~ N(0, σ²), accepted with probability
                             min(1, e^{f(w, φ) − f(e^u w, φ + u) + qu}), e^{qu} being the determinant of the move.

Each leaves the posterior invariant. 1 is quick where the rows say much of the coefficients, 2 where they say little, as
where classes can be told apart without error (Yu & Meng, Journal of Computational and Graphical Statistics 20, 2011);
trajectories move both together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from svrhmc.core.randomness import Stream
from svrhmc.core.serialise import part
from svrhmc.engines import Setup
from svrhmc.engines.base import Kernel
from svrhmc.exact.gibbs import generators
from svrhmc.exact.split import Point, SplitHMC, SplitKernel
from svrhmc.whitening.learnt import LearntScaleVariables

_MOVES = 2.0  # standard deviations of φ that a move of the second kind has


@part
@dataclass(frozen=True)
class LearntScaleHMC(SplitHMC):
    """The sampler of this module."""

    kind = "learnt scale"
    in_numpy = "always"
    gradients_come_free = jumps = of_functions = False

    def kernel(self, setup: Setup) -> Kernel:
        """The steps of all chains together."""
        return LearntScaleKernel(setup.target, self, setup.stream)


class LearntScaleKernel(SplitKernel):
    """The draws of `LearntScaleHMC`."""

    density: LearntScaleVariables

    def points(self, stream: Stream, at: Point, begin: int, end: int) -> Iterator[tuple[Point, npt.NDArray[np.bool_]]]:
        for step in range(begin, end):
            ((at, accepted),) = super().points(stream, at, step, step + 1)
            at = self._move_scale(stream, step, at)
            yield at, accepted

    def _move_scale(self, stream: Stream, step: int, at: Point) -> Point:
        """After both moves of the scale."""
        density, model = self.density, self.density.model
        prior, q = model.prior, len(model.shrunk)
        x = density.out(at.z)
        squares = (x[:, :-1] * model.metric_product(x[:, :-1])).sum(axis=1)
        u = np.empty(len(x))
        threshold = np.empty(len(x))
        for c, rng in enumerate(generators(stream, step)):
            b = (prior.df * np.exp(-2 * x[c, -1]) + prior.scale**-2) / rng.gamma((prior.df + 1) / 2)
            square = (prior.df / b + 0.5 * squares[c]) / rng.gamma((prior.df + q) / 2)
            x[c, -1] = 0.5 * np.log(square)
            u[c] = _MOVES * density.bend.slope[0] * rng.standard_normal()
            threshold[c] = -rng.standard_exponential()
        moved = x.copy()
        moved[:, model.shrunk] *= np.exp(u)[:, None]
        moved[:, -1] += u
        with np.errstate(over="ignore", invalid="ignore"):
            before, after = model.potentials(np.concatenate([x, moved])).reshape(2, -1)
            gained = before - after + q * u
        x = np.where((threshold < gained)[:, None], moved, x)
        return self.evaluate_point(stream, step, density.into(x))
