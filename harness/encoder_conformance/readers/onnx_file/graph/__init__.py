"""The ONNX graph: its nodes and constants, the lowering of vendor operators, and its execution."""
