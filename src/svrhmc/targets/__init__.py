"""Targets: what is sampled. They know no sampler."""

from svrhmc.density.base import FiniteSum, Moments
from svrhmc.density.custom import Custom, custom
from svrhmc.density.gaussian import Gaussian, gaussian, synthetic
from svrhmc.density.generalised import GeneralisedLinear
from svrhmc.density.glm import conjugate, glm, linear, logistic
from svrhmc.models.model import Model, model
from svrhmc.priors.groups import Group, Smooth
from svrhmc.targets import families, priors
from svrhmc.targets import losses as losses
from svrhmc.targets.libraries import from_bambi, from_numpyro, from_pymc

__all__ = [
    "Custom",
    "FiniteSum",
    "Gaussian",
    "GeneralisedLinear",
    "Group",
    "Model",
    "Moments",
    "Smooth",
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
