"""A role's own Dask cluster as a compute backend."""
