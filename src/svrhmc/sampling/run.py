"""From settings to an answer: by a closed form where the law of the posterior is known, else by a search."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from svrhmc.checkpoint import Checkpoint, InMemory, Journal
from svrhmc.core.arrays import Array, cores, digest
from svrhmc.core.deadline import Budget, BudgetSpent
from svrhmc.core.errors import boolean, one_of, positive, requirement, whole_number
from svrhmc.core.jax import load_jax
from svrhmc.core.machine import blas_for
from svrhmc.core.progress import Progress
from svrhmc.core.randomness import Stream
from svrhmc.core.serialise import stable_repr
from svrhmc.core.version import VERSION
from svrhmc.density.base import FiniteSum, require_target
from svrhmc.density.closed_forms import Law
from svrhmc.diagnostics import spread
from svrhmc.engines import names
from svrhmc.samplers import MOST_STEPS, require_room
from svrhmc.sampling.answer import Answer, Cost, Request, independent_trace, stated_parameters
from svrhmc.sampling.certificate import Bias, Certificate
from svrhmc.sampling.choice import METHODS
from svrhmc.sampling.coordinates import Units
from svrhmc.sampling.correction import Corrected, Location
from svrhmc.sampling.drawing import LEAST
from svrhmc.sampling.groups import GroupSearch
from svrhmc.sampling.learnt import LearntScaleSearch
from svrhmc.sampling.search import Search
from svrhmc.sampling.shrinkage import ShrinkageSearch
from svrhmc.whitening import is_whitened

_KINDS = 3  # of numbers that are kept for each draw
_MOST_COVARIANCE = 1000  # coordinates up to which an answer has the covariance that is known of it
_GROWTH = 4  # of draws from a known law, with a budget
_SEARCHES: dict[str, Any] = {
    "mode": Search,
    "groups": GroupSearch,
    "shrinkage": ShrinkageSearch,
    "learnt scale": LearntScaleSearch,
}
_KNOWN = "the law of the posterior is known, and its moments are those of its formula"


def find_answer(
    target: FiniteSum,
    units: Units | None,
    *,
    draws: int,
    chains: int,
    tolerance: float,
    seed: int,
    method: Any,
    budget_seconds: float | None,
    budget_passes: float | None,
    engine: str,
    devices: object,
    threads: int | None,
    certificate: bool,
    progress: Progress,
    checkpoint: str | os.PathLike[str] | None,
) -> tuple[Answer, Cost]:
    """The answer of `svrhmc.sample` with these settings, and its cost. units: those in which coefficients of the target
    are reported; None for its own.
    """
    on_host = target
    if is_whitened(require_target(target)):
        raise requirement("target", "one in its own coordinates, which `sample` whitens itself", repr(target))
    if isinstance(method, str):
        one_of("method", method, METHODS)
    elif method is not None and (isinstance(method, type) or not hasattr(method, "invariant")):
        raise requirement("method", "None, a sampler, or one of " + ", ".join(map(repr, METHODS)), repr(method))
    require_draws(draws, chains, checkpoint)
    require_draws(draws, chains, checkpoint, _SEARCHES[target.searched_by].width(target, draws))
    if devices is not None:
        target = _on_devices(target, devices)
    request = Request(
        target=target,
        draws=whole_number("draws", draws, 10, MOST_STEPS),
        chains=np.arange(whole_number("chains", chains, 1, 1 << 31)),
        tolerance=positive("tolerance", tolerance),
        seed=whole_number("seed", seed, 0, (1 << 63) - 1),
        method=method,
        seconds=math.inf if budget_seconds is None else positive("budget_seconds", budget_seconds),
        passes=math.inf if budget_passes is None else positive("budget_passes", budget_passes),
        engine=one_of("engine", engine, ("auto", *names())),
        threads=cores() if threads is None else whole_number("threads", threads, 1),
        certificate=boolean("certificate", certificate),
        progress=progress,
        units=units,
    )
    journal: Journal = InMemory() if checkpoint is None else Checkpoint(checkpoint, _identity(request))
    with journal, blas_for(target.dim):
        budget = Budget(target.n, request.seconds, request.passes, progress)
        with journal.recording("law", budget):
            law = _known_law(request, budget) if method in (None, "closed-form") else None
        if law is not None:
            answer, cost = _closed_form_answer(request, journal, law, budget)
        elif method == "closed-form":
            raise requirement("method", "another one for this target", "'closed-form'", "its law is not known")
        else:
            answer, cost = _SEARCHES[target.searched_by](request, journal, budget).run()
        with journal.recording("shown", budget):
            on_host.shown()  # whoever looks at rows later has them
    if target is not on_host and law is None:
        on_host.recall_modes(target.modes(), target.doubt, target.mode_starts, target.one_mode)
    return answer, cost


def _on_devices(target: FiniteSum, devices: object) -> FiniteSum:
    """The same target with its rows on JAX's devices."""
    load_jax()
    from svrhmc.engines.jax.device_rows import on_devices

    return on_devices(target, devices)


