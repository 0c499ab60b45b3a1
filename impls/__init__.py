"""Implementations of the encoder layer, one folder each: impl.yaml, adapter.py, requirements.txt, encoder.py."""
