"""Runs a plan on a Dask cluster: in parts, each on a worker that can run that implementation."""