def require_draws(draws: int, chains: int, checkpoint: object = None, dim: int = 1) -> None:
    """Refuse more draws, of `dim` coefficients or more, than memory or the disk of a checkpoint can hold. Of each draw
    three arrays are kept: in the user's variables, in those of the sampler, and gradients.
    """
    chain_count = whole_number("chains", chains, 1, 1 << 31)
    by_chain = max(LEAST, -(-whole_number("draws", draws, 10, MOST_STEPS) // chain_count))
    require_room("draws", _KINDS * by_chain, chain_count, dim, checkpoint)


def _identity(request: Request) -> dict[str, object]:
    """All settings that the numbers of a search depend on."""
    return {
        "call": "sample",
        "version": VERSION,
        **request.target.identity(),
        "draws": request.draws,
        "chains": len(request.chains),
        "tolerance": request.tolerance,
        "seed": request.seed,
        "method": stable_repr(request.method),
        "budget_seconds": request.seconds,
        "budget_passes": request.passes,
        "certificate": request.certificate,
        **({} if request.engine == "auto" else {"engine": request.engine}),
        **({} if request.units is None else {"units": digest(request.units.centre, request.units.scale)}),
    }


def _known_law(request: Request, budget: Budget) -> Law | None:
    """The law of the posterior, if it is known."""
    try:
        with budget.binding():
            return request.target.exact_law
    except BudgetSpent:
        raise budget.exceeded_error("the law of the posterior is found") from None


def _independent_draws(law: Law, stream: Stream, requested: int, budget: Budget) -> Array:
    """Independent draws of each chain, as many as asked for; with a budget in seconds 4, and 4 times as many again and
    again while what is left pays for them at the last price.
    """
    count = requested if math.isinf(budget.limits[0]) else LEAST
    while True:
        began = budget.used()[0]
        x = law.draw(stream, count)
        following = min(requested, _GROWTH * count)
        if count == following or not budget.covers((budget.used()[0] - began) * following / count, 0.0):
            return x
        count = following


def _closed_form_answer(request: Request, journal: Journal, law: Law, budget: Budget) -> tuple[Answer, Cost]:
    """The answer with independent draws from a known law."""
    chains, dim, units = len(request.chains), len(law.mean), request.units
    requested = max(LEAST, -(-request.draws // chains))
    x = _independent_draws(law, Stream(request.seed, request.chains), requested, budget)
    count = x.shape[1]
    mean, covariance = law.mean, law.covariance
    if units is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            x, mean, covariance = units.outward(x), units.outward(mean), units.linear(units.linear(covariance).T)
        if not (np.isfinite(covariance).all() and np.isfinite(mean).all()):
            why = "in the units of the columns their variances are beyond float64; scale the columns to about 1"
            raise requirement("the coefficients", "of a size that can be squared", "others", why)
    sd, zero = np.sqrt(np.diag(covariance)), np.zeros(dim)
    seconds = budget.used()[0]
    trace = independent_trace(x, request, seconds)
    if journal.kept:
        journal.growing("draws", (chains, dim), "state").append(x)
        journal.growing("spent", (1,), "state").append(np.zeros((1, count)))
        settings = {"sampler": {}, "seed": request.seed, "engine": "numpy", "n": request.target.n, "spent": 0.0}
        journal.put("state", settings, {"v": trace.velocity, "chains": request.chains})
    answer = Answer(
        mean=mean,
        sd=sd,
        raw=Location(x.mean(axis=(0, 1)), spread(x)),
        corrected=Corrected(mean, sd, zero, zero),
        laplace=Location(mean, sd),
        trace=trace,
        method="closed-form",
        sampler=None,
        why=f"{law.why}.",
        certificate=Certificate("exact", request.tolerance, Bias(zero, zero, zero, zero), None, "exact", _KNOWN),
        ess=np.full(dim, float(chains * count)),
        r_hat=np.ones(dim),
        complete=count == requested,
        stopped=count < requested,
        parameters=stated_parameters(request.target, x),
        gaussian=law.gaussian,
        covariance=covariance if dim <= _MOST_COVARIANCE else None,
    )
    return answer, Cost(2.0, seconds, 0.0, {})
