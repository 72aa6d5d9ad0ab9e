"""Engines: who runs a sampler. One loop each, no mathematics of their own, the same chain from the same seed."""

from svrhmc.engines.base import Job, Outcome, Schedule
from svrhmc.engines.choice import ENGINES, gradients_at, prepare, run

__all__ = ["ENGINES", "Job", "Outcome", "Schedule", "gradients_at", "prepare", "run"]
