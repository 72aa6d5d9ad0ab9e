"""Engine names and which of them runs a job."""

from __future__ import annotations

from collections.abc import Callable

from svrhmc.engines import reference
from svrhmc.engines.base import Job, Outcome
from svrhmc.errors import one_of

ENGINES: dict[str, Callable[[Job], Outcome]] = {"reference": reference.run}


def choose(name: str) -> str:
    """The engine for a name; "auto" is the fastest one that can run the job."""
    one_of("engine", name, ("auto", *ENGINES))
    return "reference" if name == "auto" else name
