"""Rows that are not in memory: partitions in files, memory maps and Dask collections, for every family of targets."""

from svrhmc.data.arrays import from_arrays, from_sparse
from svrhmc.data.csv import from_csv
from svrhmc.data.dask import from_dask
from svrhmc.data.parquet import from_parquet

__all__ = ["from_arrays", "from_csv", "from_dask", "from_parquet", "from_sparse"]
