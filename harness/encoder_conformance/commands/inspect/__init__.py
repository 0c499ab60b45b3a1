"""Inspects one live layer: the shapes, memory, parameters and time of its stages."""
