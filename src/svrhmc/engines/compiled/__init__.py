"""The compiled engine: generalised linear models and quadratics, every sampler of the grid, chains across threads."""

from svrhmc.engines.compiled.engine import Compiled

__all__ = ["Compiled"]
