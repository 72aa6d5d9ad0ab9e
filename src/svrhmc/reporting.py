"""Reports: a posterior as one page of HTML that needs nothing else, and the same numbers as a table."""

from svrhmc.results.report import report
from svrhmc.results.summary import Coefficient, coefficients, coefficients_csv

__all__ = ["Coefficient", "coefficients", "coefficients_csv", "report"]
