"""Families of generalised linear models, for `svrhmc.targets.glm`: those of `svrhmc.families`."""

from svrhmc.families import *  # noqa: F403
from svrhmc.families import __all__ as _made
from svrhmc.families.bernoulli import ProbitLoss
from svrhmc.families.binomial import BinomialLoss
from svrhmc.families.poisson import PoissonLoss

__all__ = ["BinomialLoss", "PoissonLoss", "ProbitLoss", *_made]
