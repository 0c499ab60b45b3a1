"""The encoder written as ONNX with its Attention and RMSNormalization operators, of opset 23 and 24."""
