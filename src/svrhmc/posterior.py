"""A posterior with no options set: mode, whitening, choice of a sampler, a run until there are enough draws, a
certificate.
"""

from __future__ import annotations

import os
from inspect import signature
from typing import Any

from svrhmc.core.errors import explain_foreign_keywords
from svrhmc.core.progress import Progress
from svrhmc.density.base import FiniteSum
from svrhmc.results.advice import warn_of_verdict
from svrhmc.results.posterior import Posterior, build_posterior
from svrhmc.sampling.certificate import Bias, Certificate
from svrhmc.sampling.choice import METHODS
from svrhmc.sampling.correction import Corrected, Location
from svrhmc.sampling.run import find_answer

__all__ = ["METHODS", "Bias", "Certificate", "Corrected", "Location", "Posterior", "sample"]


@explain_foreign_keywords(
    random_seed="seed",
    rng_key="seed",
    samples="draws",
    num_samples="draws",
    n_samples="draws",
    num_chains="chains",
    n_chains="chains",
    cores="threads",
    progressbar="progress",
    sampler="method",
    step="method",
)
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
    devices: object = None,
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
    method: None to let `sample` choose; or "closed-form", "split-hmc", "subsampled-mh" or, for Gaussian models with
        groups, "marginal-mh" (exact); or "anchored", "baoab" or "ubu" (biased: the step is halved, at most four times,
        until the verdict is "certified"); or a sampler of the grid or of `svrhmc.exact`, which is run with its own
        settings in whitened variables.
    budget_seconds, budget_passes: stop when so much is spent, with the draws made so far; compilation is not counted.
        Where there are none yet the Laplace approximation is returned, and before the mode is found it is an error.
        (With a budget in seconds the number of draws, and all that follows from it, depends on the machine.)
    engine: who runs the chains: "auto" (by the sampler, the size of the problem and where its rows are), or the name of
        an engine, as for `Sampler.run`. `posterior.trace.engine` says which it was.
    devices: where passes over the rows run: None for the cores of this machine; "gpu", "all", "cpu", or a list of JAX's
        devices, to which the rows are copied (dense rows of a generalised linear model, with `pip install
        'svrhmc[jax]'`). The sampler is then one with full gradients. It pays from some hundred thousand rows on; a
        device is never used unless it is asked for.
    threads: None to use every core.
    certificate: False to skip the chains that only serve to measure a bias. The verdict is then "unjudged" for samplers
        that have one. (Of a verdict that is undecided, refuted or unjudged, and of a run that ended with fewer draws
        than were asked for, a `VerdictWarning` tells.)
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

    answer, cost = find_answer(
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
        devices=devices,
        threads=threads,
        certificate=certificate,
        progress=progress,
        checkpoint=checkpoint,
    )
    posterior = build_posterior(answer, cost, target, None, target.names)
    warn_of_verdict(posterior)
    return posterior


def usual_settings() -> dict[str, Any]:
    """The settings of `sample` with their defaults, by name."""
    parameters = signature(sample).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty}
