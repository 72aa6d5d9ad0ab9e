"""Front doors: a table and a question in, a posterior on the scale of the data out."""

from svrhmc.fitting.preview import design
from svrhmc.fitting.regression import fit, regress

__all__ = ["design", "fit", "regress"]
