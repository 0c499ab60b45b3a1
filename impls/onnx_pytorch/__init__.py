"""The PyTorch encoder layer, exported to ONNX and run by ONNX Runtime."""
