"""Models of other libraries as targets: those of `svrhmc.models.libraries`."""

from svrhmc.models.libraries import from_bambi, from_numpyro, from_pymc

__all__ = ["from_bambi", "from_numpyro", "from_pymc"]
