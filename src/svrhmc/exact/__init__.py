"""Samplers whose law is π itself, by a Metropolis step: for generalised linear models, in whitened coordinates."""

from svrhmc.exact.split import SplitHMC
from svrhmc.exact.subsampled import SubsampledMH

__all__ = ["SplitHMC", "SubsampledMH"]
