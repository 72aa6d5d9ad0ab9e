"""Rows of data: in memory, dense or sparse, and in partitions; what is summed over them, and who reads them."""
