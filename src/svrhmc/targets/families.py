"""Families of generalised linear models, for `svrhmc.targets.glm`: those of `svrhmc.families`."""

from svrhmc.families import *  # noqa: F403
from svrhmc.families import __all__ as __all__
