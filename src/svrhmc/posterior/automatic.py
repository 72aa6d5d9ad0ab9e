"""`sample`: a posterior with no options set."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from svrhmc.checkpoint import Checkpoint, InMemory, Journal
from svrhmc.core.arrays import Array, cores, digest
from svrhmc.core.blas import blas_for
from svrhmc.core.deadline import BudgetSpent
from svrhmc.core.errors import one_of, positive, requirement, truth, whole
from svrhmc.core.parts import described
from svrhmc.core.progress import Progress
from svrhmc.core.randomness import Stream
from svrhmc.core.version import VERSION
from svrhmc.diagnostics import spread
from svrhmc.engines import names
from svrhmc.posterior.alerts import alert_of_verdict
from svrhmc.posterior.certificate import Bias, Certificate
from svrhmc.posterior.choice import METHODS
from svrhmc.posterior.clashes import examined
from svrhmc.posterior.correction import Corrected, Location
from svrhmc.posterior.drawing import LEAST
from svrhmc.posterior.ledger import Ledger
from svrhmc.posterior.parameters import stated
from svrhmc.posterior.prediction import Model
from svrhmc.posterior.request import Request
from svrhmc.posterior.result import Posterior
from svrhmc.posterior.search import Search
from svrhmc.posterior.units import Units
from svrhmc.runs import MOST_STEPS, require_room
from svrhmc.targets.base import FiniteSum, require_target
from svrhmc.targets.laws import Law
from svrhmc.trace import Trace
from svrhmc.whitening import is_whitened


def sample(
    target: FiniteSum,
    draws: int = 1000,
    chains: int = 4,
    tolerance: float = 0.02,
    seed: int = 0,
    *,
    method: Any = None,
    budget_seconds: float | None = None,
    budget_passes: float | None = None,
    engine: str = "auto",
    threads: int | None = None,
    certificate: bool = True,
    progress: Progress = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Sample a posterior with nothing to tune, and judge the means and standard deviations that are reported.

    draws: how many effective draws to make of each coordinate, and of its square, by all chains together.
    chains: how many chains to run.
    tolerance: the error to accept in a mean (in posterior standard deviations) and in a standard deviation (relative).
    seed: fixes every draw, whatever the number of threads, the machine, and interruptions.
    method: None to let `sample` choose; or "closed-form", "split-hmc" or "subsampled-mh" (exact); or "anchored",
        "baoab" or "ubu" (biased: the step is halved, at most four times, until the verdict is "certified"); or a
        sampler of the grid or of `svrhmc.exact`, which is run with its own settings in whitened variables.
    budget_seconds, budget_passes: stop when so much is spent, with the draws made so far; compilation is not counted.
        Where there are none yet the Laplace approximation is returned, and before the mode is found it is an error.
        (With a budget in seconds the number of draws, and all that follows from it, depends on the machine.)
    engine: who runs the chains: "auto" (by the sampler, the size of the problem and where its rows are), or the name of
        an engine, as for `Sampler.run`. `posterior.trace.engine` says which it was.
    threads: None to use every core.
    certificate: False to skip the chains that only serve to measure a bias. The verdict is then "unjudged" for samplers
        that have one. (Of a verdict that is undecided, refuted or unjudged a `VerdictWarning` tells.)
    progress: True or False to show a line of progress or not, None to show it on a terminal only, or a function that is
        called with (done, total) in chain steps.
    checkpoint: a folder in which to store what has been found and drawn. After an interruption the same call continues
        from there, with the same result as without it; after the end it returns the result at once.

    >>> from svrhmc import sample, targets
    >>> target = targets.linear([[1.0], [2.0]], [1.0, 3.0])
    >>> posterior = sample(target)
    >>> posterior.method, posterior.certificate.verdict, posterior.mean.round(6)
    ('closed-form', 'exact', array([1.166667]))
    """
    found = sampled(
        target,
        None,
        draws=draws,
        chains=chains,
        tolerance=tolerance,
        seed=seed,
        method=method,
        budget_seconds=budget_seconds,
        budget_passes=budget_passes,
        engine=engine,
        threads=threads,
        certificate=certificate,
        progress=progress,
        checkpoint=checkpoint,
    )
    told: Posterior = examined(found)
    alert_of_verdict(told)
    return told


