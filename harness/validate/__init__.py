"""Judges an ONNX file that somebody else made: what is in it, and how it does at other sizes, masks and runtimes."""
