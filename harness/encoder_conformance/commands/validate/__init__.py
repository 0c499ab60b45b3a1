"""Judges an ONNX file of any origin: its contents, and its results at other sizes, with masks, in every runtime."""
