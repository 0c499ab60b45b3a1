"""docs/onnx.md: every road at every opset, in every runtime and at every level, through the required float32 cases."""
