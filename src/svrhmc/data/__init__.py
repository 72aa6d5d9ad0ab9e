"""Rows that are not in memory: partitions in files, memory maps and Dask collections, for every family of targets."""

from svrhmc.data.doors import from_arrays, from_csv, from_dask, from_parquet, from_sparse

__all__ = ["from_arrays", "from_csv", "from_dask", "from_parquet", "from_sparse"]
