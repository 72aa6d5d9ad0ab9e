"""Targets: what is sampled. They know no sampler."""

from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.targets.custom import Custom, custom
from svrhmc.targets.gaussian import Gaussian, gaussian, synthetic
from svrhmc.targets.glm import GeneralisedLinear, linear, logistic

__all__ = [
    "Custom",
    "FiniteSum",
    "Gaussian",
    "GeneralisedLinear",
    "Moments",
    "custom",
    "gaussian",
    "linear",
    "logistic",
    "synthetic",
]
