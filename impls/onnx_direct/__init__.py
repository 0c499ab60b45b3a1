"""The encoder written as ONNX itself, in ONNX's text, with no exporter: plain operators."""
