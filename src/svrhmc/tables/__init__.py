"""Tables and formulas: from data frames and dictionaries to the rows of a regression, with names for their columns."""

from svrhmc.tables.columns import Columns, columns_of
from svrhmc.tables.design import Design, Designed, designed
from svrhmc.tables.stretches import split_times

__all__ = ["Columns", "Design", "Designed", "columns_of", "designed", "split_times"]
