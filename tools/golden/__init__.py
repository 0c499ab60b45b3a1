"""Builds and verifies the frozen expectations."""
