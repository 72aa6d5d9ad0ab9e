"""Samplers side by side: W₂ to the target against data passes, from chains and from the exact law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svrhmc.core.arrays import Array
from svrhmc.core.errors import requirement
from svrhmc.core.progress import Progress
from svrhmc.density.base import FiniteSum
from svrhmc.distances import plug_in_floor, plug_in_w2
from svrhmc.samplers import Sampler
from svrhmc.theory import laws

_POINTS = 48


@dataclass(frozen=True, eq=False)
class Curve:
    """W₂ along a run, at `passes`: `sampled`, the Gaussian plug-in from the chains; `exact`, from the exact moments.

    `floor` is what the plug-in would show for exact draws, so `sampled` tends to √(exact² + floor²).
    """

    name: str
    sampler: Sampler
    steps: int
    seconds: float
    passes: Array
    sampled: Array
    exact: Array
    floor: float

    def at(self, passes: float) -> int | None:
        """The last point that cost no more than so many passes."""
        affordable = np.flatnonzero(self.passes <= passes * (1 + 1e-12))
        return int(affordable[-1]) if len(affordable) else None


def compare_samplers(
    target: FiniteSum,
    samplers: Sequence[tuple[str, Sampler]],
    passes: float,
    chains: int,
    seed: int = 0,
    engine: str = "auto",
    progress: Progress = None,
) -> list[Curve]:
    """Run each named sampler for as many steps as `passes` pay for, on a target whose law is known.

    >>> from svrhmc import svr_hmc, targets
    >>> [curve] = compare_samplers(targets.synthetic(20, 2), [("SVR-HMC", svr_hmc(0.1))], passes=5, chains=100)
    >>> bool(curve.exact[-1] < curve.exact[0])
    True
    """
    if target.closed_form is None:
        why = "distances are to the law of the target; of others, run each sampler and compare trace.summary()"
        allowed = "one whose law is known, such as targets.synthetic, or targets.linear with a known noise"
        raise requirement("target", allowed, repr(target), why)
    curves = []
    for name, sampler in samplers:
        steps = sampler.steps_for(target, passes)
        thin = max(1, steps // _POINTS)
        trace = sampler.run(target, steps, chains=chains, seed=seed, thin=thin, engine=engine, progress=progress)
        shown = [law for law in laws(sampler, target, steps) if law.step and law.step % thin == 0]
        law = shown[0].target  # e^{−f/T} at the sampler's temperature
        exact = np.array([at.w2 for at in shown])
        sampled = np.array(
            [plug_in_w2(draws, law.mean, law.covariance).value for draws in np.moveaxis(trace.draws, 1, 0)]
        )
        floor = plug_in_floor(law.covariance, chains)
        curves.append(Curve(name, sampler, steps, trace.seconds, trace.passes, sampled, exact, floor))
    return curves
