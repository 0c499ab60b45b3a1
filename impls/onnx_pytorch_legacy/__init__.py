"""The PyTorch encoder, exported to ONNX by tracing: the exporter that torch.onnx.export was until PyTorch 2.9."""
