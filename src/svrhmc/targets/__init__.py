"""Targets: what is sampled. They know no sampler."""

from svrhmc.targets import families, priors
from svrhmc.targets import losses as losses
from svrhmc.targets.base import FiniteSum, Moments
from svrhmc.targets.custom import Custom, custom
from svrhmc.targets.gaussian import Gaussian, gaussian, synthetic
from svrhmc.targets.generalised import GeneralisedLinear
from svrhmc.targets.libraries import from_bambi, from_numpyro, from_pymc
from svrhmc.targets.model import Model, model
from svrhmc.targets.regression import conjugate, glm, linear, logistic

__all__ = [
    "Custom",
    "FiniteSum",
    "Gaussian",
    "GeneralisedLinear",
    "Model",
    "Moments",
    "conjugate",
    "custom",
    "families",
    "from_bambi",
    "from_numpyro",
    "from_pymc",
    "gaussian",
    "glm",
    "linear",
    "logistic",
    "model",
    "priors",
    "synthetic",
]
