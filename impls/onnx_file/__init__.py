"""Any ONNX file that holds an encoder layer, or a stack of them: what is in it, told from the graph and proved by
numbers; and the file itself, run as an implementation."""
