"""A layer of a library on JAX as an implementation: what every adapter of one keeps to (`adapter.py`)."""
