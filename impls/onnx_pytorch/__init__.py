"""The PyTorch encoder, exported to ONNX by torch.onnx.export."""
