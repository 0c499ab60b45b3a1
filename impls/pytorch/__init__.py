"""The encoder layer as a PyTorch module."""