def usual_settings() -> dict[str, Any]:
    """The settings of `sample`, by name, as they are where nothing is said."""
    parameters = signature(sample).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def require_draws(draws: int, chains: int, checkpoint: Any = None, dim: int = 1) -> None:
    """Refuse more draws, of `dim` coefficients or more, than memory or the disk of a checkpoint can hold: of each there
    are three kinds, in the user's variables, in those of the sampler, and gradients.
    """
    many = whole("chains", chains, 1, 1 << 31)
    each = max(LEAST, -(-whole("draws", draws, 10, MOST_STEPS) // many))
    require_room("draws", _KINDS * each, many, dim, checkpoint)


def sampled(
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
    threads: int | None,
    certificate: bool,
    progress: Progress,
    checkpoint: str | os.PathLike[str] | None,
) -> Posterior:
    """`sample`, of a target whose coefficients are shown in other units than it has them."""
    if is_whitened(require_target(target)):
        raise requirement("target", "one in its own coordinates, which `sample` whitens itself", repr(target))
    if isinstance(method, str):
        one_of("method", method, METHODS)
    elif method is not None and (isinstance(method, type) or not hasattr(method, "invariant")):
        raise requirement("method", "None, a sampler, or one of " + ", ".join(map(repr, METHODS)), repr(method))
    require_draws(draws, chains, checkpoint, target.dim)
    request = Request(
        target=target,
        draws=whole("draws", draws, 10, MOST_STEPS),
        chains=np.arange(whole("chains", chains, 1, 1 << 31)),
        tolerance=positive("tolerance", tolerance),
        seed=whole("seed", seed, 0, (1 << 63) - 1),
        method=method,
        seconds=math.inf if budget_seconds is None else positive("budget_seconds", budget_seconds),
        passes=math.inf if budget_passes is None else positive("budget_passes", budget_passes),
        engine=one_of("engine", engine, ("auto", *names())),
        threads=cores() if threads is None else whole("threads", threads, 1),
        certificate=truth("certificate", certificate),
        progress=progress,
        units=units,
    )
    journal: Journal = InMemory()
    if checkpoint is not None:
        journal = Checkpoint(checkpoint, _identity(request))
    with journal, blas_for(target.dim):
        ledger = Ledger(target.n, request.seconds, request.passes, progress)
        with journal.recording("law", ledger):
            law = _law(request, ledger) if method in (None, "closed-form") else None
        if law is not None:
            found = _closed_form(request, journal, law, ledger)
        elif method == "closed-form":
            raise requirement("method", "another one for this target", "'closed-form'", "its law is not known")
        else:
            found = Search(request, journal, ledger).run()
        with journal.recording("shown", ledger):
            target.shown()  # whoever looks at rows later has them
    parameters = found.parameters or stated(target, found.trace.draws)
    return replace(found, model=Model.of(target), units=units, names=target.names, parameters=parameters).about(target)


_KINDS = 3  # of numbers that are kept for each draw
_GROWTH = 4  # of draws from a known law, with a budget
_KNOWN = "the law of the posterior is known, and its moments are those of its formula"


def _identity(request: Request) -> dict[str, Any]:
    """What decides the numbers of a search."""
    return {
        "call": "sample",
        "version": VERSION,
        **request.target.identity(),
        "draws": request.draws,
        "chains": len(request.chains),
        "tolerance": request.tolerance,
        "seed": request.seed,
        "method": described(request.method),
        "budget_seconds": request.seconds,
        "budget_passes": request.passes,
        "certificate": request.certificate,
        **({} if request.engine == "auto" else {"engine": request.engine}),
        **({} if request.units is None else {"units": digest(request.units.centre, request.units.scale)}),
    }


def _law(request: Request, ledger: Ledger) -> Law | None:
    """The law of the posterior, where it is known."""
    try:
        with ledger.binding():
            return request.target.exact_law
    except BudgetSpent:
        raise ledger.missing("the law of the posterior is found") from None


def _drawn(law: Law, stream: Stream, asked: int, ledger: Ledger) -> Array:
    """Independent draws of each chain, as many as asked for; with a budget in seconds 4, and 4 times as many again and
    again while what is left pays for them at the last price.
    """
    count = asked if math.isinf(ledger.limits[0]) else LEAST
    while True:
        began = ledger.used()[0]
        x = law.draw(stream, count)
        more = min(asked, _GROWTH * count)
        if count == more or not ledger.pays((ledger.used()[0] - began) * more / count, 0.0):
            return x
        count = more


def _closed_form(request: Request, journal: Journal, law: Law, ledger: Ledger) -> Posterior:
    """Independent draws from a law that is known."""
    chains, dim, units = len(request.chains), len(law.mean), request.units
    asked = max(LEAST, -(-request.draws // chains))
    x = _drawn(law, Stream(request.seed, request.chains), asked, ledger)
    count = x.shape[1]
    mean, covariance = law.mean, law.covariance
    if units is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            x, mean, covariance = units.outward(x), units.outward(mean), units.linear(units.linear(covariance).T)
        if not (np.isfinite(covariance).all() and np.isfinite(mean).all()):
            why = "in the units of the columns their variances are beyond float64; scale the columns to about 1"
            raise requirement("the coefficients", "of a size that can be squared", "others", why)
    sd = np.sqrt(np.diag(covariance))
    zero = np.zeros(dim)
    seconds = ledger.used()[0]
    velocity = np.zeros((chains, dim))
    if journal.kept:
        journal.growing("draws", (chains, dim), "state").append(x)
        journal.growing("spent", (1,), "state").append(np.zeros((1, count)))
        told = {"sampler": {}, "seed": request.seed, "engine": "numpy", "n": request.target.n, "spent": 0.0}
        journal.put("state", told, {"v": velocity, "chains": request.chains})
    return Posterior(
        mean=mean,
        sd=sd,
        raw=Location(x.mean(axis=(0, 1)), spread(x)),
        corrected=Corrected(mean, sd, zero, zero),
        laplace=Location(mean, sd),
        trace=Trace(x, np.zeros(count), 0, velocity, seconds, None, request.seed, request.chains, "numpy"),
        method="closed-form",
        sampler=None,
        why=f"{law.why}.",
        certificate=Certificate("exact", request.tolerance, Bias(zero, zero, zero, zero), None, "exact", _KNOWN),
        ess=np.full(dim, float(chains * count)),
        r_hat=np.ones(dim),
        passes=2.0,
        seconds=seconds,
        compile_seconds=0.0,
        complete=count == asked,
        gaussian=law.gaussian,
    )
