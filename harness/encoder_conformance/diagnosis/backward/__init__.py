"""Diagnoses gradients: which term of the backward pass is missing or scaled, where the forward pass is right."""
