"""Implementations: their manifests, and the interpreters that can run them."""
