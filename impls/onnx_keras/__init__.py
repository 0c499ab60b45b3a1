"""The Keras encoder on TensorFlow, exported to ONNX by Keras or by tf2onnx, which Keras calls."""
