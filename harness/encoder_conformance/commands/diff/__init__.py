"""Compares two layers with the same parameters and inputs, and each with the oracle."""
