"""Step-halving: the same chain with the steps η and η/2 on one Brownian path and the same batches.

Their moments differ by 3/4 of the bias where it is of second order in η, and by 1/2 where it is of first order, as that
from noisy gradients is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from svrhmc.checkpoint import Clock, InMemory, Journal
from svrhmc.core.arrays import Array
from svrhmc.core.randomness import Stream
from svrhmc.engines import estimates
from svrhmc.posterior.certificate import Bias
from svrhmc.samplers import Sampler
from svrhmc.scheme import Scheme, StepNoise, pushed, step_noise
from svrhmc.targets.base import FiniteSum

_ORDER = 2.0  # bias over (moment at η − moment at η/2): 4/3 for second order, 2 for first
_NAMES = ("long x", "long v", "short x", "short v", "long sums", "short sums")


def halving_bias(
    sampler: Sampler,
    target: FiniteSum,
    start: Array,
    steps: int,
    seed: int,
    threads: int = 1,
    journal: Journal | None = None,
    name: str = "halving",
) -> Bias:
    """Bias by running many short chains with the steps η and η/2 on shared noise, from the same states.

    start: (chains, dim) states that have (nearly) the law of the sampler. The first half of the steps, in which the two
    part, is not used. Errors are those of independent chains. The journal keeps where the pairs of chains are.
    """
    coarse, fine = sampler.dynamics, replace(sampler.dynamics, step_size=sampler.dynamics.step_size / 2)  # type: ignore[type-var]
    long, short = coarse.scheme(target), fine.scheme(target)
    chains, dim = start.shape
    setup = sampler.setup(target, seed, np.arange(chains), threads)
    stream, journal, clock = Stream(seed, setup.chains), journal or InMemory(), Clock()
    z = [(start.copy(), np.zeros_like(start)) for _ in range(2)]
    sums = [np.zeros((chains, 2, dim)) for _ in range(2)]
    begin = 0
    if (found := journal.get(name)) is not None:
        arrays = [found.arrays[each] for each in _NAMES]
        z, sums, begin = [(arrays[0], arrays[1]), (arrays[2], arrays[3])], arrays[4:], int(found.said["step"])

    def move(state: tuple[Array, Array], scheme: Scheme, drawn: StepNoise, at: int) -> tuple[Array, Array]:
        x, v = pushed(scheme.before, state, drawn.before)
        g = estimates(setup, x, at)
        x, v = pushed(scheme.after, (x, v), drawn.after)
        return x - scheme.kick.x * g, v - scheme.kick.v * g

    for step in range(begin, steps):
        drawn = [stream.normals(2 * step + k, short.normals * dim).reshape(chains, -1, dim) for k in (0, 1)]
        noise = (step_noise(short, drawn[0]), step_noise(short, drawn[1]))
        z[0] = move(z[0], long, coarse.joined(long, short, noise), 2 * step)
        z[1] = move(move(z[1], short, noise[0], 2 * step), short, noise[1], 2 * step + 1)
        if step >= steps // 2:
            for total, (x, _) in zip(sums, z, strict=True):
                out = target.out(x)
                total[:, 0] += out
                total[:, 1] += out**2
        if journal.kept and (clock.due() or step + 1 == steps):
            journal.put(name, {"step": step + 1}, dict(zip(_NAMES, (*z[0], *z[1], *sums), strict=True)))
    return _bias(sums, steps - steps // 2)


def _bias(sums: list[Array], used: int) -> Bias:
    """From Σx and Σx² of each chain over `used` steps, with the long and with the short step."""
    centre = (sums[1][:, 0] / used).mean(axis=0)
    means = [total[:, 0] / used for total in sums]
    squares = [total[:, 1] / used - 2 * centre * mean + centre**2 for total, mean in zip(sums, means, strict=True)]
    variance = squares[1].mean(axis=0)
    mean_terms = _ORDER * (means[0] - means[1]) / np.sqrt(variance)
    sd_terms = _ORDER * (squares[0] - squares[1]) / (2 * variance)
    root = math.sqrt(len(means[0]))
    return Bias(
        mean_terms.mean(axis=0),
        mean_terms.std(axis=0, ddof=1) / root,
        sd_terms.mean(axis=0),
        sd_terms.std(axis=0, ddof=1) / root,
    )
