"""What can be said where a budget ended too soon: the Laplace approximation, or draws without gradients at them.

Where fewer than four draws of a chain were affordable, the posterior is taken as N(x̂, H⁻¹), of which independent draws
cost nothing more than the map x = x̂ + W z. Nothing is known of its error: the verdict is "undecided", and the standard
errors are infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from svrhmc.checkpoint import Journal
from svrhmc.core.randomness import Purpose, Stream
from svrhmc.gradients import Full
from svrhmc.posterior.certificate import Bias, Chance, unmeasured
from svrhmc.posterior.correction import Corrected, Location, error_of_mean
from svrhmc.posterior.drawing import LEAST, Drawn
from svrhmc.posterior.fresh import Fresh
from svrhmc.posterior.judging import Found
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.result import Posterior
from svrhmc.posterior.units import Shown
from svrhmc.trace import Trace

ENDED = "budget"  # the record of a search that ended so
_SEED = 1 << 53
_NUMBERS = 1 << 19  # in draws, that are made whatever is left of a budget
_NO_DRAWS = "the budget ended before any draw; these numbers are those of the Laplace approximation"
_NO_GRADIENTS = "the budget ended before the gradients at the draws were found"


def approximation(target: Any, shown: Shown, fresh: Fresh, request: Any, ledger: Ledger, journal: Journal) -> Posterior:
    """The Laplace approximation as a posterior, with draws of it: as many as were asked for where that is no work."""
    chains, dim = len(request.chains), target.dim
    count = max(LEAST, min(-(-request.draws // chains), _NUMBERS // (chains * dim)))
    stream = Stream(request.seed + _SEED, request.chains)
    z = stream.normals(0, count * dim, Purpose.START, Purpose.START_FINE).reshape(1, chains * count, dim)
    x = shown.out(z).reshape(chains, count, dim)
    mean, sd = shown.centre, np.sqrt(shown.variances)
    if journal.kept and journal.get(ENDED) is None:
        journal.put(ENDED, {"ledger": ledger.said()})
    trace = Trace(
        draws=x, passes=np.zeros(count), gradient_evaluations=0, velocity=np.zeros((chains, dim)),
        seconds=0.0, sampler=None, seed=request.seed, chains=request.chains, engine="numpy",
    )  # fmt: skip
    seconds, passes = ledger.used()
    return Posterior(
        mean=mean,
        sd=sd,
        raw=Location(x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)),
        corrected=Corrected(mean, sd, *_unknown(dim)),
        laplace=Location(mean, sd),
        trace=trace,
        method="laplace",
        sampler=None,
        why="the Laplace approximation, because the budget did not pay for draws of the posterior.",
        certificate=unmeasured(request.tolerance, _unmeasured(dim), _NO_DRAWS),
        ess=np.full(dim, float(chains * count)),
        r_hat=np.ones(dim),
        passes=passes,
        seconds=seconds,
        compile_seconds=ledger.compiling,
        complete=False,
        steps=dict(ledger.steps),
    )


def uncorrected(drawn: Drawn) -> Found:
    """The moments of draws, where nothing but them is there."""
    x, dim = drawn.x, drawn.x.shape[2]
    mean, sd = x.mean(axis=(0, 1)), x.std(axis=(0, 1), ddof=1)
    errors = error_of_mean(x), error_of_mean((x - mean) ** 2) / (2 * sd)
    chance = Chance(errors[0] / sd, errors[1] / sd, float(drawn.effective.min()))
    return Found(drawn.z, Full(), None, Corrected(mean, sd, *errors), _unmeasured(dim), chance, _NO_GRADIENTS)


def _unmeasured(dim: int) -> Bias:
    """A bias of which nothing is known."""
    zero = np.zeros(dim)
    return Bias(zero, _unknown(dim)[0], zero, _unknown(dim)[1])


def _unknown(dim: int) -> tuple[Any, Any]:
    return np.full(dim, np.inf), np.full(dim, np.inf)
