"""The compiled engine: generalised linear models and quadratics, every sampler, chains across threads."""

from svrhmc.engines.compiled import gathered, split
from svrhmc.engines.compiled.engine import Compiled

__all__ = ["Compiled", "gathered", "split"]
