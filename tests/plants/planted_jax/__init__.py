"""The JAX implementation with deviations planted in it."""
