"""Front doors: a table and a question in, a posterior on the scale of the data out."""

from svrhmc.fitting.doors import fit
from svrhmc.fitting.regress import regress

__all__ = ["fit", "regress"]
