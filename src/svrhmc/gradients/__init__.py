"""How ∇f is estimated: one formula with different memories."""

from svrhmc.gradients.estimator import Estimator
from svrhmc.gradients.kinds import SAGA, SVRG, Batched, ControlVariate, Full, Gradient, Minibatch, require_gradient
from svrhmc.gradients.recipe import Memory, Recipe

__all__ = [
    "SAGA",
    "SVRG",
    "Batched",
    "ControlVariate",
    "Estimator",
    "Full",
    "Gradient",
    "Memory",
    "Minibatch",
    "Recipe",
    "require_gradient",
]
