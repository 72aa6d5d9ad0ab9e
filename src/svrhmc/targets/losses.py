"""The class that a family of your own derives from, and the two losses of the paper, under the names they had first."""

from svrhmc.families.base import Loss
from svrhmc.families.bernoulli import LogisticLoss
from svrhmc.families.gaussian import SquaredLoss

__all__ = ["LogisticLoss", "Loss", "SquaredLoss"]
