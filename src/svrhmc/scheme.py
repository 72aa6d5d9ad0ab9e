"""One step of a dynamics as sixteen numbers: for a dynamics of your own (`svrhmc.dynamics`)."""

from svrhmc.dynamics import (
    IDENTITY,
    NOTHING,
    PLAIN,
    SILENT,
    Kick,
    Map,
    NoiseFactor,
    Scheme,
    StepNoise,
    move,
    normals_of,
    pushed,
    step_noise,
)

__all__ = [
    "IDENTITY",
    "NOTHING",
    "PLAIN",
    "SILENT",
    "Kick",
    "Map",
    "NoiseFactor",
    "Scheme",
    "StepNoise",
    "move",
    "normals_of",
    "pushed",
    "step_noise",
]
