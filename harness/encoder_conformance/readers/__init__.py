"""Workers that read what is no implementation: modules, ONNX files, files of tensors."""
