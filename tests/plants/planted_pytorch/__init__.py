"""The PyTorch implementation with deviations planted in it."""
