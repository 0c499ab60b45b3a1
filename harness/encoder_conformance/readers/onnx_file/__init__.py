"""Any ONNX file with an encoder layer or a stack of them: inspects it, infers the layer from the graph, verifies it by
a run, and runs the file as an implementation.

The rooms import each other in this order: `graph`, then `reading`, `interface` and `tracing`, then `layer`.
"""
