"""Engine names and which of them runs a job."""

from __future__ import annotations

from svrhmc.engines import reference
from svrhmc.engines.base import Job, Outcome
from svrhmc.errors import requirement

ENGINES = ("reference", "numba")


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
            "it is compiled for logistic, linear and gaussian targets",
        )
    return "reference", reference.run(job)
