"""docs/onnx.md: each exporter, opset, runtime and optimisation level through the required float32 cases."""
