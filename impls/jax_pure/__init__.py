"""The encoder layer as pure JAX functions over a tree of parameters."""
