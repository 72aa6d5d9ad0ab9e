"""Engine names and which of them runs a job."""

from __future__ import annotations

from svrhmc.core.arrays import Array, Indices
from svrhmc.core.errors import requirement
from svrhmc.dynamics import IDENTITY, SILENT, Kick, Map, Scheme
from svrhmc.engines import reference
from svrhmc.engines.base import Job, Outcome, Schedule
from svrhmc.gradients import Gradient
from svrhmc.targets.base import FiniteSum

ENGINES = ("reference", "numba")
_PROBE = Scheme(IDENTITY, SILENT, Kick(0.0, -1.0), Map(1.0, 0.0, 0.0, 0.0), SILENT)  # a step that only sets v = g


def gradients_at(
    target: FiniteSum, gradient: Gradient, states: Array, seed: int, step: int, threads: int, chains: Indices
) -> Array:
    """The gradient's estimates at many states, each as that chain of that seed would make it at that step."""
    job = Job(
        target=target,
        scheme=_PROBE,
        gradient=gradient,
        step_size=1.0,
        seed=seed,
        chains=chains,
        start=states,
        schedule=Schedule(step + 1, step, 1, True),
        threads=threads,
        report=lambda amount: None,
        begin=step,
    )
    from svrhmc.engines import numba

    return numba.gradients(job) if numba.supports(job) else reference.run(job).velocity


def prepare(job: Job) -> None:
    """Compile, or load, what runs a job, so that it is not timed with it."""
    from svrhmc.engines import numba

    if numba.supports(job):
        numba.prepare(job)


def run(name: str, job: Job) -> tuple[str, Outcome]:
    """Run a job on the engine named; "auto" is numba wherever it applies. Gives the engine's name with the outcome."""
    if name == "reference":
        return name, reference.run(job)
    from svrhmc.engines import numba  # only now: compiled code is not loaded before it is used

    if numba.supports(job):
        return "numba", numba.run(job)
    if name == "numba":
        raise requirement(
            "engine",
            "'reference' or 'auto' for this target",
            "'numba'",
            "it is compiled for logistic, linear and gaussian targets, SAGA and order 2 for the first two",
        )
    return "reference", reference.run(job)
