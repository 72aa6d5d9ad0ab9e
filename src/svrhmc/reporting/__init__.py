"""Reports: a posterior as one page of HTML that needs nothing else, and the same numbers as a table."""

from svrhmc.reporting.numbers import Coefficient, coefficients, coefficients_csv
from svrhmc.reporting.page import report

__all__ = ["Coefficient", "coefficients", "coefficients_csv", "report"]
