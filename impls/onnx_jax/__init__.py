"""The JAX encoder, exported to ONNX by jax2onnx."""
