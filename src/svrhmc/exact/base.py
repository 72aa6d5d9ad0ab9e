"""What the exact samplers share: a run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from svrhmc.core.arrays import Indices, cores
from svrhmc.core.errors import requirement, whole
from svrhmc.core.progress import Progress, reporter
from svrhmc.samplers import _chain_numbers
from svrhmc.targets.glm import GeneralisedLinear
from svrhmc.targets.losses import LogisticLoss, SquaredLoss
from svrhmc.trace import Trace
from svrhmc.whitening import Whitening


class ExactSampler(ABC):
    """A sampler with a Metropolis step."""

    def run(
        self,
        target: GeneralisedLinear,
        draws: int,
        *,
        chains: int | Sequence[int] = 4,
        seed: int = 0,
        burn_in: int = 100,
        whitening: str | Whitening | None = None,
        threads: int | None = None,
        progress: Progress = None,
    ) -> Trace:
        """Draw from π ∝ exp(−f): `draws` of each chain after `burn_in`, from starts in N(0, I) of the whitening.

        chains: how many, or which, as for `Sampler.run`.
        whitening: None (the default of `svrhmc.whitening`), "dense", "diagonal", "low rank", or one already made.
        threads: None for every core. The draws do not depend on it.
        progress: True, False, None (a line on a terminal), or a callable of (done, total) in chain steps.
        """
        require_rows(target)
        draws, burn_in = whole("draws", draws, 1), whole("burn_in", burn_in, 0)
        numbers = _chain_numbers(chains)
        threads = cores() if threads is None else whole("threads", threads, 1)
        seed = whole("seed", seed, 0, (1 << 64) - 1)
        made = self._chains(target, whitening, seed, numbers, threads)
        made.compile()
        report, finish = reporter(progress, (draws + burn_in) * len(numbers))
        began = time.perf_counter()
        try:
            before = int(made.extend(burn_in, report).evaluations) if burn_in else 0
            extension = made.extend(draws, report)
        finally:
            finish()
        seconds = time.perf_counter() - began
        evaluations = before / len(numbers) + np.cumsum(extension.counts.mean(axis=0))
        return Trace(
            draws=made.whitening.out(extension.z),
            passes=evaluations / target.n,
            gradient_evaluations=round(float(evaluations[-1])),
            velocity=np.zeros((len(numbers), target.dim)),
            seconds=seconds,
            sampler=self,
            seed=seed,
            chains=numbers,
            engine="numba",
            acceptance=extension.accepted / draws,
        )

    @abstractmethod
    def _chains(
        self, target: GeneralisedLinear, whitening: str | Whitening | None, seed: int, chains: Indices, threads: int
    ) -> Any:
        """Chains that can be continued, from `svrhmc.engines.metropolis`."""


def require_rows(target: object) -> None:
    """Refuse what is not compiled."""
    known = isinstance(target, GeneralisedLinear) and isinstance(target.loss, LogisticLoss | SquaredLoss)
    if not known:
        raise requirement("target", "a generalised linear model, logistic(X, y) or linear(X, y)", repr(target))


def require_whitening(whitening: object, target: GeneralisedLinear) -> Whitening:
    """Refuse what is no whitening of this target."""
    if not isinstance(whitening, Whitening):
        raise requirement("whitening", "None, one of 'dense', 'diagonal', 'low rank', or a Whitening", repr(whitening))
    if whitening.centre.shape != (target.dim,):
        raise requirement("whitening", f"one of {target.dim} coordinates", len(whitening.centre))
    return whitening
