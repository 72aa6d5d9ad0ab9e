"""Engines: who runs a sampler. One loop each, no mathematics of their own, the same chain from the same seed."""

from svrhmc.engines.base import (
    EVERY,
    NONE,
    Chains,
    Density,
    Engine,
    Extension,
    Keep,
    Setup,
    State,
    chains,
    choose,
    estimates,
    names,
    register,
)
from svrhmc.engines.reference import Grid

__all__ = [
    "EVERY",
    "NONE",
    "Chains",
    "Density",
    "Engine",
    "Extension",
    "Grid",
    "Keep",
    "Setup",
    "State",
    "chains",
    "choose",
    "estimates",
    "names",
    "register",
]
