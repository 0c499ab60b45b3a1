"""The encoder in ONNX by the operators Attention, RMSNormalization and RotaryEmbedding, of opset 23 and 24."""
